//! The program `int` and the switch in Rust do the same: random packets, tables and measurements, byte for byte.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod against_bmv2;
#[path = "../support/bmv2.rs"]
mod bmv2;
mod packets;
mod pair;
#[path = "../../../../dataplane/tests/dataplane/reader.rs"]
mod reader;
mod rules;
mod sampling;
#[path = "../support/setup.rs"]
mod setup;
mod vectors;

use std::sync::Arc;

use dataplane::Filter;
use dataplane::switch::Stats;
use detect::detector::Decision;
use p4_model::Program;
use testkit::rng::Rng;

use packets::{forge, is_beyond, packet, without_length};
use pair::{AVAILABLE, Pair};

const PROGRAM: &str = include_str!("../../../../p4/v1model/int.json");

/// Number of random networks; `HOPWISE_P4_SEEDS` for a longer search.
fn seeds() -> u64 {
    std::env::var("HOPWISE_P4_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(600)
}

/// A few flows with one route, whose values change little, so that filters suppress most reports. Returns the packets sent and the decisions.
fn decided(filter: fn(&mut Rng) -> Filter) -> (usize, [u64; Decision::COUNT]) {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut sent, mut decided) = (0, [0; Decision::COUNT]);
    for seed in 0..seeds() / 4 {
        let mut rng = Rng(seed);
        let flows: Vec<Vec<u8>> = (0..4).map(|_| packet(&mut rng)).collect();
        let roles = [(true, false), (false, false), (false, true)];
        let mut path: Vec<Pair> = roles
            .iter()
            .map(|edges| Pair::filtering(&mut rng, &program, *edges, filter))
            .collect();
        for _ in 0..30 {
            let frame = flows[rng.below(flows.len())].clone();
            sent += send_along(&mut path, frame, (seed, &mut rng), 40);
        }
        for counts in path
            .iter()
            .flat_map(|pair| pair.rust.filters().entries().map(|(_, counts)| *counts))
        {
            decided
                .iter_mut()
                .zip(counts.decisions)
                .for_each(|(sum, count)| *sum += count);
        }
    }
    (sent, decided)
}

#[test]
fn filters_decide_the_same() {
    let (sent, decided) = decided(pair::filter);
    let least = [450, 1, 120, 300, 350, 1500];
    let enough = decided.iter().zip(least).all(|(count, least)| *count >= least);
    assert!(
        sent >= 4_000 && enough,
        "{sent} packets, decisions {decided:?}: the test has become idle"
    );
}

#[test]
fn filters_by_rule_decide_the_same() {
    let (sent, decided) = decided(pair::by_rule);
    let least = [400, 30, 0, 200, 0, 1000];
    let enough = decided.iter().zip(least).all(|(count, least)| *count >= least);
    assert!(
        sent >= 4_000 && enough,
        "{sent} packets, decisions {decided:?}: the test has become idle"
    );
}

/// Sends a packet from switch to switch until it is dropped, and corrupts it before one switch of `corrupted`. Returns how many
/// switches had it.
fn send_along(
    path: &mut [Pair],
    mut frame: Vec<u8>,
    (seed, rng): (u64, &mut Rng),
    corrupted: usize,
) -> usize {
    for (hop, pair) in path.iter_mut().enumerate() {
        if !frame.is_empty() && rng.below(corrupted) == 0 {
            rng.corrupt(&mut frame);
        }
        if frame.is_empty() || is_beyond(&frame) {
            return hop;
        }
        let sent = pair.send(rng, &frame);
        frame = sent.unwrap_or_else(|error| panic!("seed {seed}, hop {hop}: {error}\n  in   {frame:02x?}"));
    }
    path.len()
}

/// Packets from source to sink, over switches that differ in all but the encoding; some are corrupted on their way.
#[test]
fn packets_and_reports_are_the_same() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut sent, mut counts) = (0, [0; 6]);
    for seed in 0..seeds() {
        let mut rng = Rng(seed);
        let roles = [
            (true, false),
            (false, false),
            (false, false),
            (false, true),
            (true, true),
        ];
        let mut path: Vec<Pair> = roles
            .iter()
            .map(|edges| Pair::new(&mut rng, &program, *edges, AVAILABLE))
            .collect();
        let mut host = Pair::new(&mut rng, &program, (true, false), AVAILABLE);
        for _ in 0..8 {
            let mut frame = packet(&mut rng);
            let last = rng.below(path.len());
            let path = if last == 4 { &mut path[4..] } else { &mut path[..4] };
            if rng.below(2) == 0 {
                // A host that knows the domain.
                frame = host.send(&mut rng, &frame).unwrap_or_default();
                forge(&mut rng, &mut frame);
            }
            sent += send_along(path, frame, (seed, &mut rng), 12);
        }
        for stats in path.iter().map(|pair| pair.rust.stats()) {
            let Stats {
                reported,
                queues_reported,
                congested_reported,
                drops_reported,
                ..
            } = *stats;
            let Stats {
                edge_stripped,
                edge_refused,
                ..
            } = *stats;
            let now = [
                reported,
                queues_reported,
                congested_reported,
                drops_reported,
                edge_stripped,
                edge_refused,
            ];
            counts.iter_mut().zip(now).for_each(|(count, now)| *count += now);
        }
    }
    let least = [1500, 800, 400, 400, 200, 60];
    let enough = counts.iter().zip(least).all(|(count, least)| *count > least);
    assert!(
        sent >= 10_000 && enough,
        "{sent} packets, reports {counts:?}: the test has become idle"
    );
}

/// IPv6 packets with a payload length of 0, which the source's INT follows or none: both leave them alone, and count the former as refused.
#[test]
fn ipv6_without_a_length_is_left_alone() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut plain, mut refused) = (0, 0);
    for seed in 0..seeds() / 2 {
        let mut rng = Rng(seed);
        let roles = [
            (true, false),
            (true, false),
            (false, false),
            (false, true),
            (true, true),
        ];
        let [mut host, rest @ ..] = roles.map(|edges| Pair::new(&mut rng, &program, edges, AVAILABLE));
        for mut pair in rest {
            let frame = packet(&mut rng);
            if is_beyond(&frame) {
                continue;
            }
            let mut frame = host.send(&mut rng, &frame).unwrap();
            if !without_length(&mut frame) {
                continue;
            }
            send_along(std::slice::from_mut(&mut pair), frame, (seed, &mut rng), 6);
            plain += pair.rust.stats().plain;
            refused += pair.rust.stats().refused;
        }
    }
    assert!(
        plain >= 60 && refused >= 25,
        "{plain} plain, {refused} refused: the test has become idle"
    );
}

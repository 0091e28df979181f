//! The program `sf` and the switch in Rust do the same: random flows, packets and measurements, byte for byte, with the registers.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

mod against_bmv2;
#[path = "../support/bmv2.rs"]
mod bmv2;
mod flows;
#[allow(dead_code, reason = "shared with the test of `int`")]
#[path = "../int/packets.rs"]
mod packets;
mod pair;
#[path = "../../../../dataplane/tests/dataplane/reader.rs"]
mod reader;
#[path = "../support/setup.rs"]
mod setup;
mod vectors;

use std::sync::Arc;

use dataplane::switch::Stats;
use p4_model::{Arrival, Program};
use testkit::rng::Rng;

use flows::{distort, flow, is_beyond};
use packets::without_length;
use pair::Pair;

const PROGRAM: &str = include_str!("../../../../p4/v1model/sf.json");

/// Number of random networks; `HOPWISE_P4_SEEDS` for a longer search.
fn seeds() -> u64 {
    std::env::var("HOPWISE_P4_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(300)
}

/// Sends a packet from switch to switch until it is dropped, and distorts it before one switch of `distorted`. Returns how many
/// switches had it.
fn send_along(
    path: &mut [&mut Pair],
    mut frame: Vec<u8>,
    (seed, rng): (u64, &mut Rng),
    (now, distorted): (u64, usize),
) -> usize {
    for (hop, pair) in path.iter_mut().enumerate() {
        if !frame.is_empty() && rng.below(distorted) == 0 {
            distort(rng, &mut frame);
        }
        if frame.is_empty() || is_beyond(&frame) {
            return hop;
        }
        let ingress_ts = now + hop as u64 * 100;
        let (egress_ts, deq_qdepth) = (ingress_ts + rng.roll() % 50, rng.below(200) as u32);
        let sent = pair.pass(
            &frame,
            Arrival {
                port: 1,
                ingress_ts,
                egress_ts,
                deq_qdepth,
            },
        );
        frame = sent.unwrap_or_else(|error| panic!("seed {seed}, hop {hop}: {error}\n  in   {frame:02x?}"));
    }
    path.len()
}

/// Flows that share registers, from sources that differ in instructions, over two transit switches to a sink; and at a switch that is
/// both. Time sometimes stands still, is set back, or passes until registers are too old.
#[test]
fn packets_reports_registers_and_rules_are_the_same() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut sent, mut rules, mut counts) = (0, [0; 10], [0; 10]);
    for seed in 0..seeds() {
        let mut rng = Rng(seed);
        let flows: Vec<Vec<u8>> = (0..1 + rng.below(4)).map(|_| flow(&mut rng)).collect();
        let roles = [
            (true, false),
            (true, false),
            (false, false),
            (false, false),
            (false, true),
            (true, true),
        ];
        let pairs = roles.map(|edges| Pair::new(&mut rng, &program, edges));
        let [mut first, mut second, mut near, mut far, mut sink, mut both] = pairs;
        let mut now = 50_000_000;
        for _ in 0..40 {
            now = match rng.below(if seed % 2 == 0 { 12 } else { 1000 }) {
                0 => now + 1_100_000,
                1 => now - 900_000,
                _ => now + 500,
            };
            if rng.below(40) == 0 {
                [&mut near, &mut far][rng.below(2)].wipe();
            }
            let frame = flows[rng.below(flows.len())].clone();
            let mut path = match rng.below(10) {
                0 => vec![&mut both],
                // A host that knows the domain.
                1 => vec![&mut first, &mut second, &mut near, &mut far, &mut sink],
                2 => vec![&mut second, &mut near, &mut far, &mut sink],
                _ => vec![&mut first, &mut near, &mut far, &mut sink],
            };
            sent += send_along(
                &mut path,
                frame,
                (seed, &mut rng),
                (now, [12, 6][seed as usize % 2]),
            );
        }
        for stats in [&first, &second, &near, &far, &sink, &both].map(|pair| pair.rust.stats()) {
            rules
                .iter_mut()
                .zip(stats.sf_rules)
                .for_each(|(sum, count)| *sum += count);
            let Stats {
                recorded,
                swapped,
                reported,
                urgent,
                hops_exceeded,
                mtu_exceeded,
                ..
            } = *stats;
            let Stats {
                not_restorable,
                malformed_stripped,
                edge_stripped,
                refused,
                ..
            } = *stats;
            let now = [
                recorded,
                swapped,
                reported,
                urgent,
                hops_exceeded,
                mtu_exceeded,
                not_restorable,
                malformed_stripped,
                edge_stripped,
                refused,
            ];
            counts.iter_mut().zip(now).for_each(|(sum, count)| *sum += count);
        }
    }
    let enough = rules.iter().chain(&counts).all(|count| *count >= 5);
    assert!(
        sent >= 10_000 && enough,
        "{sent} packets, rules {rules:?}, counts {counts:?}: the test has become idle"
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
        let [mut host, rest @ ..] = roles.map(|edges| Pair::new(&mut rng, &program, edges));
        for mut pair in rest {
            let arrival = Arrival {
                port: 1,
                ingress_ts: 50_000_000,
                egress_ts: 50_000_100,
                deq_qdepth: 1,
            };
            let frame = flow(&mut rng);
            if is_beyond(&frame) {
                continue;
            }
            let mut frame = host.pass(&frame, arrival).unwrap();
            if !without_length(&mut frame) {
                continue;
            }
            send_along(&mut [&mut pair], frame, (seed, &mut rng), (50_000_000, 6));
            plain += pair.rust.stats().plain;
            refused += pair.rust.stats().refused;
        }
    }
    assert!(
        plain >= 60 && refused >= 60,
        "{plain} plain, {refused} refused: the test has become idle"
    );
}

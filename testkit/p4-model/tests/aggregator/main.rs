//! The program `aggregator` and the aggregator in Rust do the same: random postcards, kinds and timers, byte for byte.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

#[path = "../support/bmv2.rs"]
mod bmv2;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aggregator::{Aggregator, Cause, Config, Output, RefusalReason, Spread};
use p4_model::{Arrival, Entry, Key, Program, Switch};
use testkit::rng::Rng;
use wire::aggregate::Kind;

const PROGRAM: &str = include_str!("../../../../p4/v1model/aggregator.json");
/// Port of the control plane, and the first port to a destination.
const CPU: u16 = 60;
const DESTINATIONS: u16 = 100;
const PORT: u16 = 32766;
/// The clone session of the rest of a datagram.
const REST: u32 = 501;
/// Postcards of a datagram at most.
const DATAGRAM: usize = 40;

/// Number of random aggregators; `HOPWISE_P4_SEEDS` for a longer search.
fn seeds() -> u64 {
    std::env::var("HOPWISE_P4_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(120)
}

#[derive(Default)]
struct Sent(Vec<(usize, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, destination: usize, payload: &[u8]) {
        self.0.push((destination, payload.to_vec()));
    }
}

/// The model, and the commands that set up BMv2 in the same way.
struct Target {
    model: Switch,
    commands: String,
}

fn words(numbers: &[u128]) -> String {
    numbers
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

fn exact(table: &str, key: u128, action: &str, parameters: Vec<u128>, target: &mut Target) {
    writeln!(
        target.commands,
        "table_add {table} {action} {key} => {}",
        words(&parameters)
    )
    .unwrap();
    let entry = Entry {
        keys: vec![Key::Exact(key)],
        priority: 0,
        action: action.to_owned(),
        parameters,
    };
    target.model.insert(table, &entry).unwrap();
}

/// Both aggregators.
struct Pair {
    rust: Aggregator,
    p4: Target,
    slots: u32,
    unreadable: u64,
}

impl Pair {
    fn new(program: &Program, config: Config) -> Self {
        let mut p4 = Target {
            model: Switch::new(program.clone()),
            commands: String::new(),
        };
        let slots = if config.kind.node_scope() {
            config.registers
        } else {
            config.destinations
        };
        let parameters = [
            config.kind as u128,
            config.r.into(),
            (config.timer / 1000).into(),
            config.aggregator.into(),
            config.registers as u128 - 1,
            config.destinations as u128,
            u128::from(config.spread == Spread::Node),
        ];
        p4.model
            .set_default("aggregator", "aggregate", &parameters)
            .unwrap();
        writeln!(
            p4.commands,
            "table_set_default aggregator aggregate {}",
            words(&parameters)
        )
        .unwrap();
        exact("postcard_port", PORT.into(), "accept_postcards", vec![], &mut p4);
        exact("timer_port", CPU.into(), "accept_timer", vec![], &mut p4);
        exact("other", 1, "forward", vec![2], &mut p4);
        p4.model.set_session(REST, 1);
        writeln!(p4.commands, "mirroring_add {REST} 1").unwrap();
        for destination in 0..config.destinations as u16 {
            // Every other one is reached over IPv6.
            let (action, [src, dst]) = match destination % 2 {
                0 => ("send", [0x0a00_0001, 0x0a00_0002]),
                _ => (
                    "send_v6",
                    [1, 2].map(|host| u128::from(0xfd00_u16) << 112 | u128::MAX >> 16 << 8 | host),
                ),
            };
            let parameters = vec![(DESTINATIONS + destination).into(), 1, 2, src, dst, 32767];
            exact("destination", destination.into(), action, parameters, &mut p4);
        }
        Self {
            rust: Aggregator::new(config).unwrap(),
            p4,
            slots: slots as u32,
            unreadable: 0,
        }
    }

    /// Gives a frame to the program. Returns the datagrams that it sends.
    fn give(&mut self, us: u64, port: u16, frame: &[u8], sent: &mut Sent) {
        let arrival = Arrival {
            port,
            ingress_ts: us,
            egress_ts: us,
            ..Arrival::default()
        };
        for out in self.p4.model.process(frame, &arrival) {
            let destination = usize::from(out.port - DESTINATIONS);
            sent.0
                .push((destination, payload(&out.frame, destination % 2 == 1)));
        }
    }

    /// The timer's frames for all registers.
    fn tick(&mut self, us: u64, stop: bool, sent: &mut Sent) {
        for slot in 0..self.slots {
            let frame = timer(slot, stop);
            self.give(us, CPU, &frame, sent);
        }
    }

    /// A datagram at the time `us`, for both.
    fn send(&mut self, us: u64, payload: &[u8], v6: bool) -> Result<(), String> {
        let (mut rust, mut p4) = (Sent::default(), Sent::default());
        self.rust.tick(us * 1000, &mut rust);
        self.tick(us, false, &mut p4);
        unordered(rust, p4)?;
        let (mut rust, mut p4) = (Sent::default(), Sent::default());
        if is_exact(payload) {
            self.rust.ingest(us * 1000, [payload], &mut rust);
        } else {
            self.unreadable += 1;
        }
        self.give(us, 1, &frame(payload, v6), &mut p4);
        if rust.0 != p4.0 {
            return Err(format!(
                "datagrams differ\n  rust {:02x?}\n  p4   {:02x?}",
                rust.0, p4.0
            ));
        }
        self.counters()
    }

    fn finish(&mut self, us: u64) -> Result<(), String> {
        let (mut rust, mut p4) = (Sent::default(), Sent::default());
        self.rust.finish(&mut rust);
        self.tick(us, true, &mut p4);
        unordered(rust, p4)?;
        self.counters()
    }

    fn counters(&self) -> Result<(), String> {
        let stats = self.rust.stats();
        let refused = |reason: RefusalReason| stats.refused[reason as usize];
        let rust = [
            stats.postcards,
            refused(RefusalReason::NoNode),
            refused(RefusalReason::NoFlow),
            refused(RefusalReason::NoValue),
            stats.missing_values,
        ];
        let sent = Cause::ALL.map(|cause| stats.sent[cause as usize].aggregates);
        let p4 = (
            self.p4.model.counter("postcards").unwrap(),
            self.p4.model.counter("sent").unwrap(),
            self.p4.model.counter("unreadable").unwrap(),
        );
        if (&rust[..], &sent[..], &[self.unreadable][..]) == p4 {
            Ok(())
        } else {
            Err(format!(
                "counters differ: rust {rust:?} {sent:?} {}, p4 {p4:?}",
                self.unreadable
            ))
        }
    }
}

/// Compares what registers send at one time: Rust in the order of their age, P4 in their own. So sequence numbers differ.
fn unordered(rust: Sent, p4: Sent) -> Result<(), String> {
    let unnumbered = |sent: Sent| {
        let mut all = sent.0;
        all.iter_mut().for_each(|(_, payload)| payload[12..16].fill(0));
        all.sort();
        all
    };
    let (rust, p4) = (unnumbered(rust), unnumbered(p4));
    match rust == p4 {
        true => Ok(()),
        false => Err(format!(
            "datagrams at a time differ\n  rust {rust:02x?}\n  p4   {p4:02x?}"
        )),
    }
}

/// The payload of a datagram whose lengths and checksums are right.
fn payload(frame: &[u8], v6: bool) -> Vec<u8> {
    let (ip, rest) = frame[14..].split_at(if v6 { 40 } else { 20 });
    let (udp, payload) = rest.split_at(8);
    let number = |bytes: &[u8], at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    assert_eq!(
        [number(udp, 2), number(udp, 4)],
        [32767, 8 + payload.len()],
        "{frame:02x?}"
    );
    if v6 {
        assert_eq!(
            (&frame[12..14], number(ip, 4), ip[6]),
            (&[0x86, 0xdd][..], rest.len(), 17),
            "{frame:02x?}"
        );
        let mut segment = rest.to_vec();
        segment[6..8].fill(0);
        assert_eq!(
            udp[6..8],
            wire::checksum::udp(&ip[8..], &segment).to_be_bytes(),
            "{frame:02x?}"
        );
    } else {
        assert_eq!(
            (wire::checksum::of(ip), number(ip, 2)),
            (0, 20 + rest.len()),
            "{frame:02x?}"
        );
    }
    payload.to_vec()
}

/// A timer frame.
fn timer(slot: u32, stop: bool) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&[0x88, 0xb5, u8::from(stop), 0, 0, 0]);
    frame.extend_from_slice(&slot.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// A datagram with postcards of exactly the layout of wire-formats 4.1, which is what the program reads.
fn is_exact(payload: &[u8]) -> bool {
    let Some((group, rest)) = payload.split_first_chunk::<8>() else {
        return false;
    };
    let (postcards, behind) = rest.as_chunks::<36>();
    let is_exact = |bytes: &[u8; 36]| {
        bytes[..3] == [0x10, 8, 6]
            && bytes[3] & 0x80 == 0
            && bytes[4..12] == [0x1c, 0, 0x50, 0x43, 0x80, 0, 0, 0]
    };
    let fits = (1..=DATAGRAM).contains(&postcards.len()) && behind.is_empty();
    fits && group[0] >> 4 == 2 && postcards.iter().all(is_exact)
}

/// A frame from a node, with a checksum.
fn frame(payload: &[u8], v6: bool) -> Vec<u8> {
    let mut segment = [0x12, 0x34].to_vec();
    segment.extend_from_slice(&PORT.to_be_bytes());
    segment.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    segment.extend_from_slice(&[0, 0]);
    segment.extend_from_slice(payload);
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    let addresses: Vec<u8> = (0..if v6 { 32 } else { 8 }).collect();
    let sum = wire::checksum::udp(&addresses, &segment);
    segment[6..8].copy_from_slice(&sum.to_be_bytes());
    if v6 {
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend_from_slice(&(segment.len() as u16).to_be_bytes());
        frame.extend_from_slice(&[17, 64]);
    } else {
        let mut head = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0];
        head[2..4].copy_from_slice(&(20 + segment.len() as u16).to_be_bytes());
        let sum = wire::checksum::of(&[&head[..], &addresses].concat());
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&[8, 0]);
        frame.extend_from_slice(&head);
    }
    frame.extend_from_slice(&addresses);
    frame.extend_from_slice(&segment);
    // Ethernet pads short frames.
    let len = frame.len().max(60);
    frame.resize(len, 0);
    frame
}

/// A datagram with postcards of a node; some with missing values, some in other forms, some corrupted.
fn datagram(rng: &mut Rng) -> Vec<u8> {
    let ones = |rng: &mut Rng, value: u64| if rng.below(12) == 0 { u64::MAX } else { value };
    let mut out = vec![0x20, rng.roll() as u8, rng.roll() as u8, rng.roll() as u8];
    let node = rng.below(4) as u64;
    out.extend_from_slice(&(ones(rng, node) as u32).to_be_bytes());
    let postcards = [1, 1, 1, 2, 2, 3, 7, DATAGRAM, DATAGRAM + 1];
    let few = if rng.below(20) == 0 { 9 } else { 7 };
    let postcards = postcards[rng.below(few)];
    (0..postcards).for_each(|_| postcard(rng, &mut out));
    if rng.below(20) == 0 {
        let before = out.clone();
        rng.corrupt(&mut out);
        // The program subtracts the low halves of timestamps (p4/README.md), so implausible latencies would differ.
        for at in (8 + 16..before.len()).step_by(POSTCARD) {
            let end = (at + 16).min(out.len()).max(at);
            if let Some(stamps) = out.get_mut(at..end) {
                stamps.copy_from_slice(&before[at..end]);
            }
        }
    }
    out
}

/// Bytes of a postcard of the usual layout.
const POSTCARD: usize = 36;

fn postcard(rng: &mut Rng, out: &mut Vec<u8>) {
    let ones = |rng: &mut Rng, value: u64| if rng.below(12) == 0 { u64::MAX } else { value };
    out.extend_from_slice(&[
        0x10,
        8,
        6,
        rng.roll() as u8 & 0x7f,
        0x1c,
        0,
        0x50,
        0x43,
        0x80,
        0,
        0,
        0,
    ]);
    let queue = [rng.roll() & 0xff00_00ff, 0x00ff_ffff, 7][rng.below(3)];
    out.extend_from_slice(&(ones(rng, queue) as u32).to_be_bytes());
    let ingress = [rng.roll(), 0xffff_ffff, 0x17a3_b2c1_ffff_fff0][rng.below(3)];
    let egress = ingress.wrapping_add(rng.roll() % 5000);
    out.extend_from_slice(&ones(rng, ingress).to_be_bytes());
    out.extend_from_slice(&ones(rng, egress).to_be_bytes());
    let flow = 0xf10a + rng.below(9) as u64;
    out.extend_from_slice(&(ones(rng, flow) as u32).to_be_bytes());
}

fn config(rng: &mut Rng, kind: Kind) -> Config {
    let most = if kind.is_correlated() { 40 } else { 25 };
    Config {
        kind,
        r: [1, 2, 3, 7, 25, 1 + rng.below(most) as u32][rng.below(6)],
        timer: 1000 * (1 + rng.below(200) as u64),
        registers: [1, 4, 16][rng.below(3)],
        ways: 1,
        aggregator: rng.roll() as u32,
        destinations: [1, 1, 2, 5, 64][rng.below(5)],
        spread: [Spread::Node, Spread::Flow][rng.below(2)],
        ..Config::default()
    }
}

#[test]
fn aggregates_and_counters_are_the_same() {
    let program = Program::read(PROGRAM).unwrap();
    let (mut sent, mut causes) = (0, [0; 4]);
    for seed in 0..seeds() {
        let mut rng = Rng(seed);
        let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
        let mut pair = Pair::new(&program, config(&mut rng, kind));
        let mut us = 1_000_000;
        for _ in 0..100 {
            us += 1;
            let (payload, v6) = (datagram(&mut rng), rng.below(4) == 0);
            pair.send(us, &payload, v6)
                .unwrap_or_else(|error| panic!("seed {seed}, {:?}: {error}", pair.rust.config()));
            sent += 1;
        }
        pair.finish(us)
            .unwrap_or_else(|error| panic!("seed {seed}, {:?}: {error}", pair.rust.config()));
        let stats = pair.rust.stats();
        causes
            .iter_mut()
            .zip(&stats.sent)
            .for_each(|(all, sent)| *all += sent.aggregates);
    }
    assert!(
        sent >= 10_000 && causes.iter().all(|sent| *sent > 50),
        "{sent} {causes:?}: the test has become idle"
    );
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The settings of a vector. `None`: with what the program does not have, ways and Report 2.0 as output.
fn settings(words: &str) -> Option<Config> {
    let mut config = Config {
        registers: 1,
        ways: 1,
        timer: 1,
        ..Config::default()
    };
    for (name, value) in words.split(' ').map(|word| word.split_once('=').unwrap()) {
        let number = || value.parse::<usize>().unwrap();
        match name {
            "kind" => config.kind = Kind::from_name(value).unwrap(),
            "r" => config.r = number() as u32,
            "timer" => config.timer = number() as u64,
            "registers" => config.registers = number(),
            "aggregator" => config.aggregator = number() as u32,
            "destinations" => config.destinations = number(),
            "spread" => {
                config.spread = if value == "node" {
                    Spread::Node
                } else {
                    Spread::Flow
                }
            }
            _ if words.contains("interop") || words.contains("ways=2") => return None,
            _ => {}
        }
    }
    Some(config)
}

/// Times of the vectors are ns; the program counts microseconds: a thousand times as much.
#[test]
fn vectors_are_the_same() {
    let program = Program::read(PROGRAM).unwrap();
    let path = std::env::current_dir()
        .unwrap()
        .join("../../vectors/aggregator/aggregates.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut compared, mut left) = (0, Vec::new());
    for block in text
        .trim()
        .split("\n\n")
        .filter(|block| block.contains("config:"))
    {
        let value = |line: &str, key: &str| line.strip_prefix(key).map(|value| value.trim().to_owned());
        let (mut pair, mut us, mut name) = (None, 0, String::new());
        for line in block.lines() {
            if let Some(text) = value(line, "name:") {
                name = text;
            } else if let Some(words) = value(line, "config:") {
                pair = settings(&words).map(|config| {
                    Pair::new(
                        &program,
                        Config {
                            timer: config.timer * 1000,
                            ..config
                        },
                    )
                });
                if pair.is_none() {
                    left.push(name.clone());
                }
            }
            let Some(pair) = &mut pair else { continue };
            let done = if let Some(text) = value(line, "in:") {
                let (at, payloads) = text.split_once(' ').unwrap();
                us = at.parse().unwrap();
                payloads
                    .split(',')
                    .try_for_each(|payload| pair.send(us, &hex(payload), false))
            } else if let Some(at) = value(line, "tick:") {
                us = at.parse().unwrap();
                pair.send(us, &[], false)
            } else if value(line, "finish:").is_some() {
                pair.finish(us)
            } else {
                continue;
            };
            done.unwrap_or_else(|error| panic!("{name}: {error}"));
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}: the test has become idle");
    assert_eq!(
        left,
        ["stage_evicted_oldest", "stage_interop_n", "stage_interop_nf"]
    );
}

/// The postcards in aggregates to each destination, of which the first is reached over IPv4, and the second over IPv6.
fn postcards(sent: &BTreeMap<u16, Vec<Vec<u8>>>) -> Vec<(u16, [u8; 20])> {
    let of = |(port, frames): (&u16, &Vec<Vec<u8>>)| -> Vec<(u16, [u8; 20])> {
        let payloads = frames.iter().map(|frame| payload(frame, *port != DESTINATIONS));
        payloads
            .flat_map(|payload| payload[24..].as_chunks::<20>().0.to_vec())
            .map(|one| (*port, one))
            .collect()
    };
    let mut all: Vec<_> = sent.iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn the_model_and_bmv2_do_the_same() {
    let test = "the_model_and_bmv2_do_the_same";
    let program = Program::read(PROGRAM).unwrap();
    for (kind, several) in [
        (Kind::AggNodeFlow, false),
        (Kind::CorNode, false),
        (Kind::AggNodeFlow, true),
    ] {
        let mut rng = Rng(5);
        let config = Config {
            kind,
            r: 6,
            registers: 16,
            ways: 1,
            destinations: 2,
            ..Config::default()
        };
        let mut pair = Pair::new(&program, config);
        // The timer's frames come from the same port.
        exact("timer_port", 1, "accept_timer", vec![], &mut pair.p4);
        let mut payload = |_| loop {
            let payload = datagram(&mut rng);
            if several || payload.len() == 44 {
                return frame(&payload, rng.below(4) == 0);
            }
        };
        let mut input: Vec<Vec<u8>> = (0..300).map(&mut payload).collect();
        input.extend((0..16).map(|slot| timer(slot, true)));
        let mut expected = BTreeMap::<u16, Vec<Vec<u8>>>::new();
        for frame in &input {
            for sent in pair.p4.model.process(
                frame,
                &Arrival {
                    port: 1,
                    ..Arrival::default()
                },
            ) {
                expected.entry(sent.port).or_default().push(sent.frame);
            }
        }
        let counts = expected
            .iter()
            .map(|(port, frames)| (*port, frames.len()))
            .collect();
        let Some(got) = bmv2::run((test, "aggregator.json"), 1, &pair.p4.commands, &input, &counts) else {
            return;
        };
        let are_missing = match several {
            true => postcards(&got).len() < postcards(&expected).len(),
            false => got.iter().any(|(port, frames)| frames.len() < counts[port]),
        };
        if are_missing {
            return bmv2::skipped(
                test,
                "simple_switch dropped packets, as it does when the machine is busy",
            );
        }
        if several {
            // Postcards of different datagrams take turns, so that other ones are in an aggregate.
            assert_eq!(postcards(&got), postcards(&expected), "{kind}");
        } else {
            assert_eq!(got, expected, "{kind}");
        }
    }
}

//! The program `dta_reporter` and the reporter of the switch in Rust do the same: random mappings, packets, messages of translators and
//! times, byte for byte.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

#[path = "../support/bmv2.rs"]
mod bmv2;
#[path = "../support/frames.rs"]
mod frames;
mod mappings;
#[allow(dead_code, reason = "this test forges no INT")]
#[path = "../int/packets.rs"]
mod packets;
#[allow(dead_code, reason = "what the program `int` does itself is compared there")]
#[path = "../int/pair.rs"]
mod pair;
#[allow(dead_code, reason = "this test has no filters")]
#[path = "../int/rules.rs"]
mod rules;
#[path = "../support/setup.rs"]
mod setup;

use std::net::Ipv4Addr;
use std::sync::Arc;

use dataplane::dta::{
    Config as DtaConfig, Mapping, Reporter, Retransmission, Spread, SwitchReporter, Trigger,
};
use dataplane::report::Outbox;
use dataplane::switch::{Config, Congestion, Switch, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Watch, Watchlist};
use detect::Match;
use p4_model::{Arrival, Entry, Key, Program};
use testkit::rng::Rng;
use testkit::vectors::{self, Kind};
use wire::dta::control::{Body, Cause, Control};

use mappings::{Both, TRIGGERS};
use packets::{Routed, has_l4, is_beyond, packet, routed};
use pair::{AVAILABLE, COLLECTOR, Tables, by_rust, entry};
use setup::{Setup, commands, installed, measured};

const PROGRAM: &str = include_str!("../../../../p4/v1model/dta_reporter.json");
/// Our address, and the port of timer frames.
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const CPU: u16 = 60;
/// Records of a path, without the sink's, that the program reads.
const RECORDS: usize = 8;

/// Measures every packet.
fn every() -> Watch {
    Watch {
        mode: Mode::Md21,
        bitmap: 0xf000,
        hops: 8,
        ..Watch::new(Match::default())
    }
}

fn seeds() -> u64 {
    std::env::var("HOPWISE_P4_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(80)
}

fn address(collector: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 100 + collector)
}

/// Both switches with the same mappings.
struct Pair {
    rust: Switch,
    p4: p4_model::Switch,
    setup: Vec<Setup>,
    collectors: u8,
    node: u32,
    first_sequence: u16,
    us: u64,
    edges: (bool, bool),
    routes_half: bool,
}

/// What was sent: collector and payload.
type Reports = Vec<(u8, Vec<u8>)>;

/// Where reports go, and what the spread in Rust assigns to collectors other than the first.
fn destinations(spread: &Spread, mappings: &[Both], config: &DtaConfig) -> Vec<Setup> {
    let exact = |value: u32| Key::Exact(value.into());
    let Retransmission { patience, probe } = config.retransmission;
    let mut setup = vec![
        Setup::Default("retransmission", "repeat", vec![patience.into(), probe.into()]),
        entry(
            "timer_port",
            vec![exact(CPU.into())],
            "accept_timer",
            vec![COLLECTOR.into()],
        ),
    ];
    for collector in 0..spread.collectors() as u8 {
        let (number, at) = (u128::from(collector), u32::from(address(collector)));
        let to = vec![
            1,
            2,
            u32::from(OURS).into(),
            at.into(),
            40044,
            40040,
            config.first_sequence.into(),
        ];
        setup.push(entry("collector", vec![Key::Exact(number)], "report_to", to));
        let from = vec![exact(at), exact(40040), exact(OURS.into()), exact(40044)];
        setup.push(entry(
            "translator",
            from,
            "from_translator",
            vec![number, COLLECTOR.into()],
        ));
    }
    let to = |collector: u8| vec![u128::from(collector)];
    let keys = spread
        .by_key()
        .iter()
        .enumerate()
        .filter(|(_, collector)| **collector != 0);
    setup.extend(keys.map(|(crc, collector)| {
        entry(
            "key_collector",
            vec![exact(crc as u32)],
            "to_collector",
            to(*collector),
        )
    }));
    let mut lists: Vec<u32> = mappings.iter().flat_map(|one| one.lists.clone()).collect();
    lists.sort_unstable();
    lists.dedup();
    let lists = lists.into_iter().filter(|list| spread.of_list(*list) != 0);
    setup.extend(lists.map(|list| {
        entry(
            "list_collector",
            vec![exact(list)],
            "to_collector",
            to(spread.of_list(list)),
        )
    }));
    setup
}

impl Pair {
    fn new(rng: &mut Rng, program: &Arc<Program>, edges: (bool, bool)) -> Self {
        let mappings: Vec<Both> = (0..1 + rng.below(6))
            .map(|index| mappings::random(rng, index))
            .collect();
        let probe = [0, 30_000, 20_000_000][rng.below(3)];
        let retransmission = Retransmission {
            patience: [0, 20_000, 500_000][rng.below(3)],
            probe,
        };
        let collectors = 1 + rng.below(3);
        let watch = Watch {
            flows: Match::default(),
            hops: 8,
            ..pair::watch(rng)
        };
        Self::with(
            rng,
            program,
            (edges, watch),
            mappings,
            (retransmission, collectors),
        )
    }

    fn with(
        rng: &mut Rng,
        program: &Arc<Program>,
        (edges, watch): ((bool, bool), Watch),
        mappings: Vec<Both>,
        (retransmission, collectors): (Retransmission, usize),
    ) -> Self {
        let node = [7, 1 + rng.below(1000) as u32][rng.below(2)];
        let congestion = (rng.below(2) == 0).then(|| Congestion {
            rise: 1 << 17,
            fall: 1 << 16,
            quota: rng.below(3) as u32,
        });
        let config = Config {
            available: AVAILABLE,
            congestion,
            ..Config::default()
        };
        let routes_half = rng.below(3) == 0;
        let tables = Tables {
            node,
            config: &config,
            watches: &[watch],
            filters: &[],
            mtu: 1500,
            edges,
            border: false,
            routes_half,
        };
        let spread = Spread::even(collectors);
        let dta = DtaConfig {
            reporter: node,
            spread: spread.clone(),
            mappings: mappings.iter().map(|one| one.mapping.clone()).collect(),
            retransmission,
            first_sequence: rng.roll() as u16,
            ..DtaConfig::default()
        };
        let mut setup = pair::setup(&tables);
        setup.extend(destinations(&spread, &mappings, &dta));
        setup.extend(mappings.into_iter().flat_map(|one| one.setup));
        let p4 = installed(program, &setup);
        let first_sequence = dta.first_sequence;
        let mut rust = Switch::new(node, config, Watchlist::new(vec![watch])).unwrap();
        rust.set_dta(Some(SwitchReporter::new(Reporter::new(dta).unwrap(), false)));
        Self {
            rust,
            p4,
            setup,
            collectors: collectors as u8,
            node,
            first_sequence,
            us: 1_000_000,
            edges,
            routes_half,
        }
    }

    /// The reports of the switch in Rust since the last call.
    fn made(&mut self) -> Reports {
        let outbox = &mut self.rust.dta_mut().unwrap().outbox;
        let reports = outbox
            .datagrams()
            .map(|one| (one.collector, one.payload.to_vec()))
            .collect();
        outbox.clear();
        reports
    }

    /// Compares what the program has sent to collectors.
    fn compare(&mut self, sent: &[p4_model::Sent]) -> Result<(), String> {
        let p4: Reports = sent
            .iter()
            .filter(|sent| sent.port == COLLECTOR)
            .map(|sent| report(&sent.frame))
            .collect();
        let rust = self.made();
        if rust != p4 {
            return Err(format!("reports differ\n  rust {rust:02x?}\n  p4   {p4:02x?}"));
        }
        self.counters()
    }

    /// A packet. Returns it as it leaves.
    fn pass(&mut self, rng: &mut Rng, frame: &[u8]) -> Result<Vec<u8>, String> {
        self.us += 1 + rng.roll() % 5000;
        let arrival = Arrival {
            port: 1,
            ingress_ts: self.us - rng.roll() % 5000,
            egress_ts: self.us,
            deq_qdepth: rng.below(1 << 19) as u32,
        };
        let next = routed(frame, self.routes_half);
        if !has_l4(frame) || is_long(frame) {
            return Ok(Vec::new());
        }
        let visit = Visit {
            mtu: 1500,
            from_edge: self.edges.0,
            to_edge: self.edges.1,
            ..measured(&arrival)
        };
        let sent = self.p4.process(frame, &arrival);
        let mut outbox = Outbox::default();
        let routed = by_rust(&mut self.rust, (frame, next), visit, &mut outbox);
        let packet = sent
            .iter()
            .find(|sent| sent.port == 2)
            .map_or(&[][..], |sent| &sent.frame);
        if packet != routed {
            return Err(format!(
                "packets differ\n  rust {routed:02x?}\n  p4   {packet:02x?}"
            ));
        }
        self.compare(&sent).map(|()| routed)
    }

    /// A message of a collector's translator.
    fn message(&mut self, collector: u8, payload: &[u8]) -> Result<(), String> {
        let arrival = Arrival {
            port: 1,
            ingress_ts: self.us,
            egress_ts: self.us,
            deq_qdepth: 0,
        };
        let sent = self.p4.process(&message(collector, payload), &arrival);
        let dta = self.rust.dta_mut().unwrap();
        dta.reporter
            .control(collector, payload, self.us * 1000, &mut dta.outbox);
        self.compare(&sent)
    }

    /// A message of a collector's translator.
    fn send(&mut self, collector: u8, body: Body) -> Result<(), String> {
        let mut payload = [0; 32];
        let len = Control {
            sequence: 1,
            reporter: self.node,
            body,
        }
        .emit(&mut payload)
        .unwrap();
        self.message(collector, &payload[..len])
    }

    /// A NACK of the first collector's translator, for some reports before the last one.
    fn nack(&mut self, cause: Cause, missing: u16) -> Result<(), String> {
        let last = self
            .rust
            .dta()
            .unwrap()
            .reporter
            .destinations(0)
            .next()
            .unwrap()
            .last
            .unwrap_or(0);
        self.send(
            0,
            Body::Nack {
                cause,
                last: last.wrapping_sub(missing),
                trigger: last,
            },
        )
    }

    /// Timer frames for all collectors.
    fn tick(&mut self) -> Result<(), String> {
        let arrival = Arrival {
            port: CPU,
            ingress_ts: self.us,
            egress_ts: self.us,
            deq_qdepth: 0,
        };
        let frames = (0..self.collectors).map(timer);
        let sent: Vec<_> = frames
            .flat_map(|frame| self.p4.process(&frame, &arrival))
            .collect();
        let dta = self.rust.dta_mut().unwrap();
        dta.reporter.tick(self.us * 1000, &mut dta.outbox);
        self.compare(&sent)
    }

    /// A message that a translator may send, or that nobody should.
    fn random_message(&mut self, rng: &mut Rng) -> Result<(), String> {
        let collector = rng.below(self.collectors.into()) as u8;
        let reporter = &self.rust.dta().unwrap().reporter;
        let last = reporter
            .destinations(self.us * 1000)
            .nth(collector.into())
            .unwrap()
            .last
            .unwrap_or(0);
        let last = last.wrapping_sub([0, 1, 1, 2, 3, 5, 9, 300, 20_000, 40_000][rng.below(10)]);
        let causes = [
            Cause::Gap,
            Cause::Gap,
            Cause::Overload,
            Cause::Malformed,
            Cause::Unknown,
            Cause::Other(9),
        ];
        let body = match rng.below(8) {
            0 => Body::Ack { last },
            1 => Body::SketchNack {
                sketch: 1,
                epoch: 2,
                column: 3,
            },
            2 | 3 => Body::Congestion {
                level: rng.below(4) as u8,
                hold_us: [0, 100, 10_000, 5_000_000][rng.below(4)],
                dropped: rng.below(1000) as u32,
            },
            _ => Body::Nack {
                cause: causes[rng.below(6)],
                last,
                trigger: last.wrapping_add(2),
            },
        };
        let reporter = if rng.below(20) == 0 { 1 } else { self.node };
        let mut payload = [0; 32];
        let len = Control {
            sequence: 1,
            reporter,
            body,
        }
        .emit(&mut payload)
        .unwrap();
        let mut payload = payload[..len].to_vec();
        if rng.below(12) == 0 {
            rng.corrupt(&mut payload);
        }
        self.message(collector, &payload)
    }

    fn counters(&self) -> Result<(), String> {
        let reporter = &self.rust.dta().unwrap().reporter;
        let counter = |name: &str| self.p4.counter(name).unwrap();
        for ((_, stats), p4) in reporter.mappings().zip(counter("mappings").chunks(8)) {
            let rust = [
                stats.sent,
                stats.suppressed,
                stats.absent,
                stats.size,
                stats.queue_full + stats.pending,
            ];
            if rust != p4[..5] {
                return Err(format!("counters of a mapping differ: rust {rust:?}, p4 {p4:?}"));
            }
        }
        let state =
            ["essential_of", "unavailable", "translator_drops"].map(|name| self.p4.registers(name).unwrap());
        for (number, (to, p4)) in reporter
            .destinations(0)
            .zip(counter("collectors").chunks(16))
            .enumerate()
        {
            let of = to.stats;
            let rust = [
                of.overwritten,
                of.retransmitted,
                of.probes,
                of.nacks,
                of.early,
                of.limited,
                of.unbelieved,
                of.renumbered,
                of.refused,
                of.acks,
                of.congestions,
            ];
            let (sums, of_p4) = (
                [of.essential, of.unavailable, of.translator_drops].map(u128::from),
                state.map(|all| all[number]),
            );
            if rust != p4[..11] || sums != of_p4 {
                return Err(format!(
                    "counters of a collector differ: rust {rust:?} {sums:?}, p4 {p4:?} {of_p4:?}"
                ));
            }
        }
        let stats = reporter.stats();
        let rust = [
            stats.controls,
            stats.bad_controls,
            stats.misdirected,
            stats.unknown_sketches,
        ];
        let p4 = counter("controls");
        if rust == p4 {
            Ok(())
        } else {
            Err(format!("messages differ: rust {rust:?}, p4 {p4:?}"))
        }
    }
}

/// Whether a packet has more records than the program reads.
fn is_long(frame: &[u8]) -> bool {
    let contents = wire::packet::contents(frame, &wire::Profile::default());
    contents.is_ok_and(|contents| contents.int.is_some_and(|int| int.stack.len() > RECORDS))
}

/// The collector and the payload of a report's frame.
fn report(frame: &[u8]) -> (u8, Vec<u8>) {
    let (head, payload) = frame.split_at(42);
    assert_eq!(wire::checksum::of(&head[14..34]), 0, "{head:02x?}");
    let lengths = [16, 38].map(|at| usize::from(u16::from_be_bytes([head[at], head[at + 1]])));
    assert_eq!(lengths, [28 + payload.len(), 8 + payload.len()], "{head:02x?}");
    assert_eq!(
        (&head[26..30], &head[34..38]),
        (&OURS.octets()[..], &[0x9c, 0x6c, 0x9c, 0x68][..])
    );
    (head[33] - 100, payload.to_vec())
}

fn timer(collector: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&[0x88, 0xb5, collector]);
    frame.resize(60, 0);
    frame
}

/// The frame of a translator's message.
fn message(collector: u8, payload: &[u8]) -> Vec<u8> {
    frames::udp((address(collector), 0x9c68), (OURS, 0x9c6c), payload)
}

/// Packets from source to sink, over switches that report by DTA; translators ask for reports again, and are congested.
#[test]
fn reports_and_counters_are_the_same() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut on, mut of, mut outcomes) = ([0; TRIGGERS.len()], [0; 11], [0; 4]);
    for seed in 0..seeds() {
        let mut rng = Rng(seed);
        let roles = [(true, false), (false, false), (false, true), (true, true)];
        let mut path: Vec<Pair> = roles
            .iter()
            .map(|edges| Pair::new(&mut rng, &program, *edges))
            .collect();
        for step in 0..40 {
            let mut frame = packet(&mut rng);
            let alone = rng.below(4) == 0;
            for (hop, pair) in path
                .iter_mut()
                .enumerate()
                .filter(|(hop, _)| (*hop == 3) == alone)
            {
                if !frame.is_empty() && rng.below(20) == 0 {
                    rng.corrupt(&mut frame);
                }
                if frame.is_empty() || is_beyond(&frame) {
                    break;
                }
                let failed = |error| -> Vec<u8> {
                    panic!("seed {seed}, step {step}, hop {hop}: {error}\n  in   {frame:02x?}")
                };
                frame = pair.pass(&mut rng, &frame).unwrap_or_else(failed);
            }
            for (hop, pair) in path.iter_mut().enumerate() {
                let done = match rng.below(4) {
                    0 => pair.random_message(&mut rng),
                    1 => pair.tick(),
                    _ => Ok(()),
                };
                done.unwrap_or_else(|error| panic!("seed {seed}, step {step}, message to {hop}: {error}"));
            }
        }
        for pair in &path {
            let reporter = &pair.rust.dta().unwrap().reporter;
            for (mapping, stats) in reporter.mappings() {
                on[TRIGGERS
                    .iter()
                    .position(|trigger| *trigger == mapping.on)
                    .unwrap()] += stats.sent;
                let now = [stats.sent, stats.suppressed, stats.absent, stats.size];
                outcomes
                    .iter_mut()
                    .zip(now)
                    .for_each(|(sum, count)| *sum += count);
            }
            let counts = pair.p4.counter("collectors").unwrap().chunks(16);
            counts.for_each(|counts| of.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count));
        }
    }
    let enough = on.iter().all(|sent| *sent > 15) && outcomes.iter().all(|count| *count > 25);
    // Rings of 256 reports overflow, and the allowance for retransmissions ends, elsewhere.
    assert!(
        enough && [1, 2, 3, 4, 6, 7, 8, 9, 10].iter().all(|at| of[*at] > 20),
        "{on:?} {outcomes:?} {of:?}: the test has become idle"
    );
}

/// Essential reports of every packet, so that a ring overflows while its translator is full; and then more NACKs than are heeded.
#[test]
fn rings_that_overflow_are_the_same() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let (mut of, mut rng) = ([0; 11], Rng(3));
    for _ in 0..4 {
        let mut both = mappings::random(&mut rng, 0);
        let is_frequent = |both: &Both| {
            let Mapping {
                on,
                options,
                when,
                every,
                flows,
                ..
            } = &both.mapping;
            let all = when.is_empty() && *every == 1 && *flows == Match::default();
            all && options.essential && *on == Trigger::Path
        };
        while !is_frequent(&both) {
            both = mappings::random(&mut rng, 0);
        }
        let retransmission = Retransmission {
            patience: 0,
            probe: 0,
        };
        let mut pair = Pair::with(
            &mut rng,
            &program,
            ((true, true), every()),
            vec![both],
            (retransmission, 1),
        );
        for step in 0..450 {
            let frame = packet(&mut rng);
            if !is_beyond(&frame) {
                pair.pass(&mut rng, &frame)
                    .unwrap_or_else(|error| panic!("step {step}: {error}"));
            }
            // A fast source: the translator is full for a while.
            pair.us = 1_000_000 + 20 * step;
            if step == 50 {
                pair.send(
                    0,
                    Body::Congestion {
                        level: 3,
                        hold_us: 1_000_000,
                        dropped: 0,
                    },
                )
                .unwrap();
                pair.nack(Cause::Overload, 5).unwrap();
            }
        }
        for number in 0..30 {
            pair.nack(Cause::Gap, 200 - number).unwrap();
        }
        let counts = pair.p4.counter("collectors").unwrap();
        of.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(of[0] > 30 && of[5] > 20, "{of:?}: the test has become idle");
}

fn insert(
    switch: &mut p4_model::Switch,
    table: &str,
    (keys, action): (Vec<Key>, &str),
    parameters: Vec<u128>,
) {
    let entry = Entry {
        keys,
        priority: 9,
        action: action.to_owned(),
        parameters,
    };
    switch.insert(table, &entry).unwrap();
}

/// Entries that no map may have, as another controller can write them: at a position behind its number, a mapping would make the same
/// report again in each pass, and one beyond the last number would have neither registers nor counters.
#[test]
fn a_packet_ends_whatever_the_entries_of_mappings_say() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    // Position, number, and how often a report was made and the entry was refused.
    let cases = [
        (Key::Range(0, 3), 0, [1, 1]),
        (Key::Range(1, 3), 0, [0, 0]),
        (Key::Range(0, 255), 63, [1, 0]),
        (Key::Range(0, 255), 64, [0, 1]),
        (Key::Range(0, 255), 255, [0, 1]),
    ];
    for (position, number, expected) in cases {
        let mut rng = Rng(5);
        let watched = ((true, true), every());
        let retransmission = Retransmission {
            patience: 0,
            probe: 0,
        };
        let mut pair = Pair::with(&mut rng, &program, watched, Vec::new(), (retransmission, 1));
        let (any, ports) = (Key::Ternary(0, 0), Key::Range(0, 0xffff));
        let keys = vec![Key::Exact(1), position, any, any, any, any, ports, ports];
        insert(
            &mut pair.p4,
            "mapping",
            (keys, "key_write"),
            vec![number, 1, 2, 2],
        );
        let options = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        insert(
            &mut pair.p4,
            "options",
            (vec![Key::Exact(number)], "send_options"),
            options,
        );
        let mut frame = packet(&mut rng);
        while !matches!(routed(&frame, false), Routed::To(_)) || !has_l4(&frame) || is_beyond(&frame) {
            frame = packet(&mut rng);
        }
        let arrival = Arrival {
            port: 1,
            ingress_ts: 1,
            egress_ts: 2,
            deq_qdepth: 0,
        };
        let sent = pair.p4.process(&frame, &arrival);
        let reports = sent.iter().filter(|sent| sent.port == COLLECTOR).count() as u64;
        let counts = pair.p4.counter("mappings").unwrap().chunks(8);
        let counts = counts.fold([0, 0], |sums, counts| [sums[0] + counts[0], sums[1] + counts[5]]);
        assert_eq!(
            (reports, counts),
            (expected[0], expected),
            "position {position:?}, number {number}"
        );
    }
}

/// The messages of all vectors, good and bad, to reporter 7.
#[test]
fn vectors_are_the_same() {
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let mut rng = Rng(11);
    let mut pair = Pair::new(&mut rng, &program, (true, true));
    while pair.node != 7 {
        pair = Pair::new(&mut rng, &program, (true, true));
    }
    let mut compared = 0;
    let all = vectors::all();
    for vector in all
        .iter()
        .filter(|vector| vector.kind == Kind::DtaControl && vector.bytes.len() >= 4)
    {
        let frame = packet(&mut rng);
        if !is_beyond(&frame) {
            pair.pass(&mut rng, &frame).unwrap();
        }
        pair.message(0, &vector.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        compared += 1;
    }
    assert!(compared > 5, "{compared}: the test has become idle");
}

/// What does not depend on time or on queues.
fn is_timeless(one: &Both) -> bool {
    let text = format!("{:?}", one.mapping);
    !["HopLatency", "FlowLatency", "gressTs", "Queue"]
        .iter()
        .any(|name| text.contains(name))
}

/// A NACK of the first collector's translator for three reports, and none to other collectors.
fn nack(pair: &Pair) -> Vec<u8> {
    let last = ["next_of", "shift_of"].map(|name| pair.p4.registers(name).unwrap()[0]);
    let last = (last[0] + last[1] + u128::from(pair.first_sequence)) as u16;
    let body = Body::Nack {
        cause: Cause::Gap,
        last: last.wrapping_sub(4),
        trigger: last,
    };
    let mut payload = [0; 32];
    let len = Control {
        sequence: 1,
        reporter: pair.node,
        body,
    }
    .emit(&mut payload)
    .unwrap();
    message(0, &payload[..len])
}

/// A packet whose hop limit ends here.
fn dropped(rng: &mut Rng) -> Vec<u8> {
    loop {
        let frame = packet(rng);
        if matches!(routed(&frame, false), Routed::Dropped(_)) && has_l4(&frame) {
            return frame;
        }
    }
}

/// Copies of dropped packets and messages wait in one queue, so that their order is that of their arrival; reports of others may be
/// overtaken, and make no difference to each other.
#[test]
fn the_model_and_bmv2_do_the_same() {
    let test = "the_model_and_bmv2_do_the_same";
    let program = Arc::new(Program::read(PROGRAM).unwrap());
    let mut rng = Rng(41);
    for is_dropped in [false, true] {
        let mut mappings = Vec::new();
        while mappings.len() < if is_dropped { 1 } else { 6 } {
            let one = mappings::random(&mut rng, mappings.len());
            let Mapping {
                on,
                options,
                every,
                when,
                flows,
                ..
            } = &one.mapping;
            let always = *every == 1 && when.is_empty() && *flows == Match::default();
            let is_wanted = match is_dropped {
                true => *on == Trigger::Drop && options.essential && always,
                false => *on != Trigger::Drop || !options.essential,
            };
            mappings.extend(Some(one).filter(|one| is_wanted && is_timeless(one)));
        }
        let watch = Watch {
            drops: true,
            ..every()
        };
        let retransmission = Retransmission {
            patience: 0,
            probe: 0,
        };
        let collectors = if is_dropped { 1 } else { 3 };
        let mut pair = Pair::with(
            &mut rng,
            &program,
            ((true, true), watch),
            mappings,
            (retransmission, collectors),
        );
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for step in 0..60 {
            let frame = match (is_dropped, step % 20) {
                (true, 15) => nack(&pair),
                (true, _) => dropped(&mut rng),
                (false, _) => packet(&mut rng),
            };
            let sent = pair.p4.process(
                &frame,
                &Arrival {
                    port: 1,
                    ..Arrival::default()
                },
            );
            expected.extend(
                sent.into_iter()
                    .filter(|sent| sent.port == COLLECTOR)
                    .map(|sent| sent.frame),
            );
            input.push(frame);
        }
        assert!(
            expected.len() > 30,
            "{}: the test has become idle",
            expected.len()
        );
        let counts = [(COLLECTOR, expected.len())].into();
        // A packet takes several passes.
        let commands = commands(&pair.setup) + "set_queue_depth 8192\n";
        let got = bmv2::run((test, "dta_reporter.json"), 1, &commands, &input, &counts);
        let Some(mut got) = got.and_then(|mut got| got.remove(&COLLECTOR)) else {
            return;
        };
        if got.len() < expected.len() {
            return bmv2::skipped(
                test,
                "simple_switch dropped packets, as it does when the machine is busy",
            );
        }
        got.sort();
        expected.sort();
        assert_eq!(got, expected, "dropped: {is_dropped}");
    }
}

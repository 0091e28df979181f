use detect::Match;
use wire::dta::control::{Body, Cause};
use wire::dta::layout::{Columns, SketchKind};
use wire::dta::{Control, Operation, Report, hash, sketch};
use wire::int::{Layout, Stack};
use wire::{FlowKey, Hop};

use super::context::Context;
use super::*;

mod tables;

use tables::{of_table, sketch_config, table};

/// Five nodes, 11 to 15, of which 15 is the sink.
struct Path {
    bytes: Vec<u8>,
    metadata: Hop,
}

impl Path {
    fn new() -> Self {
        let bytes = [14_u32, 13, 12, 11]
            .iter()
            .flat_map(|node| node.to_be_bytes())
            .collect();
        Self {
            bytes,
            metadata: Hop {
                node_id: Some(15),
                ingress_ts: Some(3),
                ..Hop::default()
            },
        }
    }

    fn context<'a>(&'a self, flow: &'a FlowKey) -> Context<'a> {
        let layout = Layout::int_2(0x8000, 1, false).unwrap();
        let stack = Stack {
            bytes: &self.bytes,
            layout,
            count: 4,
        };
        Context {
            flow: Some(flow),
            stack,
            metadata: Some(&self.metadata),
            ..Context::new(Trigger::Path, 15)
        }
    }
}

fn flow(src_port: u16) -> FlowKey {
    FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((src_port, 80)), 6)
}

fn fields(text: &str) -> Vec<Field> {
    text.split(' ')
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect()
}

fn mapping(on: Trigger, action: Action) -> Mapping {
    Mapping {
        name: "m".to_owned(),
        on,
        table: None,
        flows: Match::default(),
        when: Vec::new(),
        every: 1,
        each_hop: false,
        options: SendOptions::default(),
        action,
    }
}

fn key_write(key: &str, data: &str) -> Action {
    Action::KeyWrite {
        store: 1,
        copies: 2,
        key: fields(key),
        data: fields(data),
    }
}

fn append(list: u32, entry: &str, entries: u8) -> Action {
    let (lists, spread, entry) = (1, Vec::new(), fields(entry));
    Action::Append {
        list,
        lists,
        spread,
        entry,
        entries,
        hold: 1_000_000,
    }
}

fn reporter(mappings: Vec<Mapping>) -> Reporter {
    Reporter::new(Config {
        reporter: 7,
        mappings,
        ..Config::default()
    })
    .unwrap()
}

fn sent(out: &mut Outbox) -> Vec<Vec<u8>> {
    let payloads = out.datagrams().map(|one| one.payload.to_vec()).collect();
    out.clear();
    payloads
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn control(body: Body) -> Vec<u8> {
    let mut out = [0; 32];
    let len = Control {
        sequence: 1,
        reporter: 7,
        body,
    }
    .emit(&mut out)
    .unwrap();
    out[..len].to_vec()
}

fn nack(last: u16) -> Vec<u8> {
    control(Body::Nack {
        cause: Cause::Gap,
        last,
        trigger: last.wrapping_add(2),
    })
}

fn sequences(payloads: &[Vec<u8>]) -> Vec<u16> {
    payloads
        .iter()
        .map(|payload| Report::parse(payload).unwrap().base.sequence)
        .collect()
}

const ESSENTIAL: SendOptions = SendOptions {
    priority: Priority::High,
    essential: true,
    immediate: false,
};

#[test]
fn a_path_is_the_key_write_of_wire_formats_5_7() {
    let path = Path::new();
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let flow = flow(1234);
    for _ in 0..0x0102 {
        out.clear();
        reporter.report(&path.context(&flow), 0, &mut out);
    }
    let expected = hex(
        "1160 01020000 0007020d 00140001 00000a00 00010a00 000204d2 00500600 00000b00 00000c00 00000d00 00000e00 00000f",
    );
    assert_eq!(sent(&mut out), [expected]);
}

#[test]
fn the_other_operations_are_those_of_5_7() {
    let entry = "0xa0a1a2a3a4a5a6a7:u64 0xa8a9aaabacadaeaf:u64 0xb0b1:u16";
    let list = Mapping {
        options: SendOptions {
            immediate: true,
            ..SendOptions::default()
        },
        ..mapping(Trigger::Drop, append(5, entry, 1))
    };
    let low = SendOptions {
        priority: Priority::Low,
        ..SendOptions::default()
    };
    let delta = "5:u8".parse().unwrap();
    let counter = Action::KeyIncrement {
        store: 1,
        copies: 2,
        key: fields("src"),
        delta,
    };
    let counter = Mapping {
        options: low,
        ..mapping(Trigger::Packet, counter)
    };
    let postcard = Action::Postcard {
        store: 1,
        key: fields("flow"),
        value: "node".parse().unwrap(),
    };
    let postcard = Mapping {
        options: low,
        ..mapping(Trigger::Path, postcard)
    };
    let (mut reporter, mut out) = (reporter(vec![list, counter, postcard]), Outbox::default());
    let (path, flow) = (Path::new(), flow(1234));
    let context = Context {
        flow: Some(&flow),
        ..Context::new(Trigger::Drop, 7)
    };
    reporter.report(&context, 0, &mut out);
    reporter.packet(
        &Context {
            trigger: Trigger::Packet,
            ..context
        },
        0,
        &mut out,
    );
    let three = Context {
        stack: Stack {
            bytes: &path.bytes[8..],
            count: 2,
            ..path.context(&flow).stack
        },
        ..path.context(&flow)
    };
    reporter.report(&three, 0, &mut out);
    let made = sent(&mut out);
    assert_eq!(
        made[0],
        hex("12900000 00000007 00000005 00120100 a0a1a2a3 a4a5a6a7 a8a9aaab acadaeaf b0b1")
    );
    assert_eq!(
        made[1],
        hex("13000000 00000007 02040001 00000000 00000000 00000005 0a000001")
    );
    let postcard = hex("14000000 00000007 02030d00 00010000 0000000c 0a000001 0a000002 04d20050 06");
    assert_eq!((made.len(), &made[3]), (5, &postcard), "hop 2 of 3 is node 12");
    let key = [10, 0, 0, 1, 10, 0, 0, 2, 4, 0xd2, 0, 80, 6];
    let last = Operation::Postcard {
        hop: 3,
        path_len: 3,
        store: 1,
        value: 15,
        key: &key,
    };
    assert_eq!(Report::parse(&made[4]).map(|report| report.operation), Ok(last));
    assert!(reporter.mappings().all(|(_, stats)| stats.is_balanced()));
}

#[test]
fn conditions_flows_and_samples_select_what_is_reported() {
    let base = mapping(Trigger::Hop, append(0, "hop_latency", 1));
    let slow = Mapping {
        when: vec!["hop_latency > 10us".parse().unwrap()],
        ..base.clone()
    };
    let web = Match {
        dst_port: "80".parse().unwrap(),
        ..Match::default()
    };
    let web = Mapping {
        flows: web,
        ..base.clone()
    };
    let third = Mapping { every: 3, ..base };
    let (mut reporter, mut out) = (reporter(vec![slow, web, third]), Outbox::default());
    for (i, latency) in [5_000, 10_001, 70_000, 1, 2, 3, 4].into_iter().enumerate() {
        let metadata = Hop {
            hop_latency: Some(latency),
            ..Hop::default()
        };
        let flow = FlowKey::v4(
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            Some((1, if i == 0 { 80 } else { 81 })),
            6,
        );
        let context = Context {
            flow: Some(&flow),
            metadata: Some(&metadata),
            ..Context::new(Trigger::Hop, 7)
        };
        reporter.report(&context, 0, &mut out);
    }
    let reported: Vec<u64> = reporter.mappings().map(|(_, stats)| stats.sent).collect();
    assert_eq!(reported, [2, 1, 3]);
    assert_eq!(reporter.stats().triggers, 7);
}

#[test]
fn each_hop_of_a_path_can_be_reported_separately() {
    let each = Mapping {
        each_hop: true,
        ..mapping(Trigger::Path, append(9, "node hop", 5))
    };
    let (mut reporter, mut out) = (reporter(vec![each]), Outbox::default());
    let (path, flow) = (Path::new(), flow(1));
    reporter.report(&path.context(&flow), 0, &mut out);
    let made = sent(&mut out);
    let report = Report::parse(&made[0]).unwrap();
    let Operation::Append {
        list: 9,
        entry_len: 5,
        entries,
    } = report.operation
    else {
        panic!("{report:?}")
    };
    let nodes: Vec<_> = entries.chunks(5).map(|entry| (entry[3], entry[4])).collect();
    assert_eq!(nodes, [(11, 1), (12, 2), (13, 3), (14, 4), (15, 5)]);
}

#[test]
fn all_hops_of_a_sampled_path_are_reported_or_none() {
    let action = Action::Postcard {
        store: 1,
        key: fields("flow"),
        value: "node".parse().unwrap(),
    };
    let third = Mapping {
        every: 3,
        ..mapping(Trigger::Path, action)
    };
    let (mut reporter, mut out) = (reporter(vec![third]), Outbox::default());
    let path = Path::new();
    let reported = [1, 2, 3, 4, 5, 6, 7].map(|number| {
        reporter.report(&path.context(&flow(number)), 0, &mut out);
        sent(&mut out).len()
    });
    assert_eq!(reported, [5, 0, 0, 5, 0, 0, 5]);
}

#[test]
fn entries_wait_for_others_but_not_for_long() {
    let packed = mapping(Trigger::Queue, append(3, "node", 4));
    let (mut reporter, mut out) = (reporter(vec![packed]), Outbox::default());
    let context = Context::new(Trigger::Queue, 7);
    let pending = |reporter: &Reporter| reporter.mappings().map(|(_, stats)| stats.pending).sum::<u64>();
    (0..3).for_each(|i| reporter.report(&context, i, &mut out));
    assert_eq!(
        (out.len(), pending(&reporter), reporter.next()),
        (0, 3, Some(1_000_000))
    );
    reporter.report(&context, 3, &mut out);
    assert_eq!((sent(&mut out)[0].len(), pending(&reporter)), (16 + 4 * 4, 0));
    reporter.report(&context, 5_000_000, &mut out);
    reporter.tick(5_999_999, &mut out);
    assert_eq!(out.len(), 0);
    reporter.tick(6_000_000, &mut out);
    assert_eq!((sent(&mut out)[0].len(), pending(&reporter)), (16 + 4, 0));
    assert!(
        reporter
            .mappings()
            .all(|(_, stats)| stats.is_balanced() && stats.sent == 5)
    );
}

#[test]
fn lists_are_spread_by_a_key_and_stay_with_it() {
    let Action::Append {
        list,
        entry,
        entries,
        hold,
        ..
    } = append(100, "sport", 1)
    else {
        panic!()
    };
    let spread = Action::Append {
        list,
        lists: 8,
        spread: fields("flow"),
        entry,
        entries,
        hold,
    };
    let (mut reporter, mut out) = (
        reporter(vec![mapping(Trigger::Packet, spread)]),
        Outbox::default(),
    );
    let mut lists = Vec::new();
    for src_port in (0..64).chain(0..64) {
        let flow = flow(src_port);
        reporter.packet(
            &Context {
                flow: Some(&flow),
                ..Context::new(Trigger::Packet, 7)
            },
            0,
            &mut out,
        );
        let made = sent(&mut out);
        let Operation::Append { list, .. } = Report::parse(&made[0]).unwrap().operation else {
            panic!()
        };
        assert!((100..108).contains(&list));
        lists.push(list);
    }
    assert_eq!(lists[..64], lists[64..]);
    lists.sort_unstable();
    lists.dedup();
    assert_eq!(lists.len(), 8);
}

#[test]
fn keys_choose_the_collector_and_each_has_its_own_sequence() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let spread = Spread::new(3, None, vec![(4, 4, 2)], 1).unwrap();
    let list = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, append(4, "node", 1))
    };
    let config = Config {
        reporter: 7,
        spread: spread.clone(),
        mappings: vec![keyed, list],
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    let path = Path::new();
    let mut expected = [0_u16; 3];
    for src_port in 0..200 {
        reporter.report(&path.context(&flow(src_port)), 0, &mut out);
    }
    for one in out.datagrams() {
        let report = Report::parse(one.payload).unwrap();
        let to = match report.operation {
            Operation::Append { .. } => 2,
            operation => spread.of_key(operation.key().unwrap()),
        };
        assert_eq!(one.collector, to);
        expected[usize::from(to)] += 1;
        assert_eq!(report.base.sequence, expected[usize::from(to)]);
    }
    assert!(
        expected.iter().all(|count| *count > 40) && expected[2] > 200,
        "{expected:?}"
    );
}

#[test]
fn a_spread_that_grows_moves_keys_and_waiting_entries_and_leaves_sequences_alone() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let list = mapping(Trigger::Path, append(3, "node", 4));
    let config = Config {
        reporter: 7,
        mappings: vec![keyed, list],
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    let path = Path::new();
    let mut report = |reporter: &mut Reporter, flows: std::ops::Range<u16>| {
        out.clear();
        flows.for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
        out.datagrams()
            .map(|one| (one.collector, one.payload.to_vec()))
            .collect::<Vec<_>>()
    };
    assert!(
        report(&mut reporter, 0..3)
            .iter()
            .all(|(collector, _)| *collector == 0)
    );
    let spread = Spread::even(2);
    reporter.set_spread(spread.clone(), 100).unwrap();
    assert!(
        reporter.set_spread(Spread::even(1), 0).is_err(),
        "none is taken away"
    );
    let reported = report(&mut reporter, 3..40);
    let mut next = [4_u16, 100];
    let mut lists = 0;
    for (collector, payload) in &reported {
        let report = Report::parse(payload).unwrap();
        match report.operation {
            // List 3 is assigned to the second collector, and with it the three entries that waited.
            Operation::Append { entries, .. } => {
                assert_eq!((*collector, entries.len()), (1, 16));
                lists += 1;
            }
            operation => {
                assert_eq!(*collector, spread.of_key(operation.key().unwrap()));
                let next = &mut next[usize::from(*collector)];
                assert_eq!(report.base.sequence, *next);
                *next += 1;
            }
        }
    }
    assert_eq!((lists, next[0] > 10, next[1] > 110), (10, true, true), "{next:?}");
}

#[test]
fn a_nack_brings_back_everything_behind_the_last_that_arrived() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let path = Path::new();
    (0..10).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    let first = sent(&mut out);
    assert_eq!(sequences(&first), (1..=10).collect::<Vec<_>>());
    reporter.control(0, &nack(6), 1000, &mut out);
    assert_eq!(sent(&mut out), first[6..]);
    reporter.control(0, &nack(6), 2000, &mut out);
    reporter.control(0, &nack(10), 2000, &mut out);
    reporter.control(0, &nack(500), 2000, &mut out);
    assert!(out.is_empty(), "the same gap, nothing, and what was never sent");
    reporter.control(0, &nack(6), 600_000, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [7, 8, 9, 10]);
    let to = reporter.destinations(0).next().unwrap();
    assert_eq!(
        (to.stats.retransmitted, to.stats.nacks, to.stats.early, to.last),
        (8, 2, 3, Some(10))
    );
}

#[test]
fn a_full_translator_is_asked_with_one_report_and_gets_the_others_later() {
    const MS: u64 = 1_000_000;
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let path = Path::new();
    let full = |last| {
        control(Body::Nack {
            cause: Cause::Overload,
            last,
            trigger: last + 1,
        })
    };
    (0..200).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    out.clear();
    for round in 1..5 {
        reporter.control(0, &full(6), round * MS, &mut out);
        assert_eq!(
            sequences(&sent(&mut out)),
            [7],
            "once for each time that it is asked for"
        );
        // New reports are queued after those that wait.
        reporter.report(&path.context(&flow(1000)), round * MS + 1, &mut out);
        reporter.tick(round * MS + MS - 1, &mut out);
        assert!(out.is_empty());
        assert_eq!(reporter.next(), Some(round * MS + MS));
    }
    reporter.tick(5 * MS, &mut out);
    assert_eq!(sequences(&sent(&mut out)), (8..=204).collect::<Vec<_>>());
    // The translator announced how long, or that congestion is over.
    let level = |level, hold_us| {
        control(Body::Congestion {
            level,
            hold_us,
            dropped: 0,
        })
    };
    reporter.control(0, &level(3, 4_000), 10 * MS, &mut out);
    reporter.control(0, &full(7), 10 * MS, &mut out);
    reporter.tick(14 * MS - 1, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [8]);
    reporter.control(0, &level(0, 0), 14 * MS - 1, &mut out);
    reporter.tick(14 * MS - 1, &mut out);
    assert_eq!(sequences(&sent(&mut out)), (9..=204).collect::<Vec<_>>());
}

#[test]
fn reports_evicted_from_the_ring_are_counted_and_the_others_resent() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let path = Path::new();
    (0..1000).for_each(|src_port| {
        out.clear();
        reporter.report(&path.context(&flow(src_port)), 0, &mut out);
    });
    out.clear();
    reporter.control(0, &nack(700), 0, &mut out);
    assert_eq!(
        sequences(&sent(&mut out)),
        (745..=1000).collect::<Vec<_>>(),
        "256 of 300"
    );
    let to = reporter.destinations(0).next().unwrap();
    assert_eq!((to.stats.unavailable, to.stats.retransmitted), (44, 256));
}

#[test]
fn without_room_essential_reports_wait_in_order_and_others_are_counted() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let other = mapping(Trigger::Path, key_write("flow", "path_len"));
    let (mut reporter, mut out) = (reporter(vec![keyed, other]), Outbox::new(1 << 20, 2));
    let path = Path::new();
    (0..300).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    let buffered: Vec<_> = reporter
        .mappings()
        .map(|(_, stats)| (stats.sent, stats.queue_full))
        .collect();
    assert_eq!(buffered, [(300, 0), (1, 299)]);
    let to = reporter.destinations(0).next().unwrap();
    assert_eq!(
        (to.stats.overwritten, to.waiting),
        (43, 256),
        "one was sent, 256 are stored"
    );
    let mut seen = sequences(&sent(&mut out));
    seen.remove(1);
    while reporter.destinations(0).next().unwrap().waiting > 0 {
        reporter.tick(1, &mut out);
        seen.extend(sequences(&sent(&mut out)));
    }
    assert_eq!(seen, [1].into_iter().chain(45..=300).collect::<Vec<_>>());
}

#[test]
fn the_sequence_goes_round() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "path_len"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let (path, flow) = (Path::new(), flow(1));
    (0..65_536 + 3).for_each(|_| {
        out.clear();
        reporter.report(&path.context(&flow), 0, &mut out);
    });
    out.clear();
    reporter.control(0, &nack(65_534), 0, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [65_535, 0, 1, 2, 3]);
}

#[test]
fn a_reporter_that_begins_again_takes_up_the_translators_numbers() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "sport"))
    };
    let config = Config {
        reporter: 7,
        mappings: vec![keyed],
        first_sequence: 1000,
        ..Config::default()
    };
    let (mut reporter, mut out) = (Reporter::new(config).unwrap(), Outbox::default());
    let path = Path::new();
    (0..5).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    let first = sent(&mut out);
    assert_eq!(sequences(&first), [1000, 1001, 1002, 1003, 1004]);
    // The translator is at 900 of an earlier reporter, a number that this one never sent.
    reporter.control(0, &nack(900), 1000, &mut out);
    let again = sent(&mut out);
    assert_eq!(sequences(&again), [901, 902, 903, 904, 905]);
    assert!(
        again
            .iter()
            .zip(&first)
            .all(|(new, old)| new[4..] == old[4..] && new[..2] == old[..2])
    );
    reporter.report(&path.context(&flow(9)), 2000, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [906]);
    reporter.control(0, &nack(903), 2000, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [904, 905, 906]);
    let to = reporter.destinations(0).next().unwrap();
    assert_eq!(
        (to.stats.renumbered, to.stats.unavailable, to.last),
        (1, 0, Some(906))
    );
    // A translator that expects more reports than were ever made.
    reporter.control(0, &nack(907), 3000, &mut out);
    assert!(out.is_empty());
}

/// A translator's tracker (5.8), and the path to it and back, which loses packets.
struct Tracker {
    last: u16,
    accepted: Vec<u32>,
    nack_at: u64,
    rng: u64,
    loss: u64,
}

impl Tracker {
    fn lost(&mut self) -> bool {
        self.rng = self
            .rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) % 100 < self.loss
    }

    fn take(&mut self, payload: &[u8], now: u64) -> Option<Vec<u8>> {
        if self.lost() {
            return None;
        }
        let report = Report::parse(payload).unwrap();
        match report.base.sequence.wrapping_sub(self.last) {
            1 => {
                self.last = report.base.sequence;
                let Operation::Append { entries, .. } = report.operation else {
                    panic!()
                };
                self.accepted.extend(
                    entries
                        .chunks(4)
                        .map(|one| u32::from_be_bytes(one.try_into().unwrap())),
                );
                None
            }
            0 | 0x8000.. => None,
            _ if now < self.nack_at => None,
            _ => {
                self.nack_at = now + 1_000_000;
                (!self.lost()).then(|| nack(self.last))
            }
        }
    }
}

#[test]
fn all_essential_reports_arrive_in_order_despite_loss() {
    for (rng, loss, every) in [(1, 0, 5), (2, 1, 5), (3, 10, 5), (4, 30, 25)] {
        let list = Mapping {
            options: ESSENTIAL,
            ..mapping(Trigger::Drop, append(1, "node", 3))
        };
        let (mut reporter, mut out) = (reporter(vec![list]), Outbox::default());
        let mut tracker = Tracker {
            last: 0,
            accepted: Vec::new(),
            nack_at: 0,
            rng,
            loss,
        };
        let mut answers: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in 0..200_000_u64 {
            let now = step * 50_000;
            if step < 20_000 && step % every == 0 {
                reporter.report(&Context::new(Trigger::Drop, step as u32), now, &mut out);
            }
            while answers.first().is_some_and(|(at, _)| *at <= now) {
                let (_, answer) = answers.remove(0);
                reporter.control(0, &answer, now, &mut out);
            }
            reporter.tick(now, &mut out);
            for payload in sent(&mut out) {
                answers.extend(tracker.take(&payload, now).map(|answer| (now + 100_000, answer)));
            }
        }
        let expected: Vec<u32> = (0..20_000).step_by(every as usize).collect();
        assert_eq!(tracker.accepted.len(), expected.len(), "{loss} %");
        assert_eq!(tracker.accepted, expected, "{loss} %");
        assert!(
            reporter
                .mappings()
                .all(|(_, stats)| stats.is_balanced() && stats.pending == 0)
        );
    }
}

#[test]
fn under_congestion_low_priority_reports_are_held_back() {
    let at = |priority| Mapping {
        options: SendOptions {
            priority,
            ..SendOptions::default()
        },
        ..mapping(Trigger::Hop, append(1, "node", 1))
    };
    let all = [Priority::Low, Priority::Medium, Priority::High].map(at);
    let (mut reporter, mut out) = (reporter(all.to_vec()), Outbox::default());
    let context = Context::new(Trigger::Hop, 7);
    let mut reported = |reporter: &mut Reporter, level: Option<u8>, now| {
        if let Some(level) = level {
            let body = Body::Congestion {
                level,
                hold_us: 500,
                dropped: 10,
            };
            reporter.control(0, &control(body), now, &mut out);
        }
        reporter.report(&context, now, &mut out);
        let priorities: Vec<_> = sent(&mut out)
            .iter()
            .map(|one| Report::parse(one).unwrap().base.priority as u8)
            .collect();
        priorities
    };
    assert_eq!(reported(&mut reporter, None, 0), [0, 1, 2]);
    assert_eq!(reported(&mut reporter, Some(1), 0), [1, 2]);
    assert_eq!(reported(&mut reporter, Some(2), 0), [2]);
    assert_eq!(reported(&mut reporter, Some(3), 0), [2]);
    assert_eq!(reported(&mut reporter, None, 499_999), [2]);
    assert_eq!(
        reported(&mut reporter, None, 500_000),
        [0, 1, 2],
        "the hold is over"
    );
    assert_eq!(reported(&mut reporter, Some(2), 600_000), [2]);
    assert_eq!(reported(&mut reporter, Some(0), 600_001), [0, 1, 2]);
    let suppressed: Vec<_> = reporter
        .mappings()
        .map(|(_, stats)| (stats.sent, stats.suppressed))
        .collect();
    assert_eq!(suppressed, [(3, 5), (4, 4), (8, 0)]);
    let to = reporter.destinations(600_001).next().unwrap();
    assert_eq!(
        (to.stats.congestions, to.stats.translator_drops, to.level),
        (5, 50, 0)
    );
}

#[test]
fn control_messages_that_are_not_for_us_are_counted() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    reporter.report(&Path::new().context(&flow(1)), 0, &mut out);
    out.clear();
    let mut other = nack(0);
    other[7] = 8;
    for payload in [&other[..], &nack(0)[..9], &[], &[0xff; 16]] {
        reporter.control(0, payload, 0, &mut out);
    }
    reporter.control(1, &nack(0), 0, &mut out);
    let unknown = control(Body::Nack {
        cause: Cause::Unknown,
        last: 0,
        trigger: 1,
    });
    reporter.control(0, &unknown, 0, &mut out);
    reporter.control(
        0,
        &control(Body::SketchNack {
            sketch: 4,
            epoch: 1,
            column: 0,
        }),
        0,
        &mut out,
    );
    assert!(out.is_empty());
    let Stats {
        controls,
        bad_controls,
        misdirected,
        unknown_sketches,
        ..
    } = reporter.stats();
    assert_eq!(
        (controls, bad_controls, misdirected, unknown_sketches),
        (2, 3, 2, 1)
    );
    assert_eq!(reporter.destinations(0).next().unwrap().stats.refused, 1);
}

#[test]
fn the_last_report_is_sent_again_until_it_is_known_to_have_arrived() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let path = Path::new();
    let again = |reporter: &mut Reporter, out: &mut Outbox, from: u64| {
        let ticks = (0..200).map(|ms| from + ms * 1_000_000);
        let times: Vec<u64> = ticks
            .filter(|now| {
                reporter.tick(*now, out);
                !sent(out).is_empty()
            })
            .collect();
        times.iter().map(|at| (at - from) / 1_000_000).collect::<Vec<_>>()
    };
    reporter.report(&path.context(&flow(1)), 0, &mut out);
    out.clear();
    assert_eq!(reporter.next(), Some(20_000_000));
    assert_eq!(again(&mut reporter, &mut out, 0), [20, 60, 140]);
    reporter.report(&path.context(&flow(2)), 1_000_000_000, &mut out);
    out.clear();
    reporter.control(0, &control(Body::Ack { last: 2 }), 1_000_000_000, &mut out);
    assert_eq!(again(&mut reporter, &mut out, 1_000_000_000), [0_u64; 0]);
    assert_eq!(
        (
            reporter.next(),
            reporter.destinations(0).next().unwrap().stats.probes
        ),
        (None, 3)
    );
}

#[test]
fn configurations_that_cannot_be_carried_out_name_the_setting() {
    let reported = |mappings: Vec<Mapping>, tables| {
        let config = Config {
            mappings,
            tables,
            ..Config::default()
        };
        Reporter::new(config).map(|_| ()).unwrap_err().key
    };
    let of = |on, action| reported(vec![mapping(on, action)], vec![]);
    assert_eq!(of(Trigger::Path, key_write("", "node")), "key");
    assert_eq!(
        of(Trigger::Path, key_write("flow6 flow", "node")),
        "key",
        "74 bytes"
    );
    assert_eq!(of(Trigger::Path, key_write("flow", "")), "data");
    assert_eq!(
        of(Trigger::Path, key_write("flow", "node[255] node[255]")),
        "data"
    );
    assert_eq!(
        of(Trigger::Path, key_write("packets", "node")),
        "key",
        "of a table"
    );
    assert_eq!(of(Trigger::Evicted, key_write("key", "packets")), "table");
    assert_eq!(
        reported(vec![of_table(Trigger::Path, key_write("flow", "node"))], vec![]),
        "table"
    );
    assert_eq!(
        reported(
            vec![of_table(Trigger::Evicted, key_write("flow", "packets"))],
            vec![table("flow", 8, 0)]
        ),
        "key"
    );
    assert_eq!(
        reported(
            vec![of_table(Trigger::Passed, key_write("key", "packets"))],
            vec![table("flow", 8, 0)]
        ),
        "when"
    );
    assert_eq!(
        of(Trigger::Path, append(1, "node[255]", 2)),
        "entries",
        "too long for a datagram"
    );
    assert_eq!(of(Trigger::Path, append(1, "node", 0)), "entries");
    let copies = Action::KeyWrite {
        store: 1,
        copies: 5,
        key: fields("flow"),
        data: fields("node"),
    };
    assert_eq!(of(Trigger::Path, copies), "copies");
    let value = Action::Postcard {
        store: 1,
        key: fields("flow"),
        value: "flow".parse().unwrap(),
    };
    assert_eq!(of(Trigger::Path, value), "value");
    assert_eq!(reported(vec![], vec![table("flow", 7, 0)]), "slots");
    assert_eq!(reported(vec![], vec![table("flow6 flow", 8, 0)]), "key");
    let each = Mapping {
        each_hop: true,
        ..mapping(Trigger::Hop, append(1, "node", 1))
    };
    assert_eq!(reported(vec![each], vec![]), "each_hop");
    let sketch = |change: fn(&mut sketches::Config)| {
        let mut config = sketch_config(SketchKind::CountMin, 4, 100, 4);
        change(&mut config);
        Reporter::new(Config {
            sketches: vec![config],
            ..Config::default()
        })
        .map(|_| ())
        .unwrap_err()
        .key
    };
    assert_eq!(sketch(|one| one.shape.depth = 17), "depth");
    assert_eq!(sketch(|one| one.shape.width = 2), "width");
    assert_eq!(sketch(|one| one.kind = SketchKind::Aroma), "width");
    assert_eq!(sketch(|one| one.item = Some("src".parse().unwrap())), "item");
    assert_eq!(sketch(|one| one.per_report = 100), "per_report");
    assert_eq!(sketch(|one| one.epoch = 5), "epoch");
}

#[test]
fn a_forged_nack_cannot_renumber_the_reports_of_a_reporter_that_runs() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::new(1 << 20, 100_000));
    let path = Path::new();
    (0..257).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    assert_eq!(sent(&mut out).len(), 257);
    // The translator has confirmed nothing: it sends no ACKs unless it is configured to, and needs no NACK without a loss.
    reporter.control(0, &nack(60_000), 1, &mut out);
    let stats = reporter.destinations(0).next().unwrap().stats;
    assert_eq!((out.len(), stats.renumbered, stats.unbelieved), (0, 0, 1));
}

#[test]
fn forged_nacks_cause_bounded_retransmission_and_count_a_report_once() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::new(1 << 20, 100_000));
    let path = Path::new();
    (0..1000).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), 0, &mut out));
    assert_eq!(sent(&mut out).len(), 1000);
    let stats = |reporter: &Reporter| reporter.destinations(0).next().unwrap().stats;
    // Confirmed: from now on, nobody can renumber the reports.
    reporter.control(0, &control(Body::Ack { last: 999 }), 0, &mut out);
    for last in 60_000..61_000 {
        reporter.control(0, &nack(last), 1, &mut out);
    }
    assert_eq!(
        (
            out.len(),
            stats(&reporter).renumbered,
            stats(&reporter).unbelieved
        ),
        (0, 0, 1000)
    );
    // A thousand different numbers within a millisecond, over and over.
    for round in 0..10_u64 {
        for last in 0..1000 {
            let now = 1_000_000 * (round + 1) + u64::from(last);
            reporter.control(0, &nack(last), now, &mut out);
        }
    }
    let repeated = sent(&mut out).len();
    assert!((512..=512 + 10 * 256).contains(&repeated), "{repeated}");
    let stats = stats(&reporter);
    assert_eq!(
        (stats.retransmitted, stats.nacks + stats.limited),
        (repeated as u64, 10_000)
    );
    assert_eq!(stats.unavailable, 1000 - 256, "each once");
}

#[test]
fn a_clock_set_back_leaves_the_allowance_for_retransmissions() {
    let keyed = Mapping {
        options: ESSENTIAL,
        ..mapping(Trigger::Path, key_write("flow", "node[5]"))
    };
    let (mut reporter, mut out) = (reporter(vec![keyed]), Outbox::default());
    let path = Path::new();
    const HOUR: u64 = 3_600_000_000_000;
    (0..10).for_each(|src_port| reporter.report(&path.context(&flow(src_port)), HOUR, &mut out));
    reporter.control(0, &nack(6), HOUR, &mut out);
    out.clear();
    reporter.control(0, &nack(5), 0, &mut out);
    assert_eq!(sequences(&sent(&mut out)), [6, 7, 8, 9, 10]);
}

#[test]
fn a_congestion_notice_holds_for_a_second_at_most() {
    let low = SendOptions {
        priority: Priority::Low,
        ..SendOptions::default()
    };
    let hop = Mapping {
        options: low,
        ..mapping(Trigger::Hop, append(1, "node", 1))
    };
    let (mut reporter, mut out) = (reporter(vec![hop]), Outbox::default());
    let context = Context::new(Trigger::Hop, 7);
    let body = Body::Congestion {
        level: 3,
        hold_us: u32::MAX,
        dropped: 0,
    };
    reporter.control(0, &control(body), 0, &mut out);
    reporter.report(&context, 999_999_999, &mut out);
    assert!(out.is_empty());
    reporter.report(&context, 1_000_000_000, &mut out);
    assert_eq!(out.len(), 1);
}

//! SF-INT through a row of switches: the reported sets are those of wire-formats 3.4 and 3.5, packets keep their size, and hosts
//! receive the original packets, despite loss, reordering and cleared registers.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::collections::{BTreeMap, BTreeSet};

use dataplane::report::Outbox;
use dataplane::sf;
use dataplane::switch::{Config, Switch, Verdict, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Watch, Watchlist};
use testkit::rng::Rng;
use wire::int::sf::State;
use wire::{Decoder, FlowKey, Profile, Refusal, ipv4, ipv6, udp};

/// True `per_mille` times in a thousand.
fn falls(rng: &mut Rng, per_mille: u64) -> bool {
    rng.roll() % 1000 < per_mille
}

const PAYLOAD: &[u8] = b"twelve bytes";

/// A UDP packet of a flow, which its source port identifies.
fn packet(v6: bool, src_port: u16) -> Vec<u8> {
    let len = 8 + PAYLOAD.len();
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let addresses: Vec<u8> = if v6 {
        let [src, dst] = [1, 2].map(|last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        out.extend([0x86, 0xdd]);
        out.extend([0; 40]);
        ipv6::Repr {
            src,
            dst,
            next_header: 17,
            hop_limit: 64,
            payload_len: len as u16,
            ..ipv6::Repr::default()
        }
        .emit(&mut out[14..]);
        [src, dst].concat()
    } else {
        let [src, dst] = [1, 2].map(|last| [10, 0, 0, last]);
        out.extend([8, 0]);
        out.extend([0; 20]);
        let total_len = 20 + len as u16;
        ipv4::Repr {
            src,
            dst,
            proto: 17,
            total_len,
            ttl: 64,
            ..ipv4::Repr::default()
        }
        .emit(&mut out[14..]);
        [src, dst].concat()
    };
    let at = out.len();
    out.extend([0; 8]);
    udp::Repr {
        src_port,
        dst_port: 9000,
        len: len as u16,
        checksum: 0,
    }
    .emit(&mut out[at..]);
    out.extend(PAYLOAD);
    udp::Packet::new_checked(&mut out[at..])
        .unwrap()
        .fill_checksum(&addresses);
    out
}

/// The content of one report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reported {
    flow: FlowKey,
    state: State,
    packet_id: u16,
    /// Node of the carried record, and the number of its packet.
    carried: (u32, u64),
    /// Likewise for the sink's own record.
    reporter: (u32, u64),
}

/// Fault rates, per thousand packets and link.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    swapped: u64,
}

/// A row of switches, source first, sink last.
struct Row {
    switches: Vec<Switch>,
    outbox: Outbox,
    v6: bool,
    now: u64,
    trouble: Faults,
    rng: Rng,
    /// After each node: a delayed packet, which the next one overtakes.
    held: Vec<Option<(Vec<u8>, u64)>>,
    reports: Vec<Reported>,
    delivered: u64,
    lost: u64,
}

/// Time between packets at the first node, ns.
const GAP: u64 = 1_000;

impl Row {
    fn new(nodes: u32, v6: bool, sf: sf::Config) -> Self {
        let watch = Watch {
            mode: Mode::Sf,
            bitmap: 0xac00,
            hops: 32,
            ..Watch::default()
        };
        let config = Config {
            sf,
            ..Config::default()
        };
        let switch = |node| Switch::new(node, config.clone(), Watchlist::from(watch)).unwrap();
        Self {
            switches: (1..=nodes).map(switch).collect(),
            outbox: Outbox::default(),
            v6,
            now: 0,
            trouble: Faults::default(),
            rng: Rng(nodes.into()),
            held: vec![None; nodes as usize],
            reports: Vec::new(),
            delivered: 0,
            lost: 0,
        }
    }

    /// A host sends packet `number` of a flow.
    fn send(&mut self, src_port: u16, number: u64) {
        self.now += GAP;
        let frame = packet(self.v6, src_port);
        self.pass(0, frame, number);
    }

    /// Forwards a packet from node `at` on.
    fn pass(&mut self, at: usize, mut frame: Vec<u8>, number: u64) {
        let (len, last) = (frame.len(), self.switches.len() - 1);
        let visit = Visit {
            ingress_if: 1,
            egress_if: 2,
            ingress_ts: number,
            egress_ts: self.now,
            mtu: 1500,
            from_edge: at == 0,
            to_edge: at == last,
            ..Visit::default()
        };
        let step = self.switches[at].forward(&mut frame, &visit, &mut self.outbox);
        assert_eq!(step.verdict, Verdict::Forward);
        if at == last {
            return self.arrive(&frame);
        }
        if at > 0 {
            assert_eq!(frame.len(), len, "node {} changes the packet's size", at + 1);
        }
        if falls(&mut self.rng, self.trouble.lost) {
            self.lost += 1;
            return;
        }
        if self.held[at].is_none() && falls(&mut self.rng, self.trouble.swapped) {
            self.held[at] = Some((frame, number));
            return;
        }
        self.pass(at + 1, frame, number);
        if let Some((frame, number)) = self.held[at].take() {
            self.pass(at + 1, frame, number);
        }
    }

    fn arrive(&mut self, frame: &[u8]) {
        self.delivered += 1;
        let src_port = u16::from_be_bytes(frame[frame.len() - PAYLOAD.len() - 8..][..2].try_into().unwrap());
        assert_eq!(frame, packet(self.v6, src_port), "the host gets what was sent");
        let mut decoder = Decoder::new(Profile::default());
        for datagram in self.outbox.datagrams() {
            for report in decoder.reports(datagram.payload) {
                let report = report.unwrap();
                let int = report.int.unwrap();
                let sf = int.sf.unwrap();
                let who = |hop: wire::Hop| (hop.node_id.unwrap(), hop.ingress_ts.unwrap());
                self.reports.push(Reported {
                    flow: report.flow.unwrap(),
                    state: sf.state,
                    packet_id: sf.packet_id,
                    carried: who(int.stack.hop(0)),
                    reporter: who(report.metadata_hop()),
                });
            }
        }
        self.outbox.clear();
    }

    fn run(nodes: u32, packets: u64, trouble: Faults) -> Self {
        let mut row = Self::new(nodes, true, sf::Config::default());
        row.trouble = trouble;
        (0..packets).for_each(|number| row.send(40_000, number));
        row
    }

    /// The reported sets, by flow and number: node and packet of every record in them, the sink's own only if it
    /// is of the same packet.
    fn sets(&self) -> BTreeMap<(String, u16), BTreeMap<u32, u64>> {
        let mut sets = BTreeMap::<_, BTreeMap<u32, u64>>::new();
        for report in &self.reports {
            let set = sets
                .entry((report.flow.to_string(), report.packet_id))
                .or_default();
            set.insert(report.carried.0, report.carried.1);
            if report.state == State::Medium {
                set.insert(report.reporter.0, report.reporter.1);
            }
        }
        sets
    }

    /// Number of sets with a record of every node, and number of those in which all records are of one packet.
    fn full(&self) -> (usize, usize) {
        let sets = self.sets();
        let full: Vec<_> = sets
            .values()
            .filter(|set| set.len() == self.switches.len())
            .collect();
        let clean = full
            .iter()
            .filter(|set| set.values().collect::<BTreeSet<_>>().len() == 1)
            .count();
        (full.len(), clean)
    }

    fn states(&self) -> String {
        self.reports
            .iter()
            .map(|report| report.state.name()[..1].to_uppercase())
            .collect()
    }
}

/// Wire-formats 3.4: the reports of both traces.
#[test]
fn the_traces_are_those_of_the_format_reference() {
    let reports = |nodes| {
        let row = Row::run(nodes, 5, Faults::default());
        let line = |report: &Reported| {
            format!(
                "{}{} n{}",
                &report.state.name()[..1],
                report.packet_id,
                report.carried.0
            )
        };
        row.reports.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(reports(3), "m1 n2, h1 n1, m3 n2, h3 n1, m5 n2");
    assert_eq!(reports(4), "m1 n3, h1 n2, h1 n1, l3 n2, m5 n3");
}

/// Wire-formats 3.5, the table.
#[test]
fn a_thousand_packets_make_the_sets_of_the_format_reference() {
    const TABLE: [(u32, usize, usize, usize, usize, &str); 7] = [
        (2, 1000, 0, 0, 1, "M"),
        (3, 500, 0, 500, 2, "MH"),
        (4, 250, 250, 500, 3, "MHHL"),
        (5, 250, 0, 750, 4, "MHHH"),
        (6, 125, 125, 750, 5, "MHHHHLLL"),
        (7, 125, 125, 750, 6, "MHHHHHLL"),
        (8, 125, 125, 750, 7, "MHHHHHHL"),
    ];
    for (nodes, full, partial, never, reports, pattern) in TABLE {
        let row = Row::run(nodes, 1000, Faults::default());
        let sets = row.sets();
        assert_eq!(row.reports.len(), 1000);
        assert_eq!(
            row.full(),
            (full, full),
            "{nodes} nodes: full sets, and clean ones"
        );
        assert_eq!(sets.len() - full, partial, "{nodes} nodes: partial ids");
        assert_eq!(1000 - sets.len(), never, "{nodes} nodes: ids never reported");
        assert!(
            row.states().starts_with(&pattern.repeat(1000 / pattern.len())),
            "{nodes} nodes: {}",
            row.states()
        );
        // A full set consists of this many consecutive reports: medium, then high, from the sink's neighbour to the source.
        let first = &row.reports[..reports];
        assert!(first.iter().all(|report| report.packet_id == 1));
        assert!(first.iter().map(|report| report.carried.0).eq((1..nodes).rev()));
        // The sink's own record is of the same packet as the carried one if and only if the state is medium.
        assert!(
            row.reports
                .iter()
                .all(|report| (report.state == State::Medium) == (report.carried.1 == report.reporter.1))
        );
    }
}

#[test]
fn over_ipv4_the_same_sets_come_out() {
    for nodes in [3, 5, 8] {
        let mut row = Row::new(nodes, false, sf::Config::default());
        (0..1000).for_each(|number| row.send(40_000, number));
        assert_eq!(row.full(), Row::run(nodes, 1000, Faults::default()).full());
    }
}

/// Complete sets, in thousandths of those without faults.
fn yield_of(nodes: u32, trouble: Faults) -> u64 {
    const PACKETS: u64 = 20_000;
    let row = Row::run(nodes, PACKETS, trouble);
    assert_eq!(
        row.delivered + row.lost + row.held.iter().flatten().count() as u64,
        PACKETS
    );
    let (full, clean) = row.full();
    assert_eq!(full, clean, "no set has records of two packets");
    full as u64 * 1000 * (nodes - 1).next_power_of_two() as u64 / PACKETS
}

/// Wire-formats 3.5: loss of 1 and 5 per cent a link, and 1 per cent of packets overtaken.
#[test]
fn sets_survive_loss_and_overtaking_as_often_as_the_format_reference_says() {
    let lost = |nodes, lost| yield_of(nodes, Faults { lost, swapped: 0 });
    let swapped = |nodes| yield_of(nodes, Faults { lost: 0, swapped: 10 });
    for (what, got, expected) in [
        ("3 nodes, 1 % lost", lost(3, 10), 970),
        ("5 nodes, 1 % lost", lost(5, 10), 886),
        ("8 nodes, 1 % lost", lost(8, 10), 742),
        ("5 nodes, 5 % lost", lost(5, 50), 553),
        ("8 nodes, 5 % lost", lost(8, 50), 215),
        ("5 nodes, 1 % swapped", swapped(5), 935),
        ("8 nodes, 1 % swapped", swapped(8), 906),
    ] {
        println!("{what}: {got} of 1000, expected {expected}");
        assert!(
            got.abs_diff(expected) <= 40,
            "{what}: {got} of 1000 sets, not {expected}"
        );
    }
}

#[test]
fn a_wiped_register_loses_a_few_sets_and_recovers() {
    for nodes in [4, 5, 8] {
        let (mut row, mut rng) = (Row::new(nodes, true, sf::Config::default()), Rng(77));
        let mut wipes = 0;
        for number in 0..20_000 {
            if falls(&mut rng, 1) {
                wipes += 1;
                row.switches[2].wipe_registers();
            }
            row.send(40_000, number);
        }
        let whole = 20_000 / (nodes as usize - 1).next_power_of_two();
        let (full, clean) = row.full();
        println!(
            "{nodes} nodes: {wipes} wipes cost {} of {whole} sets",
            whole - full
        );
        assert_eq!(full, clean);
        assert!(
            wipes > 10 && whole - full <= wipes + 1,
            "{wipes} wipes cost {} sets",
            whole - full
        );
        assert!(
            row.switches[2].stats().sf_rules[6] > 0,
            "rule 6 is for a wiped register"
        );
        // After two periods the yield is as before.
        let before = row.full().0;
        (20_000..21_000).for_each(|number| row.send(40_000, number));
        assert!(row.full().0 - before >= 1000 / (nodes as usize - 1).next_power_of_two() - 1);
    }
}

/// Two flows that alternate randomly.
fn two_flows(config: sf::Config) -> Row {
    let (mut row, mut coin) = (Row::new(4, true, config), Rng(3));
    (0..20_000).for_each(|number| row.send(40_000 + (coin.roll() >> 20) as u16 % 2, number));
    row
}

/// Wire-formats 3.5: with one register for all flows their records mix, with one for each they do not.
#[test]
fn flows_that_share_one_register_get_each_others_records() {
    let row = two_flows(sf::Config::default());
    let (full, clean) = row.full();
    assert_eq!(full, clean);
    assert!((4_990..=5_000).contains(&full), "{full} sets");

    let row = two_flows(sf::Config {
        single: true,
        ..sf::Config::default()
    });
    // Which flow a packet was of.
    let mut coin = Rng(3);
    let of: Vec<u16> = (0..20_000)
        .map(|_| 40_000 + (coin.roll() >> 20) as u16 % 2)
        .collect();
    let other = |report: &&Reported| report.flow.src_port() != Some(of[report.carried.1 as usize]);
    let unrelated = row.reports.iter().filter(other).count();
    println!(
        "{unrelated} of {} reports carry the other flow's record",
        row.reports.len()
    );
    assert!(
        (unrelated as i64 * 1000 / 20_000 - 374).abs() < 30,
        "{unrelated} unrelated, not 37.4 %"
    );
}

/// A record that was in a register while its flow paused is not delivered.
#[test]
fn a_pause_ages_registers_out() {
    let mut row = Row::new(
        4,
        true,
        sf::Config {
            aging: 10 * GAP,
            ..sf::Config::default()
        },
    );
    row.send(40_000, 0);
    row.now += 10 * GAP;
    row.send(40_000, 1);
    let states: Vec<_> = row
        .reports
        .iter()
        .map(|report| (report.state, report.packet_id))
        .collect();
    assert_eq!(
        states,
        [(State::Medium, 1), (State::Medium, 2)],
        "both set out anew"
    );
}

#[test]
fn urgent_packets_collect_all_records_and_leave_the_others_alone() {
    let urgent = sf::Urgent {
        every: Some(10),
        queue: None,
    };
    let watch = Watch {
        mode: Mode::Sf,
        bitmap: 0xac00,
        hops: 32,
        ..Watch::default()
    };
    let config = Config {
        sf: sf::Config {
            urgent,
            ..sf::Config::default()
        },
        ..Config::default()
    };
    let mut switches: Vec<_> = (1..=5)
        .map(|node| Switch::new(node, config.clone(), Watchlist::from(watch)).unwrap())
        .collect();
    let (mut paths, mut full, mut outbox) = (0, BTreeMap::<u16, BTreeSet<u32>>::new(), Outbox::default());
    for number in 0..400_u64 {
        let mut frame = packet(true, 40_000);
        for (at, switch) in switches.iter_mut().enumerate() {
            let visit = Visit {
                ingress_if: 1,
                egress_if: 2,
                ingress_ts: number,
                egress_ts: number,
                mtu: 1500,
                from_edge: at == 0,
                to_edge: at == 4,
                ..Visit::default()
            };
            switch.forward(&mut frame, &visit, &mut outbox);
        }
        assert_eq!(frame, packet(true, 40_000));
        let mut decoder = Decoder::new(Profile::default());
        for datagram in outbox.datagrams() {
            let report = decoder.reports(datagram.payload).next().unwrap().unwrap();
            let sf = report.int.unwrap().sf.unwrap();
            let path: Vec<_> = report.hops().map(|hop| hop.node_id.unwrap()).collect();
            if sf.urgent {
                paths += 1;
                assert_eq!((sf.packet_id % 10, path), (0, vec![1, 2, 3, 4, 5]));
            } else {
                full.entry(sf.packet_id).or_default().extend(path);
            }
        }
        outbox.clear();
    }
    assert_eq!(paths, 40);
    // 360 other packets make a set in every four.
    assert_eq!(full.values().filter(|nodes| nodes.len() == 5).count(), 90);
}

/// A node with plain INT only is detected at once.
#[test]
fn a_node_without_int_on_the_path_is_counted_at_the_sink() {
    let mut row = Row::new(3, true, sf::Config::default());
    let mut frame = packet(true, 40_000);
    let bare = frame.clone();
    let visit = |at| Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: 1,
        egress_ts: 2,
        mtu: 1500,
        from_edge: at == 0,
        to_edge: at == 2,
        ..Visit::default()
    };
    row.switches[0].forward(&mut frame, &visit(0), &mut row.outbox);
    // A plain INT node adds six words and updates every length.
    let (option, int) = (56, 6 * 4);
    let record = frame[option + 18..option + 18 + int].to_vec();
    frame.splice(option + 18..option + 18, record);
    frame[option + 1] += int as u8;
    frame[option + 3] += 6;
    frame[55] += (int / 8) as u8;
    frame[19] += int as u8;
    assert_eq!(
        wire::packet::contents(&frame, &Profile::default()).err(),
        Some(Refusal::BadSfStack)
    );
    row.switches[2].forward(&mut frame, &visit(2), &mut row.outbox);
    let stats = row.switches[2].stats();
    assert_eq!((stats.refused, stats.plain_nodes, stats.reported), (1, 1, 0));
    assert!(row.outbox.is_empty());
    // No host sees INT.
    assert_eq!((stats.malformed_stripped, frame), (1, bare));
}

/// Every packet is counted once, in one place.
#[test]
fn counters_add_up() {
    let row = Row::run(
        6,
        5_000,
        Faults {
            lost: 10,
            swapped: 10,
        },
    );
    for (at, switch) in row.switches.iter().enumerate() {
        let stats = switch.stats();
        let all = stats.plain
            + stats.refused
            + stats.recorded
            + stats.swapped
            + stats.hops_exceeded
            + stats.mtu_exceeded
            + stats.not_restorable
            + stats.reported;
        let by_rule: u64 = stats.sf_rules.iter().sum();
        let transit = (1..5).contains(&at);
        assert_eq!(by_rule, if transit { all } else { 0 }, "node {}", at + 1);
        let local = stats.sf_rules[2] + stats.sf_rules[3];
        assert!(
            !transit || stats.recorded == local,
            "rules 2 and 3 write the local record"
        );
    }
    assert_eq!(row.switches[0].stats().recorded, 5_000);
    assert_eq!(row.switches[5].stats().reported, row.delivered);
}

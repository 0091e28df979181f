//! Access control: datagrams of senders that are not allowed change nothing but the counters of refusals, whatever they contain.

use std::sync::Arc;

use collector::{Access, Batch, Collector, Config, Datagram, Grant};
use testkit::datagrams::datagram;
use testkit::reports::{Bench, SECOND, START, Sent, config};
use testkit::rng::Rng;
use wire::Refusal;

const ALLOWED: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 9, 0, 1];

#[allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
fn grant(from: &str, nodes: &[(u32, u32)]) -> Grant {
    Grant {
        from: from.parse().unwrap(),
        nodes: nodes.to_vec(),
    }
}

/// A collector whose listener 0 has these grants.
fn restricted(grants: &[Grant]) -> Config {
    Config {
        access: Arc::new(Access::new([Some(grants.to_vec())])),
        ..config()
    }
}

fn refused(collector: &Collector, refusal: Refusal) -> (u64, u64) {
    let stats = collector.stats();
    assert!(
        stats.decode_balance().is_balanced(),
        "{:?}",
        stats.decode_balance()
    );
    (
        stats.refused_datagrams[refusal.index()],
        stats.refused[refusal.index()],
    )
}

#[test]
fn forged_losses_of_a_sender_that_is_not_allowed_do_not_count() {
    let run = |config: Config| {
        let mut bench = Bench::new(config);
        for number in 0..20_000_u32 {
            bench.deliver_from(
                &Sent {
                    seq: number,
                    ..Sent::default()
                }
                .v10(),
                ALLOWED,
            );
            // Each pair claims an outage of hundreds of millions.
            let seq = (number / 2).wrapping_mul(700_000_001).wrapping_add(number % 2);
            bench.deliver_from(
                &Sent {
                    seq,
                    ..Sent::default()
                }
                .v10(),
                OTHER,
            );
        }
        bench.pass(5 * SECOND);
        let lost: u64 = bench.collector.streams().map(|stream| stream.lost).sum();
        (
            lost,
            refused(&bench.collector, Refusal::SenderNotAllowed),
            bench.collector.stats().accepted,
        )
    };
    assert_eq!(
        run(restricted(&[grant("10.0.0.0/16", &[])])),
        (0, (20_000, 20_000), 20_000)
    );
    let (_, counted, accepted) = run(config());
    assert_eq!(
        (counted, accepted),
        ((0, 0), 40_000),
        "by default everyone may report"
    );
}

#[test]
fn a_sender_may_report_as_its_own_nodes_only() {
    let mut bench = Bench::new(restricted(&[grant("10.0.0.0/16", &[(3, 5), (9, 9)])]));
    for node in 0..20 {
        bench.deliver_from(
            &Sent {
                reporter: node,
                ..Sent::default()
            }
            .v10(),
            ALLOWED,
        );
        bench.deliver_from(
            &Sent::v20(&[Sent {
                reporter: node,
                ..Sent::default()
            }]),
            ALLOWED,
        );
    }
    // The header of a report 0.5 has no node id.
    bench.deliver_from(&Sent::default().v05(), ALLOWED);
    let mut nodes: Vec<_> = bench.collector.streams().map(|stream| stream.id.node).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes, [3, 4, 5, 9].map(Some));
    assert_eq!(refused(&bench.collector, Refusal::NodeNotAllowed), (33, 33));
    assert_eq!(refused(&bench.collector, Refusal::SenderNotAllowed), (0, 0));
    let by_source: Vec<u64> = bench
        .collector
        .sources()
        .map(|source| source.refused[Refusal::NodeNotAllowed.index()])
        .collect();
    assert_eq!(by_source, [33]);
}

/// Results of some datagrams: all output and state, without the counters of refusals.
#[derive(PartialEq, Debug)]
struct Outcome {
    emitted: String,
    flows: Vec<String>,
    streams: Vec<String>,
    counted: [u64; 6],
}

struct Run {
    collector: Collector,
    batch: Batch,
    emitted: String,
}

impl Run {
    fn new(config: Config) -> Self {
        Self {
            collector: Collector::new(config),
            batch: Batch::with_capacity(1 << 14),
            emitted: String::new(),
        }
    }

    fn give(&mut self, burst: &[Datagram<'_>], aggregates: bool) {
        match aggregates {
            true => self.collector.handle_aggregates(burst, &mut self.batch),
            false => self.collector.handle(burst, &mut self.batch),
        }
        self.drain();
    }

    fn drain(&mut self) {
        let events = self
            .batch
            .events()
            .map(|(event, path)| format!("{event:?} {path:?}\n"));
        self.emitted.extend(events);
        self.emitted.push_str(&format!("{:?}\n", self.batch.rollups()));
        self.batch.clear();
    }

    fn outcome(mut self, now: u64) -> Outcome {
        self.collector.finish(now, &mut self.batch);
        self.drain();
        let stats = self.collector.stats();
        let mut flows: Vec<String> = self
            .collector
            .flows()
            .map(|flow| format!("{:?}", flow.row))
            .collect();
        flows.sort();
        let mut streams: Vec<String> = self
            .collector
            .streams()
            .map(|stream| format!("{stream:?}"))
            .collect();
        streams.sort();
        let counted = [
            stats.accepted,
            stats.reports,
            stats.flow_reports,
            stats.node_reports,
            stats.aggregates,
            stats.aggregate_postcards,
        ];
        Outcome {
            emitted: self.emitted,
            flows,
            streams,
            counted,
        }
    }
}

#[test]
fn what_others_send_changes_nothing_whatever_it_is() {
    let mut rng = Rng(11);
    let restricted = restricted(&[grant("10.0.0.0/16", &[])]);
    let (mut alone, mut among) = (Run::new(restricted.clone()), Run::new(restricted));
    let vectors: Vec<Vec<u8>> = ["tr20_emb", "tr10_ioam"]
        .into_iter()
        .map(testkit::vectors::bytes)
        .chain([Sent::default().v10()])
        .collect();
    let mapped = |address: [u8; 4]| std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
    let (mut now, mut forged) = (1_700_000_000 * SECOND, 0_u64);
    for _ in 0..3_000 {
        now += 3_000_000;
        let aggregates = rng.below(10) == 0;
        let payloads: Vec<(Vec<u8>, bool)> = (0..8)
            .map(|_| {
                let payload = match rng.below(3) {
                    0 => vectors[rng.below(vectors.len())].clone(),
                    _ => datagram(&mut rng),
                };
                (payload, rng.below(2) == 0)
            })
            .collect();
        let burst = |own: &dyn Fn(bool) -> bool| -> Vec<Datagram<'_>> {
            let some = payloads.iter().filter(|(_, is_own)| own(*is_own));
            some.map(|(payload, is_own)| Datagram {
                payload,
                source: mapped(if *is_own { ALLOWED } else { OTHER }),
                src_port: 7,
                listener: 0,
                received: now,
            })
            .collect()
        };
        alone.give(&burst(&|own| own), aggregates);
        among.give(&burst(&|_| true), aggregates);
        forged += payloads.iter().filter(|(_, own)| !own).count() as u64;
    }
    let collector = &among.collector;
    assert_eq!(refused(collector, Refusal::SenderNotAllowed), (forged, forged));
    assert_eq!(
        collector.stats().datagrams,
        alone.collector.stats().datagrams + forged
    );
    let (alone, among) = (alone.outcome(now), among.outcome(now));
    assert!(
        alone.counted[1] > 1_000 && alone.flows.len() > 10,
        "{:?}",
        alone.counted
    );
    assert_eq!(alone.counted, among.counted);
    assert!(alone == among, "the results differ");
}

#[test]
fn no_datagram_is_read_as_a_node_that_the_check_did_not_see() {
    let mut rng = Rng(12);
    let mut bench = Bench::new(restricted(&[grant("0.0.0.0/0", &[(1, 1 << 24)])]));
    for _ in 0..30_000 {
        bench.deliver_from(&datagram(&mut rng), ALLOWED);
    }
    let stats = bench.collector.stats();
    assert!(
        stats.accepted > 1_000 && refused(&bench.collector, Refusal::NodeNotAllowed).0 > 100,
        "{stats:?}"
    );
    for stream in bench.collector.streams() {
        let node = stream.id.node;
        // Streams of reports 0.5 are identified by address.
        assert!(
            stream.id.version == 5 || node.is_some_and(|node| (1..=1 << 24).contains(&node)),
            "{:?}",
            stream.id
        );
    }
}

#[test]
fn later_reports_pass_by_the_node_of_the_header_whatever_is_before_them() {
    let good = Sent::v20(&[Sent::default()]);
    let (header, report) = good.split_at(8);
    // Of an undefined type, of an undefined inner type, and too short for its main contents: nothing behind it is read.
    let undefined: &[u8] = &[0x25, 1, 0, 0x20, 1, 2, 3, 4];
    let undefined_inner: &[u8] = &[0x06, 1, 0, 0x20, 1, 2, 3, 4];
    let short: &[u8] = &[0x14, 1, 0, 0x20, 1, 2, 3, 4];
    for (reports, counts) in [
        (vec![undefined], (0, 1)),
        (vec![undefined, report], (1, 1)),
        (vec![undefined_inner, undefined, report], (1, 2)),
        (vec![short], (0, 1)),
        (vec![short, report], (0, 1)),
        (vec![report, short], (1, 1)),
    ] {
        for (nodes, counts) in [((1, 9), counts), ((4, 9), (0, 0))] {
            let mut bench = Bench::new(restricted(&[grant("10.0.0.0/16", &[nodes])]));
            let payload = [header, &reports.concat()].concat();
            let datagram = Datagram {
                payload: &payload,
                source: std::net::Ipv4Addr::from(ALLOWED).to_ipv6_mapped().octets(),
                src_port: 9,
                listener: 0,
                received: START,
            };
            bench
                .collector
                .handle_later_reports(&[datagram], 3, &mut bench.log);
            let stats = bench.collector.stats();
            let refused: u64 = stats.refused.iter().sum();
            assert_eq!((stats.reports, refused), counts, "{payload:02x?} {nodes:?}");
            // The datagram is counted by the collector that handles its first reports.
            assert_eq!((stats.datagrams, stats.accepted), (0, 0));
        }
    }
}

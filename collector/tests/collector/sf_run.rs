//! SF-INT reports in a burst are decoded by the brief decoder and joined together. The result must equal that of full
//! decoding, one report at a time.

use std::net::Ipv4Addr;
use std::sync::Arc;

use collector::config::JoinConfig;
use collector::{Batch, Clocks, Collector, Config, Datagram, Profile};
use detect::{Detection, Thresholds};
use testkit::workload::collector::{CASES, Case, SF_CASES, SfCase};
use wire::Dialect;

/// Seeded random numbers (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }
}

/// Reports of a simulated network with injected faults: lost, duplicated, reordered and corrupted reports, reports without
/// SF-INT, and reports from a second source.
fn datagrams(rng: &mut Rng) -> Vec<(Vec<u8>, u8, u64)> {
    let sf = SfCase {
        flows: 20,
        ..SF_CASES[0]
    }
    .feed();
    let plain = Case {
        flows: 10,
        ..CASES[0]
    }
    .feed();
    let plain: Vec<_> = plain.payloads().collect();
    let mut out: Vec<(Vec<u8>, u8, u64)> = Vec::new();
    let mut now = 1_700_000_000_000_000_000;
    for round in 0..6_u16 {
        for (at, payload) in sf.payloads().enumerate() {
            let mut payload = payload.to_vec();
            // The feed has few packet IDs: each round uses others. The sequence number continues.
            let id = u16::from_be_bytes([payload[94], payload[95]]) + 8 * round;
            payload[94..96].copy_from_slice(&id.to_be_bytes());
            let seq = u32::from(round) * 160 + at as u32;
            payload[1..4].copy_from_slice(&seq.to_be_bytes()[1..]);
            now += if rng.below(300) == 0 {
                1_200_000_000
            } else {
                10_000
            };
            let source = [1, 1, 1, 2][rng.below(4)];
            match rng.below(40) {
                0 => continue,
                1 => out.push((payload.clone(), source, now)),
                2 => {
                    let offset = rng.below(payload.len());
                    payload[offset] ^= 1 << rng.below(8);
                }
                3 => {
                    let last = out.len().saturating_sub(1 + rng.below(6));
                    out.insert(last, (payload, source, now));
                    continue;
                }
                4 => out.push((plain[rng.below(plain.len())].to_vec(), source, now)),
                _ => {}
            }
            out.push((payload, source, now));
        }
    }
    out
}

fn collector(hop_limit: Option<u8>) -> Collector {
    let mut other = Profile::new("other", wire::Profile::new(Dialect::Strict));
    (other.latency_unit_ns, other.timestamp_unit_ns) = (3, 5);
    let sf = JoinConfig {
        max_flows: 16,
        max_sets: 40,
        hop_limit,
        ..JoinConfig::default()
    };
    let thresholds = Thresholds::new([0, 10, 10, 10, 10, 10], Vec::new()).unwrap_or_default();
    Collector::new(Config {
        sf,
        max_flows: 16,
        profiles: vec![("192.0.2.2/32".parse().expect("a prefix"), other)],
        detection: Arc::new(Detection {
            thresholds,
            ..Detection::default()
        }),
        ..Config::default()
    })
}

/// Everything that a collector emits for these datagrams in bursts of `burst`, as text.
fn reported(given: &[(Vec<u8>, u8, u64)], hop_limit: Option<u8>, burst: usize) -> (Vec<String>, Collector) {
    let mut collector = collector(hop_limit);
    let mut batch = Batch::with_capacity(1 << 16);
    let datagrams: Vec<Datagram<'_>> = given
        .iter()
        .map(|(payload, source, received)| Datagram {
            payload,
            source: Ipv4Addr::new(192, 0, 2, *source).to_ipv6_mapped().octets(),
            src_port: 7,
            listener: 0,
            received: *received,
        })
        .collect();
    for burst in datagrams.chunks(burst) {
        collector.handle(burst, &mut batch);
    }
    let now = given.last().map_or(0, |last| last.2);
    let mut lines: Vec<String> = batch.events().map(|event| format!("{event:?}")).collect();
    lines.extend(
        collector
            .flows()
            .map(|flow| format!("{:?} {:?}", flow.row, flow.path().collect::<Vec<_>>())),
    );
    lines.extend(collector.sources().map(|source| format!("{source:?}")));
    lines.extend(collector.streams().map(|stream| format!("{stream:?}")));
    batch.clear();
    collector.finish(now, &mut batch);
    lines.extend(batch.events().map(|event| format!("{event:?}")));
    lines.extend(batch.rollups().iter().map(|rollup| format!("{rollup:?}")));
    lines.push(format!("{:?} {:?}", collector.stats(), collector.tables()));
    (lines, collector)
}

#[test]
fn bursts_and_single_reports_give_the_same_result() {
    let mut complete = 0;
    for seed in 1..=12 {
        let given = datagrams(&mut Rng(seed));
        for hop_limit in [Some(16), None] {
            let (one_by_one, collector) = reported(&given, hop_limit, 1);
            let stats = collector.stats();
            assert!(
                stats.sf.balance().is_balanced()
                    && stats.decode_balance().is_balanced()
                    && stats.state_balance().is_balanced()
            );
            complete += stats.sf.complete.sets;
            for burst in [2, 17, 64, 1024] {
                let (in_bursts, _) = reported(&given, hop_limit, burst);
                assert_eq!(
                    in_bursts.len(),
                    one_by_one.len(),
                    "seed {seed}, bursts of {burst}"
                );
                for (got, expected) in in_bursts.iter().zip(&one_by_one) {
                    assert_eq!(got, expected, "seed {seed}, bursts of {burst}");
                }
            }
        }
    }
    assert!(complete > 500, "{complete} sets");
}

/// Latency of each node on the path of the only flow, ns, and of the flow, with these units by node.
fn latencies(node_profiles: Vec<(u32, Profile)>, clocks: Clocks, burst: usize) -> (Vec<(u32, u64)>, u64) {
    let case = SfCase {
        flows: 1,
        ..SF_CASES[0]
    };
    let sf = JoinConfig {
        hop_limit: Some(16),
        ..JoinConfig::default()
    };
    let default_profile = Profile {
        clocks,
        ..Profile::default()
    };
    let config = Config {
        sf,
        node_profiles,
        default_profile,
        ..Config::default()
    };
    let mut collector = Collector::new(config);
    let mut batch = Batch::with_capacity(1 << 12);
    let feed = case.feed();
    let datagrams: Vec<Datagram<'_>> = feed
        .payloads()
        .map(|payload| Datagram {
            payload,
            source: [7; 16],
            src_port: 7,
            listener: 0,
            received: 1 << 60,
        })
        .collect();
    datagrams
        .chunks(burst)
        .for_each(|burst| collector.handle(burst, &mut batch));
    let flow = collector.flows().next().expect("a flow");
    let hops = flow
        .hops()
        .map(|hop| (hop.node.expect("named"), hop.hop_latency.expect("measured")));
    (hops.collect(), flow.row.flow_latency.expect("measured"))
}

#[test]
fn records_of_one_packet_count_in_the_units_of_their_nodes() {
    for burst in [1, 64] {
        for (clocks, total) in [(Clocks::Free, 15_000), (Clocks::Synchronised, 205_000)] {
            let (alike, latency) = latencies(Vec::new(), clocks, burst);
            assert_eq!(
                alike,
                [(100, 1000), (200, 2000), (300, 3000), (400, 4000), (5, 5000)]
            );
            assert_eq!(latency, total, "{clocks:?}");
        }
        // The second node's record is carried; the fifth node is the sink.
        let units = |latency_unit_ns| Profile {
            latency_unit_ns,
            ..Profile::default()
        };
        let own = || vec![(5, units(7)), (200, units(3))];
        let (mixed, latency) = latencies(own(), Clocks::Free, burst);
        assert_eq!(
            mixed,
            [(100, 1000), (200, 6000), (300, 3000), (400, 4000), (5, 35_000)]
        );
        assert_eq!(latency, 49_000);
        // The sink's timestamps have other units: they are not compared with those of the source.
        assert_eq!(latencies(own(), Clocks::Synchronised, burst).1, 49_000);
    }
}

#[test]
fn implausible_latencies_of_records_are_marked() {
    for burst in [1, 64] {
        let case = SfCase {
            flows: 1,
            ..SF_CASES[0]
        };
        let sf = JoinConfig {
            hop_limit: Some(16),
            ..JoinConfig::default()
        };
        let default_profile = Profile {
            max_hop_latency: 2500,
            ..Profile::default()
        };
        let mut collector = Collector::new(Config {
            sf,
            default_profile,
            ..Config::default()
        });
        let mut batch = Batch::with_capacity(1 << 12);
        let feed = case.feed();
        let datagrams: Vec<Datagram<'_>> = feed
            .payloads()
            .map(|payload| Datagram {
                payload,
                source: [7; 16],
                src_port: 7,
                listener: 0,
                received: 1 << 60,
            })
            .collect();
        datagrams
            .chunks(burst)
            .for_each(|burst| collector.handle(burst, &mut batch));
        let flow = collector.flows().next().expect("a flow");
        let hops: Vec<_> = flow
            .hops()
            .map(|hop| (hop.node.expect("named"), hop.hop_latency, hop.implausible_latency))
            .collect();
        let expected = [
            (100, Some(1000), None),
            (200, Some(2000), None),
            (300, None, Some(3000)),
            (400, None, Some(4000)),
            (5, None, Some(5000)),
        ];
        assert_eq!(
            (hops, flow.row.flow_latency),
            (expected.to_vec(), None),
            "bursts of {burst}"
        );
        let events = batch
            .events()
            .filter(|(event, _)| matches!(event.node, Some(300 | 400 | 5)));
        let latencies = events
            .filter(|(event, _)| event.metric.is_some_and(|metric| metric.name() == "hop_latency"))
            .count();
        let counted: u64 = collector.nodes().map(|node| node.implausible).sum();
        assert_eq!((latencies, counted), (0, collector.stats().implausible_latencies));
        assert!(counted >= 3, "{counted}");
    }
}

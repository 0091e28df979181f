//! The captures of a real network (`tests/captures/`), through the whole collector.

use std::collections::BTreeMap;
use std::path::Path;

use collector::event::Basis;
use collector::{Batch, Collector, Config, Datagram, Profile};
use wire::{Dialect, FlowKey, datagram};

/// Frames of a classic little-endian pcap file, with their times.
fn frames(name: &str) -> Vec<(u64, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/captures")
        .join(name);
    let file = std::fs::read(path).expect("the capture is in the repository");
    let word = |at: usize| {
        u64::from(u32::from_le_bytes(
            file[at..at + 4].try_into().expect("four bytes"),
        ))
    };
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        let time = word(at) * 1_000_000_000 + word(at + 4) * 1000;
        frames.push((time, file[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    frames
}

/// bmv2 with the program of ONOS: microseconds and packets.
fn bmv2() -> Profile {
    Profile {
        timestamp_unit_ns: 1000,
        latency_unit_ns: 1000,
        queue_unit: "packets".to_owned(),
        ..Profile::new("onos", wire::Profile::new(Dialect::Onos))
    }
}

fn read(name: &str) -> (Collector, Batch) {
    read_with(
        name,
        Config {
            default_profile: bmv2(),
            ..Config::default()
        },
    )
}

fn read_with(name: &str, config: Config) -> (Collector, Batch) {
    let mut collector = Collector::new(config);
    let mut batch = Batch::with_capacity(1 << 18);
    let mut now = 0;
    for (received, frame) in frames(name) {
        let udp = datagram(&frame).expect("every frame is UDP");
        let datagram = Datagram {
            payload: udp.payload,
            source: [9; 16],
            src_port: udp.src_port,
            listener: 0,
            received,
        };
        collector.handle(&[datagram], &mut batch);
        collector.tick(received, &mut batch);
        now = received;
    }
    collector.finish(now, &mut batch);
    (collector, batch)
}

fn paths(collector: &Collector) -> BTreeMap<FlowKey, Vec<u32>> {
    collector
        .flows()
        .map(|flow| (flow.row.flow, flow.path().collect()))
        .collect()
}

fn eight_flows() -> BTreeMap<FlowKey, Vec<u32>> {
    let flow = |i: u16| FlowKey::v4([10, 0, 1, 1], [10, 0, 2, 2], Some((5000 + i, 6000 + i)), 17);
    (0..8).map(|i| (flow(i), vec![101, 102, 103])).collect()
}

#[test]
fn the_congested_queue_is_found() {
    let (collector, batch) = read("onos-int10-congested.pcap");
    let stats = collector.stats();
    assert_eq!(
        (stats.datagrams, stats.accepted, stats.flow_reports),
        (4000, 4000, 4000)
    );
    assert_eq!(paths(&collector), eight_flows());
    let mut deepest = BTreeMap::new();
    let occupancy = |metric| metric == detect::Metric::QueueOccupancy;
    for rollup in batch.rollups().iter().filter(|rollup| occupancy(rollup.metric)) {
        let node = deepest.entry(rollup.node).or_insert(0);
        *node = rollup.max.max(*node);
    }
    assert_eq!(deepest[&Some(102)], 200);
    assert!(
        deepest[&Some(101)] <= 64 && deepest[&Some(103)] <= 64,
        "{deepest:?}"
    );
    // Three clocks that are not synchronised: the latency is the sum of the hops, and marked so.
    for flow in collector.flows() {
        let hops: u64 = flow
            .hops()
            .map(|hop| hop.hop_latency.expect("every hop has a latency"))
            .sum();
        assert_eq!((flow.row.flow_latency, flow.basis()), (Some(hops), Basis::HopSum));
    }
    assert_eq!(batch.refused(), 0);
    let stream = collector.streams().next().expect("one reporter");
    assert_eq!(
        (stream.datagrams, stream.countable, stream.lost),
        (4000, false, 0)
    );
}

#[test]
fn paths_alone_give_paths_and_no_latency() {
    let (collector, batch) = read("onos-int10-path-only.pcap");
    assert_eq!(collector.stats().accepted, 500);
    assert!(
        paths(&collector)
            .into_iter()
            .all(|(flow, path)| eight_flows().get(&flow) == Some(&path))
    );
    assert!(collector.flows().all(|flow| flow.row.flow_latency.is_none()));
    assert!(batch.rollups().is_empty() && batch.events().all(|(event, _)| event.value == Some(3)));
}

/// The maximum hop latency of each node, ns, and the number of its queues' profile.
fn greatest(name: &str, config: Config) -> BTreeMap<u32, (u64, u8)> {
    let (collector, _) = read_with(name, config);
    assert!(collector.stats().accepted >= 60);
    let mut found = BTreeMap::new();
    for flow in collector.flows() {
        for hop in flow.hops() {
            let entry: &mut (u64, u8) = found.entry(hop.node.expect("named")).or_default();
            entry.0 = entry.0.max(hop.hop_latency.expect("measured"));
        }
    }
    for queue in collector.queues() {
        if let Some(entry) = found.get_mut(&queue.node) {
            entry.1 = queue.profile;
        }
    }
    found
}

#[test]
fn a_foreign_transit_between_our_switches_counts_in_its_own_units() {
    const MS: u64 = 1_000_000;
    let name = "mixed-foreign-transit-reports.pcap";
    let wrong = greatest(name, Config::default());
    assert!(
        wrong[&12].0 < 10_000,
        "microseconds read as nanoseconds: {wrong:?}"
    );
    let right = greatest(
        name,
        Config {
            node_profiles: vec![(12, bmv2())],
            ..Config::default()
        },
    );
    assert_eq!(right[&12], (wrong[&12].0 * 1000, 1));
    assert!((10_000..10 * MS).contains(&right[&12].0), "{right:?}");
    assert_eq!((right[&11], right[&13]), (wrong[&11], wrong[&13]));
}

#[test]
fn our_transit_in_a_foreign_domain_counts_in_its_own_units() {
    const MS: u64 = 1_000_000;
    let name = "mixed-own-transit-reports.pcap";
    let config = || Config {
        default_profile: bmv2(),
        ..Config::default()
    };
    let wrong = greatest(name, config());
    assert!(
        wrong[&11].0 > 10 * MS,
        "nanoseconds read as microseconds: {wrong:?}"
    );
    let right = greatest(
        name,
        Config {
            node_profiles: vec![(11, Profile::default())],
            ..config()
        },
    );
    assert_eq!(right[&11], (wrong[&11].0 / 1000, 1));
    assert_eq!((right[&101], right[&103]), (wrong[&101], wrong[&103]));
}

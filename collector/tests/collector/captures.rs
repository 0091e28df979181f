//! The captures of a real network (`tests/captures/`), through the whole collector.

use std::collections::BTreeMap;
use std::path::Path;

use collector::event::Basis;
use collector::{Batch, Collector, Config, Datagram, Profile};
use wire::{Dialect, FlowKey, datagram};

/// Frames of a classic little-endian pcap file, with their times.
fn frames(name: &str) -> Vec<(u64, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures").join(name);
    let file = std::fs::read(path).expect("the capture is in the repository");
    let word = |at: usize| u64::from(u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")));
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let length = word(at + 8) as usize;
        let time = word(at) * 1_000_000_000 + word(at + 4) * 1000;
        frames.push((time, file[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    frames
}

fn read(name: &str) -> (Collector, Batch) {
    let default_profile = Profile {
        timestamp_unit_ns: 1000,
        latency_unit_ns: 1000,
        queue_unit: "packets".to_owned(),
        ..Profile::new("onos", wire::Profile::new(Dialect::Onos))
    };
    let mut collector = Collector::new(Config { default_profile, ..Config::default() });
    let mut batch = Batch::with_capacity(1 << 18);
    let mut now = 0;
    for (received, frame) in frames(name) {
        let udp = datagram(&frame).expect("every frame is UDP");
        let datagram =
            Datagram { payload: udp.payload, source: [9; 16], src_port: udp.src_port, listener: 0, received };
        collector.handle(&[datagram], &mut batch);
        collector.tick(received, &mut batch);
        now = received;
    }
    collector.finish(now, &mut batch);
    (collector, batch)
}

fn paths(collector: &Collector) -> BTreeMap<FlowKey, Vec<u32>> {
    collector.flows().map(|flow| (flow.row.flow, flow.path().collect())).collect()
}

fn eight_flows() -> BTreeMap<FlowKey, Vec<u32>> {
    let flow = |i: u16| FlowKey::v4([10, 0, 1, 1], [10, 0, 2, 2], Some((5000 + i, 6000 + i)), 17);
    (0..8).map(|i| (flow(i), vec![101, 102, 103])).collect()
}

#[test]
fn the_congested_queue_is_found() {
    let (collector, batch) = read("onos-int10-congested.pcap");
    let stats = collector.stats();
    assert_eq!((stats.datagrams, stats.accepted, stats.flow_reports), (4000, 4000, 4000));
    assert_eq!(paths(&collector), eight_flows());
    let mut deepest = BTreeMap::new();
    let occupancy = |metric| metric == detect::Metric::QueueOccupancy;
    for rollup in batch.rollups().iter().filter(|rollup| occupancy(rollup.metric)) {
        let node = deepest.entry(rollup.node).or_insert(0);
        *node = rollup.max.max(*node);
    }
    assert_eq!(deepest[&Some(102)], 200);
    assert!(deepest[&Some(101)] <= 64 && deepest[&Some(103)] <= 64, "{deepest:?}");
    // Three clocks that were never set: the sum of the hops, and marked so.
    for flow in collector.flows() {
        let hops: u64 = flow.hops().map(|hop| hop.hop_latency.expect("every hop has a latency")).sum();
        assert_eq!((flow.row.flow_latency, flow.basis()), (Some(hops), Basis::HopSum));
    }
    assert_eq!(batch.refused(), 0);
    let stream = collector.streams().next().expect("one reporter");
    assert_eq!((stream.datagrams, stream.countable, stream.lost), (4000, false, 0));
}

#[test]
fn paths_alone_give_paths_and_no_latency() {
    let (collector, batch) = read("onos-int10-path-only.pcap");
    assert_eq!(collector.stats().accepted, 500);
    assert!(paths(&collector).into_iter().all(|(flow, path)| eight_flows().get(&flow) == Some(&path)));
    assert!(collector.flows().all(|flow| flow.row.flow_latency.is_none()));
    assert!(batch.rollups().is_empty() && batch.events().all(|(event, _)| event.value == Some(3)));
}

//! Replicas: packets with C of INT 0.5 and 1.0, which a node copied to next hops that their flow does not take.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use testkit::reports::{Bench, Node, Sent, config, detection, flow, node};
use wire::int;

/// A packet of flow 1 by way of `middle`, with a slow queue there.
fn sent(middle: u32, int_flags: int::Flags) -> Sent {
    let between = Node {
        latency: Some(50_000),
        queue: Some((3, 700)),
        ..node(middle)
    };
    Sent {
        hops: vec![node(1), between, node(3)],
        int_flags,
        ..Sent::default()
    }
}

#[test]
fn a_replica_has_values_of_nodes_and_leaves_its_flow_alone() {
    let mut bench = Bench::new(collector::Config {
        detection: detection([0; 6], &[("slow", "flow_latency > 60us")]),
        ..config()
    });
    bench.send(&sent(2, int::Flags::default()));
    bench.collected();
    let before = bench.collector.flow(&flow(1, false)).unwrap().row;
    let replica = Sent {
        hops: vec![node(1), node(4), node(5), node(3)],
        ..sent(4, int::Flags::DISCARD)
    };
    for _ in 0..3 {
        bench.send(&sent(4, int::Flags::DISCARD));
        bench.send(&replica);
    }
    let events = bench.collected();
    assert!(events.lines().all(|line| !line.contains("flow")), "{events}");
    assert!(
        events.contains("new queue_occupancy node=4 if=2 queue=3 700"),
        "{events}"
    );
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!(view.row, before);
    assert!(view.path().eq([1, 2, 3]));
    let stats = bench.collector.stats();
    assert_eq!((stats.flow_reports, stats.node_reports, stats.reports), (1, 6, 7));
    assert!(stats.decode_balance().is_balanced());
}

#[test]
fn a_replica_alone_makes_no_flow() {
    let mut bench = Bench::new(config());
    bench.send(&sent(4, int::Flags::DISCARD));
    assert_eq!(bench.collector.flows().count(), 0);
    bench.send(&sent(2, int::Flags::default()));
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert!(view.path().eq([1, 2, 3]));
}

/// D of INT 2.x marks clones and probes of the source, which may be the only packets with INT.
#[test]
fn a_clone_of_the_source_gives_its_flow_the_path() {
    let mut bench = Bench::new(config());
    bench.deliver(&Sent::v20(&[sent(2, int::Flags::DISCARD)]));
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert!(view.path().eq([1, 2, 3]));
}

//! Events about E and M, the bits of a packet in which a node could not add its data.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::event::Basis;
use testkit::reports::{Bench, Node, SECOND, Sent, config, flow, node};

#[test]
fn e_and_m_are_reported_when_they_begin() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    bench.collected();
    let marked = |flags| Sent {
        int_flags: flags,
        ..Sent::default()
    };
    let (e, m) = (wire::int::Flags::HOPS_EXCEEDED, wire::int::Flags::MTU_EXCEEDED);
    for flags in [e, e, wire::int::Flags(e.0 | m.0), m, wire::int::Flags(0), m] {
        bench.send(&marked(flags));
    }
    assert_eq!(
        bench.collected(),
        "hop_limit flow_path flow=1 3\nmtu flow_path flow=1 3\n"
    );
}

#[test]
fn e_and_m_that_come_and_go_are_reported_again_after_a_minute_without_them() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    bench.collected();
    let marked = Sent {
        int_flags: wire::int::Flags(wire::int::Flags::HOPS_EXCEEDED.0 | wire::int::Flags::MTU_EXCEEDED.0),
        ..Sent::default()
    };
    let unmarked = Sent::default();
    let mut begun = Vec::new();
    // The bench starts 20 s into a minute. Every other report has them for more than a minute, then one per minute, then none
    // for two minutes.
    for second in 0..=400 {
        let has_them = second < 87 && second % 2 == 1 || [150, 215, 400].contains(&second);
        bench.send(if has_them { &marked } else { &unmarked });
        let lines = bench.collected();
        if !lines.is_empty() {
            begun.push((second, lines));
        }
        bench.pass(SECOND);
    }
    let both = "hop_limit flow_path flow=1 3\nmtu flow_path flow=1 3\n".to_owned();
    assert_eq!(begun, [(1, both.clone()), (400, both)]);
}

/// A packet with E lacks records, so that the sum of those it has is no latency of its whole way.
#[test]
fn a_packet_that_lacks_records_has_no_latency() {
    let mut bench = Bench::new(config());
    let short = Sent {
        hops: vec![node(1), node(2)],
        int_flags: wire::int::Flags::HOPS_EXCEEDED,
        ..Sent::default()
    };
    bench.send(&short);
    bench.send(&short);
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!((view.row.flow_latency, view.incomplete), (None, true));
    bench.send(&Sent::default());
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    assert_eq!((view.row.flow_latency, view.incomplete), (Some(3000), false));
}

/// The latency of an earlier report is neither shown nor repeated each minute when later ones have none.
#[test]
fn a_latency_ends_with_the_reports_that_measure_it() {
    let unknown = |id| Node {
        latency: None,
        ..node(id)
    };
    let other_path = vec![node(1), unknown(4), node(3)];
    let same_path = vec![node(1), unknown(2), node(3)];
    let short = vec![node(1), node(2), node(3)];
    let signalled = wire::int::Flags::HOPS_EXCEEDED;
    for (hops, int_flags) in [
        (other_path, wire::int::Flags::default()),
        (same_path, wire::int::Flags::default()),
        (short, signalled),
    ] {
        let mut bench = Bench::new(config());
        bench.send(&Sent::default());
        let later = Sent {
            hops: hops.clone(),
            int_flags,
            ..Sent::default()
        };
        bench.send(&later);
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        assert_eq!(
            (view.row.flow_latency, view.row.basis),
            (None, Basis::Measured),
            "{later:?}"
        );
        let latencies: Vec<_> = view.hops().map(|hop| hop.hop_latency).collect();
        let expected: Vec<_> = hops.iter().map(|hop| hop.latency.map(u64::from)).collect();
        assert_eq!(latencies, expected);
        bench.collected();
        for _ in 0..150 {
            bench.send(&later);
            bench.pass(SECOND);
        }
        assert!(!bench.collected().contains("latest flow_latency"), "{later:?}");
        bench.send(&Sent::default());
        let view = bench.collector.flow(&flow(1, false)).unwrap();
        assert_eq!(
            (view.row.flow_latency, view.row.basis),
            (Some(3000), Basis::HopSum)
        );
    }
}

//! A sink's filter does not allocate per packet. A counting allocator checks this, in one test on one thread.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use std::sync::Arc;

use dataplane::fabric::{FlowSpec, Frames, Wire};
use dataplane::filter::{Filter, Units};
use dataplane::report::Outbox;
use dataplane::switch::{self, Visit};
use dataplane::{Config, Fabric, FabricSink, Filters, Pattern, Switch, Topology, Watch};
use detect::detector::Change;
use detect::{Algorithm, Detector, Match, Metric, Program, RuleSet};

/// Packets as they reach the last switch of a row.
#[derive(Default)]
struct Packets(Vec<Vec<u8>>);

impl FabricSink for Packets {
    fn frame(&mut self, _: u64, node: u32, _: u16, frame: &[u8]) {
        if node == 103 {
            self.0.push(frame.to_vec());
        }
    }
}

/// The sink's measurement of packet `at`, which arrives at `ts`.
fn visit(ts: u64, at: u64) -> Visit {
    Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: ts,
        egress_ts: ts + 500 + at % 7,
        queue_occupancy: (at % 13) as u32 * 10,
        mtu: 1500,
        to_edge: true,
        ..Visit::default()
    }
}

#[test]
fn a_filter_allocates_nothing() {
    let config = Config {
        watchlist: Watch::default().into(),
        frames: Frames::Sent,
        ..Config::default()
    };
    let wire = Wire {
        rate: 1_000_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let end = config.start + 50_000_000;
    let mut fabric = Fabric::new(Topology::line(4, wire).unwrap(), config, 3).unwrap();
    for port in 0..20 {
        let pattern = Pattern::poisson(1000);
        fabric
            .add_flow(&FlowSpec {
                pattern,
                ..FlowSpec::new(10_001, 10_002, 5000 + port, 9)
            })
            .unwrap();
    }
    let mut packets = Packets::default();
    fabric.run_until(end, &mut packets);
    let rules = RuleSet::compile(&[(
        "r".into(),
        "change(max(queue_occupancy)) > 5 and average(flow_latency) > 1us for 2".into(),
    )]);
    let algorithms = [
        Algorithm::PerHop,
        Algorithm::PerHopOfFlow,
        Algorithm::PerFlow,
        Algorithm::MovingAverage { alpha: 64 },
        Algorithm::Change(Change {
            latency_bits: 4,
            queue_bits: 4,
            keep_alive: 1000,
        }),
        Algorithm::Rule(Arc::new(Program::new(&rules.unwrap()).unwrap())),
    ];
    for algorithm in algorithms {
        let detector = Detector {
            algorithm: algorithm.clone(),
            metric: Metric::QueueOccupancy,
            threshold: 100,
        };
        let filter = Filter {
            flows: Match::default(),
            detector,
        };
        let mut sink = Switch::new(104, switch::Config::default(), Watch::default().into()).unwrap();
        sink.set_filters(Filters::new(vec![filter], 16, Units::default()).unwrap());
        let mut outbox = Outbox::default();
        let mut frame = Vec::with_capacity(2048);
        let mut round = |sink: &mut Switch, offset: u64| {
            for (at, packet) in packets.0.iter().enumerate() {
                frame.clear();
                frame.extend_from_slice(packet);
                outbox.clear();
                let at = at as u64;
                let visit = visit(offset + at * 1000, at);
                sink.forward(&mut frame, &visit, &mut outbox);
            }
        };
        round(&mut sink, 1 << 32);
        let before = allocations();
        round(&mut sink, 1 << 33);
        assert_eq!(allocations() - before, 0, "{algorithm:?}");
        let stats = sink.stats();
        assert_eq!(
            stats.reported + stats.filtered,
            2 * packets.0.len() as u64,
            "{algorithm:?}"
        );
        assert!(packets.0.len() > 500 && stats.reported > 0, "{algorithm:?}");
    }
}

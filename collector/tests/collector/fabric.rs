//! Postcards of a simulated fabric: the collector's paths must be those of the ground truth.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use collector::config::PostcardConfig;
use collector::{Clocks, Collector, Config, Datagram, Event, Kind, Output, Profile};
use dataplane::fabric::{Channel, FlowSpec, Wire};
use dataplane::watchlist::Mode;
use dataplane::{Action, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch};
use detect::{Match, Metric};

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;

type Paths = BTreeMap<String, Vec<Vec<u32>>>;

#[derive(Default)]
struct Reported {
    paths: Paths,
    latencies: BTreeMap<String, Vec<u64>>,
}

impl Output for Reported {
    fn event(&mut self, event: &Event, path: &[u32]) {
        let Some(flow) = event.flow.map(|flow| flow.to_string()) else {
            return;
        };
        match (event.kind, event.metric) {
            (Kind::New | Kind::PathChange, Some(Metric::FlowPath)) => {
                self.paths.entry(flow).or_default().push(path.to_vec());
            }
            (Kind::New | Kind::Change, Some(Metric::FlowLatency)) => {
                self.latencies.entry(flow).or_default().extend(event.value);
            }
            _ => {}
        }
    }
}

struct TruthChecker {
    collector: Collector,
    reported: Reported,
    /// Paths and latencies of the arrived packets, in order; equal consecutive paths once.
    paths: Paths,
    latencies: BTreeMap<String, Vec<u64>>,
    packets: u64,
    measured: bool,
}

impl TruthChecker {
    fn new(mode: Mode) -> Self {
        let measured = mode == Mode::Postcard;
        let clocks = if measured {
            Clocks::Synchronised
        } else {
            Clocks::Free
        };
        let default_profile = Profile {
            clocks,
            ..Profile::default()
        };
        let postcards = PostcardConfig {
            timeout: 20 * MS,
            proximity: 100_000,
            ..PostcardConfig::default()
        };
        let config = Config {
            default_profile,
            postcards,
            ..Config::default()
        };
        Self {
            collector: Collector::new(config),
            reported: Reported::default(),
            paths: Paths::new(),
            latencies: BTreeMap::new(),
            packets: 0,
            measured,
        }
    }
}

impl FabricSink for TruthChecker {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let source = match from.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let datagram = Datagram {
            payload,
            source,
            src_port: from.port,
            listener: 0,
            received: t,
        };
        self.collector.handle(&[datagram], &mut self.reported);
        self.collector.tick(t, &mut self.reported);
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let GroundTruth::Delivered(trace) = truth else {
            return;
        };
        let key = trace.flow.to_string();
        self.packets += 1;
        let paths = self.paths.entry(key.clone()).or_default();
        if paths.last() != Some(&trace.path()) {
            paths.push(trace.path());
        }
        let (first, last) = (trace.hops[0], trace.hops[trace.hops.len() - 1]);
        let latency = match self.measured {
            true => last.egress - first.ingress,
            false => trace.hops.iter().map(|hop| hop.hop_latency()).sum(),
        };
        self.latencies.entry(key).or_default().push(latency);
    }
}

/// Four leaves, two spines, 24 flows, a link that fails and is restored.
fn run(mode: Mode, channel: Channel) -> TruthChecker {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let mut topology = Topology::leaf_spine(4, 2, 2, wire).unwrap();
    if mode != Mode::Postcard {
        assert!(topology.set_clock_offset(101, 1_500_000) && topology.set_clock_offset(201, -77_000));
    }
    let config = dataplane::Config {
        start: START,
        convergence: 20 * MS,
        watchlist: Watch {
            mode,
            ..Watch::new(Match::default())
        }
        .into(),
        channel,
        routed: true,
        ..dataplane::Config::default()
    };
    let mut fabric = Fabric::new(topology, config, 5).unwrap();
    for at in 0..24_u16 {
        let (from, to) = (
            10_001 + u32::from(at % 8),
            10_001 + u32::from((at % 8 + 1 + at % 7) % 8),
        );
        let pattern = if at % 2 == 0 {
            Pattern::poisson(400)
        } else {
            Pattern::constant(300)
        };
        let spec = FlowSpec {
            payload: 100 + at * 20,
            pattern,
            start: START,
            stop: START + 400 * MS,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    fabric
        .schedule(START + 100 * MS, Action::CutLink { a: 102, b: 202 })
        .unwrap();
    fabric
        .schedule(START + 250 * MS, Action::MendLink { a: 102, b: 202 })
        .unwrap();
    let mut checker = TruthChecker::new(mode);
    fabric.run_until(START + 450 * MS, &mut checker);
    checker.collector.finish(START + 450 * MS, &mut checker.reported);
    let stats = checker.collector.stats();
    assert!(
        stats.decode_balance().is_balanced()
            && stats.state_balance().is_balanced()
            && stats.postcards.balance().is_balanced()
    );
    assert_eq!(stats.postcards.accepted, stats.postcards.released);
    for (flow, reported) in &checker.reported.latencies {
        let truth = &checker.latencies[flow];
        assert!(
            reported.iter().all(|latency| truth.contains(latency)),
            "{flow}: {reported:?} of {truth:?}"
        );
    }
    checker
}

#[test]
fn paths_of_postcards_are_those_that_packets_took() {
    for mode in [Mode::Mx21, Mode::Postcard] {
        let checker = run(mode, Channel::default());
        assert_eq!(checker.reported.paths, checker.paths, "{mode:?}");
        assert!(
            checker.paths.values().any(|paths| paths.len() > 1),
            "a route changed"
        );
        let counts = checker.collector.stats().postcards;
        assert!(
            counts.sets * 10 > checker.packets * 9,
            "{mode:?}: {counts:?} of {}",
            checker.packets
        );
    }
}

/// Some flows stay within one leaf, which is then source and sink: their path is that node.
#[test]
fn paths_of_int_are_those_that_packets_took() {
    let checker = run(Mode::Md21, Channel::default());
    assert_eq!(checker.reported.paths, checker.paths);
    assert!(
        checker
            .paths
            .values()
            .any(|paths| paths.iter().any(|path| path.len() == 1))
    );
    assert_eq!(checker.collector.stats().postcards.received, 0);
}

#[test]
fn lost_late_and_repeated_postcards_make_no_path_that_no_packet_took() {
    let channel = Channel {
        loss: 20_000,
        duplication: 10_000,
        reordering: 20_000,
        ..Channel::default()
    };
    for mode in [Mode::Mx21, Mode::Postcard] {
        let checker = run(mode, channel);
        let mut reported = 0;
        for (flow, paths) in &checker.reported.paths {
            let truth = &checker.paths[flow];
            assert!(
                paths.iter().all(|path| truth.contains(path)),
                "{mode:?} {flow}: {paths:?} of {truth:?}"
            );
            reported += paths.len();
        }
        assert!(reported >= 24, "{mode:?}: {reported}");
        let counts = checker.collector.stats().postcards;
        assert!(
            counts.sets * 10 > checker.packets * 6,
            "{mode:?}: {counts:?} of {}",
            checker.packets
        );
    }
}

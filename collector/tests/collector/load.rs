//! Postcards under load: full queues, links that fail, and a channel that delays, reorders, duplicates and loses postcards. Every
//! path that the collector reports must be one that a packet of the flow took.
//!
//! `POSTCARD_PACKETS=1000000 cargo test --release -p hopwise-collector --test collector load -- --nocapture` runs each case
//! for a million packets and prints its yield: docs/design/postcards.md has the figures.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use aggregator::{Aggregator, Output as AggregateOutput};
use collector::config::{Link, PostcardConfig};
use collector::stats::Partial;
use collector::{Clocks, Collector, Config, Datagram, Event, Kind, Output, Profile};
use dataplane::fabric::{Channel, FlowSpec, Wire};
use dataplane::watchlist::Mode;
use dataplane::{Action, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch};
use detect::{Match, Metric};
use wire::FlowKey;

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;
const FLOWS: u16 = 64;
/// Approximate number of packets of all flows per second.
const RATE: u64 = 100_000;

/// How postcards reach the collector, and its configuration.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    mode: Mode,
    /// Switches route, and packets differ; otherwise they bridge, and all packets of a flow are identical.
    routed: bool,
    clocks: Clocks,
    linked: bool,
    route: Route,
    /// Minimum share of arrived packets whose postcards were joined, per cent.
    least: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Route {
    Direct,
    /// Through Agg(R), with or without the packets' fields.
    Aggregator {
        packet_fields: bool,
    },
}

const CASES: [Case; 7] = {
    let aggregator = Route::Aggregator { packet_fields: true };
    let case = Case {
        name: "postcards, hop limits",
        mode: Mode::Postcard,
        routed: true,
        clocks: Clocks::Free,
        linked: false,
        route: Route::Direct,
        least: 70,
    };
    [
        case,
        Case {
            name: "postcards, hop limits and links",
            linked: true,
            clocks: Clocks::Synchronised,
            ..case
        },
        Case {
            name: "INT-MX, hop limits",
            mode: Mode::Mx21,
            ..case
        },
        Case {
            name: "alike packets, links",
            routed: false,
            linked: true,
            clocks: Clocks::Synchronised,
            least: 1,
            ..case
        },
        Case {
            name: "Agg(25), hop limits",
            route: aggregator,
            ..case
        },
        Case {
            name: "Agg(25), alike packets, links",
            routed: false,
            linked: true,
            clocks: Clocks::Synchronised,
            route: aggregator,
            least: 1,
            ..case
        },
        Case {
            name: "Agg(25) without packet fields",
            linked: true,
            clocks: Clocks::Synchronised,
            route: Route::Aggregator { packet_fields: false },
            least: 0,
            ..case
        },
    ]
};

#[derive(Default)]
struct Reported {
    paths: Vec<(u64, FlowKey, Vec<u32>)>,
}

impl Output for Reported {
    fn event(&mut self, event: &Event, path: &[u32]) {
        if let (Kind::New | Kind::PathChange | Kind::PathLoop, Some(Metric::FlowPath), Some(flow)) =
            (event.kind, event.metric, event.flow)
        {
            self.paths.push((event.ts, flow, path.to_vec()));
        }
    }
}

/// Datagrams that left an aggregator.
#[derive(Default)]
struct Aggregates(Vec<Vec<u8>>);

impl AggregateOutput for Aggregates {
    fn send(&mut self, _destination: usize, payload: &[u8]) {
        self.0.push(payload.to_vec());
    }
}

/// A datagram in flight: when it arrives, its order, node and payload.
type InFlight = (u64, u64, u32, Vec<u8>);

/// The channel's jitter, the aggregator, the collector, and the ground truth.
struct TruthChecker {
    collector: Collector,
    aggregator: Option<Aggregator>,
    reported: Reported,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    random: u64,
    ticked: u64,
    by_id: bool,
    /// When packets of each flow arrived by each path.
    real: BTreeMap<(FlowKey, Vec<u32>), Vec<u64>>,
    packets: u64,
}

impl TruthChecker {
    fn new(case: &Case, topology: &Topology) -> Self {
        let links = if case.linked { links(topology) } else { Vec::new() };
        let default_profile = Profile {
            clocks: case.clocks,
            ..Profile::default()
        };
        let postcards = PostcardConfig {
            links,
            ..PostcardConfig::default()
        };
        let aggregator = match case.route {
            Route::Direct => None,
            Route::Aggregator { packet_fields } => {
                let config = aggregator::Config {
                    packet_fields,
                    timer: 10 * MS,
                    ..aggregator::Config::default()
                };
                Some(Aggregator::new(config).unwrap())
            }
        };
        Self {
            collector: Collector::new(Config {
                default_profile,
                postcards,
                ..Config::default()
            }),
            by_id: aggregator.is_some(),
            aggregator,
            reported: Reported::default(),
            in_flight: BinaryHeap::new(),
            random: 88_172_645_463_325_252,
            ticked: 0,
            real: BTreeMap::new(),
            packets: 0,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Delivers the datagrams that have arrived by `now`.
    fn advance(&mut self, now: u64) {
        while self.in_flight.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((at, _, node, payload))) = self.in_flight.pop() else {
                break;
            };
            let mut aggregates = Aggregates::default();
            match &mut self.aggregator {
                Some(aggregator) => aggregator.ingest(at, [payload.as_slice()], &mut aggregates),
                None => self.deliver(at, node, &payload, false),
            }
            self.forward(at, &aggregates);
        }
        if now - self.ticked >= 10 * MS {
            self.ticked = now;
            let mut aggregates = Aggregates::default();
            if let Some(aggregator) = &mut self.aggregator {
                aggregator.tick(now, &mut aggregates);
            }
            self.forward(now, &aggregates);
            self.collector.tick(now, &mut self.reported);
        }
    }

    /// One aggregate in a hundred is lost.
    fn forward(&mut self, now: u64, aggregates: &Aggregates) {
        for payload in &aggregates.0 {
            if self.below(100) > 0 {
                self.deliver(now, 99, payload, true);
            }
        }
    }

    fn deliver(&mut self, received: u64, node: u32, payload: &[u8], is_aggregate: bool) {
        let mut source = [0; 16];
        source[12..].copy_from_slice(&node.to_be_bytes());
        let datagram = Datagram {
            payload,
            source,
            src_port: 1,
            listener: 0,
            received,
        };
        if is_aggregate {
            self.collector.handle_aggregates(&[datagram], &mut self.reported);
        } else {
            self.collector.handle(&[datagram], &mut self.reported);
        }
    }

    fn finish(&mut self, now: u64) {
        self.advance(now);
        let mut aggregates = Aggregates::default();
        if let Some(aggregator) = &mut self.aggregator {
            aggregator.finish(&mut aggregates);
        }
        self.forward(now, &aggregates);
        self.collector.finish(now, &mut self.reported);
    }

    /// Whether the flow had this path at `at`, or shortly before.
    fn was_real(&self, at: u64, flow: FlowKey, path: &[u32]) -> bool {
        self.real.get(&(flow, path.to_vec())).is_some_and(|times| {
            let first = times.partition_point(|time| *time < at - 500 * MS);
            times.get(first).is_some_and(|time| *time <= at + 50 * MS)
        })
    }
}

impl FabricSink for TruthChecker {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let (at, order) = (t + self.below(3 * MS), self.below(u64::MAX));
        self.in_flight
            .push(Reverse((at, order, from.node, payload.to_vec())));
        self.advance(t);
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let GroundTruth::Delivered(trace) = truth else {
            return;
        };
        let flow = if self.by_id {
            FlowKey::of_id(trace.flow.flow_id())
        } else {
            trace.flow
        };
        self.packets += 1;
        self.real
            .entry((flow, trace.path()))
            .or_default()
            .push(trace.ended);
    }
}

/// The links between switches, in both directions. Ports of a node are numbered in the order of the links.
fn links(topology: &Topology) -> Vec<Link> {
    let switches: Vec<u32> = topology.switches().collect();
    let mut ports: BTreeMap<u32, u32> = BTreeMap::new();
    let mut links = Vec::new();
    for (a, b) in topology.links() {
        let [a, b] = [a, b].map(|node| {
            let port = ports.entry(node).or_default();
            *port += 1;
            (node, *port)
        });
        if switches.contains(&a.0) && switches.contains(&b.0) {
            links.extend([Link { from: a, to: b }, Link { from: b, to: a }]);
        }
    }
    links
}

/// A fat tree of 20 switches at its limits, in which links fail and are restored.
fn run(case: &Case, packets: u64) -> TruthChecker {
    let wire = Wire {
        rate: 100_000_000,
        delay: 50_000,
        depth: 60_000,
    };
    let topology = Topology::fat_tree(4, wire).unwrap();
    let between: Vec<_> = topology
        .links()
        .filter(|(a, b)| *a < 10_000 && *b < 10_000)
        .collect();
    let hosts: Vec<u32> = topology.hosts().collect();
    let mut checker = TruthChecker::new(case, &topology);
    let channel = Channel {
        loss: 20_000,
        duplication: 10_000,
        reordering: 50_000,
        extra: 40 * MS,
        ..Channel::default()
    };
    let config = dataplane::Config {
        start: START,
        convergence: 5 * MS,
        watchlist: Watch {
            mode: case.mode,
            ..Watch::new(Match::default())
        }
        .into(),
        channel,
        routed: case.routed,
        ..dataplane::Config::default()
    };
    let mut fabric = Fabric::new(topology, config, 5).unwrap();
    let span = packets * 1_000_000_000 / RATE;
    for at in 0..FLOWS {
        let [from, to] =
            [usize::from(at), usize::from(at * 7 + at / 16 + 5)].map(|host| hosts[host % hosts.len()]);
        let to = if from == to {
            hosts[usize::from(at + 1) % hosts.len()]
        } else {
            to
        };
        let pattern = match at % 3 {
            0 => Pattern::poisson(RATE / u64::from(FLOWS)),
            1 => Pattern::constant(RATE / u64::from(FLOWS)),
            _ => Pattern::OnOff {
                gap: 100_000,
                on: 5 * MS,
                off: 27 * MS,
                random: true,
            },
        };
        let spec = FlowSpec {
            payload: 60 + at * 9,
            pattern,
            start: START,
            stop: START + span,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    for (at, round) in (START + 20 * MS..START + span).step_by(40 * MS as usize).zip(0..) {
        let (a, b) = between[round * 5 % between.len()];
        fabric.schedule(at, Action::CutLink { a, b }).unwrap();
        fabric.schedule(at + 60 * MS, Action::MendLink { a, b }).unwrap();
    }
    fabric.run_until(START + span + 100 * MS, &mut checker);
    checker.finish(START + span + 150 * MS);
    checker
}

#[test]
fn no_path_is_reported_that_no_packet_took() {
    let packets = std::env::var("POSTCARD_PACKETS").map_or(7_000, |count| count.parse().unwrap());
    for case in &CASES {
        let checker = run(case, packets);
        let stats = checker.collector.stats();
        assert!(
            stats.decode_balance().is_balanced()
                && stats.state_balance().is_balanced()
                && stats.postcards.balance().is_balanced()
        );
        let counts = &stats.postcards;
        let wrong: Vec<_> = (checker.reported.paths.iter())
            .filter(|(at, flow, path)| !checker.was_real(*at, *flow, path))
            .collect();
        let real: u64 = checker.real.values().map(|times| times.len() as u64).sum();
        assert_eq!(real, checker.packets);
        let known = checker
            .reported
            .paths
            .iter()
            .map(|(_, flow, path)| (*flow, path.clone()));
        let known = known.collect::<std::collections::BTreeSet<_>>().len();
        println!(
            "{}: {} packets arrived, {} sets joined ({:.1} %), {} path events, {known} of {} paths, {} wrong; partial: {:?}",
            case.name,
            checker.packets,
            counts.sets,
            counts.sets as f64 * 100.0 / checker.packets as f64,
            checker.reported.paths.len(),
            checker.real.len(),
            wrong.len(),
            Partial::ALL.map(|why| (why.name(), counts.partial[why as usize])),
        );
        assert!(
            wrong.is_empty(),
            "{}: {:?}",
            case.name,
            &wrong[..wrong.len().min(9)]
        );
        assert!(checker.packets > packets / 2, "{}", checker.packets);
        assert!(
            counts.sets * 100 >= checker.packets * case.least,
            "{}: {counts:?}",
            case.name
        );
        assert_eq!(counts.accepted, counts.released);
    }
}

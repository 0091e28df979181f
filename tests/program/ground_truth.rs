//! A simulated fabric records the ground truth; a collector receives its reports. The collector's results must match the truth exactly:
//! paths, latencies per hop, drops, path changes, lost reports.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use collector::{Collector, Datagram, Drop, Event, Kind, Output};
use dataplane::fabric::{Arrival, Channel, DatagramTruth, FlowSpec, ReportKind, ReportTruth, Wire};
use dataplane::report::Format;
use dataplane::watchlist::Mode;
use dataplane::{
    Action, Config, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch, switch,
};
use detect::{Detection, Match, RuleSet, Thresholds};
use wire::FlowKey;

/// Drops by node, reason and flow.
type Drops = BTreeMap<(Option<u32>, Option<u8>, Option<String>), u64>;

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;

/// The events of the collector.
#[derive(Default)]
struct Events {
    path_changes: BTreeMap<String, Vec<Vec<u32>>>,
    drops: Drops,
    loss_events: u64,
}

impl Output for Events {
    fn event(&mut self, event: &Event, path: &[u32]) {
        match (event.kind, event.flow) {
            (Kind::PathChange, Some(flow)) => {
                self.path_changes
                    .entry(flow.to_string())
                    .or_default()
                    .push(path.to_vec());
            }
            (Kind::Loss, _) => self.loss_events += 1,
            _ => {}
        }
    }

    fn drop_report(&mut self, drop: &Drop) {
        *self
            .drops
            .entry((drop.node, drop.reason, drop.flow.map(|flow| flow.to_string())))
            .or_default() += 1;
    }
}

/// Passes the reports to a collector, and compares its results with the ground truth after each.
struct TruthChecker {
    collector: Collector,
    events: Events,
    underway: HashMap<(u32, u8, u32), VecDeque<DatagramTruth>>,
    arrivals: BTreeMap<(u32, u8), Vec<Arrival>>,
    true_changes: BTreeMap<String, Vec<Vec<u32>>>,
    true_drops: Drops,
    compared: u64,
}

impl TruthChecker {
    fn new() -> Self {
        let detection = Detection {
            thresholds: Thresholds::new([0; detect::Metric::COUNT], Vec::new()).unwrap(),
            rules: RuleSet::default(),
            generation: 1,
        };
        let config = collector::Config {
            detection: detection.into(),
            ..collector::Config::default()
        };
        Self {
            collector: Collector::new(config),
            events: Events::default(),
            underway: HashMap::new(),
            arrivals: BTreeMap::new(),
            true_changes: BTreeMap::new(),
            true_drops: BTreeMap::new(),
            compared: 0,
        }
    }

    /// The collector's current state of a flow: its path, and each hop's latency.
    fn concluded(&self, flow: &FlowKey) -> (Vec<u32>, Vec<Option<u64>>, Option<u64>) {
        let view = self.collector.flow(flow).expect("a flow that was reported");
        let latencies = view.hops().map(|hop| hop.hop_latency).collect();
        (view.path().collect(), latencies, view.row.flow_latency)
    }

    fn compare(&mut self, truth: &ReportTruth) {
        // A path of one node is reported by that node alone; it is joined and confirmed like postcards: see collector/tests.
        if truth.kind != ReportKind::Flow || truth.hops.len() == 1 {
            return;
        }
        let latencies: Vec<_> = truth.hops.iter().map(|hop| Some(hop.hop_latency())).collect();
        let sum = latencies.iter().copied().sum::<Option<u64>>();
        assert_eq!(
            self.concluded(&truth.flow),
            (truth.path(), latencies, sum),
            "{}",
            truth.flow
        );
        self.compared += 1;
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl FabricSink for TruthChecker {
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let source = octets(from.address);
        let datagram = Datagram {
            payload,
            source,
            src_port: from.port,
            listener: 0,
            received: t,
        };
        self.collector.handle(&[datagram], &mut self.events);
        self.collector.tick(t, &mut self.events);
        let peek = wire::report::peek(payload, &wire::Profile::default()).unwrap();
        let sent = self
            .underway
            .get_mut(&(from.node, peek.hw_id, peek.seq))
            .and_then(VecDeque::pop_front);
        // Of several reports in a datagram, the collector's state is that of the last one of each flow.
        let mut later = BTreeSet::new();
        for truth in sent.expect("a datagram that was sent").reports.iter().rev() {
            if truth.kind == ReportKind::Flow && later.insert(truth.flow) {
                self.compare(truth);
            }
        }
    }

    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        match truth {
            GroundTruth::Datagram(datagram) => {
                let key = (datagram.node, datagram.hw_id, datagram.seq);
                // One copy for a possible duplicate; a lost one is never requested.
                self.underway
                    .entry(key)
                    .or_default()
                    .extend([(*datagram).clone(), (*datagram).clone()]);
            }
            GroundTruth::Arrival(arrival) => {
                self.arrivals
                    .entry((arrival.node, arrival.hw_id))
                    .or_default()
                    .push(*arrival);
            }
            GroundTruth::PathChange { flow, new, .. } => {
                self.true_changes
                    .entry(flow.to_string())
                    .or_default()
                    .push(new.to_vec());
            }
            GroundTruth::Dropped {
                trace,
                node,
                reason,
                reported: true,
            } => {
                let key = (Some(*node), Some(reason.code()), Some(trace.flow.to_string()));
                *self.true_drops.entry(key).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// Four leaves, two spines, clocks that disagree, 24 flows, a burst that overflows a queue, a link that fails and is restored.
fn busy(channel: Channel, format: Format, mode: Mode, seed: u64) -> Fabric {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let mut topology = Topology::leaf_spine(4, 2, 2, wire).unwrap();
    assert!(topology.set_clock_offset(101, 1_500_000) && topology.set_clock_offset(201, -77_000));
    let watch = Watch {
        mode,
        ..Watch::new(Match::default())
    };
    let config = Config {
        start: START,
        convergence: 20 * MS,
        switch: switch::Config {
            format,
            ..switch::Config::default()
        },
        watchlist: watch.into(),
        channel,
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, seed).unwrap();
    for at in 0..24u16 {
        let (from, to) = (
            10_001 + u32::from(at % 8),
            10_001 + u32::from((at % 8 + 1 + at % 7) % 8),
        );
        let family = if at % 5 == 2 {
            dataplane::fabric::Family::V6
        } else {
            dataplane::fabric::Family::V4
        };
        let pattern = if at % 2 == 0 {
            Pattern::poisson(400)
        } else {
            Pattern::constant(300)
        };
        let spec = FlowSpec {
            family,
            payload: 100 + at * 20,
            pattern,
            start: START,
            stop: START + 400 * MS,
            ..FlowSpec::new(from, to, 30_000 + at, 443)
        };
        fabric.add_flow(&spec).unwrap();
    }
    for (at, from) in [10_001, 10_003].into_iter().enumerate() {
        let spec = FlowSpec {
            payload: 500,
            pattern: Pattern::Idle,
            ..FlowSpec::new(from, 10_008, 7_000 + at as u16, 9)
        };
        let flow = fabric.add_flow(&spec).unwrap();
        fabric
            .schedule(
                START + 40 * MS,
                Action::Burst {
                    flow,
                    packets: 150,
                    gap: 0,
                },
            )
            .unwrap();
    }
    fabric
        .schedule(START + 100 * MS, Action::CutLink { a: 102, b: 202 })
        .unwrap();
    fabric
        .schedule(START + 250 * MS, Action::MendLink { a: 102, b: 202 })
        .unwrap();
    fabric
}

fn checker(channel: Channel, format: Format, mode: Mode) -> TruthChecker {
    let mut checker = TruthChecker::new();
    busy(channel, format, mode, 5).run_until(START + 450 * MS, &mut checker);
    checker.collector.finish(START + 450 * MS, &mut checker.events);
    let stats = checker.collector.stats();
    assert!(
        stats.decode_balance().is_balanced() && stats.state_balance().is_balanced(),
        "what went in came out or was counted"
    );
    checker
}

#[test]
fn paths_latencies_drops_and_path_changes_are_what_really_happened() {
    let single = Format::default();
    let grouped = Format {
        group: 8,
        subsystems: 3,
        ..single
    };
    let v10 = Format {
        version: dataplane::report::Version::V10,
        ..single
    };
    for (format, mode) in [(single, Mode::Md21), (grouped, Mode::Md21), (v10, Mode::Md10)] {
        let checker = checker(Channel::default(), format, mode);
        assert!(checker.compared > 2_000, "{} comparisons", checker.compared);
        assert!(!checker.true_changes.is_empty() && !checker.true_drops.is_empty());
        assert_eq!(checker.events.path_changes, checker.true_changes);
        assert_eq!(checker.events.drops, checker.true_drops);
        assert_eq!(checker.events.loss_events, 0);
    }
}

#[test]
fn lost_repeated_and_late_reports_are_counted_as_they_happened() {
    let channel = Channel {
        loss: 20_000,
        duplication: 10_000,
        reordering: 20_000,
        ..Channel::default()
    };
    let checker = checker(
        channel,
        Format {
            subsystems: 2,
            ..Format::default()
        },
        Mode::Md21,
    );
    let truth: BTreeMap<_, _> = checker
        .arrivals
        .iter()
        .map(|(key, list)| (*key, expected(list)))
        .collect();
    let counted: BTreeMap<_, _> = checker
        .collector
        .streams()
        .map(|stream| {
            let counts = (stream.lost, stream.duplicated, stream.reordered);
            ((stream.id.node.unwrap(), stream.id.hw_id), counts)
        })
        .collect();
    assert!(
        truth.values().map(|(lost, ..)| lost).sum::<u64>() > 20,
        "the channel does lose: {truth:?}"
    );
    assert_eq!(counted, truth);
    assert!(checker.events.loss_events > 0);
}

/// Lost, duplicated, reordered, computed from the arrivals. Losses before the first arrival or after the last cannot be
/// counted from arrivals.
fn expected(arrivals: &[Arrival]) -> (u64, u64, u64) {
    let seen: BTreeSet<u32> = arrivals.iter().map(|arrival| arrival.seq).collect();
    let first = arrivals[0].seq;
    let span = seen
        .range(first..)
        .next_back()
        .map_or(0, |last| u64::from(last - first) + 1);
    let lost = span - seen.range(first..).count() as u64;
    let duplicated = arrivals.iter().filter(|arrival| arrival.duplicate).count() as u64;
    let late = |arrival: &&Arrival| arrival.overtaken && !arrival.duplicate;
    (lost, duplicated, arrivals.iter().filter(late).count() as u64)
}

//! A simulated fabric with SF-INT records what happened to each packet; a collector receives reports of single records. Every path
//! that it reconstructs must be that of one packet, node by node and value by value, even if packets are lost, reordered or
//! duplicated, or registers are cleared.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use collector::stats::Reason;
use collector::{Collector, Datagram, Event, Output};
use dataplane::fabric::{Channel, DatagramTruth, Family, FlowSpec, HopTruth, PacketTrace, Wire};
use dataplane::sf::Form;
use dataplane::watchlist::Mode;
use dataplane::{
    Action, Config, Fabric, FabricSink, GroundTruth, Pattern, Reporter, Topology, Watch, sf, switch,
};
use detect::Match;
use wire::FlowKey;

const MS: u64 = 1_000_000;
const START: u64 = 1_790_000_000_000_000_000;
const STOP: u64 = START + 1_000 * MS;

/// The hops that the collector reports for a packet of a flow: node, egress interface, queue, latency.
type Concluded = Vec<(Option<u32>, Option<u32>, Option<u8>, Option<u64>)>;

#[derive(Default)]
struct Events(BTreeMap<String, Vec<Vec<u32>>>);

impl Output for Events {
    fn event(&mut self, event: &Event, path: &[u32]) {
        if let (
            collector::Kind::New | collector::Kind::PathChange,
            Some(detect::Metric::FlowPath),
            Some(flow),
        ) = (event.kind, event.metric, event.flow)
        {
            self.0.entry(flow.to_string()).or_default().push(path.to_vec());
        }
    }
}

/// Passes the reports to a collector, and records its conclusions and the ground truth.
struct TruthChecker {
    collector: Collector,
    events: Events,
    underway: HashMap<(u32, u8, u32), VecDeque<DatagramTruth>>,
    traces: HashMap<u64, (FlowKey, Vec<HopTruth>)>,
    /// Keyed by the packet's number of the set.
    concluded: Vec<(u64, FlowKey, Concluded, Option<u64>)>,
}

impl TruthChecker {
    fn new(hop_limit: Option<u8>) -> Self {
        let mut config = collector::Config::default();
        config.sf.hop_limit = hop_limit;
        Self {
            collector: Collector::new(config),
            events: Events::default(),
            underway: HashMap::new(),
            traces: HashMap::new(),
            concluded: Vec::new(),
        }
    }

    fn note(&mut self, trace: &PacketTrace<'_>) {
        self.traces
            .insert(trace.packet, (trace.flow, trace.hops.to_vec()));
    }

    /// Compares the reconstructed paths with the ground truth; returns their number by length.
    fn compare(&self) -> BTreeMap<usize, u64> {
        let mut by_length = BTreeMap::new();
        for (packet, flow, concluded, latency) in &self.concluded {
            let (whose, hops) = &self.traces[packet];
            let hop = |hop: &HopTruth| {
                let egress = hop.egress_if;
                (
                    Some(hop.node),
                    Some(u32::from(egress)),
                    Some(egress as u8),
                    Some(hop.hop_latency()),
                )
            };
            let truth: Concluded = hops.iter().map(hop).collect();
            let sum = hops.iter().map(HopTruth::hop_latency).sum::<u64>();
            assert_eq!(
                (flow, concluded, *latency),
                (whose, &truth, Some(sum)),
                "packet {packet}"
            );
            *by_length.entry(hops.len()).or_default() += 1;
        }
        by_length
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
        let whole = |collector: &Collector| collector.stats().sf.complete.sets;
        let before = whole(&self.collector);
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
        let sent = sent.expect("a datagram that was sent");
        if whole(&self.collector) > before {
            let [truth] = &sent.reports[..] else {
                panic!("one report per datagram")
            };
            let sf = truth.sf.unwrap();
            // Records of the same packet as the sink's own, or of an earlier one.
            let packet = if sf.sf.is_of_one_packet() {
                truth.packet
            } else {
                sf.carried.unwrap().0
            };
            if let Some(view) = self.collector.flow(&truth.flow) {
                let hops = view
                    .hops()
                    .map(|hop| (hop.node, hop.egress_if, hop.queue, hop.hop_latency))
                    .collect();
                self.concluded
                    .push((packet, truth.flow, hops, view.row.flow_latency));
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
            GroundTruth::Delivered(trace) | GroundTruth::Dropped { trace, .. } => self.note(trace),
            _ => {}
        }
    }
}

/// A fat tree: paths of one, three and five switches; clocks that disagree; bursts that overflow queues; a link that fails
/// and is restored; registers that are wiped.
fn busy(channel: Channel, form: Form, seed: u64) -> Fabric {
    let wire = Wire {
        rate: 100_000_000,
        delay: 5_000,
        depth: 60_000,
    };
    let mut topology = Topology::fat_tree(4, wire).unwrap();
    let (hosts, switches): (Vec<u32>, Vec<u32>) = (topology.hosts().collect(), topology.switches().collect());
    for (at, node) in switches.iter().enumerate() {
        assert!(topology.set_clock_offset(*node, at as i64 * 77_777 - 500_000));
    }
    let links: Vec<(u32, u32)> = topology.links().collect();
    let between = |pair: &&(u32, u32)| switches.contains(&pair.0) && switches.contains(&pair.1);
    let &(a, b) = links.iter().find(between).unwrap();
    let config = Config {
        start: START,
        convergence: 20 * MS,
        switch: switch::Config {
            sf: sf::Config {
                form,
                ..sf::Config::default()
            },
            ..switch::Config::default()
        },
        watchlist: Watch {
            mode: Mode::Sf,
            ..Watch::new(Match::default())
        }
        .into(),
        channel,
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, seed).unwrap();
    for at in 0..32_usize {
        let (from, to) = (hosts[at % hosts.len()], hosts[(at + 1 + at % 7) % hosts.len()]);
        let spec = FlowSpec {
            family: if at % 3 == 0 { Family::V4 } else { Family::V6 },
            payload: 100 + at as u16 * 20,
            pattern: if at % 2 == 0 {
                Pattern::poisson(400)
            } else {
                Pattern::constant(300)
            },
            start: START,
            stop: STOP - 50 * MS,
            ..FlowSpec::new(from, to, 30_000 + at as u16, 443)
        };
        let flow = fabric.add_flow(&spec).unwrap();
        if at % 8 == 0 {
            let burst = Action::Burst {
                flow,
                packets: 150,
                gap: 0,
            };
            fabric.schedule(START + (40 + at as u64) * MS, burst).unwrap();
        }
    }
    fabric
        .schedule(START + 300 * MS, Action::CutLink { a, b })
        .unwrap();
    fabric
        .schedule(START + 600 * MS, Action::MendLink { a, b })
        .unwrap();
    for (at, node) in switches.iter().enumerate() {
        fabric
            .schedule(START + (100 + 37 * at as u64) * MS, Action::Wipe { node: *node })
            .unwrap();
    }
    fabric
}

fn checker(channel: Channel, form: Form, hop_limit: Option<u8>) -> TruthChecker {
    let mut checker = TruthChecker::new(hop_limit);
    busy(channel, form, 5).run_until(STOP, &mut checker);
    let sf = checker.collector.stats().sf;
    assert!(sf.balance().is_balanced(), "{sf:?}");
    checker.collector.finish(STOP, &mut checker.events);
    let stats = checker.collector.stats();
    assert!(
        stats.decode_balance().is_balanced()
            && stats.state_balance().is_balanced()
            && stats.sf.balance().is_balanced(),
        "{stats:?}"
    );
    assert_eq!(stats.sf.pending, 0);
    checker
}

#[test]
fn every_path_and_value_concluded_from_single_records_is_one_packets() {
    for (form, hop_limit) in [
        (Form::Full, Some(16)),
        (Form::Full, None),
        (Form::Stack, Some(16)),
    ] {
        let checker = checker(Channel::default(), form, hop_limit);
        let by_length = checker.compare();
        eprintln!(
            "{form:?} {hop_limit:?}: {by_length:?} of {} {:?}",
            checker.traces.len(),
            checker.collector.stats().sf
        );
        assert!(
            by_length[&1] > 500 && by_length[&3] > 500 && by_length[&5] > 500,
            "{by_length:?}"
        );
    }
}

#[test]
fn lost_late_and_repeated_reports_make_no_path_that_was_not() {
    let channel = Channel {
        loss: 20_000,
        duplication: 10_000,
        reordering: 50_000,
        ..Channel::default()
    };
    for hop_limit in [Some(16), None] {
        let checker = checker(channel, Form::Full, hop_limit);
        let by_length = checker.compare();
        let sf = checker.collector.stats().sf;
        assert!(
            sf.repeated > 20 && sf.partial[Reason::NextId as usize].sets > 100,
            "{sf:?}"
        );
        assert!(by_length[&3] > 400 && by_length[&5] > 400, "{by_length:?}");
    }
}

#[test]
fn reports_without_a_flow_update_nodes_and_no_path() {
    let checker = checker(Channel::default(), Form::Compact, Some(16));
    assert!(checker.events.0.is_empty() && checker.concluded.is_empty());
    assert_eq!(checker.collector.flows().count(), 0);
    assert!(checker.collector.nodes().count() >= 16);
}

//! A fabric of executable INT switches in simulated time (a discrete-event simulation): hosts send packets, links carry them,
//! queues delay and drop them, switches report them, and the ground truth is recorded.
//!
//! The model, so that results can be checked by hand:
//! - A frame is received when its last bit has arrived (store and forward); that is its ingress time. After a fixed pipeline
//!   delay it is offered to the queue of its egress port, and records the occupancy at that time. The frame being transmitted
//!   is not in the queue.
//! - When the port is free, the first queued frame leaves; that is its egress time. INT is written at that time, so a frame may
//!   be longer on the link than it was in the queue. Hop latency is egress minus ingress.
//! - When a link is cut, frames on it are lost, and queued frames are dropped. So are frames that old routes still send to it,
//!   until all switches use new shortest paths one convergence delay after the change.
//! - A host's NIC has the rate of its link and a deep queue. The depth of a link applies to the queues at its switch ends.
//! - Simultaneous events are executed in the order in which they were scheduled. The same topology, configuration, seed and
//!   calls give the same bytes.
//!
//! ```
//! use dataplane::{Config, Fabric, FabricSink, FlowSpec, Reporter, Topology, Watch, fabric};
//!
//! #[derive(Default)]
//! struct Collector(usize);
//! impl FabricSink for Collector {
//!     fn report(&mut self, _t: u64, _from: &Reporter, _udp_payload: &[u8]) {
//!         self.0 += 1;
//!     }
//! }
//!
//! let topology = Topology::line(3, fabric::Wire::default())?;
//! let config = Config { watchlist: Watch::new(detect::Match::default()).into(), ..Config::default() };
//! let mut fabric = Fabric::new(topology, config, 1)?;
//! fabric.add_flow(&FlowSpec::new(10_001, 10_002, 5_000, 80))?; // ten packets a second
//! let mut collector = Collector::default();
//! fabric.run_until(950_000_000, &mut collector);
//! assert_eq!(collector.0, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod channel;
mod ground_truth;
pub(crate) mod port;
pub(crate) mod random;
mod reporting;
mod routed;
mod routing;
mod topology;
mod traffic;
mod transfer;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

pub use action::{Action, FlowId};
pub use channel::{Channel, ChannelTotals};
pub use ground_truth::{
    Arrival, DatagramOutcome, DatagramTruth, DropReason, GroundTruth, HopTruth, PacketTrace, ReportKind,
    ReportTruth, SfTruth,
};
pub use topology::{Kind, Node, Topology, TopologyBuilder, Wire};
pub use traffic::FlowTotals;

pub use crate::flow::{Address, Family, FlowSpec, Pattern, Transport};

use crate::flow;
use crate::report::Outbox;
use crate::switch::{self, Switch};
use crate::watchlist::Watchlist;
use port::Port;
pub(crate) use random::Random;
use random::mix;
use reporting::{Records, Reporting};
use routing::{Edge, Routes};
use traffic::Schedule;
use transfer::Packet;

/// Configuration of a fabric. The default is a network without faults.
#[derive(Clone, Debug)]
pub struct Config {
    /// True time at which the run begins, ns since an arbitrary epoch.
    pub start: u64,
    /// Unit of queue depth and occupancy.
    pub unit: QueueUnit,
    /// Delay from a frame's ingress to its egress queue, ns.
    pub pipeline: u64,
    /// Delay from a link's change to new routes at all switches, ns.
    pub convergence: u64,
    /// Maximum length of an IP packet that a switch sends, bytes.
    pub mtu: u16,
    /// The INT configuration of switches.
    pub switch: switch::Config,
    /// The flows that the switches watch.
    pub watchlist: Watchlist,
    /// The channel of reports to the collector.
    pub channel: Channel,
    /// Loss and reordering on all links.
    pub links: Impairments,
    /// Maximum time that a group of reports waits to be filled, ns.
    pub group_delay: u64,
    /// Selects the frames passed to the [`FabricSink`].
    pub frames: Frames,
    /// Whether switches are routers, which decrement the TTL, and each packet differs from the others of its flow; otherwise
    /// they are bridges, and all packets of a flow are equal.
    pub routed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            start: 0,
            unit: QueueUnit::Bytes,
            pipeline: 500,
            convergence: 50_000_000,
            mtu: 9_000,
            switch: switch::Config::default(),
            watchlist: Watchlist::default(),
            channel: Channel::default(),
            links: Impairments::default(),
            group_delay: 1_000_000,
            frames: Frames::None,
            routed: false,
        }
    }
}

/// Impairments of links that are up; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairments {
    /// Frames lost on each link, per million.
    pub loss: u32,
    /// Frames delayed by `extra` on each link, so that later ones overtake them, per million.
    pub reordering: u32,
    /// Extra delay of a delayed frame, ns.
    pub extra: u64,
}

/// Unit of queue depth and occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueUnit {
    /// Bytes of the frames as received.
    Bytes,
    /// Number of frames, whatever their length.
    Packets,
}

impl QueueUnit {
    /// Returns the queue depth of a host's NIC: 64 MiB or 65,536 frames.
    fn host_depth(self) -> u32 {
        match self {
            Self::Bytes => 1 << 26,
            Self::Packets => 1 << 16,
        }
    }
}

/// Selects the frames passed to the [`FabricSink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// No frames at all.
    None,
    /// Frames that arrive at hosts.
    Delivered,
    /// All frames, each time a node begins to transmit one.
    Sent,
}

/// The sender of a datagram of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// Id of the node.
    pub node: u32,
    /// Source address: 192.168.0.0/16 plus the low 16 bits of the node id.
    pub address: IpAddr,
    /// The UDP source port.
    pub port: u16,
}

/// Receives the results of a fabric. All methods do nothing by default.
pub trait FabricSink {
    /// Receives a report datagram (UDP payload) that arrives at the collector at `t`, ns.
    fn report(&mut self, t: u64, from: &Reporter, payload: &[u8]) {
        let _ = (t, from, payload);
    }

    /// Receives a frame that passes `node` at `t` (ns) through `interface`: the egress for [`Frames::Sent`], the ingress
    /// otherwise.
    fn frame(&mut self, t: u64, node: u32, interface: u16, frame: &[u8]) {
        let _ = (t, node, interface, frame);
    }

    /// Receives an event of the ground truth.
    fn ground_truth(&mut self, truth: &GroundTruth<'_>) {
        let _ = truth;
    }
}

/// Ignores everything that happens.
impl FabricSink for () {}

/// A route that a scenario diverted.
#[derive(Clone, Copy, Debug)]
struct Diversion {
    /// Index of the node.
    node: usize,
    /// Index of the destination host.
    host: usize,
    /// Egress port.
    port: u32,
}

/// A network of switches and hosts in simulated time.
#[derive(Debug)]
pub struct Fabric {
    config: Config,
    topology: Topology,
    now: u64,
    events: BinaryHeap<Reverse<Event>>,
    /// Number of scheduled events, which breaks ties between simultaneous ones.
    order: u64,
    stations: Vec<NodeState>,
    /// Two ports per link: 2 * link is the end at its `a`, 2 * link + 1 the end at its `b`. So `port ^ 1` is the other end.
    ports: Vec<Port>,
    /// The times at which each link was cut, ns, ascending.
    cuts: Vec<Vec<u64>>,
    routes: Routes,
    diversions: Vec<Diversion>,
    flows: Vec<Flow>,
    packets: Vec<Packet>,
    free_slots: Vec<u32>,
    packets_made: u64,
    actions: Vec<Action>,
    traffic: Random,
    /// Random numbers for [`Config::links`].
    fortune: Random,
    outbox: Outbox,
    reporting: Reporting,
    records: Records,
}

/// A node at run time.
#[derive(Debug)]
struct NodeState {
    /// The switch; `None` for a host.
    switch: Option<Box<Switch>>,
    /// The ports in order of their numbers.
    ports: Vec<u32>,
}

#[derive(Debug)]
struct Flow {
    totals: FlowTotals,
    /// A frame of this flow, the template of all its packets.
    frame: Vec<u8>,
    hash: u64,
    from: usize,
    to: usize,
    schedule: Schedule,
    /// The switches that the last packet passed.
    path: Vec<u32>,
}

/// An event at time `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u64,
    order: u64,
    what: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    /// The next packet of the flow.
    Send { flow: u32 },
    /// A packet of a burst that an action started; `left` more follow.
    Burst { flow: u32, left: u32, gap: u64 },
    /// A packet arrives at this port, after the link and the pipeline.
    Arrive { packet: u32, port: u32 },
    /// The port has finished a transmission. If its link was cut before the end, the port's epoch has changed and the event is
    /// void.
    Sent { port: u32, epoch: u32 },
    /// An action that [`Fabric::schedule`] scheduled.
    Act { action: u32 },
    /// All switches use the new routes.
    Converge,
    /// A datagram of reports arrives at the collector.
    Report { datagram: u32, duplicate: bool },
    /// The open report groups of a node must be sent.
    Flush { node: u32 },
}

impl Fabric {
    /// Creates a fabric without traffic.
    ///
    /// # Errors
    /// The switch configuration contradicts itself.
    pub fn new(topology: Topology, config: Config, seed: u64) -> Result<Self, String> {
        let mut stations = Vec::with_capacity(topology.nodes.len());
        for node in &topology.nodes {
            let switch = match node.kind {
                Kind::Host(_) => None,
                Kind::Switch => {
                    let switch = Switch::new(node.id, config.switch.clone(), config.watchlist.clone());
                    Some(Box::new(switch.map_err(|error| error.to_string())?))
                }
            };
            stations.push(NodeState {
                switch,
                ports: Vec::new(),
            });
        }
        let mut ports = Vec::with_capacity(topology.links.len() * 2);
        for link in &topology.links {
            let edge = [link.a, link.b]
                .iter()
                .any(|&node| stations[node].switch.is_none());
            for node in [link.a, link.b] {
                let station = &mut stations[node];
                let mut wire = link.wire;
                if station.switch.is_none() {
                    wire.depth = config.unit.host_depth();
                }
                station.ports.push(ports.len() as u32);
                ports.push(Port::new(node, station.ports.len() as u16, edge, wire));
            }
        }
        let mut fabric = Self {
            now: config.start,
            cuts: vec![Vec::new(); topology.links.len()],
            reporting: Reporting::new(&topology, config.channel, Random::new(mix(seed, 2))),
            traffic: Random::new(mix(seed, 1)),
            fortune: Random::new(mix(seed, 3)),
            config,
            topology,
            stations,
            ports,
            events: BinaryHeap::new(),
            order: 0,
            routes: Routes::default(),
            diversions: Vec::new(),
            flows: Vec::new(),
            packets: Vec::new(),
            free_slots: Vec::new(),
            packets_made: 0,
            actions: Vec::new(),
            outbox: Outbox::default(),
            records: Records::default(),
        };
        fabric.route();
        Ok(fabric)
    }

    /// Adds a flow, which begins at its start time or now, whichever is later.
    ///
    /// # Errors
    /// An end is not a host.
    pub fn add_flow(&mut self, spec: &FlowSpec) -> Result<FlowId, String> {
        let (from, source) = self.host(spec.from)?;
        let (to, destination) = self.host(spec.to)?;
        let (frame, key) = flow::template(spec, &source, &destination);
        let mut schedule = Schedule::new(spec);
        let first = schedule.first(spec.start.max(self.now), &mut self.traffic);
        let flow = self.flows.len() as u32;
        self.flows.push(Flow {
            totals: FlowTotals {
                flow: key,
                sent: 0,
                delivered: 0,
                dropped: 0,
            },
            frame,
            hash: key.hash(0),
            from,
            to,
            schedule,
            path: Vec::new(),
        });
        if let Some(at) = first {
            self.push_event(at, EventKind::Send { flow });
        }
        Ok(FlowId(flow))
    }

    /// Schedules an action at `t`, or at once if that has passed.
    ///
    /// # Errors
    /// The action names a node, link or flow that does not exist.
    pub fn schedule(&mut self, t: u64, action: Action) -> Result<(), String> {
        match &action {
            Action::CutLink { a, b } | Action::MendLink { a, b } => {
                self.link(*a, *b)?;
            }
            Action::LoseOnLink { from, to, .. } => {
                self.link(*from, *to)?;
            }
            Action::Burst { flow, .. } | Action::StopFlow(flow) => {
                self.flows
                    .get(flow.0 as usize)
                    .ok_or_else(|| format!("there is no flow {}", flow.0))?;
            }
            Action::AddFlow(spec) => {
                self.host(spec.from)?;
                self.host(spec.to)?;
            }
            Action::Wipe { node } => {
                self.switch(*node).ok_or_else(|| no_node(*node))?;
            }
            Action::Divert { node, to, via } => {
                self.host(*to)?;
                if let Some(via) = via {
                    self.link(*node, *via)?;
                }
            }
        }
        let index = self.actions.len() as u32;
        self.actions.push(action);
        self.push_event(t.max(self.now), EventKind::Act { action: index });
        Ok(())
    }

    /// Simulates everything up to and including `t`, true time, ns.
    pub fn run_until(&mut self, t: u64, sink: &mut (impl FabricSink + ?Sized)) {
        while let Some(Reverse(event)) = self.events.peek().copied() {
            if event.at > t {
                break;
            }
            self.events.pop();
            self.now = event.at;
            self.execute_event(event.what, sink);
        }
        self.now = self.now.max(t);
    }

    /// Returns the time of the next event, or `None` if none is scheduled.
    pub fn next_event_time(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Returns the true time reached, ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the nodes and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the switch with this node id.
    pub fn switch(&self, node: u32) -> Option<&Switch> {
        self.stations[self.topology.index(node)?].switch.as_deref()
    }

    /// Returns the ports of a switch in the order of their numbers, from 1, each with the id of the node at the other end.
    pub fn ports(&self, node: u32) -> impl Iterator<Item = (u16, u32)> + '_ {
        let ports = self
            .topology
            .index(node)
            .map(|index| self.stations[index].ports.as_slice());
        ports.unwrap_or_default().iter().map(|port| {
            let other = self.ports[*port as usize ^ 1].node;
            (self.ports[*port as usize].number, self.topology.nodes[other].id)
        })
    }

    /// Returns (node id, port number) at the other end of port `number` of `node`.
    pub fn peer(&self, node: u32, number: u16) -> Option<(u32, u16)> {
        let index = self.topology.index(node)?;
        let port = *self.stations[index]
            .ports
            .get(usize::from(number).checked_sub(1)?)?;
        let peer = &self.ports[port as usize ^ 1];
        Some((self.topology.nodes[peer.node].id, peer.number))
    }

    /// Sets whether a port of a switch is an INT source and an INT sink. By default, ports to hosts are both.
    pub fn set_roles(&mut self, node: u32, number: u16, source: bool, sink: bool) {
        let index = self.topology.index(node);
        let port = index.and_then(|index| {
            self.stations[index]
                .ports
                .get(usize::from(number).checked_sub(1)?)
        });
        if let Some(port) = port {
            let port = &mut self.ports[*port as usize];
            port.source = source;
            port.sink = sink;
        }
    }

    /// Returns the switch with this node id, to change its watchlist or configuration.
    pub fn switch_mut(&mut self, node: u32) -> Option<&mut Switch> {
        self.stations[self.topology.index(node)?].switch.as_deref_mut()
    }

    /// Returns the outcomes of each flow's packets, in the order in which flows were added.
    pub fn flows(&self) -> impl Iterator<Item = FlowTotals> + '_ {
        self.flows.iter().map(|flow| flow.totals)
    }

    /// Returns the flows, in the order in which they were added.
    pub fn flow_ids(&self) -> impl Iterator<Item = FlowId> + use<> {
        (0..self.flows.len() as u32).map(FlowId)
    }

    /// Returns the outcomes of each node's datagrams, ordered by node and subsystem.
    pub fn channel_totals(&self) -> Vec<ChannelTotals> {
        self.reporting.totals()
    }

    fn execute_event(&mut self, what: EventKind, sink: &mut (impl FabricSink + ?Sized)) {
        match what {
            EventKind::Send { flow } => {
                let one = &mut self.flows[flow as usize];
                if !one.schedule.runs(self.now) {
                    return;
                }
                if let Some(at) = one.schedule.next(self.now, &mut self.traffic) {
                    self.push_event(at, EventKind::Send { flow });
                }
                self.inject(flow, sink);
            }
            EventKind::Burst { flow, left, gap } => {
                if left > 0 {
                    self.push_event(
                        self.now.saturating_add(gap),
                        EventKind::Burst {
                            flow,
                            left: left - 1,
                            gap,
                        },
                    );
                }
                self.inject(flow, sink);
            }
            EventKind::Arrive { packet, port } => self.arrive(packet, port, sink),
            EventKind::Sent { port, epoch } => {
                if self.ports[port as usize].epoch == epoch {
                    self.ports[port as usize].busy = false;
                    self.transmit(port, sink);
                }
            }
            EventKind::Act { action } => self.execute_action(self.actions[action as usize].clone(), sink),
            EventKind::Converge => {
                self.route();
                sink.ground_truth(&GroundTruth::Converged { at: self.now });
            }
            EventKind::Report { datagram, duplicate } => {
                self.reporting.arrive(datagram, duplicate, self.now, sink);
            }
            EventKind::Flush { node } => self.flush(node as usize, sink),
        }
    }

    /// Executes an action. Actions were checked when they were scheduled, and nodes, links and flows are never removed.
    fn execute_action(&mut self, action: Action, sink: &mut (impl FabricSink + ?Sized)) {
        match action {
            Action::CutLink { a, b } => {
                if let Ok(link) = self.link(a, b) {
                    self.cut(link, sink);
                }
            }
            Action::MendLink { a, b } => {
                if let Ok(link) = self.link(a, b) {
                    self.restore(link, sink);
                }
            }
            Action::LoseOnLink { from, to, loss } => {
                if let Some(port) = self.port_towards(from, to) {
                    self.ports[port].loss = loss;
                }
            }
            Action::Burst { flow, packets, gap } => {
                if packets > 0 {
                    self.push_event(
                        self.now,
                        EventKind::Burst {
                            flow: flow.0,
                            left: packets - 1,
                            gap,
                        },
                    );
                }
            }
            Action::AddFlow(spec) => {
                let _added = self.add_flow(&spec);
            }
            Action::StopFlow(flow) => self.flows[flow.0 as usize].schedule.stop(),
            Action::Wipe { node } => {
                if let Some(switch) = self.switch_mut(node) {
                    switch.wipe_registers();
                }
            }
            Action::Divert { node, to, via } => self.divert(node, to, via),
        }
    }

    fn divert(&mut self, node: u32, to: u32, via: Option<u32>) {
        let (Some(node_index), Some(to)) = (self.topology.index(node), self.topology.index(to)) else {
            return;
        };
        self.diversions
            .retain(|diversion| (diversion.node, diversion.host) != (node_index, to));
        let Some(port) = via.and_then(|via| self.port_towards(node, via)) else {
            return;
        };
        self.diversions.push(Diversion {
            node: node_index,
            host: to,
            port: port as u32,
        });
    }

    /// Returns the index of a node's port on its link to another node.
    fn port_towards(&self, node: u32, to: u32) -> Option<usize> {
        let link = self.link(node, to).ok()?;
        let side = usize::from(self.ports[link * 2].node != self.topology.index(node)?);
        Some(link * 2 + side)
    }

    fn push_event(&mut self, at: u64, what: EventKind) {
        self.order += 1;
        self.events.push(Reverse(Event {
            at,
            order: self.order,
            what,
        }));
    }

    /// Computes all routes from the current state of the links.
    fn route(&mut self) {
        let is_host: Vec<bool> = self
            .stations
            .iter()
            .map(|station| station.switch.is_none())
            .collect();
        let edges: Vec<Vec<Edge>> = self
            .stations
            .iter()
            .map(|station| {
                let ports = station.ports.iter().map(|&port| Edge {
                    peer: self.ports[port as usize ^ 1].node,
                    port,
                    up: self.ports[port as usize].up,
                });
                ports.collect()
            })
            .collect();
        self.routes = Routes::compute(&edges, &is_host);
    }

    /// Returns the node index and the addresses of the host with node id `id`.
    fn host(&self, id: u32) -> Result<(usize, Address), String> {
        let index = self.topology.index(id).ok_or_else(|| no_node(id))?;
        match self.topology.nodes[index].kind {
            Kind::Host(address) => Ok((index, address)),
            Kind::Switch => Err(format!("node {id} is not a host")),
        }
    }

    fn link(&self, a: u32, b: u32) -> Result<usize, String> {
        let a_index = self.topology.index(a).ok_or_else(|| no_node(a))?;
        let b_index = self.topology.index(b).ok_or_else(|| no_node(b))?;
        let ends = [(a_index, b_index), (b_index, a_index)];
        let mut links = self.topology.links.iter();
        links
            .position(|link| ends.contains(&(link.a, link.b)))
            .ok_or_else(|| format!("there is no link between {a} and {b}"))
    }
}

fn no_node(id: u32) -> String {
    format!("there is no node {id}")
}

impl Reporter {
    fn new(node: u32) -> Self {
        let [.., high, low] = node.to_be_bytes();
        Self {
            node,
            address: IpAddr::V4(Ipv4Addr::new(192, 168, high, low)),
            port: 40_000,
        }
    }
}

#[cfg(test)]
mod tests;

//! A router in simulated time around one INT switch, which implements the forwarding of the `switch` role between its
//! interfaces.
//!
//! The caller passes frames and the time ([`Router::receive`], [`Router::advance`]). The router sends frames when they are due
//! ([`Wires::send`]) and collects reports in [`Router::reports`]. It has no I/O and no clock, so tests drive it as the program
//! does.
//!
//! The model:
//! - On an edge port, the router is a proxy: it replies to ARP requests and neighbour solicitations for any address, and needs
//!   no address of its own. It learns the MAC addresses of hosts by requests and from their packets. Any other port leads to a
//!   switch of the same kind, and every frame from there is accepted.
//! - IPv4 and IPv6 are forwarded by longest prefix match; a hash of the flow selects one of several equal routes. The TTL or
//!   hop limit is decremented. A packet that cannot be forwarded causes an ICMP error, at a limited rate. Packets are never
//!   fragmented.
//! - Each port has a [`LinkConfig`] per direction, with rate, depth, delay, loss and reordering: frames pass the queue, then
//!   the transmitter, then the link. INT metadata is written when a frame leaves the egress queue, as in [`crate::fabric`]:
//!   occupancy is the number of bytes queued when the frame was enqueued; utilization is in millionths.
//! - UDP datagrams to configured addresses are passed to a consumer in this process, which replies from these addresses: see
//!   [`Wires::deliver`] and [`Router::reply`].
//! - Every frame is accounted for; see [`Stats`].

mod arp_nd;
mod forwarding;
mod icmp;
mod intercept;
mod link;
mod neighbours;
pub mod offload;
mod packet;
mod routes;
mod stats;
#[cfg(test)]
mod tests;
mod transmission;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::fabric::random::Random;
use crate::report::Outbox;
use crate::switch::{self, Switch, Visit};
use crate::watchlist::Watchlist;

pub use link::LinkConfig;
use link::LinkQueue;
use neighbours::{Lookup, Neighbours};
pub use routes::Route;
use routes::Routes;
pub use stats::{Drop, PortStats, QueueStats, Stats};

/// Maximum number of intercepted destinations.
pub const MAX_INTERCEPTED: usize = 64;
/// Maximum number of ports.
pub const MAX_PORTS: usize = 256;
/// Maximum number of frames in the router, in all queues and on all links.
const MAX_QUEUED: usize = 1 << 15;
/// Ingress port of frames that the router originates.
const LOCAL: u16 = u16::MAX;

/// Configuration of a router.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Node id in INT and reports.
    pub node: u32,
    /// Configuration of the INT switch.
    pub switch: switch::Config,
    /// Flows that the switch watches.
    pub watchlist: Watchlist,
    /// Ports, at most [`MAX_PORTS`].
    pub ports: Vec<Port>,
    /// Routes to all destinations; see [`Route`].
    pub routes: Vec<Route>,
    /// Source address of ICMP errors. The default is 192.0.0.8, the dummy address of nodes without an address (RFC 7600).
    pub address: Ipv4Addr,
    /// Source address of ICMPv6 errors.
    pub address6: Ipv6Addr,
    /// Seed for random loss and reordering.
    pub seed: u64,
    /// UDP destinations whose datagrams are intercepted, at most [`MAX_INTERCEPTED`]; see [`Wires::deliver`].
    pub intercept: Vec<SocketAddr>,
}

/// Configuration of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Number of the port in INT, from 1; its low eight bits are also the id of its queue.
    pub number: u16,
    /// MAC address, which must differ from that of the interface, so that the network stack of the system does not accept its
    /// frames.
    pub mac: [u8; 6],
    /// Level-2 (logical) interface in INT; 0 means the number of the port.
    pub logical: u32,
    /// Whether hosts are behind the port: it answers ARP, and accepts only frames addressed to it.
    pub edge: bool,
    /// Whether packets that enter here are compared with the watchlist; `None` means as `edge`.
    pub source: Option<bool>,
    /// Whether packets that leave here lose their INT and are reported; `None` means as `edge`.
    pub sink: Option<bool>,
    /// Maximum length of an IP packet, bytes.
    pub mtu: u16,
    /// Whether the port is administratively up.
    pub up: bool,
    /// Link on which frames leave.
    pub out: LinkConfig,
    /// Link on which frames arrive.
    pub into: LinkConfig,
}

impl Port {
    /// Returns an edge port with an MTU of 1500 bytes and no rate limit.
    pub fn new(number: u16, mac: [u8; 6]) -> Self {
        Self {
            number,
            mac,
            logical: 0,
            edge: true,
            source: None,
            sink: None,
            mtu: 1500,
            up: true,
            out: LinkConfig::default(),
            into: LinkConfig::default(),
        }
    }

    /// Returns whether packets that enter here are compared with the watchlist.
    pub fn is_source(&self) -> bool {
        self.source.unwrap_or(self.edge)
    }

    /// Returns whether packets that leave here lose their INT.
    pub fn is_sink(&self) -> bool {
        self.sink.unwrap_or(self.edge)
    }

    /// Returns a locally administered MAC address for port `number` of `node`, which no NIC has.
    pub fn mac_for(node: u32, number: u16) -> [u8; 6] {
        let [_, a, b, c] = node.to_be_bytes();
        let [d, e] = number.to_be_bytes();
        [0x02 | (d & 0x3f) << 2, 0x68, a, b, c, e]
    }
}

/// The reason why a configuration was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The INT configuration is invalid.
    Switch(switch::ConfigError),
    /// Two ports have this number, or the number is 0.
    PortNumber(u16),
    /// There are more than [`MAX_PORTS`] ports.
    TooManyPorts,
    /// A route leads to a port that does not exist.
    NoSuchPort(u16),
    /// The links of this port have a rate of 0, or a fraction above one.
    BadLink(u16),
    /// There are more than [`MAX_INTERCEPTED`] intercepted destinations.
    TooManyIntercepted,
    /// A live change adds, removes or renumbers ports.
    OtherPorts,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(error) => error.fmt(f),
            Self::PortNumber(number) => write!(f, "port numbers must be unique and at least 1, not {number}"),
            Self::TooManyPorts => write!(f, "at most {MAX_PORTS} ports"),
            Self::NoSuchPort(number) => write!(f, "there is no port {number}"),
            Self::BadLink(number) => write!(f, "port {number}: rates must be above 0, fractions at most 1"),
            Self::TooManyIntercepted => write!(f, "at most {MAX_INTERCEPTED} intercepted destinations"),
            Self::OtherPorts => f.write_str("ports cannot be added, removed or renumbered while it runs"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<switch::ConfigError> for ConfigError {
    fn from(error: switch::ConfigError) -> Self {
        Self::Switch(error)
    }
}

/// Receives what a router emits: frames for its ports, and intercepted datagrams.
pub trait Wires {
    /// Sends a frame by the port with index `port`. The implementation may swap the buffer for another one, which the router
    /// reuses.
    fn send(&mut self, port: usize, frame: &mut Vec<u8>);

    /// Accepts the payload of a datagram from `from` to [`Config::intercept`]`[to]`. Returns `false` if the consumer is full.
    fn deliver(&mut self, _to: usize, _from: SocketAddr, _payload: &[u8]) -> bool {
        false
    }
}

/// A router with its ports, routes, neighbours and INT switch; see the module.
#[derive(Debug)]
pub struct Router {
    config: Config,
    switch: Switch,
    routes: Routes,
    port_queues: Vec<PortQueues>,
    /// Bytes in all egress queues now.
    buffered: u32,
    /// Memory of frames; a slot is an index into it.
    frames: Vec<Frame>,
    /// Slots that hold no frame.
    free_slots: Vec<u32>,
    neighbours: Neighbours,
    /// Scheduled events, earliest first: time (ns), sequence number, event.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Sequence number of the last event, so that simultaneous ones are executed in the order in which they were scheduled.
    last_event: u64,
    /// Time of the last call or event, ns.
    now: u64,
    random: Random,
    icmp_limit: icmp::RateLimit,
    outbox: Outbox,
    stats: Stats,
}

/// The queues of both directions of a port.
#[derive(Debug)]
struct PortQueues {
    out: LinkQueue,
    into: LinkQueue,
}

/// A frame in the router.
#[derive(Debug, Default)]
struct Frame {
    bytes: Vec<u8>,
    /// Index of the ingress port, or [`LOCAL`].
    from: u16,
    /// Time of arrival, ns.
    ingress: u64,
    /// Bytes in the egress queue when the frame was enqueued.
    queue_occupancy: u32,
    /// Bytes in all egress queues when the frame was enqueued.
    buffer_occupancy: u32,
}

/// The direction of frames at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Out,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The transmitter of a link becomes free.
    Free { port: u16, direction: Direction },
    /// A frame arrives at the end of a link.
    Arrive {
        port: u16,
        direction: Direction,
        slot: u32,
        epoch: u32,
    },
    /// The retry interval for resolving a neighbour's address has passed.
    Resolve { port: u16, address: IpAddr },
}

impl Router {
    /// Creates a router with empty queues and no known neighbours.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        check(&config)?;
        let switch = Switch::new(config.node, config.switch.clone(), config.watchlist.clone())?;
        let routes = Routes::new(&config)?;
        let port_queues = config.ports.iter().map(|port| PortQueues {
            out: LinkQueue::new(port.out),
            into: LinkQueue::new(port.into),
        });
        Ok(Self {
            port_queues: port_queues.collect(),
            buffered: 0,
            frames: Vec::new(),
            free_slots: Vec::new(),
            neighbours: Neighbours::default(),
            events: BinaryHeap::new(),
            last_event: 0,
            now: 0,
            random: Random::new(config.seed),
            icmp_limit: icmp::RateLimit::default(),
            outbox: Outbox::default(),
            stats: Stats::new(config.ports.len()),
            config,
            switch,
            routes,
        })
    }

    /// Returns the active configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the INT switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns the INT switch for changes.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the current state of a port's egress queue.
    pub fn queue(&self, port: usize) -> QueueStats {
        self.port_queues
            .get(port)
            .map_or_else(QueueStats::default, |port_queues| port_queues.out.stats())
    }

    /// Returns the current state of a port's ingress queue, which is used only if the ingress link has a rate.
    pub fn queue_in(&self, port: usize) -> QueueStats {
        self.port_queues
            .get(port)
            .map_or_else(QueueStats::default, |port_queues| port_queues.into.stats())
    }

    /// Returns the number of frames in queues, on links, or waiting for a neighbour's MAC address.
    pub fn queued(&self) -> u64 {
        (self.frames.len() - self.free_slots.len()) as u64
    }

    /// Returns the number of known neighbours.
    pub fn neighbours(&self) -> usize {
        self.neighbours.known()
    }

    /// Returns the reports that are ready to be sent. The caller sends and clears them.
    pub fn reports(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Moves the reports of incomplete groups into [`Self::reports`].
    pub fn flush_reports(&mut self) {
        self.switch.flush(&mut self.outbox);
    }

    /// Returns the time of the next event, ns.
    pub fn next(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Counts a frame that was passed to [`Wires::send`] but could not be sent.
    pub fn not_sent(&mut self, port: usize) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            stats.sent -= 1;
            stats.drops[Drop::NotSent as usize] += 1;
        }
    }

    /// Counts a frame received on port index `port` that cannot be processed: it was truncated, or cannot be segmented.
    pub fn unreadable(&mut self, port: usize) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            stats.received += 1;
            stats.drops[Drop::Malformed as usize] += 1;
        }
    }

    /// Counts a frame of `len` bytes received on port index `port` that the caller consumed itself.
    pub fn consumed(&mut self, port: usize, len: usize) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            stats.received += 1;
            stats.received_bytes += len as u64;
            self.stats.consumed += 1;
        }
    }

    /// Counts a frame of `len` bytes that the caller itself sends by port index `port`.
    pub fn originated(&mut self, port: usize, len: usize) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            self.stats.originated += 1;
            stats.sent += 1;
            stats.sent_bytes += len as u64;
        }
    }

    /// Replaces the watchlist.
    ///
    /// # Errors
    /// Returns an error if the list contradicts the configuration; the old one then stays.
    pub fn watch(&mut self, watchlist: Watchlist) -> Result<(), ConfigError> {
        self.switch.watch(watchlist.clone())?;
        self.config.watchlist = watchlist;
        Ok(())
    }

    /// Replaces the routes.
    ///
    /// # Errors
    /// Returns an error if a route leads to a port that does not exist; the old routes then stay.
    pub fn set_routes(&mut self, routes: Vec<Route>) -> Result<(), ConfigError> {
        let changed = Config {
            routes,
            ..self.config.clone()
        };
        self.routes = Routes::new(&changed)?;
        self.config = changed;
        Ok(())
    }

    /// Changes a port, except for its number. A port that goes down drops its queued frames.
    ///
    /// # Errors
    /// Returns an error if no port has this index, the number differs, or the links are invalid.
    pub fn set_port(&mut self, now: u64, index: usize, port: Port) -> Result<(), ConfigError> {
        let Some(before) = self.config.ports.get(index) else {
            return Err(ConfigError::NoSuchPort(0));
        };
        if before.number != port.number {
            return Err(ConfigError::OtherPorts);
        }
        check_links(&port)?;
        self.now = self.now.max(now);
        let was_up = before.up;
        let up = port.up;
        let port_queues = &mut self.port_queues[index];
        port_queues.out.change(port.out);
        port_queues.into.change(port.into);
        self.config.ports[index] = port;
        if was_up && !up {
            for direction in [Direction::In, Direction::Out] {
                let link_queue = self.link_queue(index, direction);
                let bytes = link_queue.occupancy();
                let dropped_slots = link_queue.cut();
                self.unbuffer(direction, bytes);
                dropped_slots
                    .into_iter()
                    .for_each(|slot| self.discard(slot, index, Drop::LinkDown));
            }
        }
        // A queue whose rate limit was removed must not wait forever.
        for direction in [Direction::In, Direction::Out] {
            let link_queue = self.link_queue(index, direction);
            if link_queue.schedule() {
                let at = link_queue.free_at().max(now);
                self.schedule(
                    at,
                    Event::Free {
                        port: index as u16,
                        direction,
                    },
                );
            }
        }
        Ok(())
    }

    /// Processes a frame received on port index `port`. `ingress` is the time of its arrival, ns, at most `now`.
    pub fn receive(&mut self, now: u64, port: usize, frame: &[u8], ingress: u64, out: &mut dyn Wires) {
        self.now = self.now.max(now);
        let Some(stats) = self.stats.ports.get_mut(port) else {
            return;
        };
        stats.received += 1;
        stats.received_bytes += frame.len() as u64;
        if !self.config.ports[port].up {
            return self.count_drop(port, Drop::LinkDown);
        }
        let Some(slot) = self.enqueue_frame(frame, port as u16, ingress.min(now)) else {
            return self.count_drop(port, Drop::Memory);
        };
        if self.port_queues[port].into.is_plain() {
            self.route(slot, out);
        } else {
            self.enqueue(slot, port, Direction::In, out);
        }
    }

    /// Executes all events up to `now`.
    pub fn advance(&mut self, now: u64, out: &mut dyn Wires) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > now {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            match event {
                Event::Free { port, direction } => {
                    self.link_queue(usize::from(port), direction).freed();
                    self.transmit(usize::from(port), direction, out);
                }
                Event::Arrive {
                    port,
                    direction,
                    slot,
                    epoch,
                } => self.arrive(port, direction, slot, epoch, out),
                Event::Resolve { port, address } => self.retry_resolution(port, address, out),
            }
        }
        self.now = self.now.max(now);
    }

    fn link_queue(&mut self, port: usize, direction: Direction) -> &mut LinkQueue {
        let port_queues = &mut self.port_queues[port];
        match direction {
            Direction::Out => &mut port_queues.out,
            Direction::In => &mut port_queues.into,
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.last_event += 1;
        self.events.push(Reverse((at, self.last_event, event)));
    }

    /// Copies a frame into the router's memory. Returns `None` if too many frames are queued.
    fn enqueue_frame(&mut self, frame: &[u8], from: u16, ingress: u64) -> Option<u32> {
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None if self.frames.len() < MAX_QUEUED => {
                self.frames.push(Frame::default());
                self.frames.len() as u32 - 1
            }
            None => return None,
        };
        let queued = &mut self.frames[slot as usize];
        queued.bytes.clear();
        queued.bytes.extend_from_slice(frame);
        queued.from = from;
        queued.ingress = ingress;
        queued.queue_occupancy = 0;
        queued.buffer_occupancy = 0;
        Some(slot)
    }

    fn release(&mut self, slot: u32) {
        self.free_slots.push(slot);
    }

    fn count_drop(&mut self, port: usize, reason: Drop) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            stats.drops[reason as usize] += 1;
        }
    }

    /// Drops a frame without a report.
    fn discard(&mut self, slot: u32, port: usize, reason: Drop) {
        self.count_drop(port, reason);
        self.release(slot);
    }

    /// Drops a frame, and reports the drop if its flow is watched.
    fn drop_and_report(&mut self, slot: u32, port: usize, reason: Drop) {
        let queued = &self.frames[slot as usize];
        if let (Some(code), true) = (reason.code(), queued.from != LOCAL) {
            let egress = self.config.ports.get(port).filter(|_| reason.is_egress());
            let visit = Visit {
                ingress_if: self.config.ports[usize::from(queued.from)].number,
                egress_if: egress.map_or(0, |port| port.number),
                ingress_ts: queued.ingress,
                egress_ts: self.now,
                queue_id: egress.map_or(0, |port| port.number as u8),
                queue_occupancy: queued.queue_occupancy,
                tx_utilization: u32::MAX,
                buffer_occupancy: queued.buffer_occupancy,
                l2_interfaces: [0; 2],
                mtu: u16::MAX,
                from_edge: self.config.ports[usize::from(queued.from)].is_source(),
                to_edge: egress.is_some_and(Port::is_sink),
                from_border: self.config.ports[usize::from(queued.from)].is_sink(),
            };
            self.switch.dropped(&queued.bytes, &visit, code, &mut self.outbox);
        }
        self.discard(slot, port, reason);
    }

    /// Consumes a frame that was addressed to the router.
    fn consume(&mut self, slot: u32) {
        self.stats.consumed += 1;
        self.release(slot);
    }
}

fn check(config: &Config) -> Result<(), ConfigError> {
    if config.ports.len() > MAX_PORTS {
        return Err(ConfigError::TooManyPorts);
    }
    if config.intercept.len() > MAX_INTERCEPTED {
        return Err(ConfigError::TooManyIntercepted);
    }
    for (index, port) in config.ports.iter().enumerate() {
        let is_duplicate = config.ports[..index]
            .iter()
            .any(|other| other.number == port.number);
        if port.number == 0 || is_duplicate {
            return Err(ConfigError::PortNumber(port.number));
        }
        check_links(port)?;
    }
    Ok(())
}

fn check_links(port: &Port) -> Result<(), ConfigError> {
    let mut links = [&port.out, &port.into].into_iter();
    if links.all(|link| link.rate != Some(0) && link.loss <= 1_000_000 && link.reorder <= 1_000_000) {
        Ok(())
    } else {
        Err(ConfigError::BadLink(port.number))
    }
}

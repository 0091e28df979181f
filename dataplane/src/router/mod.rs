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

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::fabric::random::{Random, mix};
use crate::report::Outbox;
use crate::switch::{self, Switch, Verdict, Visit};
use crate::watchlist::Watchlist;

pub use link::LinkConfig;
use link::LinkQueue;
use neighbours::{Lookup, Neighbours};
use packet::Ip;
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
    /// Bytes in all egress queues.
    buffered: u32,
    frames: Vec<Frame>,
    idle: Vec<u32>,
    neighbours: Neighbours,
    /// Scheduled events, earliest first: time (ns), sequence number, event.
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Sequence number of events, so that simultaneous ones are executed in the order in which they were scheduled.
    order: u64,
    now: u64,
    random: Random,
    errors: icmp::RateLimit,
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
    found: u32,
    /// Bytes in all egress queues when the frame was enqueued.
    buffered: u32,
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
            idle: Vec::new(),
            neighbours: Neighbours::default(),
            due: BinaryHeap::new(),
            order: 0,
            now: 0,
            random: Random::new(config.seed),
            errors: icmp::RateLimit::default(),
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
        (self.frames.len() - self.idle.len()) as u64
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
        self.due.peek().map(|Reverse((at, _, _))| *at)
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
                let waiting = link_queue.cut();
                self.unbuffer(direction, bytes);
                waiting
                    .into_iter()
                    .for_each(|slot| self.lose(slot, index, Drop::LinkDown));
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
        while let Some(&Reverse((at, _, event))) = self.due.peek() {
            if at > now {
                break;
            }
            self.due.pop();
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
        self.order += 1;
        self.due.push(Reverse((at, self.order, event)));
    }

    /// Copies a frame into the router's memory. Returns `None` if too many frames are queued.
    fn enqueue_frame(&mut self, frame: &[u8], from: u16, ingress: u64) -> Option<u32> {
        let slot = match self.idle.pop() {
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
        queued.found = 0;
        queued.buffered = 0;
        Some(slot)
    }

    fn release(&mut self, slot: u32) {
        self.idle.push(slot);
    }

    fn count_drop(&mut self, port: usize, reason: Drop) {
        if let Some(stats) = self.stats.ports.get_mut(port) {
            stats.drops[reason as usize] += 1;
        }
    }

    /// Drops a frame without a report.
    fn lose(&mut self, slot: u32, port: usize, reason: Drop) {
        self.count_drop(port, reason);
        self.release(slot);
    }

    /// Drops a frame, and reports the drop if its flow is watched.
    fn drop_here(&mut self, slot: u32, port: usize, reason: Drop) {
        let queued = &self.frames[slot as usize];
        if let (Some(code), true) = (reason.code(), queued.from != LOCAL) {
            let egress = self.config.ports.get(port).filter(|_| reason.is_egress());
            let visit = Visit {
                ingress_if: self.config.ports[usize::from(queued.from)].number,
                egress_if: egress.map_or(0, |port| port.number),
                ingress_ts: queued.ingress,
                egress_ts: self.now,
                queue_id: egress.map_or(0, |port| port.number as u8),
                queue_occupancy: queued.found,
                tx_utilization: u32::MAX,
                buffer_occupancy: queued.buffered,
                l2_interfaces: [0; 2],
                mtu: u16::MAX,
                from_edge: self.config.ports[usize::from(queued.from)].is_source(),
                to_edge: egress.is_some_and(Port::is_sink),
                from_border: self.config.ports[usize::from(queued.from)].is_sink(),
            };
            self.switch.dropped(&queued.bytes, &visit, code, &mut self.outbox);
        }
        self.lose(slot, port, reason);
    }

    /// Consumes a frame that was addressed to the router.
    fn consume(&mut self, slot: u32) {
        self.stats.consumed += 1;
        self.release(slot);
    }

    /// Selects how to process a received frame: ARP, neighbour discovery, forwarding, or a drop.
    fn route(&mut self, slot: u32, out: &mut dyn Wires) {
        let from = usize::from(self.frames[slot as usize].from);
        let edge = self.config.ports[from].edge;
        let port = &self.config.ports[from];
        let seen = match packet::classify(&self.frames[slot as usize].bytes, edge.then_some(&port.mac)) {
            Ok(seen) => seen,
            Err(reason) => return self.lose(slot, from, reason),
        };
        match seen {
            packet::FrameKind::Arp(at) if edge => self.arp(slot, from, at, out),
            packet::FrameKind::Arp(_) => self.lose(slot, from, Drop::NotIp),
            packet::FrameKind::Ip(ip) => {
                if edge {
                    if arp_nd::is_discovery(&self.frames[slot as usize].bytes, &ip) {
                        return self.discovery(slot, from, &ip, out);
                    }
                    self.learn_source(slot, from, &ip, out);
                }
                self.route_ip(slot, from, &ip, out);
            }
        }
    }

    fn route_ip(&mut self, slot: u32, from: usize, ip: &Ip, out: &mut dyn Wires) {
        if ip.is_not_forwarded() {
            return self.lose(slot, from, Drop::LinkScope);
        }
        let bytes = &mut self.frames[slot as usize].bytes;
        bytes.truncate(ip.at + ip.len);
        if self.intercept(slot, from, ip, out) {
            return;
        }
        if ip.hops <= 1 {
            self.error(slot, from, ip, icmp::Reason::TimeExceeded, out);
            return self.drop_here(slot, from, Drop::HopLimit);
        }
        let Some((to, next)) = self.choose(&self.frames[slot as usize].bytes, ip.dst) else {
            self.error(slot, from, ip, icmp::Reason::NoRoute, out);
            return self.drop_here(slot, from, Drop::NoRoute);
        };
        if ip.len > usize::from(self.config.ports[to].mtu)
            && let Some(mtu) = self.too_big(slot, to)
        {
            self.error(slot, from, ip, icmp::Reason::TooBig { mtu }, out);
            return self.drop_here(slot, to, Drop::TooBig);
        }
        packet::decrement_hop_limit(&mut self.frames[slot as usize].bytes, ip);
        self.forward(slot, to, next, out);
    }

    /// Returns the port index and the next hop's address for a frame to `dst`.
    fn choose(&self, frame: &[u8], dst: IpAddr) -> Option<(usize, IpAddr)> {
        let choices = self.routes.find(dst)?;
        let choice = if let [choice] = choices {
            choice
        } else {
            // INT may have changed the packet's ports, so the hash is over the flow before INT.
            let flow = self.switch.flow_of(frame);
            let hash = flow.map_or(0, |flow| flow.hash(u64::from(self.config.node)));
            let up = choices
                .iter()
                .filter(|choice| self.config.ports[usize::from(choice.port)].up);
            let best = up.max_by_key(|choice| (mix(hash, u64::from(choice.port)), choice.port));
            best.or(choices.first())?
        };
        Some((usize::from(choice.port), choice.via.unwrap_or(dst)))
    }

    /// Returns the MTU to report if a packet is too long for port `to`; `None` if it fits without its INT. INT counts at other
    /// than edge ports, and reduces the reported MTU there.
    fn too_big(&self, slot: u32, to: usize) -> Option<u16> {
        let port = &self.config.ports[to];
        let bytes = &self.frames[slot as usize].bytes;
        let Some(bare) = self.switch.without_int(bytes) else {
            return Some(port.mtu);
        };
        let int = bytes.len().saturating_sub(bare.len());
        if !port.edge {
            return Some(port.mtu.saturating_sub(int as u16));
        }
        let ip = packet::ip_of(&bare)?;
        (ip.len > usize::from(port.mtu)).then_some(port.mtu)
    }

    /// Writes the MAC addresses and queues the frame at port `to`. Requests the next hop's MAC address if it is unknown.
    fn forward(&mut self, slot: u32, to: usize, next: IpAddr, out: &mut dyn Wires) {
        let mac = self.config.ports[to].mac;
        if !self.config.ports[to].edge {
            packet::set_macs(&mut self.frames[slot as usize].bytes, packet::PEER, mac);
            return self.enqueue(slot, to, Direction::Out, out);
        }
        match self.neighbours.find(self.now, to as u16, next) {
            Lookup::Known { mac: dst, probe } => {
                packet::set_macs(&mut self.frames[slot as usize].bytes, dst, mac);
                self.enqueue(slot, to, Direction::Out, out);
                if probe {
                    self.send_request(to, next, out);
                }
            }
            Lookup::Unknown => match self.neighbours.wait(to as u16, next, slot) {
                neighbours::WaitOutcome::SendRequest => {
                    self.schedule(
                        self.now + neighbours::RETRY,
                        Event::Resolve {
                            port: to as u16,
                            address: next,
                        },
                    );
                    self.send_request(to, next, out);
                }
                neighbours::WaitOutcome::Queued => {}
                neighbours::WaitOutcome::Full => self.drop_here(slot, to, Drop::Unresolved),
            },
        }
    }

    /// Queues a frame for a link.
    fn enqueue(&mut self, slot: u32, port: usize, direction: Direction, out: &mut dyn Wires) {
        if !self.config.ports[port].up {
            return self.drop_here(slot, port, Drop::LinkDown);
        }
        let now = self.now;
        let frame = &mut self.frames[slot as usize];
        let size = frame.bytes.len() as u32;
        frame.buffered = self.buffered;
        let link_queue = self.link_queue(port, direction);
        if link_queue.is_unlimited() {
            return self.depart(slot, port, direction, out);
        }
        match link_queue.offer(now, slot, size) {
            Ok(found) if direction == Direction::Out => {
                self.buffered = self.buffered.saturating_add(size);
                self.frames[slot as usize].found = found;
            }
            Ok(_) => {}
            Err(found) if direction == Direction::Out => {
                self.frames[slot as usize].found = found;
                return self.drop_here(slot, port, Drop::QueueFull);
            }
            Err(_) => return self.lose(slot, port, Drop::QueueFullIn),
        }
        self.transmit(port, direction, out);
    }

    /// Transmits queued frames while the transmitter is free, and schedules the next transmission.
    fn transmit(&mut self, port: usize, direction: Direction, out: &mut dyn Wires) {
        let now = self.now;
        loop {
            let link_queue = self.link_queue(port, direction);
            let before = link_queue.occupancy();
            let Some(slot) = link_queue.dequeue(now) else {
                break;
            };
            let bytes = before - link_queue.occupancy();
            self.unbuffer(direction, bytes);
            self.depart(slot, port, direction, out);
        }
        let link_queue = self.link_queue(port, direction);
        if link_queue.schedule() {
            let at = link_queue.free_at();
            self.schedule(
                at,
                Event::Free {
                    port: port as u16,
                    direction,
                },
            );
        }
    }

    /// Subtracts bytes that left an egress queue from the shared buffer.
    fn unbuffer(&mut self, direction: Direction, bytes: u32) {
        if direction == Direction::Out {
            self.buffered = self.buffered.saturating_sub(bytes);
        }
    }

    /// Moves a frame from the queue to the link: applies INT, occupies the transmitter, and applies loss and delay.
    fn depart(&mut self, slot: u32, port: usize, direction: Direction, out: &mut dyn Wires) {
        if direction == Direction::Out && self.measure(slot, port) == Verdict::Discard {
            return self.consume(slot);
        }
        let now = self.now;
        let len = self.frames[slot as usize].bytes.len();
        let link_queue = self.link_queue(port, direction);
        let sent = link_queue.occupy(now, len);
        let link = *link_queue.link();
        let epoch = link_queue.epoch();
        if self.random.chance(link.loss) {
            return self.lose(
                slot,
                port,
                if direction == Direction::Out {
                    Drop::LinkLoss
                } else {
                    Drop::LinkLossIn
                },
            );
        }
        let extra = if self.random.chance(link.reorder) {
            link.reorder_delay
        } else {
            0
        };
        let at = sent.saturating_add(link.delay).saturating_add(extra);
        let port = port as u16;
        if at <= now {
            return self.arrive(port, direction, slot, epoch, out);
        }
        self.schedule(
            at,
            Event::Arrive {
                port,
                direction,
                slot,
                epoch,
            },
        );
    }

    /// Passes a frame to the INT switch at its egress port, and returns whether to send it.
    fn measure(&mut self, slot: u32, port: usize) -> Verdict {
        let queued = &mut self.frames[slot as usize];
        let Some(from) = self.config.ports.get(usize::from(queued.from)) else {
            return Verdict::Forward;
        };
        let to = &self.config.ports[port];
        let visit = Visit {
            ingress_if: from.number,
            egress_if: to.number,
            ingress_ts: queued.ingress,
            egress_ts: self.now,
            queue_id: to.number as u8,
            queue_occupancy: queued.found,
            tx_utilization: self.port_queues[port].out.utilization(self.now),
            buffer_occupancy: queued.buffered,
            l2_interfaces: [from.logical, to.logical],
            mtu: to.mtu,
            from_edge: from.is_source(),
            to_edge: to.is_sink(),
            from_border: from.is_sink(),
        };
        self.switch
            .forward(&mut queued.bytes, &visit, &mut self.outbox)
            .verdict
    }

    /// Handles the arrival of a frame at the end of a link.
    fn arrive(&mut self, port: u16, direction: Direction, slot: u32, epoch: u32, out: &mut dyn Wires) {
        let index = usize::from(port);
        if self.link_queue(index, direction).epoch() != epoch {
            return self.lose(slot, index, Drop::LinkDown);
        }
        match direction {
            Direction::In => {
                // The simulated ingress link delayed the frame, so its arrival is now.
                if !self.port_queues[index].into.is_plain() {
                    self.frames[slot as usize].ingress = self.now;
                }
                self.route(slot, out);
            }
            Direction::Out => {
                let queued = &mut self.frames[slot as usize];
                let stats = &mut self.stats.ports[index];
                stats.sent += 1;
                stats.sent_bytes += queued.bytes.len() as u64;
                out.send(index, &mut queued.bytes);
                self.release(slot);
            }
        }
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
        let again = config.ports[..index]
            .iter()
            .any(|other| other.number == port.number);
        if port.number == 0 || again {
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

//! A reporter and a sink for tests of the collector. [`Sent`] is a template of a report that encodes itself as Report 0.5, 1.0
//! or 2.0; [`Bench`] drives a collector with a simulated clock; [`Log`] records its events as text, one per line.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use collector::event::SequenceEvent;
use collector::{
    Collector, Config, Datagram, Drop, Event, FlowRow, Kind, Loss, Output, Profile, Rollup, StreamId,
};
use detect::{Detection, RuleSet, Thresholds};
use wire::int::header::{Md2, Md05, Md10};
use wire::int::shim::{Next, Shim1, Shim2};
use wire::report::{v05, v10, v20};
use wire::{Dialect, Flags, FlowKey, Hop, Layout};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Start time, on a full minute.
pub const START: u64 = 1_700_000_040 * SECOND;

/// The metadata of one hop; `None` is written as all ones (unavailable).
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Node ID of the hop.
    pub id: u32,
    /// Ingress and egress interface.
    pub ports: (u16, u16),
    /// Egress interface of level 2.
    pub level_2: Option<u32>,
    /// Hop latency in device units.
    pub latency: Option<u32>,
    /// Queue ID and occupancy.
    pub queue: Option<(u8, u32)>,
    /// Ingress and egress timestamp.
    pub stamps: Option<(u64, u64)>,
    /// Utilization of the egress link.
    pub utilization: Option<u32>,
    /// Buffer ID and occupancy.
    pub buffer: Option<(u8, u32)>,
    /// Queue ID and congestion status (INT 0.5).
    pub congestion: Option<(u8, u32)>,
}

/// Returns a node with a latency, an almost empty queue and a utilization.
pub const fn node(id: u32) -> Node {
    Node {
        id,
        ports: (1, 2),
        level_2: None,
        latency: Some(1000),
        queue: Some((0, 10)),
        stamps: None,
        utilization: Some(500),
        buffer: None,
        congestion: None,
    }
}

impl Node {
    /// Converts the values to a hop of `wire`.
    pub fn hop(&self) -> Hop {
        Hop {
            node_id: Some(self.id),
            ingress_if: Some(self.ports.0),
            egress_if: Some(self.ports.1),
            l2_egress_if: self.level_2,
            hop_latency: self.latency,
            queue_id: self.queue.map(|(id, _)| id),
            queue_occupancy: self.queue.map(|(_, occupancy)| occupancy),
            ingress_ts: self.stamps.map(|(ingress, _)| ingress),
            egress_ts: self.stamps.map(|(_, egress)| egress),
            tx_utilization: self.utilization,
            buffer_id: self.buffer.map(|(id, _)| id),
            buffer_occupancy: self.buffer.map(|(_, occupancy)| occupancy),
            congestion_queue_id: self.congestion.map(|(id, _)| id),
            queue_congestion: self.congestion.map(|(_, level)| level),
            ..Hop::default()
        }
    }
}

/// Returns a datagram's sequence number stream, its number, and whether decoders refuse it; `None` without a report header.
pub fn stream(datagram: &Datagram<'_>, profile: &wire::Profile) -> Option<(StreamId, u32, bool)> {
    let peeked = wire::peek(datagram.payload, profile);
    let refused = peeked.is_err();
    let peek = peeked
        .or_else(|_| wire::peek_header(datagram.payload, profile))
        .ok()?;
    let version = match peek.version {
        wire::Version::V05 => 5,
        wire::Version::V10 => 10,
        wire::Version::V20 => 20,
    };
    // Report 0.5 has no node ID in the header, so its sender's address identifies the stream.
    let node = peek.node_id.filter(|_| version != 5);
    let source = if node.is_some() { [0; 16] } else { datagram.source };
    Some((
        StreamId {
            version,
            hw_id: peek.hw_id,
            listener: datagram.listener,
            node,
            source,
        },
        peek.seq,
        refused,
    ))
}

/// A report, as a template.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Number of the flow, see [`flow`].
    pub flow: u16,
    /// The flow is IPv6, not IPv4.
    pub v6: bool,
    /// Time to live or hop limit of the packet.
    pub ttl: u8,
    /// The nodes, in the order of the packet's path.
    pub hops: Vec<Node>,
    /// Instruction bitmap of the INT header.
    pub bitmap: u16,
    /// Node ID of the reporter.
    pub reporter: u32,
    /// Hardware ID: the subsystem of the reporter.
    pub hw_id: u8,
    /// Sequence number of the report.
    pub seq: u32,
    /// Flags of the report.
    pub flags: Flags,
    /// Flags of the INT header.
    pub int_flags: wire::int::Flags,
    /// Remaining hop count at the source; every hop's metadata reduces it by one.
    pub initial: u8,
    /// Metadata bits of the report header (Report 1.0, six bits): items of the reporter itself, such as the drop reason.
    pub metadata: u8,
    /// Drop reason code, if the report has one.
    pub reason: Option<u8>,
}

impl Default for Sent {
    fn default() -> Self {
        Self {
            flow: 1,
            v6: false,
            ttl: 64,
            hops: vec![node(1), node(2), node(3)],
            bitmap: 0xfd00,
            reporter: 3,
            hw_id: 0,
            seq: 0,
            flags: Flags::FLOW,
            int_flags: wire::int::Flags::default(),
            initial: u8::MAX,
            metadata: 0,
            reason: None,
        }
    }
}

/// Returns the flow with this number, which determines the source port.
pub fn flow(number: u16, v6: bool) -> FlowKey {
    let ports = Some((1000 + number, 80));
    if v6 {
        FlowKey::new(V6_SRC.into(), V6_DST.into(), ports, 17)
    } else {
        FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], ports, 17)
    }
}

const V6_SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const V6_DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

impl Sent {
    /// Encodes the report as Report 1.0 with INT 1.0.
    pub fn v10(&self) -> Vec<u8> {
        // A reporter with its metadata in the header is not on the stack.
        let stacked = if self.metadata == 0 {
            &self.hops[..]
        } else {
            &self.hops[..self.hops.len() - 1]
        };
        self.v10_about(|out| self.packet(stacked, out))
    }

    /// Encodes the report as Report 1.0 with INT 0.5, whose bitmap has the congestion status in place of level-2 interfaces.
    pub fn v10_of_int_05(&self) -> Vec<u8> {
        self.v10_about(|out| self.packet_05(out))
    }

    /// Encodes Report 1.0 with the packet that `packet` writes.
    fn v10_about(&self, packet: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
        let own = self.hops.last().map(Node::hop).unwrap_or_default();
        let mut bytes = vec![0; 2048];
        let next = if self.v6 {
            v10::NextProtocol::Ipv6
        } else {
            v10::NextProtocol::Ipv4
        };
        let header = v10::Repr {
            next,
            bits: self.metadata,
            flags: self.flags,
            hw_id: self.hw_id,
            switch_id: self.reporter,
            seq: self.seq,
            ingress_ts: 7,
            metadata: own,
            drop_reason: self.reason,
        };
        let mut at = header.emit(Dialect::Strict, &mut bytes);
        at += packet(&mut bytes[at..]);
        bytes.truncate(at);
        bytes
    }

    /// Encodes reports as one datagram of Report 2.0 with INT 2.1.
    pub fn v20(sent: &[Self]) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        let group = v20::Group {
            hw_id: sent[0].hw_id,
            seq: sent[0].seq,
            node_id: sent[0].reporter,
        };
        let mut builder = v20::GroupBuilder::new(&mut bytes, group).unwrap();
        for one in sent {
            let mut packet = vec![0; 2048];
            let length = one.packet_2(&mut packet);
            let inner = if one.v6 {
                v20::Inner::Ipv6(&packet[..length])
            } else {
                v20::Inner::Ipv4(&packet[..length])
            };
            let repr = v20::Repr {
                flags: one.flags,
                main: None,
                inner,
                ignored_md_length: 0,
            };
            assert!(builder.push(&repr));
        }
        builder.finish().to_vec()
    }

    /// Encodes the first hop as a postcard: Report 2.0 with the reporter's metadata and the packet's headers.
    pub fn postcard(&self) -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        let own = self.hops[0];
        let group = v20::Group {
            hw_id: self.hw_id,
            seq: self.seq,
            node_id: own.id,
        };
        let mut packet = vec![0; 2048];
        let length = self.headers(0, 0, &mut packet);
        let main = v20::MainRepr {
            bits: self.bitmap & 0x7fff,
            ds_id: 0,
            ds_bits: 0,
            ds_status: 0,
            metadata: own.hop(),
            drop_reason: self.reason,
            domain: &[],
        };
        let repr = v20::Repr::new(self.flags, main, v20::Inner::Ipv4(&packet[..length]));
        let mut builder = v20::GroupBuilder::new(&mut bytes, group).unwrap();
        assert!(builder.push(&repr));
        builder.finish().to_vec()
    }

    /// Encodes the first hop as a local report of one switch (Report 0.5).
    pub fn v05(&self) -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        let own = self.hops[0].hop();
        let kind = v05::Kind::Local { metadata: own };
        let ingress_ts = own.ingress_ts.unwrap_or(0) as u32;
        let header = v05::Repr {
            flags: self.flags,
            hw_id: self.hw_id,
            seq: self.seq,
            ingress_ts,
            kind,
        };
        let mut at = header.emit(Dialect::Strict, &mut bytes);
        bytes[at + 12..at + 14].copy_from_slice(&[0x08, 0]);
        at += 14;
        at += self.headers(0, 0, &mut bytes[at..]);
        bytes.truncate(at);
        bytes
    }

    /// Writes IP, UDP, INT 1.0 and its stack. Returns the length in bytes.
    fn packet(&self, hops: &[Node], out: &mut [u8]) -> usize {
        let layout = Layout::int_10(self.bitmap, self.bitmap.count_ones() as u8, Dialect::Strict).unwrap();
        let int = 12 + hops.len() * layout.len();
        let at = self.headers(0x17, int, out);
        let body = &mut out[at..at + int];
        Shim1 {
            kind: 1,
            length: (int / 4) as u8,
            last: 0,
        }
        .emit(body);
        Md10 {
            hop_ml: layout.words(),
            remaining: self.initial.saturating_sub(hops.len() as u8),
            bitmap: self.bitmap,
            flags: self.int_flags,
            ..Md10::default()
        }
        .emit(&mut body[4..]);
        for (hop, record) in hops.iter().rev().zip(body[12..].chunks_exact_mut(layout.len())) {
            layout.write(&hop.hop(), record);
        }
        at + int
    }

    /// Writes IP, UDP, INT 0.5, its stack and its tail. Returns the length in bytes.
    fn packet_05(&self, out: &mut [u8]) -> usize {
        let layout = Layout::int_05(self.bitmap);
        let int = 16 + self.hops.len() * layout.len();
        let at = self.headers(0x17, int, out);
        let body = &mut out[at..at + int];
        Shim1 {
            kind: 1,
            length: (int / 4) as u8,
            last: 0,
        }
        .emit(body);
        Md05 {
            flags: self.int_flags,
            replication: 0,
            max_hops: self.initial,
            total_hops: self.hops.len() as u8,
            bitmap: self.bitmap,
        }
        .emit(&mut body[4..]);
        for (hop, record) in self
            .hops
            .iter()
            .rev()
            .zip(body[12..].chunks_exact_mut(layout.len()))
        {
            layout.write(&hop.hop(), record);
        }
        // The original protocol and port are those of the headers.
        body[int - 4..].copy_from_slice(&[17, 0, 80, 0]);
        at + int
    }

    /// Writes IP, UDP, INT 2.1 and its stack. Returns the length in bytes.
    fn packet_2(&self, out: &mut [u8]) -> usize {
        let words = self.bitmap.count_ones() + (self.bitmap & 0x0e00).count_ones();
        let layout = Layout::int_2(self.bitmap, words as u8, false).unwrap();
        let int = 16 + self.hops.len() * layout.len();
        let at = self.headers(0x17, int, out);
        let body = &mut out[at..at + int];
        Shim2 {
            kind: Shim2::MD,
            length: (int / 4 - 1) as u8,
            next: Next::Dscp(0),
        }
        .emit(body);
        Md2 {
            flags: self.int_flags,
            hop_ml: layout.words(),
            remaining: self.initial.saturating_sub(self.hops.len() as u8),
            bitmap: self.bitmap,
            ..Md2::default()
        }
        .emit(&mut body[4..]);
        for (hop, record) in self
            .hops
            .iter()
            .rev()
            .zip(body[16..].chunks_exact_mut(layout.len()))
        {
            layout.write(&hop.hop(), record);
        }
        at + int
    }

    /// Writes IP and UDP headers for `payload` bytes. Returns their length.
    fn headers(&self, dscp: u8, payload: usize, out: &mut [u8]) -> usize {
        let length = (8 + payload as u16).to_be_bytes();
        let at = if self.v6 {
            let class = dscp << 2;
            out[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
            out[4..6].copy_from_slice(&length);
            out[6..8].copy_from_slice(&[17, self.ttl]);
            out[8..24].copy_from_slice(&V6_SRC.octets());
            out[24..40].copy_from_slice(&V6_DST.octets());
            40
        } else {
            let total = (28 + payload as u16).to_be_bytes();
            out[..8].copy_from_slice(&[0x45, dscp << 2, total[0], total[1], 0, 0, 0x40, 0]);
            out[8..12].copy_from_slice(&[self.ttl, 17, 0, 0]);
            out[12..16].copy_from_slice(&[10, 0, 0, 1]);
            out[16..20].copy_from_slice(&[10, 0, 0, 2]);
            20
        };
        out[at..at + 2].copy_from_slice(&(1000 + self.flow).to_be_bytes());
        out[at + 2..at + 4].copy_from_slice(&80_u16.to_be_bytes());
        out[at + 4..at + 6].copy_from_slice(&length);
        at + 8
    }
}

/// Builds detection settings from thresholds, in the order of the metrics, and rules as pairs of name and text.
pub fn detection(thresholds: [u64; 6], rules: &[(&str, &str)]) -> Arc<Detection> {
    let rules: Vec<_> = rules
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    Arc::new(Detection {
        thresholds: Thresholds::new(thresholds, Vec::new()).unwrap(),
        rules: RuleSet::compile(&rules).unwrap(),
        generation: 1,
    })
}

/// Returns the settings of a small collector that detects changes and does not push unchanged values.
pub fn config() -> Config {
    Config {
        max_flows: 1024,
        max_nodes: 64,
        max_queues: 256,
        max_links: 256,
        max_sources: 32,
        push_interval: 0,
        detection: detection([0, 100, 100, 5, 5, 100], &[]),
        ..Config::default()
    }
}

/// A collector with a simulated clock and a log.
#[derive(Debug)]
pub struct Bench {
    /// The collector under test.
    pub collector: Collector,
    /// The time, in nanoseconds since 1970.
    pub now: u64,
    /// Output of the collector.
    pub log: Log,
    seq: u32,
}

impl Bench {
    /// Creates a collector whose clock starts at [`START`].
    pub fn new(config: Config) -> Self {
        Self {
            collector: Collector::new(config),
            now: START,
            log: Log::default(),
            seq: 0,
        }
    }

    /// Passes a datagram from 192.0.2.1 to the collector, one microsecond after the last one.
    pub fn deliver(&mut self, payload: &[u8]) -> &mut Self {
        self.deliver_from(payload, [192, 0, 2, 1])
    }

    /// Passes a datagram from another address to the collector.
    pub fn deliver_from(&mut self, payload: &[u8], source: [u8; 4]) -> &mut Self {
        self.now += 1000;
        let datagram = Datagram {
            payload,
            source: Ipv4Addr::from(source).to_ipv6_mapped().octets(),
            src_port: 5000,
            listener: 0,
            received: self.now,
        };
        self.collector.handle(&[datagram], &mut self.log);
        self
    }

    /// Sends a report 1.0 with the next sequence number.
    pub fn send(&mut self, sent: &Sent) -> &mut Self {
        self.seq += 1;
        let bytes = Sent {
            seq: self.seq,
            ..sent.clone()
        }
        .v10();
        self.deliver(&bytes)
    }

    /// Advances the clock by `nanos`, with ten ticks per second.
    pub fn pass(&mut self, nanos: u64) -> &mut Self {
        let end = self.now + nanos;
        while self.now < end {
            self.now = (self.now + SECOND / 10).min(end);
            self.collector.tick(self.now, &mut self.log);
        }
        self
    }

    /// Returns the lines written since the last call.
    pub fn collected(&mut self) -> String {
        std::mem::take(&mut self.log.text)
    }
}

/// Records events, one per line, and the other output of a collector.
#[derive(Default, Debug)]
pub struct Log {
    /// Events as text, one per line.
    pub text: String,
    /// Events, as the collector emits them.
    pub events: Vec<Event>,
    /// Rollups of all metrics.
    pub rollups: Vec<Rollup>,
    /// Rows of the flow table, each with its path.
    pub rows: Vec<(FlowRow, Vec<u32>)>,
    /// Packets that switches dropped.
    pub drops: Vec<Drop>,
    /// Lost, reordered and duplicated reports.
    pub losses: Vec<Loss>,
    /// Events about sequence numbers.
    pub notes: Vec<SequenceEvent>,
}

impl Output for Log {
    fn event(&mut self, event: &Event, path: &[u32]) {
        self.events.push(*event);
        let is_rule = matches!(event.kind, Kind::RuleOn | Kind::RuleOff);
        // Which comparison made a rule true is tested elsewhere, so the line does not say it.
        let blank = Event {
            metric: None,
            node: None,
            interface: None,
            queue: None,
            value: None,
            threshold: None,
            ..*event
        };
        let event = if is_rule { &blank } else { event };
        let text = &mut self.text;
        let _ = write!(text, "{}", event.kind.name());
        if let Some(metric) = event.metric {
            let _ = write!(text, " {}", metric.name());
        }
        if let Some(flow) = event.flow {
            // The source port of a flow is 1000 plus its number.
            let _ = write!(text, " flow={}", i32::from(flow.src_port().unwrap_or(0)) - 1000);
        }
        if event.kind != Kind::New || event.metric != Some(detect::Metric::FlowPath) {
            for (name, id) in [
                ("node", event.node),
                ("if", event.interface),
                ("queue", event.queue.map(u32::from)),
                ("rule", event.rule.map(u32::from)),
                ("reason", event.reason.map(u32::from)),
            ] {
                if let Some(id) = id {
                    let _ = write!(text, " {name}={id}");
                }
            }
        }
        if let Some(previous) = event.previous {
            let _ = write!(text, " {previous}->");
        } else if event.value.is_some() {
            text.push(' ');
        }
        if let Some(value) = event.value {
            let _ = write!(text, "{value}");
        }
        if event.basis != collector::event::Basis::Measured {
            let _ = write!(text, " {:?}", event.basis);
        }
        if !path.is_empty() {
            let nodes: Vec<String> = path.iter().map(u32::to_string).collect();
            let _ = write!(text, " path={}", nodes.join(">"));
        }
        text.push('\n');
    }

    fn rollup(&mut self, rollup: &Rollup) {
        self.rollups.push(*rollup);
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        self.rows.push((*row, path.to_vec()));
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.drops.push(*drop);
    }

    fn loss(&mut self, loss: &Loss) {
        self.losses.push(*loss);
    }

    fn sequence(&mut self, note: &SequenceEvent) {
        self.notes.push(*note);
    }
}

/// Returns a profile whose timestamps and latencies have these units, in nanoseconds.
pub fn profile(stamp_ns: u32, latency_ns: u32) -> Profile {
    Profile {
        timestamp_unit_ns: stamp_ns,
        latency_unit_ns: latency_ns,
        ..Profile::default()
    }
}

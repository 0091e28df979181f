//! The exported records and their fields: the schema of all export formats. Names and numbers of fields are stable, because
//! other programs depend on them.

use std::sync::Arc;

use collector::event::{Basis, Drop, Event, FlowRow, Kind, Loss, Rollup, Stream as Stored};
use detect::Metric;
use wire::FlowKey;

use crate::delivery::Keyed;
use crate::hop::Hop;

/// Schema version. Fields are only added.
pub const SCHEMA: u64 = 1;

wire::named! {
    /// A stream: records of one kind.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Stream, message {
        /// Significant changes of metrics and paths.
        Events => "Event",
        /// A metric of a key over an interval.
        Rollups => "Rollup",
        /// The latest state of a flow.
        Flows => "FlowState",
        /// Dropped packets that switches reported.
        Drops => "Drop",
        /// Reports that were lost in transit to the collector.
        Losses => "Loss",
        /// Rules that became true or false: a part of the events, in a form of their own.
        Alerts => "Alert",
        /// The hops of reports. They are not stored.
        Hops => "Hop",
    }
}

impl Stream {
    /// Returns the name in topics, tables and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => Stored::Events.name(),
            Self::Rollups => Stored::Rollups.name(),
            Self::Flows => Stored::Flows.name(),
            Self::Drops => Stored::Drops.name(),
            Self::Losses => Stored::Losses.name(),
            Self::Alerts => "alerts",
            Self::Hops => "hops",
        }
    }

    /// Returns the stream of the store from which it is read, or `None` for `hops`, which are not stored.
    pub fn stored(self) -> Option<Stored> {
        match self {
            Self::Events | Self::Alerts => Some(Stored::Events),
            Self::Rollups => Some(Stored::Rollups),
            Self::Flows => Some(Stored::Flows),
            Self::Drops => Some(Stored::Drops),
            Self::Losses => Some(Stored::Losses),
            Self::Hops => None,
        }
    }

    /// Returns the fields of its records after the [`COMMON`] ones, in order.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Events => &EVENT,
            Self::Rollups => &ROLLUP,
            Self::Flows => &FLOW,
            Self::Drops => &DROP,
            Self::Losses => &LOSS,
            Self::Alerts => &ALERT,
            Self::Hops => &HOP,
        }
    }
}

/// A field of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name, also in JSON.
    pub name: &'static str,
    /// Text before the value in JSON: `,"name":`.
    pub json: &'static str,
    /// Field number in the protobuf message.
    pub number: u32,
    /// The type of the value.
    pub kind: FieldKind,
    /// The description for readers of the data.
    pub about: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// A number, `uint64` in Protobuf.
    Number,
    /// Nanoseconds since 1970: `fixed64`.
    Time,
    /// A 64-bit identifier: `fixed64`, in JSON 16 hexadecimal digits.
    Id,
    /// A text, `string` in Protobuf.
    Text,
    /// 32-bit numbers: `repeated uint32`; `u32::MAX` means unavailable, null in JSON.
    Numbers,
    /// A 5-tuple, the message `Flow` in Protobuf.
    Flow,
    /// An address: `bytes`, 4 or 16.
    Address,
}

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// The record has no such value.
    Absent,
    /// A number or a time.
    Number(u64),
    /// An id of 64 bits.
    Id(u64),
    /// A text in UTF-8.
    Text(&'a str),
    /// A list of numbers of 32 bits.
    Numbers(&'a [u32]),
    /// The 5-tuple of a flow.
    Flow(&'a FlowKey),
    /// An address, IPv4 mapped into IPv6.
    Address(&'a [u8; 16]),
}

macro_rules! fields {
    ($($(#[doc = $about:literal])+ $visibility:vis const $list:ident: [$($number:literal $name:literal $kind:ident $text:literal,)+];)+) => {$(
        $(#[doc = $about])+
        $visibility const $list: [Field; [$($number),+].len()] =
            [$(Field { name: $name, json: concat!(",\"", $name, "\":"), number: $number, kind: FieldKind::$kind, about: $text }),+];
    )+};
}

fields! {
    /// The fields of every record.
    pub const COMMON: [
        1 "id" Id "The same for one record, whether two collectors received it or it was sent twice.",
        2 "ts" Time "Event time.",
        3 "collector" Text "Who observed it.",
        4 "schema" Number "Version of this schema.",
    ];
    /// A significant change of a metric.
    const EVENT: [
        10 "kind" Text "new, change, path_change, path_loop, rule_on, rule_off, drop, loss, expired, hop_limit, mtu, latest, packet_loss.",
        11 "metric" Text "The metric that changed.",
        12 "flow" Flow "The flow.",
        13 "node" Number "The node.",
        14 "interface" Number "The interface.",
        15 "queue" Number "The queue.",
        16 "value" Number "The new value, in the unit of the metric.",
        17 "previous" Number "The value that was reported before.",
        18 "threshold" Number "The threshold that was exceeded.",
        19 "rule" Text "The rule that became true or false.",
        20 "reason" Number "Drop reason, the code of the device.",
        21 "basis" Text "How the value was obtained, or the order of the path.",
        22 "path" Numbers "Node ids in forwarding order.",
        23 "flow_latency" Number "Of a new flow: the latency of the same report, ns.",
        24 "latency_basis" Text "How it was obtained.",
        25 "hop_latencies" Numbers "Of a new flow: ns, in the order of the path.",
    ];
    /// A metric of a key over an interval.
    const ROLLUP: [
        10 "interval" Number "Length of the interval, s. `ts` is its start.",
        11 "metric" Text "The metric.",
        12 "flow" Flow "The flow.",
        13 "node" Number "The node.",
        14 "interface" Number "The egress interface.",
        15 "queue" Number "The queue.",
        16 "count" Number "Number of values.",
        17 "min" Number "Minimum.",
        18 "max" Number "Maximum.",
        19 "sum" Number "Sum.",
        20 "p50" Number "Median, from a sketch.",
        21 "p99" Number "99th percentile, from a sketch.",
        22 "part" Id "Several workers or processes of a collector each send a part of one rollup (one key and time); parts are added up. This number distinguishes them; a part that is sent again has the same number.",
    ];
    /// The latest state of a flow.
    const FLOW: [
        12 "flow" Flow "The flow.",
        16 "flow_latency" Number "Latest latency, ns.",
        17 "basis" Text "How it was obtained.",
        18 "first_seen" Time "First report.",
        19 "last_seen" Time "Latest report; also `ts`.",
        20 "reports" Number "Reports so far.",
        22 "path" Numbers "Node ids in forwarding order.",
    ];
    /// A packet that a node dropped.
    const DROP: [
        12 "flow" Flow "The flow of the packet.",
        13 "node" Number "The node that dropped it.",
        14 "ingress_if" Number "Ingress interface.",
        15 "queue" Number "The queue.",
        16 "egress_if" Number "Intended egress interface.",
        20 "reason" Number "The code of the device.",
        21 "tunnel_src" Address "Of a tunnelled packet, the address outside that sent it.",
        22 "tunnel_dst" Address "The address outside that it was sent to.",
    ];
    /// Lost reports of a reporter.
    const LOSS: [
        13 "node" Number "The reporter, if its reports say so.",
        14 "source" Address "The address that the reports came from.",
        15 "hw_id" Number "Subsystem of the reporter.",
        16 "lost" Number "Reports that did not arrive.",
        17 "reordered" Number "Reports that arrived in another order.",
        18 "duplicated" Number "Reports that arrived twice.",
    ];
    /// A rule that became true or false.
    const ALERT: [
        10 "alert" Id "The same for one rule and subject, each time that it fires.",
        11 "rule" Text "The name of the rule.",
        12 "flow" Flow "The flow of the alert.",
        13 "node" Number "The node of the alert; of a flow, the node with the value.",
        14 "interface" Number "The interface.",
        15 "queue" Number "The queue, likewise.",
        16 "state" Text "firing: the rule became true; resolved: it became false.",
        17 "metric" Text "The metric of the comparison that decided. resolved: none if the flow has ended.",
        18 "value" Number "Its value, in the unit of the metric.",
        19 "threshold" Number "The value that it was compared with, likewise.",
        20 "since" Time "When the rule became true. resolved: none if it is no longer stored.",
    ];
    /// One hop of one report.
    const HOP: [
        10 "report" Id "The same for all hops of a report.",
        11 "hop" Number "Place in the report, in forwarding order, from 0.",
        12 "flow" Flow "The flow.",
        13 "node" Number "The node.",
        14 "ingress_if" Number "Ingress interface.",
        15 "queue" Number "The queue.",
        16 "egress_if" Number "Egress interface: of level 1, or that of level 2 if only this one is reported.",
        17 "hops" Number "Hops of the report.",
        18 "hop_latency" Number "Time in the node, ns: reported, or egress less ingress; absent if implausible.",
        19 "queue_occupancy" Number "Occupancy of the queue, in the unit of the device.",
        20 "queue_congestion" Number "Congestion status of the queue (INT 0.5), in the unit of the device.",
        21 "link_utilization" Number "Utilization of the egress link, millionths.",
        22 "ingress_ts" Number "Ingress time by the node's clock, ns: all 64 bits, or the lower 32.",
        23 "egress_ts" Number "Egress time, likewise.",
    ];
}

/// A record of a stream.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A record of `events`.
    Event(Box<EventRecord>),
    /// A record of `rollups`.
    Rollup(Box<RollupPart>),
    /// A record of `flows`, with the path.
    Flow(Box<(FlowRow, Vec<u32>)>),
    /// A record of `drops`.
    Drop(Box<Drop>),
    /// A record of `losses`.
    Loss(Box<LossRecord>),
    /// A record of `alerts`.
    Alert(Box<Alert>),
    /// A record of `hops`.
    Hop(Box<Hop>),
}

/// A record whose fields can be visited.
pub trait Fields {
    /// Calls `each` for all fields of the stream, in order, the common ones first.
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>));
}

impl<F: Fields> Fields for &F {
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>)) {
        (**self).visit_fields(each);
    }
}

/// A record of this process with the name of its collector.
impl Fields for (&Record, &str) {
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>)) {
        self.0.visit_all(self.1, each);
    }
}

/// A stored rollup. Each worker and process may contribute a part for the same key and time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RollupPart {
    /// The stored values of the rollup.
    pub rollup: Rollup,
    /// Number in the store, which is unique among the parts; 0 if it has none.
    pub part: u64,
    /// Number of earlier parts with the same key and time, for sinks that need a small distinguishing number.
    pub nth: u16,
}

impl RollupPart {
    /// Returns the ID shared by all parts of a rollup.
    pub fn id(&self) -> u64 {
        hash([
            self.ts,
            flow_id(self.flow.as_ref()),
            self.interval.into(),
            self.metric as u64,
            self.node.map_or(u64::MAX, u64::from),
            self.interface.map_or(u64::MAX, u64::from),
            self.queue.map_or(u64::MAX, u64::from),
        ])
    }
}

impl std::ops::Deref for RollupPart {
    type Target = Rollup;

    fn deref(&self) -> &Rollup {
        &self.rollup
    }
}

impl std::ops::DerefMut for RollupPart {
    fn deref_mut(&mut self) -> &mut Rollup {
        &mut self.rollup
    }
}

/// A stored loss record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossRecord {
    /// The counts, and the sender to which they belong.
    pub loss: Loss,
    /// Number in the store, which is unique among its losses; 0 if it has none. A sender may have several streams, and a stream
    /// several losses at one time, so time and sender do not identify a record.
    pub number: u64,
}

impl LossRecord {
    /// Returns the ID of the record. One without a number has the ID that earlier versions gave it.
    pub fn id(&self) -> u64 {
        let node = self.node.map_or(u64::MAX, u64::from);
        let numbers = [node, self.hw_id.into()];
        let number = Some(self.number).filter(|number| *number != 0);
        let sender = u64_words(&self.source).chain(numbers);
        hash([self.ts].into_iter().chain(sender).chain(number))
    }
}

impl std::ops::Deref for LossRecord {
    type Target = Loss;

    fn deref(&self) -> &Loss {
        &self.loss
    }
}

/// A rule that started or stopped firing.
#[derive(Clone, PartialEq, Debug)]
pub struct Alert {
    /// Time of the change, ns since 1970.
    pub ts: u64,
    /// ID of the event: equal changes have equal IDs.
    pub id: u64,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// True if the rule started to fire.
    pub is_firing: bool,
    /// The flow that the alert is about.
    pub flow: Option<FlowKey>,
    /// The node that the alert is about.
    pub node: Option<u32>,
    /// The interface of the node.
    pub interface: Option<u32>,
    /// The queue of the node.
    pub queue: Option<u8>,
    /// Metric of the deciding comparison; `None` if the rule stopped because the flow ended.
    pub metric: Option<Metric>,
    /// The value of the metric.
    pub value: Option<u64>,
    /// The threshold that the value was compared with.
    pub threshold: Option<u64>,
    /// Time when the rule started to fire, ns, if known.
    pub since: Option<u64>,
}

impl Alert {
    /// Returns the alert of an event, or `None` for an event of another kind.
    pub fn from_event(event: &Event, rule: Option<Arc<str>>) -> Option<Self> {
        let is_firing = match event.kind {
            Kind::RuleOn => true,
            Kind::RuleOff => false,
            _ => return None,
        };
        // If the rule's name was lost, its index stands in.
        let rule = rule.filter(|rule| !rule.is_empty());
        let rule = rule.unwrap_or_else(|| format!("rule {}", event.rule.unwrap_or_default()).into());
        Some(Self {
            ts: event.ts,
            id: event.id,
            rule,
            is_firing,
            flow: event.flow,
            node: event.node,
            interface: event.interface,
            queue: event.queue,
            metric: event.metric,
            value: event.value,
            threshold: event.threshold,
            since: is_firing.then_some(event.ts),
        })
    }

    /// Returns the node, interface and queue that the alert is about. All are `None` for a flow's rule: there they only say
    /// where the value was measured, and may differ when the rule stops firing.
    pub fn location(&self) -> [Option<u32>; 3] {
        match self.flow {
            Some(_) => [None; 3],
            None => [self.node, self.interface, self.queue.map(u32::from)],
        }
    }

    /// Returns the alert's ID, equal for equal rule, flow and location.
    pub fn alert(&self) -> u64 {
        // The length makes the encoding of the name unambiguous.
        let name = u64_words(self.rule.as_bytes());
        let location = self.location().map(|part| part.map_or(u64::MAX, u64::from));
        let start = [self.rule.len() as u64, flow_id(self.flow.as_ref())];
        hash(start.into_iter().chain(location).chain(name))
    }

    /// Returns `firing` or `resolved`.
    pub fn state(&self) -> &'static str {
        if self.is_firing { "firing" } else { "resolved" }
    }
}

/// An event with its rule, its path and the first values of its flow.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRecord {
    /// The event of this record.
    pub event: Event,
    /// The name of the event's rule.
    pub rule: Option<Arc<str>>,
    /// Nodes in forwarding order.
    pub path: Vec<u32>,
    /// For a new flow: its latency (ns), the latency's basis, and its hop latencies (ns).
    pub first: Option<(Option<u64>, Basis, Vec<u32>)>,
}

impl Record {
    /// Returns the stream of the record.
    pub fn stream(&self) -> Stream {
        match self {
            Self::Event(_) => Stream::Events,
            Self::Rollup(_) => Stream::Rollups,
            Self::Flow(_) => Stream::Flows,
            Self::Drop(_) => Stream::Drops,
            Self::Loss(_) => Stream::Losses,
            Self::Alert(_) => Stream::Alerts,
            Self::Hop(_) => Stream::Hops,
        }
    }

    /// Returns the kind of an event, the state of an alert, or else the name of the stream.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Event(one) => one.event.kind.name(),
            Self::Alert(one) => one.state(),
            _ => self.stream().name(),
        }
    }

    /// Returns true if the record reports a fault: a drop, lost packets or reports, a loop, or a firing rule.
    pub fn is_wrong(&self) -> bool {
        match self {
            Self::Event(one) => {
                matches!(
                    one.event.kind,
                    Kind::RuleOn | Kind::PathLoop | Kind::Drop | Kind::Loss | Kind::PacketLoss
                )
            }
            Self::Drop(_) | Self::Loss(_) => true,
            Self::Alert(one) => one.is_firing,
            Self::Rollup(_) | Self::Flow(_) | Self::Hop(_) => false,
        }
    }

    /// Returns the event time, ns since 1970.
    pub fn ts(&self) -> u64 {
        match self {
            Self::Event(one) => one.event.ts,
            Self::Rollup(one) => one.ts,
            Self::Flow(one) => one.0.last_seen,
            Self::Drop(one) => one.ts,
            Self::Loss(one) => one.ts,
            Self::Alert(one) => one.ts,
            Self::Hop(one) => one.ts,
        }
    }

    /// Returns the flow that the record is about.
    pub fn flow(&self) -> Option<&FlowKey> {
        match self {
            Self::Event(one) => one.event.flow.as_ref(),
            Self::Rollup(one) => one.flow.as_ref(),
            Self::Flow(one) => Some(&one.0.flow),
            Self::Drop(one) => one.flow.as_ref(),
            Self::Loss(_) => None,
            Self::Alert(one) => one.flow.as_ref(),
            Self::Hop(one) => one.flow.as_ref(),
        }
    }

    /// Returns the node that the record is about.
    pub fn node(&self) -> Option<u32> {
        match self {
            Self::Event(one) => one.event.node,
            Self::Rollup(one) => one.node,
            Self::Flow(_) => None,
            Self::Drop(one) => one.node,
            Self::Loss(one) => one.node,
            Self::Alert(one) => one.node,
            Self::Hop(one) => one.node,
        }
    }

    /// Returns the id of the record: equal records have equal ids.
    pub fn id(&self) -> u64 {
        match self {
            Self::Event(one) => one.event.id,
            Self::Drop(one) => one.id,
            Self::Alert(one) => one.id,
            Self::Hop(one) => hash([one.report, one.hop.into()]),
            Self::Rollup(one) => one.id(),
            Self::Flow(one) => hash([flow_id(Some(&one.0.flow)), one.0.last_seen]),
            Self::Loss(one) => one.id(),
        }
    }

    /// Returns the ID of the record's row in a collector. It differs from the record's ID for rollups, because each part is a
    /// row.
    pub(crate) fn row_id(&self, collector: &str) -> u64 {
        match self {
            Self::Rollup(one) if one.part != 0 => hash(
                [self.id(), one.part]
                    .into_iter()
                    .chain(u64_words(collector.as_bytes())),
            ),
            _ => self.id(),
        }
    }

    /// Calls `each` for all fields, in order. `collector` is the name of this collector.
    pub fn visit_all(&self, collector: &str, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let common = [
            Value::Id(self.id()),
            Value::Number(self.ts()),
            Value::Text(collector),
            Value::Number(SCHEMA),
        ];
        for (field, value) in COMMON.iter().zip(common) {
            each(field, value);
        }
        self.visit(each);
    }

    /// Calls `each` for the fields after the common ones, in order.
    pub fn visit(&self, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let mut fields = self.stream().fields().iter();
        self.visit_values(|value| {
            if let Some(field) = fields.next() {
                each(field, value);
            }
        });
    }

    /// Calls `next` with the values of the fields after the common ones, in order.
    fn visit_values(&self, next: impl FnMut(Value<'_>)) {
        match self {
            Self::Event(event) => visit_event(event, next),
            Self::Rollup(rollup) => visit_rollup(rollup, next),
            Self::Flow(flow) => visit_flow(&flow.0, &flow.1, next),
            Self::Drop(drop) => visit_drop(drop, next),
            Self::Loss(loss) => visit_loss(loss, next),
            Self::Alert(alert) => visit_alert(alert, next),
            Self::Hop(hop) => visit_hop(hop, next),
        }
    }
}

fn visit_rollup(rollup: &RollupPart, mut next: impl FnMut(Value<'_>)) {
    next(small(Some(rollup.interval)));
    next(Value::Text(rollup.metric.name()));
    next(rollup.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(rollup.node));
    next(small(rollup.interface));
    next(small(rollup.queue.map(u32::from)));
    next(Value::Number(rollup.count));
    next(Value::Number(rollup.min));
    next(Value::Number(rollup.max));
    next(Value::Number(rollup.sum));
    next(number(rollup.p50));
    next(number(rollup.p99));
    next(if rollup.part == 0 {
        Value::Absent
    } else {
        Value::Id(rollup.part)
    });
}

fn visit_flow(row: &FlowRow, path: &[u32], mut next: impl FnMut(Value<'_>)) {
    next(Value::Flow(&row.flow));
    next(number(row.flow_latency));
    next(Value::Text(row.basis.name()));
    next(Value::Number(row.first_seen));
    next(Value::Number(row.last_seen));
    next(Value::Number(row.reports));
    next(Value::Numbers(path));
}

fn visit_drop(drop: &Drop, mut next: impl FnMut(Value<'_>)) {
    next(drop.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(drop.node));
    next(small(drop.ingress_if));
    next(small(drop.queue.map(u32::from)));
    next(small(drop.egress_if));
    next(small(drop.reason.map(u32::from)));
    let tunnel = drop.tunnel.as_ref();
    next(tunnel.map_or(Value::Absent, |tunnel| Value::Address(tunnel.src_octets())));
    next(tunnel.map_or(Value::Absent, |tunnel| Value::Address(tunnel.dst_octets())));
}

fn visit_loss(loss: &Loss, mut next: impl FnMut(Value<'_>)) {
    next(small(loss.node));
    next(Value::Address(&loss.source));
    next(small(Some(loss.hw_id.into())));
    next(Value::Number(loss.lost));
    next(Value::Number(loss.reordered));
    next(Value::Number(loss.duplicated));
}

fn number<'a>(value: Option<u64>) -> Value<'a> {
    value.map_or(Value::Absent, Value::Number)
}

fn small<'a>(value: Option<u32>) -> Value<'a> {
    number(value.map(u64::from))
}

fn visit_alert(alert: &Alert, mut next: impl FnMut(Value<'_>)) {
    next(Value::Id(alert.alert()));
    next(Value::Text(&alert.rule));
    next(alert.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(alert.node));
    next(small(alert.interface));
    next(small(alert.queue.map(u32::from)));
    next(Value::Text(alert.state()));
    next(
        alert
            .metric
            .map_or(Value::Absent, |metric| Value::Text(metric.name())),
    );
    next(number(alert.value));
    next(number(alert.threshold));
    next(number(alert.since));
}

fn visit_hop(hop: &Hop, mut next: impl FnMut(Value<'_>)) {
    next(Value::Id(hop.report));
    next(small(Some(hop.hop.into())));
    next(hop.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(hop.node));
    next(small(hop.ingress_if));
    next(small(hop.queue.map(u32::from)));
    next(small(hop.egress_if));
    next(small(Some(hop.hops.into())));
    next(number(hop.hop_latency));
    next(small(hop.queue_occupancy));
    next(small(hop.queue_congestion));
    next(number(hop.link_utilization));
    next(number(hop.ingress_ts));
    next(number(hop.egress_ts));
}

fn visit_event(record: &EventRecord, mut next: impl FnMut(Value<'_>)) {
    let EventRecord {
        event,
        rule,
        path,
        first,
    } = record;
    next(Value::Text(event.kind.name()));
    next(
        event
            .metric
            .map_or(Value::Absent, |metric| Value::Text(metric.name())),
    );
    next(event.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(event.node));
    next(small(event.interface));
    next(small(event.queue.map(u32::from)));
    next(number(event.value));
    next(number(event.previous));
    next(number(event.threshold));
    next(rule.as_deref().map_or(Value::Absent, Value::Text));
    next(small(event.reason.map(u32::from)));
    next(Value::Text(event.basis.name()));
    next(Value::Numbers(path));
    let latency = first
        .as_ref()
        .and_then(|(latency, basis, _)| latency.map(|latency| (latency, basis)));
    next(number(latency.map(|(latency, _)| latency)));
    next(latency.map_or(Value::Absent, |(_, basis)| Value::Text(basis.name())));
    next(
        first
            .as_ref()
            .map_or(Value::Absent, |(_, _, hops)| Value::Numbers(hops)),
    );
}

impl Keyed for Record {
    /// Returns a hash of the flow, or else of the node; for an alert, the alert's ID.
    fn key(&self) -> u64 {
        if let Self::Alert(one) = self {
            return one.alert();
        }
        match (self.flow(), self.node()) {
            (Some(flow), _) => hash([flow.id()]),
            (None, node) => hash([u64::from(node.unwrap_or(u32::MAX))]),
        }
    }
}

/// Returns the ID of a report from its sender and sequence number (`parts`) and its flow.
pub fn report_id(parts: [u64; 4], flow: Option<&FlowKey>) -> u64 {
    hash(parts.into_iter().chain([flow_id(flow)]))
}

/// Splits bytes into big-endian 64-bit words, for hashing.
fn u64_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks(8)
        .map(|part| part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn flow_id(flow: Option<&FlowKey>) -> u64 {
    flow.map_or(0, FlowKey::id)
}

/// Hashes numbers. The function must never change, because IDs are compared across versions.
pub(crate) fn hash(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0x6a09_e667_f3bc_c908, |state: u64, part| {
        let mixed = (state ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 29
    })
}

//! What leaves the program: records of streams, and their fields with the numbers and names that are promises.

use std::sync::Arc;

use collector::event::{Basis, Drop, Event, FlowRow, Kind, Loss, Rollup, Stream as Stored};
use detect::Metric;
use wire::FlowKey;

use crate::delivery::Keyed;
use crate::hop::Hop;

/// Version of the schema: fields are only added.
pub const SCHEMA: u64 = 1;

/// A stream: records of one kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stream {
    /// Significant changes.
    Events,
    /// A metric of a key over an interval.
    Rollups,
    /// The latest state of a flow.
    Flows,
    /// Dropped packets that switches reported.
    Drops,
    /// Reports that were lost on the way to the collector.
    Losses,
    /// Rules that became true or false: a part of the events, in a form of their own.
    Alerts,
    /// Hops of reports. They are not stored.
    Hops,
}

impl Stream {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Events,
        Self::Rollups,
        Self::Flows,
        Self::Drops,
        Self::Losses,
        Self::Alerts,
        Self::Hops,
    ];

    /// Its name, in topics, tables and settings.
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

    /// The stored stream that it is read from, if it is.
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

    /// The name of its message in `record.proto`.
    pub fn message(self) -> &'static str {
        match self {
            Self::Events => "Event",
            Self::Rollups => "Rollup",
            Self::Flows => "FlowState",
            Self::Drops => "Drop",
            Self::Losses => "Loss",
            Self::Alerts => "Alert",
            Self::Hops => "Hop",
        }
    }

    /// The fields of its records after the [`COMMON`] ones, in order.
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
    /// Its name, also in JSON.
    pub name: &'static str,
    /// What stands before its value in JSON: a comma, its name and a colon.
    pub json: &'static str,
    /// Its number in the message.
    pub number: u32,
    /// What it holds.
    pub kind: FieldKind,
    /// What it means.
    pub about: &'static str,
}

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldKind {
    /// A number: `uint64`.
    Number,
    /// Nanoseconds since 1970: `fixed64`.
    Time,
    /// 64 bits without order: `fixed64`, in JSON 16 hexadecimal digits.
    Id,
    /// Text: `string`.
    Text,
    /// Numbers of 32 bits: `repeated uint32`; all ones are unavailable, in JSON null.
    Numbers,
    /// A 5-tuple: `Flow`.
    Flow,
    /// An address: `bytes`, 4 or 16.
    Address,
}

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// There is none.
    Absent,
    /// Of a number or a time.
    Number(u64),
    /// Of an id.
    Id(u64),
    /// Text.
    Text(&'a str),
    /// Numbers of 32 bits.
    Numbers(&'a [u32]),
    /// A 5-tuple.
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
        1 "id" Id "The same for the same thing: heard by two collectors, or sent twice.",
        2 "ts" Time "Event time.",
        3 "collector" Text "Who observed it.",
        4 "schema" Number "Version of this schema.",
    ];
    /// A significant change.
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
        22 "part" Id "Rollups of one key and time, of several workers or processes of a collector, are parts of one, which are added up. This distinguishes them; a part that is sent again has the same.",
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
    /// A dropped packet.
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
        10 "alert" Id "The same for a rule and what it is about: as long as it lasts, and whenever it comes back.",
        11 "rule" Text "The name of the rule.",
        12 "flow" Flow "The flow that it is about.",
        13 "node" Number "The node that it is about; of a flow, the node that has the value.",
        14 "interface" Number "The interface.",
        15 "queue" Number "The queue, likewise.",
        16 "state" Text "firing: the rule became true; resolved: it became false.",
        17 "metric" Text "What the comparison that decided compares. resolved: none if the flow has ended.",
        18 "value" Number "Its value, in the unit of the metric.",
        19 "threshold" Number "What it was compared with, likewise.",
        20 "since" Time "When the rule became true. resolved: none if that is stored no longer.",
    ];
    /// One hop of one report.
    const HOP: [
        10 "report" Id "The same for all hops of a report.",
        11 "hop" Number "Place in the report, in forwarding order, from 0.",
        12 "flow" Flow "The flow.",
        13 "node" Number "The node.",
        14 "ingress_if" Number "Ingress interface.",
        15 "queue" Number "The queue.",
        16 "egress_if" Number "Egress interface.",
        17 "hops" Number "Hops of the report.",
        18 "hop_latency" Number "Time in the node, ns.",
        19 "queue_occupancy" Number "Occupancy of the queue, in the unit of the device.",
        20 "queue_congestion" Number "Congestion status of the queue (INT 0.5), in the unit of the device.",
        21 "link_utilization" Number "Utilization of the egress link, millionths.",
        22 "ingress_ts" Number "When the packet came, by the clock of the node, ns: all 64 bits, or the lower 32.",
        23 "egress_ts" Number "When it left, likewise.",
    ];
}

/// A record of a stream.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// Of `events`.
    Event(Box<EventRecord>),
    /// Of `rollups`.
    Rollup(Box<RollupPart>),
    /// Of `flows`, with the path.
    Flow(Box<(FlowRow, Vec<u32>)>),
    /// Of `drops`.
    Drop(Box<Drop>),
    /// Of `losses`.
    Loss(Box<Loss>),
    /// Of `alerts`.
    Alert(Box<Alert>),
    /// Of `hops`.
    Hop(Box<Hop>),
}

/// What has the fields of a record.
pub trait Fields {
    /// Calls `each` for all fields of its stream, in order, the common ones first.
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>));
}

impl<F: Fields> Fields for &F {
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>)) {
        (**self).visit_fields(each);
    }
}

/// A record of this process, and the name of its collector.
impl Fields for (&Record, &str) {
    fn visit_fields(&self, each: impl FnMut(&'static Field, Value<'_>)) {
        self.0.visit_all(self.1, each);
    }
}

/// A rollup as it was stored. There can be several of one key and time: one of each worker, and one of each process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RollupPart {
    /// The rollup.
    pub rollup: Rollup,
    /// Distinguishes it from the others: its number in the store. 0: it has none.
    pub part: u64,
    /// How many rollups of its key and time come before it in the store, if somebody needs that: a small number, which distinguishes them, too.
    pub nth: u16,
}

impl RollupPart {
    /// The same for all parts of a rollup.
    pub fn id(&self) -> u64 {
        let place = [
            self.interval.into(),
            self.metric as u64,
            self.node.map_or(u64::MAX, u64::from),
        ];
        let rest = [
            self.interface.map_or(u64::MAX, u64::from),
            self.queue.map_or(u64::MAX, u64::from),
        ];
        hash(
            [self.ts, flow_id(self.flow.as_ref())]
                .into_iter()
                .chain(place)
                .chain(rest),
        )
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

/// A rule that became true or false for something. Its id is that of the event.
#[derive(Clone, PartialEq, Debug)]
pub struct Alert {
    /// When.
    pub ts: u64,
    /// The same for the same change.
    pub id: u64,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// It became true, else false.
    pub is_firing: bool,
    /// The flow that it is about.
    pub flow: Option<FlowKey>,
    /// The node.
    pub node: Option<u32>,
    /// The interface.
    pub interface: Option<u32>,
    /// The queue.
    pub queue: Option<u8>,
    /// What the comparison compares that decided; `None`: none did, as the flow has ended.
    pub metric: Option<Metric>,
    /// Its value.
    pub value: Option<u64>,
    /// What it was compared with.
    pub threshold: Option<u64>,
    /// When the rule became true, if that is known.
    pub since: Option<u64>,
}

impl Alert {
    /// The alert that this event is; `None`: it is of another kind.
    pub fn of(event: &Event, rule: Option<Arc<str>>) -> Option<Self> {
        let is_firing = match event.kind {
            Kind::RuleOn => true,
            Kind::RuleOff => false,
            _ => return None,
        };
        // A store that lost the name knows the place of the rule at most.
        let rule = rule.filter(|rule| !rule.is_empty());
        let rule = rule.unwrap_or_else(|| format!("rule {}", event.rule.unwrap_or_default()).into());
        let Event {
            ts,
            id,
            flow,
            node,
            interface,
            queue,
            metric,
            value,
            threshold,
            ..
        } = *event;
        let since = is_firing.then_some(ts);
        Some(Self {
            ts,
            id,
            rule,
            is_firing,
            flow,
            node,
            interface,
            queue,
            metric,
            value,
            threshold,
            since,
        })
    }

    /// The node, interface and queue that it is about. Of the rule of a flow they only say where its value is from: they can be others
    /// when the rule becomes false.
    pub fn place(&self) -> [Option<u32>; 3] {
        match self.flow {
            Some(_) => [None; 3],
            None => [self.node, self.interface, self.queue.map(u32::from)],
        }
    }

    /// The same for this rule and what it is about.
    pub fn alert(&self) -> u64 {
        // The length says where the name ends.
        let name = numbers_of(&self.rule);
        let place = self.place().map(|part| part.map_or(u64::MAX, u64::from));
        let start = [self.rule.len() as u64, flow_id(self.flow.as_ref())];
        hash(start.into_iter().chain(place).chain(name))
    }

    /// `firing` or `resolved`.
    pub fn state(&self) -> &'static str {
        if self.is_firing { "firing" } else { "resolved" }
    }
}

/// An event with what is passed beside it.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRecord {
    /// The event.
    pub event: Event,
    /// The name of its rule.
    pub rule: Option<Arc<str>>,
    /// Nodes in forwarding order.
    pub path: Vec<u32>,
    /// Of a new flow: latency and how it was obtained, hop latencies.
    pub first: Option<(Option<u64>, Basis, Vec<u32>)>,
}

impl Record {
    /// Its stream.
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

    /// What it reports: the kind of an event, the state of an alert, else the name of the stream.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Event(one) => one.event.kind.name(),
            Self::Alert(one) => one.state(),
            _ => self.stream().name(),
        }
    }

    /// Something is wrong in the network: a drop, a loss of packets or reports, a loop, a rule that became true.
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

    /// Event time, ns.
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

    /// The flow that it is about.
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

    /// The node that it is about.
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

    /// The same for the same thing.
    pub fn id(&self) -> u64 {
        match self {
            Self::Event(one) => one.event.id,
            Self::Drop(one) => one.id,
            Self::Alert(one) => one.id,
            Self::Hop(one) => hash([one.report, one.hop.into()]),
            Self::Rollup(one) => one.id(),
            Self::Flow(one) => hash([flow_id(Some(&one.0.flow)), one.0.last_seen]),
            Self::Loss(one) => {
                let (first, last) = one.source.split_at(8);
                let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
                hash([
                    one.ts,
                    word(first),
                    word(last),
                    one.node.map_or(u64::MAX, u64::from),
                    one.hw_id.into(),
                ])
            }
        }
    }

    /// The same for the same row of a collector. It differs from the id for rollups: those of one key and time can be parts of one, and
    /// each is a row.
    pub(crate) fn row_id(&self, collector: &str) -> u64 {
        match self {
            Self::Rollup(one) if one.part != 0 => {
                hash([self.id(), one.part].into_iter().chain(numbers_of(collector)))
            }
            _ => self.id(),
        }
    }

    /// Calls `each` for all fields, in order; `collector`: the name of this one.
    pub fn visit_all(&self, collector: &str, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let common = [
            Value::Id(self.id()),
            Value::Number(self.ts()),
            Value::Text(collector),
            Value::Number(SCHEMA),
        ];
        COMMON
            .iter()
            .zip(common)
            .for_each(|(field, value)| each(field, value));
        self.visit(each);
    }

    /// Calls `each` for the fields after the common ones, in order.
    pub fn visit(&self, mut each: impl FnMut(&'static Field, Value<'_>)) {
        let mut fields = self.stream().fields().iter();
        let mut next = |value: Value<'_>| {
            if let Some(field) = fields.next() {
                each(field, value);
            }
        };
        match self {
            Self::Event(one) => visit_event(one, next),
            Self::Rollup(one) => {
                next(small(Some(one.interval)));
                next(Value::Text(one.metric.name()));
                next(one.flow.as_ref().map_or(Value::Absent, Value::Flow));
                next(small(one.node));
                next(small(one.interface));
                next(small(one.queue.map(u32::from)));
                [one.count, one.min, one.max, one.sum]
                    .into_iter()
                    .for_each(|value| next(Value::Number(value)));
                next(number(one.p50));
                next(number(one.p99));
                next(if one.part == 0 {
                    Value::Absent
                } else {
                    Value::Id(one.part)
                });
            }
            Self::Flow(one) => {
                let (row, path) = &**one;
                next(Value::Flow(&row.flow));
                next(number(row.flow_latency));
                next(Value::Text(row.basis.name()));
                [row.first_seen, row.last_seen, row.reports]
                    .into_iter()
                    .for_each(|value| next(Value::Number(value)));
                next(Value::Numbers(path));
            }
            Self::Drop(one) => {
                next(one.flow.as_ref().map_or(Value::Absent, Value::Flow));
                next(small(one.node));
                next(small(one.ingress_if));
                next(small(one.queue.map(u32::from)));
                next(small(one.egress_if));
                next(small(one.reason.map(u32::from)));
                let tunnel = one.tunnel.as_ref();
                next(tunnel.map_or(Value::Absent, |tunnel| Value::Address(tunnel.src_octets())));
                next(tunnel.map_or(Value::Absent, |tunnel| Value::Address(tunnel.dst_octets())));
            }
            Self::Loss(one) => {
                next(small(one.node));
                next(Value::Address(&one.source));
                next(small(Some(one.hw_id.into())));
                [one.lost, one.reordered, one.duplicated]
                    .into_iter()
                    .for_each(|value| next(Value::Number(value)));
            }
            Self::Alert(one) => visit_alert(one, next),
            Self::Hop(one) => visit_hop(one, next),
        }
    }
}

fn number<'a>(value: Option<u64>) -> Value<'a> {
    value.map_or(Value::Absent, Value::Number)
}

fn small<'a>(value: Option<u32>) -> Value<'a> {
    number(value.map(u64::from))
}

fn visit_alert(one: &Alert, mut next: impl FnMut(Value<'_>)) {
    next(Value::Id(one.alert()));
    next(Value::Text(&one.rule));
    next(one.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(one.node));
    next(small(one.interface));
    next(small(one.queue.map(u32::from)));
    next(Value::Text(one.state()));
    next(
        one.metric
            .map_or(Value::Absent, |metric| Value::Text(metric.name())),
    );
    [one.value, one.threshold, one.since]
        .into_iter()
        .for_each(|value| next(number(value)));
}

fn visit_hop(one: &Hop, mut next: impl FnMut(Value<'_>)) {
    next(Value::Id(one.report));
    next(small(Some(one.hop.into())));
    next(one.flow.as_ref().map_or(Value::Absent, Value::Flow));
    next(small(one.node));
    next(small(one.ingress_if));
    next(small(one.queue.map(u32::from)));
    next(small(one.egress_if));
    next(small(Some(one.hops.into())));
    next(number(one.hop_latency));
    next(small(one.queue_occupancy));
    next(small(one.queue_congestion));
    next(number(one.link_utilization));
    next(number(one.ingress_ts));
    next(number(one.egress_ts));
}

fn visit_event(one: &EventRecord, mut next: impl FnMut(Value<'_>)) {
    let EventRecord {
        event,
        rule,
        path,
        first,
    } = one;
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
    /// Of the flow, else of the node; of an alert, the rule and what it is about.
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

/// The id of a report: of who sent it, which one it is, and what it is about.
pub fn report_id(parts: [u64; 4], flow: Option<&FlowKey>) -> u64 {
    hash(parts.into_iter().chain([flow_id(flow)]))
}

/// A text as numbers, for a hash.
fn numbers_of(text: &str) -> impl Iterator<Item = u64> {
    text.as_bytes()
        .chunks(8)
        .map(|part| part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn flow_id(flow: Option<&FlowKey>) -> u64 {
    flow.map_or(0, FlowKey::id)
}

/// A mix of numbers that does not change between versions: ids are compared across them.
pub(crate) fn hash(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0x6a09_e667_f3bc_c908, |state: u64, part| {
        let mixed = (state ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 29
    })
}

//! API forms of flows, events and rollups, and the formats of IDs, nodes and paths.

use std::collections::BTreeMap;

use collector::event::{Event, FirstValues, Rollup};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{EventRow, FirstRow};
use wire::FlowKey;

use crate::Name;
#[cfg(feature = "schema")]
use crate::schema;

/// Returns the node, or `None` if it is unavailable (all-ones on the wire).
pub fn node(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

/// Converts a path for responses: an unavailable node is `None`.
pub fn path(nodes: &[u32]) -> Vec<Option<u32>> {
    nodes.iter().map(|id| node(*id)).collect()
}

/// Formats a 64-bit id as 16 hexadecimal digits.
pub fn id(id: u64) -> String {
    format!("{id:016x}")
}

/// A 5-tuple. When only the Flow ID is known, `src` holds it (`flow-id:0x0000f10a`) and `dst` is empty.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Flow {
    /// Source address, or the Flow ID.
    pub src: String,
    /// Destination address; empty if only the Flow ID is known.
    pub dst: String,
    /// Source port; null where the packet had none.
    pub sport: Option<u16>,
    /// Destination port; null where the packet had none.
    pub dport: Option<u16>,
    /// Protocol number of the IP header, such as 6 for TCP.
    pub proto: u8,
}

impl From<FlowKey> for Flow {
    fn from(key: FlowKey) -> Self {
        let (src, dst) = ends(&key);
        Self {
            src,
            dst,
            sport: key.src_port(),
            dport: key.dst_port(),
            proto: key.proto(),
        }
    }
}

impl Flow {
    /// Returns the key of the flow: from its addresses, or else from its Flow ID; the default key if neither
    /// can be parsed.
    pub fn key(&self) -> FlowKey {
        match (self.src.parse(), self.dst.parse()) {
            (Ok(src), Ok(dst)) => FlowKey::new(src, dst, self.sport.zip(self.dport), self.proto),
            _ => self.src.parse().unwrap_or_default(),
        }
    }
}

/// Returns source and destination as text, or the Flow ID and an empty string if only the Flow ID is known.
pub fn ends(key: &FlowKey) -> (String, String) {
    match key.known_id() {
        Some(_) => (key.to_string(), String::new()),
        None => (key.src().to_string(), key.dst().to_string()),
    }
}

/// An event. Values are in the unit of the metric.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Event"))]
pub struct EventView {
    /// Receive time, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Record id, derived from the content: 16 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// Kind of the event.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::kinds())))]
    pub kind: Name,
    /// The metric that changed.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// The flow, or null if the event is about a node.
    pub flow: Option<Flow>,
    /// The flow as text.
    pub text: Option<String>,
    /// Node id, if the event is about a node.
    pub node: Option<u32>,
    /// Id of the interface, if the event is about one.
    pub interface: Option<u32>,
    /// Id of the queue, if the event is about one.
    pub queue: Option<u8>,
    /// New value, in the unit of the metric.
    pub value: Option<u64>,
    /// Value reported before, in the unit of the metric.
    pub previous: Option<u64>,
    /// Threshold that was exceeded, in the unit of the metric.
    pub threshold: Option<u64>,
    /// Rule that became true or false.
    pub rule: Option<String>,
    /// Drop reason, the code of the device.
    pub reason: Option<u8>,
    /// Name of the reason, where the profiles agree on one.
    pub reason_name: Option<String>,
    /// Method by which the value was obtained.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::bases())))]
    pub basis: Name,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub path: Vec<Option<u32>>,
    /// Flow latency of the same report, ns, if the event is the path of a new flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_latency: Option<u64>,
    /// Method by which the flow latency was obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::bases())))]
    pub latency_basis: Option<Name>,
    /// Hop latencies of the same report, ns, in the order of the path, if the event is the path of a new flow; null
    /// where unavailable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hop_latencies: Vec<Option<u32>>,
}

/// Names of drop reasons by code.
pub type ReasonNames = BTreeMap<u8, String>;

impl EventView {
    /// Creates the view of a stored event.
    pub fn from_row(row: &EventRow, reasons: &ReasonNames) -> Self {
        let first = row.first.as_ref().map(FirstRow::values);
        Self::new(&row.event, row.rule.as_deref(), &row.path, first, reasons)
    }

    /// Creates the view of an event, given the name of its rule, its path and the first values of a new flow.
    pub fn new(
        event: &Event,
        rule: Option<&str>,
        nodes: &[u32],
        first: Option<FirstValues<'_>>,
        reasons: &ReasonNames,
    ) -> Self {
        Self {
            ts: event.ts,
            id: id(event.id),
            kind: event.kind.name().into(),
            metric: event.metric.map(|metric| metric.name().into()),
            flow: event.flow.map(Flow::from),
            text: event.flow.map(|flow| flow.to_string()),
            node: event.node,
            interface: event.interface,
            queue: event.queue,
            value: event.value,
            previous: event.previous,
            threshold: event.threshold,
            rule: rule.map(str::to_owned),
            reason: event.reason,
            reason_name: event.reason.and_then(|code| reasons.get(&code)).cloned(),
            basis: event.basis.name().into(),
            path: path(nodes),
            flow_latency: first.and_then(|first| first.flow_latency),
            latency_basis: first
                .filter(|first| first.flow_latency.is_some())
                .map(|first| first.basis.name().into()),
            // Unavailable latencies are `u32::MAX`, like unavailable nodes, so `path` converts them.
            hop_latencies: first.map_or_else(Vec::new, |first| path(first.hop_latencies)),
        }
    }
}

/// One metric of one key over one interval.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Rollup"))]
pub struct RollupView {
    /// Start of the interval, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Length of the interval, seconds.
    pub interval: u32,
    /// Metric of the values.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::metrics())))]
    pub metric: Name,
    /// Node id, if the values are those of a node.
    pub node: Option<u32>,
    /// Id of the interface, if the values are those of a link.
    pub interface: Option<u32>,
    /// Id of the queue, if the values are those of a queue.
    pub queue: Option<u8>,
    /// Flow as text, if the values are those of a flow.
    pub flow: Option<String>,
    /// Number of values in the interval.
    pub count: u64,
    /// Smallest value, in the unit of the metric.
    pub min: u64,
    /// Largest value, in the unit of the metric.
    pub max: u64,
    /// Sum of the values, in the unit of the metric.
    pub sum: u64,
    /// Median of the values, in the unit of the metric.
    pub p50: Option<u64>,
    /// 99th percentile of the values, in the unit of the metric.
    pub p99: Option<u64>,
}

impl From<&Rollup> for RollupView {
    fn from(rollup: &Rollup) -> Self {
        Self {
            ts: rollup.ts,
            interval: rollup.interval,
            metric: rollup.metric.name().into(),
            node: rollup.node,
            interface: rollup.interface,
            queue: rollup.queue,
            flow: rollup.flow.map(|flow| flow.to_string()),
            count: rollup.count,
            min: rollup.min,
            max: rollup.max,
            sum: rollup.sum,
            p50: rollup.p50,
            p99: rollup.p99,
        }
    }
}

/// Converts a utilization in millionths to a fraction of 1.
pub fn fraction(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// The response of `/events`: a page of stored events.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Events {
    /// Events in descending order of time.
    pub events: Vec<EventView>,
    /// `after` of the next page; null when there are no more.
    pub next: Option<String>,
}

/// The response of `/rollups`: stored rollups.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Rollups {
    /// Rollups in ascending order of time.
    pub rollups: Vec<RollupView>,
    /// True when the limits left out older ones.
    pub truncated: bool,
}

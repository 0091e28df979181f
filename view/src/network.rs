//! API responses about the network: nodes, links, flows with their hops, paths, and a flow's history.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Flow, Latencies, Name, RangeView};
#[cfg(feature = "schema")]
use crate::schema;

/// The response of `/nodes`: a page of nodes.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Nodes {
    /// Nodes in ascending order of their ids.
    pub nodes: Vec<NodeView>,
    /// `after` of the next page; null on the last.
    pub next: Option<u32>,
    /// The span of time, if one was asked for; otherwise the response is about now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
}

/// The response of `/links`: a page of links.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Links {
    /// Links by their ends.
    pub links: Vec<LinkView>,
    /// `offset` of the next page; null on the last.
    pub next: Option<usize>,
    /// The span of time, if one was asked for; otherwise the response is about now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
}

/// The response of `/flows`: a page of flows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Flows {
    /// Flows that match, largest first.
    pub flows: Vec<FlowView>,
    /// Number of matching flows. A flow that was evicted and returned during the count is counted twice.
    pub total: u64,
    /// `true` if more flows may match than `total`, because the filter uses values of nodes, which are looked up for a part of the
    /// flows at a time. A page may then have fewer flows than its limit; continue at `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<bool>,
    /// Time as of which flows were sorted, filtered and counted, nanoseconds since the Unix epoch: at most 1 µs ago for each flow
    /// of a worker, and the time it took to read them. Their values are current.
    pub as_of: u64,
    /// `after` of the next page; null on the last.
    pub next: Option<String>,
    /// The span of time, if one was asked for; otherwise the response is about now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
}

/// The response of `/paths`: a page of paths.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Paths {
    /// Paths, most used first.
    pub paths: Vec<PathView>,
    /// `offset` of the next page; null on the last.
    pub next: Option<usize>,
    /// The span of time, if one was asked for; otherwise the response is about now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
}

/// Latest state of a node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Node"))]
pub struct NodeView {
    /// Node id, as in reports.
    pub node: u32,
    /// Name of the node, as configured.
    pub name: Option<String>,
    /// Reports with a hop of this node.
    pub reports: u64,
    /// Receive time of the latest, nanoseconds since the Unix epoch; of a span of time, the end of its minute, ten minutes or hour.
    pub last_seen: u64,
    /// Time inside the node, nanoseconds; quantiles of the last second with values.
    pub hop_latency: Spread,
    /// Queues of the node.
    pub queues: Vec<QueueView>,
    /// Drop reports of this node.
    pub drops: u64,
    /// Implausible hop latencies of this node, not included in the numbers above.
    pub implausible_latencies: u64,
}

/// Last value, smallest, largest and quantiles; null where nothing was measured.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Spread {
    /// The last measured value.
    pub latest: Option<u64>,
    /// The smallest measured value.
    pub min: Option<u64>,
    /// The largest measured value.
    pub max: Option<u64>,
    /// Median of the values.
    pub p50: Option<u64>,
    /// 99th percentile of the values.
    pub p99: Option<u64>,
}

/// A queue of a node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Queue"))]
pub struct QueueView {
    /// Queue id, or null for all queues of the node, as in summaries.
    pub queue: Option<u8>,
    /// Egress interface of the queue, or null if the reports have none.
    pub interface: Option<u32>,
    /// Last occupancy, in the unit of the device.
    pub occupancy: Option<u64>,
    /// Largest occupancy, in the unit of the device.
    pub max: Option<u64>,
    /// Unit in which the device measures occupancy.
    pub unit: String,
}

/// A link, learned from paths.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Link"))]
pub struct LinkView {
    /// Id of the sending node.
    pub from: u32,
    /// Id of the receiving node.
    pub to: u32,
    /// Egress interface of the sending node; in a span of time, as it is known now.
    pub egress_if: Option<u32>,
    /// Ingress interface of the receiving node, likewise.
    pub ingress_if: Option<u32>,
    /// Utilization as a fraction of 1; of a span of time, the largest, if the egress interface is known.
    pub utilization: Option<f64>,
    /// Occupancy of the egress queue, in the unit of the device; null in a span of time.
    pub queue_occupancy: Option<u64>,
    /// Time inside the sending node, nanoseconds; null in a span of time.
    pub hop_latency: Option<u64>,
    /// Flows on the link.
    pub flows: u64,
    /// Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, when the last flow left the link, or the
    /// end of the minute, ten minutes or hour of its latest report.
    pub last_seen: u64,
}

/// Latest state of a flow.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "FlowState"))]
pub struct FlowView {
    /// Flow id: 16 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// The 5-tuple of the flow.
    pub flow: Flow,
    /// The 5-tuple as text.
    pub text: String,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub path: Vec<Option<u32>>,
    /// Latest latency, nanoseconds; of a span of time, the largest.
    pub flow_latency: Option<u64>,
    /// Latencies of the span of time, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Latencies>,
    /// Method by which the latency was obtained.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::bases())))]
    pub basis: Name,
    /// Method by which the order of the path was obtained.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::bases())))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_basis: Option<Name>,
    /// True where the path may lack nodes: it is only known from packets whose hop limit, MTU or room of an IOAM trace was exhausted,
    /// or from a node that reported its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<bool>,
    /// Nodes of the path: more than in `path` when `truncated`.
    pub path_length: u16,
    /// True when not every hop of the path is stored: the table `hops` was full.
    pub truncated: bool,
    /// Reports so far, or of the span of time; in the latter with `mode = "kernel"`, a number of samples: reports with a significant
    /// change, and one per flow and second.
    pub reports: u64,
    /// Receive time of the first report, nanoseconds since the Unix epoch; of a span of time, the beginning of its minute, ten minutes or hour.
    pub first_seen: u64,
    /// Receive time of the latest report, nanoseconds since the Unix epoch; of a span of time, the end of its minute, ten minutes or hour.
    pub last_seen: u64,
}

/// A flow with its hops in forwarding order.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct FlowDetail {
    #[serde(flatten)]
    /// The latest state of the flow.
    pub flow: FlowView,
    /// Hops in forwarding order.
    pub hops: Vec<HopView>,
    /// The span of time, if one was asked for: then a hop has the latency that was reported last before its end, and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// The intents that its reports serve; absent without a manager in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intents: Option<Vec<String>>,
}

/// One hop of a flow: the values that the flow's latest packet carried, and beside them the latest of its queue and link.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Hop"))]
pub struct HopView {
    /// Node id, or null if the packet did not carry it.
    pub node: Option<u32>,
    /// Id of the ingress interface.
    pub ingress_if: Option<u32>,
    /// Id of the egress interface.
    pub egress_if: Option<u32>,
    /// Id of the queue that the packet passed.
    pub queue: Option<u8>,
    /// Time inside the node, nanoseconds.
    pub hop_latency: Option<u64>,
    /// Hop latency of the latest report, nanoseconds, if it is implausible, rounded down to 18 significant bits; `hop_latency` is null then. It is longer than
    /// `max_hop_latency` of the profile, or its timestamps are wrong: the ingress is 0, or later than the egress. It is in no
    /// other number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub implausible_latency: Option<u64>,
    /// Occupancy of the queue when this flow's packet passed, in the unit of the device.
    pub queue_occupancy: Option<u64>,
    /// Congestion status of the queue when this flow's packet passed, in the unit of the device.
    pub queue_congestion: Option<u64>,
    /// Utilization of the egress link when this flow's packet passed, as a fraction of 1.
    pub link_utilization: Option<f64>,
    /// Latest occupancy of the queue, from a packet of any flow.
    pub latest_queue_occupancy: Option<u64>,
    /// Age of that value, seconds.
    pub latest_queue_age_s: Option<u32>,
    /// Latest utilization of the egress link as a fraction of 1, from a packet of any flow.
    pub latest_link_utilization: Option<f64>,
    /// Age of that value, seconds.
    pub latest_link_age_s: Option<u32>,
}

/// A path and its use.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "PathUse"))]
pub struct PathView {
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub path: Vec<Option<u32>>,
    /// Flows on this path.
    pub flows: u64,
    /// Reports of flows on this path, since the path is known; in a span of time, those of minutes at whose end a flow had it.
    pub reports: u64,
}

/// A flow over time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "History"))]
pub struct HistoryView {
    /// Latencies over time. A point without a latency and hops begins a time without reports, which lasts to the next point.
    pub series: Vec<PointView>,
    /// Paths, each with the time of its first report.
    pub paths: Vec<PathSince>,
    /// True when there are more points than the limit.
    pub truncated: bool,
}

/// Latencies of a flow at one time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "HistoryPoint"))]
pub struct PointView {
    /// Time, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Flow latency at that time, nanoseconds.
    pub flow_latency: Option<u64>,
    /// Method by which the latency was obtained.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::bases())))]
    pub basis: Name,
    /// Latency of each node.
    pub hops: Vec<HopLatency>,
}

/// Time inside one node.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HopLatency {
    /// Node id, or null if unavailable.
    pub node: Option<u32>,
    /// Time inside the node, nanoseconds.
    pub latency: u64,
}

/// A path and the time of its first report.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PathSince {
    /// Time, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub path: Vec<Option<u32>>,
}

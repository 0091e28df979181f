//! API responses about queues: heat maps of occupancy, recordings of the flight recorder, and bursts.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Heat, HeatRow, RecordingRow};

use super::{Flow, Name, id, path};
#[cfg(feature = "schema")]
use crate::schema;

/// `/queues`: a heat map.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Heat"))]
pub struct HeatView {
    /// Metric that the map shows.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::metrics())))]
    pub metric: Name,
    /// Start of the first column, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the last column, nanoseconds since the Unix epoch.
    pub to: u64,
    /// Length of a column, ns.
    pub column: u64,
    /// Length of the rollups that were read, seconds.
    pub interval: u32,
    /// The rows, the greatest value first.
    pub rows: Vec<HeatRowView>,
    /// Total number, including those beyond the limit.
    pub total: usize,
    /// True if there are more than the collector considers, so that some are missing.
    pub truncated: bool,
}

/// A row of a heat map.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "HeatRow"))]
pub struct HeatRowView {
    /// Node id, or null if unavailable.
    pub node: Option<u32>,
    /// Egress interface of a link, and of a queue if its packets carry one.
    pub interface: Option<u32>,
    /// Queue id; null where the metric has none.
    pub queue: Option<u8>,
    /// The greatest value of the row, in the unit of the metric.
    pub worst: u64,
    /// Number of measured values.
    pub count: u64,
    /// The greatest value of each column; null where nothing was measured.
    pub values: Vec<Option<u64>>,
}

/// The response of `/recordings`: recordings of the flight recorder.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Recordings {
    /// Recordings in descending order of time.
    pub recordings: Vec<RecordingView>,
    /// Whether there are more.
    pub truncated: bool,
    /// The flight recorder since the start; null if it is off.
    pub recorder: Option<RecorderView>,
}

/// Counters of the flight recorder since the start. An event that could start a recording is in one of them.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "FlightRecorder"))]
pub struct RecorderView {
    /// Memory for datagrams, bytes.
    pub memory: u64,
    /// Reports that were passed on to the store.
    pub reports: u64,
    /// Events that have a recording.
    pub recorded: u64,
    /// Events whose subject was in the recording already.
    pub repeated: u64,
    /// Events of more subjects than a recording has.
    pub subjects_full: u64,
    /// Events beyond the recordings of a minute.
    pub over_budget: u64,
    /// Events that arrived after their recording had ended.
    pub late: u64,
    /// Events that the recorder was too busy to look at.
    pub shed: u64,
}

/// The event that caused the recording of reports.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Recording"))]
pub struct RecordingView {
    /// Time at which the event was observed, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Id of the event: 16 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// Reports are recorded from this receive time on, nanoseconds since the Unix epoch.
    pub since: u64,
    /// Reports are recorded up to this receive time, nanoseconds since the Unix epoch.
    pub until: u64,
    /// Kind of the event.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::kinds())))]
    pub kind: Name,
    /// Metric of the event.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub metric: Option<Name>,
    /// Flow of the event.
    pub flow: Option<Flow>,
    /// Node of the event.
    pub node: Option<u32>,
    /// Queue of the event.
    pub queue: Option<u8>,
    /// Value of the event, in the unit of the metric.
    pub value: Option<u64>,
    /// Name of the rule that became true.
    pub rule: Option<String>,
    /// Number of recorded reports that concern the event's subject.
    pub reports: u64,
    /// One report of this many was stored.
    pub every: u64,
    /// True if a part was no longer in memory, so that reports are missing.
    pub late: bool,
}

/// `/queues/{node}`: the flows that filled a queue.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Burst"))]
pub struct BurstView {
    /// Node id, as in reports.
    pub node: u32,
    /// Queue id, or null for all queues of the node.
    pub queue: Option<u8>,
    /// Egress interface of the queue, or null for all.
    pub interface: Option<u32>,
    /// The recordings that cover a part of the time. If empty, there are only the other reports in the store.
    pub recordings: Vec<RecordingView>,
    /// Time at which the queue was fullest, nanoseconds since the Unix epoch; null if no report of the time is
    /// stored.
    pub peak: Option<u64>,
    /// Occupancy at that time, in the device's unit; null if the reports have none: then the peak is the longest
    /// time in the node.
    pub occupancy: Option<u64>,
    /// Greatest occupancy in the rollups of the time, in the device's unit; null if there are none. If the stored reports reach less than half
    /// of it, they are not those of the burst: `flows` says who used the queue, and not who filled it.
    pub measured: Option<u64>,
    /// Time at which the queue began to fill, nanoseconds since the Unix epoch.
    pub begun: Option<u64>,
    /// Reports of packets that were in it while it filled. All counts are of the network's reports: those that were left out are included.
    pub rise: u64,
    /// Reports of all packets.
    pub reports: u64,
    /// Whether there are more reports, drops or changes than were read: counts are too low.
    pub truncated: bool,
    /// The flows, the one with the most packets in the rise first.
    pub flows: Vec<PartView>,
    /// Number of flows that passed the queue.
    pub total_flows: usize,
    /// Packets in the order of time; one of so many that it is at most 2000.
    pub packets: Vec<PassageView>,
    /// Reported drops at the node, by reason.
    pub drops: Vec<DropCount>,
    /// Without reports: flows whose hop latency at the node changed in that time, the greatest first.
    pub changes: Vec<ChangeView>,
    /// In a console: sentences that name missing data and where to find it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// In a console: the collectors that received reports of the node in this time, at most 16; `lacks` says if there are more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<String>,
}

/// A flow's part in a burst.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BurstFlow"))]
pub struct PartView {
    /// The flow, or null for packets whose flow is unknown.
    pub flow: Option<Flow>,
    /// The flow as text.
    pub text: Option<String>,
    /// Number of reports of its packets that were in the queue while it filled.
    pub rise: u64,
    /// Number of reports of all its packets.
    pub reports: u64,
    /// Longest hop latency of a packet since the queue began to fill, ns.
    pub longest: Option<u64>,
    /// The sum of these times, ns.
    pub waited: u64,
    /// Time at which its first packet left, nanoseconds since the Unix epoch.
    pub first: u64,
    /// Time at which its last packet left, nanoseconds since the Unix epoch.
    pub last: u64,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub path: Vec<Option<u32>>,
}

/// A packet that passed a queue.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "BurstPacket"))]
pub struct PassageView {
    /// Time at which it left, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Index of its flow in `flows`; null if it is not among them.
    pub flow: Option<usize>,
    /// Queue occupancy that the packet reported, in the device's unit.
    pub occupancy: Option<u64>,
    /// Time inside the node, nanoseconds.
    pub latency: Option<u64>,
}

/// Drops with a reason.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DropCount {
    /// Drop reason, the code of the device.
    pub reason: Option<u8>,
    /// Name of the reason, where the profiles agree on one.
    pub name: Option<String>,
    /// Number of drop reports.
    pub count: u64,
}

/// A flow whose hop latency changed.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "HopChange"))]
pub struct ChangeView {
    /// The flow, or null if unknown.
    pub flow: Option<Flow>,
    /// The flow as text.
    pub text: Option<String>,
    /// Number of changes of its hop latency.
    pub changes: u64,
    /// The greatest hop latency, nanoseconds.
    pub latency: u64,
}

impl From<&HeatRow> for HeatRowView {
    fn from(row: &HeatRow) -> Self {
        let HeatRow {
            key,
            values,
            worst,
            count,
        } = row;
        let values = values.clone();
        Self {
            node: key.node,
            interface: key.interface,
            queue: key.queue,
            worst: *worst,
            count: *count,
            values,
        }
    }
}

impl HeatView {
    /// Creates a heat map without its rows.
    pub fn new(heat: &Heat) -> Self {
        Self {
            total: heat.total,
            truncated: heat.truncated,
            ..Self::default()
        }
    }
}

impl From<&RecordingRow> for RecordingView {
    fn from(row: &RecordingRow) -> Self {
        Self {
            ts: row.ts,
            id: id(row.id),
            since: row.since,
            until: row.until,
            kind: row.kind.name().into(),
            metric: row.metric.map(|metric| metric.name().into()),
            flow: row.flow.map(Flow::from),
            node: row.node,
            queue: row.queue,
            value: row.value,
            rule: row.rule.clone(),
            reports: row.reports,
            every: row.every,
            late: row.late,
        }
    }
}

impl PartView {
    /// Creates the view of a flow's part in a burst, with the nodes of its path.
    pub fn new(share: &store::burst::FlowShare, nodes: &[u32]) -> Self {
        Self {
            flow: share.flow.map(Flow::from),
            text: share.flow.map(|flow| flow.to_string()),
            rise: share.rise,
            reports: share.reports,
            longest: share.longest,
            waited: share.waited,
            first: share.first,
            last: share.last,
            path: path(nodes),
        }
    }
}

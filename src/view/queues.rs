//! Queues over time.

use serde::{Deserialize, Serialize};
use store::{Heat, HeatRow, RecordingRow};

#[cfg(test)]
use super::schema;
use super::{Flow, Name, id, path};

/// `/queues`: a heat map.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Heat"))]
pub(crate) struct HeatView {
    /// The metric.
    #[cfg_attr(test, schemars(extend("enum" = schema::metrics())))]
    pub(crate) metric: Name,
    /// Start of the first column, nanoseconds since the Unix epoch.
    pub(crate) from: u64,
    /// End of the last column.
    pub(crate) to: u64,
    /// Length of a column, ns.
    pub(crate) column: u64,
    /// Length of the rollups that were read, seconds.
    pub(crate) interval: u32,
    /// The rows, the greatest value first.
    pub(crate) rows: Vec<HeatRowView>,
    /// How many there are, with those beyond the limit.
    pub(crate) total: usize,
    /// Whether there are more than the collector considers: some are in no row.
    pub(crate) truncated: bool,
}

/// A row of a heat map.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HeatRow"))]
pub(crate) struct HeatRowView {
    /// Node id.
    pub(crate) node: Option<u32>,
    /// Egress interface, of a link.
    pub(crate) interface: Option<u32>,
    /// Queue id; null where the metric has none.
    pub(crate) queue: Option<u8>,
    /// The greatest value.
    pub(crate) worst: u64,
    /// Number of measured values.
    pub(crate) count: u64,
    /// The greatest value of each column; null where nothing was measured.
    pub(crate) values: Vec<Option<u64>>,
}

/// `/recordings`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Recordings {
    /// What was recorded, newest first.
    pub(crate) recordings: Vec<RecordingView>,
    /// Whether there are more.
    pub(crate) truncated: bool,
    /// The flight recorder since the start; null if it is off.
    pub(crate) recorder: Option<RecorderView>,
}

/// Counters of the flight recorder since the start. An event that could start a recording is in one of them.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FlightRecorder"))]
pub(crate) struct RecorderView {
    /// Memory for datagrams, bytes.
    pub(crate) memory: u64,
    /// Reports that were passed on to the store.
    pub(crate) reports: u64,
    /// Events that have a recording.
    pub(crate) recorded: u64,
    /// Events whose subject was in the recording already.
    pub(crate) repeated: u64,
    /// Events of more subjects than a recording has.
    pub(crate) subjects_full: u64,
    /// Events beyond the recordings of a minute.
    pub(crate) over_budget: u64,
    /// Events that came when their recording had ended.
    pub(crate) late: u64,
    /// Events that the recorder was too busy to look at.
    pub(crate) shed: u64,
}

/// Why reports were recorded: an event that they concern.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Recording"))]
pub(crate) struct RecordingView {
    /// When the event was observed, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Id of the event: 16 hexadecimal digits.
    #[cfg_attr(test, schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub(crate) id: String,
    /// Reports are recorded from this receive time on.
    pub(crate) since: u64,
    /// Reports are recorded up to this receive time.
    pub(crate) until: u64,
    /// Kind of the event.
    #[cfg_attr(test, schemars(extend("enum" = schema::kinds())))]
    pub(crate) kind: Name,
    /// Its metric.
    #[cfg_attr(test, schemars(extend("enum" = schema::nullable(schema::metrics()))))]
    pub(crate) metric: Option<Name>,
    /// Its flow.
    pub(crate) flow: Option<Flow>,
    /// Its node.
    pub(crate) node: Option<u32>,
    /// Its queue.
    pub(crate) queue: Option<u8>,
    /// Its value, in the unit of the metric.
    pub(crate) value: Option<u64>,
    /// Its rule.
    pub(crate) rule: Option<String>,
    /// Reports that concern it.
    pub(crate) reports: u64,
    /// One of so many was stored.
    pub(crate) every: u64,
    /// Whether a part was not in memory: reports are missing.
    pub(crate) late: bool,
}

/// `/queues/{node}`: who filled a queue.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Burst"))]
pub(crate) struct BurstView {
    /// Node id.
    pub(crate) node: u32,
    /// Queue id; null: all queues of the node.
    pub(crate) queue: Option<u8>,
    /// The recordings that cover a part of the time. Empty: there are only the reports that the store has otherwise.
    pub(crate) recordings: Vec<RecordingView>,
    /// When the queue was fullest, nanoseconds since the Unix epoch; null if no report of the time is stored.
    pub(crate) peak: Option<u64>,
    /// The occupancy then, in the device's unit; null if the reports have none: then the peak is the longest time in the node.
    pub(crate) occupancy: Option<u64>,
    /// When it began to fill.
    pub(crate) begun: Option<u64>,
    /// Reports of packets that were in it while it filled. All counts are of the network's reports: those that were left out are included.
    pub(crate) rise: u64,
    /// Reports of all packets.
    pub(crate) reports: u64,
    /// Whether there are more reports, drops or changes than were read: counts are too low.
    pub(crate) truncated: bool,
    /// The flows, the one with the most packets in the rise first.
    pub(crate) flows: Vec<PartView>,
    /// How many flows there are.
    pub(crate) total_flows: usize,
    /// Packets in the order of time; one of so many that it is at most 2000.
    pub(crate) packets: Vec<PassageView>,
    /// Reported drops at the node, by reason.
    pub(crate) drops: Vec<DropCount>,
    /// Without reports: flows whose hop latency at the node changed in that time, the greatest first.
    pub(crate) changes: Vec<ChangeView>,
    /// In a console: what it does not have, and where that is; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lacks: Vec<String>,
    /// In a console: the collectors that heard the node in this time, at most 16; `lacks` says if there are more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) collectors: Vec<String>,
}

/// A flow's part in a burst.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BurstFlow"))]
pub(crate) struct PartView {
    /// The flow; null: packets whose flow is not known.
    pub(crate) flow: Option<Flow>,
    /// The flow as text.
    pub(crate) text: Option<String>,
    /// Reports of its packets that were in it while the queue filled.
    pub(crate) rise: u64,
    /// Reports of all its packets.
    pub(crate) reports: u64,
    /// The longest time of a packet in the node since the queue began to fill, ns.
    pub(crate) longest: Option<u64>,
    /// The sum of these times, ns.
    pub(crate) waited: u64,
    /// When its first packet left, nanoseconds since the Unix epoch.
    pub(crate) first: u64,
    /// When its last packet left.
    pub(crate) last: u64,
    /// Node ids in forwarding order; null where a node id is unavailable.
    pub(crate) path: Vec<Option<u32>>,
}

/// A packet that passed a queue.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BurstPacket"))]
pub(crate) struct PassageView {
    /// When it left, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Place of its flow in `flows`; null if it is not among them.
    pub(crate) flow: Option<usize>,
    /// The occupancy that it saw, in the device's unit.
    pub(crate) occupancy: Option<u64>,
    /// Its time in the node, ns.
    pub(crate) latency: Option<u64>,
}

/// Drops with a reason.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DropCount {
    /// The code of the device.
    pub(crate) reason: Option<u8>,
    /// Name of the reason, where the profiles agree on one.
    pub(crate) name: Option<String>,
    /// Reports of drops.
    pub(crate) count: u64,
}

/// A flow whose hop latency changed.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HopChange"))]
pub(crate) struct ChangeView {
    /// The flow.
    pub(crate) flow: Option<Flow>,
    /// The flow as text.
    pub(crate) text: Option<String>,
    /// Number of changes.
    pub(crate) changes: u64,
    /// The greatest value, ns.
    pub(crate) latency: u64,
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
    /// A heat map without its rows.
    pub(crate) fn of(heat: &Heat) -> Self {
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
    /// A flow's part, and the nodes of its path.
    pub(crate) fn new(part: &collector::flight::burst::Part, nodes: &[u32]) -> Self {
        Self {
            flow: part.flow.map(Flow::from),
            text: part.flow.map(|flow| flow.to_string()),
            rise: part.rise,
            reports: part.reports,
            longest: part.longest,
            waited: part.waited,
            first: part.first,
            last: part.last,
            path: path(nodes),
        }
    }
}

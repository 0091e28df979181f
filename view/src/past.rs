//! API forms of a time span and of the counts of reports and events in it.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NamedCounts;

/// The span of time of a response.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Range"))]
pub struct RangeView {
    /// Start of the span, nanoseconds since the Unix epoch: the requested one, rounded to a whole minute.
    pub from: u64,
    /// End of the span, likewise; not included in it.
    pub to: u64,
    /// True if the span has more flows, nodes or queues than are considered; the others are on no page.
    pub truncated: bool,
}

/// Flow latencies of a span of time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Latencies {
    /// Smallest flow latency, nanoseconds.
    pub min: u64,
    /// Largest flow latency, nanoseconds.
    pub max: u64,
    /// Mean flow latency, nanoseconds.
    pub mean: u64,
}

/// The response of `/activity`: counts over time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Activity {
    /// Beginning of the span, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the span, nanoseconds since the Unix epoch; not included in it.
    pub to: u64,
    /// Length of a part, nanoseconds. Reports are counted by the minute: those of a minute are spread evenly over shorter parts.
    pub column: u64,
    /// Reports later than this are not known yet: they are stored by the minute, after its end.
    pub reports_to: u64,
    /// Events later than this are not known yet.
    pub events_to: u64,
    /// The parts in which something was counted, in ascending order of time. Nothing was received in the other parts.
    pub points: Vec<ActivityPoint>,
    /// Events of the whole span by kind.
    pub kinds: NamedCounts,
}

/// Counts of a part of a span.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ActivityPoint {
    /// Start of the part, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Number of reports that had a latency of their flow. Others are not stored by the minute. With `mode = "kernel"`, a number of
    /// samples: reports with a significant change, and one per flow and second.
    pub reports: u64,
    /// Number of events of any kind.
    pub events: u64,
    /// Reports that never arrived.
    pub lost: u64,
}

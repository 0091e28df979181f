//! What happened in a span of time.

use serde::{Deserialize, Serialize};

use super::NamedCounts;

/// The span of time of a response.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Range"))]
pub(crate) struct RangeView {
    /// Its beginning, nanoseconds since the Unix epoch: the requested one, rounded to a whole minute.
    pub(crate) from: u64,
    /// Its end, likewise; it is not in the span.
    pub(crate) to: u64,
    /// True when the span has more flows, nodes or queues than are considered: the others are in no page.
    pub(crate) truncated: bool,
}

/// Flow latencies of a span of time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Latencies {
    /// Smallest, nanoseconds.
    pub(crate) min: u64,
    /// Largest.
    pub(crate) max: u64,
    /// Mean.
    pub(crate) mean: u64,
}

/// `/activity`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Activity {
    /// Beginning of the span, nanoseconds since the Unix epoch.
    pub(crate) from: u64,
    /// Its end, which is not in it.
    pub(crate) to: u64,
    /// Length of a part, nanoseconds. Reports are counted by the minute: those of a minute are spread evenly over shorter parts.
    pub(crate) column: u64,
    /// Reports later than this are not known yet: they are stored by the minute, after its end.
    pub(crate) reports_to: u64,
    /// Events later than this are not known yet.
    pub(crate) events_to: u64,
    /// The parts in which something was counted, in ascending order of time. In others, nothing was received.
    pub(crate) points: Vec<ActivityPoint>,
    /// Events of the whole span by kind.
    pub(crate) kinds: NamedCounts,
}

/// Counts of a part of a span.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ActivityPoint {
    /// Its beginning, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Reports of flows.
    pub(crate) reports: u64,
    /// Events.
    pub(crate) events: u64,
    /// Reports that never arrived.
    pub(crate) lost: u64,
}

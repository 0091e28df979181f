//! API responses about path changes, the use of paths, and hop latencies over time.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{ChangeGroup, PathUse};

use super::{Flow, RangeView, path};

/// The response of `/paths/changes`: changes of flows' paths in a span of time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PathChanges {
    /// The latest changes, newest first.
    pub changes: Vec<PathChangeView>,
    /// All changes, equal ones together; those of most flows first.
    pub groups: Vec<ChangeGroupView>,
    /// Number of such groups: `groups` has the first of them.
    pub group_total: u64,
    /// Number of changes: `changes` has the latest of them.
    pub total: u64,
    /// The span of time; `truncated`: it has more flows or changes than are considered.
    pub range: Option<RangeView>,
}

/// A change of a flow's path.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "PathChange"))]
pub struct PathChangeView {
    /// Receive time of the first report of the new path, nanoseconds since the Unix epoch.
    pub ts: u64,
    /// Id of the flow: 16 hexadecimal digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// The 5-tuple of the flow.
    pub flow: Flow,
    /// The 5-tuple as text.
    pub text: String,
    /// Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored.
    pub before: Vec<Option<u32>>,
    /// Node ids of the path after, likewise.
    pub after: Vec<Option<u32>>,
}

/// The same change of the paths of several flows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "PathChangeGroup"))]
pub struct ChangeGroupView {
    /// Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored.
    pub before: Vec<Option<u32>>,
    /// Node ids of the path after, likewise.
    pub after: Vec<Option<u32>>,
    /// Number of flows with this change.
    pub flows: u64,
    /// Number of changes: a flow may have changed back and forth.
    pub changes: u64,
    /// Time of the first change, nanoseconds since the Unix epoch.
    pub first: u64,
    /// Time of the last change, nanoseconds since the Unix epoch.
    pub last: u64,
}

/// The response of `/paths/uses`: the paths that flows used in a span of time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PathUses {
    /// The paths of the flows that were asked about.
    pub forward: DirectionView,
    /// The paths of the opposite direction; null when all flows were asked about.
    pub reverse: Option<DirectionView>,
    /// The span of time.
    pub range: Option<RangeView>,
}

/// The paths of one direction.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "PathsOfDirection"))]
pub struct DirectionView {
    /// The flow, if one was asked about: its 5-tuple as text.
    pub flow: Option<String>,
    /// The sender, if one was asked about.
    pub src: Option<String>,
    /// The receiver, if one was asked about.
    pub dst: Option<String>,
    /// The paths, longest used first.
    pub paths: Vec<UsedPath>,
    /// Number of flows with reports.
    pub flows: u64,
    /// Reports are known for each part of time of this length, nanoseconds; they were divided among its paths by time.
    pub spread: u64,
    /// Whether there are more flows, paths, or changes of a flow's path than are considered.
    pub truncated: bool,
    /// Reason why nothing is known.
    pub unknown: Option<String>,
}

/// Use of a path.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UsedPath {
    /// Node ids in forwarding order; null where a node id is unavailable. Empty if the path was not stored.
    pub path: Vec<Option<u32>>,
    /// Flows that took it.
    pub flows: u64,
    /// Their reports in that time, without those of the current minute. With `mode = "kernel"`, a number of samples: reports with a
    /// significant change, and one per flow and second.
    pub reports: u64,
    /// Total time for which they used it, nanoseconds.
    pub time: u64,
    /// The part of the time of all paths, from 0 to 1.
    pub share: f64,
    /// Start of its use in the span, nanoseconds since the Unix epoch.
    pub first: u64,
    /// End of its use in the span, nanoseconds since the Unix epoch.
    pub last: u64,
}

/// `/flows/{id}/latencies`: latency of a flow's packets at each hop. A value holds until the next one is reported, or until the
/// flow is silent.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HopLatencies {
    /// Start of the first column, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the last column, nanoseconds since the Unix epoch.
    pub to: u64,
    /// Length of a column, nanoseconds.
    pub column: u64,
    /// Upper bounds of the classes of latency, nanoseconds; the lowest class begins at 0.
    pub bounds: Vec<u64>,
    /// Each node that the flow passed, in the order of the latest path.
    pub hops: Vec<LatencySpread>,
    /// The flow's own latency, time on links included.
    pub flow: Option<LatencySpread>,
    /// Number of nodes left out.
    pub left_out: usize,
    /// True if the oldest values are missing because there are too many.
    pub truncated: bool,
}

/// Latencies over time, weighted by the time for which they held.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LatencySpread {
    /// Node id; null of a node whose id is unavailable, and of the flow.
    pub node: Option<u32>,
    /// Number of stored values: changes that were larger than the threshold, and repeated ones.
    pub values: u64,
    /// Time for which values are known, nanoseconds.
    pub time: u64,
    /// Median of the latency, nanoseconds.
    pub p50: u64,
    /// 90th percentile of the latency, nanoseconds.
    pub p90: u64,
    /// 99th percentile of the latency, nanoseconds.
    pub p99: u64,
    /// Largest value of the latency, nanoseconds.
    pub max: u64,
    /// Mean of the latency, nanoseconds.
    pub mean: u64,
    /// Mean of each column, nanoseconds; null where nothing was reported.
    pub means: Vec<Option<u64>>,
    /// Median of each column, nanoseconds; null where nothing was reported.
    pub medians: Vec<Option<u64>>,
    /// 90th percentile of each column, nanoseconds; null where nothing was reported.
    pub p90s: Vec<Option<u64>>,
    /// 99th percentile of each column, nanoseconds; null where nothing was reported.
    pub p99s: Vec<Option<u64>>,
    /// Thousandths of the time of each column in each class; empty where nothing was reported.
    pub classes: Vec<Vec<u16>>,
}

impl From<&ChangeGroup> for ChangeGroupView {
    fn from(group: &ChangeGroup) -> Self {
        Self {
            before: path(&group.before),
            after: path(&group.after),
            flows: group.flows,
            changes: group.changes,
            first: group.first,
            last: group.last,
        }
    }
}

impl UsedPath {
    /// Creates the view of a path. `all` is the total time of all paths, ns, from which its share is computed.
    pub fn new(used: &PathUse, all: u64) -> Self {
        Self {
            path: path(&used.path),
            flows: used.flows,
            reports: used.reports,
            time: used.time,
            share: used.time as f64 / all.max(1) as f64,
            first: used.first,
            last: used.last,
        }
    }
}

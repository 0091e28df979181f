//! How flows used their paths in a span of time, and what each hop took.

use serde::{Deserialize, Serialize};
use store::{ChangeGroup, PathUse};

use super::{Flow, RangeView, path};

/// `/paths/changes`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PathChanges {
    /// The latest changes, newest first.
    pub(crate) changes: Vec<PathChangeView>,
    /// All changes, equal ones together; those of most flows first.
    pub(crate) groups: Vec<ChangeGroupView>,
    /// Number of such groups: `groups` has the first of them.
    pub(crate) group_total: u64,
    /// Number of changes: `changes` has the latest of them.
    pub(crate) total: u64,
    /// The span of time; `truncated`: it has more flows or changes than are considered.
    pub(crate) range: Option<RangeView>,
}

/// A change of a flow's path.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PathChange"))]
pub(crate) struct PathChangeView {
    /// Receive time of the first report of the new path, nanoseconds since the Unix epoch.
    pub(crate) ts: u64,
    /// Id of the flow: 16 hexadecimal digits.
    #[cfg_attr(test, schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub(crate) id: String,
    /// The 5-tuple.
    pub(crate) flow: Flow,
    /// The 5-tuple as text.
    pub(crate) text: String,
    /// Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored.
    pub(crate) before: Vec<Option<u32>>,
    /// Those of the path after.
    pub(crate) after: Vec<Option<u32>>,
}

/// The same change of the paths of several flows.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PathChangeGroup"))]
pub(crate) struct ChangeGroupView {
    /// Node ids of the path before, in forwarding order; null where a node id is unavailable; empty: not stored.
    pub(crate) before: Vec<Option<u32>>,
    /// Those of the path after.
    pub(crate) after: Vec<Option<u32>>,
    /// Number of flows.
    pub(crate) flows: u64,
    /// Number of changes: a flow may have changed back and forth.
    pub(crate) changes: u64,
    /// Time of the first.
    pub(crate) first: u64,
    /// Time of the last.
    pub(crate) last: u64,
}

/// `/paths/uses`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PathUses {
    /// The paths of the flows that were asked about.
    pub(crate) forward: DirectionView,
    /// The paths of the opposite direction; null when all flows were asked about.
    pub(crate) reverse: Option<DirectionView>,
    /// The span of time.
    pub(crate) range: Option<RangeView>,
}

/// The paths of one direction.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PathsOfDirection"))]
pub(crate) struct DirectionView {
    /// The flow, if one was asked about: its 5-tuple as text.
    pub(crate) flow: Option<String>,
    /// The sender, if one was asked about.
    pub(crate) src: Option<String>,
    /// The receiver, if one was asked about.
    pub(crate) dst: Option<String>,
    /// The paths, the one that was taken the longest first.
    pub(crate) paths: Vec<UsedPath>,
    /// Number of flows with reports.
    pub(crate) flows: u64,
    /// Reports are known for each part of time of this length, nanoseconds; they were divided among its paths by time.
    pub(crate) spread: u64,
    /// Whether there are more flows, paths, or changes of a flow's path than are considered.
    pub(crate) truncated: bool,
    /// Why nothing is known.
    pub(crate) unknown: Option<String>,
}

/// How a path was used.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UsedPath {
    /// Node ids in forwarding order; null where a node id is unavailable. Empty: it is not stored which path was taken.
    pub(crate) path: Vec<Option<u32>>,
    /// Flows that took it.
    pub(crate) flows: u64,
    /// Their reports in that time. Of the minute that has not ended, they are not counted yet.
    pub(crate) reports: u64,
    /// For how long they took it, added up, nanoseconds.
    pub(crate) time: u64,
    /// The part of the time of all paths, from 0 to 1.
    pub(crate) share: f64,
    /// From when on it was taken in the span.
    pub(crate) first: u64,
    /// Until when.
    pub(crate) last: u64,
}

/// `/flows/{id}/latencies`: how long the packets of a flow took at each hop. A value holds until the next one is reported, or until the flow is silent.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HopLatencies {
    /// Start of the first column, nanoseconds since the Unix epoch.
    pub(crate) from: u64,
    /// End of the last column.
    pub(crate) to: u64,
    /// Length of a column, nanoseconds.
    pub(crate) column: u64,
    /// Upper bounds of the classes of latency, nanoseconds; the lowest class begins at 0.
    pub(crate) bounds: Vec<u64>,
    /// Each node that the flow passed, in the order of the latest path.
    pub(crate) hops: Vec<LatencySpread>,
    /// The flow's own latency, time on links included.
    pub(crate) flow: Option<LatencySpread>,
    /// Number of nodes left out.
    pub(crate) left_out: usize,
    /// Whether the oldest values are missing: there are too many.
    pub(crate) truncated: bool,
}

/// Latencies over time, weighted by the time for which they held.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LatencySpread {
    /// Node id; null of a node whose id is unavailable, and of the flow.
    pub(crate) node: Option<u32>,
    /// Number of stored values: changes that were larger than the threshold, and repeated ones.
    pub(crate) values: u64,
    /// For how long values are known, nanoseconds.
    pub(crate) time: u64,
    /// Median, nanoseconds.
    pub(crate) p50: u64,
    /// 90th percentile.
    pub(crate) p90: u64,
    /// 99th percentile.
    pub(crate) p99: u64,
    /// Largest.
    pub(crate) max: u64,
    /// Mean.
    pub(crate) mean: u64,
    /// Mean of each column; null where nothing was reported.
    pub(crate) means: Vec<Option<u64>>,
    /// Median of each column.
    pub(crate) medians: Vec<Option<u64>>,
    /// 90th percentile of each column.
    pub(crate) p90s: Vec<Option<u64>>,
    /// 99th percentile of each column.
    pub(crate) p99s: Vec<Option<u64>>,
    /// Of each column, the thousandths of its time in each class; no class where nothing was reported.
    pub(crate) classes: Vec<Vec<u16>>,
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
    /// `all`: the time of all paths.
    pub(crate) fn new(used: &PathUse, all: u64) -> Self {
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

//! API response for grouped time series: traffic by flow, host, node, path and other dimensions.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Name;

/// `/traffic`: values over time, stacked by groups.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Traffic"))]
pub struct TrafficView {
    /// Dimensions by which values are grouped.
    pub by: Vec<Name>,
    /// Measure to sum. `reports` counts reports of flows as devices send them: fewer than packets where devices sample or filter. With
    /// `mode = "kernel"`, it counts samples: reports with a significant change, and one per flow and second.
    pub measure: Name,
    /// The unit of values.
    pub unit: Name,
    /// True if values are counts, which can be stacked. False if values are measurements: a column has their mean.
    pub counts: bool,
    /// Beginning of the first column, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the last column, nanoseconds since the Unix epoch.
    pub to: u64,
    /// Length of a column, ns.
    pub column: u64,
    /// Later data is not known yet: reports of flows are stored per minute, after its end. The column of this time is incomplete.
    pub known_to: u64,
    /// The greatest groups, the greatest first.
    pub groups: Vec<TrafficRow>,
    /// All other groups together.
    pub others: TrafficRow,
    /// Number of other groups; a lower bound if `truncated`.
    pub other_groups: u64,
    /// Everything that matches, each value once.
    pub total: TrafficRow,
    /// True if a value may be in several groups, such as all nodes of a path, so that their sum can exceed the total.
    pub overlapping: bool,
    /// Columns before this time were not counted, because the span has more data than one response reads; null if all were counted.
    pub counted_from: Option<u64>,
    /// True if there are more groups, or flows with paths, than are kept separate. Later ones are counted among the others, or as
    /// unknown.
    pub truncated: bool,
    /// Dimensions and fields of the filter that the values lack: such values are grouped as unknown, or do not match.
    pub lacks: Vec<Name>,
}

/// A group, or several together.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TrafficRow {
    /// The group by each dimension, or null if unknown. Empty for several groups together.
    pub key: Vec<Option<String>>,
    /// A filter that selects exactly this group, by each dimension, or null if there is none.
    pub filters: Vec<Option<String>>,
    /// Number of values in all columns.
    pub count: u64,
    /// Mean of the values; null for counters.
    pub mean: Option<u64>,
    /// The greatest value; null for counters.
    pub max: Option<u64>,
    /// The value of each column: a number of reports or events, or a mean; null where nothing was stored at all, where it is not known yet,
    /// or where nothing was measured.
    pub values: Vec<Option<u64>>,
}

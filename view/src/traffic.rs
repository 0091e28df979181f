//! Traffic over time.

use serde::{Deserialize, Serialize};

use super::Name;

/// `/traffic`: values over time, stacked by groups.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Traffic")
)]
pub struct TrafficView {
    /// The dimensions.
    pub by: Vec<Name>,
    /// What is added up. `reports` are reports of flows: as many as devices send, which are fewer than packets where they sample or filter.
    pub measure: Name,
    /// The unit of values.
    pub unit: Name,
    /// True: values are numbers of something, which can be stacked. False: values are measured; that of a column is their mean.
    pub counts: bool,
    /// Beginning of the first column, nanoseconds since the Unix epoch.
    pub from: u64,
    /// End of the last column.
    pub to: u64,
    /// Length of a column, ns.
    pub column: u64,
    /// What came later is not known yet: reports of flows are stored by the minute, after its end. The column that it is in is known in part.
    pub known_to: u64,
    /// The greatest groups, the greatest first.
    pub groups: Vec<TrafficRow>,
    /// All other groups together.
    pub others: TrafficRow,
    /// How many other groups there are; at least, if `truncated`.
    pub other_groups: u64,
    /// Everything that matches, each value once.
    pub total: TrafficRow,
    /// True: a value may be in several groups, such as all nodes of a path, so that their sum is more than the total.
    pub overlapping: bool,
    /// Columns before this time were not counted, because there is more than an answer reads; null: all were.
    pub counted_from: Option<u64>,
    /// True: there are more groups, or changes of paths, than are kept apart. Those that came later are among the others, or in the group
    /// of what is unknown.
    pub truncated: bool,
    /// Dimensions and fields of the filter that the values do not have: all are in the group of what is unknown, or none matches.
    pub lacks: Vec<Name>,
}

/// A group, or several together.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrafficRow {
    /// The group by each dimension; null: it is not known. Empty for several groups together.
    pub key: Vec<Option<String>>,
    /// A filter that is true of this group alone, by each dimension; null: there is none.
    pub filters: Vec<Option<String>>,
    /// How many values it has in all columns.
    pub count: u64,
    /// Their mean; null for what is counted.
    pub mean: Option<u64>,
    /// The greatest; null for what is counted.
    pub max: Option<u64>,
    /// The value of each column: a number of reports or events, or a mean; null where nothing was stored at all, where it is not known yet,
    /// or where nothing was measured.
    pub values: Vec<Option<u64>>,
}

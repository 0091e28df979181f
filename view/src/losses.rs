//! API response about losses in a time span: dropped packets by location, losses per link, and lost reports.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RangeView;

/// `/losses`. Lost packets and lost reports are never added up: a report that did not arrive says nothing about its packet.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LossMap {
    /// Dropped packets as reported by nodes, largest count first.
    pub drops: Vec<DropsView>,
    /// Dropped packets of no known link, which are only in `drops`.
    pub unplaced: u64,
    /// The links of the span, largest loss first.
    pub links: Vec<LinkLoss>,
    /// Reports that never arrived, by the node that sent them; not lost packets.
    pub reporters: Vec<ReporterView>,
    /// Whether the packets of flows were counted at both ends of links. Otherwise `uncounted` says why not.
    pub counted: bool,
    /// Requirement for counting packets at both ends of links that is not met.
    pub uncounted: Option<String>,
    /// Flows that were left out of these counts, because their path changed in the span, passes a node twice or is not known.
    pub left_out: u64,
    /// Reports received after this time were not counted, because there are too many. Those of the last 5 s are never counted.
    pub counted_until: Option<u64>,
    /// Drops and links beyond the limit.
    pub more: usize,
    /// The span of time.
    pub range: Option<RangeView>,
}

/// Dropped packets of one place and reason.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Drops"))]
pub struct DropsView {
    /// The node that dropped them.
    pub node: Option<u32>,
    /// Egress interface at which they were dropped.
    pub egress_if: Option<u32>,
    /// The node behind this interface at that time, from the latest packets.
    pub to: Option<u32>,
    /// Reason why that node is unknown; null if it is known, or if the interface is unknown.
    pub to_unknown: Option<String>,
    /// Id of the queue at which they were dropped.
    pub queue: Option<u8>,
    /// Drop reason, the code of the device.
    pub reason: Option<u8>,
    /// Name of the reason, from the profile.
    pub reason_name: Option<String>,
    /// Drop reports: one per packet, as far as the node reports each.
    pub packets: u64,
    /// Number of flows with dropped packets.
    pub flows: u64,
    /// Receive time of the first drop report, nanoseconds since the Unix epoch.
    pub first: u64,
    /// Receive time of the last drop report, nanoseconds since the Unix epoch.
    pub last: u64,
}

/// Losses of a link.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct LinkLoss {
    /// Id of the sending node.
    pub from: u32,
    /// Id of the receiving node.
    pub to: u32,
    /// Packets that the sending node reported as dropped on the way to this link: before it, not on it.
    pub dropped: u64,
    /// Packets that the sending node reported as forwarded to it, or null if not counted.
    pub sent: Option<u64>,
    /// Lower bound of the packets that were lost on the link: the difference of both ends, less what lost and
    /// repeated reports, and packets under way at the ends of the time, can explain.
    pub lost: Option<u64>,
    /// Upper bound of the packets that were lost on the link.
    pub lost_most: Option<u64>,
    /// Reason why its losses are unknown.
    pub unknown: Option<String>,
}

/// Reports of a node that did not arrive as they were sent.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ReporterLoss"))]
pub struct ReporterView {
    /// Node id, or null if unknown.
    pub node: Option<u32>,
    /// Reports that never arrived, by their sequence numbers.
    pub lost: u64,
    /// Reports that arrived twice.
    pub duplicated: u64,
}

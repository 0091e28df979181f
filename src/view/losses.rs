//! What was lost in a span of time, where, and how that is known.

use serde::{Deserialize, Serialize};

use super::RangeView;

/// `/losses`. Lost packets and lost reports are never added up: a report that did not arrive says nothing about its packet.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LossMap {
    /// Dropped packets as nodes reported them, the most first.
    pub(crate) drops: Vec<DropsView>,
    /// Dropped packets of no link that is known: they are in `drops` alone.
    pub(crate) unplaced: u64,
    /// The links of the span, those that lost the most first.
    pub(crate) links: Vec<LinkLoss>,
    /// Reports that never arrived, by the node that sent them. Not packets.
    pub(crate) reporters: Vec<ReporterView>,
    /// Whether the packets of flows were counted at both ends of links. Otherwise `uncounted` says why not.
    pub(crate) counted: bool,
    /// What is needed to count packets at both ends of links.
    pub(crate) uncounted: Option<String>,
    /// Flows that were left out of these counts, because their path changed in the span, passes a node twice or is not known.
    pub(crate) left_out: u64,
    /// Reports received after this time were not counted: there are too many. Those of the last 5 s before now never are.
    pub(crate) counted_until: Option<u64>,
    /// Drops and links beyond the limit.
    pub(crate) more: usize,
    /// The span of time.
    pub(crate) range: Option<RangeView>,
}

/// Dropped packets of one place and reason.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Drops"))]
pub(crate) struct DropsView {
    /// The node that dropped them.
    pub(crate) node: Option<u32>,
    /// Egress interface.
    pub(crate) egress_if: Option<u32>,
    /// The node behind this interface at that time, as the packets showed that passed it last.
    pub(crate) to: Option<u32>,
    /// Why that node is not known; null: it is, or the interface is not.
    pub(crate) to_unknown: Option<String>,
    /// Queue id.
    pub(crate) queue: Option<u8>,
    /// Code of the reason.
    pub(crate) reason: Option<u8>,
    /// Its name, from the profile.
    pub(crate) reason_name: Option<String>,
    /// Drop reports: one per packet, as far as the node reports each.
    pub(crate) packets: u64,
    /// Number of flows.
    pub(crate) flows: u64,
    /// Receive time of the first, nanoseconds since the Unix epoch.
    pub(crate) first: u64,
    /// Receive time of the last.
    pub(crate) last: u64,
}

/// What a link lost.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LinkLoss {
    /// Sending node.
    pub(crate) from: u32,
    /// Receiving node.
    pub(crate) to: u32,
    /// Packets that the sending node reported as dropped on the way to this link: before it, not on it.
    pub(crate) dropped: u64,
    /// Packets that the sending node reported as forwarded to it; null: not counted.
    pub(crate) sent: Option<u64>,
    /// Packets of those that were lost on it, at least: the difference of both ends, less what reports that were lost or repeated can explain.
    pub(crate) lost: Option<u64>,
    /// At most.
    pub(crate) lost_most: Option<u64>,
    /// Why it is not known what was lost on it.
    pub(crate) unknown: Option<String>,
}

/// Reports of a node that did not arrive as they were sent.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ReporterLoss"))]
pub(crate) struct ReporterView {
    /// Node id; null: not known.
    pub(crate) node: Option<u32>,
    /// Reports that never arrived, by their sequence numbers.
    pub(crate) lost: u64,
    /// Reports that arrived twice.
    pub(crate) duplicated: u64,
}

//! The values of one report as detectors and rules use them.

use crate::metric::Metric;

/// Marker for a per-hop value that the report does not have.
pub const ABSENT: u64 = u64::MAX;

/// Node ID of a hop without one.
pub const NO_NODE: u32 = u32::MAX;

/// A utilization of 100 %. `link_utilization` is in millionths of the link's capacity, so that rules need no floating
/// point: 80 % is `800_000`. The code that fills an [`Observation`] scales the device's units by its profile.
pub const UTILIZATION_ONE: u64 = 1_000_000;

/// The values of one hop; a missing value is [`ABSENT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct HopValues {
    /// Time inside the node, ns.
    pub hop_latency: u64,
    /// Queue occupancy, device units.
    pub queue_occupancy: u64,
    /// Queue congestion or occupancy of the shared buffer, device units.
    pub queue_congestion: u64,
    /// Utilization of the egress link, millionths ([`UTILIZATION_ONE`]).
    pub link_utilization: u64,
    /// Node ID, or [`NO_NODE`].
    pub node: u32,
}

impl HopValues {
    /// A hop without values.
    pub const NOTHING: Self = Self {
        hop_latency: ABSENT,
        queue_occupancy: ABSENT,
        queue_congestion: ABSENT,
        link_utilization: ABSENT,
        node: NO_NODE,
    };

    /// Returns the value of a per-hop metric; `None` if it is absent, and for metrics of the whole flow.
    pub fn value(&self, metric: Metric) -> Option<u64> {
        let value = match metric {
            Metric::FlowPath | Metric::FlowLatency => ABSENT,
            Metric::HopLatency => self.hop_latency,
            Metric::QueueOccupancy => self.queue_occupancy,
            Metric::QueueCongestion => self.queue_congestion,
            Metric::LinkUtilization => self.link_utilization,
        };
        (value != ABSENT).then_some(value)
    }
}

impl Default for HopValues {
    fn default() -> Self {
        Self::NOTHING
    }
}

/// The values of one report, for [`crate::RuleSet::evaluate`] and [`crate::Monitor::decide`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation<'a> {
    /// Time from the first node's ingress to the last node's egress, ns; `None` if it is missing or unusable.
    pub flow_latency: Option<u64>,
    /// The path visits a node twice.
    pub looped: bool,
    /// The hops in forwarding order.
    pub hops: &'a [HopValues],
}

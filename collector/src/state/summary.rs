//! Compact copies of flows for sorted and filtered lists: a worker only copies, and other threads sort and filter.

use wire::FlowKey;

use crate::decode::NO_VALUE;
use crate::event::Nanos;

/// The fields by which a list of flows is sorted and filtered, in one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSummary {
    /// The key of the flow.
    pub flow: FlowKey,
    latency: u64,
    /// Receive time of the latest report.
    pub last_seen: Nanos,
    /// Reports of the flow so far.
    pub reports: u64,
}

const _: () = assert!(size_of::<FlowSummary>() == 64);

impl FlowSummary {
    /// Creates a summary of these values.
    pub fn new(flow: FlowKey, flow_latency: Option<u64>, last_seen: Nanos, reports: u64) -> Self {
        Self {
            flow,
            latency: flow_latency.unwrap_or(NO_VALUE),
            last_seen,
            reports,
        }
    }

    /// Returns the latest flow latency in ns, if it is known.
    #[inline]
    pub fn flow_latency(&self) -> Option<u64> {
        (self.latency != NO_VALUE).then_some(self.latency)
    }
}

/// Sort order of flows, in descending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOrder {
    /// By the time of the latest report.
    LastSeen,
    /// By the latest flow latency; flows without one are last.
    Latency,
    /// By the number of reports.
    Reports,
}

impl FlowOrder {
    /// Returns the value by which a flow is ordered.
    #[inline]
    pub fn value(self, flow: &FlowSummary) -> u64 {
        match self {
            Self::LastSeen => flow.last_seen,
            Self::Latency => flow.flow_latency().unwrap_or(0),
            Self::Reports => flow.reports,
        }
    }
}

/// Position of a flow in an order: (value, flow id).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowRank(pub u64, pub u64);

//! Applies the aggregated values of reports that the kernel program suppressed; see [`crate::collector::suppressed`].

use detect::Metric;
use wire::FlowKey;

use super::State;
use super::flows::HotFlowParts;
use super::series::Key;
use crate::decode::{ABSENT, NO_VALUE};
use crate::event::{Basis, Nanos, Output};
use crate::index::NO_SLOT;

/// Values that a filter has collected for a flow whose reports it suppressed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SuppressedFlow<'a> {
    /// The key of the flow.
    pub key: FlowKey,
    /// Reports suppressed since the filter last reported the flow. If 0, nothing is applied.
    pub reports: u64,
    /// Latest flow latency, ns; `None` if none was usable. Like all values, it is applied only if the flow's path comes from
    /// INT.
    pub latency: Option<u64>,
    /// Basis of the latest latency; `None` leaves it unchanged.
    pub basis: Option<Basis>,
    /// The hops of its path in forwarding order. Applied only if their nodes are the flow's known path.
    pub hops: &'a [SuppressedHop],
    /// Approximate receive time of the latest of those reports.
    pub last_seen: Nanos,
}

/// Latest values of one hop; all ones for values that are unknown. Each value counts as one
/// report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuppressedHop {
    /// The ID of the node.
    pub node: u32,
    /// Level-1 interfaces (ingress and egress, 16 bits each), or the level-2 egress.
    pub link: u32,
    /// `link` is a level-2 interface.
    pub level_2: bool,
    /// Time inside the node, ns.
    pub latency: u64,
    /// Queue id in the high 8 bits, occupancy in the low 24.
    pub queue: u32,
    /// Queue id in the high 8 bits, congestion status in the low 24.
    pub congestion: u32,
    /// Utilization of the egress link, millionths.
    pub utilization: u64,
}

impl SuppressedHop {
    /// A hop without values.
    pub const NOTHING: Self = Self {
        node: ABSENT,
        link: ABSENT,
        level_2: false,
        latency: NO_VALUE,
        queue: ABSENT,
        congestion: ABSENT,
        utilization: NO_VALUE,
    };
}

/// The value that a filter has collected for a node's key: a queue, a link, or the node itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuppressedKey {
    /// One of a node's metrics, or hop latency for the node itself.
    pub metric: Metric,
    /// The ID of the node.
    pub node: u32,
    /// The queue or egress interface; 0 for the node itself.
    pub part: u32,
    /// Latest value, in the metric's unit.
    pub value: u64,
}

impl State {
    /// Applies the values that a filter aggregated for a flow. Returns `false` if there is no such flow, or its path does not
    /// come from INT.
    pub(crate) fn apply_suppressed(
        &mut self,
        suppressed: &SuppressedFlow<'_>,
        hash: u64,
        out: &mut dyn Output,
    ) -> bool {
        let slot = self.flows.find(&suppressed.key, hash, NO_SLOT);
        if slot == NO_SLOT {
            return false;
        }
        if suppressed.reports == 0 {
            return true;
        }
        let flow = self.flows.parts(slot).flow;
        let before = flow.reports;
        flow.reports = before.saturating_add(suppressed.reports);
        // A filter suppresses only reports with all nodes.
        flow.set_has_parts(false);
        flow.last_seen = flow.last_seen.max(suppressed.last_seen);
        if before < 2 && flow.reports >= 2 {
            self.flows.touch(slot, self.second);
        }
        self.refresh_if_due(slot, out);
        let HotFlowParts {
            flow,
            cold,
            hops: stored,
        } = self.flows.hot_parts(slot);
        let cold = cold.get();
        if !flow.has_path_by_int() {
            return suppressed.hops.is_empty();
        }
        if let Some(basis) = suppressed.basis {
            (flow.latency, flow.basis) = (NO_VALUE, basis);
        }
        if let Some(latency) = suppressed.latency {
            flow.latency = latency;
            flow.latency_sum = flow.latency_sum.saturating_add(latency);
            flow.latency_count = flow.latency_count.wrapping_add(1);
            (cold.min_latency, cold.max_latency) =
                (cold.min_latency.min(latency), cold.max_latency.max(latency));
        }
        let same = stored.states.len() == suppressed.hops.len()
            && stored
                .states
                .iter()
                .zip(suppressed.hops)
                .all(|(state, hop)| state.node == hop.node);
        if same {
            let hops = stored.iter_mut().zip(suppressed.hops);
            for ((state, values), hop) in hops {
                self.metrics.update_silently(state, values, hop);
            }
        }
        true
    }

    /// Applies the latest suppressed value of a node's key. Returns `false` if there is no such key.
    pub(crate) fn apply_suppressed_key(&mut self, suppressed: &SuppressedKey) -> bool {
        let (series, sketches) = self.metrics.series_mut(suppressed.metric);
        let key = Key::new(suppressed.node, suppressed.part);
        series.add_silently(&mut { NO_SLOT }, key, suppressed.value, sketches)
    }
}

//! Pages of sorted flows, from copies ([`FlowSummary`]): a worker only copies its flows, and the threads of the API select and sort
//! them.

use std::cmp::Reverse;

use collector::{FlowOrder, FlowRank, FlowSummary};
use wire::FlowKey;

/// Selection, order and size of a page of flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlowQuery {
    /// Maximum number of flows, at least 1.
    pub(crate) limit: usize,
    /// The order of the flows.
    pub(crate) order: FlowOrder,
    /// Only flows after this rank, which continues from an earlier page.
    pub(crate) after: Option<FlowRank>,
}

/// A page of flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlowPage {
    /// The flows in their order, each once.
    pub(crate) flows: Vec<(FlowRank, FlowKey)>,
    /// True if more flows match.
    pub(crate) more: bool,
    /// Number of flows that match, including those before the page. A flow that was evicted and came back while the list was
    /// copied counts twice.
    pub(crate) total: u64,
}

impl FlowPage {
    /// Selects the page that `query` describes from the flows for which `is_wanted` returns true. Takes linear time, and memory for two
    /// pages.
    pub(crate) fn select<'a>(
        flows: impl Iterator<Item = &'a FlowSummary>,
        query: &FlowQuery,
        is_wanted: impl Fn(&FlowSummary) -> bool,
    ) -> Self {
        let mut total = 0;
        let mut greatest = Greatest::new(query.limit.max(1) + 1);
        for flow in flows {
            if !is_wanted(flow) {
                continue;
            }
            total += 1;
            greatest.offer(query.order.value(flow), &flow.flow, query.after);
        }
        let mut flows = greatest.sorted();
        let more = flows.len() > query.limit.max(1);
        flows.truncate(query.limit.max(1));
        Self { flows, more, total }
    }
}

/// The `room` greatest of the flows offered (a partial sort).
struct Greatest {
    room: usize,
    /// At most twice `room` flows, unsorted.
    kept: Vec<(FlowRank, FlowKey)>,
    /// Flows below this rank are not among the greatest.
    least: FlowRank,
}

impl Greatest {
    fn new(room: usize) -> Self {
        Self {
            room,
            kept: Vec::with_capacity(room * 2),
            least: FlowRank(0, 0),
        }
    }

    #[inline]
    fn offer(&mut self, value: u64, flow: &FlowKey, after: Option<FlowRank>) {
        // Most flows are excluded by value, before their id is computed.
        if value < self.least.0 || after.is_some_and(|after| value > after.0) {
            return;
        }
        let rank = FlowRank(value, flow.id());
        if rank < self.least || after.is_some_and(|after| rank >= after) {
            return;
        }
        self.kept.push((rank, *flow));
        if self.kept.len() == self.room * 2 {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.remove_copies();
        if self.kept.len() <= self.room {
            return;
        }
        let (_, least, _) = self
            .kept
            .select_nth_unstable_by_key(self.room - 1, |(rank, _)| Reverse(*rank));
        self.least = least.0;
        self.kept.truncate(self.room);
    }

    /// Removes duplicates: a flow that changed its slot may have been copied twice.
    fn remove_copies(&mut self) {
        self.kept
            .sort_unstable_by_key(|(rank, flow)| (*flow, Reverse(*rank)));
        self.kept.dedup_by_key(|(_, flow)| *flow);
    }

    /// Returns the greatest in descending order, each flow once.
    fn sorted(mut self) -> Vec<(FlowRank, FlowKey)> {
        self.remove_copies();
        self.kept.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        self.kept.truncate(self.room);
        self.kept
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

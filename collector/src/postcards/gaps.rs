//! When sequence numbers were last missing: postcards may be missing too.

use crate::event::Nanos;
use crate::hash::fold;

/// Nodes whose latest gap is remembered.
const NODES: usize = 256;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Gaps {
    by_node: Vec<Nanos>,
    /// Of a sender that forwards the postcards of many nodes.
    unnamed: Nanos,
    latest: Nanos,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self { by_node: vec![0; NODES], unnamed: 0, latest: 0 }
    }

    fn of(node: u32) -> usize {
        fold(0, node.into()) as usize % NODES
    }

    /// Numbers are missing in the stream of `node`, or of a sender that is none.
    pub(crate) fn note(&mut self, node: Option<u32>, now: Nanos) {
        let place = match node {
            Some(node) => &mut self.by_node[Self::of(node)],
            None => &mut self.unnamed,
        };
        *place = now.max(*place);
        self.latest = now.max(self.latest);
    }

    /// The clock was set back to `now`: no gap is later.
    pub(crate) fn set_back(&mut self, now: Nanos) {
        let Self { by_node, unnamed, latest } = self;
        by_node.iter_mut().chain([unnamed, latest]).for_each(|at| *at = now.min(*at));
    }

    /// Was a number of `node` missing at `since` or later? Nodes share places: rather yes than no.
    pub(super) fn any(&self, node: u32, since: Nanos) -> bool {
        self.by_node[Self::of(node)].max(self.unnamed) >= since
    }

    /// Was any number missing less than `time` before `now`?
    pub(super) fn any_within(&self, time: Nanos, now: Nanos) -> bool {
        self.latest > 0 && now.saturating_sub(self.latest) < time
    }
}

//! Log of entries removed from the state, for users that keep a copy of it, such as the kernel program's maps.

use detect::Metric;
use wire::FlowKey;

/// An entry that was removed from the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// A flow with all its state.
    Flow(FlowKey),
    /// Path, latency and reported values of a flow: its packets no longer carry INT, or postcards arrived past the filter.
    Path(FlowKey),
    /// A node's key in one metric.
    Key {
        /// The metric of its values.
        metric: Metric,
        /// The ID of the node.
        node: u32,
        /// Queue or interface; 0 for the node itself.
        part: u32,
    },
    /// Removals were lost, so the user must compare all entries with its copy.
    Overflow,
}

/// Bounded list of removals that are not drained yet.
#[derive(Debug)]
pub(crate) struct Removals {
    list: Vec<Removed>,
    capacity: usize,
    overflow: bool,
}

impl Removals {
    /// Creates a list for `capacity` removals.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            list: Vec::with_capacity(capacity),
            capacity,
            overflow: false,
        }
    }

    pub(crate) fn push(&mut self, removed: Removed) {
        if self.list.len() < self.capacity {
            self.list.push(removed);
        } else {
            self.overflow = true;
        }
    }

    /// Passes each removal to `with`, in order; [`Removed::Overflow`] comes last if the list overflowed.
    pub(crate) fn drain(&mut self, mut with: impl FnMut(Removed)) {
        self.list.drain(..).for_each(&mut with);
        if std::mem::take(&mut self.overflow) {
            with(Removed::Overflow);
        }
    }
}

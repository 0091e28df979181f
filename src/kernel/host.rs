//! The collector as a program of the kernel meets it.

use std::sync::Arc;

use collector::{Collector, Datagram, Removed, Sink, Stats};
use detect::Detection;

use crate::worker::Worker;

/// What is asked of the collector and its way out.
pub(crate) trait CollectorHost {
    /// Datagrams that came up.
    fn take(&mut self, datagrams: &[Datagram<'_>]);

    /// Works on the collector; what it tells is handed on.
    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Sink) -> T) -> T;

    /// Thresholds and rules that are to be in force next. The input puts them in force in the kernel first, and then calls
    /// [`CollectorHost::change`], behind the last record that was told under the old ones.
    fn coming(&self) -> Option<Arc<Detection>>;

    /// Puts those in force.
    fn change(&mut self);

    /// Adds to what was counted outside the collector.
    fn count(&mut self, more: &Stats);

    /// What the collector forgot since the input of this number asked last.
    fn drain_removed(&mut self, input: usize, hear: &mut dyn FnMut(Removed));

    /// A number for an input that wants to know what is forgotten.
    fn track_removals(&mut self) -> usize;

    /// The input of this number has ended.
    fn end_removals(&mut self, input: usize);
}

impl CollectorHost for Worker {
    fn take(&mut self, datagrams: &[Datagram<'_>]) {
        Self::take(self, datagrams);
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Sink) -> T) -> T {
        Self::with(self, work)
    }

    fn coming(&self) -> Option<Arc<Detection>> {
        Self::coming(self)
    }

    fn change(&mut self) {
        Self::change(self);
    }

    fn count(&mut self, more: &Stats) {
        Self::count(self, more);
    }

    fn drain_removed(&mut self, input: usize, hear: &mut dyn FnMut(Removed)) {
        Self::drain_removed(self, input, hear);
    }

    fn track_removals(&mut self) -> usize {
        Self::track_removals(self)
    }

    fn end_removals(&mut self, input: usize) {
        Self::end_removals(self, input);
    }
}

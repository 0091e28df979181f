//! The collector as seen by the input with detection in the kernel.

use std::sync::Arc;

use collector::{Collector, Datagram, Output, Removed, Stats};
use detect::Detection;

use crate::worker::Worker;

/// A worker that hosts a collector.
pub trait CollectorHost {
    /// Processes datagrams that the kernel program passed to user space.
    fn process(&mut self, datagrams: &[Datagram<'_>]);

    /// Runs `work` on the collector, with the output for its results.
    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Output) -> T) -> T;

    /// Pending thresholds and rules. The input applies them in the kernel first, and then calls
    /// [`CollectorHost::apply_detection`], after the last record under the old ones.
    fn pending_detection(&self) -> Option<Arc<Detection>>;

    /// Applies the pending ones.
    fn apply_detection(&mut self);

    /// Adds counts of datagrams that were processed outside the collector.
    fn count(&mut self, more: &Stats);

    /// Passes what the collector removed since the last call of this input to `visit`.
    fn drain_removed(&mut self, input: usize, visit: &mut dyn FnMut(Removed));

    /// Registers an input for removals; returns its number.
    fn track_removals(&mut self) -> usize;

    /// Removes the input with this number.
    fn end_removals(&mut self, input: usize);
}

impl CollectorHost for Worker {
    fn process(&mut self, datagrams: &[Datagram<'_>]) {
        Self::process_reports(self, datagrams);
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Output) -> T) -> T {
        Self::with(self, work)
    }

    fn pending_detection(&self) -> Option<Arc<Detection>> {
        Self::pending_detection(self)
    }

    fn apply_detection(&mut self) {
        Self::apply_detection(self);
    }

    fn count(&mut self, more: &Stats) {
        Self::count(self, more);
    }

    fn drain_removed(&mut self, input: usize, visit: &mut dyn FnMut(Removed)) {
        Self::drain_removed(self, input, visit);
    }

    fn track_removals(&mut self) -> usize {
        Self::track_removals(self)
    }

    fn end_removals(&mut self, input: usize) {
        Self::end_removals(self, input);
    }
}

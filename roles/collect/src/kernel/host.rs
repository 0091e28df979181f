//! The interface of the collector that kernel detection needs, implemented by [`Worker`]; tests implement it without threads.

use std::sync::Arc;

use collector::{Collector, Datagram, Output, Removed, Stats};
use detect::Detection;

use crate::worker::Worker;

/// The owner of a collector.
pub trait CollectorHost {
    /// Processes datagrams that the kernel program passed to user space.
    fn process(&mut self, datagrams: &[Datagram<'_>]);

    /// Runs `work` on the collector, with the output for its results.
    fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Output) -> T) -> T;

    /// Returns thresholds and rules that await activation. The input applies them in the kernel first, and calls
    /// [`CollectorHost::apply_detection`] after the last record under the old ones.
    fn pending_detection(&self) -> Option<Arc<Detection>>;

    /// Activates the pending thresholds and rules.
    fn apply_detection(&mut self);

    /// Adds counts of datagrams processed outside the collector.
    fn count(&mut self, more: &Stats);

    /// Passes everything that the collector removed since this input's last call to `visit`.
    fn drain_removed(&mut self, input: usize, visit: &mut dyn FnMut(Removed));

    /// Registers an input for notice of removals; returns its index.
    fn track_removals(&mut self) -> usize;

    /// Unregisters the input with this index.
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

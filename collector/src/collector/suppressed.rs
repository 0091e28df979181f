//! The interface for a filter in front of the collector: the kernel program aggregates reports without a significant change,
//! and passes the aggregated values on together.
//!
//! # The contract of the filter
//!
//! The filter passes to user space every datagram that changes anything on which a present or future event depends:
//!
//! - a flow or a node's key that the filter does not know;
//! - another path, unless E, M or Q say that nodes may be missing and the others are some of the known path; and the first
//!   report with all nodes, if the known path came from such an incomplete report;
//! - a value that differs from the last **reported** one by more than the threshold of the report's flow;
//! - E or M bits that differ from the flow's, set or cleared;
//! - rules that become true or false; and after a swap of the detection, the first report of each flow with a true rule;
//! - a postcard, which must be joined with others, and the next INT report of its flow; reports with hops of a known flow whose
//!   path does not come from INT;
//! - an implausible hop latency, which is counted;
//! - dropped packets.
//!
//! It suppresses all others and reports them together: their sequence numbers as runs ([`Collector::receive_run`], before any
//! later datagram), their values from time to time ([`Collector::apply_suppressed`], [`Collector::apply_suppressed_key`]).
//!
//! # What stays the same, and what differs
//!
//! The **events** equal those of a collector that sees every report: kind, metric, ids, value, previous value, threshold, rule,
//! path, record id. So do the totals per numbered stream. The differences are:
//!
//! - times of timer-driven results: flows and keys expire, and losses are reported, up to one round of the filter later. So a
//!   loss may be reported with a later second, and a flow or key that returns after a silence of about its timeout may have
//!   expired in one collector and not in the other. A key that had values in one second only is removed soon; with the filter
//!   its values may fall into two seconds;
//! - the pushed latest state, which is that of the filter's last round. Suppressed values never cause an event;
//! - **rollups**: a suppressed value is within the threshold `T` of the last reported value. In each round a key gets one
//!   value, in the second in which it is applied; `count` and `sum` cover the reported and applied values, each of which a node
//!   really sent. If every threshold that applies to the key is at most `T`, a suppressed value is within `2 T` of any value
//!   applied before the next reported one. So `min` and `max` are at most `2 T` inside the true ones (at most `T` in an
//!   interval with a reported value), and never outside them, except that a round may move a value into the next interval;
//! - the choice of evicted flows in a full table, since the activity of suppressed flows is updated once per round.
//!
//! The filter must also remove the flows, paths and keys that the collector removes (expired, evicted, or INT ended), so that
//! the next report is a change in both: [`Collector::drain_removed`].

use super::Collector;
use crate::event::{Nanos, Output};
use crate::sequence::Run;
use crate::state::removals::{Removals, Removed};
use crate::state::suppressed::{SuppressedFlow, SuppressedKey};
use crate::stream::StreamId;

impl Collector {
    /// Applies the values that a filter aggregated for a flow, without events. Returns `false` if the flow is not known here or
    /// its path does not come from INT; the filter must then remove it. The only output is the rollup of a finished minute of
    /// the flow. Costs about as much as a report.
    pub fn apply_suppressed(&mut self, suppressed: &SuppressedFlow<'_>, out: &mut dyn Output) -> bool {
        let hash = suppressed.key.hash(self.inner.seed);
        self.inner.state.apply_suppressed(suppressed, hash, out)
    }

    /// Applies the value that a filter has for a node's key, without events. Returns `false` if the key is not known here; the
    /// filter must then remove it.
    pub fn apply_suppressed_key(&mut self, suppressed: &SuppressedKey) -> bool {
        self.inner.state.apply_suppressed_key(suppressed)
    }

    /// Accounts for datagrams that a filter suppressed; see [`crate::Sequencer::receive_run`]. Does nothing if loss accounting
    /// is disabled.
    pub fn receive_run(&mut self, id: &StreamId, run: Run, now: Nanos, out: &mut dyn Output) {
        self.inner.losses.receive_run(id, run, now, out);
    }

    /// Starts recording removals, at most `capacity` between two calls of [`Collector::drain_removed`].
    pub fn track_removals(&mut self, capacity: usize) {
        self.inner.state.removals = Some(Removals::with_capacity(capacity));
    }

    /// Passes the removals since the last call to `with`, in order; [`Removed::Overflow`] comes last. There are none unless
    /// [`Collector::track_removals`] was called.
    pub fn drain_removed(&mut self, with: impl FnMut(Removed)) {
        if let Some(removals) = &mut self.inner.state.removals {
            removals.drain(with);
        }
    }
}

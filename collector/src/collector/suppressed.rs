//! Behind a filter: the kernel's program aggregates reports without a significant change, and the collector gets them
//! together.
//!
//! # The contract of the filter
//!
//! It passes to user space every datagram that changes anything on which an event depends, now or later:
//!
//! - a flow or a key of a node that it does not know; another path;
//! - a value further than its threshold from the one **reported** last, with the threshold of the report's flow;
//! - E or M bits that are not the flow's, also when they clear;
//! - rules that become true or cease to be, and after a swap of the detection the first report of each flow of which one
//!   is true;
//! - a postcard, which is joined with others;
//! - an implausible hop latency, which is counted;
//! - dropped packets.
//!
//! It suppresses the others and reports them together: their sequence numbers as runs ([`Collector::receive_run`], before
//! any datagram that came after them), their values from time to time ([`Collector::apply_suppressed`],
//! [`Collector::apply_suppressed_key`]).
//!
//! # What stays the same, and what differs
//!
//! The **events** are those of a collector that sees every report: kind, metric, ids, value, previous value, threshold,
//! rule, path, record id. So are the totals per numbered stream. These differ:
//!
//! - the times of what the clock causes: flows and keys expire, and losses are reported, up to one round of the filter
//!   later. So a loss may be reported with the second after its own, and what returns after a silence of about its timeout
//!   may have expired in one collector and not in the other. A key that had values in one second only, and is therefore
//!   soon removed, may count as one of two;
//! - the pushed latest state: it is the filter's of the last round. Suppressed values never cause an event;
//! - **rollups**: a suppressed value is within the threshold `T` of the value reported last. From each round a key gets
//!   one value, of the second in which it is applied; `count` and `sum` are those of what was reported and applied, and
//!   each of these values was really reported by a node. So where every threshold that applies to the key is at most `T`,
//!   a suppressed value lies within `T` of the one reported last and within `2 T` of any that is applied before the next
//!   is reported: `min` and `max` are each at most `2 T` inside the true ones, at most `T` in an interval in which a value
//!   was reported, and never outside them, except that a round may bring a value into the next interval;
//! - which flow is evicted when the table is full, since the activity of the others is known once per round.
//!
//! What the collector removes, expired or evicted, the filter must remove too, so that the next report is a change in both:
//! [`Collector::drain_removed`].

use super::Collector;
use crate::event::{Nanos, Output};
use crate::sequence::Run;
use crate::state::removals::{Removals, Removed};
use crate::state::suppressed::{SuppressedFlow, SuppressedKey};
use crate::stream::StreamId;

impl Collector {
    /// Applies what a filter aggregated of a flow, without events. `false`: the flow is not known here, and the filter must
    /// forget it. Only rollups of a flow's finished minute may leave. Costs about as much as a report.
    pub fn apply_suppressed(&mut self, suppressed: &SuppressedFlow<'_>, out: &mut dyn Output) -> bool {
        let hash = suppressed.key.hash(self.inner.seed);
        self.inner.state.apply_suppressed(suppressed, hash, out)
    }

    /// Applies what a filter knows of a key of a node, without events. `false`: the key is not known here, and the filter
    /// must forget it.
    pub fn apply_suppressed_key(&mut self, suppressed: &SuppressedKey) -> bool {
        self.inner.state.apply_suppressed_key(suppressed)
    }

    /// Datagrams arrived that a filter suppressed; see [`crate::Sequencer::receive_run`]. Where the collector does not
    /// account for losses this does nothing.
    pub fn receive_run(&mut self, id: &StreamId, run: Run, now: Nanos, out: &mut dyn Output) {
        self.inner.losses.receive_run(id, run, now, out);
    }

    /// Starts recording what is removed, up to `capacity` removals between two calls of
    /// [`Collector::drain_removed`].
    pub fn track_removals(&mut self, capacity: usize) {
        self.inner.state.removals = Some(Removals::with_capacity(capacity));
    }

    /// Gives `with` what was removed since the last call, in order; [`Removed::Overflow`] comes last. Nothing unless
    /// [`Collector::track_removals`] was called.
    pub fn drain_removed(&mut self, with: impl FnMut(Removed)) {
        if let Some(removals) = &mut self.inner.state.removals {
            removals.drain(with);
        }
    }
}

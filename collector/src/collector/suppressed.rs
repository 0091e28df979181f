//! Behind a filter: reports without news are decided elsewhere (in the kernel), and the collector is told of them together.
//!
//! # What the filter owes
//!
//! It gives up every datagram that changes anything on which an event depends, now or later:
//!
//! - a flow or a key of a node that it does not know; another path;
//! - a value further than its threshold from the one **told** last, with the threshold of the report's flow;
//! - E or M bits that are not the flow's, also when they go out;
//! - rules that become true or cease to be, and after a swap of the detection the first report of each flow of which one
//!   is true;
//! - what a node says by itself (a postcard): it is joined with what others say;
//! - dropped packets.
//!
//! It swallows the others, and tells of them: their numbers as runs ([`Collector::receive_run`], before any datagram that
//! came after them), their values from time to time ([`Collector::absorb`], [`Collector::absorb_key`]).
//!
//! # What is then the same, and what is not
//!
//! The **events** are those of a collector that sees every report: kind, metric, ids, value, previous value, threshold,
//! rule, path, record id. So are the totals per numbered stream. Not the same are:
//!
//! - the times of what the clock tells: flows and keys expire, and losses are told, up to one round of absorbing later; so
//!   a loss may be told with the second after its own, and what returns after a silence of about its timeout may have
//!   expired in the one and not in the other. A key that had values in one second only, and is therefore soon forgotten,
//!   may count as one of two;
//! - the pushed latest state: it is the filter's of the last round. Absorbing is silent: it never makes an event;
//! - **roll-ups**: a swallowed value is within the threshold `T` of the value told last. From each absorption a key gets one
//!   value, of the second in which it is absorbed; `count` and `sum` are those of what was told and absorbed, and each
//!   value among them was really reported. So where every threshold that applies to the key is at most `T`, a value that
//!   was swallowed lies within `T` of the one told last and within `2 T` of any that is absorbed before the next is told:
//!   `min` and `max` are each at most `2 T` inside the true ones, at most `T` in an interval in which the last told value
//!   was told, and never outside them but by one round of absorbing, which may bring a value into the next interval;
//! - which flow makes room when the table is full, since how busy the others are is known once per round.
//!
//! What the collector forgets, expired or pushed out, the filter must forget too, so that the next report is news in both:
//! [`Collector::removed`].

use super::Collector;
use crate::event::{Nanos, Sink};
use crate::sequence::Run;
use crate::state::removals::{Removals, Removed};
use crate::state::suppressed::{SuppressedFlow, SuppressedKey};
use crate::stream::StreamId;

impl Collector {
    /// Applies what a filter aggregated of a flow, without events. `false`: the flow is not known here, and the filter must
    /// forget it. Only roll-ups of a flow's finished minute may leave. Costs about as much as a report.
    pub fn apply_suppressed(&mut self, suppressed: &SuppressedFlow<'_>, sink: &mut dyn Sink) -> bool {
        let hash = suppressed.key.hash(self.inner.seed);
        self.inner.state.apply_suppressed(suppressed, hash, sink)
    }

    /// Applies what a filter knows of a key of a node, without events. `false`: the key is not known here, and the filter
    /// must forget it.
    pub fn apply_suppressed_key(&mut self, suppressed: &SuppressedKey) -> bool {
        self.inner.state.apply_suppressed_key(suppressed)
    }

    /// Datagrams arrived that a filter suppressed; see [`crate::Sequencer::receive_run`]. Where the collector does not
    /// account for losses this does nothing.
    pub fn receive_run(&mut self, id: &StreamId, run: Run, now: Nanos, sink: &mut dyn Sink) {
        self.inner.losses.receive_run(id, run, now, sink);
    }

    /// From now on remembers what is removed, up to `capacity` removals between two calls of
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

//! Counts lost, reordered and duplicated report datagrams, and restarts of reporters, from the sequence numbers of telemetry
//! reports (INT reports 0.5 and 1.0, Report 2.0).
//!
//! # The algorithm
//!
//! A **stream** is a sequence space: (version, node id, `hw_id`, listener) for reports 1.0 and 2.0, (version, source address,
//! `hw_id`, listener) for 0.5. The listener stands for the destination address of the specification. Sequence numbers count
//! datagrams, modulo 2^22 in 2.0 and 2^32 in 1.0 and 0.5, and are compared by serial number arithmetic (RFC 1982).
//!
//! For each stream the sequencer stores the highest number seen and a **window** of the [`WINDOW`] numbers up to it, one bit
//! per number: received or missing. With `d` = number − highest:
//!
//! | d | meaning | counted as |
//! | --- | --- | --- |
//! | 1 | the next number | nothing |
//! | > 1 | a gap opens: `d - 1` are missing, none is lost yet | each missing number that leaves the window: **lost** |
//! | 0 or in the window, received before | a copy | **duplicated** |
//! | in the window, missing | late | **reordered** |
//! | anything else | a stray, a restart or an outage: the number is **held** | decided by the next number |
//!
//! **Held numbers.** One datagram never moves a stream. A number that is more than a window away is held, and the next number
//! decides. If the next number continues the current sequence, the held one was a *stray* and counts as reordered. If it is
//! within a window of the held one, another sequence begins there. If few numbers arrive, so that both are gaps ahead, one
//! after the other, the stream moves to the held one.
//!
//! **Two sequences.** After a jump, the sequence before it (the *other* one) is kept until it has had no number for a window
//! of datagrams, or the stream was silent for [`SETTLE`]. A number belongs to the closer sequence, and two in a row that
//! continue the other sequence make it the current one again. When the older sequence ends, the sequencer decides what the
//! jump was:
//!
//! - forward: an outage, whose numbers are lost;
//! - back: a **restart**;
//! - *forward* by more than [`FAR`] to one of the first [`WINDOW`] numbers of the sequence space, or by less to one of the
//!   first [`FIRST_NUMBERS`]: also a restart, because modulo 2^22 a reporter that restarts at 0 is "ahead" of every number in
//!   the upper half;
//! - if the older sequence goes on instead, the newer one was a few strays.
//!
//! Numbers behind the older sequence are no restart while they are few and no four of them are in order: they may be very
//! late. One of the first [`FIRST_NUMBERS`] that the sequence before an outage already had is held, because the reporter may
//! have restarted. A second, slower path may bring the older sequence up to the numbers of a newer one that is ahead. The
//! numbers that the older one misses there may have arrived in the newer one; they are lost only if the newer one was a few
//! strays.
//!
//! **Late batches.** A second path may deliver more than a window of late numbers at once, which looks like a restart. So the
//! stream stores the sequence before a restart that followed no silence. If that sequence goes on within [`PAUSE`], the
//! numbers since then were late: none of them is missing, and those in the gap before that sequence are recovered. Otherwise
//! the restart counts. All numbers since then may be late as long as no more of them arrived than were missing, and they
//! began where no restarted reporter does. Until this is settled, numbers missing among them are not lost yet, and a silence
//! decides nothing: the numbers after it do. If they reach the old number in order, are more than were missing, and some of
//! them are missing, the reporter has restarted. Numbers that began where a restarted reporter does count as a restart in the
//! end; but if no more of them arrived than were missing, a silence does not decide that either.
//!
//! **Pauses.** A network does not delay a datagram by [`PAUSE`]. After such a silence, a number that is not ahead is held
//! even if it lies in the window, until one is ahead. If the next one is ahead of the highest number, the held one was late
//! or a duplicate. If both are missing, or the next one repeats the highest, they were late: the highest number was forged,
//! or the clock was stepped. Otherwise the reporter has restarted.
//!
//! **Several nodes behind one address.** Reports 0.5 carry a node id only if they have a drop or switch-local header. So the
//! first node that an address names shares the stream of the address with all reports that name no node, and every other node
//! has a separate stream. An address is *not countable* ([`StreamView::mixed`]) for [`MIXED`] after the latest evidence that
//! reports of several nodes are in one stream. Evidence is either [`OTHERS`] reports of another node, and one that names
//! none, within that time; or, in a stream with reports that name none, [`TURNS`] alternations of two sequences in which each
//! continues with exactly its next number, however close or far apart they are.
//!
//! **Refused datagrams.** A refused datagram may not be a report at all. Its number counts only if its stream exists and the
//! number is missing or at most a window ahead ([`Sequencer::observe_refused`]).
//!
//! **Start.** Numbers before the first one are not expected; one that arrives counts as reordered.
//!
//! **Not countable.** A stream whose number is constant (many devices always send 0) is *not countable*: its counts of lost
//! and duplicated are meaningless, and [`StreamView::countable`] is false. It becomes countable when its number first
//! advances (twice in a row, if it has been constant for [`STALLED`] datagrams, because one number may be forged), and stops
//! being countable when one number arrives [`STALLED`] times in a row. When the number advances again, counting resumes where
//! it was: copies of a number hide no outage.
//!
//! **Silence.** Numbers that are missing in a stream that was silent for [`SETTLE`] (or at [`Sequencer::finish`]) count as
//! lost. One that arrives later, while it is still in the window, is *recovered*: it counts as reordered and no longer as
//! lost. So one forged number ahead of a silence invents no losses.
//!
//! Hence, for a countable stream without restarts: numbers from first to highest = datagrams − duplicated − strays + lost +
//! unconfirmed + still missing.
//!
//! **Evidence.** Two forged datagrams are enough for a jump of billions. So a number that did not arrive counts as lost only
//! with the support of datagrams that did: each datagram whose number is new and not far away supports the loss of
//! [`LOSSES_PER_DATAGRAM`] others, once. Losses beyond this are **unconfirmed**. Later datagrams confirm them, so an outage
//! is counted as lost in proportion to the traffic after it; the datagrams before it support at most [`MAX_PRIOR_LOSSES`]
//! losses. A restart ends the confirmation, and so does a jump back to the numbers before (modulo the sequence space also
//! ahead): losses that are unconfirmed by then remain so. To recognize these numbers, the stream stores where it left its
//! latest sequences, one for each order of magnitude of their datagrams; a jump returns only to a longer sequence than the
//! one it leaves. Hence, for any input: lost <= [`LOSSES_PER_DATAGRAM`] × datagrams. This costs nothing on the fast path: the
//! datagrams in sequence since the last anomaly follow from the growth of the datagram counter.

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod channel_tests;
#[cfg(test)]
mod rule_tests;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod track;

pub use run::Run;

use std::iter::Sum;
use std::ops::AddAssign;

use crate::event::{Nanos, Output};
use crate::index::{BUSY, Index, InsertSlot, NO_SLOT};
use crate::stream::{StreamId, V05};

use stream::{Nodes, Stream};

/// Size of the window: a number at most this far behind the highest is late, not a restart.
pub const WINDOW: u32 = u128::BITS;
/// A forward jump by more than this is accepted only when the next number follows it.
pub const FAR: u32 = 1 << 16;
/// A jump ahead by at most [`FAR`] to one of this many first numbers of the sequence space is a restart.
pub const FIRST_NUMBERS: u32 = 16;
/// Consecutive repetitions of one number after which the stream is not countable.
pub const STALLED: u32 = 64;
/// Number of losses that one received datagram supports.
pub const LOSSES_PER_DATAGRAM: i64 = 128;
/// Maximum number of losses that the datagrams before a jump support.
pub const MAX_PRIOR_LOSSES: i64 = 16 * LOSSES_PER_DATAGRAM;
/// Silence after which missing numbers count as lost, ns.
pub const SETTLE: Nanos = 2_000_000_000;
/// Silence after which older numbers can no longer arrive, ns.
pub const PAUSE: Nanos = 10_000_000_000;
/// Alternations of two sequences after which a stream is known to mix several nodes.
pub const TURNS: u32 = 5;
/// Consecutive reports that name another node after which a stream is known to mix several nodes.
pub const OTHERS: u32 = 4;
/// Time without evidence of several nodes after which a stream is countable again, ns.
pub const MIXED: Nanos = 60_000_000_000;

/// Totals of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamView {
    /// The identity of the stream.
    pub id: StreamId,
    /// Datagrams received in the stream.
    pub datagrams: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Datagrams that arrived after they were counted as lost, and no longer are. Also counted as reordered.
    pub recovered: u64,
    /// Datagrams missing for good, but beyond the number that received datagrams support: a recent outage, or forged numbers.
    pub unconfirmed: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// Datagrams that arrived more than once.
    pub duplicated: u64,
    /// Restarts of the reporter.
    pub restarts: u64,
    /// True if the number advances and belongs to one node only. If false, the counters above are meaningless.
    pub countable: bool,
    /// True if several nodes send from one address and the reports do not say which; losses are then not countable.
    pub mixed: bool,
    /// Datagrams that are missing and not counted as lost yet.
    pub missing: u32,
    /// Receive time of the latest datagram.
    pub last_seen: Nanos,
}

impl StreamView {
    /// Returns the losses of the stream; zero if it is not countable or has no losses.
    pub fn losses(&self) -> Losses {
        if self.countable && self.lost + self.unconfirmed > 0 {
            Losses {
                lost: self.lost,
                unconfirmed: self.unconfirmed,
                datagrams: self.datagrams,
            }
        } else {
            Losses::default()
        }
    }
}

/// Losses of several streams, and the number of datagrams that support them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Datagrams that were lost.
    pub lost: u64,
    /// Datagrams missing for good whose loss is not supported by received datagrams.
    pub unconfirmed: u64,
    /// Datagrams received in the streams with losses.
    pub datagrams: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.unconfirmed += other.unconfirmed;
        self.datagrams += other.datagrams;
    }
}

impl Sum for Losses {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, losses| {
            sum += losses;
            sum
        })
    }
}

/// Loss accounting for a bounded number of streams. If one thread receives and others process, the receiving thread must own
/// the sequencer: only there do the numbers arrive in order.
///
/// When the table is full, a new stream replaces the stream with the fewest datagrams in the last minute. Busy streams are
/// never evicted; if all are busy, the new stream is refused: its reports are processed, but their loss is not counted.
#[derive(Debug)]
pub struct Sequencer {
    streams: Vec<Stream>,
    capacity: usize,
    index: Index,
    seed: u64,
    latest_slot: u32,
    evicted: u64,
    refused: u64,
    /// Losses of evicted streams.
    evicted_losses: Losses,
    /// Loss events since the last accounting interval.
    events: u64,
}

impl Sequencer {
    /// Creates a sequencer for `capacity` streams; `seed` seeds the hash of their identities.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            streams: Vec::with_capacity(capacity),
            capacity,
            index: Index::with_capacity(capacity),
            seed,
            latest_slot: u32::MAX,
            evicted: 0,
            refused: 0,
            evicted_losses: Losses::default(),
            events: 0,
        }
    }

    /// Accounts for a datagram if its stream is the latest one used. Otherwise returns `false` and does nothing.
    #[inline(always)]
    pub(crate) fn observe_latest(&mut self, packed: u64, seq: u32, now: Nanos, out: &mut dyn Output) -> bool {
        match self.streams.get_mut(self.latest_slot as usize) {
            Some(stream) if stream.packed == packed => {
                stream.observe(seq, now, out);
                true
            }
            _ => false,
        }
    }

    /// Accounts for the sequence number of a received datagram.
    pub fn observe(&mut self, id: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        if let Some(stream) = self.streams.get_mut(self.latest_slot as usize)
            && stream.id.is(id)
            && id.version != V05
        {
            stream.observe(seq, now, out);
            return;
        }
        self.observe_other(id, seq, now, out);
    }

    #[inline(never)]
    fn observe_other(&mut self, id: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        let entered = if id.version == V05 {
            self.enter_of_address(id, seq, now, out)
        } else {
            self.enter(id, seq, now, out)
        };
        if let Some(Entered::Found(slot)) = entered {
            self.streams[slot as usize].observe(seq, now, out);
        }
    }

    /// Finds or adds the stream of a report 0.5, which is the stream of its address or of its node.
    fn enter_of_address(
        &mut self,
        id: &StreamId,
        seq: u32,
        now: Nanos,
        out: &mut dyn Output,
    ) -> Option<Entered> {
        let address = StreamId { node: None, ..*id };
        let entered = self.enter(&address, seq, now, out)?;
        let stream = &mut self.streams[entered.slot() as usize];
        if matches!(entered, Entered::Added(_)) {
            stream.nodes = Nodes::of(id.node);
        }
        let is_other = stream.nodes.observe(id.node, now);
        if stream.nodes.have_mixed(now) {
            stream.mark_mixed(now);
        }
        if !is_other {
            return Some(entered);
        }
        let mixed_until = stream.mixed_until;
        let entered = self.enter(id, seq, now, out)?;
        if now < mixed_until {
            self.streams[entered.slot() as usize].mark_mixed_until(mixed_until);
        }
        Some(entered)
    }

    /// Returns the stream in a slot. Marks a node's stream as mixed while the stream of its address is mixed.
    fn stream_of_address(&mut self, slot: usize, now: Nanos) -> &mut Stream {
        let id = self.streams[slot].id;
        if id.version == V05 && id.node.is_some() {
            let address = self.find(&StreamId { node: None, ..id });
            let mixed_until = self
                .streams
                .get(address as usize)
                .map_or(0, |stream| stream.mixed_until);
            if now < mixed_until {
                self.streams[slot].mark_mixed_until(mixed_until);
            }
        }
        &mut self.streams[slot]
    }

    /// Accounts for the number of a datagram that was refused. It may not be a report, so it counts only if its stream is
    /// known and expects this number.
    pub fn observe_refused(&mut self, id: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        let mut slot = self.find(id);
        if id.version == V05 {
            let address = self.find(&StreamId { node: None, ..*id });
            if let Some(stream) = self.streams.get(address as usize)
                && (id.node.is_none() || stream.nodes.first == id.node)
            {
                slot = address;
            }
        }
        if let Some(stream) = self.streams.get_mut(slot as usize)
            && stream.expects(seq, now)
        {
            stream.observe(seq, now, out);
        }
    }

    /// Finds or adds a stream.
    fn enter(&mut self, id: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) -> Option<Entered> {
        let slot = self.find(id);
        if slot != NO_SLOT {
            if slot != self.latest_slot {
                self.index.touch(id.hash(self.seed), slot, 1, heat_period(now));
            }
            self.latest_slot = slot;
            return Some(Entered::Found(slot));
        }
        let hash = id.hash(self.seed);
        self.touch_latest(now);
        let slot = match self
            .index
            .find_way(hash, heat_period(now), self.streams.len() == self.capacity)
        {
            InsertSlot::Free(place) => {
                let slot = self.streams.len() as u32;
                self.index.put(place, hash, slot, 1, heat_period(now));
                self.streams.push(Stream::new(*id, seq, now));
                slot
            }
            InsertSlot::Evict(place, slot) => {
                self.evict(slot, now, out);
                self.index.put(place, hash, slot, 1, heat_period(now));
                self.streams[slot as usize] = Stream::new(*id, seq, now);
                slot
            }
            InsertSlot::Refused => {
                self.refused += 1;
                return None;
            }
        };
        self.latest_slot = slot;
        Some(Entered::Added(slot))
    }

    fn find(&self, id: &StreamId) -> u32 {
        match self.streams.get(self.latest_slot as usize) {
            Some(stream) if stream.id.is(id) => self.latest_slot,
            _ => self
                .index
                .find(id.hash(self.seed), |slot| self.streams[slot as usize].id.is(id)),
        }
    }

    /// Updates the heat of the latest stream, because the fast path finds it without touching the index.
    fn touch_latest(&mut self, now: Nanos) {
        if let Some(stream) = self.streams.get(self.latest_slot as usize)
            && stream.datagrams >= u64::from(BUSY)
        {
            let hash = stream.id.hash(self.seed);
            let seen = heat_period(stream.last_seen.min(now));
            self.index.touch(hash, self.latest_slot, u64::from(BUSY), seen);
        }
    }

    fn evict(&mut self, slot: u32, now: Nanos, out: &mut dyn Output) {
        let stream = &mut self.streams[slot as usize];
        stream.finish(now, out);
        self.events += stream.report(now, out);
        self.evicted_losses += stream.view().losses();
        self.evicted += 1;
    }

    /// Ends an accounting interval: settles silent streams, and reports the counts that are new since the last interval, one
    /// [`Loss`](crate::event::Loss) per stream and one event per stream with losses. Returns the number of events.
    pub fn account(&mut self, now: Nanos, out: &mut dyn Output) -> u64 {
        for slot in 0..self.streams.len() {
            if self.streams[slot].is_accounted(now) {
                continue;
            }
            let stream = self.stream_of_address(slot, now);
            stream.account(now, out);
            self.events += stream.report(now, out);
        }
        std::mem::take(&mut self.events)
    }

    /// Ends the input: counts all missing numbers as lost, and reports all counts. Returns the number of events.
    pub fn finish(&mut self, now: Nanos, out: &mut dyn Output) -> u64 {
        for slot in 0..self.streams.len() {
            let last_seen = self.streams[slot].last_seen;
            self.stream_of_address(slot, last_seen).finish(now, out);
        }
        self.account(now, out)
    }

    /// Returns the totals per stream, in the order in which streams were added.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = StreamView> {
        self.streams.iter().map(Stream::view)
    }

    /// Returns the losses of evicted streams, which [`Sequencer::streams`] no longer shows.
    pub fn evicted_losses(&self) -> Losses {
        self.evicted_losses
    }

    /// Returns the usage of the stream table.
    pub fn table(&self) -> crate::stats::Table {
        crate::stats::Table {
            used: self.streams.len() as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}

/// The slot of a stream, found or added.
#[derive(Clone, Copy, Debug)]
enum Entered {
    Found(u32),
    /// The stream is new; the number being observed is its first and is already accounted for.
    Added(u32),
}

impl Entered {
    fn slot(self) -> u32 {
        match self {
            Self::Found(slot) | Self::Added(slot) => slot,
        }
    }
}

/// Converts a time to the index's unit of heat for streams, 2^33 ns = 8.6 s, so that a reporter that sends once per second
/// counts as busy.
fn heat_period(now: Nanos) -> u32 {
    (now >> 33) as u32
}

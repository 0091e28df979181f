//! Loss, reordering and duplicates, from the sequence numbers of reports.
//!
//! # The algorithm
//!
//! A **stream** is a sequence space: (version, node id, `hw_id`, listener) for reports 1.0 and 2.0, (version, source
//! address, `hw_id`, listener) for 0.5; the listener replaces the destination address in the
//! specification. Sequence numbers count datagrams, modulo 2^22 in 2.0 and 2^32 in 1.0 and 0.5, and are compared by serial
//! number arithmetic (RFC 1982).
//!
//! For each stream the sequencer stores the highest number seen and a **window** of the [`WINDOW`] numbers up to it, one
//! bit each: received, or still missing. With `d` = number − highest:
//!
//! | d | meaning | counted as |
//! | --- | --- | --- |
//! | 1 | the next number | nothing |
//! | > 1 | a gap opens: `d - 1` are missing, none is lost yet | a missing number that leaves the window: **lost** |
//! | 0 or in the window, received before | | **duplicated** |
//! | in the window, missing | late | **reordered** |
//! | anything else | a stray, a restart or an outage: the number is **held** | see below |
//!
//! **Held numbers.** One datagram never moves a stream: a number that is more than a window away is held, and the next one decides.
//! If it continues the current sequence, the held one was a *stray* and counts as reordered. If it is within a window of the held one, another
//! sequence begins there. If few numbers arrive, so that both are gaps ahead, one after the other, the stream moves to the held one.
//!
//! **Two sequences.** The sequence before a jump is kept until it has had no number for a window of datagrams, or the stream was silent for [`SETTLE`]. A number
//! belongs to the closer one, and two in a row that continue the former sequence make it the current one again. When the former sequence
//! ends, it is decided what the jump was: forward, an outage, whose numbers are lost; back, a **restart**. A jump *forward* by more than
//! [`FAR`] to one of the first [`WINDOW`] numbers of the sequence space is also a restart, and a nearer one to one of the first
//! [`FIRST_NUMBERS`]: modulo 2^22 a reporter that restarts at 0 is "ahead" of every number in the upper half. If the older sequence goes
//! on, the newer one was a few strays. Numbers behind the older sequence are no restart yet while there are few of them, and not four of
//! them in order: they may be very late. One of the first [`FIRST_NUMBERS`] that the sequence before an outage already had is held, because
//! the reporter may have restarted. If an older sequence comes to the numbers of a newer one that is ahead, as a second path does that is late, those that it
//! misses may have arrived in the newer one; they are lost only if that one was a few strays.
//!
//! **Late batches.** A second path may deliver more than a window of numbers late and at once, which looks like a restart. So the stream stores
//! the sequence before a restart that followed no silence. If it goes on within [`PAUSE`], the numbers since then were late: none of them is
//! missing, and those in the gap before that sequence are recovered. Otherwise the restart counts. As long as all numbers since then may be
//! late (no more of them arrived than were missing, and they began where no restarted reporter does), what is missing among them is not
//! lost yet, and a silence decides nothing: the numbers after it do, or else they were late. If they reach the old number in order, and
//! are more than were missing, and some of them are missing, the reporter has restarted. Numbers that began where a restarted reporter does are a restart in the end, but
//! if no more of them arrived than were missing, a silence does not decide that either.
//!
//! **Pauses.** A network does not hold a datagram for [`PAUSE`]. After such a silence, a number that is not ahead is held even if it lies in the
//! window, until one is ahead. If the next one is ahead of the highest number, the held one was late or a duplicate; if both are missing, or the next one
//! repeats the highest, they were late: the highest number was forged, or the clock made a step. Otherwise the reporter has restarted.
//!
//! **Several nodes behind one address.** Of the reports 0.5 only those with a drop or switch-local header carry a node id, so
//! the first node that an address names has the stream of the address, with all reports that name none, and each other node has a
//! stream of its own. An address is *not countable* ([`StreamView::mixed`]) for [`MIXED`] after the latest evidence that reports of several
//! nodes are in one stream: [`OTHERS`] reports of another node, and one that names none, within that time; or, in a stream with reports that
//! name none, [`TURNS`] turns of two sequences, each with exactly its next number, be they far apart or equal.
//!
//! **Refused datagrams.** The number of one that may not be a report counts only if its stream exists and the number is at most a window
//! ahead, or missing ([`Sequencer::observe_refused`]).
//!
//! **Start.** Numbers before the first one are not expected. If one arrives, it counts as reordered.
//!
//! **Not countable.** A stream whose number is constant (many devices always send 0) is *not countable*: its counts of lost
//! and duplicated are meaningless, and [`StreamView::countable`] is false. A stream becomes countable when its number
//! first advances (twice in a row, if it has been constant for [`STALLED`] datagrams, because one number may be forged), and is no longer countable when one number arrives [`STALLED`] times in a row. When it advances again, counting goes on
//! where it was: copies of a number hide no outage.
//!
//! **Silence.** Numbers that are missing in a stream that was silent for [`SETTLE`] (or at [`Sequencer::finish`]) are counted
//! as lost. One that arrives while it is in the window is *recovered*: it counts as reordered, and no longer as lost. So one forged number
//! ahead of a silence invents no losses.
//!
//! So, for a countable stream without restarts: numbers from first to highest = datagrams − duplicated − strays + lost +
//! unconfirmed + still missing.
//!
//! **Evidence.** Two forged datagrams are enough for a jump of billions. A number that did not arrive therefore counts as lost
//! only with the support of datagrams that did: each datagram whose number is new and not far away supports the loss of
//! [`LOSSES_PER_DATAGRAM`] others, once. Losses beyond this are **unconfirmed**. Later datagrams confirm them, so that an
//! outage is counted as lost in proportion to the traffic after it; datagrams before it support at most [`MAX_PRIOR_LOSSES`]
//! losses. A restart ends the confirmation, and so does a jump back to the numbers before (modulo the sequence space also
//! ahead): losses that are unconfirmed by then remain so. To know these numbers, the stream stores where it left its latest sequences, one
//! for each magnitude of their datagrams; a jump returns only to a longer sequence than the one it leaves. Hence, for any input: lost <= [`LOSSES_PER_DATAGRAM`] × datagrams.
//! This costs nothing on the fast path: datagrams in sequence follow from the growth of the datagram counter since the last
//! anomaly.

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

/// Numbers up to the highest within which an earlier one is late, not a restart.
pub const WINDOW: u32 = u128::BITS;
/// A forward jump of more than this is accepted only when the next number follows it.
pub const FAR: u32 = 1 << 16;
/// A near jump ahead to one of so many first numbers of the sequence space is a restart.
pub const FIRST_NUMBERS: u32 = 16;
/// Repetitions of one number in a row after which the stream is not countable.
pub const STALLED: u32 = 64;
/// Number of losses that a datagram supports.
pub const LOSSES_PER_DATAGRAM: i64 = 128;
/// Maximum number of losses that the datagrams before a jump support.
pub const MAX_PRIOR_LOSSES: i64 = 16 * LOSSES_PER_DATAGRAM;
/// Silence after which missing numbers are lost.
pub const SETTLE: Nanos = 2_000_000_000;
/// Silence after which older numbers can no longer arrive.
pub const PAUSE: Nanos = 10_000_000_000;
/// Turns of two sequences after which a stream is that of several nodes.
pub const TURNS: u32 = 5;
/// Reports that name another node, in a row, after which a stream is that of several nodes.
pub const OTHERS: u32 = 4;
/// Time without evidence after which a stream is countable again.
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
    /// Arrived after they were counted as lost, and no longer are. Also counted as reordered.
    pub recovered: u64,
    /// Missing for good, but beyond what the received datagrams support: a recent outage, or forged numbers.
    pub unconfirmed: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// Datagrams that arrived more than once.
    pub duplicated: u64,
    /// Restarts of the reporter.
    pub restarts: u64,
    /// Whether its number advances, and is that of one node. If not, the counters above are meaningless.
    pub countable: bool,
    /// Several nodes send from its address, and the reports do not say which: its losses are not countable.
    pub mixed: bool,
    /// Missing, and not counted as lost yet.
    pub missing: u32,
    /// Receive time of the latest datagram.
    pub last_seen: Nanos,
}

impl StreamView {
    /// The losses of the stream; zero if it is not countable or has no losses.
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
    /// Datagrams missing for good whose loss is not supported.
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
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Loss accounting for a bounded number of streams. If one thread receives and others process, the receiving thread
/// owns the sequencer, since only there the numbers arrive in order.
///
/// A full table evicts the stream that had the fewest datagrams in the last minute. A busy stream is never evicted; a
/// new one is then refused: its reports are processed, but their loss is not counted.
#[derive(Debug)]
pub struct Sequencer {
    streams: Vec<Stream>,
    capacity: usize,
    index: Index,
    seed: u64,
    latest: u32,
    evicted: u64,
    refused: u64,
    /// Losses of evicted streams.
    gone: Losses,
    /// Loss events since the last accounting.
    events: u64,
}

impl Sequencer {
    /// A sequencer for `capacity` streams; `seed` is that of the hash.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            streams: Vec::with_capacity(capacity),
            capacity,
            index: Index::with_capacity(capacity),
            seed,
            latest: u32::MAX,
            evicted: 0,
            refused: 0,
            gone: Losses::default(),
            events: 0,
        }
    }

    /// Accounts for a datagram with this number; `false`, with nothing done, if the last datagram was of another stream.
    #[inline(always)]
    pub(crate) fn observe_latest(&mut self, packed: u64, seq: u32, now: Nanos, out: &mut dyn Output) -> bool {
        match self.streams.get_mut(self.latest as usize) {
            Some(stream) if stream.packed == packed => {
                stream.observe(seq, now, out);
                true
            }
            _ => false,
        }
    }

    /// Accounts for a datagram with this number.
    pub fn observe(&mut self, id: &StreamId, seq: u32, now: Nanos, out: &mut dyn Output) {
        if let Some(stream) = self.streams.get_mut(self.latest as usize)
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

    /// Finds or adds the stream of a report 0.5.
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
        if stream.nodes.are_mixed(now) {
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

    /// The stream in a slot. One of a node is mixed as long as that of its address is.
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

    /// Accounts for the number of a datagram that was refused, so it may not be a report at all: the number counts only if its stream
    /// is known and expects it.
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
            if slot != self.latest {
                self.index.touch(id.hash(self.seed), slot, 1, heat_period(now));
            }
            self.latest = slot;
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
        self.latest = slot;
        Some(Entered::Added(slot))
    }

    fn find(&self, id: &StreamId) -> u32 {
        match self.streams.get(self.latest as usize) {
            Some(stream) if stream.id.is(id) => self.latest,
            _ => self
                .index
                .find(id.hash(self.seed), |slot| self.streams[slot as usize].id.is(id)),
        }
    }

    /// Updates the heat of the latest stream, which is found without the index.
    fn touch_latest(&mut self, now: Nanos) {
        if let Some(stream) = self.streams.get(self.latest as usize)
            && stream.datagrams >= u64::from(BUSY)
        {
            let hash = stream.id.hash(self.seed);
            let seen = heat_period(stream.last_seen.min(now));
            self.index.touch(hash, self.latest, u64::from(BUSY), seen);
        }
    }

    fn evict(&mut self, slot: u32, now: Nanos, out: &mut dyn Output) {
        let stream = &mut self.streams[slot as usize];
        stream.finish(now, out);
        self.events += stream.report(now, out);
        self.gone += stream.view().losses();
        self.evicted += 1;
    }

    /// Ends an accounting interval: settles silent streams and reports the counts since the last one, one [`Loss`](crate::event::Loss) per
    /// stream with new counts, and an event of each that has new losses. Returns the number of events since the last interval.
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

    /// Ends the input: all missing numbers are lost, and all counts are reported, likewise.
    pub fn finish(&mut self, now: Nanos, out: &mut dyn Output) -> u64 {
        for slot in 0..self.streams.len() {
            let last_seen = self.streams[slot].last_seen;
            self.stream_of_address(slot, last_seen).finish(now, out);
        }
        self.account(now, out)
    }

    /// Totals per stream, in the order of their first datagram.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = StreamView> {
        self.streams.iter().map(Stream::view)
    }

    /// Losses of evicted streams, which [`Sequencer::streams`] no longer shows.
    pub fn evicted_losses(&self) -> Losses {
        self.gone
    }

    /// Streams in the table, its capacity, evicted, refused.
    pub fn table(&self) -> crate::stats::Table {
        crate::stats::Table {
            used: self.streams.len() as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}

/// The slot of a stream.
#[derive(Clone, Copy, Debug)]
enum Entered {
    Found(u32),
    /// It begins with the number that was being observed.
    Added(u32),
}

impl Entered {
    fn slot(self) -> u32 {
        match self {
            Self::Found(slot) | Self::Added(slot) => slot,
        }
    }
}

/// The unit of heat for streams: 8.6 s, so that a reporter that sends once per second counts as busy.
fn heat_period(now: Nanos) -> u32 {
    (now >> 33) as u32
}

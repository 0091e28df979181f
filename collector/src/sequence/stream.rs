//! Loss accounting of one stream: the window up to its highest number, its counters, and the fast path for numbers in
//! sequence. The algorithm is described in [`super`]; jumps between two sequences are in [`jump`].

mod jump;

use super::{
    FAR, LOSSES_PER_DATAGRAM, MAX_PRIOR_LOSSES, MIXED, OTHERS, PAUSE, SETTLE, STALLED, TURNS, WINDOW,
};
use crate::event::{
    Loss, Nanos, Output, SET_BACK, SequenceEvent, SequenceEventKind, follow_clock, sender_of,
};
use crate::sequence::track::{Origins, Track, is_ahead, is_late, low_bits};
use crate::sequence::{Losses, StreamView};
use crate::stream::{StreamId, V05, pack};

use jump::{OtherSequence, PendingRestart, SequenceMatch};

/// The nodes whose 0.5 reports come from the address of a stream; only some forms of these reports name their node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Nodes {
    /// The node whose reports share the stream of the address. Every other node has a separate stream.
    pub(super) first: Option<u32>,
    first_seen: Nanos,
    /// The first datagram of the stream named its node, so the stream is shown with a node. Later datagrams do not change
    /// that.
    is_named: bool,
    /// Consecutive reports that named another node, each within [`MIXED`] of its predecessor.
    other_node_count: u32,
    other_node_seen: Nanos,
    /// Time of the latest report that named no node.
    unnamed: Option<Nanos>,
}

impl Nodes {
    /// Returns the nodes of a stream that begins with a report of this node.
    pub(super) fn of(node: Option<u32>) -> Self {
        Self {
            is_named: node.is_some(),
            ..Self::default()
        }
    }

    /// Accounts for a report that names `node`. Returns true if it belongs to another node's stream.
    pub(super) fn observe(&mut self, node: Option<u32>, now: Nanos) -> bool {
        if node.is_none() {
            self.unnamed = Some(now);
            return false;
        }
        if self.first.is_none() || self.have_mixed(now) && now.saturating_sub(self.first_seen) >= MIXED {
            // The first node has not been named for long: it may have a new id after a change of its configuration.
            self.first = node;
        }
        if self.first == node {
            self.first_seen = now;
            return false;
        }
        let is_recent = now.saturating_sub(self.other_node_seen) < MIXED;
        self.other_node_count = if is_recent {
            self.other_node_count.saturating_add(1)
        } else {
            1
        };
        self.other_node_seen = now;
        true
    }

    /// Returns true if another node was named within the last [`MIXED`].
    pub(super) fn have_several(&self, now: Nanos) -> bool {
        self.other_node_count > 0 && now.saturating_sub(self.other_node_seen) < MIXED
    }

    /// Returns true if reports of several nodes, and reports that name none, arrived within the last [`MIXED`].
    pub(super) fn have_mixed(&self, now: Nanos) -> bool {
        self.other_node_count >= OTHERS
            && self.have_several(now)
            && self.unnamed.is_some_and(|seen| now.saturating_sub(seen) < MIXED)
    }
}

/// Evidence that two nodes send alternately in one stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Alternation {
    /// The latest number that is outside the current sequence, or was received twice.
    last: u32,
    /// Datagram count of the stream when that number arrived, and its receive time.
    datagram: u64,
    seen: Nanos,
    /// Consecutive times that this other sequence continued with exactly its next number.
    count: u32,
}

/// A number that is not counted yet: the next one shows whether it is a stray or begins another sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeldNumber {
    seq: u32,
    /// The number of repetitions.
    repeated: u32,
    /// Silence of the stream before it, ns, or before an earlier number after which none was ahead.
    silence: Nanos,
}

impl HeldNumber {
    /// Returns true if no older number can arrive any more.
    fn is_after_pause(&self) -> bool {
        self.silence >= PAUSE
    }
}

/// The latest late number and its repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RepeatedLate {
    seq: u32,
    /// Datagram count of the stream at its latest arrival.
    pub(super) datagram: u64,
    /// Number of consecutive repetitions of the number.
    count: u32,
}

/// The counts of the last report about a stream, with all earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ReportedCounts {
    lost: u64,
    reordered: u64,
    duplicated: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// The identity [`pack`]ed into an integer, if there is a node id; otherwise `u64::MAX`.
    pub(super) packed: u64,
    /// Number of upper bits, of 32, that the sequence space does not use: 0 or 10.
    unused: u8,
    /// The fast path applies: numbers advance, the last datagram was in sequence, and there is no held number or other
    /// sequence.
    pub(super) steady: bool,
    /// All counts are reported, and none changes without another anomaly.
    accounted: bool,
    pub(super) current: Track,
    held_number: Option<HeldNumber>,
    /// The latest stray, and the datagram count then. If the sequence soon jumps to its neighbourhood, it is not missing
    /// there.
    stray: Option<(u32, u64)>,
    other: Option<OtherSequence>,
    pending_restart: Option<PendingRestart>,
    pub(super) stalled: u32,
    pub(super) repeated: Option<RepeatedLate>,
    /// Repetitions that followed a pause, among the `stalled` ones of a number that has not advanced yet.
    pub(super) resumed: u32,
    pub(super) advancing: bool,
    /// The number has advanced at least once, perhaps before it became constant.
    has_advanced: bool,
    /// The nodes that share the stream.
    pub(super) nodes: Nodes,
    alternation: Alternation,
    /// Numbers of several nodes are mixed until this time; 0 if they are not.
    pub(super) mixed_until: Nanos,
    pub(super) datagrams: u64,
    /// Numbers that did not arrive, confirmed or not.
    absent: u64,
    /// The part of `absent` that the reporter sent before its latest counted restart.
    absent_before: u64,
    /// The part of `absent` that remains unconfirmed after a restart or a return.
    never_confirmed: u64,
    /// Supported losses minus counted losses; negative if more were counted than are supported. Includes only the first
    /// `supported` datagrams; [`Stream::balance_after`] adds the later ones.
    balance: i64,
    supported: u64,
    /// Numbers that arrived after they were counted as lost.
    recovered: u64,
    /// The stream's highest numbers before its jumps.
    origins: Origins,
    pub(super) reordered: u64,
    pub(super) duplicated: u64,
    restarts: u64,
    reported: ReportedCounts,
    /// First number lost since the last report.
    first_lost: Option<u32>,
    /// The number after the last one reported as lost.
    after_lost: u32,
    pub(super) last_seen: Nanos,
}

impl Stream {
    pub(super) fn new(id: StreamId, seq: u32, now: Nanos) -> Self {
        Self {
            id,
            packed: id
                .global_node()
                .map_or(u64::MAX, |node| pack(id.version, id.hw_id, id.listener, node)),
            unused: (32 - id.bits()) as u8,
            steady: false,
            accounted: false,
            current: Track {
                is_first_only: true,
                ..Track::new(seq, 0)
            },
            held_number: None,
            stray: None,
            other: None,
            pending_restart: None,
            stalled: 0,
            repeated: None,
            resumed: 0,
            advancing: false,
            has_advanced: false,
            nodes: Nodes::default(),
            alternation: Alternation::default(),
            mixed_until: 0,
            datagrams: 1,
            absent: 0,
            absent_before: 0,
            recovered: 0,
            never_confirmed: 0,
            balance: 0,
            supported: 1,
            origins: Origins::default(),
            reordered: 0,
            duplicated: 0,
            restarts: 0,
            reported: ReportedCounts::default(),
            first_lost: None,
            after_lost: 0,
            last_seen: now,
        }
    }

    /// Returns the signed distance from `from` to `seq`; negative if `seq` is before it.
    #[inline]
    fn distance(&self, seq: u32, from: u32) -> i32 {
        // At most 10; the mask spares the overflow check of the shift. The shifts sign-extend from 22 bits.
        let unused = u32::from(self.unused) & 31;
        (seq.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    #[inline]
    pub(super) fn seq_before(&self, seq: u32, by: u32) -> u32 {
        seq.wrapping_sub(by) & (u32::MAX >> (32 - self.id.bits()))
    }

    fn seq_after(&self, seq: u32, by: u32) -> u32 {
        self.seq_before(seq, by.wrapping_neg())
    }

    #[inline(always)]
    pub(super) fn observe(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        self.datagrams = self.datagrams.wrapping_add(1);
        let ahead = self.distance(seq, self.current.highest);
        // The fast path: the number is the next, no missing number leaves the window, and none is held.
        if ahead == 1 && self.steady && self.current.window >> 127 == 1 {
            self.last_seen = now;
            self.current.highest = seq;
            self.current.window = self.current.window << 1 | 1;
            self.current.known = self.current.known.wrapping_add(1).min(WINDOW);
        } else {
            self.observe_anomaly(seq, ahead, now, out);
            self.steady =
                self.advancing && self.stalled == 0 && self.is_single() && self.current.written_off == 0;
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_anomaly(&mut self, seq: u32, ahead: i32, now: Nanos, out: &mut dyn Output) {
        self.accounted = false;
        self.update_balance(0, 1);
        let silence = now.saturating_sub(self.last_seen);
        let paused = silence >= PAUSE;
        self.expire_other_sequence(silence >= SETTLE, now, out);
        self.postpone_restart(now);
        self.last_seen = now;
        if self.is_mixed() {
            self.observe_mixed(seq, now);
            return;
        }
        if self.nodes.unnamed.is_some() && self.alternates(seq, ahead, now) {
            self.mark_mixed(now);
            return;
        }
        if ahead == 0 {
            // A constant number may repeat without limit, so it needs no further processing.
            self.stalled = self.stalled.saturating_add(1);
            if !self.advancing {
                self.drop_held_number();
                self.resumed = self.resumed.saturating_add(u32::from(paused));
                return;
            }
        } else if !self.begin_to_advance(seq, now, out) {
            return;
        }
        match self.match_sequence(seq, ahead, paused) {
            SequenceMatch::Current if ahead > 0 => {
                self.reject_held_number(now, out);
                if self.reaches_old_sequence(seq, ahead) {
                    self.decide_restart_at_old_end(ahead.unsigned_abs(), now, out);
                }
                self.observe_near(seq, now, out);
            }
            SequenceMatch::Current => self.observe_late(seq, ahead.unsigned_abs(), now, out),
            SequenceMatch::OtherSequence => self.observe_other(seq, now, out),
            SequenceMatch::Neither => self.observe_unmatched(
                HeldNumber {
                    seq,
                    repeated: 0,
                    silence,
                },
                now,
                out,
            ),
        }
        if self.stalled >= STALLED {
            self.advancing = false;
        }
    }

    /// Returns true if the stream was silent for so long that older numbers can no longer arrive.
    pub(super) fn is_pause(&self, now: Nanos) -> bool {
        now.saturating_sub(self.last_seen) >= PAUSE
    }

    /// Returns true if the held number lies in the window, that is, it arrived after a pause.
    fn is_held_number_late(&self) -> bool {
        self.held_number.is_some_and(|held_number| {
            held_number.is_after_pause() && is_late(self.distance(held_number.seq, self.current.highest))
        })
    }

    /// Returns true if the number of a refused datagram is plausible: near the highest one of a sequence, and not received
    /// yet.
    pub(super) fn expects(&self, seq: u32, now: Nanos) -> bool {
        let ahead = self.distance(seq, self.current.highest);
        self.advancing
            && !self.is_mixed()
            && match self.match_sequence(seq, ahead, self.is_pause(now)) {
                SequenceMatch::Current => self.current.lacks(ahead),
                SequenceMatch::OtherSequence => self
                    .other
                    .as_ref()
                    .is_some_and(|other| other.track.lacks(self.distance(seq, other.track.highest))),
                SequenceMatch::Neither => false,
            }
    }

    /// Returns true if all numbers are of one sequence, as far as is known.
    pub(super) fn is_single(&self) -> bool {
        self.held_number.is_none() && self.other.is_none() && !self.may_revert_restart() && !self.is_mixed()
    }

    pub(super) fn is_mixed(&self) -> bool {
        self.mixed_until != 0
    }

    /// Suspends counting for [`MIXED`], because the numbers come from several nodes.
    pub(super) fn mark_mixed(&mut self, now: Nanos) {
        self.mark_mixed_until(now.saturating_add(MIXED));
    }

    pub(super) fn mark_mixed_until(&mut self, until: Nanos) {
        if !self.is_mixed() {
            self.begin(self.current.highest);
            self.held_number = None;
            self.stray = None;
            self.other = None;
            self.pending_restart = None;
            self.steady = false;
        }
        self.mixed_until = until;
    }

    /// Follows the two latest sequences without counting. The stream remains mixed as long as they alternate.
    pub(super) fn observe_mixed(&mut self, seq: u32, now: Nanos) {
        if now >= self.mixed_until {
            self.mixed_until = 0;
            self.alternation = Alternation::default();
            self.stalled = 0;
            self.begin(seq);
            return;
        }
        if self.distance(seq, self.current.highest) != 1 {
            if self.distance(seq, self.alternation.last) == 1 {
                self.mixed_until = now.saturating_add(MIXED);
            }
            self.alternation.last = self.current.highest;
        }
        self.current.highest = seq;
    }

    /// Returns true after [`TURNS`] alternations of two nodes: a number that does not continue the current sequence is
    /// exactly the next one of another sequence, again and again.
    fn alternates(&mut self, seq: u32, ahead: i32, now: Nanos) -> bool {
        if self.current.is_missing(ahead) || self.is_next(seq, ahead) {
            return false;
        }
        let continues = self.distance(seq, self.alternation.last) == 1
            && now.saturating_sub(self.alternation.seen) < PAUSE
            && self.alternation.datagram > 0;
        let is_alternation = self.datagrams.wrapping_sub(self.alternation.datagram) > 1;
        let count = if continues {
            self.alternation.count + u32::from(is_alternation)
        } else {
            0
        };
        self.alternation = Alternation {
            last: seq,
            datagram: self.datagrams,
            seen: now,
            count,
        };
        count >= TURNS
    }

    /// Starts treating the number as advancing. Returns `false` if it was constant from the beginning, so that counting starts
    /// here or with the next number.
    fn begin_to_advance(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) -> bool {
        if self.has_always_stalled() {
            self.begin_to_count(seq, now, out);
            return false;
        }
        let stalled = std::mem::take(&mut self.stalled);
        let resumed = std::mem::take(&mut self.resumed);
        if self.advancing {
            return true;
        }
        self.advancing = true;
        if self.has_advanced {
            // The number became constant later, and advances again; only the repetitions before it counted as constant are
            // duplicates.
            self.duplicated += u64::from(stalled.saturating_sub(STALLED));
            return true;
        }
        // A few repetitions of the first number were duplicates, or restarts after a pause.
        self.duplicated += u64::from(stalled - resumed);
        self.restarts += u64::from(resumed);
        if resumed > 0 {
            self.emit_event(now, SequenceEventKind::Restart(self.current.highest), out);
        }
        true
    }

    /// Drops the held number as a stray, because the constant number goes on.
    pub(super) fn drop_held_number(&mut self) {
        self.held_number = self.held_number.filter(|_| self.has_advanced);
    }

    /// Returns true if the number has been constant from the beginning, for more than a few repetitions.
    fn has_always_stalled(&self) -> bool {
        !self.advancing && !self.has_advanced && self.stalled >= STALLED
    }

    /// Begins to count with the second consecutive number that differs from the constant one and is ahead of the first: a
    /// single one may be forged.
    fn begin_to_count(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        let held_number = self
            .held_number
            .take()
            .map(|held_number| (held_number.seq, self.distance(seq, held_number.seq)));
        match held_number.filter(|(_, ahead)| is_ahead(*ahead)) {
            Some((first, ahead)) => {
                self.advancing = true;
                self.stalled = 0;
                self.resumed = 0;
                self.begin(first);
                self.advance(seq, ahead.unsigned_abs(), now, out);
            }
            None => {
                self.held_number = Some(HeldNumber {
                    seq,
                    repeated: 0,
                    silence: 0,
                });
            }
        }
    }

    fn begin(&mut self, seq: u32) {
        self.current = Track::new(seq, self.datagrams);
    }

    fn advance(&mut self, seq: u32, by: u32, now: Nanos, out: &mut dyn Output) {
        self.expire_oldest(by, now, out);
        self.current.advance(seq, by);
        self.has_advanced = true;
        if let Some(other) = &mut self.other {
            other.is_advancing = false;
            if !other.is_older && !other.is_outage {
                // The older sequence goes on: the numbers of the newer one were late, and its account begins anew.
                self.reordered += u64::from(other.track.received_count - 1);
                other.track = Track::new(other.track.highest, self.datagrams);
            }
        }
        self.update_balance(1, 0);
        if by > 1 {
            self.emit_event(
                now,
                SequenceEventKind::Gap {
                    first: self.seq_before(seq, by - 1),
                    count: by - 1,
                },
                out,
            );
        }
    }

    /// Counts the missing ones among the oldest `count` numbers of the window as lost.
    pub(super) fn expire_oldest(&mut self, count: u32, now: Nanos, out: &mut dyn Output) {
        if self.is_behind() {
            // While the older sequence goes on, this one may be a second path that is late.
            return;
        }
        let mut missing = !self.current.window;
        if count < WINDOW {
            missing &= !(u128::MAX >> count);
        }
        let shared_missing = missing & self.shared_with_newer();
        self.current.shared_missing += shared_missing.count_ones();
        self.count_all_lost(missing & !shared_missing, self.current.highest, now, out);
    }

    /// Counts numbers as lost. `missing` has one bit per number; bit 0 is `highest`.
    fn count_all_lost(&mut self, mut missing: u128, highest: u32, now: Nanos, out: &mut dyn Output) {
        // Handles runs of consecutive missing numbers, the oldest first.
        while missing != 0 {
            let oldest = WINDOW - 1 - missing.leading_zeros();
            let run = (missing << missing.leading_zeros()).leading_ones();
            self.count_lost(self.seq_before(highest, oldest), run, now, out);
            missing &= !(low_bits(run) << (oldest + 1 - run));
        }
    }

    fn count_lost(&mut self, first: u32, count: u32, now: Nanos, out: &mut dyn Output) {
        self.absent += u64::from(count);
        self.balance -= i64::from(count);
        self.first_lost.get_or_insert(first);
        self.emit_event(now, SequenceEventKind::Lost { first, count }, out);
    }

    fn observe_late(&mut self, seq: u32, back: u32, now: Nanos, out: &mut dyn Output) {
        let bit = 1 << back;
        self.repeat_late(seq);
        if back >= self.current.known && self.current.extend_into_gap(seq, back) {
            self.reordered += 1;
            self.update_balance(1, 0);
            self.recover();
            self.emit_event(now, SequenceEventKind::Recovered { first: seq, count: 1 }, out);
        } else if back >= self.current.known {
            self.reordered += 1;
            if self.other.is_some() {
                self.current.extend(seq, back);
                self.update_balance(1, 0);
            }
            self.emit_event(now, SequenceEventKind::Late(seq), out);
        } else if self.current.written_off & bit != 0 {
            self.current.written_off &= !bit;
            self.current.received_count = self.current.received_count.saturating_add(1);
            self.reordered += 1;
            self.update_balance(1, 0);
            self.recover();
            self.emit_event(now, SequenceEventKind::Recovered { first: seq, count: 1 }, out);
        } else if self.current.window & bit != 0 {
            self.duplicated += 1;
            self.emit_event(now, SequenceEventKind::Duplicate(seq), out);
        } else {
            self.current.window |= bit;
            self.current.received_count = self.current.received_count.saturating_add(1);
            self.reordered += 1;
            self.update_balance(1, 0);
            self.emit_event(now, SequenceEventKind::Late(seq), out);
        }
    }

    /// Counts consecutive repetitions of a late number. After [`STALLED`] of them the number is constant.
    fn repeat_late(&mut self, seq: u32) {
        let count = match self.repeated {
            Some(last) if last.seq == seq && self.datagrams.wrapping_sub(last.datagram) == 1 => {
                last.count.saturating_add(1)
            }
            _ => 0,
        };
        self.repeated = Some(RepeatedLate {
            seq,
            datagram: self.datagrams,
            count,
        });
        if count >= STALLED {
            self.stalled = STALLED;
        }
    }

    /// Undoes the loss of a number that arrived after all.
    pub(super) fn recover(&mut self) {
        self.balance += 1;
        self.absent -= 1;
        self.recovered += 1;
    }

    /// Returns true if an accounting at `now` would change and report nothing.
    #[inline]
    pub(super) fn is_accounted(&self, now: Nanos) -> bool {
        self.accounted && self.last_seen <= now.saturating_add(SET_BACK)
    }

    /// Ends an accounting interval: settles what a silence decides. The caller reports the counts next.
    pub(super) fn account(&mut self, now: Nanos, out: &mut dyn Output) {
        self.follow_clock(now);
        self.expire_restart(now, out);
        if now.saturating_sub(self.last_seen) >= SETTLE {
            self.settle(now, out);
        }
        self.stray = self.stray.filter(|(_, datagrams)| self.is_near_stray(*datagrams));
        // Without an anomaly, counts change only by a silence, or because datagrams confirm losses. Streams of version 0.5
        // depend on the nodes of their address, too.
        self.accounted = self.id.version != V05
            && (self.other.is_none() && self.pending_restart.is_none() && self.stray.is_none())
            && self.current.window == u128::MAX
            && self.balance_after(self.datagrams) >= 0;
    }

    /// Adjusts stored times after the clock was set back, so that no state outlives its timeout.
    fn follow_clock(&mut self, now: Nanos) {
        let silent_since = self.last_seen;
        let nodes = &mut self.nodes;
        let seen = [
            &mut self.last_seen,
            &mut self.alternation.seen,
            &mut nodes.first_seen,
            &mut nodes.other_node_seen,
        ];
        let other_began = self.other.as_mut().map(|other| &mut other.began);
        for time in seen.into_iter().chain(&mut nodes.unnamed).chain(other_began) {
            follow_clock(time, 0, now);
        }
        follow_clock(&mut self.mixed_until, MIXED, now);
        if let Some(restart) = &mut self.pending_restart {
            // A deadline that passed before a silence remains passed.
            restart.until = restart.until.saturating_sub(silent_since - self.last_seen);
            follow_clock(&mut restart.until, PAUSE, now);
        }
    }

    /// Counts all missing numbers as lost until they arrive, except those of a jump that may be a few strays.
    fn settle(&mut self, now: Nanos, out: &mut dyn Output) {
        self.update_balance(0, 0);
        self.stray = None;
        if self.is_tentative() {
            if let Some(other) = &mut self.other {
                let missing = other.track.write_off_missing();
                let highest = other.track.highest;
                self.count_all_lost(missing, highest, now, out);
            }
            return;
        }
        self.end_other_sequence(now, out);
        let missing = self.current.write_off_missing();
        if missing != 0 {
            self.count_all_lost(missing, self.current.highest, now, out);
            self.steady = false;
        }
    }

    /// Ends the input: no number follows that could confirm a held one.
    pub(super) fn finish(&mut self, now: Nanos, out: &mut dyn Output) {
        self.accounted = false;
        self.update_balance(0, 0);
        self.reject_held_number(now, out);
        if self.is_tentative() {
            // A few numbers back are no restart unless more follow.
            self.swap_sequences();
            self.reopen_finalized_losses();
        }
        self.end_other_sequence(now, out);
        self.decide_restart(now, out);
        self.settle(now, out);
    }

    /// Returns `balance` after this many datagrams, including those that the fast path has received since the last update.
    fn balance_after(&self, datagrams: u64) -> i64 {
        let steady = i64::try_from(datagrams.wrapping_sub(self.supported)).unwrap_or(i64::MAX);
        // Datagrams after a jump support its losses, which are counted later, so they may exceed the limit on prior losses.
        let is_jump = self.other.as_ref().is_some_and(|other| other.is_older);
        let jump_support = if is_jump {
            i64::from(self.current.received_count) * LOSSES_PER_DATAGRAM
        } else {
            0
        };
        self.balance
            .saturating_add(steady.saturating_mul(LOSSES_PER_DATAGRAM))
            .min(MAX_PRIOR_LOSSES + jump_support)
    }

    /// Updates the balance. The datagrams since the last update were in sequence, except the latest `but`; `more` datagrams
    /// out of sequence are accepted as well.
    pub(super) fn update_balance(&mut self, more: u64, but: u64) {
        let balance = self.balance_after(self.datagrams.wrapping_sub(but).wrapping_add(more));
        (self.balance, self.supported) = (balance, self.datagrams);
    }

    /// Records a jump from the highest number to `seq`. If it returns to the numbers before an earlier jump, returns the
    /// maximum number of datagrams that may be missing between: those missing there in any case or, if the reporter
    /// restarted, as many as the datagrams since then support and have not supported yet. So forged datagrams support no more
    /// losses than they would otherwise.
    fn record_jump(&mut self, seq: u32) -> Option<u64> {
        let highest = self.current.highest;
        let datagrams = self.datagrams.wrapping_sub(self.current.began_at_datagram);
        let range = -WINDOW.cast_signed()..=FAR.cast_signed();
        let ahead = self
            .origins
            .longer_than(datagrams)
            .filter(|origin| !range.contains(&self.distance(highest, *origin)))
            .map(|origin| self.distance(seq, origin))
            .filter(|ahead| range.contains(ahead))
            .min();
        self.origins.add(highest, datagrams);
        let missing = u64::from((ahead? - 1).max(0).unsigned_abs());
        let supported = datagrams.saturating_mul(LOSSES_PER_DATAGRAM.unsigned_abs());
        Some(missing.max(supported.saturating_sub(self.absent.saturating_sub(self.absent_before))))
    }

    /// Makes unconfirmed losses final, because the following datagrams cannot confirm them. Returns their number.
    fn finalize_unconfirmed(&mut self) -> u64 {
        let unconfirmed = self.balance.min(0).unsigned_abs();
        self.never_confirmed += unconfirmed;
        self.balance = 0;
        unconfirmed
    }

    /// Returns the lost and the unconfirmed datagrams; while a restart is undecided, the counts before it.
    fn losses(&self) -> Losses {
        let (absent, unconfirmed) = match self.undecided_restart() {
            Some(restart) => (self.absent.min(restart.absent), restart.unconfirmed),
            None => (
                self.absent,
                self.never_confirmed + self.balance_after(self.datagrams).min(0).unsigned_abs(),
            ),
        };
        let unconfirmed = unconfirmed.min(absent);
        Losses {
            lost: absent - unconfirmed,
            unconfirmed,
            datagrams: self.datagrams,
        }
    }

    /// Reports the counts since the last report, and an event if there are losses. Returns the number of events. A reported
    /// loss that was recovered is subtracted from later ones.
    pub(super) fn report(&mut self, now: Nanos, out: &mut dyn Output) -> u64 {
        let lost = self.losses().lost.max(self.reported.lost);
        let counted = ReportedCounts {
            lost,
            reordered: self.reordered,
            duplicated: self.duplicated,
        };
        if counted == self.reported || !self.is_countable() {
            return 0;
        }
        let loss = Loss {
            ts: now,
            node: self.shown_id().node,
            source: self.id.source,
            hw_id: self.id.hw_id,
            lost: counted.lost - self.reported.lost,
            reordered: counted.reordered - self.reported.reordered,
            duplicated: counted.duplicated - self.reported.duplicated,
        };
        self.reported = counted;
        out.loss(&loss);
        if loss.lost == 0 {
            return 0;
        }
        // Without newly lost numbers, datagrams have confirmed earlier losses.
        let first = self.first_lost.take().unwrap_or(self.after_lost);
        self.after_lost = self.seq_after(first, loss.lost as u32);
        let Some(event) = loss.event(&self.id, first) else {
            return 0;
        };
        out.sender(sender_of(&loss.source));
        out.event(&event, &[]);
        1
    }

    fn emit_event(&self, ts: Nanos, kind: SequenceEventKind, out: &mut dyn Output) {
        out.sequence(&SequenceEvent {
            ts,
            stream: self.shown_id(),
            kind,
        });
    }

    fn is_countable(&self) -> bool {
        self.advancing && !self.is_mixed()
    }

    /// Returns the identity for users: with the node, if the stream began with a report that names it.
    fn shown_id(&self) -> StreamId {
        let named = self.nodes.first.filter(|_| self.nodes.is_named);
        StreamId {
            node: self.id.node.or(named),
            ..self.id
        }
    }

    /// Returns the count of numbers that are missing and not lost yet.
    fn missing(&self) -> u32 {
        let other = self
            .other
            .as_ref()
            .filter(|other| other.is_older)
            .map_or(0, |other| {
                let between = self
                    .distance(self.current.first, other.track.highest)
                    .saturating_sub(1);
                let between = if other.is_outage {
                    between.max(0).unsigned_abs()
                } else {
                    0
                };
                other.track.window.count_zeros() + between
            });
        let missing_since_restart = u32::try_from(self.missing_since_restart()).unwrap_or(u32::MAX);
        (self.current.window.count_zeros() + other).saturating_add(missing_since_restart)
    }

    pub(super) fn view(&self) -> StreamView {
        let Losses {
            lost, unconfirmed, ..
        } = self.losses();
        StreamView {
            id: self.shown_id(),
            datagrams: self.datagrams,
            lost,
            unconfirmed,
            recovered: self.recovered,
            reordered: self.reordered,
            duplicated: self.duplicated,
            restarts: self.restarts,
            countable: self.is_countable(),
            mixed: self.is_mixed(),
            missing: self.missing(),
            last_seen: self.last_seen,
        }
    }
}

//! The two latest sequences of a stream: decides which of them a number belongs to, and whether a jump between them was an
//! outage, a restart, strays or a late batch. See [`crate::sequence`] for the algorithm.
//!
//! `current` is the sequence in use, `other` the one beside it (older or newer). `pending_restart` stores the sequence before
//! a restart that does not count yet: the stream returns to it if the numbers since then turn out to be late.

use super::{Alternation, HeldNumber, Stream};
use crate::event::{Nanos, Output, SequenceEventKind};
use crate::sequence::track::{Track, is_ahead, is_late, is_near, low_bits};
use crate::sequence::{FAR, FIRST_NUMBERS, PAUSE, SETTLE, STALLED, WINDOW};

/// At most this many numbers behind an older sequence may be strays rather than a restart.
const MAX_STRAYS: u32 = 16;
/// This many consecutive numbers are a restart, because late numbers arrive one by one.
const RESTART_RUN: u32 = 4;
/// Number of datagrams that begin a sequence: the held one, and the one that confirms it.
const DATAGRAMS_OF_START: u64 = 2;

/// The sequence beside the current one. Kept until it has had no number for a window of datagrams, or the stream is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OtherSequence {
    pub(super) track: Track,
    /// Datagram count of the stream when the latest number of this sequence arrived.
    pub(super) last_datagram: u64,
    /// The newer sequence began after a silence, when no datagram of the older one was in flight.
    pub(super) after_silence: bool,
    /// This sequence began before the current one.
    pub(super) is_older: bool,
    /// The latest datagram of the stream advanced this sequence.
    pub(super) is_advancing: bool,
    /// The newer sequence is ahead of the older one, so the numbers between are missing. Otherwise the reporter has
    /// restarted.
    pub(super) is_outage: bool,
    /// The newer sequence returns to the numbers before an earlier jump; at most this many between are missing.
    pub(super) max_missing: Option<u64>,
    /// Unconfirmed losses that the datagrams of the newer sequence do not confirm.
    pub(super) finalized_losses: u64,
    /// Time at which the newer sequence began.
    pub(super) began: Nanos,
    /// The stream's reordered and duplicated counts before the newer sequence.
    reordered: u64,
    duplicated: u64,
}

/// The sequence before a restart. If the stream returns to it within [`PAUSE`], there was no restart: a second path delivered
/// many late numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingRestart {
    old: OtherSequence,
    /// Datagram count when the sequence after it began, and the first number of that sequence.
    began_at_datagram: u64,
    first: u32,
    /// Number of missing datagrams before the restart, and how many of them were unconfirmed.
    pub(super) absent: u64,
    pub(super) unconfirmed: u64,
    /// Missing numbers that may still arrive: the reporter has not restarted since it sent them.
    missing: u64,
    /// Values of [`Stream::never_confirmed`] and of the balance before the restart.
    never_confirmed: u64,
    balance: i64,
    /// Restarts since then; they count when the stream can no longer return.
    restarts: u32,
    /// Late numbers may arrive until this time. A silence extends it once (`is_postponed`).
    pub(super) until: Nanos,
    is_postponed: bool,
}

/// The sequence to which a number belongs.
pub(super) enum SequenceMatch {
    Current,
    OtherSequence,
    /// Neither of the two.
    Neither,
}

impl PendingRestart {
    /// Returns true if late numbers may still arrive.
    fn is_recent(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// Returns true if the sequence after it began where a restarted reporter begins.
    fn began_at_start(&self) -> bool {
        self.first < FIRST_NUMBERS
    }
}

impl Stream {
    /// Returns the sequence to which a number belongs.
    pub(super) fn match_sequence(&self, seq: u32, ahead: i32, paused: bool) -> SequenceMatch {
        if self.is_next(seq, ahead) {
            return SequenceMatch::Current;
        }
        let is_after_pause = paused
            || self
                .held_number
                .is_some_and(|held_number| held_number.is_after_pause());
        if is_late(ahead) && is_after_pause {
            return SequenceMatch::Neither;
        }
        let is_in_other = self.other.as_ref().is_some_and(|other| {
            // A number that the older sequence already has belongs to a new sequence: after a restart, or where one may
            // begin.
            let is_new = other.is_older
                && if other.is_outage {
                    seq < FIRST_NUMBERS
                } else {
                    !self.is_tentative()
                };
            let ahead = self.distance(seq, other.track.highest);
            is_near(ahead) && (!is_new || other.track.lacks(ahead))
        });
        let is_in_current =
            is_late(ahead) && (ahead.unsigned_abs() < self.current.known || self.is_closer_to_first(seq));
        match (is_in_current, is_in_other) {
            (true, _) => SequenceMatch::Current,
            (false, true) => SequenceMatch::OtherSequence,
            (false, false) => SequenceMatch::Neither,
        }
    }

    /// Returns true if a number continues the current sequence rather than the other one.
    pub(super) fn is_next(&self, seq: u32, ahead: i32) -> bool {
        is_ahead(ahead) && !self.is_closer_to_other(seq, ahead)
    }

    fn is_closer_to_other(&self, seq: u32, ahead: i32) -> bool {
        let Some(other) = &self.other else {
            return false;
        };
        let ahead_of_other = self.distance(seq, other.track.highest);
        (1..ahead).contains(&ahead_of_other)
            || self.is_tentative() && (1 - ahead..=0).contains(&ahead_of_other)
            || self.is_behind()
                && self.current.first >= FIRST_NUMBERS
                && other.track.is_missing(ahead_of_other)
    }

    /// Returns true if a number before the current sequence is closer to its start than to the other sequence.
    fn is_closer_to_first(&self, seq: u32) -> bool {
        let below = self.distance(self.current.first, seq);
        !matches!(&self.other, Some(other) if below > self.distance(seq, other.track.highest))
    }

    /// Returns true if the current sequence began behind an older one that has not ended.
    pub(super) fn is_behind(&self) -> bool {
        matches!(&self.other, Some(other) if other.is_older && !other.is_outage)
    }

    /// Returns true if the current sequence may be a few strays: it is short and behind an older one.
    pub(super) fn is_tentative(&self) -> bool {
        self.current.received_count <= MAX_STRAYS
            && self.current.in_sequence_count < RESTART_RUN
            && self.is_behind()
    }

    /// Exchanges the current and the other sequence.
    pub(super) fn swap_sequences(&mut self) {
        if let Some(mut other) = self.other.take() {
            std::mem::swap(&mut other.track, &mut self.current);
            other.is_older = !other.is_older;
            other.last_datagram = self.datagrams;
            self.other = Some(other);
        }
    }

    /// Processes a number of the other sequence. The second in a row makes it the current sequence again.
    pub(super) fn observe_other(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        let is_advancing = self.other.as_ref().is_some_and(|other| other.is_advancing);
        if matches!(&self.other, Some(other) if other.is_older && other.is_outage) && !self.is_tentative() {
            self.reordered += 1;
        }
        self.swap_sequences();
        let ahead = self.distance(seq, self.current.highest);
        if ahead <= 0 {
            self.observe_late(seq, ahead.unsigned_abs(), now, out);
            self.swap_sequences();
            return;
        }
        self.advance(seq, ahead.unsigned_abs(), now, out);
        if is_advancing {
            self.reject_held_number(now, out);
            self.reopen_finalized_losses();
            self.record_alternation(now);
        } else {
            self.swap_sequences();
            if let Some(other) = &mut self.other {
                other.is_advancing = true;
            }
        }
    }

    /// Processes a number of neither sequence: holds it until a second one confirms it.
    pub(super) fn observe_unmatched(&mut self, number: HeldNumber, now: Nanos, out: &mut dyn Output) {
        let Some(held_number) = &mut self.held_number else {
            self.held_number = Some(number);
            return;
        };
        held_number.repeated += u32::from(held_number.seq == number.seq);
        let held_number = *held_number;
        let apart = self.distance(number.seq, held_number.seq);
        if apart == 0 {
            self.repeat_held_number(held_number, now, out);
        } else if self.are_missing(held_number.seq, number.seq) {
            // The numbers before a pause decide: the highest one was forged, or the clock was stepped.
            self.reject_held_number(now, out);
            let back = self.distance(self.current.highest, number.seq).unsigned_abs();
            self.observe_late(number.seq, back, now, out);
        } else if apart == 1 || is_near(apart) && number.silence < SETTLE {
            self.held_number = None;
            let silence = held_number.silence.max(number.silence);
            self.jump_to(
                HeldNumber {
                    silence,
                    ..held_number
                },
                now,
                out,
            );
            self.observe_near(number.seq, now, out);
            self.fill_stray();
        } else if self.is_gap(held_number.seq, self.current.highest)
            && self.is_gap(number.seq, held_number.seq)
            && !self.is_passed_by_other(held_number.seq, number.seq)
        {
            // Few numbers arrive: the held one is behind a gap and before this one, which may itself be a stray.
            self.held_number = Some(number);
            self.jump_to(held_number, now, out);
        } else {
            self.reject_held_number(now, out);
            self.stray = self.stray.filter(|_| number.silence < SETTLE);
            let silence = held_number.silence.max(number.silence);
            self.held_number = Some(HeldNumber { silence, ..number });
        }
    }

    /// Processes a number near the highest one.
    pub(super) fn observe_near(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        let ahead = self.distance(seq, self.current.highest);
        if ahead > 0 {
            self.advance(seq, ahead.unsigned_abs(), now, out);
        } else if is_late(ahead) {
            self.observe_late(seq, ahead.unsigned_abs(), now, out);
        } else {
            self.reordered += 1;
            self.emit_event(now, SequenceEventKind::Late(seq), out);
        }
    }

    /// Processes a repetition of the held number. After [`STALLED`] repetitions the number is constant.
    fn repeat_held_number(&mut self, held_number: HeldNumber, now: Nanos, out: &mut dyn Output) {
        if held_number.repeated < STALLED || self.has_advanced {
            self.duplicated += 1;
            self.emit_event(now, SequenceEventKind::Duplicate(held_number.seq), out);
        } else {
            self.end_other_sequence(now, out);
            self.held_number = None;
            self.begin(held_number.seq);
        }
        if held_number.repeated >= STALLED {
            self.stalled = STALLED;
        }
    }

    /// Returns true if a number behind an older sequence was late like the few before it, because the next one continues that
    /// sequence.
    fn is_passed_by_other(&self, seq: u32, next: u32) -> bool {
        self.is_tentative()
            && self.other.as_ref().is_some_and(|other| {
                let highest = other.track.highest;
                self.distance(seq, highest) <= 0 && self.is_gap(next, highest)
            })
    }

    /// Returns true if `seq` is missing in the current sequence, and `next` is missing too or repeats the highest.
    fn are_missing(&self, seq: u32, next: u32) -> bool {
        let Track { highest, .. } = self.current;
        self.current.is_missing(self.distance(seq, highest))
            && (next == highest || self.current.is_missing(self.distance(next, highest)))
    }

    /// Returns true if `seq` is ahead of `from` by a plausible gap, at most [`FAR`].
    fn is_gap(&self, seq: u32, from: u32) -> bool {
        (1..=FAR.cast_signed()).contains(&self.distance(seq, from))
    }

    /// Begins another sequence. The current one becomes the other one, unless it was a few strays.
    fn jump_to(&mut self, held_number: HeldNumber, now: Nanos, out: &mut dyn Output) {
        let seq = held_number.seq;
        let continues_other = matches!(&self.other, Some(other) if self.is_gap(seq, other.track.highest));
        if self.is_tentative() && (continues_other || !self.is_gap(seq, self.current.highest)) {
            self.swap_sequences();
            self.reopen_finalized_losses();
        }
        if let Some(other) = &self.other
            && self.may_reach(other, now)
            && self.distance(seq, other.track.highest) > 0
        {
            self.swap_sequences();
        }
        self.end_other_sequence(now, out);
        if self.resumes_old_sequence(held_number) {
            self.revert_restart(DATAGRAMS_OF_START, now, out);
            if is_near(self.distance(seq, self.current.highest)) {
                self.observe_near(seq, now, out);
                return;
            }
        } else if matches!(self.pending_restart, Some(restart) if self.distance(seq, restart.old.track.highest) >= 0)
        {
            self.confirm_restart(out);
        }
        let gap = self.distance(seq, self.current.highest);
        let is_far = gap > FAR.cast_signed();
        let is_outage = gap > 0 && seq >= if is_far { WINDOW } else { FIRST_NUMBERS };
        let max_missing = self.record_jump(seq);
        let finalized_losses = if is_outage && max_missing.is_none() {
            0
        } else {
            self.finalize_unconfirmed()
        };
        let track = std::mem::replace(&mut self.current, Track::new(seq, self.datagrams));
        self.other = Some(OtherSequence {
            track,
            last_datagram: self.datagrams,
            after_silence: held_number.silence >= SETTLE,
            is_older: true,
            is_advancing: false,
            is_outage,
            max_missing,
            finalized_losses,
            began: now,
            reordered: self.reordered,
            duplicated: self.duplicated,
        });
        self.update_balance(1, 0);
        self.record_alternation(now);
        if held_number.is_after_pause() {
            // No number of the old sequence can arrive any more.
            self.end_other_sequence(now, out);
        }
    }

    /// Ends the other sequence if it can get no more numbers, unless the current one may be a few strays.
    pub(super) fn expire_other_sequence(&mut self, silent: bool, now: Nanos, out: &mut dyn Output) {
        let is_over = self.other.as_ref().is_some_and(|other| {
            let is_passed = self.datagrams.wrapping_sub(other.last_datagram) > u64::from(WINDOW);
            silent || other.after_silence || is_passed && !self.may_reach(other, now)
        });
        if is_over && !self.is_tentative() {
            self.end_other_sequence(now, out);
        }
    }

    /// Returns true if the older sequence may be a second, slower path that will end where the newer one began.
    fn may_reach(&self, other: &OtherSequence, now: Nanos) -> bool {
        !other.is_older
            && other.is_outage
            && other.track.received_count > MAX_STRAYS
            && self.is_gap(other.track.highest, self.current.highest)
            && now.saturating_sub(other.began) < PAUSE
    }

    /// Ends the other sequence. If it is the older one, decides what the jump to the current one was; otherwise it was a few
    /// strays.
    pub(super) fn end_other_sequence(&mut self, now: Nanos, out: &mut dyn Output) {
        let Some(mut other) = self.other.take() else {
            return;
        };
        let highest = other.track.highest;
        let gap = self.distance(self.current.first, highest);
        if !other.is_older || other.track.is_first_only && gap > FAR.cast_signed() {
            self.reordered += u64::from(other.track.received_count);
            self.emit_event(now, SequenceEventKind::Stray(highest), out);
            self.count_shared_lost(now, out);
            return;
        }
        let missing = other.track.write_off_missing()
            & !self.possibly_shared(highest, self.current.first, other.is_outage);
        self.count_all_lost(missing, highest, now, out);
        if !other.is_outage {
            self.begin_restart(other, out);
            // Missing numbers of the new sequence that have already left its window.
            let Track { first, highest, .. } = self.current;
            let span = self.distance(highest, first).unsigned_abs() + 1;
            let in_window = self.current.window.count_zeros() + self.current.written_off.count_ones();
            let expired = span.saturating_sub(self.current.received_count + in_window);
            if expired > 0 {
                self.count_lost(first, expired, now, out);
            }
        } else if gap > 1 {
            let between = gap.unsigned_abs() - 1;
            let first = self.seq_after(highest, 1);
            self.current.gap = between;
            self.count_lost(first, between, now, out);
            if let Some(max_missing) = other.max_missing {
                let not_missing = u64::from(between).saturating_sub(max_missing);
                self.never_confirmed += not_missing;
                self.balance = self
                    .balance
                    .saturating_add(i64::try_from(not_missing).unwrap_or(i64::MAX));
            }
            self.emit_event(
                now,
                SequenceEventKind::Gap {
                    first,
                    count: between,
                },
                out,
            );
        }
    }

    /// Returns a mask of the window up to `highest` (one bit per number): the numbers from the first of a newer sequence on,
    /// which may have arrived there.
    fn possibly_shared(&self, highest: u32, first: u32, is_outage: bool) -> u128 {
        match u32::try_from(self.distance(highest, first)) {
            Ok(above) if is_outage => low_bits(above.saturating_add(1)),
            _ => 0,
        }
    }

    /// Returns the mask of [`Stream::possibly_shared`] for the current sequence, if the other sequence is the newer one.
    pub(super) fn shared_with_newer(&self) -> u128 {
        match &self.other {
            Some(other) if !other.is_older => {
                self.possibly_shared(self.current.highest, other.track.first, other.is_outage)
            }
            _ => 0,
        }
    }

    /// Counts numbers as lost that might have arrived in the newer sequence, which turned out to be a few strays.
    fn count_shared_lost(&mut self, now: Nanos, out: &mut dyn Output) {
        let count = std::mem::take(&mut self.current.shared_missing);
        if count > 0 {
            self.count_lost(self.current.first, count, now, out);
        }
    }

    /// Treats the current sequence as that of a restarted reporter, unless the stream returns to the other one.
    fn begin_restart(&mut self, other: OtherSequence, out: &mut dyn Output) {
        let is_behind_old = self.may_revert_restart()
            && self.pending_restart.is_some_and(|restart| {
                restart.is_recent(self.last_seen)
                    && self.distance(other.track.highest, restart.old.track.highest) < 0
            });
        if let Some(restart) = self.pending_restart.as_mut().filter(|_| is_behind_old) {
            restart.restarts += 1;
            return;
        }
        self.confirm_restart(out);
        self.pending_restart = Some(PendingRestart {
            old: other,
            began_at_datagram: self.current.began_at_datagram,
            first: self.current.first,
            absent: self.absent,
            unconfirmed: self.losses().unconfirmed,
            missing: self.absent.saturating_sub(self.absent_before),
            never_confirmed: self.never_confirmed,
            balance: self.balance_after(self.datagrams),
            restarts: 1,
            until: other.began.saturating_add(PAUSE),
            is_postponed: false,
        });
        if other.after_silence {
            self.confirm_restart(out);
        }
    }

    /// Counts the pending restarts: the stream does not return to the sequence before them.
    pub(super) fn confirm_restart(&mut self, out: &mut dyn Output) {
        let Some(restart) = self.pending_restart.take() else {
            return;
        };
        self.absent_before = restart.absent;
        for _ in 0..restart.restarts {
            self.restarts += 1;
            self.emit_event(restart.old.began, SequenceEventKind::Restart(restart.first), out);
        }
    }

    /// Counts a pending restart when the stream has not returned within [`PAUSE`]. If all numbers since then may be late, a
    /// silence decides nothing: the numbers after it do.
    pub(super) fn expire_restart(&mut self, now: Nanos, out: &mut dyn Output) {
        let is_over = self.pending_restart.is_some_and(|restart| {
            let until = if self.may_prove_late(&restart) {
                self.last_seen
            } else {
                now
            };
            !restart.is_recent(until)
        });
        if is_over {
            self.confirm_restart(out);
        }
    }

    /// Extends the deadline once, so that the numbers after a silence decide whether the numbers before it were late.
    pub(super) fn postpone_restart(&mut self, now: Nanos) {
        if let Some(restart) = self.pending_restart
            && restart.is_recent(self.last_seen)
            && !restart.is_recent(now)
            && !restart.is_postponed
            && self.may_prove_late(&restart)
        {
            self.pending_restart = Some(PendingRestart {
                until: now.saturating_add(PAUSE),
                is_postponed: true,
                ..restart
            });
        }
    }

    /// Decides a pending restart at the end of the input. Numbers that may all be late are no restart.
    pub(super) fn decide_restart(&mut self, now: Nanos, out: &mut dyn Output) {
        if self
            .pending_restart
            .is_some_and(|restart| self.may_be_late(&restart))
        {
            self.revert_restart(0, now, out);
        } else {
            self.confirm_restart(out);
        }
    }

    /// Returns the sequence before an undecided restart: the sequence after it did not begin where a restarted reporter does,
    /// and all its numbers may be late.
    pub(super) fn undecided_restart(&self) -> Option<PendingRestart> {
        self.pending_restart
            .filter(|restart| !restart.began_at_start() && self.may_be_late(restart))
    }

    /// Returns how many numbers count as missing since an undecided restart.
    pub(in crate::sequence) fn missing_since_restart(&self) -> u64 {
        self.undecided_restart()
            .map_or(0, |restart| self.absent.saturating_sub(restart.absent))
    }

    /// Returns true if all numbers since a restart may be late: they did not begin where a restarted reporter does, or ended
    /// where the previous sequence had begun; none arrived too late for that; they lie before its end; and there are not
    /// clearly more of them than were missing.
    fn may_be_late(&self, restart: &PendingRestart) -> bool {
        (!restart.began_at_start() || self.ends_at_old_first(restart))
            && restart.is_recent(self.last_seen)
            && self.distance(self.current.highest, restart.old.track.highest) < 0
            && !self.exceeds_missing(restart)
    }

    /// Returns true if numbers after a silence may still show that those since a restart were late, because the previous
    /// sequence goes on. If they began where a restarted reporter does, no more of them may have arrived than were missing.
    fn may_prove_late(&self, restart: &PendingRestart) -> bool {
        self.may_be_late(restart)
            || restart.is_recent(self.last_seen)
                && self.distance(self.current.highest, restart.old.track.highest) < 0
                && self.received_since_restart(restart) <= restart.missing
    }

    /// Returns true if the numbers since a restart ended just before the first number of the sequence before it.
    fn ends_at_old_first(&self, restart: &PendingRestart) -> bool {
        let behind = self.distance(restart.old.track.first, self.current.highest);
        (1..=MAX_STRAYS.cast_signed()).contains(&behind)
    }

    /// Returns the count of numbers since a restart, without duplicates and without the two that began the sequence.
    fn received_since_restart(&self, restart: &PendingRestart) -> u64 {
        self.datagrams
            .wrapping_sub(restart.began_at_datagram)
            .saturating_sub(self.duplicated - restart.old.duplicated)
    }

    /// Returns true if clearly more numbers arrived since a restart than were missing before, so that not all were late.
    fn exceeds_missing(&self, restart: &PendingRestart) -> bool {
        self.received_since_restart(restart) > restart.missing + u64::from(MAX_STRAYS)
    }

    /// Decides whether the numbers since a restart were late, when a number that is `by` ahead reaches the end of the
    /// sequence before it. If there are too many of them, and they are in order up to there, the reporter restarted. If none
    /// of them is missing, either decision hides no loss.
    pub(super) fn decide_restart_at_old_end(&mut self, by: u32, now: Nanos, out: &mut dyn Output) {
        let is_restart = by <= RESTART_RUN
            && self.pending_restart.is_some_and(|restart| {
                let misses = self.absent > restart.absent || self.current.window != u128::MAX;
                misses && self.exceeds_missing(&restart)
            });
        if is_restart {
            self.confirm_restart(out);
        } else {
            self.revert_restart(1, now, out);
        }
    }

    /// Returns true if the sequence after a restart did not begin where a restarted reporter does, so it may reach the
    /// previous one.
    pub(super) fn may_revert_restart(&self) -> bool {
        self.pending_restart
            .is_some_and(|restart| !restart.began_at_start())
    }

    /// Returns true if a jump to this number shows that the sequence before a restart goes on: the number is near the end of
    /// that sequence or ahead of it, and the sequence since then ended where that one had begun, or began where no reporter
    /// does.
    fn resumes_old_sequence(&self, held_number: HeldNumber) -> bool {
        self.pending_restart.is_some_and(|restart| {
            let Track { highest, .. } = restart.old.track;
            let ahead = self.distance(held_number.seq, highest);
            let continues = if restart.began_at_start() && !self.ends_at_old_first(&restart) {
                ahead.unsigned_abs() <= MAX_STRAYS
            } else {
                is_near(ahead) || self.is_gap(held_number.seq, highest)
            };
            let is_recent =
                restart.is_recent(self.last_seen) || restart.is_postponed && held_number.is_after_pause();
            is_recent && self.distance(self.current.highest, highest) < 0 && continues
        })
    }

    /// Returns true if a number ahead of the current sequence is closer to the one before a restart, so that all numbers
    /// since then were late.
    pub(super) fn reaches_old_sequence(&self, seq: u32, ahead: i32) -> bool {
        self.pending_restart.is_some_and(|restart| {
            let ahead_of_old = self.distance(seq, restart.old.track.highest);
            let is_closer = is_ahead(ahead_of_old) || (1 - ahead..=0).contains(&ahead_of_old);
            is_closer && !restart.began_at_start() && restart.is_recent(self.last_seen)
        })
    }

    /// Returns the count of numbers from the first after a restart to the highest, if all of them lie in the gap before the
    /// old sequence; otherwise 0.
    fn count_in_old_gap(&self, restart: &PendingRestart) -> u64 {
        let Track { first, gap, .. } = restart.old.track;
        let [begin, end] = [restart.first, self.current.highest].map(|seq| self.distance(first, seq));
        if i64::from(begin) > i64::from(gap) || end <= 0 || begin < end {
            return 0;
        }
        u64::from(begin.abs_diff(end)) + 1
    }

    /// Makes the sequence before a restart current again: all numbers since then were late, so none of them is missing. The
    /// latest `others` datagrams belong to neither sequence.
    fn revert_restart(&mut self, others: u64, now: Nanos, out: &mut dyn Output) {
        let lost = self.losses().lost;
        let Some(restart) = self.pending_restart.take() else {
            return;
        };
        let late = (self.received_since_restart(&restart) + DATAGRAMS_OF_START).saturating_sub(others);
        self.reordered = self.reordered.max(restart.old.reordered + late);
        // Late numbers are not missing twice. Those that fill the gap before the old sequence had been counted as lost.
        let filled = self.count_in_old_gap(&restart).min(late);
        let absent = self.absent.saturating_sub(restart.absent) + filled;
        self.current = restart.old.track;
        self.current.gap -= u32::try_from(filled).unwrap_or(u32::MAX);
        self.absent -= absent;
        if self.never_confirmed == restart.never_confirmed {
            self.balance += i64::try_from(absent).unwrap_or(i64::MAX);
        } else {
            // Some of the late numbers have become unconfirmed for good; restore the values before the restart.
            self.update_balance(0, 0);
            self.never_confirmed = restart.never_confirmed;
            self.balance = restart.balance + i64::try_from(filled).unwrap_or(i64::MAX);
        }
        self.reopen_unconfirmed(restart.old.finalized_losses);
        self.recovered += lost.saturating_sub(self.losses().lost);
        if absent > 0 {
            let kind = SequenceEventKind::Recovered {
                first: restart.first,
                count: u32::try_from(absent).unwrap_or(u32::MAX),
            };
            self.emit_event(now, kind, out);
        }
    }

    /// Makes the finalized losses of the jump unconfirmed again, because the newer sequence does not go on.
    pub(super) fn reopen_finalized_losses(&mut self) {
        if let Some(other) = &mut self.other
            && !other.is_older
        {
            let finalized_losses = std::mem::take(&mut other.finalized_losses);
            self.reopen_unconfirmed(finalized_losses);
        }
    }

    /// Lets the following datagrams confirm losses that had been finalized as unconfirmed.
    fn reopen_unconfirmed(&mut self, finalized_losses: u64) {
        self.never_confirmed = self.never_confirmed.saturating_sub(finalized_losses);
        self.balance -= i64::try_from(finalized_losses).unwrap_or(i64::MAX);
    }

    /// Records the other sequence as the latest to which the stream may return.
    fn record_alternation(&mut self, now: Nanos) {
        let Some(other) = &self.other else { return };
        let datagram = self.datagrams.wrapping_sub(1);
        self.alternation = Alternation {
            last: other.track.highest,
            datagram,
            seen: now,
            ..self.alternation
        };
    }

    /// Stops holding a number: it was a stray or, after a pause, late.
    pub(super) fn reject_held_number(&mut self, now: Nanos, out: &mut dyn Output) {
        let is_late = self.is_held_number_late();
        let Some(HeldNumber { seq, .. }) = self.held_number.take() else {
            return;
        };
        if is_late {
            let back = self.distance(seq, self.current.highest).unsigned_abs();
            self.observe_late(seq, back, now, out);
            return;
        }
        self.stray = Some((seq, self.datagrams));
        self.reordered += 1;
        if let Some(restart) = &mut self.pending_restart {
            // The stray is not one of the numbers since the restart.
            restart.began_at_datagram = restart.began_at_datagram.wrapping_add(1);
        }
        self.emit_event(now, SequenceEventKind::Stray(seq), out);
    }

    /// Returns true if a stray after which the stream counted `datagrams` may be recent enough to belong to the latest
    /// numbers. An older one does not: for example, a restarted reporter sends the first numbers again.
    pub(super) fn is_near_stray(&self, datagrams: u64) -> bool {
        self.datagrams.wrapping_sub(datagrams) <= u64::from(WINDOW)
    }

    /// Marks a stray as received in the sequence that turned out to be its own.
    fn fill_stray(&mut self) {
        let Some((stray, datagrams)) = self.stray.take() else {
            return;
        };
        let ahead = self.distance(stray, self.current.highest);
        let back = ahead.unsigned_abs();
        if !self.is_near_stray(datagrams) || !is_late(ahead) {
            return;
        }
        if back >= self.current.known {
            if self.current.extend_into_gap(stray, back) {
                self.recover();
            } else {
                self.current.extend(stray, back);
            }
            self.update_balance(1, 0);
        } else {
            self.current.window |= 1 << back;
        }
    }
}

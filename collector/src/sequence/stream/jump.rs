//! The two latest sequences of a stream: decides which of them a number belongs to, and whether a jump between them was an
//! outage, a restart, strays or a late batch. See [`crate::sequence`] for the algorithm.
//!
//! `current` is the sequence in use, `former` the one beside it (older or newer), and `left` the sequence before a restart,
//! to which the stream returns if the numbers since then turn out to be late.

use super::{Held, Stream, Turns};
use crate::event::{Nanos, Output, SequenceEventKind};
use crate::sequence::track::{Track, is_ahead, is_late, is_near, low_bits};
use crate::sequence::{FAR, FIRST_NUMBERS, PAUSE, SETTLE, STALLED, WINDOW};

/// At most this many numbers behind an older sequence may be strays rather than a restart.
const FEW: u32 = 16;
/// This many consecutive numbers are a restart, because late numbers arrive one by one.
const IN_ORDER: u32 = 4;
/// Datagrams that begin a sequence: the held one, and the one that confirms it.
const BEGINS: u64 = 2;

/// The sequence beside the current one. Kept until it has had no number for a window of datagrams, or the stream is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Former {
    pub(super) track: Track,
    /// Datagram count of the stream when the latest number of this sequence arrived.
    pub(super) at: u64,
    /// The newer sequence began after a silence, when no datagram of the older one was in flight.
    pub(super) after_silence: bool,
    /// This sequence began before the current one.
    pub(super) is_older: bool,
    /// The latest datagram of the stream advanced this sequence.
    pub(super) continued: bool,
    /// The newer sequence is ahead of the older one, so the numbers between are missing. Otherwise the reporter has
    /// restarted.
    pub(super) is_outage: bool,
    /// The newer sequence returns to the numbers before an earlier jump; at most this many between are missing.
    pub(super) returns: Option<u64>,
    /// Unconfirmed losses that the datagrams of the newer sequence do not confirm.
    pub(super) put_aside: u64,
    /// When the newer sequence began.
    pub(super) since: Nanos,
    /// The stream's reordered and duplicated counts before the newer sequence.
    reordered: u64,
    duplicated: u64,
}

/// The sequence before a restart. If the stream returns to it within [`PAUSE`], there was no restart: a second path delivered
/// many late numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    former: Former,
    /// Datagram count when the sequence after it began, and the first number of that sequence.
    began: u64,
    first: u32,
    /// Number of missing datagrams before the restart, and how many of them were unconfirmed.
    pub(super) absent: u64,
    pub(super) unconfirmed: u64,
    /// Missing numbers that may still arrive: the reporter has not restarted since it sent them.
    missing: u64,
    /// Values of [`Stream::refuted`] and of the balance before the restart.
    refuted: u64,
    balance: i64,
    /// Restarts since then; they count when the stream can no longer return.
    restarts: u32,
    /// Late numbers may arrive until this time. A silence extends it once (`put_off`).
    pub(super) until: Nanos,
    put_off: bool,
}

/// The sequence to which a number belongs.
pub(super) enum Place {
    Current,
    Former,
    /// Neither of the two.
    Elsewhere,
}

impl Left {
    /// Returns true if late numbers may still arrive.
    fn is_recent(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// Returns true if the sequence after it began where a restarted reporter begins.
    fn is_start(&self) -> bool {
        self.first < FIRST_NUMBERS
    }
}

impl Stream {
    /// Returns the sequence to which a number belongs.
    pub(super) fn place(&self, seq: u32, ahead: i32, paused: bool) -> Place {
        if self.is_next(seq, ahead) {
            return Place::Current;
        }
        let is_after_pause = paused || self.held.is_some_and(|held| held.is_after_pause());
        if is_late(ahead) && is_after_pause {
            return Place::Elsewhere;
        }
        let is_former = self.former.as_ref().is_some_and(|former| {
            // A number that the older sequence already has belongs to a new sequence: after a restart, or where one may
            // begin.
            let is_new = former.is_older
                && if former.is_outage {
                    seq < FIRST_NUMBERS
                } else {
                    !self.is_tentative()
                };
            let ahead = self.distance(seq, former.track.highest);
            is_near(ahead) && (!is_new || former.track.lacks(ahead))
        });
        let is_current =
            is_late(ahead) && (ahead.unsigned_abs() < self.current.known || self.is_closer_to_first(seq));
        match (is_current, is_former) {
            (true, _) => Place::Current,
            (false, true) => Place::Former,
            (false, false) => Place::Elsewhere,
        }
    }

    /// Returns true if a number continues the current sequence rather than the former one.
    pub(super) fn is_next(&self, seq: u32, ahead: i32) -> bool {
        is_ahead(ahead) && !self.is_closer_to_former(seq, ahead)
    }

    fn is_closer_to_former(&self, seq: u32, ahead: i32) -> bool {
        let Some(former) = &self.former else {
            return false;
        };
        let ahead_of_former = self.distance(seq, former.track.highest);
        (1..ahead).contains(&ahead_of_former)
            || self.is_tentative() && (1 - ahead..=0).contains(&ahead_of_former)
            || self.is_behind()
                && self.current.first >= FIRST_NUMBERS
                && former.track.is_missing(ahead_of_former)
    }

    /// Returns true if a number before the current sequence is closer to its start than to the former sequence.
    fn is_closer_to_first(&self, seq: u32) -> bool {
        let below = self.distance(self.current.first, seq);
        !matches!(&self.former, Some(former) if below > self.distance(seq, former.track.highest))
    }

    /// Returns true if the current sequence began behind an older one that has not ended.
    pub(super) fn is_behind(&self) -> bool {
        matches!(&self.former, Some(former) if former.is_older && !former.is_outage)
    }

    /// Returns true if the current sequence may be a few strays: it is short and behind an older one.
    pub(super) fn is_tentative(&self) -> bool {
        self.current.numbers <= FEW && self.current.next < IN_ORDER && self.is_behind()
    }

    /// Exchanges the current and the former sequence.
    pub(super) fn exchange(&mut self) {
        if let Some(mut former) = self.former.take() {
            std::mem::swap(&mut former.track, &mut self.current);
            former.is_older = !former.is_older;
            former.at = self.datagrams;
            self.former = Some(former);
        }
    }

    /// Processes a number of the former sequence. The second in a row makes it the current sequence again.
    pub(super) fn observe_former(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        let continued = self.former.as_ref().is_some_and(|former| former.continued);
        if matches!(&self.former, Some(former) if former.is_older && former.is_outage) && !self.is_tentative()
        {
            self.reordered += 1;
        }
        self.exchange();
        let ahead = self.distance(seq, self.current.highest);
        if ahead <= 0 {
            self.observe_late(seq, ahead.unsigned_abs(), now, out);
            self.exchange();
            return;
        }
        self.advance(seq, ahead.unsigned_abs(), now, out);
        if continued {
            self.refute(now, out);
            self.restore_put_aside();
            self.note_turn(now);
        } else {
            self.exchange();
            if let Some(former) = &mut self.former {
                former.continued = true;
            }
        }
    }

    /// Processes a number of neither sequence: holds it until a second one confirms it.
    pub(super) fn observe_elsewhere(&mut self, number: Held, now: Nanos, out: &mut dyn Output) {
        let Some(held) = &mut self.held else {
            self.held = Some(number);
            return;
        };
        held.repeated += u32::from(held.seq == number.seq);
        let held = *held;
        let apart = self.distance(number.seq, held.seq);
        if apart == 0 {
            self.observe_held_again(held, now, out);
        } else if self.are_missing(held.seq, number.seq) {
            // The numbers before a pause decide: the highest one was forged, or the clock was stepped.
            self.refute(now, out);
            let back = self.distance(self.current.highest, number.seq).unsigned_abs();
            self.observe_late(number.seq, back, now, out);
        } else if apart == 1 || is_near(apart) && number.silence < SETTLE {
            self.held = None;
            let silence = held.silence.max(number.silence);
            self.jump_to(Held { silence, ..held }, now, out);
            self.observe_near(number.seq, now, out);
            self.fill_stray();
        } else if self.is_gap(held.seq, self.current.highest)
            && self.is_gap(number.seq, held.seq)
            && !self.passes_former(held.seq, number.seq)
        {
            // Few numbers arrive: the held one is behind a gap and before this one, which may itself be a stray.
            self.held = Some(number);
            self.jump_to(held, now, out);
        } else {
            self.refute(now, out);
            self.stray = self.stray.filter(|_| number.silence < SETTLE);
            let silence = held.silence.max(number.silence);
            self.held = Some(Held { silence, ..number });
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
            self.note(now, SequenceEventKind::Late(seq), out);
        }
    }

    /// Processes a repetition of the held number. After [`STALLED`] repetitions the number is constant.
    fn observe_held_again(&mut self, held: Held, now: Nanos, out: &mut dyn Output) {
        if held.repeated < STALLED || self.has_advanced {
            self.duplicated += 1;
            self.note(now, SequenceEventKind::Duplicate(held.seq), out);
        } else {
            self.end_former(now, out);
            self.held = None;
            self.begin(held.seq);
        }
        if held.repeated >= STALLED {
            self.stalled = STALLED;
        }
    }

    /// Returns true if a number behind an older sequence was late like the few before it, because the next one continues that
    /// sequence.
    fn passes_former(&self, one: u32, next: u32) -> bool {
        self.is_tentative()
            && self.former.as_ref().is_some_and(|former| {
                let highest = former.track.highest;
                self.distance(one, highest) <= 0 && self.is_gap(next, highest)
            })
    }

    /// Returns true if `one` is missing in the current sequence, and `next` is missing too or repeats the highest.
    fn are_missing(&self, one: u32, next: u32) -> bool {
        let Track { highest, .. } = self.current;
        self.current.is_missing(self.distance(one, highest))
            && (next == highest || self.current.is_missing(self.distance(next, highest)))
    }

    /// Returns true if `seq` is ahead of `from` by a plausible gap, at most [`FAR`].
    fn is_gap(&self, seq: u32, from: u32) -> bool {
        (1..=FAR.cast_signed()).contains(&self.distance(seq, from))
    }

    /// Begins another sequence. The current one becomes the former one, unless it was a few strays.
    fn jump_to(&mut self, held: Held, now: Nanos, out: &mut dyn Output) {
        let seq = held.seq;
        let continues_former = matches!(&self.former, Some(former) if self.is_gap(seq, former.track.highest));
        if self.is_tentative() && (continues_former || !self.is_gap(seq, self.current.highest)) {
            self.exchange();
            self.restore_put_aside();
        }
        if let Some(former) = &self.former
            && self.may_reach(former, now)
            && self.distance(seq, former.track.highest) > 0
        {
            self.exchange();
        }
        self.end_former(now, out);
        if self.returns_to_left(held) {
            self.return_to_left(BEGINS, now, out);
            if is_near(self.distance(seq, self.current.highest)) {
                self.observe_near(seq, now, out);
                return;
            }
        } else if matches!(self.left, Some(left) if self.distance(seq, left.former.track.highest) >= 0) {
            self.confirm_restart(out);
        }
        let gap = self.distance(seq, self.current.highest);
        let is_far = gap > FAR.cast_signed();
        let is_outage = gap > 0 && seq >= if is_far { WINDOW } else { FIRST_NUMBERS };
        let returns = self.jump(seq);
        let put_aside = if is_outage && returns.is_none() {
            0
        } else {
            self.finalize_unconfirmed()
        };
        let track = std::mem::replace(&mut self.current, Track::new(seq, self.datagrams));
        self.former = Some(Former {
            track,
            at: self.datagrams,
            after_silence: held.silence >= SETTLE,
            is_older: true,
            continued: false,
            is_outage,
            returns,
            put_aside,
            since: now,
            reordered: self.reordered,
            duplicated: self.duplicated,
        });
        self.support(1, 0);
        self.note_turn(now);
        if held.is_after_pause() {
            // No number of the old sequence can arrive any more.
            self.end_former(now, out);
        }
    }

    /// Ends the former sequence if it can get no more numbers, unless the current one may be a few strays.
    pub(super) fn end_left(&mut self, silent: bool, now: Nanos, out: &mut dyn Output) {
        let is_left = self.former.as_ref().is_some_and(|former| {
            let is_passed = self.datagrams.wrapping_sub(former.at) > u64::from(WINDOW);
            silent || former.after_silence || is_passed && !self.may_reach(former, now)
        });
        if is_left && !self.is_tentative() {
            self.end_former(now, out);
        }
    }

    /// Returns true if the older sequence may be a second, slower path that will end where the newer one began.
    fn may_reach(&self, former: &Former, now: Nanos) -> bool {
        !former.is_older
            && former.is_outage
            && former.track.numbers > FEW
            && self.is_gap(former.track.highest, self.current.highest)
            && now.saturating_sub(former.since) < PAUSE
    }

    /// Ends the former sequence. If it is the older one, decides what the jump to the current one was; otherwise it was a few
    /// strays.
    pub(super) fn end_former(&mut self, now: Nanos, out: &mut dyn Output) {
        let Some(mut former) = self.former.take() else {
            return;
        };
        let highest = former.track.highest;
        let gap = self.distance(self.current.first, highest);
        if !former.is_older || former.track.alone && gap > FAR.cast_signed() {
            self.reordered += u64::from(former.track.numbers);
            self.note(now, SequenceEventKind::Stray(highest), out);
            self.lose_shared(now, out);
            return;
        }
        let missing = former.track.write_off() & !self.shared(highest, self.current.first, former.is_outage);
        self.lose_all(missing, highest, now, out);
        if !former.is_outage {
            self.begin_restart(former, out);
            // Missing numbers of the new sequence that have already left its window.
            let Track { first, highest, .. } = self.current;
            let span = self.distance(highest, first).unsigned_abs() + 1;
            let in_window = self.current.window.count_zeros() + self.current.written_off.count_ones();
            let left = span.saturating_sub(self.current.numbers + in_window);
            if left > 0 {
                self.lose(first, left, now, out);
            }
        } else if gap > 1 {
            let between = gap.unsigned_abs() - 1;
            let first = self.after(highest, 1);
            self.current.gap = between;
            self.lose(first, between, now, out);
            if let Some(most) = former.returns {
                let not_missing = u64::from(between).saturating_sub(most);
                self.refuted += not_missing;
                self.balance = self
                    .balance
                    .saturating_add(i64::try_from(not_missing).unwrap_or(i64::MAX));
            }
            self.note(
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
    fn shared(&self, highest: u32, first: u32, is_outage: bool) -> u128 {
        match u32::try_from(self.distance(highest, first)) {
            Ok(above) if is_outage => low_bits(above.saturating_add(1)),
            _ => 0,
        }
    }

    /// Returns that mask for the current sequence, if the former sequence is the newer one.
    pub(super) fn shared_with_newer(&self) -> u128 {
        match &self.former {
            Some(former) if !former.is_older => {
                self.shared(self.current.highest, former.track.first, former.is_outage)
            }
            _ => 0,
        }
    }

    /// Counts numbers as lost that might have arrived in the newer sequence, which turned out to be a few strays.
    fn lose_shared(&mut self, now: Nanos, out: &mut dyn Output) {
        let count = std::mem::take(&mut self.current.shared);
        if count > 0 {
            self.lose(self.current.first, count, now, out);
        }
    }

    /// Treats the current sequence as that of a restarted reporter, unless the stream returns to the former one.
    fn begin_restart(&mut self, former: Former, out: &mut dyn Output) {
        let is_behind_left = self.may_return()
            && self.left.is_some_and(|left| {
                left.is_recent(self.last_seen)
                    && self.distance(former.track.highest, left.former.track.highest) < 0
            });
        if let Some(left) = self.left.as_mut().filter(|_| is_behind_left) {
            left.restarts += 1;
            return;
        }
        self.confirm_restart(out);
        self.left = Some(Left {
            former,
            began: self.current.began,
            first: self.current.first,
            absent: self.absent,
            unconfirmed: self.losses().1,
            missing: self.absent.saturating_sub(self.absent_before),
            refuted: self.refuted,
            balance: self.balance_after(self.datagrams),
            restarts: 1,
            until: former.since.saturating_add(PAUSE),
            put_off: false,
        });
        if former.after_silence {
            self.confirm_restart(out);
        }
    }

    /// Counts the pending restarts: the stream does not return to the sequence before them.
    pub(super) fn confirm_restart(&mut self, out: &mut dyn Output) {
        let Some(left) = self.left.take() else { return };
        self.absent_before = left.absent;
        for _ in 0..left.restarts {
            self.restarts += 1;
            self.note(left.former.since, SequenceEventKind::Restart(left.first), out);
        }
    }

    /// Counts a pending restart when the stream has not returned within [`PAUSE`]. If all numbers since then may be late, a
    /// silence decides nothing: the numbers after it do.
    pub(super) fn end_left_sequence(&mut self, now: Nanos, out: &mut dyn Output) {
        let is_over = self.left.is_some_and(|left| {
            let until = if self.may_prove_late(&left) {
                self.last_seen
            } else {
                now
            };
            !left.is_recent(until)
        });
        if is_over {
            self.confirm_restart(out);
        }
    }

    /// Extends the deadline once, so that the numbers after a silence decide whether the numbers before it were late.
    pub(super) fn put_off_restart(&mut self, now: Nanos) {
        if let Some(left) = self.left
            && left.is_recent(self.last_seen)
            && !left.is_recent(now)
            && !left.put_off
            && self.may_prove_late(&left)
        {
            self.left = Some(Left {
                until: now.saturating_add(PAUSE),
                put_off: true,
                ..left
            });
        }
    }

    /// Decides a pending restart at the end of the input. Numbers that may all be late are no restart.
    pub(super) fn decide_restart(&mut self, now: Nanos, out: &mut dyn Output) {
        if self.left.is_some_and(|left| self.may_be_late(&left)) {
            self.return_to_left(0, now, out);
        } else {
            self.confirm_restart(out);
        }
    }

    /// Returns the sequence before an undecided restart: the sequence after it did not begin where a restarted reporter does,
    /// and all its numbers may be late.
    pub(super) fn undecided_left(&self) -> Option<Left> {
        self.left
            .filter(|left| !left.is_start() && self.may_be_late(left))
    }

    /// Returns how many numbers count as missing since an undecided restart.
    pub(in crate::sequence) fn undecided(&self) -> u64 {
        self.undecided_left()
            .map_or(0, |left| self.absent.saturating_sub(left.absent))
    }

    /// Returns true if all numbers since a restart may be late: they did not begin where a restarted reporter does, or ended
    /// where the previous sequence had begun; none arrived too late for that; they lie before its end; and there are not
    /// clearly more of them than were missing.
    fn may_be_late(&self, left: &Left) -> bool {
        (!left.is_start() || self.ends_at_first(left))
            && left.is_recent(self.last_seen)
            && self.distance(self.current.highest, left.former.track.highest) < 0
            && !self.are_too_many(left)
    }

    /// Returns true if numbers after a silence may still show that those since a restart were late, because the previous
    /// sequence goes on. If they began where a restarted reporter does, no more of them may have arrived than were missing.
    fn may_prove_late(&self, left: &Left) -> bool {
        self.may_be_late(left)
            || left.is_recent(self.last_seen)
                && self.distance(self.current.highest, left.former.track.highest) < 0
                && self.since_restart(left) <= left.missing
    }

    /// Returns true if the numbers since a restart ended just before the first number of the sequence before it.
    fn ends_at_first(&self, left: &Left) -> bool {
        let behind = self.distance(left.former.track.first, self.current.highest);
        (1..=FEW.cast_signed()).contains(&behind)
    }

    /// Returns the count of numbers since a restart, without duplicates and without the two that began the sequence.
    fn since_restart(&self, left: &Left) -> u64 {
        self.datagrams
            .wrapping_sub(left.began)
            .saturating_sub(self.duplicated - left.former.duplicated)
    }

    /// Returns true if clearly more numbers arrived since a restart than were missing before, so that not all were late.
    fn are_too_many(&self, left: &Left) -> bool {
        self.since_restart(left) > left.missing + u64::from(FEW)
    }

    /// Decides whether the numbers since a restart were late, when a number that is `by` ahead reaches the end of the
    /// sequence before it. If there are too many of them, and they are in order up to there, the reporter restarted. If none
    /// of them is missing, either decision hides no loss.
    pub(super) fn end_at_left(&mut self, by: u32, now: Nanos, out: &mut dyn Output) {
        let is_restart = by <= IN_ORDER
            && self.left.is_some_and(|left| {
                let misses = self.absent > left.absent || self.current.window != u128::MAX;
                misses && self.are_too_many(&left)
            });
        if is_restart {
            self.confirm_restart(out);
        } else {
            self.return_to_left(1, now, out);
        }
    }

    /// Returns true if the sequence after a restart did not begin where a restarted reporter does, so it may reach the
    /// previous one.
    pub(super) fn may_return(&self) -> bool {
        self.left.is_some_and(|left| !left.is_start())
    }

    /// Returns true if a jump to this number shows that the sequence before a restart goes on: the number is near the end of
    /// that sequence or ahead of it, and the sequence since then ended where that one had begun, or began where no reporter
    /// does.
    fn returns_to_left(&self, held: Held) -> bool {
        self.left.is_some_and(|left| {
            let Track { highest, .. } = left.former.track;
            let ahead = self.distance(held.seq, highest);
            let continues = if left.is_start() && !self.ends_at_first(&left) {
                ahead.unsigned_abs() <= FEW
            } else {
                is_near(ahead) || self.is_gap(held.seq, highest)
            };
            let is_recent = left.is_recent(self.last_seen) || left.put_off && held.is_after_pause();
            is_recent && self.distance(self.current.highest, highest) < 0 && continues
        })
    }

    /// Returns true if a number ahead of the current sequence is closer to the one before a restart, so that all numbers
    /// since then were late.
    pub(super) fn reaches_left(&self, seq: u32, ahead: i32) -> bool {
        self.left.is_some_and(|left| {
            let ahead_of_left = self.distance(seq, left.former.track.highest);
            let is_closer = is_ahead(ahead_of_left) || (1 - ahead..=0).contains(&ahead_of_left);
            is_closer && !left.is_start() && left.is_recent(self.last_seen)
        })
    }

    /// Returns the count of numbers from the first after a restart to the highest, if all of them lie in the gap before the
    /// old sequence; otherwise 0.
    fn fills(&self, left: &Left) -> u64 {
        let Track { first, gap, .. } = left.former.track;
        let [begin, end] = [left.first, self.current.highest].map(|seq| self.distance(first, seq));
        if i64::from(begin) > i64::from(gap) || end <= 0 || begin < end {
            return 0;
        }
        u64::from(begin.abs_diff(end)) + 1
    }

    /// Makes the sequence before a restart current again: all numbers since then were late, so none of them is missing. The
    /// latest `others` datagrams belong to neither sequence.
    fn return_to_left(&mut self, others: u64, now: Nanos, out: &mut dyn Output) {
        let lost = self.losses().0;
        let Some(left) = self.left.take() else { return };
        let late = (self.since_restart(&left) + BEGINS).saturating_sub(others);
        self.reordered = self.reordered.max(left.former.reordered + late);
        // Late numbers are not missing twice. Those that fill the gap before the old sequence had been counted as lost.
        let filled = self.fills(&left).min(late);
        let absent = self.absent.saturating_sub(left.absent) + filled;
        self.current = left.former.track;
        self.current.gap -= u32::try_from(filled).unwrap_or(u32::MAX);
        self.absent -= absent;
        if self.refuted == left.refuted {
            self.balance += i64::try_from(absent).unwrap_or(i64::MAX);
        } else {
            // Some of the late numbers have become unconfirmed for good; restore the values before the restart.
            self.support(0, 0);
            self.refuted = left.refuted;
            self.balance = left.balance + i64::try_from(filled).unwrap_or(i64::MAX);
        }
        self.take_up(left.former.put_aside);
        self.recovered += lost.saturating_sub(self.losses().0);
        if absent > 0 {
            let kind = SequenceEventKind::Recovered {
                first: left.first,
                count: u32::try_from(absent).unwrap_or(u32::MAX),
            };
            self.note(now, kind, out);
        }
    }

    /// Restores the losses that were put aside, because the newer sequence does not go on.
    pub(super) fn restore_put_aside(&mut self) {
        if let Some(former) = &mut self.former
            && !former.is_older
        {
            let put_aside = std::mem::take(&mut former.put_aside);
            self.take_up(put_aside);
        }
    }

    /// Lets the following datagrams confirm losses that had been put aside.
    fn take_up(&mut self, put_aside: u64) {
        self.refuted = self.refuted.saturating_sub(put_aside);
        self.balance -= i64::try_from(put_aside).unwrap_or(i64::MAX);
    }

    /// Records the former sequence as the latest to which the stream may return.
    fn note_turn(&mut self, now: Nanos) {
        let Some(former) = &self.former else { return };
        let at = self.datagrams.wrapping_sub(1);
        self.turns = Turns {
            last: former.track.highest,
            at,
            seen: now,
            ..self.turns
        };
    }

    /// Drops the held number: it was a stray or, after a pause, late.
    pub(super) fn refute(&mut self, now: Nanos, out: &mut dyn Output) {
        let is_late = self.is_held_late();
        let Some(Held { seq, .. }) = self.held.take() else {
            return;
        };
        if is_late {
            let back = self.distance(seq, self.current.highest).unsigned_abs();
            self.observe_late(seq, back, now, out);
            return;
        }
        self.stray = Some((seq, self.datagrams));
        self.reordered += 1;
        if let Some(left) = &mut self.left {
            // The stray is not one of the numbers since the restart.
            left.began = left.began.wrapping_add(1);
        }
        self.note(now, SequenceEventKind::Stray(seq), out);
    }

    /// Returns true if a stray after which the stream counted `at` datagrams may be recent enough to belong to the latest
    /// numbers. An older one does not: for example, a restarted reporter sends the first numbers again.
    pub(super) fn is_near_stray(&self, at: u64) -> bool {
        self.datagrams.wrapping_sub(at) <= u64::from(WINDOW)
    }

    /// Marks a stray as received in the sequence that turned out to be its own.
    fn fill_stray(&mut self) {
        let Some((stray, at)) = self.stray.take() else {
            return;
        };
        let ahead = self.distance(stray, self.current.highest);
        let back = ahead.unsigned_abs();
        if !self.is_near_stray(at) || !is_late(ahead) {
            return;
        }
        if back >= self.current.known {
            if self.current.extend_into_gap(stray, back) {
                self.recover();
            } else {
                self.current.extend(stray, back);
            }
            self.support(1, 0);
        } else {
            self.current.window |= 1 << back;
        }
    }
}

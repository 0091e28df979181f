//! One stream: the window up to its highest number, and its counters.

use super::{FAR, LOSSES_PER_DATAGRAM, MAX_PRIOR_LOSSES, PAUSE, STALLED, WINDOW};
use crate::event::{Loss, Nanos, Output, SequenceEvent, SequenceEventKind};
use crate::sequence::StreamView;
use crate::stream::{StreamId, pack};

/// The nodes whose reports 0.5 come from the address of a stream: only some forms of these reports name their node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Nodes {
    /// The first one named. Its reports are in the stream of the address, those of others in streams of their own.
    pub(super) first: Option<u32>,
    /// Another node was named.
    pub(super) others: bool,
    /// A report named none.
    pub(super) unnamed: bool,
    /// Reports of several nodes are in one stream: it is not countable.
    pub(super) mixed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// The identity [`pack`]ed into a number, if there is a node id.
    pub(super) packed: u64,
    /// Number of bits, of 32, that the sequence space does not use.
    unused: u8,
    /// Its number advances, the last datagram was in sequence, and there is no suspect.
    pub(super) steady: bool,
    pub(super) window: u128,
    pub(super) highest: u32,
    /// How many numbers up to the highest are accounted for, at most [`WINDOW`].
    pub(super) known: u32,
    pub(super) suspect: Option<u32>,
    pub(super) stalled: u32,
    /// Repetitions, among `stalled` of a number that has not advanced yet, that followed a pause.
    pub(super) resumed: u32,
    pub(super) advancing: bool,
    /// The nodes that share the stream.
    pub(super) nodes: Nodes,
    /// The highest number before the latest jump.
    left: Option<u32>,
    pub(super) datagrams: u64,
    /// Numbers that did not arrive, confirmed or not.
    absent: u64,
    /// Those of them that remain unconfirmed after a restart or a return.
    refuted: u64,
    /// Supported losses minus counted losses; negative if more were counted than are supported. Datagrams
    /// after the first `supported` are not included yet: [`Stream::balance_after`] adds them.
    balance: i64,
    supported: u64,
    /// The highest number before the latest jump away from numbers with full support.
    origin: u32,
    pub(super) reordered: u64,
    pub(super) duplicated: u64,
    restarts: u64,
    /// Lost, reordered, duplicated as last reported.
    reported: [u64; 3],
    pub(super) last_seen: Nanos,
}

impl Stream {
    pub(super) fn new(id: StreamId, seq: u32, now: Nanos) -> Self {
        Self {
            id,
            packed: id.global_node().map_or(u64::MAX, |node| pack(id.version, id.hw_id, id.listener, node)),
            unused: (32 - id.bits()) as u8,
            steady: false,
            window: u128::MAX,
            highest: seq,
            known: 1,
            suspect: None,
            stalled: 0,
            resumed: 0,
            advancing: false,
            nodes: Nodes::default(),
            left: None,
            datagrams: 1,
            absent: 0,
            refuted: 0,
            balance: 0,
            supported: 1,
            origin: seq,
            reordered: 0,
            duplicated: 0,
            restarts: 0,
            reported: [0; 3],
            last_seen: now,
        }
    }

    /// The distance from `from` to `seq`; negative if `seq` is before it.
    #[inline]
    fn distance(&self, seq: u32, from: u32) -> i32 {
        // At most 10; the mask avoids an overflow check of the shift.
        let unused = u32::from(self.unused) & 31;
        (seq.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    #[inline]
    pub(super) fn before(&self, seq: u32, by: u32) -> u32 {
        seq.wrapping_sub(by) & (u32::MAX >> (32 - self.id.bits()))
    }

    fn after(&self, seq: u32, by: u32) -> u32 {
        self.before(seq, by.wrapping_neg())
    }

    #[inline(always)]
    pub(super) fn observe(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        self.datagrams = self.datagrams.wrapping_add(1);
        let ahead = self.distance(seq, self.highest);
        // The steady state: the next number, no missing number leaves the window, no suspect.
        if ahead == 1 && self.steady && self.window >> 127 == 1 {
            self.last_seen = now;
            self.highest = seq;
            self.window = self.window << 1 | 1;
            self.known = self.known.wrapping_add(1).min(WINDOW);
        } else {
            self.observe_anomaly(seq, ahead, now, out);
            self.steady = self.advancing && self.stalled == 0 && self.suspect.is_none() && !self.nodes.mixed;
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_anomaly(&mut self, seq: u32, ahead: i32, now: Nanos, out: &mut dyn Output) {
        self.support(0, 1);
        let paused = self.is_pause(now);
        self.last_seen = now;
        if self.nodes.unnamed && self.is_of_another_sequence(seq, ahead) {
            self.mark_mixed();
        }
        if self.nodes.mixed {
            return;
        }
        if ahead == 0 {
            self.repeat(seq, paused, now, out);
            return;
        }
        if !self.begin_to_advance(seq, now, out) {
            return;
        }
        let distance = ahead.unsigned_abs();
        let is_start = ahead < 0 || distance > FAR && seq < WINDOW;
        if paused && is_start {
            self.settle_suspect(now, out);
            self.restart(seq, now, out);
        } else if distance > FAR || (ahead < 0 && distance >= WINDOW) {
            self.observe_far(seq, now, out);
        } else if ahead > 0 {
            self.settle_suspect(now, out);
            self.advance(seq, distance, now, out);
        } else {
            self.observe_late(seq, distance, now, out);
        }
    }

    /// Whether the stream was silent for so long that numbers of before cannot arrive any more.
    pub(super) fn is_pause(&self, now: Nanos) -> bool {
        now.saturating_sub(self.last_seen) >= PAUSE
    }

    /// Whether a number continues the sequence that the latest jump has left: then two nodes send, by turns.
    fn is_of_another_sequence(&self, seq: u32, ahead: i32) -> bool {
        ahead.unsigned_abs() > WINDOW
            && self.left.is_some_and(|left| (1..=WINDOW.cast_signed()).contains(&self.distance(seq, left)))
    }

    /// Ends counting: the numbers are those of several nodes.
    pub(super) fn mark_mixed(&mut self) {
        self.nodes.mixed = true;
        self.steady = false;
        self.begin(self.highest);
    }

    /// The number advances. `false`: it was constant until now, and counting starts here.
    fn begin_to_advance(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) -> bool {
        let stalled = std::mem::take(&mut self.stalled);
        let resumed = std::mem::take(&mut self.resumed);
        if self.advancing {
            return true;
        }
        self.advancing = true;
        if stalled < STALLED {
            // A few repetitions of the first number were duplicates, or restarts after a pause.
            self.duplicated += u64::from(stalled - resumed);
            self.restarts += u64::from(resumed);
            if resumed > 0 {
                self.note(now, SequenceEventKind::Restart(self.highest), out);
            }
            return true;
        }
        self.begin(seq);
        false
    }

    fn begin(&mut self, seq: u32) {
        self.window = u128::MAX;
        self.highest = seq;
        self.known = 1;
        self.suspect = None;
    }

    fn repeat(&mut self, seq: u32, paused: bool, now: Nanos, out: &mut dyn Output) {
        // A constant number may repeat without limit.
        self.stalled = self.stalled.saturating_add(1);
        if !self.advancing {
            self.resumed = self.resumed.saturating_add(u32::from(paused));
            return;
        }
        if paused {
            self.settle_suspect(now, out);
            self.restart(seq, now, out);
        } else {
            self.duplicated += 1;
            self.note(now, SequenceEventKind::Duplicate(seq), out);
        }
        if self.stalled >= STALLED {
            self.advancing = false;
        }
    }

    fn advance(&mut self, seq: u32, by: u32, now: Nanos, out: &mut dyn Output) {
        let returns = by > WINDOW && self.jump(seq);
        if by > WINDOW {
            self.left = Some(self.highest);
        }
        self.give_up(by.min(WINDOW), now, out);
        if by > WINDOW {
            let first = self.before(seq, by - 1);
            self.lose(first, by - WINDOW, now, out);
        }
        if returns {
            self.finalize_unconfirmed();
        }
        self.window = if by >= WINDOW { 1 } else { self.window << by | 1 };
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = seq;
        self.support(1, 0);
        if by > 1 {
            self.note(now, SequenceEventKind::Gap { first: self.before(seq, by - 1), count: by - 1 }, out);
        }
    }

    /// Counts the missing ones of the oldest `count` numbers of the window as lost.
    pub(super) fn give_up(&mut self, count: u32, now: Nanos, out: &mut dyn Output) {
        let mut missing = !self.window;
        if count < WINDOW {
            missing &= !(u128::MAX >> count);
        }
        // Runs of missing numbers, the oldest first.
        while missing != 0 {
            let oldest = WINDOW - 1 - missing.leading_zeros();
            let run = (missing << missing.leading_zeros()).leading_ones();
            self.lose(self.before(self.highest, oldest), run, now, out);
            missing &= !(mask(run) << (oldest + 1 - run));
        }
    }

    fn lose(&mut self, first: u32, count: u32, now: Nanos, out: &mut dyn Output) {
        self.absent += u64::from(count);
        self.balance -= i64::from(count);
        self.note(now, SequenceEventKind::Lost { first, count }, out);
    }

    fn observe_late(&mut self, seq: u32, back: u32, now: Nanos, out: &mut dyn Output) {
        if back >= self.known {
            self.reordered += 1;
            self.note(now, SequenceEventKind::Late(seq), out);
        } else if self.window >> back & 1 == 1 {
            self.duplicated += 1;
            self.note(now, SequenceEventKind::Duplicate(seq), out);
        } else {
            self.window |= 1 << back;
            self.reordered += 1;
            self.support(1, 0);
            self.note(now, SequenceEventKind::Late(seq), out);
        }
    }

    fn observe_far(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        let apart = self.suspect.map(|suspect| (suspect, self.distance(seq, suspect)));
        match apart {
            Some((_, 0)) => {
                self.duplicated += 1;
                self.note(now, SequenceEventKind::Duplicate(seq), out);
            }
            Some((suspect, ahead @ 1..)) if ahead.unsigned_abs() <= WINDOW => {
                self.accept_suspects(suspect, ahead.unsigned_abs(), now, out);
            }
            // The first two numbers arrived in reverse.
            Some((_, behind)) if behind < 0 && behind.unsigned_abs() < WINDOW => {
                self.accept_suspects(seq, behind.unsigned_abs(), now, out);
                self.reordered += 1;
                self.note(now, SequenceEventKind::Late(seq), out);
            }
            _ => {
                self.settle_suspect(now, out);
                self.suspect = Some(seq);
            }
        }
    }

    /// Accepts two numbers that are far from the highest one and confirm each other: the lower, and the one that is `apart` numbers
    /// ahead of it.
    fn accept_suspects(&mut self, lower: u32, apart: u32, now: Nanos, out: &mut dyn Output) {
        match self.distance(lower, self.highest) {
            gap if gap > 0 && lower >= WINDOW => {
                self.suspect = None;
                self.advance(lower, gap.unsigned_abs(), now, out);
            }
            _ => self.restart(lower, now, out),
        }
        self.advance(self.after(lower, apart), apart, now, out);
    }

    fn settle_suspect(&mut self, now: Nanos, out: &mut dyn Output) {
        if let Some(stray) = self.suspect.take() {
            self.reordered += 1;
            self.note(now, SequenceEventKind::Stray(stray), out);
        }
    }

    fn restart(&mut self, seq: u32, now: Nanos, out: &mut dyn Output) {
        self.jump(seq);
        self.give_up(WINDOW, now, out);
        self.finalize_unconfirmed();
        self.left = Some(self.highest);
        self.begin(seq);
        self.restarts += 1;
        self.note(now, SequenceEventKind::Restart(seq), out);
    }

    /// Counts all missing numbers as lost.
    pub(super) fn settle(&mut self, now: Nanos, out: &mut dyn Output) {
        self.settle_suspect(now, out);
        if self.window != u128::MAX {
            self.support(0, 0);
            self.give_up(WINDOW, now, out);
            self.window = u128::MAX;
            self.known = 1;
        }
    }

    /// The field `balance` after this many datagrams, including those that the fast path has received since.
    fn balance_after(&self, datagrams: u64) -> i64 {
        let steady = i64::try_from(datagrams.wrapping_sub(self.supported)).unwrap_or(i64::MAX);
        self.balance.saturating_add(steady.saturating_mul(LOSSES_PER_DATAGRAM)).min(MAX_PRIOR_LOSSES)
    }

    /// Updates the balance: datagrams since the last update were in sequence, except the latest `but`; `more` datagrams
    /// that were not in sequence are accepted as well.
    pub(super) fn support(&mut self, more: u64, but: u64) {
        let balance = self.balance_after(self.datagrams.wrapping_sub(but).wrapping_add(more));
        (self.balance, self.supported) = (balance, self.datagrams);
    }

    /// Records a jump from the highest number to this one. `true`: it returns to the numbers before an earlier jump,
    /// so nothing between is missing.
    fn jump(&mut self, seq: u32) -> bool {
        if self.balance >= MAX_PRIOR_LOSSES {
            self.origin = self.highest;
            return false;
        }
        let range = -WINDOW.cast_signed()..=FAR.cast_signed();
        let continues = |seq| range.contains(&self.distance(seq, self.origin));
        continues(seq) && !continues(self.highest)
    }

    /// Makes unconfirmed losses final: the following datagrams do not continue the numbers that would confirm them.
    fn finalize_unconfirmed(&mut self) {
        self.refuted += self.balance.min(0).unsigned_abs();
        self.balance = 0;
    }

    /// Lost, and unconfirmed.
    fn losses(&self) -> (u64, u64) {
        let unconfirmed = self.refuted + self.balance_after(self.datagrams).min(0).unsigned_abs();
        (self.absent - unconfirmed, unconfirmed)
    }

    /// Reports the counts since the last report.
    pub(super) fn report(&mut self, now: Nanos, out: &mut dyn Output) -> Option<Loss> {
        let counted = [self.losses().0, self.reordered, self.duplicated];
        if counted == self.reported || !self.is_countable() {
            return None;
        }
        let loss = Loss {
            ts: now,
            node: self.shown_id().node,
            source: self.id.source,
            hw_id: self.id.hw_id,
            lost: counted[0] - self.reported[0],
            reordered: counted[1] - self.reported[1],
            duplicated: counted[2] - self.reported[2],
        };
        self.reported = counted;
        out.loss(&loss);
        Some(loss)
    }

    fn note(&self, ts: Nanos, kind: SequenceEventKind, out: &mut dyn Output) {
        out.sequence(&SequenceEvent { ts, stream: self.shown_id(), kind });
    }

    fn is_countable(&self) -> bool {
        self.advancing && !self.nodes.mixed
    }

    /// The identity, with the node that all reports of the stream named.
    fn shown_id(&self) -> StreamId {
        let named = self.nodes.first.filter(|_| !self.nodes.unnamed && !self.nodes.mixed);
        StreamId { node: self.id.node.or(named), ..self.id }
    }

    pub(super) fn view(&self) -> StreamView {
        let (lost, unconfirmed) = self.losses();
        StreamView {
            id: self.shown_id(),
            datagrams: self.datagrams,
            lost,
            unconfirmed,
            reordered: self.reordered,
            duplicated: self.duplicated,
            restarts: self.restarts,
            countable: self.is_countable(),
            mixed: self.nodes.mixed,
            missing: self.window.count_zeros(),
            last_seen: self.last_seen,
        }
    }
}

pub(super) fn mask(bits: u32) -> u128 {
    if bits >= WINDOW { u128::MAX } else { (1 << bits) - 1 }
}

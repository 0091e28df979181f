//! One sequence of a stream: the window up to its highest number; and where a stream was before.

use super::WINDOW;

/// One of the two latest sequences of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Track {
    /// One bit for each of the numbers up to the highest: received, counted as lost, or before the first.
    pub(super) window: u128,
    /// Those of them that did not arrive and are counted as lost, because the stream was silent.
    pub(super) written_off: u128,
    pub(super) highest: u32,
    /// The count of numbers up to the highest that are accounted for, at most [`WINDOW`].
    pub(super) known: u32,
    pub(super) first: u32,
    /// The count of different numbers received, correct while there is a former sequence.
    pub(super) numbers: u32,
    /// The count of those that were exactly one more than the highest before.
    pub(super) next: u32,
    /// The place in the stream of the datagram that began it.
    pub(super) began: u64,
    /// The count of numbers before the first that are counted as lost.
    pub(super) gap: u32,
    /// The count of missing numbers that have left the window, and may have arrived in a newer sequence.
    pub(super) shared: u32,
    /// Only the first number of the stream has been received.
    pub(super) alone: bool,
}

impl Track {
    /// A sequence that begins with `seq`, the number of datagram `began` of the stream.
    pub(super) fn new(seq: u32, began: u64) -> Self {
        Self {
            window: u128::MAX,
            written_off: 0,
            highest: seq,
            known: 1,
            first: seq,
            numbers: 1,
            next: 0,
            began,
            gap: 0,
            shared: 0,
            alone: false,
        }
    }

    /// Whether the number at this distance from the highest one is in the window and has not arrived.
    pub(super) fn is_missing(&self, ahead: i32) -> bool {
        is_late(ahead) && (!self.window | self.written_off) >> ahead.unsigned_abs() & 1 == 1
    }

    /// Whether the number at this distance from the highest one is near it and has not arrived.
    pub(super) fn lacks(&self, ahead: i32) -> bool {
        is_ahead(ahead) || self.is_missing(ahead)
    }

    /// Makes `seq`, which is `by` ahead, the highest number.
    pub(super) fn advance(&mut self, seq: u32, by: u32) {
        self.window = self.window.checked_shl(by).unwrap_or(0) | 1;
        self.written_off = self.written_off.checked_shl(by).unwrap_or(0);
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = seq;
        self.numbers = self.numbers.saturating_add(1);
        self.next = self.next.saturating_add(u32::from(by == 1));
        self.alone = false;
    }

    /// Makes `last`, which follows after `by` numbers that have all arrived, the highest number.
    pub(super) fn advance_all(&mut self, last: u32, by: u32) {
        self.window = self.window.checked_shl(by).unwrap_or(0) | low_bits(by);
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = last;
    }

    /// Lets the sequence begin earlier, with a number that lies in the window.
    pub(super) fn extend(&mut self, seq: u32, back: u32) {
        self.window &= !(low_bits(back - self.known) << self.known);
        self.known = back + 1;
        self.first = seq;
        self.numbers = self.numbers.saturating_add(1);
    }

    /// Lets the sequence begin earlier, with a number of the gap before it; those between are counted as lost already. `false`, and nothing
    /// done, if the number is not in the gap. It lies in the window, and before the first.
    pub(super) fn extend_into_gap(&mut self, seq: u32, back: u32) -> bool {
        let by = back + 1 - self.known;
        if by > self.gap {
            return false;
        }
        self.written_off |= low_bits(by - 1) << self.known;
        self.gap -= by;
        self.known = back + 1;
        self.first = seq;
        self.numbers = self.numbers.saturating_add(1);
        true
    }

    /// Marks the missing numbers as counted as lost, and returns them: one bit each.
    pub(super) fn write_off(&mut self) -> u128 {
        let missing = !self.window;
        self.window = u128::MAX;
        self.written_off |= missing;
        missing
    }
}

/// Where a stream was before its jumps: the highest number of the latest sequence it left, for each magnitude of the count of
/// datagrams in it. So a few forged datagrams cannot displace a long sequence.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Origins {
    highest: [Option<u32>; 16],
}

impl Origins {
    /// The magnitude of a count: two bits each.
    fn magnitude(&self, datagrams: u64) -> usize {
        (datagrams.max(1).ilog2() as usize / 2).min(self.highest.len() - 1)
    }

    /// Adds a sequence that the stream leaves.
    pub(super) fn add(&mut self, highest: u32, datagrams: u64) {
        self.highest[self.magnitude(datagrams)] = Some(highest);
    }

    /// Returns the ends of the sequences that had clearly more than this number of datagrams.
    pub(super) fn longer_than(&self, datagrams: u64) -> impl Iterator<Item = u32> {
        let longer = self.highest.iter().skip(self.magnitude(datagrams) + 1);
        longer.flatten().copied()
    }
}

/// Whether a number at this distance from the highest one lies in the window.
pub(super) fn is_late(ahead: i32) -> bool {
    (1 - WINDOW.cast_signed()..=0).contains(&ahead)
}

/// Whether two numbers at this distance are at most a window apart.
pub(super) fn is_near(apart: i32) -> bool {
    is_late(apart) || is_ahead(apart)
}

/// Whether a number at this distance from the highest one is ahead of it by at most a window.
pub(super) fn is_ahead(ahead: i32) -> bool {
    (1..=WINDOW.cast_signed()).contains(&ahead)
}

pub(super) fn low_bits(bits: u32) -> u128 {
    if bits >= WINDOW {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}

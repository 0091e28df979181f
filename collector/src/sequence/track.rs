//! The window of one sequence of numbers ([`Track`]), and the ends of the sequences that a stream has left ([`Origins`]).

use super::WINDOW;

/// One of the two latest sequences of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Track {
    /// One bit per number, bit 0 for the highest. 1: received, counted as lost, or before the first.
    pub(super) window: u128,
    /// The numbers in `window` that did not arrive and were counted as lost during a silence.
    pub(super) written_off: u128,
    pub(super) highest: u32,
    /// Count of numbers up to the highest that are accounted for, at most [`WINDOW`].
    pub(super) known: u32,
    pub(super) first: u32,
    /// Count of different numbers received; only maintained while there is another sequence.
    pub(super) received_count: u32,
    /// Count of the numbers that were exactly one more than the highest before them.
    pub(super) in_sequence_count: u32,
    /// Datagram count of the stream when the sequence began.
    pub(super) began_at_datagram: u64,
    /// Count of numbers before the first that are counted as lost.
    pub(super) gap: u32,
    /// Count of missing numbers that have left the window and may have arrived in a newer sequence.
    pub(super) shared_missing: u32,
    /// Only the first number of the stream has been received.
    pub(super) is_first_only: bool,
}

impl Track {
    /// Creates a sequence that begins with `seq`, the number of datagram `began_at_datagram` of the stream.
    pub(super) fn new(seq: u32, began_at_datagram: u64) -> Self {
        Self {
            window: u128::MAX,
            written_off: 0,
            highest: seq,
            known: 1,
            first: seq,
            received_count: 1,
            in_sequence_count: 0,
            began_at_datagram,
            gap: 0,
            shared_missing: 0,
            is_first_only: false,
        }
    }

    /// Returns true if the number at this distance from the highest one is in the window and has not arrived.
    pub(super) fn is_missing(&self, ahead: i32) -> bool {
        is_late(ahead) && (!self.window | self.written_off) >> ahead.unsigned_abs() & 1 == 1
    }

    /// Returns true if the number at this distance is missing in the window, or ahead by at most a window.
    pub(super) fn lacks(&self, ahead: i32) -> bool {
        is_ahead(ahead) || self.is_missing(ahead)
    }

    /// Makes `seq`, which is `by` ahead, the highest number.
    pub(super) fn advance(&mut self, seq: u32, by: u32) {
        self.window = self.window.checked_shl(by).unwrap_or(0) | 1;
        self.written_off = self.written_off.checked_shl(by).unwrap_or(0);
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = seq;
        self.received_count = self.received_count.saturating_add(1);
        self.in_sequence_count = self.in_sequence_count.saturating_add(u32::from(by == 1));
        self.is_first_only = false;
    }

    /// Makes `last` the highest number, after `by` numbers that have all arrived.
    pub(super) fn advance_all(&mut self, last: u32, by: u32) {
        self.window = self.window.checked_shl(by).unwrap_or(0) | low_bits(by);
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = last;
    }

    /// Moves the start of the sequence back to a number that lies in the window.
    pub(super) fn extend(&mut self, seq: u32, back: u32) {
        self.window &= !(low_bits(back - self.known) << self.known);
        self.known = back + 1;
        self.first = seq;
        self.received_count = self.received_count.saturating_add(1);
    }

    /// Moves the start of the sequence back to a number in the gap before it; the numbers between are already counted as lost.
    /// Returns `false`, and does nothing, if the number is not in the gap. It must lie in the window, before the first.
    pub(super) fn extend_into_gap(&mut self, seq: u32, back: u32) -> bool {
        let by = back + 1 - self.known;
        if by > self.gap {
            return false;
        }
        self.written_off |= low_bits(by - 1) << self.known;
        self.gap -= by;
        self.known = back + 1;
        self.first = seq;
        self.received_count = self.received_count.saturating_add(1);
        true
    }

    /// Marks the missing numbers as counted as lost, and returns them as a mask.
    pub(super) fn write_off_missing(&mut self) -> u128 {
        let missing = !self.window;
        self.window = u128::MAX;
        self.written_off |= missing;
        missing
    }
}

/// The highest numbers of the sequences that a stream left: the latest one for each order of magnitude of the datagrams in it.
/// So a few forged datagrams cannot displace a long sequence.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Origins {
    highest: [Option<u32>; 16],
}

impl Origins {
    /// Returns the magnitude of a count, in steps of a factor of 4.
    fn magnitude(&self, datagrams: u64) -> usize {
        (datagrams.max(1).ilog2() as usize / 2).min(self.highest.len() - 1)
    }

    /// Adds a sequence that the stream leaves.
    pub(super) fn add(&mut self, highest: u32, datagrams: u64) {
        self.highest[self.magnitude(datagrams)] = Some(highest);
    }

    /// Returns the ends of sequences that are in a higher magnitude than this number of datagrams.
    pub(super) fn longer_than(&self, datagrams: u64) -> impl Iterator<Item = u32> {
        let longer = self.highest.iter().skip(self.magnitude(datagrams) + 1);
        longer.flatten().copied()
    }
}

/// Returns true if a number at this distance from the highest one lies in the window.
pub(super) fn is_late(ahead: i32) -> bool {
    (1 - WINDOW.cast_signed()..=0).contains(&ahead)
}

/// Returns true if two numbers at this distance are at most a window apart.
pub(super) fn is_near(apart: i32) -> bool {
    is_late(apart) || is_ahead(apart)
}

/// Returns true if a number at this distance from the highest one is ahead of it by at most a window.
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

//! Sequence tracking of the nodes that send postcards to the aggregator: counts lost, reordered and duplicated datagrams
//! per node. Their sequence numbers end here, so a collector cannot count these losses.
//!
//! A bitmap per node tells which of the latest 1,024 numbers are missing. A late datagram clears its bit and takes back the
//! loss.

use serde::{Deserialize, Serialize};

/// Maximum number of tracked streams: subsystems of nodes, by length of their sequence numbers.
const MAX_NODES: usize = 4096;
/// Table entries searched for a node.
const PROBES: usize = 8;
/// A number this far behind the highest one, or further, counts as a restart rather than reordering.
const MAX_REORDERING: u32 = 1024;
/// Words of the bitmap, one bit per number that may still arrive.
const WORDS: usize = MAX_REORDERING as usize / u64::BITS as usize;
/// Key of a free entry.
const FREE_KEY: u64 = u64::MAX;

/// A source of consecutive sequence numbers: a hardware subsystem of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) node: u32,
    pub(super) hw_id: u8,
    /// Sequence numbers have 22 bits, as in Telemetry Report 2.0, instead of 32.
    pub(super) short: bool,
}

/// Sequence numbers of the postcards of a node's subsystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AggregatorNode"))]
pub struct Node {
    /// Node id in the postcards.
    pub node: u32,
    /// Subsystem of the node.
    pub hw_id: u8,
    /// Bits of its sequence numbers: 22 (Telemetry Report 2.0) or 32. A subsystem that sends both has two entries.
    pub seq_bits: u8,
    /// Datagrams with a sequence number.
    pub numbered: u64,
    /// Sequence numbers never received.
    pub lost: u64,
    /// Datagrams received after one with a higher sequence number.
    pub reordered: u64,
    /// Datagrams received more than once.
    pub duplicated: u64,
    /// Restarts of the sequence.
    pub restarts: u64,
}

/// A node and the bitmap of its latest sequence numbers.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    /// Highest sequence number received.
    last: u32,
    /// Number of sequence numbers from the first to the highest, at most [`MAX_REORDERING`].
    span: u32,
    /// Bitmap of the latest numbers, indexed modulo [`MAX_REORDERING`]; a set bit is a number counted as lost.
    missing: [u64; WORDS],
    view: Node,
}

impl Entry {
    const FREE: Self = Self {
        key: FREE_KEY,
        last: 0,
        span: 0,
        missing: [0; WORDS],
        view: Node {
            node: 0,
            hw_id: 0,
            seq_bits: 0,
            numbered: 0,
            lost: 0,
            reordered: 0,
            duplicated: 0,
            restarts: 0,
        },
    };

    /// Records a sequence number of `bits` bits.
    #[inline]
    fn observe(&mut self, seq: u32, bits: u32) {
        self.view.numbered += 1;
        let mask = u32::MAX >> (32 - bits);
        let ahead = seq.wrapping_sub(self.last) & mask;
        if (1..=mask >> 1).contains(&ahead) {
            self.advance(seq, ahead);
        } else {
            self.observe_behind(seq, self.last.wrapping_sub(seq) & mask);
        }
    }

    /// Advances to `seq`, which is `ahead` of the highest number, and counts the numbers between them as lost.
    #[inline]
    fn advance(&mut self, seq: u32, ahead: u32) {
        self.view.lost += u64::from(ahead - 1);
        for back in 1..ahead.min(MAX_REORDERING) {
            self.set_missing(seq.wrapping_sub(back), true);
        }
        self.set_missing(seq, false);
        self.span = self.span.saturating_add(ahead).min(MAX_REORDERING);
        self.last = seq;
    }

    /// Records a number that is `behind` the highest one, or equal to it. Only a number marked as missing takes back a
    /// loss; others are duplicates.
    #[cold]
    fn observe_behind(&mut self, seq: u32, behind: u32) {
        if behind >= MAX_REORDERING {
            self.view.restarts += 1;
            self.missing = [0; WORDS];
            self.span = 1;
            self.last = seq;
        } else if self.is_missing(seq) {
            self.set_missing(seq, false);
            self.view.reordered += 1;
            self.view.lost -= 1;
        } else if behind >= self.span {
            // The number precedes the first one, so it was never counted as lost.
            self.view.reordered += 1;
        } else {
            self.view.duplicated += 1;
        }
    }

    fn is_missing(&self, seq: u32) -> bool {
        self.missing[word(seq)] & bit(seq) != 0
    }

    fn set_missing(&mut self, seq: u32, is_missing: bool) {
        let missing = &mut self.missing[word(seq)];
        *missing = if is_missing {
            *missing | bit(seq)
        } else {
            *missing & !bit(seq)
        };
    }
}

/// Returns the bitmap word of a number. Both sequence spaces (22 and 32 bits) are multiples of [`MAX_REORDERING`].
fn word(seq: u32) -> usize {
    (seq / u64::BITS) as usize % WORDS
}

/// Returns the bit of a number within its word.
fn bit(seq: u32) -> u64 {
    1 << (seq % u64::BITS)
}

/// A fixed-size table of nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    entries: Vec<Entry>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self {
            entries: vec![Entry::FREE; MAX_NODES],
        }
    }

    /// Records a sequence number. Returns `false` if all entries that the stream may use are taken.
    #[inline]
    pub(super) fn observe(&mut self, stream: Stream, seq: u32) -> bool {
        let Stream { node, hw_id, short } = stream;
        let seq_bits = if short { 22 } else { 32 };
        let key = u64::from(node) << 9 | u64::from(hw_id) << 1 | u64::from(short);
        let first = wire::flow::crc_32c_of(key) as usize;
        for probe in 0..PROBES {
            let entry = &mut self.entries[(first + probe) & (MAX_NODES - 1)];
            if entry.key == key {
                entry.observe(seq, seq_bits.into());
                return true;
            }
            if entry.key == FREE_KEY {
                *entry = Entry {
                    key,
                    last: seq,
                    span: 1,
                    view: Node {
                        node,
                        hw_id,
                        seq_bits,
                        numbered: 1,
                        ..Entry::FREE.view
                    },
                    ..Entry::FREE
                };
                return true;
            }
        }
        false
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.entries
            .iter()
            .filter(|entry| entry.key != FREE_KEY)
            .map(|entry| &entry.view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(node: u32, hw_id: u8) -> Stream {
        Stream {
            node,
            hw_id,
            short: true,
        }
    }

    fn after(numbers: &[u32]) -> (u64, u64, u64, u64) {
        let mut nodes = Nodes::new();
        for seq in numbers {
            assert!(nodes.observe(stream(7, 1), *seq));
        }
        let found: Vec<_> = nodes.iter().collect();
        assert_eq!((found.len(), found[0].numbered), (1, numbers.len() as u64));
        (
            found[0].lost,
            found[0].reordered,
            found[0].duplicated,
            found[0].restarts,
        )
    }

    #[test]
    fn reordered_numbers_do_not_count_as_lost() {
        assert_eq!(after(&[5, 6, 7]), (0, 0, 0, 0));
        assert_eq!(after(&[5, 8, 9]), (2, 0, 0, 0));
        assert_eq!(after(&[5, 7, 6, 8]), (0, 1, 0, 0));
        assert_eq!(after(&[5, 5, 6]), (0, 0, 1, 0));
        assert_eq!(after(&[0x3f_ffff, 0, 2]), (1, 0, 0, 0), "22 bits");
        assert_eq!(after(&[9000, 0, 1]), (0, 0, 0, 1));
    }

    #[test]
    fn copies_and_early_numbers_take_back_no_loss() {
        assert_eq!(after(&[5, 8, 8, 7, 7, 7, 9]), (1, 1, 3, 0), "6 is lost");
        assert_eq!(after(&[5, 7, 3]), (1, 1, 0, 0), "3 was not expected");
        // Each number arrives twice, the copy `late` numbers after the original; every tenth is lost on both paths.
        for late in [1, 3, 100, 1000] {
            let copies = (0..5000_u32).flat_map(|seq| [Some(seq), seq.checked_sub(late)]);
            let numbers: Vec<u32> = copies.flatten().filter(|seq| seq % 10 != 5).collect();
            let copies = numbers.len() as u64 - 4500;
            assert_eq!(after(&numbers), (500, 0, copies, 0), "{late}");
        }
    }

    #[test]
    fn a_late_number_takes_back_its_own_loss_alone() {
        // Late numbers across the wrap of the sequence space: in both halves of the window, and outside it.
        for (back, expected) in [(1, (98, 1)), (64, (98, 1)), (99, (98, 1)), (100, (99, 0))] {
            let last = 40_u32;
            let first = last.wrapping_sub(100) & 0x3f_ffff;
            let late = last.wrapping_sub(back) & 0x3f_ffff;
            let (lost, reordered, _, restarts) = after(&[first, last, late]);
            assert_eq!((lost, reordered, restarts), (expected.0, expected.1, 0), "{back}");
        }
        assert_eq!(after(&[0, 5000, 5000 - 1023]), (4998, 1, 0, 0));
        assert_eq!(after(&[0, 5000, 5000 - 1024]), (4999, 0, 0, 1));
        // After a restart, no number from before it counts as missing.
        assert_eq!(after(&[0, 5000, 1, 0]), (4999, 1, 0, 1));
        let (lost, ..) = after(&[0, 1 << 20, (1 << 20) - 7, (1 << 20) - 7]);
        assert_eq!(lost, (1 << 20) - 2);
    }

    #[test]
    fn the_number_of_tracked_nodes_is_bounded() {
        let mut nodes = Nodes::new();
        let placed = (0..100_000)
            .filter(|node| nodes.observe(stream(*node, 0), 1))
            .count();
        assert_eq!(nodes.iter().count(), placed);
        assert!(placed > MAX_NODES / 2 && placed <= MAX_NODES, "{placed}");
    }
}

//! Sequence numbers of the nodes that send postcards. The aggregator does not forward these numbers, so only it can count their
//! losses.

use serde::{Deserialize, Serialize};

/// Maximum number of tracked nodes.
const MAX_NODES: usize = 4096;
/// Table entries that are searched for a node.
const PROBES: usize = 8;
/// A number further behind than this is a restart, not reordering.
const MAX_REORDERING: u32 = 1024;
/// Key of a free entry.
const FREE_KEY: u64 = u64::MAX;

/// Source of consecutive sequence numbers: a subsystem of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) node: u32,
    pub(super) hw_id: u8,
    /// Numbers have 22 bits, as in Report 2.0, instead of 32.
    pub(super) short: bool,
}

/// Sequence numbers of a node's postcards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AggregatorNode"))]
pub struct Node {
    /// Node id in the postcards.
    pub node: u32,
    /// Subsystem of the node.
    pub hw_id: u8,
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
    #[serde(skip)]
    key: u64,
    #[serde(skip)]
    last: u32,
}

impl Node {
    const NONE: Self = Self {
        node: 0,
        hw_id: 0,
        numbered: 0,
        lost: 0,
        reordered: 0,
        duplicated: 0,
        restarts: 0,
        key: FREE_KEY,
        last: 0,
    };

    /// Records a sequence number of `bits` bits.
    #[inline]
    fn observe(&mut self, seq: u32, bits: u32) {
        self.numbered += 1;
        let mask = u32::MAX >> (32 - bits);
        let ahead = seq.wrapping_sub(self.last) & mask;
        match ahead {
            1 => {}
            0 => {
                self.duplicated += 1;
                return;
            }
            _ if ahead <= mask >> 1 => self.lost += u64::from(ahead - 1),
            _ if mask - ahead < MAX_REORDERING => {
                self.reordered += 1;
                self.lost = self.lost.saturating_sub(1);
                return;
            }
            _ => self.restarts += 1,
        }
        self.last = seq;
    }
}

/// A table of nodes, of fixed size.
#[derive(Debug)]
pub(super) struct Nodes {
    entries: Vec<Node>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self {
            entries: vec![Node::NONE; MAX_NODES],
        }
    }

    /// Records a sequence number. Returns false if the table is full.
    #[inline]
    pub(super) fn observe(&mut self, stream: Stream, seq: u32) -> bool {
        let Stream { node, hw_id, short } = stream;
        let bits = if short { 22 } else { 32 };
        let key = u64::from(node) << 9 | u64::from(hw_id) << 1 | u64::from(short);
        let first = wire::flow::crc_32c_of(key) as usize;
        for probe in 0..PROBES {
            let entry = &mut self.entries[(first + probe) & (MAX_NODES - 1)];
            if entry.key == key {
                entry.observe(seq, bits);
                return true;
            }
            if entry.key == FREE_KEY {
                *entry = Node {
                    node,
                    hw_id,
                    key,
                    last: seq,
                    numbered: 1,
                    ..Node::NONE
                };
                return true;
            }
        }
        false
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.entries.iter().filter(|node| node.key != FREE_KEY)
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
    fn the_number_of_tracked_nodes_is_bounded() {
        let mut nodes = Nodes::new();
        let placed = (0..100_000)
            .filter(|node| nodes.observe(stream(*node, 0), 1))
            .count();
        assert_eq!(nodes.iter().count(), placed);
        assert!(placed > MAX_NODES / 2 && placed <= MAX_NODES, "{placed}");
    }
}

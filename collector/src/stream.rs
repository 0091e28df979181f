//! Identity of a stream: a sequence space, that is, all datagrams numbered by one counter.

use crate::hash::{fold, fold_octets};

/// Version 0.5, in which only some of a node's reports carry its id.
pub(crate) const V05: u8 = 5;

/// The identity of a sequence space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId {
    /// Report version: 5 for 0.5, 10 for 1.0, 20 for 2.0.
    pub version: u8,
    /// Subsystem inside the node.
    pub hw_id: u8,
    /// Number of the listener that received the datagrams.
    pub listener: u16,
    /// The reporter's node id; `None` if the report has none.
    pub node: Option<u32>,
    /// Source address, IPv4 mapped into IPv6. Part of the identity only for reports 0.5, and if `node` is `None`.
    pub source: [u8; 16],
}

impl StreamId {
    /// Returns the number of bits of a sequence number.
    #[inline]
    pub(crate) fn bits(&self) -> u32 {
        if self.version == 20 { 22 } else { 32 }
    }

    #[inline(always)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.node == other.node
            && (self.version, self.hw_id, self.listener) == (other.version, other.hw_id, other.listener)
            && (self.global_node().is_some() || self.source == other.source)
    }

    /// Returns the node id, if it identifies the reporter at any address.
    #[inline]
    pub(crate) fn global_node(&self) -> Option<u32> {
        self.node.filter(|_| self.version != V05)
    }

    #[inline]
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let small = u64::from(self.version) << 24 | u64::from(self.hw_id) << 16 | u64::from(self.listener);
        let node = self.node.map_or(0, |node| u64::from(node) | 1 << 32);
        match self.global_node() {
            Some(_) => fold(seed ^ small, node),
            None => fold(seed ^ small, fold_octets(&self.source, seed) ^ node),
        }
    }
}

/// Packs the identity of a stream with a node id into one integer, for a single comparison.
#[inline(always)]
pub(crate) fn pack(version: u8, hw_id: u8, listener: u16, node: u32) -> u64 {
    u64::from(version) << 56 | u64::from(hw_id) << 48 | u64::from(listener) << 32 | u64::from(node)
}

//! A packet as switches change it: its length, its DSCP and its L4 checksum stand for all of its bytes.

use manager::device::{Encoding, L4Checksum, NodeId, Watch};
use manager::instruction::{self, Bits, HEADER_BYTES};

/// What a host sees of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bytes {
    /// Length of the IP packet, bytes.
    pub(crate) len: u32,
    pub(crate) dscp: u8,
    /// The L4 checksum, as a sum of what it covers.
    pub(crate) checksum: u64,
}

/// INT in a packet.
#[derive(Clone, Debug)]
pub(crate) struct Int {
    bits: Bits,
    remaining: u8,
    /// The DSCP that the source replaced.
    dscp: u8,
    /// Nodes that added their record.
    pub(crate) records: Vec<NodeId>,
    /// Nodes that it passed since it carries INT.
    pub(crate) path: Vec<NodeId>,
    /// A record was left out for the remaining hop count or the MTU, and the packet says so.
    pub(crate) is_partial: bool,
}

/// A packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) src: u8,
    pub(crate) dst: u8,
    /// As its host sent it.
    pub(crate) sent: Bytes,
    pub(crate) bytes: Bytes,
    pub(crate) int: Option<Int>,
    pub(crate) hops: u8,
}

/// What the checksum covers of the header, and of a node's record.
const HEADER_SUM: u64 = 16;

fn record_sum(node: NodeId) -> u64 {
    1_000 + u64::from(node)
}

impl Packet {
    pub(crate) fn new(src: u8, dst: u8, sent: Bytes) -> Self {
        Self {
            src,
            dst,
            sent,
            bytes: sent,
            int: None,
            hops: 0,
        }
    }

    /// Whether a node with this encoding sees INT in it.
    pub(crate) fn shows_int(&self, encoding: &Encoding) -> bool {
        self.int.is_some() && self.bytes.dscp == encoding.dscp
    }

    /// A source inserts the header, if the packet then has at most `room` bytes.
    pub(crate) fn insert(&mut self, watch: &Watch, encoding: &Encoding, room: u32) {
        if self.bytes.len + HEADER_BYTES > room {
            return;
        }
        let (bits, remaining, dscp) = (watch.bits, watch.hops, self.bytes.dscp);
        let (records, path) = (Vec::new(), Vec::new());
        self.int = Some(Int {
            bits,
            remaining,
            dscp,
            records,
            path,
            is_partial: false,
        });
        self.bytes.len += HEADER_BYTES;
        self.bytes.dscp = encoding.dscp;
        match encoding.l4_checksum {
            L4Checksum::Update => self.bytes.checksum += HEADER_SUM,
            L4Checksum::Leave => {}
            L4Checksum::Zero => self.bytes.checksum = 0,
        }
    }

    /// A node adds its record, if it executes the instructions (`executes`) and the packet then has at most `room` bytes.
    pub(crate) fn record(
        &mut self,
        node: NodeId,
        executes: impl Fn(u8) -> bool,
        encoding: &Encoding,
        room: u32,
    ) {
        let Some(int) = &mut self.int else { return };
        if !instruction::numbers(int.bits).all(executes) {
            return;
        }
        let more = instruction::record_bytes(int.bits);
        if int.remaining == 0 || self.bytes.len + more > room {
            int.is_partial = true;
            return;
        }
        int.remaining -= 1;
        int.records.push(node);
        self.bytes.len += more;
        if encoding.l4_checksum == L4Checksum::Update {
            self.bytes.checksum += record_sum(node);
        }
    }

    /// A sink takes INT out, and undoes what it believes that the others did.
    pub(crate) fn strip(&mut self, encoding: &Encoding) -> Option<Int> {
        let int = self.int.take()?;
        let record = instruction::record_bytes(int.bits);
        self.bytes.len -= HEADER_BYTES + record * int.records.len() as u32;
        self.bytes.dscp = int.dscp;
        match encoding.l4_checksum {
            L4Checksum::Update => {
                let added: u64 = int.records.iter().map(|node| record_sum(*node)).sum();
                self.bytes.checksum = self.bytes.checksum.wrapping_sub(HEADER_SUM + added);
            }
            L4Checksum::Leave => {}
            L4Checksum::Zero => self.bytes.checksum = self.sent.checksum,
        }
        Some(int)
    }
}

//! A received datagram, the context that its reports share, and its sequence number.

use wire::report::Brief;
use wire::{Report, Single, Stack};

use super::stack::WIDEST_RECORD;
use crate::config::Units;
use crate::event::Nanos;
use crate::sources::Source;
use crate::stream::StreamId;

/// A received UDP payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The UDP payload as received.
    pub payload: &'a [u8],
    /// Source address, IPv4 mapped into IPv6.
    pub source: [u8; 16],
    /// Source port of the datagram.
    pub src_port: u16,
    /// Number of the listener that received it; part of a stream's identity.
    pub listener: u16,
    /// Receive time, ns since the Unix epoch.
    pub received: Nanos,
}

/// The context that all reports of one datagram share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramContext<'e> {
    pub(crate) source: &'e [u8; 16],
    pub(crate) sender: Source,
    pub(crate) listener: u16,
    pub(crate) received: Nanos,
    pub(crate) units: &'e Units,
}

/// A datagram's sequence number, and the header fields that identify its sequence space.
pub(crate) struct StreamSeq {
    version: wire::Version,
    /// The reporter's node id, if the format carries one.
    pub(crate) node: Option<u32>,
    hw_id: u8,
    pub(crate) seq: u32,
}

impl StreamSeq {
    #[inline]
    pub(crate) fn stream(&self, envelope: &DatagramContext<'_>) -> StreamId {
        StreamId {
            version: version(self.version),
            hw_id: self.hw_id,
            listener: envelope.listener,
            node: self.node,
            source: *envelope.source,
        }
    }
}

impl From<&Report<'_>> for StreamSeq {
    #[inline]
    fn from(report: &Report<'_>) -> Self {
        Self {
            version: report.version,
            node: report.node_id,
            hw_id: report.hw_id,
            seq: report.seq,
        }
    }
}

impl From<&Brief<'_>> for StreamSeq {
    #[inline(always)]
    fn from(brief: &Brief<'_>) -> Self {
        Self {
            version: brief.version,
            node: Some(brief.node_id),
            hw_id: brief.hw_id,
            seq: brief.seq,
        }
    }
}

impl From<&Single<'_>> for StreamSeq {
    #[inline(always)]
    fn from(single: &Single<'_>) -> Self {
        let Single {
            node_id, hw_id, seq, ..
        } = *single;
        Self {
            version: wire::Version::V20,
            node: Some(node_id),
            hw_id,
            seq,
        }
    }
}

impl From<&wire::Peek> for StreamSeq {
    fn from(peek: &wire::Peek) -> Self {
        Self {
            version: peek.version,
            node: peek.node_id,
            hw_id: peek.hw_id,
            seq: peek.seq,
        }
    }
}

/// Returns true if the hops of a report with these flags are a flow's path. A node in the middle of the path may report its
/// queue with the packet's stack so far: Q without F is no path, and Q with F one that may be
/// [incomplete](super::Signals::INCOMPLETE).
#[inline(always)]
pub(crate) fn is_whole_path(flags: wire::Flags) -> bool {
    const QUEUE: u8 = wire::Flags::QUEUE.0;
    flags.0 & (wire::Flags::DROP.0 | wire::Flags::INTERMEDIATE.0) == 0
        && flags.0 & (QUEUE | wire::Flags::FLOW.0) != QUEUE
}

/// Returns true if the hops can be read in place.
#[inline(always)]
pub(crate) fn is_stacked(stack: &Stack<'_>) -> bool {
    (1..=WIDEST_RECORD).contains(&stack.layout.words()) && !stack.is_empty()
}

#[inline]
pub(crate) fn version(version: wire::Version) -> u8 {
    match version {
        wire::Version::V05 => 5,
        wire::Version::V10 => 10,
        wire::Version::V20 => 20,
    }
}

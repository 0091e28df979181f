//! INT in data packets: metadata headers, record stacks and shims (`docs/reference/wire-formats.md`, section 1).
//!
//! [`Int`] is a packet's parsed INT, which [`crate::packet`] finds in a frame. [`shim`] and [`header`] have the wire
//! formats for writers.

pub mod header;
pub mod layout;
pub mod sf;
pub mod shim;

pub use layout::Layout;
pub use sf::Sf;

use crate::hop::Hop;

crate::named! {
    /// The INT version, as far as the header tells.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum Version, name {
        /// Headers of INT 0.5.
        V05 => "0.5",
        /// Headers of INT 1.0.
        V10 => "1.0",
        /// INT 2.0 or 2.1, whose headers are the same.
        V2 => "2.x",
    }
}

/// The INT mode, MD or MX.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// INT-MD: hops push metadata onto a stack in the packet.
    Md,
    /// INT-MX (2.1): hops read the instructions and send their own reports.
    Mx,
}

/// Flags of an INT metadata header. The bits are internal, not from the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// D of 2.x, C of 0.5 and 1.0: the sink discards the packet.
    pub const DISCARD: Self = Self(1);
    /// E: a hop could not add metadata because the remaining hop count was 0.
    pub const HOPS_EXCEEDED: Self = Self(2);
    /// M: a hop could not add metadata because of the MTU (1.0 and 2.x).
    pub const MTU_EXCEEDED: Self = Self(4);

    /// Returns whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns `self` with `other` added if `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// The metadata records of a packet, most recent hop first, all of one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack<'a> {
    /// A whole number of records and nothing else.
    pub bytes: &'a [u8],
    /// Positions of the items in a record.
    pub layout: Layout,
    /// Number of records on the stack.
    pub count: u8,
}

impl<'a> Stack<'a> {
    /// A stack without records.
    pub const EMPTY: Self = Self {
        bytes: &[],
        layout: Layout::EMPTY,
        count: 0,
    };

    /// Returns the number of records.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns whether there are no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns record `i` (0 is the most recent hop). Beyond the last record it returns no bytes, so that every item is
    /// absent.
    #[inline]
    pub fn record(&self, i: usize) -> &'a [u8] {
        let len = self.layout.len();
        self.bytes
            .get(i * len..)
            .and_then(|rest| rest.get(..len))
            .unwrap_or(&[])
    }

    /// Iterates over the records, most recent hop first.
    #[inline]
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        self.bytes.chunks_exact(self.layout.len().max(1))
    }

    /// Decodes record `i` of the stack.
    pub fn hop(&self, i: usize) -> Hop {
        self.layout.hop(self.record(i))
    }
}

/// A packet's parsed INT metadata header and stack.
///
/// ```
/// use wire::{Profile, packet};
///
/// // A data packet in flight: UDP, INT-MD 2.1, records of two hops.
/// let frame = testkit::vectors::bytes("int21_md_udp");
/// let int = packet::contents(&frame, &Profile::default())?.int.expect("the packet carries INT");
/// assert_eq!((int.version.name(), int.hop_ml, int.remaining, int.bitmap), ("2.x", 7, 6, 0xdc00));
///
/// let last = int.stack.hop(0); // the most recent hop comes first
/// assert_eq!((int.stack.len(), last.node_id, last.queue_occupancy), (2, Some(2), Some(0x123)));
/// # Ok::<(), wire::Refusal>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Int<'a> {
    /// Version of the header.
    pub version: Version,
    /// The mode, MD or MX.
    pub mode: Mode,
    /// Flags D (or C), E and M.
    pub flags: Flags,
    /// Hop ML, the words per hop; 0 in INT-MX and 0.5.
    pub hop_ml: u8,
    /// Remaining hop count; in 0.5 the maximum hop count.
    pub remaining: u8,
    /// Instruction bitmap of the header.
    pub bitmap: u16,
    /// Domain Specific ID (2.x); 0 in SF-INT, which uses the field for its packet ID.
    pub ds_id: u16,
    /// DS Instruction of the header (2.x).
    pub ds_instruction: u16,
    /// DS Flags of the header (2.x).
    pub ds_flags: u16,
    /// Records of the hops, most recent first.
    pub stack: Stack<'a>,
    /// Words after the last record, added only by the source (2.x with domain-specific data; all data of INT-MX).
    pub source_only: &'a [u8],
    /// Sequence number of the flow: host-int's private word, or GÉANT's use of the reserved 16 bits.
    pub seq: Option<u32>,
    /// Fields of SF-INT; `None` for plain INT. Unless it is urgent, the stack is a single record, of packet `packet_id`.
    pub sf: Option<Sf>,
}

impl Int<'_> {
    /// Returns whether this is a single record of a set that is spread over several packets, rather than a path.
    #[inline]
    pub fn is_single_record(&self) -> bool {
        self.sf.is_some_and(|sf| !sf.urgent)
    }

    /// Returns whether the packet is a replica: C of 0.5 and 1.0. A node that is asked for replication sends copies of the
    /// packet to all its ports or next hops, so a copy takes a path on which the flow is not. D of 2.x is not a mark of one: it is
    /// the source's, of a clone or probe that is forwarded as the flow is.
    #[inline]
    pub fn is_replica(&self) -> bool {
        !matches!(self.version, Version::V2) && self.flags.contains(Flags::DISCARD)
    }
}

//! IOAM options in IPv6 packets: pre-allocated and incremental trace (RFC 9197) and direct export (RFC 9326);
//! `docs/reference/wire-formats.md`, section 7. Proof of transit and edge-to-edge options are ignored.

use crate::bytes::{put_u16, put_u24, put_u32, put_u64, try_u32, try_u64, u16_at, u24_at, u32_at};
use crate::hop::{Hop, Items};
use crate::ipv6::{self, Extensions};
use crate::refusal::Refusal;

/// IPv6 option type for mutable IOAM data.
pub const OPTION_MUTABLE: u8 = 0x31;
/// IPv6 option type for immutable IOAM data.
pub const OPTION_IMMUTABLE: u8 = 0x11;
/// Types of the IOAM options.
const PREALLOCATED: u8 = 0;
const INCREMENTAL: u8 = 1;
const DIRECT_EXPORT: u8 = 4;
const WIDE: u32 = bit(8) | bit(9) | bit(10);
const OPAQUE: u32 = bit(22);
const RESERVED: u32 = bit(23);

mod field {
    // Offsets in the IPv6 option's data.
    pub(super) const IOAM_TYPE: usize = 1;
    pub(super) const OPTION: usize = 2;
    // Offsets in the IOAM option; trace and direct export have them in common.
    pub(super) const NAMESPACE: usize = 0;
    pub(super) const NODE_LEN: usize = 2;
    pub(super) const REMAINING: usize = 3;
    pub(super) const TRACE_TYPE: usize = 4;
    pub(super) const DATA: usize = 8;
    // Offsets in direct export.
    pub(super) const EXPORT_FLAGS: usize = 2;
    pub(super) const EXTENSION_FLAGS: usize = 3;
}

/// Returns Trace-Type bit `k`, counted from the most significant of 24 bits.
const fn bit(k: u32) -> u32 {
    0x0080_0000 >> k
}

/// An IOAM option of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ioam<'a> {
    /// A trace with data of the nodes that the packet has passed.
    Trace(Trace<'a>),
    /// An instruction to nodes to export their data directly.
    Export(DirectExport),
}

impl<'a> Ioam<'a> {
    /// Parses the data of an IPv6 option of type [`OPTION_MUTABLE`] or [`OPTION_IMMUTABLE`]. Returns `None` for IOAM types
    /// that are ignored.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if the option is inconsistent.
    pub fn parse(data: &'a [u8]) -> Result<Option<Self>, Refusal> {
        let Some((head, option)) = data.split_at_checked(field::OPTION) else {
            return Err(Refusal::BadIoam);
        };
        match head[field::IOAM_TYPE] {
            kind @ (PREALLOCATED | INCREMENTAL) => {
                Trace::parse(option, kind == INCREMENTAL).map(|trace| Some(Self::Trace(trace)))
            }
            DIRECT_EXPORT => DirectExport::parse(option).map(|export| Some(Self::Export(export))),
            _ => Ok(None),
        }
    }

    /// Returns whether nodes write an ID.
    pub fn has_node_ids(&self) -> bool {
        matches!(self, Self::Trace(trace) if trace.has_node_ids())
    }

    /// Returns a key that ranks options by how much they tell about the path: nodes with IDs first, then the number of
    /// nodes.
    pub(crate) fn rank(&self) -> (bool, usize) {
        (self.has_node_ids() && self.hop_count() > 0, self.hop_count())
    }

    /// Returns the number of nodes that have written data.
    pub fn hop_count(&self) -> usize {
        match self {
            Self::Trace(trace) => trace.nodes().count(),
            Self::Export(_) => 0,
        }
    }

    /// Decodes node `i` in forwarding order into the items of a [`Hop`]; beyond the last node, a default one.
    pub fn hop(&self, i: usize) -> Hop {
        let Self::Trace(trace) = self else {
            return Hop::default();
        };
        let Some(newest) = trace.nodes().count().checked_sub(i + 1) else {
            return Hop::default();
        };
        trace
            .nodes()
            .nth(newest)
            .map_or(Hop::default(), |node| node.hop())
    }
}

/// All IOAM options of an IPv6 packet, in the order of its extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionList<'a> {
    headers: Extensions<'a>,
}

impl<'a> OptionList<'a> {
    pub(crate) fn new(headers: Extensions<'a>) -> Self {
        Self { headers }
    }

    /// Iterates over the options that [`Ioam::parse`] accepts.
    pub fn iter(&self) -> impl Iterator<Item = Ioam<'a>> + use<'a> {
        let headers = self.headers;
        let options = headers
            .filter(|header| matches!(header.kind, ipv6::HOP_BY_HOP | ipv6::DESTINATION_OPTIONS))
            .filter_map(move |header| ipv6::OptionsHeader::new_checked(headers.bytes_of(header)).ok())
            .flat_map(|header| header.options());
        options
            .filter(|option| matches!(option.kind, OPTION_MUTABLE | OPTION_IMMUTABLE))
            .filter_map(|option| Ioam::parse(option.data).ok().flatten())
    }
}

/// An IOAM trace option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace<'a> {
    /// Namespace-ID of the option.
    pub namespace: u16,
    /// Words per node (NodeLen), without opaque snapshots.
    pub node_len: u8,
    /// Flags: O (8), L (4), A (2) and a reserved bit (1).
    pub flags: u8,
    /// RemainingLen: free words for node data.
    pub remaining: u8,
    /// IOAM-Trace-Type, 24 bits: the items that nodes write.
    pub trace_type: u32,
    /// The option is incremental; otherwise pre-allocated.
    pub incremental: bool,
    /// Node data, newest first, without free space.
    pub data: &'a [u8],
}

impl<'a> Trace<'a> {
    /// Parses the option starting at the Namespace-ID.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if lengths, type and data are inconsistent.
    pub fn parse(option: &'a [u8], incremental: bool) -> Result<Self, Refusal> {
        let Some((head, data)) = option.split_at_checked(field::DATA) else {
            return Err(Refusal::BadIoam);
        };
        let trace_type = u24_at(head, field::TRACE_TYPE);
        let node_len = head[field::NODE_LEN] >> 3;
        let remaining = head[field::REMAINING] & 0x7f;
        // In a pre-allocated trace, free space precedes the data. An incremental trace has none.
        let free = if incremental {
            0
        } else {
            usize::from(remaining) * 4
        };
        let trace = Self {
            namespace: u16_at(head, field::NAMESPACE),
            node_len,
            flags: (head[field::NODE_LEN] & 7) << 1 | head[field::REMAINING] >> 7,
            remaining,
            trace_type,
            incremental,
            data: data.get(free..).ok_or(Refusal::BadIoam)?,
        };
        let has_whole_nodes = trace.nodes().map(|node| node.bytes.len()).sum::<usize>() == trace.data.len();
        // An opaque snapshot is node data too, but not included in NodeLen.
        let has_data = node_len != 0 || trace_type & OPAQUE != 0;
        let is_consistent =
            node_len == node_words(trace_type) && has_data && trace_type & RESERVED == 0 && has_whole_nodes;
        if is_consistent {
            Ok(trace)
        } else {
            Err(Refusal::BadIoam)
        }
    }

    /// Returns the O flag: a node found no space left, so its data is missing.
    pub fn is_incomplete(&self) -> bool {
        self.flags & 8 != 0
    }

    /// Returns the names of the flags that are set.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let flags = self.flags;
        [(8, "overflow"), (4, "loopback"), (2, "active")]
            .into_iter()
            .filter_map(move |(bit, name)| (flags & bit != 0).then_some(name))
    }

    /// Returns whether nodes write an ID.
    pub fn has_node_ids(&self) -> bool {
        self.trace_type & (bit(0) | bit(8)) != 0
    }

    /// Iterates over the nodes, newest first.
    pub fn nodes(&self) -> Nodes<'a> {
        Nodes {
            trace_type: self.trace_type,
            fixed_len: usize::from(self.node_len) * 4,
            rest: self.data,
        }
    }

    /// Returns the number of bytes that [`emit`](Self::emit) writes before the node data.
    pub fn header_len(&self) -> usize {
        field::OPTION
            + field::DATA
            + if self.incremental {
                0
            } else {
                usize::from(self.remaining) * 4
            }
    }

    /// Writes the IPv6 option's data (IOAM type, header, zeroed free space, node data) and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len) plus the node data.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.header_len() + self.data.len();
        let out = &mut out[..len];
        out.fill(0);
        out[field::IOAM_TYPE] = if self.incremental {
            INCREMENTAL
        } else {
            PREALLOCATED
        };
        let option = &mut out[field::OPTION..];
        put_u16(option, field::NAMESPACE, self.namespace);
        option[field::NODE_LEN] = self.node_len << 3 | self.flags >> 1 & 7;
        option[field::REMAINING] = self.flags << 7 | self.remaining & 0x7f;
        put_u24(option, field::TRACE_TYPE, self.trace_type);
        out[len - self.data.len()..].copy_from_slice(self.data);
        len
    }
}

/// Returns the words of a node's data for a Trace-Type, without the opaque snapshot.
pub fn node_words(trace_type: u32) -> u8 {
    let counted = trace_type & !(OPAQUE | RESERVED) & 0x00ff_ffff;
    (counted.count_ones() + (counted & WIDE).count_ones()) as u8
}

/// Iterator over the nodes of a trace, newest first. It ends at an incomplete node.
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    trace_type: u32,
    /// Length of a node's data without the opaque snapshot, bytes.
    fixed_len: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Nodes<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.fixed_len == 0 && self.trace_type & OPAQUE == 0 || self.rest.is_empty() {
            return None;
        }
        let mut len = self.fixed_len;
        if self.trace_type & OPAQUE != 0 {
            len += 4 + usize::from(*self.rest.get(self.fixed_len)?) * 4;
        }
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(Node {
            trace_type: self.trace_type,
            bytes,
        })
    }
}

/// One node's data. An item is `None` if absent or unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node<'a> {
    trace_type: u32,
    /// All bytes of the node, including its opaque snapshot.
    pub bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Returns whether the item of Trace-Type bit `k` is present.
    pub fn has(&self, k: u32) -> bool {
        self.trace_type & bit(k) != 0
    }

    /// Returns whether [`Node::node_id`] returns a 56-bit ID.
    pub fn has_wide_node_id(&self) -> bool {
        self.has(8) && self.short_node_id().is_none()
    }

    /// Returns whether the node has data that does not fit the items of a [`Hop`].
    pub fn has_more_than_items(&self) -> bool {
        [0, 2, 3, 5, 8, 10, 22].into_iter().any(|k| self.has(k))
    }

    fn offset(&self, k: u32) -> Option<usize> {
        let earlier_items = self.trace_type & !(bit(k) | (bit(k) - 1));
        (self.trace_type & bit(k) != 0).then(|| usize::from(node_words(earlier_items)) * 4)
    }

    fn word(&self, k: u32) -> Option<u32> {
        try_u32(self.bytes, self.offset(k)?).filter(|word| *word != u32::MAX)
    }

    fn double_word(&self, k: u32) -> Option<u64> {
        try_u64(self.bytes, self.offset(k)?).filter(|value| *value != u64::MAX)
    }

    /// Returns the hop limit at this node.
    pub fn hop_limit(&self) -> Option<u8> {
        let short = self.word(0).map(|word| (word >> 24) as u8);
        short.or_else(|| self.double_word(8).map(|value| (value >> 56) as u8))
    }

    /// Returns the node ID: 24 bits, or 56 bits if only the wide form is available. A node without a configured ID still
    /// writes its hop limit.
    pub fn node_id(&self) -> Option<u64> {
        const NONE: u64 = u64::MAX >> 8;
        let short = self.short_node_id().map(u64::from);
        short.or_else(|| {
            self.double_word(8)
                .map(|value| value & NONE)
                .filter(|id| *id != NONE)
        })
    }

    fn short_node_id(&self) -> Option<u32> {
        const NONE: u32 = u32::MAX >> 8;
        self.word(0).map(|word| word & NONE).filter(|id| *id != NONE)
    }

    /// Returns the 16-bit ingress and egress interfaces, each `None` if unavailable.
    pub fn interfaces(&self) -> (Option<u16>, Option<u16>) {
        let Some(word) = self.word(1) else {
            return (None, None);
        };
        let [ingress, egress] = [(word >> 16) as u16, word as u16];
        (
            (ingress != u16::MAX).then_some(ingress),
            (egress != u16::MAX).then_some(egress),
        )
    }

    /// Returns the 32-bit ingress and egress interfaces, each `None` if unavailable.
    pub fn wide_interfaces(&self) -> (Option<u32>, Option<u32>) {
        let Some(value) = self.double_word(9) else {
            return (None, None);
        };
        let [ingress, egress] = [(value >> 32) as u32, value as u32];
        (
            (ingress != u32::MAX).then_some(ingress),
            (egress != u32::MAX).then_some(egress),
        )
    }

    /// Returns the timestamp's seconds.
    pub fn seconds(&self) -> Option<u32> {
        self.word(2)
    }

    /// Returns the timestamp's fraction, in a unit defined by the namespace.
    pub fn fraction(&self) -> Option<u32> {
        self.word(3)
    }

    /// Returns the transit delay, ns; `None` also if it overflowed its 31 bits.
    pub fn transit_delay(&self) -> Option<u32> {
        self.word(4).filter(|delay| delay >> 31 == 0)
    }

    /// Returns the namespace-specific data, 32 bits.
    pub fn namespace_data(&self) -> Option<u32> {
        self.word(5)
    }

    /// Returns the namespace-specific data, 64 bits.
    pub fn wide_namespace_data(&self) -> Option<u64> {
        self.double_word(10)
    }

    /// Returns the queue depth, device units.
    pub fn queue_depth(&self) -> Option<u32> {
        self.word(6)
    }

    /// Returns the checksum complement, unchanged.
    pub fn checksum_complement(&self) -> Option<u32> {
        self.word(7)
    }

    /// Returns the buffer occupancy, device units.
    pub fn buffer_occupancy(&self) -> Option<u32> {
        self.word(11)
    }

    /// Returns the opaque state snapshot: its schema ID (`None` if it has none) and data.
    pub fn opaque(&self) -> Option<(Option<u32>, &'a [u8])> {
        const NONE: u32 = u32::MAX >> 8;
        let offset = usize::from(node_words(self.trace_type)) * 4;
        (self.trace_type & OPAQUE != 0).then(|| {
            let schema = u32_at(self.bytes, offset) & NONE;
            (
                Some(schema).filter(|schema| *schema != NONE),
                &self.bytes[offset + 4..],
            )
        })
    }

    /// Converts the data to a [`Hop`]. 32-bit interfaces become level-2 interfaces. A node ID above 32 bits is dropped,
    /// because the low halves of two such IDs may be equal. Timestamps are left out, because their unit depends on the
    /// namespace.
    pub fn hop(&self) -> Hop {
        const ITEMS: [(u32, Items); 6] = [
            (bit(0) | bit(8), Items::NODE_ID),
            (bit(1), Items::INTERFACES),
            (bit(4), Items::HOP_LATENCY),
            (bit(6), Items::QUEUE),
            (bit(7), Items::CHECKSUM_COMPLEMENT),
            (bit(9), Items::L2_INTERFACES),
        ];
        let mut carried = Items::default();
        for (_, item) in ITEMS.into_iter().filter(|(bits, _)| self.trace_type & bits != 0) {
            carried.insert(item);
        }
        if self.trace_type & bit(11) != 0 {
            carried.insert(Items::BUFFER);
        }
        let (ingress_if, egress_if) = self.interfaces();
        let (l2_ingress_if, l2_egress_if) = self.wide_interfaces();
        Hop {
            carried,
            node_id: self
                .node_id()
                .and_then(|id| u32::try_from(id).ok())
                .filter(|id| *id != u32::MAX),
            ingress_if,
            egress_if,
            hop_latency: self.transit_delay(),
            latency_in_ns: true,
            queue_occupancy: self.queue_depth(),
            l2_ingress_if,
            l2_egress_if,
            buffer_occupancy: self.buffer_occupancy(),
            checksum_complement: self.checksum_complement(),
            ..Hop::default()
        }
    }
}

/// The values of a node to write; `None` is written as unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeValues {
    /// Hop_Lim of the node data.
    pub hop_limit: u8,
    /// Node ID; the short form gets the low 24 bits.
    pub node_id: u64,
    /// ID of the ingress interface.
    pub ingress_if: Option<u32>,
    /// ID of the egress interface.
    pub egress_if: Option<u32>,
    /// Timestamp, the seconds part.
    pub seconds: Option<u32>,
    /// Timestamp, the fraction part.
    pub fraction: Option<u32>,
    /// Transit delay of the node, ns.
    pub transit_delay: Option<u32>,
    /// Queue depth at the node.
    pub queue_depth: Option<u32>,
    /// Buffer occupancy at the node.
    pub buffer_occupancy: Option<u32>,
}

impl NodeValues {
    /// Writes the node's data for a Trace-Type without opaque snapshot, and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`node_words`].
    pub fn emit(&self, trace_type: u32, out: &mut [u8]) -> usize {
        let [ingress, egress] =
            [self.ingress_if, self.egress_if].map(|port| port.map_or(0xffff, |port| port & 0xffff));
        let mut at = 0;
        for k in (0..22).filter(|k| trace_type & bit(*k) != 0) {
            let word = match k {
                0 => u32::from(self.hop_limit) << 24 | self.node_id as u32 & 0x00ff_ffff,
                1 => ingress << 16 | egress,
                2 => self.seconds.unwrap_or(u32::MAX),
                3 => self.fraction.unwrap_or(u32::MAX),
                4 => self.transit_delay.unwrap_or(u32::MAX),
                6 => self.queue_depth.unwrap_or(u32::MAX),
                11 => self.buffer_occupancy.unwrap_or(u32::MAX),
                _ => u32::MAX,
            };
            let long = match k {
                8 => u64::from(self.hop_limit) << 56 | self.node_id & 0x00ff_ffff_ffff_ffff,
                9 => {
                    u64::from(self.ingress_if.unwrap_or(u32::MAX)) << 32
                        | u64::from(self.egress_if.unwrap_or(u32::MAX))
                }
                _ => u64::MAX,
            };
            if bit(k) & WIDE != 0 {
                put_u64(out, at, long);
                at += 8;
            } else {
                put_u32(out, at, word);
                at += 4;
            }
        }
        at
    }
}

/// An IOAM direct export option (RFC 9326).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectExport {
    /// Namespace-ID of the option.
    pub namespace: u16,
    /// Flags of the option, eight bits.
    pub flags: u8,
    /// IOAM-Trace-Type, 24 bits: the items to export.
    pub trace_type: u32,
    /// Flow ID, if present.
    pub flow_id: Option<u32>,
    /// Sequence number, if present.
    pub seq: Option<u32>,
}

impl DirectExport {
    const FLOW_ID: u8 = 0x80;
    const SEQ: u8 = 0x40;

    /// Parses the option starting at the Namespace-ID.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if the option is shorter than its flags require.
    pub fn parse(option: &[u8]) -> Result<Self, Refusal> {
        let Some((head, mut data)) = option.split_at_checked(field::DATA) else {
            return Err(Refusal::BadIoam);
        };
        let extensions = head[field::EXTENSION_FLAGS];
        if data.len() < extensions.count_ones() as usize * 4 {
            return Err(Refusal::BadIoam);
        }
        let [flow_id, seq] = [Self::FLOW_ID, Self::SEQ].map(|flag| {
            let (word, rest) = data.split_first_chunk::<4>().filter(|_| extensions & flag != 0)?;
            data = rest;
            Some(u32::from_be_bytes(*word))
        });
        Ok(Self {
            namespace: u16_at(head, field::NAMESPACE),
            flags: head[field::EXPORT_FLAGS],
            trace_type: u24_at(head, field::TRACE_TYPE),
            flow_id,
            seq,
        })
    }

    /// Writes the IPv6 option's data, and returns its length, at most 18 bytes.
    ///
    /// # Panics
    /// If `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut len = field::OPTION + field::DATA;
        out[..len].fill(0);
        out[field::IOAM_TYPE] = DIRECT_EXPORT;
        let option = &mut out[field::OPTION..];
        put_u16(option, field::NAMESPACE, self.namespace);
        option[field::EXPORT_FLAGS] = self.flags;
        put_u24(option, field::TRACE_TYPE, self.trace_type);
        for (flag, value) in [(Self::FLOW_ID, self.flow_id), (Self::SEQ, self.seq)] {
            let Some(value) = value else { continue };
            option[field::EXTENSION_FLAGS] |= flag;
            put_u32(option, len - field::OPTION, value);
            len += 4;
        }
        len
    }
}

//! IOAM (RFC 9197, RFC 9326): the trace options and direct export, as IPv6 options carry them. Wire-formats section 7.
//!
//! Proof of transit and edge-to-edge are not read.

use crate::bytes::{put_u16, put_u24, put_u32, put_u64, try_u32, try_u64, u16_at, u24_at, u32_at};
use crate::hop::{Hop, Items};
use crate::ipv6::{self, Extensions};
use crate::refusal::Refusal;

/// IPv6 option type whose data may change on the path.
pub const OPTION_MUTABLE: u8 = 0x31;
/// IPv6 option type whose data does not change on the path.
pub const OPTION_IMMUTABLE: u8 = 0x11;

mod field {
    // Of the IPv6 option's data.
    pub(super) const IOAM_TYPE: usize = 1;
    pub(super) const OPTION: usize = 2;
    // Of the IOAM option, trace and direct export alike.
    pub(super) const NAMESPACE: usize = 0;
    pub(super) const NODE_LEN: usize = 2;
    pub(super) const REMAINING: usize = 3;
    pub(super) const TRACE_TYPE: usize = 4;
    pub(super) const DATA: usize = 8;
    // Of direct export.
    pub(super) const EXPORT_FLAGS: usize = 2;
    pub(super) const EXTENSION_FLAGS: usize = 3;
}

/// Types of IOAM options.
const PREALLOCATED: u8 = 0;
const INCREMENTAL: u8 = 1;
const DIRECT_EXPORT: u8 = 4;

/// Returns Trace-Type bit `k`, counted from the most significant of 24.
const fn bit(k: u32) -> u32 {
    0x0080_0000 >> k
}

const WIDE: u32 = bit(8) | bit(9) | bit(10);
const OPAQUE: u32 = bit(22);
const RESERVED: u32 = bit(23);

/// IOAM data found in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ioam<'a> {
    /// Data of the nodes passed.
    Trace(Trace<'a>),
    /// An instruction to the nodes to export their data directly.
    Export(DirectExport),
}

impl<'a> Ioam<'a> {
    /// Reads the data of an IPv6 option of type [`OPTION_MUTABLE`] or [`OPTION_IMMUTABLE`]; `None` for IOAM types that
    /// are not read.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if the option contradicts itself.
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

    /// Returns whether nodes write an id.
    pub fn has_node_ids(&self) -> bool {
        matches!(self, Self::Trace(trace) if trace.has_node_ids())
    }

    /// Returns the contribution of the option to the path: the more nodes with an id, the greater it is.
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

    /// Returns node `i` in forwarding order, as far as its data are items of a [`Hop`], or a default one
    /// beyond the last.
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

    /// Returns the options that [`Ioam::parse`] reads.
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
    /// Words per node, opaque snapshots not counted.
    pub node_len: u8,
    /// O (8), L (4), A (2) and a reserved bit (1).
    pub flags: u8,
    /// RemainingLen: free words of node data.
    pub remaining: u8,
    /// IOAM-Trace-Type, 24 bits: the items that nodes write.
    pub trace_type: u32,
    /// Incremental trace; otherwise pre-allocated.
    pub incremental: bool,
    /// The nodes' data, newest first, free space left out.
    pub data: &'a [u8],
}

impl<'a> Trace<'a> {
    /// Reads the option from the Namespace-ID on.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if lengths, type and data contradict each other.
    pub fn parse(option: &'a [u8], incremental: bool) -> Result<Self, Refusal> {
        let Some((head, data)) = option.split_at_checked(field::DATA) else {
            return Err(Refusal::BadIoam);
        };
        let trace_type = u24_at(head, field::TRACE_TYPE);
        let node_len = head[field::NODE_LEN] >> 3;
        let remaining = head[field::REMAINING] & 0x7f;
        // In a pre-allocated trace the free space comes first; an incremental one has none.
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
        let whole = trace.nodes().map(|node| node.bytes.len()).sum::<usize>() == trace.data.len();
        // An opaque snapshot is data of a node, too, but not part of the length.
        let has_data = node_len != 0 || trace_type & OPAQUE != 0;
        let sound = node_len == node_words(trace_type) && has_data && trace_type & RESERVED == 0 && whole;
        if sound { Ok(trace) } else { Err(Refusal::BadIoam) }
    }

    /// Returns flag O: a node on the path had no space left, so its data are missing.
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

    /// Returns whether nodes write an id.
    pub fn has_node_ids(&self) -> bool {
        self.trace_type & (bit(0) | bit(8)) != 0
    }

    /// Returns the nodes, newest first.
    pub fn nodes(&self) -> Nodes<'a> {
        Nodes {
            trace_type: self.trace_type,
            fixed: usize::from(self.node_len) * 4,
            rest: self.data,
        }
    }

    /// Returns the bytes that [`emit`](Self::emit) writes before the nodes' data.
    pub fn header_len(&self) -> usize {
        field::OPTION
            + field::DATA
            + if self.incremental {
                0
            } else {
                usize::from(self.remaining) * 4
            }
    }

    /// Writes the IPv6 option's data: IOAM type, header, free space (zeros) and the nodes' data. Returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len) and the data.
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

/// Returns the words of one node's data under a Trace-Type, opaque snapshot left out.
pub fn node_words(trace_type: u32) -> u8 {
    let counted = trace_type & !(OPAQUE | RESERVED) & 0x00ff_ffff;
    (counted.count_ones() + (counted & WIDE).count_ones()) as u8
}

/// The nodes of a trace, newest first. Ends at the first node that is not whole.
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    trace_type: u32,
    fixed: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Nodes<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        if self.fixed == 0 && self.trace_type & OPAQUE == 0 || self.rest.is_empty() {
            return None;
        }
        let mut len = self.fixed;
        if self.trace_type & OPAQUE != 0 {
            len += 4 + usize::from(*self.rest.get(self.fixed)?) * 4;
        }
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(Node {
            trace_type: self.trace_type,
            bytes,
        })
    }
}

/// One node's data. An item is `None` if it is absent or unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node<'a> {
    trace_type: u32,
    /// All bytes of the node, opaque snapshot included.
    pub bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Returns whether the item of Trace-Type bit `k` is present.
    pub fn has(&self, k: u32) -> bool {
        self.trace_type & bit(k) != 0
    }

    /// Returns whether [`Node::node_id`] returns the id of 56 bits.
    pub fn has_wide_node_id(&self) -> bool {
        self.has(8) && self.short_node_id().is_none()
    }

    /// Returns whether the node has data that are not items of a [`Hop`].
    pub fn has_more_than_items(&self) -> bool {
        [0, 2, 3, 5, 8, 10, 22].into_iter().any(|k| self.has(k))
    }

    fn offset(&self, k: u32) -> Option<usize> {
        let before = self.trace_type & !(bit(k) | (bit(k) - 1));
        (self.trace_type & bit(k) != 0).then(|| usize::from(node_words(before)) * 4)
    }

    fn word(&self, k: u32) -> Option<u32> {
        try_u32(self.bytes, self.offset(k)?).filter(|word| *word != u32::MAX)
    }

    fn long(&self, k: u32) -> Option<u64> {
        try_u64(self.bytes, self.offset(k)?).filter(|long| *long != u64::MAX)
    }

    /// Returns the hop limit at this node.
    pub fn hop_limit(&self) -> Option<u8> {
        let short = self.word(0).map(|word| (word >> 24) as u8);
        short.or_else(|| self.long(8).map(|long| (long >> 56) as u8))
    }

    /// Returns the node id: 24 bits, or 56 if only the wide form is available. A node whose id is not
    /// configured still writes its hop limit.
    pub fn node_id(&self) -> Option<u64> {
        const NONE: u64 = u64::MAX >> 8;
        let short = self.short_node_id().map(u64::from);
        short.or_else(|| self.long(8).map(|long| long & NONE).filter(|id| *id != NONE))
    }

    fn short_node_id(&self) -> Option<u32> {
        const NONE: u32 = u32::MAX >> 8;
        self.word(0).map(|word| word & NONE).filter(|id| *id != NONE)
    }

    /// Returns ingress and egress interface, 16 bits each; each is `None` if unavailable.
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

    /// Returns ingress and egress interface, 32 bits each; each is `None` if unavailable.
    pub fn wide_interfaces(&self) -> (Option<u32>, Option<u32>) {
        let Some(long) = self.long(9) else {
            return (None, None);
        };
        let [ingress, egress] = [(long >> 32) as u32, long as u32];
        (
            (ingress != u32::MAX).then_some(ingress),
            (egress != u32::MAX).then_some(egress),
        )
    }

    /// Returns the seconds of the timestamp.
    pub fn seconds(&self) -> Option<u32> {
        self.word(2)
    }

    /// Returns the fraction of the timestamp, in a unit that the namespace defines.
    pub fn fraction(&self) -> Option<u32> {
        self.word(3)
    }

    /// Returns the transit delay in ns, or `None` also if it did not fit its 31 bits.
    pub fn transit_delay(&self) -> Option<u32> {
        self.word(4).filter(|delay| delay >> 31 == 0)
    }

    /// Returns data of the namespace, 32 bits.
    pub fn namespace_data(&self) -> Option<u32> {
        self.word(5)
    }

    /// Returns data of the namespace, 64 bits.
    pub fn wide_namespace_data(&self) -> Option<u64> {
        self.long(10)
    }

    /// Returns the queue depth, device units.
    pub fn queue_depth(&self) -> Option<u32> {
        self.word(6)
    }

    /// Returns the checksum complement, as on the wire.
    pub fn checksum_complement(&self) -> Option<u32> {
        self.word(7)
    }

    /// Returns the buffer occupancy, device units.
    pub fn buffer_occupancy(&self) -> Option<u32> {
        self.word(11)
    }

    /// Returns the schema, `None` if the node has none, and the data of the opaque state snapshot.
    pub fn opaque(&self) -> Option<(Option<u32>, &'a [u8])> {
        const NONE: u32 = u32::MAX >> 8;
        let at = usize::from(node_words(self.trace_type)) * 4;
        (self.trace_type & OPAQUE != 0).then(|| {
            let schema = u32_at(self.bytes, at) & NONE;
            (
                Some(schema).filter(|schema| *schema != NONE),
                &self.bytes[at + 4..],
            )
        })
    }

    /// Returns the data that are items of a [`Hop`]. The 32-bit interfaces become level-2 interfaces; a node id that needs more than
    /// 32 bits is not available, since two such ids may have equal low halves. Timestamps are left out, since the namespace defines
    /// their unit.
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

/// Values of one node to write; `None` is written as unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeValues {
    /// Hop_Lim of the node data.
    pub hop_limit: u8,
    /// Node id; the low 24 bits go into the short form.
    pub node_id: u64,
    /// ID of the ingress interface.
    pub ingress_if: Option<u32>,
    /// ID of the egress interface.
    pub egress_if: Option<u32>,
    /// Seconds of the timestamp.
    pub seconds: Option<u32>,
    /// Fraction of the timestamp.
    pub fraction: Option<u32>,
    /// Transit delay of the node, ns.
    pub transit_delay: Option<u32>,
    /// Queue depth at the node.
    pub queue_depth: Option<u32>,
    /// Buffer occupancy at the node.
    pub buffer_occupancy: Option<u32>,
}

impl NodeValues {
    /// Writes the node's data under a Trace-Type without opaque snapshot, and returns its length.
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

/// An IOAM direct-export option (RFC 9326).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectExport {
    /// Namespace-ID of the option.
    pub namespace: u16,
    /// Flags of the option, eight bits.
    pub flags: u8,
    /// IOAM-Trace-Type, 24 bits: what to export.
    pub trace_type: u32,
    /// Flow ID, if the option carries it.
    pub flow_id: Option<u32>,
    /// Sequence Number, if the option carries it.
    pub seq: Option<u32>,
}

impl DirectExport {
    const FLOW_ID: u8 = 0x80;
    const SEQ: u8 = 0x40;

    /// Reads the option from the Namespace-ID on.
    ///
    /// # Errors
    /// [`Refusal::BadIoam`] if it is shorter than its flags say.
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

    /// Writes the IPv6 option's data, and returns its length (at most 18).
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

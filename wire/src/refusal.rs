//! Causes for which received bytes were refused: one small value per cause, so that each cause has a counter.
//! The last two are about the sender, not the bytes: a parser never returns them.

use core::ops::{Deref, DerefMut};
use core::{array, fmt, slice};

crate::named! {
    /// Everything that can be wrong with received bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum Refusal, name {
        /// The bytes end inside a header of the frame or the report.
        Truncated => "truncated",
        /// Not IPv4 or IPv6, or an unsupported link layer.
        NotIp => "not_ip",
        /// An IP packet, but not UDP.
        NotUdp => "not_udp",
        /// An IP fragment; datagrams are not reassembled.
        Fragment => "fragment",
        /// The IP header's version, header length or total length contradicts the bytes.
        BadIpHeader => "bad_ip_header",
        /// The UDP length is below 8, or larger than the IP payload.
        BadUdpLength => "bad_udp_length",
        /// No telemetry report has this version nibble.
        UnknownVersion => "unknown_version",
        /// A group header without a report.
        EmptyGroup => "empty_group",
        /// A report's length field contradicts the bytes or its own metadata bits.
        BadLength => "bad_length",
        /// A report's next-protocol code is not defined.
        BadNextProtocol => "bad_next_protocol",
        /// Report 2.0: the metadata length contradicts the metadata bits or the report length.
        BadMetadataLength => "bad_metadata_length",
        /// Report 2.0: a report type whose contents are not defined; skipped by its length.
        UndefinedReportType => "undefined_report_type",
        /// Report 2.0: an inner type that is not defined; skipped by its length.
        UndefinedInnerType => "undefined_inner_type",
        /// Report 2.0: inner type "none", but the report has inner contents; skipped by its length.
        LeftoverWords => "leftover_words",
        /// The packet was truncated inside the INT shim, header or stack.
        IntTruncated => "int_truncated",
        /// The bytes at the position where INT was marked are not an INT shim.
        BadShim => "bad_shim",
        /// The shim's next-protocol type contradicts the mark by which INT was found.
        BadNextProtocolType => "bad_next_protocol_type",
        /// The INT metadata header has a version that its carrier does not allow.
        BadIntVersion => "bad_int_version",
        /// The INT length contradicts the header.
        BadIntLength => "bad_int_length",
        /// The words per hop contradict the instruction bitmap.
        BadHopMl => "bad_hop_ml",
        /// INT 0.5: the instruction count contradicts the instruction bitmap.
        BadInstructionCount => "bad_instruction_count",
        /// INT 0.5: more hops than the header's own maximum.
        TooManyHops => "too_many_hops",
        /// The stack is not a whole number of hops.
        PartialHop => "partial_hop",
        /// A GRE header of an unknown version, or with fields of unknown length.
        BadGre => "bad_gre",
        /// A Geneve option extends beyond the end of the options.
        BadGeneve => "bad_geneve",
        /// An IOAM option contradicts itself.
        BadIoam => "bad_ioam",
        /// A report about a report.
        Nested => "nested",
        /// The IPv6 option that contains INT contradicts its shim, or extends beyond its header.
        BadOption => "bad_option",
        /// The SF flag of the INT header contradicts the shim's type: plain and stateful nodes share a path, or another extension
        /// uses the bits.
        SfMismatch => "sf_mismatch",
        /// SF-INT: no state, no node id requested, or fields in use that it does not have.
        BadSfHeader => "bad_sf_header",
        /// SF-INT that is not urgent and does not have exactly one record: a node of plain INT has added one.
        BadSfStack => "bad_sf_stack",
        /// A report without metadata of its own, about a packet with INT that no configured mark announces: neither the DSCP nor
        /// the port nor the probe marker of the profile.
        IntNotMarked => "int_not_marked",
        /// Report 2.0: the report's length contradicts its types, its metadata or its contents, so that nothing behind it can be read.
        BadReportLength => "bad_report_length",
        /// The bits of a report's version, but neither a packet that can be recognised nor a measurement: another protocol.
        NotAReport => "not_a_report",
        /// A datagram of sFlow version 5.
        Sflow => "sflow",
        /// A datagram of NetFlow version 5.
        NetflowV5 => "netflow_v5",
        /// A datagram of NetFlow version 9.
        NetflowV9 => "netflow_v9",
        /// A message of IPFIX.
        Ipfix => "ipfix",
        /// An aggregate of a kind that is not defined.
        BadAggregateKind => "bad_aggregate_kind",
        /// An aggregate without records.
        EmptyAggregate => "empty_aggregate",
        /// An aggregate's records are too short for its kind, or count and length contradict the bytes.
        BadRecordLength => "bad_record_length",
        /// An aggregate's node or flow is missing, or not that of its records.
        BadScope => "bad_scope",
        /// A summary whose count, minimum, maximum and sum no values can have.
        BadSummary => "bad_summary",
        /// DTA: an opcode that is not defined, or not allowed in this message.
        BadDtaOpcode => "bad_dta_opcode",
        /// DTA: priority 3, which is not defined.
        BadDtaPriority => "bad_dta_priority",
        /// DTA: lengths in the headers contradict the length of the datagram.
        BadDtaLength => "bad_dta_length",
        /// DTA: no copies, or more than four.
        BadCopies => "bad_copies",
        /// DTA: no key, or one of more than 64 bytes.
        BadKeyLength => "bad_key_length",
        /// DTA: no data, or more than 1024 bytes of it.
        BadDataLength => "bad_data_length",
        /// DTA: an Append of no entries, or of empty entries.
        BadEntries => "bad_entries",
        /// DTA: a postcard of hop 0, or of a hop beyond the path's end.
        BadHop => "bad_hop",
        /// DTA: a postcard with the value that is reserved for a missing hop.
        BadHopValue => "bad_hop_value",
        /// DTA: no columns, rows not 1 to 16, or counters that are not of 4 or 8 bytes (samples: of 8).
        BadSketch => "bad_sketch",
        /// DTA: an unknown operation to merge counters.
        BadMergeOp => "bad_merge_op",
        /// DTA: a control message with a type, length or level that is not defined.
        BadControl => "bad_control",
        /// UDP, but not to RoCEv2's port.
        NotRoce => "not_roce",
        /// RoCEv2: a transport version other than 0.
        BadTransportVersion => "bad_transport_version",
        /// RoCEv2: a partition key that is not the default one.
        BadPartitionKey => "bad_partition_key",
        /// RoCEv2: the invariant CRC contradicts the packet.
        BadIcrc => "bad_icrc",
        /// RoCEv2: too few or too many bytes for the opcode and its headers.
        BadRoceLength => "bad_roce_length",
        /// RoCEv2: the pad count contradicts the payload.
        BadRocePad => "bad_roce_pad",
        /// RoCEv2: an opcode that is not supported.
        BadRoceOpcode => "bad_roce_opcode",
        /// LLDP: a mandatory TLV is missing, misplaced or repeated, or the length of a TLV is not one that its type allows.
        BadLldp => "bad_lldp",
        /// INT with records beside an IOAM trace with nodes in a hop-by-hop header: the network wrote one of the two, and a host may have
        /// written the other.
        IntBesideTrace => "int_beside_trace",
        /// The configuration does not allow this address to report here.
        SenderNotAllowed => "sender_not_allowed",
        /// The configuration does not allow this address to report as the node that the header names, or the header names none.
        NodeNotAllowed => "node_not_allowed",
    }
}

impl Refusal {
    /// Number of causes, from the first, that the decoder in the kernel also reports.
    pub const IN_KERNEL: usize = Self::Ipfix as usize + 1;

    /// Returns the position of this cause in an array of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns whether the bytes are not known to be a report at all: neither a sequence number nor a report
    /// behind them can be trusted. Other causes concern the packet inside a report.
    pub(crate) const fn is_of_framing(self) -> bool {
        matches!(
            self,
            Self::Truncated
                | Self::UnknownVersion
                | Self::EmptyGroup
                | Self::BadLength
                | Self::BadNextProtocol
                | Self::BadMetadataLength
                | Self::LeftoverWords
                | Self::BadReportLength
                | Self::NotAReport
                | Self::Sflow
                | Self::NetflowV5
                | Self::NetflowV9
                | Self::Ipfix
        )
    }

    /// Returns whether the sequence number of a datagram counts like that of a report, although its first
    /// report of a defined type is refused for this cause. If not, the datagram may not be a report: its
    /// number counts only if the stream expects it.
    pub const fn counts_number(self) -> bool {
        matches!(self, Self::BadMetadataLength) || !(self.is_of_framing() || self.is_undefined())
    }

    /// Returns whether the contents of a report are not defined, though its length is known.
    pub(crate) const fn is_undefined(self) -> bool {
        matches!(self, Self::UndefinedReportType | Self::UndefinedInnerType)
    }
}

/// Counters by [`Refusal::index`]. An array of so many elements does not implement `Default`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusalCounts(pub [u64; Refusal::COUNT]);

impl Default for RefusalCounts {
    fn default() -> Self {
        Self([0; Refusal::COUNT])
    }
}

impl Deref for RefusalCounts {
    type Target = [u64; Refusal::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for RefusalCounts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl IntoIterator for RefusalCounts {
    type Item = u64;
    type IntoIter = array::IntoIter<u64, { Refusal::COUNT }>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a RefusalCounts {
    type Item = &'a u64;
    type IntoIter = slice::Iter<'a, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Refusal {}

/// The reason for which nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EmitError {
    /// The buffer is too short: this many bytes are needed.
    Short(usize),
    /// The values are invalid: a receiver would refuse them with this cause.
    Invalid(Refusal),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(needed) => write!(f, "the buffer is too short: {needed} bytes are needed"),
            Self::Invalid(refusal) => write!(f, "would be refused: {refusal}"),
        }
    }
}

impl core::error::Error for EmitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_position_and_names_are_distinct() {
        for (i, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal.index(), i);
            assert_eq!(Refusal::from_name(refusal.name()), Some(refusal));
        }
    }
}

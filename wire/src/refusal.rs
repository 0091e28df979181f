//! The reasons why received bytes are refused, one value per cause so that each cause has a counter
//! (`docs/reference/refusals.md`). The last two are about the sender rather than the bytes; parsers never return them.

use core::ops::{Deref, DerefMut};
use core::{array, fmt, slice};

crate::named! {
    /// A defect of received bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    #[repr(u8)]
    pub enum Refusal, name {
        /// The bytes end inside a header of the frame or the report.
        Truncated => "truncated",
        /// The frame is not IPv4 or IPv6, or has an unsupported link layer.
        NotIp => "not_ip",
        /// The packet is IP, but not UDP.
        NotUdp => "not_udp",
        /// The packet is an IP fragment; fragments are not reassembled.
        Fragment => "fragment",
        /// The IP header's version, header length or total length contradicts the bytes.
        BadIpHeader => "bad_ip_header",
        /// The UDP length is below 8, or larger than the IP payload.
        BadUdpLength => "bad_udp_length",
        /// No telemetry report has this version nibble.
        UnknownVersion => "unknown_version",
        /// A group header has no report.
        EmptyGroup => "empty_group",
        /// A report's length field contradicts the bytes or its own metadata bits.
        BadLength => "bad_length",
        /// A report's next-protocol code is not defined.
        BadNextProtocol => "bad_next_protocol",
        /// Report 2.0: the metadata length contradicts the metadata bits or the report length.
        BadMetadataLength => "bad_metadata_length",
        /// Report 2.0: the report type has no defined contents; skipped by its length.
        UndefinedReportType => "undefined_report_type",
        /// Report 2.0: the inner type is not defined; skipped by its length.
        UndefinedInnerType => "undefined_inner_type",
        /// Report 2.0: the inner type is "none", but there are inner contents; skipped by its length.
        LeftoverWords => "leftover_words",
        /// The packet was truncated inside the INT shim, header or stack.
        IntTruncated => "int_truncated",
        /// The bytes at the position where INT was marked are not an INT shim.
        BadShim => "bad_shim",
        /// The shim's next-protocol type contradicts the mark of INT.
        BadNextProtocolType => "bad_next_protocol_type",
        /// The INT metadata header has a version that its encapsulation does not allow.
        BadIntVersion => "bad_int_version",
        /// The INT length contradicts the header.
        BadIntLength => "bad_int_length",
        /// The words per hop contradict the instruction bitmap.
        BadHopMl => "bad_hop_ml",
        /// INT 0.5: the instruction count contradicts the instruction bitmap.
        BadInstructionCount => "bad_instruction_count",
        /// There are more hops than the header's maximum (INT 0.5), or than a remaining hop count can have (SF-INT).
        TooManyHops => "too_many_hops",
        /// The stack is not a whole number of hops.
        PartialHop => "partial_hop",
        /// A GRE header has an unknown version, or fields of unknown length.
        BadGre => "bad_gre",
        /// A Geneve option exceeds the end of the options.
        BadGeneve => "bad_geneve",
        /// An IOAM option is inconsistent.
        BadIoam => "bad_ioam",
        /// The report is about a report.
        Nested => "nested",
        /// The IPv6 option with INT contradicts its shim, or exceeds its header.
        BadOption => "bad_option",
        /// The SF flag of the INT header contradicts the shim type: plain and stateful nodes share a path, or another
        /// extension uses the bit.
        SfMismatch => "sf_mismatch",
        /// SF-INT: there is no state, no node ID is requested, or unsupported fields are used.
        BadSfHeader => "bad_sf_header",
        /// SF-INT: a packet that is not urgent does not have exactly one record, because a plain INT node added one.
        BadSfStack => "bad_sf_stack",
        /// A report without metadata of the reporter is about a packet with INT that no configured mark announces (DSCP,
        /// port or probe marker of the profile).
        IntNotMarked => "int_not_marked",
        /// Report 2.0: the report's length contradicts its types, metadata or contents, so that nothing after it can be
        /// parsed.
        BadReportLength => "bad_report_length",
        /// The bytes begin like a report but contain neither a recognizable packet nor a measurement: another protocol.
        NotAReport => "not_a_report",
        /// The datagram is sFlow version 5.
        Sflow => "sflow",
        /// The datagram is NetFlow version 5.
        NetflowV5 => "netflow_v5",
        /// The datagram is NetFlow version 9.
        NetflowV9 => "netflow_v9",
        /// The datagram is IPFIX.
        Ipfix => "ipfix",
        /// An aggregate has an undefined kind.
        BadAggregateKind => "bad_aggregate_kind",
        /// An aggregate has no records.
        EmptyAggregate => "empty_aggregate",
        /// An aggregate's records are too short for its kind, or count and length contradict the datagram.
        BadRecordLength => "bad_record_length",
        /// An aggregate's node or flow is missing, or differs from its records.
        BadScope => "bad_scope",
        /// A summary's count, minimum, maximum and sum are inconsistent.
        BadSummary => "bad_summary",
        /// DTA: the opcode is undefined, or not allowed in this message.
        BadDtaOpcode => "bad_dta_opcode",
        /// DTA: the priority is 3, which is undefined.
        BadDtaPriority => "bad_dta_priority",
        /// DTA: lengths in the headers contradict the datagram's length.
        BadDtaLength => "bad_dta_length",
        /// DTA: the number of copies is not 1 to 4.
        BadCopies => "bad_copies",
        /// DTA: the key length is not 1 to 64 bytes.
        BadKeyLength => "bad_key_length",
        /// DTA: the data length is not 1 to 1024 bytes.
        BadDataLength => "bad_data_length",
        /// DTA: an Append has no entries, or empty ones.
        BadEntries => "bad_entries",
        /// DTA: a postcard's hop is 0 or beyond the path's end.
        BadHop => "bad_hop",
        /// DTA: a postcard has the value reserved for missing hops.
        BadHopValue => "bad_hop_value",
        /// DTA: there are no columns, the rows are not 1 to 16, or the counters not 4 or 8 bytes (samples: 8).
        BadSketch => "bad_sketch",
        /// DTA: the merge operation is unknown.
        BadMergeOp => "bad_merge_op",
        /// DTA: a control message has an undefined type, length or level.
        BadControl => "bad_control",
        /// The datagram is not for RoCEv2's UDP port.
        NotRoce => "not_roce",
        /// RoCEv2: the transport version is not 0.
        BadTransportVersion => "bad_transport_version",
        /// RoCEv2: the partition key is not the default one.
        BadPartitionKey => "bad_partition_key",
        /// RoCEv2: the invariant CRC (ICRC) is wrong.
        BadIcrc => "bad_icrc",
        /// RoCEv2: the packet is too short or too long for the opcode.
        BadRoceLength => "bad_roce_length",
        /// RoCEv2: the pad count contradicts the payload.
        BadRocePad => "bad_roce_pad",
        /// RoCEv2: the opcode is not supported.
        BadRoceOpcode => "bad_roce_opcode",
        /// LLDP: a mandatory TLV is missing, misplaced or repeated, or a TLV has an invalid length.
        BadLldp => "bad_lldp",
        /// A packet has both INT with records and an IOAM trace with nodes in a hop-by-hop header: the network wrote one of
        /// them, and a host may have written the other.
        IntBesideTrace => "int_beside_trace",
        /// A tunnel: the version of an ERSPAN header does not belong to its GRE header.
        ErspanVersion => "erspan_version",
        /// A tunnel: a GTP-U extension header has the length 0, exceeds the message, or is one of too many.
        GtpExtension => "gtp_ext",
        /// A tunnel: the bytes behind MPLS labels read as more than one or as no kind of packet.
        EomplsUnclear => "eompls_unclear",
        /// A tunnel: the header of a PPPoE session contradicts itself.
        BadPppoe => "bad_pppoe",
        /// A tunnel: more than four are nested, or too many tags or labels follow one another.
        TunnelDepth => "tunnel_depth",
        /// A tunnel: the packet was truncated before an IP header in it ends.
        TunnelTruncated => "tunnel_truncated",
        /// A tunnel: its contents are not IP.
        TunnelNotIp => "tunnel_not_ip",
        /// The configuration does not allow reports from this address.
        SenderNotAllowed => "sender_not_allowed",
        /// The configuration does not allow this address to report as the node in the header, or the header has none.
        NodeNotAllowed => "node_not_allowed",
    }
}

impl Refusal {
    /// Number of causes, counted from the first, that the kernel's decoder also reports.
    pub const IN_KERNEL: usize = Self::Ipfix as usize + 1;

    /// Returns the index of this cause in an array of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns whether the bytes may not be a report at all, so that neither the sequence number nor later reports can be
    /// trusted. Other causes concern the packet in a report.
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

    /// Returns whether a datagram's sequence number counts although its first report of a defined type is refused for this
    /// cause. If not, the datagram may not be a report, and its number counts only if it is the expected one.
    pub const fn counts_number(self) -> bool {
        matches!(self, Self::BadMetadataLength) || !(self.is_of_framing() || self.is_undefined())
    }

    /// Returns whether a report's contents are undefined although its length is known.
    pub(crate) const fn is_undefined(self) -> bool {
        matches!(self, Self::UndefinedReportType | Self::UndefinedInnerType)
    }
}

/// Counters indexed by [`Refusal::index`]. A wrapper, because arrays of this length do not implement `Default`.
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

/// The reason why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EmitError {
    /// The buffer is too short; contains the number of bytes needed.
    Short(usize),
    /// The values are invalid: a receiver would refuse them for this cause.
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

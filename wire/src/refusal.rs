//! Why received bytes were refused: one small value per cause, so that each cause has a counter. The last two are about the
//! sender, not the bytes: a parser never returns them.

use core::fmt;

/// Everything that can be wrong with received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The bytes end inside a header of the frame or the report.
    Truncated,
    /// Not IPv4 or IPv6, or an unsupported link layer.
    NotIp,
    /// An IP packet, but not UDP.
    NotUdp,
    /// An IP fragment; datagrams are not reassembled.
    Fragment,
    /// The IP header's version, header length or total length contradicts the bytes.
    BadIpHeader,
    /// The UDP length is below 8, or larger than the IP payload.
    BadUdpLength,
    /// No telemetry report has this version nibble.
    UnknownVersion,
    /// A group header without a report.
    EmptyGroup,
    /// A report's length field contradicts the bytes or its own metadata bits.
    BadLength,
    /// A report's next-protocol code is not defined.
    BadNextProtocol,
    /// Report 2.0: the metadata length contradicts the metadata bits or the report length.
    BadMetadataLength,
    /// Report 2.0: a report type whose contents are not defined; skipped by its length.
    UndefinedReportType,
    /// Report 2.0: an inner type that is not defined; skipped by its length.
    UndefinedInnerType,
    /// Report 2.0: inner type "none", but the report has inner contents; skipped by its length.
    LeftoverWords,
    /// The packet was truncated inside the INT shim, header or stack.
    IntTruncated,
    /// The bytes at the position where INT was marked are not an INT shim.
    BadShim,
    /// The shim's next-protocol type contradicts the mark by which INT was found.
    BadNextProtocolType,
    /// The INT metadata header has a version that its carrier does not allow.
    BadIntVersion,
    /// The INT length contradicts the header.
    BadIntLength,
    /// The words per hop contradict the instruction bitmap.
    BadHopMl,
    /// INT 0.5: the instruction count contradicts the instruction bitmap.
    BadInstructionCount,
    /// INT 0.5: more hops than the header's own maximum.
    TooManyHops,
    /// The stack is not a whole number of hops.
    PartialHop,
    /// A GRE header of an unknown version, or with fields of unknown length.
    BadGre,
    /// A Geneve option extends beyond the end of the options.
    BadGeneve,
    /// An IOAM option contradicts itself.
    BadIoam,
    /// A report about a report.
    Nested,
    /// The IPv6 option that contains INT contradicts its shim, or extends beyond its header.
    BadOption,
    /// The SF flag of the INT header contradicts the shim's type: plain and stateful nodes share a path, or another extension
    /// uses the bits.
    SfMismatch,
    /// SF-INT: no state, no node id requested, or fields in use that it does not have.
    BadSfHeader,
    /// SF-INT that is not urgent and does not have exactly one record: a node of plain INT has added one.
    BadSfStack,
    /// A report without metadata of its own, about a packet with INT that no configured mark announces: neither the DSCP nor
    /// the port nor the probe marker of the profile.
    IntNotMarked,
    /// Report 2.0: the report's length contradicts its types, its metadata or its contents, so that nothing behind it can be read.
    BadReportLength,
    /// The bits of a report's version, but neither a packet that can be recognised nor a measurement: another protocol.
    NotAReport,
    /// A datagram of sFlow version 5.
    Sflow,
    /// A datagram of NetFlow version 5.
    NetflowV5,
    /// A datagram of NetFlow version 9.
    NetflowV9,
    /// A message of IPFIX.
    Ipfix,
    /// An aggregate of a kind that is not defined.
    BadAggregateKind,
    /// An aggregate without records.
    EmptyAggregate,
    /// An aggregate's records are too short for its kind, or count and length contradict the bytes.
    BadRecordLength,
    /// An aggregate's node or flow is missing, or not that of its records.
    BadScope,
    /// A summary whose count, minimum, maximum and sum no values can have.
    BadSummary,
    /// DTA: an opcode that is not defined, or not allowed in this message.
    BadDtaOpcode,
    /// DTA: priority 3, which is not defined.
    BadDtaPriority,
    /// DTA: lengths in the headers contradict the length of the datagram.
    BadDtaLength,
    /// DTA: no copies, or more than four.
    BadCopies,
    /// DTA: no key, or one of more than 64 bytes.
    BadKeyLength,
    /// DTA: no data, or more than 1024 bytes of it.
    BadDataLength,
    /// DTA: an Append of no entries, or of empty entries.
    BadEntries,
    /// DTA: a postcard of hop 0, or of a hop beyond the path's end.
    BadHop,
    /// DTA: a postcard with the value that is reserved for a missing hop.
    BadHopValue,
    /// DTA: no columns, rows not 1 to 16, or counters that are not of 4 or 8 bytes (samples: of 8).
    BadSketch,
    /// DTA: an unknown operation to merge counters.
    BadMergeOp,
    /// DTA: a control message with a type, length or level that is not defined.
    BadControl,
    /// UDP, but not to RoCEv2's port.
    NotRoce,
    /// RoCEv2: a transport version other than 0.
    BadTransportVersion,
    /// RoCEv2: a partition key that is not the default one.
    BadPartitionKey,
    /// RoCEv2: the invariant CRC contradicts the packet.
    BadIcrc,
    /// RoCEv2: too few or too many bytes for the opcode and its headers.
    BadRoceLength,
    /// RoCEv2: the pad count contradicts the payload.
    BadRocePad,
    /// RoCEv2: an opcode that is not supported.
    BadRoceOpcode,
    /// LLDP: a mandatory TLV is missing, misplaced or repeated, or the length of a TLV is not one that its type allows.
    BadLldp,
    /// INT with records beside an IOAM trace with nodes in a hop-by-hop header: the network wrote one of the two, and a host may have
    /// written the other.
    IntBesideTrace,
    /// The configuration does not allow this address to report here.
    SenderNotAllowed,
    /// The configuration does not allow this address to report as the node that the header names, or the header names none.
    NodeNotAllowed,
}

impl Refusal {
    /// All causes, in the order of their [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::Truncated,
        Self::NotIp,
        Self::NotUdp,
        Self::Fragment,
        Self::BadIpHeader,
        Self::BadUdpLength,
        Self::UnknownVersion,
        Self::EmptyGroup,
        Self::BadLength,
        Self::BadNextProtocol,
        Self::BadMetadataLength,
        Self::UndefinedReportType,
        Self::UndefinedInnerType,
        Self::LeftoverWords,
        Self::IntTruncated,
        Self::BadShim,
        Self::BadNextProtocolType,
        Self::BadIntVersion,
        Self::BadIntLength,
        Self::BadHopMl,
        Self::BadInstructionCount,
        Self::TooManyHops,
        Self::PartialHop,
        Self::BadGre,
        Self::BadGeneve,
        Self::BadIoam,
        Self::Nested,
        Self::BadOption,
        Self::SfMismatch,
        Self::BadSfHeader,
        Self::BadSfStack,
        Self::IntNotMarked,
        Self::BadReportLength,
        Self::NotAReport,
        Self::Sflow,
        Self::NetflowV5,
        Self::NetflowV9,
        Self::Ipfix,
        Self::BadAggregateKind,
        Self::EmptyAggregate,
        Self::BadRecordLength,
        Self::BadScope,
        Self::BadSummary,
        Self::BadDtaOpcode,
        Self::BadDtaPriority,
        Self::BadDtaLength,
        Self::BadCopies,
        Self::BadKeyLength,
        Self::BadDataLength,
        Self::BadEntries,
        Self::BadHop,
        Self::BadHopValue,
        Self::BadSketch,
        Self::BadMergeOp,
        Self::BadControl,
        Self::NotRoce,
        Self::BadTransportVersion,
        Self::BadPartitionKey,
        Self::BadIcrc,
        Self::BadRoceLength,
        Self::BadRocePad,
        Self::BadRoceOpcode,
        Self::BadLldp,
        Self::IntBesideTrace,
        Self::SenderNotAllowed,
        Self::NodeNotAllowed,
    ];

    /// Number of all causes of refusal.
    pub const COUNT: usize = Self::NodeNotAllowed as usize + 1;

    /// Number of causes, from the first, that the decoder in the kernel also reports.
    pub const IN_KERNEL: usize = Self::Ipfix as usize + 1;

    /// Position of this cause in an array of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the bytes are not known to be a report at all: neither a sequence number nor a report behind them can be trusted.
    /// Other causes concern the packet inside a report.
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

    /// Whether the sequence number of a datagram counts like that of a report, although its first report of a defined type is refused
    /// for this cause. If not, the datagram may not be a report: its number counts only if the stream expects it.
    pub const fn counts_number(self) -> bool {
        matches!(self, Self::BadMetadataLength) || !(self.is_of_framing() || self.is_undefined())
    }

    /// Whether the contents of a report are not defined, though its length is known.
    pub(crate) const fn is_undefined(self) -> bool {
        matches!(self, Self::UndefinedReportType | Self::UndefinedInnerType)
    }

    /// The cause as a word, for counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::NotIp => "not_ip",
            Self::NotUdp => "not_udp",
            Self::Fragment => "fragment",
            Self::BadIpHeader => "bad_ip_header",
            Self::BadUdpLength => "bad_udp_length",
            Self::UnknownVersion => "unknown_version",
            Self::EmptyGroup => "empty_group",
            Self::BadLength => "bad_length",
            Self::BadNextProtocol => "bad_next_protocol",
            Self::BadMetadataLength => "bad_metadata_length",
            Self::UndefinedReportType => "undefined_report_type",
            Self::UndefinedInnerType => "undefined_inner_type",
            Self::LeftoverWords => "leftover_words",
            Self::IntTruncated => "int_truncated",
            Self::BadShim => "bad_shim",
            Self::BadNextProtocolType => "bad_next_protocol_type",
            Self::BadIntVersion => "bad_int_version",
            Self::BadIntLength => "bad_int_length",
            Self::BadHopMl => "bad_hop_ml",
            Self::BadInstructionCount => "bad_instruction_count",
            Self::TooManyHops => "too_many_hops",
            Self::PartialHop => "partial_hop",
            Self::BadGre => "bad_gre",
            Self::BadGeneve => "bad_geneve",
            Self::BadIoam => "bad_ioam",
            Self::Nested => "nested",
            Self::BadOption => "bad_option",
            Self::SfMismatch => "sf_mismatch",
            Self::BadSfHeader => "bad_sf_header",
            Self::BadSfStack => "bad_sf_stack",
            Self::IntNotMarked => "int_not_marked",
            Self::BadReportLength => "bad_report_length",
            Self::NotAReport => "not_a_report",
            Self::Sflow => "sflow",
            Self::NetflowV5 => "netflow_v5",
            Self::NetflowV9 => "netflow_v9",
            Self::Ipfix => "ipfix",
            Self::BadAggregateKind => "bad_aggregate_kind",
            Self::EmptyAggregate => "empty_aggregate",
            Self::BadRecordLength => "bad_record_length",
            Self::BadScope => "bad_scope",
            Self::BadSummary => "bad_summary",
            Self::BadDtaOpcode => "bad_dta_opcode",
            Self::BadDtaPriority => "bad_dta_priority",
            Self::BadDtaLength => "bad_dta_length",
            Self::BadCopies => "bad_copies",
            Self::BadKeyLength => "bad_key_length",
            Self::BadDataLength => "bad_data_length",
            Self::BadEntries => "bad_entries",
            Self::BadHop => "bad_hop",
            Self::BadHopValue => "bad_hop_value",
            Self::BadSketch => "bad_sketch",
            Self::BadMergeOp => "bad_merge_op",
            Self::BadControl => "bad_control",
            Self::NotRoce => "not_roce",
            Self::BadTransportVersion => "bad_transport_version",
            Self::BadPartitionKey => "bad_partition_key",
            Self::BadIcrc => "bad_icrc",
            Self::BadRoceLength => "bad_roce_length",
            Self::BadRocePad => "bad_roce_pad",
            Self::BadRoceOpcode => "bad_roce_opcode",
            Self::BadLldp => "bad_lldp",
            Self::IntBesideTrace => "int_beside_trace",
            Self::SenderNotAllowed => "sender_not_allowed",
            Self::NodeNotAllowed => "node_not_allowed",
        }
    }

    /// The cause with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.name() == name)
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
    /// It is invalid: a receiver would refuse it with this cause.
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

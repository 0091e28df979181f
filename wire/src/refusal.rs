//! Why received bytes were refused: one small value per cause, so that each cause has a counter.

use core::fmt;

/// Everything that can be wrong with received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// Ends inside a header of the frame or the report.
    Truncated,
    /// Not IPv4 or IPv6, or a link layer we do not read.
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
    /// A group header with no report behind it.
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
    /// Report 2.0: inner type "none", and yet words are left; skipped by its length.
    LeftoverWords,
    /// The packet was cut inside the INT shim, header or stack.
    IntTruncated,
    /// The first bytes where INT was marked are no INT shim.
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
    /// A GRE header with fields we cannot step over.
    BadGre,
    /// A Geneve option runs over the options' end.
    BadGeneve,
    /// An IOAM option contradicts itself.
    BadIoam,
    /// A report about a report.
    Nested,
    /// The IPv6 option that holds INT contradicts the shim in it, or runs over its header's end.
    BadOption,
    /// The SF flag of the INT header contradicts the shim's type: plain and stateful nodes share a path, or the bits are
    /// another's.
    SfMismatch,
    /// SF-INT: no state, no node id asked for, or fields in use that it does not have.
    BadSfHeader,
    /// SF-INT that is not urgent: not just one record. A plain node has pushed.
    BadSfStack,
    /// An aggregate of a kind that is not defined.
    BadAggregateKind,
    /// An aggregate without a record.
    EmptyAggregate,
    /// An aggregate's records are too short for its kind, or count and length contradict the bytes.
    BadRecordLength,
    /// An aggregate's node or flow is missing, or not that of its records.
    BadScope,
    /// A summary whose numbers no values have.
    BadSummary,
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
        Self::BadAggregateKind,
        Self::EmptyAggregate,
        Self::BadRecordLength,
        Self::BadScope,
        Self::BadSummary,
    ];

    /// How many causes there are.
    pub const COUNT: usize = Self::BadSummary as usize + 1;

    /// How many of them, the first ones, the decoder in the kernel tells too.
    pub const IN_KERNEL: usize = Self::BadSfStack as usize + 1;

    /// Position of this cause in an array of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
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
            Self::BadAggregateKind => "bad_aggregate_kind",
            Self::EmptyAggregate => "empty_aggregate",
            Self::BadRecordLength => "bad_record_length",
            Self::BadScope => "bad_scope",
            Self::BadSummary => "bad_summary",
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

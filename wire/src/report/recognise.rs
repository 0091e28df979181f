//! Distinguishes telemetry reports from other protocols on a report port. Many protocols' datagrams begin with a version
//! nibble of 0, 1 or 2, so a report must contain something recognizable (`docs/reference/wire-formats.md`, section 2.5).

use super::{FirstHeader, Flags, InnerPacket, Report, Version};
use crate::bytes::{try_u16, try_u32, u16_at};
use crate::ethernet;
use crate::ethernet::ethertype;
use crate::refusal::Refusal;

/// Length of an IPv4 header without options, bytes.
const IPV4_HEADER_LEN: usize = 20;
/// Length of the IPv6 header, bytes.
const IPV6_HEADER_LEN: usize = 40;

/// Detects flow-export formats (sFlow, NetFlow, IPFIX), whose version numbers look like a Report 0.5 without flags.
#[cold]
pub(super) fn flow_format(payload: &[u8]) -> Option<Refusal> {
    const NETFLOW_5_HEADER: usize = 24;
    const NETFLOW_5_RECORD: usize = 48;
    const NETFLOW_9_HEADER: usize = 20;
    /// Length of a FlowSet without records: ID and length.
    const MIN_FLOW_SET: usize = 4;
    let version = try_u16(payload, 0)?;
    // The count of records in NetFlow, the lower half of the version in sFlow, the length of the message in IPFIX.
    let count = usize::from(try_u16(payload, 2)?);
    match (version, count) {
        (0, 5) if is_sflow(payload) == Some(true) => Some(Refusal::Sflow),
        (5, 1..) if payload.len() == NETFLOW_5_HEADER + NETFLOW_5_RECORD * count => Some(Refusal::NetflowV5),
        (9, 1..) => {
            let body_len = payload.len().checked_sub(NETFLOW_9_HEADER)?;
            let flow_set_len = usize::from(try_u16(payload, NETFLOW_9_HEADER + 2)?);
            (count <= body_len / MIN_FLOW_SET && (MIN_FLOW_SET..=body_len).contains(&flow_set_len))
                .then_some(Refusal::NetflowV9)
        }
        (10, length) if length == payload.len() => Some(Refusal::Ipfix),
        _ => None,
    }
}

/// Returns whether a datagram that begins with sFlow's version is sFlow: the agent's address type and the sample sizes must
/// fit.
fn is_sflow(payload: &[u8]) -> Option<bool> {
    /// Address types of the sFlow version 5 datagram.
    const AGENT_IPV4: u32 = 1;
    const AGENT_IPV6: u32 = 2;
    /// Length of a sample's type and length fields, bytes.
    const SAMPLE_HEADER: usize = 8;
    let header_len = match try_u32(payload, 4)? {
        AGENT_IPV4 => 28,
        AGENT_IPV6 => 40,
        _ => return None,
    };
    let sample_count = try_u32(payload, header_len - 4)? as usize;
    let samples_len = payload.len() - header_len;
    if sample_count == 0 {
        return Some(samples_len == 0);
    }
    let first_sample_len = try_u32(payload, header_len + 4)? as usize;
    Some(sample_count <= samples_len / SAMPLE_HEADER && first_sample_len <= samples_len - SAMPLE_HEADER)
}

/// Returns whether the parsed packet is insufficient evidence for a report, so that its header must be examined: it has
/// neither INT, nor a flow announced by an EtherType. Without an EtherType, the version nibble of an IP header alone makes a
/// parser see a flow.
#[inline(always)]
pub(super) fn needs_more_evidence(report: &Report<'_>, packet: InnerPacket<'_>) -> bool {
    report.int.is_none() && (report.flow.is_none() || packet.first != FirstHeader::Ethernet)
}

/// Whether the packet in a report is itself a report about telemetry, which would be reported endlessly. That counts only if
/// the report around it is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nesting {
    NotNested,
    Nested,
}

impl Nesting {
    /// Separates [`Refusal::Nested`] from the other results of parsing the packet in a report.
    ///
    /// # Errors
    /// All other refusals.
    #[inline(always)]
    pub(super) fn of_packet(parsed: Result<(), Refusal>) -> Result<Self, Refusal> {
        match parsed {
            Ok(()) => Ok(Self::NotNested),
            Err(Refusal::Nested) => Ok(Self::Nested),
            Err(refusal) => Err(refusal),
        }
    }

    /// Refuses a nested report.
    ///
    /// # Errors
    /// [`Refusal::Nested`].
    #[inline(always)]
    pub(super) fn refuse_nested(self) -> Result<(), Refusal> {
        match self {
            Self::NotNested => Ok(()),
            Self::Nested => Err(Refusal::Nested),
        }
    }
}

/// The evidence in a Report 0.5 or 1.0 whose packet proves nothing.
pub(super) struct UngroupedEvidence<'a> {
    pub(super) version: Version,
    pub(super) payload: &'a [u8],
    pub(super) packet: InnerPacket<'a>,
    pub(super) has_flow: bool,
    pub(super) flags: Flags,
    /// The header has a node field: all reports except Report 0.5 without drop or local header.
    pub(super) has_node: bool,
    /// All reserved bits of the header are 0.
    pub(super) is_reserved_zero: bool,
    /// The padding of a drop header, if there is one, is 0 too.
    pub(super) is_padding_zero: bool,
    /// The reporter added its own metadata.
    pub(super) has_metadata: bool,
}

impl UngroupedEvidence<'_> {
    /// Accepts the report if its contents prove that it is one.
    ///
    /// # Errors
    /// [`Refusal::NotAReport`] if they do not.
    #[cold]
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let is_report = self.flags != Flags::default()
            && self.is_reserved_zero
            && (self.packet.first == FirstHeader::Ethernet && has_known_header(&self.packet)
                || self.is_padding_zero
                    && self.has_plausible_contents()
                    && !is_dns(self.payload)
                    && !(self.version == Version::V05 && is_radius(self.payload))
                    && !(self.version == Version::V10 && is_ntp(self.payload)));
        if is_report {
            Ok(())
        } else {
            Err(Refusal::NotAReport)
        }
    }

    fn has_plausible_contents(&self) -> bool {
        self.has_flow
            || has_llc_header(&self.packet)
            || self.has_node && (ends_in_first_header(&self.packet) || self.has_plausible_packet())
    }

    fn has_plausible_packet(&self) -> bool {
        match self.packet.first {
            // A packet may have been dropped because of its addresses.
            FirstHeader::Ethernet if self.flags.contains(Flags::DROP) => has_ethernet_header(&self.packet),
            FirstHeader::Ethernet => has_unicast_source(&self.packet),
            // A packet may have been dropped because of its IP version.
            _ => has_known_header(&self.packet) || self.has_metadata && self.flags.contains(Flags::DROP),
        }
    }
}

/// The evidence in an individual report of Report 2.0 whose packet proves nothing.
pub(super) struct IndividualEvidence<'a> {
    pub(super) inner_type: u8,
    pub(super) packet: InnerPacket<'a>,
    pub(super) has_flow: bool,
    /// The inner contents are complete and not empty.
    pub(super) has_contents: bool,
    /// D, Q, F or I is set.
    pub(super) has_flags: bool,
    /// The bits after the flags are 0.
    pub(super) is_reserved_zero: bool,
    /// The reporter added its own metadata.
    pub(super) has_metadata: bool,
    /// The main metadata has contents: words of metadata or of a domain, or flags.
    pub(super) has_main_metadata: bool,
}

impl IndividualEvidence<'_> {
    /// Accepts the report if its contents prove that it is one.
    ///
    /// # Errors
    /// [`Refusal::NotAReport`] if they do not.
    #[cold]
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let is_announced = self.has_metadata || self.has_flags && self.is_reserved_zero;
        let is_report = match (self.inner_type, self.packet.first) {
            (0, _) => self.has_main_metadata,
            (_, FirstHeader::Nothing) => {
                self.is_reserved_zero && (self.has_main_metadata || self.has_contents && self.has_flags)
            }
            (_, FirstHeader::Ethernet) => {
                self.has_metadata
                    || is_announced && (has_known_header(&self.packet) || has_llc_header(&self.packet))
            }
            _ if self.has_flow => self.has_metadata || self.is_reserved_zero,
            _ => is_announced && has_known_header(&self.packet),
        };
        if is_report {
            Ok(())
        } else {
            Err(Refusal::NotAReport)
        }
    }

    /// Returns whether a report with an unrecognizable packet is acceptable because the lengths in its datagram are
    /// consistent: the packet is whatever a host sent.
    #[cold]
    pub(super) fn has_consistent_lengths(&self) -> bool {
        let has_packet = match self.packet.first {
            FirstHeader::Nothing => false,
            FirstHeader::Ethernet => has_ethernet_header(&self.packet),
            _ => self.has_metadata,
        };
        self.has_flags && self.is_reserved_zero && has_packet
    }
}

/// Returns whether the packet begins with a recognizable header, although no IP header was parsed.
fn has_known_header(packet: &InnerPacket<'_>) -> bool {
    let version = packet.packet.first().map(|first| first >> 4);
    match packet.first {
        FirstHeader::Ethernet => try_u16(packet.packet, 12).is_some_and(ethertype::is_known),
        FirstHeader::Ipv4 => version == Some(4),
        FirstHeader::Ipv6 => version == Some(6),
        FirstHeader::Nothing => false,
    }
}

/// Returns whether the packet ends inside its first header.
fn ends_in_first_header(packet: &InnerPacket<'_>) -> bool {
    let header_len = match packet.first {
        FirstHeader::Ethernet => ethernet::HEADER_LEN,
        FirstHeader::Ipv4 => IPV4_HEADER_LEN,
        FirstHeader::Ipv6 => IPV6_HEADER_LEN,
        FirstHeader::Nothing => 0,
    };
    let may_be_header =
        packet.first == FirstHeader::Ethernet || packet.packet.is_empty() || has_known_header(packet);
    packet.packet.len() < header_len && may_be_header
}

/// Returns whether a frame has a complete Ethernet header.
fn has_ethernet_header(packet: &InnerPacket<'_>) -> bool {
    packet.packet.len() >= ethernet::HEADER_LEN
}

/// Returns whether a frame has a unicast source address other than 0.
fn has_unicast_source(packet: &InnerPacket<'_>) -> bool {
    packet
        .packet
        .get(6..ethernet::HEADER_LEN - 2)
        .is_some_and(|source| source[0] & 1 == 0 && source.iter().any(|byte| *byte != 0))
}

/// Returns whether a frame has an IEEE 802.3 length instead of an EtherType, followed by SNAP, a BPDU, IS-IS, NetBIOS or
/// IPX.
fn has_llc_header(packet: &InnerPacket<'_>) -> bool {
    const MAX_LENGTH: u16 = 1500;
    /// Destination and source service access points of SNAP, BPDUs, IS-IS, NetBIOS and IPX.
    const ACCESS_POINTS: [u16; 5] = [0xaaaa, 0x4242, 0xfefe, 0xf0f0, 0xe0e0];
    let frame = packet.packet;
    packet.first == FirstHeader::Ethernet
        && try_u16(frame, 12).is_some_and(|length| length <= MAX_LENGTH)
        && try_u16(frame, ethernet::HEADER_LEN).is_some_and(|points| ACCESS_POINTS.contains(&points))
}

/// Returns whether this is a RADIUS message: its attributes end at the length in its header, and only zeros follow.
fn is_radius(payload: &[u8]) -> bool {
    const HEADER: usize = 20;
    const MAX_PADDING: usize = 64;
    let Some(len) = try_u16(payload, 2).map(usize::from) else {
        return false;
    };
    let Some((message, padding)) = payload.split_at_checked(len) else {
        return false;
    };
    let Some(mut attributes) = message.get(HEADER..) else {
        return false;
    };
    while let [_, len @ 2..=255, ..] = attributes {
        let Some(rest) = attributes.get(usize::from(*len)..) else {
            return false;
        };
        attributes = rest;
    }
    attributes.is_empty() && padding.len() <= MAX_PADDING && padding.iter().all(|byte| *byte == 0)
}

/// Returns whether this is an NTP version 2 message, which begins like a Report 1.0 and whose precision looks like Q and F.
/// Checks its length with or without authentication, the mode (server or broadcast), the stratum, a precision below a
/// second, and a transmit time after 1968.
fn is_ntp(payload: &[u8]) -> bool {
    const STRATUM: usize = 1;
    const PRECISION: usize = 3;
    const TRANSMIT: usize = 40;
    const MODE_SERVER: u8 = 4;
    const MODE_BROADCAST: u8 = 5;
    const MAX_STRATUM: u8 = 16;
    /// -32 as a signed byte: the precision is the log2 of seconds, and the finest is a unit of the timestamps.
    const FINEST_PRECISION: u8 = 0xe0;
    matches!(payload.len(), 48 | 60 | 68 | 72)
        && matches!(payload[0] & 7, MODE_SERVER | MODE_BROADCAST)
        && payload[STRATUM] <= MAX_STRATUM
        && payload[PRECISION] >= FINEST_PRECISION
        && payload[TRANSMIT] >= 0x80
}

/// Returns whether this is a DNS message with one question and no more records than its bytes can hold. Its first 16 bits
/// are arbitrary and others look like reserved bits and sequence numbers. A question for the root counts only if the single
/// other record is EDNS.
fn is_dns(payload: &[u8]) -> bool {
    const HEADER: usize = 12;
    const MAX_NAME: usize = 255;
    /// Internet, Chaos, Hesiod, none and any (RFC 6895, section 3.2).
    const CLASSES: [u16; 5] = [1, 3, 4, 254, 255];
    /// Root name and type of the OPT record (RFC 6891).
    const EDNS: [u8; 3] = [0, 0, 41];
    /// The two top bits of a label's length must be 0: no compression in the first name.
    const MAX_LABEL: u8 = 63;
    if try_u16(payload, 4) != Some(1) {
        return false;
    }
    if payload.get(HEADER) == Some(&0) {
        return payload.get(6..HEADER) == Some(&[0, 0, 0, 0, 0, 1])
            && payload.get(17..20) == Some(&EDNS)
            && holds_records(payload, 17);
    }
    let mut offset = HEADER;
    while offset < HEADER + MAX_NAME {
        match payload.get(offset) {
            // Type and class follow the name. The top bit of the class is used by mDNS.
            Some(0) => {
                let class = payload.get(offset + 3..offset + 5);
                return class.is_some_and(|class| CLASSES.contains(&(u16_at(class, 0) & 0x7fff)))
                    && holds_records(payload, offset + 5);
            }
            Some(label) if *label <= MAX_LABEL => offset += 1 + usize::from(*label),
            _ => return false,
        }
    }
    false
}

/// Returns whether the bytes from `offset`, after the question, can hold the answers, authorities and additional records that a
/// DNS header counts.
fn holds_records(payload: &[u8], offset: usize) -> bool {
    /// Length of the shortest record: root name, type, class, TTL and a zero length.
    const MIN_RECORD: usize = 11;
    let counts = [6, 8, 10].map(|count| usize::from(u16_at(payload, count)));
    counts.iter().sum::<usize>() * MIN_RECORD <= payload.len().saturating_sub(offset)
}

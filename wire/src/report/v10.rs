//! Telemetry Report 1.0: parser and writer (`docs/reference/wire-formats.md`, section 2.3). The truncated packet extends to
//! the end of the datagram.

use super::{
    FirstHeader, Flags, InnerPacket, Peek, Peeked, Report, ReporterMetadata, Version, drop_reason, inside,
    recognise,
};
use crate::bytes::{put_u32, u32_at};
use crate::hop::Hop;
use crate::int::Layout;
use crate::int::layout::Layouts;
use crate::profile::{Dialect, Profile};
use crate::refusal::Refusal;

/// Length of the fixed header, bytes.
pub const LEN: usize = 16;

mod field {
    pub(super) const WORD: usize = 0;
    pub(super) const SWITCH_ID: usize = 4;
    pub(super) const SEQ: usize = 8;
    pub(super) const INGRESS_TS: usize = 12;
}

/// The protocol after the header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NextProtocol {
    /// An Ethernet frame follows.
    Ethernet,
    /// An IPv4 packet follows.
    Ipv4,
    /// An IPv6 packet follows.
    Ipv6,
    /// A code that is undefined.
    Unknown(u8),
}

impl From<u8> for NextProtocol {
    fn from(code: u8) -> Self {
        match code {
            0 => Self::Ethernet,
            1 => Self::Ipv4,
            2 => Self::Ipv6,
            code => Self::Unknown(code),
        }
    }
}

impl From<NextProtocol> for u8 {
    fn from(next: NextProtocol) -> Self {
        match next {
            NextProtocol::Ethernet => 0,
            NextProtocol::Ipv4 => 1,
            NextProtocol::Ipv6 => 2,
            NextProtocol::Unknown(code) => code,
        }
    }
}

/// The fields of a report header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Protocol of the bytes after the header.
    pub next: NextProtocol,
    /// Bitmap of the optional words, six bits, most significant first: ports, hop latency, queue, egress timestamp, queue
    /// and drop reason, egress utilization.
    pub bits: u8,
    /// Flags D, Q and F.
    pub flags: Flags,
    /// Hardware subsystem of the reporter, six bits.
    pub hw_id: u8,
    /// Node ID of the reporter.
    pub switch_id: u32,
    /// Sequence number of the report, 32 bits.
    pub seq: u32,
    /// Ingress timestamp, 32 bits, device units.
    pub ingress_ts: u32,
    /// Values of the optional words.
    pub metadata: Hop,
    /// Drop reason, if `bits` has its bit.
    pub drop_reason: Option<u8>,
}

impl Repr {
    /// Parses a header, and returns the remaining bytes.
    ///
    /// # Errors
    /// [`Refusal`] as in the decoder.
    pub fn parse<'a>(payload: &'a [u8], profile: &Profile) -> Result<(Self, &'a [u8]), Refusal> {
        let head = head(payload, profile)?;
        let layout = Layout::report_10(head.metadata);
        let (header, inner) = payload.split_at(head.len);
        let record = &header[LEN..];
        let repr = Self {
            next: NextProtocol::from(head.next),
            bits: head.metadata,
            flags: head.flags(profile.dialect),
            hw_id: (head.word & 0x3f) as u8,
            switch_id: u32_at(header, field::SWITCH_ID),
            seq: u32_at(header, field::SEQ),
            ingress_ts: u32_at(header, field::INGRESS_TS),
            metadata: layout.hop(record),
            drop_reason: drop_reason(&layout, record),
        };
        Ok((repr, inner))
    }

    /// Returns the length of the header with its optional words, bytes.
    pub fn header_len(&self) -> usize {
        LEN + self.bits.count_ones() as usize * 4
    }

    /// Writes the header in a dialect, and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len).
    pub fn emit(&self, dialect: Dialect, out: &mut [u8]) -> usize {
        let len = self.header_len();
        let out = &mut out[..len];
        let dqf = self.flags.bit(Flags::DROP) << 2
            | self.flags.bit(Flags::QUEUE) << 1
            | self.flags.bit(Flags::FLOW);
        let nibble = if dialect == Dialect::IntCollectorGen {
            1
        } else {
            len as u32 / 4
        };
        let word = 1 << 28
            | nibble << 24
            | (u32::from(u8::from(self.next)) & 7) << 21
            | (u32::from(self.bits) & 0x3f) << 15
            | dqf << if dialect == Dialect::Onos { 12 } else { 6 }
            | u32::from(self.hw_id) & 0x3f;
        put_u32(out, field::WORD, word);
        put_u32(out, field::SWITCH_ID, self.switch_id);
        put_u32(out, field::SEQ, self.seq);
        put_u32(out, field::INGRESS_TS, self.ingress_ts);
        let layout = Layout::report_10(self.bits);
        layout.write(&self.metadata, &mut out[LEN..]);
        let drop_queue = self.metadata.drop_queue_id.or(self.metadata.queue_id);
        layout.write_drop(drop_queue, self.drop_reason, &mut out[LEN..]);
        len
    }
}

/// The first word and its decoded fields.
#[derive(Clone, Copy)]
struct Head {
    word: u32,
    metadata: u8,
    len: usize,
    next: u8,
}

#[inline]
fn head(payload: &[u8], profile: &Profile) -> Result<Head, Refusal> {
    let Some(fixed) = payload.first_chunk::<LEN>() else {
        return Err(Refusal::Truncated);
    };
    let word = u32_at(fixed, field::WORD);
    let mut metadata = (word >> 15 & 0x3f) as u8;
    let mut len = (word >> 24 & 0x0f) as usize * 4;
    if len < LEN && profile.dialect == Dialect::IntCollectorGen {
        (metadata, len) = (0, LEN);
    }
    let next = (word >> 21 & 7) as u8;
    if len != LEN + metadata.count_ones() as usize * 4 {
        return Err(Refusal::BadLength);
    }
    if next > 2 {
        return Err(Refusal::BadNextProtocol);
    }
    if payload.len() < len {
        return Err(Refusal::Truncated);
    }
    Ok(Head {
        word,
        metadata,
        len,
        next,
    })
}

impl Head {
    #[inline]
    fn inside<'a>(&self, payload: &'a [u8]) -> InnerPacket<'a> {
        let first = match self.next {
            0 => FirstHeader::Ethernet,
            1 => FirstHeader::Ipv4,
            _ => FirstHeader::Ipv6,
        };
        InnerPacket {
            first,
            packet: &payload[self.len..],
            find_int: true,
        }
    }

    /// Returns the six reserved bits, which follow the flags in ONOS's dialect.
    fn reserved(&self, dialect: Dialect) -> u32 {
        self.word >> if dialect == Dialect::Onos { 6 } else { 9 } & 0x3f
    }

    #[inline]
    fn flags(&self, dialect: Dialect) -> Flags {
        let dqf = self.word >> if dialect == Dialect::Onos { 12 } else { 6 };
        Flags((dqf >> 2 & 1 | dqf & 2 | (dqf & 1) << 2) as u8)
    }
}

/// Decodes the report of a datagram.
#[inline]
pub(crate) fn read<'a>(
    report: &mut Report<'a>,
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let head = head(payload, profile)?;
    report.clear(Version::V10);
    report.node_id = Some(u32_at(payload, field::SWITCH_ID)).filter(|id| *id != u32::MAX);
    report.hw_id = (head.word & 0x3f) as u8;
    report.seq = u32_at(payload, field::SEQ);
    report.flags = head.flags(profile.dialect);
    report.ts = Some(u32_at(payload, field::INGRESS_TS));
    report.inner = &payload[head.len..];
    if head.metadata != 0 {
        let layout = *layouts.report_10(head.metadata);
        let record = &payload[LEN..head.len];
        report.drop_reason = drop_reason(&layout, record);
        report.metadata = Some(ReporterMetadata::new(record, layout));
    }
    // Embedded INT is looked for whether F is set or not (ruling b).
    let packet = head.inside(payload);
    let nesting = recognise::Nesting::of_packet(inside(report, packet, profile, layouts))?;
    if recognise::needs_more_evidence(report, packet) {
        recognise::UngroupedEvidence {
            version: Version::V10,
            payload,
            packet,
            has_flow: report.flow.is_some(),
            flags: report.flags,
            has_node: true,
            is_reserved_zero: head.reserved(profile.dialect) == 0,
            is_padding_zero: true,
            has_metadata: head.metadata != 0,
        }
        .check()?;
    }
    nesting.refuse_nested()?;
    report.finish();
    Ok(())
}

/// Parses only the header.
#[inline]
pub(crate) fn peek<'a>(payload: &'a [u8], profile: &Profile) -> Result<Peeked<'a>, Refusal> {
    let head = head(payload, profile)?;
    Ok(Peeked {
        peek: number(payload)?,
        packet: head.inside(payload),
        is_certain: false,
        is_announced: false,
    })
}

/// Parses the sequence number of a datagram whose header may be refused.
#[inline]
pub(crate) fn number(payload: &[u8]) -> Result<Peek, Refusal> {
    let Some(header) = payload.first_chunk::<{ field::INGRESS_TS }>() else {
        return Err(Refusal::Truncated);
    };
    Ok(Peek {
        version: Version::V10,
        node_id: Some(u32_at(header, field::SWITCH_ID)).filter(|id| *id != u32::MAX),
        hw_id: (u32_at(header, field::WORD) & 0x3f) as u8,
        seq: u32_at(header, field::SEQ),
        flow: None,
    })
}

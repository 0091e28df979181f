//! Telemetry Report 0.5: parser and writer (`docs/reference/wire-formats.md`, section 2.4), including two private kinds of
//! Intel host-int (section 8.1).

use super::{
    FirstHeader, Flags, Gap, InnerPacket, Peek, Peeked, Report, ReporterMetadata, Version, drop_reason,
    inside, recognise,
};
use crate::bytes::{put_u16, put_u32, try_u32, u16_at, u32_at};
use crate::checksum;
use crate::hop::Hop;
use crate::int::Layout;
use crate::int::layout::Layouts;
use crate::profile::{Dialect, Profile};
use crate::refusal::Refusal;

/// Length of the fixed header, bytes.
pub const LEN: usize = 12;
/// Length of the drop header, bytes.
pub const DROP_LEN: usize = 12;
/// Length of the switch-local header, bytes.
pub const LOCAL_LEN: usize = 16;
/// Length of host-int's gap header, bytes.
pub const GAP_LEN: usize = 24;

mod field {
    pub(super) const WORD: usize = 0;
    pub(super) const SEQ: usize = 4;
    pub(super) const INGRESS_TS: usize = 8;
    // Offset in the drop header.
    pub(super) const DROP_PADDING: usize = 10;
    // Offsets in host-int's gap header.
    pub(super) const GAP_SOURCE: usize = 0;
    pub(super) const GAP_SINK: usize = 4;
    pub(super) const GAP_PORTS: usize = 8;
    pub(super) const GAP_TS: usize = 12;
    pub(super) const GAP_SEQ: usize = 16;
    pub(super) const GAP_COUNT: usize = 20;
}

/// The kind of a report: what is between the fixed header and the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Kind 0: nothing; an Ethernet frame follows.
    Plain,
    /// Kind 1: the drop header; an Ethernet frame follows.
    Drop {
        /// Node, interfaces and queue ID.
        metadata: Hop,
        /// Drop reason, if the device reported one.
        reason: Option<u8>,
    },
    /// Kind 2: the switch-local header; an Ethernet frame follows.
    Local {
        /// Node, interfaces, queue and egress timestamp.
        metadata: Hop,
    },
    /// Kind 3, host-int: missing packets; an IPv4 packet follows.
    Gap {
        /// Node that detected the gap.
        sink: u32,
        /// Ingress and egress interface.
        interfaces: (u16, u16),
        /// The packets that are missing.
        gap: Gap,
    },
    /// Kind 4, host-int: an IPv4 packet follows, possibly after the reporter's node ID.
    Node {
        /// Node ID of the reporter, if it precedes the packet.
        sink: Option<u32>,
    },
}

/// The fields of a report header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Flags D, Q and F.
    pub flags: Flags,
    /// Hardware subsystem of the reporter, six bits.
    pub hw_id: u8,
    /// Sequence number of the report, 32 bits.
    pub seq: u32,
    /// Ingress timestamp, 32 bits, device units.
    pub ingress_ts: u32,
    /// Kind of report, which determines what follows the header.
    pub kind: Kind,
}

impl Repr {
    /// Parses a header, and returns the remaining bytes.
    ///
    /// # Errors
    /// [`Refusal`] as in the decoder.
    pub fn parse<'a>(payload: &'a [u8], profile: &Profile) -> Result<(Self, &'a [u8]), Refusal> {
        let head = head(payload, profile)?;
        let kind = match head.kind {
            0 => Kind::Plain,
            1 => Kind::Drop {
                metadata: Layout::DROP_05.hop(head.extra),
                reason: drop_reason(&Layout::DROP_05, head.extra),
            },
            2 => Kind::Local {
                metadata: Layout::LOCAL_05.hop(head.extra),
            },
            3 => Kind::Gap {
                sink: u32_at(head.extra, field::GAP_SINK),
                interfaces: (
                    u16_at(head.extra, field::GAP_PORTS),
                    u16_at(head.extra, field::GAP_PORTS + 2),
                ),
                gap: gap(head.extra),
            },
            _ => Kind::Node {
                sink: (!head.extra.is_empty()).then(|| u32_at(head.extra, 0)),
            },
        };
        let repr = Self {
            flags: head.flags(),
            hw_id: (head.word & 0x3f) as u8,
            seq: u32_at(payload, field::SEQ),
            ingress_ts: u32_at(payload, field::INGRESS_TS),
            kind,
        };
        Ok((repr, head.inner))
    }

    /// Returns the length of the fixed header and the kind's header, bytes.
    pub fn header_len(&self) -> usize {
        LEN + match self.kind {
            Kind::Plain | Kind::Node { sink: None } => 0,
            Kind::Drop { .. } => DROP_LEN,
            Kind::Local { .. } => LOCAL_LEN,
            Kind::Gap { .. } => GAP_LEN,
            Kind::Node { sink: Some(_) } => 4,
        }
    }

    /// Writes the header in a dialect, and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_len`](Self::header_len).
    pub fn emit(&self, dialect: Dialect, out: &mut [u8]) -> usize {
        let len = self.header_len();
        let (fixed, extra) = out[..len].split_at_mut(LEN);
        let code = match self.kind {
            Kind::Plain => 0,
            Kind::Drop { .. } => 1,
            Kind::Local { .. } => 2,
            Kind::Gap { .. } => 3,
            Kind::Node { .. } => 4,
        };
        let word = u32::from(dialect == Dialect::IntCollectorGen) << 28
            | code << 24
            | self.flags.bit(Flags::DROP) << 23
            | self.flags.bit(Flags::QUEUE) << 22
            | self.flags.bit(Flags::FLOW) << 21
            | u32::from(self.hw_id) & 0x3f;
        put_u32(fixed, field::WORD, word);
        put_u32(fixed, field::SEQ, self.seq);
        put_u32(fixed, field::INGRESS_TS, self.ingress_ts);
        extra.fill(0);
        match self.kind {
            Kind::Plain | Kind::Node { sink: None } => {}
            Kind::Drop { metadata, reason } => {
                Layout::DROP_05.write(&metadata, extra);
                Layout::DROP_05.write_drop(metadata.drop_queue_id.or(metadata.queue_id), reason, extra);
            }
            Kind::Local { metadata } => Layout::LOCAL_05.write(&metadata, extra),
            Kind::Gap {
                sink,
                interfaces,
                gap,
            } => {
                put_u32(extra, field::GAP_SOURCE, gap.source);
                put_u32(extra, field::GAP_SINK, sink);
                put_u16(extra, field::GAP_PORTS, interfaces.0);
                put_u16(extra, field::GAP_PORTS + 2, interfaces.1);
                put_u32(extra, field::GAP_TS, gap.ts);
                put_u32(extra, field::GAP_SEQ, gap.seq);
                put_u32(extra, field::GAP_COUNT, gap.count);
            }
            Kind::Node { sink: Some(sink) } => put_u32(extra, 0, sink),
        }
        len
    }
}

fn gap(extra: &[u8]) -> Gap {
    Gap {
        source: u32_at(extra, field::GAP_SOURCE),
        ts: u32_at(extra, field::GAP_TS),
        seq: u32_at(extra, field::GAP_SEQ),
        count: u32_at(extra, field::GAP_COUNT),
    }
}

/// The first word, the kind's header, and the remaining bytes.
struct Head<'a> {
    word: u32,
    kind: u8,
    extra: &'a [u8],
    inner: &'a [u8],
}

#[inline]
fn head<'a>(payload: &'a [u8], profile: &Profile) -> Result<Head<'a>, Refusal> {
    let Some((fixed, rest)) = payload.split_at_checked(LEN) else {
        return Err(Refusal::Truncated);
    };
    let word = u32_at(fixed, field::WORD);
    if word >> 21 == 0
        && let Some(refusal) = recognise::flow_format(payload)
    {
        return Err(refusal);
    }
    let kind = (word >> 24 & 0x0f) as u8;
    let extra = match kind {
        0 => 0,
        1 => DROP_LEN,
        2 => LOCAL_LEN,
        3 if profile.dialect == Dialect::HostInt => GAP_LEN,
        4 if profile.dialect == Dialect::HostInt => sink_word(rest),
        _ => return Err(Refusal::BadNextProtocol),
    };
    let (extra, inner) = rest.split_at_checked(extra).ok_or(Refusal::Truncated)?;
    Ok(Head {
        word,
        kind,
        extra,
        inner,
    })
}

/// Returns the length of the node ID that host-int's kind 4 may have before IPv4, 0 or 4. Only the bytes themselves tell.
fn sink_word(rest: &[u8]) -> usize {
    let [first_is_ipv4, second_is_ipv4] = [0, 4].map(|at| {
        rest.get(at)
            .is_some_and(|first: &u8| first >> 4 == 4 && first & 0x0f >= 5)
    });
    // A node ID that looks like IPv4 is followed by an IPv4 header. Without a node ID, the word at offset 4 begins with the
    // identification, which may look like IPv4; then the header checksum is correct from the first byte on.
    if first_is_ipv4 && (!second_is_ipv4 || checksum::holds(rest)) {
        0
    } else {
        4
    }
}

impl<'a> Head<'a> {
    #[inline]
    fn flags(&self) -> Flags {
        let dqf = self.word >> 21;
        Flags((dqf >> 2 & 1 | dqf & 2 | (dqf & 1) << 2) as u8)
    }

    fn reserved(&self) -> u32 {
        self.word >> 6 & 0x7fff
    }

    fn inside(&self) -> InnerPacket<'a> {
        let first = if self.kind >= 3 {
            FirstHeader::Ipv4
        } else {
            FirstHeader::Ethernet
        };
        InnerPacket {
            first,
            packet: self.inner,
            find_int: true,
        }
    }

    fn node_id(&self) -> Option<u32> {
        let at = if self.kind == 3 { field::GAP_SINK } else { 0 };
        (self.extra.len() >= at + 4)
            .then(|| u32_at(self.extra, at))
            .filter(|id| *id != u32::MAX)
    }
}

/// Decodes the report of a datagram.
pub(crate) fn read<'a>(
    report: &mut Report<'a>,
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let head = head(payload, profile)?;
    report.clear(Version::V05);
    report.node_id = head.node_id();
    report.hw_id = (head.word & 0x3f) as u8;
    report.seq = u32_at(payload, field::SEQ);
    report.flags = head.flags();
    report.ts = Some(u32_at(payload, field::INGRESS_TS));
    report.inner = head.inner;
    match head.kind {
        1 => {
            report.drop_reason = drop_reason(&Layout::DROP_05, head.extra);
            let metadata = ReporterMetadata::new(head.extra, Layout::DROP_05);
            let hop = Layout::DROP_05.hop(head.extra);
            report.metadata = Some(ReporterMetadata {
                lacks_egress: profile.drop_zero_unknown
                    && (hop.egress_if, hop.drop_queue_id) == (Some(0), Some(0)),
                ..metadata
            });
        }
        2 => {
            let metadata = ReporterMetadata::new(head.extra, Layout::LOCAL_05);
            report.metadata = Some(ReporterMetadata {
                latency_from_stamps: true,
                ..metadata
            });
        }
        3 => {
            report.gap = Some(gap(head.extra));
        }
        _ => {}
    }
    let packet = head.inside();
    let nesting = recognise::Nesting::of_packet(inside(report, packet, profile, layouts))?;
    if recognise::needs_more_evidence(report, packet) {
        recognise::UngroupedEvidence {
            version: Version::V05,
            payload,
            packet,
            has_flow: report.flow.is_some(),
            flags: report.flags,
            has_node: !head.extra.is_empty(),
            is_reserved_zero: head.reserved() == 0,
            is_padding_zero: head.kind != 1 || u16_at(head.extra, field::DROP_PADDING) == 0,
            has_metadata: report.metadata.is_some(),
        }
        .check()?;
    }
    nesting.refuse_nested()?;
    report.finish();
    Ok(())
}

/// Parses only the headers.
pub(crate) fn peek<'a>(payload: &'a [u8], profile: &Profile) -> Result<Peeked<'a>, Refusal> {
    let head = head(payload, profile)?;
    Ok(Peeked {
        peek: Peek {
            node_id: head.node_id(),
            ..number_at(payload).ok_or(Refusal::Truncated)?
        },
        packet: head.inside(),
        is_certain: false,
        is_announced: false,
    })
}

/// Parses the sequence number of a datagram whose headers may be refused.
pub(crate) fn number(payload: &[u8], profile: &Profile) -> Result<Peek, Refusal> {
    match (peek(payload, profile), number_at(payload)) {
        (Ok(peeked), _) => Ok(peeked.peek),
        (Err(Refusal::Truncated | Refusal::BadNextProtocol), Some(number)) => Ok(number),
        (Err(refusal), _) => Err(refusal),
    }
}

fn number_at(payload: &[u8]) -> Option<Peek> {
    Some(Peek {
        version: Version::V05,
        node_id: None,
        hw_id: (try_u32(payload, field::WORD)? & 0x3f) as u8,
        seq: try_u32(payload, field::SEQ)?,
        flow: None,
    })
}

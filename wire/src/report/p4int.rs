//! Report 2.0 as the p4-int family of P4 programs writes it: Report Length and MD Length are 0, and one report extends to
//! the end of the datagram (`docs/reference/wire-formats.md`, section 2.6). By the specification such a datagram is
//! invalid, because a report of type 1 has at least two words.

use super::{Report, ReporterMetadata, Version, v20};
use crate::bytes::{try_u16, u16_at};
use crate::ethernet;
use crate::flow::FlowKey;
use crate::int::header::{self, Carrier};
use crate::int::layout::{Layouts, words_2};
use crate::int::shim::{self, Next, Shim2};
use crate::int::{Layout, Mode};
use crate::packet::{IPV4, IPV6, Ip, TCP, UDP, flow, is_tag, ports};
use crate::profile::Profile;
use crate::refusal::Refusal;

const ETHERNET: u8 = 3;
/// Inner type that these programs write although an Ethernet header follows.
const IPV4_INNER: u8 = 4;
/// Maximum number of VLAN tags in the packet.
const MAX_TAGS: usize = 2;

/// Offsets from the start of the UDP payload.
mod field {
    use core::ops::Range;
    /// Report type and inner type, four bits each.
    pub(super) const TYPES: usize = 8;
    /// Report length and MD length.
    pub(super) const LENGTHS: Range<usize> = 9..11;
    pub(super) const FLAGS: usize = 11;
    pub(super) const MAIN: Range<usize> = 12..20;
    pub(super) const PACKET: usize = 20;
    pub(super) const LEN: usize = PACKET + crate::ethernet::HEADER_LEN;
}

/// INT after the packet's L4 header.
struct Found<'a> {
    flow: FlowKey,
    kind: u8,
    /// Header and stack, of the length in the shim.
    int: &'a [u8],
}

/// Decodes the single report of such a datagram.
///
/// # Errors
/// [`Refusal::BadReportLength`] if the datagram is not of this family, so that its length is inconsistent.
pub(crate) fn read<'a>(
    report: &mut Report<'a>,
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    try_read(report, payload, profile, layouts).ok_or(Refusal::BadReportLength)
}

fn try_read<'a>(
    report: &mut Report<'a>,
    payload: &'a [u8],
    profile: &Profile,
    layouts: &mut Layouts,
) -> Option<()> {
    if !profile.dialect.reads_length_zero() || !is_announced(payload) {
        return None;
    }
    let (group, _) = v20::Group::split(payload).ok()?;
    let found = find(payload)?;
    report.clear(Version::V20);
    report.node_id = Some(group.node_id).filter(|id| *id != u32::MAX);
    report.hw_id = group.hw_id;
    report.seq = group.seq;
    report.report_type = Some(1);
    report.flags = v20::flags(payload[field::FLAGS]);
    report.inner = &payload[field::PACKET..];
    report.flow = Some(found.flow);
    read_int(report, &found, profile, layouts)?;
    report.finish();
    Some(())
}

/// Returns whether the first 34 bytes are of this family: lengths and main metadata are 0, and an Ethernet header follows.
fn is_announced(payload: &[u8]) -> bool {
    let Some(head) = payload.first_chunk::<{ field::LEN }>() else {
        return false;
    };
    let version = head[0] >> 4;
    let inner_type = head[field::TYPES] & 0x0f;
    let mut zeros = head[field::LENGTHS].iter().chain(&head[field::MAIN]);
    head[field::TYPES] >> 4 == 1
        && matches!(inner_type, ETHERNET | IPV4_INNER)
        && (version == 2 || version == 1 && inner_type == IPV4_INNER)
        && zeros.all(|byte| *byte == 0)
}

/// Finds the shim directly after UDP, or after 20 bytes of TCP.
fn find(payload: &[u8]) -> Option<Found<'_>> {
    let mut at = field::PACKET + ethernet::HEADER_LEN;
    let mut tags = 0;
    while is_tag(u16_at(payload, at - 2)) && tags < MAX_TAGS {
        at += ethernet::TAG_LEN;
        tags += 1;
        try_u16(payload, at - 2)?;
    }
    let packet = payload.get(at..)?;
    let first = *packet.first()?;
    let (v6, header, proto) = match (u16_at(payload, at - 2), first >> 4) {
        (IPV4, 4) if first & 0x0f >= 5 && try_u16(packet, 6)? & 0x1fff == 0 => {
            (false, usize::from(first & 0x0f) * 4, *packet.get(9)?)
        }
        (IPV6, 6) => (true, 40, *packet.get(6)?),
        _ => return None,
    };
    let l4 = at + header;
    let shim_at = l4
        + match proto {
            UDP => 8,
            TCP => 20,
            _ => return None,
        };
    let shim = Shim2::parse(shim::Kind::L4, payload.get(shim_at..)?).ok()?;
    let start = shim_at + shim::LEN;
    let end = start + usize::from(shim.length) * 4;
    let (src_port, dst_port) = ports(payload, l4)?;
    let (ports, proto) = match shim.next {
        Next::Port(original) => (Some((src_port, original)), proto),
        // The source inserted the UDP header; the original L4 header follows INT.
        Next::Protocol(original) => (
            ports(payload, end).filter(|_| matches!(original, UDP | TCP)),
            original,
        ),
        _ => (Some((src_port, dst_port)), proto),
    };
    let flow = flow(payload, Ip { at, v6, dscp: 0 }, ports, proto);
    Some(Found {
        flow,
        kind: shim.kind,
        int: payload.get(start..end)?,
    })
}

/// Parses INT. INT-MD has a stack; an INT-MX report has the reporter's record in its place. Hardware uses shim type 3 for
/// both.
fn read_int<'a>(
    report: &mut Report<'a>,
    found: &Found<'a>,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Option<()> {
    let (head, data) = found
        .int
        .split_at_checked(header::LEN_2)
        .filter(|(head, _)| head[0] >> 4 == 2)?;
    let repr = header::Md2::parse(head).ok()?;
    let words = words_2(repr.bitmap);
    match (found.kind, repr.hop_ml) {
        (Shim2::MD | Shim2::MX, 1..) if repr.hop_ml == words => {
            let carrier = Carrier {
                profile,
                mode: Mode::Md,
                sf_records: 0,
            };
            header::read_2(&mut report.int, found.int, carrier, layouts).ok()?;
            report
                .int
                .is_some_and(|int| int.source_only.is_empty())
                .then_some(())
        }
        (Shim2::MX, 0) => {
            let carrier = Carrier {
                profile,
                mode: Mode::Mx,
                sf_records: 0,
            };
            header::read_2(&mut report.int, head, carrier, layouts).ok()?;
            if !data.is_empty() {
                let layout = Layout::int_2(repr.bitmap, words, false).ok()?;
                (data.len() == layout.len()).then_some(())?;
                report.metadata = Some(ReporterMetadata::new(data, layout));
            }
            Some(())
        }
        _ => None,
    }
}

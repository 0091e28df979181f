//! Telemetry Report 2.0: parser and writer (`docs/reference/wire-formats.md`, section 2.1; postcards, section 4.1). A
//! datagram is a group header followed by individual reports.
//!
//! ```text
//! │ group header: sequence, node ID (8) │ report │ report │ …
//! report:  │ header (4) │ main metadata (8) + MD words, type 1 only │ inner contents │
//! ```

use super::{
    Annotations, FirstHeader, Flags, InnerPacket, Peek, Peeked, Report, ReporterMetadata, Version,
    drop_reason, inside, recognise,
};
use crate::bytes::{put_u16, put_u32, try_u32, u16_at, u32_at};
use crate::hop::Hop;
use crate::int::header::{self, Carrier};
use crate::int::layout::{Layouts, words_2};
use crate::int::sf::REPORT_DOMAIN;
use crate::int::{Layout, Mode};
use crate::profile::Profile;
use crate::refusal::Refusal;

/// Length of the group header, bytes.
pub const GROUP_LEN: usize = 8;
/// Length of an individual report's header, bytes.
pub const LEN: usize = 4;
/// Length of the fixed main metadata of a report of type 1, bytes.
pub const MAIN_LEN: usize = 8;
/// Report Length that means "to the end of the datagram".
pub const TO_THE_END: u8 = 0xff;

/// Domain Specific ID "PC" of postcards, an extension of this project.
pub const POSTCARD_DOMAIN: u16 = 0x5043;
/// DSMdBits bit of a postcard's flow ID.
pub const POSTCARD_FLOW_ID: u16 = 0x8000;
/// DSMdstatus bit of a postcard: the packet entered the domain at this node.
pub const POSTCARD_ENTERED: u16 = 0x8000;
/// DSMdstatus bit of a postcard: the packet leaves the domain at this node.
pub const POSTCARD_LEFT: u16 = 0x4000;
/// RepMdBits that are metadata items: all but bit 0 and the reserved bits 9 to 14.
const REAL_ITEMS: u16 = 0x7f81;
/// Inner type of domain-specific data.
const DOMAIN_INNER: u8 = 2;

mod field {
    // Offsets in the group header.
    pub(super) const WORD: usize = 0;
    pub(super) const NODE_ID: usize = 4;
    // Offsets in an individual report.
    pub(super) const TYPES: usize = 0;
    pub(super) const REPORT_LENGTH: usize = 1;
    pub(super) const MD_LENGTH: usize = 2;
    pub(super) const FLAGS: usize = 3;
    // Offsets in its main metadata.
    pub(super) const MD_BITS: usize = 0;
    pub(super) const DS_ID: usize = 2;
    pub(super) const DS_BITS: usize = 4;
    pub(super) const DS_STATUS: usize = 6;
}

/// The group header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Group {
    /// Hardware subsystem of the reporter, six bits.
    pub hw_id: u8,
    /// Sequence number, 22 bits.
    pub seq: u32,
    /// Node ID of the reporter.
    pub node_id: u32,
}

impl Group {
    pub(crate) const EMPTY: Self = Self {
        hw_id: 0,
        seq: 0,
        node_id: 0,
    };

    /// Splits a datagram into group header and reports. The caller checks the version.
    ///
    /// # Errors
    /// [`Refusal`] if the header is incomplete or nothing follows it.
    pub fn split(payload: &[u8]) -> Result<(Self, &[u8]), Refusal> {
        let (group, rest) = Self::parse(payload)?;
        if rest.is_empty() {
            return Err(Refusal::EmptyGroup);
        }
        Ok((group, rest))
    }

    fn parse(payload: &[u8]) -> Result<(Self, &[u8]), Refusal> {
        let Some((header, rest)) = payload.split_at_checked(GROUP_LEN) else {
            return Err(Refusal::Truncated);
        };
        let word = u32_at(header, field::WORD);
        let node_id = u32_at(header, field::NODE_ID);
        Ok((
            Self {
                hw_id: (word >> 22 & 0x3f) as u8,
                seq: word & 0x003f_ffff,
                node_id,
            },
            rest,
        ))
    }

    /// Writes the header, 8 bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`GROUP_LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let word = 2 << 28 | (u32::from(self.hw_id) & 0x3f) << 22 | self.seq & 0x003f_ffff;
        put_u32(out, field::WORD, word);
        put_u32(out, field::NODE_ID, self.node_id);
    }

    fn node_id(&self) -> Option<u32> {
        (self.node_id != u32::MAX).then_some(self.node_id)
    }

    fn peek(&self) -> Peek {
        Peek {
            version: Version::V20,
            node_id: self.node_id(),
            hw_id: self.hw_id,
            seq: self.seq,
            flow: None,
        }
    }
}

/// Splits an individual report from the rest of a datagram.
///
/// # Errors
/// [`Refusal`] if the report's length contradicts its type or the bytes (rules 2 to 4 of section 2.1).
pub fn split(rest: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let Some(header) = rest.first_chunk::<LEN>() else {
        return Err(Refusal::Truncated);
    };
    let length = header[field::REPORT_LENGTH];
    // A report of type 1 has main metadata.
    if header[field::TYPES] >> 4 == 1 && usize::from(length) * 4 < MAIN_LEN {
        return Err(Refusal::BadReportLength);
    }
    if length == TO_THE_END {
        let enough = rest.len() - LEN >= usize::from(TO_THE_END) * 4;
        return if enough {
            Ok((rest, &[]))
        } else {
            Err(Refusal::BadLength)
        };
    }
    rest.split_at_checked(LEN + usize::from(length) * 4)
        .ok_or(Refusal::Truncated)
}

/// The main metadata of a report.
struct Main<'a> {
    bits: u16,
    ds_id: u16,
    ds_bits: u16,
    ds_status: u16,
    baseline: &'a [u8],
    domain: &'a [u8],
    inner: &'a [u8],
}

/// Parses the main metadata of a report of type 1, given exactly its bytes (rule 4).
fn main_contents(bytes: &[u8]) -> Result<Main<'_>, Refusal> {
    let md = usize::from(*bytes.get(field::MD_LENGTH).ok_or(Refusal::Truncated)?) * 4;
    let rest = bytes.get(LEN..).ok_or(Refusal::Truncated)?;
    let (main, rest) = rest
        .split_at_checked(MAIN_LEN)
        .ok_or(Refusal::BadMetadataLength)?;
    let (metadata, inner) = rest.split_at_checked(md).ok_or(Refusal::BadMetadataLength)?;
    let bits = u16_at(main, field::MD_BITS);
    let ds_id = u16_at(main, field::DS_ID);
    let words = usize::from(words_2(bits)) * 4;
    let (baseline, domain) = metadata
        .split_at_checked(words)
        .ok_or(Refusal::BadMetadataLength)?;
    if ds_id == 0 && !domain.is_empty() {
        return Err(Refusal::BadMetadataLength);
    }
    Ok(Main {
        bits,
        ds_id,
        ds_bits: u16_at(main, field::DS_BITS),
        ds_status: u16_at(main, field::DS_STATUS),
        baseline,
        domain,
        inner,
    })
}

/// Decodes an individual report, given exactly its bytes.
pub(crate) fn read<'a>(
    report: &mut Report<'a>,
    bytes: &'a [u8],
    group: &Group,
    profile: &Profile,
    layouts: &mut Layouts,
) -> Result<(), Refusal> {
    let types = bytes[field::TYPES];
    let report_type = types >> 4;
    let inner_type = types & 0x0f;
    if report_type > 1 {
        return Err(Refusal::UndefinedReportType);
    }
    if inner_type > 5 {
        return Err(Refusal::UndefinedInnerType);
    }
    report.clear(Version::V20);
    report.node_id = group.node_id();
    report.hw_id = group.hw_id;
    report.seq = group.seq;
    report.report_type = Some(report_type);
    report.flags = flags(bytes[field::FLAGS]);
    report.inner = &bytes[LEN..];
    if report_type == 1 {
        let main = main_contents(bytes)?;
        report.inner = main.inner;
        report.ds_id = main.ds_id;
        report.ds_status = main.ds_status;
        report.domain_words = main.domain;
        if main.ds_id == POSTCARD_DOMAIN && main.ds_bits & POSTCARD_FLOW_ID != 0 {
            report.flow_id = try_u32(main.domain, 0).filter(|id| *id != u32::MAX);
        }
        if main.bits & REAL_ITEMS != 0 {
            let layout = *layouts.report_20(main.bits);
            report.drop_reason = drop_reason(&layout, main.baseline);
            report.metadata = Some(ReporterMetadata::new(main.baseline, layout));
        }
    }
    if inner_type == 0 && !report.inner.is_empty() {
        return Err(Refusal::LeftoverWords);
    }
    if matches!(inner_type, 3..) && report.inner.is_empty() {
        return Err(Refusal::BadReportLength);
    }
    let (packet, annotations) = inner_packet(inner_type, report.inner, report.flags);
    report.annotations = annotations;
    if inner_type == DOMAIN_INNER && report.ds_id == REPORT_DOMAIN && report.flags.contains(Flags::FLOW) {
        compact(report, profile, layouts)?;
        report.finish();
        return Ok(());
    }
    let nesting = recognise::Nesting::of_packet(inside(report, packet, profile, layouts))?;
    if recognise::needs_more_evidence(report, packet) {
        evidence(report, packet, bytes).check()?;
    }
    nesting.refuse_nested()?;
    report.finish();
    Ok(())
}

fn evidence<'a>(
    report: &Report<'_>,
    packet: InnerPacket<'a>,
    bytes: &[u8],
) -> recognise::IndividualEvidence<'a> {
    let has_flags = report.flags != Flags::default();
    recognise::IndividualEvidence {
        inner_type: bytes[field::TYPES] & 0x0f,
        packet,
        has_flow: report.flow.is_some(),
        has_contents: !report.inner.is_empty() && !report.annotations.contains(Annotations::PARTIAL),
        has_flags,
        is_reserved_zero: bytes[field::FLAGS] & 0x0f == 0,
        has_metadata: report.metadata.is_some(),
        has_main_metadata: report.report_type == Some(1) && (has_flags || bytes[field::MD_LENGTH] != 0),
    }
}

/// Accepts a report that was refused only because its packet is unrecognizable, if the lengths in its datagram are
/// consistent. `bytes` are exactly the report.
///
/// # Errors
/// [`Refusal::NotAReport`] if nothing else proves that it is a report.
#[cold]
pub(crate) fn accept_any_packet(report: &mut Report<'_>, bytes: &[u8]) -> Result<(), Refusal> {
    let packet = first_packet(bytes).map_or(InnerPacket::NOTHING, |(packet, _)| packet);
    if !evidence(report, packet, bytes).has_consistent_lengths() {
        return Err(Refusal::NotAReport);
    }
    report.finish();
    Ok(())
}

/// Returns whether the report contains a packet.
pub(crate) fn has_packet(bytes: &[u8]) -> bool {
    first_packet(bytes).is_some_and(|(packet, _)| packet.first != FirstHeader::Nothing)
}

/// Returns whether the reports' lengths are consistent up to the end of the datagram.
#[cold]
pub(crate) fn is_whole(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Ok((_, behind)) = split(rest) else {
            return false;
        };
        rest = behind;
    }
    true
}

/// Decodes a compact SF-INT report, whose inner contents are INT header and record, without the packet's flow.
#[inline(never)]
fn compact<'a>(report: &mut Report<'a>, profile: &Profile, layouts: &mut Layouts) -> Result<(), Refusal> {
    match report.inner.first() {
        Some(first) if first >> 4 == 2 => {}
        Some(_) => return Err(Refusal::BadIntVersion),
        None => return Err(Refusal::BadIntLength),
    }
    let carrier = Carrier {
        profile,
        mode: Mode::Md,
        sf_records: 1,
    };
    header::read_2(&mut report.int, report.inner, carrier, layouts)
}

/// Decodes D, Q, F and I from the fourth byte of a report.
pub(crate) fn flags(byte: u8) -> Flags {
    let dqfi = byte >> 4;
    Flags(dqfi >> 3 & 1 | dqfi >> 1 & 2 | dqfi << 1 & 4 | dqfi << 3 & 8)
}

/// Returns the packet in a report, if its inner type has one, and anomalies. Only a report about a tracked flow may contain
/// INT or IOAM.
#[inline]
fn inner_packet(inner_type: u8, inner: &[u8], flags: Flags) -> (InnerPacket<'_>, Annotations) {
    let find_int = flags.contains(Flags::FLOW);
    let first = match inner_type {
        1 => return inner_tlvs(inner, find_int),
        3 => FirstHeader::Ethernet,
        4 => FirstHeader::Ipv4,
        5 => FirstHeader::Ipv6,
        _ => FirstHeader::Nothing,
    };
    (
        InnerPacket {
            first,
            packet: inner,
            find_int,
        },
        Annotations::default(),
    )
}

/// Parses the inner TLVs. The first packet TLV is the flow (ruling i).
fn inner_tlvs(inner: &[u8], find_int: bool) -> (InnerPacket<'_>, Annotations) {
    let mut packets = Tlvs::new(inner).filter_map(|tlv| {
        Some(InnerPacket {
            first: tlv.first()?,
            packet: tlv.value,
            find_int,
        })
    });
    let annotations = Annotations::default().with(Annotations::PARTIAL, Tlvs::new(inner).is_partial());
    (packets.next().unwrap_or(InnerPacket::NOTHING), annotations)
}

/// A TLV of a report's inner contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// Type: 0 domain extension, 1 Ethernet, 2 IPv4, 3 IPv6.
    pub kind: u8,
    /// TLV Data Template (domain extension only).
    pub template: u16,
    /// Value, in whole words.
    pub value: &'a [u8],
}

impl Tlv<'_> {
    fn first(&self) -> Option<FirstHeader> {
        match self.kind {
            1 => Some(FirstHeader::Ethernet),
            2 => Some(FirstHeader::Ipv4),
            3 => Some(FirstHeader::Ipv6),
            _ => None,
        }
    }
}

/// Iterator over the TLVs of a report; ends before a TLV that exceeds the report.
#[derive(Clone, Debug)]
pub struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Iterates over the TLVs in the inner contents of a report with inner type 1.
    pub fn new(inner: &'a [u8]) -> Self {
        Self { rest: inner }
    }

    /// Returns whether a malformed TLV ends the sequence.
    pub fn is_partial(mut self) -> bool {
        self.by_ref().for_each(drop);
        !self.rest.is_empty()
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (head, tail) = self.rest.split_at_checked(4)?;
        let (value, rest) = tail.split_at_checked(usize::from(head[1]) * 4)?;
        self.rest = rest;
        Some(Tlv {
            kind: head[0] >> 4,
            template: u16_at(head, 2),
            value,
        })
    }
}

/// Returns whether each report from `rest` on can be decoded whatever the others contain.
fn is_divisible(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Ok((bytes, behind)) = split(rest) else {
            return false;
        };
        if !is_independent(bytes) {
            return false;
        }
        rest = behind;
    }
    true
}

/// Returns whether refusing this report cannot affect later ones: its contents agree with its length, and it is
/// recognizable or has a packet, which is whatever a host sent.
fn is_independent(bytes: &[u8]) -> bool {
    let [report_type, inner_type] = [bytes[field::TYPES] >> 4, bytes[field::TYPES] & 0x0f];
    if report_type > 1 || inner_type > 5 {
        return true;
    }
    let inner = match report_type {
        0 => &bytes[LEN..],
        _ => match main_contents(bytes) {
            Ok(main) => main.inner,
            Err(_) => return false,
        },
    };
    match inner_type {
        0 => {
            let says_something = bytes[field::FLAGS] >> 4 != 0 || bytes[field::MD_LENGTH] != 0;
            inner.is_empty() && report_type == 1 && says_something
        }
        1 => !Tlvs::new(inner).is_partial() && has_packet(bytes),
        DOMAIN_INNER => false,
        _ => !inner.is_empty(),
    }
}

/// Splits a datagram of several reports into (bytes, packet) per report. Returns `None` for a single report, and if a
/// report may be refused together with all that follow.
pub(crate) fn split_group(payload: &[u8]) -> Option<impl Iterator<Item = (&[u8], InnerPacket<'_>)>> {
    let mut rest = payload.get(GROUP_LEN..)?;
    let (_, later) = split(rest).ok()?;
    if later.is_empty() || !is_divisible(rest) {
        return None;
    }
    Some(core::iter::from_fn(move || {
        let (bytes, later) = split(rest).ok()?;
        rest = later;
        let packet = first_packet(bytes).map_or(InnerPacket::NOTHING, |(packet, _)| packet);
        Some((bytes, packet))
    }))
}

/// Parses the group header, and finds the first report's packet.
pub(crate) fn peek(payload: &[u8]) -> Result<Peeked<'_>, Refusal> {
    let (group, rest) = Group::split(payload)?;
    let first = split(rest).ok().and_then(|(bytes, _)| first_packet(bytes));
    let (packet, is_certain) = first.unwrap_or((InnerPacket::NOTHING, false));
    let byte = rest.get(field::FLAGS).copied().unwrap_or(0);
    Ok(Peeked {
        peek: group.peek(),
        packet,
        is_certain,
        is_announced: byte & 0x0f == 0,
    })
}

/// Parses the sequence number of a datagram whose reports may be refused or missing.
pub(crate) fn number(payload: &[u8]) -> Result<Peek, Refusal> {
    Group::parse(payload).map(|(group, _)| group.peek())
}

/// Returns the packet in the first report of a group that may be truncated.
pub(crate) fn cut_packet(payload: &[u8]) -> Option<InnerPacket<'_>> {
    let (_, bytes) = Group::split(payload).ok()?;
    let is_whole = try_u32(bytes, 0)? >> 28 != 1 || main_contents(bytes).is_ok();
    first_packet(bytes).filter(|_| is_whole).map(|(packet, _)| packet)
}

/// Returns the packet in a report, and whether the report needs no packet to be recognized, because it is a postcard.
fn first_packet(bytes: &[u8]) -> Option<(InnerPacket<'_>, bool)> {
    let inner_type = bytes[field::TYPES] & 0x0f;
    let (inner, measured) = match bytes[field::TYPES] >> 4 {
        0 => (&bytes[LEN..], false),
        1 => {
            let main = main_contents(bytes);
            let measured = main.is_ok_and(|main| main.bits & REAL_ITEMS != 0);
            (
                bytes.get(LEN + MAIN_LEN + usize::from(bytes[field::MD_LENGTH]) * 4..)?,
                measured,
            )
        }
        _ => return None,
    };
    let is_postcard = inner_type == 0 && measured && inner.is_empty();
    Some((
        inner_packet(inner_type, inner, flags(bytes[field::FLAGS])).0,
        is_postcard,
    ))
}

/// The main metadata to write, or as parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MainRepr<'a> {
    /// RepMdBits: items that follow.
    pub bits: u16,
    /// Domain Specific ID of the report.
    pub ds_id: u16,
    /// DSMdBits: domain-specific items that follow.
    pub ds_bits: u16,
    /// DSMdstatus: domain-specific status bits.
    pub ds_status: u16,
    /// Values of the baseline items.
    pub metadata: Hop,
    /// Drop reason, if `bits` has bit 15.
    pub drop_reason: Option<u8>,
    /// Domain-specific metadata, in whole words.
    pub domain: &'a [u8],
}

impl<'a> MainRepr<'a> {
    /// Parses the main metadata, given exactly one report of type 1, and returns the inner contents too.
    ///
    /// # Errors
    /// [`Refusal`] if lengths and bits contradict each other (rule 4).
    pub fn parse(report: &'a [u8]) -> Result<(Self, &'a [u8]), Refusal> {
        let main = main_contents(report)?;
        let layout = Layout::report_20(main.bits);
        let repr = Self {
            bits: main.bits,
            ds_id: main.ds_id,
            ds_bits: main.ds_bits,
            ds_status: main.ds_status,
            metadata: layout.hop(main.baseline),
            drop_reason: drop_reason(&layout, main.baseline),
            domain: main.domain,
        };
        Ok((repr, main.inner))
    }

    fn md_len(&self) -> usize {
        usize::from(words_2(self.bits)) * 4 + self.domain.len()
    }
}

/// Inner contents to write. A packet is padded with zeros to a whole word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner<'a> {
    /// Nothing follows the metadata.
    None,
    /// TLVs with values in whole words.
    Tlvs(&'a [Tlv<'a>]),
    /// Domain-specific data, in whole words.
    Domain(&'a [u8]),
    /// A packet starting at its Ethernet header, possibly truncated.
    Ethernet(&'a [u8]),
    /// A packet starting at its IPv4 header, possibly truncated.
    Ipv4(&'a [u8]),
    /// A packet starting at its IPv6 header, possibly truncated.
    Ipv6(&'a [u8]),
}

impl Inner<'_> {
    fn code(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Tlvs(_) => 1,
            Self::Domain(_) => 2,
            Self::Ethernet(_) => 3,
            Self::Ipv4(_) => 4,
            Self::Ipv6(_) => 5,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Tlvs(tlvs) => tlvs
                .iter()
                .map(|tlv| 4 + tlv.value.len().next_multiple_of(4))
                .sum(),
            Self::Domain(bytes) | Self::Ethernet(bytes) | Self::Ipv4(bytes) | Self::Ipv6(bytes) => {
                bytes.len()
            }
        }
    }

    fn emit(&self, out: &mut [u8]) {
        out.fill(0);
        match self {
            Self::None => {}
            Self::Tlvs(tlvs) => {
                let mut at = 0;
                for tlv in *tlvs {
                    let words = tlv.value.len().div_ceil(4);
                    out[at] = tlv.kind << 4;
                    out[at + 1] = words as u8;
                    put_u16(out, at + 2, tlv.template);
                    out[at + 4..at + 4 + tlv.value.len()].copy_from_slice(tlv.value);
                    at += 4 + words * 4;
                }
            }
            Self::Domain(bytes) | Self::Ethernet(bytes) | Self::Ipv4(bytes) | Self::Ipv6(bytes) => {
                out[..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// An individual report to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// Flags D, Q, F and I.
    pub flags: Flags,
    /// Main metadata; `None` makes a report of type 0, "inner only".
    pub main: Option<MainRepr<'a>>,
    /// Contents after the main metadata.
    pub inner: Inner<'a>,
    /// MD Length of a report of type 0, where it has no meaning.
    pub ignored_md_length: u8,
}

impl<'a> Repr<'a> {
    /// Creates a report of type 1.
    pub fn new(flags: Flags, main: MainRepr<'a>, inner: Inner<'a>) -> Self {
        Self {
            flags,
            main: Some(main),
            inner,
            ignored_md_length: 0,
        }
    }

    /// Creates a postcard (INT-XD): queue and both timestamps of one node, and the flow ID.
    pub fn postcard(metadata: Hop, flow_id: &'a [u8; 4]) -> Self {
        let main = MainRepr {
            bits: 0x1c00,
            ds_id: POSTCARD_DOMAIN,
            ds_bits: POSTCARD_FLOW_ID,
            metadata,
            domain: flow_id,
            ..MainRepr::default()
        };
        Self::new(Flags::FLOW, main, Inner::None)
    }

    /// Returns the length of the report, bytes.
    pub fn len(&self) -> usize {
        let main = self.main.as_ref().map_or(0, |main| MAIN_LEN + main.md_len());
        LEN + main + self.inner.len().next_multiple_of(4)
    }

    /// Returns `false`: a report has at least a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the report and returns its length, a multiple of 4 unless the report extends to the end of the datagram.
    ///
    /// A report of 255 words or more is written with length 0xFF, which makes it the datagram's last.
    ///
    /// # Panics
    /// If `out` is shorter than [`len`](Self::len).
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.len();
        let out = &mut out[..len];
        let words = (len - LEN) / 4;
        out[field::TYPES] = u8::from(self.main.is_some()) << 4 | self.inner.code();
        out[field::REPORT_LENGTH] = words.min(usize::from(TO_THE_END)) as u8;
        out[field::MD_LENGTH] = self
            .main
            .as_ref()
            .map_or(self.ignored_md_length, |main| (main.md_len() / 4) as u8);
        let flags = self.flags.bit(Flags::DROP) << 7
            | self.flags.bit(Flags::QUEUE) << 6
            | self.flags.bit(Flags::FLOW) << 5
            | self.flags.bit(Flags::INTERMEDIATE) << 4;
        out[field::FLAGS] = flags as u8;
        let mut at = LEN;
        if let Some(main) = &self.main {
            let out = &mut out[LEN..];
            put_u16(out, field::MD_BITS, main.bits);
            put_u16(out, field::DS_ID, main.ds_id);
            put_u16(out, field::DS_BITS, main.ds_bits);
            put_u16(out, field::DS_STATUS, main.ds_status);
            let layout = Layout::report_20(main.bits);
            let (baseline, rest) = out[MAIN_LEN..].split_at_mut(layout.len());
            baseline.fill(0xff);
            layout.write(&main.metadata, baseline);
            let drop_queue = main.metadata.drop_queue_id.or(main.metadata.queue_id);
            layout.write_drop(drop_queue, main.drop_reason, baseline);
            rest[..main.domain.len()].copy_from_slice(main.domain);
            at += MAIN_LEN + main.md_len();
        }
        self.inner.emit(&mut out[at..]);
        len
    }
}

/// Builds a datagram: group header, then as many reports as fit.
#[derive(Debug)]
pub struct GroupBuilder<'b> {
    out: &'b mut [u8],
    len: usize,
    closed: bool,
}

impl<'b> GroupBuilder<'b> {
    /// Starts a datagram in `out`, or returns `None` if not even the header fits.
    pub fn new(out: &'b mut [u8], group: Group) -> Option<Self> {
        group.emit(out.get_mut(..GROUP_LEN)?);
        Some(Self {
            out,
            len: GROUP_LEN,
            closed: false,
        })
    }

    /// Appends a report. Returns `false`, with nothing written, if it does not fit or the previous report extends to the
    /// end of the datagram.
    #[must_use]
    pub fn push(&mut self, report: &Repr<'_>) -> bool {
        let len = report.len();
        if self.closed || self.out.len() - self.len < len {
            return false;
        }
        report.emit(&mut self.out[self.len..]);
        self.len += len;
        self.closed = len - LEN >= usize::from(TO_THE_END) * 4;
        true
    }

    /// Returns the current length of the datagram, bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the datagram has no report yet; it must not be sent then.
    pub fn is_empty(&self) -> bool {
        self.len == GROUP_LEN
    }

    /// Completes the group and returns the datagram.
    pub fn finish(self) -> &'b [u8] {
        &self.out[..self.len]
    }
}

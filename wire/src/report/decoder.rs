//! The Telemetry Report decoder: iterates over the reports of a UDP payload, and peeks at sequence number and flow without
//! decoding everything.

use super::{
    Annotations, Brief, FirstHeader, InnerPacket, Peek, Peeked, Report, Single, Version, brief, brief_any,
    fast_path, p4int, single, start, v05, v10, v20,
};
use crate::bytes::try_u16;
use crate::flow::FlowKey;
use crate::int::Layout;
use crate::int::layout::Layouts;
use crate::packet::{IPV4, IPV6, Purpose, VLAN, Walk};
use crate::profile::{Dialect, Profile, TelemetryPorts};
use crate::refusal::Refusal;

/// Decodes the datagrams of one source. Caches the most recent layouts and fast-path templates.
///
/// ```
/// use wire::{Decoder, Profile, Refusal};
///
/// let mut decoder = Decoder::new(Profile::default());
/// // A sink report 2.0 around a packet with an INT-MD stack.
/// let payload = testkit::vectors::bytes("tr20_emb");
/// let reports: Vec<_> = decoder.reports(&payload).collect::<Result<_, _>>()?;
/// let nodes = (0..reports[0].hop_count()).map(|i| reports[0].hop(i).node_id);
/// assert!(nodes.eq([Some(1), Some(2), Some(3)]));
///
/// assert_eq!(decoder.reports(&[0xf0]).next(), Some(Err(Refusal::UnknownVersion)));
/// # Ok::<(), wire::Refusal>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    profile: Profile,
    layouts: Layouts,
    /// Template for the method [`brief`](Self::brief).
    brief: brief::Template,
    /// Template for the method [`brief_any`](Self::brief_any).
    brief_any: brief_any::Template,
    /// Template for the method [`single`](Self::single).
    single: single::Template,
}

impl Decoder {
    /// Creates a decoder for sources with this profile.
    pub const fn new(profile: Profile) -> Self {
        Self {
            profile,
            layouts: Layouts::new(),
            brief: brief::Template::NONE,
            brief_any: brief_any::Template::NONE,
            single: single::Template::NONE,
        }
    }

    /// Returns the decoder's profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Decodes a UDP payload that is a single common Report 1.0 about a UDP packet over Ethernet with INT 1.0, with the
    /// values that [`Decoder::reports`] would return. `None` means only that the fast path does not apply.
    #[inline(always)]
    pub fn brief<'a>(&mut self, payload: &'a [u8]) -> Option<Brief<'a>> {
        brief::read(payload, &self.profile, &mut self.layouts, &mut self.brief)
    }

    /// Like [`brief`](Self::brief) for all kinds of single common reports: 1.0 or 2.0, UDP or TCP, with or without
    /// Ethernet, INT 1.0 or 2.x. Takes about ten nanoseconds more.
    #[inline(always)]
    pub fn brief_any<'a>(&mut self, payload: &'a [u8]) -> Option<Brief<'a>> {
        brief_any::read(payload, &self.profile, &mut self.layouts, &mut self.brief_any)
    }

    /// Returns the layout for a shape from [`Decoder::brief`] or [`Decoder::brief_any`].
    pub fn layout(&self, shape: u64) -> Layout {
        brief::layout(shape, &self.profile)
    }

    /// Decodes a UDP payload that is a single common SF-INT report, with the values that [`Decoder::reports`] would return.
    /// `None` means only that the fast path does not apply.
    #[inline(always)]
    pub fn single<'a>(&mut self, payload: &'a [u8]) -> Option<Single<'a>> {
        single::read(payload, &self.profile, &mut self.single)
    }

    /// Iterates over the reports of a UDP payload.
    #[inline]
    pub fn reports<'a>(&mut self, payload: &'a [u8]) -> Reports<'a, '_> {
        let group = v20::Group::EMPTY;
        Reports {
            decoder: self,
            rest: payload,
            state: State::Start,
            group,
            index: 0,
            is_whole: None,
        }
    }
}

/// Progress in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Start,
    InGroup,
    /// A report is incomplete by its own length, but bytes follow it.
    Contradicted,
    End,
}

/// Iterator over the reports of a datagram. It ends after a refusal that leaves a report's length unknown, and continues
/// after others.
#[derive(Debug)]
pub struct Reports<'a, 'd> {
    decoder: &'d mut Decoder,
    rest: &'a [u8],
    state: State,
    group: v20::Group,
    index: u16,
    /// Tells whether the lengths of the remaining reports are consistent up to the end; computed when first needed.
    is_whole: Option<bool>,
}

impl<'a> Iterator for Reports<'a, '_> {
    type Item = Result<Report<'a>, Refusal>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut report = Report::EMPTY;
        self.read(&mut report).map(|result| result.map(|()| report))
    }
}

impl<'a> Reports<'a, '_> {
    /// Numbers reports starting at `first`, for bytes that are the later part of a datagram.
    #[must_use]
    pub fn numbered_from(mut self, first: u16) -> Self {
        self.index = first;
        self
    }

    /// Decodes the next report into `report`, whose contents are unspecified after a refusal. Equivalent to the iterator,
    /// for fast paths: a report is large, and moving it costs as much as decoding it.
    #[inline]
    pub fn read(&mut self, report: &mut Report<'a>) -> Option<Result<(), Refusal>> {
        match self.state {
            State::Start => {
                self.state = State::End;
                Some(self.read_first(report))
            }
            State::InGroup if !self.rest.is_empty() => Some(self.read_in_group(report)),
            State::Contradicted => {
                self.state = State::End;
                Some(Err(Refusal::BadReportLength))
            }
            _ => None,
        }
    }

    #[inline]
    fn read_first(&mut self, report: &mut Report<'a>) -> Result<(), Refusal> {
        let Decoder { profile, layouts, .. } = &mut *self.decoder;
        match version(self.rest, profile)? {
            Version::V10 => match v10::read(report, self.rest, profile, layouts) {
                // A Report 2.0 of the p4-int family may have version nibble 1.
                Err(Refusal::BadLength) if p4int::read(report, self.rest, profile, layouts).is_ok() => Ok(()),
                result => result,
            },
            Version::V05 => v05::read(report, self.rest, profile, layouts),
            Version::V20 => {
                let payload = self.rest;
                (self.group, self.rest) = v20::Group::split(payload)?;
                self.state = State::InGroup;
                match self.read_in_group(report) {
                    Err(Refusal::BadReportLength) => self.read_to_the_end(report, payload),
                    result => result,
                }
            }
        }
    }

    fn read_in_group(&mut self, report: &mut Report<'a>) -> Result<(), Refusal> {
        let Decoder { profile, layouts, .. } = &mut *self.decoder;
        let bytes;
        (bytes, self.rest) = v20::split(self.rest).inspect_err(|_| self.state = State::End)?;
        let index = self.index;
        self.index += 1;
        let result = v20::read(report, bytes, &self.group, profile, layouts);
        report.index = index;
        let is_partial = report.annotations.contains(Annotations::PARTIAL);
        if result == Err(Refusal::NotAReport) && !is_partial && v20::has_packet(bytes) && self.is_whole() {
            // The packet is whatever a host sent. Its length is certain, so it must not hide the reports after it.
            return v20::accept_any_packet(report, bytes);
        }
        match result {
            // Bytes after a report with inconsistent lengths may belong to it.
            Err(refusal) if refusal.is_of_framing() => self.state = State::End,
            Err(refusal) if refusal.is_undefined() => {}
            _ if report.annotations.contains(Annotations::PARTIAL) && !self.rest.is_empty() => {
                self.state = State::Contradicted;
            }
            _ => {}
        }
        result
    }

    #[cold]
    fn is_whole(&mut self) -> bool {
        *self.is_whole.get_or_insert_with(|| v20::is_whole(self.rest))
    }

    /// Handles a datagram whose first report has an impossible length: a single report of the p4-int family.
    #[cold]
    fn read_to_the_end(&mut self, report: &mut Report<'a>, payload: &'a [u8]) -> Result<(), Refusal> {
        let Decoder { profile, layouts, .. } = &mut *self.decoder;
        p4int::read(report, payload, profile, layouts)
    }
}

/// Returns the version that the first octet announces.
#[inline]
fn version(payload: &[u8], profile: &Profile) -> Result<Version, Refusal> {
    let Some(first) = payload.first() else {
        return Err(Refusal::Truncated);
    };
    match first >> 4 {
        0 => Ok(Version::V05),
        1 if profile.dialect == Dialect::IntCollectorGen && first & 0x0f < 4 => {
            Ok(generator_version(payload))
        }
        1 => Ok(Version::V10),
        2 => Ok(Version::V20),
        _ => Err(Refusal::UnknownVersion),
    }
}

/// Decides the version for INTCollector's generator, which writes version nibble 1 into Report 0.5 too, and a length below
/// 4 into Report 1.0. Both continue with Ethernet, after 16 bytes in 1.0 and, with kind 0, after 12 in 0.5, so the
/// EtherType decides.
#[inline]
fn generator_version(payload: &[u8]) -> Version {
    const V05_KINDS: [usize; 3] = [12, 24, 28];
    let kind = usize::from(payload[0] & 0x0f);
    let ethertype_05 = V05_KINDS
        .get(kind)
        .and_then(|header| try_u16(payload, header + 12));
    let is_05_plausible = matches!(ethertype_05, Some(IPV4 | IPV6 | VLAN));
    let is_10_plausible = matches!(try_u16(payload, 16 + 12), Some(IPV4 | IPV6 | VLAN));
    let has_ip_in_10 = payload
        .get(16 + 14)
        .is_some_and(|first| matches!(first >> 4, 4 | 6));
    match (is_05_plausible, is_10_plausible) {
        // The IP length of a Report 0.5 is where a Report 1.0 has its EtherType, and may look like one.
        (true, true) if has_ip_in_10 => Version::V10,
        (true, _) => Version::V05,
        (false, true) => Version::V10,
        // Truncated too early to decide. The generator's Report 1.0 has length 1.
        (false, false) if kind == 1 || kind == 3 => Version::V10,
        (false, false) => Version::V05,
    }
}

/// Peeks at a datagram: sequence number, its source, and the flow of the first report.
///
/// # Errors
/// [`Refusal`] if the header is refused. Errors after the header are left to the decoder.
///
/// ```
/// let payload = testkit::vectors::bytes("tr20_emb");
/// let peek = wire::peek(&payload, &wire::Profile::default())?;
/// assert_eq!((peek.version.name(), peek.node_id, peek.seq), ("2.0", Some(3), 2749));
/// # Ok::<(), wire::Refusal>(())
/// ```
#[inline]
pub fn peek(payload: &[u8], profile: &Profile) -> Result<Peek, Refusal> {
    let peeked = match version(payload, profile)? {
        Version::V05 => v05::peek(payload, profile)?,
        Version::V10 => match v10::peek(payload, profile) {
            Err(Refusal::BadLength) => return peek_by_reading(payload, profile, None),
            peeked => peeked?,
        },
        Version::V20 => v20::peek(payload)?,
    };
    let Peeked {
        mut peek,
        packet,
        is_certain,
        is_announced,
    } = peeked;
    peek.flow = fast_path::flow(packet, profile).or_else(|| walk_flow(packet, profile));
    let is_proven_by_flow = peek.flow.is_some() && (is_announced || packet.first == FirstHeader::Ethernet);
    if is_certain || is_proven_by_flow {
        Ok(peek)
    } else {
        peek_by_reading(payload, profile, Some(peek))
    }
}

/// A report in a datagram of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeekedReport<'a> {
    /// The report's bytes, without the datagram's group header.
    pub bytes: &'a [u8],
    /// Flow of its packet, if known.
    pub flow: Option<FlowKey>,
}

/// Peeks at the flow of each report in a datagram of several (Report 2.0). Returns `None` for a datagram with one report,
/// and if a report may be refused together with all that follow; then only the decoder can tell which of them are valid.
pub fn peek_group<'a>(
    payload: &'a [u8],
    profile: &Profile,
) -> Option<impl Iterator<Item = PeekedReport<'a>>> {
    if version(payload, profile) != Ok(Version::V20) {
        return None;
    }
    let reports = v20::split_group(payload)?;
    Some(reports.map(|(bytes, packet)| PeekedReport {
        bytes,
        flow: fast_path::flow(packet, profile).or_else(|| walk_flow(packet, profile)),
    }))
}

/// Peeks at the sequence number and its source in a datagram that [`Decoder::reports`] refuses, which may not be a report
/// at all.
///
/// # Errors
/// [`Refusal`] if there is no sequence number, or if the datagram certainly is another protocol.
pub fn peek_header(payload: &[u8], profile: &Profile) -> Result<Peek, Refusal> {
    match version(payload, profile)? {
        Version::V05 => v05::number(payload, profile),
        Version::V10 => v10::number(payload),
        Version::V20 => v20::number(payload),
    }
}

#[inline(never)]
fn walk_flow(inside: InnerPacket<'_>, profile: &Profile) -> Option<FlowKey> {
    let mut layouts = Layouts::new();
    let mut walk = Walk::new(profile, &mut layouts, Purpose::Flow, inside.find_int);
    start(&mut walk, inside).ok()?;
    walk.finish();
    walk.out.flow
}

/// Decides whether a datagram without a flow consists of reports, by its first report of a defined type.
#[cold]
#[inline(never)]
fn peek_by_reading(payload: &[u8], profile: &Profile, header: Option<Peek>) -> Result<Peek, Refusal> {
    let mut decoder = Decoder::new(*profile);
    let mut report = Report::EMPTY;
    let mut last_refusal = Refusal::EmptyGroup;
    let mut reports = decoder.reports(payload);
    while let Some(result) = reports.read(&mut report) {
        match result {
            Ok(()) => {
                let Report {
                    version,
                    node_id,
                    hw_id,
                    seq,
                    flow,
                    ..
                } = report;
                // Only the first report's flow counts.
                let flow = flow.filter(|_| report.index == 0);
                return Ok(Peek {
                    version,
                    node_id,
                    hw_id,
                    seq,
                    flow,
                });
            }
            // If nothing after it can be parsed, this is the final result.
            Err(refusal) if refusal.is_undefined() || refusal == Refusal::NotAReport => {
                last_refusal = refusal
            }
            Err(refusal) if !refusal.counts_number() => {
                return Err(refusal);
            }
            Err(refusal) => return header.ok_or(refusal),
        }
    }
    Err(last_refusal)
}

/// Returns whether a UDP payload in a report, possibly truncated, consists of reports.
#[cold]
#[inline(never)]
pub(super) fn is_report(payload: &[u8], profile: &Profile) -> bool {
    // Without telemetry ports, so that a report inside it is parsed like any other packet.
    let profile = Profile {
        telemetry_ports: TelemetryPorts::NONE,
        ..*profile
    };
    match peek(payload, &profile) {
        Ok(_) => true,
        Err(Refusal::Truncated) if version(payload, &profile) == Ok(Version::V20) => {
            v20::cut_packet(payload).is_some_and(|packet| walk_flow(packet, &profile).is_some())
        }
        Err(_) => false,
    }
}

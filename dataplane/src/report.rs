//! Writes the reports of a switch: flow reports of a sink, postcards of a node, drops, and congested queues. The format is
//! Telemetry Report 1.0 or 2.0 (wire-formats 2.1, 2.3, 4.1), with sequence numbers per subsystem.

use wire::int::Sf;
use wire::report::{Flags, v10, v20};
use wire::{FlowKey, Hop};

use crate::packet::direct::{Common, Int};
use crate::packet::{CarriedInt, Headers, ParsedPacket};
use crate::visit::Visit;

/// Maximum length of a group of several reports, bytes. With its headers, the datagram fits an MTU of 1500 bytes.
const MAX_GROUP: usize = 1400;
/// Instruction bits that have a field in a report's metadata: 1 to 8.
const REPORTABLE: u16 = 0x7f80;
/// Instruction bits that have a field in Telemetry Report 1.0: ports, hop latency, queue, egress timestamp, utilization.
const IN_10: u16 = 0x7500;
// Single instruction bits: level-1 interfaces, queue, ingress timestamp, and drop reason, which Report 2.0 puts in bit 15.
const PORTS: u16 = 0x4000;
const QUEUE: u16 = 0x1000;
const INGRESS_TS: u16 = 0x0800;
const DROP_REASON: u16 = 0x0001;

/// Kind of a telemetry report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReportKind {
    /// The whole path of a packet, reported by the sink.
    Flow,
    /// One node's measurement of a packet (INT-MX, or a postcard).
    Postcard,
    /// The drop of a watched packet.
    Drop,
    /// A queue that rose above its threshold, or fell below it again.
    Queue,
}

settings::choice! {
    /// Version of the Telemetry Report format.
    pub enum Version("\"1.0\" or \"2.0\"") {
        /// 1.0: one report per datagram.
        V10 = "1.0",
        /// 2.0: one or several reports per datagram.
        V20 = "2.0",
    }
}

/// Format of a switch's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Version of the format.
    pub version: Version,
    /// Whether the sink's own record is on the packet's INT stack; otherwise it is in the report's header, which in 1.0 has no
    /// fields for level-2 interfaces and buffer occupancy.
    pub metadata_on_stack: bool,
    /// Reports per datagram (2.0), 1 to 64. A group that is not full waits for [`crate::Switch::flush`].
    pub group: u8,
    /// Whether the packet in a report begins with its Ethernet header; otherwise it begins with its IP header.
    pub ethernet: bool,
    /// Bytes of the packet to include after INT, or after the L4 header if there is no INT.
    pub snap: u16,
    /// Whether drop reports contain the packet's INT, and thus the path to the drop. With a port mark they always do, because
    /// INT contains the original port.
    pub drop_with_int: bool,
    /// Number of subsystems (`hw_id` from 0) among which the egress interfaces are distributed, 1 to 64, each with its own
    /// sequence.
    pub subsystems: u8,
    /// Sequence number of the first datagram of each subsystem.
    pub first_sequence: u32,
}

impl Default for Format {
    /// Selects Report 2.0, ungrouped, with IP packets cut 8 bytes after INT, and one subsystem.
    fn default() -> Self {
        Self {
            version: Version::V20,
            metadata_on_stack: false,
            group: 1,
            ethernet: false,
            snap: 8,
            drop_with_int: false,
            subsystems: 1,
            first_sequence: 0,
        }
    }
}

impl Format {
    pub(crate) fn is_20(&self) -> bool {
        self.version == Version::V20
    }

    pub(crate) fn is_valid(&self) -> bool {
        let groups = if self.is_20() { 1..=64 } else { 1..=1 };
        groups.contains(&self.group) && (1..=64).contains(&self.subsystems)
    }
}

/// Datagrams that are ready to be sent. The caller sends them and clears the outbox.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    made: Vec<WrittenReport>,
}

/// A datagram in an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Number of the subsystem (`hw_id`).
    pub hw_id: u8,
    /// Sequence number of the datagram in its subsystem.
    pub seq: u32,
    /// Number of reports in the datagram.
    pub reports: u16,
    /// UDP payload, without headers.
    pub payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hw_id: u8,
    seq: u32,
    reports: u16,
    start: usize,
}

/// A report that was written to a datagram of the outbox or to an open group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenReport {
    pub(crate) kind: ReportKind,
    pub(crate) hw_id: u8,
    /// Whether the report contains the INT stack of the packet.
    pub(crate) with_stack: bool,
    /// Record that an SF-INT packet carries, unless the packet is urgent.
    pub(crate) record: Option<Carrying>,
}

/// Identity of the record that an SF-INT packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrying {
    pub(crate) sf: Sf,
    pub(crate) node: u32,
}

impl Carrying {
    fn read(frame: &[u8], carried: &CarriedInt) -> Option<Self> {
        Self::at(frame, carried.sf, carried.end, carried.hop_ml)
    }

    /// Reads the carried record, the last one before `end`, where INT ends: the sink's own record may precede it.
    fn at(frame: &[u8], sf: Option<Sf>, end: usize, hop_ml: u8) -> Option<Self> {
        let sf = sf.filter(|sf| !sf.urgent)?;
        // The node id is the first item of every record.
        let record = end - usize::from(hop_ml) * 4;
        let node = frame
            .get(record..)?
            .first_chunk()
            .map(|id| u32::from_be_bytes(*id))?;
        Some(Self { sf, node })
    }
}

/// The packet in a sink's common report.
pub(crate) struct ReportedPacket {
    headers: Headers,
    /// Offset of the end of the IP packet.
    ip_end: usize,
    /// Offset of the end of INT, and of the IPv6 header that contains it.
    int_end: usize,
    record: Option<Carrying>,
}

impl ReportedPacket {
    pub(crate) fn new(frame: &[u8], carried: &CarriedInt) -> Self {
        let headers = carried.headers;
        let ip_end = headers.ip + headers.ip_len(frame);
        Self {
            headers,
            ip_end,
            int_end: int_end(carried),
            record: Carrying::read(frame, carried),
        }
    }

    /// Does the same as [`Self::new`] for a common frame whose INT is not in an option.
    #[inline(always)]
    pub(crate) fn direct(frame: &[u8], common: Common, int: Int) -> Self {
        let record = Carrying::at(frame, int.sf(), int.end, int.hop_ml);
        Self {
            headers: common.headers,
            ip_end: common.ip_end,
            int_end: int.end,
            record,
        }
    }
}

impl Outbox {
    /// Returns whether the outbox has no datagram, and no report was written since it was cleared.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.made.is_empty()
    }

    /// Clears the outbox and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        self.made.clear();
    }

    /// Returns the datagrams in order.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        let ends = self
            .slots
            .iter()
            .skip(1)
            .map(|slot| slot.start)
            .chain([self.bytes.len()]);
        self.slots.iter().zip(ends).map(|(slot, end)| {
            let Slot {
                hw_id,
                seq,
                reports,
                start,
            } = *slot;
            Datagram {
                hw_id,
                seq,
                reports,
                payload: &self.bytes[start..end],
            }
        })
    }

    /// Returns the reports that were written since the outbox was cleared, in order.
    pub(crate) fn made(&self) -> &[WrittenReport] {
        &self.made
    }
}

/// The subject of a postcard.
pub(crate) struct PostcardSubject<'a> {
    pub(crate) frame: &'a [u8],
    /// Items to report, as an instruction bitmap.
    pub(crate) bits: u16,
    pub(crate) metadata: &'a Hop,
    /// The packet entered the domain at this switch.
    pub(crate) from_edge: bool,
    /// The packet leaves the domain at this switch.
    pub(crate) to_edge: bool,
}

impl<'a> PostcardSubject<'a> {
    fn draft(&self, packet: Packet<'a>) -> ReportDraft<'a> {
        let entered = if self.from_edge { v20::POSTCARD_ENTERED } else { 0 };
        let left = if self.to_edge { v20::POSTCARD_LEFT } else { 0 };
        ReportDraft {
            bits: Some(self.bits & REPORTABLE),
            postcard_status: Some(entered | left),
            ..ReportDraft::new(ReportKind::Postcard, Flags::FLOW, self.metadata, packet)
        }
    }
}

/// Contents of one report, independent of the version.
struct ReportDraft<'a> {
    kind: ReportKind,
    flags: Flags,
    /// RepMdBits of 2.0; `None` for a report without main contents.
    bits: Option<u16>,
    metadata: &'a Hop,
    reason: Option<u8>,
    /// Flow ID of a postcard.
    flow_id: Option<[u8; 4]>,
    /// Status of a postcard: whether the packet entered or left the domain here.
    postcard_status: Option<u16>,
    packet: Packet<'a>,
    with_stack: bool,
    record: Option<Carrying>,
}

/// The packet in a report, by the header with which it begins.
#[derive(Clone, Copy)]
enum Packet<'a> {
    None,
    Ethernet(&'a [u8]),
    Ipv4(&'a [u8]),
    Ipv6(&'a [u8]),
    /// SF-INT header and record (2.0).
    Int(&'a [u8]),
}

/// Writes reports and numbers their datagrams.
#[derive(Debug)]
pub(crate) struct Exporter {
    node: u32,
    format: Format,
    /// Number of datagrams written per subsystem.
    sent: [u32; 64],
    groups: Vec<Group>,
}

/// An open group: reports of one subsystem that wait to be sent together.
#[derive(Debug)]
struct Group {
    hw_id: u8,
    reports: u16,
    bytes: Vec<u8>,
}

impl Exporter {
    pub(crate) fn new(node: u32, format: Format) -> Self {
        Self {
            node,
            format,
            sent: [0; 64],
            groups: Vec::new(),
        }
    }

    /// Writes the common report of a sink in place: version 2.0, ungrouped, the sink's record in the main contents. Returns
    /// `false`, with nothing written, for any other report.
    #[inline]
    pub(crate) fn flow_report_direct(
        &mut self,
        frame: &[u8],
        reported: &ReportedPacket,
        bits: u16,
        visit: &Visit,
        out: &mut Outbox,
    ) -> bool {
        const HEAD: usize = v20::GROUP_LEN + v20::LEN + v20::MAIN_LEN;
        let bits = bits & REPORTABLE;
        let end = (reported.int_end + usize::from(self.format.snap)).min(reported.ip_end);
        let (code, start) = match (self.format.ethernet, reported.headers.v6) {
            (true, _) => (3, 0),
            (false, false) => (4, reported.headers.ip),
            (false, true) => (5, reported.headers.ip),
        };
        let Some(packet) = frame.get(start..end) else {
            return false;
        };
        let metadata = usize::from(wire::int::layout::words_2(bits)) * 4;
        let padded = packet.len().next_multiple_of(4);
        let length = (v20::MAIN_LEN + metadata + padded) / 4;
        if !self.format.is_20() || self.format.group != 1 || length >= usize::from(v20::TO_THE_END) {
            return false;
        }
        let hw_id = (visit.egress_if % u16::from(self.format.subsystems)) as u8;
        let seq = self.number(hw_id);
        let start = out.bytes.len();
        out.bytes.reserve(HEAD + metadata + padded);
        out.bytes.resize(start + HEAD + metadata, 0);
        if let Some((head, record)) = out.bytes[start..].split_first_chunk_mut::<HEAD>() {
            v20::Group {
                hw_id,
                seq,
                node_id: self.node,
            }
            .emit(head);
            let report = &mut head[v20::GROUP_LEN..];
            let [high, low] = bits.to_be_bytes();
            // Type 1 and inner type; length; metadata length; F. Then RepMdBits, without domain.
            report[..6].copy_from_slice(&[0x10 | code, length as u8, (metadata / 4) as u8, 0x20, high, low]);
            visit.write_record(self.node, bits, u16::MAX, record);
        }
        out.bytes.extend_from_slice(packet);
        out.bytes.resize(start + HEAD + metadata + padded, 0);
        out.slots.push(Slot {
            hw_id,
            seq,
            reports: 1,
            start,
        });
        out.made.push(WrittenReport {
            kind: ReportKind::Flow,
            hw_id,
            with_stack: true,
            record: reported.record,
        });
        true
    }

    /// Returns whether [`Self::flow_report_direct`] can write this report.
    #[inline]
    pub(crate) fn is_direct(&self, reported: &ReportedPacket) -> bool {
        // Main contents, metadata and padding take less than 128 bytes.
        let short = reported.int_end + usize::from(self.format.snap) + 128 < usize::from(v20::TO_THE_END) * 4;
        self.format.is_20() && self.format.group == 1 && short
    }

    /// Writes a sink's report of a packet with its stack. `bits` selects the sink's items in the header; `None` means that its
    /// record is on the stack.
    pub(crate) fn flow_report(
        &mut self,
        frame: &[u8],
        carried: &CarriedInt,
        bits: Option<u16>,
        metadata: &Hop,
        out: &mut Outbox,
    ) {
        let packet = self.packet(
            frame,
            Some(&carried.headers),
            int_end(carried) + usize::from(self.format.snap),
        );
        let draft = ReportDraft {
            bits: bits.map(|bits| bits & REPORTABLE),
            with_stack: true,
            record: Carrying::read(frame, carried),
            ..ReportDraft::new(ReportKind::Flow, Flags::FLOW, metadata, packet)
        };
        self.write(&draft, out);
    }

    /// Writes a sink's compact report of an SF-INT packet: INT header and record.
    pub(crate) fn compact_report(
        &mut self,
        frame: &[u8],
        carried: &CarriedInt,
        bits: u16,
        metadata: &Hop,
        out: &mut Outbox,
    ) {
        let packet = Packet::Int(&frame[carried.header()..carried.end]);
        let draft = ReportDraft {
            bits: Some(bits & REPORTABLE),
            with_stack: true,
            record: Carrying::read(frame, carried),
            ..ReportDraft::new(ReportKind::Flow, Flags::FLOW, metadata, packet)
        };
        self.write(&draft, out);
    }

    /// Writes a node's report of an INT-MX packet, with the head of the packet.
    pub(crate) fn postcard_of_mx(
        &mut self,
        carried: &CarriedInt,
        about: &PostcardSubject<'_>,
        out: &mut Outbox,
    ) {
        let end = int_end(carried) + usize::from(self.format.snap);
        let packet = self.packet(about.frame, Some(&carried.headers), end);
        self.write(&about.draft(packet), out);
    }

    /// Writes a node's postcard: the Flow ID, and the head of the packet, from which a collector derives the flow, the packet
    /// digest and the hop limit.
    pub(crate) fn postcard(
        &mut self,
        flow: &FlowKey,
        headers: &Headers,
        about: &PostcardSubject<'_>,
        out: &mut Outbox,
    ) {
        let packet = self.packet(
            about.frame,
            Some(headers),
            headers.body() + usize::from(self.format.snap),
        );
        let draft = ReportDraft {
            flow_id: Some(flow.flow_id().to_be_bytes()),
            ..about.draft(packet)
        };
        self.write(&draft, out);
    }

    /// Writes a drop report: ports, ingress time, queue, reason, and the head of the packet.
    pub(crate) fn drop_report(
        &mut self,
        frame: &[u8],
        parsed: &ParsedPacket,
        metadata: &Hop,
        reason: u8,
        out: &mut Outbox,
    ) {
        let snap = usize::from(self.format.snap);
        let port_marked = parsed
            .carried
            .is_some_and(|carried| carried.mark == wire::packet::Mark::Port);
        let with_int = parsed
            .carried
            .filter(|_| self.format.drop_with_int || port_marked);
        let end = match (with_int, parsed.carried, parsed.headers) {
            (Some(carried), _, _) => int_end(&carried) + snap,
            (None, Some(carried), _) => ports_end(&carried.headers),
            (None, None, Some(headers)) => headers.body() + snap,
            (None, None, None) => 64,
        };
        let flags = Flags::DROP.with(Flags::FLOW, with_int.is_some());
        let draft = ReportDraft {
            bits: Some(PORTS | INGRESS_TS | DROP_REASON),
            reason: Some(reason),
            record: with_int.and_then(|carried| Carrying::read(frame, &carried)),
            with_stack: with_int
                .is_some_and(|carried| carried.mode == wire::int::Mode::Md && carried.sf.is_none()),
            ..ReportDraft::new(
                ReportKind::Drop,
                flags,
                metadata,
                self.packet(frame, parsed.headers.as_ref(), end),
            )
        };
        self.write(&draft, out);
    }

    /// Writes a queue report: ports, queue, ingress time. It concerns a queue and not a flow, so it contains no packet; in 1.0,
    /// which requires one, the packet has length 0.
    pub(crate) fn queue_report(&mut self, metadata: &Hop, out: &mut Outbox) {
        self.write(&ReportDraft::queue(metadata, Packet::None), out);
    }

    /// Reports a packet that passes a congested queue: like [`Exporter::queue_report`], with the head of the packet up to its
    /// ports (up to the end of INT if that contains the original port).
    pub(crate) fn congested_packet(
        &mut self,
        frame: &[u8],
        parsed: &ParsedPacket,
        metadata: &Hop,
        out: &mut Outbox,
    ) {
        let end = match (parsed.carried, parsed.headers) {
            (Some(carried), _) if carried.mark == wire::packet::Mark::Port => carried.end,
            (_, Some(headers)) => ports_end(&headers),
            (_, None) => 64,
        };
        let packet = self.packet(frame, parsed.headers.as_ref(), end);
        self.write(&ReportDraft::queue(metadata, packet), out);
    }

    /// Returns the items in `bits` that a flow report contains for the switch itself; `None` without its own record.
    pub(crate) fn own_bits(&self, bits: u16) -> Option<u16> {
        if self.format.is_20() {
            return Some(bits & REPORTABLE).filter(|bits| *bits != 0);
        }
        // The header of 1.0 has a separate field for the ingress timestamp.
        Some(bits & IN_10)
            .filter(|bits| *bits != 0)
            .map(|bits| bits | INGRESS_TS)
    }

    /// Sends every open group.
    pub(crate) fn flush(&mut self, out: &mut Outbox) {
        for at in 0..self.groups.len() {
            self.close(at, out);
        }
    }

    /// Returns whether a group is open.
    pub(crate) fn has_pending_reports(&self) -> bool {
        self.groups.iter().any(|group| group.reports > 0)
    }

    /// Returns the head of a frame, up to offset `end` or the end of the IP packet.
    fn packet<'a>(&self, frame: &'a [u8], headers: Option<&Headers>, end: usize) -> Packet<'a> {
        let Some(headers) = headers else {
            return Packet::Ethernet(&frame[..end.min(frame.len())]);
        };
        let end = end.min(headers.ip + headers.ip_len(frame)).min(frame.len());
        match (self.format.ethernet, headers.v6) {
            (true, _) => Packet::Ethernet(&frame[..end]),
            (false, false) => Packet::Ipv4(&frame[headers.ip..end]),
            (false, true) => Packet::Ipv6(&frame[headers.ip..end]),
        }
    }

    fn write(&mut self, draft: &ReportDraft<'_>, out: &mut Outbox) {
        let hw_id = (draft.metadata.egress_if.unwrap_or(0) % u16::from(self.format.subsystems)) as u8;
        match self.format.version {
            Version::V10 => self.write_10(draft, hw_id, out),
            Version::V20 => self.write_20(draft, hw_id, out),
        }
        out.made.push(WrittenReport {
            kind: draft.kind,
            hw_id,
            record: draft.record,
            with_stack: draft.with_stack,
        });
    }

    fn write_10(&mut self, draft: &ReportDraft<'_>, hw_id: u8, out: &mut Outbox) {
        let seq = self.number(hw_id);
        let (next, packet) = match draft.packet {
            Packet::None | Packet::Int(_) => (v10::NextProtocol::Ethernet, &[][..]),
            Packet::Ethernet(bytes) => (v10::NextProtocol::Ethernet, bytes),
            Packet::Ipv4(bytes) => (v10::NextProtocol::Ipv4, bytes),
            Packet::Ipv6(bytes) => (v10::NextProtocol::Ipv6, bytes),
        };
        let header = v10::Repr {
            next,
            bits: metadata_10(draft.bits.unwrap_or(0)),
            flags: draft.flags,
            hw_id,
            switch_id: self.node,
            seq,
            ingress_ts: draft.metadata.ingress_ts.unwrap_or(0) as u32,
            metadata: *draft.metadata,
            drop_reason: draft.reason,
        };
        let start = out.bytes.len();
        out.bytes.resize(start + header.header_len(), 0);
        header.emit(wire::Dialect::Strict, &mut out.bytes[start..]);
        out.bytes.extend_from_slice(packet);
        out.slots.push(Slot {
            hw_id,
            seq,
            reports: 1,
            start,
        });
    }

    fn write_20(&mut self, draft: &ReportDraft<'_>, hw_id: u8, out: &mut Outbox) {
        let flow_id = draft.flow_id;
        let domain = flow_id.as_ref().map_or(&[][..], |id| id);
        let (ds_id, ds_bits) = match (draft.postcard_status, draft.packet) {
            (Some(_), _) => (v20::POSTCARD_DOMAIN, flow_id.map_or(0, |_| v20::POSTCARD_FLOW_ID)),
            (None, Packet::Int(_)) => (wire::int::sf::REPORT_DOMAIN, 0),
            (None, _) => (0, 0),
        };
        let report = v20::Repr {
            flags: draft.flags,
            main: draft.bits.map(|bits| v20::MainRepr {
                bits,
                ds_id,
                ds_bits,
                ds_status: draft.postcard_status.unwrap_or(0),
                metadata: *draft.metadata,
                drop_reason: draft.reason,
                domain,
            }),
            inner: match draft.packet {
                Packet::None => v20::Inner::None,
                Packet::Ethernet(bytes) => v20::Inner::Ethernet(bytes),
                Packet::Ipv4(bytes) => v20::Inner::Ipv4(bytes),
                Packet::Ipv6(bytes) => v20::Inner::Ipv6(bytes),
                Packet::Int(bytes) => v20::Inner::Domain(bytes),
            },
            ignored_md_length: 0,
        };
        let at = self.group(hw_id);
        if self.groups[at].reports > 0 && self.groups[at].bytes.len() + report.len() > MAX_GROUP {
            self.close(at, out);
        }
        let group = &mut self.groups[at];
        let start = group.bytes.len();
        group.bytes.resize(start + report.len(), 0);
        report.emit(&mut group.bytes[start..]);
        group.reports += 1;
        // By definition, a report of 255 words or more extends to the end of its datagram.
        let last = report.len() - v20::LEN >= usize::from(v20::TO_THE_END) * 4;
        if last || group.reports >= u16::from(self.format.group) {
            self.close(at, out);
        }
    }

    fn group(&mut self, hw_id: u8) -> usize {
        self.groups
            .iter()
            .position(|group| group.hw_id == hw_id)
            .unwrap_or_else(|| {
                self.groups.push(Group {
                    hw_id,
                    reports: 0,
                    bytes: Vec::new(),
                });
                self.groups.len() - 1
            })
    }

    /// Sends a group, unless it is empty.
    fn close(&mut self, at: usize, out: &mut Outbox) {
        let Group { hw_id, reports, .. } = self.groups[at];
        if reports == 0 {
            return;
        }
        let seq = self.number(hw_id);
        let start = out.bytes.len();
        out.bytes.resize(start + v20::GROUP_LEN, 0);
        v20::Group {
            hw_id,
            seq,
            node_id: self.node,
        }
        .emit(&mut out.bytes[start..]);
        let group = &mut self.groups[at];
        out.bytes.extend_from_slice(&group.bytes);
        group.reports = 0;
        group.bytes.clear();
        out.slots.push(Slot {
            hw_id,
            seq,
            reports,
            start,
        });
    }

    /// Returns the next sequence number: 22 bits in 2.0, 32 bits in 1.0.
    fn number(&mut self, hw_id: u8) -> u32 {
        let sent = &mut self.sent[usize::from(hw_id)];
        let seq = self.format.first_sequence.wrapping_add(*sent);
        *sent = sent.wrapping_add(1);
        if self.format.is_20() { seq & 0x3f_ffff } else { seq }
    }
}

impl<'a> ReportDraft<'a> {
    fn new(kind: ReportKind, flags: Flags, metadata: &'a Hop, packet: Packet<'a>) -> Self {
        Self {
            kind,
            flags,
            bits: None,
            metadata,
            reason: None,
            flow_id: None,
            postcard_status: None,
            packet,
            with_stack: false,
            record: None,
        }
    }

    fn queue(metadata: &'a Hop, packet: Packet<'a>) -> Self {
        Self {
            bits: Some(PORTS | QUEUE | INGRESS_TS),
            ..Self::new(ReportKind::Queue, Flags::QUEUE, metadata, packet)
        }
    }
}

/// Returns the offset of the first byte after the ports.
fn ports_end(headers: &Headers) -> usize {
    if headers.has_option() {
        headers.body() + 4
    } else {
        headers.l4 + 4
    }
}

/// Returns the offset of the end of INT, and of the IPv6 header that contains it.
fn int_end(carried: &CarriedInt) -> usize {
    if carried.headers.has_option() {
        carried.headers.body()
    } else {
        carried.end
    }
}

/// Converts RepMdBits of 2.0 to those of 1.0: ports, hop latency, queue, egress timestamp, drop reason, utilization.
fn metadata_10(bits: u16) -> u8 {
    // The bits of 2.0 in the order of the bits of 1.0, most significant first.
    const ORDER: [u16; 6] = [PORTS, 0x2000, QUEUE, 0x0400, DROP_REASON, 0x0100];
    ORDER
        .iter()
        .fold(0, |metadata, &bit| metadata << 1 | u8::from(bits & bit != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_bits_move_to_their_places_in_1_0() {
        assert_eq!(metadata_10(0xffff), 0x3f);
        assert_eq!(metadata_10(PORTS | DROP_REASON), 0x22);
        assert_eq!(metadata_10(QUEUE | 0x0100), 0x09);
    }
}

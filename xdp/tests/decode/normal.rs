//! Reports in normal form, computed with `wire` and the collector's rules.
#![allow(dead_code, reason = "the benchmark uses a part")]

use std::net::IpAddr;

use wire::frame::PartialHeaders;
use wire::int::Mode;
use wire::ioam::Ioam;
use wire::report::v20::{Group, POSTCARD_DOMAIN};
use wire::{Annotations, Decoder, Dialect, Flags, FlowKey, Items, Layout, Profile, Refusal, Version};
use xdp::Units;

/// Classification of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// A datagram to one of the ports.
    Telemetry { dst_port: u32, source: [u8; 16] },
    /// One that is refused.
    Refused { reason: u32, source: [u8; 16] },
    /// Passed to the stack.
    Passed { reason: u32 },
}

/// UDP to a port that is not ours.
pub(crate) const OTHER_PORT: u32 = Refusal::IN_KERNEL as u32;
/// Longer than the buffer.
pub(crate) const TOO_LONG: u32 = OTHER_PORT + 1;

/// Decoded contents of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) frame: Frame,
    /// Version, node, subsystem, number; version 0 if the header was refused.
    pub(crate) peeked: [u32; 4],
    /// Reports and refusals.
    pub(crate) count: u32,
    /// The first of them.
    pub(crate) parsed: Vec<Parsed>,
}

impl Outcome {
    pub(crate) fn not_read(frame: Frame) -> Self {
        Self {
            frame,
            peeked: [0; 4],
            count: 0,
            parsed: Vec::new(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Parsed {
    Report(Box<Report>),
    Refused(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) version: u32,
    pub(crate) node_id: u32,
    pub(crate) hw_id: u8,
    pub(crate) seq: u32,
    pub(crate) index: u16,
    pub(crate) flags: u32,
    pub(crate) marks: u32,
    pub(crate) reason: u8,
    pub(crate) flow: Option<FlowKey>,
    /// First ingress and last egress stamp, and whether they are wide.
    pub(crate) ends: (u64, u64, bool),
    pub(crate) hops: Vec<Hop>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub(crate) node: u32,
    pub(crate) link: u32,
    pub(crate) level_2: bool,
    pub(crate) latency: u64,
    pub(crate) queue: u32,
    pub(crate) congestion: u32,
    pub(crate) utilization: u64,
}

// Annotations of `struct report`.
pub(crate) const HAS_FLOW: u32 = 1;
const HAS_NODE: u32 = 2;
pub(crate) const HAS_REASON: u32 = 4;
const OWN_HOP: u32 = 8;
const MERGED: u32 = 16;
const POSTCARD: u32 = 32;
const HOP_LIMIT: u32 = 64;
const MTU: u32 = 128;
pub(crate) const UNDECIDED: u32 = 256;
const IMPLAUSIBLE: u32 = 512;
const MD: u32 = 1024;
const INT_REFUSED: u32 = 2048;
const GAP: u32 = 4096;
const NO_PATH: u32 = 8192;
const EXPIRES: u32 = 16384;
const REPLICA: u32 = 32768;
const TUNNEL_UNREAD: u32 = 65536;

/// Maximum number of hops of a report in normal form.
const MAX_HOPS: usize = 16;
const ABSENT: u32 = u32::MAX;
const NO_VALUE: u64 = u64::MAX;
/// Latencies from here on are implausible.
const LATENCY_END: u64 = 0xffff_ffff_ff00_0000;

/// Result of `wire` for a frame, in the form of the kernel's decoder, with the first `kept` results.
pub(crate) fn outcome(frame: &[u8], profile: &Profile, units: &Units, kept: usize) -> Outcome {
    let envelope = PartialHeaders::of_frame(frame);
    let ours = |port: u16| profile.telemetry_ports.contains(port);
    let datagram = match wire::datagram(frame) {
        Ok(datagram) if ours(datagram.dst_port) => datagram,
        Ok(_) => return Outcome::not_read(Frame::Passed { reason: OTHER_PORT }),
        Err(refusal) => {
            let reason = refusal as u32;
            let refused = refusal != Refusal::Fragment && envelope.dst_port.is_some_and(ours);
            let source = envelope.src.map_or([0; 16], octets);
            return Outcome::not_read(match refused {
                true => Frame::Refused { reason, source },
                false => Frame::Passed { reason },
            });
        }
    };
    if has_length_zero(datagram.payload, profile) {
        return handed_over(&datagram);
    }
    let peek = wire::peek(datagram.payload, profile);
    let mut decoder = Decoder::new(*profile);
    let (mut parsed, mut count) = (Vec::new(), 0);
    for (index, result) in decoder.reports(datagram.payload).enumerate() {
        count += 1;
        if parsed.len() < kept {
            parsed.push(match result {
                Ok(report) if may_be_nested(&report, profile) => undecided(&peek.unwrap(), report.index),
                Err(Refusal::Nested) => undecided(&peek.unwrap(), index as u16),
                Ok(report) => Parsed::Report(Box::new(comparable(normal(&report, units)))),
                Err(refusal) => Parsed::Refused(refusal as u32),
            });
        }
    }
    let peeked = peek.map_or([0; 4], |peek| {
        [
            number(peek.version),
            peek.node_id.unwrap_or(ABSENT),
            u32::from(peek.hw_id),
            peek.seq,
        ]
    });
    let source = octets(datagram.src);
    let frame = Frame::Telemetry {
        dst_port: u32::from(datagram.dst_port),
        source,
    };
    // If the header was refused, the other three are meaningless.
    Outcome {
        frame,
        peeked,
        count,
        parsed,
    }
}

/// Whether the lengths of a report 2.0 are 0, as in the p4-int family. The kernel leaves these datagrams to user space, whether or not
/// `wire` accepts them.
fn has_length_zero(payload: &[u8], profile: &Profile) -> bool {
    let Some(head) = payload.first_chunk::<34>() else {
        return false;
    };
    let version = head[0] >> 4;
    let inner_type = head[8] & 0x0f;
    matches!(profile.dialect, Dialect::Strict | Dialect::P4Int)
        && head[8] >> 4 == 1
        && matches!(inner_type, 3 | 4)
        && (version == 2 || version == 1 && inner_type == 4)
        && head[9..11].iter().chain(&head[12..20]).all(|byte| *byte == 0)
        // A report 1.0 whose length is right is one.
        && (version == 2 || wire::report::v10::Repr::parse(payload, profile) == Err(Refusal::BadLength))
}

/// Whether the packet may be a report, and the report one about INT. The kernel leaves these reports to user space.
fn may_be_nested(report: &wire::Report<'_>, profile: &Profile) -> bool {
    const UDP: u8 = 17;
    let is_event = report.flags.contains(Flags::DROP) || report.flags.contains(Flags::QUEUE);
    let ports = report
        .flow
        .filter(|flow| flow.proto() == UDP)
        .and_then(|flow| flow.ports());
    !is_event && ports.is_some_and(|(_, dst_port)| profile.telemetry_ports.contains(dst_port))
}

/// The report that stands for such a datagram.
fn handed_over(datagram: &wire::Datagram<'_>) -> Outcome {
    let (group, _) = Group::split(datagram.payload).unwrap();
    let frame = Frame::Telemetry {
        dst_port: u32::from(datagram.dst_port),
        source: octets(datagram.src),
    };
    let Group { node_id, hw_id, seq } = group;
    let peek = wire::Peek {
        version: Version::V20,
        node_id: Some(node_id),
        hw_id,
        seq,
        flow: None,
    };
    Outcome {
        frame,
        peeked: [0; 4],
        count: 1,
        parsed: vec![undecided(&peek, 0)],
    }
}

/// A report without the flow, if it is one that the kernel leaves to user space for the packet inside: wire knows that flow only if it
/// accepts the packet.
pub(crate) fn comparable(report: Report) -> Report {
    if report.marks == UNDECIDED | HAS_FLOW && report.flags == 0 && report.hops.is_empty() {
        Report {
            marks: UNDECIDED,
            flow: None,
            ..report
        }
    } else {
        report
    }
}

impl Outcome {
    /// Takes over what `wire` says from a report on that the kernel leaves to user space, which then reads the datagram. The kernel does so
    /// also where two marks, or a mark and an option, announce INT, and where the length of an IP header cuts INT off, which no result of
    /// `wire` shows. Returns whether there is such a report.
    pub(crate) fn take_left(&mut self, expected: &Self) -> bool {
        let mut both = self.parsed.iter().zip(&expected.parsed);
        let Some((Parsed::Report(report), _)) = both.find(|(got, expected)| got != expected) else {
            return false;
        };
        let is_left = report.marks == UNDECIDED && report.hops.is_empty();
        if is_left {
            let frame = self.frame.clone();
            *self = Self {
                frame,
                ..expected.clone()
            };
        }
        is_left
    }
}

/// A report that the kernel leaves to user space before it has read it whole.
fn undecided(peek: &wire::Peek, index: u16) -> Parsed {
    Parsed::Report(Box::new(Report {
        version: number(peek.version),
        node_id: peek.node_id.unwrap_or(ABSENT),
        hw_id: peek.hw_id,
        seq: peek.seq,
        index,
        flags: 0,
        marks: UNDECIDED,
        reason: 0,
        flow: None,
        ends: (NO_VALUE, NO_VALUE, false),
        hops: Vec::new(),
    }))
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn number(version: Version) -> u32 {
    match version {
        Version::V05 => 5,
        Version::V10 => 10,
        Version::V20 => 20,
    }
}

fn normal(report: &wire::Report<'_>, units: &Units) -> Report {
    let mark = |on: bool, mark: u32| if on { mark } else { 0 };
    let signals = report.int.map_or(wire::int::Flags::default(), |int| int.flags);
    let sf = !report.is_postcard() && report.int.is_some_and(|int| int.sf.is_some());
    let trace_undecided = match report.ioam {
        Some(Ioam::Trace(trace)) => report.is_traced() && (trace.is_incomplete() || !trace.has_node_ids()),
        _ => false,
    };
    let left_out = report.int_refused.is_some() && report.ioam.is_some();
    let beside = match report.int {
        Some(_) => report.is_traced(),
        None => report.ioam_options.is_some() || left_out,
    };
    let several = !report.is_postcard() && beside;
    let undecided = sf || several || trace_undecided || report.hop_count() > MAX_HOPS;
    let marks = mark(report.flow.is_some(), HAS_FLOW)
        | mark(report.node_id.is_some(), HAS_NODE)
        | mark(report.drop_reason.is_some(), HAS_REASON)
        | mark(report.has_metadata(), OWN_HOP)
        | mark(report.annotations.contains(Annotations::MERGED), MERGED)
        | mark(
            report.version == Version::V05 || report.ds_id == POSTCARD_DOMAIN,
            POSTCARD,
        )
        | mark(signals.contains(wire::int::Flags::HOPS_EXCEEDED), HOP_LIMIT)
        | mark(signals.contains(wire::int::Flags::MTU_EXCEEDED), MTU)
        | mark(
            report
                .int
                .is_some_and(|int| int.mode == Mode::Md && int.sf.is_none()),
            MD,
        )
        | mark(report.int_refused.is_some(), INT_REFUSED)
        | mark(report.gap.is_some(), GAP)
        | mark(report.is_path_left_out(), NO_PATH)
        | mark(report.hop_limit.is_some_and(|limit| limit <= 1), EXPIRES)
        | mark(report.annotations.contains(Annotations::REPLICA), REPLICA)
        | mark(report.tunnel_refused.is_some(), TUNNEL_UNREAD)
        | mark(undecided, UNDECIDED);
    // The kernel does not decode SF-INT and several traces, but passes them to user space.
    let marks = if sf || several {
        marks & !(OWN_HOP | MERGED)
    } else {
        marks
    };
    let (mut hops, ends) = if undecided {
        (Vec::new(), (NO_VALUE, NO_VALUE, false))
    } else if is_stacked(report) {
        stacked(report, units)
    } else {
        one_by_one(report, units)
    };
    let mut implausible = false;
    for hop in hops
        .iter_mut()
        .filter(|hop| (LATENCY_END..NO_VALUE).contains(&hop.latency))
    {
        (hop.latency, implausible) = (NO_VALUE, true);
    }
    let marks = marks | mark(implausible, IMPLAUSIBLE);
    Report {
        version: number(report.version),
        node_id: report.node_id.unwrap_or(ABSENT),
        hw_id: report.hw_id,
        seq: report.seq,
        index: report.index,
        flags: u32::from(report.flags.0),
        marks,
        reason: report.drop_reason.unwrap_or(0),
        flow: report.flow,
        ends,
        hops,
    }
}

/// Whether the collector reads the hops in place.
fn is_stacked(report: &wire::Report<'_>) -> bool {
    const MAX_WORDS: u8 = 13;
    let has = |flag| report.flags.contains(flag);
    let whole_path =
        !has(Flags::DROP) && !has(Flags::INTERMEDIATE) && (!has(Flags::QUEUE) || has(Flags::FLOW));
    let stack = report.int.map(|int| int.stack);
    let readable =
        stack.is_some_and(|stack| !stack.is_empty() && (1..=MAX_WORDS).contains(&stack.layout.words()));
    readable && whole_path && report.metadata.is_none() && report.flow.is_some()
}

type Ends = (u64, u64, bool);

/// The hops of a stack as the collector's `Stacked` reads them.
fn stacked(report: &wire::Report<'_>, units: &Units) -> (Vec<Hop>, Ends) {
    let stack = report.int.unwrap().stack;
    let layout = stack.layout;
    let hops = stack
        .records()
        .rev()
        .map(|record| stacked_hop(&layout, record, units))
        .collect();
    let (first, last) = (stack.records().last().unwrap(), stack.record(0));
    (
        hops,
        (layout.ingress_ts(first), layout.egress_ts(last), layout.wide_ts()),
    )
}

fn stacked_hop(layout: &Layout, record: &[u8], units: &Units) -> Hop {
    let carried = layout.carried();
    let word = |item| {
        let at = layout.word_of(item) * 4;
        record
            .get(at..at + 4)
            .map_or(ABSENT, |word| u32::from_be_bytes(word.try_into().unwrap()))
    };
    let logical = match layout.wide_l2() {
        true => layout.l2_interfaces(record) as u32,
        false => word(Items::L2_INTERFACES),
    };
    let (link, level_2) = match word(Items::INTERFACES) {
        link if link & 0xffff == 0xffff && logical != ABSENT => (logical, layout.wide_l2()),
        link => (link, false),
    };
    let by_stamps = carried.contains(Items::INGRESS_TS) && carried.contains(Items::EGRESS_TS);
    let (ingress, egress) = (layout.ingress_ts(record), layout.egress_ts(record));
    let latency = match scaled(layout.hop_latency(record), units.latency_ns) {
        NO_VALUE if by_stamps => between(ingress, egress, layout.wide_ts(), units),
        latency => latency,
    };
    Hop {
        node: word(Items::NODE_ID),
        link,
        level_2,
        latency: mark_implausible(latency, ingress, egress, units),
        queue: word(Items::QUEUE),
        congestion: word(Items::QUEUE_CONGESTION),
        utilization: scaled(word(Items::TX_UTILIZATION), units.utilization),
    }
}

/// The hops of any report as the collector reads them.
fn one_by_one(report: &wire::Report<'_>, units: &Units) -> (Vec<Hop>, Ends) {
    let (mut hops, mut ends, mut widths) = (Vec::new(), (NO_VALUE, NO_VALUE), (false, false));
    for (at, mut hop) in report.hops().enumerate() {
        if report.has_derived_latency() && at + 1 == report.hop_count() {
            hop.hop_latency = None;
        }
        if at == 0 {
            (ends.0, widths.0) = (hop.ingress_ts.unwrap_or(NO_VALUE), hop.wide_ts);
        }
        (ends.1, widths.1) = (hop.egress_ts.unwrap_or(NO_VALUE), hop.wide_ts);
        hops.push(reading(&hop, units));
    }
    if widths.0 != widths.1 {
        let narrow = |stamp: u64| {
            if stamp == NO_VALUE {
                NO_VALUE
            } else {
                stamp & 0xffff_ffff
            }
        };
        ends = (narrow(ends.0), narrow(ends.1));
    }
    (hops, (ends.0, ends.1, widths.0 && widths.1))
}

/// The collector's `Reading::of`.
fn reading(hop: &wire::Hop, units: &Units) -> Hop {
    let stamp = |stamp: Option<u64>| stamp.unwrap_or(NO_VALUE);
    let pair = |id: Option<u8>, level: Option<u32>| match (id, level) {
        (Some(id), Some(level)) if level >> 24 == 0 => u32::from(id) << 24 | level,
        _ => ABSENT,
    };
    let half = |port: Option<u16>| u32::from(port.unwrap_or(u16::MAX));
    let level_2 = hop.egress_if.is_none() && hop.l2_egress_if.is_some();
    let (ingress, egress) = (stamp(hop.ingress_ts), stamp(hop.egress_ts));
    let latency = match hop.hop_latency {
        Some(latency) => scaled(latency, if hop.latency_in_ns { 1 } else { units.latency_ns }),
        None => between(ingress, egress, hop.wide_ts, units),
    };
    Hop {
        node: hop.node_id.unwrap_or(ABSENT),
        link: match level_2 {
            true => hop.l2_egress_if.unwrap(),
            false => half(hop.ingress_if) << 16 | half(hop.egress_if),
        },
        level_2,
        latency: mark_implausible(latency, ingress, egress, units),
        queue: pair(hop.queue_id, hop.queue_occupancy),
        congestion: pair(hop.congestion_queue_id, hop.queue_congestion),
        utilization: scaled(hop.tx_utilization.unwrap_or(ABSENT), units.utilization),
    }
}

fn scaled(raw: u32, unit: u32) -> u64 {
    if raw == ABSENT {
        NO_VALUE
    } else {
        u64::from(raw) * u64::from(unit)
    }
}

fn between(ingress: u64, egress: u64, wide: bool, units: &Units) -> u64 {
    if ingress == NO_VALUE || egress == NO_VALUE {
        return NO_VALUE;
    }
    let later = match wide {
        true => egress.checked_sub(ingress),
        false => Some((egress as u32).wrapping_sub(ingress as u32))
            .filter(|later| later >> 31 == 0)
            .map(u64::from),
    };
    later.map_or(LATENCY_END, |later| {
        later.saturating_mul(u64::from(units.stamp_ns)).min(LATENCY_END)
    })
}

fn mark_implausible(latency: u64, ingress: u64, egress: u64, units: &Units) -> u64 {
    let lacks_ingress = ingress == 0 && ![0, NO_VALUE].contains(&egress);
    let odd = units.max_latency != u64::MAX && (latency > units.max_latency || lacks_ingress);
    if odd && latency != NO_VALUE {
        LATENCY_END
    } else {
        latency
    }
}

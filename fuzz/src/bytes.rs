//! Fuzz bodies for `wire`.

use wire::aggregate::{Aggregate, HEADER_LEN, Header, LONG_POSTCARD_LEN, SUMMARY_LEN};
use wire::int::{header, shim};
use wire::lldp::Lldpdu;
use wire::report::{Report, v05, v10, v20};
use wire::{Decoder, Layout, Profile, Refusal, Stack, Version};
use wire::{ethernet, geneve, gre, ipv4, ipv6, mpls, tcp, udp, vxlan};

/// A telemetry datagram: reports are consistent; `peek` and the decoder without its fast path give the same result.
pub fn reports(payload: &[u8], profile: &Profile) {
    let mut decoder = Decoder::new(*profile);
    let all: Vec<Result<Report<'_>, Refusal>> = decoder.reports(payload).collect();
    assert!(
        all.len() <= payload.len() / 4 + 1,
        "{} reports in {} bytes",
        all.len(),
        payload.len()
    );
    for report in all.iter().flatten() {
        report_holds_together(report, payload);
    }
    contradictions_end(&all, payload);
    if let Some(Ok(first)) = all.first() {
        let peek = wire::peek(payload, profile).expect("what decodes can be peeked at");
        let decoded = (first.version, first.node_id, first.hw_id, first.seq);
        assert_eq!((peek.version, peek.node_id, peek.hw_id, peek.seq), decoded);
        // Where the INT is refused and left out, peek gives the ports that its shim announces.
        let is_int_left_out = !matches!(first.int_refused, None | Some(Refusal::BadIoam));
        assert!(
            is_int_left_out || peek.flow == first.flow,
            "{:?} {:?}",
            peek.flow,
            first.flow
        );
        header_reads_back(first, payload, profile);
    }
    let _ = wire::peek(payload, profile);
    brief_agrees(payload, profile, &all);
    single_agrees(payload, profile, &all);
    shortcut_agrees(payload, profile, all.first());
}

/// An aggregate: the count in the header is the number of records, all records are consistent and in the scope of the aggregate, and
/// writing them gives the same bytes, except for reserved bits and the tails of long records.
pub fn aggregate(payload: &[u8], _: &Profile) {
    let Ok(aggregate) = Aggregate::parse(payload) else {
        return;
    };
    let header = aggregate.header();
    let (postcards, summaries) = (aggregate.postcards().count(), aggregate.summaries().count());
    let (count, kind) = (usize::from(header.count), header.kind);
    assert_eq!(
        (postcards, summaries),
        if kind.is_correlated() {
            (0, count)
        } else {
            (count, 0)
        }
    );
    assert!(count > 0);
    let record_len = if header.packet_fields {
        LONG_POSTCARD_LEN
    } else {
        kind.record_len()
    };
    let mut again = vec![0xa5; HEADER_LEN + count * record_len];
    Header {
        record_len: record_len as u16,
        ..*header
    }
    .emit(&mut again);
    let (_, mut rest) = again.split_at_mut(HEADER_LEN);
    for (postcard, packet) in aggregate.postcards_with_packets() {
        assert!(!kind.node_scope() || postcard.node() == header.node_scope);
        assert!(!kind.flow_scope() || postcard.flow_id() == header.flow_scope);
        postcard.emit(rest);
        packet.iter().for_each(|packet| packet.emit(rest));
        rest = &mut rest[record_len..];
    }
    for summary in aggregate.summaries() {
        assert!(summary.count > 0 && (summary.min..=summary.max).contains(&summary.average()));
        summary.emit(rest);
        rest = &mut rest[SUMMARY_LEN..];
    }
    let read = Aggregate::parse(&again).expect("what is written can be read");
    assert!(
        read.postcards_with_packets()
            .eq(aggregate.postcards_with_packets())
    );
    assert!(read.summaries().eq(aggregate.summaries()));
    let same = Header {
        record_len: header.record_len,
        ..*read.header()
    };
    assert_eq!(same, *header);
}

/// An LLDPDU, also behind an Ethernet header: its values are inside the bytes, writing them gives an LLDPDU with the same values, and
/// no part of that is one.
pub fn lldp(frame: &[u8], _: &Profile) {
    for bytes in [frame, frame.get(ethernet::HEADER_LEN..).unwrap_or_default()] {
        let Ok(lldpdu) = Lldpdu::parse(bytes) else {
            continue;
        };
        assert!(lldpdu.len() <= bytes.len());
        let texts = [lldpdu.port_description, lldpdu.system_name]
            .into_iter()
            .flatten();
        texts
            .chain([lldpdu.chassis.bytes, lldpdu.port.bytes])
            .for_each(|part| lies_in(part, bytes));
        let mut again = vec![0xa5; lldpdu.len()];
        assert_eq!(lldpdu.emit(&mut again), Ok(again.len()));
        assert_eq!(Lldpdu::parse(&again), Ok(lldpdu));
        assert!((0..again.len()).all(|len| Lldpdu::parse(&again[..len]).is_err()));
    }
}

/// No report is read behind a length that contradicts another, and the contents of reports do not overlap.
fn contradictions_end(all: &[Result<Report<'_>, Refusal>], payload: &[u8]) {
    use Refusal::{
        BadLength, BadMetadataLength, BadNextProtocol, BadReportLength, EmptyGroup, Ipfix, LeftoverWords,
        NetflowV5, NetflowV9, NotAReport, Sflow, Truncated, UnknownVersion,
    };
    let ends = all.iter().position(|result| match result {
        // A report that is not recognised is skipped if all lengths agree.
        Err(NotAReport) => !lengths_agree(payload),
        Err(Truncated | UnknownVersion | EmptyGroup | BadLength | BadNextProtocol | BadMetadataLength) => {
            true
        }
        Err(LeftoverWords | BadReportLength | Sflow | NetflowV5 | NetflowV9 | Ipfix) => true,
        _ => false,
    });
    assert!(ends.is_none_or(|at| at + 1 == all.len()), "{all:?}");
    let start = payload.as_ptr_range();
    let mut before = start.start;
    for inner in all
        .iter()
        .flatten()
        .map(|report| report.inner)
        .filter(|inner| !inner.is_empty())
    {
        assert!(
            before <= inner.as_ptr() && inner.as_ptr_range().end <= start.end,
            "{all:?}"
        );
        before = inner.as_ptr_range().end;
    }
}

/// Whether the reports of a group end where the datagram does.
fn lengths_agree(payload: &[u8]) -> bool {
    let mut rest = payload.get(v20::GROUP_LEN..).unwrap_or(&[]);
    while !rest.is_empty() {
        let Ok((_, behind)) = v20::split(rest) else {
            return false;
        };
        rest = behind;
    }
    true
}

fn report_holds_together(report: &Report<'_>, payload: &[u8]) {
    let hops = report.hop_count();
    assert!(hops <= payload.len());
    assert_eq!(report.hops().count(), hops);
    assert_eq!(
        report.hop(hops),
        wire::Hop::default(),
        "nothing beyond the last hop"
    );
    assert_eq!(report.has_metadata(), !report.metadata_hop().carried.is_empty());
    lies_in(report.inner, payload);
    lies_in(report.domain_words, payload);
    assert!(
        report.flow.is_some() || report.tunnel.is_none(),
        "a tunnel carries a flow"
    );
    // The metadata of a report of type 1 may be of undefined bits alone.
    let says_something = report.flags != wire::Flags::default()
        || report.flow.is_some()
        || report.has_metadata()
        || report.report_type == Some(1)
        || report.gap.is_some()
        || !report.inner.is_empty()
        || !report.domain_words.is_empty();
    assert!(says_something, "an empty report");
    if let Some(refusal) = report.int_refused {
        let is_of_drop_or_queue = report.flags.0 & (wire::Flags::DROP.0 | wire::Flags::QUEUE.0) != 0;
        let is_measured = report.has_metadata() || report.gap.is_some() || !report.domain_words.is_empty();
        let is_carried = report.int.is_some() || report.ioam.is_some();
        assert!(is_carried || is_measured || is_of_drop_or_queue);
        let is_v6 = report.tunnel.or(report.flow).is_some_and(|key| key.is_v6());
        // An option of IPv6 may be left out beside INT.
        assert!(report.int.is_none() || refusal == Refusal::BadIoam || is_v6);
        // What is left out costs no hop of what remains.
        assert!(!report.is_path_left_out() || report.hop_count() <= 1);
    }
    if let Some(int) = &report.int {
        stack_holds_together(&int.stack);
        lies_in(int.stack.bytes, report.inner);
        lies_in(int.source_only, report.inner);
    }
}

fn stack_holds_together(stack: &Stack<'_>) {
    assert_eq!(stack.bytes.len(), stack.len() * stack.layout.len());
    assert_eq!(stack.record(stack.len()), &[] as &[u8]);
    for i in 0..stack.len() {
        let record = stack.record(i);
        assert_eq!(record.len(), stack.layout.len());
        let hop = stack.hop(i);
        let mut again = vec![0xa5; record.len()];
        stack.layout.write(&hop, &mut again);
        assert_eq!(stack.layout.hop(&again), hop, "what is written reads back");
    }
}

/// Checks that `part` is a slice of `whole`, or empty.
fn lies_in(part: &[u8], whole: &[u8]) {
    let (part_range, whole_range) = (part.as_ptr_range(), whole.as_ptr_range());
    let inside = whole_range.start <= part_range.start && part_range.end <= whole_range.end;
    assert!(part.is_empty() || inside);
}

/// Checks that the report's header reads back the same after writing.
fn header_reads_back(first: &Report<'_>, payload: &[u8], profile: &Profile) {
    let mut out = vec![0xa5; payload.len()];
    match first.version {
        Version::V05 => {
            let (repr, inner) = v05::Repr::parse(payload, profile).expect("it decodes");
            let len = repr.emit(profile.dialect, &mut out);
            assert_eq!(len + inner.len(), payload.len());
            out[len..].copy_from_slice(inner);
            let again = v05::Repr::parse(&out, profile);
            // Only by its reserved bits, which are not written, such a report differs from a datagram of a flow format.
            let is_other = matches!(
                again,
                Err(Refusal::Sflow | Refusal::NetflowV5 | Refusal::NetflowV9 | Refusal::Ipfix)
            );
            assert!(
                is_other && has_reserved_bits_05(payload) || again == Ok((repr, inner)),
                "{again:?}"
            );
        }
        Version::V10 => {
            let (repr, inner) = v10::Repr::parse(payload, profile).expect("it decodes");
            let len = repr.emit(profile.dialect, &mut out);
            assert_eq!(len + inner.len(), payload.len());
            out[len..].copy_from_slice(inner);
            // The length nibble of INTCollector's generator does not include optional words.
            if profile.dialect != wire::Dialect::IntCollectorGen {
                assert_eq!(v10::Repr::parse(&out, profile), Ok((repr, inner)));
            }
        }
        Version::V20 => {
            let (group, rest) = v20::Group::split(payload).expect("it decodes");
            group.emit(&mut out);
            assert_eq!(v20::Group::split(&out).map(|(group, _)| group), Ok(group));
            main_reads_back(rest);
        }
    }
}

/// Whether the header of a report 0.5 has a reserved bit.
fn has_reserved_bits_05(payload: &[u8]) -> bool {
    payload[1] & 0x1f != 0 || payload[2] != 0 || payload[3] & 0xc0 != 0
}

fn main_reads_back(rest: &[u8]) {
    let Ok((report, _)) = v20::split(rest) else { return };
    let Ok((main, inner)) = v20::MainRepr::parse(report) else {
        return;
    };
    if report[0] >> 4 != 1 {
        return;
    }
    let repr = v20::Repr::new(wire::Flags(report[3] >> 4), main, v20::Inner::Domain(inner));
    let mut out = vec![0xa5; repr.len()];
    let len = repr.emit(&mut out);
    assert_eq!(len, report.len().next_multiple_of(4));
    assert_eq!(v20::MainRepr::parse(&out).map(|(main, _)| main), Ok(main));
}

/// Checks that the fast path gives the same result as the decoder, or none.
fn brief_agrees(payload: &[u8], profile: &Profile, all: &[Result<Report<'_>, Refusal>]) {
    let mut decoder = Decoder::new(*profile);
    let common = decoder.brief(payload);
    let Some(brief) = decoder.brief_any(payload) else {
        return assert_eq!(common, None);
    };
    assert!(
        common.is_none_or(|common| common == brief),
        "{common:?} {brief:?}"
    );
    let [Ok(whole)] = all else {
        panic!("what is read briefly is there, good and alone: {all:?}")
    };
    let int = whole.int.expect("and has INT");
    assert_eq!(
        (whole.version, whole.node_id),
        (brief.version, Some(brief.node_id))
    );
    assert_eq!(
        (whole.hw_id, whole.seq, whole.ts.unwrap_or(0)),
        (brief.hw_id, brief.seq, brief.ts)
    );
    assert_eq!(
        (whole.flags, whole.flow, whole.tunnel),
        (brief.flags, Some(brief.flow), None)
    );
    assert_eq!((int.flags, int.stack.bytes), (brief.int_flags, brief.records));
    assert_eq!((int.stack.layout, int.sf), (decoder.layout(brief.shape), None));
    assert!(whole.metadata.is_none() && whole.drop_reason.is_none() && whole.ioam.is_none());
    assert_eq!(whole.annotations, wire::Annotations::default());
}

/// The same for the fast path of an SF-INT report.
fn single_agrees(payload: &[u8], profile: &Profile, all: &[Result<Report<'_>, Refusal>]) {
    let mut decoder = Decoder::new(*profile);
    let Some(single) = decoder.single(payload) else {
        return;
    };
    let [Ok(whole)] = all else {
        panic!("what is read briefly is there, good and alone: {all:?}")
    };
    let (int, own) = (
        whole.int.expect("and has INT"),
        whole.metadata.expect("and the sink's record"),
    );
    let sf = wire::int::Sf {
        urgent: false,
        state: single.state,
        packet_id: single.packet_id,
    };
    assert_eq!(
        (whole.version, whole.node_id),
        (Version::V20, Some(single.node_id))
    );
    assert_eq!(
        (whole.hw_id, whole.seq, whole.ts),
        (single.hw_id, single.seq, None)
    );
    assert_eq!(
        (whole.flags, whole.flow, whole.tunnel),
        (single.flags, Some(single.flow), None)
    );
    assert_eq!(
        (int.flags, int.remaining, int.sf),
        (single.int_flags, single.remaining, Some(sf))
    );
    assert_eq!((own.record, int.stack.bytes), (single.metadata, single.carried));
    assert_eq!([own.layout, int.stack.layout], single.layouts());
    assert!(whole.drop_reason.is_none() && whole.ioam.is_none());
}

/// An inner VLAN tag disables the fast path; the result must not change. Only so many tags and labels in a row are stepped over, and
/// the tag is one of them: a packet that begins with one is left out.
fn shortcut_agrees(payload: &[u8], profile: &Profile, first: Option<&Result<Report<'_>, Refusal>>) {
    let Some(Ok(first)) = first else { return };
    let ethernet_inside = match first.version {
        Version::V05 => payload[0] & 0x0f < 3,
        Version::V10 => payload[1] >> 5 == 0,
        Version::V20 => false,
    };
    let at = payload.len() - first.inner.len() + 12;
    // For INTCollector's generator, the offset of the EtherType determines the version.
    let by_place = profile.dialect == wire::Dialect::IntCollectorGen;
    if !ethernet_inside || by_place || payload.len() < at + 2 {
        return;
    }
    let ethertype = u16::from_be_bytes([payload[at], payload[at + 1]]);
    if is_tag(ethertype) {
        return;
    }
    let tagged = [&payload[..at], &[0x81, 0, 0, 0], &payload[at..]].concat();
    let mut decoder = Decoder::new(*profile);
    let slow = decoder.reports(&tagged).next().expect("one report");
    if matches!(
        slow,
        Err(Refusal::Sflow | Refusal::NetflowV5 | Refusal::NetflowV9 | Refusal::Ipfix)
    ) {
        // They are recognised by the length of the datagram and by fields at fixed offsets, and the tag has changed both.
        return;
    }
    let slow = slow.expect("as good as without the tag");
    assert_eq!(
        (slow.flow, slow.tunnel, slow.annotations),
        (first.flow, first.tunnel, first.annotations)
    );
    assert_eq!(slow.ioam, first.ioam);
    assert_eq!(slow.int, first.int);
}

/// Whether a VLAN tag or an MPLS label follows.
fn is_tag(ethertype: u16) -> bool {
    use ethernet::ethertype::{MPLS, MPLS_MULTICAST, is_tag};
    is_tag(ethertype) || matches!(ethertype, MPLS | MPLS_MULTICAST)
}

/// A data packet: INT is at the reported offset.
pub fn packet(frame: &[u8], profile: &Profile) {
    let _ = wire::datagram(frame);
    let _ = wire::frame::network(0x8847, frame);
    let Ok(contents) = wire::packet::contents(frame, profile) else {
        return;
    };
    let (Some(int), Some(location)) = (&contents.int, &contents.location) else {
        assert_eq!(
            (contents.int.is_some(), contents.location.is_some()),
            (false, false)
        );
        return;
    };
    stack_holds_together(&int.stack);
    assert!(location.ip < location.l4 && location.l4 < location.start && location.start < location.header);
    assert!(
        location.header < location.stack && location.stack <= location.end && location.end <= frame.len()
    );
    let data = &frame[location.stack..location.end];
    assert!(int.stack.is_empty() || data.starts_with(int.stack.bytes));
    lies_in(int.source_only, data);
    lies_in(int.stack.bytes, data);
}

/// Checks that `parse`, `emit`, `parse` gives the result of the first `parse`.
macro_rules! reads_back {
    ($bytes:expr, $parse:expr, $len:expr) => {
        if let Ok(repr) = $parse($bytes) {
            let mut out = vec![0xa5; $len(&repr)];
            repr.emit(&mut out);
            assert_eq!($parse(&out[..]), Ok(repr));
        }
    };
}

/// Every header separately: it reads back the same after writing.
pub fn headers(bytes: &[u8], profile: &Profile) {
    reads_back!(
        bytes,
        |b| ethernet::Packet::new_checked(b).map(|p| ethernet::Repr::parse(&p)),
        |_: &_| 14
    );
    reads_back!(bytes, ethernet::Tag::parse, |_: &_| 4);
    reads_back!(bytes, mpls::Repr::parse, |_: &_| 4);
    reads_back!(
        bytes,
        |b| ipv6::Packet::new_checked(b).map(|p| ipv6::Repr::parse(&p)),
        |_: &_| 40
    );
    reads_back!(
        bytes,
        |b| udp::Packet::new_checked(b).map(|p| udp::Repr::parse(&p)),
        |_: &_| 8
    );
    reads_back!(bytes, vxlan::Repr::parse, |_: &_| 8);
    reads_back!(bytes, gre::Repr::parse, gre::Repr::header_len);
    reads_back!(bytes, |b| shim::Shim2::parse(shim::Kind::L4, b), |_: &_| 4);
    reads_back!(bytes, |b| shim::Shim2::parse(shim::Kind::Gre, b), |_: &_| 4);
    reads_back!(bytes, |b| shim::Shim2::parse(shim::Kind::Gpe, b), |_: &_| 4);
    reads_back!(bytes, shim::Shim1::parse, |_: &_| 4);
    reads_back!(bytes, shim::Tail::parse, |_: &_| 4);
    reads_back!(bytes, header::Md2::parse, |_: &_| 12);
    reads_back!(bytes, header::Mx2::parse, |_: &_| 12);
    reads_back!(bytes, header::Md05::parse, |_: &_| 8);
    with_options(bytes);
    tunnels(bytes);
    layouts(bytes, profile);
}

fn with_options(bytes: &[u8]) {
    if let Ok(packet) = ipv4::Packet::new_checked(bytes) {
        let repr = ipv4::Repr::parse(&packet);
        let mut out = vec![0xa5; repr.header_len()];
        repr.emit(&mut out);
        let again = ipv4::Packet::new_checked(&out[..]).expect("good");
        assert!(again.verify_checksum());
        assert_eq!(ipv4::Repr::parse(&again), repr);
        assert_eq!(
            packet.verify_checksum(),
            packet.checksum() == again.checksum() || packet.verify_checksum()
        );
        lies_in(packet.payload(), bytes);
    }
    if let Ok(packet) = tcp::Packet::new_checked(bytes) {
        let repr = tcp::Repr::parse(&packet);
        let mut out = vec![0xa5; repr.header_len()];
        repr.emit(&mut out);
        assert_eq!(out, bytes[..repr.header_len()]);
    }
    if let Ok(header) = ipv6::OptionsHeader::new_checked(bytes) {
        let options: Vec<_> = header.options().collect();
        let mut out = vec![0xa5; header.header_len() + 8];
        let len = ipv6::emit_options(header.next_header(), &options, &mut out);
        let again = ipv6::OptionsHeader::new_checked(&out[..len]).expect("good");
        // Implicit padding has become a padding option.
        assert!(again.options().take(options.len()).eq(options.iter().copied()));
        for option in options {
            ioam(option.data);
        }
    }
    ioam(bytes);
}

fn ioam(data: &[u8]) {
    let Ok(Some(ioam)) = wire::Ioam::parse(data) else {
        return;
    };
    assert_eq!(
        ioam.hop(ioam.hop_count()),
        wire::Hop::default(),
        "nothing beyond the last node"
    );
    for i in 0..ioam.hop_count() {
        assert!(
            !ioam.hop(i).carried.contains(wire::Items::INGRESS_TS),
            "stamps are the namespace's"
        );
    }
    let mut out = vec![0xa5; data.len() + 600];
    let len = match &ioam {
        wire::Ioam::Trace(trace) => trace.emit(&mut out),
        wire::Ioam::Export(export) => export.emit(&mut out),
    };
    assert_eq!(wire::Ioam::parse(&out[..len]), Ok(Some(ioam)));
}

fn tunnels(bytes: &[u8]) {
    if let Ok(repr) = geneve::Repr::parse(bytes) {
        let mut out = bytes[..repr.header_len()].to_vec();
        out[..8].fill(0xa5);
        repr.emit(&mut out);
        assert_eq!(geneve::Repr::parse(&out), Ok(repr));
    }
    if let Ok(repr) = geneve::OptionRepr::parse(bytes) {
        let mut out = bytes.to_vec();
        out[..4].fill(0xa5);
        repr.emit(&mut out);
        assert_eq!(geneve::OptionRepr::parse(&out), Ok(repr));
    }
}

fn layouts(bytes: &[u8], profile: &Profile) {
    let [a, b, hop_ml, report_bits, record @ ..] = bytes else {
        return;
    };
    let (bitmap, hop_ml) = (u16::from_be_bytes([*a, *b]), hop_ml & 0x1f);
    let layouts = [
        Layout::int_2(bitmap, hop_ml, true).ok(),
        Layout::int_2(
            bitmap,
            bitmap.count_ones() as u8 + (bitmap & 0x0e00).count_ones() as u8,
            false,
        )
        .ok(),
        Layout::int_10(bitmap, hop_ml, profile.dialect).ok(),
        Some(Layout::int_05(bitmap)),
        Some(Layout::report_20(bitmap)),
        Some(Layout::report_10(report_bits & 0x3f)),
    ];
    for layout in layouts.into_iter().flatten() {
        let Some(record) = record.get(..layout.len()) else {
            continue;
        };
        let hop = layout.hop(record);
        let reason = layout.drop_word(record);
        let mut again = vec![0xa5; layout.len()];
        layout.write(&hop, &mut again);
        if reason != u32::MAX {
            layout.write_drop(Some((reason >> 24) as u8), Some((reason >> 16) as u8), &mut again);
        } else {
            layout.write_drop(None, None, &mut again);
        }
        assert_eq!(layout.hop(&again), hop);
    }
}

//! Writers that the round trip through `vectors/` does not reach: builders, changes in place, checksums.

use testkit::vectors;
use wire::int::header::Header;
use wire::int::{Flags as IntFlags, Version};
use wire::ioam::{NodeValues, node_words};
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr};
use wire::{Dialect, Flags, Hop, Ioam, Profile};
use wire::{ethernet, ipv4, ipv6, tcp, udp};

fn bytes_of(name: &str) -> Vec<u8> {
    let found = vectors::all().into_iter().find(|vector| vector.name == name);
    found.unwrap_or_else(|| panic!("no vector {name}")).bytes
}

const GROUP: Group = Group {
    hw_id: 1,
    seq: 5,
    node_id: 3,
};

#[test]
fn a_postcard_is_the_one_of_the_format() {
    let metadata = Hop {
        queue_id: Some(1),
        queue_occupancy: Some(0x2a),
        ingress_ts: Some(0x17a3_b2c1_d0e0_f000),
        egress_ts: Some(0x17a3_b2c1_d0e0_f5dc),
        ..Hop::default()
    };
    let mut out = [0xa5; 64];
    let mut group = GroupBuilder::new(
        &mut out,
        Group {
            hw_id: 0,
            seq: 12,
            node_id: 21,
        },
    )
    .expect("it fits");
    assert!(group.push(&Repr::postcard(metadata, &0xf10a_u32.to_be_bytes())));
    assert_eq!(group.finish(), bytes_of("pc_hop"));
}

#[test]
fn a_full_datagram_takes_no_further_report_and_stays_good() {
    let main = MainRepr {
        bits: 0x4000,
        ..MainRepr::default()
    };
    let report = Repr::new(Flags::FLOW, main, Inner::None);
    let mut out = [0xa5; 8 + 16 + 15];
    let mut group = GroupBuilder::new(&mut out, GROUP).expect("it fits");
    assert!(group.is_empty());
    assert_eq!(
        (group.push(&report), group.push(&report), group.len()),
        (true, false, 24)
    );
    assert!(!group.is_empty());
    let mut decoder = wire::Decoder::new(Profile::default());
    assert_eq!(decoder.reports(group.finish()).filter(Result::is_ok).count(), 1);
    assert!(GroupBuilder::new(&mut [0; 7], GROUP).is_none());
}

#[test]
fn a_report_of_255_words_is_the_last_of_its_datagram() {
    let inner = [0_u8; 1020];
    let long = Repr {
        flags: Flags::FLOW,
        main: None,
        inner: Inner::Domain(&inner),
        ignored_md_length: 0,
    };
    let short = Repr {
        inner: Inner::Domain(&inner[..1016]),
        ..long
    };
    let mut out = [0xa5; 4096];
    let mut group = GroupBuilder::new(&mut out, GROUP).expect("it fits");
    assert_eq!(
        [group.push(&short), group.push(&long), group.push(&short)],
        [true, true, false]
    );
    let mut decoder = wire::Decoder::new(Profile::default());
    let lengths: Vec<_> = decoder
        .reports(group.finish())
        .map(|report| report.expect("good").inner.len())
        .collect();
    assert_eq!(lengths, [1016, 1020]);
}

#[test]
fn a_packet_is_padded_to_whole_words() {
    let report = Repr {
        flags: Flags::FLOW,
        main: None,
        inner: Inner::Ipv4(&[0x45; 21]),
        ignored_md_length: 0,
    };
    let mut out = [0xa5; 32];
    assert_eq!(report.emit(&mut out), 28);
    assert_eq!(out[..4], [0x04, 6, 0, 0x20]);
    assert_eq!(out[25..29], [0, 0, 0, 0xa5]);
}

/// Compares the changed header byte by byte: all other bits, reserved ones too, are unchanged.
#[test]
fn a_transit_node_changes_only_what_it_means_to() {
    let mut header_2 = [0x21, 0xff, 0xe2, 6, 0x90, 0, 0, 1, 0, 2, 0, 3];
    let mut header = Header::new_checked(&mut header_2).expect("whole");
    assert_eq!(
        (
            header.version(),
            header.flags(),
            header.hop_ml(),
            header.remaining()
        ),
        (2, IntFlags(0), 2, 6)
    );
    header.set_remaining(0);
    header.set_hops_exceeded();
    header.set_mtu_exceeded();
    assert_eq!(header.flags(), IntFlags(6));
    assert_eq!(header_2, [0x27, 0xff, 0xe2, 0, 0x90, 0, 0, 1, 0, 2, 0, 3]);

    let mut header_10 = [0x10, 0x7f, 0xe2, 6, 0x90, 0, 0, 77];
    let mut header = Header::new_checked(&mut header_10).expect("whole");
    header.set_remaining(5);
    header.set_hops_exceeded();
    header.set_mtu_exceeded();
    assert_eq!(
        (header.version(), header.flags(), header.bitmap()),
        (1, IntFlags(6), 0x9000)
    );
    assert_eq!(header_10, [0x11, 0xff, 0xe2, 5, 0x90, 0, 0, 77]);
    assert!(Header::new_checked(&header_10[..7]).is_err());
    assert!(Header::new_checked(&header_2[..11]).is_err());
}

#[test]
fn sequence_numbers_of_dialects_are_read() {
    let seq = |name: &str, dialect| {
        let bytes = bytes_of(name);
        let mut decoder = wire::Decoder::new(Profile::new(dialect));
        let report = decoder.reports(&bytes).next().expect("one").expect("good");
        report.int.map(|int| (int.version, int.seq))
    };
    assert_eq!(seq("geant_full", Dialect::Geant), Some((Version::V10, Some(77))));
    assert_eq!(
        seq("hostint_kind_4", Dialect::HostInt),
        Some((Version::V05, Some(77)))
    );
    assert_eq!(
        seq("a_onos_version_0", Dialect::Strict),
        Some((Version::V10, None))
    );
}

#[test]
fn nodes_of_a_trace_are_written_from_their_values() {
    for name in ["ioam_trace", "ioam_incremental", "ioam_free_space", "ioam_wide"] {
        let bytes = bytes_of(name);
        let contents = wire::packet::contents(&bytes, &Profile::default()).expect("good");
        let Some(Ioam::Trace(trace)) = contents.ioam else {
            panic!("{name} has a trace")
        };
        for node in trace.nodes() {
            let wide = node.wide_interfaces();
            let (ingress, egress) = node.interfaces();
            let values = NodeValues {
                hop_limit: node.hop_limit().expect("there"),
                node_id: node.node_id().expect("there"),
                ingress_if: ingress.map(u32::from).or(wide.0),
                egress_if: egress.map(u32::from).or(wide.1),
                seconds: node.seconds(),
                fraction: node.fraction(),
                transit_delay: node.transit_delay(),
                queue_depth: node.queue_depth(),
                buffer_occupancy: node.buffer_occupancy(),
            };
            let mut out = [0xa5; 64];
            let len = values.emit(trace.trace_type, &mut out);
            assert_eq!(len, usize::from(node_words(trace.trace_type)) * 4);
            assert_eq!(&out[..len], node.bytes, "{name}");
        }
    }
}

/// Another program verified these frames, so their checksums must be the computed ones.
#[test]
fn checksums_are_those_of_frames_known_to_be_good() {
    let source_and_destination = 12..20;
    for name in ["int21_md_udp", "int21_probe"] {
        let mut frame = bytes_of(name);
        let good = frame.clone();
        let addresses = frame[14..][source_and_destination.clone()].to_vec();
        frame[40..42].fill(0xa5);
        udp::Packet::new_checked(&mut frame[34..])
            .expect("whole")
            .fill_checksum(&addresses);
        frame[24..26].fill(0xa5);
        ipv4::Packet::new_checked(&mut frame[14..])
            .expect("whole")
            .fill_checksum();
        assert_eq!(frame, good, "{name}");
    }
    for name in ["int21_md_tcp", "int10_tcp", "int05_tcp"] {
        let mut frame = bytes_of(name);
        let good = frame.clone();
        let addresses = frame[14..][source_and_destination.clone()].to_vec();
        frame[50..52].fill(0xa5);
        tcp::Packet::new_checked(&mut frame[34..])
            .expect("whole")
            .fill_checksum(&addresses);
        assert_eq!(frame, good, "{name}");
    }
    let mut frame = bytes_of("ioam_trace");
    let good = frame.clone();
    let addresses = frame[22..54].to_vec();
    let udp_at = frame.len() - 20;
    frame[udp_at + 6..udp_at + 8].fill(0xa5);
    udp::Packet::new_checked(&mut frame[udp_at..])
        .expect("whole")
        .fill_checksum(&addresses);
    assert_eq!(frame, good);
}

/// Every setter, on a header that is all ones or zeros around the field.
#[test]
fn setters_write_their_field_and_nothing_else() {
    let mut bytes = [0_u8; 14];
    ethernet::Packet::new_checked(&mut bytes)
        .expect("whole")
        .set_ethertype(0x1234);
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);

    let mut bytes = [0_u8; 20];
    bytes[0] = 0x45;
    let mut packet = ipv4::Packet::new_checked(&mut bytes).expect("whole");
    packet.set_tos(1);
    packet.set_total_len(0x0203);
    packet.set_ttl(4);
    packet.set_proto(5);
    assert_eq!(
        bytes,
        [0x45, 1, 2, 3, 0, 0, 0, 0, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );

    let mut bytes = [0xff_u8; 40];
    bytes[0] = 0x6f;
    let mut packet = ipv6::Packet::new_checked(&mut bytes).expect("whole");
    packet.set_traffic_class(0x5c);
    packet.set_payload_len(0x0102);
    packet.set_next_header(3);
    packet.set_hop_limit(4);
    assert_eq!(bytes[..9], [0x65, 0xcf, 0xff, 0xff, 1, 2, 3, 4, 0xff]);

    let mut bytes = [0_u8; 8];
    let mut packet = udp::Packet::new_checked(&mut bytes).expect("whole");
    packet.set_src_port(0x0102);
    packet.set_dst_port(0x0304);
    packet.set_len(0x0506);
    packet.set_checksum(0x0708);
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
}

//! Each header alone: known bytes, known values, in both directions. A round trip alone would not detect a field that is read
//! and written at the same wrong offset.

use wire::frame::{self, PartialHeaders};
use wire::int::Flags;
use wire::int::header::{Md2, Md05, Md10, Mx2};
use wire::int::sf::State;
use wire::int::shim::{Kind, Next, Shim1, Shim2, Tail};
use wire::report::v20::{Group, MainRepr, Repr as Report20};
use wire::report::{Gap, v05, v10};
use wire::{Dialect, Flags as ReportFlags, Hop, Items, Profile, Refusal};
use wire::{ethernet, geneve, gre, ipv4, ipv6, mpls, tcp, udp, vxlan};

/// Asserts that `$bytes` parse to `$repr`, that `$repr` is emitted as `$bytes`, and that no prefix parses.
macro_rules! both_ways {
    ($bytes:expr, $repr:expr, $parse:expr) => {
        let (bytes, repr) = ($bytes, $repr);
        assert_eq!($parse(&bytes[..]), Ok(repr));
        let mut out = [0xa5; 64];
        repr.emit(&mut out);
        assert_eq!(out[..bytes.len()], bytes);
        assert_eq!(
            out[bytes.len()..],
            [0xa5; 64][bytes.len()..],
            "nothing behind it is written"
        );
        for len in 0..bytes.len() {
            assert!($parse(&bytes[..len]).is_err(), "cut at {len}");
        }
    };
}

#[test]
fn ethernet_and_tags() {
    let (dst, src) = ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]);
    both_ways!(
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0x02],
        ethernet::Repr {
            dst,
            src,
            ethertype: 0x8102
        },
        |b| ethernet::Packet::new_checked(b).map(|packet| ethernet::Repr::parse(&packet))
    );
    both_ways!(
        [0xb9, 0x23, 0x08, 0x06],
        ethernet::Tag {
            priority: 5,
            drop_eligible: true,
            vlan: 0x923,
            ethertype: 0x0806
        },
        ethernet::Tag::parse
    );
    both_ways!(
        [0xab, 0xcd, 0xeb, 0x3f],
        mpls::Repr {
            label: 0xabcde,
            class: 5,
            bottom: true,
            ttl: 0x3f
        },
        mpls::Repr::parse
    );
}

#[test]
fn ip() {
    let parse = |b| ipv4::Packet::new_checked(b).map(|packet| ipv4::Repr::parse(&packet));
    let options = [0x94, 4, 0, 0];
    let head = [
        0x46, 0x5d, 0x01, 0x02, 0x03, 0x04, 0x45, 0x06, 0x07, 0x08, 0, 0, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    let mut bytes = [0; 24];
    bytes[..20].copy_from_slice(&head);
    bytes[20..].copy_from_slice(&options);
    let sum = wire::checksum::of(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let repr = ipv4::Repr {
        src: [9, 10, 11, 12],
        dst: [13, 14, 15, 16],
        proto: 8,
        tos: 0x5d,
        total_len: 0x0102,
        ident: 0x0304,
        fragment: 0x4506,
        ttl: 7,
        options: &options,
    };
    both_ways!(bytes, repr, parse);
    assert_eq!(parse(&[0x44; 24]).err(), Some(Refusal::BadIpHeader));
    assert_eq!(parse(&[0x65; 24]).err(), Some(Refusal::BadIpHeader));

    let mut bytes = [0; 40];
    bytes[..8].copy_from_slice(&[0x6a, 0xbc, 0xde, 0xf0, 0x01, 0x02, 0x03, 0x04]);
    bytes[8..24].fill(0x11);
    bytes[24..].fill(0x22);
    let repr = ipv6::Repr {
        src: [0x11; 16],
        dst: [0x22; 16],
        next_header: 3,
        hop_limit: 4,
        traffic_class: 0xab,
        flow_label: 0xcdef0,
        payload_len: 0x0102,
    };
    both_ways!(bytes, repr, |b| ipv6::Packet::new_checked(b)
        .map(|packet| ipv6::Repr::parse(&packet)));
    assert_eq!(
        ipv6::Packet::new_checked(&[0x45; 40]).err(),
        Some(Refusal::BadIpHeader)
    );
}

#[test]
fn transport() {
    both_ways!(
        [1, 2, 3, 4, 5, 6, 7, 8],
        udp::Repr {
            src_port: 0x0102,
            dst_port: 0x0304,
            len: 0x0506,
            checksum: 0x0708
        },
        |b| udp::Packet::new_checked(b).map(|packet| udp::Repr::parse(&packet))
    );
    let bytes = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x6a, 0xbc, 15, 16, 17, 18, 19, 20, 1, 1, 1, 0,
    ];
    let repr = tcp::Repr {
        src_port: 0x0102,
        dst_port: 0x0304,
        seq: 0x0506_0708,
        ack: 0x090a_0b0c,
        flags: 0xabc,
        window: 0x0f10,
        checksum: 0x1112,
        urgent: 0x1314,
        options: &[1, 1, 1, 0],
    };
    both_ways!(bytes, repr, |b| tcp::Packet::new_checked(b)
        .map(|packet| tcp::Repr::parse(&packet)));
}

#[test]
fn tunnels() {
    both_ways!(
        [8, 0, 0, 0, 0x12, 0x34, 0x56, 0],
        vxlan::Repr {
            vni: Some(0x123456),
            next: None
        },
        vxlan::Repr::parse
    );
    both_ways!(
        [4, 0, 0, 0x82, 0, 0, 0, 0],
        vxlan::Repr {
            vni: None,
            next: Some(0x82)
        },
        vxlan::Repr::parse
    );
    both_ways!(
        [0, 0xc0, 0x65, 0x58, 0x12, 0x34, 0x56, 0],
        geneve::Repr {
            options_len: 0,
            control: true,
            critical: true,
            protocol: 0x6558,
            vni: 0x123456
        },
        geneve::Repr::parse
    );
    let control = geneve::Repr {
        control: true,
        ..geneve::Repr::default()
    };
    both_ways!([0, 0x80, 0, 0, 0, 0, 0, 0], control, geneve::Repr::parse);
    assert_eq!(
        geneve::Repr::parse(&[0x40; 8]),
        Err(Refusal::BadGeneve),
        "another version"
    );
    assert_eq!(
        geneve::Repr::parse(&[1, 0, 0, 0, 0, 0, 0, 0]),
        Err(Refusal::Truncated),
        "options cut"
    );
    let option = geneve::OptionRepr {
        class: 0x0103,
        kind: 0x81,
        len: 0,
    };
    both_ways!([1, 3, 0x81, 0], option, geneve::OptionRepr::parse);
    assert_eq!(geneve::OptionRepr::parse(&[1, 3, 1, 1]), Err(Refusal::BadGeneve));
    both_ways!(
        [0xb0, 0, 0x88, 0xb6, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3],
        gre::Repr {
            protocol: 0x88b6,
            checksum: Some(1),
            key: Some(2),
            seq: Some(3)
        },
        gre::Repr::parse
    );
    both_ways!(
        [0x20, 0, 8, 0, 0, 0, 0, 2],
        gre::Repr {
            protocol: 0x0800,
            key: Some(2),
            ..gre::Repr::default()
        },
        gre::Repr::parse
    );
    assert_eq!(
        gre::Repr::parse(&[0x40, 0, 8, 0]),
        Err(Refusal::BadGre),
        "a routing field"
    );
    assert_eq!(
        gre::Repr::parse(&[0, 1, 8, 0]),
        Err(Refusal::BadGre),
        "another version"
    );
}

#[test]
fn shims() {
    let l4 = |bytes: &[u8]| Shim2::parse(Kind::L4, bytes);
    both_ways!(
        [0x10, 9, 0, 0xb8],
        Shim2 {
            kind: 1,
            length: 9,
            next: Next::Dscp(0x2e)
        },
        l4
    );
    both_ways!(
        [0x34, 9, 0x23, 0x28],
        Shim2 {
            kind: 3,
            length: 9,
            next: Next::Port(9000)
        },
        l4
    );
    both_ways!(
        [0x18, 9, 0, 6],
        Shim2 {
            kind: 1,
            length: 9,
            next: Next::Protocol(6)
        },
        l4
    );
    assert_eq!(l4(&[0x1c, 9, 0, 0]), Err(Refusal::BadNextProtocolType));
    let gre = Next::Gre {
        ethertype: 0x86dd,
        inserted: true,
    };
    both_ways!(
        [0x18, 9, 0x86, 0xdd],
        Shim2 {
            kind: 1,
            length: 9,
            next: gre
        },
        |b| Shim2::parse(Kind::Gre, b)
    );
    let gpe = Next::Gpe {
        protocol: 3,
        inserted: true,
    };
    both_ways!(
        [0x10, 9, 0x80, 3],
        Shim2 {
            kind: 1,
            length: 9,
            next: gpe
        },
        |b| Shim2::parse(Kind::Gpe, b)
    );
    both_ways!(
        [1, 0, 7, 0x28],
        Shim1 {
            kind: 1,
            length: 7,
            last: 0x28
        },
        Shim1::parse
    );
    both_ways!(
        [6, 0x12, 0x34, 0x17],
        Tail {
            proto: 6,
            port: 0x1234,
            dscp: 0x17
        },
        Tail::parse
    );
}

#[test]
fn int_headers() {
    let md = Md2 {
        flags: Flags::DISCARD,
        hop_ml: 0x1f,
        remaining: 6,
        bitmap: 0x0102,
        ds_id: 0x0304,
        ds_instruction: 0x0506,
        ds_flags: 0x0708,
        sf: None,
    };
    both_ways!([0x28, 0, 0x1f, 6, 1, 2, 3, 4, 5, 6, 7, 8], md, Md2::parse);
    let sf = Md2 {
        sf: Some((false, State::High)),
        ds_id: 1,
        ..Md2::default()
    };
    both_ways!([0x21, 0x60, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], sf, Md2::parse);
    let urgent = Md2 {
        sf: Some((true, State::Low)),
        ..sf
    };
    both_ways!([0x21, 0xa0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], urgent, Md2::parse);
    let exceeded = Md2 {
        flags: Flags::HOPS_EXCEEDED,
        ..Md2::default()
    };
    both_ways!([0x24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], exceeded, Md2::parse);
    let mtu = Md2 {
        flags: Flags::MTU_EXCEEDED,
        ..Md2::default()
    };
    both_ways!([0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], mtu, Md2::parse);
    let mx = Mx2 {
        discard: true,
        bitmap: 0x0102,
        ds_id: 0x0304,
        ds_instruction: 0x0506,
        ds_flags: 0x0708,
    };
    both_ways!([0x28, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], mx, Mx2::parse);
    let md = Md10 {
        flags: Flags::DISCARD.with(Flags::MTU_EXCEEDED, true),
        replication: 2,
        hop_ml: 0x1f,
        remaining: 6,
        bitmap: 0x0102,
        reserved: 0x0304,
        version_zero: false,
    };
    both_ways!([0x1a, 0x80, 0x1f, 6, 1, 2, 3, 4], md, Md10::parse);
    let onos = Md10 {
        flags: Flags::HOPS_EXCEEDED,
        version_zero: true,
        ..Md10::default()
    };
    both_ways!([0x01, 0, 0, 0, 0, 0, 0, 0], onos, Md10::parse);
    let md = Md05 {
        flags: Flags::HOPS_EXCEEDED,
        replication: 3,
        max_hops: 8,
        total_hops: 2,
        bitmap: 0x9001,
    };
    both_ways!([0x0d, 3, 8, 2, 0x90, 1, 0, 0], md, Md05::parse);
}

#[test]
fn report_05() {
    let profile = Profile::new(Dialect::HostInt);
    let gap = Gap {
        source: 0x01020304,
        ts: 0x0d0e0f10,
        seq: 0x11121314,
        count: 0x15161718,
    };
    let repr = v05::Repr {
        flags: ReportFlags::DROP,
        hw_id: 0x3f,
        seq: 7,
        ingress_ts: 9,
        kind: v05::Kind::Gap {
            sink: 0x05060708,
            interfaces: (0x090a, 0x0b0c),
            gap,
        },
    };
    let mut bytes = [0; 36];
    bytes[..12].copy_from_slice(&[0x03, 0x80, 0, 0x3f, 0, 0, 0, 7, 0, 0, 0, 9]);
    bytes[12..].iter_mut().zip(1..).for_each(|(byte, i)| *byte = i);
    assert_eq!(v05::Repr::parse(&bytes, &profile), Ok((repr, &[][..])));
    let mut out = [0xa5; 36];
    assert_eq!((repr.emit(Dialect::HostInt, &mut out), out), (36, bytes));
}

#[test]
fn report_10_has_its_flags_where_the_dialect_has_them() {
    let flags = ReportFlags::QUEUE.with(ReportFlags::FLOW, true);
    let metadata = Hop {
        carried: Items::HOP_LATENCY,
        hop_latency: Some(0x01020304),
        ..Hop::default()
    };
    let repr = v10::Repr {
        next: v10::NextProtocol::Ipv6,
        bits: 0x10,
        flags,
        hw_id: 0x2a,
        switch_id: 1,
        seq: 2,
        ingress_ts: 3,
        metadata,
        drop_reason: None,
    };
    let tail = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4];
    for (dialect, first) in [
        (Dialect::Strict, [0x15, 0x48, 0, 0xea]),
        (Dialect::Onos, [0x15, 0x48, 0x30, 0x2a]),
    ] {
        let bytes = [&first[..], &tail].concat();
        assert_eq!(
            v10::Repr::parse(&bytes, &Profile::new(dialect)),
            Ok((repr, &[][..]))
        );
        let mut out = [0xa5; 20];
        assert_eq!((repr.emit(dialect, &mut out), &out[..]), (20, &bytes[..]));
    }
}

#[test]
fn report_20() {
    let group = Group {
        hw_id: 0x2a,
        seq: 0x2bcdef,
        node_id: 7,
    };
    let mut out = [0xa5; 8];
    group.emit(&mut out);
    assert_eq!(out, [0x2a, 0xab, 0xcd, 0xef, 0, 0, 0, 7]);
    assert_eq!(
        Group::split(&[&out[..], &[1]].concat()).map(|parts| parts.0),
        Ok(group)
    );

    let main = MainRepr {
        bits: 0x2000,
        ds_id: 0x0102,
        ds_bits: 0x0304,
        ds_status: 0x0506,
        metadata: Hop {
            carried: Items::HOP_LATENCY,
            hop_latency: Some(0x0708090a),
            wide_ts: true,
            ..Hop::default()
        },
        drop_reason: None,
        domain: &[11, 12, 13, 14],
    };
    let flags = ReportFlags::INTERMEDIATE.with(ReportFlags::QUEUE, true);
    let report = Report20::new(flags, main, wire::report::v20::Inner::None);
    let bytes = [
        0x10, 4, 2, 0x50, 0x20, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
    ];
    let mut out = [0xa5; 20];
    assert_eq!((report.emit(&mut out), out), (20, bytes));
    assert_eq!(MainRepr::parse(&bytes), Ok((main, &[][..])));
}

/// The same table whatever the link layer is: a frame, and its payload behind an EtherType.
#[test]
fn a_datagram_is_found_behind_any_ethertype() {
    let frame = testkit::vectors::bytes("tr20_int");
    let expected = wire::datagram(&frame).expect("a datagram");
    let packet = &frame[14..];
    let label = [0, 0x06, 0x41, 64];
    let not_bottom = [0, 0x06, 0x40, 64];
    let cases: [(u16, Vec<&[u8]>); 6] = [
        (0x0800, vec![]),
        (0x8847, vec![&label]),
        (0x8848, vec![&not_bottom, &label]),
        (0x8100, vec![&[0, 5, 0x88, 0x47], &label]),
        (0x9200, vec![&[0, 5, 0x81, 0], &[0, 6, 8, 0]]),
        (0x9100, vec![&[0, 5, 8, 0]]),
    ];
    for (ethertype, headers) in cases {
        let payload = [&headers.concat(), packet].concat();
        assert_eq!(
            wire::frame::network(ethertype, &payload),
            Ok(expected),
            "{ethertype:04x}"
        );
        let tagged = [&frame[..12], &ethertype.to_be_bytes(), &payload].concat();
        assert_eq!(wire::datagram(&tagged), Ok(expected), "{ethertype:04x}");
    }
    assert_eq!(wire::frame::network(0x0806, packet), Err(Refusal::NotIp));
}

#[test]
fn a_first_fragment_has_the_beginning_of_its_datagram() {
    let frame = testkit::vectors::bytes("tr20_int");
    let whole = wire::datagram(&frame).unwrap();
    let mut fragment = frame.clone();
    // More fragments; the header's length is not examined.
    fragment[20] = 0x20;
    let fragment = &fragment[..42 + 32];
    assert_eq!(wire::datagram(fragment), Err(Refusal::Fragment));
    let headers = PartialHeaders::of_frame(fragment);
    assert_eq!(
        (headers.src, headers.dst_port, headers.beginning()),
        (
            Some(whole.src),
            Some(whole.dst_port),
            Some((whole.src_port, &whole.payload[..32]))
        )
    );
    let mut later = fragment.to_vec();
    later[21] = 5;
    assert_eq!(PartialHeaders::of_frame(&later).beginning(), None);
    // Not the whole UDP header.
    assert_eq!(PartialHeaders::of_frame(&fragment[..41]).beginning(), None);
    // IPv6, with a fragment header of offset 0 and more fragments.
    let ipv6 = [
        &[0x60, 0, 0, 0, 0, 24, 44, 64][..],
        &[1; 32],
        &[17, 0, 0, 1, 0, 0, 0, 9],
        &frame[34..50],
    ]
    .concat();
    let headers = PartialHeaders::of_network(0x86dd, &ipv6);
    assert_eq!(headers.beginning(), Some((whole.src_port, &whole.payload[..8])));
}

#[test]
fn a_udp_checksum_holds_if_it_is_right_or_absent() {
    let frame = testkit::vectors::bytes("tr20_int");
    let holds = |frame: &[u8]| frame::checksum_holds(frame, &wire::datagram(frame).unwrap());
    let mut right = frame.clone();
    right[40..42].fill(0);
    assert!(holds(&right), "absent");
    let sum = wire::checksum::transport(&right[26..34], 17, &right[34..]);
    right[40..42].copy_from_slice(&sum.to_be_bytes());
    assert!(holds(&right));
    for at in (26..right.len()).filter(|at| !(36..42).contains(at)) {
        let mut damaged = right.clone();
        damaged[at] ^= 4;
        assert!(!holds(&damaged), "{at}");
    }
    // Padding is not covered.
    assert!(holds(&[&right[..], &[7; 9]].concat()));
}

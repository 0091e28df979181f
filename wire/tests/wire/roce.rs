//! RoCEv2 packets, read and written: the examples of wire-formats 6.4 and 6.5, and refused packets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::vectors::{self, Kind};
use wire::roce::{
    Aeth, AtomicEth, Endpoints, Head, Nak, Opcode, Packet, Path, Psn, Reth, Segment, Segments, Syndrome,
    Transport, Writer, seal,
};
use wire::{EmitError, Refusal};

const WRITE: &str = "020000000002020000000001080045020054123440004011d3f8c6336401c6336402c00112b7004000000a40
    ffff000000128000010000007f00013f3bc000001f4200000018bc4f0a280000000b0000000c0000000d0000
    000e0000000f10deed6c";
const WRITE_IMMEDIATE: &str =
    "020000000002020000000001080045020054123440004011d3f8c6336401c6336402c00112b7004000000be0
    ffff000000128000010100007f004000000000001f420000001220000005a0a1a2a3a4a5a6a7a8a9aaabacad
    aeafb0b10000ecde91fa";
const FETCH_ADD: &str =
    "020000000002020000000001080045020048123440004011d404c6336401c6336402c00112b7003400001440
    ffff000000138000020000007f008004451800002a010000000000000005000000000000000045637acf";
const ATOMIC_ACK: &str =
    "020000000002020000000001080045020038000040004011e648c6336402c6336401c00112b7002400001240
    ffff00000056000002001f00000111223344556677882bde2b71";
const ACK: &str = "020000000002020000000001080045020030000040004011e650c6336402c6336401c00112b7001c00001140
    ffff00000055000001011f00010235847877";
const NAK: &str = "020000000002020000000001080045020030000040004011e650c6336402c6336401c00112b7001c00001140
    ffff0000005500000102600001022f4e8403";
const RNR: &str = "020000000002020000000001080045020030000040004011e650c6336402c6336401c00112b7001c00001140
    ffff00000055000001032e00010291482f45";
const UC_V6: &str = "02000000000202000000000186dd602123450030114020010db800010000000000000000000120010db80001
    00000000000000000002c00112b7003000002a40ffff000000140000000700007f000000004000001f420000
    0008010203040506070804c8a6b7";
const SEND: &str = "02000000000202000000000108004502003c123440004011d410c6336401c6336402c00112b7002800000440
    ffff0000001280ffffff00000000007f000000000002421f00008c13f71d";
const CNP: &str = "02000000000202000000000108004502003c000040004011e644c6336402c6336401c00112b7002800008140
    ffff40000055000000000000000000000000000000000000000087fea9cf";
const FIRST: &str = "02000000000202000000000108004502013c123440004011d310c6336401c6336402c00112b7012800000640
    ffff000000120000030000007f000000100000001f420000025800010203";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn path(from: IpAddr, to: IpAddr, identification: u16) -> Path {
    let source_mac = [2, 0, 0, 0, 0, 1];
    let destination_mac = [2, 0, 0, 0, 0, 2];
    Path {
        source_mac,
        destination_mac,
        identification,
        ..Path::new(from, to, 0xc001)
    }
}

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, last).into()
}

/// The requester's writer, and the responder's.
fn there(queue_pair: u32) -> Writer {
    Writer::new(path(host(1), host(2), 0x1234), Transport::Rc, queue_pair).expect("one family")
}

fn back(queue_pair: u32) -> Writer {
    Writer::new(path(host(2), host(1), 0), Transport::Rc, queue_pair).expect("one family")
}

fn over_v6() -> Writer {
    let host = |last| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last).into();
    let path = Path {
        flow_label: 0x12345,
        ..path(host(1), host(2), 0)
    };
    Writer::new(path, Transport::Uc, 0x14).expect("one family")
}

fn wanted(psn: u32) -> Head {
    Head {
        ack_request: true,
        ..Head::new(Psn::new(psn))
    }
}

fn slot() -> Vec<u8> {
    hex("bc4f0a28 0000000b 0000000c 0000000d 0000000e 0000000f")
}

fn entry() -> Vec<u8> {
    (0xa0..=0xb1).collect()
}

const TO_SLOT: Reth = Reth {
    address: 0x7f00_013f_3bc0,
    rkey: 0x1f42,
    len: 24,
};
const TO_LIST: Reth = Reth {
    address: 0x7f00_4000_0000,
    rkey: 0x1f42,
    len: 18,
};
const TO_COUNTER: AtomicEth = AtomicEth {
    address: 0x7f00_8004_4518,
    rkey: 0x2a01,
    add: 5,
    compare: 0,
};
const V6_RETH: Reth = Reth {
    address: 0x7f00_0000_0040,
    rkey: 0x1f42,
    len: 8,
};
const DESCRIPTOR: &str = "00000000007f000000000002421f0000";

/// Asserts that `write` writes the example, byte by byte.
#[track_caller]
fn writes(example: &str, write: impl FnOnce(&mut [u8]) -> Result<usize, EmitError>) {
    let bytes = hex(example);
    let mut out = vec![0xa5; bytes.len() + 3];
    assert_eq!(write(&mut out), Ok(bytes.len()));
    assert_eq!(out[..bytes.len()], bytes, "written {:02x?}", &out[..bytes.len()]);
    assert_eq!(out[bytes.len()..], [0xa5; 3]);
}

#[test]
fn the_examples_are_written() {
    writes(WRITE, |out| {
        there(0x12).write_only(out, wanted(0x100), TO_SLOT, &slot())
    });
    let solicited = Head {
        solicited: true,
        ..wanted(0x101)
    };
    writes(WRITE_IMMEDIATE, |out| {
        there(0x12).write_only_immediate(out, solicited, TO_LIST, 0x2000_0005, &entry())
    });
    writes(FETCH_ADD, |out| {
        there(0x13).fetch_add(out, wanted(0x200), TO_COUNTER)
    });
    writes(ATOMIC_ACK, |out| {
        back(0x56).atomic_ack(out, Psn::new(0x200), 1, 0x1122_3344_5566_7788)
    });
    writes(ACK, |out| back(0x55).ack(out, Psn::new(0x101), 0x102));
    writes(NAK, |out| {
        back(0x55).nak(out, Psn::new(0x102), Nak::SequenceError, 0x102)
    });
    writes(RNR, |out| back(0x55).rnr(out, Psn::new(0x103), 14, 0x102));
    writes(UC_V6, |out| {
        over_v6().write_only(out, Head::new(Psn::new(7)), V6_RETH, &[1, 2, 3, 4, 5, 6, 7, 8])
    });
    writes(SEND, |out| {
        there(0x12).send(out, wanted(0xff_ffff), &hex(DESCRIPTOR))
    });
    writes(CNP, |out| back(0x55).cnp(out));
}

#[test]
fn a_write_in_three_packets() {
    let payload: Vec<u8> = (0..600).map(|i| (i % 251) as u8).collect();
    let reth = Reth {
        address: 0x7f00_0000_1000,
        rkey: 0x1f42,
        len: 600,
    };
    let mut writer = there(0x12);
    let mut frames = Vec::new();
    for (i, Segment { opcode, at, len }) in Segments::new(600, 256).enumerate() {
        let (mut out, psn, part) = ([0xa5; 400], 0x300 + i as u32, &payload[at..at + len]);
        let len = match opcode {
            Opcode::WriteFirst => writer.write_first(&mut out, Head::new(Psn::new(psn)), reth, part),
            Opcode::WriteMiddle => writer.write_middle(&mut out, Head::new(Psn::new(psn)), part),
            _ => writer.write_last(&mut out, wanted(psn), part),
        };
        frames.push(out[..len.expect("room")].to_vec());
    }
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [330, 314, 146]);
    assert_eq!(frames[0][..74], hex(FIRST));
    let crcs: Vec<_> = frames
        .iter()
        .map(|frame| frame[frame.len() - 4..].to_vec())
        .collect();
    assert_eq!(crcs, [hex("41bc0bd3"), hex("7ca0bc0a"), hex("367725b6")]);
    let read: Vec<_> = frames
        .iter()
        .map(|frame| Packet::parse(frame).expect("good"))
        .collect();
    assert_eq!(
        read.iter()
            .flat_map(|packet| packet.payload)
            .copied()
            .collect::<Vec<_>>(),
        payload
    );
    assert!(read.iter().all(|packet| packet.fault.is_none()));
    assert_eq!(
        read.iter().map(|packet| packet.reth).collect::<Vec<_>>(),
        [Some(reth), None, None]
    );
}

#[test]
fn the_examples_are_read() {
    let bytes = hex(WRITE);
    let packet = Packet::parse(&bytes).expect("good");
    assert_eq!(
        (packet.source_mac, packet.destination_mac),
        ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
    );
    assert_eq!(
        packet.ends,
        Endpoints {
            source: host(1),
            destination: host(2),
            source_port: 0xc001
        }
    );
    assert_eq!(
        (packet.bth.transport, packet.bth.opcode),
        (Some(Transport::Rc), Opcode::WriteOnly)
    );
    assert_eq!(
        (packet.bth.queue_pair, packet.bth.psn, packet.bth.ack_request),
        (0x12, Psn::new(0x100), true)
    );
    assert_eq!(
        (packet.reth, packet.payload, packet.fault),
        (Some(TO_SLOT), &slot()[..], None)
    );
    let bytes = hex(WRITE_IMMEDIATE);
    let packet = Packet::parse(&bytes).expect("good");
    assert_eq!(
        (packet.reth, packet.immediate, packet.payload),
        (Some(TO_LIST), Some(0x2000_0005), &entry()[..])
    );
    assert_eq!(
        (packet.bth.pad, packet.bth.solicited, packet.fault),
        (2, true, None)
    );
    let read = |text| Packet::parse(hex(text).leak()).expect("good");
    assert_eq!(read(FETCH_ADD).atomic, Some(TO_COUNTER));
    let ack = |syndrome, msn| Some(Aeth { syndrome, msn });
    assert_eq!(
        (read(ATOMIC_ACK).aeth, read(ATOMIC_ACK).atomic_ack),
        (ack(Syndrome::ACK, 1), Some(0x1122_3344_5566_7788))
    );
    assert_eq!(read(ACK).aeth, ack(Syndrome::ACK, 0x102));
    assert_eq!(read(NAK).aeth, ack(Syndrome::Nak(Nak::SequenceError), 0x102));
    assert_eq!(read(RNR).aeth, ack(Syndrome::Rnr(14), 0x102));
    let v6 = read(UC_V6);
    assert_eq!(
        (v6.bth.transport, v6.reth, v6.payload),
        (Some(Transport::Uc), Some(V6_RETH), &[1, 2, 3, 4, 5, 6, 7, 8][..])
    );
    assert_eq!(read(SEND).payload, hex(DESCRIPTOR));
    assert_eq!(
        (read(CNP).bth.opcode, read(CNP).bth.becn, read(CNP).bth.transport),
        (Opcode::Cnp, true, None)
    );
    for text in [FETCH_ADD, ATOMIC_ACK, ACK, NAK, RNR, UC_V6, SEND, CNP] {
        assert_eq!(read(text).fault, None, "{text}");
    }
}

#[test]
fn a_datagram_equals_the_udp_payload_of_its_frame() {
    let host6 = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last));
    for (from, to) in [(host(1), host(2)), (host6(1), host6(2))] {
        let path = Path {
            tos: 0,
            hop_limit: 9,
            ..path(from, to, 0)
        };
        let mut writer = Writer::new(path, Transport::Uc, 5).expect("one family");
        let mut out = [0; 200];
        let len = writer
            .write_only(&mut out, Head::new(Psn::new(1)), TO_SLOT, &slot())
            .expect("room");
        let frame = Packet::parse(&out[..len]).expect("good");
        let ends = Endpoints {
            source: from,
            destination: to,
            source_port: 0xc001,
        };
        let socket = Packet::parse_udp(&out[writer.headers_len()..len], ends).expect("good");
        assert_eq!(
            Packet {
                source_mac: [0; 6],
                destination_mac: [0; 6],
                ..frame
            },
            socket
        );
        let other = Endpoints {
            source_port: 0xc002,
            ..ends
        };
        assert_eq!(
            Packet::parse_udp(&out[writer.headers_len()..len], other),
            Err(Refusal::BadIcrc)
        );
        let mixed = Endpoints {
            source: host(9),
            destination: host6(9),
            source_port: 1,
        };
        assert_eq!(
            Packet::parse_udp(&out[writer.headers_len()..len], mixed),
            Err(Refusal::NotIp)
        );
    }
    // With an identification other than 0, a socket does not send the same bytes.
    let bytes = hex(WRITE);
    let ends = Endpoints {
        source: host(1),
        destination: host(2),
        source_port: 0xc001,
    };
    assert_eq!(Packet::parse_udp(&bytes[42..], ends), Err(Refusal::BadIcrc));
    assert!(Writer::new(Path::new(host(1), host6(1), 1), Transport::Uc, 1).is_err());
}

/// The good frames of `vectors/`.
fn good_frames() -> Vec<vectors::Vector> {
    let good =
        |vector: &vectors::Vector| vector.kind == Kind::Roce && !vector.expect[0].starts_with("{\"error\"");
    let all: Vec<_> = vectors::all().into_iter().filter(good).collect();
    assert!(all.len() > 30, "only {}", all.len());
    all
}

#[test]
fn cut_anywhere_a_frame_is_refused() {
    for vector in good_frames() {
        let last = if vector.name == "roce_trailing_bytes" {
            vector.bytes.len() - 6
        } else {
            vector.bytes.len()
        };
        for len in 0..last {
            let refusal = Packet::parse(&vector.bytes[..len]).expect_err("cut");
            assert_eq!(refusal, Refusal::Truncated, "{} at {len}", vector.name);
        }
    }
}

/// The packet without the fields that the network may change.
fn said<'a>(packet: &Packet<'a>) -> Packet<'a> {
    let mut said = *packet;
    (said.source_mac, said.destination_mac, said.congestion) = ([0; 6], [0; 6], false);
    (said.bth.fecn, said.bth.becn) = (false, false);
    said
}

#[test]
fn a_packet_with_a_flipped_bit_is_refused_or_reads_the_same() {
    let (mut refused, mut same) = (0, 0);
    for vector in good_frames() {
        let whole = Packet::parse(&vector.bytes).expect("good");
        for bit in 0..vector.bytes.len() * 8 {
            let mut bytes = vector.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match Packet::parse(&bytes) {
                Ok(packet) => {
                    assert_eq!(said(&packet), said(&whole), "{} bit {bit}", vector.name);
                    same += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        refused > 10_000 && same > 1000,
        "{refused} refused, {same} the same"
    );
}

#[test]
fn a_seal_makes_any_change_good() {
    for vector in good_frames() {
        let mut bytes = vector.bytes.clone();
        seal(&mut bytes).expect("a whole frame");
        assert_eq!(bytes, vector.bytes, "{}", vector.name);
        bytes[50] ^= 0x40;
        seal(&mut bytes).expect("a whole frame");
        assert!(
            !matches!(Packet::parse(&bytes), Err(Refusal::BadIcrc)),
            "{}",
            vector.name
        );
    }
    for (len, refusal) in [
        (0, Refusal::Truncated),
        (50, Refusal::Truncated),
        (97, Refusal::Truncated),
    ] {
        assert_eq!(seal(&mut hex(WRITE)[..len]), Err(refusal), "{len} bytes");
    }
    let mut arp = hex(WRITE);
    arp[13] = 6;
    assert_eq!(seal(&mut arp), Err(Refusal::NotIp));
}

#[test]
fn oversized_packets_are_not_written() {
    let mut writer = there(0x12);
    let mut out = [0xa5; 200];
    let frame = hex(WRITE);
    for len in 0..frame.len() {
        let short = Err(EmitError::Short(frame.len()));
        assert_eq!(
            writer.write_only(&mut out[..len], wanted(0x100), TO_SLOT, &slot()),
            short
        );
    }
    assert_eq!(out, [0xa5; 200]);
    let wrong = Err(EmitError::Invalid(Refusal::BadRoceLength));
    let reth = |len| Reth { len, ..TO_SLOT };
    let head = Head::default();
    assert_eq!(writer.write_only(&mut out, head, reth(23), &slot()), wrong);
    assert_eq!(
        writer.write_only_immediate(&mut out, head, reth(25), 0, &slot()),
        wrong
    );
    assert_eq!(writer.write_first(&mut out, head, reth(24), &slot()), wrong);
    assert_eq!(writer.write_first(&mut out, head, reth(99), &slot()[..22]), wrong);
    assert_eq!(writer.write_middle(&mut out, head, &[]), wrong);
    assert_eq!(writer.write_middle(&mut out, head, &slot()[..2]), wrong);
    assert_eq!(writer.write_last(&mut out, head, &[]), wrong);
    assert_eq!(writer.write_last_immediate(&mut out, head, 0, &[]), wrong);
    assert_eq!(writer.send(&mut [0; 8000], head, &[0; 4097]), wrong);
    let unreliable = Err(EmitError::Invalid(Refusal::BadRoceOpcode));
    assert_eq!(over_v6().fetch_add(&mut out, head, TO_COUNTER), unreliable);
    assert_eq!(over_v6().ack(&mut out, Psn::new(0), 0), unreliable);
    assert_eq!(out, [0xa5; 200]);
}

#[test]
fn frames_of_all_lengths_follow_one_another() {
    // More lengths than a writer caches headers for, in an order in which they evict one another.
    let mut writer = there(9);
    let payload: Vec<u8> = (0..4096).map(|i| (i * 7) as u8).collect();
    let mut out = vec![0; wire::roce::MAX_FRAME];
    for round in 0..3_u32 {
        for len in (0..200).chain([1023, 1024, 4095, 4096]) {
            let head = Head {
                solicited: (round + len) % 2 == 1,
                ..wanted(len + round)
            };
            let reth = Reth {
                address: 64,
                rkey: 3,
                len,
            };
            let part = &payload[..len as usize];
            let written = if len % 3 == 0 {
                writer.write_only_immediate(&mut out, head, reth, round, part)
            } else {
                writer.write_only(&mut out, head, reth, part)
            };
            let packet = Packet::parse(&out[..written.expect("room")]).expect("good");
            assert_eq!(
                (packet.payload, packet.reth, packet.fault),
                (part, Some(reth), None)
            );
            assert_eq!(packet.immediate, (len % 3 == 0).then_some(round));
            assert_eq!((packet.bth.psn, packet.bth.solicited), (head.psn, head.solicited));
        }
    }
}

#[test]
fn a_message_is_cut_into_packets() {
    let cut = |len, pmtu| {
        Segments::new(len, pmtu)
            .map(|s| (s.opcode, s.at, s.len))
            .collect::<Vec<_>>()
    };
    use Opcode::{WriteFirst, WriteLast, WriteMiddle, WriteOnly};
    assert_eq!(cut(0, 256), [(WriteOnly, 0, 0)]);
    assert_eq!(cut(256, 256), [(WriteOnly, 0, 256)]);
    assert_eq!(cut(257, 256), [(WriteFirst, 0, 256), (WriteLast, 256, 1)]);
    assert_eq!(
        cut(768, 256),
        [
            (WriteFirst, 0, 256),
            (WriteMiddle, 256, 256),
            (WriteLast, 512, 256)
        ]
    );
    for (len, pmtu) in [
        (0, 256),
        (1, 0),
        (255, 256),
        (1024, 256),
        (1025, 256),
        (9000, 4096),
    ] {
        assert_eq!(
            cut(len, pmtu).len(),
            Segments::count(len, pmtu),
            "{len} over {pmtu}"
        );
    }
}

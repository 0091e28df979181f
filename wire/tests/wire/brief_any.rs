//! The brief decoder of other common reports gives the result of the full decoder, or none.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use testkit::rng::Rng;
use testkit::vectors::{self, Kind};
use wire::int;
use wire::int::header::{Md2, Md10};
use wire::int::shim::{Next, Shim1, Shim2};
use wire::profile::TcpShim;
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr};
use wire::report::{Report, v10};
use wire::{Annotations, Decoder, Dialect, Flags, Hop, Layout, Profile, TelemetryPorts, Version};

/// Parameters of a report.
#[derive(Clone, Copy, Debug)]
struct Made {
    version: Version,
    int: int::Version,
    proto: u8,
    /// The packet has its Ethernet header.
    in_frame: bool,
    /// A report 2.0 has main contents (report type 1).
    main: bool,
    flags: Flags,
    hops: usize,
    /// Bytes of the packet after INT.
    tail: usize,
}

const USUAL: Made = Made {
    version: Version::V20,
    int: int::Version::V2,
    proto: 17,
    in_frame: false,
    main: true,
    flags: Flags::FLOW,
    hops: 3,
    tail: 8,
};

const BITMAP: u16 = 0xf600;

impl Made {
    /// All kinds, with Ethernet in reports 1.0.
    fn all() -> impl Iterator<Item = Self> {
        (0..32).filter_map(|at: usize| {
            let bit = |bit: usize| at >> bit & 1 != 0;
            let made = Self {
                version: if bit(0) { Version::V10 } else { Version::V20 },
                int: if bit(1) {
                    int::Version::V10
                } else {
                    int::Version::V2
                },
                proto: if bit(2) { 6 } else { 17 },
                in_frame: bit(3),
                main: bit(4),
                ..USUAL
            };
            (made.version == Version::V20 || made.in_frame && made.main).then_some(made)
        })
    }

    fn layout(self, dialect: Dialect) -> Layout {
        match self.int {
            int::Version::V10 => Layout::int_10(BITMAP, wire::int::layout::words_10(BITMAP), dialect),
            _ => Layout::int_2(BITMAP, wire::int::layout::words_2(BITMAP), false),
        }
        .unwrap()
    }

    /// From the Ethernet header on.
    fn frame(self, dialect: Dialect) -> Vec<u8> {
        let layout = self.layout(dialect);
        let (header, l4) = (
            if self.int == int::Version::V10 { 8 } else { 12 },
            if self.proto == 6 { 20 } else { 8 },
        );
        let stack = self.hops * layout.len();
        let total = 20 + l4 + 4 + header + stack + self.tail;
        let mut out = vec![0; 14 + total];
        out[12..16].copy_from_slice(&[8, 0, 0x45, Profile::new(dialect).dscp << 2 | 1]);
        out[16..18].copy_from_slice(&(total as u16).to_be_bytes());
        out[22..24].copy_from_slice(&[64, self.proto]);
        out[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78]);
        if self.proto == 6 {
            out[46] = 0x50;
        } else {
            out[38..40].copy_from_slice(&((total - 20) as u16).to_be_bytes());
        }
        let int = &mut out[34 + l4..];
        let words = (header + stack) / 4;
        if self.int == int::Version::V10 {
            Shim1 {
                kind: 1,
                length: words as u8 + 1,
                last: 0,
            }
            .emit(int);
            Md10 {
                hop_ml: layout.words(),
                remaining: 9,
                bitmap: BITMAP,
                ..Md10::default()
            }
            .emit(&mut int[4..]);
        } else {
            Shim2 {
                kind: Shim2::MD,
                length: words as u8,
                next: Next::Dscp(0),
            }
            .emit(int);
            Md2 {
                hop_ml: layout.words(),
                remaining: 9,
                bitmap: BITMAP,
                ..Md2::default()
            }
            .emit(&mut int[4..]);
        }
        for (at, byte) in int[4 + header..][..stack].iter_mut().enumerate() {
            *byte = at as u8;
        }
        out
    }

    fn datagram(self, dialect: Dialect) -> Vec<u8> {
        let frame = self.frame(dialect);
        let mut out = vec![0; 2048];
        if self.version == Version::V10 {
            let header = v10::Repr {
                next: v10::NextProtocol::Ethernet,
                bits: 0,
                flags: self.flags,
                hw_id: 5,
                switch_id: 77,
                seq: 123_456,
                ingress_ts: 99,
                metadata: Hop::default(),
                drop_reason: None,
            };
            let at = header.emit(dialect, &mut out);
            out.truncate(at);
            out.extend_from_slice(&frame);
            return out;
        }
        let inner = if self.in_frame {
            Inner::Ethernet(&frame)
        } else {
            Inner::Ipv4(&frame[14..])
        };
        let mut builder = GroupBuilder::new(
            &mut out,
            Group {
                hw_id: 33,
                seq: 0x2a_bcde,
                node_id: 77,
            },
        )
        .unwrap();
        assert!(builder.push(&Repr::new(self.flags, MainRepr::default(), inner)));
        let mut out = builder.finish().to_vec();
        if !self.main {
            // Type 0: without main contents.
            out.drain(12..20);
            out[8] &= 0x0f;
            out[9] -= 2;
        }
        out
    }
}

/// The profile of a dialect in which a shim may follow TCP.
fn profile(dialect: Dialect) -> Profile {
    Profile {
        tcp_shim: TcpShim::AfterFixed,
        ..Profile::new(dialect)
    }
}

/// Compares both results of a decoder; true if there was a brief one.
fn compare(decoder: &mut Decoder, payload: &[u8]) -> bool {
    let Some(brief) = decoder.brief_any(payload) else {
        return false;
    };
    let layout = decoder.layout(brief.shape);
    let whole: Vec<_> = decoder.reports(payload).collect();
    let [Ok(report)] = whole.as_slice() else {
        panic!("{whole:?} of {payload:02x?}")
    };
    let int = report.int.unwrap();
    assert_eq!(
        (
            brief.version,
            Some(brief.node_id),
            brief.hw_id,
            brief.seq,
            brief.ts,
            brief.flags,
            Some(brief.flow)
        ),
        (
            report.version,
            report.node_id,
            report.hw_id,
            report.seq,
            report.ts.unwrap_or(0),
            report.flags,
            report.flow
        )
    );
    assert_eq!(
        (brief.int_flags, brief.records, layout),
        (int.flags, int.stack.bytes, int.stack.layout)
    );
    assert_eq!(
        (report.ds_id, int.ds_id, int.source_only, int.sf),
        (0, 0, &[][..], None)
    );
    assert!(!report.is_single_record());
    assert!(nothing_else(report), "{report:?}");
    true
}

/// Whether a report has none of the fields that a brief one lacks.
fn nothing_else(report: &Report<'_>) -> bool {
    (
        report.metadata,
        report.tunnel,
        report.ioam,
        report.drop_reason,
        report.flow_id,
    ) == (None, None, None, None, None)
        && (report.annotations, report.index) == (Annotations::default(), 0)
}

fn briefly(payload: &[u8]) -> bool {
    compare(&mut Decoder::new(profile(Dialect::Strict)), payload)
}

#[test]
fn every_kind_is_read_briefly_in_every_dialect() {
    for (made, dialect) in Made::all().flat_map(|made| Dialect::ALL.map(|dialect| (made, dialect))) {
        let payload = made.datagram(dialect);
        assert!(
            compare(&mut Decoder::new(profile(dialect)), &payload),
            "{made:?} {dialect:?}"
        );
    }
    let made = Made {
        flags: Flags::FLOW.with(Flags::QUEUE, true),
        ..USUAL
    };
    assert!(briefly(&made.datagram(Dialect::Strict)));
    // A telemetry port is one of UDP.
    let mut decoder = Decoder::new(Profile {
        telemetry_ports: TelemetryPorts::new(&[0x5679]).unwrap(),
        ..profile(Dialect::Strict)
    });
    for (proto, read) in [(6, true), (17, false)] {
        let mut payload = Made { proto, ..USUAL }.datagram(Dialect::Strict);
        assert!(compare(&mut decoder, &payload), "{proto}");
        payload[20 + 23] += 1;
        assert_eq!(compare(&mut decoder, &payload), read, "{proto}");
    }
    // As long as the length field can say, and longer.
    for tail in (700..1200).step_by(4) {
        let payload = Made { tail, ..USUAL }.datagram(Dialect::Strict);
        assert!(briefly(&payload), "{tail}");
    }
}

#[test]
fn what_is_not_common_is_left_to_the_full_decoder() {
    let made = |flags| Made { flags, ..USUAL }.datagram(Dialect::Strict);
    for flags in [Flags::DROP, Flags::INTERMEDIATE] {
        assert!(!briefly(&made(Flags::FLOW.with(flags, true))), "{flags:?}");
    }
    let whole = USUAL.datagram(Dialect::Strict);
    // Metadata of the reporter; a domain; a telemetry port; TCP options before the shim.
    let metadata = MainRepr {
        bits: 0x2000,
        ..MainRepr::default()
    };
    let domain = MainRepr {
        ds_id: 0x5043,
        ..MainRepr::default()
    };
    let frame = USUAL.frame(Dialect::Strict);
    for main in [metadata, domain] {
        let mut out = vec![0; 512];
        let mut builder = GroupBuilder::new(
            &mut out,
            Group {
                hw_id: 1,
                seq: 2,
                node_id: 3,
            },
        )
        .unwrap();
        assert!(builder.push(&Repr::new(Flags::FLOW, main, Inner::Ipv4(&frame[14..]))));
        assert!(!briefly(builder.finish()), "{main:?}");
    }
    // No node.
    let mut nameless = whole.clone();
    nameless[4..8].fill(0xff);
    assert!(!briefly(&nameless));
    // Two reports in a group.
    let mut twice = whole.clone();
    twice.extend_from_slice(&whole[8..]);
    assert!(!briefly(&twice));
    assert_eq!(
        Decoder::new(profile(Dialect::Strict))
            .reports(&twice)
            .filter(Result::is_ok)
            .count(),
        2
    );
    let mut tcp = Profile::new(Dialect::Strict);
    tcp.tcp_shim = TcpShim::AfterOptions;
    let payload = Made { proto: 6, ..USUAL }.datagram(Dialect::Strict);
    assert!(Decoder::new(tcp).brief_any(&payload).is_none());
    for made in Made::all() {
        let whole = made.datagram(Dialect::Strict);
        for length in 0..whole.len() - made.tail {
            assert!(!briefly(&whole[..length]), "{made:?} {length}");
        }
    }
}

#[test]
fn the_vectors_give_the_same_result() {
    let all = vectors::all();
    let payloads = all.iter().filter_map(|vector| match vector.kind {
        Kind::Frame => wire::datagram(&vector.bytes)
            .ok()
            .map(|datagram| (datagram.payload, vector.profile)),
        Kind::Payload => Some((&vector.bytes[..], vector.profile)),
        _ => None,
    });
    let brief = payloads
        .filter(|(payload, profile)| compare(&mut Decoder::new(*profile), payload))
        .count();
    assert!(brief > 3, "{brief}");
}

/// A profile with something unusual, or none.
fn some_profile(random: &mut Rng, dialect: Dialect) -> Profile {
    let mut profile = profile(dialect);
    match random.below(10) {
        0 => profile.int_udp_port = 0x5678,
        1 => profile.telemetry_ports = TelemetryPorts::new(&[0x5678, 1]).unwrap(),
        2 => profile.probe_marker = Some(7),
        3 => profile.dscp_mask = 0,
        4 => profile.tcp_shim = TcpShim::AfterOptions,
        _ => {}
    }
    profile
}

#[test]
fn both_decoders_agree_on_mutated_bytes() {
    let mut random = Rng(7);
    let made: Vec<Made> = Made::all().collect();
    let mut brief = 0;
    for turn in 0..200_000 {
        let dialect = Dialect::ALL[turn % Dialect::ALL.len()];
        let profile = some_profile(&mut random, dialect);
        let some = |random: &mut Rng| made[random.below(made.len())].datagram(dialect);
        let mut payload = some(&mut random);
        for _ in 0..random.below(4) {
            // Mostly the headers.
            let below = if random.below(4) == 0 { payload.len() } else { 100 };
            let at = random.below(below);
            payload[at] = if random.below(2) == 0 {
                random.below(256) as u8
            } else {
                payload[at] ^ 1 << random.below(8)
            };
        }
        if random.below(4) == 0 {
            payload.extend_from_slice(&[0xa5; 6]);
        }
        let fresh = compare(&mut Decoder::new(profile), &payload);
        // Earlier reports do not affect the result.
        let mut decoder = Decoder::new(profile);
        compare(&mut decoder, &some(&mut random));
        compare(&mut decoder, &payload);
        assert_eq!(compare(&mut decoder, &payload), fresh, "{payload:02x?}");
        brief += usize::from(fresh);
    }
    assert!(brief > 50_000, "{brief}");
}

#[test]
fn a_new_decoder_expects_nothing() {
    for first in 0..=u8::MAX {
        for length in [16, 26, 64, 1500, 0x1_0000] {
            let mut payload = vec![0; length];
            payload[0] = first;
            assert!(!briefly(&payload), "{first:02x} {length}");
        }
    }
}

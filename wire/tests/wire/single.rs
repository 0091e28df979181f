//! The brief decoder of SF-INT reports gives the result of the full decoder, or none.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use testkit::rng::Rng;
use testkit::vectors::{self, Kind};
use wire::int::header::Md2;
use wire::int::sf::{self, Sf, State};
use wire::int::shim::{Next, Shim2};
use wire::report::v20::{Group, GroupBuilder, Inner, MainRepr, Repr};
use wire::{Annotations, Decoder, Dialect, Flags, Hop, Layout, Profile, TelemetryPorts, ipv6};

/// Parameters of a report.
#[derive(Clone, Copy)]
struct Made {
    items: u16,
    metadata: u16,
    state: State,
    proto: u8,
    flags: Flags,
    reports: usize,
}

const USUAL: Made = Made {
    items: 0xac00,
    metadata: 0x2c00,
    state: State::High,
    proto: 17,
    flags: Flags::FLOW,
    reports: 1,
};

impl Made {
    fn packet(self) -> Vec<u8> {
        let layout = Layout::int_2(self.items, wire::int::layout::words_2(self.items), false).unwrap();
        let option = 16 + layout.len();
        let extension = (4 + option).next_multiple_of(8);
        let mut out = vec![0; 40 + extension + 8];
        let repr = ipv6::Repr {
            src: [0x20; 16],
            dst: [0x30; 16],
            next_header: 0,
            hop_limit: 9,
            payload_len: (extension + 8) as u16,
            ..ipv6::Repr::default()
        };
        repr.emit(&mut out);
        let options = &mut out[40..];
        options[..4].copy_from_slice(&[self.proto, (extension / 8 - 1) as u8, sf::OPTION, option as u8]);
        Shim2 {
            kind: Shim2::SF,
            length: (option / 4 - 1) as u8,
            next: Next::Nothing,
        }
        .emit(&mut options[4..]);
        let sf = Sf {
            urgent: false,
            state: self.state,
            packet_id: 0x1234,
        };
        let header: Md2 = Md2::stateful(layout.words(), 11, self.items, sf);
        header.emit(&mut options[8..]);
        for (at, byte) in options[20..20 + layout.len()].iter_mut().enumerate() {
            *byte = at as u8;
        }
        if extension > 4 + option {
            options[4 + option..extension].copy_from_slice(&[1, 2, 0, 0]);
        }
        options[extension..].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]);
        out
    }

    fn datagram(self) -> Vec<u8> {
        let packet = self.packet();
        let metadata = Hop {
            hop_latency: Some(7),
            ingress_ts: Some(70),
            egress_ts: Some(77),
            ..Hop::default()
        };
        let main = MainRepr {
            bits: self.metadata,
            metadata,
            ..MainRepr::default()
        };
        let report = Repr::new(self.flags, main, Inner::Ipv6(&packet));
        let mut out = vec![0; 1024];
        let mut builder = GroupBuilder::new(
            &mut out,
            Group {
                hw_id: 33,
                seq: 0x2a_bcde,
                node_id: 77,
            },
        )
        .unwrap();
        for _ in 0..self.reports {
            assert!(builder.push(&report));
        }
        builder.finish().to_vec()
    }
}

/// Compares both results of a decoder; true if there was a brief one.
fn compare(decoder: &mut Decoder, payload: &[u8]) -> bool {
    let Some(single) = decoder.single(payload) else {
        return false;
    };
    let [metadata_layout, carried_layout] = single.layouts();
    let whole: Vec<_> = decoder.reports(payload).collect();
    let [Ok(report)] = whole.as_slice() else {
        panic!("{whole:?} of {payload:02x?}")
    };
    let (int, metadata) = (report.int.unwrap(), report.metadata.unwrap());
    assert_eq!(
        (
            Some(single.node_id),
            single.hw_id,
            single.seq,
            single.flags,
            Some(single.flow)
        ),
        (
            report.node_id,
            report.hw_id,
            report.seq,
            report.flags,
            report.flow
        )
    );
    let sf = Sf {
        urgent: false,
        state: single.state,
        packet_id: single.packet_id,
    };
    assert_eq!(
        (single.int_flags, single.remaining, Some(sf)),
        (int.flags, int.remaining, int.sf)
    );
    assert_eq!(
        (single.metadata, metadata_layout),
        (metadata.record, metadata.layout)
    );
    assert_eq!(
        (single.carried, carried_layout, 1),
        (int.stack.bytes, int.stack.layout, int.stack.count)
    );
    assert!(report.is_single_record());
    let rest = (
        report.tunnel,
        report.ioam,
        report.gap,
        report.drop_reason,
        report.ts,
        report.flow_id,
        report.index,
    );
    assert_eq!(rest, (None, None, None, None, None, None, 0));
    assert!(
        report.annotations.0 & !Annotations::MERGED.0 == 0,
        "{:?}",
        report.annotations
    );
    true
}

fn briefly(payload: &[u8]) -> bool {
    compare(&mut Decoder::new(Profile::default()), payload)
}

#[test]
fn the_usual_report_is_read_briefly_with_all_items_states_and_protocols() {
    for items in (0x8000..=0xff80_u16).step_by(0x80) {
        for state in State::ALL {
            for (proto, metadata) in [(17, 0x2c00), (6, 0x7f80), (17, 0x4000)] {
                let made = Made {
                    items,
                    metadata,
                    state,
                    proto,
                    ..USUAL
                };
                assert!(briefly(&made.datagram()), "{items:04x} {metadata:04x}");
            }
        }
    }
    assert!(briefly(
        &Made {
            flags: Flags::FLOW.with(Flags::QUEUE, true),
            ..USUAL
        }
        .datagram()
    ));
}

#[test]
fn unusual_datagrams_are_left_to_the_full_decoder() {
    let with = |flag| Flags::FLOW.with(flag, true);
    let unusual = [
        Made { proto: 1, ..USUAL },
        Made { metadata: 0, ..USUAL },
        Made {
            metadata: 0x2c01,
            ..USUAL
        },
        Made {
            flags: Flags::QUEUE,
            ..USUAL
        },
        Made {
            flags: with(Flags::DROP),
            ..USUAL
        },
        Made {
            flags: with(Flags::INTERMEDIATE),
            ..USUAL
        },
        Made { reports: 2, ..USUAL },
    ];
    for (at, made) in unusual.into_iter().enumerate() {
        assert!(!briefly(&made.datagram()), "{at}");
    }
    let whole = USUAL.datagram();
    for length in 0..whole.len() {
        assert!(!briefly(&whole[..length]), "{length}");
    }
}

#[test]
fn both_decoders_agree_on_mutated_bytes() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let telemetry = TelemetryPorts::new(&[0x5678, 1]).unwrap();
    let mut brief = 0;
    for turn in 0..200_000 {
        let mut profile = Profile::new(Dialect::ALL[turn % Dialect::ALL.len()]);
        match random(8) {
            0 => profile.int_udp_port = 0x5678,
            1 => profile.telemetry_ports = telemetry,
            2 => profile.probe_marker = Some(7),
            3 => profile.dscp_mask = 0,
            _ => {}
        }
        let made = Made {
            items: 0x8000 | (random(256) as u16) << 7,
            metadata: (random(256) as u16) << 7,
            state: State::ALL[random(3)],
            proto: [17, 6][random(2)],
            ..USUAL
        };
        let mut payload = made.datagram();
        for _ in 0..random(4) {
            let at = random(payload.len());
            payload[at] = if random(2) == 0 {
                random(256) as u8
            } else {
                payload[at] ^ 1 << random(8)
            };
        }
        match random(8) {
            0 => payload.truncate(payload.len() - random(12)),
            1 => payload.extend_from_slice(&[0xa5; 4]),
            _ => {}
        }
        let fresh = compare(&mut Decoder::new(profile), &payload);
        // Earlier reports do not affect the result.
        let mut decoder = Decoder::new(profile);
        compare(&mut decoder, &USUAL.datagram());
        compare(&mut decoder, &made.datagram());
        compare(&mut decoder, &payload);
        assert_eq!(compare(&mut decoder, &payload), fresh, "{payload:02x?}");
        brief += usize::from(fresh);
    }
    assert!(brief > 50_000, "{brief}");
}

#[test]
fn random_bytes_after_a_usual_report_are_never_taken_for_one() {
    // All-zeros and all-ones in every field that is compared, with a decoder that has read nothing.
    for fill in [0x00, 0xff] {
        for length in 0..300 {
            assert!(!briefly(&vec![fill; length]));
            let mut payload = vec![fill; length];
            payload.iter_mut().take(1).for_each(|first| *first = 0x2f);
            assert!(!briefly(&payload));
        }
    }
}

#[test]
fn both_decoders_agree_on_truncated_and_corrupted_vectors() {
    let (mut rng, mut brief) = (Rng(1), 0);
    for vector in vectors::all() {
        let payload = match vector.kind {
            Kind::Frame => wire::datagram(&vector.bytes).map_or(&[][..], |datagram| datagram.payload),
            Kind::Payload => &vector.bytes,
            _ => continue,
        };
        let mut decoder = Decoder::new(vector.profile);
        brief += usize::from(compare(&mut decoder, payload));
        for length in 0..payload.len() {
            compare(&mut decoder, &payload[..length]);
        }
        for _ in 0..200 {
            let mut corrupted = payload.to_vec();
            rng.corrupt(&mut corrupted);
            compare(&mut decoder, &corrupted);
        }
    }
    assert!(brief > 0, "no vector is a usual report");
}

//! The brief decoder of reports gives the result of the full decoder, or none.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use wire::int::header::Md10;
use wire::int::shim::Shim1;
use wire::report::v10;
use wire::{Decoder, Dialect, Flags, Hop, Layout, Profile, TelemetryPorts};

const HOPS: usize = 3;

/// A report that is read briefly: Ethernet, IPv4, UDP, INT 1.0 with three hops.
fn report(dialect: Dialect) -> Vec<u8> {
    let mut out = vec![0; 512];
    let header = v10::Repr {
        next: v10::NextProtocol::Ethernet,
        bits: 0,
        flags: Flags::FLOW,
        hw_id: 5,
        switch_id: 77,
        seq: 123_456,
        ingress_ts: 99,
        metadata: Hop::default(),
        drop_reason: None,
    };
    let at = header.emit(dialect, &mut out);
    let layout = Layout::int_10(
        0xff00,
        if dialect == Dialect::IntCollectorGen { 8 } else { 9 },
        dialect,
    )
    .unwrap();
    let int = 12 + HOPS * layout.len();
    let dscp = Profile::new(dialect).dscp;
    let total = (28 + int) as u16;
    let packet = &mut out[at..];
    packet[12..14].copy_from_slice(&[0x08, 0]);
    packet[14..16].copy_from_slice(&[0x45, dscp << 2]);
    packet[16..18].copy_from_slice(&total.to_be_bytes());
    packet[22..24].copy_from_slice(&[64, 17]);
    packet[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78]);
    packet[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    Shim1 {
        kind: 1,
        length: (int / 4) as u8,
        last: 0,
    }
    .emit(&mut packet[42..]);
    let md = Md10 {
        hop_ml: layout.words(),
        remaining: 9,
        bitmap: 0xff00,
        ..Md10::default()
    };
    md.emit(&mut packet[46..]);
    for (at, byte) in packet[54..42 + int].iter_mut().enumerate() {
        *byte = at as u8;
    }
    out.truncate(at + 42 + int);
    out
}

/// Compares both results of a new decoder; true if there was a brief one.
fn compare(payload: &[u8], profile: Profile) -> bool {
    compare_by(&mut Decoder::new(profile), payload)
}

/// Compares both results of a decoder that may have read other reports before.
fn compare_by(decoder: &mut Decoder, payload: &[u8]) -> bool {
    let Some(brief) = decoder.brief(payload) else {
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
            Some(brief.node_id),
            brief.hw_id,
            brief.seq,
            Some(brief.ts),
            brief.flags,
            Some(brief.flow)
        ),
        (
            report.node_id,
            report.hw_id,
            report.seq,
            report.ts,
            report.flags,
            report.flow
        )
    );
    assert_eq!(Some(brief.hop_limit), report.hop_limit);
    assert_eq!(
        (brief.int_flags, brief.remaining, brief.records, layout),
        (int.flags, int.remaining, int.stack.bytes, int.stack.layout)
    );
    let rest = (
        report.metadata,
        report.tunnel,
        report.ioam,
        report.drop_reason,
        report.annotations.0,
        report.index,
    );
    assert_eq!(rest, (None, None, None, None, 0, 0));
    true
}

#[test]
fn a_common_report_is_read_briefly_in_every_dialect_that_has_it() {
    let brief: Vec<bool> = Dialect::ALL
        .iter()
        .map(|dialect| compare(&report(*dialect), Profile::new(*dialect)))
        .collect();
    assert_eq!(brief, [true, true, true, true, true, true], "{:?}", Dialect::ALL);
}

#[test]
fn cut_anywhere_it_is_left_to_the_whole_decoder() {
    let whole = report(Dialect::Strict);
    for length in 0..whole.len() {
        assert!(!compare(&whole[..length], Profile::default()), "{length}");
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
        let dialect = Dialect::ALL[turn % Dialect::ALL.len()];
        let mut profile = Profile::new(dialect);
        match random(8) {
            0 => profile.int_udp_port = 0x5678,
            1 => profile.telemetry_ports = telemetry,
            2 => profile.probe_marker = Some(7),
            3 => profile.dscp_mask = 0,
            _ => {}
        }
        let mut payload = report(dialect);
        for _ in 0..random(4) {
            // Mostly the headers.
            let at = if random(4) == 0 {
                random(payload.len())
            } else {
                random(70)
            };
            payload[at] = if random(2) == 0 {
                random(256) as u8
            } else {
                payload[at] ^ 1 << random(8)
            };
        }
        if random(4) == 0 {
            payload.extend_from_slice(&[0xa5; 6]);
        }
        let fresh = compare(&payload, profile);
        // Earlier reports do not affect the result.
        let mut decoder = Decoder::new(profile);
        compare_by(&mut decoder, &report(dialect));
        compare_by(&mut decoder, &payload);
        assert_eq!(compare_by(&mut decoder, &payload), fresh, "{payload:02x?}");
        brief += usize::from(fresh);
    }
    assert!(brief > 50_000, "{brief}");
}

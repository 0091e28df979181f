//! Source and sink of hopwise around a transit of another vendor that does not update L4 checksums: the capture was taken after it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::Path;

use dataplane::report::{Format, Outbox, Version};
use dataplane::switch::{Config, L4Checksum, Switch, Visit};
use dataplane::watchlist::Mode;
use dataplane::{Watch, Watchlist};
use wire::{checksum, ipv4};

/// The frames of a classic little-endian pcap file.
fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/captures")
        .join(name);
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let (frame, tail) = tail.split_at(len);
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

fn switch(node: u32, l4_checksum: L4Checksum, watch: Vec<Watch>) -> Switch {
    let format = Format {
        version: Version::V10,
        metadata_on_stack: true,
        ..Format::default()
    };
    Switch::new(
        node,
        Config {
            l4_checksum,
            format,
            ..Config::default()
        },
        Watchlist::new(watch),
    )
    .unwrap()
}

/// Returns whether the UDP checksum of an IPv4 packet over Ethernet is correct or absent.
fn udp_is_right(frame: &[u8]) -> bool {
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let segment = &frame[34..end];
    let pseudo = [
        &frame[26..34],
        &[0, 17],
        &(segment.len() as u16).to_be_bytes(),
        segment,
    ]
    .concat();
    segment[6..8] == [0, 0] || checksum::of(&pseudo) == 0
}

fn visit(from_edge: bool, to_edge: bool) -> Visit {
    Visit {
        ingress_if: 1,
        egress_if: 2,
        ingress_ts: 1000,
        egress_ts: 2000,
        queue_occupancy: 3,
        mtu: 1500,
        from_edge,
        to_edge,
        ..Visit::default()
    }
}

/// A UDP packet with a correct checksum.
fn packet() -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 8];
    frame.extend_from_slice(b"sixteen bytes...");
    (frame[12], frame[13], frame[14]) = (8, 0, 0x45);
    frame[17] = 44;
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..40].copy_from_slice(&[0x13, 0x88, 0x17, 0x70, 0, 24]);
    ipv4::Packet::new_checked(&mut frame[14..])
        .unwrap()
        .fill_checksum();
    wire::udp::Packet::new_checked(&mut frame[34..])
        .unwrap()
        .fill_checksum(&[10, 0, 0, 1, 10, 0, 0, 2]);
    assert!(udp_is_right(&frame));
    frame
}

/// A transit of INT 1.0 that pushes a record of seven words and does not change the L4 checksum, like that of ONOS.
fn foreign_transit(frame: &mut Vec<u8>) {
    const STACK: usize = 14 + 20 + 8 + 4 + 8;
    let record = [
        0_u8, 0, 0, 12, 0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0,
    ];
    frame.splice(STACK..STACK, record);
    for length in [16, 38] {
        let before = u16::from_be_bytes([frame[length], frame[length + 1]]);
        frame[length..length + 2].copy_from_slice(&(before + 28).to_be_bytes());
    }
    frame[44] += 7;
    frame[49] -= 1;
    ipv4::Packet::new_checked(&mut frame[14..])
        .unwrap()
        .fill_checksum();
}

/// The packet that a host receives through hopwise's source, that transit and hopwise's sink; and the sink's counters.
fn through_foreign_transit(setting: L4Checksum) -> (Vec<u8>, [u64; 2]) {
    let watch = Watch {
        mode: Mode::Md10,
        ..Watch::default()
    };
    let (mut source, mut sink) = (switch(11, setting, vec![watch]), switch(13, setting, Vec::new()));
    let mut frame = packet();
    source.forward(&mut frame, &visit(true, false), &mut Outbox::default());
    foreign_transit(&mut frame);
    let mut reports = Outbox::default();
    sink.forward(&mut frame, &visit(false, true), &mut reports);
    assert_eq!(reports.datagrams().count(), 1);
    (
        frame,
        [sink.stats().checksums_examined, sink.stats().checksums_wrong],
    )
}

/// Returns whether the checksums of the capture's packets are correct after a sink, and its counters.
fn deliver(setting: L4Checksum) -> (Vec<bool>, [u64; 2]) {
    let mut sink = switch(13, setting, Vec::new());
    let visit = visit(false, true);
    let mut delivered = Vec::new();
    for mut frame in frames("mixed-foreign-transit-data.pcap") {
        sink.forward(&mut frame, &visit, &mut Outbox::default());
        assert_ne!(frame[15] >> 2, 0x17, "INT was stripped");
        delivered.push(udp_is_right(&frame));
    }
    let stats = sink.stats();
    (delivered, [stats.checksums_examined, stats.checksums_wrong])
}

#[test]
fn a_domain_that_leaves_checksums_delivers_the_packet_as_it_was_sent() {
    assert_eq!(through_foreign_transit(L4Checksum::Leave), (packet(), [1, 0]));
}

#[test]
fn a_domain_that_updates_them_around_one_that_does_not_delivers_wrong_ones_and_notices() {
    let (frame, counted) = through_foreign_transit(L4Checksum::Update);
    assert!(!udp_is_right(&frame));
    assert_eq!(counted, [1, 1]);
}

#[test]
fn zero_delivers_packets_without_a_checksum() {
    let (frame, counted) = through_foreign_transit(L4Checksum::Zero);
    assert_eq!((&frame[40..42], counted), (&[0, 0][..], [1, 0]));
    assert_eq!(frame[42..], packet()[42..]);
}

#[test]
fn the_capture_is_of_a_mixed_domain_and_the_sink_notices() {
    // Its source updated the checksum and its transit did not: a sink cannot restore it, only set it to zero ("none").
    for (setting, right, wrong) in [
        (L4Checksum::Update, false, 1),
        (L4Checksum::Leave, false, 1),
        (L4Checksum::Zero, true, 0),
    ] {
        let (delivered, counted) = deliver(setting);
        assert!(delivered.iter().all(|found| *found == right), "{setting:?}");
        assert_eq!(counted, [1, wrong], "{setting:?}");
    }
}

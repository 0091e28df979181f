//! The captures of a real network (`tests/captures/`), read by every dialect that should read them.

use std::path::Path;
use wire::{Decoder, Dialect, Hop, Profile, Report, datagram};

/// The frames of a classic little-endian pcap file.
fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/captures")
        .join(name);
    let file = std::fs::read(path).expect("the capture is in the repository");
    assert_eq!(
        file[..4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        "classic pcap, little endian, microseconds"
    );
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        let (frame, tail) = tail.split_at(len);
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

/// Gives each report of a capture to `check`, and returns how many there were.
fn each_report(name: &str, dialect: Dialect, mut check: impl FnMut(&Report<'_>)) -> usize {
    let mut decoder = Decoder::new(Profile::new(dialect));
    let mut count = 0;
    for frame in frames(name) {
        let udp = datagram(&frame).expect("every frame is UDP");
        for report in decoder.reports(udp.payload) {
            check(&report.expect("every report is good"));
            count += 1;
        }
    }
    count
}

fn path(report: &Report<'_>) -> Vec<Option<u32>> {
    report.hops().map(|hop| hop.node_id).collect()
}

#[test]
fn the_congested_path_is_101_102_103_in_both_dialects() {
    for dialect in [Dialect::Onos, Dialect::Strict] {
        let mut flows = std::collections::BTreeSet::new();
        let mut most = [0; 3];
        let count = each_report("onos-int10-congested.pcap", dialect, |report| {
            assert_eq!(path(report), [Some(101), Some(102), Some(103)]);
            assert_eq!((report.node_id, report.hw_id, report.seq), (Some(103), 1, 0));
            flows.insert(report.flow.expect("there is a flow").to_string());
            for (i, hop) in report.hops().enumerate() {
                most[i] = most[i].max(hop.queue_occupancy.expect("carried"));
            }
        });
        assert_eq!(count, 4000);
        assert_eq!(flows.len(), 8);
        assert!(flows.contains("10.0.1.1:5002>10.0.2.2:6002/17"), "{flows:?}");
        assert_eq!(most[1], 200);
        assert!(most[0] <= 64 && most[2] <= 64, "{most:?}");
    }
}

#[test]
fn the_flow_flag_is_where_onos_puts_it() {
    let mut names = std::collections::BTreeSet::new();
    for dialect in [Dialect::Onos, Dialect::Strict] {
        each_report("onos-int10-congested.pcap", dialect, |report| {
            names.insert((dialect.name(), report.flags.0));
        });
    }
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        [("onos", 4), ("strict", 0)]
    );
}

#[test]
fn the_path_only_capture_has_node_ids_and_nothing_else() {
    let node = |id| Hop {
        carried: wire::Items::NODE_ID,
        node_id: Some(id),
        ..Hop::default()
    };
    let count = each_report("onos-int10-path-only.pcap", Dialect::Onos, |report| {
        assert_eq!(
            report.hops().collect::<Vec<_>>(),
            [node(101), node(102), node(103)]
        );
    });
    assert_eq!(count, 500);
}

#[test]
fn the_data_packets_carry_two_hops() {
    let profile = Profile::new(Dialect::Strict);
    let frames = frames("onos-int10-data-link.pcap");
    let mut with_int = 0;
    for frame in &frames {
        let contents = wire::packet::contents(frame, &profile).expect("good INT");
        let Some(int) = contents.int else { continue };
        with_int += 1;
        assert_eq!(int.stack.hop(0).node_id, Some(102));
        assert_eq!(int.stack.hop(1).node_id, Some(101));
        assert_eq!(int.stack.len(), 2);
    }
    assert_eq!((frames.len(), with_int), (1000, 1000));
}

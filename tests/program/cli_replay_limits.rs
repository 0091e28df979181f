//! What `hopwise replay` and `decode` do with input that is damaged, ambiguous, or more than they list.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wire::aggregate::{Header, Kind};

use crate::support::{TempDir, hex, hopwise, report_frame, text, udp_frame};

/// Report 2.0 of node 3 with this sequence number, about 10.0.0.1:1234>10.0.0.2:80/6.
fn report(seq: u32) -> Vec<u8> {
    let mut bytes = hex("20400000 00000003 140e0220 50000000 00000000 00070008 01000040
         45000578 00034000 3d06247b 0a000001 0a000002 04d20050 00000001 00000002 50102000 beef0000");
    bytes[..4].copy_from_slice(&(0x2040_0000 | seq).to_be_bytes());
    bytes
}

/// The frame of a datagram in two: the first fragment has 24 bytes of UDP.
fn fragments(frame: &[u8]) -> [Vec<u8>; 2] {
    const HEADERS: usize = 34;
    let part = |payload: &[u8], offset: u16| {
        let mut part = [&frame[..HEADERS], payload].concat();
        part[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        part[20..22].copy_from_slice(&offset.to_be_bytes());
        part
    };
    let (first, second) = frame[HEADERS..].split_at(24);
    [part(first, 0x2000), part(second, 3)]
}

fn replay(dir: &TempDir, frames: &[Vec<u8>], args: &[&str]) -> Value {
    let capture = dir.capture("reports.pcap", frames);
    let run = hopwise(
        ["replay", "--json"]
            .iter()
            .chain(args)
            .copied()
            .chain([text(&capture)]),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.json().remove(0)
}

#[test]
fn a_fragmented_report_is_refused_and_not_lost() {
    let dir = TempDir::new();
    let frames: Vec<_> = (0..300)
        .flat_map(|seq| {
            let frame = report_frame(&report(seq));
            if seq % 20 == 10 {
                fragments(&frame).to_vec()
            } else {
                vec![frame]
            }
        })
        .collect();
    let found = replay(&dir, &frames, &[]);
    assert_eq!(found["refused"], json!({"fragment": 15}));
    assert_eq!(found["skipped"], json!({"fragment": 15}));
    let source = &found["sources"][0];
    assert_eq!(
        (&source["reports"], &source["lost"], &source["unconfirmed"]),
        (&json!(300), &json!(0), &json!(0))
    );
    assert_eq!(
        (&found["reports"], &found["events"]["loss"]),
        (&json!(285), &json!(0))
    );
    // A fragment of another datagram, with a number that no stream expects, starts none.
    let stray = fragments(&report_frame(&report(77_000)))[0].clone();
    let found = replay(
        &dir,
        &[vec![report_frame(&report(1)); 1], vec![stray]].concat(),
        &[],
    );
    assert_eq!(
        (&found["sources"][0]["reports"], &found["sources"][1]),
        (&json!(1), &Value::Null)
    );
}

#[test]
fn a_fragmented_aggregate_is_refused_and_not_lost() {
    let dir = TempDir::new();
    let aggregate = |sequence| {
        let mut bytes = hex(
            "12800002 00140000 00000063 00000006 00000015 ffffffff 00000015 0000f10a
             d0e0f000 d0e0f5dc 0100002a 00000015 0000f10b d0e11328 d0e115e4 00000007",
        );
        let header = Header {
            sequence,
            ..Header::parse(&bytes).unwrap()
        };
        assert_eq!(header.kind, Kind::AggNode);
        header.emit(&mut bytes);
        udp_frame(32_767, &bytes)
    };
    let frames: Vec<_> = (0..300)
        .flat_map(|sequence| {
            let frame = aggregate(sequence);
            if sequence != 100 {
                return vec![frame];
            }
            // The header of an aggregate is longer than the first fragment's payload of `fragments`.
            let mut first = frame[..34 + 40].to_vec();
            first[16..18].copy_from_slice(&60_u16.to_be_bytes());
            first[20..22].copy_from_slice(&0x2000_u16.to_be_bytes());
            vec![first]
        })
        .collect();
    let found = replay(&dir, &frames, &[]);
    let source = &found["sources"][0];
    assert_eq!(
        (&source["reports"], &source["lost"], &found["refused"]),
        (&json!(300), &json!(0), &json!({"fragment": 1}))
    );
}

#[test]
fn a_drop_reason_that_two_profiles_name_differently_is_a_number() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    let settings = "[profiles.a]\ndrop_reasons = { 80 = \"acl deny\", 81 = \"no route\" }\n\
        [profiles.b]\ndrop_reasons = { 80 = \"buffer full\" }\n\
        [[sources]]\nprefix = \"192.0.2.1\"\nprofile = \"a\"\n[[sources]]\nprefix = \"192.0.2.9\"\nprofile = \"b\"\n";
    std::fs::write(&config, settings).unwrap();
    // Report 0.5 with a drop header.
    let drop = |node: u8, reason: u8, source: u8| {
        let mut bytes = hex("01800000 00000001 000003e8 00000000 00010002 03000000
             02000000 00020200 00000001 08004500 00300001 00004011 00000a00 00010a00 00021388 1770001c 0000
             78787878 78787878 78787878 78787878 78787878");
        (bytes[15], bytes[21]) = (node, reason);
        let mut frame = report_frame(&bytes);
        frame[29] = source;
        frame
    };
    let frames = [drop(11, 80, 1), drop(12, 80, 9), drop(11, 81, 1)];
    let found = replay(&dir, &frames, &["-c", text(&config)]);
    let place = |node, reason| json!({"node": node, "reason": reason, "count": 1});
    assert_eq!(
        found["drops"],
        json!([place(11, "80"), place(11, "no route"), place(12, "80")])
    );
}

#[test]
fn one_datagram_is_not_called_constant() {
    let dir = TempDir::new();
    let note = |numbers: &[u32]| {
        let frames: Vec<_> = numbers.iter().map(|seq| report_frame(&report(*seq))).collect();
        let capture = dir.capture("reports.pcap", &frames);
        let run = hopwise(["replay", text(&capture)]);
        let line = run.stdout.lines().find(|line| line.starts_with("192.0.2.1"));
        line.unwrap().rsplit("  ").next().unwrap().to_owned()
    };
    assert_eq!(note(&[7]), "not countable: only one datagram");
    assert_eq!(
        note(&[7, 7]),
        "not countable: its sequence number has not advanced"
    );
}

#[test]
fn no_list_of_a_replay_is_longer_than_the_limit() {
    let dir = TempDir::new();
    let frames: Vec<_> = (0..40)
        .map(|number| {
            let mut bytes = report(number);
            bytes[7] = 100 + number as u8;
            report_frame(&bytes)
        })
        .collect();
    let found = replay(&dir, &frames, &["--limit", "10"]);
    assert_eq!(
        (&found["nodes_total"], found["nodes"].as_array().unwrap().len()),
        (&json!(40), 10)
    );
    let all = replay(&dir, &frames, &[]);
    assert_eq!(
        (&all["nodes_total"], all["nodes"].as_array().unwrap().len()),
        (&json!(40), 40)
    );
    let capture = dir.capture("reports.pcap", &frames);
    let run = hopwise(["replay", "--limit", "10", text(&capture)]);
    assert!(
        run.stdout.contains("… and 30 more nodes; --limit shows more\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn thousands_of_refused_reports_in_a_datagram_take_no_longer_than_others() {
    let dir = TempDir::new();
    // The inner packet has no IPv4 header that fits.
    let mut bytes = hex("20000001 00000003");
    for _ in 0..8_100 {
        bytes.extend(hex("04010000 45000000"));
    }
    let capture = dir.capture("reports.pcap", &vec![report_frame(&bytes); 3]);
    let begun = Instant::now();
    let run = hopwise(["decode", "--json", text(&capture)]);
    let refused = run.json();
    assert_eq!(
        (refused.len(), &refused[0]["error"]),
        (24_300, &json!("not_a_report")),
        "{}",
        refused[0]
    );
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    crate::support::pause();
}

#[test]
fn more_ports_than_a_profile_holds_are_refused() {
    let dir = TempDir::new();
    let capture = dir.capture("reports.pcap", &[report_frame(&report(1))]);
    // With ports 32766 and 32767, on which a collector listens if the configuration names none.
    let ports: Vec<String> = (1..=8).map(|port| (5000 + port).to_string()).collect();
    for (command, count, code) in [
        ("decode", 6, 0),
        ("decode", 7, 2),
        ("replay", 6, 0),
        ("replay", 7, 2),
    ] {
        let ports = ports[..count].iter().flat_map(|port| ["--port", port]);
        let run = hopwise([command].into_iter().chain(ports).chain([text(&capture)]));
        assert_eq!(run.code, Some(code), "{command} {count}: {}", run.stderr);
        assert_eq!(
            run.stderr.contains("at most 8 UDP ports of reports"),
            code == 2,
            "{}",
            run.stderr
        );
    }
}

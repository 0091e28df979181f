//! `hopwise decode`, as a user runs it.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::support::{self, FIRST_TS, TempDir, capture, command, hex, hopwise, report_frame, udp_frame};

/// Report 1.0 with the reporter's metadata about a truncated IPv4 packet: node 3, hw 2, seq 77, ports 7 to 8, queue 5, reason 51.
fn report_10() -> Vec<u8> {
    hex(
        "16110142 00000003 0000004d 89abcdef 00070008 05330000 02000000 00020200 00000001 0800
         45000578 00034000 3d06247b 0a000001 0a000002 04d20050",
    )
}

/// Report 2.0 about a TCP packet: node 3, hw 1, seq 2748, ports 7 to 8, queue 1 with occupancy 64.
fn report_20() -> Vec<u8> {
    hex("20400abc 00000003 140e0220 50000000 00000000 00070008 01000040
         45000578 00034000 3d06247b 0a000001 0a000002 04d20050 00000001 00000002 50102000 beef0000")
}

#[test]
fn one_object_per_report_with_the_documented_names() {
    let dir = TempDir::new();
    let file = dir.capture(
        "two.pcap",
        &[report_frame(&report_20()), report_frame(&report_10())],
    );
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let flow = json!({"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1234, "dport": 80, "proto": 6});
    let expected = [
        json!({"ts": FIRST_TS, "source": "192.0.2.1", "version": "2.0", "node_id": 3, "hw_id": 1, "seq": 2748,
            "flags": ["flow"], "report_type": 1, "flow": flow, "path": [3],
            "hops": [{"node_id": 3, "ingress_if": 7, "egress_if": 8, "queue_id": 1, "queue_occupancy": 64}]}),
        json!({"ts": FIRST_TS + 1000, "source": "192.0.2.1", "version": "1.0", "node_id": 3, "hw_id": 2, "seq": 77,
            "flags": ["drop", "flow"], "flow": flow, "path": [3], "drop_reason": 51,
            "hops": [{"node_id": 3, "ingress_if": 7, "egress_if": 8, "queue_id": 5, "ingress_ts": 2_309_737_967_u32}]}),
    ];
    assert_eq!((run.code, run.json()), (Some(0), expected.to_vec()));
    assert_eq!(
        run.stderr,
        "2 frames, 2 reports (version 1.0: 1, version 2.0: 1)\n"
    );
}

#[test]
fn an_implausible_latency_is_marked() {
    let dir = TempDir::new();
    // Hop latency and both timestamps of the reporter: it has no ingress time.
    let bytes =
        hex("20400abc 00000003 10070520 2c000000 00000000 000002bc 00000000 00000000 00000000 000002bc");
    let file = dir.capture("clone.pcap", &[report_frame(&bytes)]);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let hop = json!({"node_id": 3, "hop_latency": 700, "implausible_latency": 700, "ingress_ts": 0, "egress_ts": 700});
    assert_eq!(
        (run.code, &run.json()[0]["hops"]),
        (Some(0), &json!([hop])),
        "{}",
        run.stderr
    );
    let text = hopwise(["decode".as_ref(), file.as_os_str()]).stdout;
    assert!(text.contains("implausible latency: 700 ns"), "{text}");
}

#[test]
fn unavailable_values_are_null() {
    let dir = TempDir::new();
    let bytes = hex("20000005 ffffffff 10030180 00010000 00000000 ffffffff");
    let file = dir.capture("ones.pcap", &[report_frame(&bytes)]);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let expected = json!({"ts": FIRST_TS, "source": "192.0.2.1", "version": "2.0", "node_id": null, "hw_id": 0,
        "seq": 5, "flags": ["drop"], "report_type": 1, "path": [null], "drop_reason": null,
        "hops": [{"node_id": null, "queue_id": null}]});
    assert_eq!((run.code, run.json()), (Some(0), vec![expected]));
}

/// `frame` with the two bytes at `at` replaced.
fn patched(mut frame: Vec<u8>, at: usize, value: u16) -> Vec<u8> {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    frame
}

#[test]
fn a_broken_frame_is_refused_if_it_was_meant_for_us() {
    let (fragment, udp_length) = (20, 38);
    let dir = TempDir::new();
    let mut v6 = hex(
        "020000000002 020000000001 86dd 60000000 0008 11 40 20010db8000000000000000000000001
        20010db8000000000000000000000064",
    );
    v6.extend(hex("9c40 7ffe 0000 0000"));
    let frames = [
        patched(report_frame(&report_10()), udp_length, 500),
        patched(udp_frame(53, b"x"), udp_length, 500),
        patched(report_frame(&report_10()), fragment, 0x2000),
        patched(report_frame(&report_10()), fragment, 0x2005),
        v6,
    ];
    let file = dir.capture("odd.pcap", &frames);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let expected = [
        json!({"ts": FIRST_TS, "source": "192.0.2.1", "error": "bad_udp_length"}),
        json!({"ts": FIRST_TS + 2000, "source": "192.0.2.1", "error": "fragment"}),
        json!({"ts": FIRST_TS + 4000, "source": "2001:db8::1", "error": "bad_udp_length"}),
    ];
    assert_eq!((run.code, run.json()), (Some(0), expected.to_vec()));
    assert_eq!(
        run.stderr,
        "5 frames, 0 reports\nrefused: 3 (bad_udp_length: 2, fragment: 1)\n\
         skipped, not telemetry: 2 (fragment: 1, other_port: 1)\n"
    );
}

#[test]
fn a_report_about_a_report_is_recognised_by_its_port() {
    let dir = TempDir::new();
    // Report 1.0 about a UDP packet to port 5000 that contains report 1.0.
    let nested = hex(
        "14200041 00000003 0000004d 00000000 4500002c 00010000 40110000 0a000001 0a000002
        04d21388 00180000 14000041 00000004 00000001 00000000",
    );
    let file = dir.capture("nested.pcap", &[udp_frame(5000, &nested)]);
    let run = hopwise([
        "decode".as_ref(),
        "--json".as_ref(),
        "--port=5000".as_ref(),
        file.as_os_str(),
    ]);
    let errors: Vec<_> = run.json().iter().map(|object| object["error"].clone()).collect();
    assert_eq!(errors, [json!("nested")]);
}

#[test]
fn the_flow_of_a_refused_report_is_not_another_ones() {
    let dir = TempDir::new();
    // A valid report about a packet, then one of an unknown kind.
    let mut group = report_20();
    group.extend(hex("f0000000"));
    let file = dir.capture("group.pcap", &[report_frame(&group)]);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let expected = json!({"ts": FIRST_TS, "source": "192.0.2.1", "version": "2.0", "node_id": 3, "hw_id": 1, "seq": 2748,
        "error": "undefined_report_type"});
    assert_eq!(run.json()[1..], [expected]);
}

#[test]
fn text_output_has_a_block_with_a_table_per_report() {
    let dir = TempDir::new();
    let file = dir.capture("one.pcap", &[report_frame(&report_20())]);
    let run = hopwise(["decode".as_ref(), file.as_os_str()]);
    assert_eq!(
        run.stdout,
        "2023-11-14 22:13:20.000Z  from 192.0.2.1  report 2.0  node 3  hw 1  seq 2748  flow
  flow 10.0.0.1:1234>10.0.0.2:80/6
  node  in  out  queue  occupancy
     3   7    8      1         64

"
    );
}

#[test]
fn refused_and_skipped_packets_are_distinguished() {
    let dir = TempDir::new();
    let mut cut = report_10();
    cut.truncate(14);
    let frames = [
        report_frame(&cut),
        report_frame(&[0xf0, 0, 0, 0]),
        udp_frame(53, b"x"),
        vec![0; 60],
    ];
    let file = dir.capture("odd.pcap", &frames);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let expected = [
        json!({"ts": FIRST_TS, "source": "192.0.2.1", "error": "truncated"}),
        json!({"ts": FIRST_TS + 1000, "source": "192.0.2.1", "error": "unknown_version"}),
    ];
    assert_eq!((run.code, run.json()), (Some(0), expected.to_vec()));
    assert_eq!(
        run.stderr,
        "4 frames, 0 reports
refused: 2 (truncated: 1, unknown_version: 1)
skipped, not telemetry: 2 (not_ip: 1, other_port: 1)
"
    );
}

#[test]
fn a_refused_report_keeps_what_was_known_of_it() {
    let dir = TempDir::new();
    let mut wrong = report_20();
    // Metadata bit 4 needs two more words than the metadata length says.
    wrong[12] |= 0x08;
    let file = dir.capture("wrong.pcap", &[report_frame(&wrong)]);
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    let flow = json!({"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1234, "dport": 80, "proto": 6});
    let known = json!({"ts": FIRST_TS, "source": "192.0.2.1", "version": "2.0", "node_id": 3, "hw_id": 1, "seq": 2748,
        "flow": flow, "error": "bad_metadata_length"});
    assert_eq!(run.json(), [known]);
}

#[test]
fn other_ports_are_reports_when_asked_for() {
    let dir = TempDir::new();
    let file = dir.capture(
        "ports.pcap",
        &[udp_frame(5000, &report_20()), udp_frame(5001, &report_20())],
    );
    let run = |args: &[&str]| {
        hopwise(args.iter().map(|arg| arg.as_ref()).chain([file.as_os_str()]))
            .stdout
            .lines()
            .count()
    };
    assert_eq!(run(&["decode", "--json"]), 0);
    assert_eq!(run(&["decode", "--json", "--port", "5000"]), 1);
    assert_eq!(run(&["decode", "--json", "--port", "5000", "--port", "5001"]), 2);
}

#[test]
fn rocev2_on_another_port_has_the_icrc_of_4791() {
    let write = hex(
        "02000000 00020200 00000001 08004502 00541234 40004011 d3f8c633 6401c633 6402c001 12b70040 00000a40 ffff0000          00128000 01000000 7f00013f 3bc00000 1f420000 0018bc4f 0a280000 000b0000 000c0000 000d0000 000e0000 000f10de          ed6c",
    );
    let other = patched(write.clone(), 36, 14_791);
    // A payload that does not match the ICRC.
    let wrong = patched(other.clone(), 78, 0xffff);
    let dir = TempDir::new();
    let file = dir.capture("roce.pcap", &[write, other, wrong]);
    let run = |args: &[&str]| {
        let run = hopwise(args.iter().map(|arg| arg.as_ref()).chain([file.as_os_str()]));
        run.json()
            .iter()
            .map(|line| json!([line["flow"]["dport"], line["error"]]))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(&["decode", "--json"]), [json!([4791, null])]);
    let expected = [json!([14_791, null]), json!([null, "bad_icrc"])];
    assert_eq!(run(&["decode", "--json", "--roce-port", "14791"]), expected);
    // The ports of the configuration are known.
    let config = dir.join("hopwise.toml");
    let stores =
        "[[collector.memory.stores]]\nname = \"a\"\nkind = \"key-write\"\nid = 1\nslots = 16\ndata = 4\n";
    std::fs::write(
        &config,
        format!("[collector.memory]\nlisten = \"127.0.0.1:14791\"\n{stores}"),
    )
    .unwrap();
    let config = config.to_str().unwrap();
    assert_eq!(run(&["decode", "--json", "--config", config]).len(), 3);
}

#[test]
fn packets_before_a_truncation_are_printed() {
    let dir = TempDir::new();
    let whole = support::pcap(&[report_frame(&report_20()), report_frame(&report_20())]);
    let file = dir.join("cut.pcap");
    std::fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    let run = hopwise(["decode".as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(2), 1));
    let last = run.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("hopwise: ") && last.contains("cut.pcap: the file ends in the middle of a packet"),
        "{last}"
    );
}

#[test]
fn a_file_that_is_not_a_capture_gives_one_sentence_and_code_2() {
    let dir = TempDir::new();
    let text = dir.join("notes.txt");
    std::fs::write(&text, "nothing of the kind").unwrap();
    let empty = dir.join("empty.pcap");
    std::fs::write(&empty, "").unwrap();
    let message = |path: &std::path::Path| {
        let run = hopwise(["decode".as_ref(), path.as_os_str()]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
        run.stderr
            .lines()
            .last()
            .unwrap()
            .replace(&format!("{}", path.display()), "FILE")
    };
    assert_eq!(
        message(&dir.join("none.pcap")),
        "hopwise: FILE: there is no such file: check the path"
    );
    assert_eq!(
        message(&text),
        "hopwise: FILE: not a capture (it begins with 6e 6f 74 68): give a pcap or pcapng file, gzipped or not"
    );
    assert_eq!(
        message(&empty),
        "hopwise: FILE: the file is too short for a capture"
    );
    let folder = dir.join("captures");
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(
        message(&folder),
        "hopwise: FILE: is a directory: name the captures in it"
    );
}

#[test]
fn one_broken_file_does_not_hide_the_others() {
    let dir = TempDir::new();
    let good = dir.capture("good.pcap", &[report_frame(&report_20())]);
    let run = hopwise([
        "decode".as_ref(),
        "--json".as_ref(),
        dir.join("none").as_os_str(),
        good.as_os_str(),
    ]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(2), 1));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let file = capture("onos-int10-congested.pcap");
    let mut child = command(["decode".as_ref(), "--json".as_ref(), file.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut few = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut few).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned()
        ),
        (Some(0), String::new())
    );
}

#[test]
fn a_configuration_says_which_source_has_which_profile() {
    let dir = TempDir::new();
    let config = dir.join("hopwise.toml");
    let flags = |source: &str| {
        let file = capture("onos-int10-path-only.pcap");
        std::fs::write(
            &config,
            format!("[[sources]]\nprefix = \"{source}\"\nprofile = \"onos\"\n"),
        )
        .unwrap();
        let run = hopwise([
            "decode".as_ref(),
            "--json".as_ref(),
            "-c".as_ref(),
            config.as_os_str(),
            file.as_os_str(),
        ]);
        run.json()[0]["flags"].clone()
    };
    assert_eq!(
        [flags("10.0.3.0/24"), flags("10.0.4.0/24")],
        [json!(["flow"]), json!([])]
    );
}

#[test]
fn an_unknown_profile_is_refused_with_the_known_ones() {
    let run = hopwise(["decode", "--profile", "onus", "x.pcap"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(
        run.stderr,
        "hopwise: there is no profile `onus`; there are strict, geant, hostint, intcollector-gen, onos, p4int\n"
    );
}

#[test]
fn real_switches_are_understood() {
    let file = capture("onos-int10-congested.pcap");
    let run = hopwise([
        "decode".as_ref(),
        "--profile=onos".as_ref(),
        "--json".as_ref(),
        file.as_os_str(),
    ]);
    let reports = run.json();
    assert_eq!((run.code, reports.len()), (Some(0), 4000));
    assert!(
        reports
            .iter()
            .all(|report| report["path"] == json!([101, 102, 103]) && report["flags"] == json!(["flow"]))
    );
    let most = |hop: usize| {
        reports
            .iter()
            .map(|report| report["hops"][hop]["queue_occupancy"].as_u64().unwrap())
            .max()
    };
    assert_eq!(most(1), Some(200));
    assert!(most(0) <= Some(64) && most(2) <= Some(64));
    assert_eq!(
        reports[0],
        json!({"ts": 1_795_287_421_838_628_000_u64, "source": "10.0.3.3", "version": "1.0", "node_id": 103, "hw_id": 1,
            "seq": 0, "flags": ["flow"],
            "flow": {"src": "10.0.1.1", "dst": "10.0.2.2", "sport": 5002, "dport": 6002, "proto": 17},
            "int_version": "1.0", "path": [101, 102, 103], "hops": [
            {"node_id": 101, "ingress_if": 1, "egress_if": 2, "hop_latency": 417, "queue_id": 0, "queue_occupancy": 0,
             "ingress_ts": 6_129_553, "egress_ts": 6_129_970, "l2_ingress_if": 1, "l2_egress_if": 2, "tx_utilization": 0},
            {"node_id": 102, "ingress_if": 1, "egress_if": 2, "hop_latency": 286, "queue_id": 0, "queue_occupancy": 0,
             "ingress_ts": 6_117_410, "egress_ts": 6_117_696, "l2_ingress_if": 1, "l2_egress_if": 2, "tx_utilization": 0},
            {"node_id": 103, "ingress_if": 1, "egress_if": 3, "hop_latency": 900, "queue_id": 0, "queue_occupancy": 0,
             "ingress_ts": 6_105_743, "egress_ts": 6_106_643, "l2_ingress_if": 1, "l2_egress_if": 3, "tx_utilization": 0}]})
    );
}

#[test]
fn paths_without_anything_else_are_paths() {
    let file = capture("onos-int10-path-only.pcap");
    let run = hopwise([
        "decode".as_ref(),
        "--profile=onos".as_ref(),
        "--json".as_ref(),
        file.as_os_str(),
    ]);
    let hops = json!([{"node_id": 101}, {"node_id": 102}, {"node_id": 103}]);
    assert_eq!(run.json().len(), 500);
    assert!(run.json().iter().all(|report| report["hops"] == hops));
}

#[test]
fn int_in_the_data_packets_themselves() {
    let file = capture("onos-int10-data-link.pcap");
    let run = hopwise([
        "decode".as_ref(),
        "--packets".as_ref(),
        "--json".as_ref(),
        file.as_os_str(),
    ]);
    let packets = run.json();
    assert_eq!(
        run.stderr,
        "1,000 frames, 1,000 INT packets (version 1.0: 1,000)\n"
    );
    assert!(
        packets
            .iter()
            .all(|packet| packet["path"] == json!([101, 102]) && packet["int_version"] == "1.0")
    );
}

#[test]
fn the_help_teaches_by_examples() {
    for command in [
        "decode", "replay", "query", "events", "path", "top", "bench", "demo",
    ] {
        let run = hopwise([command, "--help"]);
        assert_eq!(run.code, Some(0));
        assert!(run.stdout.contains("Examples:\n"), "{command}");
    }
}

/// Agg_N(2) of node 21 by the timer, and Cor(3): examples of wire-formats 4.3.
fn aggregates() -> [Vec<u8>; 2] {
    [
        hex(
            "12800002 00140000 00000063 00000006 00000015 ffffffff 00000015 0000f10a
             d0e0f000 d0e0f5dc 0100002a 00000015 0000f10b d0e11328 d0e115e4 00000007",
        ),
        hex(
            "15000002 00180000 00000063 00000008 ffffffff ffffffff 01000000 000002bc
             000005dc 00000000 00000bb8 00000003 02000000 00000003 0000002a 00000000
             00000034 00000003",
        ),
    ]
}

#[test]
fn aggregates_are_recognised_by_their_port() {
    let dir = TempDir::new();
    let [postcards, summaries] = aggregates();
    let broken = postcards[..60].to_vec();
    let frames = [&postcards, &summaries, &broken].map(|payload| udp_frame(32_767, payload));
    let file = dir.capture(
        "aggregates.pcap",
        &[&frames[..], &[report_frame(&report_10())]].concat(),
    );
    let run = hopwise(["decode".as_ref(), file.as_os_str()]);
    assert_eq!(run.code, Some(0));
    let expected =
        "2023-11-14 22:13:20.000Z  from 192.0.2.1  aggregate Agg_N(R)  aggregator 99  seq 6  sent by its timer
  node 21
  node     flow id  latency  queue  occupancy  ingress ts   egress ts
    21  0x0000f10a     1500      1         42  3504402432  3504403932
    21  0x0000f10b      700      0          7  3504411432  3504412132

2023-11-14 22:13:20.000Z  from 192.0.2.1  aggregate Cor(R)  aggregator 99  seq 8
  metric           min  mean   max  values
  hop latency      700  1000  1500       3
  queue occupancy    3    17    42       3

2023-11-14 22:13:20.000Z  from 192.0.2.1  refused: bad_record_length

2023-11-14 22:13:20.000Z  from 192.0.2.1  report 1.0  node 3";
    assert_eq!(run.stdout.get(..expected.len()), Some(expected));
    let summary = "4 frames, 1 report (version 1.0: 1), 2 aggregates (agg_n: 1, cor: 1)\nrefused: 1 (bad_record_length: 1)\n";
    assert_eq!(run.stderr, summary);
}

#[test]
fn the_port_of_aggregates_can_be_another() {
    let dir = TempDir::new();
    let file = dir.capture(
        "other.pcap",
        &aggregates().map(|payload| udp_frame(5001, &payload)),
    );
    let run = hopwise(["decode".as_ref(), file.as_os_str()]);
    assert_eq!(
        run.stderr,
        "2 frames, 0 reports\nskipped, not telemetry: 2 (other_port: 2)\n\
         `--packets` prints the INT in data packets; `--port` names another port of reports\n"
    );
    let run = hopwise([
        "decode".as_ref(),
        "--json".as_ref(),
        "--aggregate-port=5001".as_ref(),
        file.as_os_str(),
    ]);
    let names: Vec<_> = run
        .json()
        .iter()
        .map(|object| object["aggregate"].clone())
        .collect();
    assert_eq!(names, ["agg_n", "cor"]);
}

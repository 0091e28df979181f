//! The Wireshark dissector, `packaging/wireshark/hopwise.lua`, run by the real tshark over captures made from `vectors/`:
//! its output is compared with the vectors, value by value.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[allow(dead_code, reason = "each test program uses a part")]
mod support;

mod dissector {
    pub(crate) mod tree;
}

use dissector::tree::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use support::{TempDir, capture, hex, skipped, text, udp_frame};

/// Vectors that are not compared, and why.
const NOT_COMPARED: [(&str, &str); 6] = [
    (
        "packet_udp_length",
        "it has no INT; Wireshark's UDP dissector reports that the UDP length exceeds the packet",
    ),
    (
        "empty_datagram",
        "Wireshark does not call dissectors for empty datagrams",
    ),
    ("agg_bad_empty", "likewise"),
    (
        "n_udp_longer_than_ip",
        "Wireshark's UDP dissector reports it, and still has the datagram dissected",
    ),
    ("n_udp_length_0_ipv6", "Wireshark treats it as a jumbogram"),
    (
        "frame_ipv4_mapped_source",
        "Wireshark has datagrams dissected whatever their source, which it shows",
    ),
];

/// Refusals of frames without a datagram: Wireshark's own dissectors report them, and this one must not.
const BELOW_UDP: [&str; 6] = [
    "truncated",
    "not_ip",
    "not_udp",
    "fragment",
    "bad_ip_header",
    "bad_udp_length",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether tshark is installed; reports the test as skipped if not.
fn has_tshark(what: &str) -> bool {
    let run = Command::new("tshark")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let found = run.is_ok_and(|output| output.status.success());
    if !found {
        skipped(&format!("{what}: no tshark on this machine"));
    }
    found
}

/// The output of tshark for a capture with this dissector, with a timeout of two minutes.
fn tshark(file: &Path, args: &[&str]) -> (String, String) {
    let script = root().join("packaging/wireshark/hopwise.lua");
    let output = Command::new("timeout")
        .args([
            "120",
            "tshark",
            "-n",
            "-X",
            &format!("lua_script:{}", text(&script)),
            "-r",
            text(file),
        ])
        .args(args)
        .env("WIRESHARK_CONFIG_DIR", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
    assert!(!stderr.contains("lua") && !stderr.contains("Lua"), "{stderr}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), stderr)
}

/// The layers of each frame: field names to values, fields that occur more than once as arrays.
fn layers(file: &Path, settings: &[String]) -> Vec<Value> {
    let mut args = vec!["-T", "json", "--no-duplicate-keys"];
    for setting in settings {
        args.extend(["-o", setting]);
    }
    let (out, _) = tshark(file, &args);
    assert!(!out.contains("Lua Error"), "{out}");
    let frames: Vec<Value> = serde_json::from_str(&out).unwrap();
    frames
        .into_iter()
        .map(|mut frame| frame["_source"]["layers"].take())
        .collect()
}

// Vectors ----------------------------------------------------------------------------------------------------------

/// One block of a vector file.
#[derive(Default, Debug)]
struct Vector {
    name: String,
    kind: String,
    /// Preferences, as `-o` takes them.
    settings: Vec<String>,
    bytes: Vec<u8>,
    expected: Vec<Value>,
}

fn vectors() -> Vec<Vector> {
    let mut files: Vec<_> = fs::read_dir(root().join("vectors"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let texts: Vec<String> = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let vectors: Vec<_> = texts
        .iter()
        .flat_map(|text| text.split("\n\n"))
        .filter_map(block)
        .collect();
    assert!(vectors.len() > 150, "only {} vectors", vectors.len());
    vectors
}

fn block(text: &str) -> Option<Vector> {
    let mut vector = Vector::default();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let (key, value) = line.split_once(':').unwrap();
        let value = value.trim();
        match key {
            "name" => vector.name = value.into(),
            "kind" => vector.kind = value.into(),
            "profile" => vector.settings.push(format!("hopwise.dialect:{value}")),
            "set" => vector.settings.push(preference(value)),
            "hex" => vector.bytes.extend(hex(value)),
            "expect" => vector.expected.push(serde_json::from_str(value).unwrap()),
            "error" => vector.expected.push(json!({"error": value})),
            _ => {}
        }
    }
    (!vector.name.is_empty()).then_some(vector)
}

/// A setting of a vector as a preference of the dissector.
fn preference(setting: &str) -> String {
    let words: Vec<&str> = setting.split(' ').collect();
    match words[..] {
        ["dscp", value, mask] => format!("hopwise.dscp:{value}/{mask}"),
        ["probe_marker", value] => format!("hopwise.probe_marker:{value}"),
        ["vxlan_port", port] => format!("hopwise.vxlan_ports:{}", u16::from_str_radix(port, 16).unwrap()),
        ["tcp_shim", "after_options"] => "hopwise.tcp_after_options:TRUE".into(),
        ["drop_zero_unknown"] => "hopwise.drop_zero_unknown:TRUE".into(),
        ["domain", id, words] => {
            format!(
                "hopwise.domains:{id}:{}",
                usize::from_str_radix(words, 16).unwrap()
            )
        }
        _ => panic!("no preference for {setting}"),
    }
}

impl Vector {
    /// A frame with the bytes; `None` for vectors that are not packets.
    fn frame(&self) -> Option<Vec<u8>> {
        match self.kind.as_str() {
            "frame" | "packet" | "aggregate_frame" => Some(self.bytes.clone()),
            "payload" => Some(udp_frame(32_766, &self.bytes)),
            "aggregate" => Some(udp_frame(32_767, &self.bytes)),
            "shim" => Some(around_shim(&self.bytes)),
            _ => None,
        }
    }

    fn is_packet(&self) -> bool {
        matches!(self.kind.as_str(), "packet" | "shim")
    }
}

/// A UDP packet with INT, marked as the shim's NPT requires.
fn around_shim(bytes: &[u8]) -> Vec<u8> {
    let by_port = bytes[0] >> 2 & 3 != 0 && bytes[0] >> 4 != 0;
    let mut frame = udp_frame(if by_port { 33_122 } else { 9 }, bytes);
    frame[15] = if by_port { 0 } else { 0x17 << 2 };
    frame
}

/// The vectors by their preferences, so that tshark is started once for each set.
fn by_settings() -> BTreeMap<Vec<String>, Vec<Vector>> {
    let mut groups = BTreeMap::new();
    for vector in vectors() {
        if vector.frame().is_some() {
            groups
                .entry(vector.settings.clone())
                .or_insert_with(Vec::new)
                .push(vector);
        }
    }
    groups
}

// What tshark shows, as the objects of the vectors ---------------------------------------------------------------

/// The part of tshark's tree of the frame that the vector's kind describes.
fn shown(vector: &Vector, layers: &Value) -> Vec<Value> {
    let Some(tree) = layers.get("hopwise") else {
        return Vec::new();
    };
    if vector.is_packet() {
        let mut object = packet(tree);
        if vector.kind == "shim" {
            for name in ["flow", "encapsulation", "recognised", "offsets"] {
                object.as_object_mut().unwrap().remove(name);
            }
        }
        return vec![object];
    }
    if vector.kind.starts_with("aggregate") {
        return vec![aggregate(tree)];
    }
    all(tree, "report")
        .into_iter()
        .map(|each| report(tree, each))
        .collect()
}

/// The tree that the vector expects; empty for packets without telemetry and for frames without a datagram.
fn expected(vector: &Vector) -> Vec<Value> {
    let telemetry = |object: &Value| {
        ["int_version", "ioam", "error", "annotations"]
            .iter()
            .any(|name| object.get(name).is_some())
    };
    let below = |object: &Value| {
        object["error"]
            .as_str()
            .is_some_and(|name| BELOW_UDP.contains(&name))
    };
    let mut objects = vector.expected.clone();
    match vector.kind.as_str() {
        "packet" => objects.retain(telemetry),
        "frame" => objects.retain(|object| !below(object)),
        _ => {}
    }
    // Wireshark's IPv6 dissector shows the rest of a trace.
    for trace in objects
        .iter_mut()
        .filter_map(|object| object.get_mut("ioam")?.as_object_mut())
    {
        trace.remove("flags");
        trace.remove("data");
    }
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.remove("ioam_options");
    }
    objects
}

#[test]
fn every_vector_is_shown_as_it_is() {
    if !has_tshark("every vector in the dissector") {
        return;
    }
    let dir = TempDir::new();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (settings, vectors) in by_settings() {
        let frames: Vec<_> = vectors.iter().filter_map(Vector::frame).collect();
        let file = dir.capture("vectors.pcap", &frames);
        let layers = layers(&file, &settings);
        assert_eq!(layers.len(), vectors.len());
        for (vector, layers) in vectors.iter().zip(&layers) {
            if NOT_COMPARED.iter().any(|(name, _)| *name == vector.name) {
                continue;
            }
            compared += 1;
            let (want, got) = (expected(vector), shown(vector, layers));
            if want != got {
                let lines = |objects: &[Value]| -> String {
                    objects.iter().map(|object| format!("\n    {object}")).collect()
                };
                wrong.push(format!(
                    "{} ({settings:?})\n  expected{}\n  shown{}",
                    vector.name,
                    lines(&want),
                    lines(&got)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} vectors:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(compared > 150, "only {compared} vectors were compared");
}

// Direct Telemetry Access ------------------------------------------------------------------------------------------

/// The destination port of a datagram, its bytes, and its fields with their displayed values, in order.
type Shown<'a> = (u16, &'a str, &'a [(&'a str, &'a str)]);

/// The examples of the format reference, and refusals. (The test of all vectors below compares refusals only.)
const DATAGRAMS: [Shown<'_>; 20] = [
    (
        40_040,
        "1160010200000007 020d001400010000 0a0000010a00000204d2005006 0000000b0000000c0000000d0000000e0000000f",
        &[
            ("dta.opcode", "1"),
            ("dta.immediate", "0"),
            ("dta.essential", "1"),
            ("dta.priority", "2"),
            ("dta.seq", "258"),
            ("dta.reporter", "7"),
            ("dta.redundancy", "2"),
            ("dta.key_length", "13"),
            ("dta.data_length", "20"),
            ("dta.store", "1"),
            ("dta.key", "0a0000010a00000204d2005006"),
            ("dta.data", "0000000b0000000c0000000d0000000e0000000f"),
            ("refused", ""),
        ],
    ),
    (
        40_040,
        "1290000000000007 0000000500120100 a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1",
        &[
            ("dta.opcode", "2"),
            ("dta.immediate", "1"),
            ("dta.priority", "1"),
            ("dta.list", "5"),
            ("dta.count", "1"),
            ("dta.data", "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1"),
        ],
    ),
    (
        40_040,
        "1300000000000007 0204000100000000 0000000000000005 0a000001",
        &[
            ("dta.opcode", "3"),
            ("dta.delta", "5"),
            ("dta.key", "0a000001"),
            ("dta.store", "1"),
        ],
    ),
    (
        40_040,
        "1400000000000007 02030d00000100000000000c 0a0000010a00000204d2005006",
        &[
            ("dta.opcode", "4"),
            ("dta.hop", "2"),
            ("dta.path_length", "3"),
            ("dta.value", "12"),
            ("refused", ""),
        ],
    ),
    (
        40_040,
        "1550000900000007 000400110000000004040002 00000001000000020000000300000004
         00000005000000060000000700000008",
        &[
            ("dta.opcode", "5"),
            ("dta.sketch", "4"),
            ("dta.epoch", "17"),
            ("dta.column", "0"),
            ("dta.depth", "4"),
            ("dta.counter_bytes", "4"),
            ("dta.merge", "0"),
            ("dta.columns", "2"),
            ("dta.counter", "1,2,3,4,5,6,7,8"),
        ],
    ),
    (
        40_044,
        "1f00000100000007 020100ff01020000",
        &[
            ("dta.control", "2"),
            ("dta.code", "1"),
            ("dta.last", "255"),
            ("dta.trigger", "258"),
            ("refused", ""),
        ],
    ),
    (
        40_044,
        "1f00000200000007 04020000000001f40001e240",
        &[
            ("dta.control", "4"),
            ("dta.level", "2"),
            ("dta.hold", "500"),
            ("dta.dropped", "123456"),
        ],
    ),
    (
        40_044,
        "1f00000300000007 030100000004001100000006",
        &[
            ("dta.control", "3"),
            ("dta.sketch", "4"),
            ("dta.epoch", "17"),
            ("dta.expected_column", "6"),
        ],
    ),
    (
        40_044,
        "1f00000000000007 010000ff00000000",
        &[("dta.control", "1"), ("dta.last", "255"), ("refused", "")],
    ),
    // The artifact's packets: base header of two bytes, of three, and its NACK.
    (
        40_040,
        "0100020a00000100 00029a",
        &[
            ("dta.opcode", "1"),
            ("dta.immediate", "0"),
            ("dta.essential", ""),
            ("dta.redundancy", "2"),
            ("dta.key", "0a000001"),
            ("dta.data", "0000029a"),
            ("refused", ""),
        ],
    ),
    (
        40_040,
        "02ffc0000000 03deadbeef",
        &[
            ("dta.opcode", "2"),
            ("dta.immediate", "1"),
            ("dta.essential", "1"),
            ("dta.seq", "255"),
            ("dta.list", "3"),
            ("dta.data", "deadbeef"),
            ("refused", ""),
        ],
    ),
    (
        40_040,
        "0300020a00000100 00000000000005",
        &[("dta.opcode", "3"), ("dta.delta", "5"), ("refused", "")],
    ),
    (
        40_040,
        "04000a0000010200 0000c8",
        &[("dta.hop", "2"), ("dta.value", "200"), ("dta.key", "0a000001")],
    ),
    (40_044, "2980", &[("dta.last", "41"), ("refused", "")]),
    (
        40_040,
        "1600000000000007 00000000",
        &[("refused", "bad_dta_opcode")],
    ),
    // Priority 3; a key of no bytes; a hop beyond the path; a byte too many.
    (
        40_040,
        "1330000000000007 0204000100000000 0000000000000005 0a000001",
        &[("refused", "bad_dta_priority")],
    ),
    (
        40_040,
        "1300000000000007 0200000100000000 0000000000000005",
        &[("refused", "bad_key_length")],
    ),
    (
        40_040,
        "1400000000000007 04030100000100000000000c 0a",
        &[("refused", "bad_hop")],
    ),
    (
        40_040,
        "1300000000000007 0204000100000000 0000000000000005 0a00000100",
        &[("refused", "bad_dta_length")],
    ),
    // A count of 255 columns of 16 rows in 28 bytes.
    (
        40_040,
        "1500000000000007 0004001100000000100800ff 0000000000000000",
        &[("refused", "bad_dta_length")],
    ),
];

#[test]
fn dta_is_shown_as_it_is() {
    if !has_tshark("DTA in the dissector") {
        return;
    }
    let frames: Vec<_> = DATAGRAMS
        .iter()
        .map(|(port, bytes, _)| udp_frame(*port, &hex(bytes)))
        .collect();
    let file = TempDir::new();
    let file = (file.capture("datagrams.pcap", &frames), file);
    let mut names: Vec<&str> = DATAGRAMS
        .iter()
        .flat_map(|(_, _, fields)| *fields)
        .map(|field| field.0)
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut args = vec![
        "-T".to_owned(),
        "fields".to_owned(),
        "-E".into(),
        "occurrence=a".into(),
    ];
    for name in &names {
        args.extend(["-e".to_owned(), format!("hopwise.{name}")]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (out, _) = tshark(&file.0, &args);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), DATAGRAMS.len(), "{out}");
    for ((_, bytes, fields), line) in DATAGRAMS.iter().zip(lines) {
        let columns: BTreeMap<&str, &str> = names.iter().copied().zip(line.split('\t')).collect();
        for (name, value) in *fields {
            assert_eq!(columns.get(name), Some(value), "{name} of {bytes}: {line}");
        }
    }
}

/// Vectors whose refusal is not compared: Wireshark does not call dissectors for empty datagrams, and ours accepts both kinds of
/// datagrams on both of its ports.
const DTA_NOT_COMPARED: [&str; 3] = [
    "dta_bad_empty",
    "dta_bad_control_as_report",
    "dta_bad_control_report",
];

#[test]
fn of_dta_vectors_the_same_are_refused_for_the_same_reason() {
    if !has_tshark("refusals of DTA in the dissector") {
        return;
    }
    let mut vectors = vectors();
    vectors
        .retain(|vector| vector.kind.starts_with("dta") && !DTA_NOT_COMPARED.contains(&vector.name.as_str()));
    assert!(vectors.len() > 50, "only {} vectors", vectors.len());
    let port = |vector: &Vector| if vector.kind == "dta" { 40_040 } else { 40_044 };
    let frames: Vec<_> = vectors
        .iter()
        .map(|vector| udp_frame(port(vector), &vector.bytes))
        .collect();
    let dir = TempDir::new();
    let lines = fields(
        &dir.capture("dta.pcap", &frames),
        &[],
        &["hopwise.dta.opcode", "hopwise.refused"],
    );
    assert_eq!(lines.len(), vectors.len());
    let refused = |line: &str| line.split('\t').nth(1).unwrap_or_default().to_owned();
    let wrong: Vec<_> = vectors
        .iter()
        .zip(&lines)
        .filter(|(vector, line)| refused(line) != vector.expected[0]["error"].as_str().unwrap_or_default())
        .map(|(vector, line)| format!("{}: {} is not {line}", vector.name, vector.expected[0]))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Real captures ----------------------------------------------------------------------------------------------------

/// The lines of `-T fields` of some fields, tabs between them.
fn fields(file: &Path, settings: &[&str], names: &[&str]) -> Vec<String> {
    let mut args = vec!["-T", "fields", "-E", "occurrence=a"];
    for setting in settings {
        args.extend(["-o", setting]);
    }
    for name in names {
        args.extend(["-e", name]);
    }
    tshark(file, &args).0.lines().map(str::to_owned).collect()
}

#[test]
fn real_captures_are_shown() {
    if !has_tshark("real captures in the dissector") {
        return;
    }
    let names = [
        "hopwise.path",
        "hopwise.refused",
        "hopwise.report.seq",
        "hopwise.int.hop.queue_occupancy",
    ];
    let lines = fields(
        &capture("onos-int10-congested.pcap"),
        &["hopwise.dialect:onos"],
        &names,
    );
    assert_eq!(lines.len(), 4000);
    assert!(
        lines.iter().all(|line| line.starts_with("101,102,103\t\t0\t")),
        "{:?}",
        lines.first()
    );
    // The middle switch's queue of 200 fills up; newest first, so it is the second value.
    let middle = |line: &String| {
        line.split(['\t', ','])
            .nth(6)
            .and_then(|depth| depth.parse::<u32>().ok())
            .unwrap()
    };
    assert_eq!(lines.iter().map(middle).max(), Some(200));

    let names = [
        "hopwise.path",
        "hopwise.int.recognised",
        "hopwise.flow.dport",
        "hopwise.int.length",
    ];
    let lines = fields(
        &capture("onos-int10-data-link.pcap"),
        &["hopwise.dialect:onos"],
        &names,
    );
    assert_eq!(lines.len(), 1000);
    let good = |line: &String| line.starts_with("101,102\tdscp\t60") && line.ends_with("\t84");
    assert!(
        lines.iter().all(good),
        "{:?}",
        lines.iter().find(|line| !good(line))
    );
}

#[test]
fn the_inner_packet_is_what_it_was_before_int() {
    if !has_tshark("inner packets in the dissector") {
        return;
    }
    let names = ["tr20_emb", "x_npt_2_udp", "sfint_rep_ipv4", "k_loop"];
    let all = vectors();
    let frames: Vec<_> = names
        .iter()
        .map(|name| {
            all.iter()
                .find(|each| each.name == *name)
                .unwrap()
                .frame()
                .unwrap()
        })
        .collect();
    let dir = TempDir::new();
    let file = dir.capture("inner.pcap", &frames);
    let names = [
        "ip.dst",
        "ip.dsfield.dscp",
        "ip.proto",
        "tcp.dstport",
        "udp.dstport",
        "udp.length",
    ];
    let lines = fields(&file, &[], &names);
    // The outer UDP length is the report's; the inner one is that of the packet before INT, or of its captured part.
    let inner = [
        "6\t80\t32766\tOUTER",
        "17\t\t32766,53\tOUTER,10",
        "17\t\t32766,9000\tOUTER,8",
        "17\t\t32766,9000\tOUTER,8",
    ];
    for ((line, frame), inner) in lines.iter().zip(&frames).zip(inner) {
        let inner = inner.replace("OUTER", &(frame.len() - 34).to_string());
        assert_eq!(*line, format!("192.0.2.100,10.0.0.2\t0,0\t17,{inner}"));
    }
    let lines = fields(&file, &["hopwise.inner:FALSE"], &["ip.dst"]);
    assert!(lines.iter().all(|line| line == "192.0.2.100"), "{lines:?}");
    // Reports contain only the packet's first bytes: the truncated packet must not be reported as malformed.
    let cut = capture("onos-int10-path-only.pcap");
    let names = [
        "hopwise.report.packet_length",
        "ip.len",
        "udp.length",
        "_ws.malformed",
    ];
    let lines = fields(&cut, &["hopwise.dialect:onos"], &names);
    assert_eq!(lines.len(), 500);
    let good = |line: &String| line.ends_with("\t110,28\t90,8\t") && !line.starts_with('\t');
    assert!(lines.iter().all(good), "{:?}", lines.first());
}

#[test]
fn ports_are_preferences() {
    if !has_tshark("ports of the dissector") {
        return;
    }
    let payload =
        hex("2000000c00000015 10080620 1c005043800000000100002a17a3b2c1d0e0f00017a3b2c1d0e0f5dc0000f10a");
    let frames: Vec<_> = [4000, 4005, 4006, 32_766]
        .iter()
        .map(|port| udp_frame(*port, &payload))
        .collect();
    let dir = TempDir::new();
    let file = dir.capture("ports.pcap", &frames);
    let lines = fields(
        &file,
        &["hopwise.report_ports:4000,4004-4005"],
        &["hopwise.report.flow_id"],
    );
    assert_eq!(lines, ["0x0000f10a", "0x0000f10a", "", ""]);
    // An acknowledgement of RoCEv2 on another port than its own.
    let ack = hex("11400000 00000012 00000100 1f000001 00000000");
    let file = dir.capture("roce.pcap", &[udp_frame(4791, &ack), udp_frame(14_791, &ack)]);
    let of = |settings: &[&str]| fields(&file, settings, &["infiniband.bth.opcode"]);
    assert_eq!(of(&["hopwise.roce_ports:14791"]), ["17", "17"]);
    assert_eq!(of(&[]), ["17", ""]);
}

// Hostile input ------------------------------------------------------------------------------------------------------

/// Pseudo-random small numbers, the same in every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Changes a few bytes of the packet after `start`, or truncates or extends it.
fn corrupt(rng: &mut Rng, frame: &mut Vec<u8>, start: usize) {
    for _ in 0..=rng.below(4) {
        let len = frame.len();
        if len <= start {
            return;
        }
        let at = start + rng.below(len - start);
        match rng.below(8) {
            0 => frame.truncate(at),
            1 => frame.extend((0..rng.below(40)).map(|i| i as u8)),
            2 => frame[at] = 0xff,
            3 => frame[at] = 0,
            4 => frame[at] = frame[at].wrapping_add(1),
            5 => frame[at] ^= 0x80 >> rng.below(8),
            _ => frame[at] = rng.below(256) as u8,
        }
    }
}

#[test]
fn hostile_packets_make_no_lua_error() {
    if !has_tshark("hostile packets in the dissector") {
        return;
    }
    let mut rng = Rng(0x5eed);
    let mut frames = Vec::new();
    let mut bases: Vec<(Vec<u8>, usize)> = vectors()
        .iter()
        .filter_map(|vector| Some((vector.frame()?, if vector.is_packet() { 14 } else { 42 })))
        .collect();
    bases.extend(
        DATAGRAMS
            .iter()
            .map(|(port, bytes, _)| (udp_frame(*port, &hex(bytes)), 42)),
    );
    for round in 0..16 {
        for (base, start) in &bases {
            let mut frame = base.clone();
            if round > 0 {
                corrupt(&mut rng, &mut frame, *start);
            }
            // The lengths before the corrupted field are made valid, so that the dissector reaches it.
            if *start == 42 && frame.len() >= 42 && frame[23] == 17 && frame[12..14] == [8, 0] {
                let udp = (frame.len() - 34) as u16;
                frame[16..18].copy_from_slice(&(udp + 20).to_be_bytes());
                frame[38..40].copy_from_slice(&udp.to_be_bytes());
            }
            frames.push(frame);
        }
    }
    assert!(frames.len() > 4000, "only {} frames", frames.len());
    let dir = TempDir::new();
    let file = dir.capture("hostile.pcap", &frames);
    // The whole tree is built, and two dialects are used.
    for dialect in ["strict", "hostint"] {
        let (out, _) = tshark(
            &file,
            &[
                "-V",
                "-o",
                &format!("hopwise.dialect:{dialect}"),
                "-o",
                "hopwise.dscp:0/0",
            ],
        );
        let problem = out
            .lines()
            .find(|line| line.contains("Lua Error") || line.contains(".lua:"));
        assert_eq!(problem, None);
        assert!(out.matches("Refused (").count() > 1000, "nothing was refused");
    }
}

/// tshark's own dissector of LLDP reads what a hopwise switch sends, and every vector without an error, without a warning.
#[test]
fn lldp_is_dissected_without_a_warning() {
    if !has_tshark("LLDP") {
        return;
    }
    let good = |vector: &Vector| vector.kind == "lldp" && vector.expected[0].get("error").is_none();
    let vectors: Vec<Vector> = vectors().into_iter().filter(good).collect();
    let dir = TempDir::new();
    let frames: Vec<Vec<u8>> = vectors.iter().map(|vector| vector.bytes.clone()).collect();
    let file = dir.capture("lldp.pcap", &frames);
    let fields = [
        "lldp.time_to_live",
        "lldp.tlv.system.name",
        "lldp.port.desc",
        "_ws.expert",
        "_ws.malformed",
    ];
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let (out, _) = tshark(
        &file,
        &[&["-T", "fields", "-E", "occurrence=f"], &fields[..]].concat(),
    );
    let lines: Vec<&str> = out.lines().collect();
    // The third has bytes behind its end, which tshark notes.
    let note = "Expert Info (Note/Protocol): Didn't find padding of zeros, and an undecoded trailer exists. There may be padding of non-zeros.";
    let third = format!("121\ts1\t\t{note}\t");
    assert_eq!(lines, ["121\ts1\tport 2\t\t", "0\t\t\t\t", &third, "121\t\t\t\t"]);
}

//! Every vector that is a whole packet, through `hopwise decode --json`: it prints the expected meaning of the vector.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{self, TempDir, hex, hopwise, report_frame, text, udp_frame};

/// One block of a vector file.
#[derive(Default, Debug)]
struct Vector {
    name: String,
    kind: String,
    profile: String,
    settings: Vec<String>,
    bytes: Vec<u8>,
    expected: Vec<Value>,
}

fn vectors() -> Vec<Vector> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let texts: Vec<String> = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    texts
        .iter()
        .flat_map(|text| text.split("\n\n"))
        .filter_map(block)
        .collect()
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
            "profile" => vector.profile = value.into(),
            "set" => vector.settings.push(value.into()),
            "hex" => vector.bytes.extend(hex(value)),
            "expect" => vector.expected.push(serde_json::from_str(value).unwrap()),
            "error" => vector.expected.push(json!({"error": value})),
            _ => {}
        }
    }
    (!vector.name.is_empty()).then_some(vector)
}

/// A configuration with the vector's settings as profile `vector`; `None` when one of them cannot be configured.
fn configuration(vector: &Vector) -> Option<String> {
    let mut out = format!("[profiles.vector]\ndialect = \"{}\"\n", vector.profile);
    for setting in &vector.settings {
        let words: Vec<&str> = setting.split(' ').collect();
        out.push_str(&match words[..] {
            ["dscp", value, mask] => format!("dscp = 0x{value}\ndscp_mask = 0x{mask}\n"),
            ["probe_marker", value] => format!("probe_marker = \"{value}\"\n"),
            ["vxlan_port", port] => format!("vxlan_ports = [0x{port}]\n"),
            ["tcp_shim", "after_options"] => "tcp_shim = \"after-options\"\n".into(),
            ["drop_zero_unknown"] => "drop_zero_unknown = true\n".into(),
            _ => return None,
        });
    }
    Some(out)
}

/// The output for a vector, without parts that depend on the capture; `None` for vectors without a command.
fn printed(vector: &Vector, dir: &TempDir) -> Option<Vec<Value>> {
    let frame = match vector.kind.as_str() {
        "payload" => report_frame(&vector.bytes),
        "aggregate" => udp_frame(32_767, &vector.bytes),
        "dta" => udp_frame(40_040, &vector.bytes),
        "dta_control" => udp_frame(40_044, &vector.bytes),
        _ => vector.bytes.clone(),
    };
    let capture = dir.capture("vector.pcap", &[frame]);
    let config = dir.join("vector.toml");
    fs::write(&config, configuration(vector)?).unwrap();
    let mut args = vec![
        "decode",
        "--json",
        "-c",
        text(&config),
        "--profile",
        "vector",
        text(&capture),
    ];
    if vector.kind == "packet" {
        args.push("--packets");
    }
    let run = hopwise(args);
    assert_eq!(run.code, Some(0), "{}: {}", vector.name, run.stderr);
    let mut objects = run.json();
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.remove("ts");
        object.remove("source");
        if object.contains_key("error") {
            // Fields known before the refusal are not part of a vector.
            object.retain(|name, _| name == "error");
        }
    }
    Some(objects)
}

/// Fields of a packet's object that the command does not print.
const OF_PACKETS_ONLY: [&str; 9] = [
    "mode",
    "int_flags",
    "hop_ml",
    "remaining",
    "bitmap",
    "encapsulation",
    "recognised",
    "offsets",
    "original",
];

/// The part of the vector's meaning that the command prints.
fn expected(vector: &Vector) -> Vec<Value> {
    let mut objects = vector.expected.clone();
    if vector.kind == "packet" {
        for object in objects.iter_mut().filter_map(Value::as_object_mut) {
            object.retain(|name, _| !OF_PACKETS_ONLY.contains(&name.as_str()) && name != "source_only");
        }
        // Packets without telemetry are counted, not printed.
        objects.retain(|object| {
            ["int_version", "ioam", "error"]
                .iter()
                .any(|name| object.get(name).is_some())
        });
    }
    objects
}

/// Frames that are not telemetry, or malformed ones to another port, are counted and not printed.
fn is_no_telemetry(printed: &[Value], vector: &Vector) -> bool {
    let [only] = &vector.expected[..] else {
        return false;
    };
    // The UDP destination port after Ethernet and IPv4 without options.
    let port = if vector.kind == "roce" { 4791_u16 } else { 32_766 };
    let elsewhere = vector
        .bytes
        .get(36..38)
        .is_some_and(|found| found != port.to_be_bytes());
    let other = ["not_ip", "not_udp", "fragment"]
        .iter()
        .any(|name| only["error"] == *name);
    printed.is_empty()
        && matches!(&*vector.kind, "frame" | "roce")
        && (other || (elsewhere && only.get("error").is_some()))
}

#[test]
fn decode_prints_what_the_vectors_say() {
    let dir = TempDir::new();
    let (mut compared, mut skipped, mut wrong) = (0, Vec::new(), Vec::new());
    for vector in vectors() {
        // The IPv4 options of `roce_bad_options` are its UDP header: the decoder sees a datagram to another port.
        // LLDP is read by switches, not by `decode`.
        if matches!(vector.kind.as_str(), "shim" | "lldp") || vector.name == "roce_bad_options" {
            continue;
        }
        match printed(&vector, &dir) {
            None => skipped.push(vector.name),
            Some(printed) if printed == expected(&vector) || is_no_telemetry(&printed, &vector) => {
                compared += 1
            }
            Some(printed) => {
                let lines = |objects: &[Value]| {
                    objects
                        .iter()
                        .map(|object| format!("  {object}\n"))
                        .collect::<String>()
                };
                wrong.push(format!(
                    "{}\n{}is not\n{}",
                    vector.name,
                    lines(&printed),
                    lines(&expected(&vector))
                ));
            }
        }
    }
    for name in &skipped {
        support::skipped(&format!("vector {name}: its settings cannot be configured"));
    }
    assert!(
        wrong.is_empty(),
        "{} of {compared} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        compared > 150 && skipped.len() <= 1,
        "{compared} compared, {skipped:?} skipped"
    );
}

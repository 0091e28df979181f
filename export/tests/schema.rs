//! Records as protobuf and JSON: read back by `protoc` and by serde_json, which know nothing of ours.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use collector::event::{Basis, Drop, Event, FlowRow, Kind, Loss, Rollup};
use detect::Metric;
use export::hop::Hop;
use export::record::{Alert, COMMON, EventRecord, LossRecord, Record, RollupPart, Stream};
use export::{json, protobuf};
use serde_json::json;

/// The id of the alert below. Ids stay the same in all versions.
const ALERT: &str = "1eb67ea0cae993f0";

fn proto() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto/hopwise/v1/record.proto")
}

fn event() -> Record {
    Record::Event(Box::new(EventRecord {
        event: Event {
            ts: 1_795_269_600_000_000_001,
            id: 0x0123_4567_89ab_cdef,
            kind: Kind::RuleOn,
            metric: Some(Metric::QueueOccupancy),
            flow: Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap()),
            node: Some(u32::MAX - 1),
            interface: Some(0),
            queue: Some(255),
            value: Some(u64::MAX),
            previous: Some(127),
            threshold: Some(128),
            rule: Some(1),
            reason: None,
            basis: Basis::HopSum,
        },
        rule: Some("a \"rule\"\n\u{1}é".into()),
        path: vec![1, u32::MAX, 300],
        first: Some((Some(42), Basis::Measured, vec![u32::MAX, 7])),
    }))
}

fn rollup() -> Record {
    let rollup = Rollup {
        ts: 60_000_000_000,
        interval: 60,
        metric: Metric::FlowLatency,
        flow: Some("[fd00::1]:5>[fd00::2]:6/17".parse().unwrap()),
        node: None,
        interface: None,
        queue: None,
        count: 3,
        min: 0,
        max: 5,
        sum: 9,
        p50: Some(2),
        p99: None,
    };
    Record::Rollup(Box::new(RollupPart {
        rollup,
        part: 0,
        nth: 0,
    }))
}

fn flow() -> Record {
    let flow = "10.0.0.1>10.0.0.2/1".parse().unwrap();
    let row = FlowRow {
        flow,
        flow_latency: None,
        basis: Basis::Measured,
        first_seen: 1,
        last_seen: 2,
        reports: 3,
    };
    Record::Flow(Box::new((row, Vec::new())))
}

fn alert() -> Record {
    let Record::Event(one) = event() else {
        unreachable!()
    };
    Record::Alert(Box::new(Alert::from_event(&one.event, one.rule).unwrap()))
}

fn hop() -> Record {
    Record::Hop(Box::new(Hop {
        ts: 9,
        report: 0xabc,
        hop: 1,
        hops: 2,
        node: Some(7),
        hop_latency: Some(900),
        egress_ts: Some(u64::MAX),
        ..Hop::default()
    }))
}

fn drop_of() -> Record {
    let flow = Some(wire::FlowKey::of_id(0xf10a));
    let node = Some(5);
    let ingress_if = None;
    let egress_if = Some(2);
    Record::Drop(Box::new(Drop {
        ts: 9,
        id: 1,
        flow,
        tunnel: Some(wire::FlowKey::v4([10, 0, 0, 66], [10, 0, 0, 2], None, 4)),
        node,
        ingress_if,
        egress_if,
        queue: Some(0),
        reason: Some(71),
    }))
}

fn loss() -> Record {
    let source = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    let loss = Loss {
        ts: 9,
        node: None,
        source,
        hw_id: 3,
        lost: 4,
        reordered: 0,
        duplicated: 1,
    };
    Record::Loss(Box::new(LossRecord { loss, number: 0 }))
}

fn read_json(record: &Record) -> serde_json::Value {
    let mut text = Vec::new();
    json::write(record, "leaf \"1\"", &mut text);
    let shown = String::from_utf8_lossy(&text);
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// Compares a record's JSON with these fields of its own and the common ones.
fn compare(record: &Record, mut expected: serde_json::Value) {
    for (name, value) in [
        ("id", json!(format!("{:016x}", record.id()))),
        ("ts", json!(record.ts())),
        ("collector", json!("leaf \"1\"")),
        ("schema", json!(1)),
    ] {
        expected[name] = value;
    }
    assert_eq!(read_json(record), expected);
}

#[test]
fn records_are_json_objects_with_the_names_of_the_api() {
    let expected = json!({
        "id": "0123456789abcdef", "ts": 1_795_269_600_000_000_001_u64, "collector": "leaf \"1\"", "schema": 1,
        "kind": "rule_on", "metric": "queue_occupancy",
        "flow": {"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1234, "dport": 80, "proto": 6},
        "node": 4_294_967_294_u32, "interface": 0, "queue": 255, "value": u64::MAX, "previous": 127, "threshold": 128,
        "rule": "a \"rule\"\n\u{1}é", "basis": "hop_sum", "path": [1, null, 300], "flow_latency": 42,
        "latency_basis": "measured", "hop_latencies": [null, 7]});
    assert_eq!(read_json(&event()), expected);
    let v6 = json!({"src": "fd00::1", "dst": "fd00::2", "sport": 5, "dport": 6, "proto": 17});
    compare(
        &rollup(),
        json!({"interval": 60, "metric": "flow_latency", "flow": v6, "count": 3, "min": 0, "max": 5, "sum": 9, "p50": 2}),
    );
    let icmp = json!({"src": "10.0.0.1", "dst": "10.0.0.2", "proto": 1});
    compare(
        &flow(),
        json!({"flow": icmp, "basis": "measured", "first_seen": 1, "last_seen": 2, "reports": 3}),
    );
    let by_id = json!({"src": "flow-id:0x0000f10a", "dst": "", "proto": 0});
    compare(
        &drop_of(),
        json!({"flow": by_id, "node": 5, "queue": 0, "egress_if": 2, "reason": 71,
            "tunnel_src": "10.0.0.66", "tunnel_dst": "10.0.0.2"}),
    );
    compare(
        &loss(),
        json!({"source": "192.0.2.1", "hw_id": 3, "lost": 4, "reordered": 0, "duplicated": 1}),
    );
    compare(
        &hop(),
        json!({"report": "0000000000000abc", "hop": 1, "hops": 2, "node": 7, "hop_latency": 900, "egress_ts": u64::MAX}),
    );
    compare(
        &alert(),
        json!({"alert": ALERT, "rule": "a \"rule\"\n\u{1}é",
        "flow": {"src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1234, "dport": 80, "proto": 6},
        "node": 4_294_967_294_u32, "interface": 0, "queue": 255, "state": "firing", "metric": "queue_occupancy",
        "value": u64::MAX, "threshold": 128, "since": 1_795_269_600_000_000_001_u64}),
    );
}

#[test]
fn the_schema_in_the_release_is_that_of_the_program() {
    let text = protobuf::schema();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(proto(), &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(proto()).unwrap(),
        text,
        "UPDATE_REFERENCE=1 writes it"
    );
    for stream in Stream::ALL {
        let mut numbers: Vec<u32> = COMMON
            .iter()
            .chain(stream.fields())
            .map(|field| field.number)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(
            numbers.len(),
            COMMON.len() + stream.fields().len(),
            "{}",
            stream.name()
        );
        assert!(
            stream.fields().iter().all(|field| field.number >= 10),
            "1 to 9 are for what all have"
        );
    }
}

/// The text of a message that `protoc` decoded.
fn decoded(record: &Record) -> String {
    let mut bytes = Vec::new();
    protobuf::write(record, "c1", &mut bytes);
    let file = proto();
    let mut protoc = Command::new("protoc");
    protoc.arg(format!("--proto_path={}", file.parent().unwrap().display()));
    protoc
        .arg(format!("--decode=hopwise.v1.{}", record.stream().message()))
        .arg(&file);
    let mut child = protoc
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn common_fields(record: &Record) -> String {
    format!(
        "id: {} ts: {} collector: \"c1\" schema: 1",
        record.id(),
        record.ts()
    )
}

#[test]
fn protoc_reads_the_messages() {
    if Command::new("protoc").arg("--version").output().is_err() {
        // Not by `println`, which the test harness captures.
        std::io::stderr()
            .write_all(b"SKIPPED protoc_reads_the_messages: no protoc (Debian: protobuf-compiler)\n")
            .unwrap();
        return;
    }
    let cases = [
        (
            event(),
            concat!(
                r#"kind: "rule_on" metric: "queue_occupancy" flow { src: "\n\000\000\001" dst: "\n\000\000\002" sport: 1234 dport: 80 "#,
                r#"proto: 6 } node: 4294967294 interface: 0 queue: 255 value: 18446744073709551615 previous: 127 threshold: 128 "#,
                r#"rule: "a \"rule\"\n\001\303\251" basis: "hop_sum" path: 1 path: 4294967295 path: 300 flow_latency: 42 "#,
                r#"latency_basis: "measured" hop_latencies: 4294967295 hop_latencies: 7"#
            ),
        ),
        (
            rollup(),
            concat!(
                r#"interval: 60 metric: "flow_latency" flow { src: "\375\000\000\000\000\000\000\000\000\000\000\000\000\000\000\001" "#,
                r#"dst: "\375\000\000\000\000\000\000\000\000\000\000\000\000\000\000\002" sport: 5 dport: 6 proto: 17 } "#,
                r#"count: 3 min: 0 max: 5 sum: 9 p50: 2"#
            ),
        ),
        (
            flow(),
            concat!(
                r#"flow { src: "\n\000\000\001" dst: "\n\000\000\002" proto: 1 } basis: "measured" first_seen: 1 last_seen: 2 "#,
                r#"reports: 3"#
            ),
        ),
        (
            drop_of(),
            concat!(
                r#"flow { flow_id: 61706 } node: 5 queue: 0 egress_if: 2 reason: 71 "#,
                r#"tunnel_src: "\n\000\000B" tunnel_dst: "\n\000\000\002""#
            ),
        ),
        (
            alert(),
            concat!(
                r#"alert: ALERT rule: "a \"rule\"\n\001\303\251" flow { src: "\n\000\000\001" dst: "\n\000\000\002" "#,
                r#"sport: 1234 dport: 80 proto: 6 } node: 4294967294 interface: 0 queue: 255 state: "firing" "#,
                r#"metric: "queue_occupancy" value: 18446744073709551615 threshold: 128 since: 1795269600000000001"#
            ),
        ),
        (
            hop(),
            "report: 2748 hop: 1 node: 7 hops: 2 hop_latency: 900 egress_ts: 18446744073709551615",
        ),
        (
            loss(),
            r#"source: "\300\000\002\001" hw_id: 3 lost: 4 reordered: 0 duplicated: 1"#,
        ),
    ];
    for (record, expected) in cases {
        let expected = expected.replace("ALERT", &u64::from_str_radix(ALERT, 16).unwrap().to_string());
        assert_eq!(decoded(&record), format!("{} {expected}", common_fields(&record)));
    }
}

#[test]
fn an_id_is_that_of_the_thing() {
    let records = [event(), rollup(), flow(), drop_of(), loss()];
    // They are compared across versions: these numbers are promises.
    let ids: Vec<String> = records
        .iter()
        .map(|record| format!("{:016x}", record.id()))
        .collect();
    assert_eq!(ids[0], "0123456789abcdef");
    assert_eq!(ids[3], "0000000000000001");
    let Record::Rollup(mut other) = rollup() else {
        unreachable!()
    };
    other.count += 1;
    assert_eq!(Record::Rollup(other.clone()).id(), rollup().id());
    other.node = Some(0);
    assert_ne!(Record::Rollup(other.clone()).id(), rollup().id());
    (other.node, other.interface) = (None, Some(0));
    assert_ne!(Record::Rollup(other).id(), rollup().id());
}

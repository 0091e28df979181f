//! OTLP, read by OpenTelemetry's own classes.

use std::path::PathBuf;
use std::process::Command;

use collector::event::Kind;
use export::Outcome;
use export::record::{Record, Stream};
use export::sink::HttpSink as _;
use export::sink::otlp::{Options, Otlp};
use serde_json::{Value, json};

use crate::server::{Server, TempDir, free_port, send, skipped};
use crate::support::*;

/// The receiver; `None` where OpenTelemetry's classes are not installed.
fn receiver() -> Option<Server> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let servers = std::env::var_os("HOPWISE_SINK_SERVERS")
        .map_or_else(|| folder.join("../target/sink-servers"), PathBuf::from);
    let own = servers.join("otlp/bin/python");
    let python = if own.exists() {
        own
    } else {
        PathBuf::from("python3")
    };
    let has = Command::new(&python)
        .args(["-c", "import opentelemetry.proto"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        skipped("test of a sink: no opentelemetry-proto (scripts/sink-servers)");
        return None;
    }
    let port = free_port();
    let mut command = Command::new(python);
    command
        .arg(folder.join("tests/servers/otlp.py"))
        .arg(port.to_string());
    Some(Server::start(&mut command, port, TempDir::new()))
}

fn sink(service: &str, flows: bool) -> Otlp {
    Otlp::new(&Options {
        service: service.to_owned(),
        flows,
    })
    .unwrap()
}

/// The records that the receiver read. Their resource and scope are compared here.
fn received(server: &Server, signal: &str) -> Value {
    let all = server.json("GET", "/last", "");
    let of = &all[format!("resource{signal}")][0];
    let resource = json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "hopwise"}},
        {"key": "service.instance.id", "value": {"stringValue": COLLECTOR}}]});
    assert_eq!(of["resource"], resource);
    let scope = &of[format!("scope{signal}")][0];
    assert_eq!(scope["scope"], json!({"name": "hopwise", "version": "1"}));
    let records = if signal == "Logs" { "logRecords" } else { "metrics" };
    scope[records].clone()
}

/// Attributes as an object; a list stays as it is.
fn plain(attributes: &Value) -> Value {
    attributes
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            let value = pair["value"].as_object().unwrap();
            (
                pair["key"].as_str().unwrap().to_owned(),
                value.values().next().unwrap().clone(),
            )
        })
        .collect()
}

fn log_parts(log: &Value) -> Value {
    json!([
        log["timeUnixNano"],
        log["severityText"],
        log["body"]["stringValue"],
        log["eventName"],
        plain(&log["attributes"])
    ])
}

fn time(id: u64) -> String {
    (T + id).to_string()
}

#[test]
fn opentelemetry_reads_records_as_logs() {
    let Some(server) = receiver() else { return };
    let sink = sink("hopwise", false);
    assert_eq!(
        sink.probed(&[], &server.send(&sink.probe(&[Stream::Events])).response()),
        Ok(())
    );
    assert_eq!(
        send(&server, &sink, &[change(1), new_flow(2), rule(3, Kind::RuleOn)]),
        Outcome::DONE
    );
    let logs = received(&server, "Logs");
    let read: Vec<Value> = logs.as_array().unwrap().iter().map(log_parts).collect();
    assert_eq!(
        read,
        [
            json!([time(1), "INFO", "change", "hopwise.change", {
                "hopwise.id": "0000000000000001", "hopwise.kind": "change", "hopwise.metric": "queue_occupancy",
                "source.address": "10.0.0.1", "destination.address": "10.0.0.2", "network.type": "ipv4",
                "source.port": "1234", "destination.port": "80", "network.transport": "tcp", "hopwise.proto": "6",
                "hopwise.node": "7", "hopwise.interface": "2", "hopwise.queue": "0", "hopwise.value": "130",
                "hopwise.previous": "2", "hopwise.threshold": "128", "hopwise.basis": "measured"}]),
            json!([time(2), "INFO", "new", "hopwise.new", {
                "hopwise.id": "0000000000000002", "hopwise.kind": "new", "hopwise.metric": "flow_path",
                "source.address": "fd00::1", "destination.address": "fd00::2", "network.type": "ipv6",
                "source.port": "5", "destination.port": "6", "network.transport": "udp", "hopwise.proto": "17",
                "hopwise.basis": "hop_sum",
                "hopwise.path": {"values": [{"intValue": "1"}, {}, {"intValue": "300"}]},
                "hopwise.flow_latency": "42", "hopwise.latency_basis": "hop_sum",
                "hopwise.hop_latencies": {"values": [{}, {"intValue": "7"}]}}]),
            json!([time(3), "WARN", "rule_on", "hopwise.rule_on", {
                "hopwise.id": "0000000000000003", "hopwise.kind": "rule_on",
                "source.address": "10.0.0.1", "destination.address": "10.0.0.2", "network.type": "ipv4",
                "source.port": "1234", "destination.port": "80", "network.transport": "tcp", "hopwise.proto": "6",
                "hopwise.rule": "deep \"queue\" \\ a=b, c] \u{1}é", "hopwise.basis": "measured"}]),
        ]
    );
    assert_eq!(send(&server, &sink, &[loss()]), Outcome::DONE);
    let source = &plain(&received(&server, "Logs")[0]["attributes"])["hopwise.source"];
    assert_eq!(source, "192.0.2.1");
    assert_eq!(send(&server, &sink, &[dropped()]), Outcome::DONE);
    assert_eq!(
        plain(&received(&server, "Logs")[0]["attributes"])["hopwise.flow"],
        "flow-id:0x0000f10a"
    );
    assert_eq!(send(&server, &sink, &[flow()]), Outcome::DONE);
    assert_eq!(
        plain(&received(&server, "Logs")[0]["attributes"])["hopwise.reports"],
        "3"
    );
}

/// The data point of the median of seconds `from..to`.
fn median(from: u64, to: u64, place: &Value) -> Value {
    json!({"startTimeUnixNano": start(from), "timeUnixNano": start(to), "asDouble": 30.0, "attributes": place})
}

/// The data point of the histogram of seconds `from..to`.
fn histogram(from: u64, to: u64, place: &Value) -> Value {
    json!({"startTimeUnixNano": start(from), "timeUnixNano": start(to), "count": "3", "sum": 90.0, "min": 10.0,
        "max": 50.0, "attributes": place})
}

fn start(second: u64) -> String {
    (T + second * 1_000_000_000).to_string()
}

#[test]
fn opentelemetry_reads_rollups_as_metrics() {
    let Some(server) = receiver() else { return };
    let sent = [rollup(0), flow_rollup(), rollup(1)];
    assert_eq!(send(&server, &sink("hopwise", true), &sent), Outcome::DONE);
    let metrics = received(&server, "Metrics");
    let mut parts = Vec::new();
    for metric in metrics.as_array().unwrap() {
        let kind = if metric["gauge"].is_object() {
            "gauge"
        } else {
            "histogram"
        };
        for point in metric[kind]["dataPoints"].as_array().unwrap() {
            let mut point = point.clone();
            point["attributes"] = plain(&point["attributes"]);
            let temporality = &metric[kind]["aggregationTemporality"];
            parts.push(json!([metric["name"], metric["unit"], temporality, point]));
        }
    }
    let delta = "AGGREGATION_TEMPORALITY_DELTA";
    let queue =
        json!({"hopwise.node": "7", "hopwise.interface": "2", "hopwise.queue": "0", "hopwise.interval": "1"});
    let flow = json!({"source.address": "10.0.0.1", "destination.address": "10.0.0.2", "network.type": "ipv4",
        "source.port": "1234", "destination.port": "80", "network.transport": "tcp", "hopwise.proto": "6",
        "hopwise.interval": "60"});
    assert_eq!(
        parts,
        [
            json!(["hopwise.flow_latency", "ns", delta, histogram(0, 60, &flow)]),
            json!(["hopwise.flow_latency.p50", "ns", null, median(0, 60, &flow)]),
            json!(["hopwise.hop_latency", "ns", delta, histogram(0, 1, &queue)]),
            json!(["hopwise.hop_latency", "ns", delta, histogram(1, 2, &queue)]),
            json!(["hopwise.hop_latency.p50", "ns", null, median(0, 1, &queue)]),
            json!(["hopwise.hop_latency.p50", "ns", null, median(1, 2, &queue)]),
        ]
    );
}

#[test]
fn what_a_receiver_refuses_in_part_is_counted_and_not_sent_again() {
    let Some(server) = receiver() else { return };
    for records in [[change(1), change(2)], [rollup(0), rollup(1)]] {
        let reason =
            "the server refused 1 of a request with 2 records, and does not say which: too old".to_owned();
        let rejected = vec![(0, reason)];
        let settled = Outcome::Settled {
            rejected,
            retry: Vec::new(),
            reason: String::new(),
            retry_after: None,
        };
        assert_eq!(send(&server, &sink("partial", false), &records), settled);
    }
    let elsewhere = sink("hopwise", false);
    let mut probe = elsewhere.probe(&[]);
    probe.target = "/nothing".to_owned();
    let said = elsewhere
        .probed(&[], &server.send(&probe).response())
        .unwrap_err();
    assert!(said.contains("often port 4318"), "{said}");
    let nothing: [Record; 1] = [flow_rollup()];
    assert_eq!(batch(COLLECTOR, &nothing, |batch| elsewhere.request(batch)), None);
}

//! InfluxDB 1, and VictoriaMetrics for the API of version 2.

use std::process::Command;

use export::Outcome;
use export::record::Record;
use export::sink::HttpSink as _;
use export::sink::influxdb::{Api, InfluxDb, Options};
use serde_json::{Value, json};

use crate::server::{Server, TempDir, free_port, is_installed, now, probe, send, victoria_metrics};
use crate::support::*;

fn influxdb() -> Option<Server> {
    if !is_installed("influxd", "influxdb") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let mut command = Command::new("influxd");
    command.args(["run", "-config", "/dev/null"]);
    command.env("INFLUXDB_REPORTING_DISABLED", "true");
    command.env("INFLUXDB_HTTP_BIND_ADDRESS", format!("127.0.0.1:{port}"));
    command.env("INFLUXDB_BIND_ADDRESS", format!("127.0.0.1:{}", free_port()));
    for (name, folder) in [
        ("DATA_DIR", "data"),
        ("DATA_WAL_DIR", "wal"),
        ("META_DIR", "meta"),
    ] {
        command.env(format!("INFLUXDB_{name}"), files.path().join(folder));
    }
    Some(Server::start(&mut command, port, files))
}

/// The points that a query finds, one object per point.
fn points(server: &Server, query: &str) -> Vec<Value> {
    let mut form = "db=hopwise&epoch=ns&q=".to_owned();
    form.extend(query.bytes().map(|byte| format!("%{byte:02x}")));
    let answer = server.json("POST", "/query", &form);
    let series = &answer["results"][0]["series"][0];
    let names = series["columns"].as_array().cloned().unwrap_or_default();
    series["values"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .iter()
        .map(|values| {
            names
                .iter()
                .zip(values.as_array().unwrap())
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.as_str().unwrap().to_owned(), value.clone()))
                .collect()
        })
        .map(Value::Object)
        .collect()
}

fn id(record: &Record) -> String {
    format!("{:016x}", record.id())
}

#[test]
fn influxdb_stores_what_is_sent() {
    let Some(server) = influxdb() else { return };
    let options = Options {
        spread: 0,
        tags: vec!["rule".to_owned()],
        ..Options::default()
    };
    let sink = InfluxDb::new(&options).unwrap();
    assert!(
        probe(&server, &sink, &[]).unwrap_err().contains("create it"),
        "{:?}",
        probe(&server, &sink, &[])
    );
    assert!(matches!(
        send(&server, &sink, &[change(1)]),
        Outcome::Failed { .. }
    ));
    points(&server, "CREATE DATABASE hopwise");
    assert_eq!(probe(&server, &sink, &[]), Ok(()));

    // Twice: a repeat changes nothing.
    for _ in 0..2 {
        let events = [change(1), new_flow(2), rule(3, collector::event::Kind::RuleOn)];
        assert_eq!(send(&server, &sink, &events), Outcome::DONE);
        for one in [rollup(0), flow(), dropped(), loss()] {
            assert_eq!(send(&server, &sink, &[one]), Outcome::DONE);
        }
    }
    let collector = "leaf, \"1\"=a/b]_";
    assert_eq!(
        points(&server, "SELECT * FROM hopwise_events"),
        [
            json!({"time": T + 1, "collector": collector, "kind": "change", "metric": "queue_occupancy", "node": "7",
                "interface": "2", "queue": "0", "id": "0000000000000001", "schema": 1, "src": "10.0.0.1", "dst": "10.0.0.2",
                "sport": 1234, "dport": 80, "proto": 6, "value": 130, "previous": 2, "threshold": 128, "basis": "measured"}),
            json!({"time": T + 2, "collector": collector, "kind": "new", "metric": "flow_path", "id": "0000000000000002",
                "schema": 1, "src": "fd00::1", "dst": "fd00::2", "sport": 5, "dport": 6, "proto": 17, "basis": "hop_sum",
                "path": "1,-,300", "flow_latency": 42, "latency_basis": "hop_sum", "hop_latencies": "-,7"}),
            json!({"time": T + 3, "collector": collector, "kind": "rule_on", "id": "0000000000000003", "schema": 1,
                "src": "10.0.0.1", "dst": "10.0.0.2", "sport": 1234, "dport": 80, "proto": 6, "basis": "measured",
                "rule": "deep \"queue\" / a=b, c] _é"}),
        ]
    );
    assert_eq!(
        points(&server, "SELECT * FROM hopwise_rollups"),
        [
            json!({"time": T, "collector": collector, "interval": "1", "metric": "hop_latency", "node": "7", "interface": "2",
            "queue": "0", "id": id(&rollup(0)), "schema": 1, "count": 3, "min": 10, "max": 50, "sum": 90, "p50": 30})
        ]
    );
    assert_eq!(
        points(&server, "SELECT * FROM hopwise_flows"),
        [
            json!({"time": T + 5, "collector": collector, "id": id(&flow()), "schema": 1, "src": "10.0.0.1", "dst": "10.0.0.2",
            "proto": 1, "flow_latency": 900, "basis": "measured", "first_seen": T, "last_seen": T + 5, "reports": 3,
            "path": "1,7"})
        ]
    );
    assert_eq!(
        points(&server, "SELECT * FROM hopwise_drops"),
        [
            json!({"time": T, "collector": collector, "node": "5", "queue": "0", "id": "0000000000000abc", "schema": 1,
            "src": "flow-id:0x0000f10a", "proto": 0, "egress_if": 2, "reason": 71})
        ]
    );
    assert_eq!(
        points(&server, "SELECT * FROM hopwise_losses"),
        [
            json!({"time": T, "collector": collector, "source": "192.0.2.1", "hw_id": "3", "id": id(&loss()), "schema": 1,
            "lost": 4, "reordered": 0, "duplicated": 1})
        ]
    );
}

#[test]
fn influxdb_adds_up_the_rollups_of_several_workers() {
    let Some(server) = influxdb() else { return };
    points(&server, "CREATE DATABASE hopwise");
    let sink = InfluxDb::new(&Options::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(send(&server, &sink, &[1, 2, 3].map(rollup_part)), Outcome::DONE);
    }
    let sums = points(
        &server,
        "SELECT sum(\"count\"), max(\"max\") FROM hopwise_rollups WHERE metric = 'hop_latency' GROUP BY time(1s) fill(none)",
    );
    assert_eq!(sums, [json!({"time": T, "sum": 9, "max": 50})]);
}

#[test]
fn a_partial_write_of_influxdb_is_understood() {
    let Some(server) = influxdb() else { return };
    points(&server, "CREATE DATABASE hopwise");
    // Another program was first, and made `flow_latency` a text.
    let sink = InfluxDb::new(&Options {
        spread: 0,
        ..Options::default()
    })
    .unwrap();
    let mut first = sink.probe(&[]);
    first.body = format!("hopwise_events flow_latency=\"x\" {T}\n").into_bytes();
    assert_eq!(server.send(&first).response().status, 204);
    let Outcome::Settled { rejected, retry, .. } = send(&server, &sink, &[change(1), new_flow(2), change(3)])
    else {
        panic!()
    };
    let (rows, reason): (Vec<usize>, Vec<String>) = rejected.into_iter().unzip();
    assert_eq!((rows, retry), (vec![1], Vec::new()));
    assert!(
        reason[0].contains("already exists as type string dropped=1"),
        "{reason:?}"
    );
    assert_eq!(points(&server, "SELECT value FROM hopwise_events").len(), 2);
    // What is older than the server keeps.
    points(
        &server,
        "CREATE RETENTION POLICY short ON hopwise DURATION 1h REPLICATION 1",
    );
    let api = Api::V1 {
        database: "hopwise".to_owned(),
        retention_policy: Some("short".to_owned()),
    };
    let short = InfluxDb::new(&Options {
        api,
        spread: 0,
        ..Options::default()
    })
    .unwrap();
    let mut old = event(9, collector::event::Kind::Mtu);
    old.event.ts = 1_000_000_000;
    let mut new = event(10, collector::event::Kind::Mtu);
    new.event.ts = now();
    let both = [Record::Event(Box::new(new)), Record::Event(Box::new(old))];
    let Outcome::Settled { rejected, .. } = send(&server, &short, &both) else {
        panic!()
    };
    assert_eq!(
        rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(),
        [1],
        "{rejected:?}"
    );
    let missing = Api::V1 {
        database: "hopwise".to_owned(),
        retention_policy: Some("none".to_owned()),
    };
    let missing = InfluxDb::new(&Options {
        api: missing,
        ..Options::default()
    })
    .unwrap();
    assert!(matches!(
        send(&server, &missing, &[change(1)]),
        Outcome::Failed { .. }
    ));
}

#[test]
fn the_api_of_version_2_stores_what_is_sent() {
    let Some(mut server) = victoria_metrics() else {
        return;
    };
    let api = Api::V2 {
        org: "our org".to_owned(),
        bucket: "hopwise".to_owned(),
    };
    let sink = InfluxDb::new(&Options {
        api,
        ..Options::default()
    })
    .unwrap();
    assert_eq!(probe(&server, &sink, &[]), Ok(()));
    let mut one = rollup(0);
    if let Record::Rollup(rollup) = &mut one {
        rollup.ts = now();
    }
    assert_eq!(send(&server, &sink, &[one]), Outcome::DONE);
    // It stores numbers as series, in milliseconds.
    let target = "/api/v1/series?match%5B%5D=hopwise_rollups_max&start=1";
    server.wait("shows the series", |server| {
        server.json("GET", target, "")["data"]
            .as_array()
            .is_some_and(|series| !series.is_empty())
    });
    assert_eq!(
        server.json("GET", target, "")["data"],
        json!([{"__name__": "hopwise_rollups_max", "collector": "leaf, \"1\"=a/b]_", "interval": "1", "metric": "hop_latency",
            "node": "7", "interface": "2", "queue": "0"}])
    );
}

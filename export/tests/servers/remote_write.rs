//! Prometheus as a receiver of remote write, and VictoriaMetrics.

use std::process::Command;

use export::Outcome;
use export::record::Record;
use export::sink::HttpSink as _;
use export::sink::remote_write::{Options, RemoteWrite};
use serde_json::{Value, json};

use crate::server::{Server, TempDir, free_port, is_installed, now, probe, send, victoria_metrics};
use crate::support::*;

fn prometheus(options: &[&str], text: &str) -> Option<Server> {
    if !is_installed("prometheus", "prometheus") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let config = files.path().join("prometheus.yml");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .args(options);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.arg(format!(
        "--storage.tsdb.path={}",
        files.path().join("data").display()
    ));
    let mut server = Server::start(&mut command, port, files);
    let ready = export::sink::Request {
        method: "GET",
        target: "/-/ready".to_owned(),
        ..Default::default()
    };
    server.wait("is ready", |server| server.send(&ready).response().status == 200);
    Some(server)
}

fn at(ts: u64) -> Record {
    let Record::Rollup(mut one) = rollup(0) else {
        unreachable!()
    };
    one.ts = ts;
    Record::Rollup(one)
}

/// Value and time, s, of the samples by name; all have the same labels.
fn stored(server: &Server) -> Vec<(String, Value)> {
    let query = "/api/v1/query?query=%7B__name__%3D~%22hopwise_.%2A%22%7D%5B1h%5D";
    let answer = server.json("GET", query, "");
    let mut series: Vec<(String, Value)> = Vec::new();
    for one in answer["data"]["result"].as_array().unwrap() {
        let mut labels = one["metric"].clone();
        let name = labels.as_object_mut().unwrap().remove("__name__").unwrap();
        assert_eq!(
            labels,
            json!({"collector": COLLECTOR, "interface": "2", "interval": "1", "node": "7", "queue": "0"})
        );
        series.push((name.as_str().unwrap().to_owned(), one["values"].clone()));
    }
    series.sort_by(|one, next| one.0.cmp(&next.0));
    series
}

/// Parts of rollups at these times, with the number of each.
fn part(ts: u64, nth: u16) -> Record {
    let Record::Rollup(mut one) = at(ts) else {
        unreachable!()
    };
    (one.nth, one.part) = (nth, ts + u64::from(nth));
    one.max += u64::from(nth);
    Record::Rollup(one)
}

/// The value of a question whose answer is one number.
fn value(server: &Server, question: &str) -> String {
    let escaped: String = question.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = server.json("GET", &format!("/api/v1/query?query={escaped}"), "");
    answer["data"]["result"][0]["value"][1]
        .as_str()
        .unwrap_or("none")
        .to_owned()
}

/// Parts of one rollup that come in several batches, twice: each counts once, as the how-to adds them up.
fn adds_up_parts(server: &mut Server) {
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    // VictoriaMetrics hides the latest half minute.
    let second = now() / 1_000_000_000 - 60;
    let batches = [vec![(0, 0), (0, 1), (1, 0)], vec![(0, 2), (1, 1)], vec![(1, 2)]];
    for _ in 0..2 {
        for batch in &batches {
            let records: Vec<Record> = batch
                .iter()
                .map(|(after, nth)| part((second + after) * 1_000_000_000, *nth))
                .collect();
            assert_eq!(send(server, &sink, &records), Outcome::DONE);
        }
    }
    // Two rollups of three parts with three values each.
    server.wait("adds up", |server| {
        value(
            server,
            "sum without (part) (sum_over_time(hopwise_hop_latency_count[2m]))",
        ) == "18"
            && value(
                server,
                "max without (part) (max_over_time(hopwise_hop_latency_max[2m]))",
            ) == "52"
    });
    let mean = "sum without (part) (sum_over_time(hopwise_hop_latency_sum[2m])) / sum without (part) (sum_over_time(hopwise_hop_latency_count[2m]))";
    assert_eq!(value(server, mean), "30");
}

fn at_second(second: u64) -> Record {
    at(second * 1_000_000_000)
}

/// The result of [`stored`] for rollups at these times, s.
fn expected(times: &[u64]) -> Vec<(String, Value)> {
    [
        ("count", "3"),
        ("max", "50"),
        ("min", "10"),
        ("p50", "30"),
        ("sum", "90"),
    ]
    .map(|(part, value)| {
        let samples: Vec<Value> = times.iter().map(|time| json!([time, value])).collect();
        (format!("hopwise_hop_latency_{part}"), Value::Array(samples))
    })
    .into()
}

#[test]
fn prometheus_stores_what_is_sent() {
    let Some(server) = prometheus(&["--web.enable-remote-write-receiver"], "{}") else {
        return;
    };
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    assert_eq!(probe(&server, &sink, &[]), Ok(()));
    assert_eq!(stored(&server), []);
    let second = now() / 1_000_000_000;
    let batch = [
        at_second(second - 10),
        at_second(second - 12),
        flow_rollup(),
        at_second(second - 11),
    ];
    assert_eq!(send(&server, &sink, &batch), Outcome::DONE);
    assert_eq!(
        stored(&server),
        expected(&[second - 12, second - 11, second - 10])
    );
    // A repeat: only the newest sample is recognised.
    let old = "out of order sample: sent before, or older than another one of its series";
    let repeated = settled(
        &[(1, old), (3, old)],
        &[0],
        "another sample of its series comes first",
    );
    assert_eq!(send(&server, &sink, &batch), repeated);
    assert_eq!(send(&server, &sink, &[at_second(second - 10)]), Outcome::DONE);
    // Older than the last one of its series.
    assert_eq!(
        send(&server, &sink, &[at_second(second - 11)]),
        Outcome::Refused {
            reason: "out of order sample".to_owned()
        }
    );
    assert_eq!(
        stored(&server),
        expected(&[second - 12, second - 11, second - 10])
    );
    // Older than all that the server takes.
    let old = send(
        &server,
        &sink,
        &[at_second(second - 10_000), at_second(second - 10_001)],
    );
    let reason = "out of bounds".to_owned();
    let rejected = vec![(0, reason.clone()), (1, reason)];
    assert_eq!(
        old,
        Outcome::Settled {
            rejected,
            retry: Vec::new(),
            reason: String::new(),
            retry_after: None
        }
    );
    let Record::Rollup(mut other) = at_second(second - 10) else {
        unreachable!()
    };
    other.max += 1;
    let different = send(&server, &sink, &[Record::Rollup(other)]);
    assert_eq!(
        different,
        Outcome::Refused {
            reason: "duplicate sample for timestamp".to_owned()
        }
    );
}

#[test]
fn with_an_out_of_order_window_a_repeat_is_harmless() {
    let config = "storage: {tsdb: {out_of_order_time_window: 10m}}\n";
    let Some(server) = prometheus(&["--web.enable-remote-write-receiver"], config) else {
        return;
    };
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    let second = now() / 1_000_000_000;
    for _ in 0..2 {
        assert_eq!(
            send(
                &server,
                &sink,
                &[
                    at_second(second - 12),
                    at_second(second - 11),
                    at_second(second - 10)
                ]
            ),
            Outcome::DONE
        );
    }
    assert_eq!(send(&server, &sink, &[at_second(second - 13)]), Outcome::DONE);
    assert_eq!(
        stored(&server),
        expected(&[second - 13, second - 12, second - 11, second - 10])
    );
}

#[test]
fn prometheus_adds_up_the_rollups_of_several_workers() {
    let config = "storage: {tsdb: {out_of_order_time_window: 10m}}\n";
    let Some(mut server) = prometheus(&["--web.enable-remote-write-receiver"], config) else {
        return;
    };
    adds_up_parts(&mut server);
}

#[test]
fn victoria_metrics_adds_up_the_rollups_of_several_workers() {
    let Some(mut server) = victoria_metrics() else {
        return;
    };
    adds_up_parts(&mut server);
}

#[test]
fn prometheus_says_that_it_takes_no_remote_write() {
    let Some(server) = prometheus(&[], "{}") else {
        return;
    };
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    let said = sink
        .probed(&[], &server.send(&sink.probe(&[])).response())
        .unwrap_err();
    assert!(
        said.contains("start Prometheus with --web.enable-remote-write-receiver"),
        "{said}"
    );
    assert!(matches!(
        send(&server, &sink, &[at(now())]),
        Outcome::Failed { .. }
    ));
}

#[test]
fn victoria_metrics_stores_what_is_sent() {
    let Some(mut server) = victoria_metrics() else {
        return;
    };
    let sink = RemoteWrite::new(&Options::default()).unwrap();
    assert_eq!(probe(&server, &sink, &[]), Ok(()));
    let second = now() / 1_000_000_000 - 60;
    assert_eq!(
        send(&server, &sink, &[at_second(second), at_second(second - 1)]),
        Outcome::DONE
    );
    server.wait("shows the samples", |server| {
        stored(server) == expected(&[second - 1, second])
    });
}

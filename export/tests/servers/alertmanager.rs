//! Alertmanager.

use std::process::Command;

use collector::event::Kind;
use export::Outcome;
use export::record::Record;
use export::sink::HttpSink as _;
use export::sink::alertmanager::{Alertmanager, Options};
use serde_json::{Value, json};

use crate::server::{Server, TempDir, free_port, is_installed, now, probe, send};
use crate::support::*;

fn alertmanager() -> Option<Server> {
    if !is_installed("prometheus-alertmanager", "prometheus-alertmanager") {
        return None;
    }
    let files = TempDir::new();
    let port = free_port();
    let config = files.path().join("alertmanager.yml");
    std::fs::write(&config, "route: {receiver: none}\nreceivers: [{name: none}]\n").unwrap();
    let mut command = Command::new("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg("--cluster.listen-address=");
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.arg(format!("--storage.path={}", files.path().join("data").display()));
    Some(Server::start(&mut command, port, files))
}

fn at(ts: u64, kind: Kind, since: u64) -> Record {
    let Record::Alert(mut one) = alert(2, kind) else {
        unreachable!()
    };
    (one.ts, one.since) = (ts, Some(since));
    Record::Alert(one)
}

/// Labels, collector and start of the alerts that are active.
fn active(server: &Server) -> Vec<Value> {
    let answer = server.json("GET", "/api/v2/alerts", "");
    answer
        .as_array()
        .unwrap()
        .iter()
        .map(|alert| json!([alert["labels"], alert["annotations"], alert["startsAt"]]))
        .collect()
}

#[test]
fn alertmanager_raises_and_resolves_an_alert() {
    let Some(server) = alertmanager() else { return };
    let labels = vec![("severity".to_owned(), "page".to_owned())];
    let sink = Alertmanager::new(&Options {
        labels,
        ..Options::default()
    })
    .unwrap();
    assert_eq!(probe(&server, &sink, &[]), Ok(()));
    // A whole millisecond: the server shows no more.
    let start = now() / 1_000_000 * 1_000_000 - 60_000_000_000;
    let labels = json!({"alertname": "deep \"queue\" \\ a=b, c] \u{1}é", "src": "10.0.0.1", "dst": "10.0.0.2",
        "sport": "1234", "dport": "80", "proto": "6", "severity": "page"});
    let annotations = json!({"collector": COLLECTOR, "id": "0000000000000002", "node": "7", "queue": "0",
        "metric": "queue_occupancy", "value": "80", "threshold": "50"});
    // Another start is the same alert, since the earlier time.
    for ts in [start, start + 1_000_000_000] {
        assert_eq!(
            send(&server, &sink, &[change(1), at(ts, Kind::RuleOn, ts)]),
            Outcome::DONE
        );
        let alerts = active(&server);
        assert_eq!(alerts.len(), 1);
        assert_eq!((&alerts[0][0], &alerts[0][1]), (&labels, &annotations));
        let shown = alerts[0][2].as_str().unwrap();
        assert_eq!(shown.len(), "2026-11-26T01:00:00.000Z".len());
        let request = batch("c", &[at(start, Kind::RuleOn, start)], |batch| {
            sink.request(batch)
        })
        .unwrap();
        let sent = String::from_utf8(request.body).unwrap();
        assert!(sent.contains(shown.trim_end_matches('Z')), "{shown} {sent}");
    }
    assert_eq!(
        send(&server, &sink, &[at(start + 2_000_000_000, Kind::RuleOff, start)]),
        Outcome::DONE
    );
    assert_eq!(active(&server), [] as [Value; 0]);
}

//! Exports of the whole program to a webhook and to Alertmanager.

use std::{fs, process::Command, time::Instant};

use serde_json::{Value, json};

use super::{
    export::{Scripted, exported, own},
    servers::{Process, free_port, get, is_installed},
};
use crate::support::{
    TempDir,
    server::{Server, TIMEOUT, report, stage},
};

#[test]
fn a_webhook_gets_what_the_store_has() {
    let hook = Scripted::start(&[]);
    let config = format!(
        "[exports.hook]\nkind = \"webhook\"\nurl = \"http://{}/in?key=1\"\nlines = true\nlinger = \"0s\"\n",
        hook.address
    );
    let server = Server::start(&config);
    server.send((0..50).map(|n| report(n, 1000 + n as u16, [1000, 2000, 3000])));
    server.settled(50);
    exported(&server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0 && view["read"] != 0
    });
    let mut ids = Vec::new();
    while let Ok((got, _)) = hook.got.try_recv() {
        assert_eq!(got.target, "/in?key=1");
        for line in String::from_utf8(got.body).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["schema"], 1);
            ids.push(record["id"].as_str().unwrap().to_owned());
        }
    }
    ids.sort_unstable();
    let stored = own(&server, "SELECT id FROM events ORDER BY id");
    assert_eq!(ids, stored.lines().collect::<Vec<_>>());
    assert!(ids.len() >= 50, "{}", ids.len());
}

#[test]
fn the_stream_of_alerts_has_rules_and_nothing_else() {
    let hook = Scripted::start(&[]);
    let server = Server::start(&format!(
        "[[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 500us\"\n\
         [exports.hook]\nkind = \"webhook\"\nurl = \"http://{}/in\"\nstreams = [\"alerts\"]\nlines = true\nlinger = \"0s\"\n",
        hook.address
    ));
    server.send([
        report(0, 5000, [1_000, 900_000, 3_000]),
        report(1, 5001, [1_000, 2_000, 3_000]),
    ]);
    server.settled(2);
    server.send([report(2, 5000, [1_000, 2_000, 3_000])]);
    server.settled(3);
    let view = exported(&server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0 && view["delivered"] == 2
    });
    let mut got = Vec::new();
    while let Ok((request, _)) = hook.got.try_recv() {
        for line in String::from_utf8(request.body).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let flow = record["flow"]["sport"].as_u64().unwrap();
            let [id, alert] = ["id", "alert"].map(|name| record[name].as_str().unwrap().to_owned());
            let [rule, state] = ["rule", "state"].map(|name| record[name].as_str().unwrap().to_owned());
            let began = own(&server, "SELECT ts FROM events WHERE kind = 'rule_on'");
            assert_eq!(
                (&record["metric"], record["since"].to_string()),
                (&json!("flow_latency"), began)
            );
            assert_eq!(
                (record["value"].as_u64() > Some(500_000), &record["threshold"]),
                (state == "firing", &json!(500_000))
            );
            got.push((id, alert, rule, state, flow));
        }
    }
    let ids = own(&server, "SELECT id FROM events WHERE rule = 'slow' ORDER BY ts");
    let ids: Vec<&str> = ids.lines().collect();
    let alert = got.first().unwrap().1.clone();
    let of = |id: &str, state: &str| {
        (
            id.to_owned(),
            alert.clone(),
            "slow".to_owned(),
            state.to_owned(),
            5000,
        )
    };
    assert_eq!(got, [of(ids[0], "firing"), of(ids[1], "resolved")]);
    // The other events are read, and accounted for.
    let events: u64 = own(&server, "SELECT count(*) FROM events").parse().unwrap();
    assert_eq!(
        (view["read"].as_u64(), view["left_out"].as_u64()),
        (Some(events), Some(events - 2))
    );
    // The stage is counted once a second.
    let start = Instant::now();
    loop {
        let status = server.json("/api/v1/status");
        let stage = stage(&status, "export");
        if (stage["in"].as_u64(), stage["out"].as_u64()) == (Some(events), Some(events)) {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "never in = out = {events}: {stage}");
        crate::support::pause();
    }
}

/// The flows and states of the alerts that came.
fn sent(hook: &Scripted) -> Vec<(u64, String)> {
    let mut sent = Vec::new();
    while let Ok((request, _)) = hook.got.try_recv() {
        for line in String::from_utf8(request.body).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            sent.push((
                record["flow"]["sport"].as_u64().unwrap(),
                record["state"].as_str().unwrap().to_owned(),
            ));
        }
    }
    sent
}

#[test]
fn a_silence_keeps_alerts_from_people_until_it_ends() {
    let hook = Scripted::start(&[]);
    let server = Server::start(&format!(
        "[[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 500us\"\n\
         [exports.hook]\nkind = \"webhook\"\nurl = \"http://{}/in\"\nstreams = [\"alerts\"]\nlines = true\nlinger = \"0s\"\n",
        hook.address
    ));
    let (slow, calm) = ([1_000, 900_000, 3_000], [1_000, 2_000, 3_000]);
    server.send([report(0, 5000, slow)]);
    exported(&server, "reported", |view| view["delivered"] == 1);
    let silence = r#"{"filter": "rule == slow", "seconds": 3600}"#;
    let silence = server.ask("POST", "/api/v1/alerts/silences", "", silence).json();
    // One that lasts, one that is over; and the end of what was reported.
    server.send([
        report(1, 5001, slow),
        report(2, 5002, slow),
        report(3, 5002, calm),
        report(4, 5000, calm),
    ]);
    server.settled(5);
    exported(&server, "silenced", |view| {
        view["silenced"] == 3 && view["delivered"] == 2 && view["waiting"] == 0
    });
    assert_eq!(
        sent(&hook),
        [(5000, "firing".to_owned()), (5000, "resolved".to_owned())]
    );
    let path = format!("/api/v1/alerts/silences/{}", silence["id"]);
    assert_eq!(server.ask("DELETE", &path, "", "").status, 200);
    exported(&server, "reported when the silence ends", |view| {
        view["delivered"] == 3
    });
    server.send([report(5, 5001, calm)]);
    exported(&server, "reported as resolved", |view| view["delivered"] == 4);
    assert_eq!(
        sent(&hook),
        [(5001, "firing".to_owned()), (5001, "resolved".to_owned())]
    );
    let again = server.json("/api/v1/alerts");
    let one = again["alerts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["flow"]["sport"] == 5001)
        .unwrap();
    assert_eq!(
        (&one["count"], &one["state"]),
        (&json!(1), &json!("resolved")),
        "it began once: {one}"
    );
}

/// The alerts that Alertmanager has, by name and state, once `done` accepts them.
fn alerts(port: u16, what: &str, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let all: Vec<Value> = serde_json::from_str(&get(port, "/api/v2/alerts")).unwrap();
        if done(&all) {
            return all;
        }
        assert!(start.elapsed() < TIMEOUT, "never {what}: {all:#?}");
        crate::support::pause();
    }
}

#[test]
fn alertmanager_has_the_alerts_of_rules_while_they_are_true() {
    if !is_installed("exports to Alertmanager", "prometheus-alertmanager") {
        return;
    }
    let (directory, port) = (TempDir::new(), free_port());
    let file = |name: &str| directory.join(name).display().to_string();
    fs::write(
        file("alertmanager.yml"),
        "route: {receiver: none}\nreceivers: [{name: none}]\n",
    )
    .unwrap();
    let mut command = Command::new("prometheus-alertmanager");
    command
        .arg(format!("--config.file={}", file("alertmanager.yml")))
        .arg("--cluster.listen-address=");
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.arg(format!("--storage.path={}", file("data")));
    let _process = Process::start(&mut command, &directory, port);
    let server = Server::start(&format!(
        "[[rules]]\nname = \"slow\"\nwhen = \"flow_latency > 500us\"\n\
         [exports.pager]\nkind = \"alertmanager\"\nurl = \"http://127.0.0.1:{port}\"\nlinger = \"0s\"\n\
         [exports.pager.labels]\nseverity = \"page\"\n"
    ));
    server.send([report(0, 5000, [1_000, 900_000, 3_000])]);
    let raised = alerts(port, "raised", |all| !all.is_empty());
    let labels = serde_json::json!({"alertname": "slow", "severity": "page", "src": "10.0.0.1", "dst": "10.0.0.2",
        "sport": "5000", "dport": "80", "proto": "17"});
    assert_eq!(
        raised.iter().map(|alert| &alert["labels"]).collect::<Vec<_>>(),
        [&labels]
    );
    server.send([report(1, 5000, [1_000, 2_000, 3_000])]);
    alerts(port, "resolved", <[Value]>::is_empty);
    // The events of paths and values are not for it.
    let view = exported(&server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0
    });
    assert_eq!(view["delivered"], 2);
    assert!(view["left_out"].as_u64() >= Some(1), "{view}");
}

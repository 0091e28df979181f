//! The stream `hops` of the whole program.

use std::{collections::BTreeMap, fs, time::Instant};

use serde_json::Value;

use super::export::{Act, Scripted, exported};
use crate::support::server::{Server, TIMEOUT, assert_balanced, report, stage};

fn config(hook: &Scripted, more: &str) -> String {
    format!(
        "[exports.hook]\nkind = \"webhook\"\nurl = \"http://{}/in\"\nstreams = [\"hops\"]\nlines = true\nlinger = \"0s\"\n{more}",
        hook.address
    )
}

/// The hops that came, by report, once there are so many.
fn hops(hook: &Scripted, count: usize) -> BTreeMap<String, Vec<Value>> {
    let (mut by_report, mut ids): (BTreeMap<String, Vec<Value>>, Vec<String>) = Default::default();
    while ids.len() < count {
        let (got, act) = hook.got.recv_timeout(TIMEOUT).unwrap();
        if act != Act::Accept {
            continue;
        }
        for line in String::from_utf8(got.body).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            ids.push(record["id"].as_str().unwrap().to_owned());
            by_report
                .entry(record["report"].as_str().unwrap().to_owned())
                .or_default()
                .push(record);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each once");
    by_report
}

/// Waits until the stage of the loss budget has these counts.
fn counted(server: &Server, expected: [u64; 2]) {
    let start = Instant::now();
    loop {
        let status = server.json("/api/v1/status");
        assert_balanced(&status);
        let stage = stage(&status, "export");
        if ["in", "out"].map(|name| stage[name].as_u64().unwrap()) == expected {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "never {expected:?}: {stage}");
        crate::support::pause();
    }
}

#[test]
fn each_hop_of_a_report_is_a_record() {
    let hook = Scripted::start(&[]);
    let server = Server::start(&config(&hook, "sample = 1\n"));
    server.send((0..20).map(|n| report(n, 1000 + n as u16, [1000 + n, 2000, 3000])));
    server.settled(20);
    let reports = hops(&hook, 60);
    assert_eq!(reports.len(), 20);
    for hops in reports.values() {
        let sport = hops[0]["flow"]["sport"].as_u64().unwrap();
        for (number, hop) in hops.iter().enumerate() {
            let latency = [sport, 2000, 3000][number];
            let expected = [
                number as u64,
                3,
                101 + number as u64,
                1,
                2,
                3,
                latency,
                latency / 1000,
                sport,
            ];
            let names = [
                "hop",
                "hops",
                "node",
                "ingress_if",
                "egress_if",
                "queue",
                "hop_latency",
                "queue_occupancy",
            ];
            let mut found = names.map(|name| hop[name].as_u64().unwrap()).to_vec();
            found.push(hop["flow"]["sport"].as_u64().unwrap());
            assert_eq!(found, expected);
            assert_eq!(hop["ts"], hops[0]["ts"]);
        }
    }
    counted(&server, [60, 60]);
    let view = exported(&server, "settled", |view| {
        view["waiting"] == 0 && view["held"] == 0
    });
    let counts = ["read", "delivered", "shed", "expired"].map(|name| view[name].as_u64().unwrap());
    assert_eq!((counts, &view["stream"]), ([60, 60, 0, 0], &Value::from("hops")));
}

#[test]
fn hops_that_wait_survive_a_stop() {
    let hook = Scripted::start(&[Act::Status(503); 100]);
    let config = config(&hook, "sample = 1\n");
    let server = Server::start(&config);
    server.send((0..20).map(|n| report(n, 1000 + n as u16, [1000 + n, 2000, 3000])));
    server.settled(20);
    exported(&server, "failing", |view| {
        view["last_error"].is_string() && view["waiting"] == 60
    });
    let (status, directory) = server.stop();
    assert!(status.success(), "{status}");
    let other = Scripted::start(&[]);
    let config = config.replace(&hook.address.to_string(), &other.address.to_string());
    let server = Server::start_in(directory, &config);
    assert_eq!(hops(&other, 60).len(), 20);
    counted(&server, [60, 60]);
    // Nothing is left of it.
    let start = Instant::now();
    loop {
        let spool = server.path("store/export/hook.hops.spool");
        if fs::read_dir(&spool).unwrap().count() == 0 {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{}", spool.display());
        crate::support::pause();
    }
}

#[test]
fn only_reports_with_an_event_are_sent_where_that_is_asked() {
    let hook = Scripted::start(&[]);
    let server = Server::start(&config(&hook, "hop_reports = \"events\"\n"));
    // A new flow, nothing new, and a change of a latency.
    for (number, latencies) in [[1000, 2000, 3000], [1000, 2000, 3000], [1000, 90_000_000, 3000]]
        .into_iter()
        .enumerate()
    {
        server.send([report(number as u32, 1000, latencies)]);
        server.settled(number as u64 + 1);
    }
    let reports = hops(&hook, 6);
    let mut latencies: Vec<u64> = reports
        .values()
        .map(|hops| hops[1]["hop_latency"].as_u64().unwrap())
        .collect();
    latencies.sort_unstable();
    assert_eq!(latencies, [2000, 90_000_000]);
    counted(&server, [6, 6]);
}

#[test]
fn hops_that_fit_nowhere_at_a_stop_are_counted_and_logged() {
    let hook = Scripted::start(&[Act::Status(503); 100]);
    let server = Server::start(&config(
        &hook,
        "sample = 1\nspool = \"1000 B\"\nwhen_full = \"drop_newest\"\n",
    ));
    server.send((0..20).map(|n| report(n, 1000 + n as u16, [1000 + n, 2000, 3000])));
    server.settled(20);
    exported(&server, "failing", |view| {
        view["last_error"].is_string() && view["waiting"] == 60
    });
    server.signal("-TERM");
    let line = server.log_line("hops were lost");
    assert!(line.contains("hops=60") && line.contains("hook"), "{line}");
}

//! Questions about another time than now: of a store whose past is known, by a program that was started after it.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use collector::event::Basis;
use collector::{Batch, Event, FlowRow, Kind, Output as _, Rollup};
use detect::Metric;
use serde_json::{Value, json};
use store::{Config, Store};
use wire::FlowKey;

use crate::support::{
    TempDir, hopwise, schema,
    server::{Server, report},
    skipped,
};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// 2026-11-21 14:00:00 UTC.
const START: u64 = 1_795_269_600 * SECOND;

fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

fn flow(number: u8) -> FlowKey {
    FlowKey::v4([10, 0, 0, number], [10, 0, 1, number], Some((5000, 80)), 17)
}

fn bare(ts: u64, kind: Kind, metric: Metric) -> Event {
    Event {
        ts,
        id: ts,
        kind,
        metric: Some(metric),
        flow: None,
        node: None,
        interface: None,
        queue: None,
        value: None,
        previous: None,
        threshold: None,
        rule: None,
        reason: None,
        basis: Basis::Measured,
    }
}

fn rollup(metric: Metric, ts: u64, (count, min, max): (u64, u64, u64)) -> Rollup {
    Rollup {
        ts,
        interval: 60,
        metric,
        flow: None,
        node: None,
        interface: None,
        queue: None,
        count,
        min,
        max,
        sum: count * (min + max) / 2,
        p50: None,
        p99: None,
    }
}

/// Two flows. The first one is there from 14:00 to 14:30 and takes another path at 14:20; the second one from 14:05 to 14:07. Node 2 was
/// slow at 14:06.
fn past(directory: &TempDir) {
    let store = Store::open(Config::new(directory.join("store"))).unwrap();
    let mut batch = Batch::with_capacity(4096);
    let path = |number, ts, kind| Event {
        flow: Some(flow(number)),
        value: Some(3),
        ..bare(ts, kind, Metric::FlowPath)
    };
    batch.event(&path(1, at(0), Kind::New), &[1, 2, 3]);
    for (node, latency) in [(1, 100), (2, 200), (3, 300)] {
        let value = Event {
            node: Some(node),
            value: Some(latency),
            ..path(1, at(0), Kind::New)
        };
        batch.event(
            &Event {
                metric: Some(Metric::HopLatency),
                ..value
            },
            &[],
        );
    }
    batch.event(&path(2, at(5), Kind::New), &[1, 4, 3]);
    let slow = Event {
        node: Some(2),
        value: Some(9_000),
        ..path(1, at(6) + SECOND, Kind::Change)
    };
    batch.event(
        &Event {
            metric: Some(Metric::HopLatency),
            ..slow
        },
        &[],
    );
    batch.event(&path(1, at(20), Kind::PathChange), &[1, 4, 3]);
    for minute in 0..30 {
        let of_flow = |number| Some(flow(number));
        let latency = rollup(Metric::FlowLatency, at(minute), (60, 500, 1_500));
        batch.rollup(&Rollup {
            flow: of_flow(1),
            ..latency
        });
        if (5..7).contains(&minute) {
            let latency = rollup(Metric::FlowLatency, at(minute), (10, 4_000, 4_000));
            batch.rollup(&Rollup {
                flow: of_flow(2),
                ..latency
            });
        }
        for node in 1..4 {
            let worst = if node == 2 && minute == 6 { 9_000 } else { 400 };
            let one = rollup(Metric::HopLatency, at(minute), (60, 100, worst));
            batch.rollup(&Rollup {
                node: Some(node),
                ..one
            });
        }
        let queue = rollup(Metric::QueueOccupancy, at(minute), (60, 0, 40));
        batch.rollup(&Rollup {
            node: Some(2),
            queue: Some(5),
            ..queue
        });
    }
    let row = |number, path: &[u32], last_seen, batch: &mut Batch| {
        let (flow, first_seen) = (flow(number), START);
        let row = FlowRow {
            flow,
            flow_latency: Some(7),
            basis: Basis::HopSum,
            first_seen,
            last_seen,
            reports: 1,
        };
        batch.flow(&row, path);
    };
    row(1, &[1, 4, 3], at(29), &mut batch);
    row(2, &[1, 4, 3], at(6), &mut batch);
    store.submit(batch);
    store.close();
}

fn started() -> Server {
    let directory = TempDir::new();
    past(&directory);
    Server::start_in(directory, "store.max_age = \"3650d\"\n")
}

fn between(from: u64, to: u64) -> String {
    format!("from={}&to={}", at(from), at(to))
}

fn view(number: u8, path: [u32; 3], counted: (u64, Value), seen: [u64; 2]) -> Value {
    let (reports, latencies) = counted;
    let key = flow(number);
    json!({
        "id": format!("{:016x}", key.id()),
        "flow": {"src": key.src().to_string(), "dst": key.dst().to_string(), "sport": 5000, "dport": 80, "proto": 17},
        "text": key.to_string(),
        "path": path,
        "flow_latency": latencies["max"],
        "latencies": latencies,
        "basis": "hop_sum",
        "path_length": 3,
        "truncated": false,
        "reports": reports,
        "first_seen": at(seen[0]),
        "last_seen": at(seen[1]),
    })
}

#[test]
fn a_flow_that_has_expired_is_found_in_its_time() {
    let server = started();
    let range = json!({"from": at(4), "to": at(9), "truncated": false});
    let long = view(
        1,
        [1, 2, 3],
        (300, json!({"min": 500, "max": 1500, "mean": 1000})),
        [4, 9],
    );
    let short = view(
        2,
        [1, 4, 3],
        (20, json!({"min": 4000, "max": 4000, "mean": 4000})),
        [5, 7],
    );
    let asked = |more: &str| server.json(&format!("/api/v1/flows?{}{more}", between(4, 9)));
    let expected = |flows: Value, total: u64, next: Value| json!({"flows": flows, "total": total, "as_of": at(9), "next": next, "range": range});
    assert_eq!(
        asked("&sort=latency"),
        expected(json!([short, long]), 2, Value::Null)
    );
    assert_eq!(
        asked("&sort=reports"),
        expected(json!([long, short]), 2, Value::Null)
    );
    assert_eq!(
        asked("&filter=10.0.1.2"),
        expected(json!([short]), 1, Value::Null)
    );
    // By what the flows were then: path, latency, reports.
    for filter in [
        "path%20~%201%3E4",
        "flow_latency%20%3E%203us",
        "reports%20%3C%2050%20and%20dst%20in%2010.0.1.0/24",
    ] {
        assert_eq!(
            asked(&format!("&filter={filter}")),
            expected(json!([short]), 1, Value::Null),
            "{filter}"
        );
    }
    // Page by page.
    let first = asked("&sort=latency&limit=1");
    let next = first["next"].as_str().unwrap();
    assert_eq!(first, expected(json!([short]), 2, json!(next)));
    assert_eq!(
        asked(&format!("&sort=latency&limit=1&after={next}")),
        expected(json!([long]), 2, Value::Null)
    );
    // Later it took another path, and the other flow was gone.
    let later = server.json(&format!("/api/v1/flows?{}", between(22, 25)));
    assert_eq!(
        (&later["total"], &later["flows"][0]["path"]),
        (&json!(1), &json!([1, 4, 3]))
    );
    // Now there is none.
    assert_eq!(server.json("/api/v1/flows")["total"], json!(0));
}

#[test]
fn one_flow_is_shown_as_it_was_hop_by_hop() {
    let server = started();
    let name = "10.0.0.1:5000%3E10.0.1.1:80%2F17";
    let latencies = |at: &str| -> Vec<Value> {
        let answer = server.json(&format!("/api/v1/flows/{name}?{at}"));
        answer["hops"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hop| json!([hop["node"], hop["hop_latency"]]))
            .collect()
    };
    assert_eq!(
        latencies(&between(2, 4)),
        [json!([1, 100]), json!([2, 200]), json!([3, 300])]
    );
    assert_eq!(
        latencies(&between(5, 9)),
        [json!([1, 100]), json!([2, 9000]), json!([3, 300])]
    );
    assert_eq!(
        latencies(&between(24, 26)),
        [json!([1, 100]), json!([4, null]), json!([3, 300])]
    );
    let id = format!("{:016x}", flow(2).id());
    let found = server.json(&format!("/api/v1/flows/{id}?{}", between(0, 30)));
    assert_eq!(found["text"], json!(flow(2).to_string()));
    let gone = server.get(&format!("/api/v1/flows/{id}?{}", between(12, 30)));
    let words = format!(
        "there were no reports of flow {id} with a latency in this time; choose another flow or time"
    );
    assert_eq!((gone.status, gone.json()), (404, json!({"error": words})));
}

#[test]
fn nodes_links_and_paths_are_those_of_the_time() {
    let server = started();
    let range = |from, to| json!({"from": at(from), "to": at(to), "truncated": false});
    let node = |id: u32, (minutes, worst): (u64, u64), last: u64, queues: Value| {
        let spread = json!({"latest": null, "min": 100, "max": worst, "p50": null, "p99": null});
        json!({"node": id, "name": null, "reports": 60 * minutes, "last_seen": at(last), "hop_latency": spread,
               "queues": queues, "drops": 0, "implausible_latencies": 0})
    };
    let queue = json!([{"queue": 5, "interface": null, "occupancy": 20, "max": 40, "unit": "bytes"}]);
    let nodes = json!([
        node(1, (5, 400), 9, json!([])),
        node(2, (5, 9_000), 9, queue),
        node(3, (5, 400), 9, json!([]))
    ]);
    let asked = |what: &str, from, to| server.json(&format!("/api/v1/{what}?{}", between(from, to)));
    assert_eq!(
        asked("nodes", 4, 9),
        json!({"nodes": nodes, "next": null, "range": range(4, 9)})
    );
    let worst = |from, to| asked("nodes", from, to)["nodes"][1]["hop_latency"]["max"].clone();
    assert_eq!(
        [worst(7, 9), worst(6, 7), worst(0, 30)],
        [json!(400), json!(9_000), json!(9_000)]
    );
    let path =
        |path: [u32; 3], flows: u64, reports: u64| json!({"path": path, "flows": flows, "reports": reports});
    let both = json!([path([1, 2, 3], 1, 300), path([1, 4, 3], 1, 20)]);
    assert_eq!(
        asked("paths", 4, 9),
        json!({"paths": both, "next": null, "range": range(4, 9)})
    );
    let link = |from: u32, to: u32, last: u64| {
        json!({"from": from, "to": to, "egress_if": null, "ingress_if": null, "utilization": null,
               "queue_occupancy": null, "hop_latency": null, "flows": 1, "last_seen": at(last)})
    };
    let links = json!([link(1, 2, 9), link(1, 4, 7), link(2, 3, 9), link(4, 3, 7)]);
    assert_eq!(
        asked("links", 4, 9),
        json!({"links": links, "next": null, "range": range(4, 9)})
    );
}

#[test]
fn a_change_of_a_path_says_the_path_before_and_after_and_how_often_each_was_used() {
    let server = started();
    let name = flow(1).to_string().replace('>', "%3E").replace('/', "%2F");
    let asked = |what: &str| server.json(&format!("/api/v1/{what}{}", between(10, 30)));
    let changes = asked("paths/changes?");
    let [change] = &changes["changes"].as_array().unwrap()[..] else {
        panic!("{changes}")
    };
    assert_eq!(
        (&change["text"], &change["ts"]),
        (&json!(flow(1).to_string()), &json!(at(20)))
    );
    assert_eq!(
        (&change["before"], &change["after"]),
        (&json!([1, 2, 3]), &json!([1, 4, 3]))
    );
    let group = json!({"before": [1, 2, 3], "after": [1, 4, 3], "flows": 1, "changes": 1, "first": at(20), "last": at(20)});
    assert_eq!(
        (&changes["groups"], &changes["total"]),
        (&json!([group]), &json!(1))
    );
    assert_eq!(changes["group_total"], json!(1));
    assert_eq!(asked(&format!("paths/changes?flow={name}&"))["total"], json!(1));
    assert_eq!(asked("paths/changes?src=10.0.0.2&")["total"], json!(0));

    let uses = asked(&format!("paths/uses?flow={name}&"));
    let used = |path: [u32; 3], from: u64, to: u64| json!({"path": path, "flows": 1, "reports": 600, "time": 10 * MINUTE, "share": 0.5, "first": at(from), "last": at(to)});
    assert_eq!(
        uses["forward"]["paths"],
        json!([used([1, 2, 3], 10, 20), used([1, 4, 3], 20, 30)])
    );
    assert_eq!(
        (&uses["forward"]["unknown"], &uses["reverse"]["paths"]),
        (&Value::Null, &json!([]))
    );
    let reversed = "10.0.1.1:80>10.0.0.1:5000/17";
    assert_eq!(uses["reverse"]["flow"], json!(reversed));
    assert!(
        uses["reverse"]["unknown"]
            .as_str()
            .unwrap()
            .starts_with("the opposite direction is not measured")
    );
    let hosts = asked("paths/uses?src=10.0.0.1&dst=10.0.1.1&");
    assert_eq!(hosts["forward"]["paths"], uses["forward"]["paths"]);
    let all = asked("paths/uses?");
    assert_eq!(
        (&all["reverse"], &all["forward"]["flows"]),
        (&Value::Null, &json!(1))
    );

    // No value was stored for three intervals, so the flow was silent. The other nodes' latencies are those of its beginning.
    let latencies = server.json(&format!(
        "/api/v1/flows/{name}/latencies?columns=2&{}",
        between(6, 12)
    ));
    let [first, hop, last] = &latencies["hops"].as_array().unwrap()[..] else {
        panic!("{latencies}")
    };
    assert_eq!(
        [&first["node"], &first["p50"], &last["node"], &last["p50"]],
        [&json!(1), &json!(100), &json!(3), &json!(300)]
    );
    assert_eq!(
        (&hop["node"], &hop["p50"], &hop["values"]),
        (&json!(2), &json!(9_000), &json!(1))
    );
    assert_eq!(
        (&hop["means"], &hop["time"]),
        (&json!([9_000, null]), &json!(3 * SECOND))
    );
    let losses = asked("losses?");
    assert_eq!(
        (&losses["drops"], &losses["counted"]),
        (&json!([]), &json!(false))
    );
    let links = losses["links"].as_array().unwrap();
    assert_eq!(links.len(), 4, "{losses}");
    assert!(links.iter().all(|link| {
        link["unknown"]
            .as_str()
            .unwrap()
            .contains("[store] reports = true")
    }));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn traffic_is_stacked_by_what_is_chosen() {
    let server = started();
    let ask = |more: &str| server.json(&format!("/api/v1/traffic?{}&{more}", between(4, 9)));
    let rows = |answer: &Value| -> Vec<Value> {
        let rows = answer["groups"].as_array().unwrap().iter();
        rows.map(|row| json!([row["key"], row["filters"], row["count"], row["values"]]))
            .collect()
    };
    let long = [60; 5];
    let short = [0, 10, 10, 0, 0];
    let by_source = ask("by=src");
    let expected = [
        json!([["10.0.0.1"], ["src == 10.0.0.1"], 300, long]),
        json!([["10.0.0.2"], ["src == 10.0.0.2"], 20, short]),
    ];
    assert_eq!(rows(&by_source), expected);
    assert_eq!(
        (&by_source["column"], &by_source["known_to"]),
        (&json!(MINUTE), &json!(at(9)))
    );
    assert_eq!(by_source["total"]["values"], json!([60, 70, 70, 60, 60]));
    assert_eq!(
        (&by_source["overlapping"], &by_source["truncated"]),
        (&json!(false), &json!(false))
    );
    // The greatest, and the others.
    let first = ask("by=src&top=1");
    assert_eq!((rows(&first).len(), &first["other_groups"]), (1, &json!(1)));
    assert_eq!(
        (&first["others"]["values"], &first["others"]["count"]),
        (&json!(short), &json!(20))
    );
    // Two dimensions, of which nodes overlap.
    let both = ask("by=src,node");
    let of = |source: &str, node: &str| {
        let is_it = |row: &&Value| row["key"] == json!([source, node]);
        both["groups"]
            .as_array()
            .unwrap()
            .iter()
            .find(is_it)
            .map(|row| row["count"].clone())
    };
    let nodes = ["1", "2", "3", "4"];
    assert_eq!(
        nodes.map(|node| of("10.0.0.1", node)),
        [Some(json!(300)), Some(json!(300)), Some(json!(300)), None]
    );
    assert_eq!(
        (&both["overlapping"], &both["total"]["count"]),
        (&json!(true), &json!(320))
    );
    // What a group's filter selects is the group.
    let link = ask("by=link&filter=path%20~%201%3E4");
    let found: Vec<&Value> = link["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["key"][0])
        .collect();
    assert_eq!(
        (found, &link["total"]["count"]),
        (vec![&json!("1>4"), &json!("4>3")], &json!(20))
    );
    // By what a flow was in the whole time.
    assert_eq!(
        ask("by=src&filter=reports%20%3C%2050")["total"]["count"],
        json!(20)
    );
    // A path change in the middle of the time.
    let paths = server.json(&format!("/api/v1/traffic?by=path&{}", between(18, 23)));
    let found = rows(&paths);
    assert_eq!(
        found[0],
        json!([["1>4>3"], ["path ~ 1>4>3 and hops == 3"], 180, [0, 0, 60, 60, 60]])
    );
    assert_eq!(
        found[1],
        json!([["1>2>3"], ["path ~ 1>2>3 and hops == 3"], 120, [60, 60, 0, 0, 0]])
    );
    let latency = ask("by=proto&measure=flow_latency");
    let row = &latency["groups"][0];
    let mean = (60 * 1_000 + 10 * 4_000) / 70;
    assert_eq!(
        (&row["key"], &row["max"], &row["values"]),
        (
            &json!(["udp"]),
            &json!(4_000),
            &json!([1_000, mean, mean, 1_000, 1_000])
        )
    );
    let queue = ask("by=queue&measure=queue_occupancy");
    assert_eq!(
        rows(&queue),
        [json!([
            ["2.5"],
            ["node == 2 and queue == 5"],
            300,
            [20, 20, 20, 20, 20]
        ])]
    );
    let events = ask("by=kind&measure=events&columns=6");
    assert_eq!(
        rows(&events).iter().map(|row| row[0].clone()).collect::<Vec<_>>(),
        [json!(["change"]), json!(["new"])]
    );
    assert_eq!(events["total"]["count"], json!(2));
    // Where nothing was stored there is a gap; what reports do not have is said.
    let late = server.json(&format!("/api/v1/traffic?by=queue&{}", between(28, 32)));
    assert_eq!(late["total"]["values"], json!([60, 60, null, null]));
    assert_eq!(
        (&late["lacks"], &late["groups"][0]["key"]),
        (&json!(["queue"]), &json!([null]))
    );
}

#[test]
fn top_shows_another_time_and_leads_from_nodes_to_flows_to_hops() {
    let server = started();
    let (from, to) = (at(4).to_string(), at(9).to_string());
    let url = format!("http://{}", server.api);
    let ask = |more: &[&str]| {
        let args = ["top", "--once", "--api", &url, "--from", &from, "--to", &to];
        hopwise(args.iter().chain(more).copied())
    };
    let flows = ask(&[]).stdout;
    let time = "2026-11-21 14:04 to 2026-11-21 14:09 UTC, from the store";
    assert!(flows.contains(time), "{flows}");
    let rows: Vec<&str> = flows.lines().filter(|line| line.contains('>')).collect();
    assert!(
        rows.len() == 2 && rows[0].contains("4.00 us") && rows[1].contains("1>2>3"),
        "{flows}"
    );
    let one = ask(&["--filter", "node == 4"]).stdout;
    assert!(
        one.contains("10.0.0.2:5000") && !one.contains("10.0.0.1:5000"),
        "{one}"
    );
    // Written as people do, and times that make no sense.
    let written = hopwise([
        "top",
        "--once",
        "--api",
        &url,
        "--from",
        "2026-11-21T14:04Z",
        "--to",
        "2026-11-21T14:09Z",
    ]);
    assert_eq!(written.stdout, flows);
    let json = ask(&["--json"]).json().remove(0);
    assert_eq!(
        (
            &json["flows"]["range"]["from"],
            &json["nodes"]["nodes"][1]["hop_latency"]["max"]
        ),
        (&json!(at(4)), &json!(9_000))
    );
    let wrong = hopwise(["top", "--once", "--api", &url, "--from", &to, "--to", &from]);
    assert!(
        wrong.code != Some(0) && wrong.stderr.contains("--from must be before --to"),
        "{wrong:?}"
    );

    if Command::new("script").arg("--version").output().is_err() {
        return skipped("the keys of `hopwise top`: script is not installed (bsdutils)");
    }
    let program = env!("CARGO_BIN_EXE_hopwise");
    let shell = format!("{program} top --api {url} --from {from} --to {to} --sort rate");
    let mut child = Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("TERM", "xterm")
        .env("COLUMNS", "140")
        .env("LINES", "40")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The terminal has its mode once the screen is there.
    let (mut output, mut shown) = (child.stdout.take().unwrap(), Vec::new());
    while !shown.ends_with(b"\x1b[?1049h") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
    // Nodes, the second of them, its flows, the first of these; back, the time before, and the end.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"n\x1b[B\r\r\x7f[q")
        .unwrap();
    output.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    let shown = String::from_utf8_lossy(&shown).into_owned();
    for part in [
        "filter: node == 2",
        "HOP  NODE",
        "greatest latency 1.50 us",
        "events, latest first",
        "2026-11-21 13:59 to 2026-11-21 14:04 UTC",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
}

#[test]
fn activity_has_gaps_where_nothing_was_received() {
    let server = started();
    let answer = server.json(&format!("/api/v1/activity?{}&columns=10", between(20, 40)));
    let point =
        |minute: u64, events: u64| json!({"ts": at(minute), "reports": 120, "events": events, "lost": 0});
    let points = json!([
        point(20, 1),
        point(22, 0),
        point(24, 0),
        point(26, 0),
        point(28, 0)
    ]);
    let expected = json!({"from": at(20), "to": at(40), "column": 2 * MINUTE, "reports_to": at(40), "events_to": at(40),
        "points": points, "kinds": {"path_change": 1}});
    // Short parts are made of events themselves, minutes of counts.
    let short = server.json(&format!("/api/v1/activity?{}&columns=1000", between(20, 21)));
    assert_eq!(short["column"], json!(SECOND));
    let sum = |name: &str| {
        short["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!([sum("reports"), sum("events")], [60, 1]);
    assert_eq!(answer, expected);
    let events = server.json(&format!("/api/v1/events?from={}&to={}", at(6), at(20) - 1));
    let seen: Vec<&Value> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["ts"])
        .collect();
    assert_eq!(seen, [&json!(at(6) + SECOND)]);
}

#[test]
fn sums_of_traffic_are_as_the_document_says() {
    let server = started();
    let document = server.json("/api/v1/openapi.json");
    let schema = &document["paths"]["/api/v1/traffic"]["get"]["responses"]["200"]["content"]["application/json"]
        ["schema"];
    for asked in [
        "by=src,dport,path",
        "by=queue&measure=events",
        "by=queue&measure=queue_occupancy&columns=1",
        "top=1",
    ] {
        let asked = format!("/api/v1/traffic?{asked}&{}", between(4, 9));
        schema::check(&document, schema, &server.json(&asked), &asked);
    }
}

#[test]
fn answers_about_a_time_are_as_the_document_says_and_odd_times_are_no_fault() {
    let server = started();
    server.send([report(0, 1, [1, 2, 3])]);
    let document = server.json("/api/v1/openapi.json");
    let check = |path: &str, asked: &str| {
        let schema =
            &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        schema::check(&document, schema, &server.json(asked), asked);
    };
    let most = "2262-01-01";
    let spans = [
        between(4, 9),
        format!("from={most}"),
        "to=0".to_owned(),
        format!("from=0&to={most}"),
    ];
    for span in spans.iter().chain([&between(9, 4)]) {
        for name in [
            "flows",
            "nodes",
            "links",
            "paths",
            "paths/changes",
            "paths/uses",
            "losses",
            "activity",
            "events",
            "traffic",
        ] {
            check(&format!("/api/v1/{name}"), &format!("/api/v1/{name}?{span}"));
        }
    }
    check(
        "/api/v1/flows/{id}",
        &format!("/api/v1/flows/10.0.0.1:5000%3E10.0.1.1:80%2F17?{}", between(4, 9)),
    );
    check(
        "/api/v1/flows/{id}/latencies",
        &format!(
            "/api/v1/flows/10.0.0.1:5000%3E10.0.1.1:80%2F17/latencies?{}",
            between(4, 9)
        ),
    );
    // Without its end, the span ends with each page's own now.
    for asked in [
        "flows?from=2026-11-21&after=1-1",
        "nodes?from=2026-11-21&after=1",
        "links?from=2026-11-21&offset=1",
        "paths?from=2026-11-21&offset=1",
    ] {
        for to in ["", "&to=2026-11-22"] {
            assert_eq!(
                server.get(&format!("/api/v1/{asked}{to}")).status,
                200,
                "{asked}{to}"
            );
        }
    }
    let strange = [
        "flows?from=soon",
        "nodes?to=-1",
        "activity?columns=0",
        "flows?from=2026-11-21&from=2026-11-22",
        "flows?from=1764453600",
        "losses?to=20261129",
        "traffic?by=colour",
        "traffic?by=src,dst,node,path",
        "traffic?by=",
        "traffic?measure=bytes",
        "traffic?filter=kind%20%3D%3D%20drop",
    ];
    for wrong in strange {
        assert_eq!(server.get(&format!("/api/v1/{wrong}")).status, 400, "{wrong}");
    }
    let refused = server.get("/api/v1/flows/nonsense?from=2026-11-21");
    assert_eq!(refused.status, 400, "{refused:?}");
}

//! Traffic, paths and their changes, asked of a collector's store and of a console over ClickHouse, to which a pair of collectors has exported
//! the same.

use std::time::{SystemTime, UNIX_EPOCH};

use collector::{Batch, Event, FlowRow, Kind, Output as _, Rollup, event::Basis};
use detect::Metric;
use serde_json::Value;
use testkit::{
    records::{bare, flow},
    rng::Rng,
};
use wire::FlowKey;

use super::{
    console::{SECRET, console, drain, keep, of_store, password, prepare},
    console_filters::{MINUTE, OF_EVENTS, SECOND, TESTS, escaped, event, flows, rollup},
    export::ClickHouse,
};
use crate::support::{TempDir, hopwise, server::Server};

const MINUTES: u64 = 150;
const EVENTS: u64 = 3_000;
/// How much earlier the other collector of the pair observes the same, ns.
const SKEW: u64 = 3_000_000;
const PATHS: [&[u32]; 4] = [
    &[101, 102, 103],
    &[101, 104, 103],
    &[101, 105, u32::MAX, 103],
    &[102, 103],
];

/// Those of the filters, and more than the store reads minute by minute.
fn all_flows() -> Vec<FlowKey> {
    let plain = |n: u8| {
        FlowKey::v4(
            [10, 9, n % 4, n],
            [10, 9, 200, 1],
            Some((2000 + u16::from(n), 443)),
            17,
        )
    };
    flows().into_iter().chain((0..70).map(plain)).collect()
}

/// The first path of a flow, and changes of it, as `(minute, path)`.
fn changes(number: usize, rng: &mut Rng) -> Vec<(u64, &'static [u32])> {
    let mut taken = vec![(0, PATHS[number % PATHS.len()])];
    for _ in 0..rng.below(6) {
        taken.push((
            1 + rng.below(MINUTES as usize - 1) as u64,
            PATHS[rng.below(PATHS.len())],
        ));
    }
    taken.sort_unstable();
    taken.dedup_by_key(|(minute, _)| *minute);
    taken
}

fn path_events(rng: &mut Rng, begin: u64, skew: u64) -> Vec<(Event, Vec<u32>)> {
    let mut events = Vec::new();
    for (number, flow) in all_flows().into_iter().enumerate() {
        for (at, (minute, path)) in changes(number, rng).into_iter().enumerate() {
            let ts = begin + minute * MINUTE + number as u64 * 100_000_000 + SECOND;
            let kind = match at {
                0 => Kind::New,
                _ if rng.below(5) == 0 => Kind::PathLoop,
                _ => Kind::PathChange,
            };
            let (metric, flow) = (Some(Metric::FlowPath), Some(flow));
            events.push((
                Event {
                    kind,
                    metric,
                    flow,
                    id: rng.roll(),
                    ..bare(ts - skew)
                },
                path.to_vec(),
            ));
        }
    }
    events.sort_by_key(|(event, _)| event.ts);
    events
}

/// Rollups of a minute. The other collector of the pair has heard less.
fn fill_minute(rng: &mut Rng, batch: &mut Batch, (ts, minute): (u64, u64), is_other: bool) {
    let mut add = |rollup: Rollup| {
        let count = if is_other {
            rollup.count.div_ceil(2)
        } else {
            rollup.count
        };
        batch.rollup(&Rollup { count, ..rollup });
    };
    for (number, flow) in all_flows().into_iter().enumerate() {
        let found = rollup(rng, ts, Metric::FlowLatency);
        // Some are silent for a while, and of some no latency is known.
        if (number as u64 + minute).is_multiple_of(4) {
            continue;
        }
        let nothing = (number as u64 + minute).is_multiple_of(7);
        let (min, max, sum) = if nothing {
            (u64::MAX, 0, 0)
        } else {
            (found.min, found.max, found.sum)
        };
        add(Rollup {
            flow: Some(flow),
            min,
            max,
            sum,
            ..found
        });
    }
    for node in [0, 101, 102, 103] {
        let (queue, interface) = (Some(node as u8 % 7), Some(2));
        for metric in [
            Metric::HopLatency,
            Metric::QueueOccupancy,
            Metric::LinkUtilization,
        ] {
            let found = Rollup {
                node: Some(node),
                ..rollup(rng, ts, metric)
            };
            let found = match metric {
                Metric::QueueOccupancy => Rollup { queue, ..found },
                Metric::LinkUtilization => Rollup { interface, ..found },
                _ => found,
            };
            // Of the last minute, one has only its seconds.
            if minute + 1 < MINUTES || node != 101 {
                add(found);
            }
            for second in [1, 7, 30] {
                add(Rollup {
                    interval: 1,
                    ts: ts + second * SECOND,
                    ..found
                });
            }
        }
    }
}

/// What one collector of the pair has stored. Everything is of a time that ended two minutes ago.
fn filled(directory: &TempDir, begin: u64, is_other: bool) {
    let (mut rng, mut batch) = (Rng(5), Batch::with_capacity(100_000));
    let skew = if is_other { SKEW } else { 0 };
    let mut events = path_events(&mut rng, begin, skew);
    for number in 0..EVENTS {
        let (event, path) = event(&mut rng, begin + number * MINUTES * MINUTE / EVENTS + 17);
        events.push((
            Event {
                ts: event.ts - skew,
                ..event
            },
            path,
        ));
    }
    // Losses of a reporter that restarts again and again, which have one id.
    for number in 0..3 {
        let loss = Event {
            kind: Kind::Loss,
            id: 77,
            ..bare(begin + 20 * MINUTE + number * 15 * SECOND - skew)
        };
        events.push((loss, Vec::new()));
    }
    events.sort_by_key(|(event, _)| event.ts);
    events.iter().for_each(|(event, path)| batch.event(event, path));
    for minute in 0..MINUTES {
        fill_minute(&mut rng, &mut batch, (begin + minute * MINUTE, minute), is_other);
    }
    // After the last minute, only seconds.
    for second in [2, 61, 100] {
        let ts = begin + MINUTES * MINUTE + second * SECOND;
        batch.rollup(&Rollup {
            interval: 1,
            node: Some(102),
            ..rollup(&mut rng, ts, Metric::HopLatency)
        });
    }
    for (number, flow) in all_flows().into_iter().enumerate() {
        let last_seen = begin + MINUTES * MINUTE - 1 - skew;
        let (basis, reports) = (Basis::ALL[number % Basis::ALL.len()], 7);
        let row = FlowRow {
            flow,
            flow_latency: Some(900),
            basis,
            first_seen: begin,
            last_seen,
            reports,
        };
        batch.flow(&row, &[]);
    }
    keep(directory, batch);
}

/// Both collectors of the pair, whose records are in ClickHouse.
fn pair(engine: &ClickHouse, password: &str, begin: u64) -> [Server; 2] {
    ["c1", "c2"].map(|name| {
        let directory = TempDir::new();
        filled(&directory, begin, name == "c2");
        let server = of_store(directory, name, engine, password);
        prepare(&server);
        drain(&server);
        server
    })
}

fn begin() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    (now / MINUTE - MINUTES - 4) * MINUTE
}

/// Asks both; they answer alike. Returns the answer.
fn alike(servers: [&Server; 2], question: &str) -> Value {
    let [here, there] = servers.map(|server| server.get(&format!("/api/v1/{question}")));
    assert_eq!(
        (here.status, there.status),
        (200, 200),
        "{question}: {here:?} {there:?}"
    );
    let [mut here, mut there] = [here.json(), there.json()];
    // A column that has not ended is known until now.
    if here["known_to"].as_u64() < here["to"].as_u64() {
        for answer in [&mut here, &mut there] {
            answer.as_object_mut().unwrap().remove("known_to");
        }
    }
    assert_eq!(there, here, "{question}");
    here
}

const DIMENSIONS: [&str; 19] = [
    "src",
    "dst",
    "src_prefix",
    "dst_prefix",
    "port",
    "sport",
    "dport",
    "proto",
    "flow",
    "node",
    "link",
    "path",
    "label",
    "queue",
    "interface",
    "kind",
    "metric",
    "rule",
    "reason",
];
const MEASURES: [&str; 7] = [
    "reports",
    "events",
    "flow_latency",
    "hop_latency",
    "queue_occupancy",
    "queue_congestion",
    "link_utilization",
];

/// A question about traffic in some part of the time.
fn traffic(rng: &mut Rng, begin: u64, (measure, by): (&str, Option<&str>)) -> String {
    let one_of = |rng: &mut Rng, names: &[&'static str]| names[rng.below(names.len())];
    let mut dimensions: Vec<&str> = by.into_iter().collect();
    for _ in 0..1 + rng.below(2) {
        dimensions.push(one_of(rng, &DIMENSIONS));
    }
    dimensions.truncate(3);
    let length = [MINUTE, 2 * MINUTE, 15 * MINUTE, 40 * MINUTE, MINUTES * MINUTE][rng.below(5)];
    let from = begin + rng.below((MINUTES * MINUTE - length + 1) as usize) as u64;
    let tests: Vec<&str> = match measure {
        "reports" | "flow_latency" => TESTS
            .into_iter()
            .chain(["reports > 60", "reports <= 2000"])
            .collect(),
        _ => TESTS.into_iter().chain(OF_EVENTS).collect(),
    };
    let filter = match rng.below(3) {
        0 => String::new(),
        1 => tests[rng.below(tests.len())].to_owned(),
        _ => format!(
            "not ({}) or {}",
            tests[rng.below(tests.len())],
            tests[rng.below(tests.len())]
        ),
    };
    format!(
        "traffic?measure={measure}&by={}&from={from}&to={}&columns={}&top={}&prefix4={}&prefix6={}&filter={}",
        dimensions.join(","),
        from + length,
        [3, 20, 180, 1000][rng.below(4)],
        [1, 5, 100][rng.below(3)],
        [0, 8, 24, 32][rng.below(4)],
        [0, 16, 64, 128][rng.below(4)],
        escaped(&filter)
    )
}

#[test]
fn traffic_and_paths_of_a_pair_are_those_of_a_store() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let begin = begin();
    let [here, _other] = pair(&engine, &password, begin);
    let console = console(&engine, &password, "");
    let servers = [&here, &console];
    let mut rng = Rng(3);
    let mut found = 0;
    let mut asked = 0;
    for measure in MEASURES {
        let each = DIMENSIONS.into_iter().map(Some).chain([None; 12]);
        for by in each {
            let answer = alike(servers, &traffic(&mut rng, begin, (measure, by)));
            found += usize::from(!answer["groups"].as_array().unwrap().is_empty());
            asked += 1;
        }
    }
    assert!(found * 2 > asked, "{found} of {asked} find something");
    // The seconds of a minute that has not ended.
    let end = begin + (MINUTES + 2) * MINUTE;
    for columns in [3, 20, 180] {
        let question = format!("traffic?measure=hop_latency&by=node&from={begin}&to={end}&columns={columns}");
        let answer = alike(servers, &question);
        assert_eq!(answer["groups"].as_array().unwrap().len(), 4, "{answer:#}");
    }
    paths(servers, begin, &mut rng);
    let time = (begin + 5 * MINUTE, begin + 45 * MINUTE);
    copied_events(&console, time);
    copied_rollups(&console, time);
    top(servers, begin);
}

/// The rows that a statement which a page copies gives for a time.
fn rows_of(console: &Server, name: &str, (from, to): (u64, u64)) -> Vec<Value> {
    let statements: Value = serde_json::from_str(include_str!("../../ui/test/fleet-sql.json")).unwrap();
    let sql = statements[name]
        .as_str()
        .unwrap()
        .replace("1700000000000000000", &from.to_string());
    let answer = console.query(&sql.replace("1700000060000000000", &to.to_string()));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["rows"].as_array().unwrap().clone()
}

/// Rows as text, in an order of their own.
fn texts(rows: impl Iterator<Item = Vec<Value>>) -> Vec<String> {
    let mut texts: Vec<String> = rows.map(|row| Value::from(row).to_string()).collect();
    texts.sort();
    assert!(!texts.is_empty());
    texts
}

fn cells(rows: &[Value]) -> impl Iterator<Item = Vec<Value>> {
    rows.iter().map(|row| row.as_array().unwrap().clone())
}

fn parts(row: &Value, names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| row[*name].clone()).collect()
}

/// What the page copies as SQL gives what the API gives: events, by kind and over time.
fn copied_events(console: &Server, (from, to): (u64, u64)) {
    let get = |path: &str| console.json(&format!("/api/v1/{path}"));
    let filter = escaped("kind in (change, new) and metric == hop_latency");
    let found = get(&format!(
        "events?limit=9999&from={from}&before={}&filter={filter}",
        to + 1
    ));
    // The API has the parts of a flow, too.
    let of_api = |row: &Value| {
        let mut row = parts(row, &["kind", "flow", "node", "interface", "queue", "value"]);
        row[1] = Value::from(!row[1].is_null());
        row
    };
    let of_sql = |row: &Value| {
        let mut row: Vec<Value> = [2, 4, 5, 6, 7, 8].map(|at| row[at].clone()).into();
        row[1] = Value::from(row[1] != "");
        row
    };
    let expected = texts(found["events"].as_array().unwrap().iter().map(of_api));
    assert_eq!(
        texts(rows_of(console, "events", (from, to)).iter().map(of_sql)),
        expected
    );
    // Not between the copies of an event.
    let apart = (from + SECOND, to + SECOND);
    let mut counts: std::collections::BTreeMap<String, u64> = Default::default();
    let events = get(&format!("events?limit=9999&from={}&before={}", apart.0, apart.1));
    for event in events["events"].as_array().unwrap() {
        *counts
            .entry(event["kind"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    let expected = texts(
        counts
            .into_iter()
            .map(|(kind, n)| vec![Value::from(kind), n.into()]),
    );
    assert_eq!(texts(cells(&rows_of(console, "kinds", apart))), expected);
    let activity = get(&format!("activity?from={from}&to={to}&columns=40"));
    assert_eq!(activity["column"], MINUTE);
    let points = activity["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["events"].clone());
    let expected: Vec<Value> = points.filter(|events| *events != 0).collect();
    let rates: Vec<Value> = rows_of(console, "rates", (from, to))
        .iter()
        .map(|row| row[1].clone())
        .collect();
    assert_eq!(rates, expected);
}

/// The same of flows and of a heat map.
fn copied_rollups(console: &Server, (from, to): (u64, u64)) {
    let get = |path: &str| console.json(&format!("/api/v1/{path}"));
    let flows = get(&format!("flows?from={from}&to={to}&sort=latency&limit=50"));
    let slowest = flows["flows"].as_array().unwrap().iter();
    let expected = texts(slowest.map(|row| parts(row, &["text", "flow_latency", "reports"])));
    assert_eq!(texts(cells(&rows_of(console, "flows", (from, to)))), expected);
    let traffic = get(&format!(
        "traffic?measure=hop_latency&by=node&from={from}&to={to}&top=3"
    ));
    let worst = traffic["groups"].as_array().unwrap().iter();
    let expected = texts(worst.map(|row| vec![row["key"][0].clone(), row["max"].clone()]));
    let mut greatest: std::collections::BTreeMap<String, u64> = Default::default();
    for row in rows_of(console, "heat", (from, to)) {
        let most = greatest.entry(row[1].to_string()).or_default();
        *most = (*most).max(row[4].as_u64().unwrap());
    }
    let found = greatest
        .into_iter()
        .map(|(node, most)| vec![Value::from(node), most.into()]);
    assert_eq!(texts(found), expected);
}

/// `top` shows a time from a console as from a collector, and without a time the last minutes.
fn top([here, there]: [&Server; 2], begin: u64) {
    let ends = [begin.to_string(), (begin + 15 * MINUTE).to_string()];
    let run = |server: &Server, more: &[&str]| {
        let api = format!("http://{}", server.api);
        let words = ["top", "--once", "--sort", "rate", "--api", &api];
        let run = hopwise(words.iter().copied().chain(more.iter().copied()));
        assert_eq!(run.code, Some(0), "{run:?}");
        run.stdout
    };
    let time = ["--from", &ends[0], "--to", &ends[1]];
    for view in ["flows", "nodes", "links"] {
        let more = [&time[..], &["--view", view]].concat();
        let [mut collector, mut console] = [run(here, &more), run(there, &more)];
        for text in [&mut collector, &mut console] {
            let table = text.find("\n\n").unwrap();
            text.drain(..table);
        }
        assert!(collector.lines().count() > 4, "{collector}");
        assert_eq!(console, collector);
    }
    let shown = run(there, &time);
    assert!(
        shown.contains("UTC, from ClickHouse") && !shown.contains("lost:"),
        "{shown}"
    );
    let shown = run(there, &[]);
    assert!(
        shown.contains("UTC, from ClickHouse") && shown.contains("10.9."),
        "{shown}"
    );
    let json: Value = serde_json::from_str(&run(there, &["--json"])).unwrap();
    assert_eq!(
        (&json["status"]["console"], &json["status"]["loss_budget"]),
        (&Value::from(true), &serde_json::json!([]))
    );
}

/// Paths, their changes and uses, in several spans and of several flows.
fn paths(servers: [&Server; 2], begin: u64, rng: &mut Rng) {
    let end = begin + MINUTES * MINUTE;
    let flows = all_flows();
    let mut changed = 0;
    for number in 0..24 {
        let length = [5, 15, 47, MINUTES][number % 4] * MINUTE;
        let from = begin + rng.below(((end - begin - length) / MINUTE + 1) as usize) as u64 * MINUTE;
        let span = format!("from={from}&to={}", from + length);
        alike(servers, &format!("paths?{span}"));
        alike(servers, &format!("paths?{span}&limit=2&offset=1"));
        let one = escaped(&flows[rng.below(flows.len())].to_string());
        for of in [
            "",
            "&src=10.9.1.5",
            "&dst=10.9.200.1",
            "&dst=10.0.1.200",
            "&src=2001:db8::7",
            "&src=10.0.1.1&dst=10.0.1.200",
            "&src=nobody",
            &format!("&flow={one}"),
        ] {
            alike(servers, &format!("paths/uses?{span}{of}"));
            let answer = alike(servers, &format!("paths/changes?{span}{of}"));
            changed += answer["changes"].as_array().unwrap().len();
        }
        alike(servers, &format!("paths/changes?{span}&limit=3"));
    }
    assert!(changed > 1_000, "{changed}");
}

#[test]
fn a_flow_without_events_about_its_path_has_that_of_its_latest_state() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let begin = begin();
    let directory = TempDir::new();
    let (mut batch, mut rng) = (Batch::with_capacity(100), Rng(1));
    let (flow, path) = (flow(9), [7, u32::MAX, 8]);
    for minute in 0..20 {
        let ts = begin + minute * MINUTE;
        batch.rollup(&Rollup {
            flow: Some(flow),
            count: 10,
            ..rollup(&mut rng, ts, Metric::FlowLatency)
        });
    }
    let last_seen = begin + 20 * MINUTE - 1;
    let (basis, reports) = (Basis::Measured, 200);
    batch.flow(
        &FlowRow {
            flow,
            flow_latency: Some(900),
            basis,
            first_seen: begin,
            last_seen,
            reports,
        },
        &path,
    );
    keep(&directory, batch);
    let collector = of_store(directory, "c1", &engine, &password);
    prepare(&collector);
    drain(&collector);
    let console = console(&engine, &password, "");
    let servers = [&collector, &console];
    let span = format!("from={begin}&to={}", begin + 20 * MINUTE);
    let flows = alike(servers, &format!("flows?{span}"));
    assert_eq!(
        flows["flows"][0]["path"],
        serde_json::json!([7, null, 8]),
        "{flows:#}"
    );
    assert_eq!(alike(servers, &format!("paths?{span}"))["paths"][0]["flows"], 1);
    let traffic = alike(servers, &format!("traffic?by=path&{span}"));
    assert_eq!(
        traffic["groups"][0]["key"],
        serde_json::json!(["7>?>8"]),
        "{traffic:#}"
    );
    // The store knows it from the first state on that it has, which is the last one here.
    let uses = console.json(&format!("/api/v1/paths/uses?{span}"));
    let used = &uses["forward"]["paths"];
    assert_eq!(
        (used.as_array().unwrap().len(), &used[0]["reports"]),
        (1, &Value::from(200)),
        "{uses:#}"
    );
}

//! The pages of a time – queues, losses, alerts, topology – asked of a collector's store and of a console over ClickHouse, where a second
//! collector of a pair hears a part of the same.

use std::time::{SystemTime, UNIX_EPOCH};

use collector::{
    Batch, Drop, Event, Kind, Output as _, Rollup,
    event::{Basis, Loss},
};
use detect::Metric;
use serde_json::{Value, json};
use testkit::{records, rng::Rng};

use super::{
    console::{SECRET, account, at_rest, console, drain, keep, of_store, password, prepare},
    console_filters::flows,
    export::{ClickHouse, reports_from},
};
use crate::support::{TempDir, server::Server};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const MINUTES: u64 = 130;

/// What the first collector of a pair observes, and what the second one hears of it.
struct Pair {
    rng: Rng,
    first: Batch,
    second: Batch,
}

impl Pair {
    fn hears(&mut self) -> bool {
        self.rng.below(3) > 0
    }

    fn one_of(&mut self, most: usize) -> Option<usize> {
        (self.rng.below(4) > 0).then(|| self.rng.below(most))
    }

    /// A rollup of a place, now and then in two parts. Of the pair, the first has more values, and not the greatest.
    fn rollup(&mut self, ts: u64, interval: u32, (metric, node): (Metric, u32)) {
        for _ in 0..1 + self.rng.below(4) / 3 {
            let (min, span, count) = (
                self.rng.below(4) as u64,
                self.rng.below(9) as u64,
                2 + self.rng.below(20) as u64,
            );
            let place = self.one_of(3).map(|place| place as u32);
            let one = Rollup {
                interval,
                metric,
                node: Some(node),
                queue: place
                    .filter(|_| metric != Metric::LinkUtilization)
                    .map(|place| place as u8),
                interface: place.filter(|_| metric == Metric::LinkUtilization),
                count,
                min,
                max: min + span,
                sum: count * (min + span / 2),
                p50: Some(min + span / 2),
                p99: None,
                ..records::rollup(ts, node)
            };
            self.first.rollup(&one);
            if self.hears() {
                self.second.rollup(&Rollup {
                    count: 1,
                    max: one.max + 100,
                    ..one
                });
            }
        }
    }

    fn drop_report(&mut self, ts: u64) {
        let number = |number: usize| number as u32;
        let one = Drop {
            ts,
            id: self.rng.roll(),
            flow: self.one_of(5).map(|flow| flows()[flow]),
            tunnel: None,
            node: self.one_of(3).map(|node| 101 + number(node)),
            ingress_if: self.one_of(3).map(number),
            egress_if: self.one_of(3).map(number),
            queue: self.one_of(3).map(|queue| queue as u8),
            reason: self.one_of(3).map(|reason| 70 + reason as u8),
        };
        self.first.drop_report(&one);
        if self.hears() {
            self.second.drop_report(&one);
        }
    }

    /// Lost reports: what the network lost is lost for both, and on its own way each loses more.
    fn loss(&mut self, ts: u64) {
        let sender = self.rng.below(6) as u8;
        let one = Loss {
            ts,
            node: (sender > 0).then(|| 100 + u32::from(sender) / 2),
            source: [sender; 16],
            hw_id: sender % 2,
            lost: 1 + self.rng.below(9) as u64,
            reordered: 0,
            duplicated: self.rng.below(2) as u64,
        };
        self.first.loss(&one);
        if self.hears() {
            self.second.loss(&Loss {
                lost: one.lost - 1,
                duplicated: 0,
                ..one
            });
        }
    }

    fn event(&mut self, one: Event, both: bool) {
        self.first.event(&one, &[]);
        if both || self.hears() {
            // The one that is later counts. Both are in one second: events over time are counted once in each part.
            let earlier = (self.rng.below(9) as u64 * MS).min(one.ts % SECOND);
            self.second.event(
                &Event {
                    ts: one.ts - earlier,
                    ..one
                },
                &[],
            );
        }
    }

    /// Rules that become true and false.
    fn alerts(&mut self, begin: u64) {
        for (rule, flow) in (0..2).flat_map(|rule| flows().into_iter().take(9).map(move |flow| (rule, flow)))
        {
            let mut ts = begin;
            let mut is_firing = false;
            loop {
                ts += (1 + self.rng.below(1500) as u64) * SECOND + self.rng.below(999) as u64 * MS;
                if ts >= begin + MINUTES * MINUTE {
                    break;
                }
                // Said again now and then, as after a restart.
                is_firing = !is_firing || self.rng.below(5) == 0;
                let has_ended = !is_firing && self.rng.below(3) == 0;
                let value = self.rng.below(90) as u64;
                let event = Event {
                    id: self.rng.roll(),
                    kind: if is_firing { Kind::RuleOn } else { Kind::RuleOff },
                    flow: Some(flow),
                    rule: Some(rule),
                    metric: (!has_ended).then_some(Metric::QueueOccupancy),
                    node: (!has_ended).then_some(102),
                    queue: (!has_ended).then_some(1),
                    value: (!has_ended).then_some(value),
                    threshold: (!has_ended).then_some(50),
                    ..records::bare(ts)
                };
                // A flow that has ended has ended for both.
                self.event(event, has_ended);
            }
        }
    }

    fn change(&mut self, ts: u64) {
        let (metric, node) = match self.rng.below(2) {
            0 => (Metric::HopLatency, Some(101 + self.rng.below(3) as u32)),
            _ => (Metric::FlowLatency, None),
        };
        let flow = flows()[self.rng.below(8)];
        let value = 100 * self.rng.below(900) as u64;
        let event = Event {
            id: self.rng.roll(),
            node,
            ..records::change(ts, flow, 101, value)
        };
        self.event(
            Event {
                metric: Some(metric),
                basis: Basis::Measured,
                ..event
            },
            false,
        );
    }

    /// Of a time that ended five minutes ago. Returns when it began.
    fn fill(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let begin = (now / MINUTE - MINUTES - 5) * MINUTE;
        let metrics = [
            Metric::HopLatency,
            Metric::QueueOccupancy,
            Metric::QueueCongestion,
            Metric::LinkUtilization,
        ];
        for minute in 0..MINUTES {
            let ts = begin + minute * MINUTE;
            for (metric, node) in metrics
                .into_iter()
                .flat_map(|metric| [0, 101, 102, 103].map(|node| (metric, node)))
            {
                if self.rng.below(3) > 0 {
                    self.rollup(ts, 60, (metric, node));
                }
                if self.rng.below(3) == 0 {
                    let second = self.rng.below(60) as u64 * SECOND;
                    self.rollup(ts + second, 1, (metric, node));
                }
            }
            for _ in 0..6 {
                let at = ts + self.rng.below(60_000) as u64 * MS;
                self.drop_report(at);
                self.loss(at);
                self.change(at + 10 * MS);
            }
        }
        self.alerts(begin);
        begin
    }
}

/// A collector whose store has a batch.
fn collector(name: &str, batch: Batch, engine: &ClickHouse, password: &str) -> Server {
    let directory = TempDir::new();
    keep(&directory, batch);
    of_store(directory, name, engine, password)
}

/// Asks both; they answer alike, but for what only a console says. Returns the answer of the console.
fn alike(servers: [&Server; 2], question: &str, list: &str) -> Value {
    let there = same(servers, question);
    assert!(
        there[list].as_array().is_some_and(|list| !list.is_empty()),
        "{question}: nothing: {there:#}"
    );
    there
}

/// The same, where there may be nothing.
fn same(servers: [&Server; 2], question: &str) -> Value {
    let [here, there] = servers.map(|server| server.json(&format!("/api/v1/{question}")));
    let [stored, exported] = [here, there.clone()].map(without_words);
    for (name, value) in stored.as_object().unwrap() {
        assert_eq!(&exported[name], value, "{question}: {name}");
    }
    assert_eq!(exported, stored, "{question}");
    there
}

/// What a console says of alerts, and what either knows of the ends of links.
const OF_ONE: [(&str, &[&str]); 3] = [
    ("alerts", &["collectors"]),
    ("links", &["unknown", "egress_if", "ingress_if", "utilization"]),
    ("drops", &["to_unknown"]),
];

/// Removes the fields that only a console has, the reason why links are not counted, and `measured`: rollups of the current second
/// are exported a little later.
fn without_words(mut answer: Value) -> Value {
    let parts = answer.as_object_mut().unwrap();
    for name in ["lacks", "collectors", "uncounted", "measured"] {
        parts.remove(name);
    }
    // The order of packets of one time is not defined.
    if let Some(packets) = parts.get_mut("packets").and_then(Value::as_array_mut) {
        packets.sort_by_key(ToString::to_string);
    }
    for (list, names) in OF_ONE {
        for one in answer
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            one.as_object_mut()
                .unwrap()
                .retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    answer
}

fn heat(servers: [&Server; 2], begin: u64) {
    let (end, middle) = (begin + MINUTES * MINUTE, begin + 70 * MINUTE);
    let spans = [
        (begin, end),
        (begin, end + 3 * MINUTE),
        (middle, middle + 20 * MINUTE),
        (middle + 7 * SECOND, middle + 3 * MINUTE),
        (middle - 30 * MINUTE, middle + 59 * MINUTE + 11 * SECOND),
    ];
    for metric in [
        "queue_occupancy",
        "queue_congestion",
        "hop_latency",
        "link_utilization",
    ] {
        for (from, to) in spans {
            let question = format!("queues?metric={metric}&from={from}&to={to}");
            alike(servers, &question, "rows");
            for more in [
                "&columns=3",
                "&columns=1000",
                "&limit=3",
                "&node=102",
                "&node=0&limit=1",
            ] {
                same(servers, &format!("{question}{more}"));
            }
        }
    }
}

fn bursts(servers: [&Server; 2], begin: u64) {
    let middle = begin + 70 * MINUTE;
    for (node, queue, minutes) in [
        (101, "", 50),
        (102, "&queue=1", 50),
        (103, "&queue=2", 9),
        (101, "&limit=2", 2),
    ] {
        let to = middle + minutes * MINUTE;
        let found = alike(
            servers,
            &format!("queues/{node}?from={middle}&to={to}{queue}"),
            "changes",
        );
        assert_eq!(
            found["collectors"],
            json!(["c1", "c2"]),
            "who heard the node: {found:#}"
        );
        let lacks = found["lacks"].as_array().unwrap();
        assert!(
            lacks[0]
                .as_str()
                .unwrap()
                .starts_with("Single packets are not exported"),
            "{lacks:?}"
        );
    }
}

fn losses(servers: [&Server; 2], begin: u64) {
    for (from, minutes) in [(begin, MINUTES), (begin + 30 * MINUTE, 4), (begin, 1)] {
        let span = format!("from={from}&to={}", from + minutes * MINUTE);
        let found = alike(servers, &format!("losses?{span}"), "drops");
        assert_eq!(found["counted"], false);
        assert!(
            found["uncounted"]
                .as_str()
                .unwrap()
                .contains("which collectors do not export"),
            "{found:#}"
        );
        alike(servers, &format!("losses?{span}"), "reporters");
        alike(servers, &format!("losses?{span}&limit=5"), "drops");
        alike(servers, &format!("activity?{span}"), "points");
        alike(servers, &format!("activity?{span}&columns=7"), "points");
    }
}

/// The alerts of a span by id, as their events are stored. Only the collector that evaluates the rules knows that an alert without a
/// stored end does not fire any more; a console says that its alerts are not confirmed.
fn as_stored(server: &Server, (from, to): (u64, u64)) -> Vec<Value> {
    let mut answer = without_words(server.json(&format!("/api/v1/alerts?from={from}&to={to}")));
    let alerts = answer["alerts"].as_array_mut().unwrap();
    for alert in alerts.iter_mut().filter(|alert| alert["ended"] == "stale") {
        alert["state"] = "firing".into();
        alert["ended"] = Value::Null;
    }
    alerts.sort_by_key(|alert| alert["id"].to_string());
    std::mem::take(alerts)
}

fn alerts(servers: [&Server; 2], begin: u64) {
    let end = begin + MINUTES * MINUTE;
    for (from, to) in [
        (begin, end),
        (begin + 50 * MINUTE, begin + 90 * MINUTE),
        (end - MINUTE, end + MINUTE),
    ] {
        for more in ["", "&state=firing", "&limit=3"] {
            let found = servers[1].json(&format!("/api/v1/alerts?from={from}&to={to}{more}"));
            let heard = found["alerts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| &one["collectors"]);
            assert!(
                heard
                    .clone()
                    .all(|heard| [&json!(["c1", "c2"]), &json!(["c1"])].contains(&heard)),
                "{found:#}"
            );
            assert_eq!(found["confirmed"], false);
        }
        let [here, there] = servers.map(|server| as_stored(server, (from, to)));
        assert!(!here.is_empty(), "no alerts from {from} to {to}");
        assert_eq!(there, here);
        // A rule is tried on the same events.
        let body = json!({ "when": "flow_latency > 40us", "from": from, "to": to }).to_string();
        let [here, there] = servers.map(|server| server.ask("POST", "/api/v1/alerts/try", "", &body).json());
        assert!(here["times"].as_u64() > Some(0) || to > end, "{here:#}");
        assert_eq!(there, here);
    }
    // Notes are where the alert is evaluated.
    let body = json!({ "id": "0000000000000001" }).to_string();
    for (method, path) in [("POST", "acknowledge"), ("GET", "silences"), ("POST", "rules")] {
        let body = if method == "GET" { "" } else { &body };
        let refused = servers[1].ask(method, &format!("/api/v1/alerts/{path}"), "", body);
        assert_eq!(refused.status, 404, "{refused:?}");
    }
}

#[test]
fn pages_of_a_time_are_the_same_from_the_store_and_from_clickhouse() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let [first, second] = [40_000, 40_000].map(Batch::with_capacity);
    let mut pair = Pair {
        rng: Rng(5),
        first,
        second,
    };
    let begin = pair.fill();
    let first = collector("c1", pair.first, &engine, &password);
    prepare(&first);
    let second = collector("c2", pair.second, &engine, &password);
    [&first, &second].into_iter().for_each(drain);
    let console = console(&engine, &password, "");
    let servers = [&first, &console];
    heat(servers, begin);
    bursts(servers, begin);
    losses(servers, begin);
    alerts(servers, begin);
}

/// The records of a device that repeats its numbers and has no clock, as a collector of a pair stored them.
fn repeated(begin: u64) -> Batch {
    let mut batch = Batch::with_capacity(4_000);
    for second in 0..600 {
        let ts = begin + second * SECOND;
        batch.drop_report(&Drop {
            id: 77,
            ..records::drop_report(ts, 7)
        });
        // A queue fills and empties by turns.
        batch.event(
            &Event {
                id: 1 + second % 2,
                metric: Some(Metric::QueueOccupancy),
                node: Some(7),
                queue: Some(0),
                value: Some(if second % 2 == 0 { 5 } else { 500 }),
                ..records::bare(ts)
            },
            &[],
        );
        let path = Event {
            id: 11 + second % 2,
            kind: Kind::PathChange,
            metric: Some(Metric::FlowPath),
            flow: Some(records::flow(1)),
            value: Some(2),
            ..records::bare(ts)
        };
        batch.event(&path, if second % 2 == 0 { &[1, 2] } else { &[1, 3] });
    }
    batch
}

#[test]
fn records_of_one_id_count_as_often_as_a_collector_stored_them() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let begin = (now / 60 - 30) * MINUTE;
    let first = collector("c1", repeated(begin + 500 * MS), &engine, &password);
    prepare(&first);
    // The copies come earlier, so that the first one's are shown.
    let second = collector("c2", repeated(begin + 400 * MS), &engine, &password);
    [&first, &second].into_iter().for_each(drain);
    let console = console(&engine, &password, "");
    let servers = [&first, &console];
    let span = format!("from={}&to={}", begin - MINUTE, begin + 20 * MINUTE);
    let count = |question: &str, list: &str| {
        let [here, there] = servers.map(|server| server.json(&format!("/api/v1/{question}")));
        let [here, there] = [&here, &there].map(|answer| answer[list].clone());
        (here, there)
    };
    let (here, there) = count(&format!("losses?{span}"), "drops");
    assert_eq!(
        (&here[0]["packets"], &there[0]["packets"]),
        (&json!(600), &json!(600))
    );
    let (here, there) = count(&format!("nodes?{span}"), "nodes");
    assert_eq!(
        (&here[0]["drops"], &there[0]["drops"]),
        (&json!(600), &json!(600))
    );
    let (here, there) = count(&format!("activity?{span}"), "kinds");
    assert_eq!(here, there);
    assert_eq!(here["change"], json!(600));
    let (here, there) = count(&format!("queues/7?queue=0&{span}"), "drops");
    assert_eq!((&here, &here[0]["count"]), (&there, &json!(600)));
    let events = alike(
        servers,
        &format!("events?{span}&kind=change&limit=1000"),
        "events",
    );
    assert_eq!(events["events"].as_array().map(Vec::len), Some(600));
    let changes = alike(servers, &format!("paths/changes?{span}&limit=1000"), "changes");
    assert!(
        changes["total"].as_u64().is_some_and(|total| total > 590),
        "{changes:#}"
    );
}

#[test]
fn exported_hops_say_who_was_in_a_queue_and_what_is_behind_an_interface() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let config = format!(
        "collector.name = \"c1\"\ncollector.push_interval = \"1s\"\nstore.reports = true\nflight_recorder.enabled = false\n\
         [exports.lake]\nkind = \"clickhouse\"\nurl = \"http://{}\"\n{}\
         streams = [\"events\", \"rollups\", \"flows\", \"drops\", \"losses\", \"hops\"]\nsample = 1\nlinger = \"0s\"\n",
        engine.address(),
        account(&password)
    );
    let collector = Server::start(&config);
    prepare(&collector);
    collector.send(reports_from(0).chain(reports_from(150)));
    collector.settled(300);
    drain(&collector);
    let console = console(&engine, &password, "");
    let servers = [&collector, &console];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (from, to) = (now - 2 * MINUTE, now + MINUTE);
    for (node, queue) in [(101, "&queue=3"), (102, ""), (103, "&limit=3")] {
        let found = alike(
            servers,
            &format!("queues/{node}?from={from}&to={to}{queue}"),
            "flows",
        );
        assert_eq!(
            (&found["reports"], &found["collectors"]),
            (&json!(300), &json!(["c1"])),
            "{found:#}"
        );
        assert_eq!(found["flows"][0]["path"], json!([101, 102, 103]));
        assert!(
            found["lacks"][0]
                .as_str()
                .unwrap()
                .starts_with("The packets are those whose hops"),
            "{found:#}"
        );
    }
    links_of_hops(at_rest(collector, &config), &console, (from, to));
    let none = console.json(&format!("/api/v1/queues/101?queue=4&from={from}&to={to}"));
    assert_eq!((&none["reports"], &none["peak"]), (&json!(0), &Value::Null));
}

/// Links are those of paths. What is at their ends a collector knows as long as it runs, and a console from hops.
fn links_of_hops(collector: Server, console: &Server, (from, to): (u64, u64)) {
    let found = same([&collector, console], &format!("links?from={from}&to={to}"));
    let ends = |link: &Value| {
        ["from", "to", "egress_if", "ingress_if", "utilization", "flows"].map(|name| link[name].clone())
    };
    let found: Vec<[Value; 6]> = found["links"].as_array().unwrap().iter().map(ends).collect();
    let link = |from, to| [json!(from), json!(to), json!(2), json!(1), json!(0.25), json!(50)];
    assert_eq!(found, [link(101, 102), link(102, 103)]);
    let lost = console.json(&format!("/api/v1/losses?from={from}&to={to}"));
    let unknown = &lost["links"][1]["unknown"];
    assert_eq!(
        (lost["links"].as_array().unwrap().len(), unknown),
        (2, &lost["uncounted"]),
        "{lost:#}"
    );
}

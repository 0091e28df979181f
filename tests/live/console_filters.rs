//! The same filters of events, asked of a collector's store and of a console over ClickHouse, about records of every kind.

use std::time::{SystemTime, UNIX_EPOCH};

use collector::{
    Batch, Drop, Event, FlowRow, Kind, Output as _, Rollup,
    event::{Basis, Loss},
};
use detect::Metric;
use serde_json::Value;
use testkit::{
    records::{self, odd_flows},
    rng::Rng,
};
use wire::FlowKey;

use super::{
    console::{SECRET, console, drain, keep, of_store, password, prepare, rows, times},
    export::ClickHouse,
};
use crate::support::{TempDir, server::Server};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
const MINUTES: u64 = 8;
const EVENTS: u64 = 3_000;

/// Flows of IPv4 and IPv6, without ports, and one that is known by its id.
pub(super) fn flows() -> Vec<FlowKey> {
    let plain = |n: u8| {
        FlowKey::v4(
            [10, 0, n % 3, n],
            [10, 0, 1, 200],
            Some((1000 + u16::from(n), 80)),
            6 + 11 * (n % 2),
        )
    };
    let v6 = FlowKey::new(
        "2001:db8::7".parse().unwrap(),
        "fd00::1".parse().unwrap(),
        Some((443, 8080)),
        17,
    );
    odd_flows()
        .into_iter()
        .chain([v6])
        .chain((0..12).map(plain))
        .collect()
}

/// An event of which each part may be absent.
pub(super) fn event(rng: &mut Rng, ts: u64) -> (Event, Vec<u32>) {
    let flows = flows();
    let one_of = |rng: &mut Rng, most: usize| (rng.below(4) > 0).then(|| rng.below(most));
    let path: Vec<u32> = match rng.below(3) {
        0 => Vec::new(),
        _ => (0..1 + rng.below(5))
            .map(|_| {
                if rng.below(9) == 0 {
                    u32::MAX
                } else {
                    101 + rng.below(5) as u32
                }
            })
            .collect(),
    };
    let event = Event {
        ts,
        id: rng.roll(),
        kind: Kind::ALL[rng.below(Kind::ALL.len())],
        metric: one_of(rng, Metric::ALL.len()).map(|metric| Metric::ALL[metric]),
        flow: one_of(rng, flows.len()).map(|flow| flows[flow]),
        node: one_of(rng, 6).map(|node| if node == 0 { 0 } else { 100 + node as u32 }),
        interface: one_of(rng, 4).map(|interface| interface as u32),
        queue: one_of(rng, 4).map(|queue| queue as u8),
        value: one_of(rng, 6).map(|digits| 3 * 10_u64.pow(2 + digits as u32)),
        previous: one_of(rng, 1000).map(|value| value as u64),
        threshold: one_of(rng, 2).map(|value| value as u64),
        rule: one_of(rng, 2).map(|rule| rule as u16),
        reason: one_of(rng, 3).map(|reason| 70 + reason as u8),
        basis: Basis::ALL[rng.below(Basis::ALL.len())],
    };
    (event, path)
}

pub(super) fn rollup(rng: &mut Rng, ts: u64, metric: Metric) -> Rollup {
    let (min, span, count) = (
        rng.below(1000) as u64,
        rng.below(100_000) as u64,
        1 + rng.below(50) as u64,
    );
    let (max, sum, p50) = (min + span, count * (min + span / 2), Some(min + span / 2));
    let bare = Rollup {
        node: None,
        queue: None,
        ..records::rollup(ts, 0)
    };
    Rollup {
        interval: 60,
        metric,
        count,
        min,
        max,
        sum,
        p50,
        p99: None,
        ..bare
    }
}

/// Rollups, drops and losses of a minute.
fn fill_minute(rng: &mut Rng, batch: &mut Batch, begin: u64, minute: u64) {
    let ts = begin + minute * MINUTE;
    for (number, flow) in flows().into_iter().enumerate() {
        // Some are silent for a while.
        if !(number as u64 + minute).is_multiple_of(4) {
            batch.rollup(&Rollup {
                flow: Some(flow),
                ..rollup(rng, ts, Metric::FlowLatency)
            });
        }
    }
    for node in [0, 101, 102, 103] {
        let node = Some(node);
        batch.rollup(&Rollup {
            node,
            ..rollup(rng, ts, Metric::HopLatency)
        });
        let queue = Some(node.map_or(0, |node| node as u8) % 7);
        batch.rollup(&Rollup {
            node,
            queue,
            ..rollup(rng, ts, Metric::QueueOccupancy)
        });
        let interface = Some(2);
        batch.rollup(&Rollup {
            node,
            interface,
            ..rollup(rng, ts, Metric::LinkUtilization)
        });
        // Of a second: not a part of these.
        batch.rollup(&Rollup {
            node,
            interval: 1,
            ..rollup(rng, ts + SECOND, Metric::HopLatency)
        });
    }
    for (number, node) in [Some(101), Some(102), None].into_iter().enumerate() {
        let (ts, id) = (ts + number as u64, rng.roll());
        let flow = Some(flows()[number]);
        batch.drop_report(&Drop {
            ts,
            id,
            flow,
            tunnel: None,
            node,
            ingress_if: None,
            egress_if: Some(1),
            queue: None,
            reason: Some(71),
        });
        let source = [number as u8; 16];
        batch.loss(&Loss {
            ts,
            node,
            source,
            hw_id: 1,
            lost: 3 + minute,
            reordered: 0,
            duplicated: 0,
        });
    }
}

/// A store with events, rollups of minutes, states of flows, drops and losses that end two minutes ago.
fn filled(directory: &TempDir) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let begin = (now / MINUTE - MINUTES - 2) * MINUTE;
    let (mut rng, mut batch) = (Rng(7), Batch::with_capacity(20_000));
    for number in 0..EVENTS {
        let (event, path) = event(&mut rng, begin + number * MINUTES * MINUTE / EVENTS);
        batch.event(&event, &path);
        // Now and then a new flow with what the same report measured.
        if number.is_multiple_of(50) {
            let new = |metric, value| Event {
                kind: Kind::New,
                metric: Some(metric),
                value: Some(value),
                ts: event.ts + 1,
                id: number,
                flow: Some(flows()[number as usize / 50 % 18]),
                rule: None,
                ..event
            };
            batch.event(
                &Event {
                    node: None,
                    ..new(Metric::FlowPath, 3)
                },
                &[101, 102, 103],
            );
            batch.event(
                &Event {
                    node: Some(102),
                    ..new(Metric::HopLatency, 40 * number)
                },
                &[],
            );
            batch.event(
                &Event {
                    node: None,
                    ..new(Metric::FlowLatency, 70 * number)
                },
                &[],
            );
        }
    }
    (0..MINUTES).for_each(|minute| fill_minute(&mut rng, &mut batch, begin, minute));
    for (number, flow) in flows().into_iter().enumerate() {
        let basis = Basis::ALL[number % Basis::ALL.len()];
        let last_seen = begin + MINUTES * MINUTE - 1;
        let row = FlowRow {
            flow,
            flow_latency: Some(900),
            basis,
            first_seen: begin,
            last_seen,
            reports: 7,
        };
        batch.flow(&row, &[]);
    }
    keep(directory, batch);
    begin
}

/// Of both views.
pub(super) const TESTS: [&str; 28] = [
    "src in 10.0.0.0/16",
    "src == 2001:db8::7",
    "dst in (10.0.1.200, fd00::/8)",
    "dst != 10.0.1.200",
    "host in 10.0.2.0/24",
    "host in ::/0",
    "host in 0.0.0.0/0",
    "host != 10.0.1.200",
    "sport == 1003",
    "sport in (1000-1005, 443)",
    "sport != 1003",
    "dport < 443",
    "port >= 1009",
    "port == 0",
    "proto == udp",
    "proto != 6",
    "proto in (tcp, 58)",
    "flow ~ \"10.0.2\"",
    "flow ~ \"id:0x0000f10a\"",
    "node == 101",
    "node != 101",
    "node in (0, 102, 103)",
    "path ~ 101>*>103",
    "path ~ *>102",
    "path ~ ?>101>*",
    "hops > 2",
    "flow_latency > 5us",
    "flow_latency <= 3ms",
];

pub(super) const OF_EVENTS: [&str; 24] = [
    "interface == 0",
    "interface > 1",
    "interface != 2",
    "queue in (0, 3)",
    "queue < 2",
    "kind == new",
    "kind in (change, drop, mtu)",
    "kind != change",
    "metric == hop_latency",
    "metric != flow_path",
    "rule == slow",
    "rule ~ deep",
    "rule != slow",
    "rule == \"a 'deep' queue\\\"",
    "reason == 71",
    "reason != 71",
    "hop_latency > 30us",
    "hop_latency < 1ms",
    "queue_occupancy >= 300",
    "queue_congestion == 30000",
    "link_utilization > 10%",
    "not host in 10.0.0.0/8",
    "not (kind == new or node == 101)",
    "not rule == slow and not path ~ 101>*",
];

/// Tests, alone and in random conditions.
fn conditions(rng: &mut Rng, tests: &[&str], number: usize) -> Vec<String> {
    let mut conditions: Vec<String> = tests.iter().map(|&test| test.to_owned()).collect();
    let plain: Vec<&str> = tests.iter().copied().filter(|test| test.contains(' ')).collect();
    for _ in 0..number {
        let part = |rng: &mut Rng| {
            let test = plain[rng.below(plain.len())];
            if rng.below(3) == 0 {
                format!("not ({test})")
            } else {
                format!("({test})")
            }
        };
        let [first, second, third] = [part(rng), part(rng), part(rng)];
        let word = |rng: &mut Rng| if rng.below(2) == 0 { "and" } else { "or" };
        conditions.push(format!("({first} {} {second}) {} {third}", word(rng), word(rng)));
    }
    conditions
}

pub(super) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02x}")
            }
        })
        .collect()
}

/// Asks both; they answer alike. Returns the answer.
fn alike(servers: [&Server; 2], question: &str) -> Value {
    let [here, there] = servers.map(|server| server.get(&format!("/api/v1/{question}")));
    assert_eq!(
        (here.status, there.status),
        (200, 200),
        "{question}: {here:?} {there:?}"
    );
    let (here, there) = (here.json(), there.json());
    assert_eq!(times(&there, "events"), times(&here, "events"), "{question}");
    assert_eq!(rows(&there, "events"), rows(&here, "events"), "{question}");
    assert_eq!(there["next"], here["next"], "{question}");
    here
}

#[test]
fn filters_of_events_give_the_same_from_the_store_and_from_clickhouse() {
    let Some(engine) = ClickHouse::start(SECRET) else {
        return;
    };
    let (_directory, password) = password();
    let directory = TempDir::new();
    let begin = filled(&directory);
    let collector = of_store(directory, "c1", &engine, &password);
    prepare(&collector);
    drain(&collector);
    let console = console(&engine, &password, "");
    let servers = [&collector, &console];
    let middle = begin + MINUTES * MINUTE / 2;
    let mut rng = Rng(11);
    let of_events = conditions(&mut rng, &[&TESTS[..], &OF_EVENTS].concat(), 60);
    let found = of_events.iter().filter(|condition| {
        let answer = alike(
            servers,
            &format!("events?limit=10000&filter={}", escaped(condition)),
        );
        !answer["events"].as_array().unwrap().is_empty()
    });
    let found = found.count();
    assert!(
        found * 10 > of_events.len() * 9,
        "{found} of {} find something",
        of_events.len()
    );
    for condition in of_events[..20].iter().map(|condition| escaped(condition)) {
        alike(
            servers,
            &format!("events?limit=10000&from={begin}&before={middle}&filter={condition}"),
        );
        alike(
            servers,
            &format!("events?limit=7&before={middle}&filter={condition}"),
        );
    }
}

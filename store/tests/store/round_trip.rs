//! Records read back as written: every kind of record, every column.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Basis;
use collector::{Batch, Drop, Event, Kind, Loss, Output as _, Rollup};
use detect::Metric;
use store::{
    Config, EventFilter, EventRank, EventRow, FlowPoint, FlowState, QueryOptions, Reader, RecordFilter,
    ReportRow, RollupFilter, Store, Totals, Value,
};
use testkit::records::{
    Dir, SECOND, START, bare, change, drop_report, flow, flow_row, loss, odd_flows, rollup,
};

/// Writes `batch` and closes the store.
fn keep(dir: &Dir, batch: Batch) {
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.set_rules(vec!["slow".to_owned(), "full".to_owned()]);
    let records = batch.len() as u64;
    store.submit(batch);
    let stats = store.close();
    assert_eq!(
        (stats.submitted, stats.committed),
        (records, records),
        "{stats:?}"
    );
}

fn event_and_row(i: usize, kind: Kind) -> (Event, EventRow) {
    let n = i as u32;
    // The n-th event has a number where this bit of n is set.
    let [bit0, bit1, bit2, bit3] = [0, 1, 2, 3].map(|bit| (i >> bit & 1 == 1).then_some(n));
    let event = Event {
        ts: START + u64::from(n),
        id: u64::MAX - u64::from(n),
        kind,
        metric: Metric::ALL.get(i).copied(),
        flow: odd_flows().get(i).copied(),
        node: bit0,
        interface: bit1,
        queue: bit2.map(|n| n as u8),
        value: bit1.map(u64::from),
        previous: bit0.map(|n| u64::from(n) << 40),
        threshold: bit3.map(u64::from),
        rule: bit0.map(|_| u16::from(i % 4 == 1)),
        reason: bit2.map(|_| 255),
        basis: [
            Basis::Measured,
            Basis::HopSum,
            Basis::Corrected,
            Basis::Unsynchronised,
        ][i % 4],
    };
    let path = if i.is_multiple_of(3) {
        vec![101, u32::MAX, 103 + n]
    } else {
        Vec::new()
    };
    let rule = event
        .rule
        .map(|rule| ["slow", "full"][usize::from(rule)].to_owned());
    (
        event,
        EventRow {
            event: Event { rule: None, ..event },
            rule,
            path,
            first: None,
        },
    )
}

/// One event of each kind, each with different absent fields, and its expected row.
fn every_event() -> Vec<(Event, EventRow)> {
    Kind::ALL
        .into_iter()
        .enumerate()
        .map(|(i, kind)| event_and_row(i, kind))
        .collect()
}

/// The values of the latest events whose values are multiples of three.
fn thirds(reader: &Reader, limit: usize, before: Option<u64>) -> Vec<u64> {
    let filter = EventFilter {
        limit,
        before,
        ..EventFilter::default()
    };
    let (rows, stopped) = reader
        .events_where(&filter, |row| row.event.value.is_some_and(|value| value % 3 == 0))
        .unwrap();
    assert_eq!(stopped, None);
    rows.iter()
        .map(|row| row.event.value.unwrap())
        .collect::<Vec<u64>>()
}

#[test]
fn a_search_finds_all_that_is_wanted_also_among_events_of_one_time() {
    let dir = Dir::new("search");
    let mut batch = Batch::with_capacity(90_000);
    // 75,000 events of one time are more than any page of the search, and are in the middle of others.
    for i in 0..85_000 {
        let ts = START + if (5_000..80_000).contains(&i) { 5_000 } else { i };
        let event = change(ts, flow(1), 7, i);
        batch.event(&event, &[]);
    }
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let mut all = thirds(&reader, usize::MAX, None);
    assert_eq!(all[..3], [84_999, 84_996, 84_993]);
    all.sort_unstable();
    assert_eq!(all, (0..85_000).step_by(3).collect::<Vec<u64>>());
    assert_eq!(thirds(&reader, 2, None), [84_999, 84_996]);
    // In the middle of the events of one time.
    assert_eq!(thirds(&reader, 2_000, None).len(), 2_000);
    assert_eq!(thirds(&reader, 1, Some(START + 4)), [3]);
}

/// Pages of events until there are no more.
fn pages(filter: &EventFilter, mut page: impl FnMut(&EventFilter) -> Vec<EventRow>) -> Vec<u64> {
    let mut filter = *filter;
    let mut ids = Vec::new();
    loop {
        let rows = page(&filter);
        ids.extend(rows.iter().map(|row| row.event.id));
        match rows.last() {
            Some(last) if rows.len() == filter.limit => {
                filter.after = Some(EventRank::of_event(&last.event));
            }
            _ => return ids,
        }
    }
}

#[test]
fn pages_have_every_event_of_one_time_once() {
    let dir = Dir::new("pages");
    let mut batch = Batch::with_capacity(4_096);
    let id = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 0..3_000 {
        let ts = START + if (200..2_700).contains(&n) { 5_000 } else { n };
        let event = Event {
            id: id(n),
            kind: Kind::PacketLoss,
            ..change(ts, flow(n as u32), 7, n)
        };
        batch.event(&event, &[]);
    }
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let mut all: Vec<u64> = (0..3_000).map(id).collect();
    all.sort_unstable();
    let kinds = [None, Some(Kind::PacketLoss)];
    for (limit, kind) in [7, 200, 1_000, 4_000].into_iter().zip(kinds.into_iter().cycle()) {
        let filter = EventFilter {
            limit,
            kind,
            ..EventFilter::default()
        };
        let mut plain = pages(&filter, |filter| reader.events(filter).unwrap());
        let searched = pages(&filter, |filter| reader.events_where(filter, |_| true).unwrap().0);
        assert_eq!(plain, searched, "pages of {limit}");
        plain.sort_unstable();
        assert_eq!(plain, all, "pages of {limit}");
    }
}

#[test]
fn every_kind_of_event_comes_back_as_it_was() {
    let dir = Dir::new("events");
    let mut batch = Batch::with_capacity(64);
    for (event, row) in every_event() {
        batch.event(&event, &row.path);
    }
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let mut expected: Vec<EventRow> = every_event().into_iter().map(|(_, row)| row).collect();
    let mut found = reader.events(&EventFilter::default()).unwrap();
    found.reverse();
    assert_eq!(found, expected);

    // Each filter alone gives what it describes.
    expected.reverse();
    let check = |filter: EventFilter, matches: &dyn Fn(&Event) -> bool| {
        let expected: Vec<&EventRow> = expected.iter().filter(|row| matches(&row.event)).collect();
        assert!(!expected.is_empty());
        assert_eq!(
            reader.events(&filter).unwrap().iter().collect::<Vec<_>>(),
            expected,
            "{filter:?}"
        );
    };
    let all = EventFilter::default();
    check(
        EventFilter {
            kind: Some(Kind::Loss),
            ..all
        },
        &|event| event.kind == Kind::Loss,
    );
    check(EventFilter { node: Some(5), ..all }, &|event| {
        event.node == Some(5)
    });
    check(
        EventFilter {
            metric: Some(Metric::HopLatency),
            ..all
        },
        &|event| event.metric == Some(Metric::HopLatency),
    );
    for flow in odd_flows() {
        check(
            EventFilter {
                flow: Some(flow),
                ..all
            },
            &|event| event.flow == Some(flow),
        );
    }
    check(
        EventFilter {
            from: Some(START + 3),
            before: Some(START + 6),
            ..all
        },
        &|event| (START + 3..START + 6).contains(&event.ts),
    );
}

#[test]
fn rollups_come_back_as_they_were() {
    let dir = Dir::new("rollups");
    let first = rollup(START, 7);
    let of_flow = Rollup {
        flow: Some(flow(3)),
        node: None,
        queue: None,
        p50: None,
        p99: None,
        ..rollup(START + SECOND, 1)
    };
    let of_minute = Rollup {
        interval: 60,
        interface: Some(u32::MAX),
        metric: Metric::LinkUtilization,
        ..first
    };
    let mut batch = Batch::with_capacity(64);
    [first, of_flow, of_minute]
        .iter()
        .for_each(|rollup| batch.rollup(rollup));
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let only = |filter: RollupFilter| reader.rollups(&filter).unwrap();
    let all = RollupFilter::default();
    let mut found = only(all);
    found.sort_by_key(|rollup| (rollup.ts, rollup.interval));
    assert_eq!(found, [first, of_minute, of_flow]);
    assert_eq!(
        only(RollupFilter {
            node: Some(7),
            interval: Some(1),
            ..all
        }),
        [first]
    );
    assert_eq!(
        only(RollupFilter {
            flow: Some(flow(3)),
            ..all
        }),
        [of_flow]
    );
    assert_eq!(
        only(RollupFilter {
            interface: Some(u32::MAX),
            ..all
        }),
        [of_minute]
    );
    assert_eq!(
        only(RollupFilter {
            metric: Some(Metric::LinkUtilization),
            ..all
        }),
        [of_minute]
    );
    let range = RollupFilter {
        from: Some(START),
        to: Some(START),
        ..all
    };
    assert_eq!(
        only(RollupFilter {
            queue: Some(3),
            interval: Some(60),
            ..range
        }),
        [of_minute]
    );
    assert_eq!(only(RollupFilter { limit: 1, ..all }), [of_flow]);
}

#[test]
fn drops_losses_and_flows_come_back_as_they_were() {
    let dir = Dir::new("others");
    let known = Drop {
        tunnel: Some(flow(2)),
        ..drop_report(START, 1)
    };
    let unknown = Drop {
        ts: START + 1,
        id: 2,
        flow: None,
        tunnel: None,
        node: None,
        ingress_if: None,
        egress_if: None,
        queue: None,
        reason: None,
    };
    let v6: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
    let losses = [
        loss(START, Some(5)),
        Loss {
            source: v6,
            lost: 0,
            ..loss(START + 1, None)
        },
    ];
    let mut batch = Batch::with_capacity(64);
    [known, unknown].iter().for_each(|drop| batch.drop_report(drop));
    losses.iter().for_each(|loss| batch.loss(loss));
    batch.flow(&flow_row(flow(1), START + 1), &[1, 2]);
    batch.flow(&flow_row(flow(2), START + 2), &[]);
    // The latest state replaces the one before and keeps the path when it has none.
    batch.flow(&flow_row(flow(1), START + 3), &[]);
    keep(&dir, batch);

    let reader = Reader::open(dir.path()).unwrap();
    let any = RecordFilter::default();
    assert_eq!(reader.drops(&any).unwrap(), [unknown, known]);
    assert_eq!(
        reader.drops(&RecordFilter { node: Some(1), ..any }).unwrap(),
        [known]
    );
    assert_eq!(
        reader
            .drops(&RecordFilter {
                flow: Some(flow(1)),
                ..any
            })
            .unwrap(),
        [known]
    );
    assert_eq!(reader.losses(&any).unwrap(), [losses[1], losses[0]]);
    assert_eq!(
        reader.losses(&RecordFilter { node: Some(5), ..any }).unwrap(),
        [losses[0]]
    );
    let first = FlowState {
        row: flow_row(flow(1), START + 3),
        path: vec![1, 2],
    };
    let second = FlowState {
        row: flow_row(flow(2), START + 2),
        path: vec![],
    };
    assert_eq!(reader.flows(None, 10).unwrap(), [first.clone(), second]);
    assert_eq!(reader.flows(Some(&flow(1)), 10).unwrap(), [first]);
    let totals = reader.totals().unwrap();
    let from = Some(START);
    let to = Some(START + 3);
    let expected = Totals {
        files: 1,
        bytes: totals.bytes,
        from,
        to,
        flows: 2,
        drops: 2,
        losses: 2,
        ..Totals::default()
    };
    assert_eq!(totals, expected);
    assert!(totals.bytes > 8192);
}

fn sqlite_text(text: &str) -> rusqlite::types::Value {
    rusqlite::types::Value::Text(text.to_owned())
}

#[test]
fn the_documented_names_are_there_and_readable_by_any_tool() {
    let dir = Dir::new("names");
    let mut batch = Batch::with_capacity(64);
    let event = Event {
        rule: Some(1),
        ..change(START, flow(7), 101, 5)
    };
    batch.event(&event, &[101, 102]);
    keep(&dir, batch);
    // A plain SQLite connection, without functions of hopwise.
    let conn = rusqlite::Connection::open(dir.path().join("hopwise-2026-11-21.db")).unwrap();
    let mut select = conn.prepare("SELECT * FROM events").unwrap();
    let names: Vec<String> = select.column_names().map(str::to_owned).collect();
    let row: Vec<rusqlite::types::Value> = select
        .query_row([], |row| (0..names.len()).map(|i| row.get(i)).collect())
        .unwrap();
    use rusqlite::types::Value::{Integer, Null};
    let expected = [
        ("ts", Integer(START as i64)),
        ("kind", sqlite_text("change")),
        ("metric", sqlite_text("hop_latency")),
        ("flow", sqlite_text("10.0.0.7:5000>172.16.0.1:80/17")),
        ("src", sqlite_text("10.0.0.7")),
        ("dst", sqlite_text("172.16.0.1")),
        ("sport", Integer(5000)),
        ("dport", Integer(80)),
        ("proto", Integer(17)),
        ("node", Integer(101)),
        ("interface", Null),
        ("queue", Null),
        ("value", Integer(5)),
        ("previous", Integer(2)),
        ("threshold", Integer(1000)),
        ("rule", sqlite_text("full")),
        ("path", sqlite_text("101>102")),
        ("reason", Null),
        ("basis", sqlite_text("measured")),
        ("id", sqlite_text(&format!("{:016x}", event.id))),
        ("flow_latency", Null),
        ("latency_basis", Null),
        ("hop_latencies", Null),
    ];
    let found: Vec<(&str, rusqlite::types::Value)> = names.iter().map(String::as_str).zip(row).collect();
    assert_eq!(found, expected);
}

fn point(ts: u64, latency: u64, basis: Basis, hops: &[(u32, u64)]) -> FlowPoint {
    FlowPoint {
        ts: START + ts,
        flow_latency: Some(latency),
        basis,
        hops: hops.to_vec(),
    }
}

fn path_event(ts: u64, kind: Kind) -> Event {
    Event {
        kind,
        ..flow_event(ts, Metric::FlowPath, None, 2)
    }
}

fn flow_event(ts: u64, metric: Metric, node: Option<u32>, value: u64) -> Event {
    Event {
        metric: Some(metric),
        flow: Some(flow(1)),
        node,
        value: Some(value),
        ..bare(START + ts)
    }
}

#[test]
fn a_flows_history_holds_what_was_last_reported() {
    let dir = Dir::new("history");
    let mut batch = Batch::with_capacity(64);
    batch.event(&path_event(0, Kind::New), &[2, 1]);
    batch.event(&flow_event(0, Metric::FlowLatency, None, 30), &[]);
    batch.event(&flow_event(0, Metric::HopLatency, Some(1), 10), &[]);
    batch.event(&flow_event(0, Metric::HopLatency, Some(2), 20), &[]);
    batch.event(
        &Event {
            threshold: Some(50),
            ..flow_event(5, Metric::HopLatency, Some(2), 90)
        },
        &[],
    );
    batch.event(&path_event(5, Kind::Latest), &[2, 1]);
    let slower = flow_event(9, Metric::FlowLatency, None, 100);
    batch.event(
        &Event {
            basis: Basis::HopSum,
            threshold: Some(60),
            ..slower
        },
        &[],
    );
    batch.event(&path_event(9, Kind::PathChange), &[1, 3]);
    batch.event(
        &Event {
            flow: Some(flow(2)),
            ..flow_event(9, Metric::FlowLatency, None, 1)
        },
        &[],
    );
    batch.event(
        &Event {
            kind: Kind::RuleOn,
            ..flow_event(10, Metric::FlowLatency, None, 1)
        },
        &[],
    );
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let history = reader.history(&flow(1), None, None, 100).unwrap();
    let series = [
        point(0, 30, Basis::Measured, &[(2, 20), (1, 10)]),
        point(5, 30, Basis::Measured, &[(2, 90), (1, 10)]),
        point(9, 100, Basis::HopSum, &[(1, 10)]),
    ];
    assert_eq!(history.series, series);
    assert_eq!(history.paths, [(START, vec![2, 1]), (START + 9, vec![1, 3])]);
    assert_eq!((history.threshold, history.truncated), (50, false));
    let last = reader.history(&flow(1), None, None, 1).unwrap();
    assert_eq!((last.series, last.truncated), (series[2..].to_vec(), true));
}

#[test]
fn an_empty_store_answers_with_no_rows_and_the_columns() {
    let dir = Dir::new("empty");
    let reader = Reader::open(dir.path()).unwrap();
    let table = reader
        .query("SELECT ts, kind FROM events", &QueryOptions::default())
        .unwrap();
    assert_eq!(
        (table.columns, table.rows),
        (vec!["ts".to_owned(), "kind".to_owned()], vec![])
    );
    let count = reader
        .query("SELECT count(*) FROM reports", &QueryOptions::default())
        .unwrap();
    assert_eq!(count.rows, [[Value::Int(0)]]);
    assert_eq!(reader.totals().unwrap(), Totals::default());
}

/// The columns of `reports` in the order of the documentation, for one hop of a report; `None` is NULL.
fn report_columns(reader: &Reader) -> Vec<Vec<Value>> {
    let sql = "SELECT ts, source, version, reporter, hw_id, sequence, flags, report_type, drop_reason, flow, path, hop, \
               node, ingress_if, egress_if, hop_latency, queue, queue_occupancy, ingress_ts, egress_ts, l2_ingress_if, \
               l2_egress_if, tx_utilization, buffer, buffer_occupancy, latency FROM reports ORDER BY ts, hop";
    reader.query(sql, &QueryOptions::default()).unwrap().rows
}

/// A dropped packet's report, with one hop that has all fields and one that has none.
fn report() -> ReportRow {
    use wire::report::Flags;
    let first = wire::Hop {
        node_id: Some(101),
        ingress_if: Some(1),
        egress_if: Some(2),
        hop_latency: Some(3),
        queue_id: Some(4),
        queue_occupancy: Some(5),
        ingress_ts: Some(6),
        egress_ts: Some(7),
        l2_ingress_if: Some(8),
        l2_egress_if: Some(9),
        tx_utilization: Some(10),
        buffer_id: Some(11),
        buffer_occupancy: Some(12),
        ..wire::Hop::default()
    };
    ReportRow {
        ts: START,
        source: std::net::Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets(),
        version: "2.0",
        node: Some(103),
        hw_id: 1,
        seq: 99,
        flags: Flags(Flags::DROP.0 | Flags::FLOW.0),
        report_type: Some(0),
        drop_reason: Some(71),
        flow: Some(flow(1)),
        hops: vec![first, wire::Hop::default()],
        latencies: vec![Some(13), None],
        is_path: true,
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn time_and_source(ts: i64) -> Vec<Value> {
    vec![Value::Int(ts), text("192.0.2.7"), text("2.0")]
}

#[test]
fn every_report_is_kept_hop_by_hop_when_that_is_asked_for() {
    let report = report();
    let bare = ReportRow {
        ts: START + 1,
        node: None,
        flags: wire::report::Flags(0),
        report_type: None,
        drop_reason: None,
        flow: None,
        hops: vec![],
        latencies: vec![],
        ..report.clone()
    };
    let dir = Dir::new("reports");
    let store = Store::open(Config {
        reports_table: true,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.submit_reports(vec![report.clone(), bare]);
    let stats = store.close();
    assert_eq!((stats.submitted, stats.committed), (2, 2));
    let shared = [
        Value::Int(103),
        Value::Int(1),
        Value::Int(99),
        text("drop,flow"),
        Value::Int(0),
        Value::Int(71),
        text(&flow(1).to_string()),
        text("101>?"),
    ];
    let expected = [
        [
            time_and_source(START as i64),
            shared.to_vec(),
            vec![Value::Int(0), Value::Int(101)],
            (1..=13).map(Value::Int).collect(),
        ]
        .concat(),
        [
            time_and_source(START as i64),
            shared.to_vec(),
            vec![Value::Int(1)],
            vec![Value::Null; 14],
        ]
        .concat(),
        [
            time_and_source(START as i64 + 1),
            vec![Value::Null],
            vec![Value::Int(1), Value::Int(99), text("")],
            vec![Value::Null; 19],
        ]
        .concat(),
    ];
    assert_eq!(report_columns(&Reader::open(dir.path()).unwrap()), expected);

    // Off by default: accepted, and not stored.
    let dir = Dir::new("no-reports");
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit_reports(vec![report]);
    assert_eq!(store.close().submitted, 0);
}

#[test]
fn drops_of_a_file_of_version_7_are_read_beside_others() {
    let dir = Dir::new("version-7");
    let of = |ts, tunnel| Drop {
        tunnel,
        ..drop_report(ts, 1)
    };
    let keep_drop = |drop: Drop| {
        let mut batch = Batch::with_capacity(4);
        batch.drop_report(&drop);
        keep(&dir, batch);
    };
    keep_drop(of(START, Some(flow(2))));
    let found = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().path());
    let path = found
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "db"))
        .unwrap();
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(
        "DROP VIEW drops; ALTER TABLE drop_data DROP COLUMN tunnel; PRAGMA user_version = 7;
         CREATE VIEW drops AS
         SELECT e.ts, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.ingress_if, e.egress_if, e.queue, e.reason,
                printf('%016x', e.id) AS id
         FROM drop_data e LEFT JOIN flow_key f ON f.id = e.flow",
    )
    .unwrap();
    conn.close().unwrap();
    keep_drop(of(START + 1, Some(flow(2))));
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(
        reader.drops(&RecordFilter::default()).unwrap(),
        [of(START + 1, Some(flow(2))), of(START, None)]
    );
}

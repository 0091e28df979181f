//! New flows as one record: stored, read back, and beside files of the version before.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Basis;
use collector::{Batch, Event, Kind, Output as _};
use detect::Metric;
use store::{Config, EventFilter, FirstRow, QueryOptions, Reader, Store, Value};
use testkit::records::{Dir, SECOND, START, bare, flow};

/// The view of version 1.
const EVENTS_1: &str = "CREATE VIEW events AS
    SELECT e.ts, k.kind, m.metric, f.flow, f.src, f.dst, f.sport, f.dport, f.proto, e.node, e.interface, e.queue,
           e.value, e.previous, e.threshold, r.rule, p.path, e.reason, b.basis, printf('%016x', e.id) AS id
    FROM event_data e
    LEFT JOIN metric_name m ON m.id = e.metric
    LEFT JOIN kind_name k ON k.id = e.kind
    LEFT JOIN flow_key f ON f.id = e.flow
    LEFT JOIN rule_text r ON r.id = e.rule
    LEFT JOIN path_text p ON p.id = e.path
    LEFT JOIN basis_name b ON b.id = e.basis;";

fn flow_event(number: u32, kind: Kind, metric: Metric, value: u64, ts: u64) -> Event {
    Event {
        kind,
        metric: Some(metric),
        value: Some(value),
        flow: Some(flow(number)),
        ..bare(ts)
    }
}

/// The events of a new flow with three hops, and of a change five seconds later.
fn new_flow(number: u32, ts: u64) -> Batch {
    let mut batch = Batch::with_capacity(64);
    batch.event(
        &flow_event(number, Kind::New, Metric::FlowPath, 3, ts),
        &[1, 2, 3],
    );
    for (node, latency) in [(1, 100), (3, 300)] {
        batch.event(
            &Event {
                node: Some(node),
                ..flow_event(number, Kind::New, Metric::HopLatency, latency, ts)
            },
            &[],
        );
    }
    batch.event(
        &Event {
            basis: Basis::HopSum,
            ..flow_event(number, Kind::New, Metric::FlowLatency, 400, ts)
        },
        &[],
    );
    let change = flow_event(number, Kind::Change, Metric::HopLatency, 900, ts + 5 * SECOND);
    batch.event(
        &Event {
            node: Some(3),
            previous: Some(300),
            ..change
        },
        &[],
    );
    batch
}

fn keep(dir: &Dir, batch: Batch) {
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(batch);
    store.close();
}

#[test]
fn a_new_flow_is_one_record_with_its_first_values() {
    let dir = Dir::new("first");
    let batch = new_flow(1, START);
    assert_eq!(batch.len(), 2);
    keep(&dir, batch);
    let reader = Reader::open(dir.path()).unwrap();
    let mut events = reader.events(&EventFilter::default()).unwrap();
    let new = events.pop().unwrap();
    let first = FirstRow {
        flow_latency: Some(400),
        basis: Basis::HopSum,
        hop_latencies: vec![100, u32::MAX, 300],
    };
    assert_eq!((new.path, new.first), (vec![1, 2, 3], Some(first)));
    assert_eq!((events[0].event.kind, &events[0].first), (Kind::Change, &None));
    let history = reader.history(&flow(1), None, None, 10).unwrap();
    let points: Vec<_> = history
        .series
        .iter()
        .map(|point| (point.flow_latency, point.basis, point.hops.clone()))
        .collect();
    let expected = [300, 900].map(|last| (Some(400), Basis::HopSum, vec![(1, 100), (3, last)]));
    assert_eq!(points, expected);
    let sql = "SELECT flow_latency, latency_basis, hop_latencies FROM events WHERE kind = 'new'";
    let table = reader.query(sql, &QueryOptions::default()).unwrap();
    let [basis, hops] = ["hop_sum", "100>?>300"].map(|text| Value::Text(text.to_owned()));
    assert_eq!(table.rows, [[Value::Int(400), basis, hops]]);
}

/// The new flows in the store, and whether they have first values.
fn new_flows(dir: &Dir) -> Vec<(wire::FlowKey, bool)> {
    let reader = Reader::open(dir.path()).unwrap();
    let events = reader
        .events(&EventFilter {
            kind: Some(Kind::New),
            ..EventFilter::default()
        })
        .unwrap();
    events
        .into_iter()
        .map(|row| (row.event.flow.unwrap(), row.first.is_some()))
        .collect::<Vec<_>>()
}

#[test]
fn a_file_of_version_1_is_read_beside_others_and_left_as_it_is() {
    let dir = Dir::new("version-1");
    keep(&dir, new_flow(1, START));
    let path = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().path());
    let path = path
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "db"))
        .unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("DROP TABLE span_data; DROP TABLE taken_data; DROP TABLE minute_data; DROP TABLE block_data; DROP VIEW recordings; DROP TABLE recording_data; DROP VIEW events; DROP TABLE first_data; DROP TABLE run_data; ALTER TABLE flow_data DROP COLUMN number;
         PRAGMA user_version = 1",
    ).unwrap();
    conn.execute_batch(EVENTS_1).unwrap();
    conn.close().unwrap();
    assert_eq!(new_flows(&dir), [(flow(1), false)]);
    let recordings =
        Reader::open(dir.path())
            .unwrap()
            .recordings(0, u64::MAX, collector::Location::default(), 10);
    assert_eq!(recordings.unwrap(), []);
    // The next day, in a file of its own.
    keep(&dir, new_flow(2, START + 86_400 * SECOND));
    assert_eq!(new_flows(&dir), [(flow(2), true), (flow(1), false)]);
    // The old day again: beside the old file.
    keep(&dir, new_flow(3, START + SECOND));
    assert_eq!(
        new_flows(&dir),
        [(flow(2), true), (flow(3), true), (flow(1), false)]
    );
}

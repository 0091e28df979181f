//! The history of a flow over a time that begins long after its values were stored: they are stored when they change.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Nanos;
use collector::{Batch, Event, Kind, Output as _};
use detect::Metric;
use store::{Config, FlowHistory, Period, Reader, Store};
use testkit::records::{Dir, SECOND, START, bare, flow};

const MINUTE: Nanos = 60 * SECOND;

fn event(ts: Nanos, kind: Kind, metric: Metric, node: Option<u32>, value: u64) -> Event {
    Event {
        kind,
        metric: Some(metric),
        flow: Some(flow(1)),
        node,
        value: Some(value),
        ..bare(ts)
    }
}

fn hop(batch: &mut Batch, ts: Nanos, kind: Kind, node: u32, value: u64) {
    batch.event(&event(ts, kind, Metric::HopLatency, Some(node), value), &[]);
}

/// A new flow with hop latencies of its nodes.
fn begin(batch: &mut Batch, ts: Nanos, hops: &[(u32, u64)]) {
    let path: Vec<u32> = hops.iter().map(|(node, _)| *node).collect();
    batch.event(
        &event(ts, Kind::New, Metric::FlowPath, None, path.len() as u64),
        &path,
    );
    for (node, value) in hops {
        hop(batch, ts, Kind::New, *node, *value);
    }
    batch.event(&event(ts, Kind::New, Metric::FlowLatency, None, 600), &[]);
}

/// The latest value that is stored at intervals.
fn latest(batch: &mut Batch, ts: Nanos, path: &[u32]) {
    batch.event(&event(ts, Kind::Latest, Metric::FlowLatency, None, 600), path);
}

/// Stores events in hourly files.
fn kept(name: &str, batches: Vec<Batch>) -> Dir {
    let dir = Dir::new(name);
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
    for batch in batches {
        store.submit(batch);
    }
    store.close();
    dir
}

fn history(dir: &Dir, from: Nanos, to: Nanos) -> FlowHistory {
    let reader = Reader::open(dir.path()).unwrap();
    let found = reader.history(&flow(1), Some(from), Some(to), 1_000).unwrap();
    assert_eq!(reader.notes(), [] as [String; 0]);
    found
}

fn batch() -> Batch {
    Batch::with_capacity(1024)
}

#[test]
fn values_that_did_not_change_hold_hours_later() {
    let hour = 60 * MINUTE;
    let path = [101, 102, 103];
    let mut batches = vec![batch()];
    begin(
        &mut batches[0],
        START,
        &[(101, 1_010), (102, 1_020), (103, 1_030)],
    );
    for minute in 1..180 {
        if minute % 60 == 0 {
            batches.push(batch());
        }
        let batch = batches.last_mut().unwrap();
        latest(batch, START + minute * MINUTE, &path);
        // Node 102 is slow every other minute.
        let value = if minute % 2 == 1 { 501_020 } else { 1_020 };
        hop(batch, START + minute * MINUTE + 7, Kind::Change, 102, value);
    }
    let dir = kept("history-old", batches);
    for first in [30, 70, 150] {
        let found = history(&dir, START + first * MINUTE, START + (first + 15) * MINUTE);
        assert_eq!(found.series.len(), 31);
        for point in &found.series {
            let [(101, 1_010), (102, slow), (103, 1_030)] = point.hops[..] else {
                panic!("{first}: {point:?}");
            };
            let minute = (point.ts - 7 - START) / MINUTE;
            assert_eq!(slow > 500_000, minute % 2 == 1, "{minute}");
        }
        assert_eq!(found.paths.len(), 1);
        assert_eq!(found.paths[0].1, path);
    }
    // At the beginning, nothing is earlier.
    let found = history(&dir, START, START + MINUTE);
    assert_eq!((found.before, found.paths), (None, vec![(START, path.to_vec())]));
    // If only the latest points fit, older values hold, too.
    let reader = Reader::open(dir.path()).unwrap();
    let found = reader.history(&flow(1), None, None, 5).unwrap();
    assert_eq!((found.series.len(), found.truncated), (5, true));
    assert!(
        found.series.iter().all(|point| point.hops.len() == 3),
        "{found:?}"
    );
    // Without any event in the time, the state before it remains.
    let found = history(&dir, START + 5 * hour, START + 6 * hour);
    let before = found.before.unwrap();
    assert_eq!((found.series.len(), before.ts), (0, START + 179 * MINUTE + 7));
    assert_eq!(before.hops, [(101, 1_010), (102, 501_020), (103, 1_030)]);
}

#[test]
fn values_of_an_earlier_flow_or_path_do_not_hold() {
    let mut one = batch();
    begin(&mut one, START, &[(1, 100), (2, 200), (3, 300)]);
    // Node 2 leaves the path, and comes back without a latency.
    for (minute, path) in [(10, [1, 4, 3]), (20, [1, 2, 3])] {
        let changed = event(
            START + minute * MINUTE,
            Kind::PathChange,
            Metric::FlowPath,
            None,
            3,
        );
        one.event(&changed, &path);
    }
    hop(&mut one, START + 10 * MINUTE, Kind::New, 4, 400);
    latest(&mut one, START + 30 * MINUTE, &[1, 2, 3]);
    latest(&mut one, START + 41 * MINUTE, &[1, 2, 3]);
    // The flow ends; later there is another of the same key.
    let end = event(START + 50 * MINUTE, Kind::Expired, Metric::FlowPath, None, 3);
    one.event(&end, &[1, 2, 3]);
    let mut two = batch();
    begin(&mut two, START + 100 * MINUTE, &[(3, 310)]);
    latest(&mut two, START + 110 * MINUTE, &[3]);
    latest(&mut two, START + 130 * MINUTE, &[3]);
    let dir = kept("history-path", vec![one, two]);
    let hops = |from: Nanos| {
        let found = history(&dir, START + from * MINUTE, START + 140 * MINUTE);
        let hops = found.series.into_iter().next().map(|point| point.hops);
        (hops, found.paths)
    };
    let (known, paths) = hops(15);
    assert_eq!(known, Some(vec![(1, 100), (3, 300)]));
    assert_eq!(
        paths[..2],
        [
            (START + 10 * MINUTE, vec![1, 4, 3]),
            (START + 20 * MINUTE, vec![1, 2, 3])
        ]
    );
    let (known, paths) = hops(40);
    assert_eq!(known, Some(vec![(1, 100), (3, 300)]));
    assert_eq!(paths[0], (START + 20 * MINUTE, vec![1, 2, 3]));
    let (known, paths) = hops(60);
    assert_eq!(
        (known, paths),
        (Some(vec![(3, 310)]), vec![(START + 100 * MINUTE, vec![3])])
    );
    let (known, paths) = hops(120);
    assert_eq!(
        (known, paths),
        (Some(vec![(3, 310)]), vec![(START + 100 * MINUTE, vec![3])])
    );
    let found = history(&dir, START + 60 * MINUTE, START + 90 * MINUTE);
    assert_eq!((found.before, found.paths.len()), (None, 0));
}

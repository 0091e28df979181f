//! Reading in the order of the commits: each record once, whatever happens to the files.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Stream;
use collector::{Batch, Output as _};
use detect::Metric;
use store::{Chunk, Config, Follower, Period, Store, StoredRecord, StreamPosition};
use testkit::records::{
    Dir, SECOND, START, bare, change, changes, drop_report, flow, flow_row, loss, odd_flows, rollup,
};
use testkit::rng::Rng;

const HOUR: u64 = 3600 * SECOND;
const ALL: usize = usize::MAX;

fn open(dir: &Dir, period: Period) -> Store {
    Store::open(Config {
        period,
        ..Config::new(dir.path())
    })
    .unwrap()
}

fn keep(store: &Store, batch: Batch) {
    store.submit(batch);
    store.flush();
}

fn all(follower: &mut Follower, stream: Stream, from: StreamPosition) -> Chunk {
    let chunk = follower.read(stream, from, None, ALL, ALL).unwrap();
    assert!(chunk.is_last);
    chunk
}

/// The values of events.
fn values(chunk: &Chunk) -> Vec<u64> {
    chunk
        .records
        .iter()
        .map(|record| match record {
            StoredRecord::Event(event) => event.event.value.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn numbered(ts: u64, values: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::with_capacity(50_000);
    for value in values {
        batch.event(&change(ts, flow(1), 101, value), &[]);
    }
    batch
}

#[test]
fn records_of_every_kind_read_back_as_they_were_stored() {
    let dir = Dir::new("follower-kinds");
    let store = open(&dir, Period::Day);
    let mut batch = Batch::with_capacity(64);
    let mut expected: [Vec<StoredRecord>; 5] = Default::default();
    for (n, flow) in odd_flows().into_iter().enumerate() {
        let ts = START + SECOND - n as u64;
        let mut event = change(ts, flow, 101, 7 + n as u64);
        event.metric = Some(Metric::ALL[n]);
        let path = [1, u32::MAX, 3];
        batch.event(&event, &path[..n.min(3)]);
        let row = store::EventRow {
            event,
            rule: None,
            path: path[..n.min(3)].to_vec(),
            first: None,
        };
        expected[0].push(StoredRecord::Event(row));
        let one = collector::Rollup {
            flow: Some(flow),
            ..rollup(ts, 5)
        };
        batch.rollup(&one);
        expected[1].push(StoredRecord::Rollup(one, 0));
        let row = flow_row(flow, ts);
        batch.flow(&row, &path);
        expected[2].push(StoredRecord::Flow(store::FlowState {
            row,
            path: path.to_vec(),
        }));
        let one = collector::Drop {
            flow: Some(flow),
            ..drop_report(ts, 9)
        };
        batch.drop_report(&one);
        expected[3].push(StoredRecord::Drop(one));
        let one = loss(ts, (n > 1).then_some(3));
        batch.loss(&one);
        expected[4].push(StoredRecord::Loss(one, 0));
    }
    let empty = bare(START);
    batch.event(&empty, &[]);
    let row = store::EventRow {
        event: empty,
        rule: None,
        path: Vec::new(),
        first: None,
    };
    expected[0].push(StoredRecord::Event(row));
    keep(&store, batch);
    let mut follower = Follower::new(dir.path());
    for (stream, mut expected) in Stream::ALL.into_iter().zip(expected) {
        let chunk = all(&mut follower, stream, StreamPosition::default());
        // Each rollup and each loss has a number of its own, also after a count of other files.
        for (one, at) in expected.iter_mut().zip(chunk.end.base..) {
            if let StoredRecord::Rollup(_, number) | StoredRecord::Loss(_, number) = one {
                *number = at;
            }
        }
        assert_eq!(chunk.records, expected, "{}", stream.name());
        assert!(chunk.end.base > 0);
    }
}

#[test]
fn rules_and_first_values_come_with_their_events() {
    let dir = Dir::new("follower-first");
    let store = open(&dir, Period::Day);
    store.set_rules(vec!["slow".to_owned()]);
    let mut batch = Batch::with_capacity(64);
    let path = collector::Event {
        kind: collector::Kind::New,
        metric: Some(Metric::FlowPath),
        flow: Some(flow(1)),
        value: Some(2),
        ..bare(START)
    };
    batch.event(&path, &[7, 8]);
    let latency = collector::Event {
        metric: Some(Metric::FlowLatency),
        value: Some(99),
        ..path
    };
    batch.event(&latency, &[]);
    batch.event(
        &collector::Event {
            rule: Some(0),
            ..change(START, flow(1), 1, 3)
        },
        &[],
    );
    keep(&store, batch);
    let chunk = all(
        &mut Follower::new(dir.path()),
        Stream::Events,
        StreamPosition::default(),
    );
    let [StoredRecord::Event(new), StoredRecord::Event(fired)] = &chunk.records[..] else {
        panic!("{chunk:?}")
    };
    assert_eq!(
        (&new.path[..], new.first.as_ref().unwrap().flow_latency),
        (&[7, 8][..], Some(99))
    );
    assert_eq!((fired.rule.as_deref(), &fired.first), (Some("slow"), &None));
}

#[test]
fn each_record_is_read_once_in_the_order_of_the_commits() {
    for seed in 0..12 {
        let mut rng = Rng(seed);
        let dir = Dir::new("follower-order");
        let mut store = open(&dir, Period::Hour);
        let mut follower = Follower::new(dir.path());
        let mut at = StreamPosition::default();
        let mut found = Vec::new();
        let mut next = 0;
        for _ in 0..40 {
            match rng.below(8) {
                // Also into files of hours before, and one that is begun later.
                0..=3 => {
                    let hour = rng.below(4) as u64;
                    let count = [1, 7, 500, 9_000][rng.below(4)];
                    let ts = START + hour * HOUR + rng.below(1000) as u64;
                    store.submit(numbered(ts, next..next + count));
                    next += count;
                }
                4 => store.flush(),
                5 => {
                    store.close();
                    store = open(&dir, Period::Hour);
                    follower = Follower::new(dir.path());
                }
                _ => {
                    let most = [1, 100, 3_000][rng.below(3)];
                    let chunk = follower.read(Stream::Events, at, None, most, ALL).unwrap();
                    assert!(chunk.records.len() <= most);
                    assert_eq!((chunk.expired, chunk.restarted), (0, false), "seed {seed}");
                    // The same place gives the same records again.
                    let mut other = Follower::new(dir.path());
                    let reader = if rng.below(2) == 0 {
                        &mut follower
                    } else {
                        &mut other
                    };
                    let again = reader.read(Stream::Events, at, Some(chunk.end), 1, 1).unwrap();
                    assert_eq!(
                        (&again.records, again.end),
                        (&chunk.records, chunk.end),
                        "seed {seed}"
                    );
                    found.extend(values(&chunk));
                    at = chunk.end;
                }
            }
        }
        store.flush();
        let chunk = all(&mut follower, Stream::Events, at);
        assert_eq!(chunk.end, follower.end(Stream::Events).unwrap());
        found.extend(values(&chunk));
        assert_eq!(found, (0..next).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn what_was_deleted_is_counted() {
    let dir = Dir::new("follower-expired");
    let store = open(&dir, Period::Hour);
    for hour in 0..4 {
        keep(&store, changes(START + hour * HOUR, 100, 10));
    }
    let mut follower = Follower::new(dir.path());
    let first = follower
        .read(Stream::Events, StreamPosition::default(), None, 30, ALL)
        .unwrap();
    let names: Vec<String> = dir
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".db"))
        .collect();
    for name in &names[..2] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    // A batch that was begun: its rest is gone.
    let until = StreamPosition {
        row: first.end.row + 50,
        ..first.end
    };
    let chunk = follower
        .read(Stream::Events, first.end, Some(until), 30, ALL)
        .unwrap();
    assert_eq!((chunk.records.len(), chunk.expired, chunk.end), (0, 50, until));
    let chunk = all(&mut follower, Stream::Events, first.end);
    assert_eq!(
        (chunk.records.len(), chunk.expired, chunk.restarted),
        (200, 170, false)
    );
    // For who begins, nothing is missing.
    let chunk = all(&mut follower, Stream::Events, StreamPosition::default());
    assert_eq!(
        (chunk.records.len(), chunk.expired, chunk.restarted),
        (200, 0, false)
    );
    assert_eq!(all(&mut follower, Stream::Events, chunk.end).records, []);
}

#[test]
fn a_lost_count_begins_anew_and_says_so() {
    let dir = Dir::new("follower-anew");
    let store = open(&dir, Period::Hour);
    keep(&store, numbered(START, 0..100));
    keep(&store, numbered(START + HOUR, 100..200));
    store.close();
    let mut follower = Follower::new(dir.path());
    let at = follower
        .read(Stream::Events, StreamPosition::default(), None, 150, ALL)
        .unwrap()
        .end;
    // The newest file is damaged: how far it counted is not known.
    let names: Vec<String> = dir
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".db"))
        .collect();
    std::fs::write(dir.path().join(&names[1]), "damaged".repeat(10_000)).unwrap();
    let store = open(&dir, Period::Hour);
    keep(&store, numbered(START + HOUR, 200..210));
    let chunk = all(&mut follower, Stream::Events, at);
    assert_eq!((values(&chunk), chunk.restarted), ((200..210).collect(), true));
    assert!(chunk.end.base > at.base);
    // And it goes on in the new count.
    drop(store);
    let store = open(&dir, Period::Hour);
    keep(&store, numbered(START + HOUR, 210..220));
    let chunk = all(&mut follower, Stream::Events, chunk.end);
    assert_eq!(
        (values(&chunk), chunk.restarted, chunk.expired),
        ((210..220).collect(), false, 0)
    );
}

#[test]
fn a_batch_whose_file_was_removed_expires_by_its_records() {
    let dir = Dir::new("follower-removed");
    let store = open(&dir, Period::Hour);
    keep(&store, numbered(START, 0..100));
    store.close();
    let mut follower = Follower::new(dir.path());
    let start = follower.since(Stream::Events, 0).unwrap();
    let until = follower.end(Stream::Events).unwrap();
    dir.names()
        .iter()
        .for_each(|name| std::fs::remove_file(dir.path().join(name)).unwrap());
    let store = open(&dir, Period::Hour);
    keep(&store, numbered(START + HOUR, 100..110));
    // Of whoever began in that count; before all counts; and in an earlier count, whose rest is not known.
    let earlier = StreamPosition { base: 1, row: 40 };
    for (from, expired, restarted) in [
        (start, 100, false),
        (StreamPosition::default(), 0, false),
        (earlier, 100, true),
    ] {
        let chunk = follower
            .read(Stream::Events, from, Some(until), 1000, ALL)
            .unwrap();
        let expected = Chunk {
            records: Vec::new(),
            end: until,
            expired,
            restarted,
            is_last: false,
        };
        assert_eq!(chunk, expected, "{from:?}");
    }
    let chunk = all(&mut follower, Stream::Events, until);
    assert_eq!(
        (values(&chunk), chunk.expired, chunk.restarted),
        ((100..110).collect(), 0, true)
    );
    drop(store);
}

fn keep_flows(store: &Store, flows: std::ops::Range<u32>, ts: u64) {
    let mut batch = Batch::with_capacity(50_000);
    flows.for_each(|n| batch.flow(&flow_row(flow(n), ts), &[n]));
    keep(store, batch);
}

/// The first node of each state of a flow, and when it was last seen after [`START`].
fn states(chunk: &Chunk) -> Vec<(u32, u64)> {
    chunk
        .records
        .iter()
        .map(|record| match record {
            StoredRecord::Flow(state) => (state.path[0], state.row.last_seen - START),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn of_a_flow_only_the_latest_state_is_read() {
    let dir = Dir::new("follower-flows");
    let store = open(&dir, Period::Day);
    let mut follower = Follower::new(dir.path());
    keep_flows(&store, 0..20_000, START);
    keep_flows(&store, 100..200, START + SECOND);
    let chunk = all(&mut follower, Stream::Flows, StreamPosition::default());
    let expected: Vec<(u32, u64)> = (0..100)
        .chain(200..20_000)
        .map(|n| (n, 0))
        .chain((100..200).map(|n| (n, SECOND)))
        .collect();
    assert_eq!((states(&chunk), chunk.expired), (expected, 0));
    keep_flows(&store, 5..7, START + 2 * SECOND);
    let chunk = all(&mut follower, Stream::Flows, chunk.end);
    assert_eq!(states(&chunk), [(5, 2 * SECOND), (6, 2 * SECOND)]);
}

#[test]
fn a_place_by_time_is_before_the_records_of_that_time() {
    let dir = Dir::new("follower-since");
    let store = open(&dir, Period::Hour);
    for (n, seconds) in [0, 10, 4000, 4010].into_iter().enumerate() {
        keep(&store, numbered(START + seconds * SECOND, [n as u64]));
    }
    let mut follower = Follower::new(dir.path());
    for (seconds, first) in [(0, 0), (5, 1), (10, 1), (11, 2), (4010, 3)] {
        let at = follower.since(Stream::Events, START + seconds * SECOND).unwrap();
        assert_eq!(
            values(&all(&mut follower, Stream::Events, at))[0],
            first,
            "{seconds}"
        );
    }
    let at = follower.since(Stream::Events, START + HOUR * 9).unwrap();
    assert_eq!(at, follower.end(Stream::Events).unwrap());
    assert_eq!(
        Follower::new(dir.path()).end(Stream::Drops).unwrap(),
        StreamPosition::default()
    );
}

#[test]
fn files_of_earlier_versions_are_left_out_and_followed_by_others() {
    let dir = Dir::new("follower-version-2");
    let store = open(&dir, Period::Day);
    keep(&store, numbered(START, 0..10));
    store.close();
    let conn = rusqlite::Connection::open(dir.path().join(&dir.names()[0])).unwrap();
    conn.execute_batch(
        "DROP TABLE span_data; DROP TABLE taken_data; DROP TABLE minute_data; DROP TABLE block_data; DROP VIEW recordings; DROP TABLE recording_data; DROP TABLE run_data; ALTER TABLE flow_data DROP COLUMN number; PRAGMA user_version = 2",
    )
    .unwrap();
    conn.close().unwrap();
    let mut follower = Follower::new(dir.path());
    assert_eq!(
        all(&mut follower, Stream::Events, StreamPosition::default()).records,
        []
    );
    let store = open(&dir, Period::Day);
    let mut batch = numbered(START + 1, 10..20);
    batch.flow(&flow_row(flow(1), START), &[1]);
    keep(&store, batch);
    let mut follower = Follower::new(dir.path());
    let chunk = all(&mut follower, Stream::Events, StreamPosition::default());
    assert_eq!(values(&chunk), (10..20).collect::<Vec<_>>());
    assert_eq!(
        all(&mut follower, Stream::Flows, StreamPosition::default())
            .records
            .len(),
        1
    );
}

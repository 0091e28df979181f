//! Retention that changes while the store is open.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::{Batch, Output as _};
use store::{Config, EventFilter, Period, QueryOptions, Reader, Store};
use testkit::records::{Dir, SECOND, START, bare, change, flow, rollup};

#[test]
fn a_new_bound_deletes_the_oldest_files_at_once() {
    let dir = Dir::new("retention");
    let store = Store::open(Config::new(dir.path())).unwrap();
    for day in 0..3 {
        let mut batch = Batch::with_capacity(4);
        batch.event(&bare(START + day * 86_400 * SECOND), &[]);
        store.submit(batch);
    }
    store.flush();
    assert_eq!(store.stats().deleted, 0);
    store.set_retention(None, Some(1));
    store.flush();
    assert_eq!(store.close().deleted, 2);
    assert_eq!(dir.names(), ["hopwise-2026-11-23.db"]);
}

const HOUR: u64 = 3600 * SECOND;

/// Stores a record of an hour after [`START`]: the first hour has one stream, the last one another.
fn submit(store: &Store, hour: u64) {
    let time = START + hour * HOUR + 5 * SECOND;
    let mut batch = Batch::with_capacity(4);
    if hour < 3 {
        batch.event(&bare(time), &[]);
    }
    if hour > 0 {
        batch.rollup(&rollup(time, 1));
    }
    store.submit(batch);
    store.flush();
}

#[test]
fn an_answer_that_reaches_before_what_retention_kept_says_so() {
    let dir = Dir::new("retention-note");
    let config = Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    };
    let store = Store::open(config.clone()).unwrap();
    let notes = |from: Option<u64>| {
        let options = QueryOptions {
            from,
            ..QueryOptions::default()
        };
        let reader = Reader::open(dir.path()).unwrap();
        let of_sql = reader
            .query("SELECT count(*) FROM events", &options)
            .unwrap()
            .notes;
        // As an answer of the API.
        let reader = Reader::open(dir.path()).unwrap();
        let filter = EventFilter {
            from,
            limit: 10,
            ..EventFilter::default()
        };
        reader.events(&filter).unwrap();
        assert_eq!(reader.notes(), of_sql, "{from:?}");
        of_sql
    };
    (0..3).for_each(|hour| submit(&store, hour));
    let before = Some(START + HOUR + 100 * SECOND);
    assert_eq!(
        [Some(1), Some(START), before].map(notes),
        [const { Vec::<String>::new() }; 3]
    );
    store.set_retention(None, Some(1));
    store.flush();
    assert_eq!(store.stats().deleted, 2);
    let check = |cut: &str, kept: u64| {
        let note = format!(
            "records may be missing: those from before {cut} were deleted, as `max_age` and `max_bytes` of [store] do with the oldest files"
        );
        for from in [Some(1), Some(START), Some(kept - 1)] {
            assert_eq!(notes(from), std::slice::from_ref(&note), "{from:?}");
        }
        for from in [None, Some(0), Some(kept), Some(kept + HOUR)] {
            assert_eq!(notes(from), Vec::<String>::new(), "{from:?}");
        }
    };
    check("2026-11-21T16:00:00Z", START + 2 * HOUR);
    // After a restart, and when another stream is left.
    store.close();
    let store = Store::open(config).unwrap();
    submit(&store, 3);
    check("2026-11-21T16:00:00Z", START + 2 * HOUR);
    store.set_retention(None, Some(1));
    store.flush();
    store.close();
    check("2026-11-21T17:00:00Z", START + 3 * HOUR);
}

#[test]
fn sums_of_the_minute_before_a_file_do_not_stand_for_its_records() {
    let dir = Dir::new("retention-minute");
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
    submit(&store, 0);
    // The rollup of the last minute before the hour is stored with the first records of the next file.
    let mut batch = Batch::with_capacity(16);
    let minute = collector::Rollup {
        interval: 60,
        ..rollup(START + HOUR - 60 * SECOND, 7)
    };
    batch.rollup(&minute);
    batch.event(&change(START + HOUR + SECOND, flow(1), 7, 5), &[]);
    store.submit(batch);
    store.set_retention(None, Some(1));
    store.flush();
    assert_eq!(store.stats().deleted, 1);
    store.close();
    let notes = |from: u64| {
        let reader = Reader::open(dir.path()).unwrap();
        let filter = EventFilter {
            from: Some(from),
            ..EventFilter::default()
        };
        reader.events(&filter).unwrap();
        reader.notes()
    };
    for from in [START + HOUR - 60 * SECOND, START + HOUR - 1] {
        assert!(
            notes(from)[0].contains("those from before 2026-11-21T15:00:00Z were deleted"),
            "{from}"
        );
    }
    assert_eq!(notes(START + HOUR), [] as [String; 0]);
}

//! Paths in a span of time: changes, and how each path was used, of flows whose truth is known.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::Basis;
use collector::{Batch, Event, FlowRow, Kind, Output as _, Rollup};
use detect::Metric;
use store::{ChangeGroup, Config, FlowSelector, PathChange, PathUse, PathUses, Reader, Span, Store};
use testkit::records::{Dir, SECOND, START, bare, flow};

const MINUTE: u64 = 60 * SECOND;

/// The start of a minute after two o'clock in the afternoon.
fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

fn minute(number: u32, at: u64, count: u64) -> Rollup {
    Rollup {
        ts: at,
        interval: 60,
        metric: Metric::FlowLatency,
        flow: Some(flow(number)),
        node: None,
        interface: None,
        queue: None,
        count,
        min: 1,
        max: 9,
        sum: count * 5,
        p50: None,
        p99: None,
    }
}

fn path(number: u32, ts: u64, kind: Kind) -> Event {
    Event {
        kind,
        metric: Some(Metric::FlowPath),
        flow: Some(flow(number)),
        value: Some(2),
        ..bare(ts)
    }
}

/// Ten minutes of two flows between different hosts. The first one is on `1>2>4`, but from 03:15 to 03:45 and from 06:00 on it is on `1>3>4`;
/// the second one changes with it once and stays.
fn ten_minutes() -> Batch {
    let mut batch = Batch::with_capacity(256);
    for number in [1, 2] {
        batch.event(&path(number, at(0) + 1, Kind::New), &[1, 2, 4]);
        batch.event(&path(number, at(3) + 15 * SECOND, Kind::PathChange), &[1, 3, 4]);
    }
    batch.event(&path(1, at(3) + 45 * SECOND, Kind::PathChange), &[1, 2, 4]);
    batch.event(&path(1, at(6), Kind::PathChange), &[1, 3, 4]);
    for at_minute in 0..10 {
        batch.rollup(&minute(1, at(at_minute), 120));
        batch.rollup(&minute(2, at(at_minute), 40));
    }
    for number in [1, 2] {
        let flow = flow(number);
        let last_seen = at(10);
        let basis = Basis::Measured;
        batch.flow(
            &FlowRow {
                flow,
                flow_latency: Some(9),
                basis,
                first_seen: at(0),
                last_seen,
                reports: 1,
            },
            &[1, 3, 4],
        );
    }
    batch
}

fn stored(batch: Batch) -> (Dir, Reader) {
    let dir = Dir::new("path-use");
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

fn one(number: u32) -> FlowSelector {
    FlowSelector {
        flow: Some(flow(number)),
        ..FlowSelector::default()
    }
}

fn change(number: u32, ts: u64, before: u32, after: u32) -> PathChange {
    PathChange {
        ts,
        flow: flow(number),
        before: vec![1, before, 4],
        after: vec![1, after, 4],
    }
}

#[test]
fn changes_of_a_span_say_the_path_before_and_the_path_after() {
    let (_dir, reader) = stored(ten_minutes());
    let all = reader
        .path_changes(Span::new(at(0), at(10)), &FlowSelector::default(), 10)
        .unwrap();
    let [first, second, third] = [at(3) + 15 * SECOND, at(3) + 45 * SECOND, at(6)];
    let mut latest = vec![
        change(1, third, 2, 3),
        change(1, second, 3, 2),
        change(1, first, 2, 3),
    ];
    latest.push(change(2, first, 2, 3));
    let mut found = all.changes.clone();
    found.sort_by_key(|change| (std::cmp::Reverse(change.ts), change.flow));
    assert_eq!(found, latest);
    let groups = [
        ChangeGroup {
            before: vec![1, 2, 4],
            after: vec![1, 3, 4],
            flows: 2,
            changes: 3,
            first,
            last: third,
        },
        ChangeGroup {
            before: vec![1, 3, 4],
            after: vec![1, 2, 4],
            flows: 1,
            changes: 1,
            first: second,
            last: second,
        },
    ];
    assert_eq!(all.groups, groups);
    assert_eq!((all.total, all.truncated), (4, false));
    // The path before a change may have been taken long before the span.
    let later = reader
        .path_changes(Span::new(at(5), at(10)), &FlowSelector::default(), 10)
        .unwrap();
    assert_eq!(later.changes, [change(1, third, 2, 3)]);
    let two = reader
        .path_changes(Span::new(at(0), at(10)), &one(2), 10)
        .unwrap();
    assert_eq!(two.changes, [change(2, first, 2, 3)]);
    let few = reader
        .path_changes(Span::new(at(0), at(10)), &FlowSelector::default(), 1)
        .unwrap();
    assert_eq!(
        (few.changes.len(), few.groups.len(), few.group_total, few.total),
        (1, 1, 2, 4)
    );
    let none = reader
        .path_changes(Span::new(at(0), at(10)), &one(9), 10)
        .unwrap();
    assert_eq!((none.changes.len(), none.total), (0, 0));
}

fn used(path: &[u32], (flows, reports): (u64, u64), time: u64, (first, last): (u64, u64)) -> PathUse {
    PathUse {
        path: path.to_vec(),
        flows,
        reports,
        time,
        first,
        last,
    }
}

/// Checks that times and numbers of reports differ by one at most, and the rest is the same.
fn assert_near(found: &PathUse, wanted: &PathUse) {
    let same = (&found.path, found.flows, found.first, found.last)
        == (&wanted.path, wanted.flows, wanted.first, wanted.last);
    assert!(
        same && found.time.abs_diff(wanted.time) <= 1,
        "{found:?} {wanted:?}"
    );
    assert!(
        found.reports.abs_diff(wanted.reports) <= 1,
        "{found:?} {wanted:?}"
    );
}

#[test]
fn each_path_has_the_time_and_the_reports_of_when_it_was_taken() {
    let (_dir, reader) = stored(ten_minutes());
    let uses = reader.path_uses(Span::new(at(0), at(10)), &one(1), 10).unwrap();
    // Of the fourth minute, half: from 03:15 to 03:45.
    let upper = used(
        &[1, 2, 4],
        (1, 5 * 120 + 60),
        5 * MINUTE + 30 * SECOND,
        (at(0) + 1, at(6)),
    );
    let lower = used(
        &[1, 3, 4],
        (1, 4 * 120 + 60),
        4 * MINUTE + 30 * SECOND,
        (at(3) + 15 * SECOND, at(10)),
    );
    assert_eq!(uses.uses.len(), 2, "{uses:?}");
    assert_near(&uses.uses[0], &upper);
    assert_near(&uses.uses[1], &lower);
    let PathUses {
        flows,
        spread,
        truncated,
        ..
    } = uses;
    assert_eq!((flows, spread, truncated), (1, MINUTE, false));
    assert_eq!(uses.uses.iter().map(|found| found.reports).sum::<u64>(), 1_200);
    // By the hosts at its ends, and by a host that nobody knows.
    let pair = FlowSelector {
        src: Some(flow(1).src().to_string()),
        dst: Some(flow(1).dst().to_string()),
        ..FlowSelector::default()
    };
    assert_eq!(
        reader
            .path_uses(Span::new(at(0), at(10)), &pair, 10)
            .unwrap()
            .uses,
        uses.uses
    );
    let nobody = FlowSelector {
        src: Some("nobody".to_owned()),
        ..FlowSelector::default()
    };
    assert_eq!(
        reader
            .path_uses(Span::new(at(0), at(10)), &nobody, 10)
            .unwrap()
            .uses,
        []
    );
    let all = reader
        .path_uses(Span::new(at(0), at(10)), &FlowSelector::default(), 10)
        .unwrap();
    assert_eq!(
        (all.flows, all.uses.iter().map(|found| found.reports).sum::<u64>()),
        (2, 1_600)
    );
    let cut = reader
        .path_uses(Span::new(at(0), at(10)), &FlowSelector::default(), 1)
        .unwrap();
    assert_eq!((cut.uses.len(), cut.truncated), (1, true));
}

#[test]
fn a_flow_that_was_just_seen_has_a_time_before_its_minute_has_ended() {
    let mut batch = Batch::with_capacity(16);
    batch.event(&path(1, at(0) + 10 * SECOND, Kind::New), &[1, 2, 4]);
    let row = FlowRow {
        flow: flow(1),
        flow_latency: Some(9),
        basis: Basis::Measured,
        first_seen: at(0) + 10 * SECOND,
        last_seen: at(0) + 40 * SECOND,
        reports: 30,
    };
    batch.flow(&row, &[1, 2, 4]);
    let (_dir, reader) = stored(batch);
    let uses = reader.path_uses(Span::new(at(0), at(1)), &one(1), 10).unwrap();
    let expected = used(
        &[1, 2, 4],
        (1, 0),
        30 * SECOND,
        (at(0) + 10 * SECOND, at(0) + 40 * SECOND),
    );
    assert_eq!(uses.uses, [expected]);
}

#[test]
fn a_change_from_a_path_in_a_file_before_the_span_is_found() {
    const DAY: u64 = 24 * 60 * MINUTE;
    let midnight = START / DAY * DAY + DAY;
    let mut before = Batch::with_capacity(16);
    let mut batch = Batch::with_capacity(16);
    for number in [1, 2] {
        before.event(&path(number, START, Kind::New), &[1, 2, 4]);
    }
    batch.event(&path(1, midnight + MINUTE, Kind::PathChange), &[1, 3, 4]);
    batch.event(&path(1, midnight + 2 * MINUTE, Kind::PathChange), &[1, 2, 4]);
    // What is new has changed nothing.
    batch.event(&path(3, midnight + MINUTE, Kind::New), &[1, 3, 4]);
    let dir = Dir::new("path-change");
    let store = Store::open(Config::new(dir.path())).unwrap();
    // What is given together is stored in one file.
    store.submit(before);
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let first = change(1, midnight + MINUTE, 2, 3);
    let second = change(1, midnight + 2 * MINUTE, 3, 2);
    for of in [FlowSelector::default(), one(1)] {
        let found = reader
            .path_changes(Span::new(midnight, midnight + DAY), &of, 10)
            .unwrap();
        assert_eq!(found.changes, [second.clone(), first.clone()]);
        assert_eq!((found.total, found.groups.len(), found.truncated), (2, 2, false));
    }
    // Of a span that begins after the first change, that one is not.
    let later = reader
        .path_changes(Span::new(midnight + 2 * MINUTE, midnight + DAY), &one(1), 10)
        .unwrap();
    assert_eq!(later.changes, [second]);
    let whole = reader
        .path_changes(Span::new(START, midnight + DAY), &one(1), 10)
        .unwrap();
    assert_eq!(whole.changes.last(), Some(&change(1, midnight + MINUTE, 2, 3)));
}

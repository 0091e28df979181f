//! What was added up over time, of records whose truth is known.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::collections::BTreeMap;

use collector::{Batch, Event, Kind, Output as _, Rollup};
use detect::Metric;
use store::{
    Columns, Config, Counted, EventGroup, EventParts, Period, Reader, SeriesKey, Span, SpanSum, Store, Tally,
};
use testkit::records::{Dir, SECOND, START, bare, flow};
use wire::FlowKey;

const MINUTE: u64 = 60 * SECOND;

fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

/// Everything by its text and its column: count and sum.
#[derive(Default, Debug)]
struct Sums {
    names: Vec<String>,
    found: BTreeMap<(String, usize), (u64, u64)>,
    seen: Vec<usize>,
    resets: usize,
}

impl Sums {
    fn name(&mut self, name: String) -> u32 {
        self.names.push(name);
        u32::try_from(self.names.len() - 1).unwrap()
    }
}

impl Tally for Sums {
    fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::default() };
    }

    fn seen(&mut self, column: usize) {
        self.seen.push(column);
    }

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        self.name(format!("{} {path:?}", flow.src()))
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        let kind = event.kind.unwrap().name();
        let flow = event.flow.map(|flow| flow.src().to_string());
        let place = (event.node, event.queue);
        self.name(format!("{kind} {flow:?} {place:?} {:?} {:?} {:?}", event.reason, event.value, event.path))
    }

    fn series(&mut self, key: &SeriesKey) -> u32 {
        self.name(format!("{} {:?}", key.node, key.queue))
    }

    fn add(&mut self, number: u32, column: usize, sum: &SpanSum) {
        let name = self.names[number as usize].clone();
        let (count, total) = self.found.entry((name, column)).or_default();
        *count += sum.count;
        *total += sum.sum;
    }
}

fn rollup(metric: Metric, ts: u64, count: u64, value: u64) -> Rollup {
    Rollup {
        ts,
        interval: 60,
        metric,
        flow: None,
        node: None,
        interface: None,
        queue: None,
        count,
        min: value,
        max: value,
        sum: count * value,
        p50: None,
        p99: None,
    }
}

fn path(number: u32, ts: u64, kind: Kind) -> Event {
    Event { kind, metric: Some(Metric::FlowPath), flow: Some(flow(number)), value: Some(2), ..bare(ts) }
}

/// How many reports a flow sent in a minute, by arithmetic alone.
fn reports(number: u32, minute: u64) -> u64 {
    (u64::from(number) * 7 + minute * 3) % 11
}

/// Three hours of nine flows, in a file for each hour. Flow 1 takes another path in minute 75, and nothing at all is stored in the minutes
/// 100 to 119.
fn stored() -> (Dir, Reader) {
    let dir = Dir::new("traffic");
    let store = Store::open(Config { period: Period::Hour, ..Config::new(dir.path()) }).unwrap();
    for hour in 0..3 {
        let mut batch = Batch::with_capacity(8192);
        for minute in hour * 60..(hour + 1) * 60 {
            for number in 1..10 {
                if minute == 0 {
                    batch.event(&path(number, at(0) + 1, Kind::New), &[1, 2]);
                }
                if number == 1 && minute == 75 {
                    batch.event(&path(1, at(75) + 30 * SECOND, Kind::PathChange), &[1, 3, 2]);
                }
                let count = reports(number, minute);
                if count > 0 && !(100..120).contains(&minute) {
                    let sum = rollup(Metric::FlowLatency, at(minute), count, 100 + minute);
                    batch.rollup(&Rollup { flow: Some(flow(number)), ..sum });
                }
            }
            if (100..120).contains(&minute) {
                continue;
            }
            let queue = rollup(Metric::QueueOccupancy, at(minute), 10, minute);
            batch.rollup(&Rollup { node: Some(7), queue: Some(3), ..queue });
            let drop = Event { kind: Kind::Drop, node: Some(7), queue: Some(3), ..bare(at(minute) + 5) };
            let drop = Event { flow: Some(flow(1)), reason: Some(71), ..drop };
            (0..minute % 3).for_each(|n| batch.event(&Event { value: Some(n), ..drop }, &[]));
        }
        // States of flows say in each file which path was taken.
        for number in 1..10 {
            let (first_seen, last_seen) = (at(0), at(hour * 60) + 59 * SECOND);
            let row = collector::FlowRow {
                flow: flow(number),
                flow_latency: None,
                basis: collector::event::Basis::Measured,
                first_seen,
                last_seen,
                reports: 1,
            };
            batch.flow(&row, if number == 1 && hour == 2 { &[1, 3, 2] } else { &[1, 2] });
        }
        store.submit(batch).unwrap();
        store.flush();
    }
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

#[test]
fn each_report_of_a_flow_is_counted_once_in_its_column_and_on_its_path() {
    let (dir, reader) = stored();
    assert!(dir.names().iter().filter(|name| name.ends_with(".db")).count() >= 3, "{:?}", dir.names());
    for minutes in [1, 5, 10, 60] {
        let columns = Columns::of((at(0), at(180)), minutes * MINUTE);
        let mut sums = Sums::default();
        let counted = reader.flow_traffic(&columns, true, &mut sums).unwrap();
        assert_eq!((counted, sums.resets), (Counted::default(), 1));
        let mut expected: BTreeMap<(String, usize), (u64, u64)> = BTreeMap::new();
        // The rollups that are read have these lengths: their reports are counted on the path at their end.
        let interval = if minutes == 5 { 1 } else { minutes };
        for (number, minute) in (1..10).flat_map(|number| (0..180).map(move |minute| (number, minute))) {
            let count = reports(number, minute);
            if count == 0 || (100..120).contains(&minute) {
                continue;
            }
            let end = (minute / interval + 1) * interval;
            let path = if number == 1 && end > 75 { "[1, 3, 2]" } else { "[1, 2]" };
            let column = usize::try_from(minute / minutes).unwrap();
            let one = expected.entry((format!("{} {path}", flow(number).src()), column)).or_default();
            one.0 += count;
            one.1 += count * (100 + minute);
        }
        assert_eq!(sums.found, expected, "columns of {minutes} minutes");
        let silent = 100 / minutes..(120 / minutes).max(100 / minutes);
        let is_gap = |column: &usize| silent.contains(&(*column as u64));
        assert_eq!(minutes <= 10, !silent.is_empty() && !sums.seen.iter().any(is_gap), "gaps");
    }
}

#[test]
fn a_minute_that_is_still_being_stored_is_not_counted() {
    let (_dir, reader) = stored();
    for (minutes, known) in [(1, 33), (10, 33), (60, 73), (60, 120), (60, 999)] {
        let columns = Columns::of((at(0), at(180)), minutes * MINUTE).until(at(known));
        let mut sums = Sums::default();
        reader.flow_traffic(&columns, false, &mut sums).unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        let before = (0..180).filter(|minute| *minute < known && !(100..120).contains(minute));
        let expected: u64 =
            before.flat_map(|minute| (1..10).map(move |number| reports(number, minute))).sum();
        assert_eq!(found, expected, "columns of {minutes} minutes, known to minute {known}");
    }
    let rates = |known| reader.rate_span_until(Span::of(at(0), at(100)), 20 * MINUTE, at(known)).unwrap();
    let found: u64 = rates(33).points.iter().map(|point| point.reports).sum();
    assert_eq!(found, (0..33).flat_map(|minute| (1..10).map(move |n| reports(n, minute))).sum::<u64>());
}

#[test]
fn columns_follow_the_number_of_flows() {
    let (_dir, reader) = stored();
    let column = |minutes, most| reader.flow_columns((at(0), at(minutes)), most).unwrap().column() / MINUTE;
    assert_eq!([column(15, 180), column(180, 1000), column(180, 180)], [1, 1, 2]);
    assert_eq!([column(180, 19), column(180, 5), column(180, 1)], [10, 60, 180]);
    assert_eq!(column(180 * 1440, 100), 2 * 1440, "longer than what is offered");
}

#[test]
fn each_event_is_counted_once_in_what_is_asked_of_it() {
    let (_dir, reader) = stored();
    let columns = Columns::of((at(0), at(180)), 10 * MINUTE);
    let drops =
        |from: u64, to: u64| (from..to).filter(|m| !(100..120).contains(m)).map(|m| m % 3).sum::<u64>();
    let total = |sums: &Sums| sums.found.values().map(|(count, _)| *count).sum::<u64>();
    let ask = |parts: EventParts| {
        let mut sums = Sums::default();
        assert_eq!(reader.event_traffic(&columns, parts, &mut sums).unwrap(), Counted::default());
        sums
    };
    let all = drops(0, 180) + 10;
    // From the counts of minutes, and one by one.
    let kinds = ask(EventParts::default());
    let drop_name = "drop None (None, None) None None []";
    for column in 0..18 {
        let expected = drops(column * 10, (column + 1) * 10);
        let found = kinds.found.get(&(drop_name.to_owned(), column as usize)).map_or(0, |sums| sums.0);
        assert_eq!(found, expected, "column {column}");
    }
    assert_eq!(total(&kinds), all);
    let source = flow(1).src();
    let placed = ask(EventParts { flow: true, place: true, cause: true, ..EventParts::default() });
    let name = format!("drop Some({:?}) (Some(7), Some(3)) Some(71) None []", source.to_string());
    let of_drops: u64 =
        placed.found.iter().filter(|((one, _), _)| *one == name).map(|(_, sums)| sums.0).sum();
    assert_eq!((of_drops, total(&placed)), (drops(0, 180), all));
    let valued = ask(EventParts { values: true, path: true, ..EventParts::default() });
    assert_eq!(total(&valued), all);
    let seconds = (0..180).filter(|m| !(100..120).contains(m) && m % 3 == 2).count() as u64;
    let second: u64 =
        valued.found.iter().filter(|((name, _), _)| name.ends_with("Some(1) []")).map(|(_, s)| s.0).sum();
    assert_eq!(second, seconds);
    let changed: u64 =
        valued.found.iter().filter(|((name, _), _)| name.ends_with("[1, 3, 2]")).map(|(_, s)| s.0).sum();
    assert_eq!(changed, 1);
}

#[test]
fn values_of_a_queue_are_there_also_in_the_minute_that_has_not_ended() {
    let (_dir, reader) = stored();
    for minutes in [1, 10, 60] {
        let columns = Columns::of((at(0), at(180)), minutes * MINUTE);
        let mut sums = Sums::default();
        reader.series_traffic(&columns, Metric::QueueOccupancy, &mut sums).unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        assert_eq!(found, 160 * 10);
        let first: u64 = (0..minutes).map(|minute| 10 * minute).sum();
        assert_eq!(sums.found[&("7 Some(3)".to_owned(), 0)], (10 * minutes, first));
    }
    // A program that is a minute and a half old: a minute, and thirty seconds of the next one.
    let dir = Dir::new("traffic-young");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(256);
    let of_queue = |ts, interval, count| {
        let one = rollup(Metric::QueueOccupancy, ts, count, 5);
        Rollup { interval, node: Some(7), queue: Some(3), ..one }
    };
    (0..90).for_each(|second| batch.rollup(&of_queue(at(0) + second * SECOND, 1, 2)));
    batch.rollup(&of_queue(at(0), 60, 120));
    store.submit(batch).unwrap();
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    for (column, expected) in [(MINUTE, 180), (60 * MINUTE, 180), (SECOND, 180)] {
        let mut sums = Sums::default();
        let columns = Columns::of((at(0), at(2)), column);
        reader.series_traffic(&columns, Metric::QueueOccupancy, &mut sums).unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        assert_eq!(found, expected, "columns of {} s", column / SECOND);
    }
}

//! What was added up over time, of records whose truth is known.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::collections::BTreeMap;
use std::sync::Arc;

use collector::{Batch, Event, Kind, Output as _, Rollup};
use detect::Metric;
use filter::{Filter, View};
use store::{
    Columns, Config, Counted, Dimension, EventGroup, EventParts, Measure, Period, Prefixes, Reader,
    SeriesKey, Span, SpanSum, Store, Tally, TrafficQuery,
};
use testkit::records::{Dir, SECOND, START, bare, flow};
use wire::FlowKey;

const MINUTE: u64 = 60 * SECOND;

fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

/// By text and column: count and sum.
type Found = BTreeMap<(String, usize), (u64, u64)>;

/// Everything that was added up.
#[derive(Default, Debug)]
struct Sums {
    names: Vec<String>,
    found: Found,
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
        *self = Self {
            resets: self.resets + 1,
            ..Self::default()
        };
    }

    fn seen(&mut self, column: usize) {
        self.seen.push(column);
    }

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        self.name(format!("{} {path:?}", flow.src()))
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        let kind = event.kind.map_or("any", Kind::name);
        let flow = event.flow.map(|flow| flow.src().to_string());
        let place = (event.node, event.queue);
        self.name(format!(
            "{kind} {flow:?} {place:?} {:?} {:?} {:?}",
            event.reason, event.value, event.path
        ))
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
    Event {
        kind,
        metric: Some(Metric::FlowPath),
        flow: Some(flow(number)),
        value: Some(2),
        ..bare(ts)
    }
}

/// The number of reports that a flow sent in a minute, by arithmetic alone.
fn reports(number: u32, minute: u64) -> u64 {
    (u64::from(number) * 7 + minute * 3) % 11
}

/// Three hours of nine flows, in a file for each hour; only the first one says which paths most of them take. Flow 1 takes another path in
/// minute 75, and nothing at all is stored in the minutes 100 to 119.
fn stored() -> (Dir, Reader) {
    let dir = Dir::new("traffic");
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
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
                    batch.rollup(&Rollup {
                        flow: Some(flow(number)),
                        ..sum
                    });
                }
            }
            if (100..120).contains(&minute) {
                continue;
            }
            let queue = rollup(Metric::QueueOccupancy, at(minute), 10, minute);
            batch.rollup(&Rollup {
                node: Some(7),
                queue: Some(3),
                ..queue
            });
            let drop = Event {
                kind: Kind::Drop,
                node: Some(7),
                queue: Some(3),
                ..bare(at(minute) + 5)
            };
            let drop = Event {
                flow: Some(flow(1)),
                reason: Some(71),
                ..drop
            };
            (0..minute % 3).for_each(|n| {
                batch.event(
                    &Event {
                        value: Some(n),
                        ..drop
                    },
                    &[],
                )
            });
        }
        store.submit(batch);
        store.flush();
    }
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

#[test]
fn each_report_of_a_flow_is_counted_once_in_its_column_and_on_its_path() {
    let (dir, reader) = stored();
    assert!(
        dir.names().iter().filter(|name| name.ends_with(".db")).count() >= 3,
        "{:?}",
        dir.names()
    );
    for minutes in [1, 5, 10, 60] {
        let columns = Columns::new(at(0), at(180), minutes * MINUTE);
        let mut sums = Sums::default();
        let counted = reader.flow_traffic(&columns, true, &mut sums).unwrap();
        assert_eq!((counted, sums.resets), (Counted::default(), 1));
        let mut expected: BTreeMap<(String, usize), (u64, u64)> = BTreeMap::new();
        // Whatever the length of a column is, each minute is counted on the path at its end.
        for (number, minute) in (1..10).flat_map(|number| (0..180).map(move |minute| (number, minute))) {
            let count = reports(number, minute);
            if count == 0 || (100..120).contains(&minute) {
                continue;
            }
            let path = if number == 1 && minute >= 75 {
                "[1, 3, 2]"
            } else {
                "[1, 2]"
            };
            let column = usize::try_from(minute / minutes).unwrap();
            let one = expected
                .entry((format!("{} {path}", flow(number).src()), column))
                .or_default();
            one.0 += count;
            one.1 += count * (100 + minute);
        }
        assert_eq!(sums.found, expected, "columns of {minutes} minutes");
        let silent = 100 / minutes..(120 / minutes).max(100 / minutes);
        assert_eq!(
            minutes <= 10,
            !silent.is_empty() && !sums.seen.iter().any(|column| silent.contains(&(*column as u64))),
            "gaps"
        );
    }
}

#[test]
fn a_minute_that_is_still_being_stored_is_not_counted() {
    let (_dir, reader) = stored();
    for (minutes, known) in [(1, 33), (10, 33), (60, 73), (60, 120), (60, 999)] {
        let columns = Columns::new(at(0), at(180), minutes * MINUTE).until(at(known));
        let mut sums = Sums::default();
        reader.flow_traffic(&columns, false, &mut sums).unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        let before = (0..180).filter(|minute| *minute < known && !(100..120).contains(minute));
        let expected: u64 = before
            .flat_map(|minute| (1..10).map(move |number| reports(number, minute)))
            .sum();
        assert_eq!(
            found, expected,
            "columns of {minutes} minutes, known to minute {known}"
        );
    }
    let rates = reader
        .rate_span_until(Span::new(at(0), at(100)), 20 * MINUTE, at(33))
        .unwrap();
    let found: u64 = rates.points.iter().map(|point| point.reports).sum();
    assert_eq!(
        found,
        (0..33)
            .flat_map(|minute| (1..10).map(move |n| reports(n, minute)))
            .sum::<u64>()
    );
}

fn column_minutes(reader: &Reader, minutes: u64, most: u64) -> u64 {
    reader.flow_columns((at(0), at(minutes)), most).unwrap().column() / MINUTE
}

#[test]
fn columns_follow_the_number_of_flows() {
    let (_dir, reader) = stored();
    assert_eq!(
        [
            column_minutes(&reader, 15, 180),
            column_minutes(&reader, 180, 1000),
            column_minutes(&reader, 180, 180)
        ],
        [1, 1, 2]
    );
    assert_eq!(
        [
            column_minutes(&reader, 180, 19),
            column_minutes(&reader, 180, 5),
            column_minutes(&reader, 180, 1)
        ],
        [10, 60, 180]
    );
    assert_eq!(
        column_minutes(&reader, 180 * 1440, 100),
        2 * 1440,
        "longer than what is offered"
    );
}

/// The number of drops in a span of minutes.
fn drops(from: u64, to: u64) -> u64 {
    (from..to)
        .filter(|m| !(100..120).contains(m))
        .map(|m| m % 3)
        .sum::<u64>()
}

fn total(sums: &Sums) -> u64 {
    sums.found.values().map(|(count, _)| *count).sum::<u64>()
}

#[test]
fn each_event_is_counted_once_in_what_is_asked_of_it() {
    let (_dir, reader) = stored();
    let columns = Columns::new(at(0), at(180), 10 * MINUTE);
    let ask = |parts: EventParts| {
        let mut sums = Sums::default();
        assert_eq!(
            reader.event_traffic(&columns, parts, &mut sums).unwrap(),
            Counted::default()
        );
        sums
    };
    let all = drops(0, 180) + 10;
    // From the counts of minutes, and one by one.
    let kinds = ask(EventParts::default());
    let drop_name = "drop None (None, None) None None []";
    for column in 0..18 {
        let expected = drops(column * 10, (column + 1) * 10);
        let found = kinds
            .found
            .get(&(drop_name.to_owned(), column as usize))
            .map_or(0, |sums| sums.0);
        assert_eq!(found, expected, "column {column}");
    }
    assert_eq!(total(&kinds), all);
    let source = flow(1).src();
    let placed = ask(EventParts {
        flow: true,
        location: true,
        cause: true,
        ..EventParts::default()
    });
    let name = format!(
        "drop Some({:?}) (Some(7), Some(3)) Some(71) None []",
        source.to_string()
    );
    let of_drops: u64 = placed
        .found
        .iter()
        .filter(|((one, _), _)| *one == name)
        .map(|(_, sums)| sums.0)
        .sum();
    assert_eq!((of_drops, total(&placed)), (drops(0, 180), all));
    let valued = ask(EventParts {
        values: true,
        path: true,
        ..EventParts::default()
    });
    assert_eq!(total(&valued), all);
    let seconds = (0..180).filter(|m| !(100..120).contains(m) && m % 3 == 2).count() as u64;
    let second: u64 = valued
        .found
        .iter()
        .filter(|((name, _), _)| name.ends_with("Some(1) []"))
        .map(|(_, s)| s.0)
        .sum();
    assert_eq!(second, seconds);
    let changed: u64 = valued
        .found
        .iter()
        .filter(|((name, _), _)| name.ends_with("[1, 3, 2]"))
        .map(|(_, s)| s.0)
        .sum();
    assert_eq!(changed, 1);
}

fn queue_rollup(ts: u64, interval: u32, count: u64) -> Rollup {
    let one = rollup(Metric::QueueOccupancy, ts, count, 5);
    Rollup {
        interval,
        node: Some(7),
        queue: Some(3),
        ..one
    }
}

#[test]
fn values_of_a_queue_are_there_also_in_the_minute_that_has_not_ended() {
    let (_dir, reader) = stored();
    for minutes in [1, 10, 60] {
        let columns = Columns::new(at(0), at(180), minutes * MINUTE);
        let mut sums = Sums::default();
        reader
            .series_traffic(&columns, Metric::QueueOccupancy, &mut sums)
            .unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        assert_eq!(found, 160 * 10);
        let first: u64 = (0..minutes).map(|minute| 10 * minute).sum();
        assert_eq!(sums.found[&("7 Some(3)".to_owned(), 0)], (10 * minutes, first));
    }
    // A program that is a minute and a half old: a minute, and thirty seconds of the next one.
    let dir = Dir::new("traffic-young");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(256);
    (0..90).for_each(|second| batch.rollup(&queue_rollup(at(0) + second * SECOND, 1, 2)));
    batch.rollup(&queue_rollup(at(0), 60, 120));
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    for (column, expected) in [(MINUTE, 180), (60 * MINUTE, 180), (SECOND, 180)] {
        let mut sums = Sums::default();
        let columns = Columns::new(at(0), at(2), column);
        reader
            .series_traffic(&columns, Metric::QueueOccupancy, &mut sums)
            .unwrap();
        let found: u64 = sums.found.values().map(|(count, _)| *count).sum();
        assert_eq!(found, expected, "columns of {} s", column / SECOND);
    }
}

/// Mixed by arithmetic alone: the same with each run.
fn mixed(n: u64) -> u64 {
    let n = (n ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ n >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

/// Events of every kind over ten minutes of two files, late ones among them, in transactions of some hundred.
fn of_all_kinds(dir: &Dir, seed: u64) {
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
    store.set_rules(vec!["slow".to_owned(), "full".to_owned()]);
    for part in 0..60 {
        let mut batch = Batch::with_capacity(1024);
        for n in 0..150 {
            let random = |below: u64, salt: u64| mixed(seed << 40 | part << 20 | n << 8 | salt) % below;
            let late = if random(8, 0) == 0 {
                random(150, 1) * SECOND
            } else {
                0
            };
            let event = Event {
                kind: Kind::ALL[random(12, 2) as usize],
                metric: Metric::ALL.get(random(8, 3) as usize).copied(),
                flow: (random(5, 4) > 0).then(|| flow(random(40, 5) as u32)),
                node: (random(4, 6) > 0).then(|| random(9, 7) as u32),
                interface: (random(3, 8) > 0).then(|| random(3, 9) as u32),
                queue: (random(2, 10) > 0).then(|| random(3, 11) as u8),
                rule: (random(3, 12) == 0).then(|| random(2, 13) as u16),
                reason: (random(4, 14) == 0).then(|| random(200, 15) as u8),
                value: (random(5, 19) > 0).then(|| random(1_000_000, 20)),
                ..bare(at(54) + part * 10 * SECOND + random(10_000_000_000, 16) - late)
            };
            let path = [random(3, 17) as u32, u32::MAX, 7];
            if random(3, 18) > 0 {
                batch.event(&event, &[]);
                continue;
            }
            if event.kind != Kind::New || event.flow.is_none() {
                batch.event(&event, &path);
                continue;
            }
            // A new flow, with some of its first values.
            batch.event(
                &Event {
                    metric: Some(Metric::FlowPath),
                    value: Some(3),
                    ..event
                },
                &path,
            );
            if random(3, 19) > 0 {
                let value = Some(random(1_000_000, 20));
                batch.event(
                    &Event {
                        metric: Some(Metric::FlowLatency),
                        value,
                        ..event
                    },
                    &[],
                );
            }
            if random(3, 21) > 0 {
                let (node, value) = (Some(7), Some(random(1_000_000, 22)));
                batch.event(
                    &Event {
                        metric: Some(Metric::HopLatency),
                        node,
                        value,
                        ..event
                    },
                    &[],
                );
            }
        }
        store.submit(batch);
        store.flush();
    }
    store.close();
}

/// Makes all files ones of version 5, which have no blocks.
fn without_blocks(dir: &Dir) {
    for name in dir.names().iter().filter(|name| name.ends_with(".db")) {
        let conn = rusqlite::Connection::open(dir.path().join(name)).unwrap();
        conn.execute_batch("DROP TABLE block_data; PRAGMA user_version = 5")
            .unwrap();
    }
}

fn has_bit(bits: u32, bit: u32) -> bool {
    bits & 1 << bit != 0
}

#[test]
fn events_counted_in_blocks_are_those_that_are_stored_one_by_one() {
    let queries: Vec<EventParts> = (0..64)
        .map(|bits| EventParts {
            flow: has_bit(bits, 0),
            path: has_bit(bits, 1),
            location: has_bit(bits, 2),
            metric: has_bit(bits, 3),
            cause: has_bit(bits, 4),
            any_kind: has_bit(bits, 5),
            values: false,
        })
        .collect();
    let spans = [
        (at(50), at(70), MINUTE),
        (at(50), at(70), 20 * MINUTE),
        (at(59), at(61), 5 * SECOND),
        (at(63) + 7 * SECOND, at(64), SECOND),
    ];
    for seed in 1..3 {
        let dir = Dir::new("traffic-blocks");
        of_all_kinds(&dir, seed);
        let ask = || {
            let reader = Reader::open(dir.path()).unwrap();
            let mut answers = Vec::new();
            for (parts, (from, to, column)) in
                queries.iter().flat_map(|parts| spans.map(|span| (*parts, span)))
            {
                let mut sums = Sums::default();
                let counted = reader
                    .event_traffic(&Columns::new(from, to, column), parts, &mut sums)
                    .unwrap();
                let seen: std::collections::BTreeSet<usize> = sums.seen.iter().copied().collect();
                answers.push((counted, sums.found, seen));
            }
            answers
        };
        let counted = ask();
        without_blocks(&dir);
        let read = ask();
        let all: u64 = counted[4].1.values().map(|(count, _)| *count).sum();
        assert!(all > 8_000 && counted[4].1.len() > 300, "{all}");
        for (i, (counted, read)) in counted.iter().zip(&read).enumerate() {
            let parts = queries[i / spans.len()];
            let span = spans[i % spans.len()];
            assert!(counted.1 == read.1, "{parts:?} {span:?}");
            assert_eq!((counted.0, &counted.2), (read.0, &read.2), "{parts:?} {span:?}");
        }
    }
}

/// By what events are stacked, and which.
const STACKS: [(&[Dimension], &str); 19] = {
    use Dimension::{
        Dst, Flow, Interface, Kind, Label, Metric, Node, Path, Port, Queue, Reason, Rule, Src, SrcPrefix,
    };
    [
        (&[Node], ""),
        (&[Src], "kind == drop or kind == change"),
        (&[Src, Node], "src in 10.0.0.16/28"),
        (&[SrcPrefix, Node], ""),
        (&[SrcPrefix, Queue], "not node in (1, 2) and kind != new"),
        (&[Flow, Kind], "node == 3"),
        (&[Path, Src], "path ~ 2>*"),
        (&[Path, Node, Port], "reason > 100 or host == 10.0.0.7"),
        (&[Kind], "rule == \"slow\" and not src == 10.0.0.1"),
        (&[Rule, Reason], "queue == 1"),
        (&[Metric, Interface], "metric == hop_latency and hops == 3"),
        (&[Dst], "flow ~ \"10.0.0.2\""),
        (&[Node], "hop_latency > 500us"),
        (
            &[Src],
            "hop_latency in (100us-200us, 300us) or queue_occupancy <= 1000",
        ),
        (&[Src, Node], "not hop_latency > 50us and flow_latency > 1"),
        (&[Kind], "flow_latency > 400us or hop_latency < 900us"),
        (&[Path], "path ~ 2>* and hop_latency >= 1"),
        (&[Label], ""),
        (&[Port, Label], "port > 1"),
    ]
};

#[test]
fn events_stacked_from_blocks_are_those_that_are_stored_one_by_one() {
    let dir = Dir::new("traffic-stacks");
    of_all_kinds(&dir, 9);
    let labels: BTreeMap<u32, Vec<String>> = [
        (1, vec!["leaf".to_owned()]),
        (3, vec!["leaf".to_owned(), "old".to_owned()]),
    ]
    .into();
    let labels = Arc::new(labels);
    let ask = || {
        let reader = Reader::open(dir.path()).unwrap();
        let mut answers = Vec::new();
        for (by, text) in STACKS {
            for (span, columns) in [
                ((at(50), at(70)), 180),
                ((at(50), at(70)), 10),
                ((at(58), at(60)), 10),
            ] {
                let condition = Filter::parse(text, View::Events, &filter::no_names).unwrap();
                let query = TrafficQuery {
                    span,
                    now: at(100),
                    columns,
                    measure: Measure::Events,
                    by: by.to_vec(),
                    prefixes: Prefixes { v4: 29, v6: 64 },
                    top: 5,
                    condition: (!text.is_empty()).then(|| Arc::new(condition)),
                    labels: Arc::clone(&labels),
                };
                answers.push((text, span, reader.traffic(&Arc::new(query)).unwrap()));
            }
        }
        answers
    };
    let counted = ask();
    without_blocks(&dir);
    for (counted, read) in counted.iter().zip(ask()) {
        let found: u64 = read.2.total.iter().flatten().map(|sums| sums.count).sum();
        assert!(found > 0, "{} finds nothing", read.0);
        assert!(
            *counted == read,
            "{} {:?}: {:?} and {:?}",
            read.0,
            read.1,
            counted.2.groups.first(),
            read.2.groups.first()
        );
    }
}

/// Kinds and nodes in a span, in columns of a minute, and since when they are counted.
fn by_node(dir: &Dir) -> (Counted, Found) {
    let reader = Reader::open(dir.path()).unwrap();
    let parts = EventParts {
        location: true,
        flow: true,
        ..EventParts::default()
    };
    let mut sums = Sums::default();
    let counted = reader
        .event_traffic(&Columns::new(at(50), at(70), MINUTE), parts, &mut sums)
        .unwrap();
    (counted, sums.found)
}

#[test]
fn blocks_that_cannot_be_read_cost_no_event() {
    let dir = Dir::new("traffic-damaged");
    of_all_kinds(&dir, 5);
    let whole = by_node(&dir);
    assert!(whole.1.len() > 300 && whole.0 == Counted::default());
    // In the middle of each file, so that some columns are counted in blocks and the earlier ones by rows.
    for name in dir.names().iter().filter(|name| name.ends_with(".db")) {
        let conn = rusqlite::Connection::open(dir.path().join(name)).unwrap();
        let middle =
            "SELECT id FROM block_data ORDER BY id LIMIT 1 OFFSET (SELECT count(*) / 2 FROM block_data)";
        let damage = format!("UPDATE block_data SET events = substr(events, 1, 40) WHERE id = ({middle})");
        assert_eq!(conn.execute(&damage, []).unwrap(), 1);
    }
    assert_eq!(by_node(&dir), whole);
}

fn count(sums: &Found) -> u64 {
    sums.values().map(|(count, _)| *count).sum::<u64>()
}

#[test]
fn files_with_blocks_without_values_are_read_by_rows_and_left_alone() {
    let dir = Dir::new("traffic-six");
    of_all_kinds(&dir, 6);
    let whole = by_node(&dir);
    let before = dir.names();
    for name in before.iter().filter(|name| name.ends_with(".db")) {
        let conn = rusqlite::Connection::open(dir.path().join(name)).unwrap();
        let blocks = "UPDATE block_data SET events = x'01' || substr(events, 2)";
        conn.execute_batch(&format!("{blocks}; PRAGMA user_version = 6"))
            .unwrap();
    }
    assert_eq!(by_node(&dir), whole);
    let store = Store::open(Config {
        period: Period::Hour,
        ..Config::new(dir.path())
    })
    .unwrap();
    let mut batch = Batch::with_capacity(64);
    batch.event(&bare(at(63)), &[]);
    store.submit(batch);
    assert_eq!(store.close().set_aside, 0);
    let new: Vec<String> = dir
        .names()
        .into_iter()
        .filter(|name| !before.contains(name))
        .collect();
    assert!(new.len() == 1 && new[0].ends_with(".2.db"), "{new:?}");
    assert_eq!(count(&by_node(&dir).1), count(&whole.1) + 1);
}

#[test]
fn the_latest_time_that_there_is_stops_nothing() {
    let dir = Dir::new("traffic-latest");
    let store = Store::open(Config::new(dir.path())).unwrap();
    for ts in [u64::MAX, i64::MAX as u64, u64::MAX, at(0)] {
        let mut batch = Batch::with_capacity(64);
        batch.event(
            &Event {
                kind: Kind::Change,
                node: Some(3),
                ..bare(ts)
            },
            &[],
        );
        store.submit(batch);
        store.flush();
    }
    let stats = store.close();
    assert_eq!(
        (stats.committed, stats.failed, stats.set_aside),
        (4, 0, 0),
        "{stats:?}"
    );
}

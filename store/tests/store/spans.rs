//! What happened in a span of time: flows, paths, nodes and rates whose truth is known.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use collector::event::{Basis, Loss};
use collector::{Batch, Drop, Event, FlowOrder, FlowRow, Kind, Location, Output as _, Rollup};
use detect::Metric;
use store::{
    Config, FlowFilter, FlowSpan, HeatFilter, PathSpan, RatePoint, Reader, SeriesKey, Span, SpanSum, Store,
};
use testkit::records::{Dir, SECOND, START, bare, flow};

const MINUTE: u64 = 60 * SECOND;

/// The start of a minute after two o'clock in the afternoon.
fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

/// A flow's rollup of a minute: so many reports, whose latencies are all the same.
fn minute(number: u32, at: u64, count: u64, latency: u64) -> Rollup {
    Rollup {
        ts: at,
        interval: 60,
        metric: Metric::FlowLatency,
        flow: Some(flow(number)),
        node: None,
        interface: None,
        queue: None,
        count,
        min: latency,
        max: latency,
        sum: count * latency,
        p50: None,
        p99: None,
    }
}

fn of_node(metric: Metric, ts: u64, value: u64) -> Rollup {
    let (node, interface, queue) = match metric {
        Metric::LinkUtilization => (Some(7), Some(2), None),
        Metric::QueueOccupancy => (Some(7), None, Some(3)),
        _ => (Some(7), None, None),
    };
    Rollup {
        metric,
        flow: None,
        node,
        interface,
        queue,
        p99: Some(value),
        ..minute(0, ts, 10, value)
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

fn flow_row(number: u32, last_seen: u64) -> FlowRow {
    FlowRow {
        flow: flow(number),
        flow_latency: Some(9),
        basis: Basis::HopSum,
        first_seen: START,
        last_seen,
        reports: 1,
    }
}

/// Three hours of two flows: one is there for all of it and changes its path after 90 minutes; the other lives for five minutes.
fn three_hours() -> Batch {
    let mut batch = Batch::with_capacity(4096);
    batch.event(&path(1, at(0) + 1, Kind::New), &[1, 2]);
    batch.event(&path(2, at(30) + 5, Kind::New), &[1, 3]);
    batch.event(&path(1, at(90) + SECOND, Kind::PathChange), &[1, 3]);
    for minute_of in 0..180 {
        batch.rollup(&minute(1, at(minute_of), 100, 1000 + minute_of));
        batch.rollup(&of_node(Metric::HopLatency, at(minute_of), 500 + minute_of));
        batch.rollup(&of_node(Metric::QueueOccupancy, at(minute_of), minute_of));
        batch.rollup(&of_node(Metric::LinkUtilization, at(minute_of), 200_000));
    }
    for minute_of in 30..35 {
        batch.rollup(&minute(2, at(minute_of), 7, 9_000));
    }
    batch.flow(&flow_row(1, at(179)), &[1, 3]);
    batch.flow(&flow_row(2, at(34)), &[1, 3]);
    batch
}

fn stored(batch: Batch) -> (Dir, Reader) {
    let dir = Dir::new("spans");
    let store = Store::open(Config::new(dir.path())).unwrap();
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

fn filter(from: u64, to: u64) -> FlowFilter {
    let span = Span::new(at(from), at(to));
    FlowFilter {
        span,
        order: FlowOrder::Reports,
        text: None,
        id: None,
        after: None,
        limit: 10,
    }
}

fn flows(reader: &Reader, filter: &FlowFilter) -> Vec<FlowSpan> {
    reader
        .flow_spans(filter)
        .unwrap()
        .flows
        .into_iter()
        .map(|(_, flow)| flow)
        .collect()
}

/// The sum of minutes `from` up to before `to` of the long flow. `first` and `last`: what the rollups at the ends say.
fn long(from: u64, to: u64, (first, last): (u64, u64), path: &[u32]) -> FlowSpan {
    let minutes = to - from;
    let sum = (from..to).map(|minute| 100 * (1000 + minute)).sum();
    FlowSpan {
        flow: flow(1),
        sum: SpanSum {
            count: 100 * minutes,
            min: 1000 + from,
            max: 999 + to,
            sum,
            first: at(first),
            last: at(last),
        },
        path: path.to_vec(),
        basis: Basis::HopSum,
    }
}

#[test]
fn flows_of_a_span_are_those_that_were_there_with_the_path_that_they_took() {
    let (_dir, reader) = stored(three_hours());
    let short = FlowSpan {
        flow: flow(2),
        sum: SpanSum {
            count: 35,
            min: 9_000,
            max: 9_000,
            sum: 315_000,
            first: at(30),
            last: at(35),
        },
        path: vec![1, 3],
        basis: Basis::HopSum,
    };
    // Minutes alone; the second flow has expired long ago, and is found.
    assert_eq!(
        flows(&reader, &filter(28, 37)),
        [long(28, 37, (28, 37), &[1, 2]), short.clone()]
    );
    assert_eq!(flows(&reader, &filter(40, 45)), [long(40, 45, (40, 45), &[1, 2])]);
    // Minutes, tens of minutes and hours.
    let rounded = FlowSpan {
        sum: SpanSum {
            last: at(40),
            ..short.sum
        },
        ..short.clone()
    };
    assert_eq!(
        flows(&reader, &filter(3, 57)),
        [long(3, 57, (3, 57), &[1, 2]), rounded.clone()]
    );
    let hours = FlowSpan {
        sum: SpanSum {
            first: at(0),
            last: at(60),
            ..short.sum
        },
        ..short
    };
    assert_eq!(
        flows(&reader, &filter(0, 180)),
        [long(0, 180, (0, 180), &[1, 3]), hours]
    );
    assert_eq!(
        flows(&reader, &filter(55, 133)),
        [long(55, 133, (55, 133), &[1, 3])]
    );
    assert_eq!(flows(&reader, &filter(200, 300)), []);
}

#[test]
fn flows_of_a_span_are_filtered_sorted_and_paged() {
    let (_dir, reader) = stored(three_hours());
    let all = filter(0, 180);
    let latency = FlowFilter {
        order: FlowOrder::Latency,
        limit: 1,
        ..all.clone()
    };
    let first = reader.flow_spans(&latency).unwrap();
    assert_eq!(
        (first.flows.len(), first.more, first.total, first.truncated),
        (1, true, 2, false)
    );
    let (rank, slowest) = &first.flows[0];
    assert_eq!(slowest.flow, flow(2));
    let rest = reader
        .flow_spans(&FlowFilter {
            after: Some(*rank),
            ..latency.clone()
        })
        .unwrap();
    assert_eq!((rest.flows[0].1.flow, rest.more, rest.total), (flow(1), false, 2));
    let text = Some(flow(2).src().to_string() + ":");
    assert_eq!(
        flows(&reader, &FlowFilter { text, ..all.clone() })[0].flow,
        flow(2)
    );
    let id = Some(flow(1).id());
    assert_eq!(flows(&reader, &FlowFilter { id, ..all })[0].flow, flow(1));
}

#[test]
fn one_flow_says_the_same_as_among_all() {
    let (dir, reader) = stored(three_hours());
    let spans = [(28, 37), (3, 57), (0, 180), (55, 133), (0, 200), (200, 300)];
    let same = |reader: &Reader| {
        for ((from, to), number) in spans.iter().flat_map(|span| [(span, 1), (span, 2)]) {
            let all = filter(*from, *to);
            let among: Vec<_> = flows(reader, &all)
                .into_iter()
                .filter(|found| found.flow == flow(number))
                .collect();
            for text in [None, Some(flow(number).to_string())] {
                let one = FlowFilter {
                    id: Some(flow(number).id()),
                    text,
                    ..all.clone()
                };
                assert_eq!(flows(reader, &one), among, "{from} {to} {number}");
            }
        }
        let strange = FlowFilter {
            id: Some(flow(9).id()),
            text: Some(flow(9).to_string()),
            ..filter(0, 180)
        };
        assert_eq!(flows(reader, &strange), []);
    };
    same(&reader);
    drop(reader);
    make_earlier(&dir);
    same(&Reader::open(dir.path()).unwrap());
}

#[test]
fn flows_that_share_an_id_are_all_found_by_it() {
    // Found by search: both have the id 1876573bf03ba46f.
    let twins = [
        "10.34.39.143:57873>10.97.196.140:80/17",
        "10.174.201.81:4693>10.241.114.202:80/17",
    ]
    .map(|text| text.parse::<wire::FlowKey>().unwrap());
    let mut batch = Batch::with_capacity(1 << 16);
    for (at_minute, flow) in [(5, twins[0]), (2 * 24 * 60, twins[1])] {
        batch.rollup(&Rollup {
            flow: Some(flow),
            ..minute(1, at(at_minute), 10, 70)
        });
    }
    let (_dir, reader) = stored(batch);
    for (to, wanted) in [(10, &twins[..1]), (3 * 24 * 60, &twins[..])] {
        let by_id = FlowFilter {
            id: Some(twins[0].id()),
            ..filter(0, to)
        };
        let mut found: Vec<_> = flows(&reader, &by_id).iter().map(|found| found.flow).collect();
        found.sort_by_key(|flow| *flow != twins[0]);
        assert_eq!(found, wanted);
        let by_text = FlowFilter {
            text: Some(twins[0].to_string()),
            ..by_id
        };
        let found: Vec<_> = flows(&reader, &by_text).iter().map(|found| found.flow).collect();
        assert_eq!(found, twins[..1]);
    }
}

fn expected_paths(from: u64, to: u64, node: u32) -> (Span, (Vec<PathSpan>, bool)) {
    let path = PathSpan {
        path: vec![1, node],
        flows: 1_200,
        reports: 12_000,
        last: at(to),
    };
    (Span::new(at(from), at(to)), (vec![path], false))
}

#[test]
fn paths_of_many_flows_are_read_in_one_pass_with_the_same_answer() {
    let mut batch = Batch::with_capacity(32_768);
    for number in 0..1_200 {
        let changes = [
            (at(0) + 1, Kind::New, 2),
            (at(20), Kind::PathChange, 3),
            (at(40), Kind::PathChange, 4),
        ];
        for (ts, kind, node) in changes {
            batch.event(&path(number, ts, kind), &[1, node]);
        }
        for minute_of in [5, 25, 45] {
            batch.rollup(&minute(number, at(minute_of), 10, 70));
        }
    }
    let (dir, reader) = stored(batch);
    let spans = [
        expected_paths(5, 6, 2),
        expected_paths(25, 26, 3),
        expected_paths(45, 46, 4),
    ];
    let same = |reader: &Reader| {
        spans
            .iter()
            .all(|(span, paths)| listed_paths(reader, *span) == *paths)
    };
    assert!(same(&reader));
    drop(reader);
    make_earlier(&dir);
    assert!(same(&Reader::open(dir.path()).unwrap()));
}

#[test]
fn a_flow_is_there_however_many_others_are() {
    let mut batch = Batch::with_capacity(250_000);
    for number in 0..200_010 {
        batch.rollup(&minute(number, at(0), 1, 70));
    }
    let (_dir, reader) = stored(batch);
    let all = filter(0, 1);
    let page = reader.flow_spans(&all).unwrap();
    assert_eq!((page.total, page.truncated), (200_000, true));
    let last = FlowFilter {
        id: Some(flow(200_009).id()),
        text: Some(flow(200_009).to_string()),
        ..all.clone()
    };
    let found = reader.flow_spans(&last).unwrap();
    assert_eq!((found.flows.len(), found.truncated), (1, false));
    assert_eq!(flows(&reader, &FlowFilter { text: None, ..last }).len(), 1);
}

fn path_span(path: &[u32], flows: u64, reports: u64, last: u64) -> PathSpan {
    PathSpan {
        path: path.to_vec(),
        flows,
        reports,
        last: at(last),
    }
}

/// The paths of a span of minutes, and whether some were left out.
fn paths(reader: &Reader, from: u64, to: u64) -> (Vec<PathSpan>, bool) {
    listed_paths(reader, Span::new(at(from), at(to)))
}

/// Returns the paths, and whether there are more flows than the limit.
fn listed_paths(reader: &Reader, span: Span) -> (Vec<PathSpan>, bool) {
    let spans = reader.path_spans(span).unwrap();
    (spans.paths, spans.truncated)
}

#[test]
fn paths_of_a_span_are_those_that_were_taken_in_it() {
    let (_dir, reader) = stored(three_hours());
    assert_eq!(
        paths(&reader, 40, 45),
        (vec![path_span(&[1, 2], 1, 500, 45)], false)
    );
    assert_eq!(
        paths(&reader, 100, 105),
        (vec![path_span(&[1, 3], 1, 500, 105)], false)
    );
    // The first flow took both, and each counts the reports of its minutes; the minute of the change counts for the later one.
    let left = PathSpan {
        last: at(90) + SECOND,
        ..path_span(&[1, 2], 1, 9_000, 0)
    };
    let both = vec![path_span(&[1, 3], 2, 9_035, 180), left];
    assert_eq!(paths(&reader, 0, 180), (both, false));
    let notes = reader.notes();
    assert!(notes.len() == 1 && notes[0].contains("100 of them"), "{notes:?}");
}

fn series_key(metric: Metric, interface: Option<u32>, queue: Option<u8>) -> SeriesKey {
    SeriesKey {
        metric: metric as u8,
        node: 7,
        interface,
        queue,
    }
}

fn minute_sum(min: u64, max: u64, sum: u64) -> SpanSum {
    SpanSum {
        count: 860,
        min,
        max,
        sum,
        first: at(47),
        last: at(133),
    }
}

fn total(base: u64) -> u64 {
    (47..133).map(|minute| 10 * (base + minute)).sum()
}

#[test]
fn nodes_of_a_span_have_the_extremes_of_it() {
    let mut batch = three_hours();
    let lost = Drop {
        ts: at(50),
        id: 1,
        flow: Some(flow(1)),
        tunnel: None,
        node: Some(7),
        ingress_if: None,
        egress_if: None,
        queue: None,
        reason: Some(1),
    };
    batch.drop_report(&lost);
    batch.drop_report(&Drop {
        ts: at(51),
        id: 2,
        ..lost
    });
    let (_dir, reader) = stored(batch);
    let spans = reader.node_spans(Span::new(at(47), at(133))).unwrap();
    let expected = [
        (
            series_key(Metric::HopLatency, None, None),
            minute_sum(547, 632, total(500)),
        ),
        (
            series_key(Metric::QueueOccupancy, None, Some(3)),
            minute_sum(47, 132, total(0)),
        ),
        (
            series_key(Metric::LinkUtilization, Some(2), None),
            minute_sum(200_000, 200_000, 860 * 200_000),
        ),
    ];
    assert_eq!(spans.series, expected.into_iter().collect());
    assert_eq!(spans.drops, [(7, 2)].into_iter().collect());
    assert!(!spans.truncated);
    assert!(
        reader
            .node_spans(Span::new(at(200), at(210)))
            .unwrap()
            .series
            .is_empty()
    );
}

fn rate_point(minute: u64, reports: u64, events: u64, lost: u64) -> RatePoint {
    RatePoint {
        ts: at(minute),
        reports,
        events,
        lost,
    }
}

#[test]
fn rates_have_gaps_where_nothing_was_received() {
    let mut batch = three_hours();
    let loss = Loss {
        ts: at(95),
        node: Some(7),
        source: [0; 16],
        hw_id: 0,
        lost: 4,
        reordered: 0,
        duplicated: 0,
    };
    batch.loss(&loss);
    let (_dir, reader) = stored(batch);
    let span = reader.rate_span(Span::new(at(80), at(240)), 20 * MINUTE).unwrap();
    let expected = [
        rate_point(80, 2000, 1, 4),
        rate_point(100, 2000, 0, 0),
        rate_point(120, 2000, 0, 0),
        rate_point(140, 2000, 0, 0),
        rate_point(160, 2000, 0, 0),
    ];
    assert_eq!(span.points, expected);
    assert_eq!(span.kinds, [(Kind::PathChange, 1)].into_iter().collect());
    // Second by second: events where they were, the minute's reports in all of them.
    let fine = reader.rate_span(Span::new(at(90), at(91)), SECOND).unwrap();
    let per_second: u64 = fine.points.iter().map(|point| point.reports).sum();
    assert_eq!((fine.points.len(), per_second), (60, 100));
    let events: Vec<u64> = fine
        .points
        .iter()
        .filter(|point| point.events > 0)
        .map(|point| point.ts)
        .collect();
    assert_eq!(events, [at(90) + SECOND]);
}

/// Makes the only file one of version 4.
fn make_earlier(dir: &Dir) {
    let path = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().path());
    let path = path
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "db"))
        .unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "DROP TABLE span_data; DROP TABLE taken_data; DROP TABLE minute_data; DROP TABLE block_data; PRAGMA user_version = 4",
    )
    .unwrap();
}

#[test]
fn a_file_of_version_4_says_the_same_and_is_left_as_it_is() {
    let mut batch = three_hours();
    batch.loss(&Loss {
        ts: at(95),
        node: None,
        source: [0; 16],
        hw_id: 0,
        lost: 4,
        reordered: 0,
        duplicated: 0,
    });
    // It began in the file before: no event says which path it takes.
    let row = FlowRow {
        flow: flow(3),
        flow_latency: None,
        basis: Basis::Measured,
        first_seen: at(20),
        last_seen: at(21),
        reports: 1,
    };
    batch.rollup(&minute(3, at(20), 5, 70));
    batch.flow(&row, &[4, 5]);
    let (dir, reader) = stored(batch);
    // Those of the longest rollups are rounded: minutes are exact.
    let everything = |reader: &Reader| {
        let flows = flows(reader, &filter(3, 57)).into_iter();
        let flows: Vec<_> = flows
            .map(|flow| (flow.flow, flow.sum.count, flow.sum.sum, flow.path, flow.basis))
            .collect();
        let (paths, truncated) = paths(reader, 0, 180);
        let paths: Vec<_> = paths
            .into_iter()
            .map(|path| (path.path, path.flows, path.reports))
            .collect();
        let rates = [20 * MINUTE, 30 * SECOND]
            .map(|column| reader.rate_span(Span::new(at(20), at(240)), column).unwrap());
        (
            flows,
            paths,
            truncated,
            rates,
            reader.node_spans(Span::new(at(47), at(133))).unwrap(),
        )
    };
    let expected = everything(&reader);
    assert!(
        expected.0.iter().any(|flow| flow.3 == [4, 5]) && expected.1.len() == 3,
        "{expected:?}"
    );
    drop(reader);
    make_earlier(&dir);
    let old = everything(&Reader::open(dir.path()).unwrap());
    assert_eq!(old, expected);
    // To add up what is in it takes long, if it is large: what comes now goes into the next file.
    let before = dir.names();
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut late = Batch::with_capacity(16);
    late.event(&bare(at(180)), &[]);
    store.submit(late);
    store.close();
    let files = [before, dir.names()].map(|names| names.iter().filter(|name| name.ends_with(".db")).count());
    assert_eq!(files, [1, 2]);
    let reader = Reader::open(dir.path()).unwrap();
    let mut more = everything(&reader);
    more.3 = expected.3.clone();
    assert_eq!(more, expected);
    let late = reader.rate_span(Span::new(at(180), at(181)), MINUTE).unwrap();
    assert_eq!(
        late.points,
        [RatePoint {
            ts: at(180),
            reports: 0,
            events: 1,
            lost: 0
        }]
    );
}

fn counts(reader: &Reader, filter: &FlowFilter) -> Vec<u64> {
    flows(reader, filter)
        .iter()
        .map(|flow| flow.sum.count)
        .collect::<Vec<_>>()
}

#[test]
fn a_span_of_all_time_reads_what_is_there() {
    let (dir, reader) = stored(three_hours());
    let all = FlowFilter {
        span: Span::new(0, u64::MAX),
        ..filter(0, 180)
    };
    assert_eq!(counts(&reader, &all), [18_000, 35]);
    drop(reader);
    make_earlier(&dir);
    assert_eq!(counts(&Reader::open(dir.path()).unwrap(), &all), [18_000, 35]);
}

#[test]
fn a_path_that_changes_twice_in_a_batch_is_not_taken_for_its_older_state() {
    let row = FlowRow {
        flow: flow(1),
        flow_latency: None,
        basis: Basis::Measured,
        first_seen: at(0),
        last_seen: at(0),
        reports: 1,
    };
    let dir = Dir::new("flap");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(64);
    batch.rollup(&minute(1, at(0), 1, 70));
    batch.event(&path(1, at(0) + 1, Kind::New), &[1, 2]);
    // The state was noted before the change, and is stored after it.
    batch.event(&path(1, at(0) + 3, Kind::PathChange), &[1, 3]);
    batch.flow(
        &FlowRow {
            last_seen: at(0) + 2,
            ..row
        },
        &[1, 2],
    );
    store.submit(batch);
    let mut batch = Batch::with_capacity(64);
    batch.rollup(&minute(1, at(1), 1, 70));
    batch.event(&path(1, at(1), Kind::PathChange), &[1, 2]);
    batch.flow(
        &FlowRow {
            last_seen: at(1),
            ..row
        },
        &[1, 2],
    );
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(flows(&reader, &filter(0, 1))[0].path, [1, 3]);
    assert_eq!(flows(&reader, &filter(1, 2))[0].path, [1, 2]);
}

fn heat_filter(interval: u32, column: u64) -> HeatFilter {
    HeatFilter {
        metric: Metric::QueueOccupancy,
        from: at(0),
        to: at(180),
        column,
        interval,
        location: Location::default(),
        limit: 10,
    }
}

#[test]
fn a_heat_map_of_long_rollups_has_the_same_peaks() {
    let (_dir, reader) = stored(three_hours());
    let [minutes, tens, hours] =
        [60, 600, 3600].map(|interval| reader.heat(&heat_filter(interval, 60 * MINUTE)).unwrap());
    assert_eq!(minutes.rows[0].values, [Some(59), Some(119), Some(179)]);
    assert_eq!((minutes.rows[0].worst, minutes.rows[0].count), (179, 1800));
    assert_eq!([&tens, &hours], [&minutes; 2]);
}

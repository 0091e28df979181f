//! Paths in a span of time, of flows that keep and change their paths over many files, compared with a plain model: a flow has the
//! path that it took last, in whichever file that is. The links of a span come from these paths.
#![allow(clippy::unwrap_used, reason = "a failed test says where")]

use std::collections::{BTreeMap, BTreeSet};

use collector::event::Basis;
use collector::{Batch, Event, FlowOrder, FlowRow, Kind, Output as _, Rollup};
use detect::Metric;
use store::{
    Config, FlowFilter, FlowSelector, FlowSpan, MovedFlows, PathChange, PathSpan, PathSpans, PathUse, Period,
    Reader, Span, SpanSum, Store,
};
use testkit::records::{Dir, SECOND, START, bare, flow};
use testkit::rng::Rng;

const MINUTE: u64 = 60 * SECOND;
/// A period of a file is an hour.
const MINUTES: u64 = 200;

fn at(minute: u64) -> u64 {
    START + minute * MINUTE
}

/// The paths and reports of a flow that the store must give back.
#[derive(Clone, Default, Debug)]
struct Truth {
    /// When the flow took each path. The first one begins the flow.
    starts: Vec<(u64, Vec<u32>)>,
    /// Reports by minute.
    reports: BTreeMap<u64, u64>,
}

impl Truth {
    /// Some changes, most often none in a file, and none while the flow is silent.
    fn random(rng: &mut Rng) -> Self {
        let begin = rng.below(MINUTES as usize / 2) as u64;
        let mut truth = Self::default();
        let mut silent = 0;
        for minute in begin..MINUTES {
            if rng.below(40) == 0 {
                silent = rng.below(80);
            }
            if silent > 0 && minute > begin {
                silent -= 1;
                continue;
            }
            truth.reports.insert(minute, 1 + rng.below(500) as u64);
            let changes = match rng.below(30) {
                0 => 1,
                1 => 2,
                _ => 0,
            };
            let mut seconds: Vec<u64> = (0..changes).map(|_| rng.below(60) as u64).collect();
            if minute == begin {
                seconds = vec![rng.below(60) as u64];
            }
            seconds.sort_unstable();
            seconds.dedup();
            for second in seconds {
                let path = vec![1, 2 + rng.below(3) as u32, 9];
                if truth.starts.last().is_none_or(|(_, last)| *last != path) {
                    truth.starts.push((at(minute) + second * SECOND, path));
                }
            }
        }
        truth
    }

    /// The paths that the flow had in a time, each from when until when.
    fn paths(&self, from: u64, to: u64) -> Vec<(u64, u64, &[u32])> {
        let ends = self.starts.iter().skip(1).map(|(ts, _)| *ts).chain([u64::MAX]);
        let all = self.starts.iter().zip(ends);
        let within = all.filter(|((ts, _), end)| *ts < to && *end > from);
        within
            .map(|((ts, path), end)| ((*ts).max(from), end.min(to), &path[..]))
            .collect()
    }

    fn minutes(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        self.reports
            .range(from..to)
            .map(|(minute, count)| (*minute, *count))
    }
}

fn rollup(number: u32, minute: u64, count: u64) -> Rollup {
    Rollup {
        ts: at(minute),
        interval: 60,
        metric: Metric::FlowLatency,
        flow: Some(flow(number)),
        node: None,
        interface: None,
        queue: None,
        count,
        min: 5,
        max: 5,
        sum: count * 5,
        p50: None,
        p99: None,
    }
}

/// Stores what is true as a collector does: changes when they happen, and the rollup of a minute after its end. With `states`,
/// some states of flows are stored, too.
fn store(dir: &Dir, truths: &[Truth], states: bool, rng: &mut Rng) {
    let mut config = Config::new(dir.path());
    config.period = Period::Hour;
    let store = Store::open(config).unwrap();
    for minute in 0..=MINUTES {
        let mut after = Batch::with_capacity(16_384);
        after.event(&bare(at(minute) + SECOND / 2), &[]);
        let mut during = Batch::with_capacity(16_384);
        for (number, truth) in (0..).zip(truths) {
            let Some(last) = minute.checked_sub(1) else { break };
            if let Some(count) = truth.reports.get(&last) {
                after.rollup(&rollup(number, last, *count));
                if states && rng.below(20) == 0 {
                    let (_, _, path) = *truth.paths(at(last), at(minute)).last().unwrap();
                    after.flow(&state(number, truth, at(minute) - 1), path);
                }
            }
        }
        for (number, truth) in (0..).zip(truths) {
            for (i, (ts, path)) in truth.starts.iter().enumerate() {
                if (at(minute)..at(minute + 1)).contains(ts) {
                    during.event(&taken(number, *ts, i > 0), path);
                }
            }
        }
        store.submit(after);
        store.submit(during);
    }
    store.close();
}

fn state(number: u32, truth: &Truth, last_seen: u64) -> FlowRow {
    FlowRow {
        flow: flow(number),
        flow_latency: Some(5),
        basis: Basis::HopSum,
        first_seen: truth.starts[0].0,
        last_seen,
        reports: 1,
    }
}

fn taken(number: u32, ts: u64, is_change: bool) -> Event {
    Event {
        kind: if is_change { Kind::PathChange } else { Kind::New },
        metric: Some(Metric::FlowPath),
        flow: Some(flow(number)),
        value: Some(3),
        previous: is_change.then_some(3),
        ..bare(ts)
    }
}

/// The sum of a flow's reports in a span, rounded as its rollups are.
fn sum(truth: &Truth, span: Span) -> Option<SpanSum> {
    let mut all: Option<SpanSum> = None;
    for piece in span.pieces() {
        let [from, to] = [piece.from, piece.to].map(|ts| (ts - START) / MINUTE);
        for (minute, count) in truth.minutes(from, to) {
            let first = at(minute) / piece.length() * piece.length();
            let sum = SpanSum {
                count,
                min: 5,
                max: 5,
                sum: 5 * count,
                first,
                last: first + piece.length(),
            };
            let known = all.get_or_insert(sum);
            known.first = known.first.min(sum.first);
            known.last = known.last.max(sum.last);
        }
    }
    let mut all = all?;
    let counts = truth.minutes((span.from() - START) / MINUTE, (span.to() - START) / MINUTE);
    all.count = counts.map(|(_, count)| count).sum();
    all.sum = 5 * all.count;
    Some(all)
}

fn expected_flows(truths: &[Truth], span: Span) -> Vec<FlowSpan> {
    let mut flows = Vec::new();
    for (number, truth) in (0..).zip(truths) {
        if let Some(sum) = sum(truth, span) {
            let path = truth.paths(0, span.to()).last().unwrap().2.to_vec();
            flows.push(FlowSpan {
                flow: flow(number),
                sum,
                path,
                basis: Basis::default(),
            });
        }
    }
    flows.sort_by_key(|found| found.flow);
    flows
}

fn found_flows(reader: &Reader, span: Span, id: Option<u64>) -> Vec<FlowSpan> {
    let filter = FlowFilter {
        span,
        order: FlowOrder::Reports,
        text: None,
        id,
        after: None,
        limit: 10_000,
    };
    let page = reader.flow_spans(&filter).unwrap();
    assert!(!page.truncated && !page.more);
    let mut flows: Vec<FlowSpan> = page.flows.into_iter().map(|(_, found)| found).collect();
    flows.iter_mut().for_each(|found| found.basis = Basis::default());
    flows.sort_by_key(|found| found.flow);
    flows
}

/// Each minute of a flow counts for the path at its end; the flow took all paths that it had in one of its minutes.
fn expected_paths(truths: &[Truth], from: u64, to: u64) -> PathSpans {
    let mut paths: BTreeMap<Vec<u32>, (BTreeSet<usize>, u64, u64)> = BTreeMap::new();
    for (number, truth) in truths.iter().enumerate() {
        for (minute, count) in truth.minutes(from, to) {
            let taken = truth.paths(at(minute), at(minute + 1));
            for (_, end, path) in &taken {
                let known = paths.entry(path.to_vec()).or_default();
                known.0.insert(number);
                known.2 = known.2.max(*end);
            }
            paths.get_mut(taken.last().unwrap().2).unwrap().1 += count;
        }
    }
    let mut paths: Vec<_> = paths.into_iter().collect();
    paths.sort_by(|(path_a, (a, ..)), (path_b, (b, ..))| {
        b.len().cmp(&a.len()).then_with(|| path_a.cmp(path_b))
    });
    let mut moved: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for number in 0..truths.len() {
        let has_flow = |index: &usize| paths[*index].1.0.contains(&number);
        let taken: Vec<usize> = (0..paths.len()).filter(has_flow).collect();
        if taken.len() > 1 {
            *moved.entry(taken).or_default() += 1;
        }
    }
    PathSpans {
        paths: paths
            .into_iter()
            .map(|(path, (flows, reports, last))| PathSpan {
                path,
                flows: flows.len() as u64,
                reports,
                last,
            })
            .collect(),
        moved: moved
            .into_iter()
            .map(|(paths, flows)| MovedFlows { paths, flows })
            .collect(),
        truncated: false,
    }
}

/// The time of each path in the flow's minutes, and its part of their reports.
fn expected_uses(truth: &Truth, from: u64, to: u64) -> Vec<PathUse> {
    let mut uses: BTreeMap<Vec<u32>, PathUse> = BTreeMap::new();
    for (minute, count) in truth.minutes(from, to) {
        let taken = truth.paths(at(minute), at(minute + 1));
        let length: u64 = taken.iter().map(|(from, to, _)| to - from).sum();
        let mut left = count;
        for (i, (from, to, path)) in taken.iter().enumerate() {
            let share = u128::from(count) * u128::from(to - from) / u128::from(length);
            let share = if i + 1 == taken.len() { left } else { share as u64 };
            left -= share;
            let path_use = uses.entry(path.to_vec()).or_insert(PathUse {
                path: path.to_vec(),
                flows: 1,
                reports: 0,
                time: 0,
                first: *from,
                last: *to,
            });
            path_use.reports += share;
            path_use.time += to - from;
            path_use.last = *to;
        }
    }
    let mut uses: Vec<PathUse> = uses.into_values().collect();
    uses.sort_by(|a, b| (b.time, b.reports, &a.path).cmp(&(a.time, a.reports, &b.path)));
    uses
}

fn expected_changes(truths: &[Truth], from: u64, to: u64) -> Vec<PathChange> {
    let mut changes = Vec::new();
    for (number, truth) in (0..).zip(truths) {
        for pair in truth.starts.windows(2) {
            if (at(from)..at(to)).contains(&pair[1].0) {
                changes.push(PathChange {
                    ts: pair[1].0,
                    flow: flow(number),
                    before: pair[0].1.clone(),
                    after: pair[1].1.clone(),
                });
            }
        }
    }
    changes.sort_by_key(|change| (change.ts, change.flow));
    changes
}

fn selector(number: u32) -> FlowSelector {
    FlowSelector {
        flow: Some(flow(number)),
        ..FlowSelector::default()
    }
}

/// Compares the answers about one span with what is true.
fn compare(reader: &Reader, truths: &[Truth], (from, to): (u64, u64), rng: &mut Rng, uses: bool) {
    let span = Span::new(at(from), at(to));
    let flows = expected_flows(truths, span);
    let at_ends = format!("{from}..{to}");
    assert_eq!(found_flows(reader, span, None), flows, "{at_ends}");
    for expected in flows.iter().take(3) {
        let one = found_flows(reader, span, Some(expected.flow.id()));
        assert_eq!(one, std::slice::from_ref(expected), "{at_ends}");
    }
    let mut paths = reader.path_spans(span).unwrap();
    let mut expected = expected_paths(truths, from, to);
    if span.pieces().iter().any(|piece| piece.interval > 60) {
        // The ends of longer rollups are rounded.
        let all = paths.paths.iter_mut().chain(&mut expected.paths);
        all.for_each(|path| path.last = 0);
    }
    assert_eq!(paths, expected, "{at_ends}");
    let changes = |flows: &FlowSelector| {
        let mut changes = reader.path_changes(span, flows, 10_000).unwrap().changes;
        changes.sort_by_key(|change| (change.ts, change.flow));
        changes
    };
    let expected = expected_changes(truths, from, to);
    assert_eq!(changes(&FlowSelector::default()), expected, "{at_ends}");
    let number = rng.below(truths.len()) as u32;
    let of_one: Vec<PathChange> = expected
        .into_iter()
        .filter(|change| change.flow == flow(number))
        .collect();
    assert_eq!(changes(&selector(number)), of_one, "{at_ends}");
    if uses {
        let found = reader.path_uses(span, &selector(number), 100).unwrap();
        let expected = expected_uses(&truths[number as usize], from, to);
        assert_eq!(found.uses, expected, "flow {number}, {at_ends}");
        let all = reader.path_uses(span, &FlowSelector::default(), 100).unwrap();
        let unknown = all.uses.iter().filter(|used| used.path.is_empty()).count();
        assert_eq!(unknown, 0, "{at_ends}");
    }
}

/// A span of some length, often around the end of an hour.
fn random_span(rng: &mut Rng, longest: usize) -> (u64, u64) {
    let from = match rng.below(3) {
        0 => 55 + 60 * rng.below(3) + rng.below(10),
        _ => rng.below(MINUTES as usize - 1),
    };
    let to = (from + 1 + rng.below(longest)).min(MINUTES as usize);
    (from as u64, to as u64)
}

fn truths(flows: usize, rng: &mut Rng) -> Vec<Truth> {
    (0..flows).map(|_| Truth::random(rng)).collect()
}

#[test]
fn a_flow_has_the_path_that_it_took_last_in_any_file() {
    for seed in 1..=4 {
        let mut rng = Rng(seed);
        let truths = truths(12, &mut rng);
        let states = seed % 2 == 0;
        let dir = Dir::new("taken");
        store(&dir, &truths, states, &mut rng);
        let reader = Reader::open(dir.path()).unwrap();
        for _ in 0..60 {
            let span = random_span(&mut rng, 130);
            compare(&reader, &truths, span, &mut rng, !states);
        }
    }
}

#[test]
fn the_paths_of_many_flows_are_those_of_few() {
    let mut rng = Rng(9);
    let truths = truths(1_200, &mut rng);
    let dir = Dir::new("taken-many");
    store(&dir, &truths, true, &mut rng);
    let reader = Reader::open(dir.path()).unwrap();
    for span in [(59, 61), (60, 63), (119, 120), (121, 125), (55, 70), (0, MINUTES)] {
        compare(&reader, &truths, span, &mut rng, false);
    }
}

#[test]
fn files_of_version_4_have_the_same_paths() {
    for seed in 11..=13 {
        let mut rng = Rng(seed);
        let truths = truths(8, &mut rng);
        let dir = Dir::new("taken-earlier");
        store(&dir, &truths, true, &mut rng);
        let names = dir.names();
        let files = names.iter().filter(|name| name.ends_with(".db"));
        for (_, name) in files.enumerate().filter(|(i, _)| i % 2 == seed as usize % 2) {
            let conn = rusqlite::Connection::open(dir.path().join(name)).unwrap();
            let earlier = "DROP TABLE span_data; DROP TABLE taken_data; DROP TABLE minute_data; DROP TABLE block_data; \
                           PRAGMA user_version = 4";
            conn.execute_batch(earlier).unwrap();
        }
        let reader = Reader::open(dir.path()).unwrap();
        for _ in 0..30 {
            // Ends of minutes only.
            let (from, to) = random_span(&mut rng, 9);
            compare(&reader, &truths, (from, to), &mut rng, false);
        }
    }
}

#[test]
fn a_state_shows_the_path_since_the_flow_began_if_no_event_does() {
    let dir = Dir::new("taken-state");
    let store = Store::open(Config::new(dir.path())).unwrap();
    let mut batch = Batch::with_capacity(64);
    let truth = Truth {
        starts: vec![(at(2), vec![1, 2, 9])],
        reports: (2..20).map(|minute| (minute, 10)).collect(),
    };
    for (minute, count) in &truth.reports {
        batch.rollup(&rollup(1, *minute, *count));
    }
    batch.flow(&state(1, &truth, at(20) - 1), &[1, 2, 9]);
    // Of this one, an event is known, and nothing of the time before.
    batch.event(&taken(2, at(10), true), &[1, 3, 9]);
    batch.flow(&state(2, &truth, at(20) - 1), &[1, 3, 9]);
    (2..20).for_each(|minute| batch.rollup(&rollup(2, minute, 1)));
    store.submit(batch);
    store.close();
    let reader = Reader::open(dir.path()).unwrap();
    let path = |node, reports| PathSpan {
        path: vec![1, node, 9],
        flows: 1,
        reports,
        last: at(18),
    };
    let paths_of = |from, to| reader.path_spans(Span::new(at(from), at(to))).unwrap().paths;
    assert_eq!(paths_of(0, 18), [path(3, 8)], "the state is later");
    let found = paths_of(3, 20);
    let [mut first, mut second] = [path(2, 170), path(3, 10)];
    (first.last, second.last) = (at(20), at(20));
    assert_eq!(found, [first, second]);
}

#[test]
fn a_path_in_a_file_that_was_deleted_is_unknown_and_said_to_be() {
    let mut batch = Batch::with_capacity(64);
    batch.event(&taken(1, at(10), false), &[1, 2, 9]);
    let mut next = Batch::with_capacity(64);
    next.rollup(&rollup(1, 59, 100));
    next.rollup(&rollup(1, 60, 100));
    next.event(&bare(at(61)), &[]);
    let dir = Dir::new("taken-deleted");
    let mut config = Config::new(dir.path());
    config.period = Period::Hour;
    let store = Store::open(config).unwrap();
    store.submit(batch);
    store.submit(next);
    store.close();
    let span = Span::new(at(59), at(61));
    let ask = || {
        let reader = Reader::open(dir.path()).unwrap();
        let flow_path = found_flows(&reader, span, None).remove(0).path;
        let paths = reader.path_spans(span).unwrap().paths.len();
        let uses = reader.path_uses(span, &selector(1), 10).unwrap().uses.remove(0);
        let notes = reader
            .notes()
            .into_iter()
            .filter(|note| note.contains("not known"));
        (flow_path, paths, uses.path, notes.count())
    };
    assert_eq!(ask(), (vec![1, 2, 9], 1, vec![1, 2, 9], 0));
    let oldest = dir.names().into_iter().next().unwrap();
    std::fs::remove_file(dir.path().join(oldest)).unwrap();
    assert_eq!(ask(), (vec![], 0, vec![], 2));
}

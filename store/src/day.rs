//! A day of a network, for measurements of questions about a span of time: 200 nodes with a latency, a queue and a link each, 10,000 flows
//! that change their paths now and then, and 20 million events. An hour of it is as dense.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use collector::event::{Basis, Nanos};
use collector::{Batch, Event, FlowOrder, FlowRow, Kind, Output as _, Rollup};
use detect::Metric;
use wire::FlowKey;

use crate::bench::{QueryTiming, ROUNDS};
use crate::config::{Config, Error, Policy};
use crate::path_use::FlowsOf;
use crate::query::{QueryError, QueryErrorKind};
use crate::queues::HeatFilter;
use crate::reader::Reader;
use crate::rows::EventFilter;
use crate::spans::{FlowFilter, SeriesKey, Span, SpanSum};
use crate::store::Store;
use crate::traffic::{Columns, EventGroup, EventParts, Tally};

/// Inserts `minutes` minutes, from midnight on, into an empty store in `dir`. Returns the number of events.
///
/// # Errors
/// The store cannot be opened.
pub fn insert(dir: &Path, minutes: u64) -> Result<u64, Error> {
    let config = Config { policy: Policy::Block, queue_batches: 16, max_bytes: None, ..Config::new(dir) };
    let store = Store::open(config)?;
    let mut batch = Batch::with_capacity(BATCH);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut events = 0;
    let submit = |batch: &mut Batch, room: usize| {
        if batch.len() + room >= BATCH / 2 {
            // The policy is to block: every batch is written.
            *batch = store.submit(std::mem::take(batch)).unwrap_or_default();
        }
    };
    for second in 0..minutes * 60 {
        let ts = START + second * SECOND;
        (0..NODES).for_each(|node| nodes_values(&mut batch, (ts, 1), node, next()));
        for n in 0..EVENTS_PER_SECOND {
            event(&mut batch, ts + n * 4_000_000, next());
            events += 1;
        }
        submit(&mut batch, 2_000);
        // What a minute's end brings is spread over its first ten seconds, as a collector does it.
        if second >= 60 && second % 60 < 10 {
            let minute = (ts / MINUTE - 1) * MINUTE;
            let share = second % 60;
            (0..NODES).filter(|node| u64::from(*node) % 10 == share).for_each(|node| {
                nodes_values(&mut batch, (minute, 60), node, next());
            });
            for number in (0..FLOWS).filter(|number| u64::from(*number) % 10 == share) {
                flows_minute(&mut batch, (minute, ts), number, next());
                submit(&mut batch, 2);
            }
        }
    }
    let _ = store.submit(batch);
    store.close();
    Ok(events)
}

fn nodes_values(batch: &mut Batch, (ts, interval): (Nanos, u32), node: u32, random: u64) {
    let series = [
        (Metric::HopLatency, None, None, random % 1_000_000),
        (Metric::QueueOccupancy, None, Some(0), random >> 12 & 0xffff),
        (Metric::LinkUtilization, Some(1), None, random >> 32 & 0xf_ffff),
    ];
    for (metric, interface, queue, value) in series {
        batch.rollup(&Rollup {
            ts,
            interval,
            metric,
            flow: None,
            node: Some(1 + node),
            interface,
            queue,
            count: 1000,
            min: value / 2,
            max: value,
            sum: value * 700,
            p50: Some(value * 2 / 3),
            p99: Some(value),
        });
    }
}

fn event(batch: &mut Batch, ts: Nanos, random: u64) {
    let number = (random >> 32) as u32 % FLOWS;
    let kind = match random % 1000 {
        0 => Kind::Drop,
        1..10 => Kind::PathChange,
        _ => Kind::Change,
    };
    let metric = match kind {
        Kind::Drop => None,
        Kind::PathChange => Some(Metric::FlowPath),
        _ => Some(Metric::HopLatency),
    };
    let event = Event {
        ts,
        id: random,
        kind,
        metric,
        flow: Some(flow(number)),
        node: (kind != Kind::PathChange).then_some(1 + random as u32 % NODES),
        interface: None,
        queue: None,
        value: Some(random >> 44),
        previous: None,
        threshold: Some(1000),
        rule: None,
        reason: (kind == Kind::Drop).then_some(71),
        basis: Basis::Measured,
    };
    let path = if kind == Kind::PathChange { path(number, random) } else { [0; 3] };
    batch.event(&event, if kind == Kind::PathChange { &path } else { &[] });
}

fn flows_minute(batch: &mut Batch, (minute, now): (Nanos, Nanos), number: u32, random: u64) {
    let latency = random % 1_000_000;
    batch.rollup(&Rollup {
        ts: minute,
        interval: 60,
        metric: Metric::FlowLatency,
        flow: Some(flow(number)),
        node: None,
        interface: None,
        queue: None,
        count: 60,
        min: latency / 2,
        max: latency,
        sum: latency * 42,
        p50: None,
        p99: None,
    });
    // Its state is stored more often, in a row of its own.
    if minute == START || random.is_multiple_of(30) {
        let row = FlowRow {
            flow: flow(number),
            flow_latency: Some(latency),
            basis: Basis::Measured,
            first_seen: START,
            last_seen: now,
            reports: (now - START) / SECOND,
        };
        batch.flow(&row, &path(number, 0));
    }
}

fn flow(number: u32) -> FlowKey {
    let [_, b, c, d] = number.to_be_bytes();
    FlowKey::v4([10, b, c, d], [172, 16, d, 1], Some((5000, 443)), 6)
}

/// From a leaf over a spine to a leaf.
fn path(number: u32, random: u64) -> [u32; 3] {
    let spine = 161 + (number + (random >> 16 & 7) as u32) % 40;
    [1 + number % 160, spine, 1 + (number * 7 + 3) % 160]
}

/// Asks what the pages ask, of short and long spans of a store that [`insert`] filled.
///
/// # Errors
/// A query fails, or takes longer than ten seconds.
pub fn run_queries(dir: &Path, minutes: u64) -> Result<Vec<QueryTiming>, QueryError> {
    let reader =
        Reader::open(dir).map_err(|error| QueryError::new(QueryErrorKind::Storage, error.to_string()))?;
    let end = START + minutes * MINUTE;
    let spans = [("10 min", 10), ("53 min", 53), ("3 h 8 min", 188), ("all", minutes)];
    let mut timings = Vec::new();
    for (name, length) in spans {
        // Not at the full hour.
        let to = if length < minutes { end - 187 * SECOND } else { end };
        let span = Span::of(to - (length * MINUTE).min(to - START), to);
        for (what, question) in QUESTIONS {
            timings.push(measure((what, name), &|| question(&reader, span))?);
        }
    }
    Ok(timings)
}

type Question = fn(&Reader, Span) -> Result<usize, QueryError>;

/// Questions of the pages, by their names.
const QUESTIONS: [(&str, Question); 13] = [
    ("flows, slowest 100", |reader, span| {
        let order = FlowOrder::Latency;
        let filter = FlowFilter { span, order, text: None, id: None, after: None, limit: 100 };
        reader.flow_spans(&filter).map(|flows| flows.flows.len())
    }),
    ("one flow", |reader, span| {
        let (order, id) = (FlowOrder::LastSeen, Some(flow(77).id()));
        let filter = FlowFilter { span, order, text: Some(flow(77).to_string()), id, after: None, limit: 1 };
        reader.flow_spans(&filter).map(|flows| flows.flows.len())
    }),
    ("nodes", |reader, span| reader.node_spans(span).map(|nodes| nodes.series.len())),
    ("paths", |reader, span| reader.path_spans(span).map(|(paths, _)| paths.len())),
    ("path changes", |reader, span| {
        reader.path_changes(span, &FlowsOf::default(), 100).map(|changes| changes.groups.len())
    }),
    ("paths of two hosts", |reader, span| {
        let of = FlowsOf { src: Some(flow(77).src().to_string()), ..FlowsOf::default() };
        reader.path_uses(span, &of, 100).map(|uses| uses.uses.len())
    }),
    ("rates", |reader, span| {
        let column = if span.length() <= 30 * MINUTE { 5 * SECOND } else { 8 * MINUTE };
        reader.rate_span(span, column).map(|rates| rates.points.len())
    }),
    ("heat map", |reader, span| {
        let (interval, column) = match span.length() / MINUTE {
            0..=30 => (1, 5 * SECOND),
            31..=600 => (60, MINUTE),
            _ => (60, 8 * MINUTE),
        };
        let (from, to) = (span.from() / column * column, span.to());
        let filter =
            HeatFilter { metric: Metric::QueueOccupancy, from, to, column, interval, node: None, limit: 50 };
        reader.heat(&filter).map(|heat| heat.rows.len())
    }),
    ("traffic by flow", |reader, span| traffic_of_flows(reader, span, false)),
    ("traffic by path", |reader, span| traffic_of_flows(reader, span, true)),
    ("events by node", |reader, span| {
        traffic_of_events(reader, span, EventParts { place: true, ..EventParts::default() })
    }),
    ("events by flow", |reader, span| {
        traffic_of_events(reader, span, EventParts { flow: true, ..EventParts::default() })
    }),
    ("events, latest 200", |reader, span| {
        let (from, before) = (Some(span.from()), Some(span.to()));
        reader.events(&EventFilter { from, before, ..EventFilter::default() }).map(|events| events.len())
    }),
];

/// Sums of groups by their numbers, with the cost of a map for each.
#[derive(Default)]
struct Sums {
    numbers: HashMap<String, u32>,
    counts: HashMap<(u32, usize), u64>,
}

impl Sums {
    fn number(&mut self, name: String) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(name).or_insert(next)
    }
}

impl Tally for Sums {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn seen(&mut self, _: usize) {}

    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32 {
        // As many groups as a person looks at.
        self.number(format!("{} {path:?}", flow.id() % 100))
    }

    fn event(&mut self, event: &EventGroup) -> u32 {
        self.number(format!("{:?} {:?}", event.node, event.flow.map(|flow| flow.id() % 100)))
    }

    fn series(&mut self, key: &SeriesKey) -> u32 {
        self.number(key.node.to_string())
    }

    fn add(&mut self, number: u32, column: usize, sum: &SpanSum) {
        *self.counts.entry((number, column)).or_default() += sum.count;
    }
}

fn traffic_of_flows(reader: &Reader, span: Span, by_path: bool) -> Result<usize, QueryError> {
    let columns = reader.flow_columns((span.from(), span.to()), COLUMNS)?;
    let mut sums = Sums::default();
    reader.flow_traffic(&columns, by_path, &mut sums)?;
    Ok(sums.counts.len())
}

fn traffic_of_events(reader: &Reader, span: Span, parts: EventParts) -> Result<usize, QueryError> {
    let columns = Columns::of((span.from(), span.to()), (span.length() / COLUMNS).max(SECOND));
    let mut sums = Sums::default();
    reader.event_traffic(&columns, parts, &mut sums)?;
    Ok(sums.counts.len())
}

fn measure(
    (what, span): (&str, &str),
    question: &dyn Fn() -> Result<usize, QueryError>,
) -> Result<QueryTiming, QueryError> {
    let time = || -> Result<(usize, std::time::Duration), QueryError> {
        let start = Instant::now();
        Ok((question()?, start.elapsed()))
    };
    let (rows, first) = time()?;
    let mut again = [std::time::Duration::ZERO; ROUNDS];
    for slot in &mut again {
        *slot = time()?.1;
    }
    again.sort();
    let again = [again[0], again[ROUNDS / 2], again[ROUNDS - 1]];
    Ok(QueryTiming { name: format!("{what}: {span}"), rows, first, again })
}

/// 2026-11-21 00:00 UTC.
const START: Nanos = 1_795_219_200_000_000_000;
const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;
const NODES: u32 = 200;
const FLOWS: u32 = 10_000;
/// 20 million in a day.
const EVENTS_PER_SECOND: u64 = 232;
const BATCH: usize = 16_384;
/// Columns of a chart.
const COLUMNS: u64 = 180;

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn every_question_about_a_span_has_an_answer() {
        let dir = Dir::new("day");
        assert_eq!(insert(dir.path(), 3).unwrap(), 180 * EVENTS_PER_SECOND);
        let asked = run_queries(dir.path(), 3).unwrap();
        assert_eq!(asked.len(), 52);
        let empty: Vec<&str> =
            asked.iter().filter(|asked| asked.rows == 0).map(|asked| asked.name.as_str()).collect();
        assert_eq!(empty, [] as [&str; 0]);
    }
}

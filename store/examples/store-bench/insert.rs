//! Benchmark of insertion and of the common queries: writes a synthetic event stream as fast as possible, then times
//! queries on it.
//!
//! The stream resembles a busy network: most events are changes of hop latency or queue depth, one in 30 is a path change, and
//! one in a thousand a drop. A fifth of them belong to 100 hot flows; the others are spread evenly. They are 500 µs apart, so
//! 20 M events cover 2.8 hours. Each second also has 100 rollups.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use collector::event::{Basis, Nanos};
use collector::{Batch, Event, Kind, Output as _, Rollup};
use detect::Metric;
use wire::FlowKey;

use nic::time::process_cpu_time;
use store::{Config, EventFilter, QueryError, QueryOptions, Reader, RollupFilter, Store, Value};

/// The number of times that a query is repeated.
pub(crate) const ROUNDS: usize = 5;
/// Time of the first record, 2026-11-21 00:00 UTC, ns.
const START: Nanos = 1_795_219_200_000_000_000;
const SPACING: Nanos = 500_000;
const SECOND: Nanos = 1_000_000_000;
const HOT: u32 = 100;
const NODE: u32 = 100;
const BATCH: usize = 4096;
const ROLLUPS_PER_SECOND: usize = 100;

/// The reason that a measurement failed.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// The result of inserting events.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Inserted {
    /// Events committed, with all indexes.
    pub(crate) events: u64,
    /// Rollups committed beside them.
    pub(crate) rollups: u64,
    /// Elapsed time from the first batch to the closed file.
    pub(crate) wall: Duration,
    /// CPU time of the writer thread until everything was committed; `None` where the system does not report it.
    pub(crate) cpu: Option<Duration>,
    /// CPU time of all threads of this process until the file was closed, including the thread that fills batches.
    pub(crate) all_cpu: Duration,
    /// Size of the files at the end.
    pub(crate) bytes: u64,
}

/// The timing of one query.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct QueryTiming {
    /// The name of the query.
    pub(crate) name: String,
    /// Number of rows in the result.
    pub(crate) rows: usize,
    /// Elapsed time of the first run, on a new connection.
    pub(crate) first: Duration,
    /// Elapsed times of the next [`ROUNDS`] runs: minimum, median and maximum.
    pub(crate) again: [Duration; 3],
    /// Mean CPU time of these repeated runs.
    pub(crate) cpu: Duration,
}

/// Inserts `events` events of `flows` flows into an empty store in `dir`, as fast as possible.
///
/// # Errors
/// The store cannot be opened.
pub(crate) fn insert(dir: &Path, events: u64, flows: u32) -> Result<Inserted, Failure> {
    let store = Store::open(Config {
        queue_batches: 16,
        ..Config::new(dir)
    })?;
    store.set_rules(vec!["slow".to_owned()]);
    let before = process_cpu_time();
    let start = Instant::now();
    let mut batch = Batch::with_capacity(BATCH);
    let mut traffic = Traffic::new(flows);
    for n in 0..events {
        traffic.event(n, &mut batch);
        if batch.len() >= BATCH - ROLLUPS_PER_SECOND || n + 1 == events {
            batch = store.submit(batch);
        }
    }
    store.flush();
    let cpu = writer_time();
    let stats = store.finish();
    let wall = start.elapsed();
    let all_cpu = process_cpu_time() - before;
    let mut bytes = 0;
    for file in fs::read_dir(dir)? {
        bytes += file?.metadata()?.len();
    }
    Ok(Inserted {
        events,
        rollups: stats.committed.saturating_sub(events),
        wall,
        cpu,
        all_cpu,
        bytes,
    })
}

/// Runs the queries of the UI and typical SQL on a store that [`insert`] filled with `events` events.
///
/// # Errors
/// A query fails, or takes longer than ten seconds.
pub(crate) fn run_queries(dir: &Path, events: u64) -> Result<Vec<QueryTiming>, Failure> {
    let end = START + events * SPACING;
    let from = end - (15 * 60_000_000_000).min(end - START);
    let hot = flow(0);
    let cold = flow(HOT + 7);
    let mut timings = Vec::new();
    let since = "SELECT * FROM events WHERE flow = ?1 AND ts > ?2";
    for (name, sql, params) in [
        (
            "flow-since: one flow's events, all of the time",
            since,
            vec![text(cold), Value::Int(0)],
        ),
        (
            "flow-since: a hot flow's last 15 min",
            since,
            vec![text(hot), Value::Int(from as i64)],
        ),
        (
            "scan: SELECT kind, count(*) … GROUP BY kind",
            "SELECT kind, count(*) FROM events GROUP BY kind",
            Vec::new(),
        ),
    ] {
        let options = QueryOptions {
            params,
            timeout: Duration::from_secs(300),
            ..QueryOptions::default()
        };
        timings.push(measure(dir, name, &|reader| {
            reader.query(sql, &options).map(|table| table.rows.len())
        })?);
    }
    for (name, filter) in latest_filters(cold, hot) {
        let name = format!("events: latest 200{name}");
        timings.push(measure(dir, &name, &|reader| {
            reader.events(&filter).map(|rows| rows.len())
        })?);
    }
    let rollups = RollupFilter {
        metric: Some(Metric::QueueOccupancy),
        node: Some(NODE),
        from: Some(from),
        ..RollupFilter::default()
    };
    timings.push(measure(dir, "rollups: a node's metric, 15 min", &|reader| {
        reader.rollups(&rollups).map(|rows| rows.len())
    })?);
    timings.push(measure(dir, "history: a hot flow, 15 min", &|reader| {
        let history = reader.history(&hot, Some(from), None, 2000)?;
        Ok(history.series.len())
    })?);
    Ok(timings)
}

fn text(flow: FlowKey) -> Value {
    Value::Text(flow.to_string())
}

fn only_kind(kind: Kind) -> EventFilter {
    EventFilter {
        kind: Some(kind),
        ..EventFilter::default()
    }
}

fn only_flow(flow: FlowKey) -> EventFilter {
    EventFilter {
        flow: Some(flow),
        ..EventFilter::default()
    }
}

/// Returns the filters of queries for the latest events, each with a suffix for the query's name.
fn latest_filters(cold: FlowKey, hot: FlowKey) -> [(&'static str, EventFilter); 9] {
    let all = EventFilter::default();
    let of_node = EventFilter {
        node: Some(NODE),
        ..all
    };
    let paths = EventFilter {
        metric: Some(Metric::FlowPath),
        ..all
    };
    let drops_of_node = EventFilter {
        kind: Some(Kind::Drop),
        ..of_node
    };
    [
        ("", all),
        (", kind = drop (rare)", only_kind(Kind::Drop)),
        (", kind = loss (none)", only_kind(Kind::Loss)),
        (", kind = change", only_kind(Kind::Change)),
        (", one node", of_node),
        (", one node, kind = drop", drops_of_node),
        (", metric = flow_path", paths),
        (", one flow", only_flow(cold)),
        (", a hot flow", only_flow(hot)),
    ]
}

fn measure(
    dir: &Path,
    name: &str,
    question: &dyn Fn(&Reader) -> Result<usize, QueryError>,
) -> Result<QueryTiming, Failure> {
    let reader = Reader::open(dir)?;
    Ok(timed(name, &|| question(&reader))?)
}

/// Runs a query once, and then [`ROUNDS`] times more.
pub(crate) fn timed(
    name: &str,
    question: &dyn Fn() -> Result<usize, QueryError>,
) -> Result<QueryTiming, QueryError> {
    let start = Instant::now();
    let rows = question()?;
    let first = start.elapsed();
    let before = process_cpu_time();
    let mut again = [Duration::ZERO; ROUNDS];
    for round in &mut again {
        let start = Instant::now();
        question()?;
        *round = start.elapsed();
    }
    let cpu = process_cpu_time() - before;
    again.sort();
    Ok(QueryTiming {
        name: name.to_owned(),
        rows,
        first,
        again: [again[0], again[ROUNDS / 2], again[ROUNDS - 1]],
        cpu: cpu / ROUNDS as u32,
    })
}

/// Generator of the events of a simulated network, the same in each run.
struct Traffic {
    flows: u32,
    random: u64,
}

impl Traffic {
    fn new(flows: u32) -> Self {
        Self {
            flows: flows.max(HOT + 8),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds the `n`-th event, and the rollups of a second when a new second begins.
    fn event(&mut self, n: u64, batch: &mut Batch) {
        let ts = START + n * SPACING;
        // One random number decides kind and value, the other one flow and node.
        let x = self.next();
        let y = self.next();
        let hot = x.is_multiple_of(5);
        let index = if hot {
            (y >> 32) as u32 % HOT
        } else {
            (y >> 32) as u32 % self.flows
        };
        let node = Some(100 + (y & 63) as u32);
        let value = Some(x >> 44);
        let base = Event {
            ts,
            id: x.rotate_left(23) ^ y,
            kind: Kind::Change,
            metric: Some(Metric::HopLatency),
            flow: Some(flow(index)),
            node,
            interface: None,
            queue: None,
            value,
            previous: Some(y >> 44),
            threshold: Some(1000),
            rule: None,
            reason: None,
            basis: Basis::Measured,
        };
        let path = [100 + index % 8, 110 + index % 5, 120 + index % 7];
        add_event(batch, &base, x, &path);
        if n.is_multiple_of(SECOND / SPACING) {
            (0..ROLLUPS_PER_SECOND as u32).for_each(|i| batch.rollup(&rollup(ts, i)));
        }
    }
}

/// Adds an event like `base`; `random` decides its kind, metric and location.
fn add_event(batch: &mut Batch, base: &Event, random: u64, path: &[u32]) {
    let none = Event {
        node: None,
        previous: None,
        threshold: None,
        ..*base
    };
    match (random >> 8) % 1000 {
        0 => batch.event(
            &Event {
                kind: Kind::Drop,
                metric: None,
                node: base.node,
                value: None,
                reason: Some(71),
                ..none
            },
            &[],
        ),
        1 => batch.event(
            &Event {
                kind: Kind::RuleOn,
                metric: None,
                rule: Some(0),
                ..none
            },
            &[],
        ),
        2..30 => batch.event(
            &Event {
                kind: Kind::New,
                metric: Some(Metric::FlowPath),
                ..none
            },
            path,
        ),
        30..40 => batch.event(
            &Event {
                kind: Kind::Expired,
                metric: Some(Metric::FlowPath),
                ..none
            },
            &[],
        ),
        40..60 => batch.event(
            &Event {
                kind: Kind::Latest,
                metric: Some(Metric::FlowLatency),
                ..none
            },
            path,
        ),
        60..200 => batch.event(
            &Event {
                metric: Some(Metric::FlowLatency),
                node: None,
                ..*base
            },
            &[],
        ),
        200..400 => {
            let queue = Some((random & 7) as u8);
            batch.event(
                &Event {
                    metric: Some(Metric::QueueOccupancy),
                    flow: None,
                    queue,
                    ..*base
                },
                &[],
            );
        }
        _ => batch.event(base, &[]),
    }
}

fn rollup(ts: Nanos, i: u32) -> Rollup {
    Rollup {
        ts: ts / SECOND * SECOND,
        interval: 1,
        metric: [Metric::QueueOccupancy, Metric::HopLatency][(i % 2) as usize],
        flow: None,
        node: Some(NODE + i / 2),
        interface: None,
        queue: Some(0),
        count: 1000,
        min: 10,
        max: u64::from(i) * 1000,
        sum: 500_000,
        p50: Some(500),
        p99: Some(900),
    }
}

fn flow(index: u32) -> FlowKey {
    let [a, b, c, d] = index.to_be_bytes();
    FlowKey::v4([10, b, c, d], [172, 16, a, 1], Some((5000, 443)), 6)
}

/// Returns the CPU time of all threads named `store`, from the kernel's scheduler statistics (`schedstat`).
fn writer_time() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let times = threads.flatten().filter_map(|thread| {
        let path = thread.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let stat = fs::read_to_string(path.join("schedstat")).ok()?;
        (name.trim() == "store").then(|| stat.split(' ').next()?.parse::<u64>().ok())?
    });
    let nanos: u64 = times.sum();
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn the_benchmark_runs_and_its_answers_are_not_empty() {
        let dir = Dir::new("bench");
        let inserted = insert(dir.path(), 20_000, 200).unwrap();
        assert_eq!((inserted.events, inserted.rollups), (20_000, 1000));
        let asked = run_queries(dir.path(), 20_000).unwrap();
        let empty: Vec<&str> = asked
            .iter()
            .filter(|asked| asked.rows == 0)
            .map(|asked| asked.name.as_str())
            .collect();
        // The 20 drops happened at other nodes.
        assert_eq!(
            empty,
            [
                "events: latest 200, kind = loss (none)",
                "events: latest 200, one node, kind = drop"
            ]
        );
    }
}

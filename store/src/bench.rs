//! Benchmarks of the store on this machine: `hopwise bench store-insert` and `store-query`.
//!
//! The events are those of a busy network: most are changes of hop latencies and queues, one in 30 is a path, one in a
//! thousand a drop. A fifth of them belong to a hundred hot flows, the others are spread evenly. They are 500 µs apart, so that
//! 20 M events are 2.8 hours, with a hundred rollups in each second.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use collector::event::{Basis, Nanos};
use collector::{Batch, Event, Kind, Output as _, Rollup};
use detect::Metric;
use wire::FlowKey;

use crate::config::{Config, Error, Policy};
use crate::query::{QueryError, QueryOptions, Value};
use crate::reader::Reader;
use crate::rows::{EventFilter, RollupFilter};
use crate::store::Store;

/// Result of inserting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inserted {
    /// Events committed, with all indexes.
    pub events: u64,
    /// Rollups committed beside them.
    pub rollups: u64,
    /// From the first batch to the closed file.
    pub wall: Duration,
    /// Processor time of the writer's thread until everything was committed; `None` where the system does not report it.
    pub cpu: Option<Duration>,
    /// Processor time of the store's threads until the file was closed, building indexes included.
    pub all_cpu: Option<Duration>,
    /// Size of the files at the end.
    pub bytes: u64,
}

/// Timing of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryTiming {
    /// Name of the query.
    pub name: String,
    /// Rows in the result.
    pub rows: usize,
    /// The first time, on a new connection.
    pub first: Duration,
    /// After that: minimum, median and maximum of [`ROUNDS`].
    pub again: [Duration; 3],
    /// Their mean processor time; `None` where the system does not report it.
    pub cpu: Option<Duration>,
}

/// Inserts `events` events of `flows` flows into an empty store in `dir`, as fast as possible.
///
/// # Errors
/// The store cannot be opened.
pub fn insert(dir: &Path, events: u64, flows: u32) -> Result<Inserted, Error> {
    let store = Store::open(Config {
        policy: Policy::Block,
        queue_batches: 16,
        ..Config::new(dir)
    })?;
    store.set_rules(vec!["slow".to_owned()]);
    let (start, before) = (Instant::now(), time_of_other_threads());
    let mut batch = Batch::with_capacity(BATCH);
    let mut traffic = Traffic::new(flows);
    for n in 0..events {
        traffic.event(n, &mut batch);
        if batch.len() >= BATCH - ROLLUPS_PER_SECOND || n + 1 == events {
            // The policy is to block: every batch is written.
            batch = store.submit(batch).unwrap_or_default();
        }
    }
    store.flush();
    let cpu = writer_time();
    let stats = store.finish();
    let wall = start.elapsed();
    let all_cpu = before
        .zip(time_of_other_threads())
        .map(|(before, after)| after.saturating_sub(before));
    let bytes = crate::files::list(dir)
        .map_err(|error| Error::io(dir, error))?
        .iter()
        .map(|file| file.bytes)
        .sum();
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
#[expect(
    clippy::too_many_lines,
    reason = "the rows of one measurement, in their order"
)]
pub fn run_queries(dir: &Path, events: u64) -> Result<Vec<QueryTiming>, QueryError> {
    let end = START + events * SPACING;
    let ago = |minutes: u64| (end - (minutes * 60_000_000_000).min(end - START)) as i64;
    let hot = flow(0);
    let cold = flow(HOT + 7);
    let sql = |sql: &'static str, params: Vec<Value>| {
        move |reader: &Reader| {
            let timeout = Duration::from_secs(300);
            let options = QueryOptions {
                params: params.clone(),
                timeout,
                ..QueryOptions::default()
            };
            reader.query(sql, &options).map(|table| table.rows.len())
        }
    };
    let latest = |filter: EventFilter| move |reader: &Reader| reader.events(&filter).map(|rows| rows.len());
    let all = EventFilter::default();
    let text = |flow: FlowKey| Value::Text(flow.to_string());
    let since = "SELECT * FROM events WHERE flow = ?1 AND ts > ?2";
    let rollups = RollupFilter {
        metric: Some(Metric::QueueOccupancy),
        node: Some(NODE),
        from: Some(ago(15) as u64),
        ..RollupFilter::default()
    };
    let from = Some(ago(15) as u64);
    let mut asked = Vec::new();
    let mut ask = |name, question: &dyn Fn(&Reader) -> Result<usize, QueryError>| {
        measure(dir, name, question).map(|figures| asked.push(figures))
    };
    ask(
        "flow-since: one flow's events, all of the time",
        &sql(since, vec![text(cold), Value::Int(0)]),
    )?;
    ask(
        "flow-since: a hot flow's last 15 min",
        &sql(since, vec![text(hot), Value::Int(ago(15))]),
    )?;
    ask("events: latest 200", &latest(all))?;
    ask(
        "events: latest 200, kind = drop (rare)",
        &latest(EventFilter {
            kind: Some(Kind::Drop),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, kind = loss (none)",
        &latest(EventFilter {
            kind: Some(Kind::Loss),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, kind = change",
        &latest(EventFilter {
            kind: Some(Kind::Change),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, one node",
        &latest(EventFilter {
            node: Some(NODE),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, one node, kind = drop",
        &latest(EventFilter {
            node: Some(NODE),
            kind: Some(Kind::Drop),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, metric = flow_path",
        &latest(EventFilter {
            metric: Some(Metric::FlowPath),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, one flow",
        &latest(EventFilter {
            flow: Some(cold),
            ..all
        }),
    )?;
    ask(
        "events: latest 200, a hot flow",
        &latest(EventFilter {
            flow: Some(hot),
            ..all
        }),
    )?;
    ask("rollups: a node's metric, 15 min", &|reader| {
        reader.rollups(&rollups).map(|rows| rows.len())
    })?;
    ask("history: a hot flow, 15 min", &|reader| {
        reader
            .history(&hot, from, None, 2000)
            .map(|history| history.series.len())
    })?;
    ask(
        "scan: SELECT kind, count(*) … GROUP BY kind",
        &sql("SELECT kind, count(*) FROM events GROUP BY kind", vec![]),
    )?;
    Ok(asked)
}

/// How often a query is repeated.
pub const ROUNDS: usize = 5;

fn measure(
    dir: &Path,
    name: &str,
    question: &dyn Fn(&Reader) -> Result<usize, QueryError>,
) -> Result<QueryTiming, QueryError> {
    let reader = Reader::open(dir)
        .map_err(|error| QueryError::new(crate::query::QueryErrorKind::Storage, error.to_string()))?;
    timed(name, &|| question(&reader))
}

/// Asks once, and then some times more.
pub(crate) fn timed(
    name: &str,
    question: &dyn Fn() -> Result<usize, QueryError>,
) -> Result<QueryTiming, QueryError> {
    let time = || -> Result<(usize, Duration), QueryError> {
        let start = Instant::now();
        Ok((question()?, start.elapsed()))
    };
    let (rows, first) = time()?;
    let before = own_time();
    let mut again = [Duration::ZERO; ROUNDS];
    for slot in &mut again {
        *slot = time()?.1;
    }
    let cpu = before
        .zip(own_time())
        .map(|(before, after)| after.saturating_sub(before));
    again.sort();
    Ok(QueryTiming {
        name: name.to_owned(),
        rows,
        first,
        again: [again[0], again[ROUNDS / 2], again[ROUNDS - 1]],
        cpu: cpu.map(|cpu| cpu / ROUNDS as u32),
    })
}

/// The events of a simulated network: always the same.
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

    /// The `n`-th event, and with each full second its rollups.
    #[expect(
        clippy::too_many_lines,
        reason = "the rows of one measurement, in their order"
    )]
    fn event(&mut self, n: u64, batch: &mut Batch) {
        let ts = START + n * SPACING;
        let (x, y) = (self.next(), self.next());
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
        let none = Event {
            node: None,
            value,
            previous: None,
            threshold: None,
            ..base
        };
        let path = [100 + index % 8, 110 + index % 5, 120 + index % 7];
        match (x >> 8) % 1000 {
            0 => batch.event(
                &Event {
                    kind: Kind::Drop,
                    metric: None,
                    node,
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
                &path,
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
                &path,
            ),
            60..200 => batch.event(
                &Event {
                    metric: Some(Metric::FlowLatency),
                    node: None,
                    ..base
                },
                &[],
            ),
            200..400 => {
                let queue = Some((x & 7) as u8);
                batch.event(
                    &Event {
                        metric: Some(Metric::QueueOccupancy),
                        flow: None,
                        queue,
                        ..base
                    },
                    &[],
                );
            }
            _ => batch.event(&base, &[]),
        }
        if n.is_multiple_of(SECOND / SPACING) {
            (0..ROLLUPS_PER_SECOND as u32).for_each(|i| batch.rollup(&rollup(ts, i)));
        }
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

/// Processor time of this process without the calling thread; threads that have ended are included. In steps of 10 ms.
pub fn time_of_other_threads() -> Option<Duration> {
    Some(own_time()?.saturating_sub(time_in("/proc/thread-self/stat")?))
}

/// Processor time of this process. In steps of 10 ms.
fn own_time() -> Option<Duration> {
    time_in("/proc/self/stat")
}

fn time_in(path: &str) -> Option<Duration> {
    let stat = fs::read_to_string(path).ok()?;
    let fields = stat.rsplit(')').next()?.split_whitespace().skip(11).take(2);
    let ticks = fields
        .map(|field| field.parse::<u64>().ok())
        .sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

/// Processor time of the threads called `store`, from the scheduler.
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

/// 2026-11-21 00:00 UTC.
const START: Nanos = 1_795_219_200_000_000_000;
const SPACING: Nanos = 500_000;
const SECOND: Nanos = 1_000_000_000;
const HOT: u32 = 100;
const NODE: u32 = 100;
const BATCH: usize = 4096;
const ROLLUPS_PER_SECOND: usize = 100;

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
        // Of twenty drops, none happened at that node.
        assert_eq!(
            empty,
            [
                "events: latest 200, kind = loss (none)",
                "events: latest 200, one node, kind = drop"
            ]
        );
    }
}

//! Cases `store-…`: events inserted into the store, time of a query, and events read in the order of commits.

use std::path::Path;
use std::time::Instant;

use collector::event::{Basis, Kind, Stream};
use collector::{Batch, Event, Output};
use detect::Metric;
use nic::time::{process_cpu_time, thread_cpu_time};
use store::{Follower, QueryOptions, Reader, Store, StreamPosition, Value};
use wire::FlowKey;

use super::harness::{Conditions, Failure, Outcome, Plan, measure};
use experiments::figures::failed;
use experiments::machine::Scratch;
use terminal::CliError;

const BATCH: usize = 8192;
/// Maximum number of events in one read of a follower.
const PAGE: usize = 10_000;
const FLOWS: u64 = 50_000;
/// Time between two events, ns: half a million events per second.
const STEP: u64 = 2_000;
/// 2026-01-01 12:00 UTC, so that all events belong to one file, which holds a day.
const BEGIN: u64 = 1_767_268_800_000_000_000;

/// Measures events submitted to the store until they are committed, with all indexes (`store-insert`).
pub(super) fn insert(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let dir = Scratch::new(name)?;
    let before = process_cpu_time() - thread_cpu_time();
    let mut filler = Filler::new(open(dir.path())?);
    // So many that waiting for the last commit has little effect.
    let batches: u64 = if plan.is_trial() { 2 } else { 32 };
    let measured = measure(plan, || {
        for _ in 0..batches {
            filler.submit();
        }
        filler.store.flush();
        Ok(batches * BATCH as u64)
    })?;
    let stats = filler.store.finish();
    if stats.committed != stats.submitted {
        return Err(CliError::new(format!(
            "{} of {} events were not stored",
            stats.shed + stats.failed,
            stats.submitted
        ))
        .into());
    }
    // Includes the warm-up, and the indexes that are built when files are complete.
    let used = process_cpu_time() - thread_cpu_time() - before;
    let store_ns = used.as_nanos() as f64 / stats.committed.max(1) as f64;
    let conditions = Conditions::of(
        "one event",
        "queue, write-ahead log, commit; one writer thread, batches filled by another; indexes, at this rate by a third",
    )
    .ratio("store_ns_on_core", store_ns)
    .number("files_indexed_later", stats.indexed_later)
    .number("flows", FLOWS)
    .number("batch", BATCH)
    .number("committed", stats.committed)
    .text("directory", dir.path().display().to_string());
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}

/// Measures queries for the events of one flow after a point in time, out of two million (`store-query`).
pub(super) fn query(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    query_among(name, plan, 2_000_000)
}

/// Measures the same queries out of twenty million events (`store-query-20m`).
pub(super) fn query_20m(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    query_among(name, plan, 20_000_000)
}

fn query_among(name: &'static str, plan: &Plan, wanted: u64) -> Result<Outcome, Failure> {
    let events = if plan.is_trial() {
        wanted.min(50_000)
    } else {
        wanted
    };
    let dir = Scratch::new(name)?;
    let started = Instant::now();
    let filled = fill(dir.path(), events)?;
    let fill_seconds = started.elapsed().as_secs_f64();
    let reader = Reader::open(dir.path()).map_err(failed)?;
    let half = BEGIN + filled / 2 * STEP;
    let mut flow = 0;
    let mut rows = 0;
    let mut queries = 0;
    let measured = measure(plan, || {
        flow = (flow + 7919) % FLOWS;
        let params = vec![Value::Text(key(flow).to_string()), Value::Int(half.cast_signed())];
        let options = QueryOptions {
            params,
            ..QueryOptions::default()
        };
        let answer = reader.query(
            "SELECT ts, value FROM events WHERE flow = ?1 AND ts > ?2",
            &options,
        );
        rows += answer.map_err(failed)?.rows.len() as u64;
        queries += 1;
        Ok(1)
    })?;
    let conditions = Conditions::of(
        "one query",
        "SELECT ts, value FROM events WHERE flow = ? AND ts > ?; files in the page cache",
    )
    .number("events", filled)
    .number("flows", FLOWS)
    .ratio("rows_per_query", rows as f64 / queries as f64)
    .ratio("filled_in_s", fill_seconds);
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}

/// Measures reading events in the order of their commits, from the first to the last, repeatedly (`store-follow`).
pub(super) fn follow(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let dir = Scratch::new(name)?;
    let events = if plan.is_trial() { 50_000 } else { 1_000_000 };
    let events = fill(dir.path(), events)?;
    let mut follower = Follower::new(dir.path());
    let mut place = StreamPosition::default();
    let measured = measure(plan, || {
        let chunk = follower
            .read(Stream::Events, place, None, PAGE, usize::MAX)
            .map_err(failed)?;
        if chunk.records.is_empty() && place == StreamPosition::default() {
            return Err(CliError::new("the store has no events").into());
        }
        place = if chunk.is_last {
            StreamPosition::default()
        } else {
            chunk.end
        };
        Ok(chunk.records.len() as u64)
    })?;
    let conditions = Conditions::of("one event", "read, and taken apart; files in the page cache")
        .number("events", events)
        .number("flows", FLOWS)
        .number("page", PAGE);
    Ok(Outcome::measured(name, measured, conditions))
}

/// Fills a store with at least `events` events, and returns their number.
pub(super) fn fill(dir: &Path, events: u64) -> Result<u64, CliError> {
    let mut filler = Filler::new(open(dir)?);
    while filler.filled < events {
        filler.submit();
    }
    let stats = filler.store.finish();
    Ok(stats.committed)
}

fn open(dir: &Path) -> Result<Store, CliError> {
    let config = store::Config {
        max_bytes: Some(16 << 30),
        ..store::Config::new(dir)
    };
    Store::open(config).map_err(failed)
}

/// Fills batches with events as a collector emits them, and submits them to a store.
struct Filler {
    store: Store,
    batch: Batch,
    filled: u64,
}

impl Filler {
    fn new(store: Store) -> Self {
        Self {
            store,
            batch: Batch::with_capacity(BATCH),
            filled: 0,
        }
    }

    fn submit(&mut self) {
        for number in self.filled..self.filled + BATCH as u64 {
            self.batch.event(&event(number), &[]);
        }
        self.filled += BATCH as u64;
        let full = std::mem::take(&mut self.batch);
        self.batch = self.store.submit(full);
    }
}

/// Returns the event with this number, a change of the hop latency of a pseudorandom flow.
pub(super) fn event(number: u64) -> Event {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Event {
        ts: BEGIN + number * STEP,
        id: mixed,
        kind: Kind::Change,
        metric: Some(Metric::HopLatency),
        flow: Some(key((mixed >> 32) % FLOWS)),
        node: Some(100 + (mixed >> 20) as u32 % 64),
        interface: None,
        queue: None,
        value: Some(mixed >> 44),
        previous: Some(mixed >> 45),
        threshold: Some(50_000),
        rule: None,
        reason: None,
        basis: Basis::Measured,
    }
}

fn key(flow: u64) -> FlowKey {
    let [.., high, median, low] = flow.to_be_bytes();
    FlowKey::v4([10, high, median, low], [10, 200, 0, 1], Some((5000, 80)), 6)
}

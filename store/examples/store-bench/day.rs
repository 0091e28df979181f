//! Synthetic data for benchmarks of queries over a time span: up to a day of a network with 200 nodes, 10,000 flows and
//! 20 million events.
//!
//! Each node has one latency, queue and link series, with rollups per second and per minute. Flows have a rollup per
//! minute and change their paths now and then. The rates do not depend on the length, so an hour is as dense as a day.

mod questions;

use std::path::Path;

use collector::event::{Basis, Drop, Nanos};
use collector::{Batch, Event, FlowRow, Kind, Output as _, Rollup};
use detect::Metric;
use wire::FlowKey;

use store::{Config, Store};

pub(crate) use self::questions::run_queries;
use crate::insert::Failure;

/// Time of the first record, 2026-11-21 00:00 UTC, ns.
const START: Nanos = 1_795_219_200_000_000_000;
const SECOND: Nanos = 1_000_000_000;
const MINUTE: Nanos = 60 * SECOND;
const NODES: u32 = 200;
const FLOWS: u32 = 10_000;
/// 20 million events in a day.
const EVENTS_PER_SECOND: u64 = 232;
const BATCH: usize = 16_384;

/// Inserts `minutes` minutes, from midnight on, into an empty store in `dir`. Returns the number of events.
///
/// # Errors
/// The store cannot be opened.
pub(crate) fn insert(dir: &Path, minutes: u64) -> Result<u64, Failure> {
    let config = Config {
        queue_batches: 16,
        max_bytes: None,
        ..Config::new(dir)
    };
    let store = Store::open(config)?;
    let mut batch = Batch::with_capacity(BATCH);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut events = 0;
    for second in 0..minutes * 60 {
        let ts = START + second * SECOND;
        for node in 0..NODES {
            // Rollups of one second; those of 60 s follow below.
            nodes_values(&mut batch, ts, 1, node, random.next());
        }
        for n in 0..EVENTS_PER_SECOND {
            // 4 ms apart: 232 events fit into one second.
            event(&mut batch, ts + n * 4_000_000, random.next());
            events += 1;
        }
        submit_if_full(&store, &mut batch, 2_000);
        // Like a collector, spread the rollups of a minute over the first ten seconds after its end.
        if second >= 60 && second % 60 < 10 {
            let minute = (ts / MINUTE - 1) * MINUTE;
            let share = second % 60;
            for node in (0..NODES).filter(|node| u64::from(*node) % 10 == share) {
                nodes_values(&mut batch, minute, 60, node, random.next());
            }
            for number in (0..FLOWS).filter(|number| u64::from(*number) % 10 == share) {
                flows_minute(&mut batch, minute, ts, number, random.next());
                submit_if_full(&store, &mut batch, 2);
            }
        }
    }
    store.submit(batch);
    store.close();
    Ok(events)
}

/// Submits the batch if it has no room for `records` more.
fn submit_if_full(store: &Store, batch: &mut Batch, records: usize) {
    if batch.len() + records >= BATCH / 2 {
        *batch = store.submit(std::mem::take(batch));
    }
}

/// A pseudo-random sequence (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn nodes_values(batch: &mut Batch, ts: Nanos, interval: u32, node: u32, random: u64) {
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
    if kind == Kind::Drop {
        batch.drop_report(&Drop {
            ts,
            id: event.id,
            flow: event.flow,
            tunnel: None,
            node: event.node,
            ingress_if: Some(1),
            egress_if: Some(2),
            queue: Some(0),
            reason: event.reason,
        });
    }
    if kind == Kind::PathChange {
        batch.event(&event, &path(number, random));
    } else {
        batch.event(&event, &[]);
    }
}

fn flows_minute(batch: &mut Batch, minute: Nanos, now: Nanos, number: u32, random: u64) {
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
    // The flow's state is stored in a row of its own, about every 30 minutes.
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

/// Returns the node IDs of a leaf-spine-leaf path: leaves are 1 to 160, spines 161 to 200.
fn path(number: u32, random: u64) -> [u32; 3] {
    let spine = 161 + (number + (random >> 16 & 7) as u32) % 40;
    [1 + number % 160, spine, 1 + (number * 7 + 3) % 160]
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    #[test]
    fn every_question_about_a_span_has_an_answer() {
        let dir = Dir::new("day");
        assert_eq!(insert(dir.path(), 3).unwrap(), 180 * EVENTS_PER_SECOND);
        let asked = run_queries(dir.path(), 3).unwrap();
        let questions = asked.len() / 4;
        assert!(questions > 30 && asked.len() == questions * 4, "{}", asked.len());
        // Nothing is lost in this network.
        let empty: Vec<&str> = asked
            .iter()
            .filter(|asked| asked.rows == 0)
            .map(|asked| asked.name.as_str())
            .collect();
        assert_eq!(empty, [] as [&str; 0]);
    }
}

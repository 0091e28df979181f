//! Test data for the store and the exports: a temporary directory, and records of every kind that a collector emits.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use collector::event::{Basis, Nanos};
use collector::{Batch, Drop, Event, FlowRow, Kind, Loss, Output as _, Rollup};
use detect::Metric;
use wire::FlowKey;

/// A directory that is removed when the test ends.
#[derive(Debug)]
pub struct Dir(PathBuf);

impl Dir {
    /// Creates the directory; `name` is part of its name.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hopwise-store-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the sorted names of its files, without the store's lock file and SQLite's shared memory files (`-shm`).
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| !name.ends_with("-shm") && name != "hopwise.lock");
        names.sort();
        names
    }
}

impl std::ops::Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Start time, 2026-11-21 14:00:00 UTC.
pub const START: Nanos = 1_795_269_600_000_000_000;
/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Returns the `n`-th of many IPv4 flows; different numbers give different flows.
pub fn flow(n: u32) -> FlowKey {
    let [a, b, c, d] = n.to_be_bytes();
    FlowKey::v4([10, b, c, d], [172, 16, a, 1], Some((5000, 80)), 17)
}

/// Flows with unusual text forms: without ports, IPv6, IPv4-mapped, extreme values, and only a flow ID.
pub fn odd_flows() -> [FlowKey; 5] {
    let mapped = Ipv4Addr::new(1, 2, 3, 4).to_ipv6_mapped().octets();
    [
        FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], None, 1),
        FlowKey::new(
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            "2001:db8::2".parse().unwrap(),
            Some((1, 65535)),
            6,
        ),
        FlowKey::v6(mapped, mapped, None, 58),
        FlowKey::v4([255; 4], [0; 4], Some((0, 0)), 255),
        FlowKey::of_id(0xf10a),
    ]
}

/// Returns an event with only the required fields.
pub fn bare(ts: Nanos) -> Event {
    Event {
        ts,
        id: ts ^ 0xdead_beef_0000_0001,
        kind: Kind::Change,
        metric: None,
        flow: None,
        node: None,
        interface: None,
        queue: None,
        value: None,
        previous: None,
        threshold: None,
        rule: None,
        reason: None,
        basis: Basis::Measured,
    }
}

/// Returns the change of a hop latency from half of `value` to `value`.
pub fn change(ts: Nanos, flow: FlowKey, node: u32, value: u64) -> Event {
    Event {
        metric: Some(Metric::HopLatency),
        flow: Some(flow),
        node: Some(node),
        value: Some(value),
        previous: Some(value / 2),
        threshold: Some(1000),
        ..bare(ts)
    }
}

/// Returns a rollup of one second over the occupancy of a queue.
pub fn rollup(ts: Nanos, node: u32) -> Rollup {
    Rollup {
        ts,
        interval: 1,
        metric: Metric::QueueOccupancy,
        flow: None,
        node: Some(node),
        interface: None,
        queue: Some(3),
        count: 7,
        min: 1,
        max: 9,
        sum: 30,
        p50: Some(4),
        p99: Some(9),
    }
}

/// Returns a row of the flow table.
pub fn flow_row(flow: FlowKey, last_seen: Nanos) -> FlowRow {
    FlowRow {
        flow,
        flow_latency: Some(1500),
        basis: Basis::HopSum,
        first_seen: START,
        last_seen,
        reports: 12,
    }
}

/// Returns a report of a packet that `node` dropped.
pub fn drop_report(ts: Nanos, node: u32) -> Drop {
    Drop {
        ts,
        id: ts | 1 << 63,
        flow: Some(flow(1)),
        tunnel: None,
        node: Some(node),
        ingress_if: Some(1),
        egress_if: Some(2),
        queue: Some(0),
        reason: Some(71),
    }
}

/// Returns a record of lost, reordered and duplicated reports of one reporter.
pub fn loss(ts: Nanos, node: Option<u32>) -> Loss {
    let source = Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets();
    Loss {
        ts,
        node,
        source,
        hw_id: 3,
        lost: 5,
        reordered: 2,
        duplicated: 1,
    }
}

/// Returns a batch of `count` changes, one per microsecond from `ts` on, over `flows` flows and 8 nodes, with room for 16 more.
pub fn changes(ts: Nanos, count: u32, flows: u32) -> Batch {
    let mut batch = Batch::with_capacity(count as usize + 16);
    for i in 0..count {
        // Multiplicative hashing (Knuth), so that flows and values look random.
        let n = i.wrapping_mul(2_654_435_761) >> 8;
        batch.event(
            &change(
                ts + u64::from(i) * 1000,
                flow(n % flows),
                100 + n % 8,
                u64::from(n),
            ),
            &[],
        );
    }
    batch
}

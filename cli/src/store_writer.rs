//! Writes the output of a collector that runs in a command (`replay`, the demo's past) to a store. Unlike a live collector,
//! it never drops records: it blocks while the store is busy.

use std::path::Path;

use collector::{Batch, Collector, Drop, Event, FlowRow, LinkUse, Loss, Output, Rollup, event::Nanos};
use store::Store;

use collect_role::known_links::{self, KnownLinks};
use config::{Settings, build};
use terminal::CliError;

/// Capacity of a batch, in records; submitted when 1/32 full, since each record may come with a path of up to 256 nodes.
const BATCH_RECORDS: usize = 65_536;

/// Interval between two reads of the links in use, in ns of recorded time.
const LINK_READ_INTERVAL: Nanos = 5_000_000_000;

/// Collector output that goes to a store.
#[derive(Debug)]
pub struct StoreWriter {
    store: Store,
    batch: Batch,
    known_links: KnownLinks,
    /// Recorded time at which the links were last read.
    last_link_read: Nanos,
}

impl StoreWriter {
    /// Opens the store in `dir`.
    pub fn open(dir: &Path, settings: &Settings) -> Result<Self, CliError> {
        // No retention: recorded data may be older than the limits, and would be deleted at once.
        let config = store::Config {
            dir: dir.to_path_buf(),
            max_age: None,
            max_bytes: None,
            ..build::store(settings)
        };
        let store = Store::open(config).map_err(|error| CliError::new(error.to_string()))?;
        store.set_rules(settings.rules.iter().map(|rule| rule.name.clone()).collect());
        let known_links = KnownLinks::open(Some(dir.join(known_links::FILE)));
        Ok(Self {
            store,
            batch: Batch::with_capacity(BATCH_RECORDS),
            known_links,
            last_link_read: 0,
        })
    }

    /// Learns the links in use at intervals, so that a failed link is known as one.
    pub fn learn_links(&mut self, collector: &Collector, now: Nanos) {
        if now.abs_diff(self.last_link_read) >= LINK_READ_INTERVAL {
            self.last_link_read = now;
            let links: Vec<LinkUse> = collector.topology_links().collect();
            self.known_links.memory().learn(&links);
        }
    }

    /// Writes everything to disk and closes the store. Returns its counters.
    pub fn close(mut self) -> store::Stats {
        self.known_links.save(true);
        self.submit();
        self.store.finish()
    }

    fn append(&mut self, write: impl FnOnce(&mut Batch)) {
        write(&mut self.batch);
        if self.batch.len() >= self.batch.capacity() / 32 {
            self.submit();
        }
    }

    fn submit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.batch = self.store.submit(batch);
    }
}

impl Output for StoreWriter {
    fn event(&mut self, event: &Event, path: &[u32]) {
        self.append(|batch| batch.event(event, path));
    }

    fn rollup(&mut self, rollup: &Rollup) {
        self.append(|batch| batch.rollup(rollup));
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        self.append(|batch| batch.flow(row, path));
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.append(|batch| batch.drop_report(drop));
    }

    fn loss(&mut self, loss: &Loss) {
        self.append(|batch| batch.loss(loss));
    }
}

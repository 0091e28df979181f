//! The output of a collector that runs in a command: everything to a store, which makes the input wait.

use std::path::Path;

use collector::{Batch, Drop, Event, FlowRow, Loss, Output, Rollup};
use store::{Policy, Store};

use crate::config::{Settings, build};
use terminal::CliError;

/// Records in a batch. It is submitted long before it is full, because a path may have 256 nodes.
const BATCH: usize = 65_536;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct StoreWriter {
    store: Store,
    batch: Batch,
}

impl StoreWriter {
    /// Opens the store in `dir`.
    pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Self, CliError> {
        // The input can wait, so nothing is shed. Its records may be old: retention would delete them at once.
        let config = store::Config {
            dir: dir.to_path_buf(),
            policy: Policy::Block,
            max_age: None,
            max_bytes: None,
            ..build::store(settings)
        };
        let store = Store::open(config).map_err(|error| CliError::new(error.to_string()))?;
        store.set_rules(settings.rules.iter().map(|rule| rule.name.clone()).collect());
        Ok(Self { store, batch: Batch::with_capacity(BATCH) })
    }

    /// Closes the store; then everything is on disk.
    pub(super) fn close(mut self) -> store::Stats {
        self.submit();
        self.store.finish()
    }

    fn keep(&mut self, give: impl FnOnce(&mut Batch)) {
        give(&mut self.batch);
        if self.batch.len() >= self.batch.capacity() / 32 {
            self.submit();
        }
    }

    fn submit(&mut self) {
        let full = std::mem::take(&mut self.batch);
        self.batch = self.store.submit(full).unwrap_or_else(|mut shed| {
            shed.clear();
            shed
        });
    }
}

impl Output for StoreWriter {
    fn event(&mut self, event: &Event, path: &[u32]) {
        self.keep(|batch| batch.event(event, path));
    }

    fn rollup(&mut self, rollup: &Rollup) {
        self.keep(|batch| batch.rollup(rollup));
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        self.keep(|batch| batch.flow(row, path));
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.keep(|batch| batch.drop_report(drop));
    }

    fn loss(&mut self, loss: &Loss) {
        self.keep(|batch| batch.loss(loss));
    }
}

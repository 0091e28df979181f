//! The state that the writer, its clients and the index thread share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use collector::Batch;

use crate::stats::Stats;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    stats: Mutex<Stats>,
    spare: Mutex<Vec<Batch>>,
}

impl Shared {
    /// Locks the accounts: once per batch on each side, for a few nanoseconds.
    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        // No code under this lock can panic in the middle of a change.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the batches that were written and can be filled again.
    pub(crate) fn spare(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

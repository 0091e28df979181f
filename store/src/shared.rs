//! State shared by the writer, its clients and the index thread: counters, and a pool of empty batches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use collector::Batch;

use crate::stats::Stats;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    stats: Mutex<Stats>,
    spare: Mutex<Vec<Batch>>,
}

impl Shared {
    /// Locks the counters. Each side does so once per batch, for a few nanoseconds.
    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        // No code under this lock can panic in the middle of a change.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the pool of written batches, which clients fill again.
    pub(crate) fn spare(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Counters and state of the store, for metrics and the status page. The counters balance, see [`Stats::balance`].

use collector::event::Nanos;

use crate::problems::Problems;

wire::named! {
    /// The state of the writer.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub enum State, name {
        /// Rows are written to disk.
        #[default]
        Ok => "ok",
        /// The disk is full: rows are shed until there is space again.
        Full => "full",
        /// The directory cannot be used (see [`Stats::message`]): rows go into the open file, but no other file can be opened.
        Degraded => "degraded",
        /// Another error (see [`Stats::message`]): rows are shed, and writing is retried every second.
        Failing => "failing",
        /// The store is closed.
        Closed => "closed",
    }
}

/// A consistent snapshot of the store's counters, in records of any kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Records passed to [`crate::Store::submit`] and similar methods.
    pub submitted: u64,
    /// Records written in a transaction so far, committed or not.
    pub written: u64,
    /// Committed records. Some may be in files that were removed since, see [`Stats::stored`].
    pub committed: u64,
    /// Records that were dropped because the store could not write.
    pub shed: u64,
    /// Records lost with a failed transaction.
    pub failed: u64,
    /// Records in the queue or in the open transaction.
    pub queued: u64,
    /// Batches in the queue.
    pub queue_len: usize,
    /// Capacity of the queue, batches.
    pub queue_capacity: usize,
    /// Records that did not fit into the submitted batches. Not part of `submitted`.
    pub refused: u64,
    /// The state of the writer.
    pub state: State,
    /// The error and its remedy, when `state` is not [`State::Ok`].
    pub message: Option<String>,
    /// Time at which the last transaction was committed (wall clock).
    pub last_commit: Option<Nanos>,
    /// Size of all files and WALs when last scanned (every few seconds), bytes.
    pub bytes: u64,
    /// Number of files when last scanned.
    pub files: u64,
    /// Files deleted by retention.
    pub deleted: u64,
    /// Damaged files that were set aside.
    pub set_aside: u64,
    /// Files that another program removed or replaced.
    pub moved_files: u64,
    /// Committed records that are lost because their file was removed, replaced or set aside.
    pub removed: u64,
    /// Problems with files of the store.
    pub problems: Problems,
    /// Files that were written without indexes on events and indexed later.
    pub indexed_later: u64,
    /// Failed attempts to index such a file; until one succeeds, queries scan it.
    pub index_failures: u64,
}

impl Stats {
    /// Returns `(submitted, committed + shed + failed + queued)`, which are always equal.
    pub fn balance(&self) -> (u64, u64) {
        (
            self.submitted,
            self.committed + self.shed + self.failed + self.queued,
        )
    }

    /// Returns the number of records of this process that are in the store or were deleted by retention.
    pub fn stored(&self) -> u64 {
        self.committed.saturating_sub(self.removed)
    }

    /// Returns the number of lost records of this process: shed, failed, or in a file that was removed, replaced or set aside.
    pub fn lost(&self) -> u64 {
        self.shed + self.failed + self.removed
    }
}

//! Counters of the store. They add up: see [`Stats::balance`].

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
        /// The directory cannot be used (see [`Stats::message`]): rows are written into the open file only, and no file can be opened there.
        Degraded => "degraded",
        /// Another error (see [`Stats::message`]): rows are shed, and writing is retried every second.
        Failing => "failing",
        /// The store is closed.
        Closed => "closed",
    }
}

/// A consistent copy of the store's accounts. Records of all kinds are counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Records that were offered to [`crate::Store::submit`] and its kin.
    pub submitted: u64,
    /// Records that were put into a transaction so far, whether or not it was committed.
    pub written: u64,
    /// Records that were written to disk. Some may have been in files that were removed since: see [`Stats::stored`].
    pub committed: u64,
    /// Records that were dropped because the store could not write.
    pub shed: u64,
    /// Records that were lost with a transaction that could not be committed.
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
    /// Bytes of all files, logs included, when last counted (every few seconds).
    pub bytes: u64,
    /// Files when last counted.
    pub files: u64,
    /// Files deleted by retention.
    pub deleted: u64,
    /// Damaged files that were set aside.
    pub set_aside: u64,
    /// Files that were removed or replaced by something else than retention.
    pub moved_files: u64,
    /// Records of `committed` that were in files that were removed, replaced or set aside, and that are not in the store any more.
    pub removed: u64,
    /// Problems of files, and changes to files while they were in use.
    pub problems: Problems,
    /// Files that were written without indexes on events, and got them when they were complete.
    pub indexed_later: u64,
    /// Attempts at that which failed: queries over such a file read it whole.
    pub index_failures: u64,
}

impl Stats {
    /// Returns `(in, out + drops + waiting)`, which are always equal.
    pub fn balance(&self) -> (u64, u64) {
        (
            self.submitted,
            self.committed + self.shed + self.failed + self.queued,
        )
    }

    /// Returns the records of this process that are in the store, or that retention deleted.
    pub fn stored(&self) -> u64 {
        self.committed.saturating_sub(self.removed)
    }

    /// Returns the records of this process that are not in the store: shed, not written, or in a file that was removed, replaced or set aside.
    pub fn lost(&self) -> u64 {
        self.shed + self.failed + self.removed
    }
}

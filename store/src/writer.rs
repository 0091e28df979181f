//! The writer thread: receives batches from the queue, commits at intervals, rolls over to new files, deletes old ones, and
//! recovers from full disks and damaged files.
//!
//! * A transaction is committed after `commit_every` or [`MAX_TRANSACTION`] records, then the WAL is checkpointed if it is
//!   long.
//! * A file ends with its period, at its share of `max_bytes`, or when the *bulk mode* starts or ends: at a high rate, files
//!   are written without indexes on events, which the `indexer` builds afterwards.
//! * After an error, the transaction is counted as failed, and batches are shed until a retry a second later.

mod clock;
mod obstacles;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collector::Batch;
use collector::event::Nanos;
use collector::flight::Recording;

use crate::config::{Config, Error, WithPath as _};
use crate::files::{self, DirLock, FileId, Listing, StoreFile};
use crate::indexer::{self, Indexer};
use crate::numbering::Numbering;
use crate::problems::ProblemKind;
use crate::reports::ReportRow;
use crate::schema::EventIndexes;
use crate::segment::{self, Segment};
use crate::shared::Shared;
use crate::stats::State;
use crate::watch::Watch;
use clock::ClockWatch;

const BULK: Bulk = Bulk {
    rate: 50_000,
    min_events: 1_000_000,
    max_events: 2_000_000,
    calm_period: Duration::from_secs(10),
};
/// Maximum records in a transaction; bounds its dirty pages (about 14 MB per 100,000 events).
const MAX_TRANSACTION: u64 = 200_000;
/// Approximate bytes of a record in a file and its WAL.
const RECORD_BYTES: u64 = 150;
/// Checkpoint above this WAL size (bytes) if the queue is empty.
const IDLE_CHECKPOINT_BYTES: u64 = 8 << 20;
/// Checkpoint above this WAL size (bytes) at once: about 250,000 events, which take a few tenths of a second while the queue
/// fills.
const BUSY_CHECKPOINT_BYTES: u64 = 32 << 20;
/// Above this WAL size (bytes), the checkpoint waits for readers.
const BLOCKING_CHECKPOINT_BYTES: u64 = 512 << 20;
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before failed indexing is retried: where an index did not fit on the disk, another attempt leaves little space for
/// rows.
const REINDEX_DELAY: Duration = Duration::from_secs(300);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(5);
/// A file continues in a new part at this fraction of `max_bytes` …
const PARTS_PER_STORE: u64 = 8;
/// … but not below this size, bytes.
const MIN_PART_BYTES: u64 = 4 << 20;
/// Number of files checked for missing indexes at the start; more cannot have been waiting.
const MAX_LEFTOVER_FILES: usize = 8;

/// A message to the writer, processed in order.
#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    Reports(Vec<ReportRow>),
    Recordings(Vec<Recording>),
    /// From here on, a rule's index is a position in this list.
    Rules(Vec<String>),
    /// From here on, files are deleted by this age and total size (bytes).
    Retention {
        max_age: Option<Duration>,
        max_bytes: Option<u64>,
    },
    /// Commit the open transaction, then answer.
    Flush(SyncSender<()>),
    /// At the end, wait until all files have their indexes.
    Finish,
}

/// Borrowed records of a message.
enum Work<'a> {
    Batch(&'a Batch),
    Reports(&'a [ReportRow]),
    Recordings(&'a [Recording]),
}

impl Work<'_> {
    fn records(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.len() as u64,
            Self::Reports(reports) => reports.len() as u64,
            Self::Recordings(recordings) => recordings.len() as u64,
        }
    }

    /// Returns the time of the newest record, which selects the file.
    fn newest(&self) -> Option<Nanos> {
        match self {
            Self::Batch(batch) => segment::newest(batch),
            Self::Reports(reports) => reports.iter().map(|report| report.ts).max(),
            Self::Recordings(recordings) => recordings
                .iter()
                .map(|recording| recording.trigger.event.ts)
                .max(),
        }
    }
}

/// State of the writer; [`Writer::run`] is the body of its thread.
#[derive(Debug)]
pub(crate) struct Writer {
    config: Config,
    shared: Arc<Shared>,
    /// Lock of the directory; `None` in tests.
    lock: Option<DirLock>,
    segment: Option<Segment>,
    watch: Watch,
    /// Files of earlier periods that cannot be opened, with the reasons. Late records of these periods go into new parts.
    unusable: BTreeMap<FileId, (ProblemKind, String)>,
    /// Finished file whose WAL was checkpointed last.
    checkpointed: Option<FileId>,
    /// Time of the next attempt to checkpoint a WAL that was removed.
    log_retry_at: Option<Instant>,
    /// Numbering after the last commit.
    numbering: Numbering,
    rules: Vec<String>,
    /// Time at which the open transaction must be committed.
    commit_at: Option<Instant>,
    /// Start of the open transaction.
    transaction_start: Option<Instant>,
    /// Time at which a transaction last showed a high rate of records.
    busy_at: Option<Instant>,
    bulk: Bulk,
    indexer: Indexer,
    /// File that was open at a failure and still lacks its indexes.
    unindexed: Option<PathBuf>,
    /// True if shutdown waits until all files have their indexes.
    waits_for_indexes: bool,
    /// Time of the next write attempt after a failure.
    retry_at: Option<Instant>,
    housekeeping_at: Instant,
    /// Time of the next check of the directory.
    check_at: Instant,
    /// The wall clock; replaced in tests.
    wall_clock: fn() -> SystemTime,
    clock: ClockWatch,
}

/// Conditions of bulk mode, in which files are written without indexes on events.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    /// Record rate at which it starts, per second.
    rate: u64,
    /// Minimum events in the current file before it starts; bounds the number of files.
    min_events: u64,
    /// Events at which a file without indexes ends; bounds the rows that a query must scan.
    max_events: u64,
    /// Time with a lower rate after which it ends.
    calm_period: Duration,
}

impl Writer {
    pub(crate) fn new(
        config: Config,
        shared: Arc<Shared>,
        numbering: Numbering,
        lock: Option<DirLock>,
    ) -> Self {
        let indexer = Indexer::new(Arc::clone(&shared));
        Self {
            config,
            shared,
            lock,
            segment: None,
            watch: Watch::default(),
            unusable: BTreeMap::new(),
            checkpointed: None,
            log_retry_at: None,
            numbering,
            rules: Vec::new(),
            commit_at: None,
            transaction_start: None,
            busy_at: None,
            bulk: BULK,
            indexer,
            unindexed: None,
            waits_for_indexes: false,
            retry_at: None,
            housekeeping_at: Instant::now(),
            check_at: Instant::now(),
            wall_clock: SystemTime::now,
            clock: ClockWatch::default(),
        }
    }

    /// Runs until all senders are dropped and everything is committed.
    pub(crate) fn run(mut self, queue: &Receiver<Message>) {
        loop {
            let now = Instant::now();
            if self.housekeeping_at <= now {
                self.housekeeping(now);
            }
            if self.commit_at.is_some_and(|at| at <= now) {
                self.commit();
                self.roll_if_due();
            }
            if self.check_at <= now {
                self.check_paths(now);
            }
            let next = self.housekeeping_at.min(self.check_at);
            let next = self.commit_at.map_or(next, |at| at.min(next));
            match queue.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Message::Batch(batch)) => {
                    self.process(&Work::Batch(&batch));
                    self.recycle(batch);
                }
                Ok(Message::Reports(reports)) => self.process(&Work::Reports(&reports)),
                Ok(Message::Recordings(recordings)) => self.process(&Work::Recordings(&recordings)),
                Ok(Message::Rules(rules)) => self.set_rules(rules),
                Ok(Message::Retention { max_age, max_bytes }) => {
                    self.config.max_age = max_age;
                    self.config.max_bytes = max_bytes;
                    self.housekeeping_at = Instant::now();
                }
                Ok(Message::Flush(done)) => {
                    self.commit();
                    // The caller may have stopped waiting.
                    let _ = done.send(());
                }
                Ok(Message::Finish) => self.waits_for_indexes = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.commit();
        self.close();
        self.rescan();
        if self.waits_for_indexes {
            self.indexer.finish();
        } else {
            self.indexer.stop();
        }
        self.shared.stats().state = State::Closed;
    }

    fn set_rules(&mut self, rules: Vec<String>) {
        self.rules = rules;
        if let Some(segment) = &mut self.segment {
            segment.forget_rules();
        }
    }

    /// Writes the records of `work`, or sheds them while a failure lasts.
    fn process(&mut self, work: &Work<'_>) {
        self.shared.stats().queue_len -= 1;
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            let mut stats = self.shared.stats();
            stats.shed += work.records();
            stats.queued -= work.records();
        } else {
            self.write(work);
        }
    }

    /// Returns an empty batch to the pool of the clients.
    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        let mut spare = self.shared.spare();
        if spare.len() < self.config.queue_batches {
            spare.push(batch);
        }
    }

    fn write(&mut self, work: &Work<'_>) {
        let records = work.records();
        self.abandon_moved();
        if let Err(error) = self.roll_to(work) {
            self.fail(&error, records);
            return;
        }
        let Some(segment) = &mut self.segment else { return };
        let written = match work {
            Work::Batch(batch) => segment.write(batch, &self.rules),
            Work::Reports(reports) => segment.write_reports(reports),
            Work::Recordings(recordings) => segment.write_recordings(recordings),
        };
        if let Err(error) = written {
            let error = Error::sqlite(segment.path(), error);
            // Without an open transaction, `fail` does not know these records.
            let uncounted = if segment.uncommitted() == 0 { records } else { 0 };
            self.fail(&error, uncounted);
            return;
        }
        let uncommitted = segment.uncommitted();
        self.shared.stats().written += records;
        if uncommitted >= self.max_transaction() {
            self.commit();
            self.roll_if_due();
        } else if self.commit_at.is_none() {
            let now = Instant::now();
            self.transaction_start = Some(now);
            self.commit_at = Some(now + self.config.commit_every);
        }
    }

    /// Ensures that the open segment is the one for `work`. Records of the previous period go into the current file.
    fn roll_to(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let Some(ts) = work.newest() else { return Ok(()) };
        let target = FileId::containing(ts, self.config.period);
        if let Some(segment) = &self.segment
            && (segment.id().same_period(target) || target.is_just_before(segment.id()))
        {
            return Ok(());
        }
        self.commit();
        self.close();
        self.require_dir()?;
        let id = self.last_part(target)?;
        self.open(id)
    }

    /// Closes the file, which checkpoints and removes its WAL, and submits it for indexing if it lacks indexes.
    fn close(&mut self) {
        if let Some(segment) = self.segment.take() {
            let unindexed = (!segment.is_indexed()).then(|| segment.path().to_owned());
            self.close_segment(segment);
            if let Some(path) = unindexed {
                self.indexer.submit(path);
            }
        }
    }

    /// Submits the newest closed files to the indexer if they lack indexes, because a previous process was killed.
    pub(crate) fn index_leftover_files(&mut self) {
        let open = self.segment.as_ref().map(Segment::id);
        let store_files = files::list(&self.config.dir).unwrap_or_default();
        let others = store_files.into_iter().rev().filter(|file| Some(file.id) != open);
        for file in others.take(MAX_LEFTOVER_FILES) {
            if indexer::is_unindexed(&file.path) {
                self.indexer.submit(file.path);
            }
        }
    }

    /// Returns the newest part of the period of `first`.
    fn last_part(&self, first: FileId) -> Result<FileId, Error> {
        let store_files = files::list(&self.config.dir).with_path(&self.config.dir)?;
        Ok(store_files
            .iter()
            .rev()
            .map(|file| file.id)
            .find(|id| id.same_period(first))
            .unwrap_or(first))
    }

    /// Opens `id` or the next usable part of its period, and sets a damaged file aside.
    pub(crate) fn open(&mut self, mut id: FileId) -> Result<(), Error> {
        while self.is_skipped(id) {
            id = id.next_part();
        }
        let dir = &self.config.dir;
        let indexes = if self.is_busy() && self.indexer.has_room() {
            EventIndexes::Later
        } else {
            EventIndexes::Kept
        };
        let opened = match Segment::open(dir, id, indexes, self.numbering) {
            Err(error @ Error::Sqlite(..)) if error.is_damage() => {
                self.set_aside(id, &error)?;
                Segment::open(&self.config.dir, id, indexes, self.numbering)
            }
            other => other,
        };
        let segment = self.segment.insert(opened?);
        let missing = segment
            .identity()
            .and_then(|identity| self.watch.open(id, identity));
        if let Some(path) = self.unindexed.take().filter(|path| path != segment.path()) {
            self.indexer.submit(path);
        }
        if let Some(missing) = missing {
            self.count_missing(&missing);
        }
        Ok(())
    }

    fn commit(&mut self) {
        self.commit_at = None;
        let Some(segment) = &mut self.segment else { return };
        match segment.commit() {
            Ok(0) => return,
            Ok(records) => {
                self.numbering = segment.numbering();
                if let Some(change) = segment.change() {
                    let error = Error::Moved(segment.path().to_owned(), change);
                    self.segment.take().into_iter().for_each(Segment::abandon);
                    self.rescan();
                    self.fail(&error, records);
                    // Retry at once: the next batch goes into a new file.
                    self.retry_at = Some(Instant::now());
                    return;
                }
                self.watch.commit(segment.id(), records);
                let now = nanos((self.wall_clock)());
                self.update_rate(records);
                let mut stats = self.shared.stats();
                stats.committed += records;
                stats.queued -= records;
                stats.last_commit = Some(now);
                if self.retry_at.take().is_some() {
                    stats.state = State::Ok;
                    stats.message = None;
                }
            }
            Err(error) => {
                let error = Error::sqlite(segment.path(), error);
                self.fail(&error, 0);
                return;
            }
        }
        self.checkpoint();
    }

    /// Checkpoints the WAL when it is long, or when it is shorter and the queue is empty.
    fn checkpoint(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        let log = segment.log();
        let is_idle = self.shared.stats().queue_len == 0;
        let is_huge = log.size > BLOCKING_CHECKPOINT_BYTES;
        let threshold = if is_idle {
            IDLE_CHECKPOINT_BYTES
        } else {
            BUSY_CHECKPOINT_BYTES
        };
        if log.uncheckpointed < threshold && !is_huge {
            return;
        }
        // Continuous readers prevent the WAL from restarting; when it is huge, wait for them.
        if let Err(error) = segment.checkpoint(is_huge) {
            let error = Error::sqlite(segment.path(), error);
            self.fail(&error, 0);
        }
    }

    /// Handles a failed write: counts the open transaction and `uncounted` records as lost, publishes the reason, and schedules a
    /// retry.
    pub(crate) fn fail(&mut self, error: &Error, uncounted: u64) {
        let lost = uncounted + self.segment.as_ref().map_or(0, Segment::uncommitted);
        // Dropping the connection rolls the transaction back.
        let segment = self.segment.take();
        self.commit_at = None;
        self.transaction_start = None;
        self.retry_at = Some(Instant::now() + RETRY_DELAY);
        if let Some(segment) = segment {
            let id = segment.id();
            let path = segment.path().to_owned();
            let is_indexed = segment.is_indexed();
            self.close_segment(segment);
            if error.is_damage() {
                // If renaming fails too, opening the file fails and is counted at each retry.
                let _ = self.set_aside(id, error);
            } else if !is_indexed {
                self.unindexed = Some(path);
            }
        }
        let full = error.is_full();
        let mut stats = self.shared.stats();
        stats.failed += lost;
        stats.queued -= lost;
        stats.state = if full { State::Full } else { State::Failing };
        stats.message = Some(if full {
            format!(
                "{}: the disk is full; free some space, and storing resumes",
                self.config.dir.display()
            )
        } else {
            error.to_string()
        });
    }

    /// Returns the size at which a file is continued in a new one, bytes.
    fn max_file_bytes(&self) -> Option<u64> {
        self.config
            .max_bytes
            .map(|limit| (limit / PARTS_PER_STORE).max(MIN_PART_BYTES))
    }

    /// Returns the maximum records in a transaction, so that it does not grow a file far beyond its share.
    fn max_transaction(&self) -> u64 {
        self.max_file_bytes()
            .map_or(MAX_TRANSACTION, |bytes| MAX_TRANSACTION.min(bytes / RECORD_BYTES))
    }

    /// Records the rate of a commit of `records`. At least a second is assumed, so that a few large batches are not a high
    /// rate.
    fn update_rate(&mut self, records: u64) {
        let now = Instant::now();
        let start = self.transaction_start.take();
        let span = start.map_or(Duration::ZERO, |start| now - start);
        let span = span.max(Duration::from_secs(1));
        if records as f64 >= self.bulk.rate as f64 * span.as_secs_f64() {
            self.busy_at = Some(now);
        }
    }

    fn is_busy(&self) -> bool {
        self.busy_at
            .is_some_and(|at| at.elapsed() < self.bulk.calm_period)
    }

    /// Returns true if the file must continue in a new part: it exceeds its share, or bulk mode starts or ends.
    fn is_due(&self, segment: &Segment) -> bool {
        let is_large = self.max_file_bytes().is_some_and(|max| segment.bytes() > max);
        let events = segment.events_in_file();
        let changes_indexes = if segment.is_indexed() {
            self.is_busy() && events >= self.bulk.min_events && self.indexer.has_room()
        } else {
            !self.is_busy() || events >= self.bulk.max_events
        };
        is_large || changes_indexes
    }

    /// Starts a new part when it is due. Checked at every commit: under a flood, a file could otherwise grow to a large part of
    /// `max_bytes` before the next housekeeping, and be deleted as a whole when it is the oldest.
    fn roll_if_due(&mut self) {
        let Some(segment) = self.segment.as_ref().filter(|segment| self.is_due(segment)) else {
            return;
        };
        let next = segment.id().next_part();
        self.commit();
        self.close();
        if let Err(error) = self.open(next) {
            self.fail(&error, 0);
        }
        // The total size may exceed the limit now.
        self.housekeeping_at = Instant::now();
    }

    /// Periodic work: retention, rollover of large files, problem list, WALs of finished files, and size statistics.
    pub(crate) fn housekeeping(&mut self, now: Instant) {
        self.roll_if_due();
        self.indexer.retry(REINDEX_DELAY);
        self.housekeeping_at = now + HOUSEKEEPING_INTERVAL;
        self.log_retry_at = None;
        self.check_paths(now);
        let Some(mut found) = self.rescan() else { return };
        let expired = self.expire(&found, now);
        found.files.retain(|file| !expired.contains(&file.path));
        found.set_aside.retain(|file| !expired.contains(&file.path));
        self.update_problems(&found);
        self.checkpoint_finished(&found.files);
        let mut stats = self.shared.stats();
        stats.deleted += expired.len() as u64;
        stats.files = found.files.len() as u64;
        stats.bytes = found
            .files
            .iter()
            .chain(&found.set_aside)
            .map(|file| file.bytes)
            .sum();
    }

    /// Deletes files by age and total size, including files that were set aside. Returns their paths.
    fn expire(&mut self, found: &Listing, now: Instant) -> Vec<PathBuf> {
        let wall = (self.wall_clock)();
        let counts_age = self.clock.is_settled(wall, now);
        let newest = found.files.last().map(|file| file.path.clone());
        let current = self
            .segment
            .as_ref()
            .map(|segment| segment.path().to_owned())
            .or(newest);
        let mut all: Vec<StoreFile> = found.files.iter().chain(&found.set_aside).cloned().collect();
        all.sort_by_key(|file| file.id);
        let expired = files::expired(
            &all,
            current.as_deref(),
            wall,
            self.config.max_age.filter(|_| counts_age),
            self.config.max_bytes,
        );
        let deleted: Vec<StoreFile> = expired
            .into_iter()
            .filter(|file| files::remove(&file.path).is_ok())
            .cloned()
            .collect();
        for file in &deleted {
            // A file that was set aside is not registered under its former ID.
            if found.files.contains(file) {
                self.watch.forget(file.id);
            }
        }
        deleted.into_iter().map(|file| file.path).collect()
    }
}

fn nanos(time: SystemTime) -> Nanos {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

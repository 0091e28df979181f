//! The thread that writes: receives batches from the queue, commits in time, rolls files over, deletes old ones, and recovers
//! from full disks and damaged files.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collector::Batch;
use collector::event::Nanos;
use rusqlite::ErrorCode;

use crate::config::{Config, Error};
use crate::files::{self, FileId};
use crate::reports::ReportRow;
use crate::schema;
use crate::segment::{self, Segment};
use crate::stats::{State, Stats};

/// A message to the writer; processed in order.
#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    /// For the optional table.
    Reports(Vec<ReportRow>),
    /// From here on, a rule's index means a place in this list.
    Rules(Vec<String>),
    /// From here on, files are deleted by this age and this size.
    Retention(Option<Duration>, Option<u64>),
    /// Commit, then answer.
    Flush(SyncSender<()>),
}

/// The data of a message that is to be written.
enum Work<'a> {
    Batch(&'a Batch),
    Reports(&'a [ReportRow]),
}

impl Work<'_> {
    fn records(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.len() as u64,
            Self::Reports(reports) => reports.len() as u64,
        }
    }

    /// Time of the newest record, which decides the file.
    fn newest(&self) -> Option<Nanos> {
        match self {
            Self::Batch(batch) => segment::newest(batch),
            Self::Reports(reports) => reports.iter().map(|report| report.ts).max(),
        }
    }
}

/// State shared by the writer and its clients.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    stats: Mutex<Stats>,
    spare: Mutex<Vec<Batch>>,
}

impl Shared {
    /// The accounts. Locked once per batch on each side, for a few nanoseconds.
    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        // No code under this lock can panic in the middle of a change.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Batches that were written and can be filled again.
    pub(crate) fn spare(&self) -> MutexGuard<'_, Vec<Batch>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's state. [`Writer::run`] is the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    config: Config,
    shared: Arc<Shared>,
    segment: Option<Segment>,
    rules: Vec<String>,
    /// When the open transaction must be committed.
    commit_at: Option<Instant>,
    /// After a failure: when to try again.
    retry_at: Option<Instant>,
    housekeeping_at: Instant,
    /// The wall clock; another one in tests.
    wall: fn() -> SystemTime,
}

impl Writer {
    pub(crate) fn new(config: Config, shared: Arc<Shared>) -> Self {
        Self {
            config,
            shared,
            segment: None,
            rules: Vec::new(),
            commit_at: None,
            retry_at: None,
            housekeeping_at: Instant::now(),
            wall: SystemTime::now,
        }
    }

    /// Runs until every sender is gone and everything is committed.
    pub(crate) fn run(mut self, queue: &Receiver<Message>) {
        loop {
            let now = Instant::now();
            if self.housekeeping_at <= now {
                self.housekeeping(now);
            }
            if self.commit_at.is_some_and(|at| at <= now) {
                self.commit();
                self.roll_if_large();
            }
            let next = self.commit_at.map_or(self.housekeeping_at, |at| at.min(self.housekeeping_at));
            match queue.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Message::Batch(batch)) => {
                    self.process(&Work::Batch(&batch));
                    self.recycle(batch);
                }
                Ok(Message::Reports(reports)) => self.process(&Work::Reports(&reports)),
                Ok(Message::Rules(rules)) => self.set_rules(rules),
                Ok(Message::Retention(max_age, max_bytes)) => {
                    self.config.max_age = max_age;
                    self.config.max_bytes = max_bytes;
                    self.housekeeping_at = Instant::now();
                }
                Ok(Message::Flush(done)) => {
                    self.commit();
                    // The caller may no longer wait for the answer.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.commit();
        // Closing the last connection copies the log into the file and removes it.
        self.segment = None;
        self.shared.stats().state = State::Closed;
    }

    fn set_rules(&mut self, rules: Vec<String>) {
        self.rules = rules;
        if let Some(segment) = &mut self.segment {
            segment.forget_rules();
        }
    }

    /// Writes it, or counts why not.
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

    /// Returns a batch's memory to the pool of the clients.
    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        let mut spare = self.shared.spare();
        if spare.len() < self.config.queue_batches {
            spare.push(batch);
        }
    }

    fn write(&mut self, work: &Work<'_>) {
        let records = work.records();
        if let Err(error) = self.roll_to(work) {
            self.fail(&error, records);
            return;
        }
        let Some(segment) = &mut self.segment else { return };
        let written = match work {
            Work::Batch(batch) => segment.write(batch, &self.rules),
            Work::Reports(reports) => segment.write_reports(reports),
        };
        if let Err(error) = written {
            let error = Error::sqlite(segment.path(), error);
            // It counts as part of the transaction only after that was opened.
            let uncounted = if segment.uncommitted() == 0 { records } else { 0 };
            self.fail(&error, uncounted);
            return;
        }
        let uncommitted = segment.uncommitted();
        self.shared.stats().written += records;
        if uncommitted >= self.most_in_transaction() {
            self.commit();
            self.roll_if_large();
        } else if self.commit_at.is_none() {
            self.commit_at = Some(Instant::now() + self.config.commit_every);
        }
    }

    /// Makes sure that the open segment is the one where `work` belongs.
    fn roll_to(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let Some(ts) = work.newest() else { return Ok(()) };
        let wanted = FileId::of(ts, self.config.period);
        if let Some(segment) = &self.segment
            && (segment.id().same_period(wanted) || wanted.is_just_before(segment.id()))
        {
            return Ok(());
        }
        self.commit();
        self.segment = None;
        let id = self.last_part(wanted)?;
        self.open(id)
    }

    /// The newest part of the period of `first`, for the case that there are several.
    fn last_part(&self, first: FileId) -> Result<FileId, Error> {
        let found = files::list(&self.config.dir).map_err(|error| Error::io(&self.config.dir, error))?;
        Ok(found.iter().rev().map(|file| file.id).find(|id| id.same_period(first)).unwrap_or(first))
    }

    /// Opens `id`, setting aside what is damaged.
    pub(crate) fn open(&mut self, id: FileId) -> Result<(), Error> {
        let opened = match Segment::open(&self.config.dir, id) {
            Err(Error::Sqlite(path, error)) if schema::is_damage(&error) => {
                self.set_aside(&path)?;
                Segment::open(&self.config.dir, id)
            }
            other => other,
        };
        self.segment = Some(opened?);
        Ok(())
    }

    fn set_aside(&mut self, path: &Path) -> Result<(), Error> {
        files::set_aside(path).map_err(|error| Error::io(path, error))?;
        self.shared.stats().set_aside += 1;
        Ok(())
    }

    fn commit(&mut self) {
        self.commit_at = None;
        let Some(segment) = &mut self.segment else { return };
        match segment.commit() {
            Ok(0) => return,
            Ok(records) => {
                let now = nanos((self.wall)());
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

    /// Keeps the log short: copies it at once when it is long, and earlier when the queue is empty.
    fn checkpoint(&mut self) {
        let Some(segment) = &self.segment else { return };
        let log = segment.log();
        let calm = self.shared.stats().queue_len == 0;
        let endless = log.reach > HUGE_LOG;
        if log.waiting < if calm { CALM_LOG } else { LONG_LOG } && !endless {
            return;
        }
        // Continuous readers prevent a reset of the log; when it becomes huge, wait for them.
        if let Err(error) = segment.checkpoint(endless)
            && error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy)
        {
            let error = Error::sqlite(segment.path(), error);
            self.fail(&error, 0);
        }
    }

    /// The open transaction and `more` records are lost: counts them, logs the reason, and waits a second.
    pub(crate) fn fail(&mut self, error: &Error, more: u64) {
        let lost = more + self.segment.as_ref().map_or(0, Segment::uncommitted);
        // Dropping the connection rolls the transaction back.
        let path = self.segment.take().map(|segment| segment.path().to_owned());
        self.commit_at = None;
        self.retry_at = Some(Instant::now() + RETRY);
        let damaged = matches!(error, Error::Sqlite(_, error) if schema::is_damage(error));
        if let (true, Some(path)) = (damaged, path) {
            // If it cannot be renamed either, opening it will fail the same way, and be counted, once a second.
            let _ = self.set_aside(&path);
        }
        let full = error.is_full();
        let mut stats = self.shared.stats();
        stats.failed += lost;
        stats.queued -= lost;
        stats.state = if full { State::Full } else { State::Failing };
        stats.message = Some(if full {
            format!("{}: the disk is full; make space, storing goes on by itself", self.config.dir.display())
        } else {
            error.to_string()
        });
    }

    /// How large a file may grow before it is continued in a new one, bytes.
    fn share(&self) -> Option<u64> {
        self.config.max_bytes.map(|limit| (limit / PARTS).max(LEAST_PART))
    }

    /// A transaction must not fill a file far beyond its share.
    fn most_in_transaction(&self) -> u64 {
        self.share().map_or(MAX_TRANSACTION, |share| MAX_TRANSACTION.min(share / RECORD))
    }

    /// Begins a new part when the file has grown past its share. At every commit: under a flood a file would otherwise grow
    /// to a large part of `max_bytes` before the next housekeeping, and go as a whole when it is the oldest.
    fn roll_if_large(&mut self) {
        let (Some(share), Some(segment)) = (self.share(), &self.segment) else { return };
        if segment.bytes() <= share {
            return;
        }
        let next = segment.id().next_part();
        self.commit();
        self.segment = None;
        if let Err(error) = self.open(next) {
            self.fail(&error, 0);
        }
        // Together the files may be too large now.
        self.housekeeping_at = Instant::now();
    }

    /// Deletes files by age and total size, begins a new part when the file has grown large, and updates the sizes.
    pub(crate) fn housekeeping(&mut self, now: Instant) {
        self.roll_if_large();
        self.housekeeping_at = now + HOUSEKEEPING;
        let Ok(mut found) = files::list(&self.config.dir) else { return };
        let current = self.segment.as_ref().map(Segment::id).or_else(|| found.last().map(|file| file.id));
        let (max_age, max_bytes) = (self.config.max_age, self.config.max_bytes);
        let gone: Vec<FileId> = files::expired(&found, current, (self.wall)(), max_age, max_bytes)
            .into_iter()
            .filter(|file| files::remove(&file.path).is_ok())
            .map(|file| file.id)
            .collect();
        found.retain(|file| !gone.contains(&file.id));
        let mut stats = self.shared.stats();
        stats.deleted += gone.len() as u64;
        stats.files = found.len() as u64;
        stats.bytes = found.iter().map(|file| file.bytes).sum();
    }
}

fn nanos(time: SystemTime) -> Nanos {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Records after which a transaction is committed without waiting for its time: bounds its dirty pages (some 14 MB per
/// 100,000 events).
const MAX_TRANSACTION: u64 = 200_000;
/// Bytes of a record in a file, about, with its log.
const RECORD: u64 = 150;
/// With more than this in it the log is copied into the file when the queue is empty.
const CALM_LOG: u64 = 8 << 20;
/// With more than this at once: some 250,000 events, written in a few tenths of a second, which the queue must bridge.
const LONG_LOG: u64 = 32 << 20;
/// When it reaches further than this, readers are waited for.
const HUGE_LOG: u64 = 512 << 20;
const RETRY: Duration = Duration::from_secs(1);
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// A file is continued in a new one at this fraction of `max_bytes` …
const PARTS: u64 = 8;
/// … but not below this size.
const LEAST_PART: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::{Dir, SECOND, START, changes};

    /// A writer without its thread, and its accounts.
    fn writer(dir: &Dir) -> (Writer, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (Writer::new(Config::new(dir.path()), Arc::clone(&shared)), shared)
    }

    fn deliver(writer: &mut Writer, shared: &Shared, batch: Batch) {
        let mut stats = shared.stats();
        stats.submitted += batch.len() as u64;
        stats.queued += batch.len() as u64;
        stats.queue_len += 1;
        drop(stats);
        writer.process(&Work::Batch(&batch));
        let stats = shared.stats();
        assert_eq!(stats.balance().0, stats.balance().1, "{stats:?}");
    }

    #[test]
    fn a_failed_transaction_is_counted_and_the_next_second_is_another_try() {
        let dir = Dir::new("failed");
        let (mut writer, shared) = writer(&dir);
        deliver(&mut writer, &shared, changes(START, 100, 10));
        writer.commit();
        // The file may not grow: SQLite then returns the same error as for a full disk.
        writer.segment.as_ref().unwrap().forbid_growth();
        (1..=3).for_each(|i| deliver(&mut writer, &shared, changes(START + i * SECOND, 5000, 1000)));
        writer.commit();
        let stats = shared.stats().clone();
        assert_eq!((stats.committed, stats.state), (100, State::Full));
        assert_eq!(stats.failed + stats.shed, 15_000);
        assert!(stats.failed >= 5000);
        // Within the second nothing is tried.
        deliver(&mut writer, &shared, changes(START, 10, 1));
        assert_eq!(shared.stats().shed, stats.shed + 10);
        // Afterwards the next batch tests the disk. Names interned in the lost transaction are interned again.
        writer.retry_at = Some(Instant::now());
        deliver(&mut writer, &shared, changes(START, 5000, 1000));
        assert_eq!(shared.stats().state, State::Full);
        writer.commit();
        let stats = shared.stats().clone();
        assert_eq!((stats.committed, stats.state, stats.message), (5100, State::Ok, None));
    }

    #[test]
    fn the_log_is_copied_when_it_is_long_and_not_at_every_commit() {
        let dir = Dir::new("log");
        let (mut writer, shared) = writer(&dir);
        let mut seen = Vec::new();
        for i in 0..120 {
            deliver(&mut writer, &shared, changes(START + i * SECOND, 2000, 500));
            writer.commit();
            let log = writer.segment.as_ref().unwrap().log();
            assert!(log.waiting <= CALM_LOG && log.reach <= CALM_LOG + (2 << 20), "{log:?}");
            seen.push(log);
        }
        // It grew for many commits, was copied as a whole, and was reset, several times.
        let copied = seen.iter().filter(|log| log.waiting == 0).count();
        assert!((2..20).contains(&copied), "{copied} of {}", seen.len());
        let anew = seen.windows(2).filter(|pair| pair[1].reach < pair[0].reach).count();
        assert!(anew >= copied - 1, "{anew} of {copied}");
    }

    #[test]
    fn under_a_flood_a_file_goes_on_in_the_next_at_its_share() {
        let dir = Dir::new("flood");
        let (mut writer, shared) = writer(&dir);
        // Four parts of the minimum size. Neither the commit timer nor housekeeping runs.
        let max_bytes = 4 * LEAST_PART;
        writer.config.max_bytes = Some(max_bytes);
        for i in 0..40 {
            deliver(&mut writer, &shared, changes(START + i * SECOND, 5000, 100));
        }
        writer.commit();
        writer.segment = None;
        let found = files::list(dir.path()).unwrap();
        let sizes: Vec<u64> = found.iter().map(|file| file.bytes).collect();
        assert!(sizes.len() >= 4 && sizes.iter().all(|size| *size < 2 * LEAST_PART), "{sizes:?}");
        assert_eq!(shared.stats().committed, 40 * 5000);
        // So the oldest part goes, and most is kept.
        writer.housekeeping(Instant::now());
        let stats = shared.stats().clone();
        assert!(stats.deleted >= 1 && (max_bytes / 2..=max_bytes).contains(&stats.bytes), "{stats:?}");
    }

    #[test]
    fn a_transaction_does_not_grow_without_bound() {
        let dir = Dir::new("large");
        let (mut writer, shared) = writer(&dir);
        for _ in 0..MAX_TRANSACTION / 10_000 {
            assert_eq!(shared.stats().committed, 0);
            deliver(&mut writer, &shared, changes(START, 10_000, 10));
        }
        assert_eq!(shared.stats().committed, MAX_TRANSACTION);
    }
}

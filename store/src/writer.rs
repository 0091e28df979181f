//! The thread that writes: receives batches from the queue, commits in time, rolls files over, deletes old ones, and recovers
//! from full disks and damaged files.

mod obstacles;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collector::Batch;
use collector::event::Nanos;
use collector::flight::Recording;
use rusqlite::ErrorCode;

use crate::config::{Config, Error};
use crate::files::{self, DirLock, FileId, Listing};
use crate::indexer::{self, Indexer};
use crate::numbering::Numbering;
use crate::reports::ReportRow;
use crate::schema::EventIndexes;
use crate::segment::{self, Segment};
use crate::shared::Shared;
use crate::stats::State;
use crate::watch::Watch;

/// A message to the writer; processed in order.
#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    /// For the optional table.
    Reports(Vec<ReportRow>),
    /// What is in it of the flight recorder.
    Recordings(Vec<Recording>),
    /// From here on, a rule's index means a place in this list.
    Rules(Vec<String>),
    /// From here on, files are deleted by this age and this size.
    Retention(Option<Duration>, Option<u64>),
    /// Commit, then answer.
    Flush(SyncSender<()>),
    /// At the end, wait until all files have their indexes.
    Finish,
}

/// The data of a message that is to be written.
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

    /// Time of the newest record, which decides the file.
    fn newest(&self) -> Option<Nanos> {
        match self {
            Self::Batch(batch) => segment::newest(batch),
            Self::Reports(reports) => reports.iter().map(|report| report.ts).max(),
            Self::Recordings(recordings) => recordings.iter().map(|one| one.trigger.event.ts).max(),
        }
    }
}

/// The writer's state. [`Writer::run`] is the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    config: Config,
    shared: Arc<Shared>,
    /// Held as long as we write here; `None` in tests.
    lock: Option<DirLock>,
    segment: Option<Segment>,
    watch: Watch,
    /// Files of earlier periods that cannot be opened: others are written for these periods.
    unusable: Vec<FileId>,
    /// The numbers after what is committed.
    numbering: Numbering,
    rules: Vec<String>,
    /// When the open transaction must be committed.
    commit_at: Option<Instant>,
    /// When the open transaction was begun.
    begun: Option<Instant>,
    /// When a transaction last showed a high rate of records.
    busy_at: Option<Instant>,
    bulk: Bulk,
    indexer: Indexer,
    /// After a failure: the file that was open, if it has no indexes.
    left_out: Option<PathBuf>,
    /// Whether to wait at the end until all files have their indexes.
    finish: bool,
    /// After a failure: when to try again.
    retry_at: Option<Instant>,
    housekeeping_at: Instant,
    /// The wall clock; another one in tests.
    wall: fn() -> SystemTime,
}

/// When files are written without indexes on events, which are then built at once.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    /// At this rate of records, per second.
    rate: u64,
    /// After a file that holds at least as many events: bounds the number of files.
    least: u64,
    /// Until such a file holds as many: bounds what a query reads as a whole.
    most: u64,
    /// Or until the rate has been lower for so long.
    calm: Duration,
}

const BULK: Bulk = Bulk { rate: 50_000, least: 1_000_000, most: 2_000_000, calm: Duration::from_secs(10) };

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
            unusable: Vec::new(),
            numbering,
            rules: Vec::new(),
            commit_at: None,
            begun: None,
            busy_at: None,
            bulk: BULK,
            indexer,
            left_out: None,
            finish: false,
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
                self.roll_if_due();
            }
            let next = self.commit_at.map_or(self.housekeeping_at, |at| at.min(self.housekeeping_at));
            match queue.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Message::Batch(batch)) => {
                    self.process(&Work::Batch(&batch));
                    self.recycle(batch);
                }
                Ok(Message::Reports(reports)) => self.process(&Work::Reports(&reports)),
                Ok(Message::Recordings(recordings)) => self.process(&Work::Recordings(&recordings)),
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
                Ok(Message::Finish) => self.finish = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.commit();
        self.close();
        self.look_at_files();
        if self.finish {
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
        self.leave_moved();
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
            // It counts as part of the transaction only after that was opened.
            let uncounted = if segment.uncommitted() == 0 { records } else { 0 };
            self.fail(&error, uncounted);
            return;
        }
        let uncommitted = segment.uncommitted();
        self.shared.stats().written += records;
        if uncommitted >= self.most_in_transaction() {
            self.commit();
            self.roll_if_due();
        } else if self.commit_at.is_none() {
            let now = Instant::now();
            self.begun = Some(now);
            self.commit_at = Some(now + self.config.commit_every);
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
        self.close();
        self.require_dir()?;
        let id = self.last_part(wanted)?;
        self.open(id)
    }

    /// Closes the file, which copies the log into it and removes that, and has its indexes built if it has none.
    fn close(&mut self) {
        if let Some(segment) = self.segment.take() {
            let left_out = (!segment.is_indexed()).then(|| segment.path().to_owned());
            drop(segment);
            if let Some(path) = left_out {
                self.indexer.submit(path);
            }
        }
    }

    /// Has the indexes of the newest files built, beside the one that is open, where a process that was killed left them out.
    pub(crate) fn index_left_over(&mut self) {
        let open = self.segment.as_ref().map(Segment::id);
        let found = files::list(&self.config.dir).unwrap_or_default();
        let newest = found.into_iter().rev().filter(|file| Some(file.id) != open).take(LEFT_OVER);
        newest
            .filter(|file| indexer::is_left_out(&file.path))
            .for_each(|file| self.indexer.submit(file.path));
    }

    /// The newest part of the period of `first`, for the case that there are several.
    fn last_part(&self, first: FileId) -> Result<FileId, Error> {
        let found = files::list(&self.config.dir).map_err(|error| Error::io(&self.config.dir, error))?;
        Ok(found.iter().rev().map(|file| file.id).find(|id| id.same_period(first)).unwrap_or(first))
    }

    /// Opens `id`, or the next part of it that is of this version and whose indexes are not being built, setting aside what is damaged.
    pub(crate) fn open(&mut self, mut id: FileId) -> Result<(), Error> {
        while self.is_left(id) {
            id = id.next_part();
        }
        let dir = &self.config.dir;
        let later = self.is_busy() && self.indexer.has_room();
        let indexes = if later { EventIndexes::Later } else { EventIndexes::Kept };
        let opened = match Segment::open(dir, id, indexes, self.numbering) {
            Err(error @ Error::Sqlite(..)) if error.is_damage() => {
                self.set_aside(id, &error)?;
                Segment::open(&self.config.dir, id, indexes, self.numbering)
            }
            other => other,
        };
        let segment = self.segment.insert(opened?);
        let before = segment.identity().and_then(|identity| self.watch.open(id, identity));
        if let Some(path) = self.left_out.take().filter(|path| path != segment.path()) {
            self.indexer.submit(path);
        }
        if let Some(gone) = before {
            self.count_gone(&gone);
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
                if let Some(moved) = segment.moved() {
                    let error = Error::Moved(segment.path().to_owned(), moved);
                    self.segment.take().into_iter().for_each(Segment::leave);
                    self.look_at_files();
                    self.fail(&error, records);
                    // The next batch goes into a new file.
                    self.retry_at = Some(Instant::now());
                    return;
                }
                self.watch.commit(segment.id(), records);
                let now = nanos((self.wall)());
                self.look_at_rate(records);
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
        let segment = self.segment.take();
        self.commit_at = None;
        self.begun = None;
        self.retry_at = Some(Instant::now() + RETRY);
        if let Some(segment) = segment {
            let (id, path) = (segment.id(), segment.path().to_owned());
            let is_indexed = segment.is_indexed();
            drop(segment);
            if error.is_damage() {
                // If it cannot be renamed either, opening it will fail the same way, and be counted, once a second.
                let _ = self.set_aside(id, error);
            } else if !is_indexed {
                self.left_out = Some(path);
            }
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

    /// Notes a high rate: `records` were committed. A second counts at least, so that a few large batches are no high rate.
    fn look_at_rate(&mut self, records: u64) {
        let now = Instant::now();
        let span = self.begun.take().map_or(Duration::ZERO, |begun| now - begun).max(Duration::from_secs(1));
        if records as f64 >= self.bulk.rate as f64 * span.as_secs_f64() {
            self.busy_at = Some(now);
        }
    }

    fn is_busy(&self) -> bool {
        self.busy_at.is_some_and(|at| at.elapsed() < self.bulk.calm)
    }

    /// Whether the file goes on in a new part: it is larger than its share, or events should be written in the other way.
    fn is_due(&self, segment: &Segment) -> bool {
        let Bulk { least, most, .. } = self.bulk;
        let events = segment.events_in_file();
        self.share().is_some_and(|share| segment.bytes() > share)
            || match segment.is_indexed() {
                true => self.is_busy() && events >= least && self.indexer.has_room(),
                false => !self.is_busy() || events >= most,
            }
    }

    /// Begins a new part when it is due. At every commit: under a flood a file would otherwise grow to a large part of
    /// `max_bytes` before the next housekeeping, and go as a whole when it is the oldest.
    fn roll_if_due(&mut self) {
        let Some(segment) = self.segment.as_ref().filter(|segment| self.is_due(segment)) else { return };
        let next = segment.id().next_part();
        self.commit();
        self.close();
        if let Err(error) = self.open(next) {
            self.fail(&error, 0);
        }
        // Together the files may be too large now.
        self.housekeeping_at = Instant::now();
    }

    /// Deletes files by age and total size, begins a new part when the file has grown large, and updates the sizes.
    pub(crate) fn housekeeping(&mut self, now: Instant) {
        self.roll_if_due();
        self.indexer.retry(RETRY_INDEXES);
        self.housekeeping_at = now + HOUSEKEEPING;
        if let Err(error) = self.require_dir() {
            self.fail(&error, 0);
        }
        let Listing { files: mut found, not_files, set_aside } = self.look_at_files();
        self.name_problems(&not_files, &set_aside);
        let current = self.segment.as_ref().map(Segment::id).or_else(|| found.last().map(|file| file.id));
        let (max_age, max_bytes) = (self.config.max_age, self.config.max_bytes);
        let gone: Vec<FileId> = files::expired(&found, current, (self.wall)(), max_age, max_bytes)
            .into_iter()
            .filter(|file| files::remove(&file.path).is_ok())
            .map(|file| file.id)
            .collect();
        for id in &gone {
            self.watch.forget(*id);
        }
        found.retain(|file| !gone.contains(&file.id));
        self.fold_log(&found);
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
/// Where an index did not fit on the disk, an attempt leaves little room for rows: not soon again.
const RETRY_INDEXES: Duration = Duration::from_secs(300);
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// A file is continued in a new one at this fraction of `max_bytes` …
const PARTS: u64 = 8;
/// … but not below this size.
const LEAST_PART: u64 = 4 << 20;
/// Files of an earlier process that are looked at when the store is opened: more than can have waited for their indexes.
const LEFT_OVER: usize = 8;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::schema;
    use testkit::records::{Dir, SECOND, START, changes};

    /// A writer without its thread, and its accounts.
    fn writer(dir: &Dir) -> (Writer, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (Writer::new(Config::new(dir.path()), Arc::clone(&shared), Numbering::new(START, 0), None), shared)
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

    /// Bulk writing after 2000 events, in files of 5000, at any rate.
    const SMALL: Bulk = Bulk { rate: 1, least: 2000, most: 5000, calm: Duration::from_secs(3600) };

    fn commit_and_roll(writer: &mut Writer) {
        writer.commit();
        writer.roll_if_due();
    }

    /// Events that a reader finds: all of them, and those of one flow.
    fn found(dir: &Path) -> [i64; 2] {
        let reader = crate::Reader::open(dir).unwrap();
        let flow = testkit::records::flow(7).to_string();
        ["SELECT count(*) FROM events", "SELECT count(*) FROM events WHERE flow = ?1"].map(|sql| {
            let params = if sql.contains('?') { vec![crate::Value::Text(flow.clone())] } else { Vec::new() };
            let table = reader.query(sql, &crate::QueryOptions { params, ..Default::default() }).unwrap();
            assert_eq!(table.notes, [] as [String; 0]);
            if let crate::Value::Int(count) = table.rows[0][0] { count } else { panic!("{table:?}") }
        })
    }

    /// Which files have indexes on events, in order. Each must be sound.
    fn indexed(dir: &Path) -> Vec<bool> {
        let soundly = |file: &files::StoreFile| {
            let conn = rusqlite::Connection::open(&file.path).unwrap();
            let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
            schema::has_event_indexes(&conn).unwrap()
        };
        files::list(dir).unwrap().iter().map(soundly).collect()
    }

    #[test]
    fn at_a_high_rate_indexes_are_built_when_a_file_is_complete() {
        let dir = Dir::new("bulk");
        let (mut writer, shared) = writer(&dir);
        writer.bulk = SMALL;
        let (mut seen, mut expected) = (Vec::new(), [0, 0]);
        let mut deliver = |writer: &mut Writer, second: u64, count: u32| {
            let batch = changes(START + second * SECOND, count, 100);
            let of_flow = batch.events().filter(|(event, _)| event.flow == Some(testkit::records::flow(7)));
            expected = [expected[0] + i64::from(count), expected[1] + of_flow.count() as i64];
            deliver(writer, &shared, batch);
            expected
        };
        for round in 1..=4 {
            let expected = deliver(&mut writer, round, 2000);
            commit_and_roll(&mut writer);
            // What is committed is found, with indexes or without.
            assert_eq!(found(dir.path()), expected);
            seen.push(writer.segment.as_ref().unwrap().is_indexed());
        }
        // The first file is written with indexes up to 2000 events, the second without up to 5000, and so is the third.
        assert_eq!(seen, [false, false, false, false]);
        // The rate is low again: the third file gets its indexes, and the next is written with them.
        writer.busy_at = None;
        writer.bulk.rate = 1_000_000;
        let expected = deliver(&mut writer, 9, 100);
        commit_and_roll(&mut writer);
        assert!(writer.segment.as_ref().unwrap().is_indexed());
        writer.close();
        writer.indexer.finish();
        assert_eq!(indexed(dir.path()), [true; 4]);
        assert_eq!(found(dir.path()), expected);
        let stats = shared.stats().clone();
        assert_eq!((stats.indexed_later, stats.index_failures, stats.committed), (2, 0, 8100));
    }

    #[test]
    fn the_writer_keeps_the_indexes_when_too_many_files_wait_for_theirs() {
        let dir = Dir::new("behind");
        let (mut writer, shared) = writer(&dir);
        writer.bulk = Bulk { least: 0, ..SMALL };
        deliver(&mut writer, &shared, changes(START, 10, 10));
        writer.commit();
        // Nobody takes these out.
        writer.indexer.pretend_waiting(["a", "b"]);
        writer.roll_if_due();
        assert!(writer.segment.as_ref().unwrap().is_indexed());
        writer.indexer.pretend_waiting([]);
        writer.roll_if_due();
        assert!(!writer.segment.as_ref().unwrap().is_indexed());
        // A file in work is not written into.
        let path = writer.segment.as_ref().unwrap().path().to_owned();
        writer.indexer.pretend_waiting([path.to_str().unwrap()]);
        let id = writer.segment.take().unwrap().id();
        writer.open(id).unwrap();
        assert_eq!(writer.segment.as_ref().unwrap().id(), id.next_part());
    }

    #[test]
    fn a_file_that_a_failure_left_without_indexes_gets_them_when_another_is_opened() {
        let dir = Dir::new("failed-bulk");
        let (mut writer, shared) = writer(&dir);
        writer.bulk = Bulk { least: 0, ..SMALL };
        deliver(&mut writer, &shared, changes(START, 10, 10));
        writer.commit();
        writer.roll_if_due();
        deliver(&mut writer, &shared, changes(START + SECOND, 10, 10));
        writer.commit();
        assert_eq!(indexed(dir.path()), [true, false]);
        writer.fail(&Error::io(dir.path(), std::io::ErrorKind::StorageFull.into()), 0);
        // It is continued, or another day's is begun.
        writer.busy_at = None;
        writer.bulk.rate = u64::MAX;
        writer.open(FileId::of(START + 86_400 * SECOND, crate::Period::Day)).unwrap();
        writer.indexer.finish();
        assert_eq!(indexed(dir.path()), [true, true, true]);
    }

    const CHILD: &str = "HOPWISE_STORE_BULK_CHILD";

    /// What the child process does: writes in bulk until it is killed, and prints how much is committed. In a normal run:
    /// nothing.
    #[test]
    fn child_writes_in_bulk_until_it_is_killed() {
        let Some(dir) = std::env::var_os(CHILD) else { return };
        let shared = Arc::new(Shared::default());
        let mut writer = Writer::new(Config::new(dir), Arc::clone(&shared), Numbering::new(START, 0), None);
        writer.bulk = Bulk { most: 20_000, ..SMALL };
        for round in 0.. {
            deliver(&mut writer, &shared, changes(START + round * SECOND / 1000, 500, 100));
            commit_and_roll(&mut writer);
            let stats = shared.stats();
            println!("committed {} indexed {}", stats.committed, stats.indexed_later);
        }
    }

    #[test]
    fn a_kill_while_indexes_are_built_costs_nothing_and_they_are_built_afterwards() {
        use std::io::BufRead as _;
        let (mut total, mut left_out) = (0, 0);
        for round in 0..10_u64 {
            let dir = Dir::new("bulk-kill");
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "writer::tests::child_writes_in_bulk_until_it_is_killed", "--nocapture"])
                .env(CHILD, dir.path())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let output = std::io::BufReader::new(child.stdout.take().unwrap());
            let mut lines = output.lines().map_while(Result::ok).filter_map(|line| {
                let (_, numbers) = line.split_once("committed ")?;
                numbers.split_once(" indexed ")?.0.parse::<u64>().ok()
            });
            // About where a file ends, so that some kills meet the building of indexes.
            let wanted = 22_000 + round * 400;
            let reported = lines.find(|committed| *committed >= wanted).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let reported = lines.last().unwrap_or(reported);
            left_out += indexed(dir.path()).iter().filter(|indexed| !**indexed).count();
            // Opening it is enough: the next process does what was left.
            let store = crate::Store::open(Config::new(dir.path())).unwrap();
            assert_eq!(store.finish().set_aside, 0);
            assert!(indexed(dir.path()).iter().all(|indexed| *indexed));
            let [all, of_flow] = found(dir.path());
            assert!(all as u64 >= reported && all % 500 == 0 && of_flow == all / 100, "{all} of {reported}");
            total += all;
        }
        assert!(left_out > 0 && total > 220_000);
    }
}

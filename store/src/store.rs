//! Public interface for writing: opens a store, queues batches for the writer thread, and closes it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use collector::Batch;
use collector::flight::Recording;

use crate::config::{Config, Error, WithPath as _};
use crate::directory::check_dir;
use crate::files::{DirLock, LOCK_FILE};
use crate::identity::check_access;
use crate::moved::MovedFiles;
use crate::reports::ReportRow;
use crate::shared::Shared;
use crate::stats::{State, Stats};
use crate::writer::{Message, Writer};
use crate::{files, follower};

const WRITER_DIED: &str = "the store's writer has died, a fault in hopwise; restart it, and report this";

/// Handle of a store that is open for writing. A dedicated thread writes the batches; submitting is cheap and may be done from
/// several threads, and only that thread accesses the disk.
///
/// ```
/// use collector::{Batch, FlowRow, Output as _, event::Basis};
/// use store::{Config, QueryOptions, Reader, Store, Value};
///
/// let dir = std::env::temp_dir().join(format!("hopwise-store-store-{}", std::process::id()));
/// let store = Store::open(Config::new(&dir))?;
/// let mut batch = Batch::with_capacity(64);
/// let ts = 1_795_269_600_000_000_000; // 2026-11-21 14:00 UTC
/// let flow = "10.0.0.1:1234>10.0.0.2:80/6".parse()?;
/// let row = FlowRow { flow, flow_latency: Some(42_000), basis: Basis::Measured, first_seen: ts, last_seen: ts, reports: 1 };
/// batch.flow(&row, &[1, 2, 3]);
/// let batch = store.submit(batch); // an empty one comes back
/// assert!(batch.is_empty());
///
/// let stats = store.close();
/// assert_eq!((stats.submitted, stats.committed, stats.shed, stats.failed), (1, 1, 0, 0));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    reports_table: bool,
}

impl Store {
    /// Opens the store. Creates its directory if it does not exist, and continues the newest file.
    ///
    /// # Errors
    /// The directory cannot be used, another process writes to it, or the file of the current period cannot be opened, belongs
    /// to another program or has a newer schema. Problems of other files, and damage, are listed in [`Stats::problems`]
    /// instead.
    pub fn open(config: Config) -> Result<Self, Error> {
        let dir = &config.dir;
        let lock = DirLock::acquire(dir)?;
        let shared = Arc::new(Shared::default());
        let reports_table = config.reports_table;
        let capacity = config.queue_batches.max(1);
        shared.stats().queue_capacity = capacity;
        let newest = files::list(dir).with_path(dir)?.pop();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let (numbering, unreadable) = follower::numbering(dir, now)?;
        let path = dir.clone();
        let mut writer = Writer::new(config, Arc::clone(&shared), numbering, Some(lock));
        let newest = newest.map(|file| file.id);
        for (id, error) in &unreadable {
            if Some(*id) != newest {
                writer.set_unusable(*id, error);
            }
        }
        if let Some(id) = newest {
            match writer.open(id) {
                Ok(()) => {}
                // As at run time: storing resumes when there is space.
                Err(error) if error.is_full() => writer.fail(&error, 0),
                Err(error) if id.covers(now) => return Err(error),
                Err(error) => writer.set_unusable(id, &error),
            }
        }
        writer.index_leftover_files();
        writer.housekeeping(Instant::now());
        let (queue, receiver) = sync_channel(capacity);
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&receiver));
        let thread = thread.with_path(&path)?;
        Ok(Self {
            queue: Some(queue),
            shared,
            thread: Some(thread),
            reports_table,
        })
    }

    /// Checks that this process could open a store in `dir`: creates the directory if it is missing and a file in it, and
    /// removes both again. A store that is open there is not disturbed.
    ///
    /// # Errors
    /// The directory cannot be created, or it or a file in it cannot be written.
    pub fn probe(dir: &Path) -> Result<(), Error> {
        let missing: Vec<&Path> = dir
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .collect();
        let made = fs::create_dir_all(dir).map_err(|error| Error::directory(dir, error));
        let probed = made.and_then(|()| check_dir(dir)).and_then(|()| probe_files(dir));
        for made in missing {
            // Fails if the directory is no longer empty.
            let _ = fs::remove_dir(made);
        }
        probed
    }

    /// Queues a batch for the writer; blocks while the queue is full. Returns an empty batch of the same capacity to fill next.
    pub fn submit(&self, mut batch: Batch) -> Batch {
        self.shared.stats().refused += batch.refused();
        if batch.is_empty() {
            batch.clear();
            return batch;
        }
        let records = batch.len() as u64;
        let capacity = batch.capacity();
        self.enqueue(Message::Batch(batch), records);
        let spare = self.shared.spare().pop();
        spare.unwrap_or_else(|| Batch::with_capacity(capacity))
    }

    /// Queues decoded reports if [`Config::reports_table`] is set, and otherwise does nothing. Each report counts as one
    /// record.
    pub fn submit_reports(&self, reports: Vec<ReportRow>) {
        if self.reports_table && !reports.is_empty() {
            let records = reports.len() as u64;
            self.enqueue(Message::Reports(reports), records);
        }
    }

    /// Queues recordings of the flight recorder. Call it after their reports were submitted.
    pub fn submit_recordings(&self, recordings: Vec<Recording>) {
        if !recordings.is_empty() {
            let records = recordings.len() as u64;
            self.enqueue(Message::Recordings(recordings), records);
        }
    }

    /// Sets the names of the rules: from the next batch on, a rule's index is a position in `names`. Call it at the start and
    /// after each reload.
    pub fn set_rules(&self, names: Vec<String>) {
        self.send(Message::Rules(names));
    }

    /// Sets the retention: files older than `max_age` are deleted, and the oldest files while all together exceed `max_bytes`.
    /// `None` means no limit.
    pub fn set_retention(&self, max_age: Option<Duration>, max_bytes: Option<u64>) {
        self.send(Message::Retention { max_age, max_bytes });
    }

    /// Waits until everything submitted before is committed or counted as lost.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        self.send(Message::Flush(done));
        // An error means that the writer has ended, with everything committed.
        let _ = wait.recv();
    }

    /// Returns a live list of the files that another program removed or replaced.
    pub fn moved_files(&self) -> MovedFiles {
        MovedFiles::new(Arc::clone(&self.shared))
    }

    /// Returns a snapshot of the counters.
    pub fn stats(&self) -> Stats {
        self.shared.stats().clone()
    }

    /// Commits everything, closes the files, and returns the final counters. Files that lack their indexes on events are
    /// indexed by the next process that opens the store.
    pub fn close(mut self) -> Stats {
        self.stop();
        self.stats()
    }

    /// Like [`Store::close`], but waits until all files have their indexes: about a second per million events, at most five
    /// million.
    pub fn finish(mut self) -> Stats {
        self.send(Message::Finish);
        self.stop();
        self.stats()
    }

    /// Queues a message and counts its records. They are shed if the writer has died.
    fn enqueue(&self, message: Message, records: u64) {
        {
            // Count before sending: the writer may finish the message before `send` returns.
            let mut stats = self.shared.stats();
            stats.submitted += records;
            stats.queued += records;
            stats.queue_len += 1;
        }
        if self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.send(message).is_ok())
        {
            return;
        }
        let mut stats = self.shared.stats();
        stats.shed += records;
        stats.queued -= records;
        stats.queue_len -= 1;
        stats.state = State::Failing;
        stats.message = Some(WRITER_DIED.to_owned());
    }

    fn send(&self, message: Message) {
        if let Some(queue) = &self.queue {
            // Fails only if the writer has died, which `stop` reports.
            let _ = queue.send(message);
        }
    }

    fn stop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let mut stats = self.shared.stats();
            stats.failed += std::mem::take(&mut stats.queued);
            stats.message = Some(WRITER_DIED.to_owned());
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Checks that the files that a store in `dir` opens first are writable.
fn probe_files(dir: &Path) -> Result<(), Error> {
    let newest = files::list(dir).with_path(dir)?.pop();
    let newest = newest.map(|newest| newest.path);
    for path in newest.into_iter().chain([dir.join(LOCK_FILE)]) {
        match check_access(&path, true) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io(&path, error)),
            _ => {}
        }
    }
    let trial = dir.join(format!("hopwise.trial-{}", std::process::id()));
    let tried = File::create_new(&trial).and_then(|_| fs::remove_file(&trial));
    tried.with_path(dir)
}

//! Background thread that builds the indexes on events for files that were written without them, and checkpoints the WAL of
//! finished files.
//!
//! At high rates, most of the insertion time goes into the three indexes on events. The writer then leaves them out, finishes
//! the file after a number of events, and passes it to this thread. Until its indexes exist, queries scan the whole file; its
//! rows are visible from their commit on. The indexes are created in one transaction: if the process is stopped or killed,
//! the file is unchanged, and the next process that opens the store submits it again.
//!
//! # Algorithm
//!
//! `CREATE INDEX` sorts encoded rows, which takes as long as inserting them one by one. This module sorts the entries as
//! integers and inserts them in order, so SQLite appends each without a search: half of the time (measured). SQL can insert
//! into tables only, so each index is first filled as a `WITHOUT ROWID` table with the index's columns, followed by the
//! primary key of the indexed table. Such a table has the same on-disk format as the index (SQLite file format, section 2.4:
//! `WITHOUT ROWID` tables use index b-trees, and index entries end with the primary key). It is then registered in
//! `sqlite_schema` as an index. Before the commit, the number of entries is compared with the table; the tests run SQLite's
//! integrity check, which compares each entry.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, params};

use crate::config::{Error, WithPath as _};
use crate::schema;
use crate::segment::Insert;
use crate::shared::Shared;

/// Virtual machine steps between two checks of the stop flag.
const STEPS_PER_CHECK: i32 = 10_000;
/// Like the writer's settings; the cache of 64 MiB also serves the sort.
const SETTINGS: &str = "
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -65536;
PRAGMA trusted_schema = OFF;
";
const FLOW_INDEX: Index = Index {
    name: "event_flow",
    columns: "chunk, flow, ts, seq",
};
const KIND_INDEX: Index = Index {
    name: "event_kind",
    columns: "kind, ts, seq",
};
const NODE_INDEX: Index = Index {
    name: "event_node",
    columns: "node, ts, seq",
};
/// Maximum number of events to sort in memory: at most 256 MB. The writer finishes a file much earlier.
const MAX_SORTED_EVENTS: i64 = 4_000_000;
/// Maximum number of queued files. With more, the writer maintains the indexes itself.
const MAX_PENDING: usize = 2;

/// Handle of the index thread, which starts with the first file, and the list of pending files.
#[derive(Debug)]
pub(crate) struct Indexer {
    shared: Arc<Shared>,
    files: Arc<Mutex<Files>>,
    /// Set to stop: pending files stay as they are, and the transaction in progress is rolled back.
    stop: Arc<AtomicBool>,
    thread: Option<(Sender<PathBuf>, JoinHandle<()>)>,
}

#[derive(Default, Debug)]
struct Files {
    /// Files that are queued or in progress.
    pending: Vec<PathBuf>,
    /// Files that will be retried.
    failed: Vec<PathBuf>,
    failed_at: Option<Instant>,
}

impl Indexer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            files: Arc::default(),
            stop: Arc::default(),
            thread: None,
        }
    }

    /// Submits a file that is complete and closed. A file that has its indexes is not changed.
    pub(crate) fn submit(&mut self, path: PathBuf) {
        lock(&self.files).pending.push(path.clone());
        if self.thread.is_none() {
            let (sender, receiver) = channel();
            let shared = Arc::clone(&self.shared);
            let files = Arc::clone(&self.files);
            let stop = Arc::clone(&self.stop);
            let started = thread::Builder::new().name("store-index".to_owned());
            let started = started.spawn(move || run(&receiver, &shared, &files, &stop));
            self.thread = started.ok().map(|thread| (sender, thread));
        }
        let sent = self
            .thread
            .as_ref()
            .is_some_and(|(sender, _)| sender.send(path.clone()).is_ok());
        if !sent {
            finish(&self.shared, &self.files, path, false);
        }
    }

    /// Returns true if the file is queued, in progress, or to be retried: then nothing else may write to it.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let files = lock(&self.files);
        files.pending.iter().chain(&files.failed).any(|file| file == path)
    }

    /// Returns true if the thread keeps up. Each queued file is one that queries must scan.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.files).pending.len() < MAX_PENDING
    }

    /// Resubmits failed files, once `pause` has passed since the last failure.
    pub(crate) fn retry(&mut self, pause: Duration) {
        let mut files = lock(&self.files);
        if !files.pending.is_empty() || files.failed_at.is_none_or(|at| at.elapsed() < pause) {
            return;
        }
        files.failed_at = None;
        let failed = std::mem::take(&mut files.failed);
        drop(files);
        failed.into_iter().for_each(|path| self.submit(path));
    }

    /// Replaces the list of waiting files, for tests.
    #[cfg(test)]
    pub(crate) fn pretend_pending<const N: usize>(&self, paths: [&str; N]) {
        lock(&self.files).pending = paths.map(PathBuf::from).to_vec();
    }

    /// Stops the thread without finishing its work. The next process builds the remaining indexes.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.finish();
    }

    /// Waits until all submitted files are done.
    pub(crate) fn finish(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // A panic was already printed, and the file is unchanged.
            let _ = thread.join();
        }
    }
}

fn run(queue: &Receiver<PathBuf>, shared: &Shared, files: &Mutex<Files>, stop: &Arc<AtomicBool>) {
    for path in queue {
        let built = build(&path, stop);
        match built {
            _ if stop.load(Ordering::Relaxed) && built.is_err() => return,
            Ok(built) => {
                shared.stats().indexed_later += u64::from(built);
                finish(shared, files, path, true);
            }
            Err(_) => finish(shared, files, path, false),
        }
    }
}

fn finish(shared: &Shared, files: &Mutex<Files>, path: PathBuf, done: bool) {
    let mut files = lock(files);
    files.pending.retain(|pending| *pending != path);
    if !done {
        shared.stats().index_failures += 1;
        files.failed.push(path);
        files.failed_at = Some(Instant::now());
    }
}

/// Creates the indexes on events. Returns false if nothing had to be done: the file has them, is not a hopwise store, or was
/// deleted by retention. Fails once `stop` is set.
fn build(path: &Path, stop: &Arc<AtomicBool>) -> Result<bool, Error> {
    if !path.exists() {
        return Ok(false);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).with_path(path)?;
    conn.busy_timeout(schema::BUSY).with_path(path)?;
    let stop = Arc::clone(stop);
    conn.progress_handler(STEPS_PER_CHECK, Some(move || stop.load(Ordering::Relaxed)))
        .with_path(path)?;
    match schema::check(&conn, "main", path) {
        Err(Error::Newer { .. } | Error::Foreign(_) | Error::Empty(_)) => return Ok(false),
        checked => checked?,
    }
    if schema::has_event_indexes(&conn).with_path(path)? {
        checkpoint(&conn);
        return Ok(false);
    }
    if create_indexes(&mut conn).with_path(path)? {
        checkpoint(&conn);
    }
    Ok(true)
}

/// Creates the indexes from sorted entries, or with `CREATE INDEX` where that is not possible. Returns true in the first
/// case.
fn create_indexes(conn: &mut Connection) -> rusqlite::Result<bool> {
    conn.execute_batch(SETTINGS)?;
    let transaction = conn.transaction()?;
    if create_sorted(&transaction)? {
        transaction.commit()?;
        return Ok(true);
    }
    // Dropping the transaction rolls it back.
    drop(transaction);
    let transaction = conn.transaction()?;
    for sql in schema::event_indexes() {
        transaction.execute_batch(sql)?;
    }
    transaction.commit()?;
    Ok(false)
}

/// Checkpoints the WAL into the file and truncates it. If readers prevent that, it only costs disk space, and a later attempt
/// follows.
fn checkpoint(conn: &Connection) {
    let _ = conn.busy_timeout(schema::BUSY / 10);
    let _ = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
}

/// Creates the indexes from sorted entries. Returns false if there are too many events to sort in memory, or if an index
/// turns out to be incomplete.
fn create_sorted(conn: &Connection) -> rusqlite::Result<bool> {
    let Some(entries) = read_entries(conn)? else {
        return Ok(false);
    };
    let mut order = Vec::with_capacity(entries.len());
    let by_flow = sort_entries(&entries, |entry| Some((entry.chunk, entry.flow?)), &mut order);
    fill_index::<4>(conn, FLOW_INDEX, by_flow, |(chunk, flow), entry| {
        [chunk, flow.into(), entry.ts, entry.seq]
    })?;
    let flows = order.len();
    let by_kind = sort_entries(&entries, |entry| Some((entry.kind, 0)), &mut order);
    fill_index::<3>(conn, KIND_INDEX, by_kind, |(kind, _), entry| {
        [kind, entry.ts, entry.seq]
    })?;
    let by_node = sort_entries(&entries, |entry| Some((i64::from(entry.node?), 0)), &mut order);
    fill_index::<3>(conn, NODE_INDEX, by_node, |(node, _), entry| {
        [node, entry.ts, entry.seq]
    })?;
    let nodes = order.len();
    register_indexes(conn)?;
    Ok(has_entries(conn, "event_flow WHERE flow IS NOT NULL", flows)?
        && has_entries(conn, "event_kind WHERE kind >= 0", entries.len())?
        && has_entries(conn, "event_node WHERE node IS NOT NULL", nodes)?)
}

/// Returns true if the index has this number of entries. `index` is its name with a condition that makes SQLite use it.
fn has_entries(conn: &Connection, index: &str, entries: usize) -> rusqlite::Result<bool> {
    let sql = format!("SELECT count(*) FROM event_data INDEXED BY {index}");
    conn.query_row(&sql, [], |row| Ok(row.get::<_, i64>(0)? == entries as i64))
}

/// The columns of an event that the indexes contain.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ts: i64,
    seq: i64,
    chunk: i64,
    kind: i64,
    flow: Option<u32>,
    node: Option<u32>,
}

/// Reads the entries of all events in table order, which is by time. Returns `None` if there are more than
/// [`MAX_SORTED_EVENTS`].
fn read_entries(conn: &Connection) -> rusqlite::Result<Option<Vec<Entry>>> {
    let count: i64 = conn.query_row("SELECT count(*) FROM event_data", [], |row| row.get(0))?;
    if count > MAX_SORTED_EVENTS {
        return Ok(None);
    }
    let mut entries = Vec::with_capacity(count.unsigned_abs() as usize);
    let mut select =
        conn.prepare("SELECT ts, seq, chunk, kind, flow, node FROM event_data ORDER BY ts, seq")?;
    let mut rows = select.raw_query();
    while let Some(row) = rows.next()? {
        entries.push(Entry {
            ts: row.get(0)?,
            seq: row.get(1)?,
            chunk: row.get(2)?,
            kind: row.get(3)?,
            flow: row.get(4)?,
            node: row.get(5)?,
        });
    }
    Ok(Some(entries))
}

/// The leading columns of an index; the second one is 0 if the index has only one before the time.
type Key = (i64, u32);

/// Returns the entries for which `key` returns a key, sorted by key and then by time. `order` is a reusable buffer.
fn sort_entries<'a>(
    entries: &'a [Entry],
    key: impl Fn(&Entry) -> Option<Key>,
    order: &'a mut Vec<(Key, u32)>,
) -> impl Iterator<Item = (Key, &'a Entry)> {
    order.clear();
    order.extend((0..).zip(entries).filter_map(|(i, entry)| Some((key(entry)?, i))));
    // The position is part of the sort key, so entries with equal keys stay in time order.
    order.sort_unstable();
    order.iter().map(|(key, i)| (*key, &entries[*i as usize]))
}

/// Creates the table that will be an index, and fills it.
fn fill_index<'a, const N: usize>(
    conn: &Connection,
    index: Index,
    entries: impl Iterator<Item = (Key, &'a Entry)>,
    row: impl Fn(Key, &Entry) -> [i64; N],
) -> rusqlite::Result<()> {
    let Index { name, columns } = index;
    let table = format!("new_{name}");
    let types = columns.replace(',', " INTEGER NOT NULL,");
    conn.execute_batch(&format!(
        "CREATE TABLE {table} ({types} INTEGER NOT NULL, PRIMARY KEY ({columns})) WITHOUT ROWID"
    ))?;
    let mut insert = Insert::<N>::new(conn, &table)?;
    for (key, entry) in entries {
        insert.row(row(key, entry).map(Some))?;
    }
    insert.finish()
}

/// Registers the filled tables in the schema as the indexes that they are.
fn register_indexes(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("PRAGMA writable_schema = ON")?;
    let mut update = conn.prepare(
        "UPDATE sqlite_schema SET type = 'index', name = ?1, tbl_name = 'event_data', sql = ?2 WHERE name = 'new_' || ?1",
    )?;
    for sql in schema::event_indexes() {
        let name = sql.split(' ').nth(2).unwrap_or_default();
        // SQLite stores the statement without its semicolon.
        update.execute(params![name, sql.trim_end_matches(';')])?;
    }
    // RESET makes SQLite reload the schema.
    conn.execute_batch("PRAGMA writable_schema = RESET")
}

/// Returns true if the file at `path` lacks its indexes on events. Returns false if it cannot be read.
pub(crate) fn is_unindexed(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(conn) = Connection::open_with_flags(path, flags) else {
        return false;
    };
    schema::check(&conn, "main", path).is_ok() && schema::has_event_indexes(&conn).is_ok_and(|has| !has)
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    // Nothing under this lock can panic half-way through a change.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An index on events.
#[derive(Clone, Copy)]
struct Index {
    name: &'static str,
    /// The columns, followed by the primary key of the table (`ts, seq`).
    columns: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Period;
    use crate::files::FileId;
    use crate::numbering::Numbering;
    use crate::schema::EventIndexes;
    use crate::segment::Segment;
    use collector::{Batch, Event, Kind, Output as _};
    use testkit::records::{Dir, START, bare, flow};

    /// Events with and without flow and node, of all kinds, not in the order of time, over more than one chunk.
    fn events(count: u32) -> Vec<Event> {
        let event = |n: u32| {
            let mixed = n.wrapping_mul(0x9e37_79b9);
            Event {
                kind: Kind::ALL[mixed as usize % Kind::ALL.len()],
                flow: (!mixed.is_multiple_of(3)).then(|| flow(mixed >> 8 & 0x3ff)),
                node: (!mixed.is_multiple_of(5)).then_some(if mixed & 64 == 0 {
                    u32::MAX
                } else {
                    mixed >> 24
                }),
                ..bare(START + u64::from(mixed >> 12))
            }
        };
        (0..count).map(event).collect()
    }

    fn file(dir: &Dir, events: &[Event], indexes: EventIndexes) -> PathBuf {
        let mut segment = Segment::open(
            dir.path(),
            FileId::containing(START, Period::Day),
            indexes,
            Numbering::new(START, 0),
        )
        .unwrap();
        for chunk in events.chunks(1000) {
            let mut batch = Batch::with_capacity(1000);
            chunk.iter().for_each(|event| batch.event(event, &[]));
            segment.write(&batch, &[]).unwrap();
        }
        segment.commit().unwrap();
        segment.path().to_owned()
    }

    /// The schema without the places in the file, and the entries of each index in its order.
    fn contents(path: &Path) -> Vec<Vec<Option<String>>> {
        let conn = Connection::open(path).unwrap();
        let checked: String = conn
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(checked, "ok");
        let mut all = Vec::new();
        let queries = [
            (
                "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name",
                4,
            ),
            (
                "SELECT chunk, flow, ts, seq FROM event_data INDEXED BY event_flow WHERE flow IS NOT NULL",
                4,
            ),
            (
                "SELECT kind, ts, seq FROM event_data INDEXED BY event_kind WHERE kind >= 0",
                3,
            ),
            (
                "SELECT node, ts, seq FROM event_data INDEXED BY event_node WHERE node IS NOT NULL",
                3,
            ),
        ];
        for (sql, columns) in queries {
            let sql = format!("SELECT * FROM ({sql})");
            let mut select = conn.prepare(&sql).unwrap();
            let cell = |row: &rusqlite::Row<'_>, i| {
                row.get::<_, rusqlite::types::Value>(i)
                    .map(|value| Some(format!("{value:?}")))
            };
            let rows = select.query_map([], |row| (0..columns).map(|i| cell(row, i)).collect());
            all.extend(rows.unwrap().map(Result::unwrap));
        }
        all
    }

    #[test]
    fn a_file_that_cannot_be_indexed_is_counted_and_tried_again() {
        let dir = Dir::new("unreadable");
        let path = dir.path().join("hopwise-2026-11-21.db");
        std::fs::write(&path, vec![0x5a; 20_000]).unwrap();
        let shared = Arc::new(Shared::default());
        let mut indexer = Indexer::new(Arc::clone(&shared));
        let tried = |indexer: &mut Indexer| {
            indexer.finish();
            let stats = shared.stats();
            (stats.indexed_later, stats.index_failures)
        };
        indexer.submit(path.clone());
        assert_eq!(tried(&mut indexer), (0, 1));
        // Until it is tried again, nobody writes into it.
        assert!(indexer.has(&path));
        indexer.retry(Duration::from_secs(3600));
        assert_eq!(tried(&mut indexer), (0, 1));
        indexer.retry(Duration::ZERO);
        assert_eq!(tried(&mut indexer), (0, 2));
        // Gone by its age: nothing is left to do.
        std::fs::remove_file(&path).unwrap();
        indexer.retry(Duration::ZERO);
        assert_eq!(tried(&mut indexer), (0, 2));
        indexer.retry(Duration::ZERO);
        assert_eq!((tried(&mut indexer), indexer.has_room()), ((0, 2), true));
    }

    #[test]
    fn a_stop_leaves_the_file_to_the_next_process() {
        let dir = Dir::new("stopped");
        let path = file(&dir, &events(50_000), EventIndexes::Later);
        let before = contents_of_events(&path);
        let shared = Arc::new(Shared::default());
        let mut indexer = Indexer::new(Arc::clone(&shared));
        indexer.stop.store(true, Ordering::Relaxed);
        indexer.submit(path.clone());
        indexer.stop();
        let stats = shared.stats().clone();
        assert_eq!((stats.indexed_later, stats.index_failures), (0, 0));
        assert!(is_unindexed(&path) && contents_of_events(&path) == before);
        let mut next = Indexer::new(Arc::clone(&shared));
        next.submit(path.clone());
        next.finish();
        assert_eq!(shared.stats().indexed_later, 1);
        assert!(!is_unindexed(&path) && contents_of_events(&path) == before);
    }

    /// The number of events, and the sum of their times.
    fn contents_of_events(path: &Path) -> (i64, i64) {
        let conn = Connection::open(path).unwrap();
        let sums = "SELECT count(*), sum(ts % 1000000) FROM event_data";
        conn.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    #[test]
    fn sorted_entries_make_the_indexes_that_create_index_makes() {
        for count in [0, 1, 31, 33, 5000, 150_000] {
            let (created, sorted) = (Dir::new("created"), Dir::new("sorted"));
            let events = events(count);
            let created = file(&created, &events, EventIndexes::Later);
            let conn = Connection::open(&created).unwrap();
            schema::event_indexes().for_each(|sql| conn.execute_batch(sql).unwrap());
            drop(conn);
            let sorted = file(&sorted, &events, EventIndexes::Later);
            assert!(is_unindexed(&sorted) && !is_unindexed(&created));
            let stop = Arc::default();
            assert!(build(&sorted, &stop).unwrap());
            assert!(!is_unindexed(&sorted) && !build(&sorted, &stop).unwrap());
            assert_eq!(contents(&sorted), contents(&created), "{count} events");
        }
    }
}

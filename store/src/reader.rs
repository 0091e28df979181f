//! Queries over the files, while they are being written or long after.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use collector::event::Nanos;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Statement, ToSql};

use crate::config::Error;
use crate::files::{self, Listing, StoreFile};
use crate::guard::{self, Deadline};
use crate::identity::FileIdentity;
use crate::join::{self, Joined};
use crate::keys::KnownKeys;
use crate::query::{QueryError, QueryErrorKind, QueryOptions, Table, Value};
use crate::schema::Features;

/// Reads the files of a directory. May be shared by threads: each query has a connection of its own, and a few are kept.
///
/// ```
/// use store::{QueryErrorKind, QueryOptions, Reader, Value};
///
/// let dir = std::env::temp_dir().join(format!("hopwise-reader-{}", std::process::id()));
/// std::fs::create_dir_all(&dir)?;
/// let reader = Reader::open(&dir)?; // files may come later
///
/// let options = QueryOptions { params: vec![Value::Int(40)], ..QueryOptions::default() };
/// let table = reader.query("SELECT count(*), ?1 + 2 AS sum FROM events", &options)?;
/// assert_eq!(table.rows, [[Value::Int(0), Value::Int(42)]]);
///
/// let error = reader.query("CREATE TABLE mine (a)", &QueryOptions::default()).unwrap_err();
/// assert_eq!(error.kind, QueryErrorKind::Refused);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    stop: Option<Arc<AtomicBool>>,
    /// Sentences about files that answers lack.
    notes: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    most_files: usize,
    /// Temporary data of queries stays in memory, up to so many bytes.
    most_memory: Option<u64>,
    idle: Mutex<Vec<Joined>>,
    known: Mutex<HashMap<FileIdentity, FileFacts>>,
    keys: KnownKeys,
}

/// Cached facts about a file.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    /// Size and time of the last write when it was read; a file that changed since is read again.
    bytes: u64,
    modified: SystemTime,
    pub(crate) meta: HashMap<String, i64>,
}

impl FileFacts {
    /// A number of records.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.meta
            .get(name)
            .and_then(|value| u64::try_from(*value).ok())
            .unwrap_or(0)
    }

    pub(crate) fn time(&self, name: &str) -> Option<Nanos> {
        self.meta.get(name).and_then(|value| u64::try_from(*value).ok())
    }
}

/// The files of a query, oldest first, and notes about files that were skipped.
#[derive(Default, Debug)]
struct SelectedFiles {
    files: Vec<FileIdentity>,
    notes: Vec<String>,
}

impl Reader {
    /// A reader of the files in `dir`, which may come and go, and need not be there yet.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::new(dir.into(), None)
    }

    /// The same, for queries of others in a process of their own: what they sort, group and materialise stays in memory, and all of SQLite
    /// in this process has no more than `bytes` of it. A query that needs more ends with [`QueryErrorKind::TooLarge`].
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open_confined(dir: impl Into<PathBuf>, bytes: u64) -> Result<Self, Error> {
        Self::new(dir.into(), Some(bytes))
    }

    fn new(dir: PathBuf, most_memory: Option<u64>) -> Result<Self, Error> {
        files::list(&dir).map_err(|error| Error::io(&dir, error))?;
        let (idle, known, keys) = Default::default();
        let shared = Shared {
            dir,
            most_files: join::most_files(),
            most_memory,
            idle,
            known,
            keys,
        };
        Ok(Self {
            shared: Arc::new(shared),
            stop: None,
            notes: Arc::default(),
        })
    }

    /// The same reader, whose queries end with [`QueryErrorKind::Timeout`] soon after `stop` is set, with notes of its own.
    #[must_use]
    pub fn until(&self, stop: Arc<AtomicBool>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stop: Some(stop),
            notes: Arc::default(),
        }
    }

    /// Sentences that the user must see about the answers of this reader so far, such as about files left out; at most 8.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.notes).iter().cloned().collect()
    }

    fn remember_notes(&self, notes: &[String]) {
        let mut all = lock(&self.notes);
        for note in notes {
            if all.len() < MOST_NOTES {
                all.insert(note.clone());
            }
        }
    }

    /// Where the files are.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Runs a `SELECT` over the views `events`, `rollups`, `flows`, `drops`, `losses`, `reports`, which cover all files
    /// with records in the time range of `options`. (The range chooses files; rows are chosen by the query's `WHERE`.)
    ///
    /// # Errors
    /// The query does not only read, or takes longer or returns more than `options` allow. The message says what to do.
    pub fn query(&self, sql: &str, options: &QueryOptions) -> Result<Table, QueryError> {
        self.with_retry(|| {
            let choice = self.choose(options.from, options.to, usize::MAX)?;
            let mut table = Table {
                notes: choice.notes,
                ..Table::default()
            };
            let deadline = self.deadline_in(options.timeout);
            self.with_rows(choice.files, sql, (options, &deadline), |columns, row| {
                if table.columns.is_empty() {
                    table.columns = columns.to_vec();
                }
                if let Some(row) = row {
                    let values = (0..columns.len()).map(|i| row.get_ref(i).map(Value::from));
                    table.rows.push(values.collect::<rusqlite::Result<_>>()?);
                }
                Ok(())
            })
            .map(|truncated| Table { truncated, ..table })
        })
    }

    /// Closes connections that are not in use. A deleted file takes space until the last connection to it is closed, so
    /// call it periodically, for example every minute, when there are no queries for a long time.
    pub fn tidy(&self) {
        lock(&self.shared.idle).clear();
        lock(&self.shared.known).retain(|file, _| file.is_in_place());
        self.shared.keys.retain(FileIdentity::is_in_place);
    }

    /// Runs `sql` over the newest `most` files of a time range and gives each row to `take`. Returns whether there was
    /// more than the limits allow.
    pub(crate) fn rows(
        &self,
        most: usize,
        sql: &str,
        options: &QueryOptions,
        take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<bool, QueryError> {
        self.rows_until(most, sql, (options, &self.deadline_in(options.timeout)), take)
    }

    /// The same, as a part of a question that has a deadline; the timeout of `options` does not count.
    pub(crate) fn rows_until(
        &self,
        most: usize,
        sql: &str,
        (options, deadline): (&QueryOptions, &Deadline),
        mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<bool, QueryError> {
        deadline.check()?;
        let choice = self.choose(options.from, options.to, most)?;
        self.with_rows(choice.files, sql, (options, deadline), |_, row| {
            row.map_or(Ok(()), &mut take)
        })
    }

    /// Repeats a query once with empty caches when a file could not be read: it may have been deleted, set aside or replaced
    /// meanwhile.
    pub(crate) fn with_retry<T>(
        &self,
        mut ask: impl FnMut() -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        match ask() {
            Err(error) if error.kind == QueryErrorKind::Storage => {
                lock(&self.shared.idle).clear();
                lock(&self.shared.known).clear();
                self.shared.keys.clear();
                ask()
            }
            answer => answer,
        }
    }

    /// How many files have records in a time range.
    pub(crate) fn count_files(&self, from: Option<Nanos>, to: Option<Nanos>) -> Result<usize, QueryError> {
        Ok(self.choose(from, to, usize::MAX)?.files.len())
    }

    /// All readable files: their sizes, and the cached facts.
    pub(crate) fn all_known(&self) -> Result<Vec<(u64, FileFacts)>, QueryError> {
        let found = self.list()?;
        Ok(found
            .iter()
            .filter_map(|file| Some((file.bytes, self.file_facts(file, true).ok()??.1)))
            .collect())
    }

    fn list(&self) -> Result<Vec<StoreFile>, QueryError> {
        self.scan().map(|found| found.files)
    }

    fn scan(&self) -> Result<Listing, QueryError> {
        files::scan(&self.shared.dir).map_err(|error| {
            let message = format!(
                "{}: {error}; check the store's directory",
                self.shared.dir.display()
            );
            QueryError::new(QueryErrorKind::Storage, message)
        })
    }

    /// The files with records in a time range, oldest first, for questions that read one file after the other.
    pub(crate) fn files_of(&self, from: Nanos, to: Nanos) -> Result<Vec<FileIdentity>, QueryError> {
        Ok(self.matching(Some(from), Some(to))?.files)
    }

    /// What is known of the files with records in a time range.
    pub(crate) fn facts_of(&self, from: Nanos, to: Nanos) -> Result<Vec<FileFacts>, QueryError> {
        let files = self.files_of(from, to)?;
        let known = lock(&self.shared.known);
        Ok(files.iter().filter_map(|file| known.get(file).cloned()).collect())
    }

    /// Asks something of one file alone, in which it is called `f0`. Its tables have no documented names: see [`crate::schema::SQL`].
    pub(crate) fn ask_file<T>(
        &self,
        file: &FileIdentity,
        deadline: &Deadline,
        ask: impl FnOnce(&Connection, Features) -> rusqlite::Result<T>,
    ) -> Result<T, QueryError> {
        deadline.check()?;
        let timeout = deadline.timeout;
        let known = self.idle(|joined| !joined.has_views && joined.files.first() == Some(file));
        let mut joined = match known {
            Some(joined) => joined,
            None => Joined::alone(file.clone()).map_err(|error| unreadable(error, timeout))?,
        };
        guard::set_deadline(&mut joined.conn, deadline).map_err(|error| guard::explain(&error, timeout))?;
        let features = joined.features.first().copied().unwrap_or_default();
        let answer = ask(&joined.conn, features).map_err(|error| guard::explain(&error, timeout));
        self.keep(joined);
        answer
    }

    /// Asks several files, as many at the same time as there are cores, and gives the answers to `take` in the order of the files, with their places.
    pub(crate) fn ask_files<T: Send>(
        &self,
        files: &[FileIdentity],
        deadline: &Deadline,
        ask: impl Fn(usize, &Connection, Features) -> rusqlite::Result<T> + Sync,
        mut take: impl FnMut(usize, T) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let cores = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MOST_THREADS);
        let one = |at: usize| self.ask_file(&files[at], deadline, |conn, features| ask(at, conn, features));
        for first in (0..files.len()).step_by(cores) {
            let last = (first + cores).min(files.len());
            let answers: Vec<Result<T, QueryError>> = thread::scope(|scope| {
                let spawn = |at| {
                    thread::Builder::new()
                        .name("store-read".to_owned())
                        .spawn_scoped(scope, move || one(at))
                };
                let others: Vec<_> = (first + 1..last).map(|at| (at, spawn(at).ok())).collect();
                let here = one(first);
                let there = others
                    .into_iter()
                    .map(|(at, thread)| match thread.map(|thread| thread.join()) {
                        Some(answer) => answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                        // There are too many threads.
                        None => one(at),
                    });
                std::iter::once(here).chain(there).collect()
            });
            for (at, answer) in (first..).zip(answers) {
                take(at, answer?)?;
            }
        }
        Ok(())
    }

    /// The flows of files by their numbers.
    pub(crate) fn keys(&self) -> &KnownKeys {
        &self.shared.keys
    }

    /// The deadline of a question that is asked now.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline_in(QueryOptions::default().timeout)
    }

    fn deadline_in(&self, timeout: Duration) -> Deadline {
        Deadline::new(timeout, self.stop.clone())
    }

    fn keep(&self, joined: Joined) {
        let mut idle = lock(&self.shared.idle);
        let (has_views, most) = (
            joined.has_views,
            if joined.has_views { MAX_IDLE } else { MAX_ALONE },
        );
        let alike = |other: &Joined| other.has_views == has_views;
        if idle.iter().filter(|other| alike(other)).count() >= most
            && let Some(oldest) = idle.iter().position(alike)
        {
            idle.remove(oldest);
        }
        idle.push(joined);
    }

    fn choose(
        &self,
        from: Option<Nanos>,
        to: Option<Nanos>,
        most: usize,
    ) -> Result<SelectedFiles, QueryError> {
        let mut choice = self.matching(from, to)?;
        let most = most.min(self.shared.most_files);
        if choice.files.len() > most {
            let left_out = choice.files.len() - most;
            choice.files.drain(..left_out);
            choice.notes.push(format!(
                "left out the {left_out} oldest files: at most {most} are joined in one query; narrow the time range"
            ));
        }
        Ok(choice)
    }

    fn matching(&self, from: Option<Nanos>, to: Option<Nanos>) -> Result<SelectedFiles, QueryError> {
        let mut choice = SelectedFiles::default();
        let ranged = from.is_some() || to.is_some();
        let found = self.scan()?;
        for (_, path) in &found.not_files {
            choice
                .notes
                .push(format!("left out: {} is not a regular file", path.display()));
        }
        for file in found.set_aside.iter().filter(|file| file.id.overlaps(from, to)) {
            choice.notes.push(lacking(&file.path));
        }
        for file in found.files {
            match self.file_facts(&file, ranged) {
                Ok(Some((identity, known))) => {
                    let too_new = to.is_some_and(|to| known.time("from").is_some_and(|first| first > to));
                    let too_old = from.is_some_and(|from| known.time("to").is_some_and(|last| last < from));
                    if !too_new && !too_old {
                        choice.files.push(identity);
                    }
                }
                // Gone, or being created.
                Ok(None) => {}
                Err(error) => choice.notes.push(format!("left out: {error}")),
            }
        }
        self.remember_notes(&choice.notes);
        Ok(choice)
    }

    /// The facts about a file: `None` if it was deleted or is empty. `fresh`: the cached ones must be of its current state.
    fn file_facts(&self, file: &StoreFile, fresh: bool) -> Result<Option<(FileIdentity, FileFacts)>, Error> {
        let Some(identity) = FileIdentity::of(&file.path) else {
            return Ok(None);
        };
        let known = lock(&self.shared.known).get(&identity).cloned();
        if let Some(known) = known
            && (!fresh || (known.bytes, known.modified) == (file.bytes, file.modified))
        {
            return Ok(Some((identity, known)));
        }
        let meta = match join::read_meta(&file.path) {
            Ok(meta) => meta,
            Err(_) if FileIdentity::of(&file.path).is_none() => return Ok(None),
            Err(Error::Empty(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let known = FileFacts {
            bytes: file.bytes,
            modified: file.modified,
            meta,
        };
        lock(&self.shared.known).insert(identity.clone(), known.clone());
        Ok(Some((identity, known)))
    }

    /// A connection over `files`: one that is idle, or a new one.
    fn connect(&self, files: Vec<FileIdentity>, timeout: Duration) -> Result<Joined, QueryError> {
        match self.idle(|joined| joined.has_views && joined.files == files) {
            Some(joined) => Ok(joined),
            None => Joined::open(files, self.shared.most_memory).map_err(|error| unreadable(error, timeout)),
        }
    }

    /// An idle connection, if there is such a one.
    fn idle(&self, is_wanted: impl Fn(&Joined) -> bool) -> Option<Joined> {
        let mut idle = lock(&self.shared.idle);
        // Connections to a deleted file keep its space: close them.
        idle.retain(|joined| joined.files.iter().all(|file| file.is_in_place()));
        idle.iter().position(is_wanted).map(|i| idle.remove(i))
    }

    fn with_rows(
        &self,
        files: Vec<FileIdentity>,
        sql: &str,
        (options, deadline): (&QueryOptions, &Deadline),
        take: impl FnMut(&[String], Option<&Row<'_>>) -> rusqlite::Result<()>,
    ) -> Result<bool, QueryError> {
        let mut joined = self.connect(files, options.timeout)?;
        guard::set_deadline(&mut joined.conn, deadline)
            .map_err(|error| guard::explain(&error, options.timeout))?;
        let answer = run(&mut joined, sql, options, take);
        self.keep(joined);
        answer
    }
}

/// The note about a file that was set aside.
fn lacking(path: &Path) -> String {
    let shown = path.display();
    match files::is_salvaged(path) {
        true => format!(
            "records may be missing: {shown} was damaged, and what could be read of it was saved; delete it when you do not need it any more"
        ),
        false => format!(
            "records are missing: {shown} is damaged and was set aside; `hopwise store check` with --salvage saves what can be read"
        ),
    }
}

fn unreadable((path, error): (PathBuf, rusqlite::Error), timeout: Duration) -> QueryError {
    let message = format!("{}: {}", path.display(), guard::explain(&error, timeout).message);
    QueryError::new(QueryErrorKind::Storage, message)
}

/// Calls `take` with the columns alone, then with each row. Returns whether there was more.
fn run(
    joined: &mut Joined,
    sql: &str,
    options: &QueryOptions,
    mut take: impl FnMut(&[String], Option<&Row<'_>>) -> rusqlite::Result<()>,
) -> Result<bool, QueryError> {
    let fail = |error| guard::explain(&error, options.timeout);
    // Kept for the next time: planning a query over many files takes longer than most answers. What is kept lost the spaces
    // before it, so an error gets its place from a second attempt.
    let prepared = joined.conn.prepare_cached(sql);
    let mut statement = prepared.map_err(|error| fail(joined.conn.prepare(sql).err().unwrap_or(error)))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    if columns.is_empty() || !statement.readonly() {
        return Err(QueryError::new(
            QueryErrorKind::Refused,
            "this is no query; write a SELECT",
        ));
    }
    bind(&mut statement, &options.params).map_err(fail)?;
    take(&columns, None).map_err(fail)?;
    let mut rows = statement.raw_query();
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next().map_err(fail)? {
        bytes += size(row, columns.len());
        if count == options.max_rows || bytes > options.max_bytes {
            return Ok(true);
        }
        count += 1;
        take(&columns, Some(row)).map_err(fail)?;
    }
    Ok(false)
}

fn bind(statement: &mut Statement<'_>, params: &[Value]) -> rusqlite::Result<()> {
    if statement.parameter_count() != params.len() {
        return Err(rusqlite::Error::InvalidParameterCount(
            params.len(),
            statement.parameter_count(),
        ));
    }
    params
        .iter()
        .enumerate()
        .try_for_each(|(i, value)| statement.raw_bind_parameter(i + 1, value))
}

/// Size of a row in memory: a fixed part per value, and its text or bytes.
fn size(row: &Row<'_>, columns: usize) -> usize {
    let weigh = |value: ValueRef<'_>| match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 0,
    };
    (0..columns)
        .map(|i| size_of::<Value>() + row.get_ref(i).map_or(0, weigh))
        .sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can panic in the middle of a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Int(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_owned()),
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Connections kept for the next query. Each may have a page cache as large as [`join`] allows.
const MAX_IDLE: usize = 4;
/// Files that are read at the same time for one question.
const MOST_THREADS: usize = 4;
/// Notes of a reader that are kept.
const MOST_NOTES: usize = 8;
/// The same of those with one file: a question asks one after the other.
const MAX_ALONE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Store};
    use testkit::records::{Dir, START, changes};

    #[test]
    fn the_files_of_a_question_have_one_deadline() {
        let dir = Dir::new("deadline");
        let store = Store::open(Config::new(dir.path())).unwrap();
        store.submit(changes(START, 10, 1)).unwrap();
        store.close();
        let reader = Reader::open(dir.path()).unwrap();
        let file = reader.files_of(0, u64::MAX).unwrap().remove(0);
        let deadline = reader.deadline_in(Duration::from_millis(200));
        let ask = |wait| {
            reader.ask_file(&file, &deadline, |_, _| {
                std::thread::sleep(wait);
                Ok(())
            })
        };
        ask(Duration::from_millis(250)).unwrap();
        let error = ask(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind, QueryErrorKind::Timeout, "{error}");
        assert!(error.message.contains("longer than 0.2 s"), "{error}");
    }
}

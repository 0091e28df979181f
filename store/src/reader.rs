//! Reader of a store's directory: selects the files of a time range, caches facts and connections, and runs queries over files
//! that may be written or deleted meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use collector::event::{Nanos, Stream};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Statement, ToSql};

use crate::config::{Error, WithPath as _};
use crate::files::{self, FileId, Listing, StoreFile};
use crate::guard::{self, Deadline};
use crate::identity::FileIdentity;
use crate::join::{self, Joined};
use crate::keys::FlowKeyCache;
use crate::moved::MovedFiles;
use crate::query::{QueryError, QueryErrorKind, QueryOptions, Table, Value};
use crate::schema::Features;

/// Maximum idle connections with views. Each may have a page cache as large as [`join`] allows.
const MAX_IDLE_JOINED: usize = 4;
/// Maximum idle connections to single files.
const MAX_IDLE_SINGLE: usize = 16;
/// Maximum number of files read in parallel for one query.
const MAX_THREADS: usize = 4;
/// Maximum number of warnings kept.
const MAX_NOTES: usize = 8;

/// Reader of a store. It can be shared by threads: each query uses a connection of its own from a small pool.
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
    /// Warnings about files that answers lack.
    notes: Arc<Mutex<BTreeSet<String>>>,
    /// Moved files of the store that writes to the directory in this process.
    moved: Option<MovedFiles>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    max_files: usize,
    /// If set, temporary data of queries stays in memory, and SQLite's heap is limited to this many bytes.
    max_memory: Option<u64>,
    idle: Mutex<Vec<Joined>>,
    facts: Mutex<HashMap<FileIdentity, FileFacts>>,
    keys: FlowKeyCache,
}

/// Cached facts about a file.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    /// Size and modification time when it was read; a changed file is read again.
    bytes: u64,
    modified: SystemTime,
    pub(crate) meta: HashMap<String, i64>,
}

impl FileFacts {
    /// Returns a record count by its name in the table `meta`.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.time(name).unwrap_or(0)
    }

    pub(crate) fn time(&self, name: &str) -> Option<Nanos> {
        self.meta.get(name).and_then(|value| u64::try_from(*value).ok())
    }
}

/// The files of a query, oldest first, and warnings about skipped files.
#[derive(Default, Debug)]
struct SelectedFiles {
    files: Vec<FileIdentity>,
    notes: Vec<String>,
}

/// Files that one query can join, oldest first.
#[derive(Debug)]
pub(crate) struct FileGroup {
    pub(crate) files: Vec<FileIdentity>,
    /// Time of the newest record in this and all older groups, if known.
    pub(crate) to: Option<Nanos>,
}

/// A file with the time of its newest record.
#[derive(Clone, Debug)]
pub(crate) struct DatedFile {
    pub(crate) file: FileIdentity,
    pub(crate) end: Nanos,
    /// Position of the file in the order of their periods.
    pub(crate) order: usize,
}

impl Reader {
    /// Returns a reader of the store in `dir`. Files may be created and deleted later.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::new(dir.into(), None)
    }

    /// Returns a reader for users' queries in a separate process: sorting, grouping and materialising stay in memory, and
    /// SQLite's heap in this process is limited to `bytes`. A query that needs more fails with [`QueryErrorKind::TooLarge`].
    ///
    /// # Errors
    /// There is no such directory.
    pub fn open_confined(dir: impl Into<PathBuf>, bytes: u64) -> Result<Self, Error> {
        Self::new(dir.into(), Some(bytes))
    }

    fn new(dir: PathBuf, max_memory: Option<u64>) -> Result<Self, Error> {
        files::list(&dir).with_path(&dir)?;
        let shared = Shared {
            dir,
            max_files: join::max_attached_files(),
            max_memory,
            idle: Mutex::default(),
            facts: Mutex::default(),
            keys: FlowKeyCache::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            stop: None,
            notes: Arc::default(),
            moved: None,
        })
    }

    /// Returns this reader with warnings about files that were removed or replaced while this process's store wrote there.
    #[must_use]
    pub fn with_moved_files(self, moved: MovedFiles) -> Self {
        Self {
            moved: Some(moved),
            ..self
        }
    }

    /// Returns a reader of the same files with separate notes, whose queries fail with [`QueryErrorKind::Timeout`] soon after
    /// `stop` is set.
    #[must_use]
    pub fn until(&self, stop: Arc<AtomicBool>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            stop: Some(stop),
            notes: Arc::default(),
            moved: self.moved.clone(),
        }
    }

    /// Returns the warnings about this reader's answers so far, such as about files left out; at most 8.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.notes).iter().cloned().collect()
    }

    pub(crate) fn remember_notes(&self, notes: &[String]) {
        let mut all = lock(&self.notes);
        for note in notes {
            if all.len() < MAX_NOTES {
                all.insert(note.clone());
            }
        }
    }

    /// Returns the directory of the files.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Runs a `SELECT` over the documented views, which cover all files with records in the time range of `options`. (The range
    /// selects files; the query's `WHERE` selects rows.)
    ///
    /// # Errors
    /// The query is not read-only, takes longer than allowed, or fails. The message suggests a remedy.
    pub fn query(&self, sql: &str, options: &QueryOptions) -> Result<Table, QueryError> {
        self.with_retry(|| {
            let selection = self.select_newest(options.from, options.to)?;
            let mut table = Table {
                notes: selection.notes,
                ..Table::default()
            };
            let deadline = self.deadline_in(options.timeout);
            self.with_rows(selection.files, sql, options, &deadline, |columns, row| {
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

    /// Closes idle connections. A deleted file keeps its disk space until the last connection to it is closed, so call this
    /// periodically, for example every minute.
    pub fn tidy(&self) {
        lock(&self.shared.idle).clear();
        lock(&self.shared.facts).retain(|file, _| file.is_in_place());
        self.shared.keys.retain(FileIdentity::is_in_place);
    }

    /// Runs `sql` over the files of a time range and passes each row to `visit`.
    pub(crate) fn rows(
        &self,
        sql: &str,
        options: &QueryOptions,
        visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), QueryError> {
        let files = self.select_newest(options.from, options.to)?.files;
        self.rows_of(files, sql, options, &self.deadline_in(options.timeout), visit)
    }

    /// Runs `sql` over some files, at most as many as one query can join, within `deadline`; the timeout of `options` is
    /// ignored.
    pub(crate) fn rows_of(
        &self,
        files: Vec<FileIdentity>,
        sql: &str,
        options: &QueryOptions,
        deadline: &Deadline,
        mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), QueryError> {
        deadline.check()?;
        self.with_rows(files, sql, options, deadline, |_, row| {
            row.map_or(Ok(()), &mut visit)
        })?;
        Ok(())
    }

    /// Runs a query, and repeats it once with empty caches if a file could not be read: it may have been deleted, set aside or
    /// replaced meanwhile.
    pub(crate) fn with_retry<T>(
        &self,
        mut query: impl FnMut() -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        match query() {
            Err(error) if error.kind == QueryErrorKind::Storage => {
                lock(&self.shared.idle).clear();
                lock(&self.shared.facts).clear();
                self.shared.keys.clear();
                query()
            }
            answer => answer,
        }
    }

    /// Returns the sizes of all readable files, and the cached facts about them.
    pub(crate) fn all_file_facts(&self) -> Result<Vec<(u64, FileFacts)>, QueryError> {
        let files = self.list()?;
        Ok(files
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

    /// Returns the files with records in a time range, oldest first, for queries that read one file after another.
    pub(crate) fn files_in(&self, from: Nanos, to: Nanos) -> Result<Vec<FileIdentity>, QueryError> {
        let selection = self.select_files(Some(from), Some(to))?;
        self.remember_notes(&selection.notes);
        Ok(selection.files)
    }

    /// Returns the readable files with records before or at a time, oldest period first. Others are left out without a
    /// warning, because no answer about a later time is expected to need them.
    pub(crate) fn files_before(&self, to: Nanos) -> Result<Vec<DatedFile>, QueryError> {
        let files = self.select_files(None, Some(to))?.files;
        let facts = lock(&self.shared.facts);
        let dated = files.into_iter().enumerate().filter_map(|(order, file)| {
            let end = facts.get(&file)?.time("to")?;
            Some(DatedFile { file, end, order })
        });
        Ok(dated.collect())
    }

    /// Returns the cached facts about the files with records in a time range.
    pub(crate) fn facts_in(&self, from: Nanos, to: Nanos) -> Result<Vec<FileFacts>, QueryError> {
        let files = self.files_in(from, to)?;
        let facts = lock(&self.shared.facts);
        Ok(files.iter().filter_map(|file| facts.get(file).cloned()).collect())
    }

    /// Runs a query over one file, attached as `f0` without views, so it uses the tables of [`crate::schema::SQL`].
    pub(crate) fn query_file<T>(
        &self,
        file: &FileIdentity,
        deadline: &Deadline,
        query: impl FnOnce(&Connection, Features) -> rusqlite::Result<T>,
    ) -> Result<T, QueryError> {
        deadline.check()?;
        let timeout = deadline.timeout;
        let idle = self.take_idle(|joined| !joined.has_views && joined.files.first() == Some(file));
        let mut joined = match idle {
            Some(joined) => joined,
            None => Joined::open_single(file.clone())
                .map_err(|(path, error)| unreadable(&path, &error, timeout))?,
        };
        guard::set_deadline(&mut joined.conn, deadline).map_err(|error| guard::explain(&error, timeout))?;
        let features = joined.features.first().copied().unwrap_or_default();
        let answer = query(&joined.conn, features).map_err(|error| guard::explain(&error, timeout));
        self.put_back(joined);
        answer
    }

    /// Runs a query over several files in parallel on up to [`MAX_THREADS`] cores. Passes the answers to `add` in the order of
    /// the files, with their indexes.
    pub(crate) fn query_files<T: Send>(
        &self,
        files: &[FileIdentity],
        deadline: &Deadline,
        query: impl Fn(usize, &Connection, Features) -> rusqlite::Result<T> + Sync,
        mut add: impl FnMut(usize, T) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let cores = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_THREADS);
        let query = &query;
        for first in (0..files.len()).step_by(cores) {
            let last = (first + cores).min(files.len());
            let answers: Vec<Result<T, QueryError>> = thread::scope(|scope| {
                let mut threads = Vec::new();
                for i in first + 1..last {
                    let thread = thread::Builder::new().name("store-read".to_owned());
                    let thread =
                        thread.spawn_scoped(scope, move || self.query_nth(files, i, deadline, query));
                    threads.push((i, thread.ok()));
                }
                let mut answers = vec![self.query_nth(files, first, deadline, query)];
                for (i, thread) in threads {
                    answers.push(match thread.map(|thread| thread.join()) {
                        Some(answer) => answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                        // The thread could not be started.
                        None => self.query_nth(files, i, deadline, query),
                    });
                }
                answers
            });
            for (i, answer) in (first..).zip(answers) {
                add(i, answer?)?;
            }
        }
        Ok(())
    }

    fn query_nth<T>(
        &self,
        files: &[FileIdentity],
        i: usize,
        deadline: &Deadline,
        query: impl Fn(usize, &Connection, Features) -> rusqlite::Result<T>,
    ) -> Result<T, QueryError> {
        self.query_file(&files[i], deadline, |conn, features| query(i, conn, features))
    }

    /// Returns the cache of flow keys.
    pub(crate) fn keys(&self) -> &FlowKeyCache {
        &self.shared.keys
    }

    /// Returns the default deadline for a query that starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline_in(QueryOptions::default().timeout)
    }

    pub(crate) fn deadline_in(&self, timeout: Duration) -> Deadline {
        Deadline::new(timeout, self.stop.clone())
    }

    fn put_back(&self, joined: Joined) {
        let mut idle = lock(&self.shared.idle);
        let most = if joined.has_views {
            MAX_IDLE_JOINED
        } else {
            MAX_IDLE_SINGLE
        };
        let same_kind: Vec<usize> = (0..idle.len())
            .filter(|i| idle[*i].has_views == joined.has_views)
            .collect();
        if same_kind.len() >= most {
            // Evict the oldest one.
            idle.remove(same_kind[0]);
        }
        idle.push(joined);
    }

    /// Returns the files with records in a time range in groups that one query can join, newest first. The first group has at
    /// most `first` files.
    pub(crate) fn file_groups(
        &self,
        from: Option<Nanos>,
        to: Option<Nanos>,
        first: usize,
    ) -> Result<Vec<FileGroup>, QueryError> {
        let mut files = self.files_in(from.unwrap_or(0), to.unwrap_or(Nanos::MAX))?;
        let facts = lock(&self.shared.facts);
        // Running maximum over the files from the oldest on.
        let mut latest = Some(0);
        let latest: Vec<Option<Nanos>> = files
            .iter()
            .map(|file| {
                let to = facts.get(file).and_then(|facts| facts.time("to"));
                latest = latest.zip(to).map(|(latest, to)| to.max(latest));
                latest
            })
            .collect();
        let mut groups = Vec::new();
        let mut most = first.min(self.shared.max_files);
        while let Some(to) = files.len().checked_sub(1).map(|last| latest[last]) {
            let group = files.split_off(files.len().saturating_sub(most));
            groups.push(FileGroup { files: group, to });
            most = self.shared.max_files;
        }
        Ok(groups)
    }

    /// Returns the newest files of a time range, at most as many as one query can join.
    fn select_newest(&self, from: Option<Nanos>, to: Option<Nanos>) -> Result<SelectedFiles, QueryError> {
        let mut selection = self.select_files(from, to)?;
        let most = self.shared.max_files;
        if selection.files.len() > most {
            let left_out = selection.files.len() - most;
            selection.files.drain(..left_out);
            let note = format!(
                "left out the {left_out} oldest files: at most {most} are joined in one query; narrow the time range"
            );
            // At the front, because only [`MAX_NOTES`] are kept.
            selection.notes.insert(0, note);
        }
        self.remember_notes(&selection.notes);
        Ok(selection)
    }

    fn select_files(&self, from: Option<Nanos>, to: Option<Nanos>) -> Result<SelectedFiles, QueryError> {
        let mut selection = SelectedFiles::default();
        let ranged = from.is_some() || to.is_some();
        let listing = self.scan()?;
        for (_, path) in &listing.not_files {
            selection
                .notes
                .push(format!("left out: {} is not a regular file", path.display()));
        }
        for file in listing.set_aside.iter().filter(|file| file.id.overlaps(from, to)) {
            selection.notes.push(set_aside_note(&file.path));
        }
        selection
            .notes
            .extend(self.moved.as_ref().and_then(|moved| moved.note(from, to)));
        let mut start = StoredStart::default();
        for file in listing.files {
            match self.file_facts(&file, ranged) {
                Ok(Some((identity, facts))) => {
                    start.add(file.id, &facts);
                    let too_new = to.is_some_and(|to| facts.time("from").is_some_and(|first| first > to));
                    let too_old = from.is_some_and(|from| facts.time("to").is_some_and(|last| last < from));
                    if !too_new && !too_old {
                        selection.files.push(identity);
                    }
                }
                // Deleted, or being created.
                Ok(None) => {}
                Err(error) => {
                    start.is_known = false;
                    selection.notes.push(format!("left out: {error}"));
                }
            }
        }
        selection.notes.extend(start.note(from));
        Ok(selection)
    }

    /// Returns the facts about a file, or `None` if it was deleted or is empty. With `fresh`, cached facts must match the
    /// file's current state.
    fn file_facts(&self, file: &StoreFile, fresh: bool) -> Result<Option<(FileIdentity, FileFacts)>, Error> {
        let Some(identity) = FileIdentity::read(&file.path) else {
            return Ok(None);
        };
        let facts = lock(&self.shared.facts).get(&identity).cloned();
        if let Some(facts) = facts
            && (!fresh || (facts.bytes, facts.modified) == (file.bytes, file.modified))
        {
            return Ok(Some((identity, facts)));
        }
        let meta = match join::read_meta(&file.path) {
            Ok(meta) => meta,
            Err(_) if FileIdentity::read(&file.path).is_none() => return Ok(None),
            Err(Error::Empty(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = FileFacts {
            bytes: file.bytes,
            modified: file.modified,
            meta,
        };
        lock(&self.shared.facts).insert(identity.clone(), facts.clone());
        Ok(Some((identity, facts)))
    }

    /// Returns a connection over `files`, from the pool if possible.
    fn connect(&self, files: Vec<FileIdentity>, timeout: Duration) -> Result<Joined, QueryError> {
        match self.take_idle(|joined| joined.has_views && joined.files == files) {
            Some(joined) => Ok(joined),
            None => Joined::open(files, self.shared.max_memory)
                .map_err(|(path, error)| unreadable(&path, &error, timeout)),
        }
    }

    /// Removes an idle connection that `is_wanted` accepts from the pool and returns it.
    fn take_idle(&self, is_wanted: impl Fn(&Joined) -> bool) -> Option<Joined> {
        let mut idle = lock(&self.shared.idle);
        // Open connections keep a deleted file's disk space allocated.
        idle.retain(|joined| joined.files.iter().all(|file| file.is_in_place()));
        idle.iter().position(is_wanted).map(|i| idle.remove(i))
    }

    fn with_rows(
        &self,
        files: Vec<FileIdentity>,
        sql: &str,
        options: &QueryOptions,
        deadline: &Deadline,
        visit: impl FnMut(&[String], Option<&Row<'_>>) -> rusqlite::Result<()>,
    ) -> Result<bool, QueryError> {
        let mut joined = self.connect(files, options.timeout)?;
        guard::set_deadline(&mut joined.conn, deadline)
            .map_err(|error| guard::explain(&error, options.timeout))?;
        let answer = run(&mut joined, sql, options, visit);
        self.put_back(joined);
        answer
    }
}

/// Start of the store's records, and whether retention deleted earlier ones.
#[derive(Debug)]
struct StoredStart {
    /// Time before which no file has records, ns.
    start: Option<Nanos>,
    first_records: [Option<FirstRecord>; Stream::ALL.len()],
    /// False if some file could not be read.
    is_known: bool,
}

/// Lowest record number of a stream, with the base of its numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FirstRecord {
    number: i64,
    base: i64,
}

impl Default for StoredStart {
    fn default() -> Self {
        Self {
            start: None,
            first_records: [None; Stream::ALL.len()],
            is_known: true,
        }
    }
}

impl StoredStart {
    /// Adds a file. The oldest is added first.
    fn add(&mut self, id: FileId, facts: &FileFacts) {
        if self.start.is_none() {
            let earliest = facts.time(join::FIRST_RECORD).or(facts.time("from"));
            self.start = earliest.map(|earliest| id.lower_bound(earliest));
        }
        for (stream, first) in Stream::ALL.into_iter().zip(&mut self.first_records) {
            let [number, base] =
                join::FIRST_RECORD_NAMES.map(|name| facts.meta.get(&format!("{name}{}", stream as u8)));
            let (Some(&number), Some(&base)) = (number, base) else {
                continue;
            };
            let record = FirstRecord { number, base };
            *first = Some(first.map_or(record, |lowest| lowest.min(record)));
        }
    }

    /// Returns a warning for a query that starts before the first stored record, if earlier records were deleted. A `from` of 0
    /// is unbounded.
    fn note(&self, from: Option<Nanos>) -> Option<String> {
        let start = self.start.filter(|_| self.is_known)?;
        let reaches_before = from.is_some_and(|from| 0 < from && from < start);
        // Records are numbered over all files from the base, so a higher first number means that earlier ones are gone.
        let lacks_earlier = self
            .first_records
            .iter()
            .flatten()
            .any(|record| record.number > record.base);
        (reaches_before && lacks_earlier).then(|| {
            format!(
                "records may be missing: those from before {} were deleted, as `max_age` and `max_bytes` of [store] do with the oldest \
                 files",
                settings::time::text(start)
            )
        })
    }
}

/// Returns the note about a file that was set aside.
fn set_aside_note(path: &Path) -> String {
    let shown = path.display();
    if files::is_salvaged(path) {
        format!(
            "records may be missing: {shown} was damaged, and its readable records were saved; delete it once you no longer need it"
        )
    } else {
        format!(
            "records are missing: {shown} is damaged and was set aside; `hopwise store check` with --salvage copies the readable records"
        )
    }
}

fn unreadable(path: &Path, error: &rusqlite::Error, timeout: Duration) -> QueryError {
    let message = format!("{}: {}", path.display(), guard::explain(error, timeout).message);
    QueryError::new(QueryErrorKind::Storage, message)
}

/// Calls `visit` with the columns and `None`, then with each row. Returns true if there were more rows than the limits allow.
fn run(
    joined: &mut Joined,
    sql: &str,
    options: &QueryOptions,
    visit: impl FnMut(&[String], Option<&Row<'_>>) -> rusqlite::Result<()>,
) -> Result<bool, QueryError> {
    // Cached, because planning a query over many files takes longer than most executions. The cache trims leading spaces, so a
    // second attempt finds the error's position in the original text.
    let prepared = joined.conn.prepare_cached(sql);
    let prepared = prepared.map_err(|error| joined.conn.prepare(sql).err().unwrap_or(error));
    let mut statement = prepared.map_err(|error| guard::explain(&error, options.timeout))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    if columns.is_empty() || !statement.readonly() {
        return Err(QueryError::new(
            QueryErrorKind::Refused,
            "not a query; write a SELECT",
        ));
    }
    visit_rows(&mut statement, &columns, options, visit)
        .map_err(|error| guard::explain(&error, options.timeout))
}

fn visit_rows(
    statement: &mut Statement<'_>,
    columns: &[String],
    options: &QueryOptions,
    mut visit: impl FnMut(&[String], Option<&Row<'_>>) -> rusqlite::Result<()>,
) -> rusqlite::Result<bool> {
    bind(statement, &options.params)?;
    visit(columns, None)?;
    let mut rows = statement.raw_query();
    let mut count = 0;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += size(row, columns.len());
        if count == options.max_rows || bytes > options.max_bytes {
            return Ok(true);
        }
        count += 1;
        visit(columns, Some(row))?;
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

/// Returns the approximate size of a row in memory, bytes.
fn size(row: &Row<'_>, columns: usize) -> usize {
    let mut size = columns * size_of::<Value>();
    for i in 0..columns {
        if let Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) = row.get_ref(i) {
            size += bytes.len();
        }
    }
    size
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Store};
    use testkit::records::{Dir, START, changes};

    #[test]
    fn the_files_of_a_question_have_one_deadline() {
        let dir = Dir::new("deadline");
        let store = Store::open(Config::new(dir.path())).unwrap();
        store.submit(changes(START, 10, 1));
        store.close();
        let reader = Reader::open(dir.path()).unwrap();
        let file = reader.files_in(0, u64::MAX).unwrap().remove(0);
        let deadline = reader.deadline_in(Duration::from_millis(200));
        let ask = |wait| {
            reader.query_file(&file, &deadline, |_, _| {
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

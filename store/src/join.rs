//! Read-only connections over several database files: each file is attached as `f0`, `f1`, …, and each documented view is a
//! `UNION ALL` over all of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use collector::event::Stream;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::config::WithPath as _;
use crate::guard::{self, VIEWS};
use crate::identity::FileIdentity;
use crate::schema::{self, Features};

/// Names of a stream's lowest number in a file and of that number's base. The index of the stream is appended.
pub(crate) const FIRST_RECORD_NAMES: [&str; 2] = ["first of stream ", "base of stream "];
/// Name of the time of the earliest record that is not a sum over time. Sums of a minute are stored after it, possibly in the
/// next file.
pub(crate) const FIRST_RECORD: &str = "first record";
const LATEST_FLOW_COLUMNS: &str = "flow, src, dst, sport, dport, proto, path, flow_latency, basis, first_seen, \
                           max(last_seen) AS last_seen, reports";
/// Page cache of a connection, KiB, divided among its files.
const CACHE_KIB: usize = 64 << 10;
/// Page cache of a connection with one file, KiB. Other pages are in the page cache of the system.
const SINGLE_CACHE_KIB: usize = 4 << 10;

/// A connection over some files, restricted by the authorizer of `guard`.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) conn: Connection,
    pub(crate) files: Vec<FileIdentity>,
    /// Optional tables and columns of each file, which depend on its schema version.
    pub(crate) features: Vec<Features>,
    /// True if the documented views exist.
    pub(crate) has_views: bool,
}

impl Joined {
    /// Opens `files` and makes each documented view their union.
    ///
    /// Each union begins with an empty database of the current schema. It gives the result when there are no files, and it
    /// makes SQLite evaluate each file separately, which drops joins for columns that the query does not use (six times as
    /// fast for `count(*)` over one file). `max_memory` limits SQLite's heap, in bytes; see
    /// [`crate::Reader::open_confined`].
    pub(crate) fn open(
        files: Vec<FileIdentity>,
        max_memory: Option<u64>,
    ) -> Result<Self, (PathBuf, rusqlite::Error)> {
        let mut conn = open_with_schema(max_memory).map_err(in_memory)?;
        let cache = CACHE_KIB / files.len().max(1);
        let mut features = Vec::with_capacity(files.len());
        for (i, file) in files.iter().enumerate() {
            let attached =
                attach(&conn, &file.path, i, cache).and_then(|()| schema::features(&conn, &format!("f{i}")));
            features.push(attached.map_err(|error| (file.path.clone(), error))?);
        }
        for view in VIEWS {
            conn.execute_batch(&union(view, &features)).map_err(in_memory)?;
        }
        guard::make_read_only(&mut conn).map_err(in_memory)?;
        Ok(Self {
            conn,
            files,
            features,
            has_views: true,
        })
    }

    /// Opens one file without views: creating them takes longer than many queries.
    pub(crate) fn open_single(file: FileIdentity) -> Result<Self, (PathBuf, rusqlite::Error)> {
        match connect_single(&file.path) {
            Ok((conn, features)) => Ok(Self {
                conn,
                files: vec![file],
                features: vec![features],
                has_views: false,
            }),
            Err(error) => Err((file.path, error)),
        }
    }
}

fn in_memory(error: rusqlite::Error) -> (PathBuf, rusqlite::Error) {
    (PathBuf::from(":memory:"), error)
}

/// Opens an empty in-memory database of the current schema, with SQLite's heap limited to `max_memory` bytes.
fn open_with_schema(max_memory: Option<u64>) -> rusqlite::Result<Connection> {
    let conn = empty()?;
    if let Some(bytes) = max_memory {
        // Temporary files would have no total limit: the system limits each one, and a query may have many. The heap limit
        // covers everything.
        conn.execute_batch("PRAGMA temp_store = MEMORY")?;
        conn.query_row(&format!("PRAGMA hard_heap_limit = {bytes}"), [], |_| Ok(()))?;
    }
    conn.execute_batch(schema::SQL)?;
    conn.execute_batch(schema::LOAD_STATISTICS)?;
    conn.busy_timeout(Duration::from_secs(1))?;
    Ok(conn)
}

fn connect_single(path: &Path) -> rusqlite::Result<(Connection, Features)> {
    let mut conn = empty()?;
    conn.busy_timeout(Duration::from_secs(1))?;
    attach(&conn, path, 0, SINGLE_CACHE_KIB)?;
    let features = schema::features(&conn, "f0")?;
    guard::make_read_only(&mut conn)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok((conn, features))
}

/// Opens an empty in-memory connection, to which files are attached.
fn empty() -> rusqlite::Result<Connection> {
    Connection::open_in_memory_with_flags(
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Returns the maximum number of files that one connection can attach, a compile-time limit of SQLite.
pub(crate) fn max_attached_files() -> usize {
    let limit = Connection::open_in_memory().and_then(|conn| conn.limit(Limit::SQLITE_LIMIT_ATTACHED));
    limit.map_or(1, |limit| usize::try_from(limit).unwrap_or(1))
}

/// Reads the `meta` table of the file at `path`. Adds the lowest number of each stream and its base under the names of
/// [`FIRST_RECORD_NAMES`], and the time of the earliest record that is not a sum under [`FIRST_RECORD`].
pub(crate) fn read_meta(path: &Path) -> Result<HashMap<String, i64>, crate::Error> {
    let conn = single(path, 64)?;
    query_meta(&conn).with_path(path)
}

fn query_meta(conn: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    let mut select = conn.prepare("SELECT name, value FROM f0.meta WHERE value IS NOT NULL")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut meta: HashMap<String, i64> = rows.collect::<rusqlite::Result<_>>()?;
    let first = "SELECT min(first) FROM (SELECT min(ts) AS first FROM f0.event_data UNION ALL SELECT min(ts) FROM f0.drop_data \
                 UNION ALL SELECT min(ts) FROM f0.loss_data)";
    if let Some(first) = conn.query_row(first, [], |row| row.get(0))? {
        meta.insert(FIRST_RECORD.to_owned(), first);
    }
    // The first schema versions did not number records.
    let numbered = "SELECT count(*) FROM f0.sqlite_schema WHERE name = 'run_data'";
    if conn.query_row(numbered, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(meta);
    }
    let mut select =
        conn.prepare("SELECT first, base FROM f0.run_data WHERE stream = ?1 ORDER BY first LIMIT 1")?;
    for stream in Stream::ALL {
        let first = select.query_row([stream as i64], |row| Ok([row.get(0)?, row.get(1)?]));
        for (name, value) in FIRST_RECORD_NAMES
            .iter()
            .zip(first.optional()?.into_iter().flatten())
        {
            meta.insert(format!("{name}{}", stream as u8), value);
        }
    }
    Ok(meta)
}

/// Opens a connection with only the file at `path`, attached as `f0`, and checks that it belongs to hopwise.
pub(crate) fn single(path: &Path, cache_kib: usize) -> Result<Connection, crate::Error> {
    let conn = empty().with_path(path)?;
    attach(&conn, path, 0, cache_kib).with_path(path)?;
    schema::check(&conn, "f0", path)?;
    Ok(conn)
}

fn attach(conn: &Connection, path: &Path, number: usize, cache_kib: usize) -> rusqlite::Result<()> {
    match attach_in_mode(conn, path, number, "mode=ro") {
        // Without write permission, SQLite cannot create the WAL's shared memory. An empty WAL does not need it.
        Err(_) if log_is_empty(path) => attach_in_mode(conn, path, number, "mode=ro&immutable=1")?,
        other => other?,
    }
    conn.execute_batch(&format!("PRAGMA f{number}.cache_size = -{cache_kib}"))
}

fn attach_in_mode(conn: &Connection, path: &Path, number: usize, mode: &str) -> rusqlite::Result<()> {
    conn.execute(&format!("ATTACH ?1 AS f{number}"), [uri(path, mode)])?;
    // SQLite opens the file at the first read.
    let first_read = format!("SELECT count(*) FROM f{number}.sqlite_schema");
    let readable = conn.query_row(&first_read, [], |_| Ok(()));
    if readable.is_err() {
        conn.execute_batch(&format!("DETACH f{number}"))?;
    }
    readable
}

fn log_is_empty(path: &Path) -> bool {
    std::fs::metadata(crate::files::with_suffix(path, "-wal")).map_or(true, |log| log.len() == 0)
}

fn uri(path: &Path, mode: &str) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => uri.push(char::from(byte)),
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?" + mode
}

/// Returns the statement that creates a view over all files. Columns and tables that earlier schema versions lack are filled
/// with NULL or left out.
fn union(view: &str, files: &[Features]) -> String {
    let mut all = format!("SELECT * FROM main.{view}");
    for (i, features) in files.iter().enumerate() {
        if view == "recordings" && !features.recordings {
            continue;
        }
        let missing = match view {
            "events" if !features.first_values => ", NULL, NULL, NULL",
            "drops" if !features.tunnels => ", NULL",
            "reports" if !features.latencies => ", NULL",
            _ => "",
        };
        all += &format!(" UNION ALL SELECT *{missing} FROM f{i}.{view}");
    }
    // A flow in several files has a row in each, and the latest row counts. With `max()`, SQLite takes the bare columns from
    // the row that has the maximum.
    let body = match view {
        "flows" if files.len() > 1 => format!("SELECT {LATEST_FLOW_COLUMNS} FROM ({all}) GROUP BY flow"),
        _ => all,
    };
    format!("CREATE TEMP VIEW {view} AS {body}")
}

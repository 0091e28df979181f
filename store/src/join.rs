//! Many files as one: a connection in which the documented views cover every file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::guard;
use crate::identity::FileIdentity;
use crate::schema::{self, Features};

/// A restricted connection over some files.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) conn: Connection,
    pub(crate) files: Vec<FileIdentity>,
    /// What each file has.
    pub(crate) features: Vec<Features>,
    /// The documented names are there.
    pub(crate) has_views: bool,
}

impl Joined {
    /// Opens `files` and makes each documented view their union. The first member of each union is an empty database of
    /// our schema: the answer when there are no files, and it makes SQLite evaluate each file by itself, which drops the
    /// joins for columns that the query does not use (`count(*)` over one file is six times as fast). `most_memory`: see
    /// [`crate::Reader::open_confined`].
    pub(crate) fn open(
        files: Vec<FileIdentity>,
        most_memory: Option<u64>,
    ) -> Result<Self, (PathBuf, rusqlite::Error)> {
        let here = |error| (PathBuf::from(":memory:"), error);
        let mut conn = empty().map_err(here)?;
        if let Some(bytes) = most_memory {
            // Files have no total bound: a limit of the system is for one file, and a query may have many. The limit of memory is one.
            conn.execute_batch("PRAGMA temp_store = MEMORY").map_err(here)?;
            conn.query_row(&format!("PRAGMA hard_heap_limit = {bytes}"), [], |_| Ok(()))
                .map_err(here)?;
        }
        conn.execute_batch(schema::SQL).map_err(here)?;
        conn.execute_batch(schema::LOAD_STATISTICS).map_err(here)?;
        conn.busy_timeout(Duration::from_secs(1)).map_err(here)?;
        let cache = CACHE_KIB / files.len().max(1);
        let mut features = Vec::with_capacity(files.len());
        for (i, file) in files.iter().enumerate() {
            let attached =
                attach(&conn, &file.path, i, cache).and_then(|()| schema::features(&conn, &format!("f{i}")));
            features.push(attached.map_err(|error| (file.path.clone(), error))?);
        }
        for view in VIEWS {
            conn.execute_batch(&union(view, &features)).map_err(here)?;
        }
        guard::make_read_only(&mut conn).map_err(here)?;
        Ok(Self {
            conn,
            files,
            features,
            has_views: true,
        })
    }

    /// Opens one file, without views: to make these takes longer than many questions.
    pub(crate) fn alone(file: FileIdentity) -> Result<Self, (PathBuf, rusqlite::Error)> {
        let open = || -> rusqlite::Result<(Connection, Features)> {
            let mut conn = empty()?;
            conn.busy_timeout(Duration::from_secs(1))?;
            attach(&conn, &file.path, 0, ALONE_CACHE_KIB)?;
            let features = schema::features(&conn, "f0")?;
            guard::make_read_only(&mut conn)?;
            conn.set_prepared_statement_cache_capacity(64);
            Ok((conn, features))
        };
        match open() {
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

/// A connection with nothing in it, to which files are attached.
fn empty() -> rusqlite::Result<Connection> {
    Connection::open_in_memory_with_flags(
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Maximum number of files that one connection can join: a compile-time limit of SQLite.
pub(crate) fn most_files() -> usize {
    let limit = Connection::open_in_memory().and_then(|conn| conn.limit(Limit::SQLITE_LIMIT_ATTACHED));
    limit.map_or(1, |limit| usize::try_from(limit).unwrap_or(1))
}

/// The `meta` table of the file at `path`.
pub(crate) fn read_meta(path: &Path) -> Result<HashMap<String, i64>, crate::Error> {
    let fail = |error| crate::Error::sqlite(path, error);
    let conn = single(path, 64)?;
    let mut select = conn
        .prepare("SELECT name, value FROM f0.meta WHERE value IS NOT NULL")
        .map_err(fail)?;
    let rows = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(fail)?;
    rows.collect::<rusqlite::Result<_>>().map_err(fail)
}

/// A connection in which only the file at `path` is, as `f0`. It is one of hopwise.
pub(crate) fn single(path: &Path, cache_kib: usize) -> Result<Connection, crate::Error> {
    let fail = |error| crate::Error::sqlite(path, error);
    let conn = empty().map_err(fail)?;
    attach(&conn, path, 0, cache_kib).map_err(fail)?;
    schema::check(&conn, "f0", path)?;
    Ok(conn)
}

fn attach(conn: &Connection, path: &Path, number: usize, cache_kib: usize) -> rusqlite::Result<()> {
    let try_with = |mode: &str| {
        conn.execute(&format!("ATTACH ?1 AS f{number}"), [uri(path, mode)])?;
        // The first read opens the file.
        let readable = conn.query_row(
            &format!("SELECT count(*) FROM f{number}.sqlite_schema"),
            [],
            |_| Ok(()),
        );
        if readable.is_err() {
            conn.execute_batch(&format!("DETACH f{number}"))?;
        }
        readable
    };
    let opened = match try_with("mode=ro") {
        // Without write permission the shared memory of the log cannot be created; without a log none is needed.
        Err(_) if log_is_empty(path) => try_with("mode=ro&immutable=1"),
        other => other,
    };
    opened?;
    conn.execute_batch(&format!("PRAGMA f{number}.cache_size = -{cache_kib}"))
}

fn log_is_empty(path: &Path) -> bool {
    std::fs::metadata(crate::files::beside(path, "-wal")).map_or(true, |log| log.len() == 0)
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

/// `files`: what each has. Those of earlier versions lack the last columns of events and drops, and recordings.
fn union(view: &str, files: &[Features]) -> String {
    let member = |(i, features): (usize, &Features)| {
        let lacking = match view {
            "events" if !features.first_values => ", NULL, NULL, NULL",
            "drops" if !features.tunnels => ", NULL",
            _ => "",
        };
        match view == "recordings" && !features.recordings {
            true => String::new(),
            false => format!(" UNION ALL SELECT *{lacking} FROM f{i}.{view}"),
        }
    };
    let members: String = files.iter().enumerate().map(member).collect();
    let all = format!("SELECT * FROM main.{view}{members}");
    // A flow seen in several files has a row in each; the latest one is used. SQLite takes the other columns from
    // the row that has the maximum.
    let body = match view {
        "flows" if files.len() > 1 => format!("SELECT {LATEST_FLOW} FROM ({all}) GROUP BY flow"),
        _ => all,
    };
    format!("CREATE TEMP VIEW {view} AS {body}")
}

/// The documented names.
const VIEWS: [&str; 7] = [
    "events",
    "rollups",
    "flows",
    "drops",
    "losses",
    "reports",
    "recordings",
];

const LATEST_FLOW: &str = "flow, src, dst, sport, dport, proto, path, flow_latency, basis, first_seen, \
                           max(last_seen) AS last_seen, reports";

/// Page cache of a connection, over all its files.
const CACHE_KIB: usize = 64 << 10;
/// Page cache of a connection with one file: what is not in it is in that of the system.
const ALONE_CACHE_KIB: usize = 4 << 10;

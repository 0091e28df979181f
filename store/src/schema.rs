//! The SQLite schema of a store file (`schema.sql`): creation, version checks, and the features of each version.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use collector::Kind;
use collector::event::Basis;
use detect::Metric;
use rusqlite::{Connection, OpenFlags};

use crate::config::{Error, WithPath as _};
use crate::files;
use crate::identity::check_access;

/// Schema version that this program writes. Raised with each change that older programs could not read.
pub(crate) const VERSION: u32 = 9;

/// First version with first values: [`collector::event::FirstValues`].
const FIRST_VALUES: u32 = 2;

/// First version that stores the commit order of records (runs).
const RUNS: u32 = 3;

/// First version with recordings.
const RECORDINGS: u32 = 4;

/// A version with all row tables but no sums: readers sum the rows themselves.
pub(crate) const WITHOUT_SUMS: u32 = RECORDINGS;

/// First version with summed rollups and path starts.
const SPANS: u32 = 5;

/// First version with usable event blocks. Blocks of version 6 lack values, so its events are read row by row.
const BLOCKS: u32 = 7;

/// The script that creates a file.
pub(crate) const SQL: &str = include_str!("schema.sql");

/// Loads the planner's statistics. SQLite does this when it opens a file; the connection that creates them must do it
/// explicitly.
pub(crate) const LOAD_STATISTICS: &str = "ANALYZE sqlite_schema";
/// SQLite application ID that marks a hopwise file: "hopw".
const APPLICATION_ID: i32 = 0x686f_7077;
/// Writer settings. Pages of 8 KiB need fewer levels and splits than 4 KiB (measured). The writer checkpoints explicitly. The
/// dirty pages of a transaction fit into the cache of 64 MiB.
const SETTINGS: &str = "
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA cache_size = -65536;
PRAGMA trusted_schema = OFF;
";
/// The page size in `SETTINGS`, bytes.
pub(crate) const PAGE_SIZE: u64 = 8192;
/// Maximum wait for a lock that another program holds on the file.
pub(crate) const BUSY: Duration = Duration::from_secs(2);

/// When the indexes on events are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventIndexes {
    /// With each inserted row.
    Kept,
    /// All at once, when the file is complete.
    Later,
}

/// Opens the file at `path` for writing and creates its schema if it is new. An existing file keeps its set of indexes.
///
/// # Errors
/// [`Error::Newer`] and [`Error::Foreign`] for files that must be left alone; [`Error::Sqlite`] otherwise, also for a
/// damaged file (see [`Error::is_damage`]).
pub(crate) fn open(path: &Path, indexes: EventIndexes) -> Result<Connection, Error> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Created first for its mode, which SQLite copies to the WAL and shared memory. SQLite treats an empty file as new.
    match files::private_file_options()
        .create_new(true)
        .write(true)
        .open(path)
    {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            check_access(path, true).with_path(path)?;
        }
        created => drop(created.with_path(path)?),
    }
    let mut conn = Connection::open_with_flags(path, flags).with_path(path)?;
    conn.busy_timeout(BUSY).with_path(path)?;
    // Checked before the first write, so that a foreign file stays unchanged.
    match check(&conn, "main", path) {
        Ok(()) => conn.execute_batch(SETTINGS).with_path(path)?,
        Err(Error::Empty(_)) => {
            conn.execute_batch(SETTINGS).with_path(path)?;
            create(&mut conn, indexes).with_path(path)?;
        }
        Err(error) => return Err(error),
    }
    conn.set_prepared_statement_cache_capacity(32);
    Ok(conn)
}

/// Checks that the file attached to `conn` as `name` is a hopwise file that this program can read. Returns [`Error::Empty`] if
/// it has no schema yet.
pub(crate) fn check(conn: &Connection, name: &str, path: &Path) -> Result<(), Error> {
    let objects = format!("SELECT count(*) FROM {name}.sqlite_schema");
    if query_number(conn, &objects).with_path(path)? == 0 {
        return Err(Error::Empty(path.to_owned()));
    }
    let application = query_number(conn, &format!("PRAGMA {name}.application_id")).with_path(path)?;
    if application != i64::from(APPLICATION_ID) {
        return Err(Error::Foreign(path.to_owned()));
    }
    let found = query_number(conn, &format!("PRAGMA {name}.user_version")).with_path(path)? as u32;
    if found > VERSION {
        return Err(Error::Newer {
            path: path.to_owned(),
            found,
            known: VERSION,
        });
    }
    Ok(())
}

fn query_number(conn: &Connection, sql: &str) -> rusqlite::Result<i64> {
    conn.query_row(sql, [], |row| row.get(0))
}

/// Checks that this program could write to the file at `path`.
pub(crate) fn probe(path: &Path) -> Result<(), Error> {
    check_access(path, true).with_path(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).with_path(path)?;
    check(&conn, "main", path)
}

/// Returns true if the file at `path` has an earlier schema version. Such files are only read: upgrading a large one takes too
/// long.
pub(crate) fn is_earlier(path: &Path) -> bool {
    if check_access(path, false).is_err() {
        return false;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let version = Connection::open_with_flags(path, flags).ok().and_then(|conn| {
        conn.busy_timeout(BUSY).ok()?;
        check(&conn, "main", path).ok()?;
        version(&conn, "main").ok()
    });
    version.is_some_and(|version| version < VERSION)
}

/// Returns true if the file attached to `conn` as `name` stores its commit order.
pub(crate) fn has_runs(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    Ok(version(conn, name)? >= RUNS)
}

/// The tables and columns that a file has, by its version.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Features {
    pub(crate) first_values: bool,
    pub(crate) recordings: bool,
    /// Summed rollups and path starts.
    pub(crate) spans: bool,
    /// Columnar blocks of events.
    pub(crate) blocks: bool,
    /// Tunnels of dropped packets.
    pub(crate) tunnels: bool,
    /// Latencies of the hops of reports, ns.
    pub(crate) latencies: bool,
}

/// Returns the features of the file that is attached to `conn` as `name`.
pub(crate) fn features(conn: &Connection, name: &str) -> rusqlite::Result<Features> {
    let version = version(conn, name)?;
    Ok(Features {
        first_values: version >= FIRST_VALUES,
        recordings: version >= RECORDINGS,
        spans: version >= SPANS,
        blocks: version >= BLOCKS,
        tunnels: has_tunnels(conn, name)?,
        latencies: has_column(conn, name, "report_data", "latency")?,
    })
}

/// Returns true if drops in the file attached as `name` have a tunnel: from version 8 on, and in files salvaged since.
pub(crate) fn has_tunnels(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    has_column(conn, name, "drop_data", "tunnel")
}

fn has_column(conn: &Connection, name: &str, table: &str, column: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?2, ?1) WHERE name = ?3";
    conn.query_row(sql, [name, table, column], |row| Ok(row.get::<_, i64>(0)? > 0))
}

fn version(conn: &Connection, name: &str) -> rusqlite::Result<u32> {
    conn.query_row(&format!("PRAGMA {name}.user_version"), [], |row| row.get(0))
}

/// Returns the statements that create the indexes on events.
pub(crate) fn event_indexes() -> impl Iterator<Item = &'static str> {
    SQL.lines().filter(|line| is_event_index(line))
}

/// Returns true if the file has the indexes on events, which are created together.
pub(crate) fn has_event_indexes(conn: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = 'event_flow'";
    conn.query_row(sql, [], |row| Ok(row.get::<_, i64>(0)? > 0))
}

/// Returns true if a line of the script creates an index on events. Each such statement is on one line.
fn is_event_index(line: &str) -> bool {
    line.starts_with("CREATE INDEX event_")
}

/// Returns the stored ID of a kind. Most events are changes, so their ID is the largest: then they are at the right edge of the
/// index on kinds, where SQLite inserts fastest.
pub(crate) fn kind_code(kind: Kind) -> i64 {
    match kind {
        Kind::Change => 255,
        other => other as i64,
    }
}

/// Creates the schema in one transaction, so that a file is empty or complete after a crash.
fn create(conn: &mut Connection, indexes: EventIndexes) -> rusqlite::Result<()> {
    let transaction = conn.transaction()?;
    match indexes {
        EventIndexes::Kept => transaction.execute_batch(SQL)?,
        EventIndexes::Later => {
            let without: Vec<&str> = SQL.lines().filter(|line| !is_event_index(line)).collect();
            transaction.execute_batch(&without.join("\n"))?;
        }
    }
    let kinds = Kind::ALL.map(|kind| (kind_code(kind), kind.name()));
    insert_names(&transaction, "kind_name", &kinds)?;
    let metrics = Metric::ALL.map(|metric| (metric as i64, metric.name()));
    insert_names(&transaction, "metric_name", &metrics)?;
    let bases = Basis::ALL.map(|basis| (basis as i64, basis.name()));
    insert_names(&transaction, "basis_name", &bases)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    conn.execute_batch(LOAD_STATISTICS)
}

fn insert_names(conn: &Connection, table: &str, names: &[(i64, &str)]) -> rusqlite::Result<()> {
    let mut insert = conn.prepare(&format!("INSERT INTO {table} VALUES (?1, ?2)"))?;
    for name in names {
        insert.execute(*name)?;
    }
    Ok(())
}

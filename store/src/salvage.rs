//! Salvages a damaged database file: copies all rows that SQLite can still read into a new file.
//!
//! Rows are read in key order. After a failure, reading resumes beyond the unreadable part, whose end is found with doubling
//! steps, and then continues backwards from there. The new file gets a schema version without precomputed sums: readers compute
//! these from the rows, so they are consistent, and no writer appends to it.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::config::{Error, WithPath as _};
use crate::files::{self, FileId};
use crate::join;
use crate::problems::name_of;
use crate::schema::{self, EventIndexes};

/// Size of a database header, bytes: SQLite file format, section 1.3.
const HEADER_BYTES: usize = 100;
/// Maximum number of failed reads per table.
const MAX_FAILURES: u32 = 10_000;
const CACHE_KIB: usize = 16 << 10;

/// The number of records of a file by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Records {
    /// The number of saved events.
    pub events: u64,
    /// The number of saved rollups.
    pub rollups: u64,
    /// The number of saved flows.
    pub flows: u64,
    /// Number of dropped packets.
    pub drops: u64,
    /// Number of loss records.
    pub losses: u64,
}

/// The result of salvaging a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Salvaged {
    /// Name of the new file, which queries use from now on; `None` if nothing could be read.
    pub file: Option<String>,
    /// New name of the damaged file.
    pub renamed: String,
    /// The records in the new file.
    pub records: Records,
}

/// Salvages the file at `aside`, whose former identity was `id`.
pub(crate) fn salvage(dir: &Path, id: FileId, aside: &Path) -> Result<Salvaged, Error> {
    let new = files::temp_file(&dir.join(id.to_string()));
    let repaired = files::temp_file(&dir.join(format!("{id}.header")));
    // Left over from an interrupted attempt.
    files::remove(&new).with_path(&new)?;
    files::remove(&repaired).with_path(&repaired)?;
    let published = fill_and_publish(dir, id, aside, &new, &repaired);
    files::remove(&repaired).with_path(&repaired)?;
    files::remove(&new).with_path(&new)?;
    let (records, file) = published?;
    let renamed = files::mark_salvaged(aside).with_path(aside)?;
    Ok(Salvaged {
        file,
        renamed: name_of(&renamed),
        records,
    })
}

/// Fills the new file and publishes it. Returns its record counts and its name, or no name if nothing could be read.
fn fill_and_publish(
    dir: &Path,
    id: FileId,
    aside: &Path,
    new: &Path,
    repaired: &Path,
) -> Result<(Records, Option<String>), Error> {
    let records = fill(new, aside, repaired)?;
    let file = if records == Records::default() {
        None
    } else {
        Some(publish(dir, id, new)?)
    };
    Ok((records, file))
}

/// Creates the new file with the owner and mode of the damaged one, fills it, and closes it once it is complete on disk.
fn fill(new: &Path, aside: &Path, repaired: &Path) -> Result<Records, Error> {
    drop(files::create_like(new, aside).with_path(new)?);
    drop(schema::open(new, EventIndexes::Kept)?);
    let source = match join::single(aside, CACHE_KIB) {
        Err(error) if error.is_damage() => {
            repair_header(aside, new, repaired).with_path(repaired)?;
            match join::single(repaired, CACHE_KIB) {
                Err(error) if error.is_damage() => None,
                opened => Some(opened?),
            }
        }
        opened => Some(opened?),
    };
    let mut out = schema::open(new, EventIndexes::Kept)?;
    let Some(source) = source else {
        return Ok(Records::default());
    };
    let records = copy_tables(&source, &mut out).with_path(new)?;
    // Closing would checkpoint too, but without reporting failure, and rows left in the WAL would not be published.
    let is_busy = out
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        .with_path(new)?;
    out.close().map_err(|(_, error)| error).with_path(new)?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let reason = Some("another program holds it".to_owned());
        return Err(Error::sqlite(new, rusqlite::Error::SqliteFailure(busy, reason)));
    }
    Ok(records)
}

/// Copies the readable rows of all tables in one transaction. Returns the record counts of the new file.
fn copy_tables(source: &Connection, out: &mut Connection) -> rusqlite::Result<Records> {
    let transaction = out.transaction()?;
    for (table, key) in TABLES {
        copy_table(source, &transaction, table, key)?;
    }
    let records = Records {
        events: count_rows(&transaction, "event_data")?,
        rollups: count_rows(&transaction, "rollup_data")?,
        flows: count_rows(&transaction, "flow_data")?,
        drops: count_rows(&transaction, "drop_data")?,
        losses: count_rows(&transaction, "loss_data")?,
    };
    transaction.execute_batch(REBUILD_META)?;
    transaction.pragma_update(None, "user_version", schema::WITHOUT_SUMS)?;
    transaction.commit()?;
    Ok(records)
}

fn count_rows(conn: &Connection, table: &str) -> rusqlite::Result<u64> {
    let sql = format!("SELECT count(*) FROM {table}");
    let count: i64 = conn.query_row(&sql, [], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Copies a damaged file and gives the copy the header of a new file: headers only differ in the page count.
fn repair_header(damaged: &Path, good: &Path, copy: &Path) -> std::io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    fs::File::open(good)?.read_exact_at(&mut header, 0)?;
    let mut file = files::create_like(copy, damaged)?;
    std::io::copy(&mut fs::File::open(damaged)?, &mut file)?;
    file.rewind()?;
    let pages = u32::try_from(file.metadata()?.len() / schema::PAGE_SIZE).unwrap_or(u32::MAX);
    header[28..32].copy_from_slice(&pages.to_be_bytes());
    // Clears the freelist; its pages are not reused.
    header[32..40].fill(0);
    file.write_all(&header)
}

/// Links the new file under the name of the next free part of its period. Returns the name.
fn publish(dir: &Path, id: FileId, new: &Path) -> Result<String, Error> {
    let mut part = id;
    loop {
        let path = dir.join(part.to_string());
        // Unlike a rename, a hard link fails if a writer has just created a file of this name.
        match fs::hard_link(new, &path) {
            Ok(()) => {
                // The directory entry must be on disk before the damaged file is renamed.
                let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
                return synced.map(|()| part.to_string()).with_path(dir);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => part = part.next_part(),
            Err(error) => return Err(Error::io(&path, error)),
        }
    }
}

/// Copies the readable rows of a table.
fn copy_table(source: &Connection, out: &Connection, table: &str, key: &str) -> rusqlite::Result<()> {
    let Some(mut copy) = TableCopy::new(source, out, table, key)? else {
        return Ok(());
    };
    let mut from = 0;
    let mut failures = 0;
    loop {
        let last = match copy.rows(Direction::Up, [from, i64::MAX])? {
            CopyOutcome::Complete => return Ok(()),
            CopyOutcome::FailedAfter(last) => last.unwrap_or(from),
        };
        // Find the end of the unreadable part with doubling steps.
        let mut step = 1_i64;
        loop {
            failures += 1;
            if step == i64::MAX || failures > MAX_FAILURES {
                return Ok(());
            }
            from = last.saturating_add(step);
            step = step.saturating_mul(2);
            if copy.can_read(from)? {
                break;
            }
        }
        copy.rows(Direction::Down, [last, from])?;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Outcome of reading a key range.
enum CopyOutcome {
    /// All rows were read.
    Complete,
    /// A row could not be read. Holds the key of the last row before it.
    FailedAfter(Option<i64>),
}

/// Prepared statements that copy rows of a table between two keys, in both directions.
struct TableCopy<'c> {
    up: rusqlite::Statement<'c>,
    down: rusqlite::Statement<'c>,
    insert: rusqlite::Statement<'c>,
    columns: usize,
    key: usize,
}

impl<'c> TableCopy<'c> {
    /// Returns `None` if the source has no such table.
    fn new(
        source: &'c Connection,
        out: &'c Connection,
        table: &str,
        key: &str,
    ) -> rusqlite::Result<Option<Self>> {
        let target_columns = columns(out, "main", table)?;
        let source_columns = columns(source, "f0", table).unwrap_or_default();
        let common_columns: Vec<&str> = target_columns
            .iter()
            .filter(|name| source_columns.contains(name))
            .map(String::as_str)
            .collect();
        let Some(key_index) = common_columns.iter().position(|name| *name == key) else {
            return Ok(None);
        };
        let column_list = common_columns.join(", ");
        let select =
            format!("SELECT {column_list} FROM f0.{table} WHERE {key} >= ?1 AND {key} <= ?2 ORDER BY {key}");
        let parameters = vec!["?"; common_columns.len()].join(", ");
        Ok(Some(Self {
            up: source.prepare(&format!("{select} ASC"))?,
            down: source.prepare(&format!("{select} DESC"))?,
            insert: out.prepare(&format!(
                "INSERT OR IGNORE INTO {table} ({column_list}) VALUES ({parameters})"
            ))?,
            columns: common_columns.len(),
            key: key_index,
        }))
    }

    /// Copies the rows between two keys, until one cannot be read.
    fn rows(&mut self, direction: Direction, keys: [i64; 2]) -> rusqlite::Result<CopyOutcome> {
        let Self {
            up,
            down,
            insert,
            columns,
            key,
        } = self;
        let select = if direction == Direction::Up { up } else { down };
        let mut last = None;
        let mut rows = match select.query(keys) {
            Ok(rows) => rows,
            Err(_) => return Ok(CopyOutcome::FailedAfter(last)),
        };
        loop {
            let row = match rows.next() {
                Ok(None) => return Ok(CopyOutcome::Complete),
                Ok(Some(row)) => row,
                Err(_) => return Ok(CopyOutcome::FailedAfter(last)),
            };
            let values: Vec<Value> = (0..*columns).filter_map(|i| row.get(i).ok()).collect();
            if let Some(Value::Integer(key)) = values.get(*key) {
                last = Some(*key);
            }
            if values.len() == *columns {
                insert
                    .execute(params_from_iter(values))
                    .map(drop)
                    .or_else(without_constraint)?;
            }
        }
    }

    /// Returns true if the first row from a key on can be read, or there is none.
    fn can_read(&mut self, from: i64) -> rusqlite::Result<bool> {
        let Ok(mut rows) = self.up.query([from, i64::MAX]) else {
            return Ok(false);
        };
        Ok(rows.next().is_ok())
    }
}

/// Ignores a constraint violation: the row is damaged and left out.
fn without_constraint(error: rusqlite::Error) -> rusqlite::Result<()> {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation | rusqlite::ErrorCode::TypeMismatch) => Ok(()),
        _ => Err(error),
    }
}

fn columns(conn: &Connection, schema: &str, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut select = conn.prepare("SELECT name FROM pragma_table_info(?1, ?2)")?;
    select.query_map([table, schema], |row| row.get(0))?.collect()
}

/// The source tables (not derived from others), each with the first column of its key.
const TABLES: [(&str, &str); 15] = [
    ("kind_name", "id"),
    ("metric_name", "id"),
    ("basis_name", "id"),
    ("flow_key", "id"),
    ("path_text", "id"),
    ("rule_text", "id"),
    ("event_data", "ts"),
    ("first_data", "ts"),
    ("rollup_data", "ts"),
    ("flow_data", "flow"),
    ("drop_data", "ts"),
    ("loss_data", "ts"),
    ("report_data", "ts"),
    ("recording_data", "ts"),
    ("run_data", "stream"),
];

/// Recomputes the table `meta` from the rows.
const REBUILD_META: &str = "
REPLACE INTO meta SELECT 'events', count(*) FROM event_data;
REPLACE INTO meta SELECT 'rollups', count(*) FROM rollup_data;
REPLACE INTO meta SELECT 'flows', ifnull(max(id), 0) FROM flow_key;
REPLACE INTO meta SELECT 'drops', count(*) FROM drop_data;
REPLACE INTO meta SELECT 'losses', count(*) FROM loss_data;
CREATE TEMP TABLE salvaged_times AS
  SELECT min(ts) AS first, max(ts) AS last FROM event_data
  UNION ALL SELECT min(ts), max(ts) FROM rollup_data
  UNION ALL SELECT min(ts), max(ts) FROM drop_data
  UNION ALL SELECT min(ts), max(ts) FROM loss_data
  UNION ALL SELECT min(ts), max(ts) FROM report_data
  UNION ALL SELECT min(ts), max(ts) FROM recording_data
  UNION ALL SELECT min(last_seen), max(last_seen) FROM flow_data;
REPLACE INTO meta SELECT 'from', min(first) FROM salvaged_times;
REPLACE INTO meta SELECT 'to', max(last) FROM salvaged_times;
DROP TABLE salvaged_times;
";

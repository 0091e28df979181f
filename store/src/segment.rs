//! Writer of one store file: inserts the rows of batches in transactions, and checkpoints the WAL.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use collector::event::{Drop, Event, Nanos, Stream};
use collector::flight::Recording;
use collector::{Batch, Loss, Rollup};
use rusqlite::{CachedStatement, Connection, Statement, params};
use wire::{FlowKey, Hop};

use crate::config::{Error, WithPath as _};
use crate::files::{self, FileId};
use crate::identity::{FileChange, FileIdentity};
use crate::intern::Names;
use crate::numbering::{Numbering, Runs, countable};
use crate::reports::ReportRow;
use crate::rows::int;
use crate::schema::{self, EventIndexes, kind_code};
use crate::summary::{self, EventNumbers, Summary};

const REPORT_COLUMNS: usize = 28;
/// Rows per statement: 32 are as fast as 100, 8 are not.
const ROWS_PER_INSERT: usize = 32;
/// Rows per chunk, as a power of two. 65,536 entries of a flow index take one megabyte, so inserts stay in the CPU cache (2^20
/// costs a third more, measured). A query over 20 M rows needs 305 look-ups of about 5 µs.
const CHUNK_BITS: u32 = 16;
const UPSERT_FLOW: &str = "
INSERT INTO flow_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (flow) DO UPDATE SET
  path = ifnull(excluded.path, path), flow_latency = excluded.flow_latency, basis = excluded.basis,
  first_seen = min(first_seen, excluded.first_seen), last_seen = excluded.last_seen, reports = excluded.reports,
  number = excluded.number";

/// The file that is being written.
#[derive(Debug)]
pub(crate) struct Segment {
    conn: Connection,
    path: PathBuf,
    id: FileId,
    identity: Option<FileIdentity>,
    /// The WAL and its shared-memory index.
    log_files: [Option<FileIdentity>; 2],
    names: Names,
    meta: FileMeta,
    summary: Summary,
    /// The file has the indexes on events.
    is_indexed: bool,
    /// Records in the open transaction; 0 if there is none.
    uncommitted: u64,
    /// Records committed since the WAL was last completely checkpointed.
    records_in_log: u64,
    /// The numbering after the last commit.
    numbering: Numbering,
}

/// State of the WAL, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Log {
    /// Size of the pages in the WAL.
    pub(crate) size: u64,
    /// Size of those pages that are not checkpointed yet.
    pub(crate) uncheckpointed: u64,
}

/// Contents of the `meta` table, written with each transaction.
#[derive(Default, Debug)]
struct FileMeta {
    /// Next sequence number, one count for all tables.
    seq: i64,
    from: Option<i64>,
    to: Option<i64>,
    events: i64,
    rollups: i64,
    drops: i64,
    losses: i64,
    /// The runs of the open transaction.
    runs: Runs,
}

impl Segment {
    /// Opens the file, or creates it with `indexes`. Its next records have the numbers of `numbering`.
    pub(crate) fn open(
        dir: &Path,
        id: FileId,
        indexes: EventIndexes,
        numbering: Numbering,
    ) -> Result<Self, Error> {
        let path = dir.join(id.to_string());
        let conn = schema::open(&path, indexes)?;
        let names = Names::open(&conn).with_path(&path)?;
        let meta = FileMeta::read(&conn).with_path(&path)?;
        let is_indexed = schema::has_event_indexes(&conn).with_path(&path)?;
        Ok(Self {
            identity: FileIdentity::read(&path),
            // SQLite has created them when the file was read.
            log_files: ["-wal", "-shm"].map(|suffix| FileIdentity::read(&files::with_suffix(&path, suffix))),
            conn,
            path,
            id,
            names,
            meta,
            summary: Summary::default(),
            is_indexed,
            uncommitted: 0,
            records_in_log: 0,
            numbering,
        })
    }

    /// Returns the file's identity when it was opened, or `None` if it was removed at once.
    pub(crate) fn identity(&self) -> Option<&FileIdentity> {
        self.identity.as_ref()
    }

    /// Returns the change if the file was removed or replaced since it was opened.
    pub(crate) fn change(&self) -> Option<FileChange> {
        self.identity
            .as_ref()
            .map_or(Some(FileChange::Removed), FileIdentity::change)
    }

    /// Returns the path of the WAL or its index if it was removed or replaced. Its contents are usable while the file is open,
    /// but other programs, and this one after a crash, cannot find them.
    pub(crate) fn moved_log(&self) -> Option<&Path> {
        let moved = self.log_files.iter().flatten().find(|log| log.change().is_some());
        moved.map(|log| &*log.path)
    }

    /// Closes a file that was removed or replaced. Deletes its WAL: SQLite would apply it to the file that is now at the path.
    /// A file that was only moved is checkpointed first.
    pub(crate) fn abandon(mut self) {
        if self.change() == Some(FileChange::Removed) {
            // If the checkpoint fails, the moved file lacks these records. They are counted as lost in any case.
            let _ = self.checkpoint(true);
        }
        let Self { conn, log_files, .. } = self;
        drop(conn);
        for log in log_files.iter().flatten().filter(|log| log.is_in_place()) {
            // If this fails, opening the other file reports the problem.
            let _ = fs::remove_file(&log.path);
        }
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the file has the indexes on events; otherwise they are built when it is complete.
    pub(crate) fn is_indexed(&self) -> bool {
        self.is_indexed
    }

    /// Returns the number of events in the file, including the open transaction.
    pub(crate) fn events_in_file(&self) -> u64 {
        self.meta.events.unsigned_abs()
    }

    /// Returns the numbering without the open transaction.
    pub(crate) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Returns the number of committed records that may be only in the WAL.
    pub(crate) fn records_in_log(&self) -> u64 {
        self.records_in_log
    }

    /// Returns the number of records in the open transaction.
    pub(crate) fn uncommitted(&self) -> u64 {
        self.uncommitted
    }

    /// Clears the cached rule IDs after a change of the rule set.
    pub(crate) fn forget_rules(&mut self) {
        self.names.forget_rules();
    }

    /// Writes a batch in the open transaction, or begins one. After an error the transaction must be abandoned by dropping the
    /// segment.
    pub(crate) fn write(&mut self, batch: &Batch, rules: &[String]) -> rusqlite::Result<()> {
        self.begin(batch.len())?;
        self.events(batch, rules)?;
        self.rollups(batch.rollups())?;
        self.flows(batch)?;
        self.drops(batch.drops())?;
        self.losses(batch.losses())
    }

    /// Begins a transaction if none is open, and adds `records` to its count.
    fn begin(&mut self, records: usize) -> rusqlite::Result<()> {
        if self.uncommitted == 0 {
            self.conn.execute_batch("BEGIN IMMEDIATE")?;
        }
        self.uncommitted += records as u64;
        Ok(())
    }

    /// Writes rows of the optional table of reports, like [`Segment::write`]. A report counts as one record, whatever its
    /// number of hops.
    pub(crate) fn write_reports(&mut self, reports: &[ReportRow]) -> rusqlite::Result<()> {
        self.begin(reports.len())?;
        let Self {
            conn, names, meta, ..
        } = self;
        let mut insert = conn.prepare_cached(&format!(
            "INSERT INTO report_data VALUES ({})",
            vec!["?"; REPORT_COLUMNS].join(", ")
        ))?;
        for report in reports {
            let flow = flow_number(names, conn, report.flow.as_ref())?;
            let path = names.path(conn, &report.path())?;
            bind_report(&mut insert, report, flow, path)?;
            // A report without hops gets one row with NULL hop columns.
            for i in 0..report.hops.len().max(1) {
                let seq = meta.next_seq(report.ts);
                insert.raw_bind_parameter(2, seq)?;
                insert.raw_bind_parameter(3, seq >> CHUNK_BITS)?;
                let latency = report.latencies.get(i).copied().flatten();
                bind_hop(&mut insert, i, report.hops.get(i), latency)?;
                insert.raw_execute()?;
            }
        }
        Ok(())
    }

    /// Writes recordings of the flight recorder, like [`Segment::write`].
    pub(crate) fn write_recordings(&mut self, recordings: &[Recording]) -> rusqlite::Result<()> {
        self.begin(recordings.len())?;
        let Self {
            conn, names, meta, ..
        } = self;
        let mut insert = Insert::<16>::new(conn, "recording_data")?;
        for recording in recordings {
            let event = &recording.trigger.event;
            let flow = flow_number(names, conn, event.flow.as_ref())?;
            let rule = match &recording.trigger.rule {
                Some(rule) => Some(Names::rule_named(conn, rule)?),
                None => None,
            };
            let seq = meta.next_seq(event.ts);
            insert.row([
                Some(int(event.ts)),
                Some(seq),
                Some(int(recording.from)),
                Some(int(recording.to)),
                Some(kind_code(event.kind)),
                event.metric.map(|metric| metric as i64),
                flow,
                event.node.map(i64::from),
                event.interface.map(i64::from),
                event.queue.map(i64::from),
                event.value.map(int),
                rule,
                Some(event.id as i64),
                Some(int(recording.reports)),
                Some(int(recording.every)),
                Some(recording.late.into()),
            ])?;
        }
        insert.finish()
    }

    /// Commits the open transaction, with its counts, sums and runs. Returns its number of records.
    pub(crate) fn commit(&mut self) -> rusqlite::Result<u64> {
        if self.uncommitted == 0 {
            return Ok(0);
        }
        self.meta.write(&self.conn, self.names.flow_count())?;
        self.summary.write(&self.conn)?;
        let numbering = self.meta.runs.write(&self.conn, self.numbering)?;
        self.conn.execute_batch("COMMIT")?;
        self.numbering = numbering;
        self.records_in_log += self.uncommitted;
        Ok(std::mem::take(&mut self.uncommitted))
    }

    /// Returns how far the WAL reaches and how much of it is not checkpointed yet. The size of the WAL file shows neither,
    /// because SQLite overwrites it from the start after a checkpoint.
    ///
    /// A checkpoint that does nothing asks SQLite. Reading the WAL index directly would be shorter and wrong: closing a file
    /// releases every POSIX lock of the process on it, including SQLite's, and the next process that opens the store would
    /// consider the index abandoned and truncate it while it is in use.
    pub(crate) fn log(&self) -> Log {
        let Ok([size, done]) = self.query_checkpoint("NOOP") else {
            // Unknown: assume that nothing is checkpointed.
            let bytes = self.log_bytes();
            return Log {
                size: bytes,
                uncheckpointed: bytes,
            };
        };
        let size = size.max(0).cast_unsigned();
        let done = done.max(0).cast_unsigned();
        Log {
            size: size * schema::PAGE_SIZE,
            uncheckpointed: size.saturating_sub(done) * schema::PAGE_SIZE,
        }
    }

    /// Runs a checkpoint in this mode. Returns the number of pages in the WAL, and how many of them are checkpointed.
    fn query_checkpoint(&self, mode: &str) -> rusqlite::Result<[i64; 2]> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        self.conn
            .query_row(&sql, [], |row| Ok([row.get(1)?, row.get(2)?]))
    }

    fn log_bytes(&self) -> u64 {
        fs::metadata(files::with_suffix(&self.path, "-wal")).map_or(0, |log| log.len())
    }

    /// Returns the size of the file and its WAL, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.log_bytes() + fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Checkpoints the WAL. With `wait`, waits shortly for readers so that the WAL restarts from its beginning. Returns true if
    /// the whole WAL was copied; readers can prevent that.
    pub(crate) fn checkpoint(&mut self, wait: bool) -> rusqlite::Result<bool> {
        self.conn.busy_timeout(schema::BUSY / 10)?;
        let copied = self.query_checkpoint(if wait { "RESTART" } else { "PASSIVE" });
        self.conn.busy_timeout(schema::BUSY)?;
        let [size, done] = copied?;
        // Negative values mean that another process is running a checkpoint.
        let is_whole = size >= 0 && size == done;
        if is_whole {
            self.records_in_log = 0;
        }
        Ok(is_whole)
    }

    /// Limits the file to its present size.
    #[cfg(test)]
    pub(crate) fn forbid_growth(&self) {
        self.conn
            .query_row("PRAGMA max_page_count = 1", [], |_| Ok(()))
            .unwrap();
    }

    fn events(&mut self, batch: &Batch, rules: &[String]) -> rusqlite::Result<()> {
        let Self {
            conn,
            names,
            meta,
            summary,
            is_indexed,
            ..
        } = self;
        let mut insert = Insert::<17>::new(conn, "event_data")?;
        let mut insert_first = conn.prepare_cached("INSERT INTO first_data VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for (event, path, first) in batch.events_with_first_values() {
            let flow = flow_number(names, conn, event.flow.as_ref())?;
            let rule = match event.rule {
                Some(index) => Some(names.rule(conn, rules, index)?),
                None => None,
            };
            let path = names.path(conn, path)?;
            let numbers = EventNumbers { flow, rule, path };
            let ts = int(event.ts);
            let seq = meta.next(Stream::Events, event.ts);
            // A sorted index needs no chunks, and with a single chunk a query searches it once.
            let chunk = if *is_indexed { seq >> CHUNK_BITS } else { 0 };
            insert.row(event_row(event, seq, chunk, numbers))?;
            summary.event(conn, event, ts, first, numbers)?;
            if let (Some(flow), Some(path)) = (flow, path)
                && summary::sets_path(event)
            {
                summary.path(conn, flow, path, ts)?;
            }
            if let Some(first) = first {
                let latencies = names.latencies(first.hop_latencies);
                let latency = first.flow_latency.map(int);
                insert_first.execute(params![ts, seq, latency, first.basis as i64, latencies])?;
            }
            meta.events += 1;
        }
        insert.finish()
    }

    fn rollups(&mut self, rollups: &[Rollup]) -> rusqlite::Result<()> {
        if rollups.is_empty() {
            return Ok(());
        }
        let Self {
            conn,
            names,
            meta,
            summary,
            ..
        } = self;
        let mut insert = Insert::<15>::new(conn, "rollup_data")?;
        for rollup in rollups {
            let flow = flow_number(names, conn, rollup.flow.as_ref())?;
            let seq = meta.next(Stream::Rollups, rollup.ts);
            insert.row([
                Some(int(rollup.ts)),
                Some(seq),
                Some(seq >> CHUNK_BITS),
                Some(rollup.interval.into()),
                Some(rollup.metric as i64),
                flow,
                rollup.node.map(i64::from),
                rollup.interface.map(i64::from),
                rollup.queue.map(i64::from),
                Some(int(rollup.count)),
                Some(int(rollup.min)),
                Some(int(rollup.max)),
                Some(int(rollup.sum)),
                rollup.p50.map(int),
                rollup.p99.map(int),
            ])?;
            meta.rollups += 1;
            summary.rollup(conn, rollup, flow)?;
        }
        insert.finish()
    }

    fn flows(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        if batch.flows().len() == 0 {
            return Ok(());
        }
        let Self {
            conn,
            names,
            meta,
            summary,
            numbering,
            ..
        } = self;
        let mut upsert = conn.prepare_cached(UPSERT_FLOW)?;
        for (row, path) in batch.flows() {
            let flow = names.flow(conn, &row.flow)?;
            let path = names.path(conn, path)?;
            let number = numbering.next[Stream::Flows as usize] + meta.runs.count(Stream::Flows);
            meta.next(Stream::Flows, row.last_seen);
            upsert.execute(params![
                flow,
                path,
                row.flow_latency.map(int),
                row.basis as i64,
                int(row.first_seen),
                int(row.last_seen),
                int(row.reports),
                number
            ])?;
            if let Some(path) = path {
                summary.path(conn, flow, path, int(row.last_seen))?;
            }
        }
        Ok(())
    }

    fn drops(&mut self, drops: &[Drop]) -> rusqlite::Result<()> {
        if drops.is_empty() {
            return Ok(());
        }
        let Self {
            conn, names, meta, ..
        } = self;
        let mut insert = Insert::<11>::new(conn, "drop_data")?;
        for drop in drops {
            let flow = flow_number(names, conn, drop.flow.as_ref())?;
            let tunnel = flow_number(names, conn, drop.tunnel.as_ref())?;
            let seq = meta.next(Stream::Drops, drop.ts);
            insert.row([
                Some(int(drop.ts)),
                Some(seq),
                Some(seq >> CHUNK_BITS),
                Some(drop.id as i64),
                flow,
                drop.node.map(i64::from),
                drop.ingress_if.map(i64::from),
                drop.egress_if.map(i64::from),
                drop.queue.map(i64::from),
                drop.reason.map(i64::from),
                tunnel,
            ])?;
            meta.drops += 1;
        }
        insert.finish()
    }

    fn losses(&mut self, losses: &[Loss]) -> rusqlite::Result<()> {
        if losses.is_empty() {
            return Ok(());
        }
        let Self { conn, meta, .. } = self;
        let mut insert =
            conn.prepare_cached("INSERT INTO loss_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
        for loss in losses {
            insert.execute(params![
                int(loss.ts),
                meta.next(Stream::Losses, loss.ts),
                loss.node,
                address(loss.source).to_string(),
                loss.hw_id,
                int(loss.lost),
                int(loss.reordered),
                int(loss.duplicated)
            ])?;
            meta.losses += 1;
        }
        Ok(())
    }
}

impl FileMeta {
    /// Returns the next sequence number, for a record of `stream` at time `ts`, and adds the record to its run.
    #[inline]
    fn next(&mut self, stream: Stream, ts: Nanos) -> i64 {
        let seq = self.next_seq(ts);
        self.runs.add(stream, int(ts), seq);
        seq
    }

    /// Returns the next sequence number, for a record at time `ts`.
    #[inline]
    fn next_seq(&mut self, ts: Nanos) -> i64 {
        self.extend_time_range(ts);
        self.seq += 1;
        self.seq
    }

    #[inline]
    fn extend_time_range(&mut self, ts: Nanos) {
        let ts = int(ts);
        self.from = Some(self.from.map_or(ts, |from| from.min(ts)));
        self.to = Some(self.to.map_or(ts, |to| to.max(ts)));
    }

    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut select = conn.prepare("SELECT value FROM meta WHERE name = ?1")?;
        Ok(Self {
            seq: read_count(&mut select, "seq")?,
            from: read_meta(&mut select, "from")?,
            to: read_meta(&mut select, "to")?,
            events: read_count(&mut select, "events")?,
            rollups: read_count(&mut select, "rollups")?,
            drops: read_count(&mut select, "drops")?,
            losses: read_count(&mut select, "losses")?,
            runs: Runs::default(),
        })
    }

    fn write(&self, conn: &Connection, flows: i64) -> rusqlite::Result<()> {
        let mut replace = conn.prepare_cached("REPLACE INTO meta VALUES (?1, ?2)")?;
        let values = [
            ("seq", Some(self.seq)),
            ("from", self.from),
            ("to", self.to),
            ("events", Some(self.events)),
            ("rollups", Some(self.rollups)),
            ("flows", Some(flows)),
            ("drops", Some(self.drops)),
            ("losses", Some(self.losses)),
        ];
        values
            .iter()
            .try_for_each(|value| replace.execute(*value).map(|_| ()))
    }
}

fn read_meta(select: &mut Statement<'_>, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut rows = select.query([name])?;
    rows.next()?.map_or(Ok(None), |row| row.get(0))
}

fn read_count(select: &mut Statement<'_>, name: &str) -> rusqlite::Result<i64> {
    countable(read_meta(select, name)?.unwrap_or(0), name)
}

/// Inserts rows into a table of integers, [`ROWS_PER_INSERT`] per statement. A statement opens the table and its indexes once,
/// and SQLite stays at the right edge of growing b-trees (a quarter less time per event, measured). `OR FAIL` avoids SQLite's
/// undo log per statement; after any error the whole transaction is abandoned.
///
/// Parameters stay bound between executions, so only values that differ from the previous row at the same position are bound
/// again.
pub(crate) struct Insert<'c, const N: usize> {
    /// Statement for [`ROWS_PER_INSERT`] rows.
    batch: CachedStatement<'c>,
    /// Statement for a single row.
    single: CachedStatement<'c>,
    /// Values bound to `batch`, by row position.
    bound: Vec<Option<[Option<i64>; N]>>,
    /// Rows that are not inserted yet.
    pending: Vec<[Option<i64>; N]>,
}

impl<'c, const N: usize> Insert<'c, N> {
    pub(crate) fn new(conn: &'c Connection, table: &str) -> rusqlite::Result<Self> {
        let row = format!("({})", vec!["?"; N].join(", "));
        let batch = format!(
            "INSERT OR FAIL INTO {table} VALUES {}",
            vec![row.as_str(); ROWS_PER_INSERT].join(", ")
        );
        Ok(Self {
            batch: conn.prepare_cached(&batch)?,
            single: conn.prepare_cached(&format!("INSERT INTO {table} VALUES {row}"))?,
            bound: vec![None; ROWS_PER_INSERT],
            pending: Vec::with_capacity(ROWS_PER_INSERT),
        })
    }

    #[inline]
    pub(crate) fn row(&mut self, row: [Option<i64>; N]) -> rusqlite::Result<()> {
        let position = self.pending.len();
        for (i, value) in row.iter().enumerate() {
            if self.bound[position]
                .as_ref()
                .is_none_or(|bound| bound[i] != *value)
            {
                self.batch.raw_bind_parameter(position * N + i + 1, *value)?;
            }
        }
        self.bound[position] = Some(row);
        self.pending.push(row);
        if self.pending.len() == ROWS_PER_INSERT {
            self.batch.raw_execute()?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Inserts the remaining rows, which do not fill the large statement, one by one.
    pub(crate) fn finish(mut self) -> rusqlite::Result<()> {
        for row in &self.pending {
            for (i, value) in row.iter().enumerate() {
                self.single.raw_bind_parameter(i + 1, *value)?;
            }
            self.single.raw_execute()?;
        }
        Ok(())
    }
}

/// Binds the columns that all rows of a report share. Columns 2 and 3 (sequence number and chunk) differ per hop.
fn bind_report(
    insert: &mut CachedStatement<'_>,
    report: &ReportRow,
    flow: Option<i64>,
    path: Option<i64>,
) -> rusqlite::Result<()> {
    insert.raw_bind_parameter(1, int(report.ts))?;
    insert.raw_bind_parameter(4, address(report.source).to_string())?;
    insert.raw_bind_parameter(5, report.version)?;
    insert.raw_bind_parameter(6, report.node)?;
    insert.raw_bind_parameter(7, report.hw_id)?;
    insert.raw_bind_parameter(8, report.seq)?;
    insert.raw_bind_parameter(9, report.flag_names())?;
    insert.raw_bind_parameter(10, report.report_type)?;
    insert.raw_bind_parameter(11, report.drop_reason)?;
    insert.raw_bind_parameter(12, flow)?;
    insert.raw_bind_parameter(13, path)
}

fn bind_hop(
    insert: &mut CachedStatement<'_>,
    i: usize,
    hop: Option<&Hop>,
    latency: Option<Nanos>,
) -> rusqlite::Result<()> {
    let number = hop.map(|_| i as i64);
    let hop = hop.copied().unwrap_or_default();
    let values = [
        number,
        hop.node_id.map(i64::from),
        hop.ingress_if.map(i64::from),
        hop.egress_if.map(i64::from),
        hop.hop_latency.map(i64::from),
        hop.queue_id.map(i64::from),
        hop.queue_occupancy.map(i64::from),
        hop.ingress_ts.map(int),
        hop.egress_ts.map(int),
        hop.l2_ingress_if.map(i64::from),
        hop.l2_egress_if.map(i64::from),
        hop.tx_utilization.map(i64::from),
        hop.buffer_id.map(i64::from),
        hop.buffer_occupancy.map(i64::from),
        latency.map(int),
    ];
    // The hop's columns are the last ones.
    let first = REPORT_COLUMNS - values.len() + 1;
    values
        .iter()
        .enumerate()
        .try_for_each(|(i, value)| insert.raw_bind_parameter(first + i, *value))
}

/// Returns a row of `event_data`, in the order of its columns.
#[inline]
fn event_row(event: &Event, seq: i64, chunk: i64, numbers: EventNumbers) -> [Option<i64>; 17] {
    let EventNumbers { flow, rule, path } = numbers;
    [
        Some(int(event.ts)),
        Some(seq),
        Some(chunk),
        Some(event.id as i64),
        Some(kind_code(event.kind)),
        event.metric.map(|metric| metric as i64),
        flow,
        event.node.map(i64::from),
        event.interface.map(i64::from),
        event.queue.map(i64::from),
        event.value.map(int),
        event.previous.map(int),
        event.threshold.map(int),
        rule,
        path,
        event.reason.map(i64::from),
        Some(event.basis as i64),
    ]
}

#[inline]
fn flow_number(
    names: &mut Names,
    conn: &Connection,
    flow: Option<&FlowKey>,
) -> rusqlite::Result<Option<i64>> {
    flow.map(|flow| names.flow(conn, flow)).transpose()
}

fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// Returns the newest time in a batch, which selects its file, or `None` for an empty batch.
pub(crate) fn newest(batch: &Batch) -> Option<Nanos> {
    let events = batch.events().map(|(event, _)| event.ts);
    let flows = batch.flows().map(|(row, _)| row.last_seen);
    let others = batch.rollups().iter().map(|rollup| rollup.ts);
    let drops = batch.drops().iter().map(|drop| drop.ts);
    let losses = batch.losses().iter().map(|loss| loss.ts);
    events.chain(flows).chain(others).chain(drops).chain(losses).max()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Period;
    use testkit::records::{Dir, START, changes};

    /// Locks that this process holds on `path`: kind and range. While others are taken and released on the machine, the kernel's list can miss
    /// some, or have one twice.
    #[cfg(target_os = "linux")]
    fn locks(path: &Path) -> BTreeSet<String> {
        (0..50).flat_map(|_| listed_locks(path)).collect()
    }

    #[cfg(target_os = "linux")]
    fn listed_locks(path: &Path) -> Vec<String> {
        use std::os::unix::fs::MetadataExt as _;
        let (owner, inode) = (
            std::process::id().to_string(),
            format!(":{}", fs::metadata(path).unwrap().ino()),
        );
        let listed = fs::read_to_string("/proc/locks").unwrap();
        let ours = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| ["READ", "WRITE"].contains(word))?;
            match words[at..] {
                [kind, of, file, first, last] if of == owner && file.ends_with(&inode) => {
                    Some(format!("{kind} {first} {last}"))
                }
                _ => None,
            }
        };
        listed.lines().filter_map(ours).collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn looking_at_the_log_leaves_sqlites_locks_alone() {
        let dir = Dir::new("locks");
        let mut segment = Segment::open(
            dir.path(),
            FileId::containing(START, Period::Day),
            EventIndexes::Kept,
            Numbering::new(START, 0),
        )
        .unwrap();
        segment.write(&changes(START, 100, 10), &[]).unwrap();
        segment.commit().unwrap();
        let index = files::with_suffix(segment.path(), "-shm");
        let held = locks(&index);
        assert!(!held.is_empty(), "an open file has a lock on its log's index");
        let log = segment.log();
        assert!(log.size > 0 && log.uncheckpointed == log.size, "{log:?}");
        assert_eq!(locks(&index), held);
        segment.checkpoint(false).unwrap();
        assert_eq!(
            segment.log(),
            Log {
                size: log.size,
                uncheckpointed: 0
            }
        );
    }
}

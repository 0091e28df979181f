//! Reader of a store's change stream: returns the records of each kind in commit order, each one once, for exporters
//! that keep a cursor.
//!
//! The writer numbers the records of each [`Stream`] consecutively and stores *runs* (table `run_data`): a range of
//! these numbers with the ranges of times and sequence numbers under which the rows are found. [`Follower::read`] finds
//! the run that holds a position and reads its rows. Flows differ: only the latest state of each flow is stored, and
//! its row has the number itself.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::vec;

use collector::event::{Basis, Drop, Kind, Loss, Rollup, Stream};
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::config::{Error, WithPath as _};
use crate::files::{self, FileId};
use crate::identity::FileIdentity;
use crate::intern::{parse_flow, parse_path};
use crate::join;
use crate::numbering::{MAX_RUN_RECORDS, Numbering};
use crate::rows::{
    EventNames, EventRow, FirstRow, FlowState, basis_named, drop_at, event_at, flow_at, int, kind_named,
    loss, optional, rollup_at,
};
use crate::schema;

/// Schema name under which a file is attached.
const FILE: &str = "f0";
/// SQLite page cache. Small, because runs are read in order and pages are not read again.
const CACHE_KIB: usize = 1 << 10;
/// Maximum number of open files.
const MAX_OPEN_FILES: usize = 4;
/// Maximum cached values of each kind.
const CACHE_SLOTS: usize = 1 << 16;
/// Upper bound of the IDs of enumerations. Larger IDs are treated as unknown.
const MAX_ENUM_ID: u16 = 1 << 10;

/// Position between two records of a stream.
///
/// If the store's files are lost, numbering restarts with a larger base, so a position never refers to other records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct StreamPosition {
    /// Base of the numbering. Later numberings have larger bases.
    pub base: u64,
    /// Number of records before this position in this numbering.
    pub row: u64,
}

impl StreamPosition {
    fn number(self) -> i64 {
        int(self.base.saturating_add(self.row))
    }

    fn from_number(number: i64, base: i64) -> Self {
        Self {
            base: base.max(0).cast_unsigned(),
            row: number.saturating_sub(base).max(0).cast_unsigned(),
        }
    }
}

/// A record read from the store.
#[derive(Clone, PartialEq, Debug)]
pub enum StoredRecord {
    /// An event with its rule, its path and the first values of its flow.
    Event(EventRow),
    /// A rollup, with its number in the stream, which is unique in this store.
    Rollup(Rollup, u64),
    /// The latest state of a flow.
    Flow(FlowState),
    /// A report of a dropped packet.
    Drop(Drop),
    /// Reports that were lost, with the number of the record in the stream, which is unique in this store.
    Loss(Loss, u64),
}

/// Records between two positions.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// The records in commit order. Of each flow, only the latest state is included.
    pub records: Vec<StoredRecord>,
    /// The position at which to read on.
    pub end: StreamPosition,
    /// Records that were deleted, or lost with a damaged file, before they were read.
    pub expired: u64,
    /// True if the numbering restarted, so the number of records lost before the restart is unknown.
    pub restarted: bool,
    /// True if all committed records before the end were read.
    pub is_last: bool,
}

impl Chunk {
    /// Moves the end to `to`, and counts the records skipped as expired. Positions of different numberings cannot be
    /// subtracted.
    fn skip_to(&mut self, to: StreamPosition) {
        if to.base == self.end.base {
            self.expired += to.row.saturating_sub(self.end.row);
        } else if self.end != StreamPosition::default() {
            self.expired += to.row;
            self.restarted = true;
        }
        self.end = to;
    }
}

/// Reads the files of a store in commit order. Files of old schema versions without runs are skipped.
///
/// ```
/// use collector::{Batch, FlowRow, Output as _, event::{Basis, Stream}};
/// use store::{Config, Follower, StreamPosition, Store, StoredRecord};
///
/// let dir = std::env::temp_dir().join(format!("hopwise-follower-{}", std::process::id()));
/// let store = Store::open(Config::new(&dir))?;
/// let mut batch = Batch::with_capacity(64);
/// let ts = 1_795_269_600_000_000_000; // 2026-11-21 14:00 UTC
/// let flow = "10.0.0.1:1234>10.0.0.2:80/6".parse()?;
/// let row = FlowRow { flow, flow_latency: Some(42_000), basis: Basis::Measured, first_seen: ts, last_seen: ts, reports: 1 };
/// batch.flow(&row, &[1, 2, 3]);
/// store.submit(batch);
/// store.flush();
///
/// let mut follower = Follower::new(&dir);
/// let chunk = follower.read(Stream::Flows, StreamPosition::default(), None, 1000, 1 << 20)?;
/// assert!(matches!(&chunk.records[..], [StoredRecord::Flow(state)] if state.row == row));
/// let chunk = follower.read(Stream::Flows, chunk.end, None, 1000, 1 << 20)?;
/// assert!(chunk.records.is_empty() && chunk.is_last);
/// # drop(store);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    extents: HashMap<FileIdentity, Extent>,
    open_files: Vec<OpenFile>,
}

/// Numbers of consecutive records; `end` is exclusive.
#[derive(Clone, Copy, Debug)]
struct NumberRange {
    first: i64,
    end: i64,
}

/// The numbers of each stream in a file.
type StreamNumbers = [Option<NumberRange>; Stream::ALL.len()];

/// The numbers in a file, valid as long as its size and modification time stay the same.
#[derive(Clone, Copy, Debug)]
struct Extent {
    bytes: u64,
    modified: SystemTime,
    numbers: StreamNumbers,
}

/// A row of `run_data`: consecutive records that one transaction committed, with the ranges of their sequence numbers
/// and times (ns).
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of the first record.
    first: i64,
    count: i64,
    /// Base of the numbering, see [`StreamPosition::base`].
    base: i64,
    /// First and last sequence number in the file.
    seq: [i64; 2],
    /// Earliest and latest time, ns.
    ts: [i64; 2],
}

impl Run {
    fn end(&self) -> i64 {
        self.first.saturating_add(self.count)
    }
}

impl Follower {
    /// Returns a follower of the store in `dir`. Files may be created and deleted meanwhile.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            extents: HashMap::new(),
            open_files: Vec::new(),
        }
    }

    /// Reads the records of `stream` from `from` on: all before `until`, or without it at least one, up to about
    /// `max_records` records and `max_bytes` bytes.
    ///
    /// # Errors
    /// The directory, or a file in it, cannot be read.
    pub fn read(
        &mut self,
        stream: Stream,
        from: StreamPosition,
        until: Option<StreamPosition>,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Chunk, Error> {
        let chunk = Chunk {
            records: Vec::new(),
            end: from,
            expired: 0,
            restarted: false,
            is_last: false,
        };
        let mut builder = ChunkBuilder {
            chunk,
            size: 0,
            max_records,
            max_bytes,
            until: until.map(StreamPosition::number),
        };
        let mut files = self.extents(stream)?;
        files.sort_by_key(|(_, numbers)| numbers.first);
        loop {
            let number = builder.chunk.end.number();
            if builder.until.is_some_and(|until| number >= until) || builder.is_full() {
                return Ok(builder.chunk);
            }
            let Some((file, run)) = self.next_run(&files, stream, number)? else {
                builder.chunk.is_last = true;
                return Ok(builder.chunk);
            };
            let start = run.first.max(number);
            let chunk = &mut builder.chunk;
            if let Some(until) = until.filter(|until| start >= until.number()) {
                chunk.skip_to(until);
                return Ok(builder.chunk);
            }
            chunk.skip_to(StreamPosition::from_number(start, run.base));
            let end = self.file(&file)?.records(stream, run, start, &mut builder);
            // In a damaged file, a run's end may precede its start; `max` guarantees progress.
            let end = end.with_path(&file.path)?.max(start);
            builder.chunk.end = StreamPosition::from_number(end, run.base);
        }
    }

    /// Returns the position after the last committed record.
    ///
    /// # Errors
    /// The directory, or a file in it, cannot be read.
    pub fn end(&mut self, stream: Stream) -> Result<StreamPosition, Error> {
        let extents = self.extents(stream)?;
        let Some((file, numbers)) = extents.into_iter().max_by_key(|(_, numbers)| numbers.end) else {
            return Ok(StreamPosition::default());
        };
        let run = self.file(&file)?.run_after(stream, numbers.end.saturating_sub(1));
        let run = run.with_path(&file.path)?;
        Ok(run.map_or_else(StreamPosition::default, |run| {
            StreamPosition::from_number(run.end(), run.base)
        }))
    }

    /// Returns the position of the first run that has records of `ts` or later.
    ///
    /// # Errors
    /// The directory, or a file in it, cannot be read.
    pub fn since(&mut self, stream: Stream, ts: u64) -> Result<StreamPosition, Error> {
        let ts = int(ts);
        let mut extents = self.extents(stream)?;
        extents.sort_by_key(|(_, numbers)| numbers.first);
        for (file, _) in extents {
            let run = self.file(&file)?.first_run_since(stream, ts);
            if let Some(run) = run.with_path(&file.path)? {
                return Ok(StreamPosition::from_number(run.first, run.base));
            }
        }
        self.end(stream)
    }

    /// Returns the run that holds the record `number`, or the next run, with its file. `files` are sorted by their
    /// first numbers.
    fn next_run(
        &mut self,
        files: &[(FileIdentity, NumberRange)],
        stream: Stream,
        number: i64,
    ) -> Result<Option<(FileIdentity, Run)>, Error> {
        let mut best: Option<(FileIdentity, Run)> = None;
        for (file, numbers) in files.iter().filter(|(_, numbers)| numbers.end > number) {
            if best
                .as_ref()
                .is_some_and(|(_, run)| run.first <= numbers.first.max(number))
            {
                break;
            }
            let run = self.file(file)?.run_after(stream, number);
            let run = run.with_path(&file.path)?;
            if let Some(run) = run.filter(|run| best.as_ref().is_none_or(|(_, best)| run.first < best.first))
            {
                best = Some((file.clone(), run));
            }
        }
        Ok(best)
    }

    /// Returns the files that have records of `stream`, with their first number and the number after their last.
    fn extents(&mut self, stream: Stream) -> Result<Vec<(FileIdentity, NumberRange)>, Error> {
        let present_files = files::list(&self.dir).with_path(&self.dir)?;
        let mut extents = Vec::with_capacity(present_files.len());
        let mut present = Vec::with_capacity(present_files.len());
        for file in present_files {
            let Some(identity) = FileIdentity::read(&file.path) else {
                continue;
            };
            present.push(identity.clone());
            let known = self.extents.get(&identity).copied();
            let known = known.filter(|known| (known.bytes, known.modified) == (file.bytes, file.modified));
            let extent = match known {
                Some(extent) => extent,
                None => {
                    let Some(numbers) = self.numbers(&identity)? else {
                        continue;
                    };
                    let extent = Extent {
                        bytes: file.bytes,
                        modified: file.modified,
                        numbers,
                    };
                    self.extents.insert(identity.clone(), extent);
                    extent
                }
            };
            extents.extend(extent.numbers[stream as usize].map(|numbers| (identity, numbers)));
        }
        self.extents.retain(|file, _| present.contains(file));
        // An open connection keeps a deleted file's disk space allocated.
        self.open_files.retain(|open| present.contains(&open.file));
        Ok(extents)
    }

    /// Returns the numbers in a file. Returns `None` if the file is gone, empty, damaged, unreadable for this process
    /// or of a version without runs: the export goes on with other files and counts the missing records as expired.
    fn numbers(&mut self, identity: &FileIdentity) -> Result<Option<StreamNumbers>, Error> {
        let open = match self.file(identity) {
            Ok(open) => open,
            Err(Error::Empty(_) | Error::Newer { .. } | Error::Foreign(_)) => return Ok(None),
            Err(error) if error.is_damage() || error.is_denied() => return Ok(None),
            Err(_) if !identity.is_in_place() => return Ok(None),
            Err(error) => return Err(error),
        };
        open.numbers().map(Some).with_path(&identity.path)
    }

    fn file(&mut self, identity: &FileIdentity) -> Result<&mut OpenFile, Error> {
        let index = match self.open_files.iter().position(|open| open.file == *identity) {
            Some(index) => index,
            None => {
                let open = OpenFile::open(identity)?;
                if self.open_files.len() >= MAX_OPEN_FILES {
                    self.open_files.remove(0);
                }
                self.open_files.push(open);
                self.open_files.len() - 1
            }
        };
        Ok(&mut self.open_files[index])
    }
}

/// A chunk under construction, and its limits. `size` is its approximate size in bytes.
struct ChunkBuilder {
    chunk: Chunk,
    size: usize,
    max_records: usize,
    max_bytes: usize,
    until: Option<i64>,
}

impl ChunkBuilder {
    fn push(&mut self, record: StoredRecord) {
        self.size += record.bytes();
        self.chunk.records.push(record);
    }

    fn is_full(&self) -> bool {
        let records = self.chunk.records.len();
        self.until.is_none() && records > 0 && (records >= self.max_records || self.size >= self.max_bytes)
    }
}

/// Returns the numbering with which a writer of `dir` continues, and the files that cannot be read. It is a new one if
/// there is none, or if the file with the latest numbers may be lost.
pub(crate) fn numbering(dir: &Path, now: u64) -> Result<(Numbering, Vec<(FileId, Error)>), Error> {
    let mut latest: Option<Numbering> = None;
    let mut unreadable = Vec::new();
    let mut lost_until = None;
    for file in files::list(dir).with_path(dir)? {
        if !file.path.exists() {
            continue;
        }
        match file_numbering(&file.path) {
            Ok(found) => latest = latest.into_iter().chain(found).reduce(Numbering::latest),
            Err(error) => {
                lost_until = lost_until.max(Some(file.modified));
                unreadable.push((file.id, error));
            }
        }
    }
    // An unreadable file does not matter if its last write precedes the start of the latest numbering.
    let numbering = match latest {
        Some(latest) if lost_until.is_none_or(|until| !latest.is_before(until)) => latest,
        latest => Numbering::new(now, latest.map_or(0, |latest| latest.last())),
    };
    Ok((numbering, unreadable))
}

/// Returns the numbering after the last record in the file at `path`, or `None` if it has no runs.
pub(crate) fn file_numbering(path: &Path) -> Result<Option<Numbering>, Error> {
    match attach(path) {
        Ok((_, false)) | Err(Error::Empty(_)) => Ok(None),
        Ok((conn, true)) => Numbering::read(&conn, FILE).with_path(path),
        Err(error) => Err(error),
    }
}

/// Opens a read-only connection to a file. Returns it, and whether the file has runs.
fn attach(path: &Path) -> Result<(Connection, bool), Error> {
    let conn = join::single(path, CACHE_KIB)?;
    let has_runs = schema::has_runs(&conn, FILE).with_path(path)?;
    Ok((conn, has_runs))
}

/// A file that is open for reading.
#[derive(Debug)]
struct OpenFile {
    file: FileIdentity,
    conn: Connection,
    has_runs: bool,
    names: FileNames,
    /// Records left over from the last run.
    unread: Option<UnreadRecords>,
}

/// Records of a run that did not fit into a chunk. The next chunk begins with them, so they are not read again.
#[derive(Debug)]
struct UnreadRecords {
    stream: Stream,
    /// The number of the first unread record.
    number: i64,
    records: vec::IntoIter<StoredRecord>,
}

/// The values that IDs in a file stand for.
#[derive(Debug)]
struct FileNames {
    /// True if the table of drops has a column for the tunnel.
    has_tunnels: bool,
    kinds: EnumTable<Kind>,
    /// Metrics that a newer version added are `None`.
    metrics: EnumTable<Option<Metric>>,
    bases: EnumTable<Basis>,
    flows: DirectMappedCache<FlowKey>,
    paths: DirectMappedCache<Vec<u32>>,
    rules: DirectMappedCache<String>,
}

/// A dense table of values by small ID, for enumerations.
#[derive(Debug)]
struct EnumTable<T>(Vec<Option<T>>);

impl<T: Copy> EnumTable<T> {
    fn read(conn: &Connection, table: &str, parse: impl Fn(&str) -> T) -> rusqlite::Result<Self> {
        let mut values = Vec::new();
        let mut select = conn.prepare(&format!("SELECT * FROM {FILE}.{table} WHERE id >= 0 AND id < ?1"))?;
        let mut rows = select.query([MAX_ENUM_ID])?;
        while let Some(row) = rows.next()? {
            let number = usize::from(row.get::<_, u16>(0)?);
            values.resize(values.len().max(number + 1), None);
            values[number] = Some(parse(&row.get::<_, String>(1)?));
        }
        Ok(Self(values))
    }

    fn get(&self, number: i64) -> Option<T> {
        *self.0.get(usize::try_from(number).ok()?)?
    }
}

/// Direct-mapped cache of interned values by ID. IDs count up from 1, so a file with at most [`CACHE_SLOTS`] of them has
/// no collisions.
#[derive(Debug)]
struct DirectMappedCache<T>(Vec<Option<(i64, T)>>);

impl<T> DirectMappedCache<T> {
    fn slot(number: i64) -> usize {
        number.cast_unsigned() as usize % CACHE_SLOTS
    }

    fn get(&self, number: i64) -> Option<&T> {
        let (known, value) = self.0.get(Self::slot(number))?.as_ref()?;
        (*known == number).then_some(value)
    }

    fn insert(&mut self, number: i64, value: T) {
        let slot = Self::slot(number);
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some((number, value));
    }
}

impl OpenFile {
    fn open(file: &FileIdentity) -> Result<Self, Error> {
        let (conn, has_runs) = attach(&file.path)?;
        let names = FileNames::read(&conn).with_path(&file.path)?;
        Ok(Self {
            file: file.clone(),
            conn,
            has_runs,
            names,
            unread: None,
        })
    }

    fn numbers(&self) -> rusqlite::Result<StreamNumbers> {
        let mut numbers = [None; Stream::ALL.len()];
        if !self.has_runs {
            return Ok(numbers);
        }
        let mut select = self.conn.prepare_cached(
            "SELECT min(first), (SELECT first + count FROM f0.run_data WHERE stream = ?1 ORDER BY first DESC LIMIT 1)
             FROM f0.run_data WHERE stream = ?1",
        )?;
        for stream in Stream::ALL {
            let range = select.query_row([stream as i64], |row| {
                Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?))
            })?;
            numbers[stream as usize] = range.map(|(first, end)| NumberRange { first, end });
        }
        Ok(numbers)
    }

    /// Returns the run that holds the record `number`, or the next run.
    fn run_after(&self, stream: Stream, number: i64) -> rusqlite::Result<Option<Run>> {
        let before = "AND first <= ?2 AND first + count > ?2 ORDER BY first DESC LIMIT 1";
        let after = "AND first > ?2 ORDER BY first LIMIT 1";
        match self.run(before, stream, number)? {
            Some(run) => Ok(Some(run)),
            None => self.run(after, stream, number),
        }
    }

    fn first_run_since(&self, stream: Stream, ts: i64) -> rusqlite::Result<Option<Run>> {
        self.run("AND to_ts >= ?2 ORDER BY first LIMIT 1", stream, ts)
    }

    fn run(&self, condition: &str, stream: Stream, value: i64) -> rusqlite::Result<Option<Run>> {
        let mut select = self.conn.prepare_cached(&format!(
            "SELECT first, count, base, from_seq, to_seq, from_ts, to_ts FROM f0.run_data WHERE stream = ?1 {condition}"
        ))?;
        let mut rows = select.query(params![stream as i64, value])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Run {
            first: row.get(0)?,
            // A larger count is damage, and would report as many expired records.
            count: row.get::<_, i64>(1)?.clamp(0, MAX_RUN_RECORDS),
            base: row.get(2)?,
            seq: [row.get(3)?, row.get(4)?],
            ts: [row.get(5)?, row.get(6)?],
        }))
    }

    /// Appends the records of a run from the number `start` on. Returns the number after the last one.
    fn records(
        &mut self,
        stream: Stream,
        run: Run,
        start: i64,
        builder: &mut ChunkBuilder,
    ) -> rusqlite::Result<i64> {
        if stream == Stream::Flows {
            return self.flows(run, start, builder);
        }
        let end = builder.until.map_or(run.end(), |until| until.min(run.end()));
        let mut unread = match self.unread.take() {
            Some(unread) if unread.stream == stream && unread.number == start => unread,
            _ => UnreadRecords {
                stream,
                number: start,
                records: self.run_records(stream, run, start)?,
            },
        };
        while unread.number < end {
            if builder.is_full() {
                let number = unread.number;
                self.unread = Some(unread);
                return Ok(number);
            }
            let Some(mut record) = unread.records.next() else {
                // The run counts rows that are missing: the file was modified.
                builder.chunk.expired += (end - unread.number).max(0).cast_unsigned();
                break;
            };
            if let StoredRecord::Rollup(_, number) | StoredRecord::Loss(_, number) = &mut record {
                *number = unread.number.max(0).cast_unsigned();
            }
            builder.push(record);
            unread.number += 1;
        }
        Ok(end)
    }

    /// Reads the records of a run from the number `start` on, in the order of their sequence numbers.
    fn run_records(
        &mut self,
        stream: Stream,
        run: Run,
        start: i64,
    ) -> rusqlite::Result<vec::IntoIter<StoredRecord>> {
        let Self { conn, names, .. } = self;
        let mut select = conn.prepare_cached(&select(stream, names.has_tunnels))?;
        let seq_column = select.column_count() - 1;
        let mut rows = select.query(params![run.ts[0], run.ts[1], run.seq[0], run.seq[1]])?;
        let count = run.count.clamp(0, MAX_RUN_RECORDS) as usize;
        let mut order = Vec::with_capacity(count);
        let mut records = Vec::with_capacity(count);
        while let Some(row) = rows.next()? {
            order.push(row.get::<_, i64>(seq_column)?);
            records.push(names.record(conn, stream, row)?);
        }
        // Rows come in the order of their times. Sorting here is cheaper than in SQLite.
        if !order.is_sorted() {
            let mut sorted: Vec<(i64, StoredRecord)> = order.into_iter().zip(records).collect();
            sorted.sort_unstable_by_key(|(seq, _)| *seq);
            records = sorted.into_iter().map(|(_, record)| record).collect();
        }
        let skipped = usize::try_from(start.saturating_sub(run.first))
            .unwrap_or(0)
            .min(records.len());
        let mut records = records.into_iter();
        // `nth(n)` consumes `n + 1` items.
        if let Some(last) = skipped.checked_sub(1) {
            records.nth(last);
        }
        Ok(records)
    }

    /// Appends the flows of a run from the number `start` on. Each flow row has its number in a column.
    fn flows(&mut self, run: Run, start: i64, builder: &mut ChunkBuilder) -> rusqlite::Result<i64> {
        let Self { conn, names, .. } = self;
        let end = builder.until.map_or(run.end(), |until| until.min(run.end()));
        let mut select = conn.prepare_cached(&select(Stream::Flows, false))?;
        let mut rows = select.query(params![start, end])?;
        while let Some(row) = rows.next()? {
            if builder.is_full() {
                // Column 7 is the flow's number, at which the next chunk begins.
                return row.get(7);
            }
            builder.push(names.record(conn, Stream::Flows, row)?);
        }
        Ok(end)
    }
}

impl FileNames {
    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            has_tunnels: schema::has_tunnels(conn, FILE)?,
            kinds: EnumTable::read(conn, "kind_name", kind_named)?,
            metrics: EnumTable::read(conn, "metric_name", Metric::from_name)?,
            bases: EnumTable::read(conn, "basis_name", basis_named)?,
            flows: DirectMappedCache(Vec::new()),
            paths: DirectMappedCache(Vec::new()),
            rules: DirectMappedCache(Vec::new()),
        })
    }

    fn record(&mut self, conn: &Connection, stream: Stream, row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
        Ok(match stream {
            Stream::Events => StoredRecord::Event(self.event(conn, row)?),
            Stream::Rollups => {
                let metric = self.metric(row.get(3)?);
                // The number comes from the run.
                StoredRecord::Rollup(rollup_at(row, 1, self.flow(conn, row.get(0)?)?, metric)?, 0)
            }
            Stream::Flows => {
                let flow = self.flow(conn, row.get(0)?)?;
                StoredRecord::Flow(FlowState {
                    row: flow_at(row, 1, flow, self.basis(row.get(2)?))?,
                    path: self.path(conn, row.get(6)?)?,
                })
            }
            Stream::Drops => {
                let id = row.get::<_, i64>(2)?.cast_unsigned();
                let flows = [self.flow(conn, row.get(0)?)?, self.flow(conn, row.get(8)?)?];
                StoredRecord::Drop(drop_at(row, 1, flows, id)?)
            }
            // The number comes from the run.
            Stream::Losses => StoredRecord::Loss(loss(row)?, 0),
        })
    }

    fn event(&mut self, conn: &Connection, row: &Row<'_>) -> rusqlite::Result<EventRow> {
        let names = EventNames {
            id: row.get::<_, i64>(12)?.cast_unsigned(),
            kind: self.kinds.get(row.get(2)?).unwrap_or(Kind::Latest),
            metric: self.metric(row.get(3)?),
            flow: self.flow(conn, row.get(0)?)?,
            basis: self.basis(row.get(11)?),
        };
        let event = event_at(row, 1, names)?;
        let rule = match row.get::<_, Option<i64>>(13)? {
            Some(rule) => Some(self.rule(conn, rule)?),
            None => None,
        };
        let path = self.path(conn, row.get(14)?)?;
        let first = match event.kind {
            Kind::New => self.first(conn, row.get(1)?, row.get(15)?)?,
            _ => None,
        };
        Ok(EventRow {
            event,
            rule,
            path,
            first,
        })
    }

    fn first(&self, conn: &Connection, ts: i64, seq: i64) -> rusqlite::Result<Option<FirstRow>> {
        let mut select = conn.prepare_cached(
            "SELECT flow_latency, basis, hop_latencies FROM f0.first_data WHERE ts = ?1 AND seq = ?2",
        )?;
        let mut rows = select.query([ts, seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let latencies: Option<String> = row.get(2)?;
        Ok(Some(FirstRow {
            flow_latency: optional(row, 0)?,
            basis: self.basis(row.get(1)?),
            hop_latencies: latencies.map_or_else(Vec::new, |text| parse_path(&text)),
        }))
    }

    fn metric(&self, code: Option<i64>) -> Option<Metric> {
        self.metrics.get(code?).flatten()
    }

    fn basis(&self, code: i64) -> Basis {
        self.bases.get(code).unwrap_or_default()
    }

    fn flow(&mut self, conn: &Connection, id: Option<i64>) -> rusqlite::Result<Option<FlowKey>> {
        let Some(id) = id else { return Ok(None) };
        if let Some(flow) = self.flows.get(id) {
            return Ok(Some(*flow));
        }
        let sql = "SELECT src, dst, sport, dport, proto FROM f0.flow_key WHERE id = ?1";
        let flow = conn.prepare_cached(sql)?.query_row([id], parse_flow)?;
        if let Some(flow) = flow {
            self.flows.insert(id, flow);
        }
        Ok(flow)
    }

    fn path(&mut self, conn: &Connection, id: Option<i64>) -> rusqlite::Result<Vec<u32>> {
        let Some(id) = id else { return Ok(Vec::new()) };
        if let Some(path) = self.paths.get(id) {
            return Ok(path.clone());
        }
        let sql = "SELECT path FROM f0.path_text WHERE id = ?1";
        let text: String = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0))?;
        let path = parse_path(&text);
        self.paths.insert(id, path.clone());
        Ok(path)
    }

    fn rule(&mut self, conn: &Connection, id: i64) -> rusqlite::Result<String> {
        if let Some(rule) = self.rules.get(id) {
            return Ok(rule.clone());
        }
        let sql = "SELECT rule FROM f0.rule_text WHERE id = ?1";
        let text: String = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0))?;
        self.rules.insert(id, text.clone());
        Ok(text)
    }
}

impl StoredRecord {
    /// Returns the approximate size of the record in memory.
    pub fn bytes(&self) -> usize {
        let path = match self {
            Self::Event(event) => {
                event.path.len() + event.first.as_ref().map_or(0, |first| first.hop_latencies.len())
            }
            Self::Flow(state) => state.path.len(),
            Self::Rollup(..) | Self::Drop(_) | Self::Loss(..) => 0,
        };
        size_of::<Self>() + path * size_of::<u32>()
    }
}

/// Returns the SQL that reads a run's rows, ordered by time. Parameters are the first and last time and the first and
/// last sequence number; for flows, the first number and the one after the last. The columns after the flow are in the
/// order that `rows` expects; the last column is the sequence number.
fn select(stream: Stream, has_tunnels: bool) -> String {
    let (table, columns) = match stream {
        Stream::Events => (
            "event_data",
            "flow, ts, kind, metric, node, interface, queue, value, previous, threshold, reason, basis, id, rule, path, seq",
        ),
        Stream::Rollups => (
            "rollup_data",
            "flow, ts, interval, metric, node, interface, queue, count, min, max, sum, p50, p99, seq",
        ),
        Stream::Flows => (
            "flow_data",
            "flow, flow_latency, basis, first_seen, last_seen, reports, path, number",
        ),
        Stream::Drops => (
            "drop_data",
            if has_tunnels {
                "flow, ts, id, node, ingress_if, egress_if, queue, reason, tunnel, seq"
            } else {
                "flow, ts, id, node, ingress_if, egress_if, queue, reason, NULL, seq"
            },
        ),
        Stream::Losses => (
            "loss_data",
            "ts, node, source, hw_id, lost, reordered, duplicated, seq",
        ),
    };
    let condition = match stream {
        Stream::Flows => "number >= ?1 AND number < ?2 ORDER BY number",
        _ => "ts BETWEEN ?1 AND ?2 AND seq BETWEEN ?3 AND ?4",
    };
    format!("SELECT {columns} FROM {FILE}.{table} WHERE {condition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_share_a_place_are_not_taken_for_one_another() {
        let mut recent = DirectMappedCache(Vec::new());
        let far = 1 + CACHE_SLOTS as i64;
        recent.insert(1, 'a');
        assert_eq!(
            [recent.get(1), recent.get(far), recent.get(-1)],
            [Some(&'a'), None, None]
        );
        recent.insert(far, 'b');
        assert_eq!([recent.get(1), recent.get(far)], [None, Some(&'b')]);
        recent.insert(i64::MIN, 'c');
        recent.insert(-1, 'd');
        assert_eq!([recent.get(i64::MIN), recent.get(-1)], [Some(&'c'), Some(&'d')]);
        assert!(recent.0.len() <= CACHE_SLOTS);
    }

    #[test]
    fn numbers_beyond_the_few_stand_for_nothing() {
        let table = EnumTable(vec![None, Some('a')]);
        assert_eq!(
            [-1, 0, 1, 2, i64::MAX].map(|number| table.get(number)),
            [None, None, Some('a'), None, None]
        );
    }
}

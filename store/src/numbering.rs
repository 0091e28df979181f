//! Commit order: each record of a [`Stream`] gets a consecutive number over all files of the store, and runs of numbers are
//! stored in the table `run_data`, from which `follower` reads.
//!
//! ```text
//! base = (milliseconds since 1970 at the start of the numbering) << 20
//! ```
//!
//! If files are lost, a new numbering starts with a larger base, so no number is assigned twice. A base leaves room for a
//! million records per millisecond.

use std::time::{SystemTime, UNIX_EPOCH};

use collector::event::{Nanos, Stream};
use rusqlite::{Connection, OptionalExtension as _, params};

/// Maximum valid number in a file: as many more can be added before overflow.
const MAX_COUNTED: i64 = 1 << 62;
/// Maximum records in a run. A reader that wants part of a run reads little more than that.
pub(crate) const MAX_RUN_RECORDS: i64 = 8192;
const MS_SHIFT: u32 = 20;
const MAX_MS: i64 = i64::MAX >> (MS_SHIFT + 1);

/// State of the numbering: its base and the next number of each stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbering {
    /// Number of the first record, larger than all numbers assigned before.
    pub(crate) base: i64,
    pub(crate) next: [i64; Stream::ALL.len()],
}

impl Numbering {
    /// Returns a new numbering that starts at time `now` (ns), with numbers after `after`.
    pub(crate) fn new(now: Nanos, after: i64) -> Self {
        let base = i64::try_from(now / 1_000_000).unwrap_or(0).min(MAX_MS) << MS_SHIFT;
        let base = base.max(after.saturating_add(1));
        Self {
            base,
            next: [base; Stream::ALL.len()],
        }
    }

    /// Returns true if this numbering began before `time`.
    pub(crate) fn is_before(&self, time: SystemTime) -> bool {
        let ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        u128::from((self.base >> MS_SHIFT).unsigned_abs()) <= ms
    }

    /// Reads the numbering at the end of the file that `conn` has attached as `name`, or `None` if the file has no runs.
    pub(crate) fn read(conn: &Connection, name: &str) -> rusqlite::Result<Option<Self>> {
        let mut numbering: Option<Self> = None;
        let mut select = conn.prepare(&format!(
            "SELECT first + count, base FROM {name}.run_data WHERE stream = ?1 ORDER BY first DESC LIMIT 1"
        ))?;
        for stream in Stream::ALL {
            let last = select
                .query_row([stream as i64], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((end, base)): Option<(i64, i64)> = last else {
                continue;
            };
            let end = countable(end, "a number in run_data")?;
            let base = countable(base, "a number in run_data")?;
            let mut stream_numbering = Self {
                base,
                next: [base; Stream::ALL.len()],
            };
            stream_numbering.next[stream as usize] = end;
            numbering = Some(numbering.map_or(stream_numbering, |known| known.latest(stream_numbering)));
        }
        Ok(numbering)
    }

    /// Returns the numbering with the larger base; with equal bases, the larger number of each stream.
    pub(crate) fn latest(self, other: Self) -> Self {
        match self.base.cmp(&other.base) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => {
                let mut next = self.next;
                next.iter_mut()
                    .zip(other.next)
                    .for_each(|(next, other)| *next = (*next).max(other));
                Self { next, ..self }
            }
        }
    }

    /// Returns the highest of the next numbers.
    pub(crate) fn last(&self) -> i64 {
        self.next.iter().copied().max().unwrap_or(0)
    }
}

/// Consecutive records of one stream, committed in one file, with the ranges of their sequence numbers and times (ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    count: i64,
    seq: [i64; 2],
    ts: [i64; 2],
}

/// The runs of the open transaction.
#[derive(Default, Debug)]
pub(crate) struct Runs {
    open: [Option<Run>; Stream::ALL.len()],
    complete: Vec<(Stream, Run)>,
    counts: [i64; Stream::ALL.len()],
}

impl Runs {
    /// Adds a record of `stream` with this time and this sequence number.
    #[inline]
    pub(crate) fn add(&mut self, stream: Stream, ts: i64, seq: i64) {
        self.counts[stream as usize] += 1;
        let open = &mut self.open[stream as usize];
        let Some(run) = open else {
            *open = Some(Run {
                count: 1,
                seq: [seq; 2],
                ts: [ts; 2],
            });
            return;
        };
        run.count += 1;
        run.seq[1] = seq;
        run.ts = [run.ts[0].min(ts), run.ts[1].max(ts)];
        if run.count >= MAX_RUN_RECORDS {
            self.complete.push((stream, *run));
            *open = None;
        }
    }

    /// Returns the number of records of `stream` so far.
    pub(crate) fn count(&self, stream: Stream) -> i64 {
        self.counts[stream as usize]
    }

    /// Inserts the runs in the open transaction. Returns the numbering after them.
    pub(crate) fn write(
        &mut self,
        conn: &Connection,
        mut numbering: Numbering,
    ) -> rusqlite::Result<Numbering> {
        for (stream, open) in Stream::ALL.into_iter().zip(&mut self.open) {
            self.complete.extend(open.take().map(|run| (stream, run)));
        }
        let mut insert =
            conn.prepare_cached("INSERT INTO run_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
        for (stream, run) in self.complete.drain(..) {
            let next = &mut numbering.next[stream as usize];
            insert.execute(params![
                stream as i64,
                *next,
                run.count,
                numbering.base,
                run.seq[0],
                run.seq[1],
                run.ts[0],
                run.ts[1]
            ])?;
            *next += run.count;
        }
        self.counts = Default::default();
        Ok(numbering)
    }
}

/// Validates a number from a file before it is used as the start of a count.
///
/// # Errors
/// It is negative or so large that counting on could overflow: the file is damaged.
pub(crate) fn countable(number: i64, what: &str) -> rusqlite::Result<i64> {
    if (0..=MAX_COUNTED).contains(&number) {
        return Ok(number);
    }
    let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(
        damaged,
        Some(format!("the file is damaged: {what} is {number}")),
    ))
}

//! The order of commits: each record of a stream has a number, which is counted over all files of the store.

use std::time::{SystemTime, UNIX_EPOCH};

use collector::event::{Nanos, Stream};
use rusqlite::{Connection, OptionalExtension as _, params};

/// The numbers of the next records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbering {
    /// The number of the first record. It is later than any number that was given before, so that numbers that were lost are not
    /// given again.
    pub(crate) base: i64,
    pub(crate) next: [i64; Stream::ALL.len()],
}

impl Numbering {
    /// Returns a new numbering at the time `now`, later than `after`. A millisecond has room for a million records.
    pub(crate) fn new(now: Nanos, after: i64) -> Self {
        let base = i64::try_from(now / 1_000_000).unwrap_or(0).min(MAX_MS) << MS_BITS;
        let base = base.max(after.saturating_add(1));
        Self {
            base,
            next: [base; Stream::ALL.len()],
        }
    }

    /// Returns true if this count began before `time`.
    pub(crate) fn is_before(&self, time: SystemTime) -> bool {
        let ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        u128::from((self.base >> MS_BITS).unsigned_abs()) <= ms
    }

    /// Reads the numbering with which the file ends that `conn` has attached as `name`, if it has any.
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
            let mut of_stream = Self {
                base,
                next: [base; Stream::ALL.len()],
            };
            of_stream.next[stream as usize] = end;
            numbering = Some(numbering.map_or(of_stream, |known| known.latest(of_stream)));
        }
        Ok(numbering)
    }

    /// Returns the later numbering of the two, or the highest number of each stream if they have the same base.
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

    /// Returns the highest number that was given.
    pub(crate) fn last(&self) -> i64 {
        self.next.iter().copied().max().unwrap_or(0)
    }
}

/// Records of one stream in one file that were committed one after the other.
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
        if run.count >= RUN {
            self.complete.push((stream, *run));
            *open = None;
        }
    }

    /// Returns the number of records of `stream` so far.
    pub(crate) fn count(&self, stream: Stream) -> i64 {
        self.counts[stream as usize]
    }

    /// Writes the runs into the open transaction. Returns the numbers after them.
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

/// Checks a number that is read from a file and that the program goes on counting from.
///
/// # Errors
/// It is negative, or so large that counting on would overflow: the file is damaged.
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

/// The greatest number in a file that is counted on from: as many may be added before it overflows.
const MAX_COUNTED: i64 = 1 << 62;

/// A run is at most so long, so that a reader that wants a part of it does not read much more.
pub(crate) const RUN: i64 = 8192;
const MS_BITS: u32 = 20;
const MAX_MS: i64 = i64::MAX >> (MS_BITS + 1);

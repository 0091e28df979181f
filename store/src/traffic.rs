//! Scans of flows, events and node series by time column; a [`Tally`] of the caller groups and sums the values.
//!
//! Columns are read from latest to earliest within a budget of rows. If it runs out, only the latest columns are counted.

mod counts;
mod events;
mod flows;
mod names;

use std::collections::HashMap;

use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::path_spans::divided_note;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{int, optional, unsigned};
use crate::schema::Features;
use crate::spans::{MINUTE, Piece, SECOND, SeriesKey, Span, SpanSum};
use crate::summary::REPORTS_KIND;
use crate::taken::{PathSearch, TakenPaths};

use self::counts::CountReader;
use self::events::EventReader;
use self::flows::FlowReader;
use self::names::Names;

const SUMS_SQL: &str = "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.span_data
                        WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1";
const ROLLUPS_SQL: &str = "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.rollup_data
                           WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow IS NULL";
/// Column lengths for flows, minutes.
const FLOW_COLUMN_MINUTES: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440];
/// Number of rows that can be read in about 200 ms.
const FAST_ROWS: u64 = 600_000;
/// Maximum number of rollups read for one answer.
const MAX_ROWS: usize = 4_000_000;
/// Budget for the events of one answer; equals 3 million events that are read row by row.
const MAX_EVENT_COST: usize = 48_000_000;
/// Maximum number of event locations per file: about 100 MB.
const MAX_LOCATIONS: usize = 1_000_000;
/// Minimum number of rows read from each file after the budget is used up.
const MIN_ROWS_PER_FILE: usize = 65_536;
/// Maximum number of cached flows, paths and event groups per file: about 40 MB.
const MAX_CACHED: usize = 200_000;
/// Longest time without one-minute rollups, ns: minutes are stored up to two minutes late.
const MAX_MINUTE_DELAY: Nanos = 180 * SECOND;
/// Latest time that the store can hold, ns.
const LATEST: Nanos = i64::MAX as u64;
/// Maximum number of columns.
const MAX_COLUMNS: u64 = 1_001;

/// A time span divided into columns of equal length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    from: Nanos,
    to: Nanos,
    column: Nanos,
    interval: u32,
    known_to: Nanos,
}

/// The parts of events that a query needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventParts {
    /// The flow is needed.
    pub flow: bool,
    /// The path is needed.
    pub path: bool,
    /// The node, interface and queue are needed.
    pub location: bool,
    /// The metric is needed.
    pub metric: bool,
    /// The rule and the drop reason are needed.
    pub cause: bool,
    /// The value and the first values of flows are needed.
    pub values: bool,
    /// The kind is not needed.
    pub any_kind: bool,
}

/// Events that agree in all needed parts. Other parts are `None` or empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventGroup {
    /// The kind of the events.
    pub kind: Option<Kind>,
    /// The metric of the events.
    pub metric: Option<Metric>,
    /// The flow of the events.
    pub flow: Option<FlowKey>,
    /// The path of the events.
    pub path: Vec<u32>,
    /// The node of the events.
    pub node: Option<u32>,
    /// The interface of the events.
    pub interface: Option<u32>,
    /// The queue of the events.
    pub queue: Option<u8>,
    /// The name of the rule.
    pub rule: Option<String>,
    /// The drop reason code of the device.
    pub reason: Option<u8>,
    /// The value that the events report.
    pub value: Option<u64>,
    /// First flow latency (ns) and first hop latencies of a new flow.
    pub first: Option<(Option<u64>, Vec<u32>)>,
}

/// Receives the scanned values and sums them.
///
/// A scan first exchanges a flow, event group or series for a number, and then adds any number of values under it. Equal
/// arguments must give equal numbers, which the scan caches.
pub trait Tally {
    /// Removes all values, because the files are read again.
    fn reset(&mut self);
    /// Records that the store has some record in this column, wanted or not.
    fn seen(&mut self, column: usize);
    /// Returns the number of a flow with this path, which is empty if unknown.
    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32;
    /// Returns the number of a group of events.
    fn event(&mut self, event: &EventGroup) -> u32;
    /// Returns true if no event with these parts can match, whatever its other parts are. `None` or empty parts are
    /// unspecified.
    fn excludes(&self, event: &EventGroup) -> bool {
        let _ = event;
        false
    }
    /// Returns an equal number for flows that the query cannot tell apart, or `None` if that is not known.
    fn flow_class(&mut self, flow: &FlowKey) -> Option<u32> {
        let _ = flow;
        None
    }
    /// Returns for each metric the ascending values at which the filter's result may change; between two of them it is
    /// constant. Returns `None` if any value may matter.
    fn bounds(&self) -> Option<[Vec<u64>; Metric::COUNT]> {
        None
    }
    /// Returns the number of a node, queue or link.
    fn series(&mut self, key: &SeriesKey) -> u32;
    /// Adds values to the groups with this number.
    fn add(&mut self, number: u32, column: usize, sum: &SpanSum);
}

/// The extent of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Start of the counted columns, ns, if the row budget ended the scan early.
    pub from: Option<Nanos>,
    /// Some flows were counted without their paths, because there are too many flows.
    pub truncated: bool,
}

impl Columns {
    /// Returns columns of this length, aligned to multiples of it so that they stay the same as time passes. `column` is
    /// rounded down to whole seconds, or to whole minutes from a minute on.
    pub fn new(from: Nanos, to: Nanos, column: Nanos) -> Self {
        let column = match column.max(SECOND) {
            short if short < MINUTE => short / SECOND * SECOND,
            long => long / MINUTE * MINUTE,
        };
        let to = to.min(LATEST - column).max(from.min(LATEST - column));
        let from = from.min(to) / column * column;
        let to = to.div_ceil(column) * column;
        let from = from.max(to.saturating_sub(column.saturating_mul(MAX_COLUMNS)));
        Self {
            from,
            to,
            column,
            interval: rollup_interval(column),
            known_to: Nanos::MAX,
        }
    }

    /// Returns the same columns, limited to flow reports of minutes before `known_to`: a minute's reports are stored gradually
    /// after its end.
    #[must_use]
    pub fn until(self, known_to: Nanos) -> Self {
        Self { known_to, ..self }
    }

    /// Returns the start of the first column.
    pub fn from(&self) -> Nanos {
        self.from
    }

    /// Returns the end of the last column.
    pub fn to(&self) -> Nanos {
        self.to
    }

    /// Returns the end of a column.
    pub fn column_end(&self, number: usize) -> Nanos {
        (self.from + (number as u64 + 1).saturating_mul(self.column)).min(self.to)
    }

    /// Returns the length of a column, ns.
    pub fn column(&self) -> Nanos {
        self.column
    }

    /// Returns at most `max_columns` columns for a scan of flows, long enough that the scan is fast with this number of flows and
    /// rollups.
    pub fn for_flows(span: (Nanos, Nanos), max_columns: u64, flows: u64, rollups: u64) -> Self {
        let length = span.1.saturating_sub(span.0);
        let least = length.div_ceil(max_columns.saturating_sub(1).max(1));
        let mut longest = None;
        for column in FLOW_COLUMN_MINUTES.map(|minutes| minutes * MINUTE) {
            if column < least {
                continue;
            }
            let interval = u64::from(rollup_interval(column)) * SECOND;
            let rows = flows.max(1).saturating_mul(length / interval).min(rollups);
            if column >= 3600 * SECOND || rows <= FAST_ROWS {
                return Self::new(span.0, span.1, column);
            }
            longest = Some(column);
        }
        let day = 1440 * MINUTE;
        Self::new(span.0, span.1, longest.unwrap_or(least.div_ceil(day) * day))
    }

    /// Returns the rollups to scan for flows, in time order: the longest interval that divides a column, and shorter ones at
    /// the end of the known time.
    pub fn pieces(&self) -> Vec<Piece> {
        let interval = self.interval.max(60);
        let to = self.known_to.clamp(self.from, self.to);
        let end_of_columns = if interval == 60 {
            to
        } else {
            self.from + (to - self.from) / self.column * self.column
        };
        let mut pieces = vec![Piece {
            interval,
            from: self.from,
            to: end_of_columns,
        }];
        pieces.extend(Span::new(end_of_columns, to).pieces());
        pieces.retain(|piece| piece.from < piece.to);
        pieces.sort_unstable_by_key(|piece| piece.from);
        pieces
    }

    /// Returns the number of columns.
    pub fn count(&self) -> usize {
        usize::try_from((self.to - self.from) / self.column).unwrap_or(usize::MAX)
    }

    /// Returns the columns that start at or after `floor`, latest first.
    fn backwards(self, floor: Nanos) -> impl Iterator<Item = ColumnSpan> {
        (0..self.count())
            .rev()
            .map(move |index| {
                let from = self.from + index as u64 * self.column;
                ColumnSpan {
                    index,
                    from,
                    to: from + self.column,
                }
            })
            .take_while(move |column| column.from >= floor)
    }
}

/// Returns the longest rollup interval that divides a column, seconds.
fn rollup_interval(column: Nanos) -> u32 {
    [3600, 600, 60]
        .into_iter()
        .find(|interval| column.is_multiple_of(u64::from(*interval) * SECOND))
        .unwrap_or(1)
}

/// A column: its index, its start and its end.
#[derive(Clone, Copy, Debug)]
struct ColumnSpan {
    index: usize,
    from: Nanos,
    to: Nanos,
}

/// The remaining rows of a scan, and the time from which columns are counted so far.
struct Budget {
    rows: usize,
    floor: Nanos,
}

impl EventParts {
    /// Returns true if no part except the kind is needed.
    fn is_kind_only(self) -> bool {
        Self {
            any_kind: false,
            ..self
        } == Self::default()
    }
}

impl Budget {
    /// Subtracts the cost of some rows. Returns false if the budget is used up.
    fn spend(&mut self, rows: usize) -> bool {
        self.rows = self.rows.saturating_sub(rows);
        self.rows > 0
    }

    fn counted(&self, columns: &Columns, truncated: bool) -> Counted {
        Counted {
            from: (self.floor > columns.from).then_some(self.floor),
            truncated,
        }
    }
}

/// The result of reading a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Whole,
    /// The row budget ended before the column.
    Part,
    /// A block of the column cannot be read; nothing of the column was added.
    Damaged,
}

impl Read {
    fn from_whole(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::Part }
    }
}

/// Limits of an event scan.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Budget for the events of all files, in rows.
    rows: usize,
    /// Maximum number of locations per file.
    locations: usize,
}

/// Reads a column of one file.
trait ColumnReader {
    fn column(
        &mut self,
        column: ColumnSpan,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read>;
}

impl Reader {
    /// Returns at most `max_columns` columns of a time span, long enough that a scan of the stored flows is fast.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn flow_columns(&self, span: (Nanos, Nanos), max_columns: u64) -> Result<Columns, QueryError> {
        let files = self.with_retry(|| self.facts_in(span.0, span.1))?;
        let flows = files.iter().map(|facts| facts.count("flows")).max().unwrap_or(0);
        let rollups = files.iter().map(|facts| facts.count("rollups")).sum();
        Ok(Columns::for_flows(span, max_columns, flows, rollups))
    }

    /// Adds flow reports and their latencies to the tally. With `by_path`, each rollup counts for the path that the flow had in
    /// it; one in which the flow changed its path is read as shorter ones, and a minute counts for the path at its end.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_traffic(
        &self,
        columns: &Columns,
        by_path: bool,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        let (taken, truncated) = if by_path {
            self.with_retry(|| self.column_paths(columns))?
        } else {
            Default::default()
        };
        let mut divided = 0;
        let mut counted = self.each_file(columns, tally, MAX_ROWS, |names, features, budget, tally| {
            let mut flows = FlowReader::new(names, features, columns, &taken);
            for column in columns.backwards(budget.floor) {
                if !flows.column(column, budget, tally)? {
                    budget.floor = column.to;
                    break;
                }
            }
            divided += flows.divided;
            Ok(false)
        })?;
        self.remember_notes(&divided_note(divided));
        counted.truncated |= truncated;
        Ok(counted)
    }

    /// Returns the paths of the flows of some columns, and whether there are more flows than the limit.
    fn column_paths(&self, columns: &Columns) -> Result<(TakenPaths, bool), QueryError> {
        let deadline = self.deadline();
        let span = Span::new(columns.from, columns.to);
        let flows = self.read_span_flows(span, None, &deadline)?;
        let search = PathSearch {
            from: columns.from,
            to: columns.to,
            only_last: false,
        };
        let taken = self.find_paths(&flows.searched(span), search, &deadline)?;
        Ok((taken, flows.truncated))
    }

    /// Adds events to the tally, with the `parts` that it needs.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn event_traffic(
        &self,
        columns: &Columns,
        parts: EventParts,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        let limits = Limits {
            rows: MAX_EVENT_COST,
            locations: MAX_LOCATIONS,
        };
        self.events_within(columns, parts, limits, tally)
    }

    fn events_within(
        &self,
        columns: &Columns,
        parts: EventParts,
        limits: Limits,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.each_file(columns, tally, limits.rows, |names, features, budget, tally| {
            if parts.is_kind_only() && features.spans && columns.column >= MINUTE {
                return count_minutes(names.conn, columns, tally).map(|()| false);
            }
            let (conn, known, file) = names.origin();
            let bounds = if parts.values {
                tally.bounds()
            } else {
                Some(Default::default())
            };
            let mut reader: Box<dyn ColumnReader> = match bounds {
                Some(bounds) if features.blocks => {
                    Box::new(CountReader::new(names, parts, bounds, limits.locations))
                }
                _ => Box::new(read_one_by_one(names, features, parts, budget)?),
            };
            for column in columns.backwards(budget.floor) {
                let mut read = reader.column(column, budget, tally)?;
                if read == Read::Damaged {
                    // The events of its blocks are also stored as rows.
                    let names = Names::new(conn, known, file)?;
                    reader = Box::new(read_one_by_one(names, features, parts, budget)?);
                    read = reader.column(column, budget, tally)?;
                }
                if read != Read::Whole {
                    budget.floor = column.to;
                    break;
                }
            }
            Ok(false)
        })
    }

    /// Adds values of nodes, queues or links to the tally.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn series_traffic(
        &self,
        columns: &Columns,
        metric: Metric,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.each_file(columns, tally, MAX_ROWS, |names, features, budget, tally| {
            let mut interval = columns.interval;
            if !features.spans {
                interval = interval.min(60);
            }
            let mut series = SeriesReader {
                conn: names.conn,
                metric,
                columns,
                numbers: HashMap::new(),
                minutes: HashMap::new(),
            };
            let has_sums = features.spans && interval >= 60;
            let sql = if has_sums { SUMS_SQL } else { ROLLUPS_SQL };
            for column in columns.backwards(budget.floor) {
                let piece = Piece {
                    interval,
                    from: column.from,
                    to: column.to,
                };
                if !series.read(sql, piece, budget, tally)? {
                    budget.floor = column.to;
                    return Ok(false);
                }
            }
            if has_sums {
                series.read_tail(budget, tally)?;
            }
            Ok(false)
        })
    }

    /// Calls `read` for each file of a span, latest first. It returns whether the answer is truncated.
    fn each_file(
        &self,
        columns: &Columns,
        tally: &mut dyn Tally,
        rows: usize,
        mut read: impl FnMut(Names<'_>, Features, &mut Budget, &mut dyn Tally) -> rusqlite::Result<bool>,
    ) -> Result<Counted, QueryError> {
        self.with_retry(|| {
            tally.reset();
            let deadline = self.deadline();
            let mut budget = Budget {
                rows,
                floor: columns.from,
            };
            let mut truncated = false;
            let files = self.files_in(columns.from, columns.to)?;
            for file in files.iter().rev() {
                // A column that spans several files is read from all of them, so that it is complete.
                budget.rows = budget.rows.max(MIN_ROWS_PER_FILE);
                truncated |= self.query_file(file, &deadline, |conn, features| {
                    let names = Names::new(conn, self.keys(), file)?;
                    read(names, features, &mut budget, &mut *tally)
                })?;
            }
            Ok(budget.counted(columns, truncated))
        })
    }
}

/// Returns a reader of event rows. The budget is raised to a minimum, whatever was read before.
fn read_one_by_one<'a>(
    names: Names<'a>,
    features: Features,
    parts: EventParts,
    budget: &mut Budget,
) -> rusqlite::Result<EventReader<'a>> {
    budget.rows = budget.rows.max(MIN_ROWS_PER_FILE * events::ROW_COST);
    EventReader::new(names, features, parts)
}

/// Reader of the node, queue and link rollups in one file.
struct SeriesReader<'a> {
    conn: &'a Connection,
    metric: Metric,
    columns: &'a Columns,
    numbers: HashMap<SeriesKey, u32>,
    /// End of the last one-minute rollup, for the series that have it.
    minutes: HashMap<SeriesKey, Nanos>,
}

impl SeriesReader<'_> {
    /// Reads the rollups of a piece. Returns false if the budget ended first.
    fn read(
        &mut self,
        sql: &str,
        piece: Piece,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        let mut select = self.conn.prepare_cached(sql)?;
        let metric = self.metric as i64;
        let mut rows = select.query(params![piece.interval, metric, int(piece.from), int(piece.to)])?;
        while let Some(row) = rows.next()? {
            let Some(key) = series_key(row, self.metric)? else {
                continue;
            };
            let sum = SpanSum::read(row, 3, piece.interval)?;
            if self.minutes.get(&key).is_some_and(|end| sum.first < *end) {
                continue;
            }
            let column = sum.first.saturating_sub(self.columns.from) / self.columns.column;
            let Ok(column) = usize::try_from(column) else {
                continue;
            };
            let number = *self.numbers.entry(key).or_insert_with(|| tally.series(&key));
            tally.seen(column);
            tally.add(number, column, &sum);
            if !budget.spend(1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the one-second rollups of the current minute, which has no rollup yet.
    fn read_tail(&mut self, budget: &mut Budget, tally: &mut dyn Tally) -> rusqlite::Result<()> {
        let to = self.columns.to;
        let last = self.last_minute()?.max(self.columns.from);
        let mut select = self.conn.prepare_cached(SUMS_SQL)?;
        let mut rows = select.query(params![60, self.metric as i64, int(last), int(last + MINUTE)])?;
        while let Some(row) = rows.next()? {
            if let Some(key) = series_key(row, self.metric)? {
                self.minutes.insert(key, last + MINUTE);
            }
        }
        drop(rows);
        let tail = Piece {
            interval: 1,
            from: last,
            to: to.min(last + MAX_MINUTE_DELAY),
        };
        self.read(ROLLUPS_SQL, tail, budget, tally)?;
        Ok(())
    }

    /// Returns the start of the last minute that has rollups, or a time [`MAX_MINUTE_DELAY`] before the newest rollup if no
    /// minute has ended yet.
    fn last_minute(&self) -> rusqlite::Result<Nanos> {
        let to = int(self.columns.to);
        let sql = "SELECT max(ts) FROM f0.span_data WHERE interval = 60 AND metric = ?1 AND ts < ?2";
        let mut select = self.conn.prepare_cached(sql)?;
        let minute = select.query_row([self.metric as i64, to], |row| optional(row, 0))?;
        if let Some(minute) = minute {
            return Ok(minute);
        }
        let sql = "SELECT max(ts) FROM f0.rollup_data WHERE ts < ?1";
        let mut select = self.conn.prepare_cached(sql)?;
        let newest = select.query_row([to], |row| unsigned(row, 0))?;
        Ok(newest.saturating_sub(MAX_MINUTE_DELAY))
    }
}

fn series_key(row: &Row<'_>, metric: Metric) -> rusqlite::Result<Option<SeriesKey>> {
    // A negative number means none.
    let Some(node) = optional(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(SeriesKey {
        metric: metric as u8,
        node,
        interface: optional(row, 1)?,
        queue: optional(row, 2)?,
    }))
}

/// Adds events by kind only, from the counts per minute.
fn count_minutes(conn: &Connection, columns: &Columns, tally: &mut dyn Tally) -> rusqlite::Result<()> {
    let mut select =
        conn.prepare_cached("SELECT ts, kind, count FROM f0.minute_data WHERE ts >= ?1 AND ts < ?2")?;
    let mut rows = select.query([int(columns.from), int(columns.to)])?;
    let mut numbers: HashMap<i64, u32> = HashMap::new();
    while let Some(row) = rows.next()? {
        let ts = unsigned(row, 0)?;
        let kind: i64 = row.get(1)?;
        let column = usize::try_from((ts - columns.from.min(ts)) / columns.column).unwrap_or(usize::MAX);
        tally.seen(column);
        let Some(known) = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind)) else {
            debug_assert!(kind == REPORTS_KIND, "an unknown kind");
            continue;
        };
        let group = EventGroup {
            kind: Some(*known),
            ..EventGroup::default()
        };
        let number = *numbers.entry(kind).or_insert_with(|| tally.event(&group));
        tally.add(number, column, &SpanSum::counted(unsigned(row, 2)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_whole_multiples_and_cover_the_span() {
        let columns = Columns::new(61 * SECOND, 181 * SECOND, 7 * SECOND);
        assert_eq!(
            (columns.from() / SECOND, columns.to() / SECOND, columns.count()),
            (56, 182, 18)
        );
        let minutes = Columns::new(61 * SECOND, 181 * SECOND, 90 * SECOND);
        assert_eq!(
            (
                minutes.column() / SECOND,
                minutes.from() / SECOND,
                minutes.to() / SECOND
            ),
            (60, 60, 240)
        );
        let backwards: Vec<_> = minutes
            .backwards(120 * SECOND)
            .map(|column| (column.index, column.from / SECOND))
            .collect();
        assert_eq!(backwards, [(2, 180), (1, 120)]);
        let intervals =
            [1, 30, 60, 120, 600, 1800, 3600, 7200].map(|s| Columns::new(0, 1, s * SECOND).interval);
        assert_eq!(intervals, [1, 1, 60, 60, 600, 600, 3600, 3600]);
        // A backward span has no columns; an endless one is bounded.
        assert_eq!(Columns::new(600 * SECOND, 0, SECOND).count(), 0);
        assert!(Columns::new(0, u64::MAX, MINUTE).count() <= 1_001);
    }

    /// Tally that only counts the events.
    #[derive(Default)]
    struct Total(u64);

    impl Tally for Total {
        fn reset(&mut self) {
            self.0 = 0;
        }
        fn seen(&mut self, _: usize) {}
        fn flow(&mut self, _: &FlowKey, _: &[u32]) -> u32 {
            0
        }
        fn event(&mut self, _: &EventGroup) -> u32 {
            0
        }
        fn excludes(&self, event: &EventGroup) -> bool {
            event.kind == Some(Kind::Drop)
        }
        fn bounds(&self) -> Option<[Vec<u64>; Metric::COUNT]> {
            Some(Default::default())
        }
        fn series(&mut self, _: &SeriesKey) -> u32 {
            0
        }
        fn add(&mut self, _: u32, _: usize, sum: &SpanSum) {
            self.0 += sum.count;
        }
    }

    /// A file with an event at each of so many nodes, and as many drops at others, and then two minutes with one node.
    fn at_nodes(dir: &testkit::records::Dir, nodes: u32) -> Reader {
        use collector::{Batch, Event, Output as _};
        use testkit::records::{START, bare};
        let store = crate::Store::open(crate::Config::new(dir.path())).unwrap();
        let mut batch = Batch::with_capacity(64 << 10);
        for node in 0..nodes {
            let change = Event {
                kind: Kind::Change,
                node: Some(node),
                ..bare(START)
            };
            batch.event(&change, &[]);
            batch.event(
                &Event {
                    kind: Kind::Drop,
                    node: Some(nodes + node),
                    ..change
                },
                &[],
            );
        }
        for minute in 1..3 {
            let change = Event {
                kind: Kind::Change,
                node: Some(1),
                ..bare(START + minute * MINUTE)
            };
            batch.event(&change, &[]);
        }
        store.submit(batch);
        store.close();
        Reader::open(dir.path()).unwrap()
    }

    #[test]
    fn locations_are_numbered_up_to_a_limit_and_only_those_that_are_wanted() {
        use testkit::records::{Dir, START};
        let dir = Dir::new("traffic-locations");
        let reader = at_nodes(&dir, 1_000);
        let columns = Columns::new(START, START + 3 * MINUTE, MINUTE);
        let by_location = EventParts {
            location: true,
            ..EventParts::default()
        };
        let by_flow_too = EventParts {
            flow: true,
            ..by_location
        };
        for parts in [
            by_location,
            by_flow_too,
            EventParts {
                values: true,
                ..by_location
            },
        ] {
            let ask = |rows, locations| {
                let mut total = Total::default();
                (
                    reader
                        .events_within(&columns, parts, Limits { rows, locations }, &mut total)
                        .unwrap(),
                    total.0,
                )
            };
            // Those of the drops, which nobody wants, take no room.
            assert_eq!(
                ask(MAX_EVENT_COST, 1_000),
                (Counted::default(), 1_002),
                "{parts:?}"
            );
            let (cut, found) = ask(MAX_EVENT_COST, 999);
            assert_eq!(cut.from, Some(START + MINUTE), "{parts:?}");
            assert!((2..=1_001).contains(&found), "{found}");
        }
    }

    #[test]
    fn of_each_file_as_many_events_are_read_with_blocks_as_without() {
        use testkit::records::{Dir, START};
        let dir = Dir::new("traffic-least");
        let reader = at_nodes(&dir, 5_000);
        let columns = Columns::new(START, START + 3 * MINUTE, MINUTE);
        let parts = EventParts {
            location: true,
            any_kind: true,
            ..EventParts::default()
        };
        let ask = |reader: &Reader| {
            let mut total = Total::default();
            (
                reader
                    .events_within(
                        &columns,
                        parts,
                        Limits {
                            rows: 0,
                            locations: 20_000,
                        },
                        &mut total,
                    )
                    .unwrap(),
                total.0,
            )
        };
        assert_eq!(ask(&reader).1, 10_002);
        for name in dir.names().iter().filter(|name| name.ends_with(".db")) {
            let conn = Connection::open(dir.path().join(name)).unwrap();
            conn.execute_batch("DROP TABLE block_data; PRAGMA user_version = 5")
                .unwrap();
        }
        let reader = Reader::open(dir.path()).unwrap();
        assert_eq!(ask(&reader), (Counted::default(), 10_002));
    }
}

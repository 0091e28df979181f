//! What flows, events, nodes and queues did over time, column by column, added up by whatever a caller groups them by.
//!
//! Columns are read from the latest to the earliest, and an answer reads a bounded number of rows: of what is more, the latest is counted.

mod counts;
mod events;
mod flows;
mod names;

use std::collections::HashMap;

use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::guard::Deadline;
use crate::identity::FileIdentity;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::schema::Features;
use crate::spans::{MINUTE, Piece, SECOND, SeriesKey, Span, SpanSum};
use crate::summary::{NOTHING, REPORTS};
use crate::taken::{int, unsigned};

use self::counts::CountReader;
use self::events::EventReader;
use self::flows::FlowReader;
use self::names::Names;

/// A span of time, divided into columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    from: Nanos,
    to: Nanos,
    column: Nanos,
    interval: u32,
    known_to: Nanos,
}

/// What is read of events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventParts {
    /// Their flows.
    pub flow: bool,
    /// Their paths.
    pub path: bool,
    /// Node, interface and queue.
    pub place: bool,
    /// Their metrics.
    pub metric: bool,
    /// Rules and drop reasons.
    pub cause: bool,
    /// Their values, and the first values of flows.
    pub values: bool,
    /// Their kinds do not matter.
    pub any_kind: bool,
}

/// Events that are the same in what was asked of them. What was not asked is `None`, or empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EventGroup {
    /// Their kind.
    pub kind: Option<Kind>,
    /// Their metric.
    pub metric: Option<Metric>,
    /// Their flow.
    pub flow: Option<FlowKey>,
    /// Their path.
    pub path: Vec<u32>,
    /// Their node.
    pub node: Option<u32>,
    /// Their interface.
    pub interface: Option<u32>,
    /// Their queue.
    pub queue: Option<u8>,
    /// Their rule.
    pub rule: Option<String>,
    /// Their drop reason.
    pub reason: Option<u8>,
    /// Their value.
    pub value: Option<u64>,
    /// Of a new flow: its first flow latency, and its first hop latencies.
    pub first: Option<(Option<u64>, Vec<u32>)>,
}

/// Adds values up. Each method that gives a number gives the same one for the same: it is called once for many values.
pub trait Tally {
    /// Forgets everything: the question is asked again.
    fn reset(&mut self);
    /// Something was stored in this column, whatever it is.
    fn seen(&mut self, column: usize);
    /// The number of a flow that took a path; empty: it is not known.
    fn flow(&mut self, flow: &FlowKey, path: &[u32]) -> u32;
    /// The number of events that are the same.
    fn event(&mut self, event: &EventGroup) -> u32;
    /// Whether no event is wanted that has this, whatever else it has. What is `None`, or empty, is not said.
    fn excludes(&self, event: &EventGroup) -> bool {
        let _ = event;
        false
    }
    /// A number that flows have in common which are the same in events; `None`: it is not known.
    fn alike(&mut self, flow: &FlowKey) -> Option<u32> {
        let _ = flow;
        None
    }
    /// Of each metric, where the answer about a value may change: at these values, in their order, and between two of them it is the same. `None`: each
    /// value is another one.
    fn bounds(&self) -> Option<[Vec<u64>; Metric::COUNT]> {
        None
    }
    /// The number of a node, queue or link.
    fn series(&mut self, key: &SeriesKey) -> u32;
    /// Adds values of what has this number.
    fn add(&mut self, number: u32, column: usize, sum: &SpanSum);
}

/// How much was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Earlier columns were not counted: an answer reads a bounded number of rows.
    pub from: Option<Nanos>,
    /// Some flows are counted without their paths, because there are more changes of paths than are considered.
    pub truncated: bool,
}

impl Columns {
    /// Columns of this length, at whole multiples of it, so that they stay the same while time passes. `column`: whole seconds, or whole
    /// minutes from a minute on.
    pub fn of((from, to): (Nanos, Nanos), column: Nanos) -> Self {
        let column = match column.max(SECOND) {
            short if short < MINUTE => short / SECOND * SECOND,
            long => long / MINUTE * MINUTE,
        };
        let to = to.min(LATEST - column).max(from.min(LATEST - column));
        let (from, to) = (from.min(to) / column * column, to.div_ceil(column) * column);
        let from = from.max(to.saturating_sub(column.saturating_mul(MOST_COLUMNS)));
        let fits = |interval: &u32| column.is_multiple_of(u64::from(*interval) * SECOND);
        let interval = [3600, 600, 60].into_iter().find(fits).unwrap_or(1);
        Self {
            from,
            to,
            column,
            interval,
            known_to: Nanos::MAX,
        }
    }

    /// The same, with flows' reports of minutes before this time alone: a minute is stored bit by bit, after its end.
    #[must_use]
    pub fn until(self, known_to: Nanos) -> Self {
        Self { known_to, ..self }
    }

    /// The beginning of the first column.
    pub fn from(&self) -> Nanos {
        self.from
    }

    /// The end of the last column.
    pub fn to(&self) -> Nanos {
        self.to
    }

    /// The end of a column.
    pub fn end_of(&self, number: usize) -> Nanos {
        (self.from + (number as u64 + 1).saturating_mul(self.column)).min(self.to)
    }

    /// The length of a column, ns.
    pub fn column(&self) -> Nanos {
        self.column
    }

    /// Columns for flows: at most `most`, and so few that an answer is fast with as many flows and rollups of them as there are.
    pub fn of_flows(span: (Nanos, Nanos), most: u64, (flows, rollups): (u64, u64)) -> Self {
        let length = span.1.saturating_sub(span.0);
        let least = length.div_ceil(most.saturating_sub(1).max(1));
        let rows = |column: Nanos| {
            let interval = u64::from(Self::of((0, 0), column).interval) * SECOND;
            flows.max(1).saturating_mul(length / interval).min(rollups)
        };
        let is_fast = |column: &Nanos| *column >= 3600 * SECOND || rows(*column) <= FAST_ROWS;
        let offered = FLOW_COLUMNS
            .into_iter()
            .map(|minutes| minutes * MINUTE)
            .filter(|column| *column >= least);
        let days = least.div_ceil(1440 * MINUTE) * 1440 * MINUTE;
        let column = offered
            .clone()
            .find(is_fast)
            .or_else(|| offered.max())
            .unwrap_or(days);
        Self::of(span, column)
    }

    /// Which rollups of flows are counted: as long ones as a column has, and around the end of what is known shorter ones. In the order of time.
    pub fn pieces(&self) -> Vec<Piece> {
        let interval = self.interval.max(60);
        let to = self.known_to.clamp(self.from, self.to);
        let whole = if interval == 60 {
            to
        } else {
            self.from + (to - self.from) / self.column * self.column
        };
        let mut pieces = vec![Piece {
            interval,
            from: self.from,
            to: whole,
        }];
        pieces.extend(Span::of(whole, to).pieces());
        pieces.retain(|piece| piece.from < piece.to);
        pieces.sort_unstable_by_key(|piece| piece.from);
        pieces
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        usize::try_from((self.to - self.from) / self.column).unwrap_or(usize::MAX)
    }

    /// The columns from the last to the first, of those that begin at `floor` or later: number, beginning, end.
    fn backwards(self, floor: Nanos) -> impl Iterator<Item = (usize, Nanos, Nanos)> {
        let at = move |i: usize| self.from + i as u64 * self.column;
        (0..self.count())
            .rev()
            .map(move |i| (i, at(i), at(i + 1)))
            .take_while(move |(_, from, _)| *from >= floor)
    }
}

/// Rows that may still be read, and from when on columns are counted.
struct Budget {
    rows: usize,
    floor: Nanos,
}

impl EventParts {
    /// Whether their kinds are all that is asked.
    fn is_kind(self) -> bool {
        Self {
            any_kind: false,
            ..self
        } == Self::default()
    }
}

impl Budget {
    /// Called after each row of a column. Returns whether the next row may be read.
    fn take(&mut self) -> bool {
        self.spend(1)
    }

    /// The same for what costs as much as so many rows.
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

/// How far a column was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Whole,
    /// There is more than may be read.
    Part,
    /// A block of it cannot be read: nothing of the column was handed over.
    Damaged,
}

impl Read {
    fn of(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::Part }
    }
}

/// How much of events is read.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// What the events of all files may cost.
    rows: usize,
    /// Places of one file.
    places: usize,
}

/// Reads a column of one file: its number, its beginning, its end.
trait ColumnReader {
    fn column(
        &mut self,
        column: (usize, Nanos, Nanos),
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Read>;
}

impl Reader {
    /// Columns of a span of time for flows: at most so many, and so few that an answer is fast with the flows that there are.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn flow_columns(&self, span: (Nanos, Nanos), most: u64) -> Result<Columns, QueryError> {
        let files = self.with_retry(|| self.facts_of(span.0, span.1))?;
        let flows = files.iter().map(|facts| facts.count("flows")).max().unwrap_or(0);
        let rollups = files.iter().map(|facts| facts.count("rollups")).sum();
        Ok(Columns::of_flows(span, most, (flows, rollups)))
    }

    /// Adds up reports of flows, and their latencies. They are counted by the minute, and a minute's reports on the path that the flow had at the
    /// end of the interval of the rollup that is read: a minute, ten minutes or an hour.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_traffic(
        &self,
        columns: &Columns,
        by_path: bool,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.each_file(columns, tally, MOST_ROWS, |names, features, (budget, tally)| {
            let mut flows = FlowReader::new(names, features, (columns, by_path))?;
            let floor = budget.floor;
            for (column, from, to) in columns.backwards(floor) {
                if !flows.column((column, from, to), budget, tally)? {
                    budget.floor = to;
                    break;
                }
            }
            Ok(flows.truncated)
        })
    }

    /// Adds up events. `parts`: what is asked of them.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn event_traffic(
        &self,
        columns: &Columns,
        parts: EventParts,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.events_within(
            columns,
            parts,
            Limits {
                rows: MOST_EVENTS,
                places: MOST_PLACES,
            },
            tally,
        )
    }

    fn events_within(
        &self,
        columns: &Columns,
        parts: EventParts,
        limits: Limits,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.each_file(columns, tally, limits.rows, |names, features, (budget, tally)| {
            if parts.is_kind() && features.spans && columns.column >= MINUTE {
                return counted_minutes(names.conn, columns, tally).map(|()| false);
            }
            let (conn, known, file) = names.origin();
            let one_by_one = |names, budget: &mut Budget| -> rusqlite::Result<Box<dyn ColumnReader>> {
                budget.rows = budget.rows.max(LEAST_ROWS * events::COST);
                Ok(Box::new(EventReader::new(names, features, parts)?))
            };
            let bounds = if parts.values {
                tally.bounds()
            } else {
                Some(Default::default())
            };
            let mut reader: Box<dyn ColumnReader> = match bounds.filter(|_| features.blocks) {
                Some(bounds) => Box::new(CountReader::new(names, parts, bounds, limits.places)),
                None => one_by_one(names, budget)?,
            };
            let floor = budget.floor;
            for place in columns.backwards(floor) {
                let mut read = reader.column(place, budget, tally)?;
                if read == Read::Damaged {
                    // What is in its blocks is also in rows.
                    reader = one_by_one(Names::new(conn, known, file)?, budget)?;
                    read = reader.column(place, budget, tally)?;
                }
                if read != Read::Whole {
                    budget.floor = place.2;
                    break;
                }
            }
            Ok(false)
        })
    }

    /// Adds up values of nodes, queues or links.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn series_traffic(
        &self,
        columns: &Columns,
        metric: Metric,
        tally: &mut dyn Tally,
    ) -> Result<Counted, QueryError> {
        self.each_file(columns, tally, MOST_ROWS, |names, features, (budget, tally)| {
            let conn = names.conn;
            let mut series = SeriesReader {
                metric,
                columns,
                numbers: HashMap::new(),
                minutes: HashMap::new(),
            };
            let interval = if features.spans {
                columns.interval
            } else {
                columns.interval.min(60)
            };
            let (is_added_up, floor) = (features.spans && interval >= 60, budget.floor);
            for (_, from, to) in columns.backwards(floor) {
                if !series.read(conn, (interval, is_added_up), (from, to), (budget, tally))? {
                    budget.floor = to;
                    return Ok(false);
                }
            }
            if is_added_up {
                series.tail(conn, (budget, tally))?;
            }
            Ok(false)
        })
    }

    /// Asks each file of a span, the latest first.
    fn each_file(
        &self,
        columns: &Columns,
        tally: &mut dyn Tally,
        rows: usize,
        mut read: impl FnMut(Names<'_>, Features, (&mut Budget, &mut dyn Tally)) -> rusqlite::Result<bool>,
    ) -> Result<Counted, QueryError> {
        self.with_retry(|| {
            tally.reset();
            let deadline: Deadline = self.deadline();
            let (mut budget, mut truncated) = (
                Budget {
                    rows,
                    floor: columns.from,
                },
                false,
            );
            let files: Vec<FileIdentity> = self.files_of(columns.from, columns.to)?;
            for file in files.iter().rev() {
                // What is in several files is read of all of them, so that a column is whole.
                budget.rows = budget.rows.max(LEAST_ROWS);
                truncated |= self.ask_file(file, &deadline, |conn, features| {
                    read(
                        Names::new(conn, self.keys(), file)?,
                        features,
                        (&mut budget, &mut *tally),
                    )
                })?;
            }
            Ok(budget.counted(columns, truncated))
        })
    }
}

/// Reads rollups of nodes, queues and links of one file.
struct SeriesReader<'a> {
    metric: Metric,
    columns: &'a Columns,
    numbers: HashMap<SeriesKey, u32>,
    /// Those that have a rollup of the last minute: its end.
    minutes: HashMap<SeriesKey, Nanos>,
}

impl SeriesReader<'_> {
    fn read(
        &mut self,
        conn: &Connection,
        (interval, is_added_up): (u32, bool),
        (from, to): (Nanos, Nanos),
        (budget, tally): (&mut Budget, &mut dyn Tally),
    ) -> rusqlite::Result<bool> {
        let mut select = conn.prepare_cached(if is_added_up { ADDED_UP } else { AS_INSERTED })?;
        let mut rows = select.query(params![interval, self.metric as i64, int(from), int(to)])?;
        while let Some(row) = rows.next()? {
            let Some(key) = series_key(row, self.metric)? else {
                continue;
            };
            let sum = SpanSum::read(row, 3, interval)?;
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
            if !budget.take() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The minute that has not ended has no rollup yet: its seconds are read.
    fn tail(
        &mut self,
        conn: &Connection,
        (budget, tally): (&mut Budget, &mut dyn Tally),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT max(ts) FROM f0.span_data WHERE interval = 60 AND metric = ?1 AND ts < ?2";
        let mut select = conn.prepare_cached(sql)?;
        let to = self.columns.to;
        let last: Option<i64> = select.query_row([self.metric as i64, int(to)], |row| row.get(0))?;
        let minute = last.and_then(|last| u64::try_from(last).ok());
        let last = match minute {
            Some(minute) => minute,
            // No minute has ended yet.
            None => {
                let mut select = conn.prepare_cached("SELECT max(ts) FROM f0.rollup_data WHERE ts < ?1")?;
                let newest: Option<i64> = select.query_row([int(to)], |row| row.get(0))?;
                newest
                    .and_then(|ts| u64::try_from(ts).ok())
                    .unwrap_or(0)
                    .saturating_sub(TAIL)
            }
        };
        let last = last.max(self.columns.from);
        let mut select = conn.prepare_cached(ADDED_UP)?;
        let mut rows = select.query(params![60, self.metric as i64, int(last), int(last + MINUTE)])?;
        while let Some(row) = rows.next()? {
            if let Some(key) = series_key(row, self.metric)? {
                self.minutes.insert(key, last + MINUTE);
            }
        }
        drop(rows);
        self.read(conn, (1, false), (last, to.min(last + TAIL)), (budget, tally))
            .map(drop)
    }
}

fn series_key(row: &Row<'_>, metric: Metric) -> rusqlite::Result<Option<SeriesKey>> {
    let part = |i| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(i)?.filter(|part| *part != NOTHING));
    let Some(node) = part(0)?.and_then(|node| u32::try_from(node).ok()) else {
        return Ok(None);
    };
    let interface = part(1)?.and_then(|part| u32::try_from(part).ok());
    let queue = part(2)?.and_then(|part| u8::try_from(part).ok());
    Ok(Some(SeriesKey {
        metric: metric as u8,
        node,
        interface,
        queue,
    }))
}

/// Events by kind alone, from the counts of minutes.
fn counted_minutes(conn: &Connection, columns: &Columns, tally: &mut dyn Tally) -> rusqlite::Result<()> {
    let mut select =
        conn.prepare_cached("SELECT ts, kind, count FROM f0.minute_data WHERE ts >= ?1 AND ts < ?2")?;
    let mut rows = select.query([int(columns.from), int(columns.to)])?;
    let mut numbers: HashMap<i64, u32> = HashMap::new();
    while let Some(row) = rows.next()? {
        let (ts, kind) = (unsigned(row, 0)?, row.get::<_, i64>(1)?);
        let column = usize::try_from((ts - columns.from.min(ts)) / columns.column).unwrap_or(usize::MAX);
        tally.seen(column);
        let Some(known) = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind)) else {
            debug_assert!(kind == REPORTS, "a kind that there is not");
            continue;
        };
        let group = EventGroup {
            kind: Some(*known),
            ..EventGroup::default()
        };
        let number = *numbers.entry(kind).or_insert_with(|| tally.event(&group));
        tally.add(
            number,
            column,
            &SpanSum {
                count: unsigned(row, 2)?,
                ..NO_VALUES
            },
        );
    }
    Ok(())
}

const ADDED_UP: &str = "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.span_data
                        WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1";
const AS_INSERTED: &str = "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.rollup_data
                           WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow IS NULL";
const NO_VALUES: SpanSum = SpanSum {
    count: 0,
    min: u64::MAX,
    max: 0,
    sum: 0,
    first: 0,
    last: 0,
};
/// Lengths of columns of flows, minutes.
const FLOW_COLUMNS: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440];
/// Rows that are read fast: in some 200 ms.
const FAST_ROWS: u64 = 600_000;
/// Rollups that are read for an answer.
const MOST_ROWS: usize = 4_000_000;
/// Events that are counted for an answer: of those that are read one by one, 3 million.
const MOST_EVENTS: usize = 48_000_000;
/// Places of a file where events are counted: some 100 MB.
const MOST_PLACES: usize = 1_000_000;
/// Rows that are read of each further file, once there are too many.
const LEAST_ROWS: usize = 65_536;
/// Flows, paths, and events that are the same, of which a file's numbers are remembered: some 40 MB.
const MOST_KNOWN: usize = 200_000;
/// After the last minute, values of seconds are read: minutes are stored up to two minutes late.
const TAIL: Nanos = 180 * SECOND;
/// The latest time that the store can hold.
const LATEST: Nanos = i64::MAX as u64;
/// Maximum number of columns.
const MOST_COLUMNS: u64 = 1_001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_whole_multiples_and_cover_the_span() {
        let columns = Columns::of((61 * SECOND, 181 * SECOND), 7 * SECOND);
        assert_eq!(
            (columns.from() / SECOND, columns.to() / SECOND, columns.count()),
            (56, 182, 18)
        );
        let minutes = Columns::of((61 * SECOND, 181 * SECOND), 90 * SECOND);
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
            .map(|(i, from, _)| (i, from / SECOND))
            .collect();
        assert_eq!(backwards, [(2, 180), (1, 120)]);
        let intervals =
            [1, 30, 60, 120, 600, 1800, 3600, 7200].map(|s| Columns::of((0, 1), s * SECOND).interval);
        assert_eq!(intervals, [1, 1, 60, 60, 600, 600, 3600, 3600]);
        // Backwards it is empty; for ever it is bounded.
        assert_eq!(Columns::of((600 * SECOND, 0), SECOND).count(), 0);
        assert!(Columns::of((0, u64::MAX), MINUTE).count() <= 1_001);
    }

    /// How many events were counted.
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
        store.submit(batch).unwrap();
        store.close();
        Reader::open(dir.path()).unwrap()
    }

    #[test]
    fn places_are_numbered_up_to_a_limit_and_only_those_that_are_wanted() {
        use testkit::records::{Dir, START};
        let dir = Dir::new("traffic-places");
        let reader = at_nodes(&dir, 1_000);
        let columns = Columns::of((START, START + 3 * MINUTE), MINUTE);
        let by_place = EventParts {
            place: true,
            ..EventParts::default()
        };
        let by_flow_too = EventParts {
            flow: true,
            ..by_place
        };
        for parts in [
            by_place,
            by_flow_too,
            EventParts {
                values: true,
                ..by_place
            },
        ] {
            let ask = |rows, places| {
                let mut total = Total::default();
                (
                    reader
                        .events_within(&columns, parts, Limits { rows, places }, &mut total)
                        .unwrap(),
                    total.0,
                )
            };
            // Those of the drops, which nobody wants, take no room.
            assert_eq!(ask(MOST_EVENTS, 1_000), (Counted::default(), 1_002), "{parts:?}");
            let (cut, found) = ask(MOST_EVENTS, 999);
            assert_eq!(cut.from, Some(START + MINUTE), "{parts:?}");
            assert!((2..=1_001).contains(&found), "{found}");
        }
    }

    #[test]
    fn of_each_file_as_many_events_are_read_with_blocks_as_without() {
        use testkit::records::{Dir, START};
        let dir = Dir::new("traffic-least");
        let reader = at_nodes(&dir, 5_000);
        let columns = Columns::of((START, START + 3 * MINUTE), MINUTE);
        let parts = EventParts {
            place: true,
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
                            places: 20_000,
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

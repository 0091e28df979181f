//! Time series of report, event and lost-report counts, for the charts of rates.

use std::collections::BTreeMap;

use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::Connection;

use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{self, int, unsigned};
use crate::spans::{MINUTE, SECOND, Span, for_each_minute, for_each_row};
use crate::summary::REPORTS_KIND;

/// Counts in one column of a time span.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RatePoint {
    /// Start of the column, ns since 1970.
    pub ts: Nanos,
    /// Number of reports with a flow latency; others have no per-minute counts.
    pub reports: u64,
    /// Number of all events.
    pub events: u64,
    /// Reports that never arrived.
    pub lost: u64,
}

/// The counts of a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RateSpan {
    /// The columns with any counts, in time order.
    pub points: Vec<RatePoint>,
    /// Events of the whole span by kind.
    pub kinds: BTreeMap<Kind, u64>,
}

impl Reader {
    /// Counts reports, events and losses over time in columns of `column` ns. Below a minute, events are counted one by one,
    /// and the reports of a minute are spread evenly.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn rate_span(&self, span: Span, column: Nanos) -> Result<RateSpan, QueryError> {
        self.rate_span_until(span, column, Nanos::MAX)
    }

    /// Like [`Reader::rate_span`], but counts only reports of minutes before `known_to`: a minute's reports are stored
    /// gradually after its end.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn rate_span_until(
        &self,
        span: Span,
        column: Nanos,
        known_to: Nanos,
    ) -> Result<RateSpan, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut tally = RateTally::new(span, column, known_to);
            for file in self.files_in(span.from(), span.to())? {
                self.query_file(&file, &deadline, |conn, features| {
                    if features.spans {
                        tally.read_minutes(conn)?;
                        if tally.column < MINUTE {
                            tally.count_events(conn)?;
                        }
                    } else {
                        tally.count_records(conn)?;
                    }
                    tally.read_losses(conn)
                })?;
            }
            Ok(tally.finish())
        })
    }
}

/// Accumulates the counts of a time span.
#[derive(Debug)]
pub struct RateTally {
    span: Span,
    column: Nanos,
    known_to: Nanos,
    points: BTreeMap<Nanos, RatePoint>,
    kinds: BTreeMap<Kind, u64>,
}

impl RateTally {
    /// Returns an empty tally for a time span. `column` is the length of a column, ns, at least 1 s. Reports of minutes from
    /// `known_to` on are ignored.
    pub fn new(span: Span, column: Nanos, known_to: Nanos) -> Self {
        Self {
            span,
            column: column.max(SECOND),
            known_to,
            points: BTreeMap::new(),
            kinds: BTreeMap::new(),
        }
    }

    /// Returns the column that contains `ts`.
    fn point(&mut self, ts: Nanos) -> &mut RatePoint {
        let ts = ts - (ts - self.span.from().min(ts)) % self.column;
        self.points.entry(ts).or_insert(RatePoint {
            ts,
            ..RatePoint::default()
        })
    }

    /// Adds events of any kind.
    pub fn add_events(&mut self, ts: Nanos, count: u64) {
        let point = self.point(ts);
        point.events = point.events.saturating_add(count);
    }

    /// Adds events to the number of their kind in the whole span.
    pub fn add_kind(&mut self, kind: Kind, count: u64) {
        let sum = self.kinds.entry(kind).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds the reports of the minute that starts at `ts`, spread evenly over its columns.
    pub fn add_reports(&mut self, ts: Nanos, count: u64) {
        if ts >= self.known_to {
            return;
        }
        for (ts, share) in spread(ts, count, self.column) {
            let point = self.point(ts);
            point.reports = point.reports.saturating_add(share);
        }
    }

    /// Adds reports that never arrived.
    pub fn add_lost(&mut self, ts: Nanos, count: u64) {
        let point = self.point(ts);
        point.lost = point.lost.saturating_add(count);
    }

    /// Returns the counts of the span.
    pub fn finish(self) -> RateSpan {
        RateSpan {
            points: self.points.into_values().collect(),
            kinds: self.kinds,
        }
    }

    fn read_minutes(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT ts, kind, count FROM f0.minute_data WHERE ts >= ?1 AND ts < ?2";
        for_each_row(conn, sql, self.span, |row| {
            let ts = unsigned(row, 0)?;
            let kind: i64 = row.get(1)?;
            let count = unsigned(row, 2)?;
            if kind == REPORTS_KIND {
                self.add_reports(ts, count);
                return Ok(());
            }
            if let Some(kind) = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind)) {
                self.add_kind(*kind, count);
            }
            if self.column >= MINUTE {
                self.add_events(ts, count);
            }
            Ok(())
        })
    }

    /// Counts the events of columns that are shorter than a minute.
    fn count_events(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT ts FROM f0.event_data WHERE ts >= ?1 AND ts < ?2";
        for_each_row(conn, sql, self.span, |row| {
            self.add_events(unsigned(row, 0)?, 1);
            Ok(())
        })
    }

    fn read_losses(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT ts, lost FROM f0.loss_data WHERE ts >= ?1 AND ts < ?2";
        for_each_row(conn, sql, self.span, |row| {
            self.add_lost(unsigned(row, 0)?, unsigned(row, 1)?);
            Ok(())
        })
    }

    /// Counts events and rollups one by one, for files without counts per minute.
    fn count_records(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let names = rows::kinds(conn)?;
        let sql = "SELECT ts, kind FROM f0.event_data WHERE ts >= ?1 AND ts < ?2";
        for_each_row(conn, sql, self.span, |row| {
            if let Some(kind) = names.get(&row.get(1)?) {
                self.add_kind(*kind, 1);
            }
            self.add_events(unsigned(row, 0)?, 1);
            Ok(())
        })?;
        let mut select = conn.prepare_cached(
            "SELECT count FROM f0.rollup_data WHERE ts = ?1 AND interval = 60 AND metric = ?2 AND flow IS NOT NULL",
        )?;
        for_each_minute(
            conn,
            self.span.from(),
            self.span.to().min(self.known_to),
            |minute| {
                let mut count = 0_u64;
                let mut rows = select.query([int(minute), Metric::FlowLatency as i64])?;
                while let Some(row) = rows.next()? {
                    count = count.saturating_add(unsigned(row, 0)?);
                }
                self.add_reports(minute, count);
                Ok(())
            },
        )
    }
}

/// Divides the count of a minute evenly among the columns that start in it. Yields start times and shares.
fn spread(ts: Nanos, count: u64, column: Nanos) -> impl Iterator<Item = (Nanos, u64)> {
    let parts = MINUTE.div_ceil(column.max(1)).max(1);
    (0..parts).map(move |part| {
        let share = count / parts + u64::from(part < count % parts);
        (ts.saturating_add(part * column.min(MINUTE)), share)
    })
}

//! What was received over time, counted.

use std::collections::BTreeMap;

use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::Connection;

use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows;
use crate::spans::{MINUTE, SECOND, Span, each, each_minute};
use crate::summary::REPORTS;
use crate::taken::{int, unsigned};

/// Counts of a part of a span.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RatePoint {
    /// Its beginning.
    pub ts: Nanos,
    /// Reports of flows.
    pub reports: u64,
    /// Events.
    pub events: u64,
    /// Reports that never arrived.
    pub lost: u64,
}

/// Counts over time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RateSpan {
    /// The parts in which something was counted, in the order of time.
    pub points: Vec<RatePoint>,
    /// Events of the whole span by kind.
    pub kinds: BTreeMap<Kind, u64>,
}

impl Reader {
    /// Counts over time. `column`: length of a part, ns; below a minute, events are counted one by one, and reports by the minute.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn rate_span(&self, span: Span, column: Nanos) -> Result<RateSpan, QueryError> {
        self.rate_span_until(span, column, Nanos::MAX)
    }

    /// The same, with reports of minutes before `known_to` alone: a minute is stored bit by bit, after its end.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn rate_span_until(
        &self,
        span: Span,
        column: Nanos,
        known_to: Nanos,
    ) -> Result<RateSpan, QueryError> {
        let column = column.max(SECOND);
        self.with_retry(|| {
            let mut points: BTreeMap<Nanos, RatePoint> = BTreeMap::new();
            let (mut kinds, deadline) = (BTreeMap::new(), self.deadline());
            for file in self.files_of(span.from(), span.to())? {
                self.ask_file(&file, &deadline, |conn, features| {
                    let mut at = |ts: Nanos, add: &dyn Fn(&mut RatePoint)| {
                        let ts = ts - (ts - span.from().min(ts)) % column;
                        add(points.entry(ts).or_insert(RatePoint {
                            ts,
                            ..RatePoint::default()
                        }));
                    };
                    match features.spans {
                        true => read_minutes(conn, (span, column, known_to), &mut kinds, &mut at)?,
                        false => count_records(conn, (span, column, known_to), &mut kinds, &mut at)?,
                    }
                    if features.spans && column < MINUTE {
                        each(
                            conn,
                            "SELECT ts FROM f0.event_data WHERE ts >= ?1 AND ts < ?2",
                            span,
                            |row| {
                                at(unsigned(row, 0)?, &|point| point.events += 1);
                                Ok(())
                            },
                        )?;
                    }
                    each(
                        conn,
                        "SELECT ts, lost FROM f0.loss_data WHERE ts >= ?1 AND ts < ?2",
                        span,
                        |row| {
                            let lost = unsigned(row, 1)?;
                            at(unsigned(row, 0)?, &|point| {
                                point.lost = point.lost.saturating_add(lost)
                            });
                            Ok(())
                        },
                    )
                })?;
            }
            Ok(RateSpan {
                points: points.into_values().collect(),
                kinds,
            })
        })
    }
}

/// Adds to the part of a span in which a time is.
type AddAt<'a> = dyn FnMut(Nanos, &dyn Fn(&mut RatePoint)) + 'a;

fn read_minutes(
    conn: &Connection,
    (span, column, known_to): (Span, Nanos, Nanos),
    kinds: &mut BTreeMap<Kind, u64>,
    at: &mut AddAt<'_>,
) -> rusqlite::Result<()> {
    let sql = "SELECT ts, kind, count FROM f0.minute_data WHERE ts >= ?1 AND ts < ?2";
    each(conn, sql, span, |row| {
        let (ts, kind, count) = (unsigned(row, 0)?, row.get::<_, i64>(1)?, unsigned(row, 2)?);
        if kind != REPORTS {
            if let Some(kind) = usize::try_from(kind).ok().and_then(|kind| Kind::ALL.get(kind)) {
                let sum = kinds.entry(*kind).or_default();
                *sum = sum.saturating_add(count);
            }
            if column >= MINUTE {
                at(ts, &|point| point.events = point.events.saturating_add(count));
            }
            return Ok(());
        }
        if ts < known_to {
            add_reports(ts, count, column, at);
        }
        Ok(())
    })
}

fn add_reports(ts: Nanos, count: u64, column: Nanos, at: &mut AddAt<'_>) {
    for (ts, share) in spread(ts, count, column) {
        at(ts, &|point| point.reports = point.reports.saturating_add(share));
    }
}

/// What was counted in a minute, spread evenly over the columns that begin in it.
pub fn spread(ts: Nanos, count: u64, column: Nanos) -> impl Iterator<Item = (Nanos, u64)> {
    let parts = MINUTE.div_ceil(column.max(1)).max(1);
    let share = move |part| count / parts + u64::from(part < count % parts);
    (0..parts).map(move |part| (ts.saturating_add(part * column.min(MINUTE)), share(part)))
}

/// The same from a file without counts of minutes: its events and rollups, one by one.
fn count_records(
    conn: &Connection,
    (span, column, known_to): (Span, Nanos, Nanos),
    kinds: &mut BTreeMap<Kind, u64>,
    at: &mut AddAt<'_>,
) -> rusqlite::Result<()> {
    let names = rows::kinds(conn)?;
    each(
        conn,
        "SELECT ts, kind FROM f0.event_data WHERE ts >= ?1 AND ts < ?2",
        span,
        |row| {
            if let Some(kind) = names.get(&row.get(1)?) {
                *kinds.entry(*kind).or_default() += 1;
            }
            at(unsigned(row, 0)?, &|point| point.events += 1);
            Ok(())
        },
    )?;
    let mut select = conn.prepare_cached(
        "SELECT count FROM f0.rollup_data WHERE ts = ?1 AND interval = 60 AND metric = ?2 AND flow IS NOT NULL",
    )?;
    each_minute(conn, (span.from(), span.to().min(known_to)), |minute| {
        let mut count = 0_u64;
        let mut rows = select.query([int(minute), Metric::FlowLatency as i64])?;
        while let Some(row) = rows.next()? {
            count = count.saturating_add(unsigned(row, 0)?);
        }
        add_reports(minute, count, column, at);
        Ok(())
    })
}

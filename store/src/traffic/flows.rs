//! Scans the latency rollups of flows, column by column, using the longest rollups that fit a column.

use collector::event::Nanos;
use detect::Metric;
use rusqlite::params;

use super::names::Names;
use super::{Budget, ColumnSpan, Columns, MAX_CACHED, Tally};
use crate::hasher::FastMap;
use crate::paths::{PathTimes, read_all_paths};
use crate::rows::int;
use crate::schema::Features;
use crate::spans::{Piece, Span, SpanSum, for_each_minute};
use crate::summary::ABSENT;

/// Rollups of single minutes, and sums of 10 minutes or an hour (module `summary`), with equal columns.
const MINUTES_SQL: &str = "SELECT flow, ts, count, min, max, sum FROM f0.rollup_data
                       WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
const SUMS_SQL: &str = "SELECT flow, ts, count, min, max, sum FROM f0.span_data
                      WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";

/// Reader of the flow rollups in one file.
pub(super) struct FlowReader<'a> {
    names: Names<'a>,
    features: Features,
    columns: &'a Columns,
    paths: PathTimes,
    /// The tally's numbers by flow ID and path ID; `None` for an invalid flow.
    numbers: FastMap<(i64, i64), Option<u32>>,
    pub(super) truncated: bool,
}

impl<'a> FlowReader<'a> {
    pub(super) fn new(
        names: Names<'a>,
        features: Features,
        columns: &'a Columns,
        by_path: bool,
    ) -> rusqlite::Result<Self> {
        let (paths, truncated) = if by_path {
            read_all_paths(names.conn, features, columns.from, columns.to)?
        } else {
            (PathTimes::default(), false)
        };
        Ok(Self {
            names,
            features,
            columns,
            paths,
            numbers: FastMap::default(),
            truncated,
        })
    }

    /// Reads a column. Returns false if the budget ended first.
    pub(super) fn column(
        &mut self,
        column: ColumnSpan,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        let mut interval = 60;
        if self.features.spans {
            interval = self.columns.interval.max(60);
        }
        let ColumnSpan { index, from, to } = column;
        if interval == 60 || to > self.columns.known_to {
            let to = to.min(self.columns.known_to);
            return self.pieces(ColumnSpan { index, from, to }, budget, tally);
        }
        let piece = Piece { interval, from, to };
        self.read(SUMS_SQL, piece, index, budget, tally)
    }

    /// Reads a column from one-minute rollups, or one that is not completely known yet.
    fn pieces(
        &mut self,
        column: ColumnSpan,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        let ColumnSpan { index, from, to } = column;
        let is_short = !self.features.spans || self.columns.interval <= 60;
        let pieces = if is_short || from >= to {
            vec![Piece {
                interval: 60,
                from,
                to,
            }]
        } else {
            Span::new(from, to).pieces()
        };
        let conn = self.names.conn;
        let mut is_complete = true;
        for piece in pieces {
            if piece.interval > 60 {
                is_complete = is_complete && self.read(SUMS_SQL, piece, index, budget, tally)?;
                continue;
            }
            // A minute's rollups have its start as their time, so only that instant is read.
            for_each_minute(conn, piece.from, piece.to, |minute| {
                let minute = Piece {
                    interval: 60,
                    from: minute,
                    to: minute + 1,
                };
                is_complete = is_complete && self.read(MINUTES_SQL, minute, index, budget, tally)?;
                Ok(())
            })?;
        }
        Ok(is_complete)
    }

    /// Adds the rollups of one interval length in `piece` to a column. Returns false if the budget ended first.
    fn read(
        &mut self,
        sql: &str,
        piece: Piece,
        column: usize,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        let conn = self.names.conn;
        let metric = Metric::FlowLatency as i64;
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query(params![piece.interval, metric, int(piece.from), int(piece.to)])?;
        while let Some(row) = rows.next()? {
            let flow = row.get::<_, Option<i64>>(0)?.unwrap_or(ABSENT);
            if flow == ABSENT {
                continue;
            }
            let sum = SpanSum::read(row, 1, piece.interval)?;
            tally.seen(column);
            if let Some(number) = self.number(flow, sum.last, tally)? {
                tally.add(number, column, &sum);
            }
            if !budget.spend(1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the tally's number of a flow with the path that it had at `end`, or `None` if the flow is invalid.
    fn number(&mut self, flow: i64, end: Nanos, tally: &mut dyn Tally) -> rusqlite::Result<Option<u32>> {
        let path = self.paths.get(&flow).map_or(0, |paths| {
            let after = paths.partition_point(|(ts, _)| *ts < end);
            paths.get(after.saturating_sub(1)).map_or(0, |(_, path)| *path)
        });
        if let Some(number) = self.numbers.get(&(flow, path)) {
            return Ok(*number);
        }
        let key = self.names.flow(flow)?;
        let nodes = self.names.path(path)?;
        let number = key.map(|key| tally.flow(&key, nodes));
        if self.numbers.len() >= MAX_CACHED {
            self.numbers.clear();
        }
        self.numbers.insert((flow, path), number);
        Ok(number)
    }
}

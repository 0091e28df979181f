//! Scans the latency rollups of flows, column by column, using the longest rollups that fit a column.

use std::collections::BTreeMap;

use collector::event::Nanos;
use detect::Metric;
use rusqlite::params;

use super::names::Names;
use super::{Budget, ColumnSpan, Columns, MAX_CACHED, Tally};
use crate::hasher::{FastMap, FastSet};
use crate::rows::int;
use crate::schema::Features;
use crate::spans::{MINUTE, Piece, Span, SpanSum, for_each_minute, read_some_flows};
use crate::summary::ABSENT;
use crate::taken::TakenPaths;

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
    /// The paths of the flows; empty if they are not needed.
    taken: &'a TakenPaths,
    /// The tally's numbers by flow ID and path; `None` for an invalid flow.
    numbers: FastMap<(i64, Option<usize>), Option<u32>>,
    /// Number of reports in minutes in which their flow changed its path.
    pub(super) divided: u64,
}

/// Rollups that are read as shorter ones: the flows, by the start of the rollup.
type DividedRollups = BTreeMap<Nanos, FastSet<i64>>;

impl<'a> FlowReader<'a> {
    pub(super) fn new(
        names: Names<'a>,
        features: Features,
        columns: &'a Columns,
        taken: &'a TakenPaths,
    ) -> Self {
        Self {
            names,
            features,
            columns,
            taken,
            numbers: FastMap::default(),
            divided: 0,
        }
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
        let mut divided = DividedRollups::new();
        while let Some(row) = rows.next()? {
            let flow = row.get::<_, Option<i64>>(0)?.unwrap_or(ABSENT);
            if flow == ABSENT {
                continue;
            }
            let sum = SpanSum::read(row, 1, piece.interval)?;
            tally.seen(column);
            self.add(flow, column, sum, &mut divided, tally)?;
            if !budget.spend(1) {
                return Ok(false);
            }
        }
        drop(rows);
        self.read_divided(piece, divided, column, budget, tally)
    }

    /// Reads rollups of `piece` in which flows changed their paths as shorter ones. Returns false if the budget ended first.
    fn read_divided(
        &mut self,
        piece: Piece,
        divided: DividedRollups,
        column: usize,
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        for (from, flows) in divided {
            let shorter = piece.shorter(from);
            let mut sums = Vec::new();
            let count = read_some_flows(self.names.conn, shorter, &flows, &mut |flow, sum| {
                sums.push((flow, sum));
            })?;
            let mut divided = DividedRollups::new();
            for (flow, sum) in sums {
                self.add(flow, column, sum, &mut divided, tally)?;
            }
            if !budget.spend(count) || !self.read_divided(shorter, divided, column, budget, tally)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds a rollup of a flow to a column, or to `divided` if it is to be read as shorter ones.
    fn add(
        &mut self,
        flow: i64,
        column: usize,
        sum: SpanSum,
        divided: &mut DividedRollups,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<()> {
        let mut path = None;
        if !self.taken.is_empty()
            && let Some(key) = self.names.flow(flow)?
            && let Some(paths) = self.taken.get(&key)
        {
            if sum.last - sum.first > MINUTE && paths.is_divided_within(sum.first, sum.last) {
                divided.entry(sum.first).or_default().insert(flow);
                return Ok(());
            }
            if paths.changes_within(sum.first, sum.last) {
                self.divided = self.divided.saturating_add(sum.count);
            }
            let starts = &paths.starts;
            let before = starts.partition_point(|(ts, _)| *ts < sum.last);
            path = before.checked_sub(1).map(|last| starts[last].1);
        }
        if let Some(number) = self.number(flow, path, tally)? {
            tally.add(number, column, &sum);
        }
        Ok(())
    }

    /// Returns the tally's number of a flow with a path, or `None` if the flow is invalid.
    fn number(
        &mut self,
        flow: i64,
        path: Option<usize>,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<Option<u32>> {
        if let Some(number) = self.numbers.get(&(flow, path)) {
            return Ok(*number);
        }
        let key = self.names.flow(flow)?;
        let nodes = path.map_or(&[][..], |path| &self.taken.nodes[path]);
        let number = key.map(|key| tally.flow(&key, nodes));
        if self.numbers.len() >= MAX_CACHED {
            self.numbers.clear();
        }
        self.numbers.insert((flow, path), number);
        Ok(number)
    }
}

//! Rollups of flows, column by column.

use collector::event::Nanos;
use detect::Metric;
use rusqlite::params;

use super::names::Names;
use super::{Budget, Columns, MOST_KNOWN, Tally};
use crate::hasher::FastMap;
use crate::schema::Features;
use crate::spans::{Piece, Span, SpanSum, each_minute};
use crate::summary::NOTHING;
use crate::taken::{Taken, int, takings};

/// Reads the rollups of flows of one file.
pub(super) struct FlowReader<'a> {
    names: Names<'a>,
    features: Features,
    columns: &'a Columns,
    /// When flows took which paths, in the order of time.
    taken: Taken,
    numbers: FastMap<(i64, i64), Option<u32>>,
    pub(super) truncated: bool,
}

impl<'a> FlowReader<'a> {
    pub(super) fn new(
        names: Names<'a>,
        features: Features,
        (columns, by_path): (&'a Columns, bool),
    ) -> rusqlite::Result<Self> {
        let (taken, truncated) = match by_path {
            true => takings(names.conn, features, (columns.from, columns.to))?,
            false => (Taken::default(), false),
        };
        Ok(Self {
            names,
            features,
            columns,
            taken,
            numbers: FastMap::default(),
            truncated,
        })
    }

    /// Reads a column. Returns whether all of it was read.
    pub(super) fn column(
        &mut self,
        (column, from, to): (usize, Nanos, Nanos),
        budget: &mut Budget,
        tally: &mut dyn Tally,
    ) -> rusqlite::Result<bool> {
        let interval = if self.features.spans {
            self.columns.interval.max(60)
        } else {
            60
        };
        if interval == 60 || to > self.columns.known_to {
            return self.pieces((from, to.min(self.columns.known_to)), column, (budget, tally));
        }
        self.read(LONGER, (interval, from, to), column, (budget, tally))
    }

    /// Reads a column of minutes, or one of which a part is not known yet.
    fn pieces(
        &mut self,
        (from, to): (Nanos, Nanos),
        column: usize,
        (budget, tally): (&mut Budget, &mut dyn Tally),
    ) -> rusqlite::Result<bool> {
        let all = Piece {
            interval: 60,
            from,
            to,
        };
        let is_short = !self.features.spans || self.columns.interval <= 60;
        let pieces = if is_short || from >= to {
            vec![all]
        } else {
            Span::of(from, to).pieces()
        };
        let (mut whole, conn) = (true, self.names.conn);
        for piece in pieces {
            if piece.interval > 60 {
                let read = (piece.interval, piece.from, piece.to);
                whole = whole && self.read(LONGER, read, column, (budget, tally))?;
                continue;
            }
            // Rollups of a minute stand at its beginning, among those of its first second only.
            each_minute(conn, (piece.from, piece.to), |minute| {
                whole = whole && self.read(MINUTES, (60, minute, minute + 1), column, (budget, tally))?;
                Ok(())
            })?;
        }
        Ok(whole)
    }

    fn read(
        &mut self,
        sql: &str,
        (interval, from, to): (u32, Nanos, Nanos),
        column: usize,
        (budget, tally): (&mut Budget, &mut dyn Tally),
    ) -> rusqlite::Result<bool> {
        let conn = self.names.conn;
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query(params![interval, Metric::FlowLatency as i64, int(from), int(to)])?;
        while let Some(row) = rows.next()? {
            let Some(flow) = row.get::<_, Option<i64>>(0)?.filter(|flow| *flow != NOTHING) else {
                continue;
            };
            let sum = SpanSum::read(row, 1, interval)?;
            tally.seen(column);
            if let Some(number) = self.number(flow, sum.last, tally)? {
                tally.add(number, column, &sum);
            }
            if !budget.take() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of a flow on the path that it had at `end`.
    fn number(&mut self, flow: i64, end: Nanos, tally: &mut dyn Tally) -> rusqlite::Result<Option<u32>> {
        let path = self.taken.get(&flow).map_or(0, |taken| {
            let after = taken.partition_point(|(ts, _)| *ts < end);
            taken.get(after.saturating_sub(1)).map_or(0, |(_, path)| *path)
        });
        if let Some(number) = self.numbers.get(&(flow, path)) {
            return Ok(*number);
        }
        let key = self.names.flow(flow)?;
        let nodes = self.names.path(path)?;
        let number = key.map(|key| tally.flow(&key, nodes));
        if self.numbers.len() >= MOST_KNOWN {
            self.numbers.clear();
        }
        self.numbers.insert((flow, path), number);
        Ok(number)
    }
}

const MINUTES: &str = "SELECT flow, ts, count, min, max, sum FROM f0.rollup_data
                       WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
const LONGER: &str = "SELECT flow, ts, count, min, max, sum FROM f0.span_data
                      WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";

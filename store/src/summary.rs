//! Precomputed sums, updated with each insertion, so that queries over long spans read few rows: rollups of 10 minutes and 1
//! hour, event counts per minute, the start times of paths, and columnar event blocks (module `blocks`).

use std::collections::BTreeMap;

use collector::event::FirstValues;
use collector::{Event, Kind, Rollup};
use detect::Metric;
use rusqlite::{Connection, params};

use crate::blocks::{Blocks, Class, Counted, FirstLatencies, Location, Values};
use crate::rows::{greatest, int};

/// Intervals of the summed rollups, seconds.
pub(crate) const SUM_INTERVALS: [u32; 2] = [600, 3600];

/// Pseudo event kind under which flow reports are counted.
pub(crate) const REPORTS_KIND: i64 = -1;

/// Stored in place of an absent flow, node, interface or queue.
pub(crate) const ABSENT: i64 = -1;
/// Upsert that adds a rollup to a sum; sums saturate at `i64::MAX`.
const ADD_ROLLUP: &str = "
INSERT INTO span_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT DO UPDATE SET
  count = count + excluded.count, min = min(min, excluded.min), max = max(max, excluded.max),
  sum = CASE WHEN sum > 9223372036854775807 - excluded.sum THEN 9223372036854775807 ELSE sum + excluded.sum END";
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
/// Maximum number of flows whose latest path is cached: 24 MiB. For others, each record inserts its path again.
const MAX_FLOWS: usize = 2 << 20;

/// Sums of the open transaction, and a cache of the file's latest paths.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    /// Start of the current minute, ns. Almost all events belong to it, so its counts are in an array.
    minute: i64,
    counts: [i64; Kind::ALL.len()],
    /// Counts by minute and kind: other minutes, and reports.
    minute_counts: BTreeMap<(i64, i64), i64>,
    /// Latest path ID of each flow, by flow ID; 0 if unknown.
    paths: Vec<u32>,
    /// Time from which each flow took that path, by flow ID.
    path_times: Vec<i64>,
    blocks: Blocks,
}

/// IDs of an event's flow, rule and path in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventNumbers {
    pub(crate) flow: Option<i64>,
    pub(crate) rule: Option<i64>,
    pub(crate) path: Option<i64>,
}

impl Summary {
    /// Adds an event to the counts.
    #[inline]
    pub(crate) fn event(
        &mut self,
        conn: &Connection,
        event: &Event,
        ts: i64,
        first: Option<FirstValues<'_>>,
        numbers: EventNumbers,
    ) -> rusqlite::Result<()> {
        let minute = ts - ts.rem_euclid(MINUTE);
        if minute != self.minute {
            self.begin_minute(minute);
        }
        self.counts[event.kind as usize] += 1;
        let class = Class {
            kind: event.kind as u8,
            metric: event.metric.map(|metric| metric as u8),
            rule: number_or_zero(numbers.rule),
            reason: event.reason,
        };
        let location = Location {
            node: event.node,
            interface: event.interface,
            queue: event.queue,
        };
        let first = first.map(|first| FirstLatencies {
            flow: first.flow_latency.map(storable),
            hop: greatest(first.hop_latencies),
        });
        let values = Values {
            value: event.value.map(storable),
            first,
        };
        let counted = Counted {
            class,
            location,
            flow: number_or_zero(numbers.flow),
            path: number_or_zero(numbers.path),
            values,
        };
        let second = ((ts - minute) / SECOND) as u8;
        self.blocks.event(conn, minute, second, &counted)
    }

    #[cold]
    fn begin_minute(&mut self, minute: i64) {
        for (kind, count) in Kind::ALL.into_iter().zip(&mut self.counts) {
            if *count > 0 {
                *self.minute_counts.entry((self.minute, kind as i64)).or_default() += std::mem::take(count);
            }
        }
        self.minute = minute;
    }

    /// Adds a one-minute rollup to the longer ones.
    pub(crate) fn rollup(
        &mut self,
        conn: &Connection,
        rollup: &Rollup,
        flow: Option<i64>,
    ) -> rusqlite::Result<()> {
        if rollup.interval != 60 {
            return Ok(());
        }
        let ts = int(rollup.ts);
        if flow.is_some() && rollup.metric == Metric::FlowLatency {
            *self
                .minute_counts
                .entry((ts - ts.rem_euclid(MINUTE), REPORTS_KIND))
                .or_default() += int(rollup.count);
        }
        // Series of nodes also get a 60 s row, so that reading them does not need the raw rollups.
        let minute = flow.is_none().then_some(60);
        let mut add = conn.prepare_cached(ADD_ROLLUP)?;
        for interval in minute.into_iter().chain(SUM_INTERVALS) {
            add.execute(params![
                interval,
                rollup.metric as i64,
                ts - ts.rem_euclid(i64::from(interval) * SECOND),
                flow.unwrap_or(ABSENT),
                rollup.node.map_or(ABSENT, i64::from),
                rollup.interface.map_or(ABSENT, i64::from),
                rollup.queue.map_or(ABSENT, i64::from),
                int(rollup.count),
                int(rollup.min),
                int(rollup.max),
                int(rollup.sum)
            ])?;
        }
        Ok(())
    }

    /// Records that a flow took a path at `ts`, unless that is its known path. Records in a batch are not in time order: events
    /// come before flow states, which may be older. An older record does not change the known path.
    #[inline]
    pub(crate) fn path(&mut self, conn: &Connection, flow: i64, path: i64, ts: i64) -> rusqlite::Result<()> {
        let index = usize::try_from(flow).unwrap_or(usize::MAX);
        let number = u32::try_from(path).unwrap_or(0);
        if number != 0 && self.paths.get(index) == Some(&number) {
            return Ok(());
        }
        if index < MAX_FLOWS {
            if self.paths.len() <= index {
                self.paths.resize(index + 1, 0);
                self.path_times.resize(index + 1, i64::MIN);
            }
            if ts >= self.path_times[index] {
                self.paths[index] = number;
                self.path_times[index] = ts;
            }
        }
        let mut insert = conn.prepare_cached("INSERT OR REPLACE INTO taken_data VALUES (?1, ?2, ?3)")?;
        insert.execute([flow, ts, path])?;
        Ok(())
    }

    /// Writes the counts of the transaction, before its commit.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.blocks.write(conn)?;
        self.begin_minute(self.minute);
        let mut add = conn.prepare_cached(
            "INSERT INTO minute_data VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + excluded.count",
        )?;
        while let Some(((ts, kind), count)) = self.minute_counts.pop_first() {
            add.execute([ts, kind, count])?;
        }
        Ok(())
    }
}

/// Returns true if the event sets the flow's path.
pub(crate) fn sets_path(event: &Event) -> bool {
    matches!(event.kind, Kind::New | Kind::PathChange | Kind::PathLoop)
        && event.metric == Some(Metric::FlowPath)
}

/// Returns an interned ID as 32 bits, or 0 for none. No file has more IDs.
fn number_or_zero(number: Option<i64>) -> u32 {
    number.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Clamps a value to SQLite's signed 64-bit range.
fn storable(value: u64) -> u64 {
    value.min(i64::MAX.cast_unsigned())
}

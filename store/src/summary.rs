//! Adds records up while they are inserted, so that a question about a span of time reads few rows: rollups of ten minutes and hours,
//! events of each minute, the paths that flows took, and events in blocks.

use std::collections::BTreeMap;

use collector::event::FirstValues;
use collector::{Event, Kind, Rollup};
use detect::Metric;
use rusqlite::{Connection, params};

use crate::blocks::{Blocks, Class, Counted, Location, Values};
use crate::rows::{greatest, int};

/// Lengths of the rollups that are added up, seconds.
pub(crate) const LONGER: [u32; 2] = [600, 3600];

/// The kind under which reports of flows are counted.
pub(crate) const REPORTS: i64 = -1;

/// The number of what a rollup is not about.
pub(crate) const NOTHING: i64 = -1;

/// The sums of an open transaction, and what is known of the file that it belongs to.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    /// The counts of one minute by kind, where almost all events belong.
    minute: i64,
    counts: [i64; Kind::ALL.len()],
    /// Counts of other minutes, and of reports.
    others: BTreeMap<(i64, i64), i64>,
    /// The path that each flow took last, by the flow's number; 0: unknown.
    paths: Vec<u32>,
    /// The time from which each flow took that path, likewise.
    since: Vec<i64>,
    blocks: Blocks,
}

/// The numbers that an event's flow, rule and path have in the file.
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
            self.begin(minute);
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
        let first = first.map(|first| {
            let flow_latency = first.flow_latency.map(storable);
            (flow_latency, greatest(first.hop_latencies))
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
    fn begin(&mut self, minute: i64) {
        for (kind, count) in Kind::ALL.into_iter().zip(&mut self.counts) {
            if *count > 0 {
                *self.others.entry((self.minute, kind as i64)).or_default() += std::mem::take(count);
            }
        }
        self.minute = minute;
    }

    /// Adds a rollup of a minute to the longer ones.
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
                .others
                .entry((ts - ts.rem_euclid(MINUTE), REPORTS))
                .or_default() += int(rollup.count);
        }
        let unchanged = flow.is_none().then_some(60);
        let mut add = conn.prepare_cached(ADD)?;
        for interval in unchanged.into_iter().chain(LONGER) {
            add.execute(params![
                interval,
                rollup.metric as i64,
                ts - ts.rem_euclid(i64::from(interval) * SECOND),
                flow.unwrap_or(NOTHING),
                rollup.node.map_or(NOTHING, i64::from),
                rollup.interface.map_or(NOTHING, i64::from),
                rollup.queue.map_or(NOTHING, i64::from),
                int(rollup.count),
                int(rollup.min),
                int(rollup.max),
                int(rollup.sum)
            ])?;
        }
        Ok(())
    }

    /// Stores that a flow took a path at `ts`, unless it is known to have taken it before. What a batch says of a flow is not in the order
    /// of time: its events come before the states of flows, which may be older. What is older does not change what is known.
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
                self.since.resize(index + 1, i64::MIN);
            }
            if ts >= self.since[index] {
                self.paths[index] = number;
                self.since[index] = ts;
            }
        }
        let mut insert = conn.prepare_cached("INSERT OR REPLACE INTO taken_data VALUES (?1, ?2, ?3)")?;
        insert.execute([flow, ts, path])?;
        Ok(())
    }

    /// Adds the counts of the transaction, before it is committed.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.blocks.write(conn)?;
        self.begin(self.minute);
        let mut add = conn.prepare_cached(
            "INSERT INTO minute_data VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + excluded.count",
        )?;
        while let Some(((ts, kind), count)) = self.others.pop_first() {
            add.execute([ts, kind, count])?;
        }
        Ok(())
    }
}

/// Returns true if the flow takes the path of the event from then on.
pub(crate) fn sets_path(event: &Event) -> bool {
    matches!(event.kind, Kind::New | Kind::PathChange | Kind::PathLoop)
        && event.metric == Some(Metric::FlowPath)
}

/// Returns a number of a file as 32 bits, and 0 for none. No file has so many that they do not fit.
fn number_or_zero(number: Option<i64>) -> u32 {
    number.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Limits a value to what a signed integer of SQLite can hold.
fn storable(value: u64) -> u64 {
    value.min(i64::MAX.cast_unsigned())
}

/// A sum beyond 64 bits stays at their maximum.
const ADD: &str = "
INSERT INTO span_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT DO UPDATE SET
  count = count + excluded.count, min = min(min, excluded.min), max = max(max, excluded.max),
  sum = CASE WHEN sum > 9223372036854775807 - excluded.sum THEN 9223372036854775807 ELSE sum + excluded.sum END";

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;

/// Flows whose last path is remembered: 24 MiB. Of others, the path is stored with each of their rows.
const MAX_FLOWS: usize = 2 << 20;

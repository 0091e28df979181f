//! What is added up while records are inserted, so that a question about a span of time reads few rows: rollups of ten minutes and hours,
//! events of each minute, and the paths that flows took.

use std::collections::BTreeMap;

use collector::{Event, Kind, Rollup};
use detect::Metric;
use rusqlite::{Connection, params};

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
    /// The path that each flow was stored with last, by the flow's number; 0: unknown.
    paths: Vec<u32>,
}

impl Summary {
    /// Counts an event.
    #[inline]
    pub(crate) fn event(&mut self, event: &Event, ts: i64) {
        let minute = ts - ts.rem_euclid(MINUTE);
        if minute != self.minute {
            self.turn(minute);
        }
        self.counts[event.kind as usize] += 1;
    }

    #[cold]
    fn turn(&mut self, minute: i64) {
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
            *self.others.entry((ts - ts.rem_euclid(MINUTE), REPORTS)).or_default() += int(rollup.count);
        }
        let as_it_is = flow.is_none().then_some(60);
        let mut add = conn.prepare_cached(ADD)?;
        for interval in as_it_is.into_iter().chain(LONGER) {
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

    /// Stores that a flow took a path at `ts`, unless it is known to have taken it before.
    #[inline]
    pub(crate) fn path(
        &mut self,
        conn: &Connection,
        (flow, path): (i64, i64),
        ts: i64,
    ) -> rusqlite::Result<()> {
        let place = usize::try_from(flow).unwrap_or(usize::MAX);
        let number = u32::try_from(path).unwrap_or(0);
        if number != 0 && self.paths.get(place) == Some(&number) {
            return Ok(());
        }
        if place < MOST_FLOWS {
            if self.paths.len() <= place {
                self.paths.resize(place + 1, 0);
            }
            self.paths[place] = number;
        }
        let mut insert = conn.prepare_cached("INSERT OR REPLACE INTO taken_data VALUES (?1, ?2, ?3)")?;
        insert.execute([flow, ts, path])?;
        Ok(())
    }

    /// Adds the counts of the transaction, before it is committed.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.turn(self.minute);
        let mut add = conn.prepare_cached(
            "INSERT INTO minute_data VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + excluded.count",
        )?;
        while let Some(((ts, kind), count)) = self.others.pop_first() {
            add.execute([ts, kind, count])?;
        }
        Ok(())
    }
}

/// Whether the path of an event is the one that the flow takes from then on.
pub(crate) fn is_taken(event: &Event) -> bool {
    matches!(event.kind, Kind::New | Kind::PathChange | Kind::PathLoop)
        && event.metric == Some(Metric::FlowPath)
}

/// Adds up what is in a file of an earlier version.
pub(crate) fn fill(conn: &Connection) -> rusqlite::Result<()> {
    for interval in [60].into_iter().chain(LONGER) {
        let nanos = i64::from(interval) * SECOND;
        let which = if interval == 60 { " AND flow IS NULL" } else { "" };
        conn.execute(
            &format!(
                "INSERT INTO span_data SELECT ?1, metric, ts - ts % ?2, ifnull(flow, -1), ifnull(node, -1), ifnull(interface, -1), \
                 ifnull(queue, -1), sum(count), min(min), max(max), \
                 CAST(min(total(sum), 9.2e18) AS INTEGER) FROM rollup_data WHERE interval = 60{which} GROUP BY 1, 2, 3, 4, 5, 6, 7"
            ),
            params![interval, nanos],
        )?;
    }
    for kind in Kind::ALL {
        conn.execute(
            "INSERT INTO minute_data SELECT ts - ts % ?1, ?2, count(*) FROM event_data
             WHERE kind = (SELECT id FROM kind_name WHERE kind = ?3) GROUP BY 1",
            params![MINUTE, kind as i64, kind.name()],
        )?;
    }
    conn.execute(
        "INSERT OR REPLACE INTO taken_data SELECT flow, ts, path FROM event_data
         WHERE metric = ?1 AND kind IN (SELECT id FROM kind_name WHERE kind IN ('new', 'path_change', 'path_loop'))
         AND flow IS NOT NULL AND path IS NOT NULL ORDER BY ts, seq",
        [Metric::FlowPath as i64],
    )?;
    // A flow that began in an earlier file, and kept its path.
    conn.execute(
        "INSERT INTO taken_data SELECT flow, first_seen, path FROM flow_data
         WHERE path IS NOT NULL AND flow NOT IN (SELECT flow FROM taken_data)",
        [],
    )?;
    conn.execute(
        "INSERT INTO minute_data SELECT ts - ts % ?1, ?2, sum(count) FROM rollup_data
         WHERE interval = 60 AND metric = ?3 AND flow IS NOT NULL GROUP BY 1",
        params![MINUTE, REPORTS, Metric::FlowLatency as i64],
    )?;
    Ok(())
}

/// SQLite's integers are signed; larger values are stored as the maximum.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A sum beyond 64 bits stays at their maximum.
const ADD: &str = "
INSERT INTO span_data VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT DO UPDATE SET
  count = count + excluded.count, min = min(min, excluded.min), max = max(max, excluded.max),
  sum = CASE WHEN sum > 9223372036854775807 - excluded.sum THEN 9223372036854775807 ELSE sum + excluded.sum END";

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;

/// Flows whose last path is remembered: 16 MiB. Of others, the path is stored with each of their rows.
const MOST_FLOWS: usize = 4 << 20;

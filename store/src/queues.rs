//! Queues over time: how full they were, and which packets were in them.

use std::collections::HashMap;

use collector::event::{Kind, Nanos};
use collector::flight::burst::Passage;
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::intern::{parse_flow, parse_path};
use crate::query::{QueryError, QueryOptions, Value, nanos};
use crate::reader::Reader;
use crate::rows::{kind_of, optional};

/// A span of time, divided into columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatFilter {
    /// A metric of nodes, queues or links.
    pub metric: Metric,
    /// From this time on.
    pub from: Nanos,
    /// Up to before this time.
    pub to: Nanos,
    /// Length of a column, ns; at least 1 s.
    pub column: Nanos,
    /// Length of the rollups that are read, seconds: 1, 60, 600 or 3600.
    pub interval: u32,
    /// Only this node.
    pub node: Option<u32>,
    /// At most so many rows: those with the greatest values.
    pub limit: usize,
}

/// What a row of a heat map is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HeatKey {
    /// The node.
    pub node: Option<u32>,
    /// The egress interface, of a link.
    pub interface: Option<u32>,
    /// The queue.
    pub queue: Option<u8>,
}

/// A row of a heat map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeatRow {
    /// What it is about.
    pub key: HeatKey,
    /// The greatest value of each column, in the metric's unit; `None` where nothing was measured.
    pub values: Vec<Option<u64>>,
    /// The greatest of all.
    pub worst: u64,
    /// Number of measured values.
    pub count: u64,
}

/// A heat map.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Heat {
    /// The rows, worst first.
    pub rows: Vec<HeatRow>,
    /// How many there are, with those beyond the limit.
    pub total: usize,
    /// Whether there were more queues than a heat map considers: those that came later are in no row.
    pub truncated: bool,
}

/// A queue, and a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFilter {
    /// The node.
    pub node: u32,
    /// The queue; `None`: all of the node.
    pub queue: Option<u8>,
    /// From this time on.
    pub from: Nanos,
    /// Up to before this time.
    pub to: Nanos,
    /// At most so many rows.
    pub limit: usize,
}

/// Why reports were recorded, as it was stored; see [`collector::flight::Recording`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordingRow {
    /// When the event was observed.
    pub ts: Nanos,
    /// From this receive time on.
    pub since: Nanos,
    /// Up to this receive time.
    pub until: Nanos,
    /// The kind of the event.
    pub kind: Kind,
    /// Its metric.
    pub metric: Option<Metric>,
    /// Its flow.
    pub flow: Option<FlowKey>,
    /// Its node.
    pub node: Option<u32>,
    /// Its interface.
    pub interface: Option<u32>,
    /// Its queue.
    pub queue: Option<u8>,
    /// Its value.
    pub value: Option<u64>,
    /// Its rule.
    pub rule: Option<String>,
    /// Its id.
    pub id: u64,
    /// Reports that concern it.
    pub reports: u64,
    /// One of so many was stored.
    pub every: u64,
    /// Whether a part was not in memory: reports are missing.
    pub late: bool,
}

/// A packet that passed a queue, as its report says: values as the device sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassageRow {
    /// Receive time of the report.
    pub ts: Nanos,
    /// The packet, as the device says: `latency` is in the device's ticks, `ts` its egress time if there is one, else the receive time.
    pub passage: Passage,
    /// The queue.
    pub queue: Option<u8>,
    /// The egress interface.
    pub interface: Option<u32>,
    /// The sender of the report: an IP address.
    pub source: String,
    /// Whether `passage.ts` is the device's.
    pub by_device: bool,
    /// The nodes of its path (`u32::MAX` = unavailable).
    pub path: Vec<u32>,
}

impl Reader {
    /// A heat map of a metric of nodes, queues or links.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn heat(&self, filter: &HeatFilter) -> Result<Heat, QueryError> {
        self.with_retry(|| {
            let (mut cells, deadline) = (HeatCells::new(filter), self.deadline());
            for file in self.files_of(filter.from, filter.to)? {
                self.ask_file(&file, &deadline, |conn, features| {
                    let is_added_up = filter.interval >= 60 && features.spans;
                    let interval = if is_added_up {
                        filter.interval
                    } else {
                        filter.interval.min(60)
                    };
                    cells.read(conn, (interval, is_added_up), filter.from)?;
                    // The minute that has not ended has no rollup yet.
                    if interval > 1 {
                        cells.read(conn, (1, false), filter.latest())
                    } else {
                        Ok(())
                    }
                })?;
            }
            Ok(cells.finish())
        })
    }

    /// Recordings that overlap a span of time, newest first. `node` and `queue` of an event that names none match every one.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn recordings(
        &self,
        (from, to): (Nanos, Nanos),
        queue: Option<(u32, Option<u8>)>,
        limit: usize,
    ) -> Result<Vec<RecordingRow>, QueryError> {
        let mut params = vec![nanos(from), nanos(to), nanos(from.saturating_sub(LONGEST))];
        let mut filter = String::from("until >= ?1 AND since < ?2 AND ts >= ?3");
        if let Some((node, queue)) = queue {
            params.push(Value::Int(node.into()));
            filter.push_str(&format!(" AND (node IS NULL OR node = ?{})", params.len()));
            if let Some(queue) = queue {
                params.push(Value::Int(queue.into()));
                filter.push_str(&format!(" AND (queue IS NULL OR queue = ?{})", params.len()));
            }
        }
        let sql = format!(
            "SELECT {RECORDING_COLUMNS} FROM recordings WHERE {filter} ORDER BY ts DESC LIMIT {limit}"
        );
        let options = unlimited(from.saturating_sub(LONGEST), to.saturating_add(LONGEST), params);
        self.with_retry(|| {
            let mut rows = Vec::new();
            self.rows(usize::MAX, &sql, &options, |row| {
                rows.push(recording(row)?);
                Ok(())
            })?;
            Ok(rows)
        })
    }

    /// The recordings that overlap a span of time, whatever they are about: since, until, and of how many reports one was stored.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn recording_windows(
        &self,
        (from, to): (Nanos, Nanos),
    ) -> Result<Vec<(Nanos, Nanos, u64)>, QueryError> {
        let first = from.saturating_sub(LONGEST);
        let sql = format!(
            "SELECT DISTINCT since, until, every FROM recordings WHERE until >= ?1 AND since < ?2 AND ts >= ?3 \
             ORDER BY since LIMIT {MOST_WINDOWS}"
        );
        let options = unlimited(
            first,
            to.saturating_add(LONGEST),
            vec![nanos(from), nanos(to), nanos(first)],
        );
        self.with_retry(|| {
            let mut windows = Vec::new();
            self.rows(usize::MAX, &sql, &options, |row| {
                windows.push((time(row, 0)?, time(row, 1)?, time(row, 2)?.max(1)));
                Ok(())
            })?;
            Ok(windows)
        })
    }

    /// Packets that passed a queue in a span of receive time, in the order of that time, as far as their reports are stored. Also says
    /// whether there are more.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn passages(&self, filter: &QueueFilter) -> Result<(Vec<PassageRow>, bool), QueryError> {
        let mut params = vec![
            nanos(filter.from),
            nanos(filter.to),
            Value::Int(filter.node.into()),
        ];
        let queue = filter.queue.map_or("", |queue| {
            params.push(Value::Int(queue.into()));
            " AND (queue IS NULL OR queue = ?4)"
        });
        let limit = filter.limit.saturating_add(1);
        let sql = format!(
            "SELECT {PASSAGE_COLUMNS} FROM reports WHERE ts >= ?1 AND ts < ?2 AND node = ?3{queue} ORDER BY ts LIMIT {limit}"
        );
        let options = unlimited(filter.from, filter.to, params);
        let mut rows = self.with_retry(|| {
            let mut rows = Vec::new();
            self.rows(usize::MAX, &sql, &options, |row| {
                rows.push(passage(row)?);
                Ok(())
            })?;
            Ok(rows)
        })?;
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        Ok((rows, more))
    }
}

impl HeatFilter {
    /// The number of columns.
    pub fn columns(&self) -> usize {
        let columns = self.to.saturating_sub(self.from).div_ceil(self.column.max(1));
        usize::try_from(columns).unwrap_or(usize::MAX).min(MOST_COLUMNS)
    }

    /// From when on values of seconds are read beside longer ones: minutes are stored up to two minutes late.
    pub fn latest(&self) -> Nanos {
        self.from.max(self.to.saturating_sub(TAIL))
    }
}

/// A heat map that is being made, of values from wherever they are.
#[derive(Debug)]
pub struct HeatCells<'a> {
    filter: &'a HeatFilter,
    columns: usize,
    /// Maximum number of rows.
    most: usize,
    found: HashMap<HeatKey, HeatRow>,
    truncated: bool,
}

impl<'a> HeatCells<'a> {
    /// An empty one.
    pub fn new(filter: &'a HeatFilter) -> Self {
        let columns = filter.columns();
        let most = (MOST_CELLS / columns.max(1)).min(MOST_QUEUES);
        Self {
            filter,
            columns,
            most,
            found: HashMap::new(),
            truncated: false,
        }
    }

    /// Reads rollups of this length from `from` on, from where they were inserted or from where they were added up.
    fn read(
        &mut self,
        conn: &Connection,
        (interval, is_added_up): (u32, bool),
        from: Nanos,
    ) -> rusqlite::Result<()> {
        let sql = match is_added_up {
            true => {
                "SELECT node, interface, queue, ts, max, count FROM f0.span_data
                     WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1"
            }
            false => {
                "SELECT node, interface, queue, ts, max, count FROM f0.rollup_data
                      WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow IS NULL"
            }
        };
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query(params![
            interval,
            self.filter.metric as i64,
            i64::try_from(from).unwrap_or(i64::MAX),
            i64::try_from(self.filter.to).unwrap_or(i64::MAX)
        ])?;
        while let Some(row) = rows.next()? {
            self.add_row(row, interval == self.filter.interval.min(60) || is_added_up)?;
        }
        Ok(())
    }

    fn add_row(&mut self, row: &Row<'_>, counts: bool) -> rusqlite::Result<()> {
        let part = |i| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(i)?.filter(|part| *part >= 0));
        let Some(node) = part(0)?.and_then(|node| u32::try_from(node).ok()) else {
            return Ok(());
        };
        if self.filter.node.is_some_and(|only| only != node) {
            return Ok(());
        }
        let interface = part(1)?.and_then(|part| u32::try_from(part).ok());
        let queue = part(2)?.and_then(|part| u8::try_from(part).ok());
        let key = HeatKey {
            node: Some(node),
            interface,
            queue,
        };
        self.add(
            key,
            time(row, 3)?,
            (time(row, 4)?, if counts { time(row, 5)? } else { 0 }),
        );
        Ok(())
    }

    /// Adds the greatest of some values that were measured at a time, and how many they are.
    pub fn add(&mut self, key: HeatKey, ts: Nanos, (value, count): (u64, u64)) {
        if self.found.len() >= self.most && !self.found.contains_key(&key) {
            self.truncated = true;
            return;
        }
        let columns = self.columns;
        let blank = || HeatRow {
            key,
            values: vec![None; columns],
            worst: 0,
            count: 0,
        };
        let one = self.found.entry(key).or_insert_with(blank);
        let column = ts.saturating_sub(self.filter.from) / self.filter.column.max(1);
        if let Some(place) = usize::try_from(column).ok().and_then(|at| one.values.get_mut(at)) {
            *place = (*place).max(Some(value));
        }
        one.worst = one.worst.max(value);
        one.count = one.count.saturating_add(count);
    }

    /// The map.
    pub fn finish(self) -> Heat {
        let Self {
            filter,
            found,
            truncated,
            ..
        } = self;
        let total = found.len();
        let mut rows: Vec<HeatRow> = found.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.worst), row.key));
        rows.truncate(filter.limit);
        Heat {
            rows,
            total,
            truncated,
        }
    }
}

fn unlimited(from: Nanos, to: Nanos, params: Vec<Value>) -> QueryOptions {
    let (max_rows, max_bytes) = (usize::MAX, usize::MAX);
    QueryOptions {
        from: Some(from),
        to: Some(to),
        max_rows,
        max_bytes,
        params,
        ..QueryOptions::default()
    }
}

fn recording(row: &Row<'_>) -> rusqlite::Result<RecordingRow> {
    let metric = row.get::<_, Option<String>>(9)?;
    Ok(RecordingRow {
        flow: parse_flow(row)?,
        ts: time(row, 5)?,
        since: time(row, 6)?,
        until: time(row, 7)?,
        kind: kind_of(&row.get::<_, String>(8)?),
        metric: metric.as_deref().and_then(Metric::from_name),
        node: row.get(10)?,
        interface: row.get(11)?,
        queue: row.get(12)?,
        value: optional(row, 13)?,
        rule: row.get(14)?,
        id: u64::from_str_radix(&row.get::<_, String>(15)?, 16).unwrap_or(0),
        reports: time(row, 16)?,
        every: time(row, 17)?.max(1),
        late: row.get(18)?,
    })
}

fn passage(row: &Row<'_>) -> rusqlite::Result<PassageRow> {
    let (ts, egress) = (time(row, 5)?, optional(row, 6)?);
    let (occupancy, latency) = (optional(row, 8)?, optional(row, 9)?);
    let passage = Passage {
        ts: egress.unwrap_or(ts),
        flow: parse_flow(row)?,
        occupancy,
        latency,
        weight: 1,
    };
    let (queue, interface, source) = (row.get(7)?, row.get(10)?, row.get(11)?);
    let path = row
        .get::<_, Option<String>>(12)?
        .map_or_else(Vec::new, |text| parse_path(&text));
    Ok(PassageRow {
        ts,
        passage,
        queue,
        interface,
        source,
        by_device: egress.is_some(),
        path,
    })
}

/// A number that is never negative.
fn time(row: &Row<'_>, i: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(i)?).unwrap_or(0))
}

/// Maximum number of queues in a heat map.
const MOST_QUEUES: usize = 65_536;
/// Maximum number of values in a heat map that is being made: 64 MiB.
const MOST_CELLS: usize = 4 << 20;
/// Before the end of a map, values of seconds are read too: minutes are stored up to two minutes late.
const TAIL: Nanos = 180_000_000_000;
/// Maximum number of columns.
pub const MOST_COLUMNS: usize = 1_000;
/// Maximum number of windows that are read for one question.
const MOST_WINDOWS: usize = 10_000;
/// No window of the flight recorder is longer, ns.
const LONGEST: Nanos = 60_000_000_000;
const RECORDING_COLUMNS: &str = "src, dst, sport, dport, proto, ts, since, until, kind, metric, node, interface, queue, value, \
                                 rule, id, reports, every, late";
const PASSAGE_COLUMNS: &str = "src, dst, sport, dport, proto, ts, egress_ts, queue, queue_occupancy, hop_latency, egress_if, source, path";

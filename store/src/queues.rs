//! Heat maps of node, queue and link metrics over time, recordings of the flight recorder, and the packets that passed a queue.

use std::collections::HashMap;

use crate::burst::Passage;
use collector::Location;
use collector::event::{Kind, Nanos};
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::intern::{parse_flow, parse_path};
use crate::query::{QueryError, QueryOptions, Value, nanos};
use crate::reader::Reader;
use crate::rows::{int, kind_named, optional, unsigned};

/// Maximum number of queues in a heat map.
const MAX_QUEUES: usize = 65_536;
/// Maximum number of cells while a heat map is built: 64 MiB.
const MAX_CELLS: usize = 4 << 20;
/// Time before the end of a map in which one-second rollups are read, ns.
const MAX_MINUTE_DELAY: Nanos = 180_000_000_000;
/// Maximum number of columns of a heat map.
pub const MAX_COLUMNS: usize = 1_000;
/// Maximum number of recording ranges per query.
const MAX_WINDOWS: usize = 10_000;
/// Maximum length of a recording, ns.
const MAX_RECORDING: Nanos = 60_000_000_000;
const RECORDING_COLUMNS: &str = "src, dst, sport, dport, proto, ts, since, until, kind, metric, node, interface, queue, value, \
                                 rule, id, reports, every, late";
/// The egress interface of a hop in the table `reports`: of level 1, or else of level 2.
const EGRESS: &str = "coalesce(egress_if, l2_egress_if)";
const PASSAGE_COLUMNS: &str =
    "src, dst, sport, dport, proto, ts, egress_ts, queue, queue_occupancy, latency, source, path";

/// Selects the metric, time span and resolution of a heat map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatFilter {
    /// The metric, of nodes, queues or links.
    pub metric: Metric,
    /// Start of the span, ns since 1970.
    pub from: Nanos,
    /// End of the span (exclusive), ns since 1970.
    pub to: Nanos,
    /// Length of a column, ns; at least 1 s.
    pub column: Nanos,
    /// Interval of the rollups to read, seconds: 1, 60, 600 or 3600.
    pub interval: u32,
    /// Only rows of this node, interface and queue; a part that is `None` selects all.
    pub location: Location,
    /// Maximum number of rows; those with the largest values are returned.
    pub limit: usize,
}

/// A row of a heat map, for one node, link or queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeatRow {
    /// The node, link or queue of the row.
    pub key: Location,
    /// Maximum of each column, in the metric's unit; `None` where nothing was measured.
    pub values: Vec<Option<u64>>,
    /// The maximum over all columns.
    pub worst: u64,
    /// Number of measured values.
    pub count: u64,
}

/// A heat map: the values of nodes, links or queues over time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Heat {
    /// The rows, worst first.
    pub rows: Vec<HeatRow>,
    /// Number of rows, including those beyond the limit.
    pub total: usize,
    /// True if there were more queues than the limit; later ones have no row.
    pub truncated: bool,
}

/// Selects a queue and a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFilter {
    /// The node of the queue.
    pub node: u32,
    /// The queue, or `None` for all queues of the node.
    pub queue: Option<u8>,
    /// The egress interface of the queue, or `None` for those of all interfaces.
    pub interface: Option<u32>,
    /// Start of the span, ns since 1970.
    pub from: Nanos,
    /// End of the span (exclusive), ns since 1970.
    pub to: Nanos,
    /// Maximum number of rows.
    pub limit: usize,
}

/// The time range of a recording and its sampling rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingWindow {
    /// Beginning of the window, ns since 1970.
    pub since: Nanos,
    /// End of the window, ns since 1970.
    pub until: Nanos,
    /// 1 in this many reports was stored.
    pub one_in: u64,
}

/// A stored recording of the flight recorder: its trigger event and its time range; see [`collector::flight::Recording`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordingRow {
    /// Time at which the event was observed, ns since 1970.
    pub ts: Nanos,
    /// Receive time from which reports were recorded.
    pub since: Nanos,
    /// Receive time up to which reports were recorded.
    pub until: Nanos,
    /// The kind of the event.
    pub kind: Kind,
    /// The metric of the event.
    pub metric: Option<Metric>,
    /// The flow of the event.
    pub flow: Option<FlowKey>,
    /// The node of the event.
    pub node: Option<u32>,
    /// The interface of the event.
    pub interface: Option<u32>,
    /// The queue of the event.
    pub queue: Option<u8>,
    /// The value that the event reports.
    pub value: Option<u64>,
    /// The name of the event's rule.
    pub rule: Option<String>,
    /// The id of the event.
    pub id: u64,
    /// Number of reports that concern the event.
    pub reports: u64,
    /// Sampling rate: one in `every` reports was stored.
    pub every: u64,
    /// Part of the range was no longer in memory, so reports are missing.
    pub late: bool,
}

/// A packet that passed a queue, as reported by the node. Its latency is in ns, other values in the device's units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassageRow {
    /// Receive time of the report.
    pub ts: Nanos,
    /// The packet's passage; `ts` is the egress time if reported, or else the receive time of
    /// the report.
    pub passage: Passage,
    /// The queue that the packet passed.
    pub queue: Option<u8>,
    /// The egress interface of the packet.
    pub interface: Option<u32>,
    /// The sender of the report: an IP address.
    pub source: String,
    /// True if `passage.ts` is a device timestamp.
    pub by_device: bool,
    /// The nodes of the packet's path (`u32::MAX` = unavailable).
    pub path: Vec<u32>,
}

impl Reader {
    /// Returns a heat map of a metric of nodes, queues or links.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn heat(&self, filter: &HeatFilter) -> Result<Heat, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut cells = HeatCells::new(filter);
            for file in self.files_in(filter.from, filter.to)? {
                self.query_file(&file, &deadline, |conn, features| {
                    let mut interval = filter.interval;
                    if interval >= 60 && features.spans {
                        cells.read_sums(conn, interval, filter.from)?;
                    } else {
                        interval = interval.min(60);
                        cells.read_rollups(conn, interval, filter.from)?;
                    }
                    // The current minute has no rollup yet.
                    if interval > 1 {
                        cells.read_rollups(conn, 1, filter.latest())?;
                    }
                    Ok(())
                })?;
            }
            Ok(cells.finish())
        })
    }

    /// Returns the recordings that overlap the time from `from` to `to` and whose trigger event may be about `location`, newest
    /// first: a node, interface or queue that either of them does not name matches every one.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn recordings(
        &self,
        from: Nanos,
        to: Nanos,
        location: Location,
        limit: usize,
    ) -> Result<Vec<RecordingRow>, QueryError> {
        let mut params = vec![nanos(from), nanos(to), nanos(from.saturating_sub(MAX_RECORDING))];
        let mut filter = String::from("until >= ?1 AND since < ?2 AND ts >= ?3");
        add_if_known("node", location.node, &mut filter, &mut params);
        add_if_known("interface", location.interface, &mut filter, &mut params);
        add_if_known("queue", location.queue.map(u32::from), &mut filter, &mut params);
        let sql = format!(
            "SELECT {RECORDING_COLUMNS} FROM recordings WHERE {filter} ORDER BY ts DESC LIMIT {limit}"
        );
        let options = unlimited(
            from.saturating_sub(MAX_RECORDING),
            to.saturating_add(MAX_RECORDING),
            params,
        );
        self.with_retry(|| {
            let mut rows = Vec::new();
            self.rows(&sql, &options, |row| {
                rows.push(recording(row)?);
                Ok(())
            })?;
            Ok(rows)
        })
    }

    /// Returns the time ranges of the recordings that overlap the time from `from` to `to`, ordered by start.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn recording_windows(&self, from: Nanos, to: Nanos) -> Result<Vec<RecordingWindow>, QueryError> {
        let first = from.saturating_sub(MAX_RECORDING);
        let sql = format!(
            "SELECT DISTINCT since, until, every FROM recordings WHERE until >= ?1 AND since < ?2 AND ts >= ?3 \
             ORDER BY since LIMIT {MAX_WINDOWS}"
        );
        let options = unlimited(
            first,
            to.saturating_add(MAX_RECORDING),
            vec![nanos(from), nanos(to), nanos(first)],
        );
        self.with_retry(|| {
            let mut windows = Vec::new();
            self.rows(&sql, &options, |row| {
                windows.push(RecordingWindow {
                    since: unsigned(row, 0)?,
                    until: unsigned(row, 1)?,
                    one_in: unsigned(row, 2)?.max(1),
                });
                Ok(())
            })?;
            Ok(windows)
        })
    }

    /// Returns the packets that passed a queue, ordered by the receive time of their reports, as far as reports are stored.
    /// Also returns whether there are more than the limit.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn passages(&self, filter: &QueueFilter) -> Result<(Vec<PassageRow>, bool), QueryError> {
        let mut params = vec![
            nanos(filter.from),
            nanos(filter.to),
            Value::Int(filter.node.into()),
        ];
        let mut conditions = String::new();
        for (column, value) in filter.columns(EGRESS) {
            add_if_known(column, value, &mut conditions, &mut params);
        }
        let limit = filter.limit.saturating_add(1);
        let sql = format!(
            "SELECT {PASSAGE_COLUMNS}, {EGRESS} FROM reports WHERE ts >= ?1 AND ts < ?2 AND node = ?3{conditions} ORDER BY ts LIMIT {limit}"
        );
        let options = unlimited(filter.from, filter.to, params);
        let mut rows = self.with_retry(|| {
            let mut rows = Vec::new();
            self.rows(&sql, &options, |row| {
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

impl QueueFilter {
    /// Returns the node, interface and queue; with [`Location::may_equal`], the records that may be about the queue.
    pub fn location(&self) -> Location {
        Location {
            node: Some(self.node),
            interface: self.interface,
            queue: self.queue,
        }
    }

    /// Returns the columns that must have these values or be unknown, so that a record of the node may be about the queue.
    /// `egress` is the column of the egress interface.
    pub fn columns(&self, egress: &'static str) -> [(&'static str, Option<u32>); 2] {
        [("queue", self.queue.map(u32::from)), (egress, self.interface)]
    }
}

impl HeatFilter {
    /// Returns true if the map has the row of `key`.
    fn selects(&self, key: &Location) -> bool {
        let Location {
            node,
            interface,
            queue,
        } = self.location;
        (node.is_none() || node == key.node)
            && (interface.is_none() || interface == key.interface)
            && (queue.is_none() || queue == key.queue)
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        let columns = self.to.saturating_sub(self.from).div_ceil(self.column.max(1));
        usize::try_from(columns).unwrap_or(usize::MAX).min(MAX_COLUMNS)
    }

    /// Returns the time from which one-second rollups supplement longer ones: minutes are stored up to two minutes late.
    pub fn latest(&self) -> Nanos {
        self.from.max(self.to.saturating_sub(MAX_MINUTE_DELAY))
    }
}

/// Accumulates the values of a heat map.
#[derive(Debug)]
pub struct HeatCells<'a> {
    filter: &'a HeatFilter,
    columns: usize,
    /// Maximum number of rows.
    max_rows: usize,
    rows: HashMap<Location, HeatRow>,
    truncated: bool,
}

impl<'a> HeatCells<'a> {
    /// Returns an empty heat map.
    pub fn new(filter: &'a HeatFilter) -> Self {
        let columns = filter.columns();
        let max_rows = (MAX_CELLS / columns.max(1)).min(MAX_QUEUES);
        Self {
            filter,
            columns,
            max_rows,
            rows: HashMap::new(),
            truncated: false,
        }
    }

    /// Reads single rollups with an interval of `interval` seconds from `from` on.
    fn read_rollups(&mut self, conn: &Connection, interval: u32, from: Nanos) -> rusqlite::Result<()> {
        let sql = "SELECT node, interface, queue, ts, max, count FROM f0.rollup_data
                   WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow IS NULL";
        let adds_counts = interval == self.filter.interval.min(60);
        self.read(conn, sql, interval, from, adds_counts)
    }

    /// Reads summed rollups with an interval of `interval` seconds from `from` on.
    fn read_sums(&mut self, conn: &Connection, interval: u32, from: Nanos) -> rusqlite::Result<()> {
        let sql = "SELECT node, interface, queue, ts, max, count FROM f0.span_data
                   WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1";
        self.read(conn, sql, interval, from, true)
    }

    /// Adds the rows of a query. With `adds_counts`, their numbers of values are added as well.
    fn read(
        &mut self,
        conn: &Connection,
        sql: &str,
        interval: u32,
        from: Nanos,
        adds_counts: bool,
    ) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query(params![
            interval,
            self.filter.metric as i64,
            int(from),
            int(self.filter.to)
        ])?;
        while let Some(row) = rows.next()? {
            // A negative number means none.
            let Some(node) = optional(row, 0)? else { continue };
            let key = Location {
                node: Some(node),
                interface: optional(row, 1)?,
                queue: optional(row, 2)?,
            };
            if !self.filter.selects(&key) {
                continue;
            }
            let count = if adds_counts { unsigned(row, 5)? } else { 0 };
            self.add(key, unsigned(row, 3)?, unsigned(row, 4)?, count);
        }
        Ok(())
    }

    /// Adds `count` values at a time, with `value` as their maximum.
    pub fn add(&mut self, key: Location, ts: Nanos, value: u64, count: u64) {
        if self.rows.len() >= self.max_rows && !self.rows.contains_key(&key) {
            self.truncated = true;
            return;
        }
        let row = self.rows.entry(key).or_insert_with(|| HeatRow {
            key,
            values: vec![None; self.columns],
            worst: 0,
            count: 0,
        });
        let column = ts.saturating_sub(self.filter.from) / self.filter.column.max(1);
        if let Some(cell) = usize::try_from(column).ok().and_then(|i| row.values.get_mut(i)) {
            *cell = (*cell).max(Some(value));
        }
        row.worst = row.worst.max(value);
        row.count = row.count.saturating_add(count);
    }

    /// Returns the heat map.
    pub fn finish(self) -> Heat {
        let total = self.rows.len();
        let mut rows: Vec<HeatRow> = self.rows.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.worst), row.key));
        rows.truncate(self.filter.limit);
        Heat {
            rows,
            total,
            truncated: self.truncated,
        }
    }
}

/// Adds the condition that a column has this value or is unknown.
fn add_if_known(column: &str, value: Option<u32>, filter: &mut String, params: &mut Vec<Value>) {
    if let Some(value) = value {
        params.push(Value::Int(value.into()));
        filter.push_str(&format!(
            " AND ({column} IS NULL OR {column} = ?{})",
            params.len()
        ));
    }
}

fn unlimited(from: Nanos, to: Nanos, params: Vec<Value>) -> QueryOptions {
    QueryOptions {
        from: Some(from),
        to: Some(to),
        max_rows: usize::MAX,
        max_bytes: usize::MAX,
        params,
        ..QueryOptions::default()
    }
}

fn recording(row: &Row<'_>) -> rusqlite::Result<RecordingRow> {
    let metric = row.get::<_, Option<String>>(9)?;
    Ok(RecordingRow {
        flow: parse_flow(row)?,
        ts: unsigned(row, 5)?,
        since: unsigned(row, 6)?,
        until: unsigned(row, 7)?,
        kind: kind_named(&row.get::<_, String>(8)?),
        metric: metric.as_deref().and_then(Metric::from_name),
        node: row.get(10)?,
        interface: row.get(11)?,
        queue: row.get(12)?,
        value: optional(row, 13)?,
        rule: row.get(14)?,
        id: u64::from_str_radix(&row.get::<_, String>(15)?, 16).unwrap_or(0),
        reports: unsigned(row, 16)?,
        every: unsigned(row, 17)?.max(1),
        late: row.get(18)?,
    })
}

fn passage(row: &Row<'_>) -> rusqlite::Result<PassageRow> {
    let ts = unsigned(row, 5)?;
    let egress: Option<Nanos> = optional(row, 6)?;
    let path: Option<String> = row.get(11)?;
    Ok(PassageRow {
        ts,
        passage: Passage {
            ts: egress.unwrap_or(ts),
            flow: parse_flow(row)?,
            occupancy: optional(row, 8)?,
            latency: optional(row, 9)?,
            weight: 1,
        },
        queue: row.get(7)?,
        interface: row.get(12)?,
        source: row.get(10)?,
        by_device: egress.is_some(),
        path: path.map_or_else(Vec::new, |text| parse_path(&text)),
    })
}

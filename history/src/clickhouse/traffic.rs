//! Grouped time series from ClickHouse. For each time column, ClickHouse sums the rows that are equal in all selected columns;
//! [`store::Grouping`] builds the groups of the response from these sums, as it does from the rows of the local store.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use collector::Kind;
use detect::Metric;
use export::{record::Stream, sink::clickhouse::ABSENT};
use filter::HAS_PORTS;
use serde::Deserialize;
use store::{
    Columns, Counted, EventGroup, FlowParts, Grouping, Measure, Needed, Prefixes, SeriesKey, Source, Span,
    SpanSum, Tally as _, Traffic, TrafficQuery, divided_note,
};
use tokio::{task, time::Instant};
use wire::FlowKey;

use super::{
    Remote,
    errors::Author,
    paths::{FLOW_ROLLUPS, IntervalSql, interval_sql},
    rows::{self, Newest, flow, queue},
    spans::{FlowSum, KeyedCount},
    statement::{PathTables, SUM, Statement, present},
};
use crate::notes;
use crate::sql::Failure;

/// SQL condition for an IPv4 flow, tested on its text.
const IS_V4: &str = "match(flow, '^[0-9.]+[:>]')";
/// Target size of a response, bytes; at most 16 MiB are read.
const RESPONSE_BYTES: usize = 14 << 20;
/// Approximate size of a row of a node, queue or link in a response, bytes.
const SERIES_ROW_BYTES: usize = 200;
/// Maximum rows read for one query.
const MAX_ROWS: usize = 600_000;
/// Maximum events that ClickHouse scans for one query.
const MAX_EVENTS: u64 = 3_000_000;
/// Maximum flows whose sums a filter can test.
const MAX_SUMS: usize = 50_000;
/// Maximum number of cached flows, reduced to the selected columns.
const MAX_CACHED_FLOWS: usize = 200_000;
/// Longest time without one-minute rollups, ns: minutes are stored up to two minutes late.
const MAX_MINUTE_DELAY: u64 = 180_000_000_000;
const MINUTE: u64 = 60_000_000_000;

/// A row of the response: the sums of rows that are equal in all selected columns. Other columns have their defaults.
#[derive(Deserialize, Debug)]
struct SumRow {
    /// Index of the time column.
    #[serde(rename = "column_index")]
    column: usize,
    /// Hash of the selected columns, which orders the rows within a time column.
    #[serde(rename = "row_hash")]
    hash: u64,
    /// Number of reports, events or values.
    #[serde(rename = "amount")]
    count: u64,
    /// Number of reports in minutes in which their flow changed its path.
    #[serde(rename = "divided_count", default)]
    divided: u64,
    /// The smallest of the values.
    #[serde(rename = "least", default = "greatest")]
    min: u64,
    /// The largest of the values.
    #[serde(rename = "most", default)]
    max: u64,
    /// Sum of the values.
    #[serde(rename = "total", default)]
    sum: u64,
    /// 0 if the query's filter rejects these events.
    #[serde(default = "selected")]
    wanted: u8,
    #[serde(flatten)]
    flow: FlowColumns,
    #[serde(default)]
    path: Vec<u32>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metric: String,
    #[serde(default = "absent")]
    node: u32,
    #[serde(default = "absent")]
    interface: u32,
    #[serde(default = "absent")]
    queue: u32,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    reason: Option<u64>,
}

/// The selected columns of the flow; others have their defaults.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, Default, Debug)]
#[serde(default)]
struct FlowColumns {
    /// The flow as text, if the whole key is selected.
    flow: String,
    /// Known parts of the flow: 0 for no flow, 1 for a flow known by its Flow ID only, 4 or 6 for addresses of this IP version.
    known: u8,
    /// Nonzero if the flow has ports.
    #[serde(rename = "ported")]
    has_ports: u8,
    #[serde(rename = "src_part")]
    src: String,
    #[serde(rename = "dst_part")]
    dst: String,
    #[serde(rename = "sport_part")]
    src_port: u16,
    #[serde(rename = "dport_part")]
    dst_port: u16,
    #[serde(rename = "proto_part")]
    proto: u8,
}

/// The numbers of flows and of flow rollups in a span.
#[derive(Deserialize, Default, Debug)]
struct Sizes {
    flows: u64,
    rollups: u64,
}

/// Accumulator of the groups while pages are read.
struct TrafficSums {
    grouping: Grouping,
    columns: Columns,
    measure: Measure,
    /// True if columns of flows are selected.
    by_flow: bool,
    /// Cached tally numbers by flow columns and path; `None` for an invalid flow. Bounded by [`MAX_CACHED_FLOWS`].
    flows: HashMap<(FlowColumns, Vec<u32>), Option<u32>>,
    /// Number of reports in minutes in which their flow changed its path.
    divided: u64,
    /// True if there were more rows than the limit.
    is_cut: bool,
}

/// Position of a row in the order of the pages.
#[derive(Clone, Copy, Default)]
struct RowPosition {
    /// Index of the time column.
    column: usize,
    hash: u64,
}

/// Extent of a page: the number of rows, and the position of the last one.
struct Page {
    rows: usize,
    last: RowPosition,
}

/// Selects a page of the rows from `from` to before `end`, latest column first. It continues after a given row instead of an
/// offset, so that concurrent inserts do not shift it.
#[derive(Clone, Copy)]
struct PageRequest {
    /// Start of the first column, nanoseconds since the Unix epoch.
    from: u64,
    /// End of the last column, ns since 1970.
    end: u64,
    /// The last row of the previous page.
    after: Option<RowPosition>,
    /// Maximum number of rows.
    limit: usize,
}

impl PageRequest {
    /// Returns SQL for the page of a selection `sums` with the columns `column_index` and `row_hash`.
    fn sql(self, sums: &str) -> String {
        let after = self.after.map_or(String::new(), |RowPosition { column, hash }| {
            // Rows of later columns are excluded by `end`, so `OR` suffices.
            format!(" WHERE column_index < {column} OR row_hash > {hash}")
        });
        format!(
            "SELECT * FROM ({sums}){after} ORDER BY column_index DESC, row_hash LIMIT {}",
            self.limit
        )
    }
}

impl Remote {
    pub(super) async fn traffic_sums(&self, query: Arc<TrafficQuery>) -> Result<Traffic, Failure> {
        let until = Instant::now() + self.limit;
        let columns = match query.measure.source() {
            Source::Flows => self.flow_columns(&query, until).await?,
            Source::Events | Source::Series => Columns::new(query.span.0, query.span.1, query.column()),
        };
        let (flow_sums, has_more) = match query.needs_sums() {
            true => {
                self.flow_sums(Span::new(columns.from(), columns.to()), until)
                    .await?
            }
            false => (HashMap::new(), false),
        };
        let (mut sums, mut counted) = self
            .sum_up(&query, TrafficSums::new(&query, columns, flow_sums), until)
            .await?;
        let is_short = columns.column() < MINUTE && query.measure.source() == Source::Series;
        if is_short && sums.grouping.is_empty() {
            // Rollups of one second may be disabled while those of one minute are exported.
            let columns = Columns::new(query.span.0, query.span.1, MINUTE);
            let empty = TrafficSums::new(&query, columns, HashMap::new());
            (sums, counted) = self.sum_up(&query, empty, until).await?;
        }
        counted.truncated |= has_more;
        notes::add(divided_note(sums.divided));
        Ok(sums.grouping.answer(counted))
    }

    /// Chooses the column length from the number of flows and rollups.
    async fn flow_columns(&self, query: &TrafficQuery, until: Instant) -> Result<Columns, Failure> {
        let (from, to) = query.span;
        let statement = self.about(Stream::Rollups).sizes(Span::new(from, to));
        let sizes: Vec<Sizes> = self.rows(statement, until).await?;
        let Sizes { flows, rollups } = sizes.into_iter().next().unwrap_or_default();
        Ok(Columns::for_flows(query.span, query.columns, flows, rollups).until(query.known_to()))
    }

    /// Reads the sums of all flows in a time span, and whether there are more than the limit.
    async fn flow_sums(
        &self,
        span: Span,
        until: Instant,
    ) -> Result<(HashMap<FlowKey, SpanSum>, bool), Failure> {
        let statement = self.about(Stream::Rollups).sums(span, MAX_SUMS);
        let lines: Vec<FlowSum> = self.rows(statement, until).await?;
        let has_more = lines.len() > MAX_SUMS;
        Ok((
            lines
                .into_iter()
                .take(MAX_SUMS)
                .filter_map(FlowSum::sum)
                .collect(),
            has_more,
        ))
    }

    /// Reads and sums all pages, and a second time for the largest groups if there are too many.
    async fn sum_up(
        &self,
        query: &Arc<TrafficQuery>,
        mut sums: TrafficSums,
        until: Instant,
    ) -> Result<(TrafficSums, Counted), Failure> {
        let columns = sums.columns;
        loop {
            sums.grouping.reset();
            sums.flows.clear();
            sums.divided = 0;
            sums.is_cut = false;
            let mut from = match query.measure {
                Measure::Events => self.first_counted_time(columns, until).await?,
                _ => columns.from(),
            };
            (sums, from) = self.read_pages(query, sums, from, until).await?;
            if let (Measure::Of(metric), true) = (query.measure, columns.column() >= MINUTE) {
                sums = self.read_unfinished_minute(sums, metric, until).await?;
            }
            if !sums.grouping.begin_second_pass() {
                let from = (from > columns.from()).then_some(from);
                let truncated = sums.is_cut;
                return Ok((sums, Counted { from, truncated }));
            }
        }
    }

    /// Returns the time from which events are counted: if there are more than `MAX_EVENTS`, only the latest are.
    async fn first_counted_time(&self, columns: Columns, until: Instant) -> Result<u64, Failure> {
        let statement = self.about(Stream::Events).sizes_of_columns(columns);
        let counts: Vec<KeyedCount> = self.rows(statement, until).await?;
        let mut rows = 0_u64;
        for (index, count) in counts.into_iter().enumerate() {
            rows = rows.saturating_add(count.amount);
            // Always count the latest column, so that the answer is not empty.
            if rows > MAX_EVENTS && index > 0 {
                return Ok(columns.column_end(usize::try_from(count.key).unwrap_or(usize::MAX)));
            }
        }
        Ok(columns.from())
    }

    /// Reads pages back to time `from`, and sums them. Returns the time from which everything was summed, which is later than
    /// `from` if there are too many rows.
    async fn read_pages(
        &self,
        query: &Arc<TrafficQuery>,
        mut sums: TrafficSums,
        from: u64,
        until: Instant,
    ) -> Result<(TrafficSums, u64), Failure> {
        let columns = sums.columns;
        let limit = page_rows(query);
        let mut request = PageRequest {
            from,
            end: columns.to(),
            after: None,
            limit,
        };
        let mut rows = 0;
        loop {
            let statement = match query.measure {
                Measure::Reports | Measure::FlowLatency => {
                    let about = self.about(Stream::Rollups);
                    about.flow_traffic(columns, query, &self.path_tables(), request)
                }
                Measure::Events => self.about(Stream::Events).event_traffic(columns, query, request),
                Measure::Of(metric) => {
                    let interval = if columns.column() >= MINUTE { 60 } else { 1 };
                    let about = self.about(Stream::Rollups).series(metric, interval, None);
                    about.series_traffic(columns, request)
                }
            };
            let page;
            (sums, page) = sums
                .add(self.execute(statement, until, Author::Program).await?)
                .await?;
            rows += page.rows;
            if page.rows < limit {
                return Ok((sums, from));
            }
            let end = columns.column_end(page.last.column);
            if rows >= MAX_ROWS {
                return Ok((sums, end));
            }
            request = PageRequest {
                end,
                after: Some(page.last),
                ..request
            };
        }
    }

    /// Reads the one-second rollups of the current minute, which has no rollup yet.
    async fn read_unfinished_minute(
        &self,
        mut sums: TrafficSums,
        metric: Metric,
        until: Instant,
    ) -> Result<TrafficSums, Failure> {
        let columns = sums.columns;
        let statement = self.about(Stream::Rollups);
        let newest: Vec<Newest> = self
            .rows(statement.series(metric, 60, None).last(columns.to()), until)
            .await?;
        let mut last = newest.first().map_or(0, |row| row.time);
        if last == 0 {
            // No minute has ended yet.
            let statement = self.about(Stream::Rollups).last(columns.to());
            let newest: Vec<Newest> = self.rows(statement, until).await?;
            last = newest
                .first()
                .map_or(0, |row| row.time)
                .saturating_sub(MAX_MINUTE_DELAY);
        }
        let last = last.max(columns.from());
        let request = PageRequest {
            from: last,
            end: columns.to().min(last.saturating_add(MAX_MINUTE_DELAY)),
            after: None,
            limit: RESPONSE_BYTES / SERIES_ROW_BYTES,
        };
        let statement = self
            .about(Stream::Rollups)
            .series(metric, 1, Some(last))
            .series_traffic(columns, request);
        let page;
        (sums, page) = sums
            .add(self.execute(statement, until, Author::Program).await?)
            .await?;
        sums.is_cut |= page.rows >= request.limit;
        Ok(sums)
    }
}

impl TrafficSums {
    fn new(query: &Arc<TrafficQuery>, columns: Columns, sums: HashMap<FlowKey, SpanSum>) -> Self {
        let measure = query.measure;
        // ClickHouse applies the filter to events.
        let unfiltered = match measure {
            Measure::Events => Arc::new(query.unconditional()),
            _ => Arc::clone(query),
        };
        let by_flow = unfiltered.flow_parts() != FlowParts::default();
        let grouping = Grouping::new(unfiltered, columns, sums);
        Self {
            grouping,
            columns,
            measure,
            by_flow,
            flows: HashMap::new(),
            divided: 0,
            is_cut: false,
        }
    }

    /// Adds the rows of a response, on a thread for blocking work.
    async fn add(mut self, body: Vec<u8>) -> Result<(Self, Page), Failure> {
        let added = task::spawn_blocking(move || self.add_rows(&body).map(|page| (self, page)));
        let fault = "the result was not summed; this is a fault in hopwise, please report it";
        added.await.map_err(|_| Failure::Unavailable(fault.to_owned()))?
    }

    fn add_rows(&mut self, body: &[u8]) -> Result<Page, Failure> {
        let sums: Vec<SumRow> = rows::read(body)?;
        let last = sums.last().map_or_else(RowPosition::default, |row| RowPosition {
            column: row.column,
            hash: row.hash,
        });
        let page = Page {
            rows: sums.len(),
            last,
        };
        for row in sums {
            let column = row.column;
            self.grouping.seen(column);
            self.divided = self.divided.saturating_add(row.divided);
            let sum = SpanSum {
                count: row.count,
                min: row.min,
                max: row.max,
                sum: row.sum,
                first: 0,
                last: 0,
            };
            if let Some(group) = self.group_of(row) {
                self.grouping.add(group, column, &sum);
            }
        }
        Ok(page)
    }

    /// Returns the tally number of a row, or `None` if the filter rejects it or its subject is unknown to this version.
    fn group_of(&mut self, row: SumRow) -> Option<u32> {
        match self.measure {
            Measure::Reports | Measure::FlowLatency => {
                let selected = (row.flow, row.path);
                if let Some(group) = self.flows.get(&selected) {
                    return *group;
                }
                let key = if self.by_flow {
                    selected.0.key()
                } else {
                    Some(FlowKey::of_id(0))
                };
                let group = key.map(|key| self.grouping.flow(&key, &selected.1));
                if self.flows.len() < MAX_CACHED_FLOWS {
                    self.flows.insert(selected, group);
                }
                group
            }
            Measure::Events => (row.wanted != 0).then(|| self.grouping.event(&row.event(self.by_flow))),
            Measure::Of(metric) => Some(self.grouping.series(&SeriesKey {
                metric: metric as u8,
                node: row.node,
                interface: present(row.interface),
                queue: queue(row.queue),
            })),
        }
    }
}

impl SumRow {
    fn event(self, by_flow: bool) -> EventGroup {
        EventGroup {
            kind: Kind::from_name(&self.kind),
            metric: Metric::from_name(&self.metric),
            flow: if by_flow { self.flow.key() } else { None },
            path: self.path,
            node: present(self.node),
            interface: present(self.interface),
            queue: queue(self.queue),
            rule: Some(self.rule).filter(|rule| !rule.is_empty()),
            reason: self.reason.and_then(|reason| u8::try_from(reason).ok()),
            value: None,
            first: None,
        }
    }
}

impl FlowColumns {
    /// Returns a flow with the selected columns of this row.
    fn key(&self) -> Option<FlowKey> {
        match self.known {
            _ if !self.flow.is_empty() => return flow(&self.flow),
            0 => return None,
            // Flows known by ID only are alike unless the whole key is selected.
            1 => return Some(FlowKey::of_id(0)),
            _ => {}
        }
        let ports = (self.has_ports != 0).then_some((self.src_port, self.dst_port));
        Some(FlowKey::new(
            self.address(&self.src),
            self.address(&self.dst),
            ports,
            self.proto,
        ))
    }

    /// Parses an address column, in which IPv4 is mapped into IPv6.
    fn address(&self, text: &str) -> IpAddr {
        let address = text.parse::<Ipv6Addr>().unwrap_or(Ipv6Addr::UNSPECIFIED);
        if self.known == 4 {
            IpAddr::V4(address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED))
        } else {
            IpAddr::V6(address)
        }
    }
}

/// Returns the table columns that the needed parts of a flow require, and the SQL expressions of these parts with their names.
fn flow_columns(parts: FlowParts, prefixes: Prefixes) -> (Vec<&'static str>, Vec<(String, &'static str)>) {
    if parts.all {
        return (Vec::new(), vec![("flow".to_owned(), "flow")]);
    }
    if parts == FlowParts::default() {
        return (Vec::new(), Vec::new());
    }
    let mut needed = Vec::new();
    let mut columns = Vec::new();
    let known = format!("multiIf(flow = '', 0, startsWith(flow, 'flow-id:'), 1, {IS_V4}, 4, 6)");
    columns.push((known, "known"));
    for (column, name, part) in [("src", "src_part", parts.src), ("dst", "dst_part", parts.dst)] {
        // IPv4 addresses are stored as ::ffff:a.b.c.d, so their prefixes are 96 bits longer.
        let v4 = 96 + u32::from(prefixes.v4.min(32));
        let v6 = prefixes.v6.min(128);
        let text = match part {
            Needed::Nothing => continue,
            Needed::All => column.to_owned(),
            Needed::Prefix => {
                format!("tupleElement(IPv6CIDRToRange({column}, toUInt8(if({IS_V4}, {v4}, {v6}))), 1)")
            }
        };
        needed.push(column);
        columns.push((format!("toString({text})"), name));
    }
    if parts.src_port || parts.dst_port {
        columns.push((HAS_PORTS.to_owned(), "ported"));
    }
    let numbers = [
        ("sport", "sport_part", parts.src_port),
        ("dport", "dport_part", parts.dst_port),
        ("proto", "proto_part", parts.proto),
    ];
    for (column, name, _) in numbers.into_iter().filter(|(_, _, is_needed)| *is_needed) {
        needed.push(column);
        columns.push((column.to_owned(), name));
    }
    (needed, columns)
}

/// Formats columns as `, expression AS name …`, and their names alone as `, name …`.
fn column_lists(columns: &[(String, &str)]) -> (String, String) {
    let named = columns.iter().map(|(column, name)| match column == name {
        true => format!(", {column}"),
        false => format!(", {column} AS {name}"),
    });
    (
        named.collect(),
        columns.iter().map(|(_, name)| format!(", {name}")).collect(),
    )
}

impl Statement {
    /// Sums flow reports and latencies. Flows with equal selected columns and equal paths at the end of a rollup are grouped; those
    /// that changed their paths are counted by the minute.
    fn flow_traffic(
        self,
        columns: Columns,
        query: &TrafficQuery,
        tables: &PathTables,
        page: PageRequest,
    ) -> Self {
        let pieces = columns.pieces();
        let known = pieces.last().map_or(page.from, |piece| piece.to);
        let mut statement = self.minutes(
            Span::new(page.from, page.end.min(known).max(page.from)),
            &FLOW_ROLLUPS,
        );
        let is_selected = statement.flow_is_selected();
        let (needed, selected) = flow_columns(query.flow_parts(), query.prefixes);
        let (named, names) = column_lists(&selected);
        let summed = statement.parts("ts, flow", &needed);
        let columns_sql: String = needed.iter().map(|column| format!(", {column}")).collect();
        let any_columns: String = needed
            .iter()
            .map(|column| format!(", any({column}) AS {column}"))
            .collect();
        let IntervalSql { begin, mut length } = interval_sql(&pieces);
        if query.needs_paths() {
            let is_changed = statement.path_is_changed(columns.from(), columns.to(), tables);
            length = format!("if({is_changed}, {MINUTE}, {length})");
        }
        let counted = format!(
            "SELECT flow, begin, length, sum(values) AS value_count, min(least) AS value_min, max(most) AS value_max, {} AS value_sum{any_columns} FROM (\
             SELECT flow, values, least, most, total, toUnixTimestamp64Nano(ts) AS time, {length} AS length, {begin} AS begin{columns_sql} FROM ({summed})) \
             GROUP BY flow, begin, length",
            saturating_sum("total")
        );
        let (source, path, divided) = match query.needs_paths() {
            false => (format!("({counted})"), "", ""),
            true => {
                let lifetimes =
                    statement.flow_lifetimes(columns.from(), columns.to(), &[is_selected], None, tables);
                let taken = "arrayCount(start -> start.1 < begin + length, path_starts) AS taken";
                let path = "if(taken = 0, CAST([], 'Array(UInt32)'), tupleElement(path_starts[greatest(1, taken)], 2)) AS path";
                // A path that differs from that at the end, other than the one with which the flow began.
                let divided = "arrayExists((start, number) -> start.1 < begin + length AND start.2 != path \
                               AND tupleElement(path_starts[number + 1], 1) > begin, path_starts, arrayEnumerate(path_starts)) AS divided";
                let counted = format!(
                    "(SELECT *, {taken}, {path}, {divided} FROM ({counted}) AS counted LEFT JOIN (SELECT flow, path_starts FROM ({lifetimes})) AS lifetimes USING flow)"
                );
                (
                    counted,
                    ", path",
                    ", sumIf(value_count, divided) AS divided_count",
                )
            }
        };
        let index = column_index("begin", columns);
        // Reports without a latency are separate, since they must not count in a mean.
        let (values, has_values) = match query.measure.is_count() {
            true => (String::new(), ""),
            false => (
                format!(
                    ", min(value_min) AS least, max(value_max) AS most, {} AS total",
                    saturating_sum("value_sum")
                ),
                ", value_min <= value_max",
            ),
        };
        let hash = hash_sql(&format!("column_index{names}{path}{has_values}"));
        statement.text = page.sql(&format!(
            "SELECT {index} AS column_index, {hash} AS row_hash, sum(value_count) AS amount{divided}{values}{named}{path} \
             FROM {source} GROUP BY column_index{has_values}{names}{path}"
        ));
        statement.in_rows()
    }

    /// Counts events grouped by the selected columns. The filter's result is one of the columns.
    fn event_traffic(mut self, columns: Columns, query: &TrafficQuery, page: PageRequest) -> Self {
        let unfiltered = query.unconditional();
        let parts = unfiltered.event_parts();
        let mut selected: Vec<(String, &str)> = vec![("kind".to_owned(), "kind")];
        if let Some(condition) = &query.condition {
            let text = condition.to_clickhouse(&mut |kind, value| self.value(kind, value));
            selected.push((format!("ifNull({text}, 0) != 0"), "wanted"));
        }
        if parts.flow {
            selected.extend(flow_columns(unfiltered.flow_parts(), unfiltered.prefixes).1);
        }
        let optional_columns: [(bool, &[&'static str]); 4] = [
            (parts.metric, &["metric"]),
            (parts.path, &["path"]),
            (parts.location, &["node", "interface", "queue"]),
            (parts.cause, &["rule", "reason"]),
        ];
        for (_, names) in optional_columns.into_iter().filter(|(is_needed, _)| *is_needed) {
            selected.extend(names.iter().map(|name| ((*name).to_owned(), *name)));
        }
        let (named, names) = column_lists(&selected);
        let events = self.table.clone();
        let deduplicated = self.deduplicated(&events, named.trim_start_matches(", "), page.from, page.end);
        let index = column_index("time", columns);
        let hash = hash_sql(&format!("column_index{names}"));
        self.text = page.sql(&format!(
            "SELECT {index} AS column_index, {hash} AS row_hash, count() AS amount{names} FROM ({deduplicated}) \
             GROUP BY column_index{names}"
        ));
        self.in_rows()
    }

    /// Selects rollups of nodes, queues and links. With `after`, the start of a minute, only later rollups are selected, and
    /// rollups of series without a one-minute rollup for that minute.
    fn series(mut self, metric: Metric, interval: u32, after: Option<u64>) -> Self {
        let series_terms = [
            format!("metric = '{}'", metric.name()),
            "flow = ''".to_owned(),
            format!("node != {ABSENT}"),
        ];
        if let Some(minute) = after {
            let next = minute.saturating_add(MINUTE);
            self.terms = series_terms.to_vec();
            self.terms.push("interval = 60".to_owned());
            self.range(Some(minute), Some(next));
            let source = self.source();
            let unknown =
                format!("(node, interface, queue) NOT IN (SELECT node, interface, queue FROM {source})");
            self.terms.clear();
            let later = self.time("ts >=", next);
            self.terms.push(format!("({later} OR {unknown})"));
        }
        self.terms.extend(series_terms);
        self.terms.push(format!("interval = {interval}"));
        self
    }

    /// Sums the selected series by time column.
    fn series_traffic(mut self, columns: Columns, page: PageRequest) -> Self {
        self.range(Some(page.from), Some(page.end));
        let summed = self.parts("ts, node, interface, queue", &[]);
        let index = column_index("toUnixTimestamp64Nano(ts)", columns);
        let key = "node, interface, queue";
        let hash = hash_sql(&format!("column_index, {key}"));
        self.text = page.sql(&format!(
            "SELECT {index} AS column_index, {hash} AS row_hash, {key}, sum(values) AS amount, min(value_min) AS least, \
             max(value_max) AS most, {} AS total FROM (SELECT ts, {key}, values, least AS value_min, most AS value_max, \
             total AS value_sum FROM ({summed})) GROUP BY column_index, {key}",
            saturating_sum("value_sum")
        ));
        self.in_rows()
    }

    /// Selects the time of the last row before `to`, or 0 if there is none.
    fn last(mut self, to: u64) -> Self {
        self.range(None, Some(to));
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(max(ts)) AS time FROM {}",
            self.source()
        );
        self.in_rows()
    }

    /// Selects the flows of a time span with their sums, most reports first; at most `limit` + 1.
    fn sums(self, span: Span, limit: usize) -> Self {
        let mut statement = self.minutes(span, &FLOW_ROLLUPS);
        let summed = statement.parts("ts, flow", &[]);
        let limit = limit + 1;
        statement.text = format!(
            "SELECT flow, {SUM} FROM ({summed}) GROUP BY flow ORDER BY value_count DESC, flow LIMIT {limit}"
        );
        statement.in_rows()
    }

    /// Counts the flows and the flow rollups of a time span.
    fn sizes(self, span: Span) -> Self {
        let mut statement = self.minutes(span, &FLOW_ROLLUPS);
        statement.text = format!(
            "SELECT uniq(flow) AS flows, count() AS rollups FROM {}",
            statement.source()
        );
        statement.in_rows()
    }

    /// Counts the rows in each time column, latest first.
    fn sizes_of_columns(mut self, columns: Columns) -> Self {
        self.range(Some(columns.from()), Some(columns.to()));
        let index = column_index("toUnixTimestamp64Nano(ts)", columns);
        self.text = format!(
            "SELECT {index} AS key, count() AS amount FROM {} GROUP BY key ORDER BY key DESC",
            self.source()
        );
        self.in_rows()
    }
}

/// Returns SQL for the index of the time column that contains a time.
fn column_index(time: &str, columns: Columns) -> String {
    format!("intDiv({time} - {}, {})", columns.from(), columns.column())
}

/// Returns the page size in rows: as many as fit into a response.
fn page_rows(query: &TrafficQuery) -> usize {
    let parts = query.flow_parts();
    let events = query.unconditional().event_parts();
    let is_count = query.measure.is_count();
    // Maximum bytes that each part adds to a row, except for long paths.
    let widths = [
        (true, 80),
        (!is_count, 90),
        (parts.all, 100),
        (
            !parts.all && (parts.src > Needed::Nothing || parts.dst > Needed::Nothing),
            110,
        ),
        (!parts.all && (parts.src_port || parts.dst_port), 40),
        (
            query.needs_paths() && query.measure.source() == Source::Flows || events.path,
            150,
        ),
        (query.measure.source() != Source::Flows, 70),
        (events.location, 60),
        (events.cause, 80),
    ];
    let width: usize = widths
        .iter()
        .filter(|(is_selected, _)| *is_selected)
        .map(|(_, width)| width)
        .sum();
    RESPONSE_BYTES / width
}

/// Returns SQL for a hash of columns. They are converted to text, because the hash of NULL would be NULL.
fn hash_sql(columns: &str) -> String {
    format!("cityHash64(toString(tuple({columns})))")
}

/// Returns SQL for the sum of a column, saturating at the store's maximum.
fn saturating_sum(column: &str) -> String {
    format!("toUInt64(least(sum(toUInt128({column})), toUInt128(9223372036854775807)))")
}

fn selected() -> u8 {
    1
}

fn greatest() -> u64 {
    u64::MAX
}

fn absent() -> u32 {
    ABSENT
}

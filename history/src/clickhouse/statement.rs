//! Builder of ClickHouse SQL. Values are passed as typed query parameters, never as statement text, so input cannot inject SQL.

mod losses;
mod queues;

use std::{net::IpAddr, sync::Arc, time::Duration};

use export::sink::{self, clickhouse::ABSENT};
use net::http::Request;
use store::{EventRank, RollupFilter, Span, Value};
use wire::FlowKey;

use super::EventSelection;
use crate::sql;

const EVENT_COLUMNS: &str = "toUnixTimestamp64Nano(ts) AS time, id, collector, kind, metric, flow, node, interface, queue, value, previous, threshold, \
                     reason, basis, rule, path, flow_latency, latency_basis, hop_latencies";
/// Columns that distinguish the rollups of one time.
const ROLLUP_KEY: &str = "interval, metric, node, interface, queue, flow";
/// Aggregate columns of rollups, equal to the store's: sums saturate at `i64::MAX`.
pub(super) const SUM: &str = "sum(values) AS value_count, max(most) AS largest, toUInt64(toUnixTimestamp64Nano(max(ts))) + 60000000000 AS last, \
                   [value_count, min(least), largest, toUInt64(least(sum(toUInt128(total)), toUInt128(9223372036854775807))), \
                   toUInt64(toUnixTimestamp64Nano(min(ts))), last] AS sums";
/// Maximum bytes of the response to a user's statement.
const MAX_BYTES: &str = "8388608";

/// Names of the tables of events and of flow states.
pub(super) struct PathTables {
    pub(super) events: String,
    pub(super) states: String,
}

/// A statement with its parameters and limits.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) table: String,
    pub(super) text: String,
    pub(super) terms: Vec<String>,
    /// Collectors in pairs, each with the name that represents its pair; the collectors of a pair receive the same reports.
    pairs: Arc<[(String, String)]>,
    /// URL parameters: settings and query parameters.
    values: Vec<(String, String)>,
}

impl Statement {
    /// Creates an empty statement about a table.
    pub(super) fn about(table: String, pairs: Arc<[(String, String)]>) -> Self {
        Self {
            table,
            pairs,
            text: String::new(),
            terms: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Selects the time of the newest row, or 0 if there is none.
    pub(super) fn newest(mut self) -> Self {
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(max(ts)) AS time FROM {}",
            self.table
        );
        self.in_rows()
    }

    /// Selects the events after `last`, the newest first.
    pub(super) fn events(
        mut self,
        query: &EventSelection,
        from: Option<u64>,
        last: Option<EventRank>,
        limit: usize,
    ) -> Self {
        let filter = &query.filter;
        self.conditions(filter.conditions());
        self.flow(filter.flow.as_ref());
        self.terms.extend(query.term.map(str::to_owned));
        let condition = query.condition.as_ref();
        let condition =
            condition.map(|filter| filter.to_clickhouse(&mut |kind, value| self.value(kind, value)));
        self.terms.extend(condition);
        // Exclude events of the previous page that another collector stored slightly earlier.
        let table = self.table.clone();
        let not_before = filter.before.map(|before| self.duplicate_events(&table, before));
        let not_after = filter.after.map(|last| {
            let term_count = self.terms.len();
            let later = self.time("ts >", last.ts);
            let id = self.value("UInt64", last.id.to_string());
            self.terms.push(format!("({later} OR id >= {id})"));
            let not_duplicate = self.duplicate_events(&table, last.ts);
            self.terms.truncate(term_count);
            not_duplicate
        });
        self.range(from, filter.before);
        self.terms.extend(not_before);
        self.terms.extend(not_after);
        if let Some(EventRank { ts, id }) = last {
            let earlier = self.time("ts <=", ts);
            let exact = self.time("ts <", ts);
            let id = self.value("UInt64", id.to_string());
            self.terms.push(format!("{earlier} AND ({exact} OR id < {id})"));
        }
        let source = self.source();
        self.text = format!("SELECT {EVENT_COLUMNS} FROM {source} ORDER BY ts DESC, id DESC LIMIT {limit}");
        self.in_rows()
    }

    /// Selects merged rollups, newest first.
    pub(super) fn rollups(mut self, filter: &RollupFilter, from: Option<u64>) -> Self {
        self.conditions(filter.conditions());
        self.flow(filter.flow.as_ref());
        self.range(from, filter.to.map(|to| to.saturating_add(1)));
        let summed = self.summed();
        let limit = filter.limit;
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(ts) AS time, {ROLLUP_KEY}, values, least, most, total, middle, high FROM ({summed}) \
             ORDER BY ts DESC, {ROLLUP_KEY} LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Returns SQL for the selected rollups, one row each: the sum of the parts, and of a pair of collectors only the one with
    /// more values.
    fn summed(&mut self) -> String {
        let representative = self.representative();
        let source = self.source();
        format!(
            "SELECT ts, {ROLLUP_KEY}, sum(piece_count) AS values, min(piece_min) AS least, max(piece_max) AS most, sum(piece_sum) AS total, \
             max(piece_p50) AS middle, max(piece_p99) AS high \
             FROM (SELECT ts, {ROLLUP_KEY}, {representative} AS representative, sum(piece.count) AS piece_count, min(piece.min) AS piece_min, \
             max(piece.max) AS piece_max, sum(piece.sum) AS piece_sum, max(piece.p50) AS piece_p50, max(piece.p99) AS piece_p99 \
             FROM (SELECT * FROM {source} LIMIT 1 BY ts, {ROLLUP_KEY}, collector, part) AS piece \
             GROUP BY ts, {ROLLUP_KEY}, collector ORDER BY piece_count DESC LIMIT 1 BY ts, {ROLLUP_KEY}, representative) GROUP BY ts, {ROLLUP_KEY}"
        )
    }

    /// Returns SQL for the collector of a row, or the representative of its pair.
    fn representative(&mut self) -> String {
        if self.pairs.is_empty() {
            return "toString(collector)".to_owned();
        }
        let names = self.value("Array(String)", list(self.pairs.iter().map(|(name, _)| name)));
        let representatives = self.value("Array(String)", list(self.pairs.iter().map(|(_, pair)| pair)));
        format!("transform(toString(collector), {names}, {representatives}, toString(collector))")
    }

    /// Returns SQL for the selected rollups as parts, possibly several rows each, with `values`, `least`, `most` and `total`.
    /// Of redundant collectors (a pair, which receives the same reports), only the one with more values counts. `key` lists the
    /// columns that identify a rollup, and `flow_columns` further columns of the flow.
    pub(super) fn parts(&mut self, key: &str, flow_columns: &[&str]) -> String {
        let columns: String = flow_columns.iter().map(|column| format!(", {column}")).collect();
        let any_columns: String = flow_columns
            .iter()
            .map(|column| format!(", any(piece.{column}) AS {column}"))
            .collect();
        let table = self.table.clone();
        let rows = format!(
            "SELECT {key}{columns}, count AS values, min AS least, max AS most, sum AS total FROM {table} FINAL"
        );
        if self.pairs.is_empty() {
            return format!("{rows}{}", self.where_clause());
        }
        let representative = self.representative();
        let term_count = self.terms.len();
        let names = self.value("Array(String)", list(self.pairs.iter().map(|(name, _)| name)));
        self.terms.push(format!("NOT has({names}, toString(collector))"));
        let unpaired = format!("{rows}{}", self.where_clause());
        self.terms.truncate(term_count);
        self.terms.push(format!("has({names}, toString(collector))"));
        let paired = self.where_clause();
        self.terms.truncate(term_count);
        format!(
            "{unpaired} UNION ALL SELECT {key}{columns}, max(piece_count) AS values, argMax(piece_min, piece_count) AS least, \
             argMax(piece_max, piece_count) AS most, argMax(piece_sum, piece_count) AS total FROM (\
             SELECT {key}{any_columns}, {representative} AS representative, sum(piece.count) AS piece_count, \
             min(piece.min) AS piece_min, max(piece.max) AS piece_max, sum(piece.sum) AS piece_sum \
             FROM (SELECT * FROM {table} FINAL{paired}) AS piece GROUP BY {key}, collector) GROUP BY {key}{columns}, representative"
        )
    }

    /// Adds terms for the one-minute rollups of a time span, and further `terms`.
    pub(super) fn minutes(mut self, span: Span, terms: &[&str]) -> Self {
        self.terms.push("interval = 60".to_owned());
        self.terms.extend(terms.iter().map(|&term| term.to_owned()));
        self.range(Some(span.from()), Some(span.to()));
        self
    }

    /// Selects the flows of a time span, or only one of them, ordered by the column `order`, largest first; at most `limit` + 1.
    pub(super) fn flows(
        self,
        span: Span,
        only: Option<&FlowKey>,
        tables: &PathTables,
        order: &str,
        limit: usize,
    ) -> Self {
        let PathTables { events, states } = tables;
        let mut statement = self.minutes(span, &["metric = 'flow_latency'", "flow != ''"]);
        statement.flow(only);
        // Otherwise the paths and states of all flows ever stored would be grouped.
        let is_selected = statement.flow_is_selected();
        let summed = statement.parts("ts, flow", &[]);
        let before = statement.time("ts <", span.to());
        let limit = limit + 1;
        statement.text = format!(
            "SELECT found.flow AS flow, sums, if(notEmpty(events.event_path), events.event_path, states.state_path) AS path, states.state_basis AS basis FROM (SELECT flow, {SUM} FROM ({summed}) GROUP BY flow \
             ORDER BY {order} DESC, flow LIMIT {limit}) AS found \
             LEFT JOIN (SELECT flow, argMax(path, ts) AS event_path FROM {events} WHERE kind IN ('new', 'path_change', 'path_loop') \
             AND metric = 'flow_path' AND notEmpty(path) AND {before} AND {is_selected} GROUP BY flow) AS events ON found.flow = events.flow \
             LEFT JOIN (SELECT flow, argMax(basis, last_seen) AS state_basis, argMax(path, last_seen) AS state_path FROM {states} WHERE {is_selected} GROUP BY flow) AS states ON found.flow = states.flow"
        );
        statement.in_rows()
    }

    /// Selects the series of nodes, queues and links in a time span; at most `limit` + 1.
    pub(super) fn nodes(self, span: Span, limit: usize) -> Self {
        let metrics = "metric IN ('hop_latency', 'queue_occupancy', 'queue_congestion', 'link_utilization')";
        let mut statement = self.minutes(span, &["flow = ''", metrics, &format!("node != {ABSENT}")]);
        let key = "metric, node, interface, queue";
        let summed = statement.parts(&format!("ts, {key}"), &[]);
        let limit = limit + 1;
        statement.text =
            format!("SELECT {key}, {SUM} FROM ({summed}) GROUP BY {key} ORDER BY node, {key} LIMIT {limit}");
        statement.in_rows()
    }

    /// Counts the dropped packets of a time span by node, for at most `limit` + 1 nodes.
    pub(super) fn drops(mut self, span: Span, limit: usize) -> Self {
        self.terms.push(format!("node != {ABSENT}"));
        self.range(Some(span.from()), Some(span.to()));
        let packets = self.each_once("node AS key", "key", &[]);
        let limit = limit + 1;
        self.text = format!(
            "SELECT key, sum(copies) AS amount FROM ({packets}) GROUP BY key ORDER BY key LIMIT {limit}"
        );
        self.in_rows()
    }

    /// Counts flow reports by time column.
    pub(super) fn reports(self, span: Span, column: u64) -> Self {
        let mut statement = self.minutes(span, &["metric = 'flow_latency'", "flow != ''"]);
        let summed = statement.parts("ts, flow", &[]);
        let part = part(span, column);
        statement.text =
            format!("SELECT {part} AS key, sum(values) AS amount FROM ({summed}) GROUP BY key ORDER BY key");
        statement.in_rows()
    }

    /// Counts distinct events by time column and kind.
    pub(super) fn counts(mut self, span: Span, column: u64) -> Self {
        self.range(Some(span.from()), Some(span.to()));
        let part = part(span, column);
        let events = self.each_once(&format!("{part} AS key, kind"), "key, kind", &[]);
        self.text = format!(
            "SELECT key, kind, sum(copies) AS amount FROM ({events}) GROUP BY key, kind ORDER BY key, kind"
        );
        self.in_rows()
    }

    /// Returns SQL for the selected records by `key` and id, as `copies` of one id: several collectors may store one record, and
    /// an export may be repeated. Different records of a collector may have one id, if a device repeats its numbers; they
    /// differ in time. So the collector with the most counts. `columns` (with an alias) are the selected keys, and `values` are
    /// pairs of an aggregate function and a column with its alias.
    fn each_once(&self, columns: &str, key: &str, values: &[[&str; 3]]) -> String {
        let source = self.source();
        let inner: String = values
            .iter()
            .map(|[function, column, name]| format!(", {function}({column}) AS {name}"))
            .collect();
        let outer: String = values
            .iter()
            .map(|[function, _, name]| format!(", {function}(piece.{name}) AS {name}"))
            .collect();
        format!(
            "SELECT {key}, id, max(piece.times) AS copies{outer} FROM (SELECT {columns}, id, uniqExact(ts) AS times{inner} \
             FROM {source} GROUP BY {key}, id, collector) AS piece GROUP BY {key}, id"
        )
    }

    /// Returns SQL for the selected records, with their number `nth` among those of equal id at their collector, ordered by
    /// `order`: copies at several collectors have one id and number. An export may be repeated: each record is there once.
    fn numbered(&self, order: &str) -> String {
        Self::numbered_in(&self.source(), order)
    }

    /// Like [`numbered`](Self::numbered), for the records of `source`.
    pub(super) fn numbered_in(source: &str, order: &str) -> String {
        format!(
            "SELECT *, row_number() OVER (PARTITION BY id, collector ORDER BY {order}) AS nth \
             FROM (SELECT * FROM {source} LIMIT 1 BY id, collector, ts)"
        )
    }

    /// Creates a statement from a user's SQL. Unqualified tables are in `database`.
    pub(super) fn from_user(request: &sql::Request, database: &str) -> Self {
        // One extra row shows whether there are more.
        let limit = request.max_rows.saturating_add(1).to_string();
        let mut statement = Self::about(String::new(), Arc::default());
        statement.text.clone_from(&request.sql);
        statement.set("database", database);
        statement.set("default_format", "JSONCompact");
        statement.set("max_result_rows", &limit);
        statement.set("max_result_bytes", MAX_BYTES);
        statement.set("result_overflow_mode", "break");
        statement
    }

    /// Builds the HTTP request, with `limit` as the time limit.
    pub(super) fn request(mut self, limit: Duration) -> Request {
        self.set("readonly", "1");
        self.set(
            "max_execution_time",
            &format!("{:.3}", limit.as_secs_f64().max(0.001)),
        );
        // A profile could let ClickHouse return partial results silently.
        for limit in ["timeout", "read", "group_by", "sort", "join", "set", "distinct"] {
            self.set(&format!("{limit}_overflow_mode"), "throw");
        }
        self.set("output_format_json_quote_64bit_integers", "0");
        // Buffer the response, so that errors come before the first row.
        self.set("wait_end_of_query", "1");
        self.set("cancel_http_readonly_queries_on_client_close", "1");
        let values = self
            .values
            .iter()
            .map(|(name, value)| format!("{name}={}", sink::escape(value)));
        Request {
            method: "POST",
            target: format!("/?{}", values.collect::<Vec<_>>().join("&")),
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: self.text.into(),
        }
    }

    /// Returns a term that selects the flows of the currently selected rows.
    pub(super) fn flow_is_selected(&self) -> String {
        format!("flow IN (SELECT flow FROM {})", self.source())
    }

    pub(super) fn in_rows(mut self) -> Self {
        self.set("join_use_nulls", "0");
        self.text.push_str(" FORMAT JSONEachRow");
        self
    }

    fn set(&mut self, name: &str, value: &str) {
        self.values.push((name.to_owned(), value.to_owned()));
    }

    /// Adds a parameter, and returns its placeholder in the statement.
    pub(super) fn value(&mut self, kind: &str, value: String) -> String {
        let name = format!("p{}", self.values.len());
        // Parameter values use the escaping of TabSeparated.
        let value = value
            .replace('\\', "\\\\")
            .replace('\t', "\\t")
            .replace('\n', "\\n");
        self.values.push((format!("param_{name}"), value));
        format!("{{{name}:{kind}}}")
    }

    pub(super) fn equal(&mut self, column: &str, kind: &str, value: Option<String>) {
        if let Some(value) = value {
            let value = self.value(kind, value);
            self.terms.push(format!("{column} = {value}"));
        }
    }

    fn conditions(&mut self, conditions: Vec<(&str, Value)>) {
        for (column, value) in conditions {
            match value {
                Value::Text(text) => self.equal(column, "String", Some(text)),
                Value::Int(number) => self.equal(column, "UInt32", Some(number.to_string())),
                Value::Null | Value::Real(_) | Value::Blob(_) => {}
            }
        }
    }

    /// Adds terms for the flow. Its addresses are included because the events' projection is sorted by them.
    pub(super) fn flow(&mut self, flow: Option<&FlowKey>) {
        let Some(flow) = flow else { return };
        self.equal("flow", "String", Some(flow.to_string()));
        if flow.known_id().is_none() {
            self.equal("src", "IPv6", Some(mapped(flow.src())));
            self.equal("dst", "IPv6", Some(mapped(flow.dst())));
        }
    }

    pub(super) fn range(&mut self, from: Option<u64>, before: Option<u64>) {
        for (compare, time) in [("ts >=", from), ("ts <", before)] {
            if let Some(time) = time {
                let term = self.time(compare, time);
                self.terms.push(term);
            }
        }
    }

    /// Like [`where_clause`](Self::where_clause), restricted to a time range.
    pub(super) fn where_within(&mut self, from: u64, before: u64) -> String {
        let term_count = self.terms.len();
        self.range(Some(from), Some(before));
        let where_clause = self.where_clause();
        self.terms.truncate(term_count);
        where_clause
    }

    /// Returns a comparison with a time. The tables' times are signed.
    pub(super) fn time(&mut self, compare: &str, time: u64) -> String {
        let time = self.value("Int64", i64::try_from(time).unwrap_or(i64::MAX).to_string());
        format!("{compare} fromUnixTimestamp64Nano({time}, 'UTC')")
    }

    /// Returns the table with its `WHERE` clause, for `FROM`.
    pub(super) fn source(&self) -> String {
        format!("{}{}", self.table, self.where_clause())
    }

    pub(super) fn where_clause(&self) -> String {
        match self.terms.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.terms.join(" AND ")),
        }
    }
}

/// Formats texts as an array parameter.
fn list<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let quoted = texts.map(|text| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")));
    format!("[{}]", quoted.collect::<Vec<_>>().join(","))
}

/// Formats an address as IPv6, with IPv4 mapped.
pub(super) fn mapped(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_string(),
        IpAddr::V6(address) => address.to_string(),
    }
}

/// Returns SQL for the start of the time column that contains a row.
fn part(span: Span, column: u64) -> String {
    let from = span.from();
    let column = column.max(1);
    format!("{from} + intDiv(toUnixTimestamp64Nano(ts) - {from}, {column}) * {column}")
}

/// Returns a node, interface or queue number, or `None` if it is [`ABSENT`].
pub(super) fn present(number: u32) -> Option<u32> {
    (number != ABSENT).then_some(number)
}

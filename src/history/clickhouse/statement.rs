//! Statements of ClickHouse's SQL. Values are parameters with types, never text of the statement.

use std::{net::IpAddr, time::Duration};

use export::sink::{self, clickhouse::ABSENT};
use store::RollupFilter;
use wire::FlowKey;

use super::{TWIN, Wanted};
use crate::sql::Request;

/// A statement with its parameters and limits.
#[derive(Debug)]
pub(super) struct Statement {
    table: String,
    text: String,
    terms: Vec<String>,
    /// Name and value of what stands in the address.
    values: Vec<(String, String)>,
}

impl Statement {
    /// An empty statement about a table.
    pub(super) fn about(table: String) -> Self {
        Self { table, text: String::new(), terms: Vec::new(), values: Vec::new() }
    }

    /// The time of the newest row; 0 if there is none.
    pub(super) fn newest(mut self) -> Self {
        self.text = format!("SELECT toUnixTimestamp64Nano(max(ts)) AS time FROM {}", self.table);
        self.in_rows()
    }

    /// Events before `last`, the newest first.
    pub(super) fn events(
        mut self,
        question: &Wanted,
        (from, last, most): (Option<u64>, Option<(u64, u64)>, usize),
    ) -> Self {
        let filter = &question.filter;
        self.equal("kind", "String", filter.kind.map(|kind| kind.name().to_owned()));
        self.equal("node", "UInt32", filter.node.map(|node| node.to_string()));
        self.equal("metric", "String", filter.metric.map(|metric| metric.name().to_owned()));
        self.flow(filter.flow.as_ref());
        self.terms.extend(question.only.map(str::to_owned));
        let condition = question.condition.as_ref();
        let condition =
            condition.map(|filter| filter.click_house(&mut |kind, value| self.value(kind, value)));
        self.terms.extend(condition);
        // One of the page before, heard by another collector.
        let twin = question.before.map(|before| {
            let mut terms = self.terms.clone();
            terms.push(self.time("ts >=", before));
            terms.push(self.time("ts <", before.saturating_add(TWIN)));
            format!("id NOT IN (SELECT id FROM {} WHERE {})", self.table, terms.join(" AND "))
        });
        self.range(from, question.before);
        self.terms.extend(twin);
        if let Some((ts, id)) = last {
            let earlier = self.time("ts <=", ts);
            let (exact, id) = (self.time("ts <", ts), self.value("UInt64", id.to_string()));
            self.terms.push(format!("{earlier} AND ({exact} OR id < {id})"));
        }
        let (table, terms) = (&self.table, self.joined());
        self.text = format!("SELECT {EVENT} FROM {table}{terms} ORDER BY ts DESC, id DESC LIMIT {most}");
        self.in_rows()
    }

    /// Rollups, the newest first. `pairs`: the names of collectors that hear the same reports, and one that stands for them.
    pub(super) fn rollups(
        mut self,
        filter: &RollupFilter,
        from: Option<u64>,
        pairs: &[(String, String)],
    ) -> Self {
        self.equal("metric", "String", filter.metric.map(|metric| metric.name().to_owned()));
        self.equal("node", "UInt32", filter.node.map(|node| node.to_string()));
        self.equal("queue", "UInt32", filter.queue.map(|queue| queue.to_string()));
        self.equal("interface", "UInt32", filter.interface.map(|interface| interface.to_string()));
        self.equal("interval", "UInt32", filter.interval.map(|interval| interval.to_string()));
        self.flow(filter.flow.as_ref());
        self.range(from, filter.to.map(|to| to.saturating_add(1)));
        let whose = if pairs.is_empty() {
            "collector".to_owned()
        } else {
            let list = |names: Vec<&str>| format!("['{}']", names.join("','"));
            let names =
                self.value("Array(String)", list(pairs.iter().map(|(name, _)| name.as_str()).collect()));
            let stand =
                self.value("Array(String)", list(pairs.iter().map(|(_, pair)| pair.as_str()).collect()));
            format!("transform(toString(collector), {names}, {stand}, toString(collector))")
        };
        let (table, terms, limit) = (&self.table, self.joined(), filter.limit);
        self.text = format!(
            "SELECT toUnixTimestamp64Nano(ts) AS time, {PLACE}, sum(a) AS values, min(b) AS least, max(c) AS most, sum(d) AS total, \
             max(e) AS middle, max(f) AS high FROM (\
             SELECT ts, {PLACE}, {whose} AS whose, sum(piece.count) AS a, min(piece.min) AS b, max(piece.max) AS c, sum(piece.sum) AS d, \
             max(piece.p50) AS e, max(piece.p99) AS f FROM (SELECT * FROM {table}{terms} LIMIT 1 BY ts, {PLACE}, collector, part) AS piece \
             GROUP BY ts, {PLACE}, collector ORDER BY a DESC LIMIT 1 BY ts, {PLACE}, whose) \
             GROUP BY ts, {PLACE} ORDER BY ts DESC, {PLACE} LIMIT {limit}"
        );
        self.in_rows()
    }

    /// What a user wrote, about the tables of this database if it names no other.
    pub(super) fn of_user(request: &Request, database: &str) -> Self {
        // A row more than are wanted shows that there are more.
        let most = request.max_rows.saturating_add(1).to_string();
        let mut statement = Self::about(String::new());
        statement.text.clone_from(&request.sql);
        statement.set("database", database);
        statement.set("default_format", "JSONCompact");
        statement.set("max_result_rows", &most);
        statement.set("max_result_bytes", MAX_BYTES);
        statement.set("result_overflow_mode", "break");
        statement
    }

    /// As a request, which takes at most this long.
    pub(super) fn request(mut self, most: Duration) -> sink::Request {
        self.set("readonly", "1");
        self.set("max_execution_time", &format!("{:.3}", most.as_secs_f64().max(0.001)));
        self.set("output_format_json_quote_64bit_integers", "0");
        // Errors come before the first row, and not in the middle of an answer.
        self.set("wait_end_of_query", "1");
        self.set("cancel_http_readonly_queries_on_client_close", "1");
        let values = self.values.iter().map(|(name, value)| format!("{name}={}", sink::escape(value)));
        sink::Request {
            method: "POST",
            target: format!("/?{}", values.collect::<Vec<_>>().join("&")),
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: self.text.into_bytes(),
            rows: Vec::new(),
        }
    }

    fn in_rows(mut self) -> Self {
        self.text.push_str(" FORMAT JSONEachRow");
        self
    }

    fn set(&mut self, name: &str, value: &str) {
        self.values.push((name.to_owned(), value.to_owned()));
    }

    /// A parameter; returns how the statement names it.
    fn value(&mut self, kind: &str, value: String) -> String {
        let name = format!("p{}", self.values.len());
        self.values.push((format!("param_{name}"), value));
        format!("{{{name}:{kind}}}")
    }

    fn equal(&mut self, column: &str, kind: &str, value: Option<String>) {
        if let Some(value) = value {
            let value = self.value(kind, value);
            self.terms.push(format!("{column} = {value}"));
        }
    }

    /// The flow, also by its addresses: in their order is the projection of events.
    fn flow(&mut self, flow: Option<&FlowKey>) {
        let Some(flow) = flow else { return };
        self.equal("flow", "String", Some(flow.to_string()));
        if flow.known_id().is_none() {
            let text = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().to_string(),
                IpAddr::V6(address) => address.to_string(),
            };
            self.equal("src", "IPv6", Some(text(flow.src())));
            self.equal("dst", "IPv6", Some(text(flow.dst())));
        }
    }

    fn range(&mut self, from: Option<u64>, before: Option<u64>) {
        for (compare, time) in [("ts >=", from), ("ts <", before)] {
            if let Some(time) = time {
                let term = self.time(compare, time);
                self.terms.push(term);
            }
        }
    }

    /// A comparison with a time. Times of the table are signed.
    fn time(&mut self, compare: &str, time: u64) -> String {
        let time = self.value("Int64", i64::try_from(time).unwrap_or(i64::MAX).to_string());
        format!("{compare} fromUnixTimestamp64Nano({time}, 'UTC')")
    }

    fn joined(&self) -> String {
        match self.terms.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.terms.join(" AND ")),
        }
    }
}

/// A number of a place as an answer has it.
pub(super) fn present(number: u32) -> Option<u32> {
    (number != ABSENT).then_some(number)
}

const EVENT: &str = "toUnixTimestamp64Nano(ts) AS time, id, kind, metric, flow, node, interface, queue, value, previous, threshold, \
                     reason, basis, rule, path, flow_latency, latency_basis, hop_latencies";
/// What tells rollups of one time apart.
const PLACE: &str = "interval, metric, node, interface, queue, flow";
/// Bytes of an answer to a user's statement, at most.
const MAX_BYTES: &str = "8388608";

//! Decodes ClickHouse responses: `JSONEachRow` for internal statements, `JSONCompact` for a user's statement.

use collector::event::{Basis, Event, Kind, Rollup};
use detect::Metric;
use serde::{Deserialize, de::DeserializeOwned};
use store::{EventRank, EventRow, FirstRow};
use wire::FlowKey;

use super::statement::present;
use crate::sql::{Failure, MAX_BYTES, Request, Rows};
use view::fill;

/// The time of the newest row.
#[derive(Deserialize, Debug)]
pub(super) struct Newest {
    pub(super) time: u64,
}

/// A row of the table of events.
#[derive(Deserialize, Debug)]
pub(super) struct EventLine {
    pub(super) time: u64,
    pub(super) id: u64,
    pub(super) collector: String,
    kind: String,
    metric: String,
    flow: String,
    node: u32,
    interface: u32,
    queue: u32,
    value: Option<u64>,
    previous: Option<u64>,
    threshold: Option<u64>,
    reason: Option<u64>,
    basis: String,
    rule: String,
    path: Vec<u32>,
    flow_latency: Option<u64>,
    latency_basis: String,
    hop_latencies: Vec<u32>,
}

impl EventLine {
    pub(super) fn rank(&self) -> EventRank {
        EventRank {
            ts: self.time,
            id: self.id,
        }
    }

    /// Converts an event to the store's type. Unknown names of a newer version become the most general ones.
    pub(super) fn row(self) -> EventRow {
        let kind = Kind::from_name(&self.kind);
        let first = (self.flow_latency.is_some() || !self.hop_latencies.is_empty()).then(|| FirstRow {
            flow_latency: self.flow_latency,
            basis: basis(&self.latency_basis),
            hop_latencies: self.hop_latencies,
        });
        let event = Event {
            ts: self.time,
            id: self.id,
            kind: kind.unwrap_or(Kind::Latest),
            metric: Metric::from_name(&self.metric),
            flow: flow(&self.flow),
            node: present(self.node),
            interface: present(self.interface),
            queue: queue(self.queue),
            value: self.value,
            previous: self.previous,
            threshold: self.threshold,
            rule: None,
            reason: self.reason.and_then(|reason| u8::try_from(reason).ok()),
            basis: basis(&self.basis),
        };
        EventRow {
            event,
            rule: Some(self.rule).filter(|rule| !rule.is_empty()),
            path: self.path,
            first,
        }
    }
}

/// A rollup, merged over all collectors.
#[derive(Deserialize, Debug)]
pub(super) struct RollupLine {
    time: u64,
    interval: u32,
    metric: String,
    flow: String,
    node: u32,
    interface: u32,
    queue: u32,
    values: u64,
    least: u64,
    most: u64,
    total: u64,
    middle: Option<u64>,
    high: Option<u64>,
}

impl RollupLine {
    pub(super) fn rollup(self) -> Rollup {
        Rollup {
            ts: self.time,
            interval: self.interval,
            // A newer version may have stored an unknown metric.
            metric: Metric::from_name(&self.metric).unwrap_or(Metric::FlowPath),
            flow: flow(&self.flow),
            node: present(self.node),
            interface: present(self.interface),
            queue: queue(self.queue),
            count: self.values,
            min: self.least,
            max: self.most,
            sum: self.total,
            p50: self.middle,
            p99: self.high,
        }
    }
}

pub(super) fn flow(text: &str) -> Option<FlowKey> {
    text.parse().ok()
}

/// Returns the basis with this name, or the default for an unknown one.
pub(super) fn basis(name: &str) -> Basis {
    Basis::ALL
        .into_iter()
        .find(|basis| basis.name() == name)
        .unwrap_or_default()
}

pub(super) fn queue(number: u32) -> Option<u8> {
    present(number).and_then(|number| u8::try_from(number).ok())
}

/// Parses the rows of a response with one object per line.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, Failure> {
    let rows: Result<Vec<T>, _> = serde_json::Deserializer::from_slice(body)
        .into_iter::<T>()
        .collect();
    rows.map_err(|error| {
        Failure::Unavailable(format!(
            "unexpected answer from ClickHouse ({error}); check that `hopwise schema apply` of this version created the tables"
        ))
    })
}

/// A response in the format `JSONCompact`.
#[derive(Deserialize, Debug)]
struct Compact {
    meta: Vec<Column>,
    data: Vec<Vec<serde_json::Value>>,
    #[serde(default)]
    statistics: Statistics,
}

#[derive(Deserialize, Debug)]
struct Column {
    name: String,
}

#[derive(Deserialize, Default, Debug)]
struct Statistics {
    #[serde(default)]
    elapsed: f64,
}

/// Converts the response to a user's statement into the JSON response of `/query`. The error is a message for the user.
pub(super) fn table(body: &[u8], request: &Request) -> Result<Vec<u8>, String> {
    let fault = "the answer has another form; leave FORMAT and INTO out, and write one SELECT";
    let answer: Compact = serde_json::from_slice(body).map_err(|_| fault.to_owned())?;
    let rows = answer
        .data
        .into_iter()
        .map(|row| row.into_iter().map(cell).collect());
    let (rows, truncated) = fill(rows, request.max_rows, MAX_BYTES);
    let ranged = request.from.is_some() || request.to.is_some();
    let note = "a console has no files to choose by `from` and `to`; write WHERE ts >= … AND ts < …";
    let rows = Rows {
        columns: answer.meta.into_iter().map(|column| column.name).collect(),
        rows,
        truncated,
        notes: ranged.then(|| note.to_owned()).into_iter().collect(),
        elapsed_ms: answer.statistics.elapsed * 1e3,
    };
    serde_json::to_vec(&rows).map_err(|error| error.to_string())
}

/// Converts a value to a string, a number or null.
fn cell(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Bool(value) => u8::from(value).into(),
        value @ (serde_json::Value::Array(_) | serde_json::Value::Object(_)) => value.to_string().into(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_users_rows_are_cells_of_text_numbers_and_null() {
        let request = Request {
            sql: String::new(),
            from: Some(1),
            to: None,
            max_rows: 2,
            timeout: Duration::from_secs(1),
            notes: Vec::new(),
        };
        let body = br#"{"meta":[{"name":"a","type":"UInt64"},{"name":"b","type":"Array(UInt8)"}],
            "data":[[18446744073709551615,[1,2]],[true,null],["x",1.5]],"rows":3,"statistics":{"elapsed":0.25}}"#;
        let rows: serde_json::Value = serde_json::from_slice(&table(body, &request).unwrap()).unwrap();
        let expected = serde_json::json!({
            "columns": ["a", "b"],
            "rows": [[u64::MAX, "[1,2]"], [1, null]],
            "truncated": true,
            "notes": ["a console has no files to choose by `from` and `to`; write WHERE ts >= … AND ts < …"],
            "elapsed_ms": 250.0,
        });
        assert_eq!(rows, expected);
        assert!(
            table(b"1\t2\n", &request)
                .unwrap_err()
                .starts_with("the answer has another form")
        );
    }
}

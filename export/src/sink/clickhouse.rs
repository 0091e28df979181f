//! ClickHouse over HTTP: rows in the format `RowBinaryWithNamesAndTypes`
//! (ClickHouse documentation, *Formats*: `RowBinaryWithNamesAndTypes`; *HTTP interface*).

use super::{Batch, HttpSink, Request, Response, said, words};
use crate::outcome::Outcome;
use crate::record::{COMMON, Field, FieldKind, Record, Stream, Value};

/// Where records go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClickHouse {
    database: String,
    prefix: String,
    /// Days after which rows go; 0: never.
    keep_days: u32,
}

impl ClickHouse {
    /// Into the tables `PREFIXevents` and so on of a database.
    ///
    /// # Errors
    /// A name that is none: one sentence that says what to do.
    pub fn new(database: &str, prefix: &str, keep_days: u32) -> Result<Self, String> {
        let is_name = |name: &str| {
            name.len() <= 64
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.starts_with(|first: char| first.is_ascii_digit())
        };
        if database.is_empty() || !is_name(database) || !is_name(prefix) {
            let wrong = if is_name(database) && !database.is_empty() { prefix } else { database };
            return Err(format!(
                "{wrong:?} is no name of a database or table; write letters, digits and _, such as \"hopwise\""
            ));
        }
        Ok(Self { database: database.to_owned(), prefix: prefix.to_owned(), keep_days })
    }

    /// The table of a stream, with its database.
    pub fn table(&self, stream: Stream) -> String {
        format!("{}.{}{}", self.database, self.prefix, stream.name())
    }

    /// The statements that make what is missing, in order. Each can be executed again.
    pub fn schema(&self, streams: &[Stream]) -> Vec<String> {
        let mut statements = vec![format!("CREATE DATABASE IF NOT EXISTS {}", self.database)];
        statements.extend(streams.iter().map(|stream| self.create(*stream)));
        statements
    }

    fn create(&self, stream: Stream) -> String {
        let columns: Vec<String> = columns(stream)
            .iter()
            .map(|column| format!("  {} {}{}", column.name, column.kind, column.codec))
            .collect();
        let (engine, order) = match stream {
            Stream::Events => ("MergeTree", "toStartOfFiveMinutes(ts), node, metric, ts"),
            Stream::Rollups => {
                ("ReplacingMergeTree", "metric, node, interface, queue, flow, interval, ts, collector")
            }
            Stream::Flows => ("ReplacingMergeTree(last_seen)", "flow, collector"),
            Stream::Drops => ("MergeTree", "toStartOfFiveMinutes(ts), node, ts"),
            Stream::Losses => ("MergeTree", "toStartOfFiveMinutes(ts), source, ts"),
            Stream::Alerts => ("MergeTree", "rule, toStartOfFiveMinutes(ts), ts"),
        };
        // Questions by flow need a second order: each busy flow is in every granule of the first.
        let projection = match stream {
            Stream::Events => ",\n  PROJECTION by_flow (SELECT * ORDER BY src, dst, sport, dport, proto, ts)",
            _ => "",
        };
        let partition = match stream {
            Stream::Flows => "",
            _ => "PARTITION BY toDate(ts)\n",
        };
        let ttl = match self.keep_days {
            0 => String::new(),
            days => format!("TTL toDateTime(ts) + INTERVAL {days} DAY\n"),
        };
        let dropping = if partition.is_empty() || ttl.is_empty() { "" } else { ", ttl_only_drop_parts = 1" };
        format!(
            "CREATE TABLE IF NOT EXISTS {}\n(\n{}{projection}\n)\nENGINE = {engine}\n{partition}ORDER BY ({order})\n{ttl}SETTINGS non_replicated_deduplication_window = 1000{dropping}",
            self.table(stream),
            columns.join(",\n"),
        )
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    kind: &'static str,
    codec: &'static str,
}

/// A node, an interface or a queue that a record does not have. 0 is one.
pub const ABSENT: u32 = u32::MAX;

/// The columns of a flow.
const FLOW: [Column; 6] = [
    Column { name: "flow", kind: "String", codec: " CODEC(ZSTD(1))" },
    Column { name: "src", kind: "IPv6", codec: " CODEC(ZSTD(1))" },
    Column { name: "dst", kind: "IPv6", codec: " CODEC(ZSTD(1))" },
    Column { name: "sport", kind: "UInt16", codec: "" },
    Column { name: "dport", kind: "UInt16", codec: "" },
    Column { name: "proto", kind: "UInt8", codec: "" },
];

fn columns(stream: Stream) -> Vec<Column> {
    let column = |field: &Field| -> Vec<Column> {
        let of = |kind, codec| vec![Column { name: field.name, kind, codec }];
        match field.kind {
            FieldKind::Flow => FLOW.to_vec(),
            FieldKind::Id => of("UInt64", " CODEC(NONE)"),
            FieldKind::Time => of("DateTime64(9, 'UTC')", " CODEC(Delta, ZSTD(1))"),
            FieldKind::Text => of("LowCardinality(String)", ""),
            FieldKind::Numbers => of("Array(UInt32)", " CODEC(ZSTD(1))"),
            FieldKind::Address => of("IPv6", ""),
            // What is in the order of a table cannot be absent there: then it is all ones.
            FieldKind::Number if is_key(field.name) => of("UInt32", " CODEC(T64, ZSTD(1))"),
            FieldKind::Number if is_present(stream, field.name) => of("UInt64", " CODEC(T64, ZSTD(1))"),
            FieldKind::Number => of("Nullable(UInt64)", " CODEC(T64, ZSTD(1))"),
        }
    };
    COMMON.iter().chain(stream.fields()).flat_map(column).collect()
}

fn is_key(name: &str) -> bool {
    ["schema", "node", "interface", "queue", "interval"].contains(&name)
}

/// Whether a number is there in every record.
fn is_present(stream: Stream, name: &str) -> bool {
    let names: &[&str] = match stream {
        Stream::Rollups => &["count", "min", "max", "sum"],
        Stream::Flows => &["reports"],
        Stream::Losses => &["hw_id", "lost", "reordered", "duplicated"],
        Stream::Events | Stream::Drops | Stream::Alerts => &[],
    };
    names.contains(&name)
}

impl HttpSink for ClickHouse {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let (first, last) = (batch.records.first()?, batch.records.last()?);
        let columns = columns(batch.stream);
        let mut body = Vec::with_capacity(batch.records.len() * 160 + 2048);
        length(columns.len(), &mut body);
        columns.iter().for_each(|column| text(column.name, &mut body));
        columns.iter().for_each(|column| text(column.kind, &mut body));
        for record in batch.records {
            row(record, batch.collector, &mut body);
        }
        // The same records after a crash are recognised by the server, and not stored twice.
        let token = format!(
            "{}-{}-{:016x}-{:016x}-{}",
            batch.collector,
            batch.stream.name(),
            first.id(),
            last.id(),
            batch.records.len()
        );
        let query = format!("INSERT INTO {} FORMAT RowBinaryWithNamesAndTypes", self.table(batch.stream));
        Some(Request {
            method: "POST",
            target: format!(
                "/?query={}&insert_deduplication_token={}&deduplicate_blocks_in_dependent_materialized_views=1",
                super::escape(&query),
                super::escape(&token)
            ),
            headers: vec![("content-type", "application/octet-stream".to_owned())],
            body,
            rows: Vec::new(),
        })
    }

    fn outcome(&self, _batch: &Batch<'_>, _request: &Request, response: &Response<'_>) -> Outcome {
        let code = code(response.body);
        if (200..=299).contains(&response.status) && code.is_none() {
            return Outcome::DONE;
        }
        let (words, retry_after) = (words(response.body), response.retry_after);
        match (response.status, code) {
            (401 | 403, _) | (_, Some(192..=195 | 497 | 516)) => Outcome::Unauthorised { words },
            // Of a value: cannot parse, too large, no such enumeration.
            (_, Some(6 | 26 | 27 | 33 | 38 | 41 | 69 | 72 | 131)) | (413, None) => Outcome::Refused { words },
            // Anything else is of the table or the server: somebody corrects it, and wants the records then.
            _ => Outcome::Failed { words, retry_after },
        }
    }

    fn probe(&self, streams: &[Stream]) -> Request {
        let names: Vec<String> =
            streams.iter().map(|stream| format!("'{}{}'", self.prefix, stream.name())).collect();
        let query = format!(
            "SELECT table, name, type FROM system.columns WHERE database = '{}' AND table IN ({}) FORMAT TabSeparated",
            self.database,
            names.join(", ")
        );
        Request {
            method: "POST",
            target: "/".to_owned(),
            headers: vec![("content-type", "text/plain".to_owned())],
            body: query.into_bytes(),
            rows: Vec::new(),
        }
    }

    fn probed(&self, streams: &[Stream], response: &Response<'_>) -> Result<(), String> {
        let code = code(response.body);
        match (response.status, code) {
            (401 | 403, _) | (_, Some(192..=195 | 497 | 516)) => {
                return Err(format!(
                    "ClickHouse refuses the credentials ({}); correct user and password_file",
                    said(response)
                ));
            }
            (200..=299, None) => {}
            _ => return Err(format!("ClickHouse does not answer as expected: {}", said(response))),
        }
        let text = String::from_utf8_lossy(response.body);
        for stream in streams {
            let table = format!("{}{}", self.prefix, stream.name());
            let found: Vec<(&str, &str)> = text
                .lines()
                .filter_map(|line| line.strip_prefix(table.as_str())?.strip_prefix('\t')?.split_once('\t'))
                .collect();
            if found.is_empty() {
                return Err(format!(
                    "ClickHouse has no table {}; `hopwise schema apply` makes it, `hopwise schema show` prints the statement",
                    self.table(*stream)
                ));
            }
            for column in columns(*stream) {
                let kind = found.iter().find(|(name, _)| *name == column.name).map(|(_, kind)| *kind);
                // Quotes are escaped in this format.
                let kind = kind.map(|kind| kind.replace("\\'", "'"));
                if kind.as_deref() != Some(column.kind) {
                    let is = kind.map_or("is missing".to_owned(), |kind| format!("is of type {kind}"));
                    return Err(format!(
                        "in ClickHouse's table {}, the column {} {is}; it must be {}: rename the table, and let `hopwise schema apply` make a new one",
                        self.table(*stream),
                        column.name,
                        column.kind
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The code of an exception in an answer, which can come after a status of success.
pub fn code(body: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(&body[..body.len().min(1 << 14)]);
    let at = text.find("Code: ").filter(|_| text.contains("Exception"))?;
    let digits: String = text[at + 6..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn row(record: &Record, collector: &str, body: &mut Vec<u8>) {
    let stream = record.stream();
    record.visit_all(collector, |field, value| write(stream, field, value, body));
}

fn write(stream: Stream, field: &Field, value: Value<'_>, body: &mut Vec<u8>) {
    let number = match value {
        Value::Number(number) | Value::Id(number) => Some(number),
        _ => None,
    };
    match field.kind {
        FieldKind::Id => body.extend(number.unwrap_or(0).to_le_bytes()),
        FieldKind::Time => time(number.unwrap_or(0), body),
        FieldKind::Number if is_key(field.name) => {
            let number = number.map_or(ABSENT, |number| u32::try_from(number).unwrap_or(u32::MAX));
            body.extend(number.to_le_bytes());
        }
        FieldKind::Number if is_present(stream, field.name) => {
            body.extend(number.unwrap_or(0).to_le_bytes());
        }
        FieldKind::Number => match number {
            None => body.push(1),
            Some(number) => {
                body.push(0);
                body.extend(number.to_le_bytes());
            }
        },
        FieldKind::Text => text(if let Value::Text(text) = value { text } else { "" }, body),
        FieldKind::Numbers => {
            let numbers = if let Value::Numbers(numbers) = value { numbers } else { &[] };
            length(numbers.len(), body);
            numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
        }
        FieldKind::Address => {
            body.extend(if let Value::Address(address) = value { *address } else { [0; 16] })
        }
        FieldKind::Flow => {
            let Value::Flow(flow) = value else {
                // Text, two addresses, two ports and the protocol, all empty.
                body.extend([0; 1 + 32 + 4 + 1]);
                return;
            };
            text(&flow.to_string(), body);
            let octets = |address: std::net::IpAddr| match address {
                std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(address) => address.octets(),
            };
            let [src, dst] = match flow.known_id() {
                Some(_) => [[0; 16]; 2],
                None => [octets(flow.src()), octets(flow.dst())],
            };
            body.extend(src);
            body.extend(dst);
            let (sport, dport) = flow.ports().unwrap_or((0, 0));
            body.extend(sport.to_le_bytes());
            body.extend(dport.to_le_bytes());
            body.push(flow.proto());
        }
    }
}

/// `DateTime64` covers the years up to 2262 in nanoseconds; it is signed.
fn time(ns: u64, body: &mut Vec<u8>) {
    body.extend(i64::try_from(ns).unwrap_or(i64::MAX).to_le_bytes());
}

fn text(text: &str, body: &mut Vec<u8>) {
    length(text.len(), body);
    body.extend(text.as_bytes());
}

/// LEB128.
fn length(mut length: usize, body: &mut Vec<u8>) {
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use collector::{Loss, Rollup};
    use detect::Metric;

    fn loss() -> Record {
        Record::Loss(Box::new(Loss {
            ts: 1_795_269_600_000_000_007,
            node: Some(3),
            source: std::net::Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped().octets(),
            hw_id: 2,
            lost: 5,
            reordered: 0,
            duplicated: 1,
        }))
    }

    fn sink() -> ClickHouse {
        ClickHouse::new("net", "hopwise_", 30).unwrap()
    }

    #[test]
    fn a_row_has_the_bytes_of_its_types() {
        let record = loss();
        let batch = Batch { stream: Stream::Losses, records: &[&record], collector: "c1" };
        let request = sink().request(&batch).unwrap();
        let mut expected = vec![11];
        let names =
            ["id", "ts", "collector", "schema", "node", "source", "hw_id", "lost", "reordered", "duplicated"];
        expected[0] = names.len() as u8;
        let kinds = [
            "UInt64",
            "DateTime64(9, 'UTC')",
            "LowCardinality(String)",
            "UInt32",
            "UInt32",
            "IPv6",
            "UInt64",
            "UInt64",
            "UInt64",
            "UInt64",
        ];
        for name in names.into_iter().chain(kinds) {
            expected.push(name.len() as u8);
            expected.extend(name.as_bytes());
        }
        expected.extend(record.id().to_le_bytes());
        expected.extend(1_795_269_600_000_000_007_i64.to_le_bytes());
        expected.extend(b"\x02c1\x01\0\0\0\x03\0\0\0");
        expected.extend(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x09");
        for number in [2_u64, 5, 0, 1] {
            expected.extend(number.to_le_bytes());
        }
        assert_eq!(request.body, expected);
        let id = format!("{:016x}", record.id());
        assert_eq!(
            request.target,
            format!(
                "/?query=INSERT%20INTO%20net.hopwise_losses%20FORMAT%20RowBinaryWithNamesAndTypes\
                 &insert_deduplication_token=c1-losses-{id}-{id}-1&deduplicate_blocks_in_dependent_materialized_views=1"
            )
        );
    }

    #[test]
    fn a_queue_that_a_record_does_not_have_is_another_than_the_first() {
        let rollup = |queue| {
            Record::Rollup(Box::new(Rollup {
                ts: 60_000_000_000,
                interval: 60,
                metric: Metric::QueueOccupancy,
                flow: None,
                node: Some(0),
                interface: None,
                queue,
                count: 1,
                min: 2,
                max: 2,
                sum: 2,
                p50: None,
                p99: None,
            }))
        };
        // What tells rollups apart, as the table's order has it, after the text of the flow, its addresses, ports and protocol.
        let place = |queue| {
            let (record, mut body) = (rollup(queue), Vec::new());
            row(&record, "c1", &mut body);
            let at = 8 + 8 + 3 + 4 + 4 + (1 + "queue_occupancy".len()) + (1 + 32 + 4 + 1);
            body[at..at + 12].to_vec()
        };
        assert_eq!(place(Some(0)), [[0; 4], [0xff; 4], [0; 4]].concat());
        assert_eq!(place(None), [[0; 4], [0xff; 4], [0xff; 4]].concat());
    }

    #[test]
    fn an_answer_says_whose_fault_it_is() {
        let record = loss();
        let batch = Batch { stream: Stream::Losses, records: &[&record], collector: "c1" };
        let outcome = |status, body: &str| {
            let response = Response { status, retry_after: None, body: body.as_bytes(), is_cut: false };
            match sink().outcome(&batch, &Request::default(), &response) {
                Outcome::Settled { .. } => 'd',
                Outcome::Failed { .. } => 'f',
                Outcome::Refused { .. } => 'r',
                Outcome::Unauthorised { .. } => 'u',
            }
        };
        assert_eq!(outcome(200, ""), 'd');
        // After the status was sent.
        assert_eq!(outcome(200, "Code: 241. DB::Exception: Memory limit exceeded"), 'f');
        assert_eq!(outcome(404, "Code: 60. DB::Exception: Table net.x does not exist. (UNKNOWN_TABLE)"), 'f');
        assert_eq!(outcome(400, "Code: 27. DB::Exception: Cannot parse input (CANNOT_PARSE_INPUT)"), 'r');
        assert_eq!(outcome(400, "Code: 33. DB::Exception: Cannot read all data"), 'r');
        assert_eq!(outcome(400, "Code: 53. DB::Exception: Type mismatch"), 'f');
        assert_eq!(outcome(403, "Code: 516. DB::Exception: default: Authentication failed"), 'u');
        assert_eq!(outcome(500, "Code: 497. DB::Exception: Not enough privileges"), 'u');
        assert_eq!(outcome(503, "busy"), 'f');
        assert_eq!(outcome(413, "too large"), 'r');
    }

    #[test]
    fn the_probe_names_what_is_missing() {
        let probed = |body: &str| {
            let response = Response { status: 200, retry_after: None, body: body.as_bytes(), is_cut: false };
            sink().probed(&[Stream::Losses], &response)
        };
        let whole: String = columns(Stream::Losses)
            .iter()
            .map(|column| format!("hopwise_losses\t{}\t{}\n", column.name, column.kind.replace('\'', "\\'")))
            .collect();
        assert_eq!(probed(&whole), Ok(()));
        assert!(
            probed("")
                .unwrap_err()
                .starts_with("ClickHouse has no table net.hopwise_losses; `hopwise schema apply`")
        );
        let other = whole.replace("lost\tUInt64", "lost\tUInt32");
        assert!(probed(&other).unwrap_err().contains("the column lost is of type UInt32; it must be UInt64"));
        let less = whole.replace("hopwise_losses\tlost\tUInt64\n", "");
        assert!(probed(&less).unwrap_err().contains("the column lost is missing"));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for (database, prefix) in [("", ""), ("a b", ""), ("a", "x;"), ("1a", ""), ("a", "é")] {
            assert!(ClickHouse::new(database, prefix, 0).is_err(), "{database} {prefix}");
        }
        assert!(ClickHouse::new("a", "", 0).is_ok());
    }
}

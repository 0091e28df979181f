//! Sink for ClickHouse over HTTP: table schema, inserts in the `Native` format, and error classification (ClickHouse
//! documentation, *Formats*: `Native`; *HTTP interface*).

mod native;

use self::native::Block;
use super::{Batch, HttpSink, Request, Response, one_line, response_summary};
use crate::outcome::Outcome;
use crate::record::{COMMON, FieldKind, Fields, Stream};

/// Maximum number of UTC days in a batch. Each day is a partition, and ClickHouse rejects an insert into more than 100 of them
/// (`max_partitions_per_insert_block`).
pub const DAYS: usize = 90;
/// Sorting key of the rollups.
const ROLLUP_SORTING_KEY: &str = "metric, node, interface, queue, flow, interval, ts, collector, part";
/// Number of insert tokens that a table remembers. While another table is unavailable, many partitions of an outlet may insert
/// into one.
const TOKEN_WINDOW: u32 = 10_000;
/// Parts below this uncompressed size (bytes) store all columns in one file. With a file per column, ClickHouse's default from
/// 10 MiB on, an insert and its merges would write a hundred files each, which costs more than the rows.
const MIN_BYTES_FOR_WIDE_PART: u32 = 256 << 20;
const TABLE_SETTINGS: &str =
    "MODIFY SETTING non_replicated_deduplication_window = 10000, min_bytes_for_wide_part = 268435456";
const ADD_KIND_INDEX: &str = "ADD INDEX IF NOT EXISTS kinds kind TYPE set(16) GRANULARITY 1";
/// Value for an absent node, interface or queue, because 0 is a valid one.
pub const ABSENT: u32 = u32::MAX;
/// The columns of a flow's key.
const FLOW_COLUMNS: [Column; 6] = [
    Column::new("flow", Kind::Text, " CODEC(ZSTD(1))"),
    Column::new("src", Kind::Address, " CODEC(ZSTD(1))"),
    Column::new("dst", Kind::Address, " CODEC(ZSTD(1))"),
    Column::new("sport", Kind::U16, ""),
    Column::new("dport", Kind::U16, ""),
    Column::new("proto", Kind::U8, ""),
];

/// Error codes of ClickHouse, named as in its `src/Common/ErrorCodes.cpp`.
pub mod error_code {
    #![expect(missing_docs, reason = "the names are ClickHouse's")]

    pub const UNKNOWN_TABLE: u32 = 60;
    pub const UNKNOWN_DATABASE: u32 = 81;
    pub const NOT_IMPLEMENTED: u32 = 48;
    pub const TOO_MANY_ROWS: u32 = 158;
    pub const TIMEOUT_EXCEEDED: u32 = 159;
    pub const TOO_SLOW: u32 = 160;
    pub const READONLY: u32 = 164;
    pub const UNKNOWN_USER: u32 = 192;
    pub const WRONG_PASSWORD: u32 = 193;
    pub const REQUIRED_PASSWORD: u32 = 194;
    pub const IP_ADDRESS_NOT_ALLOWED: u32 = 195;
    pub const MEMORY_LIMIT_EXCEEDED: u32 = 241;
    pub const TOO_MANY_BYTES: u32 = 307;
    pub const TOO_MANY_ROWS_OR_BYTES: u32 = 396;
    pub const ACCESS_DENIED: u32 = 497;
    pub const AUTHENTICATION_FAILED: u32 = 516;

    /// Errors about values in the rows of an insert, in the order of the numbers: `CANNOT_PARSE_TEXT`,
    /// `CANNOT_PARSE_QUOTED_STRING`, `CANNOT_PARSE_INPUT_ASSERTION_FAILED`, `CANNOT_READ_ALL_DATA`, `CANNOT_PARSE_DATE`,
    /// `CANNOT_PARSE_DATETIME`, `ARGUMENT_OUT_OF_BOUND`, `CANNOT_PARSE_NUMBER` and `TOO_LARGE_STRING_SIZE`.
    pub(super) const OF_VALUES: [u32; 9] = [6, 26, 27, 33, 38, 41, 69, 72, 131];
}

/// Returns whether an error code means invalid credentials.
pub fn is_login_error(code: u32) -> bool {
    use error_code::{
        AUTHENTICATION_FAILED, IP_ADDRESS_NOT_ALLOWED, REQUIRED_PASSWORD, UNKNOWN_USER, WRONG_PASSWORD,
    };
    matches!(
        code,
        UNKNOWN_USER | WRONG_PASSWORD | REQUIRED_PASSWORD | IP_ADDRESS_NOT_ALLOWED | AUTHENTICATION_FAILED
    )
}

/// Returns whether an error code means that the user may not do this: invalid credentials, or a missing permission.
fn is_unauthorised(code: u32) -> bool {
    is_login_error(code) || code == error_code::ACCESS_DENIED
}

/// A ClickHouse database and the tables for records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClickHouse {
    database: String,
    prefix: String,
    /// Days after which rows are deleted; 0 for never.
    keep_days: u32,
}

impl ClickHouse {
    /// Returns a sink for the tables `PREFIXevents` and so on of a database.
    ///
    /// # Errors
    /// A name is invalid; the message says what to do.
    pub fn new(database: &str, prefix: &str, keep_days: u32) -> Result<Self, String> {
        if database.is_empty() || !is_name(database) || !is_name(prefix) {
            let invalid = if is_name(database) && !database.is_empty() {
                prefix
            } else {
                database
            };
            return Err(format!(
                "invalid database or table name {invalid:?}; write letters, digits and _, such as \"hopwise\""
            ));
        }
        Ok(Self {
            database: database.to_owned(),
            prefix: prefix.to_owned(),
            keep_days,
        })
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the qualified table name of a stream.
    pub fn table(&self, stream: Stream) -> String {
        format!("{}.{}{}", self.database, self.prefix, stream.name())
    }

    /// Returns the statements that create missing tables and migrate tables of earlier versions, in order. All are idempotent.
    pub fn schema(&self, streams: &[Stream]) -> Vec<String> {
        let mut statements = vec![format!("CREATE DATABASE IF NOT EXISTS {}", self.database)];
        statements.extend(streams.iter().map(|stream| self.create(*stream)));
        for (number, (stream, change)) in MIGRATIONS.iter().enumerate() {
            for stream in streams
                .iter()
                .filter(|other| stream.is_none_or(|stream| stream == **other))
            {
                let table = self.table(*stream);
                statements.push(format!(
                    "/* migration {} */ ALTER TABLE {table} {change}",
                    number + 1
                ));
            }
        }
        statements
    }

    /// Returns the request that inserts these rows. ClickHouse ignores a repeat with the same `token` as long as it remembers
    /// the token.
    pub fn insert(
        &self,
        stream: Stream,
        rows: impl ExactSizeIterator<Item = impl Fields>,
        token: &str,
    ) -> Request {
        let mut block = Block::new(columns(stream), rows.len());
        rows.for_each(|row| block.push(&row));
        let query = format!("INSERT INTO {} FORMAT Native", self.table(stream));
        Request {
            method: "POST",
            target: format!(
                "/?query={}&insert_deduplication_token={}&deduplicate_blocks_in_dependent_materialized_views=1",
                super::escape(&query),
                super::escape(token)
            ),
            headers: vec![("content-type", "application/octet-stream".to_owned())],
            body: block.into_bytes(),
            rows: Vec::new(),
        }
    }

    /// Classifies the response to an insert.
    pub fn answered(response: &Response<'_>) -> Outcome {
        let code = code(response.body);
        if (200..=299).contains(&response.status) && code.is_none() {
            return Outcome::DONE;
        }
        let reason = one_line(response.body);
        let retry_after = response.retry_after;
        match (response.status, code) {
            (401 | 403, _) => Outcome::Unauthorised { reason },
            (_, Some(code)) if is_unauthorised(code) => Outcome::Unauthorised { reason },
            (_, Some(code)) if error_code::OF_VALUES.contains(&code) => Outcome::Refused { reason },
            (413, None) => Outcome::Refused { reason },
            // Other errors concern the table or the server: the records are sent again once that is fixed.
            _ => Outcome::Failed { reason, retry_after },
        }
    }

    fn create(&self, stream: Stream) -> String {
        let columns: Vec<String> = columns(stream)
            .iter()
            .map(|column| format!("  {} {}{}", column.name, column.kind.name(), column.codec))
            .collect();
        let (engine, order) = match stream {
            Stream::Events => ("MergeTree", "toStartOfFiveMinutes(ts), node, metric, ts"),
            Stream::Rollups => ("ReplacingMergeTree", ROLLUP_SORTING_KEY),
            Stream::Flows => ("ReplacingMergeTree(last_seen)", "flow, collector"),
            Stream::Drops => ("MergeTree", "toStartOfFiveMinutes(ts), node, ts"),
            Stream::Losses => ("MergeTree", "toStartOfFiveMinutes(ts), source, ts"),
            Stream::Alerts => ("MergeTree", "rule, toStartOfFiveMinutes(ts), ts"),
            Stream::Hops => ("MergeTree", "toStartOfFiveMinutes(ts), node, ts"),
        };
        // Queries by flow need a second sort order: every busy flow is in each granule of the first one.
        let projection = match stream {
            Stream::Events | Stream::Hops => {
                ",\n  PROJECTION by_flow (SELECT * ORDER BY src, dst, sport, dport, proto, ts)"
            }
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
        let dropping = if partition.is_empty() || ttl.is_empty() {
            ""
        } else {
            ", ttl_only_drop_parts = 1"
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {}\n(\n{}{projection}\n)\nENGINE = {engine}\n{partition}ORDER BY ({order})\n{ttl}SETTINGS non_replicated_deduplication_window = {TOKEN_WINDOW}, min_bytes_for_wide_part = {MIN_BYTES_FOR_WIDE_PART}{dropping}",
            self.table(stream),
            columns.join(",\n"),
        )
    }
}

/// Migrations since the first version, in order; `None` means all tables. They add columns and overwrite settings, even a
/// larger token window. A column can become part of the sorting key only in the statement that adds it.
const MIGRATIONS: [(Option<Stream>, &str); 5] = [
    (
        Some(Stream::Rollups),
        "ADD COLUMN IF NOT EXISTS part UInt64 CODEC(NONE), MODIFY ORDER BY (metric, node, interface, queue, flow, interval, ts, collector, part)",
    ),
    (None, TABLE_SETTINGS),
    (
        Some(Stream::Alerts),
        "ADD COLUMN IF NOT EXISTS metric LowCardinality(String), ADD COLUMN IF NOT EXISTS value Nullable(UInt64) CODEC(T64, ZSTD(1)), ADD COLUMN IF NOT EXISTS threshold Nullable(UInt64) CODEC(T64, ZSTD(1)), ADD COLUMN IF NOT EXISTS since DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1))",
    ),
    // Rule events are rare but queried over weeks.
    (Some(Stream::Events), ADD_KIND_INDEX),
    (
        Some(Stream::Drops),
        "ADD COLUMN IF NOT EXISTS tunnel_src IPv6, ADD COLUMN IF NOT EXISTS tunnel_dst IPv6",
    ),
];

/// A column with its type and its codec.
#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    kind: Kind,
    codec: &'static str,
}

impl Column {
    const fn new(name: &'static str, kind: Kind, codec: &'static str) -> Self {
        Self { name, kind, codec }
    }
}

wire::named! {
    /// The type of a column's values.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Kind, name {
        U8 => "UInt8",
        U16 => "UInt16",
        /// A number in the sorting key; [`ABSENT`] for none.
        U32 => "UInt32",
        U64 => "UInt64",
        /// A number that may be absent.
        MaybeU64 => "Nullable(UInt64)",
        Time => "DateTime64(9, 'UTC')",
        Address => "IPv6",
        Text => "String",
        /// A text with few distinct values.
        Word => "LowCardinality(String)",
        Numbers => "Array(UInt32)",
    }
}

impl Kind {
    /// Returns the fixed size of a value, bytes, or `None` if the size varies.
    fn width(self) -> Option<usize> {
        match self {
            Self::U8 => Some(1),
            Self::U16 => Some(2),
            Self::U32 => Some(4),
            Self::U64 | Self::Time => Some(8),
            Self::Address => Some(16),
            Self::MaybeU64 | Self::Text | Self::Word | Self::Numbers => None,
        }
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

fn columns(stream: Stream) -> Vec<Column> {
    let mut columns = Vec::new();
    for field in COMMON.iter().chain(stream.fields()) {
        let (kind, codec) = match field.kind {
            FieldKind::Flow => {
                columns.extend(FLOW_COLUMNS);
                continue;
            }
            FieldKind::Id => (Kind::U64, " CODEC(NONE)"),
            FieldKind::Time => (Kind::Time, " CODEC(Delta, ZSTD(1))"),
            FieldKind::Text => (Kind::Word, ""),
            FieldKind::Numbers => (Kind::Numbers, " CODEC(ZSTD(1))"),
            FieldKind::Address => (Kind::Address, ""),
            // Columns of the sorting key cannot be Nullable; [`ABSENT`] stands for NULL.
            FieldKind::Number if is_key(field.name) => (Kind::U32, " CODEC(T64, ZSTD(1))"),
            FieldKind::Number if is_present(stream, field.name) => (Kind::U64, " CODEC(T64, ZSTD(1))"),
            FieldKind::Number => (Kind::MaybeU64, " CODEC(T64, ZSTD(1))"),
        };
        columns.push(Column::new(field.name, kind, codec));
    }
    columns
}

fn is_key(name: &str) -> bool {
    ["schema", "node", "interface", "queue", "interval"].contains(&name)
}

/// Returns true if every record has this number.
fn is_present(stream: Stream, name: &str) -> bool {
    let names: &[&str] = match stream {
        Stream::Rollups => &["count", "min", "max", "sum"],
        Stream::Flows => &["reports"],
        Stream::Losses => &["hw_id", "lost", "reordered", "duplicated"],
        Stream::Hops => &["hop", "hops"],
        Stream::Events | Stream::Drops | Stream::Alerts => &[],
    };
    names.contains(&name)
}

impl HttpSink for ClickHouse {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let first = batch.records.first()?;
        let last = batch.records.last()?;
        // Equal batches have equal tokens, so a repeat after a crash is deduplicated.
        let token = format!(
            "{}-{}-{:016x}-{:016x}-{}",
            batch.collector,
            batch.stream.name(),
            first.id(),
            last.id(),
            batch.records.len()
        );
        let rows = batch.records.iter().map(|record| (*record, batch.collector));
        Some(self.insert(batch.stream, rows, &token))
    }

    fn days(&self) -> Option<usize> {
        Some(DAYS)
    }

    fn outcome(&self, _batch: &Batch<'_>, _request: &Request, response: &Response<'_>) -> Outcome {
        Self::answered(response)
    }

    fn executed(&self, request: &Request, response: &Response<'_>) -> Result<(), String> {
        // A Distributed table has neither these settings nor indexes; the tables behind it have them.
        let is_of_engine = [TABLE_SETTINGS, ADD_KIND_INDEX]
            .iter()
            .any(|change| request.body.ends_with(change.as_bytes()));
        match (response.status, code(response.body)) {
            (200..=299, None) => Ok(()),
            (_, Some(error_code::NOT_IMPLEMENTED)) if is_of_engine => Ok(()),
            _ => Err(format!("the server refuses: {}", response_summary(response))),
        }
    }

    fn probe(&self, streams: &[Stream]) -> Request {
        let names: Vec<String> = streams
            .iter()
            .map(|stream| format!("'{}{}'", self.prefix, stream.name()))
            .collect();
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
        if matches!(response.status, 401 | 403) || code.is_some_and(is_unauthorised) {
            return Err(format!(
                "ClickHouse refuses the credentials ({}); correct user and password_file",
                response_summary(response)
            ));
        }
        if !(200..=299).contains(&response.status) || code.is_some() {
            return Err(format!(
                "ClickHouse does not answer as expected: {}",
                response_summary(response)
            ));
        }
        let text = String::from_utf8_lossy(response.body);
        for stream in streams {
            let table = format!("{}{}", self.prefix, stream.name());
            let columns_of_table: Vec<(&str, &str)> = text
                .lines()
                .filter_map(|line| {
                    line.strip_prefix(table.as_str())?
                        .strip_prefix('\t')?
                        .split_once('\t')
                })
                .collect();
            if columns_of_table.is_empty() {
                return Err(format!(
                    "ClickHouse has no table {}; `hopwise schema apply` creates it, `hopwise schema show` prints the statement",
                    self.table(*stream)
                ));
            }
            for column in columns(*stream) {
                let kind = columns_of_table
                    .iter()
                    .find(|(name, _)| *name == column.name)
                    .map(|(_, kind)| *kind);
                // TabSeparated escapes quotes.
                let kind = kind.map(|kind| kind.replace("\\'", "'"));
                if kind.as_deref() != Some(column.kind.name()) {
                    let table = self.table(*stream);
                    let name = column.name;
                    return Err(match kind {
                        None if MIGRATIONS
                            .iter()
                            .any(|(_, change)| change.contains(&format!(" {name} "))) =>
                        {
                            format!(
                                "ClickHouse's table {table} is of an earlier version, and lacks the column {name}; `hopwise schema apply` adds it"
                            )
                        }
                        kind => {
                            let state =
                                kind.map_or("is missing".to_owned(), |kind| format!("is of type {kind}"));
                            format!(
                                "in ClickHouse's table {table}, the column {name} {state}; it must be {}: rename the table, and let `hopwise schema apply` make a new one",
                                column.kind.name()
                            )
                        }
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns the code of an exception in a response body, which may follow a successful status.
pub fn code(body: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(&body[..body.len().min(1 << 14)]);
    if !text.contains("Exception") {
        return None;
    }
    let (_, rest) = text.split_once("Code: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EventRecord, LossRecord, Record};
    use collector::{
        Event, Loss,
        event::{Basis, Kind},
    };
    use detect::Metric;
    use wire::FlowKey;

    fn loss() -> Record {
        let loss = Loss {
            ts: 1_795_269_600_000_000_007,
            node: Some(3),
            source: std::net::Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped().octets(),
            hw_id: 2,
            lost: 5,
            reordered: 0,
            duplicated: 1,
        };
        Record::Loss(Box::new(LossRecord { loss, number: 0 }))
    }

    fn sink() -> ClickHouse {
        ClickHouse::new("net", "hopwise_", 30).unwrap()
    }

    /// Name, type, and the bytes of all values.
    type WrittenColumn = (&'static str, &'static str, Vec<u8>);

    fn block(rows: u8, columns: &[WrittenColumn]) -> Vec<u8> {
        let mut block = vec![columns.len() as u8, rows];
        for (name, kind, values) in columns {
            for text in [name, kind] {
                block.push(text.len() as u8);
                block.extend(text.as_bytes());
            }
            block.extend(values);
        }
        block
    }

    /// Each word once, and that of each row.
    fn words(words: &[&str], rows: &[u8]) -> Vec<u8> {
        let numbers = [1_u64, 0x600, words.len() as u64];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        for word in words {
            bytes.push(word.len() as u8);
            bytes.extend(word.as_bytes());
        }
        bytes.extend((rows.len() as u64).to_le_bytes());
        bytes.extend(rows);
        bytes
    }

    fn numbers(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn small(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn a_batch_is_a_block_of_columns() {
        let record = loss();
        let batch = Batch {
            stream: Stream::Losses,
            records: &[&record, &record],
            collector: "c1",
        };
        let request = sink().request(&batch).unwrap();
        let ts = 1_795_269_600_000_000_007;
        let source = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x09";
        let twice = |number| numbers(&[number; 2]);
        let columns: [WrittenColumn; 10] = [
            ("id", "UInt64", twice(record.id())),
            ("ts", "DateTime64(9, 'UTC')", twice(ts)),
            ("collector", "LowCardinality(String)", words(&["c1"], &[0, 0])),
            ("schema", "UInt32", small(&[1, 1])),
            ("node", "UInt32", small(&[3, 3])),
            ("source", "IPv6", [*source; 2].concat()),
            ("hw_id", "UInt64", twice(2)),
            ("lost", "UInt64", twice(5)),
            ("reordered", "UInt64", twice(0)),
            ("duplicated", "UInt64", twice(1)),
        ];
        assert_eq!(request.body, block(2, &columns));
        let id = format!("{:016x}", record.id());
        assert_eq!(
            request.target,
            format!(
                "/?query=INSERT%20INTO%20net.hopwise_losses%20FORMAT%20Native\
                 &insert_deduplication_token=c1-losses-{id}-{id}-2&deduplicate_blocks_in_dependent_materialized_views=1"
            )
        );
    }

    /// The first with everything that its kind has, the second with as little as possible.
    fn events() -> [Record; 2] {
        let event = Event {
            ts: u64::MAX,
            id: 7,
            kind: Kind::New,
            metric: Some(Metric::FlowPath),
            flow: Some(FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((5000, 80)), 6)),
            node: Some(0),
            interface: Some(64),
            queue: Some(4),
            value: Some(300),
            previous: None,
            threshold: Some(1),
            rule: None,
            reason: None,
            basis: Basis::Measured,
        };
        let first = Some((Some(9), Basis::Measured, vec![4, 5]));
        let record = EventRecord {
            event,
            rule: Some("slow".into()),
            path: vec![1, 2],
            first,
        };
        let flow = Some(FlowKey::of_id(0xf10a));
        let least = Event {
            ts: 1,
            kind: Kind::Change,
            metric: None,
            flow,
            node: None,
            queue: Some(0),
            ..event
        };
        let least = Event {
            interface: None,
            value: None,
            threshold: None,
            ..least
        };
        let least = EventRecord {
            event: least,
            rule: None,
            path: Vec::new(),
            first: None,
        };
        [record, least].map(|record| Record::Event(Box::new(record)))
    }

    #[test]
    fn what_an_event_lacks_has_a_place_in_each_column() {
        let [first, second] = &events();
        let batch = Batch {
            stream: Stream::Events,
            records: &[first, second],
            collector: "c1",
        };
        let request = sink().request(&batch).unwrap();
        let optional = |absent: [u8; 2], values: [u64; 2]| [absent.to_vec(), numbers(&values)].concat();
        let address = |last: u8| [[0; 10].as_slice(), &[0xff, 0xff, 10, 0, 0, last], &[0; 16]].concat();
        let list = |values: &[u32]| [numbers(&[2, 2]), small(values)].concat();
        let columns: [WrittenColumn; 25] = [
            ("id", "UInt64", numbers(&[7, 7])),
            ("ts", "DateTime64(9, 'UTC')", numbers(&[i64::MAX as u64, 1])),
            ("collector", "LowCardinality(String)", words(&["c1"], &[0, 0])),
            ("schema", "UInt32", small(&[1, 1])),
            (
                "kind",
                "LowCardinality(String)",
                words(&["new", "change"], &[0, 1]),
            ),
            (
                "metric",
                "LowCardinality(String)",
                words(&["flow_path", ""], &[0, 1]),
            ),
            (
                "flow",
                "String",
                b"\x1b10.0.0.1:5000>10.0.0.2:80/6\x12flow-id:0x0000f10a".to_vec(),
            ),
            ("src", "IPv6", address(1)),
            ("dst", "IPv6", address(2)),
            ("sport", "UInt16", vec![0x88, 0x13, 0, 0]),
            ("dport", "UInt16", vec![80, 0, 0, 0]),
            ("proto", "UInt8", vec![6, 0]),
            // ID 0 is valid, so it differs from an absent ID.
            ("node", "UInt32", small(&[0, ABSENT])),
            ("interface", "UInt32", small(&[64, ABSENT])),
            ("queue", "UInt32", small(&[4, 0])),
            ("value", "Nullable(UInt64)", optional([0, 1], [300, 0])),
            ("previous", "Nullable(UInt64)", optional([1, 1], [0, 0])),
            ("threshold", "Nullable(UInt64)", optional([0, 1], [1, 0])),
            ("rule", "LowCardinality(String)", words(&["slow", ""], &[0, 1])),
            ("reason", "Nullable(UInt64)", optional([1, 1], [0, 0])),
            ("basis", "LowCardinality(String)", words(&["measured"], &[0, 0])),
            ("path", "Array(UInt32)", list(&[1, 2])),
            ("flow_latency", "Nullable(UInt64)", optional([0, 1], [9, 0])),
            (
                "latency_basis",
                "LowCardinality(String)",
                words(&["measured", ""], &[0, 1]),
            ),
            ("hop_latencies", "Array(UInt32)", list(&[4, 5])),
        ];
        assert_eq!(request.body, block(2, &columns));
    }

    #[test]
    fn more_words_than_a_byte_counts_have_wider_numbers() {
        let [event, _] = events();
        let Record::Event(event) = event else {
            unreachable!()
        };
        let named = |n: u32| {
            Record::Event(Box::new(EventRecord {
                rule: Some(format!("r{n:05}").into()),
                ..(*event).clone()
            }))
        };
        for (count, flags, width) in [
            (256, 0x600_u64, 1),
            (257, 0x601, 2),
            (65_536, 0x601, 2),
            (65_537, 0x602, 4),
        ] {
            let records: Vec<Record> = (0..count).map(named).collect();
            let records: Vec<&Record> = records.iter().collect();
            let batch = Batch {
                stream: Stream::Events,
                records: &records,
                collector: "c1",
            };
            let body = sink().request(&batch).unwrap().body;
            let head = b"\x04rule\x16LowCardinality(String)\x01\0\0\0\0\0\0\0";
            let at = body
                .windows(head.len())
                .position(|window| window == head)
                .unwrap()
                + head.len();
            let mut expected = numbers(&[flags, u64::from(count)]);
            (0..count).for_each(|n| expected.extend(format!("\x06r{n:05}").bytes()));
            expected.extend(u64::from(count).to_le_bytes());
            (0..count).for_each(|n| expected.extend(&n.to_le_bytes()[..width]));
            assert_eq!(body[at..at + expected.len()], expected, "{count}");
        }
    }

    #[test]
    fn an_answer_says_whose_fault_it_is() {
        let record = loss();
        let batch = Batch {
            stream: Stream::Losses,
            records: &[&record],
            collector: "c1",
        };
        let outcome = |status, body: &str| {
            let response = Response {
                status,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            };
            match sink().outcome(&batch, &Request::default(), &response) {
                Outcome::Settled { .. } => 'd',
                Outcome::Failed { .. } => 'f',
                Outcome::Refused { .. } => 'r',
                Outcome::Unauthorised { .. } => 'u',
            }
        };
        assert_eq!(outcome(200, ""), 'd');
        // After the status was sent.
        assert_eq!(
            outcome(200, "Code: 241. DB::Exception: Memory limit exceeded"),
            'f'
        );
        assert_eq!(
            outcome(
                404,
                "Code: 60. DB::Exception: Table net.x does not exist. (UNKNOWN_TABLE)"
            ),
            'f'
        );
        assert_eq!(
            outcome(
                400,
                "Code: 27. DB::Exception: Cannot parse input (CANNOT_PARSE_INPUT)"
            ),
            'r'
        );
        assert_eq!(outcome(400, "Code: 33. DB::Exception: Cannot read all data"), 'r');
        assert_eq!(outcome(400, "Code: 53. DB::Exception: Type mismatch"), 'f');
        assert_eq!(
            outcome(403, "Code: 516. DB::Exception: default: Authentication failed"),
            'u'
        );
        assert_eq!(
            outcome(500, "Code: 497. DB::Exception: Not enough privileges"),
            'u'
        );
        assert_eq!(outcome(503, "busy"), 'f');
        assert_eq!(outcome(413, "too large"), 'r');
    }

    #[test]
    fn the_probe_names_what_is_missing() {
        let probed = |body: &str| {
            let response = Response {
                status: 200,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            };
            sink().probed(&[Stream::Losses], &response)
        };
        let whole: String = columns(Stream::Losses)
            .iter()
            .map(|column| {
                format!(
                    "hopwise_losses\t{}\t{}\n",
                    column.name,
                    column.kind.name().replace('\'', "\\'")
                )
            })
            .collect();
        assert_eq!(probed(&whole), Ok(()));
        assert!(
            probed("")
                .unwrap_err()
                .starts_with("ClickHouse has no table net.hopwise_losses; `hopwise schema apply`")
        );
        let other = whole.replace("lost\tUInt64", "lost\tUInt32");
        assert!(
            probed(&other)
                .unwrap_err()
                .contains("the column lost is of type UInt32; it must be UInt64")
        );
        let less = whole.replace("hopwise_losses\tlost\tUInt64\n", "");
        assert!(probed(&less).unwrap_err().contains("the column lost is missing"));
    }

    #[test]
    fn a_table_of_an_earlier_version_gets_what_it_lacks() {
        let statements = sink().schema(&[Stream::Rollups, Stream::Losses]);
        assert_eq!(statements.len(), 1 + 2 + 3);
        assert!(
            statements[1].contains(&format!("\nORDER BY ({ROLLUP_SORTING_KEY})\n")),
            "{}",
            statements[1]
        );
        assert_eq!(
            statements[3],
            format!(
                "/* migration 1 */ ALTER TABLE net.hopwise_rollups ADD COLUMN IF NOT EXISTS part UInt64 CODEC(NONE), MODIFY ORDER BY ({ROLLUP_SORTING_KEY})"
            )
        );
        let window = format!(
            "non_replicated_deduplication_window = {TOKEN_WINDOW}, min_bytes_for_wide_part = {MIN_BYTES_FOR_WIDE_PART}"
        );
        for (statement, table) in [(&statements[4], "rollups"), (&statements[5], "losses")] {
            assert_eq!(
                *statement,
                format!("/* migration 2 */ ALTER TABLE net.hopwise_{table} MODIFY SETTING {window}")
            );
        }
        assert!(statements[2].contains(&window), "{}", statements[2]);
        let drops = sink().schema(&[Stream::Drops]);
        assert_eq!(
            drops.last().map(String::as_str),
            Some(
                "/* migration 5 */ ALTER TABLE net.hopwise_drops ADD COLUMN IF NOT EXISTS tunnel_src IPv6, ADD COLUMN IF NOT EXISTS tunnel_dst IPv6"
            )
        );
        // Until then, the probe says so.
        let columns = columns(Stream::Rollups);
        let old = columns.iter().filter(|column| column.name != "part");
        let line = |column: &Column| {
            format!(
                "hopwise_rollups\t{}\t{}\n",
                column.name,
                column.kind.name().replace('\'', "\\'")
            )
        };
        let body: String = old.map(line).collect();
        let response = Response {
            status: 200,
            retry_after: None,
            body: body.as_bytes(),
            is_cut: false,
        };
        let words = "ClickHouse's table net.hopwise_rollups is of an earlier version, and lacks the column part; `hopwise schema apply` adds it";
        assert_eq!(
            sink().probed(&[Stream::Rollups], &response),
            Err(words.to_owned())
        );
    }

    #[test]
    fn a_table_that_passes_rows_on_has_no_window_and_no_index() {
        let executed = |statement: &str, status, body: &str| {
            let response = Response {
                status,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            };
            let request = Request {
                body: statement.as_bytes().to_vec(),
                ..Request::default()
            };
            sink().executed(&request, &response).is_ok()
        };
        let refused =
            "Code: 48. DB::Exception: Alter of type 'MODIFY_SETTING' is not supported by storage Distributed";
        let [create, add, window] = [1, 2, 3].map(|at| sink().schema(&[Stream::Rollups])[at].clone());
        assert!(executed(&window, 501, refused) && executed(&window, 200, ""));
        assert!(!executed(&add, 501, refused) && !executed(&create, 501, refused));
        let index = sink().schema(&[Stream::Events])[3].clone();
        assert!(
            index.ends_with(ADD_KIND_INDEX) && executed(&index, 501, refused),
            "{index}"
        );
        assert!(!executed(
            &window,
            500,
            "Code: 60. DB::Exception: Table does not exist"
        ));
        assert!(!executed(&window, 502, "gateway") && !executed(&create, 200, refused));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for (database, prefix) in [("", ""), ("a b", ""), ("a", "x;"), ("1a", ""), ("a", "é")] {
            assert!(
                ClickHouse::new(database, prefix, 0).is_err(),
                "{database} {prefix}"
            );
        }
        assert!(ClickHouse::new("a", "", 0).is_ok());
    }
}

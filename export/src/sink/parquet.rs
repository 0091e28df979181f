//! Apache Parquet files: writes the records of a batch as one file per UTC day, sorted by time.
//!
//! <https://github.com/apache/parquet-format/blob/master/README.md>, its `Encodings.md`, `LogicalTypes.md` and
//! `parquet.thrift`.
//!
//! Columns have the names of JSON, and a flow is a group of columns. An ID is an unsigned integer, a time a timestamp in ns
//! (UTC), an address a string as in JSON, and an empty list null. A file has one row group; each column is one page, with a
//! dictionary where that is shorter, compressed by zstd.
//!
//! A file's name is derived from its records, so writing a batch again replaces the same file. Directories follow Hive
//! partitioning: a reader that wants one day opens only its files.

mod column;
mod thrift;

use self::column::{Column, Kind};
use self::thrift::{STRUCT, Writer};
use super::Batch;
use crate::backoff::Nanos;
use crate::record::{COMMON, Field, FieldKind, Record, SCHEMA, Stream, Value, hash};
use crate::text::{address, address_of, flow as flow_text, rfc3339};

/// The columns of a flow; 1 marks an optional one.
const FLOW_COLUMNS: [(&str, Kind, u8); 5] = [
    ("src", Kind::Text, 0),
    ("dst", Kind::Text, 0),
    ("sport", Kind::Uint16, 1),
    ("dport", Kind::Uint16, 1),
    ("proto", Kind::Uint8, 0),
];
const MAGIC: &[u8; 4] = b"PAR1";
const DAY: Nanos = 86_400_000_000_000;
const REQUIRED: u32 = 0;
const OPTIONAL: u32 = 1;
const REPEATED: u32 = 2;

/// A Parquet file in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// The directory, below that of the export.
    pub directory: String,
    /// The name of the file.
    pub name: String,
    /// The bytes of the file.
    pub content: Vec<u8>,
}

/// Encodes these records as files. Equal records give equal files.
pub fn files(batch: &Batch<'_>) -> Vec<File> {
    let mut records = batch.records.to_vec();
    records.sort_by_key(|record| record.ts());
    records
        .chunk_by(|a, b| a.ts() / DAY == b.ts() / DAY)
        .map(|records| file(batch, records))
        .collect()
}

/// Returns the prefix of a collector's file names, which precedes the first record's time.
pub fn prefix(collector: &str) -> String {
    let safe_name = collector.chars().take(64).map(|char| match char {
        char if char.is_ascii_alphanumeric() || "-_.".contains(char) => char,
        _ => '_',
    });
    // Many readers ignore names that begin with a dot or an underscore.
    format!(
        "{}-",
        safe_name.collect::<String>().trim_start_matches(['.', '_'])
    )
}

fn file(batch: &Batch<'_>, records: &[&Record]) -> File {
    let mut first = Vec::new();
    rfc3339(records.first().map_or(0, |record| record.ts()), &mut first);
    let time: Vec<u8> = first[..19]
        .iter()
        .copied()
        .filter(|byte| !b"-:".contains(byte))
        .collect();
    let day = String::from_utf8_lossy(&first[..10]);
    let time = String::from_utf8_lossy(&time);
    let ids = hash(records.iter().map(|record| record.id()));
    File {
        directory: format!("{}/date={day}", batch.stream.name()),
        name: format!(
            "{}{time}Z-{}-{ids:016x}.parquet",
            prefix(batch.collector),
            records.len()
        ),
        content: content(batch.stream, batch.collector, records),
    }
}

fn content(stream: Stream, collector: &str, records: &[&Record]) -> Vec<u8> {
    let mut columns = columns(stream);
    for record in records {
        let mut offset = 0;
        record.visit_all(collector, |field, value| {
            push(&mut columns[offset..], field, value);
            offset += width(field);
        });
    }
    let mut out = MAGIC.to_vec();
    let mut chunks = Vec::new();
    let mut raw = 0;
    for column in &columns {
        let chunk = column.write(&mut out);
        raw += chunk.raw;
        chunks.push(chunk);
    }
    let end = out.len();
    // The footer: `FileMetaData` in Thrift's compact protocol, its length, and the magic number.
    let mut thrift = Writer::new(&mut out);
    thrift.i32(1, 1);
    schema(&mut thrift, stream, &columns);
    thrift.i64(3, records.len() as u64);
    thrift.list(4, STRUCT, 1);
    thrift.begin();
    thrift.list(1, STRUCT, columns.len());
    for (column, chunk) in columns.iter().zip(&chunks) {
        column.describe(chunk, &mut thrift);
    }
    thrift.i64(2, raw as u64);
    thrift.i64(3, records.len() as u64);
    // Sorted by `ts`.
    thrift.list(4, STRUCT, 1);
    thrift.begin();
    thrift.i32(1, 1);
    thrift.bool(2, false);
    thrift.bool(3, false);
    thrift.end();
    thrift.i64(6, (end - MAGIC.len()) as u64);
    thrift.end();
    notes(&mut thrift, stream, columns.len());
    let length = (out.len() - end) as u32;
    out.extend(length.to_le_bytes());
    out.extend(MAGIC);
    out
}

/// Writes the end of the file metadata: key-value pairs, the writer's name, and the order of column statistics.
fn notes(thrift: &mut Writer<'_>, stream: Stream, columns: usize) {
    let pairs = [
        ("hopwise.stream", stream.name().to_owned()),
        ("hopwise.schema", SCHEMA.to_string()),
    ];
    thrift.list(5, STRUCT, pairs.len());
    for (key, value) in pairs {
        thrift.begin();
        thrift.bytes(1, key.as_bytes());
        thrift.bytes(2, value.as_bytes());
        thrift.end();
    }
    thrift.bytes(
        6,
        concat!("hopwise version ", env!("CARGO_PKG_VERSION")).as_bytes(),
    );
    // TypeDefinedOrder for each column: minimum and maximum follow the order of the type.
    thrift.list(7, STRUCT, columns);
    for _ in 0..columns {
        thrift.begin();
        thrift.begin_field(1);
        thrift.end();
        thrift.end();
    }
    thrift.end();
}

/// Returns the columns of a stream, in order.
fn columns(stream: Stream) -> Vec<Column> {
    let mut columns = Vec::new();
    for (number, field) in COMMON.iter().chain(stream.fields()).enumerate() {
        let optional = u8::from(number >= COMMON.len());
        let name = field.name;
        match field.kind {
            FieldKind::Number | FieldKind::Id => columns.push(Column::new(&[name], Kind::Uint64, optional)),
            FieldKind::Time => columns.push(Column::new(&[name], Kind::Time, optional)),
            FieldKind::Text | FieldKind::Address => columns.push(Column::new(&[name], Kind::Text, optional)),
            FieldKind::Numbers => columns.push(Column::list(&[name, "list", "element"])),
            FieldKind::Flow => {
                for (part, kind, optional_parts) in FLOW_COLUMNS {
                    columns.push(Column::new(&[name, part], kind, 1 + optional_parts));
                }
            }
        }
    }
    columns
}

/// Returns the number of columns of a field.
fn width(field: &Field) -> usize {
    if field.kind == FieldKind::Flow {
        FLOW_COLUMNS.len()
    } else {
        1
    }
}

/// Appends the value of a field to its columns, which are the first ones of `columns`.
fn push(columns: &mut [Column], field: &Field, value: Value<'_>) {
    let mut text = Vec::new();
    match value {
        Value::Absent => columns[..width(field)].iter_mut().for_each(Column::push_null),
        Value::Number(number) | Value::Id(number) => columns[0].push_number(number),
        Value::Text(text) => columns[0].push_text(text.as_bytes()),
        Value::Address(octets) => {
            address(address_of(octets), &mut text);
            columns[0].push_text(&text);
        }
        Value::Numbers(numbers) => columns[0].push_list(numbers),
        Value::Flow(flow) => {
            let [src, dst, sport, dport, proto, ..] = columns else {
                return;
            };
            let is_by_id = flow.known_id().is_some();
            if is_by_id {
                flow_text(flow, &mut text);
            } else {
                address(flow.src(), &mut text);
            }
            src.push_text(&text);
            text.clear();
            if !is_by_id {
                address(flow.dst(), &mut text);
            }
            dst.push_text(&text);
            match flow.ports() {
                Some((from, to)) => {
                    sport.push_number(from.into());
                    dport.push_number(to.into());
                }
                None => [sport, dport]
                    .into_iter()
                    .for_each(|column| column.push_absent(1)),
            }
            proto.push_number(flow.proto().into());
        }
    }
}

/// Writes the schema tree, parents before children.
fn schema(thrift: &mut Writer<'_>, stream: Stream, columns: &[Column]) {
    let fields: Vec<&Field> = COMMON.iter().chain(stream.fields()).collect();
    let groups: usize = fields
        .iter()
        .map(|field| match field.kind {
            FieldKind::Flow => 1,
            FieldKind::Numbers => 2,
            _ => 0,
        })
        .sum();
    thrift.list(2, STRUCT, 1 + groups + columns.len());
    group(thrift, stream.message(), None, fields.len(), false);
    let mut columns = columns.iter();
    for field in fields {
        match field.kind {
            FieldKind::Flow => group(thrift, field.name, Some(OPTIONAL), FLOW_COLUMNS.len(), false),
            FieldKind::Numbers => {
                group(thrift, field.name, Some(OPTIONAL), 1, true);
                group(thrift, "list", Some(REPEATED), 1, false);
            }
            _ => {}
        }
        for column in columns.by_ref().take(width(field)) {
            column.declare(thrift);
        }
    }
}

fn group(thrift: &mut Writer<'_>, name: &str, repetition: Option<u32>, children: usize, is_list: bool) {
    thrift.begin();
    repetition
        .into_iter()
        .for_each(|repetition| thrift.i32(3, repetition));
    thrift.bytes(4, name.as_bytes());
    thrift.i32(5, children as u32);
    if is_list {
        thrift.i32(6, 3);
        thrift.begin_field(10);
        thrift.begin_field(3);
        thrift.end();
        thrift.end();
    }
    thrift.end();
}

//! Cases `export-protobuf`, `export-json`, `export-native` and `export-hop`: the cost of encoding records for export, as
//! protobuf or JSON in Kafka messages, as rows in ClickHouse's Native format, and hops for the spool of an export.

use std::hint::black_box;

use collector::event::{Basis, Event, Kind};
use detect::Metric;
use export::hop::Hop;
use export::record::{EventRecord, Record, Stream};
use export::sink::clickhouse::ClickHouse;
use export::sink::kafka::{Compression, Format, Kafka, Options};
use export::sink::{Batch, HttpSink as _};
use export::spool::{self, Limits, Spool, WhenFull};
use export::{Cursor, Position};
use wire::FlowKey;

use super::harness::{Conditions, Failure, Measured, Outcome, Plan, measure, median};
use terminal::CliError;

/// Number of records in a batch, all different.
const RECORDS: u32 = 1000;
/// Number of nodes of a path.
const NODES: u32 = 5;
/// Bytes of encoded hops that are passed to the spool together, as in `hopwise run`.
const CHUNK: usize = 64 << 10;
/// Number of partitions of the topic.
const PARTITIONS: usize = 4;
/// One of this many records is a new flow with its path.
const NEW: u32 = 10;
const COLLECTOR: &str = "leaf1";
const INCLUDED: &str =
    "events of IPv4 flows in memory, a tenth of them new flows with a path of 5 nodes, to bytes; no I/O";

/// Measures records encoded as protobuf or JSON, alone and in Kafka record batches (`export-protobuf`, `export-json`).
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let format = if name.ends_with("json") {
        Format::Json
    } else {
        Format::Protobuf
    };
    let records: Vec<Record> = (0..RECORDS).map(record).collect();
    let mut bytes = Vec::new();
    let encoded = measure(plan, || {
        bytes.clear();
        for record in &records {
            match format {
                Format::Protobuf => export::protobuf::write(record, COLLECTOR, &mut bytes),
                Format::Json => export::json::write(record, COLLECTOR, &mut bytes),
            }
        }
        black_box(&bytes);
        Ok(u64::from(RECORDS))
    })?;
    let plain = messages(plan, &records, format, Compression::None)?;
    let compressed = messages(plan, &records, format, Compression::Lz4)?;
    let ns = median(encoded.ns_per_op.clone());
    let mut conditions = Conditions::of("one record", INCLUDED)
        .number("bytes_per_record", bytes.len() / records.len())
        .ratio("ns_in_kafka_message", median(plain.ns_per_op))
        .ratio("ns_in_kafka_message_lz4", median(compressed.ns_per_op));
    if format == Format::Json {
        conditions = conditions.ratio("times_serde_json", serde_json(plan, &records)? / ns);
    }
    Ok(Outcome::measured(name, encoded, conditions))
}

/// Measures records encoded as an insert request to ClickHouse (`export-native`).
pub(super) fn native(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let sink = ClickHouse::new("hopwise", "", 0).map_err(CliError::new)?;
    let records: Vec<Record> = (0..10 * RECORDS).map(record).collect();
    let records: Vec<&Record> = records.iter().collect();
    let batch = Batch {
        stream: Stream::Events,
        records: &records,
        collector: COLLECTOR,
    };
    let mut bytes = 0;
    let encoded = measure(plan, || {
        bytes = black_box(sink.request(&batch)).map_or(0, |request| request.body.len());
        Ok(records.len() as u64)
    })?;
    let conditions = Conditions::of("one record", INCLUDED)
        .number("bytes_per_record", bytes / records.len())
        .number("batch", records.len());
    Ok(Outcome::measured(name, encoded, conditions))
}

/// Measures hops of reports of five nodes, written to chunks and with them to the spool: all that a hop costs before an export
/// reads it (`export-hop`). Each round ends by settling the spool, which empties it.
pub(super) fn hops(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let hops: Vec<Hop> = (0..RECORDS * NODES).map(hop).collect();
    let limits = Limits {
        disk: 0,
        when_full: WhenFull::DropNewest,
        ..Limits::default()
    };
    let mut spool = Spool::new(limits, &Cursor::default(), Vec::new());
    let mut chunk = Vec::with_capacity(2 * CHUNK);
    let mut waiting = 0;
    let mut bytes = 0;
    let written = measure(plan, || {
        for hop in &hops {
            let begun = spool::begin(&mut chunk);
            hop.write(&mut chunk);
            spool::end(&mut chunk, begun);
            waiting += 1;
            if chunk.len() >= CHUNK {
                spool.offer(black_box(&chunk), waiting);
                bytes += chunk.len() as u64;
                chunk.clear();
                waiting = 0;
            }
        }
        spool.settle(Position {
            file: u64::MAX,
            row: 0,
        });
        Ok(hops.len() as u64)
    })?;
    if spool.refused() > 0 {
        return Err(CliError::new("the spool has refused hops".to_owned()).into());
    }
    let about = "hops of IPv4 flows in memory, nine fields each, to the spool in memory; no CRC, which is made with the file, and no I/O";
    let conditions = Conditions::of("one hop", about).number("bytes_per_hop", bytes / spool.offered().max(1));
    Ok(Outcome::measured(name, written, conditions))
}

fn hop(number: u32) -> Hop {
    let report = number / NODES;
    let at = number % NODES;
    let mixed = report.wrapping_mul(2_654_435_761);
    let [a, b, c, d] = mixed.to_be_bytes();
    Hop {
        ts: 1_795_269_600_000_000_000 + u64::from(report) * 12_345,
        report: u64::from(mixed) << 32 | u64::from(report),
        hop: at as u8,
        hops: NODES as u8,
        flow: Some(FlowKey::v4(
            [10, a, b, c],
            [10, d, c, b],
            Some((1024 + (mixed >> 17) as u16, 443)),
            6,
        )),
        node: Some(at * 100 + mixed % 32),
        ingress_if: Some(mixed % 64),
        egress_if: Some(mixed % 63),
        queue: Some(0),
        hop_latency: Some(u64::from(mixed % 90_000)),
        queue_occupancy: Some(mixed % 5000),
        queue_congestion: None,
        link_utilization: Some(u64::from(mixed % 1_000_000)),
        ingress_ts: Some(u64::from(mixed)),
        egress_ts: Some(u64::from(mixed) + 700),
    }
}

fn record(number: u32) -> Record {
    let mixed = number.wrapping_mul(2_654_435_761);
    let [a, b, c, d] = mixed.to_be_bytes();
    let ports = Some((1024 + (mixed >> 17) as u16, 443));
    let is_new = number.is_multiple_of(NEW);
    let path: Vec<u32> = if is_new {
        (1..=5).map(|hop| hop * 100 + mixed % 32).collect()
    } else {
        Vec::new()
    };
    let latencies = path.iter().map(|node| node * 300).collect();
    let changed = if is_new { None } else { Some(mixed) };
    let event = Event {
        ts: 1_795_269_600_000_000_000 + u64::from(number) * 12_345,
        id: u64::from(mixed) << 32 | u64::from(number),
        kind: if is_new { Kind::New } else { Kind::Change },
        metric: Some(if is_new {
            Metric::FlowPath
        } else {
            Metric::QueueOccupancy
        }),
        flow: Some(FlowKey::v4([10, a, b, c], [10, d, c, b], ports, 6)),
        node: changed.map(|mixed| mixed % 1000),
        interface: changed.map(|mixed| mixed % 64),
        queue: changed.map(|_| 0),
        value: changed.map(|mixed| u64::from(mixed % 5000)),
        previous: changed.map(|mixed| u64::from(mixed % 70)),
        threshold: changed.map(|_| 50),
        rule: None,
        reason: None,
        basis: Basis::Measured,
    };
    let first = is_new.then(|| (Some(u64::from(mixed % 900_000)), Basis::Measured, latencies));
    Record::Event(Box::new(EventRecord {
        event,
        rule: None,
        path,
        first,
    }))
}

/// Measures Kafka messages with keys and headers, spread over partitions.
fn messages(
    plan: &Plan,
    records: &[Record],
    format: Format,
    compression: Compression,
) -> Result<Measured, Failure> {
    let options = Options {
        format,
        compression,
        ..Options::default()
    };
    let kafka = Kafka::new(&options).map_err(CliError::new)?;
    let records: Vec<&Record> = records.iter().collect();
    let batch = Batch {
        stream: Stream::Events,
        records: &records,
        collector: COLLECTOR,
    };
    let mut bytes = Vec::new();
    measure(plan, || {
        let mut exchange = kafka
            .begin(&batch)
            .ok_or_else(|| CliError::new("there are no messages".to_owned()))?;
        exchange.spread(PARTITIONS);
        bytes.clear();
        for partition in exchange.partitions() {
            exchange.write(partition, None, &mut bytes);
        }
        black_box(&bytes);
        Ok(u64::from(RECORDS))
    })
}

/// Measures the baseline, ns per record: serde_json writes the same objects from its own values.
fn serde_json(plan: &Plan, records: &[Record]) -> Result<f64, Failure> {
    let mut values = Vec::new();
    for record in records {
        let mut text = Vec::new();
        export::json::write(record, COLLECTOR, &mut text);
        let value = serde_json::from_slice::<serde_json::Value>(&text);
        values.push(value.map_err(|error| CliError::new(error.to_string()))?);
    }
    let mut bytes = Vec::new();
    let measured = measure(plan, || {
        bytes.clear();
        for value in &values {
            serde_json::to_writer(&mut bytes, value).map_err(|error| CliError::new(error.to_string()))?;
        }
        black_box(&bytes);
        Ok(u64::from(RECORDS))
    })?;
    Ok(median(measured.ns_per_op))
}

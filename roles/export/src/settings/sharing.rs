//! Settings common to all exports (the table `[export]`), and the division of the memory limit among them.

use std::collections::BTreeMap;

use export::{
    memory::{Claim, MIN_BATCH, share},
    record::Stream,
};
use settings::{section, values::Size};

use super::{ExportKind, ExportSettings};

/// Copies of the records, in batches: the current batch, and the next one twice, as it is read and as it is sent.
const RECORDS: usize = 3;
/// A server's answer, which may mention each record. At most the size of a batch is read.
const ANSWER: usize = 1;
/// Memory for reading the store, bytes: a run of records, and pages of its files.
const READER: usize = 8 << 20;
/// Memory for numbering rollup parts, bytes: 8 per entry, in tables that are half full.
const PARTS: usize = 5 << 20;

section! {
    /// Settings common to all exports.
    pub struct SharedExportSettings("[export]") {
        /// Maximum memory of all exports together: batches, requests in flight, queues of hops, and read-ahead. If the configured
        /// batches need more, all are reduced by the same factor. Records that do not fit stay in the store; hops that do not fit
        /// are dropped and counted.
        pub memory: Size = Size(256 << 20),
    }
}

/// The memory limits of one stream of an export.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// Size of a batch, bytes.
    pub batch: usize,
    /// Memory of all batches, requests and queues, bytes.
    pub memory: usize,
}

/// The shares by export and stream.
pub type Shares = BTreeMap<(String, Stream), Share>;

/// Divides the memory among all streams of all exports. Invalid exports, which are reported elsewhere, get no share.
///
/// # Errors
/// The memory is not enough; the value is the number of bytes needed.
pub fn shares(memory: Size, exports: &BTreeMap<String, ExportSettings>) -> Result<Shares, usize> {
    let claims: Vec<((String, Stream), Claim)> = exports
        .iter()
        .flat_map(|(name, export)| {
            let streams = export.streams().unwrap_or_default();
            streams
                .into_iter()
                .map(|stream| ((name.clone(), stream), export.claim(stream)))
        })
        .collect();
    let memory = usize::try_from(memory.0).unwrap_or(usize::MAX);
    let batches = share(
        memory,
        &claims.iter().map(|(_, claim)| *claim).collect::<Vec<_>>(),
    )?;
    let shares = claims.into_iter().zip(batches).map(|((key, claim), batch)| {
        let memory = claim.bytes(batch);
        (key, Share { batch, memory })
    });
    Ok(shares.collect())
}

/// Returns advice for a memory limit below `needed` bytes.
pub fn not_enough(needed: usize) -> String {
    let mebibytes = needed.div_ceil(1 << 20);
    format!(
        "the exports need at least {mebibytes} MiB; write \"{mebibytes} MiB\" or more, or let them have fewer streams or smaller queues of hops"
    )
}

impl ExportSettings {
    /// Returns the memory that a stream may need at most.
    pub fn claim(&self, stream: Stream) -> Claim {
        let fixed = match stream {
            // The queue, one file being read, and one being written, in raw form and with checksums.
            Stream::Hops => {
                let (limits, _) = self.hop_limits();
                usize::try_from(self.queue.0)
                    .unwrap_or(usize::MAX)
                    .saturating_add(2 * limits.segment)
            }
            Stream::Rollups if self.kind == Some(ExportKind::RemoteWrite) => READER + PARTS,
            _ => READER,
        };
        // Most records are events and hops, so other streams get smaller batches.
        let part = match (self.batch_size, stream) {
            (Some(_), _) | (None, Stream::Events | Stream::Hops) => 1,
            (None, Stream::Rollups) => 4,
            (None, Stream::Flows | Stream::Drops | Stream::Losses | Stream::Alerts) => 8,
        };
        let batch = (self.delivery().bytes / part).max(MIN_BATCH);
        Claim {
            batch,
            copies: RECORDS + self.requests(),
            fixed,
        }
    }

    /// Returns the memory of a batch's concurrent requests and their answers, as a multiple of the memory of its records.
    /// Tests compare it with the output of the sinks.
    fn requests(&self) -> usize {
        match self.kind {
            // One request in flight, and the next one.
            Some(ExportKind::ClickHouse) => 2 * 2 + ANSWER,
            Some(ExportKind::InfluxDb | ExportKind::Webhook) => 2 * 3 + ANSWER,
            Some(ExportKind::OpenSearch | ExportKind::Alertmanager | ExportKind::Otlp) => 2 * 5 + ANSWER,
            // Series with labels, before compression.
            Some(ExportKind::RemoteWrite) => 2 * 9 + ANSWER,
            // One request in flight.
            Some(ExportKind::Redis | ExportKind::Syslog) => 5,
            Some(ExportKind::Kafka | ExportKind::Parquet) => 3,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Sink;
    use collector::{
        Event,
        event::{Basis, FlowRow, Kind},
    };
    use detect::Metric;
    use export::{
        hop::Hop,
        record::{Alert, EventRecord, LossRecord, Record, RollupPart},
        sink::{Batch, parquet},
    };
    use store::{EventRow, FlowState, StoredRecord};
    use testkit::records::{bare, drop_report, loss, rollup};

    const RECORDS: usize = 2000;

    fn event(number: u64) -> Event {
        let flow = format!(
            "[fd00:1234:5678:9abc:def0:1234:5678:{:x}]:50001>[fd00:1234:5678:9abc:def0:1234:5678:2]:50002/17",
            number % 50_000
        );
        Event {
            id: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            kind: Kind::Change,
            metric: Some(Metric::QueueOccupancy),
            flow: flow.parse().ok(),
            node: Some(4_000_000_001),
            interface: Some(4_000_000_001),
            queue: Some(7),
            value: Some(number << 30),
            previous: Some(number << 31),
            threshold: Some(1 << 40),
            ..bare(1_795_654_800_000_000_000 + number)
        }
    }

    fn hop(event: &Event) -> Hop {
        Hop {
            ts: event.ts,
            report: event.id,
            hop: 1,
            hops: 9,
            flow: event.flow,
            node: event.node,
            ingress_if: Some(u32::MAX),
            egress_if: Some(u32::MAX),
            queue: Some(9),
            hop_latency: Some(1 << 40),
            queue_occupancy: Some(1 << 30),
            link_utilization: Some(1 << 20),
            ingress_ts: Some(1 << 60),
            egress_ts: Some(1 << 60),
            ..Hop::default()
        }
    }

    /// A large record of a stream, and its bytes as the reader counts them.
    fn record(stream: Stream, number: u64) -> (Record, usize) {
        let event = event(number);
        let row = |event, path: Vec<u32>, first| EventRow {
            event,
            rule: None,
            path,
            first,
        };
        let flow = event.flow.unwrap_or_default();
        let path: Vec<u32> = (0..6).map(|node| 4_000_000_000 + node).collect();
        match stream {
            Stream::Events => {
                let bytes = StoredRecord::Event(row(event, Vec::new(), None)).bytes();
                let one = EventRecord {
                    event,
                    rule: None,
                    path: Vec::new(),
                    first: None,
                };
                (Record::Event(Box::new(one)), bytes)
            }
            Stream::Alerts => {
                let event = Event {
                    kind: Kind::RuleOn,
                    rule: Some(1),
                    ..event
                };
                let bytes = StoredRecord::Event(row(event, Vec::new(), None)).bytes();
                let alert =
                    Alert::from_event(&event, Some("a-rule-with-a-name-of-some-length".into())).unwrap();
                (Record::Alert(Box::new(alert)), bytes)
            }
            Stream::Rollups => {
                let mut rollup = rollup(event.ts, 7);
                rollup.flow = event.flow;
                let one = RollupPart {
                    rollup,
                    part: number,
                    nth: 0,
                };
                (
                    Record::Rollup(Box::new(one)),
                    StoredRecord::Rollup(rollup, number).bytes(),
                )
            }
            Stream::Flows => {
                let (first_seen, last_seen) = (event.ts, event.ts + 1);
                let latency = Some(1 << 40);
                let row = FlowRow {
                    flow,
                    flow_latency: latency,
                    basis: Basis::HopSum,
                    first_seen,
                    last_seen,
                    reports: 1 << 40,
                };
                let bytes = StoredRecord::Flow(FlowState {
                    row,
                    path: path.clone(),
                })
                .bytes();
                (Record::Flow(Box::new((row, path))), bytes)
            }
            Stream::Drops => {
                let one = collector::event::Drop {
                    flow: event.flow,
                    ..drop_report(event.ts, 7)
                };
                (Record::Drop(Box::new(one)), StoredRecord::Drop(one).bytes())
            }
            Stream::Losses => {
                let one = loss(event.ts, Some(7));
                (
                    Record::Loss(Box::new(LossRecord { loss: one, number })),
                    StoredRecord::Loss(one, number).bytes(),
                )
            }
            Stream::Hops => {
                let one = hop(&event);
                let mut packed = Vec::new();
                one.write(&mut packed);
                // As the reader counts it.
                (Record::Hop(Box::new(one)), 5 * packed.len())
            }
        }
    }

    /// Bytes of what a sink sends for records.
    fn request(sink: &Sink, batch: &Batch<'_>) -> usize {
        match sink {
            Sink::Http(sink) => sink.request(batch).map_or(0, |request| request.body.capacity()),
            Sink::Redis(sink) => sink
                .begin(batch)
                .map_or(0, |exchange| exchange.pipeline().bytes.capacity()),
            Sink::Syslog(sink) => {
                let mut bytes = Vec::new();
                sink.write(batch, &mut bytes);
                bytes.capacity()
            }
            Sink::Kafka(sink) => sink.begin(batch).map_or(0, |exchange| exchange.bytes()),
            Sink::Parquet | Sink::Objects(_) => parquet::files(batch)
                .iter()
                .map(|file| file.content.capacity())
                .sum(),
        }
    }

    #[test]
    fn streams_with_few_records_leave_room_for_those_with_many() {
        let streams: Vec<String> = Stream::ALL
            .iter()
            .map(|stream| stream.name().to_owned())
            .collect();
        let export = ExportSettings {
            kind: Some(ExportKind::ClickHouse),
            streams,
            ..ExportSettings::default()
        };
        let claim = |export: &ExportSettings, stream| export.claim(stream).batch;
        assert_eq!(claim(&export, Stream::Events), 32 << 20);
        assert_eq!(claim(&export, Stream::Hops), 32 << 20);
        assert_eq!(claim(&export, Stream::Rollups), 8 << 20);
        assert_eq!(claim(&export, Stream::Losses), 4 << 20);
        // What somebody has set is for each of them.
        let export = ExportSettings {
            batch_size: Some(Size(16 << 20)),
            ..export
        };
        assert!(
            Stream::ALL
                .iter()
                .all(|stream| claim(&export, *stream) == 16 << 20)
        );
    }

    #[test]
    fn requests_are_no_larger_than_what_is_claimed_for_them() {
        let mut wrong = Vec::new();
        let kinds = [
            ExportKind::ClickHouse,
            ExportKind::InfluxDb,
            ExportKind::OpenSearch,
            ExportKind::RemoteWrite,
            ExportKind::Webhook,
            ExportKind::Alertmanager,
            ExportKind::Redis,
            ExportKind::Syslog,
            ExportKind::Kafka,
            ExportKind::Otlp,
            ExportKind::Parquet,
        ];
        for kind in kinds {
            let export = ExportSettings {
                kind: Some(kind),
                flows: true,
                ..ExportSettings::default()
            };
            let sink = export.sink().unwrap();
            for stream in Stream::ALL {
                let (records, bytes): (Vec<Record>, Vec<usize>) =
                    (0..RECORDS).map(|number| record(stream, number as u64)).unzip();
                let (all, bytes): (Vec<&Record>, usize) = (records.iter().collect(), bytes.iter().sum());
                let batch = Batch {
                    stream,
                    records: &all,
                    collector: "a-collector-with-a-name",
                };
                let one = request(&sink, &batch);
                let at_once = if matches!(sink, Sink::Http(_)) { 2 } else { 1 };
                let answer = if matches!(sink, Sink::Http(_)) { ANSWER } else { 0 };
                let claimed = (export.requests() - answer) * bytes;
                if at_once * one > claimed {
                    wrong.push((
                        kind.name(),
                        stream.name(),
                        at_once * one * 100 / bytes,
                        claimed * 100 / bytes,
                    ));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "percent of the records, and what is claimed: {wrong:?}"
        );
    }

    #[test]
    fn the_memory_is_divided_among_all_streams() {
        let of = |kind, url: &str| ExportSettings {
            kind: Some(kind),
            url: url.to_owned(),
            ..ExportSettings::default()
        };
        let mut exports = BTreeMap::from([("lake".to_owned(), of(ExportKind::Kafka, "tcp://127.0.0.1:1"))]);
        let alone = shares(Size(256 << 20), &exports).unwrap();
        assert_eq!(alone.len(), 4);
        let lake = |stream| alone[&("lake".to_owned(), stream)].batch;
        assert_eq!(
            (lake(Stream::Events), lake(Stream::Rollups), lake(Stream::Drops)),
            (8 << 20, 2 << 20, 1 << 20)
        );
        for name in ["a", "b", "c"] {
            exports.insert(name.to_owned(), of(ExportKind::OpenSearch, "http://127.0.0.1:1"));
        }
        let raw = ExportSettings {
            streams: vec!["hops".to_owned()],
            ..of(ExportKind::Kafka, "tcp://127.0.0.1:1")
        };
        exports.insert("raw".to_owned(), raw);
        let shared = shares(Size(512 << 20), &exports).unwrap();
        assert_eq!(shared.len(), 17);
        assert!(
            shared.values().map(|share| share.memory).sum::<usize>() <= 512 << 20,
            "{shared:?}"
        );
        assert!(
            shared
                .values()
                .all(|share| (MIN_BATCH..8 << 20).contains(&share.batch)),
            "{shared:?}"
        );
        assert!(shared[&("raw".to_owned(), Stream::Hops)].memory > 88 << 20);
        assert!(shares(Size(64 << 20), &exports).unwrap_err() > 64 << 20);
    }
}

//! Fuzz bodies for what servers answer to sinks.

use collector::event::{Basis, Event, FlowRow, Kind, Rollup};
use detect::Metric;
use export::outlet::{PageRequest, Reading, Step};
use export::received::Received;
use export::record::{Alert, EventRecord, Record, RollupPart, Stream};
use export::sink::kafka::{self, Kafka, Producer, protocol, scram};
use export::sink::redis::{Redis, Replies, Reply};
use export::sink::{
    Batch, HttpSink, Response, alertmanager, clickhouse, influxdb, opensearch, otlp, redis, remote_write,
    webhook,
};
use export::{Outcome, Position};

fn event(id: u64) -> Record {
    let event = Event {
        ts: 1_000_000_000 - id,
        id,
        kind: Kind::RuleOn,
        metric: Some(Metric::HopLatency),
        flow: None,
        node: u32::try_from(id).ok(),
        interface: None,
        queue: None,
        value: Some(id),
        previous: None,
        threshold: None,
        rule: Some(0),
        reason: None,
        basis: Basis::Measured,
    };
    Record::Event(Box::new(EventRecord {
        event,
        rule: None,
        path: Vec::new(),
        first: None,
    }))
}

fn alert(id: u64) -> Record {
    let flow = Some(wire::FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 17));
    let (rule, is_firing) = ("rule".into(), id.is_multiple_of(2));
    let (node, interface, queue) = (None, None, None);
    let (metric, value, threshold) = (Some(Metric::HopLatency), Some(id), Some(1));
    let since = Some(id);
    Record::Alert(Box::new(Alert {
        ts: id,
        id,
        rule,
        is_firing,
        flow,
        node,
        interface,
        queue,
        metric,
        value,
        threshold,
        since,
    }))
}

fn flow() -> Record {
    let flow = wire::FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 17);
    let (flow_latency, basis) = (None, Basis::Measured);
    let row = FlowRow {
        flow,
        flow_latency,
        basis,
        first_seen: 1,
        last_seen: 5,
        reports: 1,
    };
    Record::Flow(Box::new((row, vec![1])))
}

fn rollup(ts: u64) -> Record {
    let (metric, interval, count) = (Metric::HopLatency, 1, 1);
    let (flow, node, interface, queue) = (None, Some(1), None, None);
    let (min, max, sum, p50, p99) = (1, 1, 1, None, None);
    let rollup = Rollup {
        ts,
        interval,
        metric,
        flow,
        node,
        interface,
        queue,
        count,
        min,
        max,
        sum,
        p50,
        p99,
    };
    Record::Rollup(Box::new(RollupPart {
        rollup,
        part: 0,
        nth: 0,
    }))
}

/// An outcome names records that were sent, each once.
fn holds(outcome: &Outcome, sent: usize) {
    let Outcome::Settled { rejected, retry, .. } = outcome else {
        return;
    };
    let mut rows: Vec<usize> = rejected
        .iter()
        .map(|(row, _)| *row)
        .chain(retry.iter().copied())
        .collect();
    rows.sort_unstable();
    let named = rows.len();
    rows.dedup();
    assert!(
        named == rows.len() && rows.iter().all(|row| *row < sent),
        "{outcome:?} of {sent}"
    );
}

/// The first byte chooses the sink, the second one the status; the rest is the body of the answer.
pub fn sink_http(bytes: &[u8]) {
    let [sink, status, body @ ..] = bytes else { return };
    let Ok(sink) = sink_of(*sink) else {
        unreachable!("the default options are right")
    };
    let status = [200, 204, 400, 404, 409, 422, 429, 500][usize::from(*status) % 8];
    let response = Response {
        status,
        retry_after: None,
        body,
        is_cut: false,
    };
    let records = [
        event(3),
        event(1),
        event(2),
        rollup(2),
        rollup(1),
        alert(1),
        alert(2),
    ];
    let streams = [
        (Stream::Events, &records[..3]),
        (Stream::Rollups, &records[3..5]),
        (Stream::Alerts, &records[5..]),
    ];
    for (stream, records) in streams {
        let records: Vec<&Record> = records.iter().collect();
        let batch = Batch {
            stream,
            records: &records,
            collector: "c",
        };
        if let Some(request) = sink.request(&batch) {
            holds(&sink.outcome(&batch, &request, &response), records.len());
        }
    }
    if let Err(sentence) = sink.probed(&[Stream::Events], &response) {
        assert!(!sentence.is_empty());
    }
}

fn sink_of(choice: u8) -> Result<Box<dyn HttpSink>, String> {
    Ok(match choice % 7 {
        0 => Box::new(influxdb::InfluxDb::new(&influxdb::Options::default())?),
        1 => Box::new(opensearch::OpenSearch::new(&opensearch::Options::default())?),
        2 => Box::new(remote_write::RemoteWrite::new(&remote_write::Options::default())?),
        5 => Box::new(otlp::Otlp::new(&otlp::Options::default())?),
        4 => Box::new(clickhouse::ClickHouse::new("hopwise", "", 30)?),
        3 => Box::new(alertmanager::Alertmanager::new(&alertmanager::Options::default())?),
        _ => {
            let (target, format) = ("/".to_owned(), webhook::Format::Lines);
            Box::new(webhook::Webhook::new(&webhook::Options { target, format })?)
        }
    })
}

/// Replies to the commands of an exchange. They are the same, read at once and byte by byte.
pub fn sink_redis(bytes: &[u8]) {
    let mut whole = Replies::new();
    whole.push(bytes);
    let mut replies: Vec<Reply> = Vec::new();
    let end = loop {
        match whole.next_reply() {
            Ok(Some(reply)) => replies.push(reply),
            other => break other,
        }
    };
    let (mut parts, mut again) = (Replies::new(), Vec::new());
    let mut parts_end = Ok(None);
    for byte in bytes {
        parts.push(std::slice::from_ref(byte));
        parts_end = parts.next_reply();
        if let Ok(Some(reply)) = parts_end {
            again.push(reply);
            parts_end = Ok(None);
        }
    }
    assert_eq!((&replies, end), (&again, parts_end));
    let Ok(sink) = Redis::new(&redis::Options::default()) else {
        unreachable!("the default options are right")
    };
    assert!(
        sink.greeted(&replies)
            .err()
            .is_none_or(|sentence| !sentence.is_empty())
    );
    let records = [event(2), flow(), event(1)];
    let records: Vec<&Record> = records.iter().collect();
    let batch = Batch {
        stream: Stream::Events,
        records: &records,
        collector: "c",
    };
    let Some(mut exchange) = sink.begin(&batch) else {
        unreachable!("there are records")
    };
    let mut rest = &replies[..];
    for pipelines in 0.. {
        assert!(pipelines < 3);
        let (now, later) = rest.split_at(rest.len().min(exchange.pipeline().replies));
        rest = later;
        if let Some(outcome) = sink.answered(&batch, &mut exchange, now) {
            return holds(&outcome, records.len());
        }
    }
}

/// An answer of Kafka: the first byte chooses the request, the second one the version.
pub fn sink_kafka(bytes: &[u8]) {
    let [request, version, frame @ ..] = bytes else {
        return;
    };
    let Ok((_, body)) = protocol::answer(frame) else {
        return;
    };
    match request % 10 {
        0 => drop(protocol::read_api_versions(body)),
        1 => {
            if let Ok(topology) = protocol::read_metadata(body, "t") {
                assert!(
                    topology.leaders.len() * 18 <= body.len() && topology.brokers.len() * 10 <= body.len()
                );
            }
        }
        2 => drop(protocol::read_sasl_handshake(body)),
        3 => drop(protocol::read_sasl_authenticate(body)),
        4 => drop(protocol::read_producer_id(body)),
        5 => drop(protocol::read_create_topic(body)),
        6 => produced(body, 3 + i16::from(*version % 6)),
        7 => fetched(body, 4 + i16::from(*version % 8)),
        8 => {
            if let Ok(Ok(offset)) = protocol::fetch::read_list_offsets(body) {
                assert!(offset >= 0);
            }
        }
        _ => {
            for stream in Stream::ALL {
                if let Err(error) = Received::read(stream, body) {
                    assert!(!error.0.is_empty());
                }
            }
        }
    }
}

/// Records of a partition, as an outlet reads them: it goes forward, or says why not.
fn fetched(body: &[u8], version: i16) {
    let Ok(fetched) = protocol::fetch::read_fetch(body, version) else {
        return;
    };
    let from = Position { file: 0, row: 3 };
    for until in [None, Some(Position { file: 0, row: 9 })] {
        let request = PageRequest {
            from,
            until,
            records: 100,
            bytes: 1 << 20,
            random: 0,
        };
        let (mut reading, _) = Reading::new(Stream::Events, request);
        match reading.fetched(&fetched) {
            Step::Page { page, .. } => {
                let passed = page.records.len() as u64 + page.left_out + page.expired;
                assert!(page.records.len() <= 100 && passed == page.end.row - from.row);
                assert!(page.records.is_sorted_by(|one, next| one.offset < next.offset));
            }
            Step::Fetch(offset) => assert!(offset > from.row),
            Step::Offsets => {}
            Step::Failed(words) => assert!(!words.is_empty()),
        }
    }
}

/// What an answer says of chunks that are in flight.
fn produced(body: &[u8], version: i16) {
    let Ok(answer) = protocol::read_produce(body, version) else {
        return;
    };
    let Ok(sink) = Kafka::new(&kafka::Options::default()) else {
        unreachable!("the default options are right")
    };
    let records = [event(3), event(1), event(2), event(4)];
    let records: Vec<&Record> = records.iter().collect();
    let batch = Batch {
        stream: Stream::Events,
        records: &records,
        collector: "c",
    };
    let Some(mut exchange) = sink.begin(&batch) else {
        unreachable!("there are records")
    };
    exchange.spread(2);
    let mut producer = Producer::default();
    producer.begin(protocol::ProducerId { id: 1, epoch: 0 });
    for produced in &answer {
        let partition = produced.partition;
        if !exchange.partitions().contains(&partition) {
            continue;
        }
        let (count, chunk) = (exchange.count(partition), exchange.fingerprint(partition));
        producer.sequence(partition, chunk);
        let verdict = exchange.produced("t", produced);
        producer.answered(partition, count, verdict);
    }
    holds(&exchange.outcome(), records.len());
}

/// A server's messages of a login by SCRAM. What is not its proof is no login.
pub fn sink_scram(bytes: &[u8]) {
    let mut login = scram::Login::new(scram::Hash::Sha256, "user", "pencil", "abc");
    assert!(login.verify(bytes).is_err(), "there is no first message");
    match login.last(bytes) {
        Ok(last) => assert!(last.starts_with(b"c=biws,r=abc")),
        Err(wrong) => assert!(!wrong.is_empty()),
    }
    assert!(login.verify(bytes).is_err(), "a first message is no proof");
}

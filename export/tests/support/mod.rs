//! Shared by the tests of sinks: records, and the text of requests.

use collector::event::{Basis, Drop, Event, FlowRow, Kind, Loss, Rollup};
use detect::Metric;
use export::Outcome;
use export::hop::Hop;
use export::record::{Alert, EventRecord, LossRecord, Record, RollupPart, Stream};
use export::sink::{Batch, HttpSink, Request, Response};

/// 2026-11-26T01:00:00Z, ns.
pub(crate) const T: u64 = 1_795_654_800_000_000_000;

/// Name of the collector, with all that has to be escaped somewhere.
pub(crate) const COLLECTOR: &str = "leaf, \"1\"=a\\b]\n";

pub(crate) fn event(id: u64, kind: Kind) -> EventRecord {
    EventRecord {
        event: Event {
            ts: T + id,
            id,
            kind,
            ..testkit::records::bare(T)
        },
        rule: None,
        path: Vec::new(),
        first: None,
    }
}

/// A change of the occupancy of a queue that a flow met.
pub(crate) fn change(id: u64) -> Record {
    let mut one = event(id, Kind::Change);
    one.event.metric = Some(Metric::QueueOccupancy);
    one.event.flow = Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap());
    (one.event.node, one.event.interface, one.event.queue) = (Some(7), Some(2), Some(0));
    (one.event.value, one.event.previous, one.event.threshold) = (Some(130), Some(2), Some(128));
    Record::Event(Box::new(one))
}

/// A new flow with its path.
pub(crate) fn new_flow(id: u64) -> Record {
    let mut one = event(id, Kind::New);
    one.event.metric = Some(Metric::FlowPath);
    one.event.flow = Some("[fd00::1]:5>[fd00::2]:6/17".parse().unwrap());
    one.event.basis = Basis::HopSum;
    one.path = vec![1, u32::MAX, 300];
    one.first = Some((Some(42), Basis::HopSum, vec![u32::MAX, 7]));
    Record::Event(Box::new(one))
}

/// A rule that became true, or false, for a flow.
pub(crate) fn rule(id: u64, kind: Kind) -> Record {
    let mut one = event(id, kind);
    one.event.flow = Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap());
    one.event.rule = Some(1);
    one.rule = Some("deep \"queue\" \\ a=b, c] \u{1}é".into());
    Record::Event(Box::new(one))
}

/// The alert that this rule is: a queue was too long, and is no longer; the value is from another node then.
pub(crate) fn alert(id: u64, kind: Kind) -> Record {
    let Record::Event(mut one) = rule(id, kind) else {
        unreachable!()
    };
    one.event.metric = Some(Metric::QueueOccupancy);
    (one.event.value, one.event.threshold) = (Some(if kind == Kind::RuleOn { 80 } else { 20 }), Some(50));
    (one.event.node, one.event.queue) = (Some(if kind == Kind::RuleOn { 7 } else { 8 }), Some(0));
    Record::Alert(Box::new(Alert::from_event(&one.event, one.rule).unwrap()))
}

/// A hop of a report of three.
pub(crate) fn hop(number: u8) -> Record {
    Record::Hop(Box::new(Hop {
        ts: T,
        report: 0xabc,
        hop: number,
        hops: 3,
        flow: Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap()),
        node: Some(7),
        ingress_if: Some(1),
        egress_if: Some(2),
        queue: Some(0),
        hop_latency: Some(900),
        queue_occupancy: Some(12),
        queue_congestion: None,
        link_utilization: Some(500_000),
        ingress_ts: Some(1_000),
        egress_ts: Some(1_900),
    }))
}

/// The hop latency of a queue over a second.
pub(crate) fn rollup(second: u64) -> Record {
    let rollup = Rollup {
        ts: T + second * 1_000_000_000,
        interval: 1,
        metric: Metric::HopLatency,
        flow: None,
        node: Some(7),
        interface: Some(2),
        queue: Some(0),
        count: 3,
        min: 10,
        max: 50,
        sum: 90,
        p50: Some(30),
        p99: None,
    };
    Record::Rollup(Box::new(RollupPart {
        rollup,
        part: 0,
        nth: 0,
    }))
}

/// The same of another worker, or of none.
pub(crate) fn rollup_part(part: u64) -> Record {
    let Record::Rollup(mut one) = rollup(0) else {
        unreachable!()
    };
    one.part = part;
    Record::Rollup(one)
}

/// The same, of which so many parts come before it.
pub(crate) fn nth_part(nth: u16) -> Record {
    let Record::Rollup(mut one) = rollup_part(1 + u64::from(nth)) else {
        unreachable!()
    };
    one.nth = nth;
    Record::Rollup(one)
}

/// The latency of a flow over a minute.
pub(crate) fn flow_rollup() -> Record {
    let Record::Rollup(mut one) = rollup(0) else {
        unreachable!()
    };
    one.flow = Some("10.0.0.1:1234>10.0.0.2:80/6".parse().unwrap());
    (one.node, one.interface, one.queue) = (None, None, None);
    (one.metric, one.interval) = (Metric::FlowLatency, 60);
    Record::Rollup(one)
}

pub(crate) fn flow() -> Record {
    let flow = "10.0.0.1>10.0.0.2/1".parse().unwrap();
    let row = FlowRow {
        flow,
        flow_latency: Some(900),
        basis: Basis::Measured,
        first_seen: T,
        last_seen: T + 5,
        reports: 3,
    };
    Record::Flow(Box::new((row, vec![1, 7])))
}

pub(crate) fn dropped() -> Record {
    let flow = Some(wire::FlowKey::of_id(0xf10a));
    Record::Drop(Box::new(Drop {
        ts: T,
        id: 0xabc,
        flow,
        tunnel: None,
        node: Some(5),
        ingress_if: None,
        egress_if: Some(2),
        queue: Some(0),
        reason: Some(71),
    }))
}

pub(crate) fn loss() -> Record {
    let source = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    let (lost, reordered, duplicated) = (4, 0, 1);
    let loss = Loss {
        ts: T,
        node: None,
        source,
        hw_id: 3,
        lost,
        reordered,
        duplicated,
    };
    Record::Loss(Box::new(LossRecord { loss, number: 0 }))
}

/// Calls `each` with a batch of these records.
pub(crate) fn batch<R>(collector: &str, records: &[Record], each: impl FnOnce(&Batch<'_>) -> R) -> R {
    let all: Vec<&Record> = records.iter().collect();
    let stream = records.first().map_or(Stream::Events, Record::stream);
    each(&Batch {
        stream,
        records: &all,
        collector,
    })
}

/// An answer.
pub(crate) fn answer(status: u16, body: &str) -> Response<'_> {
    Response {
        status,
        retry_after: None,
        body: body.as_bytes(),
        is_cut: false,
    }
}

/// A failed request that is sent again.
pub(crate) fn failed(reason: &str) -> Outcome {
    Outcome::Failed {
        reason: reason.to_owned(),
        retry_after: None,
    }
}

/// A request of which the server refused some rows, each with its words, and others are sent again.
pub(crate) fn settled(rejected: &[(usize, &str)], retry: &[usize], reason: &str) -> Outcome {
    let rejected = rejected
        .iter()
        .map(|(row, reason)| (*row, (*reason).to_owned()))
        .collect();
    Outcome::Settled {
        rejected,
        retry: retry.to_vec(),
        reason: reason.to_owned(),
        retry_after: None,
    }
}

/// The words of a probe that failed with this answer; empty if it succeeded.
pub(crate) fn probed(sink: &dyn HttpSink, status: u16, body: &str) -> String {
    sink.probed(&[], &answer(status, body)).err().unwrap_or_default()
}

/// A request as text, with a text as body.
pub(crate) fn shown(request: &Request) -> String {
    let headers: String = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let body = std::str::from_utf8(&request.body).unwrap();
    format!(
        "{} {}\n{headers}rows {:?}\n\n{body}",
        request.method, request.target, request.rows
    )
}

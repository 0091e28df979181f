//! Sink for OTLP over HTTP with protobuf: rollups as metrics, all other streams as logs. The OpenTelemetry Collector and most
//! vendors' back ends accept it.
//!
//! * <https://opentelemetry.io/docs/specs/otlp/#otlphttp>
//! * <https://github.com/open-telemetry/opentelemetry-proto> 1.x: `logs.proto`, `metrics.proto`
//! * <https://opentelemetry.io/docs/specs/semconv/registry/attributes/network/>
//!
//! The resource has `service.name` and `service.instance.id` (the collector). Flows use the attributes of the semantic
//! conventions (`source.address`, `source.port`, `destination.…`, `network.type`, `network.transport`); other fields are
//! `hopwise.NAME` with the names of JSON.
//!
//! A rollup is a histogram point with delta temporality: count, sum, minimum and maximum, without buckets. Its quantiles are
//! points of the gauges `….p50` and `….p99`, since OTLP histograms have none. Rollups per flow are omitted unless
//! [`Options::flows`] is set.
//!
//! On partial success, a server says how many records (or points) it refused, but not which, and forbids a retry, since delta
//! histograms would be counted twice. That many records then count as rejected, and the first ones of the request are written
//! to the file of rejected records, with a message that says so.

use super::{Batch, HttpSink, Request, Response, one_line, response_summary, unauthorised};
use crate::outcome::Outcome;
use crate::protobuf::{BYTES, FIXED_64, VARINT, Wire, read_field, tag, varint, write_bytes};
use crate::record::{FieldKind, Record, SCHEMA, Stream, Value};
use crate::text;
use collector::event::Rollup;
use detect::Metric;
use wire::FlowKey;

use self::fields::{
    any_value, data, export_request, histogram_point, key_value, log_record, metric, number_point, point,
    resource, resource_records, scope, scope_records,
};

mod fields;

/// The quantiles, each a gauge.
const QUANTILES: [(&str, Quantile); 2] = [(".p50", |rollup| rollup.p50), (".p99", |rollup| rollup.p99)];

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The value of the attribute `service.name`.
    pub service: String,
    /// True to send rollups per flow, too.
    pub flows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service: "hopwise".to_owned(),
            flows: false,
        }
    }
}

/// The sink for OpenTelemetry collectors.
#[derive(Debug)]
pub struct Otlp {
    options: Options,
}

impl Otlp {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The service name is empty, too long or has control characters; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let service = &options.service;
        if service.is_empty() || service.len() > 200 || service.chars().any(char::is_control) {
            return Err(format!(
                "`prefix` is {service:?}; write the name of the service, of 1 to 200 characters"
            ));
        }
        Ok(Self {
            options: options.clone(),
        })
    }

    /// Returns true if the options select the record.
    fn is_selected(&self, record: &Record) -> bool {
        self.options.flows || !matches!(record, Record::Rollup(part) if part.flow.is_some())
    }

    /// Wraps encoded records in a request. `ExportLogsServiceRequest` and `ExportMetricsServiceRequest` have the same structure
    /// down to the scope's records.
    fn request_of(&self, stream: Stream, collector: &str, records: &[u8], rows: Vec<usize>) -> Request {
        let mut body = Vec::with_capacity(records.len() + 256);
        nested(export_request::RESOURCE_RECORDS, &mut body, |out| {
            nested(resource_records::RESOURCE, out, |out| {
                let service = Value::Text(&self.options.service);
                attribute(resource::ATTRIBUTES, "service.name", service, out);
                if !collector.is_empty() {
                    let instance = Value::Text(collector);
                    attribute(resource::ATTRIBUTES, "service.instance.id", instance, out);
                }
            });
            nested(resource_records::SCOPE_RECORDS, out, |out| {
                nested(scope_records::SCOPE, out, |out| {
                    write_bytes(scope::NAME, b"hopwise", out);
                    write_bytes(scope::VERSION, SCHEMA.to_string().as_bytes(), out);
                });
                out.extend_from_slice(records);
            });
        });
        let headers = vec![("content-type", "application/x-protobuf".to_owned())];
        Request {
            method: "POST",
            target: target(stream).to_owned(),
            headers,
            body,
            rows,
        }
    }
}

/// Returns the path of the URL for the records of a stream.
fn target(stream: Stream) -> &'static str {
    match stream {
        Stream::Rollups => "/v1/metrics",
        Stream::Events | Stream::Flows | Stream::Drops | Stream::Losses | Stream::Alerts | Stream::Hops => {
            "/v1/logs"
        }
    }
}

/// Writes a length-delimited field: `write` appends the content, and its length is inserted afterwards.
fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    tag(number, BYTES, out);
    let start = out.len();
    write(out);
    let mut len = Vec::with_capacity(5);
    varint((out.len() - start) as u64, &mut len);
    out.splice(start..start, len);
}

fn fixed(number: u32, value: u64, out: &mut Vec<u8>) {
    tag(number, FIXED_64, out);
    out.extend(value.to_le_bytes());
}

fn double(number: u32, value: f64, out: &mut Vec<u8>) {
    fixed(number, value.to_bits(), out);
}

/// Writes a `KeyValue`, unless the value is absent. Numbers are signed in OTLP and saturate.
fn attribute(number: u32, key: &str, value: Value<'_>, out: &mut Vec<u8>) {
    if matches!(value, Value::Absent | Value::Numbers([])) {
        return;
    }
    nested(number, out, |out| {
        write_bytes(key_value::KEY, key.as_bytes(), out);
        nested(key_value::VALUE, out, |out| write_value(value, out));
    });
}

/// Writes the fields of `AnyValue`.
fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Absent => {}
        Value::Text(text) => write_bytes(any_value::STRING, text.as_bytes(), out),
        Value::Number(number) => integer(number, out),
        Value::Id(id) => nested(any_value::STRING, out, |out| text::hex(id, out)),
        Value::Address(octets) => nested(any_value::STRING, out, |out| {
            text::address(text::address_of(octets), out)
        }),
        Value::Flow(flow) => nested(any_value::STRING, out, |out| text::flow(flow, out)),
        Value::Numbers(numbers) => nested(any_value::ARRAY, out, |out| {
            for number in numbers {
                // An unavailable element is an empty `AnyValue`.
                nested(any_value::ARRAY_VALUES, out, |out| {
                    if *number != u32::MAX {
                        integer(u64::from(*number), out);
                    }
                });
            }
        }),
    }
}

fn integer(number: u64, out: &mut Vec<u8>) {
    tag(any_value::INT, VARINT, out);
    varint(number.min(i64::MAX as u64), out);
}

/// IP protocol number of TCP (IANA).
const TCP: u8 = 6;
/// IP protocol number of UDP (IANA).
const UDP: u8 = 17;

/// Writes a flow as attributes of the semantic conventions.
fn flow_attributes(number: u32, flow: &FlowKey, out: &mut Vec<u8>) {
    if flow.known_id().is_some() {
        attribute(number, "hopwise.flow", Value::Flow(flow), out);
    } else {
        let version = if flow.is_v6() { "ipv6" } else { "ipv4" };
        attribute(number, "source.address", Value::Address(flow.src_octets()), out);
        attribute(
            number,
            "destination.address",
            Value::Address(flow.dst_octets()),
            out,
        );
        attribute(number, "network.type", Value::Text(version), out);
    }
    if let Some((source, destination)) = flow.ports() {
        attribute(number, "source.port", Value::Number(source.into()), out);
        attribute(number, "destination.port", Value::Number(destination.into()), out);
    }
    match flow.proto() {
        TCP => attribute(number, "network.transport", Value::Text("tcp"), out),
        UDP => attribute(number, "network.transport", Value::Text("udp"), out),
        _ => {}
    }
    attribute(number, "hopwise.proto", Value::Number(flow.proto().into()), out);
}

/// Writes a `LogRecord`, a field of the scope's records.
fn log(record: &Record, out: &mut Vec<u8>) {
    let (severity_number, severity) = if record.is_wrong() {
        (log_record::SEVERITY_WARN, "WARN")
    } else {
        (log_record::SEVERITY_INFO, "INFO")
    };
    let name = record.what();
    nested(scope_records::RECORDS, out, |out| {
        fixed(log_record::TIME, record.ts(), out);
        tag(log_record::SEVERITY_NUMBER, VARINT, out);
        varint(severity_number, out);
        write_bytes(log_record::SEVERITY_TEXT, severity.as_bytes(), out);
        nested(log_record::BODY, out, |out| write_value(Value::Text(name), out));
        attribute(log_record::ATTRIBUTES, "hopwise.id", Value::Id(record.id()), out);
        let mut key = String::from("hopwise.");
        record.visit(|field, value| match (field.kind, value) {
            (FieldKind::Flow, Value::Flow(flow)) => flow_attributes(log_record::ATTRIBUTES, flow, out),
            _ => {
                key.truncate("hopwise.".len());
                key.push_str(field.name);
                attribute(log_record::ATTRIBUTES, &key, value, out);
            }
        });
        fixed(log_record::OBSERVED_TIME, record.ts(), out);
        write_bytes(log_record::EVENT_NAME, format!("hopwise.{name}").as_bytes(), out);
    });
}

/// Returns the UCUM unit of a metric, or an empty text if it is the device's unit.
fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::FlowLatency | Metric::HopLatency => "ns",
        // The unit depends on the device: bytes, cells, packets, or a share.
        Metric::FlowPath | Metric::QueueOccupancy | Metric::QueueCongestion | Metric::LinkUtilization => "",
    }
}

/// Returns a quantile of a rollup.
type Quantile = fn(&Rollup) -> Option<u64>;

/// Writes rollups of one metric as `Metric` messages, fields of the scope's records.
fn write_metrics(rollups: &[&Rollup], out: &mut Vec<u8>) {
    let Some(first) = rollups.first() else { return };
    nested(scope_records::RECORDS, out, |out| {
        write_name(first, "", out);
        nested(metric::HISTOGRAM, out, |out| {
            for rollup in rollups {
                nested(data::POINTS, out, |out| {
                    write_times(rollup, out);
                    fixed(histogram_point::COUNT, rollup.count, out);
                    double(histogram_point::SUM, rollup.sum as f64, out);
                    write_attributes(histogram_point::ATTRIBUTES, rollup, out);
                    double(histogram_point::MIN, rollup.min as f64, out);
                    double(histogram_point::MAX, rollup.max as f64, out);
                });
            }
            tag(data::AGGREGATION_TEMPORALITY, VARINT, out);
            varint(data::DELTA, out);
        });
    });
    for (suffix, quantile) in QUANTILES {
        if rollups.iter().all(|rollup| quantile(rollup).is_none()) {
            continue;
        }
        nested(scope_records::RECORDS, out, |out| {
            write_name(first, suffix, out);
            nested(metric::GAUGE, out, |out| {
                for (rollup, value) in rollups
                    .iter()
                    .filter_map(|rollup| Some((rollup, quantile(rollup)?)))
                {
                    nested(data::POINTS, out, |out| {
                        write_times(rollup, out);
                        double(number_point::AS_DOUBLE, value as f64, out);
                        write_attributes(number_point::ATTRIBUTES, rollup, out);
                    });
                }
            });
        });
    }
}

/// Writes the name and the unit of a metric.
fn write_name(rollup: &Rollup, suffix: &str, out: &mut Vec<u8>) {
    let name = format!("hopwise.{}{suffix}", rollup.metric.name());
    write_bytes(metric::NAME, name.as_bytes(), out);
    match unit(rollup.metric) {
        "" => {}
        unit => write_bytes(metric::UNIT, unit.as_bytes(), out),
    }
}

/// Writes start and end of the interval.
fn write_times(rollup: &Rollup, out: &mut Vec<u8>) {
    let interval_ns = u64::from(rollup.interval) * 1_000_000_000;
    fixed(point::START_TIME, rollup.ts, out);
    fixed(point::TIME, rollup.ts.saturating_add(interval_ns), out);
}

/// Writes the flow, the node, the interface, the queue and the interval of a rollup as attributes.
fn write_attributes(number: u32, rollup: &Rollup, out: &mut Vec<u8>) {
    if let Some(flow) = &rollup.flow {
        flow_attributes(number, flow, out);
    }
    let numbers = [
        ("hopwise.node", rollup.node),
        ("hopwise.interface", rollup.interface),
        ("hopwise.queue", rollup.queue.map(u32::from)),
        ("hopwise.interval", Some(rollup.interval)),
    ];
    for (key, value) in numbers {
        let value = value.map_or(Value::Absent, |value| Value::Number(value.into()));
        attribute(number, key, value, out);
    }
}

impl HttpSink for Otlp {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let selected = batch
            .records
            .iter()
            .enumerate()
            .filter(|(_, record)| self.is_selected(record));
        let rows: Vec<usize> = selected.clone().map(|(row, _)| row).collect();
        if rows.is_empty() {
            return None;
        }
        let mut records = Vec::with_capacity(512 * rows.len());
        let mut rollups: Vec<&Rollup> = Vec::new();
        for (_, record) in selected {
            match record {
                Record::Rollup(part) => rollups.push(&part.rollup),
                _ => log(record, &mut records),
            }
        }
        // A stable sort keeps the points of each metric in time order.
        rollups.sort_by_key(|rollup| rollup.metric as u8);
        for same_metric in rollups.chunk_by(|rollup, next| rollup.metric == next.metric) {
            write_metrics(same_metric, &mut records);
        }
        Some(self.request_of(batch.stream, batch.collector, &records, rows))
    }

    fn outcome(&self, _: &Batch<'_>, request: &Request, response: &Response<'_>) -> Outcome {
        let outcome = Outcome::from_status(response.status, one_line(response.body), response.retry_after);
        if outcome != Outcome::DONE {
            return outcome;
        }
        let Some((refused, message)) = partial_success(response.body) else {
            let reason = format!("no answer of OTLP: {}", response_summary(response));
            return Outcome::Failed {
                reason,
                retry_after: response.retry_after,
            };
        };
        let all = request.rows.len();
        let reason = format!(
            "the server refused {refused} of a request with {all} records, and does not say which: {message}"
        );
        let refused = usize::try_from(refused).unwrap_or(all);
        let rejected = request
            .rows
            .iter()
            .take(refused)
            .map(|row| (*row, reason.clone()))
            .collect();
        Outcome::Settled {
            rejected,
            retry: Vec::new(),
            reason: String::new(),
            retry_after: response.retry_after,
        }
    }

    /// Returns a request without records.
    fn probe(&self, streams: &[Stream]) -> Request {
        let stream = streams.first().copied().unwrap_or(Stream::Events);
        let headers = vec![("content-type", "application/x-protobuf".to_owned())];
        Request {
            method: "POST",
            target: target(stream).to_owned(),
            headers,
            ..Request::default()
        }
    }

    fn probed(&self, _: &[Stream], response: &Response<'_>) -> Result<(), String> {
        match response.status {
            200..=299 => Ok(()),
            401 | 403 => Err(unauthorised(response, "")),
            404 | 405 => Err(format!(
                "the server has no OTLP over HTTP there ({}); write the address of its OTLP/HTTP receiver, often port 4318 and without /v1/logs",
                response_summary(response)
            )),
            415 => Err(format!(
                "the server does not accept Protobuf ({}); enable it there",
                response_summary(response)
            )),
            _ => Err(format!(
                "the server does not accept records: {}",
                response_summary(response)
            )),
        }
    }
}

/// Decodes an `Export…ServiceResponse`: number of refused records and the server's message, fields 1 and 2 of `partial_success`
/// (field 1). Returns `None` if it is malformed.
fn partial_success(body: &[u8]) -> Option<(u64, String)> {
    let mut refused = 0;
    let mut message = String::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (1, Wire::Bytes(mut partial)) = read_field(&mut rest)? else {
            continue;
        };
        while !partial.is_empty() {
            match read_field(&mut partial)? {
                (1, Wire::Number(count)) => refused = count,
                (2, Wire::Bytes(bytes)) => message = one_line(bytes),
                _ => {}
            }
        }
    }
    Some((refused, message))
}

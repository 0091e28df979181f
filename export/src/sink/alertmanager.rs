//! Sink for Prometheus Alertmanager (API version 2): sends the stream `alerts`.
//!
//! <https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml>
//!
//! The labels of an alert are its identity: `alertname` is the rule, others say what it is about (`src`, `dst`, `sport`,
//! `dport`, `proto`; without a flow `node`, `interface`, `queue`), and [`Options::labels`] adds more. The collector is an
//! annotation, so two collectors that observe the same problem raise one alert. Annotations also hold the deciding metric,
//! value and threshold, and for a flow the node and queue of the value, because these change while the alert fires.
//!
//! Alertmanager resolves an alert that is not repeated. A firing alert is therefore sent every minute with an end a few minutes
//! ahead ([`Options::lasts`]), as Prometheus does, and a resolved one with its real end. Alertmanager keeps alerts in memory;
//! after a restart it has them again within a minute. If hopwise dies, the alerts expire.

use std::io::Write as _;

use super::{Batch, HttpSink, Request, Response, response_summary, unauthorised};
use crate::backoff::Nanos;
use crate::json::write_text;
use crate::record::{Alert, Record, Stream};
use crate::text::rfc3339;

/// Interval between repeats of an alert that fires, ns.
const REPEAT_INTERVAL: Nanos = 60_000_000_000;
/// Labels that the sink writes.
const RESERVED_LABELS: [&str; 9] = [
    "alertname",
    "src",
    "dst",
    "sport",
    "dport",
    "proto",
    "node",
    "interface",
    "queue",
];

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Labels of every alert, such as `severity`.
    pub labels: Vec<(String, String)>,
    /// Time after which an alert that is neither repeated nor resolved expires, ns: several minutes.
    pub lasts: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            lasts: 5 * REPEAT_INTERVAL,
        }
    }
}

/// The sink for Alertmanager.
#[derive(Debug)]
pub struct Alertmanager {
    /// Additional labels as JSON, each preceded by a comma.
    labels: Vec<u8>,
    lasts: Nanos,
}

impl Alertmanager {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let mut labels = Vec::new();
        let mut names: Vec<&str> = RESERVED_LABELS.into();
        for (name, value) in &options.labels {
            let is_allowed = name
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '_');
            if name.is_empty() || name.starts_with(|char: char| char.is_ascii_digit()) || !is_allowed {
                return Err(format!(
                    "invalid label name {name:?}; use letters, digits and `_`, no digit first"
                ));
            }
            if names.contains(&name.as_str()) {
                return Err(format!("the label `{name}` exists already; choose another name"));
            }
            if value.is_empty() {
                return Err(format!(
                    "the label `{name}` has no value; write one, or leave it out"
                ));
            }
            names.push(name);
            labels.push(b',');
            write_text(name, &mut labels);
            labels.push(b':');
            write_text(value, &mut labels);
        }
        if options.lasts == 0 {
            return Err("`lasts` is 0; write a duration, such as 5m".to_owned());
        }
        Ok(Self {
            labels,
            lasts: options.lasts,
        })
    }

    fn write(&self, alert: &Alert, collector: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"labels\":{\"alertname\":");
        write_text(&alert.rule, out);
        if let Some(flow) = &alert.flow {
            _ = match flow.known_id() {
                Some(_) => write!(out, ",\"src\":\"{flow}\""),
                None => write!(out, ",\"src\":\"{}\",\"dst\":\"{}\"", flow.src(), flow.dst()),
            };
            if let Some((src, dst)) = flow.ports() {
                _ = write!(out, ",\"sport\":\"{src}\",\"dport\":\"{dst}\"");
            }
            _ = write!(out, ",\"proto\":\"{}\"", flow.proto());
        }
        write_places(alert.location(), out);
        out.extend_from_slice(&self.labels);
        out.extend_from_slice(b"},\"annotations\":{\"collector\":");
        write_text(collector, out);
        _ = write!(out, ",\"id\":\"{:016x}\"", alert.id);
        if alert.flow.is_some() {
            write_places([alert.node, alert.interface, alert.queue.map(u32::from)], out);
        }
        if let Some(metric) = alert.metric {
            _ = write!(out, ",\"metric\":\"{metric}\"");
        }
        for (name, value) in [("value", alert.value), ("threshold", alert.threshold)] {
            if let Some(value) = value {
                _ = write!(out, ",\"{name}\":\"{value}\"");
            }
        }
        out.push(b'}');
        if let Some(since) = alert.since {
            out.extend_from_slice(b",\"startsAt\":\"");
            rfc3339(since, out);
            out.push(b'"');
        }
        out.extend_from_slice(b",\"endsAt\":\"");
        rfc3339(
            if alert.is_firing {
                alert.ts.saturating_add(self.lasts)
            } else {
                alert.ts
            },
            out,
        );
        out.extend_from_slice(b"\"}");
    }
}

/// Writes node, interface and queue, as far as present.
fn write_places(places: [Option<u32>; 3], out: &mut Vec<u8>) {
    for (name, value) in ["node", "interface", "queue"].into_iter().zip(places) {
        if let Some(value) = value {
            _ = write!(out, ",\"{name}\":\"{value}\"");
        }
    }
}

impl HttpSink for Alertmanager {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let mut body = Vec::new();
        let mut rows = Vec::new();
        for (index, record) in batch.records.iter().enumerate() {
            let Record::Alert(one) = record else { continue };
            body.push(if rows.is_empty() { b'[' } else { b',' });
            self.write(one, batch.collector, &mut body);
            rows.push(index);
        }
        if rows.is_empty() {
            return None;
        }
        body.push(b']');
        let target = "/api/v2/alerts".to_owned();
        let headers = vec![("content-type", "application/json".to_owned())];
        Some(Request {
            method: "POST",
            target,
            headers,
            body,
            rows,
        })
    }

    fn repeat_interval(&self) -> Option<Nanos> {
        Some(REPEAT_INTERVAL)
    }

    fn probe(&self, _: &[Stream]) -> Request {
        Request {
            method: "GET",
            target: "/api/v2/status".to_owned(),
            ..Request::default()
        }
    }

    fn probed(&self, _: &[Stream], response: &Response<'_>) -> Result<(), String> {
        match response.status {
            200..=299 => Ok(()),
            401 | 403 => Err(unauthorised(response, "")),
            404 => Err(format!(
                "the server is not an Alertmanager ({}); correct the url",
                response_summary(response)
            )),
            _ => Err(format!(
                "the server does not accept alerts: {}",
                response_summary(response)
            )),
        }
    }
}

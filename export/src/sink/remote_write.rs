//! Sink for Prometheus remote write 1.0: rollups as samples with their own time. Prometheus (with
//! `--web.enable-remote-write-receiver`), Mimir, Thanos and VictoriaMetrics accept it.
//!
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>
//!
//! A rollup of `hop_latency` is a sample in each of `hopwise_hop_latency_min`, `_max`, `_sum`, `_count`, `_p50` and `_p99`, in
//! the unit of the metric, at the start of its interval, with the labels `collector`, `interface`, `interval`, `node` and
//! `queue`. Rollups per flow are omitted unless [`Options::flows`] is set: each flow adds six series. Since a series has one
//! sample per time, the second part of a rollup has the label `part="1"`, the third `part="2"`, and so on. Parts are numbered
//! in the order of the store, so a repeated part has the same label.
//!
//! Servers refuse samples that are older than others in their series, or too old altogether, with a 400; Prometheus then stores
//! nothing of the request, others store the rest. Such records are rejected instead of repeated forever. Without an
//! out-of-order window (Prometheus: `storage.tsdb.out_of_order_time_window`), only the newest sample of a series may be
//! repeated. A repeated request is then refused although all of it is stored: its older samples count as rejected, and the
//! newest ones are sent again. With a window of some minutes, repeats are harmless.

use super::{Batch, HttpSink, Request, Response, one_line, response_summary, unauthorised};
use crate::backoff::Nanos;
use crate::outcome::Outcome;
use crate::protobuf::{FIXED_64, VARINT, tag, varint, write_bytes};
use crate::record::{Record, RollupPart, Stream};
use collector::event::Rollup;

/// Maximum time range of a request, ns, that is judged as a whole by the server's message; longer ones are split.
const MAX_MERGE_SPAN: Nanos = 60_000_000_000;
/// The statistics of a rollup, each a metric with this suffix.
const SERIES: [(&str, Statistic); 6] = [
    ("_min", |one| Some(one.min)),
    ("_max", |one| Some(one.max)),
    ("_sum", |one| Some(one.sum)),
    ("_count", |one| Some(one.count)),
    ("_p50", |one| one.p50),
    ("_p99", |one| one.p99),
];
/// Error texts for samples older than a server accepts: Prometheus, Mimir.
const TOO_OLD: [&str; 3] = ["out of bounds", "too old sample", "sample-timestamp-too-old"];
/// Error texts for samples older than others in their series.
const OUT_OF_ORDER: [&str; 2] = ["out of order sample", "sample-out-of-order"];
/// Error texts for samples with the time of another one.
const DUPLICATE: [&str; 2] = ["duplicate sample for timestamp", "sample-duplicate-timestamp"];

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The prefix of the names of metrics, before a `_`.
    pub prefix: String,
    /// True to send rollups per flow, too, with the labels `src`, `dst`, `sport`, `dport` and `proto`.
    pub flows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "hopwise".to_owned(),
            flows: false,
        }
    }
}

/// The sink for Prometheus remote write.
#[derive(Debug)]
pub struct RemoteWrite {
    prefix: String,
    flows: bool,
}

/// Reads one statistic of a rollup.
type Statistic = fn(&Rollup) -> Option<u64>;

impl RemoteWrite {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let prefix = &options.prefix;
        let is_allowed = prefix
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "_:".contains(char));
        let has_valid_start = prefix.starts_with(|char: char| !char.is_ascii_digit());
        if !has_valid_start || prefix.len() > 200 || !is_allowed {
            return Err(format!(
                "`prefix` is {prefix:?}; use 1 to 200 letters, digits, `_` and `:` for it, no digit first"
            ));
        }
        Ok(Self {
            prefix: prefix.clone(),
            flows: options.flows,
        })
    }

    fn rollup<'a>(&self, record: &'a Record) -> Option<&'a RollupPart> {
        match record {
            Record::Rollup(part) if self.counts_parts(part.flow.is_some()) => Some(part),
            _ => None,
        }
    }

    /// Returns the rollups to send with their record indexes, sorted by series and time.
    fn rollups<'a>(&self, batch: &Batch<'a>) -> Vec<(usize, &'a RollupPart)> {
        let records = batch.records.iter().enumerate();
        let mut rollups: Vec<(usize, &RollupPart)> = records
            .filter_map(|(index, record)| Some((index, self.rollup(record)?)))
            .collect();
        rollups.sort_by_cached_key(|(_, rollup)| (series_key(rollup), rollup.ts));
        rollups
    }

    /// Writes a time series per statistic, with the samples of one key's rollups in time order.
    fn write_series(
        &self,
        rollups: &[(usize, &RollupPart)],
        collector: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) {
        let Some((_, first)) = rollups.first() else { return };
        for (suffix, value) in SERIES {
            scratch.series.clear();
            scratch.text.clear();
            for part in [&self.prefix, "_", first.metric.name(), suffix] {
                scratch.text.push_str(part);
            }
            scratch.label("__name__");
            labels(first, collector, scratch);
            let labels = scratch.series.len();
            for parts in rollups.chunk_by(|(_, a), (_, b)| a.ts == b.ts) {
                // Several only if the parts are not numbered.
                let merged = parts.iter().map(|(_, part)| part.rollup).reduce(merge_parts);
                if let Some(rollup) = merged
                    && let Some(value) = value(&rollup)
                {
                    write_sample(rollup.ts, value, &mut scratch.series);
                }
            }
            if scratch.series.len() > labels {
                write_bytes(1, &scratch.series, out);
            }
        }
    }
}

/// Merges two parts of a rollup. Quantiles cannot be merged, so the larger one is used.
fn merge_parts(first: Rollup, other: Rollup) -> Rollup {
    Rollup {
        count: first.count.saturating_add(other.count),
        min: first.min.min(other.min),
        max: first.max.max(other.max),
        sum: first.sum.saturating_add(other.sum),
        p50: first.p50.max(other.p50),
        p99: first.p99.max(other.p99),
        ..first
    }
}

/// Buffers reused for all series of a request.
#[derive(Default)]
struct Scratch {
    series: Vec<u8>,
    label: Vec<u8>,
    text: String,
}

impl Scratch {
    /// Writes a label with a number, unless it is absent.
    fn number(&mut self, name: &str, value: Option<u64>) {
        use std::fmt::Write as _;
        if let Some(value) = value {
            self.text.clear();
            _ = write!(self.text, "{value}");
            self.label(name);
        }
    }

    /// Writes a label with the value in `text`.
    fn label(&mut self, name: &str) {
        self.label.clear();
        write_bytes(1, name.as_bytes(), &mut self.label);
        write_bytes(2, self.text.as_bytes(), &mut self.label);
        write_bytes(1, &self.label, &mut self.series);
    }
}

/// Writes the labels after `__name__`, sorted by name as the specification demands. Empty labels must not be written.
fn labels(rollup: &RollupPart, collector: &str, scratch: &mut Scratch) {
    use std::fmt::Write as _;
    let flow = rollup.flow.as_ref();
    let known = flow.filter(|flow| flow.known_id().is_none());
    let ports = flow.and_then(|flow| flow.ports());
    if !collector.is_empty() {
        scratch.text.clear();
        scratch.text.push_str(collector);
        scratch.label("collector");
    }
    scratch.number("dport", ports.map(|(_, port)| port.into()));
    if let Some(flow) = known {
        scratch.text.clear();
        _ = write!(scratch.text, "{}", flow.dst());
        scratch.label("dst");
    }
    scratch.number("interface", rollup.interface.map(u64::from));
    scratch.number("interval", Some(rollup.interval.into()));
    scratch.number("node", rollup.node.map(u64::from));
    scratch.number("part", Some(rollup.nth.into()).filter(|nth| *nth > 0));
    scratch.number("proto", flow.map(|flow| flow.proto().into()));
    scratch.number("queue", rollup.queue.map(u64::from));
    scratch.number("sport", ports.map(|(port, _)| port.into()));
    if let Some(flow) = flow {
        scratch.text.clear();
        _ = match known {
            Some(flow) => write!(scratch.text, "{}", flow.src()),
            None => write!(scratch.text, "{flow}"),
        };
        scratch.label("src");
    }
}

/// Writes `message Sample { double value = 1; int64 timestamp = 2; }`, a field of the series.
fn write_sample(ts: Nanos, value: u64, out: &mut Vec<u8>) {
    tag(2, 2, out);
    // At most 9 + 11 bytes, so the length takes one byte, patched afterwards.
    let length_offset = out.len();
    out.push(0);
    tag(1, FIXED_64, out);
    out.extend((value as f64).to_le_bytes());
    tag(2, VARINT, out);
    varint(ts / 1_000_000, out);
    out[length_offset] = (out.len() - length_offset - 1) as u8;
}

/// Returns the identity of a series.
fn series_key(rollup: &RollupPart) -> impl Ord + use<> {
    let flow = rollup
        .flow
        .as_ref()
        .map(|flow| (*flow.src_octets(), *flow.dst_octets(), flow.ports(), flow.proto()));
    (
        rollup.metric as u8,
        rollup.interval,
        rollup.node,
        rollup.interface,
        rollup.queue,
        flow,
        rollup.nth,
    )
}

fn request(body: &[u8], rows: Vec<usize>) -> Request {
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ];
    // Compression fails only beyond 4 GiB; the server would then refuse the empty body.
    let body = snap::raw::Encoder::new().compress_vec(body).unwrap_or_default();
    let headers = headers.map(|(name, value)| (name, value.to_owned())).into();
    Request {
        method: "POST",
        target: "/api/v1/write".to_owned(),
        headers,
        body,
        rows,
    }
}

impl HttpSink for RemoteWrite {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let rollups = self.rollups(batch);
        if rollups.is_empty() {
            return None;
        }
        let mut rows: Vec<usize> = rollups.iter().map(|(index, _)| *index).collect();
        rows.sort_unstable();
        let mut body = Vec::with_capacity(512 * rollups.len());
        let mut scratch = Scratch::default();
        for series in rollups.chunk_by(|(_, a), (_, b)| series_key(a) == series_key(b)) {
            self.write_series(series, batch.collector, &mut scratch, &mut body);
        }
        Some(request(&body, rows))
    }

    fn counts_parts(&self, per_flow: bool) -> bool {
        self.flows || !per_flow
    }

    fn outcome(&self, batch: &Batch<'_>, request: &Request, response: &Response<'_>) -> Outcome {
        let reason = one_line(response.body);
        let is_too_old = contains_any(&reason, &TOO_OLD);
        let is_duplicate = contains_any(&reason, &DUPLICATE);
        if !matches!(response.status, 400 | 409 | 422 | 500)
            || !(is_too_old || is_duplicate || contains_any(&reason, &OUT_OF_ORDER))
        {
            return Outcome::from_status(response.status, reason, response.retry_after);
        }
        // Some versions report this with status 500, but a retry does not help.
        let refused = Outcome::Refused {
            reason: reason.clone(),
        };
        let rollups = self.rollups(batch);
        let times = rollups.iter().map(|(_, rollup)| rollup.ts);
        let span = times.clone().max().unwrap_or(0) - times.min().unwrap_or(0);
        if span > MAX_MERGE_SPAN || is_duplicate {
            return refused;
        }
        if is_too_old {
            let rejected = request.rows.iter().map(|row| (*row, reason.clone())).collect();
            return Outcome::Settled {
                rejected,
                retry: Vec::new(),
                reason: String::new(),
                retry_after: None,
            };
        }
        let mut rejected = Vec::new();
        let mut retry = Vec::new();
        for series in rollups.chunk_by(|(_, a), (_, b)| series_key(a) == series_key(b)) {
            let Some(((newest, _), older)) = series.split_last() else {
                continue;
            };
            for (row, _) in older {
                let reason = format!("{reason}: sent before, or older than another one of its series");
                rejected.push((*row, reason));
            }
            retry.push(*newest);
        }
        if rejected.is_empty() {
            return refused;
        }
        Outcome::Settled {
            rejected,
            retry,
            reason: "another sample of its series comes first".to_owned(),
            retry_after: None,
        }
    }

    /// Returns a request without series.
    fn probe(&self, _: &[Stream]) -> Request {
        request(&[], Vec::new())
    }

    fn probed(&self, _: &[Stream], response: &Response<'_>) -> Result<(), String> {
        match response.status {
            200..=299 => Ok(()),
            401 | 403 => Err(unauthorised(response, "")),
            404 => Err(format!(
                "the server does not accept remote write ({}); start Prometheus with --web.enable-remote-write-receiver, or correct the url",
                response_summary(response)
            )),
            _ => Err(format!(
                "the server does not accept samples: {}",
                response_summary(response)
            )),
        }
    }
}

fn contains_any(reason: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| reason.contains(part))
}

//! Sink for InfluxDB: line protocol over the API of version 1 (`/write`) or 2 (`/api/v2/write`). VictoriaMetrics accepts both.
//!
//! * <https://docs.influxdata.com/influxdb/v1/tools/api/#write-http-endpoint>
//! * <https://docs.influxdata.com/influxdb/v2/api/v2/#operation/PostWrite>
//! * <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>
//!
//! A record is a point of its stream's measurement (`hopwise_events`). Tags are the location in the network and the kind of the
//! record; everything else is a field. A field's type never changes, because the first writer fixes it: numbers are integers,
//! the rest is strings. The 5-tuple is fields (`src`, `dst`, `sport`, `dport`, `proto`), because each new combination of tags
//! costs the server memory (cardinality); [`Options::tags`] turns them into tags where flows are few.
//!
//! A point replaces another one with the same tags and time. That makes repeats harmless, but events of many flows have equal
//! tags and, in one burst, equal times. The times of `events`, `flows` and `drops` are therefore shifted within their
//! millisecond ([`Options::spread`]) by the record's ID, and the field `ts` has the exact time. The parts of a rollup are also
//! shifted in this way, because queries sum them as separate points. Rollups per flow are sent only if the whole 5-tuple is
//! tags.

use std::io::Write as _;

use super::{Batch, HttpSink, Request, Response, escape, one_line, response_summary, unauthorised};
use crate::outcome::Outcome;
use crate::record::{Field, FieldKind, Record, SCHEMA, Stream, Value};
use crate::text::{address, address_of, decimal, hex};

/// Fields that are always tags: they distinguish points of the same time and have few values.
const TAG_FIELDS: [&str; 9] = [
    "collector",
    "hw_id",
    "interface",
    "interval",
    "kind",
    "metric",
    "node",
    "queue",
    "source",
];
/// The parts of a 5-tuple.
const FLOW_FIELDS: [&str; 5] = ["src", "dst", "sport", "dport", "proto"];

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The API, and the database.
    pub api: Api,
    /// The prefix of the names of measurements.
    pub prefix: String,
    /// Additional fields to write as tags: any of [`TAG_CHOICES`].
    pub tags: Vec<String>,
    /// Interval within which times are shifted by the record's ID, ns; 0 disables shifting.
    pub spread: u64,
}

impl Default for Options {
    fn default() -> Self {
        let api = Api::V1 {
            database: "hopwise".to_owned(),
            retention_policy: None,
        };
        Self {
            api,
            prefix: "hopwise_".to_owned(),
            tags: Vec::new(),
            spread: 1_000_000,
        }
    }
}

/// The API, and the database or bucket of the points.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Api {
    /// `/write`: InfluxDB 1 and compatible servers.
    V1 {
        /// The parameter `db`, which is required.
        database: String,
        /// The parameter `rp`; without one, the default of the database applies.
        retention_policy: Option<String>,
    },
    /// `/api/v2/write`: InfluxDB 2 and 3.
    V2 {
        /// The parameter `org`, which is required.
        org: String,
        /// The parameter `bucket`, which is required.
        bucket: String,
    },
}

/// Fields that [`Options::tags`] may name.
pub const TAG_CHOICES: [&str; 11] = [
    "basis",
    "dport",
    "dst",
    "egress_if",
    "ingress_if",
    "latency_basis",
    "proto",
    "reason",
    "rule",
    "sport",
    "src",
];

/// The sink for InfluxDB.
#[derive(Debug)]
pub struct InfluxDb {
    prefix: String,
    target: String,
    tags: Vec<&'static str>,
    spread: u64,
}

impl InfluxDb {
    /// Returns a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let mut target = String::new();
        match &options.api {
            Api::V1 {
                database,
                retention_policy,
            } => {
                require("database", database)?;
                target.push_str("/write?db=");
                target.push_str(&escape(database));
                if let Some(policy) = retention_policy {
                    require("retention_policy", policy)?;
                    target.push_str("&rp=");
                    target.push_str(&escape(policy));
                }
            }
            Api::V2 { org, bucket } => {
                require("organisation", org)?;
                require("bucket", bucket)?;
                target.push_str("/api/v2/write?org=");
                target.push_str(&escape(org));
                target.push_str("&bucket=");
                target.push_str(&escape(bucket));
            }
        }
        target.push_str("&precision=ns");
        if !options
            .prefix
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "_.-".contains(char))
        {
            return Err(format!(
                "`prefix` is {:?}; use only letters, digits, `_`, `.` and `-` in it",
                options.prefix
            ));
        }
        let mut tags = Vec::new();
        for tag in &options.tags {
            let Some(known) = TAG_CHOICES.into_iter().find(|known| known == tag) else {
                return Err(format!(
                    "`{tag}` cannot be a tag; choose from {}",
                    TAG_CHOICES.join(", ")
                ));
            };
            tags.push(known);
        }
        tags.sort_unstable();
        tags.dedup();
        Ok(Self {
            prefix: options.prefix.clone(),
            target,
            tags,
            spread: options.spread,
        })
    }

    fn is_tag(&self, name: &str) -> bool {
        TAG_FIELDS.contains(&name) || self.tags.contains(&name)
    }

    /// Returns false for rollups per flow unless the 5-tuple is tags: otherwise they would replace each other.
    fn accepts(&self, record: &Record) -> bool {
        !matches!(record, Record::Rollup(part) if part.flow.is_some())
            || FLOW_FIELDS.iter().all(|part| self.is_tag(part))
    }

    fn time(&self, record: &Record) -> u64 {
        let is_spread = match record {
            Record::Event(_) | Record::Flow(_) | Record::Drop(_) | Record::Alert(_) | Record::Hop(_) => true,
            Record::Rollup(rollup) => rollup.part != 0,
            Record::Loss(_) => false,
        };
        match self.spread {
            // The collector is a tag, so the ID need not include it.
            1.. if is_spread => record.ts() - record.ts() % self.spread + record.row_id("") % self.spread,
            _ => record.ts(),
        }
    }

    /// Writes the line of a record.
    fn write(&self, record: &Record, collector: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(record.stream().name().as_bytes());
        write_tag("collector", Value::Text(collector), out);
        visit_parts(record, |field, value| {
            if self.is_tag(field.name) {
                write_tag(field.name, value, out);
            }
        });
        out.extend_from_slice(b" id=\"");
        hex(record.id(), out);
        _ = write!(out, "\",schema={SCHEMA}i");
        if self.time(record) != record.ts() {
            write_field("ts", Value::Number(record.ts()), out);
        }
        visit_parts(record, |field, value| {
            if !self.is_tag(field.name) {
                write_field(field.name, value, out);
            }
        });
        _ = writeln!(out, " {}", self.time(record));
    }
}

/// Checks that an option has a value.
fn require(name: &str, value: &str) -> Result<(), String> {
    if value.trim().is_empty() {
        return Err(format!(
            "`{name}` is empty; name the {name} that the points are written to"
        ));
    }
    Ok(())
}

/// Calls `each` for the present fields, with the 5-tuple split into its parts.
fn visit_parts(record: &Record, mut each: impl FnMut(&Field, Value<'_>)) {
    record.visit(|field, value| match value {
        Value::Absent | Value::Numbers([]) => {}
        Value::Flow(flow) => {
            // A text field, like the address.
            let mut text = *b"flow-id:0x00000000";
            if let Some(id) = flow.known_id() {
                for (index, digit) in text[10..].iter_mut().enumerate() {
                    *digit = b"0123456789abcdef"[(id >> (28 - 4 * index) & 15) as usize];
                }
                let text = std::str::from_utf8(&text).unwrap_or_default();
                each(&part("src", FieldKind::Text), Value::Text(text));
            } else {
                each(
                    &part("src", FieldKind::Address),
                    Value::Address(flow.src_octets()),
                );
                each(
                    &part("dst", FieldKind::Address),
                    Value::Address(flow.dst_octets()),
                );
            }
            if let Some((src, dst)) = flow.ports() {
                each(&part("sport", FieldKind::Number), Value::Number(src.into()));
                each(&part("dport", FieldKind::Number), Value::Number(dst.into()));
            }
            let proto = Value::Number(flow.proto().into());
            each(&part("proto", FieldKind::Number), proto);
        }
        _ => each(field, value),
    });
}

/// Returns a field for a part of a 5-tuple.
fn part(name: &'static str, kind: FieldKind) -> Field {
    Field {
        name,
        json: "",
        kind,
        number: 0,
        about: "",
    }
}

/// Writes a comma, a name and an equals sign.
fn start(name: &str, out: &mut Vec<u8>) {
    out.push(b',');
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
}

/// Writes a tag. Empty tags are invalid, and line breaks and trailing backslashes cannot be escaped, so they are replaced.
fn write_tag(name: &str, value: Value<'_>, out: &mut Vec<u8>) {
    if value == Value::Text("") {
        return;
    }
    start(name, out);
    match value {
        Value::Number(number) => decimal(number, out),
        Value::Id(id) => hex(id, out),
        Value::Address(octets) => address(address_of(octets), out),
        Value::Text(text) => {
            for byte in text.bytes() {
                match byte {
                    b',' | b'=' | b' ' => out.extend([b'\\', byte]),
                    b'\\' => out.push(b'/'),
                    0..0x20 | 0x7f => out.push(b'_'),
                    byte => out.push(byte),
                }
            }
        }
        Value::Absent | Value::Numbers(_) | Value::Flow(_) => {}
    }
}

/// Writes a field after others.
fn write_field(name: &str, value: Value<'_>, out: &mut Vec<u8>) {
    start(name, out);
    match value {
        Value::Id(id) => {
            out.push(b'"');
            hex(id, out);
            out.push(b'"');
        }
        // Integers are signed 64-bit.
        Value::Number(number) => {
            decimal(number.min(i64::MAX as u64), out);
            out.push(b'i');
        }
        Value::Address(octets) => {
            out.push(b'"');
            address(address_of(octets), out);
            out.push(b'"');
        }
        Value::Text(text) => {
            out.push(b'"');
            for byte in text.bytes() {
                match byte {
                    b'"' | b'\\' => out.extend([b'\\', byte]),
                    0..0x20 | 0x7f => out.push(b' '),
                    byte => out.push(byte),
                }
            }
            out.push(b'"');
        }
        Value::Numbers(numbers) => {
            for (index, number) in numbers.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"\"" } else { b"," });
                match number {
                    &u32::MAX => out.push(b'-'),
                    number => decimal(u64::from(*number), out),
                }
            }
            out.push(b'"');
        }
        Value::Absent | Value::Flow(_) => {}
    }
}

impl HttpSink for InfluxDb {
    fn request(&self, batch: &Batch<'_>) -> Option<Request> {
        let mut request = self.probe(&[batch.stream]);
        for (index, record) in batch
            .records
            .iter()
            .enumerate()
            .filter(|(_, record)| self.accepts(record))
        {
            self.write(record, batch.collector, &mut request.body);
            request.rows.push(index);
        }
        (!request.rows.is_empty()).then_some(request)
    }

    fn outcome(&self, _: &Batch<'_>, request: &Request, response: &Response<'_>) -> Outcome {
        let reason = one_line(response.body);
        if matches!(response.status, 400 | 422) && reason.contains("partial write") {
            return Outcome::Settled {
                rejected: rejected_rows(request, response.body, &reason),
                retry: Vec::new(),
                reason: String::new(),
                retry_after: None,
            };
        }
        // The records are valid; the policy may be created later.
        let is_missing = reason.contains("retention policy not found");
        Outcome::from_status(
            if is_missing { 404 } else { response.status },
            reason,
            response.retry_after,
        )
    }

    /// Returns an empty write, which needs the same privilege and database.
    fn probe(&self, _: &[Stream]) -> Request {
        let headers = vec![("content-type", "text/plain; charset=utf-8".to_owned())];
        Request {
            method: "POST",
            target: self.target.clone(),
            headers,
            ..Request::default()
        }
    }

    fn probed(&self, _: &[Stream], response: &Response<'_>) -> Result<(), String> {
        let reason = one_line(response.body);
        match response.status {
            200..=299 => Ok(()),
            // InfluxDB 2 answers this if everything else is right.
            400 if reason.contains("requires points") => Ok(()),
            401 | 403 => Err(unauthorised(response, ", and let them write there")),
            404 if reason.contains("not found") && !reason.contains("page not found") => Err(format!(
                "{reason}; create it (`CREATE DATABASE …`, `influx bucket create …`), or correct `database`, `organisation` or `bucket`"
            )),
            404 => Err(format!(
                "the server has no such API ({}); correct `url`, or write `organisation` and `bucket` for InfluxDB 2 and later, neither for InfluxDB 1",
                response_summary(response)
            )),
            _ => Err(format!(
                "the server does not accept points: {}",
                response_summary(response)
            )),
        }
    }
}

/// Returns the records that the server dropped in a partial write. The response names lines (InfluxDB 3), quotes them, or only
/// counts them; then records that match the reason are chosen, and the message says so.
fn rejected_rows(request: &Request, body: &[u8], reason: &str) -> Vec<(usize, String)> {
    let lines: Vec<&[u8]> = request.body.split_inclusive(|byte| *byte == b'\n').collect();
    let rows = request.rows.len().min(lines.len());
    let named = named_lines(body);
    if !named.is_empty() && named.iter().all(|(line, _)| (1..=rows).contains(line)) {
        return named
            .into_iter()
            .map(|(line, reason)| (request.rows[line - 1], reason))
            .collect();
    }
    let quoted: Vec<usize> = (0..rows).filter(|row| is_quoted(lines[*row], body)).collect();
    if !quoted.is_empty() {
        return quoted
            .into_iter()
            .map(|row| (request.rows[row], reason.to_owned()))
            .collect();
    }
    let count = count_after(reason, "dropped=")
        .unwrap_or(1)
        .clamp(1, rows.max(1))
        .min(rows);
    let mut rows_to_reject: Vec<usize> = (0..rows).collect();
    if reason.contains("retention policy") {
        rows_to_reject.sort_by_key(|row| time_of(lines[*row]));
    } else if let Some(field) = reason.split("input field ").nth(1).and_then(quoted_name) {
        let field = format!(",{field}=");
        rows_to_reject.sort_by_key(|row| !find(lines[*row], field.as_bytes()));
    }
    let reason = if count == rows {
        reason.to_owned()
    } else {
        format!("{reason} (the server names no line: one of {count} of {rows} that the words fit)")
    };
    rows_to_reject
        .into_iter()
        .take(count)
        .map(|row| (request.rows[row], reason.clone()))
        .collect()
}

/// Returns true if an error message quotes this line.
fn is_quoted(line: &[u8], body: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let quote = [b"unable to parse '", line, b"'"].concat();
    find(body, &quote) || find(body, &escaped(&quote))
}

/// Returns line numbers (from 1) with their reasons, from `"data": [{"line_number": 2, "error_message": …}]`.
fn named_lines(body: &[u8]) -> Vec<(usize, String)> {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(body) else {
        return Vec::new();
    };
    let Some(lines) = answer.get("data").and_then(serde_json::Value::as_array) else {
        return Vec::new();
    };
    let mut lines: Vec<(usize, String)> = lines.iter().filter_map(named_line).collect();
    lines.sort();
    lines.dedup_by_key(|(number, _)| *number);
    lines
}

fn named_line(line: &serde_json::Value) -> Option<(usize, String)> {
    let number = usize::try_from(line.get("line_number")?.as_u64()?).ok()?;
    let reason = one_line(line.get("error_message")?.as_str()?.as_bytes());
    Some((number, reason))
}

/// Returns the name between quotes, which may be backslash-escaped.
fn quoted_name(text: &str) -> Option<&str> {
    text.split(['"', '\\']).find(|part| !part.is_empty())
}

fn count_after(reason: &str, name: &str) -> Option<usize> {
    let digits = reason.split_once(name)?.1;
    let end = digits
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Returns the timestamp of a line, its last part.
fn time_of(line: &[u8]) -> u64 {
    let digits = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn find(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// Escapes quotes and backslashes as in a JSON string.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

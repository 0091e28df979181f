//! Sink for syslog: RFC 5424 messages with structured data, framed by octet counting (RFC 6587, section 3.4.1; RFC 5425 over
//! TLS).
//!
//! `185 <132>1 2026-11-26T01:00:00.000000Z leaf1 hopwise - rule_on [hopwise@32473 id="…" rule="…"] rule_on …`: the facility is
//! configurable; the severity is *warning* for faults, *notice* for resolved ones, and *informational* otherwise; the message
//! ID is the kind of event or the stream. Syslog has no responses, so what the connection accepted counts as delivered.

use std::io::Write as _;

use super::Batch;
use crate::record::{Record, SCHEMA, Value};
use crate::text::{self, address, address_of, decimal, hex, rfc3339};
use collector::event::Kind;

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Facility, 0 to 23; `local0` is 16.
    pub facility: u8,
    /// The name of this host.
    pub hostname: String,
    /// The name of the program.
    pub app_name: String,
    /// SD-ID of the structured data: a name, `@`, and the IANA enterprise number.
    pub sd_id: String,
}

impl Default for Options {
    fn default() -> Self {
        // 32473 is the number for examples (RFC 5612).
        let [hostname, app_name, sd_id] = ["-", "hopwise", "hopwise@32473"].map(str::to_owned);
        Self {
            facility: 16,
            hostname,
            app_name,
            sd_id,
        }
    }
}

/// The sink for syslog.
#[derive(Debug)]
pub struct Syslog {
    facility: u8,
    head: String,
    sd_id: String,
}

/// Checks that an option has 1 to `max_len` printable characters.
fn require_printable(name: &str, value: &str, max_len: usize) -> Result<(), String> {
    if (1..=max_len).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!(
        "`{name}` is {value:?}; use 1 to {max_len} printable ASCII characters without spaces"
    ))
}

fn is_enterprise_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

impl Syslog {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        if options.facility > 23 {
            return Err(format!(
                "`facility` is {}; use 0 to 23 (16 to 23 are local0 to local7)",
                options.facility
            ));
        }
        require_printable("hostname", &options.hostname, 255)?;
        require_printable("app_name", &options.app_name, 48)?;
        require_printable("sd_id", &options.sd_id, 32)?;
        let is_id = options
            .sd_id
            .split_once('@')
            .is_some_and(|(name, number)| !name.is_empty() && is_enterprise_number(number));
        if !is_id || options.sd_id.contains(['=', ']', '"']) {
            return Err(format!(
                "`sd_id` is {:?}; write a name, `@` and the number of your enterprise, such as hopwise@32473",
                options.sd_id
            ));
        }
        let head = format!(" {} {} - ", options.hostname, options.app_name);
        Ok(Self {
            facility: options.facility,
            head,
            sd_id: options.sd_id.clone(),
        })
    }

    /// Appends the messages of a batch, each prefixed by its length.
    pub fn write(&self, batch: &Batch<'_>, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        let mut time = Vec::new();
        for record in batch.records {
            message.clear();
            self.write_message(record, batch.collector, &mut message, &mut time);
            _ = write!(out, "{} ", message.len());
            out.extend_from_slice(&message);
        }
    }

    fn write_message(&self, record: &Record, collector: &str, out: &mut Vec<u8>, time: &mut Vec<u8>) {
        let (severity, id) = severity(record);
        time.clear();
        rfc3339(record.ts(), time);
        // RFC 5424 allows at most six fractional digits.
        let time = time.get(..26).unwrap_or_default();
        _ = write!(out, "<{}>1 ", u32::from(self.facility) * 8 + severity);
        out.extend_from_slice(time);
        _ = write!(out, "Z{}{id} [{} id=\"", self.head, self.sd_id);
        hex(record.id(), out);
        _ = write!(out, "\" ts=\"{}\"", record.ts());
        write_param("collector", Value::Text(collector), out);
        write_param("schema", Value::Number(SCHEMA), out);
        record.visit(|field, value| write_param(field.name, value, out));
        _ = write!(out, "] {id}");
        let rule = match record {
            Record::Event(one) => one.rule.as_deref(),
            Record::Alert(one) => Some(&*one.rule),
            _ => None,
        };
        if let Some(rule) = rule {
            out.push(b' ');
            out.extend(
                rule.bytes()
                    .map(|byte| if byte < 0x20 || byte == 0x7f { b' ' } else { byte }),
            );
        }
        if let Some(flow) = record.flow() {
            out.push(b' ');
            text::flow(flow, out);
        }
        if let Some(node) = record.node() {
            _ = write!(out, " node {node}");
        }
    }
}

/// Returns the severity (RFC 5424, table 2) and the message ID of a record.
fn severity(record: &Record) -> (u32, &'static str) {
    const WARNING: u32 = 4;
    const NOTICE: u32 = 5;
    const INFORMATIONAL: u32 = 6;
    let severity = match record {
        Record::Event(one) if one.event.kind == Kind::RuleOff => NOTICE,
        Record::Alert(one) if !one.is_firing => NOTICE,
        _ if record.is_wrong() => WARNING,
        _ => INFORMATIONAL,
    };
    (severity, record.what())
}

/// Writes a structured data parameter (RFC 5424, section 6.3.3), with `"`, `\` and `]` escaped.
fn write_param(name: &str, value: Value<'_>, out: &mut Vec<u8>) {
    if matches!(value, Value::Absent | Value::Numbers([])) {
        return;
    }
    _ = write!(out, " {name}=\"");
    match value {
        Value::Absent => {}
        Value::Number(number) => decimal(number, out),
        Value::Id(id) => hex(id, out),
        Value::Address(octets) => address(address_of(octets), out),
        // Escaped, because an IPv6 address in it has brackets.
        Value::Flow(flow) => _ = write!(Escaped(out), "{flow}"),
        Value::Text(text) => _ = Escaped(out).write_all(text.as_bytes()),
        Value::Numbers(numbers) => {
            for (index, number) in numbers.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match number {
                    &u32::MAX => out.push(b'-'),
                    number => decimal(u64::from(*number), out),
                }
            }
        }
    }
    out.push(b'"');
}

/// Writer that escapes a parameter value.
struct Escaped<'a>(&'a mut Vec<u8>);

impl std::io::Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            match byte {
                b'"' | b'\\' | b']' => self.0.extend([b'\\', *byte]),
                // Receivers may take a line break for the end of the message.
                0..0x20 | 0x7f => self.0.push(b' '),
                byte => self.0.push(*byte),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

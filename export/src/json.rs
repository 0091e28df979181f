//! Records as JSON objects, with the names of `--json`. Fields without a value are left out.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use wire::FlowKey;

use crate::record::{Field, FieldKind, Record, Value};

/// Appends a record, without a line end.
pub fn write(record: &Record, collector: &str, out: &mut String) {
    let mut separator = '{';
    record.visit_all(collector, |field, value| {
        if matches!(value, Value::Absent | Value::Numbers([])) {
            return;
        }
        out.push(separator);
        separator = ',';
        write_text(field.name, out);
        out.push(':');
        write_value(field, value, out);
    });
    out.push('}');
}

// Writing into a text does not fail.
fn write_value(field: &Field, value: Value<'_>, out: &mut String) {
    match value {
        Value::Absent => out.push_str("null"),
        Value::Number(id) if field.kind == FieldKind::Id => _ = write!(out, "\"{id:016x}\""),
        Value::Number(number) => _ = write!(out, "{number}"),
        Value::Text(text) => write_text(text, out),
        Value::Address(address) => {
            let address = Ipv6Addr::from(*address);
            let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
            _ = write!(out, "\"{address}\"");
        }
        Value::Numbers(numbers) => {
            for (index, number) in numbers.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                match number {
                    &u32::MAX => out.push_str("null"),
                    number => _ = write!(out, "{number}"),
                }
            }
            out.push(']');
        }
        Value::Flow(flow) => write_flow(flow, out),
    }
}

fn write_flow(flow: &FlowKey, out: &mut String) {
    if flow.known_id().is_some() {
        _ = write!(out, "{{\"src\":\"{flow}\",\"dst\":\"\",\"proto\":{}}}", flow.proto());
        return;
    }
    _ = write!(out, "{{\"src\":\"{}\",\"dst\":\"{}\"", flow.src(), flow.dst());
    if let Some((src, dst)) = flow.ports() {
        _ = write!(out, ",\"sport\":{src},\"dport\":{dst}");
    }
    _ = write!(out, ",\"proto\":{}}}", flow.proto());
}

/// A text in quotes.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\n' => out.push_str("\\n"),
            char if (char as u32) < 0x20 => _ = write!(out, "\\u{:04x}", char as u32),
            char => out.push(char),
        }
    }
    out.push('"');
}

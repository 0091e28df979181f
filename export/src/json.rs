//! Encodes records as JSON objects, with the field names of `--json`. Fields without a value are omitted.

use wire::FlowKey;

use crate::record::{Fields, Record, Value};
use crate::text::{self, address, address_of, decimal, digit, hex};

/// Appends a record without a line break.
pub fn write(record: &Record, collector: &str, out: &mut Vec<u8>) {
    write_fields(&(record, collector), out);
}

/// Appends the fields of a record as a JSON object.
pub fn write_fields(record: &impl Fields, out: &mut Vec<u8>) {
    let start = out.len();
    record.visit_fields(|field, value| {
        if matches!(value, Value::Absent | Value::Numbers([])) {
            return;
        }
        out.extend_from_slice(field.json.as_bytes());
        write_value(value, out);
    });
    // `field.json` begins with a comma; the first one becomes the opening brace. Every record has a field.
    if let Some(first) = out.get_mut(start) {
        *first = b'{';
    }
    out.push(b'}');
}

fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Absent => out.extend_from_slice(b"null"),
        Value::Id(id) => {
            out.push(b'"');
            hex(id, out);
            out.push(b'"');
        }
        Value::Number(number) => decimal(number, out),
        Value::Text(text) => write_text(text, out),
        Value::Address(octets) => {
            out.push(b'"');
            address(address_of(octets), out);
            out.push(b'"');
        }
        Value::Numbers(numbers) => {
            let mut separator = b'[';
            for number in numbers {
                out.push(separator);
                separator = b',';
                match *number {
                    u32::MAX => out.extend_from_slice(b"null"),
                    number => decimal(number.into(), out),
                }
            }
            out.push(b']');
        }
        Value::Flow(flow) => write_flow(flow, out),
    }
}

fn write_flow(flow: &FlowKey, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"src\":\"");
    if flow.known_id().is_some() {
        text::flow(flow, out);
        out.extend_from_slice(b"\",\"dst\":\"");
    } else {
        address(flow.src(), out);
        out.extend_from_slice(b"\",\"dst\":\"");
        address(flow.dst(), out);
    }
    out.push(b'"');
    if let Some((src, dst)) = flow.ports() {
        out.extend_from_slice(b",\"sport\":");
        decimal(src.into(), out);
        out.extend_from_slice(b",\"dport\":");
        decimal(dst.into(), out);
    }
    out.extend_from_slice(b",\"proto\":");
    decimal(flow.proto().into(), out);
    out.push(b'}');
}

/// Appends a quoted and escaped JSON string.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest
        .iter()
        .position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'))
    {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            byte @ (b'"' | b'\\') => out.extend([b'\\', byte]),
            byte => {
                out.extend_from_slice(b"\\u00");
                out.extend([digit(byte >> 4), digit(byte & 0xf)]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

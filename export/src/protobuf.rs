//! Protobuf encoding of records (`proto/hopwise/v1/record.proto`) and a minimal decoder. One message is one record, without a
//! length prefix.

use wire::FlowKey;

use crate::record::{COMMON, Field, FieldKind, Record, Stream, Value};

// Wire types of protobuf (encoding guide, "Message Structure").
pub(crate) const VARINT: u32 = 0;
pub(crate) const FIXED_64: u32 = 1;
pub(crate) const BYTES: u32 = 2;
pub(crate) const FIXED_32: u32 = 5;

/// Appends a record as one message.
pub fn write(record: &Record, collector: &str, out: &mut Vec<u8>) {
    record.visit_all(collector, |field, value| write_field(field, value, out));
}

fn write_field(field: &Field, value: Value<'_>, out: &mut Vec<u8>) {
    let number = field.number;
    match value {
        Value::Absent | Value::Numbers([]) => {}
        Value::Id(value) => write_fixed(number, value, out),
        Value::Number(value) if field.kind == FieldKind::Time => write_fixed(number, value, out),
        Value::Number(value) => write_number(number, value, out),
        Value::Text(text) => write_bytes(number, text.as_bytes(), out),
        Value::Address(address) => write_bytes(number, octets(address), out),
        Value::Numbers(numbers) => {
            tag(number, BYTES, out);
            varint(
                numbers.iter().map(|number| varint_len(u64::from(*number))).sum(),
                out,
            );
            numbers.iter().for_each(|number| varint(u64::from(*number), out));
        }
        Value::Flow(flow) => {
            tag(number, BYTES, out);
            // A flow takes at most 56 bytes, so its length fits one byte, which is patched afterwards.
            let len_offset = out.len();
            out.push(0);
            write_flow(flow, out);
            out[len_offset] = (out.len() - len_offset - 1) as u8;
        }
    }
}

/// Field numbers of `message Flow`.
mod flow_field {
    pub(super) const SRC: u32 = 1;
    pub(super) const DST: u32 = 2;
    pub(super) const SPORT: u32 = 3;
    pub(super) const DPORT: u32 = 4;
    pub(super) const PROTO: u32 = 5;
    pub(super) const FLOW_ID: u32 = 6;
}

/// Writes the fields of `message Flow`.
fn write_flow(flow: &FlowKey, out: &mut Vec<u8>) {
    if let Some(id) = flow.known_id() {
        tag(flow_field::FLOW_ID, FIXED_32, out);
        out.extend(id.to_le_bytes());
        return write_number(flow_field::PROTO, flow.proto().into(), out);
    }
    // IPv4 addresses are mapped into IPv6; the last four octets are the address.
    let skipped = if flow.is_v6() { 0 } else { 12 };
    write_bytes(flow_field::SRC, &flow.src_octets()[skipped..], out);
    write_bytes(flow_field::DST, &flow.dst_octets()[skipped..], out);
    if let Some((src, dst)) = flow.ports() {
        write_number(flow_field::SPORT, src.into(), out);
        write_number(flow_field::DPORT, dst.into(), out);
    }
    write_number(flow_field::PROTO, flow.proto().into(), out);
}

/// Returns the 4 bytes of an IPv4-mapped address, or all 16 of an IPv6 address.
fn octets(address: &[u8; 16]) -> &[u8] {
    match address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => &address[12..],
        _ => address,
    }
}

fn write_fixed(number: u32, value: u64, out: &mut Vec<u8>) {
    tag(number, FIXED_64, out);
    out.extend(value.to_le_bytes());
}

fn write_number(number: u32, value: u64, out: &mut Vec<u8>) {
    tag(number, VARINT, out);
    varint(value, out);
}

pub(crate) fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    tag(number, BYTES, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(crate) fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    let tag = number << 3 | wire_type;
    match tag {
        0..0x80 => out.push(tag as u8),
        _ => varint(tag.into(), out),
    }
}

pub(crate) fn varint(mut value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let mut bytes = [0; 10];
    let mut len = 0;
    while value > 0x7f {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

fn varint_len(value: u64) -> u64 {
    u64::from(64 - (value | 1).leading_zeros()).div_ceil(7)
}

/// A field value by its wire type.
pub(crate) enum Wire<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Reads the next field: its number and value. Returns `None` if it is malformed.
pub(crate) fn read_field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Wire<'a>)> {
    let tag = u32::try_from(read_varint(bytes)?).ok()?;
    let value = match tag & 7 {
        VARINT => Wire::Number(read_varint(bytes)?),
        FIXED_64 => Wire::Fixed64(u64::from_le_bytes(take(bytes)?)),
        FIXED_32 => Wire::Fixed32(u32::from_le_bytes(take(bytes)?)),
        BYTES => {
            let len = usize::try_from(read_varint(bytes)?).ok()?;
            Wire::Bytes(bytes.split_off(..len)?)
        }
        // Groups (wire types 3 and 4) are obsolete and never sent.
        _ => return None,
    };
    let number = tag >> 3;
    (number > 0).then_some((number, value))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Reads a varint of at most 64 bits. Returns `None` if it is longer or truncated.
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(bytes)?;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Returns the text of `record.proto`.
pub fn schema() -> String {
    let mut text = String::from(
        "// Records that hopwise sends to other systems. Made from export/src/record.rs; fields are only added.\n\n\
         syntax = \"proto3\";\n\npackage hopwise.v1;\n\n// A 5-tuple.\nmessage Flow {\n  \
         // Source and destination: 4 or 16 bytes. Absent if only `flow_id` is known.\n  bytes src = 1;\n  bytes dst = 2;\n  \
         // Absent where the packets have no ports.\n  optional uint32 sport = 3;\n  optional uint32 dport = 4;\n  \
         // IP protocol number.\n  uint32 proto = 5;\n  // What the switch sent in place of the 5-tuple.\n  optional fixed32 flow_id = 6;\n}\n",
    );
    for stream in Stream::ALL {
        text.push_str(&format!(
            "\n// Of the stream `{}`.\nmessage {} {{\n",
            stream.name(),
            stream.message()
        ));
        for field in COMMON.iter().chain(stream.fields()) {
            let kind = match field.kind {
                FieldKind::Number => "optional uint64",
                FieldKind::Time | FieldKind::Id => "fixed64",
                FieldKind::Text => "string",
                FieldKind::Numbers => "repeated uint32",
                FieldKind::Flow => "optional Flow",
                FieldKind::Address => "bytes",
            };
            text.push_str(&format!(
                "  // {}\n  {kind} {} = {};\n",
                field.about, field.name, field.number
            ));
        }
        text.push_str("}\n");
    }
    text
}

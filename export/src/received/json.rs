//! JSON decoder for received records, with the field names of `record.proto`. Unknown fields are skipped.

use std::net::IpAddr;

use serde_json::{Map, Value};
use wire::FlowKey;

use super::{FieldKind, OwnedValue, Parts, Unreadable, numbers_value, parse_address, text_value, wrong_type};
use crate::record::Field;

pub(super) fn read(bytes: &[u8], parts: &mut Parts) -> Result<(), Unreadable> {
    let object: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| Unreadable(format!("not a JSON object: {error}")))?;
    for (name, value) in &object {
        let Some((field, slot)) = parts.find(|field| field.name == name) else {
            continue;
        };
        *slot = read_value(field, value)?;
    }
    Ok(())
}

fn read_value(field: &Field, value: &Value) -> Result<OwnedValue, Unreadable> {
    let owned = match (field.kind, value) {
        (_, Value::Null) => Some(OwnedValue::Absent),
        (FieldKind::Number | FieldKind::Time, Value::Number(number)) => {
            number.as_u64().map(OwnedValue::Number)
        }
        (FieldKind::Id, Value::String(text)) => id(text).map(OwnedValue::Id),
        (FieldKind::Text, Value::String(text)) => Some(text_value(field, text)?),
        (FieldKind::Numbers, Value::Array(list)) => {
            let numbers: Option<Vec<u32>> = list.iter().map(number).collect();
            numbers.map(|numbers| numbers_value(field, numbers)).transpose()?
        }
        (FieldKind::Flow, Value::Object(flow)) => read_flow(flow).map(OwnedValue::Flow),
        (FieldKind::Address, Value::String(text)) => address(text).map(OwnedValue::Address),
        _ => None,
    };
    owned.ok_or_else(|| wrong_type(field))
}

/// Parses 16 hexadecimal digits.
fn id(text: &str) -> Option<u64> {
    if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

/// Parses a list element; null means unavailable (`u32::MAX`).
fn number(value: &Value) -> Option<u32> {
    match value {
        Value::Null => Some(u32::MAX),
        value => u32::try_from(value.as_u64()?).ok(),
    }
}

fn address(text: &str) -> Option<[u8; 16]> {
    match text.parse().ok()? {
        IpAddr::V4(address) => parse_address(&address.octets()),
        IpAddr::V6(address) => Some(address.octets()),
    }
}

fn read_flow(flow: &Map<String, Value>) -> Option<FlowKey> {
    let src = flow.get("src")?.as_str()?;
    let dst = flow.get("dst")?.as_str()?;
    if dst.is_empty() {
        return src
            .parse::<FlowKey>()
            .ok()
            .filter(|flow| flow.known_id().is_some());
    }
    let src: IpAddr = src.parse().ok()?;
    let dst: IpAddr = dst.parse().ok()?;
    let ports = match (read_port(flow, "sport")?, read_port(flow, "dport")?) {
        (Some(sport), Some(dport)) => Some((sport, dport)),
        (None, None) => None,
        _ => return None,
    };
    let proto = u8::try_from(flow.get("proto")?.as_u64()?).ok()?;
    (src.is_ipv4() == dst.is_ipv4()).then(|| FlowKey::new(src, dst, ports, proto))
}

fn read_port(flow: &Map<String, Value>, name: &str) -> Option<Option<u16>> {
    match flow.get(name) {
        None => Some(None),
        Some(port) => Some(Some(u16::try_from(port.as_u64()?).ok()?)),
    }
}

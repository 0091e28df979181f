//! Protobuf decoder for received records (`record.proto`).

use super::{
    FieldKind, MAX_NUMBERS, OwnedValue, Parts, Unreadable, numbers_value, parse_address, text_value,
    too_many, wrong_type,
};
use crate::protobuf::{Wire, read_field, read_varint};
use crate::record::Field;
use wire::FlowKey;

pub(super) fn read(mut bytes: &[u8], parts: &mut Parts) -> Result<(), Unreadable> {
    while !bytes.is_empty() {
        let (number, value) = read_field(&mut bytes).ok_or_else(malformed)?;
        // An unknown field was added by a later version that kept the schema version.
        let Some((field, slot)) = parts.find(|field| field.number == number) else {
            continue;
        };
        set(field, value, slot)?;
    }
    Ok(())
}

fn malformed() -> Unreadable {
    Unreadable("not a Protobuf message, or truncated".to_owned())
}

fn set(field: &Field, value: Wire<'_>, slot: &mut OwnedValue) -> Result<(), Unreadable> {
    *slot = match (field.kind, value) {
        (FieldKind::Number, Wire::Number(number)) | (FieldKind::Time, Wire::Fixed64(number)) => {
            OwnedValue::Number(number)
        }
        (FieldKind::Id, Wire::Fixed64(id)) => OwnedValue::Id(id),
        (FieldKind::Text, Wire::Bytes(text)) => {
            text_value(field, str::from_utf8(text).map_err(|_| wrong_type(field))?)?
        }
        (FieldKind::Numbers, value) => {
            // Packed or unpacked; protobuf allows both, even mixed.
            let mut numbers = match std::mem::take(slot) {
                OwnedValue::Numbers(numbers) => numbers.into_vec(),
                _ => Vec::new(),
            };
            extend(field, value, &mut numbers)?;
            numbers_value(field, numbers)?
        }
        (FieldKind::Address, Wire::Bytes(address)) => {
            OwnedValue::Address(parse_address(address).ok_or_else(|| wrong_type(field))?)
        }
        (FieldKind::Flow, Wire::Bytes(flow)) => {
            OwnedValue::Flow(read_flow(flow).ok_or_else(|| wrong_type(field))?)
        }
        _ => return Err(wrong_type(field)),
    };
    Ok(())
}

fn extend(field: &Field, value: Wire<'_>, numbers: &mut Vec<u32>) -> Result<(), Unreadable> {
    match value {
        Wire::Number(number) => push(field, number, numbers),
        Wire::Bytes(mut packed) => {
            while !packed.is_empty() {
                push(field, read_varint(&mut packed).ok_or_else(malformed)?, numbers)?;
            }
            Ok(())
        }
        Wire::Fixed32(_) | Wire::Fixed64(_) => Err(wrong_type(field)),
    }
}

fn push(field: &Field, number: u64, numbers: &mut Vec<u32>) -> Result<(), Unreadable> {
    if numbers.len() >= MAX_NUMBERS {
        return Err(too_many(field));
    }
    numbers.push(u32::try_from(number).map_err(|_| wrong_type(field))?);
    Ok(())
}

/// Reads the fields of `message Flow`.
fn read_flow(mut bytes: &[u8]) -> Option<FlowKey> {
    let mut src = None;
    let mut dst = None;
    let mut sport = None;
    let mut dport = None;
    let mut proto = 0;
    let mut id = None;
    while !bytes.is_empty() {
        match read_field(&mut bytes)? {
            (1, Wire::Bytes(address)) => src = Some(address),
            (2, Wire::Bytes(address)) => dst = Some(address),
            (3, Wire::Number(port)) => sport = Some(u16::try_from(port).ok()?),
            (4, Wire::Number(port)) => dport = Some(u16::try_from(port).ok()?),
            (5, Wire::Number(number)) => proto = u8::try_from(number).ok()?,
            (6, Wire::Fixed32(number)) => id = Some(number),
            (1..=6, _) => return None,
            _ => {}
        }
    }
    if let Some(id) = id {
        return Some(FlowKey::of_id(id));
    }
    let ports = match (sport, dport) {
        (Some(sport), Some(dport)) => Some((sport, dport)),
        (None, None) => None,
        _ => return None,
    };
    let src = src?;
    let dst = dst?;
    match (src.try_into(), dst.try_into()) {
        (Ok(src), Ok(dst)) => Some(FlowKey::v4(src, dst, ports, proto)),
        _ => Some(FlowKey::v6(
            src.try_into().ok()?,
            dst.try_into().ok()?,
            ports,
            proto,
        )),
    }
}

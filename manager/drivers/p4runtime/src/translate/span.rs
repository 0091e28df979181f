//! Conversions of addresses, prefixes, ports and match fields to and from ranges of numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use detect::Prefix;
use manager::flows::{ANY_PORT, Ports};

use super::Span;
use crate::entry::Field;
use crate::map::{Value, Variable};
use crate::program::BoundValue;

/// Returns a number with the `width` lowest bits set.
pub(super) fn ones(width: u32) -> u128 {
    1_u128.checked_shl(width).map_or(u128::MAX, |bit| bit - 1)
}

/// Returns an address as a number; IPv4-mapped IPv6 addresses count as IPv4.
pub(super) fn address_number(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Returns the address of a field with `width` bits, or `None` if the width fits no IP version.
pub(super) fn address(number: u128, width: u32) -> Option<IpAddr> {
    match width {
        32 => u32::try_from(number)
            .ok()
            .map(|number| Ipv4Addr::from(number).into()),
        128 => Some(IpAddr::from(Ipv6Addr::from(number))),
        _ => None,
    }
}

/// Returns the range of a prefix's addresses, or `None` for any address.
pub(super) fn prefix_span(prefix: Option<Prefix>, field: &BoundValue) -> Result<Option<Span>, String> {
    let Some(prefix) = prefix else { return Ok(None) };
    if prefix.is_v6() != (field.width == 128) {
        let version = if prefix.is_v6() { "IPv6" } else { "IPv4" };
        return Err(format!(
            "the field `{}` of the program does not hold {version} addresses",
            field.name
        ));
    }
    // `Program` has checked that the width is 32 or 128, so it is at least the prefix length.
    let low = address_number(prefix.network());
    Ok(Some((low, low | ones(field.width - u32::from(prefix.len())))))
}

pub(super) fn port_span(ports: Ports) -> Option<Span> {
    (ports != ANY_PORT).then_some((ports.0.into(), ports.1.into()))
}

/// Returns the range of values that a match field selects, or `None` if they are not a range.
pub(super) fn span(field: &Field, bound: &BoundValue) -> Option<Span> {
    let all = ones(bound.width);
    // Clauses are a bitmask. An entry that matches the required bits with themselves as the mask requires exactly these
    // clauses, regardless of other bits. It represents this one bitmask.
    if let (Value::Variable(Variable::Clauses), Field::Ternary(value, mask)) = (bound.value, field) {
        let clauses = value.number()?;
        return (value == mask).then_some((clauses, clauses));
    }
    match field {
        Field::Exact(value) | Field::Optional(value) => value.number().map(|number| (number, number)),
        Field::Range(low, high) => low.number().zip(high.number()).filter(|(low, high)| low <= high),
        Field::Ternary(value, mask) => {
            let value = value.number()?;
            let wildcard = all & !mask.number()?;
            // The values are contiguous only if the wildcard bits are the lowest. Adding one then carries out of all of them.
            let are_lowest = wildcard & wildcard.wrapping_add(1) == 0;
            (are_lowest && value & wildcard == 0).then_some((value, value | wildcard))
        }
        Field::Lpm(value, length) => {
            let wildcard = ones(bound.width.checked_sub(u32::try_from(*length).ok()?)?);
            let value = value.number()?;
            (value & wildcard == 0).then_some((value, value | wildcard))
        }
    }
}

//! Fast text output of numbers, addresses and times without `core::fmt`, which would be most of the cost of encoding a record
//! as JSON.

use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use settings::time::Date;
use wire::FlowKey;

use crate::backoff::Nanos;

/// The two digits of each number from 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + at as u8 / 10, b'0' + at as u8 % 10];
        at += 1;
    }
    pairs
};

fn pair(number: u64) -> [u8; 2] {
    PAIRS[(number % 100) as usize]
}

/// Appends a number in decimal.
pub(crate) fn decimal(mut number: u64, out: &mut Vec<u8>) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    while number >= 10 {
        start -= 2;
        digits[start..start + 2].copy_from_slice(&pair(number));
        number /= 100;
    }
    if number > 0 {
        start -= 1;
        digits[start] = b'0' + number as u8;
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends 16 hexadecimal digits.
pub(crate) fn hex(number: u64, out: &mut Vec<u8>) {
    let digits = number
        .to_be_bytes()
        .map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
    out.extend_from_slice(digits.as_flattened());
}

/// Returns the hexadecimal digit of a number below 16.
pub(crate) fn digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble & 0xf)]
}

/// Appends an address. IPv6 addresses go through the standard library because of their abbreviated forms.
pub(crate) fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            decimal(first.into(), out);
            for octet in rest {
                out.push(b'.');
                decimal(octet.into(), out);
            }
        }
        // Writing to a `Vec` cannot fail.
        IpAddr::V6(address) => _ = write!(out, "{address}"),
    }
}

/// Returns an address from 16 octets, in which IPv4 is mapped into IPv6.
pub(crate) fn address_of(octets: &[u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(*octets);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// Appends a flow in the same format as `Display`.
pub(crate) fn flow(flow: &FlowKey, out: &mut Vec<u8>) {
    let (Some((sport, dport)), None, false) = (flow.ports(), flow.known_id(), flow.is_v6()) else {
        _ = write!(out, "{flow}");
        return;
    };
    for (end, port, after) in [(flow.src(), sport, b'>'), (flow.dst(), dport, b'/')] {
        address(end, out);
        out.push(b':');
        decimal(port.into(), out);
        out.push(after);
    }
    decimal(flow.proto().into(), out);
}

/// Appends a time in RFC 3339, UTC, with nine fractional digits. 64 bits end in 2554, so years have four digits.
pub(crate) fn rfc3339(ts: Nanos, out: &mut Vec<u8>) {
    let seconds = ts / 1_000_000_000;
    let fraction = ts % 1_000_000_000;
    let Date { year, month, day } = Date::from_days((seconds / 86_400) as i64);
    decimal(year.unsigned_abs(), out);
    for (before, part) in [
        (b'-', month.into()),
        (b'-', day.into()),
        (b'T', seconds / 3600 % 24),
        (b':', seconds / 60 % 60),
        (b':', seconds % 60),
    ] {
        out.push(before);
        out.extend(pair(part));
    }
    out.push(b'.');
    let millions = fraction / 1_000_000;
    let rest = fraction % 1_000_000;
    out.push(b'0' + (millions / 100) as u8);
    for part in [millions % 100, rest / 10_000, rest / 100 % 100, rest % 100] {
        out.extend(pair(part));
    }
    out.push(b'Z');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        let edges = (0..20).flat_map(|power| {
            let edge = 10_u64.pow(power);
            [edge - 1, edge, edge + 1]
        });
        for number in (0..1100)
            .chain(edges)
            .chain([u64::MAX, u64::MAX - 1, u64::from(u32::MAX)])
        {
            let mut as_decimal = b"x".to_vec();
            let mut as_hex = b"x".to_vec();
            decimal(number, &mut as_decimal);
            hex(number, &mut as_hex);
            assert_eq!(String::from_utf8(as_decimal), Ok(format!("x{number}")));
            assert_eq!(String::from_utf8(as_hex), Ok(format!("x{number:016x}")));
        }
    }

    #[test]
    fn flows_and_addresses_are_written_as_display_does() {
        let flows = [
            "10.0.0.1:5000>192.168.255.2:80/17",
            "0.0.0.0:0>255.255.255.255:65535/6",
            "10.0.0.1>10.0.0.2/1",
            "[2001:db8::1]:5000>[::ffff:1.2.3.4]:80/6",
            "fd00::1>fd00::2/58",
            "flow-id:0x0000f10a",
        ];
        for text in flows {
            let key: FlowKey = text.parse().unwrap();
            let mut written = Vec::new();
            let mut source = Vec::new();
            flow(&key, &mut written);
            assert_eq!(String::from_utf8(written), Ok(key.to_string()));
            address(key.src(), &mut source);
            assert_eq!(String::from_utf8(source), Ok(key.src().to_string()));
        }
    }

    #[test]
    fn a_time_is_written_in_utc() {
        let written = |ts| {
            let mut text = Vec::new();
            rfc3339(ts, &mut text);
            String::from_utf8(text).unwrap()
        };
        let day = 86_400 * 1_000_000_000;
        assert_eq!(written(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(
            written(1_709_210_096_000_000_789),
            "2024-02-29T12:34:56.000000789Z"
        );
        assert_eq!(
            written(1_709_210_096_123_456_789),
            "2024-02-29T12:34:56.123456789Z"
        );
        assert_eq!(written(11_016 * day), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(written(11_017 * day - 1), "2000-02-29T23:59:59.999999999Z");
        assert_eq!(written(47_540 * day), "2100-02-28T00:00:00.000000000Z");
        assert_eq!(written(47_541 * day), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(written(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}

//! Text that several sinks write.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use crate::backoff::Nanos;

/// Appends a time as RFC 3339 writes it, in UTC, with nine digits after the second.
pub(super) fn rfc3339(ts: Nanos, out: &mut String) {
    let (seconds, fraction) = (ts / 1_000_000_000, ts % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z");
}

/// Year, month and day of the day after 1970-01-01. Years begin with March here, so that a leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097; // Days of 400 years.
    let days = days + 719_468; // Since 0000-03-01.
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    match month {
        0..10 => (era * 400 + year, month + 3, day),
        _ => (era * 400 + year + 1, month - 9, day),
    }
}

/// The address that these octets are, IPv4 mapped into IPv6.
pub(super) fn address(octets: &[u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(*octets);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        let written = |ts| {
            let mut text = String::new();
            rfc3339(ts, &mut text);
            text
        };
        let day = 86_400 * 1_000_000_000;
        assert_eq!(written(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(written(1_709_210_096_000_000_789), "2024-02-29T12:34:56.000000789Z");
        assert_eq!(written(1_709_210_096_123_456_789), "2024-02-29T12:34:56.123456789Z");
        assert_eq!(written(11_016 * day), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(written(11_017 * day - 1), "2000-02-29T23:59:59.999999999Z");
        assert_eq!(written(47_540 * day), "2100-02-28T00:00:00.000000000Z");
        assert_eq!(written(47_541 * day), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(written(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}

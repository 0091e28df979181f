//! Points in time as people write them (RFC 3339).

/// Nanoseconds since 1970 of `2026-11-24T08:00:00Z` or `2026-11-24T08:00:00+01:00`, or of the beginning of a date such as
/// `2026-11-24` in UTC; `None` if it is no such time.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00Z"));
    let number = |text: &str, digits: usize| -> Option<i64> {
        let valid = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| valid)
    };
    let mut parts = date.split('-');
    let (year, month, day) =
        (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let mut fields = clock.split(':');
    let (hour, minute, second) =
        (number(fields.next()?, 2)?, number(fields.next()?, 2)?, number(fields.next()?, 2)?);
    let valid = parts.next().is_none() && fields.next().is_none();
    let in_range = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !valid || !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = if zone.eq_ignore_ascii_case("z") {
        0
    } else {
        let (sign, rest) = zone.split_at(1);
        let (hours, minutes) = rest.split_once(':')?;
        let seconds = number(hours, 2)? * 3600 + number(minutes, 2)? * 60;
        if sign == "-" { -seconds } else { seconds }
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)
}

/// A time, ns since 1970, as people write it: in UTC, to the second.
pub fn text(nanoseconds: u64) -> String {
    let seconds = (nanoseconds / 1_000_000_000) as i64;
    let (day, clock) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days(year, month + 1, 1) <= day {
        month += 1;
    }
    let date = day - days(year, month, 1) + 1;
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", clock / 3600, clock / 60 % 60, clock % 60)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::{nanoseconds, text};

    #[test]
    fn times_are_read_with_their_zone() {
        let seconds = |text| nanoseconds(text).map(|ns| ns / 1_000_000_000);
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-03-01T00:00:00Z"), Some(951_868_800));
        assert_eq!(seconds("2026-11-24T08:00:00+01:00"), Some(1_795_503_600));
        assert_eq!(seconds("2000-03-01"), Some(951_868_800));
        for time in
            ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "2026-12-31T08:07:06Z", "2400-03-01T00:00:00Z"]
        {
            assert_eq!(nanoseconds(time).map(text).as_deref(), Some(time));
        }
        let wrong =
            ["2026-02-29T00:00:00Z", "2026-1-1T00:00:00Z", "2026-01-32", "2026-01-01T24:00:00Z", "", "é"];
        assert_eq!(wrong.map(seconds), [None; 6]);
    }
}

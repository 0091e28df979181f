//! Points in time as people write them (RFC 3339, and shorter forms).

/// Nanoseconds since 1970 of a time such as `2026-11-24T08:00:00.25+01:00`. `T` may be a space; seconds, or the whole time of day, may
/// be missing. The zone is `Z`, `UTC` or an offset; without one it is UTC, as printed times are. `None` if it is no such time.
pub fn nanoseconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let mut parts = date.split('-');
    let (year, month, day) = (
        number(parts.next()?, 4)?,
        number(parts.next()?, 2)?,
        number(parts.next()?, 2)?,
    );
    let in_range = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if parts.next().is_some() || !in_range {
        return None;
    }
    let (clock, zone) = time.split_at(time.find(['Z', 'z', '+', '-', ' ']).unwrap_or(time.len()));
    let (seconds, fraction) = time_of_day(clock)?;
    let seconds = days(year, month, day) * 86_400 + seconds - offset(zone.trim_start())?;
    u64::try_from(seconds)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)
}

/// A whole number of so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_valid = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_valid)
}

/// Seconds since midnight, and nanoseconds, of `08:00`, `08:00:30` or `08:00:30.25`.
fn time_of_day(text: &str) -> Option<(i64, u64)> {
    let mut fields = text.splitn(3, ':');
    let (hour, minute) = (number(fields.next()?, 2)?, number(fields.next()?, 2)?);
    let (second, fraction) = match fields.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (number(seconds, 2)?, 0),
            Some((whole, fraction)) if (1..=9).contains(&fraction.len()) => {
                let scale = 10_i64.pow(9 - fraction.len() as u32);
                (number(whole, 2)?, number(fraction, fraction.len())? * scale)
            }
            Some(_) => return None,
        },
    };
    let is_valid = hour < 24 && minute < 60 && second <= 60;
    is_valid.then_some((hour * 3600 + minute * 60 + second, fraction.unsigned_abs()))
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone.eq_ignore_ascii_case("z") || zone == "UTC" {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        "+" => Some(seconds),
        "-" => Some(-seconds),
        _ => None,
    }
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
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
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
        for time in [
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2026-12-31T08:07:06Z",
            "2400-03-01T00:00:00Z",
        ] {
            assert_eq!(nanoseconds(time).map(text).as_deref(), Some(time));
        }
        let same = [
            "2026-11-28T16:34:00Z",
            "2026-11-28 16:34",
            "2026-11-28T16:34",
            "2026-11-28 16:34Z",
            "2026-11-28 16:34 UTC",
            "2026-11-28 16:34:00.000Z",
            "2026-11-28t16:34:00.000000000z",
            "2026-11-28T22:04:00+05:30",
            "2026-11-28 08:34 -08:00",
        ];
        assert_eq!(same.map(seconds), [Some(1_795_883_640); 9]);
        assert_eq!(nanoseconds("1970-01-01 00:00:00.25Z"), Some(250_000_000));
        assert_eq!(nanoseconds("1970-01-01T00:01:00.000000001"), Some(60_000_000_001));
        for wrong in [
            "2026-02-29T00:00:00Z",
            "2026-1-1T00:00:00Z",
            "2026-01-32",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.0123456789Z",
            "2026-01-01T00:00:0.5Z",
            "2026-01-01T0000Z",
            "2026-01-01T00:00:00:00Z",
            "2026-01-01T00:00é",
            "2026-01-01T00:00+1:00",
            "2026-01-01T00:00+24:00",
            "2026-01-01T00:00 CET",
            "1969-12-31T23:59Z",
            "9999-01-01",
            "TZ",
            "",
            "é",
        ] {
            assert_eq!(nanoseconds(wrong), None, "{wrong}");
        }
    }
}

//! Parses and formats points in time (RFC 3339 and shorter forms), and converts dates of the Gregorian calendar.

/// Accepted range of a number of nanoseconds: from 2000-01-01 until before 2200-01-01.
pub const PLAUSIBLE: std::ops::Range<u64> = 946_684_800_000_000_000..7_258_118_400_000_000_000;
/// Days in 400 years, the period of the calendar.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Internally, years begin in March, so the leap day is the last day of a year and month
/// lengths follow one formula.
const DAYS_TO_EPOCH: i64 = 719_468;

/// Parses a time such as `2026-11-24T08:00:00.25+01:00` into nanoseconds since 1970. Returns `None` if it is invalid. `T` may
/// be a space; seconds, or the whole time of day, may be missing. The zone is `Z`, `UTC` or an offset, and defaults to UTC,
/// like printed times.
pub fn nanoseconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let mut parts = date.split('-');
    let date = Date {
        year: number(parts.next()?, 4)?,
        month: number(parts.next()?, 2)? as u8,
        day: number(parts.next()?, 2)? as u8,
    };
    let days = date.days().filter(|_| parts.next().is_none())?;
    let (clock, zone) = time.split_at(time.find(['Z', 'z', '+', '-', ' ']).unwrap_or(time.len()));
    let (seconds, fraction) = time_of_day(clock)?;
    let seconds = days * 86_400 + seconds - offset(zone.trim_start())?;
    u64::try_from(seconds)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)
}

/// Parses a time: nanoseconds since 1970 in the range [`PLAUSIBLE`], or a text that [`nanoseconds`] accepts. 0 means 1970 in
/// any unit.
///
/// # Errors
/// Not a valid time. A number in another unit, or a date without hyphens, is never taken for nanoseconds; the error is the time
/// that was probably meant, such as `2026-11-29`, if there is one.
pub fn parse(text: &str) -> Result<u64, Option<String>> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return nanoseconds(text).ok_or(None);
    }
    match text.parse::<u64>() {
        Ok(time) if time == 0 || PLAUSIBLE.contains(&time) => Ok(time),
        Ok(number) => Err(suggest(text, number)),
        Err(_) => Err(None),
    }
}

/// Returns the time that an implausible number probably means: a date, or seconds, milliseconds or microseconds.
fn suggest(digits: &str, number: u64) -> Option<String> {
    if digits.len() == 8 {
        let date = format!("{}-{}-{}", &digits[..4], &digits[4..6], &digits[6..]);
        return nanoseconds(&date)
            .filter(|time| PLAUSIBLE.contains(time))
            .map(|_| date);
    }
    [1_000_000_000, 1_000_000, 1000]
        .into_iter()
        .filter_map(|unit| number.checked_mul(unit))
        .find(|time| PLAUSIBLE.contains(time))
        .map(self::text)
}

/// Parses a whole number with exactly this number of digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_valid = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_valid { text.parse().ok() } else { None }
}

/// Parses `08:00`, `08:00:30` or `08:00:30.25` into seconds since midnight and nanoseconds. Accepts second 60 for leap seconds.
fn time_of_day(text: &str) -> Option<(i64, u64)> {
    let mut fields = text.splitn(3, ':');
    let hour = number(fields.next()?, 2)?;
    let minute = number(fields.next()?, 2)?;
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

/// Parses a zone into its offset from UTC, seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone.eq_ignore_ascii_case("z") || zone == "UTC" {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let hours = number(hours, 2)?;
    let minutes = number(minutes, 2)?;
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        "+" => Some(seconds),
        "-" => Some(-seconds),
        _ => None,
    }
}

/// Formats a time (ns since 1970) in UTC to the second.
pub fn text(nanoseconds: u64) -> String {
    let seconds = (nanoseconds / 1_000_000_000) as i64;
    let day = seconds / 86_400;
    let clock = seconds % 86_400;
    let Date { year, month, day } = Date::from_days(day);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

/// A date of the Gregorian calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date {
    /// Astronomical year: the year before 1 is 0.
    pub year: i64,
    /// Month of the year, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
}

impl Date {
    /// Returns the date `days` days after 1970-01-01.
    #[inline]
    pub fn from_days(days: i64) -> Self {
        let era = (days + DAYS_TO_EPOCH).div_euclid(DAYS_PER_ERA);
        let day = (days + DAYS_TO_EPOCH).rem_euclid(DAYS_PER_ERA);
        let year = (day - day / 1460 + day / 36_524 - day / (DAYS_PER_ERA - 1)) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let is_next_year = month >= 10;
        Self {
            year: era * 400 + year + i64::from(is_next_year),
            month: (month + if is_next_year { -9 } else { 3 }) as u8,
            day: (day - (153 * month + 2) / 5 + 1) as u8,
        }
    }

    /// Returns the days from 1970-01-01 to this date, or `None` if the date is invalid.
    pub fn days(self) -> Option<i64> {
        let months = 12 * self.year + i64::from(self.month) - 3;
        let year = months.div_euclid(12);
        let month = months.rem_euclid(12);
        let era = year.div_euclid(400);
        let year = year.rem_euclid(400);
        let day = 365 * year + year / 4 - year / 100 + (153 * month + 2) / 5 + i64::from(self.day) - 1;
        let days = era * DAYS_PER_ERA + day - DAYS_TO_EPOCH;
        // An invalid date, such as 30 February, converts to another one.
        (Self::from_days(days) == self).then_some(days)
    }
}

#[cfg(test)]
mod tests {
    use super::{Date, nanoseconds, parse, text};

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = Date {
            year: -1,
            month: 12,
            day: 31,
        };
        let start = before.days().unwrap();
        for days in start + 1..start + 3000 * 366 {
            let date = Date::from_days(days);
            assert_eq!(date.days(), Some(days));
            let Date { year, month, day } = before;
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u8::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
            assert_eq!((date.year, date.month, date.day), expected);
            before = date;
        }
        assert_eq!(
            Date::from_days(0),
            Date {
                year: 1970,
                month: 1,
                day: 1
            }
        );
    }

    #[test]
    fn what_is_no_date_has_no_day() {
        for (year, month, day) in [
            (2026, 2, 29),
            (2100, 2, 29),
            (2024, 2, 30),
            (2026, 4, 31),
            (2026, 1, 32),
            (2026, 1, 0),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 255, 255),
        ] {
            assert_eq!(Date { year, month, day }.days(), None, "{year}-{month}-{day}");
        }
    }

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

    #[test]
    fn a_number_is_nanoseconds_only_where_it_can_be_no_other_unit() {
        for (number, time) in [
            ("0", 0),
            ("946684800000000000", 946_684_800_000_000_000),
            ("1795881600000000000", 1_795_881_600_000_000_000),
            ("7258118399999999999", 7_258_118_399_999_999_999),
            ("2026-11-28T16:00Z", 1_795_881_600_000_000_000),
        ] {
            assert_eq!(parse(number), Ok(time), "{number}");
        }
        for (number, meant) in [
            ("20261129", "2026-11-29"),
            ("1764453600", "2025-11-29T22:00:00Z"),
            ("1764453600123", "2025-11-29T22:00:00Z"),
            ("1764453600123456", "2025-11-29T22:00:00Z"),
            ("946684800", "2000-01-01T00:00:00Z"),
            ("7258118399", "2199-12-31T23:59:59Z"),
        ] {
            assert_eq!(parse(number), Err(Some(meant.to_owned())), "{number}");
        }
        for wrong in [
            "1",
            "17",
            "2026",
            "20261301",
            "19991231",
            "946684799",
            "946684799999999999",
            "7258118400000000000",
            "18446744073709551615",
            "18446744073709551616",
            "+1795881600000000000",
            "-1",
            "",
            "now",
        ] {
            assert_eq!(parse(wrong), Err(None), "{wrong}");
        }
    }
}

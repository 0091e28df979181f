//! Formats numbers with units; JSON output contains plain numbers.

use std::time::Duration;

/// A time span in ns with a unit that keeps three digits: `950 ns`, `1.50 us`, `12.3 ms`, `4.00 s`.
pub fn nanos(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three(value / 1e6)),
        _ => format!("{} s", three(value / 1e9)),
    }
}

/// A count with separators: `12,345,678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate or a large number in three digits: `1.25 M`, `830 k`, `12.0`.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{} G", three(n / 1e9)),
        n if n >= 1e6 => format!("{} M", three(n / 1e6)),
        n if n >= 1e3 => format!("{} k", three(n / 1e3)),
        n => three(n),
    }
}

/// Bytes: `1.50 GB` (powers of ten, as disks and links count).
pub fn bytes(number: u64) -> String {
    let text = short(number as f64);
    if number < 1_000 { format!("{number} B") } else { format!("{text}B") }
}

/// `1 report`, `2 reports`, `1,000 reports`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A duration for progress: `0:07`, `2:31`, `1:02:03`.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Time of day of a timestamp in ns since the epoch, UTC, with milliseconds: `14:03:59.250`.
pub fn time_of_day(ts: u64) -> String {
    let ms = ts / 1_000_000;
    let seconds = ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, ms % 1000)
}

/// Date and time, UTC: `2026-03-01 14:03:59.250`.
pub fn date_time(ts: u64) -> String {
    let (year, month, day) = civil((ts / 1_000_000_000 / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02} {}", time_of_day(ts))
}

/// The calendar date of a day number since 1970-01-01. The year is taken to start in March, so that the leap day is its
/// last and month lengths follow one formula.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A time in UTC, `2026-03-01T14:03Z` or with seconds, `2026-03-01T14:03:59.25Z`, as ns since the epoch; years 1970 to 2261.
pub fn parse_utc(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.split('-').chain(time.split(':'));
    // Whole numbers of so many digits.
    let mut number = |digits: usize| -> Option<u64> {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let (hour, minute) = (number(2)?, number(2)?);
    let (second, fraction) = match parts.next() {
        None => (0, 0),
        Some(seconds) => seconds_of(seconds)?,
    };
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || !(1970..2262).contains(&year) {
        return None;
    }
    // The day that is written so, if there is one: a year has at most 366 days.
    let first = (year as i64 - 1970) * 365 + (year as i64 - 1969) / 4 - 2;
    let wanted = (year as i64, month as i64, day as i64);
    let days = (first..first + 370).find(|days| civil(*days) == wanted)?;
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3_600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Seconds of two digits, and ns of up to nine digits behind a point.
fn seconds_of(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 2 || fraction.len() > 9 || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    Some((whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?))
}

/// Three significant digits.
fn three(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_the_unit_that_fits() {
        let spans = [0, 999, 1_000, 1_500, 12_345, 999_999, 5_000_000, 4_000_000_000];
        assert_eq!(
            spans.map(nanos),
            ["0 ns", "999 ns", "1.00 us", "1.50 us", "12.3 us", "1000 us", "5.00 ms", "4.00 s"]
        );
        assert_eq!([0, 999, 1_000, 12_345_678].map(count), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([12.0, 830e3, 1.25e6].map(short), ["12.0", "830 k", "1.25 M"]);
        assert_eq!([512, 1_500_000_000].map(bytes), ["512 B", "1.50 GB"]);
        assert_eq!([counted(1, "gap"), counted(2_000, "gap")], ["1 gap", "2,000 gaps"]);
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(date_time(1_709_210_096_789_000_000), "2024-02-29 12:34:56.789");
        assert_eq!(date_time(0), "1970-01-01 00:00:00.000");
        assert_eq!(clock(Duration::from_secs(3_723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(67)), "1:07");
    }

    #[test]
    fn a_time_reads_back_as_it_was_written() {
        for ts in [0, 1_709_210_096_789_000_000, 1_735_689_599_999_000_000, 9_214_646_399_000_000_000] {
            assert_eq!(parse_utc(&(date_time(ts).replace(' ', "T") + "Z")), Some(ts));
        }
        for day in 0..106_000_u64 {
            let text = date_time(day * 86_400_000_000_000).replace(' ', "T") + "Z";
            assert_eq!(parse_utc(&text), Some(day * 86_400_000_000_000), "{text}");
        }
        assert_eq!(parse_utc("2024-02-29T12:34Z"), Some(1_709_210_040_000_000_000));
        let wrong = [
            "2023-02-29T00:00Z",
            "2024-02-29T24:00Z",
            "2024-2-29T00:00Z",
            "2024-02-29T00:00",
            "2024-02-29T0000Z",
        ];
        for wrong in wrong.into_iter().chain([
            "9999-01-01T00:00Z",
            "2024-02-29T00:00:00:00Z",
            "2024-02-29T00:00:0.5Z",
            "TZ",
        ]) {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }
}

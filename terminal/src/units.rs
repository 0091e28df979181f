//! Formats numbers, durations and times with units for people. JSON output has plain numbers.

use std::time::Duration;

use settings::time::Date;

/// Formats a time span in ns with a unit that keeps three digits: `950 ns`, `1.50 us`, `12.3 ms`, `4.00 s`.
pub fn nanos(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// Formats a count with separators: `12,345,678`.
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

/// Formats a rate or a large number with three digits: `1.25 M`, `830 k`, `12.0`.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{} G", three_digits(n / 1e9)),
        n if n >= 1e6 => format!("{} M", three_digits(n / 1e6)),
        n if n >= 1e3 => format!("{} k", three_digits(n / 1e3)),
        n => three_digits(n),
    }
}

/// Formats a size in powers of ten, as disks and links count: `1.50 GB`.
pub fn bytes(number: u64) -> String {
    let text = short(number as f64);
    if number < 1_000 {
        format!("{number} B")
    } else {
        format!("{text}B")
    }
}

/// Formats a count with its noun: `1 report`, `2 reports`, `1,000 reports`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a duration as a clock: `0:07`, `2:31`, `1:02:03`.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let hours = seconds / 3600;
    let minutes = seconds / 60 % 60;
    let seconds = seconds % 60;
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Formats the UTC time of day, with milliseconds, of a timestamp in ns since the Unix epoch: `14:03:59.250`.
pub fn time_of_day(ts: u64) -> String {
    let ms = ts / 1_000_000;
    let seconds = ms / 1000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}.{:03}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        ms % 1000
    )
}

/// Formats UTC date and time of a timestamp in ns since the Unix epoch: `2026-03-01 14:03:59.250Z`.
pub fn date_time(ts: u64) -> String {
    let Date { year, month, day } = Date::from_days((ts / 1_000_000_000 / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02} {}Z", time_of_day(ts))
}

/// Formats a number with three significant digits.
fn three_digits(value: f64) -> String {
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
            [
                "0 ns", "999 ns", "1.00 us", "1.50 us", "12.3 us", "1000 us", "5.00 ms", "4.00 s"
            ]
        );
        assert_eq!(
            [0, 999, 1_000, 12_345_678].map(count),
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!([12.0, 830e3, 1.25e6].map(short), ["12.0", "830 k", "1.25 M"]);
        assert_eq!([512, 1_500_000_000].map(bytes), ["512 B", "1.50 GB"]);
        assert_eq!(
            [counted(1, "gap"), counted(2_000, "gap")],
            ["1 gap", "2,000 gaps"]
        );
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(date_time(1_709_210_096_789_000_000), "2024-02-29 12:34:56.789Z");
        assert_eq!(date_time(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(clock(Duration::from_secs(3_723)), "1:02:03");
        assert_eq!(clock(Duration::from_secs(67)), "1:07");
    }
}

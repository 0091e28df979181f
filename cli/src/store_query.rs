//! Parameters and printed results of `hopwise query`, and parsers for the times and durations in options.

use std::time::Duration;

use terminal::CliError;

const TIME_SYNTAX: &str = "expected a UTC time such as 2026-11-26T03:10Z, \"2026-11-26 03:10\" or 2026-11-26, one with an offset such as \
     2026-11-26T04:10+01:00, an age such as 30s, 15m, 2h, 7d, or ns since 1970 (years 2000 to 2199)";

/// Query of a store, with its limits and output format.
#[derive(Clone, Debug)]
pub(super) struct StoreQuery {
    pub(super) sql: String,
    pub(super) format: Format,
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    pub(super) limit: usize,
    pub(super) timeout: Duration,
}

impl StoreQuery {
    /// Returns a copy with other SQL.
    pub(super) fn with_sql(&self, sql: String) -> Self {
        Self { sql, ..self.clone() }
    }
}

/// Answer as text, with remarks such as that rows were left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct QueryOutput {
    pub(super) format: Format,
    pub(super) text: String,
    pub(super) remarks: Vec<String>,
}

impl QueryOutput {
    /// Prints the answer on standard output and the remarks on standard error.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print(&self) -> Result<(), CliError> {
        match self.format {
            Format::Csv => terminal::print_data(&self.text)?,
            Format::Json | Format::Table => terminal::print(&self.text)?,
        }
        self.remarks.iter().for_each(terminal::note);
        Ok(())
    }
}

/// Output format of an answer.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Aligned columns with a heading
    Table,
    /// One JSON object per row
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// Parses a time (UTC, ns since the epoch, or an age) as ns since the epoch.
pub(super) fn time(text: &str) -> Result<u64, String> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    time_at(text, now.as_nanos() as u64)
}

fn time_at(text: &str, now: u64) -> Result<u64, String> {
    match settings::time::parse(text) {
        Ok(time) => return Ok(time),
        Err(Some(likely_time)) => {
            return Err(format!(
                "not nanoseconds: if you mean {likely_time}, write that; {TIME_SYNTAX}"
            ));
        }
        Err(None) => {}
    }
    let age = seconds(text.strip_prefix('-').unwrap_or(text))
        .and_then(|age| age.checked_mul(1_000_000_000))
        .ok_or(TIME_SYNTAX)?;
    Ok(now.saturating_sub(age))
}

/// Parses a duration such as `30s`, `15m`, `2h` or `7d` as seconds; `None` if it is invalid or too long.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_time_is_read_again() {
        for day in 0..106_000_u64 {
            let ts = day * 86_400_000_000_000 + 86_399_999_000_000;
            assert_eq!(time_at(&terminal::units::date_time(ts), 0), Ok(ts));
        }
    }

    #[test]
    fn a_time_is_absolute_or_an_age() {
        let at = |text| time_at(text, 100_000_000_000);
        assert_eq!(
            [at("30s"), at("-30s"), at("1m"), at("7d")],
            [Ok(70_000_000_000), Ok(70_000_000_000), Ok(40_000_000_000), Ok(0)]
        );
        assert_eq!(at("1795881600000000000"), Ok(1_795_881_600_000_000_000));
        for (number, likely_time) in [("20261129", "2026-11-29"), ("1764453600", "2025-11-29T22:00:00Z")] {
            let error = at(number).unwrap_err();
            assert!(
                error.starts_with(&format!(
                    "not nanoseconds: if you mean {likely_time}, write that; expected "
                )),
                "{error}"
            );
        }
        assert_eq!(at("1970-01-01T00:01Z"), Ok(60_000_000_000));
        for wrong in [
            "",
            "s",
            "17",
            "--1h",
            "2026-11-26T",
            "2026-13-01T00:00Z",
            "1y",
            "-1",
            "1é",
            "99999999999999999d",
        ] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}

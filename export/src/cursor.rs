//! The checkpoint of an exporter: up to where a stream is delivered, and its text format in a file.
//!
//! ```text
//! hopwise cursor 1
//! settled 7:12
//! batch_end 8:3      (optional)
//! end
//! ```

use std::fmt;
use std::str::FromStr;

const MAGIC_LINE: &str = "hopwise cursor 1";

/// A position between two records of a stream: before record `row` of file `file`. Both numbers only grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position {
    /// Sequence number of the file.
    pub file: u64,
    /// Index of the record in the file.
    pub row: u64,
}

/// Checkpoint of an exporter, which survives restarts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cursor {
    /// Every record before this position is settled: delivered, or rejected for good.
    pub settled: Position,
    /// End of the batch that may have been sent since. After a restart, the records up to here are sent as the same batch, so
    /// that a server can recognise it as a duplicate.
    pub batch_end: Option<Position>,
}

/// Error: the text is not a valid cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidCursor;

impl fmt::Display for InvalidCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a cursor of version 1, or damaged; delete the file to export all stored records again",
        )
    }
}

impl std::error::Error for InvalidCursor {}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.row)
    }
}

impl FromStr for Position {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (file, row) = text.split_once(':').ok_or(InvalidCursor)?;
        Ok(Self {
            file: parse_number(file)?,
            row: parse_number(row)?,
        })
    }
}

/// Parses a number in its only valid form: no sign, no leading zeros.
fn parse_number(text: &str) -> Result<u64, InvalidCursor> {
    let number: u64 = text.parse().map_err(|_| InvalidCursor)?;
    if number.to_string() == text {
        Ok(number)
    } else {
        Err(InvalidCursor)
    }
}

/// Formats the content of a cursor file. The last line `end` detects truncated files.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{MAGIC_LINE}\nsettled {}", self.settled)?;
        if let Some(end) = self.batch_end {
            writeln!(f, "batch_end {end}")?;
        }
        writeln!(f, "end")
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let rest = text
            .strip_prefix(MAGIC_LINE)
            .and_then(|text| text.strip_prefix('\n'))
            .ok_or(InvalidCursor)?;
        let rest = rest.strip_suffix("\nend\n").ok_or(InvalidCursor)?;
        let mut lines = rest.split('\n');
        let settled = lines
            .next()
            .and_then(|line| line.strip_prefix("settled "))
            .ok_or(InvalidCursor)?
            .parse()?;
        let batch_end = match lines.next() {
            Some(line) => Some(line.strip_prefix("batch_end ").ok_or(InvalidCursor)?.parse()?),
            None => None,
        };
        if lines.next().is_some() || batch_end.is_some_and(|end| end < settled) {
            return Err(InvalidCursor);
        }
        Ok(Self { settled, batch_end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    fn position(file: u64, row: u64) -> Position {
        Position { file, row }
    }

    #[test]
    fn a_cursor_survives_its_text() {
        let cursor = Cursor {
            settled: position(7, 12),
            batch_end: Some(position(8, 3)),
        };
        assert_eq!(
            cursor.to_string(),
            "hopwise cursor 1\nsettled 7:12\nbatch_end 8:3\nend\n"
        );
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        let cursor = Cursor {
            batch_end: None,
            ..cursor
        };
        assert_eq!(cursor.to_string(), "hopwise cursor 1\nsettled 7:12\nend\n");
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn a_damaged_text_is_no_cursor() {
        let whole = Cursor {
            settled: position(u64::MAX, 12),
            batch_end: Some(position(u64::MAX, 13)),
        }
        .to_string();
        for end in 0..whole.len() {
            assert_eq!(
                whole[..end].parse::<Cursor>(),
                Err(InvalidCursor),
                "{:?}",
                &whole[..end]
            );
        }
        for wrong in [
            "settled 2:1\nbatch_end 1:9",
            "settled +1:2",
            "settled 1:02",
            "settled 1",
            "settled 1:2\nmore 1:2",
            "settled 1:2\n",
        ] {
            assert_eq!(
                format!("{MAGIC_LINE}\n{wrong}\nend\n").parse::<Cursor>(),
                Err(InvalidCursor),
                "{wrong}"
            );
        }
        for seed in 0..5_000 {
            let mut bytes = whole.clone().into_bytes();
            Rng(seed).corrupt(&mut bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Ok(cursor) = text.parse::<Cursor>() {
                assert_eq!(cursor.to_string(), text);
            }
        }
    }
}

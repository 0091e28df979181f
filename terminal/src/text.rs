//! Helpers for text from other systems (bounded length, percent-decoding), and JSON lines.

use crate::{CliError, json::escaped};
use serde::Serialize;

/// Returns at most the first `max_chars` characters, with control characters replaced; `…` marks a cut.
pub fn bounded(text: &str, max_chars: usize) -> String {
    let mut chars = text.chars();
    let mut cut_text: String = chars
        .by_ref()
        .take(max_chars)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if chars.next().is_some() {
        cut_text.pop();
        cut_text.push('…');
    }
    cut_text
}

/// Decodes percent-encoding. `None` if a `%` lacks two hexadecimal digits, or the result is not UTF-8.
pub fn unescaped(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Formats a value as a line of JSON that is safe on a terminal.
///
/// # Errors
/// The value cannot be represented in JSON.
pub fn json_line(value: &impl Serialize) -> Result<String, CliError> {
    let mut line = serde_json::to_string(value).map_err(|error| CliError::new(error.to_string()))?;
    line.push('\n');
    Ok(escaped(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_short_and_harmless() {
        assert_eq!(bounded("a\u{1b}[2J\nü", 300), "a\u{fffd}[2J\u{fffd}ü");
        assert_eq!(
            (bounded("abcd", 4), bounded("abcde", 4)),
            ("abcd".to_owned(), "abc…".to_owned())
        );
    }
}

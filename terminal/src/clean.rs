//! Replaces control and bidirectional characters in text for a terminal. Names come from files, devices, captures and DNS,
//! and could contain escape sequences.

use std::borrow::Cow;

const REPLACEMENT: char = '·';

/// Replaces each control or bidirectional character of a single line by `·`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return text.into();
    }
    text.chars()
        .map(|char| if is_control(char) { REPLACEMENT } else { char })
        .collect()
}

/// Replaces control and bidirectional characters of a text by `·`, except line ends, tabs and, with `colour`, the colour
/// sequences of [`crate::Terminal::paint`].
pub(crate) fn cleaned(text: &str, colour: bool) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len());
    let mut remaining = text;
    while let Some(char) = remaining.chars().next() {
        let length = match char {
            '\n' | '\t' => 1,
            '\r' if remaining[1..].starts_with('\n') => 2,
            '\x1b' if colour => colour_len(remaining),
            _ if is_control(char) => 0,
            _ => char.len_utf8(),
        };
        match length {
            0 => clean.push(REPLACEMENT),
            _ => clean.push_str(&remaining[..length]),
        }
        remaining = &remaining[length.max(char.len_utf8())..];
    }
    clean.into()
}

/// Returns the length of the escape sequence at the start of a text if it sets a known colour or weight, otherwise 0.
fn colour_len(text: &str) -> usize {
    let Some(codes) = text
        .strip_prefix("\x1b[")
        .and_then(|rest| rest.split_once('m'))
        .map(|(codes, _)| codes)
    else {
        return 0;
    };
    match codes {
        "0" | "1" | "2" | "3" | "4" | "31" | "32" | "33" | "34" | "35" | "36" => codes.len() + 3,
        _ => 0,
    }
}

/// Returns whether this is a control character or one that changes the writing direction.
pub(crate) fn is_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_and_lines_stay() {
        let hostile = "a\x1b]0;t\x07\u{9b}2J\x7f\u{202e}é\r\n\tb\rc\x1b[31md\x1b[8m\n";
        assert_eq!(cleaned(hostile, false), "a·]0;t··2J··é\r\n\tb·c·[31md·[8m\n");
        assert_eq!(cleaned(hostile, true), "a·]0;t··2J··é\r\n\tb·c\x1b[31md·[8m\n");
        assert_eq!(cleaned("plain ─ é\n", false), "plain ─ é\n");
        assert_eq!(printable("a\nb\tc\x1b[31m"), "a·b·c·[31m");
    }
}

//! Capabilities of the output device: colour, size, overwriting of lines.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal;
use std::process::{Command, Stdio};

use crate::clean::cleaned;

/// Properties of standard output or standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminal {
    /// True for a terminal, where lines can be overwritten.
    pub interactive: bool,
    /// True if text is shown in colours.
    pub colour: bool,
    /// Columns of a line.
    pub width: usize,
    /// Lines of the screen.
    pub height: usize,
}

/// A meaning that has a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// The usual style, for a normal state.
    Good,
    /// A warning that needs attention.
    Warn,
    /// An error or a loss.
    Bad,
    /// A less important text.
    Dim,
    /// The heading of a section.
    Strong,
}

impl Terminal {
    /// Returns the properties of standard output.
    pub fn stdout() -> Self {
        Self::new(std::io::stdout().is_terminal())
    }

    /// Returns the properties of standard error.
    pub fn stderr() -> Self {
        Self::new(std::io::stderr().is_terminal())
    }

    /// Returns the properties of a file or a pipe: no colour, nothing overwritten.
    pub fn plain() -> Self {
        Self {
            interactive: false,
            colour: false,
            width: 100,
            height: 40,
        }
    }

    fn new(is_terminal: bool) -> Self {
        let (width, height) = if is_terminal { size() } else { (100, 40) };
        Self {
            interactive: is_terminal && !is_dumb(),
            colour: is_terminal && wants_colour(),
            width,
            height,
        }
    }

    /// Returns a text with `·` for each control character that is not one of its own colours or line ends.
    pub fn clean(self, text: &str) -> Cow<'_, str> {
        cleaned(text, self.colour)
    }

    /// Returns `text` in the colour of `tone`, or unchanged without colours.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_string();
        }
        let code = match tone {
            Tone::Good => 32,
            Tone::Warn => 33,
            Tone::Bad => 31,
            Tone::Dim => 2,
            Tone::Strong => 1,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Returns whether a stream is a terminal on which colours are shown.
pub(crate) fn has_colour(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && wants_colour()
}

fn is_dumb() -> bool {
    env::var_os("TERM").is_none_or(|term| term == "dumb")
}

fn wants_colour() -> bool {
    // https://no-color.org: set and not empty means no colour.
    !is_dumb() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns columns and lines: `COLUMNS` and `LINES` if set, or else the output of `stty`, or else 100 by 40.
fn size() -> (usize, usize) {
    if let (Some(width), Some(height)) = (number_from_env("COLUMNS"), number_from_env("LINES")) {
        return (width, height);
    }
    let output = Command::new("stty")
        .arg("size")
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let mut numbers = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .filter(|n| *n > 0);
    match (numbers.next(), numbers.next()) {
        (Some(height), Some(width)) => (width, height),
        _ => (100, 40),
    }
}

fn number_from_env(name: &str) -> Option<usize> {
    env::var(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_without_colour_changes_nothing() {
        let colour = Terminal {
            colour: true,
            ..Terminal::plain()
        };
        assert_eq!(Terminal::plain().paint(Tone::Bad, "x"), "x");
        assert_eq!(colour.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}

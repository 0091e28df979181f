//! Properties of the output device: colours, size, and whether lines can be overwritten.

use std::borrow::Cow;
use std::env;
use std::io::IsTerminal;
use std::process::{Command, Stdio};

use crate::clean::cleaned;

/// Size that is assumed for files, pipes and unknown terminals.
const DEFAULT_WIDTH: usize = 100;
const DEFAULT_HEIGHT: usize = 40;

/// Properties of standard output or standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminal {
    /// True for a terminal, where lines can be overwritten.
    pub interactive: bool,
    /// True if text is shown in colours.
    pub colour: bool,
    /// Number of columns of the terminal.
    pub width: usize,
    /// Number of lines of the terminal.
    pub height: usize,
}

/// Meaning of a text, which determines its colour.
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

    /// Returns the properties of a file or pipe: no colours, no overwriting.
    pub fn plain() -> Self {
        Self {
            interactive: false,
            colour: false,
            width: DEFAULT_WIDTH,
            height: DEFAULT_HEIGHT,
        }
    }

    fn new(is_terminal: bool) -> Self {
        let terminal = if is_terminal {
            Self::plain().with_size()
        } else {
            Self::plain()
        };
        Self {
            interactive: is_terminal && !is_dumb(),
            colour: is_terminal && wants_colour(),
            ..terminal
        }
    }

    /// Sets the size from `COLUMNS` and `LINES` or, without them, from `stty size`; keeps it if that fails.
    fn with_size(self) -> Self {
        if let (Some(width), Some(height)) = (number_from_env("COLUMNS"), number_from_env("LINES")) {
            return Self {
                width,
                height,
                ..self
            };
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
            (Some(height), Some(width)) => Self {
                width,
                height,
                ..self
            },
            _ => self,
        }
    }

    /// Replaces control characters by `·`, except line ends, tabs and the colours of [`Self::paint`].
    pub fn clean(self, text: &str) -> Cow<'_, str> {
        cleaned(text, self.colour)
    }

    /// Returns `text` in the colour of `tone`; unchanged without colours.
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

/// Returns whether a stream is a terminal that shows colours.
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

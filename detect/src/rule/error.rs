//! Errors of rules, with their position in the text.

use std::fmt;

/// Maximum width of a printed line, characters; in a longer one the marker would be hard to find.
const MAX_WIDTH: usize = 200;

/// An invalid rule. `Display` prints the message and, unless the line is too long, the line of the
/// rule with a marker under the position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// The name of the rule.
    pub rule: String,
    /// The text of the rule.
    pub text: String,
    /// Byte offset in `text` where the error begins, at most `text.len()`.
    pub position: usize,
    /// Length of the wrong part, bytes; 0 at the end of the text, or if the whole rule is wrong.
    pub length: usize,
    /// Description of the error and how to correct it.
    pub message: String,
}

/// An error in a rule whose name is not known yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub position: usize,
    pub length: usize,
    pub message: String,
}

impl Fault {
    pub(crate) fn new(position: usize, length: usize, message: String) -> Self {
        Self {
            position,
            length,
            message,
        }
    }

    /// Creates an error about the whole rule.
    pub(crate) fn of_rule(message: String) -> Self {
        Self::new(0, 0, message)
    }

    pub(crate) fn in_rule(self, rule: &str, text: &str) -> RuleError {
        let Self {
            position,
            length,
            message,
        } = self;
        RuleError {
            rule: rule.to_owned(),
            text: text.to_owned(),
            position,
            length,
            message,
        }
    }
}

impl RuleError {
    /// Returns the line and column of the error, both from 1; columns count characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.text[..self.position];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_and_column();
        write!(f, "rule `{}`: {}", self.rule, self.message)?;
        let Some(shown) = self
            .text
            .lines()
            .nth(line - 1)
            .filter(|shown| shown.chars().count() <= MAX_WIDTH)
        else {
            return write!(f, " (at line {line}, column {column})");
        };
        // Replaces control characters such as tabs, which would shift the marker.
        let shown: String = shown
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let covered = self
            .text
            .get(self.position..self.position + self.length)
            .unwrap_or("");
        let width = covered
            .lines()
            .next()
            .map_or(1, |part| part.chars().count().max(1));
        write!(
            f,
            "\n  {shown}\n  {:column$}{:^<width$}",
            "",
            "",
            column = column - 1
        )
    }
}

impl std::error::Error for RuleError {}

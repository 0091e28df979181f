//! The error of an invalid filter: the position in the text, and advice on what to write.

use std::fmt;

/// A syntax or value error in a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Byte offset at which the error begins, at most the text's length.
    pub position: usize,
    /// Length of the wrong part, bytes; 0 at the end of the text.
    pub length: usize,
    /// One sentence that says what to write instead.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(position: usize, length: usize, message: impl Into<String>) -> Self {
        Self {
            position,
            length,
            message: message.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.position)
    }
}

impl std::error::Error for Fault {}

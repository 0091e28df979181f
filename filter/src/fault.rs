//! The error of a text that is no filter.

use std::fmt;

/// The position at which a text is wrong, and how to correct it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The byte of the text where the fault begins; at most its length.
    pub position: usize,
    /// Bytes that it covers; 0 at the end of the text.
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

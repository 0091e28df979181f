//! Where the files of a device are, and what they say about it.

use std::path::PathBuf;

use manager::device::NodeId;

/// When a device has what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// When `applied.txt` is a copy of `desired.txt`.
    #[default]
    Applied,
    /// At once.
    Written,
}

impl Confirm {
    /// The confirmation of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "applied" => Some(Self::Applied),
            "written" => Some(Self::Written),
            _ => None,
        }
    }
}

/// Where a device's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its node id.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// When it has what was written.
    pub confirm: Confirm,
}

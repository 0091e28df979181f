//! Where the files of a device are, and what they say about it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use manager::device::{NodeId, Rules};

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
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its node id.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// When it has what was written.
    pub confirm: Confirm,
    /// Other forms of the rules, in files beside `desired.txt`.
    pub format: Option<Format>,
}

/// Another form of what a device should have: files by name, from the rules that it has and those that it should have.
#[derive(Clone)]
pub struct Format(Arc<Render>);

type Render = dyn Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync;

/// Files: their names and what is in them.
pub type Rendered = Vec<(&'static str, String)>;

impl Format {
    /// A form that `render` makes; an error is a sentence about what it cannot express.
    pub fn new(render: impl Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(render))
    }

    /// The files.
    ///
    /// # Errors
    /// What the form cannot express.
    pub fn render(&self, before: &Rules, after: &Rules) -> Result<Rendered, String> {
        (self.0)(before, after)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Format")
    }
}

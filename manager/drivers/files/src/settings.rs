//! Settings of a device behind files: its directory, its confirmation and its format.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use manager::device::{NodeId, Rules};

/// The condition under which the device counts as having the desired rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// The file `applied.txt` is a copy of `desired.txt`.
    #[default]
    Applied,
    /// The rules have been written; no confirmation is needed.
    Written,
}

impl Confirm {
    /// Returns the variant with this name in the inventory, or `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "applied" => Some(Self::Applied),
            "written" => Some(Self::Written),
            _ => None,
        }
    }
}

/// The device and its directory.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Node id of the device.
    pub node: NodeId,
    /// Name of the device, for messages.
    pub name: String,
    /// Directory that contains its files.
    pub directory: PathBuf,
    /// Condition for the desired rules to count as applied.
    pub confirm: Confirm,
    /// Additional format of the rules, in files beside `desired.txt`.
    pub format: Option<Format>,
}

/// An additional format of the rules: a function from the installed and the desired rules to files.
#[derive(Clone)]
pub struct Format(Arc<Render>);

type Render = dyn Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync;

/// Rendered files: names and contents.
pub type Rendered = Vec<(&'static str, String)>;

impl Format {
    /// Creates a format from a function. Its error is a sentence about a rule that it cannot express.
    pub fn new(render: impl Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(render))
    }

    /// Renders the files of this format, from the installed rules `before` and the desired rules `after`.
    ///
    /// # Errors
    /// A sentence about a rule that the format cannot express.
    pub fn render(&self, before: &Rules, after: &Rules) -> Result<Rendered, String> {
        (self.0)(before, after)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Format")
    }
}

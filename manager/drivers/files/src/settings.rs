//! Settings of a device behind files.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use manager::device::{NodeId, Rules};

/// The evidence by which a device is known to have the desired rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// The file `applied.txt` is a copy of `desired.txt`.
    #[default]
    Applied,
    /// The rules count as soon as they are written.
    Written,
}

impl Confirm {
    /// Returns the confirmation with this name.
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
    /// Name of the device, for people.
    pub name: String,
    /// Directory of its files.
    pub directory: PathBuf,
    /// Evidence that it has the desired rules.
    pub confirm: Confirm,
    /// Other forms of the rules, in files beside `desired.txt`.
    pub format: Option<Format>,
}

/// Another form of the desired rules: files by name, rendered from the rules that the device has and those that it should have.
#[derive(Clone)]
pub struct Format(Arc<Render>);

type Render = dyn Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync;

/// Files as names with contents.
pub type Rendered = Vec<(&'static str, String)>;

impl Format {
    /// Creates a form from a function; its error is a sentence about what it cannot express.
    pub fn new(render: impl Fn(&Rules, &Rules) -> Result<Rendered, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(render))
    }

    /// Renders the files of this form.
    ///
    /// # Errors
    /// A sentence about a rule that the form cannot express.
    pub fn render(&self, before: &Rules, after: &Rules) -> Result<Rendered, String> {
        (self.0)(before, after)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Format")
    }
}

//! Whether a filter is right, and what can complete it.

use serde::{Deserialize, Serialize};

use super::Name;

/// `/filter`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FilterHelp {
    /// What is wrong with the filter; null: nothing.
    pub(crate) fault: Option<FaultView>,
    /// What can stand where the cursor is.
    pub(crate) completions: Vec<CompletionView>,
    /// The fields that such a filter can have.
    pub(crate) fields: Vec<FieldView>,
}

/// What is wrong with a filter. Places are counted in UTF-16 units, as browsers do.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FilterFault"))]
pub(crate) struct FaultView {
    /// Where it begins.
    pub(crate) position: usize,
    /// Its length; 0 at the end of the text.
    pub(crate) length: usize,
    /// One sentence.
    pub(crate) message: String,
}

/// What can stand at the cursor.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Completion"))]
pub(crate) struct CompletionView {
    /// The first unit that it replaces, up to the cursor.
    pub(crate) from: usize,
    /// What to write.
    pub(crate) text: String,
    /// What it is, in a line; may be empty.
    pub(crate) about: String,
}

/// A field of filters.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FilterField"))]
pub(crate) struct FieldView {
    /// Its name.
    pub(crate) name: Name,
    /// What it is, in a line.
    pub(crate) about: Name,
}

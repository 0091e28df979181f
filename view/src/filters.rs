//! Whether a filter is right, and what can complete it.

use serde::{Deserialize, Serialize};

use super::Name;

/// `/filter`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterHelp {
    /// What is wrong with the filter; null: nothing.
    pub fault: Option<FaultView>,
    /// What can stand where the cursor is.
    pub completions: Vec<CompletionView>,
    /// The fields that such a filter can have.
    pub fields: Vec<FieldView>,
}

/// What is wrong with a filter. Places are counted in UTF-16 units, as browsers do.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FilterFault")
)]
pub struct FaultView {
    /// Where it begins.
    pub position: usize,
    /// Its length; 0 at the end of the text.
    pub length: usize,
    /// One sentence.
    pub message: String,
}

/// What can stand at the cursor.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Completion")
)]
pub struct CompletionView {
    /// The first unit that it replaces, up to the cursor.
    pub from: usize,
    /// What to write.
    pub text: String,
    /// What it is, in a line; may be empty.
    pub about: String,
}

/// A field of filters.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FilterField")
)]
pub struct FieldView {
    /// Its name.
    pub name: Name,
    /// What it is, in a line.
    pub about: Name,
}

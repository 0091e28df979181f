//! Whether a filter is right, and what can complete it.

use serde::{Deserialize, Serialize};

use super::Name;

/// `/filter`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterHelp {
    /// The error in the filter, or null if it is valid.
    pub fault: Option<FaultView>,
    /// Completions at the cursor.
    pub completions: Vec<CompletionView>,
    /// The fields that such a filter can have.
    pub fields: Vec<FieldView>,
}

/// An error in a filter. Positions are in UTF-16 code units, as in browsers.
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

/// A completion at the cursor.
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
    /// Text to insert.
    pub text: String,
    /// Description, one line; may be empty.
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
    /// Description, one line.
    pub about: Name,
}

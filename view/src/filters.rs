//! API response about a filter expression under edit: its error, completions, and the available fields.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Name;

/// The response of `/filter`: help for editing a filter.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "FilterFault"))]
pub struct FaultView {
    /// Offset at which the error begins, in UTF-16 code units.
    pub position: usize,
    /// Length of the error, in UTF-16 code units; 0 at the end of the text.
    pub length: usize,
    /// The error, in one sentence.
    pub message: String,
}

/// A completion at the cursor.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Completion"))]
pub struct CompletionView {
    /// The first unit that it replaces, up to the cursor.
    pub from: usize,
    /// Text to insert at the cursor.
    pub text: String,
    /// Description, one line; may be empty.
    pub about: String,
}

/// A field of filters.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "FilterField"))]
pub struct FieldView {
    /// Name of the field in filters.
    pub name: Name,
    /// Description of the field, in one line.
    pub about: Name,
}

//! Reads settings from JSON with the code that reads the TOML file, and writes them as JSON that can be read again.

use serde_json::Value;

use crate::read::Reader;
use crate::setting::{Setting, Shown};
pub use crate::tree::from_json as tree;

/// Reads a setting from JSON as if it were in a configuration file.
///
/// # Errors
/// All problems, joined into one message.
pub fn read<T: Setting>(body: &Value) -> Result<T, String> {
    let mut reader = Reader::new("");
    let read = T::read(&tree(body), &mut reader);
    let problems = reader.messages();
    match read {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(problems.join("; ")),
    }
}

impl Shown {
    /// Converts to JSON that [`read`] accepts: unset values and empty tables and lists are omitted.
    pub fn to_written(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Plain(value) => value.clone(),
            Self::List(list) => list.iter().map(Self::to_written).collect(),
            Self::Table(entries) => {
                let written = entries
                    .iter()
                    .map(|(key, value)| (key.clone(), value.to_written()));
                Value::Object(written.filter(|(_, value)| !is_empty(value)).collect())
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        _ => false,
    }
}

//! Settings as JSON, read by the code that reads the file.

use serde_json::{Map, Value};
use toml::de::DeTable;

use crate::read::Reader;
use crate::setting::{Setting, Shown};

/// Parses a value as if it were in a configuration file.
///
/// # Errors
/// Every problem, as one message.
pub fn read<T: Setting>(body: &Value) -> Result<T, String> {
    let text = format!("body = {}", inline(body));
    let mut reader = Reader::new(&text);
    let read = match DeTable::parse(&text) {
        Ok(table) => table
            .get_ref()
            .get("body")
            .and_then(|node| T::read(node, &mut reader)),
        Err(error) => return Err(error.message().trim_end().to_owned()),
    };
    let problems = reader.messages();
    match read {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(problems.join("; ")),
    }
}

/// A JSON value as TOML on one line; nulls are left out.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            let parts: Vec<String> = list.iter().filter(|value| !value.is_null()).map(inline).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Object(table) => {
            let table: &Map<String, Value> = table;
            let set = table.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = set
                .map(|(key, value)| format!("{} = {}", Value::from(key.as_str()), inline(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // A JSON text, number or boolean is a TOML one, too.
        plain => plain.to_string(),
    }
}

impl Shown {
    /// Converts it to JSON that [`read`] reads again: values that are not set and empty tables and lists are left out.
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

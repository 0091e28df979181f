//! Format-independent tree of values with positions, from which settings are read. A TOML value's position is its byte range in
//! the text; JSON has no positions, so each value gets a range of sequence numbers that contains the ranges of its children.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value as Json;
use toml::{Spanned, de::DeValue};

/// A value and its position.
pub type Node<'i> = Spanned<Value<'i>>;

/// The entries of a table, in the order of their keys.
pub(crate) type Entries<'i> = BTreeMap<Spanned<Cow<'i, str>>, Node<'i>>;

/// A value of a configuration file.
#[derive(Clone, Debug)]
pub enum Value<'i> {
    /// A string, with its escapes resolved.
    String(Cow<'i, str>),
    /// A whole number, not yet range-checked.
    Integer(Number),
    /// A number with a fraction or an exponent, infinity, or NaN.
    Float(Number),
    /// The value `true` or `false`.
    Boolean(bool),
    /// A date or a time, as written.
    Datetime(String),
    /// A list of values of any kind.
    Array(Vec<Node<'i>>),
    /// A table: names with their values.
    Table(Entries<'i>),
}

/// A number in its written form.
#[derive(Clone, Debug)]
pub struct Number {
    text: String,
    radix: u32,
}

impl Number {
    /// Returns the number as written, without the prefix of its base.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the value if it fits a signed 64-bit integer.
    pub fn to_i64(&self) -> Option<i64> {
        i64::from_str_radix(&self.text.replace('_', ""), self.radix).ok()
    }

    /// Returns the value as a float; the number must be decimal.
    pub fn to_f64(&self) -> Option<f64> {
        self.text.replace('_', "").parse().ok()
    }
}

impl<'i> Value<'i> {
    /// Returns the text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the elements of a list.
    pub fn as_array(&self) -> Option<&[Node<'i>]> {
        match self {
            Self::Array(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the value of a key, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node<'i>> {
        match self {
            Self::Table(entries) => entries.get(key),
            _ => None,
        }
    }
}

impl<'i> From<DeValue<'i>> for Value<'i> {
    fn from(value: DeValue<'i>) -> Self {
        match value {
            DeValue::String(text) => Self::String(text),
            DeValue::Integer(number) => Self::Integer(Number {
                text: number.as_str().to_owned(),
                radix: number.radix(),
            }),
            DeValue::Float(number) => Self::Float(Number {
                text: number.as_str().to_owned(),
                radix: 10,
            }),
            DeValue::Boolean(value) => Self::Boolean(value),
            DeValue::Datetime(date) => Self::Datetime(date.to_string()),
            DeValue::Array(list) => Self::Array(list.into_iter().map(from_toml).collect()),
            DeValue::Table(table) => Self::Table(
                table
                    .into_iter()
                    .map(|(key, value)| (key, from_toml(value)))
                    .collect(),
            ),
        }
    }
}

fn from_toml(value: Spanned<DeValue<'_>>) -> Node<'_> {
    Spanned::new(value.span(), value.into_inner().into())
}

/// Converts JSON. Null keys and elements are omitted; a bare null becomes the text "null".
pub fn from_json(value: &Json) -> Node<'_> {
    node_of_json(value, &mut 0)
}

/// Converts JSON. `position` is the next unused sequence number.
fn node_of_json<'i>(value: &'i Json, position: &mut usize) -> Node<'i> {
    let start = *position;
    *position += 1;
    let value = match value {
        Json::Null => Value::String("null".into()),
        Json::Bool(value) => Value::Boolean(*value),
        Json::String(text) => Value::String(text.into()),
        Json::Number(number) => {
            let is_whole = number.is_i64() || number.is_u64();
            let number = Number {
                text: number.to_string(),
                radix: 10,
            };
            if is_whole {
                Value::Integer(number)
            } else {
                Value::Float(number)
            }
        }
        Json::Array(list) => {
            let set = list.iter().filter(|value| !value.is_null());
            Value::Array(set.map(|value| node_of_json(value, position)).collect())
        }
        Json::Object(table) => {
            let set = table.iter().filter(|(_, value)| !value.is_null());
            let entries = set.map(|(key, value)| {
                let at = *position;
                *position += 1;
                let key = Spanned::new(at..*position, Cow::from(key));
                (key, node_of_json(value, position))
            });
            Value::Table(entries.collect())
        }
    };
    Spanned::new(start..*position, value)
}

//! DTA reports as lines of text: parses the words of `hopwise report` and of scripts into DTA operations.
//!
//! ```text
//! key-write store=1 key=10.0.0.1:1234>10.0.0.2:80/6 data=0000000b
//! append list=3 entry=a0a1a2a3 essential priority=high
//! key-increment store=2 key=10.0.0.1 by=5
//! postcard store=3 key=10.0.0.1:1234>10.0.0.2:80/6 hop=2 path-len=3 value=12
//! ```
//!
//! The first word is the operation. The other words follow in any order; each may occur once, except `entry`.

use std::str::FromStr;

use wire::dta::{MergeOp, Operation, Priority};

use crate::fields::unhex;
use crate::key::Key;

/// Length of the longest line, bytes.
pub const MAX_LINE: usize = 2048;

/// Bytes parsed from text; a named type, because command-line options hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// Parses hexadecimal digits. Ignores spaces, colons, underscores and a leading 0x.
///
/// # Errors
/// A message if the text is not hexadecimal bytes.
pub fn hex(text: &str) -> Result<Bytes, String> {
    let digits: String = text
        .chars()
        .filter(|letter| !matches!(letter, ' ' | ':' | '_'))
        .collect();
    let bytes = unhex(digits.strip_prefix("0x").unwrap_or(&digits));
    bytes.filter(|bytes| !bytes.is_empty()).map(Bytes).ok_or_else(|| {
        format!("{text:?} is not bytes; write pairs of hexadecimal digits, such as 0000000b0000000c")
    })
}

/// Parses a key: a flow, an address, a number, bytes, or several of these separated by commas.
///
/// # Errors
/// A message if the text is not a key.
pub fn key(text: &str) -> Result<Bytes, String> {
    text.parse::<Key>().map(|key| Bytes(key.bytes().to_vec()))
}

/// Parses the name of a sketch merge operation.
///
/// # Errors
/// A message if the text is not a merge operation.
pub fn merge_op(text: &str) -> Result<MergeOp, String> {
    MergeOp::from_name(text).ok_or_else(|| "write sum, max, min or sample".to_owned())
}

wire::named! {
    /// The reason why a line is not a valid report.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LineError, name {
        /// The line is longer than [`MAX_LINE`].
        TooLong => "too_long",
        /// The line is not UTF-8.
        NotText => "not_text",
        /// The line is empty, or there is more than one line.
        NotOneLine => "not_one_line",
        /// The first word is not an operation.
        UnknownOperation => "unknown_operation",
        /// The operation does not accept this word.
        UnknownWord => "unknown_word",
        /// A word that may occur once is repeated.
        RepeatedWord => "repeated_word",
        /// The operation needs a word that is missing.
        MissingWord => "missing_word",
        /// A word's value cannot be parsed.
        BadValue => "bad_value",
        /// A value exceeds the limits of DTA.
        OutOfBounds => "out_of_bounds",
    }
}

/// A report that was parsed from a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    kind: Kind,
    /// Priority of the report under congestion.
    pub priority: Priority,
    /// Send with DTA's essential flag, so that the translator delivers it reliably.
    pub essential: bool,
    /// Notify the collector's CPU when the report is written.
    pub immediate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    KeyWrite {
        store: u16,
        copies: u8,
        key: Vec<u8>,
        data: Vec<u8>,
    },
    Append {
        list: u32,
        entry_len: u16,
        entries: Vec<u8>,
    },
    KeyIncrement {
        store: u16,
        copies: u8,
        key: Vec<u8>,
        delta: u64,
    },
    Postcard {
        store: u16,
        key: Vec<u8>,
        hop: u8,
        path_len: u8,
        value: u32,
    },
}

impl ReportLine {
    /// Parses a line, with or without a final line break, and checks it against DTA's limits.
    ///
    /// # Errors
    /// [`LineError`] if the line is not a valid report.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        if line.len() > MAX_LINE {
            return Err(LineError::TooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.contains('\n') {
            return Err(LineError::NotOneLine);
        }
        let mut words = text.split_ascii_whitespace();
        let operation = words.next().ok_or(LineError::NotOneLine)?;
        let names = names_of(operation).ok_or(LineError::UnknownOperation)?;
        let words = Words::read(words, names)?;
        let report = Self {
            kind: words.kind(operation)?,
            priority: words.priority()?,
            essential: words.has("essential"),
            immediate: words.has("immediate"),
        };
        report.operation().check().map_err(|_| LineError::OutOfBounds)?;
        Ok(report)
    }

    /// Returns the operation of the report.
    pub fn operation(&self) -> Operation<'_> {
        match &self.kind {
            Kind::KeyWrite {
                store,
                copies,
                key,
                data,
            } => Operation::KeyWrite {
                copies: *copies,
                store: *store,
                key,
                data,
            },
            Kind::Append {
                list,
                entry_len,
                entries,
            } => Operation::Append {
                list: *list,
                entry_len: *entry_len,
                entries,
            },
            Kind::KeyIncrement {
                store,
                copies,
                key,
                delta,
            } => Operation::KeyIncrement {
                copies: *copies,
                store: *store,
                delta: *delta,
                key,
            },
            Kind::Postcard {
                store,
                key,
                hop,
                path_len,
                value,
            } => Operation::Postcard {
                hop: *hop,
                path_len: *path_len,
                store: *store,
                value: *value,
                key,
            },
        }
    }
}

/// Returns the names of the words that an operation accepts with a value.
fn names_of(operation: &str) -> Option<&'static [&'static str]> {
    match operation {
        "key-write" => Some(&["store", "key", "data", "copies"]),
        "append" => Some(&["list", "entry"]),
        "key-increment" => Some(&["store", "key", "by", "copies"]),
        "postcard" => Some(&["store", "key", "hop", "path-len", "value"]),
        _ => None,
    }
}

/// The words after the operation as (name, value) pairs; flags have an empty value.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn read(words: impl Iterator<Item = &'a str>, names: &[&str]) -> Result<Self, LineError> {
        let mut read: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name == "priority" || names.contains(&name) => (name, value),
                None if matches!(word, "essential" | "immediate") => (word, ""),
                _ => return Err(LineError::UnknownWord),
            };
            if name != "entry" && read.iter().any(|(other, _)| *other == name) {
                return Err(LineError::RepeatedWord);
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(word, _)| *word == name)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(word, _)| *word == name)
            .map(|(_, value)| *value)
    }

    fn single(&self, name: &str) -> Result<&'a str, LineError> {
        self.values(name).next().ok_or(LineError::MissingWord)
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, LineError> {
        self.single(name)?.parse().map_err(|_| LineError::BadValue)
    }

    fn number_or<T: FromStr>(&self, name: &str, default: T) -> Result<T, LineError> {
        if self.has(name) {
            self.number(name)
        } else {
            Ok(default)
        }
    }

    fn key(&self) -> Result<Vec<u8>, LineError> {
        key(self.single("key")?)
            .map(|bytes| bytes.0)
            .map_err(|_| LineError::BadValue)
    }

    fn priority(&self) -> Result<Priority, LineError> {
        match self.values("priority").next() {
            Some("low") => Ok(Priority::Low),
            None | Some("medium") => Ok(Priority::Medium),
            Some("high") => Ok(Priority::High),
            Some(_) => Err(LineError::BadValue),
        }
    }

    fn kind(&self, operation: &str) -> Result<Kind, LineError> {
        if operation == "append" {
            return self.append();
        }
        let store = self.number("store")?;
        let key = self.key()?;
        Ok(match operation {
            "key-write" => {
                let data = hex(self.single("data")?).map_err(|_| LineError::BadValue)?.0;
                Kind::KeyWrite {
                    store,
                    copies: self.number_or("copies", 2)?,
                    key,
                    data,
                }
            }
            "key-increment" => Kind::KeyIncrement {
                store,
                copies: self.number_or("copies", 2)?,
                key,
                delta: self.number_or("by", 1)?,
            },
            _ => Kind::Postcard {
                store,
                key,
                hop: self.number("hop")?,
                path_len: self.number_or("path-len", 0)?,
                value: self.number("value")?,
            },
        })
    }

    fn append(&self) -> Result<Kind, LineError> {
        let list = self.number("list")?;
        let mut entries = Vec::new();
        let mut entry_len = 0;
        for entry in self.values("entry") {
            let entry = hex(entry).map_err(|_| LineError::BadValue)?.0;
            if entry_len != 0 && entry.len() != entry_len {
                return Err(LineError::BadValue);
            }
            entry_len = entry.len();
            entries.extend(entry);
        }
        if entries.is_empty() {
            return Err(LineError::MissingWord);
        }
        let entry_len = u16::try_from(entry_len).map_err(|_| LineError::OutOfBounds)?;
        Ok(Kind::Append {
            list,
            entry_len,
            entries,
        })
    }
}

#[cfg(test)]
mod tests;

//! Options, result table and errors of SQL queries, see [`crate::Reader::query`].

use std::fmt;
use std::time::Duration;

use collector::event::Nanos;

use crate::rows::int;

/// One value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// The NULL value of SQL.
    Null,
    /// A signed whole number.
    Int(i64),
    /// A floating-point number (SQLite REAL).
    Real(f64),
    /// Text, with invalid UTF-8 replaced.
    Text(String),
    /// Raw bytes (SQLite BLOB).
    Blob(Vec<u8>),
}

/// Returns a time (ns) as a query parameter, clamped to the maximum that SQLite can store.
pub(crate) fn nanos(time: u64) -> Value {
    Value::Int(int(time))
}

/// Limits of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryOptions {
    /// Only files with records at or after this time. `None`: from the beginning.
    pub from: Option<Nanos>,
    /// Only files with records before or at this time. `None`: to the end.
    pub to: Option<Nanos>,
    /// Maximum number of rows; more set [`Table::truncated`].
    pub max_rows: usize,
    /// Maximum bytes of values; more set [`Table::truncated`].
    pub max_bytes: usize,
    /// Maximum run time, after which the query fails.
    pub timeout: Duration,
    /// Values for `?1`, `?2`, …
    pub params: Vec<Value>,
}

impl Default for QueryOptions {
    /// Returns the defaults: all files, 10,000 rows, 64 MiB, 10 s, no parameters.
    fn default() -> Self {
        Self {
            from: None,
            to: None,
            max_rows: 10_000,
            max_bytes: 64 << 20,
            timeout: Duration::from_secs(10),
            params: Vec::new(),
        }
    }
}

/// The answer to a query.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
    /// There were more rows than the limits allow.
    pub truncated: bool,
    /// Warnings for the user, such as about files that were left out.
    pub notes: Vec<String>,
}

/// The kind of a query error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryErrorKind {
    /// The SQL is wrong.
    Syntax,
    /// The statement is not a pure query.
    Refused,
    /// The query took longer than allowed.
    Timeout,
    /// A value, the text of the query or its nesting is larger than allowed.
    TooLarge,
    /// The store's files could not be read.
    Storage,
}

/// The reason why a query failed, and a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryError {
    /// The kind of the error.
    pub kind: QueryErrorKind,
    /// The reason and the remedy, in one sentence.
    pub message: String,
    /// Position in the text of the query (bytes from its start), if SQLite reports it.
    pub offset: Option<usize>,
}

impl QueryError {
    pub(crate) fn new(kind: QueryErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            offset: None,
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QueryError {}

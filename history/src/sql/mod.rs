//! Runs SQL of users and untrusted clients in separate processes.
//!
//! SQLite can be interrupted only between two steps of its virtual machine, and a hostile query can make one step last minutes
//! or exhaust memory. Each query therefore runs in a helper process (`hopwise sql-helper DIR`) with resource limits, which is
//! killed on timeout or when the client disconnects. Helpers that answer in time are reused.
//!
//! Messages are lines of JSON: a [`Request`] goes in; a header comes out, followed by as many bytes as it announces.

pub mod helper;
mod pool;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use pool::{Failure, Pool, QueryFailure};

/// Maximum bytes of a response as JSON, and of the values in it.
pub const MAX_BYTES: usize = 8 << 20;

/// A query with its limits.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Request {
    /// A single SELECT statement.
    pub sql: String,
    /// Only files with records at or after this time, ns since 1970.
    pub from: Option<u64>,
    /// Only files with records at or before this time, ns since 1970.
    pub to: Option<u64>,
    /// Maximum number of rows.
    pub max_rows: usize,
    /// Time limit of the query.
    pub timeout: Duration,
    /// Warnings to add to the response.
    pub notes: Vec<String>,
}

/// The first line of a helper's response.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
enum Header {
    /// [`Rows`] as JSON follow.
    Answer {
        /// Length of the rows as JSON, bytes.
        length: usize,
    },
    /// The query was refused; nothing follows.
    Refused {
        /// True if the store is at fault, false if the query is.
        storage: bool,
        /// The error, in one sentence.
        message: String,
        /// Position in the text of the query, bytes from its start.
        offset: Option<usize>,
    },
}

/// The response of `/query`.
#[derive(Serialize, Deserialize, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows; a cell is a string, a number or null.
    pub rows: Vec<Vec<serde_json::Value>>,
    /// True when there are more rows than the limits allow.
    pub truncated: bool,
    /// Remarks on the response.
    pub notes: Vec<String>,
    /// Duration of the query, milliseconds.
    pub elapsed_ms: f64,
}

//! SQL of users and of untrusted clients, in separate processes.
//!
//! SQLite can be stopped between two steps of its virtual machine only, and a hostile query can make one step last minutes, or
//! fill the memory. So each query runs in a helper process (`hopwise sql-helper DIR`), which has limits of its own and is killed
//! when the time is over or the client has gone. Helpers that answered in time are used again.
//!
//! Messages are lines of JSON: a [`Request`] goes in; a header comes out, followed by as many bytes as it states.

pub mod helper;
mod pool;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use pool::{Failure, Pool, QueryFailure};

/// A query with its limits.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Request {
    /// A single SELECT statement.
    pub sql: String,
    /// Only files with records at or after.
    pub from: Option<u64>,
    /// Only files with records at or before.
    pub to: Option<u64>,
    /// Maximum number of rows.
    pub max_rows: usize,
    /// Time limit of the query.
    pub timeout: Duration,
    /// Remarks that the response has in addition to those of the files.
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
        /// Whether the store is at fault, not the query.
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

/// Bytes of a response as JSON, and of the values in it.
pub const MAX_BYTES: usize = 8 << 20;

//! The output of a command-line program: error messages, JSON lines, aligned tables, bars, numbers with units, and progress
//! on standard error.
//!
//! This crate formats output and knows nothing about its content. Text goes into `String`s and is written once per record, so that
//! a pipe that is closed early is noticed between two records.
//!
//! # Example
//! ```
//! use terminal::{Align, Table, units};
//!
//! let mut table = Table::new([("node", Align::Left), ("latency", Align::Right)]);
//! table.row(["101".to_owned(), units::nanos(1_500)]);
//! table.row(["102".to_owned(), units::nanos(950)]);
//! assert_eq!(table.render(), "node  latency\n101   1.50 us\n102    950 ns\n");
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod json;
pub mod plot;
pub mod progress;
mod screen;
pub mod table;
pub mod units;

pub use error::CliError;
pub use screen::{Terminal, Tone};
pub use table::{Align, Table};

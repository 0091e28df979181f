//! The output of a command-line program: error messages, JSON lines, aligned tables, bars, numbers with units, and progress
//! on standard error.
//!
//! Nothing in here decides what is shown, only how. Text goes into `String`s and is written once per record, so that a
//! reader who closes the pipe early is noticed at the next record and not in the middle of one.
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

//! Output of command-line programs: error messages, JSON lines, aligned tables, bars, numbers with units, and progress on
//! standard error. Also man pages and shell completions, and starting the other programs of this project.
//!
//! The crate formats output without knowing its content. Text goes into a `String` and is written once per record, so that a
//! pipe closed by the reader is noticed between two records.
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

mod clean;
mod error;
pub mod generate;
pub mod json;
mod output;
pub mod plot;
pub mod programs;
pub mod progress;
mod screen;
pub mod table;
pub mod units;

pub use clean::printable;
pub use error::CliError;
pub use output::{Output, exit_code, note, print, print_data, stderr, stderr_json, stdout};
pub use screen::{Terminal, Tone};
pub use table::{Align, Table};
pub mod text;

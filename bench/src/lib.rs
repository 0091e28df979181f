//! Benchmarks of the program, and the experiments of the papers with their tables and plots.
//!
//! [`cases`] is `hopwise bench`, [`experiment`] is `hopwise experiment`; both use `figures`; `svg` draws plots.
#![forbid(unsafe_code)]

pub mod cases;
pub mod experiment;
mod figures;
mod page;
mod program;
mod svg;

pub use cases::core_time;
pub use program::{Processed, Program, Receive, Switch, Totals};

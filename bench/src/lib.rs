//! Benchmarks of the program, and the experiments of the papers with their tables and plots.
//!
//! [`cases`] is `hopwise bench`, [`experiment`] is `hopwise experiment`; both use `figures`; `svg` draws plots.
#![forbid(unsafe_code)]

pub mod cases;
pub mod experiment;
mod figures;
mod program;
mod svg;

pub use program::{Program, Switch, Totals};

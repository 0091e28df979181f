//! Benchmarks of the program, and the experiments of the papers with their tables and plots: the library of the program
//! `hopwise-bench`.
//!
//! `cases` is `hopwise bench`, `experiment` is `hopwise experiment`; both use `figures`; `svg` draws plots.
#![forbid(unsafe_code)]

mod cases;
mod command;
mod experiment;
mod figures;
mod page;
mod svg;

pub use command::run;

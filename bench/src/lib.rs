//! Benchmarks of the program: the library of the program `hopwise-bench`, which also runs the experiments of the papers.
//!
//! `cases`: the benchmarks of `hopwise bench`; `page`: their pages.
#![forbid(unsafe_code)]

mod cases;
mod command;
mod page;

pub use command::run;

//! Library of the program `hopwise-bench`: `cases` has the benchmarks of `hopwise bench`, `page` generates their page, and
//! `command` also runs the experiments of papers (crate `experiments`).
#![forbid(unsafe_code)]

mod cases;
mod command;
mod page;

pub use command::run;

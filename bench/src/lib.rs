//! Benchmarks of the program: the library of the program `hopwise-bench`, which also runs the experiments of the papers.
//!
//! `cases` is `hopwise bench`, with the pages that `page` makes of its figures.
#![forbid(unsafe_code)]

mod cases;
mod command;
mod page;

pub use command::run;

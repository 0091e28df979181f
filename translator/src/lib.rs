//! What stands between switches and collector: many reports in, few out.
//!
//! No I/O, no clock, no thread: datagrams and the time go in, datagrams come out.
#![forbid(unsafe_code)]

pub mod dta;
pub mod stage;
pub mod workload;

pub use stage::{Config, FirstStage, Out, Spread};

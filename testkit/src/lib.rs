//! Shared by the tests of several crates, and by the benchmarks. No other production crate depends on it.
//!
//! [`vectors`] reads `vectors/`, [`meaning`] and [`dta`] describe packets as the vectors expect it, [`rewrite`] parses and writes
//! packets. [`reports`] writes reports and records the output of a collector, [`network`] generates random traffic of such reports;
//! [`datagrams`] generates almost valid datagrams, [`records`] has records for a store, [`rdma`] has a requester and a responder with
//! an unreliable network between them. [`texts`] fuzzes text formats, [`rng`] has seeded random numbers, [`allocations`] counts allocations, [`modules`] reads the
//! module graph of a crate, [`compare_page`] checks generated pages, [`workload`] has the input of benchmarks, [`descriptors`] opens again what a test has closed,
//! [`Companion`] checks the programs beside `hopwise`.
#![deny(unsafe_code)]

pub mod allocations;
mod companion;
pub mod datagrams;
pub mod descriptors;
pub mod dta;
pub mod lldp;
pub mod meaning;
pub mod modules;
pub mod network;
mod object;
mod pages;
pub mod rdma;
pub mod records;
pub mod reports;
pub mod rewrite;
pub mod rng;
pub mod texts;
pub mod vectors;
pub mod workload;

pub use companion::Companion;
pub use pages::compare_page;

//! Helpers for the tests of several crates and for the benchmarks. No other production crate depends on this one.
//!
//! - Test vectors: [`vectors`] reads `vectors/`; [`meaning`], [`dta`] and [`lldp`] describe packets as the vectors expect it;
//!   [`rewrite`] parses packets and writes them again.
//! - Generators: [`reports`] writes reports and records a collector's output; [`network`] generates random traffic of such
//!   reports; [`datagrams`] generates almost valid datagrams; [`records`] has records for a store; [`workload`] has the input of
//!   benchmarks.
//! - Simulation: [`rdma`] has a requester and a responder with an unreliable network between them.
//! - Tools: [`texts`] fuzzes text formats, [`rng`] has seeded random numbers, [`allocations`] counts allocations, [`modules`]
//!   reads the module graph of a crate, [`compare_page`] checks generated pages, [`descriptors`] reopens resources that a test
//!   has closed, [`Companion`] checks the programs beside `hopwise`.
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

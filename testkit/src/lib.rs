//! What the tests of several crates share. Only dev-dependencies name this crate.
//!
//! [`vectors`] reads `vectors/`, [`meaning`] and [`dta`] write what bytes mean as vectors expect it, [`rewrite`] writes again what
//! was read. [`reports`] writes reports and records what a collector concludes from them, [`network`] makes random traffic of them;
//! [`datagrams`] are random bytes close to reports, [`records`] are what a store gets, [`rdma`] is a requester and a responder with a
//! bad network between them. [`rng`] are seeded random numbers, [`allocations`] counts allocations, [`modules`] reads the module graph of a crate,
//! [`compare_page`] checks generated pages.
#![deny(unsafe_code)]

pub mod allocations;
pub mod datagrams;
pub mod dta;
pub mod meaning;
pub mod modules;
pub mod network;
mod pages;
pub mod rdma;
pub mod records;
pub mod reports;
pub mod rewrite;
pub mod rng;
pub mod vectors;

pub use pages::compare_page;

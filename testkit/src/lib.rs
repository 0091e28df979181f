//! What the tests of several crates share. Only dev-dependencies name this crate.
//!
//! [`vectors`] reads `vectors/`, [`meaning`] and [`dta`] write what bytes mean as vectors expect it, [`rewrite`] writes again what
//! was read. [`dice`] are seeded random numbers, [`allocations`] counts allocations, [`modules`] reads the module graph of a crate,
//! [`compare_page`] checks generated pages.
#![deny(unsafe_code)]

pub mod allocations;
pub mod dice;
pub mod dta;
pub mod meaning;
pub mod modules;
mod pages;
pub mod rewrite;
pub mod vectors;

pub use pages::compare_page;

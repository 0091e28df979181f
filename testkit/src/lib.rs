//! What the tests of several crates share. Only dev-dependencies name this crate.
#![forbid(unsafe_code)]

pub mod modules;
mod pages;

pub use pages::compare_page;

//! The role of a switch: forwarding between interfaces with INT, with its thread, its settings and its view.
#![forbid(unsafe_code)]

#[cfg(test)]
mod for_tests;
pub mod role;
pub mod settings;

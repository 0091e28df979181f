//! The switch role: forwards packets between Linux interfaces as an INT node (source, transit or sink), with its thread,
//! settings and views.
#![forbid(unsafe_code)]

#[cfg(test)]
mod for_tests;
pub mod role;
pub mod settings;

//! Settings of a TOML file: declared once, read with every problem located, shown, and explained in a manual.
//!
//! [`read`] locates problems; [`setting`] is what a setting is, with the macros that declare tables and choices; [`values`] are the
//! plain values: numbers, durations, sizes, addresses; [`show`] writes settings as TOML and JSON, and the page of the manual.
#![forbid(unsafe_code)]

pub mod read;
pub mod setting;
pub mod show;
pub mod values;

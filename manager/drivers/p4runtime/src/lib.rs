//! Driver for switches that are controlled by P4Runtime.
//!
//! A [`map`] assigns table entries of a P4 program to the manager's rules. [`program`] resolves the map against the P4Info
//! that the device returns, and [`translate`] converts rules into [`entry`] values and back; neither does I/O. [`client`]
//! implements the P4Runtime client, and [`driver`] executes the manager's requests.
#![forbid(unsafe_code)]

pub mod binary;
pub mod client;
pub mod commands;
pub mod counters;
pub mod driver;
pub mod entry;
pub mod map;
pub mod message;
pub mod notation;
pub mod program;
pub mod programs;
mod refused;
pub mod roles;
mod rules;
mod sampler;
pub mod text;
pub mod translate;
mod variable;

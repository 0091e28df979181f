//! The driver of P4Runtime switches.
//!
//! A [`map`] assigns entries of a program's tables to the manager's rules. [`program`] compares it with the P4Info that the
//! device returns; [`translate`] converts rules into [`entry`] values and back. [`client`] is the P4Runtime client, and
//! [`driver`] executes the manager's requests. Up to `translate` nothing does I/O.
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

//! Bytes to fields and back: Ethernet to UDP, INT, telemetry reports, postcards, IOAM.
//!
//! Everything here is a view over borrowed bytes with a checked constructor, or a plain `Copy` representation.
//! Nothing allocates, logs, or knows the time. After a checked constructor returned `Ok` no accessor panics.
#![no_std]
#![forbid(unsafe_code)]

pub mod flow;
pub mod hop;

pub use flow::FlowKey;
pub use hop::{Hop, Items};

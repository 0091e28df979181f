//! Bytes to fields and back: Ethernet to UDP, INT, telemetry reports, postcards, IOAM, DTA, RoCEv2.
//!
//! Everything here is a view over borrowed bytes with a checked constructor, or a plain `Copy` representation.
//! Nothing allocates, logs, or knows the time. After a checked constructor returned `Ok` no accessor panics.
#![no_std]
#![forbid(unsafe_code)]

pub mod aggregate;
mod bytes;
pub mod checksum;
pub mod crc;
pub mod dta;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod geneve;
pub mod gre;
pub mod hop;
pub mod int;
pub mod ioam;
pub mod ipv4;
pub mod ipv6;
pub mod mpls;
pub mod packet;
pub mod profile;
pub mod refusal;
pub mod report;
pub mod roce;
pub mod tcp;
pub mod udp;
pub mod vxlan;

pub use aggregate::Aggregate;
pub use flow::FlowKey;
pub use frame::{Datagram, datagram};
pub use hop::{Hop, Items};
pub use int::{Int, Layout, Stack};
pub use ioam::Ioam;
pub use profile::{Dialect, Profile, TelemetryPorts};
pub use refusal::{Refusal, Unwritten};
pub use report::{Annotations, Decoder, Flags, Peek, Report, Reports, Single, Version, peek};

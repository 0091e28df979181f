//! Parsers and serializers for every packet format in the project: Ethernet to UDP, tunnels, INT 0.5 to 2.1, Telemetry
//! Reports 0.5 to 2.0, postcard aggregates, IOAM, DTA, RoCEv2 and LLDP.
//!
//! Parsed values are views over borrowed bytes with a checked constructor, or plain `Copy` structs (named `Repr` for
//! headers). Nothing allocates, logs or reads a clock. After a checked constructor returns `Ok`, no accessor panics.
//! Malformed input is refused with a [`Refusal`], one value per cause, so that causes can be counted.
//!
//! # Example
//! From a captured frame to the hops of the reports in it:
//! ```
//! use wire::{Decoder, Profile};
//!
//! let frame = testkit::vectors::bytes("tr20_int"); // Ethernet, IPv4, UDP, one Telemetry Report 2.0
//! let datagram = wire::datagram(&frame)?;
//! assert_eq!(datagram.dst_port, 32766);
//!
//! let mut decoder = Decoder::new(Profile::default());
//! for report in decoder.reports(datagram.payload) {
//!     let report = report?;
//!     assert_eq!((report.node_id, report.seq), (Some(3), 2748));
//!     assert_eq!(report.flow.map(|flow| flow.to_string()).as_deref(), Some("10.0.0.1:1234>10.0.0.2:80/6"));
//!     let hop = report.hop(0);
//!     assert_eq!((hop.ingress_if, hop.egress_if, hop.queue_occupancy), (Some(7), Some(8), Some(64)));
//! }
//! # Ok::<(), wire::Refusal>(())
//! ```
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
pub mod lldp;
pub mod mpls;
mod named;
pub mod packet;
pub mod profile;
pub mod refusal;
pub mod report;
pub mod roce;
mod siphash;
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
pub use refusal::{EmitError, Refusal, RefusalCounts};
pub use report::{Annotations, Decoder, Flags, Peek, Report, Reports, Single, Version, peek, peek_header};

//! The data plane: an executable INT switch, and a fabric of such switches in simulated time.
//!
//! It has no I/O, no clock and no hidden randomness: bytes, ports, timestamps and queue occupancies go in; bytes come out.
//!
//! - [`switch`]: one switch. It parses a packet and hands it to the parts that process it: [`watchlist`] (which flows are
//!   measured), [`sampling`] (which of their packets), `source` (inserts INT), `transit` (adds a record), `sink` (reports and
//!   removes INT), [`filter`] (which packets are reported), [`report`] (writes reports). They are the reference for the same
//!   switch in P4 or BPF.
//! - [`flow`]: addresses and flows of simulated hosts.
//! - [`fabric`]: topologies, links, queues, traffic and faults around such switches, with the ground truth about every packet.
//! - [`router`]: a router in simulated time around one such switch, which the `switch` role runs between real interfaces.
//! - [`dta`]: a reporter of Direct Telemetry Access, which writes into a collector's memory.
//! - [`demo`]: a scripted leaf–spine network for demonstrations.
//!
//! # Example
//! A line of three switches, one flow of ten packets per second, and a report by the sink for each packet:
//! ```
//! use dataplane::{Config, Fabric, FabricSink, FlowSpec, Reporter, Topology, Watch, fabric};
//!
//! #[derive(Default)]
//! struct Nodes(Vec<u32>);
//! impl FabricSink for Nodes {
//!     fn report(&mut self, _now: u64, _from: &Reporter, udp_payload: &[u8]) {
//!         for report in wire::Decoder::new(wire::Profile::default()).reports(udp_payload).flatten() {
//!             self.0.extend((0..report.hop_count()).filter_map(|i| report.hop(i).node_id));
//!         }
//!     }
//! }
//!
//! let topology = Topology::line(3, fabric::Wire::default())?;
//! let config = Config { watchlist: Watch::new(detect::Match::default()).into(), ..Config::default() };
//! let mut fabric = Fabric::new(topology, config, 1)?;
//! fabric.add_flow(&FlowSpec::new(10_001, 10_002, 5_000, 80))?;
//! let mut nodes = Nodes::default();
//! fabric.run_until(50_000_000, &mut nodes); // ns: one packet
//! assert_eq!(nodes.0.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod config;
pub mod demo;
pub mod dta;
mod export;
pub mod fabric;
pub mod filter;
pub mod flow;
mod l4_checksum;
mod node;
mod packet;
pub mod report;
pub mod router;
pub mod sampling;
pub mod sf;
mod sink;
mod source;
pub mod switch;
mod transit;
mod visit;
pub mod watchlist;

pub use fabric::{
    Action, Config, Fabric, FabricSink, FlowId, FlowSpec, GroundTruth, Pattern, Reporter, Topology,
};
pub use filter::{Filter, Filters};
pub use switch::Switch;
pub use watchlist::{Role, Roles, Watch, Watchlist};

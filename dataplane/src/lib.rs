//! What a switch does: the executable INT switch, and a fabric of such switches in simulated time.
//!
//! No I/O, no clock, no hidden randomness: bytes, ports, time stamps and queue occupancies go in; bytes come out.
//!
//! - [`switch`]: one switch. It parses a packet and hands it to its parts, each of which processes the packet by itself:
//!   [`watchlist`] (is the flow watched?), `source` (inserts INT), `transit` (adds a record), `sink` (reports and removes
//!   INT), [`filter`] (is it significant?), [`report`] (writes reports).
//!   They are the specification that the same switch in P4 or BPF has to match.
//! - [`flow`]: addresses and flows.
//! - [`fabric`]: topologies, links, queues, traffic and faults around such switches, with the ground truth of everything.
//! - [`router`]: a router in simulated time around one such switch, which the `switch` role puts between real interfaces.
//! - [`dta`]: a reporter of Direct Telemetry Access: operations on a collector's memory.
//! - [`demo`]: a scripted leaf–spine network for demonstrations.
#![forbid(unsafe_code)]

mod config;
pub mod demo;
pub mod dta;
mod export;
pub mod fabric;
pub mod filter;
pub mod flow;
mod node;
mod packet;
pub mod report;
pub mod router;
pub mod sf;
mod sink;
mod source;
pub mod switch;
mod transit;
mod visit;
pub mod watchlist;
pub mod workload;

pub use fabric::{
    Action, Config, Fabric, FabricError, FabricSink, FlowId, FlowSpec, Pattern, Reporter, Topology, Truth,
};
pub use filter::{Filter, Filters};
pub use switch::Switch;
pub use watchlist::{Role, Roles, Watch, Watchlist};

//! User space's side of detection in the kernel: memory layouts shared with the C programs, the profiles that their decoder
//! reads, and the tables of flows, values and streams.

mod layout;
mod profile;
mod tables;

pub use self::layout::{Counters, FLOW_HOPS, Reason, Record};
pub use self::profile::{PORTS_LEN, PROFILE_LEN, Units, ports, profile};
pub use self::tables::{FlowEntry, HopEntry, MetricEntry, Sizes, StreamEntry, Tables};

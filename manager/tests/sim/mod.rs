//! A network with managers in simulated time.

mod members;
mod net;
mod packet;
mod run;
mod standby;

pub(crate) use run::{Faults, Run, Violation};

/// Nanoseconds per millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// The longest time that a packet spends in a queue and on its link.
pub(crate) const QUEUE: u64 = 20 * MS;

/// The longest path of the simulated networks has this many links, hosts included.
pub(crate) const LINKS: u64 = 6;

/// The longest IP packet of a host, bytes.
pub(crate) const PACKET: u32 = 1500;

//! The aggregator: postcards in, aggregates out. Wire-formats section 4; Alhamed et al., "P4
//! Postcard Telemetry Collector in Packet-Optical Networks", section II.
//!
//! A postcard goes into a register: one for all (Agg, Cor), one for its node (Agg_N, Cor_N), or one for its node and flow
//! (Agg_{N,F}, Cor_{N,F}). A register is sent when it has R postcards, when its first one has waited for the timer, when
//! another node or flow needs the register, or when the stage stops. The table of registers has a fixed size, is allocated
//! once, and is found by CRC-32C of node and flow, as in a switch.

//!
//! No I/O, no clock, no thread: payloads and the time go in, payloads come out.
#![forbid(unsafe_code)]

mod aggregator;
mod config;
mod nodes;
mod postcard;
mod stats;
mod table;
pub mod workload;

pub use aggregator::{Aggregator, Out};
pub use config::{Config, ConfigError, MAX_BYTES, MAX_DESTINATIONS, MAX_REGISTERS, MAX_WAYS, Spread};
pub use nodes::Node;
pub use stats::{Cause, Reason, Sent, Stats};

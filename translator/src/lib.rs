//! The translator of Direct Telemetry Access: reports of switches in, few RDMA operations out. Wire-formats section 5; Langlet et al., "Direct Telemetry
//! Access", sections 3 and 4.2.
//!
//! No I/O, no clock: UDP payloads and the time go in; operations go to a [`Transport`], messages to reporters to an [`Out`].

#![forbid(unsafe_code)]

mod action;
mod age_list;
mod collector;
mod config;
mod control;
mod hash_table;
mod lists;
mod local;
mod meter;
mod paths;
mod received;
mod reporters;
mod sender;
mod sketch;
mod stats;
mod stores;
mod tracker;
mod translator;
mod trigger;
pub mod trigger_text;
pub mod workload;

pub use config::{
    Accept, CollectorConfig, Config, ConfigError, Known, MAX_BYTES, MAX_COLLECTORS, MAX_HOPS, MAX_LISTS,
    MAX_REPORTERS, MAX_SKETCH_REPORTERS, MAX_STORES, Rate, StoreEntry,
};
pub use control::Out;
pub use received::Origin;
pub use stats::{
    Cause, Controls, Copies, Entries, Operations, PRIMITIVES, Postcards, Reason, Reports, Sequences,
    Sketches, Stats,
};
pub use translator::Translator;
pub use trigger::{
    Condition, Field, MAX_CONDITIONS, MAX_ENTRY, MAX_PARTS, MAX_TRIGGERS, Part, Relation, Trigger,
};

//! The Direct Telemetry Access (DTA) translator: turns telemetry reports from switches into few RDMA operations on
//! collector memory (Langlet et al., "Direct Telemetry Access", sections 3 and 4.2).
//!
//! UDP payloads of reports and the time go in. RDMA operations go to a [`Transport`](rdma::transport::Transport), and
//! control messages for reporters to an [`Output`]. There is no I/O and no clock. `docs/reference/wire-formats.md`, section
//! 5, specifies reports, control messages and memory layouts. In names and comments, *artifact* means the code published
//! with the paper, whose report layouts are accepted too.
//!
//! # Example
//! ```
//! use std::net::SocketAddr;
//!
//! use rdma::transport::{Blocked, Credit, RemoteAddr, Transport};
//! use translator::{CollectorConfig, Config, Origin, Output, StoreEntry, Translator};
//! use wire::dta::{Base, Operation, Report, hash::Family, layout::Geometry};
//!
//! /// Records the writes; `rdma::requester::Links` sends them.
//! #[derive(Default)]
//! struct Writes(Vec<(u64, Vec<u8>)>);
//! impl Transport for Writes {
//!     fn credit(&self, _collector: u8, _reliable: bool) -> Credit {
//!         Credit::UNLIMITED
//!     }
//!     fn write(&mut self, _: RemoteAddr, offset: u64, data: &[u8], _: Option<u32>, _: bool) -> Result<(), Blocked> {
//!         self.0.push((offset, data.to_vec()));
//!         Ok(())
//!     }
//!     fn add(&mut self, _: RemoteAddr, _: u64, _: u64, _: Option<u32>) -> Result<(), Blocked> {
//!         Ok(())
//!     }
//! }
//! /// Control messages to reporters.
//! struct Control;
//! impl Output for Control {
//!     fn control(&mut self, _to: SocketAddr, _collector: u8, _payload: &[u8]) {}
//! }
//!
//! // One collector with store 1: slots for 20 bytes under a key.
//! let geometry = Geometry::KeyWrite { slots: 1 << 10, data_len: 20, family: Family::V1 };
//! let memory = CollectorConfig { stores: vec![StoreEntry::new(0, 1, geometry)], ..CollectorConfig::default() };
//! let mut translator = Translator::new(Config { collectors: vec![Some(memory)], ..Config::default() })?;
//!
//! let operation = Operation::KeyWrite { copies: 2, store: 1, key: b"a flow", data: &[5; 20] };
//! let mut payload = [0; 64];
//! let len = Report { base: Base { reporter: 7, ..Base::default() }, operation }.emit(&mut payload)?;
//!
//! let mut writes = Writes::default();
//! let origin = Origin { sender: "192.0.2.1:50000".parse()?, collector: 0 };
//! translator.process(0, origin, &payload[..len], &mut writes, &mut Control);
//! translator.tick(1_000_000, &mut writes);
//! assert_eq!(writes.0.len(), 2); // one write per copy: checksum, then the data
//! assert!(writes.0.iter().all(|(_, slot)| slot[4..24] == [5; 20]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod action;
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
mod section;
mod sender;
mod sketch;
mod stats;
mod stores;
mod tracker;
mod translator;
mod trigger;
pub mod trigger_text;

pub use config::{
    Accept, CollectorConfig, Config, ConfigError, MAX_BYTES, MAX_COLLECTORS, MAX_HOPS, MAX_LISTS,
    MAX_REPORTERS, MAX_SKETCH_REPORTERS, MAX_STORES, PinnedReporter, Rate, StoreEntry,
};
pub use control::Output;
pub use received::Origin;
pub use section::{Section, SectionConfig, SectionStats, Unsent};
pub use sketch::Merged;
pub use stats::{
    Cause, Controls, Copies, Entries, Operations, PRIMITIVES, Postcards, Reason, Reports, Sequences,
    Sketches, Stats,
};
pub use translator::Translator;
pub use trigger::{
    Condition, Field, MAX_CONDITIONS, MAX_ENTRY, MAX_PARTS, MAX_TRIGGERS, Part, Relation, Trigger,
};

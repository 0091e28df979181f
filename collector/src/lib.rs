//! Reports in, events and roll-ups out: per-flow, per-hop, per-queue and per-link state, loss accounting.
//!
//! No socket, clock, thread or file: bytes and `now` go in, results leave through a [`Sink`].
#![forbid(unsafe_code)]

pub mod batch;
pub mod event;

pub use batch::Batch;
pub use event::{Drop, Event, FlowRow, Kind, Loss, Rollup, Sink};

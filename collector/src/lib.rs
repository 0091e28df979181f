//! Reports in, events and roll-ups out: per-flow, per-hop, per-queue and per-link state, loss accounting.
//!
//! No socket, clock, thread or file: bytes and `now` go in, results leave through a [`Sink`].
#![forbid(unsafe_code)]

pub mod batch;
pub mod clock;
pub mod collector;
pub mod config;
pub mod event;
mod flows;
mod hash;
mod index;
mod reading;
mod reports;
pub mod sequence;
pub mod series;
mod sketch;
pub mod sources;
mod state;
pub mod stats;
mod sweep;
mod tell;
mod update;
pub mod view;
pub mod workload;

pub use batch::Batch;
pub use collector::{Collector, Datagram};
pub use config::{Clocks, Config, Profile, Rollups};
pub use event::{Drop, Event, FlowRow, Kind, Loss, Rollup, Sink};
pub use sequence::{Sequencer, StreamId, StreamView};
pub use series::{SeriesView, Summary};
pub use sources::SourceView;
pub use stats::{Balance, Stats, Table, Tables};
pub use view::{FlowView, HopView};

//! Reports in, events and roll-ups out: per-flow, per-hop, per-queue and per-link state, loss accounting.
//!
//! No socket, clock, thread or file: bytes and `now` go in, results leave through a [`Sink`]. Equal input gives equal
//! output, to the last record id.
//!
//! # The walk of a report
//!
//! 1. [`Collector::handle`] takes a burst. The common report is read by constant offsets (`wire`'s `Brief`), its number is
//!    accounted for ([`sequence`]), and the memory that its flow lies in is asked for; up to 16 reports are under way.
//!    Everything else is decoded whole (`reports`).
//! 2. The flow is found or admitted (`flows`, over `index`: bounded, and a flood pushes out nothing that is busy).
//! 3. Each hop is compared with what the flow's path remembers; its values go to the node, queue and link they belong to
//!    ([`series`]), whose places the path remembers too. A value that is neither a new extreme of its second nor further
//!    from the last told than its threshold costs a few instructions (`update`).
//! 4. What is news leaves as an [`Event`] (`tell`).
//! 5. [`Collector::tick`] brings what time brings: finished seconds and minutes, expiry, the periodic push (`sweep`), a
//!    bounded part of it per call.
//!
//! All tables are reserved at the start and count what they turn away ([`Tables`]); what went in, came out or was dropped
//! adds up ([`Stats`]). Nothing is allocated per report.
#![forbid(unsafe_code)]

pub mod batch;
mod collector;
pub mod config;
mod decode;
pub mod event;
mod hash;
mod index;
mod join;
mod postcards;
pub mod sequence;
mod sources;
mod state;
pub mod stats;
mod stream;
pub mod workload;

pub use batch::Batch;
pub use collector::{AGGREGATE_VERSION, Collector, suppressed};
pub use config::{Clocks, Config, Profile, Rollups};
pub use decode::Datagram;
pub use event::{Drop, Event, FlowRow, Kind, Loss, Rollup, Sink};
pub use sequence::{Run, Sequencer, StreamView};
pub use sources::SourceView;
pub use state::removals::Removed;
pub use state::series::{SeriesView, Summary};
pub use state::suppressed::{SuppressedFlow, SuppressedHop, SuppressedKey};
pub use state::view::{FlowView, HopView};
pub use stats::{Balance, Stats, Table, Tables};
pub use stream::StreamId;

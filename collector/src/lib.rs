//! The collector library: decodes INT reports, and turns them into events and rollups. Keeps per-flow, per-hop, per-queue and
//! per-link state, and accounts for lost reports.
//!
//! It uses no socket, clock, thread or file: bytes and `now` go in, results leave through an [`Output`]. Equal input gives
//! equal output, including the record ids.
//!
//! # The path of a report
//!
//! 1. [`Collector::handle`] receives a burst. The common report is read at constant offsets (`wire`'s `Brief`), its sequence
//!    number is accounted for ([`sequence`]), and the memory of its flow is prefetched; up to 16 reports are in flight. All
//!    other reports are decoded in full (`collector::report`).
//! 2. The flow is found or admitted (`state::flows`, over `index`: bounded, and a flood evicts no busy flow).
//! 3. Each hop is compared with the stored path of the flow; its values go to the series of its node, queue and link
//!    (`state::series`), whose slots are stored with the path. A value inside its deadband, that is, neither a new extreme of
//!    its second nor further from the last reported value than its threshold, costs a few instructions (`state::update`).
//! 4. A significant change leaves as an [`Event`] (`state::emit`).
//! 5. [`Collector::tick`] does timer-driven work (`collector::time`), a bounded part per call: finished seconds and minutes,
//!    expiry, the periodic push.
//!
//! All tables are reserved at the start and count refused entries ([`Tables`]). The counters of input, output and drops balance
//! ([`Stats`]). Nothing is allocated per report.
//!
//! # Levels
//!
//! A module uses only lower levels: `event`, `stats`, `config` and small tools; then `decode`; `state`; `join`, `postcards` and
//! `sequence`; and [`Collector`] at the top.
//!
//! # Example
//! ```
//! use collector::{Batch, Collector, Config, Datagram, Kind};
//!
//! let mut collector = Collector::new(Config::default());
//! let mut batch = Batch::with_capacity(256); // an `Output` that stores what it receives
//!
//! // A sink report of a packet that passed nodes 1, 2 and 3.
//! let payload = testkit::vectors::bytes("tr20_emb");
//! let received = 1_700_000_000_000_000_000;
//! let source = std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
//! collector.handle(&[Datagram { payload: &payload, source, src_port: 40_000, listener: 0, received }], &mut batch);
//!
//! let (path, nodes) = batch.events().find(|(_, path)| !path.is_empty()).ok_or("a new path")?;
//! assert_eq!((path.kind, nodes), (Kind::New, &[1, 2, 3][..]));
//! let flow = collector.flow(&path.flow.ok_or("the path of a flow")?).ok_or("the flow")?;
//! assert!(flow.path().eq([1, 2, 3]));
//!
//! // Two seconds later the rollups of the first one are due.
//! batch.clear();
//! for step in 1..=200 {
//!     collector.tick(received + step * 10_000_000, &mut batch);
//! }
//! assert!(batch.rollups().iter().any(|rollup| rollup.interval == 1 && rollup.node == Some(1)));
//! assert!(collector.stats().decode_balance().is_balanced());
//! # Ok::<(), &str>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod admission;
pub mod batch;
mod collector;
pub mod config;
mod decode;
pub mod event;
pub mod flight;
mod hash;
mod index;
mod join;
mod postcards;
pub mod sequence;
mod sources;
mod state;
pub mod stats;
mod stream;

pub use access::{Access, Grant, Senders};
pub use batch::Batch;
pub use collector::{AGGREGATE_VERSION, Collector, NetworkEntry, suppressed};
pub use config::{Clocks, Config, DistinctProfiles, Profile, Rollups};
pub use decode::{Datagram, hop_latency, implausible_latency};
pub use event::{Drop, Event, FlowRow, Kind, Location, Loss, Output, Rollup, sender_of};
pub use sequence::{Losses, Run, Sequencer, StreamView};
pub use sources::SourceView;
pub use state::removals::Removed;
pub use state::series::{LatestView, SeriesView, Summary};
pub use state::summary::{FlowOrder, FlowRank, FlowSummary};
pub use state::suppressed::{SuppressedFlow, SuppressedHop, SuppressedKey};
pub use state::topology::{LinkUse, NodeUse, PathUse};
pub use state::view::{FlowView, HopView};
pub use stats::{Balance, Stats, Table, Tables};
pub use stream::StreamId;

//! The postcard aggregator: combines many INT-XD postcards from switches into few datagrams for a collector (Alhamed et
//! al., "P4 Postcard Telemetry Collector in Packet-Optical Networks", section II).
//!
//! A postcard goes into a register: one for all postcards (kinds Agg and Cor), one per node (Agg_N, Cor_N), or one per node
//! and flow (Agg_{N,F}, Cor_{N,F}). Agg kinds send the postcards themselves, Cor kinds send summaries. A register is sent
//! when it holds R postcards, when its timer expires, when another key evicts it, or when the aggregator stops. As in a
//! switch, the table has a fixed size and is indexed by a CRC-32C of node and flow. `docs/reference/wire-formats.md`,
//! section 4, specifies the datagrams.
//!
//! # Example
//! ```
//! use aggregator::{Aggregator, Config, Output};
//! use wire::Aggregate;
//! use wire::aggregate::Kind;
//!
//! #[derive(Default)]
//! struct Sent(Vec<Vec<u8>>);
//! impl Output for Sent {
//!     fn send(&mut self, _destination: usize, payload: &[u8]) {
//!         self.0.push(payload.to_vec());
//!     }
//! }
//!
//! // Agg_N(3): three postcards of a node become one datagram.
//! let config = Config { kind: Kind::AggNode, r: 3, ..Config::default() };
//! let mut aggregator = Aggregator::new(config)?;
//! let case = testkit::workload::aggregator::CASES[0];
//! let postcards = case.datagrams();
//! let mut sent = Sent::default();
//! aggregator.ingest(0, postcards.chunks_exact(testkit::workload::aggregator::LEN).take(10), &mut sent);
//! let aggregate = Aggregate::parse(&sent.0[0])?;
//! assert_eq!((aggregate.header().kind, aggregate.postcards().count()), (Kind::AggNode, 3));
//!
//! // The remaining postcard waits for the timer or for `finish`.
//! let pending = aggregator.stats().pending;
//! aggregator.finish(&mut sent);
//! assert_eq!((pending, aggregator.stats().pending), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

//!
//! There is no I/O, clock or thread here: payloads and the time go in, payloads come out.
#![forbid(unsafe_code)]

mod aggregator;
mod config;
mod nodes;
mod postcard;
mod stats;
mod table;

pub use aggregator::{Aggregator, Output};
pub use config::{Config, ConfigError, MAX_BYTES, MAX_DESTINATIONS, MAX_REGISTERS, MAX_WAYS, Spread};
pub use nodes::Node;
pub use stats::{Cause, RefusalReason, Sent, Stats};

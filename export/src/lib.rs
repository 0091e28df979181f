//! Exports events, rollups and flows to other systems: at least once, in order per key, accounted for.
//!
//! This crate contains the logic and the formats of the destinations ([`sink`]), without I/O or a clock. A [`Delivery`]
//! delivers one stream to one server: it requests records, decides what to send and when, processes outcomes, and moves the
//! [`Cursor`]. The caller executes its [`Action`]s and returns the results with the time.
//!
//! # Semantics
//! * **The store is the spool.** Records are read from the store after a cursor. The cursor advances when every record before
//!   it is settled: stored by the server, or rejected for good and written to a file with the server's error. A crash at any
//!   point therefore repeats records but never skips one, and repeats at most the batch in flight.
//! * **Repeats are harmless where a server recognises them.** The end of a batch is saved before it is sent
//!   ([`Settings::announce`]), so after a crash the same records form the same batch.
//! * **One record never blocks the rest.** A batch that a server refuses is halved until the bad record is alone.
//! * **Order.** Records with the same key go through the same lane, one request at a time. Only a repeat breaks the order.
//! * **Bounded.** At most two batches are in memory, and one request per lane is in flight.
#![forbid(unsafe_code)]

mod backoff;
mod cursor;
mod days;
mod delivery;
pub mod hop;
pub mod json;
mod ledger;
pub mod memory;
mod outcome;
pub mod outlet;
pub mod protobuf;
pub mod received;
pub mod record;
mod repeat;
pub mod sink;
pub mod spool;
mod text;

pub use backoff::Nanos;
pub use cursor::{Cursor, InvalidCursor, Position};
pub use days::DayLimit;
pub use delivery::{Action, Delivery, Keyed, Notice, Page, RequestId, Settings};
pub use ledger::Ledger;
pub use outcome::Outcome;
pub use repeat::Repeats;

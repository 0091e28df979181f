//! Exports events, rollups and flows to other systems: at least once, in order per key, accounted for.
//!
//! This crate decides; it has no I/O and no clock. A [`Delivery`] delivers one stream to one server: it asks for records, says what to send
//! and when, processes the outcome, and moves the [`Cursor`]. The caller executes its [`Action`]s and passes the
//! results back with the time.
//!
//! # Semantics
//! * **The store is the spool.** Records are read by a cursor from what is committed there. The cursor moves when each record before it
//!   is settled: stored by the server, or rejected for good and written elsewhere with the server's words. So a crash at any point
//!   repeats records and never leaves one out, and it repeats at most the batch that was in flight.
//! * **Repeats are harmless where a server recognises them.** The end of a batch is saved before it is sent
//!   ([`Settings::announce`]): after a crash the same records are the same batch.
//! * **One record never blocks the rest.** A batch that a server refuses is halved until the culprit is alone.
//! * **Order.** Records with the same key go through the same lane, one request at a time. Only a repeat breaks the order.
//! * **Bounded.** At most two batches are in memory, one request per lane is in flight.
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
pub use cursor::{Cursor, NoCursor, Position};
pub use days::DayLimit;
pub use delivery::{Action, Delivery, Keyed, Notice, Page, RequestId, Settings};
pub use ledger::Ledger;
pub use outcome::Outcome;
pub use repeat::Repeats;

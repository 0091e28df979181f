//! The flight recorder: keeps the datagrams of the last seconds in memory, and records those around an event.
//!
//! An event says *that* a queue grew; the reports around it say *who* filled it, but most of them arrive before the event. So
//! all datagrams are kept for a while, undecoded, in a [`Ring`] of bounded memory (a copy of about 200 bytes each). An event
//! that the operator cares about is a [`Trigger`]. Triggers that are close together form a [`Window`] of time, and the reports
//! of that window that concern one of its triggers are recorded ([`Selection`]): all of them, or every second, fourth, … if
//! there are too many. The [`Recording`] states what was left out.

mod ring;
mod selection;
mod window;

pub use ring::{Chunk, ChunkStore, Ring};
pub use selection::Selection;
pub use window::{FlightConfig, FlightStats, Recording, Trigger, Window, Windows};

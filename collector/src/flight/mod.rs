//! The flight recorder: the datagrams of the last seconds, and which of them are worth keeping.
//!
//! An event says *that* a queue grew; the reports around it say *who* filled it. They have passed by then. So the datagrams are kept
//! for a while as they arrived, undecoded, in a [`Ring`] of bounded memory: a copy of some 200 bytes each. An event that the
//! operator cares about is a [`Trigger`]; triggers that are close together form a [`Window`] of time, and the reports of that window which
//! concern one of its triggers are recorded ([`Selection`]): all of them, or every second, fourth, … if there are too many. What was left out
//! is said in the [`Recording`].
//!
//! [`burst`] reads a recording of a queue: which flows filled it, and which waited in it.

pub mod burst;
mod ring;
mod selection;
mod window;

pub use ring::{Chunk, Kept, Ring};
pub use selection::Selection;
pub use window::{FlightConfig, FlightStats, Recording, Trigger, Window, Windows};

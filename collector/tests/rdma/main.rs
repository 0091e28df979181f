//! Sending and receiving end of RoCEv2, joined by a bad network in simulated time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod chain;
mod hostile;
mod restarts;
mod room;
mod together;
mod world;

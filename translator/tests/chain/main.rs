//! Reporter, translator, requester and responder in a chain, over faulty networks in simulated time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod chain;
mod delivery;
mod restarts;

//! Reporter, translator, requester and responder in a row, over bad networks in simulated time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod chain;
mod delivery;
mod restarts;

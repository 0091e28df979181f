//! Requester and responder of RoCEv2, joined by a bad network in simulated time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod credit;
mod hostile;
mod together;

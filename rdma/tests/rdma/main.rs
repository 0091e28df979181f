//! Requester and responder of RoCEv2, connected by a faulty network in simulated time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod credit;
mod hostile;
mod together;

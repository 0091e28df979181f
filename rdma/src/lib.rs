//! Both ends of RoCEv2 in software: the requester, which sends writes and fetch-and-adds, and the responder, which executes
//! them in memory.
//!
//! No I/O, no clock, no thread: frames and the time go in, frames come out.
#![forbid(unsafe_code)]

pub mod requester;
pub mod responder;
pub mod transport;
pub mod workload;

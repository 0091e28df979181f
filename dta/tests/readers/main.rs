//! Stores in memory, as a translator writes them and readers read them. Expected bytes are those of wire-formats 5.7 and 5.9.
#![allow(clippy::unwrap_used, reason = "a test ends when something is not there")]

mod append;
mod at_rest;
mod calculator;
mod header;
mod hostile;
mod key_write;
mod others;
mod snapshot;
mod support;
mod texts;

//! The role of an aggregator: it receives postcards and sends aggregates, with its sockets, thread, settings and view.
#![forbid(unsafe_code)]

pub mod role;
pub mod settings;
pub mod view;

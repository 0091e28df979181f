//! The aggregator role: receives postcards, and sends aggregates to collectors, with its sockets, thread, settings and view.
#![forbid(unsafe_code)]

pub mod role;
pub mod settings;
pub mod view;

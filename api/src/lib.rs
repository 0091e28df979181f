//! The HTTP API, the web pages and the metrics for Prometheus: one thread with an asynchronous runtime, which
//! never blocks: work that takes long runs on other threads.

#![forbid(unsafe_code)]

mod alerts;
mod connections;
mod context;
mod cursor;
mod dta;
mod filters;
mod flows;
mod guard;
mod holds;
mod hops;
mod intents;
mod losses;
mod metrics;
mod names;
mod notes;
mod openapi;
mod page;
pub mod pages;
mod params;
mod past;
mod paths;
mod query;
mod queues;
mod refusal;
mod roles;
mod router;
mod rules;
#[cfg(test)]
mod schema;
mod server;
mod session;
mod state;
mod stored;
mod stream;
mod switch;
mod traffic;
mod transport;

pub use context::{Context, READS, UNSENT};
pub use guard::is_token_valid;
pub use page::PAGES;
pub use server::Api;

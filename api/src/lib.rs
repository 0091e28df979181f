//! The HTTP API (`/api/v1`), the web pages, and metrics for Prometheus. One thread runs an async runtime (axum on tokio) and
//! never blocks; longer work runs on blocking threads, with permits that bound its concurrency.
//!
//! `router` lists the routes, `guard` checks access, `params` parses query parameters, `openapi` describes the API; the other
//! modules have the handlers of their routes.

#![forbid(unsafe_code)]

mod alerts;
mod connections;
mod context;
mod cursor;
mod dta;
mod filters;
mod flow_list;
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

pub use context::{Context, MAX_READS, UNSENT_BUDGET_KIB};
pub use guard::is_token_valid;
pub use page::MAX_PAGES;
pub use server::Api;

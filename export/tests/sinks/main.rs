//! What sinks write, and how they understand answers. `servers.rs` has the same with real servers.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod alertmanager;
mod alerts;
mod hops;
mod influxdb;
mod kafka;
mod opensearch;
mod otlp;
mod outlet;
mod redis;
mod remote_write;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod support;
mod syslog;
mod webhook;

//! What sinks write, sent to real servers and read back by the servers' own queries. Each test starts its server on loopback, with its
//! files in a temporary directory, and skips where the server is not installed.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod alertmanager;
mod influxdb;
mod opensearch;
mod otlp;
mod parquet;
mod redis;
mod remote_write;
mod server;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod support;
mod syslog;

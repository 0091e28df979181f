//! The export role: sends records of the store to other systems, and moves records from Kafka into ClickHouse (the outlet),
//! with their connections, threads, settings and views.
#![forbid(unsafe_code)]

pub mod role;
pub mod settings;

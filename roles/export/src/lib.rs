//! The role of exports: records of the store to other systems, and the outlet from Kafka into ClickHouse, with their connections,
//! threads, settings and view.
#![forbid(unsafe_code)]

pub mod role;
pub mod settings;

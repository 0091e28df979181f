//! Roles of Direct Telemetry Access (DTA): collector memory, translator, reporter; their sockets, threads and settings.
#![forbid(unsafe_code)]

pub mod exchange;
pub mod memory;
pub mod reporter;
pub mod translator;

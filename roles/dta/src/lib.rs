//! The roles of Direct Telemetry Access (DTA): collector memory, translator and reporter, with their sockets, threads and
//! settings.
#![forbid(unsafe_code)]

pub mod exchange;
pub mod memory;
pub mod reporter;
pub mod translator;

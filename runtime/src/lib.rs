//! Parts that every role uses: threads that end the program when they die, messages to the main thread, files that are replaced as a whole, and the sockets of a DTA reporter.
#![forbid(unsafe_code)]

pub mod collector_map;
pub mod control;
pub mod current;
pub mod host;
pub mod intercept;
pub mod lock;
pub mod notify;
pub mod reporter;
pub mod save;

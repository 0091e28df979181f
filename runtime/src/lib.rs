//! Parts that every role uses: threads that end the program when they die, messages to the main thread, files that are replaced as a whole, the sockets of a DTA reporter, and walks over the tables of a worker.
#![forbid(unsafe_code)]

pub mod collector_map;
pub mod control;
pub mod current;
pub mod hop_queue;
pub mod host;
pub mod intercept;
pub mod lock;
pub mod monitor;
pub mod notify;
pub mod reporter;
pub mod save;
pub mod slice;

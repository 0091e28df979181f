//! Runtime support shared by all roles (collector, switch, translator, reporter, …): supervised threads, messages to the main
//! thread, systemd notification, files that are replaced atomically, the sockets of a DTA reporter, and time-sliced walks over
//! a worker's tables.
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

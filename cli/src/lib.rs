//! The commands of `hopwise` that do not run the daemon: one module for each, with its arguments and its code. The crate
//! `hopwise` calls them and has the daemon's commands, which also use `examine` and `remote`.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod check;
pub mod decode;
pub mod device;
pub mod doctor;
pub mod dta;
mod event_filter;
pub mod events;
pub mod examine;
pub mod export;
pub mod intent;
pub mod p4;
pub mod path;
mod profile;
pub mod query;
mod query_shell;
pub mod remote;
pub mod replay;
pub mod report;
pub mod schema;
pub mod silences;
pub mod sql_helper;
pub mod store;
mod store_query;
pub mod store_writer;
mod stored;
pub mod top;

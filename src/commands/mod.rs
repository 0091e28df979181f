//! One file per command: its arguments and what it does.

pub(crate) mod bench;
mod capture;
pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod decode;
pub(crate) mod demo;
pub(crate) mod device;
pub(crate) mod doctor;
pub(crate) mod dta;
mod event_filter;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod intent;
pub(crate) mod lab;
pub(crate) mod p4;
pub(crate) mod path;
mod profile;
pub(crate) mod query;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod sql_helper;
mod stored;
pub(crate) mod top;

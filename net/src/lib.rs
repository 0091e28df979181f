//! TLS, and names of hosts by DNS.
#![forbid(unsafe_code)]

pub mod dns;
pub mod tls;

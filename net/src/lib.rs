//! TLS, names of hosts by DNS, and the client of HTTP servers.
#![forbid(unsafe_code)]

pub mod destination;
pub mod dns;
pub mod http;
pub mod tls;

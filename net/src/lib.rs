//! TLS, names of hosts by DNS, the client of HTTP servers, and the client of hopwise's own API.
#![forbid(unsafe_code)]

pub mod client;
pub mod destination;
pub mod dns;
pub mod http;
pub mod tls;

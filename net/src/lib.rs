//! Network clients of hopwise: its own API, HTTP servers, TLS and reverse DNS.
#![forbid(unsafe_code)]

pub mod client;
pub mod destination;
pub mod dns;
pub mod http;
pub mod tls;

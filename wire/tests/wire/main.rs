//! Vectors, captures, headers and writers: bytes to fields and back. One binary, because linking each file by itself takes longer than its tests.

mod bounded;
mod brief;
mod brief_any;
mod captures;
mod dta;
mod groups;
mod headers;
mod lldp;
mod roce;
mod single;
mod tunnels;
mod vectors;
mod writers;

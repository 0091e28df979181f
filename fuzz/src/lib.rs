//! Bodies: what must hold for any bytes. They panic when it does not.
#![forbid(unsafe_code)]

mod bytes;
mod dta;

pub use bytes::{aggregate, headers, packet, reports};
pub use dta::{dta, memory, roce};

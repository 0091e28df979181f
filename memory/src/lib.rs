//! Memory that is fast: asking for a cache line before it is needed, and for large pages under large tables.
//!
//! One of the two crates with unsafe Rust. It knows nothing about what is stored in the memory it is given.

mod huge;
mod prefetch;

pub use huge::{Advice, advise_huge};
pub use prefetch::prefetch;

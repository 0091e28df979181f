//! What tests of bytes share: the reader of `vectors/`, their meaning as text, and writing again what was read.
// Each test uses its own part of this.
#![allow(dead_code, unreachable_pub)] // each test uses its part

pub mod dice;
pub mod dta;
pub mod meaning;
pub mod rewrite;
pub mod vectors;

//! Writes again what was read.

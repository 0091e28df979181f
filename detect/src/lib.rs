//! What is worth telling: metrics and their units, thresholds, rules.
#![forbid(unsafe_code)]

pub mod metric;

pub use metric::Metric;

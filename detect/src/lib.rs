//! What is worth telling: metrics and their units, thresholds per flow, rules, and the detectors of a sink.
//!
//! No packets, no I/O, no clock: the collector hands in flow keys and the values of one report, and gets thresholds and
//! the rules that are true. Everything an operator wrote is compiled once, when it is read; what runs per report neither
//! allocates nor fails.
#![forbid(unsafe_code)]

pub mod detector;
pub mod metric;
pub mod observation;
pub mod prefix;
pub mod rule;
pub mod table;
pub mod threshold;

#[cfg(test)]
mod random;

pub use detector::{Algorithm, Detector, DetectorError, Monitor};
pub use metric::Metric;
pub use observation::{HopValues, Observation};
pub use prefix::Prefix;
pub use rule::{RuleError, RuleSet};
pub use table::{Program, Split, Table};
pub use threshold::{Match, PortRange, ThresholdError, Thresholds};

/// All that decides what is told, swapped as a whole (behind an `Arc`) while the collector runs.
#[derive(Clone, Debug, Default)]
pub struct Detection {
    /// How far a value must move to be told.
    pub thresholds: Thresholds,
    /// Conditions over one report's values.
    pub rules: RuleSet,
    /// Counts the swaps: what was resolved under an older generation (a flow's threshold set, which rules were true)
    /// must be resolved again.
    pub generation: u32,
}

//! Detection of significant changes in INT data: metrics and their units, per-flow thresholds, rules, and the detectors of
//! INT sinks.
//!
//! There are no packets, I/O or clock here. The collector passes flow keys and the values of one report, and gets
//! thresholds and the rules that are true. Configuration is compiled once, when it is loaded; the code that runs per report
//! neither allocates nor fails.
//!
//! # Example
//! ```
//! use detect::{HopValues, Observation, RuleSet};
//!
//! let rules = [("slow".to_owned(), "max(queue_occupancy) > 50 and flow_latency > 5ms".to_owned())];
//! let rules = RuleSet::compile(&rules)?;
//! let hops = [HopValues { node: 101, queue_occupancy: 80, ..HopValues::NOTHING }];
//! let report = Observation { flow_latency: Some(7_000_000), hops: &hops, ..Observation::default() };
//! assert_eq!(rules.evaluate(&report), 1 << 0); // rule 0, "slow", is true
//! # Ok::<(), detect::RuleError>(())
//! ```
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
pub use wire::named;

/// The complete detection configuration. The collector replaces it atomically (behind an `Arc`) on a reload.
#[derive(Clone, Debug, Default)]
pub struct Detection {
    /// Minimum changes that are reported, per metric and flow.
    pub thresholds: Thresholds,
    /// Conditions over one report's values.
    pub rules: RuleSet,
    /// Number of reloads. State resolved under an older generation (a flow's threshold set, the rules that were true) must
    /// be resolved again.
    pub generation: u32,
}

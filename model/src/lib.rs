//! Configuration sections that several roles share: device profiles (INT dialect and units), thresholds of significant
//! changes, and rules.
#![forbid(unsafe_code)]

mod profile;
mod threshold;

pub use profile::{Marker, NodeEntry, NodeSettings, ProfileSettings, SourceSettings, TcpShim};
pub use threshold::{OverrideSettings, RuleSettings, ThresholdSettings};

//! Settings that several roles share: profiles of devices, thresholds and rules.
#![forbid(unsafe_code)]

mod profile;
mod threshold;

pub use profile::{Marker, NodeEntry, NodeSettings, ProfileSettings, SourceSettings, TcpShim};
pub use threshold::{OverrideSettings, RuleSettings, ThresholdSettings};

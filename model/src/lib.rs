//! Settings that several roles share: inputs of reports, profiles of devices, thresholds and rules.
#![forbid(unsafe_code)]

mod listen;
mod profile;
mod threshold;

pub use listen::{Listen, TELEMETRY_PORT};
pub use profile::{
    Clocks, Dialect, Marker, NodeEntry, NodeSettings, ProfileSettings, SourceSettings, TcpShim,
};
pub use threshold::{Amount, OverrideSettings, RuleSettings, ThresholdSettings};

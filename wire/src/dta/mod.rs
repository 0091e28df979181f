//! Direct Telemetry Access: reports that a translator turns into writes to a collector's memory (wire-formats section 5).

pub mod hash;
pub mod layout;
pub mod sketch;

//! Direct Telemetry Access in this program: the translator's and the collector memory's roles, how they find each other, and
//! what people write about stores and keys.

pub(crate) mod calculate;
pub(crate) mod exchange;
pub(crate) mod fields;
#[cfg(test)]
mod fuzz;
pub(crate) mod key;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod shelf;
pub(crate) mod translator;
pub(crate) mod trigger;

//! API response about a DTA reporter: counters and the congestion level for each collector.

use std::net::SocketAddr;

use dataplane::dta::Reporter;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reports to a collector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ReporterCollector {
    /// Address of the translator.
    pub address: String,
    /// Congestion, 0 to 3.
    pub congestion_level: u8,
    /// Number of essential reports originated.
    pub essential: u64,
    /// Essential reports in the retransmit buffer.
    pub retransmit_buffered: u16,
    /// Essential reports overwritten before they were acknowledged.
    pub overwritten: u64,
    /// Reports sent again, after a NACK or because none followed.
    pub retransmitted: u64,
    /// Number of NACKs processed.
    pub nacks: u64,
    /// NACKs ignored: for a gap already being retransmitted, beyond the limit of retransmissions, or about reports never sent.
    #[serde(default)]
    pub nacks_ignored: u64,
    /// Reports that a NACK requested and that were no longer in the retransmit buffer.
    pub unavailable: u64,
    /// NACKs that refuse a report: no such store or list, or malformed.
    pub refused: u64,
    /// Reports that the translator dropped, by its own count.
    pub translator_drops: u64,
}

/// Returns the state of the path to each of `collectors`.
pub fn reporter_collectors(
    collectors: &[SocketAddr],
    reporter: &Reporter,
    now: u64,
) -> Vec<ReporterCollector> {
    collectors
        .iter()
        .zip(reporter.destinations(now))
        .map(|(address, to)| ReporterCollector {
            address: address.to_string(),
            congestion_level: to.level,
            essential: to.stats.essential,
            retransmit_buffered: to.waiting,
            overwritten: to.stats.overwritten,
            retransmitted: to.stats.retransmitted + to.stats.probes,
            nacks: to.stats.nacks,
            nacks_ignored: to.stats.early + to.stats.limited + to.stats.unbelieved,
            unavailable: to.stats.unavailable,
            refused: to.stats.refused,
            translator_drops: to.stats.translator_drops,
        })
        .collect()
}

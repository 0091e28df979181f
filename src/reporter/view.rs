//! The state of the path to each collector, for the API.

use std::net::SocketAddr;

use dataplane::dta::{DestinationStats, Reporter};
use serde::{Deserialize, Serialize};

/// Reports to a collector.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ReporterCollector"))]
pub(crate) struct CollectorView {
    /// Address of the translator.
    pub(crate) address: String,
    /// Congestion, 0 to 3.
    pub(crate) congestion_level: u8,
    /// Essential reports originated.
    pub(crate) essential: u64,
    /// Essential reports in the retransmit buffer.
    pub(crate) retransmit_buffered: u16,
    /// Essential reports overwritten before they were acknowledged.
    pub(crate) overwritten: u64,
    /// Reports sent again, after a NACK or because none followed.
    pub(crate) retransmitted: u64,
    /// NACKs processed.
    pub(crate) nacks: u64,
    /// NACKs ignored: for a gap already being retransmitted, beyond the limit of retransmissions, or about reports never sent.
    #[serde(default)]
    pub(crate) nacks_ignored: u64,
    /// Reports that a NACK requested and that were no longer in the retransmit buffer.
    pub(crate) unavailable: u64,
    /// NACKs that refuse a report: no such store or list, or malformed.
    pub(crate) refused: u64,
    /// Reports that the translator dropped, by its own count.
    pub(crate) translator_drops: u64,
}

/// The state of the path to each of `collectors`.
pub(crate) fn collector_views(
    collectors: &[SocketAddr],
    reporter: &Reporter,
    now: u64,
) -> Vec<CollectorView> {
    let view = |(address, to): (&SocketAddr, dataplane::dta::Destination)| {
        let DestinationStats {
            essential,
            overwritten,
            retransmitted,
            probes,
            nacks,
            unavailable,
            ..
        } = to.stats;
        CollectorView {
            address: address.to_string(),
            congestion_level: to.level,
            essential,
            retransmit_buffered: to.waiting,
            overwritten,
            retransmitted: retransmitted + probes,
            nacks,
            nacks_ignored: to.stats.early + to.stats.limited + to.stats.unbelieved,
            unavailable,
            refused: to.stats.refused,
            translator_drops: to.stats.translator_drops,
        }
    };
    collectors
        .iter()
        .zip(reporter.destinations(now))
        .map(view)
        .collect()
}

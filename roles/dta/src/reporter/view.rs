//! View of the DTA reporter for `/api/v1/reporter` and the metrics. Its doc comments are descriptions in the API's schema.

use serde::{Deserialize, Serialize};
use view::{NamedCounts, ReporterCollector};

/// `/api/v1/reporter`: `received = reports + refused + suppressed + queue_full`, and, with the sums over `collectors`,
/// `reports + retransmitted = sent + unsent + retransmit_buffered + overwritten`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Reporter"))]
pub struct ReporterView {
    /// Reporter ID in the reports.
    pub(super) id: u32,
    /// Path or address to which programs send reports.
    pub(super) listen: String,
    /// Address that receives control messages.
    pub(super) control: String,
    /// Datagrams of programs received.
    pub received: u64,
    /// Datagrams of programs that are no report, by reason.
    pub refused: NamedCounts,
    /// Reports suppressed because of congestion.
    pub suppressed: u64,
    /// Reports dropped because the send queue was full.
    pub queue_full: u64,
    /// Failed attempts to receive from programs.
    pub(super) receive_errors: u64,
    /// Reports originated, without retransmissions.
    pub reports: u64,
    /// Datagrams sent to translators.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
    /// Control messages of translators that were processed.
    pub controls: u64,
    /// Control messages that are malformed, for another reporter, or from an unknown peer.
    pub controls_refused: u64,
    /// The collectors to which it reports.
    pub collectors: Vec<ReporterCollector>,
}

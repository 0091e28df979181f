//! Views of the aggregator for the API. The doc comments of the view types are the descriptions in the API's schema.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use aggregator::Cause;
use aggregator::{Node, Stats};
use serde::{Deserialize, Serialize};
use view::{Name, NamedCounts};

/// The aggregator's counters, as `/api/v1/aggregator` returns them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Aggregator"))]
pub struct AggregatorView {
    /// Address or interface on which it receives postcards.
    pub(crate) listen: String,
    /// Kind of aggregation, as configured.
    pub(crate) kind: Name,
    /// Postcards per datagram or summary.
    pub(crate) r: u32,
    /// True when it sends plain Telemetry Report 2.0.
    pub(crate) interop: bool,
    /// Number of registers that were allocated.
    pub(crate) registers: usize,
    /// Memory of the registers, bytes.
    pub(crate) bytes: usize,
    /// Datagrams received on the input.
    pub datagrams: u64,
    /// Datagrams dropped in the kernel.
    pub kernel_drops: u64,
    /// Datagrams longer than 9,216 bytes, truncated.
    pub(crate) cut: u64,
    /// Reports decoded from these datagrams.
    pub(crate) reports: u64,
    /// Datagrams that could not be decoded, by reason.
    pub unreadable: NamedCounts,
    /// Reports that are not postcards for this aggregator, by reason.
    pub refused: NamedCounts,
    /// Postcards received in these reports.
    pub postcards: u64,
    /// Postcards that wait in registers.
    pub pending: u64,
    /// Registers that hold postcards.
    pub occupied: u64,
    /// Postcards sent, by cause: `full` (R postcards), `timer`, `evicted` (another node or flow needed the register), `stopped`.
    #[cfg_attr(feature = "schema", schemars(extend("required" = Cause::ALL.map(Cause::name))))]
    pub sent: BTreeMap<Name, SentView>,
    /// Missing values, which no summary includes.
    pub(crate) missing_values: u64,
    /// True while the balance holds.
    pub(crate) balanced: bool,
    /// Destinations of the aggregates.
    pub forward: Vec<ForwardView>,
    /// Subsystems of nodes: all that are tracked, at most 4,096.
    pub nodes: Vec<Node>,
    /// Datagrams of those that are not tracked, because the table was full; their losses are not counted.
    pub nodes_full: u64,
    #[serde(skip)]
    pub(crate) stats: Stats,
}

/// Postcards sent for one cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AggregatorSent"))]
pub struct SentView {
    /// Datagrams sent for this cause.
    pub datagrams: u64,
    /// Postcards in them, or in their summaries.
    pub postcards: u64,
}

/// A destination of aggregates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AggregatorForward"))]
pub struct ForwardView {
    /// Address of the destination.
    pub to: String,
    /// Datagrams passed to the kernel.
    pub datagrams: u64,
    /// Payload of these datagrams, bytes.
    pub bytes: u64,
    /// Datagrams that the kernel refused for lack of memory.
    pub no_buffers: u64,
    /// Datagrams that the kernel refused for another reason.
    pub failed: u64,
}

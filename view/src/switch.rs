//! Answers of the API of a switch that its manager reads as well: rules, ports, capabilities and counters.

use dataplane::switch::Stats;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{ElectionView, MatchedView, RuleView};

/// The instruction bits that a hopwise switch can fill, bit 0 the most significant: all but that of the checksum complement.
pub const INSTRUCTIONS: u16 = 0xff80;

/// Rules of a managed switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchRules"))]
pub struct RulesView {
    /// Node id of the switch.
    pub node: u32,
    /// Name of the switch, as configured.
    pub name: Option<String>,
    /// Version of the rules; claims, changes and restarts change it.
    pub etag: String,
    /// The highest election that claimed the switch.
    pub election: ElectionView,
    /// Whether the switch forwards packets.
    pub forwarding: bool,
    /// Features and table sizes of the switch.
    pub capabilities: CapabilitiesView,
    /// Ports of the switch.
    pub ports: Vec<RulesPortView>,
    /// Changes of the neighbours of ports since the start.
    #[serde(default)]
    pub neighbour_changes: u64,
    /// The active rules, in canonical order.
    pub rules: Vec<RuleView>,
}

/// Capabilities of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(JsonSchema),
    schemars(rename = "SwitchCapabilities")
)]
pub struct CapabilitiesView {
    /// Instruction bits that it can fill.
    pub bits: u16,
    /// Entries of its watchlist.
    pub watch_entries: usize,
    /// Entries of its filter table.
    pub filter_entries: usize,
    /// It can measure one packet of N.
    #[serde(default)]
    pub sampling: bool,
    /// It reports by DTA to the collectors of a map from its manager.
    #[serde(default)]
    pub dta: bool,
}

/// A port, for a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchRulesPort"))]
pub struct RulesPortView {
    /// Number of the port.
    pub number: u16,
    /// Name of its network interface.
    pub interface: String,
    /// Whether the port connects hosts, not another switch.
    pub edge: bool,
    /// Whether the port is up.
    pub up: bool,
    /// Longest IP packet, bytes.
    pub mtu: u16,
    /// The neighbour from received LLDP; null if there is none, or `lldp` is false.
    #[serde(default)]
    pub neighbour: Option<NeighbourView>,
}

/// A neighbour of a port, as LLDP (IEEE 802.1AB) announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchNeighbour"))]
pub struct NeighbourView {
    /// System name of the neighbour, or its chassis id if it announces none.
    pub system: String,
    /// Port id of the neighbour, usually the name of an interface.
    pub port: String,
    /// Chassis id of the neighbour.
    pub chassis: String,
    /// The description of its port.
    pub description: Option<String>,
    /// Seconds for which an announcement is valid.
    pub ttl: u16,
    /// Other systems announce themselves on the same link.
    pub several: bool,
}

/// INT counters of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchCounters"))]
pub struct CountersView {
    /// Node id of the switch.
    pub node: u32,
    /// Counters of packets, by their treatment.
    pub int: IntView,
    /// Counters of report datagrams, or null without reports.
    #[serde(default)]
    pub reports: Option<ReportsView>,
    /// Lease of the manager that configures the switch, or null without `[switch.managed]`.
    pub lease: Option<LeaseView>,
    /// Entries of the watchlist that packets have matched; empty without `[switch.managed]`.
    #[serde(default)]
    pub matched: Vec<MatchedView>,
}

/// The lease of a switch's manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchLease"))]
pub struct LeaseView {
    /// The highest election that claimed the switch.
    pub election: ElectionView,
    /// Time since that manager claimed it, changed its rules or renewed the lease, or since the start, ns.
    pub silence: u64,
}

/// INT counters; each packet is in one of the first eight.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchInt"))]
pub struct IntView {
    /// Number of packets without INT.
    pub plain: u64,
    /// Packets with malformed or unsupported INT.
    pub refused: u64,
    /// Packets to which this switch added its metadata.
    pub recorded: u64,
    /// SF-INT: packets with metadata of another switch, received or from a register.
    pub swapped: u64,
    /// Remaining hop count was zero (E bit).
    pub hops_exceeded: u64,
    /// Metadata would exceed the MTU (M bit), or INT was not added for this reason.
    pub mtu_exceeded: u64,
    /// INT was not added because a sink could not restore the packet.
    pub not_restorable: u64,
    /// Number of packets that were reported.
    pub reported: u64,
    /// Packets at the sink that `[[switch.filter]]` suppressed.
    pub filtered: u64,
    /// Number of drop reports.
    pub drops_reported: u64,
    /// Number of queue reports.
    pub queues_reported: u64,
    /// Packets reported because they passed a congested queue (`quota`).
    pub congested_reported: u64,
    /// Packets that arrived with INT from outside the domain: INT was removed, and they are counted again by their further
    /// treatment.
    pub edge_stripped: u64,
    /// Refused packets that arrived so, and carried more INT, or its mark, behind it: dropped.
    pub edge_refused: u64,
    /// Packets whose L4 checksum was examined after INT was stripped: one of 64.
    pub checksums_examined: u64,
    /// Number of these packets with a wrong checksum, which hosts drop: see `l4_checksum` in `[switch]`.
    pub checksums_wrong: u64,
}

impl From<Stats> for IntView {
    fn from(int: Stats) -> Self {
        Self {
            plain: int.plain,
            refused: int.refused,
            recorded: int.recorded,
            swapped: int.swapped,
            hops_exceeded: int.hops_exceeded,
            mtu_exceeded: int.mtu_exceeded,
            not_restorable: int.not_restorable,
            reported: int.reported,
            filtered: int.filtered,
            drops_reported: int.drops_reported,
            queues_reported: int.queues_reported,
            congested_reported: int.congested_reported,
            edge_stripped: int.edge_stripped,
            edge_refused: int.edge_refused,
            checksums_examined: int.checksums_examined,
            checksums_wrong: int.checksums_wrong,
        }
    }
}

/// Counters of datagrams with reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "SwitchReports"))]
pub struct ReportsView {
    /// Address of the collector, or null without one.
    pub to: Option<String>,
    /// Number of datagrams sent.
    pub sent: u64,
    /// Datagrams not sent: no address is known, or the kernel refused them.
    pub unsent: u64,
}

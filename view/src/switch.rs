//! API responses of a software switch that its manager also reads: rules, ports, capabilities, counters and lease.

use dataplane::switch::Stats;
use manager::device::Election;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{MatchedView, RuleView};

/// INT 2.1 instruction bits that a hopwise switch can fill: bits 0 (the most significant) to 8, all but the checksum
/// complement.
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
    pub election: Election,
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
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchCapabilities"))]
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
    pub int: Stats,
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
    pub election: Election,
    /// Time since that manager claimed it, changed its rules or renewed the lease, or since the start, ns.
    pub silence: u64,
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

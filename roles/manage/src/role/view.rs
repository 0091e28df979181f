//! Views of the manager, intents and devices for the API. The doc comments of the view types are the descriptions in the API's
//! schema.

use std::collections::BTreeSet;

use manager::{
    device::{Capabilities, Rule},
    driver::Counter,
    inventory::{DeviceRole, Inventory, PortRole},
    plan::{Cost, Plan},
    reconcile::{DeviceStatus, Phase, Wait},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::drivers;

/// All intents with their states.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Intents"))]
pub struct IntentsView {
    /// The intents, by name.
    pub intents: Vec<IntentView>,
}

/// An intent and its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Intent"))]
pub struct IntentView {
    /// The name of the intent.
    pub name: String,
    /// The version, for `If-Match`.
    pub etag: String,
    /// `file`: in the configuration, and changed only there; `api`: added while running; `drill_down`: installed for a while by the rule
    /// of another one.
    pub origin: String,
    /// The other intent, of a drill-down.
    #[serde(default)]
    pub parent: Option<String>,
    /// The user who added it.
    pub by: String,
    /// Time of the addition, nanoseconds since the Unix epoch.
    pub added: u64,
    /// End time, nanoseconds since the Unix epoch, or null for never.
    pub end: Option<u64>,
    /// The intent's keys, as in `[[intents]]`.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    pub intent: Value,
    /// `stopped`, `refused`, `pending`, `installed`, `seen`, `complete` or `silent`.
    pub state: String,
    /// The state in one sentence.
    pub text: String,
    /// The mode in which its packets are measured; the modes, where other intents take a part of them.
    pub mode: Option<String>,
    /// Metadata that each node on the path adds.
    pub instructions: Option<String>,
    /// The active rules for its packets, as text: mode, metadata that each node adds, bytes, goodput. The first one applies to most
    /// packets.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Devices that have its entries, or shall have them.
    pub devices: Vec<String>,
    /// Notes for the operator.
    pub notes: Vec<String>,
    /// Flows that matched, among those that the collector knows.
    pub flows: u64,
    /// Reports of its flows per second.
    pub rate: f64,
}

/// State that a manager on standby copies from the active one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ManagerCopy"))]
pub struct CopyView {
    /// True if this manager is active; otherwise there are no intents here.
    pub acting: bool,
    /// All INT was stopped by an operator.
    pub stopped: bool,
    /// The intents that were added while it ran, by name.
    pub intents: Vec<CopiedView>,
}

/// An intent that was added while the manager ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "CopiedIntent"))]
pub struct CopiedView {
    /// The name of the intent.
    pub name: String,
    /// The intent's keys, as in `[[intents]]`.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    pub intent: Value,
    /// The user who added it.
    pub by: String,
    /// Time of the addition, nanoseconds since the Unix epoch.
    pub added: u64,
}

/// All devices with their states.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Devices"))]
pub struct DevicesView {
    /// The devices, by node id.
    pub devices: Vec<DeviceView>,
}

/// A device, its state and its ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Device"))]
pub struct DeviceView {
    /// The device's node id.
    pub node: u32,
    /// The name in the inventory.
    pub name: String,
    /// The driver that configures it.
    pub driver: String,
    /// Where the driver finds it.
    pub address: String,
    /// Labels of the inventory.
    pub labels: Vec<String>,
    /// `switch`: a node of the domain; outside it, `aggregator` or `translator`.
    #[serde(default)]
    pub role: String,
    /// Function of a device outside the domain, as text; null for a switch.
    #[serde(default)]
    pub does: Option<String>,
    /// `unreachable`, `connecting`, `reading`, `in_sync`, `drift`, `applying`, `unconfirmed`, `failed` or `standby`.
    pub state: String,
    /// The state in one sentence.
    pub text: String,
    /// A sentence, if its reports do not arrive; null otherwise, or if unknown.
    pub silence: Option<String>,
    /// True if INT that reaches it stays inside the domain.
    pub ready: bool,
    /// Number of missing rules.
    pub missing: usize,
    /// Number of unexpected rules.
    pub extra: usize,
    /// Entries of its watchlist.
    pub watch_entries: EntriesView,
    /// Entries of its filters.
    pub filter_entries: EntriesView,
    /// Those of them by rule.
    #[serde(default)]
    pub rule_filters: EntriesView,
    /// Rules as last read, as text; null if never read.
    pub rules: Option<Vec<String>>,
    /// Entries of other controllers.
    pub foreign: Vec<String>,
    /// The ports, by number.
    pub ports: Vec<DevicePortView>,
    /// Capabilities reported by the driver; null if not known yet.
    pub capabilities: Option<CapabilitiesView>,
    /// Counters of its program since its start, with the names of its pipeline map.
    #[serde(default)]
    pub counters: Vec<Counter>,
}

/// Capabilities of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DeviceCapabilities"))]
pub struct CapabilitiesView {
    /// Modes in which it can be source and sink.
    pub modes: Vec<String>,
    /// Metadata that it can add to a packet.
    pub instructions: String,
    /// Algorithms of its filters.
    pub filters: Vec<String>,
    /// It can measure one packet of N.
    pub sampling: bool,
    /// It can remove INT.
    pub sink: bool,
    /// Treatments of the L4 checksum that it supports.
    pub l4_checksum: Vec<String>,
    /// Capabilities of the keys of its watchlist: `ipv6`, `prefixes`, `wildcards`, `ranges`, `dscp`.
    pub matches: Vec<String>,
    /// After a restart: `keeps` its rules, `waits` for its manager, or `forwards` without rules.
    pub restart: String,
}

/// Entries of a table of a device.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DeviceEntries"))]
pub struct EntriesView {
    /// Entries of this manager.
    pub used: usize,
    /// Entries that belong to none of its rules, such as those of other controllers, as last read.
    #[serde(default)]
    pub others: usize,
    /// Entries that fit, of all controllers together.
    pub size: usize,
}

/// A port of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DevicePort"))]
pub struct DevicePortView {
    /// The number of the port.
    pub port: u32,
    /// Name of the interface.
    pub name: Option<String>,
    /// `fabric`, `edge`, `unused` or `disputed`.
    pub role: String,
    /// The other end: a port of a device, or the hosts that the inventory has there, the first three by name.
    pub peer: Option<String>,
    /// Longest IP packet, bytes.
    pub mtu: Option<u32>,
    /// It is an INT source now.
    pub source: bool,
    /// It is an INT sink now.
    pub sink: bool,
    /// The port was part of a link, and INT may still leave by it: do not connect hosts. The history announces it with
    /// `edge_ready`.
    #[serde(default)]
    pub opening: bool,
    /// The neighbour, from received LLDP.
    #[serde(default)]
    pub neighbour: Option<NeighbourView>,
}

/// A neighbour of a port, as LLDP announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DeviceNeighbour"))]
pub struct NeighbourView {
    /// The system name, or the chassis id.
    pub system: String,
    /// The port id: usually the name of an interface.
    pub port: String,
    /// Reason why this neighbour is not a link, or null if it is one.
    pub note: Option<String>,
}

/// Changes from the actual to the desired state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Plan"))]
pub struct PlanView {
    /// The plan in a few lines.
    pub text: String,
    /// The changes of each device.
    pub devices: Vec<DevicePlanView>,
    /// Cost of the intent; null in a plan that is not for one intent.
    pub cost: Option<CostView>,
    /// Notes for the operator.
    pub notes: Vec<String>,
}

/// Changes of one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DevicePlan"))]
pub struct DevicePlanView {
    /// The device's node id.
    pub node: u32,
    /// The name of the device.
    pub name: String,
    /// Number of rules to add.
    pub added: usize,
    /// Number of rules to remove.
    pub removed: usize,
    /// The changes in the order in which they are applied, as text.
    pub changes: Vec<String>,
}

/// Cost of an intent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "IntentCost"))]
pub struct CostView {
    /// The mode in which its packets will be measured.
    pub mode: String,
    /// Metadata that each node on the path adds.
    pub instructions: String,
    /// Bytes of INT in a packet on the last link, for paths of 1, 2, … links up to the longest.
    pub bytes: Vec<u32>,
    /// Share of a link's capacity that full packets keep on the longest path, 0 to 1.
    pub goodput: f64,
    /// Expected reports per second, or null if not known yet.
    pub reports: Option<f64>,
    /// Their bit/s, or null if not known yet.
    pub report_bits: Option<f64>,
    /// The basis of the estimate, or the reason why there is none.
    pub expectation: String,
}

/// The domain of devices that carry INT.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Domain"))]
pub struct DomainView {
    /// True if this manager is active, false if another one has taken over.
    pub acting: bool,
    /// All INT was stopped by an operator.
    pub stopped: bool,
    /// DSCP that marks packets with INT.
    pub dscp: u8,
    /// Treatment of the L4 checksum of packets with INT.
    pub l4_checksum: String,
    /// Addresses to which devices send reports.
    pub collectors: Vec<String>,
    /// DTA collectors of the map that devices get; empty: they have their own.
    #[serde(default)]
    pub dta_collectors: Vec<String>,
    /// Number of devices in the domain.
    pub devices: usize,
    /// Number of devices in sync.
    pub in_sync: usize,
    /// Links of the longest path between two edge devices.
    pub longest_path: u32,
    /// Links between devices: node and port of both ends.
    pub links: Vec<[u32; 4]>,
    /// Contradicting facts, as text.
    pub contradictions: Vec<String>,
    /// Names of hosts, for `at.between` of intents: the first thousand.
    pub hosts: Vec<String>,
    /// Links without enough evidence to carry INT, as text: `[[inventory.links]] between = …` accepts one.
    #[serde(default)]
    pub suggestions: Vec<String>,
    /// True if changes need approval (`[manager] apply = "manual"`); otherwise they wait only until the network is stable.
    #[serde(default)]
    pub manual: bool,
    /// Pending changes, as the text of `/plan`; empty if there are none.
    #[serde(default)]
    pub waits: String,
    /// State copied from the other manager (`[manager] peer`), as a sentence; null if this manager is active or copies nothing.
    #[serde(default)]
    pub copy: Option<String>,
}

/// The history, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ManagerHistory"))]
pub struct ManagerHistoryView {
    /// The entries, newest first.
    pub history: Vec<Entry>,
}

/// An entry of the manager's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ManagerHistoryEntry"))]
pub struct Entry {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// Origin of the action: the name in the request, `file` or `manager`.
    pub by: String,
    /// `add`, `replace`, `remove`, `end`, `drill_down`, `apply`, `stop`, `start`; the state of a device; `device`, `link`,
    /// `edge_ready`: changes of the inventory and of ports.
    pub action: String,
    /// The intent or device.
    pub subject: String,
    /// A sentence about it.
    pub text: String,
}

/// A change at the manager. The name of the event is its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "change", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ManagerChange"))]
pub enum ChangeView {
    /// The state of a device.
    Device(DeviceState),
    /// The state of an intent.
    Intent(IntentState),
    /// A removed intent or device.
    Removed {
        /// The kind of what was removed: `intent` or `device`.
        what: String,
        /// The name of it.
        name: String,
    },
    /// The state of the domain.
    Domain(DomainState),
    /// An entry of the history.
    History(Entry),
}

/// The state of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceState {
    /// The device's node id.
    pub node: u32,
    /// The name of the device.
    pub name: String,
    /// The state, as in `Device`.
    pub state: String,
    /// The state in one sentence.
    pub text: String,
    /// True if INT that reaches it stays inside the domain.
    pub ready: bool,
    /// Number of missing rules.
    pub missing: usize,
    /// Number of unexpected rules.
    pub extra: usize,
}

/// The state of an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntentState {
    /// The name of the intent.
    pub name: String,
    /// The version of the intent.
    pub etag: String,
    /// The state, as in `Intent`.
    pub state: String,
    /// The state in one sentence.
    pub text: String,
    /// Flows that matched, among those that the collector knows.
    pub flows: u64,
    /// Reports of its flows per second.
    pub rate: f64,
}

/// The state of the domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DomainState {
    /// True if this manager is active, false if another one has taken over.
    pub acting: bool,
    /// All INT was stopped by an operator.
    pub stopped: bool,
    /// Number of devices in the domain.
    pub devices: usize,
    /// Number of devices in sync.
    pub in_sync: usize,
    /// Pending changes, as the text of `/plan`; empty if there are none.
    pub waits: String,
}

impl PlanView {
    /// Builds the view of a plan, with device names from `inventory`.
    pub(super) fn new(plan: &Plan, inventory: &Inventory) -> Self {
        let devices = plan.devices.iter().map(|device| DevicePlanView {
            node: device.node,
            name: inventory.name(device.node),
            added: device.added,
            removed: device.removed,
            changes: device
                .changes
                .iter()
                .map(|(_, change)| change.to_string())
                .collect(),
        });
        Self {
            text: plan.to_string(),
            devices: devices.collect(),
            cost: None,
            notes: plan
                .devices
                .iter()
                .filter_map(|device| drivers::note(inventory.device(device.node)?))
                .collect(),
        }
    }
}

impl CostView {
    /// Builds the view of a rule's cost.
    pub(super) fn new(rule: &manager::compile::EffectiveRule, cost: Cost, expectation: String) -> Self {
        let (reports, report_bits) = cost.reports.unzip();
        Self {
            reports,
            report_bits,
            expectation,
            mode: rule.mode.name().to_owned(),
            instructions: manager::instruction::names(rule.bits),
            bytes: cost.bytes,
            goodput: cost.goodput,
        }
    }
}

impl DeviceState {
    /// Builds the state of a device. `silence` says that its reports do not arrive; `note` states a limit of its driver.
    pub(super) fn new(status: DeviceStatus, silence: Option<String>, note: Option<String>) -> Self {
        let DeviceStatus {
            node,
            name,
            phase,
            difference: (missing, extra),
            waits,
            ready,
            ..
        } = status;
        let text = sentence(&phase, waits.as_ref(), [silence, note]);
        Self {
            node,
            name,
            state: phase.name().to_owned(),
            text,
            ready,
            missing,
            extra,
        }
    }
}

/// Joins a device's phase, wait and notes to one sentence.
fn sentence(phase: &Phase, waits: Option<&Wait>, more: [Option<String>; 2]) -> String {
    let parts = [Some(phase.to_string()), waits.map(ToString::to_string)];
    parts
        .into_iter()
        .chain(more)
        .flatten()
        .collect::<Vec<_>>()
        .join("; ")
}

impl DeviceView {
    /// Builds the view of a device. `can` has the capabilities that its driver reports; `silence` says that its reports do not
    /// arrive.
    pub(super) fn new(
        status: DeviceStatus,
        inventory: &Inventory,
        can: Option<&Capabilities>,
        silence: Option<String>,
    ) -> Self {
        let room = can.map_or((0, 0), |can| (can.watch_entries, can.filter_entries));
        let DeviceStatus {
            node,
            name,
            phase,
            rules,
            difference,
            waits,
            foreign,
            others,
            ready,
        } = status;
        let mut watch_entries = EntriesView {
            used: 0,
            others: others.watch,
            size: room.0,
        };
        let mut filter_entries = EntriesView {
            used: 0,
            others: others.filter,
            size: room.1,
        };
        let mut rule_filters = EntriesView {
            used: 0,
            others: 0,
            size: can.map_or(0, |can| can.rules.filters),
        };
        let mut sources = BTreeSet::new();
        let mut sinks = BTreeSet::new();
        for rule in rules.iter().flatten() {
            match rule {
                Rule::Watch(_) => watch_entries.used += 1,
                Rule::Filter(filter) => {
                    filter_entries.used += 1;
                    rule_filters.used += usize::from(filter.rule.is_some());
                }
                Rule::Source(port) => _ = sources.insert(*port),
                Rule::Sink(port) => _ = sinks.insert(*port),
                _ => {}
            }
        }
        let ports = inventory.ports(node).map(|port| {
            let role = inventory.role((node, port));
            let peer = match role {
                PortRole::Fabric(node, port) => Some(format!("{}:{port}", inventory.name(node))),
                _ => None,
            };
            DevicePortView {
                port,
                name: inventory.port_name((node, port)).map(str::to_owned),
                role: role.name().to_owned(),
                peer,
                mtu: inventory.mtu((node, port)),
                source: sources.contains(&port),
                sink: sinks.contains(&port),
                opening: false,
                neighbour: None,
            }
        });
        let device = inventory.device(node);
        let note = device.and_then(drivers::note);
        let text = sentence(&phase, waits.as_ref(), [silence.clone(), note]);
        Self {
            node,
            name,
            driver: device.map(|device| device.driver.clone()).unwrap_or_default(),
            address: device.map(|device| device.address.clone()).unwrap_or_default(),
            labels: device.map(|device| device.labels.clone()).unwrap_or_default(),
            role: device
                .map_or(DeviceRole::Switch, |device| device.role)
                .name()
                .to_owned(),
            does: None,
            state: phase.name().to_owned(),
            text,
            silence,
            ready,
            missing: difference.0,
            extra: difference.1,
            watch_entries,
            filter_entries,
            rule_filters,
            ports: ports.collect(),
            rules: rules.map(|rules| rules.iter().map(Rule::to_string).collect()),
            foreign,
            capabilities: can.map(CapabilitiesView::new),
            counters: Vec::new(),
        }
    }
}

impl CapabilitiesView {
    fn new(can: &Capabilities) -> Self {
        let kinds = can.matches;
        let matches = [
            ("ipv6", kinds.ipv6),
            ("prefixes", kinds.prefixes),
            ("wildcards", kinds.wildcards),
            ("ranges", kinds.ranges),
            ("dscp", kinds.dscp),
        ];
        Self {
            modes: can.modes.iter().map(|mode| mode.name().to_owned()).collect(),
            instructions: manager::instruction::names(can.bits),
            filters: can
                .filters
                .iter()
                .map(|filter| filter.name().to_owned())
                .collect(),
            sampling: can.sampling,
            sink: can.sink,
            l4_checksum: can
                .l4_checksum
                .iter()
                .map(|treatment| treatment.name().to_owned())
                .collect(),
            matches: matches
                .into_iter()
                .filter(|(_, can)| *can)
                .map(|(kind, _)| kind.to_owned())
                .collect(),
            restart: can.restart.name().to_owned(),
        }
    }
}

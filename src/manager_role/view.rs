//! Manager, intents and devices, for the API.

use manager::{
    device::{Capabilities, Change, Restart, Rule},
    inventory::{Inventory, PortRole},
    plan::{Cost, Plan},
    reconcile::{DeviceStatus, Phase, Wait},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{drivers, journal::Entry};

/// Intents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Intents"))]
pub(crate) struct IntentsView {
    /// The intents, by name.
    pub(crate) intents: Vec<IntentView>,
}

/// An intent and its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Intent"))]
pub(crate) struct IntentView {
    /// Its name.
    pub(crate) name: String,
    /// Its version, for `If-Match`.
    pub(crate) etag: String,
    /// `file`: in the configuration, and changed only there; `api`: added while running; `drill_down`: installed for a while by the rule
    /// of another one.
    pub(crate) origin: String,
    /// That other one, of a drill-down.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    /// Who added it.
    pub(crate) by: String,
    /// When, nanoseconds since the Unix epoch.
    pub(crate) added: u64,
    /// End time, nanoseconds since the Unix epoch, or null for never.
    pub(crate) end: Option<u64>,
    /// Its keys, as in `[[intents]]`.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, Value>"))]
    pub(crate) intent: Value,
    /// `stopped`, `refused`, `pending`, `installed`, `seen`, `complete` or `silent`.
    pub(crate) state: String,
    /// The state in one sentence.
    pub(crate) text: String,
    /// The mode in which its packets are measured; the modes, where other intents take a part of them.
    pub(crate) mode: Option<String>,
    /// Metadata that each node on the path adds.
    pub(crate) instructions: Option<String>,
    /// The active rules for its packets, as text: mode, metadata that each node adds, bytes, goodput. The first one applies to most
    /// packets.
    #[serde(default)]
    pub(crate) rules: Vec<String>,
    /// Devices that have its entries, or shall have them.
    pub(crate) devices: Vec<String>,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
    /// Flows that matched, among those that the collector knows.
    pub(crate) flows: u64,
    /// Reports per second.
    pub(crate) rate: f64,
}

/// State that a manager on standby copies from the active one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ManagerCopy"))]
pub(crate) struct CopyView {
    /// True if this manager is active; otherwise there are no intents here.
    pub(crate) acting: bool,
    /// All INT was stopped by an operator.
    pub(crate) stopped: bool,
    /// The intents that were added while it ran, by name.
    pub(crate) intents: Vec<CopiedView>,
}

/// An intent that was added while the manager ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "CopiedIntent"))]
pub(crate) struct CopiedView {
    /// Its name.
    pub(crate) name: String,
    /// Its keys, as in `[[intents]]`.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, Value>"))]
    pub(crate) intent: Value,
    /// Who added it.
    pub(crate) by: String,
    /// When, nanoseconds since the Unix epoch.
    pub(crate) added: u64,
}

/// Devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Devices"))]
pub(crate) struct DevicesView {
    /// The devices, by node id.
    pub(crate) devices: Vec<DeviceView>,
}

/// A device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Device"))]
pub(crate) struct DeviceView {
    /// Node id.
    pub(crate) node: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its driver.
    pub(crate) driver: String,
    /// Where the driver finds it.
    pub(crate) address: String,
    /// Its labels.
    pub(crate) labels: Vec<String>,
    /// `switch`: a node of the domain; outside it, `aggregator` or `translator`.
    #[serde(default)]
    pub(crate) role: String,
    /// Function of a device outside the domain, as text; null for a switch.
    #[serde(default)]
    pub(crate) does: Option<String>,
    /// `unreachable`, `connecting`, `reading`, `in_sync`, `drift`, `applying`, `unconfirmed`, `failed` or `standby`.
    pub(crate) state: String,
    /// The state in one sentence.
    pub(crate) text: String,
    /// A sentence, if its reports do not arrive; null otherwise, or if unknown.
    pub(crate) silence: Option<String>,
    /// True if INT that reaches it stays inside the domain.
    pub(crate) ready: bool,
    /// Number of missing rules.
    pub(crate) missing: usize,
    /// Number of unexpected rules.
    pub(crate) extra: usize,
    /// Entries of its watchlist.
    pub(crate) watch_entries: EntriesView,
    /// Its filters.
    pub(crate) filter_entries: EntriesView,
    /// Those of them by rule.
    #[serde(default)]
    pub(crate) rule_filters: EntriesView,
    /// Rules as last read, as text; null if never read.
    pub(crate) rules: Option<Vec<String>>,
    /// Entries of other controllers.
    pub(crate) foreign: Vec<String>,
    /// Its ports.
    pub(crate) ports: Vec<DevicePortView>,
    /// Capabilities reported by the driver; null if not known yet.
    pub(crate) capabilities: Option<CapabilitiesView>,
    /// Counters of its program since its start, with the names of its pipeline map.
    #[serde(default)]
    pub(crate) counters: Vec<DeviceCounterView>,
}

/// A counter of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DeviceCounter"))]
pub(crate) struct DeviceCounterView {
    /// The filter, mapping or the like of the program that it belongs to, such as `filter 3`; null for the device itself. Objects
    /// that have counted nothing are left out.
    #[serde(default)]
    pub(crate) object: Option<String>,
    /// Description of that object, such as the rule of a filter and its flows; null if unknown.
    #[serde(default)]
    pub(crate) about: Option<String>,
    /// Meaning of the counter.
    pub(crate) name: String,
    /// Packets.
    pub(crate) packets: u64,
}

/// Capabilities of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DeviceCapabilities"))]
pub(crate) struct CapabilitiesView {
    /// Modes in which it can be source and sink.
    pub(crate) modes: Vec<String>,
    /// Metadata that it can add to a packet.
    pub(crate) instructions: String,
    /// Algorithms of its filters.
    pub(crate) filters: Vec<String>,
    /// It can measure one packet of N.
    pub(crate) sampling: bool,
    /// It can remove INT.
    pub(crate) sink: bool,
    /// Treatments of the L4 checksum that it supports.
    pub(crate) l4_checksum: Vec<String>,
    /// Capabilities of the keys of its watchlist: `ipv6`, `prefixes`, `wildcards`, `ranges`, `dscp`.
    pub(crate) matches: Vec<String>,
    /// After a restart: `keeps` its rules, `waits` for its manager, or `forwards` without rules.
    pub(crate) restart: String,
}

/// Entries of a table of a device.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DeviceEntries"))]
pub(crate) struct EntriesView {
    /// Entries of this manager.
    pub(crate) used: usize,
    /// Entries that belong to none of its rules, such as those of other controllers, as last read.
    #[serde(default)]
    pub(crate) others: usize,
    /// Entries that fit, of all controllers together.
    pub(crate) size: usize,
}

/// A port of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DevicePort"))]
pub(crate) struct DevicePortView {
    /// Number.
    pub(crate) port: u32,
    /// Interface.
    pub(crate) name: Option<String>,
    /// `fabric`, `edge`, `unused` or `disputed`.
    pub(crate) role: String,
    /// The other end: a port of a device, or the hosts that the inventory has there, the first three by name.
    pub(crate) peer: Option<String>,
    /// Longest IP packet, bytes.
    pub(crate) mtu: Option<u32>,
    /// It is an INT source now.
    pub(crate) source: bool,
    /// It is an INT sink now.
    pub(crate) sink: bool,
    /// The port was part of a link, and INT may still leave by it: do not connect hosts. The history announces it with
    /// `edge_ready`.
    #[serde(default)]
    pub(crate) opening: bool,
    /// The neighbour, from received LLDP.
    #[serde(default)]
    pub(crate) neighbour: Option<NeighbourView>,
}

/// A neighbour of a port, as LLDP announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DeviceNeighbour"))]
pub(crate) struct NeighbourView {
    /// Its system name, or its chassis id.
    pub(crate) system: String,
    /// Its port id: the name of an interface, as a rule.
    pub(crate) port: String,
    /// Reason why this neighbour is not a link, or null if it is one.
    pub(crate) note: Option<String>,
}

/// Changes from the actual to the desired state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Plan"))]
pub(crate) struct PlanView {
    /// The plan in a few lines.
    pub(crate) text: String,
    /// Changes by device.
    pub(crate) devices: Vec<DevicePlanView>,
    /// Cost of the intent; null in a plan that is not for one intent.
    pub(crate) cost: Option<CostView>,
    /// Notes for the operator.
    pub(crate) notes: Vec<String>,
}

/// Changes of one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DevicePlan"))]
pub(crate) struct DevicePlanView {
    /// Node id.
    pub(crate) node: u32,
    /// Its name.
    pub(crate) name: String,
    /// Rules added.
    pub(crate) added: usize,
    /// Rules removed.
    pub(crate) removed: usize,
    /// The changes in the order in which they are applied, as text.
    pub(crate) changes: Vec<String>,
}

/// Cost of an intent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "IntentCost"))]
pub(crate) struct CostView {
    /// The mode in which its packets will be measured.
    pub(crate) mode: String,
    /// Metadata that each node on the path adds.
    pub(crate) instructions: String,
    /// Bytes of INT in a packet on the last link, for paths of 1, 2, … links up to the longest.
    pub(crate) bytes: Vec<u32>,
    /// Share of a link's capacity that full packets keep on the longest path, 0 to 1.
    pub(crate) goodput: f64,
    /// Expected reports per second, or null if not known yet.
    pub(crate) reports: Option<f64>,
    /// Their bit/s, or null if not known yet.
    pub(crate) report_bits: Option<f64>,
    /// The basis of the estimate, or the reason why there is none.
    pub(crate) expectation: String,
}

/// The domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Domain"))]
pub(crate) struct DomainView {
    /// True if this manager is active, false if another one has taken over.
    pub(crate) acting: bool,
    /// All INT was stopped by an operator.
    pub(crate) stopped: bool,
    /// DSCP that marks packets with INT.
    pub(crate) dscp: u8,
    /// Treatment of the L4 checksum of packets with INT.
    pub(crate) l4_checksum: String,
    /// Where reports go.
    pub(crate) collectors: Vec<String>,
    /// DTA collectors of the map that devices get; empty: they have their own.
    #[serde(default)]
    pub(crate) dta_collectors: Vec<String>,
    /// Number of devices.
    pub(crate) devices: usize,
    /// Number of devices in sync.
    pub(crate) in_sync: usize,
    /// Links of the longest path between two edge devices.
    pub(crate) longest_path: u32,
    /// Links between devices: node and port of both ends.
    pub(crate) links: Vec<[u32; 4]>,
    /// Contradicting facts, as text.
    pub(crate) contradictions: Vec<String>,
    /// Names of hosts, for `at.between` of intents: the first thousand.
    pub(crate) hosts: Vec<String>,
    /// Links without enough evidence to carry INT, as text: `[[inventory.links]] between = …` accepts one.
    #[serde(default)]
    pub(crate) suggestions: Vec<String>,
    /// True if changes need approval (`[manager] apply = "manual"`); otherwise they wait only until the network is stable.
    #[serde(default)]
    pub(crate) manual: bool,
    /// Pending changes, as the text of `/plan`; empty if there are none.
    #[serde(default)]
    pub(crate) waits: String,
    /// State copied from the other manager (`[manager] peer`), as a sentence; null if this manager is active or copies nothing.
    #[serde(default)]
    pub(crate) copy: Option<String>,
}

/// The history, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ManagerHistory"))]
pub(crate) struct ManagerHistoryView {
    /// Result.
    pub(crate) history: Vec<EntryView>,
}

/// Result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ManagerHistoryEntry"))]
pub(crate) struct EntryView {
    /// When, nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    /// Origin of the action: the name in the request, `file` or `manager`.
    pub(crate) by: String,
    /// `add`, `replace`, `remove`, `end`, `drill_down`, `apply`, `stop`, `start`; the state of a device; `device`, `link`,
    /// `edge_ready`: changes of the inventory and of ports.
    pub(crate) action: String,
    /// The intent or device.
    pub(crate) subject: String,
    /// For people.
    pub(crate) text: String,
}

/// A change at the manager. The name of the event is its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "change", rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ManagerChange"))]
pub(crate) enum ChangeView {
    /// The state of a device.
    Device(DeviceState),
    /// The state of an intent.
    Intent(IntentState),
    /// A removed intent or device.
    Removed {
        /// `intent` or `device`.
        what: String,
        /// Its name.
        name: String,
    },
    /// The state of the domain.
    Domain(DomainState),
    /// An entry of the history.
    History(EntryView),
}

/// The state of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeviceState {
    /// Node id.
    pub(crate) node: u32,
    /// Its name.
    pub(crate) name: String,
    /// As in `Device`.
    pub(crate) state: String,
    /// The state in one sentence.
    pub(crate) text: String,
    /// True if INT that reaches it stays inside the domain.
    pub(crate) ready: bool,
    /// Number of missing rules.
    pub(crate) missing: usize,
    /// Number of unexpected rules.
    pub(crate) extra: usize,
}

/// The state of an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct IntentState {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) etag: String,
    /// As in `Intent`.
    pub(crate) state: String,
    /// The state in one sentence.
    pub(crate) text: String,
    /// Flows that matched, among those that the collector knows.
    pub(crate) flows: u64,
    /// Reports per second.
    pub(crate) rate: f64,
}

/// The state of the domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DomainState {
    /// True if this manager is active, false if another one has taken over.
    pub(crate) acting: bool,
    /// All INT was stopped by an operator.
    pub(crate) stopped: bool,
    /// Number of devices.
    pub(crate) devices: usize,
    /// Number of devices in sync.
    pub(crate) in_sync: usize,
    /// Pending changes, as the text of `/plan`; empty if there are none.
    pub(crate) waits: String,
}

impl PlanView {
    /// A plan, with the names of `inventory`.
    pub(super) fn new(plan: &Plan, inventory: &Inventory) -> Self {
        let device = |device: &manager::plan::DevicePlan| DevicePlanView {
            node: device.node,
            name: inventory.name(device.node),
            added: device.added,
            removed: device.removed,
            changes: device
                .changes
                .iter()
                .map(|(_, change): &(_, Change)| change.to_string())
                .collect(),
        };
        Self {
            text: plan.to_string(),
            devices: plan.devices.iter().map(device).collect(),
            cost: None,
            notes: plan
                .devices
                .iter()
                .filter_map(|one| drivers::note(inventory.device(one.node)?))
                .collect(),
        }
    }
}

impl From<Entry> for EntryView {
    fn from(
        Entry {
            time,
            by,
            action,
            subject,
            text,
        }: Entry,
    ) -> Self {
        Self {
            time,
            by,
            action,
            subject,
            text,
        }
    }
}

impl CostView {
    /// The cost of a rule.
    pub(super) fn new(rule: &manager::compile::EffectiveRule, cost: Cost, expectation: String) -> Self {
        let (reports, report_bits) = cost.reports.unzip();
        Self {
            reports,
            report_bits,
            expectation,
            mode: rule.mode.word().to_owned(),
            instructions: manager::instruction::names(rule.bits),
            bytes: cost.bytes,
            goodput: cost.goodput,
        }
    }
}

impl DeviceState {
    /// The state of a device. `silence`: that its reports do not arrive; `note`: what its driver does not promise.
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
            state: phase.word().to_owned(),
            text,
            ready,
            missing,
            extra,
        }
    }
}

/// The state of a device in one sentence.
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
    /// A device. `can`: what its driver says; `silence`: that its reports do not arrive.
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
        let entries = |is: fn(&Rule) -> bool, others, size| {
            let used = rules.iter().flatten().filter(|rule| is(rule)).count();
            EntriesView { used, others, size }
        };
        let has = |rule: Rule| rules.as_ref().is_some_and(|rules| rules.contains(&rule));
        let port = |port| {
            let role = inventory.role((node, port));
            let peer = match role {
                PortRole::Fabric(node, port) => Some(format!("{}:{port}", inventory.name(node))),
                _ => None,
            };
            DevicePortView {
                port,
                name: inventory.port_name((node, port)).map(str::to_owned),
                role: role.word().to_owned(),
                peer,
                mtu: inventory.mtu((node, port)),
                source: has(Rule::Source(port)),
                sink: has(Rule::Sink(port)),
                opening: false,
                neighbour: None,
            }
        };
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
                .map(|device| device.role)
                .unwrap_or_default()
                .word()
                .to_owned(),
            does: None,
            state: phase.word().to_owned(),
            text,
            silence,
            ready,
            missing: difference.0,
            extra: difference.1,
            watch_entries: entries(|rule| matches!(rule, Rule::Watch(_)), others.watch, room.0),
            filter_entries: entries(|rule| matches!(rule, Rule::Filter(_)), others.filter, room.1),
            rule_filters: entries(
                |rule| matches!(rule, Rule::Filter(filter) if filter.rule.is_some()),
                0,
                can.map_or(0, |can| can.rules.filters),
            ),
            ports: inventory.ports(node).map(port).collect(),
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
        let restart = match can.restart {
            Restart::Keeps => "keeps",
            Restart::Waits => "waits",
            Restart::Forwards => "forwards",
        };
        Self {
            modes: can.modes.iter().map(|mode| mode.word().to_owned()).collect(),
            instructions: manager::instruction::names(can.bits),
            filters: can.filters.iter().map(|one| one.word().to_owned()).collect(),
            sampling: can.sampling,
            sink: can.sink,
            l4_checksum: can.l4_checksum.iter().map(|one| one.word().to_owned()).collect(),
            matches: matches
                .into_iter()
                .filter(|(_, can)| *can)
                .map(|(kind, _)| kind.to_owned())
                .collect(),
            restart: restart.to_owned(),
        }
    }
}

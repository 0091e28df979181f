//! The state of a switch, for the API.

use dataplane::{router::Drop, sampling::Counted, switch::Stats};
use detect::detector::{Counts, Decision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DtaView,
    lldp::{Lldp, NeighbourView},
    managed::{Managed, WATCH_ENTRIES},
    ports::Forwarder,
};
use crate::config::{filter::FilterSettings, switch::Item};
use crate::rules::{self, ElectionView, MatchedView, RuleView};
use settings::setting::Setting;
use view::NamedCounts;

/// State of a switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Switch"))]
pub(crate) struct SwitchView {
    /// Node id.
    node: u32,
    /// Name, as configured.
    name: Option<String>,
    /// Balance of all frames.
    pub(crate) totals: Totals,
    /// Its ports.
    pub(crate) ports: Vec<PortView>,
    /// Watched flows, as in the configuration.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    watch: Value,
    /// Routes, as in the configuration.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    routes: Value,
    /// INT roles, as in the configuration.
    #[cfg_attr(test, schemars(with = "Vec<Value>"))]
    roles: Value,
    /// Filters of the sink.
    pub(crate) filters: Vec<FilterView>,
    /// INT counters.
    pub(crate) int: IntView,
    /// Datagrams with reports.
    pub(crate) reports: ReportsView,
    /// DTA reports; null without `[switch.dta]`.
    pub(crate) dta: Option<DtaView>,
    /// Addresses of hosts in the neighbour table.
    pub(crate) neighbours: usize,
    /// ICMP errors suppressed by the rate limit.
    pub(crate) errors_suppressed: u64,
}

/// Rules of a managed switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchRules"))]
pub(crate) struct RulesView {
    /// Node id.
    pub(crate) node: u32,
    /// Name, as configured.
    pub(crate) name: Option<String>,
    /// Version of the rules; claims, changes and restarts change it.
    pub(crate) etag: String,
    /// The highest election that claimed the switch.
    pub(crate) election: ElectionView,
    /// Whether the switch forwards packets.
    pub(crate) forwarding: bool,
    /// Capabilities.
    pub(crate) capabilities: CapabilitiesView,
    /// Its ports.
    pub(crate) ports: Vec<RulesPortView>,
    /// Changes of the neighbours of ports since the start.
    #[serde(default)]
    pub(crate) neighbour_changes: u64,
    /// The rules.
    pub(crate) rules: Vec<RuleView>,
}

/// Capabilities of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchCapabilities"))]
pub(crate) struct CapabilitiesView {
    /// Instruction bits that it can fill.
    pub(crate) bits: u16,
    /// Entries of its watchlist.
    pub(crate) watch_entries: usize,
    /// Entries of its filter table.
    pub(crate) filter_entries: usize,
    /// It can measure one packet of N.
    #[serde(default)]
    pub(crate) sampling: bool,
    /// It reports by DTA to the collectors of a map from its manager.
    #[serde(default)]
    pub(crate) dta: bool,
}

/// A port, for a manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchRulesPort"))]
pub(crate) struct RulesPortView {
    /// Number.
    pub(crate) number: u16,
    /// Network interface.
    pub(crate) interface: String,
    /// Hosts are behind it.
    pub(crate) edge: bool,
    /// It is switched on.
    pub(crate) up: bool,
    /// Longest IP packet, bytes.
    pub(crate) mtu: u16,
    /// The neighbour from received LLDP; null if there is none, or `lldp` is false.
    #[serde(default)]
    pub(crate) neighbour: Option<NeighbourView>,
}

/// Every frame: `received + originated = sent + consumed + queued + dropped`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchTotals"))]
pub(crate) struct Totals {
    /// Frames received.
    received: u64,
    /// ARP, neighbour discovery, ICMP and LLDP frames that the switch sent itself, and messages of a translator to reporters.
    pub(crate) originated: u64,
    /// Frames sent.
    sent: u64,
    /// ARP, neighbour discovery, LLDP and other frames for the switch itself, and intercepted reports.
    pub(crate) consumed: u64,
    /// Of those consumed: DTA reports intercepted for the translator of this process.
    pub(crate) intercepted: u64,
    /// DTA reports with VLAN tags, which are forwarded instead of intercepted.
    #[serde(default)]
    pub(crate) intercept_tagged: u64,
    /// Of those originated: messages of the translator to reporters.
    pub(crate) replies: u64,
    /// Messages to reporters without a route, or longer than the MTU; not part of `originated`.
    pub(crate) replies_refused: u64,
    /// In queues, on links, or waiting for address resolution.
    pub(crate) queued: u64,
    /// Frames dropped.
    dropped: u64,
    /// Drops by reason.
    drops: NamedCounts,
    /// Frames dropped under overload before they were read; not part of `received`.
    ring_full: u64,
    /// True while the balance holds.
    balanced: bool,
}

/// State of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchPort"))]
pub(crate) struct PortView {
    /// Port number.
    pub(crate) number: u16,
    /// Network interface.
    pub(crate) interface: String,
    /// MAC address; hosts send to it.
    mac: String,
    /// Reason why the interface does not work; null while it works.
    failed: Option<String>,
    /// Settings, as in the configuration.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, Value>"))]
    settings: Value,
    /// Effective MTU, bytes.
    mtu: u16,
    /// The neighbour from received LLDP; null if there is none, or `lldp` is false.
    #[serde(default)]
    neighbour: Option<NeighbourView>,
    /// Frames received.
    pub(crate) received: u64,
    /// Bytes of these frames.
    pub(crate) received_bytes: u64,
    /// Frames sent.
    pub(crate) sent: u64,
    /// Bytes of these frames.
    pub(crate) sent_bytes: u64,
    /// Frames dropped under overload before they were read; not part of `received`.
    pub(crate) ring_full: u64,
    /// Drops by reason.
    pub(crate) drops: NamedCounts,
    /// Egress queue.
    pub(crate) queue: QueueView,
    /// Ingress queue.
    pub(crate) ingress_queue: QueueView,
}

/// State of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchQueue"))]
pub(crate) struct QueueView {
    /// Bytes queued.
    pub(crate) bytes: u32,
    /// Frames queued.
    frames: u32,
    /// Largest number of bytes that were queued.
    max_bytes: u32,
}

/// A filter of the sink, and its decisions: each packet that it matched is in `reported` or `suppressed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchFilter"))]
pub(crate) struct FilterView {
    /// Settings, as in the configuration.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, Value>"))]
    settings: Value,
    /// Packets reported, by reason.
    pub(crate) reported: ReportedView,
    /// Packets not reported.
    pub(crate) suppressed: u64,
    /// Packets whose register held another flow or node; they were reported as the first of their key.
    pub(crate) collisions: u64,
}

/// Reasons for which packets were reported.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchReported"))]
pub(crate) struct ReportedView {
    /// The algorithm detected an event.
    pub(crate) event: u64,
    /// The first packet of its key.
    pub(crate) first: u64,
    /// The rule was true for the previous packet.
    pub(crate) ended: u64,
    /// The keep-alive time passed.
    pub(crate) keep_alive: u64,
    /// Values are missing.
    pub(crate) missing_value: u64,
}

impl FilterView {
    fn new(settings: &FilterSettings, counts: &Counts) -> Self {
        let reported = ReportedView {
            event: counts.of(Decision::Event),
            first: counts.of(Decision::First),
            ended: counts.of(Decision::Ended),
            keep_alive: counts.of(Decision::KeepAlive),
            missing_value: counts.of(Decision::MissingValue),
        };
        let (suppressed, collisions) = (counts.of(Decision::Suppressed), counts.collisions);
        Self {
            settings: settings.show().to_json(),
            reported,
            suppressed,
            collisions,
        }
    }
}

/// INT counters of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchCounters"))]
pub(crate) struct CountersView {
    /// Node id.
    pub(crate) node: u32,
    /// Its counters.
    pub(crate) int: IntView,
    /// Its datagrams with reports.
    #[serde(default)]
    pub(crate) reports: Option<ReportsView>,
    /// Who configures it; null without `[switch.managed]`.
    pub(crate) lease: Option<LeaseView>,
    /// Entries of the watchlist that packets have matched; empty without `[switch.managed]`.
    #[serde(default)]
    pub(crate) matched: Vec<MatchedView>,
}

/// The lease of a switch's manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchLease"))]
pub(crate) struct LeaseView {
    /// The highest election that claimed the switch.
    pub(crate) election: ElectionView,
    /// Time since that manager claimed it, changed its rules or renewed the lease, or since the start, ns.
    pub(crate) silence: u64,
}

/// INT counters; each packet is in one of the first eight.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchInt"))]
pub(crate) struct IntView {
    /// Packets without INT.
    pub(crate) plain: u64,
    /// Packets with malformed or unsupported INT.
    pub(crate) refused: u64,
    /// Packets to which this switch added its metadata.
    pub(crate) recorded: u64,
    /// SF-INT: packets with metadata of another switch, received or from a register.
    pub(crate) swapped: u64,
    /// Remaining hop count was zero (E bit).
    pub(crate) hops_exceeded: u64,
    /// Metadata would exceed the MTU (M bit), or INT was not added for this reason.
    pub(crate) mtu_exceeded: u64,
    /// INT was not added because a sink could not restore the packet.
    pub(crate) not_restorable: u64,
    /// Packets reported.
    pub(crate) reported: u64,
    /// Packets at the sink that `[[switch.filter]]` suppressed.
    pub(crate) filtered: u64,
    /// Drop reports.
    pub(crate) drops_reported: u64,
    /// Queue reports.
    pub(crate) queues_reported: u64,
    /// Packets reported because they passed a congested queue (`quota`).
    pub(crate) congested_reported: u64,
    /// Packets that arrived with INT from outside the domain: INT was removed, and they are counted again by their further
    /// treatment.
    pub(crate) edge_stripped: u64,
    /// Refused packets that arrived so, and carried more INT, or its mark, behind it: dropped.
    pub(crate) edge_refused: u64,
    /// Packets whose L4 checksum was examined after INT was stripped: one of 64.
    pub(crate) checksums_examined: u64,
    /// Of these, packets with a wrong checksum, which hosts drop: see `l4_checksum` in `[switch]`.
    pub(crate) checksums_wrong: u64,
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

/// Datagrams with reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SwitchReports"))]
pub(crate) struct ReportsView {
    /// Address of the collector, or null without one.
    to: Option<String>,
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Datagrams not sent: no address is known, or the kernel refused them.
    pub(crate) unsent: u64,
}

impl SwitchView {
    /// One of its ports.
    pub(crate) fn port(self, number: u16) -> Option<PortView> {
        self.ports.into_iter().find(|port| port.number == number)
    }
}

impl Forwarder {
    /// Current state and counters.
    pub(crate) fn view(&mut self) -> SwitchView {
        let ports: Vec<PortView> = (0..self.ports.len()).map(|index| self.port_view(index)).collect();
        let (stats, queued) = (self.router.stats(), self.router.queued());
        let of =
            |reason: &Drop| Some((reason.name(), stats.dropped(*reason))).filter(|(_, count)| *count > 0);
        let totals = Totals {
            received: stats.received(),
            originated: stats.originated,
            sent: stats.sent(),
            consumed: stats.consumed,
            intercepted: stats.intercepted,
            intercept_tagged: stats.intercept_tagged,
            replies: stats.replies,
            replies_refused: stats.replies_refused,
            queued,
            dropped: stats.drops(),
            drops: Drop::ALL.iter().filter_map(of).collect(),
            ring_full: ports.iter().map(|port| port.ring_full).sum(),
            balanced: stats.is_balanced(queued),
        };
        let counts = self.router.switch().filters().entries().map(|(_, counts)| counts);
        let filters = self.settings.filter.iter().zip(counts);
        let filters = filters
            .map(|(settings, counts)| FilterView::new(settings, counts))
            .collect();
        SwitchView {
            node: self.settings.node,
            name: self.settings.name.clone(),
            totals,
            ports,
            watch: self.settings.watch.show().to_json(),
            routes: self.settings.routes.show().to_json(),
            roles: self.settings.role.show().to_json(),
            filters,
            int: (*self.router.switch().stats()).into(),
            reports: self.reports_view(),
            dta: self.dta_view(),
            neighbours: self.router.neighbours(),
            errors_suppressed: self.router.stats().errors_suppressed,
        }
    }

    fn port_view(&mut self, index: usize) -> PortView {
        let counted = self.ports[index].stats();
        let (port, settings) = (&self.router.config().ports[index], &self.settings.ports[index]);
        let stats = self.router.stats().ports[index];
        let of = |reason: &Drop| {
            Some((reason.name(), stats.drops[*reason as usize])).filter(|(_, count)| *count > 0)
        };
        let mac: Vec<String> = port.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let queue = |queue: dataplane::router::QueueStats| QueueView {
            bytes: queue.bytes,
            frames: queue.frames,
            max_bytes: queue.max_bytes,
        };
        PortView {
            number: settings.number,
            interface: settings.interface.clone(),
            mac: mac.join(":"),
            failed: self.ports[index].failed.clone(),
            settings: settings.show().to_json(),
            mtu: port.mtu,
            neighbour: self.neighbour(index),
            received: stats.received,
            received_bytes: stats.received_bytes,
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            ring_full: counted.ring_full,
            drops: Drop::ALL.iter().filter_map(of).collect(),
            queue: queue(self.router.queue(index)),
            ingress_queue: queue(self.router.queue_in(index)),
        }
    }

    fn reports_view(&self) -> ReportsView {
        ReportsView {
            to: self.settings.reports.map(|to| to.to_string()),
            sent: self.reports.sent,
            unsent: self.reports.lost,
        }
    }

    /// Its INT counters.
    pub(crate) fn counters_view(&self) -> CountersView {
        let lease = |managed: &Managed| LeaseView {
            election: managed.election().into(),
            silence: u64::try_from(managed.silence().as_nanos()).unwrap_or(u64::MAX),
        };
        let switch = self.router.switch();
        let matched = self
            .managed()
            .map(|managed| rules::matched(managed.rules(), switch))
            .unwrap_or_default();
        CountersView {
            node: self.settings.node,
            int: (*switch.stats()).into(),
            reports: Some(self.reports_view()),
            lease: self.managed().map(lease),
            matched: matched
                .iter()
                .map(
                    |(
                        key,
                        Counted {
                            matched, measured, ..
                        },
                    )| MatchedView {
                        flows: key.into(),
                        packets: *matched,
                        measured: *measured,
                    },
                )
                .collect(),
        }
    }

    /// The rules of its manager; `None`: it has none.
    pub(crate) fn rules_view(&self) -> Option<RulesView> {
        let managed = self.managed()?;
        let ports = self
            .router
            .config()
            .ports
            .iter()
            .zip(&self.settings.ports)
            .enumerate();
        let port = |(index, (port, settings)): (
            usize,
            (&dataplane::router::Port, &crate::config::switch::PortSettings),
        )| {
            RulesPortView {
                number: settings.number,
                interface: settings.interface.clone(),
                edge: settings.edge,
                up: settings.up,
                mtu: port.mtu,
                neighbour: self.neighbour(index),
            }
        };
        Some(RulesView {
            node: self.settings.node,
            name: self.settings.name.clone(),
            etag: managed.etag().0,
            election: managed.election().into(),
            forwarding: managed.forwards(),
            capabilities: CapabilitiesView {
                bits: Item::delivered(),
                watch_entries: WATCH_ENTRIES,
                filter_entries: dataplane::filter::MAX_FILTERS,
                sampling: true,
                dta: self.takes_dta_map(),
            },
            ports: ports.map(port).collect(),
            neighbour_changes: self.lldp.as_ref().map_or(0, Lldp::changes),
            rules: rules::views(managed.rules()),
        })
    }

    fn neighbour(&self, index: usize) -> Option<NeighbourView> {
        self.lldp.as_ref()?.neighbour(index)
    }

    /// The settings of a port now.
    pub(crate) fn port_settings(&self, number: u16) -> Option<crate::config::switch::PortSettings> {
        self.settings
            .ports
            .iter()
            .find(|port| port.number == number)
            .cloned()
    }
}

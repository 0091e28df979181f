//! Views of a switch for the API. The doc comments of the view types are the descriptions in the API's schema.

use dataplane::{
    router::{Drop, QueueStats},
    sampling::Counted,
    switch::Stats,
};
use detect::detector::{Counts, Decision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DtaView,
    lldp::Lldp,
    managed::{WATCH_ENTRIES, matched},
    ports::Forwarder,
};
use crate::settings::{PortSettings, filter::FilterSettings};
use settings::{setting::Setting, values::as_nanoseconds};
use view::{
    NamedCounts,
    rules::{self, MatchedView},
    switch::{
        CapabilitiesView, CountersView, INSTRUCTIONS, LeaseView, NeighbourView, ReportsView, RulesPortView,
        RulesView,
    },
};

/// State of a switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Switch"))]
pub struct SwitchView {
    /// Node id in reports and INT metadata.
    node: u32,
    /// Name of the switch, as configured.
    name: Option<String>,
    /// Balance of all frames.
    pub totals: Totals,
    /// State and counters of the ports.
    pub ports: Vec<PortView>,
    /// Watched flows, as in the configuration.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    watch: Value,
    /// Routes, as in the configuration.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<serde_json::Map<String, Value>>"))]
    routes: Value,
    /// INT roles, as in the configuration.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Value>"))]
    roles: Value,
    /// Filters of the sink.
    pub filters: Vec<FilterView>,
    /// Counters of INT processing.
    pub int: Stats,
    /// Datagrams with reports, by outcome.
    pub reports: ReportsView,
    /// DTA reports; null without `[switch.dta]`.
    pub dta: Option<DtaView>,
    /// Addresses of hosts in the neighbour table.
    pub neighbours: usize,
    /// ICMP errors suppressed by the rate limit.
    pub errors_suppressed: u64,
}

/// Every frame: `received + originated = sent + consumed + queued + dropped`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchTotals"))]
pub struct Totals {
    /// Frames received on all ports.
    received: u64,
    /// ARP, neighbour discovery, ICMP and LLDP frames that the switch sent itself, and messages of a translator to reporters.
    pub originated: u64,
    /// Frames sent on all ports.
    sent: u64,
    /// ARP, neighbour discovery, LLDP and other frames for the switch itself, and intercepted reports.
    pub consumed: u64,
    /// Consumed frames that were DTA reports for the translator of this process.
    pub intercepted: u64,
    /// DTA reports with VLAN tags, which are forwarded instead of intercepted.
    #[serde(default)]
    pub intercept_tagged: u64,
    /// Originated frames that were messages of the translator to reporters.
    pub replies: u64,
    /// Messages to reporters without a route, or longer than the MTU; not part of `originated`.
    pub replies_refused: u64,
    /// In queues, on links, or waiting for address resolution.
    pub queued: u64,
    /// Frames dropped for any reason.
    dropped: u64,
    /// Frames dropped, by reason.
    drops: NamedCounts,
    /// Frames dropped under overload before they were read; not part of `received`.
    ring_full: u64,
    /// True while the balance holds.
    balanced: bool,
}

/// State of a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchPort"))]
pub struct PortView {
    /// Number of the port, as configured.
    pub number: u16,
    /// Network interface of the port.
    pub interface: String,
    /// MAC address; hosts send to it.
    mac: String,
    /// Reason why the interface does not work; null while it works.
    failed: Option<String>,
    /// Settings, as in the configuration.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    settings: Value,
    /// MTU in effect, bytes.
    mtu: u16,
    /// The neighbour from received LLDP; null if there is none, or `lldp` is false.
    #[serde(default)]
    neighbour: Option<NeighbourView>,
    /// Frames received on this port.
    pub received: u64,
    /// Bytes of these frames.
    pub received_bytes: u64,
    /// Frames sent on this port.
    pub sent: u64,
    /// Bytes of these frames.
    pub sent_bytes: u64,
    /// Frames dropped under overload before they were read; not part of `received`.
    pub ring_full: u64,
    /// Frames dropped at this port, by reason.
    pub drops: NamedCounts,
    /// Queue of frames that leave through the port.
    pub queue: QueueStats,
    /// Queue of frames that arrive at the port.
    pub ingress_queue: QueueStats,
}

/// A filter of the sink, and its decisions: each packet that it matched is in `reported` or `suppressed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchFilter"))]
pub struct FilterView {
    /// Settings, as in the configuration.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    settings: Value,
    /// Packets reported, by reason.
    pub reported: ReportedView,
    /// Packets that the filter suppressed.
    pub suppressed: u64,
    /// Packets whose register held another flow or node; they were reported as the first of their key.
    pub collisions: u64,
}

/// Reasons for which packets were reported.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchReported"))]
pub struct ReportedView {
    /// The algorithm detected an event.
    pub event: u64,
    /// The first packet of its key.
    pub first: u64,
    /// The rule was true for the previous packet.
    pub ended: u64,
    /// The keep-alive time passed.
    pub keep_alive: u64,
    /// Packets without a value that the filter needs.
    pub missing_value: u64,
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
        let suppressed = counts.of(Decision::Suppressed);
        let collisions = counts.collisions;
        Self {
            settings: settings.show().to_json(),
            reported,
            suppressed,
            collisions,
        }
    }
}

impl SwitchView {
    /// Returns one of the ports.
    pub fn port(self, number: u16) -> Option<PortView> {
        self.ports.into_iter().find(|port| port.number == number)
    }
}

impl Forwarder {
    /// Returns the current state and counters.
    pub fn view(&mut self) -> SwitchView {
        let ports: Vec<PortView> = (0..self.ports.len()).map(|index| self.port_view(index)).collect();
        let stats = self.router.stats();
        let queued = self.router.queued();
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
            drops: NamedCounts::nonzero(Drop::ALL.map(|reason| (reason.name(), stats.dropped(reason)))),
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
            int: *self.router.switch().stats(),
            reports: self.reports_view(),
            dta: self.dta_view(),
            neighbours: self.router.neighbours(),
            errors_suppressed: self.router.stats().errors_suppressed,
        }
    }

    fn port_view(&mut self, index: usize) -> PortView {
        let counted = self.ports[index].stats();
        let port = &self.router.config().ports[index];
        let settings = &self.settings.ports[index];
        let stats = self.router.stats().ports[index];
        let mac: Vec<String> = port.mac.iter().map(|byte| format!("{byte:02x}")).collect();
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
            drops: NamedCounts::nonzero(
                Drop::ALL.map(|reason| (reason.name(), stats.drops[reason as usize])),
            ),
            queue: self.router.queue(index),
            ingress_queue: self.router.queue_in(index),
        }
    }

    fn reports_view(&self) -> ReportsView {
        ReportsView {
            to: self.settings.reports.map(|to| to.to_string()),
            sent: self.reports.sent,
            unsent: self.reports.lost,
        }
    }

    /// Returns the counters of INT processing.
    pub fn counters_view(&self) -> CountersView {
        let switch = self.router.switch();
        let matched = self
            .managed()
            .map(|managed| matched(managed.rules(), switch))
            .unwrap_or_default();
        CountersView {
            node: self.settings.node,
            int: *switch.stats(),
            reports: Some(self.reports_view()),
            lease: self.managed().map(|managed| LeaseView {
                election: managed.election(),
                silence: as_nanoseconds(managed.silence()),
            }),
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

    /// Returns the rules of the manager, or `None` if the switch is not managed.
    pub fn rules_view(&self) -> Option<RulesView> {
        let managed = self.managed()?;
        let ports = self
            .router
            .config()
            .ports
            .iter()
            .zip(&self.settings.ports)
            .enumerate();
        let port =
            |(index, (port, settings)): (usize, (&dataplane::router::Port, &PortSettings))| RulesPortView {
                number: settings.number,
                interface: settings.interface.clone(),
                edge: settings.edge,
                up: settings.up,
                mtu: port.mtu,
                neighbour: self.neighbour(index),
            };
        Some(RulesView {
            node: self.settings.node,
            name: self.settings.name.clone(),
            etag: managed.etag().0,
            election: managed.election(),
            forwarding: managed.forwards(),
            capabilities: CapabilitiesView {
                bits: INSTRUCTIONS,
                watch_entries: WATCH_ENTRIES,
                filter_entries: dataplane::filter::MAX_FILTERS,
                sampling: true,
                dta: self.accepts_dta_map(),
            },
            ports: ports.map(port).collect(),
            neighbour_changes: self.lldp.as_ref().map_or(0, Lldp::changes),
            rules: rules::views(managed.rules()),
        })
    }

    fn neighbour(&self, index: usize) -> Option<NeighbourView> {
        self.lldp.as_ref()?.neighbour(index)
    }

    /// Returns the current settings of a port.
    pub fn port_settings(&self, number: u16) -> Option<PortSettings> {
        self.settings
            .ports
            .iter()
            .find(|port| port.number == number)
            .cloned()
    }
}

//! The state of a switch, for the API.

use dataplane::{router::Drop, switch::Stats};
use detect::detector::{Counts, Decision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DtaView, ports::Forwarder};
use crate::config::filter::FilterSettings;
use crate::view::NamedCounts;
use settings::setting::Setting;

/// A switch now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SwitchView {
    node: u32,
    name: Option<String>,
    pub(crate) totals: Totals,
    pub(crate) ports: Vec<PortView>,
    /// As in the configuration.
    watch: Value,
    /// As in the configuration.
    routes: Value,
    /// As in the configuration.
    roles: Value,
    pub(crate) filters: Vec<FilterView>,
    pub(crate) int: IntView,
    pub(crate) reports: ReportsView,
    /// What it reported by DTA, if it does.
    pub(crate) dta: Option<DtaView>,
    /// Hosts' addresses that are known.
    pub(crate) neighbours: usize,
    pub(crate) errors_suppressed: u64,
}

/// Every frame: `received + originated = sent + consumed + queued + dropped`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Totals {
    received: u64,
    pub(crate) originated: u64,
    sent: u64,
    pub(crate) consumed: u64,
    pub(crate) queued: u64,
    dropped: u64,
    drops: NamedCounts,
    ring_full: u64,
    adds_up: bool,
}

/// A port now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PortView {
    pub(crate) number: u16,
    pub(crate) interface: String,
    mac: String,
    /// Why nothing goes through its interface, if so.
    failed: Option<String>,
    /// As in the configuration.
    settings: Value,
    mtu: u16,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) ring_full: u64,
    pub(crate) drops: NamedCounts,
    pub(crate) queue: QueueView,
    pub(crate) in_queue: QueueView,
}

/// A queue now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QueueView {
    pub(crate) bytes: u32,
    frames: u32,
    most_bytes: u32,
}

/// A filter of the sink, and its decisions: each packet that it matched is in `reported` or `suppressed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FilterView {
    /// As in the configuration.
    settings: Value,
    pub(crate) reported: ReportedView,
    pub(crate) suppressed: u64,
    pub(crate) collisions: u64,
}

/// Reasons for which packets were reported.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        Self { settings: settings.show().to_json(), reported, suppressed, collisions }
    }
}

/// What INT did; every packet is in one of the first eight.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct IntView {
    pub(crate) plain: u64,
    pub(crate) refused: u64,
    pub(crate) recorded: u64,
    pub(crate) swapped: u64,
    pub(crate) hops_exceeded: u64,
    pub(crate) mtu_exceeded: u64,
    pub(crate) reported: u64,
    pub(crate) filtered: u64,
    pub(crate) drops_reported: u64,
    pub(crate) queues_reported: u64,
    pub(crate) congested_reported: u64,
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
            reported: int.reported,
            filtered: int.filtered,
            drops_reported: int.drops_reported,
            queues_reported: int.queues_reported,
            congested_reported: int.congested_reported,
        }
    }
}

/// Datagrams with reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReportsView {
    to: Option<String>,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl SwitchView {
    /// One of its ports.
    pub(crate) fn port(self, number: u16) -> Option<PortView> {
        self.ports.into_iter().find(|port| port.number == number)
    }
}

impl Forwarder {
    /// What it is and did.
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
            queued,
            dropped: stats.drops(),
            drops: Drop::ALL.iter().filter_map(of).collect(),
            ring_full: ports.iter().map(|port| port.ring_full).sum(),
            adds_up: stats.adds_up(queued),
        };
        let counts = self.router.switch().filters().entries().map(|(_, counts)| counts);
        let filters = self.settings.filter.iter().zip(counts);
        let filters = filters.map(|(settings, counts)| FilterView::new(settings, counts)).collect();
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
            reports: ReportsView {
                to: self.settings.reports.map(|to| to.to_string()),
                sent: self.reports.sent,
                lost: self.reports.lost,
            },
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
            most_bytes: queue.most_bytes,
        };
        PortView {
            number: settings.number,
            interface: settings.interface.clone(),
            mac: mac.join(":"),
            failed: self.ports[index].failed.clone(),
            settings: settings.show().to_json(),
            mtu: port.mtu,
            received: stats.received,
            received_bytes: stats.received_bytes,
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            ring_full: counted.ring_full,
            drops: Drop::ALL.iter().filter_map(of).collect(),
            queue: queue(self.router.queue(index)),
            in_queue: queue(self.router.queue_in(index)),
        }
    }

    /// The settings of a port now.
    pub(crate) fn port_settings(&self, number: u16) -> Option<crate::config::switch::PortSettings> {
        self.settings.ports.iter().find(|port| port.number == number).cloned()
    }
}

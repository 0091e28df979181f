//! DTA reports of a switch. The `dataplane` crate owns the reporter, which turns packets into DTA operations; this module owns
//! its sockets, its destinations and its timers.

use std::{net::SocketAddr, sync::Arc};

use dataplane::{
    dta::{Mapping, MappingStats, Reporter, Spread, SwitchReporter},
    switch::Switch,
};
use manager::device::DtaMap;
use serde::{Deserialize, Serialize};

use crate::settings::dta::DtaSettings;
use runtime::reporter::{Sockets, first_sequence};
use terminal::CliError;
use view::{Name, ReporterCollector, reporter_collectors, rules};

/// Minimum interval between two ticks of the reporter, ns.
const TICK: u64 = 200_000;

/// The address for each collector's reports, and the assignment of keys to collectors.
pub(super) type Destinations = (Vec<SocketAddr>, Spread);

/// The sockets of the reporter, and its schedule.
#[derive(Debug)]
pub struct Dta {
    collectors: Vec<SocketAddr>,
    /// The sockets for reports and control messages.
    pub sockets: Sockets,
    next_tick: u64,
    /// The map of collectors received from the manager.
    map: Option<Arc<DtaMap>>,
    /// Pending operations lost when a map with fewer or other collectors arrived.
    abandoned: u64,
}

impl Dta {
    /// Opens the sockets, and attaches a reporter to the switch. Without collectors, waits for the manager's map.
    ///
    /// # Errors
    /// A port is in use, or the settings are inconsistent.
    pub(super) fn open(
        settings: &DtaSettings,
        node: u32,
        now: u64,
        switch: &mut Switch,
    ) -> Result<Self, CliError> {
        let waits = settings.waits_for_map();
        let destinations = if waits {
            None
        } else {
            Some(settings.destinations())
        };
        let destinations = destinations.transpose().map_err(|error| invalid(&error))?;
        let collectors = destinations
            .as_ref()
            .map_or(&[][..], |(collectors, _)| collectors);
        let sockets = Sockets::open(collectors, settings.control).map_err(|error| invalid(&error))?;
        let mut dta = Self::idle(sockets);
        match destinations {
            Some(destinations) => dta
                .begin(settings, node, destinations, now, switch)
                .map_err(|error| invalid(&error))?,
            None => tracing::info!(
                "[switch.dta]: waiting for the manager's map of collectors; no reports until then"
            ),
        }
        Ok(dta)
    }

    /// Attaches a reporter that uses open sockets and the collectors of the settings.
    ///
    /// # Errors
    /// The settings are inconsistent.
    pub fn attach(
        settings: &DtaSettings,
        node: u32,
        now: u64,
        sockets: Sockets,
        switch: &mut Switch,
    ) -> Result<Self, CliError> {
        let destinations = settings.destinations().map_err(|error| invalid(&error))?;
        let mut dta = Self::idle(sockets);
        dta.begin(settings, node, destinations, now, switch)
            .map_err(|error| invalid(&error))?;
        Ok(dta)
    }

    fn idle(sockets: Sockets) -> Self {
        Self {
            collectors: Vec::new(),
            sockets,
            next_tick: 0,
            map: None,
            abandoned: 0,
        }
    }

    /// Attaches a new reporter, with new sequence numbers.
    fn begin(
        &mut self,
        settings: &DtaSettings,
        node: u32,
        (collectors, spread): Destinations,
        now: u64,
        switch: &mut Switch,
    ) -> Result<(), String> {
        let mut config = settings.config(node)?;
        config.spread = spread;
        config.first_sequence = first_sequence(now);
        config.seed = runtime::host::seed();
        let reporter = Reporter::new(config).map_err(|error| error.to_string())?;
        self.sockets.set_collectors(&collectors);
        self.collectors = collectors;
        switch.set_dta(Some(SwitchReporter::new(reporter, settings.also_reports)));
        Ok(())
    }

    /// Returns whether the destinations come from a manager's map.
    pub(super) fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// Switches to the collectors of a manager's map. If the current collectors are the first in the map, their sequences
    /// continue; otherwise a new reporter starts.
    ///
    /// # Errors
    /// The map contradicts the settings; the value is the message, and nothing changes.
    pub(super) fn follow(
        &mut self,
        settings: &DtaSettings,
        node: u32,
        map: &Arc<DtaMap>,
        now: u64,
        switch: &mut Switch,
    ) -> Result<(), String> {
        if self.map.as_ref() == Some(map) {
            return Ok(());
        }
        let destinations = rules::collector_map(map)
            .and_then(|map| settings.destinations_of(&map))
            .map_err(|error| format!("[switch.dta] {error}"))?;
        let grows = switch.dta().is_some() && destinations.0.starts_with(&self.collectors);
        if grows {
            self.set_destinations(destinations, now, switch)?;
        } else {
            let waiting = switch.dta().map_or(0, |dta| waiting(&dta.reporter, now));
            self.begin(settings, node, destinations, now, switch)?;
            self.abandoned += waiting;
            if waiting > 0 {
                tracing::warn!(
                    waiting,
                    "new map of DTA collectors: pending reports for the previous collectors are lost"
                );
            }
        }
        tracing::info!(
            collectors = map.collectors.join(", "),
            "reports by DTA follow the manager's map"
        );
        self.map = Some(map.clone());
        Ok(())
    }

    /// Replaces the destinations of reports.
    ///
    /// # Errors
    /// There are fewer collectors than before; nothing changes.
    pub(super) fn set_destinations(
        &mut self,
        (collectors, spread): Destinations,
        now: u64,
        switch: &mut Switch,
    ) -> Result<(), String> {
        if let Some(SwitchReporter { reporter, .. }) = switch.dta_mut() {
            reporter
                .set_spread(spread, first_sequence(now))
                .map_err(|error| format!("[switch.dta] map: {error}"))?;
        }
        self.sockets.set_collectors(&collectors);
        self.collectors = collectors;
        Ok(())
    }

    /// Processes control messages, runs timers, and sends pending reports.
    pub fn poll(&mut self, now: u64, switch: &mut Switch) {
        let Some(SwitchReporter { reporter, outbox, .. }) = switch.dta_mut() else {
            return;
        };
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.sockets.receive(0, |collector, payload| {
                reporter.control(collector, payload, now, outbox)
            });
            reporter.tick(now, outbox);
        }
        self.sockets.send(outbox);
    }

    /// Returns the time of the next tick, ns.
    pub(super) fn next(&self, switch: &Switch) -> u64 {
        let next = switch.dta().and_then(|dta| dta.reporter.next());
        next.map_or(u64::MAX, |next| next.max(self.next_tick))
    }

    /// Returns the current state and counters.
    pub fn view(&self, now: u64, switch: &Switch) -> DtaView {
        let map = self.map.as_ref().map(|map| map.collectors.clone());
        let abandoned = self.abandoned;
        let sent = self.sockets.stats.sent;
        let unsent = self.sockets.stats.lost;
        let Some(SwitchReporter { reporter, .. }) = switch.dta() else {
            return DtaView {
                map,
                abandoned,
                sent,
                unsent,
                ..DtaView::default()
            };
        };
        let stats = reporter.stats();
        let mappings = reporter
            .mappings()
            .map(|(mapping, stats)| mapping_view(mapping, stats));
        let tables = reporter.tables().map(|(table, stats)| TableView {
            name: table.name.clone(),
            counted: stats.counted,
            without_key: stats.keyless,
            records: stats.records,
            evicted: stats.evicted,
            periods: stats.periods,
        });
        let sketches = reporter.sketches().map(|(sketch, stats)| SketchView {
            name: sketch.name.clone(),
            id: sketch.id,
            counted: stats.counted,
            epochs: stats.epochs,
            columns: stats.columns,
            retransmitted: stats.again,
            expired: stats.expired,
            suppressed: stats.suppressed,
            nacks: stats.nacks,
            nacks_ignored: stats.stale + stats.limited,
        });
        DtaView {
            map,
            abandoned,
            reports: stats.reports,
            sent,
            unsent,
            controls: stats.controls,
            controls_refused: stats.bad_controls + stats.misdirected + self.sockets.stats.unknown_senders,
            collectors: reporter_collectors(&self.collectors, reporter, now),
            mappings: mappings.collect(),
            tables: tables.collect(),
            sketches: sketches.collect(),
        }
    }
}

/// Returns the number of unacknowledged reports and of entries that wait for a full batch.
fn waiting(reporter: &Reporter, now: u64) -> u64 {
    let reports: u64 = reporter.destinations(now).map(|to| u64::from(to.waiting)).sum();
    reports + reporter.mappings().map(|(_, stats)| stats.pending).sum::<u64>()
}

fn mapping_view(mapping: &Mapping, stats: &MappingStats) -> MappingView {
    MappingView {
        name: mapping.name.clone(),
        on: mapping.on.name().into(),
        operations: stats.made,
        sent: stats.sent,
        pending: stats.pending,
        suppressed: stats.suppressed,
        missing_value: stats.absent,
        wrong_size: stats.size,
        queue_full: stats.queue_full,
    }
}

fn invalid(error: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!("[switch.dta]: {error}"))
}

/// DTA reports of a switch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchDta"))]
pub struct DtaView {
    /// Collectors of the map that the manager sent, or null if there is no map: the switch then uses its own collectors, or waits
    /// for a map.
    #[serde(default)]
    pub map: Option<Vec<String>>,
    /// Unacknowledged reports, and entries pending for a full batch, that were lost when a map with fewer or other collectors
    /// arrived.
    #[serde(default)]
    pub abandoned: u64,
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
    /// Reports by mapping, as `[[switch.dta.report]]`.
    pub mappings: Vec<MappingView>,
    /// Tables of counters per key.
    pub tables: Vec<TableView>,
    /// Sketches that the switch maintains.
    pub sketches: Vec<SketchView>,
}

/// Reports of a mapping: `operations = sent + pending + suppressed + missing_value + wrong_size + queue_full`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchDtaMapping"))]
pub struct MappingView {
    /// Name of the mapping, as configured.
    pub name: String,
    /// The trigger of a report.
    pub on: Name,
    /// DTA operations; for Append, list entries.
    pub operations: u64,
    /// Operations that the mapping sent.
    pub sent: u64,
    /// Entries that wait for a full batch.
    pub pending: u64,
    /// Operations suppressed because of congestion.
    pub suppressed: u64,
    /// Operations without a value, or with an incomplete key.
    pub missing_value: u64,
    /// Operations whose key or value has the wrong size, such as an IPv6 address for a field of four bytes.
    pub wrong_size: u64,
    /// Operations dropped because the send queue was full.
    pub queue_full: u64,
}

/// A table of counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchDtaTable"))]
pub struct TableView {
    /// Name of the table, as configured.
    pub name: String,
    /// Packets that the table counted.
    pub counted: u64,
    /// Packets that lack a field of the key.
    pub without_key: u64,
    /// Records in the table.
    pub records: u64,
    /// Records evicted by other records.
    pub evicted: u64,
    /// Periods that the table completed.
    pub periods: u64,
}

/// A sketch of the switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchDtaSketch"))]
pub struct SketchView {
    /// Name of the sketch, as configured.
    pub name: String,
    /// ID of the sketch in reports.
    pub id: u16,
    /// Packets that the sketch counted.
    pub counted: u64,
    /// Epochs that the sketch completed.
    pub epochs: u64,
    /// Columns sent to translators.
    pub columns: u64,
    /// Columns sent again after a NACK.
    pub retransmitted: u64,
    /// Columns not sent before the end of the next epoch.
    pub expired: u64,
    /// Columns suppressed because of congestion.
    pub suppressed: u64,
    /// NACKs of translators that were processed.
    #[serde(default)]
    pub nacks: u64,
    /// NACKs ignored: about columns never sent or no longer stored, or beyond the limit of retransmissions.
    #[serde(default)]
    pub nacks_ignored: u64,
}

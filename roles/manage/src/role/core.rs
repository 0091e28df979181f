//! State of the manager's thread. It connects the `manager` crate, which compiles intents to rules and reconciles devices
//! without any I/O, with the device drivers, the journal, the collector in this process, and the requests of the API.

mod budgets;
mod detection;
mod devices;
mod drill_down;
mod intents;
mod inventory;
mod matched;
mod silence;
mod standby;
#[cfg(test)]
mod steps;

pub(super) use self::detection::key_of;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use manager::{
    Manager, ManagerSettings as CoreSettings,
    compile::Refusal,
    device::{Answer, Command, Election, Encoding, NodeId, PortId},
    driver::{Counter, Facts, Message},
    intent::Intent,
    inventory::Inventory,
    lease::Lease,
    reconcile::{Notice, Phase},
    verify::{Arrivals, Verifier},
};
use serde_json::Value;

use super::{
    Local,
    clock::Now,
    drivers::{Driver, Namespaces},
    journal::{self, Journal, StoredIntent},
    learn::LearnedLink,
    progress::{Progress, States},
    view::{DomainView, Entry, ManagerHistoryView, PlanView},
};
use crate::{program::Configuration, settings::ManagerSettings};
use runtime::control::Control;
use runtime::monitor::CollectorMonitor;
use settings::listen::Listen;
use terminal::CliError;

/// The manager with everything that its thread needs.
pub struct Core {
    manager: Manager,
    /// The encoding that this run has saved in the journal.
    encoding: Option<u64>,
    /// The active manager's lease, as devices report it.
    lease: Lease,
    /// Number of devices that can report the lease.
    lease_keepers: usize,
    /// The other manager, whose intents this one copies while it is on standby.
    peer: Option<standby::Peer>,
    /// When this manager started, by the system's clock.
    started: u64,
    /// The configured inventory, without the facts that devices report.
    inventory: Inventory,
    facts: BTreeMap<NodeId, Facts>,
    /// Links that the collector has learned from paths.
    learned: BTreeSet<LearnedLink>,
    drivers: BTreeMap<NodeId, Driver>,
    /// The settings of `[manager]`.
    settings: ManagerSettings,
    reach: inventory::Reach,
    /// Devices that were removed from the inventory but are still driven.
    leaving: inventory::AllLeaving,
    /// Ports that have left a link, and have not been announced as edge ports yet.
    opening: BTreeSet<(NodeId, PortId)>,
    journal: Journal,
    /// The journal's file was removed and cannot be written again; this has been logged.
    journal_lost: bool,
    intents: BTreeMap<String, ManagedIntent>,
    verifier: Verifier,
    /// Budgets of intents and collectors.
    budgets: budgets::BudgetControl,
    /// Reports of each intent's flows since they were first counted.
    totals: BTreeMap<String, super::count::IntentTotals>,
    /// Reports that each device has sent, by the device's own count.
    device_reports: BTreeMap<NodeId, silence::DeviceReports>,
    /// Detects devices whose reports do not arrive.
    reporters: Verifier,
    /// The listeners of this process's collector.
    listens: Vec<Listen>,
    /// Hardware counters by device.
    device_counters: BTreeMap<NodeId, Vec<Counter>>,
    /// This host's addresses among the configured collectors.
    local: BTreeSet<IpAddr>,
    install_check: InstallCheck,
    /// INT is stopped on all devices.
    stopped: bool,
    /// When an intent last came or went: reports before that may have been of other packets.
    changed: Now,
    /// The time that the manager's own work takes, ns; another one in tests.
    stopwatch: fn() -> u64,
    commands: Vec<Command>,
    progress: Progress,
    /// The state of each device that the history last recorded.
    logged_states: LoggedStates,
    /// Rules and thresholds that intents delegate to the collector in this process.
    detection: detection::DetectionRequests,
    drill_downs: drill_down::DrillDowns,
    /// Packets that matched intents, as devices count them.
    matches: matched::MatchCounters,
    /// Datagrams that have arrived from all devices.
    arrivals: Arrivals,
    /// The devices are simulated inside this process, and so is the path of their reports.
    is_local: bool,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// The state of each device that the history last recorded.
#[derive(Debug, Default)]
struct LoggedStates(BTreeMap<NodeId, &'static str>);

impl LoggedStates {
    /// Stores the state of a device. Returns whether it has changed.
    fn set(&mut self, node: NodeId, state: &'static str) -> bool {
        self.0.insert(node, state) != Some(state)
    }
}

/// An intent with its written form and origin.
#[derive(Clone, Debug)]
struct ManagedIntent {
    /// Without its end: the engine knows nothing of the system's clock.
    intent: Intent,
    /// When it ends, by the system's clock, ns.
    end: Option<u64>,
    stored: StoredIntent,
    origin: Origin,
}

impl ManagedIntent {
    /// An intent that is added now.
    fn new(intent: Intent, stored: StoredIntent, origin: Origin, now: Now) -> Self {
        Self {
            end: intent.until.map(|until| until.end(now.wall)),
            intent: Intent {
                until: None,
                ..intent
            },
            stored,
            origin,
        }
    }
}

/// The origin of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// A table of the configuration file.
    File,
    /// A request to the API.
    Api,
    /// A drill-down, installed because the rule of this intent became true.
    DrillDown(String),
}

/// Schedule of the check which intents are installed on all their devices.
#[derive(Clone, Copy, Debug)]
struct InstallCheck {
    /// Intents or device state may have changed since the last check.
    is_due: bool,
    /// Not before this steady time, ns.
    next: u64,
}

/// The reason a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request is invalid.
    Wrong(String),
    /// The named object does not exist.
    Unknown(String),
    /// Something else controls the object, such as the file or the active manager.
    Conflict(String),
    /// The object has another version than the request expects.
    Stale(String),
    /// The change cannot be saved.
    NotSaved(String),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::NotSaved(format!("cannot save it in [manager] state: {error}"))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Wrong(refusal.to_string())
    }
}

/// A request to add or replace an intent, with its conditions.
#[derive(Clone, Debug)]
pub struct PutIntent {
    /// The intent, as in `[[intents]]`.
    pub body: Value,
    /// The user who makes the request.
    pub by: String,
    /// Precondition: the intent has this version; `*`: the intent exists.
    pub if_match: Option<String>,
    /// Precondition: no intent has this name.
    pub is_new: bool,
}

impl Core {
    /// Creates a manager with the intents of the file and the journal. It is active unless configured as standby.
    ///
    /// # Errors
    /// The journal is unusable; the message suggests a fix.
    pub(super) fn new(
        all: &Arc<Configuration>,
        local: Option<Local>,
        namespaces: Namespaces,
        control: &Control,
        now: Now,
        send: impl Fn(Message) + Send + Sync + 'static,
    ) -> Result<Self, CliError> {
        let settings = &all.manager;
        let inventory = manager::inventory::from_settings(&all.inventory);
        let journal = Journal::open(settings.state.as_deref())?;
        let stopped = journal.is_stopped().map_err(broken)?;
        let mut core_settings = encoded(settings.core(&inventory), &journal).map_err(broken)?;
        core_settings.domain.dta_map = settings
            .collector_map()
            .map_err(|error| CliError::new(format!("[manager] dta_map: {error}")))?;
        let mut core = Self {
            manager: Manager::new(core_settings),
            encoding: None,
            lease: Lease::new(u64::try_from(settings.lease.as_nanos()).unwrap_or(u64::MAX)),
            lease_keepers: 0,
            peer: settings.peer.clone().map(standby::Peer::new),
            started: now.wall,
            inventory,
            facts: BTreeMap::new(),
            learned: BTreeSet::new(),
            drivers: BTreeMap::new(),
            settings: settings.clone(),
            leaving: BTreeMap::new(),
            opening: BTreeSet::new(),
            journal,
            journal_lost: false,
            intents: BTreeMap::new(),
            verifier: Verifier::default(),
            totals: BTreeMap::new(),
            budgets: budgets::BudgetControl::default(),
            device_reports: BTreeMap::new(),
            device_counters: BTreeMap::new(),
            reporters: Verifier::default(),
            listens: all.listens.clone().unwrap_or_default(),
            local: BTreeSet::new(),
            install_check: InstallCheck {
                is_due: true,
                next: 0,
            },
            stopped,
            changed: now,
            stopwatch: nic::time::monotonic,
            commands: Vec::new(),
            progress: Progress::default(),
            logged_states: LoggedStates::default(),
            detection: detection::DetectionRequests::new(Arc::clone(all), control.clone()),
            drill_downs: drill_down::DrillDowns::default(),
            matches: matched::MatchCounters::default(),
            arrivals: Arrivals::default(),
            is_local: local.is_some(),
            reach: inventory::Reach {
                local,
                namespaces,
                send: Arc::new(send),
            },
        };
        core.begin(all, now).map_err(broken)?;
        Ok(core)
    }

    /// Starts the drivers, adopts all intents, and becomes active unless on standby.
    fn begin(&mut self, all: &Arc<Configuration>, now: Now) -> Result<(), store::Error> {
        for device in self.inventory.clone().devices() {
            self.start_driver(device, now);
        }
        self.restore_devices(now)?;
        self.manager.set_inventory(self.inventory_of_file(), now.steady);
        self.ask_for_openings()?;
        self.restore(now)?;
        self.set_file(all, now);
        self.count_lease_keepers();
        if self.settings.standby {
            tracing::info!(
                "on standby: takes over when the devices have received no lease renewal for one lease period"
            );
        } else {
            let term = self.journal.next_term(now.wall, 0)?;
            self.manager.set_term(Some(term), now.steady);
        }
        Ok(())
    }

    /// Adopts the intents in the journal.
    fn restore(&mut self, now: Now) -> Result<(), store::Error> {
        for (name, stored) in self.journal.intents()? {
            match intents::read(&stored.body, self.detection.collects(), now.wall) {
                Ok(intent) => self.hold(ManagedIntent::new(intent, stored, Origin::Api, now), now),
                // The intent ended while the process was down, or another version wrote it.
                Err(error) => {
                    tracing::warn!(intent = name, error, "an intent is dropped");
                    self.journal.forget(&name)?;
                    self.note(now, "manager", "end", &name, &error);
                }
            }
        }
        Ok(())
    }

    /// Returns the known network: configured, reported by devices and learned.
    pub fn inventory(&self) -> &Inventory {
        self.manager.inventory()
    }

    /// Returns the changes that wait for approval or for a stable network.
    pub fn plan(&self) -> PlanView {
        PlanView::new(&self.manager.plan(), self.manager.inventory())
    }

    /// Approves the pending changes and returns them.
    pub fn apply(&mut self, by: &str, now: Now) -> PlanView {
        let plan = self.plan();
        self.manager.apply(now.steady);
        self.note(now, by, "apply", "", &plan.text);
        plan
    }

    /// Stops or restarts INT on all devices.
    ///
    /// # Errors
    /// The state cannot be saved, or another manager is active; then nothing changes.
    pub fn stop(&mut self, stop: bool, by: &str, now: Now) -> Result<DomainView, Error> {
        self.check_acting()?;
        self.set_stopped(stop, by, now)?;
        Ok(self.domain(now))
    }

    fn set_stopped(&mut self, stop: bool, by: &str, now: Now) -> Result<(), Error> {
        if stop != self.stopped {
            self.journal.set_stopped(stop)?;
            self.stopped = stop;
            self.changed = now;
            self.note(now, by, if stop { "stop" } else { "start" }, "", "all INT");
            self.verifier = Verifier::default();
            self.matches = matched::MatchCounters::default();
            self.totals.clear();
            self.budgets = budgets::BudgetControl::default();
            self.detection.is_due = true;
            for (name, managed) in &self.intents {
                if stop {
                    self.manager.remove_intent(name, now.steady);
                } else if managed.origin.is_asked()
                    && let Err(refusal) = self.manager.keep_intent(managed.intent.clone(), now.steady)
                {
                    tracing::warn!(intent = name, reason = %refusal, "an intent is refused");
                }
            }
        }
        Ok(())
    }

    /// Returns the latest entries of the history, newest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn history(&self, subject: Option<&str>, limit: usize) -> Result<ManagerHistoryView, Error> {
        Ok(ManagerHistoryView {
            history: self.journal.history(subject, limit)?,
        })
    }

    /// Sends changes to the clients of the manager's stream. Returns the time until the next call is due at the latest.
    pub(super) fn publish(&mut self, monitor: &impl CollectorMonitor, now: Now) -> Option<Duration> {
        self.set_followed(monitor);
        let mut progress = std::mem::take(&mut self.progress);
        let next = progress.publish(monitor, now.steady, || States {
            devices: self.device_states(now),
            intents: self.intent_states(now),
            domain: self.domain_state(),
        });
        self.progress = progress;
        next
    }

    /// Processes a message from a driver.
    pub(super) fn receive(&mut self, message: Message, now: Now) {
        self.install_check.is_due |= matches!(
            message,
            Message::Answer(..) | Message::Event(..) | Message::Facts(..)
        );
        match message {
            Message::Answer(node, id, Answer::NotPrimary(election)) if is_of_the_future(election, now) => {
                let reason = format!(
                    "it names a manager whose term is in the future ({}); correct the clock of that manager, or remove the state file of the device",
                    election.term
                );
                self.manager
                    .answer(node, id, Answer::Unreachable(reason), now.steady);
            }
            Message::Answer(node, id, answer) => self.manager.answer(node, id, answer, now.steady),
            Message::Lease(_, election, _) if is_of_the_future(election, now) => {}
            Message::Lease(node, election, silence) => {
                self.lease.observe(node, election, silence, now.steady);
            }
            Message::Event(node, event) => self.manager.event(node, event, now.steady),
            Message::Reported(node, reported) => self.add_reported(node, reported, now),
            Message::Matched(node, packets) => self.add_matched(node, &packets, now),
            Message::Facts(node, facts) => self.add_facts(node, *facts, now),
            Message::Counted(node, counters) => self.add_counters(node, counters),
            Message::Note(node, text) => {
                let device = self.manager.inventory().name(node);
                tracing::warn!(device, text, "a device needs attention");
                self.note(now, "manager", "device", &device, &text);
            }
        }
    }

    /// Advances to `now`: commands go to drivers, notices to log and history. Returns the steady time at which to call it again at the
    /// latest.
    pub(super) fn poll(&mut self, now: Now) -> Option<u64> {
        self.take_over(now);
        if self.manager.is_acting() {
            self.drivers.values().for_each(Driver::renew);
        }
        let next_end = self.end_intents(now);
        let mut commands = std::mem::take(&mut self.commands);
        self.manager.poll(now.steady, &mut commands);
        self.install_check.is_due |= !commands.is_empty();
        for command in commands.drain(..) {
            if let Some(driver) = self.drivers.get(&command.node) {
                driver.send(command);
            }
        }
        self.commands = commands;
        for notice in self.manager.drain_notices() {
            self.install_check.is_due = true;
            self.record(notice, now);
        }
        self.keep_encoding();
        self.keep_journal();
        self.end_drill_downs(now);
        self.end_leaving(now);
        self.install_check.is_due |= self.detection.is_due;
        self.ask_collector();
        let next = self.check_installed(now);
        let timeout = self.manager.next_timeout();
        timeout.into_iter().chain(next).chain(next_end).min()
    }

    /// Restores the journal's file if it was removed. Logs a failure once.
    fn keep_journal(&mut self) {
        let restored = self.journal.restore();
        if let Err(error) = &restored
            && !self.journal_lost
        {
            tracing::error!(%error, "intents and history are not saved");
        }
        self.journal_lost = restored.is_err();
    }

    /// Saves the active encoding, so that a later run with a different one can migrate the devices.
    fn keep_encoding(&mut self) {
        let encoding = code(self.manager.compiler().settings().encoding);
        let is_due =
            self.manager.is_acting() && !self.manager.is_reencoding() && self.encoding != Some(encoding);
        if is_due {
            match self.journal.set_encoding(encoding) {
                Ok(()) => self.encoding = Some(encoding),
                Err(error) => {
                    tracing::error!(%error, "cannot save the encoding in [manager] state")
                }
            }
        }
    }

    /// Takes over if no other manager is active, or reclaims devices that another manager claimed and abandoned.
    fn take_over(&mut self, now: Now) {
        // The highest term seen so far; the new term must be above it.
        let above = match self.manager.term() {
            Some(own) => self.lease.reclaim(own, now.steady),
            None if self.settings.standby => self.lease.term(self.lease_keepers, now.steady),
            None => None,
        };
        let Some(above) = above else { return };
        self.lease.restart();
        let acted = self.manager.is_acting();
        match self.journal.next_term(now.wall, above) {
            Ok(term) => {
                let text = match acted {
                    true => "another manager claimed devices and stopped; claiming all again",
                    false => "no lease renewal within one lease period; taking over",
                };
                tracing::warn!("{text}");
                let copy = self
                    .copy_text(now)
                    .map(|copy| format!("; {copy}"))
                    .unwrap_or_default();
                self.note(now, "manager", "take over", "", &format!("{text}{copy}"));
                self.manager.set_term(Some(term), now.steady);
            }
            Err(error) => tracing::error!(%error, "cannot take over without [manager] state"),
        }
    }

    /// Writes a notice of the `manager` crate to the log and the history.
    fn record(&mut self, notice: Notice, now: Now) {
        match notice {
            Notice::Phase(node, phase @ (Phase::Unreachable { .. } | Phase::Failed { .. })) => {
                let device = self.manager.inventory().name(node);
                tracing::warn!(device, state = %phase, "a device cannot be configured");
                self.logged_states.set(node, phase.name());
                self.note(now, "manager", phase.name(), &device, &phase.to_string());
            }
            Notice::Phase(node, Phase::InSync) => {
                let device = self.manager.inventory().name(node);
                // A device reports this after every read; record only the transition.
                if !self.logged_states.set(node, Phase::InSync.name()) {
                    return;
                }
                tracing::info!(device, "the device is in sync");
                self.note(now, "manager", Phase::InSync.name(), &device, "");
            }
            Notice::EdgeReady(node, port) => self.edge_ready(node, port, now),
            Notice::Phase(..) => {}
            Notice::Applying(node, changes) => {
                let device = self.manager.inventory().name(node);
                let shown = changes
                    .iter()
                    .take(8)
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("; ");
                let more = changes.len().saturating_sub(8);
                let text = if more > 0 {
                    format!("{shown}; and {more} more")
                } else {
                    shown
                };
                self.logged_states.set(node, Phase::Applying.name());
                self.note(now, "manager", Phase::Applying.name(), &device, &text);
            }
            Notice::Superseded(node) => {
                self.lease.restart();
                let device = self.manager.inventory().name(node);
                tracing::warn!(
                    device,
                    "another manager has claimed the device; this manager is no longer active"
                );
                self.note(now, "manager", "superseded", &device, "another manager acts");
            }
        }
    }

    fn note(&mut self, now: Now, by: &str, action: &str, subject: &str, text: &str) {
        let entry = Entry::new(now.wall, [by, action, subject, text]);
        if let Err(error) = self.journal.note(&entry) {
            tracing::warn!(%error, "cannot write the history in [manager] state");
        }
        self.progress.note(entry);
    }
}

/// Returns the error of a start without a usable journal.
fn broken(error: store::Error) -> CliError {
    CliError::new(format!(
        "cannot use [manager] state: {}",
        journal::with_remedy(&error)
    ))
}

/// Adds to the settings whether the encoding has changed since the last run.
fn encoded(settings: CoreSettings, journal: &Journal) -> Result<CoreSettings, store::Error> {
    let last = journal.encoding()?;
    let reencode = last.is_some_and(|last| last != code(settings.domain.encoding));
    Ok(CoreSettings { reencode, ..settings })
}

/// Packs an encoding into the journal's number: DSCP in the upper byte, checksum mode in the lower.
fn code(encoding: Encoding) -> u64 {
    u64::from(encoding.dscp) << 8 | encoding.l4_checksum as u64
}

/// Returns whether a term is more than a day ahead. Terms are times in µs (see `Journal::next_term`); one far in the future would
/// leave no room above it, so a device that names it is not believed. Other managers took theirs by a clock that shows what this one did before it was set back.
fn is_of_the_future(election: Election, now: Now) -> bool {
    const DAY: u64 = 86_400_000_000;
    election.term > (now.wall.max(now.steady) / 1_000).saturating_add(DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_that_has_changed_since_the_last_run_is_known() {
        let mut journal = Journal::open(None).unwrap();
        let settings = |dscp| {
            let mut settings = CoreSettings::default();
            settings.domain.encoding.dscp = dscp;
            settings
        };
        let changed = |dscp, journal: &Journal| encoded(settings(dscp), journal).unwrap().reencode;
        // Nothing is known at the first start.
        assert!(!changed(23, &journal));
        journal.set_encoding(code(settings(23).domain.encoding)).unwrap();
        assert_eq!([23, 24].map(|dscp| changed(dscp, &journal)), [false, true]);
    }

    #[test]
    fn a_device_that_stays_in_sync_is_in_the_history_once() {
        let (mut noted, in_sync, applying) = (
            LoggedStates::default(),
            Phase::InSync.name(),
            Phase::Applying.name(),
        );
        // It is read again and again.
        let first = [in_sync; 3].map(|state| noted.set(1, state));
        assert_eq!((first, noted.set(2, in_sync)), ([true, false, false], true));
        let later = [applying, in_sync, in_sync].map(|state| noted.set(1, state));
        assert_eq!(later, [true, true, false]);
    }
}

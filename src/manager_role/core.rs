//! The state of the manager's thread: the core, its drivers, its journal, and what the API asks.

use std::{collections::BTreeMap, sync::Arc};

use manager::{
    IntentStatus, Manager,
    budget::Controller,
    compile::Refusal,
    device::{Capabilities, Command, NodeId, Restart, Rule},
    intent::{self, Intent, IntentSettings, Until},
    inventory::{Inventory, Origin, Peer},
    plan,
    reconcile::{Notice, Phase},
    verify::{self, EdgeCounters, IntentCounters, State, Verifier},
};
use serde_json::Value;
use settings::setting::Setting;

use super::{
    Local,
    count::{self, Arrived},
    hopwise::{self, Address, Message},
    journal::{Entry, Journal, Kept},
    view::{
        CostView, DeviceView, DevicesView, DomainView, EntryView, IntentView, IntentsView,
        ManagerHistoryView, PlanView,
    },
};
use crate::{
    config::{
        Settings,
        manager::{ManagerSettings, supported},
        switch::Item,
        values::Listen,
    },
    switch::RulesView,
};
use terminal::CliError;

/// The manager with what it needs.
pub(crate) struct Core {
    manager: Manager,
    /// As configured; what devices say is added to it.
    inventory: Inventory,
    facts: BTreeMap<NodeId, RulesView>,
    drivers: BTreeMap<NodeId, Driver>,
    journal: Journal,
    intents: BTreeMap<String, Held>,
    verifier: Verifier,
    /// Those of intents with a budget.
    controllers: BTreeMap<String, Controller>,
    /// What the collector knew of the flows of an intent when they were first counted: no evidence that it works.
    baselines: BTreeMap<String, IntentCounters>,
    /// Packets that each device has reported, and whether the reports arrive.
    reported: BTreeMap<NodeId, u64>,
    reporters: Verifier,
    /// Where this collector listens.
    listens: Vec<Listen>,
    /// All INT is stopped.
    stopped: bool,
    commands: Vec<Command>,
}

/// The way to a device.
enum Driver {
    /// A switch's API.
    Hopwise(hopwise::Driver),
    /// Inside this process.
    Local(Local, Arc<dyn Fn(Message) + Send + Sync>),
}

impl Driver {
    fn send(&self, command: Command) {
        match self {
            // A driver that is still busy lets the request time out.
            Self::Hopwise(driver) => drop(driver.send(command)),
            Self::Local(local, tell) => {
                let (tell, node, id) = (Arc::clone(tell), command.node, command.id);
                // When the devices have ended, so does the program.
                let _ =
                    local.send((command, Box::new(move |answer| tell(Message::Answer(node, id, answer)))));
            }
        }
    }
}

/// An intent with its origin.
#[derive(Clone, Debug)]
struct Held {
    intent: Intent,
    kept: Kept,
    in_file: bool,
}

/// Why something is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The request is wrong.
    Wrong(String),
    /// There is no such thing.
    Unknown(String),
    /// Something else decides it.
    Conflict(String),
    /// It has another version.
    Stale,
    /// It cannot be saved.
    NotSaved(String),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::NotSaved(format!("cannot save it: {error}; free space for [manager] state"))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Wrong(refusal.to_string())
    }
}

/// What is put in force, and under which condition.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The intent, as in `[[intents]]`.
    pub(crate) body: Value,
    /// Who wants it.
    pub(crate) by: String,
    /// Only if it has this version; `*`: only if there is one.
    pub(crate) if_match: Option<String>,
    /// Only if there is none of this name.
    pub(crate) is_new: bool,
}

impl Core {
    /// A manager that acts, with the intents of the file and of the journal.
    ///
    /// # Errors
    /// The journal cannot be used; the message says what to do.
    pub(super) fn new(
        all: &Settings,
        settings: &ManagerSettings,
        local: Option<Local>,
        now: u64,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> Result<Self, CliError> {
        let inventory = manager::inventory::of(&all.inventory);
        let journal = Journal::open(settings.state.as_deref())?;
        let broken = |error: rusqlite::Error| {
            CliError::new(format!("cannot read [manager] state: {error}; correct the file, or remove it"))
        };
        let stopped = journal.is_stopped().map_err(broken)?;
        let mut core = Self {
            manager: Manager::new(settings.core(&inventory)),
            inventory,
            facts: BTreeMap::new(),
            drivers: BTreeMap::new(),
            journal,
            intents: BTreeMap::new(),
            verifier: Verifier::default(),
            baselines: BTreeMap::new(),
            controllers: BTreeMap::new(),
            reported: BTreeMap::new(),
            reporters: Verifier::default(),
            listens: if all.collects() { all.collector.listen.clone() } else { Vec::new() },
            stopped,
            commands: Vec::new(),
        };
        for device in core.inventory.devices() {
            if let Some(local) = &local {
                // Devices of this process live as long as it.
                let can = Capabilities { restart: Restart::Keeps, ..capabilities() };
                core.manager.set_capabilities(device.node, can, now);
                core.drivers.insert(device.node, Driver::Local(local.clone(), Arc::new(tell.clone())));
                continue;
            }
            core.manager.set_capabilities(device.node, capabilities(), now);
            let address = Address {
                node: device.node,
                authority: device.address.clone(),
                token: settings.token.as_ref().map(|token| token.0.clone()),
            };
            let driver = hopwise::Driver::start(address, tell.clone());
            core.drivers.insert(device.node, Driver::Hopwise(driver));
        }
        core.manager.set_inventory(core.inventory.clone(), now);
        for (name, kept) in core.journal.intents().map_err(broken)? {
            match read(&kept.body, now) {
                Ok(intent) => core.hold(Held { intent, kept, in_file: false }, now),
                // It has ended while the program did not run, or another version wrote it.
                Err(error) => {
                    tracing::warn!(intent = name, error, "an intent is dropped");
                    core.journal.forget(&name).map_err(broken)?;
                    core.note(now, "manager", "end", &name, &error);
                }
            }
        }
        core.set_file(&all.intents, now);
        let term = core.journal.next_term(now).map_err(broken)?;
        core.manager.set_term(Some(term), now);
        Ok(core)
    }

    /// Replaces the intents of the file.
    pub(super) fn set_file(&mut self, settings: &[IntentSettings], now: u64) {
        let mut old: Vec<String> =
            self.intents.iter().filter(|(_, held)| held.in_file).map(|(name, _)| name.clone()).collect();
        for settings in settings {
            let body = settings.show().to_written();
            let Ok(intent) = read(&body, now) else { continue };
            let (name, by) = (intent.name.clone(), "file".to_owned());
            old.retain(|old| *old != name);
            let before = self.intents.get(&name).filter(|held| held.in_file);
            if before.is_none_or(|before| before.kept.body != body) {
                let until = intent.until.map(|until| Until::At(until.end(now)));
                let intent = Intent { until, ..intent };
                self.forget(&name);
                self.hold(Held { intent, kept: Kept { body, by, added: now }, in_file: true }, now);
                self.note(now, "file", "add", &name, "");
            }
        }
        for name in old {
            self.drop_intent(&name, now);
            self.note(now, "file", "remove", &name, "");
        }
    }

    /// Takes over an intent. One that the present network refuses is kept, and compiled again when the network changes.
    fn hold(&mut self, held: Held, now: u64) {
        let name = held.intent.name.clone();
        if !self.stopped
            && let Err(refusal) = self.manager.add_intent(held.intent.clone(), now)
        {
            tracing::warn!(intent = name, reason = %refusal, "an intent is refused");
        }
        self.intents.insert(name, held);
    }

    fn drop_intent(&mut self, name: &str, now: u64) {
        self.intents.remove(name);
        self.manager.remove_intent(name, now);
        self.forget(name);
    }

    /// Forgets what was counted for an intent.
    fn forget(&mut self, name: &str) {
        self.verifier.remove(name);
        self.baselines.remove(name);
        self.controllers.remove(name);
    }

    /// Adds or replaces an intent.
    ///
    /// # Errors
    /// The reason; nothing changes.
    pub(crate) fn put(&mut self, wanted: Wanted, now: u64) -> Result<IntentView, Error> {
        let Wanted { body, by, if_match, is_new } = wanted;
        let intent = read(&body, now).map_err(Error::Wrong)?;
        let name = intent.name.clone();
        let before = self.intents.get(&name);
        let fits = |etag: &String| before.is_some_and(|held| etag == "*" || *etag == etag_of(held));
        if if_match.as_ref().is_some_and(|etag| !fits(etag)) || (is_new && before.is_some()) {
            return Err(Error::Stale);
        }
        let is_replaced = before.is_some();
        if before.is_some_and(|held| held.in_file) {
            return Err(in_file(&name));
        }
        self.manager.dry_run(&intent, now)?;
        // `until` counts from now, also after a restart.
        let end = intent.until.map(|until| until.end(now));
        let mut written = body;
        if let (Some(end), Value::Object(table)) = (end, &mut written) {
            table.insert("until".to_owned(), intent::time_text(end).into());
        }
        let kept = Kept { body: written, by: by.clone(), added: now };
        self.journal.keep(&name, &kept)?;
        self.forget(&name);
        let intent = Intent { until: end.map(Until::At), ..intent };
        self.hold(Held { intent, kept, in_file: false }, now);
        self.note(now, &by, if is_replaced { "replace" } else { "add" }, &name, "");
        self.intent(&name, now)
    }

    /// What adding an intent would change.
    ///
    /// # Errors
    /// As [`Core::put`].
    pub(crate) fn dry_run(&self, body: &Value, now: u64) -> Result<PlanView, Error> {
        let intent = read(body, now).map_err(Error::Wrong)?;
        if self.intents.get(&intent.name).is_some_and(|held| held.in_file) {
            return Err(in_file(&intent.name));
        }
        let (outcome, plan) = self.manager.dry_run(&intent, now)?;
        let links = self.manager.compiler().longest_path();
        let cost = plan::cost(outcome.mode, outcome.bits, intent.sample, links, None, None);
        let notes = outcome.notes.iter().map(ToString::to_string).collect();
        let cost = Some(CostView::new(&outcome, cost));
        Ok(PlanView { cost, notes, ..PlanView::new(&plan, self.manager.inventory()) })
    }

    /// Removes an intent.
    ///
    /// # Errors
    /// There is none, or the file has it.
    pub(crate) fn remove(&mut self, name: &str, by: &str, now: u64) -> Result<(), Error> {
        let held = self.intents.get(name).ok_or_else(|| unknown(name))?;
        if held.in_file {
            return Err(in_file(name));
        }
        self.journal.forget(name)?;
        self.drop_intent(name, now);
        self.note(now, by, "remove", name, "");
        Ok(())
    }

    /// One intent.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn intent(&self, name: &str, now: u64) -> Result<IntentView, Error> {
        let held = self.intents.get(name).ok_or_else(|| unknown(name))?;
        Ok(self.intent_view(name, held, now))
    }

    /// All intents.
    pub(crate) fn intents(&self, now: u64) -> IntentsView {
        let intents = self.intents.iter().map(|(name, held)| self.intent_view(name, held, now));
        IntentsView { intents: intents.collect() }
    }

    fn intent_view(&self, name: &str, held: &Held, now: u64) -> IntentView {
        let status = self.manager.intent(name);
        let names = |node| self.manager.inventory().name(node);
        let state = self.verifier.state(name, names, now);
        let (flows, rate) = match &state {
            Some(State::Seen(figures) | State::Complete(figures)) => (figures.flows, figures.rate),
            _ => (0, 0.0),
        };
        let (mut state, mut text) = self.described(status.as_ref(), state);
        if let Some(controller) = self.controllers.get(name) {
            text.push_str(&format!("; threshold {} by its budget", controller.detail().threshold));
        }
        let broken = self.silent_devices(name, &state, now);
        if !broken.is_empty() {
            (state, text) = ("silent".to_owned(), broken.join("; "));
        }
        let outcome = status.as_ref().and_then(|status| status.outcome.as_ref().ok());
        IntentView {
            name: name.to_owned(),
            etag: etag_of(held),
            origin: if held.in_file { "file" } else { "api" }.to_owned(),
            by: held.kept.by.clone(),
            added: held.kept.added,
            end: status.as_ref().and_then(|status| status.end),
            intent: held.kept.body.clone(),
            state,
            text,
            mode: outcome.map(|outcome| outcome.mode.word().to_owned()),
            instructions: outcome.map(|outcome| manager::instruction::names(outcome.bits)),
            devices: outcome.iter().flat_map(|outcome| &outcome.nodes).map(|node| names(*node)).collect(),
            notes: outcome.iter().flat_map(|outcome| &outcome.notes).map(ToString::to_string).collect(),
            flows,
            rate,
        }
    }

    /// Devices whose reports an intent lacks: those at which its flows end, or, when no flow is known, any of the domain.
    fn silent_devices(&self, name: &str, state: &str, now: u64) -> Vec<String> {
        let ends = self.baselines.get(name).map(|counters| &counters.edges);
        let concerns = |node: &&NodeId| match state {
            "installed" => true,
            "seen" | "complete" => ends.is_some_and(|ends| ends.contains_key(node)),
            _ => false,
        };
        self.reported.keys().filter(concerns).filter_map(|node| self.silence(*node, now)).collect()
    }

    /// The state of an intent, as a word and as a sentence.
    fn described(&self, status: Option<&IntentStatus>, state: Option<State>) -> (String, String) {
        let names = |node| self.manager.inventory().name(node);
        let Some(status) = status else {
            return match self.stopped {
                true => ("stopped".to_owned(), "all INT is stopped".to_owned()),
                false => ("refused".to_owned(), "the network refused it when it was added".to_owned()),
            };
        };
        let outcome = match &status.outcome {
            Err(refusal) => return ("refused".to_owned(), refusal.to_string()),
            Ok(outcome) => outcome,
        };
        let devices = outcome.nodes.len();
        let state = state.unwrap_or(State::Pending);
        let text = match &state {
            State::Pending => {
                let lacks = |node: &&NodeId| {
                    let rules = self.manager.devices().into_iter().find(|device| device.node == **node);
                    rules.is_none_or(|device| device.phase != Phase::InSync)
                };
                let waiting: Vec<String> =
                    outcome.nodes.iter().filter(lacks).map(|node| names(*node)).collect();
                format!(
                    "waits for {}",
                    if waiting.is_empty() { "its devices".to_owned() } else { waiting.join(", ") }
                )
            }
            State::Installed => format!("on {devices} devices; no report of its flows has arrived yet"),
            State::Seen(figures) if figures.missing.is_empty() => {
                format!("{} flows, {:.0} reports/s; no path is complete yet", figures.flows, figures.rate)
            }
            State::Seen(figures) => verify::missing_text(&figures.missing, names),
            State::Complete(figures) => format!(
                "{} flows, {:.0} reports/s, the last one {} s ago; every path is complete",
                figures.flows,
                figures.rate,
                figures.age / 1_000_000_000
            ),
            State::Silent(silent) => silent.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        (state.word().to_owned(), text)
    }

    /// All devices.
    pub(crate) fn devices(&self, now: u64) -> DevicesView {
        let inventory = self.manager.inventory();
        let view = |status: manager::reconcile::DeviceStatus| {
            let can = self.manager.compiler().capabilities(status.node);
            let room = can.map_or((0, 0), |can| (can.watch_entries, can.filter_entries));
            let silence = self.silence(status.node, now);
            DeviceView::new(status, inventory, room, silence)
        };
        DevicesView { devices: self.manager.devices().into_iter().map(view).collect() }
    }

    /// One device, by name or node id.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn device(&self, name: &str, now: u64) -> Result<DeviceView, Error> {
        let named = |device: &DeviceView| device.name == name || name.parse() == Ok(device.node);
        let found = self.devices(now).devices.into_iter().find(named);
        found
            .ok_or_else(|| Error::Unknown(format!("there is no device `{name}`; /api/v1/devices lists them")))
    }

    /// What waits for a person, or for the calm.
    pub(crate) fn plan(&self) -> PlanView {
        PlanView::new(&self.manager.plan(), self.manager.inventory())
    }

    /// Approves the plan.
    pub(crate) fn apply(&mut self, by: &str, now: u64) -> PlanView {
        let plan = self.plan();
        self.manager.apply(now);
        self.note(now, by, "apply", "", &plan.text);
        plan
    }

    /// Stops or starts all INT.
    ///
    /// # Errors
    /// It cannot be saved; nothing changes.
    pub(crate) fn stop(&mut self, stop: bool, by: &str, now: u64) -> Result<DomainView, Error> {
        if stop != self.stopped {
            self.journal.set_stopped(stop)?;
            self.stopped = stop;
            self.note(now, by, if stop { "stop" } else { "start" }, "", "all INT");
            self.verifier = Verifier::default();
            self.baselines.clear();
            self.controllers.clear();
            for (name, held) in &self.intents {
                if stop {
                    self.manager.remove_intent(name, now);
                } else if let Err(refusal) = self.manager.add_intent(held.intent.clone(), now) {
                    tracing::warn!(intent = name, reason = %refusal, "an intent is refused");
                }
            }
        }
        Ok(self.domain())
    }

    /// The domain.
    pub(crate) fn domain(&self) -> DomainView {
        let inventory = self.manager.inventory();
        let compiler = self.manager.compiler();
        let domain = compiler.settings();
        let topology = compiler.topology().devices.iter();
        let links = topology.flat_map(|(node, ports)| {
            ports.links.iter().map(|(port, (other, end))| [*node, *port, *other, *end])
        });
        let devices = self.manager.devices();
        let contradiction = |one: manager::inventory::Contradiction| {
            let claims = one.claims.iter().map(|(origin, peer)| match peer {
                Peer::Hosts => format!("hosts ({})", origin.word()),
                Peer::Port(node, port) => format!("{}:{port} ({})", inventory.name(*node), origin.word()),
            });
            let claims: Vec<String> = claims.collect();
            format!("{}:{} leads to {}", inventory.name(one.port.0), one.port.1, claims.join(" and to "))
        };
        DomainView {
            acting: self.manager.is_acting(),
            stopped: self.stopped,
            dscp: domain.encoding.dscp,
            l4_checksum: domain.encoding.l4_checksum.word().to_owned(),
            collectors: domain.collectors.iter().map(|one| one.address.to_string()).collect(),
            devices: devices.len(),
            in_sync: devices.iter().filter(|device| device.phase == Phase::InSync).count(),
            longest_path: compiler.longest_path(),
            links: links.filter(|[a, _, b, _]| a < b).collect(),
            contradictions: inventory.contradictions().into_iter().map(contradiction).collect(),
        }
    }

    /// The history.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn history(&self, subject: Option<&str>, limit: usize) -> Result<ManagerHistoryView, Error> {
        let entries = self.journal.history(subject, limit)?.into_iter();
        let view = |Entry { time, by, action, subject, text }| EntryView { time, by, action, subject, text };
        Ok(ManagerHistoryView { history: entries.map(view).collect() })
    }

    /// The flows of each intent, and the instruction bits that are asked for: what is counted.
    pub(super) fn watched(&self) -> Vec<super::count::Watched> {
        let watched = |(name, held): (&String, &Held)| {
            let outcome = self.manager.compiler().outcome(name)?;
            let entries = held.intent.entries().ok()?;
            let flows = entries.iter().map(manager::flows::FlowKey::to_match).collect();
            Some(super::count::Watched { name: name.clone(), flows, bits: outcome.bits })
        };
        self.intents.iter().filter_map(watched).collect()
    }

    /// What was counted for each intent.
    pub(super) fn observe(&mut self, counted: BTreeMap<String, IntentCounters>, now: u64) {
        for (name, mut counters) in counted {
            if self.intents.contains_key(&name) {
                let baseline = self.baselines.entry(name.clone()).or_insert_with(|| counters.clone());
                count::subtract(&mut counters, baseline);
                // Devices at which flows end are kept, also when the collector has forgotten these flows.
                for node in counters.edges.keys() {
                    baseline.edges.entry(*node).or_default();
                }
                self.verifier.observe(&name, counters, now);
            }
        }
        self.keep_budgets(now);
    }

    /// Keeps intents to their budgets, by the reports of the last moment.
    pub(super) fn keep_budgets(&mut self, now: u64) {
        let mut moved = Vec::new();
        for (name, held) in &self.intents {
            let Some((budget, metric, bounds)) = held.intent.bounds() else { continue };
            let names = |node| self.manager.inventory().name(node);
            let rate = match self.verifier.state(name, names, now) {
                Some(State::Seen(figures) | State::Complete(figures)) => figures.rate,
                Some(State::Installed) => 0.0,
                _ => continue,
            };
            let controller =
                self.controllers.entry(name.clone()).or_insert_with(|| Controller::new(budget, bounds));
            if let Some(step) = controller.observe(rate, now) {
                let mut intent = held.intent.clone();
                intent.tell.thresholds.insert(metric, step.to.threshold);
                intent.tell.coarsest.clear();
                moved.push((name.clone(), intent, step));
            }
        }
        for (name, intent, step) in moved {
            if step.from != step.to
                && let Err(refusal) = self.manager.add_intent(intent, now)
            {
                tracing::warn!(intent = name, reason = %refusal, "the budget cannot move the threshold");
            }
            self.note(now, "manager", "budget", &name, &step.to_string());
        }
    }

    /// Compares what devices have reported with what has arrived here.
    pub(super) fn compare(&mut self, arrived: &BTreeMap<NodeId, Arrived>, now: u64) {
        for (node, packets) in self.reported.clone() {
            let name = node.to_string();
            if !self.reports_here(node) {
                self.reporters.remove(&name);
                continue;
            }
            let Arrived { datagrams, lost } = arrived.get(&node).copied().unwrap_or_default();
            let edge = EdgeCounters { packets: Some(packets), reports: datagrams, sequence: None, lost };
            let counters = IntentCounters { edges: [(node, edge)].into(), ..IntentCounters::default() };
            self.reporters.set_installed(&name, true, now);
            self.reporters.observe(&name, counters, now);
        }
    }

    /// Whether a device sends its reports to the collector of this process.
    fn reports_here(&self, node: NodeId) -> bool {
        let rules = self.manager.compiler().desired().get(&node);
        let session = rules.into_iter().flat_map(|rules| rules.iter()).find_map(|rule| match rule {
            Rule::Session(to) => Some(*to),
            _ => None,
        });
        session.is_some_and(|to| {
            self.listens.iter().any(|listen| match listen {
                Listen::UdpAny(port) => *port == to.port(),
                Listen::Udp(address) => {
                    address.port() == to.port() && (address.ip().is_unspecified() || address.ip() == to.ip())
                }
                Listen::Xdp { ports, .. } => ports.contains(&to.port()),
            })
        })
    }

    /// The sentence about a device whose reports do not arrive.
    fn silence(&self, node: NodeId, now: u64) -> Option<String> {
        let names = |node| self.manager.inventory().name(node);
        match self.reporters.state(&node.to_string(), names, now)? {
            State::Silent(silent) => silent.first().map(|silent| {
                let since = silent.last_report.unwrap_or(silent.installed) / 1_000_000_000;
                format!(
                    "{} reported {} packets in {since} s, and no report of it has arrived since then ({} datagrams lost in the network)",
                    silent.name, silent.packets, silent.lost
                )
            }),
            _ => None,
        }
    }

    /// What a driver says.
    pub(super) fn receive(&mut self, message: Message, now: u64) {
        match message {
            Message::Answer(node, id, answer) => self.manager.answer(node, id, answer, now),
            Message::Event(node, event) => self.manager.event(node, event, now),
            Message::Reported(node, packets) => {
                let before = self.reported.insert(node, packets);
                if before.is_some_and(|before| packets < before) {
                    // It has restarted, and counts anew.
                    self.reporters.remove(&node.to_string());
                }
            }
            Message::Facts(node, view) => {
                self.facts.insert(node, *view);
                let mut inventory = self.inventory.clone();
                for (node, view) in &self.facts {
                    add_facts(&mut inventory, *node, view);
                }
                self.manager.set_inventory(inventory, now);
            }
        }
    }

    /// Advances to `now`: commands go to drivers, notices to log and history. Returns when to call it again at the latest.
    pub(super) fn poll(&mut self, now: u64) -> Option<u64> {
        let mut commands = std::mem::take(&mut self.commands);
        self.manager.poll(now, &mut commands);
        for command in commands.drain(..) {
            if let Some(driver) = self.drivers.get(&command.node) {
                driver.send(command);
            }
        }
        self.commands = commands;
        for notice in self.manager.take_notices() {
            self.tell(notice, now);
        }
        self.end_intents(now);
        for name in self.intents.keys() {
            if let Some(status) = self.manager.intent(name) {
                self.verifier.set_installed(name, status.installed, now);
            }
        }
        self.manager.next_timeout()
    }

    /// Forgets intents whose time is over, which the core has removed.
    fn end_intents(&mut self, now: u64) {
        let over = |held: &Held| {
            held.intent.until.is_some_and(|until| matches!(until, Until::At(end) if end <= now))
        };
        let ended: Vec<String> =
            self.intents.iter().filter(|(_, held)| over(held)).map(|(name, _)| name.clone()).collect();
        for name in ended {
            self.drop_intent(&name, now);
            if let Err(error) = self.journal.forget(&name) {
                tracing::warn!(intent = name, %error, "cannot save that an intent has ended");
            }
            self.note(now, "manager", "end", &name, "its time is over");
        }
    }

    fn tell(&mut self, notice: Notice, now: u64) {
        let names = |node| self.manager.inventory().name(node);
        match notice {
            Notice::Phase(node, phase @ (Phase::Unreachable { .. } | Phase::Failed { .. })) => {
                let device = names(node);
                tracing::warn!(device, state = %phase, "a device cannot be configured");
                self.note(now, "manager", phase.word(), &device, &phase.to_string());
            }
            Notice::Phase(node, Phase::InSync) => {
                let device = names(node);
                tracing::info!(device, "the device has what it should have");
                self.note(now, "manager", Phase::InSync.word(), &device, "");
            }
            Notice::Phase(..) | Notice::EdgeReady(..) => {}
            Notice::Applying(node, changes) => {
                let device = names(node);
                let shown = changes.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let more = changes.len().saturating_sub(8);
                let text = if more > 0 { format!("{shown}; and {more} more") } else { shown };
                self.note(now, "manager", Phase::Applying.word(), &device, &text);
            }
            Notice::Superseded(node) => {
                let device = names(node);
                tracing::warn!(device, "another manager has claimed the device; this one no longer acts");
                self.note(now, "manager", "superseded", &device, "another manager acts");
            }
        }
    }

    fn note(&mut self, time: u64, by: &str, action: &str, subject: &str, text: &str) {
        let [by, action, subject, text] = [by, action, subject, text].map(str::to_owned);
        if let Err(error) = self.journal.note(&Entry { time, by, action, subject, text }) {
            tracing::warn!(%error, "cannot write the history; free space for [manager] state");
        }
    }
}

/// What a hopwise switch can do.
fn capabilities() -> Capabilities {
    Capabilities {
        bits: Item::delivered(),
        joint_roles: false,
        restart: Restart::Waits,
        ..Capabilities::default()
    }
}

/// Adds what a switch says about its ports.
fn add_facts(inventory: &mut Inventory, node: NodeId, view: &RulesView) {
    for port in &view.ports {
        let at = (node, u32::from(port.number));
        let name = Some(port.interface.clone());
        let added = inventory.add_port(at, name, Some(u32::from(port.mtu))).and_then(|()| match port.edge {
            true => inventory.set_peer(at, Some(Peer::Hosts), Origin::Device),
            false => Ok(()),
        });
        if let Err(error) = added {
            tracing::warn!(node, port = port.number, %error, "what the switch says about a port is ignored");
        }
    }
}

fn read(body: &Value, now: u64) -> Result<Intent, String> {
    if !body.is_object() {
        return Err(
            "write a table as in [[intents]], such as {\"name\": \"web\", \"watch\": [\"hop_latency\"]}"
                .to_owned(),
        );
    }
    let intent = intent::read_one(&settings::json::inline(body), now)?;
    supported(&intent).map(|()| intent)
}

fn etag_of(held: &Held) -> String {
    format!("{:x}", held.kept.added)
}

fn unknown(name: &str) -> Error {
    Error::Unknown(format!("there is no intent `{name}`; /api/v1/intents lists them"))
}

fn in_file(name: &str) -> Error {
    Error::Conflict(format!("`{name}` is in the configuration file; change it there, and reload"))
}

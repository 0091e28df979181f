//! The [`Manager`]: combines inventory, intents, compiler and reconciler for one domain. The program feeds it requests, driver
//! messages and the time, and sends the commands that it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use settings::choice;

use crate::compile::{Compiler, DomainSettings, Outcome, Overlaps, Refusal};
use crate::device::{
    Answer, Capabilities, Command, DeviceEvent, DtaMap, NodeId, PortId, RequestId, Restart, Rule, Rules,
};
use crate::drill_down::{Denied, DrillDown, Firing, Limits};
use crate::intent::{Intent, MAX_INTENTS};
use crate::inventory::{DevicePorts, Inventory, Topology};
use crate::plan::Plan;
use crate::reconcile::{DeviceStatus, Notice, Order, Phase, Reconciler, Target, Targets, Timing};

choice! {
    /// The way in which plans that follow from the topology are applied.
    pub enum ApplyMode("\"auto\" or \"manual\"") {
        /// Plans are applied after the topology has been calm.
        Auto = "auto",
        /// Plans are applied by a person ([`Manager::apply`]). Ports that became edge ports get their sinks at once all the same.
        Manual = "manual",
    }
}

/// Settings of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// Settings of the whole INT domain.
    pub domain: DomainSettings,
    /// Timeouts and limits of requests and changes.
    pub timing: Timing,
    /// Conditions that each kind of change waits for.
    pub order: Order,
    /// The way in which plans are applied.
    pub apply: ApplyMode,
    /// Time for which the topology must be unchanged before a plan is applied automatically, ns.
    pub calm: u64,
    /// Limits of the drill-downs.
    pub drill_downs: Limits,
    /// True if devices may still use an earlier INT encoding than `domain`'s, which was never effective everywhere.
    pub reencode: bool,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        Self {
            domain: DomainSettings::default(),
            timing: Timing::default(),
            order: Order::default(),
            apply: ApplyMode::Auto,
            calm: 1_000_000_000,
            drill_downs: Limits::default(),
            reencode: false,
        }
    }
}

/// An intent with its end and the result of compiling it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentStatus {
    /// The intent as it was submitted.
    pub intent: Intent,
    /// End of the intent, ns since 1970; `None` if it never ends.
    pub end: Option<u64>,
    /// The result of compiling it, or the reason why the current network refuses it.
    pub outcome: Result<Outcome, Refusal>,
    /// True if all its devices have its watchlist entries.
    pub installed: bool,
}

/// The effects that adding an intent would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// The result of compiling the intent.
    pub outcome: Outcome,
    /// Changes of the devices' rules.
    pub plan: Plan,
    /// The overlaps of all intents afterwards.
    pub overlaps: Overlaps,
}

/// Manages the intents and devices of one domain.
#[derive(Debug)]
pub struct Manager {
    settings: ManagerSettings,
    inventory: Inventory,
    capabilities: BTreeMap<NodeId, Capabilities>,
    /// Intents by name, each with its end, ns since 1970.
    intents: BTreeMap<String, (Intent, Option<u64>)>,
    /// Intents that the current network refuses. They are kept, and compiled again when the network changes.
    refused: BTreeMap<String, Refusal>,
    compiler: Compiler,
    drill_down: DrillDown,
    /// The last approved rules of each device.
    approved: BTreeMap<NodeId, Arc<Rules>>,
    reconciler: Reconciler,
    /// Time of the last topology change that has not been applied yet, ns.
    changed: Option<u64>,
}

impl Manager {
    /// Creates a manager of an empty network, in standby.
    pub fn new(settings: ManagerSettings) -> Self {
        let inventory = Inventory::default();
        let capabilities = BTreeMap::new();
        let mut reconciler = Reconciler::new(settings.timing, settings.order);
        if settings.reencode {
            reconciler.reencode();
        }
        Self {
            compiler: Compiler::new(&inventory, &capabilities, settings.domain.clone()),
            reconciler,
            drill_down: DrillDown::new(settings.drill_downs),
            settings,
            inventory,
            capabilities,
            intents: BTreeMap::new(),
            refused: BTreeMap::new(),
            approved: BTreeMap::new(),
            changed: None,
        }
    }

    /// Replaces the inventory. Ports that became edge ports get their sinks at once; other changes wait until the topology is
    /// stable or the operator applies them.
    pub fn set_inventory(&mut self, inventory: Inventory, now: u64) {
        if inventory != self.inventory {
            self.inventory = inventory;
            self.recompile(now);
        }
    }

    /// Replaces the DTA map. The change waits like a topology change.
    pub fn set_dta_map(&mut self, map: Option<Arc<DtaMap>>, now: u64) {
        if map != self.settings.domain.dta_map {
            self.settings.domain.dta_map = map;
            self.recompile(now);
        }
    }

    /// Sets the capabilities that a device's driver reported.
    pub fn set_capabilities(&mut self, node: NodeId, capabilities: Capabilities, now: u64) {
        if self.capabilities.get(&node) != Some(&capabilities) {
            self.capabilities.insert(node, capabilities);
            self.recompile(now);
        }
    }

    /// Makes this manager active with a term, or standby with `None`; see [`Reconciler::set_term`]. Set inventory,
    /// capabilities and intents first: an active manager without its intents removes their rules from the devices.
    pub fn set_term(&mut self, term: Option<u64>, now: u64) {
        self.reconciler.set_term(term, now);
    }

    /// Returns the term while this manager is active, or `None` in standby.
    pub fn term(&self) -> Option<u64> {
        self.reconciler.term()
    }

    /// Adds an intent or replaces the one of its name, and applies it. `now` is in ns by the clock in which its end is given.
    ///
    /// # Errors
    /// [`Refusal`]: one sentence that says what is wrong and what to do; nothing changes.
    pub fn add_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        let name = intent.name.clone();
        let outcome = self.install_intent(intent, now)?;
        // An intent that replaces a drill-down must not expire with it.
        self.drill_down.remove(&name);
        Ok(outcome)
    }

    /// Compiles and stores an intent, and approves the changes that follow.
    fn install_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        let is_new = !self.intents.contains_key(&intent.name);
        if is_new && self.intents.len() >= MAX_INTENTS {
            return Err(Refusal::TooMany(MAX_INTENTS));
        }
        let outcome = self.compiler.add(&intent)?;
        self.refused.remove(&intent.name);
        let replaces_other = self
            .intents
            .get(&intent.name)
            .is_some_and(|(old, _)| old.reporting.then != intent.reporting.then || old.flows != intent.flows);
        if replaces_other {
            self.end_drill_downs(&intent.name, now);
        }
        let end = intent.until.map(|until| until.end(now));
        self.intents.insert(intent.name.clone(), (intent, end));
        self.approve_intents(now);
        Ok(outcome)
    }

    /// Adds an intent like [`Manager::add_intent`]. If the current network refuses it, it is kept without effect and compiled
    /// again when the network changes.
    ///
    /// # Errors
    /// [`Refusal`], the reason why the intent is refused.
    pub fn keep_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        let added = self.add_intent(intent.clone(), now);
        if let Err(refusal) = &added {
            // The operator has replaced the earlier version of the intent.
            self.remove_intent(&intent.name, now);
            if !matches!(refusal, Refusal::Intent(_) | Refusal::TooMany(_)) {
                let end = intent.until.map(|until| until.end(now));
                self.refused.insert(intent.name.clone(), refusal.clone());
                self.intents.insert(intent.name.clone(), (intent, end));
            }
        }
        added
    }

    /// Checks whether the fired rule of an intent may start a drill-down; see [`DrillDown::admit`].
    ///
    /// # Errors
    /// [`Denied`] if it may not.
    pub fn admit(&mut self, parent: &str, firing: &Firing, now: u64) -> Result<(), Denied> {
        if !self.is_acting() {
            return Err(Denied::NotAsked);
        }
        let (intent, _) = self.intents.get(parent).ok_or(Denied::NotAsked)?;
        self.drill_down.admit(intent, firing, now)
    }

    /// Installs and returns a drill-down for a fired rule of an intent. It expires automatically.
    ///
    /// # Errors
    /// [`Denied`] if none is installed. The caller shows every case except [`Denied::NotAsked`] and [`Denied::Prolonged`].
    pub fn fire(&mut self, parent: &str, firing: &Firing, now: u64) -> Result<Intent, Denied> {
        if !self.is_acting() {
            return Err(Denied::NotAsked);
        }
        let (intent, _) = self.intents.get(parent).ok_or(Denied::NotAsked)?;
        let devices = &self.compiler.topology().devices;
        let edges = firing
            .at
            .iter()
            .filter(|node| devices.get(node).is_some_and(|ports| !ports.edge.is_empty()))
            .map(|node| self.inventory.name(*node))
            .collect();
        let child = self.drill_down.fire(
            intent,
            firing,
            edges,
            |name| !self.intents.contains_key(name),
            now,
        )?;
        match self.install_intent(child.clone(), now) {
            Ok(_) => Ok(child),
            Err(refusal) => {
                self.drill_down.remove(&child.name);
                Err(Denied::Refused(refusal))
            }
        }
    }

    /// Returns the active drill-downs, each with its parent intent.
    pub fn drill_downs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.drill_down.active()
    }

    fn end_drill_downs(&mut self, parent: &str, now: u64) {
        let ended: Vec<String> = self
            .drill_down
            .active()
            .filter(|(_, active_parent)| *active_parent == parent)
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in ended {
            self.remove_intent(&name, now);
        }
    }

    /// Removes an intent and its drill-downs. Returns `false` if there is no intent with this name.
    pub fn remove_intent(&mut self, name: &str, now: u64) -> bool {
        self.drill_down.remove(name);
        self.end_drill_downs(name, now);
        let existed = self.intents.remove(name).is_some();
        self.refused.remove(name);
        if self.compiler.remove(name) {
            self.approve_intents(now);
            self.approve_removals(now);
        }
        existed
    }

    /// Computes the effects of adding an intent without adding it.
    ///
    /// # Errors
    /// [`Refusal`] in the same cases as [`Manager::add_intent`].
    pub fn dry_run(&self, intent: &Intent, now: u64) -> Result<DryRun, Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        let mut compiler = self.compiler.clone();
        let outcome = compiler.add(intent)?;
        let plan = Plan::between(self.compiler.desired(), compiler.desired());
        Ok(DryRun {
            outcome,
            plan,
            overlaps: compiler.overlaps(),
        })
    }

    /// Checks whether an intent can be added.
    ///
    /// # Errors
    /// [`Refusal`] in the same cases as [`Manager::add_intent`].
    pub fn check_intent(&self, intent: &Intent, now: u64) -> Result<(), Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        self.compiler.clone().add(intent).map(drop)
    }

    /// Returns the pending changes, which wait for the operator or a stable topology: the difference between the approved
    /// rules and the rules that the current network and intents need.
    pub fn plan(&self) -> Plan {
        Plan::between(&self.approved, self.compiler.desired())
    }

    /// Returns whether plans wait for the operator's approval.
    pub fn is_manual(&self) -> bool {
        self.settings.apply == ApplyMode::Manual
    }

    /// Returns whether any of these devices has changes that wait for the operator's approval.
    pub fn needs_approval(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let desired = self.compiler.desired();
        self.is_manual()
            && nodes
                .iter()
                .any(|node| desired.get(node) != self.approved.get(node))
    }

    /// Approves the plan and applies it.
    pub fn apply(&mut self, now: u64) {
        self.changed = None;
        self.approved.clone_from(self.compiler.desired());
        self.set_targets(now);
    }

    /// Requests [`Notice::EdgeReady`] for a port; see [`Reconciler::announce_when_ready`].
    pub fn announce_when_ready(&mut self, node: NodeId, port: PortId) {
        self.reconciler.announce_when_ready(node, port);
    }

    /// Returns whether this manager is active.
    pub fn is_acting(&self) -> bool {
        self.reconciler.is_acting()
    }

    /// Returns whether packets with an earlier encoding of INT may be in flight; see [`ManagerSettings::reencode`].
    pub fn is_reencoding(&self) -> bool {
        self.reconciler.is_reencoding()
    }

    /// Processes a driver's answer.
    pub fn answer(&mut self, node: NodeId, id: RequestId, answer: Answer, now: u64) {
        self.reconciler.answer(node, id, answer, now);
    }

    /// Processes an event that a driver reported unasked.
    pub fn event(&mut self, node: NodeId, event: DeviceEvent, now: u64) {
        self.reconciler.event(node, event, now);
    }

    /// Advances the state to `now` and appends the requests to hand to drivers.
    pub fn poll(&mut self, now: u64, out: &mut Vec<Command>) {
        let ended = self
            .intents
            .iter()
            .filter(|(_, (_, end))| end.is_some_and(|end| end <= now));
        let mut ended: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        ended.extend(self.drill_down.expire(now));
        for name in ended {
            self.remove_intent(&name, now);
        }
        let calm = self
            .changed
            .is_some_and(|changed| now >= changed.saturating_add(self.settings.calm));
        if calm && self.settings.apply == ApplyMode::Auto {
            self.apply(now);
        }
        self.reconciler.poll(now, out);
    }

    /// Returns the time, ns, by which [`Manager::poll`] must be called again, or `None` if nothing is due.
    pub fn next_timeout(&self) -> Option<u64> {
        let ends = self.intents.values().filter_map(|(_, end)| *end);
        let calm = match self.settings.apply {
            ApplyMode::Auto => self
                .changed
                .map(|changed| changed.saturating_add(self.settings.calm)),
            ApplyMode::Manual => None,
        };
        ends.chain(calm)
            .chain(self.drill_down.next_timeout())
            .chain(self.reconciler.next_timeout())
            .min()
    }

    /// Returns and removes the notices since the last call.
    pub fn drain_notices(&mut self) -> Vec<Notice> {
        self.reconciler.drain_notices()
    }

    /// Returns the inventory of the network.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the compiler, for queries about paths, capabilities and the intents that a flow serves.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Returns the status of each device, for display.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.reconciler.statuses()
    }

    /// Returns the rules that a device has, or `None` if they are unknown.
    pub fn rules(&self, node: NodeId) -> Option<&Rules> {
        self.reconciler.rules(node)
    }

    /// Returns the status of each device without its rules and its foreign entries.
    pub fn device_states(&self) -> impl Iterator<Item = DeviceStatus> {
        self.reconciler.states()
    }

    /// Returns each device's node id and phase.
    pub fn phases(&self) -> impl Iterator<Item = (NodeId, &Phase)> {
        self.reconciler.phases()
    }

    /// Returns the status of an intent, for display, or `None` if there is none with this name.
    pub fn intent(&self, name: &str) -> Option<IntentStatus> {
        let (intent, end) = self.intents.get(name)?.clone();
        let end = end.or_else(|| self.drill_down.end(name));
        let outcome = match (self.refused.get(name), self.compiler.outcome(name)) {
            (None, Some(outcome)) => Ok(outcome),
            (refused, _) => Err(refused.cloned().unwrap_or(Refusal::NoEdge)),
        };
        let installed = outcome.as_ref().is_ok_and(|outcome| {
            let mut nodes = outcome.nodes.iter();
            nodes.all(|node| self.lacking(*node).is_some_and(|lacking| !lacking.contains(name)))
        });
        Some(IntentStatus {
            intent,
            end,
            outcome,
            installed,
        })
    }

    /// Returns the intents that lack an entry at a device, or `None` if the device's rules are unknown.
    pub fn lacking(&self, node: NodeId) -> Option<BTreeSet<&str>> {
        self.compiler.lacking(node, self.reconciler.rules(node))
    }

    /// Returns the number of devices that have exactly the desired rules.
    pub fn in_sync(&self) -> usize {
        self.reconciler.in_sync()
    }

    /// Returns whether the claim on a device is valid, so that its known rules are current.
    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.reconciler.is_claimed(node)
    }

    /// Returns the phase of a device, or `None` if it is unknown.
    pub fn phase(&self, node: NodeId) -> Option<&Phase> {
        self.reconciler.phase(node)
    }

    /// Returns the names of all intents.
    pub fn intents(&self) -> impl Iterator<Item = &str> {
        self.intents.keys().map(String::as_str)
    }

    /// Compiles all intents anew after a change of the network.
    fn recompile(&mut self, now: u64) {
        self.compiler = Compiler::new(&self.inventory, &self.capabilities, self.settings.domain.clone());
        let refused = self
            .compiler
            .add_all(self.intents.values().map(|(intent, _)| intent));
        self.refused = refused.into_iter().collect();
        if self.compiler.desired() == &self.approved {
            self.changed = None;
        } else {
            self.changed = Some(now);
        }
        self.set_targets(now);
    }

    /// Approves and applies the operator's change of an intent. A pending topology change keeps waiting.
    fn approve_intents(&mut self, now: u64) {
        if self.changed.is_none() || self.approved.is_empty() {
            return self.apply(now);
        }
        // The desired rules were computed for the current network, whose border is closed at once in any case.
        if self.settings.apply == ApplyMode::Auto {
            self.apply(now);
        }
    }

    /// Removes the entries of a removed intent although a topology change is pending. Entries that no intent needs are
    /// removed; entries shared with other intents get those intents' values. Roles of ports remain as approved.
    fn approve_removals(&mut self, now: u64) {
        if self.changed.is_none() {
            return;
        }
        let none = Arc::default();
        for (node, approved) in &mut self.approved {
            let desired: &Arc<Rules> = self.compiler.desired().get(node).unwrap_or(&none);
            let by_key: BTreeMap<_, _> = desired
                .iter()
                .filter_map(|rule| match rule {
                    Rule::Watch(watch) => Some((watch.key, rule)),
                    _ => None,
                })
                .collect();
            let fitted: Rules = approved
                .iter()
                .filter_map(|rule| match rule {
                    Rule::Watch(watch) => by_key.get(&watch.key).map(|rule| (*rule).clone()),
                    rule => Some(rule.clone()),
                })
                .collect();
            if fitted != **approved {
                *approved = Arc::new(fitted);
            }
        }
        self.set_targets(now);
    }

    /// Passes the approved rules to the reconciler, adapted to the current topology: the border is closed in any case.
    fn set_targets(&mut self, now: u64) {
        let topology: &Topology = self.compiler.topology();
        let embeds = self
            .approved
            .values()
            .any(|rules| rules.iter().any(|rule| rule.inserted_bits() != 0));
        let mut targets = Targets::new();
        for (node, ports) in &topology.devices {
            let mut rules = self.approved.get(node).cloned().unwrap_or_default();
            let has_outdated = rules.iter().any(|rule| contradicts(ports, rule));
            let lacks_sink = embeds && ports.border().any(|port| !rules.contains(&Rule::Sink(port)));
            if has_outdated || lacks_sink {
                let fitted = Arc::make_mut(&mut rules);
                fitted.retain(|rule| !contradicts(ports, rule));
                if embeds {
                    fitted.extend(ports.border().map(Rule::Sink));
                }
            }
            if embeds && !rules.iter().any(|rule| matches!(rule, Rule::Encoding(_))) {
                Arc::make_mut(&mut rules).insert(Rule::Encoding(self.settings.domain.encoding));
            }
            let restart = self
                .compiler
                .capabilities(*node)
                .map_or(Restart::Forwards, |can| can.restart);
            // Forwarding does not depend on the approval of rules.
            if restart == Restart::Waits && !rules.contains(&Rule::Forwarding) {
                Arc::make_mut(&mut rules).insert(Rule::Forwarding);
            }
            let target = Target {
                name: self.inventory.name(*node),
                ports: ports.clone(),
                rules,
                restart,
                room: self.compiler.room(),
                outside: false,
            };
            targets.insert(*node, target);
        }
        // A device outside the domain has this single rule; its driver's settings determine the rest.
        let forwarding = Arc::new(Rules::from([Rule::Forwarding]));
        for device in self.inventory.outside() {
            let target = Target {
                name: device.name.clone(),
                ports: DevicePorts::default(),
                rules: Arc::clone(&forwarding),
                restart: Restart::Waits,
                room: None,
                outside: true,
            };
            targets.insert(device.node, target);
        }
        self.reconciler.set_targets(targets, now);
    }
}

/// Returns whether a rule of a port contradicts the port's current role.
fn contradicts(ports: &DevicePorts, rule: &Rule) -> bool {
    match rule {
        Rule::Sink(port) => ports.links.contains_key(port),
        Rule::Source(port) => !ports.edge.contains(port),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

//! The manager: inventory, intents, compiler and reconciler joined. The program holds, drives and queries it.

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
    /// Settings of the whole domain.
    pub domain: DomainSettings,
    /// Times and limits of requests and changes.
    pub timing: Timing,
    /// Conditions of each step.
    pub order: Order,
    /// The way in which plans are applied.
    pub apply: ApplyMode,
    /// Time for which the topology must be unchanged before a plan is applied, ns.
    pub calm: u64,
    /// Limits of the drill-downs.
    pub drill_downs: Limits,
    /// Devices may have another encoding of INT than that of `domain`: it has changed, and was never effective everywhere.
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
    /// End of the intent, ns since 1970.
    pub end: Option<u64>,
    /// The result of compiling it, or the reason why the present network refuses it.
    pub outcome: Result<Outcome, Refusal>,
    /// All devices have its entries.
    pub installed: bool,
}

/// Manages the intents and devices of one domain.
#[derive(Debug)]
pub struct Manager {
    settings: ManagerSettings,
    inventory: Inventory,
    capabilities: BTreeMap<NodeId, Capabilities>,
    intents: BTreeMap<String, (Intent, Option<u64>)>,
    /// Intents that the present network refuses: kept, and compiled again when the network changes.
    refused: BTreeMap<String, Refusal>,
    compiler: Compiler,
    drill_down: DrillDown,
    /// The last approved rules of devices.
    approved: BTreeMap<NodeId, Arc<Rules>>,
    reconciler: Reconciler,
    /// Time of a change of the topology that has not been applied yet.
    changed: Option<u64>,
}

impl Manager {
    /// Creates a manager of an empty network, on standby.
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

    /// Replaces the inventory. Ports that became edge ports get their sinks at once; the rest waits for the calm or for a person.
    pub fn set_inventory(&mut self, inventory: Inventory, now: u64) {
        if inventory != self.inventory {
            self.inventory = inventory;
            self.recompile(now);
        }
    }

    /// Replaces the map of DTA collectors. As a change of the topology, it waits for the calm or for a person.
    pub fn set_dta_map(&mut self, map: Option<Arc<DtaMap>>, now: u64) {
        if map != self.settings.domain.dta_map {
            self.settings.domain.dta_map = map;
            self.recompile(now);
        }
    }

    /// Sets the capabilities of a device, as its driver reported them.
    pub fn set_capabilities(&mut self, node: NodeId, capabilities: Capabilities, now: u64) {
        if self.capabilities.get(&node) != Some(&capabilities) {
            self.capabilities.insert(node, capabilities);
            self.recompile(now);
        }
    }

    /// Sets or withdraws the right to act; see [`Reconciler::set_term`]. First set inventory, capabilities and intents: a manager
    /// that acts without its intents removes their rules from the devices.
    pub fn set_term(&mut self, term: Option<u64>, now: u64) {
        self.reconciler.set_term(term, now);
    }

    /// Returns the term with which it acts, or `None` if it does not.
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
        // An intent in place of a drill-down does not end with that.
        self.drill_down.remove(&name);
        Ok(outcome)
    }

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

    /// Adds an intent as [`Manager::add_intent`] does. One that the present network refuses is kept without effect, and compiled
    /// again when the network changes.
    ///
    /// # Errors
    /// [`Refusal`]: the reason why it is refused.
    pub fn keep_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        let added = self.add_intent(intent.clone(), now);
        if let Err(refusal) = &added {
            // An earlier version of it is no longer asked for.
            self.remove_intent(&intent.name, now);
            if !matches!(refusal, Refusal::Intent(_) | Refusal::TooMany(_)) {
                let end = intent.until.map(|until| until.end(now));
                self.refused.insert(intent.name.clone(), refusal.clone());
                self.intents.insert(intent.name.clone(), (intent, end));
            }
        }
        added
    }

    /// Checks whether a rule of an intent that became true leads to a drill-down; see [`DrillDown::admit`].
    ///
    /// # Errors
    /// [`Denied`] if it does not.
    pub fn admit(&mut self, parent: &str, firing: &Firing, now: u64) -> Result<(), Denied> {
        if !self.is_acting() {
            return Err(Denied::NotAsked);
        }
        let (intent, _) = self.intents.get(parent).ok_or(Denied::NotAsked)?;
        self.drill_down.admit(intent, firing, now)
    }

    /// Installs an intent with more detail because a rule of an intent became true, and returns it. It ends automatically.
    ///
    /// # Errors
    /// [`Denied`] if none is installed. Each case but the first two is to be shown.
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

    /// Returns the active drill-downs, each with the intent that led to it.
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

    /// Removes an intent, with its drill-downs; returns `false` if there is none of this name.
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

    /// Computes the result of adding an intent, the changes, and the overlaps of intents afterwards. Nothing changes.
    ///
    /// # Errors
    /// [`Refusal`], as [`Manager::add_intent`].
    pub fn dry_run(&self, intent: &Intent, now: u64) -> Result<(Outcome, Plan, Overlaps), Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        let mut compiler = self.compiler.clone();
        let outcome = compiler.add(intent)?;
        let plan = Plan::between(self.compiler.desired(), compiler.desired());
        Ok((outcome, plan, compiler.overlaps()))
    }

    /// Checks whether an intent can be added.
    ///
    /// # Errors
    /// [`Refusal`], as [`Manager::add_intent`].
    pub fn check_intent(&self, intent: &Intent, now: u64) -> Result<(), Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        self.compiler.clone().add(intent).map(drop)
    }

    /// Returns the changes that wait for a person, or for the calm: the difference between the approved rules and those that the
    /// present network and intents ask for.
    pub fn plan(&self) -> Plan {
        Plan::between(&self.approved, self.compiler.desired())
    }

    /// Returns whether changes wait for a person who approves them.
    pub fn is_manual(&self) -> bool {
        self.settings.apply == ApplyMode::Manual
    }

    /// Returns whether one of these devices has changes that wait for a person.
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

    /// Requests [`Notice::EdgeReady`] of a port; see [`Reconciler::announce_when_ready`].
    pub fn announce_when_ready(&mut self, node: NodeId, port: PortId) {
        self.reconciler.announce_when_ready(node, port);
    }

    /// Returns whether this manager acts.
    pub fn is_acting(&self) -> bool {
        self.reconciler.is_acting()
    }

    /// Returns whether packets with INT of an earlier encoding may be in flight; see [`ManagerSettings::reencode`].
    pub fn is_reencoding(&self) -> bool {
        self.reconciler.is_reencoding()
    }

    /// Processes a driver's answer.
    pub fn answer(&mut self, node: NodeId, id: RequestId, answer: Answer, now: u64) {
        self.reconciler.answer(node, id, answer, now);
    }

    /// Processes an event that a driver reported by itself.
    pub fn event(&mut self, node: NodeId, event: DeviceEvent, now: u64) {
        self.reconciler.event(node, event, now);
    }

    /// Advances to `now`, and appends the requests to hand to drivers.
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

    /// Returns the latest time at which to call [`Manager::poll`] again, ns.
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

    /// Returns the status of each device, for people.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.reconciler.statuses()
    }

    /// Returns the rules that a device has, if they are known.
    pub fn rules(&self, node: NodeId) -> Option<&Rules> {
        self.reconciler.rules(node)
    }

    /// Returns the status of each device without its rules and the entries of others.
    pub fn device_states(&self) -> impl Iterator<Item = DeviceStatus> {
        self.reconciler.states()
    }

    /// Returns the devices with their states.
    pub fn phases(&self) -> impl Iterator<Item = (NodeId, &Phase)> {
        self.reconciler.phases()
    }

    /// Returns the status of an intent, for people, or `None` if there is none of this name.
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

    /// Returns the intents of which a device lacks an entry, or `None` if its rules are not known.
    pub fn lacking(&self, node: NodeId) -> Option<BTreeSet<&str>> {
        self.compiler.lacking(node, self.reconciler.rules(node))
    }

    /// Counts the devices that have the rules that they should have.
    pub fn in_sync(&self) -> usize {
        self.reconciler.in_sync()
    }

    /// Returns whether the claim on a device is valid, so that its known rules are current.
    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.reconciler.is_claimed(node)
    }

    /// Returns the state of a device, or `None` if there is none with this node id.
    pub fn phase(&self, node: NodeId) -> Option<&Phase> {
        self.reconciler.phase(node)
    }

    /// Returns the names of all intents.
    pub fn intents(&self) -> impl Iterator<Item = &str> {
        self.intents.keys().map(String::as_str)
    }

    /// Compiles all intents for a new network.
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

    /// Applies the change of an intent, which a person decided. A change of the topology that waits goes on waiting.
    fn approve_intents(&mut self, now: u64) {
        if self.changed.is_none() || self.approved.is_empty() {
            return self.apply(now);
        }
        // The entries are computed for the present network, whose border is closed at once.
        if self.settings.apply == ApplyMode::Auto {
            self.apply(now);
        }
    }

    /// Removes the entries of an intent that was removed although a change of the topology waits: entries that no intent asks for
    /// are removed, and those that other intents ask for, too, become theirs. Roles of ports stay as approved.
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

    /// Passes the approved rules to the reconciler, fitted to the present topology: the border is closed whether approved or not.
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
            // A device forwards whether anything is approved or not.
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
        // Such a device has one rule: its effect follows from the settings of its driver.
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

/// Returns whether a rule of a port contradicts the present role of the port.
fn contradicts(ports: &DevicePorts, rule: &Rule) -> bool {
    match rule {
        Rule::Sink(port) => ports.links.contains_key(port),
        Rule::Source(port) => !ports.edge.contains(port),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

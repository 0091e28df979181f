//! The parts joined: inventory, intents, compiler, reconciler. What `src/` holds, feeds and asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::compile::{Compiler, DomainSettings, Outcome, Overlaps, Refusal};
use crate::device::{
    Answer, Capabilities, Command, DeviceEvent, DtaMap, NodeId, PortId, RequestId, Restart, Rule, Rules,
};
use crate::drill_down::{Denied, DrillDown, Firing, Limits};
use crate::intent::{Intent, MAX_INTENTS};
use crate::inventory::{DevicePorts, Inventory, Topology};
use crate::plan::Plan;
use crate::reconcile::{DeviceStatus, Notice, Order, Phase, Reconciler, Target, Targets, Timing};

/// Whether plans that follow from the topology are applied by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMode {
    /// After the topology has been calm.
    Auto,
    /// When a person says so ([`Manager::apply`]). Ports that became edge ports get their sinks at once all the same.
    Manual,
}

/// Settings of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// What holds for the whole domain.
    pub domain: DomainSettings,
    /// Times and limits.
    pub timing: Timing,
    /// What each step waits for.
    pub order: Order,
    /// Whether plans are applied by themselves.
    pub apply: ApplyMode,
    /// How long the topology must be unchanged before a plan is applied, ns.
    pub calm: u64,
    /// How many drill-downs, and how often.
    pub drill_downs: Limits,
    /// Devices may have another encoding of INT than that of `domain`: it has changed, and was never in force everywhere.
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

/// An intent with its end and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentStatus {
    /// The intent.
    pub intent: Intent,
    /// When it ends, ns since 1970.
    pub end: Option<u64>,
    /// What it became, or why it is not compiled in the present network.
    pub outcome: Result<Outcome, Refusal>,
    /// All devices have its entries.
    pub installed: bool,
}

/// A manager.
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
    /// What devices should have, as last approved.
    approved: BTreeMap<NodeId, Arc<Rules>>,
    reconciler: Reconciler,
    /// The topology changed at this time and has not been applied yet.
    changed: Option<u64>,
}

impl Manager {
    /// A manager of an empty network, on standby.
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

    /// What a device can do, as its driver reported.
    pub fn set_capabilities(&mut self, node: NodeId, capabilities: Capabilities, now: u64) {
        if self.capabilities.get(&node) != Some(&capabilities) {
            self.capabilities.insert(node, capabilities);
            self.recompile(now);
        }
    }

    /// Gives or takes the right to act; see [`Reconciler::set_term`]. First pass in inventory, capabilities and intents: a manager that
    /// acts without its intents removes their rules from the devices.
    pub fn set_term(&mut self, term: Option<u64>, now: u64) {
        self.reconciler.set_term(term, now);
    }

    /// The term with which it acts; `None`: it does not.
    pub fn term(&self) -> Option<u64> {
        self.reconciler.term()
    }

    /// Adds an intent or replaces the one of its name, and applies it. `now` is in ns since 1970.
    ///
    /// # Errors
    /// One sentence that says what is wrong and what to do; nothing changes.
    pub fn add_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        let name = intent.name.clone();
        let outcome = self.put_intent(intent, now)?;
        // In place of a drill-down, it does not end with that.
        self.drill_down.remove(&name);
        Ok(outcome)
    }

    fn put_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        let is_new = !self.intents.contains_key(&intent.name);
        if is_new && self.intents.len() >= MAX_INTENTS {
            return Err(Refusal::TooMany(MAX_INTENTS));
        }
        let outcome = self.compiler.add(&intent)?;
        self.refused.remove(&intent.name);
        let differs = |(old, _): &(Intent, _)| old.tell.then != intent.tell.then || old.flows != intent.flows;
        if self.intents.get(&intent.name).is_some_and(differs) {
            self.end_drill_downs(&intent.name, now);
        }
        let end = intent.until.map(|until| until.end(now));
        self.intents.insert(intent.name.clone(), (intent, end));
        self.approve_intents(now);
        Ok(outcome)
    }

    /// As [`Manager::add_intent`]; one that the present network refuses is kept without effect, and compiled again when the network
    /// changes.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn keep_intent(&mut self, intent: Intent, now: u64) -> Result<Outcome, Refusal> {
        let added = self.add_intent(intent.clone(), now);
        if let Err(refusal) = &added {
            // An earlier version of it is not what is wanted.
            self.remove_intent(&intent.name, now);
            if !matches!(refusal, Refusal::Intent(_) | Refusal::TooMany(_)) {
                let end = intent.until.map(|until| until.end(now));
                self.refused.insert(intent.name.clone(), refusal.clone());
                self.intents.insert(intent.name.clone(), (intent, end));
            }
        }
        added
    }

    /// Whether a rule of an intent that became true leads to a drill-down; see [`DrillDown::admit`].
    ///
    /// # Errors
    /// It does not.
    pub fn admit(&mut self, parent: &str, firing: &Firing, now: u64) -> Result<(), Denied> {
        let (intent, _) = self
            .intents
            .get(parent)
            .filter(|_| self.is_acting())
            .ok_or(Denied::NotAsked)?;
        self.drill_down.admit(intent, firing, now)
    }

    /// A rule of an intent became true: installs an intent with more detail where it happened, which ends by itself. Returns it.
    ///
    /// # Errors
    /// None is installed. Each case but the first two of [`Denied`] is to be shown.
    pub fn fire(&mut self, parent: &str, firing: &Firing, now: u64) -> Result<Intent, Denied> {
        let (intent, _) = self
            .intents
            .get(parent)
            .filter(|_| self.is_acting())
            .ok_or(Denied::NotAsked)?;
        let is_edge = |node: &&NodeId| {
            self.compiler
                .topology()
                .devices
                .get(node)
                .is_some_and(|ports| !ports.edge.is_empty())
        };
        let at = firing
            .at
            .iter()
            .filter(is_edge)
            .map(|node| self.inventory.name(*node))
            .collect();
        let is_free = |name: &str| !self.intents.contains_key(name);
        let child = self.drill_down.fire(intent, (firing, at), is_free, now)?;
        match self.put_intent(child.clone(), now) {
            Ok(_) => Ok(child),
            Err(refusal) => {
                self.drill_down.remove(&child.name);
                Err(Denied::Refused(refusal))
            }
        }
    }

    /// The active drill-downs, each with the intent that led to it.
    pub fn drill_downs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.drill_down.active()
    }

    fn end_drill_downs(&mut self, parent: &str, now: u64) {
        let of = self
            .drill_down
            .active()
            .filter(|(_, of)| *of == parent)
            .map(|(name, _)| name.to_owned());
        for name in of.collect::<Vec<_>>() {
            self.remove_intent(&name, now);
        }
    }

    /// Removes an intent, with its drill-downs; `false` if there is none of this name.
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

    /// What an intent would become, what adding it would change, and what intents would then be to each other. Nothing changes.
    ///
    /// # Errors
    /// As [`Manager::add_intent`].
    pub fn dry_run(&self, intent: &Intent, now: u64) -> Result<(Outcome, Plan, Overlaps), Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        let mut compiler = self.compiler.clone();
        let outcome = compiler.add(intent)?;
        let plan = Plan::between(self.compiler.desired(), compiler.desired());
        Ok((outcome, plan, compiler.overlaps()))
    }

    /// Whether an intent can be added.
    ///
    /// # Errors
    /// As [`Manager::add_intent`].
    pub fn check_intent(&self, intent: &Intent, now: u64) -> Result<(), Refusal> {
        intent.check(now).map_err(Refusal::Intent)?;
        self.compiler.clone().add(intent).map(drop)
    }

    /// What waits for a person, or for the calm: the difference between what is approved and what the present network and intents
    /// ask for.
    pub fn plan(&self) -> Plan {
        Plan::between(&self.approved, self.compiler.desired())
    }

    /// Whether changes wait for a person who approves them.
    pub fn is_manual(&self) -> bool {
        self.settings.apply == ApplyMode::Manual
    }

    /// Whether one of these devices has changes that wait for a person.
    pub fn needs_approval(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let desired = self.compiler.desired();
        self.is_manual()
            && nodes
                .iter()
                .any(|node| desired.get(node) != self.approved.get(node))
    }

    /// Approves the plan.
    pub fn apply(&mut self, now: u64) {
        self.changed = None;
        self.approved.clone_from(self.compiler.desired());
        self.set_targets(now);
    }

    /// Asks for [`Notice::EdgeReady`] of a port; see [`Reconciler::announce_when_ready`].
    pub fn announce_when_ready(&mut self, node: NodeId, port: PortId) {
        self.reconciler.announce_when_ready(node, port);
    }

    /// Whether this manager acts.
    pub fn is_acting(&self) -> bool {
        self.reconciler.is_acting()
    }

    /// Whether packets with INT of an earlier encoding may be in flight; see [`ManagerSettings::reencode`].
    pub fn is_reencoding(&self) -> bool {
        self.reconciler.is_reencoding()
    }

    /// A driver's answer.
    pub fn answer(&mut self, node: NodeId, id: RequestId, answer: Answer, now: u64) {
        self.reconciler.answer(node, id, answer, now);
    }

    /// What a driver reported without being asked.
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

    /// When to call [`Manager::poll`] again at the latest, ns.
    pub fn next_timeout(&self) -> Option<u64> {
        let ends = self.intents.values().filter_map(|(_, end)| *end);
        let auto = self.settings.apply == ApplyMode::Auto;
        let calm = self
            .changed
            .filter(|_| auto)
            .map(|changed| changed.saturating_add(self.settings.calm));
        ends.chain(calm)
            .chain(self.drill_down.next_timeout())
            .chain(self.reconciler.next_timeout())
            .min()
    }

    /// Takes what happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.reconciler.take_notices()
    }

    /// The inventory.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The compiler, to ask about paths, capabilities and the intents that a flow serves.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// The devices, for people.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.reconciler.statuses()
    }

    /// The rules that a device has, if they are known.
    pub fn actual(&self, node: NodeId) -> Option<&Rules> {
        self.reconciler.actual(node)
    }

    /// The devices without their rules and the entries of others.
    pub fn device_states(&self) -> impl Iterator<Item = DeviceStatus> {
        self.reconciler.states()
    }

    /// The devices with their states.
    pub fn phases(&self) -> impl Iterator<Item = (NodeId, &Phase)> {
        self.reconciler.phases()
    }

    /// An intent, for people; `None` if there is none of this name.
    pub fn intent(&self, name: &str) -> Option<IntentStatus> {
        let (intent, end) = self.intents.get(name)?.clone();
        let end = end.or_else(|| self.drill_down.end(name));
        let outcome = match (self.refused.get(name), self.compiler.outcome(name)) {
            (None, Some(outcome)) => Ok(outcome),
            (refused, _) => Err(refused.cloned().unwrap_or(Refusal::NoEdge)),
        };
        let has = |node: &NodeId| self.lacking(*node).is_some_and(|lacking| !lacking.contains(name));
        let installed = outcome
            .as_ref()
            .is_ok_and(|outcome| outcome.nodes.iter().all(has));
        Some(IntentStatus {
            intent,
            end,
            outcome,
            installed,
        })
    }

    /// The intents of which a device lacks an entry; `None`: what it has is not known.
    pub fn lacking(&self, node: NodeId) -> Option<BTreeSet<&str>> {
        self.compiler.lacking(node, self.reconciler.rules(node))
    }

    /// Number of devices that have what they should have.
    pub fn in_sync(&self) -> usize {
        self.reconciler.in_sync()
    }

    /// Whether the claim on a device stands: what is known of its rules is current.
    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.reconciler.is_claimed(node)
    }

    /// The state of a device; `None`: there is none with this node id.
    pub fn phase(&self, node: NodeId) -> Option<&Phase> {
        self.reconciler.phase(node)
    }

    /// The names of all intents.
    pub fn intents(&self) -> impl Iterator<Item = &str> {
        self.intents.keys().map(String::as_str)
    }

    /// Compiles everything for a new network.
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

    /// An intent came or went: a person has decided. A change of the topology that waits goes on waiting.
    fn approve_intents(&mut self, now: u64) {
        if self.changed.is_none() || self.approved.is_empty() {
            return self.apply(now);
        }
        // The entries are computed for the present network, whose border is closed at once.
        if self.settings.apply == ApplyMode::Auto {
            self.apply(now);
        }
    }

    /// Nothing is measured for an intent that has gone, although a change of the topology waits: entries that are not wanted any more go,
    /// and those that other intents want, too, become theirs. Roles of ports stay as approved.
    fn approve_removals(&mut self, now: u64) {
        if self.changed.is_none() {
            return;
        }
        let none = Arc::default();
        for (node, approved) in &mut self.approved {
            let desired: &Arc<Rules> = self.compiler.desired().get(node).unwrap_or(&none);
            let by_key = desired.iter().filter_map(|rule| match rule {
                Rule::Watch(watch) => Some((watch.key, rule)),
                _ => None,
            });
            let by_key: BTreeMap<_, _> = by_key.collect();
            let wanted = |rule: &Rule| match rule {
                Rule::Watch(watch) => by_key.get(&watch.key).map(|rule| (*rule).clone()),
                rule => Some(rule.clone()),
            };
            if approved.iter().any(|rule| wanted(rule).as_ref() != Some(rule)) {
                *approved = Arc::new(approved.iter().filter_map(wanted).collect());
            }
        }
        self.set_targets(now);
    }

    /// Hands what is approved to the reconciler, fitted to the present topology: the border is closed whether approved or not.
    fn set_targets(&mut self, now: u64) {
        let topology: &Topology = self.compiler.topology();
        let embeds = |rules: &Arc<Rules>| rules.iter().any(|rule| rule.inserted_bits() != 0);
        let wanted = self.approved.values().any(embeds);
        let mut targets = Targets::new();
        for (node, ports) in &topology.devices {
            let mut rules = self.approved.get(node).cloned().unwrap_or_default();
            let stale = |rule: &Rule| match rule {
                Rule::Sink(port) => ports.links.contains_key(port),
                Rule::Source(port) => !ports.edge.contains(port),
                _ => false,
            };
            let lacks = |port| wanted && !rules.contains(&Rule::Sink(port));
            if rules.iter().any(stale) || ports.border().any(lacks) {
                let fitted = Arc::make_mut(&mut rules);
                fitted.retain(|rule| !stale(rule));
                fitted.extend(ports.border().filter(|_| wanted).map(Rule::Sink));
            }
            if wanted && !rules.iter().any(|rule| matches!(rule, Rule::Encoding(_))) {
                Arc::make_mut(&mut rules).insert(Rule::Encoding(self.settings.domain.encoding));
            }
            let restart = self
                .compiler
                .capabilities(*node)
                .map_or(Restart::Forwards, |can| can.restart);
            // It forwards whether anything is approved or not.
            if restart == Restart::Waits && !rules.contains(&Rule::Forwarding) {
                Arc::make_mut(&mut rules).insert(Rule::Forwarding);
            }
            let name = self.inventory.name(*node);
            let room = self.compiler.room();
            let ports = ports.clone();
            targets.insert(
                *node,
                Target {
                    name,
                    ports,
                    rules,
                    restart,
                    room,
                    outside: false,
                },
            );
        }
        // All that these do is one rule: what it stands for follows from the settings of their drivers.
        let forwarding = Arc::new(Rules::from([Rule::Forwarding]));
        for device in self.inventory.outside() {
            let (ports, rules) = (DevicePorts::default(), Arc::clone(&forwarding));
            let (name, restart) = (device.name.clone(), Restart::Waits);
            targets.insert(
                device.node,
                Target {
                    name,
                    ports,
                    rules,
                    restart,
                    room: None,
                    outside: true,
                },
            );
        }
        self.reconciler.set_targets(targets, now);
    }
}

#[cfg(test)]
mod tests;

//! The intent compiler: computes each device's rules from the intents, the inventory and the devices' capabilities.
//!
//! A [`Compiler`] holds the result for all intents and updates it incrementally: adding or removing one intent recomputes only
//! the devices that it concerns.
//!
//! # Overlapping intents
//! A switch applies one watchlist entry per packet. The entries of a device are therefore closed under intersection: the
//! overlap of two intents becomes a separate entry with a greater precedence than both. It carries the union of their
//! instruction bits and the finer sampling; its mode is the mode of the intent with the greatest priority. The collector
//! evaluates each intent's thresholds and rule separately. Filters at the sinks are merged such that they suppress nothing
//! that any of the intents needs.

mod check;
mod closure;
mod overlap;
mod refusal;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use self::check::int_bytes;
pub use self::overlap::{EffectiveRule, ModeConflict, Overlap, Overlaps, Unfiltered};
pub use self::refusal::{Note, Refusal};

use self::check::Placed;
use self::closure::{Closure, Entries};
use crate::budget::Budget;
use crate::device::{
    Capabilities, DtaMap, Encoding, Filter, FilterAlgorithm, Mode, NodeId, Restart, Rule, Rules, Watch,
};
use crate::flows::FlowMatch;
use crate::instruction::{self, Bits};
use crate::intent::Intent;
use crate::inventory::{Inventory, Topology};

/// A collector of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Address where it receives reports.
    pub address: SocketAddr,
    /// Share of the reporters, relative to the other collectors' capacities; at least 1.
    pub capacity: u32,
    /// The device that the collector is attached to; near devices prefer it. `None` makes it the last choice.
    pub at: Option<NodeId>,
    /// Budget for the total of reports and events from all its reporters.
    pub budget: Budget,
}

/// Settings of the whole domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainSettings {
    /// Encoding of INT in packets.
    pub encoding: Encoding,
    /// True if the clocks of all devices are synchronised.
    pub synchronised: bool,
    /// Collectors of the domain. Without any, no report session is installed.
    pub collectors: Vec<Collector>,
    /// The DTA map for all devices. Without one, each device keeps its local map.
    pub dta_map: Option<Arc<DtaMap>>,
}

/// The result of compiling an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The mode that was chosen.
    pub mode: Mode,
    /// The intent's own instruction bits.
    pub bits: Bits,
    /// Devices whose watchlists contain its entries.
    pub nodes: BTreeSet<NodeId>,
    /// Notes for the operator.
    pub notes: Vec<Note>,
}

/// Compiles intents for one inventory. A change of the inventory, a capability or a setting needs a new compiler.
#[derive(Clone, Debug)]
pub struct Compiler {
    network: check::Network,
    /// Compiled intents by slot; `None` marks a free slot.
    placed: Vec<Option<Arc<Placed>>>,
    /// Requests of the intents by slot. They are a dense copy, because computing thousands of watchlist entries reads them.
    demands: Vec<Demand>,
    /// Slot of each intent, by name.
    slots: BTreeMap<String, usize>,
    /// Entries of each device, copied on write: clones of this compiler share them.
    devices: BTreeMap<NodeId, Arc<DeviceEntries>>,
    /// Number of intents that need each instruction bit.
    bit_users: [u32; 16],
    /// Number of intents whose mode puts INT into packets.
    embedding_intents: usize,
    /// Number of intents with a filter.
    filtering_intents: usize,
    sessions: BTreeMap<NodeId, SocketAddr>,
    desired: BTreeMap<NodeId, Arc<Rules>>,
}

/// The part of an intent's request that watchlist entries merge.
#[derive(Clone, Copy, Debug)]
struct Demand {
    mode: Mode,
    bits: Bits,
    sample: u32,
}

/// Properties of all intents together on which every device's rules depend.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Features {
    used_bits: Bits,
    /// The mode of an intent puts INT into packets.
    embeds_int: bool,
    has_filters: bool,
    has_intents: bool,
}

/// Entries of one device that the intents need: watchlist keys, and keys of packets that leave there.
#[derive(Clone, Debug, Default)]
struct DeviceEntries {
    watchlist_entries: Closure,
    sink_entries: Closure,
}

impl Compiler {
    /// Creates a compiler without intents.
    pub fn new(
        inventory: &Inventory,
        capabilities: &BTreeMap<NodeId, Capabilities>,
        settings: DomainSettings,
    ) -> Self {
        let network = check::Network::new(inventory, capabilities, settings);
        let nodes = network.topology.devices.keys();
        let devices = nodes.clone().map(|node| (*node, Arc::default())).collect();
        let sessions = network.sessions();
        let mut compiler = Self {
            devices,
            sessions,
            placed: Vec::new(),
            demands: Vec::new(),
            slots: BTreeMap::new(),
            bit_users: [0; 16],
            embedding_intents: 0,
            filtering_intents: 0,
            desired: BTreeMap::new(),
            network,
        };
        let rebuilt = compiler.rebuild_all();
        debug_assert!(rebuilt.is_ok(), "no intents need no room");
        compiler
    }

    /// Returns the topology that the intents are compiled for.
    pub fn topology(&self) -> &Topology {
        &self.network.topology
    }

    /// Returns the settings of the domain.
    pub fn settings(&self) -> &DomainSettings {
        &self.network.settings
    }

    /// Returns the capabilities of a device.
    pub fn capabilities(&self, node: NodeId) -> Option<&Capabilities> {
        self.network.capabilities.get(&node)
    }

    /// Returns the bytes of INT that fit beside a host's longest packet on every link, or `None` if that is unknown.
    pub fn room(&self) -> Option<u32> {
        self.network.int_space()
    }

    /// Returns the number of links on the longest of the shortest paths between edge devices.
    pub fn longest_path(&self) -> u32 {
        self.network.longest_path
    }

    /// Returns the rules that each device should have.
    pub fn desired(&self) -> &BTreeMap<NodeId, Arc<Rules>> {
        &self.desired
    }

    /// Returns the result of compiling an intent, or `None` if there is no such intent.
    pub fn outcome(&self, name: &str) -> Option<Outcome> {
        let placed = self.placed[*self.slots.get(name)?].as_ref()?;
        let nodes = placed.watchlist_entries.iter().map(|(node, _)| *node).collect();
        Some(Outcome {
            mode: placed.mode,
            bits: placed.bits,
            nodes,
            notes: placed.notes.clone(),
        })
    }

    /// Returns the flows that an intent selects in this network.
    ///
    /// # Errors
    /// [`Refusal`] if, for example, it names an unknown host.
    pub fn flows(&self, intent: &Intent) -> Result<Vec<FlowMatch>, Refusal> {
        self.network.keys(intent)
    }

    /// Returns the intents that the reports of a flow serve, which are those with a key that contains `key`.
    pub fn served(&self, key: &FlowMatch) -> Vec<&str> {
        let placed = self.slots.iter().filter(|(_, slot)| {
            self.placed[**slot].as_ref().is_some_and(|placed| {
                placed
                    .keys
                    .iter()
                    .any(|own| own.intersection(key).as_ref() == Some(key))
            })
        });
        placed.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the intents that lack a watchlist entry at a device with the rules `actual`, or `None` if rules are unknown.
    pub fn lacking(&self, node: NodeId, actual: Option<&Rules>) -> Option<BTreeSet<&str>> {
        let actual = actual?;
        let desired = self.desired.get(&node)?;
        let watchlist_entries = &self.devices.get(&node)?.watchlist_entries;
        let mut slots: BTreeSet<usize> = BTreeSet::new();
        for rule in desired.difference(actual) {
            if let Rule::Watch(watch) = rule {
                slots.extend(watchlist_entries.slots(&watch.key)?);
            }
        }
        if slots.is_empty() {
            return Some(BTreeSet::new());
        }
        let lacking = self.slots.iter().filter(|(_, slot)| slots.contains(*slot));
        Some(lacking.map(|(name, _)| name.as_str()).collect())
    }

    /// Adds an intent or replaces the intent with the same name. If it is refused, the compiler remains unchanged.
    ///
    /// # Errors
    /// [`Refusal`], which states the problem and a fix in one sentence.
    pub fn add(&mut self, intent: &Intent) -> Result<Outcome, Refusal> {
        let before = self.features();
        let placed = Arc::new(self.network.place(intent)?);
        let old = self.detach(&intent.name);
        self.attach(placed.clone());
        let touched = touched(&placed).chain(old.iter().flat_map(|old| touched(old)));
        let touched: BTreeSet<NodeId> = touched.collect();
        if let Err(refusal) = self.rebuild(touched, before) {
            self.detach(&intent.name);
            if let Some(old) = old {
                self.attach(old);
            }
            return Err(refusal);
        }
        let nodes = placed.watchlist_entries.iter().map(|(node, _)| *node).collect();
        Ok(Outcome {
            mode: placed.mode,
            bits: placed.bits,
            nodes,
            notes: placed.notes.clone(),
        })
    }

    /// Adds many intents at once. Returns the refused ones, each with its name and the reason.
    pub fn add_all<'i>(&mut self, intents: impl IntoIterator<Item = &'i Intent>) -> Vec<(String, Refusal)> {
        let mut refused = Vec::new();
        let mut placed = Vec::new();
        for intent in intents {
            match self.network.place(intent) {
                Ok(intent) => placed.push(Arc::new(intent)),
                Err(refusal) => refused.push((intent.name.clone(), refusal)),
            }
        }
        // Discard the closed sets: rebuilding them once is faster than updating them for each intent.
        for device in self.devices.values_mut() {
            let DeviceEntries {
                watchlist_entries,
                sink_entries,
            } = Arc::make_mut(device);
            watchlist_entries.reopen();
            sink_entries.reopen();
        }
        for added in &placed {
            self.detach(&added.intent.name);
            self.attach(added.clone());
        }
        if self.rebuild_all().is_ok() {
            return refused;
        }
        // A table or a packet has no room. Add the intents one by one to find those that do not fit.
        for added in &placed {
            self.detach(&added.intent.name);
        }
        for added in placed {
            let touched: BTreeSet<NodeId> = touched(&added).collect();
            self.attach(added.clone());
            if let Err(refusal) = self.compute(touched) {
                self.detach(&added.intent.name);
                refused.push((added.intent.name.clone(), refusal));
            }
        }
        let rebuilt = self.rebuild_all();
        debug_assert!(rebuilt.is_ok(), "each intent was checked");
        refused
    }

    /// Removes an intent. Returns `false` if there is none with this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.features();
        let Some(placed) = self.detach(name) else {
            return false;
        };
        let rebuilt = self.rebuild(touched(&placed).collect(), before);
        debug_assert!(rebuilt.is_ok(), "fewer intents need less room");
        true
    }

    /// Stores a compiled intent in a free slot and adds its entries to the devices.
    fn attach(&mut self, placed: Arc<Placed>) {
        let has_free = self.placed.len() > self.slots.len();
        let free = has_free.then(|| self.placed.iter().position(Option::is_none));
        let slot = free.flatten().unwrap_or(self.placed.len());
        for (node, key) in &placed.watchlist_entries {
            self.device(*node).watchlist_entries.add(*key, slot);
        }
        for (node, key) in &placed.sink_entries {
            self.device(*node).sink_entries.add(*key, slot);
        }
        self.count(&placed, true);
        self.slots.insert(placed.intent.name.clone(), slot);
        let demand = Demand {
            mode: placed.mode,
            bits: placed.bits,
            sample: placed.intent.sample,
        };
        if slot == self.placed.len() {
            self.placed.push(None);
            self.demands.push(demand);
        }
        self.demands[slot] = demand;
        self.placed[slot] = Some(placed);
    }

    /// Removes a compiled intent and its entries, and returns it.
    fn detach(&mut self, name: &str) -> Option<Arc<Placed>> {
        let slot = self.slots.remove(name)?;
        let placed = self.placed[slot].take()?;
        for (node, key) in &placed.watchlist_entries {
            self.device(*node).watchlist_entries.remove(key, slot);
        }
        for (node, key) in &placed.sink_entries {
            self.device(*node).sink_entries.remove(key, slot);
        }
        self.count(&placed, false);
        Some(placed)
    }

    fn device(&mut self, node: NodeId) -> &mut DeviceEntries {
        Arc::make_mut(self.devices.entry(node).or_default())
    }

    fn count(&mut self, placed: &Placed, added: bool) {
        for number in instruction::numbers(placed.bits) {
            let users = &mut self.bit_users[usize::from(number)];
            *users = if added { *users + 1 } else { *users - 1 };
        }
        let embedding = usize::from(placed.mode.embeds());
        let filtering = usize::from(placed.intent.reporting.filter.is_some());
        if added {
            self.embedding_intents += embedding;
            self.filtering_intents += filtering;
        } else {
            self.embedding_intents -= embedding;
            self.filtering_intents -= filtering;
        }
    }

    fn features(&self) -> Features {
        Features {
            used_bits: self.used_bits(),
            embeds_int: self.embedding_intents > 0,
            has_filters: self.filtering_intents > 0,
            has_intents: !self.slots.is_empty(),
        }
    }

    /// Returns the instruction bits that any intent uses.
    fn used_bits(&self) -> Bits {
        let used = (0_u8..16).filter(|number| self.bit_users[usize::from(*number)] > 0);
        used.fold(0, |bits, number| bits | instruction::bit(number))
    }

    /// Computes the rules of these devices, or of all if the features differ from `before`. No change if one has no room.
    fn rebuild(&mut self, touched: BTreeSet<NodeId>, before: Features) -> Result<(), Refusal> {
        if self.features() != before {
            return self.rebuild_all();
        }
        let computed = self.compute(touched)?;
        self.desired.extend(computed);
        Ok(())
    }

    fn rebuild_all(&mut self) -> Result<(), Refusal> {
        let all: Vec<NodeId> = self.devices.keys().copied().collect();
        self.desired = self.compute(all)?.into_iter().collect();
        Ok(())
    }

    /// Computes the rules of these devices without storing them.
    fn compute(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<Vec<(NodeId, Arc<Rules>)>, Refusal> {
        let rules = nodes.into_iter().map(|node| {
            self.close(node);
            Ok((node, Arc::new(self.rules(node)?)))
        });
        rules.collect()
    }

    /// Computes the closed entry sets that a device's rules need.
    fn close(&mut self, node: NodeId) {
        let Some(capabilities) = self.network.capabilities.get(&node) else {
            return;
        };
        let watch_entries = capabilities.watch_entries;
        let filter_entries = capabilities.filter_entries;
        let has_filters = self.filtering_intents > 0;
        let device = self.device(node);
        device.watchlist_entries.close(watch_entries);
        if has_filters {
            device.sink_entries.close(filter_entries);
        } else {
            // The closed set is not needed now, and updating it would slow down each change.
            device.sink_entries.reopen();
        }
    }

    /// Computes the rules that one device should have.
    fn rules(&self, node: NodeId) -> Result<Rules, Refusal> {
        let Some(capabilities) = self.network.capabilities.get(&node) else {
            return Ok(Rules::new());
        };
        let watched = self.entries(node, "watchlist", capabilities.watch_entries)?;
        let watched = watched.iter().map(|(key, slots)| self.watch(*key, slots));
        let watched: Vec<Watch> = watched.collect::<Result<_, _>>()?;
        let ports = &self.network.topology.devices[&node];
        // In the order of [`Rule`]'s variants, so that the set is built without sorting.
        let mut rules = Vec::with_capacity(watched.len() + 2 * ports.edge.len() + 20);
        if self.embedding_intents > 0 {
            rules.push(Rule::Encoding(self.network.settings.encoding));
        }
        if !self.slots.is_empty() {
            rules.extend(self.sessions.get(&node).copied().map(Rule::Session));
        }
        if capabilities.dta {
            rules.extend(self.network.settings.dta_map.clone().map(Rule::DtaMap));
        }
        // Postcard mode puts no INT into packets, but hosts can. Remove it at the border if the device can do so.
        if self.embedding_intents > 0 || (!self.slots.is_empty() && capabilities.sink) {
            rules.extend(ports.border().map(Rule::Sink));
        }
        // A node executes the instructions for its postcards, too.
        rules.extend(instruction::numbers(self.used_bits() & capabilities.bits).map(Rule::Instruction));
        if self.filtering_intents > 0 {
            let sink_entries = self.entries(node, "filter table", capabilities.filter_entries)?;
            let filters = self.filters(&sink_entries);
            let needed = filters
                .iter()
                .filter(|rule| matches!(rule, Rule::Filter(filter) if filter.rule.is_some()))
                .count();
            let room = capabilities.rules.filters;
            if needed > room {
                return Err(Refusal::Full {
                    device: self.network.name(node),
                    table: refusal::FILTERS_BY_RULE,
                    needed,
                    room,
                });
            }
            rules.extend(filters);
        }
        if capabilities.restart == Restart::Waits {
            rules.push(Rule::Forwarding);
        }
        if !capabilities.joint_roles && watched.iter().any(|watch| watch.mode.embeds()) {
            rules.extend(ports.edge.iter().copied().map(Rule::Source));
        }
        rules.extend(watched.into_iter().map(|watch| Rule::Watch(Arc::new(watch))));
        Ok(Rules::from_iter(rules))
    }

    /// Returns the entries of one of a device's tables, `watchlist` or the filter table, if they fit in it.
    fn entries(&self, node: NodeId, table: &'static str, room: usize) -> Result<Cow<'_, Entries>, Refusal> {
        let device = &self.devices[&node];
        let closure = if table == "watchlist" {
            &device.watchlist_entries
        } else {
            &device.sink_entries
        };
        let entries = closure.entries(room);
        if entries.len() <= room {
            return Ok(entries);
        }
        Err(Refusal::Full {
            device: self.network.name(node),
            table,
            needed: entries.len(),
            room,
        })
    }

    fn placed_in<'a>(&'a self, slots: &'a BTreeSet<usize>) -> impl Iterator<Item = &'a Placed> {
        slots.iter().filter_map(|slot| self.placed[*slot].as_deref())
    }

    /// Merges the requests of several intents into one watchlist entry. The intent with the greatest priority decides the
    /// mode; among equal priorities, the first name does.
    ///
    /// # Errors
    /// [`Refusal::Mtu`] if the union of the requests does not fit in one of the intents' modes. All modes are checked, so that
    /// the entry still fits after any of the intents is removed.
    fn watch(&self, key: FlowMatch, slots: &BTreeSet<usize>) -> Result<Watch, Refusal> {
        let nothing = Demand {
            mode: Mode::Md,
            bits: 0,
            sample: 1,
        };
        let mut demands = slots.iter().map(|slot| self.demands[*slot]);
        let first = demands.next().unwrap_or(nothing);
        let mut modes_differ = false;
        let merged = demands.fold(first, |merged, demand| {
            modes_differ |= demand.mode != merged.mode;
            Demand {
                mode: merged.mode,
                bits: merged.bits | demand.bits,
                sample: merged.sample.min(demand.sample),
            }
        });
        let mode = if modes_differ {
            self.mode_of(slots).unwrap_or(merged.mode)
        } else {
            merged.mode
        };
        self.check_room(mode, merged.bits, slots)?;
        if modes_differ {
            for slot in slots {
                self.check_room(self.demands[*slot].mode, merged.bits, slots)?;
            }
        }
        let hops = self.network.hops(mode, merged.bits);
        Ok(Watch {
            key,
            mode,
            bits: merged.bits,
            hops,
            sample: merged.sample,
            drops: true,
        })
    }

    /// Checks that packets have room for INT with these bits. Modes that do not embed INT always pass.
    fn check_room(&self, mode: Mode, bits: Bits, slots: &BTreeSet<usize>) -> Result<(), Refusal> {
        if mode.embeds() {
            self.network.check_mtu(mode, bits, slots.len() > 1)
        } else {
            Ok(())
        }
    }

    fn mode_of(&self, slots: &BTreeSet<usize>) -> Option<Mode> {
        self.deciding(slots).map(|placed| placed.mode)
    }

    /// Returns the intent that decides the mode of an entry.
    fn deciding<'a>(&'a self, slots: &'a BTreeSet<usize>) -> Option<&'a Placed> {
        self.placed_in(slots).max_by(|a, b| {
            let by_priority = a.intent.priority.cmp(&b.intent.priority);
            by_priority.then_with(|| b.intent.name.cmp(&a.intent.name))
        })
    }

    /// Computes the filters of a sink. An entry is reported in full unless all its intents have filters that merge into one.
    fn filters(&self, sink_entries: &Entries) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (&key, slots) in sink_entries {
            let mut merged: Option<Filter> = None;
            let mut agree = true;
            for placed in self.placed_in(slots) {
                let Some(filter) = placed.filter(key) else {
                    agree = false;
                    break;
                };
                agree &= merged.as_ref().is_none_or(|merged| {
                    (merged.algorithm, merged.metric, &merged.rule)
                        == (filter.algorithm, filter.metric, &filter.rule)
                });
                let threshold = merged
                    .as_ref()
                    .map_or(filter.threshold, |merged| merged.threshold.min(filter.threshold));
                merged = Some(Filter { threshold, ..filter });
            }
            let common = if agree { merged } else { None };
            // Without a common filter, an explicit report-all filter is needed, because a wider entry's filter would match.
            let report_all = Filter {
                key,
                algorithm: FilterAlgorithm::Noop,
                metric: detect::Metric::FlowPath,
                threshold: 0,
                rule: None,
            };
            rules.push(Rule::Filter(Arc::new(common.unwrap_or(report_all))));
        }
        rules
    }
}

fn touched(placed: &Placed) -> impl Iterator<Item = NodeId> + '_ {
    placed
        .watchlist_entries
        .iter()
        .chain(&placed.sink_entries)
        .map(|(node, _)| *node)
}

//! What intents with flows in common are to each other. A switch uses one entry per packet, so one of them decides the mode; the sink
//! has one filter per packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use detect::Metric;

use super::check::Placed;
use super::{Compiler, Watch};
use crate::device::{Filter, FilterAlgorithm, Mode, NodeId};
use crate::flows::FlowKey;
use crate::instruction::Bits;

/// With more intents, or more entries on all devices together, overlaps are not looked for.
const MAX_INTENTS: usize = 1_000;
const MAX_ENTRIES: usize = 200_000;

/// By the name of the intent.
pub type Overlaps = BTreeMap<String, Overlap>;

/// The rules that measure the packets of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Its rules: first those of all its packets, then those of packets that narrower intents match too. Never empty.
    pub rules: Vec<InForce>,
    /// Intents that take packets from it: they decide the mode, and it asks for another one.
    pub taken: Vec<Taken>,
    /// Why its filter does not hold back all that it should.
    pub unfiltered: Vec<Unfiltered>,
}

/// A rule that measures packets of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// It is of all packets of the intent, or of one of its keys, except for those of narrower rules.
    pub whole: bool,
    /// Its mode.
    pub mode: Mode,
    /// What each node adds.
    pub bits: Bits,
    /// One packet of this many.
    pub sample: u32,
}

/// An intent takes packets from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The one that takes them.
    pub by: String,
    /// All of them.
    pub whole: bool,
    /// Its mode, and the one that the other asks for.
    pub modes: (Mode, Mode),
    /// The priorities of both.
    pub priorities: (u32, u32),
    /// The other watches the latency of flows, which this mode does not give.
    pub loses_latency: bool,
    /// The other has a filter, which does not apply to this mode.
    pub loses_filter: bool,
}

/// An intent whose reports another one's filter does not hold back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfiltered {
    /// Its name.
    pub by: String,
    /// All packets of the other.
    pub whole: bool,
    /// It has a filter, and a sink cannot apply both.
    pub filters: bool,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            by,
            whole,
            modes: (mode, own),
            priorities,
            loses_latency,
            loses_filter,
        } = self;
        let which = if *whole {
            "its packets are"
        } else {
            "those of its packets that it matches are"
        };
        write!(
            f,
            "{which} taken by `{by}`: mode {} in place of {}, ",
            mode.word(),
            own.word()
        )?;
        match priorities {
            (a, b) if a == b => write!(f, "because its name comes first and both have priority {a}")?,
            (a, b) => write!(f, "because of priority {a} to {b}")?,
        }
        if *loses_latency {
            f.write_str("; they give no flow latency")?;
        }
        if *loses_filter {
            f.write_str("; no filter applies to them")?;
        }
        Ok(())
    }
}

impl fmt::Display for Unfiltered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, whole, filters } = self;
        f.write_str("its filter has no effect")?;
        if !whole {
            write!(f, " on packets that `{by}` matches too")?;
        }
        match filters {
            true => write!(f, ": `{by}` has another filter, so every packet is reported"),
            false => write!(f, ": `{by}` has every packet reported"),
        }
    }
}

impl Overlap {
    /// What another intent does to this one, for people.
    pub fn notes_of(&self, other: &str) -> Vec<String> {
        let taken = self
            .taken
            .iter()
            .filter(|taken| taken.by == other)
            .map(ToString::to_string);
        let unfiltered = self
            .unfiltered
            .iter()
            .filter(|one| one.by == other)
            .map(ToString::to_string);
        taken.chain(unfiltered).collect()
    }

    /// What other intents do to this one, for people.
    pub fn notes(&self) -> Vec<String> {
        let taken = self.taken.iter().map(ToString::to_string);
        taken
            .chain(self.unfiltered.iter().map(ToString::to_string))
            .collect()
    }
}

/// What was found for one intent, each once. Rules: their bits and sampling, by whether they are of a part only, mode and deciding slot.
#[derive(Default)]
struct Found {
    rules: BTreeMap<(bool, &'static str, usize), InForce>,
    unfiltered: BTreeMap<usize, Unfiltered>,
}

impl Found {
    fn add_rule(&mut self, watch: &Watch, whole: bool, decides: usize) {
        let rule = InForce {
            whole,
            mode: watch.mode,
            bits: watch.bits,
            sample: watch.sample,
        };
        let known = self
            .rules
            .entry((!whole, watch.mode.word(), decides))
            .or_insert(rule);
        known.bits |= rule.bits;
        known.sample = known.sample.min(rule.sample);
    }
}

impl Compiler {
    /// What intents are to each other. Empty if there are too many intents or entries to look for it.
    pub fn overlaps(&self) -> Overlaps {
        let entries: usize = self.desired.values().map(|rules| rules.len()).sum();
        if self.slots.len() > MAX_INTENTS || entries > MAX_ENTRIES {
            return Overlaps::new();
        }
        let mut found: BTreeMap<usize, Found> = BTreeMap::new();
        for node in self.devices.keys() {
            self.find_rules(*node, &mut found);
            self.find_unfiltered(*node, &mut found);
        }
        let named = |(slot, found): (usize, Found)| {
            let placed = self.placed[slot].as_deref()?;
            Some((placed.intent.name.clone(), self.overlap(placed, slot, found)))
        };
        found.into_iter().filter_map(named).collect()
    }

    /// The intents whose own mode is that of the rule for `key` at a device: those whose packets are counted by it.
    pub fn measured(&self, node: NodeId, key: &FlowKey) -> Vec<&str> {
        let Some(device) = self.devices.get(&node) else {
            return Vec::new();
        };
        if !device.watched.is_closed() {
            return self.served(key);
        }
        let Some(slots) = device.watched.slots(key) else {
            return Vec::new();
        };
        let mode = self.mode_of(slots);
        let measured = self.of(slots).filter(|placed| Some(placed.mode) == mode);
        measured.map(|placed| placed.intent.name.as_str()).collect()
    }

    fn find_rules(&self, node: NodeId, found: &mut BTreeMap<usize, Found>) {
        let Some(device) = self.devices.get(&node) else {
            return;
        };
        for (key, slots) in device.watched.entries(usize::MAX).iter() {
            let (Ok(watch), Some(decides)) = (self.watch(*key, slots), self.deciding(slots)) else {
                continue;
            };
            for slot in slots {
                found
                    .entry(*slot)
                    .or_default()
                    .add_rule(&watch, self.has_key(*slot, key), decides);
            }
        }
    }

    fn find_unfiltered(&self, node: NodeId, found: &mut BTreeMap<usize, Found>) {
        let Some(device) = self.devices.get(&node).filter(|_| self.filtering > 0) else {
            return;
        };
        for (key, slots) in device.sunk.entries(usize::MAX).iter() {
            // One that reports every packet is none.
            let filter = |placed: &Placed| {
                placed
                    .filter(*key)
                    .filter(|filter| filter.algorithm != FilterAlgorithm::Noop)
            };
            let filters: Vec<_> = slots
                .iter()
                .filter_map(|slot| Some((*slot, filter(self.placed[*slot].as_deref()?))))
                .collect();
            for (slot, own) in &filters {
                let Some(own) = own else { continue };
                let differs = |(_, other): &&(usize, Option<Filter>)| {
                    other.as_ref().is_none_or(|one| {
                        (one.algorithm, one.metric, &one.rule) != (own.algorithm, own.metric, &own.rule)
                    })
                };
                // One without a filter is the plainer reason.
                let by = filters
                    .iter()
                    .filter(differs)
                    .min_by_key(|(_, filter)| filter.is_some());
                let Some((by, filter)) = by else { continue };
                let whole = self.has_key(*slot, key);
                let other = Unfiltered {
                    by: self.name_of(*by),
                    whole,
                    filters: filter.is_some(),
                };
                let known = found
                    .entry(*slot)
                    .or_default()
                    .unfiltered
                    .entry(*by)
                    .or_insert(other);
                known.whole |= whole;
            }
        }
    }

    fn overlap(&self, placed: &Placed, slot: usize, found: Found) -> Overlap {
        let mut rules: Vec<InForce> = Vec::new();
        let mut taken: Vec<Taken> = Vec::new();
        let mut takers = BTreeSet::new();
        for ((_, _, decides), rule) in found.rules {
            let asks = |one: &InForce| (one.mode, one.bits, one.sample);
            if !rules.iter().any(|one| asks(one) == asks(&rule)) {
                rules.push(rule);
            }
            if decides == slot || rule.mode == placed.mode || !takers.insert(decides) {
                continue;
            }
            let Some(by) = self.placed[decides].as_deref() else {
                continue;
            };
            let is_sf = rule.mode == Mode::Sf;
            taken.push(Taken {
                by: by.intent.name.clone(),
                whole: rule.whole,
                modes: (rule.mode, placed.mode),
                priorities: (by.intent.priority, placed.intent.priority),
                loses_latency: is_sf && placed.intent.watch.contains(&Metric::FlowLatency),
                loses_filter: is_sf && placed.intent.tell.filter.is_some(),
            });
        }
        Overlap {
            rules,
            taken,
            unfiltered: found.unfiltered.into_values().collect(),
        }
    }

    /// The intent that decides the mode of an entry.
    fn deciding(&self, slots: &BTreeSet<usize>) -> Option<usize> {
        let name = &self.decides(slots)?.intent.name;
        self.slots.get(name).copied()
    }

    /// Whether a key is one of the intent's own.
    fn has_key(&self, slot: usize, key: &FlowKey) -> bool {
        self.placed[slot]
            .as_deref()
            .is_some_and(|placed| placed.keys.binary_search(key).is_ok())
    }

    fn name_of(&self, slot: usize) -> String {
        self.placed[slot]
            .as_deref()
            .map(|placed| placed.intent.name.clone())
            .unwrap_or_default()
    }
}

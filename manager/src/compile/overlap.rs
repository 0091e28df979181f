//! Finds conflicts between intents that select the same flows. A switch applies one watchlist entry per packet, so one intent
//! decides the mode; a sink applies one filter per packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use detect::Metric;

use super::check::Placed;
use super::{Compiler, Watch};
use crate::device::{Filter, FilterAlgorithm, Mode, NodeId};
use crate::flows::FlowMatch;
use crate::instruction::Bits;

/// Maximum numbers of intents, and of entries on all devices together, for which overlaps are computed.
const MAX_INTENTS: usize = 1_000;
const MAX_ENTRIES: usize = 200_000;

/// Overlaps by intent name.
pub type Overlaps = BTreeMap<String, Overlap>;

/// The rules that measure the packets of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Rules of the intent, never empty: first the rules for all its packets, then those shared with narrower intents.
    pub rules: Vec<EffectiveRule>,
    /// Conflicts in which another intent decides the mode of some of its packets.
    pub taken: Vec<ModeConflict>,
    /// Reasons why its filter suppresses less than requested.
    pub unfiltered: Vec<Unfiltered>,
}

/// A rule that measures an intent's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveRule {
    /// True if the rule covers all packets of the intent or of one of its keys, except packets of narrower rules.
    pub whole: bool,
    /// Mode of the rule.
    pub mode: Mode,
    /// Instruction bits that each node fills.
    pub bits: Bits,
    /// Sampling: one packet in `sample` is measured.
    pub sample: u32,
}

/// Another intent decides the mode of some of an intent's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeConflict {
    /// Name of the intent that decides the mode.
    pub by: String,
    /// True if it decides for all packets of the losing intent.
    pub whole: bool,
    /// The applied mode (of the deciding intent), and the mode that the losing intent requested.
    pub modes: (Mode, Mode),
    /// Priority of the deciding intent, then of the losing one.
    pub priorities: (u32, u32),
    /// True if the losing intent watches flow latency, which the applied mode cannot measure.
    pub loses_latency: bool,
    /// True if the losing intent has a filter, which does not apply in this mode.
    pub loses_filter: bool,
}

/// Another intent that needs reports which this intent's filter would suppress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfiltered {
    /// Name of the other intent.
    pub by: String,
    /// True if all packets of this intent are affected.
    pub whole: bool,
    /// True if the other intent has a filter too, and a sink cannot apply both.
    pub filters: bool,
}

impl fmt::Display for ModeConflict {
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
            mode.name(),
            own.name()
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
        if *filters {
            write!(f, ": `{by}` has another filter, so every packet is reported")
        } else {
            write!(f, ": `{by}` has every packet reported")
        }
    }
}

impl Overlap {
    /// Describes the effects of another intent on this one.
    pub fn notes_of(&self, other: &str) -> Vec<String> {
        let taken = self
            .taken
            .iter()
            .filter(|taken| taken.by == other)
            .map(ToString::to_string);
        let unfiltered = self
            .unfiltered
            .iter()
            .filter(|unfiltered| unfiltered.by == other)
            .map(ToString::to_string);
        taken.chain(unfiltered).collect()
    }

    /// Describes the effects of all other intents on this one.
    pub fn notes(&self) -> Vec<String> {
        let taken = self.taken.iter().map(ToString::to_string);
        taken
            .chain(self.unfiltered.iter().map(ToString::to_string))
            .collect()
    }
}

/// Overlaps of one intent, without duplicates.
#[derive(Default)]
struct IntentOverlaps {
    rules: BTreeMap<RuleKey, EffectiveRule>,
    /// By the other intent's slot.
    unfiltered: BTreeMap<usize, Unfiltered>,
}

/// Identifies a rule of [`IntentOverlaps`] and sets the order: whole rules first, then by mode.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RuleKey {
    is_partial: bool,
    mode: &'static str,
    deciding_slot: usize,
}

impl IntentOverlaps {
    fn add_rule(&mut self, watch: &Watch, whole: bool, deciding_slot: usize) {
        let rule = EffectiveRule {
            whole,
            mode: watch.mode,
            bits: watch.bits,
            sample: watch.sample,
        };
        let known = self
            .rules
            .entry(RuleKey {
                is_partial: !whole,
                mode: watch.mode.name(),
                deciding_slot,
            })
            .or_insert(rule);
        known.bits |= rule.bits;
        known.sample = known.sample.min(rule.sample);
    }
}

impl Compiler {
    /// Computes the overlaps of all intents; none if there are more than `MAX_INTENTS` intents or `MAX_ENTRIES` entries.
    pub fn overlaps(&self) -> Overlaps {
        let entries: usize = self.desired.values().map(|rules| rules.len()).sum();
        if self.slots.len() > MAX_INTENTS || entries > MAX_ENTRIES {
            return Overlaps::new();
        }
        let mut found: BTreeMap<usize, IntentOverlaps> = BTreeMap::new();
        for node in self.devices.keys() {
            self.find_rules(*node, &mut found);
            self.find_unfiltered(*node, &mut found);
        }
        let overlaps = found.into_iter().filter_map(|(slot, found)| {
            let placed = self.placed[slot].as_deref()?;
            Some((placed.intent.name.clone(), self.overlap(placed, slot, found)))
        });
        overlaps.collect()
    }

    /// Returns the intents whose packets the rule for `key` at a device counts: those that requested its mode.
    pub fn measured(&self, node: NodeId, key: &FlowMatch) -> Vec<&str> {
        let Some(device) = self.devices.get(&node) else {
            return Vec::new();
        };
        if !device.watchlist_entries.is_closed() {
            return self.served(key);
        }
        let Some(slots) = device.watchlist_entries.slots(key) else {
            return Vec::new();
        };
        let mode = self.mode_of(slots);
        let measured = self.placed_in(slots).filter(|placed| Some(placed.mode) == mode);
        measured.map(|placed| placed.intent.name.as_str()).collect()
    }

    fn find_rules(&self, node: NodeId, found: &mut BTreeMap<usize, IntentOverlaps>) {
        let Some(device) = self.devices.get(&node) else {
            return;
        };
        for (key, slots) in device.watchlist_entries.entries(usize::MAX).iter() {
            let (Ok(watch), Some(deciding_slot)) = (self.watch(*key, slots), self.deciding_slot(slots))
            else {
                continue;
            };
            for slot in slots {
                found
                    .entry(*slot)
                    .or_default()
                    .add_rule(&watch, self.has_key(*slot, key), deciding_slot);
            }
        }
    }

    /// Finds the filters at a sink that cannot be applied because intents with common flows disagree.
    fn find_unfiltered(&self, node: NodeId, found: &mut BTreeMap<usize, IntentOverlaps>) {
        if self.filtering_intents == 0 {
            return;
        }
        let Some(device) = self.devices.get(&node) else {
            return;
        };
        for (key, slots) in device.sink_entries.entries(usize::MAX).iter() {
            let mut filters = Vec::new();
            for slot in slots {
                if let Some(placed) = self.placed[*slot].as_deref() {
                    // A filter that reports every packet counts as no filter.
                    let filter = placed
                        .filter(*key)
                        .filter(|filter| filter.algorithm != FilterAlgorithm::Noop);
                    filters.push((*slot, filter));
                }
            }
            for (slot, own) in &filters {
                let Some(own) = own else { continue };
                // Prefer an intent without a filter, which is the simpler explanation.
                let by = filters
                    .iter()
                    .filter(|(_, other)| other.as_ref().is_none_or(|other| !is_same_filter(other, own)))
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

    fn overlap(&self, placed: &Placed, slot: usize, found: IntentOverlaps) -> Overlap {
        let mut rules: Vec<EffectiveRule> = Vec::new();
        let mut taken: Vec<ModeConflict> = Vec::new();
        let mut deciders = BTreeSet::new();
        for (RuleKey { deciding_slot, .. }, rule) in found.rules {
            let is_known = rules
                .iter()
                .any(|known| (known.mode, known.bits, known.sample) == (rule.mode, rule.bits, rule.sample));
            if !is_known {
                rules.push(rule);
            }
            if deciding_slot == slot || rule.mode == placed.mode || !deciders.insert(deciding_slot) {
                continue;
            }
            let Some(deciding) = self.placed[deciding_slot].as_deref() else {
                continue;
            };
            let is_sf = rule.mode == Mode::Sf;
            taken.push(ModeConflict {
                by: deciding.intent.name.clone(),
                whole: rule.whole,
                modes: (rule.mode, placed.mode),
                priorities: (deciding.intent.priority, placed.intent.priority),
                loses_latency: is_sf && placed.intent.watch.contains(&Metric::FlowLatency),
                loses_filter: is_sf && placed.intent.reporting.filter.is_some(),
            });
        }
        Overlap {
            rules,
            taken,
            unfiltered: found.unfiltered.into_values().collect(),
        }
    }

    /// Returns the slot of the intent that decides the mode of an entry.
    fn deciding_slot(&self, slots: &BTreeSet<usize>) -> Option<usize> {
        let name = &self.deciding(slots)?.intent.name;
        self.slots.get(name).copied()
    }

    /// Returns whether `key` is one of the intent's own keys, and not an intersection.
    fn has_key(&self, slot: usize, key: &FlowMatch) -> bool {
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

/// Returns whether one filter can implement both. Thresholds may differ: the lower one applies.
fn is_same_filter(one: &Filter, other: &Filter) -> bool {
    (one.algorithm, one.metric, &one.rule) == (other.algorithm, other.metric, &other.rule)
}

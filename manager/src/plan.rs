//! Plans: the changes of all devices, computed before any is made, and the cost of an intent in bytes and reports.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::compile::int_bytes;
use crate::device::{Change, Mode, NodeId, Rule, Rules};
use crate::instruction::{self, Bits};

/// Assumed longest packet of a host whose MTU is unknown, bytes.
pub const USUAL_MTU: u32 = 1500;

wire::named! {
    /// Stages of a plan in execution order. A device waits for others only where a stage requires all of them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Stage, text {
        /// Sinks, sessions, DTA maps and filters are added.
        AddSinks => "add sinks",
        /// Instructions of transit nodes are added.
        AddTransits => "add transit instructions",
        /// Devices that start without forwarding may forward.
        Forward => "let devices forward",
        /// Watchlist entries and source ports are removed.
        RemoveSources => "remove sources",
        /// Watchlist entries and source ports are added.
        AddSources => "add sources",
        /// Instructions are removed once no packet that requests them can be in flight.
        RemoveTransits => "remove transit instructions after the last packet",
        /// Sinks are removed once no packet with INT can be in flight.
        RemoveSinks => "remove sinks after the last packet",
    }
}

impl Stage {
    fn from_change(change: &Change) -> Self {
        let added = matches!(change, Change::Add(_));
        match (change.rule(), added) {
            (Rule::Watch(_) | Rule::Source(_), true) => Self::AddSources,
            (Rule::Watch(_) | Rule::Source(_), false) => Self::RemoveSources,
            (Rule::Instruction(_), true) => Self::AddTransits,
            (Rule::Instruction(_), false) => Self::RemoveTransits,
            (Rule::Forwarding, _) => Self::Forward,
            (_, true) => Self::AddSinks,
            (_, false) => Self::RemoveSinks,
        }
    }
}

/// The changes of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlan {
    /// Node id of the device.
    pub node: NodeId,
    /// Changes in the order of their stages, each with its stage.
    pub changes: Vec<(Stage, Change)>,
    /// Number of entries added.
    pub added: usize,
    /// Number of entries removed.
    pub removed: usize,
}

/// The changes that lead from one set of rules of all devices to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Plans of the devices that have changes.
    pub devices: Vec<DevicePlan>,
}

impl Plan {
    /// Computes the difference between two sets of rules. A device missing in `actual` has no rules, or unknown ones.
    pub fn between(actual: &BTreeMap<NodeId, Arc<Rules>>, desired: &BTreeMap<NodeId, Arc<Rules>>) -> Self {
        let empty = Arc::new(Rules::new());
        let mut nodes: Vec<NodeId> = actual.keys().chain(desired.keys()).copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        let devices = nodes.into_iter().filter_map(|node| {
            let old = actual.get(&node).unwrap_or(&empty);
            let new = desired.get(&node).unwrap_or(&empty);
            if Arc::ptr_eq(old, new) {
                return None;
            }
            let (mut changes, additions) = difference(old, new);
            let removed = changes.len();
            let added = additions.len();
            changes.extend(additions);
            // Removals come before additions, both in rule order. The sort is stable, so it only has to order the stages.
            changes.sort_by_key(|(stage, _)| *stage);
            (!changes.is_empty()).then_some(DevicePlan {
                node,
                changes,
                added,
                removed,
            })
        });
        Self {
            devices: devices.collect(),
        }
    }

    /// Returns the plan that reverts this one.
    #[must_use]
    pub fn undo(&self) -> Self {
        let devices = self.devices.iter().map(|device| {
            let mut changes: Vec<_> = device
                .changes
                .iter()
                .map(|(_, change)| match change {
                    Change::Add(rule) => staged(Change::Remove(rule.clone())),
                    Change::Remove(rule) => staged(Change::Add(rule.clone())),
                })
                .collect();
            changes.sort();
            DevicePlan {
                node: device.node,
                changes,
                added: device.removed,
                removed: device.added,
            }
        });
        Self {
            devices: devices.collect(),
        }
    }

    /// Returns whether the plan changes nothing.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Counts the changes of each stage that has any.
    pub fn summary(&self) -> BTreeMap<Stage, StageCounts> {
        let mut stages: BTreeMap<Stage, StageCounts> = BTreeMap::new();
        for device in &self.devices {
            let mut last = None;
            for (stage, change) in &device.changes {
                let counts = stages.entry(*stage).or_default();
                counts.devices += usize::from(last.replace(*stage) != Some(*stage));
                match change {
                    Change::Add(_) => counts.added += 1,
                    Change::Remove(_) => counts.removed += 1,
                }
            }
        }
        stages
    }
}

/// The numbers of devices touched, entries added and entries removed in a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Devices with changes.
    pub devices: usize,
    /// Entries added.
    pub added: usize,
    /// Entries removed.
    pub removed: usize,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changes");
        }
        let lines = self.summary().into_iter().map(|(stage, counts)| {
            let StageCounts {
                devices,
                added,
                removed,
            } = counts;
            let devices = format!("{devices} device{}", if devices == 1 { "" } else { "s" });
            let entries = if added == 1 { "entry" } else { "entries" };
            format!(
                "{}: {devices}, {added} {entries} added, {removed} removed",
                stage.text()
            )
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// Changes with their stages.
type Staged = Vec<(Stage, Change)>;

fn staged(change: Change) -> (Stage, Change) {
    (Stage::from_change(&change), change)
}

/// Returns the removals and the additions that lead from `old` to `new`, each in rule order. Merges the two sorted sets.
fn difference(old: &Rules, new: &Rules) -> (Staged, Staged) {
    let mut removed = Vec::new();
    let mut added = Vec::new();
    let mut olds = old.iter().peekable();
    let mut news = new.iter().peekable();
    loop {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return (removed, added),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.cmp(new),
        };
        let old = olds.next_if(|_| order.is_le());
        let new = news.next_if(|_| order.is_ge());
        if order.is_ne() {
            removed.extend(old.cloned().map(Change::Remove).map(staged));
            added.extend(new.cloned().map(Change::Add).map(staged));
        }
    }
}

/// The cost of an intent: bytes in packets, goodput and reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Bytes of INT in a packet on the last link, for paths of 1, 2, … links up to the longest.
    pub bytes: Vec<u32>,
    /// Share of the last link's capacity that remains for packets of full length on the longest path, 0 to 1.
    pub goodput: f64,
    /// Rate of reports per second, and their bandwidth in bit/s; `None` if the collector has not seen these flows.
    pub reports: Option<(f64, f64)>,
}

/// Computes the cost of measuring on paths of up to `links` links, for hosts that send packets of up to `packet` bytes. `rate`
/// is the packet rate of the flows per second, if the collector has seen them.
pub fn cost(mode: Mode, bits: Bits, sample: u32, links: u32, packet: Option<u32>, rate: Option<f64>) -> Cost {
    /// Headers of a report: Ethernet, IPv4, UDP, Telemetry Report 2.0, and the truncated packet.
    const REPORT: u32 = 14 + 20 + 8 + 16 + 60;
    let packet = f64::from(packet.unwrap_or(USUAL_MTU));
    let bytes: Vec<u32> = (1..=links).map(|links| int_bytes(mode, bits, links)).collect();
    let longest = f64::from(bytes.last().copied().unwrap_or(0));
    let nodes = links + 1;
    let record = instruction::record_bytes(bits);
    let (reports, size) = match mode {
        Mode::Md => (1, REPORT + record * nodes),
        Mode::Sf => (1, REPORT + record),
        Mode::Mx | Mode::Postcard => (nodes, REPORT + record),
    };
    let reports = rate.map(|rate| {
        let each = rate / f64::from(sample.max(1)) * f64::from(reports);
        (each, each * f64::from(size) * 8.0)
    });
    Cost {
        bytes,
        goodput: packet / (packet + longest),
        reports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_its_stages_in_order_and_can_be_taken_back() {
        let state =
            |rules: &[Rule]| BTreeMap::from([(1, Arc::new(rules.iter().cloned().collect::<Rules>()))]);
        let old = state(&[Rule::Source(1), Rule::Instruction(3)]);
        let new = state(&[Rule::Sink(1), Rule::Instruction(2), Rule::Source(2)]);
        let plan = Plan::between(&old, &new);
        let changes = vec![
            (Stage::AddSinks, Change::Add(Rule::Sink(1))),
            (Stage::AddTransits, Change::Add(Rule::Instruction(2))),
            (Stage::RemoveSources, Change::Remove(Rule::Source(1))),
            (Stage::AddSources, Change::Add(Rule::Source(2))),
            (Stage::RemoveTransits, Change::Remove(Rule::Instruction(3))),
        ];
        assert_eq!(
            plan.devices,
            [DevicePlan {
                node: 1,
                changes,
                added: 3,
                removed: 2
            }]
        );
        assert_eq!(plan.undo(), Plan::between(&new, &old));
        assert!(
            plan.to_string()
                .starts_with("add sinks: 1 device, 1 entry added, 0 removed\n")
        );
        assert_eq!(Plan::between(&new, &new).to_string(), "nothing changes");
    }

    #[test]
    fn costs_grow_with_the_path() {
        let md = cost(Mode::Md, 0xa000, 10, 3, None, Some(1000.0));
        let expected = Cost {
            bytes: vec![24, 32, 40],
            goodput: 1500.0 / 1540.0,
            reports: Some((100.0, 120_000.0)),
        };
        assert_eq!(md, expected);
        let postcard = cost(Mode::Postcard, 0xa000, 1, 3, None, None);
        assert_eq!(
            postcard,
            Cost {
                bytes: vec![0, 0, 0],
                goodput: 1.0,
                reports: None
            }
        );
    }
}

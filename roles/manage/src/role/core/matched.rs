//! Counts, by intent, the packets that matched at devices. The verifier compares them with the reports that arrive.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use manager::{
    compile::{Overlap, Overlaps},
    device::{NodeId, Rule},
    flows::FlowMatch,
    verify::SourceCounters,
};

use super::{super::clock::Now, Core};

/// Maximum number of intents for which matched packets are compared.
const MAX_INTENTS: usize = 1_000;
/// Maximum number of entries per device.
const MAX_ENTRIES: usize = 65_536;

/// Matched packets by intent and device.
#[derive(Debug, Default)]
pub(super) struct MatchCounters {
    /// The last reported number of packets, by device and entry.
    reported: BTreeMap<NodeId, HashMap<FlowMatch, u64>>,
    /// The intents whose packets an entry of a device counts (a cache).
    served: HashMap<(NodeId, FlowMatch), Arc<[String]>>,
    /// Devices with too many entries; this has been recorded in the history.
    cut: BTreeSet<NodeId>,
    /// The overlaps of intents, computed on demand.
    overlaps: OnceCell<Overlaps>,
    /// Matched packets since the first message, by intent and device.
    packets: BTreeMap<String, BTreeMap<NodeId, u64>>,
}

impl MatchCounters {
    /// Clears the caches, because intents or the network have changed.
    pub(super) fn renew(&mut self) {
        self.served.clear();
        self.overlaps.take();
    }

    /// Removes the packets of an intent.
    pub(super) fn forget(&mut self, name: &str) {
        self.packets.remove(name);
        self.renew();
    }

    /// Removes the counts of a device, because another device may count in its place.
    pub(super) fn forget_device(&mut self, node: NodeId) {
        self.reported.remove(&node);
        self.packets
            .values_mut()
            .for_each(|packets| _ = packets.remove(&node));
        self.renew();
    }

    /// Adds the packets that a device reports. `served` returns the intents of an entry.
    fn add(
        &mut self,
        node: NodeId,
        reported: &[(FlowMatch, u64)],
        served: impl Fn(&FlowMatch) -> Vec<String>,
    ) {
        let is_first = !self.reported.contains_key(&node);
        let before = self.reported.entry(node).or_default();
        let now: HashMap<FlowMatch, u64> = reported.iter().copied().collect();
        let before = std::mem::replace(before, now);
        for (key, packets) in reported {
            // Entries without packets are not reported, so a new entry started at 0, except in the first message.
            let start = if is_first { *packets } else { 0 };
            // A smaller number means that the entry was counted anew.
            let last = before.get(key).copied().unwrap_or(start);
            let more = if last <= *packets {
                packets - last
            } else {
                *packets
            };
            let names = self
                .served
                .entry((node, *key))
                .or_insert_with(|| served(key).into());
            for name in names.iter() {
                *self
                    .packets
                    .entry(name.clone())
                    .or_default()
                    .entry(node)
                    .or_default() += more;
            }
        }
    }
}

impl Core {
    /// Processes a device's count of measured packets by match entry.
    pub(super) fn add_matched(&mut self, node: NodeId, packets: &[(FlowMatch, u64)], now: Now) {
        if self.intents.len() > MAX_INTENTS || packets.len() > MAX_ENTRIES {
            if self.matches.cut.insert(node) {
                let device = self.manager.inventory().name(node);
                let entries = packets.len();
                let text = format!(
                    "packets that match are not compared with reports, so that silence of an intent is not found: {} intents (at most {MAX_INTENTS}), {entries} entries of {device} (at most {MAX_ENTRIES}); use fewer intents with wider prefixes",
                    self.intents.len()
                );
                tracing::warn!(
                    device,
                    entries,
                    "packets that match are not compared with reports"
                );
                self.note(now, "manager", "not_compared", &device, &text);
            }
            return;
        }
        self.matches.cut.remove(&node);
        let compiler = self.manager.compiler();
        // Packets that an overlapping intent measures in its own mode count for that intent.
        self.matches.add(node, packets, |key| {
            let served = compiler.measured(node, key).into_iter();
            served.map(str::to_owned).collect()
        });
    }

    /// Returns an intent's overlap with others, or `None` if it is not compiled or there are too many intents.
    pub(super) fn overlap(&self, name: &str) -> Option<&Overlap> {
        self.matches
            .overlaps
            .get_or_init(|| self.manager.compiler().overlaps())
            .get(name)
    }

    /// Returns the devices that measure packets of an intent, with their packets and latest report. Empty if not every packet
    /// is reported to the collector in this process.
    pub(super) fn sources(
        &self,
        name: &str,
        reported: &BTreeMap<NodeId, SourceCounters>,
    ) -> BTreeMap<NodeId, SourceCounters> {
        let packets = self.matches.packets.get(name);
        let (Some(packets), Some(managed)) = (packets, self.intents.get(name)) else {
            return BTreeMap::new();
        };
        if managed.intent.reporting.filter.is_some() || !(self.is_local || self.all_report_here()) {
            return BTreeMap::new();
        }
        let sources = packets.iter().map(|(node, packets)| {
            let counters = SourceCounters {
                packets: *packets,
                sample: self.sample_of(managed),
                last_report: reported.get(node).and_then(|source| source.last_report),
            };
            (*node, counters)
        });
        sources.collect()
    }

    /// Returns whether all reporting devices send to the collector in this process.
    fn all_report_here(&self) -> bool {
        let desired = self.manager.compiler().desired().iter();
        let mut all = desired
            .filter(|(_, rules)| rules.iter().any(|rule| matches!(rule, Rule::Session(_))))
            .map(|(node, _)| *node)
            .peekable();
        all.peek().is_some() && all.all(|node| self.reports_here(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_for_the_intents_of_their_entry_also_when_a_device_restarts() {
        let key = |port: u16| FlowMatch {
            dport: (port, port),
            ..FlowMatch::default()
        };
        let served = |key: &FlowMatch| match key.dport.0 {
            80 => vec!["a".to_owned(), "b".to_owned()],
            _ => vec!["b".to_owned()],
        };
        let mut matching = MatchCounters::default();
        // What was counted before the manager began is no evidence.
        matching.add(7, &[(key(80), 100)], served);
        matching.add(7, &[(key(80), 130), (key(81), 5)], served);
        // The device restarted.
        matching.add(7, &[(key(80), 3), (key(81), 6)], served);
        matching.add(8, &[], served);
        matching.add(8, &[(key(81), 9)], served);
        let of = |name: &str| matching.packets[name].clone().into_iter().collect::<Vec<_>>();
        assert_eq!((of("a"), of("b")), (vec![(7, 33)], vec![(7, 39), (8, 9)]));
        matching.forget("a");
        assert!(!matching.packets.contains_key("a"));
    }
}

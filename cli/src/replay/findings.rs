//! Collects the results that `hopwise replay` prints: the latest state of each flow, extremes per node and queue, drops and
//! sequence anomalies. All tables are bounded; what exceeds a bound is only counted. With `--store`, results also go to a
//! store.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use collector::event::SequenceEvent;
use collector::{Collector, Config, DistinctProfiles, Drop, Event, FlowRow, Location, Loss, Output, Rollup};
use detect::Metric;
use wire::FlowKey;

use crate::store_writer::StoreWriter;
use collect_role::replay::ReplayOutput;
use collect_role::settings::agreed_drop_reasons;

/// Maximum number of flows with their state.
const MAX_FLOWS: usize = 2_000_000;
/// Maximum number of further flows, of which only the id is stored.
const MAX_EXCESS_IDS: usize = 16_000_000;
/// Maximum number of nodes that are counted.
const MAX_NODES: usize = 1_000_000;
/// Maximum number of series of values: metrics by node and queue or interface.
const MAX_SERIES: usize = 200_000;
/// Maximum number of places of drops: nodes and reasons.
const MAX_DROP_PLACES: usize = 100_000;
/// Maximum number of listed sequence anomalies.
const MAX_ANOMALIES: usize = 100_000;

/// Results of a replay, as the collector outputs them.
#[derive(Debug)]
pub(super) struct Findings {
    /// Flows with their last state.
    pub(super) flows: HashMap<FlowKey, Flow>,
    /// Limit on `flows`: [`MAX_FLOWS`], except in tests.
    max_flows: usize,
    /// Ids of flows beyond `max_flows`.
    excess_ids: HashSet<u64>,
    /// Values per metric, node and queue or interface.
    extremes: BTreeMap<(Metric, Location), Extremes>,
    /// Limits on `extremes` and `drops`: [`MAX_SERIES`] and [`MAX_DROP_PLACES`], except in tests.
    max_series: usize,
    max_drop_places: usize,
    /// Number of values of series beyond `max_series`, which are not listed.
    pub(super) values_left_out: u64,
    /// Drop reports per node and reason.
    drops: BTreeMap<DropPlace, u64>,
    /// Number of drop reports of places beyond `max_drop_places`, which are not listed.
    pub(super) drops_left_out: u64,
    /// Names of drop reason codes on which all profiles agree: a drop does not name the profile of its reporter.
    reasons: BTreeMap<u8, String>,
    /// Anomalies of sequence numbers, if they were requested.
    pub(super) anomalies: Option<Vec<SequenceEvent>>,
    /// Number of anomalies beyond [`MAX_ANOMALIES`], which are not listed.
    pub(super) anomalies_omitted: u64,
    /// Units of queue occupancy, by profile number.
    units: Vec<String>,
    /// Number of the profile that decoded each node's values; the key is the node id, `u32::MAX` if unavailable.
    profile_by_node: BTreeMap<u32, u8>,
}

/// The node and the reason of drops.
pub(super) type DropPlace = (Option<u32>, Option<u8>);

/// Latest state of a flow.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Flow {
    /// Latest row; its `reports` and `first_seen` include the time before the flow last left the flow table.
    pub(super) row: FlowRow,
    /// Reports before the flow last left the flow table.
    earlier_reports: u64,
    /// Node ids of the path, `u32::MAX` where unavailable.
    pub(super) path: Box<[u32]>,
}

/// Extremes and sum of a metric over all intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extremes {
    /// Number of values over all intervals.
    pub(super) count: u64,
    /// The smallest value, in the metric's unit.
    pub(super) min: u64,
    /// The largest value, in the metric's unit.
    pub(super) max: u64,
    /// Sum of the values.
    pub(super) sum: u64,
}

/// Flows and reports of a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PathUsage<'f> {
    pub(super) nodes: &'f [u32],
    pub(super) flows: u64,
    pub(super) reports: u64,
}

impl Extremes {
    /// Returns the mean, rounded down.
    pub(super) fn mean(&self) -> u64 {
        self.sum / self.count.max(1)
    }
}

impl Findings {
    /// Creates empty findings; `anomalies` enables the list of sequence anomalies.
    pub(super) fn new(config: &Config, anomalies: bool) -> Self {
        let profiles = [&config.default_profile]
            .into_iter()
            .chain(config.profiles.iter().map(|(_, p)| p));
        let units = config
            .distinct_profiles()
            .iter()
            .flat_map(DistinctProfiles::iter)
            .map(|profile| profile.queue_unit.clone())
            .collect();
        Self {
            flows: HashMap::new(),
            max_flows: MAX_FLOWS,
            excess_ids: HashSet::new(),
            extremes: BTreeMap::new(),
            max_series: MAX_SERIES,
            max_drop_places: MAX_DROP_PLACES,
            values_left_out: 0,
            drops: BTreeMap::new(),
            drops_left_out: 0,
            reasons: agreed_drop_reasons(profiles),
            anomalies: anomalies.then(Vec::new),
            anomalies_omitted: 0,
            units,
            profile_by_node: BTreeMap::new(),
        }
    }

    /// Records which profile decodes the values of each node that reports queues. The collector may evict a
    /// silent node, so this is called at intervals.
    pub(super) fn note_profiles(&mut self, collector: &Collector) {
        for queue in collector.queues() {
            // A queue has one series at least, so more nodes than series are not listed.
            if self.profile_by_node.len() < self.max_series || self.profile_by_node.contains_key(&queue.node)
            {
                self.profile_by_node.insert(queue.node, queue.profile);
            }
        }
    }

    /// Returns the unit of the node's queue occupancies, or an empty string if it is unknown.
    pub(super) fn queue_unit(&self, node: Option<u32>) -> &str {
        let profile = self.profile_by_node.get(&node.unwrap_or(u32::MAX)).copied();
        profile
            .and_then(|profile| self.units.get(usize::from(profile)))
            .map_or("", String::as_str)
    }

    /// Returns at most `limit` flows, those with the most reports first; ties are in the order of their keys.
    pub(super) fn busiest(&self, limit: usize) -> Vec<&Flow> {
        let mut flows: Vec<&Flow> = self.flows.values().collect();
        flows.sort_by(|a, b| {
            b.row
                .reports
                .cmp(&a.row.reports)
                .then(a.row.flow.cmp(&b.row.flow))
        });
        flows.truncate(limit);
        flows
    }

    /// Returns the use of each path, the one with the most reports first.
    pub(super) fn paths(&self) -> Vec<PathUsage<'_>> {
        let mut paths: BTreeMap<&[u32], PathUsage<'_>> = BTreeMap::new();
        for flow in self.flows.values() {
            let usage = paths.entry(&flow.path).or_default();
            usage.nodes = &flow.path;
            usage.flows += 1;
            usage.reports += flow.row.reports;
        }
        let mut paths: Vec<_> = paths.into_values().collect();
        paths.sort_by_key(|usage| std::cmp::Reverse(usage.reports));
        paths
    }

    /// Returns the number of flows; a lower bound from [`MAX_FLOWS`] + [`MAX_EXCESS_IDS`] on.
    pub(super) fn flows_total(&self) -> u64 {
        (self.flows.len() + self.excess_ids.len()) as u64
    }

    /// Returns how many nodes are on paths or have values (from [`MAX_NODES`] on, a lower bound), and at most `limit` of them,
    /// sorted: those with the most values and reports.
    pub(super) fn nodes(&self, limit: usize) -> (usize, Vec<Option<u32>>) {
        let mut nodes: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for ((_, Location { node, .. }), extremes) in &self.extremes {
            *nodes.entry(*node).or_default() += extremes.count;
        }
        for flow in self.flows.values() {
            for node in &flow.path {
                let has_room = nodes.len() < MAX_NODES;
                match nodes.entry(node_id(*node)) {
                    Entry::Vacant(_) if !has_room => {}
                    entry => *entry.or_default() += flow.row.reports,
                }
            }
        }
        let listed = most(&nodes, limit);
        (nodes.len(), listed.into_iter().map(|(node, _)| node).collect())
    }

    /// Returns the number of places of drops, and at most `limit` of them with their drop reports, sorted: those with the most.
    pub(super) fn drops(&self, limit: usize) -> (usize, Vec<(DropPlace, u64)>) {
        (self.drops.len(), most(&self.drops, limit))
    }

    /// Returns the extremes of one metric of one node, by queue or interface.
    pub(super) fn extremes_of(
        &self,
        metric: Metric,
        node: Option<u32>,
    ) -> impl Iterator<Item = (Location, &Extremes)> {
        self.extremes
            .range((metric, Location::of_node(node))..)
            .take_while(move |((of, location), _)| (*of, location.node) == (metric, node))
            .map(|((_, location), extremes)| (*location, extremes))
    }

    /// Returns the name of a drop reason, or its number if there is none or the profiles do not agree on it.
    pub(super) fn reason(&self, reason: Option<u8>) -> String {
        let named = reason.and_then(|code| self.reasons.get(&code).cloned());
        named.unwrap_or_else(|| reason.map_or("unknown".to_string(), |code| code.to_string()))
    }
}

/// Returns at most `limit` entries, those with the highest counts, in the order of their keys.
fn most<K: Copy + Ord>(counts: &BTreeMap<K, u64>, limit: usize) -> Vec<(K, u64)> {
    let mut entries: Vec<(K, u64)> = counts.iter().map(|(key, count)| (*key, *count)).collect();
    if entries.len() > limit {
        entries.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        entries.truncate(limit);
        entries.sort_by_key(|(key, _)| *key);
    }
    entries
}

/// Returns the node id, or `None` for the value that means "unavailable".
pub(super) fn node_id(node: u32) -> Option<u32> {
    (node != u32::MAX).then_some(node)
}

impl Output for Findings {
    fn rollup(&mut self, rollup: &Rollup) {
        // One-second rollups cover every value once; one-minute rollups would count them again.
        if rollup.interval != 1 || rollup.flow.is_some() {
            return;
        }
        let location = Location {
            node: rollup.node,
            interface: rollup.interface,
            queue: rollup.queue,
        };
        let none = Extremes {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        };
        let has_room = self.extremes.len() < self.max_series;
        let extremes = match self.extremes.entry((rollup.metric, location)) {
            Entry::Vacant(_) if !has_room => {
                self.values_left_out += rollup.count;
                return;
            }
            entry => entry.or_insert(none),
        };
        extremes.count += rollup.count;
        extremes.min = extremes.min.min(rollup.min);
        extremes.max = extremes.max.max(rollup.max);
        extremes.sum = extremes.sum.saturating_add(rollup.sum);
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        let has_room = self.flows.len() < self.max_flows;
        match self.flows.get_mut(&row.flow) {
            Some(flow) => flow.update(row, path),
            None if has_room => {
                let flow = Flow {
                    row: *row,
                    earlier_reports: 0,
                    path: path.into(),
                };
                self.flows.insert(row.flow, flow);
            }
            None if self.excess_ids.len() < MAX_EXCESS_IDS => {
                self.excess_ids.insert(row.flow.id());
            }
            None => {}
        }
    }

    fn flow_removed(&mut self, flow: &FlowKey) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.earlier_reports = flow.row.reports;
        }
    }

    fn drop_report(&mut self, drop: &Drop) {
        let has_room = self.drops.len() < self.max_drop_places;
        match self.drops.entry((drop.node, drop.reason)) {
            Entry::Vacant(_) if !has_room => self.drops_left_out += 1,
            entry => *entry.or_default() += 1,
        }
    }

    fn sequence(&mut self, note: &SequenceEvent) {
        match &mut self.anomalies {
            Some(anomalies) if anomalies.len() < MAX_ANOMALIES => anomalies.push(*note),
            Some(_) => self.anomalies_omitted += 1,
            None => {}
        }
    }
}

impl Flow {
    fn update(&mut self, row: &FlowRow, path: &[u32]) {
        let first_seen = self.row.first_seen.min(row.first_seen);
        self.row = FlowRow {
            first_seen,
            reports: self.earlier_reports + row.reports,
            ..*row
        };
        if *self.path != *path {
            self.path = path.into();
        }
    }
}

/// Collector output of a replay: to the findings and, with `--store`, to a store.
#[derive(Debug)]
pub(super) struct ReplaySender {
    pub(super) findings: Findings,
    pub(super) store_writer: Option<StoreWriter>,
}

impl ReplaySender {
    fn store(&mut self, write: impl FnOnce(&mut StoreWriter)) {
        if let Some(store_writer) = &mut self.store_writer {
            write(store_writer);
        }
    }
}

impl Output for ReplaySender {
    fn event(&mut self, event: &Event, path: &[u32]) {
        self.store(|writer| writer.event(event, path));
    }

    fn rollup(&mut self, rollup: &Rollup) {
        self.findings.rollup(rollup);
        self.store(|writer| writer.rollup(rollup));
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        self.findings.flow(row, path);
        self.store(|writer| writer.flow(row, path));
    }

    fn flow_removed(&mut self, flow: &FlowKey) {
        self.findings.flow_removed(flow);
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.findings.drop_report(drop);
        self.store(|writer| writer.drop_report(drop));
    }

    fn loss(&mut self, loss: &Loss) {
        self.store(|writer| writer.loss(loss));
    }

    fn sequence(&mut self, note: &SequenceEvent) {
        self.findings.sequence(note);
    }
}

impl ReplayOutput for ReplaySender {
    fn second(&mut self, collector: &Collector) {
        self.findings.note_profiles(collector);
    }

    fn ticked(&mut self, collector: &Collector, now: u64) {
        if let Some(store_writer) = &mut self.store_writer {
            store_writer.learn_links(collector, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use collector::event::Basis;

    use super::*;

    fn row(first_seen: u64, reports: u64) -> FlowRow {
        let flow = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 6);
        let last_seen = first_seen + reports;
        FlowRow {
            flow,
            flow_latency: Some(7),
            basis: Basis::HopSum,
            first_seen,
            last_seen,
            reports,
        }
    }

    /// Two occupancies of a queue in `interval` seconds.
    fn values(interval: u32, min: u64, max: u64) -> Rollup {
        Rollup {
            ts: 0,
            interval,
            metric: Metric::QueueOccupancy,
            flow: None,
            node: Some(102),
            interface: None,
            queue: Some(0),
            count: 2,
            min,
            max,
            sum: min + max,
            p50: None,
            p99: None,
        }
    }

    #[test]
    fn a_flow_that_expired_and_came_back_keeps_its_reports() {
        let mut findings = Findings::new(&Config::default(), false);
        // The clock is set back before the third row, so the collector lowers `first_seen`.
        for (first_seen, reports, path) in [(10, 5, [1, 2]), (10, 7, [1, 2]), (8, 8, [1, 2])] {
            findings.flow(&row(first_seen, reports), &path);
        }
        findings.flow_removed(&row(8, 8).flow);
        for (first_seen, reports) in [(500, 3), (500, 4)] {
            findings.flow(&row(first_seen, reports), &[1, 3]);
        }
        let expected = FlowRow {
            first_seen: 8,
            last_seen: 504,
            reports: 12,
            ..row(500, 4)
        };
        let [flow] = findings.busiest(10)[..] else {
            panic!("one flow")
        };
        assert_eq!((flow.row, &*flow.path), (expected, &[1, 3][..]));
        let usage = PathUsage {
            nodes: &[1, 3],
            flows: 1,
            reports: 12,
        };
        assert_eq!(findings.paths(), [usage]);
    }

    #[test]
    fn flows_that_do_not_fit_are_counted_once() {
        let mut findings = Findings {
            max_flows: 1,
            ..Findings::new(&Config::default(), false)
        };
        for last in [1, 2, 3, 2, 3, 1] {
            let key = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, last], Some((1, 2)), 17);
            findings.flow(
                &FlowRow {
                    flow: key,
                    ..row(10, 1)
                },
                &[1],
            );
        }
        assert_eq!((findings.flows.len(), findings.flows_total()), (1, 3));
    }

    #[test]
    fn places_that_do_not_fit_are_counted_and_those_with_the_most_are_listed() {
        let mut findings = Findings {
            max_series: 3,
            max_drop_places: 3,
            ..Findings::new(&Config::default(), false)
        };
        for (node, count) in [(4, 10), (2, 30), (3, 20), (1, 40), (2, 30)] {
            findings.rollup(&Rollup {
                node: Some(node),
                count,
                ..values(1, 1, 1)
            });
            for _ in 0..count {
                findings.drop_report(&Drop {
                    ts: 0,
                    id: 0,
                    flow: None,
                    tunnel: None,
                    node: Some(node),
                    ingress_if: None,
                    egress_if: None,
                    queue: None,
                    reason: Some(29),
                });
            }
        }
        assert_eq!((findings.values_left_out, findings.drops_left_out), (40, 40));
        assert_eq!(findings.nodes(2), (3, vec![Some(2), Some(3)]));
        assert_eq!(findings.nodes(9), (3, vec![Some(2), Some(3), Some(4)]));
        let place = |node| (Some(node), Some(29));
        assert_eq!(findings.drops(2), (3, vec![(place(2), 60), (place(3), 20)]));
    }

    #[test]
    fn extremes_are_over_all_seconds_and_no_minute() {
        let mut findings = Findings::new(&Config::default(), false);
        for rollup in [values(1, 3, 9), values(1, 1, 200), values(60, 0, 999)] {
            findings.rollup(&rollup);
        }
        let found: Vec<_> = findings.extremes_of(Metric::QueueOccupancy, Some(102)).collect();
        assert_eq!(
            found,
            [(
                Location {
                    node: Some(102),
                    interface: None,
                    queue: Some(0)
                },
                &Extremes {
                    count: 4,
                    min: 1,
                    max: 200,
                    sum: 213
                }
            )]
        );
        assert_eq!(findings.extremes_of(Metric::QueueOccupancy, Some(101)).count(), 0);
    }
}

//! Collects the results that `hopwise replay` prints: the latest state of each flow, extremes per node and queue, drops and
//! sequence anomalies. All tables are bounded; what exceeds a bound is only counted. With `--store`, results also go to a
//! store.

use std::collections::{BTreeMap, HashMap, HashSet};

use collector::event::SequenceEvent;
use collector::{Collector, Config, DistinctProfiles, Drop, Event, FlowRow, Loss, Output, Profile, Rollup};
use detect::Metric;
use wire::FlowKey;

use crate::store_writer::StoreWriter;
use collect_role::replay::ReplayOutput;

/// Maximum number of flows with their state.
const MAX_FLOWS: usize = 2_000_000;
/// Maximum number of further flows, of which only the id is stored.
const MAX_EXCESS_IDS: usize = 16_000_000;
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
    pub(super) extremes: BTreeMap<(Metric, Option<u32>, Option<u32>), Extremes>,
    /// Drop reports per node and reason.
    pub(super) drops: BTreeMap<(Option<u32>, Option<u8>), u64>,
    /// Names of drop reason codes, from all profiles.
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

/// Latest state of a flow.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Flow {
    /// Latest row; its `reports` and `first_seen` include the time before the flow last expired from the flow table.
    pub(super) row: FlowRow,
    /// Reports before the flow last expired.
    expired_reports: u64,
    /// Value of `first_seen` in the current life of the flow.
    life_start: u64,
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
        let reasons = profiles.flat_map(|Profile { drop_reasons, .. }| drop_reasons.clone());
        Self {
            flows: HashMap::new(),
            max_flows: MAX_FLOWS,
            excess_ids: HashSet::new(),
            extremes: BTreeMap::new(),
            drops: BTreeMap::new(),
            reasons: reasons.collect(),
            anomalies: anomalies.then(Vec::new),
            anomalies_omitted: 0,
            units,
            profile_by_node: BTreeMap::new(),
        }
    }

    /// Records which profile decodes the values of each node that reports queues. The collector may evict a
    /// silent node, so this is called at intervals.
    pub(super) fn note_profiles(&mut self, collector: &Collector) {
        self.profile_by_node
            .extend(collector.queues().map(|queue| (queue.node, queue.profile)));
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

    /// Returns the nodes on paths or with values, sorted.
    pub(super) fn nodes(&self) -> Vec<Option<u32>> {
        let path_nodes = self
            .flows
            .values()
            .flat_map(|flow| flow.path.iter().map(|node| node_id(*node)));
        let mut nodes: Vec<_> = self
            .extremes
            .keys()
            .map(|(_, node, _)| *node)
            .chain(path_nodes)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns (queue or interface, extremes) of one metric of one node.
    pub(super) fn extremes_of(
        &self,
        metric: Metric,
        node: Option<u32>,
    ) -> impl Iterator<Item = (Option<u32>, &Extremes)> {
        let range = (metric, node, None)..=(metric, node, Some(u32::MAX));
        self.extremes
            .range(range)
            .map(|((_, _, part), extremes)| (*part, extremes))
    }

    /// Returns the name of a drop reason in the profile, or its number.
    pub(super) fn reason(&self, reason: Option<u8>) -> String {
        let reasons = reason.and_then(|code| self.reasons.get(&code).cloned());
        reasons.unwrap_or_else(|| reason.map_or("unknown".to_string(), |code| code.to_string()))
    }
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
        let part = rollup.queue.map(u32::from).or(rollup.interface);
        let empty = Extremes {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        };
        let extremes = self
            .extremes
            .entry((rollup.metric, rollup.node, part))
            .or_insert(empty);
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
                    expired_reports: 0,
                    life_start: row.first_seen,
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

    fn drop_report(&mut self, drop: &Drop) {
        *self.drops.entry((drop.node, drop.reason)).or_default() += 1;
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
        // A new `first_seen`: the flow had expired, and its counters restarted.
        if row.first_seen != self.life_start {
            (self.expired_reports, self.life_start) = (self.row.reports, row.first_seen);
        }
        let first_seen = self.row.first_seen.min(row.first_seen);
        self.row = FlowRow {
            first_seen,
            reports: self.expired_reports + row.reports,
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

    #[test]
    fn a_flow_that_expired_and_came_back_keeps_its_reports() {
        let mut findings = Findings::new(&Config::default(), false);
        for (first_seen, reports, path) in [
            (10, 5, [1, 2]),
            (10, 8, [1, 2]),
            (500, 3, [1, 3]),
            (500, 4, [1, 3]),
        ] {
            findings.flow(&row(first_seen, reports), &path);
        }
        let expected = FlowRow {
            first_seen: 10,
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
    fn extremes_are_over_all_seconds_and_no_minute() {
        let mut findings = Findings::new(&Config::default(), false);
        let second = |interval, min, max| Rollup {
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
        };
        for rollup in [second(1, 3, 9), second(1, 1, 200), second(60, 0, 999)] {
            findings.rollup(&rollup);
        }
        let found: Vec<_> = findings.extremes_of(Metric::QueueOccupancy, Some(102)).collect();
        assert_eq!(
            found,
            [(
                Some(0),
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

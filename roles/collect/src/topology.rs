//! Merges the nodes, links and paths that the workers derived from reports into one view of the network. A worker's bounded
//! tables are read in slices, so that reading never holds it up for long.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, HashMap, hash_map::Entry},
};

use collector::{Collector, LinkUse, NetworkEntry, NodeUse, SeriesView, event::Nanos, stats::Tables};

use crate::worker::visit_network;
use view::{self, LinkView, PathView};

/// The network, as derived from the flows and reports of all workers.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: BTreeMap<u32, Node>,
    links: BTreeMap<(u32, u32), LinkUse>,
    /// The paths with their node IDs, most flows first.
    paths: Vec<(Box<[u32]>, Path)>,
}

/// A node that is on a path, or has reported a hop latency or a queue occupancy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The larger of two counts: reports of flows that pass the node, and values that it reported.
    pub reports: u64,
    /// Time of the latest report.
    pub last_seen: Nanos,
    /// The node's hop latency, if it reported one.
    pub hop_latency: Option<SeriesView>,
    /// The node's queues with an occupancy.
    pub queues: Vec<SeriesView>,
}

/// Numbers of flows on a path, and of their reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Path {
    flows: u64,
    reports: u64,
}

/// Entries from a range of slots in a worker's tables.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Capacities of the tables of nodes, links and paths.
    max: [usize; 3],
    /// The time at which the slice was read, from which the age of a series counts.
    now: Nanos,
    nodes: Vec<NodeUse>,
    links: Vec<LinkUse>,
    paths: Vec<(Box<[u32]>, Path)>,
    latencies: Vec<SeriesView>,
    queues: Vec<SeriesView>,
}

impl Slice {
    /// Reads the entries of a worker's slots from `first` on. Returns them, and the first slot of the next slice, if any.
    pub fn read(collector: &Collector, first: u32, now: Nanos) -> (Self, Option<u32>) {
        let Tables {
            path_nodes,
            path_links,
            paths,
            ..
        } = collector.tables();
        let max = [path_nodes, path_links, paths]
            .map(|table| usize::try_from(table.capacity).unwrap_or(usize::MAX));
        let mut slice = Self {
            max,
            now,
            ..Self::default()
        };
        let next = visit_network(collector, first, |entry| match entry {
            NetworkEntry::Node(node) => slice.nodes.push(node),
            NetworkEntry::Link(link) => slice.links.push(link),
            NetworkEntry::Path(path) => {
                slice.paths.push((
                    path.nodes.into(),
                    Path {
                        flows: path.flows.into(),
                        reports: path.reports,
                    },
                ));
            }
            NetworkEntry::HopLatency(series) => slice.latencies.push(series),
            NetworkEntry::Queue(series) => slice.queues.push(series),
        });
        (slice, next)
    }
}

/// Merges slices of all workers.
#[derive(Debug, Default)]
pub struct NetworkMerge {
    /// Maximum numbers of nodes, links and paths, equal to one worker's capacities. Further ones are omitted.
    max: [usize; 3],
    workers: Vec<WorkerTables>,
}

/// All entries of one worker. If two slices have the same entry, the later slice's replaces the other. The keys of `latencies`
/// and `queues` are node and part (link or queue); the time is the slice's.
#[derive(Debug, Default)]
struct WorkerTables {
    nodes: BTreeMap<u32, NodeUse>,
    links: BTreeMap<(u32, u32), LinkUse>,
    paths: HashMap<Box<[u32]>, Path>,
    latencies: BTreeMap<(u32, u32), (Nanos, SeriesView)>,
    queues: BTreeMap<(u32, u32), (Nanos, SeriesView)>,
}

impl NetworkMerge {
    /// Adds a slice of a worker, given the worker's index.
    pub fn add(&mut self, worker: usize, slice: Slice) {
        for (most, others) in self.max.iter_mut().zip(slice.max) {
            *most = others.max(*most);
        }
        if self.workers.len() <= worker {
            self.workers.resize_with(worker + 1, WorkerTables::default);
        }
        let known = &mut self.workers[worker];
        known
            .nodes
            .extend(slice.nodes.into_iter().map(|node| (node.node, node)));
        known
            .links
            .extend(slice.links.into_iter().map(|link| ((link.from, link.to), link)));
        known.paths.extend(slice.paths);
        for (series, known) in [
            (slice.latencies, &mut known.latencies),
            (slice.queues, &mut known.queues),
        ] {
            known.extend(
                series
                    .into_iter()
                    .map(|series| ((series.node, series.part), (slice.now, series))),
            );
        }
    }

    /// Returns the merged network, within the limits on nodes, links and paths.
    pub fn topology(self) -> Topology {
        let [max_nodes, max_links, max_paths] = self.max;
        Topology {
            nodes: nodes(&self.workers, max_nodes),
            links: links(&self.workers, max_links),
            paths: paths(self.workers, max_paths),
        }
    }
}

/// Collects all nodes up to `max`. Nodes with a hop latency come first, then nodes on a path, then nodes with a queue.
fn nodes(workers: &[WorkerTables], max: usize) -> BTreeMap<u32, Node> {
    let mut nodes = BTreeMap::new();
    let latencies = workers.iter().flat_map(|known| known.latencies.values());
    for (now, series) in latencies {
        let Some(node) = room_for(&mut nodes, series.node, max) else {
            continue;
        };
        node.last_seen = node.last_seen.max(last_seen(*now, series));
        match &mut node.hop_latency {
            Some(known) => merge(known, series),
            none => *none = Some(*series),
        }
    }
    // Reports of passing flows and reported values stem from the same packets, so take the larger count instead of the sum.
    let mut passed: BTreeMap<u32, u64> = BTreeMap::new();
    for seen in workers.iter().flat_map(|known| known.nodes.values()) {
        let Some(node) = room_for(&mut nodes, seen.node, max) else {
            continue;
        };
        node.last_seen = node.last_seen.max(seen.last_seen);
        *passed.entry(seen.node).or_default() += seen.reports;
    }
    let mut queues: BTreeMap<(u32, u32), SeriesView> = BTreeMap::new();
    for (now, series) in workers.iter().flat_map(|known| known.queues.values()) {
        let Some(node) = room_for(&mut nodes, series.node, max) else {
            continue;
        };
        node.last_seen = node.last_seen.max(last_seen(*now, series));
        insert(&mut queues, series);
    }
    for queue in queues.into_values() {
        nodes.entry(queue.node).or_default().queues.push(queue);
    }
    for (id, node) in &mut nodes {
        let values = node
            .hop_latency
            .map_or(0, |series| series.values + series.implausible);
        node.reports = values.max(passed.get(id).copied().unwrap_or(0));
    }
    nodes
}

fn room_for(nodes: &mut BTreeMap<u32, Node>, id: u32, max: usize) -> Option<&mut Node> {
    if nodes.len() >= max && !nodes.contains_key(&id) {
        return None;
    }
    Some(nodes.entry(id).or_default())
}

/// Returns when a series was last updated: up to one second too early, because its age has whole seconds, never too late.
fn last_seen(now: Nanos, series: &SeriesView) -> Nanos {
    now.saturating_sub((u64::from(series.idle) + 1) * 1_000_000_000)
}

/// Merges the workers' links, at most `max` of them.
fn links(workers: &[WorkerTables], max: usize) -> BTreeMap<(u32, u32), LinkUse> {
    let mut links: BTreeMap<(u32, u32), LinkUse> = BTreeMap::new();
    for (ends, link) in workers.iter().flat_map(|known| &known.links) {
        if let Some(known) = links.get_mut(ends) {
            let flows = known.flows.saturating_add(link.flows);
            let newer = if link.last_seen > known.last_seen {
                *link
            } else {
                *known
            };
            *known = LinkUse { flows, ..newer };
        } else if links.len() < max {
            links.insert(*ends, *link);
        }
    }
    links
}

/// Merges the workers' paths, at most `max` of them.
fn paths(workers: Vec<WorkerTables>, max: usize) -> Vec<(Box<[u32]>, Path)> {
    let mut paths: HashMap<Box<[u32]>, Path> = HashMap::new();
    for (nodes, path) in workers.into_iter().flat_map(|known| known.paths) {
        let room = paths.len() < max;
        match paths.entry(nodes) {
            Entry::Occupied(mut known) => {
                known.get_mut().flows += path.flows;
                known.get_mut().reports += path.reports;
            }
            Entry::Vacant(new) if room => {
                new.insert(path);
            }
            Entry::Vacant(_) => {}
        }
    }
    let mut paths: Vec<_> = paths.into_iter().collect();
    paths.sort_unstable_by(|(a, one), (b, other)| (Reverse(one.flows), a).cmp(&(Reverse(other.flows), b)));
    paths
}

impl Topology {
    /// Returns the nodes by ID.
    pub fn nodes(&self) -> &BTreeMap<u32, Node> {
        &self.nodes
    }

    /// Iterates over the links.
    pub fn links(&self) -> impl Iterator<Item = LinkView> {
        self.links.values().map(|link| LinkView {
            from: link.from,
            to: link.to,
            egress_if: link.egress_if,
            ingress_if: link.ingress_if,
            utilization: link.utilization.map(view::fraction),
            queue_occupancy: link.queue_occupancy,
            hop_latency: link.hop_latency,
            flows: link.flows.into(),
            last_seen: link.last_seen,
        })
    }

    /// Iterates over the paths, most flows first.
    pub fn paths(&self) -> impl Iterator<Item = PathView> {
        self.paths.iter().map(|(nodes, path)| PathView {
            path: view::path(nodes),
            flows: path.flows,
            reports: path.reports,
        })
    }
}

/// Merges the series of several workers by node and part (queue or link). Values are summed. The latest second combines all
/// workers with values in it, and quantiles come from the worker with the most values.
pub fn merged<'s>(lists: impl Iterator<Item = &'s Vec<SeriesView>>) -> BTreeMap<(u32, u32), SeriesView> {
    let mut all: BTreeMap<(u32, u32), SeriesView> = BTreeMap::new();
    lists.flatten().for_each(|series| insert(&mut all, series));
    all
}

fn insert(all: &mut BTreeMap<(u32, u32), SeriesView>, series: &SeriesView) {
    all.entry((series.node, series.part))
        .and_modify(|known| merge(known, series))
        .or_insert(*series);
}

/// Merges the series of another worker into `known`.
fn merge(known: &mut SeriesView, other: &SeriesView) {
    let values = known.values.saturating_add(other.values);
    let implausible = known.implausible.saturating_add(other.implausible);
    // A series with only implausible values has no latest value.
    match (other.values == 0, other.idle).cmp(&(known.values == 0, known.idle)) {
        Ordering::Less => *known = *other,
        Ordering::Equal => {
            let known_last = known.last;
            let other_last = other.last;
            if other_last.count > known_last.count {
                *known = *other;
            }
            if known_last.count > 0 && other_last.count > 0 {
                let last = &mut known.last;
                last.count = known_last.count + other_last.count;
                last.sum = known_last.sum.saturating_add(other_last.sum);
                last.min = known_last.min.min(other_last.min);
                last.max = known_last.max.max(other_last.max);
            }
        }
        Ordering::Greater => {}
    }
    (known.values, known.implausible) = (values, implausible);
}

#[cfg(test)]
mod tests {
    use collector::Summary;
    use testkit::workload::collector::{CASES, Input};

    use super::*;

    fn slice(from: u32, to: u32, flows: u32, last_seen: Nanos) -> Slice {
        let link = LinkUse {
            from,
            to,
            flows,
            last_seen,
            egress_if: Some(last_seen as u32),
            ingress_if: None,
            utilization: None,
            queue_occupancy: None,
            hop_latency: None,
        };
        let reports = u64::from(flows) * 10;
        Slice {
            max: [2, 16, 16],
            nodes: vec![NodeUse {
                node: from,
                flows,
                reports,
                last_seen,
            }],
            links: vec![link],
            paths: vec![(
                [from, to].into(),
                Path {
                    flows: flows.into(),
                    reports,
                },
            )],
            ..Slice::default()
        }
    }

    #[test]
    fn counts_of_two_workers_add_and_the_later_value_wins() {
        let mut merge = NetworkMerge::default();
        // There is room for two nodes. The first worker has the entry of node 1 twice: it is not added up.
        let slices = [
            (0, slice(1, 2, 2, 30)),
            (0, slice(1, 2, 3, 50)),
            (1, slice(1, 2, 4, 40)),
        ]
        .into_iter();
        slices
            .chain([(1, slice(2, u32::MAX, 9, 60)), (1, slice(3, 2, 1, 0))])
            .for_each(|(worker, slice)| merge.add(worker, slice));
        let whole = merge.topology();
        let nodes: Vec<_> = whole
            .nodes()
            .iter()
            .map(|(id, node)| (*id, node.reports, node.last_seen))
            .collect();
        assert_eq!(nodes, [(1, 70, 50), (2, 90, 60)]);
        let links: Vec<_> = whole
            .links()
            .map(|link| (link.from, link.to, link.flows, link.egress_if))
            .collect();
        assert_eq!(
            links,
            [
                (1, 2, 7, Some(50)),
                (2, u32::MAX, 9, Some(60)),
                (3, 2, 1, Some(0))
            ]
        );
        let path = |path, flows, reports| PathView { path, flows, reports };
        let paths = [
            path(vec![Some(2), None], 9, 90),
            path(vec![Some(1), Some(2)], 7, 70),
            path(vec![Some(3), Some(2)], 1, 10),
        ];
        assert_eq!(whole.paths().collect::<Vec<_>>(), paths);
    }

    #[test]
    fn a_node_is_listed_once_whatever_is_known_of_it() {
        let series = |node, part, idle| SeriesView {
            node,
            part,
            interface: None,
            queue: u8::try_from(part).ok(),
            latest: 5,
            values: 100,
            implausible: 0,
            last: Summary::default(),
            idle,
            profile: 0,
        };
        let second = 1_000_000_000;
        // Node 1 is on a path and has a latency and a queue; 4 has a latency only, 5 a queue only, which finds no room.
        let known = Slice {
            max: [3, 16, 16],
            now: 100 * second,
            latencies: vec![series(1, 0, 3), series(4, 0, 10)],
            queues: vec![series(1, 7, 1), series(5, 0, 0)],
            ..slice(1, 2, 3, 7)
        };
        let passed = Slice {
            nodes: slice(2, 3, 30, 9).nodes,
            ..Slice::default()
        };
        let mut merge = NetworkMerge::default();
        merge.add(0, known);
        merge.add(1, passed);
        let node = |reports, last_seen, hop_latency, queues| Node {
            reports,
            last_seen,
            hop_latency,
            queues,
        };
        let expected = [
            (
                1,
                node(100, 98 * second, Some(series(1, 0, 3)), vec![series(1, 7, 1)]),
            ),
            (2, node(300, 9, None, vec![])),
            (4, node(100, 89 * second, Some(series(4, 0, 10)), vec![])),
        ];
        assert_eq!(merge.topology().nodes, BTreeMap::from(expected));
    }

    #[test]
    fn slices_of_a_collector_make_up_its_tables() {
        let case = &CASES[0];
        let mut collector = case.collector();
        let mut feed = case.feed();
        let mut batch = collector::Batch::with_capacity(1 << 16);
        let mut reports = 0;
        while reports < 1_000 {
            reports += feed.burst(Input::Frames, &mut collector, &mut batch);
        }
        let mut next = Some(0);
        let mut merge = NetworkMerge::default();
        while let Some(first) = next {
            let (slice, further) = Slice::read(&collector, first, 0);
            merge.add(0, slice);
            next = further;
        }
        let whole = merge.topology();
        let nodes: Vec<u32> = whole.nodes().keys().copied().collect();
        let mut expected: Vec<u32> = collector.topology_nodes().map(|node| node.node).collect();
        expected.sort_unstable();
        assert!(nodes == expected && !nodes.is_empty());
        assert_eq!(whole.links().count(), collector.topology_links().count());
        assert_eq!(whole.paths().count(), collector.topology_paths().count());
        let queues: usize = whole.nodes().values().map(|node| node.queues.len()).sum();
        assert_eq!(queues, collector.queues().count());
    }

    #[test]
    fn series_of_several_workers_show_the_last_value() {
        let last = |count, min, max, p50| Summary {
            count,
            min,
            max,
            sum: count * max,
            p50: Some(p50),
            p99: Some(max),
        };
        let series = |node, idle, latest, values, last| SeriesView {
            node,
            part: 0,
            interface: None,
            queue: None,
            latest,
            values,
            implausible: 0,
            last,
            idle,
            profile: 0,
        };
        // The second worker's flows through node 7 ended long ago; both receive values of node 8.
        let workers = [
            vec![
                series(7, 0, 9, 100, last(10, 5, 9, 7)),
                series(8, 1, 3, 50, last(4, 2, 3, 2)),
            ],
            vec![
                series(7, 50, 1, 20, last(2, 1, 1, 1)),
                series(8, 1, 4, 60, last(6, 1, 8, 4)),
            ],
            vec![series(9, 0, 2, 1, Summary::default())],
        ];
        let expected = [
            series(7, 0, 9, 120, last(10, 5, 9, 7)),
            series(
                8,
                1,
                4,
                110,
                Summary {
                    sum: 60,
                    ..last(10, 1, 8, 4)
                },
            ),
            series(9, 0, 2, 1, Summary::default()),
        ];
        assert_eq!(merged(workers.iter()).into_values().collect::<Vec<_>>(), expected);
        assert_eq!(
            merged(workers.iter().rev()).into_values().collect::<Vec<_>>(),
            expected
        );
    }
}

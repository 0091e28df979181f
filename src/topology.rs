//! Nodes, links and paths of all workers, put together. Each worker keeps its own, in bounded tables.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
};

use collector::{Collector, LinkUse, event::Nanos};

use crate::view::{self, LinkView, PathView};

/// What the flows of a worker say about the network, or those of all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    /// Maximum numbers of nodes, links and paths: those of one worker. More are left out.
    max: [usize; 3],
    nodes: HashMap<u32, Node>,
    links: BTreeMap<(u32, u32), LinkUse>,
    paths: HashMap<Vec<u32>, Path>,
}

/// A node that is on some path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Reports of flows that pass it.
    pub(crate) reports: u64,
    /// When the latest came.
    pub(crate) last_seen: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    flows: u64,
    reports: u64,
}

impl Topology {
    /// What a worker knows: as many nodes, links and paths as its tables have room for.
    pub(crate) fn of(collector: &Collector) -> Self {
        let node =
            |node: collector::NodeUse| (node.node, Node { reports: node.reports, last_seen: node.last_seen });
        let path = |path: collector::PathUse<'_>| {
            (path.nodes.to_vec(), Path { flows: path.flows.into(), reports: path.reports })
        };
        let tables = collector.tables();
        let max = [tables.path_nodes, tables.path_links, tables.paths];
        Self {
            max: max.map(|table| usize::try_from(table.capacity).unwrap_or(usize::MAX)),
            nodes: collector.topology_nodes().map(node).collect(),
            links: collector.topology_links().map(|link| ((link.from, link.to), link)).collect(),
            paths: collector.topology_paths().map(path).collect(),
        }
    }

    /// Adds what another worker knows.
    pub(crate) fn merge(&mut self, other: Self) {
        for (most, others) in self.max.iter_mut().zip(other.max) {
            *most = others.max(*most);
        }
        let [max_nodes, max_links, max_paths] = self.max;
        for (node, seen) in other.nodes {
            let room = self.nodes.len() < max_nodes;
            let Some(known) = entry(&mut self.nodes, node, room) else { continue };
            known.reports += seen.reports;
            known.last_seen = known.last_seen.max(seen.last_seen);
        }
        for (ends, link) in other.links {
            if let Some(known) = self.links.get_mut(&ends) {
                let flows = known.flows.saturating_add(link.flows);
                let newer = if link.last_seen > known.last_seen { link } else { *known };
                *known = LinkUse { flows, ..newer };
            } else if self.links.len() < max_links {
                self.links.insert(ends, link);
            }
        }
        for (nodes, path) in other.paths {
            let room = self.paths.len() < max_paths;
            let Some(known) = entry(&mut self.paths, nodes, room) else { continue };
            known.flows += path.flows;
            known.reports += path.reports;
        }
    }

    /// The nodes on some path.
    pub(crate) fn nodes(&self) -> &HashMap<u32, Node> {
        &self.nodes
    }

    /// The links, by their ends.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkView> {
        let view = |link: &LinkUse| LinkView {
            from: link.from,
            to: link.to,
            egress_if: link.egress_if,
            ingress_if: link.ingress_if,
            utilization: link.utilization.map(view::fraction),
            queue_occupancy: link.queue_occupancy,
            hop_latency: link.hop_latency,
            flows: link.flows.into(),
            last_seen: link.last_seen,
        };
        self.links.values().map(view)
    }

    /// The paths, the most used first.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathView> {
        let mut paths: Vec<_> = self.paths.iter().collect();
        paths.sort_by(|(a, one), (b, other)| other.flows.cmp(&one.flows).then_with(|| a.cmp(b)));
        let view = |(nodes, path): (&Vec<u32>, &Path)| PathView {
            path: view::path(nodes),
            flows: path.flows,
            reports: path.reports,
        };
        paths.into_iter().map(view)
    }
}

/// The value of `key`, made where there is `room` for a new one.
fn entry<K: Eq + Hash, V: Default>(map: &mut HashMap<K, V>, key: K, room: bool) -> Option<&mut V> {
    match map.entry(key) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(new) => room.then(|| new.insert(V::default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(from: u32, to: u32, flows: u32, last_seen: Nanos) -> Topology {
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
        Topology {
            max: [2, 16, 16],
            nodes: [(from, Node { reports, last_seen })].into(),
            links: [((from, to), link)].into(),
            paths: [(vec![from, to], Path { flows: flows.into(), reports })].into(),
        }
    }

    #[test]
    fn counts_of_two_workers_add_and_the_later_value_wins() {
        let mut whole = Topology::default();
        // There is room for two nodes.
        [one(1, 2, 3, 50), one(1, 2, 4, 40), one(2, u32::MAX, 9, 60), one(3, 2, 0, 0)]
            .into_iter()
            .for_each(|part| whole.merge(part));
        assert!(whole.nodes().len() == 2 && !whole.nodes().contains_key(&3));
        whole.links.remove(&(3, 2));
        whole.paths.remove(&vec![3, 2]);
        let links: Vec<_> =
            whole.links().map(|link| (link.from, link.to, link.flows, link.egress_if)).collect();
        assert_eq!(links, [(1, 2, 7, Some(50)), (2, u32::MAX, 9, Some(60))]);
        assert_eq!(whole.nodes()[&1], Node { reports: 70, last_seen: 50 });
        let paths = [
            PathView { path: vec![Some(2), None], flows: 9, reports: 90 },
            PathView { path: vec![Some(1), Some(2)], flows: 7, reports: 70 },
        ];
        assert_eq!(whole.paths().collect::<Vec<_>>(), paths);
    }
}

//! Nodes, links and paths, as learnt from the flows. A scan walks the flow table a piece at a time, so that datagrams never
//! wait long for it.

use std::collections::{BTreeMap, HashMap};

use collector::{Collector, FlowView, event::Nanos};

use crate::{
    view::{self, LinkView, PathView},
    worker::visit_flows,
};

/// Maximum number of links of a scan; more are ignored.
const MAX_LINKS: usize = 65_536;
/// Maximum number of paths of a scan; more are ignored.
const MAX_PATHS: usize = 16_384;

/// Nodes, links and paths of the flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    /// Maximum number of nodes; more are ignored.
    max_nodes: usize,
    nodes: HashMap<u32, Node>,
    links: BTreeMap<(u32, u32), Link>,
    paths: HashMap<Vec<u32>, Path>,
}

/// A node that is on some path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Reports of flows that pass it.
    pub(crate) reports: u64,
    /// Receive time of the latest.
    pub(crate) last_seen: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    egress_if: Option<u32>,
    ingress_if: Option<u32>,
    utilization: Option<u64>,
    queue_occupancy: Option<u64>,
    hop_latency: Option<u64>,
    flows: u64,
    last_seen: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    flows: u64,
    reports: u64,
}

impl Topology {
    /// Scans the flows in the slots from `first` on; also returns the first slot not scanned, `None` at the end.
    pub(crate) fn scan(collector: &Collector, first: u32) -> (Self, Option<u32>) {
        let max_nodes = usize::try_from(collector.tables().nodes.capacity).unwrap_or(usize::MAX);
        let mut found = Self { max_nodes, ..Self::default() };
        let next = visit_flows(collector, first, |flow| found.add(flow));
        (found, next)
    }

    fn add(&mut self, flow: &FlowView<'_>) {
        let row = &flow.row;
        let hops: Vec<_> = flow.hops().collect();
        for node in hops.iter().filter_map(|hop| hop.node) {
            self.add_node(node, &Node { reports: row.reports, last_seen: row.last_seen });
        }
        if flow.path_length == 0 {
            // From postcards: nodes without an order.
            return;
        }
        for pair in hops.windows(2) {
            let (Some(from), Some(to)) = (pair[0].node, pair[1].node) else { continue };
            if self.links.len() >= MAX_LINKS && !self.links.contains_key(&(from, to)) {
                continue;
            }
            let link = self.links.entry((from, to)).or_default();
            link.flows += 1;
            if row.last_seen >= link.last_seen {
                link.last_seen = row.last_seen;
                link.egress_if = pair[0].egress_if;
                link.ingress_if = pair[1].ingress_if.map(u32::from);
                link.utilization = pair[0].link_latest.map(|latest| latest.value).or(link.utilization);
                link.queue_occupancy =
                    pair[0].queue_latest.map(|latest| latest.value).or(link.queue_occupancy);
                link.hop_latency = pair[0].hop_latency.or(link.hop_latency);
            }
        }
        let nodes: Vec<u32> = hops.iter().map(|hop| hop.node.unwrap_or(u32::MAX)).collect();
        if !nodes.is_empty() && (self.paths.len() < MAX_PATHS || self.paths.contains_key(&nodes)) {
            let path = self.paths.entry(nodes).or_default();
            path.flows += 1;
            path.reports += row.reports;
        }
    }

    fn add_node(&mut self, node: u32, seen: &Node) {
        if self.nodes.len() >= self.max_nodes && !self.nodes.contains_key(&node) {
            return;
        }
        let known = self.nodes.entry(node).or_default();
        known.reports += seen.reports;
        known.last_seen = known.last_seen.max(seen.last_seen);
    }

    /// Adds the result of another scan.
    pub(crate) fn merge(&mut self, other: Self) {
        self.max_nodes = self.max_nodes.max(other.max_nodes);
        for (node, seen) in &other.nodes {
            self.add_node(*node, seen);
        }
        for (ends, link) in other.links {
            if let Some(known) = self.links.get_mut(&ends) {
                let flows = known.flows + link.flows;
                let newer = if link.last_seen > known.last_seen { link } else { *known };
                *known = Link { flows, ..newer };
            } else if self.links.len() < MAX_LINKS {
                self.links.insert(ends, link);
            }
        }
        for (nodes, path) in other.paths {
            if let Some(known) = self.paths.get_mut(&nodes) {
                known.flows += path.flows;
                known.reports += path.reports;
            } else if self.paths.len() < MAX_PATHS {
                self.paths.insert(nodes, path);
            }
        }
    }

    /// The nodes on some path.
    pub(crate) fn nodes(&self) -> &HashMap<u32, Node> {
        &self.nodes
    }

    /// The links, by their ends.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkView> {
        let view = |(&(from, to), link): (&(u32, u32), &Link)| LinkView {
            from,
            to,
            egress_if: link.egress_if,
            ingress_if: link.ingress_if,
            utilization: link.utilization.map(view::fraction),
            queue_occupancy: link.queue_occupancy,
            hop_latency: link.hop_latency,
            flows: link.flows,
            last_seen: link.last_seen,
        };
        self.links.iter().map(view)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn one(from: u32, to: u32, flows: u64, last_seen: Nanos) -> Topology {
        let link = Link { flows, last_seen, egress_if: Some(last_seen as u32), ..Link::default() };
        let path = Path { flows, reports: flows * 10 };
        Topology {
            max_nodes: 2,
            nodes: [(from, Node { reports: flows * 10, last_seen })].into(),
            links: [((from, to), link)].into(),
            paths: [(vec![from, to], path)].into(),
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

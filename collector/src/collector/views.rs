//! Snapshots of the current state of flows, nodes, queues and links, for the API.

use std::ops::Range;

use wire::FlowKey;

use super::Collector;
use crate::index::NO_SLOT;
use crate::state::NodeMetrics;
use crate::state::series::SeriesView;
use crate::state::summary::FlowSummary;
use crate::state::topology::{LinkUse, NodeUse, PathUse};
use crate::state::view::FlowView;

/// Every slot of a table.
const ALL: Range<u32> = 0..u32::MAX;

/// An entry of the topology or of node metrics; see [`Collector::network_in`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkEntry<'a> {
    /// A node that flows pass through.
    Node(NodeUse),
    /// A link that flows use.
    Link(LinkUse),
    /// A path that flows take.
    Path(PathUse<'a>),
    /// Hop latency of a node.
    HopLatency(SeriesView),
    /// Occupancy of a queue.
    Queue(SeriesView),
}

impl Collector {
    /// Returns all flows, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = FlowView<'_>> {
        self.flows_in(0..self.flow_slots())
    }

    /// Returns the flows in a range of slots, to walk a large table in parts between bursts. A flow keeps its slot as long as
    /// it is in the table.
    pub fn flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowView<'_>> {
        let state = &self.inner.state;
        (slots.start..slots.end.min(state.flows.slots())).filter_map(move |slot| state.view(slot))
    }

    /// Returns the flows in a range of slots for which a rule is true. For the others, only their entry in the table is read.
    pub fn firing_flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowView<'_>> {
        let state = &self.inner.state;
        (slots.start..slots.end.min(state.flows.slots()))
            .filter(move |slot| state.flows.has_true_rules(*slot))
            .filter_map(move |slot| state.view(slot))
            .filter(|flow| flow.rules != 0)
    }

    /// Returns summaries of the flows in a range of slots, for lists. Reads about one cache line per flow, and writes one.
    pub fn flow_summaries_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowSummary> {
        self.inner.state.flows.summaries(slots)
    }

    /// Returns the number of slots of the flow table used so far; see [`Collector::flows_in`].
    pub fn flow_slots(&self) -> u32 {
        self.inner.state.flows.slots()
    }

    /// Returns the latest state of a flow, or `None` if it has no entry.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowView<'_>> {
        let state = &self.inner.state;
        state.view(state.flows.find(key, key.hash(self.inner.seed), NO_SLOT))
    }

    /// Returns the nodes that flows pass through, at most [`max_nodes`](crate::Config::max_nodes).
    pub fn topology_nodes(&self) -> impl Iterator<Item = NodeUse> {
        self.inner.state.topology.nodes(ALL)
    }

    /// Returns the links that flows use, at most [`max_links`](crate::Config::max_links).
    pub fn topology_links(&self) -> impl Iterator<Item = LinkUse> {
        self.inner.state.link_uses(ALL)
    }

    /// Returns the paths that flows take, at most [`max_links`](crate::Config::max_links).
    pub fn topology_paths(&self) -> impl Iterator<Item = PathUse<'_>> {
        self.inner.state.topology.paths(ALL)
    }

    /// Returns the number of slots used so far in the largest of these tables: nodes, links, paths, and the series of nodes and
    /// queues. See [`Collector::network_in`].
    pub fn network_slots(&self) -> u32 {
        let NodeMetrics { nodes, queues, .. } = &self.inner.state.metrics;
        self.inner
            .state
            .topology
            .slots()
            .max(nodes.slots())
            .max(queues.slots())
    }

    /// Visits the entries of the tables of nodes, queues and links in a range of slots, to walk them in parts between bursts. An entry keeps its slot as
    /// long as it is in the table; one that was removed and added again may be visited twice.
    pub fn network_in(&self, slots: Range<u32>, visit: &mut impl FnMut(NetworkEntry<'_>)) {
        let state = &self.inner.state;
        state
            .topology
            .nodes(slots.clone())
            .for_each(|node| visit(NetworkEntry::Node(node)));
        state
            .link_uses(slots.clone())
            .for_each(|link| visit(NetworkEntry::Link(link)));
        state
            .topology
            .paths(slots.clone())
            .for_each(|path| visit(NetworkEntry::Path(path)));
        let NodeMetrics { nodes, queues, .. } = &state.metrics;
        nodes
            .views_in(slots.clone())
            .for_each(|series| visit(NetworkEntry::HopLatency(series)));
        queues
            .views_in(slots)
            .for_each(|series| visit(NetworkEntry::Queue(series)));
    }

    /// Returns the hop latency per node in ns, over all flows.
    pub fn nodes(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.nodes.views_in(ALL)
    }

    /// Returns the occupancy per node and queue, device units.
    pub fn queues(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.queues.views_in(ALL)
    }

    /// Returns the congestion per node and queue, device units.
    pub fn congestion(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.congestion.views_in(ALL)
    }

    /// Returns the utilization per node and egress interface, millionths.
    pub fn links(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.links.views_in(ALL)
    }
}

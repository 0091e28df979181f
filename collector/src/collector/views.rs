//! Snapshots of the current state of flows, nodes, queues and links.

use std::ops::Range;

use wire::FlowKey;

use super::Collector;
use crate::index::NO_SLOT;
use crate::state::series::SeriesView;
use crate::state::topology::{LinkUse, NodeUse, PathUse};
use crate::state::view::FlowView;

impl Collector {
    /// All flows, in no order that means anything.
    pub fn flows(&self) -> impl Iterator<Item = FlowView<'_>> {
        self.flows_in(0..self.flow_slots())
    }

    /// The flows in some slots of the table: to walk a large table a piece at a time, between bursts. A flow that stays
    /// alive in the meantime keeps its slot.
    pub fn flows_in(&self, slots: Range<u32>) -> impl Iterator<Item = FlowView<'_>> {
        let state = &self.inner.state;
        (slots.start..slots.end.min(state.flows.slots())).filter_map(move |slot| state.view(slot))
    }

    /// Slots of the flow table in use so far; see [`Collector::flows_in`].
    pub fn flow_slots(&self) -> u32 {
        self.inner.state.flows.slots()
    }

    /// One flow.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowView<'_>> {
        let state = &self.inner.state;
        state.view(state.flows.find(key, key.hash(self.inner.seed), NO_SLOT))
    }

    /// Nodes that flows pass, at most [`max_nodes`](crate::Config::max_nodes).
    pub fn topology_nodes(&self) -> impl Iterator<Item = NodeUse> {
        self.inner.state.topology.nodes()
    }

    /// Links that flows use, at most [`max_links`](crate::Config::max_links).
    pub fn topology_links(&self) -> impl Iterator<Item = LinkUse> {
        self.inner.state.link_uses()
    }

    /// Paths that flows take, at most [`max_links`](crate::Config::max_links).
    pub fn topology_paths(&self) -> impl Iterator<Item = PathUse<'_>> {
        self.inner.state.topology.paths()
    }

    /// Hop latency per node, ns, over all flows.
    pub fn nodes(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.nodes.views()
    }

    /// Occupancy per node and queue, device units.
    pub fn queues(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.queues.views()
    }

    /// Congestion per node and queue (or buffer), device units.
    pub fn congestion(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.congestion.views()
    }

    /// Utilisation per node and egress interface, millionths.
    pub fn links(&self) -> impl Iterator<Item = SeriesView> {
        self.inner.state.metrics.links.views()
    }
}

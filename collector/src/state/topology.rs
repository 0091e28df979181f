//! The topology as the reports show it: nodes, links and paths, with the number of flows that use each. The tables are updated
//! when a flow's path changes, so that queries about the network read bounded tables instead of all flows. Reports are added
//! flow by flow, a bounded number of flows per tick.
//!
//! A flow counts on all nodes and links of its path or, if one of them does not fit into its table, on none. Counting such a
//! flow is retried.

use std::ops::Range;

use super::State;
use super::flows::{Flow, FlowParts, HotFlowParts, Marks};
use super::hops::{HopState, PacketValues};
use super::runs::{PAGE, Run, Runs};
use super::series::{Key, Series};
use super::uses::{Use, Uses};
use crate::config::Config;
use crate::decode::{ABSENT, egress, present};
use crate::event::{Nanos, SECOND, follow_clock};
use crate::hash::fold;
use crate::stats::Table;

/// Maximum number of flows visited per tick, and of hops of flows with new reports.
const FLOWS_PER_TICK: u32 = 2048;
const HOPS_PER_TICK: usize = 16_384;

/// A node that flows pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeUse {
    /// The ID of the node.
    pub node: u32,
    /// Number of flows that currently pass through it.
    pub flows: u32,
    /// Number of reports of flows through it, since it was added.
    pub reports: u64,
    /// Receive time of the latest of these reports.
    pub last_seen: Nanos,
}

/// A link between two consecutive nodes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkUse {
    /// The node that sends over the link.
    pub from: u32,
    /// The node that receives over the link.
    pub to: u32,
    /// Number of flows that currently use it.
    pub flows: u32,
    /// Receive time of the latest report of a flow that uses it.
    pub last_seen: Nanos,
    /// Egress interface of the sending node.
    pub egress_if: Option<u32>,
    /// Ingress interface of the receiving node.
    pub ingress_if: Option<u32>,
    /// Latest utilization of the link, millionths.
    pub utilization: Option<u64>,
    /// Latest occupancy of the egress queue that the most recent flow used, device units.
    pub queue_occupancy: Option<u64>,
    /// Latest hop latency of the sending node, ns.
    pub hop_latency: Option<u64>,
}

/// A path that flows take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathUse<'a> {
    /// The nodes in forwarding order, `u32::MAX` where one does not report its ID.
    pub nodes: &'a [u32],
    /// Number of flows that currently take it.
    pub flows: u32,
    /// Number of reports of these flows, since the path was added.
    pub reports: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct NodeTotals {
    reports: u64,
    last_seen: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct LinkTotals {
    last_seen: Nanos,
    egress_if: u32,
    ingress_if: u32,
    /// Part of the queue's [`Key`], or [`ABSENT`].
    queue: u32,
}

#[derive(Clone, Copy, Debug)]
struct PathTotals {
    reports: u64,
    run: Run,
    length: u16,
}

/// Tables of nodes, links and paths with the number of flows that use each.
#[derive(Debug)]
pub(crate) struct Topology {
    nodes: Uses<u32, NodeTotals>,
    /// Key: (node at the start, node at the end).
    links: Uses<(u32, u32), LinkTotals>,
    /// Key: (hash of the nodes, number of nodes). The nodes themselves are in `path_nodes`.
    paths: Uses<(u64, u16), PathTotals>,
    path_nodes: Vec<u32>,
    runs: Runs,
    /// Slot of the flow to visit next.
    next: u32,
    seed: u64,
}

impl Topology {
    /// Creates tables for the nodes and links in `config`, and for as many paths as links.
    pub(crate) fn new(config: &Config) -> Self {
        let paths = config.max_links.max(1);
        // Sixteen nodes per path, and some pages for space that size classes leave unused.
        let pages = (paths * 16).div_ceil(PAGE) + 16;
        Self {
            nodes: Uses::with_capacity(config.max_nodes),
            links: Uses::with_capacity(config.max_links),
            paths: Uses::with_capacity(paths),
            path_nodes: Vec::with_capacity(pages * PAGE),
            runs: Runs::with_pages(pages, 0),
            next: 0,
            seed: config.seed ^ 0x7090_1097,
        }
    }

    /// Returns the usage of the tables of nodes, links and paths.
    pub(crate) fn tables(&self) -> [Table; 3] {
        [self.nodes.table(), self.links.table(), self.paths.table()]
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let paths = self.path_nodes.len() * size_of::<u32>() + self.runs.bytes();
        self.nodes.bytes() + self.links.bytes() + self.paths.bytes() + paths
    }

    fn node_hash(&self, node: u32) -> u64 {
        fold(self.seed, node.into())
    }

    fn link_hash(&self, from: u32, to: u32) -> u64 {
        fold(self.seed ^ 1, u64::from(from) << 32 | u64::from(to))
    }

    fn path_hash(&self, states: &[HopState]) -> u64 {
        states
            .iter()
            .fold(self.seed ^ 2, |hash, state| fold(hash, state.node.into()))
    }

    /// Counts a flow with these hops. `first`: this is the first attempt for this path, so a refusal is counted.
    fn enter(&mut self, flow: &mut Flow, states: &[HopState], first: bool) {
        if !flow.marks.has(Marks::NETWORK) {
            let entered = self.enter_network(flow.path_length() > 0, states, first);
            flow.marks.set(Marks::NETWORK, entered);
        }
        if flow.path_length() > 0 && !flow.marks.has(Marks::PATH) {
            let entered = self.enter_path(states);
            flow.marks.set(Marks::PATH, entered);
            if first && !entered {
                self.paths.note_refusal();
            }
        }
    }

    fn enter_network(&mut self, path: bool, states: &[HopState], first: bool) -> bool {
        let new = NodeTotals::default();
        let refused = states.iter().position(|state| {
            state.node != ABSENT && !self.nodes.add(self.node_hash(state.node), state.node, new)
        });
        if let Some(index) = refused {
            if first {
                self.nodes.note_refusal();
            }
            self.leave_nodes(&states[..index]);
            return false;
        }
        let links = if path { states } else { &[] };
        let new = LinkTotals {
            last_seen: 0,
            egress_if: ABSENT,
            ingress_if: ABSENT,
            queue: ABSENT,
        };
        let refused = links.windows(2).position(|pair| {
            link(pair).is_some_and(|ends| !self.links.add(self.link_hash(ends.0, ends.1), ends, new))
        });
        if let Some(index) = refused {
            if first {
                self.links.note_refusal();
            }
            // Undo the links before the refused one: those between the hops up to its first node.
            self.leave_links(&states[..=index]);
            self.leave_nodes(states);
        }
        refused.is_none()
    }

    fn enter_path(&mut self, states: &[HopState]) -> bool {
        let hash = self.path_hash(states);
        let length = states.len() as u16;
        let new = PathTotals {
            reports: 0,
            run: Run::EMPTY,
            length,
        };
        let Self {
            paths,
            path_nodes,
            runs,
            ..
        } = self;
        if states.is_empty() || !paths.add(hash, (hash, length), new) {
            return false;
        }
        let Some(slot) = paths.find(hash, (hash, length)) else {
            return false;
        };
        if paths.value_mut(slot).run != Run::EMPTY {
            return true;
        }
        let run = runs.acquire(states.len(), slot as u32, |relocation| {
            let from = relocation.from as usize;
            path_nodes.copy_within(
                from..from + relocation.run.capacity(),
                relocation.run.start as usize,
            );
            paths.value_mut(relocation.owner as usize).run = relocation.run;
        });
        if run.capacity() < states.len() {
            runs.release(run);
            paths.remove(hash, (hash, length));
            return false;
        }
        path_nodes.resize(path_nodes.len().max(runs.end()), ABSENT);
        let start = run.start as usize;
        for (node, state) in path_nodes[start..].iter_mut().zip(states) {
            *node = state.node;
        }
        paths.value_mut(slot).run = run;
        true
    }

    /// Removes a flow with these hops from the counts.
    fn leave(&mut self, flow: &mut Flow, states: &[HopState]) {
        if flow.marks.has(Marks::NETWORK) {
            if flow.path_length() > 0 {
                self.leave_links(states);
            }
            self.leave_nodes(states);
        }
        if flow.marks.has(Marks::PATH) {
            let hash = self.path_hash(states);
            let length = states.len() as u16;
            if let Some(path) = self.paths.remove(hash, (hash, length)) {
                self.runs.release(path.run);
            }
        }
        flow.marks.set(Marks::NETWORK, false);
        flow.marks.set(Marks::PATH, false);
    }

    fn leave_nodes(&mut self, states: &[HopState]) {
        for state in states.iter().filter(|state| state.node != ABSENT) {
            self.nodes.remove(self.node_hash(state.node), state.node);
        }
    }

    fn leave_links(&mut self, states: &[HopState]) {
        for ends in states.windows(2).filter_map(link) {
            self.links.remove(self.link_hash(ends.0, ends.1), ends);
        }
    }

    /// Adds the reports of a counted flow since its last visit. `leaves`: its path is about to change, so nodes may already
    /// have values of the new path, and their interfaces must not be assigned to the old links.
    fn account(
        &mut self,
        flow: &Flow,
        reports: u32,
        leaves: bool,
        second: u32,
        states: &[HopState],
        values: &[PacketValues],
    ) {
        let now = (Nanos::from(second) + 1) * SECOND;
        for state in states {
            let hash = self.node_hash(state.node);
            if let Some(node) = self.nodes.get_mut(hash, state.node) {
                follow_clock(&mut node.last_seen, 0, now);
                node.reports += u64::from(reports);
                node.last_seen = node.last_seen.max(flow.last_seen);
            }
        }
        if flow.path_length() == 0 {
            return;
        }
        for (index, ends) in states
            .windows(2)
            .enumerate()
            .filter_map(|(index, pair)| Some((index, link(pair)?)))
        {
            let hash = self.link_hash(ends.0, ends.1);
            let Some(link) = self.links.get_mut(hash, ends) else {
                continue;
            };
            follow_clock(&mut link.last_seen, 0, now);
            if flow.last_seen >= link.last_seen {
                link.last_seen = flow.last_seen;
                if leaves {
                    continue;
                }
                link.egress_if = egress(states[index].link, values[index].level_2());
                link.ingress_if = ingress(&states[index + 1], values[index + 1]);
                link.queue = if states[index].queue == ABSENT {
                    ABSENT
                } else {
                    Key::of_queue(ends.0, states[index].queue >> 24, link.egress_if).part
                };
            }
        }
        let hash = self.path_hash(states);
        let length = states.len() as u16;
        if let Some(path) = self.paths.get_mut(hash, (hash, length)) {
            path.reports += u64::from(reports);
        }
    }

    /// Returns the number of slots of the largest table.
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.slots().max(self.links.slots()).max(self.paths.slots())
    }

    pub(crate) fn nodes(&self, slots: Range<u32>) -> impl Iterator<Item = NodeUse> {
        self.nodes
            .iter_in(slots)
            .map(|Use { key, flows, value }| NodeUse {
                node: *key,
                flows: *flows,
                reports: value.reports,
                last_seen: value.last_seen,
            })
    }

    pub(crate) fn paths(&self, slots: Range<u32>) -> impl Iterator<Item = PathUse<'_>> {
        self.paths.iter_in(slots).filter_map(|Use { flows, value, .. }| {
            let start = value.run.start as usize;
            let nodes = self.path_nodes.get(start..start + usize::from(value.length))?;
            Some(PathUse {
                nodes,
                flows: *flows,
                reports: value.reports,
            })
        })
    }
}

/// Returns the nodes at the ends of a link, or `None` if one of them does not report its id.
fn link(pair: &[HopState]) -> Option<(u32, u32)> {
    match pair {
        [from, to] if from.node != ABSENT && to.node != ABSENT => Some((from.node, to.node)),
        _ => None,
    }
}

/// Returns the level-1 ingress interface, or [`ABSENT`].
fn ingress(state: &HopState, values: PacketValues) -> u32 {
    match (values.level_2(), state.link >> 16) {
        (true, _) | (_, 0xffff) => ABSENT,
        (false, ingress) => ingress,
    }
}

/// Returns the latest value of a part of a node, or `None` if it is [`ABSENT`] or not in the series.
fn latest(series: &Series, node: u32, part: u32) -> Option<u64> {
    let part = present(part)?;
    series.find(Key { node, part })
}

impl State {
    /// Removes the flow in `slot` from the counts; called before its path changes or the flow is removed.
    pub(super) fn leave_topology(&mut self, slot: u32) {
        self.account_flow(slot, true);
        let Self { flows, topology, .. } = self;
        if flows.is_used(slot) {
            let FlowParts { flow, states, .. } = flows.parts(slot);
            topology.leave(flow, states);
        }
    }

    /// Counts the flow in `slot`; called after its path or nodes and the values of its report were applied.
    pub(crate) fn enter_topology(&mut self, slot: u32) {
        let Self { flows, topology, .. } = self;
        let FlowParts { flow, states, .. } = flows.parts(slot);
        if flow.marks.has(Marks::HOPS_CHANGED) {
            flow.marks.set(Marks::HOPS_CHANGED, false);
            topology.enter(flow, states, true);
            self.account_flow(slot, false);
        }
    }

    /// Accounts for a bounded number of flows; called at each tick.
    pub(crate) fn update_topology(&mut self) {
        let slots = self.flows.slots();
        let mut hops = 0;
        for _ in 0..slots.min(FLOWS_PER_TICK) {
            if hops >= HOPS_PER_TICK {
                break;
            }
            let slot = self.topology.next;
            self.topology.next = if slot + 1 < slots { slot + 1 } else { 0 };
            hops += self.account_flow(slot, false);
        }
    }

    /// Accounts for the new reports of the flow in `slot`, if any. Returns the number of hops visited. For `leaves`, see
    /// [`Topology::account`].
    fn account_flow(&mut self, slot: u32, leaves: bool) -> usize {
        let second = self.second();
        let Self { flows, topology, .. } = self;
        if !flows.is_used(slot) {
            return 0;
        }
        let HotFlowParts {
            flow,
            cold,
            hops: stored,
        } = flows.hot_parts(slot);
        let cold = cold.get();
        let reports = (flow.reports as u32).wrapping_sub(cold.accounted_reports);
        if reports == 0 || flow.marks.has(Marks::HOPS_CHANGED) {
            return 0;
        }
        if !flow.marks.has(Marks::NETWORK) || flow.path_length() > 0 && !flow.marks.has(Marks::PATH) {
            topology.enter(flow, stored.states, false);
        }
        cold.accounted_reports = flow.reports as u32;
        if flow.marks.has(Marks::NETWORK) {
            topology.account(flow, reports, leaves, second, stored.states, stored.values);
        }
        stored.states.len()
    }

    /// Returns the links, with the latest values of their node, queue and interface.
    pub(crate) fn link_uses(&self, slots: Range<u32>) -> impl Iterator<Item = LinkUse> {
        self.topology.links.iter_in(slots).map(
            move |Use {
                      key: (from, to),
                      flows,
                      value,
                  }| LinkUse {
                from: *from,
                to: *to,
                flows: *flows,
                last_seen: value.last_seen,
                egress_if: present(value.egress_if),
                ingress_if: present(value.ingress_if),
                utilization: latest(&self.metrics.links, *from, value.egress_if),
                queue_occupancy: latest(&self.metrics.queues, *from, value.queue),
                hop_latency: latest(&self.metrics.nodes, *from, 0),
            },
        )
    }
}

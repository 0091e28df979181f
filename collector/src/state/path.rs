//! Changes of a flow's path: a new path replaces the old one and is reported; nodes on both paths keep their hop states.
//! Decides which reports show only a part of the known path, and when a path is no longer valid.

use detect::{HopValues, Metric};

use super::State;
use super::flows::{Flags, FlowParts, InitialHops, Marks};
use super::hops::{HopState, PacketValues};
use super::removals::Removed;
use crate::decode::{ABSENT, EventContext, Head, Hops, MAX_HOPS, NO_VALUE};
use crate::event::{Basis, Kind, Nanos, Output};

/// Part of the path that a report's INT stack covers, concluded from the remaining hop count: nodes may have removed records
/// from the packet and sent them in an intermediate report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StackPart {
    /// No records were removed, as far as known: the hops may be the whole path.
    Whole,
    /// The hops are the end of the known path, but no record was removed: the path is shorter now.
    ShorterPath,
    /// Records were removed, and the hops are the end of the known path.
    PathEnd,
    /// Records were removed: an intermediate report has shown a higher initial hop count.
    WithoutRemoved,
}

/// Temporary memory for one report at a time, reused.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: Vec<u32>,
    sorted: Vec<u32>,
    states: Vec<HopState>,
    packet_values: Vec<PacketValues>,
    /// The hops of a report, as input of rules.
    pub(crate) values: Vec<HopValues>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            path: Vec::with_capacity(MAX_HOPS),
            sorted: Vec::with_capacity(MAX_HOPS),
            states: Vec::with_capacity(MAX_HOPS),
            packet_values: Vec::with_capacity(MAX_HOPS),
            values: Vec::with_capacity(MAX_HOPS),
        }
    }

    /// Returns a node that the path visits twice.
    fn find_loop(&mut self) -> Option<u32> {
        self.sorted.clear();
        self.sorted
            .extend(self.path.iter().copied().filter(|node| *node != ABSENT));
        self.sorted.sort_unstable();
        self.sorted
            .windows(2)
            .find(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
    }
}

impl State {
    /// Gives the flow in `slot` the path of `hops`, and reports the change.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_path<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, out: &mut dyn Output) {
        let completes = self.completes_path(slot, head, hops);
        self.store_path(slot, head, hops, out);
        let looping_node = self.scratch.find_loop();
        let flow = self.flows.parts(slot).flow;
        let previous_length = flow.set_path(self.scratch.path.len() as u16, head.basis);
        // It was measured on the old path. The report sets it, unless it has no latency or lacks hops.
        flow.forget_latency();
        flow.flags.set(Flags::LOOP, looping_node.is_some());
        flow.flags
            .set(Flags::INCOMPLETE, head.all_signals().is_incomplete());
        let kind = if previous_length == 0 || completes {
            Kind::New
        } else {
            Kind::PathChange
        };
        self.emit_path(head, kind, previous_length, looping_node, out);
    }

    /// Gives the flow in `slot` the path of an IOAM trace that lacks nodes, unless the trace is part of the flow's known path.
    pub(super) fn set_incomplete_path<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        out: &mut dyn Output,
    ) {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let is_same_path = flow.path_length() > 0
            && states.len() == hops.count()
            && states
                .iter()
                .zip(hops.records(0))
                .all(|(state, record)| state.node == hops.node(record));
        if is_same_path {
            return;
        }
        if self.is_part_of_path(slot, hops) && !self.is_path_overdue(slot, head.about.ts) {
            self.flows.parts(slot).flow.set_has_parts(true);
            return;
        }
        self.begin_int(slot);
        self.set_path(slot, head, hops, out);
        // The kernel filter does not evaluate such traces and may have another path.
        self.forget_filtered_path(slot);
    }

    /// Returns true if the hops of an incomplete report may be part of the longer path that INT carried for the flow in `slot`:
    /// some of its nodes, in its order.
    pub(super) fn is_part_of_path<H: Hops>(&mut self, slot: u32, hops: H) -> bool {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        if !flow.has_path_by_int() || hops.count() >= usize::from(flow.path_length()) {
            return false;
        }
        let mut known = states.iter();
        let mut unknown = hops
            .records(0)
            .filter(|record| !known.any(|state| state.node == hops.node(*record)));
        // Not every node of a truncated path is stored, so an unknown one may belong to it.
        unknown.next().is_none() || flow.flags.has(Flags::TRUNCATED)
    }

    /// Returns true if the packet's TTL expired and its hops are the first ones of the longer path that INT carried for the
    /// flow in `slot`. Such a packet proves nothing about packets that go further.
    pub(super) fn expires_on_path<H: Hops>(&mut self, slot: u32, head: &Head, hops: H) -> bool {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        head.expires
            && flow.has_path_by_int()
            && hops.count() < usize::from(flow.path_length())
            && states
                .iter()
                .zip(hops.records(0))
                .all(|(state, record)| state.node == hops.node(record))
    }

    /// Returns true if the hops of an incomplete report are the path of the flow in `slot` followed by the reporter, a node
    /// that adds its own record to some reports only. Both are the same path.
    pub(super) fn is_path_and_reporter<H: Hops>(&mut self, slot: u32, head: &Head, hops: H) -> bool {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let is_longer = hops.count() == states.len() + 1 && states.len() == usize::from(flow.path_length());
        if !is_longer || !flow.has_path_by_int() || flow.flags.has(Flags::INCOMPLETE) {
            return false;
        }
        let mut records = hops.records(0);
        let is_path = states
            .iter()
            .zip(records.by_ref())
            .all(|(state, record)| state.node == hops.node(record));
        is_path
            && records
                .next()
                .is_some_and(|record| head.is_reporter(hops.node(record)))
    }

    /// Decides whether a node removed records from the packet, which was too long for a link, so that the hops are only part of
    /// the path of the flow in `slot`. Then the hop count fell by more than the packet has records. The initial count comes
    /// from the report with the path, or from an intermediate report. Without an intermediate report, the hops must also be the
    /// end of the path.
    pub(super) fn classify_stack<H: Hops>(&mut self, slot: u32, head: &Head, hops: H) -> StackPart {
        let known = self.flows.initial(slot);
        let lacks_hops = head
            .initial(hops.count())
            .is_some_and(|initial| initial < known.count());
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let is_stored = states.len() == usize::from(flow.path_length()) && flow.has_path_by_int();
        let skipped = states.len().checked_sub(hops.count()).filter(|skipped| {
            let nodes = hops.records(0).map(|record| hops.node(record));
            is_stored && states[*skipped..].iter().map(|state| state.node).eq(nodes)
        });
        match skipped {
            // The whole path, in packets that begin with another hop count.
            Some(0) if !flow.flags.has(Flags::INCOMPLETE) => StackPart::Whole,
            Some(1..) if lacks_hops => StackPart::PathEnd,
            Some(1..) => StackPart::ShorterPath,
            _ if lacks_hops && known.has_intermediate_reports() => StackPart::WithoutRemoved,
            _ => StackPart::Whole,
        }
    }

    /// Applies an intermediate report of the flow in `slot`: it has the first `hops` hops of a packet, and the sink reports the
    /// others.
    #[cold]
    #[inline(never)]
    pub(super) fn apply_intermediate(&mut self, slot: u32, head: &Head, hops: usize) {
        let known = self.flows.initial(slot).count();
        let initial = head.initial(hops).unwrap_or(0);
        self.flows
            .set_initial(slot, InitialHops::new(initial.max(known), true));
        // Counting of reports with parts of the path starts again.
        self.postcards.reserve_flow(slot);
        self.postcards
            .flow_mut(slot)
            .count_unconfirmed(true, head.about.ts);
        let flow = self.flows.parts(slot).flow;
        if flow.has_path_by_int() && known != 0 && known < initial {
            // The known path came from a packet that had lost records.
            flow.flags.set(Flags::INCOMPLETE, true);
            flow.set_has_parts(true);
            self.end_int(slot);
        }
    }

    /// Counts a report with a part of the path of the flow in `slot`. Returns true if only such reports arrived for so long
    /// that the path may have changed.
    pub(super) fn is_path_overdue(&mut self, slot: u32, now: Nanos) -> bool {
        let is_first = !self.flows.parts(slot).flow.has_parts();
        self.postcards.reserve_flow(slot);
        self.postcards.flow_mut(slot).count_unconfirmed(is_first, now)
    }

    /// Returns true if these hops complete the path of the flow in `slot`: that path is from an incomplete report or an expired
    /// packet, and the hops contain all of it. The reporter may be missing now, because it adds its own record to some reports
    /// only.
    fn completes_path<H: Hops>(&mut self, slot: u32, head: &Head, hops: H) -> bool {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let mut states = &*states;
        if !flow.flags.has(Flags::INCOMPLETE) || flow.path_length() == 0 {
            return false;
        }
        if let [before @ .., last] = states
            && before.len() == hops.count()
            && head.is_reporter(last.node)
        {
            states = before;
        }
        let mut records = hops.records(0);
        states
            .iter()
            .all(|state| records.any(|record| hops.node(record) == state.node))
    }

    /// Prepares for a report with INT that may be the first after postcards. If the flow's path is not from INT, its values
    /// were measured differently, so the report's values are reported like those of a new flow.
    pub(super) fn begin_int(&mut self, slot: u32) {
        let FlowParts { flow, cold, states } = self.flows.parts(slot);
        flow.set_has_postcards(false);
        if !flow.has_path_by_int() {
            states.iter_mut().for_each(|state| state.last_reported = ABSENT);
            (flow.latency, cold.last_reported) = (NO_VALUE, NO_VALUE);
            flow.set_deadband(cold, 0);
            flow.flags.set_order(Basis::Measured);
        }
    }

    /// Invalidates the INT path of the flow in `slot`, and the latency that INT measured.
    pub(crate) fn end_int(&mut self, slot: u32) {
        let flow = self.flows.parts(slot).flow;
        flow.forget_latency();
        self.forget_filtered_path(slot);
    }

    /// Lets a filter forget its copy of the path of the flow in `slot`.
    pub(crate) fn forget_filtered_path(&mut self, slot: u32) {
        if let Some(removals) = &mut self.removals {
            removals.push(Removed::Path(self.flows.parts(slot).flow.key));
        }
    }

    /// Removes the path of the flow in `slot` and everything derived from it: its packets no longer carry INT, and nothing else
    /// shows their path.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_path(&mut self, slot: u32, about: &EventContext, out: &mut dyn Output) {
        self.leave_topology(slot);
        self.flows.resize_path(slot, 0);
        let flow = self.flows.parts(slot).flow;
        flow.end_rules(&mut self.detection.emitter(about, 0, out));
        flow.set_path(0, Basis::Measured);
        flow.flags.set(Flags::LOOP, false);
        flow.flags.set(Flags::INCOMPLETE, false);
        flow.marks.set(Marks::HOPS_CHANGED, true);
        self.end_int(slot);
    }

    /// Stores the nodes of `hops` as the path of the flow in `slot`, as many as fit.
    fn store_path<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, out: &mut dyn Output) {
        let count = hops.count().min(MAX_HOPS);
        if let Some(victim) = self.flows.find_flow_to_evict(slot, count, self.second) {
            self.remove(victim, head.about.ts, out);
        }
        self.scratch.path.clear();
        self.scratch
            .path
            .extend(hops.records(0).take(MAX_HOPS).map(|record| hops.node(record)));
        self.resize_states(slot);
    }

    /// Retries to store the rest of a truncated path, at most once a minute. Returns `false` if nothing changed.
    pub(crate) fn retry_path<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        out: &mut dyn Output,
    ) -> bool {
        let flow = self.flows.parts(slot).flow;
        if !flow.flags.has(Flags::RETRY) {
            return false;
        }
        flow.flags.set(Flags::RETRY, false);
        let previous_hops = flow.hops;
        self.store_path(slot, head, hops, out);
        self.flows.parts(slot).flow.hops > previous_hops
    }

    fn emit_path(
        &mut self,
        head: &Head,
        kind: Kind,
        previous_length: u16,
        looping_node: Option<u32>,
        out: &mut dyn Output,
    ) {
        let path = &self.scratch.path;
        let mut emitter = self.detection.emitter(&head.about, 0, out);
        let mut event = emitter.event(kind, Metric::FlowPath);
        event.value = Some(path.len() as u64);
        event.previous = (previous_length != 0).then_some(u64::from(previous_length));
        event.basis = head.basis;
        emitter.emit(event, path);
        if let Some(node) = looping_node {
            let mut event = emitter.event(Kind::PathLoop, Metric::FlowPath);
            event.value = Some(path.len() as u64);
            (event.node, event.basis) = (Some(node), head.basis);
            emitter.emit(event, path);
        }
    }

    /// Allocates hop states for the path in `scratch`; nodes that stay on the path keep their states.
    fn resize_states(&mut self, slot: u32) {
        self.leave_topology(slot);
        let Scratch {
            path,
            states: old,
            packet_values: old_values,
            ..
        } = &mut self.scratch;
        let hops = self.flows.hot_parts(slot).hops;
        old.clear();
        old.extend_from_slice(hops.states);
        old_values.clear();
        old_values.extend_from_slice(hops.values);
        self.flows.resize_path(slot, path.len());
        let hops = self.flows.hot_parts(slot).hops;
        for (index, ((state, values), &node)) in hops.iter_mut().zip(path.iter()).enumerate() {
            let same_index =
                Some(index).filter(|index| old.get(*index).is_some_and(|known| known.node == node));
            // For long paths only nodes at the same position are compared, to keep the work linear.
            let search = if old.len() <= 32 { old.as_slice() } else { &[] };
            let known = same_index.or_else(|| search.iter().position(|known| known.node == node));
            if let Some(known) = known {
                (*state, *values) = (old[known], old_values[known]);
            }
            state.node = node;
        }
        self.flows.parts(slot).flow.marks.set(Marks::HOPS_CHANGED, true);
    }

    /// Adds a hop state for `node` to a flow without a path, unless it already has one.
    #[inline]
    pub(super) fn add_hop_without_path(&mut self, slot: u32, node: u32) {
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let known = states.iter().any(|state| state.node == node);
        if !known && flow.path_length() == 0 && states.len() < MAX_HOPS {
            self.append_hop(slot, node);
        }
    }

    #[cold]
    fn append_hop(&mut self, slot: u32, node: u32) {
        let path = &mut self.scratch.path;
        path.clear();
        path.extend(self.flows.parts(slot).states.iter().map(|state| state.node));
        path.push(node);
        self.resize_states(slot);
    }

    /// Writes the nodes of a flow's path into `scratch`. Returns `false` if `slot` is unused.
    pub(super) fn load_path(&mut self, slot: u32) -> bool {
        if !self.flows.is_used(slot) {
            return false;
        }
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let path = &mut self.scratch.path;
        path.clear();
        // Without a path, the stored states belong to nodes that sent postcards.
        let on_path = if flow.path_length() == 0 { &[] } else { &*states };
        path.extend(on_path.iter().map(|state| state.node));
        true
    }
}

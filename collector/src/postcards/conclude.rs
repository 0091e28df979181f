//! Applies a joined set of postcards to its flow: path, latency and rules.

use super::MatchedBy;
use super::joiner::Settling;
use crate::config::Units;
use crate::decode::{
    ABSENT, EndTimestamps, EventContext, Head, Hops, NO_VALUE, Reading, Signals, is_plausible, narrow,
};
use crate::event::Basis;
use crate::state::flows::{Flags, FlowParts, HotFlowParts, StoredFlow};
use crate::state::hops::PacketValues;
use crate::state::pending::Postcard;
use crate::state::{emit_hop_latency, saturated};

/// The postcards of a packet in forwarding order, as its hops.
#[derive(Clone, Copy, Debug)]
struct PostcardHops<'a> {
    postcards: &'a [Postcard],
    units: Units,
}

impl<'a> Hops for PostcardHops<'a> {
    type Record = &'a Postcard;

    fn count(self) -> usize {
        self.postcards.len()
    }

    fn units(self) -> Units {
        self.units
    }

    fn records(self, from: usize) -> impl ExactSizeIterator<Item = Self::Record> {
        self.postcards.get(from..).unwrap_or_default().iter()
    }

    fn node(self, record: Self::Record) -> u32 {
        record.reading.node
    }

    fn read(self, record: Self::Record) -> Reading {
        record.reading
    }

    fn ends(self) -> EndTimestamps {
        let wide = self.postcards.iter().all(|postcard| postcard.wide);
        let ingress = self
            .postcards
            .first()
            .map_or(NO_VALUE, |postcard| postcard.ingress);
        let egress = self.postcards.last().map_or(NO_VALUE, |postcard| postcard.egress);
        EndTimestamps {
            ingress: if wide { ingress } else { narrow(ingress) },
            egress: if wide { egress } else { narrow(egress) },
            wide,
        }
    }
}

impl Settling<'_> {
    /// Applies path, latency and rules of a flow from postcards in forwarding order. Their values were applied to the nodes on
    /// arrival. `expired`: the packet's TTL ran out, so other packets may go further.
    pub(super) fn conclude(
        &mut self,
        postcards: &[Postcard],
        basis: Basis,
        matched: MatchedBy,
        expired: bool,
    ) {
        let Self {
            slot,
            ref mut state,
            ref mut out,
            ..
        } = *self;
        let (Some(first), Some(StoredFlow { flow, .. })) = (postcards.first(), state.flows.get(slot)) else {
            return;
        };
        let comparable = postcards
            .iter()
            .all(|postcard| postcard.units.same_as(&first.units));
        let synchronised = first.units.synchronised && comparable && matched != MatchedBy::Flow;
        let hops = PostcardHops {
            postcards,
            units: Units {
                synchronised,
                ..first.units
            },
        };
        let ts = postcards
            .iter()
            .map(|postcard| postcard.received)
            .max()
            .unwrap_or(0);
        let about = EventContext {
            ts,
            origin: first.origin,
            key: flow.key,
            has_flow: true,
            profile: first.profile,
        };
        let head = Head {
            about,
            basis,
            signals: Signals::default().or_incomplete(expired),
            ..Head::none()
        };
        state.refresh_if_due(slot, *out);
        if state.flows.parts(slot).flow.has_path_by_int() {
            state.end_int(slot);
        }
        let FlowParts { flow, states, .. } = state.flows.parts(slot);
        let known = if flow.path_length() == 0 { &[] } else { &*states };
        let same = usize::from(flow.path_length()) == postcards.len()
            && known
                .iter()
                .zip(postcards)
                .all(|(hop, postcard)| hop.node == postcard.reading.node);
        if !same {
            state.set_path(slot, &head, hops, *out);
            self.emit_new_hops(&head, postcards);
        } else {
            if !expired {
                flow.flags.set(Flags::INCOMPLETE, false);
            }
            if state.retry_path(slot, &head, hops, *out) {
                self.emit_new_hops(&head, postcards);
            }
        }
        self.conclude_values(&head, hops);
        self.state.enter_topology(self.slot);
    }

    /// Reports the latency of nodes that were not on the path when their postcards arrived.
    fn emit_new_hops(&mut self, head: &Head, postcards: &[Postcard]) {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.state.flows.hot_parts(self.slot);
        let mut emitter = self
            .state
            .detection
            .emitter(&head.about, flow.threshold_set, self.out);
        for ((state, values), postcard) in stored.iter_mut().zip(postcards) {
            if state.last_reported == ABSENT && is_plausible(postcard.reading.latency) {
                state.latest = saturated(postcard.reading.latency);
                (state.link, state.queue) = (postcard.reading.link, postcard.reading.queue);
                let utilization = Some(postcard.reading.utilization()).filter(|value| *value != NO_VALUE);
                *values = PacketValues::of(&postcard.reading, utilization);
                emit_hop_latency(state, &mut emitter);
            }
        }
    }

    fn conclude_values(&mut self, head: &Head, hops: PostcardHops<'_>) {
        let state = &mut *self.state;
        let total = hops.postcards.iter().try_fold(0_u64, |sum, postcard| {
            let latency = postcard.reading.latency;
            is_plausible(latency).then(|| sum.saturating_add(latency))
        });
        let HotFlowParts { flow, cold, .. } = state.flows.hot_parts(self.slot);
        let mut emitter = state.detection.emitter(&head.about, flow.threshold_set, self.out);
        flow.flags.set_order(head.basis);
        let latency = flow.apply_latency_sum(cold, hops, total.unwrap_or(NO_VALUE), &mut emitter);
        if state.detection.has_rules() {
            state.scratch.values.clear();
            state
                .scratch
                .values
                .extend(hops.postcards.iter().map(|postcard| postcard.reading.values()));
            state.evaluate_rules(self.slot, head, latency, self.out);
        }
    }
}

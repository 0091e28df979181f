//! The joining of postcards: determines which sets are due, which postcards belong to one packet, and whether their path is
//! confirmed.

use wire::report::PacketDigest;

use super::MatchedBy;
use super::order::{Links, arrange, has_distinct_nodes};
use super::packets::{
    Timestamps, agree_on_path, is_ambiguous, is_loop, mark_shared, move_duplicates, sort, sort_by_packet,
};
use crate::config::PostcardConfig;
use crate::decode::{ABSENT, EventContext, MAX_HOPS};
use crate::event::{Basis, Nanos, Output};
use crate::hash::fold;
use crate::state::State;
use crate::state::flows::FlowParts;
use crate::state::hops::HopState;
use crate::state::pending::Postcard;
use crate::stats::{Partial, Unjoinable};

/// Maximum number of pending postcards of one flow. Beyond it the older half is settled, complete or not.
const MAX_PER_FLOW: usize = 256;

/// Maximum number of flows settled early to make room for one postcard.
const MAX_EVICTIONS: usize = 4;

/// Maximum number of flows settled per tick.
const FLOWS_PER_TICK: usize = 4096;

/// The flow whose sets are being settled, and the receivers of the results.
pub(super) struct Settling<'a> {
    pub(super) slot: u32,
    /// Sets whose first postcard arrived no later than this are settled.
    until: Nanos,
    pub(super) state: &'a mut State,
    pub(super) out: &'a mut dyn Output,
}

/// The joiner; [`crate::postcards`] describes it. All memory is reserved at the start.
#[derive(Debug)]
pub(crate) struct Postcards {
    config: PostcardConfig,
    links: Links,
    /// Postcards of the flow that is being settled; reused.
    scratch: Vec<Postcard>,
    /// Postcards of the set that is being settled; reused.
    set: Vec<Postcard>,
    /// Postcards that could not be joined by time, with the reason.
    unjoined: Vec<(Postcard, Partial)>,
}

impl Postcards {
    /// Reserves all memory that joining needs.
    pub(crate) fn new(config: PostcardConfig) -> Self {
        Self {
            links: Links::new(&config.links),
            scratch: Vec::with_capacity(MAX_PER_FLOW),
            set: Vec::with_capacity(MAX_PER_FLOW),
            unjoined: Vec::with_capacity(MAX_PER_FLOW),
            config,
        }
    }

    /// Returns true if links are configured, which can give an order.
    #[inline]
    pub(crate) fn is_linked(&self) -> bool {
        !self.links.is_empty()
    }

    /// Adds a postcard of the flow in `slot`, pending until the others of its packet arrive. Settles the set if it is now
    /// complete.
    pub(crate) fn add_pending(
        &mut self,
        slot: Option<u32>,
        postcard: &Postcard,
        state: &mut State,
        out: &mut dyn Output,
    ) {
        state.postcards.stats.received += 1;
        let accepted = match slot {
            None => Err(Unjoinable::NoFlow),
            Some(_) if postcard.reading.node == ABSENT => Err(Unjoinable::NoNode),
            Some(slot) => self.add(
                postcard,
                &mut Settling {
                    slot,
                    until: Nanos::MAX,
                    state,
                    out,
                },
            ),
        };
        if let Err(reason) = accepted {
            state.postcards.refuse(reason);
        }
    }

    fn add(&mut self, postcard: &Postcard, settling: &mut Settling<'_>) -> Result<(), Unjoinable> {
        let slot = settling.slot;
        if settling.state.postcards.is_disabled() {
            return Err(Unjoinable::NoOrder);
        }
        settling.state.postcards.reserve_flow(slot);
        let has_ended = self.ends_int(postcard, settling);
        let matched = MatchedBy::of(postcard, self.is_linked()).ok_or(Unjoinable::NoOrder)?;
        if !has_ended {
            return Err(Unjoinable::Int);
        }
        let pending = &mut settling.state.postcards;
        let is_by_signature = matched == MatchedBy::Signature;
        if is_by_signature
            && pending
                .of_packet(slot, postcard.signature)
                .any(|other| postcard.repeats(other))
        {
            return Err(Unjoinable::Duplicate);
        }
        self.make_room(settling);
        let pending = &mut settling.state.postcards;
        if pending.is_full() {
            return Err(Unjoinable::NoRoom);
        }
        pending.push(slot, postcard);
        pending.stats.accepted += 1;
        pending.enqueue(slot, postcard.received.saturating_add(self.config.timeout));
        let flow = pending.flow_mut(slot);
        if usize::from(flow.count) >= MAX_PER_FLOW {
            settling.until = settling.median();
            self.settle_due(settling);
            if usize::from(settling.state.postcards.flow_mut(settling.slot).count) >= MAX_PER_FLOW {
                // All are one set, which just grew: packets that look alike, without end.
                settling.until = Nanos::MAX;
                self.settle_due(settling);
            }
        } else if is_by_signature && !PacketDigest::may_repeat(postcard.signature as u32) {
            self.settle_early(postcard.signature, settling);
        }
        Ok(())
    }

    /// Returns true if the flow's path does not come from INT, or the flow has had no INT report for as long as postcards of
    /// one packet take to arrive: its packets no longer carry INT. Forgets the INT path if postcards have not confirmed a new
    /// one for long.
    fn ends_int(&self, postcard: &Postcard, settling: &mut Settling<'_>) -> bool {
        let Settling {
            slot,
            ref mut state,
            ref mut out,
            ..
        } = *settling;
        let flow = state.flows.parts(slot).flow;
        let is_first = !flow.has_postcards();
        flow.set_has_postcards(true);
        if !flow.has_path_by_int() {
            return true;
        }
        let key = flow.key;
        let pending = state.postcards.flow_mut(slot);
        let is_forgotten = pending.count_unconfirmed(is_first, postcard.received);
        let silence = postcard.received.saturating_sub(pending.unconfirmed_since);
        if is_first && postcard.aggregated {
            state.forget_filtered_path(slot);
        }
        if is_forgotten {
            let Postcard {
                received: ts,
                origin,
                profile,
                ..
            } = *postcard;
            state.forget_path(
                slot,
                &EventContext {
                    ts,
                    origin,
                    key,
                    has_flow: true,
                    profile,
                },
                *out,
            );
        }
        silence >= self.config.timeout
    }

    /// Settles the flows that have waited longest until the table has room.
    fn make_room(&mut self, settling: &mut Settling<'_>) {
        for _ in 0..MAX_EVICTIONS {
            if !settling.state.postcards.is_full() {
                break;
            }
            let Some(slot) = settling.state.postcards.dequeue(Nanos::MAX) else {
                break;
            };
            self.settle_due(&mut settling.for_flow(slot));
        }
    }

    /// Settles sets that have waited long enough, for a bounded number of flows.
    pub(crate) fn tick(&mut self, now: Nanos, state: &mut State, out: &mut dyn Output) {
        let timeout = self.config.timeout;
        for _ in 0..FLOWS_PER_TICK {
            let Some(slot) = state.postcards.dequeue(now) else {
                break;
            };
            let until = now.saturating_sub(timeout);
            self.settle_due(&mut Settling {
                slot,
                until,
                state,
                out,
            });
            let oldest = state
                .postcards
                .of_flow(slot)
                .map(|postcard| postcard.received)
                .min();
            if let Some(oldest) = oldest {
                // Sets that still get postcards wait longer.
                let due = oldest
                    .saturating_add(timeout)
                    .max(now.saturating_add(timeout / 4).max(now.saturating_add(1)));
                state.postcards.enqueue(slot, due);
            }
        }
    }

    /// Settles the pending postcards of all flows.
    pub(crate) fn finish(&mut self, state: &mut State, out: &mut dyn Output) {
        while let Some(slot) = state.postcards.dequeue(Nanos::MAX) {
            self.settle_due(&mut Settling {
                slot,
                until: Nanos::MAX,
                state,
                out,
            });
        }
    }

    /// Settles a packet's postcards before their timeout if all of them have provably arrived.
    fn settle_early(&mut self, signature: u64, settling: &mut Settling<'_>) {
        let slot = settling.slot;
        let mut set = std::mem::take(&mut self.set);
        set.extend(settling.state.postcards.of_packet(slot, signature));
        let has_ends = set
            .iter()
            .any(|postcard| self.links.is_first(postcard) == Some(true))
            && set
                .iter()
                .any(|postcard| self.links.is_last(postcard) == Some(true));
        if has_ends && set.len() <= MAX_HOPS && arrange(&mut set, &self.links).is_ok() {
            settling
                .state
                .postcards
                .pull(slot, |_| {}, |postcard| postcard.signature != signature);
            // `conclude` has counted the outcome.
            let _ = self.conclude(&mut set, MatchedBy::Signature, settling);
        }
        set.clear();
        self.set = set;
    }

    /// Settles the due sets of a flow, and returns the other postcards to the pending ones.
    fn settle_due(&mut self, settling: &mut Settling<'_>) {
        let slot = settling.slot;
        let mut postcards = std::mem::take(&mut self.scratch);
        settling
            .state
            .postcards
            .pull(slot, |postcard| postcards.push(*postcard), |_| false);
        if !settling.state.flows.is_used(slot) {
            settling
                .state
                .postcards
                .discard(postcards.len(), Partial::FlowGone);
            postcards.clear();
        }
        let is_linked = self.is_linked();
        let mut timestamps = sort(&mut postcards, is_linked);
        if mark_shared(&mut postcards, is_linked) {
            timestamps = sort(&mut postcards, is_linked);
        }
        let Timestamps { base, wide } = timestamps;
        let proximity = i64::try_from(self.config.proximity).unwrap_or(i64::MAX);
        // The latest egress so far: a long gap from there to the next ingress separates two packets.
        let mut latest_egress = i64::MIN;
        let mut timed = postcards
            .iter()
            .enumerate()
            .filter(|(_, postcard)| MatchedBy::of_one(postcard, is_linked) == MatchedBy::Time)
            .map(|(index, _)| index);
        let first = timed.next();
        let end = first.map_or(0, |first| timed.next_back().unwrap_or(first) + 1);
        let is_one_path = agree_on_path(&postcards[first.unwrap_or(0)..end]);
        let sets = postcards.chunk_by_mut(|previous, next| {
            match (
                MatchedBy::of_one(previous, is_linked),
                MatchedBy::of_one(next, is_linked),
            ) {
                (MatchedBy::Time, MatchedBy::Time) => {
                    latest_egress = latest_egress.max(Postcard::after(previous.egress, base, wide));
                    let gap = Postcard::after(next.ingress, base, wide).saturating_sub(latest_egress);
                    let is_near = gap.saturating_mul(next.units.stamp_ns.into()) <= proximity;
                    if !is_near {
                        latest_egress = i64::MIN;
                    }
                    is_near
                }
                (previous_by, next_by) => previous_by == next_by && previous.signature == next.signature,
            }
        });
        for set in sets {
            let matched = MatchedBy::of_one(&set[0], is_linked);
            if settling.is_due(set, matched) {
                self.settle(set, matched, settling);
            } else {
                for postcard in set {
                    settling.state.postcards.push(
                        slot,
                        &Postcard {
                            shared: false,
                            ..*postcard
                        },
                    );
                }
            }
        }
        postcards.clear();
        self.settle_unjoined(is_one_path, &mut postcards, settling);
        postcards.clear();
        self.scratch = postcards;
    }

    /// Settles the postcards that could not be joined by time: if all agree on the path, they are joined as the flow's.
    fn settle_unjoined(
        &mut self,
        is_one_path: bool,
        scratch: &mut Vec<Postcard>,
        settling: &mut Settling<'_>,
    ) {
        let mut unjoined = std::mem::take(&mut self.unjoined);
        scratch.extend(unjoined.iter().map(|(postcard, _)| *postcard));
        if is_one_path && !unjoined.is_empty() && self.arrange_latest(scratch).is_ok() {
            self.settle_flow(scratch, settling);
        } else {
            for (_, reason) in &unjoined {
                settling.state.postcards.discard(1, *reason);
            }
        }
        unjoined.clear();
        self.unjoined = unjoined;
    }

    /// Settles the postcards of one packet, of several packets, or of a flow.
    fn settle(&mut self, postcards: &mut [Postcard], matched: MatchedBy, settling: &mut Settling<'_>) {
        let duplicate_count = if matched == MatchedBy::Time {
            move_duplicates(postcards)
        } else {
            0
        };
        let (postcards, duplicates) = postcards.split_at_mut(postcards.len() - duplicate_count);
        let stats = &mut settling.state.postcards.stats;
        stats.released += duplicates.len() as u64;
        stats.unjoinable[Unjoinable::Duplicate as usize] += duplicates.len() as u64;
        match matched {
            MatchedBy::Time if !has_distinct_nodes(postcards) && !is_loop(postcards) => {
                self.settle_several(postcards, settling);
            }
            MatchedBy::Time => self.settle_timed(postcards, settling),
            MatchedBy::Signature if !is_ambiguous(postcards) => {
                // `conclude` has counted the outcome.
                let _ = self.conclude(postcards, matched, settling);
            }
            _ if agree_on_path(postcards) => self.settle_flow(postcards, settling),
            _ => settling
                .state
                .postcards
                .discard(postcards.len(), Partial::Indistinct),
        }
    }

    /// Settles the postcards of one packet that were matched by time.
    fn settle_timed(&mut self, postcards: &mut [Postcard], settling: &mut Settling<'_>) {
        match arrange(postcards, &self.links) {
            // `conclude` has counted the outcome.
            Ok(_) => {
                let _ = self.conclude(postcards, MatchedBy::Time, settling);
            }
            Err(reason) => self
                .unjoined
                .extend(postcards.iter().map(|postcard| (*postcard, reason))),
        }
    }

    /// Puts the latest postcard of each node into `set`, in forwarding order.
    fn arrange_latest(&mut self, postcards: &mut [Postcard]) -> Result<Basis, Partial> {
        postcards.sort_unstable_by_key(|postcard| (postcard.reading.node, postcard.received));
        self.set.clear();
        let by_node = postcards.chunk_by(|previous, next| previous.reading.node == next.reading.node);
        self.set.extend(by_node.filter_map(<[Postcard]>::last));
        for postcard in &mut self.set {
            // They may be from different packets, so their timestamps cannot be compared.
            postcard.units.synchronised = false;
        }
        arrange(&mut self.set, &self.links)
    }

    /// Settles postcards that agree on the path; the latest of each node represents the flow.
    fn settle_flow(&mut self, postcards: &mut [Postcard], settling: &mut Settling<'_>) {
        // `conclude` below computes the outcome again, and counts it.
        let _ = self.arrange_latest(postcards);
        let mut set = std::mem::take(&mut self.set);
        // Earlier postcards of the same nodes get the same outcome.
        let earlier_count = postcards.len() - set.len();
        let outcome = self.conclude(&mut set, MatchedBy::Flow, settling);
        match outcome {
            Ok(()) => {
                let stats = &mut settling.state.postcards.stats;
                stats.released += earlier_count as u64;
                stats.joined += earlier_count as u64;
            }
            Err(reason) => settling.state.postcards.discard(earlier_count, reason),
        }
        set.clear();
        self.set = set;
    }

    /// Settles the postcards of packets in close succession: the first postcard of each node belongs to the first packet, and
    /// so on, unless times contradict that.
    fn settle_several(&mut self, postcards: &mut [Postcard], settling: &mut Settling<'_>) {
        let mut sorted = std::mem::take(&mut self.set);
        sorted.extend_from_slice(postcards);
        let nodes = sort_by_packet(postcards, &mut sorted);
        sorted.clear();
        self.set = sorted;
        match nodes {
            Some(nodes) => {
                for packet in postcards.chunks_mut(nodes) {
                    self.settle_timed(packet, settling);
                }
            }
            None => self
                .unjoined
                .extend(postcards.iter().map(|postcard| (*postcard, Partial::Indistinct))),
        }
    }

    /// Joins the postcards of a set if their path is proven and confirmed. Counts them in either case.
    fn conclude(
        &mut self,
        postcards: &mut [Postcard],
        matched: MatchedBy,
        settling: &mut Settling<'_>,
    ) -> Result<(), Partial> {
        let outcome = if postcards.len() > MAX_HOPS {
            Err(Partial::TooLong)
        } else {
            arrange(postcards, &self.links).and_then(|basis| {
                self.confirm(postcards, settling)?;
                Ok(basis)
            })
        };
        match outcome {
            Ok(basis) => {
                let is_expired = self.expires(postcards);
                settling.join(postcards, basis, matched, is_expired);
                Ok(())
            }
            Err(reason) => {
                settling.state.postcards.discard(postcards.len(), reason);
                Err(reason)
            }
        }
    }

    /// Returns true if the packet of `postcards` (in forwarding order) went no further because its hop limit was used up.
    fn expires(&self, postcards: &[Postcard]) -> bool {
        postcards.last().is_some_and(|last| self.links.expires(last))
    }

    /// Checks that the path of `postcards` is the flow's path, or was seen often enough to replace it.
    fn confirm(&self, postcards: &[Postcard], settling: &mut Settling<'_>) -> Result<(), Partial> {
        let Settling {
            slot, ref mut state, ..
        } = *settling;
        let FlowParts { flow, states, .. } = state.flows.parts(slot);
        let pending = state.postcards.flow_mut(slot);
        let has_older_postcard = postcards
            .iter()
            .any(|postcard| postcard.received < pending.unconfirmed_since);
        if flow.has_path_by_int() && (!flow.has_postcards() || has_older_postcard) {
            return Err(Partial::Int);
        }
        let known = if flow.path_length() == 0 { &[] } else { &*states };
        if is_path(known, flow.path_length(), postcards) {
            pending.confirmations = 0;
            return Ok(());
        }
        if postcards.len() < usize::from(flow.path_length())
            && is_start(known, postcards)
            && self.expires(postcards)
        {
            // Other packets of the flow went further, so this shorter path proves nothing.
            return Err(Partial::Expired);
        }
        let path = postcards.iter().fold(postcards.len() as u64, |hash, postcard| {
            fold(hash, postcard.reading.node.into())
        });
        if pending.confirmations == 0 || pending.candidate != path {
            pending.candidate = path;
            pending.confirmations = 0;
        }
        pending.confirmations = pending.confirmations.saturating_add(1);
        if pending.confirmations < self.config.confirmations {
            return Err(Partial::Unconfirmed);
        }
        pending.confirmations = 0;
        Ok(())
    }
}

impl Settling<'_> {
    /// Returns the context for settling all sets of another flow.
    fn for_flow(&mut self, slot: u32) -> Settling<'_> {
        Settling {
            slot,
            until: Nanos::MAX,
            state: &mut *self.state,
            out: &mut *self.out,
        }
    }

    /// Returns true if a set has waited long enough. A set matched by signature with a recent postcard waits longer for others.
    fn is_due(&self, set: &[Postcard], matched: MatchedBy) -> bool {
        let mut times = set.iter().map(|postcard| postcard.received);
        if matched == MatchedBy::Signature {
            times.all(|received| received <= self.until)
        } else {
            times.any(|received| received <= self.until)
        }
    }

    /// Returns the median arrival time of the flow's postcards.
    fn median(&self) -> Nanos {
        let mut times = [0; MAX_PER_FLOW];
        let mut count = 0;
        for (time, postcard) in times.iter_mut().zip(self.state.postcards.of_flow(self.slot)) {
            *time = postcard.received;
            count += 1;
        }
        let times = &mut times[..count];
        times.sort_unstable();
        times.get(count / 2).copied().unwrap_or(0)
    }

    fn join(&mut self, postcards: &[Postcard], basis: Basis, matched: MatchedBy, expired: bool) {
        let stats = &mut self.state.postcards.stats;
        stats.released += postcards.len() as u64;
        stats.joined += postcards.len() as u64;
        stats.sets += 1;
        self.conclude(postcards, basis, matched, expired);
    }
}

/// Returns true if `postcards` have the nodes of a path of `length` nodes, of which `known` are stored.
fn is_path(known: &[HopState], length: u16, postcards: &[Postcard]) -> bool {
    usize::from(length) == postcards.len() && is_start(known, postcards)
}

/// Returns true if the nodes of a path and of `postcards` are equal, as far as both go.
fn is_start(known: &[HopState], postcards: &[Postcard]) -> bool {
    known
        .iter()
        .zip(postcards)
        .all(|(hop, postcard)| hop.node == postcard.reading.node)
}

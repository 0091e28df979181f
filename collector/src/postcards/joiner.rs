//! The joining of postcards: which sets are due, which belong to one packet, and whether their path is confirmed.

use super::MatchedBy;
use super::gaps::Gaps;
use super::order::{Links, arrange};
use super::packets::{ends, is_ambiguous, is_loop, is_once_each, mark_shared, move_repeats, pair_up, sort};
use crate::config::PostcardConfig;
use crate::decode::{ABSENT, MAX_HOPS};
use crate::event::{Basis, Nanos, Output};
use crate::hash::fold;
use crate::state::State;
use crate::state::hops::HopState;
use crate::state::pending::Postcard;
use crate::stats::{Partial, Unjoinable};

/// Pending postcards of one flow, at most; then the older half is settled, complete or not.
const MAX_PER_FLOW: usize = 256;

/// Flows settled per tick, at most.
const FLOWS_PER_TICK: usize = 4096;

/// How long after a gap in any stream a new path needs more confirmations, ns.
const NOISY: Nanos = 10_000_000_000;

/// The sets of one flow that are settled, and what for.
pub(super) struct Settling<'a> {
    pub(super) slot: u32,
    /// Sets whose first postcard came then or earlier are settled.
    until: Nanos,
    now: Nanos,
    pub(super) state: &'a mut State,
    pub(super) out: &'a mut dyn Output,
}

/// See the text of [`crate::postcards`]. All memory is reserved at the start.
#[derive(Debug)]
pub(crate) struct Postcards {
    config: PostcardConfig,
    links: Links,
    /// When sequence numbers were last missing.
    pub(crate) gaps: Gaps,
    /// Gaps are seen here.
    sequenced: bool,
    scratch: Vec<Postcard>,
    set: Vec<Postcard>,
}

impl Postcards {
    /// Reserves what is needed. `sequenced`: gaps in sequence numbers are seen here.
    pub(crate) fn new(config: PostcardConfig, sequenced: bool) -> Self {
        Self {
            links: Links::new(&config.links),
            gaps: Gaps::new(),
            sequenced,
            scratch: Vec::with_capacity(MAX_PER_FLOW),
            set: Vec::with_capacity(MAX_PER_FLOW),
            config,
        }
    }

    /// Are there links that could give an order?
    #[inline]
    pub(crate) fn is_linked(&self) -> bool {
        !self.links.is_empty()
    }

    /// Holds a postcard of the flow in `slot` until the others of its packet have come, and settles what is complete with
    /// it.
    pub(crate) fn hold(
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
            Some(slot) => {
                let now = postcard.received;
                self.add(postcard, &mut Settling { slot, until: Nanos::MAX, now, state, out })
            }
        };
        if let Err(why) = accepted {
            state.postcards.refuse(why);
        }
    }

    fn add(&mut self, postcard: &Postcard, settling: &mut Settling<'_>) -> Result<(), Unjoinable> {
        let (slot, state) = (settling.slot, &mut *settling.state);
        let matched = MatchedBy::of(postcard, self.is_linked())
            .filter(|_| !state.postcards.is_disabled())
            .ok_or(Unjoinable::NoOrder)?;
        let (flow, ..) = state.flows.parts(slot);
        if flow.path_length > 0 && flow.flags.order() == Basis::Measured {
            return Err(Unjoinable::Int);
        }
        let known = usize::from(flow.path_length);
        let pending = &mut state.postcards;
        pending.reserve_flow(slot);
        let by_signature = matched == MatchedBy::Signature;
        if by_signature && pending.of_packet(slot, postcard.signature).any(|other| postcard.repeats(other)) {
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
        } else if by_signature && flow.ends != 0 && known > 0 {
            self.settle_early(postcard.signature, known, settling);
        }
        Ok(())
    }

    /// Where there is no room for one more postcard, the flow that waits longest makes room.
    fn make_room(&mut self, settling: &mut Settling<'_>) {
        for _ in 0..4 {
            if !settling.state.postcards.is_full() {
                break;
            }
            let Some(slot) = settling.state.postcards.dequeue(Nanos::MAX) else { break };
            self.settle_due(&mut settling.of(slot));
        }
    }

    /// Settles what has waited long enough, a bounded part of it.
    pub(crate) fn tick(&mut self, now: Nanos, state: &mut State, out: &mut dyn Output) {
        let timeout = self.config.timeout;
        for _ in 0..FLOWS_PER_TICK {
            let Some(slot) = state.postcards.dequeue(now) else { break };
            let until = now.saturating_sub(timeout);
            self.settle_due(&mut Settling { slot, until, now, state, out });
            let oldest = state.postcards.of_flow(slot).map(|postcard| postcard.received).min();
            if let Some(oldest) = oldest {
                state.postcards.enqueue(slot, oldest.saturating_add(timeout));
            }
        }
    }

    /// Settles everything.
    pub(crate) fn finish(&mut self, now: Nanos, state: &mut State, out: &mut dyn Output) {
        while let Some(slot) = state.postcards.dequeue(Nanos::MAX) {
            self.settle_due(&mut Settling { slot, until: Nanos::MAX, now, state, out });
        }
    }

    /// The last postcard of a packet that went the flow's path came: it need not wait. Where it enters and leaves must be as
    /// before, or the path may go on.
    fn settle_early(&mut self, signature: u64, known: usize, settling: &mut Settling<'_>) {
        let slot = settling.slot;
        let mut set = std::mem::take(&mut self.set);
        set.extend(settling.state.postcards.of_packet(slot, signature).take(known + 1));
        if set.len() == known
            && let Ok(basis) = arrange(&mut set, &self.links)
            && ends(&set) == settling.state.postcards.flow_mut(slot).ends
            && let (flow, _, states) = settling.state.flows.parts(slot)
            && is_path(states, flow.path_length, &set)
        {
            let others = |postcard: &Postcard| postcard.signature != signature;
            settling.state.postcards.pull(slot, |_| {}, others);
            settling.join(&set, basis, MatchedBy::Signature);
        }
        set.clear();
        self.set = set;
    }

    /// Settles the sets of a flow that are due.
    fn settle_due(&mut self, settling: &mut Settling<'_>) {
        let slot = settling.slot;
        let mut postcards = std::mem::take(&mut self.scratch);
        settling.state.postcards.pull(slot, |postcard| postcards.push(*postcard), |_| false);
        if !settling.state.flows.is_used(slot) {
            settling.state.postcards.discard(postcards.len(), Partial::FlowGone);
            postcards.clear();
        }
        let linked = self.is_linked();
        let matched = |postcard: &Postcard| MatchedBy::of(postcard, linked).unwrap_or(MatchedBy::Flow);
        let mut order = sort(&mut postcards, matched);
        if mark_shared(&mut postcards, matched) {
            order = sort(&mut postcards, matched);
        }
        let (base, wide) = order;
        let proximity = i64::try_from(self.config.proximity).unwrap_or(i64::MAX);
        // The postcards before are in one node after the other; how long until the next?
        let mut latest = i64::MIN;
        let mut apart = |one: &Postcard, next: &Postcard| match (matched(one), matched(next)) {
            (MatchedBy::Time, MatchedBy::Time) => {
                latest = latest.max(Postcard::after(one.egress, base, wide));
                let gap = Postcard::after(next.ingress, base, wide).saturating_sub(latest);
                let far = gap.saturating_mul(next.units.stamp_ns.into()) > proximity;
                if far {
                    latest = i64::MIN;
                }
                far
            }
            (one_by, next_by) => one_by != next_by || one.signature != next.signature,
        };
        for set in postcards.chunk_by_mut(|one, next| !apart(one, next)) {
            if set.iter().any(|postcard| postcard.received <= settling.until) {
                self.settle(set, matched(&set[0]), settling);
            } else {
                for postcard in set {
                    settling.state.postcards.push(slot, &Postcard { shared: false, ..*postcard });
                }
            }
        }
        postcards.clear();
        self.scratch = postcards;
    }

    /// Decides about the postcards of a packet, of several, or of a flow.
    fn settle(&mut self, postcards: &mut [Postcard], matched: MatchedBy, settling: &mut Settling<'_>) {
        let repeats = if matched == MatchedBy::Time { move_repeats(postcards) } else { 0 };
        let (postcards, repeated) = postcards.split_at_mut(postcards.len() - repeats);
        let stats = &mut settling.state.postcards.stats;
        stats.released += repeated.len() as u64;
        stats.unjoinable[Unjoinable::Duplicate as usize] += repeated.len() as u64;
        match matched {
            MatchedBy::Time if !is_once_each(postcards) && !is_loop(postcards) => {
                self.settle_several(postcards, settling);
            }
            MatchedBy::Signature if is_ambiguous(postcards) => self.settle_flow(postcards, settling),
            MatchedBy::Flow => self.settle_flow(postcards, settling),
            // Counted where it is decided.
            _ => {
                let _ = self.conclude(postcards, matched, settling);
            }
        }
    }

    /// The latest postcard of each node and hop limit stands for the flow.
    fn settle_flow(&mut self, postcards: &mut [Postcard], settling: &mut Settling<'_>) {
        postcards
            .sort_unstable_by_key(|postcard| (postcard.hop_limit, postcard.reading.node, postcard.received));
        let mut set = std::mem::take(&mut self.set);
        let same = |one: &Postcard, next: &Postcard| {
            (one.hop_limit, one.reading.node) == (next.hop_limit, next.reading.node)
        };
        set.extend(postcards.chunk_by(same).filter_map(<[Postcard]>::last));
        for postcard in &mut set {
            // Of different packets: the time between their stamps means nothing.
            postcard.units.synchronised = false;
        }
        // Those that others stand for share their outcome.
        let more = postcards.len() - set.len();
        let outcome = self.conclude(&mut set, MatchedBy::Flow, settling);
        match outcome {
            Ok(()) => {
                let stats = &mut settling.state.postcards.stats;
                stats.released += more as u64;
                stats.joined += more as u64;
            }
            Err(why) => settling.state.postcards.discard(more, why),
        }
        set.clear();
        self.set = set;
    }

    /// Several packets, one soon after the other: the first postcard of each node is the first packet's, and so on, if
    /// nothing contradicts it.
    fn settle_several(&mut self, postcards: &mut [Postcard], settling: &mut Settling<'_>) {
        let mut sorted = std::mem::take(&mut self.set);
        sorted.extend_from_slice(postcards);
        let nodes = pair_up(postcards, &mut sorted);
        sorted.clear();
        self.set = sorted;
        match nodes {
            Some(nodes) => {
                for packet in postcards.chunks_mut(nodes) {
                    // Counted where it is decided.
                    let _ = self.conclude(packet, MatchedBy::Time, settling);
                }
            }
            None => settling.state.postcards.discard(postcards.len(), Partial::Indistinct),
        }
    }

    /// Joins the postcards of a set, if their path is known and confirmed; counts them in either case.
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
                settling.state.postcards.flow_mut(settling.slot).ends = ends(postcards);
                settling.join(postcards, basis, matched);
                Ok(())
            }
            Err(why) => {
                settling.state.postcards.discard(postcards.len(), why);
                Err(why)
            }
        }
    }

    /// Is the path of `postcards` the flow's?
    fn confirm(&self, postcards: &[Postcard], settling: &mut Settling<'_>) -> Result<(), Partial> {
        let Settling { slot, now, ref mut state, .. } = *settling;
        let (flow, _, states) = state.flows.parts(slot);
        if flow.path_length > 0 && flow.flags.order() == Basis::Measured {
            return Err(Partial::Int);
        }
        let known = if flow.path_length == 0 { &[] } else { &*states };
        let pending = state.postcards.flow_mut(slot);
        if is_path(known, flow.path_length, postcards) {
            pending.confirmations = 0;
            return Ok(());
        }
        let path = postcards
            .iter()
            .fold(postcards.len() as u64, |all, postcard| fold(all, postcard.reading.node.into()));
        if pending.confirmations == 0 || pending.candidate != path {
            let since = postcards.iter().map(|postcard| postcard.received).min().unwrap_or(0);
            (pending.candidate, pending.since, pending.confirmations) = (path, since, 0);
        }
        let since = pending.since.saturating_sub(self.config.timeout);
        let is_missing = |hop: &&HopState| postcards.iter().all(|postcard| postcard.reading.node != hop.node);
        if known.iter().filter(is_missing).any(|hop| self.gaps.any(hop.node, since)) {
            pending.confirmations = 0;
            return Err(Partial::Lost);
        }
        pending.confirmations = pending.confirmations.saturating_add(1);
        let noisy = !self.sequenced || self.gaps.any_within(NOISY, now);
        let needed = if noisy || is_part(postcards, known) {
            self.config.confirmations_after_loss
        } else {
            self.config.confirmations
        };
        if pending.confirmations < needed {
            return Err(Partial::Unconfirmed);
        }
        pending.confirmations = 0;
        Ok(())
    }
}

impl Settling<'_> {
    /// The same for all sets of another flow.
    fn of(&mut self, slot: u32) -> Settling<'_> {
        Settling { slot, until: Nanos::MAX, now: self.now, state: &mut *self.state, out: &mut *self.out }
    }

    /// When the middle one of the flow's postcards came.
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

    fn join(&mut self, postcards: &[Postcard], basis: Basis, matched: MatchedBy) {
        let stats = &mut self.state.postcards.stats;
        stats.released += postcards.len() as u64;
        stats.joined += postcards.len() as u64;
        stats.sets += 1;
        self.conclude(postcards, basis, matched);
    }
}

/// Are these the nodes of a path of `length` nodes, of which those in `known` are stored?
fn is_path(known: &[HopState], length: u16, postcards: &[Postcard]) -> bool {
    usize::from(length) == postcards.len()
        && known.iter().zip(postcards).all(|(hop, postcard)| hop.node == postcard.reading.node)
}

/// Does the known path hold all of these nodes, in this order, and more? That is what a lost postcard looks like.
fn is_part(postcards: &[Postcard], known: &[HopState]) -> bool {
    let mut rest = known.iter();
    postcards.iter().all(|postcard| rest.any(|hop| hop.node == postcard.reading.node))
}

//! Cards that wait, by flow, and what becomes of them.

use std::collections::VecDeque;

use super::order::{Links, arrange, way_in};
use super::{Card, Way};
use crate::config::PostcardConfig;
use crate::event::{Basis, Nanos, Sink};
use crate::flows::{ABSENT, HopState};
use crate::hash::fold;
use crate::state::{MOST_HOPS, State};
use crate::stats::{Partial, PostcardStats, Unjoinable};

const NONE: u32 = u32::MAX;

/// Cards that one flow may have waiting; then the older half is settled, complete or not.
const MOST_OF_A_FLOW: usize = 256;

/// Flows settled per tick, at most.
const FLOWS_PER_TICK: usize = 4096;

/// For so long after a gap in any stream a path that is new needs more to be believed, ns.
const NOISY: Nanos = 10_000_000_000;

/// Nodes whose latest gap is remembered.
const GAPS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Cell {
    next: u32,
    card: Card,
}

/// What waits for one flow, and which path it may have.
#[derive(Clone, Copy, Debug)]
struct Pending {
    head: u32,
    count: u16,
    queued: bool,
    confirmations: u8,
    /// Hash of the path that may be the flow's, and since when it was met.
    candidate: u64,
    since: Nanos,
    /// Hash of the interfaces by which the flow enters and leaves its path; 0: not known.
    ends: u64,
}

impl Pending {
    const NONE: Self =
        Self { head: NONE, count: 0, queued: false, confirmations: 0, candidate: 0, since: 0, ends: 0 };
}

/// When numbers were last missing.
#[derive(Debug)]
struct Gaps {
    by_node: Vec<Nanos>,
    /// Of a sender that forwards the cards of many nodes.
    unnamed: Nanos,
    latest: Nanos,
}

impl Gaps {
    fn of(node: u32) -> usize {
        fold(0, node.into()) as usize % GAPS
    }

    /// Was a number of `node` missing at `since` or later? Nodes share places: rather yes than no.
    fn any(&self, node: u32, since: Nanos) -> bool {
        self.by_node[Self::of(node)].max(self.unnamed) >= since
    }
}

/// What is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// Sets whose first card came then or earlier are settled.
    pub(crate) until: Nanos,
    pub(crate) now: Nanos,
}

/// See the module's text. All memory is reserved at the start.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) settings: PostcardConfig,
    links: Links,
    cells: Vec<Cell>,
    free: u32,
    flows: Vec<Pending>,
    /// Flows with cards, and when to look at them.
    queue: VecDeque<(u32, Nanos)>,
    gaps: Gaps,
    /// Gaps are seen here.
    sequenced: bool,
    pub(crate) counts: PostcardStats,
    scratch: Vec<Card>,
    set: Vec<Card>,
}

impl Held {
    pub(crate) fn new(settings: PostcardConfig, flows: usize, sequenced: bool) -> Self {
        let links = Links::new(&settings.links);
        let queue = if settings.cards > 0 { flows } else { 0 };
        Self {
            links,
            cells: Vec::with_capacity(settings.cards),
            free: NONE,
            flows: Vec::with_capacity(queue),
            queue: VecDeque::with_capacity(queue),
            gaps: Gaps { by_node: vec![0; GAPS], unnamed: 0, latest: 0 },
            sequenced,
            counts: PostcardStats::default(),
            scratch: Vec::with_capacity(MOST_OF_A_FLOW),
            set: Vec::with_capacity(MOST_OF_A_FLOW),
            settings,
        }
    }

    /// Numbers are missing in the stream of `node`, or of a sender that is none.
    pub(crate) fn note_gap(&mut self, node: Option<u32>, now: Nanos) {
        let place = match node {
            Some(node) => &mut self.gaps.by_node[Gaps::of(node)],
            None => &mut self.gaps.unnamed,
        };
        *place = now.max(*place);
        self.gaps.latest = now.max(self.gaps.latest);
    }

    /// The clock was set back to `now`: no gap lies behind that.
    pub(crate) fn set_back(&mut self, now: Nanos) {
        let Gaps { by_node, unnamed, latest } = &mut self.gaps;
        by_node.iter_mut().chain([unnamed, latest]).for_each(|at| *at = now.min(*at));
    }

    pub(crate) fn refuse(&mut self, why: Unjoinable) {
        self.counts.unjoinable[why as usize] += 1;
    }

    /// Are there links that could give an order?
    #[inline]
    pub(crate) fn is_linked(&self) -> bool {
        !self.links.is_empty()
    }

    /// Are cards of this kind held at all?
    #[inline]
    pub(crate) fn way(&self, card: &Card) -> Option<Way> {
        card.way(!self.links.is_empty()).filter(|_| self.settings.cards > 0)
    }

    /// Holds a card of the flow in `slot`, and settles what is complete with it.
    pub(crate) fn take(&mut self, slot: u32, card: &Card, state: &mut State, sink: &mut dyn Sink) {
        let Some(way) = self.way(card) else { return self.refuse(Unjoinable::NoOrder) };
        let (flow, ..) = state.flows.parts(slot);
        if flow.path_length > 0 && flow.flags.order() == Basis::Measured {
            return self.refuse(Unjoinable::Int);
        }
        let known = usize::from(flow.path_length);
        let at = slot as usize;
        if self.flows.len() <= at {
            self.flows.resize(at + 1, Pending::NONE);
        }
        if way == Way::Signature && self.of_packet(slot, card.signature).any(|other| card.is_again(other)) {
            return self.refuse(Unjoinable::Duplicate);
        }
        if !self.push(slot, card, state, sink) {
            return self.refuse(Unjoinable::NoRoom);
        }
        self.counts.held += 1;
        let pending = &mut self.flows[at];
        if !pending.queued {
            pending.queued = true;
            self.queue.push_back((slot, card.received.saturating_add(self.settings.timeout)));
        }
        if usize::from(pending.count) >= MOST_OF_A_FLOW {
            let until = self.median(slot);
            self.close(slot, Closing { until, now: card.received }, state, sink);
        } else if way == Way::Signature && self.flows[at].ends != 0 && known > 0 {
            self.close_early(slot, card.signature, known, state, sink);
        }
    }

    fn cards_of(&self, slot: u32) -> impl Iterator<Item = &Card> {
        let mut at = self.flows.get(slot as usize).map_or(NONE, |pending| pending.head);
        std::iter::from_fn(move || {
            let cell = self.cells.get(at as usize)?;
            at = cell.next;
            Some(&cell.card)
        })
    }

    fn of_packet(&self, slot: u32, signature: u64) -> impl Iterator<Item = &Card> {
        self.cards_of(slot).filter(move |card| card.signature == signature)
    }

    /// When the middle one of a flow's cards came.
    fn median(&mut self, slot: u32) -> Nanos {
        let mut times = [0; MOST_OF_A_FLOW];
        let mut count = 0;
        for (time, card) in times.iter_mut().zip(self.cards_of(slot)) {
            *time = card.received;
            count += 1;
        }
        let times = &mut times[..count];
        times.sort_unstable();
        times.get(count / 2).copied().unwrap_or(0)
    }

    /// Puts a card with its flow. `false`: there is no room.
    fn push(&mut self, slot: u32, card: &Card, state: &mut State, sink: &mut dyn Sink) -> bool {
        let full = |held: &Self| held.free == NONE && held.cells.len() == held.settings.cards;
        // The flow that waits longest makes room.
        for _ in 0..4 {
            if !full(self) {
                break;
            }
            let Some((oldest, _)) = self.queue.pop_front() else { break };
            self.flows[oldest as usize].queued = false;
            self.close(oldest, Closing { until: Nanos::MAX, now: card.received }, state, sink);
        }
        if full(self) { false } else { self.put(slot, card) }
    }

    fn put(&mut self, slot: u32, card: &Card) -> bool {
        let pending = &mut self.flows[slot as usize];
        let cell = Cell { next: pending.head, card: *card };
        let at = match self.cells.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.next);
                *free = cell;
                at
            }
            None => {
                self.cells.push(cell);
                self.cells.len() as u32 - 1
            }
        };
        (pending.head, pending.count) = (at, pending.count + 1);
        true
    }

    /// Takes a flow's cards out, into `into`; those that `leave` wants stay.
    fn pull(&mut self, slot: u32, into: &mut Vec<Card>, mut leave: impl FnMut(&Card) -> bool) {
        let Some(pending) = self.flows.get_mut(slot as usize) else { return };
        let mut at = std::mem::replace(&mut pending.head, NONE);
        while let Some(cell) = self.cells.get_mut(at as usize) {
            let next = cell.next;
            if leave(&cell.card) {
                cell.next = std::mem::replace(&mut pending.head, at);
            } else {
                into.push(cell.card);
                cell.next = std::mem::replace(&mut self.free, at);
                pending.count -= 1;
            }
            at = next;
        }
    }

    /// The flow in `slot` is no more.
    pub(crate) fn forget(&mut self, slot: u32) {
        let mut gone = std::mem::take(&mut self.scratch);
        self.pull(slot, &mut gone, |_| false);
        self.drop_cards(gone.len(), Partial::FlowGone);
        gone.clear();
        self.scratch = gone;
        if let Some(pending) = self.flows.get_mut(slot as usize) {
            *pending = Pending { queued: pending.queued, ..Pending::NONE };
        }
    }

    fn drop_cards(&mut self, count: usize, why: Partial) {
        self.counts.released += count as u64;
        self.counts.partial[why as usize] += count as u64;
    }

    /// Settles what has waited long enough, a bounded part of it.
    pub(crate) fn turn(&mut self, now: Nanos, state: &mut State, sink: &mut dyn Sink) {
        let timeout = self.settings.timeout;
        for _ in 0..FLOWS_PER_TICK {
            let Some((slot, _)) = self.queue.front().copied().filter(|(_, due)| *due <= now) else { break };
            self.queue.pop_front();
            self.flows[slot as usize].queued = false;
            self.close(slot, Closing { until: now.saturating_sub(timeout), now }, state, sink);
            if let Some(oldest) = self.cards_of(slot).map(|card| card.received).min() {
                self.flows[slot as usize].queued = true;
                self.queue.push_back((slot, oldest.saturating_add(timeout)));
            }
        }
    }

    /// Settles everything.
    pub(crate) fn finish(&mut self, now: Nanos, state: &mut State, sink: &mut dyn Sink) {
        while let Some((slot, _)) = self.queue.pop_front() {
            self.flows[slot as usize].queued = false;
            self.close(slot, Closing { until: Nanos::MAX, now }, state, sink);
        }
    }

    /// The last card of a packet that went the flow's path came: it need not wait. Where it enters and leaves must be as
    /// before, or the path may go on.
    fn close_early(
        &mut self,
        slot: u32,
        signature: u64,
        known: usize,
        state: &mut State,
        sink: &mut dyn Sink,
    ) {
        let mut set = std::mem::take(&mut self.set);
        set.extend(self.of_packet(slot, signature).take(known + 1));
        if set.len() == known
            && let Ok(basis) = arrange(&mut set, &self.links)
            && ends(&set) == self.flows[slot as usize].ends
            && is_path(state.flows.parts(slot).2, &set)
        {
            let mut gone = std::mem::take(&mut self.scratch);
            self.pull(slot, &mut gone, |card| card.signature != signature);
            gone.clear();
            self.scratch = gone;
            self.join(slot, &set, (basis, Way::Signature), state, sink);
        }
        set.clear();
        self.set = set;
    }

    /// Settles the sets of a flow that are due.
    fn close(&mut self, slot: u32, closing: Closing, state: &mut State, sink: &mut dyn Sink) {
        let mut cards = std::mem::take(&mut self.scratch);
        self.pull(slot, &mut cards, |_| false);
        if !state.flows.is_used(slot) {
            self.drop_cards(cards.len(), Partial::FlowGone);
            cards.clear();
        }
        let linked = !self.links.is_empty();
        let way = |card: &Card| card.way(linked).unwrap_or(Way::Flow);
        let mut order = sort(&mut cards, way);
        if mark_shared(&mut cards, way) {
            order = sort(&mut cards, way);
        }
        let (base, wide) = order;
        let proximity = i64::try_from(self.settings.proximity).unwrap_or(i64::MAX);
        // The cards before are in one node after the other; how long until the next?
        let mut latest = i64::MIN;
        let mut apart = |one: &Card, next: &Card| match (way(one), way(next)) {
            (Way::Time, Way::Time) => {
                latest = latest.max(Card::after(one.egress, base, wide));
                let gap = Card::after(next.ingress, base, wide).saturating_sub(latest);
                let far = gap.saturating_mul(next.units.stamp_ns.into()) > proximity;
                if far {
                    latest = i64::MIN;
                }
                far
            }
            (one_way, next_way) => one_way != next_way || one.signature != next.signature,
        };
        for set in cards.chunk_by_mut(|one, next| !apart(one, next)) {
            if set.iter().any(|card| card.received <= closing.until) {
                self.settle(slot, set, way(&set[0]), (closing, state), sink);
            } else {
                set.iter().for_each(|card| {
                    self.put(slot, &Card { shared: false, ..*card });
                });
            }
        }
        cards.clear();
        self.scratch = cards;
    }

    /// Decides about the cards of a packet, of several, or of a flow.
    fn settle(
        &mut self,
        slot: u32,
        cards: &mut [Card],
        way: Way,
        (closing, state): (Closing, &mut State),
        sink: &mut dyn Sink,
    ) {
        let again = if way == Way::Time { repeats(cards) } else { 0 };
        let (cards, double) = cards.split_at_mut(cards.len() - again);
        self.counts.released += double.len() as u64;
        self.counts.unjoinable[Unjoinable::Duplicate as usize] += double.len() as u64;
        match way {
            Way::Time if !is_once_each(cards) && !is_circle(cards) => {
                self.settle_several(slot, cards, (closing, state), sink)
            }
            Way::Signature if is_ambiguous(cards) => {
                self.settle_flow(slot, cards, (closing, state), sink);
            }
            Way::Flow => self.settle_flow(slot, cards, (closing, state), sink),
            _ => self.judge(slot, cards, way, (closing, state), sink),
        }
    }

    /// The latest card of each node and hop limit stands for the flow.
    fn settle_flow(
        &mut self,
        slot: u32,
        cards: &mut [Card],
        (closing, state): (Closing, &mut State),
        sink: &mut dyn Sink,
    ) {
        cards.sort_unstable_by_key(|card| (card.hop_limit, card.reading.node, card.received));
        let mut set = std::mem::take(&mut self.set);
        let same = |one: &Card, next: &Card| {
            (one.hop_limit, one.reading.node) == (next.hop_limit, next.reading.node)
        };
        set.extend(cards.chunk_by(same).filter_map(<[Card]>::last));
        for card in &mut set {
            // Of different packets: what lies between their stamps means nothing.
            card.units.synchronised = false;
        }
        // Those that others stand for fare as they do.
        let more = cards.len() - set.len();
        let outcome = self.conclude(slot, &mut set, Way::Flow, (closing, state), sink);
        self.counts.released += more as u64;
        match outcome {
            Ok(()) => self.counts.joined += more as u64,
            Err(why) => self.counts.partial[why as usize] += more as u64,
        }
        set.clear();
        self.set = set;
    }

    /// Several packets, one soon after the other: the first card of each node is the first packet's, and so on, if nothing
    /// contradicts it.
    fn settle_several(
        &mut self,
        slot: u32,
        cards: &mut [Card],
        (closing, state): (Closing, &mut State),
        sink: &mut dyn Sink,
    ) {
        let mut sorted = std::mem::take(&mut self.set);
        sorted.extend_from_slice(cards);
        let nodes = pair_up(cards, &mut sorted);
        sorted.clear();
        self.set = sorted;
        match nodes {
            Some(nodes) => {
                for packet in cards.chunks_mut(nodes) {
                    self.judge(slot, packet, Way::Time, (closing, &mut *state), sink);
                }
            }
            None => self.drop_cards(cards.len(), Partial::Indistinct),
        }
    }

    fn judge(
        &mut self,
        slot: u32,
        cards: &mut [Card],
        way: Way,
        (closing, state): (Closing, &mut State),
        sink: &mut dyn Sink,
    ) {
        // Counted where it is decided.
        let _ = self.conclude(slot, cards, way, (closing, state), sink);
    }

    /// Joins the cards of a set, if their path is known and believed; counts them either way.
    fn conclude(
        &mut self,
        slot: u32,
        cards: &mut [Card],
        way: Way,
        (closing, state): (Closing, &mut State),
        sink: &mut dyn Sink,
    ) -> Result<(), Partial> {
        let outcome = if cards.len() > MOST_HOPS {
            Err(Partial::TooLong)
        } else {
            arrange(cards, &self.links).and_then(|basis| {
                self.believe(slot, cards, closing, state)?;
                Ok(basis)
            })
        };
        match outcome {
            Ok(basis) => {
                self.flows[slot as usize].ends = ends(cards);
                self.join(slot, cards, (basis, way), state, sink);
                Ok(())
            }
            Err(why) => {
                self.drop_cards(cards.len(), why);
                Err(why)
            }
        }
    }

    fn join(
        &mut self,
        slot: u32,
        cards: &[Card],
        (basis, way): (Basis, Way),
        state: &mut State,
        sink: &mut dyn Sink,
    ) {
        self.counts.released += cards.len() as u64;
        self.counts.joined += cards.len() as u64;
        self.counts.sets += 1;
        state.conclude(slot, cards, (basis, way), sink);
    }

    /// Is the path of `cards` the flow's?
    fn believe(
        &mut self,
        slot: u32,
        cards: &[Card],
        closing: Closing,
        state: &mut State,
    ) -> Result<(), Partial> {
        let (flow, _, states) = state.flows.parts(slot);
        if flow.path_length > 0 && flow.flags.order() == Basis::Measured {
            return Err(Partial::Int);
        }
        let known = if flow.path_length == 0 { &[] } else { &*states };
        let pending = &mut self.flows[slot as usize];
        if is_path(known, cards) {
            pending.confirmations = 0;
            return Ok(());
        }
        let path = cards.iter().fold(cards.len() as u64, |all, card| fold(all, card.reading.node.into()));
        if pending.confirmations == 0 || pending.candidate != path {
            let since = cards.iter().map(|card| card.received).min().unwrap_or(0);
            (pending.candidate, pending.since, pending.confirmations) = (path, since, 0);
        }
        let since = pending.since.saturating_sub(self.settings.timeout);
        let is_missing = |hop: &&HopState| cards.iter().all(|card| card.reading.node != hop.node);
        if known.iter().filter(is_missing).any(|hop| self.gaps.any(hop.node, since)) {
            pending.confirmations = 0;
            return Err(Partial::Lost);
        }
        pending.confirmations = pending.confirmations.saturating_add(1);
        let noisy =
            !self.sequenced || (self.gaps.latest > 0 && closing.now.saturating_sub(self.gaps.latest) < NOISY);
        let needed = if noisy || is_part(cards, known) {
            self.settings.confirmations_after_loss
        } else {
            self.settings.confirmations
        };
        if pending.confirmations < needed {
            return Err(Partial::Unconfirmed);
        }
        pending.confirmations = 0;
        Ok(())
    }
}

fn is_path(known: &[HopState], cards: &[Card]) -> bool {
    known.len() == cards.len() && known.iter().zip(cards).all(|(hop, card)| hop.node == card.reading.node)
}

/// Does the known path hold all of these nodes, in this order, and more? That is what a lost card looks like.
fn is_part(cards: &[Card], known: &[HopState]) -> bool {
    let mut rest = known.iter();
    cards.iter().all(|card| rest.any(|hop| hop.node == card.reading.node))
}

/// The interfaces by which a packet entered and left its path; 0: not known.
fn ends(cards: &[Card]) -> u64 {
    let (Some(first), Some(last)) = (cards.first(), cards.last()) else { return 0 };
    let (way_in, way_out) = (first.reading.link >> 16, last.reading.egress());
    if first.reading.level_2 || way_in == 0xffff || way_out == ABSENT {
        return 0;
    }
    fold(u64::from(way_in), u64::from(way_out)).max(1)
}

/// Moves cards that came twice to the end and tells how many. They lie in the order of their stamps.
fn repeats(cards: &mut [Card]) -> usize {
    let mut kept = 0;
    for at in 0..cards.len() {
        let again = cards[..kept].iter().rev().take_while(|card| card.ingress == cards[at].ingress);
        if !again.into_iter().any(|card| card.is_again(&cards[at])) {
            cards.swap(kept, at);
            kept += 1;
        }
    }
    cards.len() - kept
}

fn is_once_each(cards: &[Card]) -> bool {
    !any_alike(cards, |card| card.reading.node)
}

/// Did a node see the packet twice, with the same hop limit? Then they are several packets, or a circle of bridges.
fn is_ambiguous(cards: &[Card]) -> bool {
    any_alike(cards, |card| (card.reading.node, card.hop_limit))
}

fn any_alike<T: PartialEq>(cards: &[Card], who: impl Fn(&Card) -> T) -> bool {
    let mut rest = cards;
    while let [card, others @ ..] = rest {
        if others.iter().any(|other| who(other) == who(card)) {
            return true;
        }
        rest = others;
    }
    false
}

/// Did one packet go in a circle? `cards` lie in the order of their stamps. It entered the first node once, from outside; and
/// wherever it came by again, by the same interface, it came from the same node; it left the last node once, and bridges lowered no hop
/// limit. Of several packets the first card has its like, or the last where they came by several ways, and where one of theirs was
/// lost, nodes seem to follow others than before.
fn is_circle(cards: &[Card]) -> bool {
    let Some((first, later)) = cards.split_first() else { return false };
    let first_entry = way_in(first);
    if first_entry.is_none() || later.iter().any(|card| way_in(card).is_none() || way_in(card) == first_entry)
    {
        return false;
    }
    let way_out = |card: &Card| (card.reading.node, card.reading.egress());
    let Some((last, earlier)) = cards.split_last() else { return false };
    if last.reading.egress() == ABSENT || earlier.iter().any(|card| way_out(card) == way_out(last)) {
        return false;
    }
    if later.iter().any(|card| card.hop_limit != first.hop_limit) {
        return false;
    }
    let step = |pair: &[Card]| (pair[0].reading.node, way_in(&pair[1]));
    cards.windows(2).all(|pair| {
        let (from, into) = step(pair);
        let elsewhere = |(other, entry)| entry == into && other != from;
        from != pair[1].reading.node && !cards.windows(2).map(step).any(elsewhere)
    })
}

/// Sorts cards by way, packet and time. Tells what the stamps of those that are joined by time are counted from, and whether all of
/// them are wide.
fn sort(cards: &mut [Card], way: impl Fn(&Card) -> Way) -> (u64, bool) {
    let timed = || cards.iter().filter(|card| way(card) == Way::Time);
    let base = timed().next().map_or(0, |card| card.ingress);
    let wide = timed().all(|card| card.wide);
    cards.sort_unstable_by_key(|card| match way(card) {
        way @ Way::Time => (way as u8, 0, Card::after(card.ingress, base, wide), card.reading.node),
        way => (way as u8, card.signature, card.received.cast_signed(), card.reading.node),
    });
    (base, wide)
}

/// Of sorted cards, marks those whose signature several packets share, and whose stamps tell these apart. Are there any?
fn mark_shared(cards: &mut [Card], way: impl Fn(&Card) -> Way) -> bool {
    let mut any = false;
    let alike = |one: &Card, next: &Card| way(one) == way(next) && one.signature == next.signature;
    for set in cards.chunk_by_mut(alike) {
        if way(&set[0]) == Way::Signature && set.iter().all(Card::has_time) && is_ambiguous(set) {
            set.iter_mut().for_each(|card| card.shared = true);
            any = true;
        }
    }
    any
}

/// Sorts the cards of several packets by packet and tells how many nodes each packet met. `None`: they cannot be told
/// apart. `sorted` holds the same cards.
fn pair_up(cards: &mut [Card], sorted: &mut [Card]) -> Option<usize> {
    let base = cards.first()?.ingress;
    let wide = cards.iter().all(|card| card.wide);
    let begins = |card: &Card| Card::after(card.ingress, base, wide);
    sorted.sort_unstable_by_key(|card| (card.reading.node, begins(card)));
    let packets = sorted.iter().take_while(|card| card.reading.node == sorted[0].reading.node).count();
    let mut runs = sorted.chunk_by(|one, next| one.reading.node == next.reading.node);
    if !runs.all(|run| run.len() == packets) {
        return None;
    }
    let nodes = sorted.len() / packets;
    for (at, card) in cards.iter_mut().enumerate() {
        *card = sorted[at % nodes * packets + at / nodes];
    }
    cards.chunks_mut(nodes).for_each(|packet| packet.sort_unstable_by_key(begins));
    // Each packet must leave a node after the one before it has come to the next: then no other pairs are possible.
    let ends = |card: &Card| Card::after(card.egress, base, wide);
    let distinct = cards.windows(nodes + 1).enumerate().all(|(at, window)| {
        let (one, later) = (&window[0], &window[nodes]);
        let same = one.reading.node == later.reading.node;
        let is_last = at % nodes + 1 == nodes;
        same && (is_last || begins(&window[1]) < ends(later))
    });
    distinct.then_some(nodes)
}

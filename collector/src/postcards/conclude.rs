//! What a joined set of cards says of its flow.

use detect::Observation;

use super::{Card, Way};
use crate::config::Units;
use crate::event::{Basis, Sink};
use crate::flows::{ABSENT, Flags};
use crate::reading::{Ends, Hops, NO_VALUE, Reading};
use crate::state::{Head, State};
use crate::tell::{About, Teller};
use crate::update::{held, tell_hop_latency};

/// The cards of a packet as its hops.
#[derive(Clone, Copy, Debug)]
struct Cards<'a> {
    cards: &'a [Card],
    units: Units,
}

impl<'a> Hops for Cards<'a> {
    type Record = &'a Card;

    fn count(self) -> usize {
        self.cards.len()
    }

    fn units(self) -> Units {
        self.units
    }

    fn records(self, from: usize) -> impl ExactSizeIterator<Item = Self::Record> {
        self.cards.get(from..).unwrap_or_default().iter()
    }

    fn node(self, record: Self::Record) -> u32 {
        record.reading.node
    }

    fn read(self, record: Self::Record) -> Reading {
        record.reading
    }

    fn ends(self) -> Ends {
        let wide = self.cards.iter().all(|card| card.wide);
        let cut = |stamp: u64| if wide || stamp == NO_VALUE { stamp } else { stamp & 0xffff_ffff };
        Ends {
            ingress: cut(self.cards.first().map_or(NO_VALUE, |card| card.ingress)),
            egress: cut(self.cards.last().map_or(NO_VALUE, |card| card.egress)),
            wide,
        }
    }
}

impl State {
    /// Takes the path, latency and rules of a flow from cards in forwarding order. What they say of nodes was taken before.
    pub(super) fn conclude(
        &mut self,
        slot: u32,
        cards: &[Card],
        (basis, way): (Basis, Way),
        sink: &mut dyn Sink,
    ) {
        let (Some(first), Some((flow, ..))) = (cards.first(), self.flows.get(slot)) else { return };
        let units = Units { synchronised: first.units.synchronised && way != Way::Flow, ..first.units };
        let hops = Cards { cards, units };
        let ts = cards.iter().map(|card| card.received).max().unwrap_or(0);
        let about = About { ts, origin: first.origin, key: flow.key, has_flow: true, profile: first.profile };
        let head = Head { about, basis, ..Head::none() };
        if self.flows.context(slot) != self.context {
            self.refresh(slot, sink);
        }
        let (flow, _, states) = self.flows.parts(slot);
        let known = if flow.path_length == 0 { &[] } else { &*states };
        let same = known.len() == cards.len()
            && known.iter().zip(cards).all(|(hop, card)| hop.node == card.reading.node);
        if !same {
            self.set_path(slot, &head, hops, sink);
            self.tell_new_hops(slot, &head, cards, sink);
        }
        self.conclude_values(slot, &head, hops, sink);
    }

    /// Nodes that were not on the path when their cards came have told nothing yet.
    fn tell_new_hops(&mut self, slot: u32, head: &Head, cards: &[Card], sink: &mut dyn Sink) {
        let (flow, _, states) = self.flows.parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        for (state, card) in states.iter_mut().zip(cards) {
            if state.told == ABSENT && card.reading.latency != NO_VALUE {
                state.latest = held(card.reading.latency);
                (state.link, state.level_2) = (card.reading.link, card.reading.level_2);
                tell_hop_latency(state, &mut teller);
            }
        }
    }

    fn conclude_values(&mut self, slot: u32, head: &Head, hops: Cards<'_>, sink: &mut dyn Sink) {
        let latencies = || hops.cards.iter().map(|card| card.reading.latency);
        let total = latencies()
            .try_fold(0_u64, |sum, latency| (latency != NO_VALUE).then(|| sum.saturating_add(latency)));
        let (flow, cold, _) = self.flows.hot_parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        flow.flags.set_order(head.basis);
        let latency = flow.take_total(cold, hops, total.unwrap_or(NO_VALUE), &mut teller);
        if self.detection.rules.is_empty() {
            return;
        }
        self.scratch.values.clear();
        self.scratch.values.extend(hops.cards.iter().map(|card| card.reading.values()));
        let observation = Observation {
            flow_latency: (latency != NO_VALUE).then_some(latency),
            looped: flow.flags.has(Flags::LOOP),
            hops: &self.scratch.values,
        };
        let rules = self.detection.rules.evaluate_with(&observation, self.memories.of(slot));
        if rules != flow.rules {
            flow.take_rules(rules, &mut teller);
        }
    }
}

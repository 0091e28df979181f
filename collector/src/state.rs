//! The state of the network as reports tell it, and what one report does to it.

use std::sync::Arc;

use detect::{Detection, HopValues, Metric};
use wire::FlowKey;

use crate::absorb::Removals;
use crate::config::Units;
use crate::event::{Basis, Kind, Nanos, Rollup, Sink};
use crate::flows::{ABSENT, Admission, Cold, Flags, Flow, Flows, HopState};
use crate::index::NO_SLOT;
use crate::memories::Memories;
use crate::postcards::directory::{Directory, Resolved};
use crate::postcards::{Card, Held};
use crate::reading::{
    All, Ends, Hops, NO_VALUE, NodeAlone, Places, Plan, ReadHops, Reading, RecordKind, Stacked,
};
use crate::series::{Merged, Series};
use crate::sketch::Sketches;
use crate::stats::Unjoinable;
use crate::tell::{About, Origin, Teller};
use crate::update::{WIDEST, held, tell_hop_latency};

/// The most hops a report can tell: one-word hops in the longest INT stack.
pub(crate) const MOST_HOPS: usize = 256;

/// What a report says beside its hops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) about: About,
    /// The flow's hash under the collector's seed.
    pub(crate) hash: u64,
    /// Can the flow's path be read from the hops?
    pub(crate) whole_path: bool,
    /// E and M.
    pub(crate) flags: Flags,
    /// How the order of the hops is known.
    pub(crate) basis: Basis,
}

/// A report that is decoded and waits to be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) head: Head,
    /// The records of its stack, and the plan for them.
    pub(crate) records: &'a [u8],
    pub(crate) plan: u8,
    /// Where its flow probably is.
    pub(crate) slot: u32,
}

/// Where node-level values are kept.
#[derive(Debug)]
pub(crate) struct Levels {
    pub(crate) nodes: Series,
    pub(crate) queues: Series,
    pub(crate) congestion: Series,
    pub(crate) links: Series,
    pub(crate) sketches: Sketches,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) flows: Flows,
    pub(crate) levels: Levels,
    pub(crate) detection: Arc<Detection>,
    /// What rules remember of each flow.
    pub(crate) memories: Memories,
    /// Counts swaps of `detection`.
    pub(crate) generation: u32,
    /// Counts removals of node-level keys: slots remembered under an older one are looked up again.
    pub(crate) epoch: u32,
    /// Changes whenever a flow must be brought up to date: with the second, the generation, the epoch.
    pub(crate) context: u64,
    pub(crate) second: u32,
    pub(crate) minutes: bool,
    pub(crate) counts: Counts,
    pub(crate) scratch: Scratch,
    /// For whoever keeps a copy of what is known here.
    pub(crate) removals: Option<Removals>,
    /// Postcards that wait for others. Taken out while it works on what is here.
    pub(crate) held: Option<Box<Held>>,
    /// Which flows are meant by Flow IDs.
    pub(crate) directory: Directory,
}

/// What became of reports and what was told.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Reports that updated a flow.
    pub(crate) flow_reports: u64,
    /// Reports that updated node-level state only: they name no flow, or do not tell its path.
    pub(crate) node_reports: u64,
    /// Reports of flows for which there was no room.
    pub(crate) unadmitted: u64,
    pub(crate) expired: u64,
    pub(crate) events: [u64; Kind::ALL.len()],
}

#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: Vec<u32>,
    sorted: Vec<u32>,
    states: Vec<HopState>,
    pub(crate) values: Vec<HopValues>,
}

impl State {
    pub(crate) fn new(flows: Flows, levels: Levels, detection: Arc<Detection>, minutes: bool) -> Self {
        let scratch = Scratch {
            path: Vec::with_capacity(MOST_HOPS),
            sorted: Vec::with_capacity(MOST_HOPS),
            states: Vec::with_capacity(MOST_HOPS),
            values: Vec::with_capacity(MOST_HOPS),
        };
        let mut state = Self {
            flows,
            levels,
            detection: Arc::clone(&detection),
            memories: Memories::default(),
            generation: 0,
            epoch: 1,
            context: 1,
            second: 0,
            minutes,
            counts: Counts::default(),
            scratch,
            removals: None,
            held: None,
            directory: Directory::for_flows(0, 0, &[]),
        };
        state.set_detection(detection);
        state
    }

    /// Puts thresholds and rules in force, for the next report of each flow.
    pub(crate) fn set_detection(&mut self, detection: Arc<Detection>) {
        let thresholds = &detection.thresholds;
        let least = |metric: Metric| {
            (0..thresholds.set_count())
                .map(|set| thresholds.get(set as u16)[metric as usize])
                .min()
                .unwrap_or(0)
        };
        self.levels.queues.set_threshold(least(Metric::QueueOccupancy));
        self.levels.congestion.set_threshold(least(Metric::QueueCongestion));
        self.levels.links.set_threshold(least(Metric::LinkUtilization));
        self.memories.set(&detection.rules, self.flows.capacity());
        self.detection = detection;
        self.generation = self.generation.wrapping_add(1);
        self.context += 1;
    }

    /// Reports about flows, with their paths as INT stacks of one layout. Each length of record has code of its own, so
    /// that no access to an item needs more than one comparison. The caller has counted them among those that update a
    /// flow.
    pub(crate) fn take_stacks(&mut self, reports: &[Waiting<'_>], plan: &Plan, sink: &mut dyn Sink) {
        macro_rules! by_words {
            ($($words:literal)*) => {
                match plan.words {
                    $($words => self.take_records::<_, $words>(reports, (plan, plan), sink),)*
                    _ => {}
                }
            };
        }
        match (plan.kind, plan.words) {
            (RecordKind::All, 7) => self.take_records::<_, 7>(reports, (plan, All::<7>), sink),
            (RecordKind::All, 8) => self.take_records::<_, 8>(reports, (plan, All::<8>), sink),
            (RecordKind::All, _) => self.take_records::<_, 9>(reports, (plan, All::<9>), sink),
            (RecordKind::NodeAlone, _) => self.take_records::<_, 1>(reports, (plan, NodeAlone), sink),
            (RecordKind::Other, _) => by_words!(1 2 3 4 5 6 7 8 9 10 11 12 13),
        }
    }

    #[inline(never)]
    fn take_records<P: Places, const W: usize>(
        &mut self,
        reports: &[Waiting<'_>],
        (plan, places): (&Plan, P),
        sink: &mut dyn Sink,
    ) {
        for report in reports {
            let hops = Stacked::<_, W>::new(report.records, plan, places);
            self.take(&report.head, report.slot, hops, sink);
        }
    }

    /// A report about a flow, with its path. The caller has counted it among those that update a flow.
    #[inline(always)]
    pub(crate) fn take<H: Hops>(&mut self, head: &Head, hint: u32, hops: H, sink: &mut dyn Sink) {
        match self.enter(head, hint, sink) {
            Some(slot) => self.update(slot, head, hops, sink),
            None => {
                self.counts.flow_reports -= 1;
                self.take_nodes(head, hops, sink);
            }
        }
    }

    /// A report about a flow whose hops may not be its path: of a packet that was dropped on its way or sent on half-way,
    /// or one without hops.
    pub(crate) fn take_part<H: Hops>(&mut self, head: &Head, hops: H, sink: &mut dyn Sink) {
        let Some(slot) = self.enter(head, NO_SLOT, sink) else {
            self.take_nodes(head, hops, sink);
            return;
        };
        self.counts.flow_reports += 1;
        let (flow, _, states) = self.flows.parts(slot);
        let same = hops.count() == usize::from(flow.path_length)
            && states.iter().zip(hops.records(0)).all(|(state, record)| state.node == hops.node(record));
        if same && hops.count() > 0 {
            self.update(slot, head, hops, sink);
        } else {
            flow.reports += 1;
            flow.last_seen = flow.last_seen.max(head.about.ts);
            self.take_nodes(head, hops, sink);
        }
    }

    /// Node-level state only.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_nodes<H: Hops>(&mut self, head: &Head, hops: H, sink: &mut dyn Sink) {
        let thresholds = &self.detection.thresholds;
        let set = head.about.flow().map_or(0, |flow| thresholds.set_for(&flow));
        let mut teller =
            Teller { sink, counts: &mut self.counts.events, about: &head.about, thresholds, set };
        for record in hops.records(0) {
            let reading = hops.read(record);
            self.levels.take(&mut HopState::passing(&reading), &reading, 0, &mut teller);
        }
    }

    /// The slot of the report's flow, made if need be, and up to date. `hint` is where it probably is.
    #[inline(always)]
    fn enter(&mut self, head: &Head, hint: u32, sink: &mut dyn Sink) -> Option<u32> {
        if self.flows.is_ready(hint, &head.about.key, self.context) {
            return Some(hint);
        }
        self.enter_otherwise(head, hint, sink)
    }

    #[inline(never)]
    fn enter_otherwise(&mut self, head: &Head, hint: u32, sink: &mut dyn Sink) -> Option<u32> {
        let slot = match self.flows.find(&head.about.key, head.hash, hint) {
            NO_SLOT => self.admit(head, sink)?,
            slot => slot,
        };
        if self.flows.context(slot) != self.context {
            self.refresh(slot, sink);
        }
        Some(slot)
    }

    #[cold]
    #[inline(never)]
    fn admit(&mut self, head: &Head, sink: &mut dyn Sink) -> Option<u32> {
        if !head.whole_path {
            self.counts.node_reports += 1;
            return None;
        }
        let now = head.about.ts;
        let place = match self.flows.admit(head.hash, self.second) {
            Admission::Free(place) => place,
            Admission::Evict(place, slot) => {
                self.leave(slot, now, sink);
                place
            }
            Admission::Refused => {
                self.counts.unadmitted += 1;
                return None;
            }
        };
        let slot = self.flows.insert(place, head.about.key, head.hash, now, self.second);
        self.counts.unadmitted += u64::from(slot.is_none());
        if let Some(slot) = slot {
            self.memories.forget(slot);
            self.directory.enter(&head.about.key, slot);
        }
        slot
    }

    /// Brings a flow up to date with the second, the thresholds and the node-level tables.
    #[inline(never)]
    pub(crate) fn refresh(&mut self, slot: u32, sink: &mut dyn Sink) {
        self.end_minute(slot, sink);
        let (flow, cold, states) = self.flows.parts(slot);
        if cold.epoch != self.epoch {
            cold.epoch = self.epoch;
            states.iter_mut().for_each(HopState::unresolve);
        }
        if cold.generation != self.generation {
            cold.generation = self.generation;
            flow.set = self.detection.thresholds.set_for(&flow.key);
            let thresholds = self.detection.thresholds.get(flow.set);
            flow.band = thresholds[Metric::HopLatency as usize].min(WIDEST);
            flow.rules = 0;
            flow.guard(cold, thresholds[Metric::FlowLatency as usize]);
        }
        flow.context = self.context;
        // How busy it was since the last time is how busy it is.
        let lately =
            (flow.reports as u32).wrapping_sub(std::mem::replace(&mut cold.touched, flow.reports as u32));
        self.flows.touch(slot, u64::from(lately), self.second);
    }

    /// Tells a flow's finished minute and begins the present one.
    pub(crate) fn end_minute(&mut self, slot: u32, sink: &mut dyn Sink) {
        let minute = self.second / 60;
        let (flow, cold, _) = self.flows.parts(slot);
        if cold.minute == minute {
            return;
        }
        if flow.count > 0 && self.minutes {
            sink.rollup(&flow.minute(cold));
        }
        cold.minute = minute;
        flow.begin_minute(cold);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn set_path<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, sink: &mut dyn Sink) {
        self.scratch.path.clear();
        self.scratch.path.extend(hops.records(0).take(MOST_HOPS).map(|record| hops.node(record)));
        self.keep_states(slot);
        let looped = self.scratch.find_loop();
        let (flow, ..) = self.flows.parts(slot);
        let previous = std::mem::replace(&mut flow.path_length, self.scratch.path.len() as u16);
        flow.flags.set(Flags::LOOP, looped.is_some());
        flow.flags.set_order(head.basis);
        self.tell_path(head, previous, looped, sink);
    }

    fn tell_path(&mut self, head: &Head, previous: u16, looped: Option<u32>, sink: &mut dyn Sink) {
        let path = &self.scratch.path;
        let thresholds = &self.detection.thresholds;
        let mut teller =
            Teller { sink, counts: &mut self.counts.events, about: &head.about, thresholds, set: 0 };
        let kind = if previous == 0 { Kind::New } else { Kind::PathChange };
        let mut event = teller.news(kind, Metric::FlowPath);
        event.value = Some(path.len() as u64);
        event.previous = (previous != 0).then_some(u64::from(previous));
        event.basis = head.basis;
        teller.tell(event, path);
        if let Some(node) = looped {
            let mut event = teller.news(Kind::PathLoop, Metric::FlowPath);
            event.value = Some(path.len() as u64);
            (event.node, event.basis) = (Some(node), head.basis);
            teller.tell(event, path);
        }
    }

    /// Makes room for the path in `scratch` and keeps what is known of nodes that stay on it.
    fn keep_states(&mut self, slot: u32) {
        let Scratch { path, states: old, .. } = &mut self.scratch;
        old.clear();
        old.extend_from_slice(self.flows.parts(slot).2);
        self.flows.resize_path(slot, path.len());
        let (_, _, states) = self.flows.parts(slot);
        for (at, (state, &node)) in states.iter_mut().zip(path.iter()).enumerate() {
            let same_place = old.get(at).filter(|kept| kept.node == node);
            // Long paths are compared place by place only, so that the work stays in proportion.
            let search = if old.len() <= 32 { old.as_slice() } else { &[] };
            if let Some(kept) = same_place.or_else(|| search.iter().find(|kept| kept.node == node)) {
                *state = *kept;
            }
            state.node = node;
        }
    }

    /// A report of one node, without a path: a postcard. Its node's hop is kept with the flow; a path is made of it and
    /// others when they are joined. The flow is probably at `hint`. Answers where it is.
    pub(crate) fn take_postcard(
        &mut self,
        head: &Head,
        hint: u32,
        reading: &Reading,
        sink: &mut dyn Sink,
    ) -> Option<u32> {
        let Some(slot) = self.enter(head, hint, sink) else {
            self.take_node(head, reading, sink);
            return None;
        };
        self.counts.flow_reports += 1;
        self.meet(slot, reading.node);
        self.update_one(slot, head, reading, sink);
        Some(slot)
    }

    /// The flow that a Flow ID stands for: the one that the configuration names, else the only one that is known and has
    /// it, else a flow of which the ID is all that is known.
    #[inline]
    pub(crate) fn flow_of_id(&mut self, id: u32) -> FlowKey {
        if let Some(named) = self.directory.named(id) {
            return *named;
        }
        if !self.directory.is_in_use() {
            self.list_flows();
        }
        match self.directory.find(id) {
            Resolved::Unknown => FlowKey::of_id(id),
            Resolved::Slot(slot) => self.resolved(id, slot),
            Resolved::Ambiguous => {
                self.held.iter_mut().for_each(|held| held.counts.ambiguous += 1);
                FlowKey::of_id(id)
            }
        }
    }

    fn resolved(&mut self, id: u32, slot: u32) -> FlowKey {
        self.held.iter_mut().for_each(|held| held.counts.resolved += 1);
        self.flows.get(slot).map_or_else(|| FlowKey::of_id(id), |(flow, ..)| flow.key)
    }

    /// The first Flow ID came: from now on it is known which flow has which.
    #[cold]
    fn list_flows(&mut self) {
        self.directory.begin();
        for slot in 0..self.flows.slots() {
            if let Some((flow, ..)) = self.flows.get(slot) {
                self.directory.enter(&flow.key, slot);
            }
        }
    }

    /// A summary of what one node said of a flow: `latency` is of its hop latencies. Answers where the flow is.
    pub(crate) fn take_summary(
        &mut self,
        head: &Head,
        node: u32,
        latency: Option<&Merged>,
        sink: &mut dyn Sink,
    ) -> Option<u32> {
        let slot = self.enter(head, NO_SLOT, sink)?;
        self.counts.flow_reports += 1;
        self.meet(slot, node);
        let (flow, _, states) = self.flows.parts(slot);
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.about.ts);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        let state = states.iter_mut().find(|state| state.node == node);
        if let (Some(latency), Some(state)) = (latency, state) {
            let far = match state.told {
                ABSENT => Some(latency.max),
                told => latency.moved(u64::from(told), teller.threshold(Metric::HopLatency)),
            };
            state.latest = held(far.unwrap_or(latency.sum / latency.count.max(1)));
            if far.is_some() {
                tell_hop_latency(state, &mut teller);
            }
        }
        if flow.reports == 2 {
            self.flows.touch(slot, 1, self.second);
        }
        Some(slot)
    }

    /// Makes room for what a node says about a flow without a path.
    #[inline]
    fn meet(&mut self, slot: u32, node: u32) {
        let (flow, _, states) = self.flows.parts(slot);
        let known = states.iter().any(|state| state.node == node);
        if !known && flow.path_length == 0 && states.len() < MOST_HOPS {
            self.gather(slot, node);
        }
    }

    /// A card that is not held.
    #[inline]
    pub(crate) fn pass_by(&mut self, why: Unjoinable) {
        if let Some(held) = &mut self.held {
            held.counts.cards += 1;
            held.refuse(why);
        }
    }

    /// What one node says, for node-level state only.
    fn take_node(&mut self, head: &Head, reading: &Reading, sink: &mut dyn Sink) {
        let ends = Ends { ingress: NO_VALUE, egress: NO_VALUE, wide: false };
        let units = Units { stamp_ns: 1, latency_ns: 1, utilization: 1, synchronised: false };
        self.take_nodes(head, ReadHops { readings: std::slice::from_ref(reading), ends, units }, sink);
    }

    /// Holds a card until the others of its packet have come.
    pub(crate) fn hold(&mut self, slot: Option<u32>, card: &Card, sink: &mut dyn Sink) {
        let Some(mut held) = self.held.take() else { return };
        held.counts.cards += 1;
        match slot {
            None => held.refuse(Unjoinable::NoFlow),
            Some(_) if card.reading.node == ABSENT => held.refuse(Unjoinable::NoNode),
            Some(slot) => held.take(slot, card, self, sink),
        }
        self.held = Some(held);
    }

    /// Settles the cards that have waited long enough; all of them at the `end`.
    pub(crate) fn settle_cards(&mut self, now: Nanos, end: bool, sink: &mut dyn Sink) {
        let Some(mut held) = self.held.take() else { return };
        if end {
            held.finish(now, self, sink);
        } else {
            held.turn(now, self, sink);
        }
        self.held = Some(held);
    }

    #[cold]
    fn gather(&mut self, slot: u32, node: u32) {
        let path = &mut self.scratch.path;
        path.clear();
        path.extend(self.flows.parts(slot).2.iter().map(|state| state.node));
        path.push(node);
        self.keep_states(slot);
    }
}

impl Head {
    /// Of no report.
    pub(crate) fn none() -> Self {
        Self {
            about: About {
                ts: 0,
                origin: Origin::NONE,
                key: FlowKey::default(),
                has_flow: false,
                profile: 0,
            },
            hash: 0,
            whole_path: false,
            flags: Flags::default(),
            basis: Basis::Measured,
        }
    }
}

impl Flow {
    /// Sets the interval within which a flow latency is nothing new.
    pub(crate) fn guard(&mut self, cold: &Cold, threshold: u64) {
        (self.low, self.width) = (u64::MAX, 0);
        if cold.told != NO_VALUE && cold.least <= cold.greatest {
            let low = cold.least.max(cold.told.saturating_sub(threshold));
            let high = cold.greatest.min(cold.told.saturating_add(threshold));
            if low <= high {
                (self.low, self.width) = (low, high - low);
            }
        }
    }

    /// Forgets the minute's values.
    pub(crate) fn begin_minute(&mut self, cold: &mut Cold) {
        (cold.least, cold.greatest) = (u64::MAX, 0);
        (self.count, self.sum) = (0, 0);
        (self.low, self.width) = (u64::MAX, 0);
    }

    /// The flow latency of the minute that `cold` is in.
    pub(crate) fn minute(&self, cold: &Cold) -> Rollup {
        Rollup {
            ts: u64::from(cold.minute) * 60_000_000_000,
            interval: 60,
            metric: Metric::FlowLatency,
            flow: Some(self.key),
            node: None,
            interface: None,
            queue: None,
            count: u64::from(self.count),
            min: cold.least,
            max: cold.greatest,
            sum: self.sum,
            p50: None,
            p99: None,
        }
    }
}

impl Scratch {
    /// A node that the path visits twice.
    fn find_loop(&mut self) -> Option<u32> {
        self.sorted.clear();
        self.sorted.extend(self.path.iter().copied().filter(|node| *node != ABSENT));
        self.sorted.sort_unstable();
        self.sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }
}

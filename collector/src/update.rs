//! What one report changes: the part that runs for every report.

use detect::{HopValues, Metric, Observation, observation};

use crate::clock::{Difference, difference};
use crate::config::Units;
use crate::event::{Basis, Event, Kind, Sink};
use crate::flows::{ABSENT, ColdPart, Flags, Flow, HopState};
use crate::index::NO_SLOT;
use crate::reading::{Ends, Hops, NO_VALUE, Reading};
use crate::series::{Key, News, Series};
use crate::sketch::Sketches;
use crate::state::{Head, Levels, State};
use crate::tell::Teller;

/// What has been gathered over the hops of a report.
struct Sum {
    hops: usize,
    latency: u64,
    /// Every hop told its latency.
    complete: bool,
}

impl State {
    /// Takes the values of a report about the flow in `slot`, and a new path if it is one.
    #[inline(always)]
    pub(crate) fn update<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, sink: &mut dyn Sink) {
        let watched = !self.detection.rules.is_empty();
        let (flow, cold, states) = self.flows.hot_parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        let count = hops.count();
        let band = flow.band;
        let (mut latency, mut complete) = (0_u64, true);
        let mut records = hops.records(0);
        let mut same =
            usize::from(flow.path_length) == count && states.len() == count && count > 0 && !watched;
        if same {
            for state in states {
                let Some(record) = records.next() else { break };
                let reading = hops.read(record);
                if reading.node != state.node {
                    same = false;
                    break;
                }
                if reading.latency == NO_VALUE {
                    complete = false;
                } else {
                    latency = latency.saturating_add(reading.latency);
                    self.levels.take_latency(state, &reading, band, &mut teller);
                }
                self.levels.take_others(state, &reading, &mut teller);
            }
        }
        if !same {
            // Without the one that was looked at last, if any was.
            let taken = (count - records.len()).saturating_sub(1);
            drop(records);
            self.update_otherwise(slot, head, hops, Sum { hops: taken, latency, complete }, sink);
            return;
        }
        let total = if complete { latency } else { NO_VALUE };
        flow.take_rest(cold, (head, hops), total, &mut teller);
        if flow.reports == 2 {
            // Twice is busy. From then on once per second is enough; see `refresh`.
            self.flows.touch(slot, 1, self.second);
        }
    }

    /// Goes on with a report whose path is another, is too long to keep, or is watched by rules.
    #[inline(never)]
    fn update_otherwise<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        mut sum: Sum,
        sink: &mut dyn Sink,
    ) {
        self.scratch.values.clear();
        while !self.update_hops(slot, head, hops, &mut sum, sink) {
            // The nodes before this one are those of the old path, and have been taken.
            self.set_path(slot, head, hops, sink);
        }
        if sum.hops < hops.count() {
            self.take_beyond(slot, head, hops, &mut sum, sink);
        }
        let total = if sum.complete && sum.hops > 0 { sum.latency } else { NO_VALUE };
        let (flow, cold, _) = self.flows.hot_parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        let latency = flow.take_rest(cold, (head, hops), total, &mut teller);
        if !self.detection.rules.is_empty() {
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
        if flow.reports == 2 {
            self.flows.touch(slot, 1, self.second);
        }
    }

    /// Takes the values of the hops from `sum.hops` on. `false`: the one after the last that was taken is on another
    /// node than the flow's path says.
    fn update_hops<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        sum: &mut Sum,
        sink: &mut dyn Sink,
    ) -> bool {
        let (flow, _, states) = self.flows.parts(slot);
        if usize::from(flow.path_length) != hops.count() {
            return false;
        }
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        let left = states.get_mut(sum.hops..).unwrap_or_default();
        for (state, record) in left.iter_mut().zip(hops.records(sum.hops)) {
            let reading = hops.read(record);
            if reading.node != state.node {
                return false;
            }
            self.levels.take(state, &reading, flow.band, &mut teller);
            sum.add(&reading, &mut self.scratch.values);
        }
        true
    }

    /// Takes the values of hops that are too far along a path to be kept.
    #[cold]
    #[inline(never)]
    fn take_beyond<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, sum: &mut Sum, sink: &mut dyn Sink) {
        let (flow, ..) = self.flows.parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        for record in hops.records(sum.hops) {
            let reading = hops.read(record);
            self.levels.take(&mut HopState::passing(&reading), &reading, 0, &mut teller);
            sum.add(&reading, &mut self.scratch.values);
        }
    }

    /// Takes what one node of a flow says by itself.
    pub(crate) fn update_one(&mut self, slot: u32, head: &Head, reading: &Reading, sink: &mut dyn Sink) {
        let (flow, _, states) = self.flows.parts(slot);
        let mut teller = Teller {
            sink,
            counts: &mut self.counts.events,
            about: &head.about,
            thresholds: &self.detection.thresholds,
            set: flow.set,
        };
        let mut passing = HopState::passing(reading);
        let at = states.iter().position(|state| state.node == reading.node);
        let state = at.map_or(&mut passing, |at| &mut states[at]);
        self.levels.take(state, reading, flow.band, &mut teller);
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.about.ts);
        if flow.reports == 2 {
            self.flows.touch(slot, 1, self.second);
        }
    }
}

impl Sum {
    fn add(&mut self, reading: &Reading, values: &mut Vec<HopValues>) {
        self.complete &= reading.latency != NO_VALUE;
        self.latency = self.latency.saturating_add(reading.latency);
        self.hops += 1;
        if values.len() < values.capacity() {
            values.push(reading.values());
        }
    }
}

impl HopState {
    /// A state for a hop that is not kept, such that its hop latency is not news.
    pub(crate) fn passing(reading: &Reading) -> Self {
        Self { node: reading.node, told: held(reading.latency), ..Self::NOTHING }
    }
}

/// A latency as a hop state holds it.
#[inline(always)]
pub(crate) fn held(latency: u64) -> u32 {
    latency.min(u64::from(ABSENT) - 1) as u32
}

impl Levels {
    /// Takes the values of one hop. `band` is the flow's threshold of hop latency, at most [`WIDEST`].
    pub(crate) fn take(
        &mut self,
        state: &mut HopState,
        reading: &Reading,
        band: u64,
        teller: &mut Teller<'_>,
    ) {
        if reading.latency != NO_VALUE {
            self.take_latency(state, reading, band, teller);
        }
        self.take_others(state, reading, teller);
    }

    #[inline(always)]
    fn take_latency(&mut self, state: &mut HopState, reading: &Reading, band: u64, teller: &mut Teller<'_>) {
        if self.nodes.add(state.node_slot, reading.latency) {
            let key = Key { node: reading.node, part: 0 };
            attend(&mut self.nodes, &mut self.sketches, &mut state.node_slot, (key, reading.latency), teller);
        }
        let latency = held(reading.latency);
        state.latest = latency;
        let above = u64::from(latency).wrapping_add(band).wrapping_sub(u64::from(state.told));
        // Nothing told yet is all-ones, which seconds come near to.
        if above > band.wrapping_mul(2) || state.told == ABSENT {
            tell_hop_latency(state, teller);
        }
    }

    #[inline(always)]
    fn take_others(&mut self, state: &mut HopState, reading: &Reading, teller: &mut Teller<'_>) {
        if state.link != reading.link {
            state.reroute(reading);
        }
        if let utilization = reading.utilization()
            && utilization != NO_VALUE
            && self.links.add(state.link_slot, utilization)
        {
            let key = Key { node: reading.node, part: reading.egress() };
            attend(&mut self.links, &mut self.sketches, &mut state.link_slot, (key, utilization), teller);
        }
        if reading.queue != ABSENT {
            let (queue, occupancy) = (reading.queue >> 24, u64::from(reading.queue & 0x00ff_ffff));
            if u32::from(state.queue) != queue {
                (state.queue, state.queue_slot) = (queue as u16, NO_SLOT);
            }
            if self.queues.add(state.queue_slot, occupancy) {
                let key = Key { node: reading.node, part: queue };
                attend(&mut self.queues, &mut self.sketches, &mut state.queue_slot, (key, occupancy), teller);
            }
        }
        if reading.congestion != ABSENT {
            self.take_congestion(reading, teller);
        }
    }

    /// Congestion is rare on the wire and is looked up each time.
    #[inline(never)]
    fn take_congestion(&mut self, reading: &Reading, teller: &mut Teller<'_>) {
        let (queue, level) = (reading.congestion >> 24, u64::from(reading.congestion & 0x00ff_ffff));
        let key = Key { node: reading.node, part: queue };
        attend(&mut self.congestion, &mut self.sketches, &mut { NO_SLOT }, (key, level), teller);
    }
}

/// The widest band of hop latency: half of what a state holds, so that what was never told lies outside it. A wider
/// threshold is looked at when a value leaves the band.
pub(crate) const WIDEST: u64 = 1 << 31;

impl HopState {
    #[cold]
    #[inline(never)]
    fn reroute(&mut self, reading: &Reading) {
        (self.link, self.level_2, self.link_slot) = (reading.link, reading.level_2, NO_SLOT);
    }
}

/// Takes a value that its series found remarkable, or whose slot is not known yet.
#[inline(never)]
fn attend(
    series: &mut Series,
    sketches: &mut Sketches,
    slot: &mut u32,
    (key, value): (Key, u64),
    teller: &mut Teller<'_>,
) {
    if *slot == NO_SLOT {
        *slot = series.slot(key, teller.about.profile);
        if *slot == NO_SLOT || !series.add(*slot, value) {
            return;
        }
    }
    let threshold = teller.threshold(series.metric());
    let previous = match series.attend(*slot, value, threshold, sketches) {
        News::Nothing => return,
        News::New => None,
        News::Moved(previous) => Some(previous),
    };
    let mut event = teller.change(series.metric(), value, previous);
    (event.node, event.interface, event.queue) = series.ids(key);
    teller.tell(event, &[]);
}

#[cold]
#[inline(never)]
pub(crate) fn tell_hop_latency(state: &mut HopState, teller: &mut Teller<'_>) {
    let previous = (state.told != ABSENT).then_some(u64::from(state.told));
    let latest = u64::from(state.latest);
    if previous.is_some_and(|told| told.abs_diff(latest) <= teller.threshold(Metric::HopLatency)) {
        return;
    }
    state.told = state.latest;
    let mut event = teller.change(Metric::HopLatency, latest, previous);
    event.node = (state.node != ABSENT).then_some(state.node);
    event.flow = teller.about.flow();
    teller.tell(event, &[]);
}

/// The time from the first node's ingress to the last node's egress, and how it came about; `total` is the sum of the
/// hops' latencies when all are known.
#[inline(always)]
fn flow_latency(hops: impl Hops, total: u64) -> (u64, Basis) {
    if hops.units().synchronised {
        return synchronised_latency(hops, total);
    }
    match total {
        NO_VALUE => (NO_VALUE, Basis::Measured),
        total if hops.count() == 1 => (total, Basis::Measured),
        total => (total, Basis::HopSum),
    }
}

#[inline(never)]
fn synchronised_latency(hops: impl Hops, total: u64) -> (u64, Basis) {
    // Stamps are rounded at each hop: a total that is larger by no more than that does not contradict them.
    let rounding = u64::from(hops.units().stamp_ns) * hops.count() as u64;
    match measure(hops.ends(), hops.units()) {
        Ok(Some(measured)) if total == NO_VALUE || measured.saturating_add(rounding) >= total => {
            (measured, Basis::Measured)
        }
        _ if total != NO_VALUE => (total, if hops.count() == 1 { Basis::Measured } else { Basis::HopSum }),
        Err(Backwards) => (NO_VALUE, Basis::Unsynchronised),
        Ok(_) => (NO_VALUE, Basis::Measured),
    }
}

/// The last egress lies before the first ingress.
struct Backwards;

fn measure(ends: Ends, units: Units) -> Result<Option<u64>, Backwards> {
    if ends.ingress == NO_VALUE || ends.egress == NO_VALUE {
        return Ok(None);
    }
    match difference(ends.ingress, ends.egress, ends.wide) {
        Difference::Later(later) => Ok(Some(later.saturating_mul(u64::from(units.stamp_ns)))),
        Difference::Backwards => Err(Backwards),
    }
}

impl Flow {
    /// Takes what is left of a report when its hops have been taken; answers the flow's latency.
    #[inline(always)]
    fn take_rest<H: Hops>(
        &mut self,
        cold: ColdPart<'_>,
        (head, hops): (&Head, H),
        total: u64,
        teller: &mut Teller<'_>,
    ) -> u64 {
        let latency = self.take_total(cold, hops, total, teller);
        if !self.flags.signals_like(head.flags) {
            self.take_signals(head.flags, teller);
        }
        self.reports = self.reports.wrapping_add(1);
        self.last_seen = self.last_seen.max(head.about.ts);
        latency
    }

    /// Takes the flow's latency, of which `total` is the sum over the hops where it is known; answers it.
    #[inline(always)]
    pub(crate) fn take_total<H: Hops>(
        &mut self,
        cold: ColdPart<'_>,
        hops: H,
        total: u64,
        teller: &mut Teller<'_>,
    ) -> u64 {
        let (latency, basis) = flow_latency(hops, total);
        self.basis = basis;
        if latency != NO_VALUE {
            self.take_latency(cold, latency, teller);
        }
        latency
    }

    #[inline(always)]
    fn take_latency(&mut self, cold: ColdPart<'_>, latency: u64, teller: &mut Teller<'_>) {
        self.latency = latency;
        self.sum = self.sum.saturating_add(latency);
        // A minute has room for 71 million reports per second of one flow.
        self.count = self.count.wrapping_add(1);
        if latency.wrapping_sub(self.low) > self.width {
            self.attend_latency(cold, teller);
        }
    }

    #[cold]
    #[inline(never)]
    fn attend_latency(&mut self, cold: ColdPart<'_>, teller: &mut Teller<'_>) {
        let cold = cold.get();
        let (latency, threshold) = (self.latency, teller.threshold(Metric::FlowLatency));
        cold.least = cold.least.min(latency);
        cold.greatest = cold.greatest.max(latency);
        let previous = (cold.told != NO_VALUE).then_some(cold.told);
        if previous.is_none_or(|told| told.abs_diff(latency) > threshold) {
            cold.told = latency;
            let mut event = teller.change(Metric::FlowLatency, latency, previous);
            (event.flow, event.basis) = (teller.about.flow(), self.basis);
            teller.tell(event, &[]);
        }
        self.guard(cold, threshold);
    }

    /// The E and M bits are not what they were.
    #[cold]
    #[inline(never)]
    fn take_signals(&mut self, now: Flags, teller: &mut Teller<'_>) {
        for (flag, kind) in [(Flags::HOP_LIMIT, Kind::HopLimit), (Flags::MTU, Kind::Mtu)] {
            if now.has(flag) && !self.flags.has(flag) {
                let mut event = teller.news(kind, Metric::FlowPath);
                event.value = Some(u64::from(self.path_length));
                teller.tell(event, &[]);
            }
            self.flags.set(flag, now.has(flag));
        }
    }

    /// Rules began or ceased to be true.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_rules(&mut self, rules: u64, teller: &mut Teller<'_>) {
        let changed = self.rules ^ rules;
        for rule in (0..64_u16).filter(|rule| changed >> rule & 1 == 1) {
            let kind = if rules >> rule & 1 == 1 { Kind::RuleOn } else { Kind::RuleOff };
            let mut event = Event::blank(teller.about.ts, kind);
            (event.flow, event.rule) = (teller.about.flow(), Some(rule));
            teller.tell(event, &[]);
        }
        self.rules = rules;
    }
}

impl Reading {
    /// As rules see it.
    pub(crate) fn values(&self) -> HopValues {
        let level =
            |pair: u32| if pair == ABSENT { observation::ABSENT } else { u64::from(pair & 0x00ff_ffff) };
        HopValues {
            hop_latency: self.latency,
            queue_occupancy: level(self.queue),
            queue_congestion: level(self.congestion),
            link_utilization: self.utilization(),
            node: self.node,
        }
    }
}

// All-ones mean "absent" in both places.
const _: () = assert!(NO_VALUE == observation::ABSENT && ABSENT == observation::NO_NODE);

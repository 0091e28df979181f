//! What one report changes: the part that runs for every report.

use detect::{HopValues, Metric, Observation, observation};

use crate::clock::{Difference, difference};
use crate::config::Units;
use crate::event::{Basis, Event, Kind, Sink};
use crate::flows::{ABSENT, Cold, Flags, Flow, HopState};
use crate::reading::{Ends, Hops, NO_VALUE, Reading};
use crate::series::{Key, NO_SLOT, News, Series};
use crate::sketch::Sketches;
use crate::state::{Head, Levels, NEVER, State};
use crate::tell::Teller;

/// Thresholds by metric.
type Set = [u64; Metric::COUNT];

impl State {
    /// Takes the values of a report whose path is that of the flow.
    #[inline]
    pub(crate) fn update<S: Sink>(&mut self, slot: u32, head: &Head, hops: &impl Hops, sink: &mut S) {
        let (flow, cold, states) = self.flows.parts(slot);
        let thresholds = self.detection.thresholds.get(flow.set);
        let mut teller = head.teller(Some(head.flow), &mut self.counts.events, sink);
        let watched = !self.detection.rules.is_empty();
        self.scratch.values.clear();
        let (mut sum, mut complete) = (0_u64, hops.count() > 0);
        let mut states = states.iter_mut();
        // A path that is too long to keep goes on beyond the kept states.
        let mut beyond = HopState::NOTHING;
        for reading in hops.readings() {
            let (state, band) = match states.next() {
                Some(state) => (state, flow.band),
                None => (beyond.renew(reading.node), NEVER),
            };
            self.levels.take(state, &reading, band, thresholds, &mut teller);
            complete &= reading.latency != NO_VALUE;
            sum = sum.wrapping_add(reading.latency);
            if watched {
                self.scratch.values.push(reading.values());
            }
        }
        let total = if complete { sum } else { NO_VALUE };
        let (latency, basis) = flow_latency(hops, total, head.units);
        flow.basis = basis;
        if latency != NO_VALUE {
            flow.take_latency(cold, latency, thresholds, &mut teller);
        }
        if flow.flags.signals() != head.flags {
            flow.take_signals(head.flags, &mut teller);
        }
        if watched {
            let observation = Observation {
                flow_latency: (latency != NO_VALUE).then_some(latency),
                looped: flow.flags.has(Flags::LOOP),
                hops: &self.scratch.values,
            };
            let rules = self.detection.rules.evaluate(&observation);
            if rules != flow.rules {
                flow.take_rules(rules, &mut teller);
            }
        }
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.received);
    }

    /// Takes what one node of a flow says by itself. The flow's latency is the sum of what its hops last said.
    pub(crate) fn update_one<S: Sink>(&mut self, slot: u32, head: &Head, reading: &Reading, sink: &mut S) {
        let (flow, cold, states) = self.flows.parts(slot);
        let thresholds = self.detection.thresholds.get(flow.set);
        let mut teller = head.teller(Some(head.flow), &mut self.counts.events, sink);
        let mut beyond = HopState::NOTHING;
        let at = states.iter().position(|state| state.node == reading.node);
        let (state, band) = match at {
            Some(at) => (&mut states[at], flow.band),
            None => (beyond.renew(reading.node), NEVER),
        };
        self.levels.take(state, reading, band, thresholds, &mut teller);
        if flow.flags.has(Flags::GATHERED) {
            let known = states.iter().all(|state| state.latest != ABSENT);
            flow.basis = if states.len() == 1 { Basis::Measured } else { Basis::HopSum };
            if known {
                let sum = states.iter().map(|state| u64::from(state.latest)).sum();
                flow.take_latency(cold, sum, thresholds, &mut teller);
            }
        }
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.received);
    }
}

impl HopState {
    /// A state for a hop that is not kept. With a threshold of [`NEVER`] its hop latency is not told.
    pub(crate) fn renew(&mut self, node: u32) -> &mut Self {
        *self = Self { node, told: 0, ..Self::NOTHING };
        self
    }
}

impl Levels {
    /// Takes the values of one hop. `band` is the flow's threshold of hop latency, in ns and small enough to double.
    #[inline(always)]
    pub(crate) fn take<S: Sink>(
        &mut self,
        state: &mut HopState,
        reading: &Reading,
        band: u64,
        thresholds: &Set,
        teller: &mut Teller<'_, S>,
    ) {
        if reading.latency != NO_VALUE {
            if self.nodes.add(state.node_slot, reading.latency) {
                let value =
                    Value { key: Key { node: reading.node, part: 0 }, value: reading.latency, threshold: 0 };
                attend(&mut self.nodes, &mut self.sketches, &mut state.node_slot, value, teller);
            }
            let latency = reading.latency.min(u64::from(ABSENT) - 1) as u32;
            let told = state.told;
            state.latest = latency;
            if (u64::from(latency) + band).wrapping_sub(u64::from(told)) > 2 * band || told == ABSENT {
                tell_hop_latency(state, thresholds, teller);
            }
        }
        state.ingress = reading.ingress;
        if state.egress != reading.egress {
            (state.egress, state.link_slot) = (reading.egress, NO_SLOT);
        }
        if reading.utilization != NO_VALUE && self.links.add(state.link_slot, reading.utilization) {
            let threshold = thresholds[Metric::LinkUtilization as usize];
            let key = Key { node: reading.node, part: reading.egress };
            let value = Value { key, value: reading.utilization, threshold };
            attend(&mut self.links, &mut self.sketches, &mut state.link_slot, value, teller);
        }
        if reading.queue != ABSENT {
            let (queue, occupancy) = ((reading.queue >> 24) as u8, u64::from(reading.queue & 0x00ff_ffff));
            if state.queue != queue || !state.has_queue {
                (state.queue, state.has_queue, state.queue_slot) = (queue, true, NO_SLOT);
            }
            if self.queues.add(state.queue_slot, occupancy) {
                let threshold = thresholds[Metric::QueueOccupancy as usize];
                let value = Value {
                    key: Key { node: reading.node, part: queue.into() },
                    value: occupancy,
                    threshold,
                };
                attend(&mut self.queues, &mut self.sketches, &mut state.queue_slot, value, teller);
            }
        }
        if reading.congestion != ABSENT {
            self.take_congestion(reading, thresholds, teller);
        }
    }

    /// Congestion is rare on the wire and is looked up each time.
    #[inline(never)]
    fn take_congestion<S: Sink>(&mut self, reading: &Reading, thresholds: &Set, teller: &mut Teller<'_, S>) {
        let (queue, level) = (reading.congestion >> 24, u64::from(reading.congestion & 0x00ff_ffff));
        let value = Value {
            key: Key { node: reading.node, part: queue },
            value: level,
            threshold: thresholds[Metric::QueueCongestion as usize],
        };
        attend(&mut self.congestion, &mut self.sketches, &mut { NO_SLOT }, value, teller);
    }
}

/// A value for a series.
#[derive(Clone, Copy)]
struct Value {
    key: Key,
    value: u64,
    threshold: u64,
}

/// Takes a value that its series found remarkable, or whose slot is not known yet.
#[inline(never)]
fn attend<S: Sink>(
    series: &mut Series,
    sketches: &mut Sketches,
    slot: &mut u32,
    value: Value,
    teller: &mut Teller<'_, S>,
) {
    if *slot == NO_SLOT {
        *slot = series.slot(value.key);
        if *slot == NO_SLOT || !series.add(*slot, value.value) {
            return;
        }
    }
    let previous = match series.attend(*slot, value.value, value.threshold, sketches) {
        News::Nothing => return,
        News::New => None,
        News::Moved(previous) => Some(previous),
    };
    let mut event = teller.change(series.metric(), value.value, previous, value.threshold);
    (event.node, event.interface, event.queue) = series.ids(value.key);
    teller.tell(event, &[]);
}

#[cold]
#[inline(never)]
fn tell_hop_latency<S: Sink>(state: &mut HopState, thresholds: &Set, teller: &mut Teller<'_, S>) {
    let previous = (state.told != ABSENT).then_some(u64::from(state.told));
    let threshold = thresholds[Metric::HopLatency as usize];
    state.told = state.latest;
    let mut event = teller.change(Metric::HopLatency, u64::from(state.latest), previous, threshold);
    event.node = (state.node != ABSENT).then_some(state.node);
    event.flow = teller.flow;
    teller.tell(event, &[]);
}

impl<S> Teller<'_, S> {
    /// News of a value: new, or moved from `previous` by more than `threshold`.
    fn change(&self, metric: Metric, value: u64, previous: Option<u64>, threshold: u64) -> Event {
        let kind = if previous.is_none() { Kind::New } else { Kind::Change };
        Event {
            metric: Some(metric),
            value: Some(value),
            previous,
            threshold: previous.is_some().then_some(threshold),
            ..Event::blank(self.ts, kind)
        }
    }
}

/// The time from the first node's ingress to the last node's egress, and how it came about; `total` is the sum of the
/// hops' latencies when all are known.
#[inline]
fn flow_latency(hops: &impl Hops, total: u64, units: Units) -> (u64, Basis) {
    let alone = hops.count() == 1;
    if alone && total != NO_VALUE {
        return (total, Basis::Measured);
    }
    if units.synchronised
        && let Some(measured) = measure(hops.ends(), units)
    {
        // Stamps are rounded at each hop: a total that is larger by no more than that does not contradict them.
        let rounding = units.stamp_ns * hops.count() as u64;
        if total == NO_VALUE || measured.saturating_add(rounding) >= total {
            return (measured, Basis::Measured);
        }
    }
    if total != NO_VALUE {
        return (total, Basis::HopSum);
    }
    (NO_VALUE, if units.synchronised { Basis::Unsynchronised } else { Basis::Measured })
}

fn measure(ends: Ends, units: Units) -> Option<u64> {
    if ends.ingress == NO_VALUE || ends.egress == NO_VALUE {
        return None;
    }
    match difference(ends.ingress, ends.egress, ends.wide) {
        Difference::Later(later) => Some(later.saturating_mul(units.stamp_ns)),
        Difference::Backwards => None,
    }
}

impl Flow {
    #[inline]
    fn take_latency<S: Sink>(
        &mut self,
        cold: &mut Cold,
        latency: u64,
        thresholds: &Set,
        teller: &mut Teller<'_, S>,
    ) {
        self.latency = latency;
        self.sum = self.sum.saturating_add(latency);
        self.count = self.count.saturating_add(1);
        if latency.wrapping_sub(self.low) > self.width {
            self.attend_latency(cold, thresholds[Metric::FlowLatency as usize], teller);
        }
    }

    #[cold]
    #[inline(never)]
    fn attend_latency<S: Sink>(&mut self, cold: &mut Cold, threshold: u64, teller: &mut Teller<'_, S>) {
        let latency = self.latency;
        cold.least = cold.least.min(latency);
        cold.greatest = cold.greatest.max(latency);
        let previous = (cold.told != NO_VALUE).then_some(cold.told);
        if previous.is_none_or(|told| told.abs_diff(latency) > threshold) {
            cold.told = latency;
            let mut event = teller.change(Metric::FlowLatency, latency, previous, threshold);
            (event.flow, event.basis) = (teller.flow, self.basis);
            teller.tell(event, &[]);
        }
        self.guard(cold, threshold);
    }

    /// The E and M bits are not what they were.
    #[cold]
    #[inline(never)]
    fn take_signals<S: Sink>(&mut self, now: Flags, teller: &mut Teller<'_, S>) {
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
    pub(crate) fn take_rules<S: Sink>(&mut self, rules: u64, teller: &mut Teller<'_, S>) {
        let changed = self.rules ^ rules;
        for rule in (0..64_u16).filter(|rule| changed >> rule & 1 == 1) {
            let kind = if rules >> rule & 1 == 1 { Kind::RuleOn } else { Kind::RuleOff };
            let mut event = Event::blank(teller.ts, kind);
            (event.flow, event.rule) = (teller.flow, Some(rule));
            teller.tell(event, &[]);
        }
        self.rules = rules;
    }
}

impl Reading {
    /// As rules see it.
    fn values(&self) -> HopValues {
        let level =
            |pair: u32| if pair == ABSENT { observation::ABSENT } else { u64::from(pair & 0x00ff_ffff) };
        HopValues {
            hop_latency: self.latency,
            queue_occupancy: level(self.queue),
            queue_congestion: level(self.congestion),
            link_utilization: self.utilization,
            node: self.node,
        }
    }
}

// All-ones mean "absent" in both places.
const _: () = assert!(NO_VALUE == observation::ABSENT && ABSENT == observation::NO_NODE);

//! What time brings: the end of seconds and minutes, expiry, the periodic push. Spread over ticks, each with a bounded
//! amount of work.

use detect::{Metric, Thresholds};

use crate::absorb::Removed;
use crate::collector::Core;
use crate::config::Config;
use crate::event::{Event, FlowRow, Kind, Nanos, Sink, record_id};
use crate::flows::{Cold, Flow};
use crate::reading::NO_VALUE;
use crate::series::Closing;
use crate::state::State;
use crate::tell::{About, Origin, Teller};

const SECOND: Nanos = 1_000_000_000;

/// A clock that is so far behind what was seen of it was set back, ns. Reports that waited in a socket are behind it, too, but not
/// the time of a tick.
const SET_BACK: Nanos = 2 * SECOND;

/// Flows looked at per tick, at most. With a tick every 10 ms a million flows take 0.6 s.
const FLOWS_PER_TICK: u32 = 16_384;

/// Keys whose finished intervals are told per tick, unless a quarter of what is left is more.
const KEYS_PER_TICK: usize = 256;

/// Where time stands, and how far the round through the flows has come.
#[derive(Debug)]
pub(crate) struct Sweep {
    now: Nanos,
    second_began: Nanos,
    started: bool,
    timeout: Nanos,
    push_interval: Nanos,
    /// How long one round through all flows takes.
    round: Nanos,
    round_began: Nanos,
    next: u32,
    /// Does this round push, and when did the last one that did begin?
    pushing: bool,
    pushed: Nanos,
    /// Where the clock stood before it was set back, and until when reports may still come that were stamped by it then.
    before: Nanos,
    before_until: Nanos,
    seconds: bool,
    minutes: bool,
}

impl Sweep {
    pub(crate) fn new(config: &Config) -> Self {
        let push = if config.push_interval == 0 { Nanos::MAX } else { config.push_interval };
        let round = push.min(config.flow_timeout / 4).clamp(SECOND / 10, 30 * SECOND);
        Self {
            now: 0,
            second_began: Nanos::MAX,
            started: false,
            timeout: config.flow_timeout.max(1),
            push_interval: config.push_interval,
            round,
            round_began: 0,
            next: 0,
            pushing: false,
            pushed: 0,
            before: 0,
            before_until: 0,
            seconds: config.rollup.seconds,
            minutes: config.rollup.minutes,
        }
    }

    /// Is this a time of the clock before it was set back?
    fn is_before(&self, now: Nanos) -> bool {
        let before = self.before.saturating_add(SET_BACK);
        self.now < self.before_until && now > self.now.saturating_add(SET_BACK) && now <= before
    }

    /// The slots of this tick: the part of the round that the time since its beginning asks for.
    fn due(&mut self, slots: u32) -> std::ops::Range<u32> {
        let elapsed = self.now.saturating_sub(self.round_began);
        let share = (u128::from(slots) * u128::from(elapsed)).div_ceil(u128::from(self.round));
        let target = u32::try_from(share).unwrap_or(u32::MAX).min(slots);
        let end = target.min(self.next.saturating_add(FLOWS_PER_TICK)).max(self.next);
        std::mem::replace(&mut self.next, end)..end
    }

    fn begin_round(&mut self) {
        self.round_began = self.now;
        self.next = 0;
        self.pushing = self.push_interval > 0
            && self.now.saturating_sub(self.pushed) + self.round / 2 >= self.push_interval;
        if self.pushing {
            self.pushed = self.now;
        }
    }
}

impl Core {
    /// Does `now` lie in another second than the present one?
    #[inline]
    pub(crate) fn turns(&self, now: Nanos) -> bool {
        now.wrapping_sub(self.sweep.second_began) >= SECOND
    }

    /// Moves time to `now`; time never goes back. Ends the second, if `now` lies in another.
    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos, sink: &mut dyn Sink) {
        if self.turns(now) && !self.turn(now, sink) {
            return;
        }
        self.sweep.now = self.sweep.now.max(now);
    }

    /// `false`: time stays where it is.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, now: Nanos, sink: &mut dyn Sink) -> bool {
        if !self.sweep.started {
            self.sweep.started = true;
            (self.sweep.pushed, self.sweep.now) = (now, now);
            self.sweep.begin_round();
            self.begin_second(now);
        } else if self.sweep.is_before(now) {
            return false;
        } else if now > self.sweep.now {
            self.end_second(now, sink);
            self.begin_second(now);
        }
        true
    }

    fn begin_second(&mut self, now: Nanos) {
        self.sweep.second_began = now - now % SECOND;
        self.state.second = u32::try_from(now / SECOND).unwrap_or(u32::MAX);
        self.state.context += 1;
    }

    /// Ends the present second; the next one with values begins at `now`.
    fn end_second(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.account(now, false, sink);
        let second = u64::from(self.state.second);
        let elapsed = u32::try_from(now / SECOND - second).unwrap_or(u32::MAX);
        self.state.close_second(self.closing(second / 60 != now / SECOND / 60, elapsed), now, sink);
    }

    /// The clock was set back to `now`. What is open is ended where it stood, and time begins anew: else nothing would be told until
    /// the clock has come there again.
    #[cold]
    fn set_back(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let before = self.sweep.now;
        self.end_open(false, self.closing(true, 1), sink);
        self.joiner.set_back(now);
        if let Some(held) = &mut self.state.held {
            held.set_back(now);
        }
        (self.sweep.now, self.sweep.pushed) = (now, now);
        (self.sweep.before, self.sweep.before_until) = (before, now.saturating_add(5 * SECOND));
        self.sweep.begin_round();
        self.begin_second(now);
    }

    /// Ends what waits for others and the present second, at the time that was reached. `last`: nothing missing will come.
    fn end_open(&mut self, last: bool, closing: Closing, sink: &mut dyn Sink) {
        let now = self.sweep.now;
        self.state.settle_cards(now, true, sink);
        self.account(now, last, sink);
        self.finish_joiner(sink);
        self.state.close_second(closing, now, sink);
    }

    /// How the present second ends.
    fn closing(&self, minute: bool, elapsed: u32) -> Closing {
        Closing {
            second: u64::from(self.state.second) * SECOND,
            minute,
            elapsed,
            timeout: u32::try_from(self.sweep.timeout.div_ceil(SECOND)).unwrap_or(u32::MAX),
            seconds: self.sweep.seconds,
            minutes: self.sweep.minutes,
        }
    }

    pub(crate) fn tick(&mut self, now: Nanos, sink: &mut dyn Sink) {
        if self.sweep.started && now < self.sweep.now.saturating_sub(SET_BACK) {
            self.set_back(now, sink);
        }
        self.advance(now, sink);
        self.state.drain(KEYS_PER_TICK, sink);
        self.state.settle_cards(self.sweep.now, false, sink);
        if !self.sweep.started {
            return;
        }
        let slots = self.state.flows.slots();
        self.tick_joiner(self.sweep.now, sink);
        for slot in self.sweep.due(slots) {
            self.visit(slot, sink);
        }
        if self.sweep.next >= slots
            && self.sweep.now.saturating_sub(self.sweep.round_began) >= self.sweep.round
        {
            self.sweep.begin_round();
        }
    }

    fn visit(&mut self, slot: u32, sink: &mut dyn Sink) {
        let now = self.sweep.now;
        if !self.state.flows.is_used(slot) {
            return;
        }
        let (flow, cold, _) = self.state.flows.parts(slot);
        if flow.last_seen > now.saturating_add(SET_BACK) {
            // By a clock that was set back since.
            flow.last_seen = now;
        }
        let (silent, reports) = (now.saturating_sub(flow.last_seen), flow.reports);
        let fresh = reports as u32 != cold.pushed;
        self.state.end_minute(slot, sink);
        if silent >= self.sweep.timeout {
            self.state.expire(slot, now, sink);
        } else if self.sweep.pushing && fresh {
            self.state.push(slot, now, sink);
        } else if silent > 100 * SECOND {
            self.state.flows.cool(slot, self.state.second);
        }
    }

    pub(crate) fn finish(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.advance(now, sink);
        if !self.sweep.started {
            return;
        }
        // As if the second and the minute ended now; time itself stays, so that more may come.
        self.end_open(true, Closing { timeout: u32::MAX, ..self.closing(true, 0) }, sink);
        self.state.drain(usize::MAX, sink);
        for slot in 0..self.state.flows.slots() {
            self.state.end_flow_minute(slot, sink);
            self.state.tell_row(slot, sink);
        }
    }
}

impl State {
    /// Closes the second in all node-level tables, and tells which keys have expired.
    fn close_second(&mut self, closing: Closing, now: Nanos, sink: &mut dyn Sink) {
        let counts = &mut self.counts;
        let (levels, removals) = (&mut self.levels, &mut self.removals);
        let mut forgotten = false;
        for series in [&mut levels.nodes, &mut levels.queues, &mut levels.congestion, &mut levels.links] {
            let metric = series.metric();
            forgotten |=
                series.close(closing, &mut levels.sketches, sink, |key, latest, sink: &mut dyn Sink| {
                    let mut event = Event::blank(now, Kind::Expired);
                    (event.metric, event.value) = (Some(metric), Some(latest));
                    (event.node, event.interface, event.queue) = key.ids(metric);
                    event.id = record_id(now, &event);
                    counts.expired += 1;
                    counts.events[Kind::Expired as usize] += 1;
                    sink.event(&event, &[]);
                    if let Some(removals) = removals {
                        removals.note(Removed::Key { metric, node: key.node, part: key.part });
                    }
                });
        }
        if forgotten {
            self.epoch = self.epoch.wrapping_add(1);
            self.context += 1;
        }
    }

    /// Tells finished intervals of a bounded number of keys.
    fn drain(&mut self, budget: usize, sink: &mut dyn Sink) {
        let levels = &mut self.levels;
        for series in [&mut levels.nodes, &mut levels.queues, &mut levels.congestion, &mut levels.links] {
            let budget = budget.max(series.waiting() / 4);
            series.drain(budget, &mut levels.sketches, sink);
        }
    }

    /// Ends a flow that has been silent for its timeout.
    fn expire(&mut self, slot: u32, now: Nanos, sink: &mut dyn Sink) {
        self.counts.expired += 1;
        let (metric, kind) = (Metric::FlowPath, Kind::Expired);
        self.with_path(slot, |flow, _, path, (counts, thresholds)| {
            let about = flow.about(now);
            let mut teller = Teller { sink: &mut *sink, counts, about: &about, thresholds, set: 0 };
            let mut event = teller.news(kind, metric);
            event.value = Some(u64::from(flow.path_length));
            teller.tell(event, path);
        });
        self.leave(slot, now, sink);
    }

    /// Tells what is left to tell of a flow, rules that cease to be true with it too, and frees it.
    pub(crate) fn leave(&mut self, slot: u32, now: Nanos, sink: &mut dyn Sink) {
        let generation = self.generation;
        self.with_path(slot, |flow, cold, _, (counts, thresholds)| {
            // Numbers of rules mean something in their own set only.
            if cold.generation == generation {
                let about = flow.about(now);
                let mut teller = Teller { sink: &mut *sink, counts, about: &about, thresholds, set: 0 };
                flow.take_rules(0, &mut teller);
            }
        });
        self.end_flow_minute(slot, sink);
        self.tell_row(slot, sink);
        if let (Some(removals), Some((flow, ..))) = (&mut self.removals, self.flows.get(slot)) {
            removals.note(Removed::Flow(flow.key));
        }
        if let Some(held) = &mut self.held {
            held.forget(slot);
        }
        if let Some((flow, ..)) = self.flows.get(slot) {
            self.directory.leave(&flow.key);
        }
        self.flows.remove(slot);
    }

    /// Pushes the latest state of a flow (INTCollector paper, 3.4.4).
    fn push(&mut self, slot: u32, now: Nanos, sink: &mut dyn Sink) {
        self.with_path(slot, |flow, cold, path, (counts, thresholds)| {
            cold.pushed = flow.reports as u32;
            if flow.latency != NO_VALUE {
                let about = flow.about(now);
                let mut teller = Teller { sink: &mut *sink, counts, about: &about, thresholds, set: 0 };
                let mut event = teller.news(Kind::Latest, Metric::FlowLatency);
                (event.value, event.basis) = (Some(flow.latency), flow.basis);
                teller.tell(event, path);
            }
        });
        self.tell_row(slot, sink);
    }

    pub(crate) fn tell_row(&mut self, slot: u32, sink: &mut dyn Sink) {
        self.with_path(slot, |flow, cold, path, _| sink.flow(&flow.row(cold), path));
    }

    pub(crate) fn end_flow_minute(&mut self, slot: u32, sink: &mut dyn Sink) {
        if let Some((flow, cold, _)) = self.flows.get(slot)
            && flow.count > 0
            && self.minutes
        {
            sink.rollup(&flow.minute(cold));
        }
        if self.flows.is_used(slot) {
            let (flow, cold, _) = self.flows.parts(slot);
            flow.begin_minute(cold);
        }
    }

    /// Calls `then` with a flow and the nodes of its path.
    fn with_path(
        &mut self,
        slot: u32,
        then: impl FnOnce(&mut Flow, &mut Cold, &[u32], (&mut [u64; Kind::ALL.len()], &Thresholds)),
    ) {
        if !self.flows.is_used(slot) {
            return;
        }
        let (flow, cold, states) = self.flows.parts(slot);
        let path = &mut self.scratch.path;
        path.clear();
        // Without a path its states are those of nodes that spoke for themselves.
        let on_path = if flow.path_length == 0 { &[] } else { &*states };
        path.extend(on_path.iter().map(|state| state.node));
        then(flow, cold, path, (&mut self.counts.events, &self.detection.thresholds));
    }
}

impl Flow {
    /// What is told by the clock, not by a report: identified by the flow and how far it has come.
    fn about(&self, ts: Nanos) -> About {
        let origin = Origin { number: self.reports as u32, ..Origin::NONE };
        About { ts, origin, key: self.key, has_flow: true, profile: 0 }
    }

    /// The latest state as a row.
    pub(crate) fn row(&self, cold: &Cold) -> FlowRow {
        FlowRow {
            flow: self.key,
            flow_latency: (self.latency != NO_VALUE).then_some(self.latency),
            basis: self.basis,
            first_seen: cold.first_seen,
            last_seen: self.last_seen,
            reports: self.reports,
        }
    }
}

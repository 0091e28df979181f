//! Timer-driven work of the collector: the end of seconds and minutes, expiry, the periodic push. The work is spread over
//! ticks, a bounded amount per tick. Also handles a clock that is set back.

use super::Inner;
use crate::config::Config;
use crate::event::{Nanos, Output, SECOND, SET_BACK, follow_clock};
use crate::state::flows::FlowParts;
use crate::state::series::Closing;

/// Reports may wait in a queue this long after the clock was stepped, ns, with receive times from before.
const MAX_QUEUE_TIME: Nanos = 5 * SECOND;

/// A start of a second that no clock shows, ns: more than a second away from 0 and from any time before the year 2262.
const UNSET: Nanos = 1 << 63;

/// Silence after which a flow is marked as old in the index, whose seconds are modulo 256, ns.
const INDEX_AGE_LIMIT: Nanos = 100 * SECOND;

/// Maximum number of flows visited per tick. With a tick every 10 ms a million flows take 0.6 s.
const FLOWS_PER_TICK: u32 = 16_384;

/// Keys whose finished intervals are reported per tick; a quarter of the remaining ones if that is more.
const KEYS_PER_TICK: usize = 256;

/// The current time, and the position of the sweep over all flows.
#[derive(Debug)]
pub(super) struct Sweep {
    now: Nanos,
    second_began: Nanos,
    has_started: bool,
    timeout: Nanos,
    push_interval: Nanos,
    /// Duration of one round through all flows, ns.
    round: Nanos,
    round_began: Nanos,
    next_slot: u32,
    /// True if this round pushes the latest state.
    is_pushing: bool,
    /// Start of the last round that pushed, ns.
    last_push: Nanos,
    /// Time that the clock showed before it was set back.
    time_before_step: Nanos,
    /// Time until which reports may still arrive whose receive times are from before the step.
    old_times_until: Nanos,
    /// Rollups of seconds are emitted.
    emits_seconds: bool,
    /// Rollups of minutes are emitted.
    emits_minutes: bool,
}

impl Sweep {
    pub(super) fn new(config: &Config) -> Self {
        let push = if config.push_interval == 0 {
            Nanos::MAX
        } else {
            config.push_interval
        };
        let round = push.min(config.flow_timeout / 4).clamp(SECOND / 10, 30 * SECOND);
        Self {
            now: 0,
            second_began: UNSET,
            has_started: false,
            timeout: config.flow_timeout.max(1),
            push_interval: config.push_interval,
            round,
            round_began: 0,
            next_slot: 0,
            is_pushing: false,
            last_push: 0,
            time_before_step: 0,
            old_times_until: 0,
            emits_seconds: config.rollup.seconds,
            emits_minutes: config.rollup.minutes,
        }
    }

    pub(super) fn time(&self) -> Nanos {
        self.now
    }

    /// Returns true if `now` was read before the clock was set back.
    fn is_before_step(&self, now: Nanos) -> bool {
        let latest = self.time_before_step.saturating_add(SET_BACK);
        self.now < self.old_times_until && now > self.now.saturating_add(SET_BACK) && now <= latest
    }

    /// Returns the slots to visit in this tick: the share of the round for the time since its start.
    fn due_slots(&mut self, slots: u32) -> std::ops::Range<u32> {
        let elapsed = self.now.saturating_sub(self.round_began);
        let share = (u128::from(slots) * u128::from(elapsed)).div_ceil(u128::from(self.round));
        let target = u32::try_from(share).unwrap_or(u32::MAX).min(slots);
        let end = target
            .min(self.next_slot.saturating_add(FLOWS_PER_TICK))
            .max(self.next_slot);
        std::mem::replace(&mut self.next_slot, end)..end
    }

    fn begin_round(&mut self) {
        self.round_began = self.now;
        self.next_slot = 0;
        self.is_pushing = self.push_interval > 0
            && self
                .now
                .saturating_sub(self.last_push)
                .saturating_add(self.round / 2)
                >= self.push_interval;
        if self.is_pushing {
            self.last_push = self.now;
        }
    }
}

impl Inner {
    /// Returns true if `now` lies in another second than the current one.
    #[inline]
    pub(super) fn leaves_second(&self, now: Nanos) -> bool {
        now.wrapping_sub(self.sweep.second_began) >= SECOND
    }

    /// Advances time to `now`, never backwards, and ends the second if `now` lies in another. Returns the effective receive
    /// time of a datagram: `now`, or the current time if `now` was read before the clock was set back.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos, out: &mut dyn Output) -> Nanos {
        if self.leaves_second(now) && !self.change_second(now, out) {
            return self.sweep.now;
        }
        self.sweep.now = self.sweep.now.max(now);
        now
    }

    /// Changes to the second of `now`. Returns `false` if time does not advance.
    #[cold]
    #[inline(never)]
    fn change_second(&mut self, now: Nanos, out: &mut dyn Output) -> bool {
        if !self.sweep.has_started {
            self.sweep.has_started = true;
            self.sweep.last_push = now;
            self.sweep.now = now;
            self.sweep.begin_round();
            self.begin_second(now);
        } else if self.sweep.is_before_step(now) {
            return false;
        } else if now > self.sweep.now {
            self.end_second(now, out);
            self.begin_second(now);
        }
        true
    }

    fn begin_second(&mut self, now: Nanos) {
        self.sweep.second_began = now - now % SECOND;
        self.state
            .begin_second(u32::try_from(now / SECOND).unwrap_or(u32::MAX));
    }

    /// Ends the current second; the next one begins at `now`.
    fn end_second(&mut self, now: Nanos, out: &mut dyn Output) {
        self.losses
            .account(now, false, &mut self.state.detection.counts, out);
        let second = u64::from(self.state.second());
        let elapsed = u32::try_from(now / SECOND - second).unwrap_or(u32::MAX);
        self.state
            .close_second(self.closing(second / 60 != now / SECOND / 60, elapsed), now, out);
    }

    /// Handles a clock that was set back to `now`: ends open intervals at the old time, and restarts from `now`. Otherwise
    /// nothing would be reported until the clock reaches the old time again.
    #[cold]
    fn set_back(&mut self, now: Nanos, out: &mut dyn Output) {
        let time_before_step = self.sweep.now;
        self.end_open(false, self.closing(true, 1), out);
        self.sweep.now = now;
        self.sweep.last_push = now;
        self.sweep.time_before_step = time_before_step;
        self.sweep.old_times_until = now.saturating_add(MAX_QUEUE_TIME);
        self.sweep.begin_round();
        self.begin_second(now);
    }

    /// Ends pending joins and the current second. `is_last`: the input has ended, so missing sequence numbers are lost.
    fn end_open(&mut self, is_last: bool, closing: Closing, out: &mut dyn Output) {
        let now = self.sweep.now;
        self.postcards.finish(&mut self.state, out);
        self.losses
            .account(now, is_last, &mut self.state.detection.counts, out);
        self.sf.finish(&mut self.state, out);
        self.state.close_second(closing, now, out);
    }

    /// Describes the end of the current second.
    fn closing(&self, ends_minute: bool, elapsed: u32) -> Closing {
        Closing {
            start: u64::from(self.state.second()) * SECOND,
            ends_minute,
            elapsed,
            timeout: u32::try_from(self.sweep.timeout.div_ceil(SECOND)).unwrap_or(u32::MAX),
            emits_seconds: self.sweep.emits_seconds,
            emits_minutes: self.sweep.emits_minutes,
        }
    }

    pub(super) fn tick(&mut self, now: Nanos, out: &mut dyn Output) {
        if self.sweep.has_started && now < self.sweep.now.saturating_sub(SET_BACK) {
            self.set_back(now, out);
        }
        // A tick has the current time even if it is late. Queued reports may still have times from before the step.
        if self.sweep.is_before_step(now) {
            self.end_second(now, out);
            self.begin_second(now);
            self.sweep.now = now;
            self.sweep.old_times_until = now.saturating_add(MAX_QUEUE_TIME);
        }
        self.advance(now, out);
        self.state.drain(KEYS_PER_TICK, out);
        self.postcards.tick(self.sweep.now, &mut self.state, out);
        if !self.sweep.has_started {
            return;
        }
        let slots = self.state.flows.slots();
        self.sf.tick(self.sweep.now, &mut self.state, out);
        for slot in self.sweep.due_slots(slots) {
            self.visit_flow(slot, out);
        }
        self.state.update_topology();
        if self.sweep.next_slot >= slots
            && self.sweep.now.saturating_sub(self.sweep.round_began) >= self.sweep.round
        {
            self.sweep.begin_round();
        }
    }

    fn visit_flow(&mut self, slot: u32, out: &mut dyn Output) {
        let now = self.sweep.now;
        if !self.state.flows.is_used(slot) {
            return;
        }
        let FlowParts { flow, cold, .. } = self.state.flows.parts(slot);
        follow_clock(&mut flow.last_seen, 0, now);
        cold.first_seen = cold.first_seen.min(flow.last_seen);
        let silence = now.saturating_sub(flow.last_seen);
        let reports = flow.reports;
        let has_new_reports = reports as u32 != cold.pushed_reports;
        self.state.close_minute(slot, out);
        if silence >= self.sweep.timeout {
            self.state.expire(slot, now, out);
        } else if self.sweep.is_pushing && has_new_reports {
            self.state.push(slot, out);
        } else if silence > INDEX_AGE_LIMIT {
            self.state.flows.age(slot, self.state.second());
        }
    }

    pub(super) fn finish(&mut self, now: Nanos, out: &mut dyn Output) {
        self.advance(now, out);
        if !self.sweep.has_started {
            return;
        }
        // Ends the second and the minute now, but does not advance time, so that more reports may follow.
        self.end_open(
            true,
            Closing {
                timeout: u32::MAX,
                ..self.closing(true, 0)
            },
            out,
        );
        self.state.drain(usize::MAX, out);
        for slot in 0..self.state.flows.slots() {
            self.state.end_minute(slot, out);
            self.state.emit_row(slot, out);
        }
    }
}

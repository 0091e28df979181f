//! Timer-driven updates of the state: the end of seconds and minutes, the expiry of idle keys and flows, and the periodic push
//! of unchanged state.

use detect::Metric;

use super::State;
use super::flows::{Flags, FlowParts, StoredFlow};
use super::removals::Removed;
use super::series::{Closing, RemovedKey};
use crate::decode::NO_VALUE;
use crate::event::{Event, Kind, Nanos, Output, record_id};

impl State {
    /// Closes the second in all series, and reports expired keys.
    pub(crate) fn close_second(&mut self, closing: Closing, now: Nanos, out: &mut dyn Output) {
        let events = &mut self.detection.counts;
        let counts = &mut self.counts;
        let removals = &mut self.removals;
        let (all_series, sketches) = self.metrics.all_mut();
        let mut has_removed = false;
        for series in all_series {
            let metric = series.metric();
            has_removed |= series.close(closing, sketches, out, |removed, out: &mut dyn Output| {
                let RemovedKey {
                    key,
                    first_report_hash,
                    latest,
                } = removed;
                let mut event = Event::blank(now, Kind::Expired);
                (event.metric, event.value) = (Some(metric), latest);
                event.set_location(key.location(metric));
                // Independent of the time, which differs between collectors.
                event.id = record_id(first_report_hash, &event);
                counts.expired += 1;
                events[Kind::Expired as usize] += 1;
                out.sender(0);
                out.event(&event, &[]);
                if let Some(removals) = removals {
                    removals.push(Removed::Key {
                        metric,
                        node: key.node,
                        part: key.part,
                    });
                }
            });
        }
        if has_removed {
            self.epoch = self.epoch.wrapping_add(1);
            self.context += 1;
        }
    }

    /// Passes finished intervals of a bounded number of keys to the output.
    pub(crate) fn drain(&mut self, budget: usize, out: &mut dyn Output) {
        let (all, sketches) = self.metrics.all_mut();
        for series in all {
            let budget = budget.max(series.waiting() / 4);
            series.drain(budget, sketches, out);
        }
    }

    /// Emits the rollup of a flow's finished minute, and begins the current one.
    pub(crate) fn close_minute(&mut self, slot: u32, out: &mut dyn Output) {
        let minute = self.second / 60;
        let FlowParts { flow, cold, .. } = self.flows.parts(slot);
        if cold.minute == minute {
            return;
        }
        if flow.latency_count > 0 && self.minutes {
            out.rollup(&flow.minute(cold));
        }
        flow.marks.begin_minute(flow.flags, minute == cold.minute + 1);
        cold.minute = minute;
        flow.flags.set(Flags::RETRY, flow.flags.has(Flags::TRUNCATED));
        flow.begin_minute(cold);
    }

    /// Expires a flow that was silent for its timeout: emits an event and removes the flow.
    pub(crate) fn expire(&mut self, slot: u32, now: Nanos, out: &mut dyn Output) {
        self.counts.expired += 1;
        if self.load_path(slot) {
            let FlowParts { flow, cold, .. } = self.flows.parts(slot);
            let about = flow.about(cold, now);
            let mut emitter = self.detection.emitter(&about, 0, out);
            let mut event = emitter.event(Kind::Expired, Metric::FlowPath);
            event.value = Some(u64::from(flow.path_length()));
            emitter.emit(event, &self.scratch.path);
        }
        self.remove(slot, now, out);
    }

    /// Frees a flow after emitting its last rollup and the end of its true rules.
    pub(crate) fn remove(&mut self, slot: u32, now: Nanos, out: &mut dyn Output) {
        if self.flows.is_used(slot) {
            let FlowParts { flow, cold, .. } = self.flows.parts(slot);
            // Rule indices are valid only within their rule set, so map them to the active one.
            flow.rules = self.detection.carried(cold.generation, flow.rules);
            let about = flow.about(cold, now);
            flow.end_rules(&mut self.detection.emitter(&about, 0, out));
        }
        self.end_minute(slot, out);
        self.emit_row(slot, out);
        if let Some(StoredFlow { flow, .. }) = self.flows.get(slot) {
            out.flow_removed(&flow.key);
            if let Some(removals) = &mut self.removals {
                removals.push(Removed::Flow(flow.key));
            }
            self.directory.leave(&flow.key, slot);
        }
        self.leave_topology(slot);
        self.postcards.forget(slot);
        self.flows.remove(slot);
    }

    /// Pushes the latest state of a flow (INTCollector paper, 3.4.4). The event has the time of the flow's latest report, which
    /// shows how long the flow has been silent.
    pub(crate) fn push(&mut self, slot: u32, out: &mut dyn Output) {
        if self.load_path(slot) {
            let FlowParts { flow, cold, .. } = self.flows.parts(slot);
            cold.pushed_reports = flow.reports as u32;
            if flow.latency != NO_VALUE {
                let about = flow.about(cold, flow.last_seen);
                let mut emitter = self.detection.emitter(&about, 0, out);
                let mut event = emitter.event(Kind::Latest, Metric::FlowLatency);
                (event.value, event.basis) = (Some(flow.latency), flow.basis);
                emitter.emit(event, &self.scratch.path);
            }
        }
        self.emit_row(slot, out);
    }

    /// Passes the latest state of a flow to the output as a row.
    pub(crate) fn emit_row(&mut self, slot: u32, out: &mut dyn Output) {
        if self.load_path(slot) {
            let FlowParts { flow, cold, .. } = self.flows.parts(slot);
            out.flow(&flow.row(cold), &self.scratch.path);
        }
    }

    /// Emits the rollup of a flow's current minute before the minute ends.
    pub(crate) fn end_minute(&mut self, slot: u32, out: &mut dyn Output) {
        if !self.flows.is_used(slot) {
            return;
        }
        let FlowParts { flow, cold, .. } = self.flows.parts(slot);
        if flow.latency_count > 0 && self.minutes {
            out.rollup(&flow.minute(cold));
        }
        flow.begin_minute(cold);
    }
}

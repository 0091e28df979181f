//! The update of the state by one report of a flow: the code that runs for every report. The fast path handles a report whose
//! hops are the stored path; everything else continues in `update_slow`.

use detect::observation::NO_NODE;
use detect::{HopValues, Metric, Observation};

use super::State;
use super::flows::{Flags, HotFlowParts, InitialHops};
use super::hops::{HopState, PacketValues};
use super::path::StackPart;
use super::rule_regions::AppliedHops;
use crate::decode::{ABSENT, Head, Hops, NO_VALUE, Reading, egress, is_plausible, present};
use crate::event::{Event, Kind, Output};

/// Running totals over the hops of a report.
struct Sum {
    hops: usize,
    latency: u64,
    /// Every hop reported a plausible latency.
    complete: bool,
}

impl Sum {
    fn add(&mut self, reading: &Reading, values: &mut Vec<HopValues>) {
        // An incomplete sum is discarded later, so implausible latencies may be added.
        self.complete &= is_plausible(reading.latency);
        self.latency = self.latency.saturating_add(reading.latency);
        self.hops += 1;
        if values.len() < values.capacity() {
            values.push(reading.values());
        }
    }
}

/// Returns true if no hop has a node id: the nodes could not deliver theirs, and the hops are no path.
fn is_nameless<H: Hops>(hops: H) -> bool {
    hops.count() > 0 && hops.records(0).all(|record| hops.node(record) == ABSENT)
}

impl State {
    /// Applies the values of a report about the flow in `slot`, and its path if it has changed.
    #[inline(always)]
    pub(super) fn update<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, out: &mut dyn Output) {
        let HotFlowParts {
            flow,
            cold,
            hops: stored,
        } = self.flows.hot_parts(slot);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        let count = hops.count();
        let deadband = flow.hop_deadband;
        let mut latency = 0_u64;
        let mut complete = true;
        let mut records = hops.records(0);
        let whole = stored.states.len() == count && count > 0;
        let mut same = flow.is_path_by_int(count) && whole;
        if same {
            for (state, values) in stored.iter_mut() {
                let Some(record) = records.next() else { break };
                let reading = hops.read(record);
                if reading.node != state.node {
                    same = false;
                    break;
                }
                if is_plausible(reading.latency) {
                    latency = latency.saturating_add(reading.latency);
                    self.metrics
                        .update_latency(state, &reading, deadband, &mut emitter);
                } else {
                    complete = false;
                    self.metrics.note_no_latency(state, &reading, &emitter);
                }
                self.metrics.update_others(state, values, &reading, &mut emitter);
            }
        }
        if !same {
            // All hops read so far were applied, except the last one if its node differed.
            let applied = (count - records.len()).saturating_sub(1);
            drop(records);
            self.update_slow(
                slot,
                head,
                hops,
                Sum {
                    hops: applied,
                    latency,
                    complete,
                },
                out,
            );
            return;
        }
        let total = if complete { latency } else { NO_VALUE };
        let latency = flow.apply(cold, head, hops, total, &mut emitter);
        let is_second_report = flow.reports == 2;
        let true_rules = flow.rules;
        if self.detection.has_rules()
            && !self.detection.is_settled_by_latency(slot, true_rules, latency)
            && !self.settles_rules(slot, head, latency, complete, out)
        {
            self.observe_hops(slot, head, hops, latency, out);
        }
        if is_second_report {
            // Two reports establish a flow. After that, one update per second is enough; see `refresh`.
            self.flows.touch(slot, self.second);
        }
    }

    /// Determines the true rules after a report was applied to the hops of a known path, and reports those that became true or
    /// false. Returns `false`, and does nothing, if the report must be evaluated in full.
    #[inline(never)]
    fn settles_rules(
        &mut self,
        slot: u32,
        head: &Head,
        latency: u64,
        complete: bool,
        out: &mut dyn Output,
    ) -> bool {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.flows.hot_parts(slot);
        let looped = flow.flags.has(Flags::LOOP);
        let hops = AppliedHops {
            states: stored.states,
            values: stored.values,
            complete,
            looped,
        };
        let scratch = &mut self.scratch.values;
        let Some(rules) = self
            .detection
            .evaluate_known(slot, flow.rules, latency, hops, scratch)
        else {
            return false;
        };
        if rules != flow.rules {
            self.report_rules(slot, head, rules, latency, out);
        }
        true
    }

    /// Evaluates the rules on a report whose hops were applied.
    #[inline(never)]
    pub(super) fn observe_hops<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        latency: u64,
        out: &mut dyn Output,
    ) {
        let values = &mut self.scratch.values;
        values.clear();
        values.extend(
            hops.records(0)
                .take(values.capacity())
                .map(|record| hops.read(record).values()),
        );
        self.evaluate_rules(slot, head, latency, out);
    }

    /// Continues an update if the path has changed or is truncated, or postcards arrived before the report.
    #[inline(never)]
    fn update_slow<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, mut sum: Sum, out: &mut dyn Output) {
        if is_nameless(hops) {
            let total = if sum.complete { sum.latency } else { NO_VALUE };
            self.update_incomplete(slot, head, hops, (sum.hops, total), out);
            return;
        }
        if head.whole_path {
            let mut is_part = head.signals.is_incomplete()
                && (self.is_part_of_path(slot, hops) || self.is_path_and_reporter(slot, head, hops));
            is_part |= self.expires_on_path(slot, head, hops);
            let stack_part = self.classify_stack(slot, head, hops);
            let lacks_hops = matches!(stack_part, StackPart::PathEnd | StackPart::WithoutRemoved);
            is_part |= lacks_hops;
            let is_overdue =
                is_part && stack_part != StackPart::PathEnd && self.is_path_overdue(slot, head.about.ts);
            if is_overdue {
                is_part = false;
                self.forget_filtered_path(slot);
            }
            self.begin_int(slot);
            self.flows.parts(slot).flow.set_has_parts(is_part);
            if is_part && lacks_hops {
                let signals = head.signals.or_incomplete(true);
                self.update_part(slot, &Head { signals, ..*head }, hops, out);
                return;
            }
            if is_part {
                self.update_part(slot, head, hops, out);
                return;
            }
            if stack_part == StackPart::ShorterPath {
                // The kernel filter still has the longer path.
                self.forget_filtered_path(slot);
            }
            let has_intermediate_reports = self.flows.initial(slot).has_intermediate_reports() && !is_overdue;
            let initial = head.initial(hops.count()).unwrap_or(0);
            self.flows
                .set_initial(slot, InitialHops::new(initial, has_intermediate_reports));
        }
        self.scratch.values.clear();
        // The values of the hops that were already applied.
        self.scratch.values.extend(
            hops.records(0)
                .take(sum.hops)
                .map(|record| hops.read(record).values()),
        );
        while !self.update_hops(slot, head, hops, &mut sum, out) {
            // The nodes before this one are also on the old path, and their values are already applied.
            self.set_path(slot, head, hops, out);
        }
        if sum.hops < hops.count() && self.retry_path(slot, head, hops, out) {
            self.update_hops(slot, head, hops, &mut sum, out);
        }
        if sum.hops < hops.count() {
            self.update_beyond(slot, head, hops, &mut sum, out);
        }
        let total = if sum.complete && sum.hops > 0 {
            sum.latency
        } else {
            NO_VALUE
        };
        let HotFlowParts { flow, cold, .. } = self.flows.hot_parts(slot);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        let latency = flow.apply(cold, head, hops, total, &mut emitter);
        let is_second_report = flow.reports == 2;
        self.enter_topology(slot);
        self.evaluate_rules(slot, head, latency, out);
        if is_second_report {
            self.flows.retry_if_truncated(slot);
            self.flows.touch(slot, self.second);
        }
    }

    /// Applies the values of hops that are part of the flow's path, or the path plus the reporter, and keeps the path. The flow
    /// latency and the rules are left alone: they need exactly the hops of the path.
    #[inline(never)]
    fn update_part<H: Hops>(&mut self, slot: u32, head: &Head, hops: H, out: &mut dyn Output) {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.flows.hot_parts(slot);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        let mut states = stored.states.iter_mut().zip(stored.values);
        for record in hops.records(0) {
            let reading = hops.read(record);
            let passing = (&mut HopState::passing(&reading), &mut { PacketValues::NOTHING });
            let (state, values) = states
                .find(|(state, _)| state.node == reading.node)
                .unwrap_or(passing);
            self.metrics
                .update(state, values, &reading, flow.hop_deadband, &mut emitter);
        }
        flow.count_report(head, &mut emitter);
        if flow.reports == 2 {
            self.flows.touch(slot, self.second);
        }
    }

    /// Evaluates the rules on a report whose hops are in `scratch`, and reports those that became true or false.
    pub(crate) fn evaluate_rules(&mut self, slot: u32, head: &Head, latency: u64, out: &mut dyn Output) {
        if !self.detection.has_rules() {
            return;
        }
        let flow = self.flows.parts(slot).flow;
        let observation = Observation {
            flow_latency: (latency != NO_VALUE).then_some(latency),
            looped: flow.flags.has(Flags::LOOP),
            hops: &self.scratch.values,
        };
        let rules = self.detection.evaluate(slot, &observation);
        if rules != flow.rules {
            self.report_rules(slot, head, rules, latency, out);
        }
    }

    /// Reports the rules that became true or false with a report whose hops are in `scratch`. Each event has the deciding
    /// comparison: metric, value, threshold, and the node, egress interface and queue with this value.
    #[cold]
    #[inline(never)]
    fn report_rules(&mut self, slot: u32, head: &Head, rules: u64, latency: u64, out: &mut dyn Output) {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.flows.hot_parts(slot);
        let observation = Observation {
            flow_latency: (latency != NO_VALUE).then_some(latency),
            looped: flow.flags.has(Flags::LOOP),
            hops: &self.scratch.values,
        };
        let changed = flow.rules ^ rules;
        for rule in (0..64_u16).filter(|rule| changed >> rule & 1 == 1) {
            let is_true = rules >> rule & 1 == 1;
            let kind = if is_true { Kind::RuleOn } else { Kind::RuleOff };
            let mut event = Event::blank(head.about.ts, kind);
            (event.flow, event.rule) = (head.about.flow(), Some(rule));
            if let Some(why) = self.detection.decisive(slot, rule, is_true, &observation) {
                (event.metric, event.value, event.threshold) =
                    (Some(why.metric()), why.value, Some(why.threshold()));
                let node = why
                    .hop
                    .and_then(|at| observation.hops.get(at))
                    .map(|hop| hop.node);
                event.node = node.filter(|node| *node != NO_NODE);
                let applied = why
                    .hop
                    .and_then(|at| Some((stored.states.get(at)?, stored.values.get(at)?)));
                if let Some((state, values)) = applied.filter(|(state, _)| event.node == Some(state.node)) {
                    event.interface = present(egress(state.link, values.level_2()));
                    let queue = match why.metric() {
                        Metric::QueueCongestion => values.congestion_or_absent(),
                        _ => state.queue,
                    };
                    event.queue = present(queue).map(|queue| (queue >> 24) as u8);
                }
            }
            self.detection
                .emitter(&head.about, flow.threshold_set, out)
                .emit(event, &[]);
        }
        flow.rules = rules;
    }

    /// Applies the values of the hops from `sum.hops` on. Returns `false` when the next hop has another node than the flow's
    /// stored path.
    fn update_hops<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        sum: &mut Sum,
        out: &mut dyn Output,
    ) -> bool {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.flows.hot_parts(slot);
        if usize::from(flow.path_length()) != hops.count() {
            return false;
        }
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        for ((state, values), record) in stored.iter_mut().skip(sum.hops).zip(hops.records(sum.hops)) {
            let reading = hops.read(record);
            if reading.node != state.node {
                return false;
            }
            self.metrics
                .update(state, values, &reading, flow.hop_deadband, &mut emitter);
            sum.add(&reading, &mut self.scratch.values);
        }
        true
    }

    /// Applies the values of hops beyond the stored part of a path.
    #[cold]
    #[inline(never)]
    fn update_beyond<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        sum: &mut Sum,
        out: &mut dyn Output,
    ) {
        let flow = self.flows.parts(slot).flow;
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        for record in hops.records(sum.hops) {
            let reading = hops.read(record);
            let mut state = HopState::passing(&reading);
            let mut values = PacketValues::NOTHING;
            self.metrics
                .update(&mut state, &mut values, &reading, 0, &mut emitter);
            sum.add(&reading, &mut self.scratch.values);
        }
    }

    /// Applies the values of one node of a flow, from a postcard.
    pub(super) fn update_hop(&mut self, slot: u32, head: &Head, reading: &Reading, out: &mut dyn Output) {
        let HotFlowParts {
            flow, hops: stored, ..
        } = self.flows.hot_parts(slot);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        let passing = (&mut HopState::passing(reading), &mut { PacketValues::NOTHING });
        let (state, values) = stored
            .iter_mut()
            .find(|(state, _)| state.node == reading.node)
            .unwrap_or(passing);
        self.metrics
            .update(state, values, reading, flow.hop_deadband, &mut emitter);
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.about.ts);
        let is_second_report = flow.reports == 2;
        self.enter_topology(slot);
        if is_second_report {
            self.flows.touch(slot, self.second);
        }
    }
}

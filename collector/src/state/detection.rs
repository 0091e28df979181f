//! The active thresholds and rules, the rule history of each flow, and the counts of emitted events. Evaluates the rules for
//! each report of a flow, and skips the evaluation where a cached region shows that nothing changes.

use std::sync::Arc;

use detect::rule::Decisive;
use detect::{Detection, HopValues, Metric, Observation};

use super::emit::{Emitter, EventCounts};
use super::rule_history::RuleHistory;
use super::rule_moves::RuleMoves;
use super::rule_regions::{AppliedHops, RuleRegions, TrueRules};
use crate::decode::{EventContext, NO_VALUE};
use crate::event::{Kind, Output};
use wire::FlowKey;

/// The active detection; see the module documentation.
#[derive(Debug)]
pub(crate) struct ActiveDetection {
    active: Arc<Detection>,
    history: RuleHistory,
    regions: RuleRegions,
    /// The rules that apply to each flow, by slot; empty if every rule applies to every flow.
    applicable: Vec<u64>,
    moves: RuleMoves,
    /// Counts swaps of `active`.
    generation: u32,
    /// Events emitted, by kind.
    pub(crate) counts: EventCounts,
}

impl ActiveDetection {
    /// Activates the initial thresholds and rules, for a table of `flows` flows.
    pub(crate) fn new(active: Arc<Detection>, flows: usize) -> Self {
        let mut detection = Self {
            active: Arc::clone(&active),
            history: RuleHistory::default(),
            regions: RuleRegions::default(),
            applicable: Vec::new(),
            moves: RuleMoves::default(),
            generation: 0,
            counts: [0; Kind::ALL.len()],
        };
        detection.activate(active, flows);
        detection
    }

    /// Activates other thresholds and rules. Cells of the rule history that both rule sets have are preserved.
    pub(crate) fn activate(&mut self, detection: Arc<Detection>, flows: usize) {
        self.history.set(&detection.rules, flows);
        self.regions.reset(&detection.rules);
        let slots = if detection.rules.is_limited() { flows } else { 0 };
        if slots != self.applicable.len() {
            // All bits are 0 until `resolve` is called for the flow.
            self.applicable = vec![0; slots];
        }
        self.moves
            .add(self.generation, &self.active.rules, &detection.rules);
        self.active = detection;
        self.generation = self.generation.wrapping_add(1);
    }

    /// Returns the active thresholds and rules.
    #[inline(always)]
    pub(crate) fn active(&self) -> &Arc<Detection> {
        &self.active
    }

    /// Changes with every activation.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns whether there are rules.
    #[inline(always)]
    pub(crate) fn has_rules(&self) -> bool {
        !self.active.rules.is_empty()
    }

    /// Returns the lowest of all thresholds for a metric.
    pub(crate) fn least_threshold(&self, metric: Metric) -> u64 {
        let thresholds = &self.active.thresholds;
        let sets = 0..thresholds.set_count();
        sets.map(|set| thresholds.get(set as u16)[metric as usize])
            .min()
            .unwrap_or(0)
    }

    /// Returns an emitter for a report or flow with this set of thresholds.
    #[inline(always)]
    pub(crate) fn emitter<'a>(
        &'a mut self,
        about: &'a EventContext,
        set: u16,
        out: &'a mut dyn Output,
    ) -> Emitter<'a> {
        Emitter::new(out, &mut self.counts, about, &self.active.thresholds, set)
    }

    /// Returns an emitter for a report that has no flow, or whose flow is not in the table.
    pub(crate) fn emitter_without_flow<'a>(
        &'a mut self,
        about: &'a EventContext,
        out: &'a mut dyn Output,
    ) -> Emitter<'a> {
        let set = about
            .flow()
            .map_or(0, |flow| self.active.thresholds.set_for(&flow));
        self.emitter(about, set, out)
    }

    /// Determines which rules apply to the flow in `slot`. `before` is (generation, true rules) under an earlier rule set.
    /// Returns the rules that are still true of the flow, if they still exist and apply.
    pub(crate) fn resolve(&mut self, slot: u32, flow: &FlowKey, before: (u32, u64)) -> u64 {
        if let Some(applicable) = self.applicable.get_mut(slot as usize) {
            *applicable = self.active.rules.applicable(flow);
        }
        self.carried(before.0, before.1) & self.applicable(slot)
    }

    /// Returns the active rules that were true of a flow under `generation`.
    pub(crate) fn carried(&self, generation: u32, rules: u64) -> u64 {
        if generation == self.generation {
            rules
        } else {
            self.moves.map_rules(generation, rules)
        }
    }

    #[inline(always)]
    fn applicable(&self, slot: u32) -> u64 {
        self.applicable.get(slot as usize).copied().unwrap_or(u64::MAX)
    }

    /// Evaluates the rules for a report of the flow in `slot`. Returns the true ones: bit i is rule i.
    pub(crate) fn evaluate(&mut self, slot: u32, observation: &Observation<'_>) -> u64 {
        let applicable = self.applicable(slot);
        if applicable == 0 {
            return 0;
        }
        let rules = &self.active.rules;
        let history = self.history.of(slot);
        let true_rules = rules.evaluate_applicable(applicable, observation, history);
        // Rules that count runs ("for N reports") are settled only by a report that ends all runs, so learn only from such a
        // report.
        if !rules.counts_runs_only() || history.iter().all(|run| *run == 0) {
            let known = TrueRules {
                rules: true_rules & rules.in_regions(),
                applicable,
            };
            self.regions.learn(rules, known, observation);
        }
        true_rules
    }

    /// Returns true if a report with this flow latency changes no rule: for flows without rules, and for rule sets that compare
    /// nothing but flow latency.
    #[inline(always)]
    pub(crate) fn is_settled_by_latency(&self, slot: u32, true_rules: u64, latency: u64) -> bool {
        let known = TrueRules {
            rules: true_rules,
            applicable: self.applicable(slot),
        };
        known.applicable == 0 || self.regions.contain_latency(known, latency)
    }

    /// Returns the rules that are true after a report was applied to its flow's hops, if a cached region decides it; `None` if
    /// the rules must be evaluated. `before` are the rules true so far; `scratch` is memory for the hops.
    #[inline(always)]
    pub(crate) fn evaluate_known(
        &mut self,
        slot: u32,
        before: u64,
        latency: u64,
        hops: AppliedHops<'_>,
        scratch: &mut Vec<HopValues>,
    ) -> Option<u64> {
        let applicable = self.applicable(slot);
        let rules = &self.active.rules;
        let unchanged = before & rules.in_regions();
        let known = TrueRules {
            rules: unchanged,
            applicable,
        };
        if !self.regions.contain(rules, known, latency, hops) {
            return None;
        }
        if rules.stateful() == 0 {
            return Some(unchanged);
        }
        if rules.counts_runs_only() {
            self.history.of(slot).fill(0);
            return Some(unchanged);
        }
        if !hops.observe(scratch) {
            return None;
        }
        let flow_latency = (latency != NO_VALUE).then_some(latency);
        let observation = Observation {
            flow_latency,
            looped: hops.looped,
            hops: scratch,
        };
        Some(unchanged | rules.evaluate_stateful(applicable, &observation, self.history.of(slot)))
    }

    /// Returns the comparison that made a rule true or false, for the report of the flow in `slot` that was evaluated last.
    pub(crate) fn decisive(
        &mut self,
        slot: u32,
        rule: u16,
        is_true: bool,
        observation: &Observation<'_>,
    ) -> Option<Decisive<'_>> {
        let history = self.history.of(slot);
        self.active
            .rules
            .decisive(usize::from(rule), is_true, observation, history)
    }

    /// Clears the rule history of `slot`, which gets another flow.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.history.forget(slot);
    }

    /// Returns the bytes of memory used for rules.
    pub(crate) fn bytes(&self) -> usize {
        self.history.bytes() + self.regions.bytes() + self.applicable.capacity() * size_of::<u64>()
    }
}

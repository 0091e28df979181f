//! Regions of reports for which known rules are true: see `detect::rule::region`. A flow whose report is in the region of the
//! rules that are true of it already needs no evaluation.

use detect::RuleSet;
use detect::rule::{HopQuantity, Region, ReportSummary, Summary};
use detect::{HopValues, observation};

use super::hops::{HopState, PacketValues};
use super::node_metrics::SATURATED;
use crate::decode::ABSENT;
use crate::hash::fold;

/// Regions remembered: a power of two.
const REGIONS: usize = 64;

/// A region, and which rules without history are true in it.
#[derive(Clone, Copy, Debug)]
struct Known {
    rules: u64,
    region: Region,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RuleRegions {
    /// None where there are no rules.
    known: Vec<Known>,
    /// The rules compare flow latencies and nothing else.
    by_latency: bool,
    /// Of the report that is being looked at: reused, since it is large.
    report: ReportSummary,
}

/// The hops of a flow after a report was applied to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppliedHops<'a> {
    pub(crate) states: &'a [HopState],
    pub(crate) values: &'a [PacketValues],
    /// Whether every hop reported a plausible latency.
    pub(crate) complete: bool,
    pub(crate) looped: bool,
}

impl RuleRegions {
    /// Forgets all regions; there are others if there are rules.
    pub(crate) fn reset(&mut self, rules: &RuleSet) {
        let count = if rules.is_empty() { 0 } else { REGIONS };
        self.known = vec![Known { rules: 0, region: Region::EMPTY }; count];
        self.by_latency = rules.uses_only_flow_latency();
    }

    #[inline(always)]
    fn index(rules: u64, shape: u64) -> usize {
        fold(rules, shape) as usize % REGIONS
    }

    /// [`RuleRegions::contain`] for sets of rules that compare flow latencies and nothing else; `false` for others.
    #[inline(always)]
    pub(crate) fn contain_latency(&self, true_rules: u64, latency: u64) -> bool {
        self.by_latency
            && self
                .known
                .get(Self::index(true_rules, 0))
                .is_some_and(|known| known.rules == true_rules && known.region.contains_latency(latency))
    }

    /// Whether a report makes no rule without history true or false, if `true_rules` are true of the flow.
    #[inline]
    pub(crate) fn contain(
        &mut self,
        (rules, true_rules): (&RuleSet, u64),
        latency: u64,
        hops: AppliedHops<'_>,
    ) -> bool {
        let Some(quantities) = rules.quantities() else { return false };
        self.report.begin(rules, latency, (hops.states.len(), hops.looped));
        for (at, quantity) in quantities.iter().enumerate() {
            let Some(summary) = summarise(quantity, hops) else { return false };
            if !self.report.add(at, quantity, summary) {
                return false;
            }
        }
        let index = Self::index(true_rules, self.report.shape_hash());
        self.known.get(index).is_some_and(|known| {
            known.rules == true_rules && known.region.contains(&self.report, quantities.len())
        })
    }

    /// Remembers the region around a report that was evaluated.
    pub(crate) fn learn(
        &mut self,
        (rules, true_rules): (&RuleSet, u64),
        observation: &detect::Observation<'_>,
    ) {
        let Some(report) = rules.summarise(observation) else { return };
        let Some(region) = Region::around(rules, &report) else { return };
        if let Some(known) = self.known.get_mut(Self::index(true_rules, report.shape_hash())) {
            *known = Known { rules: true_rules, region };
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<Known>()
    }
}

/// The values of one quantity. `None`: what is stored may not be what was reported.
#[inline]
fn summarise(quantity: &HopQuantity, hops: AppliedHops<'_>) -> Option<Summary> {
    use detect::rule::term::Subject;
    let AppliedHops { states, values, complete, .. } = hops;
    match quantity.subject {
        Subject::HopLatency if !complete => None,
        Subject::HopLatency => {
            let summary = summary_of(quantity, states, states.iter().map(|state| u64::from(state.latest)));
            (summary.greatest < u64::from(SATURATED)).then_some(summary)
        }
        Subject::QueueOccupancy => {
            Some(summary_of(quantity, states, states.iter().map(|state| level(state.queue))))
        }
        Subject::QueueCongestion => {
            let congestion = |values: &PacketValues| values.congestion().unwrap_or(observation::ABSENT);
            Some(summary_of(quantity, states, values.iter().map(congestion)))
        }
        Subject::LinkUtilization => {
            let utilization = |values: &PacketValues| values.utilization().unwrap_or(observation::ABSENT);
            let summary = summary_of(quantity, states, values.iter().map(utilization));
            (summary.greatest < PacketValues::SATURATED_UTILIZATION).then_some(summary)
        }
        Subject::FlowLatency | Subject::Hops | Subject::Loop => None,
    }
}

/// The level of a queue or buffer.
#[inline(always)]
fn level(queue: u32) -> u64 {
    if queue == ABSENT { observation::ABSENT } else { u64::from(queue & 0x00ff_ffff) }
}

#[inline(always)]
fn summary_of(quantity: &HopQuantity, states: &[HopState], values: impl Iterator<Item = u64>) -> Summary {
    let mut summary = Summary::EMPTY;
    if quantity.node == observation::NO_NODE {
        values.for_each(|value| summary.add(value));
    } else {
        for (state, value) in states.iter().zip(values) {
            summary.add(if state.node == quantity.node { value } else { observation::ABSENT });
        }
    }
    summary
}

impl AppliedHops<'_> {
    /// The hops as rules see them, into `out`. `false`: what is stored may not be what was reported.
    pub(crate) fn observe(&self, out: &mut Vec<HopValues>) -> bool {
        out.clear();
        let mut exact = self.complete && self.states.len() <= out.capacity();
        for (state, values) in self.states.iter().zip(self.values) {
            let link_utilization = values.utilization().unwrap_or(observation::ABSENT);
            exact &= state.latest < SATURATED && link_utilization != PacketValues::SATURATED_UTILIZATION;
            out.push(HopValues {
                hop_latency: u64::from(state.latest),
                queue_occupancy: level(state.queue),
                queue_congestion: values.congestion().unwrap_or(observation::ABSENT),
                link_utilization,
                node: state.node,
            });
        }
        exact
    }
}

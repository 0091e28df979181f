//! Cache of regions of reports in which the same rules are true: see `detect::rule::region`. A report that lies in the region
//! of the rules that are already true of its flow needs no evaluation.

use detect::RuleSet;
use detect::rule::{HopQuantity, Region, ReportSummary, Summary};
use detect::{HopValues, observation};

use super::hops::{HopState, PacketValues};
use super::node_metrics::SATURATED;
use crate::decode::ABSENT;
use crate::hash::fold;

/// Number of cached regions, a power of two.
const REGIONS: usize = 64;

/// A region, and the rules without history that are true in it.
#[derive(Clone, Copy, Debug)]
struct Known {
    rules: u64,
    /// The rules that apply to the flow, one bit each.
    applicable: u64,
    region: Region,
}

/// The rules that are true of a flow, and those that apply to it. Flows with equal values share regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TrueRules {
    pub(crate) rules: u64,
    pub(crate) applicable: u64,
}

impl Known {
    #[inline(always)]
    fn is_of(&self, known: TrueRules) -> bool {
        self.rules == known.rules && self.applicable == known.applicable
    }
}

/// The cache of regions; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RuleRegions {
    /// The cache, selected by hash; empty if there are no rules.
    known: Vec<Known>,
    /// True if the rules compare flow latencies and nothing else.
    by_latency: bool,
    /// Summary of the report being evaluated; a field because it is large.
    report: ReportSummary,
}

/// The hops of a flow after a report was applied to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppliedHops<'a> {
    pub(crate) states: &'a [HopState],
    pub(crate) values: &'a [PacketValues],
    /// True if every hop reported a plausible latency.
    pub(crate) complete: bool,
    pub(crate) looped: bool,
}

impl RuleRegions {
    /// Clears the cache for a new rule set.
    pub(crate) fn reset(&mut self, rules: &RuleSet) {
        let count = if rules.is_empty() { 0 } else { REGIONS };
        self.known = vec![
            Known {
                rules: 0,
                applicable: 0,
                region: Region::EMPTY
            };
            count
        ];
        self.by_latency = rules.uses_only_flow_latency();
    }

    #[inline(always)]
    fn index(known: TrueRules, shape: u64) -> usize {
        // `applicable` has all bits set if every rule applies to every flow; inverted, it then does not change the hash.
        fold(known.rules ^ (!known.applicable).rotate_left(32), shape) as usize % REGIONS
    }

    /// Does what [`RuleRegions::contain`] does for rule sets that compare only flow latencies; returns `false` for others.
    #[inline(always)]
    pub(crate) fn contain_latency(&self, true_rules: TrueRules, latency: u64) -> bool {
        self.by_latency
            && self
                .known
                .get(Self::index(true_rules, 0))
                .is_some_and(|known| known.is_of(true_rules) && known.region.contains_latency(latency))
    }

    /// Returns true if a report changes no rule without history, given that `true_rules` are those of its flow.
    #[inline]
    pub(crate) fn contain(
        &mut self,
        rules: &RuleSet,
        true_rules: TrueRules,
        latency: u64,
        hops: AppliedHops<'_>,
    ) -> bool {
        let Some(quantities) = rules.quantities() else {
            return false;
        };
        self.report
            .begin(rules, latency, (hops.states.len(), hops.looped));
        for (at, quantity) in quantities.iter().enumerate() {
            let Some(summary) = summarise(quantity, hops) else {
                return false;
            };
            self.report.add(at, quantity, summary);
        }
        let index = Self::index(true_rules, self.report.shape_hash());
        self.known.get(index).is_some_and(|known| {
            known.is_of(true_rules) && known.region.contains(&self.report, quantities.len())
        })
    }

    /// Caches the region around a report that was evaluated.
    pub(crate) fn learn(
        &mut self,
        rules: &RuleSet,
        true_rules: TrueRules,
        observation: &detect::Observation<'_>,
    ) {
        let Some(report) = rules.summarise(observation) else {
            return;
        };
        let Some(region) = Region::around(rules, &report) else {
            return;
        };
        if let Some(known) = self.known.get_mut(Self::index(true_rules, report.shape_hash())) {
            let TrueRules { rules, applicable } = true_rules;
            *known = Known {
                rules,
                applicable,
                region,
            };
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<Known>()
    }
}

/// Summarizes the values of one quantity, or returns `None` if the stored values may differ from the reported ones.
#[inline]
fn summarise(quantity: &HopQuantity, hops: AppliedHops<'_>) -> Option<Summary> {
    use detect::rule::term::Subject;
    let AppliedHops {
        states,
        values,
        complete,
        ..
    } = hops;
    match quantity.subject {
        Subject::HopLatency if !complete => None,
        Subject::HopLatency => {
            let summary = summary_of(quantity, states, states.iter().map(|state| state.latest));
            (summary.greatest < u64::from(SATURATED)).then_some(summary)
        }
        Subject::QueueOccupancy => Some(summary_of(
            quantity,
            states,
            states.iter().map(|state| level(state.queue)),
        )),
        Subject::QueueCongestion => Some(summary_of(
            quantity,
            states,
            values.iter().map(|values| level(values.congestion_or_absent())),
        )),
        Subject::LinkUtilization => {
            let utilization = values.iter().map(PacketValues::utilization_or_absent);
            let summary = summary_of(quantity, states, utilization);
            (summary.greatest < PacketValues::SATURATED_UTILIZATION).then_some(summary)
        }
        Subject::FlowLatency | Subject::Hops | Subject::Loop => None,
    }
}

/// Returns the level of a queue (low 24 bits), or [`ABSENT`].
#[inline(always)]
fn level(queue: u32) -> u32 {
    if queue == ABSENT {
        ABSENT
    } else {
        queue & 0x00ff_ffff
    }
}

/// Converts a stored value to the form that rules use.
#[inline(always)]
fn widened(value: u32) -> u64 {
    if value == ABSENT {
        observation::ABSENT
    } else {
        u64::from(value)
    }
}

#[inline(always)]
fn summary_of(quantity: &HopQuantity, states: &[HopState], values: impl Iterator<Item = u32>) -> Summary {
    if quantity.node == observation::NO_NODE {
        return summary(quantity.counted, values);
    }
    let here = states.iter().zip(values);
    summary(
        quantity.counted,
        here.map(|(state, value)| {
            if state.node == quantity.node {
                value
            } else {
                ABSENT
            }
        }),
    )
}

/// Summarizes values, skipping [`ABSENT`]. If they are not counted, the count is 1 if there are any, and the sum is 0.
#[inline(always)]
fn summary(counted: bool, values: impl Iterator<Item = u32>) -> Summary {
    // Each value plus one: `ABSENT` wraps to 0, which is less than any value and adds nothing to a sum.
    let mut least = ABSENT;
    let mut greatest = 0_u32;
    let mut sum = 0_u64;
    let mut count = 0_u16;
    for value in values {
        let above = value.wrapping_add(1);
        least = least.min(value);
        greatest = greatest.max(above);
        if counted {
            sum += u64::from(above);
            count = count.wrapping_add(u16::from(above != 0));
        }
    }
    if greatest == 0 {
        return Summary::EMPTY;
    }
    let (sum, count) = if counted {
        (sum - u64::from(count), count)
    } else {
        (0, 1)
    };
    Summary {
        least: least.into(),
        greatest: u64::from(greatest - 1),
        sum,
        count,
    }
}

impl AppliedHops<'_> {
    /// Writes the hops to `out` in the form that rules use. Returns `false` if the stored values may differ from the reported
    /// ones.
    pub(crate) fn observe(&self, out: &mut Vec<HopValues>) -> bool {
        out.clear();
        let hops = self
            .states
            .iter()
            .zip(self.values)
            .map(|(state, values)| HopValues {
                hop_latency: u64::from(state.latest),
                queue_occupancy: widened(level(state.queue)),
                queue_congestion: widened(level(values.congestion_or_absent())),
                link_utilization: widened(values.utilization_or_absent()),
                node: state.node,
            });
        out.extend(hops);
        self.complete
            && out.iter().all(|hop| {
                hop.hop_latency < u64::from(SATURATED)
                    && hop.link_utilization != PacketValues::SATURATED_UTILIZATION
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[u32]) -> impl Iterator<Item = u32> {
        of.iter().copied()
    }

    #[test]
    fn a_summary_leaves_out_absent_values() {
        let all = Summary {
            least: 3,
            greatest: 9,
            sum: 17,
            count: 3,
        };
        assert_eq!(summary(true, values(&[5, ABSENT, 9, 3])), all);
        assert_eq!(
            summary(false, values(&[5, ABSENT, 9, 3])),
            Summary {
                sum: 0,
                count: 1,
                ..all
            }
        );
        assert_eq!(summary(true, values(&[ABSENT, ABSENT])), Summary::EMPTY);
        assert_eq!(summary(false, values(&[])), Summary::EMPTY);
        let zero = Summary {
            least: 0,
            greatest: 0,
            sum: 0,
            count: 1,
        };
        assert_eq!(summary(true, values(&[0, ABSENT])), zero);
        let large = Summary {
            least: u64::from(ABSENT - 1),
            greatest: u64::from(ABSENT - 1),
            sum: u64::from(ABSENT - 1),
            count: 1,
        };
        assert_eq!(summary(true, values(&[ABSENT - 1])), large);
    }
}

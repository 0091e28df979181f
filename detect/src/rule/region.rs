//! Regions: a cache that avoids evaluating rules for reports that cannot change their result.
//!
//! Most reports change no rule's result. After evaluating a report, the caller keeps the region around it: ranges of the
//! compared values within which no comparison changes its outcome. A report inside the region needs no evaluation. The
//! check costs a few comparisons per value, however many rules there are.
//!
//! Of the hops' values, a region uses only minimum, maximum, sum and count ([`Summary`]). If these do not determine a
//! comparison (how many of several different values exceed a number), there is no region and every report is evaluated.
//! Regions cover the rules without history. If the only history is `for`, they cover all rules, for reports in which no
//! condition under a `for` is true ([`RuleSet::counts_runs_only`]).

use super::RuleSet;
use super::history::{Cell, NO_CELL};
use super::term::{Aggregate, Comparison, Subject, Term};
use crate::observation::{ABSENT, HopValues, NO_NODE, Observation};

/// Maximum number of hop quantities that rules may use if there are to be regions.
pub const QUANTITIES: usize = 8;

/// A per-hop value, over all hops or of one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HopQuantity {
    /// The metric that is summarized.
    pub subject: Subject,
    /// Only the hops of this node; [`NO_NODE`] for every hop.
    pub node: u32,
    /// A rule uses the count or sum of the values. Otherwise only whether there are any matters.
    pub counted: bool,
}

impl HopQuantity {
    /// Returns the value at a hop, or [`ABSENT`] for another node's hop.
    fn value_of(&self, hop: &HopValues) -> u64 {
        if self.node != NO_NODE && self.node != hop.node {
            return ABSENT;
        }
        hop.value(self.subject.metric()).unwrap_or(ABSENT)
    }
}

/// Summary of one quantity over the hops of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Minimum; [`ABSENT`] if there are no values.
    pub least: u64,
    /// Maximum; 0 if there are no values.
    pub greatest: u64,
    /// Sum of the values, saturating.
    pub sum: u64,
    /// Number of values, saturating.
    pub count: u16,
}

impl Summary {
    /// The summary of no values.
    pub const EMPTY: Self = Self {
        least: ABSENT,
        greatest: 0,
        sum: 0,
        count: 0,
    };

    /// Adds a value, unless it is [`ABSENT`].
    #[inline(always)]
    pub fn add(&mut self, value: u64) {
        let is_present = value != ABSENT;
        let summand = if is_present { value } else { 0 };
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(summand);
        self.sum = self.sum.saturating_add(summand);
        self.count = self.count.saturating_add(u16::from(is_present));
    }
}

/// The values of one report that rules compare, summarized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportSummary {
    shape: Shape,
    flow_latency: u64,
    hops: [Summary; QUANTITIES],
}

impl Default for ReportSummary {
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            flow_latency: ABSENT,
            hops: [Summary::EMPTY; QUANTITIES],
        }
    }
}

/// The part of a summary that is equal for all reports in a region. Values that rules do not use are 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Shape {
    /// Twice the number of hops, plus 1 if the path has a loop.
    flow: u64,
    /// Number of values per quantity, 16 bits each in two words (low, high); 1 stands for any number if the quantity is not
    /// counted.
    counts: (u64, u64),
}

impl Shape {
    /// A shape that no report has, because its counts cannot be summarized.
    const IMPOSSIBLE: Self = Self {
        flow: 0,
        counts: (u64::MAX, u64::MAX),
    };

    /// Adds the number of values of quantity `index`.
    #[inline(always)]
    fn add_count(&mut self, index: usize, count: u16) {
        let word = if index < 4 {
            &mut self.counts.0
        } else {
            &mut self.counts.1
        };
        *word |= u64::from(count) << (16 * (index % 4));
    }

    /// Compares all fields in one branch, because they are nearly always equal.
    #[inline(always)]
    fn is(&self, other: &Self) -> bool {
        let counts = (self.counts.0 ^ other.counts.0) | (self.counts.1 ^ other.counts.1);
        (self.flow ^ other.flow) | counts == 0
    }
}

impl ReportSummary {
    /// Starts a summary with the values of the flow. `flow_latency` is [`ABSENT`] if unknown; `path` is the number of hops
    /// and whether the path has a loop. Add a summary for each of [`RuleSet::quantities`] next.
    #[inline(always)]
    pub fn begin(&mut self, rules: &RuleSet, flow_latency: u64, path: (usize, bool)) {
        let (hops, looped) = path;
        let Needs {
            hops: needs_hops,
            looped: needs_loop,
            ..
        } = rules.needs;
        let hops = if needs_hops { hops as u64 } else { 0 };
        self.shape = Shape {
            flow: hops << 1 | u64::from(looped && needs_loop),
            counts: (0, 0),
        };
        self.flow_latency = flow_latency;
    }

    /// Adds the summary of quantity `index`.
    #[inline(always)]
    pub fn add(&mut self, index: usize, quantity: &HopQuantity, summary: Summary) {
        let count = if quantity.counted {
            summary.count
        } else {
            summary.count.min(1)
        };
        self.shape.add_count(index, count);
        self.hops[index % QUANTITIES] = summary;
    }

    /// Returns a hash of the shape.
    #[inline(always)]
    pub fn shape_hash(&self) -> u64 {
        let Shape {
            flow,
            counts: (low, high),
        } = self.shape;
        low ^ high.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ flow.rotate_left(40)
    }
}

/// The numbers from `low` to `low + width`, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    low: u64,
    width: u64,
}

impl Range {
    const PRESENT: Self = Self {
        low: 0,
        width: ABSENT - 1,
    };
    const ABSENT: Self = Self {
        low: ABSENT,
        width: 0,
    };

    #[inline(always)]
    fn contains(self, value: u64) -> bool {
        value.wrapping_sub(self.low) <= self.width
    }

    /// Narrows the range to the part in which `comparison` with `number` has the same outcome as for `value`, which is in
    /// the range.
    fn narrow(&mut self, value: u64, comparison: Comparison, number: u64) {
        let same_outcome = same_outcome(value, comparison, number);
        let low = self.low.max(same_outcome.low);
        let high = (self.low + self.width).min(same_outcome.low + same_outcome.width);
        *self = Self {
            low,
            width: high - low,
        };
    }
}

/// Returns the values around `value` with the same outcome. [`Comparison::Equal`] has three such ranges: below, equal,
/// above.
fn same_outcome(value: u64, comparison: Comparison, number: u64) -> Range {
    let (low, high) = match comparison {
        Comparison::Less | Comparison::AtLeast if value < number => (0, number - 1),
        Comparison::Less | Comparison::AtLeast => (number, ABSENT - 1),
        Comparison::Greater | Comparison::AtMost if value <= number => (0, number.min(ABSENT - 1)),
        Comparison::Greater | Comparison::AtMost => (number + 1, ABSENT - 1),
        Comparison::Equal | Comparison::Unequal if value < number => (0, number - 1),
        Comparison::Equal | Comparison::Unequal if value > number => (number + 1, ABSENT - 1),
        Comparison::Equal | Comparison::Unequal => (number, number),
    };
    Range {
        low,
        width: high - low,
    }
}

/// The ranges of one quantity's summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HopRegion {
    least: Range,
    greatest: Range,
    sum: Range,
}

impl HopRegion {
    const EVERY: Self = Self {
        least: Range::PRESENT,
        greatest: Range::PRESENT,
        sum: Range::PRESENT,
    };
    /// The ranges of a quantity that no hop has.
    const NONE: Self = Self {
        least: Range::ABSENT,
        ..Self::EVERY
    };

    #[inline(always)]
    fn contains(&self, summary: &Summary) -> bool {
        self.least.contains(summary.least)
            & self.greatest.contains(summary.greatest)
            & self.sum.contains(summary.sum)
    }

    /// Narrows the ranges around `summary` so that `term` has the same outcome. Returns `None` if they do not determine it.
    fn narrow(&mut self, summary: &Summary, term: &Term) -> Option<()> {
        let Term {
            comparison,
            value: number,
            ..
        } = *term;
        let is_upward = matches!(comparison, Comparison::Greater | Comparison::AtLeast);
        let is_ordered = !matches!(comparison, Comparison::Equal | Comparison::Unequal);
        match term.aggregate {
            // The number of values is part of the shape.
            Aggregate::Count | Aggregate::Flow => {}
            Aggregate::Max => self.greatest.narrow(summary.greatest, comparison, number),
            Aggregate::Min => self.least.narrow(summary.least, comparison, number),
            Aggregate::Any if is_ordered && is_upward => {
                self.greatest.narrow(summary.greatest, comparison, number);
            }
            Aggregate::All if is_ordered && !is_upward => {
                self.greatest.narrow(summary.greatest, comparison, number);
            }
            Aggregate::Any | Aggregate::All if is_ordered => {
                self.least.narrow(summary.least, comparison, number);
            }
            Aggregate::Any | Aggregate::All | Aggregate::CountWhere => {
                if !same_outcome(summary.least, comparison, number).contains(summary.greatest) {
                    return None;
                }
                self.least.narrow(summary.least, comparison, number);
                self.greatest.narrow(summary.greatest, comparison, number);
            }
            Aggregate::Sum | Aggregate::Avg => {
                let count = if term.aggregate == Aggregate::Avg {
                    summary.count
                } else {
                    1
                };
                if summary.sum == u64::MAX {
                    return None;
                }
                // If the product overflows, every sum is smaller, and the outcome cannot change.
                if let Some(number) = number.checked_mul(u64::from(count)) {
                    self.sum.narrow(summary.sum, comparison, number);
                }
            }
        }
        Some(())
    }
}

/// A set of reports for which the same rules are true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    shape: Shape,
    flow_latency: Range,
    hops: [HopRegion; QUANTITIES],
}

impl Region {
    /// A region that contains no report.
    pub const EMPTY: Self = Self {
        shape: Shape::IMPOSSIBLE,
        flow_latency: Range::ABSENT,
        hops: [HopRegion::NONE; QUANTITIES],
    };

    /// Returns the region of `rules` around a report, or `None` if there is none.
    pub fn around(rules: &RuleSet, report: &ReportSummary) -> Option<Self> {
        let has_latency = report.flow_latency != ABSENT;
        let mut region = Self {
            shape: report.shape,
            flow_latency: if has_latency {
                Range::PRESENT
            } else {
                Range::ABSENT
            },
            hops: report.hops.map(|hops| {
                if hops.count > 0 {
                    HopRegion::EVERY
                } else {
                    HopRegion::NONE
                }
            }),
        };
        for term in rules.terms_in_regions() {
            if term.subject == Subject::FlowLatency && has_latency {
                region
                    .flow_latency
                    .narrow(report.flow_latency, term.comparison, term.value);
            }
            if let Some(index) = rules.needs.quantity_of(term)
                && report.hops[index].count > 0
            {
                region.hops[index].narrow(&report.hops[index], term)?;
            }
        }
        Some(region)
    }

    /// Returns whether a report with this flow latency ([`ABSENT`] if unknown) is inside. Only for rule sets that [use
    /// nothing else](RuleSet::uses_only_flow_latency).
    #[inline(always)]
    pub fn contains_latency(&self, flow_latency: u64) -> bool {
        self.shape.is(&Shape::default()) && self.flow_latency.contains(flow_latency)
    }

    /// Returns whether a report is inside; `quantities` is the number of [`RuleSet::quantities`].
    #[inline(always)]
    pub fn contains(&self, report: &ReportSummary, quantities: usize) -> bool {
        self.shape.is(&report.shape)
            && self.flow_latency.contains(report.flow_latency)
            && self
                .hops
                .iter()
                .zip(&report.hops)
                .take(quantities)
                .all(|(region, summary)| region.contains(summary))
    }
}

/// The values of a report that the rules covered by regions use.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    quantities: Vec<HopQuantity>,
    /// The number of hops is used.
    hops: bool,
    /// Whether the path has a loop is used.
    looped: bool,
    /// Rules use more quantities than [`QUANTITIES`].
    has_too_many: bool,
    runs_only: bool,
}

impl Needs {
    fn add(&mut self, term: &Term) {
        self.hops |= term.subject == Subject::Hops;
        self.looped |= term.subject == Subject::Loop;
        if !term.subject.is_per_hop() {
            return;
        }
        let is_counted = matches!(
            term.aggregate,
            Aggregate::Sum | Aggregate::Avg | Aggregate::Count | Aggregate::CountWhere
        );
        match self.quantity_of(term) {
            Some(index) => self.quantities[index].counted |= is_counted,
            None if self.quantities.len() == QUANTITIES => self.has_too_many = true,
            None => {
                self.quantities.push(HopQuantity {
                    subject: term.subject,
                    node: term.node,
                    counted: is_counted,
                });
            }
        }
    }

    fn quantity_of(&self, term: &Term) -> Option<usize> {
        self.quantities
            .iter()
            .position(|known| known.subject == term.subject && known.node == term.node)
    }
}

impl RuleSet {
    /// Returns the quantities to summarize, or `None` if rules use too many, so that there are no regions.
    #[inline(always)]
    pub fn quantities(&self) -> Option<&[HopQuantity]> {
        (!self.needs.has_too_many).then_some(&self.needs.quantities)
    }

    /// Returns whether rules use nothing but the flow latency.
    pub fn uses_only_flow_latency(&self) -> bool {
        let Needs {
            quantities,
            hops,
            looped,
            has_too_many,
            ..
        } = &self.needs;
        self.stateful == 0 && !(*hops || *looped || *has_too_many) && quantities.is_empty()
    }

    /// Summarizes a report, or returns `None` if it cannot be summarized.
    pub fn summarise(&self, observation: &Observation<'_>) -> Option<ReportSummary> {
        let mut report = ReportSummary::default();
        let latency = observation.flow_latency.unwrap_or(ABSENT);
        if observation.flow_latency == Some(ABSENT) || observation.hops.len() >= usize::from(u16::MAX) {
            return None;
        }
        report.begin(self, latency, (observation.hops.len(), observation.looped));
        for (index, quantity) in self.quantities()?.iter().enumerate() {
            let mut summary = Summary::EMPTY;
            observation
                .hops
                .iter()
                .for_each(|hop| summary.add(quantity.value_of(hop)));
            report.add(index, quantity, summary);
        }
        Some(report)
    }

    /// Returns whether the only history is the length of runs (`for`). If a condition is false, its run is 0 whatever it
    /// was before.
    #[inline(always)]
    pub fn counts_runs_only(&self) -> bool {
        self.needs.runs_only
    }

    /// Returns the rules covered by regions: bit `i` is rule `i`.
    #[inline(always)]
    pub fn in_regions(&self) -> u64 {
        if self.needs.runs_only {
            u64::MAX
        } else {
            !self.stateful
        }
    }

    /// Returns the comparisons of the covered rules. Under a `for`, that is the condition itself.
    fn terms_in_regions(&self) -> impl Iterator<Item = &Term> {
        (0..self.len())
            .filter(|index| self.in_regions() >> index & 1 == 1)
            .flat_map(|index| self.clauses(index))
            .flatten()
    }

    pub(super) fn collect_needs(&mut self) {
        self.needs.runs_only = self.stateful != 0
            && self
                .cells()
                .iter()
                .all(|cell| matches!(cell, Cell::Run(_, NO_CELL)));
        let mut needs = Needs {
            runs_only: self.needs.runs_only,
            ..Needs::default()
        };
        self.terms_in_regions().for_each(|term| needs.add(term));
        self.needs = needs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::rule::tests::{random_hops, random_rule};

    fn rules(texts: &[String]) -> RuleSet {
        let named: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| (at.to_string(), text.clone()))
            .collect();
        RuleSet::compile(&named).unwrap()
    }

    fn observation<'a>(random: &mut Random, hops: &'a [HopValues]) -> Observation<'a> {
        Observation {
            flow_latency: random.maybe(|r| r.below(6)),
            looped: random.below(2) == 0,
            hops,
        }
    }

    #[test]
    fn the_same_rules_are_true_of_all_reports_in_a_region() {
        let mut random = Random::new(17);
        let (mut regions, mut inside) = (0, 0);
        for _ in 0..3000 {
            let texts: Vec<String> = (0..=random.below(3))
                .map(|_| random_rule(&mut random, 2))
                .collect();
            let rules = rules(&texts);
            let Some(quantities) = rules.quantities().map(<[HopQuantity]>::len) else {
                continue;
            };
            let hops = random_hops(&mut random);
            let first = observation(&mut random, &hops);
            let Some(summary) = rules.summarise(&first) else {
                panic!("{first:?}")
            };
            let Some(region) = Region::around(&rules, &summary) else {
                continue;
            };
            assert!(region.contains(&summary, quantities), "{texts:?} {first:?}");
            regions += 1;
            for _ in 0..100 {
                let hops = random_hops(&mut random);
                let other = observation(&mut random, &hops);
                if rules
                    .summarise(&other)
                    .is_some_and(|summary| region.contains(&summary, quantities))
                {
                    inside += 1;
                    assert_eq!(
                        rules.evaluate(&other),
                        rules.evaluate(&first),
                        "{texts:?} {first:?} {other:?}"
                    );
                }
            }
        }
        assert!(regions > 1500 && inside > 10_000, "{regions} {inside}");
    }

    #[test]
    fn a_region_ends_where_a_comparison_changes() {
        let rules = rules(&["flow_latency > 5 and flow_latency <= 9 or max(queue_occupancy) == 7".into()]);
        let hops = |occupancy| {
            [HopValues {
                queue_occupancy: occupancy,
                ..HopValues::NOTHING
            }]
        };
        let summary = |latency: Option<u64>, occupancy| {
            let hops = hops(occupancy);
            rules
                .summarise(&Observation {
                    flow_latency: latency,
                    hops: &hops,
                    looped: false,
                })
                .unwrap()
        };
        let region = Region::around(&rules, &summary(Some(6), 3)).unwrap();
        let inside: Vec<(u64, u64)> = (0..12)
            .flat_map(|latency| (0..9).map(move |occupancy| (latency, occupancy)))
            .filter(|(latency, occupancy)| region.contains(&summary(Some(*latency), *occupancy), 1))
            .collect();
        let expected: Vec<(u64, u64)> = (6..=9)
            .flat_map(|latency| (0..7).map(move |occupancy| (latency, occupancy)))
            .collect();
        assert_eq!(inside, expected);
        assert!(!region.contains(&summary(None, 3), 1) && !region.contains(&summary(Some(6), ABSENT), 1));
    }

    #[test]
    fn there_is_no_region_where_a_summary_does_not_determine_a_rule() {
        let rules = rules(&["count(queue_occupancy > 5) >= 2".into()]);
        let region = |occupancies: &[u64]| {
            let hops: Vec<_> = occupancies
                .iter()
                .map(|&queue_occupancy| HopValues {
                    queue_occupancy,
                    ..HopValues::NOTHING
                })
                .collect();
            let report = Observation {
                hops: &hops,
                ..Observation::default()
            };
            Region::around(&rules, &rules.summarise(&report).unwrap()).is_some()
        };
        assert!(region(&[1, 2, 3]) && region(&[8, 9]) && region(&[]));
        assert!(!region(&[1, 9]));
    }

    #[test]
    fn conditions_under_for_are_in_regions_unless_there_is_other_history() {
        let of = |texts: &[&str]| {
            let set = rules(&texts.iter().map(|text| (*text).to_string()).collect::<Vec<_>>());
            (
                set.counts_runs_only(),
                set.in_regions() & 3,
                set.quantities().map(<[HopQuantity]>::len),
            )
        };
        assert_eq!(of(&["queue_occupancy > 5 for 3", "hops > 2"]), (true, 3, Some(1)));
        assert_eq!(of(&["change(hops) > 5 for 3", "hops > 2"]), (false, 2, Some(0)));
        assert_eq!(
            of(&["queue_occupancy > 5 for 3", "change(hops) > 2"]),
            (false, 0, Some(0))
        );
        assert_eq!(of(&["queue_occupancy > 5"]), (false, 3, Some(1)));
        let set = rules(&["queue_occupancy > 5 for 3".into()]);
        let summary = |queue_occupancy| {
            let hops = [HopValues {
                queue_occupancy,
                ..HopValues::NOTHING
            }];
            set.summarise(&Observation {
                hops: &hops,
                ..Observation::default()
            })
            .unwrap()
        };
        let region = Region::around(&set, &summary(4)).unwrap();
        let inside: Vec<u64> = (0..9)
            .filter(|level| region.contains(&summary(*level), 1))
            .collect();
        assert_eq!(inside, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn rules_about_the_flow_latency_alone_need_nothing_else() {
        let set = rules(&["flow_latency > 5 or not flow_latency > 2".into()]);
        let report = set
            .summarise(&Observation {
                flow_latency: Some(3),
                ..Observation::default()
            })
            .unwrap();
        let region = Region::around(&set, &report).unwrap();
        let inside: Vec<u64> = (0..9)
            .chain([ABSENT])
            .filter(|latency| region.contains_latency(*latency))
            .collect();
        assert_eq!((set.uses_only_flow_latency(), inside), (true, vec![3, 4, 5]));
        for other in [
            "hops > 3",
            "loop",
            "queue_occupancy > 5",
            "flow_latency > 5 for 2",
        ] {
            assert!(
                !rules(&["flow_latency > 5".into(), other.into()]).uses_only_flow_latency(),
                "{other}"
            );
        }
        assert!(!Region::EMPTY.contains_latency(ABSENT));
    }
}

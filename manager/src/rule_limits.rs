//! The limits of filters by rule: checks whether a device can evaluate a rule of the rule language in its data plane.

use std::collections::BTreeSet;

use detect::{Metric, Program, RuleSet, Table};

/// Capacity and features of a device's filters by rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimits {
    /// Number of filters by rule.
    pub filters: usize,
    /// Maximum number of different comparisons in a rule's conjunctive normal form.
    pub comparisons: usize,
    /// Maximum number of clauses in that form.
    pub clauses: usize,
    /// True if rules may use earlier packets of the flow.
    pub history: bool,
    /// Metrics that rules may compare. `flow_path` stands for the number of hops and loops.
    pub metrics: BTreeSet<Metric>,
}

impl RuleLimits {
    /// Returns why the device cannot evaluate `rule` and how to change it, or `None` if it can.
    pub fn problem(&self, rule: &str) -> Option<String> {
        let rules = match RuleSet::compile(&[("rule".to_owned(), rule.to_owned())]) {
            Ok(rules) => rules,
            Err(error) => return Some(error.to_string()),
        };
        if rules.is_stateful(0) && !self.history {
            return Some(
                "it keeps no earlier packets; leave out `previous`, `change`, `average` and `for`".to_owned(),
            );
        }
        if let Some(metric) = Metric::ALL
            .into_iter()
            .find(|metric| rules.uses(*metric) && !self.metrics.contains(metric))
        {
            return Some(format!("it does not compare {metric}; leave it out of the rule"));
        }
        let table = if rules.is_stateful(0) {
            Program::new(&rules).ok().map(|program| program.table)
        } else {
            let split = Table::split(&rules);
            split.user.is_empty().then_some(split.table)
        };
        let fits = table.is_some_and(|table| {
            table.comparisons().len() <= self.comparisons
                && table.clauses[0].count_ones() as usize <= self.clauses
        });
        if fits {
            return None;
        }
        Some(format!(
            "the rule is too big: it has room for {} different comparisons in {} clauses; split it into several intents",
            self.comparisons, self.clauses
        ))
    }
}

impl Default for RuleLimits {
    /// Returns the limits of a hopwise switch.
    fn default() -> Self {
        Self {
            filters: 256,
            comparisons: detect::table::TERMS,
            clauses: detect::table::CLAUSES,
            history: true,
            metrics: Metric::ALL.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told() {
        let all = RuleLimits::default();
        let few = RuleLimits {
            comparisons: 2,
            clauses: 2,
            history: false,
            metrics: [Metric::FlowPath, Metric::HopLatency].into(),
            ..all.clone()
        };
        for rule in [
            "hops > 3 and loop",
            "max(hop_latency) > 5ms",
            "hops > 3 or (hops > 3 and loop)",
        ] {
            assert_eq!((all.problem(rule), few.problem(rule)), (None, None), "{rule}");
        }
        for (rule, part) in [
            ("max(queue_occupancy) > 5", "it does not compare queue_occupancy"),
            ("hops > 3 for 5", "it keeps no earlier packets"),
            (
                "hops > 3 and loop and max(hop_latency) > 1",
                "room for 2 different comparisons in 2 clauses",
            ),
        ] {
            assert_eq!(all.problem(rule), None, "{rule}");
            assert!(
                few.problem(rule).is_some_and(|text| text.contains(part)),
                "{:?}",
                few.problem(rule)
            );
        }
        assert!(all.problem("hops >").is_some());
    }
}

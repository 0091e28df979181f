//! Explains a rule's result: finds the comparison that made it true or false, for the text of an event.

use super::RuleSet;
use super::history::{EMPTY, HistoryCells, NO_CELL};
use super::term::{Aggregate, Comparison, History, Subject, Term};
use crate::metric::Metric;
use crate::observation::{ABSENT, HopValues, NO_NODE, Observation};

/// The comparison that decided a rule's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decisive<'a> {
    /// The comparison that decided the result.
    pub term: &'a Term,
    /// Value in this report; `None` if the report does not have it, or only a difference from an earlier report was
    /// compared.
    pub value: Option<u64>,
    /// Index of the hop with this value, if there is one.
    pub hop: Option<usize>,
}

impl Decisive<'_> {
    /// Returns the metric of the value. For a number of hops it is the path.
    pub fn metric(&self) -> Metric {
        if self.term.aggregate == Aggregate::Count {
            Metric::FlowPath
        } else {
            self.term.subject.metric()
        }
    }

    /// Returns the number with which the value was compared, in the value's unit.
    pub fn threshold(&self) -> u64 {
        self.term.value
    }
}

/// The result of a comparison, as far as it is known after the evaluation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Truth {
    True,
    False,
    /// Unknown: it compares with the previous report's value, which this report has replaced.
    Replaced,
}

impl RuleSet {
    /// Returns the comparison that made rule `index` true (`is_true`) or false. For a true rule, that is the first true
    /// comparison about a hop, or else about the whole flow. Otherwise it is the first comparison of a clause in which none
    /// is true. `history` is as after the evaluation of this report.
    pub fn decisive(
        &self,
        index: usize,
        is_true: bool,
        observation: &Observation<'_>,
        history: &[u64],
    ) -> Option<Decisive<'_>> {
        let mut first = None;
        for (clause, terms) in self.clauses(index).enumerate() {
            let mut true_term = None;
            let mut replaced_term = None;
            for (position, term) in terms.iter().enumerate() {
                match truth(term, self.cells_of(index, clause, position), observation, history) {
                    Truth::True => true_term = true_term.or(Some(position)),
                    Truth::Replaced => replaced_term = replaced_term.or(Some(position)),
                    Truth::False => {}
                }
            }
            let position = match (true_term, replaced_term) {
                (Some(position), _) if is_true => position,
                (Some(_), _) => continue,
                // No comparison of this clause is true, as far as is known, so the rule is not.
                (None, Some(position)) => position,
                (None, None) => 0,
            };
            let term = terms.get(position)?;
            let decisive = with_value(term, self.cells_of(index, clause, position), observation, history);
            if !is_true || decisive.hop.is_some() {
                return Some(decisive);
            }
            first = first.or(Some(decisive));
        }
        first
    }
}

fn truth(term: &Term, cells: HistoryCells, observation: &Observation<'_>, history: &[u64]) -> Truth {
    let [run, value] =
        [cells.run, cells.value].map(|cell| history.get(usize::from(cell)).copied().unwrap_or(EMPTY));
    if cells.run != NO_CELL {
        return if term.lasts(run) {
            Truth::True
        } else {
            Truth::False
        };
    }
    let result = match term.history {
        History::Now => term.truth(observation),
        History::Previous | History::Change => return Truth::Replaced,
        History::Average => term.truth_with(observation, 0, value),
    };
    if result == Some(true) {
        Truth::True
    } else {
        Truth::False
    }
}

fn with_value<'a>(
    term: &'a Term,
    cells: HistoryCells,
    observation: &Observation<'_>,
    history: &[u64],
) -> Decisive<'a> {
    let (value, hop) = match term.history {
        History::Previous | History::Change => (None, None),
        History::Average => {
            let average = history
                .get(usize::from(cells.value))
                .filter(|average| **average != EMPTY);
            (average.map(|average| average >> 8), None)
        }
        History::Now => current_value(term, observation),
    };
    Decisive { term, value, hop }
}

/// Returns the value of this report that a comparison compares, and the index of the hop that has it.
fn current_value(term: &Term, observation: &Observation<'_>) -> (Option<u64>, Option<usize>) {
    let value_of: fn(&HopValues) -> u64 = match term.subject {
        Subject::FlowLatency => return (observation.flow_latency, None),
        Subject::Hops => return (Some(observation.hops.len() as u64), None),
        Subject::Loop => return (Some(u64::from(observation.looped)), None),
        Subject::HopLatency => |hop| hop.hop_latency,
        Subject::QueueOccupancy => |hop| hop.queue_occupancy,
        Subject::QueueCongestion => |hop| hop.queue_congestion,
        Subject::LinkUtilization => |hop| hop.link_utilization,
    };
    let hops = observation.hops.iter().enumerate();
    let node_hops = hops.filter(|(_, hop)| term.node == NO_NODE || term.node == hop.node);
    let values = node_hops
        .map(|(index, hop)| (index, value_of(hop)))
        .filter(|(_, value)| *value != ABSENT);
    let is_minimum = match term.aggregate {
        Aggregate::Sum | Aggregate::Avg => {
            let (sum, count) = values.fold((0_u128, 0_u128), |(sum, count), (_, value)| {
                (sum + u128::from(value), count + 1)
            });
            let divisor = if term.aggregate == Aggregate::Sum {
                1
            } else {
                count
            };
            let value = sum.checked_div(divisor).filter(|_| count > 0);
            return (value.map(|value| u64::try_from(value).unwrap_or(u64::MAX)), None);
        }
        Aggregate::Count => return (Some(values.count() as u64), None),
        Aggregate::Min => true,
        Aggregate::Max => false,
        _ => matches!(term.comparison, Comparison::Less | Comparison::AtMost),
    };
    // Of hops that are compared one by one, prefer one for which the comparison holds.
    let is_per_hop = matches!(
        term.aggregate,
        Aggregate::Any | Aggregate::All | Aggregate::CountWhere
    );
    let extreme = values.reduce(|best, next| {
        let [best_rank, next_rank] = [best, next].map(|(_, value)| {
            let holds = is_per_hop && term.holds(value);
            (holds, if is_minimum { u64::MAX - value } else { value })
        });
        if next_rank > best_rank { next } else { best }
    });
    (extreme.map(|(_, value)| value), extreme.map(|(index, _)| index))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPS: [HopValues; 3] = [
        HopValues {
            node: 101,
            hop_latency: 1_000,
            queue_occupancy: 10,
            ..HopValues::NOTHING
        },
        HopValues {
            node: 102,
            hop_latency: 6_000_000,
            queue_occupancy: 80,
            ..HopValues::NOTHING
        },
        HopValues {
            node: 103,
            hop_latency: 2_000,
            queue_occupancy: 60,
            ..HopValues::NOTHING
        },
    ];

    /// Evaluates a rule over these reports. Returns whether it is true after the last one, and the text, value and hop of
    /// the decisive comparison.
    fn why(text: &str, reports: &[&[HopValues]]) -> (bool, String, Option<u64>, Option<usize>) {
        let rules = RuleSet::compile(&[("r".to_owned(), text.to_owned())]).unwrap();
        let mut history = vec![EMPTY; rules.cells().len()];
        let mut is_true = false;
        let observation = |hops| Observation {
            flow_latency: Some(7_000_000),
            looped: false,
            hops,
        };
        for hops in reports {
            is_true = rules.evaluate_with(&observation(hops), &mut history) == 1;
        }
        let found = rules
            .decisive(0, is_true, &observation(reports[reports.len() - 1]), &history)
            .unwrap();
        assert_eq!(found.threshold(), found.term.value);
        (is_true, found.term.to_string(), found.value, found.hop)
    }

    #[test]
    fn the_first_comparison_that_is_true_is_named_with_its_value() {
        let because = |text: &str, term: &str, value, hop| {
            assert_eq!(why(text, &[&HOPS]), (true, term.to_owned(), value, hop), "{text}");
        };
        // A comparison of a hop is preferred to one of the flow, although the flow is compared first.
        because(
            "max(queue_occupancy) > 50 and flow_latency > 5ms",
            "max(queue_occupancy) > 50",
            Some(80),
            Some(1),
        );
        because(
            "flow_latency > 5ms",
            "flow_latency > 5000000ns",
            Some(7_000_000),
            None,
        );
        because("hops > 5 or hops > 2", "hops > 2", Some(3), None);
        because(
            "min(queue_occupancy) < 20",
            "min(queue_occupancy) < 20",
            Some(10),
            Some(0),
        );
        because(
            "queue_occupancy > 50",
            "any(queue_occupancy > 50)",
            Some(80),
            Some(1),
        );
        because(
            "queue_occupancy < 70",
            "any(queue_occupancy < 70)",
            Some(10),
            Some(0),
        );
        because(
            "any(queue_occupancy == 60)",
            "any(queue_occupancy == 60)",
            Some(60),
            Some(2),
        );
        because(
            "queue_occupancy@103 > 50",
            "any(queue_occupancy@103 > 50)",
            Some(60),
            Some(2),
        );
        because(
            "count(queue_occupancy > 50) >= 2",
            "count(queue_occupancy > 50) >= 2",
            Some(80),
            Some(1),
        );
        because(
            "count(queue_occupancy) >= 2",
            "count(queue_occupancy) >= 2",
            Some(3),
            None,
        );
        because(
            "sum(queue_occupancy) > 100",
            "sum(queue_occupancy) > 100",
            Some(150),
            None,
        );
        because(
            "avg(queue_occupancy) > 20",
            "avg(queue_occupancy) > 20",
            Some(50),
            None,
        );
        because("not loop", "not loop", Some(0), None);
    }

    #[test]
    fn a_rule_that_is_not_true_names_what_is_not() {
        let not = |text: &str, term: &str, value, hop| {
            assert_eq!(
                why(text, &[&HOPS]),
                (false, term.to_owned(), value, hop),
                "{text}"
            );
        };
        not(
            "max(queue_occupancy) > 90 and flow_latency > 5ms",
            "max(queue_occupancy) > 90",
            Some(80),
            Some(1),
        );
        not("queue_occupancy > 90 or hops > 4", "hops > 4", Some(3), None);
        not(
            "link_utilization > 50%",
            "any(link_utilization > 50.0000%)",
            None,
            None,
        );
    }

    #[test]
    fn history_is_judged_by_what_is_left_of_it() {
        let calm = [HopValues {
            node: 101,
            queue_occupancy: 10,
            ..HopValues::NOTHING
        }];
        let run = why("max(queue_occupancy) > 50 for 2", &[&HOPS, &HOPS]);
        assert_eq!(
            run,
            (
                true,
                "max(queue_occupancy) > 50 for 2".to_owned(),
                Some(80),
                Some(1)
            )
        );
        let average = why("average(max(queue_occupancy), 0.5) > 40", &[&calm, &HOPS]);
        assert_eq!((average.0, average.2, average.3), (true, Some(45), None));
        // The previous value has already been overwritten, so the change is unknown.
        let change = why("change(max(queue_occupancy)) > 40", &[&calm, &HOPS]);
        assert_eq!((change.0, change.2), (true, None));
        let two = why(
            "change(max(queue_occupancy)) > 40 and max(queue_occupancy) > 50",
            &[&calm, &HOPS],
        );
        assert_eq!((two.1.as_str(), two.2), ("max(queue_occupancy) > 50", Some(80)));
        let off = why("change(max(queue_occupancy)) > 90", &[&calm, &HOPS]);
        assert_eq!((off.0, off.2), (false, None));
    }
}

//! The rule language: boolean expressions over the values of one report and of its flow's earlier reports, such as
//!
//! `max(queue_occupancy) > 50 and flow_latency > 5ms`
//!
//! # Syntax
//! - Values of the flow: `flow_latency`, `hops` (their number), `loop` (the path visits a node twice).
//! - Values of the hops: `hop_latency`, `queue_occupancy`, `queue_congestion`, `link_utilization`, under an aggregate:
//!   `max(…)`, `min(…)`, `sum(…)`, `avg(…)`; `any(queue_occupancy > 50)`, `all(…)`, `count(queue_occupancy > 50) >= 2`;
//!   `count(queue_occupancy)` is the number of hops with the value. A hop metric without an aggregate means any hop:
//!   `queue_occupancy > 50` is `any(queue_occupancy > 50)`.
//! - Values of one node: `queue_occupancy@102 > 50`, also inside an aggregate.
//! - Numbers: whole, decimal or `0x…`; times in `ns`, `us`, `ms`, `s` (ns without a unit); a utilization as `80%` or `0.8`;
//!   `k`, `M`, `G` are powers of a thousand. Comparisons: `<` `<=` `>` `>=` `==` `!=`.
//! - Precedence: `not`, then `and`, then `or`; parentheses group.
//!
//! # History
//! Values of the flow's earlier reports, in order of arrival:
//! - `previous(value)`: the value of the previous report; `change(value)`: the absolute difference between this report's
//!   value and the previous one;
//! - `average(value)` or `average(value, 0.25)`: the moving average, including this report's value; the number is the weight
//!   of a new value, rounded to a 256th, 0.25 by default;
//! - `condition for 5`: the condition was true for this report and the four before it. It binds more tightly than `not`;
//!   the condition is a comparison, or parentheses with comparisons joined by `and`.
//!
//! A value is one integer: `flow_latency`, `hops`, or `max(…)`, `min(…)`, `sum(…)`, `count(…)` of a metric. On a flow's
//! first report `previous` and `change` are unknown. `for` is never unknown: a report for which the condition is not true,
//! for any reason, restarts the count. See [`history`] for the exact arithmetic.
//!
//! # Missing values are unknown
//! A comparison with a value that the report does not have is unknown: neither true nor false. `not unknown` is unknown,
//! `unknown and false` is false, `unknown or true` is true, and a rule fires only when it is true. So
//! `not flow_latency > 5ms` does not fire on a report without a latency. Aggregates cover the hops that have the value,
//! and are unknown if there are none.
//!
//! # Representation
//! Each rule is compiled once into conjunctive normal form, in flat arrays of fixed-size elements with fixed limits, so
//! that the same table can be written into kernel maps or switch registers. The history of a flow is a fixed number of
//! cells ([`RuleSet::cells`]), which the caller stores per flow.

pub mod decisive;
mod error;
mod expression;
pub mod fuzz;
pub mod history;
mod lexer;
pub mod names;
mod parser;
pub mod region;
pub mod scope;
pub mod term;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;

pub use decisive::Decisive;
pub use error::RuleError;
pub use history::{CELLS, Cell};
pub use parser::{amount, unlikely_latencies};
pub use region::{HopQuantity, Region, ReportSummary, Summary};
pub use scope::TooManyMatches;
use term::History;
pub use term::Term;

use crate::metric::Metric;
use crate::observation::Observation;
use error::Fault;
use expression::{MAX_CLAUSES, MAX_LITERALS, MAX_TERMS, NormalForm, NormalFormError};
use history::{Cells, EMPTY, HistoryCells, NO_CELL, read_cell};

/// Maximum length of a rule's name, characters. Every event of the rule contains the name.
pub const MAX_NAME: usize = 64;

/// Maximum number of rules of a set: [`RuleSet::evaluate`] returns one bit for each.
pub const MAX_RULES: usize = 64;

/// Compiled rules.
///
/// ```
/// use detect::{HopValues, Observation, RuleSet};
///
/// let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
/// let rules = RuleSet::compile(&[named("long", "hops > 2"), named("queue", "queue_occupancy@102 > 50")])?;
///
/// let hop = |node, queue_occupancy| HopValues { node, queue_occupancy, ..HopValues::NOTHING };
/// let hops = [hop(101, 90), hop(102, 10), hop(103, 0)];
/// let found = rules.evaluate(&Observation { hops: &hops, ..Observation::default() });
/// let names: Vec<_> = (0..rules.len()).filter(|i| found >> i & 1 == 1).map(|i| rules.name(i)).collect();
/// assert_eq!(names, ["long"]);
///
/// let error = RuleSet::compile(&[named("bad", "hops > 5ms")]).unwrap_err();
/// assert_eq!((error.rule.as_str(), error.line_and_column()), ("bad", (1, 8)));
/// # Ok::<(), detect::RuleError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Ends of the clauses in `terms`; a clause starts where the previous one ends.
    clause_ends: Vec<u32>,
    terms: Vec<Term>,
    /// History cells of each term.
    places: Vec<HistoryCells>,
    cells: Cells,
    /// Bit `i` is set if rule `i` uses earlier reports.
    stateful: u64,
    /// Bit `m` is set if a term uses metric `m`.
    metrics: u8,
    /// Values that [regions](region) summarize.
    needs: region::Needs,
    /// Flows to which rules are limited.
    scopes: scope::Scopes,
}

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    text: String,
    /// Range of its clauses in `clause_ends`.
    first_clause: u32,
    end_clause: u32,
}

impl RuleSet {
    /// Compiles rules, given as (name, text). Rule `i` is bit `i` of [`RuleSet::evaluate`].
    ///
    /// # Errors
    /// The first invalid rule with the position of the error: bad syntax, unknown names, wrong units, more than
    /// [`MAX_RULES`] rules, a duplicate name, a name of more than [`MAX_NAME`] characters, a normal form of more than 64
    /// clauses, 64 different comparisons or 256 terms, or more than [`CELLS`] history cells in all rules together.
    pub fn compile(rules: &[(String, String)]) -> Result<Self, RuleError> {
        let mut set = Self::default();
        for (index, (name, text)) in rules.iter().enumerate() {
            let added = if index == MAX_RULES {
                Err(Fault::of_rule(format!(
                    "there are {} rules; at most {MAX_RULES} are possible",
                    rules.len()
                )))
            } else if rules[..index].iter().any(|(earlier, _)| earlier == name) {
                Err(Fault::of_rule("another rule has this name".into()))
            } else {
                set.add(name, text)
            };
            added.map_err(|fault| fault.in_rule(name, text))?;
        }
        set.collect_needs();
        Ok(set)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the name of rule `index`, or an empty string if there is no such rule.
    pub fn name(&self, index: usize) -> &str {
        self.rules.get(index).map_or("", |rule| &rule.name)
    }

    /// Returns the text of rule `index`, or an empty string if there is no such rule.
    pub fn text(&self, index: usize) -> &str {
        self.rules.get(index).map_or("", |rule| &rule.text)
    }

    /// Returns whether any rule uses `metric`; the number of hops and loops count as the path. Other metrics need not be
    /// filled into the observation.
    pub fn uses(&self, metric: Metric) -> bool {
        self.metrics >> (metric as u8) & 1 == 1
    }

    /// Returns the clauses of rule `index`, each a list of terms at least one of which must be true.
    pub fn clauses(&self, index: usize) -> impl Iterator<Item = &[Term]> {
        let (first, end) = self
            .rules
            .get(index)
            .map_or((0, 0), |rule| (rule.first_clause, rule.end_clause));
        (first..end).map(|clause| self.clause(clause as usize))
    }

    /// Returns the layout of a flow's history: one 64-bit number per cell. Empty unless a rule uses earlier reports.
    pub fn cells(&self) -> &[Cell] {
        self.cells.as_slice()
    }

    /// Returns whether rule `index` uses earlier reports of a flow.
    pub fn is_stateful(&self, index: usize) -> bool {
        index < MAX_RULES && self.stateful >> index & 1 == 1
    }

    /// Returns the rules that use earlier reports of a flow: bit `i` is rule `i`.
    #[inline(always)]
    pub fn stateful(&self) -> u64 {
        self.stateful
    }

    /// Returns the same rules with every `for n` replaced by `for 1`, an over-approximation: each is true whenever the
    /// original rule is, and becomes true at least as often. Returns `None` if a rule uses other history, or a `for` under
    /// `not` or beside `or`, where this does not hold.
    pub fn without_counts(&self) -> Option<Self> {
        let mut set = Self::default();
        for (index, rule) in self.rules.iter().enumerate() {
            let clauses = self
                .clauses(index)
                .map(|clause| match clause {
                    [term] if term.history == History::Now && !term.lapsed => {
                        Some(vec![term.without_count()])
                    }
                    several if several.iter().any(Term::is_stateful) => None,
                    several => Some(several.to_vec()),
                })
                .collect::<Option<_>>()?;
            if !set.push(&rule.name, &rule.text, &NormalForm { clauses }) {
                return None;
            }
        }
        set.collect_needs();
        Some(set)
    }

    /// Returns the cells of term `at` in clause `clause` of rule `index`.
    pub(crate) fn cells_of(&self, index: usize, clause: usize, at: usize) -> HistoryCells {
        let first = self.rules.get(index).map_or(0, |rule| rule.first_clause as usize);
        self.places[self.terms_of(first + clause).start + at]
    }

    /// Evaluates all rules for a flow's first report, and returns a bit per rule that is true. Costs a few ns per term, and
    /// does not allocate.
    #[inline]
    pub fn evaluate(&self, observation: &Observation<'_>) -> u64 {
        self.evaluate_applicable(u64::MAX, observation, &mut [])
    }

    #[inline]
    fn evaluate_stateless(&self, applicable: u64, observation: &Observation<'_>) -> u64 {
        let mut fired = 0;
        for (index, rule) in self
            .rules
            .iter()
            .enumerate()
            .filter(|(index, _)| applicable >> index & 1 == 1)
        {
            let fires = (rule.first_clause..rule.end_clause).all(|clause| {
                self.clause(clause as usize)
                    .iter()
                    .any(|term| term.truth(observation) == Some(true))
            });
            fired |= u64::from(fires) << index;
        }
        fired
    }

    /// Like [`RuleSet::evaluate`], with history: call it for each report of a flow in order of arrival. `history` has one
    /// number per [cell](RuleSet::cells), initially [`EMPTY`]. If it is too short, every report counts as the first.
    pub fn evaluate_with(&self, observation: &Observation<'_>, history: &mut [u64]) -> u64 {
        self.evaluate_applicable(u64::MAX, observation, history)
    }

    /// Like [`RuleSet::evaluate_with`], for the rules that apply to the flow: see [`RuleSet::applicable`].
    pub fn evaluate_applicable(
        &self,
        applicable: u64,
        observation: &Observation<'_>,
        history: &mut [u64],
    ) -> u64 {
        let cells = self.cells().len();
        match history.get_mut(..cells).filter(|_| self.stateful != 0) {
            Some(history) => self.evaluate_these(applicable, observation, history),
            None if self.stateful != 0 => self.evaluate_these(applicable, observation, &mut [EMPTY; CELLS]),
            None => self.evaluate_stateless(applicable, observation),
        }
    }

    /// Like [`RuleSet::evaluate_applicable`], but only for rules with history: for a report whose [`Region`] tells the
    /// others.
    pub fn evaluate_stateful(
        &self,
        applicable: u64,
        observation: &Observation<'_>,
        history: &mut [u64],
    ) -> u64 {
        self.evaluate_applicable(applicable & self.stateful, observation, history)
    }

    /// Evaluates the rules in the set `these` and returns those that are true. `history` has one number per cell.
    #[inline]
    fn evaluate_these(&self, these: u64, observation: &Observation<'_>, history: &mut [u64]) -> u64 {
        let now = self.cells.update(observation, history);
        let mut fired = 0;
        for (index, rule) in self
            .rules
            .iter()
            .enumerate()
            .filter(|(index, _)| these >> index & 1 == 1)
        {
            let fires = (rule.first_clause..rule.end_clause).all(|clause| {
                let range = self.terms_of(clause as usize);
                let terms = self.terms[range.clone()].iter().zip(&self.places[range]);
                terms.into_iter().any(|(term, places)| {
                    if places.run != NO_CELL {
                        return term.lasts(read_cell(places.run, &now, history).1);
                    }
                    let (value, stored) = read_cell(places.value, &now, history);
                    term.truth_with(observation, value, stored) == Some(true)
                })
            });
            fired |= u64::from(fires) << index;
        }
        self.cells.store(&now, history);
        fired
    }

    #[inline]
    fn terms_of(&self, clause: usize) -> std::ops::Range<usize> {
        let start = if clause == 0 {
            0
        } else {
            self.clause_ends[clause - 1]
        };
        start as usize..self.clause_ends[clause] as usize
    }

    #[inline]
    fn clause(&self, clause: usize) -> &[Term] {
        &self.terms[self.terms_of(clause)]
    }

    /// Compiles and adds a rule.
    fn add(&mut self, name: &str, text: &str) -> Result<(), Fault> {
        if name.chars().count() > MAX_NAME {
            return Err(Fault::of_rule(format!(
                "a rule's name has at most {MAX_NAME} characters"
            )));
        }
        if name.trim().is_empty() {
            return Err(Fault::of_rule("a rule needs a name".into()));
        }
        let expression = parser::parse(text)?;
        let normal = NormalForm::of(&expression).map_err(|too_big| Fault::of_rule(too_big.to_string()))?;
        if !self.push(name, text, &normal) {
            return Err(Fault::of_rule(format!(
                "the rules up to this one remember more than {CELLS} values of a flow: leave some out"
            )));
        }
        Ok(())
    }

    /// Adds a compiled rule. Returns `false` if it needs more cells than there are.
    fn push(&mut self, name: &str, text: &str, normal: &NormalForm) -> bool {
        let first_clause = self.clause_ends.len() as u32;
        let index = self.rules.len();
        for clause in &normal.clauses {
            for term in clause {
                let Some(places) = self.cells.cells_of(term) else {
                    return false;
                };
                self.places.push(places);
                self.metrics |= 1 << (term.subject.metric() as u8);
                self.stateful |= u64::from(term.is_stateful()) << index;
            }
            self.terms.extend_from_slice(clause);
            self.clause_ends.push(self.terms.len() as u32);
        }
        let end_clause = self.clause_ends.len() as u32;
        self.rules.push(Rule {
            name: name.to_owned(),
            text: text.to_owned(),
            first_clause,
            end_clause,
        });
        true
    }
}

impl fmt::Display for NormalFormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match self {
            Self::Literals => format!("more than {MAX_LITERALS} different comparisons"),
            Self::Clauses => format!("more than {MAX_CLAUSES} clauses in conjunctive normal form"),
            Self::Terms => format!("more than {MAX_TERMS} terms in conjunctive normal form"),
        };
        write!(f, "the rule is too big ({limit}): split it into several rules")
    }
}

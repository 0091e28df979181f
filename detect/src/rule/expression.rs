//! The syntax tree of a rule: its reference semantics in three-valued logic, and its conversion to conjunctive normal form.

use super::history::{History, MAX_VALUE, Quantity};
use super::term::Term;
use crate::observation::Observation;

/// Maximum number of different terms in a rule, so that a clause is a bit set in one word.
pub(crate) const MAX_LITERALS: usize = 64;
/// Maximum number of clauses in a rule.
pub(crate) const MAX_CLAUSES: usize = 64;
/// Maximum number of terms in all clauses of a rule.
pub(crate) const MAX_TERMS: usize = 256;

/// A parsed rule as a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expression {
    Term(Term),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

/// The reason why `for` cannot be applied to a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForError {
    /// It is an `or`, whose operands could be true alternately.
    Choice,
    /// It already contains a `for`.
    Nested,
}

impl Expression {
    /// Returns the truth of the expression for a flow's last report, in three-valued logic (`None`: unknown). This defines
    /// the meaning of a rule; tests and fuzzing compare the normal form and the history cells with it.
    pub(crate) fn truth(&self, history: &[Observation<'_>]) -> Option<bool> {
        match self {
            Self::Term(term) => truth_of(term, history),
            Self::Not(inner) => inner.truth(history).map(|truth| !truth),
            Self::And(parts) => decided(parts, history, false),
            Self::Or(parts) => decided(parts, history, true),
        }
    }

    /// Returns the condition that all parts of this one (of its negation with `negate`) were true for the last `reports`
    /// reports.
    pub(crate) fn lasting(self, reports: u16, negate: bool) -> Result<Self, ForError> {
        match (self, negate) {
            (Self::Term(term), _) if term.reports != 0 => Err(ForError::Nested),
            (Self::Term(term), negate) => {
                let term = if negate { term.negated() } else { term };
                Ok(Self::Term(Term { reports, ..term }))
            }
            (Self::Not(inner), negate) => inner.lasting(reports, !negate),
            (Self::And(parts), false) | (Self::Or(parts), true) => {
                let parts: Result<_, _> = parts
                    .into_iter()
                    .map(|part| part.lasting(reports, negate))
                    .collect();
                parts.map(Self::And)
            }
            _ => Err(ForError::Choice),
        }
    }
}

/// Returns a term's truth by definition, from all reports rather than from history cells.
fn truth_of(term: &Term, history: &[Observation<'_>]) -> Option<bool> {
    let (last, before) = history.split_last()?;
    if term.reports != 0 {
        let run = (1..=history.len())
            .rev()
            .take_while(|end| truth_of(&term.without_count(), &history[..*end]) == Some(true))
            .count();
        return Some((run >= usize::from(term.reports)) != term.lapsed);
    }
    let quantity = Quantity {
        subject: term.subject,
        aggregate: term.aggregate,
        node: term.node,
    };
    let previous = before
        .iter()
        .rev()
        .find_map(|observation| quantity.value(observation));
    match term.history {
        History::Now => term.truth(last),
        History::Previous => previous.map(|value| term.holds(value)),
        History::Change => Some(term.holds(quantity.value(last)?.abs_diff(previous?))),
        History::Average => {
            quantity.value(last)?;
            let values = history
                .iter()
                .filter_map(|observation| quantity.value(observation));
            let average = values.fold(None, |average: Option<u128>, value| {
                debug_assert!(value <= MAX_VALUE);
                let value = u128::from(value);
                let k = u128::from(term.alpha);
                Some(average.map_or(value * 256, |average| average + k * value - k * average / 256))
            });
            Some(term.comparison.holds(&average?, &(u128::from(term.value) * 256)))
        }
    }
}

/// Returns `deciding` if a part has that value; otherwise unknown if a part is unknown, or the opposite value.
fn decided(parts: &[Expression], history: &[Observation<'_>], deciding: bool) -> Option<bool> {
    let mut result = Some(!deciding);
    for part in parts {
        match part.truth(history) {
            Some(truth) if truth == deciding => return Some(deciding),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

/// The reason why a rule's normal form exceeds the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NormalFormError {
    Literals,
    Clauses,
    Terms,
}

/// Conjunctive normal form: all clauses must hold, and a clause holds if one of its terms does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NormalForm {
    pub clauses: Vec<Vec<Term>>,
}

impl NormalForm {
    /// Pushes negations down to the terms (unknown stays unknown) and distributes `or` over `and`. Both steps are valid in
    /// three-valued logic, and so is dropping a clause that another one implies. Dropping `a or not a` would not be: it is
    /// unknown when `a` is.
    pub(crate) fn of(expression: &Expression) -> Result<Self, NormalFormError> {
        let mut builder = Builder { literals: Vec::new() };
        let sets = builder.clauses(expression, false)?;
        let literals = builder.literals;
        let mut clauses: Vec<Vec<Term>> = sets
            .iter()
            .map(|set| {
                let in_set = literals.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                in_set.map(|(_, literal)| *literal).collect()
            })
            .collect();
        for clause in &mut clauses {
            clause.sort_by_key(Term::cost);
        }
        clauses.sort_by_key(|clause| clause.iter().map(Term::cost).sum::<u32>());
        let terms: usize = clauses.iter().map(Vec::len).sum();
        if terms > MAX_TERMS {
            Err(NormalFormError::Terms)
        } else {
            Ok(Self { clauses })
        }
    }
}

struct Builder {
    literals: Vec<Term>,
}

/// Clauses as sets of literals: bit `i` is set if the clause contains literal `i`.
type Clauses = Vec<u64>;

impl Builder {
    fn clauses(&mut self, expression: &Expression, negate: bool) -> Result<Clauses, NormalFormError> {
        match (expression, negate) {
            (Expression::Term(term), _) => {
                let bit = self.literal(if negate { term.negated() } else { *term })?;
                Ok(vec![1 << bit])
            }
            (Expression::Not(inner), _) => self.clauses(inner, !negate),
            (Expression::And(parts), false) | (Expression::Or(parts), true) => {
                let mut all = Clauses::new();
                for part in parts {
                    all.extend(self.clauses(part, negate)?);
                    all = without_implied(all)?;
                }
                Ok(all)
            }
            (Expression::Or(parts), false) | (Expression::And(parts), true) => {
                // The empty clause, which is the neutral element of `or`.
                let mut product = vec![0];
                for part in parts {
                    let choices = self.clauses(part, negate)?;
                    // At most MAX_CLAUSES squared pairs, because both lists are limited.
                    let pairs = product.iter().flat_map(|a| choices.iter().map(move |b| a | b));
                    product = without_implied(pairs.collect())?;
                }
                Ok(product)
            }
        }
    }

    fn literal(&mut self, term: Term) -> Result<usize, NormalFormError> {
        if let Some(known) = self.literals.iter().position(|literal| *literal == term) {
            return Ok(known);
        }
        if self.literals.len() == MAX_LITERALS {
            return Err(NormalFormError::Literals);
        }
        self.literals.push(term);
        Ok(self.literals.len() - 1)
    }
}

/// Drops each clause that contains another one, because the smaller one implies it.
fn without_implied(mut clauses: Clauses) -> Result<Clauses, NormalFormError> {
    clauses.sort_by_key(|clause| (clause.count_ones(), *clause));
    let mut kept = Clauses::new();
    for clause in clauses {
        if kept.iter().all(|smaller| clause & smaller != *smaller) {
            kept.push(clause);
        }
        // Clauses are sorted by size, so a kept one is never dropped later. The early exit bounds the work.
        if kept.len() > MAX_CLAUSES {
            return Err(NormalFormError::Clauses);
        }
    }
    Ok(kept)
}

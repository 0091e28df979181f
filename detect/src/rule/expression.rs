//! The expression of a rule, and its conjunctive normal form.

use super::history::{History, MAX_VALUE, Quantity};
use super::term::Term;
use crate::observation::Observation;

/// The result of parsing a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expression {
    Term(Term),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

/// The reason for which `for` cannot be applied to a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForError {
    /// It is an `or`: its operands may be true alternately.
    Choice,
    /// There is a `for` in it.
    Nested,
}

impl Expression {
    /// Returns the truth of the expression for the last of a flow's reports, in three-valued logic: `None` is unknown. This defines the
    /// meaning of a rule; the tests compare the normal form and the history cells with it.
    pub(crate) fn truth(&self, history: &[Observation<'_>]) -> Option<bool> {
        match self {
            Self::Term(term) => truth_of(term, history),
            Self::Not(inner) => inner.truth(history).map(|truth| !truth),
            Self::And(parts) => decided(parts, history, false),
            Self::Or(parts) => decided(parts, history, true),
        }
    }

    /// Returns the condition that all parts of this one (or of its negation) were true for the last `reports` reports.
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

/// Returns the truth by definition: computed from all earlier reports, without history cells.
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

/// If one part is `deciding`, so is the result; otherwise, if one is unknown, the result is unknown.
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

/// Different terms a rule may have: a clause is a set of them in one word.
pub(crate) const MAX_LITERALS: usize = 64;
/// Clauses a rule may have.
pub(crate) const MAX_CLAUSES: usize = 64;
/// Terms of all its clauses together.
pub(crate) const MAX_TERMS: usize = 256;

/// The reason for which a rule has no normal form within the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NormalFormError {
    Literals,
    Clauses,
    Terms,
}

/// All clauses must hold; a clause holds when one of its terms does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NormalForm {
    pub clauses: Vec<Vec<Term>>,
}

impl NormalForm {
    /// Negations go down to the terms (where unknown stays unknown), then `or` is distributed over `and`. Both steps hold
    /// in three-valued logic, and so does dropping a clause that another one implies. Dropping `a or not a` would not:
    /// it is unknown when `a` is.
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

/// A clause: bit `i` is set when literal `i` is in it.
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
                // The empty clause: nothing to choose from yet.
                let mut product = vec![0];
                for part in parts {
                    let choices = self.clauses(part, negate)?;
                    // At most MAX_CLAUSES squared, by the bound on both.
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

/// Drops each clause that contains another one: when the smaller one holds, so does it.
fn without_implied(mut clauses: Clauses) -> Result<Clauses, NormalFormError> {
    clauses.sort_by_key(|clause| (clause.count_ones(), *clause));
    let mut kept = Clauses::new();
    for clause in clauses {
        if kept.iter().all(|smaller| clause & smaller != *smaller) {
            kept.push(clause);
        }
        // Sorted by size, so a clause that was kept is not dropped later: an early exit keeps the work bounded.
        if kept.len() > MAX_CLAUSES {
            return Err(NormalFormError::Clauses);
        }
    }
    Ok(kept)
}

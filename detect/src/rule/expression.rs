//! A rule as it was written, and its conjunctive normal form.

use super::term::Term;
use crate::observation::Observation;

/// What the parser makes of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expression {
    Term(Term),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    /// Three-valued: `None` is unknown, which is neither. This is the meaning of a rule; the normal form is checked
    /// against it.
    pub(crate) fn truth(&self, observation: &Observation<'_>) -> Option<bool> {
        match self {
            Self::Term(term) => term.truth(observation),
            Self::Not(inner) => inner.truth(observation).map(|truth| !truth),
            Self::And(parts) => decided(parts, observation, false),
            Self::Or(parts) => decided(parts, observation, true),
        }
    }
}

/// One part that is `deciding` decides; otherwise an unknown part leaves all unknown.
fn decided(parts: &[Expression], observation: &Observation<'_>, deciding: bool) -> Option<bool> {
    let mut result = Some(!deciding);
    for part in parts {
        match part.truth(observation) {
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

/// Why a rule has no normal form within the bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TooBig {
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
    pub(crate) fn of(expression: &Expression) -> Result<Self, TooBig> {
        let mut builder = Builder { literals: Vec::new() };
        let sets = builder.clauses(expression, false)?;
        let literals = builder.literals;
        let in_set = |set: u64| (0..literals.len()).filter(move |bit| set >> bit & 1 == 1);
        let mut clauses: Vec<Vec<Term>> =
            sets.iter().map(|&set| in_set(set).map(|bit| literals[bit]).collect()).collect();
        for clause in &mut clauses {
            clause.sort_by_key(Term::cost);
        }
        clauses.sort_by_key(|clause| clause.iter().map(Term::cost).sum::<u32>());
        let terms: usize = clauses.iter().map(Vec::len).sum();
        if terms > MAX_TERMS { Err(TooBig::Terms) } else { Ok(Self { clauses }) }
    }
}

struct Builder {
    literals: Vec<Term>,
}

/// A clause: bit `i` is set when literal `i` is in it.
type Clauses = Vec<u64>;

impl Builder {
    fn clauses(&mut self, expression: &Expression, negate: bool) -> Result<Clauses, TooBig> {
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

    fn literal(&mut self, term: Term) -> Result<usize, TooBig> {
        if let Some(known) = self.literals.iter().position(|literal| *literal == term) {
            return Ok(known);
        }
        if self.literals.len() == MAX_LITERALS {
            return Err(TooBig::Literals);
        }
        self.literals.push(term);
        Ok(self.literals.len() - 1)
    }
}

/// Drops each clause that contains another one: when the smaller one holds, so does it.
fn without_implied(mut clauses: Clauses) -> Result<Clauses, TooBig> {
    clauses.sort_by_key(|clause| (clause.count_ones(), *clause));
    let mut kept = Clauses::new();
    for clause in clauses {
        if kept.iter().all(|smaller| clause & smaller != *smaller) {
            kept.push(clause);
        }
        // Sorted by size, so nothing that was kept is dropped again: stop early, and the work stays bounded.
        if kept.len() > MAX_CLAUSES {
            return Err(TooBig::Clauses);
        }
    }
    Ok(kept)
}

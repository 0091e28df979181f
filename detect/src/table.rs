//! Rules compiled into fixed-size arrays for the kernel (XDP) program's map or for switch registers.
//!
//! # Format
//! A [`Table`] is a list of [`Row`]s, each a comparison that belongs to a clause, and for each rule a 64-bit set of the
//! clauses that must all hold. Evaluation is two loops without nested conditions, over rows and then over rules
//! ([`Table::evaluate`]):
//!
//! 1. each row whose comparison is true sets its clause's bit;
//! 2. a rule fires if the bits of all its clauses are set.
//!
//! There are no early exits, allocations or divisions, and no number exceeds 64 bits. The kernel program is the same code,
//! line by line. Rules that have a clause in common share it.
//!
//! # Exactness
//! The result equals [`RuleSet::evaluate`] for any number of hops and any values; tests compare them on random rules and
//! observations. Sums use two 64-bit words. A mean is compared by adding up the right-hand side once per value instead of
//! dividing.
//!
//! # Limits
//! Every term without history has a row. A table holds [`CLAUSES`] clauses and [`TERMS`] rows in total. Rules with history
//! need state per flow, which the kernel program does not have; a [`Program`] is a table with that state, for a switch.
//! [`Table::split`] adds the rules in order, skipping those that do not fit. These run in user space; the split returns
//! them with the reason, and the metrics for which user space needs every report that differs from its flow's previous one.

mod program;

use std::fmt;

pub use program::{CellRow, HistoryRef, Program};

use crate::metric::Metric;
use crate::observation::{ABSENT, NO_NODE, Observation};
use crate::rule::history::Quantity;
use crate::rule::term::{Aggregate, Comparison, Subject};
use crate::rule::{MAX_RULES, RuleSet, Term};

/// Maximum number of rules in a table; bit `i` is rule `i` of its [`RuleSet`].
pub const RULES: usize = MAX_RULES;
/// Maximum number of clauses in a table; each has a bit in one word.
pub const CLAUSES: usize = 64;
/// Maximum number of rows in a table.
pub const TERMS: usize = 128;

/// A comparison with its clause. Codes are the values of [`Subject`], [`Aggregate`] and [`Comparison`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(C)]
pub struct Row {
    /// Right-hand side in the subject's unit, never all-ones.
    pub value: u64,
    /// Only the hops of this node; [`NO_NODE`] for every hop.
    pub node: u32,
    /// Right-hand side of [`Aggregate::CountWhere`], in hops.
    pub hops: u32,
    /// The compared value ([`Subject`]).
    pub subject: u8,
    /// Aggregation of the hops' values ([`Aggregate`]).
    pub aggregate: u8,
    /// Comparison of the subject with `value` ([`Comparison`]).
    pub comparison: u8,
    /// Comparison of the number of hops with `hops` ([`Comparison`]).
    pub hops_comparison: u8,
    /// Number of its clause, below [`CLAUSES`].
    pub clause: u32,
}

/// Rules as fixed-size arrays; see the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Table {
    /// Bit `i` is set if rule `i` is in the table.
    pub rules: u64,
    /// Bit `m` is set if a row uses metric `m`; the number of hops and loops count as the path.
    pub metrics: u32,
    /// Number of rows in use.
    pub terms: u32,
    /// The clauses of each rule, as bits.
    pub clauses: [u64; RULES],
    /// The comparisons of the rules.
    pub rows: [Row; TERMS],
}

const _: () = assert!(
    size_of::<Row>() == 24 && align_of::<Row>() == 8,
    "the kernel program reads it"
);
const _: () = assert!(size_of::<Table>() == Table::BYTES, "and there are no gaps in it");

/// The reason why a rule is not in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The rule needs more clauses than are left.
    Clauses {
        /// Number of new clauses that it needs.
        needed: usize,
        /// Number of clauses that are left.
        left: usize,
    },
    /// The rule needs more rows than are left.
    Terms {
        /// Number of new rows that it needs.
        needed: usize,
        /// Number of rows that are left.
        left: usize,
    },
    /// The rule uses the flow's history, so it needs every report.
    History,
}

/// A rule set divided between the kernel's table and user space.
#[derive(Clone, Debug)]
pub struct Split {
    /// Table of the rules that fit.
    pub table: Table,
    /// Bit `i` is set if rule `i` is in the table.
    pub kernel: u64,
    /// Rules that are not in the table, with the reason.
    pub user: Vec<(usize, Reason)>,
    /// Bit `m` is set if one of those rules uses metric `m`.
    pub user_metrics: u8,
    /// One of those rules uses history, so it needs every report of a flow, even one that equals the previous.
    pub user_needs_all: bool,
}

impl Table {
    /// Size of a table in a kernel map, bytes.
    pub const BYTES: usize = 16 + 8 * RULES + 24 * TERMS;

    /// A table without rules.
    pub const EMPTY: Self = Self {
        rules: 0,
        metrics: 0,
        terms: 0,
        clauses: [0; RULES],
        rows: [Row {
            value: 0,
            node: 0,
            hops: 0,
            subject: 0,
            aggregate: 0,
            comparison: 0,
            hops_comparison: 0,
            clause: 0,
        }; TERMS],
    };

    /// Puts as many rules as fit into a table, in order.
    pub fn split(rules: &RuleSet) -> Split {
        let mut writer = Writer {
            table: Self::EMPTY,
            clauses: Vec::new(),
        };
        let mut user = Vec::new();
        let mut user_metrics = 0;
        let mut user_needs_all = false;
        for rule in 0..rules.len() {
            let clauses: Vec<&[Term]> = rules.clauses(rule).collect();
            let result = if rules.is_stateful(rule) {
                Err(Reason::History)
            } else {
                writer.add(rule, &clauses)
            };
            if let Err(reason) = result {
                user.push((rule, reason));
                user_needs_all |= reason == Reason::History;
                let terms = clauses.iter().copied().flatten();
                user_metrics |= terms.fold(0, |metrics, term| metrics | 1 << (term.subject.metric() as u8));
            }
        }
        Split {
            kernel: writer.table.rules,
            table: writer.table,
            user,
            user_metrics,
            user_needs_all,
        }
    }

    /// Evaluates the table and returns a bit for each rule in it that is true for `observation`.
    ///
    /// Written so that it ports to C line by line: two loops with fixed bounds over plain integers.
    #[inline]
    pub fn evaluate(&self, observation: &Observation<'_>) -> u64 {
        let mut true_clauses: u64 = 0;
        let mut index = 0;
        while index < TERMS {
            if index >= self.terms as usize {
                break;
            }
            let row = &self.rows[index];
            if row.is_true(observation) {
                true_clauses |= 1 << (row.clause & 63);
            }
            index += 1;
        }
        self.fired(true_clauses)
    }

    /// Returns the rules whose clauses are all in `true_clauses`.
    #[inline]
    fn fired(&self, true_clauses: u64) -> u64 {
        let mut fired: u64 = 0;
        let mut rule = 0;
        while rule < RULES {
            if self.rules >> rule & 1 == 1 && self.clauses[rule] & !true_clauses == 0 {
                fired |= 1 << rule;
            }
            rule += 1;
        }
        fired
    }

    /// Returns whether any row uses `metric`.
    pub fn uses(&self, metric: Metric) -> bool {
        self.metrics >> (metric as u32) & 1 == 1
    }

    /// Returns the table as in memory, in native byte order, for a kernel map.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend_from_slice(&self.rules.to_ne_bytes());
        bytes.extend_from_slice(&self.metrics.to_ne_bytes());
        bytes.extend_from_slice(&self.terms.to_ne_bytes());
        self.clauses
            .iter()
            .for_each(|clauses| bytes.extend_from_slice(&clauses.to_ne_bytes()));
        for row in &self.rows {
            bytes.extend_from_slice(&row.value.to_ne_bytes());
            bytes.extend_from_slice(&row.node.to_ne_bytes());
            bytes.extend_from_slice(&row.hops.to_ne_bytes());
            bytes.extend_from_slice(&[row.subject, row.aggregate, row.comparison, row.hops_comparison]);
            bytes.extend_from_slice(&row.clause.to_ne_bytes());
        }
        bytes
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Aggregates over the hops for one row. The fields are the kernel program's variables.
#[derive(Clone, Copy, Default)]
struct HopAggregate {
    /// Number of hops that have the value.
    count: u32,
    /// Number of these hops for which the comparison is true.
    hits: u32,
    greatest: u64,
    least: u64,
    /// Sum of the values: low and high word.
    sum: u64,
    sum_high: u64,
    /// Right-hand side times the number of values, by repeated addition: low and high word.
    wanted: u64,
    wanted_high: u64,
}

impl Table {
    /// Returns each distinct comparison with the clauses that it makes true (as bits).
    pub fn comparisons(&self) -> Vec<(Row, u64)> {
        let mut comparisons: Vec<(Row, u64)> = Vec::new();
        for row in &self.rows[..self.terms as usize] {
            let comparison = Row { clause: 0, ..*row };
            let clause = 1 << (row.clause & 63);
            match comparisons.iter_mut().find(|(known, _)| *known == comparison) {
                Some((_, clauses)) => *clauses |= clause,
                None => comparisons.push((comparison, clause)),
            }
        }
        comparisons
    }
}

impl Row {
    /// Returns the comparison in the rule language, or `None` if its codes are invalid.
    pub fn text(&self) -> Option<String> {
        let term = Term {
            value: self.value,
            node: self.node,
            hops: self.hops,
            subject: *Subject::ALL.get(usize::from(self.subject))?,
            aggregate: *Aggregate::ALL.get(usize::from(self.aggregate))?,
            comparison: *Comparison::ALL.get(usize::from(self.comparison))?,
            hops_comparison: *Comparison::ALL.get(usize::from(self.hops_comparison))?,
            ..Term::flow(Subject::Hops, Comparison::Equal, 0)
        };
        Some(term.to_string())
    }

    fn for_quantity(quantity: &Quantity) -> Self {
        Self {
            node: quantity.node,
            subject: quantity.subject as u8,
            aggregate: quantity.aggregate as u8,
            ..Self::default()
        }
    }

    fn new(term: &Term, clause: usize) -> Self {
        Self {
            value: term.value,
            node: term.node,
            hops: term.hops,
            subject: term.subject as u8,
            aggregate: term.aggregate as u8,
            comparison: term.comparison as u8,
            hops_comparison: term.hops_comparison as u8,
            clause: clause as u32,
        }
    }

    /// Returns whether the comparison is true for a report, rather than false or unknown.
    #[inline]
    fn is_true(&self, observation: &Observation<'_>) -> bool {
        if self.subject == Subject::FlowLatency as u8 {
            let latency = observation.flow_latency.unwrap_or(ABSENT);
            return latency != ABSENT && holds(self.comparison, latency, self.value);
        }
        if self.subject == Subject::Hops as u8 {
            return holds(self.comparison, observation.hops.len() as u64, self.value);
        }
        if self.subject == Subject::Loop as u8 {
            return holds(self.comparison, u64::from(observation.looped), self.value);
        }
        self.compare_aggregate(&self.aggregate_hops(observation))
    }

    /// Computes all aggregates in one loop over the hops. The kernel program limits their number to 16.
    #[inline]
    fn aggregate_hops(&self, observation: &Observation<'_>) -> HopAggregate {
        let mut aggregate = HopAggregate {
            least: u64::MAX,
            ..HopAggregate::default()
        };
        for hop in observation.hops {
            let value = match self.subject {
                code::HOP_LATENCY => hop.hop_latency,
                code::QUEUE_OCCUPANCY => hop.queue_occupancy,
                code::QUEUE_CONGESTION => hop.queue_congestion,
                _ => hop.link_utilization,
            };
            if value == ABSENT {
                continue;
            }
            if self.node != NO_NODE && self.node != hop.node {
                continue;
            }
            aggregate.count += 1;
            if holds(self.comparison, value, self.value) {
                aggregate.hits += 1;
            }
            if value > aggregate.greatest {
                aggregate.greatest = value;
            }
            if value < aggregate.least {
                aggregate.least = value;
            }
            aggregate.sum = aggregate.sum.wrapping_add(value);
            if aggregate.sum < value {
                aggregate.sum_high += 1;
            }
            aggregate.wanted = aggregate.wanted.wrapping_add(self.value);
            if aggregate.wanted < self.value {
                aggregate.wanted_high += 1;
            }
        }
        aggregate
    }

    #[inline]
    fn compare_aggregate(&self, hops: &HopAggregate) -> bool {
        if self.aggregate == Aggregate::Count as u8 {
            return holds(self.comparison, u64::from(hops.count), self.value);
        }
        // No hop has the value, so the result is unknown.
        if hops.count == 0 {
            return false;
        }
        match self.aggregate {
            code::MAX => holds(self.comparison, hops.greatest, self.value),
            code::MIN => holds(self.comparison, hops.least, self.value),
            code::SUM => holds_wide(self.comparison, (hops.sum_high, hops.sum), (0, self.value)),
            code::AVG => holds_wide(
                self.comparison,
                (hops.sum_high, hops.sum),
                (hops.wanted_high, hops.wanted),
            ),
            code::COUNT_WHERE => holds(self.hops_comparison, u64::from(hops.hits), u64::from(self.hops)),
            code::ANY => hops.hits > 0,
            code::ALL => hops.hits == hops.count,
            _ => false,
        }
    }
}

/// Codes of subjects, aggregates and comparisons in rows, as patterns. The kernel program has the same numbers.
mod code {
    use crate::rule::term::{Aggregate, Comparison, Subject};

    pub(super) const FLOW_LATENCY: u8 = Subject::FlowLatency as u8;
    pub(super) const HOPS: u8 = Subject::Hops as u8;
    pub(super) const LOOP: u8 = Subject::Loop as u8;
    pub(super) const HOP_LATENCY: u8 = Subject::HopLatency as u8;
    pub(super) const QUEUE_OCCUPANCY: u8 = Subject::QueueOccupancy as u8;
    pub(super) const QUEUE_CONGESTION: u8 = Subject::QueueCongestion as u8;
    pub(super) const MAX: u8 = Aggregate::Max as u8;
    pub(super) const MIN: u8 = Aggregate::Min as u8;
    pub(super) const SUM: u8 = Aggregate::Sum as u8;
    pub(super) const AVG: u8 = Aggregate::Avg as u8;
    pub(super) const COUNT: u8 = Aggregate::Count as u8;
    pub(super) const COUNT_WHERE: u8 = Aggregate::CountWhere as u8;
    pub(super) const ANY: u8 = Aggregate::Any as u8;
    pub(super) const ALL: u8 = Aggregate::All as u8;
    pub(super) const LESS: u8 = Comparison::Less as u8;
    pub(super) const AT_MOST: u8 = Comparison::AtMost as u8;
    pub(super) const GREATER: u8 = Comparison::Greater as u8;
    pub(super) const AT_LEAST: u8 = Comparison::AtLeast as u8;
    pub(super) const EQUAL: u8 = Comparison::Equal as u8;
}

const _: () = assert!(
    Subject::HopLatency as u8 == 3
        && Subject::QueueOccupancy as u8 == 4
        && Subject::QueueCongestion as u8 == 5
        && Subject::LinkUtilization as u8 == 6
);
const _: () = assert!(
    Aggregate::Max as u8 == 1
        && Aggregate::Min as u8 == 2
        && Aggregate::Sum as u8 == 3
        && Aggregate::Avg as u8 == 4
        && Aggregate::CountWhere as u8 == 6
        && Aggregate::Any as u8 == 7
        && Aggregate::All as u8 == 8
);
const _: () = assert!(
    Comparison::Less as u8 == 0
        && Comparison::AtMost as u8 == 1
        && Comparison::Greater as u8 == 2
        && Comparison::AtLeast as u8 == 3
        && Comparison::Equal as u8 == 4
        && Comparison::Unequal as u8 == 5
);

#[inline]
fn holds(comparison: u8, a: u64, b: u64) -> bool {
    match comparison {
        code::LESS => a < b,
        code::AT_MOST => a <= b,
        code::GREATER => a > b,
        code::AT_LEAST => a >= b,
        code::EQUAL => a == b,
        _ => a != b,
    }
}

/// Compares two-word numbers (high, low).
#[inline]
fn holds_wide(comparison: u8, a: (u64, u64), b: (u64, u64)) -> bool {
    if a.0 == b.0 {
        holds(comparison, a.1, b.1)
    } else {
        holds(comparison, a.0, b.0)
    }
}

/// A table under construction.
struct Writer {
    table: Table,
    /// Clauses in the table, by number.
    clauses: Vec<Vec<Term>>,
}

impl Writer {
    fn add(&mut self, rule: usize, clauses: &[&[Term]]) -> Result<(), Reason> {
        let mut new_clauses: Vec<&[Term]> = Vec::new();
        let mut mask = 0;
        for clause in clauses {
            let known = self.clauses.iter().position(|known| known == clause);
            let index = known
                .or_else(|| Some(self.clauses.len() + new_clauses.iter().position(|known| known == clause)?));
            let index = index.unwrap_or_else(|| {
                new_clauses.push(clause);
                self.clauses.len() + new_clauses.len() - 1
            });
            mask |= 1_u64.checked_shl(index as u32).unwrap_or(0);
        }
        let left = CLAUSES - self.clauses.len();
        if new_clauses.len() > left {
            return Err(Reason::Clauses {
                needed: new_clauses.len(),
                left,
            });
        }
        let needed = new_clauses.iter().map(|clause| clause.len()).sum();
        let left = TERMS - self.table.terms as usize;
        if needed > left {
            return Err(Reason::Terms { needed, left });
        }
        for clause in new_clauses {
            for term in clause {
                let row = Row::new(term, self.clauses.len());
                self.table.rows[self.table.terms as usize] = row;
                self.table.terms += 1;
                self.table.metrics |= 1 << (term.subject.metric() as u32);
            }
            self.clauses.push(clause.to_vec());
        }
        self.table.rules |= 1 << rule;
        self.table.clauses[rule] = mask;
        Ok(())
    }
}

impl Split {
    /// Returns the names of the rules that run in user space, with the reason.
    pub fn in_user_space<'a>(&'a self, rules: &'a RuleSet) -> impl Iterator<Item = (&'a str, Reason)> {
        self.user
            .iter()
            .map(|(rule, reason)| (rules.name(*rule), *reason))
    }

    /// Returns the metrics for which user space needs every report that differs from its flow's previous one.
    pub fn metrics_for_user(&self) -> impl Iterator<Item = Metric> {
        let metrics = self.user_metrics;
        Metric::ALL
            .into_iter()
            .filter(move |metric| metrics >> (*metric as u8) & 1 == 1)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, left, total, what) = match *self {
            Self::Clauses { needed, left } => (needed, left, CLAUSES, "clauses"),
            Self::Terms { needed, left } => (needed, left, TERMS, "comparisons"),
            Self::History => {
                return f.write_str("it uses history, which the kernel program does not store");
            }
        };
        write!(
            f,
            "it needs {needed} {what} in conjunctive normal form, and of the table's {total} the rules before it leave {left}"
        )
    }
}

#[cfg(test)]
mod tests;

//! A term: one comparison of a rule, which is true, false or unknown for a report.

use std::fmt;

use crate::metric::Metric;
use crate::observation::{ABSENT, HopValues, NO_NODE, Observation, UTILIZATION_ONE};

/// An empty history cell, as in a flow without earlier reports.
pub const EMPTY: u64 = ABSENT;

wire::named! {
    /// The value that a term compares.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Subject, name {
        /// The flow's latency, ns.
        FlowLatency = 0 => Metric::FlowLatency.name(),
        /// The number of hops.
        Hops = 1 => "hops",
        /// 1 when the path visits a node twice, else 0.
        Loop = 2 => "loop",
        /// Latency of a hop, ns.
        HopLatency = 3 => Metric::HopLatency.name(),
        /// Queue occupancy at a hop, device units.
        QueueOccupancy = 4 => Metric::QueueOccupancy.name(),
        /// Queue congestion at a hop, device units.
        QueueCongestion = 5 => Metric::QueueCongestion.name(),
        /// Utilization of a hop's egress link, millionths.
        LinkUtilization = 6 => Metric::LinkUtilization.name(),
    }
}

impl Subject {
    /// Returns whether the value exists per hop.
    pub fn is_per_hop(self) -> bool {
        self as u8 >= Self::HopLatency as u8
    }

    /// Returns the metric of the value. For the number of hops and loops it is the path.
    pub fn metric(self) -> Metric {
        match self {
            Self::FlowLatency => Metric::FlowLatency,
            Self::Hops | Self::Loop => Metric::FlowPath,
            Self::HopLatency => Metric::HopLatency,
            Self::QueueOccupancy => Metric::QueueOccupancy,
            Self::QueueCongestion => Metric::QueueCongestion,
            Self::LinkUtilization => Metric::LinkUtilization,
        }
    }
}

wire::named! {
    /// The aggregation of the hops' values. It covers the hops that have the value. Unless noted otherwise, the result is
    /// unknown if no hop has it.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Aggregate, name {
        /// No aggregation: the flow's own value.
        Flow = 0 => "",
        /// The greatest of the values.
        Max = 1 => "max",
        /// The least of the values.
        Min = 2 => "min",
        /// The sum of the values.
        Sum = 3 => "sum",
        /// The mean, compared exactly (no rounding).
        Avg = 4 => "avg",
        /// The number of hops that have the value; always known.
        Count = 5 => "count",
        /// The number of hops for which the comparison is true.
        CountWhere = 6 => "count",
        /// The comparison is true for at least one hop.
        Any = 7 => "any",
        /// The comparison is true for every hop.
        All = 8 => "all",
    }
}

wire::named! {
    /// The kind of history that a term uses.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum History, name {
        /// None: the current value is compared.
        Now = 0 => "",
        /// The value of the previous report.
        Previous = 1 => "previous",
        /// The absolute difference from the previous value.
        Change = 2 => "change",
        /// The moving average, including the current value.
        Average = 3 => "average",
    }
}

impl History {
    pub(crate) const NAMED: [Self; 3] = [Self::Previous, Self::Change, Self::Average];
}

wire::named! {
    /// A comparison of two numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[repr(u8)]
    pub enum Comparison, symbol {
        /// The first is less (`<`).
        Less = 0 => "<",
        /// The first is less or equal (`<=`).
        AtMost = 1 => "<=",
        /// The first is greater (`>`).
        Greater = 2 => ">",
        /// The first is greater or equal (`>=`).
        AtLeast = 3 => ">=",
        /// Both are equal (`==`).
        Equal = 4 => "==",
        /// The two differ (`!=`).
        Unequal = 5 => "!=",
    }
}

impl Comparison {
    /// Returns whether the comparison holds between `a` and `b`.
    #[inline]
    pub fn holds<T: Ord>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::Greater => a > b,
            Self::AtLeast => a >= b,
            Self::Equal => a == b,
            Self::Unequal => a != b,
        }
    }

    /// Returns the comparison that holds exactly if this one does not.
    pub fn negated(self) -> Self {
        match self {
            Self::Less => Self::AtLeast,
            Self::AtMost => Self::Greater,
            Self::Greater => Self::AtMost,
            Self::AtLeast => Self::Less,
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
        }
    }

    /// Returns the comparison that holds if the sides are swapped.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::AtMost => Self::AtLeast,
            Self::Greater => Self::Less,
            Self::AtLeast => Self::AtMost,
            Self::Equal | Self::Unequal => self,
        }
    }
}

/// A comparison in a fixed-size form that fits into a kernel map or switch registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Term {
    /// The number on the right-hand side, in the subject's unit.
    pub value: u64,
    /// Only the hops of this node; [`NO_NODE`] for every hop.
    pub node: u32,
    /// Right-hand side of [`Aggregate::CountWhere`], in hops; otherwise 0.
    pub hops: u32,
    /// The value that is compared.
    pub subject: Subject,
    /// Aggregation of the hops' values.
    pub aggregate: Aggregate,
    /// Comparison of each hop (`CountWhere`, `Any`, `All`) or of the aggregate with `value`.
    pub comparison: Comparison,
    /// Comparison of the number of hops with `hops` for [`Aggregate::CountWhere`]; otherwise `Less`.
    pub hops_comparison: Comparison,
    /// The history that the term uses.
    pub history: History,
    /// Weight of a new value for [`History::Average`], 256ths; otherwise 0.
    pub alpha: u8,
    /// Number of consecutive reports for which the comparison must have been true; 0: only the current report counts.
    pub reports: u16,
    /// Negates `reports`: the comparison must have been true for fewer reports. `false` if `reports` is 0.
    pub lapsed: bool,
}

const _: () = assert!(size_of::<Term>() == 32, "two to a line of memory");

impl Term {
    /// Creates a comparison of a value of the whole flow.
    pub(crate) fn flow(subject: Subject, comparison: Comparison, value: u64) -> Self {
        let aggregate = Aggregate::Flow;
        let hops_comparison = Comparison::Less;
        let history = History::Now;
        let alpha = 0;
        let reports = 0;
        let lapsed = false;
        let node = NO_NODE;
        let hops = 0;
        Self {
            value,
            node,
            hops,
            subject,
            aggregate,
            comparison,
            hops_comparison,
            history,
            alpha,
            reports,
            lapsed,
        }
    }

    /// Returns whether the term uses the flow's history.
    pub fn is_stateful(&self) -> bool {
        self.history != History::Now || self.reports != 0
    }

    /// Returns the comparison without its `for`.
    pub(crate) fn without_count(&self) -> Self {
        Self {
            reports: 0,
            lapsed: false,
            ..*self
        }
    }

    /// Returns whether `value` satisfies the comparison.
    #[inline]
    pub(crate) fn holds(&self, value: u64) -> bool {
        self.comparison.holds(&value, &self.value)
    }

    /// Like [`Term::truth`], with history: `now` is the value in this report, `stored` the contents of its cell.
    #[inline]
    pub(crate) fn truth_with(&self, observation: &Observation<'_>, now: u64, stored: u64) -> Option<bool> {
        match self.history {
            History::Now => self.truth(observation),
            History::Previous => (stored != EMPTY).then(|| self.holds(stored)),
            History::Change => (now != ABSENT && stored != EMPTY).then(|| self.holds(now.abs_diff(stored))),
            History::Average => (now != ABSENT).then(|| self.comparison.holds(&stored, &(self.value << 8))),
        }
    }

    /// Returns whether a run of `run` reports satisfies `for` (or fails to, with `lapsed`).
    #[inline]
    pub(crate) fn lasts(&self, run: u64) -> bool {
        (run != EMPTY && run >= u64::from(self.reports)) != self.lapsed
    }

    /// Returns the comparison's truth for one report, ignoring history; `None` if the report does not have the value.
    #[inline]
    pub fn truth(&self, observation: &Observation<'_>) -> Option<bool> {
        match self.subject {
            Subject::FlowLatency => observation.flow_latency.map(|value| self.holds(value)),
            Subject::Hops => Some(self.holds(observation.hops.len() as u64)),
            Subject::Loop => Some(self.holds(u64::from(observation.looped))),
            Subject::HopLatency => self.over(observation.hops, |hop| hop.hop_latency),
            Subject::QueueOccupancy => self.over(observation.hops, |hop| hop.queue_occupancy),
            Subject::QueueCongestion => self.over(observation.hops, |hop| hop.queue_congestion),
            Subject::LinkUtilization => self.over(observation.hops, |hop| hop.link_utilization),
        }
    }

    /// Returns the term that is true if this one is false, and unknown if this one is.
    pub(crate) fn negated(self) -> Self {
        if self.reports != 0 {
            return Self {
                lapsed: !self.lapsed,
                ..self
            };
        }
        match self.aggregate {
            Aggregate::CountWhere => Self {
                hops_comparison: self.hops_comparison.negated(),
                ..self
            },
            Aggregate::Any => Self {
                aggregate: Aggregate::All,
                comparison: self.comparison.negated(),
                ..self
            },
            Aggregate::All => Self {
                aggregate: Aggregate::Any,
                comparison: self.comparison.negated(),
                ..self
            },
            _ => Self {
                comparison: self.comparison.negated(),
                ..self
            },
        }
    }

    /// Returns a rough cost of evaluation; cheap terms are evaluated first.
    pub(crate) fn cost(&self) -> u32 {
        let per_hop = self.subject.is_per_hop() && !self.is_stateful();
        if per_hop { 8 } else { 1 }
    }

    #[inline]
    fn over(&self, hops: &[HopValues], value_of: impl Fn(&HopValues) -> u64) -> Option<bool> {
        let given = hops
            .iter()
            .filter(|hop| self.node == NO_NODE || hop.node == self.node)
            .map(value_of)
            .filter(|&value| value != ABSENT);
        match self.aggregate {
            Aggregate::Max => given.max().map(|value| self.holds(value)),
            Aggregate::Min => given.min().map(|value| self.holds(value)),
            Aggregate::Sum => {
                let (sum, count) = sum_and_count(given);
                (count > 0).then(|| self.comparison.holds(&sum, &u128::from(self.value)))
            }
            Aggregate::Avg => {
                let (sum, count) = sum_and_count(given);
                // Multiplies instead of dividing, so that the mean is not rounded.
                (count > 0).then(|| {
                    self.comparison
                        .holds(&sum, &(u128::from(self.value) * u128::from(count)))
                })
            }
            Aggregate::Count => Some(self.holds(given.count() as u64)),
            Aggregate::CountWhere | Aggregate::Any | Aggregate::All => self.of_hits(given),
            Aggregate::Flow => None,
        }
    }

    /// Evaluates the aggregates that compare each hop.
    #[inline]
    fn of_hits(&self, given: impl Iterator<Item = u64>) -> Option<bool> {
        let mut count = 0u32;
        let mut hits = 0u32;
        for value in given {
            count += 1;
            hits += u32::from(self.comparison.holds(&value, &self.value));
        }
        (count > 0).then(|| match self.aggregate {
            Aggregate::Any => hits > 0,
            Aggregate::All => hits == count,
            _ => self.hops_comparison.holds(&hits, &self.hops),
        })
    }
}

#[inline]
fn sum_and_count(values: impl Iterator<Item = u64>) -> (u128, u64) {
    values.fold((0, 0), |(sum, count), value| (sum + u128::from(value), count + 1))
}

/// Prints the term in rule syntax; the text parses to the same term.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reports == 0 {
            return self.write_present(f);
        }
        f.write_str(if self.lapsed { "not " } else { "" })?;
        let open = self.subject == Subject::Loop && self.history == History::Now;
        f.write_str(if open { "(" } else { "" })?;
        self.write_present(f)?;
        write!(f, "{} for {}", if open { ")" } else { "" }, self.reports)
    }
}

impl Term {
    fn write_present(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            subject, aggregate, ..
        } = *self;
        if self.history != History::Now {
            return self.write_with_history(f);
        }
        match (subject, aggregate) {
            (Subject::Loop, _) => {
                let looped = self.comparison.holds(&1, &self.value);
                f.write_str(if looped { "loop" } else { "not loop" })
            }
            (_, Aggregate::CountWhere | Aggregate::Any | Aggregate::All) => {
                write!(f, "{}(", aggregate.name())?;
                self.write_subject(f)?;
                self.write_comparison(f)?;
                f.write_str(")")?;
                if aggregate == Aggregate::CountWhere {
                    write!(f, " {} {}", self.hops_comparison.symbol(), self.hops)?;
                }
                Ok(())
            }
            _ => {
                self.write_value(f)?;
                self.write_comparison(f)
            }
        }
    }

    fn write_with_history(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.history.name())?;
        self.write_value(f)?;
        if self.history == History::Average {
            // Multiples of 1/256 have at most eight decimals.
            write!(f, ", 0.{:08}", u32::from(self.alpha) * (100_000_000 / 256))?;
        }
        f.write_str(")")?;
        self.write_comparison(f)
    }

    /// Writes the flow's value, or an aggregate over hops.
    fn write_value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.aggregate == Aggregate::Flow {
            return f.write_str(self.subject.name());
        }
        write!(f, "{}(", self.aggregate.name())?;
        self.write_subject(f)?;
        f.write_str(")")
    }

    fn write_subject(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject.name())?;
        if self.node == NO_NODE {
            Ok(())
        } else {
            write!(f, "@{}", self.node)
        }
    }

    fn write_comparison(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} ", self.comparison.symbol())?;
        if self.aggregate == Aggregate::Count {
            return write!(f, "{}", self.value);
        }
        match self.subject {
            Subject::FlowLatency | Subject::HopLatency => write!(f, "{}ns", self.value),
            Subject::LinkUtilization => {
                let percent = UTILIZATION_ONE / 100;
                write!(f, "{}.{:04}%", self.value / percent, self.value % percent)
            }
            _ => write!(f, "{}", self.value),
        }
    }
}

//! The history of a flow for rules: a fixed number of 64-bit integer cells, which switch registers can implement.
//!
//! # The cells
//! - **previous**: the value in the latest earlier report that had it;
//! - **average**: a moving average with 8 fractional bits, `A ← A + k·v − ⌊k·A / 256⌋` for value `v` and weight `k` in
//!   256ths; the first value sets it to `256·v`. The average of a constant is exactly that constant; a falling average
//!   stays above the value by less than `1/k` of a unit. `A` is compared with `256` times the number in the rule;
//! - **run**: the number of consecutive reports, up to this one, for which a comparison was true, at most [`MAX_RUN`].
//!
//! A missing value leaves previous values and averages unchanged and ends runs. Values saturate at [`MAX_VALUE`], so that
//! no product exceeds 64 bits. Terms that need the same cell share it.

use super::term::{Aggregate, Subject, Term};
pub use super::term::{EMPTY, History};
use crate::observation::{ABSENT, HopValues, NO_NODE, Observation};

/// Maximum number of history cells per flow, over all rules of a set.
pub const CELLS: usize = 32;

/// Saturation limit of values: 48 bits, 78 hours in nanoseconds.
pub const MAX_VALUE: u64 = (1 << 48) - 1;

/// Saturation limit of runs.
pub const MAX_RUN: u64 = u16::MAX as u64;
/// Cell index that stands for no cell.
pub const NO_CELL: u8 = u8::MAX;

/// A numeric value of a report, as stored in a history cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quantity {
    /// The value or per-hop metric.
    pub subject: Subject,
    /// Aggregation of the hops' values: maximum, minimum, sum or count.
    pub aggregate: Aggregate,
    /// Only the hops of this node; [`NO_NODE`] for every hop.
    pub node: u32,
}

impl Quantity {
    pub(crate) fn value(&self, observation: &Observation<'_>) -> Option<u64> {
        Some(self.of(observation)).filter(|value| *value != ABSENT)
    }

    /// Returns the value, at most [`MAX_VALUE`], or [`ABSENT`] if the report does not have it.
    #[inline]
    pub fn of(&self, observation: &Observation<'_>) -> u64 {
        let value = match self.subject {
            Subject::FlowLatency => observation.flow_latency.unwrap_or(ABSENT),
            Subject::Hops => observation.hops.len() as u64,
            Subject::Loop => u64::from(observation.looped),
            Subject::HopLatency => self.over(observation.hops, |hop| hop.hop_latency),
            Subject::QueueOccupancy => self.over(observation.hops, |hop| hop.queue_occupancy),
            Subject::QueueCongestion => self.over(observation.hops, |hop| hop.queue_congestion),
            Subject::LinkUtilization => self.over(observation.hops, |hop| hop.link_utilization),
        };
        if value == ABSENT {
            ABSENT
        } else {
            value.min(MAX_VALUE)
        }
    }

    #[inline]
    fn over(&self, hops: &[HopValues], value_of: impl Fn(&HopValues) -> u64) -> u64 {
        let given = hops
            .iter()
            .filter(|hop| self.node == NO_NODE || hop.node == self.node)
            .map(value_of)
            .filter(|&value| value != ABSENT);
        let given = given.map(|value| value.min(MAX_VALUE));
        match self.aggregate {
            Aggregate::Max => given.max().unwrap_or(ABSENT),
            Aggregate::Min => given.min().unwrap_or(ABSENT),
            Aggregate::Count => given.count() as u64,
            _ => given
                .reduce(|sum, value| (sum + value).min(MAX_VALUE))
                .unwrap_or(ABSENT),
        }
    }
}

/// The contents of a history cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cell {
    /// The value of the previous report.
    Previous(Quantity),
    /// The moving average of the quantity, with this weight in 256ths.
    Average(Quantity, u8),
    /// The number of consecutive reports for which this comparison was true, and the cell that the comparison itself uses
    /// ([`NO_CELL`]: none).
    Run(Term, u8),
}

/// The history cells of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryCells {
    /// The cell of its value, or [`NO_CELL`].
    pub value: u8,
    /// The cell of its run of true reports, or [`NO_CELL`].
    pub run: u8,
}

/// Updates a moving average (8 fractional bits, weight `k` in 256ths) with `value`, at most [`MAX_VALUE`].
#[inline]
pub fn averaged(average: u64, value: u64, k: u8) -> u64 {
    if average == EMPTY {
        return value << 8;
    }
    let k = u64::from(k);
    average + value * k - ((average * k) >> 8)
}

/// The cells of a rule set; each cell comes after the cells that it uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
}

impl Cells {
    pub(crate) fn as_slice(&self) -> &[Cell] {
        &self.cells
    }

    /// Finds or adds the cells that `term` needs; `None` if they do not fit.
    pub(crate) fn cells_of(&mut self, term: &Term) -> Option<HistoryCells> {
        let quantity = Quantity {
            subject: term.subject,
            aggregate: term.aggregate,
            node: term.node,
        };
        let value = match term.history {
            History::Now => NO_CELL,
            History::Previous | History::Change => self.enter(Cell::Previous(quantity))?,
            History::Average => self.enter(Cell::Average(quantity, term.alpha))?,
        };
        let run = if term.reports == 0 {
            NO_CELL
        } else {
            self.enter(Cell::Run(term.without_count(), value))?
        };
        Some(HistoryCells { value, run })
    }

    fn enter(&mut self, cell: Cell) -> Option<u8> {
        if let Some(known) = self.cells.iter().position(|known| *known == cell) {
            return Some(known as u8);
        }
        if self.cells.len() == CELLS {
            return None;
        }
        self.cells.push(cell);
        Some((self.cells.len() - 1) as u8)
    }

    /// Updates averages and runs with a report. Returns the report's values for the previous and average cells.
    #[inline]
    pub(crate) fn update(&self, observation: &Observation<'_>, history: &mut [u64]) -> [u64; CELLS] {
        let mut now = [ABSENT; CELLS];
        for (at, cell) in self.cells.iter().enumerate() {
            match cell {
                Cell::Previous(quantity) => now[at] = quantity.of(observation),
                Cell::Average(quantity, k) => {
                    now[at] = quantity.of(observation);
                    if now[at] != ABSENT {
                        history[at] = averaged(history[at], now[at], *k);
                    }
                }
                Cell::Run(term, cell) => {
                    let (value, stored) = read_cell(*cell, &now, history);
                    let run = if history[at] == EMPTY { 0 } else { history[at] };
                    let truth = term.truth_with(observation, value, stored);
                    history[at] = if truth == Some(true) {
                        (run + 1).min(MAX_RUN)
                    } else {
                        0
                    };
                }
            }
        }
        now
    }

    /// Stores a report's values as previous values. Call it after all terms are evaluated.
    #[inline]
    pub(crate) fn store(&self, now: &[u64; CELLS], history: &mut [u64]) {
        for ((cell, now), stored) in self.cells.iter().zip(now).zip(history) {
            if matches!(cell, Cell::Previous(_)) && *now != ABSENT {
                *stored = *now;
            }
        }
    }
}

/// Returns a cell's value in this report, and its stored contents.
#[inline]
pub(crate) fn read_cell(cell: u8, now: &[u64; CELLS], history: &[u64]) -> (u64, u64) {
    let at = usize::from(cell);
    (
        now.get(at).copied().unwrap_or(ABSENT),
        history.get(at).copied().unwrap_or(EMPTY),
    )
}

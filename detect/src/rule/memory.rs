//! What rules remember of a flow: a fixed number of 64-bit cells, all integers, nothing that a switch's registers cannot do.
//!
//! # The cells
//! - a **previous** value: the latest that an earlier report gave;
//! - an **average**: with 8 bits behind the point, `A ← A + k·v − ⌊k·A / 256⌋` for the value `v` and the weight `k` in 256ths;
//!   the first value `v` makes it `256·v`. A steady value is its own average exactly; an average that falls stays above the
//!   value by less than `1/k` of a unit. `A` is compared with `256` times the number in the rule;
//! - a **run**: of how many reports, up to the present, a comparison was true, at most [`LONGEST_RUN`].
//!
//! A value that a report does not give leaves previous values and averages as they are, and ends runs. Values are held to
//! [`LARGEST`], so that no product is wider than 64 bits. Terms that need the same cell share it.

use super::term::{Aggregate, Subject, Term};
use crate::observation::{ABSENT, HopValues, NO_NODE, Observation};

/// Cells of a flow that the rules of a set use at most, all together.
pub const CELLS: usize = 32;

/// A greater value is remembered as this: 48 bits, as nanoseconds 78 hours.
pub const LARGEST: u64 = (1 << 48) - 1;

/// Runs are counted up to here.
pub const LONGEST_RUN: u64 = u16::MAX as u64;

/// An empty cell. The memory of a flow that has not been heard of is all empty.
pub const EMPTY: u64 = ABSENT;

/// What of a flow's earlier reports a term looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Memory {
    /// Nothing: the value itself.
    Now = 0,
    /// The value of the report before.
    Previous = 1,
    /// How far the value is from the one before, up or down.
    Change = 2,
    /// The moving average, the present value included.
    Average = 3,
}

impl Memory {
    pub(crate) const NAMED: [Self; 3] = [Self::Previous, Self::Change, Self::Average];

    /// Its name in rules; [`Memory::Now`] has none.
    pub fn name(self) -> &'static str {
        match self {
            Self::Now => "",
            Self::Previous => "previous",
            Self::Change => "change",
            Self::Average => "average",
        }
    }
}

/// One number of a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quantity {
    /// What is looked at.
    pub subject: Subject,
    /// What is made of the hops' values: the greatest, the least, the sum, how many.
    pub aggregate: Aggregate,
    /// Only the hops of this node; [`NO_NODE`] for every hop.
    pub node: u32,
}

impl Quantity {
    /// Its value, at most [`LARGEST`]; [`ABSENT`] when the report does not give it.
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
        if value == ABSENT { ABSENT } else { value.min(LARGEST) }
    }

    #[inline]
    fn over(&self, hops: &[HopValues], value_of: impl Fn(&HopValues) -> u64) -> u64 {
        let chosen = |hop: &&HopValues| self.node == NO_NODE || hop.node == self.node;
        let given = hops.iter().filter(chosen).map(value_of).filter(|&value| value != ABSENT);
        let given = given.map(|value| value.min(LARGEST));
        match self.aggregate {
            Aggregate::Max => given.max().unwrap_or(ABSENT),
            Aggregate::Min => given.min().unwrap_or(ABSENT),
            Aggregate::Count => given.count() as u64,
            _ => given.reduce(|sum, value| (sum + value).min(LARGEST)).unwrap_or(ABSENT),
        }
    }
}

/// What one cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cell {
    /// The value of the report before.
    Previous(Quantity),
    /// Its moving average, of this weight in 256ths.
    Average(Quantity, u8),
    /// For how many reports this comparison has been true. It looks at the cell, if it remembers something itself.
    Run(Term, u8),
}

/// No cell.
pub const NO_CELL: u8 = u8::MAX;

/// Which cells a term looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// For its value; [`NO_CELL`] when it remembers none.
    pub value: u8,
    /// For its run; [`NO_CELL`] when it asks for none.
    pub run: u8,
}

/// The average of weight `k` (in 256ths), with 8 bits behind the point, when `value` (at most [`LARGEST`]) comes.
#[inline]
pub fn averaged(average: u64, value: u64, k: u8) -> u64 {
    if average == EMPTY {
        return value << 8;
    }
    let k = u64::from(k);
    average + value * k - ((average * k) >> 8)
}

/// The cells of a rule set, in an order in which each comes behind those that it looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
}

impl Cells {
    pub(crate) fn as_slice(&self) -> &[Cell] {
        &self.cells
    }

    /// Finds or makes the cells that `term` looks at; `None` when there is no room for them.
    pub(crate) fn places(&mut self, term: &Term) -> Option<Places> {
        let quantity = Quantity { subject: term.subject, aggregate: term.aggregate, node: term.node };
        let value = match term.memory {
            Memory::Now => NO_CELL,
            Memory::Previous | Memory::Change => self.enter(Cell::Previous(quantity))?,
            Memory::Average => self.enter(Cell::Average(quantity, term.alpha))?,
        };
        let run = if term.reports == 0 { NO_CELL } else { self.enter(Cell::Run(term.at_present(), value))? };
        Some(Places { value, run })
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

    /// Takes a report into averages and runs; answers the values of the report that previous values and averages are of.
    #[inline]
    pub(crate) fn take(&self, observation: &Observation<'_>, memory: &mut [u64]) -> [u64; CELLS] {
        let mut now = [ABSENT; CELLS];
        for (at, cell) in self.cells.iter().enumerate() {
            match cell {
                Cell::Previous(quantity) => now[at] = quantity.of(observation),
                Cell::Average(quantity, k) => {
                    now[at] = quantity.of(observation);
                    if now[at] != ABSENT {
                        memory[at] = averaged(memory[at], now[at], *k);
                    }
                }
                Cell::Run(term, cell) => {
                    let (value, held) = look(*cell, &now, memory);
                    let run = if memory[at] == EMPTY { 0 } else { memory[at] };
                    let truth = term.truth_with(observation, value, held);
                    memory[at] = if truth == Some(true) { (run + 1).min(LONGEST_RUN) } else { 0 };
                }
            }
        }
        now
    }

    /// Keeps the values of a report for the next one, when all terms have been looked at.
    #[inline]
    pub(crate) fn keep(&self, now: &[u64; CELLS], memory: &mut [u64]) {
        for ((cell, now), held) in self.cells.iter().zip(now).zip(memory) {
            if matches!(cell, Cell::Previous(_)) && *now != ABSENT {
                *held = *now;
            }
        }
    }
}

/// The value of this report, and what a cell holds.
#[inline]
pub(crate) fn look(cell: u8, now: &[u64; CELLS], memory: &[u64]) -> (u64, u64) {
    let at = usize::from(cell);
    (now.get(at).copied().unwrap_or(ABSENT), memory.get(at).copied().unwrap_or(EMPTY))
}

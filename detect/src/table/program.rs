//! Rules that remember, in fixed-size arrays: a [`Table`] and what its rows look at.
//!
//! A flow's memory is [`Program::used`] numbers of 64 bits, [`EMPTY`] at the beginning. Evaluating a report is four loops of
//! fixed bounds over plain numbers ([`Program::evaluate`]):
//!
//! 1. each **cell**, in order: a previous value takes note of this report's; an average takes it in; a run counts on if its
//!    comparison is true, and begins anew if not;
//! 2. each **row** whose comparison is true, or whose run is long enough, sets the bit of its clause;
//! 3. each **rule** fires when every clause of its set has its bit;
//! 4. each previous value becomes this report's, if that was given.
//!
//! The only multiplication is that of an average, of at most 56 by 8 bits; there is no division. See [`crate::rule::memory`]
//! for what a cell holds.

use super::{Reason, Row, TERMS, Table, Writer, holds};
use crate::observation::{ABSENT, Observation};
use crate::rule::memory::{Cell, EMPTY, LARGEST, LONGEST_RUN, Memory, NO_CELL, Places, Quantity};
use crate::rule::{CELLS, RuleSet, Term};

/// What a row looks at beside the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Recall {
    /// What of earlier reports ([`Memory`]).
    pub memory: u8,
    /// The cell of its value; [`NO_CELL`] for none.
    pub value: u8,
    /// The cell of its run; [`NO_CELL`] for none.
    pub run: u8,
    /// 1: true when the run is shorter than `reports`.
    pub lapsed: u8,
    /// How long a run must be.
    pub reports: u32,
}

/// What a cell holds, by number.
const NOTHING: u8 = 0;
const PREVIOUS: u8 = 1;
const AVERAGE: u8 = 2;
const RUN: u8 = 3;

/// One cell: what it holds, of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CellRow {
    /// The value (subject, aggregate, node), or the comparison that a run counts.
    pub row: Row,
    /// What that comparison looks at.
    pub recall: Recall,
    /// 1: a previous value; 2: an average; 3: a run.
    pub kind: u8,
    /// Weight of a new value in an average, 256ths.
    pub alpha: u8,
}

/// Rules in fixed-size arrays; see the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Program {
    /// Clauses and comparisons.
    pub table: Table,
    /// What each of the table's rows looks at.
    pub recalls: [Recall; TERMS],
    /// The cells of a flow.
    pub cells: [CellRow; CELLS],
    /// Cells in use.
    pub used: u32,
}

impl Recall {
    const NONE: Self = Self { memory: 0, value: NO_CELL, run: NO_CELL, lapsed: 0, reports: 0 };

    fn new(term: &Term, places: Places) -> Self {
        Self {
            memory: term.memory as u8,
            value: places.value,
            run: places.run,
            lapsed: u8::from(term.lapsed),
            reports: u32::from(term.reports),
        }
    }
}

impl CellRow {
    const NONE: Self = Self { row: Table::EMPTY.rows[0], recall: Recall::NONE, kind: NOTHING, alpha: 0 };

    fn new(cell: &Cell) -> Self {
        let of = |quantity: &Quantity| Row {
            node: quantity.node,
            subject: quantity.subject as u8,
            aggregate: quantity.aggregate as u8,
            ..Row::default()
        };
        match cell {
            Cell::Previous(quantity) => Self { row: of(quantity), kind: PREVIOUS, ..Self::NONE },
            Cell::Average(quantity, alpha) => {
                Self { row: of(quantity), kind: AVERAGE, alpha: *alpha, ..Self::NONE }
            }
            Cell::Run(term, value) => {
                let recall = Recall::new(term, Places { value: *value, run: NO_CELL });
                Self { row: Row::new(term, 0), recall, kind: RUN, alpha: 0 }
            }
        }
    }
}

impl Program {
    /// No rules.
    pub const EMPTY: Self =
        Self { table: Table::EMPTY, recalls: [Recall::NONE; TERMS], cells: [CellRow::NONE; CELLS], used: 0 };

    /// All of `rules`, those that remember included.
    ///
    /// # Errors
    /// The first rule for which there is no room, and why.
    pub fn new(rules: &RuleSet) -> Result<Self, (usize, Reason)> {
        let mut writer = Writer { table: Table::EMPTY, known: Vec::new() };
        let mut program = Self::EMPTY;
        for rule in 0..rules.len() {
            let clauses: Vec<&[Term]> = rules.clauses(rule).collect();
            let first = writer.table.terms as usize;
            let known = writer.known.len();
            writer.add(rule, &clauses).map_err(|reason| (rule, reason))?;
            // Of equal clauses only the first has rows; the cells of equal terms are the same.
            let new = clauses.iter().enumerate().filter(|(at, clause)| {
                let number = writer.known[known..].iter().position(|new| new == *clause);
                number.is_some() && !clauses[..*at].contains(clause)
            });
            let terms = new.flat_map(|(clause, terms)| (0..terms.len()).map(move |at| (clause, at)));
            for ((clause, at), recall) in terms.zip(&mut program.recalls[first..]) {
                *recall = Recall::new(&clauses[clause][at], rules.places(rule, clause, at));
            }
        }
        for (row, cell) in program.cells.iter_mut().zip(rules.cells()) {
            *row = CellRow::new(cell);
        }
        program.used = rules.cells().len() as u32;
        program.table = writer.table;
        Ok(program)
    }

    /// Bit `i` of the result is set when rule `i` is true of `observation` in the light of the flow's `memory`, which moves
    /// on. Without room in `memory` it is as if this were the flow's first report.
    #[inline]
    pub fn evaluate(&self, observation: &Observation<'_>, memory: &mut [u64]) -> u64 {
        let used = (self.used as usize).min(CELLS);
        let mut fresh = [EMPTY; CELLS];
        let memory = memory.get_mut(..used).unwrap_or(&mut fresh[..used]);
        let now = self.take(observation, memory);
        let mut holding: u64 = 0;
        let mut at = 0;
        while at < TERMS {
            if at >= self.table.terms as usize {
                break;
            }
            let row = &self.table.rows[at];
            if self.recalls[at].is_true(row, observation, &now, memory) {
                holding |= 1 << (row.clause & 63);
            }
            at += 1;
        }
        let fired = self.table.fired(holding);
        let mut at = 0;
        while at < used {
            if self.cells[at].kind == PREVIOUS && now[at] != ABSENT {
                memory[at] = now[at];
            }
            at += 1;
        }
        fired
    }

    /// The cells' loop; answers the values of this report.
    #[inline]
    fn take(&self, observation: &Observation<'_>, memory: &mut [u64]) -> [u64; CELLS] {
        let mut now = [ABSENT; CELLS];
        let mut at = 0;
        while at < memory.len() {
            let cell = &self.cells[at];
            if cell.kind == RUN {
                let run = if memory[at] == EMPTY { 0 } else { memory[at] };
                memory[at] = if !cell.recall.is_true(&cell.row, observation, &now, memory) {
                    0
                } else if run < LONGEST_RUN {
                    run + 1
                } else {
                    run
                };
            } else {
                now[at] = cell.row.value_of(observation);
            }
            if cell.kind == AVERAGE && now[at] != ABSENT {
                memory[at] = if memory[at] == EMPTY {
                    now[at] << 8
                } else {
                    let k = u64::from(cell.alpha);
                    memory[at] + now[at] * k - ((memory[at] * k) >> 8)
                };
            }
            at += 1;
        }
        now
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::EMPTY
    }
}

const _: () = assert!(
    Memory::Now as u8 == 0
        && Memory::Previous as u8 == 1
        && Memory::Change as u8 == 2
        && Memory::Average as u8 == 3
);

impl Recall {
    #[inline]
    fn is_true(&self, row: &Row, observation: &Observation<'_>, now: &[u64; CELLS], memory: &[u64]) -> bool {
        if self.run != NO_CELL {
            let run = memory[usize::from(self.run)];
            let long = run != EMPTY && run >= u64::from(self.reports);
            return long != (self.lapsed == 1);
        }
        if self.memory == 0 {
            return row.is_true(observation);
        }
        let (now, held) = (now[usize::from(self.value)], memory[usize::from(self.value)]);
        // What there is not is unknown.
        if held == EMPTY {
            return false;
        }
        if self.memory == 1 {
            return holds(row.comparison, held, row.value);
        }
        if now == ABSENT {
            return false;
        }
        if self.memory == 3 {
            return holds(row.comparison, held, row.value << 8);
        }
        holds(row.comparison, now.abs_diff(held), row.value)
    }
}

impl Row {
    /// The number that a cell is of: at most [`LARGEST`], or [`ABSENT`].
    #[inline]
    fn value_of(&self, observation: &Observation<'_>) -> u64 {
        let value = match self.subject {
            0 => observation.flow_latency.unwrap_or(ABSENT),
            1 => observation.hops.len() as u64,
            2 => u64::from(observation.looped),
            _ => return self.value_of_hops(observation),
        };
        if value == ABSENT || value <= LARGEST { value } else { LARGEST }
    }

    #[inline]
    fn value_of_hops(&self, observation: &Observation<'_>) -> u64 {
        let all = self.gather(observation);
        let held = |value: u64| if value > LARGEST { LARGEST } else { value };
        match self.aggregate {
            5 => u64::from(all.count),
            _ if all.count == 0 => ABSENT,
            1 => held(all.greatest),
            2 => held(all.least),
            // More than 64 bits are more than what is held.
            _ if all.sum_high > 0 => LARGEST,
            _ => held(all.sum),
        }
    }
}

//! A switch program for rules with history: a [`Table`] plus the history cells that its rows use, in fixed-size arrays.
//!
//! A flow's history is [`Program::used`] 64-bit numbers, initially [`EMPTY`]. Evaluating a report takes four loops with
//! fixed bounds over plain integers ([`Program::evaluate`]):
//!
//! 1. each **cell**, in order: reads the report's value for previous and average cells, and updates averages; increments a
//!    run if its comparison is true, and resets it otherwise;
//! 2. each **row** whose comparison is true, or whose run is long enough, sets its clause's bit;
//! 3. each **rule** fires if the bits of all its clauses are set;
//! 4. each previous value is replaced by the report's value, if there is one.
//!
//! The only multiplication is in averages, of at most 56 by 8 bits; there is no division. See [`crate::rule::history`] for
//! the contents of cells.

use super::{Reason, Row, TERMS, Table, Writer, code, holds};
use crate::observation::{ABSENT, Observation};
use crate::rule::history::{Cell, EMPTY, History, HistoryCells, MAX_RUN, MAX_VALUE, NO_CELL};
use crate::rule::{CELLS, RuleSet, Term};

const NOTHING: u8 = 0;
const PREVIOUS: u8 = 1;
const AVERAGE: u8 = 2;
const RUN: u8 = 3;

/// The history that a row or cell uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct HistoryRef {
    /// Kind of history ([`History`]).
    pub history: u8,
    /// Cell of its value; [`NO_CELL`]: none.
    pub value: u8,
    /// Cell of its run; [`NO_CELL`]: none.
    pub run: u8,
    /// 1 if the row is true for runs shorter than `reports`.
    pub lapsed: u8,
    /// Required length of a run, reports.
    pub reports: u32,
}

/// A history cell: its kind, and the quantity or comparison that it stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CellRow {
    /// The quantity (subject, aggregate, node), or the comparison that a run counts.
    pub row: Row,
    /// The history that the comparison uses.
    pub history_ref: HistoryRef,
    /// Kind of cell: 1 previous value, 2 average, 3 run.
    pub kind: u8,
    /// Weight of a new value in an average, 256ths.
    pub alpha: u8,
}

/// Rules with history as fixed-size arrays; see the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Program {
    /// Clauses and comparisons of the rules.
    pub table: Table,
    /// History that each of the table's rows uses.
    pub history_refs: [HistoryRef; TERMS],
    /// History cells of a flow.
    pub cells: [CellRow; CELLS],
    /// Number of cells in use.
    pub used: u32,
}

impl HistoryRef {
    const NONE: Self = Self {
        history: 0,
        value: NO_CELL,
        run: NO_CELL,
        lapsed: 0,
        reports: 0,
    };

    fn new(term: &Term, cells: HistoryCells) -> Self {
        Self {
            history: term.history as u8,
            value: cells.value,
            run: cells.run,
            lapsed: u8::from(term.lapsed),
            reports: u32::from(term.reports),
        }
    }
}

impl CellRow {
    const NONE: Self = Self {
        row: Table::EMPTY.rows[0],
        history_ref: HistoryRef::NONE,
        kind: NOTHING,
        alpha: 0,
    };

    fn new(cell: &Cell) -> Self {
        match cell {
            Cell::Previous(quantity) => Self {
                row: Row::for_quantity(quantity),
                kind: PREVIOUS,
                ..Self::NONE
            },
            Cell::Average(quantity, alpha) => Self {
                row: Row::for_quantity(quantity),
                kind: AVERAGE,
                alpha: *alpha,
                ..Self::NONE
            },
            Cell::Run(term, value) => {
                let history_ref = HistoryRef::new(
                    term,
                    HistoryCells {
                        value: *value,
                        run: NO_CELL,
                    },
                );
                Self {
                    row: Row::new(term, 0),
                    history_ref,
                    kind: RUN,
                    alpha: 0,
                }
            }
        }
    }
}

impl Program {
    /// A program without rules.
    pub const EMPTY: Self = Self {
        table: Table::EMPTY,
        history_refs: [HistoryRef::NONE; TERMS],
        cells: [CellRow::NONE; CELLS],
        used: 0,
    };

    /// Compiles all of `rules`, including those with history.
    ///
    /// # Errors
    /// The index of the first rule that does not fit, and the reason.
    pub fn new(rules: &RuleSet) -> Result<Self, (usize, Reason)> {
        let mut writer = Writer {
            table: Table::EMPTY,
            clauses: Vec::new(),
        };
        let mut program = Self::EMPTY;
        for rule in 0..rules.len() {
            let clauses: Vec<&[Term]> = rules.clauses(rule).collect();
            let first_term = writer.table.terms as usize;
            let first_clause = writer.clauses.len();
            writer.add(rule, &clauses).map_err(|reason| (rule, reason))?;
            // Only the first of equal clauses has rows. Equal terms have the same cells.
            let new_clauses = clauses.iter().enumerate().filter(|(index, clause)| {
                writer.clauses[first_clause..].iter().any(|new| new == *clause)
                    && !clauses[..*index].contains(clause)
            });
            let terms =
                new_clauses.flat_map(|(clause, terms)| (0..terms.len()).map(move |term| (clause, term)));
            for ((clause, term), history_ref) in terms.zip(&mut program.history_refs[first_term..]) {
                *history_ref = HistoryRef::new(&clauses[clause][term], rules.cells_of(rule, clause, term));
            }
        }
        for (row, cell) in program.cells.iter_mut().zip(rules.cells()) {
            *row = CellRow::new(cell);
        }
        program.used = rules.cells().len() as u32;
        program.table = writer.table;
        Ok(program)
    }

    /// Evaluates all rules for `observation` with the flow's `history`, which it updates, and returns a bit per rule that
    /// is true. If `history` is too short, the report counts as the flow's first.
    #[inline]
    pub fn evaluate(&self, observation: &Observation<'_>, history: &mut [u64]) -> u64 {
        let used = (self.used as usize).min(CELLS);
        let mut empty_history = [EMPTY; CELLS];
        let history = history.get_mut(..used).unwrap_or(&mut empty_history[..used]);
        let report_values = self.update(observation, history);
        let mut true_clauses: u64 = 0;
        let mut index = 0;
        while index < TERMS {
            if index >= self.table.terms as usize {
                break;
            }
            let row = &self.table.rows[index];
            if self.history_refs[index].is_true(row, observation, &report_values, history) {
                true_clauses |= 1 << (row.clause & 63);
            }
            index += 1;
        }
        let fired = self.table.fired(true_clauses);
        let mut index = 0;
        while index < used {
            if self.cells[index].kind == PREVIOUS && report_values[index] != ABSENT {
                history[index] = report_values[index];
            }
            index += 1;
        }
        fired
    }

    /// Updates averages and runs, and returns the report's values.
    #[inline]
    fn update(&self, observation: &Observation<'_>, history: &mut [u64]) -> [u64; CELLS] {
        let mut report_values = [ABSENT; CELLS];
        let mut index = 0;
        while index < history.len() {
            let cell = &self.cells[index];
            if cell.kind == RUN {
                let run = if history[index] == EMPTY {
                    0
                } else {
                    history[index]
                };
                history[index] = if !cell
                    .history_ref
                    .is_true(&cell.row, observation, &report_values, history)
                {
                    0
                } else if run < MAX_RUN {
                    run + 1
                } else {
                    run
                };
            } else {
                report_values[index] = cell.row.value_of(observation);
            }
            if cell.kind == AVERAGE && report_values[index] != ABSENT {
                history[index] = if history[index] == EMPTY {
                    report_values[index] << 8
                } else {
                    let weight = u64::from(cell.alpha);
                    history[index] + report_values[index] * weight - ((history[index] * weight) >> 8)
                };
            }
            index += 1;
        }
        report_values
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::EMPTY
    }
}

const _: () = assert!(
    History::Now as u8 == 0
        && History::Previous as u8 == 1
        && History::Change as u8 == 2
        && History::Average as u8 == 3
);

impl HistoryRef {
    #[inline]
    fn is_true(
        &self,
        row: &Row,
        observation: &Observation<'_>,
        report_values: &[u64; CELLS],
        history: &[u64],
    ) -> bool {
        if self.run != NO_CELL {
            let run = history[usize::from(self.run)];
            let is_long_enough = run != EMPTY && run >= u64::from(self.reports);
            return is_long_enough != (self.lapsed == 1);
        }
        if self.history == History::Now as u8 {
            return row.is_true(observation);
        }
        let value = report_values[usize::from(self.value)];
        let stored = history[usize::from(self.value)];
        // Missing history makes the comparison unknown.
        if stored == EMPTY {
            return false;
        }
        if self.history == History::Previous as u8 {
            return holds(row.comparison, stored, row.value);
        }
        if value == ABSENT {
            return false;
        }
        if self.history == History::Average as u8 {
            return holds(row.comparison, stored, row.value << 8);
        }
        holds(row.comparison, value.abs_diff(stored), row.value)
    }
}

impl Row {
    /// Returns the value that a cell stores: at most [`MAX_VALUE`], or [`ABSENT`].
    #[inline]
    fn value_of(&self, observation: &Observation<'_>) -> u64 {
        let value = match self.subject {
            code::FLOW_LATENCY => observation.flow_latency.unwrap_or(ABSENT),
            code::HOPS => observation.hops.len() as u64,
            code::LOOP => u64::from(observation.looped),
            _ => return self.value_of_hops(observation),
        };
        if value == ABSENT || value <= MAX_VALUE {
            value
        } else {
            MAX_VALUE
        }
    }

    #[inline]
    fn value_of_hops(&self, observation: &Observation<'_>) -> u64 {
        let hops = self.aggregate_hops(observation);
        match self.aggregate {
            code::COUNT => u64::from(hops.count),
            _ if hops.count == 0 => ABSENT,
            code::MAX => hops.greatest.min(MAX_VALUE),
            code::MIN => hops.least.min(MAX_VALUE),
            // A sum above 64 bits saturates.
            _ if hops.sum_high > 0 => MAX_VALUE,
            _ => hops.sum.min(MAX_VALUE),
        }
    }
}

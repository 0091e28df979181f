//! The rule history of each flow: numbers that rules need from earlier reports, such as averages and runs. Allocated only if
//! rules use it, with a fixed size per flow.

use detect::RuleSet;
use detect::rule::Cell;
use detect::rule::history::EMPTY;

/// One number per flow slot and cell, where a cell is one piece of history that a rule uses.
#[derive(Debug, Default)]
pub(crate) struct RuleHistory {
    cells: Vec<Cell>,
    values: Vec<u64>,
}

impl RuleHistory {
    /// Allocates memory for `flows` flows and the cells of `rules`. Preserves cells that the previous rules also had.
    pub(crate) fn set(&mut self, rules: &RuleSet, flows: usize) {
        let cells = rules.cells();
        if cells == self.cells && self.values.len() == cells.len() * flows {
            return;
        }
        let shared: Vec<(usize, usize)> = cells
            .iter()
            .enumerate()
            .filter_map(|(to, cell)| Some((self.cells.iter().position(|old| old == cell)?, to)))
            .collect();
        let mut values = vec![EMPTY; cells.len() * flows];
        if !shared.is_empty() {
            let old = self.values.chunks_exact(self.cells.len());
            for (new, old) in values.chunks_exact_mut(cells.len()).zip(old) {
                shared.iter().for_each(|&(from, to)| new[to] = old[from]);
            }
        }
        (self.cells, self.values) = (cells.to_vec(), values);
    }

    /// Returns the history of the flow in `slot`; empty if the rules use none.
    #[inline]
    pub(crate) fn of(&mut self, slot: u32) -> &mut [u64] {
        let cells = self.cells.len();
        let start = slot as usize * cells;
        self.values.get_mut(start..start + cells).unwrap_or_default()
    }

    /// Clears the history of `slot`, which gets another flow.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.of(slot).fill(EMPTY);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> RuleSet {
        let named: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(n, text)| (n.to_string(), (*text).into()))
            .collect();
        RuleSet::compile(&named).unwrap()
    }

    #[test]
    fn history_shared_with_other_rules_is_kept() {
        let mut history = RuleHistory::default();
        history.set(&rules(&["hops > 3"]), 4);
        assert_eq!(
            (history.bytes(), history.of(3).len()),
            (0, 0),
            "nothing without such rules"
        );
        history.set(&rules(&["change(hops) > 3 and loop for 3"]), 4);
        for slot in 0..4 {
            let [one, other] = history.of(slot) else { panic!() };
            (*one, *other) = (u64::from(slot), u64::from(slot) + 10);
        }
        assert_eq!(
            (history.of(4).len(), history.bytes()),
            (0, 64),
            "beyond the last flow"
        );
        // The same cells under another name are unchanged. Then one of the two is removed, and a new one precedes the other.
        history.set(&rules(&["previous(hops) > 9 or loop for 9"]), 4);
        assert_eq!(history.of(2), [2, 12]);
        history.set(&rules(&["average(flow_latency) > 5", "loop for 7"]), 4);
        assert_eq!(history.of(2), [EMPTY, 12]);
        history.forget(2);
        assert_eq!(history.of(2), [EMPTY, EMPTY]);
        assert_eq!(history.of(1), [EMPTY, 11]);
        history.set(&RuleSet::default(), 4);
        assert_eq!((history.of(0).len(), history.bytes()), (0, 0));
    }
}

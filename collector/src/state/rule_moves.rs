//! Maps the rules of earlier rule sets to the active one, so that a rule that is true of a flow stays true when other rules are
//! added or removed.

use std::collections::VecDeque;

use detect::RuleSet;
use detect::rule::MAX_RULES;

/// Number of earlier sets whose rules are mapped. A flow whose latest report is older than these starts without true rules, so
/// they are reported again.
const EARLIER_SETS: usize = 16;

/// Null value of an index: the rule is not in the active set.
const GONE: u8 = MAX_RULES as u8;

/// For each earlier rule set, the index of each of its rules in the active set.
#[derive(Debug, Default)]
pub(crate) struct RuleMoves {
    /// (Generation of a set, mapping), the latest first.
    earlier: VecDeque<(u32, [u8; MAX_RULES])>,
}

impl RuleMoves {
    /// Replaces the active set `old`, which had `generation`, with `new`.
    pub(crate) fn add(&mut self, generation: u32, old: &RuleSet, new: &RuleSet) {
        let mut new_indexes = [GONE; MAX_RULES];
        for (old_index, new_index) in new_indexes.iter_mut().enumerate().take(old.len()) {
            let same = (0..new.len()).find(|index| {
                old.name(old_index) == new.name(*index) && old.text(old_index) == new.text(*index)
            });
            *new_index = same.map_or(GONE, |index| index as u8);
        }
        for (_, indexes) in &mut self.earlier {
            for index in indexes.iter_mut() {
                *index = new_indexes.get(usize::from(*index)).copied().unwrap_or(GONE);
            }
        }
        self.earlier.truncate(EARLIER_SETS - 1);
        self.earlier.push_front((generation, new_indexes));
    }

    /// Converts `rules`, bits of the set of `generation`, to bits of the active set. Drops rules that no longer exist.
    pub(crate) fn map_rules(&self, generation: u32, rules: u64) -> u64 {
        if rules == 0 {
            return 0;
        }
        let earlier = self.earlier.iter().find(|(known, _)| *known == generation);
        let Some((_, indexes)) = earlier else { return 0 };
        (0..MAX_RULES)
            .filter(|index| rules >> index & 1 == 1)
            .map(|index| indexes[index])
            .filter(|index| *index < GONE)
            .fold(0, |bits, index| bits | 1 << index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str]) -> RuleSet {
        let rules: Vec<_> = names
            .iter()
            .map(|name| ((*name).to_owned(), "hops > 1".to_owned()))
            .collect();
        RuleSet::compile(&rules).unwrap()
    }

    #[test]
    fn rules_are_found_again_in_later_sets() {
        let sets = [rules(&["a", "b", "c"]), rules(&["c", "a"]), rules(&["x", "c"])];
        let mut moves = RuleMoves::default();
        moves.add(1, &sets[0], &sets[1]);
        assert_eq!(moves.map_rules(1, 0b101), 0b11);
        moves.add(2, &sets[1], &sets[2]);
        assert_eq!(
            (
                moves.map_rules(1, 0b111),
                moves.map_rules(2, 0b10),
                moves.map_rules(0, 1)
            ),
            (0b10, 0, 0)
        );
        (3..40).for_each(|generation| moves.add(generation, &sets[2], &sets[2]));
        assert_eq!(
            (moves.earlier.len(), moves.map_rules(2, 1), moves.map_rules(39, 2)),
            (EARLIER_SETS, 0, 2)
        );
    }
}

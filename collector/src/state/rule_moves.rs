//! Maps the rules of an earlier set to those of the active one: a rule that is true of a flow stays true when others come and go.

use std::collections::VecDeque;

use detect::RuleSet;
use detect::rule::MAX_RULES;

/// Earlier sets that are known. The rules of a flow without a report under any later one are reported anew.
const SETS: usize = 16;

/// For a rule that is not in the active set.
const GONE: u8 = MAX_RULES as u8;

/// For each earlier set, the index of each of its rules in the active set.
#[derive(Debug, Default)]
pub(crate) struct RuleMoves {
    earlier: VecDeque<(u32, [u8; MAX_RULES])>,
}

impl RuleMoves {
    /// The set `new` follows `old`, which was that of `generation`.
    pub(crate) fn add(&mut self, generation: u32, old: &RuleSet, new: &RuleSet) {
        let mut moves = [GONE; MAX_RULES];
        for (one, other) in moves.iter_mut().enumerate().take(old.len()) {
            let same = (0..new.len())
                .find(|other| old.name(one) == new.name(*other) && old.text(one) == new.text(*other));
            *other = same.map_or(GONE, |same| same as u8);
        }
        for (_, earlier) in &mut self.earlier {
            for index in earlier.iter_mut() {
                *index = moves.get(usize::from(*index)).copied().unwrap_or(GONE);
            }
        }
        self.earlier.truncate(SETS - 1);
        self.earlier.push_front((generation, moves));
    }

    /// The rules of the active set that are those of the set of `generation`.
    pub(crate) fn carry(&self, generation: u32, rules: u64) -> u64 {
        if rules == 0 {
            return 0;
        }
        let earlier = self.earlier.iter().find(|(known, _)| *known == generation);
        let Some((_, moves)) = earlier else { return 0 };
        let now = (0..MAX_RULES)
            .filter(|index| rules >> index & 1 == 1)
            .map(|index| moves[index])
            .filter(|index| *index < GONE);
        now.fold(0, |carried, index| carried | 1 << index)
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
        assert_eq!(moves.carry(1, 0b101), 0b11);
        moves.add(2, &sets[1], &sets[2]);
        assert_eq!(
            (moves.carry(1, 0b111), moves.carry(2, 0b10), moves.carry(0, 1)),
            (0b10, 0, 0)
        );
        (3..40).for_each(|generation| moves.add(generation, &sets[2], &sets[2]));
        assert_eq!(
            (moves.earlier.len(), moves.carry(2, 1), moves.carry(39, 2)),
            (SETS, 0, 2)
        );
    }
}

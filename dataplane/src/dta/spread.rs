//! Assigns reports to collectors by key, list or sketch. Stateless, so that a later query can compute which collector has the
//! report.

use wire::dta::hash::collector_of;

/// Maximum number of collectors of a reporter.
pub const MAX_COLLECTORS: usize = 64;

/// Tables of collectors: by key, by list, and one collector for all sketches. All reporters and query clients must have the
/// same tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Collector for each value of `collector_of(key)`.
    by_key: [u8; 256],
    /// (First list, last list, collector), sorted. All other lists are assigned round-robin.
    lists: Vec<(u32, u32, u8)>,
    /// Collector of all sketches: the columns of all switches must go to one.
    sketches: u8,
    collectors: u8,
}

impl Spread {
    /// Returns an even assignment to `collectors`, at least one and at most [`MAX_COLLECTORS`].
    ///
    /// From n to n + 1 collectors, only 1 of n + 1 keys moves, to the new collector, in equal parts from each of the others.
    pub fn even(collectors: usize) -> Self {
        let collectors = collectors.clamp(1, MAX_COLLECTORS) as u8;
        let mut by_key = [0; 256];
        (1..collectors).for_each(|new| assign_share(&mut by_key, new));
        Self {
            by_key,
            lists: Vec::new(),
            sketches: 0,
            collectors,
        }
    }

    /// Returns the table by key with one more collector, which gets the next number. Keys move only to it. A table grown this
    /// way from one collector equals [`Spread::even`]; other tables keep their assignments apart from that.
    ///
    /// # Errors
    /// Returns a message if there are already [`MAX_COLLECTORS`].
    pub fn grown(&self) -> Result<[u8; 256], String> {
        if self.collectors() >= MAX_COLLECTORS {
            return Err(format!(
                "there are already {MAX_COLLECTORS} collectors, which is the limit"
            ));
        }
        let mut by_key = self.by_key;
        assign_share(&mut by_key, self.collectors);
        Ok(by_key)
    }

    /// Creates a spread from tables. `lists` has (first list, last list, collector).
    ///
    /// # Errors
    /// Returns a message about the first unknown collector, or the first range of lists that is reversed or overlaps another.
    pub fn new(
        collectors: usize,
        by_key: Option<[u8; 256]>,
        mut lists: Vec<(u32, u32, u8)>,
        sketches: u8,
    ) -> Result<Self, String> {
        if collectors == 0 || collectors > MAX_COLLECTORS {
            return Err(format!(
                "there must be 1 to {MAX_COLLECTORS} collectors, not {collectors}"
            ));
        }
        let even = Self::even(collectors);
        let by_key = by_key.unwrap_or(even.by_key);
        let used = by_key
            .iter()
            .chain(lists.iter().map(|(_, _, collector)| collector))
            .chain([&sketches]);
        if let Some(unknown) = used
            .copied()
            .find(|collector| usize::from(*collector) >= collectors)
        {
            return Err(format!(
                "there is no collector {unknown}; there are 0 to {}",
                collectors - 1
            ));
        }
        lists.sort_unstable();
        if let Some((first, last, _)) = lists.iter().find(|(first, last, _)| first > last) {
            return Err(format!(
                "lists {first} to {last}: the first is greater than the last"
            ));
        }
        if let Some(pair) = lists.windows(2).find(|pair| pair[0].1 >= pair[1].0) {
            return Err(format!("list {} is given to two collectors", pair[1].0));
        }
        Ok(Self {
            by_key,
            lists,
            sketches,
            ..even
        })
    }

    /// Returns the number of collectors.
    pub fn collectors(&self) -> usize {
        usize::from(self.collectors)
    }

    /// Returns the table of collectors, indexed by [`collector_of`].
    pub fn by_key(&self) -> &[u8; 256] {
        &self.by_key
    }

    /// Returns the collector of a key.
    #[inline]
    pub fn of_key(&self, key: &[u8]) -> u8 {
        if self.collectors == 1 {
            0
        } else {
            self.by_key[usize::from(collector_of(key))]
        }
    }

    /// Returns the collector of a list.
    pub fn of_list(&self, list: u32) -> u8 {
        let after = self.lists.partition_point(|(first, ..)| *first <= list);
        let range = after
            .checked_sub(1)
            .map(|at| self.lists[at])
            .filter(|(_, last, _)| list <= *last);
        range.map_or((list % u32::from(self.collectors)) as u8, |(_, _, collector)| {
            collector
        })
    }

    /// Returns the collector of all sketches.
    pub fn of_sketches(&self) -> u8 {
        self.sketches
    }
}

/// Gives the collector `new`, the last of `new + 1`, its share of the 256 values. In each step the collector with the most
/// values (the first of several) passes on its first value.
fn assign_share(by_key: &mut [u8; 256], new: u8) {
    for _ in 0..256 / (usize::from(new) + 1) {
        let mut pending = [0_u16; 256];
        by_key
            .iter()
            .for_each(|collector| pending[usize::from(*collector)] += 1);
        let most = (0..new)
            .rev()
            .max_by_key(|one| pending[usize::from(*one)])
            .unwrap_or(0);
        if let Some(entry) = by_key.iter_mut().find(|collector| **collector == most) {
            *entry = new;
        }
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self::even(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_collector_takes_its_share_and_nothing_else_moves() {
        for n in 1..MAX_COLLECTORS {
            let (before, after) = (Spread::even(n), Spread::even(n + 1));
            let pairs = || before.by_key.iter().zip(&after.by_key);
            let moved = pairs().filter(|(old, new)| old != new).count();
            assert!(
                pairs().all(|(old, new)| old == new || usize::from(*new) == n),
                "{n}"
            );
            assert_eq!(moved, 256 / (n + 1));
            let mut pending = [0_usize; MAX_COLLECTORS];
            after
                .by_key
                .iter()
                .for_each(|collector| pending[usize::from(*collector)] += 1);
            let (least, most) = (
                pending[..=n].iter().min().unwrap(),
                pending[..=n].iter().max().unwrap(),
            );
            assert!(
                most - least <= 2 && *least >= 256 / (n + 1),
                "{n}: {least} to {most}"
            );
        }
    }

    #[test]
    fn the_tables_of_the_first_collectors_match_a_manual_calculation() {
        // The second collector gets the first 128 values. The third gets 85: in each step one from the collector with the most
        // values, alternating.
        let two: [u8; 256] = std::array::from_fn(|value| u8::from(value < 128));
        assert_eq!(*Spread::even(2).by_key(), two);
        let three = *Spread::even(3).by_key();
        assert_eq!((&three[..42], &three[42..128]), (&[2; 42][..], &[1; 86][..]));
        assert_eq!((&three[128..171], &three[171..]), (&[2; 43][..], &[0; 85][..]));
    }

    #[test]
    fn a_table_grows_as_even_ones_do_and_keeps_what_is_its_own() {
        for n in 1..MAX_COLLECTORS {
            assert_eq!(
                Spread::even(n).grown().as_ref(),
                Ok(Spread::even(n + 1).by_key()),
                "{n}"
            );
        }
        assert!(
            Spread::even(MAX_COLLECTORS)
                .grown()
                .unwrap_err()
                .contains("already 64 collectors")
        );
        // A table by hand: one of two collectors has all values, so the new one gets its share from that one alone.
        let uneven = Spread::new(2, Some([1; 256]), vec![], 0).unwrap();
        let grown = uneven.grown().unwrap();
        assert_eq!((&grown[..85], &grown[85..]), (&[2; 85][..], &[1; 171][..]));
    }

    #[test]
    fn lists_and_sketches_go_where_the_tables_say() {
        let spread = Spread::new(3, None, vec![(100, 199, 2), (5, 5, 1)], 1).unwrap();
        assert_eq!(
            [4, 5, 6, 100, 199, 200].map(|list| spread.of_list(list)),
            [1, 1, 0, 2, 2, 2]
        );
        assert_eq!((spread.of_sketches(), spread.collectors()), (1, 3));
        let key = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 0x50, 6];
        assert_eq!(
            spread.of_key(&key),
            spread.by_key()[usize::from(collector_of(&key))]
        );
    }

    #[test]
    fn tables_that_contradict_themselves_are_refused() {
        let reported = |by_key, lists, sketches| Spread::new(2, by_key, lists, sketches).unwrap_err();
        assert_eq!(
            reported(Some([2; 256]), vec![], 0),
            "there is no collector 2; there are 0 to 1"
        );
        assert_eq!(
            reported(None, vec![(1, 5, 0), (5, 9, 1)], 0),
            "list 5 is given to two collectors"
        );
        assert_eq!(
            reported(None, vec![(3, 2, 0)], 0),
            "lists 3 to 2: the first is greater than the last"
        );
        assert!(reported(None, vec![], 9).contains("no collector 9"));
        assert!(Spread::new(0, None, vec![], 0).is_err() && Spread::new(65, None, vec![], 0).is_err());
    }
}

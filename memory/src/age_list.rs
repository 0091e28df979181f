//! An intrusive doubly linked list that orders the elements of a table by age, without allocation or search. Aggregator and
//! translator use it for timers.
//!
//! ```
//! use memory::age_list::{AgeLink, AgeList, Aged};
//!
//! struct Pending(AgeLink);
//!
//! impl Aged for Pending {
//!     fn age_link(&mut self) -> &mut AgeLink {
//!         &mut self.0
//!     }
//! }
//!
//! let mut table = [Pending(AgeLink::NONE), Pending(AgeLink::NONE)];
//! let mut ages = AgeList::EMPTY;
//! ages.push(&mut table, 1, 10);
//! ages.push(&mut table, 0, 20);
//! assert_eq!(ages.oldest(), 1);
//! ages.remove(&mut table, 1);
//! assert_eq!(ages.oldest(), 0);
//! ```

/// Index that stands for no element.
const NONE: u32 = u32::MAX;

/// An element's links. Valid only between [`AgeList::push`] and [`AgeList::remove`].
#[derive(Clone, Copy, Debug)]
pub struct AgeLink {
    /// Time at which the element was pushed, ns.
    pub since: u64,
    /// Indices of the next newer and the next older element.
    newer: u32,
    older: u32,
}

impl AgeLink {
    /// Links of an element that is not in the list.
    pub const NONE: Self = Self {
        since: 0,
        newer: NONE,
        older: NONE,
    };
}

/// An element of a table that an [`AgeList`] can order.
pub trait Aged {
    /// Returns the element's links.
    fn age_link(&mut self) -> &mut AgeLink;
}

/// The ends of the list.
#[derive(Debug)]
pub struct AgeList {
    oldest: u32,
    newest: u32,
}

impl AgeList {
    /// A list without elements.
    pub const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };

    /// Returns the index of the oldest element, or an index outside any table if the list is empty.
    #[inline(always)]
    pub fn oldest(&self) -> usize {
        self.oldest as usize
    }

    /// Appends element `at` as the newest. It must not be in the list.
    #[inline]
    pub fn push<T: Aged>(&mut self, table: &mut [T], at: usize, now: u64) {
        *table[at].age_link() = AgeLink {
            since: now,
            newer: NONE,
            older: self.newest,
        };
        match table.get_mut(self.newest as usize) {
            Some(before) => before.age_link().newer = at as u32,
            None => self.oldest = at as u32,
        }
        self.newest = at as u32;
    }

    /// Removes element `at`, which must be in the list.
    #[inline]
    pub fn remove<T: Aged>(&mut self, table: &mut [T], at: usize) {
        let AgeLink { newer, older, .. } = *table[at].age_link();
        match table.get_mut(older as usize) {
            Some(older) => older.age_link().newer = newer,
            None => self.oldest = newer,
        }
        match table.get_mut(newer as usize) {
            Some(newer) => newer.age_link().older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Aged for AgeLink {
        fn age_link(&mut self) -> &mut AgeLink {
            self
        }
    }

    #[test]
    fn elements_leave_by_age_after_removals() {
        let mut table = [AgeLink::NONE; 5];
        let mut queue = AgeList::EMPTY;
        for (now, at) in [3, 0, 4, 1].into_iter().enumerate() {
            queue.push(&mut table, at, now as u64);
        }
        // Removes from the middle, the newest end and the oldest end, and pushes the last one again.
        for at in [4, 1, 3] {
            queue.remove(&mut table, at);
        }
        queue.push(&mut table, 3, 9);
        queue.push(&mut table, 2, 10);
        let mut order = Vec::new();
        while let Some(link) = table.get(queue.oldest()).copied() {
            order.push((queue.oldest(), link.since));
            let at = queue.oldest();
            queue.remove(&mut table, at);
        }
        assert_eq!(order, [(0, 1), (3, 9), (2, 10)]);
        assert_eq!(queue.oldest(), NONE as usize);
    }
}

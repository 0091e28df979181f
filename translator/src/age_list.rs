//! The order in which things of a table began to wait: a list through the table itself, so that nothing is allocated or searched.

/// No place.
const NONE: u32 = u32::MAX;

/// What an element keeps of the list. It stands with it only between [`Queue::push`] and [`Queue::remove`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it began to wait, ns.
    pub(super) since: u64,
    /// The places of those that began after and before.
    newer: u32,
    older: u32,
}

impl Turn {
    /// Of an element that does not wait.
    pub(super) const NONE: Self = Self { since: 0, newer: NONE, older: NONE };
}

/// An element that can wait.
pub(super) trait Waits {
    /// Its part of the list.
    fn turn(&mut self) -> &mut Turn;
}

/// The ends of the list.
#[derive(Debug)]
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// The place of the element that has waited longest; outside the table if there is none.
    #[inline(always)]
    pub(super) fn oldest(&self) -> usize {
        self.oldest as usize
    }

    /// Puts an element that does not wait at the young end.
    #[inline]
    pub(super) fn push<T: Waits>(&mut self, table: &mut [T], at: usize, now: u64) {
        *table[at].turn() = Turn { since: now, newer: NONE, older: self.newest };
        match table.get_mut(self.newest as usize) {
            Some(before) => before.turn().newer = at as u32,
            None => self.oldest = at as u32,
        }
        self.newest = at as u32;
    }

    /// Takes an element that waits out.
    #[inline]
    pub(super) fn remove<T: Waits>(&mut self, table: &mut [T], at: usize) {
        let Turn { newer, older, .. } = *table[at].turn();
        match table.get_mut(older as usize) {
            Some(older) => older.turn().newer = newer,
            None => self.oldest = newer,
        }
        match table.get_mut(newer as usize) {
            Some(newer) => newer.turn().older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waits for Turn {
        fn turn(&mut self) -> &mut Turn {
            self
        }
    }

    #[test]
    fn those_that_wait_come_out_in_the_order_of_their_coming_whoever_left_between() {
        let mut table = [Turn::NONE; 5];
        let mut queue = Queue::EMPTY;
        for (now, at) in [3, 0, 4, 1].into_iter().enumerate() {
            queue.push(&mut table, at, now as u64);
        }
        // From the middle, from the young end, from the old end, and back.
        for at in [4, 1, 3] {
            queue.remove(&mut table, at);
        }
        queue.push(&mut table, 3, 9);
        queue.push(&mut table, 2, 10);
        let mut order = Vec::new();
        while let Some(turn) = table.get(queue.oldest()).copied() {
            order.push((queue.oldest(), turn.since));
            let at = queue.oldest();
            queue.remove(&mut table, at);
        }
        assert_eq!(order, [(0, 1), (3, 9), (2, 10)]);
        assert_eq!(queue.oldest(), NONE as usize);
    }
}

//! Counts the days of the records of a batch.

use std::collections::BTreeSet;

/// Counts the different days, of UTC, of the records of a batch: a server that partitions by day accepts a limited number of them at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Days {
    most: usize,
    seen: BTreeSet<u64>,
    last: Option<u64>,
}

const DAY: u64 = 24 * 3600 * 1_000_000_000;

impl Days {
    /// Returns a counter of at most `most` days.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            seen: BTreeSet::new(),
            last: None,
        }
    }

    /// Returns true if a record of this time belongs to the batch, too. The first one always does.
    pub fn accepts(&mut self, ts: u64) -> bool {
        let day = ts / DAY;
        if self.last == Some(day) {
            return true;
        }
        let accepts = self.seen.len() < self.most || self.seen.is_empty() || self.seen.contains(&day);
        if accepts {
            self.seen.insert(day);
            self.last = Some(day);
        }
        accepts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_once_however_they_are_mixed() {
        let mut days = Days::new(2);
        let taken = [5, 9, 5, 6, 9, 5].map(|day| days.accepts(day * DAY + day));
        assert_eq!(taken, [true, true, true, false, true, true]);
        assert!(Days::new(0).accepts(7), "a batch has a record");
        let mut days = Days::new(1);
        assert_eq!([DAY - 1, DAY, 0].map(|ts| days.accepts(ts)), [true, false, true]);
    }
}

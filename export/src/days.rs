//! Limits the number of UTC days in a batch. A server that partitions by day, such as ClickHouse, accepts a limited number of
//! partitions per insert.

use std::collections::BTreeSet;

const DAY: u64 = 24 * 3600 * 1_000_000_000;

/// Set of the days in a batch, with a maximum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DayLimit {
    max_days: usize,
    days: BTreeSet<u64>,
    last: Option<u64>,
}

impl DayLimit {
    /// Returns an empty set that admits `max_days` days.
    pub fn new(max_days: usize) -> Self {
        Self {
            max_days,
            days: BTreeSet::new(),
            last: None,
        }
    }

    /// Adds a record with this time (ns since 1970). Returns false if its day would exceed the limit; the first record is
    /// always admitted.
    pub fn admit(&mut self, ts: u64) -> bool {
        let day = ts / DAY;
        if self.last == Some(day) {
            return true;
        }
        let is_admitted = self.days.len() < self.max_days || self.days.is_empty() || self.days.contains(&day);
        if is_admitted {
            self.days.insert(day);
            self.last = Some(day);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_once_however_they_are_mixed() {
        let mut days = DayLimit::new(2);
        let taken = [5, 9, 5, 6, 9, 5].map(|day| days.admit(day * DAY + day));
        assert_eq!(taken, [true, true, true, false, true, true]);
        assert!(DayLimit::new(0).admit(7), "a batch has a record");
        let mut days = DayLimit::new(1);
        assert_eq!([DAY - 1, DAY, 0].map(|ts| days.admit(ts)), [true, false, true]);
    }
}

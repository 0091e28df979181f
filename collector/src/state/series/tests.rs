//! Series by themselves: events, exact rollups, quantiles, expiry.

use super::*;

const SECOND: Nanos = 1_000_000_000;
const KEY: Key = Key { node: 7, part: 3 };
const CAUSE: Cause = Cause {
    profile: 0,
    origin: 42,
};

#[derive(Default)]
struct Collected(Vec<Rollup>);

impl Output for Collected {
    fn rollup(&mut self, rollup: &Rollup) {
        self.0.push(*rollup);
    }
}

struct Table {
    series: Series,
    sketches: Sketches,
    collected: Collected,
    expired: Vec<(Key, u64)>,
}

impl Table {
    fn new(capacity: usize) -> Self {
        Self {
            series: Series::new(Metric::QueueOccupancy, true, capacity, 1),
            sketches: Sketches::with_capacity(8),
            collected: Collected::default(),
            expired: Vec::new(),
        }
    }

    fn value(&mut self, value: u64, threshold: u64) -> Change {
        let slot = self.series.slot(KEY, CAUSE);
        if self.series.add(slot, value) {
            self.series.examine(slot, value, threshold, &mut self.sketches)
        } else {
            Change::None
        }
    }

    fn close(&mut self, second: u64) {
        self.close_before(second, 1);
    }

    /// Ends a second; the next one with values begins `elapsed` seconds later.
    fn close_before(&mut self, second: u64, elapsed: u32) {
        let closing = Closing {
            start: second * SECOND,
            ends_minute: second % 60 + u64::from(elapsed) >= 60,
            elapsed,
            timeout: 10,
            emits_seconds: true,
            emits_minutes: true,
        };
        let expired = &mut self.expired;
        let collect = |removed: RemovedKey, _: &mut dyn Output| {
            expired.push((removed.key, removed.latest.unwrap_or(0)))
        };
        self.series
            .close(closing, &mut self.sketches, &mut self.collected, collect);
        self.series
            .drain(usize::MAX, &mut self.sketches, &mut self.collected);
    }
}

#[test]
fn a_value_is_reported_when_it_differs_by_more_than_the_threshold_from_the_last_reported() {
    let mut table = Table::new(4);
    table.series.set_threshold(10);
    let changes: Vec<Change> = [100, 110, 90, 111, 105, 121, 122, 100, 0]
        .into_iter()
        .map(|v| table.value(v, 10))
        .collect();
    use Change::{Changed, New, None};
    assert_eq!(
        changes,
        [
            New,
            None,
            None,
            Changed(100),
            None,
            None,
            Changed(111),
            Changed(122),
            Changed(100)
        ]
    );
}

#[test]
fn a_threshold_of_zero_reports_every_change_and_the_greatest_none() {
    let mut table = Table::new(4);
    let changes: Vec<Change> = [5, 5, 6, 6, 5].into_iter().map(|v| table.value(v, 0)).collect();
    assert_eq!(
        changes,
        [
            Change::New,
            Change::None,
            Change::Changed(5),
            Change::None,
            Change::Changed(6)
        ]
    );
    let mut table = Table::new(4);
    table.series.set_threshold(u64::MAX);
    let changes: Vec<Change> = [5, u64::MAX - 1, 0]
        .into_iter()
        .map(|v| table.value(v, u64::MAX))
        .collect();
    assert_eq!(changes, [Change::New, Change::None, Change::None]);
}

#[test]
fn the_least_threshold_guards_and_the_reports_own_decides() {
    let mut table = Table::new(4);
    table.series.set_threshold(5);
    let changes: Vec<Change> = [(100, 50), (108, 50), (108, 5), (151, 50), (159, 50)]
        .into_iter()
        .map(|(v, t)| table.value(v, t))
        .collect();
    assert_eq!(
        changes,
        [
            Change::New,
            Change::None,
            Change::Changed(100),
            Change::None,
            Change::Changed(108)
        ]
    );
}

#[test]
fn a_new_threshold_holds_at_once() {
    let mut table = Table::new(4);
    table.series.set_threshold(100);
    assert_eq!(
        (table.value(50, 100), table.value(60, 100)),
        (Change::New, Change::None)
    );
    table.series.set_threshold(5);
    assert_eq!(table.value(60, 5), Change::Changed(50));
}

#[test]
fn rollups_are_exact_and_their_quantiles_near() {
    let mut table = Table::new(4);
    table.series.set_threshold(u64::MAX);
    for value in (1..=50_000).rev() {
        table.value(value, u64::MAX);
    }
    table.close(58);
    table.value(7, u64::MAX);
    table.close(59);
    let rollups: Vec<_> = table
        .collected
        .0
        .iter()
        .map(|r| (r.ts / SECOND, r.interval, r.count, r.min, r.max, r.sum))
        .collect();
    let sum = 50_000 * 50_001 / 2;
    assert_eq!(
        rollups,
        [
            (58, 1, 50_000, 1, 50_000, sum),
            (59, 1, 1, 7, 7, 7),
            (0, 60, 50_001, 1, 50_000, sum + 7)
        ]
    );
    for rollup in [&table.collected.0[0], &table.collected.0[2]] {
        let (p50, p99) = (rollup.p50.unwrap(), rollup.p99.unwrap());
        assert!(
            p50.abs_diff(25_000) < 1500 && p99.abs_diff(49_500) < 500,
            "{p50} {p99}"
        );
    }
    assert_eq!(
        (table.collected.0[1].p50, table.collected.0[1].p99),
        (Some(7), Some(7))
    );
    assert_eq!(
        (
            table.collected.0[1].node,
            table.collected.0[1].queue,
            table.collected.0[1].interface
        ),
        (Some(7), Some(3), None)
    );
}

#[test]
fn sampling_keeps_to_its_number_and_counts_every_value() {
    let mut table = Table::new(4);
    table.series.set_threshold(u64::MAX);
    for second in 0..3 {
        for _ in 0..1_000_000 {
            table.value(9, u64::MAX);
        }
        table.close(second);
    }
    let counts: Vec<u64> = table.collected.0.iter().map(|rollup| rollup.count).collect();
    assert_eq!(counts, [1_000_000; 3]);
    assert_eq!(table.series.cold[0].stride, 1000);
}

#[test]
fn a_silent_key_expires_and_its_minute_is_reported() {
    let mut table = Table::new(4);
    table.value(4, 0);
    table.close(0);
    table.value(5, 0);
    table.close(1);
    for second in 2..14 {
        table.close(second);
    }
    assert_eq!(table.expired, [(KEY, 5)]);
    let rollups: Vec<_> = table
        .collected
        .0
        .iter()
        .map(|r| (r.interval, r.count, r.sum))
        .collect();
    assert_eq!(rollups, [(1, 1, 4), (1, 1, 5), (60, 2, 9)]);
    assert_eq!((table.series.table().used, table.sketches.table().used), (0, 0));
    assert_eq!(table.value(5, 0), Change::New);
}

#[test]
fn a_flood_of_keys_is_refused_and_soon_forgotten() {
    let mut table = Table::new(100);
    table.value(1, 0);
    for node in 0..10_000 {
        table.series.slot(Key { node, part: 9 }, CAUSE);
    }
    let full = table.series.table();
    assert!(full.used <= 100 && full.used + full.refused >= 10_001, "{full:?}");
    let mut used = Vec::new();
    for second in 0..12 {
        table.value(1, 0);
        table.close(second);
        used.push(table.series.table().used);
    }
    // Half of the table within seconds, and the rest after the timeout.
    assert_eq!(used, [100, 100, 100, 100, 100, 50, 50, 50, 50, 50, 1, 1]);
}

#[test]
fn a_key_that_had_values_in_one_second_expires_after_the_timeout_in_a_table_with_space() {
    let mut table = Table::new(4);
    table.value(4, 0);
    for second in 0..10 {
        table.close(second);
        assert_eq!(table.expired, [], "{second}");
    }
    table.close(10);
    table.close(11);
    assert_eq!(table.expired, [(KEY, 4)]);
}

#[test]
fn a_jump_of_time_beyond_the_timeout_reports_the_last_second_and_minute() {
    let mut table = Table::new(4);
    table.value(4, 0);
    table.value(6, 0);
    table.close_before(7, 3600);
    assert_eq!(table.expired, [(KEY, 6)]);
    let rollups: Vec<_> = table
        .collected
        .0
        .iter()
        .map(|r| (r.ts / SECOND, r.interval, r.count, r.min, r.max, r.sum))
        .collect();
    assert_eq!(rollups, [(7, 1, 2, 4, 6, 10), (0, 60, 2, 4, 6, 10)]);
    assert_eq!((table.series.table().used, table.sketches.table().used), (0, 0));
}

//! The two clocks of a manager. Its timers follow one that nobody sets; people, the journal and the collector use that of the system, which
//! jumps when it is set.

use std::sync::OnceLock;

/// Differences up to this, ns, are those of two readings of the clocks.
const PRECISION: u64 = 100_000_000;

/// The present time, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For timers, ages and rates: ns since 1970 when the program first read the clocks, plus the time since then.
    pub(super) steady: u64,
    /// For what is shown or stored, and for comparisons with times of the collector: ns since 1970, by the system's clock.
    pub(super) wall: u64,
}

impl Now {
    /// Reads both clocks. The first reading sets the beginning of the steady one.
    pub(super) fn read() -> Self {
        static START: OnceLock<Now> = OnceLock::new();
        let present = Self {
            steady: nic::time::monotonic(),
            wall: nic::time::now(),
        };
        let start = START.get_or_init(|| present);
        Self {
            steady: start.to_wall(present.steady),
            wall: present.wall,
        }
    }

    /// Returns a steady time as the system's clock, as it is set now, shows it.
    pub(super) fn to_wall(self, steady: u64) -> u64 {
        moved(steady, self.steady, self.wall)
    }

    /// Returns the steady time at which the system's clock, as it is set now, shows `wall`.
    pub(super) fn to_steady(self, wall: u64) -> u64 {
        moved(wall, self.wall, self.steady)
    }

    /// Whether the system's clock has been set since `earlier`.
    pub(super) fn is_set_since(self, earlier: Self) -> bool {
        self.to_wall(earlier.steady).abs_diff(earlier.wall) > PRECISION
    }
}

/// Moves a time by the difference from one clock to another.
fn moved(time: u64, from: u64, to: u64) -> u64 {
    if to >= from {
        time.saturating_add(to - from)
    } else {
        time.saturating_sub(from - to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_by_the_present_difference_of_the_clocks() {
        let before = Now {
            steady: 1_000,
            wall: 1_000,
        };
        let back = Now {
            steady: 1_500,
            wall: 700,
        };
        let ahead = Now {
            steady: 1_500,
            wall: 9_500,
        };
        assert_eq!(
            [before, back, ahead].map(|now| now.to_wall(1_500)),
            [1_500, 700, 9_500]
        );
        assert_eq!(
            [before, back, ahead].map(|now| now.to_steady(900)),
            [900, 1_700, 0]
        );
        assert_eq!((back.to_wall(10), ahead.to_wall(u64::MAX)), (0, u64::MAX));
        let start = Now {
            steady: 9 * PRECISION,
            wall: 9 * PRECISION,
        };
        let later = |passed, shown| Now {
            steady: start.steady + passed,
            wall: start.wall + shown,
        };
        let is_set = |passed, shown| later(passed, shown).is_set_since(start);
        assert!(!is_set(3_600 * PRECISION, 3_600 * PRECISION + PRECISION));
        assert!(is_set(PRECISION, 3 * PRECISION) && is_set(3 * PRECISION, PRECISION));
    }

    #[test]
    fn the_steady_clock_begins_as_the_other_one_and_runs() {
        let (first, second) = (Now::read(), Now::read());
        assert!(first.steady <= second.steady);
        assert!(first.steady > 1_700_000_000_000_000_000, "later than 2023");
    }
}

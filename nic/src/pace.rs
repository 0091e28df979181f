//! Decides when a receiver should wait briefly before the next receive call, so that the call returns more datagrams. Also used
//! for queues between threads.

use std::time::Duration;

/// Estimates from the arrival rate whether a wait saves system calls.
#[derive(Debug)]
pub struct Pace {
    wait: Duration,
    last: u64,
    wait_next: bool,
}

impl Pace {
    /// Datagrams that a wait must bring. Fewer cost more than the saved system calls.
    const WORTH_WAITING: u64 = 8;

    /// Creates the estimator for waits of this length; zero disables waiting.
    pub fn new(wait: Duration) -> Self {
        Self {
            wait,
            last: 0,
            wait_next: false,
        }
    }

    /// Returns the time to wait before the next call, or `None` for no wait.
    pub fn wait_first(&self) -> Option<Duration> {
        self.wait_next.then_some(self.wait)
    }

    /// Records that `filled` of `slots` arrived at `now` (ns), and decides whether a wait at this rate brings enough.
    pub fn note(&mut self, filled: usize, slots: usize, now: u64) {
        let gap = now.saturating_sub(self.last).max(1);
        self.last = now;
        let expected = (filled as u64).saturating_mul(self.wait.as_nanos() as u64) / gap;
        self.wait_next = filled < slots.div_ceil(2) && expected >= Self::WORTH_WAITING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_only_under_load_and_only_after_a_small_burst() {
        let mut pace = Pace::new(Duration::from_micros(50));
        let mut after = |filled, gap| {
            pace.note(filled, 64, pace.last + gap);
            pace.wait_first().is_some()
        };
        // 4 datagrams in 10 us: 20 are expected in 50 us.
        assert!(after(4, 10_000));
        // 4 datagrams in a millisecond: none is expected.
        assert!(!after(4, 1_000_000));
        assert!(!after(0, 10));
        // More datagrams are waiting already.
        assert!(!after(64, 10_000));
        assert!(!after(32, 10_000));
        assert!(after(31, 10_000));
        let mut never = Pace::new(Duration::ZERO);
        never.note(4, 64, 10);
        assert_eq!(never.wait_first(), None);
    }
}

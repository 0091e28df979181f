//! Detects steps of the wall clock. Retention by age pauses after a step, so that a wrong clock does not delete files.

use std::time::{Duration, Instant, SystemTime};

/// Smaller differences are ignored: the shortest `max_age` is longer.
const MIN_STEP: Duration = Duration::from_secs(60);
/// Time after a step until ages are trusted again.
const SETTLE_DELAY: Duration = Duration::from_secs(3600);

/// Compares the wall clock with the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    /// Latest reading of both clocks.
    last_reading: Option<(SystemTime, Instant)>,
    /// Time of the latest step of the wall clock.
    last_step: Option<Instant>,
}

impl ClockWatch {
    /// Records a reading of both clocks. Returns true if the wall clock was not stepped within [`SETTLE_DELAY`], so ages can be
    /// trusted.
    pub(super) fn is_settled(&mut self, wall: SystemTime, now: Instant) -> bool {
        if let Some((latest_wall, last_reading)) = self.last_reading.replace((wall, now)) {
            let expected = latest_wall + now.saturating_duration_since(last_reading);
            let step = match wall.duration_since(expected) {
                Ok(ahead) => ahead,
                Err(behind) => behind.duration(),
            };
            if step > MIN_STEP {
                self.last_step = Some(now);
            }
        }
        self.last_step
            .is_none_or(|last_step| now.saturating_duration_since(last_step) >= SETTLE_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_count_while_the_clock_runs_and_an_hour_after_it_was_set() {
        let start = Instant::now();
        let mut watch = ClockWatch::default();
        let mut settled = |real: u64, wall: u64| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(wall);
            watch.is_settled(wall, start + Duration::from_secs(real))
        };
        const DAY: u64 = 86_400;
        assert!(settled(0, 100 * DAY));
        assert!(settled(5, 100 * DAY + 5));
        // A machine that slept for less than a minute.
        assert!(settled(10, 100 * DAY + 60));
        // A month ahead for eight seconds, and back.
        assert!(!settled(15, 131 * DAY));
        assert!(!settled(20, 131 * DAY + 5));
        assert!(!settled(23, 100 * DAY + 73));
        assert!(!settled(3622, 100 * DAY + 3672));
        assert!(settled(3623, 100 * DAY + 3673));
    }
}

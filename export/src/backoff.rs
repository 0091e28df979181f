//! Exponential backoff between attempts to send a batch.

const SECOND: Nanos = 1_000_000_000;
/// Bound of the first pause.
const MIN_PAUSE: Nanos = SECOND / 10;
/// Longest pause, unless a server asks for more (`Retry-After`).
const MAX_PAUSE: Nanos = 30 * SECOND;
/// Longest pause that a server can request.
const MAX_REQUESTED_PAUSE: Nanos = 600 * SECOND;

/// A time or a duration, nanoseconds.
pub type Nanos = u64;

/// Exponential backoff with full jitter: each pause is random below a bound that doubles, so that many clients of a recovering
/// server do not retry at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    failures: u32,
    random: u64,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            random: seed,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the pause after another failure, at least as long as the server asked for.
    pub(crate) fn pause(&mut self, requested: Option<Nanos>) -> Nanos {
        let bound = (MIN_PAUSE << self.failures.min(16)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.below(bound)
            .max(requested.unwrap_or(0).min(MAX_REQUESTED_PAUSE))
    }

    /// Returns the pause after refused credentials, 30 s to 60 s: an administrator must act, and servers lock out persistent
    /// clients.
    pub(crate) fn long_pause(&mut self, requested: Option<Nanos>) -> Nanos {
        (MAX_PAUSE + self.below(MAX_PAUSE)).max(requested.unwrap_or(0).min(MAX_REQUESTED_PAUSE))
    }

    /// Returns a random number below `bound` (SplitMix64).
    fn below(&mut self, bound: Nanos) -> Nanos {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again() {
        let longest = |failures: u32| {
            let pauses = (0..2000).map(|seed| {
                let mut backoff = Backoff::new(seed);
                backoff.failures = failures;
                backoff.pause(None)
            });
            pauses.max().unwrap_or(0)
        };
        for (failures, bound) in [
            (0, SECOND / 10),
            (1, SECOND / 5),
            (4, 8 * SECOND / 5),
            (9, 30 * SECOND),
            (u32::MAX, 30 * SECOND),
        ] {
            let longest = longest(failures);
            assert!(
                longest < bound && longest > bound / 100 * 95,
                "{failures}: {longest}"
            );
        }
        let mut backoff = Backoff::new(1);
        (0..20).for_each(|_| assert!(backoff.pause(None) < 30 * SECOND));
        backoff.reset();
        assert!(backoff.pause(None) < SECOND / 10);
    }

    #[test]
    fn a_server_is_not_asked_before_it_wants_to_be() {
        let mut backoff = Backoff::new(1);
        assert_eq!(backoff.pause(Some(5 * SECOND)), 5 * SECOND);
        assert_eq!(backoff.pause(Some(u64::MAX)), MAX_REQUESTED_PAUSE);
        assert!((MAX_PAUSE..2 * MAX_PAUSE).contains(&backoff.long_pause(None)));
    }
}

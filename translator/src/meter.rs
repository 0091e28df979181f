//! Leaky-bucket rate meters of the DTA translator. A collector's meter yields a congestion level from 0 to 3; a sender's
//! meter admits or rejects reports.
//!
//! A bucket's level is a time: how long it needs to run empty, in ns with 16 fractional bits. A unit of traffic adds its
//! cost, `10^9 / rate` ns.

use super::config::Rate;

/// Fractional bits of a level.
const FRACTION_BITS: u32 = 16;
/// Maximum burst, ns (about 20 hours), so that a level with its fraction fits 64 bits.
const MAX_BURST: u64 = 1 << 46;

/// A leaky bucket with a fill level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Time that one unit adds, ns with fraction; 0: no limit.
    cost: u64,
    /// Time until the bucket is empty, ns with fraction.
    level: u64,
}

impl Bucket {
    /// Creates a bucket for `rate` units per second; 0 means no limit.
    pub(super) fn new(rate: u64) -> Self {
        let cost = (1_000_000_000u64 << FRACTION_BITS)
            .checked_div(rate)
            .map_or(0, |cost| cost.max(1));
        Self { cost, level: 0 }
    }

    #[inline(always)]
    fn leak(&mut self, elapsed: u64) {
        self.level = self.level.saturating_sub(elapsed.min(MAX_BURST) << FRACTION_BITS);
    }

    #[inline(always)]
    fn add(&mut self, units: u64) {
        self.level = self.level.saturating_add(self.cost.saturating_mul(units));
    }
}

/// The meter of a collector: operations and bytes, and the congestion level that they cause.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    messages: Bucket,
    bytes: Bucket,
    /// Time of the last leak, ns.
    leaked_at: u64,
    /// Fill levels at which congestion levels 1, 2 and 3 begin, ns with fraction.
    thresholds: [u64; 3],
    /// Amount below a threshold at which its level ends, ns with fraction.
    hysteresis: u64,
    /// Current congestion level, 0 to 3.
    level: u8,
}

impl Meter {
    pub(super) fn new(rate: Rate) -> Self {
        let burst = rate.burst.clamp(1, MAX_BURST) << FRACTION_BITS;
        Self {
            messages: Bucket::new(rate.messages),
            bytes: Bucket::new(rate.bytes),
            leaked_at: 0,
            thresholds: [burst / 2, burst / 4 * 3, burst / 16 * 15],
            hysteresis: burst / 8,
            level: 0,
        }
    }

    /// Returns whether neither operations nor bytes are limited.
    #[inline(always)]
    pub(super) fn is_unlimited(&self) -> bool {
        self.messages.cost | self.bytes.cost == 0
    }

    /// Counts an operation with `data` bytes.
    #[inline(always)]
    pub(super) fn spend(&mut self, data: usize) {
        self.messages.add(1);
        self.bytes.add(data as u64 + Rate::OVERHEAD);
    }

    /// Returns the congestion level at time `now`, 0 to 3.
    #[inline]
    pub(super) fn level(&mut self, now: u64) -> u8 {
        if self.is_unlimited() {
            return 0;
        }
        let elapsed = now.saturating_sub(self.leaked_at);
        self.leaked_at = self.leaked_at.max(now);
        self.messages.leak(elapsed);
        self.bytes.leak(elapsed);
        let fill = self.messages.level.max(self.bytes.level);
        // The level rises at once, and falls with hysteresis.
        let rising_level = self.thresholds_below(fill, 0);
        let falling_level = self.thresholds_below(fill, self.hysteresis);
        self.level = rising_level.max(self.level.min(falling_level));
        self.level
    }

    /// Returns how many thresholds, each lowered by `hysteresis`, `fill` exceeds.
    #[inline(always)]
    fn thresholds_below(&self, fill: u64, hysteresis: u64) -> u8 {
        self.thresholds
            .iter()
            .filter(|threshold| fill > threshold.saturating_sub(hysteresis))
            .count() as u8
    }
}

/// The meter of one sender, a bucket that holds one burst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReporterMeter {
    /// Time until the bucket is empty, ns with fraction.
    level: u64,
    /// Time of the last leak, ns.
    leaked_at: u64,
}

/// The rate and burst shared by all senders' meters.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReporterRate {
    /// Time that one report adds, ns with fraction; 0: no limit.
    cost: u64,
    /// Level of a full bucket, ns with fraction.
    capacity: u64,
}

impl ReporterRate {
    /// Creates a limit of `rate` reports per second (0: no limit) with bursts of up to `burst` reports.
    pub(super) fn new(rate: u64, burst: u32) -> Self {
        let cost = Bucket::new(rate).cost;
        Self {
            cost,
            capacity: cost.saturating_mul(u64::from(burst)),
        }
    }

    /// Returns whether there is no limit.
    #[inline(always)]
    pub(super) fn is_unlimited(self) -> bool {
        self.cost == 0
    }
}

impl ReporterMeter {
    /// Returns whether the rate allows one more report at `now`, and counts the report if so.
    #[inline]
    pub(super) fn admit(&mut self, now: u64, rate: ReporterRate) -> bool {
        let elapsed = now.saturating_sub(self.leaked_at).min(MAX_BURST);
        self.leaked_at = self.leaked_at.max(now);
        let level = self
            .level
            .saturating_sub(elapsed << FRACTION_BITS)
            .saturating_add(rate.cost);
        let is_admitted = level <= rate.capacity;
        self.level = if is_admitted { level } else { level - rate.cost };
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_meter_without_rate_has_no_level() {
        let mut meter = Meter::new(Rate::UNLIMITED);
        (0..1_000_000).for_each(|_| meter.spend(1024));
        assert_eq!(meter.level(0), 0);
    }

    #[test]
    fn levels_begin_at_half_three_quarters_and_fifteen_sixteenths_of_the_burst() {
        // At this rate a message takes 1 us, so the burst of 1,600 us is 1,600 messages.
        let mut meter = Meter::new(Rate {
            messages: 1_000_000,
            bytes: 0,
            burst: 1_600_000,
        });
        let mut begins = Vec::new();
        for sent in 1..=1_600 {
            meter.spend(20);
            let level = meter.level(0);
            if begins.len() < usize::from(level) {
                begins.push(sent);
            }
        }
        assert_eq!(begins, [801, 1_201, 1_501]);
        // A level ends when the bucket is an eighth of the burst (200 us) below the level's threshold; the last threshold
        // is 100 us below the full burst.
        let level_at = |at: u64| meter.clone().level(at * 1_000);
        assert_eq!([99, 299, 301].map(level_at), [3, 3, 2]);
        assert_eq!([599, 601, 999, 1_001].map(level_at), [2, 1, 1, 0]);
    }

    #[test]
    fn bytes_count_with_their_frames() {
        // 126 bytes of data make a frame of 200 bytes; 200,000 bytes per second are 1,000 such frames.
        let mut meter = Meter::new(Rate {
            messages: 0,
            bytes: 200_000,
            burst: 100 * MS,
        });
        (0..50).for_each(|_| meter.spend(126));
        assert_eq!(meter.level(0), 0);
        meter.spend(0);
        assert_eq!(meter.level(0), 1);
    }

    #[test]
    fn a_sender_gets_its_burst_and_then_its_rate() {
        let rate = ReporterRate::new(1_000, 10);
        let mut meter = ReporterMeter::default();
        assert_eq!((0..100).filter(|_| meter.admit(0, rate)).count(), 10);
        assert_eq!((0..100).filter(|_| meter.admit(5 * MS, rate)).count(), 5);
        // A sender that floods still gets its rate.
        assert_eq!(
            (1..=1_000)
                .filter(|at| meter.admit(5 * MS + at * MS / 10, rate))
                .count(),
            100
        );
        // If the clock goes back, no time counts as passed.
        assert!(!meter.admit(0, rate));
        assert_eq!((0..100).filter(|_| meter.admit(u64::MAX, rate)).count(), 10);
    }
}

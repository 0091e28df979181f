//! Query success of a Key-Write store, as a function of keys, slots and copies. Used to size a store before it exists, and
//! to estimate the answers of a partly full one.
//!
//! The model: every key is written once, to `copies` slots that are random and independent, as with hash family v1 on keys
//! that are not too regular. After a key, `later` other keys are written, each to `copies` slots. Then `j` given slots of
//! the key all survive with probability `(1 - j/slots)^(later · copies)`, and inclusion–exclusion over the copies gives the
//! distribution of the number of survivors. The model ignores that two copies of a key may share a slot (probability about
//! 1/slots).

use wire::dta::hash::MAX_COPIES;

/// The parameters of a store.
///
/// ```
/// use dta::Plan;
///
/// // A million flows in four million slots, two copies each.
/// let plan = Plan::new(1_000_000, 4_000_000, 2);
/// assert_eq!(plan.load(), 0.25);
/// assert!(plan.answered() > 0.94 && plan.answered() < 0.95);
/// assert!(plan.answered_at(1_000_000) < plan.answered()); // the oldest key
///
/// // The number of slots with which 99 % of the keys can be read.
/// let slots = plan.slots_for(0.99).ok_or("not with 2^31 slots")?;
/// assert!(Plan::new(1_000_000, slots, 2).answered() >= 0.99);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Different keys, each written once.
    pub keys: u64,
    /// Number of slots in the store.
    pub slots: u64,
    /// Copies of each key, 1 to 4.
    pub copies: u8,
    /// Checksum bits that a wrong slot must match by chance: 32, or 32 - log2(slots) with the hashing of the published DTA
    /// code (`artifact`).
    pub checksum_bits: u8,
}

/// The outcomes of queries for keys that were reported, as shares that sum to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Expected {
    /// Share that is answered correctly.
    pub found: f64,
    /// Not answered: every copy was overwritten.
    pub empty: f64,
    /// Not answered: other keys' values have the same checksum, and too few copies are left to outvote them.
    pub ambiguous: f64,
    /// Answered wrongly: other keys' values with the same checksum are the only ones left, or outvote the copies.
    pub wrong: f64,
}

impl Plan {
    /// Creates a plan with 32-bit checksums. Copies are clamped to 1..=4, slots to at least 1.
    pub fn new(keys: u64, slots: u64, copies: u8) -> Self {
        Self {
            keys,
            slots: slots.max(1),
            copies: copies.clamp(1, MAX_COPIES as u8),
            checksum_bits: 32,
        }
    }

    /// Returns the number of keys per slot.
    pub fn load(&self) -> f64 {
        self.keys as f64 / self.slots as f64
    }

    /// Returns the share of slots that were written at least once.
    pub fn occupied(&self) -> f64 {
        1.0 - self.all_survive(1, self.keys as f64)
    }

    /// Returns the probability that `copies` given slots survive all writes of `later` keys.
    fn all_survive(&self, copies: u32, later: f64) -> f64 {
        if later == 0.0 {
            1.0
        } else {
            (self.log_survival(copies) * later).exp()
        }
    }

    /// Returns the natural logarithm of the probability that one key's writes miss `copies` given slots.
    fn log_survival(&self, copies: u32) -> f64 {
        f64::from(self.copies) * (-f64::from(copies) / self.slots as f64).max(-1.0).ln_1p()
    }

    /// Averages `all_survive` over the ages 0 to keys - 1 of all keys, in closed form (a geometric series).
    fn mean_survival(&self, copies: u32) -> f64 {
        if self.keys == 0 || copies == 0 {
            return 1.0;
        }
        let log = self.log_survival(copies);
        let keys = self.keys as f64;
        if log == f64::NEG_INFINITY {
            return 1.0 / keys;
        }
        (log * keys).exp_m1() / (log.exp_m1() * keys)
    }

    /// Returns the probability that exactly `alive` copies survive, by inclusion–exclusion. `survival(n)` is the
    /// probability that `n` given copies survive.
    fn exactly(&self, alive: u32, survival: impl Fn(u32) -> f64) -> f64 {
        let copies = u32::from(self.copies);
        let terms = (alive..=copies).map(|of| {
            let sign = if (of - alive).is_multiple_of(2) { 1.0 } else { -1.0 };
            sign * choose(copies, of) * choose(of, alive) * survival(of)
        });
        terms.sum::<f64>().clamp(0.0, 1.0)
    }

    /// Returns the probability that a key has a copy left after `later` other keys were written, so that
    /// [`crate::Policy::First`] answers it.
    pub fn answered_at(&self, later: u64) -> f64 {
        1.0 - self.exactly(0, |of| self.all_survive(of, later as f64))
    }

    /// Returns the share of all keys that have a copy left.
    pub fn answered(&self) -> f64 {
        1.0 - self.exactly(0, |of| self.mean_survival(of))
    }

    /// Returns the outcomes of queries under the majority policy, averaged over all keys.
    pub fn expected(&self) -> Expected {
        self.outcome(|of| self.mean_survival(of))
    }

    /// Returns the outcomes of queries under the majority policy for keys after which `later` keys were written.
    pub fn expected_at(&self, later: u64) -> Expected {
        self.outcome(|of| self.all_survive(of, later as f64))
    }

    /// Sums over the number of surviving copies and the number of overwritten slots that have the key's checksum by chance.
    /// Assumes that the values of other keys differ from each other.
    fn outcome(&self, survival: impl Fn(u32) -> f64) -> Expected {
        let copies = u32::from(self.copies);
        let by_chance = self.false_match();
        let mut sum = Expected::default();
        for alive in 0..=copies {
            let left = self.exactly(alive, &survival);
            for others in 0..=copies - alive {
                let chance = left * binomial(copies - alive, others, by_chance);
                let share = match (alive, others) {
                    (0, 0) => &mut sum.empty,
                    _ if alive * 2 > alive + others => &mut sum.found,
                    (0, 1) => &mut sum.wrong,
                    _ => &mut sum.ambiguous,
                };
                *share += chance;
            }
        }
        // Rounding errors may push a share slightly above 1.
        let Expected {
            found,
            empty,
            ambiguous,
            wrong,
        } = sum;
        let [found, empty, ambiguous, wrong] = [found, empty, ambiguous, wrong].map(|share| share.min(1.0));
        Expected {
            found,
            empty,
            ambiguous,
            wrong,
        }
    }

    /// Returns the probability that a slot overwritten by another key matches this key's checksum.
    fn false_match(&self) -> f64 {
        (-f64::from(self.checksum_bits)).exp2()
    }

    /// Returns the probability that a key that was **never** reported is answered (policies First and Majority): a written
    /// slot has its checksum by chance.
    pub fn false_answer(&self) -> f64 {
        let one = self.occupied() * self.false_match();
        -(f64::from(self.copies) * (-one).ln_1p()).exp_m1()
    }

    /// Returns the number of copies, 1 to 4, that answers most keys; the smaller number if two are equal.
    pub fn best_copies(&self) -> u8 {
        let by_copies = (1..=MAX_COPIES as u8).map(|copies| (copies, Self { copies, ..*self }.answered()));
        by_copies
            .max_by(|(a, answered_a), (b, answered_b)| answered_a.total_cmp(answered_b).then(b.cmp(a)))
            .map_or(1, |(copies, _)| copies)
    }

    /// Returns the smallest power of two of slots that answers this share of the keys, or `None` if 2^31 slots are too few.
    pub fn slots_for(&self, answered: f64) -> Option<u64> {
        (0..=31).map(|bits| 1_u64 << bits).find(|slots| {
            Self {
                slots: *slots,
                ..*self
            }
            .answered()
                >= answered
        })
    }

    /// Returns the keys per slot of a store in which this share of the slots is written, assuming that each key was written
    /// once. Infinite for a full store.
    pub fn load_of(occupied: f64, copies: u8) -> f64 {
        -(-occupied.clamp(0.0, 1.0)).ln_1p() / f64::from(copies.max(1))
    }
}

fn choose(of: u32, pick: u32) -> f64 {
    (0..pick).map(|i| f64::from(of - i) / f64::from(i + 1)).product()
}

fn binomial(of: u32, hits: u32, chance: f64) -> f64 {
    choose(of, hits) * chance.powi(hits as i32) * (1.0 - chance).powi((of - hits) as i32)
}

//! The probability that a key-write store answers a query: from keys, slots and copies, by exact formulas, before the store
//! exists; and the expected answers of a store that is partly full.
//!
//! The model: every key is written once, to `copies` slots that are random and independent, as with the hash family v1 on keys
//! that are not too regular (wire-formats 5.6). After a key, `later` other keys are written; a copy survives if none of
//! their `later · copies` writes hits its slot, j given copies survive with probability (1 - j/slots)^(later · copies), and
//! inclusion–exclusion over the copies gives the rest. Copies of one key in the same slot are neglected (a chance of 1/slots).

use wire::dta::hash::MAX_COPIES;

/// A planned store.
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
    /// Bits of the checksum that a wrong slot must match by chance: 32; the artifact's hashing leaves 32 - log2(slots).
    pub checksum_bits: u8,
}

/// The outcomes of queries for a key that was reported.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Expected {
    /// Share that is answered correctly.
    pub found: f64,
    /// Not answered: every copy was overwritten.
    pub empty: f64,
    /// Not answered: another key's value has the same checksum, and too few copies are left to outvote it.
    pub ambiguous: f64,
    /// Answered wrongly: the values of other keys with the same checksum are the only ones left, or outvote the copies.
    pub wrong: f64,
}

impl Plan {
    /// Creates a plan with a checksum of 32 bits; copies are clamped to 1 to 4, slots to at least 1.
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

    /// Returns the share of slots that were ever written.
    pub fn occupied(&self) -> f64 {
        1.0 - self.all_survive(1, self.keys as f64)
    }

    /// Returns the probability that none of the writes of `later` keys hits one of `copies` given slots.
    fn all_survive(&self, copies: u32, later: f64) -> f64 {
        if later == 0.0 {
            1.0
        } else {
            (self.log_survival(copies) * later).exp()
        }
    }

    /// Returns the logarithm of the probability that a key's writes hit none of `copies` given slots.
    fn log_survival(&self, copies: u32) -> f64 {
        f64::from(self.copies) * (-f64::from(copies) / self.slots as f64).max(-1.0).ln_1p()
    }

    /// Averages the survival over all ages 0 to keys - 1: a geometric series.
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

    /// Returns the probability that exactly `alive` copies are left, from the probabilities that given copies are.
    fn exactly(&self, alive: u32, survival: impl Fn(u32) -> f64) -> f64 {
        let copies = u32::from(self.copies);
        let terms = (alive..=copies).map(|of| {
            let sign = if (of - alive).is_multiple_of(2) { 1.0 } else { -1.0 };
            sign * choose(copies, of) * choose(of, alive) * survival(of)
        });
        terms.sum::<f64>().clamp(0.0, 1.0)
    }

    /// Returns the chance that a key of age `later` (keys written after it) has a copy left: an answer under
    /// [`crate::Policy::First`].
    pub fn answered_at(&self, later: u64) -> f64 {
        1.0 - self.exactly(0, |of| self.all_survive(of, later as f64))
    }

    /// Returns the share of all keys that have a copy left.
    pub fn answered(&self) -> f64 {
        1.0 - self.exactly(0, |of| self.mean_survival(of))
    }

    /// Returns the outcomes of queries under the majority policy, over all keys.
    pub fn expected(&self) -> Expected {
        self.outcome(|of| self.mean_survival(of))
    }

    /// Returns the outcomes of queries under the majority policy, for keys of one age.
    pub fn expected_at(&self, later: u64) -> Expected {
        self.outcome(|of| self.all_survive(of, later as f64))
    }

    /// Sums over the number of copies left and the number of other slots that have the key's checksum by chance. The values of other
    /// keys are assumed to differ from each other.
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
        // Rounding may leave a little more than all.
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

    /// Returns the probability that a slot overwritten by another key has this key's checksum.
    fn false_match(&self) -> f64 {
        (-f64::from(self.checksum_bits)).exp2()
    }

    /// Returns the chance that a key which was **never** reported is answered (policies First and Majority): a slot is in use and
    /// has its checksum.
    pub fn false_answer(&self) -> f64 {
        let one = self.occupied() * self.false_match();
        -(f64::from(self.copies) * (-one).ln_1p()).exp_m1()
    }

    /// Returns the number of copies, 1 to 4, with which most keys are answered.
    pub fn best_copies(&self) -> u8 {
        let by_copies = (1..=MAX_COPIES as u8).map(|copies| (copies, Self { copies, ..*self }.answered()));
        by_copies
            .max_by(|(a, answered_a), (b, answered_b)| answered_a.total_cmp(answered_b).then(b.cmp(a)))
            .map_or(1, |(copies, _)| copies)
    }

    /// Returns the smallest number of slots, a power of two, with which this share of the keys is answered, or `None` if 2^31 are
    /// too few.
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

    /// Returns the keys per slot of a store with this share of its slots written, if each key was written once; infinite for a
    /// full store.
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

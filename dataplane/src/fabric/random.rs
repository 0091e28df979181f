//! A small seeded generator (xoshiro256**), so that a run gives the same result on every machine.
//!
//! Nothing here calls the platform's math library: the logarithms of two libraries may differ in the last bit, and one bit is
//! enough to change the order of two packets.

/// A generator of seeded pseudo-random numbers; not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates a generator with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut walk = seed;
        Self {
            state: std::array::from_fn(|_| split_mix(&mut walk)),
        }
    }

    /// Returns 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with a probability of `per_million` / 1,000,000.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Returns an exponentially distributed number with the given mean, rounded down, at least 1.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let unit = ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        ((-ln(unit) * mean as f64) as u64).max(1)
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes two numbers into one. Used where a choice must depend only on ids (ECMP), not on the generator's state.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut walk = a ^ b.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    split_mix(&mut walk)
}

/// Returns the natural logarithm of a positive normal number by exponent and series, accurate to about 1e-13. Uses only
/// additions, multiplications and one division, whose results IEEE 754 defines to the bit.
fn ln(x: f64) -> f64 {
    // The 52 stored bits of an IEEE 754 double's significand; the exponent is above them, with bias 1023.
    const SIGNIFICAND: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits(bits & SIGNIFICAND | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    let z = (m - 1.0) / (m + 1.0);
    let square = z * z;
    let mut term = z;
    let mut sum = 0.0;
    for odd in [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0] {
        sum += term / odd;
        term *= square;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_every_machine() {
        let mut random = Random::new(7);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        let waits: Vec<u64> = (0..4).map(|_| random.exponential(1_000_000)).collect();
        let mut again = Random::new(7);
        assert_eq!(first, (0..3).map(|_| again.bits()).collect::<Vec<_>>());
        assert_eq!(
            waits,
            (0..4).map(|_| again.exponential(1_000_000)).collect::<Vec<_>>()
        );
        assert_ne!(first, (0..3).map(|_| Random::new(8).bits()).collect::<Vec<_>>());
    }

    #[test]
    fn the_logarithm_is_good_enough() {
        for x in [1e-9, 0.001, 0.25, 0.5, 0.7, 0.75, 0.999, 1.0, 1.5, 2.0, 1e6] {
            assert!(
                (ln(x) - x.ln()).abs() < 1e-11,
                "ln({x}) = {} not {}",
                ln(x),
                x.ln()
            );
        }
    }

    #[test]
    fn waits_have_the_configured_mean() {
        let mut random = Random::new(1);
        let sum: u64 = (0..100_000).map(|_| random.exponential(5_000)).sum();
        let mean = sum / 100_000;
        assert!((4_900..5_100).contains(&mean), "{mean}");
    }

    #[test]
    fn chances_and_bounds_hold() {
        let mut random = Random::new(3);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert!((0..1000).all(|_| !random.chance(0)));
        assert!((0..1000).all(|_| random.chance(1_000_000)));
        let hits = (0..100_000).filter(|_| random.chance(10_000)).count();
        assert!((900..1100).contains(&hits), "{hits}");
    }
}

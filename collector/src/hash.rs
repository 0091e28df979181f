//! Fast seeded hashing of small fixed keys. Not cryptographic; the seed keeps a sender from targeting one bucket.

/// Multiplies to 128 bits and XORs the halves, so that every input bit affects every output bit.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (wide >> 64) as u64 ^ wide as u64
}

/// Hashes 16 bytes under a seed.
#[inline]
pub(crate) fn fold_octets(octets: &[u8; 16], seed: u64) -> u64 {
    let wide = u128::from_be_bytes(*octets);
    fold((wide >> 64) as u64 ^ seed, wide as u64 ^ seed.rotate_left(17))
}

/// A small generator (xorshift) for sampling jitter: deterministic, and only a few instructions.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fold(seed, 1) | 1)
    }

    /// Returns a number uniform in 1..=2*mean-1, so that the mean is `mean`.
    #[inline]
    pub(crate) fn around(&mut self, mean: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let span = u64::from(mean) * 2 - 1;
        1 + (((self.0 >> 32) * span) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{Jitter, fold, fold_octets};

    #[test]
    fn jitter_keeps_its_mean_and_its_bounds() {
        let mut jitter = Jitter::new(7);
        let drawn: Vec<u32> = (0..100_000).map(|_| jitter.around(100)).collect();
        assert!(drawn.iter().all(|gap| (1..=199).contains(gap)));
        let mean = drawn.iter().map(|&gap| f64::from(gap)).sum::<f64>() / 100_000.0;
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        assert!((0..1000).all(|_| jitter.around(1) == 1));
    }

    #[test]
    fn seeds_and_bytes_change_the_hash() {
        assert_ne!(fold(0, 0), fold(0, 1));
        assert_ne!(fold_octets(&[1; 16], 0), fold_octets(&[1; 16], 1));
        assert_ne!(fold_octets(&[1; 16], 0), fold_octets(&[2; 16], 0));
    }
}

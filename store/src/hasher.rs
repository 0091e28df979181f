//! Fast hash functions for maps with integer keys that are used once per row.
//!
//! [`FastMap`] is unseeded, for keys that no sender can choose. [`Seeded`] has a random seed, so that a sender cannot provoke
//! collisions (hash flooding).

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Digits of pi and of the golden ratio, as constants without a pattern.
const START: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;

/// A map with keys that no sender chooses, such as IDs in a file.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A set of such keys.
pub(crate) type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

/// Multiply-and-fold hasher: the two halves of a 128-bit product are combined by XOR.
#[derive(Default, Debug)]
pub(crate) struct FastHasher(u64);

/// Builder of hashers with a secret seed, for keys that a sender chooses.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = FastHasher;

    #[inline]
    fn build_hasher(&self) -> FastHasher {
        FastHasher(self.0)
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ START) * FACTOR;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

//! A seeded random number generator (SplitMix64) for tests, so that failures can be reproduced.

/// A seeded generator of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next random number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    /// Makes one to four random changes: to a byte or a bit, a truncation, an added or a removed byte.
    pub fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        const EDGES: [u8; 8] = [0, 1, 2, 4, 0x45, 0x7f, 0x80, 0xff];
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes[at] = EDGES[self.below(EDGES.len())],
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = bytes[at].wrapping_add(1),
                3 => bytes[at] = bytes[at].wrapping_sub(1),
                4 => bytes.truncate(at),
                5 => bytes.push(self.roll() as u8),
                6 => drop(bytes.remove(at)),
                _ => bytes[at] = self.roll() as u8,
            }
        }
    }
}

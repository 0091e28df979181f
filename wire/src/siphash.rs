//! SipHash-2-4 (Aumasson and Bernstein, 2012) of short messages.

/// The state, from the key's two little-endian words.
struct State([u64; 4]);

impl State {
    #[inline(always)]
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }
}

/// Hashes `words`, the little-endian words of a message. The last one has the message's last up to seven bytes in its low
/// bytes, and the message's length, modulo 256, in its highest.
#[inline]
pub(crate) fn siphash_2_4<const WORDS: usize>(key: [u64; 2], words: [u64; WORDS]) -> u64 {
    let mut state = State([
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ]);
    for word in words {
        state.0[3] ^= word;
        state.round();
        state.round();
        state.0[0] ^= word;
    }
    state.0[2] ^= 0xff;
    for _ in 0..4 {
        state.round();
    }
    let [a, b, c, d] = state.0;
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::siphash_2_4;

    #[test]
    fn the_authors_vectors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        // The messages of 0 and 15 bytes: 00 01 02 ...
        assert_eq!(siphash_2_4(key, [0]), 0x726f_db47_dd0e_0e31);
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash_2_4(key, words), 0xa129_ca61_49be_45e5);
    }
}

//! CRC-32 (IEEE 802.3, reflected) of short strings by carry-less multiplication (PCLMULQDQ); RoCEv2 frames need it for
//! their ICRC.
//!
//! As polynomials over GF(2), the CRC register after a string is the sum over its 64-bit words of
//! `word * x^(32 + bits after it)`, modulo the polynomial P of degree 32. The powers modulo P are constants, so each word
//! takes one multiplication that depends on no other. The sum has at most degree 94 and is reduced once (Barrett: multiply
//! by `floor(x^95 / P)` for the quotient, then subtract). The usual folding makes each block depend on the previous one;
//! for the few dozen bytes of a telemetry packet, that latency would dominate.
//!
//! Bits are reflected: bit i of a word of n bits is the coefficient of `x^(n - 1 - i)`.

#[cfg(target_arch = "x86_64")]
mod wide;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadu_si128, _mm_setzero_si128,
    _mm_xor_si128,
};

/// The polynomial P without its x^32 term, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bytes per block; a block takes two multiplications.
const BLOCK: usize = 16;
/// Maximum number of blocks in one sum.
const BLOCKS: usize = 32;
/// For both words of each of the last [`BLOCKS`] blocks of a string: x^(32 + bits after the word) modulo P, shifted left by
/// one bit, in the upper of two words.
#[cfg(target_arch = "x86_64")]
static POWERS: [[[u64; 2]; 2]; BLOCKS] = powers();
/// Barrett constant floor(x^95 / P), of degree 63.
#[cfg(target_arch = "x86_64")]
const RECIPROCAL: u64 = reciprocal();

/// A function that continues a CRC-32 as zlib does: start with all ones and invert the final state.
pub type Crc32 = fn(u32, &[u8]) -> u32;

/// Returns the fastest function for strings of `len` bytes; it accepts any length. Returns `None` on a CPU without
/// carry-less multiplication. Multiples of 16 up to 128 bytes get a function for exactly that length.
#[cfg(target_arch = "x86_64")]
pub fn crc_32(len: usize) -> Option<Crc32> {
    // For at most one vector, adding the lanes would cost more than the saved multiplications.
    let is_short = len <= 4 * BLOCK && len.is_multiple_of(BLOCK);
    if !is_short && wide::is_possible() {
        return Some(wide::crc_32(if len.is_multiple_of(BLOCK) {
            len / BLOCK
        } else {
            0
        }));
    }
    narrow(len)
}

/// Like [`crc_32`], but with functions that process one 16-byte block at a time.
#[cfg(target_arch = "x86_64")]
fn narrow(len: usize) -> Option<Crc32> {
    const SHORT: [Crc32; 8] = [
        whole_blocks::<1>,
        whole_blocks::<2>,
        whole_blocks::<3>,
        whole_blocks::<4>,
        whole_blocks::<5>,
        whole_blocks::<6>,
        whole_blocks::<7>,
        whole_blocks::<8>,
    ];
    let is_possible =
        std::arch::is_x86_feature_detected!("pclmulqdq") && std::arch::is_x86_feature_detected!("sse4.1");
    let short = if len.is_multiple_of(BLOCK) {
        SHORT.get((len / BLOCK).wrapping_sub(1))
    } else {
        None
    };
    is_possible.then_some(short.copied().unwrap_or(any_length))
}

/// Returns `None`: this CPU has no such function.
#[cfg(not(target_arch = "x86_64"))]
pub fn crc_32(_len: usize) -> Option<Crc32> {
    None
}

#[cfg(target_arch = "x86_64")]
fn whole_blocks<const N: usize>(state: u32, bytes: &[u8]) -> u32 {
    match bytes.as_chunks() {
        (blocks, []) if blocks.len() == N => {
            // SAFETY: the CPU has PCLMULQDQ and SSE 4.1; `crc_32` checks that before it returns this function.
            unsafe { few::<N>(state, blocks) }
        }
        _ => any_length(state, bytes),
    }
}

#[cfg(target_arch = "x86_64")]
fn any_length(state: u32, bytes: &[u8]) -> u32 {
    // Bytes that fill no block come first. After the blocks, their table lookups would wait for the multiplications.
    let (front, blocks) = bytes.as_rchunks::<BLOCK>();
    let state = if front.is_empty() {
        state
    } else {
        by_table(state, front)
    };
    // SAFETY: as in `whole_blocks`.
    unsafe { multiply(state, blocks) }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn by_table(state: u32, bytes: &[u8]) -> u32 {
    static TABLE: [u32; 256] = table();
    bytes.iter().fold(state, |state, byte| {
        state >> 8 ^ TABLE[usize::from(state as u8 ^ byte)]
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn multiply(state: u32, blocks: &[[u8; BLOCK]]) -> u32 {
    match blocks.len() {
        1 => few::<1>(state, blocks),
        2 => few::<2>(state, blocks),
        3 => few::<3>(state, blocks),
        4 => few::<4>(state, blocks),
        5 => few::<5>(state, blocks),
        6 => few::<6>(state, blocks),
        7 => few::<7>(state, blocks),
        0 => state,
        _ => many(state, blocks),
    }
}

/// Returns the register after `N` blocks.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq,sse4.1")]
#[inline]
fn few<const N: usize>(state: u32, blocks: &[[u8; BLOCK]]) -> u32 {
    let (Some(blocks), Some(powers)) = (blocks.first_chunk::<N>(), POWERS.last_chunk::<N>()) else {
        return state;
    };
    let mut sum = Sum::new(state);
    for (block, powers) in blocks.iter().zip(powers) {
        sum.add(block, powers);
    }
    sum.reduce()
}

/// Returns the register after any number of blocks: up to seven first, then groups of eight.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq,sse4.1")]
fn many(state: u32, blocks: &[[u8; BLOCK]]) -> u32 {
    let (front, eights) = blocks.as_rchunks::<8>();
    let mut state = if front.is_empty() {
        state
    } else {
        multiply(state, front)
    };
    let (_, powers) = POWERS.as_rchunks::<8>();
    for some in eights.chunks(powers.len()) {
        let mut sum = Sum::new(state);
        for (eight, powers) in some.iter().zip(&powers[powers.len() - some.len()..]) {
            for (block, powers) in eight.iter().zip(powers) {
                sum.add(block, powers);
            }
        }
        state = sum.reduce();
    }
    state
}

/// A sum of products before its reduction modulo P.
#[cfg(target_arch = "x86_64")]
struct Sum {
    /// Value to add to the next block: the register before the first block, then zero.
    state: __m128i,
    /// Sum of the products with the first words of blocks.
    first: __m128i,
    /// Sum of the products with the second words of blocks.
    second: __m128i,
}

#[cfg(target_arch = "x86_64")]
impl Sum {
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    #[inline]
    fn new(state: u32) -> Self {
        let none = _mm_setzero_si128();
        Self {
            state: _mm_cvtsi32_si128(state as i32),
            first: none,
            second: none,
        }
    }

    #[target_feature(enable = "pclmulqdq,sse4.1")]
    #[inline]
    fn add(&mut self, block: &[u8; BLOCK], powers: &[[u64; 2]; 2]) {
        // SAFETY: the load reads 16 borrowed bytes, and needs no alignment.
        let words = _mm_xor_si128(unsafe { _mm_loadu_si128(block.as_ptr().cast()) }, self.state);
        self.state = _mm_setzero_si128();
        self.first = _mm_xor_si128(self.first, _mm_clmulepi64_si128::<0x10>(words, pair(&powers[0])));
        self.second = _mm_xor_si128(self.second, _mm_clmulepi64_si128::<0x11>(words, pair(&powers[1])));
    }

    /// Returns the register after all blocks.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    #[inline]
    fn reduce(&self) -> u32 {
        // Bit k is the coefficient of x^(95 - k). The low word has the coefficients of x^32 and above. Its product with the
        // reciprocal has the quotient in its low word, and the quotient's product with P is aligned with the sum.
        let sum = _mm_xor_si128(self.first, self.second);
        let quotient = _mm_clmulepi64_si128::<0x10>(sum, pair(&[0, RECIPROCAL]));
        let product = _mm_clmulepi64_si128::<0x10>(quotient, pair(&[0, (POLYNOMIAL as u64) << 1 | 1]));
        _mm_extract_epi32::<2>(_mm_xor_si128(sum, product)) as u32
    }
}

/// Loads two words, of which only the upper is used, so that the multiplication reads it directly from memory.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq,sse4.1")]
#[inline]
fn pair(words: &[u64; 2]) -> __m128i {
    // SAFETY: the load reads 16 borrowed bytes, and needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// Multiplies a polynomial of degree below 32 by x, modulo P.
const fn times_x(value: u32) -> u32 {
    value >> 1 ^ if value & 1 != 0 { POLYNOMIAL } else { 0 }
}

#[cfg(target_arch = "x86_64")]
const fn powers() -> [[[u64; 2]; 2]; BLOCKS] {
    let words = word_powers::<BLOCKS, BLOCKS>();
    let mut powers = [[[0; 2]; 2]; BLOCKS];
    let mut block = 0;
    while block < BLOCKS {
        powers[block][0][1] = words[block][0];
        powers[block][1][1] = words[block][1];
        block += 1;
    }
    powers
}

/// Returns the powers for both words of the last `N` blocks of a string, as in [`POWERS`]; the rest is zero.
#[cfg(target_arch = "x86_64")]
const fn word_powers<const N: usize, const ALL: usize>() -> [[u64; 2]; ALL] {
    let mut powers = [[0; 2]; ALL];
    // x^32 modulo P.
    let mut value = POLYNOMIAL;
    let mut word = 0;
    while word < 2 * N {
        let from_front = 2 * N - 1 - word;
        powers[from_front / 2][from_front % 2] = (value as u64) << 1;
        let mut bit = 0;
        while bit < 64 {
            value = times_x(value);
            bit += 1;
        }
        word += 1;
    }
    powers
}

/// Computes [`RECIPROCAL`] by long division: the remainders of x^32, x^33, ... each give one bit of the quotient.
#[cfg(target_arch = "x86_64")]
const fn reciprocal() -> u64 {
    // x^32 / P has quotient 1, and its remainder is P without x^32.
    let mut quotient = 1_u64 << 63;
    let mut left = POLYNOMIAL;
    let mut power = 32;
    while power < 95 {
        // Multiply by x: the quotient's top bit is x^0, and the remainder's lowest bit is x^31.
        quotient = quotient >> 1 | ((left & 1) as u64) << 63;
        left = times_x(left);
        power += 1;
    }
    quotient
}

#[cfg(target_arch = "x86_64")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = times_x(value);
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Crc32, crc_32, narrow, times_x};

    /// Computes the CRC bit by bit, directly from its definition.
    fn slowly(state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |state, byte| {
            (0..8).fold(state ^ u32::from(*byte), |state, _| times_x(state))
        })
    }

    /// Returns the variants that this processor supports, each selected for strings of these lengths.
    fn variants(best: &[usize]) -> Vec<(&'static str, Crc32)> {
        let each = |len: &usize| [("best", crc_32(*len)), ("narrow", narrow(*len))];
        best.iter()
            .flat_map(each)
            .filter_map(|(name, variant)| Some((name, variant?)))
            .collect()
    }

    #[test]
    fn every_length_is_the_definitions_and_goes_on() {
        if crc_32(0).is_none() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED CRC-32 by multiplication: this processor has none"
            );
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if !super::wide::is_possible() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED CRC-32 by vectors of 64 bytes: this processor has none"
            );
        }
        let mut random = 1_u64;
        let mut bytes = vec![0; 2300];
        for len in (0..300).chain([
            511, 512, 513, 527, 528, 1023, 1024, 1025, 1039, 1040, 1300, 2048, 2300,
        ]) {
            for byte in &mut bytes[..len] {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = (random >> 56) as u8;
            }
            let begin = (random >> 24) as u32;
            let expected = slowly(begin, &bytes[..len]);
            // Each function is correct for all lengths, not only those that it is optimised for.
            for (variant, crc_32) in variants(&[len, 0, 16, 48, 128, 1024]) {
                assert_eq!(crc_32(begin, &bytes[..len]), expected, "{len}, {variant}");
                let (front, back) = bytes[..len].split_at(len / 3);
                assert_eq!(
                    crc_32(crc_32(begin, front), back),
                    expected,
                    "{len} in two pieces, {variant}"
                );
            }
        }
        assert_eq!(
            crc_32(9).map(|crc_32| crc_32(u32::MAX, b"123456789")),
            Some(!0xcbf4_3926)
        );
    }

    #[test]
    fn every_bit_of_a_long_string_counts() {
        for (variant, crc_32) in variants(&[528, 1104]) {
            let mut bytes = [0; 1104];
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] = 1 << (bit % 8);
                assert_eq!(crc_32(0, &bytes), slowly(0, &bytes), "bit {bit}, {variant}");
                bytes[bit / 8] = 0;
            }
        }
    }
}

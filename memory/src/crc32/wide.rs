//! The CRC-32 of the parent module with four blocks side by side, on CPUs that multiply 64-byte vectors (VPCLMULQDQ and
//! AVX-512).

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_extract_epi32, _mm_loadu_si128,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256,
    _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64, _mm512_loadu_si512,
    _mm512_maskz_loadu_epi64, _mm512_setzero_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use super::{BLOCK, Crc32, POLYNOMIAL, RECIPROCAL, by_table, word_powers};

/// Maximum number of blocks in one sum, 1 KiB.
const BLOCKS: usize = 64;
/// Number of blocks per vector.
const LANES: usize = 4;

/// Powers for both words of each block, as in [`POWERS`](super::POWERS); zeros after them for unused lanes of the last
/// vector.
static POWERS: [[u64; 2]; BLOCKS + LANES] = word_powers::<BLOCKS, { BLOCKS + LANES }>();

/// Returns whether the CPU has the instructions.
pub(super) fn is_possible() -> bool {
    use std::arch::is_x86_feature_detected;
    let vectors = is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512f");
    vectors && is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1")
}

/// Returns a function for strings of any length that is fastest for this number of blocks. The caller must have checked
/// [`is_possible`].
pub(super) fn crc_32(blocks: usize) -> Crc32 {
    const SHORT: [Crc32; 4] = [
        whole_blocks::<5>,
        whole_blocks::<6>,
        whole_blocks::<7>,
        whole_blocks::<8>,
    ];
    SHORT.get(blocks.wrapping_sub(5)).copied().unwrap_or(any_length)
}

fn whole_blocks<const N: usize>(state: u32, bytes: &[u8]) -> u32 {
    match bytes.as_chunks() {
        (blocks, []) if blocks.len() == N => {
            // SAFETY: the CPU has the instructions; `super::crc_32` checks `is_possible` before it returns this function.
            unsafe { sum(state, &blocks[..N]) }
        }
        _ => any_length(state, bytes),
    }
}

fn any_length(state: u32, bytes: &[u8]) -> u32 {
    // Bytes that fill no block come first, as in the parent module's `any_length`.
    let (front, blocks) = bytes.as_rchunks::<BLOCK>();
    let state = if front.is_empty() {
        state
    } else {
        by_table(state, front)
    };
    // SAFETY: as in `whole_blocks`.
    unsafe { many(state, blocks) }
}

#[target_feature(enable = "vpclmulqdq,avx512f,pclmulqdq,sse4.1")]
fn many(state: u32, blocks: &[[u8; BLOCK]]) -> u32 {
    // The shorter piece comes first; the others depend only on its state.
    let (front, rest) = blocks.as_rchunks::<BLOCKS>();
    let state = if front.is_empty() {
        state
    } else {
        sum(state, front)
    };
    rest.iter().fold(state, |state, blocks| sum(state, blocks))
}

/// Returns the register after at most [`BLOCKS`] blocks.
#[target_feature(enable = "vpclmulqdq,avx512f,pclmulqdq,sse4.1")]
#[inline]
fn sum(state: u32, blocks: &[[u8; BLOCK]]) -> u32 {
    if blocks.is_empty() {
        return state;
    }
    let Some(powers) = POWERS.get(BLOCKS.wrapping_sub(blocks.len())..) else {
        return state;
    };
    let (fours, rest) = blocks.as_chunks::<LANES>();
    let mut state = _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32));
    let mut sum = _mm512_setzero_si512();
    let mut powers = powers.chunks_exact(LANES);
    for four in fours {
        // SAFETY: the load reads 64 borrowed bytes, and needs no alignment.
        let words = unsafe { _mm512_loadu_si512(four.as_ptr().cast()) };
        sum = add(sum, _mm512_xor_si512(words, state), powers.next());
        state = _mm512_setzero_si512();
    }
    if !rest.is_empty() {
        let mask = (1_u8 << (2 * rest.len())) - 1;
        // SAFETY: the load reads only the words of the mask, which are borrowed, and needs no alignment.
        let words = unsafe { _mm512_maskz_loadu_epi64(mask, rest.as_ptr().cast()) };
        sum = add(sum, _mm512_xor_si512(words, state), powers.next());
    }
    reduce(sum)
}

#[target_feature(enable = "vpclmulqdq,avx512f")]
#[inline]
fn add(sum: __m512i, words: __m512i, powers: Option<&[[u64; 2]]>) -> __m512i {
    let Some(powers) = powers.and_then(|powers| powers.first_chunk::<LANES>()) else {
        return sum;
    };
    // SAFETY: the load reads 64 borrowed bytes, and needs no alignment.
    let powers = unsafe { _mm512_loadu_si512(powers.as_ptr().cast()) };
    let first = _mm512_clmulepi64_epi128::<0x00>(words, powers);
    let second = _mm512_clmulepi64_epi128::<0x11>(words, powers);
    // XOR of all three operands (truth table 0x96).
    _mm512_ternarylogic_epi64::<0x96>(sum, first, second)
}

/// Adds up the four lanes, then reduces like [`Sum::reduce`](super::Sum).
#[target_feature(enable = "vpclmulqdq,avx512f,pclmulqdq,sse4.1")]
#[inline]
fn reduce(sum: __m512i) -> u32 {
    let sum = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    let sum = _mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let quotient = _mm_clmulepi64_si128::<0x00>(sum, pair(&[RECIPROCAL, 0]));
    let product = _mm_clmulepi64_si128::<0x00>(quotient, pair(&[(POLYNOMIAL as u64) << 1 | 1, 0]));
    _mm_extract_epi32::<2>(_mm_xor_si128(sum, product)) as u32
}

#[target_feature(enable = "sse4.1")]
#[inline]
fn pair(words: &[u64; 2]) -> __m128i {
    // SAFETY: the load reads 16 borrowed bytes, and needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

//! CRC-32C (Castagnoli) by the CPU's CRC instruction (SSE 4.2), also while copying from shared memory: a CRC by table would take
//! longer than reading the memory that it checks.

/// Continues a CRC-32C (reflected). Start with all ones and invert the final state. Returns `None` on a CPU without the
/// instruction.
///
/// ```
/// // The check value of CRC-32C, computed in two pieces.
/// let state = memory::crc_32c_update(u32::MAX, b"1234");
/// let state = state.and_then(|state| memory::crc_32c_update(state, b"56789"));
/// assert!(state.is_none_or(|state| !state == 0xe306_9283));
/// ```
#[inline]
pub fn crc_32c_update(state: u32, bytes: &[u8]) -> Option<u32> {
    by_instruction(state, bytes)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn by_instruction(state: u32, bytes: &[u8]) -> Option<u32> {
    if !std::arch::is_x86_feature_detected!("sse4.2") {
        return None;
    }
    // SAFETY: the CPU has SSE 4.2, as checked above.
    Some(unsafe { sse(state, bytes) })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn sse(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = u64::from(state);
    for word in words {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    // The instruction leaves the upper half zero.
    let mut state = state as u32;
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*word));
    }
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn by_instruction(_state: u32, _bytes: &[u8]) -> Option<u32> {
    None
}

/// Copies from memory that others change, and returns the CRC-32C of the first `covered` bytes of the copy, or `None` on a
/// CPU without the instruction.
///
/// # Safety
/// `source..source + out.len()` is inside a mapping; `covered` is at most `out.len()`.
#[cfg(target_os = "linux")]
#[inline(always)]
pub(crate) unsafe fn load_with_crc(source: *const u8, out: &mut [u8], covered: usize) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the caller's promise; the CPU has SSE 4.2, as checked above.
        return Some(unsafe { sse_copy(source, out, covered) });
    }
    // SAFETY: the caller's promise.
    unsafe { crate::copy::load(source, out) };
    crc_32c_update(u32::MAX, &out[..covered]).map(|state| !state)
}

/// # Safety
/// As of [`load_with_crc`].
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[target_feature(enable = "sse4.2")]
unsafe fn sse_copy(source: *const u8, out: &mut [u8], covered: usize) -> u32 {
    use crate::copy::{WORD, Word};
    use std::arch::x86_64::_mm_crc32_u64;
    let (front, back) = out.split_at_mut(covered / WORD * WORD);
    let mut state = u64::from(u32::MAX);
    let mut at = source;
    for word in front.as_chunks_mut::<WORD>().0 {
        // SAFETY: one of the words of the source; `Word` may lie at any address.
        let value = unsafe { at.cast::<Word>().read_volatile() }.0;
        *word = value.to_ne_bytes();
        state = _mm_crc32_u64(state, value);
        at = at.wrapping_add(WORD);
    }
    let covered = covered - front.len();
    // SAFETY: the remaining bytes of the source.
    unsafe { crate::copy::load(at, back) };
    !if covered == 0 {
        state as u32
    } else {
        sse(state as u32, &back[..covered])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::crc_32c_update;

    /// Computes the CRC bit by bit, directly from its definition.
    fn slowly(bytes: &[u8]) -> u32 {
        bytes.iter().fold(u32::MAX, |state, byte| {
            (0..8).fold(state ^ u32::from(*byte), |state, _| {
                (state >> 1) ^ ((state & 1) * 0x82f6_3b78)
            })
        })
    }

    #[test]
    fn every_length_is_the_definitions_and_goes_on() {
        let bytes: Vec<u8> = (0..100).map(|i: u32| (i * 73 + 5) as u8).collect();
        if crc_32c_update(0, &[]).is_none() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED CRC-32C by instruction: this processor has none"
            );
            return;
        }
        assert_eq!(crc_32c_update(u32::MAX, b"123456789"), Some(!0xe306_9283));
        for len in 0..=bytes.len() {
            let (front, back) = bytes[..len].split_at(len / 3);
            let state = crc_32c_update(u32::MAX, front).and_then(|state| crc_32c_update(state, back));
            assert_eq!(state, Some(slowly(&bytes[..len])), "{len}");
        }
    }
}

//! Big-endian integer access for all parsers and writers of this crate.
//!
//! `try_` functions check the position and return `None` beyond the end. The others index positions that a constructor has
//! checked: they panic on a programming error, never on input.

/// Returns `bit` if `on`, and otherwise 0.
#[inline]
pub(crate) const fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// Reads two bytes at `at`, or returns `None` if there are too few.
#[inline]
pub(crate) fn try_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let [a, b] = *bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes([a, b]))
}

/// Reads four bytes at `at`, or returns `None` if there are too few.
#[inline]
pub(crate) fn try_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk::<4>()
        .map(|word| u32::from_be_bytes(*word))
}

/// Reads eight bytes at `at`, or returns `None` if there are too few.
#[inline]
pub(crate) fn try_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk::<8>()
        .map(|word| u64::from_be_bytes(*word))
}

/// Reads two bytes at `at`, which the caller has checked.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads three bytes at `at`, which the caller has checked.
#[inline]
pub(crate) fn u24_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// Reads four bytes at `at`, which the caller has checked.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads `N` bytes at `at`, which the caller has checked.
#[inline]
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline]
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes the low three bytes of `value`.
#[inline]
pub(crate) fn put_u24(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
}

#[inline]
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

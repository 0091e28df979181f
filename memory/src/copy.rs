//! Copies between Rust's memory and a mapping that other processes or devices change: volatile accesses of at most eight
//! bytes, in ascending order.

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<Word>();

/// Eight bytes at any address (packed, so not aligned).
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub(crate) struct Word(pub(crate) u64);

/// Stores `bytes` word by word, then the remaining bytes one by one.
///
/// # Safety
/// `target..target + bytes.len()` is inside a writable mapping.
#[inline(always)]
pub(crate) unsafe fn store(target: *mut u8, bytes: &[u8]) {
    // Common slot sizes at aligned addresses compile to a few instructions instead of a call.
    if target.addr().is_multiple_of(WORD) {
        // SAFETY: the words of the target, which is aligned.
        unsafe {
            match bytes.len() {
                8 => return store_exactly::<8, 1>(target, bytes),
                16 => return store_exactly::<16, 2>(target, bytes),
                24 => return store_exactly::<24, 3>(target, bytes),
                32 => return store_exactly::<32, 4>(target, bytes),
                // A batch of 16 entries of 4 bytes with its trailer.
                80 => return store_exactly::<80, 10>(target, bytes),
                _ => {}
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { store_any(target, bytes) };
}

/// # Safety
/// As of [`store`].
#[inline(never)]
unsafe fn store_any(target: *mut u8, bytes: &[u8]) {
    let (mut words, tail) = bytes.as_chunks::<WORD>();
    let mut cursor = target;
    // Compilers copy an unaligned word through the stack; an aligned word takes one instruction.
    if target.addr().is_multiple_of(WORD) {
        while let Some((group, others)) = words.split_first_chunk::<4>() {
            // SAFETY: the next four words of the target, which is aligned.
            unsafe { store_words(cursor, group) };
            cursor = cursor.wrapping_add(4 * WORD);
            words = others;
        }
        while let Some((word, others)) = words.split_first_chunk::<1>() {
            // SAFETY: the next word of the target, which is aligned.
            unsafe { store_words(cursor, word) };
            cursor = cursor.wrapping_add(WORD);
            words = others;
        }
    } else {
        for word in words {
            // SAFETY: one of the words of the target; `Word` may lie at any address.
            unsafe {
                cursor
                    .cast::<Word>()
                    .write_volatile(Word(u64::from_ne_bytes(*word)))
            };
            cursor = cursor.wrapping_add(WORD);
        }
    }
    for (index, byte) in tail.iter().enumerate() {
        // SAFETY: fewer than eight bytes behind the last word, all of them of the target.
        unsafe { cursor.wrapping_add(index).write_volatile(*byte) };
    }
}

/// Stores exactly `LEN` bytes, which are `WORDS` words.
///
/// # Safety
/// As of [`store`], and `target` is a multiple of eight.
#[inline(always)]
unsafe fn store_exactly<const LEN: usize, const WORDS: usize>(target: *mut u8, bytes: &[u8]) {
    if let Some(words) = bytes
        .first_chunk::<LEN>()
        .and_then(|bytes| bytes.as_chunks().0.first_chunk::<WORDS>())
    {
        // SAFETY: the caller's promise.
        unsafe { store_words(target, words) };
    }
}

/// Stores words one by one.
///
/// # Safety
/// As of [`store`], and `target` is a multiple of eight.
#[inline(always)]
unsafe fn store_words<const N: usize>(target: *mut u8, words: &[[u8; WORD]; N]) {
    for (index, word) in words.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            target
                .cast::<u64>()
                .wrapping_add(index)
                .write_volatile(u64::from_ne_bytes(*word))
        };
    }
}

/// Loads words into `out`, then the remaining bytes one by one.
///
/// # Safety
/// `source..source + out.len()` is inside a mapping.
#[inline(always)]
pub(crate) unsafe fn load(source: *const u8, out: &mut [u8]) {
    let (words, tail) = out.as_chunks_mut::<WORD>();
    let mut cursor = source;
    for word in words {
        // SAFETY: one of the words of the source; `Word` may lie at any address.
        *word = unsafe { cursor.cast::<Word>().read_volatile() }.0.to_ne_bytes();
        cursor = cursor.wrapping_add(WORD);
    }
    for (index, byte) in tail.iter_mut().enumerate() {
        // SAFETY: fewer than eight bytes behind the last word, all of them of the source.
        *byte = unsafe { cursor.wrapping_add(index).read_volatile() };
    }
}

/// Compares words, then the remaining bytes one by one.
///
/// # Safety
/// `source..source + bytes.len()` is inside a mapping.
#[inline(always)]
pub(crate) unsafe fn equal(source: *const u8, bytes: &[u8]) -> bool {
    let (words, tail) = bytes.as_chunks::<WORD>();
    let mut cursor = source;
    let mut different = 0;
    for word in words {
        // SAFETY: one of the words of the source; `Word` may lie at any address.
        different |= unsafe { cursor.cast::<Word>().read_volatile() }.0 ^ u64::from_ne_bytes(*word);
        cursor = cursor.wrapping_add(WORD);
    }
    for (index, byte) in tail.iter().enumerate() {
        // SAFETY: fewer than eight bytes behind the last word, all of them of the source.
        different |= u64::from(unsafe { cursor.wrapping_add(index).read_volatile() } ^ byte);
    }
    different == 0
}

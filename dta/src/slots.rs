//! Reads a slot with a checksum while RDMA may be writing it (a seqlock without a counter). The Key-Write, Postcarding and
//! snapshot readers use it.
//!
//! ```text
//! │ checksum (4 bytes) │ data …            │
//! └─ head: first 8 bytes ─┘└─ rest ────────┘
//! ```
//!
//! Software writers zero the head, write the rest, and then write the head (`Region::write_head_last`). NICs write in
//! ascending order, usually a cache line at a time. A read is valid if the head was unchanged before and after the rest was
//! read **twice** with equal results.

use std::sync::atomic::{Ordering, fence};

use memory::Region;

/// Maximum attempts to read a slot that is being written.
const MAX_ATTEMPTS: usize = 8;
/// Length of a slot's head, bytes: the checksum and the first bytes of its data.
const HEAD_LEN: usize = 8;
const CHECKSUM_LEN: usize = 4;

/// Contents of a slot from the point of view of one checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Match,
    Empty,
    Other,
    Torn,
}

/// Reads the slot at offset `offset` and copies its data to `out`, whose length is the store's data length, if the slot has
/// this checksum. `out` is unspecified unless the result is [`SlotState::Match`].
#[inline(always)]
pub(crate) fn read_slot(region: &Region, offset: u64, checksum: u32, out: &mut [u8]) -> SlotState {
    for _ in 0..MAX_ATTEMPTS {
        let Ok(head) = region.load_u64(offset) else {
            return SlotState::Torn;
        };
        let bytes = head.to_ne_bytes();
        if !has_checksum(head, checksum) && head != 0 {
            return SlotState::Other;
        }
        if head == 0 {
            match read_zero_head(region, offset, checksum, out) {
                Some(state) => return state,
                None => continue,
            }
        }
        let Some((front, rest)) = out.split_at_mut_checked(HEAD_LEN - CHECKSUM_LEN) else {
            let len = out.len();
            out.copy_from_slice(&bytes[CHECKSUM_LEN..CHECKSUM_LEN + len]);
            return SlotState::Match;
        };
        front.copy_from_slice(&bytes[CHECKSUM_LEN..]);
        if region.read(offset + HEAD_LEN as u64, rest).is_err() {
            return SlotState::Torn;
        }
        // Pairs with the release fence after the writer zeroes the head: if any new byte was read above, the load below
        // returns the zero or a later head.
        fence(Ordering::Acquire);
        if region.load_u64(offset) == Ok(head) && region.is(offset + HEAD_LEN as u64, rest) {
            return SlotState::Match;
        }
    }
    SlotState::Torn
}

/// Classifies a slot that begins with zeros: empty, of a key with checksum 0, or being written. Returns `None` to read
/// again.
#[cold]
fn read_zero_head(region: &Region, offset: u64, checksum: u32, out: &mut [u8]) -> Option<SlotState> {
    let Some((front, rest)) = out.split_at_mut_checked(HEAD_LEN - CHECKSUM_LEN) else {
        return Some(SlotState::Empty);
    };
    if region.read(offset + HEAD_LEN as u64, rest).is_err() {
        return Some(SlotState::Torn);
    }
    fence(Ordering::Acquire);
    let is_unchanged = region.load_u64(offset) == Ok(0) && region.is(offset + HEAD_LEN as u64, rest);
    let is_zero = rest.iter().all(|byte| *byte == 0);
    match (is_unchanged, is_zero) {
        (true, true) => Some(SlotState::Empty),
        // Checksum 0 with data that begins with zeros looks like a write in progress. After a second equal read it counts
        // as a match, but only for a key with that checksum.
        (true, false) if checksum == 0 => {
            front.fill(0);
            Some(SlotState::Match)
        }
        _ => {
            std::hint::spin_loop();
            None
        }
    }
}

/// Returns whether the slot at offset `offset` holds `data`, or `None` if it does not have this checksum.
#[inline]
pub(crate) fn compare(region: &Region, offset: u64, checksum: u32, data: &[u8]) -> Option<bool> {
    for _ in 0..MAX_ATTEMPTS {
        let head = region.load_u64(offset).ok()?;
        let bytes = head.to_ne_bytes();
        if !has_checksum(head, checksum) {
            return None;
        }
        let (front, rest) = data.split_at(data.len().min(HEAD_LEN - CHECKSUM_LEN));
        let is_equal = bytes[CHECKSUM_LEN..].starts_with(front) && region.is(offset + HEAD_LEN as u64, rest);
        fence(Ordering::Acquire);
        if region.load_u64(offset) == Ok(head) {
            return Some(is_equal);
        }
    }
    None
}

/// Returns whether the first word of a slot carries this checksum.
#[inline(always)]
pub(crate) fn has_checksum(head: u64, checksum: u32) -> bool {
    u64::from_le(head) as u32 == checksum
}

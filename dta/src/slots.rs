//! Reading a slot that may be written at the same time: key-write and postcards.
//!
//! Writers in software zero a slot's first 8 bytes, write the rest, and then the first 8 (`Region::write_head_last`);
//! NICs write in ascending order, usually a whole cache line at once. A slot is valid when its first 8 bytes were the same
//! before and after all of it was read **twice** with the same result.

use std::sync::atomic::{Ordering, fence};

use memory::Region;

/// Maximum number of reads of a slot that is being written.
const TRIES: usize = 8;
/// Length of a slot's first word, bytes: the checksum and the first bytes of its data.
const HEAD: usize = 8;
const CHECKSUM: usize = 4;

/// The content of a slot with respect to one checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Match,
    Empty,
    Other,
    Torn,
}

/// Reads the data of the slot at `at` into `out`, whose length is the store's, if it has this checksum. `out` holds anything
/// unless the answer is [`SlotState::Match`].
#[inline(always)]
pub(crate) fn read_slot(region: &Region, at: u64, checksum: u32, out: &mut [u8]) -> SlotState {
    for _ in 0..TRIES {
        let Ok(head) = region.load_u64(at) else {
            return SlotState::Torn;
        };
        let bytes = head.to_ne_bytes();
        if !begins_with(head, checksum) && head != 0 {
            return SlotState::Other;
        }
        if head == 0 {
            match read_zero_head(region, at, checksum, out) {
                Some(state) => return state,
                None => continue,
            }
        }
        let Some((front, rest)) = out.split_at_mut_checked(HEAD - CHECKSUM) else {
            let len = out.len();
            out.copy_from_slice(&bytes[CHECKSUM..CHECKSUM + len]);
            return SlotState::Match;
        };
        front.copy_from_slice(&bytes[CHECKSUM..]);
        if region.read(at + HEAD as u64, rest).is_err() {
            return SlotState::Torn;
        }
        // Pairs with the release fence after the writer's zero: a reader that saw any of the new bytes now finds the zero or
        // a later value.
        fence(Ordering::Acquire);
        if region.load_u64(at) == Ok(head) && region.is(at + HEAD as u64, rest) {
            return SlotState::Match;
        }
    }
    SlotState::Torn
}

/// Decides about a slot that begins with zeros: it is empty, of a key whose checksum is 0, or being written. Returns `None` to
/// read again.
#[cold]
fn read_zero_head(region: &Region, at: u64, checksum: u32, out: &mut [u8]) -> Option<SlotState> {
    let Some((front, rest)) = out.split_at_mut_checked(HEAD - CHECKSUM) else {
        return Some(SlotState::Empty);
    };
    if region.read(at + HEAD as u64, rest).is_err() {
        return Some(SlotState::Torn);
    }
    fence(Ordering::Acquire);
    let still = region.load_u64(at) == Ok(0) && region.is(at + HEAD as u64, rest);
    let nothing = rest.iter().all(|byte| *byte == 0);
    match (still, nothing) {
        (true, true) => Some(SlotState::Empty),
        // A key with checksum 0 and data that begin with zeros cannot be distinguished from a write in progress. After a
        // second read it counts as the former, for a key with that checksum only.
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

/// Returns whether the slot at `at` has these data, or `None` if it does not have this checksum.
#[inline]
pub(crate) fn compare(region: &Region, at: u64, checksum: u32, data: &[u8]) -> Option<bool> {
    for _ in 0..TRIES {
        let head = region.load_u64(at).ok()?;
        let bytes = head.to_ne_bytes();
        if !begins_with(head, checksum) {
            return None;
        }
        let (front, rest) = data.split_at(data.len().min(HEAD - CHECKSUM));
        let alike = bytes[CHECKSUM..].starts_with(front) && region.is(at + HEAD as u64, rest);
        fence(Ordering::Acquire);
        if region.load_u64(at) == Ok(head) {
            return Some(alike);
        }
    }
    None
}

/// Returns whether the first word of a slot has this checksum.
#[inline(always)]
pub(crate) fn begins_with(head: u64, checksum: u32) -> bool {
    u64::from_le(head) as u32 == checksum
}

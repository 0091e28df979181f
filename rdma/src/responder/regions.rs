//! Registered memory, found by its R_Key.

use std::sync::Arc;

use memory::Region;

use super::config::{AccessFlags, Order, RegisterError, Registered, Registration};
use super::stats::Reason;
use crate::seed::mix;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: Arc<Region>,
    rkey: u32,
    /// Virtual address of the first byte.
    address: u64,
    start: u64,
    len: u64,
    access: AccessFlags,
    pub(super) head_last: bool,
    pub(super) region: u16,
}

/// Access of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Write,
    Atomic,
}

impl Entry {
    /// Returns the offset in the region's body of offset `at` of the memory.
    pub(super) fn offset(&self, at: u64) -> u64 {
        at - self.start
    }

    /// Returns whether this is its R_Key.
    #[inline(always)]
    pub(super) fn has(&self, rkey: u32) -> bool {
        self.rkey == rkey
    }

    /// Returns the offset in the memory of `len` bytes at `address`, if all of them are inside the region.
    #[inline(always)]
    pub(super) fn locate(&self, address: u64, len: u32) -> Option<u64> {
        // An address below the region's wraps to a number that is larger than any length.
        let offset = address.wrapping_sub(self.address);
        let end = offset.checked_add(u64::from(len))?;
        // No overflow: both are inside the memory.
        (end <= self.len).then_some(self.start.wrapping_add(offset))
    }

    /// Returns whether the first eight bytes of a message of several packets at offset `start` of the memory are written last.
    pub(super) fn writes_head_last(&self, start: u64) -> bool {
        self.head_last && start.is_multiple_of(8)
    }

    /// Stores the payload of a packet, `done` bytes after the start of its message of several packets at offset `start`. `head`: the
    /// message's first eight bytes, saved from its first packet to its last. The range is checked before.
    ///
    /// A reader of slots sees zeros instead of the checksum from the first packet to the last, and forever if the last is lost: never a
    /// checksum over data of two messages.
    #[cold]
    pub(super) fn store_part(&self, start: u64, done: u32, payload: &[u8], ends: bool, head: &mut u64) {
        let at = start + u64::from(done);
        if !self.writes_head_last(start) {
            return self.store(at, payload);
        }
        // Cannot fail, as in `store`. A first packet has the length of the path MTU, which is more than eight bytes.
        let _ = match payload.split_first_chunk() {
            Some((first, rest)) if done == 0 => {
                *head = u64::from_ne_bytes(*first);
                self.memory.write_headless(start, rest)
            }
            _ => self.memory.write(at, payload),
        };
        if ends {
            let _ = self.memory.store_u64(start, *head);
        }
    }

    /// Stores a packet's payload at offset `at` of the memory. The range is checked before.
    #[inline(always)]
    pub(super) fn store(&self, at: u64, payload: &[u8]) {
        // Cannot fail: the range was checked against the registration, and the registration against the memory.
        let _ = if self.head_last && at.is_multiple_of(8) {
            self.memory.write_head_last(at, payload)
        } else {
            self.memory.write(at, payload)
        };
    }
}

/// All registered regions by index.
#[derive(Debug)]
pub(super) struct Regions {
    entries: Vec<Option<Entry>>,
    seed: u64,
}

/// Size of the address space per region, bytes.
const SPACE: u64 = 1 << 40;

impl Regions {
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self {
            entries: vec![None; most],
            seed,
        }
    }

    pub(super) fn register(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        let index = self
            .entries
            .iter()
            .position(Option::is_none)
            .ok_or(RegisterError::Full)?;
        let end = what.start.checked_add(what.len).ok_or(RegisterError::Range)?;
        if what.len == 0 || what.len > SPACE || end > what.memory.len() || !what.memory.is_writable() {
            return Err(RegisterError::Range);
        }
        if what.access.atomic && !what.start.is_multiple_of(8) {
            return Err(RegisterError::Alignment);
        }
        self.seed = mix(self.seed);
        // The index is the R_Key's lowest byte, the rest is random: an old R_Key does not match a new region.
        let rkey = (self.seed as u32) << 8 | index as u32;
        let address = (index as u64 + 1) * SPACE;
        self.entries[index] = Some(Entry {
            memory: Arc::clone(&what.memory),
            rkey,
            address,
            start: what.start,
            len: what.len,
            access: what.access,
            head_last: what.order == Order::HeadLast,
            region: what.region,
        });
        Ok(Registered {
            address,
            len: what.len,
            rkey,
        })
    }

    pub(super) fn remove(&mut self, rkey: u32) -> bool {
        match self.entries.get_mut((rkey & 0xff) as usize) {
            Some(entry) if entry.as_ref().is_some_and(|entry| entry.rkey == rkey) => {
                *entry = None;
                true
            }
            _ => false,
        }
    }

    /// Returns the entry at an index that [`open`](Self::open) or [`find`](Self::find) returned.
    #[inline]
    pub(super) fn at(&self, index: u8) -> Option<&Entry> {
        self.entries.get(usize::from(index)).and_then(Option::as_ref)
    }

    /// Returns the region whose part of the address space contains this address. Unchecked, for prefetching only.
    #[inline]
    pub(super) fn containing(&self, address: u64) -> Option<&Entry> {
        self.at(u8::try_from((address / SPACE).checked_sub(1)?).ok()?)
    }

    /// Returns the region with this R_Key, if it permits the access.
    #[inline]
    pub(super) fn open(&self, rkey: u32, access: Access) -> Result<(u8, &Entry), Reason> {
        let index = (rkey & 0xff) as u8;
        let Some(entry) = self.at(index).filter(|entry| entry.has(rkey)) else {
            return Err(Reason::BadRkey);
        };
        let allowed = match access {
            Access::Write => entry.access.write,
            Access::Atomic => entry.access.atomic,
        };
        if allowed {
            Ok((index, entry))
        } else {
            Err(Reason::AccessDenied)
        }
    }

    /// Returns the region, and the offset in its memory of `len` bytes at `address`.
    #[inline]
    pub(super) fn find(
        &self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(u8, u64), Reason> {
        let (index, entry) = self.open(rkey, access)?;
        entry
            .locate(address, len)
            .map(|at| (index, at))
            .ok_or(Reason::OutOfRange)
    }
}

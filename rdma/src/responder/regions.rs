//! The RoCEv2 responder's table of registered memory regions, indexed by the low byte of the R_Key.
//!
//! Region `i` occupies virtual addresses from `(i + 1)` TiB on. These addresses exist only on the wire.

use std::sync::Arc;

use memory::Region;

use super::config::{AccessFlags, Order, RegisterError, Registered, Registration};
use super::stats::Reason;
use crate::seed::mix;

/// Virtual address space per region, bytes (1 TiB).
const ADDRESS_SPACE_PER_REGION: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: Arc<Region>,
    rkey: u32,
    /// Virtual address of the first byte, as requests name it.
    address: u64,
    start: u64,
    len: u64,
    access: AccessFlags,
    pub(super) head_last: bool,
    pub(super) region: u16,
}

/// Kind of access that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Write,
    Atomic,
}

impl Entry {
    /// Converts an offset in the memory to an offset in the region.
    pub(super) fn region_offset(&self, memory_offset: u64) -> u64 {
        memory_offset - self.start
    }

    /// Returns whether the region has this R_Key.
    #[inline(always)]
    pub(super) fn has_rkey(&self, rkey: u32) -> bool {
        self.rkey == rkey
    }

    /// Returns the offset in the memory of `len` bytes at virtual address `address`, or `None` if any byte is outside the
    /// region.
    #[inline(always)]
    pub(super) fn locate(&self, address: u64, len: u32) -> Option<u64> {
        // An address below the region wraps around to an offset larger than any length.
        let offset = address.wrapping_sub(self.address);
        let end = offset.checked_add(u64::from(len))?;
        // Cannot overflow: both values are inside the memory.
        (end <= self.len).then_some(self.start.wrapping_add(offset))
    }

    /// Returns whether a multi-packet message at memory offset `start` writes its first eight bytes last.
    pub(super) fn writes_head_last(&self, start: u64) -> bool {
        self.head_last && start.is_multiple_of(8)
    }

    /// Stores one packet of a multi-packet message that starts at memory offset `start`, `received` bytes into the message. The
    /// caller has checked the range. `head` carries the message's first eight bytes from the first packet to the last.
    ///
    /// Until the last packet a reader sees zeros in place of the checksum, and forever if that packet is lost. It never
    /// sees a checksum over data of two messages.
    #[cold]
    pub(super) fn store_part(
        &self,
        start: u64,
        received: u32,
        payload: &[u8],
        is_last: bool,
        head: &mut u64,
    ) {
        let offset = start + u64::from(received);
        if !self.writes_head_last(start) {
            return self.store(offset, payload);
        }
        // Cannot fail, as in `store`. A first packet has the length of the path MTU, so it has more than eight bytes.
        let _ = match payload.split_first_chunk() {
            Some((first, rest)) if received == 0 => {
                *head = u64::from_ne_bytes(*first);
                self.memory.write_headless(start, rest)
            }
            _ => self.memory.write(offset, payload),
        };
        if is_last {
            let _ = self.memory.store_u64(start, *head);
        }
    }

    /// Stores a packet's payload at memory offset `offset`. The caller has checked the range.
    #[inline(always)]
    pub(super) fn store(&self, offset: u64, payload: &[u8]) {
        // Cannot fail: the registration lies inside the memory, and the range inside the registration.
        let _ = if self.head_last && offset.is_multiple_of(8) {
            self.memory.write_head_last(offset, payload)
        } else {
            self.memory.write(offset, payload)
        };
    }
}

/// All registered regions by index.
#[derive(Debug)]
pub(super) struct Regions {
    entries: Vec<Option<Entry>>,
    seed: u64,
}

impl Regions {
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        Self {
            entries: vec![None; capacity],
            seed,
        }
    }

    pub(super) fn register(&mut self, registration: &Registration) -> Result<Registered, RegisterError> {
        let index = self
            .entries
            .iter()
            .position(Option::is_none)
            .ok_or(RegisterError::Full)?;
        let end = registration
            .start
            .checked_add(registration.len)
            .ok_or(RegisterError::Range)?;
        if registration.len == 0
            || registration.len > ADDRESS_SPACE_PER_REGION
            || end > registration.memory.len()
            || !registration.memory.is_writable()
        {
            return Err(RegisterError::Range);
        }
        if registration.access.atomic && !registration.start.is_multiple_of(8) {
            return Err(RegisterError::Alignment);
        }
        self.seed = mix(self.seed);
        // The index is the lowest byte of the R_Key, and the rest is random, so an old R_Key does not match a new region.
        let rkey = (self.seed as u32) << 8 | index as u32;
        let address = (index as u64 + 1) * ADDRESS_SPACE_PER_REGION;
        self.entries[index] = Some(Entry {
            memory: Arc::clone(&registration.memory),
            rkey,
            address,
            start: registration.start,
            len: registration.len,
            access: registration.access,
            head_last: registration.order == Order::HeadLast,
            region: registration.region,
        });
        Ok(Registered {
            address,
            len: registration.len,
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

    /// Returns the entry at an index that [`find_by_rkey`](Self::find_by_rkey) or [`find`](Self::find) returned.
    #[inline]
    pub(super) fn at(&self, index: u8) -> Option<&Entry> {
        self.entries.get(usize::from(index)).and_then(Option::as_ref)
    }

    /// Returns the region that would contain this virtual address. For prefetching only: checks neither R_Key nor access.
    #[inline]
    pub(super) fn containing(&self, address: u64) -> Option<&Entry> {
        self.at(u8::try_from((address / ADDRESS_SPACE_PER_REGION).checked_sub(1)?).ok()?)
    }

    /// Returns the index and entry of the region with this R_Key, if it permits the access.
    #[inline]
    pub(super) fn find_by_rkey(&self, rkey: u32, access: Access) -> Result<(u8, &Entry), Reason> {
        let index = (rkey & 0xff) as u8;
        let Some(entry) = self.at(index).filter(|entry| entry.has_rkey(rkey)) else {
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

    /// Returns the region's index, and the memory offset of `len` bytes at virtual address `address`.
    #[inline]
    pub(super) fn find(
        &self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(u8, u64), Reason> {
        let (index, entry) = self.find_by_rkey(rkey, access)?;
        entry
            .locate(address, len)
            .map(|offset| (index, offset))
            .ok_or(Reason::OutOfRange)
    }
}

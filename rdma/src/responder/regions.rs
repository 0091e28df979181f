//! Registered memory, found by its key.

use std::sync::Arc;

use memory::Region;

use super::config::{Order, RegisterError, Registered, Registration, Rights};
use super::stats::Reason;

/// Registered memory.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) memory: Arc<Region>,
    rkey: u32,
    /// The address of the first byte, as requests name it.
    address: u64,
    /// Where that is in the memory.
    start: u64,
    len: u64,
    rights: Rights,
    pub(super) head_last: bool,
    pub(super) region: u16,
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Write,
    Atomic,
}

impl Entry {
    /// Where in the region's body a byte of the memory lies.
    pub(super) fn offset(&self, at: u64) -> u64 {
        at - self.start
    }

    /// Whether this is its key.
    #[inline(always)]
    pub(super) fn has(&self, rkey: u32) -> bool {
        self.rkey == rkey
    }

    /// Where in the memory `len` bytes at `address` lie, if they all do.
    #[inline(always)]
    pub(super) fn place(&self, address: u64, len: u32) -> Option<u64> {
        // An address below the region's wraps to a number that is larger than any length.
        let offset = address.wrapping_sub(self.address);
        let end = offset.checked_add(u64::from(len))?;
        // Both are in the memory, whose length was not too much for their sum.
        (end <= self.len).then_some(self.start.wrapping_add(offset))
    }

    /// Whether the first eight bytes of a message of several packets that begins at `start` of the memory are written last.
    pub(super) fn holds_back(&self, start: u64) -> bool {
        self.head_last && start.is_multiple_of(8)
    }

    /// Stores the payload of one of a message's several packets, which comes `done` bytes after the first byte, at `start`. `head`:
    /// the message's first eight bytes, kept from its first packet to its last. Checked before.
    ///
    /// A reader of slots sees zeros in front from the first packet to the last, and for ever when the last does not come: never a checksum
    /// over data of two messages.
    #[cold]
    pub(super) fn store_part(&self, start: u64, done: u32, payload: &[u8], ends: bool, head: &mut u64) {
        let at = start + u64::from(done);
        if !self.holds_back(start) {
            return self.store(at, payload);
        }
        // The answers are known, as in `store`. A first packet is as long as the path MTU, which is more than eight bytes.
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

    /// Stores a packet's payload at `at` of the memory. Checked before.
    #[inline(always)]
    pub(super) fn store(&self, at: u64, payload: &[u8]) {
        // The answer is known: the range was checked against the registration, and that against the memory.
        let _ = if self.head_last && at.is_multiple_of(8) {
            self.memory.write_head_last(at, payload)
        } else {
            self.memory.write(at, payload)
        };
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Regions {
    entries: Vec<Option<Entry>>,
    seed: u64,
}

/// Bytes of address space that each region has for itself.
const SPACE: u64 = 1 << 40;

impl Regions {
    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self { entries: vec![None; most], seed }
    }

    pub(super) fn register(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        let index = self.entries.iter().position(Option::is_none).ok_or(RegisterError::Full)?;
        let end = what.start.checked_add(what.len).ok_or(RegisterError::Range)?;
        if what.len == 0 || what.len > SPACE || end > what.memory.len() || !what.memory.is_writable() {
            return Err(RegisterError::Range);
        }
        if what.rights.atomic && !what.start.is_multiple_of(8) {
            return Err(RegisterError::Alignment);
        }
        self.seed = super::mix(self.seed);
        // The index is the key's lowest byte, the rest is nobody's guess: an old key does not open a new region.
        let rkey = (self.seed as u32) << 8 | index as u32;
        let address = (index as u64 + 1) * SPACE;
        self.entries[index] = Some(Entry {
            memory: Arc::clone(&what.memory),
            rkey,
            address,
            start: what.start,
            len: what.len,
            rights: what.rights,
            head_last: what.order == Order::HeadLast,
            region: what.region,
        });
        Ok(Registered { address, len: what.len, rkey })
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

    /// The entry that [`open`](Self::open) or [`find`](Self::find) told of.
    #[inline]
    pub(super) fn at(&self, index: u8) -> Option<&Entry> {
        self.entries.get(usize::from(index)).and_then(Option::as_ref)
    }

    /// The region in whose part of the address space this lies, perhaps.
    #[inline]
    pub(super) fn around(&self, address: u64) -> Option<&Entry> {
        self.at(u8::try_from((address / SPACE).checked_sub(1)?).ok()?)
    }

    /// The region with this key, if it may be done there.
    #[inline]
    pub(super) fn open(&self, rkey: u32, access: Access) -> Result<(u8, &Entry), Reason> {
        let index = (rkey & 0xff) as u8;
        let Some(entry) = self.at(index).filter(|entry| entry.has(rkey)) else { return Err(Reason::BadRkey) };
        let allowed = match access {
            Access::Write => entry.rights.write,
            Access::Atomic => entry.rights.atomic,
        };
        if allowed { Ok((index, entry)) } else { Err(Reason::NoRight) }
    }

    /// The region and where in its memory `len` bytes at `address` lie.
    #[inline]
    pub(super) fn find(
        &self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(u8, u64), Reason> {
        let (index, entry) = self.open(rkey, access)?;
        entry.place(address, len).map(|at| (index, at)).ok_or(Reason::OutOfRange)
    }
}

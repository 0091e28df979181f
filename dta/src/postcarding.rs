//! The reader of DTA Postcarding stores: returns a key's path, one 32-bit value per hop, from a single slot.
//!
//! In hopwise's layout, a slot begins with the key's checksum. The layout of the published DTA code ([`Family::Artifact`])
//! has no checksum: its five words are each XORed with a CRC of the key, so another key's path decodes to random numbers.
//! [`PostcardingReader::get_known`] recognizes them if the caller knows which values nodes can report.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memory::Region;
use wire::dta::artifact;
use wire::dta::hash::{Family, MAX_KEY, slot};
use wire::dta::layout::{NO_HOP, postcard_stride};

use crate::header::BODY;
use crate::query::QueryError;
use crate::slots::{self, SlotState};

/// Maximum data of a slot, bytes: 255 hops of 4 bytes.
const MAX_DATA: usize = 255 * 4;
/// Maximum attempts to read a slot that is being written.
const TRIES: usize = 8;

/// The result of a query for a key's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// The slot has the key's checksum; see [`PostcardingReader::get`] for the hops.
    Found {
        /// Number of hops that reported.
        seen: u8,
        /// Missing hops before the last one that reported. Hops missing after it cannot be detected.
        missing: u8,
    },
    /// The hops as in [`Path::Found`], if the slot belongs to this key: the artifact's layout does not identify it.
    Unproven {
        /// Number of hops that reported.
        seen: u8,
        /// Missing hops before the last one that reported.
        missing: u8,
    },
    /// The slot is free or belongs to another key.
    Empty,
    /// The slot was being written at each attempt. Query again.
    Torn,
}

/// Reads a Postcarding store.
#[derive(Clone, Debug)]
pub struct PostcardingReader {
    region: Arc<Region>,
    slots: u64,
    hops: u8,
    family: Family,
}

impl PostcardingReader {
    pub(crate) fn new(region: Arc<Region>, slots: u64, hops: u8, family: Family) -> Self {
        Self {
            region,
            slots,
            hops,
            family,
        }
    }

    /// Returns the maximum number of hops of a path.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// Returns the number of slots of the store.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Looks up the path of `key`: `out[i]` is the value of hop `i + 1`, or `None` if that hop did not report. `out` needs
    /// [`hops`](Self::hops) elements. They are all `None` unless the answer is [`Path::Found`] or [`Path::Unproven`].
    ///
    /// # Errors
    /// [`QueryError`] for an invalid key length or a short `out`.
    pub fn get(&self, key: &[u8], out: &mut [Option<u32>]) -> Result<Path, QueryError> {
        self.find(key, out, None)
    }

    /// Looks up a path, given the values that nodes can report. In the artifact's layout, a slot is [`Path::Found`] if all
    /// its values are known and [`Path::Empty`] otherwise. With V known values, another key's path of h hops passes with
    /// probability (V / 2^32)^h. Slots with a checksum do not need this check.
    ///
    /// # Errors
    /// [`QueryError`] for an invalid key length or a short `out`.
    pub fn get_known(
        &self,
        key: &[u8],
        out: &mut [Option<u32>],
        known: impl Fn(u32) -> bool,
    ) -> Result<Path, QueryError> {
        self.find(key, out, Some(&known))
    }

    fn find(
        &self,
        key: &[u8],
        out: &mut [Option<u32>],
        known: Option<&dyn Fn(u32) -> bool>,
    ) -> Result<Path, QueryError> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(QueryError::KeyLength);
        }
        let out = out
            .get_mut(..usize::from(self.hops))
            .ok_or(QueryError::OutLength)?;
        out.fill(None);
        if self.family == Family::Artifact {
            return Ok(self.masked(key, out, known));
        }
        let hashes = self.family.hashes(key);
        let at = BODY + slot(hashes.slots[0], self.slots) * postcard_stride(self.hops);
        let mut data = [0; MAX_DATA];
        let data = &mut data[..4 * usize::from(self.hops)];
        match slots::read_slot(&self.region, at, hashes.checksum, data) {
            SlotState::Match => {}
            SlotState::Empty | SlotState::Other => return Ok(Path::Empty),
            SlotState::Torn => return Ok(Path::Torn),
        }
        for (hop, word) in out.iter_mut().zip(data.as_chunks::<4>().0) {
            *hop = Some(u32::from_be_bytes(*word)).filter(|value| *value != NO_HOP);
        }
        let (seen, missing) = counted(out);
        Ok(Path::Found { seen, missing })
    }

    /// Reads a slot of the artifact's layout, which masks its words with the key.
    fn masked(&self, key: &[u8], out: &mut [Option<u32>], known: Option<&dyn Fn(u32) -> bool>) -> Path {
        let at = BODY + artifact::path_slot(key, self.slots) * postcard_stride(self.hops);
        let mut slot = [0; artifact::PATH_LEN];
        let len = slot.len().min(artifact::WORD * usize::from(self.hops));
        if !read_stable(&self.region, at, &mut slot[..len]) {
            return Path::Torn;
        }
        if slot.iter().all(|byte| *byte == 0) {
            return Path::Empty;
        }
        for (hop, value) in out.iter_mut().zip(artifact::path_of(&slot, key)) {
            *hop = value;
        }
        let (seen, missing) = counted(out);
        match known {
            None => Path::Unproven { seen, missing },
            Some(known) if out.iter().flatten().all(|value| known(*value)) => Path::Found { seen, missing },
            Some(_) => {
                out.fill(None);
                Path::Empty
            }
        }
    }
}

/// Reads bytes that have no checksum: accepts them when two consecutive reads are equal.
fn read_stable(region: &Region, at: u64, out: &mut [u8]) -> bool {
    (0..TRIES).any(|_| {
        let read = region.read(at, out).is_ok();
        // Orders the second read after the first. A writer stores in ascending order.
        fence(Ordering::Acquire);
        read && region.is(at, out)
    })
}

/// Returns the number of hops that reported, and of missing hops before the last of them; each at most 255.
fn counted(hops: &[Option<u32>]) -> (u8, u8) {
    let seen = hops.iter().flatten().count();
    let last = hops.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    (seen as u8, (last - seen) as u8)
}

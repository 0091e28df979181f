//! Postcarding: the path of a key, hop by hop, from one slot.
//!
//! A slot of ours begins with the key's checksum. The artifact's (wire-formats 5.2, [`Family::Artifact`]) has none: five words, each masked
//! with a CRC of the key, so that another key's path looks like random numbers and nothing in the slot distinguishes them. With
//! the values that nodes report, [`PostcardingReader::get_known`] can.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memory::Region;
use wire::dta::artifact;
use wire::dta::hash::{Family, MAX_KEY, slot};
use wire::dta::layout::{NO_HOP, postcard_stride};

use crate::header::BODY;
use crate::query::QueryError;
use crate::slots::{self, SlotState};

/// The result of a query for a key's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// The path has hops, see [`PostcardingReader::get`].
    Found {
        /// Number of hops that reported.
        seen: u8,
        /// Number of missing hops before the last one that reported. Hops missing after it cannot be detected.
        missing: u8,
    },
    /// Hops as of [`Path::Found`], if the slot is this key's: a slot of the artifact's layout does not identify its key.
    Unproven {
        /// Number of hops that reported.
        seen: u8,
        /// Number of missing hops before the last one that reported.
        missing: u8,
    },
    /// The slot is free, or another key's.
    Empty,
    /// The slot was being written at each read. Query again.
    Torn,
}

/// Maximum number of bytes of a slot's data: 255 hops.
const MAX_DATA: usize = 255 * 4;

/// Reads a postcarding store.
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

    /// Returns the number of hops of the longest path.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// Returns the number of slots of the store.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Looks up the path of `key`: `out[i]` is the value of hop i + 1, `None` if it did not report. `out` needs
    /// [`hops`](Self::hops) elements; unless the answer is [`Path::Found`] or [`Path::Unproven`], all of them are `None`.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn get(&self, key: &[u8], out: &mut [Option<u32>]) -> Result<Path, QueryError> {
        self.find(key, out, None)
    }

    /// Looks up a path with knowledge of the values that nodes can report: a slot of the artifact's layout with such values only
    /// is [`Path::Found`], any other [`Path::Empty`]. If there are V such values, a slot with h hops of another key passes with a
    /// probability of (V / 2^32)^h. Slots with a checksum do not need this knowledge.
    ///
    /// # Errors
    /// [`QueryError`].
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

    /// Reads a slot of the artifact's layout.
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

/// Maximum reads of a slot of the artifact's layout that is being written.
const TRIES: usize = 8;

/// Reads bytes without a header that detects torn writes: they are accepted when two reads are equal.
fn read_stable(region: &Region, at: u64, out: &mut [u8]) -> bool {
    (0..TRIES).any(|_| {
        let read = region.read(at, out).is_ok();
        // Orders the second read after the first; a writer stores in ascending order.
        fence(Ordering::Acquire);
        read && region.is(at, out)
    })
}

/// Counts the hops that reported, and earlier hops that did not; at most 255.
fn counted(hops: &[Option<u32>]) -> (u8, u8) {
    let seen = hops.iter().flatten().count();
    let last = hops.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    (seen as u8, (last - seen) as u8)
}

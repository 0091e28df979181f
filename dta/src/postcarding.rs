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

/// What a store knows of a key's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// Hops, see [`PostcardingReader::get`].
    Found {
        /// Number of hops that reported.
        seen: u8,
        /// How many did not arrive although a later one did. Hops missing after the last one cannot be detected.
        missing: u8,
    },
    /// Hops as of [`Path::Found`], if the slot is this key's: it is the artifact's and does not say whose it is.
    Unproven {
        /// Number of hops that reported.
        seen: u8,
        /// How many did not although a later one did.
        missing: u8,
    },
    /// The slot is another key's, or free.
    Empty,
    /// It was being written whenever looked at. Ask again.
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
        Self { region, slots, hops, family }
    }

    /// Hops of the longest path.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// Slots of the store.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The path of `key`: `out[i]` is the value of hop i + 1, `None` if it did not report. `out` has room for [`hops`](Self::hops); it
    /// holds `None` only unless the answer is [`Path::Found`] or [`Path::Unproven`].
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn get(&self, key: &[u8], out: &mut [Option<u32>]) -> Result<Path, QueryError> {
        self.find(key, out, None)
    }

    /// The same with knowledge of the values that a node can report: an artifact's slot in which all are such values is [`Path::Found`], any
    /// other [`Path::Empty`]. Of V such values a slot with h hops of another key passes with a chance of (V / 2^32)^h. Our own slots have
    /// a checksum; there it decides nothing.
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
        let out = out.get_mut(..usize::from(self.hops)).ok_or(QueryError::OutLength)?;
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

    /// The artifact's slot.
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

/// How often an artifact's slot that is being written is looked at again.
const TRIES: usize = 8;

/// Reads bytes without a header that detects torn writes: they are accepted when two reads are equal.
fn read_stable(region: &Region, at: u64, out: &mut [u8]) -> bool {
    (0..TRIES).any(|_| {
        let read = region.read(at, out).is_ok();
        // The second look is behind the first; a writer stores in ascending order.
        fence(Ordering::Acquire);
        read && region.is(at, out)
    })
}

/// Hops that reported, and earlier hops that did not; at most 255.
fn counted(hops: &[Option<u32>]) -> (u8, u8) {
    let seen = hops.iter().flatten().count();
    let last = hops.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    (seen as u8, (last - seen) as u8)
}

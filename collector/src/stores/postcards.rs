//! Postcarding: the path of a key, hop by hop, from one slot.

use std::sync::Arc;

use memory::Region;
use wire::dta::hash::{Family, MAX_KEY, slot};
use wire::dta::layout::{NO_HOP, postcard_stride};

use super::key_write::BadQuery;
use super::slots::{self, Look};
use super::store::BODY;

/// What a store knows of a key's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// Hops, see [`PathReader::get`].
    Found {
        /// How many hops told of themselves.
        seen: u8,
        /// How many did not although a later one did. Whether there are any behind the last nobody knows.
        missing: u8,
    },
    /// The slot is another key's, or nobody's.
    Empty,
    /// It was being written whenever looked at. Ask again.
    Torn,
}

/// Most bytes of a slot's data: 255 hops.
const MAX_DATA: usize = 255 * 4;

/// Reads a postcarding store.
#[derive(Clone, Debug)]
pub struct PathReader {
    region: Arc<Region>,
    slots: u64,
    hops: u8,
    family: Family,
}

impl PathReader {
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

    /// The path of `key`: what hop i + 1 told is `out[i]`, `None` if it did not. `out` has room for [`hops`](Self::hops); it
    /// holds `None` only unless the answer is [`Path::Found`].
    ///
    /// # Errors
    /// [`BadQuery`].
    pub fn get(&self, key: &[u8], out: &mut [Option<u32>]) -> Result<Path, BadQuery> {
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(BadQuery::KeyLength);
        }
        let out = out.get_mut(..usize::from(self.hops)).ok_or(BadQuery::OutLength)?;
        out.fill(None);
        let hashes = self.family.hashes(key);
        let at = BODY + slot(hashes.slots[0], self.slots) * postcard_stride(self.hops);
        let mut data = [0; MAX_DATA];
        let data = &mut data[..4 * usize::from(self.hops)];
        match slots::take(&self.region, at, hashes.checksum, data) {
            Look::Match => {}
            Look::Empty | Look::Other => return Ok(Path::Empty),
            Look::Torn => return Ok(Path::Torn),
        }
        for (hop, word) in out.iter_mut().zip(data.as_chunks::<4>().0) {
            *hop = Some(u32::from_be_bytes(*word)).filter(|value| *value != NO_HOP);
        }
        let seen = out.iter().flatten().count();
        let last = out.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        // At most 255 hops.
        Ok(Path::Found { seen: seen as u8, missing: (last - seen) as u8 })
    }
}

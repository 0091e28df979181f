//! The DTA Postcarding primitive in the translator: collects the postcards of a key's hops in a set-associative cache and
//! writes the whole path in one RDMA operation.
//!
//! A path is written when all its hops are present, its timer expires, or a newer path evicts it. Slot layouts:
//! `docs/reference/wire-formats.md`, section 5.9, and section 5.2 for the published DTA code.

use wire::dta::Opcode;
use wire::dta::artifact;
use wire::dta::hash::{self, Family, MAX_KEY};
use wire::dta::layout::{self, Geometry, NO_HOP};

use super::config::{MAX_HOPS, StoreEntry};
use super::sender::{Fault, Sender, Target};
use super::stats::{Cause, Postcards, Reason};
use memory::age_list::{AgeLink, AgeList, Aged};
use rdma::transport::{Blocked, Transport};

/// Associativity of the cache. If all ways of a set are in use, the oldest path is evicted.
const WAYS: usize = 4;
/// Length of the longest slot, bytes.
const MAX_SLOT: usize = layout::CHECKSUM_LEN + 4 * MAX_HOPS as usize;
const FREE_ENTRY: Path = Path {
    received_hops: 0,
    age: AgeLink::NONE,
    checksum: 0,
    slot: 0,
    key_len: 0,
    path_len: 0,
    reliable: false,
    notify: false,
};

/// An incomplete path in the cache.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Bitmap of received hops, hop 1 in the lowest bit; 0: the cache entry is free.
    received_hops: u64,
    age: AgeLink,
    checksum: u32,
    /// Hash that selects the slot in collector memory.
    slot: u32,
    key_len: u8,
    path_len: u8,
    reliable: bool,
    notify: bool,
}

impl Aged for Path {
    fn age_link(&mut self) -> &mut AgeLink {
        &mut self.age
    }
}

/// A postcard: one hop's value on the path of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Postcard<'a> {
    pub(super) hop: u8,
    pub(super) path_len: u8,
    pub(super) value: u32,
    pub(super) key: &'a [u8],
    pub(super) reliable: bool,
    pub(super) immediate: bool,
}

/// The cache of incomplete paths of one store.
#[derive(Debug)]
pub(super) struct Paths {
    entry: StoreEntry,
    slots: u64,
    hops: u8,
    family: Family,
    paths: Vec<Path>,
    keys: Vec<[u8; MAX_KEY]>,
    values: Vec<u32>,
    pending_by_age: AgeList,
}

impl Paths {
    /// Creates a cache of `capacity` paths, a power of two, or returns `None` if the store is not a Postcarding store.
    pub(super) fn new(entry: StoreEntry, capacity: usize) -> Option<Self> {
        let Geometry::Postcarding { slots, hops, family } = entry.geometry else {
            return None;
        };
        Some(Self {
            entry,
            slots,
            hops,
            family,
            paths: vec![FREE_ENTRY; capacity],
            keys: vec![[0; MAX_KEY]; capacity],
            values: vec![NO_HOP; capacity * usize::from(hops)],
            pending_by_age: AgeList::EMPTY,
        })
    }

    pub(super) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    /// Returns the number of pending postcards.
    pub(super) fn pending(&self) -> u64 {
        self.paths
            .iter()
            .map(|path| u64::from(path.received_hops.count_ones()))
            .sum()
    }

    /// Returns the arrival time of the first postcard of the oldest pending path, ns.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.paths
            .get(self.pending_by_age.oldest())
            .map(|path| path.age.since)
    }

    /// Adds a postcard, and writes its path if it is now complete. May evict another path.
    #[inline]
    pub(super) fn add<W: Transport>(
        &mut self,
        now: u64,
        postcard: Postcard<'_>,
        sender: &mut Sender<'_, W>,
        stats: &mut Postcards,
    ) -> Result<(), Fault> {
        if postcard.hop > self.hops {
            return Err(Fault::Drop(Reason::WrongHop));
        }
        // Unreachable: the parser rejects longer keys.
        if postcard.key.len() > MAX_KEY {
            return Err(Fault::Drop(Reason::UnknownStore));
        }
        let cache_index = self.find_or_claim(now, &postcard, sender, stats)?;
        let path = &mut self.paths[cache_index];
        let bit = 1 << (postcard.hop - 1);
        stats.accepted += 1;
        stats.replaced += u64::from(path.received_hops & bit != 0);
        path.received_hops |= bit;
        path.reliable |= postcard.reliable;
        path.notify |= postcard.immediate;
        if postcard.path_len != 0 {
            path.path_len = postcard.path_len;
        }
        let expected_hops = if path.path_len == 0 {
            self.hops
        } else {
            path.path_len.min(self.hops)
        };
        // One bit per hop of the path.
        let all_hops = u64::MAX >> (64 - expected_hops);
        let is_complete = path.received_hops & all_hops == all_hops;
        let reliable = path.reliable;
        self.values[cache_index * usize::from(self.hops) + usize::from(postcard.hop - 1)] = postcard.value;
        // Without credit, a complete path waits for its timer.
        if is_complete && sender.has_credit(1, MAX_SLOT as u64, reliable) {
            let _ = self.write(cache_index, Cause::Full, sender, stats);
        }
        Ok(())
    }

    /// Returns the cache entry of a key's path; claims one, and evicts the oldest path if needed, if there is none.
    fn find_or_claim<W: Transport>(
        &mut self,
        now: u64,
        postcard: &Postcard<'_>,
        sender: &mut Sender<'_, W>,
        stats: &mut Postcards,
    ) -> Result<usize, Fault> {
        // The second hash selects the cache set, independently of the slot in collector memory.
        let ([slot, set_hash], checksum) = hash::slots_n::<2>(postcard.key);
        let set = set_hash as usize & (self.paths.len() - 1) & !(WAYS - 1);
        let ways = set..set + WAYS;
        if let Some(cache_index) = ways
            .clone()
            .find(|cache_index| self.is_path_of(*cache_index, checksum, postcard.key))
        {
            return Ok(cache_index);
        }
        let free = ways
            .clone()
            .find(|cache_index| self.paths[*cache_index].received_hops == 0);
        let cache_index = match free {
            Some(cache_index) => cache_index,
            None => {
                let cache_index = ways
                    .min_by_key(|cache_index| self.paths[*cache_index].age.since)
                    .unwrap_or(set);
                if !sender.has_credit(1, MAX_SLOT as u64, self.paths[cache_index].reliable) {
                    return Err(Fault::Blocked);
                }
                self.write(cache_index, Cause::Evicted, sender, stats)?;
                cache_index
            }
        };
        self.keys[cache_index][..postcard.key.len()].copy_from_slice(postcard.key);
        let hops = usize::from(self.hops);
        self.values[cache_index * hops..(cache_index + 1) * hops].fill(NO_HOP);
        let key_len = postcard.key.len() as u8;
        self.paths[cache_index] = Path {
            checksum,
            slot,
            key_len,
            ..FREE_ENTRY
        };
        self.pending_by_age.push(&mut self.paths, cache_index, now);
        Ok(cache_index)
    }

    /// Returns whether cache entry `cache_index` holds this key's path.
    #[inline(always)]
    fn is_path_of(&self, cache_index: usize, checksum: u32, key: &[u8]) -> bool {
        let path = &self.paths[cache_index];
        let len = usize::from(path.key_len);
        path.received_hops != 0 && path.checksum == checksum && self.keys[cache_index].get(..len) == Some(key)
    }

    /// Writes a path and frees its cache entry. Returns `Err` if it must be retried; a path that can never be written is
    /// dropped.
    fn write<W: Transport>(
        &mut self,
        cache_index: usize,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Postcards,
    ) -> Result<(), Blocked> {
        let path = self.paths[cache_index];
        let hops = usize::from(self.hops);
        let values = &self.values[cache_index * hops..(cache_index + 1) * hops];
        let mut slot = [0; MAX_SLOT];
        let (index, len) = match self.family {
            Family::V1 => (
                path.slot,
                layout::put_postcards(&mut slot, path.checksum, values).unwrap_or(0),
            ),
            Family::Artifact => {
                let key = &self.keys[cache_index][..usize::from(path.key_len)];
                // The artifact selects the slot by the plain CRC of the key, which equals this checksum.
                (
                    path.checksum,
                    artifact::put_path(&mut slot, key, values).unwrap_or(0),
                )
            }
        };
        let target = Target {
            region: self.entry.region,
            offset: hash::slot(index, self.slots) * layout::postcard_stride(self.hops),
            immediate: path
                .notify
                .then_some((Opcode::Postcard as u32) << 28 | u32::from(self.entry.id)),
            reliable: path.reliable,
        };
        let count = u64::from(path.received_hops.count_ones());
        match sender.write(target, &slot[..len]) {
            Ok(()) => {
                stats.written += count;
                stats.paths[cause as usize] += 1;
            }
            Err(blocked) if blocked.is_transient() => return Err(blocked),
            Err(_) => stats.dropped += count,
        }
        self.pending_by_age.remove(&mut self.paths, cache_index);
        self.paths[cache_index].received_hops = 0;
        Ok(())
    }

    /// Writes the paths that are pending since `until` or earlier. Returns `false` if the transport did not accept all of
    /// them.
    pub(super) fn flush_until<W: Transport>(
        &mut self,
        until: u64,
        cause: Cause,
        sender: &mut Sender<'_, W>,
        stats: &mut Postcards,
    ) -> bool {
        while let Some(path) = self.paths.get(self.pending_by_age.oldest()) {
            if path.age.since > until {
                break;
            }
            let has_credit = sender.has_credit(1, MAX_SLOT as u64, path.reliable);
            if !has_credit
                || self
                    .write(self.pending_by_age.oldest(), cause, sender, stats)
                    .is_err()
            {
                return false;
            }
        }
        true
    }
}

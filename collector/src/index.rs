//! A set-associative index from hashes to slots of a slab: the lookup under every table of the collector.
//!
//! A bucket is one cache line of eight ways. Each way has a 16-bit tag, a heat with the second of its last use, and a slot
//! number. An entry is in its first bucket or, if that was full, in its second, so a lookup reads at most two lines. The index
//! is allocated once and never grows.
//!
//! **Heat.** Each use adds one to a way's heat, which saturates at 255 and is halved for each second of age. An entry with a
//! heat of [`BUSY`] or more is never evicted by a new entry. Among the others, the entry with the lowest heat is evicted, then
//! the oldest. So a flood of keys that occur once only evicts such keys, and if all sixteen ways are busy, the new entry is
//! refused. Tables of flows use their own policy (see `admission`).

use memory::prefetch;

/// Heat from which an entry is not evicted by a new entry: two uses within about a second.
pub(crate) const BUSY: u8 = 2;

/// Null value of a slot number.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Number of ways of a bucket, which fill one cache line.
const WAYS: usize = 8;
/// The value 1 in each 16-bit lane.
const LANE_ONES: u64 = 0x0001_0001_0001_0001;
/// The highest bit of each 16-bit lane.
const LANE_TOPS: u64 = 0x8000_8000_8000_8000;

#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    /// Upper bits of the hash; 0 marks a free way.
    tags: [u16; WAYS],
    heat: [u8; WAYS],
    /// Second (modulo 256) to which `heat` belongs.
    second: [u8; WAYS],
    slots: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Position of an entry in the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct IndexPosition {
    bucket: u32,
    way: u8,
}

impl IndexPosition {
    #[inline(always)]
    fn new(bucket: usize, way: usize) -> Self {
        Self {
            bucket: bucket as u32,
            way: way as u8,
        }
    }
}

/// An entry as the index sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) position: IndexPosition,
    pub(crate) slot: u32,
    /// Heat in the second `second` (modulo 256).
    pub(crate) heat: u8,
    pub(crate) second: u8,
}

/// A candidate for eviction.
#[derive(Clone, Copy)]
struct Candidate {
    /// Heat at the time of the search.
    heat: u8,
    /// 255 minus the seconds since the entry's last use (modulo 256).
    youth: u8,
    position: IndexPosition,
    slot: u32,
}

impl Candidate {
    /// Returns true if this entry is evicted rather than `other`: it has less heat or, with equal heat, is older.
    fn is_before(&self, other: &Self) -> bool {
        (self.heat, self.youth) < (other.heat, other.youth)
    }
}

/// Result of the search for a way for a new entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertSlot {
    /// This way is free.
    Free(IndexPosition),
    /// This way's entry, in this slot, must be evicted.
    Evict(IndexPosition, u32),
    /// All sixteen entries are busy.
    Refused,
}

/// The index; see the module documentation.
#[derive(Debug)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    mask: usize,
}

impl Index {
    /// Creates an index for `capacity` entries, with twice as many ways, so that both buckets of a key are rarely full.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let count = (capacity.max(1) * 2).div_ceil(WAYS).next_power_of_two();
        let mut buckets = Vec::with_capacity(count);
        memory::advise_huge(&buckets);
        buckets.resize(count, Bucket::default());
        Self {
            buckets,
            mask: count - 1,
        }
    }

    /// Returns the size of the buckets in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Prefetches the first bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets[self.first_bucket(hash)]);
    }

    /// Returns the first slot in the first bucket whose tag matches, which is probably that of `hash`. For prefetching.
    #[inline]
    pub(crate) fn probable_slot(&self, hash: u64) -> u32 {
        let bucket = &self.buckets[self.first_bucket(hash)];
        bucket
            .slots
            .get(first_match(bucket, tag(hash)))
            .copied()
            .unwrap_or(NO_SLOT)
    }

    /// Returns the slot of `hash` for which `matches` returns true, or [`NO_SLOT`]. Not an `Option`, because callers index with
    /// it.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(u32) -> bool) -> u32 {
        let bucket = &self.buckets[self.first_bucket(hash)];
        match bucket.slots.get(first_match(bucket, tag(hash))) {
            // Nearly always the first way with the tag is the right one.
            Some(&slot) if matches(slot) => slot,
            _ => self.find_further(hash, matches),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_further(&self, hash: u64, matches: impl Fn(u32) -> bool) -> u32 {
        self.find_position(hash, matches)
            .map_or(NO_SLOT, |(_, slot)| slot)
    }

    /// Returns position and slot of the entry of `hash` for which `matches` returns true.
    fn find_position(&self, hash: u64, matches: impl Fn(u32) -> bool) -> Option<(IndexPosition, u32)> {
        let first = self.first_bucket(hash);
        for bucket_index in [first, self.second_bucket(hash, first)] {
            let bucket = &self.buckets[bucket_index];
            for way in 0..WAYS {
                if bucket.tags[way] == tag(hash) && matches(bucket.slots[way]) {
                    return Some((IndexPosition::new(bucket_index, way), bucket.slots[way]));
                }
            }
        }
        None
    }

    /// Records `times` uses of the entry of `hash` in `slot` in `second`.
    pub(crate) fn touch(&mut self, hash: u64, slot: u32, times: u64, second: u32) {
        if let Some((position, _)) = self.find_position(hash, |candidate| candidate == slot) {
            let bucket = &mut self.buckets[position.bucket as usize];
            let way = position.way as usize;
            let times = times.min(u64::from(u8::MAX)) as u8;
            bucket.heat[way] = cooled_heat(bucket, way, second).saturating_add(times);
            bucket.second[way] = second as u8;
        }
    }

    /// Records a use of the entry of `hash` in `slot` in `second`, and sets its heat to `heat`.
    pub(crate) fn set_heat(&mut self, hash: u64, slot: u32, heat: u8, second: u32) {
        if let Some((position, _)) = self.find_position(hash, |candidate| candidate == slot) {
            let bucket = &mut self.buckets[position.bucket as usize];
            bucket.heat[position.way as usize] = heat;
            bucket.second[position.way as usize] = second as u8;
        }
    }

    /// Returns the entry of `hash` in `slot`.
    pub(crate) fn get(&self, hash: u64, slot: u32) -> Option<IndexEntry> {
        let (position, _) = self.find_position(hash, |candidate| candidate == slot)?;
        Some(self.entry(position.bucket as usize, position.way as usize))
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the entries of a bucket.
    pub(crate) fn entries(&self, bucket: usize) -> impl Iterator<Item = IndexEntry> {
        let tags = self.buckets[bucket].tags;
        (0..WAYS)
            .filter(move |way| tags[*way] != 0)
            .map(move |way| self.entry(bucket, way))
    }

    /// Returns the entries in both buckets of `hash`.
    pub(crate) fn neighbours(&self, hash: u64) -> impl Iterator<Item = IndexEntry> {
        let first = self.first_bucket(hash);
        self.entries(first)
            .chain(self.entries(self.second_bucket(hash, first)))
    }

    /// Returns a free way for `hash`.
    pub(crate) fn free_way(&self, hash: u64) -> Option<IndexPosition> {
        let first = self.first_bucket(hash);
        [first, self.second_bucket(hash, first)]
            .into_iter()
            .find_map(|bucket| {
                let way = self.buckets[bucket].tags.iter().position(|tag| *tag == 0)?;
                Some(IndexPosition::new(bucket, way))
            })
    }

    fn entry(&self, bucket_index: usize, way: usize) -> IndexEntry {
        let bucket = &self.buckets[bucket_index];
        let position = IndexPosition::new(bucket_index, way);
        IndexEntry {
            position,
            slot: bucket.slots[way],
            heat: bucket.heat[way],
            second: bucket.second[way],
        }
    }

    /// Finds a way for a new entry in `second`. If the slab is `full`, only an eviction makes room.
    pub(crate) fn find_way(&self, hash: u64, second: u32, full: bool) -> InsertSlot {
        let first = self.first_bucket(hash);
        let candidates = [first, self.second_bucket(hash, first)];
        let mut coldest: Option<Candidate> = None;
        for bucket_index in candidates {
            let bucket = &self.buckets[bucket_index];
            for way in 0..WAYS {
                let position = IndexPosition::new(bucket_index, way);
                if bucket.tags[way] == 0 {
                    if !full {
                        return InsertSlot::Free(position);
                    }
                    continue;
                }
                let age = (second as u8).wrapping_sub(bucket.second[way]);
                let candidate = Candidate {
                    heat: cooled_heat(bucket, way, second),
                    youth: u8::MAX - age,
                    position,
                    slot: bucket.slots[way],
                };
                if coldest.is_none_or(|coldest| candidate.is_before(&coldest)) {
                    coldest = Some(candidate);
                }
            }
        }
        match coldest {
            Some(Candidate {
                heat, position, slot, ..
            }) if heat < BUSY => InsertSlot::Evict(position, slot),
            _ => InsertSlot::Refused,
        }
    }

    /// Puts a new entry into a way that [`Index::find_way`] returned, with `uses` as its heat in `second`.
    pub(crate) fn put(&mut self, position: IndexPosition, hash: u64, slot: u32, uses: u8, second: u32) {
        let bucket = &mut self.buckets[position.bucket as usize];
        let way = position.way as usize;
        bucket.tags[way] = tag(hash);
        bucket.heat[way] = uses;
        bucket.second[way] = second as u8;
        bucket.slots[way] = slot;
    }

    /// Frees the way of the entry of `hash` in `slot`, and returns the entry.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) -> Option<IndexEntry> {
        let entry = self.get(hash, slot)?;
        self.buckets[entry.position.bucket as usize].tags[entry.position.way as usize] = 0;
        Some(entry)
    }

    /// Moves an entry's last use into the past, so that it does not look recent when its second recurs modulo 256.
    pub(crate) fn age(&mut self, hash: u64, slot: u32, second: u32) {
        if let Some((position, _)) = self.find_position(hash, |candidate| candidate == slot) {
            let bucket = &mut self.buckets[position.bucket as usize];
            bucket.second[position.way as usize] = (second as u8).wrapping_sub(u8::MAX / 2);
        }
    }

    #[inline]
    fn first_bucket(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    #[inline]
    fn second_bucket(&self, hash: u64, first: usize) -> usize {
        let second = (hash >> 29) as usize & self.mask;
        if second == first {
            first ^ (1 & self.mask)
        } else {
            second
        }
    }
}

/// Returns the heat of a way, halved for each second of age.
#[inline]
fn cooled_heat(bucket: &Bucket, way: usize, second: u32) -> u8 {
    let age = (second as u8).wrapping_sub(bucket.second[way]);
    bucket.heat[way] >> age.min(7)
}

#[inline]
fn tag(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}

#[inline(always)]
fn pack(a: u16, b: u16, c: u16, d: u16) -> u64 {
    u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
}

/// Returns the top bits of lanes that are zero. Only the lowest one is exact; lanes above it may be false positives.
#[inline(always)]
fn zero_lanes(lanes: u64) -> u64 {
    lanes.wrapping_sub(LANE_ONES) & !lanes & LANE_TOPS
}

/// Returns the first way whose tag is `tag`, or [`WAYS`]. Compares four tags at a time, packed into one integer.
#[inline(always)]
fn first_match(bucket: &Bucket, tag: u16) -> usize {
    let [a, b, c, d, e, f, g, h] = bucket.tags;
    // A lane equal to the tag becomes zero after the XOR. The lowest match is exact.
    let low = zero_lanes(pack(a, b, c, d) ^ (u64::from(tag) * LANE_ONES));
    let high = zero_lanes(pack(e, f, g, h) ^ (u64::from(tag) * LANE_ONES));
    if low != 0 {
        low.trailing_zeros() as usize / 16
    } else {
        4 + (high.trailing_zeros() as usize / 16)
    }
}

#[cfg(test)]
mod tests {
    use super::{BUSY, Index, InsertSlot, NO_SLOT, WAYS};

    fn insert(index: &mut Index, hash: u64, slot: u32, second: u32) -> InsertSlot {
        let slot_found = index.find_way(hash, second, false);
        match slot_found {
            InsertSlot::Free(position) | InsertSlot::Evict(position, _) => {
                index.put(position, hash, slot, 1, second)
            }
            InsertSlot::Refused => {}
        }
        slot_found
    }

    /// Hashes that share both buckets of the smallest index with two buckets.
    fn colliding(n: u64) -> u64 {
        n << 48
    }

    #[test]
    fn inserted_entries_are_found_until_removed() {
        let mut index = Index::with_capacity(1000);
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 1..=1000 {
            assert!(
                matches!(insert(&mut index, hash(n), n as u32, 0), InsertSlot::Free(_)),
                "{n}"
            );
        }
        for n in 1..=1000 {
            assert_eq!(index.find(hash(n), |slot| slot == n as u32), n as u32);
        }
        for n in 1..=1000 {
            index.remove(hash(n), n as u32);
            assert_eq!(index.find(hash(n), |slot| slot == n as u32), NO_SLOT);
        }
    }

    #[test]
    fn a_newcomer_replaces_the_least_hot_then_the_oldest() {
        let mut index = Index::with_capacity(WAYS);
        for n in 1..=16 {
            let second = if n == 5 { 6 } else { 7 };
            insert(&mut index, colliding(n), n as u32, second);
        }
        assert!(matches!(
            insert(&mut index, colliding(17), 17, 7),
            InsertSlot::Evict(_, 5)
        ));
    }

    #[test]
    fn busy_entries_stay_and_cool_with_time() {
        let mut index = Index::with_capacity(WAYS);
        for n in 1..=16_u64 {
            insert(&mut index, colliding(n), n as u32, 100);
            index.touch(colliding(n), n as u32, u64::from(BUSY) - 1, 100);
        }
        assert_eq!(insert(&mut index, colliding(17), 17, 100), InsertSlot::Refused);
        assert!(matches!(
            insert(&mut index, colliding(17), 17, 101),
            InsertSlot::Evict(..)
        ));
    }

    #[test]
    fn a_full_slab_is_relieved_by_eviction_only() {
        let mut index = Index::with_capacity(WAYS);
        assert_eq!(index.find_way(colliding(1), 0, true), InsertSlot::Refused);
        insert(&mut index, colliding(1), 9, 0);
        assert!(matches!(
            index.find_way(colliding(2), 0, true),
            InsertSlot::Evict(_, 9)
        ));
    }

    #[test]
    fn an_aged_entry_looks_old_after_256_seconds() {
        let mut index = Index::with_capacity(WAYS);
        for n in 1..=16_u64 {
            insert(&mut index, colliding(n), n as u32, 0);
        }
        index.touch(colliding(3), 3, 100, 0);
        index.age(colliding(3), 3, 128);
        assert!(matches!(
            index.find_way(colliding(20), 256, false),
            InsertSlot::Evict(_, 3)
        ));
    }
}

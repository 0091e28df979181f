//! A hash table of fixed capacity with linear probing, for the translator's tables of reporters and senders. A flood of
//! invented keys cannot grow it.
//!
//! At most half of the slots are used, which keeps probe sequences short. Removal shifts later entries back instead of
//! leaving tombstones. Keys and values are in separate arrays, so that probing reads only keys.

/// A key of a [`HashTable`].
pub(super) trait Key: Copy + Eq {
    /// The key that marks a free slot; never inserted.
    const EMPTY: Self;
    /// Returns a hash whose high bits select the slot.
    fn hash(self) -> u64;
}

impl Key for u64 {
    const EMPTY: Self = u64::MAX;

    #[inline(always)]
    fn hash(self) -> u64 {
        // Fibonacci hashing: the constant is 2^64 divided by the golden ratio, and the high bits are used.
        (self ^ self >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Key for u128 {
    const EMPTY: Self = u128::MAX;

    #[inline(always)]
    fn hash(self) -> u64 {
        ((self ^ self >> 64) as u64 ^ (self as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A hash table of fixed capacity: see the module documentation.
#[derive(Debug)]
pub(super) struct HashTable<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
    shift: u32,
    used: usize,
    capacity: usize,
    /// Slot at which the next sweep begins.
    sweep: usize,
}

impl<K: Key, V: Copy + Default> HashTable<K, V> {
    /// Creates a table for `capacity` entries, at least 1.
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two().max(8);
        Self {
            keys: vec![K::EMPTY; slots],
            values: vec![V::default(); slots],
            shift: 64 - slots.trailing_zeros(),
            used: 0,
            capacity,
            sweep: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    #[inline(always)]
    fn first_slot(&self, key: K) -> usize {
        (key.hash() >> self.shift) as usize
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.keys.len() - 1
    }

    /// Returns the slot of a key, or `Err` with the free slot where it would be inserted.
    #[inline]
    fn search(&self, key: K) -> Result<usize, usize> {
        let mut slot = self.first_slot(key);
        loop {
            let found = self.keys[slot];
            if found == K::EMPTY {
                return Err(slot);
            }
            if found == key {
                return Ok(slot);
            }
            slot = (slot + 1) & self.mask();
        }
    }

    /// Prefetches the first slot that a search for the key reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: K) {
        let first_slot = self.first_slot(key);
        memory::prefetch(&self.keys[first_slot]);
        memory::prefetch(&self.values[first_slot]);
    }

    /// Returns the slot of a key, or `None` if it is not in the table. Valid until an entry is removed.
    #[inline]
    pub(super) fn find(&self, key: K) -> Option<usize> {
        self.search(key).ok()
    }

    /// Returns the slot of a key and whether it was just inserted, or `None` if the table is full.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: K) -> Option<(usize, bool)> {
        match self.search(key) {
            Ok(slot) => Some((slot, false)),
            Err(slot) if self.used < self.capacity && key != K::EMPTY => {
                self.used += 1;
                self.keys[slot] = key;
                self.values[slot] = V::default();
                Some((slot, true))
            }
            Err(_) => None,
        }
    }

    /// Returns the value in a slot.
    #[inline(always)]
    pub(super) fn at(&mut self, slot: usize) -> &mut V {
        &mut self.values[slot]
    }

    /// Returns the value in a slot, for reading.
    #[inline(always)]
    pub(super) fn get(&self, slot: usize) -> &V {
        &self.values[slot]
    }

    /// Returns whether the table has reached its capacity.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.capacity
    }

    /// Iterates over all values, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.keys
            .iter()
            .zip(&self.values)
            .filter(|(key, _)| **key != K::EMPTY)
            .map(|(_, value)| value)
    }

    pub(super) fn clear(&mut self) {
        self.keys.fill(K::EMPTY);
        self.used = 0;
    }

    /// Checks the next `count` slots and removes entries for which `is_over` returns `true`. Other entries may move to
    /// other slots.
    pub(super) fn sweep(&mut self, count: usize, mut is_over: impl FnMut(K, &V) -> bool) {
        for _ in 0..count.min(self.keys.len()) {
            let slot = self.sweep & self.mask();
            if self.keys[slot] != K::EMPTY && is_over(self.keys[slot], &self.values[slot]) {
                // The removal may shift another entry into this slot, so check it again.
                self.remove(slot);
            } else {
                self.sweep = slot + 1;
            }
        }
    }

    /// Removes the entry in a slot and shifts displaced entries after it towards their home slots.
    fn remove(&mut self, slot: usize) {
        let mask = self.mask();
        let mut gap = slot;
        let mut slot = slot;
        loop {
            slot = (slot + 1) & mask;
            let key = self.keys[slot];
            if key == K::EMPTY {
                break;
            }
            let from_home = slot.wrapping_sub(self.first_slot(key)) & mask;
            if from_home >= slot.wrapping_sub(gap) & mask {
                self.keys[gap] = key;
                self.values[gap] = self.values[slot];
                gap = slot;
            }
        }
        self.keys[gap] = K::EMPTY;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn all_admitted_connections_have_a_slot() {
        let mut slots = HashTable::<u64, u32>::new(65_536);
        for key in 0..65_536u64 {
            let (slot, new) = slots.find_or_insert(key << 32 | 7).expect("a place");
            assert!(new);
            *slots.at(slot) = key as u32;
        }
        assert_eq!((slots.len(), slots.find_or_insert(7 << 40)), (65_536, None));
        for key in 0..65_536u64 {
            let slot = slots.find(key << 32 | 7).expect("known");
            assert_eq!(*slots.at(slot), key as u32);
        }
    }

    #[test]
    fn the_empty_key_is_not_inserted() {
        assert_eq!(HashTable::<u64, u8>::new(4).find_or_insert(u64::EMPTY), None);
    }

    #[test]
    fn it_behaves_as_a_map_under_random_use() {
        let mut slots = HashTable::<u64, u64>::new(40);
        let mut model = HashMap::new();
        let mut seed = 7u64;
        for step in 0..200_000u64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = seed >> 33 & 63;
            if seed & 7 == 0 {
                let bit = seed >> 40 & 3;
                slots.sweep(5, |key, value| {
                    let over = key & 3 == bit;
                    assert_eq!(model.get(&key), Some(value));
                    if over {
                        model.remove(&key);
                    }
                    over
                });
            } else if let Some((slot, new)) = slots.find_or_insert(key) {
                assert_eq!(new, !model.contains_key(&key));
                assert_eq!(*slots.at(slot), model.get(&key).copied().unwrap_or(0));
                *slots.at(slot) = step;
                model.insert(key, step);
            } else {
                assert!(model.len() == 40 && !model.contains_key(&key));
            }
            assert_eq!(slots.len(), model.len());
        }
        for key in 0..64 {
            let found = slots.find(key).map(|slot| *slots.at(slot));
            assert_eq!(found, model.get(&key).copied());
        }
    }
}

//! A bounded table that counts how many flows use each key (a node, link or path) and stores a value per key.

use std::ops::Range;

use crate::index::{Index, InsertSlot, NO_SLOT};
use crate::stats::Table;

/// The table of keys in use.
#[derive(Debug)]
pub(crate) struct Uses<K, V> {
    entries: Vec<Use<K, V>>,
    free: Vec<u32>,
    index: Index,
    capacity: usize,
    refused: u64,
}

/// A key in use, with its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use<K, V> {
    pub(crate) key: K,
    /// Number of flows that use the key; 0 if the entry is free.
    pub(crate) flows: u32,
    pub(crate) value: V,
}

impl<K: Copy + Eq, V: Copy> Uses<K, V> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            index: Index::with_capacity(capacity),
            capacity,
            refused: 0,
        }
    }

    /// Counts one more flow for `key`; its value is `new` if it is the first. Returns `false` if the table is full.
    pub(crate) fn add(&mut self, hash: u64, key: K, new: V) -> bool {
        if let Some(known) = self.find(hash, key) {
            self.entries[known].flows += 1;
            return true;
        }
        let full = self.free.is_empty() && self.entries.len() == self.capacity;
        let InsertSlot::Free(place) = self.index.find_way(hash, 0, full) else {
            return false;
        };
        let entry = Use {
            key,
            flows: 1,
            value: new,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = entry;
            slot
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.index.put(place, hash, slot, 1, 0);
        true
    }

    /// Counts a key that the full table refused.
    pub(crate) fn note_refusal(&mut self) {
        self.refused += 1;
    }

    /// Counts one flow less for `key`. Returns the value if that was the last flow.
    pub(crate) fn remove(&mut self, hash: u64, key: K) -> Option<V> {
        let known = self.find(hash, key)?;
        let entry = &mut self.entries[known];
        entry.flows -= 1;
        if entry.flows > 0 {
            return None;
        }
        let value = entry.value;
        self.index.remove(hash, known as u32);
        self.free.push(known as u32);
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, hash: u64, key: K) -> Option<&mut V> {
        let known = self.find(hash, key)?;
        Some(&mut self.entries[known].value)
    }

    /// Returns the keys in use in a range of slots. A key keeps its slot as long as a flow uses it.
    pub(crate) fn iter_in(&self, slots: Range<u32>) -> impl Iterator<Item = &Use<K, V>> {
        let end = (slots.end as usize).min(self.entries.len());
        let slots = self.entries.get(slots.start as usize..end).unwrap_or_default();
        slots.iter().filter(|entry| entry.flows > 0)
    }

    /// Returns the number of slots used so far.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: (self.entries.len() - self.free.len()) as u64,
            capacity: self.capacity as u64,
            evicted: 0,
            refused: self.refused,
        }
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Use<K, V>>() + self.index.bytes()
    }

    /// Returns the value of an entry by the index that [`Uses::find`] returned.
    pub(crate) fn value_mut(&mut self, at: usize) -> &mut V {
        &mut self.entries[at].value
    }

    /// Returns the index of the entry of `key`.
    pub(crate) fn find(&self, hash: u64, key: K) -> Option<usize> {
        match self
            .index
            .find(hash, |slot| self.entries[slot as usize].key == key)
        {
            NO_SLOT => None,
            slot => Some(slot as usize),
        }
    }
}

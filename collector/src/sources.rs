//! The table of report senders: one entry per source address, with its profile and its counters of datagrams and refusals.

use detect::Prefix;
use wire::{Refusal, RefusalCounts};

use crate::event::{Nanos, sender_of};
use crate::hash::fold_octets;
use crate::index::{Index, InsertSlot, NO_SLOT};
use crate::stats::Table;

/// Counters of one source address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceView {
    /// The address, IPv4 mapped into IPv6.
    pub source: [u8; 16],
    /// Datagrams received from the address.
    pub datagrams: u64,
    /// Datagrams and reports refused, by [`Refusal::index`].
    pub refused: RefusalCounts,
    /// Receive time of the latest datagram.
    pub last_seen: Nanos,
}

#[derive(Clone, Debug)]
struct Entry {
    view: SourceView,
    profile: u8,
    tag: u32,
}

impl Entry {
    fn source(&self, slot: u32) -> Source {
        Source {
            slot,
            profile: self.profile,
            tag: self.tag,
        }
    }
}

/// The source of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    slot: u32,
    /// Index of its profile.
    pub(crate) profile: u8,
    /// Identifies the sender: see [`sender_of`].
    pub(crate) tag: u32,
}

/// A bounded table of sources. When it is full, the least recently active one is evicted, unless all are busy. A source without
/// an entry is still read with its profile, but has no counters.
#[derive(Debug)]
pub(crate) struct Sources {
    entries: Vec<Entry>,
    capacity: usize,
    index: Index,
    seed: u64,
    latest: u32,
    /// (Prefix, profile index), the longest prefix first.
    prefixes: Vec<(Prefix, u8)>,
    evicted: u64,
    refused: u64,
}

impl Sources {
    pub(crate) fn new(capacity: usize, seed: u64, prefixes: impl IntoIterator<Item = (Prefix, u8)>) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            entries: Vec::with_capacity(capacity),
            capacity,
            index: Index::with_capacity(capacity),
            seed,
            latest: u32::MAX,
            prefixes,
            evicted: 0,
            refused: 0,
        }
    }

    /// Finds or adds the entry of `address`, and counts a datagram.
    #[inline]
    pub(crate) fn enter(&mut self, address: &[u8; 16], now: Nanos) -> Source {
        if let Some(entry) = self.entries.get_mut(self.latest as usize)
            && entry.view.source == *address
        {
            entry.view.datagrams = entry.view.datagrams.wrapping_add(1);
            entry.view.last_seen = now;
            return entry.source(self.latest);
        }
        self.enter_other(address, now)
    }

    #[inline(never)]
    fn enter_other(&mut self, address: &[u8; 16], now: Nanos) -> Source {
        let hash = fold_octets(address, self.seed);
        // The unit of heat is 2^33 ns (8.6 s), so that a reporter that sends once per second counts as busy.
        let heat_period = (now >> 33) as u32;
        let entries = &self.entries;
        let slot = self
            .index
            .find(hash, |slot| entries[slot as usize].view.source == *address);
        if slot != NO_SLOT {
            self.index.touch(hash, slot, 1, heat_period);
            self.latest = slot;
            let entry = &mut self.entries[slot as usize];
            entry.view.datagrams += 1;
            entry.view.last_seen = now;
            return entry.source(slot);
        }
        let profile = self.profile(address);
        let tag = sender_of(address);
        let view = SourceView {
            source: *address,
            datagrams: 1,
            refused: RefusalCounts::default(),
            last_seen: now,
        };
        let slot = match self
            .index
            .find_way(hash, heat_period, self.entries.len() == self.capacity)
        {
            InsertSlot::Free(place) => {
                let slot = self.entries.len() as u32;
                self.entries.push(Entry { view, profile, tag });
                self.index.put(place, hash, slot, 1, heat_period);
                slot
            }
            InsertSlot::Evict(place, slot) => {
                self.evicted += 1;
                self.entries[slot as usize] = Entry { view, profile, tag };
                self.index.put(place, hash, slot, 1, heat_period);
                slot
            }
            InsertSlot::Refused => {
                self.refused += 1;
                u32::MAX
            }
        };
        self.latest = slot;
        Source { slot, profile, tag }
    }

    fn profile(&self, address: &[u8; 16]) -> u8 {
        self.prefixes
            .iter()
            .find(|(prefix, _)| prefix.contains_octets(address))
            .map_or(0, |(_, profile)| *profile)
    }

    /// Undoes the count of a datagram by [`Sources::enter`].
    pub(crate) fn uncount(&mut self, source: Source) {
        if let Some(entry) = self.entries.get_mut(source.slot as usize) {
            entry.view.datagrams = entry.view.datagrams.saturating_sub(1);
        }
    }

    /// Counts a refusal of this source.
    pub(crate) fn refuse(&mut self, source: Source, refusal: Refusal) {
        if let Some(entry) = self.entries.get_mut(source.slot as usize) {
            entry.view.refused[refusal.index()] += 1;
        }
    }

    pub(crate) fn views(&self) -> impl ExactSizeIterator<Item = SourceView> {
        self.entries.iter().map(|entry| entry.view)
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: self.entries.len() as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> [u8; 16] {
        let [a, b, c, d] = n.to_be_bytes();
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
    }

    #[test]
    fn the_longest_prefix_chooses_the_profile() {
        let prefixes = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("2001:db8::/32", 3)];
        let mut sources = Sources::new(
            8,
            0,
            prefixes.map(|(prefix, index)| (prefix.parse().unwrap(), index)),
        );
        let v6: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
        let chosen = [
            address(0x0a00_0001),
            address(0x0a01_0001),
            address(0x0b00_0001),
            v6.octets(),
        ]
        .map(|address| sources.enter(&address, 0).profile);
        assert_eq!(chosen, [1, 2, 0, 3]);
    }

    #[test]
    fn refusals_are_counted_by_source_and_reason() {
        let mut sources = Sources::new(8, 0, []);
        for n in [1, 2, 1] {
            let source = sources.enter(&address(n), 5);
            sources.refuse(
                source,
                if n == 1 {
                    Refusal::Truncated
                } else {
                    Refusal::Nested
                },
            );
        }
        let seen: Vec<_> = sources
            .views()
            .map(|v| {
                (
                    v.datagrams,
                    v.refused[Refusal::Truncated.index()],
                    v.refused[Refusal::Nested.index()],
                )
            })
            .collect();
        assert_eq!(seen, [(2, 2, 0), (1, 0, 1)]);
    }

    #[test]
    fn a_flood_of_addresses_stays_bounded() {
        let mut sources = Sources::new(16, 0, []);
        for n in 0..10_000 {
            sources.enter(&address(7), 0);
            let source = sources.enter(&address(n + 100), 0);
            sources.refuse(source, Refusal::Truncated);
        }
        let table = sources.table();
        assert!(
            table.used <= 16 && table.used + table.evicted + table.refused == 10_001,
            "{table:?}"
        );
        assert_eq!(
            sources
                .views()
                .find(|v| v.source == address(7))
                .unwrap()
                .datagrams,
            10_000
        );
    }
}

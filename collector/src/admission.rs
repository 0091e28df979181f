//! Admission to a full flow table: decides which flows get an entry, and which flow is evicted for it.
//!
//! A flow is *on probation* until its second report, and *established* from then on.
//!
//! - A table with room admits every flow at its first report.
//! - In a full table, a new flow replaces a flow on probation, if there is one among its sixteen neighbours in the index.
//! - Otherwise its first report only leaves a fingerprint. The next one replaces an established flow that has been idle for
//!   [`IDLE_SECONDS`], or a flow on probation anywhere in the table; the search is bounded.
//! - If there is no such flow, the new one is refused and counted. The next report tries again.
//!
//! So flows of one report, however many, replace only each other. The fingerprints are the doorkeeper of TinyLFU (Einziger,
//! Friedman and Manes, ACM TOS 2017). A flow of two forged reports does become established: it takes room that others leave,
//! and keeps it for [`IDLE_SECONDS`] after its last report, but it never replaces a flow that reports more often than that.

#[cfg(test)]
mod tests;

use crate::index::{BUSY, Index, IndexEntry, IndexPosition};
use crate::stats::Unadmitted;

/// Idle time after which an established flow may be replaced, in seconds: a flow that reports every eight seconds may lose two
/// reports in a row.
pub(crate) const IDLE_SECONDS: u8 = 30;

/// An entry's second may be this far ahead of a report's: two sockets of one worker need not agree on the second.
const MAX_AHEAD: u8 = 8;

/// Maximum number of index buckets that one search reads (4 KiB). No bucket is searched twice in one second.
const BUCKETS_PER_SEARCH: usize = 64;

/// Decision about a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// There is room at this position.
    Free(NewEntry),
    /// There is room at this position once the flow in this slot has been removed.
    Evict(NewEntry, u32),
    /// The flow gets no entry.
    Refused(Unadmitted),
}

/// Position of a new flow in the index, and the number of reports received of it, at most two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewEntry {
    position: IndexPosition,
    reports: u8,
}

/// The order of eviction: earlier variants go first, and within a variant the flow that was silent longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Standing {
    Probation,
    Idle,
    Active,
}

/// A candidate for eviction. The smallest in the order of the fields goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    standing: Standing,
    /// 255 minus the seconds since the flow's last report.
    youth: u8,
    slot: u32,
    position: IndexPosition,
}

/// The policy for new flows; see the module documentation.
#[derive(Debug)]
pub(crate) struct Newcomers {
    fingerprints: Fingerprints,
    /// The bucket at which the next search starts: the hand of the CLOCK algorithm.
    hand: usize,
    /// Second of the latest search, and the number of buckets that may still be searched in it.
    search_second: u32,
    search_budget: usize,
}

impl Newcomers {
    pub(crate) fn for_flows(flows: usize) -> Self {
        Self {
            fingerprints: Fingerprints::for_flows(flows),
            hand: 0,
            search_second: 0,
            search_budget: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fingerprints.sets.len() * size_of::<u128>()
    }

    /// Finds room for a new flow. If the table is `full`, only an eviction makes room.
    pub(crate) fn admit(&mut self, index: &Index, hash: u64, second: u32, full: bool) -> Admission {
        let free = index.free_way(hash);
        let was_seen = self.fingerprints.contains(hash);
        let reports = 1 + u8::from(was_seen);
        if let Some(position) = free.filter(|_| !full) {
            return Admission::Free(NewEntry { position, reports });
        }
        let neighbour = index
            .neighbours(hash)
            .map(|entry| candidate(&entry, second))
            .min();
        match neighbour {
            Some(Candidate {
                standing: Standing::Probation,
                slot,
                position,
                ..
            }) => Admission::Evict(NewEntry { position, reports }, slot),
            _ if !was_seen => {
                self.fingerprints.insert(hash);
                Admission::Refused(Unadmitted::FirstSight)
            }
            Some(Candidate {
                standing: Standing::Idle,
                slot,
                position,
                ..
            }) => Admission::Evict(NewEntry { position, reports }, slot),
            _ => free
                .and_then(|position| {
                    Some(Admission::Evict(
                        NewEntry { position, reports },
                        self.search(index, second)?,
                    ))
                })
                .unwrap_or(Admission::Refused(Unadmitted::TableFull)),
        }
    }

    /// Returns a flow that may be replaced, from the next buckets.
    fn search(&mut self, index: &Index, second: u32) -> Option<u32> {
        let buckets = index.buckets();
        if self.search_second != second {
            self.search_second = second;
            self.search_budget = buckets;
        }
        for _ in 0..BUCKETS_PER_SEARCH.min(self.search_budget) {
            let candidate = index
                .entries(self.hand)
                .map(|entry| candidate(&entry, second))
                .min();
            match candidate {
                Some(Candidate {
                    standing: Standing::Probation | Standing::Idle,
                    slot,
                    ..
                }) => return Some(slot),
                _ => self.hand = if self.hand + 1 < buckets { self.hand + 1 } else { 0 },
            }
            self.search_budget -= 1;
        }
        None
    }

    /// Adds a flow in `slot` to the index, at the position that [`Newcomers::admit`] found.
    pub(crate) fn insert(&self, index: &mut Index, new_entry: NewEntry, hash: u64, slot: u32, second: u32) {
        index.put(new_entry.position, hash, slot, new_entry.reports, second);
    }

    /// Removes a flow. A flow on probation leaves a fingerprint, so that its next report counts as its second.
    pub(crate) fn remove(&mut self, index: &mut Index, hash: u64, slot: u32) {
        if let Some(entry) = index.remove(hash, slot)
            && entry.heat < BUSY
        {
            self.fingerprints.insert(hash);
        }
    }
}

/// Records a report of an established flow in `second`.
pub(crate) fn establish(index: &mut Index, hash: u64, slot: u32, second: u32) {
    index.set_heat(hash, slot, BUSY, second);
}

/// Returns true if a flow is established.
pub(crate) fn is_established(index: &Index, hash: u64, slot: u32) -> bool {
    index.get(hash, slot).is_some_and(|entry| entry.heat >= BUSY)
}

/// Returns the rank in which the flow in `slot` gives up its memory to another flow, lowest first, or `None` if it does not.
/// `established`: the other flow is established.
pub(crate) fn eviction_rank(
    index: &Index,
    hash: u64,
    slot: u32,
    established: bool,
    second: u32,
) -> Option<u16> {
    let Candidate { standing, youth, .. } = candidate(&index.get(hash, slot)?, second);
    let rank = u16::from(youth);
    match standing {
        Standing::Probation => Some(rank),
        Standing::Idle if established => Some(rank + 256),
        _ => None,
    }
}

fn candidate(entry: &IndexEntry, second: u32) -> Candidate {
    let age = match (second as u8).wrapping_sub(entry.second) {
        // Seconds are compared modulo 256; a small negative age means "ahead".
        age if age.wrapping_neg() <= MAX_AHEAD => 0,
        age => age,
    };
    let standing = match entry.heat {
        ..BUSY => Standing::Probation,
        _ if age >= IDLE_SECONDS => Standing::Idle,
        _ => Standing::Active,
    };
    Candidate {
        standing,
        youth: u8::MAX - age,
        slot: entry.slot,
        position: entry.position,
    }
}

/// Fingerprints (16 bits) of flows that were seen once and have no entry, in sets of eight; the oldest of a set is replaced.
/// There are about eight times as many as flows in the table; one flow in 8,000 matches another's. The hash is seeded, so that
/// senders cannot choose sets.
#[derive(Debug)]
struct Fingerprints {
    sets: Vec<u128>,
}

impl Fingerprints {
    /// The lowest bit of each 16-bit lane; a product with it copies a fingerprint into all eight lanes.
    const LANES: u128 = u128::MAX / 0xffff;
    /// The highest bit of each lane.
    const LANE_TOPS: u128 = Self::LANES << 15;

    fn for_flows(flows: usize) -> Self {
        Self {
            sets: vec![0; flows.max(1).next_power_of_two()],
        }
    }

    fn fingerprint(hash: u64) -> u128 {
        u128::from(((hash >> 40) as u16).max(1))
    }

    fn set_index(&self, hash: u64) -> usize {
        (hash >> 8) as usize & (self.sets.len() - 1)
    }

    fn contains(&self, hash: u64) -> bool {
        // Finds a zero 16-bit lane: a lane equal to the fingerprint becomes zero after the XOR, and borrows in the subtraction.
        let other = self.sets[self.set_index(hash)] ^ (Self::fingerprint(hash) * Self::LANES);
        other.wrapping_sub(Self::LANES) & !other & Self::LANE_TOPS != 0
    }

    fn insert(&mut self, hash: u64) {
        let index = self.set_index(hash);
        self.sets[index] = self.sets[index] << 16 | Self::fingerprint(hash);
    }
}

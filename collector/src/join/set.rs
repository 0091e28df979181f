//! The pool of open sets. A set collects the SF-INT records of one packet. The pool has a fixed number of sets, linked in a
//! list from the oldest to the newest.

use memory::prefetch;

use crate::config::Units;
use crate::decode::{EndTimestamps, EventContext, NO_VALUE, Origin, Reading, narrow};
use crate::event::Nanos;
use crate::index::NO_SLOT;

/// Number of records per set that are prefetched.
const PREFETCHED_RECORDS: usize = 5;

/// One node's record of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(crate) struct SfRecord {
    pub(crate) reading: Reading,
    /// Timestamps as reported, in device units; [`NO_VALUE`] (all ones) if absent.
    pub(crate) ingress: u64,
    pub(crate) egress: u64,
    /// Position of its report among the reports of its sink: see [`order`].
    pub(crate) order: u32,
    /// Remaining hop count of the packet that carried the record.
    pub(crate) remaining: u8,
    pub(crate) wide: bool,
    /// The record's node has other units than the reporter, so its timestamps cannot be compared with other nodes'.
    pub(crate) incomparable: bool,
}

impl SfRecord {
    /// Returns true if both records are of the same node and have the same values.
    pub(crate) fn has_same_values(&self, other: &Self) -> bool {
        (self.reading, self.ingress, self.egress) == (other.reading, other.ingress, other.egress)
    }

    pub(crate) const NOTHING: Self = Self {
        reading: Reading::NOTHING,
        ingress: NO_VALUE,
        egress: NO_VALUE,
        order: 0,
        remaining: 0,
        wide: false,
        incomparable: false,
    };
}

/// State of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Free,
    Open,
    /// Complete and reported; stored to detect late records.
    Done,
}

// A record fills one cache line.
const _: () = assert!(size_of::<SfRecord>() == 64);

/// A set without its records, in two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Set {
    pub(crate) status: Status,
    pub(crate) flow: u32,
    pub(crate) opened: Nanos,
    /// The context of the latest report in the set.
    pub(crate) about: EventContext,
    /// Number of carried records, without the sink's own.
    pub(crate) carried: u8,
    /// The report of state Medium, which opens the set, has arrived.
    pub(crate) has_opening: bool,
    /// Order and remaining hop count of that report.
    pub(crate) order: u32,
    pub(crate) remaining: u8,
    /// That report had a record of the sink itself.
    pub(crate) has_sink_record: bool,
    /// At least one report had the E bit (hop count exceeded).
    pub(crate) exceeded: bool,
    /// Reports of several subsystems are in the set; their sequence numbers cannot be compared.
    pub(crate) has_several_subsystems: bool,
    older: u32,
    newer: u32,
}

const _: () = assert!(size_of::<Set>() == 128);

impl Set {
    /// Returns the number of records in the set.
    pub(crate) fn records(&self) -> usize {
        usize::from(self.carried) + usize::from(self.has_sink_record)
    }
}

/// The pool of sets; see the module documentation.
#[derive(Debug)]
pub(crate) struct SetPool {
    sets: Vec<Set>,
    /// `records_per_set` records per set: first the sink's own, then the carried ones in the order in which their reports
    /// were sent.
    records: Vec<SfRecord>,
    records_per_set: usize,
    capacity: usize,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    used: u64,
}

impl SetPool {
    /// Reserves memory for `capacity` sets of `records_per_set` records each.
    pub(crate) fn with_capacity(capacity: usize, records_per_set: usize) -> Self {
        let capacity = capacity.clamp(1, NO_SLOT as usize - 1);
        Self {
            sets: Vec::with_capacity(capacity),
            records: Vec::with_capacity(capacity * records_per_set),
            records_per_set,
            capacity,
            free: Vec::with_capacity(capacity),
            oldest: NO_SLOT,
            newest: NO_SLOT,
            used: 0,
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Prefetches a set and its first records.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(set) = self.sets.get(slot as usize) {
            prefetch(&set.opened);
            prefetch(&set.about.key);
        }
        let start = slot as usize * self.records_per_set;
        if let Some(records) = self.records.get(start..start + self.records_per_set) {
            records.iter().take(PREFETCHED_RECORDS).for_each(prefetch);
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.sets.len() == self.capacity
    }

    /// Returns the oldest set, open or complete.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NO_SLOT).then_some(self.oldest)
    }

    pub(crate) fn set(&self, slot: u32) -> &Set {
        &self.sets[slot as usize]
    }

    pub(crate) fn set_mut(&mut self, slot: u32) -> &mut Set {
        &mut self.sets[slot as usize]
    }

    /// Returns the carried records of a set, in the order in which their reports were sent.
    pub(crate) fn carried(&self, slot: u32) -> &[SfRecord] {
        let start = slot as usize * self.records_per_set + 1;
        &self.records[start..start + usize::from(self.sets[slot as usize].carried)]
    }

    /// Returns the sink's own record, if the set has one.
    pub(crate) fn sink_record(&self, slot: u32) -> Option<&SfRecord> {
        self.set(slot)
            .has_sink_record
            .then(|| &self.records[slot as usize * self.records_per_set])
    }

    /// Opens an empty set as the newest. The caller has checked that one is free.
    pub(crate) fn open(&mut self, flow: u32, now: Nanos) -> u32 {
        let set = Set {
            status: Status::Open,
            flow,
            opened: now,
            about: EventContext {
                ts: now,
                origin: Origin::NONE,
                key: <_>::default(),
                has_flow: false,
                profile: 0,
            },
            carried: 0,
            has_opening: false,
            order: 0,
            remaining: 0,
            has_sink_record: false,
            exceeded: false,
            has_several_subsystems: false,
            older: self.newest,
            newer: NO_SLOT,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.sets[slot as usize] = set;
                slot
            }
            None => {
                self.sets.push(set);
                self.records
                    .resize(self.sets.len() * self.records_per_set, SfRecord::NOTHING);
                self.sets.len() as u32 - 1
            }
        };
        match self.sets.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.used += 1;
        slot
    }

    pub(crate) fn close(&mut self, slot: u32) {
        let Set { older, newer, .. } = *self.set(slot);
        match self.sets.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.sets.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.set_mut(slot).status = Status::Free;
        self.free.push(slot);
        self.used -= 1;
    }

    /// Returns whether the set has room for one more record.
    pub(crate) fn has_room(&self, slot: u32) -> bool {
        usize::from(self.set(slot).carried) + 1 < self.records_per_set
    }

    /// Inserts a carried record at its position in the order of reports.
    pub(crate) fn insert(&mut self, slot: u32, record: SfRecord) {
        let start = slot as usize * self.records_per_set + 1;
        let count = usize::from(self.sets[slot as usize].carried);
        let records = &mut self.records[start..=start + count];
        let mut index = count;
        while index > 0 && is_before(record.order, records[index - 1].order) {
            records[index] = records[index - 1];
            index -= 1;
        }
        records[index] = record;
        self.sets[slot as usize].carried += 1;
    }

    /// Stores the sink's own record in a set.
    pub(crate) fn put_sink_record(&mut self, slot: u32, record: SfRecord) {
        self.records[slot as usize * self.records_per_set] = record;
        self.set_mut(slot).has_sink_record = true;
    }

    /// Writes the readings of all records into `readings`, source first and sink last if the order is proven. Returns the
    /// timestamps at the two ends.
    pub(crate) fn readings(&self, slot: u32, readings: &mut Vec<Reading>) -> EndTimestamps {
        readings.clear();
        let carried = self.carried(slot);
        let sink_record = self.sink_record(slot);
        readings.extend(
            carried
                .iter()
                .rev()
                .chain(sink_record)
                .map(|record| record.reading),
        );
        let first = carried.last().or(sink_record);
        let last = sink_record.or(carried.first());
        let mut ingress = first.map_or(NO_VALUE, |record| record.ingress);
        let mut egress = last.map_or(NO_VALUE, |record| record.egress);
        let is_first_wide = first.is_some_and(|record| record.wide);
        let is_last_wide = last.is_some_and(|record| record.wide);
        if is_first_wide != is_last_wide {
            // One timestamp has 32 bits and the other 64: compare both modulo 2^32.
            ingress = narrow(ingress);
            egress = narrow(egress);
        }
        if [first, last]
            .into_iter()
            .flatten()
            .any(|record| record.incomparable)
        {
            return EndTimestamps::NONE;
        }
        EndTimestamps {
            ingress,
            egress,
            wide: is_first_wide && is_last_wide,
        }
    }
}

/// Returns the position of a report among those of its sink's subsystem: sequence number and index in the datagram, in one
/// number. The shift by 10 keeps differences valid when the sequence number wraps (22 bits in Report 2.0).
pub(crate) fn order(seq: u32, index: u16) -> u32 {
    seq << 10 | u32::from(index.min(1023))
}

/// Returns true if `order` was sent before `other`, by serial number arithmetic.
fn is_before(order: u32, other: u32) -> bool {
    (order.wrapping_sub(other) as i32) < 0
}

/// Returns whether the timestamps of synchronised clocks are in the order of the path; `None` if they cannot tell.
pub(crate) fn is_in_order(pool: &SetPool, slot: u32, units: Units) -> Option<bool> {
    if !units.synchronised {
        return None;
    }
    let forward = pool.carried(slot).iter().rev().chain(pool.sink_record(slot));
    if { forward.clone() }.any(|record| record.ingress == NO_VALUE || record.incomparable) {
        return None;
    }
    let mut pairs = forward.clone().zip(forward.skip(1));
    Some(pairs.all(|(upstream, downstream)| {
        if upstream.wide && downstream.wide {
            downstream.ingress >= upstream.ingress
        } else {
            (downstream.ingress as u32).wrapping_sub(upstream.ingress as u32) < 1 << 31
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::{SetPool, SfRecord, Status, is_before, order};

    fn record(order: u32) -> SfRecord {
        SfRecord {
            order,
            ..SfRecord::NOTHING
        }
    }

    #[test]
    fn records_lie_in_the_order_in_which_their_reports_were_sent() {
        let mut pool = SetPool::with_capacity(2, 5);
        let slot = pool.open(7, 0);
        for number in [0x3f_ffff, 1, 0, 2] {
            assert!(pool.has_room(slot));
            pool.insert(slot, record(order(number, 0)));
        }
        assert!(!pool.has_room(slot));
        let numbers: Vec<u32> = pool
            .carried(slot)
            .iter()
            .map(|record| record.order >> 10)
            .collect();
        assert_eq!(numbers, [0x3f_ffff, 0, 1, 2], "numbers of 22 bits wrap");
    }

    #[test]
    fn reports_of_one_datagram_have_an_order_too() {
        assert!(is_before(order(5, 2), order(5, 3)) && is_before(order(5, 3), order(6, 0)));
        assert!(!is_before(order(5, 0), order(5, 0)));
    }

    #[test]
    fn the_list_of_sets_survives_closing_at_both_ends_and_in_the_middle() {
        let mut pool = SetPool::with_capacity(4, 2);
        let sets: Vec<u32> = (0..4).map(|_| pool.open(0, 0)).collect();
        assert!(pool.is_full());
        for (close, oldest) in [(1, 0), (0, 2), (3, 2)] {
            pool.close(sets[close]);
            assert_eq!(pool.oldest(), Some(sets[oldest]));
        }
        assert_eq!(pool.set(sets[2]).status, Status::Open);
        let reopened = pool.open(0, 0);
        pool.close(sets[2]);
        assert_eq!((pool.oldest(), pool.used()), (Some(reopened), 1));
        pool.close(reopened);
        assert_eq!((pool.oldest(), pool.used()), (None, 0));
        pool.open(0, 0);
        assert!(pool.oldest().is_some());
    }
}

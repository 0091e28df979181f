//! The pool of open sets. A set collects the SF-INT records of one packet. The pool has a fixed number of sets, linked in a
//! list from the oldest to the newest.

use memory::prefetch;

use crate::config::Units;
use crate::decode::{EndTimestamps, EventContext, NO_VALUE, Origin, Reading, narrow};
use crate::event::Nanos;
use crate::index::NO_SLOT;

/// Number of records per set that are prefetched.
const NEAR: usize = 5;

/// One node's record of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub(crate) struct Record {
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

impl Record {
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

/// State of a set. `Done`: complete, reported, and kept to detect late records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Free,
    Open,
    Done,
}

// A record fills one cache line.
const _: () = assert!(size_of::<Record>() == 64);

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
    /// The report of state Medium has arrived, ...
    pub(crate) opening: bool,
    /// ... with this order and this hop count, ...
    pub(crate) order: u32,
    pub(crate) remaining: u8,
    /// ... and a record of the sink itself.
    pub(crate) own: bool,
    /// At least one report had the E bit (hop count exceeded).
    pub(crate) exceeded: bool,
    /// Reports of several subsystems are in the set; their sequence numbers cannot be compared.
    pub(crate) mixed: bool,
    older: u32,
    newer: u32,
}

const _: () = assert!(size_of::<Set>() == 128);

impl Set {
    /// Returns the number of records in the set.
    pub(crate) fn records(&self) -> usize {
        usize::from(self.carried) + usize::from(self.own)
    }
}

/// The pool of sets; see the module documentation.
#[derive(Debug)]
pub(crate) struct Pool {
    sets: Vec<Set>,
    /// `room` records per set: first the sink's own, then the carried ones in the order in which their reports were sent.
    records: Vec<Record>,
    room: usize,
    capacity: usize,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    used: u64,
}

impl Pool {
    /// Reserves memory for `capacity` sets of `room` records each.
    pub(crate) fn with_capacity(capacity: usize, room: usize) -> Self {
        let capacity = capacity.clamp(1, NO_SLOT as usize - 1);
        Self {
            sets: Vec::with_capacity(capacity),
            records: Vec::with_capacity(capacity * room),
            room,
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
    pub(crate) fn prefetch(&self, at: u32) {
        if let Some(set) = self.sets.get(at as usize) {
            prefetch(&set.opened);
            prefetch(&set.about.key);
        }
        let start = at as usize * self.room;
        if let Some(records) = self.records.get(start..start + self.room) {
            records.iter().take(NEAR).for_each(prefetch);
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

    pub(crate) fn set(&self, at: u32) -> &Set {
        &self.sets[at as usize]
    }

    pub(crate) fn set_mut(&mut self, at: u32) -> &mut Set {
        &mut self.sets[at as usize]
    }

    /// Returns the carried records of a set, in the order in which their reports were sent.
    pub(crate) fn carried(&self, at: u32) -> &[Record] {
        let start = at as usize * self.room + 1;
        &self.records[start..start + usize::from(self.sets[at as usize].carried)]
    }

    /// Returns the sink's own record, if the set has one.
    pub(crate) fn own(&self, at: u32) -> Option<&Record> {
        self.set(at).own.then(|| &self.records[at as usize * self.room])
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
            opening: false,
            order: 0,
            remaining: 0,
            own: false,
            exceeded: false,
            mixed: false,
            older: self.newest,
            newer: NO_SLOT,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.sets[at as usize] = set;
                at
            }
            None => {
                self.sets.push(set);
                self.records.resize(self.sets.len() * self.room, Record::NOTHING);
                self.sets.len() as u32 - 1
            }
        };
        match self.sets.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.used += 1;
        at
    }

    pub(crate) fn close(&mut self, at: u32) {
        let Set { older, newer, .. } = *self.set(at);
        match self.sets.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.sets.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.set_mut(at).status = Status::Free;
        self.free.push(at);
        self.used -= 1;
    }

    /// Returns whether the set has room for one more record.
    pub(crate) fn has_room(&self, at: u32) -> bool {
        usize::from(self.set(at).carried) + 1 < self.room
    }

    /// Inserts a carried record at its position in the order of reports.
    pub(crate) fn insert(&mut self, at: u32, record: Record) {
        let start = at as usize * self.room + 1;
        let count = usize::from(self.sets[at as usize].carried);
        let records = &mut self.records[start..=start + count];
        let mut place = count;
        while place > 0 && is_before(record.order, records[place - 1].order) {
            records[place] = records[place - 1];
            place -= 1;
        }
        records[place] = record;
        self.sets[at as usize].carried += 1;
    }

    /// Stores the sink's own record in a set.
    pub(crate) fn put_own(&mut self, at: u32, record: Record) {
        self.records[at as usize * self.room] = record;
        self.set_mut(at).own = true;
    }

    /// Writes the readings of all records into `readings`, source first and sink last if the order is proven. Returns the
    /// timestamps at the two ends.
    pub(crate) fn readings(&self, at: u32, readings: &mut Vec<Reading>) -> EndTimestamps {
        readings.clear();
        let carried = self.carried(at);
        let own = self.own(at);
        readings.extend(carried.iter().rev().chain(own).map(|record| record.reading));
        let first = carried.last().or(own);
        let last = own.or(carried.first());
        let mut ingress = first.map_or(NO_VALUE, |record| record.ingress);
        let mut egress = last.map_or(NO_VALUE, |record| record.egress);
        let widths = (
            first.is_some_and(|record| record.wide),
            last.is_some_and(|record| record.wide),
        );
        if widths.0 != widths.1 {
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
            wide: widths.0 && widths.1,
        }
    }
}

/// Returns the position of a report among those of its sink's subsystem: sequence number and index in the datagram, in one
/// number. The shift by 10 keeps differences valid when the sequence number wraps (22 bits in Report 2.0).
pub(crate) fn order(seq: u32, index: u16) -> u32 {
    seq << 10 | u32::from(index.min(1023))
}

/// Returns true if `one` was sent before `other`, by serial number arithmetic.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// Returns whether the timestamps of synchronised clocks are in the order of the path; `None` if they cannot tell.
pub(crate) fn is_in_order(pool: &Pool, at: u32, units: Units) -> Option<bool> {
    if !units.synchronised {
        return None;
    }
    let forward = pool.carried(at).iter().rev().chain(pool.own(at));
    if { forward.clone() }.any(|record| record.ingress == NO_VALUE || record.incomparable) {
        return None;
    }
    let mut pairs = forward.clone().zip(forward.skip(1));
    Some(pairs.all(|(one, other)| {
        if one.wide && other.wide {
            other.ingress >= one.ingress
        } else {
            (other.ingress as u32).wrapping_sub(one.ingress as u32) < 1 << 31
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::{Pool, Record, Status, is_before, order};

    fn record(order: u32) -> Record {
        Record {
            order,
            ..Record::NOTHING
        }
    }

    #[test]
    fn records_lie_in_the_order_in_which_their_reports_were_sent() {
        let mut pool = Pool::with_capacity(2, 5);
        let at = pool.open(7, 0);
        for number in [0x3f_ffff, 1, 0, 2] {
            assert!(pool.has_room(at));
            pool.insert(at, record(order(number, 0)));
        }
        assert!(!pool.has_room(at));
        let numbers: Vec<u32> = pool.carried(at).iter().map(|record| record.order >> 10).collect();
        assert_eq!(numbers, [0x3f_ffff, 0, 1, 2], "numbers of 22 bits wrap");
    }

    #[test]
    fn reports_of_one_datagram_have_an_order_too() {
        assert!(is_before(order(5, 2), order(5, 3)) && is_before(order(5, 3), order(6, 0)));
        assert!(!is_before(order(5, 0), order(5, 0)));
    }

    #[test]
    fn the_list_of_sets_survives_closing_at_both_ends_and_in_the_middle() {
        let mut pool = Pool::with_capacity(4, 2);
        let sets: Vec<u32> = (0..4).map(|_| pool.open(0, 0)).collect();
        assert!(pool.is_full());
        for (close, oldest) in [(1, 0), (0, 2), (3, 2)] {
            pool.close(sets[close]);
            assert_eq!(pool.oldest(), Some(sets[oldest]));
        }
        assert_eq!(pool.set(sets[2]).status, Status::Open);
        let again = pool.open(0, 0);
        pool.close(sets[2]);
        assert_eq!((pool.oldest(), pool.used()), (Some(again), 1));
        pool.close(again);
        assert_eq!((pool.oldest(), pool.used()), (None, 0));
        pool.open(0, 0);
        assert!(pool.oldest().is_some());
    }
}

//! The table of flows: 5-tuple, path, and the latest values of each hop.
//!
//! A flow has an entry of 128 bytes that every report accesses, 64 more bytes that few reports access, and a run of hops of 40
//! bytes each in an arena (see `hops`). All memory is reserved at the start and used from the front, so unused memory is never
//! touched. `admission` selects the flow that a new one evicts. If the arena has no run for a path, a flow that is on probation
//! or idle is evicted, or the path is truncated, which is counted and marked.

use std::ops::Range;

use memory::prefetch;
use wire::FlowKey;

use super::deadband::Deadband;
use super::hops::{Arena, HopState, PacketValues, StoredHops};
use super::runs::Run;
use super::summary::FlowSummary;
use crate::admission::{Admission, NewEntry, Newcomers, establish, eviction_rank, is_established};
use crate::decode::{MAX_HOPS, NO_VALUE, Signals};
use crate::event::{Basis, Nanos};
use crate::index::Index;
use crate::stats::Table;

/// Bit of [`Flow::length`]: the latest report about the path is a postcard, not a report with INT. It shares a field with the
/// length so that one comparison decides whether the path of an INT report is the flow's.
const POSTCARDS: u16 = 1 << 15;
/// Bit of [`Flow::length`]: the latest report about the path may lack some of its nodes.
const PARTS: u16 = 1 << 14;
/// Number of flows that one search for a flow to evict visits.
const CANDIDATES_PER_SEARCH: usize = 32;

/// A flow's entry: the fields that every report accesses.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    /// Number of stored hops, which may be fewer than the path has.
    pub(crate) hops: u16,
    /// Number of nodes of its path, combined with the bits [`POSTCARDS`] and [`PARTS`].
    length: u16,
    /// Size class and position (`run`) of its hop states in the arena.
    class: u8,
    pub(crate) flags: Flags,
    run: u32,
    /// Value of the state's context counter when the flow was last refreshed.
    pub(crate) context: u64,
    pub(crate) last_seen: Nanos,
    pub(crate) reports: u64,
    /// Threshold of hop latency, ns.
    pub(crate) hop_deadband: u64,
    /// Flow latencies that are neither an event nor a new extreme of the minute.
    pub(crate) deadband: Deadband,
    pub(crate) latency: u64,
    /// Sum and count of the latency values in this minute.
    pub(crate) latency_sum: u64,
    pub(crate) latency_count: u32,
    /// Index of the flow's thresholds.
    pub(crate) threshold_set: u16,
    pub(crate) basis: Basis,
    pub(crate) marks: Marks,
    /// Bit i: rule i is true.
    pub(crate) rules: u64,
}

const _: () = assert!(size_of::<Flow>() == 128);

const _: () = assert!(MAX_HOPS < PARTS as usize);

/// The part of a flow that few reports access.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    pub(crate) hash: u64,
    pub(crate) first_seen: Nanos,
    /// Flow latency as last reported; `u64::MAX` if never.
    pub(crate) last_reported: u64,
    /// Minimum and maximum latency in the minute `minute`.
    pub(crate) min_latency: u64,
    pub(crate) max_latency: u64,
    /// The minute of `min_latency` and `max_latency`, since the Unix epoch.
    pub(crate) minute: u32,
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    /// Value of [`Flow::reports`] that the topology has accounted for, low 32 bits.
    pub(crate) accounted_reports: u32,
    /// Value of [`Flow::reports`] at the last push, low 32 bits.
    pub(crate) pushed_reports: u32,
    /// Hash of the flow's first report, which distinguishes a flow that comes back from the earlier one.
    pub(crate) first_report_hash: u32,
}

const _: () = assert!(size_of::<Cold>() == 64);

/// Initial hop count at the flow's source, as its reports show it (remaining hop count plus records).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct InitialHops(u16);

impl InitialHops {
    /// Bit: an intermediate report of the flow has shown that nodes remove records from its packets.
    const INTERMEDIATE: u16 = 1 << 15;

    pub(crate) fn new(count: u16, has_intermediate_reports: bool) -> Self {
        Self(
            count & !Self::INTERMEDIATE
                | if has_intermediate_reports {
                    Self::INTERMEDIATE
                } else {
                    0
                },
        )
    }

    /// Returns the count, or 0 if it is not known.
    pub(crate) fn count(self) -> u16 {
        self.0 & !Self::INTERMEDIATE
    }

    pub(crate) fn has_intermediate_reports(self) -> bool {
        self.0 & Self::INTERMEDIATE != 0
    }
}

/// A flow's [`Cold`] part, not looked up yet, because most reports do not need it.
#[derive(Debug)]
pub(crate) struct ColdPart<'a> {
    all: &'a mut [Cold],
    slot: u32,
}

impl<'a> ColdPart<'a> {
    pub(crate) fn get(self) -> &'a mut Cold {
        &mut self.all[self.slot as usize]
    }
}

/// All parts of a flow's entry, to be updated.
#[derive(Debug)]
pub(crate) struct FlowParts<'a> {
    pub(crate) flow: &'a mut Flow,
    pub(crate) cold: &'a mut Cold,
    pub(crate) states: &'a mut [HopState],
}

/// The parts of a flow's entry that most reports update; the cold part is not looked up yet.
#[derive(Debug)]
pub(crate) struct HotFlowParts<'a> {
    pub(crate) flow: &'a mut Flow,
    pub(crate) cold: ColdPart<'a>,
    pub(crate) hops: StoredHops<'a>,
}

/// All parts of a flow's entry, for views.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFlow<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) cold: &'a Cold,
    pub(crate) states: &'a [HopState],
}

/// Flags of a flow, one bit each, and the basis of its path's order in two bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The E and M bits of the latest report.
    pub(crate) const HOP_LIMIT: Self = Self(1);
    pub(crate) const MTU: Self = Self(2);
    /// The path is from a report that may lack hops.
    pub(crate) const INCOMPLETE: Self = Self(Signals::INCOMPLETE.bits());
    /// The path visits a node twice.
    pub(crate) const LOOP: Self = Self(4);
    /// Not every hop of the path is stored.
    pub(crate) const TRUNCATED: Self = Self(0x20);
    /// The next report tries to store the rest of a truncated path.
    pub(crate) const RETRY: Self = Self(0x40);
    /// Mask of the two bits with the basis of the path's order; see [`Flags::order`].
    const ORDER: u8 = 0x18;
    const ORDERS: [Basis; 4] = [
        Basis::Measured,
        Basis::HopLimit,
        Basis::Timestamps,
        Basis::Topology,
    ];

    /// Returns true if E and M are as in `signals`, and the path is as complete as the report with these signals.
    #[inline]
    pub(crate) fn matches(self, signals: Signals) -> bool {
        (self.0 ^ signals.bits()) & (Self::HOP_LIMIT.0 | Self::MTU.0 | Self::INCOMPLETE.0) == 0
    }

    #[inline]
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the basis of the path's order: [`Basis::Measured`] if a packet carried it.
    pub(crate) fn order(self) -> Basis {
        Self::ORDERS[usize::from((self.0 & Self::ORDER) >> 3)]
    }

    pub(crate) fn set_order(&mut self, order: Basis) {
        let index = Self::ORDERS.iter().position(|known| *known == order).unwrap_or(0);
        self.0 = self.0 & !Self::ORDER | (index as u8) << 3;
    }

    pub(crate) fn set(&mut self, other: Self, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }
}

/// The topology counts that include a flow, and E and M of the latest two minutes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Marks(u8);

impl Marks {
    /// The slot is in use.
    const USED: Self = Self(1);
    /// Counted on its nodes and links.
    pub(crate) const NETWORK: Self = Self(2);
    /// Counted on its path.
    pub(crate) const PATH: Self = Self(4);
    /// The flow's hops have changed since the topology last counted the flow.
    pub(crate) const HOPS_CHANGED: Self = Self(8);
    /// Bit positions of E and M in this minute and in the minute before; the bits are those of [`Flags`].
    const THIS_MINUTE: u32 = 4;
    const MINUTE_BEFORE: u32 = 6;
    const SIGNALS: u8 = Flags::HOP_LIMIT.0 | Flags::MTU.0;

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn set(&mut self, other: Self, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }

    /// Records E and M of a report. Returns the bits that begin: those that were absent for a whole calendar minute after the
    /// report that showed their end. Until then they count as set, because a filter suppresses reports that repeat them.
    pub(crate) fn record_signals(&mut self, now: Flags) -> Flags {
        let known = self.0 >> Self::THIS_MINUTE | self.0 >> Self::MINUTE_BEFORE;
        let signals = now.0 & Self::SIGNALS;
        self.0 |= signals << Self::THIS_MINUTE;
        Flags(signals & !known)
    }

    /// Begins a minute with E and M of the latest report. `is_next`: the minute directly follows the one that ends.
    pub(crate) fn begin_minute(&mut self, latest: Flags, is_next: bool) {
        let ending = self.0 >> Self::THIS_MINUTE & Self::SIGNALS;
        let before = if is_next { ending } else { 0 };
        let topology_bits =
            self.0 & !(Self::SIGNALS << Self::THIS_MINUTE | Self::SIGNALS << Self::MINUTE_BEFORE);
        self.0 =
            topology_bits | (latest.0 & Self::SIGNALS) << Self::THIS_MINUTE | before << Self::MINUTE_BEFORE;
    }
}

impl From<Signals> for Flags {
    fn from(signals: Signals) -> Self {
        Self(signals.bits())
    }
}

impl Flow {
    fn summary(&self) -> FlowSummary {
        let latency = (self.latency != NO_VALUE).then_some(self.latency);
        FlowSummary::new(self.key, latency, self.last_seen, self.reports)
    }

    /// Returns the number of nodes of its path, which may be more than are stored; 0 if it has no path.
    #[inline]
    pub(crate) fn path_length(&self) -> u16 {
        self.length & !(POSTCARDS | PARTS)
    }

    /// Returns true if its path has this length and comes from INT, with no postcard since.
    #[inline(always)]
    pub(crate) fn is_path_by_int(&self, length: usize) -> bool {
        usize::from(self.length) == length
    }

    /// Returns true if packets with INT carried its path.
    pub(crate) fn has_path_by_int(&self) -> bool {
        self.path_length() > 0 && self.flags.order() == Basis::Measured
    }

    /// Returns true if postcards arrived since the latest report with INT.
    pub(crate) fn has_postcards(&self) -> bool {
        self.length & POSTCARDS != 0
    }

    /// Returns true if parts of its path arrived since the latest report with all nodes.
    pub(crate) fn has_parts(&self) -> bool {
        self.length & PARTS != 0
    }

    /// Records that a part of its path arrived (`has_arrived`), or a report with all nodes.
    pub(crate) fn set_has_parts(&mut self, has_arrived: bool) {
        self.length = self.length & !PARTS | if has_arrived { PARTS } else { 0 };
    }

    /// Records that a postcard arrived (`has_arrived`), or a report with INT.
    pub(crate) fn set_has_postcards(&mut self, has_arrived: bool) {
        self.length = self.path_length() | if has_arrived { POSTCARDS } else { 0 };
    }

    /// Sets the length of its path and the basis of the order. Returns the previous length.
    pub(crate) fn set_path(&mut self, length: u16, order: Basis) -> u16 {
        let previous = self.path_length();
        self.length = length;
        self.set_has_postcards(order != Basis::Measured);
        self.flags.set_order(order);
        previous
    }

    fn run(&self) -> Run {
        Run {
            start: self.run,
            class: self.class,
        }
    }

    fn set_run(&mut self, run: Run) {
        (self.run, self.class) = (run.start, run.class);
    }
}

/// The table of flows; see the module documentation.
#[derive(Debug)]
pub(crate) struct Flows {
    entries: Vec<Flow>,
    cold: Vec<Cold>,
    initial: Vec<InitialHops>,
    free: Vec<u32>,
    arena: Arena,
    index: Index,
    newcomers: Newcomers,
    capacity: usize,
    evicted: u64,
    refused: u64,
    /// Number of flows whose path is currently truncated.
    truncated: u64,
    /// Slot at which the next search for a flow to evict starts (a clock hand).
    search_start: u32,
}

impl Flows {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let entries = Vec::with_capacity(capacity);
        memory::advise_huge(&entries);
        Self {
            entries,
            cold: Vec::with_capacity(capacity),
            initial: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            arena: Arena::for_flows(capacity),
            index: Index::with_capacity(capacity),
            newcomers: Newcomers::for_flows(capacity),
            capacity,
            evicted: 0,
            refused: 0,
            truncated: 0,
            search_start: 0,
        }
    }

    /// Prefetches the first bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the entry that probably belongs to `hash`, after its bucket. Returns its slot.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> u32 {
        let slot = self.index.probable_slot(hash);
        if let Some(entry) = self.entries.get(slot as usize) {
            prefetch(&entry.key);
            prefetch(&entry.reports);
        }
        slot
    }

    /// Prefetches the hops of the entry in `slot`, after the entry.
    #[inline]
    pub(crate) fn prefetch_hops(&self, slot: u32) {
        if let Some(entry) = self.entries.get(slot as usize) {
            let start = entry.run as usize;
            if let Some(hops) = self.arena.hops.get(start..start + usize::from(entry.hops)) {
                // Two hop states share a cache line.
                hops.iter().step_by(2).for_each(prefetch);
            }
            if let Some(values) = self.arena.values.get(start) {
                prefetch(values);
            }
        }
    }

    /// Returns true if `slot` contains this flow, and the flow was refreshed under `context`.
    #[inline(always)]
    pub(crate) fn is_ready(&self, slot: u32, key: &FlowKey, context: u64) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.context == context && entry.key.is(key))
    }

    /// Returns the slot of a flow, or [`NO_SLOT`](crate::index::NO_SLOT). Tries `hint` first.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64, hint: u32) -> u32 {
        if self.has_key(hint, key) {
            hint
        } else {
            self.index.find(hash, |slot| self.has_key(slot, key))
        }
    }

    #[inline(always)]
    fn has_key(&self, slot: u32, key: &FlowKey) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.key == *key)
    }

    /// Records in the index that the flow in `slot` reported; called at its second report and then once per second.
    pub(crate) fn touch(&mut self, slot: u32, second: u32) {
        if self.entries[slot as usize].reports >= 2 {
            establish(&mut self.index, self.cold[slot as usize].hash, slot, second);
        }
    }

    /// Finds a position for a new entry.
    pub(crate) fn admit(&mut self, hash: u64, second: u32) -> Admission {
        let full = self.free.is_empty() && self.entries.len() == self.capacity;
        let admission = self.newcomers.admit(&self.index, hash, second, full);
        match admission {
            Admission::Free(_) => {}
            Admission::Evict(..) => self.evicted += 1,
            Admission::Refused(_) => self.refused += 1,
        }
        admission
    }

    /// Inserts a new entry at the position that [`Flows::admit`] found, and returns its slot.
    pub(crate) fn insert(&mut self, room: NewEntry, key: FlowKey, hash: u64, now: Nanos, second: u32) -> u32 {
        let Run { start, class } = Run::EMPTY;
        let entry = Flow {
            key,
            hops: 0,
            length: 0,
            run: start,
            class,
            flags: Flags::default(),
            basis: Basis::Measured,
            context: 0,
            last_seen: now,
            reports: 0,
            hop_deadband: 0,
            deadband: Deadband::EMPTY,
            latency: u64::MAX,
            latency_sum: 0,
            latency_count: 0,
            threshold_set: 0,
            marks: Marks::USED,
            rules: 0,
        };
        let cold = Cold {
            hash,
            first_seen: now,
            last_reported: u64::MAX,
            min_latency: u64::MAX,
            max_latency: 0,
            minute: 0,
            generation: 0,
            epoch: 0,
            accounted_reports: 0,
            pushed_reports: 0,
            first_report_hash: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                (self.entries[slot as usize], self.cold[slot as usize]) = (entry, cold);
                self.initial[slot as usize] = InitialHops::default();
                slot
            }
            None => {
                self.entries.push(entry);
                self.cold.push(cold);
                self.initial.push(InitialHops::default());
                self.entries.len() as u32 - 1
            }
        };
        self.newcomers.insert(&mut self.index, room, hash, slot, second);
        slot
    }

    /// Returns the initial hop count at the source of the flow in `slot`.
    pub(crate) fn initial(&self, slot: u32) -> InitialHops {
        self.initial[slot as usize]
    }

    pub(crate) fn set_initial(&mut self, slot: u32, initial: InitialHops) {
        self.initial[slot as usize] = initial;
    }

    /// Frees the flow in `slot` and its hops.
    pub(crate) fn remove(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let cold = &mut self.cold[slot as usize];
        entry.marks = Marks::default();
        self.arena.release(entry.run());
        entry.set_run(Run::EMPTY);
        (entry.hops, entry.key) = (0, FlowKey::default());
        self.truncated -= u64::from(entry.flags.has(Flags::TRUNCATED));
        self.newcomers.remove(&mut self.index, cold.hash, slot);
        self.free.push(slot);
    }

    /// Returns the context under which the flow was last refreshed.
    pub(crate) fn context(&self, slot: u32) -> u64 {
        self.entries[slot as usize].context
    }

    /// Returns the entry, the cold part and the hop states of a flow.
    #[inline]
    pub(crate) fn parts(&mut self, slot: u32) -> FlowParts<'_> {
        let entry = &mut self.entries[slot as usize];
        let start = entry.run as usize;
        let hops = &mut self.arena.hops[start..start + usize::from(entry.hops)];
        FlowParts {
            flow: entry,
            cold: &mut self.cold[slot as usize],
            states: hops,
        }
    }

    /// Returns the same as [`Flows::parts`] for callers that rarely read the cold part.
    #[inline(always)]
    pub(crate) fn hot_parts(&mut self, slot: u32) -> HotFlowParts<'_> {
        let entry = &mut self.entries[slot as usize];
        let start = entry.run as usize;
        let end = start + usize::from(entry.hops);
        let Arena { hops, values, .. } = &mut self.arena;
        let hops = StoredHops {
            states: &mut hops[start..end],
            values: &mut values[start..end],
        };
        HotFlowParts {
            flow: entry,
            cold: ColdPart {
                all: &mut self.cold,
                slot,
            },
            hops,
        }
    }

    /// Resizes the path to `hops` empty hop states. If no run is long enough, stores as many as fit, and marks and counts the
    /// flow as truncated. Returns the number of hop states.
    pub(crate) fn resize_path(&mut self, slot: u32, hops: usize) -> usize {
        let Self { entries, arena, .. } = self;
        let wanted = hops.min(MAX_HOPS);
        let mut run = entries[slot as usize].run();
        if !run.fits(wanted) {
            arena.release(run);
            run = arena.acquire(wanted, slot, |owner, run| entries[owner as usize].set_run(run));
        }
        let entry = &mut entries[slot as usize];
        entry.set_run(run);
        let stored = wanted.min(run.capacity());
        entry.hops = stored as u16;
        let was_truncated = entry.flags.has(Flags::TRUNCATED);
        entry.flags.set(Flags::TRUNCATED, stored < hops);
        entry.flags.set(Flags::RETRY, false);
        match (was_truncated, stored < hops) {
            (false, true) => {
                self.truncated += 1;
                arena.note_truncation();
            }
            (true, false) => self.truncated -= 1,
            _ => {}
        }
        let start = entry.run as usize;
        arena.hops[start..start + stored].fill(HopState::NOTHING);
        arena.values[start..start + stored].fill(PacketValues::NOTHING);
        stored
    }

    /// Lets the next report retry to store the rest of a truncated path: an established flow may now get more room.
    pub(crate) fn retry_if_truncated(&mut self, slot: u32) {
        let flags = &mut self.entries[slot as usize].flags;
        flags.set(Flags::RETRY, flags.has(Flags::TRUNCATED));
    }

    /// Returns a flow to evict so that the flow in `slot` can have a path of `hops` hops. Its run is long enough, and it is on
    /// probation or, if the flow in `slot` is established, idle. Returns `None` if no eviction is necessary, or if a bounded
    /// search finds no such flow.
    pub(crate) fn find_flow_to_evict(&mut self, slot: u32, hops: usize, second: u32) -> Option<u32> {
        let entry = &self.entries[slot as usize];
        if entry.run().capacity() >= hops || self.arena.has_room(hops) {
            return None;
        }
        let all = self.entries.len() as u32;
        let candidates = (self.search_start..all)
            .chain(0..self.search_start.min(all))
            .take(CANDIDATES_PER_SEARCH);
        let established = is_established(&self.index, self.cold[slot as usize].hash, slot);
        let large_enough = candidates.filter(|candidate| {
            let run = self.entries[*candidate as usize].run();
            *candidate != slot && self.is_used(*candidate) && run.capacity() >= hops
        });
        let evictable = large_enough.filter_map(|candidate| {
            let hash = self.cold[candidate as usize].hash;
            let rank = eviction_rank(&self.index, hash, candidate, established, second)?;
            Some((rank, candidate))
        });
        let first = evictable.min();
        self.search_start = if self.search_start.saturating_add(CANDIDATES_PER_SEARCH as u32) < all {
            self.search_start + CANDIDATES_PER_SEARCH as u32
        } else {
            0
        };
        let (_, victim) = first?;
        self.evicted += 1;
        self.arena.note_eviction();
        Some(victim)
    }

    /// Returns the number of slots used so far; see [`Flows::is_used`].
    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.marks.has(Marks::USED))
    }

    /// Returns true if `slot` is used by a flow with a true rule.
    pub(crate) fn has_true_rules(&self, slot: u32) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.rules != 0 && entry.marks.has(Marks::USED))
    }

    /// Returns the flows in a range of slots. Reads only the entries, which are contiguous.
    pub(crate) fn summaries(&self, slots: Range<u32>) -> impl Iterator<Item = FlowSummary> {
        let end = (slots.end as usize).min(self.entries.len());
        let entries = self.entries.get(slots.start as usize..end).unwrap_or_default();
        entries
            .iter()
            .filter(|entry| entry.marks.has(Marks::USED))
            .map(Flow::summary)
    }

    /// Returns a flow for views, or `None` if the slot is unused.
    pub(crate) fn get(&self, slot: u32) -> Option<StoredFlow<'_>> {
        let entry = self
            .entries
            .get(slot as usize)
            .filter(|entry| entry.marks.has(Marks::USED))?;
        let cold = &self.cold[slot as usize];
        let start = entry.run as usize;
        Some(StoredFlow {
            flow: entry,
            cold,
            states: &self.arena.hops[start..start + usize::from(entry.hops)],
        })
    }

    /// Returns the values of the latest packet, parallel to the hop states of [`Flows::get`].
    pub(crate) fn packet_values(&self, slot: u32) -> &[PacketValues] {
        let run = self
            .entries
            .get(slot as usize)
            .map(|entry| (entry.run as usize, usize::from(entry.hops)));
        let (start, hops) = run.unwrap_or_default();
        self.arena.values.get(start..start + hops).unwrap_or_default()
    }

    /// Records that a flow has long been silent, so that it does not look recent when the index's wrapping second recurs.
    pub(crate) fn age(&mut self, slot: u32, second: u32) {
        self.index.age(self.cold[slot as usize].hash, slot, second);
    }

    /// Returns the number of flows whose path is currently truncated.
    pub(crate) fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Returns the usage of hop memory; `evicted` are flows evicted to make room, `refused` are truncated paths.
    pub(crate) fn hops_table(&self) -> Table {
        self.arena.table()
    }

    /// Returns the maximum number of flows.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: (self.entries.len() - self.free.len()) as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }

    /// Returns the bytes of memory in use, without reserved memory that was never touched.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Flow>()
            + self.cold.len() * size_of::<Cold>()
            + self.arena.bytes()
            + self.index.bytes()
            + self.newcomers.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::IDLE_SECONDS;

    fn key(n: u32) -> FlowKey {
        FlowKey::v4(n.to_be_bytes(), [10, 0, 0, 1], Some((1, 2)), 17)
    }

    fn add(flows: &mut Flows, n: u32) -> Option<u32> {
        let hash = key(n).hash(1);
        let room = match flows.admit(hash, 0) {
            Admission::Free(room) => room,
            Admission::Evict(room, slot) => {
                flows.remove(slot);
                room
            }
            Admission::Refused(_) => return None,
        };
        Some(flows.insert(room, key(n), hash, 0, 0))
    }

    #[test]
    fn a_full_table_replaces_and_keeps_its_size() {
        let mut flows = Flows::with_capacity(1000);
        for n in 0..50_000 {
            add(&mut flows, n);
        }
        let table = flows.table();
        assert!(table.used <= 1000 && table.used > 900, "{table:?}");
        assert_eq!(table.used + table.evicted + table.refused, 50_000);
        assert!(flows.bytes() < 1000 * 300, "without paths");
    }

    #[test]
    fn a_path_moves_to_a_longer_run_and_back() {
        let mut flows = Flows::with_capacity(64);
        let slot = add(&mut flows, 1).unwrap();
        for hops in [6, 8, 9, 255, 3, 32, 250] {
            assert_eq!(flows.resize_path(slot, hops), hops);
            let FlowParts {
                flow: entry, states, ..
            } = flows.parts(slot);
            assert_eq!((usize::from(entry.hops), states.len()), (hops, hops));
            assert!(states.iter().all(|state| *state == HopState::NOTHING));
            states.fill(HopState {
                node: 5,
                ..HopState::NOTHING
            });
        }
        assert_eq!(flows.truncated(), 0);
        assert_eq!((flows.resize_path(slot, 300), flows.truncated()), (256, 1));
        assert_eq!((flows.resize_path(slot, 3), flows.truncated()), (3, 0));
    }

    /// Adds flows of these lengths until the table is full, and compares what is stored.
    fn fill(capacity: usize, mut length: impl FnMut(u32) -> usize) -> Flows {
        let mut flows = Flows::with_capacity(capacity);
        let mut stored = std::collections::BTreeMap::new();
        for n in 0..capacity as u32 {
            let Some(slot) = add(&mut flows, n) else { continue };
            let hops = length(n);
            flows.resize_path(slot, hops);
            for (hop, state) in flows.parts(slot).states.iter_mut().enumerate() {
                (state.node, state.link) = (slot, hop as u32);
            }
            stored.insert(slot, hops);
        }
        for (slot, hops) in stored {
            let FlowParts { flow, states, .. } = flows.parts(slot);
            assert_eq!(
                (usize::from(flow.hops), flow.flags.has(Flags::TRUNCATED)),
                (hops, false)
            );
            assert!(
                states
                    .iter()
                    .zip(0..)
                    .all(|(state, hop)| (state.node, state.link) == (slot, hop))
            );
        }
        flows
    }

    #[test]
    fn a_table_full_of_paths_of_one_length_up_to_sixteen_or_of_any_mix_of_them_stores_every_hop() {
        for hops in 1..=16 {
            assert_eq!(fill(1024, |_| hops).hops_table().refused, 0, "{hops} hops");
        }
        fill(1024, |n| 1 + (n.wrapping_mul(0x9e37_79b1) >> 28) as usize);
        // A few long paths use the memory that short ones leave.
        fill(1024, |n| if n % 5 == 0 { 60 } else { 1 });
        fill(1024, |n| if n % 20 == 0 { 250 } else { 2 });
    }

    #[test]
    fn a_path_without_room_is_truncated_counted_and_marked() {
        let mut flows = Flows::with_capacity(64);
        let slots: Vec<u32> = (0..64).map(|n| add(&mut flows, n).unwrap()).collect();
        let room = (flows.hops_table().capacity / 256) as usize;
        let stored: Vec<usize> = slots.iter().map(|&slot| flows.resize_path(slot, 200)).collect();
        assert_eq!(
            (&stored[..room], &stored[room..]),
            (&vec![200; room][..], &vec![0; 64 - room][..])
        );
        assert_eq!(flows.truncated(), 64 - room as u64);
        assert_eq!(flows.hops_table().refused, 64 - room as u64);
        flows.remove(slots[0]);
        assert_eq!(flows.resize_path(slots[63], 200), 200);
        assert_eq!(flows.truncated(), 63 - room as u64);
        flows.remove(slots[62]);
        assert_eq!(flows.truncated(), 62 - room as u64);
    }

    #[test]
    fn a_flow_on_probation_makes_room_for_anothers_path_and_an_idle_one_for_that_of_an_established_flow() {
        let mut flows = Flows::with_capacity(64);
        let slots: Vec<u32> = (0..64).map(|n| add(&mut flows, n).unwrap()).collect();
        let room = (flows.hops_table().capacity / 256) as usize;
        for &slot in &slots[..room] {
            assert_eq!(
                (
                    flows.find_flow_to_evict(slot, 200, 0),
                    flows.resize_path(slot, 200)
                ),
                (None, 200)
            );
            flows.parts(slot).flow.reports = if slot == slots[7] { 1 } else { 2 };
            flows.touch(slot, 0);
        }
        let last = slots[63];
        let victims: Vec<u32> = (0..2)
            .filter_map(|_| flows.find_flow_to_evict(last, 200, 0))
            .collect();
        assert_eq!(victims, [slots[7]], "the search goes round the table");
        flows.remove(slots[7]);
        assert_eq!(
            (
                flows.find_flow_to_evict(last, 200, 0),
                flows.resize_path(last, 200)
            ),
            (None, 200)
        );
        assert_eq!(flows.hops_table().evicted, 1);
        let other = slots[62];
        let idle = u32::from(IDLE_SECONDS);
        let mut asked = |second| {
            (0..2)
                .filter_map(|_| flows.find_flow_to_evict(other, 200, second))
                .collect::<Vec<_>>()
        };
        assert_eq!((asked(0), asked(idle)), (vec![last], vec![last]));
        flows.remove(last);
        flows.resize_path(slots[61], 200);
        flows.parts(slots[61]).flow.reports = 2;
        flows.touch(slots[61], 1);
        let mut asked = |second| {
            (0..2)
                .filter_map(|_| flows.find_flow_to_evict(other, 200, second))
                .count()
        };
        assert_eq!(
            (asked(0), asked(idle)),
            (0, 0),
            "one on probation replaces no established flow"
        );
        flows.parts(other).flow.reports = 2;
        flows.touch(other, 0);
        let mut asked = |second| {
            (0..2)
                .filter_map(|_| flows.find_flow_to_evict(other, 200, second))
                .count()
        };
        assert_eq!((asked(idle - 1), asked(idle) > 0), (0, true));
    }

    #[test]
    fn six_hops_cost_at_most_600_bytes() {
        let mut flows = Flows::with_capacity(100_000);
        for n in 0..100_000 {
            if let Some(slot) = add(&mut flows, n) {
                flows.resize_path(slot, 6);
            }
        }
        let table = flows.table();
        assert!(table.used > 99_900, "{table:?}");
        assert!(flows.bytes() / 100_000 <= 500, "{}", flows.bytes() / 100_000);
    }
}

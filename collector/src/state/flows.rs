//! The table of flows: 5-tuple, path, and the latest values of each hop.
//!
//! A flow is an entry of 128 bytes that every report touches, 64 more that few do, and a run of hop states of 32 bytes in
//! an arena of runs of 8, 32 or 256. All of it is reserved at the start and used from the front, so that memory which
//! was never needed is never touched. Room is made by the index's rule (see `index`): the coldest of a new entry's sixteen
//! neighbours goes, unless all are busy.

use memory::prefetch;
use wire::FlowKey;

use super::deadband::Deadband;
use crate::decode::{ABSENT, Signals};
use crate::event::{Basis, Nanos};
use crate::index::{BUSY, Index, IndexPosition, InsertSlot, NO_SLOT};
use crate::stats::Table;

/// The latest values of one hop of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(32))]
pub(crate) struct HopState {
    pub(crate) node: u32,
    /// The interfaces as reported; `link_slot` belongs to the egress.
    pub(crate) link: u32,
    /// Hop latency as last reported and latest, ns, saturated at `ABSENT - 1`.
    pub(crate) last_reported: u32,
    pub(crate) latest: u32,
    pub(crate) node_slot: u32,
    pub(crate) link_slot: u32,
    pub(crate) queue_slot: u32,
    /// The queue that `queue_slot` belongs to, or [`NO_QUEUE`].
    pub(crate) queue: u16,
    pub(crate) level_2: bool,
}

const _: () = assert!(size_of::<HopState>() == 32);

/// No queue was reported.
pub(crate) const NO_QUEUE: u16 = u16::MAX;

impl HopState {
    pub(crate) const NOTHING: Self = Self {
        node: ABSENT,
        link: ABSENT,
        last_reported: ABSENT,
        latest: ABSENT,
        node_slot: NO_SLOT,
        link_slot: NO_SLOT,
        queue_slot: NO_SLOT,
        queue: NO_QUEUE,
        level_2: false,
    };

    /// Forgets the slots of this hop's series.
    pub(crate) fn unresolve(&mut self) {
        (self.node_slot, self.link_slot, self.queue_slot) = (NO_SLOT, NO_SLOT, NO_SLOT);
    }
}

/// A flow's entry: what every report touches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    /// Hops stored, which may be fewer than the path has.
    pub(crate) hops: u16,
    pub(crate) path_length: u16,
    class: u8,
    pub(crate) flags: Flags,
    run: u32,
    /// The collector's context when the flow was last brought up to date.
    pub(crate) context: u64,
    pub(crate) last_seen: Nanos,
    pub(crate) reports: u64,
    /// Threshold of hop latency, ns.
    pub(crate) hop_deadband: u64,
    /// Flow latencies that change nothing.
    pub(crate) deadband: Deadband,
    pub(crate) latency: u64,
    /// Of this minute.
    pub(crate) sum: u64,
    pub(crate) count: u32,
    pub(crate) set: u16,
    pub(crate) basis: Basis,
    /// Bit i: rule i is true.
    pub(crate) rules: u64,
}

const _: () = assert!(size_of::<Flow>() == 128);

/// The part of a flow that few reports touch.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    pub(crate) hash: u64,
    pub(crate) first_seen: Nanos,
    /// Flow latency as last reported; `u64::MAX`: never.
    pub(crate) last_reported: u64,
    /// Of this minute.
    pub(crate) least: u64,
    pub(crate) greatest: u64,
    /// Which minute.
    pub(crate) minute: u32,
    pub(crate) generation: u32,
    pub(crate) epoch: u32,
    pub(crate) used: bool,
    /// Reports at the last push, low bits, and when the flow was last brought up to date.
    pub(crate) pushed: u32,
    pub(crate) touched: u32,
}

const _: () = assert!(size_of::<Cold>() == 64);

/// A flow's [`Cold`] part, not looked up yet.
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

/// Bits that were reported and may end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flags(u8);

impl Flags {
    /// E and M, as the report had them.
    pub(crate) const HOP_LIMIT: Self = Self(Signals::HOP_LIMIT.bits());
    pub(crate) const MTU: Self = Self(Signals::MTU.bits());
    /// The path visits a node twice.
    pub(crate) const LOOP: Self = Self(4);
    /// By what the order of the path is known: two bits, see [`Flags::order`].
    const ORDER: u8 = 0x18;
    const ORDERS: [Basis; 4] = [Basis::Measured, Basis::HopLimit, Basis::Stamps, Basis::Topology];

    /// Are E and M as in `signals`?
    #[inline]
    pub(crate) fn matches(self, signals: Signals) -> bool {
        (self.0 ^ signals.bits()) & (Self::HOP_LIMIT.0 | Self::MTU.0) == 0
    }

    #[inline]
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// How the order of the path is known: [`Basis::Measured`] where a packet carried it.
    pub(crate) fn order(self) -> Basis {
        Self::ORDERS[usize::from((self.0 & Self::ORDER) >> 3)]
    }

    pub(crate) fn set_order(&mut self, order: Basis) {
        let at = Self::ORDERS.iter().position(|known| *known == order).unwrap_or(0);
        self.0 = self.0 & !Self::ORDER | (at as u8) << 3;
    }

    pub(crate) fn set(&mut self, other: Self, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }
}

impl From<Signals> for Flags {
    fn from(signals: Signals) -> Self {
        Self(signals.bits())
    }
}

/// Lengths of runs of hop states, and for each how many flows share one.
const CLASSES: [(usize, usize); 3] = [(8, 1), (32, 16), (256, 256)];

/// Runs of hop states, in one piece of memory; a run is given by where it begins.
#[derive(Debug)]
struct Arena {
    hops: Vec<HopState>,
    /// Runs of each class that were given back, and how many may still be cut from the unused memory.
    free: [Vec<u32>; CLASSES.len()],
    uncut: [usize; CLASSES.len()],
}

impl Arena {
    fn for_flows(flows: usize) -> Self {
        let uncut = CLASSES.map(|(_, share)| flows.div_ceil(share).max(16));
        let total: usize = uncut.iter().zip(CLASSES).map(|(runs, (length, _))| runs * length).sum();
        // One more, so that runs can begin with a cache line.
        let mut hops: Vec<HopState> = Vec::with_capacity(total + 1);
        memory::advise_huge(&hops);
        hops.resize(hops.as_ptr().align_offset(64).min(1), HopState::NOTHING);
        Self { hops, free: uncut.map(Vec::with_capacity), uncut }
    }

    fn acquire(&mut self, class: usize) -> Option<u32> {
        if let Some(run) = self.free[class].pop() {
            return Some(run);
        }
        self.uncut[class] = self.uncut[class].checked_sub(1)?;
        let start = self.hops.len();
        self.hops.resize(start + CLASSES[class].0, HopState::NOTHING);
        Some(start as u32)
    }

    fn release(&mut self, class: u8, run: u32) {
        self.free[usize::from(class)].push(run);
    }
}

/// Which flows were admitted lately, as well as a few bytes allow: in a flood a flow may be evicted before its
/// second report; when that comes, the flow is busy and stays.
#[derive(Debug)]
struct RecentFlows {
    tags: Vec<u16>,
}

impl RecentFlows {
    fn for_flows(flows: usize) -> Self {
        Self { tags: vec![0; (flows * 8).next_power_of_two()] }
    }

    /// Notes a flow, and returns whether it was noted before. What was noted is forgotten after about
    /// eight times as many newcomers as there is room for.
    fn again(&mut self, hash: u64) -> bool {
        let mark = ((hash >> 40) as u16).max(1);
        let at = (hash >> 8) as usize & (self.tags.len() - 1);
        std::mem::replace(&mut self.tags[at], mark) == mark
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Flows {
    entries: Vec<Flow>,
    cold: Vec<Cold>,
    free: Vec<u32>,
    arena: Arena,
    index: Index,
    recent: RecentFlows,
    capacity: usize,
    evicted: u64,
    refused: u64,
    /// Paths that found no run long enough.
    cut: u64,
}

/// Space for a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// There is room, here.
    Free(IndexPosition),
    /// There will be when this flow has been removed.
    Evict(IndexPosition, u32),
    /// There is none.
    Refused,
}

impl Flows {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let entries = Vec::with_capacity(capacity);
        memory::advise_huge(&entries);
        Self {
            entries,
            cold: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            arena: Arena::for_flows(capacity),
            index: Index::with_capacity(capacity),
            recent: RecentFlows::for_flows(capacity),
            capacity,
            evicted: 0,
            refused: 0,
            cut: 0,
        }
    }

    /// Prefetches the first bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Brings the entry that probably belongs to `hash` near, once its bucket is.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> u32 {
        let slot = self.index.guess(hash);
        if let Some(entry) = self.entries.get(slot as usize) {
            prefetch(&entry.key);
            prefetch(&entry.reports);
        }
        slot
    }

    /// Brings the hops of the entry in `slot` near, once the entry is.
    #[inline]
    pub(crate) fn prefetch_hops(&self, slot: u32) {
        if let Some(entry) = self.entries.get(slot as usize) {
            let start = entry.run as usize;
            if let Some(hops) = self.arena.hops.get(start..start + usize::from(entry.hops)) {
                // Two share a line.
                hops.iter().step_by(2).for_each(prefetch);
            }
        }
    }

    /// Is this the flow in `slot`, and was it brought up to date under `context`?
    #[inline(always)]
    pub(crate) fn is_ready(&self, slot: u32, key: &FlowKey, context: u64) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| entry.context == context && entry.key.is(key))
    }

    /// The slot of a flow, which is probably `hint`; [`NO_SLOT`] when there is none.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64, hint: u32) -> u32 {
        let is_it = |slot: u32| self.entries.get(slot as usize).is_some_and(|entry| entry.key == *key);
        if is_it(hint) { hint } else { self.index.find(hash, is_it) }
    }

    /// Records that the flow in `slot` had `reports` reports in `second`.
    pub(crate) fn touch(&mut self, slot: u32, reports: u64, second: u32) {
        self.index.touch(self.cold[slot as usize].hash, slot, reports, second);
    }

    /// Looks for room for a new entry.
    pub(crate) fn admit(&mut self, hash: u64, second: u32) -> Admission {
        let full = self.free.is_empty() && self.entries.len() == self.capacity;
        match self.index.room(hash, second, full) {
            InsertSlot::Free(place) => Admission::Free(place),
            InsertSlot::Evict(place, slot) => {
                self.evicted += 1;
                Admission::Evict(place, slot)
            }
            InsertSlot::Refused => {
                self.refused += 1;
                Admission::Refused
            }
        }
    }

    /// Puts a new entry where [`Flows::admit`] found room.
    pub(crate) fn insert(
        &mut self,
        place: IndexPosition,
        key: FlowKey,
        hash: u64,
        now: Nanos,
        second: u32,
    ) -> Option<u32> {
        let run = self.arena.acquire(0)?;
        let entry = Flow {
            key,
            hops: 0,
            path_length: 0,
            run,
            class: 0,
            flags: Flags::default(),
            basis: Basis::Measured,
            context: 0,
            last_seen: now,
            reports: 0,
            hop_deadband: 0,
            deadband: Deadband::EMPTY,
            latency: u64::MAX,
            sum: 0,
            count: 0,
            set: 0,
            rules: 0,
        };
        let cold = Cold {
            hash,
            first_seen: now,
            last_reported: u64::MAX,
            least: u64::MAX,
            greatest: 0,
            minute: 0,
            generation: 0,
            epoch: 0,
            used: true,
            pushed: 0,
            touched: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                (self.entries[slot as usize], self.cold[slot as usize]) = (entry, cold);
                slot
            }
            None => {
                self.entries.push(entry);
                self.cold.push(cold);
                self.entries.len() as u32 - 1
            }
        };
        let uses = if self.recent.again(hash) { BUSY } else { 1 };
        self.index.put(place, hash, slot, (uses, second));
        Some(slot)
    }

    /// Frees the flow in `slot` and all that belongs to it.
    pub(crate) fn remove(&mut self, slot: u32) {
        let (entry, cold) = (&mut self.entries[slot as usize], &mut self.cold[slot as usize]);
        cold.used = false;
        self.arena.release(entry.class, entry.run);
        (entry.hops, entry.key) = (0, FlowKey::default());
        self.index.remove(cold.hash, slot);
        self.free.push(slot);
    }

    /// When the flow was last brought up to date.
    pub(crate) fn context(&self, slot: u32) -> u64 {
        self.entries[slot as usize].context
    }

    /// The parts of a flow, together.
    #[inline]
    pub(crate) fn parts(&mut self, slot: u32) -> (&mut Flow, &mut Cold, &mut [HopState]) {
        let entry = &mut self.entries[slot as usize];
        let start = entry.run as usize;
        let hops = &mut self.arena.hops[start..start + usize::from(entry.hops)];
        (entry, &mut self.cold[slot as usize], hops)
    }

    /// The same, for callers that rarely read the cold part.
    #[inline(always)]
    pub(crate) fn hot_parts(&mut self, slot: u32) -> (&mut Flow, ColdPart<'_>, &mut [HopState]) {
        let entry = &mut self.entries[slot as usize];
        let start = entry.run as usize;
        let hops = &mut self.arena.hops[start..start + usize::from(entry.hops)];
        (entry, ColdPart { all: &mut self.cold, slot }, hops)
    }

    /// Makes the path `hops` long; what lay there is overwritten with nothing. When no run is long enough the flow keeps
    /// as many hops as fit, which is counted.
    pub(crate) fn resize_path(&mut self, slot: u32, hops: usize) -> usize {
        let entry = &mut self.entries[slot as usize];
        let class = usize::from(entry.class);
        let mut stored = hops.min(CLASSES[CLASSES.len() - 1].0);
        let fits = CLASSES.iter().position(|(length, _)| stored <= *length).unwrap_or(0);
        if fits != class {
            let other =
                (fits..CLASSES.len()).find_map(|class| Some((class as u8, self.arena.acquire(class)?)));
            if let Some((other, run)) = other {
                self.arena.release(entry.class, entry.run);
                (entry.class, entry.run) = (other, run);
            }
            stored = stored.min(CLASSES[usize::from(entry.class)].0);
        }
        self.cut += u64::from(stored < hops);
        entry.hops = stored as u16;
        let start = entry.run as usize;
        self.arena.hops[start..start + stored].fill(HopState::NOTHING);
        stored
    }

    /// Slots that were ever used; those in use now are [`Cold::used`].
    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.cold.get(slot as usize).is_some_and(|cold| cold.used)
    }

    /// Read access, for views.
    pub(crate) fn get(&self, slot: u32) -> Option<(&Flow, &Cold, &[HopState])> {
        let cold = self.cold.get(slot as usize).filter(|cold| cold.used)?;
        let entry = &self.entries[slot as usize];
        let start = entry.run as usize;
        Some((entry, cold, &self.arena.hops[start..start + usize::from(entry.hops)]))
    }

    /// Forgets the heat of a flow that has been silent, so that its age cannot be mistaken.
    pub(crate) fn cool(&mut self, slot: u32, second: u32) {
        self.index.cool(self.cold[slot as usize].hash, slot, second);
    }

    /// Reports of paths of which not every hop could be stored.
    pub(crate) fn cut_paths(&self) -> u64 {
        self.cut
    }

    /// Flows it has room for.
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

    /// Bytes of memory in use: what was reserved and never touched is not counted.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Flow>()
            + self.cold.len() * size_of::<Cold>()
            + self.arena.hops.len() * size_of::<HopState>()
            + self.index.bytes()
            + self.recent.tags.len() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> FlowKey {
        FlowKey::v4(n.to_be_bytes(), [10, 0, 0, 1], Some((1, 2)), 17)
    }

    fn add(flows: &mut Flows, n: u32) -> Option<u32> {
        let hash = key(n).hash(1);
        let place = match flows.admit(hash, 0) {
            Admission::Free(place) => place,
            Admission::Evict(place, slot) => {
                flows.remove(slot);
                place
            }
            Admission::Refused => return None,
        };
        flows.insert(place, key(n), hash, 0, 0)
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
        assert!(flows.bytes() < 1000 * 500);
    }

    #[test]
    fn a_path_moves_to_a_longer_run_and_back() {
        let mut flows = Flows::with_capacity(64);
        let slot = add(&mut flows, 1).unwrap();
        for hops in [6, 8, 9, 255, 3, 32, 250] {
            assert_eq!(flows.resize_path(slot, hops), hops);
            let (entry, _, states) = flows.parts(slot);
            assert_eq!((usize::from(entry.hops), states.len()), (hops, hops));
            assert!(states.iter().all(|state| *state == HopState::NOTHING));
            states.fill(HopState { node: 5, ..HopState::NOTHING });
        }
        assert_eq!(flows.resize_path(slot, 300), 256);
        assert_eq!(flows.cut_paths(), 1);
    }

    #[test]
    fn runs_that_are_used_up_shorten_what_is_kept_and_are_counted() {
        let mut flows = Flows::with_capacity(64);
        let slots: Vec<u32> = (0..20).map(|n| add(&mut flows, n).unwrap()).collect();
        let stored: Vec<usize> = slots.iter().map(|&slot| flows.resize_path(slot, 100)).collect();
        assert_eq!((&stored[..16], &stored[16..]), (&[100; 16][..], &[8; 4][..]));
        assert_eq!(flows.cut_paths(), 4);
        flows.remove(slots[0]);
        assert_eq!(flows.resize_path(slots[19], 100), 100);
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

    #[test]
    fn runs_begin_with_a_cache_line_and_are_as_many_as_promised() {
        let mut arena = Arena::for_flows(100);
        let before = arena.hops.capacity();
        for (class, (_, share)) in CLASSES.iter().enumerate() {
            for _ in 0..100_usize.div_ceil(*share).max(16) {
                let run = arena.acquire(class).unwrap() as usize;
                assert_eq!(arena.hops[run..].as_ptr().addr() % 64, 0, "class {class}");
            }
            assert_eq!(arena.acquire(class), None, "class {class}");
        }
        assert_eq!(arena.hops.capacity(), before, "it never grows");
    }
}

//! The table of flows that send SF-INT reports. Each entry has the flow's open sets (a *set* collects the records of one
//! packet, which arrive in several reports) and its confirmed paths. A confirmed path is a path that enough sets have proven;
//! see [`super`] for the proof.

use memory::prefetch;
use wire::FlowKey;

use crate::admission::{Admission, NewEntry, Newcomers, establish};
use crate::event::Nanos;
use crate::hash::fold;
use crate::index::{Index, NO_SLOT};
use crate::stats::Table;

/// Maximum number of sets of one flow, open or stored after completion.
pub(crate) const SETS: usize = 4;

/// Confirmed paths that are stored per flow: a flow may have several paths at once.
const PATHS: usize = 4;
/// A new order of known nodes needs this many times more sets than a path with new nodes: two packets that the network
/// reordered twice look as if they were in order.
const PERMUTATION_FACTOR: u8 = 4;

/// State of one flow. Fields are in the order of use: the first cache line finds the set of a report, the third decides
/// whether a complete set is accepted.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    is_used: bool,
    /// Number of consecutive sets that proved the candidate path.
    candidate_proofs: u8,
    /// The flow's open sets, the latest first; [`NO_SLOT`] if there is none.
    pub(crate) sets: [u32; SETS],
    /// Packet IDs of the open sets.
    pub(crate) ids: [u16; SETS],
    pub(crate) last_seen: Nanos,
    hash: u64,
    second: u32,
    reports: u32,
    /// Sets of the flow are not accepted before this time.
    pub(crate) suspended_until: Nanos,
    /// The latest path seen that is not confirmed yet.
    candidate: Path,
    /// The confirmed paths, the latest first.
    confirmed: [Path; PATHS],
}

const _: () = assert!(size_of::<Flow>() == 192);

/// A path as two hashes; both are 0 for "no path", so real hashes have their lowest bit set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Path {
    /// Hash of its nodes in order.
    pub(crate) order: u64,
    /// Hash of its nodes regardless of their order.
    pub(crate) nodes: u64,
}

impl Path {
    pub(crate) fn hash_nodes(nodes: impl Iterator<Item = u32>, seed: u64) -> Self {
        let mut path = Self {
            order: seed,
            nodes: 0,
        };
        let mut count = 0;
        for node in nodes {
            path.order = fold(path.order, node.into());
            path.nodes = path.nodes.wrapping_add(fold(seed, node.into()));
            count += 1;
        }
        Self {
            order: path.order | 1,
            nodes: fold(path.nodes, count) | 1,
        }
    }
}

impl Flow {
    /// Records the path of a complete set; `is_proven` says whether the set proves the order of its nodes. `min_proofs` such sets in
    /// a row confirm the path.
    pub(crate) fn confirm(&mut self, path: Path, is_proven: bool, min_proofs: u8) -> PathStatus {
        if self.confirmed.contains(&path) {
            if self.candidate.nodes == path.nodes {
                self.candidate = Path::default();
            }
            return PathStatus::Known;
        }
        if !is_proven {
            return PathStatus::Unproven;
        }
        if self.candidate != path {
            self.candidate = path;
            self.candidate_proofs = 0;
        }
        let is_permutation = self
            .confirmed
            .iter()
            .any(|confirmed| confirmed.nodes == path.nodes);
        let min_proofs = min_proofs.saturating_mul(if is_permutation { PERMUTATION_FACTOR } else { 1 });
        self.candidate_proofs = self.candidate_proofs.saturating_add(1);
        if self.candidate_proofs < min_proofs {
            return PathStatus::Candidate;
        }
        self.confirmed.rotate_right(1);
        self.confirmed[0] = path;
        self.candidate = Path::default();
        PathStatus::Known
    }

    /// Clears all paths, and accepts no sets before `until`.
    pub(crate) fn suspend(&mut self, until: Nanos) {
        (self.confirmed, self.candidate) = ([Path::default(); PATHS], Path::default());
        self.suspended_until = until;
    }

    /// Returns the flow's set with this packet ID.
    #[inline(always)]
    pub(crate) fn set(&self, packet_id: u16) -> Option<u32> {
        let mut sets = self.sets.into_iter().zip(self.ids);
        sets.find(|(set, id)| *set != NO_SLOT && *id == packet_id)
            .map(|(set, _)| set)
    }

    /// Adds a set as the latest. The caller has freed an entry.
    pub(crate) fn open(&mut self, set: u32, packet_id: u16) {
        // Fills the first gap, so that as few entries as possible move.
        let gap = self
            .sets
            .iter()
            .position(|slot| *slot == NO_SLOT)
            .unwrap_or(SETS - 1);
        self.sets.copy_within(..gap, 1);
        self.ids.copy_within(..gap, 1);
        self.sets[0] = set;
        self.ids[0] = packet_id;
    }

    /// Removes a set from the flow; the caller closes it in the pool.
    pub(crate) fn forget(&mut self, set: u32) {
        for slot in &mut self.sets {
            if *slot == set {
                *slot = NO_SLOT;
            }
        }
    }
}

/// Confirmation status of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathStatus {
    /// Enough sets have confirmed it.
    Known,
    /// More sets must confirm it.
    Candidate,
    /// This set does not prove the order.
    Unproven,
}

/// The table of flows with SF-INT reports.
#[derive(Debug)]
pub(crate) struct Flows {
    flows: Vec<Flow>,
    free: Vec<u32>,
    index: Index,
    newcomers: Newcomers,
    capacity: usize,
    evicted: u64,
    refused: u64,
}

impl Flows {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, NO_SLOT as usize - 1);
        Self {
            flows: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            index: Index::with_capacity(capacity),
            newcomers: Newcomers::for_flows(capacity),
            capacity,
            evicted: 0,
            refused: 0,
        }
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: (self.flows.len() - self.free.len()) as u64,
            capacity: self.capacity as u64,
            evicted: self.evicted,
            refused: self.refused,
        }
    }

    /// Returns the slot of a flow, or [`NO_SLOT`] if the table does not have it. Tries `hint` first.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64, hint: u32) -> u32 {
        if self.has_key(hint, key) {
            hint
        } else {
            self.index.find(hash, |slot| self.has_key(slot, key))
        }
    }

    #[inline(always)]
    fn has_key(&self, slot: u32, key: &FlowKey) -> bool {
        self.flows.get(slot as usize).is_some_and(|flow| flow.key.is(key))
    }

    /// Prefetches the first bucket of `hash`.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the flow that probably belongs to `hash`, after its bucket; returns its slot.
    #[inline(always)]
    pub(crate) fn prefetch_flow(&self, hash: u64) -> u32 {
        let slot = self.index.probable_slot(hash);
        if let Some(flow) = self.flows.get(slot as usize) {
            prefetch(&flow.key);
            prefetch(&flow.last_seen);
            prefetch(&flow.confirmed);
        }
        slot
    }

    /// Returns the flow's set with this packet ID, if it is open.
    #[inline(always)]
    pub(crate) fn set(&self, slot: u32, packet_id: u16) -> Option<u32> {
        self.flows.get(slot as usize)?.set(packet_id)
    }

    pub(crate) fn get(&self, slot: u32) -> &Flow {
        &self.flows[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Flow {
        &mut self.flows[slot as usize]
    }

    /// Records a report of a flow. Updates the index only at the flow's second report and then once per second.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32, now: Nanos, second: u32) {
        let flow = &mut self.flows[slot as usize];
        flow.last_seen = flow.last_seen.max(now);
        flow.reports = flow.reports.saturating_add(1);
        if flow.reports == 2 || flow.second != second {
            flow.second = second;
            if flow.reports >= 2 {
                establish(&mut self.index, flow.hash, slot, second);
            }
        }
    }

    /// Finds a position for a new entry.
    pub(crate) fn admit(&mut self, hash: u64, second: u32) -> Admission {
        let full = self.free.is_empty() && self.flows.len() == self.capacity;
        let admission = self.newcomers.admit(&self.index, hash, second, full);
        match admission {
            Admission::Free(_) => {}
            Admission::Evict(..) => self.evicted += 1,
            Admission::Refused(_) => self.refused += 1,
        }
        admission
    }

    /// Puts a new entry at the position that [`Flows::admit`] found; returns its slot.
    pub(crate) fn insert(
        &mut self,
        new_entry: NewEntry,
        key: FlowKey,
        hash: u64,
        now: Nanos,
        second: u32,
    ) -> u32 {
        let flow = Flow {
            key,
            hash,
            is_used: true,
            sets: [NO_SLOT; SETS],
            ids: [0; SETS],
            confirmed: [Path::default(); PATHS],
            candidate: Path::default(),
            candidate_proofs: 0,
            suspended_until: 0,
            last_seen: now,
            second,
            reports: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = flow;
                slot
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.newcomers
            .insert(&mut self.index, new_entry, hash, slot, second);
        slot
    }

    /// Frees a flow whose sets are closed.
    pub(crate) fn remove(&mut self, slot: u32) {
        let flow = &mut self.flows[slot as usize];
        (flow.is_used, flow.key) = (false, FlowKey::default());
        self.newcomers.remove(&mut self.index, flow.hash, slot);
        self.free.push(slot);
    }

    /// Returns the number of slots used so far.
    pub(crate) fn slots(&self) -> u32 {
        self.flows.len() as u32
    }

    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.flows.get(slot as usize).is_some_and(|flow| flow.is_used)
    }
}

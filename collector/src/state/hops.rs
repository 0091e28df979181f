//! The hops of all flows: an arena of runs (see `runs`), one contiguous run per flow.

use super::runs::{PAGE, Run, Runs};
use crate::decode::{ABSENT, Reading};
use crate::index::NO_SLOT;
use crate::stats::Table;

/// Bit: [`HopState::link`] is the level-2 egress interface.
const LEVEL_2: u32 = 1 << 31;
/// Stored value if the packet carried no utilization.
const NO_UTILIZATION: u32 = LEVEL_2 - 1;
/// Hops per flow for which memory is reserved.
const HOPS_PER_FLOW: usize = 16;
/// Additional pages: for space that size classes leave unused, and for a few long paths in small tables.
const SPARE_PAGES: usize = 32;

/// The latest values of one hop of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(32))]
pub(crate) struct HopState {
    pub(crate) node: u32,
    /// The reported interfaces as one word; `link_slot` belongs to the egress interface.
    pub(crate) link: u32,
    /// Hop latency as last reported (`last_reported`) and the latest one, ns, saturated at
    /// [`SATURATED`](super::node_metrics::SATURATED). The latest may be an implausible one, encoded like the low bits of a
    /// [`Reading::latency`].
    pub(crate) last_reported: u32,
    pub(crate) latest: u32,
    pub(crate) node_slot: u32,
    pub(crate) link_slot: u32,
    pub(crate) queue_slot: u32,
    /// Queue id in the high 8 bits and occupancy in the low 24, from the latest packet. `queue_slot` belongs to this queue.
    pub(crate) queue: u32,
}

const _: () = assert!(size_of::<HopState>() == 32);

impl HopState {
    pub(crate) const NOTHING: Self = Self {
        node: ABSENT,
        link: ABSENT,
        last_reported: ABSENT,
        latest: ABSENT,
        node_slot: NO_SLOT,
        link_slot: NO_SLOT,
        queue_slot: NO_SLOT,
        queue: ABSENT,
    };

    /// Clears the slots of this hop's series.
    pub(crate) fn unresolve(&mut self) {
        (self.node_slot, self.link_slot, self.queue_slot) = (NO_SLOT, NO_SLOT, NO_SLOT);
    }
}

/// Further values of a hop from the flow's latest packet. Every report writes them; only views and rules read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketValues {
    /// Utilization of the egress link in millionths, or [`NO_UTILIZATION`]; combined with the bit [`LEVEL_2`].
    utilization: u32,
    /// Queue id in the high 8 bits, congestion status in the low 24; all ones if the packet carried none.
    congestion: u32,
}

impl PacketValues {
    pub(crate) const NOTHING: Self = Self {
        utilization: NO_UTILIZATION,
        congestion: ABSENT,
    };
    /// The highest utilization that is stored; higher ones saturate.
    pub(crate) const SATURATED_UTILIZATION: u64 = NO_UTILIZATION as u64 - 1;

    /// Converts a reading. `utilization` is `None` if the packet carried none.
    #[inline(always)]
    pub(crate) fn of(reading: &Reading, utilization: Option<u64>) -> Self {
        let utilization = utilization.map_or(NO_UTILIZATION, Self::stored);
        let level_2 = if reading.level_2 { LEVEL_2 } else { 0 };
        Self {
            utilization: utilization | level_2,
            congestion: reading.congestion,
        }
    }

    #[inline(always)]
    fn stored(utilization: u64) -> u32 {
        utilization.min(Self::SATURATED_UTILIZATION) as u32
    }

    /// Replaces the values that are present, and keeps the others.
    pub(crate) fn update(&mut self, utilization: Option<u64>, congestion: u32, level_2: bool) {
        if let Some(utilization) = utilization {
            self.utilization = Self::stored(utilization);
        }
        self.utilization = self.utilization & !LEVEL_2 | if level_2 { LEVEL_2 } else { 0 };
        if congestion != ABSENT {
            self.congestion = congestion;
        }
    }

    pub(crate) fn level_2(self) -> bool {
        self.utilization & LEVEL_2 != 0
    }

    /// Returns the utilization in millionths, if the packet carried one.
    pub(crate) fn utilization(self) -> Option<u64> {
        let utilization = self.utilization & !LEVEL_2;
        (utilization != NO_UTILIZATION).then_some(u64::from(utilization))
    }

    /// Returns the utilization in millionths, or [`ABSENT`].
    #[inline(always)]
    pub(crate) fn utilization_or_absent(&self) -> u32 {
        let utilization = self.utilization & !LEVEL_2;
        if utilization == NO_UTILIZATION {
            ABSENT
        } else {
            utilization
        }
    }

    /// Returns the queue id in the high 8 bits and the congestion status in the low 24, or [`ABSENT`].
    #[inline(always)]
    pub(crate) fn congestion_or_absent(&self) -> u32 {
        self.congestion
    }

    /// Returns the congestion status of the queue.
    pub(crate) fn congestion(self) -> Option<u64> {
        (self.congestion != ABSENT).then_some(u64::from(self.congestion & 0x00ff_ffff))
    }
}

/// The stored hops of a flow: two slices of equal length.
#[derive(Debug)]
pub(crate) struct StoredHops<'a> {
    pub(crate) states: &'a mut [HopState],
    pub(crate) values: &'a mut [PacketValues],
}

impl<'a> StoredHops<'a> {
    #[inline(always)]
    pub(crate) fn iter_mut(self) -> impl Iterator<Item = (&'a mut HopState, &'a mut PacketValues)> {
        self.states.iter_mut().zip(self.values)
    }

    /// Returns the first hop of `node`, or `None` if there is none or `node` is [`ABSENT`].
    pub(crate) fn of_node(&mut self, node: u32) -> Option<(&mut HopState, &mut PacketValues)> {
        let at = self
            .states
            .iter()
            .position(|state| state.node == node)
            .filter(|_| node != ABSENT)?;
        Some((&mut self.states[at], &mut self.values[at]))
    }
}

/// Runs of hops. All memory is reserved at the start and used from the front.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) hops: Vec<HopState>,
    /// The packet values, at the same positions.
    pub(crate) values: Vec<PacketValues>,
    runs: Runs,
    /// Paths that were truncated because no run was long enough.
    truncated: u64,
    /// Flows that were evicted to make space for another's path.
    evicted: u64,
}

impl Arena {
    /// Creates an arena for the paths of `flows` flows.
    pub(crate) fn for_flows(flows: usize) -> Self {
        let pages = (flows * HOPS_PER_FLOW).div_ceil(PAGE) + SPARE_PAGES;
        // One more element, so that runs can be aligned to cache lines.
        let mut hops: Vec<HopState> = Vec::with_capacity(pages * PAGE + 1);
        memory::advise_huge(&hops);
        hops.resize(hops.as_ptr().align_offset(64).min(1), HopState::NOTHING);
        let mut values = Vec::with_capacity(pages * PAGE + 1);
        memory::advise_huge(&values);
        values.resize(hops.len(), PacketValues::NOTHING);
        Self {
            runs: Runs::with_pages(pages, hops.len()),
            hops,
            values,
            truncated: 0,
            evicted: 0,
        }
    }

    /// Returns true if a run for `hops` hops can be allocated.
    pub(crate) fn has_room(&self, hops: usize) -> bool {
        self.runs.has_room(hops)
    }

    /// Allocates a run for `hops` hops, or the longest shorter one, for the flow in slot `owner`. If another flow's run moves,
    /// calls `moved` with that flow's slot and its new run.
    pub(crate) fn acquire(&mut self, hops: usize, owner: u32, mut moved: impl FnMut(u32, Run)) -> Run {
        let Self {
            hops: states,
            values,
            runs,
            ..
        } = self;
        let run = runs.acquire(hops, owner, |relocation| {
            let from = relocation.from as usize;
            let to = relocation.run.start as usize;
            states.copy_within(from..from + relocation.run.capacity(), to);
            values.copy_within(from..from + relocation.run.capacity(), to);
            moved(relocation.owner, relocation.run);
        });
        if self.hops.len() < self.runs.end() {
            self.hops.resize(self.runs.end(), HopState::NOTHING);
            self.values.resize(self.runs.end(), PacketValues::NOTHING);
        }
        run
    }

    pub(crate) fn release(&mut self, run: Run) {
        self.runs.release(run);
    }

    /// Counts a truncated path.
    pub(crate) fn note_truncation(&mut self) {
        self.truncated += 1;
    }

    /// Counts a flow that is evicted for another's path.
    pub(crate) fn note_eviction(&mut self) {
        self.evicted += 1;
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: self.runs.used_hops() as u64,
            capacity: self.runs.capacity() as u64,
            evicted: self.evicted,
            refused: self.truncated,
        }
    }

    /// Returns the bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.hops.len() * (size_of::<HopState>() + size_of::<PacketValues>()) + self.runs.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_with_a_cache_line_and_the_memory_never_grows() {
        let mut arena = Arena::for_flows(100);
        let before = arena.hops.capacity();
        let mut acquire = |hops| arena.acquire(hops, 0, |_, _| {});
        let runs: Vec<Run> = (0..400).map(|n| acquire(1 + n % 20)).collect();
        for run in runs {
            assert_eq!(arena.hops[run.start as usize..].as_ptr().addr() % 64, 0);
        }
        while arena.acquire(3, 0, |_, _| {}).capacity() >= 3 {}
        assert_eq!(arena.hops.capacity(), before);
        assert!(arena.hops.len() <= before);
    }
}

//! The hop states of all flows, in one piece of memory: an arena of runs (see `runs`), one run per flow.

use super::runs::{PAGE, Run, Runs};
use crate::decode::ABSENT;
use crate::index::NO_SLOT;
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

/// Hops per flow for which memory is reserved.
const HOPS_PER_FLOW: usize = 16;

/// Pages on top, for what size classes leave unused: small tables have room for a few long paths too.
const SPARE_PAGES: usize = 32;

/// Runs of hop states. All memory is reserved at the start and used from the front.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) hops: Vec<HopState>,
    runs: Runs,
    /// Paths that were truncated for want of room.
    truncated: u64,
    /// Flows that were evicted so that another's path found room.
    evicted: u64,
}

impl Arena {
    /// An arena for the paths of `flows` flows.
    pub(crate) fn for_flows(flows: usize) -> Self {
        let pages = (flows * HOPS_PER_FLOW).div_ceil(PAGE) + SPARE_PAGES;
        // One more, so that runs can begin with a cache line.
        let mut hops: Vec<HopState> = Vec::with_capacity(pages * PAGE + 1);
        memory::advise_huge(&hops);
        hops.resize(hops.as_ptr().align_offset(64).min(1), HopState::NOTHING);
        Self { runs: Runs::with_pages(pages, hops.len()), hops, truncated: 0, evicted: 0 }
    }

    /// Is there a run for `hops` hops?
    pub(crate) fn has_room(&self, hops: usize) -> bool {
        self.runs.has_room(hops)
    }

    /// A run for `hops` hops or the longest shorter one, for the flow in slot `owner`. Where another flow's run moves, `moved`
    /// is called with that flow's slot and its new run.
    pub(crate) fn acquire(&mut self, hops: usize, owner: u32, mut moved: impl FnMut(u32, Run)) -> Run {
        let Self { hops: states, runs, .. } = self;
        let run = runs.acquire(hops, owner, |relocation| {
            let from = relocation.from as usize;
            states.copy_within(from..from + relocation.run.capacity(), relocation.run.start as usize);
            moved(relocation.owner, relocation.run);
        });
        if self.hops.len() < self.runs.end() {
            self.hops.resize(self.runs.end(), HopState::NOTHING);
        }
        run
    }

    /// Gives a run back.
    pub(crate) fn release(&mut self, run: Run) {
        self.runs.release(run);
    }

    /// Counts a path of which not every hop is stored.
    pub(crate) fn note_truncation(&mut self) {
        self.truncated += 1;
    }

    /// Counts a flow that makes room for another's path.
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

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.hops.len() * size_of::<HopState>() + self.runs.bytes()
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

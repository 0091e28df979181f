//! Pending postcards by flow: single-hop reports that wait for the other postcards of their packet. Also the candidate path of
//! each flow.

use std::collections::VecDeque;

use crate::config::Units;
use crate::decode::{NO_VALUE, Origin, Reading, lacks_ingress};
use crate::event::Nanos;
use crate::stats::{Partial, PostcardStats, Unjoinable};

/// Null value of a cell number.
const NONE: u32 = u32::MAX;
/// A path from INT is forgotten after this time (ns) without a report with all nodes, and at least [`FORGET_REPORTS`] others.
const FORGET_TIME: Nanos = 10_000_000_000;
const FORGET_REPORTS: u32 = 64;

/// A postcard that waits for the others of its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postcard {
    pub(crate) reading: Reading,
    pub(crate) units: Units,
    pub(crate) hop_limit: Option<u8>,
    /// Signature of the packet; 0: none.
    pub(crate) signature: u64,
    /// Other packets of the flow have the same signature. Set while the flow's postcards are being joined.
    pub(crate) shared: bool,
    /// The node reports that the packet entered the INT domain here.
    pub(crate) entered: bool,
    /// The node reports that the packet left the INT domain here.
    pub(crate) left: bool,
    /// Ingress timestamp in device units, or [`NO_VALUE`].
    pub(crate) ingress: u64,
    /// Egress timestamp in device units, or [`NO_VALUE`].
    pub(crate) egress: u64,
    /// The timestamps have 64 bits, not 32.
    pub(crate) wide: bool,
    pub(crate) profile: u8,
    pub(crate) received: Nanos,
    pub(crate) origin: Origin,
    /// It arrived in an aggregate, which no filter has seen.
    pub(crate) aggregated: bool,
}

impl Postcard {
    /// Returns true if its timestamps can be compared with other nodes'. An ingress timestamp of 0 means "none": see
    /// [`lacks_ingress`].
    pub(crate) fn has_time(&self) -> bool {
        self.units.synchronised
            && self.ingress != NO_VALUE
            && self.egress != NO_VALUE
            && !lacks_ingress(self.ingress, self.egress, self.units)
    }

    /// Returns true if both come from the same report.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        self.origin == other.origin && self.ingress == other.ingress && self.egress == other.egress
    }
}

/// An element of a linked list: of one flow's postcards, or of the free cells.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The number of the next cell, or [`NONE`].
    next: u32,
    postcard: Postcard,
}

/// The pending postcards of one flow, and its candidate path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingFlow {
    /// The cell of the latest postcard, or [`NONE`].
    head: u32,
    /// Number of pending postcards.
    pub(crate) count: u16,
    /// The flow is already in the queue.
    queued: bool,
    /// Number of consecutive sets with the candidate path.
    pub(crate) confirmations: u8,
    /// Hash of the candidate path.
    pub(crate) candidate: u64,
    /// While the flow's path comes from INT: time of the first report that did not confirm it since the latest that did. Such a
    /// report is a postcard, or has only a part of the path.
    pub(crate) unconfirmed_since: Nanos,
    /// Number of reports since then that did not confirm the path.
    pub(crate) unconfirmed: u32,
}

impl PendingFlow {
    const NONE: Self = Self {
        head: NONE,
        count: 0,
        queued: false,
        confirmations: 0,
        candidate: 0,
        unconfirmed_since: 0,
        unconfirmed: 0,
    };
}

impl PendingFlow {
    /// Counts a report at `now` that does not confirm the path; `is_first` if the report before it did. Returns true if the
    /// path is no longer valid.
    pub(crate) fn count_unconfirmed(&mut self, is_first: bool, now: Nanos) -> bool {
        if is_first {
            self.unconfirmed_since = now;
            self.unconfirmed = 0;
            self.confirmations = 0;
        }
        self.unconfirmed = self.unconfirmed.saturating_add(1);
        // The clock may have been set back since.
        self.unconfirmed_since = self.unconfirmed_since.min(now);
        now.saturating_sub(self.unconfirmed_since) >= FORGET_TIME && self.unconfirmed >= FORGET_REPORTS
    }
}

/// The table of pending postcards. All memory is reserved at the start.
#[derive(Debug)]
pub(crate) struct PendingPostcards {
    cells: Vec<Cell>,
    capacity: usize,
    /// The first free cell, or [`NONE`].
    free: u32,
    /// Pending postcards per flow, by the flow's slot.
    flows: Vec<PendingFlow>,
    /// Flows with postcards and the time at which each is due, in order.
    queue: VecDeque<(u32, Nanos)>,
    /// Counts of postcards by outcome.
    pub(crate) stats: PostcardStats,
}

impl PendingPostcards {
    /// Creates a table for `capacity` postcards of at most `flows` flows.
    pub(crate) fn with_capacity(capacity: usize, flows: usize) -> Self {
        Self {
            cells: Vec::with_capacity(capacity),
            capacity,
            free: NONE,
            flows: Vec::with_capacity(flows),
            queue: VecDeque::with_capacity(flows),
            stats: PostcardStats::default(),
        }
    }

    /// Returns true if postcards are not joined (the capacity is 0).
    #[inline]
    pub(crate) fn is_disabled(&self) -> bool {
        self.capacity == 0
    }

    /// Returns true if no cell is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE && self.cells.len() == self.capacity
    }

    /// Counts a postcard that cannot be joined.
    pub(crate) fn refuse(&mut self, why: Unjoinable) {
        self.stats.unjoinable[why as usize] += 1;
    }

    /// Counts postcards that leave the table without being joined.
    pub(crate) fn discard(&mut self, count: usize, why: Partial) {
        self.stats.released += count as u64;
        self.stats.partial[why as usize] += count as u64;
    }

    /// Ensures that the flow in `slot` has an entry.
    pub(crate) fn reserve_flow(&mut self, slot: u32) {
        let index = slot as usize;
        if self.flows.len() <= index {
            self.flows.resize(index + 1, PendingFlow::NONE);
        }
    }

    /// Returns the entry of a flow, which must exist.
    pub(crate) fn flow_mut(&mut self, slot: u32) -> &mut PendingFlow {
        &mut self.flows[slot as usize]
    }

    /// Queues a flow to be visited when it is `due`, unless it is already queued.
    pub(crate) fn enqueue(&mut self, slot: u32, due: Nanos) {
        let flow = &mut self.flows[slot as usize];
        if !flow.queued {
            flow.queued = true;
            self.queue.push_back((slot, due));
        }
    }

    /// Removes and returns the first flow of the queue, if it is due.
    pub(crate) fn dequeue(&mut self, now: Nanos) -> Option<u32> {
        let (slot, _) = self.queue.front().copied().filter(|(_, due)| *due <= now)?;
        self.queue.pop_front();
        self.flows[slot as usize].queued = false;
        Some(slot)
    }

    /// Returns the pending postcards of a flow, the latest first.
    pub(crate) fn of_flow(&self, slot: u32) -> impl Iterator<Item = &Postcard> {
        let mut next = self.flows.get(slot as usize).map_or(NONE, |flow| flow.head);
        std::iter::from_fn(move || {
            let cell = self.cells.get(next as usize)?;
            next = cell.next;
            Some(&cell.postcard)
        })
    }

    /// Returns the pending postcards of a flow with this signature.
    pub(crate) fn of_packet(&self, slot: u32, signature: u64) -> impl Iterator<Item = &Postcard> {
        self.of_flow(slot)
            .filter(move |postcard| postcard.signature == signature)
    }

    /// Adds a postcard to its flow, which must have an entry. The table must not be full.
    pub(crate) fn push(&mut self, slot: u32, postcard: &Postcard) {
        let flow = &mut self.flows[slot as usize];
        let cell = Cell {
            next: flow.head,
            postcard: *postcard,
        };
        let number = match self.cells.get_mut(self.free as usize) {
            Some(free) => {
                let number = std::mem::replace(&mut self.free, free.next);
                *free = cell;
                number
            }
            None => {
                self.cells.push(cell);
                self.cells.len() as u32 - 1
            }
        };
        flow.head = number;
        flow.count += 1;
    }

    /// Removes a flow's postcards and passes them to `visit`, except those for which `stays` returns true.
    pub(crate) fn pull(
        &mut self,
        slot: u32,
        mut visit: impl FnMut(&Postcard),
        mut stays: impl FnMut(&Postcard) -> bool,
    ) {
        let Some(flow) = self.flows.get_mut(slot as usize) else {
            return;
        };
        let mut number = std::mem::replace(&mut flow.head, NONE);
        while let Some(cell) = self.cells.get_mut(number as usize) {
            let next = cell.next;
            if stays(&cell.postcard) {
                cell.next = std::mem::replace(&mut flow.head, number);
            } else {
                visit(&cell.postcard);
                cell.next = std::mem::replace(&mut self.free, number);
                flow.count -= 1;
            }
            number = next;
        }
    }

    /// Discards the postcards of the flow in `slot`, which is being removed.
    pub(crate) fn forget(&mut self, slot: u32) {
        let mut gone = 0;
        self.pull(slot, |_| gone += 1, |_| false);
        self.discard(gone, Partial::FlowGone);
        if let Some(flow) = self.flows.get_mut(slot as usize) {
            *flow = PendingFlow {
                queued: flow.queued,
                ..PendingFlow::NONE
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FORGET_REPORTS, FORGET_TIME, PendingFlow};

    #[test]
    fn a_path_is_forgotten_after_its_time_also_if_the_clock_was_set_back() {
        let mut flow = PendingFlow::NONE;
        assert!(!flow.count_unconfirmed(true, 1000 * FORGET_TIME));
        let forgotten = (0..2 * FORGET_REPORTS).map(|at| {
            let now = FORGET_TIME * u64::from(at) / u64::from(FORGET_REPORTS);
            flow.count_unconfirmed(false, now)
        });
        assert_eq!(
            forgotten.take_while(|forgotten| !forgotten).count(),
            FORGET_REPORTS as usize
        );
    }
}

//! Walks over a worker's tables in slices of bounded time, so that received datagrams never wait long.
//!
//! Each function continues at slot `first` and returns the slot at which the next slice continues, or `None` at the end.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use collector::{Collector, FlowSummary, FlowView, NetworkEntry};

/// Duration of a slice: at a million datagrams per second, 500 wait meanwhile.
const SLICE_DURATION: Duration = Duration::from_micros(500);
/// Slots between two reads of the clock; takes far less than a slice even with the longest paths.
const SLOTS_PER_CLOCK_READ: u32 = 64;

/// Appends summaries of the flows from slot `first` on to `copies`.
pub fn copy_flows(collector: &Collector, first: u32, copies: &mut Vec<FlowSummary>) -> Option<u32> {
    visit_slots(first, collector.flow_slots(), SLICE_DURATION, |slots| {
        copies.extend(collector.flow_summaries_in(slots));
    })
}

/// Calls `visit` for each flow from slot `first` on.
pub fn visit_flows(collector: &Collector, first: u32, mut visit: impl FnMut(FlowView<'_>)) -> Option<u32> {
    visit_slots(first, collector.flow_slots(), SLICE_DURATION, |slots| {
        collector.flows_in(slots).for_each(&mut visit)
    })
}

/// Calls `visit` for each flow with a firing rule from slot `first` on.
pub fn visit_firing_flows(
    collector: &Collector,
    first: u32,
    mut visit: impl FnMut(FlowView<'_>),
) -> Option<u32> {
    visit_slots(first, collector.flow_slots(), SLICE_DURATION, |slots| {
        collector.firing_flows_in(slots).for_each(&mut visit)
    })
}

/// Calls `visit` for each entry of the network's tables from slot `first` on.
pub fn visit_network(
    collector: &Collector,
    first: u32,
    mut visit: impl FnMut(NetworkEntry<'_>),
) -> Option<u32> {
    visit_slots(first, collector.network_slots(), SLICE_DURATION, |slots| {
        collector.network_in(slots, &mut visit)
    })
}

/// Calls `visit` for ranges of slots, at least one, until the slice or the table ends. Returns the next slot.
fn visit_slots(first: u32, slots: u32, slice: Duration, mut visit: impl FnMut(Range<u32>)) -> Option<u32> {
    let start = Instant::now();
    let mut next = first;
    while next < slots && (next == first || start.elapsed() < slice) {
        let end = next.saturating_add(SLOTS_PER_CLOCK_READ);
        visit(next..end);
        next = end;
    }
    (next < slots).then_some(next)
}

#[cfg(test)]
mod tests {
    use testkit::workload::collector::{CASES, Input};

    use super::*;

    #[test]
    fn slices_copy_every_flow_once() {
        let (mut collector, mut feed) = (CASES[0].collector(), CASES[0].feed());
        let mut batch = collector::Batch::with_capacity(1 << 16);
        let mut reports = 0;
        while reports < 1_000 {
            reports += feed.burst(Input::Frames, &mut collector, &mut batch);
        }
        let (mut next, mut seen) = (Some(0), Vec::new());
        while let Some(first) = next {
            next = copy_flows(&collector, first, &mut seen);
        }
        assert!(
            seen.into_iter()
                .map(|copy| copy.flow)
                .eq(collector.flows().map(|flow| flow.row.flow))
        );
    }

    #[test]
    fn a_slice_visits_something_even_if_it_is_over_at_once() {
        let visited = |first, slots| {
            let mut ranges = Vec::new();
            let next = visit_slots(first, slots, Duration::ZERO, |range| {
                ranges.push((range.start, range.end));
            });
            (ranges, next)
        };
        assert_eq!(visited(0, 0), (vec![], None));
        assert_eq!(visited(0, 64), (vec![(0, 64)], None));
        assert_eq!(visited(64, 129), (vec![(64, 128)], Some(128)));
        assert_eq!(visited(128, 129), (vec![(128, 192)], None));
    }
}

//! A walk over all flows in slices of bounded time: datagrams never wait long for it.

use std::time::{Duration, Instant};

use collector::{Collector, FlowView};

/// Passes the flows in the slots from `first` on to `visit` until the slice is over. Returns the next slot; `None` at the end.
pub(crate) fn visit_flows(
    collector: &Collector,
    first: u32,
    mut visit: impl FnMut(&FlowView<'_>),
) -> Option<u32> {
    let (begun, slots) = (Instant::now(), collector.flow_slots());
    let mut next = first;
    while next < slots && (next == first || begun.elapsed() < SLICE) {
        let end = next.saturating_add(SLOTS_PER_LOOK);
        collector.flows_in(next..end).for_each(|flow| visit(&flow));
        next = end;
    }
    (next < slots).then_some(next)
}

/// Time of a slice: a small part of a tick.
const SLICE: Duration = Duration::from_millis(2);
/// Slots between two looks at the clock: well below a slice, with the longest paths too.
const SLOTS_PER_LOOK: u32 = 64;

#[cfg(test)]
mod tests {
    use collector::workload::{CASES, Input};

    use super::*;

    #[test]
    fn slices_visit_every_flow_once() {
        let (mut collector, mut feed) = (CASES[0].collector(), CASES[0].feed());
        let mut batch = collector::Batch::with_capacity(1 << 16);
        let mut reports = 0;
        while reports < 1_000 {
            reports += feed.burst(Input::Frames, &mut collector, &mut batch);
        }
        let (mut next, mut seen) = (Some(0), Vec::new());
        while let Some(first) = next {
            next = visit_flows(&collector, first, |flow| seen.push(flow.row.flow));
        }
        assert!(seen.into_iter().eq(collector.flows().map(|flow| flow.row.flow)));
    }
}

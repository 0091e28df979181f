//! Analyses a burst: which flows filled a queue, from the recorded reports of packets that passed it.
//!
//! A queue that is observed through its packets is known only when one passes. Its *peak* is the highest occupancy that a
//! packet saw. Its *rise* is the time in which it filled: from the last packet before the peak that saw at most a tenth of it.
//! The packets that left after the rise began, and entered before the peak packet did, filled the queue or passed while it
//! filled. So flows are ranked by their packets in the rise. A report stands for one or more packets (sampling in the network
//! is the same for all flows, if they are watched alike). The *wait* of a flow is the time that its packets spent in the node
//! since the rise began.

use std::collections::HashMap;

use collector::event::Nanos;
use wire::FlowKey;

/// A packet in a queue, according to its report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// Time at which it left, by one clock for all packets.
    pub ts: Nanos,
    /// The packet's flow, or `None` if the report has none.
    pub flow: Option<FlowKey>,
    /// Queue occupancy that the packet saw, device units.
    pub occupancy: Option<u64>,
    /// The packet's time inside the node, ns.
    pub latency: Option<u64>,
    /// Number of reports for which it stands: 1, or more if only some were stored.
    pub weight: u64,
}

impl Passage {
    /// Returns the queue depth that the packet saw: the occupancy, or the time inside the node if no report has an occupancy.
    fn depth(&self, has_occupancy: bool) -> Option<u64> {
        if has_occupancy {
            self.occupancy
        } else {
            self.latency
        }
    }

    /// Returns the time at which the packet entered the node.
    fn entered(&self) -> Nanos {
        self.ts.saturating_sub(self.latency.unwrap_or(0))
    }
}

/// A flow's share of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowShare {
    /// The flow; `None` for packets whose flow is not known.
    pub flow: Option<FlowKey>,
    /// Reports of its packets in the rise: they left after it began, and entered before the peak packet.
    pub rise: u64,
    /// Reports of its packets over the whole time.
    pub reports: u64,
    /// The longest time in the node since the rise began, ns.
    pub longest: Option<u64>,
    /// Sum of these times, ns.
    pub waited: u64,
    /// Time at which its first packet left.
    pub first: Nanos,
    /// Time at which its last packet left.
    pub last: Nanos,
}

/// The analysis of a queue over some time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Burst {
    /// Time of the peak, and the occupancy then. If no report has an occupancy (`None`), the peak is the longest time in the
    /// node.
    pub peak: Option<(Nanos, Option<u64>)>,
    /// Time at which the rise began.
    pub begun: Nanos,
    /// Reports of packets that entered during the rise.
    pub rise: u64,
    /// Reports of all packets in the queue.
    pub reports: u64,
    /// The flows, ordered by reports in the rise, most first.
    pub flows: Vec<FlowShare>,
}

/// Analyses the packets of one queue, which may be in any order.
pub fn analyse(mut passages: Vec<Passage>) -> Burst {
    passages.sort_by_key(|passage| passage.ts);
    let has_occupancy = passages.iter().any(|passage| passage.occupancy.is_some());
    // Some reports have no occupancy, for example drops. Of equal peaks the first counts.
    let Some((peak_index, peak)) = passages
        .iter()
        .enumerate()
        .max_by_key(|(index, passage)| (passage.depth(has_occupancy), usize::MAX - index))
    else {
        return Burst::default();
    };
    let low_depth = peak.depth(has_occupancy).unwrap_or(0) / 10;
    let last_low = passages[..peak_index].iter().rposition(|passage| {
        passage
            .depth(has_occupancy)
            .is_some_and(|depth| depth <= low_depth)
    });
    let rise_start = last_low.map_or(passages[0].ts, |index| passages[index].ts);
    // The peak packet was queued behind the packets that made the peak.
    let peak_at = peak.ts;
    let peak_entered = peak.entered();
    let mut shares: HashMap<Option<FlowKey>, FlowShare> = HashMap::new();
    let mut burst = Burst {
        peak: Some((peak_at, peak.occupancy.filter(|_| has_occupancy))),
        begun: rise_start,
        ..Burst::default()
    };
    for passage in &passages {
        let Passage {
            ts,
            flow,
            latency,
            weight,
            ..
        } = *passage;
        let share = shares.entry(flow).or_insert(FlowShare {
            flow,
            rise: 0,
            reports: 0,
            longest: None,
            waited: 0,
            first: ts,
            last: ts,
        });
        share.reports += weight;
        burst.reports += weight;
        share.last = ts;
        // The packet left after the rise began, and entered no later than the peak packet.
        if ts >= rise_start && passage.entered() <= peak_entered && (ts > rise_start || last_low.is_none()) {
            share.rise += weight;
            burst.rise += weight;
        }
        if let Some(latency) = latency.filter(|_| ts >= rise_start) {
            share.longest = share.longest.max(Some(latency));
            share.waited = share.waited.saturating_add(latency.saturating_mul(weight));
        }
    }
    burst.flows = shares.into_values().collect();
    burst.flows.sort_by_key(|share| {
        (
            std::cmp::Reverse((share.rise, share.reports)),
            share.first,
            share.flow.map(|flow| flow.id()),
        )
    });
    burst
}

#[cfg(test)]
mod tests;

//! Who filled a queue: from the reports of packets that passed it.
//!
//! A queue that is observed through its packets is known only when one passes. Its *peak* is the highest occupancy that a packet
//! saw. The *rise* is the time in which it filled: from the last packet before the peak that saw less than a tenth of it. Packets that
//! left after it began and entered before that packet did are what filled it, or passed while it filled; so flows are ordered by their packets in
//! the rise, of which a report stands for one or more (sampling in the network is the same for all flows, as far as they are watched alike).
//! What a flow *suffered* is the time that its packets spent in the node since the rise began.

use std::collections::HashMap;

use wire::FlowKey;

use crate::event::Nanos;

/// A packet in a queue, as its report says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// When it left, by one clock for all of them.
    pub ts: Nanos,
    /// The packet's flow, or `None` if the report has none.
    pub flow: Option<FlowKey>,
    /// Queue occupancy that the packet saw, device units.
    pub occupancy: Option<u64>,
    /// The packet's time inside the node, ns.
    pub latency: Option<u64>,
    /// For how many reports it stands: 1, or more if only some were stored.
    pub weight: u64,
}

impl Passage {
    /// The queue's depth that it saw: its occupancy, or the time inside where no report has an occupancy.
    fn depth(&self, has_occupancy: bool) -> Option<u64> {
        if has_occupancy {
            self.occupancy
        } else {
            self.latency
        }
    }

    /// When it entered: before it left, by the time that it was inside.
    fn entered(&self) -> Nanos {
        self.ts.saturating_sub(self.latency.unwrap_or(0))
    }
}

/// A flow's part in a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The flow; `None`: packets whose flow is not known.
    pub flow: Option<FlowKey>,
    /// Reports of its packets in the rise: they left after it began, and entered before the packet that saw the peak.
    pub rise: u64,
    /// Reports of its packets in the whole burst.
    pub reports: u64,
    /// The longest time in the node since the rise began, ns.
    pub longest: Option<u64>,
    /// The sum of these times, ns.
    pub waited: u64,
    /// When its first and its last packet left.
    pub first: Nanos,
    /// Time at which its last packet left.
    pub last: Nanos,
}

/// A queue over some time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Burst {
    /// When the peak was seen, and the occupancy then; `None` if no report has the occupancy: then the peak is the longest time in the node.
    pub peak: Option<(Nanos, Option<u64>)>,
    /// When the rise began.
    pub begun: Nanos,
    /// Reports of packets that entered during the rise.
    pub rise: u64,
    /// Reports of all packets in the queue.
    pub reports: u64,
    /// The flows, the one with the most reports in the rise first.
    pub flows: Vec<Part>,
}

/// Reads the packets of one queue, in any order.
pub fn read(mut passages: Vec<Passage>) -> Burst {
    passages.sort_by_key(|passage| passage.ts);
    let has_occupancy = passages.iter().any(|passage| passage.occupancy.is_some());
    // A drop's report, for one, does not have it.
    // Of equal ones the first.
    let Some((top, peak)) = passages
        .iter()
        .enumerate()
        .max_by_key(|(at, one)| (one.depth(has_occupancy), usize::MAX - at))
    else {
        return Burst::default();
    };
    let low = peak.depth(has_occupancy).unwrap_or(0) / 10;
    let before = passages[..top]
        .iter()
        .rposition(|passage| passage.depth(has_occupancy).is_some_and(|depth| depth <= low));
    let begun = before.map_or(passages[0].ts, |at| passages[at].ts);
    // The packet that saw the peak was behind those that made it.
    let peak_at = peak.ts;
    let peak_entered = peak.entered();
    let mut parts: HashMap<Option<FlowKey>, Part> = HashMap::new();
    let mut burst = Burst {
        peak: Some((peak_at, peak.occupancy.filter(|_| has_occupancy))),
        begun,
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
        let part = parts.entry(flow).or_insert(Part {
            flow,
            rise: 0,
            reports: 0,
            longest: None,
            waited: 0,
            first: ts,
            last: ts,
        });
        part.reports += weight;
        burst.reports += weight;
        part.last = ts;
        // It left after the rise began, and entered up to the packet that saw the peak.
        if ts >= begun && passage.entered() <= peak_entered && (ts > begun || before.is_none()) {
            part.rise += weight;
            burst.rise += weight;
        }
        if let Some(latency) = latency.filter(|_| ts >= begun) {
            part.longest = part.longest.max(Some(latency));
            part.waited = part.waited.saturating_add(latency.saturating_mul(weight));
        }
    }
    burst.flows = parts.into_values().collect();
    burst.flows.sort_by_key(|part| {
        (
            std::cmp::Reverse((part.rise, part.reports)),
            part.first,
            part.flow.map(|flow| flow.id()),
        )
    });
    burst
}

#[cfg(test)]
mod tests;

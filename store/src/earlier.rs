//! The state of a flow before some time, from its stored events.
//!
//! A value that has not changed by more than its threshold is stored once, possibly hours before the time of a question. So the
//! events before that time are read, newest first and in growing windows, until each node of the flow's path has a value, or
//! the flow's first event was read.

use collector::Kind;
use collector::event::Nanos;
use detect::Metric;

use crate::rows::{EventRow, FlowPoint};

/// Lengths of the windows before a time, ns: 5 minutes, 40 minutes, 5 hours, 2 days, 2 weeks. The last window is unbounded.
const WINDOWS: [Nanos; 5] = [
    300_000_000_000,
    2_400_000_000_000,
    19_200_000_000_000,
    153_600_000_000_000,
    1_228_800_000_000_000,
];

/// The state of a flow before a time.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct EarlierState {
    /// The latest values; its time is that of the newest event.
    pub(crate) point: Option<FlowPoint>,
    /// The path, and the time of the earliest event known to show it.
    pub(crate) path: Option<(Nanos, Vec<u32>)>,
    /// True if the event that began the path was read.
    has_path_start: bool,
    /// Largest threshold of the hop latency changes, ns.
    pub(crate) threshold: u64,
    /// Time of the event that began the flow; earlier events belong to an earlier flow of the same key.
    begun: Option<Nanos>,
    /// Nodes of the path that an earlier path lacks: their values before it do not hold any more.
    returned: Vec<u32>,
    events: usize,
}

impl EarlierState {
    /// Maximum number of events that are read.
    pub const MAX_EVENTS: usize = 50_000;
    /// SQL condition for the events of the first window, which include the latest values stored at intervals.
    pub const RECENT_EVENTS: &str = "metric IN ('flow_path', 'flow_latency', 'hop_latency') AND \
                                     kind IN ('new', 'change', 'path_change', 'path_loop', 'latest', 'expired')";
    /// SQL condition for the events of the other windows.
    pub const EVENTS: &str = "metric IN ('flow_path', 'flow_latency', 'hop_latency') AND \
                              kind IN ('new', 'change', 'path_change', 'path_loop', 'expired')";

    /// Returns the windows to read before a time as (start, end), the latest first. There are no events before `oldest`.
    pub fn windows(before: Nanos, oldest: Nanos) -> impl Iterator<Item = (Nanos, Nanos)> {
        let starts = WINDOWS.map(|length| before.saturating_sub(length));
        let ends = [before].into_iter().chain(starts);
        starts
            .into_iter()
            .chain([0])
            .zip(ends)
            .filter(move |(_, end)| *end > oldest)
    }

    /// Returns the SQL condition for the events of a window that ends at `end`.
    pub fn events_of(before: Nanos, end: Nanos) -> &'static str {
        if end == before {
            Self::RECENT_EVENTS
        } else {
            Self::EVENTS
        }
    }

    /// Returns the number of events that may still be read.
    pub fn budget(&self) -> usize {
        Self::MAX_EVENTS.saturating_sub(self.events)
    }

    /// Adds the events of a window, newest first. Returns true once no earlier event matters.
    pub fn add_window(&mut self, rows: Vec<EventRow>) -> bool {
        self.events += rows.len();
        let mut last = None;
        for row in rows {
            let ts = row.event.ts;
            // Events of one report have one time, and come in any order.
            if last != Some(ts) && self.is_complete() {
                return true;
            }
            last = Some(ts);
            self.add(row);
        }
        self.is_complete()
    }

    /// Returns true if no earlier event matters.
    pub fn is_complete(&self) -> bool {
        self.begun.is_some() || self.has_all_values()
    }

    fn has_all_values(&self) -> bool {
        let Some((point, (_, path))) = self.point.as_ref().zip(self.path.as_ref()) else {
            return false;
        };
        point.flow_latency.is_some()
            && path.iter().all(|node| {
                *node == u32::MAX || point.value_of(*node).is_some() || self.returned.contains(node)
            })
    }

    fn add(&mut self, row: EventRow) {
        let EventRow {
            event, path, first, ..
        } = row;
        if self.begun.is_some_and(|begun| event.ts < begun) {
            return;
        }
        let is_path = event.metric == Some(Metric::FlowPath);
        if event.kind == Kind::Expired {
            if is_path {
                self.begun = Some(event.ts.saturating_add(1));
            }
            return;
        }
        if is_path && event.kind == Kind::New && event.previous.is_none() {
            self.begun = Some(event.ts);
        }
        let point = self.point.get_or_insert_with(|| FlowPoint {
            ts: event.ts,
            ..FlowPoint::default()
        });
        match (event.metric, event.node, event.value) {
            (Some(Metric::HopLatency), Some(node), Some(value)) => {
                self.threshold = self.threshold.max(event.threshold.unwrap_or(0));
                point.add_hop(node, value, &self.returned);
            }
            (Some(Metric::FlowLatency), _, Some(value)) if point.flow_latency.is_none() => {
                (point.flow_latency, point.basis) = (Some(value), event.basis);
            }
            _ => {}
        }
        if let Some(first) = first {
            if point.flow_latency.is_none() {
                (point.flow_latency, point.basis) = (first.flow_latency, first.basis);
            }
            for (node, latency) in path.iter().zip(&first.hop_latencies) {
                if *latency != u32::MAX {
                    point.add_hop(*node, (*latency).into(), &self.returned);
                }
            }
        }
        if !path.is_empty() {
            self.add_path(event.ts, path, is_path);
        }
    }

    /// Adds a path at an earlier time than all before. `is_start` means that an event reported it as new.
    fn add_path(&mut self, ts: Nanos, path: Vec<u32>, is_start: bool) {
        match &mut self.path {
            Some((since, known)) if *known == path => {
                if !self.has_path_start {
                    *since = ts;
                    self.has_path_start = is_start;
                }
            }
            Some((_, known)) => {
                self.has_path_start = true;
                let point = self.point.as_ref();
                let left = known
                    .iter()
                    .filter(|node| !path.contains(node) && !path.contains(&u32::MAX));
                let left = left.filter(|node| point.is_none_or(|point| point.value_of(**node).is_none()));
                self.returned.extend(left);
            }
            none => {
                *none = Some((ts, path));
                self.has_path_start = is_start;
            }
        }
    }

    /// Removes the values of nodes that are not on the path.
    pub(crate) fn settle(&mut self) {
        // A node that left the path has no value when it comes back.
        if let Some((point, (_, path))) = self.point.as_mut().zip(self.path.as_ref())
            && !path.contains(&u32::MAX)
        {
            point.hops.retain(|(node, _)| path.contains(node));
        }
    }
}

impl FlowPoint {
    fn value_of(&self, node: u32) -> Option<u64> {
        let hop = self.hops.iter().find(|(known, _)| *known == node);
        hop.map(|(_, latency)| *latency)
    }

    /// Adds an earlier value of a node, unless a later one is known or it does not hold any more.
    fn add_hop(&mut self, node: u32, latency: u64, returned: &[u32]) {
        if self.value_of(node).is_none() && !returned.contains(&node) {
            self.hops.push((node, latency));
        }
    }
}

//! A copy of all workers' flows, from which the API answers lists of flows. Workers only copy; sorting, filtering and counting
//! happen in the thread that asks.
//!
//! Nothing is copied without a request. One copy serves all requests until its age exceeds a limit that grows with its size,
//! so that copying takes only a small part of a worker's time at any request rate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use collector::{FlowSummary, event::Nanos};
use wire::FlowKey;

/// A snapshot of the flows of all workers.
#[derive(Debug)]
pub struct FlowIndex {
    workers: Vec<Vec<FlowSummary>>,
    as_of: Nanos,
    begun: Instant,
    complete: Instant,
}

impl FlowIndex {
    /// Creates an index from complete copies. The copying began at `begun`, which is `as_of` in ns since the epoch.
    pub fn new(workers: Vec<Vec<FlowSummary>>, begun: Instant, as_of: Nanos) -> Self {
        Self {
            workers,
            as_of,
            begun,
            complete: Instant::now(),
        }
    }

    /// Iterates over the flows, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = &FlowSummary> {
        self.workers.iter().flatten()
    }

    /// The flow with this id, and whether another flow has it too.
    pub fn find(&self, id: u64) -> Option<(FlowKey, bool)> {
        let mut found = self
            .flows()
            .map(|summary| summary.flow)
            .filter(|flow| flow.id() == id);
        let first = found.next()?;
        // A flow that moved while it was copied is in the copy twice.
        Some((first, found.any(|flow| flow != first)))
    }

    /// Returns the time at which the copying began, ns since the epoch.
    pub fn as_of(&self) -> Nanos {
        self.as_of
    }

    /// Returns whether the copying began at `then` or later.
    pub fn is_since(&self, then: Instant) -> bool {
        self.begun >= then
    }

    /// Returns whether the copy is fresh enough at `now` to serve another request.
    fn is_new(&self, now: Instant) -> bool {
        let flows = self.workers.iter().map(Vec::len).max().unwrap_or(0);
        now.saturating_duration_since(self.complete) < AGE_PER_FLOW * u32::try_from(flows).unwrap_or(u32::MAX)
    }
}

/// The latest copy, if there was a request recently.
#[derive(Debug, Default)]
pub struct LatestIndex(Option<Arc<FlowIndex>>);

impl LatestIndex {
    /// Returns a copy for a request that arrived at `arrival`. The copying began after that; unless `current` is set, an
    /// earlier copy that is still fresh serves too.
    pub fn get(&self, arrival: Instant, current: bool) -> Option<Arc<FlowIndex>> {
        let index = self.0.as_ref()?;
        let fits = index.is_since(arrival) || !current && index.is_new(arrival);
        fits.then(|| Arc::clone(index))
    }

    /// Returns the memory of the latest copy for the next one, or nothing if the copy is still being read.
    pub fn reclaim_memory(&mut self) -> Vec<Vec<FlowSummary>> {
        self.0
            .take()
            .and_then(Arc::into_inner)
            .map(|index| index.workers)
            .unwrap_or_default()
    }

    /// Replaces the copy with `index`, and returns it.
    pub fn set(&mut self, index: FlowIndex) -> Arc<FlowIndex> {
        Arc::clone(self.0.insert(Arc::new(index)))
    }

    /// Frees the copy once it is a minute old.
    pub fn expire(&mut self, now: Instant) {
        self.0
            .take_if(|index| now.saturating_duration_since(index.complete) > UNUSED);
    }
}

/// Returns memory for `flows` flows whose pages have been touched, so that workers take no page faults while copying.
pub fn touched(mut memory: Vec<FlowSummary>, flows: usize) -> Vec<FlowSummary> {
    memory.clear();
    // Slack for flows added since the last tick.
    let room = flows + flows / 16;
    if memory.capacity() < room {
        memory.reserve_exact(room);
        memory.resize(room, FlowSummary::new(FlowKey::default(), None, 0, 0));
        memory.clear();
    }
    memory
}

/// Maximum age of a copy, per flow of the worker with the most flows. Copying a flow takes 1 to 5 % of this.
const AGE_PER_FLOW: Duration = Duration::from_micros(1);
/// Age at which a copy is freed.
const UNUSED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn flow(number: u16) -> FlowSummary {
        let key = FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((number, 80)), 17);
        FlowSummary::new(key, None, 1, 1)
    }

    #[test]
    fn an_index_serves_as_many_microseconds_as_it_has_flows() {
        let begun = Instant::now();
        let mut latest = LatestIndex::default();
        assert!(latest.get(begun, false).is_none());
        let workers = vec![vec![flow(1); 2_000], vec![flow(2); 5_000]];
        let complete = latest.set(FlowIndex::new(workers, begun, 7)).complete;
        let serves = |after, current| latest.get(complete + after, current).is_some();
        assert_eq!([serves(4 * MS, false), serves(5 * MS, false)], [true, false]);
        // One that must know every flow needs a copy begun after its arrival.
        assert!(!serves(MS, true) && latest.get(begun, true).is_some());
        let index = latest.get(begun, true).unwrap();
        assert_eq!((index.as_of(), index.flows().count()), (7, 7_000));
        assert_eq!(index.find(flow(2).flow.id()), Some((flow(2).flow, false)));
        assert_eq!(index.find(flow(3).flow.id()), None);
    }

    #[test]
    fn an_id_that_two_flows_share_names_neither() {
        // Found by search: both have the id 1876573bf03ba46f.
        let twins = [
            "10.34.39.143:57873>10.97.196.140:80/17",
            "10.174.201.81:4693>10.241.114.202:80/17",
        ]
        .map(|text| FlowSummary::new(text.parse().unwrap(), None, 1, 1));
        let id = twins[0].flow.id();
        assert_eq!(twins[1].flow.id(), id);
        let find = |workers| FlowIndex::new(workers, Instant::now(), 1).find(id);
        let first = twins[0].flow;
        assert_eq!(find(vec![vec![twins[0]], vec![twins[0]]]), Some((first, false)));
        assert_eq!(
            find(vec![vec![twins[0], twins[0]], vec![twins[1]]]),
            Some((first, true))
        );
    }

    #[test]
    fn memory_is_reused_unless_somebody_reads_it_and_freed_when_nobody_asks() {
        let now = Instant::now();
        let mut latest = LatestIndex::default();
        let read = latest.set(FlowIndex::new(vec![vec![flow(1)]], now, 1));
        assert!(latest.reclaim_memory().is_empty());
        drop(read);
        drop(latest.set(FlowIndex::new(vec![touched(Vec::new(), 160)], now, 1)));
        let memory = latest.reclaim_memory().remove(0);
        assert_eq!((memory.len(), memory.capacity()), (0, 170));
        let complete = latest.set(FlowIndex::new(vec![memory], now, 1)).complete;
        latest.expire(complete + UNUSED);
        assert!(latest.get(now, false).is_some());
        latest.expire(complete + UNUSED + MS);
        assert!(latest.get(now, false).is_none());
    }
}

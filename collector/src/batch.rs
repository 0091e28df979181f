//! Owned results of a collector: a [`Batch`] is what goes through the queues to the store, the live stream and the exporters.

mod first;

use detect::Metric;

use crate::event::{Drop, Event, FirstValues, FlowRow, Kind, Loss, Output, Rollup};

/// Path memory per record, in words: nodes of paths and first values.
const PATH_NODES: usize = 8;

/// All results of one worker since the batch was last cleared. Its memory is reused, so that nothing is allocated in the steady
/// state. A batch at its capacity refuses and counts further records instead of growing.
///
/// The first values of a flow ([`FirstValues`]) become part of the event of its new path.
#[derive(Debug, Default)]
pub struct Batch {
    capacity: usize,
    /// Events, and the positions of their paths in `paths`.
    events: Vec<(Event, Span)>,
    rollups: Vec<Rollup>,
    flows: Vec<(FlowRow, Span)>,
    drops: Vec<Drop>,
    losses: Vec<Loss>,
    paths: Vec<u32>,
    /// The sender of each event, and of each drop.
    event_senders: Vec<u32>,
    drop_senders: Vec<u32>,
    sender: u32,
    refused: u64,
    /// Index of the latest event of a new path, to which the flow's first values are added.
    new_path: Option<usize>,
}

/// Position of a path in the batch's arena.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    len: u32,
}

impl Batch {
    /// Reserves memory for `capacity` records of each kind, and eight path words per record.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            events: Vec::with_capacity(capacity),
            rollups: Vec::with_capacity(capacity),
            flows: Vec::with_capacity(capacity),
            drops: Vec::with_capacity(capacity),
            losses: Vec::with_capacity(capacity),
            paths: Vec::with_capacity(capacity * PATH_NODES),
            event_senders: Vec::with_capacity(capacity),
            drop_senders: Vec::with_capacity(capacity),
            sender: 0,
            refused: 0,
            new_path: None,
        }
    }

    /// Creates the same batch without reserving memory; it grows with its content, up to `capacity`.
    pub fn growing(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Returns the maximum number of records of each kind.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the events with their paths.
    pub fn events(&self) -> impl ExactSizeIterator<Item = (&Event, &[u32])> {
        self.events_with_first_values()
            .map(|(event, path, _)| (event, path))
    }

    /// Returns the events with their paths; events of new paths also have the flow's first values.
    pub fn events_with_first_values(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Event, &[u32], Option<FirstValues<'_>>)> {
        self.events.iter().map(|(event, span)| {
            let (path, first) = first::split(event, self.path(*span));
            (event, path, first)
        })
    }

    /// Returns (sender, event, path) for each event; see [`Output::sender`]. The path includes first values, as
    /// [`Batch::event`](Output::event) of another batch expects.
    pub fn events_by_sender(&self) -> impl ExactSizeIterator<Item = (u32, &Event, &[u32])> {
        let events = self.events.iter().zip(&self.event_senders);
        events.map(|((event, span), sender)| (*sender, event, self.path(*span)))
    }

    /// Returns the dropped-packet reports with their senders.
    pub fn drops_by_sender(&self) -> impl ExactSizeIterator<Item = (u32, &Drop)> {
        self.drop_senders.iter().copied().zip(&self.drops)
    }

    /// Returns the rollups in the batch.
    pub fn rollups(&self) -> &[Rollup] {
        &self.rollups
    }

    /// Returns the flow rows with their paths.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = (&FlowRow, &[u32])> {
        self.flows.iter().map(|(row, span)| (row, self.path(*span)))
    }

    /// Returns the dropped-packet reports in the batch.
    pub fn drops(&self) -> &[Drop] {
        &self.drops
    }

    /// Returns the losses in the batch.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Returns the number of records of all kinds.
    pub fn len(&self) -> usize {
        self.events.len() + self.rollups.len() + self.flows.len() + self.drops.len() + self.losses.len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of records refused because the batch was full, since the last [`Batch::clear`].
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if there is room for one more record of any kind, with a path of `path` nodes.
    pub fn has_room(&self, path: usize) -> bool {
        let lists = [
            self.events.len(),
            self.rollups.len(),
            self.flows.len(),
            self.drops.len(),
            self.losses.len(),
        ];
        lists.iter().all(|list| *list < self.capacity)
            && self.paths.len() + path <= self.capacity * PATH_NODES
    }

    /// Returns true if the batch should be submitted before the results of another report or key are added.
    pub fn is_half_full(&self) -> bool {
        self.len() >= self.capacity / 2 || self.paths.len() >= self.capacity * PATH_NODES / 2
    }

    /// Removes all records, and keeps the memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.rollups.clear();
        self.flows.clear();
        self.drops.clear();
        self.losses.clear();
        self.paths.clear();
        self.event_senders.clear();
        self.drop_senders.clear();
        self.sender = 0;
        self.refused = 0;
        self.new_path = None;
    }

    /// Adds a first value to the event of the flow's new path, if that event is in this batch and from the same report.
    #[inline]
    fn take_first_value(&mut self, event: &Event) -> bool {
        let is_value =
            event.kind == Kind::New && matches!(event.metric, Some(Metric::FlowLatency | Metric::HopLatency));
        let Some(index) = self.new_path.filter(|_| is_value) else {
            return false;
        };
        let (path, span) = &self.events[index];
        if path.flow != event.flow || path.ts != event.ts || event.flow.is_none() {
            return false;
        }
        let words = &mut self.paths[span.start as usize..][..span.len as usize];
        first::take(path, words, event)
    }

    fn path(&self, span: Span) -> &[u32] {
        &self.paths[span.start as usize..][..span.len as usize]
    }

    #[inline]
    fn store_path(&mut self, path: &[u32]) -> Option<Span> {
        if self.paths.len() + path.len() > self.capacity * PATH_NODES {
            return None;
        }
        let span = Span {
            start: self.paths.len() as u32,
            len: path.len() as u32,
        };
        self.paths.extend_from_slice(path);
        Some(span)
    }
}

impl Output for Batch {
    fn sender(&mut self, sender: u32) {
        self.sender = sender;
    }

    #[inline]
    fn event(&mut self, event: &Event, path: &[u32]) {
        if event.kind == Kind::New && self.take_first_value(event) {
            return;
        }
        if self.events.len() < self.capacity
            && let Some(mut span) = self.store_path(path)
        {
            let more = first::words(event, path);
            if more > 0 && self.paths.len() + more <= self.capacity * PATH_NODES {
                self.paths.resize(self.paths.len() + more, first::NOTHING);
                span.len += more as u32;
                self.new_path = Some(self.events.len());
            }
            self.events.push((*event, span));
            self.event_senders.push(self.sender);
        } else {
            self.refused += 1;
        }
    }

    fn rollup(&mut self, rollup: &Rollup) {
        push_bounded(&mut self.rollups, *rollup, self.capacity, &mut self.refused);
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        if self.flows.len() < self.capacity
            && let Some(span) = self.store_path(path)
        {
            self.flows.push((*row, span));
        } else {
            self.refused += 1;
        }
    }

    fn drop_report(&mut self, drop: &Drop) {
        if self.drops.len() < self.capacity {
            self.drop_senders.push(self.sender);
        }
        push_bounded(&mut self.drops, *drop, self.capacity, &mut self.refused);
    }

    fn loss(&mut self, loss: &Loss) {
        push_bounded(&mut self.losses, *loss, self.capacity, &mut self.refused);
    }
}

#[inline]
fn push_bounded<T>(list: &mut Vec<T>, item: T, capacity: usize, refused: &mut u64) {
    if list.len() < capacity {
        list.push(item);
    } else {
        *refused += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Kind, sender_of};

    #[test]
    fn long_paths_fill_a_batch_as_many_records_do() {
        let mut batch = Batch::with_capacity(64);
        let event = Event::blank(1, Kind::New);
        let mut fill = |nodes: usize| {
            batch.clear();
            let path = vec![7; nodes];
            let mut count = 0;
            while !batch.is_half_full() {
                batch.event(&event, &path);
                count += 1;
            }
            assert_eq!((batch.refused(), batch.len()), (0, count));
            count
        };
        // 32 records, or 256 path words.
        assert_eq!([0, 3, 8, 9, 20, 255].map(&mut fill), [32, 32, 32, 29, 13, 2]);
    }

    fn of_flow(kind: Kind, metric: Metric, value: u64) -> Event {
        let flow = Some(wire::FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((1, 2)), 6));
        Event {
            metric: Some(metric),
            value: Some(value),
            flow,
            ..Event::blank(5, kind)
        }
    }

    #[test]
    fn the_first_values_of_a_flow_are_part_of_its_new_path() {
        let mut batch = Batch::with_capacity(64);
        let path = of_flow(Kind::New, Metric::FlowPath, 3);
        batch.event(&path, &[7, 8, 7]);
        let hop = |node, value| Event {
            node: Some(node),
            ..of_flow(Kind::New, Metric::HopLatency, value)
        };
        let latency = Event {
            basis: crate::event::Basis::HopSum,
            ..of_flow(Kind::New, Metric::FlowLatency, 1 << 40)
        };
        [hop(8, 80), hop(7, 70), hop(7, 71), latency]
            .iter()
            .for_each(|event| batch.event(event, &[]));
        // From another report, of another flow, of a node that is not on the path, out of range; and a change.
        let others = [
            Event { ts: 6, ..hop(8, 1) },
            Event {
                flow: None,
                ..hop(8, 1)
            },
            hop(9, 1),
            hop(7, 1),
            Event {
                kind: Kind::Change,
                ..hop(8, 1)
            },
            latency,
        ];
        others.iter().for_each(|event| batch.event(event, &[]));
        let mut copy = Batch::with_capacity(64);
        batch
            .events_by_sender()
            .for_each(|(_, event, path)| copy.event(event, path));
        for batch in [&batch, &copy] {
            let events: Vec<_> = batch.events_with_first_values().collect();
            let values = FirstValues {
                flow_latency: Some(1 << 40),
                basis: crate::event::Basis::HopSum,
                hop_latencies: &[70, 80, 71],
            };
            assert_eq!(events[0], (&path, &[7, 8, 7][..], Some(values)));
            let expected: Vec<_> = others.iter().map(|event| (event, &[][..], None)).collect();
            assert_eq!(events[1..], expected);
        }
        // Without measurements there are no first values, and a cleared batch no longer has the path.
        batch.clear();
        batch.event(&path, &[7, 8, 7]);
        assert_eq!(
            batch.events_with_first_values().next(),
            Some((&path, &[7, 8, 7][..], None))
        );
        batch.clear();
        batch.event(&hop(8, 80), &[]);
        assert_eq!(batch.len(), 1);
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_sender() {
        let v6 = |network: u8, host: u8| {
            let mut address = [0x20; 16];
            (address[7], address[15]) = (network, host);
            sender_of(&address)
        };
        assert_eq!(v6(1, 1), v6(1, 2));
        assert_ne!(v6(1, 1), v6(2, 1));
    }
}

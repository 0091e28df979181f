//! From what was found to the record that tells it.

use detect::Metric;
use wire::FlowKey;

use crate::event::{Basis, Event, Kind, Nanos, Sink};
use crate::hash::{fold, fold_octets};

/// Which report something was found in: what makes a record's id equal in two collectors that received the same report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Only where the format carries no node id.
    pub(crate) source: [u8; 16],
    pub(crate) node: Option<u32>,
    pub(crate) number: u32,
    pub(crate) stamp: u32,
    pub(crate) index: u16,
    pub(crate) hw_id: u8,
    pub(crate) version: u8,
}

impl Origin {
    /// No report.
    pub(crate) const NONE: Self =
        Self { source: [0; 16], node: None, number: 0, stamp: 0, index: 0, hw_id: 0, version: 0 };

    fn hash(&self) -> u64 {
        let reporter = match self.node {
            Some(node) => u64::from(node),
            None => fold_octets(&self.source, 0),
        };
        let small = u64::from(self.index) << 16 | u64::from(self.hw_id) << 8 | u64::from(self.version);
        fold(reporter ^ small << 32, u64::from(self.number) << 32 | u64::from(self.stamp))
    }
}

impl Event {
    /// News of this kind, with nothing else known.
    pub(crate) fn blank(ts: Nanos, kind: Kind) -> Self {
        Self {
            ts,
            id: 0,
            kind,
            metric: None,
            flow: None,
            node: None,
            interface: None,
            queue: None,
            value: None,
            previous: None,
            threshold: None,
            rule: None,
            reason: None,
            basis: Basis::Measured,
        }
    }
}

/// The record id of an event found in the report of `seed`: a hash of what is told about what.
pub(crate) fn id(seed: u64, event: &Event) -> u64 {
    let what = u64::from(event.kind as u8) << 8 | event.metric.map_or(0xff, |metric| u64::from(metric as u8));
    let part = event.interface.map_or(0, |part| u64::from(part) | 1 << 32)
        ^ event.queue.map_or(0, |queue| u64::from(queue) << 40 | 1 << 48)
        ^ event.rule.map_or(0, |rule| u64::from(rule) << 49 | 1 << 63);
    let node = event.node.map_or(0, |node| u64::from(node) | 1 << 32);
    let whose = fold(event.flow.map_or(0, |flow| flow.id()), node ^ what << 40);
    fold(fold(seed, whose), part ^ event.value.unwrap_or(0).rotate_left(20))
}

/// Tells what is found in one report.
#[derive(Debug)]
pub(crate) struct Teller<'a, S> {
    pub(crate) sink: &'a mut S,
    /// Events by kind.
    pub(crate) counts: &'a mut [u64; Kind::ALL.len()],
    pub(crate) ts: Nanos,
    pub(crate) origin: &'a Origin,
    pub(crate) flow: Option<FlowKey>,
}

impl<S: Sink> Teller<'_, S> {
    /// News of this report's flow, to be filled in and given to [`Teller::tell`].
    #[inline]
    pub(crate) fn news(&self, kind: Kind, metric: Metric) -> Event {
        Event { metric: Some(metric), flow: self.flow, ..Event::blank(self.ts, kind) }
    }

    /// Gives an event its id and hands it to the sink; answers the id.
    #[inline(never)]
    pub(crate) fn tell(&mut self, mut event: Event, path: &[u32]) -> u64 {
        let seed = path.iter().fold(self.origin.hash(), |seed, node| fold(seed, u64::from(*node)));
        event.id = id(seed, &event);
        self.counts[event.kind as usize] += 1;
        self.sink.event(&event, path);
        event.id
    }
}

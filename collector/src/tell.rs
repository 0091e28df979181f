//! From what was found to the record that tells it.

use detect::{Metric, Thresholds};
use wire::FlowKey;

use crate::event::{Event, Kind, Nanos, Sink, record_id};
use crate::hash::fold;

/// Which report something was found in: what makes a record's id equal in two collectors that received the same report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The node id, or a hash of the address where the format carries none.
    pub(crate) reporter: u64,
    pub(crate) number: u32,
    pub(crate) stamp: u32,
    pub(crate) index: u16,
    pub(crate) hw_id: u8,
    pub(crate) version: u8,
}

impl Origin {
    /// No report.
    pub(crate) const NONE: Self = Self { reporter: 0, number: 0, stamp: 0, index: 0, hw_id: 0, version: 0 };

    fn hash(&self) -> u64 {
        let small = u64::from(self.index) << 16 | u64::from(self.hw_id) << 8 | u64::from(self.version);
        fold(self.reporter ^ small << 32, u64::from(self.number) << 32 | u64::from(self.stamp))
    }
}

/// What news is about: a report, or a flow at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) ts: Nanos,
    pub(crate) origin: Origin,
    /// Means something only if `has_flow`: most is about a flow, and this way it is copied once.
    pub(crate) key: FlowKey,
    pub(crate) has_flow: bool,
    /// Index of the profile that read the report.
    pub(crate) profile: u8,
}

impl About {
    pub(crate) fn flow(&self) -> Option<FlowKey> {
        self.has_flow.then_some(self.key)
    }
}

/// Tells news about one report or flow.
pub(crate) struct Teller<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    /// Events by kind.
    pub(crate) counts: &'a mut [u64; Kind::ALL.len()],
    pub(crate) about: &'a About,
    pub(crate) thresholds: &'a Thresholds,
    /// The flow's set of thresholds.
    pub(crate) set: u16,
}

impl Teller<'_> {
    /// News of the flow, to be filled in and given to [`Teller::tell`].
    pub(crate) fn news(&self, kind: Kind, metric: Metric) -> Event {
        Event { metric: Some(metric), flow: self.about.flow(), ..Event::blank(self.about.ts, kind) }
    }

    /// News of a value: new, or moved from `previous` by more than the threshold.
    pub(crate) fn change(&self, metric: Metric, value: u64, previous: Option<u64>) -> Event {
        let kind = if previous.is_none() { Kind::New } else { Kind::Change };
        Event {
            metric: Some(metric),
            value: Some(value),
            previous,
            threshold: previous.map(|_| self.threshold(metric)),
            ..Event::blank(self.about.ts, kind)
        }
    }

    /// The threshold in force.
    pub(crate) fn threshold(&self, metric: Metric) -> u64 {
        self.thresholds.get(self.set)[metric as usize]
    }

    /// Gives an event its id and hands it to the sink; answers the id.
    #[inline(never)]
    pub(crate) fn tell(&mut self, mut event: Event, path: &[u32]) -> u64 {
        let seed = path.iter().fold(self.about.origin.hash(), |seed, node| fold(seed, u64::from(*node)));
        event.id = record_id(seed, &event);
        self.counts[event.kind as usize] += 1;
        self.sink.event(&event, path);
        event.id
    }
}

//! Emits the events of changes.

use detect::{Metric, Thresholds};

use crate::decode::EventContext;
use crate::event::{Event, Kind, Output, record_id};
use crate::hash::fold;

/// Events emitted, by kind.
pub(crate) type EventCounts = [u64; Kind::ALL.len()];

/// Emits the events of one report or flow.
pub(crate) struct Emitter<'a> {
    out: &'a mut dyn Output,
    counts: &'a mut EventCounts,
    about: &'a EventContext,
    thresholds: &'a Thresholds,
    /// The flow's set of thresholds.
    set: u16,
}

impl<'a> Emitter<'a> {
    /// An emitter for the context `about`, with the thresholds of `set`.
    #[inline(always)]
    pub(crate) fn new(
        out: &'a mut dyn Output,
        counts: &'a mut EventCounts,
        about: &'a EventContext,
        (thresholds, set): (&'a Thresholds, u16),
    ) -> Self {
        Self { out, counts, about, thresholds, set }
    }

    /// The report or flow that the events are about.
    pub(crate) fn about(&self) -> &'a EventContext {
        self.about
    }

    /// An event of the flow, to be completed and passed to [`Emitter::emit`].
    pub(crate) fn event(&self, kind: Kind, metric: Metric) -> Event {
        Event { metric: Some(metric), flow: self.about.flow(), ..Event::blank(self.about.ts, kind) }
    }

    /// An event of a value: new, or further from `previous` than the threshold.
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

    /// The active threshold.
    pub(crate) fn threshold(&self, metric: Metric) -> u64 {
        self.thresholds.get(self.set)[metric as usize]
    }

    /// Assigns an id to an event and passes it to the output. Returns the id.
    #[inline(never)]
    pub(crate) fn emit(&mut self, mut event: Event, path: &[u32]) -> u64 {
        let seed = path.iter().fold(self.about.origin.hash(), |seed, node| fold(seed, u64::from(*node)));
        event.id = record_id(seed, &event);
        self.counts[event.kind as usize] += 1;
        self.out.sender(self.about.origin.sender);
        self.out.event(&event, path);
        event.id
    }
}

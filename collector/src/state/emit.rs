//! Builds and emits events: significant changes of values, and the state of flows. Counts them by kind, and gives each an id
//! that is the same on every collector.

use detect::{Metric, Thresholds};

use crate::decode::EventContext;
use crate::event::{Event, Kind, Output, record_id};
use crate::hash::fold;

/// Number of emitted events by kind.
pub(crate) type EventCounts = [u64; Kind::ALL.len()];

/// Emits the events of one report or flow.
pub(crate) struct Emitter<'a> {
    out: &'a mut dyn Output,
    counts: &'a mut EventCounts,
    about: &'a EventContext,
    thresholds: &'a Thresholds,
    /// Index of the flow's set of thresholds.
    set: u16,
}

impl<'a> Emitter<'a> {
    /// Creates an emitter for the context `about`, with the thresholds of `set`.
    #[inline(always)]
    pub(crate) fn new(
        out: &'a mut dyn Output,
        counts: &'a mut EventCounts,
        about: &'a EventContext,
        thresholds: &'a Thresholds,
        set: u16,
    ) -> Self {
        Self {
            out,
            counts,
            about,
            thresholds,
            set,
        }
    }

    /// Returns the report or flow that the events are about.
    pub(crate) fn about(&self) -> &'a EventContext {
        self.about
    }

    /// Returns an event of the flow, for the caller to complete and pass to [`Emitter::emit`].
    pub(crate) fn event(&self, kind: Kind, metric: Metric) -> Event {
        Event {
            metric: Some(metric),
            flow: self.about.flow(),
            ..Event::blank(self.about.ts, kind)
        }
    }

    /// Returns an event for a value that is new, or further from `previous` than the threshold.
    pub(crate) fn change(&self, metric: Metric, value: u64, previous: Option<u64>) -> Event {
        let kind = if previous.is_none() {
            Kind::New
        } else {
            Kind::Change
        };
        Event {
            metric: Some(metric),
            value: Some(value),
            previous,
            threshold: previous.map(|_| self.threshold(metric)),
            ..Event::blank(self.about.ts, kind)
        }
    }

    /// Returns the active threshold of `metric`.
    pub(crate) fn threshold(&self, metric: Metric) -> u64 {
        self.thresholds.get(self.set)[metric as usize]
    }

    /// Assigns an id to an event and passes it to the output. Returns the id.
    #[inline(never)]
    pub(crate) fn emit(&mut self, mut event: Event, path: &[u32]) -> u64 {
        let report = if event.flow.is_some() {
            self.about.origin.hash()
        } else {
            self.about.identity()
        };
        let seed = path
            .iter()
            .fold(report, |seed, node| fold(seed, u64::from(*node)));
        event.id = record_id(seed, &event);
        self.counts[event.kind as usize] += 1;
        self.out.sender(self.about.origin.sender);
        self.out.event(&event, path);
        event.id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::decode::Origin;
    use crate::event::{Basis, Loss};
    use crate::stream::StreamId;
    use wire::FlowKey;

    struct Silent;
    impl Output for Silent {}

    /// A report, and an event found in it.
    #[derive(Clone, Copy)]
    struct Found {
        about: EventContext,
        event: Event,
        path: [u32; 2],
    }

    /// A report that differs in one thing, with its name.
    type Variant = (&'static str, Found);

    impl Found {
        fn id(&self) -> u64 {
            let thresholds = Thresholds::new([0; Metric::ALL.len()], Vec::new()).unwrap();
            let mut counts = [0; Kind::ALL.len()];
            Emitter::new(&mut Silent, &mut counts, &self.about, &thresholds, 0).emit(self.event, &self.path)
        }

        /// The same with one difference, by its name: those that must change the id, and then those that must not.
        fn variants(&self) -> (Vec<Variant>, Vec<Variant>) {
            let mut differing = Vec::new();
            let mut same = Vec::new();
            macro_rules! differ {
                ($list:ident: $($name:literal $($field:ident).+ = $value:expr;)*) => {$(
                    let mut other = *self;
                    other.$($field).+ = $value;
                    $list.push(($name, other));
                )*};
            }
            differ! { differing:
                "reporter" about.origin.reporter = 77;
                "number" about.origin.seq = 77;
                "timestamp" about.origin.stamp = 77;
                "place in the datagram" about.origin.index = 7;
                "hw_id" about.origin.hw_id = 7;
                "version" about.origin.version = 10;
                "flow of the report" about.key = flow(77);
                "metric" event.metric = Some(Metric::LinkUtilization);
                "node" event.node = Some(77);
                "interface" event.interface = Some(77);
                "queue" event.queue = Some(7);
                "value" event.value = Some(77);
                "rule" event.rule = Some(7);
                "path" path = [1, 77];
            }
            differ! { same:
                "time of the event" event.ts = 77;
                "receive time" about.ts = 77;
                "sender" about.origin.sender = 77;
                "profile" about.profile = 7;
                "previous value" event.previous = Some(77);
                "threshold" event.threshold = Some(77);
                "basis" event.basis = Basis::HopSum;
            }
            (differing, same)
        }
    }

    fn flow(port: u16) -> FlowKey {
        FlowKey::v4([10, 0, 0, 1], [10, 0, 0, 2], Some((port, 80)), 17)
    }

    /// An event of each kind: of a flow, or of a key of a node.
    fn events() -> Vec<Found> {
        let origin = Origin {
            reporter: 3,
            seq: 1,
            stamp: 7,
            index: 0,
            hw_id: 1,
            version: 20,
            sender: 9,
        };
        let about = EventContext {
            ts: 100,
            origin,
            key: flow(1),
            has_flow: true,
            profile: 0,
        };
        let mut all = Vec::new();
        for kind in Kind::ALL {
            for flow in [None, Some(flow(1))] {
                let event = Event {
                    metric: Some(Metric::QueueOccupancy),
                    flow,
                    node: Some(1),
                    value: Some(5),
                    ..Event::blank(100, kind)
                };
                all.push(Found {
                    about,
                    event,
                    path: [1, 2],
                });
            }
        }
        all
    }

    #[test]
    fn the_id_of_each_kind_of_event_says_what_and_in_which_report_and_not_when() {
        let mut ids = BTreeMap::new();
        for found in events() {
            let (kind, of_flow) = (found.event.kind, found.event.flow.is_some());
            let (differing, same) = found.variants();
            for (name, other) in same {
                assert_eq!(other.id(), found.id(), "{kind:?} {name}");
            }
            for (name, mut other) in [("nothing", found)].into_iter().chain(differing) {
                other.event.flow = of_flow.then_some(other.about.key);
                let earlier = ids.insert(other.id(), (kind, of_flow, name));
                assert_eq!(earlier, None, "{kind:?} {of_flow} {name}");
            }
        }
        assert_eq!(ids.len(), 15 * 2 * Kind::ALL.len());
    }

    #[test]
    fn a_report_of_a_flow_that_is_known_by_its_id_alone_has_the_same_identity() {
        let found = events()[0];
        let mut by_id = found;
        by_id.about.key = FlowKey::of_id(found.about.key.flow_id());
        assert_eq!(by_id.id(), found.id());
    }

    #[test]
    fn losses_of_different_streams_and_numbers_have_ids_of_their_own() {
        let loss = Loss {
            ts: 1,
            node: None,
            source: [1; 16],
            hw_id: 1,
            lost: 5,
            reordered: 0,
            duplicated: 0,
        };
        let unnamed = StreamId {
            version: 10,
            hw_id: 1,
            listener: 0,
            node: None,
            source: [1; 16],
        };
        let named = StreamId {
            node: Some(1),
            ..unnamed
        };
        let streams = [
            unnamed,
            StreamId {
                source: [2; 16],
                ..unnamed
            },
            named,
            StreamId { version: 20, ..named },
            StreamId { hw_id: 2, ..named },
            StreamId { listener: 1, ..named },
        ];
        let of_streams = streams.iter().map(|stream| loss.event(stream, 7).unwrap().id);
        let others = [(loss, 8), (Loss { lost: 6, ..loss }, 7)];
        let of_others = others
            .iter()
            .map(|(loss, first)| loss.event(&unnamed, *first).unwrap().id);
        let ids: BTreeSet<u64> = of_streams.chain(of_others).collect();
        assert_eq!(ids.len(), 8);
        // Another collector counts it at another time.
        let later = Loss { ts: 2, ..loss };
        assert_eq!(
            later.event(&named, 7).unwrap().id,
            loss.event(&named, 7).unwrap().id
        );
    }
}

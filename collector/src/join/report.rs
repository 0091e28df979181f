//! From a decoded report to the part of a set that it is, and from what is joined to the state.

use wire::Report;

use super::{Joiner, Part, Record, Take, order};
use crate::collector::{Core, Envelope};
use crate::config::Units;
use crate::event::{Nanos, Sink};
use crate::flows::ABSENT;
use crate::index::NO_SLOT;
use crate::reading::{NO_VALUE, ReadHops, Reading};
use crate::state::{Head, State};

/// What is joined goes into the state, and what the state finds in it to the sink.
struct Joined<'a> {
    state: &'a mut State,
    sink: &'a mut dyn Sink,
    /// The report at hand told a flow's path.
    told: bool,
}

impl Take for Joined<'_> {
    fn path(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.told = true;
        self.state.counts.flow_reports += 1;
        self.state.take(head, NO_SLOT, hops, self.sink);
    }

    fn nodes(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.state.take_nodes(head, hops, self.sink);
    }
}

impl Core {
    /// Takes a report of SF-INT that holds single records; `false`, and nothing done, if it is another.
    #[inline]
    pub(crate) fn join(
        &mut self,
        envelope: &Envelope<'_>,
        head: &Head,
        report: &Report<'_>,
        sink: &mut dyn Sink,
    ) -> bool {
        let Some(part) = self.part(envelope, head, report) else { return false };
        let mut joined = Joined { state: &mut self.state, sink, told: false };
        if head.whole_path {
            self.joiner.take(&part, &mut joined);
        } else {
            self.joiner.take_on_the_way(&part, &mut joined);
        }
        if !joined.told {
            self.state.counts.node_reports += 1;
        }
        true
    }

    fn part(&self, envelope: &Envelope<'_>, head: &Head, report: &Report<'_>) -> Option<Part> {
        let int = report.int?;
        let sf = int.sf?;
        let units = *envelope.units;
        let place =
            Record { order: order(report.seq, report.index), remaining: int.remaining, ..Record::NOTHING };
        let placed = |hop: &wire::Hop| place.with(hop, units);
        let own = match report.own {
            Some(_) => Some(placed(&report.own())),
            // The sink's place on the path at least.
            None if sf.is_of_one_packet() => {
                report.node_id.map(|node| Record { reading: Reading { node, ..Reading::NOTHING }, ..place })
            }
            None => None,
        };
        let mut part = Part {
            head: *head,
            priority: sf.state,
            packet_id: sf.packet_id,
            exceeded: int.flags.contains(wire::int::Flags::HOPS_EXCEEDED),
            carried: placed(&int.stack.hop(0)),
            own: own.filter(|own| own.reading.node != ABSENT),
            units,
        };
        if report.flow.is_none() {
            part.keyed_by_sink(self.seed);
        }
        Some(part)
    }

    /// Ends what time has ended among the sets.
    pub(crate) fn tick_joiner(&mut self, now: Nanos, sink: &mut dyn Sink) {
        self.joiner.tick(now, &mut Joined { state: &mut self.state, sink, told: false });
    }

    /// Closes all sets.
    pub(crate) fn finish_joiner(&mut self, sink: &mut dyn Sink) {
        self.joiner.finish(&mut Joined { state: &mut self.state, sink, told: false });
    }
}

impl Record {
    /// The record of a hop, in the place of this one.
    fn with(self, hop: &wire::Hop, units: Units) -> Self {
        let stamp = |stamp: Option<u64>| stamp.unwrap_or(NO_VALUE);
        Self {
            reading: Reading::of(hop, units),
            ingress: stamp(hop.ingress_ts),
            egress: stamp(hop.egress_ts),
            wide: hop.wide_ts,
            ..self
        }
    }
}

impl Joiner {
    /// Takes a report that a node on the way sent, of its queue or of a packet that ended there: samples of nodes.
    fn take_on_the_way(&mut self, part: &Part, out: &mut dyn Take) {
        self.stats.reports += 1;
        self.stats.records += part.records();
        self.stats.on_the_way += part.records();
        super::tell(part, &[Some(&part.carried), part.own.as_ref()], out);
    }
}

//! From a decoded report to the part of a set that it is, and from what is joined to the state.

use wire::int::Sf;
use wire::{Items, Layout, Report};

use super::{Joiner, Part, Record, Take, keyed_by_sink, order};
use crate::collector::{Core, Envelope};
use crate::config::Units;
use crate::event::{Nanos, Sink};
use crate::flows::{ABSENT, HopState};
use crate::index::NO_SLOT;
use crate::reading::{NO_VALUE, ReadHops, Reading};
use crate::state::{Head, State};
use crate::tell::Teller;
use crate::update::held;

/// What is joined goes into the state, and what the state finds in it to the sink.
pub(super) struct Joined<'a> {
    pub(super) state: &'a mut State,
    pub(super) samples: &'a mut Samples,
    pub(super) sink: &'a mut dyn Sink,
    /// The report at hand told a flow's path.
    pub(super) told: bool,
    /// Where its flow probably is in the state.
    pub(super) slot: u32,
}

impl Take for Joined<'_> {
    fn path(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.told = true;
        self.state.counts.flow_reports += 1;
        self.state.take(head, self.slot, hops, self.sink);
    }

    fn nodes(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.samples.take(self.state, head, hops.readings, self.sink);
    }
}

/// Where the values of nodes are kept that speak by themselves, so that it need not be looked up each time.
#[derive(Debug)]
pub(crate) struct Samples {
    states: Vec<HopState>,
    /// Of the state's keys when these were looked up.
    epoch: u32,
}

impl Samples {
    /// Nodes remembered, by a hash: a power of two.
    const NODES: usize = 256;

    pub(crate) fn new() -> Self {
        Self { states: vec![HopState::NOTHING; Self::NODES], epoch: 0 }
    }

    /// Does what [`State::take_nodes`] does.
    fn take(&mut self, state: &mut State, head: &Head, readings: &[Reading], sink: &mut dyn Sink) {
        if self.epoch != state.epoch {
            self.epoch = state.epoch;
            self.states.iter_mut().for_each(HopState::unresolve);
        }
        let thresholds = &state.detection.thresholds;
        let set = head.about.flow().map_or(0, |flow| thresholds.set_for(&flow));
        let mut teller =
            Teller { sink, counts: &mut state.counts.events, about: &head.about, thresholds, set };
        for reading in readings {
            let at = reading.node.wrapping_mul(0x9e37_79b1) >> 24;
            let Some(hop) = self.states.get_mut(at as usize) else { continue };
            if hop.node != reading.node {
                *hop = HopState::passing(reading);
            }
            // Of no flow: its latency is not news.
            hop.told = held(reading.latency);
            state.levels.take(hop, reading, 0, &mut teller);
        }
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
        let Some((int, sf)) = report.int.as_ref().and_then(|int| int.sf.map(|sf| (int, sf))) else {
            return false;
        };
        let keyed;
        let head = if report.flow.is_some() {
            head
        } else {
            keyed = keyed_by_sink(*head, self.seed);
            &keyed
        };
        let units = *envelope.units;
        let place =
            Record { order: order(report.seq, report.index), remaining: int.remaining, ..Record::NOTHING };
        let part = Part {
            head,
            priority: sf.state,
            packet_id: sf.packet_id,
            exceeded: int.flags.contains(wire::int::Flags::HOPS_EXCEEDED),
            carried: place.read(&int.stack.layout, int.stack.record(0), units),
            own: place.own(report, sf, units),
            units,
        };
        let Self { state, samples, joiner, .. } = self;
        let mut joined = Joined { state, samples, sink, told: false, slot: NO_SLOT };
        if head.whole_path {
            joiner.take(&part, &mut joined);
        } else {
            joiner.take_on_the_way(&part, &mut joined);
        }
        if !joined.told {
            self.state.counts.node_reports += 1;
        }
        true
    }

    /// Ends what time has ended among the sets.
    pub(crate) fn tick_joiner(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let Self { state, samples, .. } = self;
        self.joiner.tick(now, &mut Joined { state, samples, sink, told: false, slot: NO_SLOT });
    }

    /// Closes all sets.
    pub(crate) fn finish_joiner(&mut self, sink: &mut dyn Sink) {
        let Self { state, samples, .. } = self;
        self.joiner.finish(&mut Joined { state, samples, sink, told: false, slot: NO_SLOT });
    }
}

impl Record {
    /// A record where it lies, in the place of this one.
    fn read(self, layout: &Layout, record: &[u8], units: Units) -> Self {
        Self {
            reading: Reading::of_record(layout, record, units),
            ingress: layout.ingress_ts(record),
            egress: layout.egress_ts(record),
            wide: layout.wide_ts(),
            ..self
        }
    }

    /// The sink's own record, in the place of this one.
    #[inline]
    fn own(self, report: &Report<'_>, sf: Sf, units: Units) -> Option<Self> {
        let record = match &report.own {
            // The header says whose it is; stamps of older headers are for those who decode whole.
            Some(own) if report.ts.is_none() => {
                let mut record = self.read(&own.layout, own.record, units);
                if !own.layout.carried().contains(Items::NODE_ID) {
                    record.reading.node = report.node_id.unwrap_or(ABSENT);
                }
                record
            }
            Some(_) => self.with(&report.own(), units),
            // The sink's place on the path at least.
            None if sf.is_of_one_packet() => {
                let node = report.node_id?;
                Self { reading: Reading { node, ..Reading::NOTHING }, ..self }
            }
            None => return None,
        };
        (record.reading.node != ABSENT).then_some(record)
    }

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
    fn take_on_the_way(&mut self, part: &Part<'_>, out: &mut dyn Take) {
        self.stats.reports += 1;
        self.stats.records += part.records();
        self.stats.on_the_way += part.records();
        super::tell(part, &[Some(&part.carried), part.own.as_ref()], out);
    }
}

//! Runs of reports 2.0 within a burst: the usual SF-INT reports among them are decoded first, then joined, so that the memory
//! which the one needs is on its way while others are decoded. Any other report is taken whole, in the order of arrival.

use wire::int::sf::State as Priority;
use wire::{Decoder, Single};

use super::report::Joined;
use super::{Part, Record, order};
use crate::collector::{Core, Datagram, Envelope, NEAR, signals, version};
use crate::config::Units;
use crate::event::Sink;
use crate::index::NO_SLOT;
use crate::reading::Plan;
use crate::reports::Number;
use crate::shapes::Shapes;
use crate::state::Head;
use crate::stream;

/// Reports decoded ahead of those that are joined.
const AHEAD: usize = 16;

/// Reports decoded between one question to the memory about a report and the next.
const STEP: usize = 4;

/// How to read the sink's own record and the one carried of reports of one shape.
pub(crate) type Pair = [Plan; 2];

/// The pairs in use.
pub(crate) type Pairs = Shapes<Pair>;

/// Makes a pair for a shape that was not known.
#[cold]
#[inline(never)]
fn make(pairs: &mut Pairs, shape: u64, single: &Single<'_>, units: Units) -> u8 {
    pairs.add(shape, single.layouts().map(|layout| Plan::new(&layout, units)))
}

/// A report that is decoded and waits to be joined.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    head: Head,
    own: &'a [u8],
    carried: &'a [u8],
    node: u32,
    order: u32,
    packet_id: u16,
    remaining: u8,
    priority: Priority,
    exceeded: bool,
    pair: u8,
    /// Where its flow probably is, among those that are joined and in the state.
    slot: u32,
    state_slot: u32,
}

impl<'a> Waiting<'a> {
    #[inline(always)]
    fn write(&mut self, single: &Single<'a>, envelope: &Envelope<'_>, seed: u64) {
        let about = &mut self.head.about;
        (about.key, about.ts) = (single.flow, envelope.received);
        about.profile = envelope.sender.profile;
        about.origin.reporter = u64::from(single.node_id);
        (about.origin.number, about.origin.hw_id) = (single.seq, single.hw_id);
        self.head.hash = single.flow.hash(seed);
        self.head.flags = signals(single.int_flags);
        (self.own, self.carried) = (single.own, single.carried);
        (self.node, self.order) = (single.node_id, order(single.seq, 0));
        (self.packet_id, self.remaining, self.priority) = (single.packet_id, single.remaining, single.state);
        self.exceeded = single.int_flags.contains(wire::int::Flags::HOPS_EXCEEDED);
    }

    /// As joining sees it.
    #[inline(always)]
    fn part(&self, [own, carried]: &Pair) -> Part<'_> {
        let read = |plan: &Plan, record| {
            let (reading, ends) = plan.read(record);
            let (ingress, egress, wide) = (ends.ingress, ends.egress, ends.wide);
            Record { reading, ingress, egress, wide, order: self.order, remaining: self.remaining }
        };
        let mut own = read(own, self.own);
        // The header says whose it is.
        own.reading.node = self.node;
        Part {
            head: &self.head,
            priority: self.priority,
            packet_id: self.packet_id,
            exceeded: self.exceeded,
            units: carried.units(),
            carried: read(carried, self.carried),
            own: Some(own),
        }
    }
}

/// Reports that are decoded and wait to be joined.
struct Pending<'a> {
    reports: [Waiting<'a>; AHEAD],
    count: usize,
}

impl Pending<'_> {
    fn none() -> Self {
        // What all such reports have in common.
        let mut head = Head::none();
        (head.whole_path, head.about.has_flow) = (true, true);
        head.about.origin.version = version(wire::Version::V20);
        let report = Waiting {
            head,
            own: &[],
            carried: &[],
            node: 0,
            order: 0,
            packet_id: 0,
            remaining: 0,
            priority: Priority::Low,
            exceeded: false,
            pair: 0,
            slot: NO_SLOT,
            state_slot: NO_SLOT,
        };
        Self { reports: [report; AHEAD], count: 0 }
    }
}

impl Core {
    /// Takes the reports 2.0 that `burst` begins with, and answers how many datagrams these were.
    #[inline(never)]
    pub(crate) fn take_run(
        &mut self,
        burst: &[Datagram<'_>],
        readers: &mut [(Decoder, Units)],
        sink: &mut dyn Sink,
    ) -> usize {
        let is_20 = |datagram: &Datagram<'_>| datagram.payload.first().is_some_and(|first| first >> 4 == 2);
        if !burst.first().is_some_and(is_20) {
            return 0;
        }
        let mut pending = Pending::none();
        let mut taken = 0;
        for (at, datagram) in burst.iter().enumerate().take_while(|(_, datagram)| is_20(datagram)) {
            if let Some(later) = burst.get(at + NEAR) {
                for line in [0, 64, 128] {
                    later.payload.get(line).map(memory::prefetch);
                }
            }
            if self.turns(datagram.received) {
                self.join_all(&mut pending, sink);
                self.advance(datagram.received, sink);
            }
            let (envelope, reader) = self.open(datagram, readers);
            if let Some(single) = reader.single(datagram.payload) {
                self.single(&envelope, &single, &mut pending, sink);
            } else {
                // In the order of arrival.
                self.join_all(&mut pending, sink);
                self.datagram(&{ envelope }, datagram.payload, reader, sink);
            }
            taken += 1;
        }
        self.join_all(&mut pending, sink);
        taken
    }

    /// The usual SF-INT report: written down, to be joined with others.
    #[inline(always)]
    fn single<'a>(
        &mut self,
        envelope: &Envelope<'_>,
        single: &Single<'a>,
        pending: &mut Pending<'a>,
        sink: &mut dyn Sink,
    ) {
        let shape = single.shape | u64::from(envelope.sender.profile) << 56;
        let pair = match self.pairs.find(shape) {
            Some(pair) => pair,
            None => {
                // A new pair may take the place of one that is still needed.
                self.join_all(pending, sink);
                make(&mut self.pairs, shape, single, *envelope.units)
            }
        };
        let stream =
            stream::pack(version(wire::Version::V20), single.hw_id, envelope.listener, single.node_id);
        if let Some(sequencer) = &mut self.sequencer
            && !sequencer.observe_latest(stream, single.seq, envelope.received, sink)
        {
            sequencer.observe(&Number::from(single).stream(envelope), single.seq, envelope.received, sink);
        }
        let report = &mut pending.reports[pending.count % AHEAD];
        report.write(single, envelope, self.seed);
        report.pair = pair;
        self.joiner.flows.prefetch_bucket(report.head.hash);
        self.state.flows.prefetch_bucket(report.head.hash);
        self.look_ahead(pending, pending.count);
        pending.count += 1;
        if pending.count == AHEAD {
            self.join_all(pending, sink);
        }
    }

    /// Asks for the memory of the reports that were decoded one step and two steps before number `at`.
    #[inline(always)]
    fn look_ahead(&self, pending: &mut Pending<'_>, at: usize) {
        let reports = &mut pending.reports[..pending.count];
        if let Some(report) = at.checked_sub(STEP).and_then(|earlier| reports.get_mut(earlier)) {
            report.slot = self.joiner.flows.prefetch_flow(report.head.hash);
            report.state_slot = self.state.flows.prefetch_entry(report.head.hash);
        }
        if let Some(report) = at.checked_sub(2 * STEP).and_then(|earlier| reports.get(earlier)) {
            if let Some(set) = self.joiner.flows.set(report.slot, report.packet_id) {
                self.joiner.sets.prefetch(set);
            }
            self.state.flows.prefetch_hops(report.state_slot);
        }
    }

    /// Joins the reports that were decoded.
    #[inline(never)]
    fn join_all(&mut self, pending: &mut Pending<'_>, sink: &mut dyn Sink) {
        let count = pending.count;
        self.stats.reports += count as u64;
        self.stats.accepted += count as u64;
        for at in count..count + 2 * STEP {
            self.look_ahead(pending, at);
        }
        let Self { state, samples, joiner, pairs, .. } = self;
        for report in &pending.reports[..count] {
            let Some(pair) = pairs.get(report.pair) else { continue };
            let mut joined = Joined { state, samples, sink, told: false, slot: report.state_slot };
            joiner.take_at(report.slot, &report.part(pair), &mut joined);
            if !joined.told {
                state.counts.node_reports += 1;
            }
        }
        pending.count = 0;
    }
}

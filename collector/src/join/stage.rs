//! The SF-INT stage of the collector: feeds reports to the joiner, and applies its results to the state. Whole paths update
//! flows; single samples update node metrics.
//!
//! Common reports are processed in bursts of [`BURST`]: they are decoded first, so that the memory of one report is
//! prefetched while others are decoded.

use wire::int::sf::State as Priority;
use wire::{Report, Single};

use super::set::{SfRecord, order};
use super::{JoinOutput, Joiner, SfReport, keyed_by_sink};
use crate::config::{JoinConfig, Units};
use crate::decode::{DatagramContext, Head, NodeUnits, Plan, ReadHops, Reading, Shapes, version};
use crate::event::{Nanos, Output};
use crate::index::NO_SLOT;
use crate::state::hops::{HopState, PacketValues};
use crate::state::{State, saturated};
use crate::stats::{JoinStats, Table};

/// Size of a burst: reports that are decoded before they are joined.
const BURST: usize = 16;

/// Reports that are decoded between two prefetches for one report.
const PREFETCH_DISTANCE: usize = 4;

/// Plans for reports of one shape: for the sink's own record, and for the carried one.
type RecordPlans = [Plan; 2];

/// Cache of plan pairs by shape of report.
type PlanCache = Shapes<RecordPlans>;

/// The joiner of SF-INT records, with the data to apply its results to the state.
#[derive(Debug)]
pub(crate) struct SfInt {
    joiner: Joiner,
    samples: Samples,
    plan_cache: PlanCache,
    node_units: NodeUnits,
    seed: u64,
}

impl SfInt {
    /// Reserves the memory for the table sizes in `config`.
    pub(crate) fn new(config: JoinConfig, node_units: NodeUnits, seed: u64) -> Self {
        let joiner = Joiner::new(config, seed);
        Self {
            joiner,
            samples: Samples::new(),
            plan_cache: PlanCache::new(),
            node_units,
            seed,
        }
    }

    /// Applies an SF-INT report that carries single records. Returns `false`, and does nothing, for any other report.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        envelope: &DatagramContext<'_>,
        head: &Head,
        report: &Report<'_>,
        state: &mut State,
        out: &mut dyn Output,
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
        let template = SfRecord {
            order: order(report.seq, report.index),
            remaining: int.remaining,
            ..SfRecord::NOTHING
        };
        let sf_report = SfReport {
            head,
            priority: sf.state,
            packet_id: sf.packet_id,
            exceeded: int.flags.contains(wire::int::Flags::HOPS_EXCEEDED),
            carried: template.read(&int.stack.layout, int.stack.record(0), units, &self.node_units),
            sink_record: template.read_sink(report, sf, units, &self.node_units),
            units,
        };
        let Self { samples, joiner, .. } = self;
        let mut joined = Joined {
            state,
            samples,
            out,
            completed_path: false,
            slot: NO_SLOT,
        };
        if head.whole_path {
            joiner.apply(&sf_report, &mut joined);
        } else {
            joiner.apply_transit(&sf_report, &mut joined);
        }
        if !joined.completed_path {
            state.counts.node_reports += 1;
        }
        true
    }

    /// Returns the index of the plans for a shape, or `None` if the shape is new.
    #[inline(always)]
    pub(crate) fn find_plans(&mut self, shape: u64) -> Option<u8> {
        self.plan_cache.find(shape)
    }

    /// Adds the plans for a new shape, and returns their index.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_plans(&mut self, shape: u64, single: &Single<'_>, units: Units) -> u8 {
        self.plan_cache
            .add(shape, single.layouts().map(|layout| Plan::new(&layout, units)))
    }

    /// Adds a common report to a burst, to be read by `plans`. Returns true if the burst is full and must be applied.
    #[inline(always)]
    pub(crate) fn push<'a>(
        &self,
        burst: &mut SfBurst<'a>,
        envelope: &DatagramContext<'_>,
        single: &Single<'a>,
        plans: u8,
        state: &State,
    ) -> bool {
        let report = &mut burst.reports[burst.count % BURST];
        report.write(single, envelope, self.seed);
        report.plans = plans;
        self.joiner.flows.prefetch_bucket(report.head.hash);
        state.flows.prefetch_bucket(report.head.hash);
        self.prefetch_earlier(burst, burst.count, state);
        burst.count += 1;
        burst.count == BURST
    }

    /// Prefetches memory for the reports that were decoded one and two steps before number `at`.
    #[inline(always)]
    fn prefetch_earlier(&self, burst: &mut SfBurst<'_>, at: usize, state: &State) {
        let reports = &mut burst.reports[..burst.count];
        if let Some(report) = at
            .checked_sub(PREFETCH_DISTANCE)
            .and_then(|earlier| reports.get_mut(earlier))
        {
            report.slot = self.joiner.flows.prefetch_flow(report.head.hash);
            report.state_slot = state.flows.prefetch_entry(report.head.hash);
        }
        if let Some(report) = at
            .checked_sub(2 * PREFETCH_DISTANCE)
            .and_then(|earlier| reports.get(earlier))
        {
            if let Some(set) = self.joiner.flows.set(report.slot, report.packet_id) {
                self.joiner.sets.prefetch(set);
            }
            state.flows.prefetch_hops(report.state_slot);
        }
    }

    /// Joins the reports of a burst, and empties the burst.
    #[inline(always)]
    pub(crate) fn apply_burst(&mut self, burst: &mut SfBurst<'_>, state: &mut State, out: &mut dyn Output) {
        let count = burst.count;
        for at in count..count + 2 * PREFETCH_DISTANCE {
            self.prefetch_earlier(burst, at, state);
        }
        let Self {
            samples,
            joiner,
            plan_cache,
            ..
        } = self;
        for report in &burst.reports[..count] {
            let Some(plans) = plan_cache.get(report.plans) else {
                continue;
            };
            let mut joined = Joined {
                state,
                samples,
                out,
                completed_path: false,
                slot: report.state_slot,
            };
            joiner.apply_with_hint(report.slot, &report.sf_report(plans), &mut joined);
            if !joined.completed_path {
                state.counts.node_reports += 1;
            }
        }
        burst.count = 0;
    }

    /// Closes expired sets and flows.
    pub(crate) fn tick(&mut self, now: Nanos, state: &mut State, out: &mut dyn Output) {
        let Self { samples, joiner, .. } = self;
        joiner.tick(
            now,
            &mut Joined {
                state,
                samples,
                out,
                completed_path: false,
                slot: NO_SLOT,
            },
        );
    }

    /// Closes all sets and applies the results, at the end of the input.
    pub(crate) fn finish(&mut self, state: &mut State, out: &mut dyn Output) {
        let Self { samples, joiner, .. } = self;
        joiner.finish(&mut Joined {
            state,
            samples,
            out,
            completed_path: false,
            slot: NO_SLOT,
        });
    }

    pub(crate) fn stats(&self) -> JoinStats {
        self.joiner.stats()
    }

    /// Returns the usage of the tables of flows and sets.
    pub(crate) fn tables(&self) -> [Table; 2] {
        self.joiner.tables()
    }
}

/// A report that is decoded but not joined yet.
#[derive(Clone, Copy)]
struct SingleReport<'a> {
    head: Head,
    own: &'a [u8],
    carried: &'a [u8],
    node: u32,
    order: u32,
    packet_id: u16,
    remaining: u8,
    priority: Priority,
    exceeded: bool,
    plans: u8,
    /// Probable slots of the report's flow: in the joiner, and in the state.
    slot: u32,
    state_slot: u32,
}

impl<'a> SingleReport<'a> {
    #[inline(always)]
    fn write(&mut self, single: &Single<'a>, envelope: &DatagramContext<'_>, seed: u64) {
        let about = &mut self.head.about;
        (about.key, about.ts) = (single.flow, envelope.received);
        about.profile = envelope.sender.profile;
        about.origin.reporter = u64::from(single.node_id);
        (about.origin.seq, about.origin.hw_id) = (single.seq, single.hw_id);
        about.origin.sender = envelope.sender.tag;
        self.head.hash = single.flow.hash(seed);
        self.head.signals = single.int_flags.into();
        (self.own, self.carried) = (single.metadata, single.carried);
        (self.node, self.order) = (single.node_id, order(single.seq, 0));
        (self.packet_id, self.remaining, self.priority) = (single.packet_id, single.remaining, single.state);
        self.exceeded = single.int_flags.contains(wire::int::Flags::HOPS_EXCEEDED);
    }

    /// Returns the report as input of the joiner.
    #[inline(always)]
    fn sf_report(&self, [own, carried]: &RecordPlans) -> SfReport<'_> {
        let mut own = self.record(own, self.own);
        // The report's header contains the node id.
        own.reading.node = self.node;
        SfReport {
            head: &self.head,
            priority: self.priority,
            packet_id: self.packet_id,
            exceeded: self.exceeded,
            units: carried.units(),
            carried: self.record(carried, self.carried),
            sink_record: Some(own),
        }
    }

    #[inline(always)]
    fn record(&self, plan: &Plan, record: &[u8]) -> SfRecord {
        let (reading, ends) = plan.read(record);
        SfRecord {
            reading,
            ingress: ends.ingress,
            egress: ends.egress,
            wide: ends.wide,
            order: self.order,
            remaining: self.remaining,
            incomparable: false,
        }
    }
}

/// Reports that are decoded but not joined yet.
pub(crate) struct SfBurst<'a> {
    reports: [SingleReport<'a>; BURST],
    count: usize,
}

impl SfBurst<'_> {
    pub(crate) fn new() -> Self {
        // Sets the fields that are equal in all such reports.
        let mut head = Head::none();
        (head.whole_path, head.about.has_flow) = (true, true);
        head.about.origin.version = version(wire::Version::V20);
        let report = SingleReport {
            head,
            own: &[],
            carried: &[],
            node: 0,
            order: 0,
            packet_id: 0,
            remaining: 0,
            priority: Priority::Low,
            exceeded: false,
            plans: 0,
            slot: NO_SLOT,
            state_slot: NO_SLOT,
        };
        Self {
            reports: [report; BURST],
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// Applies joined results to the state, and sends the state's events to the output.
struct Joined<'a> {
    state: &'a mut State,
    samples: &'a mut Samples,
    out: &'a mut dyn Output,
    /// The current report completed a flow's path.
    completed_path: bool,
    /// The probable slot of the report's flow in the state.
    slot: u32,
}

impl JoinOutput for Joined<'_> {
    fn path(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.completed_path = true;
        self.state.counts.flow_reports += 1;
        self.state.apply(head, self.slot, hops, self.out);
    }

    fn nodes(&mut self, head: &Head, hops: ReadHops<'_>) {
        self.samples.apply(self.state, head, hops.readings, self.out);
    }
}

/// Cache of metric slots for nodes that appear in samples, which saves a lookup per sample.
#[derive(Debug)]
pub(crate) struct Samples {
    states: Vec<HopState>,
    /// The state's key epoch at the time of the lookups; the slots are void when it changes.
    epoch: u32,
}

impl Samples {
    /// Number of cache entries, selected by a hash of the node id; a power of two.
    const NODES: usize = 256;

    pub(crate) fn new() -> Self {
        Self {
            states: vec![HopState::NOTHING; Self::NODES],
            epoch: 0,
        }
    }

    /// Does what [`State::apply_nodes`] does, with cached slots.
    fn apply(&mut self, state: &mut State, head: &Head, readings: &[Reading], out: &mut dyn Output) {
        if self.epoch != state.epoch {
            self.epoch = state.epoch;
            self.states.iter_mut().for_each(HopState::unresolve);
        }
        let mut emitter = state.detection.emitter_without_flow(&head.about, out);
        for reading in readings {
            // Fibonacci hashing; the upper 8 bits select one of `NODES` entries.
            let at = reading.node.wrapping_mul(0x9e37_79b1) >> 24;
            let Some(hop) = self.states.get_mut(at as usize) else {
                continue;
            };
            if hop.node != reading.node {
                *hop = HopState::passing(reading);
            }
            // A sample has no flow, so its latency is no change of a flow's latency.
            hop.last_reported = saturated(reading.latency);
            let mut values = PacketValues::NOTHING;
            state.metrics.update(hop, &mut values, reading, 0, &mut emitter);
        }
    }
}

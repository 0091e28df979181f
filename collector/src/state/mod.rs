//! The latest state of all flows, nodes, links and paths of a worker, and its update by each kind of report.

mod deadband;
mod detection;
mod directory;
mod emit;
mod expiry;
mod flow;
pub(crate) mod flows;
pub(crate) mod hops;
mod node_metrics;
mod path;
pub(crate) mod pending;
pub(crate) mod removals;
mod rule_history;
mod rule_moves;
mod rule_regions;
mod runs;
pub(crate) mod series;
mod sketch;
pub(crate) mod summary;
pub(crate) mod suppressed;
pub(crate) mod topology;
mod update;
mod uses;
pub(crate) mod view;

use std::sync::Arc;

use detect::{Detection, Metric};
use wire::FlowKey;

use crate::admission::Admission;
use crate::config::{Config, Units};
use crate::decode::{
    ABSENT, All, EndTimestamps, Fixed, Head, Hops, ItemOffsets, NO_VALUE, NodeUnits, Plan, ReadHops, Reading,
    RecordKind, StackReport, Stacked, fixed_records, is_plausible,
};
use crate::event::Output;
use crate::index::NO_SLOT;
use crate::stats::Unadmitted;

pub(crate) use detection::ActiveDetection;
pub(crate) use emit::EventCounts;
pub(crate) use node_metrics::{NodeMetrics, emit_hop_latency, saturated};

use directory::{Directory, Resolved};
use flows::{FlowParts, Flows, HotFlowParts, StoredFlow};
use hops::{HopState, PacketValues};
use node_metrics::WIDEST_DEADBAND;
use path::Scratch;
use pending::PendingPostcards;
use removals::Removals;
use series::Merged;
use topology::Topology;

/// All tables of a worker.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) flows: Flows,
    pub(crate) metrics: NodeMetrics,
    pub(crate) topology: Topology,
    pub(crate) detection: ActiveDetection,
    /// Counts removals of node keys. Slots cached under an older epoch are looked up again.
    pub(crate) epoch: u32,
    /// Counts the causes to refresh flows: a new second, another detection, a new epoch. A flow with an older value is
    /// refreshed.
    context: u64,
    /// The current second since the Unix epoch.
    second: u32,
    /// True if minute rollups of flows are emitted.
    minutes: bool,
    pub(crate) counts: Counts,
    pub(crate) scratch: Scratch,
    /// Removed entries, for users that keep a copy of this state.
    pub(crate) removals: Option<Removals>,
    pub(crate) postcards: PendingPostcards,
    /// Flows by Flow ID.
    directory: Directory,
}

/// Counts of reports by outcome.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Reports that updated a flow.
    pub(crate) flow_reports: u64,
    /// Reports that updated node metrics only: they have no flow, or do not contain its path, or are about a replica.
    pub(crate) node_reports: u64,
    /// Reports of flows that the table did not admit, by [`Unadmitted`] reason.
    pub(crate) unadmitted: [u64; Unadmitted::ALL.len()],
    /// Flows and keys that expired.
    pub(crate) expired: u64,
}

impl State {
    /// Reserves the memory for the table sizes in `config`. `node_units`: the units of its nodes.
    pub(crate) fn new(config: &Config, node_units: NodeUnits) -> Self {
        let flows = Flows::with_capacity(config.max_flows);
        let mut state = Self {
            metrics: NodeMetrics::new(config, node_units),
            topology: Topology::new(config),
            detection: ActiveDetection::new(Arc::clone(&config.detection), flows.capacity()),
            epoch: 1,
            context: 1,
            second: 0,
            minutes: config.rollup.minutes,
            counts: Counts::default(),
            scratch: Scratch::new(),
            removals: None,
            postcards: PendingPostcards::with_capacity(config.postcards.max_pending, config.max_flows),
            directory: Directory::for_flows(config.max_flows, config.seed, &config.postcards.flow_ids),
            flows,
        };
        state.apply_thresholds();
        state
    }

    /// Activates thresholds and rules; each flow uses them from its next report on.
    pub(crate) fn set_detection(&mut self, detection: Arc<Detection>) {
        self.detection.activate(detection, self.flows.capacity());
        self.apply_thresholds();
        self.context += 1;
    }

    fn apply_thresholds(&mut self) {
        let Self {
            detection, metrics, ..
        } = self;
        for series in [&mut metrics.queues, &mut metrics.congestion, &mut metrics.links] {
            series.set_threshold(detection.least_threshold(series.metric()));
        }
    }

    /// Starts a second, counted from the epoch.
    pub(crate) fn begin_second(&mut self, second: u32) {
        self.second = second;
        self.context += 1;
    }

    /// Returns the current second since the Unix epoch.
    pub(crate) fn second(&self) -> u32 {
        self.second
    }

    /// Returns the bytes of memory in use by the tables of flows (with rule history), nodes, queues and links.
    pub(crate) fn bytes(&self) -> usize {
        self.flows.bytes() + self.detection.bytes() + self.metrics.bytes() + self.topology.bytes()
    }

    /// Applies reports about flows, whose paths are INT stacks of one layout. Each record length has specialized code, so that
    /// access to an item needs at most one comparison. The caller has counted the reports as flow reports.
    pub(crate) fn apply_stacks(&mut self, reports: &[StackReport<'_>], plan: &Plan, out: &mut dyn Output) {
        macro_rules! by_words {
            ($($words:literal)*) => {
                match plan.words {
                    $($words => self.apply_records::<_, $words>(reports, plan, plan, out),)*
                    _ => {}
                }
            };
        }
        macro_rules! by_items {
            ($(($words:literal $items:literal))*) => {
                match (plan.kind, plan.words) {
                    (RecordKind::All, 7) => self.apply_records::<_, 7>(reports, plan, All::<7>, out),
                    (RecordKind::All, 8) => self.apply_records::<_, 8>(reports, plan, All::<8>, out),
                    (RecordKind::All, 9) => self.apply_records::<_, 9>(reports, plan, All::<9>, out),
                    (RecordKind::All, _) => self.apply_records::<_, 11>(reports, plan, All::<11>, out),
                    $((RecordKind::Fixed($items), _) => {
                        self.apply_records::<_, $words>(reports, plan, Fixed::<$words, $items>, out);
                    })*
                    _ => by_words!(1 2 3 4 5 6 7 8 9 10 11 12 13),
                }
            };
        }
        fixed_records!(by_items);
    }

    /// Applies reports with records of `W` words, whose items are at `offsets`.
    #[inline(never)]
    fn apply_records<P: ItemOffsets, const W: usize>(
        &mut self,
        reports: &[StackReport<'_>],
        plan: &Plan,
        offsets: P,
        out: &mut dyn Output,
    ) {
        for report in reports {
            let hops = Stacked::<_, W>::new(report.records, plan, offsets);
            self.apply(&report.head, report.slot, hops, out);
        }
    }

    /// Applies a report about a flow with its path. The caller has counted it as a flow report.
    #[inline(always)]
    pub(crate) fn apply<H: Hops>(&mut self, head: &Head, hint: u32, hops: H, out: &mut dyn Output) {
        match self.enter(head, hint, out) {
            Some(slot) => self.update(slot, head, hops, out),
            None => {
                self.counts.flow_reports -= 1;
                self.apply_nodes(head, hops, out);
            }
        }
    }

    /// Applies a report whose hops may not be the flow's path: of a dropped packet, from a node in the middle of the path, or
    /// without hops.
    pub(crate) fn apply_partial<H: Hops>(&mut self, head: &Head, hops: H, out: &mut dyn Output) {
        let Some(slot) = self.enter(head, NO_SLOT, out) else {
            self.apply_nodes(head, hops, out);
            return;
        };
        self.counts.flow_reports += 1;
        if head.is_intermediate {
            self.apply_intermediate(slot, head, hops.count());
        }
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        let same = hops.count() == usize::from(flow.path_length())
            && states
                .iter()
                .zip(hops.records(0))
                .all(|(state, record)| state.node == hops.node(record));
        if same && hops.count() > 0 {
            self.update(slot, head, hops, out);
        } else {
            flow.reports += 1;
            flow.last_seen = flow.last_seen.max(head.about.ts);
            if flow.reports == 2 {
                self.flows.touch(slot, self.second);
            }
            self.apply_nodes(head, hops, out);
        }
    }

    /// Applies a report whose hops may not be the flow's path, because nodes could not add their data to an IOAM trace, or no
    /// hop has a node id. Applies the values, and keeps a known path. Without one, the nodes of a trace are the path until a
    /// report with all nodes arrives.
    #[cold]
    #[inline(never)]
    pub(crate) fn apply_incomplete<H: Hops>(&mut self, head: &Head, hops: H, out: &mut dyn Output) {
        let Some(slot) = self.enter(head, NO_SLOT, out) else {
            self.apply_nodes(head, hops, out);
            return;
        };
        self.counts.flow_reports += 1;
        if head.signals.is_incomplete() && hops.records(0).any(|record| hops.node(record) != ABSENT) {
            self.set_incomplete_path(slot, head, hops, out);
        }
        self.update_incomplete(slot, head, hops, (0, 0), out);
    }

    /// Applies the hops behind the first `applied.0` ones, which were applied and whose latencies are `applied.1` together, to
    /// the flow in `slot`, whose path they may not be.
    pub(super) fn update_incomplete<H: Hops>(
        &mut self,
        slot: u32,
        head: &Head,
        hops: H,
        applied: (usize, u64),
        out: &mut dyn Output,
    ) {
        let (from, mut total) = applied;
        let HotFlowParts {
            flow,
            cold,
            hops: mut states,
        } = self.flows.hot_parts(slot);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        for record in hops.records(from) {
            let reading = hops.read(record);
            let mut passing = (HopState::passing(&reading), PacketValues::NOTHING);
            let (state, values) = states
                .of_node(reading.node)
                .unwrap_or((&mut passing.0, &mut passing.1));
            self.metrics
                .update(state, values, &reading, flow.hop_deadband, &mut emitter);
            total = if is_plausible(reading.latency) {
                total.saturating_add(reading.latency)
            } else {
                NO_VALUE
            };
        }
        if head.signals.is_incomplete() {
            // Without all hops the flow latency is unknown.
            flow.count_report(head, &mut emitter);
        } else {
            // Hops without ids do not show that the known path is complete.
            let signals = head.signals.or_incomplete(true);
            let latency = flow.apply(cold, &Head { signals, ..*head }, hops, total, &mut emitter);
            self.observe_hops(slot, head, hops, latency, out);
        }
        let twice = self.flows.parts(slot).flow.reports == 2;
        self.enter_topology(slot);
        if twice {
            self.flows.touch(slot, self.second);
        }
    }

    /// Applies the values of the hops to node metrics only.
    #[cold]
    #[inline(never)]
    pub(crate) fn apply_nodes<H: Hops>(&mut self, head: &Head, hops: H, out: &mut dyn Output) {
        let mut emitter = self.detection.emitter_without_flow(&head.about, out);
        for record in hops.records(0) {
            let reading = hops.read(record);
            let mut state = HopState::passing(&reading);
            let mut values = PacketValues::NOTHING;
            self.metrics
                .update(&mut state, &mut values, &reading, 0, &mut emitter);
        }
    }

    /// Applies a postcard: a report of one node without a path. Stores the hop with the flow; the path follows when postcards
    /// are joined. Tries slot `hint` first. Returns the flow's slot, or `None` if the table did not admit the flow.
    pub(crate) fn apply_postcard(
        &mut self,
        head: &Head,
        hint: u32,
        reading: &Reading,
        out: &mut dyn Output,
    ) -> Option<u32> {
        let Some(slot) = self.enter(head, hint, out) else {
            let readings = std::slice::from_ref(reading);
            self.apply_nodes(
                head,
                ReadHops::new(readings, EndTimestamps::NONE, Units::NONE),
                out,
            );
            return None;
        };
        self.counts.flow_reports += 1;
        self.add_hop_without_path(slot, reading.node);
        self.update_hop(slot, head, reading, out);
        Some(slot)
    }

    /// Applies a summary of one node about a flow; `latency` summarizes its hop latencies. Returns the flow's slot.
    pub(crate) fn apply_summary(
        &mut self,
        head: &Head,
        node: u32,
        latency: Option<&Merged>,
        out: &mut dyn Output,
    ) -> Option<u32> {
        let slot = self.enter(head, NO_SLOT, out)?;
        self.counts.flow_reports += 1;
        self.add_hop_without_path(slot, node);
        let FlowParts { flow, states, .. } = self.flows.parts(slot);
        flow.reports += 1;
        flow.last_seen = flow.last_seen.max(head.about.ts);
        let mut emitter = self.detection.emitter(&head.about, flow.threshold_set, out);
        let state = states.iter_mut().find(|state| state.node == node);
        if let (Some(latency), Some(state)) = (latency, state) {
            state.merge_latency(latency, &mut emitter);
        }
        let twice = flow.reports == 2;
        self.enter_topology(slot);
        if twice {
            self.flows.touch(slot, self.second);
        }
        Some(slot)
    }

    /// Returns the slot of the report's flow. Adds the flow if it is new, and refreshes it if due. Tries slot `hint` first.
    /// Returns `None` if the table did not admit the flow.
    #[inline(always)]
    fn enter(&mut self, head: &Head, hint: u32, out: &mut dyn Output) -> Option<u32> {
        if self.flows.is_ready(hint, &head.about.key, self.context) {
            return Some(hint);
        }
        self.enter_slow(head, hint, out)
    }

    #[inline(never)]
    fn enter_slow(&mut self, head: &Head, hint: u32, out: &mut dyn Output) -> Option<u32> {
        let slot = match self.flows.find(&head.about.key, head.hash, hint) {
            NO_SLOT => self.admit(head, out)?,
            slot => slot,
        };
        self.refresh_if_due(slot, out);
        Some(slot)
    }

    /// Adds the report's flow to the table, and evicts another if it is full. Returns `None` if the flow is refused, which is
    /// counted.
    #[cold]
    #[inline(never)]
    fn admit(&mut self, head: &Head, out: &mut dyn Output) -> Option<u32> {
        if !head.whole_path && !head.is_intermediate {
            self.counts.node_reports += 1;
            return None;
        }
        let now = head.about.ts;
        let position = match self.flows.admit(head.hash, self.second) {
            Admission::Free(position) => position,
            Admission::Evict(position, slot) => {
                self.remove(slot, now, out);
                position
            }
            Admission::Refused(reason) => {
                self.counts.unadmitted[reason as usize] += 1;
                return None;
            }
        };
        let slot = self
            .flows
            .insert(position, head.about.key, head.hash, now, self.second);
        self.flows.parts(slot).cold.first_report_hash = head.about.origin.hash() as u32;
        self.detection.forget(slot);
        self.directory.enter(&head.about.key, slot);
        Some(slot)
    }

    /// Refreshes a flow if its context is out of date.
    pub(crate) fn refresh_if_due(&mut self, slot: u32, out: &mut dyn Output) {
        if self.flows.context(slot) != self.context {
            self.refresh(slot, out);
        }
    }

    /// Refreshes a flow: closes its minute, looks up node slots again, and maps it to the active thresholds and rules.
    #[inline(never)]
    fn refresh(&mut self, slot: u32, out: &mut dyn Output) {
        self.close_minute(slot, out);
        let FlowParts { flow, cold, states } = self.flows.parts(slot);
        if cold.epoch != self.epoch {
            cold.epoch = self.epoch;
            states.iter_mut().for_each(HopState::unresolve);
        }
        if cold.generation != self.detection.generation() {
            flow.rules = self
                .detection
                .resolve(slot, &flow.key, (cold.generation, flow.rules));
            cold.generation = self.detection.generation();
            let thresholds = &self.detection.active().thresholds;
            flow.threshold_set = thresholds.set_for(&flow.key);
            let thresholds = thresholds.get(flow.threshold_set);
            flow.hop_deadband = thresholds[Metric::HopLatency as usize].min(WIDEST_DEADBAND);
            flow.set_deadband(cold, thresholds[Metric::FlowLatency as usize]);
        }
        flow.context = self.context;
        self.flows.touch(slot, self.second);
    }

    /// Returns the flow of a Flow ID: the one that the configuration names, or the only known flow with this ID, or a key that
    /// consists of the ID alone.
    #[inline]
    pub(crate) fn flow_of_id(&mut self, id: u32) -> FlowKey {
        if let Some(named) = self.directory.named(id) {
            return *named;
        }
        if !self.directory.is_in_use() {
            self.list_flows();
        }
        match self.directory.find(id) {
            Resolved::Unknown => FlowKey::of_id(id),
            Resolved::Slot(slot) => self.resolved(id, slot),
            Resolved::Ambiguous => {
                self.postcards.stats.ambiguous += 1;
                FlowKey::of_id(id)
            }
        }
    }

    /// Counts a Flow ID that one known flow has, and returns that flow.
    fn resolved(&mut self, id: u32, slot: u32) -> FlowKey {
        self.postcards.stats.resolved += 1;
        self.flows
            .get(slot)
            .map_or_else(|| FlowKey::of_id(id), |stored| stored.flow.key)
    }

    /// Builds the index of flows by Flow ID when the first Flow ID arrives.
    #[cold]
    fn list_flows(&mut self) {
        self.directory.begin();
        for slot in 0..self.flows.slots() {
            if let Some(StoredFlow { flow, .. }) = self.flows.get(slot) {
                self.directory.enter(&flow.key, slot);
            }
        }
    }
}

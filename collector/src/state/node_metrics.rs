//! Node metrics: applies the values of one hop to the time series of its node, queues and link.

use detect::Metric;

use super::emit::Emitter;
use super::hops::{HopState, PacketValues};
use super::series::{Cause, Change, Key, Merged, Series};
use super::sketch::Sketches;
use super::suppressed::SuppressedHop;
use crate::config::Config;
use crate::decode::{ABSENT, IMPLAUSIBLE, NO_VALUE, NodeUnits, Reading, egress, is_plausible};
use crate::index::NO_SLOT;

/// The longest latency that a hop state stores, ns (4.28 s); higher values encode implausible latencies.
pub(super) const SATURATED: u32 = IMPLAUSIBLE as u32 - 1;
/// The widest deadband of hop latency: half of the range of a hop state, so that before the first report every value lies
/// outside. A wider threshold is compared when a value leaves the deadband.
pub(crate) const WIDEST_DEADBAND: u64 = 1 << 31;

/// The time series of nodes, queues and links, one table per metric.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    pub(crate) nodes: Series,
    pub(crate) queues: Series,
    pub(crate) congestion: Series,
    pub(crate) links: Series,
    pub(crate) sketches: Sketches,
    /// Number of implausible hop latencies received.
    pub(crate) implausible: u64,
    /// The configured units of nodes, which determine the profile of a series.
    node_units: NodeUnits,
}

impl HopState {
    /// Returns a state for a hop that is not stored. Its hop latency counts as already reported.
    pub(crate) fn passing(reading: &Reading) -> Self {
        Self {
            node: reading.node,
            last_reported: saturated(reading.latency),
            ..Self::NOTHING
        }
    }
}

impl HopState {
    /// Applies a summary of hop latencies. Its value is the extreme further from the last reported value, if it is beyond the
    /// threshold, or else the mean.
    pub(super) fn merge_latency(&mut self, latency: &Merged, emitter: &mut Emitter<'_>) {
        let far = match self.last_reported {
            ABSENT => Some(latency.max),
            last => latency.outside(u64::from(last), emitter.threshold(Metric::HopLatency)),
        };
        self.latest = saturated(far.unwrap_or(latency.sum / latency.count.max(1)));
        if far.is_some() {
            emit_hop_latency(self, emitter);
        }
    }
}

/// Converts a plausible latency to the 32 bits of a hop state.
#[inline(always)]
pub(crate) fn saturated(latency: u64) -> u32 {
    latency.min(u64::from(SATURATED)) as u32
}

impl NodeMetrics {
    /// Reserves the memory for the nodes, queues and links in `config`. `node_units`: the units of its nodes.
    pub(crate) fn new(config: &Config, node_units: NodeUnits) -> Self {
        let seed = config.seed;
        Self {
            nodes: Series::new(Metric::HopLatency, false, config.max_nodes, seed),
            queues: Series::new(Metric::QueueOccupancy, true, config.max_queues, seed),
            congestion: Series::new(Metric::QueueCongestion, true, config.max_queues, seed),
            links: Series::new(Metric::LinkUtilization, true, config.max_links, seed),
            sketches: Sketches::with_capacity(config.rollup.sketches),
            implausible: 0,
            node_units,
        }
    }

    /// Returns the series of a metric (hop latency for metrics of a whole flow), and the sketches.
    pub(crate) fn series_mut(&mut self, metric: Metric) -> (&mut Series, &mut Sketches) {
        let series = match metric {
            Metric::QueueOccupancy => &mut self.queues,
            Metric::QueueCongestion => &mut self.congestion,
            Metric::LinkUtilization => &mut self.links,
            _ => &mut self.nodes,
        };
        (series, &mut self.sketches)
    }

    /// Returns all series, and the sketches that they share.
    pub(crate) fn all_mut(&mut self) -> ([&mut Series; 4], &mut Sketches) {
        let Self {
            nodes,
            queues,
            congestion,
            links,
            sketches,
            ..
        } = self;
        ([nodes, queues, congestion, links], sketches)
    }

    /// Returns the memory of all tables in bytes.
    pub(crate) fn bytes(&self) -> usize {
        [&self.nodes, &self.queues, &self.congestion, &self.links]
            .map(Series::bytes)
            .iter()
            .sum()
    }

    /// Applies the values of one hop. `deadband` is the flow's threshold of hop latency, at most [`WIDEST_DEADBAND`].
    pub(crate) fn update(
        &mut self,
        state: &mut HopState,
        values: &mut PacketValues,
        reading: &Reading,
        deadband: u64,
        emitter: &mut Emitter<'_>,
    ) {
        if is_plausible(reading.latency) {
            self.update_latency(state, reading, deadband, emitter);
        } else {
            self.note_no_latency(state, reading, emitter);
        }
        self.update_others(state, values, reading, emitter);
    }

    /// Handles a hop without a usable latency: the one of an earlier report is not true of this one.
    #[inline(always)]
    pub(super) fn note_no_latency(&mut self, state: &mut HopState, reading: &Reading, emitter: &Emitter<'_>) {
        if reading.latency == NO_VALUE {
            state.latest = ABSENT;
        } else {
            self.count_implausible(state, reading, emitter);
        }
    }

    /// Counts an implausible hop latency, and marks the hop until its next latency.
    #[cold]
    #[inline(never)]
    fn count_implausible(&mut self, state: &mut HopState, reading: &Reading, emitter: &Emitter<'_>) {
        state.latest = reading.latency as u32;
        self.implausible += 1;
        if state.node_slot == NO_SLOT && reading.node != ABSENT {
            let key = Key::new(reading.node, 0);
            let profile = self.node_units.profile(reading.node, emitter.about().profile);
            let cause = Cause {
                profile,
                origin: emitter.about().identity(),
            };
            state.node_slot = self.nodes.slot(key, cause);
        }
        self.nodes.count_implausible(state.node_slot);
    }

    #[inline(always)]
    pub(super) fn update_latency(
        &mut self,
        state: &mut HopState,
        reading: &Reading,
        deadband: u64,
        emitter: &mut Emitter<'_>,
    ) {
        if self.nodes.add(state.node_slot, reading.latency) {
            let key = Key::new(reading.node, 0);
            examine(
                &mut self.nodes,
                &mut self.sketches,
                &self.node_units,
                &mut state.node_slot,
                key,
                reading.latency,
                emitter,
            );
        }
        let latency = saturated(reading.latency);
        state.latest = latency;
        let above = u64::from(latency)
            .wrapping_add(deadband)
            .wrapping_sub(u64::from(state.last_reported));
        // Before the first event `last_reported` is all ones, which may be within the deadband of a latency of seconds.
        if above > deadband.wrapping_mul(2) || state.last_reported == ABSENT {
            emit_hop_latency(state, emitter);
        }
    }

    #[inline(always)]
    pub(super) fn update_others(
        &mut self,
        state: &mut HopState,
        values: &mut PacketValues,
        reading: &Reading,
        emitter: &mut Emitter<'_>,
    ) {
        let other_queue = (state.queue ^ reading.queue) >> 24 != 0;
        state.queue = reading.queue;
        if (state.link, values.level_2()) != (reading.link, reading.level_2) {
            state.reroute(reading);
        }
        let utilization = reading.utilization();
        if utilization == NO_VALUE {
            *values = PacketValues::of(reading, None);
        } else {
            *values = PacketValues::of(reading, Some(utilization));
            if self.links.add(state.link_slot, utilization) {
                let key = Key::new(reading.node, reading.egress());
                examine(
                    &mut self.links,
                    &mut self.sketches,
                    &self.node_units,
                    &mut state.link_slot,
                    key,
                    utilization,
                    emitter,
                );
            }
        }
        if reading.queue != ABSENT {
            let occupancy = u64::from(reading.queue & 0x00ff_ffff);
            let queue = reading.queue >> 24;
            if other_queue {
                state.queue_slot = NO_SLOT;
            }
            if self.queues.add(state.queue_slot, occupancy) {
                let key = Key::of_queue(reading.node, queue, reading.egress());
                examine(
                    &mut self.queues,
                    &mut self.sketches,
                    &self.node_units,
                    &mut state.queue_slot,
                    key,
                    occupancy,
                    emitter,
                );
            }
        } else {
            state.queue_slot = NO_SLOT;
        }
        if reading.congestion != ABSENT {
            self.update_congestion(reading, emitter);
        }
    }

    /// Applies a congestion status, which is rarely reported: its series is looked up each time.
    #[inline(never)]
    fn update_congestion(&mut self, reading: &Reading, emitter: &mut Emitter<'_>) {
        let queue = reading.congestion >> 24;
        let level = u64::from(reading.congestion & 0x00ff_ffff);
        let key = Key::of_queue(reading.node, queue, reading.egress());
        examine(
            &mut self.congestion,
            &mut self.sketches,
            &self.node_units,
            &mut { NO_SLOT },
            key,
            level,
            emitter,
        );
    }
}

impl HopState {
    #[cold]
    #[inline(never)]
    fn reroute(&mut self, reading: &Reading) {
        self.link = reading.link;
        // The egress interface belongs to the key of a queue, too.
        (self.link_slot, self.queue_slot) = (NO_SLOT, NO_SLOT);
    }
}

/// Applies a value outside its series' deadband, or one whose slot is not known yet.
#[inline(never)]
fn examine(
    series: &mut Series,
    sketches: &mut Sketches,
    node_units: &NodeUnits,
    slot: &mut u32,
    key: Key,
    value: u64,
    emitter: &mut Emitter<'_>,
) {
    if *slot == NO_SLOT {
        if key.node == ABSENT {
            // A value without a node id belongs to no series.
            return;
        }
        let profile = node_units.profile(key.node, emitter.about().profile);
        *slot = series.slot(
            key,
            Cause {
                profile,
                origin: emitter.about().identity(),
            },
        );
        if *slot == NO_SLOT || !series.add(*slot, value) {
            return;
        }
    }
    let threshold = emitter.threshold(series.metric());
    let previous = match series.examine(*slot, value, threshold, sketches) {
        Change::None => return,
        Change::New => None,
        Change::Changed(previous) => Some(previous),
    };
    let mut event = emitter.change(series.metric(), value, previous);
    event.set_location(key.location(series.metric()));
    emitter.emit(event, &[]);
}

#[cold]
#[inline(never)]
pub(crate) fn emit_hop_latency(state: &mut HopState, emitter: &mut Emitter<'_>) {
    let previous = (state.last_reported != ABSENT).then_some(u64::from(state.last_reported));
    let latest = u64::from(state.latest);
    if previous.is_some_and(|previous| previous.abs_diff(latest) <= emitter.threshold(Metric::HopLatency)) {
        return;
    }
    state.last_reported = state.latest;
    let mut event = emitter.change(Metric::HopLatency, latest, previous);
    event.node = (state.node != ABSENT).then_some(state.node);
    event.flow = emitter.about().flow();
    emitter.emit(event, &[]);
}

impl NodeMetrics {
    /// Does the same as [`NodeMetrics::update`], without events, for values that the kernel program suppressed.
    pub(super) fn update_silently(
        &mut self,
        state: &mut HopState,
        values: &mut PacketValues,
        hop: &SuppressedHop,
    ) {
        let Self {
            nodes,
            queues,
            congestion,
            links,
            sketches,
            ..
        } = self;
        if hop.latency == NO_VALUE {
            state.latest = ABSENT;
        } else {
            state.latest = saturated(hop.latency);
            let key = Key::new(hop.node, 0);
            nodes.add_silently(&mut state.node_slot, key, hop.latency, sketches);
        }
        if (state.link, values.level_2()) != (hop.link, hop.level_2) {
            state.link = hop.link;
            (state.link_slot, state.queue_slot) = (NO_SLOT, NO_SLOT);
        }
        let egress = egress(hop.link, hop.level_2);
        let utilization = Some(hop.utilization).filter(|utilization| *utilization != NO_VALUE);
        values.update(utilization, hop.congestion, hop.level_2);
        if hop.utilization != NO_VALUE {
            let key = Key::new(hop.node, egress);
            links.add_silently(&mut state.link_slot, key, hop.utilization, sketches);
        }
        if hop.queue != ABSENT {
            let queue = hop.queue >> 24;
            if (state.queue ^ hop.queue) >> 24 != 0 || state.queue == ABSENT {
                state.queue_slot = NO_SLOT;
            }
            state.queue = hop.queue;
            let key = Key::of_queue(hop.node, queue, egress);
            queues.add_silently(
                &mut state.queue_slot,
                key,
                u64::from(hop.queue & 0x00ff_ffff),
                sketches,
            );
        }
        if hop.congestion != ABSENT {
            let key = Key::of_queue(hop.node, hop.congestion >> 24, egress);
            congestion.add_silently(
                &mut { NO_SLOT },
                key,
                u64::from(hop.congestion & 0x00ff_ffff),
                sketches,
            );
        }
    }
}

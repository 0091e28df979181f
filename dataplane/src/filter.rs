//! Report filters of the sink: they decide which packets with INT are reported (`detect::detector` describes the algorithms).
//!
//! The first [`Filter`] of the list that matches the flow decides; a flow that none matches has all its packets reported. A
//! filter sees the content of the report, which is the records of the packet's stack and the sink's own record, in the units
//! and by the rules by which the collector reads them.
//!
//! # Where filters apply
//! - **INT-MD**, both versions: at the sink, of the whole path.
//! - **INT-MX and postcards**: at every node that reports, on that node's hop. Per-hop, change and single-node rules work as in
//!   INT-MD; per-flow state is then kept per flow and node.
//! - **Not SF-INT**: its samples are already selected by state, and each is part of a set that the collector joins; suppressing
//!   one would invalidate the set.
//! - **Not** packets on whose path a record did not fit (E or M is set, or the sink's record does not fit): their stack is not
//!   their path, so they are always reported.
//! - **Not** drop reports and queue reports.
//!
//! # Implausible latencies
//! A hop latency that the collector discards (see [`Units::max_latency`]) is ignored here too: no algorithm compares it, and it
//! does not cause packets of a known flow to be reported.

use std::fmt;

use detect::detector::{Counts, Decision};
use detect::observation::{ABSENT, NO_NODE, UTILIZATION_ONE};
use detect::{Algorithm, Detector, DetectorError, HopValues, Match, Metric, Monitor, Observation};
use wire::int::Stack;
use wire::{FlowKey, Hop};

/// Number of registers per filter, unless configured otherwise.
pub const REGISTERS: usize = 4096;

/// Maximum number of filters: a packet's flow is compared with each until one matches.
pub const MAX_FILTERS: usize = 256;

/// Maximum number of hops: the longest stack of one-word records, and the sink's record.
const MAX_HOPS: usize = 256;
/// Marks a latency that is implausible. No product of two 32-bit numbers is this large.
const IMPLAUSIBLE: u64 = ABSENT - 1;

/// A detector, and the flows to which it applies.
///
/// ```
/// use dataplane::filter::Units;
/// use dataplane::{Filter, Filters};
/// use detect::{Algorithm, Detector, Match, Metric};
///
/// // A sink reports a packet to port 80 only when its latency differs by more than 1 ms from the last one reported.
/// let flows = Match { dst_port: "80".parse()?, ..Match::default() };
/// let detector = Detector { algorithm: Algorithm::PerFlow, metric: Metric::FlowLatency, threshold: 1_000_000 };
/// let filters = Filters::new(vec![Filter { flows, detector }], 4096, Units::default())?;
/// assert_eq!(filters.entries().len(), 1);
///
/// let detector = Detector { algorithm: Algorithm::MovingAverage { alpha: 0 }, metric: Metric::FlowLatency, threshold: 0 };
/// assert!(Filters::new(vec![Filter { flows, detector }], 4096, Units::default()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The flows to which the detector applies.
    pub flows: Match,
    /// The detector, which selects the packets to report.
    pub detector: Detector,
}

/// Units in which the devices of the domain measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Nanoseconds per unit of timestamps.
    pub stamp_ns: u32,
    /// Nanoseconds per unit of hop latency.
    pub latency_ns: u32,
    /// Millionths of a link per unit of utilization.
    pub utilization: u32,
    /// Whether timestamps of different nodes are comparable: a flow's latency is then its last egress minus its first ingress.
    pub synchronised: bool,
    /// Longest plausible hop latency, ns; [`Units::UNLIMITED`] accepts every one. A hop latency is also implausible if the
    /// ingress timestamp is 0 and the egress timestamp is not, as happens to packets that a switch cloned.
    pub max_latency: u64,
}

impl Units {
    /// Default for the longest plausible hop latency, ns: the same as in the collector.
    pub const MAX_LATENCY: u64 = 1_000_000_000;
    /// Limit that no latency exceeds.
    pub const UNLIMITED: u64 = u64::MAX;
}

impl Default for Units {
    /// Uses nanoseconds, millionths, unsynchronised clocks, and latencies up to [`Units::MAX_LATENCY`].
    fn default() -> Self {
        Self {
            stamp_ns: 1,
            latency_ns: 1,
            utilization: 1,
            synchronised: false,
            max_latency: Self::MAX_LATENCY,
        }
    }
}

/// The reason why a list of filters was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// There are more than [`MAX_FILTERS`] filters.
    TooMany(usize),
    /// The detector of a filter contradicts itself.
    Detector {
        /// Index of the filter, from 0.
        index: usize,
        /// The contradiction in the detector.
        error: DetectorError,
    },
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(f, "{count} filters are too many: at most {MAX_FILTERS}"),
            Self::Detector { index, error } => write!(f, "filter {}: {error}", index + 1),
        }
    }
}

impl std::error::Error for FilterError {}

/// Filters in order of precedence, with their registers.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    entries: Vec<Entry>,
    units: Units,
    values: Vec<HopValues>,
    nodes: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Entry {
    filter: Filter,
    monitor: Monitor,
    registers: usize,
    needs: Needs,
}

impl Entry {
    fn is_equal(&self, other: &Self) -> bool {
        self.filter == other.filter && self.registers == other.registers
    }

    /// Returns whether the two filters differ at most in their threshold, so that registers of one are valid for the other.
    fn differs_in_threshold(&self, other: &Self) -> bool {
        let detector = &self.filter.detector;
        let other_detector = &other.filter.detector;
        let is_same_detector =
            detector.algorithm == other_detector.algorithm && detector.metric == other_detector.metric;
        is_same_detector && self.filter.flows == other.filter.flows && self.registers == other.registers
    }
}

/// The values that a detector reads; the others are not parsed.
#[derive(Clone, Copy, Debug)]
struct Needs {
    latency: bool,
    queue: bool,
    congestion: bool,
    utilization: bool,
    flow_latency: bool,
    looped: bool,
}

impl Needs {
    fn new(detector: &Detector) -> Self {
        let flow_latency = uses(detector, Metric::FlowLatency);
        Self {
            latency: uses(detector, Metric::HopLatency) || flow_latency,
            queue: uses(detector, Metric::QueueOccupancy),
            congestion: uses(detector, Metric::QueueCongestion),
            utilization: uses(detector, Metric::LinkUtilization),
            flow_latency,
            looped: matches!(detector.algorithm, Algorithm::Rule(_)) && uses(detector, Metric::FlowPath),
        }
    }
}

fn uses(detector: &Detector, metric: Metric) -> bool {
    match &detector.algorithm {
        Algorithm::Noop => false,
        Algorithm::Change(_) => matches!(metric, Metric::HopLatency | Metric::QueueOccupancy),
        Algorithm::Rule(program) => program.table.uses(metric),
        _ => metric == detector.metric,
    }
}

/// The sink's own metadata, as in its report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metadata {
    pub(crate) hop: Hop,
    /// Whether the metadata is on the packet's stack; otherwise it is in the report's header.
    pub(crate) on_stack: bool,
}

/// Ingress timestamp of the first node and egress timestamp of the last; all-ones if unknown.
#[derive(Clone, Copy)]
struct EndTimestamps {
    ingress: u64,
    egress: u64,
    /// Whether both timestamps have 64 bits; otherwise they wrap at 2^32.
    wide: bool,
}

impl Filters {
    /// Returns filters with `registers` empty registers each (a power of two).
    ///
    /// # Errors
    /// There are too many filters, a detector contradicts itself, or the number of registers is invalid.
    pub fn new(filters: Vec<Filter>, registers: usize, units: Units) -> Result<Self, FilterError> {
        if filters.len() > MAX_FILTERS {
            return Err(FilterError::TooMany(filters.len()));
        }
        let hops = if filters.is_empty() { 0 } else { MAX_HOPS };
        let mut entries = Vec::with_capacity(filters.len());
        for (index, filter) in filters.into_iter().enumerate() {
            let monitor = Monitor::new(filter.detector.clone(), registers)
                .map_err(|error| FilterError::Detector { index, error })?;
            let needs = Needs::new(&filter.detector);
            entries.push(Entry {
                filter,
                monitor,
                registers,
                needs,
            });
        }
        Ok(Self {
            entries,
            units,
            values: Vec::with_capacity(hops),
            nodes: Vec::with_capacity(hops),
        })
    }

    /// Returns whether there are no filters, so that every packet is reported.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the filters in order of precedence, each with the counts of its decisions.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&Filter, &Counts)> {
        self.entries
            .iter()
            .map(|entry| (&entry.filter, entry.monitor.counts()))
    }

    /// Clears the registers of all filters.
    pub fn wipe(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.monitor.wipe());
    }

    /// Carries over the registers and counts of each filter that `old` also has, if the units are the same. A filter may have a
    /// new threshold: values reported last stay valid. Identical filters are matched before those that differ in the threshold,
    /// each with the first candidate in `old`.
    #[must_use]
    pub fn continuing(mut self, mut old: Self) -> Self {
        if self.units != old.units {
            return self;
        }
        let mut new_entries: Vec<&mut Entry> = self.entries.iter_mut().collect();
        for is_same in [Entry::is_equal, Entry::differs_in_threshold] {
            new_entries.retain_mut(|entry| {
                let Some(index) = old.entries.iter().position(|old_entry| is_same(entry, old_entry)) else {
                    return true;
                };
                let threshold = entry.filter.detector.threshold;
                entry.monitor = old.entries.remove(index).monitor.with_threshold(threshold);
                false
            });
        }
        self
    }

    /// Decides whether to report a packet of `flow` with `stack` at `now` (ns). Returns `None` if no filter matches the flow.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        flow: &FlowKey,
        stack: &Stack<'_>,
        metadata: Option<&Metadata>,
        now: u64,
    ) -> Option<Decision> {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| entry.filter.flows.matches(flow))?;
        let values = &mut self.values;
        let needs = entry.needs;
        let units = self.units;
        values.clear();
        let records = stack
            .records()
            .rev()
            .map(|record| read(stack, record, needs, units));
        values.extend(
            records
                .chain(metadata.map(|metadata| read_hop(&metadata.hop, units)))
                .take(MAX_HOPS),
        );
        let has_implausible = remove_implausible(values) && needs.latency;
        let flow_latency = if needs.flow_latency {
            flow_latency(values, stack, metadata, units)
        } else {
            None
        };
        let looped = needs.looped && is_loop(values, &mut self.nodes);
        let observation = Observation {
            flow_latency,
            looped,
            hops: values,
        };
        Some(if has_implausible {
            entry.monitor.decide_implausible(&observation, flow)
        } else {
            entry.monitor.decide(&observation, flow, now)
        })
    }
}

/// Reads the needed values of a record in place.
#[inline]
fn read(stack: &Stack<'_>, record: &[u8], needs: Needs, units: Units) -> HopValues {
    let layout = &stack.layout;
    let mut values = HopValues {
        node: layout.node_id(record),
        ..HopValues::NOTHING
    };
    if needs.latency {
        let stamps = EndTimestamps {
            ingress: layout.ingress_ts(record),
            egress: layout.egress_ts(record),
            wide: layout.wide_ts(),
        };
        let reported = Some(layout.hop_latency(record)).filter(|latency| *latency != u32::MAX);
        values.hop_latency = hop_latency(reported, stamps, units);
    }
    if needs.queue {
        values.queue_occupancy = level(layout.queue(record));
    }
    if needs.congestion {
        values.queue_congestion = level(layout.queue_congestion(record));
    }
    if needs.utilization {
        values.link_utilization = match layout.tx_utilization(record) {
            u32::MAX => ABSENT,
            raw => u64::from(raw) * u64::from(units.utilization),
        };
    }
    values
}

/// Returns the level in the low 24 bits of a queue's word; [`ABSENT`] for all-ones.
#[inline]
fn level(word: u32) -> u64 {
    if word == u32::MAX {
        ABSENT
    } else {
        u64::from(word & 0x00ff_ffff)
    }
}

/// Reads all values of this switch's own record.
fn read_hop(hop: &Hop, units: Units) -> HopValues {
    let stamps = EndTimestamps {
        ingress: hop.ingress_ts.unwrap_or(ABSENT),
        egress: hop.egress_ts.unwrap_or(ABSENT),
        wide: false,
    };
    let utilization = hop
        .tx_utilization
        .map(|raw| u64::from(raw) * u64::from(units.utilization));
    HopValues {
        hop_latency: hop_latency(hop.hop_latency, stamps, units),
        queue_occupancy: hop.queue_occupancy.map_or(ABSENT, u64::from),
        queue_congestion: ABSENT,
        link_utilization: utilization.unwrap_or(ABSENT),
        node: hop.node_id.unwrap_or(NO_NODE),
    }
}

const _: () = assert!(UTILIZATION_ONE == 1_000_000, "units count millionths");

/// Returns a hop latency, ns: the reported one, or else the time between the timestamps. Returns [`ABSENT`] without either, and
/// [`IMPLAUSIBLE`] where the collector would discard it.
#[inline]
fn hop_latency(reported: Option<u32>, stamps: EndTimestamps, units: Units) -> u64 {
    let latency = match reported {
        Some(latency) => u64::from(latency) * u64::from(units.latency_ns),
        None if stamps.ingress == ABSENT || stamps.egress == ABSENT => return ABSENT,
        // The egress timestamp precedes the ingress timestamp.
        None => match elapsed(stamps, units.stamp_ns) {
            ABSENT => return IMPLAUSIBLE,
            latency => latency,
        },
    };
    if latency > units.max_latency || lacks_ingress(stamps, units) {
        IMPLAUSIBLE
    } else {
        latency
    }
}

/// Returns whether the egress timestamp is known and the ingress timestamp is 0.
fn lacks_ingress(stamps: EndTimestamps, units: Units) -> bool {
    let EndTimestamps { ingress, egress, .. } = stamps;
    ingress == 0 && egress != 0 && egress != ABSENT && units.max_latency != Units::UNLIMITED
}

/// Replaces implausible latencies by [`ABSENT`], and returns whether there were any.
#[inline]
fn remove_implausible(values: &mut [HopValues]) -> bool {
    let mut any = false;
    for hop in values.iter_mut().filter(|hop| hop.hop_latency == IMPLAUSIBLE) {
        hop.hop_latency = ABSENT;
        any = true;
    }
    any
}

/// Returns the time between two timestamps, ns; [`ABSENT`] if one is unknown or the second precedes the first. Differences of
/// 32-bit timestamps are taken modulo 2^32, and are valid below 2^31.
#[inline]
fn elapsed(ends: EndTimestamps, stamp_ns: u32) -> u64 {
    if ends.ingress == ABSENT || ends.egress == ABSENT {
        return ABSENT;
    }
    let later = if ends.wide {
        match ends.egress.checked_sub(ends.ingress) {
            Some(later) => later,
            None => return ABSENT,
        }
    } else {
        match (ends.egress as u32).wrapping_sub(ends.ingress as u32) {
            later if later >> 31 != 0 => return ABSENT,
            later => u64::from(later),
        }
    };
    later.saturating_mul(u64::from(stamp_ns))
}

/// Returns the sum of the hop latencies. With synchronised clocks, returns the time from the first ingress to the last egress
/// instead, unless it is less than that sum by more than the rounding of timestamps.
fn flow_latency(
    values: &[HopValues],
    stack: &Stack<'_>,
    metadata: Option<&Metadata>,
    units: Units,
) -> Option<u64> {
    let mut total = Some(0_u64).filter(|_| !values.is_empty());
    for hop in values {
        total = total
            .filter(|_| hop.hop_latency != ABSENT)
            .map(|total| total.wrapping_add(hop.hop_latency));
    }
    if !units.synchronised {
        return total;
    }
    let rounding = u64::from(units.stamp_ns) * values.len() as u64;
    let ends = ends(stack, metadata);
    match elapsed(ends, units.stamp_ns) {
        _ if lacks_ingress(ends, units) => total,
        ABSENT => total,
        measured => match total {
            Some(total) if measured.saturating_add(rounding) < total => Some(total),
            _ => Some(measured),
        },
    }
}

fn ends(stack: &Stack<'_>, metadata: Option<&Metadata>) -> EndTimestamps {
    let layout = &stack.layout;
    let first = stack.records().next_back();
    let last = stack.records().next();
    // A report's header has 32-bit timestamps of this switch: with one of them, a difference is taken modulo 2^32.
    let wide = layout.wide_ts() && metadata.is_none_or(|metadata| metadata.on_stack);
    let ingress = match first {
        Some(record) => Some(layout.ingress_ts(record)),
        None => metadata.and_then(|metadata| metadata.hop.ingress_ts),
    };
    let egress = match metadata {
        Some(metadata) => metadata.hop.egress_ts,
        None => last.map(|record| layout.egress_ts(record)),
    };
    EndTimestamps {
        ingress: ingress.unwrap_or(ABSENT),
        egress: egress.unwrap_or(ABSENT),
        wide,
    }
}

/// Returns whether a node occurs twice on the path. `nodes` is scratch space.
fn is_loop(values: &[HopValues], nodes: &mut Vec<u32>) -> bool {
    nodes.clear();
    nodes.extend(values.iter().map(|hop| hop.node).filter(|node| *node != NO_NODE));
    nodes.sort_unstable();
    nodes.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests;

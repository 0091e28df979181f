//! Time series of node metrics: hop latency, occupancy and congestion of queues, utilization of links.
//!
//! # Cost of a value
//!
//! A series has a deadband: the values within the minimum and maximum of this second **and** within the threshold of the last
//! reported value. Nearly every value is inside; it only updates the sum and the countdown to the next sample. A value outside
//! is a new extreme or an event.
//!
//! # Rollups
//!
//! Count, sum, minimum and maximum are exact. Quantiles come from a sketch of sampled values: about [`SAMPLES`] values per
//! series and second, or all if there are fewer. The gap between samples is random around the stride, so that sampling does not
//! lock onto periodic traffic, and a sample has the weight of the gap before it. The stride of a second follows from the number
//! of values in the previous second; if more than [`SAMPLES`] values are sampled nevertheless, it doubles with every [`STEP`]
//! more.
//!
//! At the end of a second, a short loop over plain numbers closes all series before the next value. Quantiles and output
//! records are computed afterwards, a bounded number per tick.

mod interval;
#[cfg(test)]
mod tests;

use std::ops::Range;

use detect::Metric;

use super::deadband::Deadband;
use super::sketch::Sketches;
use crate::decode::present;
use crate::event::{Location, Nanos, Output, Rollup};
use crate::hash::{Jitter, fold};
use crate::index::{Index, InsertSlot, NO_SLOT};
use crate::stats::Table;

pub use interval::Summary;
use interval::Totals;
pub(crate) use interval::{Closing, Merged};

/// Sampled values per series and second.
const SAMPLES: u32 = 1000;

/// After [`SAMPLES`] samples in one second, the stride doubles at each multiple of this number.
const STEP: u32 = 128;

/// Seconds after which a key that had values in one second only may be removed from a table that is more than half full. So a
/// flood of forged keys soon leaves the table, while honest keys keep their whole timeout in a table of sufficient size.
const NEWCOMER_TIMEOUT: u32 = 5;
/// Part of a node for queue values that name no queue.
pub(crate) const ALL_QUEUES: u32 = 0x100;

/// Bits of a queue's key that hold the queue ID or [`ALL_QUEUES`]; the bits above hold the egress interface.
const QUEUE_BITS: u32 = 9;
/// Greatest egress interface that fits into a queue's key.
const MAX_QUEUE_PORT: u32 = (1 << (32 - QUEUE_BITS)) - 2;

/// A node, and its queue or interface (0 for the node itself).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) node: u32,
    pub(crate) part: u32,
}

/// A reported value of a summary, and the one reported before.
#[derive(Clone, Copy)]
pub(crate) struct MergedChange {
    pub(crate) value: u64,
    pub(crate) previous: Option<u64>,
}

/// A key that was removed from its series.
pub(crate) struct RemovedKey {
    pub(crate) key: Key,
    /// Hash of the key's first report.
    pub(crate) first_report_hash: u64,
    pub(crate) latest: Option<u64>,
}

impl Key {
    pub(crate) const fn new(node: u32, part: u32) -> Self {
        Self { node, part }
    }

    /// Creates the key of a queue. Queue IDs may be unique within a port only (bmv2, fabric-tna), so the egress interface belongs to
    /// the key if the packet carries one that fits. `queue` may be [`ALL_QUEUES`], and `egress` [`ABSENT`](crate::decode::ABSENT).
    #[inline(always)]
    pub(crate) const fn of_queue(node: u32, queue: u32, egress: u32) -> Self {
        let port = if egress <= MAX_QUEUE_PORT { egress + 1 } else { 0 };
        Self::new(node, queue | port << QUEUE_BITS)
    }

    /// Returns the location of a series of `metric`.
    pub(crate) fn location(self, metric: Metric) -> Location {
        let location = Location::of_node(present(self.node));
        match metric {
            Metric::LinkUtilization => Location {
                interface: present(self.part),
                ..location
            },
            Metric::QueueOccupancy | Metric::QueueCongestion => Location {
                interface: (self.part >> QUEUE_BITS).checked_sub(1),
                queue: u8::try_from(self.part & ((1 << QUEUE_BITS) - 1)).ok(),
                ..location
            },
            _ => location,
        }
    }
}

/// The fields that every value accesses: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Hot {
    /// Values that are neither an event nor a new extreme.
    deadband: Deadband,
    sum: u64,
    latest: u64,
    /// Number of values until the next sample; 0 when one is due.
    countdown: u32,
    /// Initial value of `countdown`, which is the weight of the next sample.
    gap: u32,
    key: Key,
}

const _: () = assert!(size_of::<Hot>() == 64);

/// The fields that only samples, events and the end of a second access.
#[derive(Clone, Debug)]
struct Cold {
    is_used: bool,
    /// The last reported value.
    last_reported: Option<u64>,
    second: Totals,
    minute: Totals,
    /// The finished second that has not been passed to the output yet.
    closed_second: Totals,
    /// The finished minute that has not been passed to the output yet.
    closed_minute: Totals,
    /// Mean number of values from one sample to the next.
    stride: u32,
    /// Number of samples in this second.
    samples: u32,
    /// Number of seconds with values, at most 255.
    active_seconds: u8,
    /// Seconds since the last one with values.
    idle: u32,
    /// Number of values in finished seconds.
    values: u64,
    /// Number of implausible values, which no other count includes.
    implausible: u64,
    /// There were implausible values in this second.
    had_implausible: bool,
    /// Summary of the last finished second with values.
    last: Summary,
    /// The profile of the report that last looked up the slot.
    profile: u8,
    /// Hash of the key's first report, which distinguishes a key that comes back from the earlier one.
    first_report_hash: u64,
}

/// The report on whose behalf a slot is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause {
    /// Index of the profile that reads the report.
    pub(crate) profile: u8,
    /// Hash of the report's identity.
    pub(crate) origin: u64,
}

/// Result of examining a value: whether to report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    None,
    /// The key's first value.
    New,
    /// The value differs by more than the threshold from this last reported one.
    Changed(u64),
}

/// The latest state of one series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeriesView {
    /// The ID of the node.
    pub node: u32,
    /// Identifies the series among those of the node and metric: the interface of a link, 0 for the node itself; a queue has its ID and
    /// the egress interface in it.
    pub part: u32,
    /// The egress interface of a link; of a queue, if its packets carry one.
    pub interface: Option<u32>,
    /// The queue, or `None` for the node itself, for a link, and for all queues of a node as in summaries.
    pub queue: Option<u8>,
    /// Latest value, in the metric's unit; invalid if `values` is 0.
    pub latest: u64,
    /// Number of plausible values so far.
    pub values: u64,
    /// Implausible values so far, not included in `values`: see
    /// [`HopView::implausible_latency`](crate::HopView::implausible_latency).
    pub implausible: u64,
    /// The last finished second that had values.
    pub last: Summary,
    /// Seconds since the last value, in whole seconds.
    pub idle: u32,
    /// Profile of the newest flow's first report, which gives the unit of an occupancy: its number in
    /// [`DistinctProfiles`](crate::DistinctProfiles).
    pub profile: u8,
}

/// The latest value of a queue or link, from any packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestView {
    /// The value, in the metric's unit.
    pub value: u64,
    /// Age in seconds, rounded up.
    pub age: u32,
}

/// A table of series of one metric.
#[derive(Debug)]
pub(crate) struct Series {
    metric: Metric,
    /// True if changes are events; otherwise values are only rolled up.
    emits: bool,
    /// The minimum of all thresholds for this metric.
    threshold: u64,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    /// Slots of removed keys.
    free: Vec<u32>,
    capacity: usize,
    index: Index,
    seed: u64,
    jitter: Jitter,
    /// Next slot whose closed intervals go to the output.
    pending: usize,
    /// The second whose closed intervals are going to the output.
    closing: Option<Closing>,
    refused: u64,
}

impl Series {
    pub(crate) fn new(metric: Metric, emits: bool, capacity: usize, seed: u64) -> Self {
        let hot = Vec::with_capacity(capacity);
        memory::advise_huge(&hot);
        Self {
            metric,
            emits,
            threshold: 0,
            hot,
            cold: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity,
            index: Index::with_capacity(capacity),
            seed: seed ^ metric as u64,
            jitter: Jitter::new(seed ^ metric as u64),
            pending: 0,
            closing: None,
            refused: 0,
        }
    }

    /// Sets the minimum of all active thresholds.
    pub(crate) fn set_threshold(&mut self, min_threshold: u64) {
        self.threshold = min_threshold;
        self.hot.iter_mut().for_each(|hot| hot.deadband = Deadband::EMPTY);
    }

    /// Adds a value. Returns `true` if the caller must call [`Series::examine`]: the value is outside the deadband, or a sample
    /// is due. For an invalid slot it returns `true` and does nothing.
    #[inline(always)]
    pub(crate) fn add(&mut self, slot: u32, value: u64) -> bool {
        let Some(hot) = self.hot.get_mut(slot as usize) else {
            return true;
        };
        // Latencies up to `Profile::MAX_HOP_LATENCY` cannot overflow the sum. A profile without that limit may pass a device's
        // absolute timestamps as latencies, and a dozen of those would.
        hot.sum = hot.sum.saturating_add(value);
        hot.latest = value;
        hot.countdown = hot.countdown.wrapping_sub(1);
        !hot.deadband.contains(value) || hot.countdown == 0
    }

    /// Examines a value for which [`Series::add`] returned true. `threshold` is the one of the report's flow.
    #[inline(always)]
    pub(crate) fn examine(
        &mut self,
        slot: u32,
        value: u64,
        threshold: u64,
        sketches: &mut Sketches,
    ) -> Change {
        let (Some(hot), Some(cold)) = (self.hot.get_mut(slot as usize), self.cold.get_mut(slot as usize))
        else {
            return Change::None;
        };
        if hot.countdown == 0 {
            sample(hot, cold, value, &mut self.jitter, sketches);
        }
        if hot.deadband.contains(value) {
            return Change::None;
        }
        cold.second.least = cold.second.least.min(value);
        cold.second.greatest = cold.second.greatest.max(value);
        let change = match cold.last_reported {
            None if self.emits => Change::New,
            // Even a series without events may have a reported value, from a summary.
            Some(last_reported) if self.emits && value.abs_diff(last_reported) > threshold => {
                Change::Changed(last_reported)
            }
            _ => Change::None,
        };
        if change != Change::None {
            cold.last_reported = Some(value);
        }
        let mut low = cold.second.least;
        let mut high = cold.second.greatest;
        if let Some(last_reported) = cold.last_reported {
            low = low.max(last_reported.saturating_sub(self.threshold));
            high = high.min(last_reported.saturating_add(self.threshold));
        }
        hot.deadband = Deadband::between(low, high);
        change
    }

    /// Adds a summary of values. If there is a value to report, returns it and the one reported before.
    pub(crate) fn merge(
        &mut self,
        key: Key,
        cause: Cause,
        merged: &Merged,
        threshold: u64,
    ) -> Option<MergedChange> {
        let slot = self.slot(key, cause) as usize;
        let hot = self.hot.get_mut(slot)?;
        let cold = self.cold.get_mut(slot)?;
        hot.sum = hot.sum.saturating_add(merged.sum);
        hot.latest = merged.sum / merged.count.max(1);
        // Empty, so that the next single value is examined.
        hot.deadband = Deadband::EMPTY;
        let second = &mut cold.second;
        second.count += merged.count;
        second.least = second.least.min(merged.min);
        second.greatest = second.greatest.max(merged.max);
        second.merged = true;
        let last_reported = cold.last_reported;
        let value = match last_reported {
            None => merged.max,
            Some(last_reported) => merged.outside(last_reported, threshold)?,
        };
        cold.last_reported = Some(value);
        Some(MergedChange {
            value,
            previous: last_reported,
        })
    }

    /// Adds a value of a known key without an event: it lies within the threshold of the last reported value. `slot` caches the
    /// key's slot. Returns `false` if there is no such key.
    #[inline(never)]
    pub(crate) fn add_silently(
        &mut self,
        slot: &mut u32,
        key: Key,
        value: u64,
        sketches: &mut Sketches,
    ) -> bool {
        if *slot == NO_SLOT {
            let hot = &self.hot;
            *slot = self
                .index
                .find(self.hash(key), |slot| hot[slot as usize].key == key);
            if *slot == NO_SLOT {
                return false;
            }
        }
        if self.add(*slot, value) {
            self.examine(*slot, value, u64::MAX, sketches);
        }
        true
    }

    /// Returns the slot of a key, and adds the key for this report if it is new; [`NO_SLOT`] if the table is full.
    pub(crate) fn slot(&mut self, key: Key, cause: Cause) -> u32 {
        let hash = self.hash(key);
        let hot = &self.hot;
        let slot = match self.index.find(hash, |slot| hot[slot as usize].key == key) {
            NO_SLOT => self.insert(key, hash, cause.origin),
            slot => slot,
        };
        if let Some(cold) = self.cold.get_mut(slot as usize) {
            cold.profile = cause.profile;
        }
        slot
    }

    #[cold]
    fn insert(&mut self, key: Key, hash: u64, first_report_hash: u64) -> u32 {
        let is_full = self.free.is_empty() && self.hot.len() == self.capacity;
        let InsertSlot::Free(position) = self.index.find_way(hash, 0, is_full) else {
            self.refused += 1;
            return NO_SLOT;
        };
        let hot = Hot {
            deadband: Deadband::EMPTY,
            sum: 0,
            latest: 0,
            countdown: 1,
            gap: 1,
            key,
        };
        let cold = Cold {
            is_used: true,
            last_reported: None,
            second: Totals::NOTHING,
            minute: Totals::NOTHING,
            closed_second: Totals::NOTHING,
            closed_minute: Totals::NOTHING,
            stride: 1,
            samples: 0,
            active_seconds: 0,
            idle: 0,
            values: 0,
            implausible: 0,
            had_implausible: false,
            last: Summary::default(),
            profile: 0,
            first_report_hash,
        };
        let slot = if let Some(slot) = self.free.pop() {
            (self.hot[slot as usize], self.cold[slot as usize]) = (hot, cold);
            slot
        } else {
            self.hot.push(hot);
            self.cold.push(cold);
            self.hot.len() as u32 - 1
        };
        self.index.put(position, hash, slot, 1, 0);
        slot
    }

    fn hash(&self, key: Key) -> u64 {
        fold(self.seed, u64::from(key.node) << 32 | u64::from(key.part))
    }

    /// Counts an implausible value. It keeps the key alive, but is in no total.
    pub(crate) fn count_implausible(&mut self, slot: u32) {
        if let Some(cold) = self.cold.get_mut(slot as usize) {
            cold.implausible += 1;
            cold.had_implausible = true;
        }
    }

    /// Ends a second for all series at once. Calls `expired` for each removed key. Returns true if a key was removed.
    pub(crate) fn close(
        &mut self,
        closing: Closing,
        sketches: &mut Sketches,
        out: &mut dyn Output,
        mut expired: impl FnMut(RemovedKey, &mut dyn Output),
    ) -> bool {
        self.drain(usize::MAX, sketches, out);
        let mut has_removed = false;
        let mut excess = (self.hot.len() - self.free.len()).saturating_sub(self.capacity / 2);
        for slot in 0..self.hot.len() {
            if !self.cold[slot].is_used {
                continue;
            }
            let cold = &mut self.cold[slot];
            close_series(&mut self.hot[slot], cold, closing);
            let makes_room = excess > 0 && cold.active_seconds <= 1 && cold.idle > NEWCOMER_TIMEOUT;
            if cold.idle > closing.timeout || makes_room {
                self.remove(slot, closing, sketches, out, &mut expired);
                has_removed = true;
                excess = excess.saturating_sub(1);
            }
        }
        self.pending = 0;
        self.closing = Some(closing);
        has_removed
    }

    /// Removes a key, after reporting its last second and its current minute if they have values.
    fn remove(
        &mut self,
        slot: usize,
        closing: Closing,
        sketches: &mut Sketches,
        out: &mut dyn Output,
        expired: &mut impl FnMut(RemovedKey, &mut dyn Output),
    ) {
        let key = self.hot[slot].key;
        let latest = self.hot[slot].latest;
        let cold = &mut self.cold[slot];
        let latest = (cold.values > 0).then_some(latest);
        let first_report_hash = cold.first_report_hash;
        if cold.minute.count > 0 {
            cold.closed_minute = std::mem::replace(&mut cold.minute, Totals::NOTHING);
        }
        self.report_closed(slot, closing, sketches, out);
        self.cold[slot].is_used = false;
        expired(
            RemovedKey {
                key,
                first_report_hash,
                latest,
            },
            out,
        );
        self.hot[slot].deadband = Deadband::EMPTY;
        self.index.remove(self.hash(key), slot as u32);
        self.free.push(slot as u32);
    }

    /// Passes finished intervals of at most `budget` series to the output. Returns the number of series visited.
    pub(crate) fn drain(&mut self, budget: usize, sketches: &mut Sketches, out: &mut dyn Output) -> usize {
        let Some(closing) = self.closing else { return 0 };
        let end = self.pending.saturating_add(budget).min(self.cold.len());
        let visited = end - self.pending;
        for slot in self.pending..end {
            self.report_closed(slot, closing, sketches, out);
        }
        self.pending = end;
        if end == self.cold.len() {
            self.closing = None;
        }
        visited
    }

    /// Passes the finished intervals of a key to the output.
    fn report_closed(
        &mut self,
        slot: usize,
        closing: Closing,
        sketches: &mut Sketches,
        out: &mut dyn Output,
    ) {
        let key = self.hot[slot].key;
        let cold = &mut self.cold[slot];
        if cold.closed_second.count > 0 {
            let totals = std::mem::replace(&mut cold.closed_second, Totals::NOTHING);
            cold.last = totals.finish(sketches);
            if closing.emits_seconds {
                out.rollup(&self.rollup(key, closing.start, 1, &self.cold[slot].last));
            }
        }
        let cold = &mut self.cold[slot];
        if cold.closed_minute.count > 0 {
            let totals = std::mem::replace(&mut cold.closed_minute, Totals::NOTHING);
            let summary = totals.finish(sketches);
            if closing.emits_minutes {
                out.rollup(&self.rollup(key, closing.minute_start(), 60, &summary));
            }
        }
    }

    /// Returns the metric of the values.
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the number of keys whose finished intervals have not been visited yet.
    pub(crate) fn waiting(&self) -> usize {
        if self.closing.is_some() {
            self.cold.len() - self.pending
        } else {
            0
        }
    }

    fn rollup(&self, key: Key, ts: Nanos, interval: u32, summary: &Summary) -> Rollup {
        let location = key.location(self.metric);
        Rollup {
            ts,
            interval,
            metric: self.metric,
            flow: None,
            node: location.node,
            interface: location.interface,
            queue: location.queue,
            count: summary.count,
            min: summary.min,
            max: summary.max,
            sum: summary.sum,
            p50: summary.p50,
            p99: summary.p99,
        }
    }

    pub(crate) fn table(&self) -> Table {
        Table {
            used: (self.hot.len() - self.free.len()) as u64,
            capacity: self.capacity as u64,
            evicted: 0,
            refused: self.refused,
        }
    }

    /// Returns the latest value of a key.
    pub(crate) fn find(&self, key: Key) -> Option<u64> {
        let slot = self
            .index
            .find(self.hash(key), |slot| self.hot[slot as usize].key == key);
        let hot = self.hot.get(slot as usize)?;
        let cold = self.cold.get(slot as usize)?;
        (values(hot, cold) > 0).then_some(hot.latest)
    }

    /// Returns key and latest value of a slot, if it is in use.
    pub(crate) fn latest(&self, slot: u32) -> Option<(Key, LatestView)> {
        let hot = self.hot.get(slot as usize)?;
        let cold = self.cold.get(slot as usize)?;
        // Values of the current second are still in the hot part, and not counted in the cold one.
        let has_values_now = hot.gap != hot.countdown || cold.second.count > 0;
        let age = if has_values_now { 0 } else { cold.idle + 1 };
        cold.is_used.then_some((
            hot.key,
            LatestView {
                value: hot.latest,
                age,
            },
        ))
    }

    /// Returns the keys in a range of slots. A key keeps its slot as long as it is in the table.
    pub(crate) fn views_in(&self, slots: Range<u32>) -> impl Iterator<Item = SeriesView> {
        let slots = slots.start as usize..(slots.end as usize).min(self.hot.len());
        let hot = self.hot.get(slots.clone()).unwrap_or_default();
        let cold = self.cold.get(slots).unwrap_or_default();
        hot.iter()
            .zip(cold)
            .filter(|(_, cold)| cold.is_used)
            .map(|(hot, cold)| {
                let Location { interface, queue, .. } = hot.key.location(self.metric);
                SeriesView {
                    node: hot.key.node,
                    part: hot.key.part,
                    interface,
                    queue,
                    latest: hot.latest,
                    values: values(hot, cold),
                    implausible: cold.implausible,
                    last: cold.last,
                    idle: cold.idle,
                    profile: cold.profile,
                }
            })
    }

    /// Returns the number of slots used so far.
    pub(crate) fn slots(&self) -> u32 {
        self.hot.len() as u32
    }

    pub(crate) fn bytes(&self) -> usize {
        self.hot.capacity() * size_of::<Hot>() + self.cold.capacity() * size_of::<Cold>() + self.index.bytes()
    }
}

/// Returns the number of values so far, including the current second.
fn values(hot: &Hot, cold: &Cold) -> u64 {
    cold.values + cold.second.count + u64::from(hot.gap - hot.countdown)
}

#[cold]
#[inline(never)]
fn sample(hot: &mut Hot, cold: &mut Cold, value: u64, jitter: &mut Jitter, sketches: &mut Sketches) {
    for totals in [&mut cold.second, &mut cold.minute] {
        if totals.sketch.is_none() && cold.samples == 0 {
            totals.sketch = sketches.acquire();
        }
        sketches.record(totals.sketch, value, hot.gap);
    }
    cold.second.count += u64::from(hot.gap);
    cold.samples += 1;
    if cold.samples >= SAMPLES && cold.samples.is_multiple_of(STEP) {
        cold.stride = cold.stride.saturating_mul(2).min(1 << 30);
    }
    hot.gap = jitter.around(cold.stride);
    hot.countdown = hot.gap;
}

fn close_series(hot: &mut Hot, cold: &mut Cold, closing: Closing) {
    cold.second.count += u64::from(hot.gap - hot.countdown);
    cold.second.sum = hot.sum;
    if cold.second.count == 0 && !cold.had_implausible {
        cold.idle = cold.idle.saturating_add(closing.elapsed);
    } else {
        cold.idle = closing.elapsed.saturating_sub(1);
        cold.active_seconds = cold.active_seconds.saturating_add(1);
        cold.had_implausible = false;
    }
    if cold.second.count > 0 {
        let closed = std::mem::replace(&mut cold.second, Totals::NOTHING);
        cold.values += closed.count;
        cold.minute.add(&closed);
        cold.closed_second = closed;
        cold.stride = u32::try_from(closed.count / u64::from(SAMPLES))
            .unwrap_or(u32::MAX)
            .clamp(1, 1 << 30);
        hot.deadband = Deadband::EMPTY;
    }
    hot.sum = 0;
    cold.samples = 0;
    // Sample the first value of a second, so that every interval with values has quantiles.
    (hot.gap, hot.countdown) = (1, 1);
    if closing.ends_minute && cold.minute.count > 0 {
        let minute = std::mem::replace(&mut cold.minute, Totals::NOTHING);
        cold.closed_minute = minute;
    }
}

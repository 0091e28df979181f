//! Synchronises a collector with the kernel detection program, in rounds of about a second.
//!
//! The program suppresses reports without a significant change, but records their sequence numbers and values in its tables. A
//! round visits the slots of these tables and applies everything suppressed since the last round to the collector. The work of
//! a round is spread over its duration: after a share `x` of the time, a share `x` of the slots has been visited. Sequence
//! numbers are read at once, at the beginning of a round, and applied after the records that were written to the ring before.

use std::fmt;
use std::sync::{Arc, Mutex};

use collector::{Collector, Datagram, Output, Removed, Run, StreamId, SuppressedFlow, event::Nanos};
use detect::{Detection, Metric};
use nic::source;
use wire::RefusalCounts;

use super::{CollectorHost, Counters, FlowCopy, Kernel, KernelRecord, KernelRxSource, ROUND};
use crate::{datagram::octets, worker::Worker};
use runtime::{host::seed, lock::lock};

/// Maximum number of records drained from the ring per call.
const BURST: usize = 1024;

/// Maximum number of flow slots per step, a few milliseconds of work; at most two million per second without records.
const FLOWS_PER_STEP: u32 = 32_768;

/// Rounds without a new sequence number after which a stream's slot is freed: ten minutes at one round per second.
const MAX_IDLE_ROUNDS: u32 = 600;

/// Interval between reads of the counters, ns.
const COUNTING: Nanos = 20_000_000;

/// Metrics whose values the kernel stores by node and queue or link, not by flow.
const KEYED: [Metric; 3] = [
    Metric::QueueOccupancy,
    Metric::QueueCongestion,
    Metric::LinkUtilization,
];

/// An input that keeps a kernel program and a collector in step, run by one thread.
pub struct KernelSync<K> {
    kernel: K,
    /// Minimum duration of a round.
    round: Nanos,
    /// The progress of each stream's slot that the collector has seen.
    streams: Vec<Applied>,
    flows: Vec<Seen>,
    /// Secret, so that no sender makes a flow that passes for the one before it in its slot.
    seed: u64,
    keys: [Vec<u32>; KEYED.len()],
    /// Start of the current round, and the next flow and keys to visit in it.
    began: Nanos,
    next_flow: u32,
    next_key: [u32; KEYED.len()],
    /// True if this round applies all flows and keys, with or without new reports. `compare_next` requests that for the next
    /// round, after the list of removals overflowed.
    compare: bool,
    compare_next: bool,
    /// Index of this input's queue of removals, once there is one.
    removals: Option<usize>,
    detection: Option<Arc<Detection>>,
    /// The generation of thresholds and rules that the kernel already applies and the collector does not yet.
    pending_generation: Option<u32>,
    /// Time since the epoch minus the kernel's monotonic clock, ns.
    offset: Nanos,
    /// Time at which the kernel's counters were last read.
    counted: Nanos,
    counters: Counters,
    /// Number of records taken from the ring.
    taken: u64,
    unreadable: RefusalCounts,
    bytes: u64,
    bursts: u64,
    copy: FlowCopy,
    /// The latest call of [`KernelSync::drain`] may have left records in the ring.
    behind: bool,
    /// The receive time of the latest record.
    latest: Nanos,
    /// The time up to which suppressed sequence numbers have been applied.
    applied: Nanos,
    pending_runs: Option<PendingRuns>,
}

impl<K> fmt::Debug for KernelSync<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelSync").finish_non_exhaustive()
    }
}

/// Suppressed sequence numbers as of the start of a round, to be applied after the records written before.
struct PendingRuns {
    at: Nanos,
    /// For each stream: its slot, its identity, and the run of numbers.
    runs: Vec<(u32, StreamId, Run)>,
    /// Remaining bursts of records to wait for, because under overload the ring is never empty.
    left: usize,
}

/// The collector's state of a stream's slot.
#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    count: u32,
    /// Rounds without a new sequence number.
    idle: u32,
}

/// The collector's state of a flow's slot.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Hash of the flow's key under [`KernelSync::seed`]; another flow in the slot starts from zero.
    hash: u32,
    reports: u32,
}

impl<K: Kernel> KernelSync<K> {
    /// Creates the synchronisation of `kernel` with a collector whose flows expire after `timeout` ns.
    pub fn new(kernel: K, timeout: Nanos) -> Self {
        Self {
            round: ROUND.min(timeout / 4).max(COUNTING),
            streams: vec![Applied::default(); kernel.streams() as usize],
            flows: vec![Seen::default(); kernel.flows() as usize],
            seed: seed(),
            keys: KEYED.map(|metric| vec![0; kernel.keys(metric) as usize]),
            kernel,
            began: 0,
            next_flow: 0,
            next_key: [0; KEYED.len()],
            compare: false,
            compare_next: false,
            removals: None,
            detection: None,
            pending_generation: None,
            offset: 0,
            counted: 0,
            counters: Counters::default(),
            taken: 0,
            unreadable: RefusalCounts::default(),
            bytes: 0,
            bursts: 0,
            copy: FlowCopy::default(),
            behind: false,
            latest: 0,
            applied: 0,
            pending_runs: None,
        }
    }

    /// Sets the offset between the clocks: `now` since the epoch corresponds to `monotonic` on the kernel's clock.
    pub fn set_clock(&mut self, now: Nanos, monotonic: Nanos) {
        self.offset = now.wrapping_sub(monotonic);
    }

    #[cfg(test)]
    pub(super) fn kernel(&self) -> &K {
        &self.kernel
    }

    fn drain_and_poll(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<usize, nic::Error> {
        let count = self.drain(worker);
        self.poll(now, worker)?;
        Ok(count)
    }

    /// Passes at most `BURST` records to the collector. Returns their number.
    pub fn drain(&mut self, worker: &mut impl CollectorHost) -> usize {
        let Self {
            kernel,
            streams,
            offset,
            unreadable,
            bytes,
            pending_generation,
            latest,
            ..
        } = self;
        let mut reader = RecordReader {
            streams,
            offset: *offset,
            unreadable,
            bytes,
            pending_generation,
            latest,
        };
        let count = kernel.drain(BURST, &mut |record| reader.process(record, worker));
        self.taken += count as u64;
        self.bursts += u64::from(count > 0);
        self.behind = count == BURST;
        if let Some(pending) = &mut self.pending_runs {
            pending.left = pending.left.saturating_sub(1);
        }
        count
    }

    /// Runs the work due at `now`.
    ///
    /// # Errors
    /// A system call failed.
    pub fn poll(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        self.follow(worker)?;
        self.forget(worker);
        if self.began == 0 || now < self.began {
            self.began = now;
            self.applied = now;
        }
        self.apply_suppressed(self.due(now), now, worker);
        self.apply_runs(worker);
        if now - self.began >= self.round && self.is_through() && self.pending_runs.is_none() {
            self.begin_round(now, worker);
        }
        if now.abs_diff(self.counted) >= COUNTING {
            self.counted = now;
            self.count(worker)?;
        }
        Ok(())
    }

    /// Detaches the program, and passes all remaining records and suppressed values to the collector.
    ///
    /// # Errors
    /// A system call failed.
    pub fn end(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        self.kernel.detach();
        while self.drain(worker) > 0 {}
        // No records under other thresholds can follow.
        worker.apply_detection();
        self.forget(worker);
        // Start a complete round, regardless of the progress of the current one.
        self.pending_runs = None;
        self.begin_round(now, worker);
        self.apply_suppressed(u64::MAX, now, worker);
        if let Some(input) = self.removals.take() {
            worker.end_removals(input);
        }
        self.count(worker)
    }

    /// Returns the statistics so far. Suppressed datagrams count as processed.
    pub fn stats(&self) -> source::Stats {
        let mut refused = self.counters.refused_frames;
        refused
            .iter_mut()
            .zip(self.unreadable)
            .for_each(|(sum, more)| *sum += more);
        let unreadable: u64 = self.unreadable.iter().sum();
        source::Stats {
            datagrams: self.counters.suppressed.datagrams + self.taken - unreadable,
            handled_in_kernel: self.counters.suppressed.datagrams,
            bytes: self.bytes,
            ring_full: self.counters.ring_full,
            refused,
            bursts: self.bursts,
            ..source::Stats::default()
        }
    }

    /// Brings the kernel's thresholds and rules in line with the collector's.
    fn follow(&mut self, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        if let Some(detection) = worker.pending_detection()
            && (self.pending_generation.is_none() || !self.has(&detection))
        {
            self.pending_generation = Some(self.kernel.set_detection(&detection)?);
            self.detection = Some(detection);
            self.drain(worker);
        }
        // The collector switches at the first record of the new generation (see `RecordReader`), or once the ring is empty.
        if self.pending_generation.is_some() && self.behind {
            return Ok(());
        }
        if self.pending_generation.take().is_some() {
            worker.apply_detection();
        }
        let detection = worker.with(|collector, _| Arc::clone(collector.detection()));
        if !self.has(&detection) {
            self.kernel.set_detection(&detection)?;
            self.detection = Some(detection);
        }
        Ok(())
    }

    /// Returns whether the kernel has these thresholds and rules.
    fn has(&self, detection: &Arc<Detection>) -> bool {
        self.detection
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, detection))
    }

    /// Deletes in the kernel what the collector has removed.
    fn forget(&mut self, worker: &mut impl CollectorHost) {
        let Self {
            kernel, compare_next, ..
        } = self;
        let input = *self.removals.get_or_insert_with(|| worker.track_removals());
        worker.drain_removed(input, &mut |removed| match removed {
            Removed::Flow(key) => kernel.forget_flow(&key),
            Removed::Path(key) => kernel.forget_path(&key),
            Removed::Key { metric, node, part } => kernel.forget_key(metric, node, part),
            Removed::Overflow => *compare_next = true,
        });
    }

    /// Returns the share of the round that is due at `now`, in units of 2^-32.
    fn due(&self, now: Nanos) -> u64 {
        (u128::from(now - self.began) << 32)
            .div_ceil(u128::from(self.round))
            .min(1 << 32) as u64
    }

    /// Returns whether the current round has visited all slots.
    fn is_through(&self) -> bool {
        self.next_flow as usize >= self.flows.len()
            && self
                .next_key
                .iter()
                .zip(&self.keys)
                .all(|(next, keys)| *next as usize >= keys.len())
    }

    /// Continues the round up to `share` (in units of 2^-32), or to its end for `u64::MAX`.
    fn apply_suppressed(&mut self, share: u64, now: Nanos, worker: &mut impl CollectorHost) {
        let most = if share == u64::MAX {
            u32::MAX
        } else {
            FLOWS_PER_STEP
        };
        let end = share_of(self.flows.len(), share).min(self.next_flow.saturating_add(most));
        let first = self.next_flow;
        let end = end.max(self.next_flow);
        self.next_flow = end;
        let keys: [(u32, u32); KEYED.len()] = std::array::from_fn(|metric| {
            let first = self.next_key[metric];
            self.next_key[metric] = share_of(self.keys[metric].len(), share).max(first);
            (first, self.next_key[metric])
        });
        if first == end && keys.iter().all(|(first, end)| first == end) {
            return;
        }
        worker.with(|collector, out| {
            for slot in first..end {
                self.apply_suppressed_flow(slot, now, collector, out);
            }
            for (metric, (first, end)) in keys.into_iter().enumerate() {
                for slot in first..end {
                    self.apply_suppressed_key(metric, slot, collector);
                }
            }
        });
    }

    /// Applies the new suppressed reports of the flow in `slot` to the collector.
    fn apply_suppressed_flow(
        &mut self,
        slot: u32,
        now: Nanos,
        collector: &mut Collector,
        out: &mut dyn Output,
    ) {
        let Self {
            kernel,
            flows,
            copy,
            compare,
            seed,
            ..
        } = self;
        let (Some(seen), Some(reports)) = (flows.get_mut(slot as usize), kernel.flow_reports(slot)) else {
            return;
        };
        if reports == seen.reports && !*compare || !kernel.flow(slot, copy) {
            return;
        }
        let hash = copy.key.hash(*seed) as u32;
        let before = if hash == seen.hash { seen.reports } else { 0 };
        *seen = Seen {
            hash,
            reports: copy.reports,
        };
        let more = copy.reports.wrapping_sub(before);
        // A difference above half of the range means that the flow was removed and inserted again, with a new count.
        let reports = u64::from(if more > u32::MAX / 2 { copy.reports } else { more });
        let FlowCopy {
            key,
            latency,
            basis,
            ref hops,
            ..
        } = *copy;
        if !collector.apply_suppressed(
            &SuppressedFlow {
                key,
                reports,
                latency,
                basis,
                hops,
                last_seen: now,
            },
            out,
        ) {
            kernel.forget_flow(&key);
        }
    }

    fn apply_suppressed_key(&mut self, metric: usize, slot: u32, collector: &mut Collector) {
        let Some((key, values)) = self.kernel.key(KEYED[metric], slot) else {
            return;
        };
        let seen = std::mem::replace(&mut self.keys[metric][slot as usize], values);
        if (seen != values || self.compare) && !collector.apply_suppressed_key(&key) {
            self.kernel.forget_key(key.metric, key.node, key.part);
        }
    }

    /// Begins the next round: reads all suppressed sequence numbers. They are applied after the records written before; these
    /// are drained a burst at a time, so that the collector's timers keep running.
    fn begin_round(&mut self, now: Nanos, worker: &mut impl CollectorHost) {
        self.compare = std::mem::take(&mut self.compare_next);
        self.began = now;
        self.next_flow = 0;
        self.next_key = [0; KEYED.len()];
        let runs = (0..self.streams.len() as u32)
            .filter_map(|slot| self.kernel.stream(slot).map(|(id, run)| (slot, id, run)))
            .collect();
        let left = self.kernel.records() / BURST + 1;
        self.pending_runs = Some(PendingRuns { at: now, runs, left });
        self.drain(worker);
        self.apply_runs(worker);
    }

    /// Applies the suppressed sequence numbers once the records before them have been processed.
    fn apply_runs(&mut self, worker: &mut impl CollectorHost) {
        let is_behind = self.behind;
        let Some(PendingRuns { at, runs, .. }) = self
            .pending_runs
            .take_if(|pending| !is_behind || pending.left == 0)
        else {
            return;
        };
        self.applied = at;
        // Later records may have been processed already, and times must not go back.
        let seen = at.max(self.latest);
        worker.with(|collector, out| {
            for (slot, id, run) in runs {
                self.apply(slot, run, |run| collector.receive_run(&id, run, seen, out));
            }
        });
    }

    /// Returns the watermark after a receive that began at `before`: the collector has everything that arrived earlier.
    /// Suppressed reports follow within a round, so the watermark stalls only when a round is late.
    pub fn until(&self, before: Nanos) -> Nanos {
        let records = if self.behind { self.latest } else { before };
        let late = self.applied.saturating_add(self.round + self.round / 2);
        records.min(late)
    }

    /// Passes the new part of a stream's run to `receive`. Frees the slot of a stream that has been idle for long.
    fn apply(&mut self, slot: u32, run: Run, receive: impl FnOnce(Run)) {
        let Some(applied) = self.streams.get_mut(slot as usize) else {
            return;
        };
        match applied.advance(run) {
            Some(more) => receive(more),
            None => {
                applied.idle += 1;
                if applied.idle > MAX_IDLE_ROUNDS {
                    *applied = Applied::default();
                    self.kernel.forget_stream(slot);
                }
            }
        }
    }

    /// Adds the program's counts since the last call to the collector's statistics.
    fn count(&mut self, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        let counters = self.kernel.counters()?;
        worker.count(&counters.suppressed.since(&self.counters.suppressed));
        self.counters = counters;
        Ok(())
    }
}

/// Returns `share` (in units of 2^-32) of a number of slots, rounded up, at most all of them.
fn share_of(slots: usize, share: u64) -> u32 {
    (slots as u64 * share.min(1 << 32)).div_ceil(1 << 32) as u32
}

impl<K: Kernel> KernelRxSource for KernelSync<K> {
    fn receive(&mut self, timeout_ms: u32, worker: &Mutex<Worker>) -> Result<usize, nic::Error> {
        let monotonic = nic::time::monotonic();
        let now = nic::time::now();
        // The clocks are read one after the other; a step of the system clock exceeds the delay between the reads.
        if self.offset.wrapping_add(monotonic).abs_diff(now) > STEP {
            self.set_clock(now, monotonic);
        }
        let count = self.drain_and_poll(now, &mut *lock(worker))?;
        if count > 0 || timeout_ms == 0 {
            return Ok(count);
        }
        self.kernel.wait(timeout_ms)?;
        Ok(self.drain(&mut *lock(worker)))
    }

    fn processed_until(&self, before: Nanos) -> Nanos {
        self.until(before)
    }

    fn finish(&mut self, worker: &Mutex<Worker>) -> Result<(), nic::Error> {
        self.end(nic::time::now(), &mut *lock(worker))
    }

    fn stats(&mut self) -> source::Stats {
        Self::stats(self)
    }
}

/// Largest difference between the clocks that does not count as a step, ns.
const STEP: Nanos = 1_000_000;

impl Applied {
    /// Returns the part of a stream's run that is new, or `None` if there is none.
    fn advance(&mut self, run: Run) -> Option<Run> {
        let count = run.count as u32 & COUNTS;
        let more = count.wrapping_sub(self.count) & COUNTS;
        // A difference above half of the range is an older count.
        if more == 0 || more > COUNTS / 2 {
            return None;
        }
        *self = Self { count, idle: 0 };
        Some(Run {
            count: more.into(),
            ..run
        })
    }
}

/// Mask of stream counts, which have 31 bits.
const COUNTS: u32 = u32::MAX >> 1;

/// Processes records while their bytes are borrowed from the ring.
struct RecordReader<'k> {
    streams: &'k mut [Applied],
    offset: Nanos,
    unreadable: &'k mut RefusalCounts,
    bytes: &'k mut u64,
    pending_generation: &'k mut Option<u32>,
    latest: &'k mut Nanos,
}

impl RecordReader<'_> {
    /// Passes a record of the kernel's ring to the worker, after the sequence run that precedes it.
    fn process(&mut self, record: &KernelRecord<'_>, worker: &mut impl CollectorHost) {
        let received = record.at.wrapping_add(self.offset);
        *self.latest = received;
        if self
            .pending_generation
            .take_if(|pending_generation| *pending_generation == record.generation)
            .is_some()
        {
            worker.apply_detection();
        }
        if let Some((slot, id)) = &record.stream
            && let Some(applied) = self.streams.get_mut(*slot as usize)
        {
            match record.before {
                Some(run) => {
                    if let Some(run) = applied.advance(run) {
                        worker.with(|collector, out| collector.receive_run(id, run, received, out));
                    }
                }
                // The record began a stream: the slot may have belonged to another one.
                None => *applied = Applied::default(),
            }
        }
        match wire::datagram(record.frame) {
            Ok(datagram) => {
                *self.bytes += datagram.payload.len() as u64;
                worker.process(&[Datagram {
                    payload: datagram.payload,
                    source: octets(datagram.src),
                    src_port: datagram.src_port,
                    listener: record.listener,
                    received,
                }]);
            }
            // The kernel program parses frames by the same rules; a discrepancy would be counted here.
            Err(refusal) => self.unreadable[refusal.index()] += 1,
        }
    }
}

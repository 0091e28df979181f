//! Keeps a collector and a program of the kernel in step.

use std::sync::{Arc, Mutex};

use collector::{Collector, Datagram, Removed, Run, Sink, SuppressedFlow, event::Nanos};
use detect::{Detection, Metric};
use nic::source;
use wire::Refusal;

use super::{CollectorHost, Counters, FlowCopy, Kernel, KernelRecord, KernelRxSource, ROUND};
use crate::{datagram::octets, lock::lock, worker::Worker};

/// Records taken from the ring between two looks at the clock.
const BURST: usize = 1024;

/// Places of flows looked at in one step, at most: a few milliseconds, and two million in a second of waiting.
const FLOWS_PER_STEP: u32 = 32_768;

/// Rounds without a number after which the place of a stream is given back: ten minutes.
const PATIENCE: u32 = 600;

/// How often the counters are read, ns.
const COUNTING: Nanos = 20_000_000;

/// Values that the kernel keeps by key.
const KEYED: [Metric; 3] = [Metric::QueueOccupancy, Metric::QueueCongestion, Metric::LinkUtilization];

/// Keeps a program of the kernel in step with a collector: an input that is read by one thread.
pub(crate) struct KernelSync<K> {
    kernel: K,
    round: Nanos,
    /// What of each place is known to the collector.
    streams: Vec<Applied>,
    flows: Vec<Seen>,
    keys: [Vec<u32>; KEYED.len()],
    began: Nanos,
    next_flow: u32,
    next_key: [u32; KEYED.len()],
    /// This round compares all flows, whether they had reports or not; and the next one is to: too many were forgotten to
    /// be named.
    compare: bool,
    compare_next: bool,
    removals: Option<usize>,
    detection: Option<Arc<Detection>>,
    /// The generation of thresholds and rules that the kernel has already, and the collector not yet.
    coming: Option<u32>,
    /// What must be added to the kernel's time to give the time since the epoch.
    offset: Nanos,
    counted: Nanos,
    counters: Counters,
    taken: u64,
    unreadable: [u64; Refusal::COUNT],
    bytes: u64,
    bursts: u64,
    copy: FlowCopy,
}

/// A stream's place.
#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    count: u32,
    /// Rounds without a number.
    idle: u32,
}

/// A flow's place.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Of the flow's key; another flow in the place begins anew.
    hash: u32,
    reports: u32,
}

impl<K: Kernel> KernelSync<K> {
    /// Keeps `kernel` in step with a collector whose flows expire after `timeout`.
    pub(crate) fn new(kernel: K, timeout: Nanos) -> Self {
        Self {
            round: ROUND.min(timeout / 4).max(COUNTING),
            streams: vec![Applied::default(); kernel.streams() as usize],
            flows: vec![Seen::default(); kernel.flows() as usize],
            keys: KEYED.map(|metric| vec![0; kernel.keys(metric) as usize]),
            kernel,
            began: 0,
            next_flow: 0,
            next_key: [0; KEYED.len()],
            compare: false,
            compare_next: false,
            removals: None,
            detection: None,
            coming: None,
            offset: 0,
            counted: 0,
            counters: Counters::default(),
            taken: 0,
            unreadable: [0; Refusal::COUNT],
            bytes: 0,
            bursts: 0,
            copy: FlowCopy::default(),
        }
    }

    /// Sets the clocks: `now` since the epoch, where the kernel's own clock shows `monotonic`.
    pub(crate) fn set_clock(&mut self, now: Nanos, monotonic: Nanos) {
        self.offset = now.wrapping_sub(monotonic);
    }

    /// The kernel's side.
    #[cfg(test)]
    pub(super) fn kernel(&self) -> &K {
        &self.kernel
    }

    fn drain_and_poll(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<usize, nic::Error> {
        let count = self.drain(worker);
        self.poll(now, worker)?;
        Ok(count)
    }

    /// Gives what was told to the collector, a bounded part of it; returns how much.
    pub(crate) fn drain(&mut self, worker: &mut impl CollectorHost) -> usize {
        let Self { kernel, streams, offset, unreadable, bytes, coming, .. } = self;
        let mut reader = Reader { streams, offset: *offset, unreadable, bytes, coming };
        let count = kernel.drain(BURST, &mut |told| reader.take(told, worker));
        self.taken += count as u64;
        self.bursts += u64::from(count > 0);
        count
    }

    /// Does what is due at `now`.
    ///
    /// # Errors
    /// The kernel cannot be asked, or told.
    pub(crate) fn poll(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        self.follow(worker)?;
        self.forget(worker);
        if self.began == 0 || now < self.began {
            self.began = now;
        }
        self.apply_suppressed(self.due(now), now, worker);
        if now - self.began >= self.round && self.is_through() {
            self.begin_round(now, worker);
        }
        if now.abs_diff(self.counted) >= COUNTING {
            self.counted = now;
            self.count(worker)?;
        }
        Ok(())
    }

    /// The end: nothing more is told or suppressed, and the collector learns all that was.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub(crate) fn end(&mut self, now: Nanos, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        self.kernel.detach();
        while self.drain(worker) > 0 {}
        // Nothing is told under other thresholds any more.
        worker.apply_detection();
        self.forget(worker);
        // A whole round, whatever this one has met so far.
        self.begin_round(now, worker);
        self.apply_suppressed(u64::MAX, now, worker);
        if let Some(input) = self.removals.take() {
            worker.end_removals(input);
        }
        self.count(worker)
    }

    /// What happened so far: what was suppressed counts as handed out.
    pub(crate) fn stats(&self) -> source::Stats {
        let mut refused = self.counters.refused_frames;
        refused.iter_mut().zip(self.unreadable).for_each(|(sum, more)| *sum += more);
        let unreadable: u64 = self.unreadable.iter().sum();
        source::Stats {
            datagrams: self.counters.suppressed.datagrams + self.taken - unreadable,
            decided_in_kernel: self.counters.suppressed.datagrams,
            bytes: self.bytes,
            ring_full: self.counters.ring_full,
            refused,
            bursts: self.bursts,
            ..source::Stats::default()
        }
    }

    /// Thresholds and rules as the collector has them.
    fn follow(&mut self, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        if let Some(detection) = worker.pending_detection() {
            self.coming = Some(self.kernel.set_detection(&detection)?);
            self.detection = Some(detection);
            // The first record told under them changes the collector; or the end of those that were told before.
            while self.coming.is_some() && self.drain(worker) == BURST {}
            if self.coming.take().is_some() {
                worker.apply_detection();
            }
        }
        let detection = worker.with(|collector, _| Arc::clone(collector.detection()));
        if self.detection.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &detection)) {
            self.kernel.set_detection(&detection)?;
            self.detection = Some(detection);
        }
        Ok(())
    }

    /// Forgets what the collector forgot.
    fn forget(&mut self, worker: &mut impl CollectorHost) {
        let Self { kernel, compare_next, .. } = self;
        let input = *self.removals.get_or_insert_with(|| worker.track_removals());
        worker.drain_removed(input, &mut |removed| match removed {
            Removed::Flow(key) => kernel.forget_flow(&key),
            Removed::Key { metric, node, part } => kernel.forget_key(metric, node, part),
            Removed::Overflow => *compare_next = true,
        });
    }

    /// The part of the round that should be done, in parts of 2^32.
    fn due(&self, now: Nanos) -> u64 {
        (u128::from(now - self.began) << 32).div_ceil(u128::from(self.round)).min(1 << 32) as u64
    }

    fn is_through(&self) -> bool {
        self.next_flow as usize >= self.flows.len()
            && self.next_key.iter().zip(&self.keys).all(|(next, keys)| *next as usize >= keys.len())
    }

    /// Goes on with the round, as far as `share` says; `u64::MAX`: to its end.
    fn apply_suppressed(&mut self, share: u64, now: Nanos, worker: &mut impl CollectorHost) {
        let target = |places: usize| (places as u64 * share.min(1 << 32)).div_ceil(1 << 32) as u32;
        let most = if share == u64::MAX { u32::MAX } else { FLOWS_PER_STEP };
        let end = target(self.flows.len()).min(self.next_flow.saturating_add(most));
        let (first, end) = (self.next_flow, end.max(self.next_flow));
        self.next_flow = end;
        let keys: [(u32, u32); KEYED.len()] = std::array::from_fn(|metric| {
            let first = self.next_key[metric];
            self.next_key[metric] = target(self.keys[metric].len()).max(first);
            (first, self.next_key[metric])
        });
        if first == end && keys.iter().all(|(first, end)| first == end) {
            return;
        }
        worker.with(|collector, sink| {
            for place in first..end {
                self.apply_suppressed_flow(place, now, collector, sink);
            }
            for (metric, (first, end)) in keys.into_iter().enumerate() {
                for place in first..end {
                    self.apply_suppressed_key(metric, place, collector);
                }
            }
        });
    }

    fn apply_suppressed_flow(
        &mut self,
        place: u32,
        now: Nanos,
        collector: &mut Collector,
        sink: &mut dyn Sink,
    ) {
        let Self { kernel, flows, copy, compare, .. } = self;
        let (Some(seen), Some(reports)) = (flows.get_mut(place as usize), kernel.flow_reports(place)) else {
            return;
        };
        if reports == seen.reports && !*compare || !kernel.flow(place, copy) {
            return;
        }
        let hash = copy.key.hash(0) as u32;
        let before = if hash == seen.hash { seen.reports } else { 0 };
        *seen = Seen { hash, reports: copy.reports };
        let more = copy.reports.wrapping_sub(before);
        // More than half: it was forgotten, came back to its place, and is counted anew.
        let reports = u64::from(if more > u32::MAX / 2 { copy.reports } else { more });
        let FlowCopy { key, latency, basis, ref hops, .. } = *copy;
        if !collector
            .apply_suppressed(&SuppressedFlow { key, reports, latency, basis, hops, last_seen: now }, sink)
        {
            kernel.forget_flow(&key);
        }
    }

    fn apply_suppressed_key(&mut self, metric: usize, place: u32, collector: &mut Collector) {
        let Some((key, values)) = self.kernel.key(KEYED[metric], place) else { return };
        let seen = std::mem::replace(&mut self.keys[metric][place as usize], values);
        if (seen != values || self.compare) && !collector.apply_suppressed_key(&key) {
            self.kernel.forget_key(key.metric, key.node, key.part);
        }
    }

    /// Tells what numbers were suppressed, and begins the next round.
    fn begin_round(&mut self, now: Nanos, worker: &mut impl CollectorHost) {
        self.compare = std::mem::take(&mut self.compare_next);
        self.began = now;
        self.next_flow = 0;
        self.next_key = [0; KEYED.len()];
        // The runs are read first: what is told after that must not be told before it.
        let runs: Vec<_> = (0..self.streams.len() as u32)
            .filter_map(|place| self.kernel.stream(place).map(|(id, run)| (place, id, run)))
            .collect();
        // No more than can have been there: under overload the ring is never empty.
        for _ in 0..=self.kernel.records() / BURST {
            if self.drain(worker) < BURST {
                break;
            }
        }
        worker.with(|collector, sink| {
            for (place, id, run) in runs {
                self.apply(place, run, |run| collector.receive_run(&id, run, now, sink));
            }
        });
    }

    /// Gives the numbers of a stream's run that were not told yet to `receive`.
    fn apply(&mut self, place: u32, run: Run, receive: impl FnOnce(Run)) {
        let Some(applied) = self.streams.get_mut(place as usize) else { return };
        match applied.advance(run) {
            Some(more) => receive(more),
            None => {
                applied.idle += 1;
                if applied.idle > PATIENCE {
                    *applied = Applied::default();
                    self.kernel.forget_stream(place);
                }
            }
        }
    }

    /// Adds what was counted since the last time to the collector's own figures.
    fn count(&mut self, worker: &mut impl CollectorHost) -> Result<(), nic::Error> {
        let counters = self.kernel.counters()?;
        worker.count(&counters.suppressed.since(&self.counters.suppressed));
        self.counters = counters;
        Ok(())
    }
}

impl<K: Kernel> KernelRxSource for KernelSync<K> {
    fn receive(&mut self, timeout_ms: u32, worker: &Mutex<Worker>) -> Result<usize, nic::Error> {
        let (monotonic, now) = (nic::time::monotonic(), nic::time::now());
        // Two clocks are not read at one moment; a step of the system's clock is larger than that.
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

    fn finish(&mut self, worker: &Mutex<Worker>) -> Result<(), nic::Error> {
        self.end(nic::time::now(), &mut *lock(worker))
    }

    fn stats(&mut self) -> source::Stats {
        Self::stats(self)
    }
}

/// Differences of the clocks that are no step, ns.
const STEP: Nanos = 1_000_000;

impl Applied {
    /// What of a stream's run is new.
    fn advance(&mut self, run: Run) -> Option<Run> {
        let count = run.count as u32 & COUNTS;
        let more = count.wrapping_sub(self.count) & COUNTS;
        // More than half: a count from before the present one, read early.
        if more == 0 || more > COUNTS / 2 {
            return None;
        }
        *self = Self { count, idle: 0 };
        Some(Run { count: more.into(), ..run })
    }
}

/// Counts of streams are numbers of 31 bits.
const COUNTS: u32 = u32::MAX >> 1;

/// Takes records one by one: their bytes are lent for that long.
struct Reader<'k> {
    streams: &'k mut [Applied],
    offset: Nanos,
    unreadable: &'k mut [u64; Refusal::COUNT],
    bytes: &'k mut u64,
    coming: &'k mut Option<u32>,
}

impl Reader<'_> {
    fn take(&mut self, told: &KernelRecord<'_>, worker: &mut impl CollectorHost) {
        let received = told.at.wrapping_add(self.offset);
        if self.coming.take_if(|coming| *coming == told.generation).is_some() {
            worker.apply_detection();
        }
        if let Some((place, id)) = &told.stream
            && let Some(applied) = self.streams.get_mut(*place as usize)
        {
            match told.before {
                Some(run) => {
                    if let Some(run) = applied.advance(run) {
                        worker.with(|collector, sink| collector.receive_run(id, run, received, sink));
                    }
                }
                // Another stream may have been here before.
                None => *applied = Applied::default(),
            }
        }
        match wire::datagram(told.frame) {
            Ok(datagram) => {
                *self.bytes += datagram.payload.len() as u64;
                worker.process(&[Datagram {
                    payload: datagram.payload,
                    source: octets(datagram.src),
                    src_port: datagram.src_port,
                    listener: told.listener,
                    received,
                }]);
            }
            // The kernel's program reads frames by the same rules; nothing is lost unseen if it does not.
            Err(refusal) => self.unreadable[refusal.index()] += 1,
        }
    }
}

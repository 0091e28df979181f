//! A worker owns a collector: it passes bursts of datagrams to the collector and to the recorders, sends batches of results to
//! the pipeline, and answers queries in between.

mod removals;
mod snapshot;
mod tasks;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use collector::{
    Batch, Collector, Datagram, Drop, Event, FlowRow, Loss, Output, Removed, Rollup, Stats, event::Nanos,
};
use detect::Detection;
use tokio::sync::oneshot;

use crate::{
    datagram::{AggregatePorts, Contents},
    flight_recorder::Tap,
    hop_recorder::{HopRecorder, Marks},
    pipeline::{QueueSender, RuleNames},
    recorder::ReportRecorder,
    watermarks::{LEAD, Watermarks},
};
use runtime::lock::lock;

pub use removals::Removals;
pub use runtime::slice::{copy_flows, visit_network};
use snapshot::Publisher;
pub use snapshot::{Entries, Snapshot};
use tasks::Tasks;

/// Interval of the collector's timers, ns. It also bounds the delay of a query while few are queued.
pub const TICK: Nanos = 20_000_000;

/// Maximum number of queued queries of a worker.
const QUESTIONS: usize = 16;

/// Work for a worker between two bursts. It must be short, because datagrams queue meanwhile.
type Task = Box<dyn FnOnce(&mut Worker) + Send>;

/// A collector with its output. Runs on one thread at a time.
pub struct Worker {
    collector: Collector,
    outlet: QueueSender,
    recorder: Option<ReportRecorder>,
    hops: Option<HopRecorder>,
    tap: Option<Tap>,
    batch: Batch,
    rules: RuleNames,
    tasks: Tasks<Task>,
    publisher: Publisher,
    watermarks: Arc<Watermarks>,
    polled: Option<Nanos>,
    /// Counters of datagrams processed in the kernel.
    external_stats: Stats,
    removals: Removals,
    pending: Option<PendingDetection>,
    aggregate_ports: AggregatePorts,
}

/// Thresholds and rules that the kernel program must apply before the collector.
struct PendingDetection {
    detection: Arc<Detection>,
    rules: RuleNames,
    done: SyncSender<()>,
}

/// A handle to a worker, for its latest statistics and for queries.
#[derive(Clone)]
pub struct WorkerHandle {
    tasks: SyncSender<Task>,
    published: Arc<Mutex<Snapshot>>,
}

impl Worker {
    /// Creates a worker around `collector`, and a handle to it. With a `recorder`, every report is stored.
    pub fn new(
        collector: Collector,
        outlet: QueueSender,
        rules: RuleNames,
        recorder: Option<ReportRecorder>,
    ) -> (Self, WorkerHandle) {
        let (sender, queue) = sync_channel(QUESTIONS);
        let tasks = Tasks::new(queue);
        let publisher = Publisher::new(&collector);
        let handle = WorkerHandle {
            tasks: sender,
            published: publisher.published(),
        };
        let batch = outlet.batch();
        let external_stats = Stats::default();
        let removals = Removals::default();
        let worker = Self {
            collector,
            outlet,
            recorder,
            hops: None,
            tap: None,
            batch,
            rules,
            tasks,
            publisher,
            watermarks: Arc::default(),
            polled: None,
            external_stats,
            removals,
            pending: None,
            aggregate_ports: AggregatePorts::default(),
        };
        (worker, handle)
    }

    /// Adds the flight recorder's tap, which keeps recent datagrams.
    #[must_use]
    pub fn with_tap(mut self, tap: Option<Tap>) -> Self {
        self.tap = tap;
        self
    }

    /// Returns the ports that receive aggregates.
    pub fn aggregate_ports(&self) -> AggregatePorts {
        self.aggregate_ports.clone()
    }

    /// Replaces the ports that receive aggregates.
    #[must_use]
    pub fn with_aggregate_ports(mut self, ports: AggregatePorts) -> Self {
        self.aggregate_ports = ports;
        self
    }

    /// Returns the watermarks of the threads whose datagrams this worker processes.
    pub fn watermarks(&self) -> Arc<Watermarks> {
        Arc::clone(&self.watermarks)
    }

    /// Replaces the watermarks of the threads whose datagrams this worker processes.
    #[must_use]
    pub fn with_watermarks(mut self, watermarks: Arc<Watermarks>) -> Self {
        self.watermarks = watermarks;
        self
    }

    /// Adds the recorder for exports of hops.
    #[must_use]
    pub fn with_hops(mut self, hops: Option<HopRecorder>) -> Self {
        self.hops = hops;
        self
    }

    /// Processes datagrams with the same contents.
    pub fn process(&mut self, contents: Contents, datagrams: &[Datagram<'_>]) {
        match contents {
            Contents::Reports => self.process_reports(datagrams),
            Contents::LaterReports(first) => self.process_later_reports(datagrams, first),
            Contents::Aggregates => {
                let (collector, mut output) = self.parts(false);
                collector.handle_aggregates(datagrams, &mut output);
                self.send_full();
            }
        }
    }

    /// Processes a burst of datagrams with reports.
    pub fn process_reports(&mut self, datagrams: &[Datagram<'_>]) {
        self.handle(datagrams, |collector, output| collector.handle(datagrams, output));
    }

    /// Processes the later reports of datagrams whose first ones went to another worker.
    fn process_later_reports(&mut self, datagrams: &[Datagram<'_>], first: u16) {
        self.handle(datagrams, |collector, output| {
            collector.handle_later_reports(datagrams, first, output);
        });
    }

    /// Passes datagrams to the collector by `handle`, and then to the recorders.
    fn handle(
        &mut self,
        datagrams: &[Datagram<'_>],
        handle: impl FnOnce(&mut Collector, &mut FlushOutput<'_>),
    ) {
        // The output flushes automatically, because the first datagram may end an interval and emit many results.
        let mut output = FlushOutput {
            batch: &mut self.batch,
            outlet: &self.outlet,
            rules: &self.rules,
            marks: self.hops.as_mut().map(HopRecorder::marks),
            blocking: false,
        };
        handle(&mut self.collector, &mut output);
        if let Some(hops) = &mut self.hops {
            hops.record(datagrams);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(datagrams, &self.outlet);
        }
        if let Some(tap) = &mut self.tap {
            tap.keep(datagrams);
        }
        self.send_full();
    }

    /// Returns the collector and an output for its results, which waits for a full queue if it is `blocking`.
    fn parts(&mut self, blocking: bool) -> (&mut Collector, FlushOutput<'_>) {
        let output = FlushOutput {
            batch: &mut self.batch,
            outlet: &self.outlet,
            rules: &self.rules,
            marks: None,
            blocking,
        };
        (&mut self.collector, output)
    }

    fn send_full(&mut self) {
        if self.batch.is_half_full() {
            self.outlet.send(&mut self.batch, &self.rules);
        }
    }

    /// Runs the work due at `now`: timers, pending results, queries and statistics. The timers run up to `until`, before which
    /// everything that arrived has been processed.
    pub fn poll(&mut self, now: Nanos, until: Nanos) {
        // Run at most once per tick, but at once if the clock was set back.
        if self
            .polled
            .is_some_and(|polled| now >= polled && now - polled < TICK)
        {
            return;
        }
        self.polled = Some(now);
        // The collector takes a time far behind its own for a clock step, so limit the lag.
        let until = until.max(self.collector.time().saturating_sub(LEAD)).min(now);
        let (collector, mut output) = self.parts(false);
        collector.tick(until, &mut output);
        self.outlet.send(&mut self.batch, &self.rules);
        self.send_reports();
        if let Some(tap) = &mut self.tap {
            tap.poll();
        }
        self.run_tasks();
        self.publish();
    }

    /// Runs queries if the worker has `caught_up` with its input; otherwise they wait for the next tick. Returns the longest
    /// time to wait for datagrams, ms.
    pub fn serve(&mut self, caught_up: bool) -> u32 {
        if caught_up {
            self.run_tasks();
        }
        self.tasks.patience_ms()
    }

    /// Runs tasks of other threads. Datagrams queue meanwhile, so tasks beyond the time limit wait for the next turn.
    fn run_tasks(&mut self) {
        let Some(first) = self.tasks.next(Duration::ZERO) else {
            return;
        };
        let begun = Instant::now();
        first(self);
        while let Some(task) = self.tasks.next(begun.elapsed()) {
            task(self);
        }
    }

    /// Ends the worker: closes open intervals and emits their results.
    pub fn finish(&mut self, now: Nanos) {
        // No more datagrams arrive, so this may wait for the store.
        let (collector, mut output) = self.parts(true);
        collector.finish(now, &mut output);
        self.outlet.send_blocking(&mut self.batch, &self.rules);
        self.send_reports();
        if let Some(tap) = &mut self.tap {
            tap.end();
        }
        self.publish();
    }

    fn send_reports(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.send(&self.outlet);
        }
        if let Some(hops) = &mut self.hops {
            hops.send();
        }
    }

    /// Returns the collector, for queries.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Applies thresholds and rules at once, or leaves them pending if a kernel program must apply them first.
    fn set_detection(&mut self, pending: PendingDetection) {
        self.pending = Some(pending);
        if !self.removals.is_tracked() {
            self.apply_detection();
        }
    }

    /// Applies the pending thresholds and rules.
    pub fn apply_detection(&mut self) {
        let Some(PendingDetection {
            detection,
            rules,
            done,
        }) = self.pending.take()
        else {
            return;
        };
        // Flush first: these results refer to the old rules.
        self.outlet.send(&mut self.batch, &self.rules);
        self.collector.set_detection(detection);
        self.rules = rules;
        // The requester may be gone.
        let _ = done.send(());
    }

    fn publish(&mut self) {
        let mut stats = self.collector.stats();
        stats += &self.external_stats;
        self.publisher.publish(&self.collector, stats);
    }
}

impl Worker {
    /// Runs `work` on the collector, with an output for results.
    pub fn with<T>(&mut self, work: impl FnOnce(&mut Collector, &mut dyn Output) -> T) -> T {
        let (collector, mut output) = self.parts(false);
        work(collector, &mut output)
    }

    /// Returns thresholds and rules that a kernel program must apply first.
    pub fn pending_detection(&self) -> Option<Arc<Detection>> {
        self.pending
            .as_ref()
            .map(|pending| Arc::clone(&pending.detection))
    }

    /// Adds counts of datagrams processed outside the collector.
    pub fn count(&mut self, more: &Stats) {
        self.external_stats += more;
    }

    /// Passes everything that the collector removed since this input's last call to `visit`.
    pub fn drain_removed(&mut self, input: usize, visit: &mut dyn FnMut(Removed)) {
        self.removals.update(&mut self.collector, input, visit);
    }

    /// Registers an input for notice of removals; returns its index.
    pub fn track_removals(&mut self) -> usize {
        self.removals.add(&mut self.collector)
    }

    /// Unregisters the input with this index.
    pub fn end_removals(&mut self, input: usize) {
        self.removals.end(input);
    }
}

/// An output that flushes its batch whenever it is half full, for operations that may emit more than a batch holds.
struct FlushOutput<'b> {
    batch: &'b mut Batch,
    outlet: &'b QueueSender,
    rules: &'b RuleNames,
    /// The list of events for the hop recorder, if an export wants hops of reports with events.
    marks: Option<&'b mut Marks>,
    blocking: bool,
}

impl FlushOutput<'_> {
    fn check(&mut self) {
        if !self.batch.is_half_full() {
            return;
        }
        if self.blocking {
            self.outlet.send_blocking(self.batch, self.rules);
        } else {
            self.outlet.send(self.batch, self.rules);
        }
    }
}

impl Output for FlushOutput<'_> {
    fn sender(&mut self, sender: u32) {
        self.batch.sender(sender);
    }

    fn event(&mut self, event: &Event, path: &[u32]) {
        self.batch.event(event, path);
        if let Some(marks) = &mut self.marks {
            marks.add(event);
        }
        self.check();
    }

    fn rollup(&mut self, rollup: &Rollup) {
        self.batch.rollup(rollup);
        self.check();
    }

    fn flow(&mut self, row: &FlowRow, path: &[u32]) {
        self.batch.flow(row, path);
        self.check();
    }

    fn drop_report(&mut self, drop: &Drop) {
        self.batch.drop_report(drop);
        self.check();
    }

    fn loss(&mut self, loss: &Loss) {
        self.batch.loss(loss);
        self.check();
    }
}

impl WorkerHandle {
    /// Returns the counters as of the last tick.
    pub fn stats(&self) -> Stats {
        lock(&self.published).stats
    }

    /// Returns the counters as of the last tick, and the contents of the tables as of the last second.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.published).clone()
    }

    /// Queries the collector. The response comes within a tick, or never if the worker has ended or its queue is full.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Collector) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let task: Task = Box::new(move |worker| {
            // The requester may be gone.
            let _ = sender.send(question(worker.collector()));
        });
        // Refused when full: the sender is dropped, which closes the receiver.
        let _ = self.tasks.try_send(task);
        receiver
    }

    /// Like [`WorkerHandle::ask`], with an output for results, which stay in order with the results of reports. Skipped if the
    /// requester has gone.
    pub fn emit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Collector, &mut dyn Output) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let task: Task = Box::new(move |worker| {
            if !sender.is_closed() {
                let _ = sender.send(worker.with(|collector, output| work(collector, output)));
            }
        });
        let _ = self.tasks.try_send(task);
        receiver
    }

    /// Replaces thresholds and rules. Notifies the receiver when they are active, within a tick; closed if the worker has
    /// ended.
    pub fn set_detection(&self, detection: Arc<Detection>, rules: RuleNames) -> Receiver<()> {
        let (sender, receiver) = sync_channel(1);
        let task: Task = Box::new(move |worker| {
            worker.set_detection(PendingDetection {
                detection,
                rules,
                done: sender,
            })
        });
        // Blocks for at most a tick while the queue is full; fails only when the worker has ended.
        let _ = self.tasks.send(task);
        receiver
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("batch", &self.batch.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").finish_non_exhaustive()
    }
}

//! The flight recorder: keeps the latest datagrams of each worker in memory, and stores the reports around certain events.
//!
//! Each worker copies its datagrams into a ring of chunks (a [`Tap`]). When an event with a configured cause occurs, the
//! recorder's thread collects the reports of the affected flows or nodes in a time window around it. [`collector::flight`]
//! holds the windows and the selection.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use collector::{
    Datagram,
    event::Nanos,
    flight::{Chunk, ChunkStore, FlightStats, Ring, Selection, Window, Windows},
};

use crate::{
    pipeline::QueueSender,
    recorder::ReportRecorder,
    triggers::{Config, TriggeringEvents, Triggers, WAITING},
};
use runtime::{control::Control, lock::lock};
use terminal::CliError;

/// Interval at which the recorder looks for windows that have ended.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a window stays open after its end for events that the workers still deliver, ns.
const GRACE: Nanos = 100_000_000;
/// Longest wait for the workers' last chunks.
const PATIENCE: Duration = Duration::from_millis(500);

/// A worker's end of the recorder: its ring of datagrams.
#[derive(Debug)]
pub struct Tap {
    ring: Ring,
    spare: Option<Chunk>,
    shared: Arc<Shared>,
}

/// State shared by a worker and the recorder's thread.
#[derive(Debug)]
struct Shared {
    kept: Mutex<ChunkStore>,
    /// The recorder waits for the chunk that is still being filled.
    wanted: AtomicBool,
}

/// Counters of events by outcome, and the number of stored reports.
type Done = Arc<Mutex<(FlightStats, u64)>>;

/// A handle to the counters, for display.
#[derive(Clone, Debug)]
pub struct FlightGauge {
    done: Done,
    shed: Arc<AtomicU64>,
    memory: usize,
}

/// Counters and memory of the flight recorder.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlightCounts {
    /// Memory in use, bytes.
    pub memory: u64,
    /// Counters of the recorder.
    pub stats: FlightStats,
    /// Reports that were stored.
    pub reports: u64,
    /// Triggering events discarded because the recorder's thread was too busy.
    pub shed: u64,
}

/// The recorder before its thread starts.
#[derive(Debug)]
pub struct FlightRecorder {
    config: Config,
    taps: Vec<Arc<Shared>>,
    triggers: Triggers,
    receiver: Receiver<TriggeringEvents>,
    done: Done,
}

impl FlightRecorder {
    /// Creates a recorder for `workers` workers, and the tap of each.
    pub fn new(config: Config, workers: usize) -> (Self, Vec<Tap>) {
        // The configured memory is divided equally; two chunks are the minimum, one full and one being filled.
        let chunks = (config.memory / Chunk::BYTES / workers.max(1)).max(2);
        let taps: Vec<Arc<Shared>> = (0..workers)
            .map(|_| {
                // The chunk that is being filled is not among the kept ones.
                let kept = Mutex::new(ChunkStore::new(chunks - 1));
                Arc::new(Shared {
                    kept,
                    wanted: AtomicBool::new(false),
                })
            })
            .collect();
        let ends = taps.iter().map(|shared| Tap::new(Arc::clone(shared))).collect();
        let (triggers, receiver) = Triggers::new(&config.causes);
        (
            Self {
                config,
                taps,
                triggers,
                receiver,
                done: Done::default(),
            },
            ends,
        )
    }

    /// Returns a sender for triggering events, for another output of the collector.
    pub fn triggers(&self) -> Triggers {
        self.triggers.clone()
    }

    /// Returns the counters for display.
    pub fn gauge(&self) -> FlightGauge {
        FlightGauge {
            done: Arc::clone(&self.done),
            shed: self.triggers.shed(),
            memory: self.config.memory,
        }
    }

    /// Starts the recorder's thread. It ends when all senders of triggering events are dropped.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        self,
        recorder: ReportRecorder,
        outlet: QueueSender,
        control: &Control,
    ) -> Result<JoinHandle<()>, CliError> {
        let Self {
            config,
            taps,
            receiver,
            done,
            ..
        } = self;
        let windows = Windows::new(config.windows.clone());
        let mut thread = Thread {
            config,
            taps,
            recorder,
            outlet,
            done,
            windows,
            waiting: Vec::new(),
        };
        control.spawn("flight-recorder", move || thread.run(&receiver))
    }
}

impl Tap {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            ring: Ring::new(),
            spare: None,
            shared,
        }
    }

    /// Copies datagrams into the ring.
    pub fn keep(&mut self, datagrams: &[Datagram<'_>]) {
        for datagram in datagrams {
            if self.ring.is_full(datagram) {
                self.rotate();
            }
            self.ring.push(datagram);
        }
    }

    /// Hands over the chunk that is being filled, if the recorder waits for it.
    pub fn poll(&mut self) {
        // Relaxed: the chunk itself is exchanged under a lock.
        if self.shared.wanted.load(Ordering::Relaxed) {
            self.rotate();
            self.shared.wanted.store(false, Ordering::Release);
        }
    }

    /// Hands over the last chunk when the worker ends.
    pub fn end(&mut self) {
        self.rotate();
        self.shared.wanted.store(false, Ordering::Release);
    }

    fn rotate(&mut self) {
        if let Some(full) = self.ring.take(self.spare.take()) {
            self.spare = lock(&self.shared.kept).add(full);
        }
    }
}

impl FlightGauge {
    /// Returns the current values of the counters.
    pub fn counts(&self) -> FlightCounts {
        let (stats, reports) = *lock(&self.done);
        let shed = self.shed.load(Ordering::Relaxed);
        FlightCounts {
            memory: self.memory as u64,
            stats,
            reports,
            shed,
        }
    }
}

/// State of the recorder's thread.
struct Thread {
    config: Config,
    taps: Vec<Arc<Shared>>,
    recorder: ReportRecorder,
    outlet: QueueSender,
    done: Done,
    windows: Windows,
    /// Windows that have ended, each with the deadline for the workers' last chunks.
    waiting: Vec<(Window, Instant)>,
}

impl Thread {
    /// Collects triggers into windows, and records each window once it has ended, until all workers have ended.
    fn run(&mut self, receiver: &Receiver<TriggeringEvents>) {
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(found) => {
                    let more = receiver.try_iter().take(WAITING);
                    for found in std::iter::once(found).chain(more) {
                        found.triggers().for_each(|trigger| self.windows.trigger(trigger));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.record_due();
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos();
            self.end_windows(u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(GRACE));
        }
        // All workers have ended and handed over their chunks.
        self.windows.end();
        self.end_windows(u64::MAX);
        for (window, _) in std::mem::take(&mut self.waiting) {
            self.record(window, false);
        }
    }

    /// Requests the current chunk of every worker for windows that ended before `now`.
    fn end_windows(&mut self, now: Nanos) {
        while let Some(window) = self.windows.due(now) {
            self.taps
                .iter()
                .for_each(|tap| tap.wanted.store(true, Ordering::Relaxed));
            self.waiting.push((window, Instant::now() + PATIENCE));
        }
        lock(&self.done).0 = self.windows.stats();
    }

    /// Records the windows for which all chunks have arrived, or whose deadline is over because a worker is stuck.
    fn record_due(&mut self) {
        // Acquire: pairs with the Release store after the chunk was added.
        let is_there = self.taps.iter().all(|tap| !tap.wanted.load(Ordering::Acquire));
        let now = Instant::now();
        for (window, deadline) in std::mem::take(&mut self.waiting) {
            if is_there || now >= deadline {
                self.record(window, !is_there);
            } else {
                self.waiting.push((window, deadline));
            }
        }
    }

    /// Selects and stores the reports of one window. `lacks`: a worker's last chunk is missing, so it is incomplete.
    fn record(&mut self, window: Window, lacks: bool) {
        let Window { from, to, .. } = window;
        let mut selection = Selection::new(window, self.config.windows.reports);
        let mut late = lacks;
        for tap in &self.taps {
            let chunks = {
                let kept = lock(&tap.kept);
                late |= kept.has_dropped_since(from);
                kept.overlapping(from, to)
            };
            for datagram in chunks.iter().flat_map(|chunk| chunk.datagrams()) {
                if (from..=to).contains(&datagram.received) {
                    self.recorder.each(&datagram, |report| {
                        selection.offer(report, || self.recorder.row(&datagram, report));
                    });
                }
            }
        }
        let (mut recordings, mut rows) = selection.finish(late);
        // All reports are stored already: the recording only refers to them.
        if self.config.has_all_reports {
            rows.clear();
            recordings.iter_mut().for_each(|recording| recording.every = 1);
        }
        lock(&self.done).1 += rows.len() as u64;
        self.outlet.send_reports(rows);
        self.outlet.send_recordings(recordings);
    }
}

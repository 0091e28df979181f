//! Carries the workers' results to the live stream and the store, by two bounded queues with a thread and counters each.
//!
//! ```text
//! workers ── queue ──> "results" thread ── store queue ──> "store-feed" thread ──> store
//!                           └──> live stream
//! ```
//!
//! It never makes a worker wait, unless `[store] policy = "block"` asks for that.

use crate::settings::Policy;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::JoinHandle,
    time::Duration,
};

use collector::{Batch, flight::Recording};
use store::{MovedFiles, ReportRow, Store};

use crate::{
    backlog::{RecordBatch, Shed},
    live::Hub,
    record_queue::{Account, QueueGauge, RecordReceiver, RecordSender, record_queue},
    triggers::Triggers,
};
use runtime::{control::Control, lock::lock};
use terminal::CliError;
use view::{NamedCounts, Stage};

pub use crate::backlog::RuleNames;

/// Capacity of the store's own queue, batches.
const STORE_BATCHES: usize = 8;
/// Maximum number of nodes whose drops are counted individually.
const MAX_NODES: usize = 65_536;

/// Settings of the pipeline.
#[derive(Clone, Debug)]
pub struct Config {
    /// Capacity of a worker's batch, records of each kind.
    pub batch: usize,
    /// Limit of the queue between the workers and the live stream, bytes.
    pub queue: usize,
    /// Limit of the queue between the live stream and the store, bytes.
    pub store_queue: usize,
    /// Reaction of a worker to a full queue.
    pub policy: Policy,
    /// The store, or `None` to publish events in the live stream only.
    pub store: Option<store::Config>,
}

/// Counts of the workers' results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ResultCounters {
    events: u64,
    /// Records that did not fit into a batch.
    full: u64,
}

/// State shared by workers, pipeline and API.
#[derive(Debug)]
struct Shared {
    found: Mutex<ResultCounters>,
    store: RwLock<Option<Store>>,
    /// Final counters, after the store has been closed.
    last: Mutex<Option<store::Stats>>,
    /// Dropped-packet reports by node.
    drops: Mutex<BTreeMap<u32, u64>>,
}

/// The two queues and their threads.
#[derive(Debug)]
pub struct Pipeline {
    config: Config,
    hub: Arc<Hub>,
    control: Control,
    shared: Arc<Shared>,
    sender: Option<RecordSender>,
    /// The sender to the thread that feeds the store.
    feed: Option<RecordSender>,
    receivers: Option<(RecordReceiver, RecordReceiver)>,
    queues: [QueueGauge; 2],
    threads: Vec<JoinHandle<()>>,
}

/// A sender of results into the first queue, one per worker.
#[derive(Debug)]
pub struct QueueSender {
    sender: RecordSender,
    shared: Arc<Shared>,
    policy: Policy,
    batch: usize,
    /// The flight recorder's view of the events.
    triggers: Option<Triggers>,
}

/// Handle to the counters, for display.
#[derive(Clone, Debug)]
pub struct Gauge {
    shared: Arc<Shared>,
    /// The queues in front of the live stream and of the store.
    queues: [QueueGauge; 2],
    stored: bool,
}

impl Pipeline {
    /// Creates a pipeline whose threads have not started.
    pub fn new(config: Config, hub: Arc<Hub>, control: Control) -> Self {
        let (sender, receiver) = record_queue(config.queue);
        let (feed, fed) = record_queue(config.store_queue);
        let shared = Shared {
            found: Mutex::default(),
            store: RwLock::default(),
            last: Mutex::default(),
            drops: Mutex::default(),
        };
        let queues = [sender.gauge(), feed.gauge()];
        Self {
            config,
            hub,
            control,
            shared: Arc::new(shared),
            sender: Some(sender),
            feed: Some(feed),
            receivers: Some((receiver, fed)),
            queues,
            threads: Vec::new(),
        }
    }

    /// Returns a sender for a worker, or `None` after the stop.
    pub fn outlet(&self) -> Option<QueueSender> {
        let sender = self.sender.clone()?;
        let Config { batch, policy, .. } = self.config;
        Some(QueueSender {
            sender,
            shared: Arc::clone(&self.shared),
            policy,
            batch,
            triggers: None,
        })
    }

    /// Returns a handle to the counters.
    pub fn gauge(&self) -> Gauge {
        let shared = Arc::clone(&self.shared);
        let queues = self.queues.clone();
        Gauge {
            shared,
            queues,
            stored: self.config.store.is_some(),
        }
    }

    /// Sets the age and total size above which the store deletes files.
    pub fn set_retention(&self, max_age: Option<Duration>, max_bytes: Option<u64>) {
        if let Some(store) = &*self.shared.store.read().unwrap_or_else(PoisonError::into_inner) {
            store.set_retention(max_age, max_bytes);
        }
    }

    /// Returns the store files that an external tool removed or replaced, or `None` if no store is open.
    pub fn moved_files(&self) -> Option<MovedFiles> {
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        store.as_ref().map(Store::moved_files)
    }

    /// Opens the store and starts the threads.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn start(&mut self) -> Result<(), CliError> {
        let mut feed = self.feed.take();
        if let Some(config) = self.config.store.clone() {
            // Keep the store's own queue short: records wait in the second queue, which sheds by priority.
            let config = store::Config {
                queue_batches: STORE_BATCHES,
                ..config
            };
            let opened = Store::open(config).map_err(|error| CliError::new(error.to_string()))?;
            *write(&self.shared.store) = Some(opened);
        } else {
            feed = None;
        }
        let Some((receiver, fed)) = self.receivers.take() else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let hub = Arc::clone(&self.hub);
        let block = self.config.policy == Policy::Block;
        self.threads.push(self.control.spawn("results", move || {
            publish(receiver, &shared, &hub, feed.as_ref(), block);
        })?);
        let shared = Arc::clone(&self.shared);
        self.threads.push(
            self.control
                .spawn("store-feed", move || feed_store(fed, &shared))?,
        );
        Ok(())
    }

    /// Waits until all queued records are on disk. The workers must have stopped before.
    pub fn stop(&mut self) {
        self.sender = None;
        self.feed = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread has been logged already, and the store must be closed in any case.
            let _ = thread.join();
        }
        if let Some(store) = write(&self.shared.store).take() {
            *lock(&self.shared.last) = Some(store.close());
        }
    }
}

impl QueueSender {
    /// Makes the flight recorder inspect the events of this sender.
    #[must_use]
    pub fn with_triggers(mut self, triggers: Option<Triggers>) -> Self {
        self.triggers = triggers;
        self
    }

    /// Returns an empty batch of the configured capacity.
    pub fn batch(&self) -> Batch {
        Batch::with_capacity(self.batch)
    }

    /// Queues the records of `batch` and empties it. If the queue is full, the policy decides.
    pub fn send(&self, batch: &mut Batch, rules: &RuleNames) {
        self.submit(batch, rules, self.policy);
    }

    /// Like [`QueueSender::send`], but waits while the queue is full, regardless of the policy.
    pub fn send_blocking(&self, batch: &mut Batch, rules: &RuleNames) {
        self.submit(batch, rules, Policy::Block);
    }

    /// Queues reports for the store's table of reports. If the queue is full, the policy decides.
    pub fn send_reports(&self, rows: Vec<ReportRow>) {
        self.sender.send_reports(rows, self.policy == Policy::Block);
    }

    /// Queues recordings of the flight recorder. If the queue is full, the policy decides.
    pub fn send_recordings(&self, recordings: Vec<Recording>) {
        self.sender
            .send_recordings(recordings, self.policy == Policy::Block);
    }

    fn submit(&self, batch: &mut Batch, rules: &RuleNames, policy: Policy) {
        if batch.is_empty() && batch.refused() == 0 {
            return;
        }
        {
            let mut found = lock(&self.shared.found);
            found.full += batch.refused();
            found.events += batch.events().len() as u64;
        }
        if let Some(triggers) = &self.triggers {
            triggers.inspect(batch, rules);
        }
        self.sender.send(batch, rules, policy == Policy::Block);
        batch.clear();
    }
}

impl Shared {
    fn count_drops(&self, batch: &Batch) {
        if batch.drops().is_empty() {
            return;
        }
        let mut drops = lock(&self.drops);
        for node in batch.drops().iter().filter_map(|drop| drop.node) {
            if drops.len() < MAX_NODES || drops.contains_key(&node) {
                *drops.entry(node).or_default() += 1;
            }
        }
    }
}

impl Gauge {
    /// Returns the number of events emitted since the start.
    pub fn events(&self) -> u64 {
        lock(&self.shared.found).events
    }

    /// Returns the dropped-packet reports since the start, by node.
    pub fn drops_by_node(&self) -> BTreeMap<u32, u64> {
        lock(&self.shared.drops).clone()
    }

    /// Returns the counters of the store, or `None` without a store. After the stop these are the final ones.
    pub fn store(&self) -> Option<store::Stats> {
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        store
            .as_ref()
            .map(Store::stats)
            .or_else(|| lock(&self.shared.last).clone())
    }

    /// Returns the counters of the queue in front of the store.
    pub fn store_queue(&self) -> Account {
        self.queues[1].account()
    }

    /// Returns the stages `queue` and `store` of the loss budget.
    pub fn stages(&self) -> Vec<Stage> {
        // Read later stages first, so that a stage never seems to have more output than input.
        let stats = self.store().filter(|_| self.stored);
        let feed = self.store_queue();
        let queue = self.queues[0].account();
        let full = lock(&self.shared.found).full;
        let mut drops = reasons(&queue.shed);
        drops.add("batch_full", full);
        let mut stages = vec![Stage {
            stage: "queue".into(),
            unit: "records".into(),
            into: queue.offered + full,
            out: queue.delivered,
            queued: queue.queued(),
            drops,
            evidence: None,
        }];
        if let Some(stats) = stats {
            let mut drops = reasons(&feed.shed);
            drops.add("shed", stats.shed);
            drops.add("failed", stats.failed);
            let dropped: u64 = drops.values().sum();
            stages.push(Stage {
                stage: "store".into(),
                unit: "records".into(),
                into: feed.offered,
                out: stats.committed,
                // In the second queue, in the store's own queue, and between them.
                queued: feed.offered.saturating_sub(stats.committed + dropped),
                drops,
                evidence: None,
            });
        }
        stages
    }
}

fn reasons(shed: &Shed) -> NamedCounts {
    [
        ("queue_full", shed.full),
        ("source_share", shed.share),
        ("displaced", shed.displaced),
    ]
    .into()
}

/// Publishes records in the live stream, and passes them on to the store's queue.
fn publish(receiver: RecordReceiver, shared: &Shared, hub: &Hub, feed: Option<&RecordSender>, block: bool) {
    receiver.run(|records| match records {
        RecordBatch::Results(batch, rules) => {
            hub.publish(&batch, &rules);
            shared.count_drops(&batch);
            if let Some(feed) = feed {
                feed.send(&batch, &rules, block);
            }
        }
        RecordBatch::Reports(rows) => {
            if let Some(feed) = feed {
                feed.send_reports(rows, block);
            }
        }
        RecordBatch::Recordings(recordings) => {
            if let Some(feed) = feed {
                feed.send_recordings(recordings, block);
            }
        }
    });
}

/// Passes records to the store. Blocks while the store's own queue is full.
fn feed_store(receiver: RecordReceiver, shared: &Shared) {
    let mut named: Option<RuleNames> = None;
    receiver.run(|records| {
        let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = &*store else { return };
        match records {
            RecordBatch::Results(batch, rules) => {
                if named.as_ref().is_none_or(|names| !Arc::ptr_eq(names, &rules)) {
                    store.set_rules(rules.to_vec());
                    named = Some(rules);
                }
                store.submit(batch);
            }
            RecordBatch::Reports(rows) => {
                store.submit_reports(rows);
            }
            RecordBatch::Recordings(recordings) => {
                store.submit_recordings(recordings);
            }
        }
    });
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

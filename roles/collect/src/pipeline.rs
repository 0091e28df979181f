//! From the workers to the live stream and the store: two bounded queues, each drained by a thread, and balanced counters.
//!
//! Nothing here ever makes a worker wait, unless `[store] policy = "block"` asks for it.

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

/// Settings of the pipeline.
#[derive(Clone, Debug)]
pub struct Config {
    /// Records of each kind in a batch.
    pub batch: usize,
    /// Bytes of records between the workers and the live stream.
    pub queue: usize,
    /// Bytes of records between the live stream and the store.
    pub store_queue: usize,
    /// The action of a worker when the queue is full.
    pub policy: Policy,
    /// The store; `None`: events go to the live stream only.
    pub store: Option<store::Config>,
}

/// Counters of the workers' results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ResultCounters {
    events: u64,
    /// Records that a batch refused.
    full: u64,
}

/// Shared by workers, pipeline and API.
#[derive(Debug)]
struct Shared {
    found: Mutex<ResultCounters>,
    store: RwLock<Option<Store>>,
    last: Mutex<Option<store::Stats>>,
    drops: Mutex<BTreeMap<u32, u64>>,
}

/// The pipeline as a component.
#[derive(Debug)]
pub struct Pipeline {
    config: Config,
    hub: Arc<Hub>,
    control: Control,
    shared: Arc<Shared>,
    sender: Option<RecordSender>,
    /// To the thread that feeds the store.
    feed: Option<RecordSender>,
    receivers: Option<(RecordReceiver, RecordReceiver)>,
    queues: [QueueGauge; 2],
    threads: Vec<JoinHandle<()>>,
}

/// A worker's end of the queue.
#[derive(Debug)]
pub struct QueueSender {
    sender: RecordSender,
    shared: Arc<Shared>,
    policy: Policy,
    batch: usize,
    /// Where the flight recorder looks at events.
    triggers: Option<Triggers>,
}

/// The pipeline's counters for display.
#[derive(Clone, Debug)]
pub struct Gauge {
    shared: Arc<Shared>,
    /// In front of the live stream, and of the store.
    queues: [QueueGauge; 2],
    stored: bool,
}

impl Pipeline {
    /// A pipeline that is not started.
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

    /// An end for a worker; `None` after the stop.
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

    /// The counters, for display.
    pub fn gauge(&self) -> Gauge {
        let shared = Arc::clone(&self.shared);
        let queues = self.queues.clone();
        Gauge {
            shared,
            queues,
            stored: self.config.store.is_some(),
        }
    }

    /// Sets the age and size at which files are deleted.
    pub fn set_retention(&self, max_age: Option<Duration>, max_bytes: Option<u64>) {
        if let Some(store) = &*self.shared.store.read().unwrap_or_else(PoisonError::into_inner) {
            store.set_retention(max_age, max_bytes);
        }
    }

    /// Returns the files of the store that something else removes or replaces; `None` if no store is open.
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
            // Records that do not fit into the store's queue wait in ours, which sheds by priority.
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

    /// Waits until all queued records are on disk. The workers must have stopped.
    pub fn stop(&mut self) {
        self.sender = None;
        self.feed = None;
        for thread in self.threads.drain(..) {
            // A panic of that thread has been printed by then; the store is closed below in any case.
            let _ = thread.join();
        }
        if let Some(store) = write(&self.shared.store).take() {
            *lock(&self.shared.last) = Some(store.close());
        }
    }
}

impl QueueSender {
    /// The same, whose events the flight recorder looks at.
    #[must_use]
    pub fn with_triggers(mut self, triggers: Option<Triggers>) -> Self {
        self.triggers = triggers;
        self
    }

    /// Returns an empty batch of the configured capacity.
    pub fn batch(&self) -> Batch {
        Batch::with_capacity(self.batch)
    }

    /// Queues the records of `batch` and empties it. The policy applies when the queue is full.
    pub fn send(&self, batch: &mut Batch, rules: &RuleNames) {
        self.submit(batch, rules, self.policy);
    }

    /// Like `send`, but waits while the queue is full, regardless of the policy.
    pub fn send_blocking(&self, batch: &mut Batch, rules: &RuleNames) {
        self.submit(batch, rules, Policy::Block);
    }

    /// Queues reports for the table of reports. The policy applies when the queue is full.
    pub fn send_reports(&self, rows: Vec<ReportRow>) {
        self.sender.send_reports(rows, self.policy == Policy::Block);
    }

    /// Queues recordings. The policy applies when the queue is full.
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
    /// Events emitted since the start.
    pub fn events(&self) -> u64 {
        lock(&self.shared.found).events
    }

    /// Dropped-packet reports by node, since the start.
    pub fn drops_by_node(&self) -> BTreeMap<u32, u64> {
        lock(&self.shared.drops).clone()
    }

    /// Counters of the store; `None` without a store.
    pub fn store(&self) -> Option<store::Stats> {
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        store
            .as_ref()
            .map(Store::stats)
            .or_else(|| lock(&self.shared.last).clone())
    }

    /// Counters of the queue in front of the store.
    pub fn store_queue(&self) -> Account {
        self.queues[1].account()
    }

    /// The stages `queue` and `store` of the loss budget.
    pub fn stages(&self) -> Vec<Stage> {
        // Later ones are read first: then a stage never seems to have more output than input.
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
                // In our queue, in that of the store, and between them.
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

/// Publishes records in the live stream, and passes them on to the store.
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

/// Passes records to the store; blocks while the store's queue is full.
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

/// Batches in the store's own queue.
const STORE_BATCHES: usize = 8;
/// Maximum number of nodes whose drops are counted individually.
const MAX_NODES: usize = 65_536;

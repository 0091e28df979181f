//! From the workers to the store and the live stream: a bounded queue, a thread that drains it, and balanced counters.
//!
//! Nothing here ever makes a worker wait, unless `[store] policy = "block"` asks for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use collector::Batch;
use store::{ReportRow, Store};

use crate::{config::sections::Policy, control::Control, live::Hub, lock::lock, view::Stage};
use terminal::CliError;

/// Names of the active rules, in order.
pub(crate) type RuleNames = Arc<[String]>;

/// Settings of the pipeline.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Records of each kind in a batch.
    pub(crate) batch: usize,
    /// Batches between the workers and the store.
    pub(crate) queue: usize,
    /// What a worker does when the queue is full.
    pub(crate) policy: Policy,
    /// The store; `None`: events go to the live stream only.
    pub(crate) store: Option<store::Config>,
}

/// An item of the queue.
#[derive(Debug)]
enum Parcel {
    /// A batch, with the names that its rule numbers refer to.
    Results(Batch, RuleNames),
    /// Every report, for the table of reports.
    Reports(Vec<ReportRow>),
}

/// Counters of records: `offered = delivered + full + shed + queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    offered: u64,
    events: u64,
    delivered: u64,
    full: u64,
    shed: u64,
}

/// Shared by workers, pipeline and API.
#[derive(Debug)]
struct Shared {
    account: Mutex<Account>,
    spare: Mutex<Vec<Batch>>,
    store: RwLock<Option<Store>>,
    last: Mutex<Option<store::Stats>>,
    drops: Mutex<BTreeMap<u32, u64>>,
}

/// The pipeline as a component.
#[derive(Debug)]
pub(crate) struct Pipeline {
    config: Config,
    hub: Arc<Hub>,
    control: Control,
    shared: Arc<Shared>,
    sender: Option<SyncSender<Parcel>>,
    receiver: Option<Receiver<Parcel>>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's end of the queue.
#[derive(Debug)]
pub(crate) struct Outlet {
    sender: SyncSender<Parcel>,
    shared: Arc<Shared>,
    policy: Policy,
    batch: usize,
}

/// The pipeline's counters for display.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    shared: Arc<Shared>,
    stored: bool,
}

impl Pipeline {
    /// A pipeline that is not started.
    pub(crate) fn new(config: Config, hub: Arc<Hub>, control: Control) -> Self {
        let (sender, receiver) = sync_channel(config.queue);
        let shared = Shared {
            account: Mutex::default(),
            spare: Mutex::default(),
            store: RwLock::default(),
            last: Mutex::default(),
            drops: Mutex::default(),
        };
        Self {
            config,
            hub,
            control,
            shared: Arc::new(shared),
            sender: Some(sender),
            receiver: Some(receiver),
            thread: None,
        }
    }

    /// An end for a worker; `None` after the stop.
    pub(crate) fn outlet(&self) -> Option<Outlet> {
        let sender = self.sender.clone()?;
        let Config { batch, policy, .. } = self.config;
        Some(Outlet { sender, shared: Arc::clone(&self.shared), policy, batch })
    }

    /// The counters, for display.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge { shared: Arc::clone(&self.shared), stored: self.config.store.is_some() }
    }

    /// Sets the age and size at which files are deleted.
    pub(crate) fn set_retention(&self, max_age: Option<Duration>, max_bytes: Option<u64>) {
        if let Some(store) = &*self.shared.store.read().unwrap_or_else(PoisonError::into_inner) {
            store.set_retention(max_age, max_bytes);
        }
    }

    /// Opens the store and starts the thread.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub(crate) fn start(&mut self) -> Result<(), CliError> {
        if let Some(config) = self.config.store.clone() {
            let opened = Store::open(config).map_err(|error| CliError::new(error.to_string()))?;
            *write(&self.shared.store) = Some(opened);
        }
        let Some(receiver) = self.receiver.take() else { return Ok(()) };
        let (shared, hub) = (Arc::clone(&self.shared), Arc::clone(&self.hub));
        self.thread = Some(self.control.spawn("results", move || run(&receiver, &shared, &hub))?);
        Ok(())
    }

    /// Waits until all queued records are on disk. The workers must have stopped.
    pub(crate) fn stop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed by then; the store is closed below in any case.
            let _ = thread.join();
        }
        if let Some(store) = write(&self.shared.store).take() {
            *lock(&self.shared.last) = Some(store.close());
        }
    }
}

impl Outlet {
    /// An empty batch.
    pub(crate) fn batch(&self) -> Batch {
        lock(&self.shared.spare).pop().unwrap_or_else(|| Batch::with_capacity(self.batch))
    }

    /// Hands over what is in `batch` and leaves an empty one there. The policy applies when the queue is full.
    pub(crate) fn send(&self, batch: &mut Batch, rules: &RuleNames) {
        self.hand_over(batch, rules, self.policy);
    }

    /// Like `send`, but waits while the queue is full, regardless of the policy.
    pub(crate) fn send_blocking(&self, batch: &mut Batch, rules: &RuleNames) {
        self.hand_over(batch, rules, Policy::Block);
    }

    /// Hands over reports for the table of reports. The policy applies when the queue is full.
    pub(crate) fn send_reports(&self, rows: Vec<ReportRow>) {
        let records = rows.len() as u64;
        lock(&self.shared.account).offered += records;
        if self.enqueue(Parcel::Reports(rows), self.policy).is_some() {
            lock(&self.shared.account).shed += records;
        }
    }

    fn hand_over(&self, batch: &mut Batch, rules: &RuleNames, policy: Policy) {
        if batch.is_empty() && batch.refused() == 0 {
            return;
        }
        let (records, full) = (batch.len() as u64, batch.refused());
        {
            let mut account = lock(&self.shared.account);
            account.offered += records + full;
            account.full += full;
            account.events += batch.events().len() as u64;
        }
        let parcel = Parcel::Results(std::mem::replace(batch, self.batch()), Arc::clone(rules));
        if let Some(parcel) = self.enqueue(parcel, policy) {
            lock(&self.shared.account).shed += records;
            if let Parcel::Results(batch, _) = parcel {
                self.shared.put_back(batch);
            }
        }
    }

    /// Returns items that found the queue full.
    fn enqueue(&self, parcel: Parcel, policy: Policy) -> Option<Parcel> {
        let sent = match policy {
            Policy::Block => self.sender.send(parcel).map_err(|error| error.0),
            Policy::Shed => self.sender.try_send(parcel).map_err(|error| match error {
                TrySendError::Full(parcel) | TrySendError::Disconnected(parcel) => parcel,
            }),
        };
        sent.err()
    }
}

impl Shared {
    fn put_back(&self, mut batch: Batch) {
        batch.clear();
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE_BATCHES {
            spare.push(batch);
        }
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
    pub(crate) fn events(&self) -> u64 {
        lock(&self.shared.account).events
    }

    /// Dropped-packet reports by node, since the start.
    pub(crate) fn drops_by_node(&self) -> BTreeMap<u32, u64> {
        lock(&self.shared.drops).clone()
    }

    /// Counters of the store; `None` without a store.
    pub(crate) fn store(&self) -> Option<store::Stats> {
        let store = self.shared.store.read().unwrap_or_else(PoisonError::into_inner);
        store.as_ref().map(Store::stats).or_else(|| lock(&self.shared.last).clone())
    }

    /// The stages `queue` and `store` of the loss budget.
    pub(crate) fn stages(&self) -> Vec<Stage> {
        let account = *lock(&self.shared.account);
        let queued = account.offered - account.delivered - account.full - account.shed;
        let mut stages = vec![Stage {
            stage: "queue".into(),
            unit: "records".into(),
            into: account.offered,
            out: account.delivered,
            queued,
            drops: [("batch_full", account.full), ("queue_full", account.shed)].into(),
        }];
        if let Some(stats) = self.store().filter(|_| self.stored) {
            stages.push(Stage {
                stage: "store".into(),
                unit: "records".into(),
                into: stats.submitted,
                out: stats.committed,
                queued: stats.queued,
                drops: [("shed", stats.shed), ("failed", stats.failed)].into(),
            });
        }
        stages
    }
}

fn run(receiver: &Receiver<Parcel>, shared: &Shared, hub: &Hub) {
    let mut named: Option<RuleNames> = None;
    while let Ok(parcel) = receiver.recv() {
        let store = shared.store.read().unwrap_or_else(PoisonError::into_inner);
        let records = match parcel {
            Parcel::Results(batch, rules) => {
                let records = batch.len() as u64;
                hub.publish(&batch, &rules);
                shared.count_drops(&batch);
                if let Some(store) = &*store
                    && named.as_ref().is_none_or(|names| !Arc::ptr_eq(names, &rules))
                {
                    store.set_rules(rules.to_vec());
                    named = Some(rules);
                }
                shared.put_back(match &*store {
                    Some(store) => store.submit(batch).unwrap_or_else(|shed| shed),
                    None => batch,
                });
                records
            }
            Parcel::Reports(rows) => {
                let records = rows.len() as u64;
                if let Some(store) = &*store {
                    // The store has counted refused records.
                    store.submit_reports(rows);
                }
                records
            }
        };
        lock(&shared.account).delivered += records;
    }
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum number of empty batches retained for reuse.
const SPARE_BATCHES: usize = 8;
/// Nodes whose drops are counted one by one.
const MAX_NODES: usize = 65_536;

//! Selects the events that start a recording of the flight recorder. Each batch is inspected when it leaves its worker.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, SyncSender, sync_channel},
};

use collector::{
    Batch, Event, Kind,
    flight::{FlightConfig, Trigger},
};
use detect::Metric;
use settings::choice;

use crate::backlog::RuleNames;

/// Capacity of the queue to the recorder, batches with triggering events.
pub const WAITING: usize = 64;

choice! {
    /// An event that starts a recording.
    pub enum RecordedEvent("\"rule_on\", \"drop\", \"path_loop\", \"path_change\", \"queue_occupancy\", \"queue_congestion\", \"hop_latency\" or \"flow_latency\"") {
        /// A rule became true.
        RuleOn = "rule_on",
        /// A node dropped a packet.
        Drop = "drop",
        /// A path visits a node twice.
        PathLoop = "path_loop",
        /// The path of a flow changed.
        PathChange = "path_change",
        /// The occupancy of a queue rose by more than its threshold.
        QueueOccupancy = "queue_occupancy",
        /// The congestion of a queue, or the occupancy of a shared buffer, rose by more than its threshold.
        QueueCongestion = "queue_congestion",
        /// The latency of a hop rose by more than its threshold.
        HopLatency = "hop_latency",
        /// The latency of a flow rose by more than its threshold.
        FlowLatency = "flow_latency",
    }
}

impl RecordedEvent {
    fn covers(self, event: &Event) -> bool {
        let metric = match self {
            Self::RuleOn => return event.kind == Kind::RuleOn,
            Self::Drop => return event.kind == Kind::Drop,
            Self::PathLoop => return event.kind == Kind::PathLoop,
            Self::PathChange => return event.kind == Kind::PathChange,
            Self::QueueOccupancy => Metric::QueueOccupancy,
            Self::QueueCongestion => Metric::QueueCongestion,
            Self::HopLatency => Metric::HopLatency,
            Self::FlowLatency => Metric::FlowLatency,
        };
        event.kind == Kind::Change && event.metric == Some(metric) && event.value > event.previous
    }
}

/// Configuration of the flight recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time to record before and after an event, and the limits of a recording.
    pub windows: FlightConfig,
    /// The events that start a recording.
    pub causes: Vec<RecordedEvent>,
    /// Memory for datagrams of all workers, bytes.
    pub memory: usize,
    /// All reports are stored anyway, so a recording stores only its cause.
    pub has_all_reports: bool,
}

/// Triggering events of one batch, sent as one message, because causes that match every report would lock once per report.
#[derive(Debug)]
pub struct TriggeringEvents {
    events: Vec<Event>,
    rules: RuleNames,
}

impl TriggeringEvents {
    /// Iterates over the events, each with the name of its rule.
    pub fn triggers(&self) -> impl Iterator<Item = Trigger> + '_ {
        self.events.iter().map(|event| Trigger {
            event: *event,
            rule: event
                .rule
                .and_then(|rule| self.rules.get(usize::from(rule)).cloned()),
        })
    }
}

/// Inspects the events of a batch for the flight recorder. Each sender of results has a clone.
#[derive(Clone, Debug)]
pub struct Triggers {
    causes: Arc<[RecordedEvent]>,
    sender: SyncSender<TriggeringEvents>,
    /// Triggering events discarded because the recorder was too busy.
    shed: Arc<AtomicU64>,
}

impl Triggers {
    /// Creates the inspector for these causes, and the receiver of triggering events.
    pub fn new(causes: &[RecordedEvent]) -> (Self, Receiver<TriggeringEvents>) {
        let (sender, receiver) = sync_channel(WAITING);
        (
            Self {
                causes: causes.into(),
                sender,
                shed: Arc::default(),
            },
            receiver,
        )
    }

    /// Returns the counter of triggering events discarded because the recorder was too busy.
    pub fn shed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shed)
    }

    /// Sends the triggering events of a batch to the recorder. Never waits.
    pub fn inspect(&self, batch: &Batch, rules: &RuleNames) {
        let events = batch.events().map(|(event, _)| *event);
        let events: Vec<Event> = events
            .filter(|event| self.causes.iter().any(|cause| cause.covers(event)))
            .collect();
        let count = events.len() as u64;
        if count > 0
            && self
                .sender
                .try_send(TriggeringEvents {
                    events,
                    rules: Arc::clone(rules),
                })
                .is_err()
        {
            self.shed.fetch_add(count, Ordering::Relaxed);
        }
    }
}

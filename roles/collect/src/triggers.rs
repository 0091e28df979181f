//! Settings of the flight recorder, and which events start a recording. A batch is looked at when it leaves its worker.

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

/// Settings of the flight recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time to record before and after an event, and the limits of a recording.
    pub windows: FlightConfig,
    /// The events that start a recording.
    pub causes: Vec<RecordedEvent>,
    /// Bytes of datagrams, over all workers.
    pub memory: usize,
    /// Every report is stored anyway: only why it is worth a look is recorded.
    pub has_all_reports: bool,
}

/// Events of one batch that start recordings. One message for all: with causes that each report fulfils, one for each event would be a
/// lock for each report.
#[derive(Debug)]
pub struct TriggeringEvents {
    events: Vec<Event>,
    rules: RuleNames,
}

impl TriggeringEvents {
    /// The events, each with the name of its rule.
    pub fn triggers(&self) -> impl Iterator<Item = Trigger> + '_ {
        self.events.iter().map(|event| Trigger {
            event: *event,
            rule: event
                .rule
                .and_then(|rule| self.rules.get(usize::from(rule)).cloned()),
        })
    }
}

/// Where events are looked at: an end of each outlet.
#[derive(Clone, Debug)]
pub struct Triggers {
    causes: Arc<[RecordedEvent]>,
    sender: SyncSender<TriggeringEvents>,
    /// Events that the recorder was too busy to look at.
    shed: Arc<AtomicU64>,
}

impl Triggers {
    /// Events of these causes go to the receiver, as far as it keeps up.
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

    /// Counts the events that the recorder was too busy to look at.
    pub fn shed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shed)
    }

    /// Looks at the events of a batch. Never waits.
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

/// Batches with such events that wait for the recorder.
pub const WAITING: usize = 64;

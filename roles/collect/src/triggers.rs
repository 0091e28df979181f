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

use crate::backlog::RuleNames;

/// An event that starts a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A rule became true.
    RuleOn,
    /// A node dropped a packet.
    Drop,
    /// A path visits a node twice.
    PathLoop,
    /// The path of a flow changed.
    PathChange,
    /// The occupancy of a queue rose by more than its threshold.
    QueueOccupancy,
    /// The same for a shared buffer, or the congestion of a queue.
    QueueCongestion,
    /// The latency of a hop rose.
    HopLatency,
    /// The latency of a flow rose.
    FlowLatency,
}

impl Cause {
    fn covers(self, event: &Event) -> bool {
        let rose = |metric: Metric| {
            event.kind == Kind::Change && event.metric == Some(metric) && event.value > event.previous
        };
        match self {
            Self::RuleOn => event.kind == Kind::RuleOn,
            Self::Drop => event.kind == Kind::Drop,
            Self::PathLoop => event.kind == Kind::PathLoop,
            Self::PathChange => event.kind == Kind::PathChange,
            Self::QueueOccupancy => rose(Metric::QueueOccupancy),
            Self::QueueCongestion => rose(Metric::QueueCongestion),
            Self::HopLatency => rose(Metric::HopLatency),
            Self::FlowLatency => rose(Metric::FlowLatency),
        }
    }
}

/// Settings of the flight recorder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time to record before and after an event, and the limits of a recording.
    pub windows: FlightConfig,
    /// The events that start a recording.
    pub causes: Vec<Cause>,
    /// Bytes of datagrams, over all workers.
    pub memory: usize,
    /// Every report is stored anyway: only why it is worth a look is recorded.
    pub has_all_reports: bool,
}

/// Events of one batch that start recordings. One message for all: with causes that each report fulfils, one for each event would be a
/// lock for each report.
#[derive(Debug)]
pub struct Found {
    events: Vec<Event>,
    rules: RuleNames,
}

impl Found {
    /// The events, each with the name of its rule.
    pub fn triggers(&self) -> impl Iterator<Item = Trigger> + '_ {
        let name = |rule: u16| self.rules.get(usize::from(rule)).cloned();
        self.events.iter().map(move |event| Trigger {
            event: *event,
            rule: event.rule.and_then(name),
        })
    }
}

/// Where events are looked at: an end of each outlet.
#[derive(Clone, Debug)]
pub struct Triggers {
    causes: Arc<[Cause]>,
    sender: SyncSender<Found>,
    /// Events that the recorder was too busy to look at.
    shed: Arc<AtomicU64>,
}

impl Triggers {
    /// Events of these causes go to the receiver, as far as it keeps up.
    pub fn new(causes: &[Cause]) -> (Self, Receiver<Found>) {
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
    pub fn look(&self, batch: &Batch, rules: &RuleNames) {
        let is_cause = |event: &Event| self.causes.iter().any(|cause| cause.covers(event));
        let events: Vec<Event> = batch.events().map(|(event, _)| *event).filter(is_cause).collect();
        let count = events.len() as u64;
        if count > 0
            && self
                .sender
                .try_send(Found {
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

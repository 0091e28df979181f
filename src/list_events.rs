//! Connects the lists in collector memory with the queue of events: what the role of DTA finds, the role of the collector sends.

use collect_role::pipeline::{QueueSender, RuleNames};
use collector::Batch;
use dta_role::memory::EventSink;

/// The queue for the events of the lists in collector memory.
#[derive(Debug)]
pub(crate) struct ListEvents {
    pub(crate) outlet: QueueSender,
    pub(crate) rules: RuleNames,
}

impl EventSink for ListEvents {
    fn batch(&self) -> Batch {
        self.outlet.batch()
    }

    fn send(&self, batch: &mut Batch) {
        self.outlet.send(batch, &self.rules);
    }
}

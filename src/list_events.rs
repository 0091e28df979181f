//! Sends events that the memory role detects in DTA Append lists to the collector's event queue, like those of workers.

use collect_role::pipeline::{QueueSender, RuleNames};
use collector::Batch;
use dta_role::memory::EventSink;

/// Sender for the events of Append lists, with the rule names that events refer to.
#[derive(Debug)]
pub(crate) struct ListEvents {
    pub(crate) sender: QueueSender,
    pub(crate) rules: RuleNames,
}

impl EventSink for ListEvents {
    fn batch(&self) -> Batch {
        self.sender.batch()
    }

    fn send(&self, batch: &mut Batch) {
        self.sender.send(batch, &self.rules);
    }
}

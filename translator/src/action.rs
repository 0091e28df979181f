//! Executes triggers: when a DTA report fulfils a trigger's conditions, appends the trigger's entry to a list in the same
//! collector's memory. See `trigger.rs` for the conditions.

use rdma::transport::Transport;
use wire::dta::Report;

use crate::lists::Request;
use crate::sender::Sender;
use crate::stats::Stats;
use crate::stores::Stores;
use crate::trigger::{MAX_ENTRY, Trigger, TriggerInput};

/// The state that a trigger needs to append an entry.
#[derive(Debug)]
pub(crate) struct TriggerAction<'a> {
    pub(crate) now: u64,
    pub(crate) triggers: &'a [Trigger],
    pub(crate) fired: &'a mut [u64],
    pub(crate) stores: &'a mut Stores,
    pub(crate) stats: &'a mut Stats,
}

impl TriggerAction<'_> {
    pub(crate) fn run<W: Transport>(&mut self, report: &Report<'_>, sender: &mut Sender<'_, W>) {
        let triggers = self.triggers;
        for (trigger, fired) in triggers.iter().zip(self.fired.iter_mut()) {
            if !trigger.is_for(sender.collector, &report.operation) {
                continue;
            }
            for input in TriggerInput::all(report).filter(|input| trigger.holds(input)) {
                // `fired` is the time of the last entry plus one; 0 means never.
                if *fired != 0 && self.now.saturating_sub(*fired - 1) < trigger.interval {
                    self.stats.entries.suppressed += 1;
                    continue;
                }
                let mut entry = [0; MAX_ENTRY];
                let entry = trigger.build(self.now, &input, &mut entry);
                let request = Request {
                    immediate: trigger.immediate,
                    reliable: report.base.essential,
                    words: false,
                };
                let done = self
                    .stores
                    .append(self.now, trigger.list, entry, request, sender, self.stats);
                match done {
                    Ok(()) => *fired = self.now.saturating_add(1),
                    Err(_) => self.stats.entries.missed += 1,
                }
            }
        }
    }
}

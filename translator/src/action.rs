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
    /// Per trigger, the time of its last entry plus one, ns; 0: none yet.
    pub(crate) trigger_times: &'a mut [u64],
    pub(crate) stores: &'a mut Stores,
    pub(crate) stats: &'a mut Stats,
}

impl TriggerAction<'_> {
    pub(crate) fn run<W: Transport>(&mut self, report: &Report<'_>, sender: &mut Sender<'_, W>) {
        let triggers = self.triggers;
        for (trigger, last_time) in triggers.iter().zip(self.trigger_times.iter_mut()) {
            if !trigger.applies_to(sender.collector, &report.operation) {
                continue;
            }
            for input in TriggerInput::all(report).filter(|input| trigger.is_met_by(input)) {
                if *last_time != 0 && self.now.saturating_sub(*last_time - 1) < trigger.interval {
                    self.stats.entries.suppressed += 1;
                    continue;
                }
                let mut entry = [0; MAX_ENTRY];
                let entry = trigger.build_entry(self.now, &input, &mut entry);
                let request = Request {
                    immediate: trigger.immediate,
                    reliable: report.base.essential,
                    words: false,
                };
                let result = self
                    .stores
                    .append(self.now, trigger.list, entry, request, sender, self.stats);
                match result {
                    Ok(()) => *last_time = self.now.saturating_add(1),
                    Err(_) => self.stats.entries.missed += 1,
                }
            }
        }
    }
}

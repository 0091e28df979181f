//! Executes the triggers of DTA reports.

use rdma::transport::Transport;
use wire::dta::Report;

use crate::lists::Request;
use crate::sender::Sender;
use crate::stats::Stats;
use crate::stores::Stores;
use crate::trigger::{MAX_ENTRY, Trigger, TriggerInput};

/// Context of trigger actions.
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

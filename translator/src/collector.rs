//! State of one collector: its stores, its meter, and the reports that wait for it.

use crate::config::Rate;
use crate::local::LocalQueue;
use crate::meter::Meter;
use crate::stats::Stats;
use crate::stores::Stores;

#[derive(Debug)]
pub(crate) struct CollectorState {
    pub(crate) stores: Stores,
    pub(crate) meter: Meter,
    pub(crate) local: LocalQueue,
    pub(crate) attached: bool,
    pub(crate) level: u8,
    /// Do not retry pending writes before this time, ns.
    pub(crate) retry: u64,
}

impl CollectorState {
    /// Returns a collector that is not attached yet: reports that must not be lost wait.
    pub(crate) fn new(local: usize) -> Self {
        let meter = Meter::new(Rate::UNLIMITED);
        Self {
            stores: Stores::new(),
            meter,
            local: LocalQueue::new(local),
            attached: false,
            level: 0,
            retry: 0,
        }
    }

    /// Returns the current level, by the meter alone.
    #[inline(always)]
    pub(crate) fn update_level(&mut self, now: u64, stats: &mut Stats) -> u8 {
        let level = if self.attached { self.meter.level(now) } else { 3 };
        if level != self.level {
            if level > self.level {
                stats.levels[usize::from(level - 1)] += 1;
            }
            self.level = level;
        }
        level
    }
}

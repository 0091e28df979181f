//! The translator's state of one DTA collector: its stores, rate meter, congestion level and the reports waiting in local
//! memory.

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
    /// Pending writes are not retried before this time, ns.
    pub(crate) retry: u64,
}

impl CollectorState {
    /// Creates a collector that is not attached yet. Until then, essential and high-priority reports wait in a local queue
    /// of `local` bytes.
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

    /// Updates and returns the congestion level: the meter's, or 3 while the collector is not attached.
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

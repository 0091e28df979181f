//! One collector: its stores, how fast its memory may be written, and what waits for it.

use crate::config::Rate;
use crate::local::Local;
use crate::meter::Meter;
use crate::stats::Stats;
use crate::stores::Stores;

/// One collector.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) stores: Stores,
    pub(crate) meter: Meter,
    pub(crate) local: Local,
    pub(crate) attached: bool,
    pub(crate) level: u8,
    /// Before this time it is of no use to try again what is due and found no room.
    pub(crate) retry: u64,
}

impl Memory {
    /// A collector whose memory is not known yet: what may not be lost waits.
    pub(crate) fn new(local: usize) -> Self {
        let meter = Meter::new(Rate::ENDLESS);
        Self { stores: Stores::new(), meter, local: Local::new(local), attached: false, level: 0, retry: 0 }
    }

    /// The level now, by the meter alone.
    #[inline(always)]
    pub(crate) fn look(&mut self, now: u64, stats: &mut Stats) -> u8 {
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

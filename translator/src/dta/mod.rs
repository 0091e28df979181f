//! The DTA translator: reports of switches in, few RDMA operations out. Wire-formats section 5; Langlet et al., "Direct Telemetry
//! Access", sections 3 and 4.2.
//!
//! No I/O, no clock: UDP payloads and the time go in; operations go to a [`Way`], messages to reporters to an [`Out`].

mod config;
mod stats;
mod trigger;
mod way;

use core::net::SocketAddr;

pub use config::{
    Accept, CollectorConfig, Config, ConfigError, Known, MAX_BYTES, MAX_COLLECTORS, MAX_HOPS, MAX_LISTS,
    MAX_REPORTERS, MAX_SKETCH_REPORTERS, MAX_STORES, Rate, StoreEntry,
};
pub use stats::{
    Cause, Controls, Copies, Entries, Operations, PRIMITIVES, Postcards, Reason, Reports, Sequences,
    Sketches, Stats,
};
pub use trigger::{
    Condition, Field, MAX_CONDITIONS, MAX_ENTRY, MAX_PARTS, MAX_TRIGGERS, Part, Relation, Trigger,
};
pub use way::{Blocked, Place, Room, Way};

/// Where messages to reporters go.
pub trait Out {
    /// Takes the UDP payload of a message to the sender of a report. It goes to [`wire`]'s control port at `to`'s address (or to
    /// `to` itself, where several reporters share an address), from the address to which this collector's reports are sent.
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]);
}

/// Where a report came from, and for whom it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Source address and port.
    pub sender: SocketAddr,
    /// The collector to which it was sent, by its place in [`Config::collectors`].
    pub collector: u8,
}

/// See the module's text.
#[derive(Debug)]
pub struct Translator {
    config: Config,
    stats: Stats,
}

impl Translator {
    /// A translator that holds nothing yet. All memory that it needs for the collectors known is allocated here.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, stats: Stats::NEW })
    }

    /// Tells what a collector's memory is, when its exchange said so: for the first time, or again after it was gone. Where the
    /// same store is there again, what is held for it stays. Allocates.
    ///
    /// # Errors
    /// Stores that cannot be used; then nothing has changed.
    pub fn attach(&mut self, collector: u8, memory: CollectorConfig) -> Result<(), ConfigError> {
        memory.check(self.config.postcards)?;
        let place = self.config.collectors.get_mut(usize::from(collector)).ok_or(ConfigError::NoCollector)?;
        *place = Some(memory);
        Ok(())
    }

    /// Tells the number of the next batch of a tagged list, or the place of the next entry of a bare one, as the collector found
    /// it in its memory: a translator that begins anew goes on behind it. False if there is no such list.
    pub fn set_next(&mut self, collector: u8, list: u32, next: u64) -> bool {
        let _ = (collector, list, next);
        false
    }

    /// Takes the UDP payload of a report that came at `now`, ns of a clock that does not go back.
    pub fn take(&mut self, now: u64, origin: Origin, payload: &[u8], way: &mut impl Way, out: &mut impl Out) {
        let _ = (now, origin, payload, way, out);
        self.stats.reports.taken += 1;
        self.stats.reports.dropped[Reason::NoCollector as usize] += 1;
    }

    /// Takes several reports for one collector that came at the same time.
    pub fn take_burst<'a>(
        &mut self,
        now: u64,
        collector: u8,
        burst: impl IntoIterator<Item = (SocketAddr, &'a [u8])>,
        way: &mut impl Way,
        out: &mut impl Out,
    ) {
        for (sender, payload) in burst {
            self.take(now, Origin { sender, collector }, payload, way, out);
        }
    }

    /// Does what is due: batches, paths and epochs that have waited long enough, reports in local memory, what the way had no
    /// room for. To be called every millisecond or so, and when [`Translator::deadline`] has come.
    pub fn tick(&mut self, now: u64, way: &mut impl Way) {
        let _ = (now, way);
    }

    /// When the next batch, path or epoch has waited long enough.
    pub fn deadline(&self) -> Option<u64> {
        None
    }

    /// Writes all that is held, as far as the way takes it. True when nothing is left.
    pub fn finish(&mut self, now: u64, way: &mut impl Way) -> bool {
        let _ = (now, way);
        true
    }

    /// The congestion level of a collector now, 0 to 3.
    pub fn level(&self, collector: u8) -> u8 {
        let _ = collector;
        0
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

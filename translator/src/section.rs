//! Hierarchical sketch merging: sends the sketches that a network section's translator has merged to a translator of the
//! whole network. To that translator, the section is a Sketch-Merge reporter.
//!
//! An epoch is sent once it accepts no more columns: column by column in order, paced, as a switch does. It stays in the
//! translator's buffer until the epoch after next begins; until then NACKs can have columns sent again.

use wire::dta::layout::Columns;
use wire::dta::{BASE_LEN, Operation};

use crate::sketch::Merged;
use crate::translator::Translator;

/// Bytes of a Sketch-Merge report before its counters.
const HEAD: usize = BASE_LEN + 12;
/// Maximum reports per tick.
const REPORTS_PER_TICK: usize = 64;
/// Retry interval when the send queue is full, ns.
const RETRY_INTERVAL: u64 = 1_000_000;
/// Maximum delay that is made up for with a larger burst, ns.
const MAX_CATCH_UP: u64 = 2_000_000;
/// Retransmissions of all columns of an epoch that NACKs can cause. NACKs are not authenticated, so they are limited.
const MAX_REPEATS: u64 = 4;

/// Settings of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionConfig {
    /// Index of the collector whose sketches are sent.
    pub collector: u8,
    /// Sketch IDs to send; empty: all.
    pub sketches: Vec<u16>,
    /// Maximum UDP payload of a report, bytes.
    pub longest: usize,
    /// Minimum time between two reports, ns.
    pub pace: u64,
}

impl SectionConfig {
    fn includes(&self, sketch: u16) -> bool {
        self.sketches.is_empty() || self.sketches.contains(&sketch)
    }
}

/// Counters of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionStats {
    /// Epochs whose columns were all sent.
    pub epochs: u64,
    /// Columns sent for the first time.
    pub columns: u64,
    /// Columns sent again after a NACK.
    pub retransmitted: u64,
    /// Columns not sent because a later epoch took their buffer.
    pub expired: u64,
    /// Columns not sent because of congestion, or because a column exceeds the maximum report length.
    pub suppressed: u64,
    /// NACKs for columns that had been sent.
    pub nacks: u64,
    /// NACKs for other columns or epochs.
    pub stale: u64,
    /// NACKs ignored because the epoch used up its retransmissions.
    pub limited: u64,
}

/// The reason why a report was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Congestion suppresses the report. The rest of the epoch is not sent either, because columns must arrive in order.
    Suppressed,
    /// The send queue is full at the moment.
    NoRoom,
}

/// Progress in sending one epoch.
#[derive(Clone, Copy, Debug)]
struct Progress {
    sketch: u16,
    epoch: u16,
    columns: u32,
    /// Next column to send.
    cursor: u32,
    /// First column that was never sent.
    first_unsent: u32,
    /// Columns that NACKs may still have retransmitted.
    allowance: u64,
}

/// Sends merged sketches upstream: see the module documentation.
#[derive(Debug)]
pub struct Section {
    config: SectionConfig,
    /// Progress of up to two epochs per sketch: even and odd.
    progress: Vec<Progress>,
    next_send: u64,
    scratch: Vec<u8>,
    stats: SectionStats,
}

impl Section {
    /// Creates a section with nothing to send.
    pub fn new(config: SectionConfig) -> Self {
        Self {
            config,
            progress: Vec::new(),
            next_send: 0,
            scratch: Vec::new(),
            stats: SectionStats::default(),
        }
    }

    /// Returns the counters since the section was created.
    pub fn stats(&self) -> SectionStats {
        self.stats
    }

    /// Sends the columns that are due. `send` transmits one report or returns why it cannot.
    pub fn tick(
        &mut self,
        now: u64,
        translator: &Translator,
        mut send: impl FnMut(&Operation<'_>) -> Result<(), Unsent>,
    ) {
        for merged in translator.merged(self.config.collector) {
            if self.config.includes(merged.sketch) {
                self.begin_epoch(now, &merged);
            }
        }
        self.forget_expired(translator);
        let mut remaining = REPORTS_PER_TICK;
        for merged in translator.merged(self.config.collector) {
            if !self.config.includes(merged.sketch) {
                continue;
            }
            let Some(index) = self.find_buffer(merged.sketch, merged.epoch) else {
                continue;
            };
            while self.progress[index].cursor < merged.shape.columns {
                if remaining == 0 || now < self.next_send {
                    return;
                }
                if !self.send(index, &merged, &mut send) {
                    self.next_send = now.saturating_add(RETRY_INTERVAL);
                    return;
                }
                remaining -= 1;
                let max_delay = self.config.pace.max(MAX_CATCH_UP);
                self.next_send = self.next_send.max(now.saturating_sub(max_delay)) + self.config.pace;
            }
        }
    }

    /// Handles a NACK: the upstream translator expects `column`, so sending resumes from there.
    pub fn nack(&mut self, sketch: u16, epoch: u16, column: u32) {
        let progress = self.progress.iter_mut().find(|progress| {
            progress.sketch == sketch && progress.epoch == epoch && column < progress.first_unsent
        });
        match progress {
            Some(progress) => {
                let repeated = u64::from(progress.cursor.saturating_sub(column));
                if repeated > progress.allowance {
                    self.stats.limited += 1;
                    return;
                }
                self.stats.nacks += 1;
                progress.allowance -= repeated;
                progress.cursor = progress.cursor.min(column);
            }
            None => self.stats.stale += 1,
        }
    }

    /// Returns the time at which [`Section::tick`] has something to send, ns, or `None` if nothing is pending.
    pub fn next(&self) -> Option<u64> {
        self.progress
            .iter()
            .any(|progress| progress.cursor < progress.columns)
            .then_some(self.next_send)
    }

    /// Returns the index of the progress in the buffer that this epoch uses, whichever epoch is in it.
    fn find_buffer(&self, sketch: u16, epoch: u16) -> Option<usize> {
        self.progress
            .iter()
            .position(|progress| progress.sketch == sketch && progress.epoch & 1 == epoch & 1)
    }

    /// Removes epochs that are no longer in memory because their buffer was reused or the collector's stores changed.
    fn forget_expired(&mut self, translator: &Translator) {
        let Self {
            config,
            progress,
            stats,
            ..
        } = self;
        progress.retain(|progress| {
            let mut merged = translator.merged(config.collector);
            let is_in_memory =
                merged.any(|merged| (merged.sketch, merged.epoch) == (progress.sketch, progress.epoch));
            stats.expired += if is_in_memory {
                0
            } else {
                u64::from(progress.columns - progress.first_unsent)
            };
            is_in_memory
        });
    }

    /// Starts to send an epoch that accepts no more columns.
    fn begin_epoch(&mut self, now: u64, merged: &Merged<'_>) {
        let Merged {
            sketch, epoch, shape, ..
        } = *merged;
        let columns = shape.columns;
        let allowance = MAX_REPEATS * u64::from(columns);
        let new_progress = Progress {
            sketch,
            epoch,
            columns,
            cursor: 0,
            first_unsent: 0,
            allowance,
        };
        match self.find_buffer(sketch, epoch) {
            None => self.progress.push(new_progress),
            Some(index) => {
                let previous = &mut self.progress[index];
                if (previous.epoch, previous.columns) == (epoch, shape.columns) {
                    return;
                }
                self.stats.expired += u64::from(previous.columns - previous.first_unsent);
                *previous = new_progress;
            }
        }
        self.next_send = self.next_send.max(now);
    }

    /// Sends the next columns of an epoch; returns `false` if no report can be sent at the moment.
    fn send(
        &mut self,
        index: usize,
        merged: &Merged<'_>,
        send: &mut impl FnMut(&Operation<'_>) -> Result<(), Unsent>,
    ) -> bool {
        let Self {
            config,
            progress,
            scratch,
            stats,
            ..
        } = self;
        let progress = &mut progress[index];
        let Columns {
            depth,
            columns,
            width,
        } = merged.shape;
        let column_len = merged.shape.column_len() as usize;
        let max_columns = config.longest.saturating_sub(HEAD) / column_len.max(1);
        let count = (columns - progress.cursor).min(max_columns.min(255) as u32);
        let first = progress.cursor as usize * column_len;
        let counters = merged
            .counters
            .get(first..first + count as usize * column_len)
            .unwrap_or_default();
        scratch.clear();
        scratch.extend_from_slice(counters);
        scratch
            .chunks_exact_mut(usize::from(width.max(1)))
            .for_each(<[u8]>::reverse);
        let operation = Operation::SketchMerge {
            sketch: merged.sketch,
            epoch: merged.epoch,
            first_column: progress.cursor,
            depth,
            width,
            op: merged.op,
            columns: count as u8,
            counters: scratch,
        };
        let result = if count == 0 {
            Err(Unsent::Suppressed)
        } else {
            send(&operation)
        };
        match result {
            Ok(()) => {
                let end = progress.cursor + count;
                let new_columns = end.saturating_sub(progress.first_unsent.max(progress.cursor));
                stats.columns += u64::from(new_columns);
                stats.retransmitted += u64::from(count - new_columns);
                stats.epochs += u64::from(new_columns > 0 && end == columns);
                progress.cursor = end;
                progress.first_unsent = progress.first_unsent.max(end);
                true
            }
            Err(Unsent::Suppressed) => {
                stats.suppressed += u64::from(columns - progress.first_unsent);
                progress.cursor = columns;
                progress.first_unsent = columns;
                true
            }
            Err(Unsent::NoRoom) => false,
        }
    }
}

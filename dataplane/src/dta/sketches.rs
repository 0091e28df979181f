//! Sketches that a switch fills packet by packet, and sends column by column when an epoch ends (wire-formats 5.4): Count,
//! Count-Min, HyperLogLog and AROMA. There are two buffers: one is filled while the other is sent, and then retained until the
//! next epoch ends, so that columns can be retransmitted.

use detect::Match;
use wire::dta::layout::{Columns, SketchKind};
use wire::dta::{Operation, hash, sketch};

use super::context::Context;
use super::field::{self, Field, ReportedHop, ValueError};
use super::table::At;

/// Maximum number of counters of a sketch.
pub const MAX_COUNTERS: u64 = 1 << 24;
/// Maximum delay that the pacing makes up for with a burst, ns; a little more than the time between ticks.
const CATCH_UP: u64 = 2_000_000;
/// NACKs can cause at most this many retransmissions of all columns per epoch. Control messages are not authenticated, so one
/// of 20 bytes must not cause an unlimited number of reports.
const REPEATS: u64 = 4;

/// The amount that a packet adds to its counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// One for each packet.
    #[default]
    Packets,
    /// The length of the packet, bytes.
    Bytes,
}

/// Configuration of a sketch. Must be equal at all switches whose sketches are merged, except for `at` and `flows`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name in configuration and statistics.
    pub name: String,
    /// ID of the sketch in reports.
    pub id: u16,
    /// Kind of the sketch.
    pub kind: SketchKind,
    /// Rows, columns and bytes per counter.
    pub shape: Columns,
    /// The key that is counted or distinguished, at most 64 bytes.
    pub key: Vec<Field>,
    /// For AROMA, the sampled value of a packet: a number of 32 bits.
    pub item: Option<Field>,
    /// For Count and Count-Min, the amount that a packet adds.
    pub counts: Counts,
    /// Flows whose packets are counted.
    pub flows: Match,
    /// Switches at which packets are counted.
    pub at: At,
    /// Length of an epoch, ns. The epochs of all switches end together, as far as their clocks agree.
    pub epoch: u64,
    /// Number of columns per report, at most 255.
    pub per_report: u8,
    /// Minimum time between two reports, ns.
    pub pace: u64,
    /// Options of its reports.
    pub options: super::SendOptions,
}

/// Counters of a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets counted in the sketch.
    pub counted: u64,
    /// Packets for which the key is unknown.
    pub keyless: u64,
    /// Number of finished epochs.
    pub epochs: u64,
    /// Columns sent for the first time.
    pub columns: u64,
    /// Columns retransmitted because of a NACK.
    pub again: u64,
    /// Columns that were not sent before the next epoch ended.
    pub expired: u64,
    /// Columns suppressed by congestion: all remaining ones of an epoch, because columns must arrive in order.
    pub suppressed: u64,
    /// NACKs that were processed.
    pub nacks: u64,
    /// NACKs about an epoch that is no longer stored, or about columns that were never sent.
    pub stale: u64,
    /// NACKs ignored because columns would exceed the limit of retransmissions, or would not be sent before the epoch ends.
    pub limited: u64,
}

#[derive(Debug)]
pub(super) struct Sketch {
    pub(super) config: Config,
    filling: Vec<u64>,
    sealed: Vec<u64>,
    /// The current epoch: time divided by the epoch's length.
    epoch: Option<u64>,
    /// Number of the epoch in `sealed`, low 16 bits.
    sealed_epoch: u16,
    /// The next column of `sealed` to send, and the first that was never sent.
    cursor: u32,
    fresh: u32,
    /// Number of columns of `sealed` that NACKs may still cause to be retransmitted.
    allowance: u64,
    next_send: u64,
    /// Buffer for the encoded counters of a report.
    scratch: Vec<u8>,
    pub(super) stats: Stats,
}

impl Sketch {
    pub(super) fn new(config: Config) -> Self {
        let Columns {
            depth,
            columns,
            width,
        } = config.shape;
        let counters = usize::from(depth) * columns as usize;
        let report = usize::from(config.per_report) * usize::from(depth) * usize::from(width);
        Self {
            filling: vec![0; counters],
            sealed: vec![0; counters],
            epoch: None,
            sealed_epoch: 0,
            cursor: columns,
            fresh: columns,
            allowance: 0,
            next_send: 0,
            scratch: vec![0; report],
            stats: Stats::default(),
            config,
        }
    }

    pub(super) fn count(&mut self, context: &Context<'_>, now: u64) {
        let Some(flow) = context.flow.filter(|_| self.config.at.is_here(context)) else {
            return;
        };
        if self.config.flows != Match::default() && !self.config.flows.matches(flow) {
            return;
        }
        let Ok((hashes, item)) = self.hashes(context, now) else {
            self.stats.keyless += 1;
            return;
        };
        self.stats.counted += 1;
        self.rotate(now);
        let Self { config, filling, .. } = self;
        let Columns { depth, columns, .. } = config.shape;
        match config.kind {
            SketchKind::CountMin | SketchKind::Count => {
                let amount = match config.counts {
                    Counts::Packets => 1,
                    Counts::Bytes => u64::from(context.packet.bytes),
                };
                for row in 0..depth {
                    let hash = sketch::row_hash(&hashes, row);
                    let column = sketch::column(hash, columns) as usize;
                    let counter = &mut filling[column * usize::from(depth) + usize::from(row)];
                    let away = config.kind == SketchKind::Count && sketch::is_negative(hash);
                    *counter = counter.wrapping_add(if away { amount.wrapping_neg() } else { amount });
                }
            }
            SketchKind::HyperLogLog | SketchKind::Aroma => {
                let hash = sketch::row_hash(&hashes, 0);
                let cell = sketch::cell(hash, depth, columns);
                let counter = &mut filling[cell.column as usize * usize::from(depth) + usize::from(cell.row)];
                let value = match config.kind {
                    SketchKind::Aroma => sketch::sampled(hash, item),
                    _ => sketch::rank(hash).into(),
                };
                *counter = (*counter).max(value);
            }
        }
    }

    /// Returns the hashes of the key that the packet has for this sketch, and the 32-bit item to count (0 without one).
    fn hashes(&self, context: &Context<'_>, now: u64) -> Result<(hash::Hashes, u32), ValueError> {
        let fields = self.config.key.iter().chain(&self.config.item);
        let subject = ReportedHop::for_fields(fields, context);
        let mut key = [0; hash::MAX_KEY];
        let len = field::write_key(&self.config.key, context, &subject, now, &mut key)?;
        let item = match &self.config.item {
            Some(item) => item.word(context, &subject, now).ok_or(ValueError::Absent)?,
            None => 0,
        };
        Ok((hash::hashes(&key[..len]), item))
    }

    /// Seals the current buffer if its epoch has ended.
    fn rotate(&mut self, now: u64) {
        let epoch = now / self.config.epoch.max(1);
        let Some(before) = self.epoch else {
            self.epoch = Some(epoch);
            return;
        };
        if epoch <= before {
            return;
        }
        self.stats.epochs += 1;
        let columns = self.config.shape.columns;
        self.stats.expired += u64::from(columns - self.fresh);
        std::mem::swap(&mut self.filling, &mut self.sealed);
        self.filling.fill(0);
        self.sealed_epoch = before as u16;
        self.cursor = 0;
        self.fresh = 0;
        self.allowance = REPEATS * u64::from(columns);
        self.epoch = Some(epoch);
        self.next_send = self.next_send.max(now);
    }

    /// Sends due columns, in at most `most` reports. `send` returns an error if a report did not fit, or congestion suppresses
    /// it.
    pub(super) fn tick(
        &mut self,
        now: u64,
        most: usize,
        mut send: impl FnMut(&Operation<'_>) -> Result<(), super::SendError>,
    ) {
        self.rotate(now);
        for _ in 0..most {
            let columns = self.config.shape.columns;
            if self.cursor >= columns || now < self.next_send {
                return;
            }
            let count = u32::from(self.config.per_report).min(columns - self.cursor);
            match send(&self.operation(count)) {
                Ok(()) => {}
                Err(super::SendError::Suppressed) => {
                    self.stats.suppressed += u64::from(columns - self.fresh);
                    self.cursor = columns;
                    self.fresh = columns;
                    return;
                }
                Err(super::SendError::NoRoom) => return,
            }
            let end = self.cursor + count;
            let new = end.saturating_sub(self.fresh.max(self.cursor));
            self.stats.columns += u64::from(new);
            self.stats.again += u64::from(count - new);
            self.cursor = end;
            self.fresh = self.fresh.max(end);
            let behind = self.config.pace.max(CATCH_UP);
            self.next_send = self.next_send.max(now.saturating_sub(behind)) + self.config.pace;
        }
    }

    /// Builds the operation for the next `count` columns.
    fn operation(&mut self, count: u32) -> Operation<'_> {
        let Columns { depth, width, .. } = self.config.shape;
        let first = self.cursor as usize * usize::from(depth);
        let counters = &self.sealed[first..first + count as usize * usize::from(depth)];
        let width_bytes = usize::from(width);
        let len = counters.len() * width_bytes;
        for (counter, bytes) in counters.iter().zip(self.scratch.chunks_exact_mut(width_bytes)) {
            bytes.copy_from_slice(&counter.to_be_bytes()[8 - width_bytes..]);
        }
        Operation::SketchMerge {
            sketch: self.config.id,
            epoch: self.sealed_epoch,
            first_column: self.cursor,
            depth,
            width,
            op: self.config.kind.op(),
            columns: count as u8,
            counters: &self.scratch[..len],
        }
    }

    /// Processes a SKETCH-NACK: the translator expects `column` next.
    pub(super) fn nack(&mut self, epoch: u16, column: u32, now: u64) {
        if epoch != self.sealed_epoch || column >= self.fresh {
            self.stats.stale += 1;
            return;
        }
        let again = u64::from(self.cursor.saturating_sub(column));
        if again > 0 && (again > self.allowance || !self.is_in_time(column, now)) {
            self.stats.limited += 1;
            return;
        }
        self.stats.nacks += 1;
        self.allowance -= again;
        self.cursor = self.cursor.min(column);
    }

    /// Returns whether all columns from this one on can be sent before the current epoch ends.
    fn is_in_time(&self, column: u32, now: u64) -> bool {
        let Config {
            shape,
            per_report,
            pace,
            epoch,
            ..
        } = &self.config;
        let reports = shape
            .columns
            .saturating_sub(column)
            .div_ceil(u32::from(*per_report).max(1));
        let takes = u64::from(reports).saturating_mul(*pace);
        let end = self
            .epoch
            .map_or(0, |current| (current + 1).saturating_mul(*epoch));
        self.next_send.max(now).saturating_add(takes) <= end
    }

    /// Returns the time at which [`Sketch::tick`] is due, ns.
    pub(super) fn next(&self) -> Option<u64> {
        let Some(epoch) = self.epoch else { return Some(0) };
        if self.cursor < self.config.shape.columns {
            return Some(self.next_send);
        }
        Some((epoch + 1).saturating_mul(self.config.epoch))
    }
}

//! The DTA Sketch-Merge primitive in the translator: merges the columns that several reporters deliver for an epoch into
//! one sketch, and writes complete columns in batches.
//!
//! There are two buffers, for even and odd epochs, in the byte layout of collector memory
//! (`docs/reference/wire-formats.md`, sections 5.4, 5.5 and 5.9). Counters are never cleared: the first reporter's columns
//! overwrite old ones, and later reporters' columns are merged. Each reporter sends its columns in order, so three
//! watermarks describe an epoch:
//!
//! ```text
//! columns  0 ... written ... complete ........ touched .......... end
//!          │ in memory │ by all reporters │ by at least one │ none │
//! ```
//!
//! An epoch goes from `Idle` to `Open`, `Closing` (no more columns are accepted) and `Closed` (written with its trailer).

use wire::dta::Opcode;
use wire::dta::layout::{Columns, Geometry, MergeOp, SketchKind, SketchTrailer};

use super::config::{Config, StoreEntry};
use super::hash_table::HashTable;
use super::sender::{Fault, Sender, Target};
use super::stats::{Cause, Reason, Sketches};
use rdma::transport::{Blocked, MAX_WRITE, Transport};

/// Maximum distance of a new epoch ahead of the newest one.
const AHEAD: i16 = 8;
/// Table slots checked for an expired entry when the table is full.
const SWEEP: usize = 16;

/// An epoch of a merged sketch that accepts no more columns.
#[derive(Clone, Copy, Debug)]
pub struct Merged<'a> {
    /// ID of the sketch.
    pub sketch: u16,
    /// Number of the epoch.
    pub epoch: u16,
    /// Rows, columns and width of the counters.
    pub shape: Columns,
    /// Operation that merged the columns.
    pub op: MergeOp,
    /// Counters of all columns, column by column, little-endian.
    pub counters: &'a [u8],
}

/// Consecutive columns of one reporter from one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery<'a> {
    pub(super) reporter: u32,
    pub(super) epoch: u16,
    /// Number of the first column.
    pub(super) first: u32,
    /// Number of columns in the delivery.
    pub(super) columns: u8,
    /// Counters of the columns, in network byte order.
    pub(super) counters: &'a [u8],
    /// The reporter requests an immediate notification when the epoch is written.
    pub(super) immediate: bool,
}

/// Progress of one reporter in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Number of the next expected column.
    next: u32,
    /// A NACK for the expected column was sent.
    nacked: bool,
    /// Time at which it was sent, ns.
    nacked_at: u64,
}

/// State of an epoch's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No column has been received.
    Idle,
    Open,
    /// Accepts no more columns; the rest is being written, for this cause.
    Closing(Cause),
    /// Completely written, for this cause.
    Closed(Cause),
    /// Cannot be written at all.
    Lost,
}

/// Reporters that sent columns of an epoch but not its first, with the time at which the next NACK to each is due. IDs can
/// be forged, so such columns neither make a member nor open an epoch. The table has one slot per possible member; if it is
/// full of recent NACKs, other reporters get none.
#[derive(Debug)]
struct NonMembers(HashTable<u64, u64>);

/// Returns the table key of a reporter that is not a member of the epoch.
fn non_member(epoch: u16, reporter: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(reporter)
}

impl NonMembers {
    /// Returns whether a NACK to this reporter is due, and if so starts the interval until the next one.
    fn try_nack(&mut self, key: u64, now: u64, config: &Config) -> bool {
        let slot = self.0.find_or_insert(key).or_else(|| {
            self.0.sweep(SWEEP, |_, nack_due| now >= *nack_due);
            self.0.find_or_insert(key)
        });
        let Some((slot, _)) = slot else { return false };
        let nack_due = self.0.at(slot);
        let is_due = now >= *nack_due;
        if is_due {
            *nack_due = now.saturating_add(config.nack_interval);
        }
        is_due
    }

    /// Makes a NACK due at once, because the last one was not sent.
    fn forget(&mut self, key: u64) {
        if let Some(slot) = self.0.find(key) {
            *self.0.at(slot) = 0;
        }
    }
}

/// Counters and progress of one epoch.
#[derive(Debug)]
struct Buffer {
    epoch: u16,
    state: State,
    /// Time at which the epoch opened, ns.
    opened_at: u64,
    /// Counters in the layout of collector memory.
    counters: Vec<u8>,
    /// Number of reporters that delivered each column.
    delivered: Vec<u16>,
    members: HashTable<u64, Member>,
    /// Columns below this one were delivered by all reporters.
    complete: u32,
    /// Columns below this one were delivered by at least one reporter.
    touched: u32,
    /// Columns below this one were written.
    written: u32,
    /// The previous epoch's trailer in collector memory was invalidated.
    trailer_invalidated: bool,
    /// A reporter requested a notification, so the trailer is written with an immediate value.
    notify: bool,
    /// Reporters that had delivered all columns when the epoch closed.
    reporters: u32,
    /// The epoch was written and counted before, and is written again because the collector lost its memory.
    is_rewrite: bool,
}

/// A sketch, with its buffers for the even and the odd epoch.
#[derive(Debug)]
pub(super) struct Sketch {
    entry: StoreEntry,
    shape: Columns,
    op: MergeOp,
    /// Counters saturate at their maximum instead of wrapping.
    saturates: bool,
    newest: Option<u16>,
    /// Time of the last merge, ns.
    merged_at: u64,
    non_members: NonMembers,
    buffers: [Buffer; 2],
}

/// Effect of a valid delivery on its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// The epoch is open. The reporter has this member slot, or becomes a member if `None`.
    Open(Option<usize>),
    /// The delivery opens the epoch.
    Opens {
        /// The epoch becomes the newest one.
        newest: bool,
    },
}

impl Sketch {
    /// Creates the sketch of a store, or returns `None` if it is not a sketch.
    pub(super) fn new(entry: StoreEntry) -> Option<Self> {
        let Geometry::Sketch { kind, op, shape } = entry.geometry else {
            return None;
        };
        let saturates = kind == SketchKind::CountMin;
        let buffers = [
            Buffer::new(shape, entry.reporters),
            Buffer::new(shape, entry.reporters),
        ];
        let non_members = NonMembers(HashTable::new(entry.reporters as usize));
        Some(Self {
            entry,
            shape,
            op,
            saturates,
            newest: None,
            merged_at: 0,
            non_members,
            buffers,
        })
    }

    pub(super) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    /// Returns the number of epochs that are open or being written.
    pub(super) fn open(&self) -> u64 {
        self.buffers
            .iter()
            .filter(|buffer| buffer.is_open() && !buffer.is_rewrite)
            .count() as u64
    }

    /// Returns the epochs that accept no more columns, the older one first.
    pub(super) fn merged(&self) -> impl Iterator<Item = Merged<'_>> {
        let [even, odd] = &self.buffers;
        let later = (even.epoch.wrapping_sub(odd.epoch) as i16) > 0;
        let ordered = if later { [odd, even] } else { [even, odd] };
        ordered
            .into_iter()
            .filter(|buffer| buffer.is_over())
            .map(|buffer| Merged {
                sketch: self.entry.id,
                epoch: buffer.epoch,
                shape: self.shape,
                op: self.op,
                counters: &buffer.counters,
            })
    }

    /// Returns when the oldest open epoch was opened, ns.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.buffers
            .iter()
            .filter(|buffer| buffer.is_open())
            .map(|buffer| buffer.opened_at)
            .min()
    }

    /// Returns whether the sketch has this depth, counter width and merge operation.
    pub(super) fn is_shaped(&self, depth: u8, width: u8, op: MergeOp) -> bool {
        (self.shape.depth, self.shape.width, self.op) == (depth, width, op)
    }

    /// Merges columns, and writes those that are complete. All checks come first: a refused delivery changes only the time
    /// of the next NACK.
    pub(super) fn merge<W: Transport>(
        &mut self,
        now: u64,
        delivery: Delivery<'_>,
        config: &Config,
        sender: &mut Sender<'_, W>,
        stats: &mut Sketches,
    ) -> Result<(), Fault> {
        let end = delivery.first.checked_add(u32::from(delivery.columns));
        let end = end
            .filter(|end| *end <= self.shape.columns)
            .ok_or(Fault::Drop(Reason::WrongShape))?;
        let index = usize::from(delivery.epoch & 1);
        let known = match self.admit(now, &delivery, config)? {
            Admission::Open(known) => known,
            Admission::Opens { newest } => {
                self.open_epoch(now, delivery.epoch, newest, config, sender, stats)?;
                None
            }
        };
        let buffer = &mut self.buffers[index];
        let key = u64::from(delivery.reporter);
        let slot = known.or_else(|| buffer.members.find_or_insert(key).map(|(slot, _)| slot));
        let slot = slot.ok_or(Fault::Drop(Reason::OneReporterTooMany))?;
        *buffer.members.at(slot) = Member {
            next: end,
            ..Member::default()
        };
        self.merged_at = now;
        buffer.notify |= delivery.immediate;
        buffer.merge(delivery, end, &self.shape, self.op, self.saturates);
        buffer.count(delivery.first..end, self.entry.reporters);
        stats.merged += u64::from(delivery.columns);
        if buffer.complete == self.shape.columns {
            buffer.close(Cause::Full, &self.shape, self.op);
        }
        self.write(index, config.sketch_columns, sender, stats);
        Ok(())
    }

    /// Checks the epoch, the reporter and the first column of a delivery.
    fn admit(&mut self, now: u64, delivery: &Delivery<'_>, config: &Config) -> Result<Admission, Fault> {
        let opens = self.check_epoch(now, delivery.epoch, config)?;
        let buffer = &mut self.buffers[usize::from(delivery.epoch & 1)];
        let known = if opens.is_none() {
            buffer.members.find(u64::from(delivery.reporter))
        } else {
            None
        };
        if let Some(member) = known {
            let member = buffer.members.at(member);
            if delivery.first != member.next {
                return Err(member.out_of_order(now, delivery.first, config));
            }
        } else {
            // Only column 0 makes a reporter a member, and opens an epoch.
            let has_free_slot =
                opens.is_some() || (buffer.members.len() as u64) < u64::from(self.entry.reporters);
            if !has_free_slot {
                return Err(Fault::Drop(Reason::OneReporterTooMany));
            }
            if delivery.first > 0 {
                let key = non_member(delivery.epoch, delivery.reporter);
                return Err(Fault::ColumnGap {
                    first_missing: 0,
                    send_nack: self.non_members.try_nack(key, now, config),
                });
            }
        }
        Ok(opens.map_or(Admission::Open(known), |newest| Admission::Opens { newest }))
    }

    /// Makes the reporter's next columns trigger another NACK, because the last one was not sent.
    pub(super) fn nack_not_sent(&mut self, reporter: u32, epoch: u16) {
        let buffer = &mut self.buffers[usize::from(epoch & 1)];
        let member = if buffer.epoch == epoch {
            buffer.members.find(u64::from(reporter))
        } else {
            None
        };
        match member {
            Some(member) => buffer.members.at(member).nacked = false,
            None => self.non_members.forget(non_member(epoch, reporter)),
        }
    }

    /// Writes both epochs again from their first column, because the collector lost its memory.
    pub(super) fn rewrite(&mut self) {
        for buffer in &mut self.buffers {
            buffer.written = 0;
            buffer.trailer_invalidated = false;
            if let State::Closed(cause) = buffer.state {
                buffer.state = State::Closing(cause);
                buffer.is_rewrite = true;
            }
        }
    }

    /// Checks that an epoch accepts columns. Returns `None` if it is open, or `Some(is_newest)` if the columns would open
    /// it.
    fn check_epoch(&self, now: u64, epoch: u16, config: &Config) -> Result<Option<bool>, Fault> {
        let buffer = &self.buffers[usize::from(epoch & 1)];
        let is_newest = self.newest == Some(epoch);
        if buffer.epoch == epoch && buffer.state != State::Idle {
            return if buffer.state == State::Open {
                Ok(None)
            } else {
                Err(Fault::Drop(Reason::EpochOver))
            };
        }
        let distance = self.newest.map_or(1, |newest| epoch.wrapping_sub(newest) as i16);
        let silent = now.saturating_sub(self.merged_at) >= config.sketch_timer;
        // The epoch before the newest may arrive late, if its buffer holds only an older epoch.
        let late =
            distance == -1 && (buffer.state == State::Idle || (epoch.wrapping_sub(buffer.epoch) as i16) > 0);
        if !((1..=AHEAD).contains(&distance) || late || silent || is_newest) {
            return Err(Fault::Drop(if distance > 0 {
                Reason::EpochAhead
            } else {
                Reason::EpochOver
            }));
        }
        Ok(Some(!late || silent))
    }

    /// Opens an epoch. An older epoch in its buffer is closed and written first; if the transport has no credit, nothing
    /// changes.
    fn open_epoch<W: Transport>(
        &mut self,
        now: u64,
        epoch: u16,
        newest: bool,
        config: &Config,
        sender: &mut Sender<'_, W>,
        stats: &mut Sketches,
    ) -> Result<(), Fault> {
        let index = usize::from(epoch & 1);
        if self.buffers[index].is_open() {
            let batch = u64::from(config.sketch_columns).saturating_mul(self.shape.column_len());
            if !sender.has_credit(1, batch.min(MAX_WRITE as u64), true) {
                return Err(Fault::Blocked);
            }
            self.buffers[index].close(Cause::Evicted, &self.shape, self.op);
            self.write(index, config.sketch_columns, sender, stats);
            if self.buffers[index].is_open() {
                return Err(Fault::Blocked);
            }
        }
        self.buffers[index].begin(epoch, now);
        if newest {
            self.newest = Some(epoch);
        }
        Ok(())
    }

    /// Writes complete columns, `batch` at a time, and the trailer at the end, until the transport has no more credit.
    /// Writes of a sketch are always reliable, because a reader could not detect missing columns. An epoch that can never
    /// be written is counted as lost.
    fn write<W: Transport>(
        &mut self,
        index: usize,
        batch: u32,
        sender: &mut Sender<'_, W>,
        stats: &mut Sketches,
    ) {
        let batch = batch
            .min(MAX_WRITE as u32 / self.shape.column_len().max(1) as u32)
            .max(1);
        let Err(blocked) = self.write_some(index, batch, sender, stats) else {
            return;
        };
        if !blocked.is_transient() {
            self.buffers[index].state = State::Lost;
            stats.dropped += u64::from(!self.buffers[index].is_rewrite);
        }
    }

    fn write_some<W: Transport>(
        &mut self,
        index: usize,
        batch: u32,
        sender: &mut Sender<'_, W>,
        stats: &mut Sketches,
    ) -> Result<(), Blocked> {
        let Sketch {
            entry,
            shape,
            buffers,
            ..
        } = self;
        let buffer = &mut buffers[index];
        let closing = matches!(buffer.state, State::Closing(_));
        while buffer.written < buffer.complete {
            let end = buffer.complete.min(buffer.written + batch);
            if end - buffer.written < batch && !closing {
                return Ok(());
            }
            // Invalidate the old trailer first, so that a concurrent reader cannot match it with new columns.
            if !buffer.trailer_invalidated {
                let trailer = buffer.trailer(entry.id, 0, 0).emit();
                write_part(sender, entry.region, shape.trailer(buffer.epoch), &trailer, None)?;
                buffer.trailer_invalidated = true;
            }
            let len = shape.column_len() as usize;
            let data = &buffer.counters[buffer.written as usize * len..end as usize * len];
            let offset = shape.offset(buffer.epoch, buffer.written);
            write_part(sender, entry.region, offset, data, None)?;
            stats.written += u64::from(end - buffer.written);
            buffer.written = end;
        }
        let State::Closing(cause) = buffer.state else {
            return Ok(());
        };
        let immediate = buffer
            .notify
            .then_some((Opcode::SketchMerge as u32) << 28 | u32::from(entry.id));
        let trailer = buffer.trailer(entry.id, shape.columns, buffer.reporters).emit();
        write_part(
            sender,
            entry.region,
            shape.trailer(buffer.epoch),
            &trailer,
            immediate,
        )?;
        let is_whole = cause == Cause::Full;
        stats.complete += u64::from(is_whole && !buffer.is_rewrite);
        stats.partial += u64::from(!is_whole && !buffer.is_rewrite);
        buffer.state = State::Closed(cause);
        Ok(())
    }

    /// Closes epochs that are open since `until` or earlier, and writes complete columns. Returns `false` if the transport
    /// did not accept all of them.
    pub(super) fn flush_until<W: Transport>(
        &mut self,
        until: u64,
        cause: Cause,
        batch: u32,
        sender: &mut Sender<'_, W>,
        stats: &mut Sketches,
    ) -> bool {
        for index in 0..2 {
            let buffer = &mut self.buffers[index];
            if buffer.state == State::Open && buffer.opened_at <= until {
                buffer.close(cause, &self.shape, self.op);
            }
            if self.buffers[index].is_open() {
                self.write(index, batch, sender, stats);
            }
        }
        self.buffers
            .iter()
            .all(|buffer| !matches!(buffer.state, State::Closing(_)))
    }
}

impl Member {
    fn out_of_order(&mut self, now: u64, first: u32, config: &Config) -> Fault {
        if first < self.next {
            return Fault::Drop(Reason::DuplicateColumn);
        }
        let send_nack = !self.nacked || now.saturating_sub(self.nacked_at) >= config.nack_interval;
        if send_nack {
            self.nacked = true;
            self.nacked_at = now;
        }
        Fault::ColumnGap {
            first_missing: self.next,
            send_nack,
        }
    }
}

impl Buffer {
    fn new(shape: Columns, reporters: u32) -> Self {
        let columns = shape.columns as usize;
        Self {
            epoch: 0,
            state: State::Idle,
            opened_at: 0,
            counters: vec![0; columns * shape.column_len() as usize],
            delivered: vec![0; columns],
            members: HashTable::new(reporters as usize),
            complete: 0,
            touched: 0,
            written: 0,
            trailer_invalidated: false,
            notify: false,
            reporters: 0,
            is_rewrite: false,
        }
    }

    /// Returns whether the epoch accepts no more columns.
    fn is_over(&self) -> bool {
        !matches!(self.state, State::Idle | State::Open)
    }

    fn trailer(&self, sketch: u16, columns: u32, reporters: u32) -> SketchTrailer {
        SketchTrailer {
            epoch: self.epoch,
            sketch,
            columns,
            reporters,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Closing(_))
    }

    fn begin(&mut self, epoch: u16, now: u64) {
        self.epoch = epoch;
        self.state = State::Open;
        self.opened_at = now;
        self.delivered.fill(0);
        self.members.clear();
        self.complete = 0;
        self.touched = 0;
        self.written = 0;
        self.reporters = 0;
        self.trailer_invalidated = false;
        self.notify = false;
        self.is_rewrite = false;
    }

    /// Merges a delivery: copies columns that no reporter has delivered yet, and merges the others.
    fn merge(&mut self, delivery: Delivery<'_>, end: u32, shape: &Columns, op: MergeOp, saturates: bool) {
        let len = shape.column_len() as usize;
        let first = delivery.first as usize;
        let end = end as usize;
        let known = (self.touched as usize).clamp(first, end);
        let (old, new) = delivery.counters.split_at((known - first) * len);
        let (merged, fresh) = self.counters[first * len..end * len].split_at_mut((known - first) * len);
        match shape.width {
            4 => {
                merge_4(merged, old, op, saturates);
                copy::<4>(fresh, new);
            }
            _ => {
                merge_8(merged, old, op, saturates);
                copy::<8>(fresh, new);
            }
        }
        self.touched = self.touched.max(end as u32);
    }

    /// Counts the reporters of each column, and advances `complete`.
    fn count(&mut self, columns: core::ops::Range<u32>, reporters: u32) {
        for delivered in &mut self.delivered[columns.start as usize..columns.end as usize] {
            *delivered += 1;
        }
        if self.complete >= columns.start {
            let rest = &self.delivered[self.complete as usize..columns.end.max(self.complete) as usize];
            self.complete += rest
                .iter()
                .take_while(|delivered| u32::from(**delivered) == reporters)
                .count() as u32;
        }
    }

    /// Closes the epoch. Columns that nobody delivered are filled with the neutral element of the merge operation.
    fn close(&mut self, cause: Cause, shape: &Columns, op: MergeOp) {
        if self.state != State::Open {
            return;
        }
        let from = self.touched as usize * shape.column_len() as usize;
        self.counters[from..].fill(if op == MergeOp::Min { 0xff } else { 0 });
        self.reporters = self
            .members
            .values()
            .filter(|member| member.next == shape.columns)
            .count() as u32;
        self.complete = shape.columns;
        self.state = State::Closing(cause);
    }
}

/// Writes a part of a sketch reliably if the transport has credit.
fn write_part<W: Transport>(
    sender: &mut Sender<'_, W>,
    region: u16,
    offset: u64,
    data: &[u8],
    immediate: Option<u32>,
) -> Result<(), Blocked> {
    if !sender.has_credit(1, data.len() as u64, true) {
        return Err(Blocked::Full);
    }
    let target = Target {
        region,
        offset,
        immediate,
        reliable: true,
    };
    sender.write(target, data)
}

/// Copies counters from network byte order to little-endian.
fn copy<const WIDTH: usize>(to: &mut [u8], from: &[u8]) {
    for (to, from) in to
        .as_chunks_mut::<WIDTH>()
        .0
        .iter_mut()
        .zip(from.as_chunks::<WIDTH>().0)
    {
        *to = *from;
        to.reverse();
    }
}

#[inline(always)]
fn each_4(to: &mut [u8], from: &[u8], merge: impl Fn(u32, u32) -> u32) {
    for (to, from) in to.as_chunks_mut::<4>().0.iter_mut().zip(from.as_chunks::<4>().0) {
        *to = merge(u32::from_le_bytes(*to), u32::from_be_bytes(*from)).to_le_bytes();
    }
}

#[inline(always)]
fn each_8(to: &mut [u8], from: &[u8], merge: impl Fn(u64, u64) -> u64) {
    for (to, from) in to.as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
        *to = merge(u64::from_le_bytes(*to), u64::from_be_bytes(*from)).to_le_bytes();
    }
}

fn merge_4(to: &mut [u8], from: &[u8], op: MergeOp, saturates: bool) {
    match (op, saturates) {
        (MergeOp::Sum, true) => each_4(to, from, u32::saturating_add),
        (MergeOp::Sum, false) => each_4(to, from, u32::wrapping_add),
        (MergeOp::Max | MergeOp::Sample, _) => each_4(to, from, u32::max),
        (MergeOp::Min, _) => each_4(to, from, u32::min),
    }
}

fn merge_8(to: &mut [u8], from: &[u8], op: MergeOp, saturates: bool) {
    match (op, saturates) {
        (MergeOp::Sum, true) => each_8(to, from, u64::saturating_add),
        (MergeOp::Sum, false) => each_8(to, from, u64::wrapping_add),
        (MergeOp::Max | MergeOp::Sample, _) => each_8(to, from, u64::max),
        (MergeOp::Min, _) => each_8(to, from, u64::min),
    }
}

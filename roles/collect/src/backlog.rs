//! The bounded queue between a collector worker and the writers of its results (store, exports): limited in bytes, fair among
//! senders, and with priority for changes over routine records.
//!
//! # Shedding
//!
//! Changes are events, drops, losses and recordings. Routine records are rollups, flow rows, `latest` events and single
//! reports. Both classes share one byte limit; a change that does not fit displaces the newest routine records.
//!
//! A sender (the reporter's address) may occupy at most as many bytes as are still free. So one sender that floods gets half
//! of the queue, two get a third each, and every other sender still finds space. Records without a sender, such as events of
//! expiring entries, are accounted to sender 0. Rollups, flow rows and recordings are exempt: their number is bounded at the
//! source.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
};

use collector::{Batch, Drop, Event, FlowRow, Kind, Loss, Output, Rollup, flight::Recording};
use store::ReportRow;
use wire::Hop;

/// Estimated bookkeeping per record, bytes: its entry in the chunk's lists and in the accounts of its sender.
const OVERHEAD: usize = 32;
/// Size at which a chunk is full, bytes. Displacing and dequeuing work on whole chunks.
const CHUNK_BYTES: usize = 64 << 10;
/// Capacity of a chunk for each kind of record; its path storage holds eight nodes per record.
const CHUNK_RECORDS: usize = 1024;
/// Bytes that a sender may always occupy while the queue is not full, however little is free.
const MIN_SHARE: usize = 4 << 10;

/// Names of the active rules; a result refers to a rule by its index here.
pub type RuleNames = Arc<[String]>;

/// Records of one chunk, which are dequeued together.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "moved a few times per chunk; a box would be one more allocation"
)]
pub enum RecordBatch {
    /// Results, with the names that their rule numbers refer to.
    Results(Batch, RuleNames),
    /// Reports, for the table of reports.
    Reports(Vec<ReportRow>),
    /// Recordings of the flight recorder.
    Recordings(Vec<Recording>),
}

impl RecordBatch {
    /// Returns the number of records.
    pub fn count(&self) -> u64 {
        match self {
            Self::Results(batch, _) => batch.len() as u64,
            Self::Reports(rows) => rows.len() as u64,
            Self::Recordings(recordings) => recordings.len() as u64,
        }
    }
}

/// A record to enqueue.
#[derive(Debug)]
pub enum Record<'a> {
    /// An event: the hash of its sender's address, the event, and the node IDs of its path.
    Event(u32, &'a Event, &'a [u32]),
    /// The totals of one series for one second.
    Rollup(&'a Rollup),
    /// The latest state of a flow, and the node IDs of its path.
    Flow(&'a FlowRow, &'a [u32]),
    /// A packet that a node dropped, after the hash of its sender's address.
    Drop(u32, &'a Drop),
    /// Reports lost between a reporter and the collector.
    Loss(&'a Loss),
    /// A row of the table of reports.
    Report(ReportRow),
    /// A recording of the flight recorder.
    Recording(Recording),
}

/// Iterates over the records of a batch, changes first, so that routine records are the ones that find the queue full.
pub fn records(batch: &Batch) -> impl Iterator<Item = Record<'_>> {
    let events = batch
        .events_by_sender()
        .map(|(sender, event, path)| Record::Event(sender, event, path));
    let drops = batch
        .drops_by_sender()
        .map(|(sender, drop)| Record::Drop(sender, drop));
    let losses = batch.losses().iter().map(Record::Loss);
    let flows = batch.flows().map(|(row, path)| Record::Flow(row, path));
    events
        .chain(drops)
        .chain(losses)
        .chain(flows)
        .chain(batch.rollups().iter().map(Record::Rollup))
}

impl Record<'_> {
    /// Returns the record's size in the queue, bytes.
    pub fn bytes(&self) -> usize {
        let content = match self {
            Self::Event(_, event, path) => size_of_val(*event) + size_of_val(*path),
            Self::Rollup(rollup) => size_of_val(*rollup),
            Self::Flow(row, path) => size_of_val(*row) + size_of_val(*path),
            Self::Drop(_, drop) => size_of_val(*drop),
            Self::Loss(loss) => size_of_val(*loss),
            Self::Report(row) => size_of_val(row) + row.hops.len() * size_of::<Hop>(),
            Self::Recording(recording) => {
                size_of_val(recording) + recording.trigger.rule.as_ref().map_or(0, String::len)
            }
        };
        content + OVERHEAD
    }

    /// Returns a hash of the sender's address, or 0 for a record without a sender.
    fn sender(&self) -> u32 {
        match self {
            Self::Event(sender, ..) | Self::Drop(sender, _) => *sender,
            Self::Loss(loss) => collector::sender_of(&loss.source),
            Self::Report(row) => collector::sender_of(&row.source),
            Self::Rollup(_) | Self::Flow(..) | Self::Recording(_) => 0,
        }
    }

    fn is_change(&self) -> bool {
        match self {
            Self::Event(_, event, _) => event.kind != Kind::Latest,
            Self::Drop(..) | Self::Loss(_) | Self::Recording(_) => true,
            Self::Rollup(_) | Self::Flow(..) | Self::Report(_) => false,
        }
    }

    fn has_limit(&self) -> bool {
        !matches!(self, Self::Rollup(_) | Self::Flow(..) | Self::Recording(_))
    }
}

/// Numbers of records shed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// Records that found the queue full.
    pub full: u64,
    /// Records of a sender that already occupied as many bytes as were free.
    pub share: u64,
    /// Routine records that changes displaced.
    pub displaced: u64,
}

impl Shed {
    /// Returns the number of all records that were shed.
    pub fn sum(&self) -> u64 {
        self.full + self.share + self.displaced
    }
}

/// The reason for shedding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The queue is full.
    Full,
    /// The sender has used up its share of the queue.
    Share,
}

/// The queue of records; see the module documentation.
#[derive(Debug)]
pub struct Backlog {
    limit: usize,
    changes: Class,
    routine: Class,
    /// The number of the newest chunk; numbers order the chunks of both classes.
    next: u64,
    shed: Shed,
}

/// Records of one class, in order.
#[derive(Debug, Default)]
struct Class {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    by_sender: HashMap<u32, usize, SenderHash>,
}

/// Multiplicative hash of senders with a secret odd factor, so that a sender cannot provoke collisions. Every record needs a
/// look-up, and the standard library's SipHash takes several times as long.
#[derive(Clone, Copy, Debug)]
struct SenderHash(u64);

impl Default for SenderHash {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for SenderHash {
    type Hasher = SenderHasher;

    fn build_hasher(&self) -> SenderHasher {
        SenderHasher {
            factor: self.0,
            hash: 0,
        }
    }
}

#[derive(Debug)]
struct SenderHasher {
    factor: u64,
    hash: u64,
}

impl Hasher for SenderHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, sender: u32) {
        let product = u128::from(self.hash ^ u64::from(sender)) * u128::from(self.factor);
        // The middle 64 bits depend on all bits of the sender and of the factor.
        self.hash = (product >> 32) as u64;
    }
}

/// Consecutive records that are dequeued or displaced together.
#[derive(Debug)]
struct Chunk {
    number: u64,
    records: RecordBatch,
    bytes: usize,
    /// Runs of consecutive records with the same sender: the sender and its bytes.
    by_sender: Vec<(u32, usize)>,
}

impl Backlog {
    /// Creates an empty queue for `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            changes: Class::default(),
            routine: Class::default(),
            next: 0,
            shed: Shed::default(),
        }
    }

    /// Returns the bytes in use, which never exceed the limit.
    pub fn bytes(&self) -> usize {
        self.changes.bytes + self.routine.bytes
    }

    /// Returns the counts of records shed so far.
    pub fn shed(&self) -> Shed {
        self.shed
    }

    /// Enqueues a record, or sheds it and counts the reason. `rules` names the rules that the record refers to.
    pub fn offer(&mut self, record: Record<'_>, rules: &RuleNames) {
        match self.refusal(&record) {
            None => self.put(record, rules),
            Some(Reason::Full) => self.shed.full += 1,
            Some(Reason::Share) => self.shed.share += 1,
        }
    }

    /// Counts records as shed because no receiver is left.
    pub fn refuse(&mut self, records: u64) {
        self.shed.full += records;
    }

    /// Returns whether the record fits only if others are displaced. An empty queue is never full, so that a blocking sender
    /// of an oversized record does not wait forever.
    pub fn is_full_for(&self, record: &Record<'_>) -> bool {
        let bytes = self.bytes();
        bytes > 0 && bytes + record.bytes() > self.limit
    }

    fn refusal(&self, record: &Record<'_>) -> Option<Reason> {
        let (class, used) = match record.is_change() {
            // Routine records can be displaced.
            true => (&self.changes, self.changes.bytes),
            false => (&self.routine, self.bytes()),
        };
        let Some(free) = self.limit.checked_sub(used + record.bytes()) else {
            return Some(Reason::Full);
        };
        let own = class.by_sender.get(&record.sender()).copied().unwrap_or(0) + record.bytes();
        (record.has_limit() && own > free.max(MIN_SHARE.min(self.limit / 4))).then_some(Reason::Share)
    }

    /// Enqueues a record for which there is space, displacing routine records if necessary.
    pub fn put(&mut self, record: Record<'_>, rules: &RuleNames) {
        let bytes = record.bytes();
        while self.bytes() + bytes > self.limit
            && let Some(chunk) = self.routine.remove(VecDeque::pop_back)
        {
            self.shed.displaced += chunk.records.count();
        }
        let class = if record.is_change() {
            &mut self.changes
        } else {
            &mut self.routine
        };
        let sender = record.sender();
        let chunk = match class.chunks.back_mut() {
            Some(last) if last.has_room(&record, rules) => last,
            _ => {
                self.next += 1;
                class.chunks.push_back(Chunk::new(self.next, &record, rules));
                let Some(last) = class.chunks.back_mut() else {
                    return;
                };
                last
            }
        };
        chunk.push(record);
        chunk.bytes += bytes;
        class.bytes += bytes;
        match chunk.by_sender.last_mut() {
            Some((last, sum)) if *last == sender => *sum += bytes,
            _ => chunk.by_sender.push((sender, bytes)),
        }
        *class.by_sender.entry(sender).or_default() += bytes;
    }

    /// Dequeues the oldest chunk, or returns `None` if the queue is empty.
    pub fn pop(&mut self) -> Option<RecordBatch> {
        let changes_first = self.changes.first_number() < self.routine.first_number();
        let class = if changes_first {
            &mut self.changes
        } else {
            &mut self.routine
        };
        class.remove(VecDeque::pop_front).map(|chunk| chunk.records)
    }
}

impl Class {
    /// Returns the number of the oldest chunk, or `u64::MAX` if there is none.
    fn first_number(&self) -> u64 {
        self.chunks.front().map_or(u64::MAX, |chunk| chunk.number)
    }

    fn remove(&mut self, pop: fn(&mut VecDeque<Chunk>) -> Option<Chunk>) -> Option<Chunk> {
        let chunk = pop(&mut self.chunks)?;
        self.bytes -= chunk.bytes;
        chunk
            .by_sender
            .iter()
            .for_each(|(sender, bytes)| self.release(*sender, *bytes));
        Some(chunk)
    }

    fn release(&mut self, sender: u32, bytes: usize) {
        if let Some(used) = self.by_sender.get_mut(&sender) {
            *used -= bytes;
            if *used == 0 {
                self.by_sender.remove(&sender);
            }
        }
    }
}

impl Chunk {
    fn new(number: u64, record: &Record<'_>, rules: &RuleNames) -> Self {
        let records = match record {
            Record::Report(_) => RecordBatch::Reports(Vec::new()),
            Record::Recording(_) => RecordBatch::Recordings(Vec::new()),
            _ => RecordBatch::Results(Batch::growing(CHUNK_RECORDS), Arc::clone(rules)),
        };
        Self {
            number,
            records,
            bytes: 0,
            by_sender: Vec::new(),
        }
    }

    fn has_room(&self, record: &Record<'_>, rules: &RuleNames) -> bool {
        if self.bytes >= CHUNK_BYTES {
            return false;
        }
        match (&self.records, record) {
            (RecordBatch::Reports(_), Record::Report(_))
            | (RecordBatch::Recordings(_), Record::Recording(_)) => true,
            (RecordBatch::Reports(_) | RecordBatch::Recordings(_), _)
            | (RecordBatch::Results(..), Record::Report(_) | Record::Recording(_)) => false,
            (RecordBatch::Results(batch, known), Record::Event(_, _, path) | Record::Flow(_, path)) => {
                Arc::ptr_eq(known, rules) && batch.has_room(path.len())
            }
            (RecordBatch::Results(batch, known), _) => Arc::ptr_eq(known, rules) && batch.has_room(0),
        }
    }

    fn push(&mut self, record: Record<'_>) {
        match (&mut self.records, record) {
            (RecordBatch::Results(batch, _), Record::Event(sender, event, path)) => {
                batch.sender(sender);
                batch.event(event, path);
            }
            (RecordBatch::Results(batch, _), Record::Drop(sender, drop)) => {
                batch.sender(sender);
                batch.drop_report(drop);
            }
            (RecordBatch::Results(batch, _), Record::Rollup(rollup)) => batch.rollup(rollup),
            (RecordBatch::Results(batch, _), Record::Flow(row, path)) => batch.flow(row, path),
            (RecordBatch::Results(batch, _), Record::Loss(loss)) => batch.loss(loss),
            (RecordBatch::Reports(rows), Record::Report(row)) => rows.push(row),
            (RecordBatch::Recordings(recordings), Record::Recording(recording)) => recordings.push(recording),
            // `has_room` excludes these.
            (RecordBatch::Results(..), Record::Report(_) | Record::Recording(_))
            | (RecordBatch::Reports(_) | RecordBatch::Recordings(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests;

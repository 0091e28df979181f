//! Where records wait that are in no store: in memory, and in files once memory is half full. Without I/O: effects go out, and their
//! results come in.
//!
//! Records are in segments, each with a number, in order. A segment is in memory, or it is a file that was written as a whole. The
//! oldest are files, the newest are in memory; one file is read at a time. A [`Position`] is the number of a segment and of a record in it.
//!
//! **A file** is [`MAGIC`], the number of its records (64 bits, least significant byte first, as all numbers), then the records: length
//! (32 bits), CRC-32C of the record (32 bits), the record. A damaged record ends the file: what follows it counts as lost, and the next
//! file goes on.
//!
//! **What is lost** is counted: `offered = read + expired + refused + waiting`, where records expire with a deleted or damaged file. What was
//! in memory is lost when the process is killed; at a stop it is written.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backoff::Nanos;
use crate::cursor::{Cursor, Position};

/// How a file begins.
pub const MAGIC: &[u8; 16] = b"hopwise spool 1\n";
const HEADER: usize = MAGIC.len() + 8;
/// Length and CRC.
const PREFIX: usize = 8;
/// Pause after an effect that failed.
const RETRY: Nanos = 1_000_000_000;
/// Ranges of deleted segments that are remembered one by one.
const MOST_GAPS: usize = 4096;

/// How much may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: usize,
    /// Bytes of a segment; at most a quarter of those in memory.
    pub segment: usize,
    /// Bytes in files.
    pub disk: u64,
    /// What gives way when the files are full.
    pub when_full: WhenFull,
}

impl Default for Limits {
    /// 64 MiB in memory, files of 16 MiB, 1 GiB of them.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            segment: 16 << 20,
            disk: 1 << 30,
            when_full: WhenFull::DropOldest,
        }
    }
}

/// What gives way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The oldest file is deleted.
    DropOldest,
    /// What comes is refused.
    DropNewest,
}

/// What to do; one at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Write this file under a name that [`Spool::new`] would not be given, sync it, and give it the name of the segment; then
    /// [`Spool::written`].
    Write {
        /// The segment.
        number: u64,
        /// The content of the file, without the CRCs: see [`seal`].
        bytes: Arc<Vec<u8>>,
    },
    /// Delete the file of this segment; then [`Spool::deleted`].
    Delete(u64),
}

/// What [`Spool::read`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Read the file of this segment, call [`Spool::loaded`], and read again.
    Load(u64),
    /// The records were passed.
    Page {
        /// Where to go on.
        end: Position,
        /// Records before it that were deleted, or damaged.
        expired: u64,
        /// There are no more now.
        is_last: bool,
    },
}

#[derive(Debug)]
struct Segment {
    number: u64,
    records: u64,
    /// Of the file.
    bytes: usize,
    /// In memory; `None`: a file.
    content: Option<Arc<Vec<u8>>>,
    /// Nothing more is added.
    is_closed: bool,
    /// A part of it cannot be read, and is counted.
    is_damaged: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Spool {
    limits: Limits,
    segments: VecDeque<Segment>,
    next: u64,
    /// Segments that were deleted before they were read, with their records: the oldest first. Later ones are not deleted before them.
    gaps: VecDeque<(u64, u64)>,
    /// Files to be deleted, with their bytes.
    garbage: VecDeque<(u64, usize)>,
    in_memory: usize,
    on_disk: u64,
    /// A file that was read, its valid part.
    loaded: Option<(u64, Arc<Vec<u8>>)>,
    /// Where in the bytes of its segment a position is.
    hint: (Position, usize),
    is_busy: bool,
    retry_at: Nanos,
    is_stopping: bool,
    restored: u64,
    offered: u64,
    refused: u64,
    damaged: u64,
    failed: u64,
}

impl Spool {
    /// Goes on with the files that are there: number, records, bytes of each.
    pub fn new(limits: Limits, cursor: &Cursor, mut files: Vec<(u64, u64, usize)>) -> Self {
        files.sort_unstable();
        let end = cursor
            .batch_end
            .map_or(0, |end| end.file)
            .max(cursor.settled.file);
        let last = files.last().map_or(0, |(number, ..)| *number).max(end);
        let mut spool = Self {
            limits,
            segments: VecDeque::new(),
            next: last + 1,
            gaps: VecDeque::new(),
            garbage: VecDeque::new(),
            in_memory: 0,
            on_disk: 0,
            loaded: None,
            hint: (Position::default(), HEADER),
            is_busy: false,
            retry_at: 0,
            is_stopping: false,
            restored: 0,
            offered: 0,
            refused: 0,
            damaged: 0,
            failed: 0,
        };
        for (number, records, bytes) in files {
            spool.on_disk += bytes as u64;
            spool.segments.push_back(Segment {
                number,
                records,
                bytes,
                content: None,
                is_closed: true,
                is_damaged: false,
            });
        }
        spool.settle(cursor.settled);
        spool.restored = spool.after(cursor.settled);
        spool
    }

    /// Adds records, each with [`begin`] and [`end`]. Returns whether somebody should look at [`Spool::poll`].
    pub fn offer(&mut self, chunk: &[u8], records: u64) -> bool {
        self.offered += records;
        let needed = chunk.len() + HEADER;
        if self.is_stopping || self.in_memory + needed > self.limits.memory || needed > self.limits.segment {
            self.refused += records;
            return true;
        }
        let open = self
            .segments
            .back_mut()
            .filter(|last| !last.is_closed && last.bytes + chunk.len() <= self.limits.segment);
        let mut is_new = false;
        let segment = match open {
            Some(open) => open,
            None => {
                self.close();
                is_new = true;
                // It does not move as it grows: whoever offers does not wait for that.
                let mut content = Vec::with_capacity(self.limits.segment);
                content.extend_from_slice(MAGIC);
                content.extend([0; 8]);
                self.in_memory += HEADER;
                let number = self.next;
                self.next += 1;
                let (bytes, content) = (HEADER, Some(Arc::new(content)));
                self.segments.push_back(Segment {
                    number,
                    records: 0,
                    bytes,
                    content,
                    is_closed: false,
                    is_damaged: false,
                });
                let Some(last) = self.segments.back_mut() else {
                    return true;
                };
                last
            }
        };
        segment.records += records;
        segment.bytes += chunk.len();
        if let Some(content) = &mut segment.content {
            // Nobody else has it: it is passed on when it is closed.
            Arc::make_mut(content).extend_from_slice(chunk);
        }
        self.in_memory += chunk.len();
        is_new
    }

    /// Records that could not be offered, since somebody else was reading.
    pub fn refuse(&mut self, records: u64) {
        self.offered += records;
        self.refused += records;
    }

    fn close(&mut self) {
        let Some(last) = self.segments.back_mut().filter(|last| !last.is_closed) else {
            return;
        };
        last.is_closed = true;
        if let Some(content) = &mut last.content {
            Arc::make_mut(content)[MAGIC.len()..HEADER].copy_from_slice(&last.records.to_le_bytes());
        }
    }

    /// The next effect. Call it after each result, each offer that says so, and at [`Spool::wake_at`].
    pub fn poll(&mut self, now: Nanos) -> Option<Effect> {
        if self.is_busy || now < self.retry_at {
            return None;
        }
        if let Some((number, _)) = self.garbage.front() {
            self.is_busy = true;
            return Some(Effect::Delete(*number));
        }
        let in_memory = self.in_memory;
        let is_due = |segment: &&Segment| segment.content.is_some() && segment.is_closed;
        let due = self.segments.iter().find(is_due);
        let due = due.filter(|_| self.is_stopping || in_memory > self.limits.memory / 2)?;
        let (number, bytes, content) = (due.number, due.bytes as u64, due.content.clone()?);
        if self.on_disk + bytes > self.limits.disk {
            let oldest = self.segments.front().filter(|first| first.content.is_none());
            if self.limits.when_full == WhenFull::DropNewest || oldest.is_none() {
                return None;
            }
            self.drop_oldest();
            return self.poll(now);
        }
        self.is_busy = true;
        Some(Effect::Write {
            number,
            bytes: content,
        })
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.segments.pop_front() else {
            return;
        };
        self.garbage.push_back((oldest.number, oldest.bytes));
        if self.gaps.len() >= MOST_GAPS
            && let Some((_, records)) = self.gaps.back_mut()
        {
            *records += oldest.records;
        } else {
            self.gaps.push_back((oldest.number, oldest.records));
        }
    }

    /// When to call [`Spool::poll`] after an effect that failed.
    pub fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.retry_at).filter(|at| *at > now)
    }

    /// A file was written, or could not be: then the segment stays in memory.
    pub fn written(&mut self, number: u64, is_written: bool, now: Nanos) {
        self.is_busy = false;
        if !is_written {
            return self.fail(now);
        }
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) else {
            // It was read and settled in the meantime, or deleted.
            return self.garbage.push_back((number, 0));
        };
        segment.content = None;
        self.in_memory -= segment.bytes;
        self.on_disk += segment.bytes as u64;
    }

    /// A file was deleted, or could not be.
    pub fn deleted(&mut self, is_deleted: bool, now: Nanos) {
        self.is_busy = false;
        if !is_deleted {
            return self.fail(now);
        }
        if let Some((_, bytes)) = self.garbage.pop_front() {
            self.on_disk = self.on_disk.saturating_sub(bytes as u64);
        }
    }

    fn fail(&mut self, now: Nanos) {
        self.failed += 1;
        self.retry_at = now.saturating_add(RETRY);
    }

    /// The content of a file; `None`: it is gone.
    pub fn loaded(&mut self, number: u64, content: Option<Vec<u8>>) {
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) else {
            return;
        };
        let mut content = content.unwrap_or_default();
        let (valid, records) = check(&content);
        content.truncate(valid);
        if records < segment.records && !std::mem::replace(&mut segment.is_damaged, true) {
            self.damaged += segment.records - records;
        }
        self.loaded = Some((number, Arc::new(content)));
    }

    /// Passes the records from `from` on to `each`: all before `until`; without it at most `records`, and `bytes`, but at least one.
    pub fn read(
        &mut self,
        from: Position,
        until: Option<Position>,
        (records, bytes): (usize, usize),
        mut each: impl FnMut(&[u8]),
    ) -> Found {
        let (mut at, mut expired, mut count, mut size) = (from, 0, 0, 0);
        loop {
            let is_full = until.is_none() && count > 0 && (count >= records || size >= bytes);
            if is_full || until.is_some_and(|until| at >= until) {
                return Found::Page {
                    end: at,
                    expired,
                    is_last: false,
                };
            }
            expired += self.skip_gaps(&mut at, until);
            let Some(segment) = self.segments.iter().find(|segment| segment.number >= at.file) else {
                let end = until.unwrap_or(at);
                return Found::Page {
                    end,
                    expired,
                    is_last: true,
                };
            };
            if until.is_some_and(|until| segment.number > until.file) {
                return Found::Page {
                    end: until.unwrap_or(at),
                    expired,
                    is_last: false,
                };
            }
            if segment.number > at.file {
                at = Position {
                    file: segment.number,
                    row: 0,
                };
                continue;
            }
            if at.row >= segment.records {
                if !segment.is_closed {
                    return Found::Page {
                        end: at,
                        expired,
                        is_last: true,
                    };
                }
                at = Position {
                    file: at.file + 1,
                    row: 0,
                };
                // A page has records of one segment: one file is enough to read it again.
                if count > 0 || expired > 0 {
                    return Found::Page {
                        end: at,
                        expired,
                        is_last: false,
                    };
                }
                continue;
            }
            let content = match (&segment.content, &self.loaded) {
                (Some(content), _) => Arc::clone(content),
                (None, Some((number, content))) if *number == segment.number => Arc::clone(content),
                (None, _) => return Found::Load(segment.number),
            };
            let end = until
                .filter(|until| until.file == at.file)
                .map_or(segment.records, |until| until.row);
            let end = end.min(segment.records);
            let mut offset = self.offset(at, &content);
            while at.row < end {
                if until.is_none() && count > 0 && (count >= records || size >= bytes) {
                    break;
                }
                let Some((record, next)) = record(&content, offset) else {
                    // Damaged from here on.
                    expired += end - at.row;
                    at.row = end;
                    break;
                };
                each(record);
                (offset, size, count) = (next, size + record.len(), count + 1);
                at.row += 1;
            }
            self.hint = (at, offset);
        }
    }

    /// Goes on after deleted segments, and counts their records.
    fn skip_gaps(&self, at: &mut Position, until: Option<Position>) -> u64 {
        let (mut expired, first) = (0, at.file);
        for (number, records) in self.gaps.iter().filter(|(number, _)| *number >= first) {
            if until.is_some_and(|until| *number > until.file) {
                break;
            }
            let end = until
                .filter(|until| until.file == *number)
                .map_or(*records, |until| until.row.min(*records));
            let start = if *number == at.file { at.row } else { 0 };
            expired += end.saturating_sub(start);
            *at = match until {
                Some(until) if until.file == *number => until,
                _ => Position {
                    file: number + 1,
                    row: 0,
                },
            };
        }
        expired
    }

    fn offset(&self, at: Position, content: &[u8]) -> usize {
        let (hint, offset) = self.hint;
        let (mut row, mut offset) = if hint.file == at.file && hint.row <= at.row {
            (hint.row, offset)
        } else {
            (0, HEADER)
        };
        while row < at.row {
            let Some((_, next)) = record(content, offset) else {
                return content.len();
            };
            (row, offset) = (row + 1, next);
        }
        offset
    }

    /// A cursor was saved: what is before it is not needed any more.
    pub fn settle(&mut self, settled: Position) {
        self.gaps.retain(|(number, _)| *number >= settled.file);
        while let Some(first) = self.segments.front() {
            let is_done = first.number < settled.file
                || (first.number == settled.file && first.is_closed && settled.row >= first.records);
            if !is_done {
                break;
            }
            let Some(first) = self.segments.pop_front() else {
                break;
            };
            match first.content {
                Some(_) => self.in_memory -= first.bytes,
                None => self.garbage.push_back((first.number, first.bytes)),
            }
        }
        let is_there = |number| self.segments.iter().any(|segment| segment.number == number);
        if self.loaded.as_ref().is_some_and(|(number, _)| !is_there(*number)) {
            self.loaded = None;
        }
    }

    /// Nothing more is offered: what is in memory is written.
    pub fn stop(&mut self) {
        self.close();
        (self.is_stopping, self.retry_at) = (true, 0);
    }

    /// What is still in memory after a stop, since it could not be written, is lost: it counts as refused. Returns how many records.
    pub fn abandon(&mut self) -> u64 {
        let lost: u64 = self
            .segments
            .iter()
            .filter(|one| one.content.is_some())
            .map(|one| one.records)
            .sum();
        self.segments.retain(|segment| segment.content.is_none());
        self.in_memory = 0;
        self.refused += lost;
        lost
    }

    /// Records after a position that are there, or were deleted there.
    pub fn after(&self, position: Position) -> u64 {
        let gaps = self.gaps.iter().copied();
        let all = gaps.chain(
            self.segments
                .iter()
                .map(|segment| (segment.number, segment.records)),
        );
        let part = |(number, records): (u64, u64)| match number.cmp(&position.file) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => records.saturating_sub(position.row),
            std::cmp::Ordering::Greater => records,
        };
        all.map(part).sum()
    }

    /// Records that waited when it began.
    pub fn restored(&self) -> u64 {
        self.restored
    }

    /// Records offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Records that found no space.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Records that were damaged on the disk; they are among the expired ones of pages.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Effects that failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Bytes in memory, and in files.
    pub fn bytes(&self) -> (usize, u64) {
        (self.in_memory, self.on_disk)
    }
}

/// Begins a record at the end of a chunk; returns what [`end`] needs.
pub fn begin(chunk: &mut Vec<u8>) -> usize {
    chunk.extend([0; PREFIX]);
    chunk.len()
}

/// Ends it: what was appended since is its content.
pub fn end(chunk: &mut [u8], begun: usize) {
    let len = (chunk.len() - begun) as u32;
    chunk[begun - PREFIX..begun - 4].copy_from_slice(&len.to_le_bytes());
}

/// The content of a file with its CRCs.
pub fn seal(content: &[u8]) -> Vec<u8> {
    let (mut sealed, mut offset) = (content.to_vec(), HEADER);
    while let Some((record, next)) = record(content, offset) {
        let crc = wire::crc::crc_32c(record);
        sealed[offset + 4..offset + PREFIX].copy_from_slice(&crc.to_le_bytes());
        offset = next;
    }
    sealed
}

/// The records that the header of a file says; `None`: it is no header.
pub fn records_of(header: &[u8]) -> Option<u64> {
    let rest = header.strip_prefix(MAGIC)?;
    rest.first_chunk().map(|records| u64::from_le_bytes(*records))
}

/// The bytes of a file's header.
pub const fn header_len() -> usize {
    HEADER
}

/// The record at an offset, and the offset of the next one.
fn record(content: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let rest = content.get(offset..)?;
    let len = u32::from_le_bytes(*rest.first_chunk()?) as usize;
    let record = rest.get(PREFIX..)?.get(..len)?;
    Some((record, offset + PREFIX + len))
}

/// How many bytes and records of a file are whole.
fn check(content: &[u8]) -> (usize, u64) {
    if records_of(content).is_none() {
        return (0, 0);
    }
    let (mut offset, mut records) = (HEADER, 0);
    while let Some((record, next)) = record(content, offset) {
        let crc = content.get(offset + 4..offset + PREFIX);
        if crc != Some(&wire::crc::crc_32c(record).to_le_bytes()) {
            break;
        }
        (offset, records) = (next, records + 1);
    }
    (offset, records)
}

//! A bounded FIFO for records that are not in the store (hops): in memory, and on disk once half of the memory is used. It does
//! no I/O itself: effects go out, and their results come in.
//!
//! Records are in numbered segments. A segment is in memory, or it is a file that was written as a whole. The oldest are files,
//! the newest are in memory; one file is loaded at a time. A [`Position`] is a segment number and a record index in it.
//!
//! **File format:** [`MAGIC`], the number of records (64 bits), then for each record its length (32 bits), its CRC-32C (32
//! bits) and its bytes. Integers are little-endian. A damaged record ends the file; the following ones count as lost, and
//! reading continues with the next file.
//!
//! **Loss is counted:** `offered = read + expired + refused + waiting`, where records expire with a deleted or damaged file.
//! Records in memory are lost if the process is killed; a normal stop writes them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backoff::Nanos;
use crate::cursor::{Cursor, Position};

/// The first bytes of a file.
pub const MAGIC: &[u8; 16] = b"hopwise spool 1\n";
const HEADER_BYTES: usize = MAGIC.len() + 8;
/// Bytes before a record: length and CRC.
const PREFIX_BYTES: usize = 8;
/// Pause after a failed effect, ns.
const RETRY_DELAY: Nanos = 1_000_000_000;
/// Maximum number of deleted segments remembered separately.
const MAX_GAPS: usize = 4096;

/// The limits of a spool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of bytes in memory.
    pub memory: usize,
    /// Maximum size of a segment, bytes; at most a quarter of `memory`.
    pub segment: usize,
    /// Maximum number of bytes in files.
    pub disk: u64,
    /// The records to drop when the files are full.
    pub when_full: WhenFull,
}

/// A file of a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SegmentFile {
    /// The number of the segment.
    pub number: u64,
    /// Number of records in the file.
    pub records: u64,
    /// Size of the file.
    pub bytes: usize,
}

/// The bytes that a spool occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Bytes that are held in memory.
    pub memory: usize,
    /// Bytes that are held in files.
    pub disk: u64,
}

impl Default for Limits {
    /// Returns the defaults: 64 MiB in memory, files of 16 MiB, 1 GiB of files.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            segment: 16 << 20,
            disk: 1 << 30,
            when_full: WhenFull::DropOldest,
        }
    }
}

settings::choice! {
    /// The records to drop when the files are full.
    pub enum WhenFull("\"drop_oldest\" or \"drop_newest\"") {
        /// The oldest file is deleted.
        DropOldest = "drop_oldest",
        /// New records are refused.
        DropNewest = "drop_newest",
    }
}

/// An effect for the caller, one at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Write this file under a temporary name, sync it, and rename it to the segment's name; then [`Spool::written`].
    Write {
        /// The number of the segment.
        number: u64,
        /// The content of the file without CRCs; see [`seal`].
        bytes: Arc<Vec<u8>>,
    },
    /// Delete the file of this segment; then [`Spool::deleted`].
    Delete(u64),
}

/// The result of [`Spool::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadResult {
    /// Load the file of this segment, call [`Spool::loaded`], and read again.
    Load(u64),
    /// The records were passed.
    Page {
        /// The position at which to read on.
        end: Position,
        /// Number of records before it that were deleted or damaged.
        expired: u64,
        /// There are no more records now.
        is_last: bool,
    },
}

#[derive(Debug)]
struct Segment {
    number: u64,
    records: u64,
    /// Size of the file.
    bytes: usize,
    /// The content in memory; `None` if it is in a file.
    content: Option<Arc<Vec<u8>>>,
    /// No more records are added.
    is_closed: bool,
    /// Part of it is damaged, and its lost records are counted.
    is_damaged: bool,
}

/// A segment that was deleted.
#[derive(Clone, Copy, Debug)]
struct Gap {
    number: u64,
    records: u64,
}

/// A file to be deleted.
#[derive(Clone, Copy, Debug)]
struct Garbage {
    number: u64,
    bytes: usize,
}

/// A position and its byte offset in its segment.
#[derive(Clone, Copy, Debug)]
struct ResumePoint {
    position: Position,
    offset: usize,
}

/// A spool of one stream. See the [module](self).
#[derive(Debug)]
pub struct Spool {
    limits: Limits,
    segments: VecDeque<Segment>,
    next_number: u64,
    /// Deleted unread segments, oldest first. Segments are deleted in order.
    gaps: VecDeque<Gap>,
    /// Files to be deleted.
    garbage: VecDeque<Garbage>,
    memory_bytes: usize,
    disk_bytes: u64,
    /// The valid part of the last loaded file, with its segment number.
    loaded: Option<(u64, Arc<Vec<u8>>)>,
    /// Where the last read ended, to resume without a scan.
    resume: ResumePoint,
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
    /// Returns a spool over existing files.
    pub fn new(limits: Limits, cursor: &Cursor, mut files: Vec<SegmentFile>) -> Self {
        files.sort_unstable();
        let end = cursor
            .batch_end
            .map_or(0, |end| end.file)
            .max(cursor.settled.file);
        let last = files.last().map_or(0, |file| file.number).max(end);
        let mut spool = Self {
            limits,
            segments: VecDeque::new(),
            next_number: last + 1,
            gaps: VecDeque::new(),
            garbage: VecDeque::new(),
            memory_bytes: 0,
            disk_bytes: 0,
            loaded: None,
            resume: ResumePoint {
                position: Position::default(),
                offset: HEADER_BYTES,
            },
            is_busy: false,
            retry_at: 0,
            is_stopping: false,
            restored: 0,
            offered: 0,
            refused: 0,
            damaged: 0,
            failed: 0,
        };
        for file in files {
            spool.disk_bytes += file.bytes as u64;
            spool.segments.push_back(Segment {
                number: file.number,
                records: file.records,
                bytes: file.bytes,
                content: None,
                is_closed: true,
                is_damaged: false,
            });
        }
        spool.settle(cursor.settled);
        spool.restored = spool.after(cursor.settled);
        spool
    }

    /// Adds a chunk of records, each framed by [`begin`] and [`end`]. Returns true if [`Spool::poll`] should be called.
    pub fn offer(&mut self, chunk: &[u8], records: u64) -> bool {
        self.offered += records;
        let needed = chunk.len() + HEADER_BYTES;
        if self.is_stopping || self.memory_bytes + needed > self.limits.memory || needed > self.limits.segment
        {
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
                // Allocated in full, so that the caller never waits for a reallocation.
                let mut content = Vec::with_capacity(self.limits.segment);
                content.extend_from_slice(MAGIC);
                content.extend([0; 8]);
                self.memory_bytes += HEADER_BYTES;
                let number = self.next_number;
                self.next_number += 1;
                self.segments.push_back(Segment {
                    number,
                    records: 0,
                    bytes: HEADER_BYTES,
                    content: Some(Arc::new(content)),
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
            // Not shared until it is closed, so `make_mut` does not copy.
            Arc::make_mut(content).extend_from_slice(chunk);
        }
        self.memory_bytes += chunk.len();
        is_new
    }

    /// Counts records that were refused before they reached the spool.
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
            Arc::make_mut(content)[MAGIC.len()..HEADER_BYTES].copy_from_slice(&last.records.to_le_bytes());
        }
    }

    /// Returns the next effect. Call it after each result, after each offer that returns true, and at [`Spool::wake_at`].
    pub fn poll(&mut self, now: Nanos) -> Option<Effect> {
        if self.is_busy || now < self.retry_at {
            return None;
        }
        if let Some(garbage) = self.garbage.front() {
            self.is_busy = true;
            return Some(Effect::Delete(garbage.number));
        }
        if !self.is_stopping && self.memory_bytes <= self.limits.memory / 2 {
            return None;
        }
        let due = self
            .segments
            .iter()
            .find(|segment| segment.content.is_some() && segment.is_closed)?;
        let number = due.number;
        let content = due.content.clone()?;
        if self.disk_bytes + due.bytes as u64 > self.limits.disk {
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
        let Segment {
            number,
            records,
            bytes,
            ..
        } = oldest;
        self.garbage.push_back(Garbage { number, bytes });
        if self.gaps.len() >= MAX_GAPS
            && let Some(last) = self.gaps.back_mut()
        {
            last.records += records;
        } else {
            self.gaps.push_back(Gap { number, records });
        }
    }

    /// Returns the time to call [`Spool::poll`] after a failed effect.
    pub fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        Some(self.retry_at).filter(|at| *at > now)
    }

    /// Processes the result of writing a file. After a failure the segment stays in memory.
    pub fn written(&mut self, number: u64, is_written: bool, now: Nanos) {
        self.is_busy = false;
        if !is_written {
            return self.fail(now);
        }
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) else {
            // Settled or dropped in the meantime, so delete the file.
            return self.garbage.push_back(Garbage { number, bytes: 0 });
        };
        segment.content = None;
        self.memory_bytes -= segment.bytes;
        self.disk_bytes += segment.bytes as u64;
    }

    /// Processes the result of deleting a file.
    pub fn deleted(&mut self, is_deleted: bool, now: Nanos) {
        self.is_busy = false;
        if !is_deleted {
            return self.fail(now);
        }
        if let Some(garbage) = self.garbage.pop_front() {
            self.disk_bytes = self.disk_bytes.saturating_sub(garbage.bytes as u64);
        }
    }

    fn fail(&mut self, now: Nanos) {
        self.failed += 1;
        self.retry_at = now.saturating_add(RETRY_DELAY);
    }

    /// Processes the content of a loaded file; `None` if it is gone.
    pub fn loaded(&mut self, number: u64, content: Option<Vec<u8>>) {
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.number == number) else {
            return;
        };
        let mut content = content.unwrap_or_default();
        let ValidPart { bytes, records } = check(&content);
        content.truncate(bytes);
        if records < segment.records && !std::mem::replace(&mut segment.is_damaged, true) {
            self.damaged += segment.records - records;
        }
        self.loaded = Some((number, Arc::new(content)));
    }

    /// Passes the records from `from` on to `each`: exactly up to `until`, or without it at least one and about at most
    /// `records` and `bytes`.
    pub fn read(
        &mut self,
        from: Position,
        until: Option<Position>,
        records: usize,
        bytes: usize,
        mut each: impl FnMut(&[u8]),
    ) -> ReadResult {
        let mut position = from;
        let mut expired = 0;
        let mut count = 0;
        let mut size = 0;
        loop {
            let is_full = until.is_none() && count > 0 && (count >= records || size >= bytes);
            if is_full || until.is_some_and(|until| position >= until) {
                return ReadResult::Page {
                    end: position,
                    expired,
                    is_last: false,
                };
            }
            expired += self.skip_gaps(&mut position, until);
            let Some(segment) = self
                .segments
                .iter()
                .find(|segment| segment.number >= position.file)
            else {
                let end = until.unwrap_or(position);
                return ReadResult::Page {
                    end,
                    expired,
                    is_last: true,
                };
            };
            if until.is_some_and(|until| segment.number > until.file) {
                return ReadResult::Page {
                    end: until.unwrap_or(position),
                    expired,
                    is_last: false,
                };
            }
            if segment.number > position.file {
                position = Position {
                    file: segment.number,
                    row: 0,
                };
                continue;
            }
            if position.row >= segment.records {
                if !segment.is_closed {
                    return ReadResult::Page {
                        end: position,
                        expired,
                        is_last: true,
                    };
                }
                position = Position {
                    file: position.file + 1,
                    row: 0,
                };
                // End the page at the segment boundary: a page then needs only one file to be read again.
                if count > 0 || expired > 0 {
                    return ReadResult::Page {
                        end: position,
                        expired,
                        is_last: false,
                    };
                }
                continue;
            }
            let content = match (&segment.content, &self.loaded) {
                (Some(content), _) => Arc::clone(content),
                (None, Some((number, content))) if *number == segment.number => Arc::clone(content),
                (None, _) => return ReadResult::Load(segment.number),
            };
            let end = until
                .filter(|until| until.file == position.file)
                .map_or(segment.records, |until| until.row);
            let end = end.min(segment.records);
            let mut offset = self.offset(position, &content);
            while position.row < end {
                if until.is_none() && count > 0 && (count >= records || size >= bytes) {
                    break;
                }
                let Some((record, next)) = record(&content, offset) else {
                    // The rest of the segment is damaged.
                    expired += end - position.row;
                    position.row = end;
                    break;
                };
                each(record);
                offset = next;
                size += record.len();
                count += 1;
                position.row += 1;
            }
            self.resume = ResumePoint { position, offset };
        }
    }

    /// Moves `position` past deleted segments. Returns the number of their records.
    fn skip_gaps(&self, position: &mut Position, until: Option<Position>) -> u64 {
        let mut expired = 0;
        let first = position.file;
        for gap in self.gaps.iter().filter(|gap| gap.number >= first) {
            let Gap { number, records } = *gap;
            if until.is_some_and(|until| number > until.file) {
                break;
            }
            let end = until
                .filter(|until| until.file == number)
                .map_or(records, |until| until.row.min(records));
            let start = if number == position.file { position.row } else { 0 };
            expired += end.saturating_sub(start);
            *position = match until {
                Some(until) if until.file == number => until,
                _ => Position {
                    file: number + 1,
                    row: 0,
                },
            };
        }
        expired
    }

    fn offset(&self, position: Position, content: &[u8]) -> usize {
        let ResumePoint {
            position: last,
            offset,
        } = self.resume;
        let (mut row, mut offset) = if last.file == position.file && last.row <= position.row {
            (last.row, offset)
        } else {
            (0, HEADER_BYTES)
        };
        while row < position.row {
            let Some((_, next)) = record(content, offset) else {
                return content.len();
            };
            row += 1;
            offset = next;
        }
        offset
    }

    /// Removes the records before a saved cursor.
    pub fn settle(&mut self, settled: Position) {
        self.gaps.retain(|gap| gap.number >= settled.file);
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
                Some(_) => self.memory_bytes -= first.bytes,
                None => self.garbage.push_back(Garbage {
                    number: first.number,
                    bytes: first.bytes,
                }),
            }
        }
        if let Some((number, _)) = self.loaded
            && self.segments.iter().all(|segment| segment.number != number)
        {
            self.loaded = None;
        }
    }

    /// Refuses further records, and lets `poll` write those in memory.
    pub fn stop(&mut self) {
        self.close();
        self.is_stopping = true;
        self.retry_at = 0;
    }

    /// Drops the records still in memory after a stop because they could not be written; they count as refused. Returns their
    /// number.
    pub fn abandon(&mut self) -> u64 {
        let lost: u64 = self
            .segments
            .iter()
            .filter(|segment| segment.content.is_some())
            .map(|segment| segment.records)
            .sum();
        self.segments.retain(|segment| segment.content.is_none());
        self.memory_bytes = 0;
        self.refused += lost;
        lost
    }

    /// Returns the number of records after a position, including deleted ones.
    pub fn after(&self, position: Position) -> u64 {
        let segments = self
            .segments
            .iter()
            .map(|segment| (segment.number, segment.records));
        self.gaps
            .iter()
            .map(|gap| (gap.number, gap.records))
            .chain(segments)
            .map(|(number, records)| match number.cmp(&position.file) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => records.saturating_sub(position.row),
                std::cmp::Ordering::Greater => records,
            })
            .sum()
    }

    /// Returns the number of waiting records when the spool was opened.
    pub fn restored(&self) -> u64 {
        self.restored
    }

    /// Returns the number of records that were offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the number of records that were refused for lack of space.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of records damaged on disk; pages report them as expired.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Returns the number of failed effects.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the number of bytes in memory and in files.
    pub fn usage(&self) -> Usage {
        Usage {
            memory: self.memory_bytes,
            disk: self.disk_bytes,
        }
    }
}

/// Starts a record at the end of a chunk. Returns the offset to pass to [`end`].
pub fn begin(chunk: &mut Vec<u8>) -> usize {
    chunk.extend([0; PREFIX_BYTES]);
    chunk.len()
}

/// Ends a record whose content was appended since [`begin`].
pub fn end(chunk: &mut [u8], start: usize) {
    let len = (chunk.len() - start) as u32;
    chunk[start - PREFIX_BYTES..start - 4].copy_from_slice(&len.to_le_bytes());
}

/// Returns the content of a file with its CRCs filled in.
pub fn seal(content: &[u8]) -> Vec<u8> {
    let mut sealed = content.to_vec();
    let mut offset = HEADER_BYTES;
    while let Some((record, next)) = record(content, offset) {
        let crc = wire::crc::crc_32c(record);
        sealed[offset + 4..offset + PREFIX_BYTES].copy_from_slice(&crc.to_le_bytes());
        offset = next;
    }
    sealed
}

/// Parses the number of records in the header of a file. Returns `None` if it is not a header.
pub fn parse_header(header: &[u8]) -> Option<u64> {
    let rest = header.strip_prefix(MAGIC)?;
    rest.first_chunk().map(|records| u64::from_le_bytes(*records))
}

/// Returns the length of a file's header, bytes.
pub const fn header_len() -> usize {
    HEADER_BYTES
}

/// Returns the record at an offset and the offset of the next one, or `None` at the end.
fn record(content: &[u8], offset: usize) -> Option<(&[u8], usize)> {
    let rest = content.get(offset..)?;
    let len = u32::from_le_bytes(*rest.first_chunk()?) as usize;
    let record = rest.get(PREFIX_BYTES..)?.get(..len)?;
    Some((record, offset + PREFIX_BYTES + len))
}

/// The intact records at the start of a file.
struct ValidPart {
    /// Length of the header and these records.
    bytes: usize,
    records: u64,
}

fn check(content: &[u8]) -> ValidPart {
    if parse_header(content).is_none() {
        return ValidPart { bytes: 0, records: 0 };
    }
    let mut offset = HEADER_BYTES;
    let mut records = 0;
    while let Some((record, next)) = record(content, offset) {
        let crc = content.get(offset + 4..offset + PREFIX_BYTES);
        if crc != Some(&wire::crc::crc_32c(record).to_le_bytes()) {
            break;
        }
        offset = next;
        records += 1;
    }
    ValidPart {
        bytes: offset,
        records,
    }
}

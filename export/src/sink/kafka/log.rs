//! Kafka consumer format: parses record batches of version 2 in a fetch response and yields their messages.
//!
//! * <https://kafka.apache.org/documentation/#messageformat>
//!
//! Each offset yields a message, an unreadable message with its reason, or nothing, if it was compacted away or belongs to a
//! control batch. Every message of a damaged, too large or unsupported batch is unreadable.

use std::io::Read as _;
use std::ops::Range;

use lz4_flex::frame::FrameDecoder;

/// Size of `baseOffset` and `batchLength`, which `batchLength` does not include, bytes.
const LENGTH_FIELD_END: usize = 12;
/// Size of the batch header, bytes.
const BATCH_HEADER_BYTES: usize = field::RECORDS;
/// The version of record batches that is read.
const MAGIC: u8 = 2;
/// Mask of the compression codec in the attributes.
const CODEC_MASK: u16 = 7;
/// Compression codec: none.
const CODEC_NONE: u16 = 0;
/// Compression codec: LZ4.
const CODEC_LZ4: u16 = 3;
/// Maximum decompressed size of a batch, bytes.
const MAX_BATCH_BYTES: usize = 64 << 20;
/// Maximum record in a compressed batch, bytes: twice the longest value of a hopwise record.
const MAX_RECORD_BYTES: usize = 2 << 20;
/// Decompression step, bytes, unless a record needs more.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// Maximum memory for reading a batch besides the batch itself, bytes: two decompressed and one compressed LZ4 block of 4 MiB
/// each, the longest record, and its copy.
pub const UNPACKING: usize = 17 << 20;
/// Magic number of LZ4's legacy frame, whose blocks have 8 MiB; no Kafka producer writes it.
const LZ4_LEGACY_MAGIC: [u8; 4] = 0x184c_2102_u32.to_le_bytes();
/// Attribute bit of control batches, such as transaction markers.
const CONTROL_FLAG: u16 = 1 << 5;
const DAMAGED: &str = "its record batch is damaged";
/// Longest varint, bytes; a record begins with its length as a varint.
const MAX_VARINT_BYTES: usize = 10;

/// A message of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The offset of the message.
    pub offset: i64,
    /// The time of the message, ms since 1970.
    pub ms: i64,
    /// The value, or the reason why it cannot be read.
    pub value: Result<&'a [u8], &'a str>,
}

/// A record batch with a parsed header.
#[derive(Debug)]
struct Batch<'a> {
    /// Offset of the first record.
    base: i64,
    /// Offset of the last record plus one.
    end: i64,
    /// Time of the first record, ms since 1970; times of records count from it.
    first_ms: i64,
    /// Number of records in the batch.
    count: i32,
    records: Result<Records<'a>, String>,
}

/// Iterator over the records of a batch.
#[derive(Debug)]
enum Records<'a> {
    Plain(&'a [u8]),
    /// Records that are compressed with LZ4.
    Compressed(Box<Lz4Records<'a>>),
}

/// LZ4-compressed records, decompressed as a stream: about one record is in memory at a time.
#[derive(Debug)]
struct Lz4Records<'a> {
    decoder: FrameDecoder<&'a [u8]>,
    /// Decompressed bytes in memory.
    window: Vec<u8>,
    /// Index in `window` of the first unread byte.
    start: usize,
    /// Bytes that may still be decompressed.
    bytes_left: usize,
    /// Remaining bytes of a too long record, to be skipped.
    skip: usize,
    /// Set at the end of the data: the reason for a missing record.
    end: Option<&'static str>,
}

/// A record, or the beginning of one that is too long.
struct RecordBytes<'a> {
    bytes: &'a [u8],
    /// Length of the whole record.
    len: usize,
}

/// Byte offsets of the header fields of a record batch, named as in Kafka's documentation.
mod field {
    pub(super) const BASE_OFFSET: usize = 0;
    pub(super) const BATCH_LENGTH: usize = 8;
    pub(super) const MAGIC: usize = 16;
    pub(super) const CRC: usize = 17;
    /// The checksum covers the bytes from here to the end of the batch.
    pub(super) const ATTRIBUTES: usize = 21;
    pub(super) const LAST_OFFSET_DELTA: usize = 23;
    pub(super) const BASE_TIMESTAMP: usize = 27;
    pub(super) const RECORDS_COUNT: usize = 57;
    pub(super) const RECORDS: usize = 61;
}

/// Calls `each` for the messages from offset `from` on, in order, until it returns false or the last complete batch ends.
/// Returns the next offset to fetch.
pub fn messages(mut bytes: &[u8], from: i64, mut each: impl FnMut(Message<'_>) -> bool) -> i64 {
    let mut next = from;
    let mut is_first = true;
    while let Some((batch, rest)) = parse_batch(bytes, is_first, next) {
        bytes = rest;
        is_first = false;
        let end = batch.end;
        if end <= next {
            continue;
        }
        match batch.pass(next, &mut each) {
            Ok(()) => next = end,
            Err(stopped) => return stopped,
        }
    }
    next
}

impl Batch<'_> {
    /// Passes the messages from offset `from` on to `each`. The error is the offset at which `each` returned false.
    fn pass(self, from: i64, each: &mut impl FnMut(Message<'_>) -> bool) -> Result<(), i64> {
        let Self {
            base,
            end,
            first_ms,
            count,
            records,
        } = self;
        let from = from.max(base);
        let mut records = match records {
            Ok(records) => records,
            Err(reason) => return pass_unreadable(from..end, first_ms, &reason, each),
        };
        let mut next = base;
        for _ in 0..count.max(0) {
            let piece = match records.next() {
                Ok(piece) => piece,
                Err(reason) => return pass_unreadable(from.max(next)..end, first_ms, reason, each),
            };
            let record = parse_record(&piece).and_then(
                |Record {
                     offset_delta,
                     ms,
                     value,
                 }| {
                    let offset = base
                        .checked_add(offset_delta)
                        .filter(|offset| (next..end).contains(offset))?;
                    Some((offset, first_ms.saturating_add(ms), value))
                },
            );
            let Some((offset, ms, value)) = record else {
                return pass_unreadable(from.max(next)..end, first_ms, DAMAGED, each);
            };
            let value = value
                .as_ref()
                .map(|value| value.ok_or("it has no value"))
                .map_err(String::as_str);
            if offset >= from
                && !each(Message {
                    offset,
                    ms,
                    value: value.flatten(),
                })
            {
                return Err(offset);
            }
            next = offset + 1;
        }
        Ok(())
    }
}

/// Passes each remaining offset of a batch as an unreadable message. The error is the offset at which `each` returned false.
fn pass_unreadable(
    mut offsets: Range<i64>,
    ms: i64,
    reason: &str,
    each: &mut impl FnMut(Message<'_>) -> bool,
) -> Result<(), i64> {
    match offsets.find(|offset| {
        !each(Message {
            offset: *offset,
            ms,
            value: Err(reason),
        })
    }) {
        Some(stopped) => Err(stopped),
        None => Ok(()),
    }
}

impl Records<'_> {
    /// Returns the next record, or the reason why it cannot be read.
    fn next(&mut self) -> Result<RecordBytes<'_>, &'static str> {
        match self {
            Self::Plain(bytes) => {
                let len = read_varint(bytes)
                    .and_then(|len| usize::try_from(len).ok())
                    .ok_or(DAMAGED)?;
                let (record, rest) = bytes.split_at_checked(len).ok_or(DAMAGED)?;
                *bytes = rest;
                Ok(RecordBytes { bytes: record, len })
            }
            Self::Compressed(records) => records.next(),
        }
    }
}

impl<'a> Lz4Records<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let decoder = FrameDecoder::new(bytes);
        Self {
            decoder,
            window: Vec::new(),
            start: 0,
            bytes_left: MAX_BATCH_BYTES,
            skip: 0,
            end: None,
        }
    }

    fn next(&mut self) -> Result<RecordBytes<'_>, &'static str> {
        while self.skip > 0 {
            let available = self.fill(1);
            if available == 0 {
                return Err(self.end.unwrap_or(DAMAGED));
            }
            let skipped = available.min(self.skip);
            self.start += skipped;
            self.skip -= skipped;
        }
        self.fill(MAX_VARINT_BYTES);
        let mut rest = &self.window[self.start..];
        let available = rest.len();
        let len = read_varint(&mut rest).and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(self.end.unwrap_or(DAMAGED))?;
        self.start += available - rest.len();
        let needed = if len > MAX_RECORD_BYTES {
            len.min(READ_CHUNK_BYTES)
        } else {
            len
        };
        if self.fill(needed) < needed {
            return Err(self.end.unwrap_or(DAMAGED));
        }
        let from = self.start;
        self.start = from + needed;
        self.skip = len - needed;
        Ok(RecordBytes {
            bytes: &self.window[from..from + needed],
            len,
        })
    }

    /// Decompresses until `needed` bytes are in the window or the data ends. Returns the number of bytes available.
    fn fill(&mut self, needed: usize) -> usize {
        while self.window.len() - self.start < needed && self.end.is_none() {
            self.window.drain(..self.start);
            self.start = 0;
            let read_size = (needed - self.window.len())
                .max(READ_CHUNK_BYTES)
                .min(self.bytes_left);
            if read_size == 0 {
                self.end = Some("its record batch has more than 64 MiB without compression");
                break;
            }
            self.window.reserve_exact(read_size);
            let read = self
                .decoder
                .by_ref()
                .take(read_size as u64)
                .read_to_end(&mut self.window);
            match read {
                Ok(0) => self.end = Some(DAMAGED),
                Ok(read) => self.bytes_left -= read,
                Err(_) => self.end = Some("its record batch cannot be decompressed"),
            }
        }
        self.window.len() - self.start
    }
}

/// Parses the next batch. Returns it and the bytes after it, or `None` if there is none or it is incomplete; it is then fetched
/// again. The records of a batch that ends before `from` are not checked: brokers may return whole batches before the requested
/// offset.
fn parse_batch(bytes: &[u8], is_first: bool, from: i64) -> Option<(Batch<'_>, &[u8])> {
    let head = bytes.first_chunk::<BATCH_HEADER_BYTES>()?;
    let base = i64_at(head, field::BASE_OFFSET);
    let len = usize::try_from(u32_at(head, field::BATCH_LENGTH)).unwrap_or(usize::MAX);
    let delta = i64::from(u32_at(head, field::LAST_OFFSET_DELTA).cast_signed());
    let end = base.checked_add(delta)?.checked_add(1)?;
    let records = Ok(Records::Plain(&[]));
    let mut batch = Batch {
        base,
        end,
        first_ms: i64_at(head, field::BASE_TIMESTAMP),
        count: u32_at(head, field::RECORDS_COUNT).cast_signed(),
        records,
    };
    let is_old = head[field::MAGIC] != MAGIC;
    if is_old {
        // Before Kafka 0.11, this was one message, or a compressed set of messages whose last offset is the base offset.
        batch.end = base.checked_add(1)?;
        batch.records = Err("it is in a form of before Kafka 0.11".to_owned());
    } else if base < 0 || delta < 0 {
        return None;
    }
    let Some((batch_bytes, rest)) = len
        .checked_add(LENGTH_FIELD_END)
        .and_then(|len| bytes.split_at_checked(len))
    else {
        // Brokers truncate a response at its size limit, except the first batch, which is sent whole even if it exceeds the
        // limit. An incomplete first batch is therefore larger than the longest accepted response; testing for half of that
        // size leaves room for the fields before it. A shorter response is incomplete for another reason and is requested
        // again.
        if !is_first || bytes.len() < super::protocol::MAX_ANSWER / 2 {
            return None;
        }
        batch.records = Err(format!(
            "its record batch has {len} bytes, more than are read here"
        ));
        return Some((batch, &[]));
    };
    if !is_old && batch.end > from {
        batch.records = parse_records(batch_bytes, u32_at(head, field::CRC));
        let is_control = u16_at(head, field::ATTRIBUTES) & CONTROL_FLAG != 0;
        if is_control && batch.records.is_ok() {
            batch.records = Ok(Records::Plain(&[]));
            batch.count = 0;
        }
    }
    Some((batch, rest))
}

fn u16_at(head: &[u8; BATCH_HEADER_BYTES], offset: usize) -> u16 {
    u16::from_be_bytes([head[offset], head[offset + 1]])
}

fn u32_at(head: &[u8; BATCH_HEADER_BYTES], offset: usize) -> u32 {
    u32::from(u16_at(head, offset)) << 16 | u32::from(u16_at(head, offset + 2))
}

fn i64_at(head: &[u8; BATCH_HEADER_BYTES], offset: usize) -> i64 {
    i64::from(u32_at(head, offset)) << 32 | i64::from(u32_at(head, offset + 4))
}

/// Returns the records of a complete batch, or the reason why they cannot be read.
fn parse_records(batch: &[u8], crc: u32) -> Result<Records<'_>, String> {
    let Some((head, records)) = batch.split_first_chunk::<BATCH_HEADER_BYTES>() else {
        return Err(DAMAGED.to_owned());
    };
    if wire::crc::crc_32c(&batch[field::ATTRIBUTES..]) != crc {
        return Err("the checksum of its record batch is wrong".to_owned());
    }
    match u16_at(head, field::ATTRIBUTES) & CODEC_MASK {
        CODEC_NONE => Ok(Records::Plain(records)),
        CODEC_LZ4 if records.starts_with(&LZ4_LEGACY_MAGIC) => {
            Err("its record batch cannot be decompressed".to_owned())
        }
        CODEC_LZ4 => Ok(Records::Compressed(Box::new(Lz4Records::new(records)))),
        codec => {
            let name = ["", "gzip", "snappy", "lz4", "zstd"]
                .get(usize::from(codec))
                .unwrap_or(&"a codec without a name");
            Err(format!(
                "it is compressed by {name}; only lz4 is read: set compression.type = producer, or lz4, for the topic"
            ))
        }
    }
}

/// A message's value, which may be null, or the reason why it cannot be read.
type Content<'a> = Result<Option<&'a [u8]>, String>;

/// A parsed record.
struct Record<'a> {
    /// Offset relative to the batch's.
    offset_delta: i64,
    /// Time relative to the batch's, ms.
    ms: i64,
    value: Content<'a>,
}

/// Parses a record. Headers and key are skipped. Returns `None` if it is malformed.
fn parse_record<'a>(piece: &RecordBytes<'a>) -> Option<Record<'a>> {
    // The first byte is the attributes, which are unused.
    let mut record = piece.bytes.get(1..)?;
    let ms = read_varint(&mut record)?;
    let offset_delta = read_varint(&mut record)?;
    if piece.bytes.len() < piece.len {
        let reason = format!(
            "its record has {} bytes; at most {MAX_RECORD_BYTES} are read",
            piece.len
        );
        return Some(Record {
            offset_delta,
            ms,
            value: Err(reason),
        });
    }
    // The key.
    read_nullable_bytes(&mut record)?;
    Some(Record {
        offset_delta,
        ms,
        value: Ok(read_nullable_bytes(&mut record)?),
    })
}

/// Reads length-prefixed bytes. `Some(None)` is null, `None` is malformed.
fn read_nullable_bytes<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match usize::try_from(read_varint(bytes)?) {
        Ok(len) => {
            let (part, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            Some(Some(part))
        }
        Err(_) => Some(None),
    }
}

/// Reads a zigzag varint.
fn read_varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

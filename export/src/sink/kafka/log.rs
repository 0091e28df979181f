//! The contents of a partition: record batches of version 2, and the messages in them.
//!
//! * <https://kafka.apache.org/documentation/#messageformat>
//!
//! Each offset is one of three: it has a message, its message cannot be read (and why), or it has none: it was compacted away, or
//! belongs to the broker's own records. A batch that is damaged, too large or of another form has only messages that cannot be read.

use std::io::Read as _;
use std::ops::Range;

use lz4_flex::frame::FrameDecoder;

/// A message of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The offset of the message.
    pub offset: i64,
    /// The time of the message, ms since 1970.
    pub ms: i64,
    /// The value, or why it cannot be read.
    pub value: Result<&'a [u8], &'a str>,
}

/// A batch that can be taken apart.
#[derive(Debug)]
struct Batch<'a> {
    base: i64,
    /// After its last offset.
    end: i64,
    first_ms: i64,
    count: i32,
    records: Result<Records<'a>, String>,
}

/// The records of a batch, which are read one after the other.
#[derive(Debug)]
enum Records<'a> {
    Plain(&'a [u8]),
    Packed(Box<Packed<'a>>),
}

/// Compressed records. Of these, no more than a record and a part of the next one is in memory without compression.
#[derive(Debug)]
struct Packed<'a> {
    decoder: FrameDecoder<&'a [u8]>,
    /// The decompressed bytes, and the offset of the first one that was not read.
    window: Vec<u8>,
    at: usize,
    /// So much may follow.
    left: usize,
    /// The remaining bytes of a record that is too long, which are skipped.
    skip: usize,
    /// Nothing follows: why, if it should.
    end: Option<&'static str>,
}

/// A record, or the beginning of one that is too long.
struct Piece<'a> {
    bytes: &'a [u8],
    len: usize,
}

/// Before the part that the length counts.
const BEFORE: usize = 12;
/// The fields of a batch.
const HEAD: usize = 61;
/// A batch is not decompressed beyond this.
const LARGEST: usize = 64 << 20;
/// The longest record of a compressed batch that is read: twice the longest value that can be a record of hopwise.
const RECORD: usize = 2 << 20;
/// So much is decompressed at once, if a record does not need more.
const CHUNK: usize = 64 << 10;
/// Bytes that it takes to read a batch beside those of the batch, at most: two blocks of LZ4 and one that is compressed, 4 MiB each, and
/// the longest record with what is made of it.
pub const UNPACKING: usize = 17 << 20;
/// A frame of LZ4 from before there was a format for it, with blocks of 8 MiB. No producer of Kafka has ever written any.
const LEGACY: [u8; 4] = 0x184c_2102_u32.to_le_bytes();
/// Marks batches of the broker's own messages.
const CONTROL: u16 = 1 << 5;

/// Calls `each` for the messages from the offset `from` on, in order, until it returns `false` or the last whole batch ends. Returns the
/// offset after all that is passed: the next one to ask for.
pub fn messages(mut bytes: &[u8], from: i64, mut each: impl FnMut(Message<'_>) -> bool) -> i64 {
    let mut position = from;
    let mut is_first = true;
    while let Some((batch, rest)) = batch(bytes, is_first, position) {
        (bytes, is_first) = (rest, false);
        let end = batch.end;
        if end <= position {
            continue;
        }
        match batch.each(position, &mut each) {
            Ok(()) => position = end,
            Err(stopped) => return stopped,
        }
    }
    position
}

impl Batch<'_> {
    /// Where it was stopped, if it was.
    fn each(self, from: i64, each: &mut impl FnMut(Message<'_>) -> bool) -> Result<(), i64> {
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
            Err(words) => return unreadable(from..end, first_ms, &words, each),
        };
        let mut next = base;
        for _ in 0..count.max(0) {
            let piece = match records.next() {
                Ok(piece) => piece,
                Err(words) => return unreadable(from.max(next)..end, first_ms, words, each),
            };
            let record = record(&piece).and_then(|(delta, ms, value)| {
                let offset = base.checked_add(delta).filter(|at| (next..end).contains(at))?;
                Some((offset, first_ms.saturating_add(ms), value))
            });
            let Some((offset, ms, value)) = record else {
                return unreadable(from.max(next)..end, first_ms, DAMAGED, each);
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

/// Passes the rest of a batch as one message that cannot be read.
fn unreadable(
    mut offsets: Range<i64>,
    ms: i64,
    words: &str,
    each: &mut impl FnMut(Message<'_>) -> bool,
) -> Result<(), i64> {
    match offsets.find(|at| {
        !each(Message {
            offset: *at,
            ms,
            value: Err(words),
        })
    }) {
        Some(stopped) => Err(stopped),
        None => Ok(()),
    }
}

impl Records<'_> {
    /// The next record, or why there is none.
    fn next(&mut self) -> Result<Piece<'_>, &'static str> {
        match self {
            Self::Plain(bytes) => {
                let len = signed(bytes)
                    .and_then(|len| usize::try_from(len).ok())
                    .ok_or(DAMAGED)?;
                let (record, rest) = bytes.split_at_checked(len).ok_or(DAMAGED)?;
                *bytes = rest;
                Ok(Piece { bytes: record, len })
            }
            Self::Packed(packed) => packed.next(),
        }
    }
}

impl<'a> Packed<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let decoder = FrameDecoder::new(bytes);
        Self {
            decoder,
            window: Vec::new(),
            at: 0,
            left: LARGEST,
            skip: 0,
            end: None,
        }
    }

    fn next(&mut self) -> Result<Piece<'_>, &'static str> {
        while self.skip > 0 {
            let there = self.fill(1);
            if there == 0 {
                return Err(self.end.unwrap_or(DAMAGED));
            }
            let skipped = there.min(self.skip);
            (self.at, self.skip) = (self.at + skipped, self.skip - skipped);
        }
        self.fill(LENGTH);
        let mut rest = &self.window[self.at..];
        let before = rest.len();
        let len = signed(&mut rest).and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(self.end.unwrap_or(DAMAGED))?;
        self.at += before - rest.len();
        let wanted = if len > RECORD { len.min(CHUNK) } else { len };
        if self.fill(wanted) < wanted {
            return Err(self.end.unwrap_or(DAMAGED));
        }
        let from = self.at;
        (self.at, self.skip) = (from + wanted, len - wanted);
        Ok(Piece {
            bytes: &self.window[from..from + wanted],
            len,
        })
    }

    /// Decompresses until so many bytes are there, or nothing follows. Returns how many there are.
    fn fill(&mut self, wanted: usize) -> usize {
        while self.window.len() - self.at < wanted && self.end.is_none() {
            self.window.drain(..self.at);
            self.at = 0;
            let more = (wanted - self.window.len()).max(CHUNK).min(self.left);
            if more == 0 {
                self.end = Some("its record batch has more than 64 MiB without compression");
                break;
            }
            self.window.reserve_exact(more);
            let read = self
                .decoder
                .by_ref()
                .take(more as u64)
                .read_to_end(&mut self.window);
            match read {
                Ok(0) => self.end = Some(DAMAGED),
                Ok(read) => self.left -= read,
                Err(_) => self.end = Some("its record batch cannot be decompressed"),
            }
        }
        self.window.len() - self.at
    }
}

/// The next batch, and what is after it; `None`: nothing, or a part of one that will come with the next request. One that ends before
/// `from` stays as it is: a broker begins with the batch in which the offset is, and may begin earlier.
fn batch(bytes: &[u8], is_first: bool, from: i64) -> Option<(Batch<'_>, &[u8])> {
    let head = bytes.first_chunk::<HEAD>()?;
    let base = long_at(head, 0);
    let len = usize::try_from(number_at(head, 8)).unwrap_or(usize::MAX);
    let delta = i64::from(number_at(head, 23).cast_signed());
    let end = base.checked_add(delta)?.checked_add(1)?;
    let records = Ok(Records::Plain(&[]));
    let mut batch = Batch {
        base,
        end,
        first_ms: long_at(head, 27),
        count: number_at(head, 57).cast_signed(),
        records,
    };
    let old = head[16] != 2;
    if old {
        // Of before Kafka 0.11: one message, or a compressed set whose last offset is this.
        batch.end = base.checked_add(1)?;
        batch.records = Err("it is in a form of before Kafka 0.11".to_owned());
    } else if base < 0 || delta < 0 {
        return None;
    }
    let Some(whole) = len
        .checked_add(BEFORE)
        .and_then(|len| bytes.split_at_checked(len))
    else {
        if !is_first || bytes.len() < super::protocol::MAX_ANSWER / 2 {
            return None;
        }
        // A broker cuts off all but the first.
        batch.records = Err(format!(
            "its record batch has {len} bytes, more than are read here"
        ));
        return Some((batch, &[]));
    };
    let (whole, rest) = whole;
    if !old && batch.end > from {
        batch.records = records_of(whole, number_at(head, 17));
        let is_control = number_at(head, 19) as u16 & CONTROL != 0;
        if is_control && batch.records.is_ok() {
            batch.records = Ok(Records::Plain(&[]));
            batch.count = 0;
        }
    }
    Some((batch, rest))
}

fn number_at(head: &[u8; HEAD], offset: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| head[offset + i]);
    u32::from_be_bytes([a, b, c, d])
}

fn long_at(head: &[u8; HEAD], offset: usize) -> i64 {
    i64::from(number_at(head, offset)) << 32 | i64::from(number_at(head, offset + 4))
}

/// Returns the records of a whole batch.
fn records_of(batch: &[u8], crc: u32) -> Result<Records<'_>, String> {
    let (Some(checked), Some(records)) = (batch.get(21..), batch.get(HEAD..)) else {
        return Err(DAMAGED.to_owned());
    };
    if wire::crc::crc_32c(checked) != crc {
        return Err("the checksum of its record batch is wrong".to_owned());
    }
    match checked[1] & 7 {
        0 => Ok(Records::Plain(records)),
        3 if records.starts_with(&LEGACY) => Err("its record batch cannot be decompressed".to_owned()),
        3 => Ok(Records::Packed(Box::new(Packed::new(records)))),
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

/// The value of a message, which may be null, or the reason why it cannot be read.
type Content<'a> = Result<Option<&'a [u8]>, String>;

/// A record: its place after the first one, its time after that of the first one, its value. Headers and key are not read.
fn record<'a>(piece: &Piece<'a>) -> Option<(i64, i64, Content<'a>)> {
    // Attributes.
    let mut record = piece.bytes.get(1..)?;
    let ms = signed(&mut record)?;
    let delta = signed(&mut record)?;
    if piece.bytes.len() < piece.len {
        let words = format!("its record has {} bytes; at most {RECORD} are read", piece.len);
        return Some((delta, ms, Err(words)));
    }
    part(&mut record)?;
    let value = part(&mut record)?;
    Some((delta, ms, Ok(value)))
}

/// Bytes with their length before them; `Some(None)`: null.
fn part<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match usize::try_from(signed(bytes)?) {
        Ok(len) => {
            let (part, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            Some(Some(part))
        }
        Err(_) => Some(None),
    }
}

const DAMAGED: &str = "its record batch is damaged";
/// Bytes of the longest varint.
const LENGTH: usize = 10;

/// Reads a varint in zigzag encoding.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
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

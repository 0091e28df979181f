//! What a partition holds: record batches of version 2, and the messages in them.
//!
//! * <https://kafka.apache.org/documentation/#messageformat>
//!
//! Each offset is one of three: it has a message, its message cannot be read (and why), or it has none: it was compacted away, or
//! belongs to the broker's own records. A batch that is damaged, too large or of another form has only messages that cannot be read.

use std::borrow::Cow;
use std::io::Read as _;

/// What stands at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The offset.
    pub offset: i64,
    /// Its time, ms.
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
    records: Result<Cow<'a, [u8]>, String>,
}

/// Before the part that the length counts.
const BEFORE: usize = 12;
/// The fields of a batch.
const HEAD: usize = 61;
/// A batch is not decompressed beyond this.
const LARGEST: usize = 64 << 20;
/// Of messages of the broker itself.
const CONTROL: u16 = 1 << 5;

/// Calls `each` for the messages from the offset `from` on, in order, until it returns `false` or the last whole batch ends. Returns the
/// offset after all that is passed: the next one to ask for.
pub fn messages(mut bytes: &[u8], from: i64, mut each: impl FnMut(Message<'_>) -> bool) -> i64 {
    let mut at = from;
    let mut is_first = true;
    while let Some((batch, rest)) = batch(bytes, is_first, at) {
        (bytes, is_first) = (rest, false);
        if batch.end <= at {
            continue;
        }
        match batch.each(at, &mut each) {
            Ok(()) => at = batch.end,
            Err(stopped) => return stopped,
        }
    }
    at
}

impl Batch<'_> {
    /// Where it was stopped, if it was.
    fn each(&self, from: i64, each: &mut impl FnMut(Message<'_>) -> bool) -> Result<(), i64> {
        let from = from.max(self.base);
        let mut records = match &self.records {
            Ok(records) => &records[..],
            Err(words) => return self.unreadable(from, words, each),
        };
        let mut next = self.base;
        for _ in 0..self.count.max(0) {
            let record = record(&mut records).and_then(|(delta, ms, value)| {
                let offset = self.base.checked_add(delta).filter(|at| (next..self.end).contains(at))?;
                Some((offset, self.first_ms.saturating_add(ms), value))
            });
            let Some((offset, ms, value)) = record else {
                return self.unreadable(from.max(next), "its record batch is damaged", each);
            };
            if offset >= from && !each(Message { offset, ms, value: value.ok_or("it has no value") }) {
                return Err(offset);
            }
            next = offset + 1;
        }
        Ok(())
    }

    /// The rest of it cannot be read.
    fn unreadable(
        &self,
        from: i64,
        words: &str,
        each: &mut impl FnMut(Message<'_>) -> bool,
    ) -> Result<(), i64> {
        match (from..self.end).find(|at| !each(Message { offset: *at, ms: self.first_ms, value: Err(words) }))
        {
            Some(stopped) => Err(stopped),
            None => Ok(()),
        }
    }
}

/// The next batch, and what is after it; `None`: nothing, or a part of one that will come with the next request. One that ends before
/// `from` stays as it is: a broker begins with the batch in which the offset is, and may begin earlier.
fn batch(bytes: &[u8], is_first: bool, from: i64) -> Option<(Batch<'_>, &[u8])> {
    let head = bytes.first_chunk::<HEAD>()?;
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| i64::from(number(at)) << 32 | i64::from(number(at + 4));
    let base = long(0);
    let len = usize::try_from(number(8)).unwrap_or(usize::MAX);
    let delta = i64::from(number(23).cast_signed());
    let end = base.checked_add(delta)?.checked_add(1)?;
    let records = Ok(Cow::default());
    let mut batch = Batch { base, end, first_ms: long(27), count: number(57).cast_signed(), records };
    let old = head[16] != 2;
    if old {
        // Of before Kafka 0.11: one message, or a compressed set whose last offset is this.
        batch.end = base.checked_add(1)?;
        batch.records = Err("it is in a form of before Kafka 0.11".to_owned());
    } else if base < 0 || delta < 0 {
        return None;
    }
    let Some(whole) = len.checked_add(BEFORE).and_then(|len| bytes.split_at_checked(len)) else {
        if !is_first || bytes.len() < super::protocol::MAX_ANSWER / 2 {
            return None;
        }
        // A broker cuts off all but the first.
        batch.records = Err(format!("its record batch has {len} bytes, more than are read here"));
        return Some((batch, &[]));
    };
    let (whole, rest) = whole;
    if !old && batch.end > from {
        batch.records = uncompressed(whole, number(17));
        let is_control = number(19) as u16 & CONTROL != 0;
        if is_control && batch.records.is_ok() {
            (batch.records, batch.count) = (Ok(Cow::default()), 0);
        }
    }
    Some((batch, rest))
}

/// The records of a whole batch, without compression.
fn uncompressed(batch: &[u8], crc: u32) -> Result<Cow<'_, [u8]>, String> {
    let (Some(checked), Some(records)) = (batch.get(21..), batch.get(HEAD..)) else {
        return Err("its record batch is damaged".to_owned());
    };
    if wire::crc::crc_32c(checked) != crc {
        return Err("the checksum of its record batch is wrong".to_owned());
    }
    match checked[1] & 7 {
        0 => Ok(records.into()),
        3 => lz4(records).map(Cow::Owned),
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

fn lz4(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let limit = LARGEST as u64 + 1;
    let read = lz4_flex::frame::FrameDecoder::new(bytes).take(limit).read_to_end(&mut out);
    match read {
        Ok(_) if out.len() > LARGEST => {
            Err(format!("its record batch has more than {LARGEST} bytes without compression"))
        }
        Ok(_) => Ok(out),
        Err(_) => Err("its record batch cannot be decompressed".to_owned()),
    }
}

/// The next record: its place after the first one, its time after that of the first one, its value. Headers and key are not read.
fn record<'a>(bytes: &mut &'a [u8]) -> Option<(i64, i64, Option<&'a [u8]>)> {
    let len = usize::try_from(signed(bytes)?).ok()?;
    let (mut record, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    // Attributes.
    record = record.get(1..)?;
    let (ms, delta) = (signed(&mut record)?, signed(&mut record)?);
    part(&mut record)?;
    let value = part(&mut record)?;
    Some((delta, ms, value))
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

/// A varint, zigzag.
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

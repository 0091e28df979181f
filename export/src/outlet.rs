//! Copies a partition of a topic into a table: reads batches whose borders are offsets, and names each batch.
//!
//! A [`Delivery`](crate::Delivery) delivers a partition as it delivers a stream of the store; a position is an offset, and the number of the
//! topic that had it: a topic that was made again begins anew. The number is drawn at random, since offsets and names are the same in any
//! other cluster, and in a topic that is read again without what was saved. The end of a batch is saved before it is sent, so that a repeat after a
//! crash is the same batch; its token is made from topic, partition, this number and these offsets, by which ClickHouse recognises it.
//!
//! Each offset that is passed counts once: as a record, also if it cannot be read; as left out, if there is no message; or as expired, if
//! Kafka deleted it before it was read.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::cursor::{Cursor, Position};
use crate::days::DayLimit;
use crate::delivery::{Keyed, Page};
use crate::json;
use crate::received::Received;
use crate::record::Stream;
use crate::sink::clickhouse::DAYS;
use crate::sink::kafka::log::{self, Message};
use crate::sink::kafka::name;
use crate::sink::kafka::protocol::fetch::Fetched;

/// A message of a partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// The offset of the message.
    pub offset: u64,
    /// The time of the message, ns since 1970.
    pub ts: u64,
    /// The record, unless it cannot be read.
    pub content: Result<Received, Unreadable>,
}

/// A message that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The reason why it cannot be read.
    pub words: String,
    /// The first bytes of the value.
    value: Box<[u8]>,
    /// The length of the value, bytes.
    len: usize,
}

/// Maximum number of bytes in memory of a value that cannot be read.
const KEPT: usize = 4096;
/// Maximum size of a batch that may have been sent, bytes, as they are counted here: no batch is longer, unless it has other borders.
const REPEATED: usize = 48 << 20;
/// Memory of a message beside its content, bytes: its entries in the lists of a batch, and what the allocator adds. It is so large that a row
/// of a request, while its columns are put together, has no more bytes than its record with this.
const OVERHEAD: usize = size_of::<Item>() + 320;
/// Maximum size by which a page exceeds its limit, bytes: that of its last message. Texts and lists are limited.
pub const BEYOND: usize = 64 << 10;
/// The number of batches in memory for each page: its records, and the request that they become.
pub const FORMS: usize = 2;

impl Unreadable {
    fn new(words: String, value: &[u8]) -> Self {
        Self {
            words,
            value: value[..value.len().min(KEPT)].into(),
            len: value.len(),
        }
    }
}

impl Keyed for Arc<Item> {
    /// Returns 0: a partition is one lane.
    fn key(&self) -> u64 {
        0
    }

    fn refusal(&self) -> Option<&str> {
        self.content.as_ref().err().map(|bad| bad.words.as_str())
    }
}

impl Item {
    fn new(stream: Stream, offset: u64, message: &Message<'_>) -> Self {
        let ts = u64::try_from(message.ms).unwrap_or(0).saturating_mul(1_000_000);
        let content = match message.value {
            Ok(value) => Received::read(stream, value).map_err(|error| Unreadable::new(error.0, value)),
            Err(words) => Err(Unreadable::new(words.to_owned(), &[])),
        };
        Self { offset, ts, content }
    }

    /// Returns its size in memory, bytes, with its entries in lists.
    fn bytes(&self) -> usize {
        OVERHEAD
            + match &self.content {
                Ok(record) => record.heap(),
                // The reason is there twice: cut off once more, in the list of rejected records.
                Err(bad) => 2 * bad.words.len() + bad.value.len() + OVERHEAD,
            }
    }

    /// Returns a line for the file of rejected messages.
    pub fn rejected(&self, topic: &str, partition: i32, words: &str) -> Vec<u8> {
        let mut line = b"{\"words\":".to_vec();
        json::write_text(words, &mut line);
        line.extend_from_slice(b",\"topic\":");
        json::write_text(topic, &mut line);
        line.extend_from_slice(format!(",\"partition\":{partition},\"offset\":{}", self.offset).as_bytes());
        match &self.content {
            Ok(record) => {
                line.extend_from_slice(b",\"record\":");
                json::write_fields(record, &mut line);
            }
            Err(bad) => {
                let value = STANDARD.encode(&bad.value);
                line.extend_from_slice(format!(",\"bytes\":{},\"value\":\"{value}\"", bad.len).as_bytes());
            }
        }
        line.extend_from_slice(b"}\n");
        line
    }
}

/// Returns the cursor of a partition that is read for the first time, from this offset on. `random`: drawn for it.
pub fn begin(row: u64, random: u64) -> Cursor {
    Cursor {
        settled: Position {
            file: (random >> 1).max(1),
            row,
        },
        batch_end: None,
    }
}

/// Returns the name of a request: equal for equal batches, also if Kafka has deleted a part of one meanwhile. `part`: first and last offset, if
/// it is not the whole batch, since that was refused.
pub fn token(topic: &str, partition: i32, batch: &Cursor, part: Option<(u64, u64)>) -> String {
    let from = batch.settled;
    let to = batch.batch_end.unwrap_or(from);
    let mut token = format!("{topic}-{partition}-{:016x}-{}-{}", from.file, from.row, to.row);
    if let Some((first, last)) = part {
        token.push_str(&format!("-part-{first}-{last}"));
    }
    token
}

/// The borders and limits of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// The position at which the page begins.
    pub from: Position,
    /// The position at which the page ends, whatever its length.
    pub until: Option<Position>,
    /// Without `until`, the maximum number of messages.
    pub records: usize,
    /// Without `until`, the maximum size in bytes, but at least one message.
    pub bytes: usize,
    /// A random number, which names the log if it is another one than before.
    pub random: u64,
}

/// The next step of reading a page.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Fetch the records from this offset on; then [`Reading::fetched`].
    Fetch(u64),
    /// Ask for the first and the last offset of the partition; then [`Reading::offsets`].
    Offsets,
    /// The page is complete.
    Page {
        /// The messages of the page.
        page: Page<Arc<Item>>,
        /// The partition begins anew, so that the number of lost messages is unknown.
        restarted: bool,
    },
    /// The partition cannot be read now, for this reason.
    Failed(String),
}

/// Reads a page of a partition.
#[derive(Debug)]
pub struct Reading {
    stream: Stream,
    request: PageRequest,
    at: u64,
    items: Vec<Arc<Item>>,
    size: usize,
    days: DayLimit,
    /// The next message is of one day too many.
    is_cut: bool,
    expired: u64,
    /// The offset after the last message of the partition.
    end: Option<u64>,
}

impl Reading {
    /// Begins to read a page. Returns the first step, too.
    pub fn new(stream: Stream, request: PageRequest) -> (Self, Step) {
        let at = request.from.row;
        let reading = Self {
            stream,
            request,
            at,
            items: Vec::new(),
            size: 0,
            days: DayLimit::new(DAYS),
            is_cut: false,
            expired: 0,
            end: None,
        };
        (reading, Step::Fetch(at))
    }

    /// Returns the end of the partition, if it is known.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// Returns the number of bytes that the page may still get.
    pub fn room(&self) -> usize {
        match self.until() {
            Some(_) => REPEATED.saturating_sub(self.size),
            None => self.request.bytes.saturating_sub(self.size),
        }
    }

    /// Ends the page because there is no more time, unless its end is fixed, or nothing was read.
    pub fn ends_here(&mut self) -> Option<Step> {
        let ends = self.until().is_none() && self.at > self.request.from.row;
        ends.then(|| self.page(false))
    }

    fn until(&self) -> Option<u64> {
        self.request.until.map(|until| until.row)
    }

    /// Processes the answer to a fetch.
    pub fn fetched(&mut self, fetched: &Fetched<'_>) -> Step {
        match fetched.error {
            0 => {}
            // Deleted, or an offset of another topic that had this name.
            1 => return Step::Offsets,
            76 => {
                let words = "the topic is compressed by zstd, which is not read here; set compression.type = producer, or lz4, for it";
                return Step::Failed(words.to_owned());
            }
            29 => return Step::Failed(format!("{}: allow this user to read the topic", name(29))),
            error => return Step::Failed(name(error).into_owned()),
        }
        let end = u64::try_from(fetched.end).unwrap_or(0);
        self.end = Some(end);
        let before = self.at;
        self.add(fetched.batches);
        if self.size > REPEATED
            && let Some(until) = self.until()
        {
            return Step::Failed(format!(
                "the batch that may have been sent, up to offset {until}, has more than {REPEATED} bytes, as no batch has: these are other \
                 messages. To read the partition from its beginning, stop the outlet and delete its file of the position"
            ));
        }
        if self.is_full() {
            return self.page(false);
        }
        match (self.at > before, self.at >= end, self.until()) {
            (_, true, None) => self.page(true),
            (_, true, Some(until)) => Step::Failed(format!(
                "the partition ends at {end}, before the end of the batch that may have been sent, {until}: it waits for the rest"
            )),
            (true, false, _) => Step::Fetch(self.at),
            (false, false, None) if fetched.batches.is_empty() => self.page(true),
            (false, false, _) if fetched.batches.is_empty() => {
                Step::Failed("it has no records now".to_owned())
            }
            (false, false, _) => Step::Failed(format!("there is no whole record batch at offset {before}")),
        }
    }

    /// Adds the messages of record batches, up to the end of the page.
    fn add(&mut self, batches: &[u8]) {
        let Self {
            stream,
            request,
            at,
            items,
            size,
            days,
            is_cut,
            ..
        } = self;
        let until = request.until.map(|until| until.row);
        let passed = log::messages(batches, i64::try_from(*at).unwrap_or(i64::MAX), |message| {
            let offset = u64::try_from(message.offset).unwrap_or(0);
            let goes_on = match until {
                Some(until) => offset < until && *size <= REPEATED,
                None => items.is_empty() || items.len() < request.records && *size < request.bytes,
            };
            if !goes_on {
                return false;
            }
            let item = Item::new(*stream, offset, &message);
            // By the records alone, so that each reading has the same borders.
            *is_cut = item.content.as_ref().is_ok_and(|record| !days.admit(record.ts()));
            if !*is_cut {
                *size += item.bytes();
                items.push(Arc::new(item));
            }
            !*is_cut
        });
        *at = u64::try_from(passed)
            .unwrap_or(*at)
            .min(until.unwrap_or(u64::MAX))
            .max(*at);
    }

    fn is_full(&self) -> bool {
        match self.until() {
            _ if self.is_cut => true,
            Some(until) => self.at >= until,
            None => self.items.len() >= self.request.records || self.size >= self.request.bytes,
        }
    }

    /// Processes the first offset of the partition, and the one after the last.
    pub fn offsets(&mut self, first: u64, end: u64) -> Step {
        self.end = Some(end);
        if self.at < first {
            let to = first.min(self.until().unwrap_or(first));
            self.expired += to - self.at;
            self.at = to;
            return if self.until() == Some(to) {
                self.page(false)
            } else {
                Step::Fetch(to)
            };
        }
        if self.at <= end {
            return Step::Fetch(self.at);
        }
        if !self.items.is_empty() {
            return self.page(false);
        }
        // Offsets only grow, so that these are of another log. Positions only grow, too.
        let PageRequest { from, random, .. } = self.request;
        let end = Position {
            file: from.file.saturating_add(1 + (random >> 16)),
            row: first,
        };
        let page = Page {
            records: Vec::new(),
            end,
            expired: 0,
            left_out: 0,
            bytes: 0,
            is_last: false,
        };
        Step::Page {
            page,
            restarted: true,
        }
    }

    fn page(&mut self, is_last: bool) -> Step {
        let records = std::mem::take(&mut self.items);
        let passed = self.at - self.request.from.row;
        let page = Page {
            left_out: passed.saturating_sub(self.expired + records.len() as u64),
            records,
            end: Position {
                file: self.request.from.file,
                row: self.at,
            },
            expired: self.expired,
            bytes: self.size,
            is_last,
        };
        Step::Page {
            page,
            restarted: false,
        }
    }
}

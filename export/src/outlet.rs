//! The outlet (Kafka to ClickHouse): reads batches with reproducible boundaries from a Kafka partition, and names each batch so
//! that ClickHouse can deduplicate it.
//!
//! A [`Delivery`](crate::Delivery) delivers a partition like a stream of the store. A position is an offset plus a random
//! number for this incarnation of the topic: a recreated topic starts again at offset 0, and another cluster has the same names
//! and offsets. The end of a batch is saved before it is sent, so a repeat after a crash is the same batch, with the same token
//! (topic, partition, incarnation and offsets) for ClickHouse's insert deduplication.
//!
//! Each passed offset counts once: as a record, even if unreadable; as left out, if it has no message (such as transaction
//! markers); or as expired, if Kafka deleted it before it was read.

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
use crate::sink::kafka::protocol::fetch::Fetched;
use crate::sink::kafka::{
    OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_COMPRESSION_TYPE, name,
};

/// Maximum bytes kept of an unreadable value.
const MAX_UNREADABLE_BYTES: usize = 4096;
/// Maximum size of a batch that may have been sent, bytes. No batch is larger, unless the messages are not the original ones.
const MAX_REPEATED_BATCH: usize = 48 << 20;
/// Memory of a message besides its content, bytes: entries in the batch's lists and the allocator's overhead. It also covers a
/// row's share while the columns of a request are built.
const MESSAGE_OVERHEAD: usize = size_of::<Item>() + 320;
/// Maximum overshoot of a page's size limit, bytes: its last message. Texts and lists are limited.
pub const MAX_OVERSHOOT: usize = 64 << 10;
/// Number of copies of each page in memory: its records, and the request.
pub const COPIES_PER_PAGE: usize = 2;

/// A message of a partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// The offset of the message.
    pub offset: u64,
    /// The time of the message, ns since 1970.
    pub ts: u64,
    /// The decoded record, or the error.
    pub content: Result<Received, Unreadable>,
}

/// A message that cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The reason why it cannot be read.
    pub reason: String,
    /// The first bytes of the value.
    value: Box<[u8]>,
    /// The length of the value, bytes.
    len: usize,
}

impl Unreadable {
    fn new(reason: String, value: &[u8]) -> Self {
        Self {
            reason,
            value: value[..value.len().min(MAX_UNREADABLE_BYTES)].into(),
            len: value.len(),
        }
    }
}

impl Keyed for Arc<Item> {
    /// Returns 0, because a partition is one lane.
    fn key(&self) -> u64 {
        0
    }

    fn refusal(&self) -> Option<&str> {
        self.content
            .as_ref()
            .err()
            .map(|unreadable| unreadable.reason.as_str())
    }
}

impl Item {
    fn new(stream: Stream, offset: u64, message: &Message<'_>) -> Self {
        let ts = u64::try_from(message.ms).unwrap_or(0).saturating_mul(1_000_000);
        let content = match message.value {
            Ok(value) => Received::read(stream, value).map_err(|error| Unreadable::new(error.0, value)),
            Err(reason) => Err(Unreadable::new(reason.to_owned(), &[])),
        };
        Self { offset, ts, content }
    }

    /// Returns the size in memory, bytes, with its list entries.
    fn bytes(&self) -> usize {
        MESSAGE_OVERHEAD
            + match &self.content {
                Ok(record) => record.heap(),
                // The reason is stored twice: also, truncated, in the list of rejected records.
                Err(unreadable) => 2 * unreadable.reason.len() + unreadable.value.len() + MESSAGE_OVERHEAD,
            }
    }

    /// Returns a line for the file of rejected messages.
    pub fn rejected(&self, topic: &str, partition: i32, reason: &str) -> Vec<u8> {
        let mut line = b"{\"words\":".to_vec();
        json::write_text(reason, &mut line);
        line.extend_from_slice(b",\"topic\":");
        json::write_text(topic, &mut line);
        line.extend_from_slice(format!(",\"partition\":{partition},\"offset\":{}", self.offset).as_bytes());
        match &self.content {
            Ok(record) => {
                line.extend_from_slice(b",\"record\":");
                json::write_fields(record, &mut line);
            }
            Err(unreadable) => {
                let value = STANDARD.encode(&unreadable.value);
                line.extend_from_slice(
                    format!(",\"bytes\":{},\"value\":\"{value}\"", unreadable.len).as_bytes(),
                );
            }
        }
        line.extend_from_slice(b"}\n");
        line
    }
}

/// Returns the initial cursor of a partition that is read for the first time from this offset. `random` becomes its incarnation
/// number.
pub fn begin(offset: u64, random: u64) -> Cursor {
    Cursor {
        settled: position((random >> 1).max(1), offset),
        batch_end: None,
    }
}

/// Returns the position of an offset in an incarnation of the topic. The fields of [`Position`] have the names of the store.
fn position(incarnation: u64, offset: u64) -> Position {
    Position {
        file: incarnation,
        row: offset,
    }
}

fn incarnation_of(position: Position) -> u64 {
    position.file
}

fn offset_of(position: Position) -> u64 {
    position.row
}

/// Returns the deduplication token of a request: equal for equal batches, even if Kafka deleted part of one meanwhile. `part`
/// is the first and last offset if the batch was split.
pub fn token(topic: &str, partition: i32, batch: &Cursor, part: Option<(u64, u64)>) -> String {
    let from = batch.settled;
    let to = batch.batch_end.unwrap_or(from);
    let incarnation = incarnation_of(from);
    let mut token = format!(
        "{topic}-{partition}-{incarnation:016x}-{}-{}",
        offset_of(from),
        offset_of(to)
    );
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
    /// Fixed end of the page, whatever its length.
    pub until: Option<Position>,
    /// Without `until`, the maximum number of messages.
    pub records: usize,
    /// Without `until`, the maximum size in bytes; at least one message is read.
    pub bytes: usize,
    /// A random number for a new incarnation, if the partition starts anew.
    pub random: u64,
}

/// The next step of reading a page.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Fetch the records from this offset on; then [`Reading::fetched`].
    Fetch(u64),
    /// Request the first and last offsets of the partition; then [`Reading::offsets`].
    Offsets,
    /// The page is complete.
    Page {
        /// The messages of the page.
        page: Page<Arc<Item>>,
        /// The topic was recreated, so the number of lost messages is unknown.
        restarted: bool,
    },
    /// The partition cannot be read now, for this reason.
    Failed(String),
}

/// State machine that reads one page of a partition.
#[derive(Debug)]
pub struct Reading {
    stream: Stream,
    request: PageRequest,
    /// The next offset to read.
    offset: u64,
    items: Vec<Arc<Item>>,
    /// Size of `items` in memory, bytes.
    size: usize,
    /// Limit of the days that one insert touches: each is a partition of the table.
    days: DayLimit,
    /// The next message would exceed the limit of days.
    is_cut: bool,
    /// Number of offsets that Kafka deleted before they were read.
    expired: u64,
    /// The offset after the last message of the partition.
    end: Option<u64>,
}

impl Reading {
    /// Starts to read a page. Returns the reading and its first step.
    pub fn new(stream: Stream, request: PageRequest) -> (Self, Step) {
        let offset = offset_of(request.from);
        let reading = Self {
            stream,
            request,
            offset,
            items: Vec::new(),
            size: 0,
            days: DayLimit::new(DAYS),
            is_cut: false,
            expired: 0,
            end: None,
        };
        (reading, Step::Fetch(offset))
    }

    /// Returns the end offset of the partition, if known.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// Returns the number of bytes that still fit in the page.
    pub fn space_left(&self) -> usize {
        match self.until() {
            Some(_) => MAX_REPEATED_BATCH.saturating_sub(self.size),
            None => self.request.bytes.saturating_sub(self.size),
        }
    }

    /// Ends the page early because time is up. Returns `None` if its end is fixed or nothing was read.
    pub fn end_early(&mut self) -> Option<Step> {
        let can_end = self.until().is_none() && self.offset > offset_of(self.request.from);
        can_end.then(|| self.finish_page(false))
    }

    /// Returns the offset of the page's fixed end, if it has one.
    fn until(&self) -> Option<u64> {
        self.request.until.map(offset_of)
    }

    /// Processes a fetch response.
    pub fn fetched(&mut self, fetched: &Fetched<'_>) -> Step {
        match fetched.error {
            0 => {}
            // The messages were deleted, or the topic was recreated.
            OFFSET_OUT_OF_RANGE => return Step::Offsets,
            UNSUPPORTED_COMPRESSION_TYPE => {
                let reason = "the topic is compressed by zstd, which is not read here; set compression.type = producer, or lz4, for it";
                return Step::Failed(reason.to_owned());
            }
            TOPIC_AUTHORIZATION_FAILED => {
                let error = name(TOPIC_AUTHORIZATION_FAILED);
                return Step::Failed(format!("{error}: allow this user to read the topic"));
            }
            error => return Step::Failed(name(error).into_owned()),
        }
        let end = u64::try_from(fetched.end).unwrap_or(0);
        self.end = Some(end);
        let start = self.offset;
        self.add(fetched.batches);
        if self.size > MAX_REPEATED_BATCH
            && let Some(until) = self.until()
        {
            return Step::Failed(format!(
                "the batch that may have been sent, up to offset {until}, has more than {MAX_REPEATED_BATCH} bytes, the most that a batch of hopwise \
                 has, so the messages of the topic have changed. To read the partition from its beginning, stop the outlet and delete its file of the position"
            ));
        }
        if self.is_full() {
            return self.finish_page(false);
        }
        match (self.offset > start, self.offset >= end, self.until()) {
            (_, true, None) => self.finish_page(true),
            (_, true, Some(until)) => Step::Failed(format!(
                "the partition ends at {end}, before the end of the batch that may have been sent, {until}: it waits for the rest"
            )),
            (true, false, _) => Step::Fetch(self.offset),
            (false, false, None) if fetched.batches.is_empty() => self.finish_page(true),
            (false, false, _) if fetched.batches.is_empty() => {
                Step::Failed("it has no records now".to_owned())
            }
            (false, false, _) => Step::Failed(format!("there is no whole record batch at offset {start}")),
        }
    }

    /// Adds the messages of record batches, up to the end of the page.
    fn add(&mut self, batches: &[u8]) {
        let until = self.until();
        let first = i64::try_from(self.offset).unwrap_or(i64::MAX);
        let end = log::messages(batches, first, |message| {
            let offset = u64::try_from(message.offset).unwrap_or(0);
            let has_space = self.items.len() < self.request.records && self.size < self.request.bytes;
            let fits = match until {
                Some(until) => offset < until && self.size <= MAX_REPEATED_BATCH,
                None => self.items.is_empty() || has_space,
            };
            if !fits {
                return false;
            }
            let item = Item::new(self.stream, offset, &message);
            // Depends only on the records, so that every reading has the same boundaries.
            let record = item.content.as_ref();
            self.is_cut = record.is_ok_and(|record| !self.days.admit(record.ts()));
            if !self.is_cut {
                self.size += item.bytes();
                self.items.push(Arc::new(item));
            }
            !self.is_cut
        });
        self.offset = u64::try_from(end)
            .unwrap_or(self.offset)
            .min(until.unwrap_or(u64::MAX))
            .max(self.offset);
    }

    fn is_full(&self) -> bool {
        match self.until() {
            _ if self.is_cut => true,
            Some(until) => self.offset >= until,
            None => self.items.len() >= self.request.records || self.size >= self.request.bytes,
        }
    }

    /// Processes the first offset of the partition, and the one after the last.
    pub fn offsets(&mut self, first: u64, end: u64) -> Step {
        self.end = Some(end);
        if self.offset < first {
            let to = first.min(self.until().unwrap_or(first));
            self.expired += to - self.offset;
            self.offset = to;
            return if self.until() == Some(to) {
                self.finish_page(false)
            } else {
                Step::Fetch(to)
            };
        }
        if self.offset <= end {
            return Step::Fetch(self.offset);
        }
        if !self.items.is_empty() {
            return self.finish_page(false);
        }
        // Offsets only grow, so the topic was recreated. Positions must grow, too: raise the incarnation.
        let PageRequest { from, random, .. } = self.request;
        let incarnation = incarnation_of(from).saturating_add(1 + (random >> 16));
        let end = position(incarnation, first);
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

    fn finish_page(&mut self, is_last: bool) -> Step {
        let records = std::mem::take(&mut self.items);
        let passed = self.offset - offset_of(self.request.from);
        let page = Page {
            left_out: passed.saturating_sub(self.expired + records.len() as u64),
            records,
            end: position(incarnation_of(self.request.from), self.offset),
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

//! Kafka producer: each record is a message in the topic of its stream, `hopwise.events.v1` and so on.
//!
//! * <https://kafka.apache.org/documentation/#messageformat> (record batches, version 2),
//!   <https://kafka.apache.org/protocol.html>
//!
//! The value is one record as protobuf (without a length prefix) or as a JSON object. The key is the flow as text, or else the
//! node, or else the reporter's address; for an alert, the rule and its subject. The partition is chosen by murmur2 of the key,
//! like other producers do. The timestamp is the event time, ms. Headers are `id`, `schema` (the protobuf message name) and
//! `collector`.
//!
//! A batch is sent as an [`Exchange`]: its records are divided among partitions and cut into chunks of less than 900 kB, since
//! brokers refuse more than 1 MB. Each partition has one chunk in flight, and nothing is sent after a failed chunk before it
//! succeeds, which keeps the order per key. Chunks have sequence numbers ([`Producer`]), so brokers discard repeats.
//! Duplicates, with equal header `id`, occur only after a restart of the process, or if a topic gets more partitions while one
//! of its leaders does not answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;

use super::Batch;
use crate::outcome::Outcome;
use crate::record::{Record, Stream};
use crate::text::{self, address, address_of, decimal, hex};
use crate::{json, protobuf};

pub mod log;
pub mod protocol;
pub mod scram;

use protocol::{Produced, ProducerId};

/// The error code `UNKNOWN_TOPIC_OR_PARTITION`.
pub const UNKNOWN_TOPIC: i16 = 3;
/// The error code `OFFSET_OUT_OF_RANGE`.
pub const OFFSET_OUT_OF_RANGE: i16 = 1;
/// The error code `UNSUPPORTED_COMPRESSION_TYPE`.
pub const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
/// The error code `TOPIC_AUTHORIZATION_FAILED`.
pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
/// The error code `CLUSTER_AUTHORIZATION_FAILED`.
pub const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
/// Maximum size of a chunk's messages before compression, bytes.
const MAX_CHUNK_BYTES: usize = 900_000;
/// Maximum size of a message's fields other than key, value and headers, bytes.
const MESSAGE_OVERHEAD: usize = 32;
/// Bytes before the value of the header `id`: the number of headers (3), length and text of its name, and length of its value
/// (16), as zigzag varints.
const ID_HEADER_PREFIX: &[u8] = b"\x06\x04id\x20";

/// The options of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The prefix of names of topics, before a `.`.
    pub prefix: String,
    /// The form of the values.
    pub format: Format,
    /// The compression of record batches.
    pub compression: Compression,
    /// True if messages have keys. Without keys they are spread evenly, in no order.
    pub keys: bool,
}

impl Default for Options {
    fn default() -> Self {
        let format = Format::Protobuf;
        let compression = Compression::Lz4;
        Self {
            prefix: "hopwise".to_owned(),
            format,
            compression,
            keys: true,
        }
    }
}

settings::choice! {
    /// The form of values.
    pub enum Format("\"protobuf\" or \"json\"") {
        /// A message of `record.proto`.
        Protobuf = "protobuf",
        /// An object of JSON.
        Json = "json",
    }
}

settings::choice! {
    /// The compression of record batches.
    pub enum Compression("\"lz4\" or \"none\"") {
        /// Compression with LZ4 frames.
        Lz4 = "lz4",
        /// No compression is used.
        None = "none",
    }
}

/// The sink for Kafka.
#[derive(Debug)]
pub struct Kafka {
    options: Options,
}

impl Kafka {
    /// Creates a sink with these options.
    ///
    /// # Errors
    /// The options are invalid; the message says what to do.
    pub fn new(options: &Options) -> Result<Self, String> {
        let prefix = &options.prefix;
        let is_allowed = prefix
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !(1..=200).contains(&prefix.len()) || !is_allowed {
            return Err(format!(
                "`prefix` is {prefix:?}; use 1 to 200 letters, digits, `.`, `_` and `-`"
            ));
        }
        Ok(Self {
            options: options.clone(),
        })
    }

    /// Returns the topic of a stream.
    pub fn topic(&self, stream: Stream) -> String {
        format!("{}.{}.v1", self.options.prefix, stream.name())
    }

    /// Returns the settings of a stream's topic that differ from the server's defaults.
    pub fn settings(&self, stream: Stream) -> &'static [(&'static str, &'static str)] {
        match stream {
            // Only the latest state of each flow matters. A compacted topic requires keys.
            Stream::Flows if self.options.keys => &[("cleanup.policy", "compact")],
            _ => &[],
        }
    }

    /// Returns the Kafka command that creates the topic of a stream.
    pub fn statement(&self, stream: Stream, partitions: u32) -> String {
        let mut text = format!(
            "kafka-topics.sh --create --if-not-exists --topic {}",
            self.topic(stream)
        );
        if partitions > 0 {
            text.push_str(&format!(" --partitions {partitions}"));
        }
        for (name, value) in self.settings(stream) {
            text.push_str(&format!(" --config {name}={value}"));
        }
        text
    }

    /// Encodes the messages of these records, or returns `None` if there are none.
    pub fn begin(&self, batch: &Batch<'_>) -> Option<Exchange> {
        if batch.records.is_empty() {
            return None;
        }
        let after_id = headers_after_id(batch);
        let mut bytes = Vec::with_capacity(256 * batch.records.len());
        let mut messages = Vec::with_capacity(batch.records.len());
        let mut scratch = Vec::new();
        for record in batch.records {
            let start = bytes.len();
            scratch.clear();
            if self.options.keys {
                write_key(record, &mut scratch);
                write_bytes(Some(&scratch), &mut bytes);
            } else {
                // Used only to choose the partition.
                scratch.extend(record.id().to_be_bytes());
                write_bytes(None, &mut bytes);
            }
            let hash = murmur2(&scratch);
            scratch.clear();
            match self.options.format {
                Format::Protobuf => protobuf::write(record, batch.collector, &mut scratch),
                Format::Json => json::write(record, batch.collector, &mut scratch),
            }
            write_bytes(Some(&scratch), &mut bytes);
            let id = record.id();
            bytes.extend_from_slice(ID_HEADER_PREFIX);
            hex(id, &mut bytes);
            bytes.extend_from_slice(&after_id);
            let ms = i64::try_from(record.ts() / 1_000_000).unwrap_or(i64::MAX);
            messages.push(Message {
                start,
                end: bytes.len(),
                ms,
                hash,
                id,
            });
        }
        Some(Exchange {
            compression: self.options.compression,
            bytes,
            messages,
            chunks: BTreeMap::new(),
            rejected: Vec::new(),
            retry: Vec::new(),
            denied: false,
            reason: String::new(),
        })
    }
}

/// A message without the fields that depend on its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    /// Range of its key, value and headers in the exchange's bytes.
    start: usize,
    end: usize,
    ms: i64,
    /// The hash of the key.
    hash: u32,
    id: u64,
}

/// The messages of a batch, with the outcome of each so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    compression: Compression,
    bytes: Vec<u8>,
    /// In the order of the records.
    messages: Vec<Message>,
    /// Chunks to send, by partition, as indices of records.
    chunks: BTreeMap<i32, VecDeque<Vec<usize>>>,
    /// Indices of records that the broker rejected, with the reasons.
    rejected: Vec<(usize, String)>,
    /// Indices of records to send again.
    retry: Vec<usize>,
    /// True if the broker refused this user.
    denied: bool,
    /// Reason of the last transient failure.
    reason: String,
}

impl Exchange {
    /// Returns the memory of the uncompressed messages, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Distributes the messages over this many partitions, each cut into chunks.
    pub fn spread(&mut self, partitions: usize) {
        let mut sizes: BTreeMap<i32, usize> = BTreeMap::new();
        self.chunks.clear();
        for (index, message) in self.messages.iter().enumerate() {
            let partition = (message.hash & 0x7fff_ffff) as usize % partitions.max(1);
            let partition = i32::try_from(partition).unwrap_or(0);
            let len = message.end - message.start + MESSAGE_OVERHEAD;
            let size = sizes.entry(partition).or_default();
            let chunks = self.chunks.entry(partition).or_default();
            match chunks.back_mut() {
                Some(chunk) if *size + len <= MAX_CHUNK_BYTES => {
                    chunk.push(index);
                    *size += len;
                }
                _ => {
                    chunks.push_back(vec![index]);
                    *size = len;
                }
            }
        }
    }

    /// Returns the partitions that have chunks to send.
    pub fn partitions(&self) -> Vec<i32> {
        self.chunks.keys().copied().collect()
    }

    /// Returns a hash of the next chunk of a partition; a repeat of the same chunk has the same hash.
    pub fn fingerprint(&self, partition: i32) -> u64 {
        let chunk = self.chunks.get(&partition).and_then(VecDeque::front);
        let ids = chunk
            .into_iter()
            .flatten()
            .filter_map(|index| self.messages.get(*index));
        // A variant of FNV-1a over 64-bit words.
        ids.fold(0xcbf2_9ce4_8422_2325, |hash: u64, message| {
            (hash ^ message.id).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        })
    }

    /// Returns the number of messages in the next chunk of a partition.
    pub fn count(&self, partition: i32) -> usize {
        self.chunks
            .get(&partition)
            .and_then(VecDeque::front)
            .map_or(0, Vec::len)
    }

    /// Appends the next chunk of a partition as a record batch (version 2).
    pub fn write(&self, partition: i32, producer: Option<(ProducerId, i32)>, out: &mut Vec<u8>) {
        let chunk = self
            .chunks
            .get(&partition)
            .and_then(VecDeque::front)
            .map_or(&[][..], Vec::as_slice);
        let messages: Vec<&Message> = chunk
            .iter()
            .filter_map(|index| self.messages.get(*index))
            .collect();
        let first = messages.first().map_or(0, |message| message.ms);
        let latest = messages.iter().map(|message| message.ms).max().unwrap_or(0);
        let mut records = Vec::new();
        for (offset, message) in messages.iter().enumerate() {
            let tail = self.bytes.get(message.start..message.end).unwrap_or_default();
            let mut head = [0; MESSAGE_OVERHEAD];
            let len = {
                let mut head = &mut head[..];
                let all = head.len();
                // Attributes, then time and offset relative to the first record.
                _ = head.write_all(&[0]);
                write_varint_into(message.ms - first, &mut head);
                write_varint_into(offset as i64, &mut head);
                all - head.len()
            };
            write_varint((len + tail.len()) as i64, &mut records);
            records.extend_from_slice(&head[..len]);
            records.extend_from_slice(tail);
        }
        // Field names as in Kafka's documentation. Length and CRC are patched at the end.
        out.extend(0_i64.to_be_bytes()); // baseOffset; the broker assigns it.
        let length_at = out.len();
        out.extend([0; 4]); // batchLength
        let length_end = out.len();
        out.extend((-1_i32).to_be_bytes()); // partitionLeaderEpoch; a producer does not know it.
        out.push(2); // magic
        let crc_at = out.len();
        out.extend([0; 4]); // crc
        let crc_end = out.len();
        let (compressed, code) = match self.compression {
            Compression::None => (records, 0_i16),
            Compression::Lz4 => match lz4(&records) {
                Some(compressed) => (compressed, 3),
                None => (records, 0),
            },
        };
        out.extend(code.to_be_bytes()); // attributes
        out.extend((messages.len().saturating_sub(1) as i32).to_be_bytes()); // lastOffsetDelta
        out.extend(first.to_be_bytes()); // baseTimestamp
        out.extend(latest.to_be_bytes()); // maxTimestamp
        let (id, epoch, sequence) = producer.map_or((-1, -1, -1), |(producer, sequence)| {
            (producer.id, producer.epoch, sequence)
        });
        out.extend(id.to_be_bytes()); // producerId
        out.extend(epoch.to_be_bytes()); // producerEpoch
        out.extend(sequence.to_be_bytes()); // baseSequence
        out.extend((messages.len() as i32).to_be_bytes()); // recordsCount
        out.extend_from_slice(&compressed);
        let len = (out.len() - length_end) as u32;
        out[length_at..length_end].copy_from_slice(&len.to_be_bytes());
        let crc = wire::crc::crc_32c(&out[crc_end..]);
        out[crc_at..crc_end].copy_from_slice(&crc.to_be_bytes());
    }

    /// Processes the response for a partition's chunk.
    pub fn produced(&mut self, topic: &str, produced: &Produced) -> Verdict {
        let Produced {
            partition,
            error,
            reason,
        } = produced;
        let mut message = name(*error).into_owned();
        if !reason.is_empty() {
            message += &format!(": {reason}");
        }
        match kind(*error) {
            Kind::Stored => {
                self.advance(*partition);
                Verdict::Stored
            }
            Kind::Permanent => {
                self.split_refused(*partition, &message);
                Verdict::NotStored
            }
            Kind::Denied => {
                self.failed(
                    *partition,
                    &format!("{message}; allow this user to write to topic {topic}"),
                );
                self.denied = true;
                Verdict::NotStored
            }
            Kind::Moved => {
                self.failed(*partition, &message);
                Verdict::Moved
            }
            Kind::Forgotten => {
                self.failed(*partition, &message);
                Verdict::Forgotten
            }
            Kind::Retry => {
                self.failed(*partition, &message);
                Verdict::Unknown
            }
        }
    }

    fn advance(&mut self, partition: i32) {
        if let Some(chunks) = self.chunks.get_mut(&partition) {
            chunks.pop_front();
            if chunks.is_empty() {
                self.chunks.remove(&partition);
            }
        }
    }

    /// Halves a chunk that the server refuses permanently, or rejects its message if it has only one.
    fn split_refused(&mut self, partition: i32, reason: &str) {
        let Some(mut chunk) = self.chunks.get_mut(&partition).and_then(VecDeque::pop_front) else {
            return;
        };
        if chunk.len() < 2 {
            self.rejected
                .extend(chunk.pop().map(|index| (index, reason.to_owned())));
        } else if let Some(chunks) = self.chunks.get_mut(&partition) {
            let second = chunk.split_off(chunk.len() / 2);
            chunks.push_front(second);
            chunks.push_front(chunk);
        }
        if self.chunks.get(&partition).is_some_and(VecDeque::is_empty) {
            self.chunks.remove(&partition);
        }
    }

    /// Postpones all chunks of a partition to the next request, since later chunks must not overtake the failed one.
    pub fn failed(&mut self, partition: i32, reason: &str) {
        self.retry
            .extend(self.chunks.remove(&partition).into_iter().flatten().flatten());
        reason.clone_into(&mut self.reason);
    }

    /// Returns the outcome of all records.
    pub fn outcome(&mut self) -> Outcome {
        for partition in self.partitions() {
            self.failed(partition, "it was not sent");
        }
        let rejected = std::mem::take(&mut self.rejected);
        let mut retry = std::mem::take(&mut self.retry);
        retry.sort_unstable();
        let reason = std::mem::take(&mut self.reason);
        if retry.len() == self.messages.len() {
            if self.denied {
                return Outcome::Unauthorised { reason };
            }
            return Outcome::failed(reason);
        }
        let reason = if retry.is_empty() { String::new() } else { reason };
        Outcome::Settled {
            rejected,
            retry,
            reason,
            retry_after: None,
        }
    }
}

/// Effect of a response on a partition's sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The chunk is stored.
    Stored,
    /// The chunk is not stored and will not be in this form.
    NotStored,
    /// The chunk may be stored.
    Unknown,
    /// The chunk may be stored, and another broker leads the partition.
    Moved,
    /// The broker no longer knows this producer; a new producer ID is needed.
    Forgotten,
}

/// Idempotent producer state: sequence numbers by partition. A chunk with an unknown outcome keeps its number.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Producer {
    id: Option<ProducerId>,
    sequences: BTreeMap<i32, Sequence>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sequence {
    /// The sequence number of the next chunk.
    next: i32,
    /// Fingerprint of the chunk that may have been sent with this number.
    pending: Option<u64>,
}

impl Producer {
    /// Returns the producer id, or `None` if the broker must be asked for one.
    pub fn id(&self) -> Option<ProducerId> {
        self.id
    }

    /// Sets a new producer ID and restarts all sequences.
    pub fn begin(&mut self, id: ProducerId) {
        *self = Self {
            id: Some(id),
            sequences: BTreeMap::new(),
        };
    }

    /// Forgets the producer id and the sequences.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the sequence number for a chunk sent now. Returns `None` if another chunk may have been stored with that number;
    /// then the producer needs a new ID.
    pub fn sequence(&mut self, partition: i32, fingerprint: u64) -> Option<i32> {
        let sequence = self.sequences.entry(partition).or_default();
        if sequence.pending.is_some_and(|pending| pending != fingerprint) {
            return None;
        }
        sequence.pending = Some(fingerprint);
        Some(sequence.next)
    }

    /// Processes the verdict on a chunk of `count` messages.
    pub fn answered(&mut self, partition: i32, count: usize, verdict: Verdict) {
        match verdict {
            Verdict::Stored => {
                let count = i32::try_from(count).unwrap_or(0);
                let sequence = self.sequences.entry(partition).or_default();
                // Sequence numbers wrap from `i32::MAX` to 0.
                let next = (i64::from(sequence.next) + i64::from(count)) & i64::from(i32::MAX);
                *sequence = Sequence {
                    next: i32::try_from(next).unwrap_or(0),
                    pending: None,
                };
            }
            Verdict::NotStored => self.sequences.entry(partition).or_default().pending = None,
            Verdict::Unknown | Verdict::Moved => {}
            Verdict::Forgotten => self.forget(),
        }
    }
}

/// The reaction to an error code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The chunk is stored.
    Stored,
    /// The chunk is refused permanently.
    Permanent,
    /// This user may not write.
    Denied,
    /// Another broker leads the partition, or the topic changed: refresh the metadata.
    Moved,
    /// The broker no longer accepts this producer or its sequence number.
    Forgotten,
    /// The same request may succeed later.
    Retry,
}

/// An error code of Kafka, its name in the documentation, and the reaction.
struct ErrorCode {
    code: i16,
    name: &'static str,
    kind: Kind,
}

impl ErrorCode {
    const fn new(code: i16, name: &'static str, kind: Kind) -> Self {
        Self { code, name, kind }
    }
}

/// The error codes of <https://kafka.apache.org/protocol.html#protocol_error_codes>. A duplicate sequence number means that an earlier
/// request stored the chunk.
const ERRORS: [ErrorCode; 51] = {
    use Kind::{Denied, Forgotten, Moved, Permanent, Retry, Stored};
    [
        ErrorCode::new(-1, "UNKNOWN_SERVER_ERROR", Retry),
        ErrorCode::new(0, "no error", Stored),
        ErrorCode::new(OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", Retry),
        ErrorCode::new(2, "CORRUPT_MESSAGE", Retry),
        ErrorCode::new(3, "UNKNOWN_TOPIC_OR_PARTITION", Moved),
        ErrorCode::new(5, "LEADER_NOT_AVAILABLE", Moved),
        ErrorCode::new(6, "NOT_LEADER_OR_FOLLOWER", Moved),
        ErrorCode::new(7, "REQUEST_TIMED_OUT", Retry),
        ErrorCode::new(8, "BROKER_NOT_AVAILABLE", Moved),
        ErrorCode::new(9, "REPLICA_NOT_AVAILABLE", Moved),
        ErrorCode::new(10, "MESSAGE_TOO_LARGE", Permanent),
        ErrorCode::new(13, "NETWORK_EXCEPTION", Moved),
        ErrorCode::new(14, "COORDINATOR_LOAD_IN_PROGRESS", Retry),
        ErrorCode::new(15, "COORDINATOR_NOT_AVAILABLE", Retry),
        ErrorCode::new(16, "NOT_COORDINATOR", Retry),
        ErrorCode::new(17, "INVALID_TOPIC_EXCEPTION", Retry),
        ErrorCode::new(18, "RECORD_LIST_TOO_LARGE", Permanent),
        ErrorCode::new(19, "NOT_ENOUGH_REPLICAS", Retry),
        ErrorCode::new(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Retry),
        ErrorCode::new(21, "INVALID_REQUIRED_ACKS", Retry),
        ErrorCode::new(TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED", Denied),
        ErrorCode::new(31, "CLUSTER_AUTHORIZATION_FAILED", Denied),
        ErrorCode::new(32, "INVALID_TIMESTAMP", Permanent),
        ErrorCode::new(33, "UNSUPPORTED_SASL_MECHANISM", Retry),
        ErrorCode::new(34, "ILLEGAL_SASL_STATE", Retry),
        ErrorCode::new(35, "UNSUPPORTED_VERSION", Retry),
        ErrorCode::new(36, "TOPIC_ALREADY_EXISTS", Retry),
        ErrorCode::new(37, "INVALID_PARTITIONS", Retry),
        ErrorCode::new(38, "INVALID_REPLICATION_FACTOR", Retry),
        ErrorCode::new(40, "INVALID_CONFIG", Retry),
        ErrorCode::new(41, "NOT_CONTROLLER", Retry),
        ErrorCode::new(42, "INVALID_REQUEST", Retry),
        ErrorCode::new(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Retry),
        ErrorCode::new(44, "POLICY_VIOLATION", Permanent),
        ErrorCode::new(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Forgotten),
        ErrorCode::new(46, "DUPLICATE_SEQUENCE_NUMBER", Stored),
        ErrorCode::new(47, "INVALID_PRODUCER_EPOCH", Forgotten),
        ErrorCode::new(49, "INVALID_PRODUCER_ID_MAPPING", Forgotten),
        ErrorCode::new(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Denied),
        ErrorCode::new(56, "KAFKA_STORAGE_ERROR", Moved),
        ErrorCode::new(58, "SASL_AUTHENTICATION_FAILED", Denied),
        ErrorCode::new(59, "UNKNOWN_PRODUCER_ID", Forgotten),
        ErrorCode::new(72, "LISTENER_NOT_FOUND", Moved),
        ErrorCode::new(74, "FENCED_LEADER_EPOCH", Moved),
        ErrorCode::new(75, "UNKNOWN_LEADER_EPOCH", Moved),
        ErrorCode::new(
            UNSUPPORTED_COMPRESSION_TYPE,
            "UNSUPPORTED_COMPRESSION_TYPE",
            Retry,
        ),
        ErrorCode::new(78, "OFFSET_NOT_AVAILABLE", Retry),
        ErrorCode::new(87, "INVALID_RECORD", Permanent),
        ErrorCode::new(89, "THROTTLING_QUOTA_EXCEEDED", Retry),
        ErrorCode::new(90, "PRODUCER_FENCED", Forgotten),
        ErrorCode::new(100, "UNKNOWN_TOPIC_ID", Moved),
    ]
};

fn kind(error: i16) -> Kind {
    ERRORS
        .iter()
        .find(|known| known.code == error)
        .map_or(Kind::Retry, |known| known.kind)
}

/// Returns the name of an error code, or its number if unknown.
pub fn name(error: i16) -> Cow<'static, str> {
    match ERRORS.iter().find(|known| known.code == error) {
        Some(known) => Cow::Borrowed(known.name),
        None => Cow::Owned(format!("error {error} of Kafka")),
    }
}

/// Encodes the other two headers, which are the same for a whole batch.
fn headers_after_id(batch: &Batch<'_>) -> Vec<u8> {
    let schema = format!("hopwise.v1.{}", batch.stream.message());
    let mut headers = Vec::new();
    for text in ["schema", &schema, "collector", batch.collector] {
        write_bytes(Some(text.as_bytes()), &mut headers);
    }
    headers
}

/// Writes the key as text: the flow, or else the node, or else the reporter's address. An alert's key begins with its rule.
fn write_key(record: &Record, out: &mut Vec<u8>) {
    if let Record::Alert(alert) = record {
        out.extend_from_slice(alert.rule.as_bytes());
        out.push(b' ');
    }
    match (record.flow(), record.node(), record) {
        (Some(flow), ..) => text::flow(flow, out),
        (None, Some(node), _) => decimal(node.into(), out),
        (None, None, Record::Loss(loss)) => address(address_of(&loss.source), out),
        (None, None, _) => {}
    }
}

/// Appends bytes prefixed by their length; `None` is null.
fn write_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    write_varint(bytes.map_or(-1, |bytes| bytes.len() as i64), out);
    out.extend_from_slice(bytes.unwrap_or_default());
}

/// Appends a number as a zigzag varint.
fn write_varint(value: i64, out: &mut Vec<u8>) {
    protobuf::varint(((value << 1) ^ (value >> 63)) as u64, out);
}

/// Writes a zigzag varint of at most ten bytes to the start of `out`, and advances it.
fn write_varint_into(value: i64, out: &mut &mut [u8]) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7f {
        _ = out.write_all(&[rest as u8 | 0x80]);
        rest >>= 7;
    }
    _ = out.write_all(&[rest as u8]);
}

fn lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::with_capacity(bytes.len() / 2));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// Murmur2 as in Kafka's own producer, which chooses the partition of a key.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (mixed ^ mixed >> 24).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest
            .iter()
            .rev()
            .fold(0, |last, byte| last << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_name_or_its_number() {
        let names = [14, 15, -1, 132].map(name);
        assert_eq!(
            names,
            [
                "COORDINATOR_LOAD_IN_PROGRESS",
                "COORDINATOR_NOT_AVAILABLE",
                "UNKNOWN_SERVER_ERROR",
                "error 132 of Kafka"
            ]
        );
    }

    /// The cases are copied from Kafka's test of its murmur2 hash.
    #[test]
    fn a_key_has_the_partition_of_other_producers() {
        let cases: [(&[u8], i32); 6] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
    }

    #[test]
    fn a_chunk_keeps_its_number_until_it_is_known_to_be_stored() {
        let mut producer = Producer::default();
        producer.begin(ProducerId { id: 7, epoch: 0 });
        assert_eq!(producer.sequence(0, 11), Some(0));
        producer.answered(0, 3, Verdict::Unknown);
        assert_eq!(
            producer.sequence(0, 12),
            None,
            "another chunk may not have the number of one that is unknown"
        );
        assert_eq!(producer.sequence(0, 11), Some(0));
        producer.answered(0, 3, Verdict::Stored);
        assert_eq!(producer.sequence(0, 12), Some(3));
        producer.answered(0, 1, Verdict::NotStored);
        assert_eq!(
            (producer.sequence(0, 13), producer.sequence(1, 13)),
            (Some(3), Some(0))
        );
        producer.sequences.insert(
            2,
            Sequence {
                next: i32::MAX - 1,
                pending: None,
            },
        );
        producer.answered(2, 3, Verdict::Stored);
        assert_eq!(producer.sequence(2, 1), Some(1));
        producer.answered(0, 1, Verdict::Forgotten);
        assert_eq!(producer, Producer::default());
    }
}

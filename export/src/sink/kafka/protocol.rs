//! Kafka wire protocol: encodes requests and decodes responses. Each is a frame: a 4-byte length, then, after the request's API
//! key and version, a correlation ID that the response repeats.
//!
//! <https://kafka.apache.org/protocol.html>. The versions are those that Kafka 1.0 to 4 share, before flexible ones.

pub mod fetch;

use std::collections::BTreeMap;

use crate::sink::one_line;

/// Maximum response size, bytes. Responses to a sink are short, but a topic may have thousands of partitions.
pub const MAX_ANSWER: usize = 16 << 20;
/// Maximum number of partitions per topic.
const MAX_PARTITIONS: usize = 100_000;
/// Maximum number of brokers.
const MAX_BROKERS: usize = 10_000;
/// Maximum number of SASL mechanisms in a response.
const MAX_MECHANISMS: usize = 100;

/// The error code of success.
const NO_ERROR: i16 = 0;
/// Length of a null STRING.
const NULL_STRING: i16 = -1;
/// Acknowledgement by all in-sync replicas (`acks` of Produce).
const ACKS_ALL: i16 = -1;
/// Number of partitions, or replication factor, that means the broker's default (CreateTopics).
const BROKER_DEFAULT: i32 = -1;
/// BOOLEAN false.
const FALSE: u8 = 0;

/// Error: the bytes are not a valid response to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(
    /// The reason as a sentence.
    pub &'static str,
);

/// A request type with its API key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// Appends records to partitions.
    Produce = 0,
    /// Reads records of partitions.
    Fetch = 1,
    /// Returns the first or last offset of a partition.
    ListOffsets = 2,
    /// Returns the brokers and the leaders of partitions.
    Metadata = 3,
    /// Starts an authentication by SASL.
    SaslHandshake = 17,
    /// Returns the request types and versions of the broker.
    ApiVersions = 18,
    /// Creates the topics of the export.
    CreateTopics = 19,
    /// Assigns a producer ID.
    InitProducerId = 22,
    /// Performs a step of SASL authentication.
    SaslAuthenticate = 36,
}

impl Api {
    const ALL: [Self; 9] = [
        Self::Produce,
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::SaslHandshake,
        Self::ApiVersions,
        Self::CreateTopics,
        Self::InitProducerId,
        Self::SaslAuthenticate,
    ];

    /// Returns the lowest and highest version implemented here.
    fn supported_versions(self) -> (i16, i16) {
        match self {
            Self::Produce => (3, 8),
            Self::Fetch => (4, 11),
            Self::Metadata | Self::CreateTopics => (4, 4),
            Self::ListOffsets | Self::SaslHandshake => (1, 1),
            Self::ApiVersions | Self::SaslAuthenticate => (0, 0),
            Self::InitProducerId => (0, 1),
        }
    }
}

/// The highest version of each request type that both sides support.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Versions(BTreeMap<i16, i16>);

impl Versions {
    /// Returns the version to use for a request type, or `None` if there is no common one.
    pub fn get(&self, api: Api) -> Option<i16> {
        self.0.get(&(api as i16)).copied()
    }
}

/// Brokers and partition leaders of a topic.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Topology {
    /// Brokers by node ID: `host:port`.
    pub brokers: BTreeMap<i32, String>,
    /// The error code of the topic: 0 if it exists.
    pub error: i16,
    /// Node ID of each partition's leader; -1 if it has none now.
    pub leaders: Vec<i32>,
}

/// The result of appending records to a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Produced {
    /// The number of the partition.
    pub partition: i32,
    /// Error code; 0 if the records are stored.
    pub error: i16,
    /// The server's message, which may be empty.
    pub reason: String,
}

/// Producer ID and epoch of an idempotent producer, by which brokers recognise repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerId {
    /// The id of the producer.
    pub id: i64,
    /// The epoch of the producer.
    pub epoch: i16,
}

/// Encodes a request frame.
fn frame(api: Api, version: i16, correlation: i32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend((api as i16).to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(correlation.to_be_bytes());
    text("hopwise", &mut out);
    body(&mut out);
    let len = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&len.to_be_bytes());
    out
}

/// Encodes a STRING of the Kafka protocol: its length in 16 bits, and UTF-8. A longer text, which no checked setting has, is cut.
fn text(text: &str, out: &mut Vec<u8>) {
    let len = text.floor_char_boundary(i16::MAX as usize);
    out.extend((len as i16).to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

/// Encodes an ApiVersions request.
pub fn api_versions(correlation: i32) -> Vec<u8> {
    frame(Api::ApiVersions, 0, correlation, |_| {})
}

/// Encodes a Metadata request for one topic, which does not create the topic.
pub fn metadata(correlation: i32, topic: &str) -> Vec<u8> {
    frame(Api::Metadata, 4, correlation, |out| {
        out.extend(1_i32.to_be_bytes());
        text(topic, out);
        // Do not create the topic.
        out.push(FALSE);
    })
}

/// Encodes a CreateTopics request for one topic with these settings. 0 partitions means the broker's default.
pub fn create_topic(
    correlation: i32,
    timeout_ms: i32,
    topic: &str,
    partitions: u32,
    settings: &[(&str, &str)],
) -> Vec<u8> {
    frame(Api::CreateTopics, 4, correlation, |out| {
        out.extend(1_i32.to_be_bytes());
        text(topic, out);
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        out.extend(
            (if partitions == 0 {
                BROKER_DEFAULT
            } else {
                partitions
            })
            .to_be_bytes(),
        );
        out.extend((BROKER_DEFAULT as i16).to_be_bytes());
        // No manual assignment of replicas.
        out.extend(0_i32.to_be_bytes());
        out.extend((settings.len() as i32).to_be_bytes());
        for (name, value) in settings {
            text(name, out);
            text(value, out);
        }
        out.extend(timeout_ms.to_be_bytes());
        // Create the topic, instead of only validating the request.
        out.push(FALSE);
    })
}

/// Encodes a SaslHandshake request.
pub fn sasl_handshake(correlation: i32, mechanism: &str) -> Vec<u8> {
    frame(Api::SaslHandshake, 1, correlation, |out| text(mechanism, out))
}

/// Encodes a SaslAuthenticate request.
pub fn sasl_authenticate(correlation: i32, message: &[u8]) -> Vec<u8> {
    frame(Api::SaslAuthenticate, 0, correlation, |out| {
        out.extend((message.len() as i32).to_be_bytes());
        out.extend_from_slice(message);
    })
}

/// Encodes an InitProducerId request without a transactional ID.
pub fn init_producer_id(correlation: i32, version: i16) -> Vec<u8> {
    frame(Api::InitProducerId, version, correlation, |out| {
        out.extend(NULL_STRING.to_be_bytes());
        // The transaction timeout, which matters only with a transactional ID.
        out.extend(60_000_i32.to_be_bytes());
    })
}

/// Encodes a Produce request with acks = -1: the response follows once all in-sync replicas have the records. `write` appends
/// the record batch of a partition.
pub fn produce(
    correlation: i32,
    version: i16,
    timeout_ms: i32,
    topic: &str,
    partitions: &[i32],
    mut write: impl FnMut(i32, &mut Vec<u8>),
) -> Vec<u8> {
    frame(Api::Produce, version, correlation, |out| {
        // No transactional ID.
        out.extend(NULL_STRING.to_be_bytes());
        out.extend(ACKS_ALL.to_be_bytes());
        out.extend(timeout_ms.to_be_bytes());
        out.extend(1_i32.to_be_bytes());
        text(topic, out);
        out.extend((partitions.len() as i32).to_be_bytes());
        for partition in partitions {
            out.extend(partition.to_be_bytes());
            let length_offset = out.len();
            out.extend([0; 4]);
            write(*partition, out);
            let len = (out.len() - length_offset - 4) as u32;
            out[length_offset..length_offset + 4].copy_from_slice(&len.to_be_bytes());
        }
    })
}

/// Splits a response into its correlation ID and its body.
///
/// # Errors
/// It is too short.
pub fn answer(frame: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    let mut reader = Reader(frame);
    Ok((reader.i32()?, reader.0))
}

/// Decodes the response to [`api_versions`].
///
/// # Errors
/// The body is malformed.
pub fn read_api_versions(body: &[u8]) -> Result<Versions, Malformed> {
    let mut reader = Reader(body);
    if reader.i16()? != NO_ERROR {
        return Err(Malformed("it does not say which versions it has"));
    }
    let mut versions = BTreeMap::new();
    for _ in 0..reader.len(6)? {
        let key = reader.i16()?;
        let lowest = reader.i16()?;
        let highest = reader.i16()?;
        let supported_versions = Api::ALL
            .into_iter()
            .find(|api| *api as i16 == key)
            .map(Api::supported_versions);
        let Some((first, last)) = supported_versions else {
            continue;
        };
        if lowest.max(first) <= highest.min(last) {
            versions.insert(key, highest.min(last));
        }
    }
    Ok(Versions(versions))
}

/// Decodes the response to [`metadata`].
///
/// # Errors
/// The body is malformed.
pub fn read_metadata(body: &[u8], topic: &str) -> Result<Topology, Malformed> {
    let mut reader = Reader(body);
    // Throttle time.
    reader.i32()?;
    let mut topology = Topology {
        error: super::UNKNOWN_TOPIC,
        ..Topology::default()
    };
    for _ in 0..reader.at_most(MAX_BROKERS, 10)? {
        let node = reader.i32()?;
        let host = reader.text()?.unwrap_or_default();
        let port = reader.i32()?;
        // Rack.
        reader.text()?;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        topology.brokers.insert(node, format!("{host}:{port}"));
    }
    // Cluster ID and controller.
    reader.text()?;
    reader.i32()?;
    for _ in 0..reader.at_most(1, 9)? {
        let error = reader.i16()?;
        let name = reader.text()?;
        // Whether the topic is internal.
        reader.i8()?;
        let mut leaders = BTreeMap::new();
        for _ in 0..reader.at_most(MAX_PARTITIONS, 18)? {
            // The partition's error: one without a leader has -1 as such.
            reader.i16()?;
            let index = reader.i32()?;
            let leader = reader.i32()?;
            // Replicas, and in-sync replicas.
            for _ in 0..2 {
                for _ in 0..reader.len(4)? {
                    reader.i32()?;
                }
            }
            leaders.insert(index, leader);
        }
        if name.as_deref() == Some(topic) {
            topology.error = error;
            let is_whole = leaders.keys().copied().eq(0..leaders.len() as i32);
            if !is_whole {
                return Err(Malformed("partitions that are not numbered from 0 on"));
            }
            topology.leaders = leaders.into_values().collect();
        }
    }
    Ok(topology)
}

/// Decodes the response to [`create_topic`]: error code and message.
///
/// # Errors
/// The body is malformed.
pub fn read_create_topic(body: &[u8]) -> Result<(i16, String), Malformed> {
    let mut reader = Reader(body);
    // Throttle time.
    reader.i32()?;
    if reader.len(6)? != 1 {
        return Err(Malformed("it is not about one topic"));
    }
    reader.text()?;
    Ok((reader.i16()?, reader.text()?.unwrap_or_default()))
}

/// Decodes the response to [`sasl_handshake`]. The inner error lists the mechanisms that the broker supports.
///
/// # Errors
/// The body is malformed.
pub fn read_sasl_handshake(body: &[u8]) -> Result<Result<(), Vec<String>>, Malformed> {
    let mut reader = Reader(body);
    let error = reader.i16()?;
    let mut mechanisms = Vec::new();
    for _ in 0..reader.at_most(MAX_MECHANISMS, 2)? {
        mechanisms.push(reader.text()?.unwrap_or_default());
    }
    Ok(if error == NO_ERROR {
        Ok(())
    } else {
        Err(mechanisms)
    })
}

/// Decodes the response to [`sasl_authenticate`]: the server's message, or the inner error with the reason of the refusal.
///
/// # Errors
/// The body is malformed.
pub fn read_sasl_authenticate(body: &[u8]) -> Result<Result<Vec<u8>, String>, Malformed> {
    let mut reader = Reader(body);
    let error = reader.i16()?;
    let reason = reader.text()?.unwrap_or_default();
    let len = reader.i32()?;
    let message = reader
        .take(usize::try_from(len.max(0)).unwrap_or(usize::MAX))?
        .to_vec();
    Ok(match error {
        NO_ERROR => Ok(message),
        error if reason.is_empty() => Err(super::name(error).into_owned()),
        _ => Err(reason),
    })
}

/// Decodes the response to [`init_producer_id`]: the producer ID, or the inner error code.
///
/// # Errors
/// The body is malformed.
pub fn read_producer_id(body: &[u8]) -> Result<Result<ProducerId, i16>, Malformed> {
    let mut reader = Reader(body);
    // Throttle time.
    reader.i32()?;
    let error = reader.i16()?;
    let id = reader.i64()?;
    let epoch = reader.i16()?;
    Ok(if error == NO_ERROR {
        Ok(ProducerId { id, epoch })
    } else {
        Err(error)
    })
}

/// Decodes the response to [`produce`] of this version.
///
/// # Errors
/// The body is malformed.
pub fn read_produce(body: &[u8], version: i16) -> Result<Vec<Produced>, Malformed> {
    let mut reader = Reader(body);
    let mut produced = Vec::new();
    for _ in 0..reader.len(6)? {
        reader.text()?;
        for _ in 0..reader.len(22)? {
            let partition = reader.i32()?;
            let error = reader.i16()?;
            // Base offset and log append time.
            reader.take(16)?;
            if version >= 5 {
                // Log start offset.
                reader.i64()?;
            }
            let mut reason = String::new();
            if version >= 8 {
                for _ in 0..reader.len(6)? {
                    // Index of the record in its batch.
                    reader.i32()?;
                    let record_reason = reader.text()?;
                    if reason.is_empty() {
                        reason = record_reason.unwrap_or_default();
                    }
                }
                reason = reader.text()?.unwrap_or(reason);
            }
            produced.push(Produced {
                partition,
                error,
                reason,
            });
        }
    }
    // Throttle time.
    reader.i32()?;
    Ok(produced)
}

/// Cursor over a response body, which reads big-endian numbers and strings.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn i8(&mut self) -> Result<i8, Malformed> {
        self.array().map(i8::from_be_bytes)
    }

    fn i16(&mut self) -> Result<i16, Malformed> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads the header of a response about a single partition, up to the partition's index.
    fn single_partition_header(&mut self) -> Result<(), Malformed> {
        if self.i32()? != 1 {
            return Err(Malformed("it is not about one topic"));
        }
        self.text()?;
        if self.i32()? != 1 {
            return Err(Malformed("it is not about one partition"));
        }
        self.i32().map(drop)
    }

    /// Reads a nullable string, cut to one line of bounded length.
    fn text(&mut self) -> Result<Option<String>, Malformed> {
        match usize::try_from(self.i16()?) {
            Ok(len) => self.take(len).map(|bytes| Some(one_line(bytes))),
            Err(_) => Ok(None),
        }
    }

    /// Reads an array length. Items have at least `min_item` bytes, which bounds the length. A null array has length 0.
    fn len(&mut self, min_item: usize) -> Result<usize, Malformed> {
        match usize::try_from(self.i32()?) {
            Ok(len) if len.saturating_mul(min_item) <= self.0.len() => Ok(len),
            Ok(_) => Err(Malformed("more items than bytes")),
            Err(_) => Ok(0),
        }
    }

    /// Like [`Reader::len`], but the array may have at most `max` items.
    fn at_most(&mut self, max: usize, min_item: usize) -> Result<usize, Malformed> {
        match self.len(min_item)? {
            len if len <= max => Ok(len),
            _ => Err(Malformed("more items than are read here")),
        }
    }
}

//! Kafka Fetch and ListOffsets requests, with which the outlet reads a partition.

use super::{Api, MAX_ANSWER, Malformed, NO_ERROR, Reader, frame, text};

/// Replica ID of a consumer.
const CONSUMER: i32 = -1;
/// Isolation level `READ_UNCOMMITTED`.
const READ_UNCOMMITTED: u8 = 0;
/// Session ID and epoch of a fetch without a session.
const NO_SESSION: (i32, i32) = (0, -1);
/// Leader epoch, if unknown.
const UNKNOWN_EPOCH: i32 = -1;
/// Log start offset, which only replicas state.
const NO_LOG_START: i64 = -1;
/// The timestamp by which ListOffsets returns the offset after the last record.
const LATEST: i64 = -1;
/// The timestamp by which ListOffsets returns the first offset.
const EARLIEST: i64 = -2;

/// The parameters of a fetch request for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchRequest<'a> {
    /// The name of the topic.
    pub topic: &'a str,
    /// Number of the partition.
    pub partition: i32,
    /// The offset of the first record.
    pub offset: i64,
    /// Maximum time that the broker waits for records, ms.
    pub wait_ms: i32,
    /// Maximum bytes of record batches; a broker sends more only if the first batch alone is larger.
    pub bytes: i32,
}

/// A response to a fetch request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched<'a> {
    /// Error code; 0 on success.
    pub error: i16,
    /// High watermark: the offset after the last one that all in-sync replicas have.
    pub end: i64,
    /// Record batches. The last one may be truncated, and so may a first one that alone exceeds the limit.
    pub batches: &'a [u8],
}

/// Encodes a fetch request.
pub fn fetch(correlation: i32, version: i16, request: &FetchRequest<'_>) -> Vec<u8> {
    frame(Api::Fetch, version, correlation, |out| {
        out.extend(CONSUMER.to_be_bytes());
        out.extend(request.wait_ms.to_be_bytes());
        // Minimum size of the answer, bytes.
        out.extend(1_i32.to_be_bytes());
        out.extend(request.bytes.to_be_bytes());
        out.push(READ_UNCOMMITTED);
        if version >= 7 {
            let (session_id, session_epoch) = NO_SESSION;
            out.extend(session_id.to_be_bytes());
            out.extend(session_epoch.to_be_bytes());
        }
        out.extend(1_i32.to_be_bytes());
        text(request.topic, out);
        out.extend(1_i32.to_be_bytes());
        out.extend(request.partition.to_be_bytes());
        if version >= 9 {
            out.extend(UNKNOWN_EPOCH.to_be_bytes());
        }
        out.extend(request.offset.to_be_bytes());
        if version >= 5 {
            out.extend(NO_LOG_START.to_be_bytes());
        }
        out.extend(request.bytes.to_be_bytes());
        if version >= 7 {
            // No forgotten topics.
            out.extend(0_i32.to_be_bytes());
        }
        if version >= 11 {
            // Empty rack ID: the leader answers.
            text("", out);
        }
    })
}

/// Decodes the response to [`fetch`] of this version. If it exceeds [`MAX_ANSWER`], its beginning is enough.
///
/// # Errors
/// The body is malformed.
pub fn read_fetch(body: &[u8], version: i16) -> Result<Fetched<'_>, Malformed> {
    let mut reader = Reader(body);
    // Throttle time.
    reader.i32()?;
    if version >= 7 {
        let error = reader.i16()?;
        // Session ID.
        reader.i32()?;
        if error != NO_ERROR {
            return Ok(Fetched {
                error,
                end: -1,
                batches: &[],
            });
        }
    }
    reader.single_partition_header()?;
    let error = reader.i16()?;
    let end = reader.i64()?;
    // Last stable offset.
    reader.i64()?;
    if version >= 5 {
        // Log start offset.
        reader.i64()?;
    }
    // Aborted transactions.
    for _ in 0..reader.len(16)? {
        reader.take(16)?;
    }
    if version >= 11 {
        // Preferred read replica.
        reader.i32()?;
    }
    let len = usize::try_from(reader.i32()?).unwrap_or(0);
    let is_cut = body.len() >= MAX_ANSWER - 4;
    let batches = match reader.0.get(..len) {
        Some(batches) => batches,
        None if is_cut => reader.0,
        None => return Err(Malformed("it ends too early")),
    };
    Ok(Fetched { error, end, batches })
}

/// Encodes a ListOffsets request for the first offset of a partition, or with `latest` for the offset after the last.
pub fn list_offsets(correlation: i32, topic: &str, partition: i32, latest: bool) -> Vec<u8> {
    frame(Api::ListOffsets, 1, correlation, |out| {
        out.extend(CONSUMER.to_be_bytes());
        out.extend(1_i32.to_be_bytes());
        text(topic, out);
        out.extend(1_i32.to_be_bytes());
        out.extend(partition.to_be_bytes());
        out.extend((if latest { LATEST } else { EARLIEST }).to_be_bytes());
    })
}

/// Decodes the response to [`list_offsets`]: the offset, or the inner error code.
///
/// # Errors
/// The body is malformed.
pub fn read_list_offsets(body: &[u8]) -> Result<Result<i64, i16>, Malformed> {
    let mut reader = Reader(body);
    reader.single_partition_header()?;
    let error = reader.i16()?;
    // Timestamp.
    reader.i64()?;
    let offset = reader.i64()?;
    match (error, offset) {
        (NO_ERROR, 0..) => Ok(Ok(offset)),
        (NO_ERROR, _) => Err(Malformed("an offset below 0")),
        (error, _) => Ok(Err(error)),
    }
}

//! Requests that read: records of a partition, and where they begin and end.

use super::{Api, MAX_ANSWER, Malformed, Reader, frame, text};

/// The parameters of a fetch request for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchRequest<'a> {
    /// The name of the topic.
    pub topic: &'a str,
    /// Number of the partition.
    pub partition: i32,
    /// The offset of the first record.
    pub offset: i64,
    /// The time that the broker may wait for a record, ms.
    pub wait_ms: i32,
    /// Bytes of record batches: a broker sends more only if the first batch alone is larger.
    pub bytes: i32,
}

/// An answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetched<'a> {
    /// 0: the records are there.
    pub error: i16,
    /// After the last offset that all in-sync replicas have.
    pub end: i64,
    /// Record batches; the last one may be cut off, as may be the first one if it alone is too large.
    pub batches: &'a [u8],
}

/// Encodes a fetch request.
pub fn fetch(correlation: i32, version: i16, request: &FetchRequest<'_>) -> Vec<u8> {
    frame(Api::Fetch, version, correlation, |out| {
        // No replica; an answer as soon as there is a byte; also records of transactions that are not complete.
        out.extend((-1_i32).to_be_bytes());
        out.extend(request.wait_ms.to_be_bytes());
        out.extend(1_i32.to_be_bytes());
        out.extend(request.bytes.to_be_bytes());
        out.push(0);
        if version >= 7 {
            // No session.
            out.extend(0_i32.to_be_bytes());
            out.extend((-1_i32).to_be_bytes());
        }
        out.extend(1_i32.to_be_bytes());
        text(request.topic, out);
        out.extend(1_i32.to_be_bytes());
        out.extend(request.partition.to_be_bytes());
        if version >= 9 {
            // The epoch of the leader is not known here.
            out.extend((-1_i32).to_be_bytes());
        }
        out.extend(request.offset.to_be_bytes());
        if version >= 5 {
            out.extend((-1_i64).to_be_bytes());
        }
        out.extend(request.bytes.to_be_bytes());
        if version >= 7 {
            // No partitions that are not wanted any more.
            out.extend(0_i32.to_be_bytes());
        }
        if version >= 11 {
            // No rack: the leader answers.
            text("", out);
        }
    })
}

/// Reads the body of an answer to [`fetch`] of this version. If it is longer than [`MAX_ANSWER`], its beginning is enough.
///
/// # Errors
/// It is none.
pub fn read_fetch(body: &[u8], version: i16) -> Result<Fetched<'_>, Malformed> {
    let mut reader = Reader(body);
    reader.i32()?;
    if version >= 7 {
        let error = reader.i16()?;
        reader.i32()?;
        if error != 0 {
            return Ok(Fetched {
                error,
                end: -1,
                batches: &[],
            });
        }
    }
    reader.one_partition()?;
    let error = reader.i16()?;
    let end = reader.i64()?;
    reader.i64()?;
    if version >= 5 {
        reader.i64()?;
    }
    // Transactions that were given up.
    for _ in 0..reader.len(16)? {
        reader.take(16)?;
    }
    if version >= 11 {
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

/// Asks for the first offset of a partition, or, of the `latest`, for that after the last.
pub fn list_offsets(correlation: i32, topic: &str, partition: i32, latest: bool) -> Vec<u8> {
    frame(Api::ListOffsets, 1, correlation, |out| {
        out.extend((-1_i32).to_be_bytes());
        out.extend(1_i32.to_be_bytes());
        text(topic, out);
        out.extend(1_i32.to_be_bytes());
        out.extend(partition.to_be_bytes());
        out.extend((if latest { -1_i64 } else { -2 }).to_be_bytes());
    })
}

/// Reads the body of an answer to [`list_offsets`]: the offset, or what the error is.
///
/// # Errors
/// It is none.
pub fn read_list_offsets(body: &[u8]) -> Result<Result<i64, i16>, Malformed> {
    let mut reader = Reader(body);
    reader.one_partition()?;
    let error = reader.i16()?;
    reader.i64()?;
    let offset = reader.i64()?;
    match (error, offset) {
        (0, 0..) => Ok(Ok(offset)),
        (0, _) => Err(Malformed("an offset below 0")),
        (error, _) => Ok(Err(error)),
    }
}

//! Memory of the flight recorder: copies of the latest datagrams, in chunks of bounded number.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::decode::Datagram;
use crate::event::Nanos;

/// Bytes before each payload: receive time (8), source (16), port (2), listener (2), length (2).
const HEADER_LEN: usize = 30;

/// The chunk into which one thread copies datagrams; full chunks go to [`ChunkStore`].
#[derive(Debug)]
pub struct Ring {
    chunk: Chunk,
}

/// Datagrams in the order in which they arrived, each with a fixed header.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    /// (Receive time of its first datagram, of its last one).
    span: Option<(Nanos, Nanos)>,
}

/// The latest full chunks, bounded in number; the oldest is dropped.
#[derive(Debug)]
pub struct ChunkStore {
    chunks: VecDeque<Arc<Chunk>>,
    capacity: usize,
    /// True if a chunk was ever dropped.
    has_dropped: bool,
}

impl Ring {
    /// Returns a ring with an empty chunk.
    pub fn new() -> Self {
        Self { chunk: Chunk::new() }
    }

    /// Copies a datagram. The caller exchanges a full chunk first.
    #[inline]
    pub fn push(&mut self, datagram: &Datagram<'_>) {
        self.chunk.push(datagram);
    }

    /// Returns true if the datagram may not fit, so that the chunk must be exchanged first.
    #[inline]
    pub fn is_full(&self, datagram: &Datagram<'_>) -> bool {
        self.chunk.bytes.len() + HEADER_LEN + datagram.payload.len() > Chunk::BYTES
    }

    /// Returns the chunk, and continues with `next`, whose content is discarded. `None` if the chunk is empty.
    pub fn take(&mut self, next: Option<Chunk>) -> Option<Chunk> {
        self.chunk.span?;
        let mut next = next.unwrap_or_else(Chunk::new);
        next.bytes.clear();
        next.span = None;
        Some(std::mem::replace(&mut self.chunk, next))
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunk {
    /// Bytes of a chunk: about 1,000 reports of four hops.
    pub const BYTES: usize = 256 << 10;

    fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(Self::BYTES),
            span: None,
        }
    }

    #[inline]
    fn push(&mut self, datagram: &Datagram<'_>) {
        // Longer than any UDP payload.
        let Ok(length) = u16::try_from(datagram.payload.len()) else {
            return;
        };
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&datagram.received.to_le_bytes());
        header[8..24].copy_from_slice(&datagram.source);
        header[24..26].copy_from_slice(&datagram.src_port.to_le_bytes());
        header[26..28].copy_from_slice(&datagram.listener.to_le_bytes());
        header[28..].copy_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(datagram.payload);
        let first = self.span.map_or(datagram.received, |(first, _)| first);
        self.span = Some((first, datagram.received));
    }

    /// Returns the datagrams in the order in which they were copied.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (header, after) = rest.split_at_checked(HEADER_LEN)?;
            let [src_port, listener, len] =
                [24, 26, 28].map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
            let (payload, after) = after.split_at_checked(usize::from(len))?;
            rest = after;
            let received = u64::from_le_bytes(header[..8].try_into().ok()?);
            let source = header[8..24].try_into().ok()?;
            Some(Datagram {
                payload,
                source,
                src_port,
                listener,
                received,
            })
        })
    }

    /// Returns true if it may have datagrams of this time. (The clock may have been set back inside it.)
    fn overlaps(&self, from: Nanos, to: Nanos) -> bool {
        self.span
            .is_some_and(|(first, last)| first.min(last) <= to && from <= first.max(last))
    }
}

impl ChunkStore {
    /// Creates storage for at most `capacity` chunks, at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            capacity: capacity.max(1),
            has_dropped: false,
        }
    }

    /// Adds a chunk. Returns the memory of the dropped one for reuse, unless a reader still has it.
    pub fn add(&mut self, chunk: Chunk) -> Option<Chunk> {
        let dropped = if self.chunks.len() >= self.capacity {
            self.chunks.pop_front()
        } else {
            None
        };
        self.has_dropped |= dropped.is_some();
        self.chunks.push_back(Arc::new(chunk));
        dropped.and_then(Arc::into_inner)
    }

    /// Returns the chunks that may have datagrams of this time, oldest first.
    pub fn overlapping(&self, from: Nanos, to: Nanos) -> Vec<Arc<Chunk>> {
        self.chunks
            .iter()
            .filter(|chunk| chunk.overlaps(from, to))
            .map(Arc::clone)
            .collect()
    }

    /// Returns true if datagrams since this time were dropped.
    pub fn has_dropped_since(&self, since: Nanos) -> bool {
        self.has_dropped && self.oldest().is_none_or(|oldest| oldest > since)
    }

    /// Returns the receive time of the oldest datagram.
    pub fn oldest(&self) -> Option<Nanos> {
        self.chunks
            .front()
            .and_then(|chunk| chunk.span)
            .map(|(first, _)| first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(received: Nanos, payload: &[u8]) -> Datagram<'_> {
        Datagram {
            payload,
            source: [7; 16],
            src_port: 40_000,
            listener: 3,
            received,
        }
    }

    fn put(ring: &mut Ring, kept: &mut ChunkStore, received: Nanos, payload: &[u8]) {
        let datagram = datagram(received, payload);
        if ring.is_full(&datagram)
            && let Some(full) = ring.take(None)
        {
            kept.add(full);
        }
        ring.push(&datagram);
    }

    #[test]
    fn what_was_copied_is_read_again() {
        let mut ring = Ring::new();
        assert!(ring.take(None).is_none());
        for (at, payload) in [(5, &b"one"[..]), (6, b""), (7, &[9; 9000])] {
            ring.push(&datagram(at, payload));
        }
        let chunk = ring.take(None).unwrap();
        let read: Vec<_> = chunk
            .datagrams()
            .map(|one| (one.received, one.payload.to_vec()))
            .collect();
        assert_eq!(read, [(5, b"one".to_vec()), (6, Vec::new()), (7, vec![9; 9000])]);
        let first = chunk.datagrams().next().unwrap();
        assert_eq!(
            (first.source, first.src_port, first.listener),
            ([7; 16], 40_000, 3)
        );
        assert!(ring.take(None).is_none());
    }

    #[test]
    fn memory_is_bounded_and_used_again() {
        let (mut ring, mut kept) = (Ring::new(), ChunkStore::new(2));
        let payload = [1; 1000];
        for at in 0..2_000 {
            put(&mut ring, &mut kept, at, &payload);
        }
        let per_chunk = (Chunk::BYTES / (HEADER_LEN + payload.len())) as u64;
        let full = 1_999 / per_chunk;
        assert_eq!(kept.oldest(), Some((full - 2) * per_chunk));
        assert_eq!(kept.overlapping(0, u64::MAX).len(), 2);
        assert!(kept.has_dropped_since(0) && !kept.has_dropped_since(kept.oldest().unwrap()));
        assert!(!ChunkStore::new(2).has_dropped_since(0));
        assert_eq!(kept.overlapping(0, kept.oldest().unwrap() - 1).len(), 0);
        assert_eq!(
            kept.overlapping(kept.oldest().unwrap(), kept.oldest().unwrap())
                .len(),
            1
        );
        // The memory of a dropped chunk is reused, unless somebody still reads it.
        let reading = kept.overlapping(0, kept.oldest().unwrap());
        let last = ring.take(None).unwrap();
        assert!(kept.add(last).is_none());
        drop(reading);
        ring.push(&datagram(9, b"x"));
        let again = kept.add(ring.take(None).unwrap()).unwrap();
        assert!(again.bytes.capacity() == Chunk::BYTES && again.span.is_some());
        ring.push(&datagram(10, b"y"));
        ring.take(Some(again));
        assert_eq!((ring.chunk.bytes.len(), ring.chunk.span), (0, None));
    }
}

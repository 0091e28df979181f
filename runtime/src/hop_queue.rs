//! Queue of encoded hops from the collector's workers to an export's spool.
//!
//! Workers append chunks to an inbox and hold its lock only to move a pointer, so packet reception never waits for I/O on the
//! spool. A thread of the export moves the chunks from the inbox into the spool.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use export::spool::Spool;

use crate::lock::lock;

/// Longest wait, after which a failed write is retried.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// Maximum number of empty chunks kept for reuse.
const MAX_SPARE_CHUNKS: usize = 16;

/// Selects the reports for an export, and holds the queue to it.
#[derive(Clone, Debug)]
pub struct HopTap {
    /// Sampling: one in this many datagrams.
    pub sample: u64,
    /// Export only reports that caused an event.
    pub with_events: bool,
    /// The queue to the export.
    pub queue: Arc<HopQueue>,
}

/// Hops queued for one export.
#[derive(Debug)]
pub struct HopQueue {
    spool: Mutex<Spool>,
    inbox: Mutex<Inbox>,
    chunk_added: Condvar,
    /// Maximum bytes in the inbox.
    limit: usize,
}

/// Chunks that are not in the spool yet.
#[derive(Default, Debug)]
struct Inbox {
    chunks: VecDeque<Chunk>,
    /// Size of these chunks and of the one being moved into the spool, bytes.
    bytes: usize,
    /// Empty chunks for reuse.
    spare: Vec<Vec<u8>>,
    /// Hops refused because the inbox was full or closed.
    refused: u64,
    is_closed: bool,
}

/// Hops in their encoded form.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Number of hops in the chunk.
    hops: u64,
}

impl HopQueue {
    /// Returns a queue in front of a spool. `limit` is the maximum number of bytes in the inbox.
    pub fn new(spool: Spool, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            spool: Mutex::new(spool),
            inbox: Mutex::default(),
            chunk_added: Condvar::new(),
            limit,
        })
    }

    /// Moves a chunk into the inbox and leaves an empty one. If another worker holds the lock, the chunk stays unchanged,
    /// unless it is `urgent`.
    pub fn offer(&self, chunk: &mut Vec<u8>, hops: &mut u64, urgent: bool) {
        let inbox = match self.inbox.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(inbox)) => inbox.into_inner(),
            Err(TryLockError::WouldBlock) if urgent => lock(&self.inbox),
            Err(TryLockError::WouldBlock) => return,
        };
        self.append(inbox, chunk, mem::take(hops));
    }

    fn append(&self, mut inbox: MutexGuard<'_, Inbox>, chunk: &mut Vec<u8>, hops: u64) {
        if inbox.is_closed || inbox.bytes + chunk.len() > self.limit {
            inbox.refused += hops;
            return chunk.clear();
        }
        let empty = inbox
            .spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(chunk.capacity()));
        let bytes = mem::replace(chunk, empty);
        inbox.bytes += bytes.len();
        inbox.chunks.push_back(Chunk { bytes, hops });
        drop(inbox);
        self.chunk_added.notify_one();
    }

    /// Runs `work` on the spool after moving everything from the inbox into it.
    pub fn with<T>(&self, work: impl FnOnce(&mut Spool) -> T) -> T {
        let mut spool = lock(&self.spool);
        self.drain_inbox(&mut spool);
        work(&mut spool)
    }

    /// Moves the chunks that are in the inbox now into the spool, one at a time. Only that chunk is in memory twice, and it
    /// counts until it is copied.
    fn drain_inbox(&self, spool: &mut Spool) {
        let count = {
            let mut inbox = lock(&self.inbox);
            spool.refuse(mem::take(&mut inbox.refused));
            inbox.chunks.len()
        };
        for _ in 0..count {
            // A separate statement, so that the lock is released before the spool is written.
            let first = lock(&self.inbox).chunks.pop_front();
            let Some(Chunk { mut bytes, hops }) = first else {
                break;
            };
            spool.offer(&bytes, hops);
            let mut inbox = lock(&self.inbox);
            inbox.bytes -= bytes.len();
            if inbox.spare.len() < MAX_SPARE_CHUNKS {
                bytes.clear();
                inbox.spare.push(bytes);
            }
        }
    }

    /// Returns the memory of the inbox and the spool in bytes.
    pub fn bytes(&self) -> usize {
        let inbox = lock(&self.inbox).bytes;
        inbox + self.with(|spool| spool.usage().memory)
    }

    /// Waits until a chunk arrives, for at most 500 ms. Returns false once the queue is closed.
    pub fn wait(&self) -> bool {
        let inbox = lock(&self.inbox);
        let waited = self.chunk_added.wait_timeout_while(inbox, MAX_WAIT, |inbox| {
            inbox.chunks.is_empty() && !inbox.is_closed
        });
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !inbox.is_closed
    }

    /// Closes the queue: it refuses everything from now on.
    pub fn close(&self) {
        lock(&self.inbox).is_closed = true;
        self.chunk_added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::{
        Cursor, Position,
        spool::{self, Limits, ReadResult},
    };

    fn queue(limit: usize) -> Arc<HopQueue> {
        HopQueue::new(
            Spool::new(Limits::default(), &Cursor::default(), Vec::new()),
            limit,
        )
    }

    fn chunk(number: u64) -> Vec<u8> {
        let mut chunk = Vec::with_capacity(64);
        let begun = spool::begin(&mut chunk);
        chunk.extend(number.to_le_bytes());
        spool::end(&mut chunk, begun);
        chunk
    }

    fn numbers(spool: &mut Spool) -> Vec<u64> {
        let mut numbers = Vec::new();
        let result = spool.read(Position::default(), None, 100, 10_000, |record| {
            numbers.push(u64::from_le_bytes(*record.first_chunk().unwrap()));
        });
        assert!(
            matches!(result, ReadResult::Page { expired: 0, .. }),
            "{result:?}"
        );
        numbers
    }

    #[test]
    fn a_worker_hands_over_while_a_page_is_read() {
        let queue = queue(1000);
        queue.with(|_| {
            for number in 0..3 {
                let (mut chunk, mut hops) = (chunk(number), 1);
                queue.offer(&mut chunk, &mut hops, false);
                assert_eq!((chunk.len(), hops), (0, 0), "it is taken over");
            }
        });
        let (found, counts) = queue.with(|spool| (numbers(spool), (spool.offered(), spool.refused())));
        assert_eq!((found, counts), (vec![0, 1, 2], (3, 0)));
    }

    #[test]
    fn what_finds_no_space_before_the_spool_is_counted() {
        let queue = queue(40);
        for number in 0..4 {
            queue.offer(&mut chunk(number), &mut 1, true);
        }
        let (found, counts) = queue.with(|spool| (numbers(spool), (spool.offered(), spool.refused())));
        assert_eq!((found, counts), (vec![0, 1], (4, 2)));
        // There is space again, until it is closed.
        queue.offer(&mut chunk(4), &mut 1, true);
        assert!(queue.wait());
        queue.close();
        assert!(!queue.wait());
        queue.offer(&mut chunk(5), &mut 1, true);
        let (found, counts) = queue.with(|spool| (numbers(spool), (spool.offered(), spool.refused())));
        assert_eq!((found, counts), (vec![0, 1, 4], (6, 3)));
    }
}

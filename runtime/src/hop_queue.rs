//! Hops on their way from the workers to an export. Workers put chunks into an inbox, and hold its lock only for the move of a pointer: who
//! receives does not wait while somebody reads or writes the spool. A thread of the export brings the chunks into the spool.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use export::spool::Spool;

use crate::lock::lock;

/// The reports that an export gets, and the queue to it.
#[derive(Clone, Debug)]
pub struct HopTap {
    /// One datagram of this many.
    pub sample: u64,
    /// Only reports that came with an event.
    pub with_events: bool,
    /// The queue to the export.
    pub queue: Arc<HopQueue>,
}

/// Hops on their way to one export.
#[derive(Debug)]
pub struct HopQueue {
    spool: Mutex<Spool>,
    inbox: Mutex<Inbox>,
    filled: Condvar,
    /// Bytes in the inbox, at most.
    limit: usize,
}

/// Chunks that are not in the spool yet.
#[derive(Default, Debug)]
struct Inbox {
    chunks: VecDeque<(Vec<u8>, u64)>,
    /// Size of these chunks and of the one that is being moved into the spool, bytes.
    bytes: usize,
    /// Empty chunks, which are used again.
    spare: Vec<Vec<u8>>,
    /// Hops that found no space.
    refused: u64,
    is_closed: bool,
}

impl HopQueue {
    /// Around a spool; `limit`: bytes that wait for it.
    pub fn new(spool: Spool, limit: usize) -> Arc<Self> {
        Arc::new(Self {
            spool: Mutex::new(spool),
            inbox: Mutex::default(),
            filled: Condvar::new(),
            limit,
        })
    }

    /// Takes a chunk over, and empties it. If another worker puts one in just now, the chunk stays as it is, unless it is `urgent`.
    pub fn offer(&self, chunk: &mut Vec<u8>, hops: &mut u64, urgent: bool) {
        let inbox = match self.inbox.try_lock() {
            Ok(inbox) => inbox,
            Err(TryLockError::Poisoned(inbox)) => inbox.into_inner(),
            Err(TryLockError::WouldBlock) if urgent => lock(&self.inbox),
            Err(TryLockError::WouldBlock) => return,
        };
        self.put(inbox, chunk, mem::take(hops));
    }

    fn put(&self, mut inbox: MutexGuard<'_, Inbox>, chunk: &mut Vec<u8>, hops: u64) {
        if inbox.is_closed || inbox.bytes + chunk.len() > self.limit {
            inbox.refused += hops;
            return chunk.clear();
        }
        let empty = inbox
            .spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(chunk.capacity()));
        let full = mem::replace(chunk, empty);
        inbox.bytes += full.len();
        inbox.chunks.push_back((full, hops));
        drop(inbox);
        self.filled.notify_one();
    }

    /// Works on the spool, which has all that came.
    pub fn with<T>(&self, work: impl FnOnce(&mut Spool) -> T) -> T {
        let mut spool = lock(&self.spool);
        self.bring(&mut spool);
        work(&mut spool)
    }

    /// Brings what is in the inbox now, one chunk at a time: only that one is in memory twice, and it counts until it is empty.
    fn bring(&self, spool: &mut Spool) {
        let count = {
            let mut inbox = lock(&self.inbox);
            spool.refuse(mem::take(&mut inbox.refused));
            inbox.chunks.len()
        };
        for _ in 0..count {
            // In a statement of its own, so that workers do not wait for the spool.
            let first = lock(&self.inbox).chunks.pop_front();
            let Some((mut chunk, hops)) = first else { break };
            spool.offer(&chunk, hops);
            let mut inbox = lock(&self.inbox);
            inbox.bytes -= chunk.len();
            if inbox.spare.len() < MAX_SPARE {
                chunk.clear();
                inbox.spare.push(chunk);
            }
        }
    }

    /// Returns the memory of the inbox and the spool in bytes.
    pub fn bytes(&self) -> usize {
        let inbox = lock(&self.inbox).bytes;
        inbox + self.with(|spool| spool.bytes().0)
    }

    /// Waits until a chunk arrives, at most for a short time. Returns whether more can arrive.
    pub fn wait(&self) -> bool {
        let inbox = lock(&self.inbox);
        let waited = self
            .filled
            .wait_timeout_while(inbox, MOMENT, |inbox| inbox.chunks.is_empty() && !inbox.is_closed);
        let (inbox, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !inbox.is_closed
    }

    /// Closes the queue: it refuses everything from now on.
    pub fn close(&self) {
        lock(&self.inbox).is_closed = true;
        self.filled.notify_all();
    }
}

/// The longest wait, after which a write that failed is tried again.
const MOMENT: Duration = Duration::from_millis(500);
/// Empty chunks that are kept.
const MAX_SPARE: usize = 16;

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

//! The queue of a worker: datagrams in loads, bounded in bytes of memory. The sources of datagrams share the
//! upper half of the queue: each may occupy as many bytes there as are still free.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::Load;
use crate::lock::lock;

/// Datagrams that were dropped at the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// The queue was full.
    pub(super) full: u64,
    /// Their source already occupied its share.
    pub(super) share: u64,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    loads: VecDeque<Queued>,
    /// Empty loads, for reuse.
    spare: Vec<Load>,
    /// Bytes of memory of the loads that are queued or being processed.
    used: usize,
    /// Bytes of datagrams in the upper half, by source.
    by_source: HashMap<[u8; 16], usize>,
    senders: usize,
    /// The worker has ended.
    closed: bool,
}

/// A load, and the memory that it occupies.
#[derive(Debug)]
struct Queued {
    load: Load,
    bytes: usize,
    by_source: Vec<([u8; 16], usize)>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    filled: Condvar,
}

/// The sending end, of a spreader.
#[derive(Debug)]
pub(crate) struct LoadSender(Arc<Shared>);

/// The receiving end, of the worker.
#[derive(Debug)]
pub(crate) struct LoadReceiver(Arc<Shared>);

/// A queue with room for `limit` bytes.
pub(crate) fn load_queue(limit: usize) -> (LoadSender, LoadReceiver) {
    let inner = Inner {
        limit,
        loads: VecDeque::new(),
        spare: Vec::new(),
        used: 0,
        by_source: HashMap::new(),
        senders: 1,
        closed: false,
    };
    let shared = Arc::new(Shared { inner: Mutex::new(inner), filled: Condvar::new() });
    (LoadSender(Arc::clone(&shared)), LoadReceiver(shared))
}

impl LoadSender {
    /// Queues a load. Datagrams that do not fit are dropped and counted. Returns an empty load to fill next.
    pub(super) fn send(&self, mut load: Load) -> (Refused, Load) {
        let mut inner = lock(&self.0.inner);
        let (mut refused, by_source) = inner.admit(&mut load);
        let empty = inner.push(load, by_source, &mut refused);
        drop(inner);
        self.0.filled.notify_one();
        (refused, empty)
    }
}

impl Clone for LoadSender {
    fn clone(&self) -> Self {
        lock(&self.0.inner).senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for LoadSender {
    fn drop(&mut self) {
        lock(&self.0.inner).senders -= 1;
        self.0.filled.notify_one();
    }
}

/// The result of waiting for a load.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A load was processed.
    Load,
    /// No load arrived in time.
    Nothing,
    /// All senders have ended, and the queue is empty.
    End,
}

impl LoadReceiver {
    /// Waits for a load and passes it to `process`.
    pub(super) fn receive(&self, patience: Duration, process: impl FnOnce(&Load)) -> Received {
        let deadline = Instant::now() + patience;
        let mut inner = lock(&self.0.inner);
        let queued = loop {
            if let Some(queued) = inner.loads.pop_front() {
                break queued;
            }
            if inner.senders == 0 {
                return Received::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            inner = self.0.filled.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(inner);
        process(&queued.load);
        lock(&self.0.inner).release(queued);
        Received::Load
    }
}

impl LoadReceiver {
    /// Whether no load waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0.inner).loads.is_empty()
    }
}

impl Drop for LoadReceiver {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.closed = true;
        inner.loads.clear();
    }
}

/// Bytes of some sources.
type BySource = Vec<([u8; 16], usize)>;

impl Inner {
    /// Removes the datagrams of sources that already occupy their share.
    fn admit(&mut self, load: &mut Load) -> (Refused, BySource) {
        let (mut refused, mut by_source) = (Refused::default(), BySource::new());
        if self.used + load.memory() <= self.limit / 2 || self.closed {
            return (refused, by_source);
        }
        let mut free = self.limit.saturating_sub(self.used);
        load.retain(|source, bytes| {
            let own = self.by_source.get(&source).copied().unwrap_or(0) + bytes;
            if own > free {
                refused.share += 1;
                return false;
            }
            free = free.saturating_sub(bytes);
            self.by_source.insert(source, own);
            match by_source.iter_mut().find(|(other, _)| *other == source) {
                Some((_, sum)) => *sum += bytes,
                None => by_source.push((source, bytes)),
            }
            true
        });
        (refused, by_source)
    }

    /// Appends a load to the last one if that has memory for it, otherwise queues it. Returns an empty one.
    fn push(&mut self, mut load: Load, by_source: BySource, refused: &mut Refused) -> Load {
        if load.is_empty() {
            return load;
        }
        if let Some(last) = self.loads.back_mut()
            && last.load.can_take(&load)
        {
            last.load.append(&load);
            last.by_source.extend(by_source);
            load.clear();
            return load;
        }
        if self.used + load.memory() > self.limit / 2 {
            // Releases the memory of removed datagrams.
            load.shrink();
        }
        let bytes = load.memory();
        if self.closed || self.used + bytes > self.limit {
            refused.full += load.entries.len() as u64;
            self.forget(by_source);
            load.clear();
            return load;
        }
        self.used += bytes;
        self.loads.push_back(Queued { load, bytes, by_source });
        self.spare.pop().unwrap_or_default()
    }

    fn forget(&mut self, by_source: BySource) {
        for (source, bytes) in by_source {
            if let Some(own) = self.by_source.get_mut(&source) {
                *own -= bytes;
                if *own == 0 {
                    self.by_source.remove(&source);
                }
            }
        }
    }

    fn release(&mut self, queued: Queued) {
        let Queued { mut load, bytes, by_source } = queued;
        self.used -= bytes;
        self.forget(by_source);
        if self.spare.len() < SPARE {
            load.clear();
            self.spare.push(load);
        }
    }
}

/// Empty loads that are kept.
const SPARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datagram::Contents,
        fanout::{Entry, SHARE},
    };

    fn load(datagrams: &[(u8, usize)]) -> Load {
        let mut load = Load::default();
        for (source, bytes) in datagrams {
            load.bytes.resize(load.bytes.len() + bytes, *source);
            let (end, source) = (load.bytes.len(), [*source; 16]);
            load.entries.push(Entry {
                end,
                source,
                src_port: 0,
                listener: 0,
                contents: Contents::Reports,
                received: 0,
            });
        }
        load
    }

    /// Datagrams by source that the worker gets.
    fn drain(receiver: &LoadReceiver) -> HashMap<u8, u64> {
        let mut seen = HashMap::new();
        let mut count = |load: &Load| {
            let mut start = 0;
            for entry in &load.entries {
                assert!(load.bytes[start..entry.end].iter().all(|byte| *byte == entry.source[0]));
                *seen.entry(entry.source[0]).or_default() += 1;
                start = entry.end;
            }
        };
        while receiver.receive(Duration::ZERO, &mut count) == Received::Load {}
        let inner = lock(&receiver.0.inner);
        assert_eq!((inner.used, inner.by_source.len()), (0, 0));
        seen
    }

    #[test]
    fn a_source_that_floods_takes_nothing_from_another() {
        let limit = 256 << 10;
        let (sender, receiver) = load_queue(limit);
        let (mut offered, mut refused) = (0, Refused::default());
        let (mut flood, mut honest) = (0, 0);
        // The worker stalls for 50 rounds, takes all, and stalls again. A round: 63 datagrams of the flood, one other.
        for round in 0..200 {
            let mut datagrams = [(7, 300); SHARE];
            datagrams[round % SHARE] = (8, 100);
            let (more, _) = sender.send(load(&datagrams));
            (refused.full, refused.share) = (refused.full + more.full, refused.share + more.share);
            offered += SHARE as u64;
            assert!(lock(&sender.0.inner).used <= limit);
            if round % 50 == 49 {
                let seen = drain(&receiver);
                flood += seen[&7];
                honest += seen[&8];
            }
        }
        assert_eq!((honest, refused.full), (200, 0));
        assert!(refused.share > 3_000, "{refused:?}");
        assert_eq!(offered, flood + honest + refused.share);
    }

    #[test]
    fn the_bound_in_bytes_holds_and_few_datagrams_take_few() {
        let one = load(&[(1, 1_000)]).memory();
        let (sender, receiver) = load_queue(one * 4);
        // Two in the lower half; then each source may have what is left, and then there is no room.
        let refused = [1, 1, 1, 1, 2, 3].map(|source| sender.send(load(&[(source, 1_000)])).0);
        let (fits, share, full) =
            (Refused::default(), Refused { full: 0, share: 1 }, Refused { full: 1, share: 0 });
        assert_eq!(refused, [fits, fits, fits, share, fits, share]);
        assert!((one * 3..=one * 4).contains(&lock(&sender.0.inner).used));
        // An empty datagram has a load of its own, for which nothing is left.
        assert_eq!(sender.send(load(&[(4, 0)])).0, full);
        drain(&receiver);
    }

    #[test]
    fn a_load_takes_others_as_far_as_its_memory_goes() {
        let (sender, receiver) = load_queue(1 << 20);
        let mut roomy = load(&[(1, 10)]);
        roomy.bytes.reserve_exact(90);
        roomy.entries.reserve_exact(9);
        sender.send(roomy);
        for _ in 0..12 {
            let (refused, empty) = sender.send(load(&[(2, 10)]));
            assert!(refused == Refused::default() && empty.is_empty());
        }
        assert!(lock(&sender.0.inner).loads.len() <= 4);
        assert_eq!(drain(&receiver), HashMap::from([(1, 1), (2, 12)]));
    }

    #[test]
    fn the_end_of_one_side_is_noticed_by_the_other() {
        let (sender, receiver) = load_queue(1 << 20);
        let other = sender.clone();
        sender.send(load(&[(1, 10)]));
        drop(sender);
        assert_eq!(drain(&receiver), HashMap::from([(1, 1)]));
        assert_eq!(receiver.receive(Duration::ZERO, |_| {}), Received::Nothing);
        drop(receiver);
        assert_eq!(other.send(load(&[(1, 10), (1, 20)])).0, Refused { full: 2, share: 0 });
    }
}

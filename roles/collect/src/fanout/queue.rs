//! The queue of a worker: datagrams in loads, with a lane for each thread that receives. It is bounded in bytes of memory: a lane may
//! occupy as much as it leaves free. While a lane has no room, its thread waits, so that further datagrams stay in the socket or
//! ring: the kernel buffers them, and counts those it drops.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use collector::event::Nanos;

use super::{Arrival, Load};
use crate::datagram::Contents;
use runtime::lock::lock;

#[derive(Debug)]
struct Inner {
    limit: usize,
    lanes: Vec<Lane>,
    /// The lane whose load is next.
    turn: usize,
    /// Empty loads, for reuse.
    spare: Vec<Load>,
    /// Bytes of memory of the loads that are queued or being processed.
    used: usize,
    /// The worker waits until it is notified.
    asleep: bool,
    /// The worker has ended.
    closed: bool,
}

/// The loads of one sender.
#[derive(Debug)]
struct Lane {
    loads: VecDeque<Load>,
    /// Bytes of memory of its loads that are queued or being processed.
    used: usize,
    /// The sender waits until `used` is at most this, bytes.
    resume: Option<usize>,
    /// It has a sender.
    open: bool,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    filled: Condvar,
    room: Condvar,
}

/// The sending end, of a thread that receives. Each clone has a lane of its own.
#[derive(Debug)]
pub struct LoadSender {
    shared: Arc<Shared>,
    lane: usize,
}

/// The receiving end, of the worker.
#[derive(Debug)]
pub struct LoadReceiver(Arc<Shared>);

/// A queue with room for `limit` bytes.
pub fn load_queue(limit: usize) -> (LoadSender, LoadReceiver) {
    let mut inner = Inner {
        limit,
        lanes: Vec::new(),
        turn: 0,
        spare: Vec::new(),
        used: 0,
        asleep: false,
        closed: false,
    };
    let lane = inner.open_lane();
    let shared = Arc::new(Shared {
        inner: Mutex::new(inner),
        filled: Condvar::new(),
        room: Condvar::new(),
    });
    (
        LoadSender {
            shared: Arc::clone(&shared),
            lane,
        },
        LoadReceiver(shared),
    )
}

impl LoadSender {
    /// Queues datagrams, in order, and waits while there is no room. Returns how many were dropped because the worker has ended.
    pub(super) fn send<'p>(&self, arrivals: impl Iterator<Item = Arrival<'p>>) -> u64 {
        let mut inner = lock(&self.shared.inner);
        let mut dropped = 0;
        let mut arrivals = arrivals.peekable();
        while let Some(arrival) = arrivals.next() {
            let len = arrival.len();
            if !inner.has_room(self.lane, len) {
                inner = self.wait_for_room(inner, len);
            }
            if inner.closed {
                dropped += u64::from(!matches!(arrival.entry.contents, Contents::LaterReports(_)));
                continue;
            }
            let load = inner.load_for(self.lane, len);
            load.push(&arrival);
            while let Some(next) = arrivals.next_if(|next| load.fits(next.len())) {
                load.push(&next);
            }
        }
        let asleep = std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.shared.filled.notify_one();
        }
        dropped
    }

    fn wait_for_room<'l>(&self, mut inner: MutexGuard<'l, Inner>, len: usize) -> MutexGuard<'l, Inner> {
        while !inner.has_room(self.lane, len) {
            if std::mem::take(&mut inner.asleep) {
                self.shared.filled.notify_one();
            }
            // Half of its loads are processed between two wake-ups.
            let lane = &mut inner.lanes[self.lane];
            lane.resume = Some(lane.used / 2);
            inner = self
                .shared
                .room
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
        inner
    }
}

impl Clone for LoadSender {
    fn clone(&self) -> Self {
        let lane = lock(&self.shared.inner).open_lane();
        Self {
            shared: Arc::clone(&self.shared),
            lane,
        }
    }
}

impl Drop for LoadSender {
    fn drop(&mut self) {
        lock(&self.shared.inner).lanes[self.lane].open = false;
        self.shared.filled.notify_one();
    }
}

/// The result of waiting for a load.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A load of this many datagrams was processed.
    Load(usize),
    /// No load arrived in time.
    Nothing,
    /// All senders have ended, and the queue is empty.
    End,
}

impl LoadReceiver {
    /// Passes a load to `process`. Without one, sleeps for `nap` first, during which senders need not notify, and then waits at most
    /// `timeout`.
    pub(super) fn receive(
        &self,
        nap: Option<Duration>,
        timeout: Duration,
        process: impl FnOnce(&Load),
    ) -> Received {
        let mut inner = lock(&self.0.inner);
        if let Some(nap) = nap.filter(|_| inner.is_empty() && inner.has_sender()) {
            drop(inner);
            thread::sleep(nap);
            inner = lock(&self.0.inner);
        }
        let deadline = Instant::now() + timeout;
        let (lane, load) = loop {
            if let Some(next) = inner.pop() {
                break next;
            }
            if !inner.has_sender() {
                return Received::End;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            inner.asleep = true;
            inner = self
                .0
                .filled
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            inner.asleep = false;
        };
        drop(inner);
        process(&load);
        let count = load.entries.len();
        if lock(&self.0.inner).release(lane, load) {
            self.0.room.notify_all();
        }
        Received::Load(count)
    }

    /// The receive time of the earliest datagram that waits.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        lock(&self.0.inner).lanes.iter().filter_map(Lane::oldest).min()
    }

    /// Whether no load waits.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0.inner).is_empty()
    }
}

#[cfg(test)]
impl LoadReceiver {
    /// Whether a sender waits for room.
    pub(super) fn has_waiting_sender(&self) -> bool {
        lock(&self.0.inner).lanes.iter().any(|lane| lane.resume.is_some())
    }
}

impl Drop for LoadReceiver {
    fn drop(&mut self) {
        let mut inner = lock(&self.0.inner);
        inner.closed = true;
        inner.lanes.iter_mut().for_each(|lane| lane.loads.clear());
        drop(inner);
        self.0.room.notify_all();
    }
}

impl Lane {
    /// The receive time of its first datagram.
    fn oldest(&self) -> Option<Nanos> {
        Some(self.loads.front()?.entries.first()?.received)
    }
}

impl Inner {
    /// The number of a lane without a sender and without loads, or of a new one.
    fn open_lane(&mut self) -> usize {
        let lane = Lane {
            loads: VecDeque::new(),
            used: 0,
            resume: None,
            open: true,
        };
        match self.lanes.iter().position(|lane| !lane.open && lane.used == 0) {
            Some(free) => {
                self.lanes[free] = lane;
                free
            }
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.loads.is_empty())
    }

    fn has_sender(&self) -> bool {
        self.lanes.iter().any(|lane| lane.open)
    }

    /// Whether `len` bytes fit into the last load of this lane, or another load into the queue.
    fn has_room(&self, lane: usize, len: usize) -> bool {
        let Lane { loads, used: own, .. } = &self.lanes[lane];
        if self.closed || loads.back().is_some_and(|last| last.fits(len)) {
            return true;
        }
        let more = Load::memory_for(len);
        let used = self.used + more;
        // A datagram longer than half of the queue waits until its lane is empty.
        used <= self.limit && (*own == 0 || own + more <= self.limit - used) || self.used == 0
    }

    /// The last load if `len` bytes fit into it, else a new one.
    fn load_for(&mut self, lane: usize, len: usize) -> &mut Load {
        let lane = &mut self.lanes[lane];
        let index = match lane.loads.back() {
            Some(last) if last.fits(len) => lane.loads.len() - 1,
            _ => {
                let load = match self.spare.pop_if(|spare| spare.fits(len)) {
                    Some(spare) => spare,
                    None => Load::with_room_for(len),
                };
                self.used += load.memory();
                lane.used += load.memory();
                lane.loads.push_back(load);
                lane.loads.len() - 1
            }
        };
        &mut lane.loads[index]
    }

    /// Removes the next load, of one lane after the other.
    fn pop(&mut self) -> Option<(usize, Load)> {
        let count = self.lanes.len();
        for lane in (self.turn..count).chain(0..self.turn.min(count)) {
            if let Some(load) = self.lanes[lane].loads.pop_front() {
                self.turn = lane + 1;
                return Some((lane, load));
            }
        }
        None
    }

    /// Frees the memory of a processed load. Returns whether a sender that waits can continue.
    fn release(&mut self, lane: usize, mut load: Load) -> bool {
        self.used -= load.memory();
        self.lanes[lane].used -= load.memory();
        if self.spare.len() < SPARE && load.is_regular() {
            load.clear();
            self.spare.push(load);
        }
        let mut resumed = false;
        for lane in &mut self.lanes {
            resumed |= lane.resume.take_if(|resume| lane.used <= *resume).is_some();
        }
        resumed
    }
}

/// Empty loads that are kept.
const SPARE: usize = 16;

#[cfg(test)]
mod tests;

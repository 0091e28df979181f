//! The queue in front of a worker: loads of datagrams, in one lane per receiving thread, served round robin. It is bounded in
//! bytes of memory; a lane may occupy at most as much as it leaves free, so that no thread can starve the others. A thread
//! whose lane is full waits and leaves further datagrams in its socket or ring, where the kernel buffers them and counts those
//! it drops.

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

/// Maximum number of empty loads to keep for reuse.
const SPARE: usize = 16;

#[derive(Debug)]
struct Inner {
    limit: usize,
    lanes: Vec<Lane>,
    /// The lane to serve first at the next `pop`.
    next_lane: usize,
    /// Empty loads, for reuse.
    spare: Vec<Load>,
    /// Memory of the loads that are queued or being processed, bytes.
    used: usize,
    /// The worker waits on `filled` until it is notified.
    asleep: bool,
    /// The worker has ended.
    closed: bool,
}

/// The queued loads of one sender.
#[derive(Debug)]
struct Lane {
    loads: VecDeque<Load>,
    /// Memory of the lane's loads that are queued or being processed, bytes.
    used: usize,
    /// The sender waits on `room` until `used` has fallen to this many bytes.
    resume: Option<usize>,
    /// A sender uses this lane.
    open: bool,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    filled: Condvar,
    room: Condvar,
}

/// The sending end of one receiving thread. Each clone opens a separate lane.
#[derive(Debug)]
pub struct LoadSender {
    shared: Arc<Shared>,
    lane: usize,
}

/// The receiving end, owned by the worker.
#[derive(Debug)]
pub struct LoadReceiver(Arc<Shared>);

/// Creates a queue with room for `limit` bytes.
pub fn load_queue(limit: usize) -> (LoadSender, LoadReceiver) {
    let mut inner = Inner {
        limit,
        lanes: Vec::new(),
        next_lane: 0,
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
    /// Queues datagrams in order, and waits while there is no room. Returns the number dropped because the worker has ended.
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
                // The part with the first reports counts for the whole datagram.
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
            // Wake up only after half of the lane is processed: fewer, longer turns.
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
    /// Passes one load to `process`. If the queue is empty, first sleeps for `nap`, during which senders need not notify, and
    /// then waits for at most `timeout`.
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
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Received::Nothing;
            }
            inner.asleep = true;
            inner = self
                .0
                .filled
                .wait_timeout(inner, remaining)
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

    /// Returns the receive time of the earliest queued datagram.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        lock(&self.0.inner).lanes.iter().filter_map(Lane::oldest).min()
    }

    /// Returns whether no load is queued.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0.inner).is_empty()
    }
}

#[cfg(test)]
impl LoadReceiver {
    /// Returns whether a sender waits for room.
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
    /// Returns the receive time of the lane's first datagram.
    fn oldest(&self) -> Option<Nanos> {
        Some(self.loads.front()?.entries.first()?.received)
    }
}

impl Inner {
    /// Returns the index of a free lane (no sender, no loads), adding one if necessary.
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

    /// Returns whether `len` bytes fit into the lane's last load or, as another load, into the queue.
    fn has_room(&self, lane: usize, len: usize) -> bool {
        let Lane { loads, used: own, .. } = &self.lanes[lane];
        if self.closed || loads.back().is_some_and(|last| last.fits(len)) {
            return true;
        }
        let more = Load::memory_for(len);
        let used = self.used + more;
        // A datagram larger than half of the queue is accepted once its lane is empty, one larger than the queue once all are.
        used <= self.limit && (*own == 0 || own + more <= self.limit - used) || self.used == 0
    }

    /// Returns the lane's last load if `len` bytes fit into it, or appends a new one.
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

    /// Removes the next load and returns its lane, serving the lanes round robin.
    fn pop(&mut self) -> Option<(usize, Load)> {
        let count = self.lanes.len();
        for lane in (self.next_lane..count).chain(0..self.next_lane.min(count)) {
            if let Some(load) = self.lanes[lane].loads.pop_front() {
                self.next_lane = lane + 1;
                return Some((lane, load));
            }
        }
        None
    }

    /// Frees the memory of a processed load. Returns whether a waiting sender can continue.
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

#[cfg(test)]
mod tests;

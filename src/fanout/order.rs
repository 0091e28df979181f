//! Puts the sequence numbers that several threads of an input received into the order of their receive times: a reporter's datagrams may arrive
//! at several queues of an interface, and each thread reads a burst at a time.

use std::collections::VecDeque;

use collector::event::Nanos;

use super::Noted;

/// Maximum number of waiting sequence numbers. Beyond it the earliest no longer waits for threads that may have earlier ones.
const LIMIT: usize = 16_384;

/// The sequence numbers of each thread, until no other can have earlier ones.
#[derive(Debug, Default)]
pub(super) struct Order {
    lanes: Vec<Lane>,
    waiting: usize,
}

/// The sequence numbers of one thread, in their order.
#[derive(Debug)]
struct Lane {
    noted: VecDeque<Noted>,
    /// The thread has noted everything that arrived before.
    until: Nanos,
    /// It has a thread.
    open: bool,
}

impl Order {
    /// Adds a thread; returns its number.
    pub(super) fn add(&mut self) -> usize {
        let free = |lane: &Lane| !lane.open && lane.noted.is_empty();
        let index = self.lanes.iter().position(free).unwrap_or(self.lanes.len());
        if index == self.lanes.len() {
            self.lanes.push(Lane {
                noted: VecDeque::new(),
                until: Nanos::MAX,
                open: false,
            });
        }
        // Threads receive for the first time soon after the start.
        self.lanes[index].until = 0;
        self.lanes[index].open = true;
        index
    }

    /// A thread has ended.
    pub(super) fn end(&mut self, lane: usize) {
        self.lanes[lane].open = false;
        self.lanes[lane].until = Nanos::MAX;
    }

    /// Whether there is one thread only, whose order is that of its datagrams.
    pub(super) fn is_trivial(&self) -> bool {
        self.waiting == 0 && self.lanes.iter().filter(|lane| lane.open).count() < 2
    }

    /// Adds sequence numbers of a thread.
    pub(super) fn push(&mut self, lane: usize, noted: &[Noted]) {
        self.lanes[lane].noted.extend(noted);
        self.waiting += noted.len();
    }

    /// A thread has noted everything that arrived before `until`.
    pub(super) fn set(&mut self, lane: usize, until: Nanos) {
        self.lanes[lane].until = until;
    }

    /// Passes the sequence numbers that need not wait any longer to `visit`, in order.
    pub(super) fn drain(&mut self, mut visit: impl FnMut(Noted)) {
        while let Some((lane, limit)) = self.earliest() {
            let lane = &mut self.lanes[lane];
            let is_full = self.waiting > LIMIT;
            let Some(first) = lane
                .noted
                .pop_front_if(|noted| noted.received <= limit || is_full)
            else {
                return;
            };
            self.waiting -= 1;
            visit(first);
            while let Some(next) = lane.noted.pop_front_if(|noted| noted.received <= limit) {
                self.waiting -= 1;
                visit(next);
            }
        }
    }

    /// The lane with the earliest number, and the time up to which no other has an earlier one.
    fn earliest(&self) -> Option<(usize, Nanos)> {
        let (mut first, mut least, mut limit) = (None, Nanos::MAX, Nanos::MAX);
        for (index, lane) in self.lanes.iter().enumerate() {
            match lane.noted.front() {
                None => limit = limit.min(lane.until),
                Some(front) if first.is_none() || front.received < least => {
                    limit = limit.min(least);
                    (first, least) = (Some(index), front.received);
                }
                Some(front) => limit = limit.min(front.received),
            }
        }
        first.map(|first| (first, limit))
    }
}

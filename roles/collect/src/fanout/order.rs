//! Merges the sequence numbers that several threads of one input received, in the order of their receive times. A reporter's
//! datagrams may arrive at several receive queues of an interface, and each thread reads a burst at a time, so without the
//! merge, the collector would see gaps that do not exist.
//!
//! A number leaves once every other thread has reached its time (a k-way merge with watermarks). When the wall clock is set
//! back, each thread starts a new epoch; times compare as (epoch, time).

use std::collections::VecDeque;

use collector::event::Nanos;

use super::ReceivedNumber;

/// Maximum number of waiting sequence numbers. Beyond it the earliest leaves without waiting for slower threads.
const LIMIT: usize = 16_384;

/// Smallest backward jump of a thread's time that counts as a clock step, ns. Receive timestamps are out of order by less.
const SET_BACK: Nanos = 20_000_000;

/// Time after a clock step within which every thread has seen the new time, ns.
const PATIENCE: Nanos = 1_000_000_000;

/// The watermark of a lane without a thread: it never holds the others up.
const NEVER: Moment = (u64::MAX, Nanos::MAX);

/// A time, preceded by its epoch: how often the clock had been set back before.
type Moment = (u64, Nanos);

/// Sequence numbers by thread, each waiting until no other thread can have an earlier one.
#[derive(Debug, Default)]
pub(super) struct Order {
    lanes: Vec<Lane>,
    waiting: usize,
    /// The start of the current epoch: the first time seen after the latest clock step.
    restarted: Moment,
}

/// The sequence numbers of one thread, in their order.
#[derive(Debug)]
struct Lane {
    /// The waiting numbers, each with its epoch.
    numbers: VecDeque<(u64, ReceivedNumber)>,
    /// The thread's watermark: it has delivered everything that arrived before.
    until: Moment,
    /// A thread uses this lane.
    open: bool,
}

impl Lane {
    /// Returns the time of the first waiting number.
    fn front(&self) -> Option<Moment> {
        self.numbers
            .front()
            .map(|(step, number)| (*step, number.received))
    }
}

impl Order {
    /// Adds a thread and returns the index of its lane.
    pub(super) fn add(&mut self) -> usize {
        let free = self
            .lanes
            .iter()
            .position(|lane| !lane.open && lane.numbers.is_empty());
        let index = free.unwrap_or(self.lanes.len());
        if index == self.lanes.len() {
            self.lanes.push(Lane {
                numbers: VecDeque::new(),
                until: NEVER,
                open: false,
            });
        }
        // A new thread has no time yet: the lane's watermark is the start of the epoch.
        self.lanes[index].until = (self.restarted.0, 0);
        self.lanes[index].open = true;
        index
    }

    /// Marks a lane as ended; its waiting numbers still leave in order.
    pub(super) fn end(&mut self, lane: usize) {
        self.lanes[lane].open = false;
        self.lanes[lane].until = NEVER;
    }

    /// Returns whether a single thread delivers numbers, so that they are in order already.
    pub(super) fn is_trivial(&self) -> bool {
        self.waiting == 0 && self.lanes.iter().filter(|lane| lane.open).count() < 2
    }

    /// Adds the sequence numbers that a thread received, in the order of their arrival.
    pub(super) fn push(&mut self, lane: usize, numbers: &[ReceivedNumber]) {
        for number in numbers {
            self.check_clock(lane, number.received);
            let lane = &mut self.lanes[lane];
            lane.numbers.push_back((lane.until.0, *number));
        }
        self.waiting += numbers.len();
    }

    /// Advances a thread's watermark: it has delivered everything that arrived before `until`.
    pub(super) fn set(&mut self, lane: usize, until: Nanos) {
        self.check_clock(lane, until);
        self.lanes[lane].until.1 = until;
        // Move lanes of the old epoch to the new one after a grace period, so that an idle thread does not hold the others up.
        let (step, restarted) = self.restarted;
        if self.lanes[lane].until.0 == step && until > restarted.saturating_add(PATIENCE) {
            for other in self.lanes.iter_mut().filter(|other| other.until.0 < step) {
                other.until = (step, until.min(other.until.1));
            }
        }
    }

    /// Detects a clock step: a thread that reaches `time` after a much later one starts the next epoch, so that its further
    /// numbers follow those of the old clock.
    fn check_clock(&mut self, lane: usize, time: Nanos) {
        let (step, before) = self.lanes[lane].until;
        if time.saturating_add(SET_BACK) < before {
            if step == self.restarted.0 {
                self.restarted = (step + 1, time);
            }
            self.lanes[lane].until = (self.restarted.0, time);
        }
    }

    /// Passes the sequence numbers that need not wait to `visit`, in order. Above [`LIMIT`], the earliest one never waits.
    pub(super) fn drain(&mut self, mut visit: impl FnMut(ReceivedNumber)) {
        while let Some((lane, limit)) = self.earliest() {
            let lane = &mut self.lanes[lane];
            let is_full = self.waiting > LIMIT;
            let Some(first) = lane
                .numbers
                .pop_front_if(|(step, number)| (*step, number.received) <= limit || is_full)
            else {
                return;
            };
            self.waiting -= 1;
            visit(first.1);
            while let Some(next) = lane
                .numbers
                .pop_front_if(|(step, number)| (*step, number.received) <= limit)
            {
                self.waiting -= 1;
                visit(next.1);
            }
        }
    }

    /// Returns the lane with the earliest number, and the time up to which no other lane can have an earlier one.
    fn earliest(&self) -> Option<(usize, Moment)> {
        let fronts = self.lanes.iter().map(Lane::front).enumerate();
        let (first, _) = fronts
            .filter_map(|(index, front)| Some((index, front?)))
            .min_by_key(|(_, front)| *front)?;
        let others = self.lanes.iter().enumerate().filter(|(index, _)| *index != first);
        let limit = others.map(|(_, lane)| lane.front().unwrap_or(lane.until)).min();
        Some((first, limit.unwrap_or(NEVER)))
    }
}

#[cfg(test)]
mod tests {
    use collector::StreamId;

    use super::*;

    fn noted(seq: u32, received: Nanos) -> ReceivedNumber {
        let stream = StreamId {
            version: 2,
            hw_id: 0,
            listener: 0,
            node: None,
            source: [0; 16],
        };
        ReceivedNumber {
            stream,
            seq,
            received,
            refused: false,
        }
    }

    fn drain(order: &mut Order) -> Vec<u32> {
        let mut numbers = Vec::new();
        order.drain(|noted| numbers.push(noted.seq));
        numbers
    }

    #[test]
    fn numbers_from_before_the_clock_was_set_back_come_first_and_do_not_wait_for_it() {
        const START: Nanos = 10_000_000_000_000;
        for back in [250_000_000, 5_000_000_000, 3_600_000_000_000] {
            let mut order = Order::default();
            let (one, other) = (order.add(), order.add());
            order.set(one, START);
            order.set(other, START);
            order.push(one, &[noted(1, START + 1)]);
            order.push(other, &[noted(2, START + 2)]);
            assert_eq!(drain(&mut order), [1]);
            // The first thread has the new time; the other still has numbers from before.
            order.push(one, &[noted(3, START + 3), noted(5, START - back)]);
            order.set(one, START - back);
            assert_eq!(drain(&mut order), [2]);
            order.push(other, &[noted(4, START + 4)]);
            order.set(other, START + 4);
            assert_eq!(drain(&mut order), [3, 4]);
            order.set(other, START - back + 9);
            assert_eq!(drain(&mut order), [5]);
            order.push(one, &[noted(7, START - back + 11)]);
            order.push(other, &[noted(6, START - back + 10)]);
            order.set(one, START - back + 12);
            order.set(other, START - back + 12);
            assert_eq!(drain(&mut order), [6, 7]);
        }
    }

    #[test]
    fn a_thread_whose_time_did_not_go_back_holds_the_others_up_for_a_second() {
        let mut order = Order::default();
        let (one, other) = (order.add(), order.add());
        order.set(one, 9 * PATIENCE);
        order.set(other, 9 * PATIENCE);
        order.set(one, 9 * PATIENCE - SET_BACK - 1);
        order.push(one, &[noted(1, 9 * PATIENCE)]);
        order.set(other, 10 * PATIENCE - SET_BACK);
        order.set(one, 10 * PATIENCE - SET_BACK - 1);
        assert_eq!(drain(&mut order), [0; 0]);
        order.set(one, 10 * PATIENCE - SET_BACK);
        assert_eq!(drain(&mut order), [1]);
    }
}

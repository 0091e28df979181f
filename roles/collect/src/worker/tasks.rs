//! Schedules the queries of a worker: between bursts when few datagrams are waiting, and otherwise for a small part of each
//! tick. So no datagram waits long for queries, however many there are.

use std::{sync::mpsc::Receiver, time::Duration};

/// Time for tasks per turn. At a million datagrams per second a thousand queue up, which every receive buffer holds.
const TURN: Duration = Duration::from_millis(1);
/// Number of waits of 1 ms after a task.
const EXPECTED: u32 = 20;

/// The queue of a worker's tasks.
#[derive(Debug)]
pub(super) struct Tasks<T> {
    queue: Receiver<T>,
    /// A task removed from the queue that did not fit into the last turn.
    ahead: Option<T>,
    /// Number of further short waits, during which another task is expected.
    expecting: u32,
}

impl<T> Tasks<T> {
    pub(super) fn new(queue: Receiver<T>) -> Self {
        Self {
            queue,
            ahead: None,
            expecting: 0,
        }
    }

    /// Returns the next task, unless the turn has already `spent` its time.
    #[inline]
    pub(super) fn next(&mut self, spent: Duration) -> Option<T> {
        let task = self.ahead.take().or_else(|| self.queue.try_recv().ok())?;
        self.expecting = EXPECTED;
        if spent < TURN {
            return Some(task);
        }
        self.ahead = Some(task);
        None
    }

    /// Returns the longest time to wait for datagrams, ms: 0 while a task waits, and 1 for a while after a task, because
    /// queries of large tables come in many steps.
    #[inline]
    pub(super) fn patience_ms(&mut self) -> u32 {
        if self.ahead.is_some() {
            return 0;
        }
        match self.expecting.checked_sub(1) {
            Some(left) => {
                self.expecting = left;
                1
            }
            None => (super::TICK / 1_000_000) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_turn_ends_after_the_task_that_used_up_its_time() {
        let (sender, queue) = sync_channel(16);
        let mut tasks = Tasks::new(queue);
        let half = TURN / 2;
        (0..7).for_each(|task| sender.send(task).unwrap());
        // Each takes half of the time: two a turn.
        let mut turns = Vec::new();
        let mut patience = 0;
        while patience == 0 {
            let (mut spent, mut run) = (Duration::ZERO, Vec::new());
            while let Some(task) = tasks.next(spent) {
                run.push(task);
                spent += half;
            }
            turns.push(run);
            patience = tasks.patience_ms();
        }
        assert_eq!(turns, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
    }

    #[test]
    fn the_worker_waits_briefly_after_a_task_and_then_for_a_tick() {
        let (sender, queue) = sync_channel(16);
        let mut tasks = Tasks::new(queue);
        assert_eq!((tasks.next(Duration::ZERO), tasks.patience_ms()), (None, 20));
        sender.send(()).unwrap();
        assert_eq!(tasks.next(Duration::ZERO), Some(()));
        let waits: Vec<u32> = (0..=EXPECTED).map(|_| tasks.patience_ms()).collect();
        assert_eq!(waits, [vec![1; EXPECTED as usize], vec![20]].concat());
        // One that has to wait for its turn is not waited for.
        sender.send(()).unwrap();
        assert_eq!((tasks.next(TURN), tasks.patience_ms()), (None, 0));
        assert_eq!(tasks.next(Duration::ZERO), Some(()));
    }
}

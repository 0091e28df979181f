//! Watermarks of the receiving threads: the time up to which each has passed on everything that arrived. The collector's
//! timers follow them instead of the clock. So datagrams that wait in a socket or ring while the process is stopped or behind
//! are neither counted as lost nor assigned to a later second.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use collector::event::Nanos;

use runtime::lock::lock;

/// Maximum lead of one thread's datagrams over another's, ns. It is small compared with the silence after which missing
/// sequence numbers count as lost.
pub const LEAD: Nanos = 250_000_000;

/// Time after which neither the watermark nor other threads wait for a thread that is behind (overloaded) or has not checked in
/// (blocked), ns. A flood on one input thus does not delay the others. Time with the process stopped does not count.
const PATIENCE: Nanos = 1_000_000_000;

/// Silence of all threads that shows that the process was stopped, ns. Each thread checks in every 20 ms.
const STOPPED: Nanos = 250_000_000;

/// Duration of one step of a wait.
const STEP: Duration = Duration::from_millis(1);

/// Maximum number of steps of a wait. It counts steps instead of time, because the process may be stopped meanwhile.
const STEPS: u32 = 1000;

/// The watermarks of all threads whose datagrams reach the same workers.
#[derive(Debug, Default)]
pub struct Watermarks {
    readers: Mutex<Readers>,
}

/// The state of all receiving threads.
#[derive(Debug, Default)]
struct Readers {
    /// The state by thread; `None` is a free slot.
    readers: Vec<Option<Reader>>,
    /// Latest check-in of any thread or worker, monotonic clock.
    checked: Nanos,
}

/// The state of one receiving thread.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// The watermark, or `None` before the first receive.
    until: Option<Nanos>,
    /// Start of the period in which datagrams have been waiting without interruption, monotonic clock.
    behind_since: Option<Nanos>,
    /// Latest check-in of this thread, monotonic clock.
    checked: Nanos,
}

impl Reader {
    /// Returns whether the thread is overloaded or blocked.
    fn is_late(&self, monotonic: Nanos) -> bool {
        let since = self.behind_since.unwrap_or(self.checked).min(self.checked);
        monotonic.saturating_sub(since) >= PATIENCE
    }

    /// Returns whether another thread should wait for this one, because its datagrams are more than [`LEAD`] behind `last`.
    fn is_behind(&self, last: Nanos, monotonic: Nanos) -> bool {
        let is_behind = self.until.is_some_and(|until| until.saturating_add(LEAD) < last);
        is_behind && !self.is_late(monotonic)
    }
}

impl Readers {
    /// Records a check-in. If the process was stopped before it, no thread is charged for that time.
    fn note_check(&mut self, monotonic: Nanos) {
        if monotonic.saturating_sub(self.checked) >= STOPPED {
            for reader in self.readers.iter_mut().flatten() {
                reader.behind_since = reader.behind_since.map(|_| monotonic);
                reader.checked = monotonic;
            }
        }
        self.checked = monotonic;
    }

    /// Returns the earliest watermark, at most `now`. A late thread counts as at most [`LEAD`] behind the most advanced one.
    fn time(&mut self, now: Nanos, monotonic: Nanos) -> Nanos {
        self.note_check(monotonic);
        let readers = self.readers.iter().flatten();
        let greatest = readers
            .clone()
            .filter_map(|reader| reader.until)
            .max()
            .unwrap_or(0);
        let mut least = now;
        for reader in readers {
            let until = match reader.until {
                Some(until) if reader.is_late(monotonic) => until.max(greatest.saturating_sub(LEAD)),
                Some(until) => until,
                None => continue,
            };
            least = least.min(until);
        }
        least
    }

    fn set(&mut self, reader: usize, until: Nanos, is_drained: bool, monotonic: Nanos) {
        self.note_check(monotonic);
        if let Some(reader) = &mut self.readers[reader] {
            let since = reader.behind_since.unwrap_or(monotonic);
            *reader = Reader {
                until: Some(until),
                behind_since: (!is_drained).then_some(since),
                checked: monotonic,
            };
        }
    }

    /// Announces that a thread will pass on datagrams that arrived from `first` on.
    fn begin(&mut self, reader: usize, first: Nanos, monotonic: Nanos) {
        self.note_check(monotonic);
        if let Some(reader) = &mut self.readers[reader] {
            reader.until = Some(first);
            reader.checked = monotonic;
        }
    }

    /// Returns whether a thread whose datagrams reach up to `last` should wait for another one at the time `now`.
    fn others_behind(&mut self, this: usize, last: Nanos, now: Nanos, monotonic: Nanos) -> bool {
        self.note_check(monotonic);
        // After the clock was set back, `last` may be in the future, where the others never arrive.
        let last = last.min(now);
        let others = self
            .readers
            .iter()
            .enumerate()
            .filter(|(reader, _)| *reader != this);
        others
            .filter_map(|(_, other)| other.as_ref())
            .any(|other| other.is_behind(last, monotonic))
    }
}

/// The watermark of one thread. Dropping it removes the thread.
#[derive(Debug)]
pub struct Watermark {
    all: Arc<Watermarks>,
    reader: usize,
}

impl Watermarks {
    /// Adds the watermark of another thread.
    pub fn add(self: &Arc<Self>) -> Watermark {
        let mut locked = lock(&self.readers);
        let readers = &mut locked.readers;
        let reader = match readers.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                readers.push(None);
                readers.len() - 1
            }
        };
        readers[reader] = Some(Reader::default());
        drop(locked);
        Watermark {
            all: Arc::clone(self),
            reader,
        }
    }

    /// Returns the time up to which all datagrams have been passed on, at most `now`. A thread that is overloaded or blocked
    /// holds it back by at most [`LEAD`] behind the other threads.
    pub fn time(&self, now: Nanos) -> Nanos {
        lock(&self.readers).time(now, nic::time::monotonic())
    }
}

impl Watermark {
    /// Sets the watermark: everything that arrived before `until` has been passed on. `is_drained`: nothing is waiting.
    pub fn set(&self, until: Nanos, is_drained: bool) {
        let monotonic = nic::time::monotonic();
        lock(&self.all.readers).set(self.reader, until, is_drained, monotonic);
    }

    /// Announces that the thread will pass on datagrams that arrived from `first` to `last`. Waits while another thread is
    /// more than [`LEAD`] behind them, unless that thread is overloaded or blocked.
    pub fn advance(&self, first: Nanos, last: Nanos) {
        lock(&self.all.readers).begin(self.reader, first, nic::time::monotonic());
        for _ in 0..STEPS {
            let now = nic::time::now();
            let monotonic = nic::time::monotonic();
            if !lock(&self.all.readers).others_behind(self.reader, last, now, monotonic) {
                break;
            }
            thread::sleep(STEP);
        }
    }
}

impl Drop for Watermark {
    fn drop(&mut self) {
        lock(&self.all.readers).readers[self.reader] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Two threads that have received until five seconds, at monotonic time 0.
    fn two() -> Readers {
        let mut readers = Readers {
            readers: vec![Some(Reader::default()); 2],
            checked: 0,
        };
        readers.set(0, 5 * SECOND, true, 0);
        readers.set(1, 5 * SECOND, true, 0);
        readers
    }

    #[test]
    fn time_is_that_of_the_last_thread() {
        let all = Arc::new(Watermarks::default());
        assert_eq!(all.time(9 * SECOND), 9 * SECOND, "no threads");
        let (one, other) = (all.add(), all.add());
        assert_eq!(all.time(9 * SECOND), 9 * SECOND, "nothing received yet");
        one.set(5 * SECOND, true);
        assert_eq!(all.time(9 * SECOND), 5 * SECOND);
        other.set(2 * SECOND, true);
        assert_eq!(all.time(9 * SECOND), 2 * SECOND);
        // The clock was set back: times from before do not count.
        assert_eq!(all.time(SECOND), SECOND);
        drop(one);
        let third = all.add();
        third.set(SECOND, true);
        assert_eq!((third.reader, all.time(9 * SECOND)), (0, SECOND));
    }

    #[test]
    fn time_does_not_pass_before_every_thread_has_looked_after_a_stop() {
        for was_behind in [false, true] {
            let mut readers = two();
            readers.set(1, 5 * SECOND, !was_behind, 0);
            // The program was stopped for four seconds. The idle thread looks first, and as often as it likes.
            for at in 0..40 {
                let monotonic = 4 * SECOND + at * SECOND / 50;
                let now = monotonic + 5 * SECOND;
                readers.set(0, now, true, monotonic);
                assert_eq!(readers.time(now, monotonic), 5 * SECOND, "{at}");
            }
            let after = 4 * SECOND + SECOND * 4 / 5;
            readers.begin(1, 5 * SECOND + 1, after);
            readers.set(1, 5 * SECOND + 7, false, after);
            assert_eq!(readers.time(10 * SECOND, after), 5 * SECOND + 7);
        }
    }

    #[test]
    fn a_thread_that_is_overloaded_or_blocked_does_not_stop_time() {
        for is_blocked in [false, true] {
            let mut readers = two();
            let mut times = Vec::new();
            for at in (0..=PATIENCE).step_by(100_000_000) {
                if !is_blocked {
                    readers.set(1, 5 * SECOND, false, at);
                }
                readers.set(0, 5 * SECOND + at, true, at);
                let time = readers.time(9 * SECOND, at);
                if times.last() != Some(&time) {
                    times.push(time);
                }
            }
            assert_eq!(times, [5 * SECOND, 6 * SECOND - LEAD], "{is_blocked}");
            // Nobody waits for it, until it has caught up or goes on.
            assert!(!readers.others_behind(0, 8 * SECOND, 9 * SECOND, PATIENCE));
            readers.set(1, 5 * SECOND, true, PATIENCE);
            assert!(readers.others_behind(0, 8 * SECOND, 9 * SECOND, PATIENCE));
        }
    }

    #[test]
    fn a_thread_waits_for_another_whose_datagrams_are_older() {
        let mut readers = two();
        let bound = 5 * SECOND + LEAD;
        for (last, now, waits) in [
            (bound, 9 * SECOND, false),
            (bound + 1, 9 * SECOND, true),
            // The clock was set back to now: nobody waits because of times from before.
            (3600 * SECOND, bound, false),
            (3600 * SECOND, bound + 1, true),
        ] {
            assert_eq!(readers.others_behind(0, last, now, 0), waits, "{last} {now}");
        }
        let all = Arc::new(Watermarks::default());
        let (one, other) = (all.add(), all.add());
        other.set(SECOND, true);
        thread::scope(|scope| {
            let ahead = scope.spawn(|| one.advance(4 * SECOND, 5 * SECOND));
            while lock(&all.readers).readers[one.reader].unwrap().until.is_none() {
                thread::yield_now();
            }
            other.set(5 * SECOND, true);
            ahead.join().unwrap();
        });
        assert_eq!(all.time(9 * SECOND), 4 * SECOND);
    }
}

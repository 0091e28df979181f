//! Watermarks of the threads that receive: up to when each has passed on what arrived. Timers run by them instead of the clock, so that
//! datagrams which wait in a socket or ring while hopwise is stopped or behind are neither counted as lost nor put into a later second.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use collector::event::Nanos;

use runtime::lock::lock;

/// How far the datagrams of one thread may be ahead of those of another, ns. It is small compared with the silence after which missing
/// numbers count as lost.
pub(crate) const LEAD: Nanos = 250_000_000;

/// A thread that has been behind for longer than this is overloaded: nobody waits for it, so that a flood on one input does not delay the
/// others. Also the longest wait for a thread that makes no progress, ns.
const PATIENCE: Nanos = 1_000_000_000;

/// Steps of a wait.
const STEP: Duration = Duration::from_millis(1);

/// The watermarks of all threads whose datagrams reach the same workers.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    /// `None`: no thread.
    readers: Mutex<Vec<Option<Reader>>>,
}

/// A thread that receives.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// `None` until it has received for the first time.
    until: Option<Nanos>,
    /// Since when datagrams have been waiting without interruption, by the monotonic clock.
    behind_since: Option<Nanos>,
    /// It has made no progress while another waited for it.
    stuck: bool,
}

impl Reader {
    /// Whether its datagrams are more than [`LEAD`] behind `last`, and another should wait for it.
    fn is_behind(&self, last: Nanos, monotonic: Nanos) -> bool {
        let is_overloaded = self
            .behind_since
            .is_some_and(|since| monotonic.saturating_sub(since) >= PATIENCE);
        let is_behind = self.until.is_some_and(|until| until.saturating_add(LEAD) < last);
        is_behind && !is_overloaded && !self.stuck
    }
}

/// The watermark of one thread. It no longer counts when this is dropped.
#[derive(Debug)]
pub(crate) struct Watermark {
    all: Arc<Watermarks>,
    reader: usize,
}

impl Watermarks {
    /// Another thread.
    pub(crate) fn add(self: &Arc<Self>) -> Watermark {
        let mut readers = lock(&self.readers);
        let reader = match readers.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                readers.push(None);
                readers.len() - 1
            }
        };
        readers[reader] = Some(Reader::default());
        drop(readers);
        Watermark {
            all: Arc::clone(self),
            reader,
        }
    }

    /// The time up to which all datagrams have been passed on, at most `now`. A thread that is more than [`LEAD`] behind does not stop time:
    /// the others have waited for it.
    pub(crate) fn time(&self, now: Nanos) -> Nanos {
        let (mut least, mut greatest) = (now, 0);
        for until in lock(&self.readers)
            .iter()
            .flatten()
            .filter_map(|reader| reader.until)
        {
            least = least.min(until);
            greatest = greatest.max(until);
        }
        least.max(greatest.saturating_sub(LEAD)).min(now)
    }
}

impl Watermark {
    /// Everything that arrived before `until` has been passed on. `is_drained`: nothing else waited.
    pub(crate) fn set(&self, until: Nanos, is_drained: bool) {
        if let Some(reader) = &mut lock(&self.all.readers)[self.reader] {
            let since = reader.behind_since;
            *reader = Reader {
                until: Some(until),
                behind_since: (!is_drained).then(|| since.unwrap_or_else(nic::time::monotonic)),
                stuck: false,
            };
        }
    }

    /// This thread is about to pass on datagrams that arrived from `first` to `last`. Waits while datagrams of another thread
    /// are more than [`LEAD`] behind them, unless that is overloaded or makes no progress.
    pub(crate) fn advance(&self, first: Nanos, last: Nanos) {
        if let Some(reader) = &mut lock(&self.all.readers)[self.reader] {
            reader.until = Some(first);
            reader.stuck = false;
        }
        let mut begun = None;
        while self.others_behind(last, |_| {}) {
            let now = nic::time::monotonic();
            if now - *begun.get_or_insert(now) >= PATIENCE {
                self.others_behind(last, |other| other.stuck = true);
                break;
            }
            thread::sleep(STEP);
        }
    }

    /// Whether another thread is behind `last`; each is passed to `visit`.
    fn others_behind(&self, last: Nanos, mut visit: impl FnMut(&mut Reader)) -> bool {
        let mut readers = lock(&self.all.readers);
        if readers.len() < 2 {
            return false;
        }
        let monotonic = nic::time::monotonic();
        let others = readers
            .iter_mut()
            .enumerate()
            .filter(|(reader, _)| *reader != self.reader);
        let mut found = false;
        for other in others.filter_map(|(_, other)| other.as_mut()) {
            if other.is_behind(last, monotonic) {
                found = true;
                visit(other);
            }
        }
        found
    }
}

impl Drop for Watermark {
    fn drop(&mut self) {
        lock(&self.all.readers)[self.reader] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn time_is_that_of_the_last_thread_but_never_far_behind_the_first() {
        let all = Arc::new(Watermarks::default());
        assert_eq!(all.time(9 * SECOND), 9 * SECOND, "no threads");
        let (one, other) = (all.add(), all.add());
        assert_eq!(all.time(9 * SECOND), 9 * SECOND, "nothing received yet");
        one.set(5 * SECOND, true);
        assert_eq!(all.time(9 * SECOND), 5 * SECOND);
        other.set(5 * SECOND - 7, true);
        assert_eq!(all.time(9 * SECOND), 5 * SECOND - 7);
        other.set(2 * SECOND, true);
        assert_eq!(all.time(9 * SECOND), 5 * SECOND - LEAD);
        // The clock was set back: times from before do not count.
        assert_eq!(all.time(SECOND), SECOND);
        drop(one);
        assert_eq!(all.time(9 * SECOND), 2 * SECOND);
        let third = all.add();
        third.set(SECOND, true);
        assert_eq!((third.reader, all.time(9 * SECOND)), (0, 2 * SECOND - LEAD));
    }

    #[test]
    fn a_thread_waits_for_another_whose_datagrams_are_older() {
        let all = Arc::new(Watermarks::default());
        let (one, other) = (all.add(), all.add());
        other.set(SECOND, true);
        let is_ahead = |last| one.others_behind(last, |_| {});
        assert_eq!([SECOND + LEAD, SECOND + LEAD + 1].map(is_ahead), [false, true]);
        thread::scope(|scope| {
            let ahead = scope.spawn(|| one.advance(4 * SECOND, 5 * SECOND));
            while all.time(9 * SECOND) != 4 * SECOND - LEAD {
                thread::yield_now();
            }
            other.set(5 * SECOND, true);
            ahead.join().unwrap();
        });
        assert_eq!(all.time(9 * SECOND), 5 * SECOND - LEAD);
        // One that makes no progress is waited for once, until it goes on.
        one.advance(20 * SECOND, 20 * SECOND);
        assert!(!one.others_behind(30 * SECOND, |_| {}));
        other.set(5 * SECOND, false);
        assert!(one.others_behind(30 * SECOND, |_| {}));
        // Nobody waits for one that is overloaded.
        let reader = lock(&all.readers)[other.reader].unwrap();
        let since = reader.behind_since.unwrap();
        let waits = [0, PATIENCE - 1, PATIENCE].map(|after| reader.is_behind(30 * SECOND, since + after));
        assert_eq!(waits, [true, true, false]);
    }
}

//! Accounts for runs of sequence numbers that a filter in front of the collector (the kernel program) received and
//! suppressed.
//!
//! The filter tracks each stream. It may suppress a number that continues the current run (always the next number, or always
//! the same); any other number goes to the collector and begins a new run. The filter reports suppressed numbers here
//! ([`Sequencer::receive_run`]) before any later datagram. The totals then equal those of a sequencer that received every
//! number, with one difference in time: a number missing in the window is counted as lost when the run is reported, not when
//! a datagram moves it out of the window.

use super::stream::Stream;
use super::{Nanos, Output, STALLED, Sequencer, StreamId, WINDOW, heat_period};

/// Repetitions of a number other than the highest that are processed singly; all further ones have the same outcome. The
/// first may be missing, or refute a held number.
const SINGLY: u64 = STALLED as u64 + 3;

/// Consecutive datagrams of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Sequence number of the last datagram.
    pub last: u32,
    /// Number of datagrams in the run.
    pub count: u64,
    /// Whether all datagrams have the number `last`; otherwise, each has the number after its predecessor's.
    pub same: bool,
}

impl Sequencer {
    /// Accounts for the datagrams of a run. `now` is the receive time of the last one.
    pub fn receive_run(&mut self, id: &StreamId, run: Run, now: Nanos, out: &mut dyn Output) {
        let Run { last, count, same } = run;
        if count == 0 {
            return;
        }
        let slot = self.find(id);
        match self.streams.get_mut(slot as usize) {
            Some(stream) => {
                if stream.nodes.have_several(now) {
                    // The filter does not distinguish the nodes behind an address, so the run may mix them.
                    stream.mark_mixed(now);
                }
                stream.receive_run(run, now, out);
                self.index
                    .touch(id.hash(self.seed), slot, count, heat_period(now));
            }
            None => {
                // The stream was evicted: begin it with the first number of the run.
                let mask = u32::MAX >> (32 - id.bits());
                let first = if same {
                    last
                } else {
                    last.wrapping_sub((count - 1) as u32) & mask
                };
                self.observe(id, first, now, out);
                let slot = self.find(id);
                if let Some(stream) = self.streams.get_mut(slot as usize) {
                    stream.receive_run(
                        Run {
                            count: count - 1,
                            ..run
                        },
                        now,
                        out,
                    );
                }
            }
        }
    }
}

impl Stream {
    /// Processes numbers one by one until the rest of the run only changes counters. A run that is late, or that follows a
    /// jump, gets there within a window of numbers.
    fn receive_run(&mut self, Run { last, count, same }: Run, now: Nanos, out: &mut dyn Output) {
        let mut remaining = count;
        while remaining > 0 {
            if same && self.repeat_all(last, remaining, now)
                || !same && self.advance_all(last, remaining, now, out)
            {
                return;
            }
            let reordered = self.reordered;
            let duplicated = self.duplicated;
            remaining -= 1;
            let seq = if same {
                last
            } else {
                self.seq_before(last, remaining as u32)
            };
            self.observe(seq, now, out);
            if self.is_mixed() {
                // Mixed streams are not counted, so only the highest number and the datagram count matter.
                self.current.highest = last;
                self.datagrams = self.datagrams.wrapping_add(remaining);
                self.update_balance(0, remaining);
                return;
            }
            if same && seq != self.current.highest && count - remaining > SINGLY {
                // Late, or a stray: all further repetitions have the same outcome.
                self.reordered += (self.reordered - reordered) * remaining;
                self.duplicated += (self.duplicated - duplicated) * remaining;
                self.datagrams = self.datagrams.wrapping_add(remaining);
                if let Some(repeated) = &mut self.repeated {
                    repeated.datagram = repeated.datagram.wrapping_add(remaining);
                }
                self.update_balance(0, remaining);
                return;
            }
        }
    }

    /// Repeats the highest number `count` times. Returns `false` if this is not a mere repetition.
    fn repeat_all(&mut self, seq: u32, count: u64, now: Nanos) -> bool {
        if self.advancing || self.is_mixed() || seq != self.current.highest {
            return false;
        }
        self.datagrams = self.datagrams.wrapping_add(count);
        self.update_balance(0, count);
        self.drop_held_number();
        self.resumed = self.resumed.saturating_add(u32::from(self.is_pause(now)));
        self.last_seen = now;
        self.stalled = self
            .stalled
            .saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        true
    }

    /// Applies `count` numbers that follow the highest, up to `last`. Returns `false` if they do not follow it, or if an
    /// anomaly must be settled first.
    fn advance_all(&mut self, last: u32, count: u64, now: Nanos, out: &mut dyn Output) -> bool {
        let anomaly =
            !self.advancing || self.stalled != 0 || !self.is_single() || self.current.written_off != 0;
        if anomaly || self.current.highest != self.seq_before(last, count as u32) {
            return false;
        }
        self.update_balance(0, 0);
        self.datagrams = self.datagrams.wrapping_add(count);
        self.last_seen = now;
        let by = u32::try_from(count).unwrap_or(u32::MAX).min(WINDOW);
        self.expire_oldest(by, now, out);
        self.current.advance_all(last, by);
        self.steady = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    struct Silent;
    impl Output for Silent {}

    /// A seeded generator, so that a failure can be reproduced.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % bound
        }
    }

    fn id(version: u8) -> StreamId {
        StreamId {
            version,
            hw_id: 1,
            listener: 0,
            node: Some(7),
            source: [0; 16],
        }
    }

    /// The filter of the kernel program for the numbers of one stream.
    struct Filter {
        sequencer: Sequencer,
        id: StreamId,
        run: Option<Run>,
        passed: u64,
    }

    impl Filter {
        fn new(id: StreamId) -> Self {
            Self {
                sequencer: Sequencer::new(4, 0),
                id,
                run: None,
                passed: 0,
            }
        }

        fn observe(&mut self, number: u32, now: Nanos) {
            let mask = u32::MAX >> (32 - self.id.bits());
            if let Some(run) = &mut self.run {
                let expected = if run.same {
                    run.last
                } else {
                    run.last.wrapping_add(1) & mask
                };
                if number == expected {
                    (run.last, run.count) = (number, run.count + 1);
                    self.passed += 1;
                    return;
                }
            }
            let same = self.run.is_some_and(|run| run.last == number);
            self.report(now);
            self.sequencer.observe(&self.id, number, now, &mut Silent);
            self.run = Some(Run {
                last: number,
                count: 0,
                same,
            });
        }

        fn report(&mut self, now: Nanos) {
            if let Some(run) = &mut self.run {
                self.sequencer.receive_run(&self.id, *run, now, &mut Silent);
                run.count = 0;
            }
        }
    }

    /// Numbers as reporters send them: in order, with gaps, late and duplicated ones, restarts, far jumps, constant ones.
    fn numbers(random: &mut Random, bits: u32, count: usize) -> Vec<u32> {
        let mask = u32::MAX >> (32 - bits);
        let mut next = (random.below(1 << 33) as u32) & mask;
        let mut all = Vec::new();
        while all.len() < count {
            match random.below(40) {
                0 => next = next.wrapping_add(random.below(5) as u32),
                1 => next = next.wrapping_add(random.below(300) as u32),
                2 => all.push(next.wrapping_sub(random.below(200) as u32) & mask),
                3 => all.push(next.wrapping_sub(1) & mask),
                4 if random.below(4) == 0 => next = random.below(3) as u32,
                5 if random.below(4) == 0 => next = random.below(1 << 33) as u32,
                6 => all.push(random.below(1 << 33) as u32 & mask),
                7 if random.below(6) == 0 => {
                    let times = random.below(200) as usize;
                    all.extend(std::iter::repeat_n(next & mask, times));
                }
                _ => {
                    for _ in 0..random.below(400) {
                        all.push(next & mask);
                        next = next.wrapping_add(1);
                    }
                }
            }
        }
        all
    }

    #[test]
    fn a_filter_that_takes_what_is_expected_changes_no_total() {
        let mut random = Random(9);
        let mut passed = 0;
        for round in 0..2000_u64 {
            let id = id(if round % 2 == 0 { 10 } else { 20 });
            let mut all = Sequencer::new(4, 0);
            let mut filter = Filter::new(id);
            for (at, number) in numbers(&mut random, id.bits(), 3000).into_iter().enumerate() {
                all.observe(&id, number, at as Nanos, &mut Silent);
                filter.observe(number, at as Nanos);
                if random.below(500) == 0 {
                    filter.report(at as Nanos);
                    let (ours, theirs) = (filter.sequencer.streams().next(), all.streams().next());
                    assert_eq!(ours, theirs, "round {round}, number {at}");
                }
            }
            filter.report(1 << 20);
            passed += filter.passed;
        }
        assert!(passed > 4_000_000, "{passed}");
    }

    #[test]
    fn a_run_wraps_and_may_be_longer_than_half_of_the_sequence_space() {
        for (version, count) in [(20, 3_000_000), (20, (1 << 22) + 5), (10, 3_000_000_000_u64)] {
            let id = id(version);
            let mut sequencer = Sequencer::new(4, 0);
            for number in 0..3 {
                sequencer.observe(
                    &id,
                    (u32::MAX - 5 + number) & (u32::MAX >> (32 - id.bits())),
                    1,
                    &mut Silent,
                );
            }
            let from = sequencer.streams[0].current.highest;
            let last = from.wrapping_add(count as u32) & (u32::MAX >> (32 - id.bits()));
            sequencer.receive_run(
                &id,
                Run {
                    last,
                    count,
                    same: false,
                },
                2,
                &mut Silent,
            );
            let view = sequencer.streams().next().unwrap();
            let expected = StreamView {
                datagrams: count + 3,
                last_seen: 2,
                missing: 0,
                ..view
            };
            assert_eq!(view, expected);
            assert_eq!(
                (view.lost, view.reordered, view.duplicated, view.restarts),
                (0, 0, 0, 0),
                "{count}"
            );
            assert_eq!(sequencer.streams[0].current.highest, last);
        }
    }

    #[test]
    fn a_run_that_does_not_join_on_is_believed_all_the_same() {
        let mut sequencer = Sequencer::new(4, 0);
        (10..300).for_each(|number| sequencer.observe(&id(10), number, 1, &mut Silent));
        // Five numbers (300 to 304) are missing before this run.
        let run = |last, count| Run {
            last,
            count,
            same: false,
        };
        sequencer.receive_run(&id(10), run(400, 96), 2, &mut Silent);
        sequencer.receive_run(&id(10), run(1000, 600), 3, &mut Silent);
        let view = sequencer.streams().next().unwrap();
        assert_eq!(
            (view.datagrams, view.lost, view.missing, view.restarts),
            (986, 5, 0, 0)
        );
        // A run of a stream that was evicted.
        sequencer.receive_run(&id(20), run(7, 100), 3, &mut Silent);
        let view = sequencer.streams().nth(1).unwrap();
        assert_eq!(
            (view.datagrams, view.lost, view.missing, view.countable),
            (100, 0, 0, true)
        );
    }

    #[test]
    fn a_constant_number_is_counted_at_once() {
        let mut sequencer = Sequencer::new(4, 0);
        sequencer.observe(&id(10), 0, 1, &mut Silent);
        sequencer.receive_run(
            &id(10),
            Run {
                last: 0,
                count: 1 << 40,
                same: true,
            },
            2,
            &mut Silent,
        );
        let view = sequencer.streams().next().unwrap();
        assert_eq!(
            (view.datagrams, view.countable, view.duplicated),
            ((1 << 40) + 1, false, 0)
        );
        sequencer.observe(&id(10), 0, 3, &mut Silent);
        assert_eq!(sequencer.streams().next().unwrap().datagrams, (1 << 40) + 2);
    }

    #[test]
    fn a_number_that_is_repeated_elsewhere_counts_as_often() {
        for (number, counted) in [
            (150, (0, 1 << 40)),
            (100, (1, (1 << 40) - 1)),
            (9, (0, (1 << 40) - 1)),
            (5000, (0, 0)),
        ] {
            let mut sequencer = Sequencer::new(4, 0);
            (10..200)
                .filter(|&n| n != 100)
                .for_each(|n| sequencer.observe(&id(10), n, 1, &mut Silent));
            let run = Run {
                last: number,
                count: 1 << 40,
                same: true,
            };
            sequencer.receive_run(&id(10), run, 2, &mut Silent);
            let view = sequencer.streams().next().unwrap();
            assert_eq!(view.datagrams, (1 << 40) + 189, "{number}");
            if (100..200).contains(&number) {
                assert_eq!((view.reordered, view.duplicated), counted, "{number}");
            }
            // The stream has advanced, and its number is now constant.
            assert!(!view.countable, "{number}");
        }
    }
}

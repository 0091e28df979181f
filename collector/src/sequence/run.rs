//! Numbers that were received elsewhere: by a filter in front of the collector that lets the expected ones pass unseen.
//!
//! The filter is *armed* per stream with the number that was last seen and with what it may take by itself ([`Arm`]); what
//! it took is told here as a run ([`Sequencer::receive_run`]), before anything that it did not take. Totals are then those
//! of a sequencer that saw every number. What is missing in the window is found lost when the run is told, not at the
//! datagram that pushed it out.

use super::{NO_SLOT, Nanos, Sequencer, Sink, Stream, StreamId, WINDOW, eon, mask};

/// What a filter may take by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The number after the latest.
    Next,
    /// The latest number again: the stream does not count, or has not moved yet.
    Same,
}

/// How a filter is armed for a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arm {
    /// The highest number seen.
    pub latest: u32,
    /// What may follow it unseen.
    pub mode: Mode,
}

impl Sequencer {
    /// How a filter is to be armed for a stream; `None` when the stream is not known, and every number must be seen.
    pub fn arming(&self, id: &StreamId) -> Option<Arm> {
        let stream = self.streams.get(self.find(id) as usize)?;
        let mode = if stream.moved { Mode::Next } else { Mode::Same };
        Some(Arm { latest: stream.highest, mode })
    }

    /// `count` datagrams arrived that end with the number `last`: one after the other, or, where the stream's number does
    /// not move, all with that number. `now` is the receive time of the latest.
    pub fn receive_run(&mut self, id: &StreamId, (last, count): (u32, u64), now: Nanos, sink: &mut dyn Sink) {
        if count == 0 {
            return;
        }
        let slot = self.find(id);
        match self.streams.get_mut(slot as usize) {
            Some(stream) => {
                stream.receive_run(last, count, now, sink);
                let hash = id.hash(self.seed);
                self.index.touch(hash, slot, count, eon(now));
            }
            None => {
                let unused = 32 - id.bits();
                let first = last.wrapping_sub((count - 1) as u32) & (u32::MAX >> unused);
                self.observe(id, first, now, sink);
                let slot = self.find(id);
                if let Some(stream) = self.streams.get_mut(slot as usize) {
                    stream.receive_run(last, count - 1, now, sink);
                }
            }
        }
    }

    fn find(&self, id: &StreamId) -> u32 {
        match self.streams.get(self.latest as usize) {
            Some(stream) if stream.id.is(id) => self.latest,
            _ => self.index.find(id.hash(self.seed), |slot| self.streams[slot as usize].id.is(id)),
        }
    }
}

const _: () = assert!(NO_SLOT == u32::MAX, "beyond every table");

impl Stream {
    fn receive_run(&mut self, last: u32, count: u64, now: Nanos, sink: &mut dyn Sink) {
        if !self.moved && last == self.highest {
            self.datagrams = self.datagrams.wrapping_add(count);
            self.last_seen = self.last_seen.max(now);
            self.still = self.still.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            return;
        }
        // The first ones settle whatever is odd: a suspect, numbers that stood still, a run that was not agreed upon.
        let mut left = count;
        while left > count.saturating_sub(SINGLY) {
            self.observe(self.before(last, (left - 1) as u32), now, sink);
            left -= 1;
        }
        if left == 0 {
            return;
        }
        if self.highest != self.before(last, left as u32) {
            self.datagrams = self.datagrams.wrapping_add(left - 1);
            self.observe(last, now, sink);
            return;
        }
        self.datagrams = self.datagrams.wrapping_add(left);
        let by = u32::try_from(left).unwrap_or(u32::MAX).min(WINDOW);
        self.give_up(by, now, sink);
        self.window = if by == WINDOW { u128::MAX } else { self.window << by | mask(by) };
        self.known = self.known.saturating_add(by).min(WINDOW);
        self.highest = last;
    }
}

/// Numbers of a run that are looked at one by one: the first may be far away, the second then decides.
const SINGLY: u64 = 2;

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    struct Silent;
    impl Sink for Silent {}

    /// A small generator, so that a failure can be repeated.
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
        StreamId { version, hw_id: 1, listener: 0, node: Some(7), source: [0; 16] }
    }

    /// What a filter does with the numbers of one stream, as the kernel's program does it.
    struct Filter {
        sequencer: Sequencer,
        id: StreamId,
        arm: Option<Arm>,
        run: u64,
        passed: u64,
    }

    impl Filter {
        fn new(id: StreamId) -> Self {
            Self { sequencer: Sequencer::new(4, 0), id, arm: None, run: 0, passed: 0 }
        }

        fn observe(&mut self, number: u32, now: Nanos) {
            let circle = u32::MAX >> (32 - self.id.bits());
            if let Some(arm) = &mut self.arm {
                let expected = match arm.mode {
                    Mode::Next => arm.latest.wrapping_add(1) & circle,
                    Mode::Same => arm.latest,
                };
                if number == expected {
                    (arm.latest, self.run) = (number, self.run + 1);
                    self.passed += 1;
                    return;
                }
            }
            self.tell(now);
            self.sequencer.observe(&self.id, number, now, &mut Silent);
            self.arm = self.sequencer.arming(&self.id);
        }

        fn tell(&mut self, now: Nanos) {
            let latest = self.arm.map_or(0, |arm| arm.latest);
            self.sequencer.receive_run(&self.id, (latest, std::mem::take(&mut self.run)), now, &mut Silent);
        }
    }

    /// Numbers as reporters send them: in order, with gaps, late ones, doubles, restarts, far jumps, standing still.
    fn numbers(random: &mut Random, bits: u32, count: usize) -> Vec<u32> {
        let circle = u32::MAX >> (32 - bits);
        let mut next = (random.below(1 << 33) as u32) & circle;
        let mut all = Vec::new();
        while all.len() < count {
            match random.below(40) {
                0 => next = next.wrapping_add(random.below(5) as u32),
                1 => next = next.wrapping_add(random.below(300) as u32),
                2 => all.push(next.wrapping_sub(random.below(200) as u32) & circle),
                3 => all.push(next.wrapping_sub(1) & circle),
                4 if random.below(4) == 0 => next = random.below(3) as u32,
                5 if random.below(4) == 0 => next = random.below(1 << 33) as u32,
                6 => all.push(random.below(1 << 33) as u32 & circle),
                7 if random.below(6) == 0 => {
                    let times = random.below(200) as usize;
                    all.extend(std::iter::repeat_n(next & circle, times));
                }
                _ => {
                    for _ in 0..random.below(400) {
                        all.push(next & circle);
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
                    filter.tell(at as Nanos);
                    let (ours, theirs) = (filter.sequencer.streams().next(), all.streams().next());
                    assert_eq!(ours, theirs, "round {round}, number {at}");
                }
            }
            filter.tell(1 << 20);
            passed += filter.passed;
        }
        assert!(passed > 4_000_000, "{passed}");
    }

    #[test]
    fn a_run_crosses_the_end_of_the_circle_and_may_be_longer_than_half_of_it() {
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
            let from = sequencer.arming(&id).unwrap().latest;
            let last = from.wrapping_add(count as u32) & (u32::MAX >> (32 - id.bits()));
            sequencer.receive_run(&id, (last, count), 2, &mut Silent);
            let view = sequencer.streams().next().unwrap();
            let expected = StreamView { datagrams: count + 3, last_seen: 2, missing: 0, ..view };
            assert_eq!(view, expected);
            assert_eq!((view.lost, view.reordered, view.duplicated, view.restarts), (0, 0, 0, 0), "{count}");
            assert_eq!(sequencer.arming(&id), Some(Arm { latest: last, mode: Mode::Next }));
        }
    }

    #[test]
    fn a_run_that_does_not_join_on_is_believed_all_the_same() {
        let mut sequencer = Sequencer::new(4, 0);
        (10..300).for_each(|number| sequencer.observe(&id(10), number, 1, &mut Silent));
        // Five are missing before it.
        sequencer.receive_run(&id(10), (400, 96), 2, &mut Silent);
        sequencer.receive_run(&id(10), (1000, 600), 3, &mut Silent);
        let view = sequencer.streams().next().unwrap();
        assert_eq!((view.datagrams, view.lost, view.missing, view.restarts), (986, 5, 0, 0));
        // Of a stream that was forgotten.
        sequencer.receive_run(&id(20), (7, 100), 3, &mut Silent);
        let view = sequencer.streams().nth(1).unwrap();
        assert_eq!((view.datagrams, view.lost, view.missing, view.countable), (100, 0, 0, true));
        assert_eq!(sequencer.arming(&StreamId { hw_id: 9, ..id(10) }), None);
    }

    #[test]
    fn a_number_that_stands_still_is_armed_as_such() {
        let mut sequencer = Sequencer::new(4, 0);
        sequencer.observe(&id(10), 0, 1, &mut Silent);
        assert_eq!(sequencer.arming(&id(10)), Some(Arm { latest: 0, mode: Mode::Same }));
        sequencer.receive_run(&id(10), (0, 1 << 40), 2, &mut Silent);
        let view = sequencer.streams().next().unwrap();
        assert_eq!((view.datagrams, view.countable, view.duplicated), ((1 << 40) + 1, false, 0));
    }
}

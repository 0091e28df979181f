//! Loss accounting behind a simulated channel, compared with a plain model that remembers every number. The channel delays, repeats and
//! loses the datagrams of reporters that pause and restart, also more than a window of them; a second path delivers many of them late and
//! at once; forged numbers and refused datagrams arrive between. And steps of the clock, back and forward, of any size.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::hash::Jitter;

struct Silent;
impl Output for Silent {}

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MILLISECOND;
const SEEDS: u64 = 10_000;

fn below(random: &mut Jitter, bound: u64) -> u64 {
    u64::from(random.around(u32::MAX / 2)) % bound
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arrival {
    at: Nanos,
    id: StreamId,
    /// Restarts of the reporter before, and numbers since then; `None`: a forged number.
    sent: Option<(u32, i64)>,
    seq: u32,
    refused: bool,
    /// A second path delivers it late, with others at once.
    batched: bool,
}

/// The channel does more than to lose, repeat and delay single datagrams inside the window.
#[derive(Clone, Copy, Debug)]
struct Channel {
    /// Bursts of losses, delays of more than a window, forged numbers and refused datagrams.
    hard: bool,
    /// A second path delivers batches of datagrams late.
    second_path: bool,
}

/// Datagrams that a second path delivers late and at once.
#[derive(Default, Debug)]
struct LateBatch {
    /// The number after them.
    end: i64,
    /// They arrive after this number.
    release: i64,
    held: Vec<Arrival>,
}

impl LateBatch {
    /// A batch that begins with this number of an epoch of `count` numbers.
    fn new(random: &mut Jitter, first: i64, count: i64) -> Self {
        let sizes = [10, 200, 1000, 5000];
        let [most, most_others] = [(); 2].map(|()| sizes[below(random, 4) as usize]);
        let [size, others] = [most, most_others].map(|most| 1 + below(random, most) as i64);
        let release = (first + size + others).min(count - 20);
        Self {
            end: (first + size).min(release),
            release,
            held: Vec::new(),
        }
    }

    fn release(&mut self, now: Nanos, all: &mut Vec<Arrival>) {
        for (place, arrival) in (1..).zip(self.held.drain(..)) {
            all.push(Arrival {
                at: now + place,
                batched: true,
                ..arrival
            });
        }
    }
}

/// The datagrams of a reporter, as they arrive.
fn arrivals(random: &mut Jitter, id: StreamId, channel: Channel, all: &mut Vec<Arrival>) {
    let Channel { hard, second_path } = channel;
    let mask = u32::MAX >> (32 - id.bits());
    // A path delays no datagram for as long as a pause.
    let unit = if second_path {
        MILLISECOND / 10
    } else {
        MILLISECOND
    };
    let mut now = SECOND + below(random, 5 * SECOND);
    for epoch in 0..1 + below(random, 4) as u32 {
        // A reporter counts on from wherever it was when the collector started, later from its start.
        // Not so near to the end of the sequence space that a restart looks like a gap.
        let starts = [
            0,
            mask - 60,
            mask / 2 + 10,
            below(random, 1 << 32) as u32 & (mask >> 1),
        ];
        let start = if epoch == 0 {
            starts[below(random, 4) as usize]
        } else {
            below(random, 3) as u32
        };
        let most = if second_path && below(random, 4) == 0 {
            20_000
        } else {
            900
        };
        let count = 300 + below(random, most) as i64;
        let mut lost_until = 0;
        let mut batch = LateBatch::default();
        for number in 0..count {
            let is_edge = !(10..count - 10).contains(&number);
            now += (2 + below(random, 4)) * unit;
            if second_path && number > batch.release.max(80) && !is_edge && below(random, 500) == 0 {
                batch = LateBatch::new(random, number, count);
            }
            if below(random, 300) == 0 && !is_edge && number > batch.release + 20 {
                now += below(random, 40) * SECOND;
            }
            if hard && below(random, 400) == 0 {
                lost_until = number + 130 + below(random, 200) as i64;
            }
            let times = [0, 1, 1, 1, 1, 1, 1, 1, 1, 2][below(random, 10) as usize];
            let times = if is_edge {
                1
            } else if number < lost_until {
                0
            } else {
                times
            };
            for _ in 0..times {
                let delay = match below(random, 400) {
                    0 if hard && !is_edge => 500 + below(random, 1000),
                    1..100 if !is_edge => below(random, 100),
                    _ => 0,
                };
                // A node with a global id may send from any of its addresses.
                let source = if id.version == V05 {
                    id.source
                } else {
                    [below(random, 3) as u8; 16]
                };
                let on_path = if number < batch.end {
                    &mut batch.held
                } else {
                    &mut *all
                };
                on_path.push(Arrival {
                    at: now + delay * unit,
                    id: StreamId { source, ..id },
                    sent: Some((epoch, number)),
                    seq: start.wrapping_add(number as u32) & mask,
                    refused: hard && !is_edge && below(random, 30) == 0,
                    batched: false,
                });
            }
            if number == batch.release {
                batch.release(now, all);
            }
        }
        now += 2 * SECOND + below(random, 20) * SECOND;
    }
}

/// Adds single forged numbers, which are not near those that the reporter sends then.
fn forge(random: &mut Jitter, all: &mut Vec<Arrival>) {
    let mut at = 0;
    loop {
        at += 20 + below(random, 400) as usize;
        let Some(before) = all.get(at).copied() else {
            return;
        };
        let offset = [2000, 50_000, 1 << 21, below(random, 1 << 32)][below(random, 4) as usize];
        let offset = if below(random, 2) == 0 {
            offset
        } else {
            offset.wrapping_neg()
        };
        let mask = u32::MAX >> (32 - before.id.bits());
        let seq = before.seq.wrapping_add(offset as u32) & mask;
        all.insert(
            at + 1,
            Arrival {
                seq,
                sent: None,
                refused: false,
                ..before
            },
        );
    }
}

/// A plain model of one reporter.
#[derive(Default)]
struct Model {
    /// The numbers that arrived since the latest restart.
    arrived: BTreeSet<i64>,
    epoch: u32,
    last_seen: Nanos,
    /// Up to this number all were accounted for when the stream was silent.
    settled: i64,
    /// Numbers that never arrived.
    lost: u64,
    /// Numbers that arrived when they were already lost, or did not count because their datagram was refused.
    excused: u64,
    /// Forged numbers that arrived among those of a late batch.
    forged_in_batch: u64,
}

impl Model {
    fn arrive(&mut self, arrival: &Arrival) {
        self.last_seen = arrival.at;
        let Some((epoch, number)) = arrival.sent else {
            self.forged_in_batch += u64::from(arrival.batched);
            return;
        };
        if epoch > self.epoch {
            self.end();
            self.epoch = epoch;
        }
        let highest = self.arrived.last().copied().unwrap_or(0);
        let is_far = number <= self.settled || (number - highest).abs() >= i64::from(WINDOW);
        self.excused += u64::from((arrival.refused || is_far) && !self.arrived.contains(&number));
        self.arrived.insert(number);
    }

    fn account(&mut self, now: Nanos) {
        if now.saturating_sub(self.last_seen) >= SETTLE {
            self.settled = self.arrived.last().copied().unwrap_or(0);
        }
    }

    /// The numbers end.
    fn end(&mut self) {
        if let (Some(first), Some(last)) = (self.arrived.first(), self.arrived.last()) {
            self.lost += (last - first + 1) as u64 - self.arrived.len() as u64;
        }
        self.arrived.clear();
        self.settled = -1;
    }
}

fn reporters() -> [StreamId; 5] {
    let v10 = StreamId {
        version: 10,
        hw_id: 1,
        listener: 0,
        node: Some(7),
        source: [0; 16],
    };
    let v05 = StreamId {
        version: V05,
        node: Some(11),
        source: [9; 16],
        ..v10
    };
    [
        v10,
        StreamId { version: 20, ..v10 },
        // Two nodes behind one address, and one that does not say its number.
        v05,
        StreamId {
            node: Some(12),
            ..v05
        },
        StreamId {
            source: [11; 16],
            node: None,
            ..v05
        },
    ]
}

/// One stream and its model after all arrivals, and whether it ever was one of several nodes.
fn run(id: StreamId, all: &[Arrival], seed: u64) -> (StreamView, Model, bool) {
    let mut sequencer = Sequencer::new(64, seed);
    let mut model = Model {
        settled: -1,
        ..Model::default()
    };
    let mut second = 0;
    let mut was_mixed = false;
    for arrival in all {
        if arrival.at / SECOND != second {
            second = arrival.at / SECOND;
            sequencer.account(second * SECOND, &mut Silent);
            model.account(second * SECOND);
        }
        if arrival.refused {
            sequencer.observe_refused(&arrival.id, arrival.seq, arrival.at, &mut Silent);
        } else {
            sequencer.observe(&arrival.id, arrival.seq, arrival.at, &mut Silent);
        }
        model.arrive(arrival);
        was_mixed |= sequencer.streams().any(|view| view.mixed);
    }
    sequencer.finish(u64::MAX, &mut Silent);
    model.end();
    let mut views = sequencer.streams();
    let view = views.next().unwrap();
    assert_eq!((views.len(), view.id.version), (0, id.version));
    (view, model, was_mixed)
}

/// A run with one of the reporters.
fn simulate(seed: u64, channel: Channel) -> (StreamView, Model, bool) {
    let mut random = Jitter::new(seed);
    let ids = reporters();
    let id = ids[seed as usize / 5 % ids.len()];
    let mut all = Vec::new();
    arrivals(&mut random, id, channel, &mut all);
    all.sort_unstable();
    if channel.hard {
        forge(&mut random, &mut all);
    }
    run(id, &all, seed)
}

/// Forged numbers, bursts of losses and late batches at once. A forged number that arrives among those of a late batch counts as one of
/// them, so the batch recovers a loss too many. Other numbers of a stream without node count as turns of two nodes if five in a row arrive
/// twice, apart: such a stream is not counted for a minute, and then afresh. What a plain model does not reach: one that lies where a late batch or a burst
/// of losses is, or that arrives when a batch begins, may make the batch a restart, or some of its numbers lost (3 runs).
#[test]
fn a_hard_channel_with_a_second_path_is_counted_as_by_the_plain_model_with_few_exceptions() {
    let channel = Channel {
        hard: true,
        second_path: true,
    };
    let mut outside = Vec::new();
    let mut wrong_restarts = 0;
    let mut mixed = 0;
    for seed in 0..2000 {
        let (view, model, was_mixed) = simulate(seed, channel);
        if was_mixed {
            mixed += 1;
            continue;
        }
        let lost = view.lost + view.unconfirmed;
        let least = model.lost.saturating_sub(model.forged_in_batch);
        if !(least..=model.lost + model.excused).contains(&lost) {
            outside.push((seed, lost, model.lost, model.excused, model.forged_in_batch));
        }
        wrong_restarts += u32::from(view.restarts != u64::from(model.epoch));
    }
    assert!(
        outside.len() <= 3 && wrong_restarts <= 1 && mixed <= 6,
        "{wrong_restarts} {mixed} {outside:?}"
    );
}

#[test]
fn a_channel_that_delays_repeats_and_loses_is_counted_as_by_the_plain_model() {
    let mut sums = [0_u64; 5];
    let mut outside = Vec::new();
    let mut restarts = Vec::new();
    for seed in 0..SEEDS {
        let channel = Channel {
            hard: matches!(seed % 5, 2 | 3),
            second_path: matches!(seed % 5, 1 | 4),
        };
        let hard = channel.hard;
        let (view, model, was_mixed) = simulate(seed, channel);
        if was_mixed {
            assert!(
                view.id.node.is_none() && (hard || channel.second_path),
                "run {seed}: {view:?}"
            );
            sums[4] += 1;
            continue;
        }
        let lost = view.lost + view.unconfirmed;
        let expected = model.lost..=model.lost + model.excused;
        if !expected.contains(&lost) {
            outside.push((seed, lost, expected));
        }
        if !hard && view.restarts != u64::from(model.epoch) {
            restarts.push((seed, view.restarts, model.epoch));
        }
        for (sum, one) in sums
            .iter_mut()
            .zip([lost, model.excused, view.restarts, view.reordered])
        {
            *sum += one;
        }
    }
    assert_eq!((outside, restarts), (vec![], vec![]));
    assert!(sums[0] > 1_000_000 && sums[2] > 10_000, "{sums:?}");
}

#[test]
fn two_nodes_behind_one_address_are_never_counted_as_one() {
    let id = reporters()[4];
    for seed in 0..2000 {
        let mut random = Jitter::new(seed);
        let apart = [0, below(&mut random, 128), 5000][below(&mut random, 3) as usize] as u32;
        let mut all = BTreeMap::new();
        let mut not_sent = 0;
        for (node, start) in [1, 1 + apart].into_iter().enumerate() {
            let mut now = SECOND;
            for number in 0..400 {
                now += 9 * MILLISECOND + below(&mut random, 2) * MILLISECOND;
                if below(&mut random, 50) == 0 {
                    not_sent += 1;
                } else {
                    all.insert((now, node), start + number);
                }
            }
        }
        let mut sequencer = Sequencer::new(4, seed);
        let mut loss = 0;
        for ((now, _), seq) in &all {
            sequencer.observe(&id, *seq, *now, &mut Silent);
            if !sequencer.streams().all(|view| view.mixed) {
                loss = sequencer.streams().map(|view| view.lost).sum();
            }
        }
        let view = sequencer.streams().next().unwrap();
        assert_eq!(
            (view.mixed, view.countable),
            (true, false),
            "run {seed}: {apart} {view:?}"
        );
        // Far apart, two datagrams in a row of one node look like an outage.
        assert!(
            apart == 5000 || loss <= not_sent,
            "run {seed}: {apart} {loss}, not {not_sent}"
        );
    }
}

/// The clock at the beginning.
const START: Nanos = 1_000_000 * SECOND;

/// A sequencer and its clock.
struct Clocked {
    sequencer: Sequencer,
    now: Nanos,
    accounted: Nanos,
}

impl Clocked {
    fn new() -> Self {
        Self {
            sequencer: Sequencer::new(8, 0),
            now: START,
            accounted: START,
        }
    }

    /// Lets the clock run. Each second of it is accounted for.
    fn wait(&mut self, time: Nanos) {
        let until = self.now + time;
        while self.accounted.saturating_add(SECOND) <= until {
            self.accounted = (self.accounted + SECOND).max(self.now);
            self.sequencer.account(self.accounted, &mut Silent);
        }
        self.now = until;
    }

    /// Sets the clock. As in the fan-out, a step of a second or more is seen at once.
    fn step(&mut self, to: Nanos) {
        self.now = to;
        if to.abs_diff(self.accounted) >= SECOND {
            self.accounted = to;
            self.sequencer.account(to, &mut Silent);
        }
    }

    fn observe(&mut self, arrival: &Arrival) {
        self.sequencer
            .observe(&arrival.id, arrival.seq, self.now, &mut Silent);
    }

    /// The streams, without times.
    fn views(&self) -> Vec<StreamView> {
        let views = self.sequencer.streams();
        views.map(|view| StreamView { last_seen: 0, ..view }).collect()
    }
}

/// A time to which the clock is set: by less than a second up to hours from `now`.
fn stepped(random: &mut Jitter, now: Nanos) -> Nanos {
    let most = [3, 30, 300, 20_000][below(random, 4) as usize] * SECOND;
    let size = below(random, most / 1000) * 1000;
    if below(random, 3) == 0 {
        now + size
    } else {
        now - size
    }
}

/// Numbers of two nodes behind one address, and of one, with losses, restarts and a second path.
fn numbers(random: &mut Jitter) -> Vec<Arrival> {
    let ids = reporters();
    let at = below(random, 5) as usize;
    let mut all = Vec::new();
    for id in if at < 2 { &ids[at..=at] } else { &ids[2..] } {
        let channel = Channel {
            hard: false,
            second_path: below(random, 2) == 0,
        };
        arrivals(random, *id, channel, &mut all);
    }
    all.sort_unstable();
    all
}

/// Once the clock has run for as long as the longest timeout, a stream is as if there had been no step.
#[test]
fn nothing_stays_open_for_longer_after_a_step_of_the_clock() {
    let mut open = 0;
    for seed in 0..1500 {
        let mut random = Jitter::new(seed);
        let all = numbers(&mut random);
        let first = below(&mut random, all.len() as u64 - 100) as usize;
        let begins = below(&mut random, 2) as usize * first.saturating_sub(500);
        let mut clocks = [Clocked::new(), Clocked::new()];
        // Steps while numbers arrive.
        for pair in all[begins..=first].windows(2) {
            let step = (below(&mut random, 300) == 0).then(|| stepped(&mut random, clocks[0].now));
            for clocked in &mut clocks {
                clocked.observe(&pair[0]);
                clocked.wait(pair[1].at - pair[0].at);
                if let Some(to) = step {
                    clocked.step(to);
                }
            }
        }
        assert_eq!(clocks[0].views(), clocks[1].views());
        open += clocks[0]
            .views()
            .iter()
            .map(|view| u64::from(view.missing))
            .sum::<u64>();
        // Steps in a silence, of one of them.
        for _ in 0..1 + below(&mut random, 3) {
            let to = stepped(&mut random, clocks[0].now);
            clocks[0].step(to);
            clocks[0].wait(below(&mut random, 3 * SECOND));
        }
        for clocked in &mut clocks {
            clocked.wait(MIXED + 5 * SECOND);
        }
        assert_eq!(
            clocks[0].views(),
            clocks[1].views(),
            "seed {seed}, before {first}"
        );
        for arrival in all[first..].iter().take(300) {
            for clocked in &mut clocks {
                clocked.observe(arrival);
                clocked.wait(SECOND / 1000);
            }
        }
        for clocked in &mut clocks {
            clocked.sequencer.finish(clocked.now, &mut Silent);
        }
        assert_eq!(clocks[0].views(), clocks[1].views(), "seed {seed}, from {first}");
    }
    assert!(open > 10_000, "{open}");
}

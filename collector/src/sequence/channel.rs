//! Loss accounting behind a simulated channel, which delays, repeats and loses the datagrams of reporters that pause and restart,
//! compared with a plain model: sets of all numbers that arrived.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::hash::Jitter;

struct Silent;
impl Output for Silent {}

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MILLISECOND;
/// The longest delay of a datagram. At least 10 ms pass between two, so they overtake fewer than a window.
const DELAY: u64 = 400;

fn below(random: &mut Jitter, bound: u64) -> u64 {
    u64::from(random.around(u32::MAX / 2)) % bound
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arrival {
    at: Nanos,
    id: StreamId,
    seq: u32,
}

/// The datagrams of a reporter, as they arrive.
fn arrivals(random: &mut Jitter, id: StreamId, all: &mut Vec<Arrival>) {
    let mask = u32::MAX >> (32 - id.bits());
    let starts = [0, mask - 60, mask / 2 + 10, below(random, 1 << 32) as u32 & mask];
    let mut next = starts[below(random, 4) as usize];
    let mut now = below(random, 5 * SECOND);
    let mut since_start = 0;
    for _ in 0..20 + below(random, 80) {
        since_start += 1;
        now += match below(random, 40) {
            0 => below(random, 40) * SECOND,
            // After so many, and so far from 0, that the first one which arrives is not just ahead of all of them.
            1 | 2 if since_start > 30 && next > 30 => {
                since_start = 0;
                next = below(random, 3) as u32;
                PAUSE + SECOND + below(random, 4000) * SECOND
            }
            _ => (10 + below(random, 40)) * MILLISECOND,
        };
        let times = [0, 1, 1, 1, 1, 1, 1, 1, 1, 2][below(random, 10) as usize];
        for _ in 0..times {
            let late = below(random, 4) == 0;
            let delay = if late { below(random, DELAY) } else { 1 };
            // A node with a global id may send from any of its addresses.
            let source = if id.version == V05 { id.source } else { [below(random, 3) as u8; 16] };
            all.push(Arrival { at: now + delay * MILLISECOND, id: StreamId { source, ..id }, seq: next });
        }
        next = next.wrapping_add(1) & mask;
    }
}

/// A plain model of one reporter's sequence that remembers every number.
#[derive(Default)]
struct Model {
    /// The numbers since the last restart, the first of which is 0.
    received: BTreeSet<i64>,
    highest: (i64, u32),
    last_seen: Nanos,
    counted: Counted,
    advanced: bool,
}

/// Lost, reordered, duplicated, restarts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counted {
    lost: u64,
    reordered: u64,
    duplicated: u64,
    restarts: u64,
}

impl Model {
    fn arrive(&mut self, arrival: &Arrival) {
        let unused = 32 - arrival.id.bits();
        let distance = (arrival.seq.wrapping_sub(self.highest.1) << unused).cast_signed() >> unused;
        let paused = arrival.at - self.last_seen >= PAUSE;
        self.last_seen = arrival.at;
        let is_first = self.received.is_empty();
        self.advanced |= !is_first && distance != 0;
        let is_start = distance <= 0 || distance.unsigned_abs() > FAR && arrival.seq < WINDOW;
        if is_first || paused && is_start {
            self.counted.restarts += u64::from(!is_first);
            self.end();
            self.received.insert(0);
            self.highest = (0, arrival.seq);
            return;
        }
        let number = self.highest.0 + i64::from(distance);
        if number < 0 {
            self.counted.reordered += 1;
        } else if !self.received.insert(number) {
            self.counted.duplicated += 1;
        } else if number < self.highest.0 {
            self.counted.reordered += 1;
        } else {
            self.highest = (number, arrival.seq);
        }
    }

    /// The numbers end.
    fn end(&mut self) {
        if !self.received.is_empty() {
            self.counted.lost += (self.highest.0 + 1) as u64 - self.received.len() as u64;
        }
        self.received.clear();
    }
}

fn reporters() -> [StreamId; 7] {
    let v10 = StreamId { version: 10, hw_id: 1, listener: 0, node: Some(7), source: [0; 16] };
    let v05 = StreamId { version: V05, node: Some(11), source: [9; 16], ..v10 };
    [
        v10,
        StreamId { node: Some(8), ..v10 },
        StreamId { version: 20, ..v10 },
        // Two nodes behind one address, a node of the same number elsewhere, and one that does not say its number.
        v05,
        StreamId { node: Some(12), ..v05 },
        StreamId { source: [10; 16], ..v05 },
        StreamId { source: [11; 16], node: None, ..v05 },
    ]
}

#[test]
fn a_channel_that_delays_repeats_and_loses_is_counted_as_by_the_plain_model() {
    let mut counted = Counted::default();
    for run in 0..10_000 {
        let mut random = Jitter::new(run);
        let mut all = Vec::new();
        for id in reporters() {
            arrivals(&mut random, id, &mut all);
        }
        all.sort_unstable();
        let mut sequencer = Sequencer::new(64, run);
        let mut models: BTreeMap<StreamId, Model> = BTreeMap::new();
        let mut second = 0;
        for arrival in &all {
            if arrival.at / SECOND != second {
                second = arrival.at / SECOND;
                sequencer.account(second * SECOND, &mut Silent);
            }
            sequencer.observe(&arrival.id, arrival.seq, arrival.at, &mut Silent);
            let source = if arrival.id.version == V05 { arrival.id.source } else { [0; 16] };
            models.entry(StreamId { source, ..arrival.id }).or_default().arrive(arrival);
        }
        sequencer.finish(u64::MAX, &mut Silent);
        for view in sequencer.streams() {
            let source = if view.id.version == V05 { view.id.source } else { [0; 16] };
            let mut model = models.remove(&StreamId { source, ..view.id }).unwrap();
            model.end();
            assert_eq!((view.countable, view.mixed), (model.advanced, false), "run {run}: {view:?}");
            let StreamView { lost, unconfirmed, reordered, duplicated, restarts, .. } = view;
            let ours = Counted { lost: lost + unconfirmed, reordered, duplicated, restarts };
            if view.countable {
                assert_eq!(ours, model.counted, "run {run}: {view:?}");
                counted.lost += ours.lost;
                counted.restarts += restarts;
            }
        }
        assert!(models.is_empty(), "run {run}");
    }
    assert!(counted.lost > 100_000 && counted.restarts > 10_000, "{counted:?}");
}

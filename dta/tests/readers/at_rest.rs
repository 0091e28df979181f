//! Memory at rest, in every shape: a follower returns the available entries at once, and what it missed and what it read add up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dta::{BODY, DtaStore, Follower, Lists, Next};
use wire::dta::layout::{BlockTrailer, Ring};

use crate::support::{Rng, Writer, lists};

/// Model of a list: the numbers of the batches that were written, and the batch in each block.
struct Model {
    writer: Writer,
    blocks: BTreeMap<u64, u32>,
    newest: Option<u32>,
    /// No batch was lost.
    first: u32,
}

impl Model {
    fn new(store: &DtaStore, list: u32, first: u32) -> Self {
        let mut writer = Writer::new(store, list);
        writer.sequence = first;
        Self {
            writer,
            blocks: BTreeMap::new(),
            newest: None,
            first,
        }
    }

    fn block(&self, sequence: u32) -> u64 {
        u64::from(sequence - 1) % self.writer.ring().blocks()
    }

    /// Writes a batch of `count` entries, whose bytes identify the batch, or loses it in flight.
    fn append(&mut self, count: u16, lost: bool) {
        let sequence = self.writer.sequence;
        if lost {
            return self.writer.lose(1);
        }
        let entries = entries(
            sequence,
            usize::from(count) * usize::from(self.writer.ring().entry_len),
        );
        self.writer.append(&entries);
        self.blocks.insert(self.block(sequence), sequence);
        self.newest = Some(sequence);
    }

    /// Returns whether a batch is in memory.
    fn has(&self, sequence: u32) -> bool {
        self.blocks.get(&self.block(sequence)) == Some(&sequence)
    }

    /// The first of the consecutive batches up to the newest.
    fn oldest(&self) -> Option<u32> {
        let mut oldest = self.newest?;
        for _ in 1..self.writer.ring().blocks() {
            let before = if oldest == 1 { u32::MAX } else { oldest - 1 };
            if !self.has(before) {
                break;
            }
            oldest = before;
        }
        Some(oldest)
    }
}

fn entries(sequence: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| sequence.wrapping_mul(0x9e37_79b1).wrapping_add(at as u32) as u8)
        .collect()
}

/// The outcome of one call, with its entries verified.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outcome {
    Batch(u32),
    Overwritten(u64),
    Missing(u64),
    Nothing,
}

fn ask(follower: &mut Follower) -> Outcome {
    match follower.next() {
        Next::Batch {
            sequence,
            entries: found,
            ..
        } => {
            assert_eq!(found, entries(sequence, found.len()), "batch {sequence}");
            Outcome::Batch(sequence)
        }
        Next::Overwritten { lost } => Outcome::Overwritten(lost),
        Next::Missing { lost } => Outcome::Missing(lost),
        Next::Nothing => Outcome::Nothing,
        Next::Torn => panic!("torn, at rest"),
    }
}

/// Below `limit`, which is not 0.
fn below(rng: &mut Rng, limit: u64) -> u64 {
    rng.roll() % limit
}

/// Rings of many shapes: entries of 1 to 40 bytes, with and without padding, batches of 1 to 20, 1 to 40 blocks.
fn ring(rng: &mut Rng) -> Ring {
    let (entry_len, batch) = (1 + below(rng, 40) as u16, 1 + below(rng, 20) as u16);
    Ring {
        entry_len,
        entries: (1 + below(rng, 40)) * u64::from(batch),
        batch,
        tagged: true,
    }
}

/// First numbers: the usual one, near the largest, and anywhere.
fn first(rng: &mut Rng) -> u32 {
    match below(rng, 4) {
        0 => 1,
        1 => u32::MAX - below(rng, 100) as u32,
        2 => u32::MAX / 2 - 20 + below(rng, 40) as u32,
        _ => (rng.roll() as u32).max(1),
    }
}

/// From the oldest to the newest: each call returns a batch, in order, then `Nothing`.
fn drains(all: &Lists, model: &Model) {
    let list = all.ids().next().unwrap();
    assert_eq!(all.newest(list), model.newest);
    let mut follower = all.from_oldest(list).unwrap();
    let mut next = model.oldest();
    assert_eq!(follower.position(), next.unwrap_or(1));
    while let Some(sequence) = next {
        assert_eq!(ask(&mut follower), Outcome::Batch(sequence), "{model:?}");
        next = (Some(sequence) != model.newest).then(|| BlockTrailer::next(sequence));
    }
    assert_eq!(ask(&mut follower), Outcome::Nothing);
    let mut latest = all.from_now(list).unwrap();
    assert_eq!(latest.position(), model.newest.map_or(1, BlockTrailer::next));
    assert_eq!(ask(&mut latest), Outcome::Nothing);
}

/// From `sequence`, which was written or is the next: until the newest batch is returned no call returns `Nothing`, and read and lost
/// batches add up.
fn follows(all: &Lists, model: &Model, sequence: u32) {
    let mut follower = all.from_sequence(all.ids().next().unwrap(), sequence).unwrap();
    let newest = model.newest.unwrap();
    let (mut position, mut last) = (sequence, None);
    while BlockTrailer::ahead(newest, position) >= 0 {
        match ask(&mut follower) {
            Outcome::Batch(found) => {
                assert_eq!(found, position, "in order");
                last = Some(found);
                position = BlockTrailer::next(position);
            }
            Outcome::Overwritten(lost) => {
                assert!(
                    !model.has(position),
                    "batch {position} is there and was passed over: {model:?}"
                );
                (0..lost).for_each(|_| position = BlockTrailer::next(position));
            }
            Outcome::Missing(lost) => panic!("{lost} missing at {position}, none was lost: {model:?}"),
            Outcome::Nothing => panic!("nothing at {position} of {newest}, from {sequence}: {model:?}"),
        }
        assert_eq!(follower.position(), position);
    }
    assert_eq!(
        (last, position),
        (Some(newest), BlockTrailer::next(newest)),
        "from {sequence}"
    );
    assert_eq!(ask(&mut follower), Outcome::Nothing);
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?} first {}",
            self.writer.ring(),
            self.blocks,
            self.first
        )
    }
}

#[test]
fn idle_lists_are_returned_without_a_useless_call() {
    let mut rng = Rng(2);
    for _ in 0..400 {
        let ring = ring(&mut rng);
        // The tested list is the first of the store; the others are written too.
        let count = 1 + below(&mut rng, 3) as u32;
        let store = lists(count, ring);
        let all = store.lists().unwrap();
        let begin = first(&mut rng);
        let mut model = Model::new(&store, 100, begin);
        let mut others: Vec<Model> = (1..count)
            .map(|other| Model::new(&store, 100 + other, first(&mut rng)))
            .collect();
        drains(&all, &model);
        for _ in 0..1 + below(&mut rng, 3 * ring.blocks() + 2) {
            model.append(1 + below(&mut rng, u64::from(ring.batch)) as u16, false);
            others
                .iter_mut()
                .for_each(|other| other.append(1, below(&mut rng, 3) == 0));
            if below(&mut rng, 8) == 0 {
                drains(&all, &model);
            }
        }
        drains(&all, &model);
        let mut sequence = begin;
        while sequence != model.writer.sequence {
            follows(&all, &model, sequence);
            sequence = BlockTrailer::next(sequence);
        }
    }
}

#[test]
fn lost_entries_are_skipped_within_a_bounded_number_of_calls() {
    let mut rng = Rng(3);
    for _ in 0..400 {
        let ring = ring(&mut rng);
        let store = lists(1, ring);
        let all = store.lists().unwrap();
        let begin = first(&mut rng);
        let mut model = Model::new(&store, 100, begin);
        let share = 1 + below(&mut rng, 9);
        for _ in 0..1 + below(&mut rng, 2 * ring.blocks()) {
            model.append(ring.batch, below(&mut rng, 10) < share);
        }
        model.append(1, false);
        let mut follower = all.from_sequence(100, begin).unwrap();
        let (mut vain, mut reported) = (0, 0_i64);
        while BlockTrailer::ahead(model.newest.unwrap(), follower.position()) >= 0 {
            let before = follower.position();
            match ask(&mut follower) {
                Outcome::Batch(found) => {
                    assert!(found == before && model.has(found));
                    (vain, reported) = (0, reported + 1);
                }
                Outcome::Missing(lost) => {
                    let mut passed = before;
                    for _ in 0..lost {
                        assert!(!model.has(passed), "{passed} is there: {model:?}");
                        passed = BlockTrailer::next(passed);
                    }
                    (vain, reported) = (0, reported + lost as i64);
                }
                // A batch counted as overwritten can still be present, if the write that would have replaced it was lost.
                Outcome::Overwritten(lost) => (vain, reported) = (0, reported + lost as i64),
                Outcome::Nothing => vain += 1,
            }
            assert!(vain < follower.max_empty_polls(), "stuck at {before}: {model:?}");
        }
        assert_eq!(reported, BlockTrailer::ahead(model.writer.sequence, begin));
        assert_eq!(follower.position(), model.writer.sequence);
    }
}

#[test]
fn idle_bare_lists_are_returned_in_ring_order() {
    let mut rng = Rng(4);
    for _ in 0..300 {
        let shape = Ring {
            tagged: false,
            ..ring(&mut rng)
        };
        let store = lists(2, shape);
        let mut follower = store.lists().unwrap().bare(101).unwrap();
        let blocks = shape.blocks();
        let mut written = 0_u64;
        for _ in 0..10 {
            // At most one ring between two polls: a bare follower does not detect more.
            let burst = below(&mut rng, blocks + 1);
            let bytes = |number: u64| {
                let mut bytes = entries(number as u32 + 1, shape.block_len() as usize);
                bytes[0] = (number / blocks) as u8 + 1;
                bytes
            };
            for number in written..written + burst {
                let at = BODY + shape.offset(1, number % blocks);
                store.region().write(at, &bytes(number)).unwrap();
            }
            for number in written..written + burst {
                assert_eq!(
                    follower.next(blocks),
                    Some(&bytes(number)[..]),
                    "{number} of {shape:?}"
                );
            }
            assert_eq!(follower.next(blocks), None);
            written += burst;
        }
    }
}

#[test]
fn a_block_that_the_writer_is_overwriting_counts_as_overwritten_and_not_missing() {
    let ring = Ring {
        entries: 12,
        batch: 3,
        entry_len: 5,
        tagged: true,
    };
    // The writer stops after each byte of the block but the last.
    for written in 1..ring.block_len() as usize {
        let store = lists(1, ring);
        let mut model = Model::new(&store, 100, 1);
        (0..4).for_each(|_| model.append(3, false));
        let mut follower = store.lists().unwrap().from_sequence(100, 1).unwrap();
        let at = model.writer.at(5);
        let block = model.writer.block(&entries(5, 15));
        store.region().write(at, &block[..written]).unwrap();
        let outcome = loop {
            match follower.next() {
                Next::Nothing | Next::Torn => {}
                Next::Overwritten { lost } => break Outcome::Overwritten(lost),
                Next::Missing { lost } => break Outcome::Missing(lost),
                Next::Batch { sequence, .. } => break Outcome::Batch(sequence),
            }
        };
        assert_eq!(outcome, Outcome::Overwritten(1), "{written} bytes of the block");
        (2..5).for_each(|sequence| assert_eq!(ask(&mut follower), Outcome::Batch(sequence)));
        store.region().write(at, &block).unwrap();
        assert_eq!(ask(&mut follower), Outcome::Batch(5));
    }
}

#[test]
fn every_batch_is_returned_after_the_writer_has_stopped() {
    let mut rng = Rng(5);
    for round in 0..60_u32 {
        let ring = Ring {
            entries: (4 + below(&mut rng, 60)) * 3,
            batch: 3,
            entry_len: 5,
            tagged: true,
        };
        let store = lists(1, ring);
        let begin = first(&mut rng);
        let total = 3000;
        let done = Arc::new(AtomicBool::new(false));
        let writing = std::thread::spawn({
            let (store, done) = (store.clone(), Arc::clone(&done));
            move || {
                let mut model = Model::new(&store, 100, begin);
                (0..total).for_each(|_| model.append(3, false));
                // Pairs with the reader's load, after which it sees all writes.
                done.store(true, Ordering::Release);
                model
            }
        });
        let mut follower = store.lists().unwrap().from_sequence(100, begin).unwrap();
        let (mut read, mut gone) = (0, 0);
        while !done.load(Ordering::Acquire) {
            match follower.next() {
                Next::Batch { .. } => read += 1,
                Next::Overwritten { lost } => gone += lost,
                Next::Missing { lost } => panic!("round {round}: {lost} missing, nothing was lost"),
                Next::Nothing | Next::Torn => {}
            }
        }
        let model = writing.join().unwrap();
        // No more writes: no empty call up to the newest entry.
        while follower.position() != model.writer.sequence {
            match ask(&mut follower) {
                Outcome::Batch(_) => read += 1,
                Outcome::Overwritten(lost) => gone += lost,
                Outcome::Missing(lost) => panic!("round {round}: {lost} missing, nothing was lost"),
                Outcome::Nothing => panic!("round {round}: nothing at {}", follower.position()),
            }
        }
        assert_eq!(read + gone, total, "round {round}");
    }
}

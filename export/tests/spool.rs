//! The spool in simulated time: a disk that is full, slow to delete or damaged, a process that is killed at any step. Whatever happens,
//! records are read in order, each that was offered is read, expired, refused, or lost with the memory of a killed process; and no file is
//! deleted before the cursor that passed it was saved, unless it was the oldest and the disk was full.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::collections::{BTreeMap, BTreeSet};

use export::spool::{
    Effect, Limits, MAGIC, ReadResult, SegmentFile, Spool, Usage, WhenFull, begin, end, header_len,
    parse_header, seal,
};
use export::{Cursor, Position};
use testkit::rng::Rng;

const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    /// Writes and deletions that fail, in percent.
    disk: usize,
    /// Files that lose bytes, or in which bytes change.
    damage: usize,
    crash: usize,
    /// Pages that are read and not settled.
    unsettled: usize,
}

struct World {
    rng: Rng,
    faults: Faults,
    limits: Limits,
    now: u64,
    spool: Spool,
    files: BTreeMap<u64, Vec<u8>>,
    damaged: BTreeSet<u64>,
    cursor: Cursor,
    /// Where the reader is; at or after the cursor.
    at: Position,
    offered: u64,
    /// The number in each record that was read and settled, in order.
    settled: Vec<u64>,
    unsettled: Vec<u64>,
    expired: u64,
    unsettled_expired: u64,
    /// Refused records that killed processes counted.
    refused: u64,
    damaged_records: u64,
    crashes: u32,
}

/// Numbers as records of different lengths.
fn chunk(from: u64, count: u64) -> Vec<u8> {
    let mut chunk = Vec::new();
    for number in from..from + count {
        let begun = begin(&mut chunk);
        chunk.extend(number.to_le_bytes());
        chunk.resize(chunk.len() + (number % 23) as usize, 7);
        end(&mut chunk, begun);
    }
    chunk
}

fn number(record: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*record.first_chunk().unwrap());
    assert_eq!(record.len() as u64, 8 + number % 23);
    assert!(record[8..].iter().all(|byte| *byte == 7));
    number
}

impl World {
    fn new(seed: u64, faults: Faults, limits: Limits) -> Self {
        let cursor = Cursor::default();
        Self {
            rng: Rng(seed),
            faults,
            limits,
            now: SECOND,
            spool: Spool::new(limits, &cursor, Vec::new()),
            files: BTreeMap::new(),
            damaged: BTreeSet::new(),
            cursor,
            at: cursor.settled,
            offered: 0,
            settled: Vec::new(),
            unsettled: Vec::new(),
            expired: 0,
            unsettled_expired: 0,
            refused: 0,
            damaged_records: 0,
            crashes: 0,
        }
    }

    fn happens(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    fn offer(&mut self) {
        let count = 1 + self.rng.roll() % 8;
        self.spool.offer(&chunk(self.offered, count), count);
        self.offered += count;
    }

    fn effect(&mut self) {
        let Some(effect) = self.spool.poll(self.now) else {
            self.now = self.spool.wake_at(self.now).unwrap_or(self.now + 1);
            return;
        };
        self.execute(effect);
    }

    fn execute(&mut self, effect: Effect) {
        let works = !self.happens(self.faults.disk);
        match effect {
            Effect::Write { number, bytes } => {
                if works {
                    assert!(number >= self.cursor.settled.file);
                    assert_eq!(
                        self.files.insert(number, seal(&bytes)),
                        None,
                        "a file is written once"
                    );
                }
                self.spool.written(number, works, self.now);
            }
            Effect::Delete(number) => {
                let is_oldest = self.files.keys().next() == Some(&number);
                assert!(is_oldest, "{number} of {:?}", self.files.keys());
                let was_needed = number > self.cursor.settled.file;
                assert!(!was_needed || self.limits.when_full == WhenFull::DropOldest);
                if works {
                    self.files.remove(&number);
                    self.damaged.remove(&number);
                }
                self.spool.deleted(works, self.now);
            }
        }
    }

    fn read(&mut self) {
        let until = self.cursor.batch_end.filter(|end| *end > self.at);
        let most = 1 + self.rng.below(40);
        let bytes = 1 + self.rng.below(600);
        let mut got = Vec::new();
        let mut size = 0;
        let found = loop {
            let found = self.spool.read(self.at, until, most, bytes, |record| {
                got.push(number(record));
                size += record.len();
            });
            let ReadResult::Load(number) = found else {
                break found;
            };
            got.clear();
            size = 0;
            self.spool.loaded(number, self.files.get(&number).cloned());
        };
        let ReadResult::Page {
            end,
            expired,
            is_last,
        } = found
        else {
            unreachable!()
        };
        assert!(end >= self.at && until.is_none_or(|until| end <= until));
        if until.is_none() {
            assert!(
                got.len() <= most && (got.len() < 2 || size < bytes + 31),
                "{} of {most}",
                got.len()
            );
            assert!(is_last || !got.is_empty() || expired > 0 || end > self.at);
        }
        self.unsettled.extend(got);
        self.unsettled_expired += expired;
        self.at = end;
        match self.rng.below(4) {
            0 if self.happens(self.faults.unsettled) => {
                // Read once more from the cursor, as the same batch.
                self.cursor.batch_end = Some(self.at).filter(|end| *end > self.cursor.settled);
                (self.at, self.unsettled_expired) = (self.cursor.settled, 0);
                self.unsettled.clear();
            }
            0 | 1 => {
                self.settled.append(&mut self.unsettled);
                self.expired += std::mem::take(&mut self.unsettled_expired);
                self.cursor = Cursor {
                    settled: self.at,
                    batch_end: None,
                };
                self.spool.settle(self.at);
            }
            _ => {}
        }
    }

    fn damage(&mut self) {
        let numbers: Vec<u64> = self.files.keys().copied().collect();
        if numbers.is_empty() {
            return;
        }
        let number = numbers[self.rng.below(numbers.len())];
        let file = self.files.get_mut(&number).unwrap();
        if file.len() == header_len() {
            return;
        }
        let at = header_len() + self.rng.below(file.len() - header_len());
        match self.rng.below(2) {
            0 => file.truncate(at),
            _ => file[at] ^= 1 << self.rng.below(8),
        }
        self.damaged.insert(number);
    }

    fn restart(&mut self) {
        self.refused += self.spool.refused();
        self.damaged_records += self.spool.damaged();
        let files = self.files.iter().map(|(number, file)| SegmentFile {
            number: *number,
            records: parse_header(file).unwrap(),
            bytes: file.len(),
        });
        self.spool = Spool::new(self.limits, &self.cursor, files.collect());
        self.at = self.cursor.settled;
        self.unsettled.clear();
        self.unsettled_expired = 0;
    }

    fn check(&self) {
        let Usage { memory, disk } = self.spool.usage();
        assert!(
            memory <= self.limits.memory && disk <= self.limits.disk,
            "{memory} {disk}"
        );
        let on_disk: usize = self.files.values().map(Vec::len).sum();
        assert!(!self.damaged.is_empty() || on_disk as u64 <= self.limits.disk);
        assert!(
            self.settled.is_sorted_by(|one, next| one < next),
            "in order, each once"
        );
        if self.crashes == 0 {
            let accounted = self.settled.len() as u64 + self.expired + self.spool.refused();
            assert_eq!(accounted + self.spool.after(self.cursor.settled), self.offered);
        }
    }

    fn run(&mut self) {
        for _ in 0..400 {
            match self.rng.below(8) {
                0..3 => self.offer(),
                3..5 => self.effect(),
                5..7 => self.read(),
                _ if self.happens(self.faults.damage) => self.damage(),
                _ if self.happens(self.faults.crash) => {
                    self.crashes += 1;
                    self.restart();
                }
                _ => {}
            }
            self.check();
        }
        self.faults = Faults::default();
        // A stop writes what is in memory, and the next process reads all of it.
        self.spool.stop();
        self.now += 2 * SECOND;
        while let Some(effect) = self.spool.poll(self.now) {
            self.execute(effect);
        }
        let is_tight = self.limits.when_full == WhenFull::DropNewest || self.limits.disk < 1 << 20;
        assert!(
            self.spool.usage().memory == 0 || is_tight,
            "{} bytes were not written",
            self.spool.usage().memory
        );
        let waited = self.spool.after(self.cursor.settled);
        self.restart();
        // What was not written, or was deleted unread.
        let left = waited - self.spool.after(self.cursor.settled);
        for _ in 0..2_000 {
            self.read();
            self.effect();
        }
        self.settled.append(&mut self.unsettled);
        let missing = self.offered - self.settled.len() as u64;
        let accounted = self.expired + self.unsettled_expired + self.refused + left;
        if self.crashes == 0 {
            assert_eq!(missing, accounted);
        }
        assert!(
            self.spool.after(self.at) == 0 && missing >= accounted,
            "{missing} {accounted}"
        );
    }
}

fn percent(rng: &mut Rng, most: usize) -> usize {
    if rng.below(2) == 0 { rng.below(most) } else { 0 }
}

fn random(seed: u64) -> (Faults, Limits) {
    let mut rng = Rng(seed);
    let faults = Faults {
        disk: percent(&mut rng, 60),
        damage: percent(&mut rng, 20),
        crash: percent(&mut rng, 30),
        unsettled: percent(&mut rng, 100),
    };
    let segment = 200 + rng.below(400);
    let memory = segment * 4 + rng.below(1000);
    let disk = [0, 600, 3_000, 1 << 30][rng.below(4)];
    let when_full = if rng.below(2) == 0 {
        WhenFull::DropOldest
    } else {
        WhenFull::DropNewest
    };
    (
        faults,
        Limits {
            memory,
            segment,
            disk,
            when_full,
        },
    )
}

#[test]
fn records_are_read_in_order_or_counted_whatever_happens() {
    let mut read = 0;
    let mut expired = 0;
    let mut refused = 0;
    let mut damaged = 0;
    let mut crashes = 0;
    for seed in 0..3_000 {
        let (faults, limits) = random(seed);
        let mut world = World::new(seed, faults, limits);
        let run = std::panic::AssertUnwindSafe(|| world.run());
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}: {faults:?} {limits:?}");
            std::panic::resume_unwind(panic);
        }
        read += world.settled.len();
        expired += world.expired;
        refused += world.refused;
        damaged += world.damaged_records + world.spool.damaged();
        crashes += world.crashes;
    }
    assert!(
        read > 100_000 && expired > 1_000 && refused > 1_000,
        "{read} {expired} {refused}"
    );
    assert!(damaged > 100 && crashes > 1_000, "{damaged} {crashes}");
}

#[test]
fn without_faults_everything_is_read() {
    let limits = Limits {
        memory: 4_000,
        segment: 1_000,
        disk: 1 << 20,
        when_full: WhenFull::DropNewest,
    };
    let mut world = World::new(1, Faults::default(), limits);
    for _ in 0..200 {
        world.offer();
        world.effect();
    }
    // Most of it is in files.
    assert!(
        world.files.len() > 10 && world.spool.refused() == 0,
        "{}",
        world.files.len()
    );
    for _ in 0..2_000 {
        world.read();
        world.effect();
    }
    world.settled.append(&mut world.unsettled);
    assert!(world.settled.iter().copied().eq(0..world.offered));
    assert!(world.files.is_empty(), "{:?}", world.files.keys());
}

#[test]
fn a_file_has_its_magic_its_count_and_a_crc_per_record() {
    let mut spool = Spool::new(
        Limits {
            memory: 400,
            segment: 100,
            ..Limits::default()
        },
        &Cursor::default(),
        vec![],
    );
    let mut one = Vec::new();
    let begun = begin(&mut one);
    one.extend(b"abc");
    end(&mut one, begun);
    for _ in 0..3 {
        spool.offer(&one.repeat(2), 2);
    }
    spool.stop();
    let Some(Effect::Write { number, bytes }) = spool.poll(0) else {
        panic!()
    };
    let mut expected = MAGIC.to_vec();
    expected.extend(6_u64.to_le_bytes());
    for _ in 0..6 {
        expected.extend(b"\x03\0\0\0");
        expected.extend(wire::crc::crc_32c(b"abc").to_le_bytes());
        expected.extend(b"abc");
    }
    assert_eq!((number, seal(&bytes)), (1, expected.clone()));
    assert_eq!(parse_header(&expected), Some(6));
    assert_eq!(parse_header(&expected[..20]), None);
    assert_eq!(parse_header(b"hopwise spool 2\n\0\0\0\0\0\0\0\0"), None);
}

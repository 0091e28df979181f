//! Thousands of simulated hours: a store that grows and deletes, a server that refuses, hangs, lies and forgets to answer, a disk that
//! is full, a process that is killed at any step. Whatever happens, each record is delivered, rejected with its reason, or counted as
//! deleted; and the cursor never passes one that is not.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use export::{Action, Cursor, Delivery, Keyed, Ledger, Outcome, Page, Position, RequestId, Settings};
use testkit::rng::Rng;

const SECOND: u64 = 1_000_000_000;
/// Records of a file of the store.
const FILE: u64 = 50;
/// Until when something goes wrong.
const TROUBLE: u64 = 120 * SECOND;
const MAX_ACTIONS: u32 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    number: u64,
    key: u64,
    /// The server never takes it.
    is_wrong: bool,
    /// It is not of the stream, which is a part of what is read.
    is_left_out: bool,
}

impl Keyed for Row {
    fn key(&self) -> u64 {
        self.key
    }
}

fn position(number: u64) -> Position {
    Position {
        file: number / FILE,
        row: number % FILE,
    }
}

fn number(position: Position) -> u64 {
    position.file * FILE + position.row
}

/// The faults of a world, in percent of actions.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    /// Requests that fail, are stored without an answer, are answered late or twice, or with nonsense.
    server: usize,
    /// Requests of which a part is taken later. It breaks the order of a key.
    partly: usize,
    /// Reads and saves that fail.
    disk: usize,
    crash: usize,
    /// The store deletes the oldest file.
    deletes: usize,
    /// Rows that the server never takes.
    wrong: usize,
    /// Rows that are not of the stream.
    left_out: usize,
    /// The server says which record it refuses.
    by_record: bool,
}

#[derive(PartialEq, Eq, Debug)]
enum Done {
    Page {
        from: u64,
        until: Option<u64>,
        records: usize,
    },
    NotRead,
    Answer(RequestId, Outcome),
    Kept(u64, bool),
    Saved(Cursor, bool),
}

/// By time, the earliest first; then in order.
#[derive(PartialEq, Eq, Debug)]
struct Scheduled(u64, u64, Done);

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct World {
    rng: Rng,
    faults: Faults,
    settings: Settings,
    now: u64,
    rows: Vec<Row>,
    deleted: u64,
    saved: Cursor,
    scheduled: BinaryHeap<Scheduled>,
    order: u64,
    delivery: Delivery<Row>,
    /// Rows as the server got them, first times only, and how often it got each.
    first_stored: Vec<u64>,
    stored: BTreeMap<u64, u32>,
    rejected: BTreeSet<u64>,
    unwritten: BTreeSet<u64>,
    /// By first row: the ends of batches that were sent.
    borders: BTreeMap<u64, BTreeSet<u64>>,
    crashes: u32,
    /// Expired and left out, of the processes that were killed.
    expired: u64,
}

impl World {
    fn new(seed: u64, faults: Faults, settings: Settings) -> Self {
        let delivery = Delivery::new(settings, Cursor::default(), seed);
        Self {
            rng: Rng(seed),
            faults,
            settings,
            now: 0,
            rows: Vec::new(),
            deleted: 0,
            saved: Cursor::default(),
            scheduled: BinaryHeap::new(),
            order: 0,
            delivery,
            first_stored: Vec::new(),
            stored: BTreeMap::new(),
            rejected: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            borders: BTreeMap::new(),
            crashes: 0,
            expired: 0,
        }
    }

    fn happens(&mut self, percent: usize) -> bool {
        self.now < TROUBLE && self.rng.below(100) < percent
    }

    fn after(&mut self, delay: u64, done: Done) {
        self.order += 1;
        self.scheduled.push(Scheduled(self.now + delay, self.order, done));
    }

    fn soon(&mut self) -> u64 {
        1 + self.rng.roll() % (SECOND / 20)
    }

    fn grow(&mut self) {
        for _ in 0..self.rng.below(30) {
            let is_wrong = self.rng.below(100) < self.faults.wrong;
            let is_left_out = self.rng.below(100) < self.faults.left_out;
            let key = self.rng.roll() % 5;
            self.rows.push(Row {
                number: self.rows.len() as u64,
                key,
                is_wrong,
                is_left_out,
            });
        }
        if self.happens(self.faults.deletes) && self.rows.len() as u64 > self.deleted + FILE {
            self.deleted = (self.deleted / FILE + 1) * FILE;
        }
    }

    /// The records that a batch contains.
    fn read(&self, from: u64, until: Option<u64>, records: usize) -> Page<Row> {
        let start = from.max(self.deleted).min(until.unwrap_or(u64::MAX));
        let end = until
            .unwrap_or(start + records as u64)
            .min(self.rows.len() as u64)
            .max(start);
        let rows = &self.rows[start as usize..end as usize];
        let records: Vec<Row> = rows.iter().filter(|row| !row.is_left_out).copied().collect();
        Page {
            left_out: (rows.len() - records.len()) as u64,
            bytes: records.len(),
            records,
            end: position(end),
            expired: start - from,
            is_last: end == self.rows.len() as u64,
        }
    }

    fn act(&mut self, action: Action) {
        let soon = self.soon();
        match action {
            Action::Read {
                from, until, records, ..
            } => {
                let done = if self.happens(self.faults.disk) {
                    Done::NotRead
                } else {
                    Done::Page {
                        from: number(from),
                        until: until.map(number),
                        records,
                    }
                };
                self.after(soon, done);
            }
            Action::Save(cursor) => {
                // A full disk keeps the old file: the new one is renamed over it when it is complete.
                let works = !self.happens(self.faults.disk);
                self.after(soon, Done::Saved(cursor, works));
            }
            Action::Reject { record, reason } => {
                assert_eq!(reason, "wrong");
                let row = self.delivery.batch()[record];
                assert!(row.is_wrong, "{row:?} was rejected");
                let works = !self.happens(self.faults.disk);
                self.after(soon, Done::Kept(row.number, works));
            }
            Action::Send { request, records } => self.serve(request, &records),
        }
    }

    /// The server gets a request.
    fn serve(&mut self, request: RequestId, records: &[usize]) {
        let batch = self.delivery.batch();
        let rows: Vec<Row> = records.iter().map(|index| batch[*index]).collect();
        let first = batch[0].number;
        let last = batch[batch.len() - 1].number;
        assert!(batch.len() <= self.settings.records);
        // At most one batch is in flight beyond the cursor that survives a crash.
        let settled = number(self.saved.settled);
        assert!(
            self.are_left_out(settled, first) || (self.faults.deletes > 0 && first > settled),
            "{first} {settled}"
        );
        let end = self.saved.batch_end.map_or(last + 1, number);
        assert!(self.are_left_out(last + 1, end));
        assert_eq!(self.settings.announce, self.saved.batch_end.is_some());
        self.borders.entry(first).or_default().insert(end);

        let mut delay = self.soon();
        let kind = if self.happens(self.faults.server) {
            1 + self.rng.below(8)
        } else {
            0
        };
        match kind {
            1 => {
                return self.after(
                    delay,
                    Done::Answer(request, Outcome::from_status(503, "busy", Some(SECOND))),
                );
            }
            2 => {
                return self.after(
                    delay,
                    Done::Answer(request, Outcome::from_status(401, "who?", None)),
                );
            }
            3 => return,
            4 => {
                let lie = Outcome::Settled {
                    retry: vec![rows.len()],
                    rejected: Vec::new(),
                    reason: String::new(),
                    retry_after: None,
                };
                return self.after(delay, Done::Answer(request, lie));
            }
            _ => {}
        }
        let outcome = self.store(&rows);
        match kind {
            // Stored, but the answer is lost, or another one arrives.
            5 => return,
            6 => {
                return self.after(
                    delay,
                    Done::Answer(request, Outcome::from_status(502, "gateway", None)),
                );
            }
            7 => delay = self.settings.timeout + self.rng.roll() % (5 * SECOND),
            8 => self.after(delay * 2, Done::Answer(request, outcome.clone())),
            _ => {}
        }
        self.after(delay, Done::Answer(request, outcome));
    }

    fn are_left_out(&self, from: u64, to: u64) -> bool {
        self.rows[from as usize..to as usize]
            .iter()
            .all(|row| row.is_left_out)
    }

    fn store(&mut self, rows: &[Row]) -> Outcome {
        if !self.faults.by_record && rows.iter().any(|row| row.is_wrong) {
            return Outcome::from_status(400, "wrong", None);
        }
        let mut rejected = Vec::new();
        let mut retry = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            if row.is_wrong {
                rejected.push((index, "wrong".to_owned()));
            } else if self.happens(self.faults.partly) {
                retry.push(index);
            } else {
                let times = self.stored.entry(row.number).or_default();
                *times += 1;
                if *times == 1 {
                    self.first_stored.push(row.number);
                }
            }
        }
        Outcome::Settled {
            rejected,
            retry,
            reason: String::new(),
            retry_after: None,
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Page { from, until, records } => {
                let page = self.read(from, until, records);
                self.delivery.page(page, self.now);
            }
            Done::NotRead => self.delivery.read_failed("disk", self.now),
            Done::Answer(request, outcome) => self.delivery.answer(request, outcome, self.now),
            Done::Kept(row, works) => {
                let list = if works {
                    &mut self.rejected
                } else {
                    &mut self.unwritten
                };
                list.insert(row);
                self.delivery.rejection_written(
                    if works {
                        Ok(())
                    } else {
                        Err("disk full".to_owned())
                    },
                    self.now,
                );
            }
            Done::Saved(cursor, works) => {
                if works {
                    // It never goes back, and its text is what survives.
                    assert!(cursor.settled >= self.saved.settled);
                    self.saved = cursor.to_string().parse().unwrap();
                }
                self.delivery.saved(
                    if works {
                        Ok(())
                    } else {
                        Err("disk full".to_owned())
                    },
                    self.now,
                );
            }
        }
    }

    fn crash(&mut self) {
        self.crashes += 1;
        let ledger = self.delivery.ledger();
        self.expired += ledger.expired + ledger.left_out;
        self.scheduled.clear();
        let seed = self.rng.roll();
        self.delivery = Delivery::new(self.settings, self.saved, seed);
    }

    fn check(&self) -> Ledger {
        let ledger = self.delivery.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        assert!(ledger.held <= 2 * self.settings.records as u64);
        ledger
    }

    /// Whether nothing is left to do.
    fn is_complete(&self) -> bool {
        self.now > TROUBLE && number(self.saved.settled) == self.rows.len() as u64
    }

    fn run(&mut self) {
        let mut grows_at = 0;
        for _ in 0..MAX_ACTIONS {
            while let Some(action) = self.delivery.poll(self.now) {
                self.act(action);
                self.check();
                if self.happens(self.faults.crash) {
                    self.crash();
                }
            }
            if self.is_complete() {
                return;
            }
            let grows = (self.now < TROUBLE).then_some(grows_at);
            let result = self.scheduled.peek().map(|one| one.0);
            self.now = [grows, result, self.delivery.wake_at()]
                .into_iter()
                .flatten()
                .min()
                .unwrap()
                .max(self.now);
            if grows.is_some_and(|at| at <= self.now) {
                self.grow();
                grows_at = self.now + SECOND;
            }
            if self.scheduled.peek().is_some_and(|one| one.0 <= self.now) {
                let Scheduled(_, _, done) = self.scheduled.pop().unwrap();
                self.done(done);
                self.check();
            }
        }
        panic!(
            "not complete at {} s: {:?}, {} rows",
            self.now / SECOND,
            self.delivery,
            self.rows.len()
        );
    }

    fn check_end(&self) {
        let mut missing = 0;
        let mut absent = 0;
        for row in &self.rows {
            let stored = self.stored.contains_key(&row.number);
            let known = self.rejected.contains(&row.number) || self.unwritten.contains(&row.number);
            match (row.is_left_out, row.is_wrong) {
                (true, _) => assert!(!stored && !known, "{row:?} is not of the stream"),
                (false, true) => assert!(!stored),
                (false, false) => assert!(!known, "{row:?} was rejected"),
            }
            missing += u64::from(!stored && !known);
            absent += u64::from(!stored && !known && !row.is_left_out);
        }
        // Only what the store deleted before it was read, and what is not of the stream.
        let ledger = self.check();
        let accounted = ledger.expired + ledger.left_out;
        assert!(
            missing <= self.expired + accounted,
            "{missing} missing, {ledger:?}"
        );
        if self.faults.deletes == 0 {
            assert_eq!((absent, ledger.expired), (0, 0));
        }
        if self.crashes == 0 {
            assert_eq!(missing, accounted);
            let settled = ledger.delivered + ledger.rejected + accounted;
            assert_eq!((settled, ledger.held), (self.rows.len() as u64, 0));
            assert_eq!(
                ledger.rejected,
                (self.rejected.len() + self.unwritten.len()) as u64
            );
            assert_eq!(ledger.unwritten, self.unwritten.len() as u64);
        }
        if self.faults.partly == 0 {
            let mut last = BTreeMap::new();
            for number in &self.first_stored {
                let before = last.insert(self.rows[*number as usize].key, *number);
                assert!(
                    before < Some(*number),
                    "{number} of its key came after {before:?}"
                );
            }
        }
        if self.settings.announce && self.faults.deletes == 0 {
            let ambiguous: Vec<_> = self.borders.iter().filter(|(_, ends)| ends.len() > 1).collect();
            assert!(ambiguous.is_empty(), "batches with several ends: {ambiguous:?}");
        }
        if (self.faults.server, self.faults.partly, self.crashes) == (0, 0, 0) {
            assert!(self.stored.values().all(|times| *times == 1));
            assert!(ledger.repeated == 0 || (self.faults.wrong > 0 && !self.faults.by_record));
        }
    }
}

/// A fault's percentage up to `most`, in `thirds` of the worlds.
fn percent(rng: &mut Rng, thirds: usize, most: usize) -> usize {
    if rng.below(3) < thirds { rng.below(most) } else { 0 }
}

#[test]
fn nothing_is_lost_in_silence_whatever_happens() {
    let mut crashes = 0;
    let mut rejected = 0;
    let mut expired = 0;
    let mut repeated = 0;
    let mut partial_batches = 0;
    for seed in 0..2_000 {
        let mut rng = Rng(seed);
        let left_out = [0, 0, 30, 97][rng.below(4)];
        let faults = Faults {
            server: percent(&mut rng, 2, 40),
            partly: percent(&mut rng, 1, 20),
            disk: percent(&mut rng, 1, 30),
            crash: percent(&mut rng, 1, 8),
            deletes: percent(&mut rng, 1, 10),
            wrong: percent(&mut rng, 1, 6),
            left_out,
            by_record: percent(&mut rng, 1, 2) == 1,
        };
        let settings = Settings {
            records: 1 + rng.below(40),
            linger: [0, SECOND, 5 * SECOND][rng.below(3)],
            timeout: 5 * SECOND,
            lanes: 1 + rng.below(4),
            announce: rng.below(2) == 0,
            ..Settings::default()
        };
        let mut world = World::new(seed, faults, settings);
        let run = std::panic::AssertUnwindSafe(|| {
            world.run();
            world.check_end();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}: {faults:?} {settings:?}");
            std::panic::resume_unwind(panic);
        }
        let ledger = world.delivery.ledger();
        crashes += world.crashes;
        rejected += ledger.rejected;
        expired += ledger.expired;
        repeated += ledger.repeated;
        partial_batches += u32::from(world.borders.len() > 3);
    }
    // The simulation does what it is for.
    assert!(
        crashes > 1_000 && rejected > 1_000 && expired > 1_000 && repeated > 1_000 && partial_batches > 1_000
    );
}

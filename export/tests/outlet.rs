//! An outlet through thousands of simulated hours: a broker that is gone, cuts its answers off, deletes what is old and has messages that are
//! none; a ClickHouse that refuses, hangs, answers late or twice, and recognises repeats by their tokens; a process that is killed, or
//! whose partition another one takes over, at any step. Whatever happens, each message is in the table once, or rejected with its reason,
//! or counted as expired.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use export::outlet::{Item, PageRequest, Reading, Step, begin, token};
use export::record::Stream;
use export::sink::Response;
use export::sink::clickhouse::ClickHouse;
use export::sink::kafka::protocol::fetch::Fetched;
use export::{Action, Cursor, Delivery, Outcome, Page, Position, RequestId, Settings, protobuf};
use testkit::rng::Rng;

const SECOND: u64 = 1_000_000_000;
/// Until when something goes wrong.
const TROUBLE: u64 = 120 * SECOND;
const MAX_ACTIONS: u32 = 20_000;

/// The message at an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Good,
    /// The value is no record.
    Bad,
    /// A record that ClickHouse never takes.
    Wrong,
    /// An offset without a message.
    Gap,
}

/// The faults of a world, in percent of actions.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    server: usize,
    broker: usize,
    disk: usize,
    crash: usize,
    /// Kafka deletes what is old.
    deletes: usize,
    bad: usize,
    wrong: usize,
    gaps: usize,
}

enum Done {
    Read(PageRequest),
    Answer(RequestId, Outcome),
    Kept(u64, bool),
    Saved(Cursor, bool),
}

struct Scheduled(u64, u64, Done);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Scheduled {}

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
    log: Vec<Entry>,
    /// Where batches of the log begin.
    batches: Vec<u64>,
    /// The first offset that is not deleted.
    first: u64,
    saved: Cursor,
    scheduled: BinaryHeap<Scheduled>,
    order: u64,
    delivery: Delivery<Arc<Item>>,
    /// By offset, how often it is in the table.
    table: BTreeMap<u64, u32>,
    /// The rows of each token that ClickHouse remembers.
    tokens: BTreeMap<String, Vec<u64>>,
    recognised: u32,
    rejected: BTreeSet<u64>,
    unwritten: BTreeSet<u64>,
    crashes: u32,
    /// Expired records that killed processes counted.
    expired: u64,
    /// Time between two records.
    apart: u64,
}

impl World {
    fn new(seed: u64, faults: Faults, settings: Settings) -> Self {
        let mut rng = Rng(seed);
        let saved = begin(0, rng.roll());
        Self {
            rng,
            faults,
            settings,
            now: 0,
            log: Vec::new(),
            batches: vec![0],
            first: 0,
            saved,
            scheduled: BinaryHeap::new(),
            order: 0,
            delivery: Delivery::new(settings, saved, seed),
            table: BTreeMap::new(),
            tokens: BTreeMap::new(),
            recognised: 0,
            rejected: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            crashes: 0,
            expired: 0,
            apart: 0,
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

    fn end(&self) -> u64 {
        self.log.len() as u64
    }

    /// A few batches more.
    fn grow(&mut self) {
        for _ in 0..self.rng.below(4) {
            for _ in 0..1 + self.rng.below(9) {
                let Faults { bad, wrong, gaps, .. } = self.faults;
                let roll = self.rng.below(100);
                self.log.push(match roll {
                    _ if roll < bad => Entry::Bad,
                    _ if roll < bad + wrong => Entry::Wrong,
                    _ if roll < bad + wrong + gaps => Entry::Gap,
                    _ => Entry::Good,
                });
            }
            self.batches.push(self.end());
        }
        if self.happens(self.faults.deletes) {
            // Whole batches, as Kafka deletes segments.
            let next = self
                .batches
                .iter()
                .copied()
                .find(|start| *start > self.first + 20);
            self.first = next.unwrap_or(self.first);
        }
    }

    /// The answer of a broker to a fetch from an offset on.
    fn fetch(&mut self, from: u64) -> (i16, Vec<u8>) {
        if from < self.first || from > self.end() {
            return (1, Vec::new());
        }
        let starts: Vec<u64> = self
            .batches
            .iter()
            .copied()
            .filter(|start| *start < self.end())
            .collect();
        let mut bytes = Vec::new();
        let wanted = 1 + self.rng.below(4);
        for (at, start) in starts
            .iter()
            .enumerate()
            .filter(|(_, start)| **start >= self.first)
        {
            let end = starts.get(at + 1).copied().unwrap_or(self.end());
            if end > from && self.batches_in(&bytes) < wanted {
                bytes.extend(encode(
                    *start,
                    &self.log[*start as usize..end as usize],
                    self.apart,
                ));
            }
        }
        // The last one is cut off, unless it is the only one.
        if self.batches_in(&bytes) > 1 && self.happens(self.faults.broker) {
            let cut = 1 + self.rng.below(60);
            bytes.truncate(bytes.len() - cut);
        }
        (0, bytes)
    }

    fn batches_in(&self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let mut count = 0;
        while let Some(head) = bytes.get(at + 8..at + 12) {
            at += 12 + u32::from_be_bytes(head.try_into().unwrap()) as usize;
            count += 1;
        }
        count
    }

    /// A page, or why there is none.
    fn read(&mut self, wanted: PageRequest) -> Result<Page<Arc<Item>>, String> {
        let (mut reading, mut step) = Reading::new(Stream::Losses, wanted);
        for _ in 0..1_000 {
            step = match step {
                Step::Fetch(_) | Step::Offsets if self.happens(self.faults.broker) => {
                    return Err("gone".to_owned());
                }
                Step::Fetch(from) => {
                    let (error, batches) = self.fetch(from);
                    let error = if self.happens(self.faults.broker) {
                        6
                    } else {
                        error
                    };
                    reading.fetched(&Fetched {
                        error,
                        end: self.end() as i64,
                        batches: &batches,
                    })
                }
                Step::Offsets => reading.offsets(self.first, self.end()),
                Step::Page { page, restarted } => {
                    assert!(!restarted);
                    return Ok(page);
                }
                Step::Failed(reason) => return Err(reason),
            };
        }
        panic!("it reads for ever: {reading:?}");
    }

    fn act(&mut self, action: Action) {
        let soon = self.soon();
        match action {
            Action::Read {
                from,
                until,
                records,
                bytes,
            } => {
                let random = self.rng.roll();
                self.after(
                    soon,
                    Done::Read(PageRequest {
                        from,
                        until,
                        records,
                        bytes,
                        random,
                    }),
                );
            }
            Action::Save(cursor) => {
                let works = !self.happens(self.faults.disk);
                self.after(soon, Done::Saved(cursor, works));
            }
            Action::Reject { record, reason } => {
                let item = &self.delivery.batch()[record];
                let line: serde_json::Value =
                    serde_json::from_slice(&item.rejected("topic", 0, &reason)).unwrap();
                let offset = line["offset"].as_u64().unwrap();
                match self.log[offset as usize] {
                    Entry::Bad => assert_eq!(
                        (&line["words"], &line["value"]),
                        (&"not a Protobuf message, or truncated".into(), &"/w==".into())
                    ),
                    Entry::Wrong => assert_eq!(
                        (&line["words"], &line["record"]["lost"]),
                        (&"wrong".into(), &offset.into())
                    ),
                    other => panic!("{other:?} was rejected"),
                }
                let works = !self.happens(self.faults.disk);
                self.after(soon, Done::Kept(offset, works));
            }
            Action::Send { request, records } => self.serve(request, &records),
        }
    }

    /// ClickHouse gets a request.
    fn serve(&mut self, request: RequestId, records: &[usize]) {
        let batch = self.delivery.batch();
        let rows: Vec<u64> = records.iter().map(|index| batch[*index].offset).collect();
        let good = batch.iter().filter(|item| item.content.is_ok()).count();
        let part = (rows.len() < good).then(|| (rows[0], rows[rows.len() - 1]));
        // What survives a crash names the batch.
        let token = token("topic", 0, &self.saved, part);
        let from = self.saved.settled.row;
        let to = self.saved.batch_end.unwrap().row;
        assert!(
            rows.iter().all(|row| (from..to).contains(row)),
            "{rows:?} {from} {to}"
        );
        let mut delay = self.soon();
        let kind = if self.happens(self.faults.server) {
            1 + self.rng.below(7)
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
            _ => {}
        }
        let outcome = self.store(token, &rows);
        match kind {
            // Stored, but the answer is lost, or another one arrives.
            4 => return,
            5 => {
                return self.after(
                    delay,
                    Done::Answer(request, Outcome::from_status(502, "gateway", None)),
                );
            }
            6 => delay = self.settings.timeout + self.rng.roll() % (5 * SECOND),
            7 => self.after(delay * 2, Done::Answer(request, outcome.clone())),
            _ => {}
        }
        self.after(delay, Done::Answer(request, outcome));
    }

    fn store(&mut self, token: String, rows: &[u64]) -> Outcome {
        if rows.iter().any(|row| self.log[*row as usize] == Entry::Wrong) {
            return Outcome::from_status(400, "wrong", None);
        }
        let days: BTreeSet<u64> = rows
            .iter()
            .map(|row| row * self.apart / (24 * 3600 * SECOND))
            .collect();
        if days.len() > 100 {
            let body =
                b"Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100)";
            let response = Response {
                status: 500,
                retry_after: None,
                body,
                is_cut: false,
            };
            return ClickHouse::answered(&response);
        }
        if let Some(before) = self.tokens.get(&token) {
            self.recognised += 1;
            // The same bytes, but for what was deleted meanwhile.
            let lacks = before.len() - rows.len();
            assert!(
                before[lacks..] == *rows && (lacks == 0 || self.faults.deletes > 0),
                "{before:?} {rows:?}"
            );
            return Outcome::DONE;
        }
        self.tokens.insert(token, rows.to_vec());
        rows.iter()
            .for_each(|row| *self.table.entry(*row).or_default() += 1);
        Outcome::DONE
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Read(wanted) => match self.read(wanted) {
                Ok(page) => {
                    let passed = page.records.len() as u64 + page.left_out + page.expired;
                    assert_eq!(passed, page.end.row - wanted.from.row, "each offset counts once");
                    self.delivery.page(page, self.now);
                }
                Err(reason) => self.delivery.read_failed(&reason, self.now),
            },
            Done::Answer(request, outcome) => self.delivery.answer(request, outcome, self.now),
            Done::Kept(offset, works) => {
                let list = if works {
                    &mut self.rejected
                } else {
                    &mut self.unwritten
                };
                list.insert(offset);
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
        self.expired += self.delivery.ledger().expired;
        self.scheduled.clear();
        let seed = self.rng.roll();
        self.delivery = Delivery::new(self.settings, self.saved, seed);
    }

    fn run(&mut self) {
        let mut grows_at = 0;
        for _ in 0..MAX_ACTIONS {
            while let Some(action) = self.delivery.poll(self.now) {
                self.act(action);
                assert!(self.delivery.ledger().balances());
                if self.happens(self.faults.crash) {
                    self.crash();
                }
            }
            if self.now > TROUBLE && self.saved.settled.row == self.end() && self.saved.batch_end.is_none() {
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
                assert!(self.delivery.ledger().balances());
            }
        }
        panic!(
            "not complete at {} s: {:?}, {} messages",
            self.now / SECOND,
            self.delivery,
            self.log.len()
        );
    }

    fn check_end(&self) {
        let mut missing = 0;
        let mut gaps = 0;
        for (offset, entry) in self.log.iter().enumerate() {
            let offset = offset as u64;
            let times = self.table.get(&offset).copied().unwrap_or(0);
            let known = self.rejected.contains(&offset) || self.unwritten.contains(&offset);
            match entry {
                Entry::Good => assert!(!known, "{offset} was rejected"),
                Entry::Bad | Entry::Wrong | Entry::Gap => assert_eq!(times, 0, "{offset} {entry:?}"),
            }
            // A part of a refused batch has other borders when Kafka has deleted its beginning meanwhile.
            let is_ambiguous = self.faults.deletes > 0 && self.faults.wrong > 0;
            assert!(times <= 1 || is_ambiguous, "{offset} is there {times} times");
            gaps += u64::from(*entry == Entry::Gap);
            missing += u64::from(times == 0 && !known && *entry != Entry::Gap);
        }
        let ledger = self.delivery.ledger();
        assert!(
            missing <= self.expired + ledger.expired,
            "{missing} missing, {ledger:?}"
        );
        if self.faults.deletes == 0 {
            assert_eq!((missing, ledger.expired), (0, 0));
        }
        if self.crashes == 0 {
            let settled = ledger.delivered + ledger.rejected + ledger.expired + ledger.left_out;
            assert_eq!(
                (settled, ledger.held),
                (self.end(), 0),
                "consumed = inserted + rejected + the rest"
            );
            assert_eq!(
                ledger.rejected,
                (self.rejected.len() + self.unwritten.len()) as u64
            );
            assert!(self.faults.deletes > 0 || ledger.left_out == gaps);
        }
    }
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A record batch in Kafka's format.
fn encode(base: u64, entries: &[Entry], apart: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let mut count = 0_i32;
    for (delta, entry) in entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| **entry != Entry::Gap)
    {
        let mut value = Vec::new();
        match entry {
            Entry::Bad => value.push(0xff),
            _ => {
                let lost = base + delta as u64;
                let loss = collector::Loss {
                    lost,
                    ..testkit::records::loss(lost * apart, Some(1))
                };
                let record = export::record::LossRecord { loss, number: 0 };
                protobuf::write(&export::record::Record::Loss(Box::new(record)), "c1", &mut value);
            }
        }
        let mut record = vec![0];
        varint(0, &mut record);
        varint(delta as i64, &mut record);
        varint(-1, &mut record);
        varint(value.len() as i64, &mut record);
        record.extend(&value);
        varint(0, &mut record);
        varint(record.len() as i64, &mut records);
        records.extend(&record);
        count += 1;
    }
    let mut checked = vec![0, 0];
    checked.extend((entries.len() as i32 - 1).to_be_bytes());
    checked.extend([0; 16]);
    checked.extend([0xff; 14]);
    checked.extend(count.to_be_bytes());
    checked.extend(&records);
    let mut batch = base.to_be_bytes().to_vec();
    batch.extend((checked.len() as u32 + 9).to_be_bytes());
    batch.extend([0, 0, 0, 0, 2]);
    batch.extend(wire::crc::crc_32c(&checked).to_be_bytes());
    batch.extend(&checked);
    batch
}

/// A fault's percentage up to `most`, in `thirds` of the worlds.
fn percent(rng: &mut Rng, thirds: usize, most: usize) -> usize {
    if rng.below(3) < thirds { rng.below(most) } else { 0 }
}

#[test]
fn each_message_is_there_once_or_counted_whatever_happens() {
    let mut crashes = 0;
    let mut rejected = 0;
    let mut expired = 0;
    let mut recognised = 0;
    let mut left_out = 0;
    for seed in 0..600 {
        let mut rng = Rng(seed);
        let faults = Faults {
            server: percent(&mut rng, 2, 40),
            broker: percent(&mut rng, 2, 30),
            disk: percent(&mut rng, 1, 30),
            crash: percent(&mut rng, 2, 8),
            deletes: percent(&mut rng, 1, 10),
            bad: percent(&mut rng, 1, 30),
            wrong: percent(&mut rng, 1, 6),
            gaps: percent(&mut rng, 1, 40),
        };
        let settings = Settings {
            records: 1 + rng.below(40),
            bytes: 1 + rng.below(30_000),
            linger: [0, SECOND, 5 * SECOND][rng.below(3)],
            timeout: 5 * SECOND,
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
        left_out += ledger.left_out;
        recognised += world.recognised;
    }
    // The simulation does what it is for.
    assert!(
        [crashes, recognised].into_iter().all(|count| count > 300)
            && [rejected, expired, left_out].into_iter().all(|count| count > 300),
        "{crashes} {rejected} {expired} {recognised} {left_out}"
    );
}

#[test]
fn records_of_more_days_than_an_insert_takes_are_several_batches() {
    for seed in 0..20 {
        let faults = Faults {
            server: 20,
            broker: 10,
            crash: 3,
            ..Faults::default()
        };
        let settings = Settings {
            records: 1_000,
            bytes: 1 << 20,
            linger: 40 * SECOND,
            ..Settings::default()
        };
        let mut world = World::new(seed, faults, settings);
        world.apart = 24 * 3600 * SECOND;
        world.run();
        world.check_end();
        assert!(
            world.tokens.values().any(|rows| rows.len() == 90),
            "no batch was cut"
        );
    }
}

#[test]
fn topics_of_one_name_share_a_table_and_lose_nothing() {
    // In another cluster, or made again after the cursors were deleted.
    let settings = Settings {
        records: 10,
        ..Settings::default()
    };
    let mut tokens = BTreeMap::new();
    for seed in 0..10 {
        let mut world = World::new(seed, Faults::default(), settings);
        world.tokens = tokens;
        world.run();
        world.check_end();
        tokens = world.tokens;
    }
}

#[test]
fn a_topic_that_was_made_again_begins_anew() {
    let wanted = PageRequest {
        from: Position { file: 0, row: 100 },
        until: Some(Position { file: 0, row: 120 }),
        records: 10,
        bytes: 1 << 20,
        random: 5 << 16,
    };
    let (mut reading, step) = Reading::new(Stream::Losses, wanted);
    assert_eq!(step, Step::Fetch(100));
    assert_eq!(
        reading.fetched(&Fetched {
            error: 1,
            end: -1,
            batches: &[]
        }),
        Step::Offsets
    );
    let end = Position { file: 6, row: 3 };
    let page = Page {
        records: Vec::new(),
        end,
        expired: 0,
        left_out: 0,
        bytes: 0,
        is_last: false,
    };
    assert_eq!(
        reading.offsets(3, 7),
        Step::Page {
            page,
            restarted: true
        }
    );
    // What was read before it is found out is not lost.
    let (mut reading, _) = Reading::new(
        Stream::Losses,
        PageRequest {
            until: None,
            ..wanted
        },
    );
    let batches = encode(100, &[Entry::Good; 3], 0);
    assert_eq!(
        reading.fetched(&Fetched {
            error: 0,
            end: 110,
            batches: &batches
        }),
        Step::Fetch(103)
    );
    assert_eq!(
        reading.fetched(&Fetched {
            error: 1,
            end: -1,
            batches: &[]
        }),
        Step::Offsets
    );
    let Step::Page {
        page,
        restarted: false,
    } = reading.offsets(0, 2)
    else {
        panic!("no page")
    };
    assert_eq!(
        (page.records.len(), page.end),
        (3, Position { file: 0, row: 103 })
    );
}

#[test]
fn a_page_that_takes_too_long_ends_unless_its_end_is_fixed() {
    let from = Position { file: 0, row: 100 };
    let wanted = PageRequest {
        from,
        until: None,
        records: 10,
        bytes: 9_000,
        random: 0,
    };
    let (mut reading, _) = Reading::new(Stream::Losses, wanted);
    assert_eq!((reading.end_early(), reading.space_left()), (None, 9_000));
    let batches = encode(100, &[Entry::Good; 3], 0);
    let fetched = Fetched {
        error: 0,
        end: 110,
        batches: &batches,
    };
    assert_eq!(reading.fetched(&fetched), Step::Fetch(103));
    assert!(reading.space_left() < 9_000 - 3 * 256);
    let Some(Step::Page {
        page,
        restarted: false,
    }) = reading.end_early()
    else {
        panic!("no page")
    };
    assert_eq!((page.records.len(), page.end.row, page.is_last), (3, 103, false));
    let until = Some(Position { row: 110, ..from });
    let (mut reading, _) = Reading::new(Stream::Losses, PageRequest { until, ..wanted });
    assert_eq!(reading.fetched(&fetched), Step::Fetch(103));
    assert_eq!(reading.end_early(), None);
}

#[test]
fn a_repeat_that_is_longer_than_any_batch_is_not_read_to_its_end() {
    let wanted = PageRequest {
        from: Position { file: 0, row: 0 },
        until: Some(Position {
            file: 0,
            row: 1_000_000,
        }),
        records: 10,
        bytes: 1 << 20,
        random: 0,
    };
    let (mut reading, _) = Reading::new(Stream::Losses, wanted);
    let batches = encode(0, &vec![Entry::Bad; 120_000], 0);
    let Step::Failed(reason) = reading.fetched(&Fetched {
        error: 0,
        end: 1_000_000,
        batches: &batches,
    }) else {
        panic!("{:?}", reading.space_left())
    };
    assert!(
        reason.starts_with("the batch that may have been sent, up to offset 1000000, has more than"),
        "{reason}"
    );
    assert_eq!(reading.space_left(), 0);
}

#[test]
fn a_partition_that_ends_within_a_batch_that_was_sent_waits() {
    let wanted = PageRequest {
        from: Position { file: 0, row: 100 },
        until: Some(Position { file: 0, row: 120 }),
        records: 10,
        bytes: 1 << 20,
        random: 0,
    };
    let (mut reading, _) = Reading::new(Stream::Losses, wanted);
    let batches = encode(100, &[Entry::Good; 3], 0);
    let step = reading.fetched(&Fetched {
        error: 0,
        end: 103,
        batches: &batches,
    });
    let reason = "the partition ends at 103, before the end of the batch that may have been sent, 120: it waits for the rest";
    assert_eq!(step, Step::Failed(reason.to_owned()));
}

//! Several sinks that share memory, in simulated time: slow ones, some that do not answer at all, with endless backlogs, and one whose queue is
//! filled faster than it is read. At every moment, what all of them hold is added up.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use export::memory::{Claim, share};
use export::spool::{self, Limits, Spool, WhenFull};
use export::{Action, Cursor, Delivery, Keyed, Outcome, Page, Position, RequestId, Settings};
use testkit::rng::Rng;

const SECOND: u64 = 1_000_000_000;
const MEMORY: usize = 48 << 20;
/// Bytes of a record, at most.
const LONGEST: usize = 4 << 10;
/// A batch ends with the record that fills it.
const FIXED: usize = 3 * LONGEST;

struct Row(usize);

impl Keyed for Row {
    fn key(&self) -> u64 {
        0
    }
}

enum Event {
    Page(Page<Row>),
    Answer(RequestId, Outcome),
    Saved,
}

/// A sink whose requests have so many bytes for each byte of a record.
struct Sink {
    delivery: Delivery<Row>,
    form: usize,
    has_ahead: bool,
    /// Percent of requests that are never answered.
    silent: usize,
    /// The events to come, each with its time.
    coming: Vec<(u64, Event)>,
    /// The bytes of the page that is read, while it is read and while it is passed on.
    reading: usize,
    /// The bytes of the request in flight; `ahead` has those of the next page's.
    sent: usize,
    ahead: usize,
    rows: u64,
}

impl Sink {
    fn new(rng: &mut Rng, seed: u64, batch: usize, claim: &Claim) -> Self {
        let settings = Settings {
            records: usize::MAX,
            bytes: batch,
            linger: 0,
            timeout: 20 * SECOND,
            ..Settings::default()
        };
        let form = (claim.copies - 3) / 2;
        Self {
            delivery: Delivery::new(settings, Cursor::default(), seed),
            form,
            has_ahead: true,
            silent: [0, 20, 100][rng.below(3)],
            coming: Vec::new(),
            reading: 0,
            sent: 0,
            ahead: 0,
            rows: 0,
        }
    }

    fn held(&self) -> usize {
        self.delivery.bytes() + self.reading + self.sent + self.ahead
    }

    fn page(&mut self, rng: &mut Rng, from: Position, until: Option<Position>, bytes: usize) -> Page<Row> {
        let mut records = Vec::new();
        let mut size = 0;
        while size < bytes && until.is_none_or(|until| from.row + (records.len() as u64) < until.row) {
            let one = 200 + rng.below(LONGEST - 200);
            size += one;
            records.push(Row(one));
        }
        let end = Position {
            file: 0,
            row: from.row + records.len() as u64,
        };
        // As it is read, and as it is sent.
        self.reading = 2 * size;
        Page {
            records,
            end,
            expired: 0,
            left_out: 0,
            bytes: size,
            is_last: false,
        }
    }

    fn act(&mut self, rng: &mut Rng, now: u64) {
        while let Some(action) = self.delivery.poll(now) {
            match action {
                Action::Read {
                    from, until, bytes, ..
                } => {
                    let page = self.page(rng, from, until, bytes);
                    self.coming
                        .push((now + 1 + rng.roll() % SECOND, Event::Page(page)));
                }
                Action::Send { request, records } => {
                    let sent: usize = records.iter().map(|at| self.delivery.batch()[*at].0).sum();
                    self.sent = self.form * sent;
                    self.ahead = 0;
                    self.rows += records.len() as u64;
                    if rng.below(100) >= self.silent {
                        let later = now + 1 + rng.roll() % (15 * SECOND);
                        self.coming.push((later, Event::Answer(request, Outcome::DONE)));
                    }
                }
                Action::Save(_) => self.coming.push((now + 1, Event::Saved)),
                Action::Reject { .. } => unreachable!(),
            }
        }
    }

    fn come(&mut self, now: u64) {
        let (due, later) = std::mem::take(&mut self.coming)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.coming = later;
        for (_, event) in due {
            match event {
                Event::Page(page) => {
                    if self.has_ahead && !self.delivery.batch().is_empty() {
                        self.ahead = self.form * page.bytes;
                    }
                    self.reading = 0;
                    self.delivery.page(page, now);
                }
                Event::Answer(request, outcome) => self.delivery.answer(request, outcome, now),
                Event::Saved => self.delivery.saved(Ok(()), now),
            }
        }
    }

    fn next(&self, now: u64) -> u64 {
        let coming = self.coming.iter().map(|(at, _)| *at).min();
        let next = coming.into_iter().chain(self.delivery.wake_at()).min();
        next.unwrap_or(now + SECOND).max(now + 1)
    }
}

/// A queue of hops that nobody reads, filled for ever.
struct Hops {
    spool: Spool,
    chunk: Vec<u8>,
}

impl Hops {
    const QUEUE: usize = 8 << 20;

    fn new() -> Self {
        let segment = Self::QUEUE / 4;
        let limits = Limits {
            memory: Self::QUEUE,
            segment,
            disk: 4 << 20,
            when_full: WhenFull::DropNewest,
        };
        let mut chunk = Vec::new();
        for _ in 0..600 {
            let begun = spool::begin(&mut chunk);
            chunk.extend([7; 100]);
            spool::end(&mut chunk, begun);
        }
        Self {
            spool: Spool::new(limits, &Cursor::default(), Vec::new()),
            chunk,
        }
    }

    fn fill(&mut self, now: u64) {
        self.spool.offer(&self.chunk, 600);
        while let Some(effect) = self.spool.poll(now) {
            match effect {
                spool::Effect::Write { number, .. } => self.spool.written(number, true, now),
                spool::Effect::Delete(_) => self.spool.deleted(true, now),
            }
        }
    }
}

/// The most that was held at one moment.
fn run(seed: u64, is_shared: bool) -> usize {
    let mut rng = Rng(seed);
    let mut hops = Hops::new();
    let claims: Vec<Claim> = (0..4 + rng.below(8))
        .map(|_| Claim {
            batch: (1 + rng.below(16)) << 20,
            copies: 3 + 2 * (1 + rng.below(4)),
            fixed: FIXED,
        })
        .collect();
    let mut all = claims.clone();
    all.push(Claim {
        batch: 0,
        copies: 0,
        fixed: Hops::QUEUE,
    });
    let batches = if is_shared {
        share(MEMORY, &all).unwrap()
    } else {
        all.iter().map(|claim| claim.batch).collect()
    };
    let mut sinks: Vec<Sink> = claims
        .iter()
        .zip(batches)
        .enumerate()
        .map(|(at, (claim, batch))| Sink::new(&mut rng, seed ^ at as u64, batch, claim))
        .collect();
    let mut now = SECOND;
    let mut most = 0;
    while now < 120 * SECOND {
        for sink in &mut sinks {
            sink.come(now);
            sink.act(&mut rng, now);
        }
        (0..50).for_each(|_| hops.fill(now));
        let held: usize = sinks.iter().map(Sink::held).sum();
        most = most.max(held + hops.spool.usage().memory);
        now = sinks.iter().map(|sink| sink.next(now)).min().unwrap();
    }
    for sink in &sinks {
        assert!(
            sink.silent == 100 || sink.rows > 0,
            "a sink that answers gets records"
        );
        assert!(sink.delivery.ledger().balances());
    }
    // What finds no space in the queue of hops is counted.
    let there = hops.spool.after(Position::default());
    let refused = hops.spool.refused();
    assert!(refused > 0);
    assert_eq!(hops.spool.offered(), there + refused);
    most
}

#[test]
fn all_sinks_together_hold_no_more_than_their_memory() {
    let most: Vec<usize> = (0..60).map(|seed| run(seed, true)).collect();
    assert!(most.iter().all(|held| *held <= MEMORY), "{most:?}");
    // They use it: a bound that nothing comes near to says nothing.
    assert!(
        most.iter().filter(|held| **held > MEMORY / 2).count() > 30,
        "{most:?}"
    );
}

#[test]
fn without_shares_they_would_hold_more() {
    assert!((0..10).any(|seed| run(seed, false) > MEMORY));
}

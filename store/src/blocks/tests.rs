//! What is put into blocks is what is read of them.

use super::*;

/// The same with each call, and without pattern.
struct Random(u64);

/// `None` for 0.
fn one_less(number: u64) -> Option<u64> {
    number.checked_sub(1)
}

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn event(&mut self, most: u64) -> Counted {
        let reason = one_less(self.next(4)).map(|reason| reason as u8 * 100);
        let class = Class {
            kind: self.next(12) as u8,
            metric: one_less(self.next(7)).map(|metric| metric as u8),
            rule: if self.next(9) == 0 {
                self.next(most) as u32
            } else {
                0
            },
            reason,
        };
        let location = Location {
            node: one_less(self.next(most)).map(|node| node as u32),
            interface: one_less(self.next(3)).map(|interface| interface as u32 * 0x7fff_ffff),
            queue: one_less(self.next(3)).map(|queue| queue as u8 * 255),
        };
        let path = if self.next(2) == 0 {
            self.next(most) as u32
        } else {
            0
        };
        let value = one_less(self.next(most)).map(|value| value << (value % 2 * 31));
        let first = (self.next(3) == 0).then(|| FirstLatencies {
            flow: one_less(self.next(most)),
            hop: one_less(self.next(1 << 32)),
        });
        let values = Values { value, first };
        Counted {
            class,
            location,
            flow: self.next(most) as u32,
            path,
            values,
        }
    }
}

fn connection() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(
        "CREATE TABLE block_data (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, events BLOB NOT NULL)",
    )
    .unwrap();
    conn
}

type Stored = (
    i64,
    u8,
    (u8, Option<u8>, u32, Option<u8>),
    [u64; 3],
    [u32; 2],
    (Option<u64>, Option<[Option<u64>; 2]>),
);

fn stored(minute: i64, second: u8, event: &Counted) -> Stored {
    let Counted {
        class,
        location,
        flow,
        path,
        values,
    } = *event;
    let location = [
        plus_one(location.node),
        plus_one(location.interface),
        plus_one(location.queue),
    ];
    (
        minute,
        second,
        (class.kind, class.metric, class.rule, class.reason),
        location,
        [flow, path],
        (values.value, values.first.map(|first| [first.flow, first.hop])),
    )
}

/// Everything in the table, in order, and how many blocks each minute has.
fn all(conn: &Connection) -> (Vec<Stored>, BTreeMap<i64, usize>) {
    let mut found = Vec::new();
    let mut blocks = BTreeMap::<i64, usize>::new();
    let mut select = conn.prepare("SELECT id, count, events FROM block_data").unwrap();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let minute = block_minute(row.get(0).unwrap());
        *blocks.entry(minute).or_default() += 1;
        let bytes: Vec<u8> = row.get(2).unwrap();
        let before = found.len();
        let block = Block::read(&bytes).expect("a block is damaged");
        for run in &block.runs {
            let seconds = run
                .seconds
                .iter()
                .flat_map(|(second, count)| vec![*second; *count]);
            for (i, second) in seconds.enumerate() {
                let location = block.locations[run.locations.get(i) as usize];
                let path = run.paths.map_or(0, |paths| paths.get(i) as u32);
                let flow = run.flows.get(i) as u32;
                let values = run.values(i);
                let event = Counted {
                    class: run.class,
                    location,
                    flow,
                    path,
                    values,
                };
                found.push(stored(minute, second, &event));
            }
        }
        assert_eq!(found.len() - before, row.get::<_, i64>(1).unwrap() as usize);
    }
    found.sort_unstable();
    (found, blocks)
}

#[test]
fn each_event_is_in_one_block_of_its_minute() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(7);
    let mut expected = Vec::new();
    for transaction in 0..200 {
        // Some are large, and some events come late.
        let count = if transaction % 50 == 49 {
            20_000
        } else {
            random.next(300)
        };
        let most = [1, 2, 300, 1 << 32][transaction % 4];
        for _ in 0..count {
            let late = if random.next(10) == 0 {
                random.next(5) as i64
            } else {
                0
            };
            let minute = (1_000 + transaction as i64 / 10 - late) * MINUTE;
            let second = random.next(60) as u8;
            let event = random.event(most);
            blocks.event(&conn, minute, second, &event).unwrap();
            expected.push(stored(minute, second, &event));
        }
        blocks.write(&conn).unwrap();
    }
    expected.sort_unstable();
    let (found, blocks) = all(&conn);
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "other events");
    // Small ones were joined as they became many.
    assert!(
        blocks.values().all(|count| *count <= MAX_SMALL_BLOCKS + 2),
        "{blocks:?}"
    );
    assert!(expected.len() > 80_000 + 20_000, "{}", expected.len());
}

#[test]
fn the_blocks_of_a_minute_that_has_passed_are_one() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(9);
    for second in 0..180 {
        for _ in 0..20 {
            let minute = (100 + second / 60) * MINUTE;
            blocks
                .event(&conn, minute, (second % 60) as u8, &random.event(50))
                .unwrap();
        }
        blocks.write(&conn).unwrap();
    }
    let counts: Vec<usize> = all(&conn).1.into_values().collect();
    assert!(
        counts[0] == 1 && counts[1..].iter().all(|count| (2..=16).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn another_run_of_the_program_goes_on_behind_what_is_stored() {
    let conn = connection();
    let mut random = Random(3);
    for count in 1..40 {
        let mut blocks = Blocks::default();
        for _ in 0..10 {
            blocks.event(&conn, 60 * MINUTE, 3, &random.event(50)).unwrap();
        }
        blocks.write(&conn).unwrap();
        let (found, blocks) = all(&conn);
        assert_eq!(found.len(), count * 10);
        assert!(blocks.values().all(|count| *count <= 16), "{blocks:?}");
    }
}

#[test]
fn many_minutes_of_one_transaction_do_not_pile_up() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(5);
    for minute in 0..1_000 {
        blocks.event(&conn, minute * MINUTE, 0, &random.event(9)).unwrap();
        assert!(blocks.other_minutes.len() <= MAX_MINUTES && blocks.recent_minutes.len() <= MAX_MINUTES);
    }
    blocks.write(&conn).unwrap();
    assert_eq!(all(&conn).0.len(), 1_000);
}

#[test]
fn a_damaged_block_is_an_error_or_has_numbers_in_its_bounds() {
    let mut random = Random(11);
    let mut builder = Builder::default();
    (0..500).for_each(|_| builder.push(random.next(60) as u8, &random.event(40)));
    builder.encode();
    let bytes = builder.encoded.remove(0).bytes;
    let mut errors = 0;
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        match random.next(2) {
            0 => bytes.truncate(random.next(bytes.len() as u64) as usize),
            _ => {
                let at = random.next(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.next(8);
            }
        }
        match Block::read(&bytes) {
            None => errors += 1,
            Some(block) => {
                read += 1;
                for run in &block.runs {
                    let count = run.seconds.iter().map(|(_, count)| count).sum();
                    let most = (0..count).map(|i| run.locations.get(i)).max().unwrap_or(0);
                    assert!(most <= 2 * block.locations.len() as u64);
                    let flows = (0..count).map(|i| run.flows.get(i)).max().unwrap_or(0);
                    assert!(flows <= run.flows.largest());
                }
            }
        }
    }
    assert!(errors > 5_000 && read > 1_000, "{errors} {read}");
}

#[test]
fn the_last_minute_that_there_is_has_blocks_too() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(13);
    let minute = i64::MAX - i64::MAX % MINUTE;
    let second = (i64::MAX % MINUTE / 1_000_000_000) as u8;
    for count in 1..=40 {
        blocks.event(&conn, minute, second, &random.event(9)).unwrap();
        blocks.write(&conn).unwrap();
        assert_eq!(all(&conn).0.len(), count);
    }
    assert!(all(&conn).1[&minute] <= MAX_SMALL_BLOCKS + 1);
}

#[test]
fn an_event_of_the_future_does_not_keep_blocks_from_being_joined() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(17);
    for second in 0..180 {
        let minute = (100 + second / 60) * MINUTE;
        blocks
            .event(&conn, minute, (second % 60) as u8, &random.event(50))
            .unwrap();
        if second == 5 {
            blocks.event(&conn, 9_000 * MINUTE, 0, &random.event(50)).unwrap();
        }
        blocks.write(&conn).unwrap();
    }
    assert_eq!(all(&conn).1[&(100 * MINUTE)], 1);
}

#[test]
fn a_block_that_cannot_be_read_stays_and_the_others_are_joined() {
    let conn = connection();
    let mut blocks = Blocks::default();
    let mut random = Random(19);
    for count in 0..200 {
        blocks.event(&conn, 70 * MINUTE, 3, &random.event(50)).unwrap();
        blocks.write(&conn).unwrap();
        if count == 4 {
            conn.execute(
                "UPDATE block_data SET events = x'01' WHERE id = ?1",
                [first_block_id(70 * MINUTE) + 2],
            )
            .unwrap();
            conn.execute(
                "UPDATE block_data SET events = 'text' WHERE id = ?1",
                [first_block_id(70 * MINUTE) + 3],
            )
            .unwrap();
        }
    }
    assert_eq!(
        conn.execute("DELETE FROM block_data WHERE length(events) < 5", [])
            .unwrap(),
        2
    );
    let (found, blocks) = all(&conn);
    assert_eq!(found.len(), 198);
    assert!(
        blocks.values().all(|count| *count <= MAX_SMALL_BLOCKS + 1),
        "{blocks:?}"
    );
}

/// A block whose events take no bytes, because those of a class are all the same.
fn block_of_classes(classes: usize, count: u64, seconds: &[u8]) -> Vec<u8> {
    let mut bytes = vec![VERSION, 1, 0, 0, 0];
    varint(&mut bytes, classes as u64);
    for _ in 0..classes {
        bytes.extend([0; 5]);
        varint(&mut bytes, count * seconds.len() as u64);
        varint(&mut bytes, seconds.len() as u64);
        for second in seconds {
            bytes.push(*second);
            varint(&mut bytes, count);
        }
        bytes.extend([0; 4]);
    }
    bytes.extend([0; PADDING]);
    bytes
}

fn is_read(bytes: &[u8]) -> bool {
    Block::read(bytes).is_some()
}

#[test]
fn a_block_of_too_many_events_or_of_other_seconds_is_damaged() {
    let most = MAX_ROWS as u64;
    assert!(
        is_read(&block_of_classes(1, most, &[7]))
            && is_read(&block_of_classes(4, most / 4, &[59]))
            && is_read(&block_of_classes(2, 3, &[0, 7, 59]))
    );
    assert!(!is_read(&block_of_classes(2, most, &[7])) && !is_read(&block_of_classes(16_384, most, &[7])));
    assert!(
        !is_read(&block_of_classes(1, 3, &[60]))
            && !is_read(&block_of_classes(1, 3, &[7, 7]))
            && !is_read(&block_of_classes(1, 3, &[7, 6]))
    );
}

//! Lists: followers return every batch once and in order, or count the missed ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dta::{BODY, Follower, FollowerStats, Next};
use wire::dta::layout::{BLOCK_TRAILER_LEN, Ring};

use crate::support::{Writer, lists};

/// Eight blocks of four entries of four bytes.
const RING: Ring = Ring {
    entry_len: 4,
    entries: 32,
    batch: 4,
    tagged: true,
};

/// The sequence number of a returned batch, after checking that its entries contain it.
fn number(next: Next<'_>) -> Option<u32> {
    let Next::Batch {
        sequence,
        count,
        entries,
    } = next
    else {
        return None;
    };
    assert_eq!(
        entries,
        sequence.to_be_bytes().repeat(usize::from(count)),
        "batch {sequence}"
    );
    Some(sequence)
}

/// The numbers of all batches that can be read now.
fn drain(follower: &mut Follower) -> Vec<u32> {
    std::iter::from_fn(|| number(follower.next())).collect()
}

/// Polls until the result is not `Nothing` or `Torn`, at most 10,000 times.
fn patiently(follower: &mut Follower) -> Next<'static> {
    for _ in 0..10_000 {
        match follower.next() {
            Next::Nothing | Next::Torn => {}
            Next::Batch { .. } => panic!("a batch where none was expected"),
            Next::Overwritten { lost } => return Next::Overwritten { lost },
            Next::Missing { lost } => return Next::Missing { lost },
        }
    }
    Next::Nothing
}

#[test]
fn the_block_of_section_5_9_is_read() {
    let store = lists(
        1,
        Ring {
            entry_len: 4,
            entries: 16,
            batch: 2,
            tagged: true,
        },
    );
    let block = [
        0xde, 0xad, 0xbe, 0xef, 0xca, 0xfe, 0xf0, 0x0d, 1, 0, 0, 0, 2, 0, 4, 0, 0xef, 0xd2, 0xf9, 0x1b, 0, 0,
        0, 0,
    ];
    let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
    assert_eq!(follower.next(), Next::Nothing);
    store.region().write(BODY, &block).unwrap();
    assert_eq!(
        follower.next(),
        Next::Batch {
            sequence: 1,
            count: 2,
            entries: &block[..8]
        }
    );
    assert_eq!(follower.next(), Next::Nothing);
    assert_eq!((follower.position(), follower.entry_len()), (2, 4));
    assert_eq!(
        follower.stats(),
        FollowerStats {
            batches: 1,
            entries: 2,
            ..FollowerStats::default()
        }
    );
}

#[test]
fn followers_are_independent_and_lists_are_apart() {
    let store = lists(3, RING);
    let all = store.lists().unwrap();
    assert_eq!(all.ids().collect::<Vec<_>>(), [100, 101, 102]);
    assert!(all.has(102) && !all.has(103) && !all.has(99));
    assert!(all.from_now(103).is_none() && all.newest(99).is_none() && all.bare(100).is_none());
    let mut writers = [100, 101, 102].map(|list| Writer::new(&store, list));
    let mut early = all.from_oldest(101).unwrap();
    writers[1].append_numbers(3);
    assert_eq!(drain(&mut early), [1, 2, 3]);
    writers[1].append_numbers(2);
    let mut late = all.from_oldest(101).unwrap();
    let mut latest = all.from_now(101).unwrap();
    let mut again = all.from_sequence(101, 3).unwrap();
    assert_eq!(
        (drain(&mut early), drain(&mut late)),
        (vec![4, 5], vec![1, 2, 3, 4, 5])
    );
    assert_eq!((drain(&mut latest), drain(&mut again)), (vec![], vec![3, 4, 5]));
    writers[0].append_numbers(1);
    assert_eq!(drain(&mut latest), [0_u32; 0], "of another list");
    writers[1].append_numbers(1);
    assert_eq!((drain(&mut latest), drain(&mut late)), (vec![6], vec![6]));
    assert_eq!(
        all.heads().collect::<Vec<_>>(),
        [(100, Some(1)), (101, Some(6)), (102, None)]
    );
}

#[test]
fn a_short_batch_is_a_whole_one() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    writer.append(&[7; 4]);
    writer.append(&[8; 12]);
    let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
    assert_eq!(
        follower.next(),
        Next::Batch {
            sequence: 1,
            count: 1,
            entries: &[7; 4]
        }
    );
    assert_eq!(
        follower.next(),
        Next::Batch {
            sequence: 2,
            count: 3,
            entries: &[8; 12]
        }
    );
}

#[test]
fn many_laps_are_followed() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
    let mut seen = Vec::new();
    for burst in [1, 8, 3, 7, 8, 5, 8, 2].repeat(20) {
        writer.append_numbers(burst);
        seen.extend(drain(&mut follower));
    }
    assert_eq!(seen, (1..writer.sequence).collect::<Vec<_>>());
}

#[test]
fn a_follower_counts_overwritten_batches_and_read_plus_lost_balances() {
    for ahead in 9..60 {
        let store = lists(1, RING);
        let mut writer = Writer::new(&store, 100);
        let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
        writer.append_numbers(2);
        assert_eq!(drain(&mut follower), [1, 2]);
        writer.append_numbers(ahead);
        let Next::Overwritten { lost } = follower.next() else {
            panic!("nothing overwritten by {ahead}")
        };
        let seen = drain(&mut follower);
        assert_eq!(seen.first(), Some(&(3 + lost as u32)), "{ahead}");
        assert_eq!(seen.last(), Some(&(writer.sequence - 1)), "{ahead}");
        // One block is left to the writer, the others are read.
        assert_eq!((seen.len(), lost), (7, u64::from(ahead - 7)), "{ahead}");
        assert_eq!(follower.stats().overwritten, lost);
    }
}

#[test]
fn a_half_written_block_is_not_handed_on() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    writer.append_numbers(8);
    let mut follower = store.lists().unwrap().from_sequence(100, 9).unwrap();
    let at = writer.at(9);
    let entries = 9_u32.to_be_bytes().repeat(4);
    let block = writer.block(&entries);
    for cut in 0..block.len() {
        store.region().write(at, &block[..cut]).unwrap();
        // The trailer's last four bytes are padding.
        if cut < block.len() - 4 {
            assert!(matches!(follower.next(), Next::Nothing | Next::Torn), "{cut}");
        }
    }
    // Data that arrive after their trailer: a NIC may write in this order.
    store.region().write(at, &[0]).unwrap();
    store.region().write(at, &block[1..]).unwrap();
    assert_eq!(follower.next(), Next::Torn);
    store.region().write(at, &block).unwrap();
    assert_eq!(number(follower.next()), Some(9));
}

#[test]
fn trailers_that_lie_are_not_believed() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    writer.append_numbers(8);
    let at = writer.at(1);
    let mut block = vec![0; RING.block_len() as usize];
    store.region().read(at, &mut block).unwrap();
    let mut follower = store.lists().unwrap().from_sequence(100, 1).unwrap();
    let last = block.len() - BLOCK_TRAILER_LEN;
    // Sequence, count, entry length, and the CRC; a larger sequence must not look like an overwritten batch.
    for (byte, value) in [(0, 200), (1, 7), (3, 0x7f), (4, 5), (4, 0), (6, 8), (8, 0x55)] {
        let mut damaged = block.clone();
        damaged[last + byte] = value;
        store.region().write(at, &damaged).unwrap();
        assert!(
            matches!(follower.next(), Next::Nothing | Next::Torn),
            "{byte} {value}"
        );
        assert_eq!(follower.position(), 1);
    }
    // With a valid CRC, but not of this list: more entries than a batch has, entries of another size, none.
    for (count, entry_len) in [(5, 4), (2, 8), (0, 4)] {
        let trailer = wire::dta::layout::BlockTrailer {
            sequence: 1,
            count,
            entry_len,
        };
        let mut lie = vec![0; RING.block_len() as usize + 64];
        if !trailer.seal(&mut lie[..RING.block_len() as usize]) {
            continue;
        }
        store
            .region()
            .write(at, &lie[..RING.block_len() as usize])
            .unwrap();
        assert_eq!(follower.next(), Next::Torn, "{count} {entry_len}");
    }
}

#[test]
fn a_batch_that_never_came_is_given_up_when_later_ones_are_there() {
    for lost in 1..7_u32 {
        let store = lists(1, RING);
        let mut writer = Writer::new(&store, 100);
        writer.append_numbers(2);
        let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
        assert_eq!(drain(&mut follower), [1, 2]);
        writer.lose(lost);
        assert_eq!(patiently(&mut follower), Next::Nothing, "nothing later is there");
        writer.append_numbers(7 - lost);
        assert_eq!(
            patiently(&mut follower),
            Next::Missing {
                lost: u64::from(lost)
            }
        );
        assert_eq!(drain(&mut follower), (3 + lost..10).collect::<Vec<_>>());
        assert_eq!(follower.stats().missing, u64::from(lost));
    }
}

/// The collector lost its memory, the translator kept its sequence numbers.
#[test]
fn a_writer_that_is_far_ahead_of_empty_memory_is_found() {
    for entries in [32, 4000] {
        for ahead in 100_000..100_040 {
            let store = lists(1, Ring { entries, ..RING });
            let mut writer = Writer::new(&store, 100);
            writer.sequence = ahead;
            let mut follower = store.lists().unwrap().from_now(100).unwrap();
            assert_eq!(follower.next(), Next::Nothing);
            writer.append_numbers(1);
            // Two searches: for the pass with the batch, and in it for the batch.
            let found = (0..2 * follower.max_empty_polls()).find_map(|_| number(follower.next()));
            assert_eq!(found, Some(ahead), "{entries}");
            let seen = follower.stats();
            assert_eq!(
                (seen.batches, seen.overwritten + seen.missing),
                (1, u64::from(ahead) - 1),
                "{entries}"
            );
        }
    }
}

#[test]
fn a_ring_of_a_million_batches_is_looked_through_in_a_thousand_calls() {
    let store = lists(
        1,
        Ring {
            entries: 4 << 20,
            ..RING
        },
    );
    let mut follower = store.lists().unwrap().from_now(100).unwrap();
    assert_eq!(follower.max_empty_polls(), Follower::MAX_RETRIES + 1024 + 1);
    let mut writer = Writer::new(&store, 100);
    writer.lose(900_000);
    writer.append_numbers(3);
    let found = (0..follower.max_empty_polls()).find_map(|_| match follower.next() {
        Next::Missing { lost } => Some(lost),
        next => {
            assert_eq!(next, Next::Nothing);
            None
        }
    });
    assert_eq!(
        (found, drain(&mut follower)),
        (Some(900_000), vec![900_001, 900_002, 900_003])
    );
}

#[test]
fn a_batch_that_comes_late_is_waited_for() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
    let at = writer.at(1);
    let first = writer.block(&1_u32.to_be_bytes().repeat(4));
    writer.append_numbers(3);
    for _ in 1..Follower::MAX_RETRIES {
        assert_eq!(follower.next(), Next::Nothing);
    }
    store.region().write(at, &first).unwrap();
    assert_eq!(drain(&mut follower), [1, 2, 3, 4]);
    let mut hasty = store
        .lists()
        .unwrap()
        .from_sequence(100, 5)
        .unwrap()
        .with_retries(1);
    writer.lose(1);
    writer.append_numbers(1);
    assert_eq!(hasty.next(), Next::Missing { lost: 1 });
}

#[test]
fn a_damaged_batch_is_given_up_when_later_ones_are_there() {
    let store = lists(1, RING);
    let mut writer = Writer::new(&store, 100);
    writer.append_numbers(1);
    store.region().write(writer.at(1), &[0xff]).unwrap();
    let mut follower = store.lists().unwrap().from_sequence(100, 1).unwrap();
    assert_eq!(patiently(&mut follower), Next::Nothing);
    assert_eq!(follower.next(), Next::Torn);
    writer.append_numbers(1);
    assert_eq!(patiently(&mut follower), Next::Missing { lost: 1 });
    assert_eq!(drain(&mut follower), [2]);
}

#[test]
fn numbers_go_on_after_the_largest() {
    for entries in [32, 28] {
        let store = lists(1, Ring { entries, ..RING });
        let mut writer = Writer::new(&store, 100);
        writer.sequence = u32::MAX - 20;
        let mut follower = store
            .lists()
            .unwrap()
            .from_sequence(100, writer.sequence)
            .unwrap();
        let mut seen = Vec::new();
        for _ in 0..40 {
            writer.append_numbers(1);
            seen.extend(drain(&mut follower));
            assert_eq!(store.lists().unwrap().newest(100), seen.last().copied());
        }
        let expected: Vec<u32> = (u32::MAX - 20..=u32::MAX).chain(1..20).collect();
        assert_eq!(seen, expected);
        assert_eq!(follower.stats().batches, 40);
        // Overwriting across the wrap of the sequence number is counted as any other.
        let mut slow = store.lists().unwrap().from_sequence(100, u32::MAX - 3).unwrap();
        let Next::Overwritten { lost } = slow.next() else {
            panic!("nothing overwritten")
        };
        assert_eq!(drain(&mut slow).last(), Some(&19));
        assert_eq!(slow.stats().batches + lost, 4 + 19);
    }
}

#[test]
fn the_newest_batch_is_the_newest_whole_one() {
    let store = lists(1, RING);
    let all = store.lists().unwrap();
    let mut writer = Writer::new(&store, 100);
    writer.append_numbers(11);
    assert_eq!(all.newest(100), Some(11));
    store.region().write(writer.at(11), &[0xff]).unwrap();
    assert_eq!(all.newest(100), Some(10), "the last one was not finished");
    let mut follower = all.from_oldest(100).unwrap();
    // 4 to 10 are complete; 11 was begun in the block of 3.
    assert_eq!(drain(&mut follower), (4..11).collect::<Vec<_>>());
}

#[test]
fn a_bare_list_is_followed_by_what_changes() {
    let store = lists(
        2,
        Ring {
            tagged: false,
            ..RING
        },
    );
    let all = store.lists().unwrap();
    assert!(all.from_oldest(100).is_none() && all.newest(100).is_none() && all.bare(7).is_none());
    let mut follower = all.bare(101).unwrap();
    assert_eq!(follower.next(8), None);
    let base = BODY + 8 * 16;
    for lap in 1..4_u8 {
        for block in 0..8_u8 {
            let entries = [lap << 4 | block; 16];
            store
                .region()
                .write(base + u64::from(block) * 16, &entries)
                .unwrap();
            assert_eq!(follower.next(8), Some(&entries[..]));
            assert_eq!(follower.next(8), None);
        }
    }
    // A batch equal to the previous contents of its block is not detected: the known limitation.
    store.region().write(base, &[3 << 4; 16]).unwrap();
    assert_eq!(follower.next(8), None);
    store.region().write(BODY, &[9; 16]).unwrap();
    assert_eq!(follower.next(8), None, "another list");
}

#[test]
fn followers_beside_a_writer_see_whole_batches_in_order() {
    let ring = Ring {
        entry_len: 4,
        entries: 64 * 16,
        batch: 16,
        tagged: true,
    };
    let store = lists(1, ring);
    let mut follower = store.lists().unwrap().from_oldest(100).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        move || {
            let mut writer = Writer::new(&store, 100);
            writer.append_numbers(100_000);
            done.store(true, Ordering::Release);
        }
    });
    let mut last = 0;
    loop {
        let over = done.load(Ordering::Acquire);
        match follower.next() {
            Next::Overwritten { lost } | Next::Missing { lost } => last += lost as u32,
            Next::Nothing if over => break,
            next => {
                if let Some(number) = number(next) {
                    assert_eq!(number, last + 1);
                    last = number;
                }
            }
        }
    }
    writer.join().unwrap();
    let FollowerStats {
        batches,
        overwritten,
        missing,
        ..
    } = follower.stats();
    assert_eq!(batches + overwritten + missing, 100_000);
    assert!(batches > 0);
}

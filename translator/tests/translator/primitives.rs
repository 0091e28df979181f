//! Key-Write, Append, Key-Increment, Postcarding: the rules of 5.5, with the memory layout of 5.9.

use rdma::transport::{Blocked, Credit};
use translator::{Cause, Config, Reason, StoreEntry};
use wire::dta::Operation;
use wire::dta::hash::{self, Family};
use wire::dta::layout::{BlockTrailer, Geometry, Ring};

use crate::model::{KEY, MS, World, append, config, essential, immediate, plain, put, sender, stores};

/// `dta1_kw_pkt` of 5.7, from the UDP payload on.
const KEY_WRITE: &str =
    "11600102000000070 20d0014000100000a0000010a00000204d20050060000000b0000000c0000000d0000000e0000000f";

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks_exact(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}

#[test]
fn the_key_write_of_section_5_7_is_the_slot_of_section_5_9() {
    let mut world = World::new();
    world.send_bytes(sender(1), 0, &hex(KEY_WRITE));
    let slot = hex("bc4f0a28 0000000b 0000000c 0000000d 0000000e 0000000f");
    let done = world.memory.done();
    let offsets: Vec<u64> = done.iter().map(|done| done.offset).collect();
    assert_eq!(offsets, [0x13f_3bc0, 0xd_f141 * 32]);
    for write in &done {
        // Essential: it must arrive.
        assert_eq!(
            (write.place.region, &write.data, write.immediate, write.reliable),
            (0, &slot, None, true)
        );
    }
    assert_eq!(
        world.memory.body(0)[0x13f_3bc0..][..32],
        [slot, vec![0; 8]].concat()
    );
}

#[test]
fn copies_go_to_their_slots_and_the_last_carries_the_immediate() {
    for copies in 1..=4u8 {
        for base in [plain(), immediate()] {
            let mut world = World::new();
            world.send(
                base,
                Operation::KeyWrite {
                    copies,
                    store: 1,
                    key: &KEY,
                    data: &[7],
                },
            );
            let done = world.memory.done();
            let hashes = hash::hashes(&KEY);
            let data = [&hashes.checksum.to_le_bytes()[..], &[7], &[0; 19]].concat();
            for (n, write) in done.iter().enumerate() {
                let expected = (base.immediate && n + 1 == usize::from(copies)).then_some(0x1000_0001);
                assert_eq!(write.offset, u64::from(hashes.slots[n] & 0xf_ffff) * 32);
                assert_eq!(
                    (&write.data, write.immediate, write.reliable),
                    (&data, expected, false)
                );
            }
            assert_eq!(
                (done.len(), world.stats().copies.written),
                (usize::from(copies), copies.into())
            );
        }
    }
}

#[test]
fn operations_unsupported_by_a_store_are_refused_with_a_reason() {
    let mut world = World::new();
    let data = [0; 21];
    let cases: [(Operation<'_>, Reason); 8] = [
        (
            Operation::KeyWrite {
                copies: 1,
                store: 1,
                key: &KEY,
                data: &data,
            },
            Reason::TooMuchData,
        ),
        (
            Operation::KeyWrite {
                copies: 1,
                store: 2,
                key: &KEY,
                data: &data,
            },
            Reason::UnknownStore,
        ),
        (
            Operation::KeyWrite {
                copies: 1,
                store: 129,
                key: &KEY,
                data: &[1],
            },
            Reason::UnknownStore,
        ),
        (
            Operation::KeyIncrement {
                copies: 1,
                store: 0,
                delta: 1,
                key: &KEY,
            },
            Reason::UnknownStore,
        ),
        (append(16, &[0; 4]), Reason::UnknownList),
        (
            Operation::Append {
                list: 0,
                entry_len: 3,
                entries: &[0; 3],
            },
            Reason::WrongEntry,
        ),
        (
            Operation::Postcard {
                hop: 6,
                path_len: 0,
                store: 1,
                value: 1,
                key: &KEY,
            },
            Reason::WrongHop,
        ),
        (
            Operation::Postcard {
                hop: 1,
                path_len: 0,
                store: 9,
                value: 1,
                key: &KEY,
            },
            Reason::UnknownStore,
        ),
    ];
    for (number, (operation, reason)) in cases.into_iter().enumerate() {
        let before = world.dropped(reason);
        world.send(plain(), operation);
        assert_eq!(world.dropped(reason), before + 1, "{number}");
    }
    assert_eq!(
        (world.memory.done().len(), world.done(), world.controls().len()),
        (0, 0, 0)
    );
}

#[test]
fn a_copy_refused_by_a_closed_transport_is_counted_and_the_others_stay() {
    let mut world = World::new();
    world.memory.fuse = Some(1);
    world.send(
        plain(),
        Operation::KeyWrite {
            copies: 3,
            store: 1,
            key: &KEY,
            data: &[7],
        },
    );
    let copies = world.stats().copies;
    assert_eq!((copies.requested, copies.written, copies.dropped), (3, 1, 2));
    assert_eq!(
        (
            world.done(),
            world.stats().operations.blocked[Blocked::Broken as usize]
        ),
        (1, 1)
    );
}

#[test]
fn the_block_of_section_5_9() {
    let ring = Ring {
        entry_len: 4,
        entries: 8,
        batch: 2,
        tagged: true,
    };
    let geometry = Geometry::Append {
        lists: 1,
        first_list: 5,
        ring,
    };
    let mut world = World::of(config(vec![StoreEntry::new(0, 0, geometry)]));
    let block = hex("deadbeef cafef00d 01000000 02000400 efd2f91b 00000000");
    world.send(plain(), append(5, &hex("deadbeef")));
    assert_eq!(world.memory.done(), []);
    world.send(plain(), append(5, &hex("cafef00d")));
    let done = world.memory.done();
    assert_eq!((done.len(), done[0].offset, &done[0].data), (1, 0, &block));
}

/// Entries of 4 bytes with these numbers.
fn entries(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_be_bytes).collect()
}

#[test]
fn entries_of_any_reports_come_in_order_in_whole_batches() {
    let mut world = World::new();
    let mut next = 0;
    for count in [1, 2, 3, 4, 5, 1, 255, 7, 1, 1] {
        world.send(plain(), append(3, &entries(next..next + count)));
        next += count;
    }
    let mut numbers = Vec::new();
    for (index, done) in world.memory.done().iter().enumerate() {
        let trailer = BlockTrailer::check(&done.data).expect("a whole block");
        assert_eq!((trailer.sequence, trailer.count), (index as u32 + 1, 4));
        // Blocks of 32 bytes, sixteen of them in a list.
        assert_eq!(done.offset, 3 * 512 + index as u64 % 16 * 32);
        numbers.extend(
            done.data[..16]
                .as_chunks::<4>()
                .0
                .iter()
                .map(|entry| u32::from_be_bytes(*entry)),
        );
    }
    assert_eq!(numbers, (0..280).collect::<Vec<_>>());
    let stats = world.stats().entries;
    assert_eq!(
        (
            stats.accepted,
            stats.written,
            stats.pending,
            stats.batches[Cause::Full as usize]
        ),
        (280, 280, 0, 70)
    );
}

#[test]
fn a_batch_is_written_early_when_its_first_entry_is_old() {
    let mut world = World::new();
    world.send(plain(), append(2, &entries([1, 2, 3, 4, 5, 6, 7])));
    world.memory.done();
    assert_eq!(world.translator.deadline(), Some(world.now + MS));
    world.pass(MS - 1);
    assert_eq!(world.memory.done(), []);
    world.pass(1);
    let done = world.memory.done();
    let trailer = BlockTrailer::check(&done[0].data).expect("a whole block");
    assert_eq!((trailer.sequence, trailer.count), (2, 3));
    // The bytes of the previous batch there are cleared.
    assert_eq!(done[0].data[..16], entries([5, 6, 7, 0]));
    assert_eq!(
        (
            world.translator.deadline(),
            world.stats().entries.batches[Cause::Timer as usize]
        ),
        (None, 1)
    );
    // The next batch is the next block.
    world.send(plain(), append(2, &entries([8, 9, 10, 11])));
    assert_eq!(world.memory.done()[0].offset, 2 * 512 + 2 * 32);
}

#[test]
fn an_immediate_entry_is_written_at_once_and_reported() {
    let mut world = World::new();
    world.send(plain(), append(3, &entries([1])));
    world.send(immediate(), append(3, &entries([2])));
    world.send(immediate(), append(3, &entries([3, 4, 5, 6])));
    world.send(immediate(), append(3, &entries([7, 8, 9, 10, 11])));
    let seen: Vec<(u16, Option<u32>)> = world
        .memory
        .done()
        .iter()
        .map(|done| {
            (
                BlockTrailer::check(&done.data).expect("whole").count,
                done.immediate,
            )
        })
        .collect();
    let immediate = Some(0x2000_0003);
    // Only the last write of a report carries the immediate; a full one is not followed by an empty one.
    assert_eq!(seen, [(2, immediate), (4, immediate), (4, None), (1, immediate)]);
    let stats = world.stats();
    assert_eq!(
        (
            stats.operations.immediates,
            stats.entries.batches[Cause::Immediate as usize]
        ),
        (3, 2)
    );
}

#[test]
fn a_batch_with_an_essential_entry_must_arrive() {
    let mut world = World::new();
    world.send(essential(1), append(0, &entries([1])));
    world.send(plain(), append(0, &entries([2, 3, 4, 5, 6, 7, 8])));
    let reliable: Vec<bool> = world.memory.done().iter().map(|done| done.reliable).collect();
    assert_eq!(reliable, [true, false]);
}

#[test]
fn each_list_waits_independently() {
    let mut world = World::new();
    for round in 0..4 {
        for list in 0..16 {
            world.send(plain(), append(list, &entries([list * 100 + round])));
            world.now += 10 * US;
        }
    }
    assert_eq!(world.memory.done().len(), 16);
    // Different ages, out of order of their numbers.
    for list in [9, 3, 12] {
        world.send(plain(), append(list, &entries([list])));
        world.now += 300 * US;
    }
    for (list, offset) in [(9, 9 * 512 + 32), (3, 3 * 512 + 32), (12, 12 * 512 + 32)] {
        let due = world.translator.deadline().expect("something waits");
        world.pass(due - world.now);
        assert_eq!(
            world
                .memory
                .done()
                .iter()
                .map(|done| done.offset)
                .collect::<Vec<_>>(),
            [offset],
            "{list}"
        );
    }
}

use crate::model::US;

#[test]
fn a_bare_ring_has_entries_and_nothing_else() {
    let mut world = World::new();
    let bytes: Vec<u8> = (1..=42).collect();
    world.send(plain(), append(101, &bytes[..9]));
    world.pass(MS);
    // Written early: the batch is completed later, so that the following ones end where the ring does.
    world.send(plain(), append(101, &bytes[9..30]));
    world.send(plain(), append(101, &bytes[30..42]));
    let done: Vec<(u64, usize)> = world
        .memory
        .done()
        .iter()
        .map(|done| (done.offset, done.data.len()))
        .collect();
    assert_eq!(done, [(36, 9), (45, 3), (48, 12), (60, 12)]);
    world.pass(MS);
    // Two of twelve entries were overwritten by the next pass.
    assert_eq!(
        world.memory.body(5)[36..72],
        [&bytes[36..42], &bytes[6..36]].concat()
    );
}

#[test]
fn lists_go_on_where_the_collector_says() {
    let mut world = World::new();
    assert!(world.translator.set_next(0, 3, 18) && world.translator.set_next(0, 101, 8));
    assert!(!world.translator.set_next(0, 99, 1) && !world.translator.set_next(1, 3, 1));
    world.send(plain(), append(3, &entries([1, 2, 3, 4])));
    world.send(plain(), append(101, &[0; 12]));
    let done = world.memory.done();
    // Batch 18 is the second block of the second pass.
    assert_eq!(
        (
            done[0].offset,
            BlockTrailer::check(&done[0].data).map(|it| it.sequence)
        ),
        (3 * 512 + 32, Ok(18))
    );
    assert_eq!(done[1].offset, 36 + 24);
    // The numbers wrap without 0.
    world.translator.set_next(0, 3, u64::from(u32::MAX));
    world.send(plain(), append(3, &entries([0; 8])));
    let sequences: Vec<u32> = world
        .memory
        .done()
        .iter()
        .map(|done| BlockTrailer::check(&done.data).expect("whole").sequence)
        .collect();
    assert_eq!(sequences, [u32::MAX, 1]);
}

#[test]
fn entries_wait_for_a_closed_transport_and_are_not_lost() {
    let mut world = World::new();
    world.memory.room[0] = Credit::NONE;
    world.send(plain(), append(3, &entries([1, 2, 3])));
    // The fourth would fill the batch: medium priority, so it is dropped.
    world.send(plain(), append(3, &entries([4])));
    assert_eq!(world.dropped(Reason::CongestedMedium), 1);
    world.pass(10 * MS);
    assert_eq!((world.memory.done().len(), world.stats().entries.pending), (0, 3));
    world.memory.room[0] = Credit::UNLIMITED;
    world.pass(1);
    assert_eq!((world.memory.done().len(), world.stats().entries.pending), (1, 0));
}

#[test]
fn a_report_of_which_half_was_written_says_so() {
    let mut world = World::new();
    world.memory.fuse = Some(1);
    world.send(plain(), append(3, &entries(0..9)));
    assert_eq!(world.dropped(Reason::CutShort), 1);
    let stats = world.stats().entries;
    assert_eq!((stats.accepted, stats.written, stats.pending), (8, 4, 4));
    // A transport that never accepts it: dropped, and counted.
    world.memory.fuse = Some(0);
    world.memory.says = Blocked::NoRegion;
    world.pass(MS);
    assert_eq!(
        (world.stats().entries.dropped, world.stats().entries.pending),
        (4, 0)
    );
}

#[test]
fn counters_are_added_to_as_often_as_there_are_copies() {
    let mut world = World::new();
    let key = [10, 0, 0, 1];
    // `dta1_ki` of 5.7; slot 0 is 34979 of 65536 (6.5).
    world.send_bytes(
        sender(1),
        0,
        &hex("13000000 00000007 02040001 00000000 00000000 00000005 0a000001"),
    );
    assert_eq!(world.memory.done()[0].offset, 8 * 34979);
    world.send(
        immediate(),
        Operation::KeyIncrement {
            copies: 4,
            store: 1,
            delta: u64::MAX,
            key: &key,
        },
    );
    let done = world.memory.done();
    let immediates: Vec<Option<u32>> = done.iter().map(|done| done.immediate).collect();
    assert_eq!(immediates, [None, None, None, Some(0x3000_0001)]);
    let hashes = hash::hashes(&key);
    let counters = hashes.slots.map(|hash| {
        let at = hash as usize % 65536 * 8;
        u64::from_le_bytes(world.memory.body(2)[at..at + 8].try_into().expect("8 bytes"))
    });
    assert_eq!(counters, [4, 4, u64::MAX, u64::MAX]);
}

#[test]
fn an_addition_that_was_cut_short_says_so() {
    let mut world = World::new();
    world.memory.fuse = Some(1);
    world.send(
        plain(),
        Operation::KeyIncrement {
            copies: 2,
            store: 1,
            delta: 1,
            key: &KEY,
        },
    );
    assert_eq!(
        (
            world.dropped(Reason::CutShort),
            world.stats().operations.fetch_adds
        ),
        (1, 1)
    );
}

fn postcard(hop: u8, path_len: u8, value: u32, key: &[u8]) -> Operation<'_> {
    Operation::Postcard {
        hop,
        path_len,
        store: 1,
        value,
        key,
    }
}

const MISSING: u32 = u32::MAX;

fn path(world: &World, key: &[u8]) -> (u32, [u32; 5]) {
    let at = hash::hashes(key).slots[0] as usize % 65536 * 32;
    let word = |n: usize| {
        u32::from_be_bytes(
            world.memory.body(3)[at + 4 * n..][..4]
                .try_into()
                .expect("4 bytes"),
        )
    };
    (word(0).swap_bytes(), [1, 2, 3, 4, 5].map(word))
}

#[test]
fn a_path_is_written_when_its_hops_are_there() {
    let mut world = World::new();
    // In any order; one of them contains the path's length. `dta1_pcslot` of 5.9.
    world.send(plain(), postcard(3, 0, 13, &KEY));
    world.send(plain(), postcard(1, 0, 11, &KEY));
    assert_eq!(world.memory.done(), []);
    world.send_bytes(
        sender(1),
        0,
        &hex("14000000 00000007 02030d00 00010000 0000000c 0a000001 0a000002 04d20050 06"),
    );
    let done = world.memory.done();
    assert_eq!(
        done[0].data,
        hex("bc4f0a28 0000000b 0000000c 0000000d ffffffff ffffffff")
    );
    assert_eq!(
        (done.len(), done[0].immediate, done[0].reliable),
        (1, None, false)
    );
    // Without a length it takes all five.
    let key = [1, 2, 3];
    for hop in 1..=5 {
        assert_eq!(world.memory.done(), []);
        world.send(
            if hop == 2 { immediate() } else { plain() },
            postcard(hop, 0, hop.into(), &key),
        );
    }
    assert_eq!(path(&world, &key), (hash::hashes(&key).checksum, [1, 2, 3, 4, 5]));
    assert_eq!(world.memory.done()[0].immediate, Some(0x4000_0001));
    assert_eq!(world.stats().postcards.paths[Cause::Full as usize], 2);
}

#[test]
fn a_path_with_holes_is_written_when_it_is_old() {
    let mut world = World::new();
    world.send(essential(1), postcard(2, 4, 12, &KEY));
    world.send(plain(), postcard(4, 4, 14, &KEY));
    world.send(plain(), postcard(4, 4, 15, &KEY));
    assert_eq!(world.translator.deadline(), Some(world.now + 10 * MS));
    world.pass(10 * MS);
    assert!(world.memory.done()[0].reliable);
    assert_eq!(path(&world, &KEY).1, [MISSING, 12, MISSING, 15, MISSING]);
    let stats = world.stats().postcards;
    assert_eq!(
        (stats.accepted, stats.written, stats.replaced, stats.pending),
        (3, 2, 1, 0)
    );
    assert_eq!(stats.paths[Cause::Timer as usize], 1);
}

#[test]
fn more_paths_than_slots_are_written_early_and_none_is_lost() {
    let mut world = World::of(Config {
        postcards: 16,
        ..config(stores())
    });
    world.memory.is_logging = false;
    let keys: Vec<[u8; 4]> = (0..1000u32).map(|key| (key * 7919).to_be_bytes()).collect();
    for key in &keys {
        world.send(plain(), postcard(1, 0, 5, key));
    }
    let stats = world.stats().postcards;
    assert!(
        stats.pending <= 16 && stats.paths[Cause::Evicted as usize] == 1000 - stats.pending,
        "{stats:?}"
    );
    world.pass(10 * MS);
    assert_eq!(world.stats().postcards.written, 1000);
    let kept = keys
        .iter()
        .filter(|key| path(&world, *key).1 == [5, MISSING, MISSING, MISSING, MISSING]);
    assert!(kept.count() == 1000);
}

#[test]
fn postcards_wait_for_a_closed_transport() {
    let mut world = World::of(Config {
        postcards: 4,
        ..config(stores())
    });
    world.memory.room[0] = Credit::NONE;
    for key in 0..4u8 {
        world.send(plain(), postcard(1, 1, 5, &[key]));
    }
    // They are complete, and wait; a fifth path needs a slot.
    assert_eq!((world.done(), world.stats().postcards.pending), (4, 4));
    world.send(plain(), postcard(1, 1, 5, &[4]));
    assert_eq!(world.dropped(Reason::CongestedMedium), 1);
    world.memory.room[0] = Credit::UNLIMITED;
    world.send(plain(), postcard(1, 1, 5, &[4]));
    assert_eq!(world.stats().postcards.pending, 3);
    assert!(world.translator.finish(world.now, &mut world.memory));
    assert_eq!(
        (world.stats().postcards.pending, world.stats().postcards.written),
        (0, 5)
    );
}

#[test]
fn all_pending_data_is_written_at_the_end() {
    let mut world = World::new();
    world.send(plain(), append(3, &entries([1])));
    world.send(plain(), postcard(1, 0, 5, &KEY));
    assert!(world.translator.finish(world.now, &mut world.memory));
    let stats = world.stats();
    assert_eq!(
        (
            stats.entries.pending,
            stats.postcards.pending,
            world.memory.done().len()
        ),
        (0, 0, 2)
    );
    assert_eq!(
        (
            stats.entries.batches[Cause::Stopped as usize],
            stats.postcards.paths[Cause::Stopped as usize]
        ),
        (1, 1)
    );
}

#[test]
fn pending_entries_survive_a_reconnect_and_are_lost_with_their_store() {
    use translator::CollectorConfig;
    let mut world = World::new();
    world.send(plain(), append(3, &entries([1])));
    world.send(plain(), append(100, &[1, 2, 3]));
    world.send(plain(), postcard(1, 0, 5, &KEY));
    let attach = |world: &mut World, stores| {
        let memory = CollectorConfig {
            stores,
            ..CollectorConfig::default()
        };
        world.translator.attach(0, memory).expect("good stores");
        assert!(world.stats().is_balanced());
    };
    attach(&mut world, stores());
    assert_eq!(
        (world.stats().entries.pending, world.stats().postcards.pending),
        (2, 1)
    );
    // Without the bare lists and the postcards; the tagged ones are another size.
    let mut fewer: Vec<StoreEntry> = stores()
        .into_iter()
        .filter(|store| !matches!(store.region, 3 | 5))
        .collect();
    attach(&mut world, fewer.clone());
    let stats = world.stats();
    assert_eq!(
        (
            stats.entries.pending,
            stats.entries.dropped,
            stats.postcards.dropped
        ),
        (1, 1, 1)
    );
    fewer.retain(|store| store.region != 1);
    attach(&mut world, fewer);
    assert_eq!(
        (world.stats().entries.pending, world.stats().entries.dropped),
        (0, 2)
    );
    world.send(plain(), append(3, &entries([1])));
    assert_eq!(world.dropped(Reason::UnknownList), 1);
    world.send(plain(), put(&KEY));
    assert_eq!(world.done(), 4);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, from start to end")]
fn settings_that_cannot_be_used_are_named() {
    use translator::{CollectorConfig, ConfigError, Translator};
    let ring = Ring {
        entry_len: 4,
        entries: 64,
        batch: 4,
        tagged: true,
    };
    let lists = |first_list, lists| {
        StoreEntry::new(
            9,
            0,
            Geometry::Append {
                lists,
                first_list,
                ring,
            },
        )
    };
    let family = Family::V1;
    let cases = [
        (
            StoreEntry::new(9, 1, Geometry::KeyIncrement { slots: 8, family }),
            "ID 1 is used twice",
        ),
        (lists(15, 1), "ID 15 is used twice"),
        (lists(8, 100), "ID 8 is used twice"),
        (lists(200, 70_000), "at most 65536 lists"),
        (lists(200, 65_530), "lists must be at most 65536 in all"),
        (
            StoreEntry {
                swapped: true,
                ..lists(200, 1)
            },
            "only bare lists",
        ),
        (
            StoreEntry::new(
                9,
                2,
                Geometry::KeyWrite {
                    slots: 3,
                    data_len: 4,
                    family,
                },
            ),
            "power of two",
        ),
        (
            StoreEntry::new(
                9,
                2,
                Geometry::Postcarding {
                    slots: 4,
                    hops: 65,
                    family,
                },
            ),
            "at most 64 hops",
        ),
        (
            StoreEntry {
                reporters: 0,
                id: 5,
                ..stores()[4]
            },
            "1 to 4096 reporters",
        ),
        (
            StoreEntry::new(
                9,
                2,
                Geometry::Postcarding {
                    slots: 4,
                    hops: 4,
                    family: Family::Artifact,
                },
            ),
            "5 hops",
        ),
    ];
    for (store, text) in cases {
        let all = [stores(), vec![store]].concat();
        let error = Translator::new(config(all.clone())).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
        // A memory attached later is checked in the same way; a rejected one changes nothing.
        let mut world = World::new();
        let memory = CollectorConfig {
            stores: all,
            ..CollectorConfig::default()
        };
        assert!(world.translator.attach(0, memory).is_err());
        world.send(plain(), put(&KEY));
        assert_eq!(world.done(), 1);
    }
    let none = Config {
        collectors: Vec::new(),
        ..Config::default()
    };
    assert_eq!(none.check(), Err(ConfigError::Collectors));
    let postcards = Config {
        postcards: 3,
        ..config(Vec::new())
    };
    assert!(postcards.check().is_err());
    let mut world = World::new();
    assert_eq!(
        world.translator.attach(1, CollectorConfig::default()),
        Err(ConfigError::NoCollector)
    );
}

#[test]
fn each_batch_of_an_append_needs_its_own_credit() {
    let mut world = World::new();
    world.send(essential(1), append(3, &entries([1])));
    world.memory.is_reliable_only = true;
    // The first batch would be reliable, because of the essential entry in it, and the others not.
    world.send(plain(), append(3, &entries(2..13)));
    let stats = world.stats();
    assert_eq!(
        (
            world.dropped(Reason::CongestedMedium),
            stats.entries.accepted,
            stats.entries.pending
        ),
        (1, 1, 1)
    );
    // A batch is essential if one of its entries is.
    world.send(plain(), append(3, &entries(2..5)));
    assert_eq!((world.done(), world.stats().entries.written), (2, 4));
}

#[test]
fn a_batch_of_a_list_is_no_longer_than_a_write_may_be() {
    use rdma::transport::MAX_WRITE;
    use translator::CollectorConfig;
    // Entries of 512 bytes; a tagged batch has a trailer too.
    let cases = [
        (128, false, Some(MAX_WRITE)),
        (129, false, None),
        (127, true, Some(65_040)),
        (128, true, None),
    ];
    for (batch, tagged, written) in cases {
        let ring = Ring {
            entry_len: 512,
            entries: 2 * u64::from(batch),
            batch,
            tagged,
        };
        let stores = vec![StoreEntry::new(
            5,
            0,
            Geometry::Append {
                lists: 1,
                first_list: 100,
                ring,
            },
        )];
        let mut world = World::of(config(Vec::new()));
        let memory = CollectorConfig {
            stores,
            ..CollectorConfig::default()
        };
        let attached = world
            .translator
            .attach(0, memory)
            .map_err(|error| error.to_string());
        world.memory.regions.insert((0, 5), vec![0; 4 * MAX_WRITE]);
        for entries in vec![7; 512 * usize::from(batch)].chunks(512 * 64) {
            world.send(
                plain(),
                Operation::Append {
                    list: 100,
                    entry_len: 512,
                    entries,
                },
            );
        }
        let done: Vec<usize> = world.memory.done().iter().map(|done| done.data.len()).collect();
        let too_long =
            "store, list or sketch 100: a batch has more than 65536 bytes: fewer or shorter entries"
                .to_owned();
        let expected = written.map_or((Err(too_long), vec![]), |len| (Ok(()), vec![len]));
        assert_eq!((attached, done), expected, "{batch} {tagged}");
    }
}

//! Key-write: policies, collisions, copies that are being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dta::{Answer, BODY, Copy, Policy, QueryError};
use wire::dta::hash::{Family, hashes};
use wire::dta::layout::Geometry;

use crate::support::{KEY, key, key_write, places, store, write_copies};

const A: &[u8; 20] = b"value A.............";
const B: &[u8; 20] = b"value B.............";

fn found(copies: u8, agreeing: u8) -> Answer {
    Answer::Found { copies, agreeing }
}

fn ambiguous(copies: u8, agreeing: u8) -> Answer {
    Answer::Ambiguous { copies, agreeing }
}

#[test]
fn the_slot_of_section_5_9_is_read() {
    let store = key_write(1 << 20, 20);
    let slot = [
        0xbc, 0x4f, 0x0a, 0x28, 0, 0, 0, 0x0b, 0, 0, 0, 0x0c, 0, 0, 0, 0x0d, 0, 0, 0, 0x0e, 0, 0, 0, 0x0f, 0,
        0, 0, 0, 0, 0, 0, 0,
    ];
    store.region().write(BODY + 0x13f_3bc0, &slot).unwrap();
    let mut value = [0xa5; 20];
    let answer = store.key_write().unwrap().get(&KEY, Policy::First, 4, &mut value);
    assert_eq!(
        (answer, value),
        (Ok(found(1, 1)), slot[4..24].try_into().unwrap())
    );
}

#[test]
fn the_artifacts_slot_of_section_5_2_is_read() {
    let store = store(Geometry::KeyWrite {
        slots: 65536,
        data_len: 4,
        family: Family::Artifact,
    });
    for slot in [13863, 1713] {
        store
            .region()
            .write(BODY + slot * 8, &[0x67, 0x51, 0x2d, 0x79, 0, 0, 2, 0x9a])
            .unwrap();
    }
    let mut value = [0; 4];
    let answer = store
        .key_write()
        .unwrap()
        .get(&[10, 0, 0, 1], Policy::Strict, 2, &mut value);
    assert_eq!((answer, value), (Ok(found(2, 2)), [0, 0, 2, 0x9a]));
}

/// Result of each policy for a key with these values in its slots 0 to 3.
#[test]
fn policies_by_what_is_left() {
    let another = b"another key";
    type Case = ([Option<&'static [u8; 20]>; 4], Answer, Answer, Answer);
    let cases: [Case; 9] = [
        // slots, first, majority, strict
        ([None; 4], Answer::Empty, Answer::Empty, Answer::Empty),
        (
            [Some(A), None, None, None],
            found(1, 1),
            found(1, 1),
            ambiguous(1, 1),
        ),
        (
            [None, None, None, Some(A)],
            found(1, 1),
            found(1, 1),
            ambiguous(1, 1),
        ),
        (
            [Some(A), Some(A), None, None],
            found(1, 1),
            found(2, 2),
            found(2, 2),
        ),
        ([Some(A); 4], found(1, 1), found(4, 4), found(4, 4)),
        (
            [Some(A), Some(B), None, None],
            found(1, 1),
            ambiguous(2, 1),
            ambiguous(2, 1),
        ),
        (
            [Some(B), Some(A), Some(A), None],
            found(1, 1),
            found(3, 2),
            ambiguous(3, 2),
        ),
        (
            [Some(A), Some(A), Some(B), Some(B)],
            found(1, 1),
            ambiguous(4, 2),
            ambiguous(4, 2),
        ),
        (
            [Some(B), Some(A), Some(A), Some(A)],
            found(1, 1),
            found(4, 3),
            ambiguous(4, 3),
        ),
    ];
    for (slots, first, majority, strict) in cases {
        let store = key_write(1 << 10, 20);
        // The other slots are another key's, not empty.
        for at in places(&store, &KEY) {
            store
                .region()
                .write(at, &hashes(another).checksum.to_le_bytes())
                .unwrap();
        }
        for (n, value) in slots.iter().enumerate() {
            value
                .iter()
                .for_each(|value| write_copies(&store, &KEY, *value, [n]));
        }
        let reader = store.key_write().unwrap();
        for (policy, expected) in Policy::ALL.into_iter().zip([first, majority, strict]) {
            let mut value = [0; 20];
            assert_eq!(
                reader.get(&KEY, policy, 4, &mut value),
                Ok(expected),
                "{slots:?} {policy:?}"
            );
            if let Answer::Found { .. } = expected {
                let first = slots.iter().flatten().next().copied();
                // Only in one case does it differ from the first.
                let by_most = if slots[1..3] == [Some(A), Some(A)] {
                    Some(A)
                } else {
                    first
                };
                let expected = if policy == Policy::First { first } else { by_most };
                assert_eq!(Some(&value), expected, "{slots:?} {policy:?}");
            }
        }
        for (n, value) in (0..).zip(slots) {
            let mut out = [0; 20];
            let expected = if value.is_some() { Copy::Value } else { Copy::Other };
            assert_eq!(reader.copy(&KEY, n, &mut out), Ok(expected));
            value.iter().for_each(|value| assert_eq!(&&out, value));
        }
    }
}

#[test]
fn fewer_copies_are_looked_at_when_fewer_are_asked_for() {
    let store = key_write(1 << 10, 20);
    write_copies(&store, &KEY, A, [2]);
    let reader = store.key_write().unwrap();
    let answers = [1, 2, 3, 4].map(|copies| reader.get(&KEY, Policy::First, copies, &mut [0; 20]));
    assert_eq!(
        answers,
        [
            Ok(Answer::Empty),
            Ok(Answer::Empty),
            Ok(found(1, 1)),
            Ok(found(1, 1))
        ]
    );
    // If the query is for one copy, one is enough for strict.
    write_copies(&store, &KEY, A, [0]);
    assert_eq!(reader.get(&KEY, Policy::Strict, 1, &mut [0; 20]), Ok(found(1, 1)));
}

#[test]
fn two_hashes_that_give_one_slot_are_one_copy() {
    let store = key_write(1, 20);
    write_copies(&store, &KEY, A, 0..4);
    let reader = store.key_write().unwrap();
    assert_eq!(
        reader.get(&KEY, Policy::Majority, 4, &mut [0; 20]),
        Ok(found(1, 1))
    );
    assert_eq!(
        reader.get(&KEY, Policy::Strict, 4, &mut [0; 20]),
        Ok(ambiguous(1, 1))
    );
}

#[test]
fn a_key_whose_checksum_is_zero_is_not_found_in_empty_slots() {
    // CRC-32 of these four bytes is 0: they cancel the initial value.
    let zero = [0x9d, 0x0a, 0xd9, 0x6d];
    assert_eq!(hashes(&zero).checksum, 0);
    for data_len in [1, 4, 5, 20] {
        let store = key_write(16, data_len);
        let reader = store.key_write().unwrap();
        let data = &A[..usize::from(data_len)];
        let mut out = vec![0; data.len()];
        assert_eq!(
            reader.get(&zero, Policy::Majority, 2, &mut out),
            Ok(Answer::Empty),
            "{data_len}"
        );
        write_copies(&store, &zero, data, 0..2);
        assert_eq!(
            reader.get(&zero, Policy::Majority, 2, &mut out),
            Ok(found(2, 2)),
            "{data_len}"
        );
        assert_eq!(out, data);
    }
}

/// Slots of one word have a code path of their own: its answers equal those of the other for wider slots with the same bytes.
#[test]
fn slots_of_one_word_answer_as_wider_ones() {
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut kinds = [0; 4];
    for round in 0..2000_u64 {
        let data_len = 1 + next(4) as usize;
        // Few slots: copies often share one.
        let (narrow, wide) = (key_write(4, data_len as u16), key_write(4, 20));
        let key = round.to_be_bytes();
        let checksum = hashes(&key).checksum;
        for index in 0..4 {
            let mut slot = [0; 8];
            match next(4) {
                0 => {}
                1 => slot = (next(1 << 30) << 32 | u64::from(!checksum)).to_le_bytes(),
                kind => {
                    slot[..4].copy_from_slice(&checksum.to_le_bytes());
                    slot[4] = kind as u8;
                    slot[4 + next(data_len as u64) as usize] |= 8;
                }
            }
            slot[4 + data_len..].fill(0);
            narrow.region().write(BODY + index * 8, &slot).unwrap();
            wide.region().write(BODY + index * 32, &slot).unwrap();
        }
        let (narrow, wide) = (narrow.key_write().unwrap(), wide.key_write().unwrap());
        for (policy, copies) in Policy::ALL
            .into_iter()
            .flat_map(|policy| (1..=4).map(move |n| (policy, n)))
        {
            let (mut short, mut long, mut batch) = ([0; 4], [0; 20], [0; 4]);
            let answer = wide.get(&key, policy, copies, &mut long).unwrap();
            assert_eq!(
                narrow.get(&key, policy, copies, &mut short),
                Ok(answer),
                "{policy:?} {copies}"
            );
            let mut answers = [Answer::Torn];
            assert_eq!(
                narrow.get_batch(&[key], policy, copies, &mut batch, &mut answers),
                Ok(())
            );
            assert_eq!(answers[0], answer);
            if matches!(answer, Answer::Found { .. }) {
                assert_eq!(
                    (&short[..data_len], &batch[..data_len]),
                    (&long[..data_len], &long[..data_len])
                );
            }
            let kind = match answer {
                Answer::Found { copies, agreeing } if copies == agreeing => 0,
                Answer::Found { .. } => 1,
                Answer::Ambiguous { .. } => 2,
                _ => 3,
            };
            kinds[kind] += 1;
        }
    }
    assert!(kinds.iter().all(|count| *count > 100), "{kinds:?}");
}

#[test]
fn every_data_length_comes_back_whole() {
    let long: Vec<u8> = (0..1024_u32).map(|i| (i * 7 + 1) as u8).collect();
    for data_len in (1..=40).chain([60, 61, 124, 1023, 1024]) {
        let store = key_write(8, data_len);
        let data = &long[..usize::from(data_len)];
        write_copies(&store, &KEY, data, 0..2);
        let reader = store.key_write().unwrap();
        let mut out = vec![0; data.len() + 1];
        for policy in Policy::ALL {
            let answer = reader.get(&KEY, policy, 4, &mut out).unwrap();
            assert!(matches!(answer, Answer::Found { .. }), "{data_len} {policy:?}");
            assert_eq!((&out[..data.len()], out[data.len()]), (data, 0), "{data_len}");
        }
        // One byte differs in one copy: no longer equal.
        let mut other = data.to_vec();
        other[data.len() - 1] ^= 1;
        write_copies(&store, &KEY, &other, [1]);
        let expected = ambiguous(2, 1);
        assert_eq!(
            reader.get(&KEY, Policy::Majority, 2, &mut out),
            Ok(expected),
            "{data_len}"
        );
    }
}

#[test]
fn batches_answer_as_single_questions_do() {
    let store = key_write(1 << 10, 20);
    let keys: Vec<[u8; 13]> = (0..777).map(key).collect();
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % 3 != 0) {
        write_copies(&store, key, &number.to_le_bytes(), 0..number % 4 + 1);
    }
    let reader = store.key_write().unwrap();
    for (policy, copies) in [
        (Policy::First, 1),
        (Policy::First, 4),
        (Policy::Majority, 2),
        (Policy::Strict, 3),
    ] {
        let (mut out, mut answers) = (vec![0; 777 * 20], vec![Answer::Empty; 777]);
        reader
            .get_batch(&keys, policy, copies, &mut out, &mut answers)
            .unwrap();
        let mut found = 0;
        for ((key, answer), out) in keys.iter().zip(&answers).zip(out.chunks(20)) {
            let mut value = [0; 20];
            assert_eq!(reader.get(key, policy, copies, &mut value).as_ref(), Ok(answer));
            if matches!(answer, Answer::Found { .. }) {
                assert_eq!(value, out);
                found += 1;
            }
        }
        assert!(found > 100, "{policy:?} {copies}: {found}");
    }
}

#[test]
fn questions_that_cannot_be_asked() {
    let store = key_write(16, 20);
    let reader = store.key_write().unwrap();
    let ask = |key: &[u8], copies, len| reader.get(key, Policy::First, copies, &mut vec![0; len]);
    assert_eq!(ask(&[], 2, 20), Err(QueryError::KeyLength));
    assert_eq!(ask(&[1; 65], 2, 20), Err(QueryError::KeyLength));
    assert_eq!(ask(&[1; 64], 2, 20), Ok(Answer::Empty));
    assert_eq!(ask(&KEY, 0, 20), Err(QueryError::Copies));
    assert_eq!(ask(&KEY, 5, 20), Err(QueryError::Copies));
    assert_eq!(ask(&KEY, 2, 19), Err(QueryError::OutLength));
    let answers = &mut [Answer::Empty; 1];
    assert_eq!(
        reader.get_batch(&[KEY, KEY], Policy::First, 2, &mut [0; 40], answers),
        Err(QueryError::OutLength)
    );
    assert_eq!(reader.copy(&KEY, 4, &mut [0; 20]), Err(QueryError::Copies));
    assert_eq!(reader.copy(&KEY, 0, &mut [0; 19]), Err(QueryError::OutLength));
    assert_eq!(reader.copy(&[], 0, &mut [0; 20]), Err(QueryError::KeyLength));
}

/// A write stopped at every byte: by a NIC, which writes in ascending order, and by this software.
#[test]
fn a_half_written_slot_is_torn_or_another_key_and_never_a_mixture() {
    let store = key_write(1, 60);
    let reader = store.key_write().unwrap();
    let (old, new) = ([1; 60], [2; 60]);
    write_copies(&store, &KEY, &old, [0]);
    let mut before = [0; 64];
    store.region().read(BODY, &mut before).unwrap();
    write_copies(&store, b"another", &new, [0]);
    let mut after = [0; 64];
    store.region().read(BODY, &mut after).unwrap();
    // In software, the first word is zero while the rest is written.
    for cut in 0..=56 {
        let mut slot = before;
        slot[..8].fill(0);
        slot[8..8 + cut].copy_from_slice(&after[8..8 + cut]);
        store.region().write(BODY, &slot).unwrap();
        for key in [&KEY[..], b"another"] {
            assert_eq!(
                reader.get(key, Policy::First, 1, &mut [0; 60]),
                Ok(Answer::Torn),
                "{cut}"
            );
            assert_eq!(
                reader.get(key, Policy::Majority, 1, &mut [0; 60]),
                Ok(Answer::Torn),
                "{cut}"
            );
        }
    }
}

/// Two keys are written to one slot alternately, each value a repeated byte: a reader that finds a key must find a value of it.
#[test]
fn readers_beside_a_writer_never_mix_two_values() {
    let store = key_write(1, 252);
    let keys = [b"key number 0", b"key number 1"];
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        move || {
            for round in 0..150_000_usize {
                let (which, byte) = (round % 2, (round % 2 * 128 + round % 128) as u8);
                write_copies(&store, keys[which], &[byte; 252], [0]);
            }
            done.store(true, Ordering::Release);
        }
    });
    let reader = store.key_write().unwrap();
    let (mut found, mut out) = (0, [0; 252]);
    while !done.load(Ordering::Acquire) || found == 0 {
        for (which, key) in keys.iter().enumerate() {
            for policy in [Policy::First, Policy::Majority] {
                if let Answer::Found { .. } = reader.get(*key, policy, 1, &mut out).unwrap() {
                    found += 1;
                    assert!(out.iter().all(|byte| *byte == out[0]), "{out:?}");
                    assert_eq!(usize::from(out[0] / 128), which, "the other key's value");
                }
            }
        }
    }
    writer.join().unwrap();
}

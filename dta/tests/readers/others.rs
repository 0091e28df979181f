//! Counters, sketches and paths.

use dta::{BODY, Path, QueryError, SketchCopy, SketchError};
use wire::dta::hash::{Family, hashes, slot};
use wire::dta::layout::{Columns, Geometry, NO_HOP, SketchKind};
use wire::dta::sketch::{cell, column, is_negative, rank, row_hash, sampled};

use crate::support::{KEY, Merged, key, sketch, store, write_path};

#[test]
fn a_count_is_the_least_of_its_counters() {
    let store = store(Geometry::KeyIncrement {
        slots: 1 << 10,
        family: Family::V1,
    });
    let places = hashes(&KEY).slots.map(|hash| BODY + slot(hash, 1 << 10) * 8);
    for (at, value) in places.iter().zip([9, 7, 5, 3]) {
        store.region().fetch_add(*at, value).unwrap();
    }
    let reader = store.counters().unwrap();
    assert_eq!(
        [1, 2, 3, 4].map(|n| reader.estimate(&KEY, n)),
        [Ok(9), Ok(7), Ok(5), Ok(3)]
    );
    assert_eq!((reader.total(), reader.slots()), (24, 1 << 10));
    assert_eq!(reader.estimate(&KEY, 5), Err(QueryError::Copies));
    assert_eq!(reader.estimate(&KEY, 0), Err(QueryError::Copies));
    assert_eq!(reader.estimate(&[], 1), Err(QueryError::KeyLength));
    assert_eq!(
        reader.estimate_batch(&[KEY, KEY], 1, &mut [0]),
        Err(QueryError::OutLength)
    );
}

#[test]
fn the_artifacts_counter_of_section_6_5_is_read() {
    // Key 10.0.0.1 with n = 0 and v1 hashing: slot 34979 of 65536.
    let store = store(Geometry::KeyIncrement {
        slots: 65536,
        family: Family::V1,
    });
    store.region().fetch_add(BODY + 8 * 34979, 5).unwrap();
    assert_eq!(store.counters().unwrap().estimate(&[10, 0, 0, 1], 1), Ok(5));
}

#[test]
fn counts_keep_to_their_bound() {
    let store = store(Geometry::KeyIncrement {
        slots: 1 << 12,
        family: Family::V1,
    });
    let reader = store.counters().unwrap();
    let keys: Vec<[u8; 13]> = (0..4096).map(key).collect();
    for (number, key) in keys.iter().enumerate() {
        for hash in &hashes(key).slots[..3] {
            store
                .region()
                .fetch_add(BODY + slot(*hash, 1 << 12) * 8, number as u64 % 50 + 1)
                .unwrap();
        }
    }
    let mut out = vec![0; keys.len()];
    reader.estimate_batch(&keys, 3, &mut out).unwrap();
    let bound = reader.bound(3, reader.total());
    assert!((bound.confidence - 0.9502).abs() < 1e-4);
    let errors = out
        .iter()
        .enumerate()
        .map(|(number, seen)| seen - (number as u64 % 50 + 1));
    let beyond = errors.filter(|error| *error as f64 > bound.error).count() as f64;
    assert!(
        beyond / 4096.0 <= 1.0 - bound.confidence,
        "{beyond} beyond {bound:?}"
    );
    assert_eq!(out[17], reader.estimate(&keys[17], 3).unwrap());
}

#[test]
fn the_postcard_slot_of_section_5_9_is_read() {
    let store = store(Geometry::Postcarding {
        slots: 1 << 20,
        hops: 5,
        family: Family::V1,
    });
    let bytes = [
        0xbc, 0x4f, 0x0a, 0x28, 0, 0, 0, 0x0b, 0, 0, 0, 0x0c, 0, 0, 0, 0x0d, 255, 255, 255, 255, 255, 255,
        255, 255, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    store.region().write(BODY + 0x13f_3bc0, &bytes).unwrap();
    let reader = store.paths().unwrap();
    let mut hops = [Some(9); 6];
    assert_eq!(
        reader.get(&KEY, &mut hops),
        Ok(Path::Found { seen: 3, missing: 0 })
    );
    assert_eq!(hops, [Some(11), Some(12), Some(13), None, None, Some(9)]);
    assert_eq!(reader.get(b"another", &mut hops), Ok(Path::Empty));
    assert_eq!(hops[..5], [None; 5]);
    assert_eq!(reader.get(&KEY, &mut hops[..4]), Err(QueryError::OutLength));
    assert_eq!(reader.get(&[], &mut hops), Err(QueryError::KeyLength));
    assert_eq!((reader.hops(), reader.slots()), (5, 1 << 20));
}

#[test]
fn missing_hops_are_distinguished_from_the_end_of_a_path() {
    let store = store(Geometry::Postcarding {
        slots: 16,
        hops: 5,
        family: Family::V1,
    });
    let reader = store.paths().unwrap();
    let cases = [
        ([1, NO_HOP, 3, NO_HOP, NO_HOP], 2, 1),
        ([NO_HOP, NO_HOP, NO_HOP, NO_HOP, 5], 1, 4),
        ([1, 2, 3, 4, 5], 5, 0),
        ([NO_HOP; 5], 0, 0),
    ];
    for (values, seen, missing) in cases {
        let at = write_path(&store, &KEY, &values);
        let mut hops = [None; 5];
        assert_eq!(
            reader.get(&KEY, &mut hops),
            Ok(Path::Found { seen, missing }),
            "{values:?}"
        );
        assert_eq!(
            hops,
            values.map(|value| Some(value).filter(|value| *value != NO_HOP))
        );
        // During a rewrite:
        store.region().store_u64(at, 0).unwrap();
        assert_eq!(reader.get(&KEY, &mut hops), Ok(Path::Torn), "{values:?}");
    }
}

#[test]
fn the_artifacts_masked_postcards_of_section_5_2_are_read() {
    let store = store(Geometry::Postcarding {
        slots: 1 << 16,
        hops: 5,
        family: Family::Artifact,
    });
    let reader = store.paths().unwrap();
    // Key 10.0.0.1, whose CRC-32 is 39fe0fee: hop 2 reported 200, as in 5.2; then all five reported. The masks use a bitwise CRC.
    let key = [10, 0, 0, 1];
    let mut hops = [Some(9); 6];
    assert_eq!(reader.get(&key, &mut hops), Ok(Path::Empty));
    let at = BODY + 0x0fee * 32;
    store.region().write(at + 4, &[0xed, 0x1f, 0xb6, 0x5a]).unwrap();
    assert_eq!(
        reader.get(&key, &mut hops),
        Ok(Path::Unproven { seen: 1, missing: 1 })
    );
    assert_eq!(hops, [None, Some(200), None, None, None, Some(9)]);
    let whole = [
        0xff, 0x08, 0xa5, 0x07, 0xed, 0x1f, 0xb6, 0x5a, 0x58, 0xb4, 0x58, 0x78, 0x2d, 0x2a, 0x23, 0xd4, 0xe0,
        0xd4, 0xb8, 0xd4,
    ];
    store.region().write(at, &whole).unwrap();
    assert_eq!(
        reader.get(&key, &mut hops),
        Ok(Path::Unproven { seen: 5, missing: 0 })
    );
    let path = [11, 200, 13, 14, 15].map(Some);
    assert_eq!(hops[..5], path);
    // With the known values, the reader decides which of two keys that share the slot owns it.
    let below = |most: u32| move |value: u32| value <= most;
    assert_eq!(
        reader.get_known(&key, &mut hops, below(200)),
        Ok(Path::Found { seen: 5, missing: 0 })
    );
    assert_eq!(hops[..5], path);
    assert_eq!(reader.get_known(&key, &mut hops, below(199)), Ok(Path::Empty));
    assert_eq!(hops[..5], [None; 5]);
    let shares = |other: &u32| wire::dta::artifact::path_slot(&other.to_be_bytes(), 1 << 16) == 0x0fee;
    let other = (0..)
        .filter(|other| *other != 0x0a00_0001)
        .find(shares)
        .unwrap()
        .to_be_bytes();
    assert!(matches!(
        reader.get(&other, &mut hops),
        Ok(Path::Unproven { seen: 5, missing: 0 })
    ));
    assert_eq!(
        reader.get_known(&other, &mut hops, below(1 << 20)),
        Ok(Path::Empty)
    );
    // The same errors as above.
    assert_eq!(reader.get(&key, &mut hops[..4]), Err(QueryError::OutLength));
    assert_eq!(reader.get(&[0; 65], &mut hops), Err(QueryError::KeyLength));
}

#[test]
fn a_list_of_values_changes_nothing_for_slots_with_a_checksum() {
    let store = store(Geometry::Postcarding {
        slots: 16,
        hops: 5,
        family: Family::V1,
    });
    write_path(&store, &KEY, &[1, 2, 3, NO_HOP, NO_HOP]);
    let found = Ok(Path::Found { seen: 3, missing: 0 });
    assert_eq!(
        store.paths().unwrap().get_known(&KEY, &mut [None; 5], |_| false),
        found
    );
}

const SHAPE: Columns = Columns {
    depth: 4,
    columns: 512,
    width: 4,
};

#[test]
fn the_newest_epoch_is_read_and_an_older_one_on_request() {
    let store = sketch(SketchKind::CountMin, SHAPE);
    let reader = store.sketch().unwrap();
    let mut copy = SketchCopy::new();
    assert_eq!(reader.copy_newest(&mut copy), Err(SketchError::NoEpoch));
    let mut merged = Merged::new(SHAPE);
    for epoch in [65534, 65535, 0, 1] {
        *merged.at(2, 17) = u64::from(epoch) + 1000;
        merged.write_columns(&store, epoch, 512);
        assert!(
            reader.epochs().iter().flatten().all(|there| there.epoch != epoch),
            "no trailer yet"
        );
        merged.write(&store, epoch, 512);
        assert_eq!(reader.copy_newest(&mut copy), Ok(()));
        assert_eq!(
            (copy.trailer().epoch, copy.trailer().reporters, copy.certain()),
            (epoch, 2, true)
        );
        assert_eq!(
            (copy.counter(2, 17), copy.counter(1, 17)),
            (Some(u64::from(epoch) + 1000), Some(0))
        );
        assert_eq!((copy.counter(4, 17), copy.counter(0, 512)), (None, None));
    }
    assert_eq!(reader.copy_epoch(0, &mut copy), Ok(()));
    assert_eq!(
        (copy.trailer().epoch, copy.certain(), copy.counter(2, 17)),
        (0, false, Some(1000))
    );
    assert_eq!(reader.copy_epoch(65535, &mut copy), Err(SketchError::NoEpoch));
    assert_eq!(
        reader.epochs().map(|there| there.map(|there| there.epoch)),
        [Some(1), Some(0)]
    );
    let mut out = [0; 4];
    assert_eq!((reader.column(1, 17, &mut out), out), (Ok(()), [0, 0, 1001, 0]));
    assert_eq!(reader.column(1, 512, &mut out), Err(SketchError::NoColumn));
    assert_eq!(reader.column(2, 17, &mut out), Err(SketchError::NoEpoch));
    assert_eq!(reader.column(1, 17, &mut out[..3]), Err(SketchError::OutLength));
}

#[test]
fn trailers_of_other_sketches_are_ignored() {
    let store = sketch(SketchKind::CountMin, SHAPE);
    let reader = store.sketch().unwrap();
    let good = wire::dta::layout::SketchTrailer {
        epoch: 2,
        sketch: 4,
        columns: 512,
        reporters: 1,
    };
    let put = |trailer: wire::dta::layout::SketchTrailer| {
        store
            .region()
            .write(BODY + SHAPE.trailer(2), &trailer.emit())
            .unwrap();
        reader.epochs()[0]
    };
    assert_eq!(put(good), Some(good));
    assert_eq!(
        put(wire::dta::layout::SketchTrailer { sketch: 5, ..good }),
        None,
        "another sketch"
    );
    assert_eq!(
        put(wire::dta::layout::SketchTrailer { epoch: 3, ..good }),
        None,
        "the other buffer's"
    );
    assert_eq!(
        put(wire::dta::layout::SketchTrailer { columns: 513, ..good }),
        None,
        "more than there are"
    );
    assert_eq!(
        put(wire::dta::layout::SketchTrailer { columns: 0, ..good }),
        None,
        "none"
    );
}

#[test]
fn count_min_keeps_to_its_bound() {
    for width in [4, 8] {
        let shape = Columns { width, ..SHAPE };
        let store = sketch(SketchKind::CountMin, shape);
        let mut merged = Merged::new(shape);
        for number in 0..2000 {
            for row in 0..4 {
                let hash = row_hash(&hashes(&key(number)), row);
                *merged.at(row, column(hash, 512)) += number % 10 + 1;
            }
        }
        merged.write(&store, 6, 512);
        let mut copy = SketchCopy::new();
        store.sketch().unwrap().copy_newest(&mut copy).unwrap();
        let estimates = (0..2000).map(|number| (number % 10 + 1, copy.count_min(&key(number)).unwrap()));
        let mut beyond = 0;
        for (truth, estimate) in estimates {
            assert!(estimate.value >= truth as f64);
            beyond += usize::from(estimate.value - truth as f64 > estimate.bound.error);
        }
        assert!(beyond as f64 / 2000.0 <= (-4.0_f64).exp(), "{beyond}");
        assert_eq!(copy.count(&KEY), Err(SketchError::Kind));
        assert_eq!(copy.cardinality(), Err(SketchError::Kind));
    }
}

#[test]
fn rows_without_their_column_are_left_out() {
    let store = sketch(SketchKind::CountMin, SHAPE);
    let mut merged = Merged::new(SHAPE);
    let columns: Vec<u32> = (0..4)
        .map(|row| column(row_hash(&hashes(&KEY), row), 512))
        .collect();
    for (row, column) in (0..).zip(&columns) {
        *merged.at(row, *column) = 3;
    }
    let least = *columns.iter().min().unwrap();
    let mut copy = SketchCopy::new();
    for (written, rows) in [(least, 0), (least + 1, 1), (512, 4)] {
        merged.write(&store, 0, written.max(1));
        store.sketch().unwrap().copy_newest(&mut copy).unwrap();
        let estimate = copy.count_min(&KEY);
        if rows == 0 {
            assert_eq!(estimate, Err(SketchError::NoColumn));
        } else {
            let estimate = estimate.unwrap();
            assert_eq!(estimate.value, 3.0);
            assert!((estimate.bound.confidence - (1.0 - (-f64::from(rows)).exp())).abs() < 1e-9);
        }
    }
}

#[test]
fn a_count_sketch_keeps_to_its_bound() {
    let shape = Columns {
        depth: 5,
        columns: 256,
        width: 4,
    };
    let store = sketch(SketchKind::Count, shape);
    let mut merged = Merged::new(shape);
    for number in 0..1000 {
        let count: i64 = if number < 10 { 5000 } else { 10 };
        for row in 0..5 {
            let hash = row_hash(&hashes(&key(number)), row);
            let cell = merged.at(row, column(hash, 256));
            let change = if is_negative(hash) { -count } else { count };
            *cell = u64::from((*cell as u32).wrapping_add(change as u32));
        }
    }
    merged.write(&store, 1, 256);
    let mut copy = SketchCopy::new();
    store.sketch().unwrap().copy_newest(&mut copy).unwrap();
    let off = |number: u64| {
        let estimate = copy.count(&key(number)).unwrap();
        let truth = if number < 10 { 5000.0 } else { 10.0 };
        (estimate.value - truth).abs() > estimate.bound.error
    };
    let confidence = copy.count(&KEY).unwrap().bound.confidence;
    // Of five rows three fail with at most 10·(1/4)^3·(3/4)^2 + 5·(1/4)^4·(3/4) + (1/4)^5.
    assert!((confidence - 0.896_484_375).abs() < 1e-9, "{confidence}");
    let beyond = (0..1000).filter(|number| off(*number)).count() as f64;
    assert!(beyond / 1000.0 <= 1.0 - confidence, "{beyond}");
    assert!(
        (0..10).filter(|number| off(*number)).count() < 4,
        "heavy hitters are exact"
    );
}

#[test]
fn hyperloglog_counts_different_keys() {
    let shape = Columns {
        depth: 1,
        columns: 1024,
        width: 4,
    };
    for keys in [0_u64, 10, 1000, 5000, 200_000] {
        let store = sketch(SketchKind::HyperLogLog, shape);
        let mut merged = Merged::new(shape);
        // Every key twice, as if from two reporters.
        for number in (0..keys).chain(0..keys) {
            let hash = row_hash(&hashes(&key(number)), 0);
            let place = cell(hash, 1, 1024);
            let register = merged.at(place.row, place.column);
            *register = (*register).max(u64::from(rank(hash)));
        }
        merged.write(&store, 0, 1024);
        let mut copy = SketchCopy::new();
        store.sketch().unwrap().copy_newest(&mut copy).unwrap();
        let estimate = copy.cardinality().unwrap();
        let error = (estimate.value - keys as f64).abs();
        // Three standard errors, of 3.25 % each.
        assert!(error <= 3.0 * 0.0325 * keys as f64, "{keys}: {estimate:?}");
    }
}

#[test]
fn aroma_samples_evenly_and_counts() {
    let shape = Columns {
        depth: 2,
        columns: 512,
        width: 8,
    };
    let store = sketch(SketchKind::Aroma, shape);
    let mut merged = Merged::new(shape);
    let packets = 100_000_u64;
    for number in 0..packets {
        let hash = row_hash(&hashes(&key(number)), 0);
        let place = cell(hash, 2, 512);
        // One packet in four is of flow 1.
        let bucket = merged.at(place.row, place.column);
        *bucket = (*bucket).max(sampled(hash, u32::from(number % 4 == 0)));
    }
    merged.write(&store, 0, 512);
    let mut copy = SketchCopy::new();
    store.sketch().unwrap().copy_newest(&mut copy).unwrap();
    assert_eq!(copy.samples().unwrap().count(), 1024);
    let all = copy.sampled_from().unwrap();
    assert!(
        (all.value - 1e5).abs() < 4.0 * all.bound.error && all.bound.error < 4000.0,
        "{all:?}"
    );
    let share = copy.share(|item| item == 1).unwrap();
    assert!(
        (share.value - 0.25).abs() < 4.0 * share.bound.error && share.bound.error < 0.02,
        "{share:?}"
    );
    assert_eq!(copy.count_min(&KEY), Err(SketchError::Kind));
}

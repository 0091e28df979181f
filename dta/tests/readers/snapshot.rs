//! Snapshots: mapped and queried like the live store, and nothing half-written in them looks complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dta::{Answer, BODY, DtaStore, Next, Path, Policy, SketchCopy, Snapshot};
use memory::Region;
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, Ring, SketchKind};

use crate::support::{KEY, Merged, Writer, key, key_write, lists, sketch, store, write_copies, write_path};

/// Takes a snapshot and opens it like a file; returns also the number of torn slots.
fn taken(store: &DtaStore) -> (DtaStore, u64) {
    let mut snapshot = Snapshot::new(store, 99).unwrap();
    let region = Region::anonymous(snapshot.len(), false).unwrap();
    let mut at = 0;
    while let Some(bytes) = snapshot.next() {
        region.write(at, bytes).unwrap();
        at += bytes.len() as u64;
    }
    assert_eq!(at, snapshot.len());
    assert!(snapshot.next().is_none());
    (DtaStore::open(Arc::new(region)).unwrap(), snapshot.torn())
}

#[test]
fn a_snapshot_of_every_kind_is_the_store_at_that_time() {
    let family = Family::V1;
    // More than one chunk.
    let values = key_write(1 << 15, 20);
    (0..5000).for_each(|number| write_copies(&values, &key(number), &number.to_le_bytes(), 0..2));
    let append = lists(
        2,
        Ring {
            entry_len: 4,
            entries: 32,
            batch: 4,
            tagged: true,
        },
    );
    Writer::new(&append, 101).append_numbers(11);
    let counters = store(Geometry::KeyIncrement {
        slots: 1 << 16,
        family,
    });
    for slot in 0..1 << 16 {
        counters.region().store_u64(BODY + slot * 8, slot).unwrap();
    }
    let paths = store(Geometry::Postcarding {
        slots: 1 << 10,
        hops: 5,
        family,
    });
    write_path(&paths, &KEY, &[1, 2, 3, 4, 5]);
    let shape = Columns {
        depth: 3,
        columns: 30_001,
        width: 4,
    };
    let columns = sketch(SketchKind::CountMin, shape);
    let mut merged = Merged::new(shape);
    *merged.at(2, 30_000) = 77;
    merged.write(&columns, 8, 30_001);
    merged.write(&columns, 9, 30_001);
    for live in [&values, &append, &counters, &paths, &columns] {
        let (copy, torn) = taken(live);
        assert_eq!(
            (copy.header().snapshot, live.header().snapshot, torn),
            (Some(99), None, 0)
        );
        assert_eq!(copy.geometry(), live.geometry());
        let body = |store: &DtaStore| {
            let mut bytes = vec![0; store.body_len() as usize];
            store.region().read(BODY, &mut bytes).unwrap();
            bytes
        };
        assert!(body(&copy) == body(live), "{:?}", live.geometry());
    }
    let (copy, _) = taken(&values);
    write_copies(&values, &key(4999), b"later", 0..2);
    let mut value = [0; 20];
    let answer = copy
        .key_write()
        .unwrap()
        .get(&key(4999), Policy::Majority, 2, &mut value);
    assert_eq!(
        (answer, value[..2].to_vec()),
        (
            Ok(Answer::Found {
                copies: 2,
                agreeing: 2
            }),
            vec![0x87, 0x13]
        )
    );
    let mut follower = taken(&append).0.lists().unwrap().from_oldest(101).unwrap();
    assert!(matches!(follower.next(), Next::Batch { sequence: 4, .. }));
    let mut hops = [None; 5];
    let path = taken(&paths).0.paths().unwrap().get(&KEY, &mut hops);
    assert_eq!(path, Ok(Path::Found { seen: 5, missing: 0 }));
    let mut sketch = SketchCopy::new();
    taken(&columns)
        .0
        .sketch()
        .unwrap()
        .copy_newest(&mut sketch)
        .unwrap();
    assert_eq!((sketch.trailer().epoch, sketch.counter(2, 30_000)), (9, Some(77)));
}

#[test]
fn a_slot_that_is_being_written_is_left_out_and_counted() {
    let store = key_write(1 << 10, 20);
    write_copies(&store, &KEY, &[7; 20], 0..4);
    for at in &crate::support::places(&store, &KEY)[1..3] {
        // A write that was begun and not completed.
        store.region().store_u64(*at, 0).unwrap();
    }
    let (copy, torn) = taken(&store);
    assert_eq!(torn, 2);
    let answer = copy
        .key_write()
        .unwrap()
        .get(&KEY, Policy::Strict, 4, &mut [0; 20]);
    assert_eq!(
        answer,
        Ok(Answer::Found {
            copies: 2,
            agreeing: 2
        })
    );
}

#[test]
fn an_epoch_that_ends_meanwhile_is_left_out() {
    let shape = Columns {
        depth: 4,
        columns: 1 << 16,
        width: 8,
    };
    let store = sketch(SketchKind::CountMin, shape);
    let merged = Merged::new(shape);
    merged.write(&store, 2, 1 << 16);
    merged.write(&store, 3, 1 << 16);
    let mut snapshot = Snapshot::new(&store, 1).unwrap();
    let region = Region::anonymous(snapshot.len(), false).unwrap();
    let mut at = 0;
    while let Some(bytes) = snapshot.next() {
        region.write(at, bytes).unwrap();
        at += bytes.len() as u64;
        if at > 1 << 20 {
            merged.write(&store, 4, 1 << 16);
        }
    }
    assert_eq!(snapshot.torn(), 1);
    let copy = DtaStore::open(Arc::new(region)).unwrap();
    let epochs = copy
        .sketch()
        .unwrap()
        .epochs()
        .map(|there| there.map(|there| there.epoch));
    assert_eq!(epochs, [Some(3), None]);
}

#[test]
fn snapshots_beside_a_writer_mix_nothing() {
    let store = key_write(64, 252);
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        move || {
            let mut round = 0_u64;
            while !done.load(Ordering::Acquire) {
                round += 1;
                write_copies(&store, &key(round % 50), &[(round % 255) as u8; 252], 0..2);
            }
        }
    });
    let mut seen = 0;
    for _ in 0..200 {
        let (copy, _) = taken(&store);
        for slot in 0..64 {
            let mut bytes = [0; 256];
            copy.region().read(BODY + slot * 256, &mut bytes).unwrap();
            assert!(
                bytes[4..].iter().all(|byte| *byte == bytes[4]),
                "slot {slot}: {bytes:?}"
            );
            seen += usize::from(bytes[4] != 0);
        }
    }
    done.store(true, Ordering::Release);
    writer.join().unwrap();
    assert!(seen > 100);
}

#[test]
fn counters_begin_again_at_0_and_no_addition_is_lost_or_counted_twice() {
    let (slots, family) = (1 << 10, Family::V1);
    let live = store(Geometry::KeyIncrement { slots, family });
    let total = |store: &DtaStore| store.counters().unwrap().total();
    let running = AtomicBool::new(true);
    let (mut periods, added) = (0, std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (live, running, added) = (&live, &running, &added);
            scope.spawn(move || {
                let mut sum = 0;
                for slot in (0..slots).cycle() {
                    live.region().fetch_add(BODY + slot * 8, 1 + thread).unwrap();
                    sum += 1 + thread;
                    if slot + 1 == slots && !running.load(Ordering::Relaxed) {
                        break;
                    }
                }
                added.fetch_add(sum, Ordering::Relaxed);
            });
        }
        for _ in 0..200 {
            let (copy, _) = taken(&live);
            assert_eq!(live.subtract(&copy), Ok(Some(total(&copy))));
            periods += total(&copy);
        }
        running.store(false, Ordering::Relaxed);
    });
    assert_eq!(periods + total(&live), added.into_inner());
    // Only the last period is left.
    let (copy, _) = taken(&live);
    live.subtract(&copy).unwrap();
    assert!(live.region().is(BODY, &vec![0; slots as usize * 8]));
    // Only counters, and only of the same geometry.
    let other = store(Geometry::KeyIncrement {
        slots: 2 * slots,
        family,
    });
    assert_eq!(
        (live.subtract(&other), other.subtract(&live)),
        (Ok(None), Ok(None))
    );
    let values = key_write(1 << 10, 20);
    assert_eq!(values.subtract(&taken(&values).0), Ok(None));
}

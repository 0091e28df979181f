//! Queries of stores allocate nothing: a counting allocator checks it, with one test in one thread.
#![allow(clippy::unwrap_used, reason = "a test ends when something is not there")]

use testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

use std::sync::Arc;

use dta::{Answer, BODY, DtaStore, Header, Next, Policy, SketchCopy, Snapshot, region_len};
use memory::Region;
use wire::dta::hash::Family;
use wire::dta::layout::{BlockTrailer, Columns, Geometry, MergeOp, Ring, SketchKind, SketchTrailer};

fn store(geometry: Geometry) -> DtaStore {
    let region = Arc::new(Region::anonymous(region_len(&geometry), false).unwrap());
    let header = Header {
        name: "n".into(),
        id: 0,
        geometry,
        fields: String::new(),
        created: 0,
        snapshot: None,
    };
    DtaStore::create(region, &header).unwrap()
}

#[test]
fn questions_allocate_nothing() {
    let family = Family::V1;
    let values = store(Geometry::KeyWrite {
        slots: 1 << 12,
        data_len: 20,
        family,
    });
    let counts = store(Geometry::KeyIncrement {
        slots: 1 << 12,
        family,
    });
    let postcards = store(Geometry::Postcarding {
        slots: 1 << 12,
        hops: 5,
        family,
    });
    let ring = Ring {
        entry_len: 4,
        entries: 32,
        batch: 4,
        tagged: true,
    };
    let append = store(Geometry::Append {
        lists: 1,
        first_list: 0,
        ring,
    });
    let shape = Columns {
        depth: 4,
        columns: 64,
        width: 8,
    };
    let sketches = store(Geometry::Sketch {
        kind: SketchKind::CountMin,
        op: MergeOp::Sum,
        shape,
    });
    let trailer = SketchTrailer {
        epoch: 0,
        sketch: 0,
        columns: 64,
        reporters: 1,
    };
    sketches
        .region()
        .write(BODY + shape.trailer(0), &trailer.emit())
        .unwrap();

    let (reader, counters, paths) = (
        values.key_write().unwrap(),
        counts.counters().unwrap(),
        postcards.paths().unwrap(),
    );
    let sketch = sketches.sketch().unwrap();
    let mut follower = append.lists().unwrap().from_oldest(0).unwrap();
    let mut snapshot = Snapshot::new(&values, 1).unwrap();
    let mut copy = SketchCopy::new();
    sketch.copy_newest(&mut copy).unwrap();
    let (mut out, mut answers, mut sums) = ([0; 20 * 64], [Answer::Empty; 64], [0; 64]);
    let keys: [[u8; 13]; 64] = std::array::from_fn(|i| [i as u8; 13]);
    let mut hops = [None; 5];
    let mut block = [7; 32];

    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations() - before, 1, "what is allocated here is counted");
    let before = allocations();
    for sequence in 1..1000_u32 {
        for policy in Policy::ALL {
            reader
                .get_batch(&keys, policy, 4, &mut out, &mut answers)
                .unwrap();
            reader.get(&keys[0], policy, 2, &mut out).unwrap();
        }
        counters.estimate_batch(&keys, 2, &mut sums).unwrap();
        paths.get(&keys[0], &mut hops).unwrap();
        // Some batches arrive, some are lost, some are overwritten.
        if sequence % 7 < 5 {
            assert!(
                BlockTrailer {
                    sequence,
                    count: 4,
                    entry_len: 4
                }
                .seal(&mut block)
            );
            append
                .region()
                .write(BODY + u64::from((sequence - 1) % 8) * 32, &block)
                .unwrap();
        }
        for _ in 0..sequence % 3 {
            assert!(!matches!(follower.next(), Next::Batch { count: 0, .. }));
        }
        sketch.copy_newest(&mut copy).unwrap();
        copy.count_min(&keys[0]).unwrap();
    }
    while let Some(chunk) = snapshot.next() {
        assert!(!chunk.is_empty());
    }
    assert_eq!(allocations() - before, 0);
    let seen = follower.stats();
    assert!(seen.batches > 0 && seen.overwritten > 0, "{seen:?}");
}

//! Benchmark of the readers of DTA stores on one core: queries, followers and snapshots of regions of 4 GiB.
//!
//! Usage: `cargo bench -p hopwise-dta --bench readers -- [get] [cold] [cached] [follow] [other]`. Uses pages of 2 MiB where
//! available: run `sysctl vm.nr_hugepages=2100` first. Prints the minimum and median of many short runs, those of a plain
//! loop over the same memory in the same run, and the ratio of the medians.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dta::{Answer, BODY, DtaStore, Header, KeyWriteReader, Next, Policy, SketchCopy, Snapshot, region_len};
use memory::{Pages, Region};
use wire::dta::hash::{Family, hashes, slot, slots_n};
use wire::dta::layout::{
    BlockTrailer, Columns, Geometry, MergeOp, Ring, SketchKind, SketchTrailer, put_slot, slot_stride,
};

const FULL: Size = Size {
    body: 4 << 30,
    keys: 16 << 20,
    runs: 401,
    ring: 1 << 30,
};
const SMALL: Size = Size {
    body: 1 << 20,
    keys: 1 << 10,
    runs: 1,
    ring: 1 << 20,
};

type Key = [u8; 13];

/// Amount of work: full, or one small pass when `cargo test` runs the benchmark.
#[derive(Clone, Copy)]
struct Size {
    body: u64,
    keys: u64,
    runs: usize,
    ring: u64,
}

fn main() {
    let size = if std::env::args().any(|word| word == "--bench") {
        FULL
    } else {
        SMALL
    };
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>8}",
        "case", "min", "median", "plain", "ratio"
    );
    if is_wanted("get") || is_wanted("cold") {
        for data_len in [4, 20] {
            key_write(size, data_len, is_wanted("get"), is_wanted("cold"));
        }
    }
    if is_wanted("cached") {
        // A store that fits in the cache: the cost of hashing, comparing and copying alone.
        key_write(
            Size {
                body: 1 << 18,
                keys: 1 << 12,
                ..size
            },
            20,
            true,
            true,
        );
        hash_only(size);
    }
    if is_wanted("follow") {
        for (entry_len, batch) in [(4, 16), (18, 16), (4, 4)] {
            follow(size, entry_len, batch);
        }
    }
    if is_wanted("other") {
        others(size);
    }
}

/// Returns a pseudo-random key made of two SplitMix64 numbers.
fn key(number: u64) -> Key {
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    let (a, b) = (
        mix(2 * number + 1).to_le_bytes(),
        mix(2 * number + 2).to_le_bytes(),
    );
    std::array::from_fn(|i| if i < 8 { a[i] } else { b[i - 8] })
}

fn store(geometry: Geometry) -> DtaStore {
    let header = Header {
        name: "bench".into(),
        id: 1,
        geometry,
        fields: String::new(),
        created: 1,
        snapshot: None,
    };
    let made = Region::anonymous(region_len(&geometry), true).and_then(|region| {
        region.populate()?;
        let huge = region.huge_bytes()?;
        println!(
            "  {geometry:?}: {:?}, {} of {} MiB on large pages",
            region.pages(),
            huge >> 20,
            region.len() >> 20
        );
        assert!(
            region.pages() != Pages::Small || region.len() < 4 << 20,
            "no large pages"
        );
        Ok(region)
    });
    match made.map(|region| DtaStore::create(Arc::new(region), &header)) {
        Ok(Ok(store)) => store,
        Ok(Err(error)) => panic!("{error}"),
        Err(error) => panic!("{error}: give fewer GiB, or free some"),
    }
}

fn report(name: &str, times: &mut [f64], plain: &mut [f64], unit: &str) {
    times.sort_by(f64::total_cmp);
    plain.sort_by(f64::total_cmp);
    let (least, median) = (times[0], times[times.len() / 2]);
    // The ratio of medians: other load on the machine affects both loops equally.
    let ratio = plain[plain.len() / 2] / median;
    println!(
        "{name:<34} {least:>9.2} {median:>9.2} {:>9.2} {ratio:>8.2}  {unit}",
        plain[0]
    );
}

/// Returns the offsets of a key's first `copies` slots.
fn places(key: &Key, slots: u64, stride: u64, copies: usize) -> Vec<u64> {
    hashes(key).slots[..copies]
        .iter()
        .map(|hash| BODY + slot(*hash, slots) * stride)
        .collect()
}

fn key_write(size: Size, data_len: u16, batches: bool, cold: bool) {
    let stride = slot_stride(data_len);
    let slots = size.body / stride;
    let store = store(Geometry::KeyWrite {
        slots,
        data_len,
        family: Family::V1,
    });
    let mut bytes = [0; 64];
    for number in 0..size.keys {
        let key = key(number);
        let hashes = hashes(&key);
        let value = number.to_le_bytes();
        let value = &value[..value.len().min(usize::from(data_len))];
        let len = put_slot(&mut bytes, hashes.checksum, value, data_len).unwrap_or(0);
        for hash in &hashes.slots[..2] {
            let written = store
                .region()
                .write_head_last(BODY + slot(*hash, slots) * stride, &bytes[..len]);
            assert!(written.is_ok());
        }
    }
    let Some(reader) = store.key_write() else { return };
    if batches {
        for (policy, copies) in [
            (Policy::First, 1),
            (Policy::First, 2),
            (Policy::Majority, 2),
            (Policy::Majority, 4),
        ] {
            get_batches(size, &store, &reader, policy, copies);
        }
    }
    if cold {
        get_cold(size, &store, &reader);
    }
}

fn hash_only(size: Size) {
    let keys: Vec<Key> = (0..1 << 11).map(key).collect();
    let mut times: Vec<f64> = (0..size.runs)
        .map(|_| {
            let begin = Instant::now();
            let sum = keys.iter().fold(0, |sum, key| {
                let ([a, b], checksum) = slots_n::<2>(key);
                sum ^ a ^ b.rotate_left(7) ^ checksum.rotate_left(13)
            });
            black_box(sum);
            begin.elapsed().as_nanos() as f64 / keys.len() as f64
        })
        .collect();
    report("hashes of a key, N=2", &mut times.clone(), &mut times, "ns/key");
}

/// Random keys in batches; the store contains half of the keys.
fn get_batches(size: Size, store: &DtaStore, reader: &KeyWriteReader, policy: Policy, copies: u8) {
    const ROUND: u64 = 1 << 11;
    let data_len = reader.data_len();
    let stride = slot_stride(data_len as u16);
    let mut out = vec![0; ROUND as usize * data_len];
    let mut answers = vec![Answer::Empty; ROUND as usize];
    let (mut times, mut plain, mut found) = (Vec::new(), Vec::new(), 0);
    for run in 0..size.runs as u64 {
        let keys: Vec<Key> = (0..ROUND)
            .map(|i| key((run * ROUND + i).wrapping_mul(0x9e37_79b1) % (2 * size.keys)))
            .collect();
        let at: Vec<u64> = keys
            .iter()
            .flat_map(|key| places(key, reader.slots(), stride, usize::from(copies)))
            .collect();
        // Alternating loops over different halves, so that neither finds the other's slots in the cache.
        let begin = Instant::now();
        let answered = reader.get_batch(&keys, policy, copies, &mut out, &mut answers);
        times.push(begin.elapsed().as_nanos() as f64 / ROUND as f64);
        assert_eq!(answered, Ok(()));
        found += answers
            .iter()
            .filter(|answer| matches!(answer, Answer::Found { .. }))
            .count();
        let other: Vec<u64> = at
            .iter()
            .map(|at| BODY + ((at - BODY) ^ (size.body >> 1)))
            .collect();
        let begin = Instant::now();
        let sum = other.iter().fold(0_u64, |sum, at| {
            sum.wrapping_add(store.region().load_u64(*at).unwrap_or(0))
        });
        plain.push(begin.elapsed().as_nanos() as f64 / ROUND as f64);
        black_box(sum);
    }
    let share = found as f64 / (size.runs as f64 * ROUND as f64);
    let name = format!("get {data_len} B {} N={copies} ({share:.2} found)", policy.name());
    report(
        &name,
        &mut times,
        &mut plain,
        "ns/key; plain: a word of each slot",
    );
}

/// One key at a time. The next key depends on the answer, so that queries cannot overlap.
fn get_cold(size: Size, store: &DtaStore, reader: &KeyWriteReader) {
    const ROUND: usize = 1 << 9;
    let mut out = vec![0; reader.data_len()];
    let (mut times, mut plain, mut number) = (Vec::new(), Vec::new(), 1_u64);
    for _ in 0..size.runs {
        let begin = Instant::now();
        for _ in 0..ROUND {
            let answer = reader.get(&key(number % size.keys), Policy::Majority, 2, &mut out);
            assert!(answer.is_ok());
            number = number
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(1 + u64::from(out[0]))
                & (u64::MAX >> 1);
        }
        times.push(begin.elapsed().as_nanos() as f64 / ROUND as f64);
        let mut at = number;
        let begin = Instant::now();
        for _ in 0..ROUND {
            let place = BODY + (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) % size.body / 8 * 8;
            at = at
                .wrapping_add(store.region().load_u64(place).unwrap_or(0) & 1)
                .wrapping_add(1);
        }
        plain.push(begin.elapsed().as_nanos() as f64 / ROUND as f64);
        black_box(at);
    }
    let name = format!("cold {} B majority N=2", reader.data_len());
    report(&name, &mut times, &mut plain, "ns/key; plain: one dependent load");
}

/// Follows a list larger than all caches, compared with a copy of as many bytes and with a sum over them.
fn follow(size: Size, entry_len: u16, batch: u16) {
    let ring = Ring {
        entry_len,
        entries: u64::from(batch),
        batch,
        tagged: true,
    };
    let blocks = size.ring / ring.block_len();
    let ring = Ring {
        entries: blocks * u64::from(batch),
        ..ring
    };
    let store = store(Geometry::Append {
        lists: 1,
        first_list: 0,
        ring,
    });
    let mut block = vec![0x5a; ring.block_len() as usize];
    for index in 0..blocks {
        assert!(
            BlockTrailer {
                sequence: index as u32 + 1,
                count: batch,
                entry_len
            }
            .seal(&mut block)
        );
        assert!(store.region().write(BODY + ring.offset(0, index), &block).is_ok());
    }
    let Some(lists) = store.lists() else { return };
    let round = (blocks / 16).max(1);
    let bytes = (round * ring.block_len()) as f64;
    let (mut times, mut copy, mut sum) = (Vec::new(), Vec::new(), Vec::new());
    let Some(mut follower) = lists.from_sequence(0, 1) else {
        return;
    };
    let mut at = BODY;
    for run in 0..size.runs.min(48) {
        if run % 15 == 0 {
            let Some(anew) = lists.from_sequence(0, 1) else {
                return;
            };
            follower = anew;
            at = BODY + size.ring / 2;
        }
        let begin = Instant::now();
        let mut seen = 0_u64;
        for _ in 0..round {
            let Next::Batch { entries, .. } = follower.next() else {
                panic!("a whole list")
            };
            seen += u64::from(entries[0]);
        }
        times.push(begin.elapsed().as_nanos() as f64 / bytes * 1e3);
        black_box(seen);
        // Half a ring away, so that the caches do not hold these bytes.
        copy.push(plain_copy(&store, BODY + (at - BODY) % (size.ring / 2), bytes as u64) / bytes * 1e3);
        sum.push(
            plain_sum(
                &store,
                BODY + (at - BODY + size.ring / 4) % (size.ring / 2),
                bytes as u64,
            ) / bytes
                * 1e3,
        );
        at += bytes as u64 & !63;
    }
    let name = format!("follow {batch} x {entry_len} B");
    report(&name, &mut times, &mut copy, "ps/byte; plain: a copy");
    report(&name, &mut times, &mut sum, "ps/byte; plain: a sum of words");
}

/// Returns the time in ns to copy this many bytes page by page into the same buffer.
fn plain_copy(store: &DtaStore, from: u64, bytes: u64) -> f64 {
    let mut page = [0; 4096];
    let begin = Instant::now();
    for at in (from..from + bytes).step_by(page.len()) {
        let _ = store
            .region()
            .read(at.min(store.region().len() - 4096), &mut page);
        black_box(&page);
    }
    begin.elapsed().as_nanos() as f64
}

/// Returns the time in ns to add up this many bytes as 64-bit words.
fn plain_sum(store: &DtaStore, from: u64, bytes: u64) -> f64 {
    let begin = Instant::now();
    let words = (from & !7..(from + bytes) & !7).step_by(8);
    let sum = words.fold(0_u64, |sum, at| {
        sum.wrapping_add(store.region().load_u64(at).unwrap_or(0))
    });
    black_box(sum);
    begin.elapsed().as_nanos() as f64
}

/// Counters, sketches and snapshots.
fn others(size: Size) {
    let slots = size.body / 32;
    let counters = store(Geometry::KeyIncrement {
        slots,
        family: Family::V1,
    });
    let Some(reader) = counters.counters() else { return };
    let (mut times, mut out) = (Vec::new(), vec![0; 1 << 11]);
    for run in 0..size.runs as u64 {
        let keys: Vec<Key> = (0..1 << 11).map(|i| key(run << 11 | i)).collect();
        let begin = Instant::now();
        assert_eq!(reader.estimate_batch(&keys, 2, &mut out), Ok(()));
        times.push(begin.elapsed().as_nanos() as f64 / keys.len() as f64);
    }
    report("estimate N=2, 1 GiB", &mut times.clone(), &mut times, "ns/key");

    let shape = Columns {
        depth: 4,
        columns: (size.ring >> 6) as u32,
        width: 8,
    };
    let sketch = store(Geometry::Sketch {
        kind: SketchKind::CountMin,
        op: MergeOp::Sum,
        shape,
    });
    let trailer = SketchTrailer {
        epoch: 0,
        sketch: 1,
        columns: shape.columns,
        reporters: 1,
    };
    assert!(
        sketch
            .region()
            .write(BODY + shape.trailer(0), &trailer.emit())
            .is_ok()
    );
    let Some(reader) = sketch.sketch() else { return };
    let (mut times, mut plain, mut copy) = (Vec::new(), Vec::new(), SketchCopy::new());
    let bytes = shape.trailer(0);
    for _ in 0..size.runs.min(9) {
        let begin = Instant::now();
        assert_eq!(reader.copy_newest(&mut copy), Ok(()));
        times.push(begin.elapsed().as_nanos() as f64 / bytes as f64 * 1e3);
        plain.push(plain_copy(&sketch, BODY, bytes) / bytes as f64 * 1e3);
    }
    // The first run allocates, so it is left out unless it is the only one.
    let first = usize::from(times.len() > 1);
    report(
        "copy a sketch's epoch",
        &mut times[first..],
        &mut plain,
        "ps/byte; plain: a copy",
    );

    let values = store(Geometry::KeyWrite {
        slots,
        data_len: 20,
        family: Family::V1,
    });
    let (mut times, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..size.runs.min(3) {
        let begin = Instant::now();
        let Ok(mut snapshot) = Snapshot::new(&values, 1) else {
            return;
        };
        while let Some(chunk) = snapshot.next() {
            black_box(chunk);
        }
        times.push(begin.elapsed().as_nanos() as f64 / snapshot.len() as f64 * 1e3);
        plain.push(plain_copy(&values, BODY, values.body_len()) / values.body_len() as f64 * 1e3);
    }
    report(
        "snapshot of key-write, empty",
        &mut times,
        &mut plain,
        "ps/byte; plain: a copy",
    );
}

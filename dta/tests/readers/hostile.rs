//! Memory with arbitrary contents: nothing panics, everything terminates, and invalid headers are refused.

use std::sync::Arc;

use dta::{
    Answer, BODY, DtaStore, HEADER_LEN, Header, HeaderError, Next, Path, Policy, SketchCopy, Snapshot,
    region_len,
};
use memory::Region;
use wire::crc::crc_32c;
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, Ring, SketchKind};

use crate::support::{Rng, header, key, store};

fn geometries() -> Vec<Geometry> {
    let family = Family::V1;
    let ring = Ring {
        entry_len: 5,
        entries: 48,
        batch: 3,
        tagged: true,
    };
    let shape = Columns {
        depth: 3,
        columns: 37,
        width: 8,
    };
    let mut all = vec![
        Geometry::KeyWrite {
            slots: 64,
            data_len: 20,
            family,
        },
        Geometry::KeyWrite {
            slots: 64,
            data_len: 3,
            family: Family::Artifact,
        },
        Geometry::KeyWrite {
            slots: 8,
            data_len: 1024,
            family,
        },
        Geometry::Append {
            lists: 2,
            first_list: 7,
            ring,
        },
        Geometry::Append {
            lists: 2,
            first_list: 7,
            ring: Ring {
                tagged: false,
                ..ring
            },
        },
        Geometry::Append {
            lists: 1,
            first_list: 7,
            ring: Ring { entries: 3, ..ring },
        },
        Geometry::KeyIncrement { slots: 64, family },
        Geometry::Postcarding {
            slots: 16,
            hops: 255,
            family,
        },
        Geometry::Postcarding {
            slots: 16,
            hops: 5,
            family: Family::Artifact,
        },
        Geometry::Postcarding {
            slots: 16,
            hops: 1,
            family: Family::Artifact,
        },
        Geometry::Postcarding {
            slots: 16,
            hops: 255,
            family: Family::Artifact,
        },
    ];
    all.extend(SketchKind::ALL.map(|kind| Geometry::Sketch {
        kind,
        op: kind.op(),
        shape,
    }));
    all
}

/// Makes every query that a store supports.
fn ask(store: &DtaStore, number: u64) {
    let key = key(number);
    if let Some(reader) = store.key_write() {
        let mut out = vec![0; reader.data_len()];
        for policy in Policy::ALL {
            let answer = reader.get(&key, policy, 4, &mut out).unwrap();
            if let Answer::Found { copies, agreeing } | Answer::Ambiguous { copies, agreeing } = answer {
                assert!((1..=4).contains(&copies) && (1..=copies).contains(&agreeing));
            }
        }
    }
    if let Some(reader) = store.counters() {
        reader.estimate(&key, 4).unwrap();
        assert!(reader.bound(4, reader.total()).error >= 0.0);
    }
    if let Some(reader) = store.paths() {
        reader.get(&key, &mut [None; 255]).unwrap();
        let (mut hops, known) = ([Some(0); 255], |value| value < 1 << 31);
        let path = reader.get_known(&key, &mut hops, known).unwrap();
        let hops = &hops[..usize::from(reader.hops())];
        assert!(matches!(path, Path::Found { .. }) || hops.iter().all(Option::is_none));
    }
    if let Some(reader) = store.sketch() {
        let mut copy = SketchCopy::new();
        if reader.copy_newest(&mut copy).is_ok() {
            // Each answers queries of its kind, and refuses others.
            let estimates = [
                copy.count_min(&key),
                copy.count(&key),
                copy.cardinality(),
                copy.sampled_from(),
                copy.share(|_| true),
            ];
            assert!(estimates.iter().flatten().count() <= 2);
        }
        let _ = reader.column(number as u16, number as u32, &mut [0; 3]);
    }
    if let Some(lists) = store.lists() {
        for (list, head) in lists.heads().collect::<Vec<_>>() {
            assert_ne!(head, Some(0));
            let starts = [
                lists.from_oldest(list),
                lists.from_now(list),
                lists.from_sequence(list, number as u32),
            ];
            for mut follower in starts.into_iter().flatten() {
                for _ in 0..200 {
                    if let Next::Batch {
                        sequence,
                        count,
                        entries,
                    } = follower.next()
                    {
                        assert!(sequence != 0 && entries.len() == usize::from(count) * 5);
                    }
                }
            }
            lists
                .bare(list)
                .iter_mut()
                .for_each(|follower| assert!(follower.next(9).is_none()));
        }
    }
}

#[test]
fn every_request_body_gets_a_response() {
    let mut rng = Rng(1);
    for geometry in geometries() {
        let store = store(geometry);
        for round in 0..30 {
            // Random, all ones, or small numbers: values near the limits of sequences, counts and lengths.
            for at in (0..store.body_len()).step_by(4) {
                let word = match round % 3 {
                    0 => rng.roll() as u32,
                    1 => u32::MAX - (rng.roll() % 2) as u32,
                    _ => (rng.roll() % 6) as u32,
                };
                let len = (store.body_len() - at).min(4) as usize;
                store
                    .region()
                    .write(BODY + at, &word.to_le_bytes()[..len])
                    .unwrap();
            }
            (0..20).for_each(|_| ask(&store, rng.roll() >> 2));
            let mut snapshot = Snapshot::new(&store, 1).unwrap();
            let mut len = 0;
            while let Some(chunk) = snapshot.next() {
                len += chunk.len() as u64;
            }
            assert_eq!(len, region_len(&geometry));
        }
    }
}

#[test]
fn any_header_decodes_consistently_or_is_refused() {
    let mut rng = Rng(2);
    let region = Arc::new(Region::anonymous(1 << 20, false).unwrap());
    let (mut opened, mut refused) = (0, 0);
    for geometry in geometries() {
        let page = header(geometry).encode().unwrap();
        for _ in 0..3000 {
            let mut spoiled = page.clone();
            for _ in 0..=rng.roll() % 3 {
                // Where most of the numbers are.
                let at = 8 + rng.roll() as usize % 96;
                spoiled[at] = if rng.roll().is_multiple_of(2) {
                    rng.roll() as u8
                } else {
                    [0, 1, 255][at % 3]
                };
            }
            let crc = crc_32c(&spoiled[..HEADER_LEN - 4]);
            spoiled[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
            let decoded = Header::decode(&spoiled);
            region.write(0, spoiled.as_slice()).unwrap();
            match DtaStore::open(Arc::clone(&region)) {
                Ok(store) => {
                    assert_eq!(Ok(store.header()), decoded.as_ref());
                    assert!(region_len(&store.geometry()) <= region.len());
                    assert_eq!(
                        Header::decode(&store.header().encode().unwrap()).as_ref(),
                        Ok(store.header())
                    );
                    ask(&store, rng.roll() >> 2);
                    opened += 1;
                }
                Err(error) => {
                    assert!(decoded.is_ok() == (error == HeaderError::TooShort), "{error}");
                    assert!(!error.to_string().is_empty() && !error.name().is_empty());
                    refused += 1;
                }
            }
        }
    }
    assert!(opened > 1000 && refused > 1000, "{opened} {refused}");
}

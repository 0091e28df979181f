//! Header pages: round trips, refusal of damaged pages and other versions with the reason, contents that survive a restart.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use dta::{Answer, BODY, DtaStore, HEADER_LEN, Header, HeaderError, Policy, region_len};
use memory::Region;
use wire::crc::crc_32c;
use wire::dta::hash::Family;
use wire::dta::layout::{BadGeometry, Columns, Geometry, MergeOp, Ring, SketchKind};

use crate::support::{KEY, SUM, header, key_write, write_copies};

const RING: Ring = Ring {
    entry_len: 18,
    entries: 1 << 10,
    batch: 16,
    tagged: true,
};

fn geometries() -> Vec<Geometry> {
    let shape = Columns {
        depth: 4,
        columns: 1000,
        width: 4,
    };
    let samples = Columns { width: 8, ..shape };
    vec![
        Geometry::KeyWrite {
            slots: 1 << 10,
            data_len: 20,
            family: Family::V1,
        },
        Geometry::KeyWrite {
            slots: 1 << 10,
            data_len: 4,
            family: Family::Artifact,
        },
        Geometry::Append {
            lists: 16,
            first_list: 1 << 31,
            ring: RING,
        },
        Geometry::Append {
            lists: 1,
            first_list: 0,
            ring: Ring {
                tagged: false,
                ..RING
            },
        },
        Geometry::KeyIncrement {
            slots: 1 << 16,
            family: Family::V1,
        },
        Geometry::Sketch {
            kind: SketchKind::CountMin,
            op: SUM,
            shape,
        },
        Geometry::Sketch {
            kind: SketchKind::Aroma,
            op: MergeOp::Sample,
            shape: samples,
        },
        Geometry::Postcarding {
            slots: 1,
            hops: 255,
            family: Family::V1,
        },
    ]
}

/// The same page with a CRC that matches it.
fn sealed(mut page: Box<[u8; HEADER_LEN]>) -> Box<[u8; HEADER_LEN]> {
    let crc = crc_32c(&page[..HEADER_LEN - 4]);
    page[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    page
}

#[test]
fn every_geometry_comes_back() {
    for geometry in geometries() {
        let (name, fields) = ("n".repeat(128), "ü".repeat(1024));
        for snapshot in [None, Some(9)] {
            let header = Header {
                name: name.clone(),
                id: 77,
                geometry,
                fields: fields.clone(),
                created: u64::MAX,
                snapshot,
            };
            let page = header.encode().unwrap();
            assert_eq!(Header::decode(&page), Ok(header));
        }
    }
}

#[test]
fn the_page_matches_the_documented_layout() {
    let geometry = Geometry::KeyWrite {
        slots: 1 << 20,
        data_len: 20,
        family: Family::V1,
    };
    let name = "paths".to_owned();
    let page = Header {
        name,
        id: 1,
        geometry,
        fields: "u32[5]".into(),
        created: 0x0102,
        snapshot: None,
    }
    .encode()
    .unwrap();
    let mut expected = vec![0; 256];
    expected[..8].copy_from_slice(b"HOPWISE\x01");
    expected[8] = 1;
    expected[10..12].copy_from_slice(&0x0102_u16.to_ne_bytes());
    expected[12..16].copy_from_slice(&[0, 0x10, 0, 0]);
    // 2^20 slots of 32 bytes.
    expected[16..24].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 0]);
    expected[24..26].copy_from_slice(&[2, 1]);
    (expected[40], expected[44]) = (1, 1);
    expected[50] = 0x10;
    (expected[56], expected[58]) = (20, 1);
    (expected[96], expected[98]) = (5, 6);
    expected[128..133].copy_from_slice(b"paths");
    assert_eq!(page[..256], expected);
    assert_eq!(page[256..264], *b"u32[5]\0\0");
    assert_eq!(
        u32::from_le_bytes([page[4092], page[4093], page[4094], page[4095]]),
        crc_32c(&page[..4092])
    );
}

#[test]
fn any_single_bit_error_is_detected() {
    let page = header(geometries()[0]).encode().unwrap();
    for bit in 0..HEADER_LEN * 8 {
        let mut damaged = page.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let expected = match bit / 8 {
            0..8 => HeaderError::NotARegion,
            8 | 9 => HeaderError::Version(1 ^ 1 << (bit - 64)),
            _ => HeaderError::Damaged,
        };
        assert_eq!(Header::decode(&damaged), Err(expected), "bit {bit}");
    }
}

#[test]
fn inconsistent_pages_with_a_valid_crc_are_refused() {
    let changed = |geometry: Geometry, at: usize, bytes: &[u8]| {
        let mut page = header(geometry).encode().unwrap();
        page[at..at + bytes.len()].copy_from_slice(bytes);
        Header::decode(&sealed(page))
    };
    let all = geometries();
    let [kw, append, sketch, postcards] = [all[0], all[2], all[5], all[7]];
    assert_eq!(changed(kw, 8, &[2, 0]), Err(HeaderError::Version(2)));
    assert_eq!(
        changed(kw, 10, &0x0201_u16.to_ne_bytes()),
        Err(HeaderError::ByteOrder)
    );
    assert_eq!(
        changed(kw, 12, &[0, 0x20]),
        Err(HeaderError::Damaged),
        "another header length"
    );
    assert_eq!(changed(kw, 16, &[1]), Err(HeaderError::BodyLength));
    assert_eq!(changed(kw, 40, &[6]), Err(HeaderError::Kind(6)));
    assert_eq!(
        changed(kw, 48, &[3]),
        Err(HeaderError::Geometry(BadGeometry::Slots))
    );
    assert_eq!(
        changed(kw, 58, &[2]),
        Err(HeaderError::Kind(1)),
        "a hash family that is not known"
    );
    assert_eq!(changed(kw, 96, &[129]), Err(HeaderError::Text));
    assert_eq!(changed(kw, 98, &[1, 8]), Err(HeaderError::Text));
    assert_eq!(changed(kw, 128, &[0xff]), Err(HeaderError::Text));
    assert_eq!(
        changed(append, 58, &[0, 0]),
        Err(HeaderError::Geometry(BadGeometry::Batch))
    );
    assert_eq!(
        changed(append, 48, &[0xff; 8]),
        Err(HeaderError::Geometry(BadGeometry::Batch))
    );
    assert_eq!(
        changed(append, 48, &[0xf0, 255, 255, 255, 255, 255, 255, 255]),
        Err(HeaderError::Geometry(BadGeometry::TooLarge))
    );
    assert_eq!(changed(sketch, 54, &[9]), Err(HeaderError::Kind(5)));
    assert_eq!(changed(sketch, 55, &[9]), Err(HeaderError::Kind(5)));
    assert_eq!(
        changed(postcards, 56, &[0, 1]),
        Err(HeaderError::Geometry(BadGeometry::Hops))
    );
    assert_eq!(Header::decode(&[0; HEADER_LEN]), Err(HeaderError::NotARegion));
}

#[test]
fn values_that_cannot_be_encoded_are_refused() {
    let good = header(geometries()[0]);
    assert_eq!(
        Header {
            name: "n".repeat(129),
            ..good.clone()
        }
        .encode(),
        Err(HeaderError::Text)
    );
    assert_eq!(
        Header {
            fields: "f".repeat(2049),
            ..good.clone()
        }
        .encode(),
        Err(HeaderError::Text)
    );
    let geometry = Geometry::KeyWrite {
        slots: 3,
        data_len: 20,
        family: Family::V1,
    };
    assert_eq!(
        Header { geometry, ..good }.encode(),
        Err(HeaderError::Geometry(BadGeometry::Slots))
    );
}

#[test]
fn a_store_is_created_only_in_an_empty_region_of_sufficient_size() {
    let geometry = Geometry::KeyIncrement {
        slots: 512,
        family: Family::V1,
    };
    assert_eq!(region_len(&geometry), 8192);
    let region = |len| Arc::new(Region::anonymous(len, false).unwrap());
    let short = DtaStore::create(region(4096), &header(geometry)).unwrap_err();
    assert_eq!(short, HeaderError::TooShort);
    let there = region(8192);
    DtaStore::create(Arc::clone(&there), &header(geometry)).unwrap();
    assert_eq!(
        DtaStore::create(Arc::clone(&there), &header(geometry)).unwrap_err(),
        HeaderError::NotEmpty
    );
    assert_eq!(DtaStore::open(there).unwrap().header(), &header(geometry));
    assert_eq!(DtaStore::open(region(8192)).unwrap_err(), HeaderError::NotARegion);
}

/// A path that no other test uses; removed with the guard.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn scratch(name: &str) -> Scratch {
    Scratch(std::env::temp_dir().join(format!("hopwise-stores-{}-{name}", std::process::id())))
}

#[test]
fn contents_survive_a_restart_and_are_seen_by_other_processes() {
    let file = scratch("restart");
    let geometry = Geometry::KeyWrite {
        slots: 1 << 10,
        data_len: 20,
        family: Family::V1,
    };
    let region = Region::create_file(&file.0, region_len(&geometry)).unwrap();
    let store = DtaStore::create(Arc::new(region), &header(geometry)).unwrap();
    write_copies(&store, &KEY, b"before the restart", 0..2);
    drop(store);
    // As another process would:
    let store = DtaStore::open(Arc::new(Region::open_read_only(&file.0).unwrap())).unwrap();
    let mut value = [0; 20];
    let answer = store
        .key_write()
        .unwrap()
        .get(&KEY, Policy::Strict, 4, &mut value);
    assert_eq!(
        answer,
        Ok(Answer::Found {
            copies: 2,
            agreeing: 2
        })
    );
    assert_eq!(&value, b"before the restart\0\0");
    assert_eq!(store.clear(), Err(HeaderError::ReadOnly));
    // The collector starts again:
    let store = DtaStore::open(Arc::new(Region::open_file(&file.0).unwrap())).unwrap();
    write_copies(&store, &KEY, b"after it", 0..2);
    store.clear().unwrap();
    assert_eq!(
        store.key_write().unwrap().get(&KEY, Policy::First, 4, &mut value),
        Ok(Answer::Empty)
    );
    assert_eq!(store.header(), &header(geometry));
}

#[test]
fn truncated_and_foreign_files_are_refused() {
    let file = scratch("cut");
    let geometry = Geometry::KeyIncrement {
        slots: 4096,
        family: Family::V1,
    };
    let region = Region::create_file(&file.0, region_len(&geometry)).unwrap();
    drop(DtaStore::create(Arc::new(region), &header(geometry)).unwrap());
    let cut = |len| {
        std::fs::File::options()
            .write(true)
            .open(&file.0)
            .unwrap()
            .set_len(len)
            .unwrap();
        DtaStore::open(Arc::new(Region::open_read_only(&file.0).unwrap())).unwrap_err()
    };
    assert_eq!(cut(region_len(&geometry) - 4096), HeaderError::TooShort);
    assert_eq!(cut(100), HeaderError::TooShort);
    std::fs::write(&file.0, vec![0x7f; 8192]).unwrap();
    assert_eq!(
        DtaStore::open(Arc::new(Region::open_file(&file.0).unwrap())).unwrap_err(),
        HeaderError::NotARegion
    );
}

#[test]
fn a_store_gives_the_reader_of_its_kind_and_no_other() {
    for geometry in geometries() {
        let store = crate::support::store(geometry);
        let readers = [
            store.key_write().is_some(),
            store.lists().is_some(),
            store.counters().is_some(),
            store.sketch().is_some(),
            store.paths().is_some(),
        ];
        let expected =
            ["key-write", "append", "key-increment", "sketch", "postcarding"].map(|n| n == geometry.name());
        assert_eq!(readers, expected, "{geometry:?}");
    }
}

#[test]
fn the_load_is_estimated_from_a_sample() {
    let store = key_write(1 << 10, 20);
    assert_eq!(store.occupancy(64), Some((0, 64)));
    for slot in (0..1 << 10).step_by(4) {
        store.region().write(BODY + slot * 32 + 23, &[1]).unwrap();
    }
    assert_eq!(store.occupancy(1 << 10), Some((256, 1 << 10)));
    assert_eq!(
        store.occupancy(u64::MAX),
        Some((256, 1 << 10)),
        "no more than there are"
    );
    assert_eq!(crate::support::lists(1, RING).occupancy(5), None);
}

/// Runs the Python example of the reference page on a store file.
#[test]
fn the_reader_of_the_reference_page_reads() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/memory-layout.md");
    let page = std::fs::read_to_string(page).unwrap();
    let program = page
        .split("```python\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let file = scratch("python");
    let geometry = Geometry::KeyWrite {
        slots: 1 << 10,
        data_len: 20,
        family: Family::V1,
    };
    let region = Region::create_file(&file.0, region_len(&geometry)).unwrap();
    let store = DtaStore::create(Arc::new(region), &header(geometry)).unwrap();
    write_copies(&store, &KEY, b"read by another one", [0, 3]);
    let key = "0a0000010a00000204d2005006";
    let run = std::process::Command::new("python3")
        .arg("-c")
        .arg(program)
        .arg(&file.0)
        .arg(key)
        .output();
    let Ok(run) = run else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED the reference page's reader: no python3"
        );
        return;
    };
    let expected = "72656164206279 20616e6f74686572206f6e65 00".replace(' ', "");
    let lines = format!("0 {expected}\n3 {expected}\n");
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        lines,
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

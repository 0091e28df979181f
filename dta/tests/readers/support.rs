//! Stores in fresh memory, and the writes of a translator as wire-formats 5.5 and 5.9 describe them.

use std::sync::Arc;

use dta::{BODY, DtaStore, Header, block_of, region_len};
use memory::Region;
use wire::dta::hash::{Family, MAX_COPIES, slot};
use wire::dta::layout::{
    BlockTrailer, Columns, Geometry, MergeOp, Ring, SketchKind, SketchTrailer, put_postcards, put_slot,
    slot_stride,
};

pub(crate) use rng::Rng;
use testkit::rng;

/// The key of wire-formats 5.6 and 5.7.
pub(crate) const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x00, 0x50, 6];

pub(crate) fn header(geometry: Geometry) -> Header {
    let id = if let Geometry::Append { first_list, .. } = geometry {
        first_list
    } else {
        4
    };
    Header {
        name: "a store".into(),
        id,
        geometry,
        fields: String::new(),
        created: 7,
        snapshot: None,
    }
}

pub(crate) fn store(geometry: Geometry) -> DtaStore {
    let region = Region::anonymous(region_len(&geometry), false).unwrap();
    DtaStore::create(Arc::new(region), &header(geometry)).unwrap()
}

pub(crate) fn key_write(slots: u64, data_len: u16) -> DtaStore {
    store(Geometry::KeyWrite {
        slots,
        data_len,
        family: Family::V1,
    })
}

pub(crate) fn lists(lists: u32, ring: Ring) -> DtaStore {
    store(Geometry::Append {
        lists,
        first_list: 100,
        ring,
    })
}

pub(crate) fn sketch(kind: SketchKind, shape: Columns) -> DtaStore {
    store(Geometry::Sketch {
        kind,
        op: kind.op(),
        shape,
    })
}

/// Offsets of the copies of a key in a key-write store.
pub(crate) fn places(store: &DtaStore, key: &[u8]) -> [u64; MAX_COPIES] {
    let Geometry::KeyWrite {
        slots,
        data_len,
        family,
    } = store.geometry()
    else {
        panic!("a key-write store")
    };
    family
        .hashes(key)
        .slots
        .map(|hash| BODY + slot(hash, slots) * slot_stride(data_len))
}

/// Writes a value to these copies of a key.
pub(crate) fn write_copies(
    store: &DtaStore,
    key: &[u8],
    data: &[u8],
    copies: impl IntoIterator<Item = usize>,
) {
    let Geometry::KeyWrite { data_len, family, .. } = store.geometry() else {
        panic!("a key-write store")
    };
    let mut bytes = [0; 1028];
    let len = put_slot(&mut bytes, family.hashes(key).checksum, data, data_len).unwrap();
    let places = places(store, key);
    for n in copies {
        store.region().write_head_last(places[n], &bytes[..len]).unwrap();
    }
}

/// Writes one list as a translator does.
pub(crate) struct Writer {
    store: DtaStore,
    list: u32,
    pub(crate) sequence: u32,
}

impl Writer {
    pub(crate) fn new(store: &DtaStore, list: u32) -> Self {
        Self {
            store: store.clone(),
            list,
            sequence: 1,
        }
    }

    pub(crate) fn ring(&self) -> Ring {
        let Geometry::Append { ring, .. } = self.store.geometry() else {
            panic!("an append store")
        };
        ring
    }

    /// Where the block of a batch is in the region.
    pub(crate) fn at(&self, sequence: u32) -> u64 {
        let ring = self.ring();
        BODY + ring.offset(u64::from(self.list - 100), block_of(sequence, ring.blocks()))
    }

    /// The bytes of the next batch, sealed.
    pub(crate) fn block(&mut self, entries: &[u8]) -> Vec<u8> {
        let ring = self.ring();
        let mut block = vec![0; ring.block_len() as usize];
        block[..entries.len()].copy_from_slice(entries);
        let count = (entries.len() / usize::from(ring.entry_len)) as u16;
        let trailer = BlockTrailer {
            sequence: self.sequence,
            count,
            entry_len: ring.entry_len,
        };
        assert!(trailer.seal(&mut block));
        self.sequence = BlockTrailer::next(self.sequence);
        block
    }

    /// Appends a batch.
    pub(crate) fn append(&mut self, entries: &[u8]) {
        let at = self.at(self.sequence);
        let block = self.block(entries);
        self.store.region().write(at, &block).unwrap();
    }

    /// Appends batches of 4-byte entries, each of them the batch's number.
    pub(crate) fn append_numbers(&mut self, batches: u32) {
        for _ in 0..batches {
            let entries = self.sequence.to_be_bytes().repeat(usize::from(self.ring().batch));
            self.append(&entries);
        }
    }

    /// Skips batches, as if they were lost in transit.
    pub(crate) fn lose(&mut self, batches: u32) {
        (0..batches).for_each(|_| self.sequence = BlockTrailer::next(self.sequence));
    }
}

/// Writes a path.
pub(crate) fn write_path(store: &DtaStore, key: &[u8], values: &[u32]) -> u64 {
    let Geometry::Postcarding { slots, hops, family } = store.geometry() else {
        panic!("a store of postcards")
    };
    let hashes = family.hashes(key);
    let at = BODY + slot(hashes.slots[0], slots) * wire::dta::layout::postcard_stride(hops);
    let mut bytes = [0; 1024];
    let len = put_postcards(&mut bytes, hashes.checksum, values).unwrap();
    store.region().write_head_last(at, &bytes[..len]).unwrap();
    at
}

/// A sketch under construction, to be written as an epoch.
pub(crate) struct Merged {
    pub(crate) shape: Columns,
    pub(crate) counters: Vec<u64>,
}

impl Merged {
    pub(crate) fn new(shape: Columns) -> Self {
        Self {
            shape,
            counters: vec![0; shape.columns as usize * usize::from(shape.depth)],
        }
    }

    pub(crate) fn at(&mut self, row: u8, column: u32) -> &mut u64 {
        &mut self.counters[column as usize * usize::from(self.shape.depth) + usize::from(row)]
    }

    /// Writes the first `columns` columns and the trailer.
    pub(crate) fn write(&self, store: &DtaStore, epoch: u16, columns: u32) {
        self.write_columns(store, epoch, columns);
        let trailer = SketchTrailer {
            epoch,
            sketch: 4,
            columns,
            reporters: 2,
        };
        store
            .region()
            .write(BODY + self.shape.trailer(epoch), &trailer.emit())
            .unwrap();
    }

    pub(crate) fn write_columns(&self, store: &DtaStore, epoch: u16, columns: u32) {
        let width = usize::from(self.shape.width);
        let written = columns as usize * usize::from(self.shape.depth);
        for (index, counter) in self.counters[..written].iter().enumerate() {
            let at = BODY + self.shape.buffer(epoch) + (index * width) as u64;
            store.region().write(at, &counter.to_le_bytes()[..width]).unwrap();
        }
    }
}

/// Pseudo-random keys, by splitmix64.
pub(crate) fn key(number: u64) -> [u8; 13] {
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

pub(crate) const SUM: MergeOp = MergeOp::Sum;

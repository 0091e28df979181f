//! A key-write store, written as the translator writes it, and how likely an answer is by the formula.

use std::sync::Arc;

use dta::{Answer, DtaStore, Header, KeyWriteReader, Policy};
use memory::Region;
use wire::dta::{
    hash::{Family, slot},
    layout::{Geometry, put_slot, slot_stride},
};

use super::failed;
use terminal::CliError;

/// Bytes of the longest slot here: a path of five nodes with its checksum.
const LONGEST: usize = 24;
/// Keys asked for at once.
const BATCH: usize = 64;

/// A key-write store in memory of its own.
pub(crate) struct Slots {
    region: Arc<Region>,
    store: DtaStore,
    reader: KeyWriteReader,
    slots: u64,
    data_len: u16,
    family: Family,
}

/// Outcomes of the queries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Answers {
    /// Their own value.
    pub(crate) right: u64,
    /// Another key's.
    pub(crate) wrong: u64,
    /// None.
    pub(crate) none: u64,
}

impl Answers {
    pub(crate) fn asked(&self) -> u64 {
        self.right + self.wrong + self.none
    }

    /// Share that got their own value.
    pub(crate) fn rate(&self) -> f64 {
        self.right as f64 / self.asked().max(1) as f64
    }
}

impl std::ops::AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.none += other.none;
    }
}

impl Slots {
    /// An empty store.
    pub(crate) fn new(slots: u64, data_len: u16, family: Family) -> Result<Self, CliError> {
        let geometry = Geometry::KeyWrite { slots, data_len, family };
        let len = dta::region_len(&geometry);
        let region = Arc::new(Region::anonymous(len, true).map_err(failed)?);
        let header = Header {
            name: "experiment".into(),
            id: 1,
            geometry,
            fields: String::new(),
            created: 0,
            snapshot: None,
        };
        let store = DtaStore::create(Arc::clone(&region), &header).map_err(failed)?;
        let reader = store.key_write().ok_or_else(|| failed("a key-write store is none"))?;
        Ok(Self { region, store, reader, slots, data_len, family })
    }

    /// How its slots are found.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Its reader.
    pub(crate) fn reader(&self) -> &KeyWriteReader {
        &self.reader
    }

    /// The memory under it.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Slots.
    pub(crate) fn len(&self) -> u64 {
        self.slots
    }

    /// Empties it.
    pub(crate) fn clear(&self) -> Result<(), CliError> {
        self.store.clear().map_err(failed)
    }

    /// What one Key-Write report comes to.
    pub(crate) fn write(&self, key: &[u8], data: &[u8], copies: u8) -> Result<(), CliError> {
        let hashes = self.family.hashes(key);
        let mut bytes = [0; LONGEST];
        let written = put_slot(&mut bytes, hashes.checksum, data, self.data_len);
        let bytes = written.and_then(|len| bytes.get(..len)).ok_or_else(|| failed("a slot too long"))?;
        for hash in &hashes.slots[..usize::from(copies)] {
            let at = slot(*hash, self.slots) * slot_stride(self.data_len);
            self.region.write(dta::BODY + at, bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Asks for keys; the value of each should begin with its number, big-endian.
    pub(crate) fn ask<K: AsRef<[u8]>>(
        &self,
        copies: u8,
        mut keys: impl Iterator<Item = (u32, K)>,
    ) -> Result<Answers, CliError> {
        let mut found = Answers::default();
        let mut out = vec![0; BATCH * usize::from(self.data_len)];
        let mut answers = [Answer::Empty; BATCH];
        loop {
            let (numbers, batch): (Vec<u32>, Vec<K>) = keys.by_ref().take(BATCH).unzip();
            if batch.is_empty() {
                return Ok(found);
            }
            self.reader
                .get_batch(&batch, Policy::Majority, copies, &mut out, &mut answers)
                .map_err(|error| failed(format!("{error:?}")))?;
            let values = out.chunks_exact(usize::from(self.data_len));
            for ((number, answer), value) in numbers.iter().zip(&answers).zip(values) {
                match answer {
                    Answer::Found { .. } if value.starts_with(&number.to_be_bytes()) => found.right += 1,
                    Answer::Found { .. } => found.wrong += 1,
                    _ => found.none += 1,
                }
            }
        }
    }
}

//! A Key-Write store, written slot by slot as the translator writes it, and counts of correct and wrong query results.

use std::sync::Arc;

use dta::{Answer, DtaStore, Header, KeyWriteReader, Policy};
use memory::Region;
use wire::dta::{
    hash::{Family, slot},
    layout::{Geometry, put_slot, slot_stride},
};

use super::failed;
use terminal::CliError;

/// Maximum length of a slot in bytes: a path of five nodes with its checksum.
const MAX_LEN: usize = 24;
/// Keys per query batch.
const BATCH: usize = 64;

/// A Key-Write store in a private memory region, and its reader.
#[derive(Debug)]
pub struct Slots {
    region: Arc<Region>,
    store: DtaStore,
    reader: KeyWriteReader,
    slots: u64,
    data_len: u16,
    family: Family,
}

/// Outcomes of queries, counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Queries that returned the value written for the key.
    pub correct: u64,
    /// Queries that returned the value of another key.
    pub wrong: u64,
    /// Queries that returned no value.
    pub none: u64,
}

impl Answers {
    /// Returns the number of queries.
    pub fn queried(&self) -> u64 {
        self.correct + self.wrong + self.none
    }

    /// Returns the share of queries that returned the correct value.
    pub fn rate(&self) -> f64 {
        self.correct as f64 / self.queried().max(1) as f64
    }
}

impl std::ops::AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.correct += other.correct;
        self.wrong += other.wrong;
        self.none += other.none;
    }
}

impl Slots {
    /// Creates an empty store. Fails if the memory cannot be allocated.
    pub fn new(slots: u64, data_len: u16, family: Family) -> Result<Self, CliError> {
        let geometry = Geometry::KeyWrite {
            slots,
            data_len,
            family,
        };
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
        let reader = store.key_write().ok_or_else(|| failed("not a key-write store"))?;
        Ok(Self {
            region,
            store,
            reader,
            slots,
            data_len,
            family,
        })
    }

    /// Returns the family of hashes that selects the slots.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the reader of the store.
    pub fn reader(&self) -> &KeyWriteReader {
        &self.reader
    }

    /// Returns the memory of the store.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Empties all slots of the store.
    pub fn clear(&self) -> Result<(), CliError> {
        self.store.clear().map_err(failed)
    }

    /// Writes what the translator writes for one Key-Write report.
    pub fn write(&self, key: &[u8], data: &[u8], copies: u8) -> Result<(), CliError> {
        let hashes = self.family.hashes(key);
        let mut bytes = [0; MAX_LEN];
        let written = put_slot(&mut bytes, hashes.checksum, data, self.data_len);
        let bytes = written
            .and_then(|len| bytes.get(..len))
            .ok_or_else(|| failed("a slot too long"))?;
        for hash in &hashes.slots[..usize::from(copies)] {
            let at = slot(*hash, self.slots) * slot_stride(self.data_len);
            self.region.write(dta::BODY + at, bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// Queries keys with the policy `majority`. The value of a key is correct if it begins with the key's number, big-endian.
    pub fn query<K: AsRef<[u8]>>(
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
                    Answer::Found { .. } if value.starts_with(&number.to_be_bytes()) => found.correct += 1,
                    Answer::Found { .. } => found.wrong += 1,
                    _ => found.none += 1,
                }
            }
        }
    }
}

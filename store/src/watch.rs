//! Registry of the store's files and the records that this process stored in each. It detects files that another program
//! removed or replaced, so that their records are counted as lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::{FileId, StoreFile};
use crate::identity::{FileChange, FileIdentity};

/// The known files of the directory.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    files: BTreeMap<FileId, KnownFile>,
}

#[derive(Debug)]
struct KnownFile {
    identity: FileIdentity,
    /// Number of records that this process stored in it.
    records: u64,
}

/// A file that was removed or replaced.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct MissingFile {
    pub(crate) path: PathBuf,
    pub(crate) change: FileChange,
    pub(crate) records: u64,
}

impl Watch {
    /// Adds a file that was opened. Returns the file that was at its path before if it was replaced.
    pub(crate) fn open(&mut self, id: FileId, identity: &FileIdentity) -> Option<MissingFile> {
        if self
            .files
            .get(&id)
            .is_some_and(|known| known.identity == *identity)
        {
            return None;
        }
        let known = KnownFile {
            identity: identity.clone(),
            records: 0,
        };
        let replaced = self.files.insert(id, known)?;
        Some(MissingFile {
            path: replaced.identity.path,
            change: FileChange::Replaced,
            records: replaced.records,
        })
    }

    /// Adds records that were committed into an open file.
    pub(crate) fn commit(&mut self, id: FileId, records: u64) {
        if let Some(known) = self.files.get_mut(&id) {
            known.records += records;
        }
    }

    /// Subtracts records that the file lost.
    pub(crate) fn uncount(&mut self, id: FileId, records: u64) {
        if let Some(known) = self.files.get_mut(&id) {
            known.records = known.records.saturating_sub(records);
        }
    }

    /// Removes a file that is about to be deleted or renamed. Returns its number of records of this process.
    pub(crate) fn forget(&mut self, id: FileId) -> u64 {
        self.files.remove(&id).map_or(0, |known| known.records)
    }

    /// Adds new files, and removes and returns those that were removed or replaced.
    pub(crate) fn rescan(&mut self, present: &[StoreFile]) -> Vec<MissingFile> {
        let mut missing = Vec::new();
        self.files.retain(|_, known| {
            let Some(change) = known.identity.change() else {
                return true;
            };
            missing.push(MissingFile {
                path: known.identity.path.clone(),
                change,
                records: known.records,
            });
            false
        });
        for file in present {
            if !self.files.contains_key(&file.id)
                && let Some(identity) = FileIdentity::read(&file.path)
            {
                self.files.insert(file.id, KnownFile { identity, records: 0 });
            }
        }
        missing
    }
}

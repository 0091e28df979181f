//! The known files of the directory. A file that something else than retention removes or replaces is noticed, and the records that
//! this process had stored in it are counted as lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::{FileId, StoreFile};
use crate::identity::{FileChange, FileIdentity};

/// The files of the directory that are known, with what this process stored in them.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    files: BTreeMap<FileId, Known>,
}

#[derive(Debug)]
struct Known {
    identity: FileIdentity,
    /// Records of this process in it.
    records: u64,
}

/// A file that is not at its path any more.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct MissingFile {
    pub(crate) path: PathBuf,
    pub(crate) change: FileChange,
    pub(crate) records: u64,
}

impl Watch {
    /// Adds a file that was opened. Returns the file that was at its path before, if that was another one.
    pub(crate) fn open(&mut self, id: FileId, identity: &FileIdentity) -> Option<MissingFile> {
        if self
            .files
            .get(&id)
            .is_some_and(|known| known.identity == *identity)
        {
            return None;
        }
        let known = Known {
            identity: identity.clone(),
            records: 0,
        };
        let before = self.files.insert(id, known)?;
        Some(MissingFile {
            path: before.identity.path,
            change: FileChange::Replaced,
            records: before.records,
        })
    }

    /// Counts records that were committed into a file that is open.
    pub(crate) fn commit(&mut self, id: FileId, records: u64) {
        if let Some(known) = self.files.get_mut(&id) {
            known.records += records;
        }
    }

    /// Subtracts records of this process that are not in a file any more.
    pub(crate) fn uncount(&mut self, id: FileId, records: u64) {
        if let Some(known) = self.files.get_mut(&id) {
            known.records = known.records.saturating_sub(records);
        }
    }

    /// Forgets a file that is about to be removed or renamed. Returns the records of this process in it.
    pub(crate) fn forget(&mut self, id: FileId) -> u64 {
        self.files.remove(&id).map_or(0, |known| known.records)
    }

    /// Adds the files that are there, and returns those that are not at their paths any more.
    pub(crate) fn rescan(&mut self, found: &[StoreFile]) -> Vec<MissingFile> {
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
        for file in found {
            if !self.files.contains_key(&file.id)
                && let Some(identity) = FileIdentity::read(&file.path)
            {
                self.files.insert(file.id, Known { identity, records: 0 });
            }
        }
        missing
    }
}

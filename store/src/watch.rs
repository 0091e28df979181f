//! Which files of the directory are known, and what became of them: a file that something else than retention removes or replaces is
//! noticed, and what this process had stored in it is counted as lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files::{FileId, StoreFile};
use crate::identity::{FileIdentity, Moved};

/// The known files.
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
pub(crate) struct Gone {
    pub(crate) path: PathBuf,
    pub(crate) moved: Moved,
    pub(crate) records: u64,
}

impl Watch {
    /// A file was opened. Returns what was at its path before, if that was another file.
    pub(crate) fn open(&mut self, id: FileId, identity: &FileIdentity) -> Option<Gone> {
        let known = self.files.get(&id).filter(|known| known.identity == *identity);
        if known.is_some() {
            return None;
        }
        let before = self.files.insert(id, Known { identity: identity.clone(), records: 0 })?;
        let Known { identity: FileIdentity { path, .. }, records } = before;
        Some(Gone { path, moved: Moved::Replaced, records })
    }

    /// Records were committed into a file that is open.
    pub(crate) fn commit(&mut self, id: FileId, records: u64) {
        if let Some(known) = self.files.get_mut(&id) {
            known.records += records;
        }
    }

    /// Forgets a file that is about to be removed or renamed. Returns the records of this process in it.
    pub(crate) fn forget(&mut self, id: FileId) -> u64 {
        self.files.remove(&id).map_or(0, |known| known.records)
    }

    /// Takes in the files that are there, and returns those that are not at their paths any more.
    pub(crate) fn look(&mut self, found: &[StoreFile]) -> Vec<Gone> {
        let mut gone = Vec::new();
        self.files.retain(|_, known| {
            let moved = known.identity.moved();
            gone.extend(moved.map(|moved| Gone {
                path: known.identity.path.clone(),
                moved,
                records: known.records,
            }));
            moved.is_none()
        });
        for file in found {
            if let (false, Some(identity)) = (self.files.contains_key(&file.id), FileIdentity::of(&file.path))
            {
                self.files.insert(file.id, Known { identity, records: 0 });
            }
        }
        gone
    }
}

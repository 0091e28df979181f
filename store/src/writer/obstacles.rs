//! Files that are not at their paths any more, are damaged, or cannot be opened: what the writer does about them, and how it names them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Writer, nanos};
use crate::config::Error;
use crate::files::{self, DirLock, FileId, Listing, StoreFile};
use crate::identity::Moved;
use crate::problems::{self, ProblemKind};
use crate::schema;
use crate::segment::Segment;
use crate::watch::Gone;

impl Writer {
    /// Makes the directory, and takes its lock again, if they were removed or replaced.
    pub(super) fn require_dir(&mut self) -> Result<(), Error> {
        if self.lock.as_ref().is_some_and(DirLock::is_moved) {
            self.lock = Some(DirLock::acquire(&self.config.dir)?);
        }
        Ok(())
    }

    /// Gives up the open file between two transactions if it, or its log, is not at its path any more: nothing more is written where
    /// nobody finds it.
    pub(super) fn leave_moved(&mut self) {
        let Some(segment) = self.segment.take_if(|segment| segment.uncommitted() == 0) else { return };
        if segment.moved().is_some() {
            segment.leave();
            self.look_at_files();
        } else if let Some(log) = segment.moved_log().map(Path::to_owned) {
            // What is in the log can still be copied into the file.
            let message = match segment.checkpoint(true) {
                Ok(()) => "removed while it was in use; nothing was lost, because it could still be copied; \
                           find out what deletes files there"
                    .to_owned(),
                Err(error) => format!(
                    "removed while it was in use, and it could not be copied ({error}): the latest records may be lost; \
                     find out what deletes files there"
                ),
            };
            drop(segment);
            let mut stats = self.shared.stats();
            stats.problems.add(&log, (ProblemKind::Removed, message), nanos((self.wall)()), 0);
            stats.moved_files += 1;
        } else {
            self.segment = Some(segment);
        }
    }

    /// Whether a file is left as it is, and its period goes on in another one.
    pub(super) fn is_left(&self, id: FileId) -> bool {
        let path = self.config.dir.join(id.to_string());
        let is_no_file = fs::metadata(&path).is_ok_and(|found| !found.is_file());
        is_no_file || self.unusable.contains(&id) || self.indexer.has(&path) || schema::is_earlier(&path)
    }

    /// Names a file of an earlier period that cannot be opened. Its period goes on in another one.
    pub(crate) fn set_unusable(&mut self, id: FileId, error: &Error) {
        if !self.unusable.contains(&id) {
            self.unusable.push(id);
        }
        let kind = if error.is_damage() { ProblemKind::Damaged } else { ProblemKind::Unreadable };
        let advice = match kind {
            ProblemKind::Damaged => "`hopwise store check` says what can be read",
            _ => "it is used as soon as it can be opened",
        };
        let message = format!("{error}; its records may be missing from answers; {advice}");
        let path = self.config.dir.join(id.to_string());
        self.shared.stats().problems.add(&path, (kind, message), nanos((self.wall)()), 0);
    }

    /// Renames a damaged file, so that a new one takes its place.
    pub(super) fn set_aside(&mut self, id: FileId, error: &Error) -> Result<(), Error> {
        let path = self.config.dir.join(id.to_string());
        let aside = files::set_aside(&path).map_err(|error| Error::io(&path, error))?;
        let records = self.watch.forget(id);
        let mut stats = self.shared.stats();
        stats.set_aside += 1;
        let message = format!("{error}; {SET_ASIDE}");
        stats.problems.add(&aside, (ProblemKind::Damaged, message), nanos((self.wall)()), records);
        Ok(())
    }

    /// Counts what was in a file that something else removed or replaced.
    pub(super) fn count_gone(&mut self, gone: &Gone) {
        let kind = match gone.moved {
            Moved::Removed => ProblemKind::Removed,
            Moved::Replaced => ProblemKind::Replaced,
        };
        let message = format!(
            "{} while hopwise ran: {} records that it had stored there are lost; find out what deletes or restores files there, and \
             stop hopwise before you do",
            gone.moved.name(),
            gone.records
        );
        let mut stats = self.shared.stats();
        stats.moved_files += 1;
        stats.removed += gone.records;
        stats.problems.add(&gone.path, (kind, message), nanos((self.wall)()), gone.records);
    }

    /// Looks whether the files are at their paths, and which cannot be used. Returns what is there.
    pub(super) fn look_at_files(&mut self) -> Listing {
        // Without a directory there are no files.
        let found = files::scan(&self.config.dir).unwrap_or_default();
        for gone in self.watch.look(&found.files) {
            self.count_gone(&gone);
        }
        let dir = &self.config.dir;
        self.unusable.retain(|id| schema::probe(&dir.join(id.to_string())).is_err());
        found
    }

    /// Shows what cannot be used, as long as it is there.
    pub(super) fn name_problems(&self, not_files: &[(FileId, PathBuf)], set_aside: &[(FileId, PathBuf)]) {
        let now = nanos((self.wall)());
        let mut stats = self.shared.stats();
        for (_, path) in not_files {
            let message = "not a regular file; move it away".to_owned();
            stats.problems.add(path, (ProblemKind::Unreadable, message), now, 0);
        }
        for (_, path) in set_aside.iter().filter(|(_, path)| !files::is_salvaged(path)) {
            let message = format!("set aside, because it is damaged; {SET_ASIDE}");
            stats.problems.add(path, (ProblemKind::Damaged, message), now, 0);
        }
        let is_unusable = |name: &str| self.unusable.iter().any(|id| id.to_string() == name);
        let is_there = |name: &str| {
            not_files.iter().chain(set_aside).any(|(_, path)| problems::name_of(path) == name)
                || is_unusable(name)
        };
        stats.problems.retain(|problem| is_there(&problem.file));
    }

    /// Has the log of a finished file copied into it, where readers kept that from happening when it was closed. One at a time.
    pub(super) fn fold_log(&mut self, found: &[StoreFile]) {
        let open = self.segment.as_ref().map(Segment::id);
        let has_log = |file: &&StoreFile| file.log > 0 && Some(file.id) != open && !self.is_left(file.id);
        if let Some(file) = found.iter().find(has_log) {
            self.indexer.submit(file.path.clone());
        }
    }
}

/// About a file that was set aside.
const SET_ASIDE: &str =
    "its records are missing from answers: `hopwise store check DIR --salvage` saves what can be read";

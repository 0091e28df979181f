//! Error handling of the writer: files that were removed or replaced, are damaged, or cannot be opened. Each is counted and
//! listed as a problem.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{RETRY_DELAY, Writer, nanos};
use crate::config::{Error, WithPath as _};
use crate::directory::check_dir;
use crate::files::{self, DirLock, FileId, Listing, StoreFile};
use crate::follower;
use crate::identity::{FileChange, check_access};
use crate::problems::{self, NewProblem, ProblemKind};
use crate::schema;
use crate::segment::Segment;
use crate::stats::State;
use crate::watch::MissingFile;

/// Bounds of the interval between two checks of the directory, which is normally the commit interval.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// End of the message about a file that was set aside.
const SET_ASIDE: &str =
    "its records are missing from answers: `hopwise store check DIR --salvage` copies the readable records";

impl Writer {
    /// Recreates the directory and acquires its lock again if either was removed or replaced.
    pub(super) fn require_dir(&mut self) -> Result<(), Error> {
        if self.lock.as_ref().is_some_and(DirLock::is_moved) {
            self.lock = Some(DirLock::acquire(&self.config.dir)?);
        }
        Ok(())
    }

    /// Checks that the directory and the open file are accessible by path, also while there is nothing to commit. The open file
    /// itself could be written without that, but not after a restart.
    pub(super) fn check_paths(&mut self, now: Instant) {
        self.check_at = now
            + self
                .config
                .commit_every
                .clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
        self.abandon_moved();
        let dir = self.require_dir().and_then(|()| check_dir(&self.config.dir));
        let access = dir.and_then(|()| match &self.segment {
            Some(segment) => check_access(segment.path(), true).with_path(segment.path()),
            None => Ok(()),
        });
        if self.retry_at.is_some() {
            // The next write attempt shows whether the failure is over.
            return;
        }
        let mut stats = self.shared.stats();
        match (access, &self.segment) {
            (Ok(()), _) => {
                stats.state = State::Ok;
                stats.message = None;
            }
            (Err(error), Some(segment)) => {
                let file = problems::name_of(segment.path());
                stats.state = State::Degraded;
                stats.message = Some(format!(
                    "{error}; until then records go only into the open file {file}"
                ));
            }
            (Err(error), None) => {
                stats.state = State::Failing;
                stats.message = Some(error.to_string());
            }
        }
    }

    /// Abandons the open file between two transactions if it or its WAL was removed or replaced: records written there could
    /// not be found.
    pub(super) fn abandon_moved(&mut self) {
        let Some(segment) = self.segment.take_if(|segment| segment.uncommitted() == 0) else {
            return;
        };
        if segment.change().is_some() {
            segment.abandon();
            self.rescan();
        } else if segment.moved_log().is_some() {
            self.segment = self.copy_moved_log(segment);
        } else {
            self.segment = Some(segment);
        }
    }

    /// Checkpoints a WAL that was removed, after which its file can be closed. Returns the segment if readers prevent that: it
    /// stays open, because closing it would lose the WAL, and the checkpoint is retried.
    fn copy_moved_log(&mut self, mut segment: Segment) -> Option<Segment> {
        let now = Instant::now();
        if self.log_retry_at.is_some_and(|at| at > now) {
            return Some(segment);
        }
        if !segment.checkpoint(true).is_ok_and(|is_whole| is_whole) {
            self.log_retry_at = Some(now + RETRY_DELAY);
            return Some(segment);
        }
        self.count_moved_log(&segment);
        None
    }

    /// Closes a segment. If its WAL was removed and cannot be checkpointed, records that are only in the WAL are lost.
    pub(super) fn close_segment(&mut self, mut segment: Segment) {
        if segment.change().is_none() && segment.moved_log().is_some() {
            // The outcome shows in the number of records that are only in the WAL.
            let _ = segment.checkpoint(true);
            self.count_moved_log(&segment);
        }
    }

    /// Lists a removed WAL as a problem, and counts the records that were only in it as lost.
    fn count_moved_log(&mut self, segment: &Segment) {
        self.log_retry_at = None;
        let Some(log) = segment.moved_log() else { return };
        let lost = segment.records_in_log();
        let fate = match lost {
            0 => "nothing was lost, because it could still be copied".to_owned(),
            _ => format!(
                "it could not be copied, because readers held the file: up to {lost} records are lost"
            ),
        };
        let message = format!("removed while it was in use; {fate}; find out what deletes files there");
        self.watch.uncount(segment.id(), lost);
        let mut stats = self.shared.stats();
        stats.moved_files += 1;
        stats.removed += lost;
        let file = problems::name_of(log);
        let problem = NewProblem {
            file,
            kind: ProblemKind::Removed,
            message,
            records: lost,
        };
        stats.problems.add(problem, nanos((self.wall_clock)()));
    }

    /// Returns true if this file cannot be written, so that its period continues in a new part.
    pub(super) fn is_skipped(&self, id: FileId) -> bool {
        let path = self.config.dir.join(id.to_string());
        let is_not_a_file = fs::metadata(&path).is_ok_and(|found| !found.is_file());
        is_not_a_file
            || self.unusable.contains_key(&id)
            || self.indexer.has(&path)
            || schema::is_earlier(&path)
    }

    /// Marks a file of an earlier period as unusable. Late records of its period go into a new part, and housekeeping lists the
    /// problem.
    pub(crate) fn set_unusable(&mut self, id: FileId, error: &Error) {
        let kind = if error.is_damage() {
            ProblemKind::Damaged
        } else {
            ProblemKind::Unreadable
        };
        let advice = match kind {
            ProblemKind::Damaged => "`hopwise store check` shows which records are readable",
            _ => "it is used as soon as it can be opened",
        };
        let message = format!("{error}; its records may be missing from answers; {advice}");
        self.unusable.insert(id, (kind, message));
    }

    /// Sets a damaged file aside by renaming it, so that a new one can take its place.
    pub(super) fn set_aside(&mut self, id: FileId, error: &Error) -> Result<(), Error> {
        let path = self.config.dir.join(id.to_string());
        let aside = files::set_aside(&path).with_path(&path)?;
        let records = self.watch.forget(id);
        let mut stats = self.shared.stats();
        stats.set_aside += 1;
        stats.removed += records;
        let message = format!("{error}; {SET_ASIDE}");
        let file = problems::name_of(&aside);
        let problem = NewProblem {
            file,
            kind: ProblemKind::Damaged,
            message,
            records,
        };
        stats.problems.add(problem, nanos((self.wall_clock)()));
        Ok(())
    }

    /// Counts the records of a file that was removed or replaced as lost, and lists the problem.
    pub(super) fn count_missing(&mut self, missing: &MissingFile) {
        let MissingFile {
            path,
            change,
            records,
        } = missing;
        let kind = match change {
            FileChange::Removed => ProblemKind::Removed,
            FileChange::Replaced => ProblemKind::Replaced,
        };
        let message = format!(
            "{} while hopwise ran: {records} records that it had stored there are lost; find out what deletes or restores files there, \
             and stop hopwise before restoring files",
            change.name()
        );
        let mut stats = self.shared.stats();
        stats.moved_files += 1;
        stats.removed += records;
        let problem = NewProblem {
            file: problems::name_of(path),
            kind,
            message,
            records: *records,
        };
        stats.problems.add(problem, nanos((self.wall_clock)()));
    }

    /// Scans the directory for removed, replaced and unusable files. Returns the files found, or `None` if the directory cannot
    /// be listed, in which case they may still exist.
    pub(super) fn rescan(&mut self) -> Option<Listing> {
        let listing = match files::scan(&self.config.dir) {
            Ok(listing) => listing,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Listing::default()
            }
            Err(_) => return None,
        };
        for missing in self.watch.rescan(&listing.files) {
            self.count_missing(&missing);
        }
        let dir = &self.config.dir;
        self.unusable
            .retain(|id, _| listing.contains(*id) && !is_usable(&dir.join(id.to_string())));
        Some(listing)
    }

    /// Updates the list of files that cannot be used.
    pub(super) fn update_problems(&self, found: &Listing) {
        let mut states = Vec::new();
        for (_, path) in &found.not_files {
            let message = "not a regular file; move it away";
            states.push(lasting_problem(path, ProblemKind::Unreadable, message));
        }
        let message = format!("set aside, because it is damaged; {SET_ASIDE}");
        for file in &found.set_aside {
            if !files::is_salvaged(&file.path) {
                states.push(lasting_problem(&file.path, ProblemKind::Damaged, &message));
            }
        }
        for (id, (kind, message)) in &self.unusable {
            if found.not_files.iter().all(|(other, _)| other != id) {
                states.push(lasting_problem(Path::new(&id.to_string()), *kind, message));
            }
        }
        let now = nanos((self.wall_clock)());
        self.shared.stats().problems.set_states(states, now);
    }

    /// Checkpoints the WAL of a finished file that readers prevented when the file was closed. One file per call, in turn.
    pub(super) fn checkpoint_finished(&mut self, found: &[StoreFile]) {
        let open = self.segment.as_ref().map(Segment::id);
        let with_wal: Vec<&StoreFile> = found
            .iter()
            .filter(|file| file.wal_bytes > 0 && Some(file.id) != open)
            .filter(|file| !self.unusable.contains_key(&file.id) && !self.indexer.has(&file.path))
            .collect();
        let next = with_wal.iter().find(|file| Some(file.id) > self.checkpointed);
        if let Some(file) = next.or(with_wal.first()) {
            self.checkpointed = Some(file.id);
            self.indexer.submit(file.path.clone());
        }
    }
}

fn lasting_problem(path: &Path, kind: ProblemKind, message: &str) -> NewProblem {
    NewProblem {
        file: problems::name_of(path),
        kind,
        message: message.to_owned(),
        records: 0,
    }
}

/// Returns true if a file can be written and its numbering can be read.
fn is_usable(path: &Path) -> bool {
    schema::probe(path).is_ok() && follower::file_numbering(path).is_ok()
}

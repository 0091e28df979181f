//! Warnings for queries about files that another program removed or replaced while the store was writing: results for their
//! time range lack records.

use std::sync::Arc;

use collector::event::Nanos;

use crate::files::FileId;
use crate::problems::{FileProblem, ProblemKind};
use crate::shared::Shared;

/// Suffix of a WAL's file name.
const WAL_SUFFIX: &str = "-wal";

/// Read access to the list of removed or replaced files, for readers in the process of the store.
#[derive(Clone, Debug)]
pub struct MovedFiles(Arc<Shared>);

impl MovedFiles {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns a warning about removed or replaced files with records between `from` and `to`, or `None` if there are none. A
    /// bound of `None` means unbounded.
    pub fn note(&self, from: Option<Nanos>, to: Option<Nanos>) -> Option<String> {
        let stats = self.0.stats();
        let moved: Vec<&FileProblem> = stats
            .problems
            .list()
            .iter()
            .filter(|problem| is_moved(problem, from, to))
            .collect();
        let first = moved.first()?;
        let last = moved.last()?;
        let files = match moved.len() {
            1 => format!("1 file of this time range ({}) was", first.file),
            count => format!(
                "{count} files of this time range ({} to {}) were",
                first.file, last.file
            ),
        };
        let since = settings::time::text(first.found);
        let until = settings::time::text(last.found);
        let time = if since == until {
            format!("at {since}")
        } else {
            format!("from {since} to {until}")
        };
        Some(format!(
            "records may be missing: {files} removed or replaced by something else, {time}"
        ))
    }
}

/// Returns true if the file had records of this time. None is newer than the time when the loss was found.
fn is_moved(problem: &FileProblem, from: Option<Nanos>, to: Option<Nanos>) -> bool {
    let is_moved = match problem.kind {
        ProblemKind::Replaced => true,
        // A removed WAL matters only if it held records that were not checkpointed.
        ProblemKind::Removed => !problem.file.ends_with(WAL_SUFFIX) || problem.records > 0,
        ProblemKind::Unreadable | ProblemKind::Damaged => false,
    };
    let id = FileId::parse(problem.file.trim_end_matches(WAL_SUFFIX));
    is_moved && from.is_none_or(|from| from <= problem.found) && id.is_some_and(|id| id.overlaps(from, to))
}

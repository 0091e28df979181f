//! Files that something else removed or replaced while a store of this process wrote there: answers about their time lack records.

use std::sync::Arc;

use collector::event::Nanos;

use crate::files::FileId;
use crate::problems::{FileProblem, ProblemKind};
use crate::shared::Shared;

/// The files that something else removed or replaced since the store was opened, for readers in the same process.
#[derive(Clone, Debug)]
pub struct MovedFiles(Arc<Shared>);

impl MovedFiles {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns a sentence about the files with records between `from` and `to` that were removed or replaced, or `None` if there are none.
    /// `None` for a bound: there is none.
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

/// Returns true if records of this time were in the file. No record is newer than the time when the file was missed.
fn is_moved(problem: &FileProblem, from: Option<Nanos>, to: Option<Nanos>) -> bool {
    let is_moved = match problem.kind {
        ProblemKind::Replaced => true,
        // If only the log was removed, it may have been copied before.
        ProblemKind::Removed => !problem.file.ends_with(LOG) || problem.records > 0,
        ProblemKind::Unreadable | ProblemKind::Damaged => false,
    };
    let id = FileId::parse(problem.file.trim_end_matches(LOG));
    is_moved && from.is_none_or(|from| from <= problem.found) && id.is_some_and(|id| id.overlaps(from, to))
}

/// The end of the name of a log.
const LOG: &str = "-wal";

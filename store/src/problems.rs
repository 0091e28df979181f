//! Files of the store that cannot be used, and what happened to files while they were in use.

use std::path::Path;

use collector::event::Nanos;

/// The kind of a problem of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProblemKind {
    /// The file, of an earlier period, cannot be opened. It is used as soon as it can.
    Unreadable,
    /// The file is damaged. A name `….corrupt-N` says that it was set aside.
    Damaged,
    /// The file, or its log, was removed while it was in use.
    Removed,
    /// Another file was put in its place while it was in use.
    Replaced,
}

impl ProblemKind {
    /// `unreadable`, `damaged`, `removed`, `replaced`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Damaged => "damaged",
            Self::Removed => "removed",
            Self::Replaced => "replaced",
        }
    }

    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Unreadable, Self::Damaged, Self::Removed, Self::Replaced];

    /// Whether it lasts until somebody does something, and is not an event of the past.
    fn is_state(self) -> bool {
        matches!(self, Self::Unreadable | Self::Damaged)
    }
}

/// A problem of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileProblem {
    /// Counts up from 1: each problem has its own.
    pub number: u64,
    /// Name of the file in the store's directory.
    pub file: String,
    /// The kind.
    pub kind: ProblemKind,
    /// The reason and the remedy.
    pub message: String,
    /// When it was found, ns since 1970.
    pub found: Nanos,
    /// Records that this process had stored in the file and that are not in the store any more.
    pub records: u64,
}

/// The problems that are shown: all that last, and the latest of the others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Problems {
    list: Vec<FileProblem>,
    last: u64,
}

impl Problems {
    /// The problems, the latest one last.
    pub fn list(&self) -> &[FileProblem] {
        &self.list
    }

    /// Number of problems of a kind that are shown.
    pub fn count(&self, kind: ProblemKind) -> usize {
        self.list.iter().filter(|problem| problem.kind == kind).count()
    }

    /// Adds a problem. When there are too many, the oldest one goes.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        (kind, message): (ProblemKind, String),
        now: Nanos,
        records: u64,
    ) {
        let file = name_of(path);
        if kind.is_state() && self.list.iter().any(|known| known.file == file && known.kind == kind) {
            return;
        }
        if self.list.len() >= MOST_PROBLEMS {
            self.list.remove(0);
        }
        self.last += 1;
        self.list.push(FileProblem { number: self.last, file, kind, message, found: now, records });
    }

    /// Forgets the problems that lasted and are over.
    pub(crate) fn retain(&mut self, lasts: impl Fn(&FileProblem) -> bool) {
        self.list.retain(|problem| !problem.kind.is_state() || lasts(problem));
    }
}

/// The last part of a path, as text.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

const MOST_PROBLEMS: usize = 64;

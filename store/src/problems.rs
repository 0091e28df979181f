//! Files of the store that cannot be used, and what happened to files while they were in use.

use std::collections::BTreeMap;
use std::path::Path;

use collector::event::Nanos;

wire::named! {
    /// The kind of a problem of a file.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum ProblemKind, name {
        /// The file, of an earlier period, cannot be opened. It is used as soon as it can.
        Unreadable => "unreadable",
        /// The file is damaged. A name `….corrupt-N` says that it was set aside.
        Damaged => "damaged",
        /// The file, or its log, was removed while it was in use.
        Removed => "removed",
        /// Another file was put in its place while it was in use.
        Replaced => "replaced",
    }
}

impl ProblemKind {
    /// Returns true if the problem lasts until somebody does something: it is not an event of the past.
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
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The reason and the remedy.
    pub message: String,
    /// When it was found, ns since 1970.
    pub found: Nanos,
    /// Records that this process had stored in the file and that are not in the store any more.
    pub records: u64,
}

/// A problem that is to be listed.
#[derive(Clone, Debug)]
pub(crate) struct NewProblem {
    pub(crate) file: String,
    pub(crate) kind: ProblemKind,
    pub(crate) message: String,
    /// Records that this process had stored in the file and that are not in the store any more.
    pub(crate) records: u64,
}

impl NewProblem {
    fn is_same(&self, known: &FileProblem) -> bool {
        self.file == known.file && self.kind == known.kind
    }
}

/// The problems that are listed: the first 64 that last, and the latest 64 of the others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Problems {
    list: Vec<FileProblem>,
    last: u64,
    /// Problems that last and are not listed, by kind.
    unlisted: BTreeMap<ProblemKind, usize>,
}

impl Problems {
    /// Returns the problems, the latest one last.
    pub fn list(&self) -> &[FileProblem] {
        &self.list
    }

    /// Returns the number of problems of a kind, with those that are not listed.
    pub fn count(&self, kind: ProblemKind) -> usize {
        let listed = self.list.iter().filter(|problem| problem.kind == kind).count();
        listed + self.unlisted.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the number of problems that last and are not listed, because 64 others are.
    pub fn more(&self) -> usize {
        self.unlisted.values().sum()
    }

    /// Adds a problem that was found at `now`. One that lasts is listed once, and only counted when there are too many; one of the past
    /// takes the place of the oldest one of the past then.
    pub(crate) fn add(&mut self, new: NewProblem, now: Nanos) {
        let is_state = new.kind.is_state();
        if is_state && self.list.iter().any(|known| new.is_same(known)) {
            return;
        }
        let alike: Vec<usize> = (0..self.list.len())
            .filter(|i| self.list[*i].kind.is_state() == is_state)
            .collect();
        if alike.len() >= MAX_PROBLEMS {
            if is_state {
                *self.unlisted.entry(new.kind).or_default() += 1;
                return;
            }
            self.list.remove(alike[0]);
        }
        self.last += 1;
        self.list.push(FileProblem {
            number: self.last,
            file: new.file,
            kind: new.kind,
            message: new.message,
            found: now,
            records: new.records,
        });
    }

    /// Sets the problems that last to `states`: others are over.
    pub(crate) fn set_states(&mut self, states: Vec<NewProblem>, now: Nanos) {
        self.list
            .retain(|known| !known.kind.is_state() || states.iter().any(|state| state.is_same(known)));
        self.unlisted.clear();
        states.into_iter().for_each(|state| self.add(state, now));
    }
}

/// Returns the last part of a path, as text.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Problems that are listed of those that last, and of those of the past.
const MAX_PROBLEMS: usize = 64;

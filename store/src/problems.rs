//! List of problems with the store's files, for the status page and metrics: lasting ones (unreadable, damaged) and past events
//! (removed or replaced while in use).

use std::collections::BTreeMap;
use std::path::Path;

use collector::event::Nanos;

/// Maximum listed problems, separately for lasting ones and past events.
const MAX_PROBLEMS: usize = 64;

wire::named! {
    /// The kind of a problem of a file.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum ProblemKind, name {
        /// The file of an earlier period cannot be opened. It is used again as soon as it can be.
        Unreadable => "unreadable",
        /// The file is damaged. The name `….corrupt-N` means that it was set aside.
        Damaged => "damaged",
        /// The file, or its log, was removed while it was in use.
        Removed => "removed",
        /// Another file was put in its place while it was in use.
        Replaced => "replaced",
    }
}

impl ProblemKind {
    /// Returns true if the problem lasts until someone fixes it, false if it is a past event.
    fn is_state(self) -> bool {
        matches!(self, Self::Unreadable | Self::Damaged)
    }
}

/// A problem of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileProblem {
    /// Unique number of the problem, counted from 1.
    pub number: u64,
    /// Name of the file in the store's directory.
    pub file: String,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The reason and the remedy.
    pub message: String,
    /// When it was found, ns since 1970.
    pub found: Nanos,
    /// Number of records that this process had stored in the file and that are lost.
    pub records: u64,
}

/// A problem before it is listed.
#[derive(Clone, Debug)]
pub(crate) struct NewProblem {
    pub(crate) file: String,
    pub(crate) kind: ProblemKind,
    pub(crate) message: String,
    /// Number of records that this process had stored in the file and that are lost.
    pub(crate) records: u64,
}

impl NewProblem {
    fn is_same(&self, known: &FileProblem) -> bool {
        self.file == known.file && self.kind == known.kind
    }
}

/// The problem list: the first 64 lasting problems and the latest 64 past events.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Problems {
    list: Vec<FileProblem>,
    last_number: u64,
    /// Number of lasting problems beyond the list, by kind.
    unlisted: BTreeMap<ProblemKind, usize>,
}

impl Problems {
    /// Returns the problems, the latest one last.
    pub fn list(&self) -> &[FileProblem] {
        &self.list
    }

    /// Returns the number of problems of a kind, including unlisted ones.
    pub fn count(&self, kind: ProblemKind) -> usize {
        let listed = self.list.iter().filter(|problem| problem.kind == kind).count();
        listed + self.unlisted.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the number of lasting problems that are not listed because the list is full.
    pub fn more(&self) -> usize {
        self.unlisted.values().sum()
    }

    /// Adds a problem found at `now`. A lasting problem is listed once, and only counted if the list is full; a past event
    /// replaces the oldest past event if the list is full.
    pub(crate) fn add(&mut self, new: NewProblem, now: Nanos) {
        let is_state = new.kind.is_state();
        if is_state && self.list.iter().any(|known| new.is_same(known)) {
            return;
        }
        let same_group: Vec<usize> = (0..self.list.len())
            .filter(|i| self.list[*i].kind.is_state() == is_state)
            .collect();
        if same_group.len() >= MAX_PROBLEMS {
            if is_state {
                *self.unlisted.entry(new.kind).or_default() += 1;
                return;
            }
            self.list.remove(same_group[0]);
        }
        self.last_number += 1;
        self.list.push(FileProblem {
            number: self.last_number,
            file: new.file,
            kind: new.kind,
            message: new.message,
            found: now,
            records: new.records,
        });
    }

    /// Replaces the lasting problems by `states`; others are solved.
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

//! Finds the paths that flows took in a time span, in whichever files of the store they are.
//!
//! A flow keeps its path for longer than a file lasts, and the rollup of a minute is stored after its end, possibly in the
//! next file. So the path of a flow at a time is the one that it took last before that time, in any file: the files of the
//! span are read, and then earlier ones, until none can have a later path.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::slice;

use collector::event::{Basis, Nanos};
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::guard::Deadline;
use crate::hasher::{FastSet, Seeded};
use crate::identity::FileIdentity;
use crate::keys::FlowSet;
use crate::paths::{MAX_PATHS_PER_FLOW, PathHistory, Paths};
use crate::query::QueryError;
use crate::reader::{DatedFile, Reader};
use crate::rows::{int, unsigned};
use crate::schema::Features;

/// Maximum number of files before a span that are searched for the paths that flows had at its start.
const MAX_EARLIER_FILES: usize = 32;

/// The paths that flows took in a time span.
#[derive(Default, Debug)]
pub(crate) struct TakenPaths {
    /// The nodes of each path, by its index.
    pub(crate) nodes: Vec<Vec<u32>>,
    flows: HashMap<FlowKey, FlowPaths, Seeded>,
}

/// The paths that one flow took.
#[derive(Default, Debug)]
pub(crate) struct FlowPaths {
    /// The time from which the flow took each path, with the path's index, in ascending order. Only the first one may be
    /// before the span. Equal paths do not follow each other.
    pub(crate) starts: Vec<(Nanos, usize)>,
    /// The basis of the flow's latest latency.
    pub(crate) basis: Option<Basis>,
    /// True if the flow changed its path more often than is read; the earliest changes are missing.
    pub(crate) is_cut: bool,
    /// True if the flow began with the first of `starts`, or before the span. Otherwise, its path before is not known.
    is_whole: bool,
}

/// The flows whose paths are searched, each with the end of the first interval in which its path is needed. A flow that began
/// before that time had no path before; any other had one, possibly in an earlier file.
pub(crate) type Searched = HashMap<FlowKey, Nanos, Seeded>;

/// The extent of a search: paths before `to`, from the one taken last before or at `from`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSearch {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    /// Only the last path of each flow is needed, and the basis of its latency.
    pub(crate) only_last: bool,
}

/// A start of a path. Of starts at one time, that of the newest file counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Start {
    ts: Nanos,
    /// Position of the file in the order of their periods.
    file: usize,
    path: usize,
}

/// The paths of a flow that were found so far.
#[derive(Default, Debug)]
struct Found {
    starts: Vec<Start>,
    /// The earliest start, and whether the flow began with it.
    first: Option<FirstStart>,
    basis: Option<Basis>,
    /// Time before which a file has more paths of the flow than were read.
    cut: Option<Nanos>,
}

/// The earliest start of a flow's paths.
#[derive(Clone, Copy, Debug)]
struct FirstStart {
    ts: Nanos,
    /// The time from which the flow had the path if no earlier start is stored. A state of a flow shows the path that it took at
    /// some time since it began: without an event about a change, when it began.
    since: Nanos,
    /// The flow began after the start of the span, so there is no earlier path to be found.
    is_begin: bool,
}

/// The paths of a flow in a file.
struct InFile {
    flow: FlowKey,
    basis: Option<Basis>,
    first: Option<FirstStart>,
    /// Start times of the paths, with the paths' indexes.
    starts: Vec<(Nanos, usize)>,
}

impl TakenPaths {
    /// Returns true if no flow has a path.
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns the paths of a flow, if any are stored.
    pub(crate) fn get(&self, flow: &FlowKey) -> Option<&FlowPaths> {
        self.flows.get(flow)
    }

    /// Returns the starts of a flow's paths.
    pub(crate) fn starts(&self, flow: &FlowKey) -> &[(Nanos, usize)] {
        self.get(flow).map_or(&[], |paths| &paths.starts)
    }

    /// Returns the nodes of the path that the flow took last, or none if no path is stored.
    pub(crate) fn last(&self, flow: &FlowKey) -> Vec<u32> {
        let last = self.starts(flow).last();
        last.and_then(|(_, path)| self.nodes.get(*path).cloned())
            .unwrap_or_default()
    }
}

impl FlowPaths {
    /// Returns true if the flow changed its path within a time, its ends excluded.
    pub(crate) fn changes_within(&self, from: Nanos, to: Nanos) -> bool {
        self.has_start_within(1, from, to)
    }

    /// Returns true if not all of a time, its ends excluded, belongs to one path, because the flow changed it or because its
    /// first path is known only from some time on.
    pub(crate) fn is_divided_within(&self, from: Nanos, to: Nanos) -> bool {
        self.has_start_within(usize::from(self.is_whole), from, to)
    }

    /// Returns true if one of the starts from the index `first` on is within a time, its ends excluded.
    fn has_start_within(&self, first: usize, from: Nanos, to: Nanos) -> bool {
        let after = self.starts.partition_point(|(ts, _)| *ts <= from).max(first);
        self.starts.get(after).is_some_and(|(ts, _)| *ts < to)
    }
}

/// Returns a note that the paths of so many flows, or other `things`, are unknown, unless there are none.
pub fn unknown_paths_note(count: u64, things: &str) -> Vec<String> {
    let note = match count {
        0 => return Vec::new(),
        1 => format!(
            "the path of 1 {things} is not known: it is not stored, or only in files long before this time"
        ),
        _ => format!(
            "the paths of {count} {things}s are not known: they are not stored, or only in files long before this time"
        ),
    };
    vec![note]
}

impl Reader {
    /// Finds the paths of `flows` in the files of a time, and in earlier ones the paths that they had at its start.
    pub(crate) fn find_paths(
        &self,
        flows: &Searched,
        search: PathSearch,
        deadline: &Deadline,
    ) -> Result<TakenPaths, QueryError> {
        let mut collected = Collected::default();
        if flows.is_empty() {
            return Ok(collected.finish(search));
        }
        let mut files = self.files_before(search.to)?;
        files.sort_by_key(|file| Reverse((file.end, file.order)));
        let (recent, earlier) = files.split_at(files.partition_point(|file| file.end >= search.from));
        let all: FlowSet = flows.keys().copied().collect();
        collected.add_files(self, recent, &all, search, deadline)?;
        for file in earlier.iter().take(MAX_EARLIER_FILES) {
            let open = collected.open_at(flows, file.end, search);
            if open.is_empty() {
                break;
            }
            collected.add_files(self, slice::from_ref(file), &open, search, deadline)?;
        }
        Ok(collected.finish(search))
    }
}

/// The paths that were found in the files read so far.
#[derive(Default)]
struct Collected {
    paths: Paths,
    flows: HashMap<FlowKey, Found, Seeded>,
}

impl Collected {
    /// Reads the paths of flows in some files.
    fn add_files(
        &mut self,
        reader: &Reader,
        files: &[DatedFile],
        flows: &FlowSet,
        search: PathSearch,
        deadline: &Deadline,
    ) -> Result<(), QueryError> {
        let identities: Vec<FileIdentity> = files.iter().map(|file| file.file.clone()).collect();
        reader.query_files(
            &identities,
            deadline,
            |i, conn, features| {
                let selected = reader.keys().find(conn, &identities[i], flows)?;
                read_file(conn, features, search, &selected)
            },
            |i, (file_paths, file_flows)| {
                let indexes = self.paths.join(file_paths);
                for in_file in file_flows {
                    self.add(files[i].order, in_file, &indexes, search.from);
                }
                Ok(())
            },
        )
    }

    fn add(&mut self, file: usize, in_file: InFile, indexes: &[usize], from: Nanos) {
        let InFile {
            flow,
            basis,
            first,
            starts,
        } = in_file;
        let found = self.flows.entry(flow).or_default();
        // The latest files are read first.
        found.basis = found.basis.or(basis);
        if let Some(first) = first
            && found.first.is_none_or(|known| first.ts < known.ts)
        {
            found.first = Some(first);
        }
        if starts.len() >= MAX_PATHS_PER_FLOW {
            let first = first.map(|first| first.ts);
            found.cut = found.cut.max(first.filter(|first| *first > from));
        }
        found.starts.extend(starts.into_iter().map(|(ts, path)| Start {
            ts,
            file,
            path: indexes[path],
        }));
    }

    /// Returns the flows of which a file before the span, which ends at `end`, may have a path that is needed: one that was
    /// taken later than the paths known so far, before or at the start of the span.
    fn open_at(&self, flows: &Searched, end: Nanos, search: PathSearch) -> FlowSet {
        let open = flows.iter().filter(|(flow, needed)| {
            self.flows
                .get(*flow)
                .is_none_or(|found| found.is_open_at(end, **needed, search))
        });
        open.map(|(flow, _)| *flow).collect()
    }

    fn finish(self, search: PathSearch) -> TakenPaths {
        let flows = self.flows.into_iter();
        TakenPaths {
            nodes: self.paths.into_nodes(),
            flows: flows
                .map(|(flow, found)| (flow, found.finish(search.from)))
                .collect(),
        }
    }
}

impl Found {
    /// See [`Collected::open_at`]; the path is needed before the time `needed`.
    fn is_open_at(&self, end: Nanos, needed: Nanos, search: PathSearch) -> bool {
        let Some(first) = self.first else { return true };
        let mut starts = self.starts.iter();
        let is_enough = if search.only_last {
            starts.any(|start| start.ts >= end)
        } else if first.ts > search.from {
            first.is_begin && first.ts < needed
        } else {
            starts.any(|start| (end..=search.from).contains(&start.ts))
        };
        !is_enough && self.cut.is_none()
    }

    fn finish(mut self, from: Nanos) -> FlowPaths {
        let is_cut = self.cut.is_some();
        if let Some(cut) = self.cut {
            // What other files have of the time before is not all that there was.
            self.starts.retain(|start| start.ts >= cut);
        }
        self.starts.sort_unstable();
        if let (Some(first), Some(earliest), false) = (self.first, self.starts.first_mut(), is_cut) {
            earliest.ts = first.since;
        }
        let mut starts: Vec<(Nanos, usize)> = Vec::with_capacity(self.starts.len());
        for Start { ts, path, .. } in self.starts {
            match starts.last_mut() {
                Some(last) if last.0 == ts || ts <= from => *last = (ts, path),
                _ => starts.push((ts, path)),
            }
        }
        starts.dedup_by_key(|(_, path)| *path);
        FlowPaths {
            starts,
            basis: self.basis,
            is_cut,
            is_whole: !is_cut
                && self
                    .first
                    .is_some_and(|first| first.is_begin || first.since <= from),
        }
    }
}

/// Reads the paths of the `selected` flows in one file.
fn read_file(
    conn: &Connection,
    features: Features,
    search: PathSearch,
    selected: &[(i64, FlowKey)],
) -> rusqlite::Result<(Paths, Vec<InFile>)> {
    let PathSearch { from, to, only_last } = search;
    let numbers: FastSet<i64> = selected.iter().map(|(number, _)| *number).collect();
    let mut history = PathHistory::read(conn, features, from, to, &numbers, only_last)?;
    let mut paths = Paths::default();
    let mut flows = Vec::with_capacity(selected.len());
    for (number, flow) in selected {
        let mut basis = None;
        if only_last {
            basis = history.basis(conn, *number)?;
        }
        let mut starts = Vec::new();
        for (ts, path) in history.paths(conn, *number, from, to)? {
            starts.push((ts, paths.index(conn, path)?));
        }
        let first = match starts.iter().map(|(ts, _)| *ts).min() {
            Some(ts) if ts > from && !only_last => Some(first_start(conn, *number, ts, from)?),
            Some(ts) => Some(FirstStart {
                ts,
                since: ts,
                is_begin: false,
            }),
            None => None,
        };
        flows.push(InFile {
            flow: *flow,
            basis,
            first,
            starts,
        });
    }
    Ok((paths, flows))
}

/// Returns what is known of a flow's first path in a file, which starts at `ts`, after the start of the span.
fn first_start(conn: &Connection, flow: i64, ts: Nanos, from: Nanos) -> rusqlite::Result<FirstStart> {
    // `+` hides the columns from the planner: rows of this time are found by the primary key.
    let sql = "SELECT max(kind = (SELECT id FROM f0.kind_name WHERE kind = 'new') AND previous IS NULL) FROM f0.event_data
               WHERE ts = ?1 AND +flow = ?2 AND metric = ?3 AND +path IS NOT NULL
               AND +kind IN (SELECT id FROM f0.kind_name WHERE kind IN ('new', 'path_change', 'path_loop'))";
    let mut select = conn.prepare_cached(sql)?;
    let parameters = [int(ts), flow, Metric::FlowPath as i64];
    let begins: Option<bool> = select.query_row(parameters, |row| row.get(0))?;
    if let Some(is_begin) = begins {
        return Ok(FirstStart {
            ts,
            since: ts,
            is_begin,
        });
    }
    let mut select = conn.prepare_cached("SELECT first_seen FROM f0.flow_data WHERE flow = ?1")?;
    let first_seen = select.query_row([flow], |row| unsigned(row, 0)).optional()?;
    let since = first_seen.map_or(ts, |first_seen| first_seen.min(ts));
    Ok(FirstStart {
        ts,
        since,
        is_begin: since > from,
    })
}

//! The paths that flows took in a time span, each with its flows and reports.
//!
//! A flow that changed its path counts for each, with the reports of the rollups in which it took it. Where it changed, hours are
//! read as shorter rollups, down to minutes. The reports of a minute are one number: if the path changed in it, they count for
//! the path at its end, and a note says how many such reports there are.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use collector::event::Nanos;
use rusqlite::Connection;
use wire::FlowKey;

use crate::guard::Deadline;
use crate::hasher::{FastMap, FastSet, Seeded};
use crate::keys::FlowSet;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::spans::{Piece, Span, SpanSum, read_some_flows};
use crate::taken::{FlowPaths, PathSearch, TakenPaths, unknown_paths_note};

/// Maximum number of rollups that are read to divide those of flows that changed their paths.
const MAX_ROLLUPS: usize = 4_000_000;

/// A path in a span of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathSpan {
    /// The nodes of the path; `u32::MAX` = unavailable.
    pub path: Vec<u32>,
    /// Number of flows that took it.
    pub flows: u64,
    /// Number of reports of these flows while they took it.
    pub reports: u64,
    /// Time when the last flow left it, or the end of the last minute in which it was reported, ns.
    pub last: Nanos,
}

/// The paths of a span of time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathSpans {
    /// The paths by descending number of flows.
    pub paths: Vec<PathSpan>,
    /// The flows that took several paths.
    pub moved: Vec<MovedFlows>,
    /// There are more flows than the limit.
    pub truncated: bool,
}

/// Flows that took the same paths, more than one, in a span of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedFlows {
    /// The paths, as ascending indexes into [`PathSpans::paths`].
    pub paths: Vec<usize>,
    /// Number of flows. Each of them is counted in all these paths.
    pub flows: u64,
}

/// Accumulates the flows and reports of paths.
#[derive(Debug)]
pub struct PathTally {
    paths: Vec<PathSpan>,
    /// The paths, by their indexes, for which a flow was counted.
    counted: HashMap<FlowKey, Vec<usize>, Seeded>,
    /// Number of reports in minutes in which their flow changed its path.
    divided: u64,
    /// Number of reports of flows whose path was not known.
    unknown: u64,
}

impl PathTally {
    /// Returns an empty tally. `nodes` are the nodes of each path, by its index.
    pub fn new(nodes: Vec<Vec<u32>>) -> Self {
        let paths = nodes.into_iter().map(|path| PathSpan {
            path,
            flows: 0,
            reports: 0,
            last: 0,
        });
        Self {
            paths: paths.collect(),
            counted: HashMap::default(),
            divided: 0,
            unknown: 0,
        }
    }

    /// Adds the reports of a flow in rollups between `from` and `to`. `starts` are the times from which the flow took a path, in
    /// ascending order, with the paths' indexes; equal paths do not follow each other.
    pub fn add(&mut self, flow: FlowKey, starts: &[(Nanos, usize)], from: Nanos, to: Nanos, reports: u64) {
        let end = starts.partition_point(|(ts, _)| *ts < to);
        let Some(last) = end.checked_sub(1) else {
            self.unknown = self.unknown.saturating_add(reports);
            return;
        };
        let begun = starts.partition_point(|(ts, _)| *ts <= from);
        let first = begun.saturating_sub(1).min(last);
        let counted = self.counted.entry(flow).or_default();
        for i in first..=last {
            let index = starts[i].1;
            let next = starts.get(i + 1).map_or(Nanos::MAX, |(ts, _)| *ts);
            let path = &mut self.paths[index];
            if !counted.contains(&index) {
                counted.push(index);
                path.flows += 1;
            }
            path.last = path.last.max(next.min(to));
        }
        let path = &mut self.paths[starts[last].1];
        path.reports = path.reports.saturating_add(reports);
        if first < last {
            self.divided = self.divided.saturating_add(reports);
        }
    }

    /// Returns the paths that were used and notes about what is not exact. `truncated` says that there are more flows.
    pub fn finish(mut self, truncated: bool) -> (PathSpans, Vec<String>) {
        let mut notes = divided_note(self.divided);
        notes.extend(unknown_paths_note(self.unknown, "report"));
        let mut order: Vec<usize> = (0..self.paths.len())
            .filter(|index| self.paths[*index].flows > 0)
            .collect();
        order.sort_by(|a, b| {
            let [a, b] = [a, b].map(|index| &self.paths[*index]);
            b.flows.cmp(&a.flows).then_with(|| a.path.cmp(&b.path))
        });
        let mut places = vec![0; self.paths.len()];
        for (place, index) in order.iter().enumerate() {
            places[*index] = place;
        }
        let mut moved: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for indexes in self.counted.values().filter(|indexes| indexes.len() > 1) {
            let mut taken: Vec<usize> = indexes.iter().map(|index| places[*index]).collect();
            taken.sort_unstable();
            *moved.entry(taken).or_default() += 1;
        }
        let moved = moved
            .into_iter()
            .map(|(paths, flows)| MovedFlows { paths, flows });
        let paths = order.into_iter().map(|index| {
            let PathSpan {
                flows, reports, last, ..
            } = self.paths[index];
            let path = mem::take(&mut self.paths[index].path);
            PathSpan {
                path,
                flows,
                reports,
                last,
            }
        });
        let spans = PathSpans {
            paths: paths.collect(),
            moved: moved.collect(),
            truncated,
        };
        (spans, notes)
    }
}

/// Returns a note that so many reports are of minutes in which their flow changed its path, unless there are none.
pub fn divided_note(reports: u64) -> Vec<String> {
    if reports == 0 {
        return Vec::new();
    }
    vec![format!(
        "reports are counted by the minute: {reports} of them are of minutes in which their flow changed its path, and count for the \
         path at the end"
    )]
}

impl Reader {
    /// Returns the paths of a time span, most used first.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_spans(&self, span: Span) -> Result<PathSpans, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let flows = self.read_span_flows(span, None, &deadline)?;
            let search = PathSearch {
                from: span.from(),
                to: span.to(),
                only_last: false,
            };
            let taken = self.find_paths(&flows.searched(span), search, &deadline)?;
            let mut tally = PathTally::new(taken.nodes.clone());
            let mut changed = FlowSet::default();
            for (flow, sum) in &flows.sums {
                let starts = taken.starts(flow);
                if is_divided(taken.get(flow), *sum) {
                    changed.insert(*flow);
                } else {
                    tally.add(*flow, starts, sum.first, sum.last, sum.count);
                }
            }
            self.add_changed(span, &changed, &taken, &mut tally, &deadline)?;
            deadline.check()?;
            let (spans, notes) = tally.finish(flows.truncated);
            self.remember_notes(&notes);
            Ok(spans)
        })
    }

    /// Adds the reports of flows that changed their paths.
    fn add_changed(
        &self,
        span: Span,
        changed: &FlowSet,
        taken: &TakenPaths,
        tally: &mut PathTally,
        deadline: &Deadline,
    ) -> Result<(), QueryError> {
        if changed.is_empty() {
            return Ok(());
        }
        let mut budget = MAX_ROLLUPS;
        for file in self.files_in(span.from(), span.to())? {
            self.query_file(&file, deadline, |conn, features| {
                let flows: FastMap<i64, FlowKey> =
                    self.keys().find(conn, &file, changed)?.into_iter().collect();
                let unread = span.pieces_in(features);
                read_undivided(conn, unread, &flows, taken, &mut budget, &mut |flow, sum| {
                    tally.add(flow, taken.starts(&flow), sum.first, sum.last, sum.count);
                })
            })?;
        }
        Ok(())
    }
}

/// Returns true if the reports of a sum of rollups do not all belong to one path.
fn is_divided(paths: Option<&FlowPaths>, sum: SpanSum) -> bool {
    paths.is_some_and(|paths| paths.is_divided_within(sum.first, sum.last))
}

/// Calls `add` with the rollups of flows in a file: the longest in which a flow kept its path, and minutes in which it changed it;
/// without `budget`, the number of rollups to read, also longer ones in which it did.
fn read_undivided(
    conn: &Connection,
    pieces: Vec<Piece>,
    flows: &FastMap<i64, FlowKey>,
    taken: &TakenPaths,
    budget: &mut usize,
    add: &mut dyn FnMut(FlowKey, SpanSum),
) -> rusqlite::Result<()> {
    let all: FastSet<i64> = flows.keys().copied().collect();
    let whole = pieces.into_iter().map(|piece| (piece, all.clone()));
    let mut unread: Vec<(Piece, FastSet<i64>)> = whole.collect();
    while let Some((piece, numbers)) = unread.pop() {
        let mut divided: BTreeMap<Nanos, FastSet<i64>> = BTreeMap::new();
        let can_divide = piece.interval > 60 && *budget > 0;
        let count = read_some_flows(conn, piece, &numbers, &mut |number, sum| {
            let Some(flow) = flows.get(&number) else { return };
            if can_divide && is_divided(taken.get(flow), sum) {
                divided.entry(sum.first).or_default().insert(number);
            } else {
                add(*flow, sum);
            }
        })?;
        *budget = budget.saturating_sub(count);
        let shorter = divided.into_iter();
        unread.extend(shorter.map(|(from, numbers)| (piece.shorter(from), numbers)));
    }
    Ok(())
}

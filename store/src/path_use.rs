//! Path history of selected flows in a time span: the path changes, and how long and with how many reports each path was
//! used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map, hash_map::Entry};
use std::net::IpAddr;

use collector::event::Nanos;
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::hasher::{FastSet, Seeded};
use crate::intern::parse_flow;
use crate::keys::{FlowSet, Keys, find_flow};
use crate::paths::{MAX_PATHS_PER_FLOW, Paths, paths_sql};
use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{int, unsigned};
use crate::schema::Features;
use crate::spans::{MAX_LOOKUP_FLOWS, MINUTE, Piece, Span, SpanSum, read_some_flows};
use crate::taken::PathSearch;

/// Maximum number of flows whose current path is tracked: about 20 MB.
const MAX_FLOWS: usize = 200_000;
/// Maximum number of changes; older ones are dropped.
const MAX_CHANGES: usize = 100_000;
/// Maximum number of selected flows per file.
const MAX_SELECTED_FLOWS: usize = 20_000;
/// Maximum number of flows in a tally.
const MAX_TALLIED_FLOWS: usize = 20_000;
/// Maximum number of intervals and paths for one answer: about 30 MB.
const MAX_PARTS: usize = 1_000_000;
/// Maximum number of per-minute lookups; each takes a few microseconds.
const MAX_LOOKUPS: u64 = 10_000;
/// Longest time for which a flow's count may not be stored yet: minutes are stored up to two minutes late.
const MAX_COUNT_DELAY: Nanos = 3 * MINUTE;

/// Selects the flows that match all given conditions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowSelector {
    /// The flow with this key.
    pub flow: Option<FlowKey>,
    /// Flows from this source address.
    pub src: Option<String>,
    /// Flows to this destination address.
    pub dst: Option<String>,
}

/// A change of a flow's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathChange {
    /// Time when the new path was first seen, ns since 1970.
    pub ts: Nanos,
    /// The flow whose path changed.
    pub flow: FlowKey,
    /// The nodes before; `u32::MAX` = unavailable. Empty if they are not stored in the files of the span.
    pub before: Vec<u32>,
    /// The nodes after the change.
    pub after: Vec<u32>,
}

/// Changes of several flows between the same two paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeGroup {
    /// The nodes before, as in a [`PathChange`].
    pub before: Vec<u32>,
    /// The nodes after the changes.
    pub after: Vec<u32>,
    /// Number of flows with this change.
    pub flows: u64,
    /// Number of changes: a flow may have changed back and forth.
    pub changes: u64,
    /// Time of the first change, ns since 1970.
    pub first: Nanos,
    /// Time of the last change, ns since 1970.
    pub last: Nanos,
}

/// The changes of paths in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathChanges {
    /// The latest changes, newest first.
    pub changes: Vec<PathChange>,
    /// Groups of equal changes up to the limit, those with the most flows first.
    pub groups: Vec<ChangeGroup>,
    /// Number of groups, including those beyond the limit.
    pub group_total: u64,
    /// Number of changes, including those beyond the limit.
    pub total: u64,
    /// True if there are more changes than the limit; the oldest are missing.
    pub truncated: bool,
}

/// The use of one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathUse {
    /// The nodes of the path. Empty if it is not stored which path was used.
    pub path: Vec<u32>,
    /// Number of flows that took it.
    pub flows: u64,
    /// Number of reports of those flows in that time.
    pub reports: u64,
    /// Sum over the flows of the time on this path, ns.
    pub time: Nanos,
    /// Start of its use in the span, ns since 1970.
    pub first: Nanos,
    /// End of its use in the span, ns since 1970.
    pub last: Nanos,
}

/// The paths that some flows used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathUses {
    /// The paths, longest used first.
    pub uses: Vec<PathUse>,
    /// Number of flows that were counted.
    pub flows: u64,
    /// Length of the intervals, ns, over which known report counts were spread evenly.
    pub spread: Nanos,
    /// True if there are more flows, path changes or intervals than the limits allow.
    pub truncated: bool,
}

/// Reports of a flow in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPart {
    /// Start of the part, ns since 1970.
    pub from: Nanos,
    /// End of the part, ns since 1970.
    pub to: Nanos,
    /// Number of reports in the part.
    pub reports: u64,
}

/// Times of a flow's first and latest report, ns since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// The time of the first report.
    pub first: Nanos,
    /// The time of the latest report.
    pub last: Nanos,
}

/// Report counts per interval and path history of one flow.
#[derive(Default, Debug)]
struct FlowUse {
    intervals: Vec<PathPart>,
    /// Start times of the flow's paths, with the paths' indexes.
    paths: BTreeSet<(Nanos, usize)>,
}

/// Accumulates how long and how often paths were used.
#[derive(Debug)]
pub struct UseTally {
    span: Span,
    flows: HashMap<FlowKey, FlowUse, Seeded>,
    paths: Paths,
    /// Number of intervals and paths that may still be added.
    room_left: usize,
    spread: Nanos,
    truncated: bool,
}

/// Accumulates the path changes of flows.
#[derive(Debug)]
pub struct ChangeTally {
    span: Span,
    paths: Paths,
    /// Current path of each flow at the present point of the scan.
    current_paths: HashMap<FlowKey, usize, Seeded>,
    changes: Vec<IndexedChange>,
    /// The first paths in the span of flows that had another before, if that one is to be looked up.
    firsts: Option<HashMap<FlowKey, FirstPath, Seeded>>,
    truncated: bool,
}

/// The first path of a flow in the span.
#[derive(Clone, Copy, Debug)]
struct FirstPath {
    ts: Nanos,
    path: usize,
}

/// A change between two paths, by their indexes. `before` is `None` if the earlier path is not stored.
#[derive(Clone, Copy, Debug)]
struct IndexedChange {
    ts: Nanos,
    flow: FlowKey,
    before: Option<usize>,
    after: usize,
}

impl FlowSelector {
    /// Returns true if a flow is selected.
    pub fn matches(&self, flow: &FlowKey) -> bool {
        self.flow.is_none_or(|expected| expected == *flow)
            && self
                .src
                .as_ref()
                .is_none_or(|src| has_address(flow, flow.src(), src))
            && self
                .dst
                .as_ref()
                .is_none_or(|dst| has_address(flow, flow.dst(), dst))
    }
}

/// Returns true if `address`, one of the flow's, is `expected`. A flow known only by its Flow ID has no addresses.
fn has_address(flow: &FlowKey, address: IpAddr, expected: &str) -> bool {
    flow.known_id().is_none() && address.to_string() == expected
}

impl Reader {
    /// Returns the latest path changes in a time span and the groups of equal changes, at most `limit` of each.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_changes(
        &self,
        span: Span,
        flows: &FlowSelector,
        limit: usize,
    ) -> Result<PathChanges, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut changes = ChangeTally::new(span);
            // The path before the first change may be in an earlier file.
            changes.firsts = Some(HashMap::default());
            for file in self.files_in(span.from(), span.to())? {
                self.query_file(&file, &deadline, |conn, features| {
                    changes.paths.next_file();
                    let selected_number = match flows.flow {
                        Some(flow) => match find_flow(conn, flow)? {
                            Some(number) => Some(number),
                            None => return Ok(()),
                        },
                        None => None,
                    };
                    let keys = match selected_number {
                        Some(_) => Keys::OnDemand,
                        None => self.keys().load(conn, &file, usize::MAX)?,
                    };
                    let mut current = 0;
                    let mut flow = None;
                    each_path(conn, features, selected_number, span.to(), |number, ts, path| {
                        if number != current {
                            current = number;
                            flow = keys.get(conn, number)?.filter(|flow| flows.matches(flow));
                        }
                        let Some(flow) = flow else { return Ok(()) };
                        let path = changes.paths.index(conn, path)?;
                        changes.add_index(ts, flow, path, || is_change(conn, number, ts))
                    })
                })?;
            }
            let search = PathSearch {
                from: span.from().saturating_sub(1),
                to: span.from(),
                only_last: false,
            };
            let firsts = changes.firsts.take().unwrap_or_default();
            let flows = firsts.keys().map(|flow| (*flow, search.to)).collect();
            let taken = self.find_paths(&flows, search, &deadline)?;
            for (flow, first) in firsts {
                let known = taken.starts(&flow).last();
                let before = known.map(|(_, path)| changes.paths.insert(taken.nodes[*path].clone()));
                if before != Some(first.path) {
                    changes.push(IndexedChange {
                        ts: first.ts,
                        flow,
                        before,
                        after: first.path,
                    });
                }
            }
            deadline.check()?;
            Ok(changes.finish(limit))
        })
    }

    /// Returns how flows used paths in a time span, for at most `limit` paths.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_uses(&self, span: Span, flows: &FlowSelector, limit: usize) -> Result<PathUses, QueryError> {
        self.uses_within(span, MAX_PARTS, flows, limit)
    }

    fn uses_within(
        &self,
        span: Span,
        room_left: usize,
        flows: &FlowSelector,
        limit: usize,
    ) -> Result<PathUses, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut uses = UseTally::new(span);
            uses.room_left = room_left;
            let files = self.files_in(span.from(), span.to())?;
            let mut selected = FlowSet::default();
            for file in &files {
                self.query_file(file, &deadline, |conn, _| {
                    let (numbers, more) = select_flows(conn, flows)?;
                    uses.truncated |= more;
                    selected.extend(numbers.into_values());
                    Ok(())
                })?;
            }
            // Of one length for all files, or a time would count twice.
            let pieces = use_pieces(span, selected.len() as u64);
            let mut counts = FlowCounts::new(room_left);
            for file in &files {
                self.query_file(file, &deadline, |conn, features| {
                    let (numbers, _) = select_flows(conn, flows)?;
                    counts.add_file(conn, features, &pieces, span, &numbers)
                })?;
            }
            uses.spread(counts.spread);
            uses.truncated |= counts.truncated;
            let counted = counts.finish(span);
            let search = PathSearch {
                from: span.from(),
                to: span.to(),
                only_last: false,
            };
            let flows = counted
                .iter()
                .map(|(flow, parts)| (*flow, first_end(parts)))
                .collect();
            let taken = self.find_paths(&flows, search, &deadline)?;
            for (flow, parts) in counted {
                let paths = taken.starts(&flow).iter();
                let paths = paths.map(|(ts, path)| (*ts, uses.paths.insert(taken.nodes[*path].clone())));
                let paths = paths.collect();
                uses.truncated |= taken.get(&flow).is_some_and(|paths| paths.is_cut);
                uses.insert(flow, parts, paths);
            }
            deadline.check()?;
            Ok(uses.finish(limit))
        })
    }
}

impl ChangeTally {
    /// Returns an empty tally for a time span.
    pub fn new(span: Span) -> Self {
        Self {
            span,
            paths: Paths::default(),
            current_paths: HashMap::default(),
            changes: Vec::new(),
            firsts: None,
            truncated: false,
        }
    }

    /// Marks the answer as truncated: there were too many changes, and the oldest are missing.
    pub fn set_truncated(&mut self) {
        self.truncated = true;
    }

    /// Records that a flow takes a path from `ts` on. Calls for one flow must be in time order. `is_change` is true if an event
    /// reports that the flow had another path before.
    pub fn add(&mut self, ts: Nanos, flow: FlowKey, path: Vec<u32>, is_change: bool) {
        let index = self.paths.insert(path);
        // Only a query in `is_change` could fail.
        let _ = self.add_index(ts, flow, index, || Ok(is_change));
    }

    /// Records that a flow takes the path with index `path` from `ts` on.
    fn add_index(
        &mut self,
        ts: Nanos,
        flow: FlowKey,
        path: usize,
        is_change: impl FnOnce() -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<()> {
        let span = self.span;
        let is_full = self.current_paths.len() >= MAX_FLOWS;
        let before = match self.current_paths.entry(flow) {
            Entry::Occupied(mut known) => Some(known.insert(path)),
            Entry::Vacant(_) if is_full => {
                self.truncated = true;
                return Ok(());
            }
            Entry::Vacant(free) => {
                free.insert(path);
                if ts < span.from() {
                    return Ok(());
                }
                // The earlier path is in a file outside the span, or was never stored.
                let is_change = is_change()?;
                if !is_change {
                    return Ok(());
                }
                if let Some(firsts) = &mut self.firsts {
                    firsts.insert(flow, FirstPath { ts, path });
                    return Ok(());
                }
                None
            }
        };
        if before == Some(path) || ts < span.from() {
            return Ok(());
        }
        self.push(IndexedChange {
            ts,
            flow,
            before,
            after: path,
        });
        Ok(())
    }

    fn push(&mut self, change: IndexedChange) {
        self.changes.push(change);
        if self.changes.len() >= 2 * MAX_CHANGES {
            self.truncate_to_latest(MAX_CHANGES);
            self.truncated = true;
        }
    }

    fn truncate_to_latest(&mut self, most: usize) {
        self.changes
            .sort_unstable_by_key(|change| Reverse((change.ts, change.flow)));
        self.changes.truncate(most);
    }

    /// Returns the latest changes and the largest groups, at most `limit` of each.
    pub fn finish(mut self, limit: usize) -> PathChanges {
        let truncated = self.truncated || self.changes.len() > MAX_CHANGES;
        self.truncate_to_latest(MAX_CHANGES);
        let nodes = self.paths.into_nodes();
        let latest = self.changes.iter().take(limit);
        let changes = latest
            .map(|change| PathChange {
                ts: change.ts,
                flow: change.flow,
                before: nodes_at(&nodes, change.before),
                after: nodes_at(&nodes, Some(change.after)),
            })
            .collect();
        let mut groups: BTreeMap<(Option<usize>, usize), ChangeGroup> = BTreeMap::new();
        let mut seen: HashSet<(Option<usize>, usize, FlowKey), Seeded> = HashSet::default();
        for IndexedChange {
            ts,
            flow,
            before,
            after,
        } in self.changes.iter().copied()
        {
            let group = groups.entry((before, after)).or_insert_with(|| ChangeGroup {
                before: nodes_at(&nodes, before),
                after: nodes_at(&nodes, Some(after)),
                flows: 0,
                changes: 0,
                first: ts,
                last: ts,
            });
            group.flows += u64::from(seen.insert((before, after, flow)));
            group.changes += 1;
            group.first = group.first.min(ts);
            group.last = group.last.max(ts);
        }
        let mut groups: Vec<ChangeGroup> = groups.into_values().collect();
        groups.sort_by(|a, b| {
            let by_size = (b.flows, b.changes).cmp(&(a.flows, a.changes));
            by_size.then_with(|| (&a.before, &a.after).cmp(&(&b.before, &b.after)))
        });
        let group_total = groups.len() as u64;
        groups.truncate(limit);
        PathChanges {
            changes,
            groups,
            group_total,
            total: self.changes.len() as u64,
            truncated,
        }
    }
}

/// Returns the end of the first interval.
fn first_end(parts: &[PathPart]) -> Nanos {
    parts.iter().map(|part| part.to).min().unwrap_or(0)
}

/// Returns the nodes of a path by its index, or none if the path is not stored.
fn nodes_at(nodes: &[Vec<u32>], path: Option<usize>) -> Vec<u32> {
    path.and_then(|path| nodes.get(path).cloned()).unwrap_or_default()
}

impl UseTally {
    /// Returns an empty tally for a time span.
    pub fn new(span: Span) -> Self {
        Self {
            span,
            flows: HashMap::default(),
            paths: Paths::default(),
            room_left: MAX_PARTS,
            spread: 0,
            truncated: false,
        }
    }

    /// Marks the answer as truncated: there were too many flows or intervals.
    pub fn set_truncated(&mut self) {
        self.truncated = true;
    }

    /// Records that report counts are known per interval of this length, ns.
    pub fn spread(&mut self, length: Nanos) {
        self.spread = self.spread.max(length);
    }

    /// Adds a flow. `parts` are its report counts per interval; `lifetime` is `None` if it is not stored;
    /// `paths` are the start times of its paths in the span, including the path at the start of the span.
    pub fn add(
        &mut self,
        flow: FlowKey,
        mut parts: Vec<PathPart>,
        lifetime: Option<Lifetime>,
        paths: impl Iterator<Item = (Nanos, Vec<u32>)>,
    ) {
        limit_to_lifetime(&mut parts, lifetime, self.span);
        if parts.is_empty() {
            return;
        }
        let paths = paths.map(|(ts, path)| (ts, self.paths.insert(path))).collect();
        self.insert(flow, parts, paths);
    }

    /// Inserts a flow, if the limits allow it.
    fn insert(&mut self, flow: FlowKey, parts: Vec<PathPart>, paths: Vec<(Nanos, usize)>) {
        self.truncated |= paths.len() >= MAX_PATHS_PER_FLOW;
        let is_full = self.flows.len() >= MAX_TALLIED_FLOWS && !self.flows.contains_key(&flow);
        // All or nothing: intervals without their paths would count for the unknown path.
        let needed = parts.len() + paths.len();
        if is_full || needed > self.room_left {
            self.truncated = true;
            return;
        }
        self.room_left -= needed;
        let flow_use = self.flows.entry(flow).or_default();
        flow_use.intervals.extend(parts);
        flow_use.paths.extend(paths);
    }

    /// Returns the answer, with at most `limit` paths.
    pub fn finish(self, limit: usize) -> PathUses {
        let nodes = self.paths.into_nodes();
        // The key is `None` for a path that is not stored.
        let mut uses: BTreeMap<Option<usize>, PathUse> = BTreeMap::new();
        let mut flows = 0;
        for flow_use in self.flows.values() {
            let parts = flow_use.by_path(self.span);
            flows += u64::from(!parts.is_empty());
            for (path, part) in parts {
                let path_use = uses.entry(path).or_insert_with(|| PathUse {
                    path: nodes_at(&nodes, path),
                    flows: 0,
                    reports: 0,
                    time: 0,
                    first: Nanos::MAX,
                    last: 0,
                });
                path_use.flows += 1;
                path_use.reports = path_use.reports.saturating_add(part.reports);
                path_use.time = path_use.time.saturating_add(part.time);
                path_use.first = path_use.first.min(part.first);
                path_use.last = path_use.last.max(part.last);
            }
        }
        let mut uses: Vec<PathUse> = uses.into_values().collect();
        uses.sort_by(|a, b| (b.time, b.reports, &a.path).cmp(&(a.time, a.reports, &b.path)));
        let truncated = self.truncated || uses.len() > limit;
        uses.truncate(limit);
        PathUses {
            uses,
            flows,
            spread: self.spread,
            truncated,
        }
    }
}

/// A flow's use of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PathShare {
    reports: u64,
    time: Nanos,
    first: Nanos,
    last: Nanos,
}

/// Report counts per interval of flows, and their lifetimes, while the files are read.
struct FlowCounts {
    /// Reports by the start and the end of an interval. Rollups of one interval may be in several files, and several in one.
    parts: HashMap<FlowKey, BTreeMap<(Nanos, Nanos), u64>, Seeded>,
    /// The latest lifetime of each flow.
    lifetimes: HashMap<FlowKey, Lifetime, Seeded>,
    /// Number of intervals that may still be added.
    room_left: usize,
    spread: Nanos,
    truncated: bool,
}

impl FlowCounts {
    fn new(room_left: usize) -> Self {
        Self {
            parts: HashMap::default(),
            lifetimes: HashMap::default(),
            room_left,
            spread: 0,
            truncated: false,
        }
    }

    /// Adds the data of flows from a file, by their IDs in it.
    fn add_file(
        &mut self,
        conn: &Connection,
        features: Features,
        pieces: &[Piece],
        span: Span,
        numbers: &BTreeMap<i64, FlowKey>,
    ) -> rusqlite::Result<()> {
        let minutes = [Piece::minutes(span)];
        let all: FastSet<i64> = numbers.keys().copied().collect();
        for piece in if features.spans { pieces } else { &minutes } {
            self.spread = self.spread.max(piece.length());
            read_some_flows(conn, *piece, &all, &mut |number, sum| {
                if let Some(flow) = numbers.get(&number) {
                    self.add(*flow, sum);
                }
            })?;
        }
        for (number, flow) in numbers {
            let Some(lifetime) = read_lifetime(conn, *number)? else {
                continue;
            };
            let known = self.lifetimes.entry(*flow).or_insert(lifetime);
            if lifetime.last >= known.last {
                *known = lifetime;
            }
        }
        Ok(())
    }

    fn add(&mut self, flow: FlowKey, sum: SpanSum) {
        match self.parts.entry(flow).or_default().entry((sum.first, sum.last)) {
            btree_map::Entry::Occupied(mut known) => {
                let reports = known.get_mut();
                *reports = reports.saturating_add(sum.count);
            }
            btree_map::Entry::Vacant(_) if self.room_left == 0 => self.truncated = true,
            btree_map::Entry::Vacant(free) => {
                self.room_left -= 1;
                free.insert(sum.count);
            }
        }
    }

    /// Returns the intervals of each flow that has any, within its lifetime.
    fn finish(mut self, span: Span) -> BTreeMap<FlowKey, Vec<PathPart>> {
        // A flow that was just seen has a lifetime, and no reports yet.
        for flow in self.lifetimes.keys() {
            self.parts.entry(*flow).or_default();
        }
        let mut counted = BTreeMap::new();
        for (flow, parts) in self.parts {
            let parts = parts.into_iter();
            let mut parts: Vec<PathPart> = parts
                .map(|((from, to), reports)| PathPart { from, to, reports })
                .collect();
            limit_to_lifetime(&mut parts, self.lifetimes.get(&flow).copied(), span);
            if !parts.is_empty() {
                counted.insert(flow, parts);
            }
        }
        counted
    }
}

impl FlowUse {
    /// Returns reports and time per path. The reports of an interval are divided among its paths in proportion to their time.
    fn by_path(&self, span: Span) -> BTreeMap<Option<usize>, PathShare> {
        let mut parts: BTreeMap<Option<usize>, PathShare> = BTreeMap::new();
        let first_interval = self.intervals.iter().map(|counted| counted.from).min();
        let first = self.paths.first().map(|(ts, _)| *ts);
        for counted in &self.intervals {
            let mut from = counted.from.max(span.from());
            let to = counted.to.min(span.to());
            // The flow's first minute starts before the flow itself, which starts with the report that shows its path.
            if let Some(first) = first
                && Some(counted.from) == first_interval
                && (from..to).contains(&first)
            {
                from = first;
            }
            let length = to.saturating_sub(from);
            let mut unassigned = counted.reports;
            let mut ts = from;
            while ts < to {
                let (path, until) = self.path_at(ts);
                let until = until.min(to);
                let share = u128::from(counted.reports) * u128::from(until - ts) / u128::from(length);
                // The last share gets the rounding remainder.
                let share = if until == to {
                    unassigned
                } else {
                    u64::try_from(share).unwrap_or(unassigned).min(unassigned)
                };
                unassigned -= share;
                let part = parts.entry(path).or_insert(PathShare {
                    reports: 0,
                    time: 0,
                    first: ts,
                    last: until,
                });
                part.reports = part.reports.saturating_add(share);
                part.time += until - ts;
                part.first = part.first.min(ts);
                part.last = part.last.max(until);
                ts = until;
            }
        }
        parts
    }

    /// Returns the path at `ts`, or `None` if unknown, and the start of the next path.
    fn path_at(&self, ts: Nanos) -> (Option<usize>, Nanos) {
        let before = self.paths.range(..=(ts, usize::MAX)).next_back();
        let after = self.paths.range((ts + 1, 0)..).next();
        (
            before.map(|(_, path)| *path),
            after.map_or(Nanos::MAX, |(ts, _)| *ts),
        )
    }
}

/// Returns the selected flows of a file by their IDs, and whether there are more than the limit.
fn select_flows(conn: &Connection, flows: &FlowSelector) -> rusqlite::Result<(BTreeMap<i64, FlowKey>, bool)> {
    if let Some(flow) = flows.flow {
        let number = find_flow(conn, flow)?.filter(|_| flows.matches(&flow));
        return Ok((number.map(|number| (number, flow)).into_iter().collect(), false));
    }
    let sql = "SELECT src, dst, sport, dport, proto, id FROM f0.flow_key
               WHERE (?1 IS NULL OR src = ?1) AND (?2 IS NULL OR dst = ?2)";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([&flows.src, &flows.dst])?;
    let mut flows_by_number = BTreeMap::new();
    while let Some(row) = rows.next()? {
        if flows_by_number.len() >= MAX_SELECTED_FLOWS {
            return Ok((flows_by_number, true));
        }
        if let Some(flow) = parse_flow(row)?.filter(|flow| flows.matches(flow)) {
            flows_by_number.insert(row.get(5)?, flow);
        }
    }
    Ok((flows_by_number, false))
}

/// Returns the pieces of a span in which the path use of `flows` flows is read: per minute for few flows and a short span, per
/// ten minutes for few flows and a long span, and for many flows the longest available rollups.
pub fn use_pieces(span: Span, flows: u64) -> Vec<Piece> {
    if flows > MAX_LOOKUP_FLOWS as u64 {
        span.pieces()
    } else if flows.saturating_mul(span.length() / MINUTE) > MAX_LOOKUPS {
        span.pieces_up_to(600)
    } else {
        vec![Piece::minutes(span)]
    }
}

/// Reads a flow's lifetime as stored in the file.
fn read_lifetime(conn: &Connection, number: i64) -> rusqlite::Result<Option<Lifetime>> {
    let mut select = conn.prepare_cached("SELECT first_seen, last_seen FROM f0.flow_data WHERE flow = ?1")?;
    select
        .query_row([number], |row| {
            Ok(Lifetime {
                first: unsigned(row, 0)?,
                last: unsigned(row, 1)?,
            })
        })
        .optional()
}

/// Limits intervals to the time between a flow's first and latest report. If the flow was seen after the last complete minute,
/// adds an interval without reports up to then.
fn limit_to_lifetime(parts: &mut Vec<PathPart>, lifetime: Option<Lifetime>, span: Span) {
    let Some(Lifetime { first, last }) = lifetime else {
        return;
    };
    let end = parts.iter().map(|part| part.to).max();
    for part in parts.iter_mut() {
        // Intervals before `first` belong to an earlier lifetime: the flow had expired and appeared again.
        if (part.from..part.to).contains(&first) {
            part.from = first;
        }
        // `last` may be stale, because the flow's state is stored only now and then. A count in a later minute proves a later
        // report.
        if part.to > last && part.to - part.from > MINUTE {
            part.to = last.max(part.from);
        }
    }
    let from = end.unwrap_or(first).max(first);
    if last > from && last - from <= MAX_COUNT_DELAY && last > span.from() && from < span.to() {
        parts.push(PathPart {
            from,
            to: last,
            reports: 0,
        });
    }
}

/// Returns true if an event reports that the flow changed its path at `ts`.
fn is_change(conn: &Connection, flow: i64, ts: Nanos) -> rusqlite::Result<bool> {
    // `+` hides the column from the planner: rows of this time are found by the primary key.
    let sql = "SELECT 1 FROM f0.event_data WHERE ts = ?1 AND +flow = ?2 AND metric = ?3
               AND +kind = (SELECT id FROM f0.kind_name WHERE kind = 'path_change') LIMIT 1";
    let mut select = conn.prepare_cached(sql)?;
    select.exists([int(ts), flow, Metric::FlowPath as i64])
}

/// Calls `visit` with flow ID, time and path ID of each path change before `before`, grouped by flow and in time order.
fn each_path(
    conn: &Connection,
    features: Features,
    flow: Option<i64>,
    before: Nanos,
    mut visit: impl FnMut(i64, Nanos, i64) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached(&paths_sql(features, flow.is_some()))?;
    let before = int(before);
    let mut rows = match flow {
        Some(flow) => select.query([before, flow])?,
        None => select.query([before])?,
    };
    while let Some(row) = rows.next()? {
        visit(row.get(0)?, unsigned(row, 1)?, row.get(2)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

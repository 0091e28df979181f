//! How flows used their paths in a span of time: when they changed, which paths were taken for how long, and how often.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry};

use collector::event::Nanos;
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::hasher::{FastMap, FastSet, Seeded};
use crate::keys::Keys;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::schema::Features;
use crate::spans::{MINUTE, Piece, Span, SpanSum, number_of, read_flow, read_flows};
use crate::taken::{MOST_TAKEN, Paths, Takings, int, taken_sql, unsigned};

/// Which flows: those that all of these match; without any, all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowsOf {
    /// This one.
    pub flow: Option<FlowKey>,
    /// From this address.
    pub src: Option<String>,
    /// To this address.
    pub dst: Option<String>,
}

/// A change of a flow's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathChange {
    /// When the new path was seen first.
    pub ts: Nanos,
    /// The flow.
    pub flow: FlowKey,
    /// Its nodes before; `u32::MAX` = unavailable; empty: they are not stored, or only before the files of the span.
    pub before: Vec<u32>,
    /// Its nodes after.
    pub after: Vec<u32>,
}

/// The same change of the paths of several flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeGroup {
    /// The nodes before, as those of a change.
    pub before: Vec<u32>,
    /// The nodes after.
    pub after: Vec<u32>,
    /// Number of flows.
    pub flows: u64,
    /// Number of changes: a flow may have changed back and forth.
    pub changes: u64,
    /// The first of them.
    pub first: Nanos,
    /// The last of them.
    pub last: Nanos,
}

/// The changes of paths in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathChanges {
    /// The latest, newest first.
    pub changes: Vec<PathChange>,
    /// All of them, equal ones together; those of most flows first. So many as are wanted.
    pub groups: Vec<ChangeGroup>,
    /// Number of groups.
    pub group_total: u64,
    /// Number of changes.
    pub total: u64,
    /// Whether there are more than are considered: the oldest are missing.
    pub truncated: bool,
}

/// How a path was used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathUse {
    /// Its nodes; empty: it is not stored which path was taken.
    pub path: Vec<u32>,
    /// Flows that took it.
    pub flows: u64,
    /// Reports of those flows in that time.
    pub reports: u64,
    /// For how long they took it, added up.
    pub time: Nanos,
    /// From when on it was taken in the span.
    pub first: Nanos,
    /// Until when.
    pub last: Nanos,
}

/// The paths that some flows used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathUses {
    /// The paths, the one that was taken the longest first.
    pub uses: Vec<PathUse>,
    /// Number of flows.
    pub flows: u64,
    /// Reports are known for each part of time of this length, ns, and were spread over it.
    pub spread: Nanos,
    /// Whether there are more flows, changes of their paths or parts of time than are considered.
    pub truncated: bool,
}

/// Reports of a flow in a part of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPart {
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// How many.
    pub reports: u64,
}

/// A flow of which the paths are wanted.
#[derive(Default, Debug)]
struct Used {
    counted: Vec<PathPart>,
    /// When, and which of the paths.
    taken: BTreeSet<(Nanos, usize)>,
}

/// Which paths some flows used, while they are collected.
#[derive(Debug)]
pub struct UseTally {
    span: Span,
    flows: HashMap<FlowKey, Used, Seeded>,
    paths: Paths,
    /// How many more parts of time and paths taken there is room for.
    room: usize,
    spread: Nanos,
    truncated: bool,
}

/// Changes of paths, while they are collected.
#[derive(Debug)]
pub struct ChangeTally {
    span: Span,
    paths: Paths,
    /// The path that each flow has now.
    now: HashMap<FlowKey, usize, Seeded>,
    /// When, whose, and from which path to which. `None`: not stored.
    found: Vec<(Nanos, FlowKey, Option<usize>, usize)>,
    truncated: bool,
}

impl FlowsOf {
    /// Whether a flow is one of them.
    pub fn matches(&self, flow: &FlowKey) -> bool {
        let is = |wanted: &Option<String>, address: std::net::IpAddr| {
            wanted
                .as_ref()
                .is_none_or(|wanted| *wanted == address.to_string())
        };
        self.flow.is_none_or(|wanted| wanted == *flow)
            && (self.src.is_none() || (flow.known_id().is_none() && is(&self.src, flow.src())))
            && (self.dst.is_none() || (flow.known_id().is_none() && is(&self.dst, flow.dst())))
    }
}

impl Reader {
    /// The changes of paths in a span of time; `limit`: so many of the latest one by one, and as many groups.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_changes(&self, span: Span, of: &FlowsOf, limit: usize) -> Result<PathChanges, QueryError> {
        self.with_retry(|| {
            let (mut changes, deadline) = (ChangeTally::new(span), self.deadline());
            for file in self.files_of(span.from(), span.to())? {
                self.ask_file(&file, &deadline, |conn, features| {
                    changes.paths.next_file();
                    let only = match of.flow {
                        Some(flow) => match number_of(conn, flow.id(), Some(flow))? {
                            Some((number, _)) => Some(number),
                            None => return Ok(()),
                        },
                        None => None,
                    };
                    let keys = match only {
                        Some(_) => Keys::Each,
                        None => self.keys().of(conn, &file, usize::MAX)?,
                    };
                    let (mut number, mut flow) = (0, None);
                    each_taken(conn, features, (only, span.to()), |row, ts, path| {
                        if row != number {
                            (number, flow) = (row, keys.get(conn, row)?.filter(|flow| of.matches(flow)));
                        }
                        let Some(flow) = flow else { return Ok(()) };
                        let path = changes.paths.place(conn, path)?;
                        changes.take((ts, flow, path), || is_change(conn, row, ts))
                    })
                })?;
            }
            deadline.check()?;
            Ok(changes.finish(limit))
        })
    }

    /// Which paths flows used in a span of time; `limit`: at most so many paths.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_uses(&self, span: Span, of: &FlowsOf, limit: usize) -> Result<PathUses, QueryError> {
        self.uses_within((span, MOST_PARTS), of, limit)
    }

    fn uses_within(
        &self,
        (span, room): (Span, usize),
        of: &FlowsOf,
        limit: usize,
    ) -> Result<PathUses, QueryError> {
        self.with_retry(|| {
            let (mut uses, deadline) = (
                UseTally {
                    room,
                    ..UseTally::new(span)
                },
                self.deadline(),
            );
            for file in self.files_of(span.from(), span.to())? {
                self.ask_file(&file, &deadline, |conn, features| {
                    let (numbers, more) = wanted(conn, of)?;
                    uses.truncated |= more;
                    uses.add_file(conn, features, numbers)
                })?;
            }
            deadline.check()?;
            Ok(uses.finish(limit))
        })
    }
}

impl ChangeTally {
    /// None yet, of this span.
    pub fn new(span: Span) -> Self {
        let (paths, now, found, truncated) = Default::default();
        Self {
            span,
            paths,
            now,
            found,
            truncated,
        }
    }

    /// There are more than are considered: the oldest are missing.
    pub fn cut(&mut self) {
        self.truncated = true;
    }

    /// A flow takes a path; those of one flow come in the order of time. `is_change`: an event says that it had another one before.
    pub fn add(&mut self, (ts, flow): (Nanos, FlowKey), path: Vec<u32>, is_change: bool) {
        let place = self.paths.of(path);
        // Only what is asked can fail.
        let _ = self.take((ts, flow, place), || Ok(is_change));
    }

    /// `is_change`: whether an event says that the flow had another path before.
    fn take(
        &mut self,
        (ts, flow, path): (Nanos, FlowKey, usize),
        is_change: impl FnOnce() -> rusqlite::Result<bool>,
    ) -> rusqlite::Result<()> {
        let span = self.span;
        let is_full = self.now.len() >= MOST_FLOWS;
        let before = match self.now.entry(flow) {
            Entry::Occupied(mut known) => Some(known.insert(path)),
            Entry::Vacant(_) if is_full => {
                self.truncated = true;
                return Ok(());
            }
            Entry::Vacant(free) => {
                free.insert(path);
                // The path before is in a file that has nothing of the span, or in none.
                if ts < span.from() || !is_change()? {
                    return Ok(());
                }
                None
            }
        };
        if before == Some(path) || ts < span.from() {
            return Ok(());
        }
        self.found.push((ts, flow, before, path));
        if self.found.len() >= 2 * MOST_CHANGES {
            self.keep_latest(MOST_CHANGES);
            self.truncated = true;
        }
        Ok(())
    }

    fn keep_latest(&mut self, most: usize) {
        self.found
            .sort_unstable_by_key(|change| Reverse((change.0, change.1)));
        self.found.truncate(most);
    }

    /// The answer, with so many of the latest one by one, and as many groups.
    pub fn finish(mut self, limit: usize) -> PathChanges {
        let truncated = self.truncated || self.found.len() > MOST_CHANGES;
        self.keep_latest(MOST_CHANGES);
        let nodes = self.paths.into_nodes();
        let path = |place: Option<usize>| {
            place
                .and_then(|place| nodes.get(place).cloned())
                .unwrap_or_default()
        };
        let latest = self.found.iter().take(limit);
        let changes = latest
            .map(|(ts, flow, before, after)| PathChange {
                ts: *ts,
                flow: *flow,
                before: path(*before),
                after: path(Some(*after)),
            })
            .collect();
        let mut same: BTreeMap<(Option<usize>, usize), ChangeGroup> = BTreeMap::new();
        let mut seen: HashSet<(Option<usize>, usize, FlowKey), Seeded> = HashSet::default();
        for (ts, flow, before, after) in &self.found {
            let group = same.entry((*before, *after)).or_insert_with(|| ChangeGroup {
                before: path(*before),
                after: path(Some(*after)),
                flows: 0,
                changes: 0,
                first: *ts,
                last: *ts,
            });
            group.flows += u64::from(seen.insert((*before, *after, *flow)));
            group.changes += 1;
            (group.first, group.last) = (group.first.min(*ts), group.last.max(*ts));
        }
        let mut groups: Vec<ChangeGroup> = same.into_values().collect();
        groups.sort_by(|one, other| {
            (other.flows, other.changes, &one.before, &one.after).cmp(&(
                one.flows,
                one.changes,
                &other.before,
                &other.after,
            ))
        });
        let group_total = groups.len() as u64;
        groups.truncate(limit);
        PathChanges {
            changes,
            groups,
            group_total,
            total: self.found.len() as u64,
            truncated,
        }
    }
}

impl UseTally {
    /// None yet, of this span.
    pub fn new(span: Span) -> Self {
        let (flows, paths, spread, truncated) = Default::default();
        Self {
            span,
            flows,
            paths,
            room: MOST_PARTS,
            spread,
            truncated,
        }
    }

    /// There are more flows or parts of time than are considered.
    pub fn cut(&mut self) {
        self.truncated = true;
    }

    /// Reports are known for parts of time of this length.
    pub fn spread(&mut self, length: Nanos) {
        self.spread = self.spread.max(length);
    }

    /// A flow. `parts`: its reports. `life`: its first report and its latest, if they are known. `taken`: when it took which paths in the span, and the
    /// one that it had when the span began.
    pub fn add(
        &mut self,
        flow: FlowKey,
        mut parts: Vec<PathPart>,
        life: Option<(Nanos, Nanos)>,
        taken: impl Iterator<Item = (Nanos, Vec<u32>)>,
    ) {
        limit_to_life(&mut parts, life, self.span);
        if parts.is_empty() {
            return;
        }
        let taken = taken.map(|(ts, path)| (ts, self.paths.of(path))).collect();
        self.admit(flow, parts, taken);
    }

    /// Takes a flow, if there is room.
    fn admit(&mut self, flow: FlowKey, parts: Vec<PathPart>, taken: Vec<(Nanos, usize)>) {
        self.truncated |= taken.len() >= MOST_TAKEN;
        let is_full = self.flows.len() >= MOST_USED && !self.flows.contains_key(&flow);
        // Parts of time without the paths that were taken in them would be those of another path.
        match self
            .room
            .checked_sub(parts.len() + taken.len())
            .filter(|_| !is_full)
        {
            Some(room) => {
                self.room = room;
                let used = self.flows.entry(flow).or_default();
                used.counted.extend(parts);
                used.taken.extend(taken);
            }
            None => self.truncated = true,
        }
    }

    /// Adds what a file has of the flows with these numbers.
    fn add_file(
        &mut self,
        conn: &Connection,
        features: Features,
        numbers: BTreeMap<i64, FlowKey>,
    ) -> rusqlite::Result<()> {
        self.paths.next_file();
        let span = self.span;
        let mut counted = self.counted(conn, features, &numbers)?;
        for number in numbers.keys() {
            let mut parts = counted.remove(number).unwrap_or_default();
            limit_to_life(&mut parts, life(conn, *number)?, span);
            if !parts.is_empty() {
                counted.insert(*number, parts);
            }
        }
        let wanted: FastSet<i64> = counted.keys().copied().collect();
        let mut takings = Takings::of(conn, features, (span.from(), span.to()), (&wanted, false))?;
        for (number, flow) in numbers {
            let Some(parts) = counted.remove(&number) else {
                continue;
            };
            let mut taken = Vec::new();
            for (ts, path) in takings.taken(conn, number, (span.from(), span.to()))? {
                taken.push((ts, self.paths.place(conn, path)?));
            }
            self.admit(flow, parts, taken);
        }
        Ok(())
    }

    /// The reports of flows, by the numbers that those have in the file. Of few flows, each minute is read, if it is not a long time, and otherwise
    /// ten minutes; of many, what is added up.
    fn counted(
        &mut self,
        conn: &Connection,
        features: Features,
        numbers: &BTreeMap<i64, FlowKey>,
    ) -> rusqlite::Result<FastMap<i64, Vec<PathPart>>> {
        let span = self.span;
        let mut counted: FastMap<i64, Vec<PathPart>> = FastMap::default();
        let (mut room, mut truncated) = (self.room, false);
        let mut add = |number: i64, sum: SpanSum| match room.checked_sub(1) {
            Some(rest) => {
                room = rest;
                let part = PathPart {
                    from: sum.first,
                    to: sum.last,
                    reports: sum.count,
                };
                counted.entry(number).or_default().push(part);
            }
            None => truncated = true,
        };
        let pieces = match features.spans {
            true => use_pieces(span, numbers.len() as u64),
            false => vec![Piece::minutes(span)],
        };
        for piece in pieces {
            self.spread = self.spread.max(piece.length());
            if numbers.len() <= FEW_FLOWS {
                for number in numbers.keys() {
                    read_flow(conn, piece, *number, &mut |sum| add(*number, sum))?;
                }
                continue;
            }
            read_flows(conn, piece, &mut |number, sum| {
                if numbers.contains_key(&number) {
                    add(number, sum);
                }
                true
            })?;
        }
        self.truncated |= truncated;
        Ok(counted)
    }

    /// The answer, with at most so many paths.
    pub fn finish(self, limit: usize) -> PathUses {
        let (span, nodes) = (self.span, self.paths.into_nodes());
        // `None`: not stored.
        let mut uses: BTreeMap<Option<usize>, PathUse> = BTreeMap::new();
        let blank = |place: Option<usize>| PathUse {
            path: place
                .and_then(|place| nodes.get(place).cloned())
                .unwrap_or_default(),
            flows: 0,
            reports: 0,
            time: 0,
            first: Nanos::MAX,
            last: 0,
        };
        let mut flows = 0;
        for used in self.flows.values() {
            let parts = used.by_path(span);
            flows += u64::from(!parts.is_empty());
            for (place, part) in parts {
                let one = uses.entry(place).or_insert_with(|| blank(place));
                one.flows += 1;
                one.reports = one.reports.saturating_add(part.reports);
                one.time = one.time.saturating_add(part.time);
                (one.first, one.last) = (one.first.min(part.first), one.last.max(part.last));
            }
        }
        let mut uses: Vec<PathUse> = uses.into_values().collect();
        uses.sort_by(|one, other| {
            (other.time, other.reports, &one.path).cmp(&(one.time, one.reports, &other.path))
        });
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
struct Part {
    reports: u64,
    time: Nanos,
    first: Nanos,
    last: Nanos,
}

impl Used {
    /// The reports and the time of each path: those of a part of time are divided among its paths by the time that they were taken.
    fn by_path(&self, span: Span) -> BTreeMap<Option<usize>, Part> {
        let mut parts: BTreeMap<Option<usize>, Part> = BTreeMap::new();
        let began = self.counted.iter().map(|counted| counted.from).min();
        let first = self.taken.first().map(|(ts, _)| *ts);
        for counted in &self.counted {
            let (mut from, to) = (counted.from.max(span.from()), counted.to.min(span.to()));
            // Its first minute begins before it: with the report that shows its path.
            if let Some(first) =
                first.filter(|first| Some(counted.from) == began && (from..to).contains(first))
            {
                from = first;
            }
            let length = to.saturating_sub(from);
            let (mut rest, mut at) = (counted.reports, from);
            while at < to {
                let (path, until) = self.path_at(at);
                let until = until.min(to);
                let share = u128::from(counted.reports) * u128::from(until - at) / u128::from(length);
                // The last one gets what rounding has left.
                let share = if until == to {
                    rest
                } else {
                    u64::try_from(share).unwrap_or(rest).min(rest)
                };
                rest -= share;
                let blank = Part {
                    reports: 0,
                    time: 0,
                    first: at,
                    last: until,
                };
                let part = parts.entry(path).or_insert(blank);
                part.reports = part.reports.saturating_add(share);
                part.time += until - at;
                (part.first, part.last) = (part.first.min(at), part.last.max(until));
                at = until;
            }
        }
        parts
    }

    /// The path at a time, and when the next one is taken.
    fn path_at(&self, ts: Nanos) -> (Option<usize>, Nanos) {
        let path = self
            .taken
            .range(..=(ts, usize::MAX))
            .next_back()
            .map(|(_, path)| *path);
        let next = self
            .taken
            .range((ts + 1, 0)..)
            .next()
            .map_or(Nanos::MAX, |(ts, _)| *ts);
        (path, next)
    }
}

/// The flows of a file that are wanted, by their numbers, and whether there are more than are considered.
fn wanted(conn: &Connection, of: &FlowsOf) -> rusqlite::Result<(BTreeMap<i64, FlowKey>, bool)> {
    if let Some(flow) = of.flow {
        let found = number_of(conn, flow.id(), Some(flow))?.filter(|(_, flow)| of.matches(flow));
        return Ok((found.into_iter().collect(), false));
    }
    let sql = "SELECT src, dst, sport, dport, proto, id FROM f0.flow_key
               WHERE (?1 IS NULL OR src = ?1) AND (?2 IS NULL OR dst = ?2)";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([&of.src, &of.dst])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        if found.len() >= MOST_WANTED {
            return Ok((found, true));
        }
        if let Some(flow) = crate::intern::parse_flow(row)?.filter(|flow| of.matches(flow)) {
            found.insert(row.get(5)?, flow);
        }
    }
    Ok((found, false))
}

/// The parts of a span for which the reports of so many flows are read to tell how paths were used: of few flows minutes, if it is not a
/// long time, and otherwise ten minutes; of many, what is added up.
pub fn use_pieces(span: Span, flows: u64) -> Vec<Piece> {
    match flows.saturating_mul(span.length() / MINUTE) {
        _ if flows > FEW_FLOWS as u64 => span.pieces(),
        minutes if minutes > FEW_MINUTES => span.pieces_up_to(600),
        _ => vec![Piece::minutes(span)],
    }
}

/// First report of a flow and its latest, as a file has them.
fn life(conn: &Connection, number: i64) -> rusqlite::Result<Option<(Nanos, Nanos)>> {
    let mut select = conn.prepare_cached("SELECT first_seen, last_seen FROM f0.flow_data WHERE flow = ?1")?;
    select
        .query_row([number], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))
        .optional()
}

/// Parts of time end where the flow began or was seen last. After the last minute that has ended, a flow that was seen since then went on.
fn limit_to_life(parts: &mut Vec<PathPart>, life: Option<(Nanos, Nanos)>, span: Span) {
    let Some((first, last)) = life else { return };
    let end = parts.iter().map(|part| part.to).max();
    for part in parts.iter_mut() {
        // Those before it are of an earlier life: it had expired, and came again.
        if (part.from..part.to).contains(&first) {
            part.from = first;
        }
        // Its state is stored now and then: what was counted later, it sent later.
        if part.to > last && part.to - part.from > MINUTE {
            part.to = last.max(part.from);
        }
    }
    let from = end.unwrap_or(first).max(first);
    if last > from && last - from <= LATEST_UNCOUNTED && last > span.from() && from < span.to() {
        parts.push(PathPart {
            from,
            to: last,
            reports: 0,
        });
    }
}

/// Whether a flow took a path at `ts` instead of another one.
fn is_change(conn: &Connection, flow: i64, ts: Nanos) -> rusqlite::Result<bool> {
    // `+` hides the flow: what is of this time is found by the primary key.
    let sql = "SELECT 1 FROM f0.event_data WHERE ts = ?1 AND +flow = ?2 AND metric = ?3
               AND +kind = (SELECT id FROM f0.kind_name WHERE kind = 'path_change') LIMIT 1";
    let mut select = conn.prepare_cached(sql)?;
    select.exists([int(ts), flow, Metric::FlowPath as i64])
}

/// From when on flows took paths, before a time; those of each flow together, in the order of time.
fn each_taken(
    conn: &Connection,
    features: Features,
    (flow, before): (Option<i64>, Nanos),
    mut take: impl FnMut(i64, Nanos, i64) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached(&taken_sql(features, flow.is_some()))?;
    let before = int(before);
    let mut rows = match flow {
        Some(flow) => select.query([before, flow])?,
        None => select.query([before])?,
    };
    while let Some(row) = rows.next()? {
        take(row.get(0)?, unsigned(row, 1)?, row.get(2)?)?;
    }
    Ok(())
}

/// Flows whose present path is known while changes are looked for: some 20 MB.
const MOST_FLOWS: usize = 200_000;
/// Changes that are considered: the latest.
const MOST_CHANGES: usize = 100_000;
/// Flows of a file that are looked at for their paths.
const MOST_WANTED: usize = 20_000;
/// Flows whose paths are added up.
const MOST_USED: usize = 20_000;
/// Parts of time of flows, and paths that they took, for one answer: some 30 MB.
const MOST_PARTS: usize = 1_000_000;
/// Up to so many flows, their minutes are read one by one.
const FEW_FLOWS: usize = 50;
/// Minutes of flows that are read one by one: to find one in a file takes some microseconds.
const FEW_MINUTES: u64 = 10_000;
/// Minutes are stored up to two minutes late.
const LATEST_UNCOUNTED: Nanos = 3 * MINUTE;

#[cfg(test)]
mod tests;

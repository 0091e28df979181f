//! Losses in a span of time, and their locations: dropped packets as nodes reported them; packets that one node of a path reported and the next
//! one did not, as far as each report is stored; and, apart from both, reports that never arrived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry};

use collector::event::Nanos;
use rusqlite::{Connection, OptionalExtension as _};

use crate::guard::Deadline;
use crate::hasher::FastSet;
use crate::identity::FileIdentity;
use crate::keys::{Keys, KnownKeys};
use crate::paths::{PathHistory, Paths};
use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{int, unsigned};
use crate::schema::Features;
use crate::spans::{Span, each};

/// The location and the reason of drops, as drop reports say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DropKey {
    /// The node that dropped the packets.
    pub node: Option<u32>,
    /// The egress interface of the packets.
    pub egress_if: Option<u32>,
    /// The queue of the packets.
    pub queue: Option<u8>,
    /// The device's code of the reason.
    pub reason: Option<u8>,
}

/// The sum of the drop reports with one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropSum {
    /// Number of reports, each of one packet.
    pub packets: u64,
    /// Number of flows with dropped packets.
    pub flows: u64,
    /// Time of the first drop, ns since 1970.
    pub first: Nanos,
    /// Time of the last drop, ns since 1970.
    pub last: Nanos,
}

/// Reports of one node that did not arrive as they were sent. They say nothing about the packets that they were about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReporterLoss {
    /// Sequence numbers that never arrived.
    pub lost: u64,
    /// Sequence numbers that arrived twice.
    pub duplicated: u64,
}

/// Packets of flows whose path has this link, counted from the reports of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkCount {
    /// Packets that the first node reported as forwarded.
    pub sent: u64,
    /// Packets that the second node reported, forwarded or dropped.
    pub arrived: u64,
    /// Number of flows whose path has the link.
    pub flows: u64,
}

/// The losses in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Dropped packets by location and reason.
    pub drops: BTreeMap<DropKey, DropSum>,
    /// Lost reports by node.
    pub reporters: BTreeMap<u32, ReporterLoss>,
    /// Lost reports of senders whose node is not known.
    pub unknown_reporters: ReporterLoss,
    /// Packets that were counted at both ends of a link.
    pub links: BTreeMap<(u32, u32), LinkCount>,
    /// Links of such flows of which one end did not report the flow's packets itself.
    pub silent: BTreeSet<(u32, u32)>,
    /// Flows that were left out of the counts, because their path changed, passes a node twice or is not known.
    pub left_out: u64,
    /// Reports from this time on were not counted: there are too many.
    pub counted_until: Option<Nanos>,
    /// There are more locations or flows than are considered.
    pub truncated: bool,
}

impl Reader {
    /// Returns the losses in a span of time. `count_until`: the store has every report before this time, so that packets can be counted at each
    /// node. What arrived later may not be stored yet, and would look like a loss.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn losses_in(&self, span: Span, count_until: Option<Nanos>) -> Result<Losses, QueryError> {
        let limits = Limits {
            reports: MAX_REPORTS,
            passed: MAX_PASSED,
        };
        self.losses_within(span, count_until, limits)
    }

    fn losses_within(
        &self,
        span: Span,
        count_until: Option<Nanos>,
        limits: Limits,
    ) -> Result<Losses, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut losses = Losses::default();
            let mut flows = DropFlows::default();
            let mut counts = Counts::new(span, count_until.unwrap_or(0), limits);
            for file in self.files_in(span.from(), span.to())? {
                self.query_file(&file, &deadline, |conn, features| {
                    losses.read_drops(conn, span, &mut flows, self.keys(), &file)?;
                    losses.read_reporters(conn, span)?;
                    counts.add_file(conn, features, self.keys(), &file)
                })?;
            }
            for (key, sum) in &mut losses.drops {
                sum.flows = flows.seen.get(key).map_or(0, |flows| flows.len() as u64);
            }
            counts.finish(&mut losses, &deadline)?;
            Ok(losses)
        })
    }
}

impl Losses {
    fn read_drops(
        &mut self,
        conn: &Connection,
        span: Span,
        flows: &mut DropFlows,
        keys: &KnownKeys,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        let sql = "SELECT node, egress_if, queue, reason, flow, count(*), min(ts), max(ts) FROM f0.drop_data
                   WHERE ts >= ?1 AND ts < ?2 GROUP BY node, egress_if, queue, reason, flow";
        let mut file_keys: Option<Keys> = None;
        each(conn, sql, span, |row| {
            let key = DropKey {
                node: row.get(0)?,
                egress_if: row.get(1)?,
                queue: row.get(2)?,
                reason: row.get(3)?,
            };
            if self.drops.len() >= MAX_DROP_KEYS && !self.drops.contains_key(&key) {
                self.truncated = true;
                return Ok(());
            }
            let sum = self.drops.entry(key).or_insert(DropSum {
                packets: 0,
                flows: 0,
                first: Nanos::MAX,
                last: 0,
            });
            sum.packets = sum.packets.saturating_add(unsigned(row, 5)?);
            sum.first = sum.first.min(unsigned(row, 6)?);
            sum.last = sum.last.max(unsigned(row, 7)?);
            let Some(number) = row.get::<_, Option<i64>>(4)? else {
                return Ok(());
            };
            let file_keys = match &mut file_keys {
                Some(file_keys) => file_keys,
                none => none.insert(keys.load(conn, file, 1)?),
            };
            let flow = file_keys.get(conn, number)?;
            self.truncated |= flow.is_some_and(|flow| !flows.add(key, flow.id()));
            Ok(())
        })
    }

    fn read_reporters(&mut self, conn: &Connection, span: Span) -> rusqlite::Result<()> {
        let sql = "SELECT node, sum(lost), sum(duplicated) FROM f0.loss_data
                   WHERE ts >= ?1 AND ts < ?2 GROUP BY node";
        each(conn, sql, span, |row| {
            let loss = match row.get::<_, Option<u32>>(0)? {
                Some(node) => self.reporters.entry(node).or_default(),
                None => &mut self.unknown_reporters,
            };
            loss.lost = loss.lost.saturating_add(unsigned(row, 1)?);
            loss.duplicated = loss.duplicated.saturating_add(unsigned(row, 2)?);
            Ok(())
        })
    }

    /// Compares each node of a flow's path with the next one.
    fn compare(&mut self, path: &[u32], passed: impl Fn(u32) -> Passed, reporting: &HashSet<u32>) {
        for ends in path.windows(2) {
            let [from, to] = [ends[0], ends[1]];
            // A node that reports no flow at all does not report this one either; one that reports others has not seen it.
            if !reporting.contains(&from) || !reporting.contains(&to) {
                self.silent.insert((from, to));
                continue;
            }
            let sent = passed(from);
            let arrived = passed(to);
            if sent.forwarded == 0 {
                continue;
            }
            let link = self.links.entry((from, to)).or_default();
            link.sent = link.sent.saturating_add(sent.forwarded);
            link.arrived = link
                .arrived
                .saturating_add(arrived.forwarded)
                .saturating_add(arrived.dropped);
            link.flows += 1;
        }
    }
}

/// The flows of each key, while files are read.
#[derive(Default)]
struct DropFlows {
    seen: HashMap<DropKey, HashSet<u64>>,
    /// The sum over all keys.
    total: usize,
}

impl DropFlows {
    /// Adds a flow. Returns whether it is counted: it is not if there are too many.
    fn add(&mut self, key: DropKey, flow: u64) -> bool {
        let seen = self.seen.entry(key).or_default();
        if seen.contains(&flow) {
            return true;
        }
        if seen.len() >= MAX_FLOWS_PER_KEY || self.total >= MAX_DROP_FLOWS {
            return false;
        }
        self.total += 1;
        seen.insert(flow)
    }
}

/// The limits of what is counted for one answer.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reports: u64,
    /// The number of pairs of a flow and a node.
    passed: usize,
}

/// Packets of a flow that a node reported.
#[derive(Clone, Copy, Default, Debug)]
struct Passed {
    forwarded: u64,
    dropped: u64,
}

/// The path of a flow in the span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SinglePath {
    Unknown,
    /// The flow always took the path with this index.
    Known(usize),
    /// It changed, or not all of the flow's nodes are counted.
    Unusable,
}

/// The packets of each flow that nodes reported themselves, while files are read.
struct Counts {
    from: Nanos,
    /// Only reports before this time are counted.
    until: Nanos,
    /// There were too many reports after `until`.
    is_cut: bool,
    /// The limits, of which `reports` is what is left of it.
    limits: Limits,
    /// The packets by flow and node.
    passed: HashMap<(u64, u32), Passed>,
    /// The path of each of these flows.
    flow_paths: HashMap<u64, SinglePath>,
    paths: Paths,
    truncated: bool,
}

impl Counts {
    fn new(span: Span, until: Nanos, limits: Limits) -> Self {
        Self {
            from: span.from(),
            until: until.min(span.to()),
            is_cut: false,
            limits,
            passed: HashMap::new(),
            flow_paths: HashMap::new(),
            paths: Paths::default(),
            truncated: false,
        }
    }

    fn add_file(
        &mut self,
        conn: &Connection,
        features: Features,
        keys: &KnownKeys,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        if self.is_cut || self.from >= self.until {
            return Ok(());
        }
        if let Some(ts) = self.first_beyond(conn)? {
            self.until = ts;
            self.is_cut = true;
        }
        let flow_ids = self.add_reports(conn, keys, file)?;
        self.add_paths(conn, features, &flow_ids)
    }

    /// Returns the time of the first report of a file that exceeds the limit. All reports before it are counted, and none of the same time: of the
    /// reports of one packet, not one alone.
    fn first_beyond(&self, conn: &Connection) -> rusqlite::Result<Option<Nanos>> {
        let sql = format!("SELECT ts {FROM_PACKETS} ORDER BY ts LIMIT 1 OFFSET ?3");
        let mut select = conn.prepare_cached(&sql)?;
        select
            .query_row(
                [int(self.from), int(self.until), int(self.limits.reports)],
                |row| unsigned(row, 0),
            )
            .optional()
    }

    /// Adds the reports of a file. Returns the flows by their numbers in the file.
    fn add_reports(
        &mut self,
        conn: &Connection,
        keys: &KnownKeys,
        file: &FileIdentity,
    ) -> rusqlite::Result<HashMap<i64, u64>> {
        let sql = format!("SELECT flow, node, flags, count(*) {FROM_PACKETS} GROUP BY flow, node, flags");
        let mut select = conn.prepare_cached(&sql)?;
        let mut rows = select.query([int(self.from), int(self.until)])?;
        let mut flow_ids: HashMap<i64, u64> = HashMap::new();
        let mut file_keys: Option<Keys> = None;
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(0)?;
            let count = unsigned(row, 3)?;
            self.limits.reports = self.limits.reports.saturating_sub(count);
            let file_keys = match &mut file_keys {
                Some(file_keys) => file_keys,
                none => none.insert(keys.load(conn, file, usize::MAX)?),
            };
            let flow = match flow_ids.get(&number) {
                Some(flow) => Some(*flow),
                None => file_keys.get(conn, number)?.map(|key| key.id()),
            };
            let Some(flow) = flow else { continue };
            let Some(passed) = self.passed_entry(flow, row.get(1)?) else {
                continue;
            };
            flow_ids.insert(number, flow);
            let flags = row.get_ref(2)?.as_str()?;
            if flags.split(',').any(|flag| flag == "drop") {
                passed.dropped = passed.dropped.saturating_add(count);
            } else if flags.split(',').any(|flag| flag == "flow") {
                passed.forwarded = passed.forwarded.saturating_add(count);
            }
        }
        Ok(flow_ids)
    }

    /// Returns the count of a flow's packets at a node, unless there are too many counts.
    fn passed_entry(&mut self, flow: u64, node: u32) -> Option<&mut Passed> {
        let is_full = self.passed.len() >= self.limits.passed;
        match self.passed.entry((flow, node)) {
            Entry::Vacant(_) if is_full => {
                self.truncated = true;
                // Without the count of one of its nodes, a flow would seem to lose packets there.
                if let Some(path) = self.flow_paths.get_mut(&flow) {
                    *path = SinglePath::Unusable;
                }
                None
            }
            entry => {
                self.flow_paths.entry(flow).or_insert(SinglePath::Unknown);
                Some(entry.or_default())
            }
        }
    }

    fn add_paths(
        &mut self,
        conn: &Connection,
        features: Features,
        found: &HashMap<i64, u64>,
    ) -> rusqlite::Result<()> {
        self.paths.next_file();
        let wanted: FastSet<i64> = found.keys().copied().collect();
        let mut history = PathHistory::read(conn, features, self.from, self.until, &wanted, false)?;
        for (number, flow) in found {
            for (_, path) in history.paths(conn, *number, self.from, self.until)? {
                let path = SinglePath::Known(self.paths.index(conn, path)?);
                let known = self.flow_paths.entry(*flow).or_insert(SinglePath::Unknown);
                *known = if [SinglePath::Unknown, path].contains(known) {
                    path
                } else {
                    SinglePath::Unusable
                };
            }
        }
        Ok(())
    }

    fn finish(self, losses: &mut Losses, deadline: &Deadline) -> Result<(), QueryError> {
        losses.truncated |= self.truncated;
        losses.counted_until = self.is_cut.then_some(self.until);
        let paths = self.paths.into_nodes();
        let comparable: Vec<bool> = paths.iter().map(|path| can_be_compared(path)).collect();
        let reporting: HashSet<u32> = self.passed.keys().map(|(_, node)| *node).collect();
        for (flow, path) in &self.flow_paths {
            deadline.check()?;
            match path {
                SinglePath::Known(index) if comparable[*index] => losses.compare(
                    &paths[*index],
                    |node| self.passed.get(&(*flow, node)).copied().unwrap_or_default(),
                    &reporting,
                ),
                _ => losses.left_out += 1,
            }
        }
        Ok(())
    }
}

/// Returns true if each node is known, and passed once: a node's report of a packet does not say for which time it passes.
fn can_be_compared(path: &[u32]) -> bool {
    let mut nodes = HashSet::new();
    path.iter().all(|node| *node != u32::MAX && nodes.insert(*node))
}

/// Reports of packets that nodes sent themselves. A packet whose INT travels with it is reported by the last node only, and not counted.
const FROM_PACKETS: &str = "FROM f0.report_data
     WHERE ts >= ?1 AND ts < ?2 AND hop = 0 AND node = reporter AND flow IS NOT NULL";

/// Reports that are counted for one answer.
const MAX_REPORTS: u64 = 3_000_000;
/// Flows at nodes that are counted for one answer: some 20 MB with their paths.
const MAX_PASSED: usize = 400_000;
/// Keys of drops that are considered.
const MAX_DROP_KEYS: usize = 50_000;
/// Flows of one key that are counted.
const MAX_FLOWS_PER_KEY: usize = 10_000;
/// Flows of all keys together: some 20 MB.
const MAX_DROP_FLOWS: usize = 1_000_000;

#[cfg(test)]
mod tests;

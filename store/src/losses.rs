//! What was lost in a span of time, and where: dropped packets as nodes reported them; packets that one node of a path reported and the next
//! one did not, as far as each report is stored; and, apart from both, reports that never arrived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry};

use collector::event::Nanos;
use rusqlite::{Connection, OptionalExtension as _};

use crate::guard::Deadline;
use crate::hasher::FastSet;
use crate::identity::FileIdentity;
use crate::keys::{Keys, KnownKeys};
use crate::query::QueryError;
use crate::reader::Reader;
use crate::schema::Features;
use crate::spans::{Span, each};
use crate::taken::{Paths, Takings, int, unsigned};

/// Where and why packets were dropped, as their drop reports say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DropPlace {
    /// The node.
    pub node: Option<u32>,
    /// The egress interface.
    pub egress_if: Option<u32>,
    /// The queue.
    pub queue: Option<u8>,
    /// The device's code of the reason.
    pub reason: Option<u8>,
}

/// Drop reports of one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropSum {
    /// Number of reports: each is of one packet.
    pub packets: u64,
    /// Number of flows.
    pub flows: u64,
    /// The first.
    pub first: Nanos,
    /// The last.
    pub last: Nanos,
}

/// Reports of one node that did not arrive as they were sent. They say nothing about the packets that they were about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReporterLoss {
    /// Numbers that never arrived.
    pub lost: u64,
    /// Numbers that arrived twice.
    pub duplicated: u64,
}

/// Packets of flows whose path has this link, counted from the reports of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkCount {
    /// Packets that the first node reported as forwarded.
    pub sent: u64,
    /// Packets that the second node reported, forwarded or dropped.
    pub arrived: u64,
    /// Number of flows.
    pub flows: u64,
}

/// What was lost.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Dropped packets.
    pub drops: BTreeMap<DropPlace, DropSum>,
    /// Lost reports by node.
    pub reporters: BTreeMap<u32, ReporterLoss>,
    /// Lost reports of senders whose node is not known.
    pub unknown_reporters: ReporterLoss,
    /// Packets counted at both ends.
    pub links: BTreeMap<(u32, u32), LinkCount>,
    /// Links of such flows of which one end did not report the flow's packets itself.
    pub silent: BTreeSet<(u32, u32)>,
    /// Flows that were left out of the counts, because their path changed, passes a node twice or is not known.
    pub left_out: u64,
    /// Reports from this time on were not counted: there are too many.
    pub counted_until: Option<Nanos>,
    /// Whether there are more places or flows than are considered.
    pub truncated: bool,
}

impl Reader {
    /// What was lost in a span of time. `count_until`: the store has every report before this time, so that packets can be counted at each
    /// node. What arrived later may not be stored yet, and would look like a loss.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn losses_of(&self, span: Span, count_until: Option<Nanos>) -> Result<Losses, QueryError> {
        self.losses_within(
            span,
            count_until,
            Most {
                reports: MOST_REPORTS,
                passed: MOST_PASSED,
            },
        )
    }

    fn losses_within(
        &self,
        span: Span,
        count_until: Option<Nanos>,
        most: Most,
    ) -> Result<Losses, QueryError> {
        self.with_retry(|| {
            let (mut losses, deadline) = (Losses::default(), self.deadline());
            let mut flows = DropFlows::default();
            let mut counts = Counts::of(span, count_until.unwrap_or(0), most);
            for file in self.files_of(span.from(), span.to())? {
                self.ask_file(&file, &deadline, |conn, features| {
                    losses.read_drops(conn, span, &mut flows, (self.keys(), &file))?;
                    losses.read_reporters(conn, span)?;
                    counts.add_file(conn, features, (self.keys(), &file))
                })?;
            }
            for (place, sum) in &mut losses.drops {
                sum.flows = flows.seen.get(place).map_or(0, |flows| flows.len() as u64);
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
        (keys, file): (&KnownKeys, &FileIdentity),
    ) -> rusqlite::Result<()> {
        let sql = "SELECT node, egress_if, queue, reason, flow, count(*), min(ts), max(ts) FROM f0.drop_data
                   WHERE ts >= ?1 AND ts < ?2 GROUP BY node, egress_if, queue, reason, flow";
        let mut keys_of: Option<Keys> = None;
        each(conn, sql, span, |row| {
            let place = DropPlace {
                node: row.get(0)?,
                egress_if: row.get(1)?,
                queue: row.get(2)?,
                reason: row.get(3)?,
            };
            let is_full = self.drops.len() >= MOST_PLACES;
            let blank = DropSum {
                packets: 0,
                flows: 0,
                first: Nanos::MAX,
                last: 0,
            };
            if is_full && !self.drops.contains_key(&place) {
                self.truncated = true;
                return Ok(());
            }
            let sum = self.drops.entry(place).or_insert(blank);
            sum.packets = sum.packets.saturating_add(unsigned(row, 5)?);
            (sum.first, sum.last) = (sum.first.min(unsigned(row, 6)?), sum.last.max(unsigned(row, 7)?));
            let Some(number) = row.get::<_, Option<i64>>(4)? else {
                return Ok(());
            };
            if keys_of.is_none() {
                keys_of = Some(keys.of(conn, file, 1)?);
            }
            let key = keys_of.as_ref().map_or(Ok(None), |keys| keys.get(conn, number))?;
            self.truncated |= key.is_some_and(|key| !flows.add(place, key.id()));
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
            // What reports no flow at all does not report this one either; what reports others has not seen this one.
            if !reporting.contains(&from) || !reporting.contains(&to) {
                self.silent.insert((from, to));
                continue;
            }
            let (sent, arrived) = (passed(from), passed(to));
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

/// The flows of each place, while files are read.
#[derive(Default)]
struct DropFlows {
    seen: HashMap<DropPlace, HashSet<u64>>,
    /// Of all places.
    total: usize,
}

impl DropFlows {
    /// Returns whether the flow is counted: it is not if there are too many.
    fn add(&mut self, place: DropPlace, flow: u64) -> bool {
        let seen = self.seen.entry(place).or_default();
        if seen.contains(&flow) {
            return true;
        }
        if seen.len() >= MOST_FLOWS_OF_PLACE || self.total >= MOST_FLOWS_OF_PLACES {
            return false;
        }
        self.total += 1;
        seen.insert(flow)
    }
}

/// How much is counted for one answer.
#[derive(Clone, Copy, Debug)]
struct Most {
    /// Reports.
    reports: u64,
    /// Flows at nodes.
    passed: usize,
}

/// Packets of a flow that a node reported.
#[derive(Clone, Copy, Default, Debug)]
struct Passed {
    forwarded: u64,
    dropped: u64,
}

/// The path of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken {
    Unknown,
    /// Always this one.
    One(usize),
    /// It changed, or not all of the flow's nodes are counted.
    Unusable,
}

/// The packets of each flow that nodes reported themselves, while files are read.
struct Counts {
    from: Nanos,
    /// Only reports before this time are counted.
    until: Nanos,
    /// Whether there were too many after it.
    is_cut: bool,
    /// What there is room for.
    most: Most,
    /// By flow and node.
    passed: HashMap<(u64, u32), Passed>,
    /// The path of each of these flows.
    taken: HashMap<u64, Taken>,
    paths: Paths,
    truncated: bool,
}

impl Counts {
    fn of(span: Span, until: Nanos, most: Most) -> Self {
        let until = until.min(span.to());
        let (passed, taken, paths) = (HashMap::new(), HashMap::new(), Paths::default());
        Self {
            from: span.from(),
            until,
            is_cut: false,
            most,
            passed,
            taken,
            paths,
            truncated: false,
        }
    }

    fn add_file(
        &mut self,
        conn: &Connection,
        features: Features,
        keys: (&KnownKeys, &FileIdentity),
    ) -> rusqlite::Result<()> {
        if self.is_cut || self.from >= self.until {
            return Ok(());
        }
        if let Some(ts) = self.first_beyond(conn)? {
            (self.until, self.is_cut) = (ts, true);
        }
        let found = self.add_reports(conn, keys)?;
        self.add_paths(conn, features, &found)
    }

    /// The time of the first report of a file that there is no room for. All reports before it are counted, and none of the same time: of the
    /// reports of one packet, not one alone.
    fn first_beyond(&self, conn: &Connection) -> rusqlite::Result<Option<Nanos>> {
        let sql = format!("SELECT ts {OF_PACKETS} ORDER BY ts LIMIT 1 OFFSET ?3");
        let mut select = conn.prepare_cached(&sql)?;
        select
            .query_row([int(self.from), int(self.until), int(self.most.reports)], |row| {
                unsigned(row, 0)
            })
            .optional()
    }

    /// Returns the flows by their numbers in the file.
    fn add_reports(
        &mut self,
        conn: &Connection,
        (keys, file): (&KnownKeys, &FileIdentity),
    ) -> rusqlite::Result<HashMap<i64, u64>> {
        let sql = format!("SELECT flow, node, flags, count(*) {OF_PACKETS} GROUP BY flow, node, flags");
        let mut select = conn.prepare_cached(&sql)?;
        let mut rows = select.query([int(self.from), int(self.until)])?;
        let (mut found, mut keys_of): (HashMap<i64, u64>, Option<Keys>) = (HashMap::new(), None);
        while let Some(row) = rows.next()? {
            let (number, count): (i64, u64) = (row.get(0)?, unsigned(row, 3)?);
            self.most.reports = self.most.reports.saturating_sub(count);
            if keys_of.is_none() {
                keys_of = Some(keys.of(conn, file, usize::MAX)?);
            }
            let flow = match found.get(&number) {
                Some(flow) => Some(*flow),
                None => {
                    let key = keys_of.as_ref().map_or(Ok(None), |keys| keys.get(conn, number))?;
                    key.map(|key| key.id())
                }
            };
            let Some(flow) = flow else { continue };
            let Some(passed) = self.room_for(flow, row.get(1)?) else {
                continue;
            };
            found.insert(number, flow);
            let flags = row.get_ref(2)?.as_str()?;
            let is = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
            match (is("drop"), is("flow")) {
                (true, _) => passed.dropped = passed.dropped.saturating_add(count),
                (false, true) => passed.forwarded = passed.forwarded.saturating_add(count),
                (false, false) => {}
            }
        }
        Ok(found)
    }

    /// Where packets of a flow at a node are counted, unless there are too many of these.
    fn room_for(&mut self, flow: u64, node: u32) -> Option<&mut Passed> {
        let is_full = self.passed.len() >= self.most.passed;
        match self.passed.entry((flow, node)) {
            Entry::Vacant(_) if is_full => {
                self.truncated = true;
                // Without one of its nodes, what is known of a flow would look like a loss.
                if let Some(taken) = self.taken.get_mut(&flow) {
                    *taken = Taken::Unusable;
                }
                None
            }
            entry => {
                self.taken.entry(flow).or_insert(Taken::Unknown);
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
        let span = (self.from, self.until);
        let wanted: FastSet<i64> = found.keys().copied().collect();
        let mut takings = Takings::of(conn, features, span, (&wanted, false))?;
        for (number, flow) in found {
            for (_, path) in takings.taken(conn, *number, span)? {
                let path = Taken::One(self.paths.place(conn, path)?);
                let taken = self.taken.entry(*flow).or_insert(Taken::Unknown);
                *taken = if [Taken::Unknown, path].contains(taken) {
                    path
                } else {
                    Taken::Unusable
                };
            }
        }
        Ok(())
    }

    fn finish(self, losses: &mut Losses, deadline: &Deadline) -> Result<(), QueryError> {
        losses.truncated |= self.truncated;
        losses.counted_until = self.is_cut.then_some(self.until);
        let usable = |path: Vec<u32>| can_be_compared(&path).then_some(path);
        let paths: Vec<Option<Vec<u32>>> = self.paths.into_nodes().into_iter().map(usable).collect();
        let reporting: HashSet<u32> = self.passed.keys().map(|(_, node)| *node).collect();
        for (flow, taken) in &self.taken {
            deadline.check()?;
            let path = match taken {
                Taken::One(place) => paths.get(*place).and_then(Option::as_ref),
                Taken::Unknown | Taken::Unusable => None,
            };
            let passed = |node| self.passed.get(&(*flow, node)).copied().unwrap_or_default();
            match path {
                Some(path) => losses.compare(path, passed, &reporting),
                None => losses.left_out += 1,
            }
        }
        Ok(())
    }
}

/// Whether each node is known, and passed once: what a node reports of a packet does not say for which time it passes.
fn can_be_compared(path: &[u32]) -> bool {
    let mut nodes = HashSet::new();
    path.iter().all(|node| *node != u32::MAX && nodes.insert(*node))
}

/// Reports of packets that nodes sent themselves. A packet whose INT travels with it is reported by the last node only, and not counted.
const OF_PACKETS: &str = "FROM f0.report_data
     WHERE ts >= ?1 AND ts < ?2 AND hop = 0 AND node = reporter AND flow IS NOT NULL";

/// Reports that are counted for one answer.
const MOST_REPORTS: u64 = 3_000_000;
/// Flows at nodes that are counted for one answer: some 20 MB with their paths.
const MOST_PASSED: usize = 400_000;
/// Places of drops that are considered.
const MOST_PLACES: usize = 50_000;
/// Flows of one place that are kept apart.
const MOST_FLOWS_OF_PLACE: usize = 10_000;
/// Of all places together: some 20 MB.
const MOST_FLOWS_OF_PLACES: usize = 1_000_000;

#[cfg(test)]
mod tests;

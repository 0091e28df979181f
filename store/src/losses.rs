//! What was lost in a span of time, and where: dropped packets as nodes reported them; packets that one node of a path reported and the next
//! one did not, as far as each report is stored; and, apart from both, reports that never arrived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use collector::event::Nanos;
use rusqlite::{Connection, params};

use crate::join::Identity;
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
    /// Flows that were left out of the counts, because their path changed or is not known.
    pub left_out: u64,
    /// Reports after this time were not counted: there are too many.
    pub counted_until: Option<Nanos>,
    /// Whether there are more places than are considered.
    pub truncated: bool,
}

impl Reader {
    /// What was lost in a span of time. `count_reports`: the store has every report, so that packets can be counted at each node.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn losses_of(&self, span: Span, count_reports: bool) -> Result<Losses, QueryError> {
        self.with_retry(|| {
            let (mut losses, deadline) = (Losses::default(), self.deadline());
            let (mut flows, mut room) = (HashMap::new(), MOST_REPORTS);
            for file in self.files_of(span.from(), span.to())? {
                self.ask_file(&file, &deadline, |conn, features| {
                    losses.read_drops(conn, span, &mut flows, (self.keys(), &file))?;
                    losses.read_reporters(conn, span)?;
                    match count_reports {
                        true => losses.count(conn, features, span, &mut room),
                        false => Ok(()),
                    }
                })?;
            }
            for (place, sum) in &mut losses.drops {
                sum.flows = flows.get(place).map_or(0, |flows: &HashSet<u64>| flows.len() as u64);
            }
            Ok(losses)
        })
    }
}

impl Losses {
    fn read_drops(
        &mut self,
        conn: &Connection,
        span: Span,
        flows: &mut HashMap<DropPlace, HashSet<u64>>,
        (keys, file): (&KnownKeys, &Identity),
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
            let blank = DropSum { packets: 0, flows: 0, first: Nanos::MAX, last: 0 };
            if is_full && !self.drops.contains_key(&place) {
                self.truncated = true;
                return Ok(());
            }
            let sum = self.drops.entry(place).or_insert(blank);
            sum.packets = sum.packets.saturating_add(unsigned(row, 5)?);
            (sum.first, sum.last) = (sum.first.min(unsigned(row, 6)?), sum.last.max(unsigned(row, 7)?));
            let Some(number) = row.get::<_, Option<i64>>(4)? else { return Ok(()) };
            if keys_of.is_none() {
                keys_of = Some(keys.of(conn, file, 1)?);
            }
            let key = keys_of.as_ref().map_or(Ok(None), |keys| keys.get(conn, number))?;
            let seen = flows.entry(place).or_default();
            if let Some(key) = key.filter(|_| seen.len() < MOST_FLOWS_OF_PLACE) {
                seen.insert(key.id());
            }
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

    /// Counts the packets of each flow that nodes reported themselves, and compares each node with the next one of the path.
    fn count(
        &mut self,
        conn: &Connection,
        features: Features,
        span: Span,
        room: &mut usize,
    ) -> rusqlite::Result<()> {
        let counts = self.reports_of(conn, span, room)?;
        let wanted: HashSet<i64> = counts.keys().copied().collect();
        let mut takings = Takings::of(conn, features, (span.from(), span.to()), &wanted)?;
        let mut paths = Paths::default();
        let mut of_flows: Vec<(HashMap<u32, Passed>, BTreeSet<usize>)> = Vec::with_capacity(counts.len());
        let reporting: HashSet<u32> = counts.values().flat_map(HashMap::keys).copied().collect();
        for (number, nodes) in counts {
            let mut taken = BTreeSet::new();
            for (_, path) in takings.taken(conn, number, (span.from(), span.to()))? {
                taken.insert(paths.place(conn, path)?);
            }
            of_flows.push((nodes, taken));
        }
        let paths = paths.into_nodes();
        for (nodes, taken) in of_flows {
            let path = taken.first().filter(|_| taken.len() == 1).and_then(|path| paths.get(*path));
            match path.filter(|path| !path.contains(&u32::MAX)) {
                Some(path) => self.compare(path, &nodes, &reporting),
                None => self.left_out += 1,
            }
        }
        Ok(())
    }

    fn compare(&mut self, path: &[u32], nodes: &HashMap<u32, Passed>, reporting: &HashSet<u32>) {
        for ends in path.windows(2) {
            let [from, to] = [ends[0], ends[1]];
            let passed = nodes.get(&from).copied().unwrap_or_default();
            // What reports no flow at all does not report this one either; what reports others has not seen this one.
            if !reporting.contains(&from) || !reporting.contains(&to) {
                self.silent.insert((from, to));
                continue;
            }
            if passed.forwarded == 0 {
                continue;
            }
            let arrived = nodes.get(&to).copied().unwrap_or_default();
            let link = self.links.entry((from, to)).or_default();
            link.sent = link.sent.saturating_add(passed.forwarded);
            link.arrived = link.arrived.saturating_add(arrived.forwarded).saturating_add(arrived.dropped);
            link.flows += 1;
        }
    }

    /// Packets by flow and node. A packet whose INT travels with it is reported by the last node only, and not counted.
    fn reports_of(
        &mut self,
        conn: &Connection,
        span: Span,
        room: &mut usize,
    ) -> rusqlite::Result<HashMap<i64, HashMap<u32, Passed>>> {
        let mut select = conn.prepare_cached(
            "SELECT flow, node, flags, count(*), max(ts) FROM
               (SELECT ts, flow, node, flags FROM f0.report_data
                WHERE ts >= ?1 AND ts < ?2 AND hop = 0 AND node = reporter AND flow IS NOT NULL ORDER BY ts LIMIT ?3)
             GROUP BY flow, node, flags",
        )?;
        let mut counts: HashMap<i64, HashMap<u32, Passed>> = HashMap::new();
        let (mut read, mut latest) = (0_usize, 0);
        let mut rows = select.query(params![int(span.from()), int(span.to()), int(*room as u64)])?;
        while let Some(row) = rows.next()? {
            let flags = row.get_ref(2)?.as_str()?;
            let is = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
            let (drop, flow, count) = (is("drop"), is("flow"), unsigned(row, 3)?);
            read = read.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
            latest = latest.max(unsigned(row, 4)?);
            let passed = counts.entry(row.get(0)?).or_default().entry(row.get(1)?).or_default();
            match (drop, flow) {
                (true, _) => passed.dropped = passed.dropped.saturating_add(count),
                (false, true) => passed.forwarded = passed.forwarded.saturating_add(count),
                (false, false) => {}
            }
        }
        if read >= *room {
            self.counted_until = Some(self.counted_until.map_or(latest, |until| until.min(latest)));
        }
        *room = room.saturating_sub(read).max(1);
        Ok(counts)
    }
}

/// Packets of a flow that a node reported.
#[derive(Clone, Copy, Default, Debug)]
struct Passed {
    forwarded: u64,
    dropped: u64,
}

/// Reports that are counted for one answer.
const MOST_REPORTS: usize = 3_000_000;
/// Places of drops that are considered.
const MOST_PLACES: usize = 50_000;
/// Flows of one place that are told apart.
const MOST_FLOWS_OF_PLACE: usize = 10_000;

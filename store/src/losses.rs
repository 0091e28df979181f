//! Losses in a time span, by location, from three independent sources:
//!
//! * drop reports of nodes, by node, interface, queue and reason;
//! * packet counts per link: packets that one node of a path reported and the next node did not (INT-XD, where each node
//!   reports itself; needs the table of all reports);
//! * gaps in the sequence numbers of reporters, which are lost reports and not lost packets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry};

use collector::event::Nanos;
use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use crate::guard::Deadline;
use crate::identity::FileIdentity;
use crate::keys::{FlowKeyCache, Keys};
use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{int, unsigned};
use crate::spans::{Span, for_each_row};
use crate::taken::{PathSearch, Searched};

/// Selects packet reports that a node sent about itself. Packets whose INT metadata travels with them are reported by the
/// sink only and not counted.
const FROM_PACKETS: &str = "FROM f0.report_data
     WHERE ts >= ?1 AND ts < ?2 AND hop = 0 AND node = reporter AND flow IS NOT NULL";
/// Longest time between the reports of two nodes about one packet, ns. Packets that passed near the ends of a span may be
/// reported by one node within it, and by the other outside.
const UNDER_WAY: Nanos = 1_000_000_000;
/// Longest time from a lost report to its loss record, ns: the collector waits for late reports.
const ACCOUNTED: Nanos = 3_000_000_000;
/// Maximum number of reports counted for one answer.
const MAX_REPORTS: u64 = 3_000_000;
/// Maximum number of (flow, node) pairs: about 20 MB with their paths.
const MAX_PACKET_COUNTS: usize = 400_000;
/// Maximum number of drop keys.
const MAX_DROP_KEYS: usize = 50_000;
/// Maximum number of flows counted per key.
const MAX_FLOWS_PER_KEY: usize = 10_000;
/// Maximum number of flows over all keys: about 20 MB.
const MAX_DROP_FLOWS: usize = 1_000_000;

/// Location and reason of drops, as in the drop reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DropKey {
    /// The node that dropped the packets.
    pub node: Option<u32>,
    /// The egress interface of the packets.
    pub egress_if: Option<u32>,
    /// The queue of the packets.
    pub queue: Option<u8>,
    /// Drop reason code of the device.
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

/// Reports of one node that were lost or duplicated in transit. They say nothing about the packets that they describe.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReporterLoss {
    /// Sequence numbers that never arrived.
    pub lost: u64,
    /// Sequence numbers that arrived twice.
    pub duplicated: u64,
}

/// Packets on one link, from the reports of both ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LinkCount {
    /// Packets that the first node reported as forwarded.
    pub sent: u64,
    /// Packets that the second node reported, forwarded or dropped.
    pub arrived: u64,
    /// Number of flows whose path has the link.
    pub flows: u64,
    /// Maximum number of packets that only the first node reported within the time, because they were under way at its ends.
    pub unreceived: u64,
    /// Maximum number of packets that only the second node reported within the time, because they were under way at its ends.
    pub unsent: u64,
}

/// The losses in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Dropped packets by location and reason.
    pub drops: BTreeMap<DropKey, DropSum>,
    /// Lost reports by node.
    pub reporters: BTreeMap<u32, ReporterLoss>,
    /// Lost reports of senders with an unknown node ID.
    pub unknown_reporters: ReporterLoss,
    /// Lost and duplicated reports by node that may concern the link counts: also those that were noticed shortly after the
    /// time.
    pub concerning: BTreeMap<u32, ReporterLoss>,
    /// Packets that were counted at both ends of a link.
    pub links: BTreeMap<(u32, u32), LinkCount>,
    /// Links that could not be compared because one end reports no packets itself.
    pub silent: BTreeSet<(u32, u32)>,
    /// Flows left out of the link counts because their path changed, is unknown or visits a node twice.
    pub left_out: u64,
    /// Reports from this time (ns) on were not counted because there are too many.
    pub counted_until: Option<Nanos>,
    /// True if there are more locations or flows than the limits allow.
    pub truncated: bool,
}

impl Reader {
    /// Returns the losses in a time span. `count_until` is the time before which the store has every report, ns. Later
    /// reports may not be stored yet, which would look like a loss; `None` skips the link counts.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn losses_in(&self, span: Span, count_until: Option<Nanos>) -> Result<Losses, QueryError> {
        let limits = Limits {
            reports: MAX_REPORTS,
            packets: MAX_PACKET_COUNTS,
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
            let accounted = span.to().saturating_add(ACCOUNTED);
            let files = self.files_in(span.from().saturating_sub(UNDER_WAY), accounted)?;
            for file in &files {
                self.query_file(file, &deadline, |conn, _| {
                    losses.read_drops(conn, span, &mut flows, self.keys(), file)?;
                    losses.read_reporters(conn, span)?;
                    counts.add_file(conn, self.keys(), file)
                })?;
            }
            // Only now it is known up to which time reports were counted.
            for file in &files {
                self.query_file(file, &deadline, |conn, _| {
                    losses.read_concerning(conn, [span.from(), accounted])?;
                    counts.add_borders(conn, self.keys(), file)
                })?;
            }
            for (key, sum) in &mut losses.drops {
                sum.flows = flows.by_key.get(key).map_or(0, |flows| flows.len() as u64);
            }
            counts.add_paths(self, &deadline)?;
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
        keys: &FlowKeyCache,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        let sql = "SELECT node, egress_if, queue, reason, flow, count(*), min(ts), max(ts) FROM f0.drop_data
                   WHERE ts >= ?1 AND ts < ?2 GROUP BY node, egress_if, queue, reason, flow";
        let mut file_keys: Option<Keys> = None;
        for_each_row(conn, sql, span, |row| {
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
        each_reporter(conn, [span.from(), span.to()], |node, found| {
            let loss = match node {
                Some(node) => self.reporters.entry(node).or_default(),
                None => &mut self.unknown_reporters,
            };
            loss.add(found);
        })
    }

    fn read_concerning(&mut self, conn: &Connection, times: [Nanos; 2]) -> rusqlite::Result<()> {
        each_reporter(conn, times, |node, found| {
            if let Some(node) = node {
                self.concerning.entry(node).or_default().add(found);
            }
        })
    }

    /// Compares the packet counts of each two consecutive nodes of a flow's path. `packets` returns a node's counts, and
    /// `borders` those near the ends of the time; `reporting` are all nodes that report any flow.
    fn compare(
        &mut self,
        path: &[u32],
        packets: impl Fn(u32) -> PacketCounts,
        borders: impl Fn(u32) -> Borders,
        reporting: &HashSet<u32>,
    ) {
        for ends in path.windows(2) {
            let [from, to] = [ends[0], ends[1]];
            // A node that reports no flow at all cannot be compared. One that reports others did not see this flow's packets.
            if !reporting.contains(&from) || !reporting.contains(&to) {
                self.silent.insert((from, to));
                continue;
            }
            let sent = packets(from);
            let arrived = packets(to);
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
            let [sending, receiving] = [borders(from), borders(to)];
            link.unreceived = link
                .unreceived
                .saturating_add(sending.unmatched(&receiving, |sender| sender.forwarded));
            link.unsent = link
                .unsent
                .saturating_add(receiving.unmatched(&sending, PacketCounts::all));
        }
    }
}

/// Distinct flows per drop key.
#[derive(Default)]
struct DropFlows {
    by_key: HashMap<DropKey, HashSet<u64>>,
    /// Number of flows over all keys.
    total: usize,
}

impl DropFlows {
    /// Adds a flow. Returns false if a limit is reached and the flow is not counted.
    fn add(&mut self, key: DropKey, flow: u64) -> bool {
        let flows = self.by_key.entry(key).or_default();
        if flows.contains(&flow) {
            return true;
        }
        if flows.len() >= MAX_FLOWS_PER_KEY || self.total >= MAX_DROP_FLOWS {
            return false;
        }
        self.total += 1;
        flows.insert(flow)
    }
}

/// Limits of the counts for one answer.
#[derive(Clone, Copy, Debug)]
struct Limits {
    reports: u64,
    /// Maximum number of (flow, node) pairs.
    packets: usize,
}

/// Passes the lost and duplicated reports of each node between two times to `add`.
fn each_reporter(
    conn: &Connection,
    times: [Nanos; 2],
    mut add: impl FnMut(Option<u32>, ReporterLoss),
) -> rusqlite::Result<()> {
    let sql = "SELECT node, sum(lost), sum(duplicated) FROM f0.loss_data
               WHERE ts >= ?1 AND ts < ?2 GROUP BY node";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(times.map(int))?;
    while let Some(row) = rows.next()? {
        let loss = ReporterLoss {
            lost: unsigned(row, 1)?,
            duplicated: unsigned(row, 2)?,
        };
        add(row.get::<_, Option<u32>>(0)?, loss);
    }
    Ok(())
}

impl ReporterLoss {
    fn add(&mut self, other: Self) {
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
    }
}

/// Packets of a flow that a node reported.
#[derive(Clone, Copy, Default, Debug)]
struct PacketCounts {
    forwarded: u64,
    dropped: u64,
}

impl PacketCounts {
    /// Adds packets with these names of flags.
    fn add(&mut self, flags: &str, count: u64) {
        if flags.split(',').any(|flag| flag == "drop") {
            self.dropped = self.dropped.saturating_add(count);
        } else if flags.split(',').any(|flag| flag == "flow") {
            self.forwarded = self.forwarded.saturating_add(count);
        }
    }

    fn all(self) -> u64 {
        self.forwarded.saturating_add(self.dropped)
    }
}

/// Packets of a flow that a node reported near the ends of a time: shortly before its start and after it, and before its end
/// and after it.
#[derive(Clone, Copy, Default, Debug)]
struct Borders([PacketCounts; 4]);

impl Borders {
    /// Returns the maximum number of packets that this node reported within the time, and `other` shortly before it or after
    /// it.
    fn unmatched(&self, other: &Self, count: impl Fn(PacketCounts) -> u64) -> u64 {
        let [_, first, last, _] = self.0;
        let [before, .., after] = other.0;
        let at_start = count(first).min(before.all());
        let at_end = count(last).min(after.all());
        at_start.saturating_add(at_end)
    }
}

/// The path of a flow in the span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SinglePath {
    Unknown,
    /// The flow always took the path with this index.
    Known(usize),
    /// The path changed, or not all of the flow's nodes were counted.
    Unusable,
}

/// Accumulates the packets of each flow as reported by each node.
struct Counts {
    from: Nanos,
    /// Only reports before this time are counted.
    until: Nanos,
    /// True if `until` was moved back because there were too many reports.
    is_cut: bool,
    /// The limits; `reports` is the remaining number of reports.
    limits: Limits,
    /// The packets by flow and node.
    packets: HashMap<(u64, u32), PacketCounts>,
    /// Those near the ends of the time.
    borders: HashMap<(u64, u32), Borders>,
    /// The path of each of these flows.
    flow_paths: HashMap<u64, SinglePath>,
    /// The flows whose paths are searched.
    searched: Searched,
    /// The nodes of each path, by its index.
    paths: Vec<Vec<u32>>,
    truncated: bool,
}

impl Counts {
    fn new(span: Span, until: Nanos, limits: Limits) -> Self {
        Self {
            from: span.from(),
            // What follows shortly after it is known, too.
            until: until.saturating_sub(UNDER_WAY).min(span.to()),
            is_cut: false,
            limits,
            packets: HashMap::new(),
            borders: HashMap::new(),
            flow_paths: HashMap::new(),
            searched: Searched::default(),
            paths: Vec::new(),
            truncated: false,
        }
    }

    fn add_file(
        &mut self,
        conn: &Connection,
        keys: &FlowKeyCache,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        if self.is_cut || self.from >= self.until {
            return Ok(());
        }
        if let Some(ts) = self.first_uncounted_time(conn)? {
            self.until = ts;
            self.is_cut = true;
        }
        self.add_reports(conn, keys, file)
    }

    /// Returns the time of the first report in a file beyond the limit. All earlier reports are counted, and none of the same
    /// time, so that the reports of one packet are counted together or not at all.
    fn first_uncounted_time(&self, conn: &Connection) -> rusqlite::Result<Option<Nanos>> {
        let sql = format!("SELECT ts {FROM_PACKETS} ORDER BY ts LIMIT 1 OFFSET ?3");
        let mut select = conn.prepare_cached(&sql)?;
        select
            .query_row(
                [int(self.from), int(self.until), int(self.limits.reports)],
                |row| unsigned(row, 0),
            )
            .optional()
    }

    /// Adds the reports of a file.
    fn add_reports(
        &mut self,
        conn: &Connection,
        keys: &FlowKeyCache,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        let sql = format!("SELECT flow, node, flags, count(*) {FROM_PACKETS} GROUP BY flow, node, flags");
        let mut select = conn.prepare_cached(&sql)?;
        let mut rows = select.query([int(self.from), int(self.until)])?;
        let mut flows: HashMap<i64, FlowKey> = HashMap::new();
        let mut file_keys: Option<Keys> = None;
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(0)?;
            let count = unsigned(row, 3)?;
            self.limits.reports = self.limits.reports.saturating_sub(count);
            let file_keys = match &mut file_keys {
                Some(file_keys) => file_keys,
                none => none.insert(keys.load(conn, file, usize::MAX)?),
            };
            let flow = match flows.get(&number) {
                Some(flow) => Some(*flow),
                None => file_keys.get(conn, number)?,
            };
            let Some(flow) = flow else { continue };
            let Some(packets) = self.packets_entry(flow.id(), row.get(1)?) else {
                continue;
            };
            packets.add(row.get_ref(2)?.as_str()?, count);
            flows.insert(number, flow);
        }
        let needed = self.until;
        self.searched
            .extend(flows.into_values().map(|flow| (flow, needed)));
        Ok(())
    }

    /// Adds the reports of a file near the ends of the counted time.
    fn add_borders(
        &mut self,
        conn: &Connection,
        keys: &FlowKeyCache,
        file: &FileIdentity,
    ) -> rusqlite::Result<()> {
        let [from, until] = [self.from, self.until];
        if from >= until {
            return Ok(());
        }
        let times = [
            (from.saturating_sub(UNDER_WAY), from),
            (from, from.saturating_add(UNDER_WAY).min(until)),
            (until.saturating_sub(UNDER_WAY).max(from), until),
            (until, until.saturating_add(UNDER_WAY)),
        ];
        let sql = format!("SELECT flow, node, flags, count(*) {FROM_PACKETS} GROUP BY flow, node, flags");
        let mut select = conn.prepare_cached(&sql)?;
        let mut file_keys: Option<Keys> = None;
        for (place, (start, end)) in times.into_iter().enumerate() {
            let mut rows = select.query([int(start), int(end)])?;
            while let Some(row) = rows.next()? {
                let file_keys = match &mut file_keys {
                    Some(file_keys) => file_keys,
                    none => none.insert(keys.load(conn, file, usize::MAX)?),
                };
                let Some(flow) = file_keys.get(conn, row.get(0)?)?.map(|key| key.id()) else {
                    continue;
                };
                // Other flows are not compared, so that there are at most as many entries as counts.
                if self.flow_paths.contains_key(&flow) {
                    let near = self.borders.entry((flow, row.get(1)?)).or_default();
                    near.0[place].add(row.get_ref(2)?.as_str()?, unsigned(row, 3)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the count of a flow's packets at a node, unless there are too many counts.
    fn packets_entry(&mut self, flow: u64, node: u32) -> Option<&mut PacketCounts> {
        let is_full = self.packets.len() >= self.limits.packets;
        match self.packets.entry((flow, node)) {
            Entry::Vacant(_) if is_full => {
                self.truncated = true;
                // If one node's count is missing, the flow would seem to lose packets there.
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

    /// Finds the path of each flow, in whichever files it is.
    fn add_paths(&mut self, reader: &Reader, deadline: &Deadline) -> Result<(), QueryError> {
        let search = PathSearch {
            from: self.from,
            to: self.until,
            only_last: false,
        };
        let taken = reader.find_paths(&self.searched, search, deadline)?;
        for flow in self.searched.keys() {
            for (_, path) in taken.starts(flow) {
                let path = SinglePath::Known(*path);
                let known = self.flow_paths.entry(flow.id()).or_insert(SinglePath::Unknown);
                *known = if [SinglePath::Unknown, path].contains(known) {
                    path
                } else {
                    SinglePath::Unusable
                };
            }
        }
        self.paths = taken.nodes;
        Ok(())
    }

    fn finish(self, losses: &mut Losses, deadline: &Deadline) -> Result<(), QueryError> {
        losses.truncated |= self.truncated;
        losses.counted_until = self.is_cut.then_some(self.until);
        let paths = &self.paths;
        let comparable: Vec<bool> = paths.iter().map(|path| can_be_compared(path)).collect();
        let reporting: HashSet<u32> = self.packets.keys().map(|(_, node)| *node).collect();
        for (flow, path) in &self.flow_paths {
            deadline.check()?;
            match path {
                SinglePath::Known(index) if comparable[*index] => losses.compare(
                    &paths[*index],
                    |node| self.packets.get(&(*flow, node)).copied().unwrap_or_default(),
                    |node| self.borders.get(&(*flow, node)).copied().unwrap_or_default(),
                    &reporting,
                ),
                _ => losses.left_out += 1,
            }
        }
        Ok(())
    }
}

/// Returns true if all nodes are known and distinct: a report does not say which visit to a node it describes.
fn can_be_compared(path: &[u32]) -> bool {
    let mut nodes = HashSet::new();
    path.iter().all(|node| *node != u32::MAX && nodes.insert(*node))
}

#[cfg(test)]
mod tests;

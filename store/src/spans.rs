//! What happened in a span of time: its flows with their paths, its nodes, queues and links. Read from what is added up while
//! records are inserted (module `summary`), so that a day takes little longer than a minute.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

use collector::event::{Basis, Nanos};
use collector::{FlowOrder, FlowRank};
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use wire::FlowKey;

use crate::guard::Deadline;
use crate::hasher::{FastMap, FastSet, Seeded};
use crate::identity::FileIdentity;
use crate::intern::parse_flow;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::schema::Features;
use crate::summary::{LONGER, NOTHING};
use crate::taken::{Paths, Takings, int, unsigned};

/// A span of whole minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    from: Nanos,
    to: Nanos,
}

/// Which flows of a span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFilter {
    /// The span.
    pub span: Span,
    /// Greatest first by this.
    pub order: FlowOrder,
    /// Only flows whose text contains this.
    pub text: Option<String>,
    /// Only the flow with this id: of however many. With its whole text, it is found faster.
    pub id: Option<u64>,
    /// Only flows after this one.
    pub after: Option<FlowRank>,
    /// At most so many.
    pub limit: usize,
}

/// A flow in a span of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSpan {
    /// The flow.
    pub flow: FlowKey,
    /// Its flow latencies.
    pub sum: SpanSum,
    /// The path that it took last; empty if that is not stored. `u32::MAX` = unavailable.
    pub path: Vec<u32>,
    /// How its latest latency was obtained.
    pub basis: Basis,
}

/// Values of a span of time, added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanSum {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Sum of values; at most `i64::MAX`.
    pub sum: u64,
    /// Beginning of the first rollup.
    pub first: Nanos,
    /// End of the last rollup.
    pub last: Nanos,
}

/// A page of the flows of a span.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowSpans {
    /// The flows, with their places in the order.
    pub flows: Vec<(FlowRank, FlowSpan)>,
    /// Whether there are more after these.
    pub more: bool,
    /// How many match.
    pub total: u64,
    /// Whether the span has more flows than are considered: the others are in no page.
    pub truncated: bool,
}

/// What rollups of nodes, queues and links are about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SeriesKey {
    /// The metric, by its number.
    pub metric: u8,
    /// The node.
    pub node: u32,
    /// The egress interface, of a link.
    pub interface: Option<u32>,
    /// The queue.
    pub queue: Option<u8>,
}

/// Nodes, queues and links in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NodeSpans {
    /// Their values.
    pub series: BTreeMap<SeriesKey, SpanSum>,
    /// Dropped packets by node.
    pub drops: BTreeMap<u32, u64>,
    /// Whether there are more than are considered.
    pub truncated: bool,
}

/// A path in a span of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathSpan {
    /// Its nodes; `u32::MAX` = unavailable.
    pub path: Vec<u32>,
    /// Flows that took it.
    pub flows: u64,
    /// Reports of those that took it last.
    pub reports: u64,
    /// When the last of them left it, or the end of the last minute in which it was reported.
    pub last: Nanos,
}

/// A part of a span that rollups of one length cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Length of the rollups, s.
    pub interval: u32,
    /// Its beginning.
    pub from: Nanos,
    /// Its end, which is not in it.
    pub to: Nanos,
}

impl Span {
    /// The whole minutes that `from` up to before `to` touches. One that ends before it begins is empty.
    pub fn of(from: Nanos, to: Nanos) -> Self {
        let to = to.min(LATEST).max(from);
        let (from, to) = (
            from / MINUTE * MINUTE,
            to.div_ceil(MINUTE).saturating_mul(MINUTE).min(LATEST),
        );
        Self {
            from: from.min(to),
            to,
        }
    }

    /// Its beginning.
    pub fn from(self) -> Nanos {
        self.from
    }

    /// Its end, which is not in it.
    pub fn to(self) -> Nanos {
        self.to
    }

    /// Its length, ns.
    pub fn length(self) -> Nanos {
        self.to - self.from
    }

    /// The fewest rollups that cover it: hours in its middle, ten minutes around them, minutes at its ends.
    pub fn pieces(self) -> Vec<Piece> {
        self.pieces_up_to(u32::MAX)
    }

    /// The same with rollups of at most so many seconds.
    pub(crate) fn pieces_up_to(self, longest: u32) -> Vec<Piece> {
        let mut ends = Vec::new();
        let (mut from, mut to, mut interval) = (self.from, self.to, 60);
        for longer in LONGER.into_iter().filter(|longer| *longer <= longest) {
            let length = u64::from(longer) * SECOND;
            let (inner_from, inner_to) = (from.div_ceil(length).saturating_mul(length), to / length * length);
            if inner_from >= inner_to {
                break;
            }
            ends.push(Piece {
                interval,
                from,
                to: inner_from,
            });
            ends.push(Piece {
                interval,
                from: inner_to,
                to,
            });
            (from, to, interval) = (inner_from, inner_to, longer);
        }
        ends.push(Piece { interval, from, to });
        ends.retain(|piece| piece.from < piece.to);
        ends
    }

    /// The same, as far as a file has such rollups of flows: one without them is read minute by minute.
    pub(crate) fn pieces_in(self, features: Features) -> Vec<Piece> {
        if features.spans {
            self.pieces()
        } else {
            vec![Piece::minutes(self)]
        }
    }
}

impl Piece {
    /// Minute by minute.
    pub fn minutes(span: Span) -> Self {
        Self {
            interval: 60,
            from: span.from,
            to: span.to,
        }
    }

    /// The length of its rollups, ns.
    pub fn length(self) -> Nanos {
        u64::from(self.interval) * SECOND
    }
}

impl SpanSum {
    pub(crate) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum).min(LATEST);
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
    }

    /// Whether there were values: a flow without latencies has counts only.
    pub fn has_values(self) -> bool {
        self.min <= self.max
    }

    /// The mean.
    pub fn mean(self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// Of five columns: time, count, minimum, maximum, sum.
    pub(crate) fn read(row: &Row<'_>, at: usize, interval: u32) -> rusqlite::Result<Self> {
        let first = unsigned(row, at)?;
        let last = first.saturating_add(u64::from(interval) * SECOND);
        let value = |i| unsigned(row, at + i);
        Ok(Self {
            count: value(1)?,
            min: value(2)?,
            max: value(3)?,
            sum: value(4)?,
            first,
            last,
        })
    }
}

/// A flow while files are read: where it is, and the paths that it took.
struct Found {
    sum: SpanSum,
    /// File and number.
    places: Vec<(usize, i64)>,
    /// When, and which of the paths.
    paths: Vec<(Nanos, usize)>,
    basis: Basis,
}

impl Found {
    /// As it is shown. `paths`: all of them.
    fn span(&self, flow: FlowKey, paths: &[Vec<u32>]) -> FlowSpan {
        let last = self.paths.last().and_then(|(_, path)| paths.get(*path));
        let path = last.cloned().unwrap_or_default();
        FlowSpan {
            flow,
            sum: self.sum,
            path,
            basis: self.basis,
        }
    }
}

/// Each time a flow took a path in a span, and until when: until the next one, or the end of its last rollup.
fn left(span: Span, sum: SpanSum, paths: &[(Nanos, usize)]) -> impl Iterator<Item = (usize, Nanos)> {
    let nexts = paths.iter().skip(1).map(|(ts, _)| *ts).chain([Nanos::MAX]);
    // One of several files may have left a path long before the span.
    let taken = paths.iter().zip(nexts).filter(move |(_, next)| *next > span.from);
    taken.map(move |((_, path), next)| (*path, next.min(sum.last)))
}

/// The paths of a span, the most used first. `nodes`: of each path. `flows`: what each did, and when it took which of the paths; also the
/// one that it had when the span began; in the order of time.
pub fn paths_of<'a>(
    span: Span,
    nodes: Vec<Vec<u32>>,
    flows: impl Iterator<Item = (SpanSum, &'a [(Nanos, usize)])>,
) -> Vec<PathSpan> {
    let blank = |path| PathSpan {
        path,
        flows: 0,
        reports: 0,
        last: 0,
    };
    let mut paths: Vec<PathSpan> = nodes.into_iter().map(blank).collect();
    // The flow that took a path last, counted from 1.
    let mut takers = vec![0_usize; paths.len()];
    for (i, (sum, taken)) in (1..).zip(flows) {
        for (place, last) in left(span, sum, taken) {
            let path = &mut paths[place];
            path.flows += u64::from(std::mem::replace(&mut takers[place], i) != i);
            path.last = path.last.max(last);
        }
        if let Some((_, last)) = taken.last() {
            paths[*last].reports = paths[*last].reports.saturating_add(sum.count);
        }
    }
    paths.retain(|path| path.flows > 0);
    paths.sort_by(|one, other| (other.flows, &one.path).cmp(&(one.flows, &other.path)));
    paths
}

impl FlowFilter {
    /// The place of a flow with this sum in the wanted order.
    pub fn rank(&self, flow: &FlowKey, sum: &SpanSum) -> FlowRank {
        let value = match self.order {
            FlowOrder::LastSeen => sum.last,
            FlowOrder::Latency => sum.max,
            FlowOrder::Reports => sum.count,
        };
        FlowRank(value, flow.id())
    }
}

/// Flows of a span, and the files that they are in.
struct Flows {
    files: Vec<FileIdentity>,
    found: HashMap<FlowKey, Found, Seeded>,
    truncated: bool,
}

impl Reader {
    /// Flows of a span of time, also those that have expired.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_spans(&self, filter: &FlowFilter) -> Result<FlowSpans, QueryError> {
        self.flow_spans_where(filter, false, &|_| true)
    }

    /// The same, those that are wanted. `by_path`: their paths are needed to know it.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_spans_where(
        &self,
        filter: &FlowFilter,
        by_path: bool,
        is_wanted: &dyn Fn(&FlowSpan) -> bool,
    ) -> Result<FlowSpans, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut flows = match filter.id {
                Some(id) => self.flow_of(filter.span, (id, filter.text.as_deref()), &deadline)?,
                None => self.flows_of(filter.span, filter.text.as_deref(), &deadline)?,
            };
            let mut paths = match by_path {
                true => self.add_paths(&mut flows, (filter.span, true), &deadline)?,
                false => Vec::new(),
            };
            flows
                .found
                .retain(|flow, found| is_wanted(&found.span(*flow, &paths)));
            deadline.check()?;
            let total = flows.found.len() as u64;
            let mut ranks: Vec<(FlowRank, FlowKey)> = flows
                .found
                .iter()
                .map(|(flow, found)| (filter.rank(flow, &found.sum), *flow))
                .collect();
            ranks.retain(|(rank, _)| filter.after.is_none_or(|after| *rank < after));
            ranks.sort_unstable_by(|one, other| other.cmp(one));
            let more = ranks.len() > filter.limit;
            ranks.truncate(filter.limit);
            if !by_path {
                let shown: HashSet<FlowKey> = ranks.iter().map(|(_, flow)| *flow).collect();
                flows.found.retain(|flow, _| shown.contains(flow));
                paths = self.add_paths(&mut flows, (filter.span, true), &deadline)?;
            }
            let row =
                |(rank, flow): (FlowRank, FlowKey)| Some((rank, flows.found.get(&flow)?.span(flow, &paths)));
            let rows = ranks.into_iter().filter_map(row).collect();
            Ok(FlowSpans {
                flows: rows,
                more,
                total,
                truncated: flows.truncated,
            })
        })
    }

    /// The latencies of each flow of a span of time, and whether there are more flows than are considered.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_sums(&self, span: Span) -> Result<(HashMap<FlowKey, SpanSum>, bool), QueryError> {
        self.with_retry(|| {
            let flows = self.flows_of(span, None, &self.deadline())?;
            let sums = flows
                .found
                .into_iter()
                .map(|(flow, found)| (flow, found.sum))
                .collect();
            Ok((sums, flows.truncated))
        })
    }

    /// The paths of a span of time, the most used first, and whether the span has more flows than are considered.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn path_spans(&self, span: Span) -> Result<(Vec<PathSpan>, bool), QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut flows = self.flows_of(span, None, &deadline)?;
            let nodes = self.add_paths(&mut flows, (span, false), &deadline)?;
            deadline.check()?;
            let paths = paths_of(
                span,
                nodes,
                flows.found.values().map(|found| (found.sum, &*found.paths)),
            );
            Ok((paths, flows.truncated))
        })
    }

    /// Nodes, queues and links in a span of time.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn node_spans(&self, span: Span) -> Result<NodeSpans, QueryError> {
        self.with_retry(|| {
            let (mut spans, deadline) = (NodeSpans::default(), self.deadline());
            for file in self.files_of(span.from, span.to)? {
                self.ask_file(&file, &deadline, |conn, features| {
                    match features.spans {
                        true => span
                            .pieces()
                            .iter()
                            .try_for_each(|piece| spans.read(conn, *piece))?,
                        false => spans.read_rollups(conn, span)?,
                    }
                    spans.read_drops(conn, span)
                })?;
            }
            Ok(spans)
        })
    }

    /// One flow of a span, alone: those of a span may be more than are considered.
    fn flow_of(
        &self,
        span: Span,
        (id, text): (u64, Option<&str>),
        deadline: &Deadline,
    ) -> Result<Flows, QueryError> {
        let files = self.files_of(span.from, span.to)?;
        let mut flows = Flows {
            files,
            found: HashMap::default(),
            truncated: false,
        };
        let mut known = text
            .and_then(|text| text.parse::<FlowKey>().ok())
            .filter(|flow| flow.id() == id);
        for at in 0..flows.files.len() {
            let file = flows.files[at].clone();
            self.ask_file(&file, deadline, |conn, features| {
                let Some((number, flow)) = number_of(conn, id, known)? else {
                    return Ok(());
                };
                known = Some(flow);
                let mut all: Option<SpanSum> = None;
                for piece in span.pieces_in(features) {
                    read_flow(conn, piece, number, &mut |sum| match &mut all {
                        Some(all) => all.add(sum),
                        None => all = Some(sum),
                    })?;
                }
                flows.add_file(at, all.map(|sum| (number, flow, sum)).into_iter().collect());
                Ok(())
            })?;
        }
        Ok(flows)
    }

    /// The flows of a span.
    fn flows_of(&self, span: Span, text: Option<&str>, deadline: &Deadline) -> Result<Flows, QueryError> {
        let files = self.files_of(span.from, span.to)?;
        let mut flows = Flows {
            files: Vec::new(),
            found: HashMap::default(),
            truncated: false,
        };
        let read = |at: usize, conn: &Connection, features: Features| {
            let mut sums: FastMap<i64, SpanSum> = FastMap::default();
            let mut add = |number: i64, sum: SpanSum| match sums.len() < MOST_FLOWS {
                true => {
                    sums.entry(number)
                        .and_modify(|known| known.add(sum))
                        .or_insert(sum);
                    true
                }
                false => sums.get_mut(&number).map(|known| known.add(sum)).is_some(),
            };
            let mut whole = true;
            for piece in span.pieces_in(features) {
                whole &= read_flows(conn, piece, &mut add)?;
            }
            let keys = self.keys().of(conn, &files[at], sums.len())?;
            let of_file = sums
                .into_iter()
                .filter_map(|(number, sum)| match keys.get(conn, number) {
                    Ok(flow) => Some(Ok((number, flow.filter(|flow| is_wanted(flow, text))?, sum))),
                    Err(error) => Some(Err(error)),
                });
            Ok((whole, of_file.collect::<rusqlite::Result<Vec<_>>>()?))
        };
        self.ask_files(&files, deadline, read, |at, (whole, sums)| {
            flows.truncated |= !whole;
            flows.add_file(at, sums);
            Ok(())
        })?;
        flows.files = files;
        Ok(flows)
    }

    /// Adds the paths that flows took. Returns all of them. `with_bases`: also how their latencies were obtained.
    fn add_paths(
        &self,
        flows: &mut Flows,
        (span, with_bases): (Span, bool),
        deadline: &Deadline,
    ) -> Result<Vec<Vec<u32>>, QueryError> {
        let mut paths = Paths::default();
        let mut wanted: Vec<Vec<(FlowKey, i64)>> = vec![Vec::new(); flows.files.len()];
        for (flow, found) in &flows.found {
            found
                .places
                .iter()
                .for_each(|(file, number)| wanted[*file].push((*flow, *number)));
        }
        // In an order of their own: that of a map differs from one question to the next.
        wanted
            .iter_mut()
            .for_each(|flows| flows.sort_unstable_by_key(|(_, number)| *number));
        let read = |at: usize, conn: &Connection, features: Features| {
            let numbers: FastSet<i64> = wanted[at].iter().map(|(_, number)| *number).collect();
            let mut takings = Takings::of(conn, features, (span.from, span.to), (&numbers, with_bases))?;
            let (mut paths, mut of_file) = (Paths::default(), Vec::with_capacity(numbers.len()));
            for (flow, number) in &wanted[at] {
                let basis = if with_bases {
                    takings.basis(conn, *number)?
                } else {
                    None
                };
                let mut taken = takings.taken(conn, *number, (span.from, span.to))?;
                for (_, path) in &mut taken {
                    *path = paths.place(conn, *path)? as i64;
                }
                of_file.push((*flow, basis, taken));
            }
            Ok((paths, of_file))
        };
        self.ask_files(&flows.files, deadline, read, |_, (of_paths, of_file)| {
            let places = paths.join(of_paths);
            for (flow, basis, taken) in of_file {
                if let Some(found) = flows.found.get_mut(&flow) {
                    found.basis = basis.unwrap_or(found.basis);
                    let place = |path: i64| places.get(path as usize).copied().unwrap_or(0);
                    found
                        .paths
                        .extend(taken.into_iter().map(|(ts, path)| (ts, place(path))));
                }
            }
            Ok(())
        })?;
        for found in flows.found.values_mut() {
            found.paths.sort_unstable();
            found.paths.dedup();
        }
        Ok(paths.into_nodes())
    }
}

fn is_wanted(flow: &FlowKey, text: Option<&str>) -> bool {
    text.is_none_or(|text| flow.to_string().contains(text))
}

impl Flows {
    /// Adds the sums of a file, with the numbers that flows have there.
    fn add_file(&mut self, file: usize, sums: Vec<(i64, FlowKey, SpanSum)>) {
        for (number, flow, sum) in sums {
            let is_full = self.found.len() >= MOST_FLOWS;
            match self.found.entry(flow) {
                Entry::Occupied(mut known) => {
                    known.get_mut().sum.add(sum);
                    known.get_mut().places.push((file, number));
                }
                Entry::Vacant(_) if is_full => self.truncated = true,
                Entry::Vacant(free) => {
                    let (places, paths) = (vec![(file, number)], Vec::new());
                    free.insert(Found {
                        sum,
                        places,
                        paths,
                        basis: Basis::default(),
                    });
                }
            }
        }
    }
}

impl NodeSpans {
    fn read(&mut self, conn: &Connection, piece: Piece) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached(
            "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.span_data
             WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1",
        )?;
        for metric in OF_NODES {
            let mut rows = select.query(params![
                piece.interval,
                metric as i64,
                int(piece.from),
                int(piece.to)
            ])?;
            while let Some(row) = rows.next()? {
                self.add(row, metric as i64, SpanSum::read(row, 3, piece.interval)?)?;
            }
        }
        Ok(())
    }

    /// The same from a file without sums.
    fn read_rollups(&mut self, conn: &Connection, span: Span) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached(
            "SELECT ifnull(node, -1), ifnull(interface, -1), ifnull(queue, -1), ts, count, min, max, sum, metric
             FROM f0.rollup_data WHERE ts = ?1 AND interval = 60 AND flow IS NULL",
        )?;
        each_minute(conn, (span.from, span.to), |minute| {
            let mut rows = select.query([int(minute)])?;
            while let Some(row) = rows.next()? {
                self.add(row, row.get(8)?, SpanSum::read(row, 3, 60)?)?;
            }
            Ok(())
        })
    }

    fn add(&mut self, row: &Row<'_>, metric: i64, sum: SpanSum) -> rusqlite::Result<()> {
        let part = |i: usize| -> rusqlite::Result<Option<i64>> {
            Ok(Some(row.get::<_, i64>(i)?).filter(|value| *value != NOTHING))
        };
        let (Some(node), Ok(metric)) = (
            part(0)?.and_then(|node| u32::try_from(node).ok()),
            u8::try_from(metric),
        ) else {
            return Ok(());
        };
        let interface = part(1)?.and_then(|part| u32::try_from(part).ok());
        let queue = part(2)?.and_then(|part| u8::try_from(part).ok());
        let key = SeriesKey {
            metric,
            node,
            interface,
            queue,
        };
        let is_full = self.series.len() >= MOST_SERIES;
        match self.series.get_mut(&key) {
            Some(known) => known.add(sum),
            None if is_full => self.truncated = true,
            None => {
                self.series.insert(key, sum);
            }
        }
        Ok(())
    }

    fn read_drops(&mut self, conn: &Connection, span: Span) -> rusqlite::Result<()> {
        let sql = "SELECT node, count(*) FROM f0.drop_data WHERE ts >= ?1 AND ts < ?2 AND node IS NOT NULL GROUP BY node";
        each(conn, sql, span, |row| {
            let sum = self.drops.entry(row.get(0)?).or_default();
            *sum = sum.saturating_add(unsigned(row, 1)?);
            Ok(())
        })
    }
}

/// Reads what `add` takes of the rollups of flows. Returns whether it took all.
pub(crate) fn read_flows(
    conn: &Connection,
    piece: Piece,
    add: &mut dyn FnMut(i64, SpanSum) -> bool,
) -> rusqlite::Result<bool> {
    let mut read = |sql: &str, from: Nanos, to: Nanos| -> rusqlite::Result<bool> {
        let mut select = conn.prepare_cached(sql)?;
        let metric = Metric::FlowLatency as i64;
        let mut rows = select.query(params![piece.interval, metric, int(from), int(to)])?;
        let mut whole = true;
        while let Some(row) = rows.next()? {
            if let Some(flow) = row.get::<_, Option<i64>>(0)?.filter(|flow| *flow != NOTHING) {
                whole &= add(flow, SpanSum::read(row, 1, piece.interval)?);
            }
        }
        Ok(whole)
    };
    if piece.interval != 60 {
        let sql = "SELECT flow, ts, count, min, max, sum FROM f0.span_data
                   WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
        return read(sql, piece.from, piece.to);
    }
    // Rollups of a minute stand at its beginning, among those of its first second only: those of the other seconds are not read.
    let sql = "SELECT flow, ts, count, min, max, sum FROM f0.rollup_data
               WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
    let mut whole = true;
    each_minute(conn, (piece.from, piece.to), |minute| {
        whole &= read(sql, minute, minute + 1)?;
        Ok(())
    })?;
    Ok(whole)
}

/// The number of a flow in a file. Its id alone is in no index.
pub(crate) fn number_of(
    conn: &Connection,
    id: u64,
    flow: Option<FlowKey>,
) -> rusqlite::Result<Option<(i64, FlowKey)>> {
    if let Some(flow) = flow {
        let mut select = conn.prepare_cached("SELECT id FROM f0.flow_key WHERE flow = ?1")?;
        let number = select
            .query_row([flow.to_string()], |row| row.get(0))
            .optional()?;
        return Ok(number.map(|number| (number, flow)));
    }
    let mut select = conn.prepare_cached("SELECT src, dst, sport, dport, proto, id FROM f0.flow_key")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(flow) = parse_flow(row)?.filter(|flow| flow.id() == id) {
            return Ok(Some((row.get(5)?, flow)));
        }
    }
    Ok(None)
}

/// Reads the rollups of one flow.
pub(crate) fn read_flow(
    conn: &Connection,
    piece: Piece,
    flow: i64,
    add: &mut dyn FnMut(SpanSum),
) -> rusqlite::Result<()> {
    let metric = Metric::FlowLatency as i64;
    if piece.interval == 60 {
        let mut select = conn.prepare_cached(
            "SELECT ts, count, min, max, sum FROM f0.rollup_data
             WHERE flow = ?1 AND ts >= ?2 AND ts < ?3 AND interval = 60 AND metric = ?4",
        )?;
        let mut rows = select.query(params![flow, int(piece.from), int(piece.to), metric])?;
        while let Some(row) = rows.next()? {
            add(SpanSum::read(row, 0, 60)?);
        }
        return Ok(());
    }
    // One place after the other: those of all flows of such a time are not read.
    let mut next = conn.prepare_cached(
        "SELECT min(ts) FROM f0.span_data WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4",
    )?;
    let mut select = conn.prepare_cached(
        "SELECT ts, count, min, max, sum FROM f0.span_data WHERE interval = ?1 AND metric = ?2 AND ts = ?3 AND flow = ?4",
    )?;
    let mut from = int(piece.from);
    loop {
        let place = params![piece.interval, metric, from, int(piece.to)];
        let Some(ts) = next.query_row(place, |row| row.get::<_, Option<i64>>(0))? else {
            return Ok(());
        };
        let mut rows = select.query(params![piece.interval, metric, ts, flow])?;
        while let Some(row) = rows.next()? {
            add(SpanSum::read(row, 0, piece.interval)?);
        }
        from = ts + 1;
    }
}

/// The minutes that have rollups: those without are passed over, however many they are.
pub(crate) fn each_minute(
    conn: &Connection,
    (mut from, to): (Nanos, Nanos),
    mut read: impl FnMut(Nanos) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut next = conn.prepare_cached("SELECT min(ts) FROM f0.rollup_data WHERE ts >= ?1 AND ts < ?2")?;
    while from < to {
        let ts: Option<i64> = next.query_row([int(from), int(to)], |row| row.get(0))?;
        let Some(ts) = ts.and_then(|ts| u64::try_from(ts).ok()) else {
            break;
        };
        from = ts.div_ceil(MINUTE).saturating_mul(MINUTE);
        if from == ts {
            read(ts)?;
            from += 1;
        }
    }
    Ok(())
}

pub(crate) fn each(
    conn: &Connection,
    sql: &str,
    span: Span,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([int(span.from), int(span.to)])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// Metrics of nodes, queues and links.
const OF_NODES: [Metric; 4] = [
    Metric::HopLatency,
    Metric::QueueOccupancy,
    Metric::QueueCongestion,
    Metric::LinkUtilization,
];
/// Flows of a span that are considered: some 40 MB, and as much for each of the files that are read at the same time, four at most.
const MOST_FLOWS: usize = 200_000;
/// Nodes, queues and links of a span that are considered.
const MOST_SERIES: usize = 200_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MINUTE: Nanos = 60 * SECOND;
/// The latest time that the store can hold.
const LATEST: Nanos = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_covered_once_by_as_long_rollups_as_fit() {
        let minutes = |from: u64, to: u64| Span::of(from * MINUTE, to * MINUTE);
        let pieces = |span: Span| {
            let mut pieces: Vec<_> = span
                .pieces()
                .iter()
                .map(|piece| (piece.from / MINUTE, piece.to / MINUTE, piece.interval))
                .collect();
            pieces.sort_unstable();
            pieces
        };
        assert_eq!(pieces(minutes(3, 3)), []);
        assert_eq!(pieces(minutes(3, 9)), [(3, 9, 60)]);
        assert_eq!(pieces(minutes(3, 12)), [(3, 12, 60)]);
        assert_eq!(pieces(minutes(3, 22)), [(3, 10, 60), (10, 20, 600), (20, 22, 60)]);
        let long = [
            (47, 50, 60),
            (50, 60, 600),
            (60, 180, 3600),
            (180, 190, 600),
            (190, 191, 60),
        ];
        assert_eq!(pieces(minutes(47, 191)), long);
        assert_eq!(pieces(minutes(60, 120)), [(60, 120, 3600)]);
        let tens: Vec<_> = minutes(47, 191)
            .pieces_up_to(600)
            .iter()
            .map(|piece| (piece.interval, piece.to - piece.from))
            .collect();
        assert_eq!(tens, [(60, 3 * MINUTE), (60, MINUTE), (600, 140 * MINUTE)]);
        // Rounded to what it touches; backwards it is empty.
        assert_eq!(Span::of(MINUTE + 1, 2 * MINUTE + 1), minutes(1, 3));
        assert_eq!(Span::of(5 * MINUTE, MINUTE).length(), 0);
        assert!(Span::of(0, u64::MAX).pieces().iter().map(|piece| piece.to).max() == Some(LATEST));
    }
}

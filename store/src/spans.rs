//! Summaries of flows, paths, nodes, queues and links over a time span. They are computed from sums of 1, 10 and 60 minutes
//! that the writer maintains (module `summary`), so a day takes little longer to read than a minute.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map::Entry};

use collector::event::{Basis, Nanos};
use collector::{FlowOrder, FlowRank};
use detect::Metric;
use rusqlite::{Connection, Row, params};
use wire::FlowKey;

use crate::guard::Deadline;
use crate::hasher::{FastMap, FastSet, Seeded};
use crate::intern::parse_flow;
use crate::keys::find_flow;
use crate::query::QueryError;
use crate::reader::Reader;
use crate::rows::{int, optional, unsigned};
use crate::schema::Features;
use crate::summary::{ABSENT, SUM_INTERVALS};
use crate::taken::{PathSearch, Searched, TakenPaths, unknown_paths_note};

/// The metrics of nodes, queues and links.
const NODE_METRICS: [Metric; 4] = [
    Metric::HopLatency,
    Metric::QueueOccupancy,
    Metric::QueueCongestion,
    Metric::LinkUtilization,
];
/// Maximum number of flows: about 40 MB, and as much for each file read in parallel, at most four.
const MAX_FLOWS: usize = 200_000;
/// Maximum number of flows that are read one by one.
pub(crate) const MAX_LOOKUP_FLOWS: usize = 50;
/// Maximum number of series.
const MAX_SERIES: usize = 200_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MINUTE: Nanos = 60 * SECOND;
/// Latest time that the store can hold, ns.
const LATEST: Nanos = i64::MAX as u64;

/// A time span of whole minutes; the end is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    from: Nanos,
    to: Nanos,
}

/// Selects flows of a span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFilter {
    /// The span of time.
    pub span: Span,
    /// The value by which flows are ranked, in descending order.
    pub order: FlowOrder,
    /// Only flows whose written 5-tuple contains this text.
    pub text: Option<String>,
    /// Only the flow with this ID, even beyond the limit of flows; several if they share it, unless `text` is the full text of
    /// one of them, which also makes the lookup faster.
    pub id: Option<u64>,
    /// Only flows after this one.
    pub after: Option<FlowRank>,
    /// Maximum number of flows.
    pub limit: usize,
}

/// A flow in a time span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSpan {
    /// The key of the flow.
    pub flow: FlowKey,
    /// The sum of its flow latencies.
    pub sum: SpanSum,
    /// The latest path as node IDs (`u32::MAX` = unavailable); empty if not stored.
    pub path: Vec<u32>,
    /// The basis of the latest flow latency.
    pub basis: Basis,
}

/// Aggregates of values in a time span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanSum {
    /// The number of values.
    pub count: u64,
    /// The smallest of the values.
    pub min: u64,
    /// The largest of the values.
    pub max: u64,
    /// Sum of values; at most `i64::MAX`.
    pub sum: u64,
    /// Start of the first rollup, ns since 1970.
    pub first: Nanos,
    /// End of the last rollup, ns since 1970.
    pub last: Nanos,
}

/// A page of the flows of a span.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowSpans {
    /// The flows with their ranks, in descending order.
    pub flows: Vec<(FlowRank, FlowSpan)>,
    /// True if there are more pages.
    pub more: bool,
    /// Number of flows that match.
    pub total: u64,
    /// True if the span has more flows than the limit; the others are on no page.
    pub truncated: bool,
}

/// Identity of a time series: a metric of a node, queue or link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SeriesKey {
    /// The metric, by its number.
    pub metric: u8,
    /// The node of the rollups.
    pub node: u32,
    /// The egress interface of a link.
    pub interface: Option<u32>,
    /// The queue of the node.
    pub queue: Option<u8>,
}

/// Nodes, queues and links in a span of time.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NodeSpans {
    /// The values of each node, queue and link.
    pub series: BTreeMap<SeriesKey, SpanSum>,
    /// Dropped packets by node.
    pub drops: BTreeMap<u32, u64>,
    /// True if there are more series than the limit.
    pub truncated: bool,
}

/// A part of a span that is covered by rollups of one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Interval of the rollups, seconds.
    pub interval: u32,
    /// Start of the part, ns since 1970.
    pub from: Nanos,
    /// End of the part (exclusive), ns since 1970.
    pub to: Nanos,
}

impl Span {
    /// Returns the span of all whole minutes that overlap the time from `from` to `to`. It is empty if `to` is before `from`.
    pub fn new(from: Nanos, to: Nanos) -> Self {
        if to < from {
            // Empty, without the minute of `from`.
            let from = from.min(LATEST) / MINUTE * MINUTE;
            return Self { from, to: from };
        }
        let to = to.min(LATEST).max(from);
        let to = to.div_ceil(MINUTE).saturating_mul(MINUTE).min(LATEST);
        let from = from / MINUTE * MINUTE;
        Self {
            from: from.min(to),
            to,
        }
    }

    /// Returns the start, ns.
    pub fn from(self) -> Nanos {
        self.from
    }

    /// Returns the end (exclusive), ns.
    pub fn to(self) -> Nanos {
        self.to
    }

    /// Returns the length of the span, ns.
    pub fn length(self) -> Nanos {
        self.to - self.from
    }

    /// Returns the fewest rollups that cover the span: hours in the middle, ten minutes around them, minutes at both ends.
    pub fn pieces(self) -> Vec<Piece> {
        self.pieces_up_to(u32::MAX)
    }

    /// Returns the fewest rollups of at most `longest` seconds that cover the span.
    pub(crate) fn pieces_up_to(self, longest: u32) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut from = self.from;
        let mut to = self.to;
        let mut interval = 60;
        for longer in SUM_INTERVALS.into_iter().filter(|longer| *longer <= longest) {
            let length = u64::from(longer) * SECOND;
            let inner_from = from.div_ceil(length).saturating_mul(length);
            let inner_to = to / length * length;
            if inner_from >= inner_to {
                break;
            }
            pieces.push(Piece {
                interval,
                from,
                to: inner_from,
            });
            pieces.push(Piece {
                interval,
                from: inner_to,
                to,
            });
            from = inner_from;
            to = inner_to;
            interval = longer;
        }
        pieces.push(Piece { interval, from, to });
        pieces.retain(|piece| piece.from < piece.to);
        pieces
    }

    /// Returns the rollups to read from a file: per minute if the file has no longer rollups of flows.
    pub(crate) fn pieces_in(self, features: Features) -> Vec<Piece> {
        if features.spans {
            self.pieces()
        } else {
            vec![Piece::minutes(self)]
        }
    }
}

impl Piece {
    /// Returns a piece that covers the span with one-minute rollups.
    pub fn minutes(span: Span) -> Self {
        Self {
            interval: 60,
            from: span.from,
            to: span.to,
        }
    }

    /// Returns the length of the rollups, ns.
    pub fn length(self) -> Nanos {
        u64::from(self.interval) * SECOND
    }

    /// Returns the piece that covers one rollup of this piece, from `from` on, with the next shorter rollups.
    pub(crate) fn shorter(self, from: Nanos) -> Self {
        let shorter = SUM_INTERVALS
            .into_iter()
            .rev()
            .find(|shorter| *shorter < self.interval);
        Self {
            interval: shorter.unwrap_or(60),
            from,
            to: from.saturating_add(self.length()),
        }
    }
}

impl SpanSum {
    /// Returns an aggregate of `count` records without values: `min` is above `max`.
    pub(crate) fn counted(count: u64) -> Self {
        Self {
            count,
            min: u64::MAX,
            max: 0,
            sum: 0,
            first: 0,
            last: 0,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum).min(LATEST);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// Returns true if there are values; a flow without latencies has only a count.
    pub fn has_values(self) -> bool {
        self.min <= self.max
    }

    /// Returns the mean of the values, or `None` if there are none.
    pub fn mean(self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// Reads five columns from `column` on: time, count, minimum, maximum, sum.
    pub(crate) fn read(row: &Row<'_>, column: usize, interval: u32) -> rusqlite::Result<Self> {
        let first = unsigned(row, column)?;
        Ok(Self {
            count: unsigned(row, column + 1)?,
            min: unsigned(row, column + 2)?,
            max: unsigned(row, column + 3)?,
            sum: unsigned(row, column + 4)?,
            first,
            last: first.saturating_add(u64::from(interval) * SECOND),
        })
    }
}

impl FlowFilter {
    /// Returns the sort rank of a flow in the selected order.
    pub fn rank(&self, flow: &FlowKey, sum: &SpanSum) -> FlowRank {
        let value = match self.order {
            FlowOrder::LastSeen => sum.last,
            FlowOrder::Latency => sum.max,
            FlowOrder::Reports => sum.count,
        };
        FlowRank(value, flow.id())
    }
}

/// The flows found in a span.
#[derive(Default)]
pub(crate) struct Flows {
    pub(crate) sums: HashMap<FlowKey, SpanSum, Seeded>,
    pub(crate) truncated: bool,
}

impl Reader {
    /// Returns the flows of a time span, including expired ones.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_spans(&self, filter: &FlowFilter) -> Result<FlowSpans, QueryError> {
        self.flow_spans_where(filter, false, &|_| true)
    }

    /// Returns the flows of a time span that `is_wanted` accepts. `by_path` must be true if `is_wanted` tests paths.
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
                Some(id) => self.read_flows_of_id(filter.span, id, filter.text.as_deref(), &deadline)?,
                None => self.read_span_flows(filter.span, filter.text.as_deref(), &deadline)?,
            };
            let mut paths = TakenPaths::default();
            if by_path {
                paths = self.paths_of(&flows, filter.span, &deadline)?;
            }
            flows
                .sums
                .retain(|flow, sum| is_wanted(&flow_span(*flow, *sum, &paths)));
            deadline.check()?;
            let total = flows.sums.len() as u64;
            let mut ranks: Vec<(FlowRank, FlowKey)> = flows
                .sums
                .iter()
                .map(|(flow, sum)| (filter.rank(flow, sum), *flow))
                .collect();
            ranks.retain(|(rank, _)| filter.after.is_none_or(|after| *rank < after));
            ranks.sort_unstable_by(|a, b| b.cmp(a));
            let more = ranks.len() > filter.limit;
            ranks.truncate(filter.limit);
            if !by_path {
                let shown: HashSet<FlowKey> = ranks.iter().map(|(_, flow)| *flow).collect();
                flows.sums.retain(|flow, _| shown.contains(flow));
                paths = self.paths_of(&flows, filter.span, &deadline)?;
            }
            let mut rows = Vec::with_capacity(ranks.len());
            for (rank, flow) in ranks {
                if let Some(sum) = flows.sums.get(&flow) {
                    rows.push((rank, flow_span(flow, *sum, &paths)));
                }
            }
            let unknown = rows.iter().filter(|(_, flow)| flow.path.is_empty()).count();
            self.remember_notes(&unknown_paths_note(unknown as u64, "flow"));
            Ok(FlowSpans {
                flows: rows,
                more,
                total,
                truncated: flows.truncated,
            })
        })
    }

    /// Returns the latency sums of each flow in a time span, and whether there are more flows than the limit.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flow_sums(&self, span: Span) -> Result<(HashMap<FlowKey, SpanSum>, bool), QueryError> {
        self.with_retry(|| {
            let flows = self.read_span_flows(span, None, &self.deadline())?;
            let truncated = flows.truncated;
            Ok((flows.sums.into_iter().collect(), truncated))
        })
    }

    /// Returns the values of nodes, queues and links in a span of time.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn node_spans(&self, span: Span) -> Result<NodeSpans, QueryError> {
        self.with_retry(|| {
            let deadline = self.deadline();
            let mut spans = NodeSpans::default();
            for file in self.files_in(span.from, span.to)? {
                self.query_file(&file, &deadline, |conn, features| {
                    if features.spans {
                        for piece in span.pieces() {
                            spans.read(conn, piece)?;
                        }
                    } else {
                        spans.read_rollups(conn, span)?;
                    }
                    spans.read_drops(conn, span)
                })?;
            }
            Ok(spans)
        })
    }

    /// Finds the paths of the flows of a span, and the bases of their latencies.
    fn paths_of(&self, flows: &Flows, span: Span, deadline: &Deadline) -> Result<TakenPaths, QueryError> {
        let search = PathSearch {
            from: span.from,
            to: span.to,
            only_last: true,
        };
        let flows = flows.sums.keys().map(|flow| (*flow, span.to)).collect();
        self.find_paths(&flows, search, deadline)
    }

    /// Reads the flow with an ID, even if the span has more flows than the limit; several if they share the ID. If `text` is
    /// the text of a flow with that ID, only that flow, which is faster.
    fn read_flows_of_id(
        &self,
        span: Span,
        id: u64,
        text: Option<&str>,
        deadline: &Deadline,
    ) -> Result<Flows, QueryError> {
        let mut flows = Flows::default();
        let known = text
            .and_then(|text| text.parse::<FlowKey>().ok())
            .filter(|flow| flow.id() == id);
        for file in self.files_in(span.from, span.to)? {
            self.query_file(&file, deadline, |conn, features| {
                let here = match known {
                    Some(flow) => find_flow(conn, flow)?
                        .map(|number| (number, flow))
                        .into_iter()
                        .collect(),
                    None => find_flows_of_id(conn, id)?,
                };
                for (number, flow) in here {
                    let mut all: Option<SpanSum> = None;
                    for piece in span.pieces_in(features) {
                        read_flow(conn, piece, number, &mut |sum| match &mut all {
                            Some(all) => all.add(sum),
                            None => all = Some(sum),
                        })?;
                    }
                    if let Some(sum) = all {
                        flows.add(flow, sum);
                    }
                }
                Ok(())
            })?;
        }
        Ok(flows)
    }

    /// Reads the flows of a span whose text contains `text`.
    pub(crate) fn read_span_flows(
        &self,
        span: Span,
        text: Option<&str>,
        deadline: &Deadline,
    ) -> Result<Flows, QueryError> {
        let files = self.files_in(span.from, span.to)?;
        let mut flows = Flows::default();
        self.query_files(
            &files,
            deadline,
            |i, conn, features| {
                let mut file = FileFlows::default();
                for piece in span.pieces_in(features) {
                    file.truncated |= !read_flows(conn, piece, &mut |number, sum| file.add(number, sum))?;
                }
                let keys = self.keys().load(conn, &files[i], file.sums.len())?;
                let mut sums = Vec::with_capacity(file.sums.len());
                for (number, sum) in file.sums {
                    if let Some(flow) = keys.get(conn, number)?
                        && is_wanted(&flow, text)
                    {
                        sums.push((flow, sum));
                    }
                }
                Ok((sums, file.truncated))
            },
            |_, (sums, truncated)| {
                flows.truncated |= truncated;
                for (flow, sum) in sums {
                    flows.add(flow, sum);
                }
                Ok(())
            },
        )?;
        Ok(flows)
    }
}

/// Sums of the flows in one file, by their IDs.
#[derive(Default)]
struct FileFlows {
    sums: FastMap<i64, SpanSum>,
    truncated: bool,
}

impl FileFlows {
    /// Adds a rollup of a flow. Returns false if the flow is new and the limit is reached.
    fn add(&mut self, number: i64, sum: SpanSum) -> bool {
        let is_full = self.sums.len() >= MAX_FLOWS;
        match self.sums.entry(number) {
            Entry::Occupied(mut known) => known.get_mut().add(sum),
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(free) => {
                free.insert(sum);
            }
        }
        true
    }
}

fn is_wanted(flow: &FlowKey, text: Option<&str>) -> bool {
    text.is_none_or(|text| flow.to_string().contains(text))
}

impl Flows {
    /// Returns the flows as those whose paths are searched; each needs one in its first rollup.
    pub(crate) fn searched(&self, span: Span) -> Searched {
        let pieces = span.pieces();
        let rollup_end = |first: Nanos| {
            let piece = pieces
                .iter()
                .find(|piece| (piece.from..piece.to).contains(&first));
            first.saturating_add(piece.map_or(MINUTE, |piece| piece.length()))
        };
        let sums = self.sums.iter();
        sums.map(|(flow, sum)| (*flow, rollup_end(sum.first))).collect()
    }

    /// Adds the sum of a flow in a file.
    fn add(&mut self, flow: FlowKey, sum: SpanSum) {
        let is_full = self.sums.len() >= MAX_FLOWS;
        match self.sums.entry(flow) {
            Entry::Occupied(mut known) => known.get_mut().add(sum),
            Entry::Vacant(_) if is_full => self.truncated = true,
            Entry::Vacant(free) => {
                free.insert(sum);
            }
        }
    }
}

fn flow_span(flow: FlowKey, sum: SpanSum, paths: &TakenPaths) -> FlowSpan {
    FlowSpan {
        flow,
        sum,
        path: paths.last(&flow),
        basis: paths.get(&flow).and_then(|paths| paths.basis).unwrap_or_default(),
    }
}

impl NodeSpans {
    fn read(&mut self, conn: &Connection, piece: Piece) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached(
            "SELECT node, interface, queue, ts, count, min, max, sum FROM f0.span_data
             WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4 AND flow = -1",
        )?;
        for metric in NODE_METRICS {
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

    /// Reads the rollups of a file without sums, minute by minute.
    fn read_rollups(&mut self, conn: &Connection, span: Span) -> rusqlite::Result<()> {
        let mut select = conn.prepare_cached(
            "SELECT ifnull(node, -1), ifnull(interface, -1), ifnull(queue, -1), ts, count, min, max, sum, metric
             FROM f0.rollup_data WHERE ts = ?1 AND interval = 60 AND flow IS NULL",
        )?;
        for_each_minute(conn, span.from, span.to, |minute| {
            let mut rows = select.query([int(minute)])?;
            while let Some(row) = rows.next()? {
                self.add(row, row.get(8)?, SpanSum::read(row, 3, 60)?)?;
            }
            Ok(())
        })
    }

    fn add(&mut self, row: &Row<'_>, metric: i64, sum: SpanSum) -> rusqlite::Result<()> {
        // A negative number means none.
        let Some(node) = optional(row, 0)? else {
            return Ok(());
        };
        let Ok(metric) = u8::try_from(metric) else {
            return Ok(());
        };
        let key = SeriesKey {
            metric,
            node,
            interface: optional(row, 1)?,
            queue: optional(row, 2)?,
        };
        let is_full = self.series.len() >= MAX_SERIES;
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
        for_each_row(conn, sql, span, |row| {
            let sum = self.drops.entry(row.get(0)?).or_default();
            *sum = sum.saturating_add(unsigned(row, 1)?);
            Ok(())
        })
    }
}

/// Passes the rollups of all flows to `add`, which returns whether it accepted one. Returns true if all were accepted.
pub(crate) fn read_flows(
    conn: &Connection,
    piece: Piece,
    add: &mut dyn FnMut(i64, SpanSum) -> bool,
) -> rusqlite::Result<bool> {
    if piece.interval != 60 {
        let sql = "SELECT flow, ts, count, min, max, sum FROM f0.span_data
                   WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
        return read_flow_rows(conn, sql, piece, add);
    }
    // Rows are clustered by time, and a minute's rollups have its start as their time. Reading only that instant skips the
    // one-second rollups.
    let sql = "SELECT flow, ts, count, min, max, sum FROM f0.rollup_data
               WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4";
    let mut is_complete = true;
    for_each_minute(conn, piece.from, piece.to, |minute| {
        let minute = Piece {
            interval: 60,
            from: minute,
            to: minute + 1,
        };
        is_complete &= read_flow_rows(conn, sql, minute, add)?;
        Ok(())
    })?;
    Ok(is_complete)
}

fn read_flow_rows(
    conn: &Connection,
    sql: &str,
    piece: Piece,
    add: &mut dyn FnMut(i64, SpanSum) -> bool,
) -> rusqlite::Result<bool> {
    let mut select = conn.prepare_cached(sql)?;
    let metric = Metric::FlowLatency as i64;
    let mut rows = select.query(params![piece.interval, metric, int(piece.from), int(piece.to)])?;
    let mut is_complete = true;
    while let Some(row) = rows.next()? {
        if let Some(flow) = row.get::<_, Option<i64>>(0)?
            && flow != ABSENT
        {
            is_complete &= add(flow, SpanSum::read(row, 1, piece.interval)?);
        }
    }
    Ok(is_complete)
}

/// Finds the flows of a file that have an ID, with their numbers. Reads all flows, because no index has the hash; also behind
/// a match, because two flows can share it.
fn find_flows_of_id(conn: &Connection, id: u64) -> rusqlite::Result<Vec<(i64, FlowKey)>> {
    let mut select = conn.prepare_cached("SELECT src, dst, sport, dport, proto, id FROM f0.flow_key")?;
    let mut rows = select.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(flow) = parse_flow(row)?.filter(|flow| flow.id() == id) {
            found.push((row.get(5)?, flow));
            // Enough to know that it is shared.
            if found.len() == 2 {
                break;
            }
        }
    }
    Ok(found)
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
    // One interval after the other, so that rollups of other flows are not read.
    let mut next = conn.prepare_cached(
        "SELECT min(ts) FROM f0.span_data WHERE interval = ?1 AND metric = ?2 AND ts >= ?3 AND ts < ?4",
    )?;
    let mut select = conn.prepare_cached(
        "SELECT ts, count, min, max, sum FROM f0.span_data WHERE interval = ?1 AND metric = ?2 AND ts = ?3 AND flow = ?4",
    )?;
    let mut from = int(piece.from);
    loop {
        let bounds = params![piece.interval, metric, from, int(piece.to)];
        let Some(ts) = next.query_row(bounds, |row| row.get::<_, Option<i64>>(0))? else {
            return Ok(());
        };
        let mut rows = select.query(params![piece.interval, metric, ts, flow])?;
        while let Some(row) = rows.next()? {
            add(SpanSum::read(row, 0, piece.interval)?);
        }
        from = ts + 1;
    }
}

/// Reads the rollups of some flows: one flow after the other if they are few. Returns the number of rollups read.
pub(crate) fn read_some_flows(
    conn: &Connection,
    piece: Piece,
    flows: &FastSet<i64>,
    add: &mut dyn FnMut(i64, SpanSum),
) -> rusqlite::Result<usize> {
    let mut count = 0;
    if flows.len() <= MAX_LOOKUP_FLOWS {
        for flow in flows {
            read_flow(conn, piece, *flow, &mut |sum| {
                count += 1;
                add(*flow, sum);
            })?;
        }
        return Ok(count);
    }
    read_flows(conn, piece, &mut |flow, sum| {
        count += 1;
        if flows.contains(&flow) {
            add(flow, sum);
        }
        true
    })?;
    Ok(count)
}

/// Calls `read` for each minute that has rollups. Gaps are skipped, however long.
pub(crate) fn for_each_minute(
    conn: &Connection,
    mut from: Nanos,
    to: Nanos,
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

/// Runs a query with the span's bounds as parameters, and calls `visit` for each row.
pub(crate) fn for_each_row(
    conn: &Connection,
    sql: &str,
    span: Span,
    mut visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([int(span.from), int(span.to)])?;
    while let Some(row) = rows.next()? {
        visit(row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_covered_once_by_as_long_rollups_as_fit() {
        let minutes = |from: u64, to: u64| Span::new(from * MINUTE, to * MINUTE);
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
        // A span is rounded outwards to whole minutes; a backward span is empty.
        assert_eq!(Span::new(MINUTE + 1, 2 * MINUTE + 1), minutes(1, 3));
        for (from, to) in [
            (5 * MINUTE, MINUTE),
            (5 * MINUTE + 1, MINUTE),
            (5 * MINUTE + 2, 5 * MINUTE + 1),
            (u64::MAX, 0),
        ] {
            assert_eq!(Span::new(from, to).length(), 0, "{from} {to}");
        }
        assert!(Span::new(0, u64::MAX).pieces().iter().map(|piece| piece.to).max() == Some(LATEST));
    }
}

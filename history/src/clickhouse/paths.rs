//! Path history from ClickHouse, from path events, or from a flow's latest state if its events were never exported or have
//! expired. The results are accumulated by the same code as for the local store.

use std::net::IpAddr;

use export::record::Stream;
use serde::Deserialize;
use store::{
    ChangeTally, FlowSelector, Lifetime, MAX_PATHS_PER_FLOW, PathChanges, PathPart, PathSpans, PathTally,
    PathUses, Paths, Piece, Span, UseTally, use_pieces,
};
use tokio::time::Instant;
use wire::FlowKey;

use super::{
    DUPLICATE_SPAN, Remote,
    rows::flow,
    statement::{PathTables, Statement, mapped},
};
use crate::notes;
use crate::query::PathQuery;
use crate::sql::Failure;

/// Columns of a [`LifetimeLine`]. `path_starts` is split into arrays of times and paths.
const LIFETIME_COLUMNS: &str = "SELECT flow, parts, [first, last] AS lifetime, arrayMap(start -> start.1, path_starts) AS times, \
                                arrayMap(start -> start.2, path_starts) AS paths";
/// Source codes of the rows from which lifetimes are built.
const COUNTED: u8 = 1;
const IN_SPAN: u8 = 2;
const AT_START: u8 = 3;
const STATE: u8 = 4;
/// Terms that select flow rollups.
pub(super) const FLOW_ROLLUPS: [&str; 2] = ["metric = 'flow_latency'", "flow != ''"];
/// Terms that select the events that set a flow's path.
const PATH_EVENTS: [&str; 4] = [
    "kind IN ('new', 'path_change', 'path_loop')",
    "metric = 'flow_path'",
    "notEmpty(path)",
    "flow != ''",
];
/// Maximum number of flows whose paths are ranked, those with the most reports first: about 150 bytes of a response each.
const MAX_FLOWS: usize = 50_000;
/// Maximum number of flows in a tally.
const MAX_TALLIED_FLOWS: usize = 20_000;
/// Target size of a response, bytes, half of the maximum; typical bytes for the paths of a flow, and for each interval.
const RESPONSE_BYTES: u64 = 8 << 20;
const FLOW_PATHS_BYTES: u64 = 1_000;
const INTERVAL_BYTES: u64 = 20;
/// Maximum number of path events per response, and over all responses; the latest are used.
const PATH_PAGE: usize = 20_000;
const MAX_PATHS: usize = 100_000;
/// Maximum number of flows whose earlier path is looked up.
const MAX_EARLIER_PATHS: usize = 50_000;
const MINUTE: u64 = 60_000_000_000;

/// A flow with its report counts and paths in a time span.
#[derive(Deserialize, Debug)]
struct LifetimeLine {
    flow: String,
    /// Intervals as start, end (minutes after the start of the span) and number of reports.
    parts: Vec<[u64; 3]>,
    /// Times of the first and latest report, ns; 0 if unknown.
    lifetime: [u64; 2],
    times: Vec<u64>,
    paths: Vec<Vec<u32>>,
}

/// A path that a flow took from `time` on.
#[derive(Deserialize, Debug)]
struct PathLine {
    flow: String,
    time: u64,
    #[serde(default)]
    id: u64,
    path: Vec<u32>,
    #[serde(default)]
    changed: u8,
}

#[derive(Deserialize, Debug)]
struct FlowCount {
    flows: u64,
}

impl LifetimeLine {
    /// Returns the path starts without consecutive duplicates.
    fn paths(&mut self) -> Vec<(u64, Vec<u32>)> {
        let mut path_starts: Vec<(u64, Vec<u32>)> = std::mem::take(&mut self.times)
            .into_iter()
            .zip(std::mem::take(&mut self.paths))
            .collect();
        path_starts.dedup_by(|later, earlier| later.1 == earlier.1);
        path_starts
    }
}

impl Remote {
    /// Returns the tables that hold paths.
    pub(super) fn path_tables(&self) -> PathTables {
        PathTables {
            events: self.tables.table(Stream::Events),
            states: self.tables.table(Stream::Flows),
        }
    }

    /// Reads the paths of a time span.
    pub(super) async fn path_spans(&self, span: Span) -> Result<PathSpans, Failure> {
        let until = Instant::now() + self.limit;
        let about = self.about(Stream::Rollups);
        let statement = about.lifetimes(span, &self.path_tables());
        let mut lines: Vec<LifetimeLine> = self.rows(statement, until).await?;
        let truncated = lines.len() > MAX_FLOWS;
        lines.truncate(MAX_FLOWS);
        let mut paths = Paths::default();
        let mut flows = Vec::with_capacity(lines.len());
        for mut line in lines {
            let Some(key) = flow(&line.flow) else { continue };
            let starts = line.paths().into_iter();
            let starts: Vec<_> = starts.map(|(ts, path)| (ts, paths.insert(path))).collect();
            flows.push((key, line.parts, starts));
        }
        let mut tally = PathTally::new(paths.into_nodes());
        for (key, parts, starts) in flows {
            for [from, to, reports] in parts {
                let [from, to] = [from, to].map(|minutes| after_minutes(span, minutes));
                tally.add(key, &starts, from, to, reports);
            }
        }
        let (spans, inexact) = tally.finish(truncated);
        notes::add(inexact);
        Ok(spans)
    }

    pub(super) async fn used_paths(&self, query: PathQuery) -> Result<PathUses, Failure> {
        let PathQuery {
            span,
            flows: selector,
            limit,
        } = query;
        let until = Instant::now() + self.limit;
        let mut tally = UseTally::new(span);
        if matches_no_flow(&selector) {
            tally.spread(MINUTE);
            return Ok(tally.finish(limit));
        }
        let statement = self.about(Stream::Rollups);
        let statement = statement.number_of_flows(span, &selector, &self.path_tables().states);
        let counts: Vec<FlowCount> = self.rows(statement, until).await?;
        let pieces = use_pieces(span, counts.first().map_or(0, |count| count.flows));
        let parts = pieces
            .iter()
            .map(|piece| (piece.to - piece.from) / piece.length().max(1))
            .sum::<u64>();
        // As many flows per response as fit into it.
        let page = usize::try_from(RESPONSE_BYTES / (FLOW_PATHS_BYTES + INTERVAL_BYTES * parts))
            .unwrap_or(1)
            .clamp(1, MAX_TALLIED_FLOWS);
        pieces.iter().for_each(|piece| tally.spread(piece.length()));
        let mut after = String::new();
        let mut count = 0;
        loop {
            let statement = self.about(Stream::Rollups).lifetimes_in_parts(
                span,
                &selector,
                &pieces,
                &after,
                page,
                &self.path_tables(),
            );
            let lines: Vec<LifetimeLine> = self.rows(statement, until).await?;
            let is_last = lines.len() < page;
            count += lines.len();
            for mut line in lines {
                let path_starts = line.paths();
                let parts = line
                    .parts
                    .iter()
                    .map(|[from, to, reports]| PathPart {
                        from: after_minutes(span, *from),
                        to: after_minutes(span, *to),
                        reports: *reports,
                    })
                    .collect();
                let [first, last] = line.lifetime;
                let lifetime = (last > 0).then_some(Lifetime { first, last });
                if let Some(key) = flow(&line.flow).filter(|key| selector.matches(key)) {
                    tally.add(key, parts, lifetime, path_starts.into_iter());
                }
                after = line.flow;
            }
            if is_last {
                return Ok(tally.finish(limit));
            }
            if count >= MAX_TALLIED_FLOWS {
                tally.set_truncated();
                return Ok(tally.finish(limit));
            }
        }
    }

    pub(super) async fn changed_paths(&self, query: PathQuery) -> Result<PathChanges, Failure> {
        let PathQuery {
            span,
            flows: selector,
            limit,
        } = query;
        let until = Instant::now() + self.limit;
        let mut tally = ChangeTally::new(span);
        if matches_no_flow(&selector) {
            return Ok(tally.finish(limit));
        }
        let mut path_lines: Vec<PathLine> = Vec::new();
        let mut floor = span.from();
        loop {
            let last = path_lines.last().map(|line| (line.time, line.id));
            let statement = self.about(Stream::Events).paths_within(span, &selector, last);
            let lines: Vec<PathLine> = self.rows(statement, until).await?;
            let is_last = lines.len() < PATH_PAGE;
            path_lines.extend(lines);
            if is_last {
                break;
            }
            if path_lines.len() >= MAX_PATHS {
                tally.set_truncated();
                // The events of the earliest time may be incomplete, so drop them.
                floor = path_lines
                    .last()
                    .map_or(floor, |line| line.time.saturating_add(1));
                path_lines.retain(|line| line.time >= floor);
                break;
            }
        }
        let statement = self
            .about(Stream::Events)
            .paths_before(floor, span.to(), &selector);
        let mut before: Vec<PathLine> = self.rows(statement, until).await?;
        if before.len() > MAX_EARLIER_PATHS {
            tally.set_truncated();
        }
        before.append(&mut path_lines);
        let parsed = before
            .into_iter()
            .filter_map(|line| Some((flow(&line.flow)?, line)));
        let mut parsed: Vec<(FlowKey, PathLine)> = parsed.filter(|(key, _)| selector.matches(key)).collect();
        parsed.sort_by_key(|(key, line)| (*key, line.time, line.id));
        for (key, line) in parsed {
            let is_change = line.changed != 0 && line.time >= floor;
            tally.add(line.time, key, line.path, is_change);
        }
        Ok(tally.finish(limit))
    }
}

impl Statement {
    /// Returns SQL for the events of a time span without duplicates, as `time` and `columns`. Of copies within
    /// [`DUPLICATE_SPAN`], the latest counts. Events of one collector are no copies of each other, even if they have one id.
    pub(super) fn deduplicated(&mut self, events: &str, columns: &str, from: u64, to: u64) -> String {
        let where_clause = self.where_within(from, to.saturating_add(DUPLICATE_SPAN));
        let time = "toUnixTimestamp64Nano(ts)";
        format!(
            "SELECT * EXCEPT next FROM (SELECT {columns}, {time} AS time, leadInFrame({time}) OVER (PARTITION BY id, nth ORDER BY ts \
             ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next FROM ({})) \
             WHERE (next = 0 OR next > time + {DUPLICATE_SPAN}) AND time < {}",
            Self::numbered_in(&format!("{events}{where_clause}"), "ts"),
            signed(to)
        )
    }

    /// Returns a term that excludes copies of events whose latest copy is at `from` or later. An earlier event of a collector
    /// that has one with this id from then on is no copy: some devices repeat their numbers.
    pub(super) fn duplicate_events(&mut self, events: &str, from: u64) -> String {
        let later = self.where_within(from, from.saturating_add(DUPLICATE_SPAN));
        let long_before = self.time("ts <", from.saturating_sub(DUPLICATE_SPAN));
        format!(
            "({long_before} OR id NOT IN (SELECT id FROM {events}{later}) \
             OR (id, collector) IN (SELECT id, collector FROM {events}{later}))"
        )
    }

    /// Returns the terms that select flows.
    fn selector_terms(&mut self, selector: &FlowSelector) -> Vec<String> {
        let terms = std::mem::take(&mut self.terms);
        self.flow(selector.flow.as_ref());
        for (column, text) in [("src", &selector.src), ("dst", &selector.dst)] {
            let address = text.as_ref().and_then(|text| text.parse().ok());
            self.equal(column, "IPv6", address.map(mapped));
        }
        std::mem::replace(&mut self.terms, terms)
    }

    /// Returns SQL for the lifetimes of flows: their `parts`, which `counted` gives as `flow`, `range_start`,
    /// `range_end` and `report_count`; their `first` and `last` report; and the `path_starts` in the time span including the path
    /// at its start. `selection` are terms that select flows; `tables` are the names of the tables of events and flow states.
    pub(super) fn flow_lifetimes(
        &mut self,
        from: u64,
        to: u64,
        selection: &[String],
        counted: Option<&str>,
        tables: &PathTables,
    ) -> String {
        let PathTables { events, states } = tables;
        let pair = "Array(Tuple(UInt64, Array(UInt32)))";
        let first = nanoseconds("first_seen");
        let last = nanoseconds("last_seen");
        self.terms = selection.to_vec();
        let state_rows = format!("{states}{}", self.where_clause());
        let mut rows = vec![lifetime_row(STATE, [&first, &last, "0"], "path", &state_rows)];
        rows.extend(counted.map(|counted| {
            let no_path = "CAST([], 'Array(UInt32)')";
            lifetime_row(
                COUNTED,
                ["range_start", "range_end", "report_count"],
                no_path,
                &format!("({counted})"),
            )
        }));
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let inside = self.deduplicated(events, "flow, path", from.saturating_add(1), to);
        rows.push(lifetime_row(
            IN_SPAN,
            ["time", "0", "0"],
            "path",
            &format!("({inside})"),
        ));
        // Copies of an event have equal paths, so any of them will do.
        let not_duplicate = self.duplicate_events(events, from.saturating_add(1));
        self.range(None, Some(from.saturating_add(1)));
        self.terms.push(not_duplicate);
        let before = format!(
            "(SELECT flow, max(ts) AS event_ts, argMax(path, ts) AS nodes FROM {events}{} GROUP BY flow)",
            self.where_clause()
        );
        rows.push(lifetime_row(
            AT_START,
            [&nanoseconds("event_ts"), "0", "0"],
            "nodes",
            &before,
        ));
        let rows = rows.join(" UNION ALL ");
        let sorted = format!(
            "arraySort(if(notEmpty(event_paths), event_paths, if(notEmpty(state_path) AND first < {to}, CAST([(first, state_path)], '{pair}'), CAST([], '{pair}'))))"
        );
        // If the paths are returned, only the latest are.
        let path_starts = if counted.is_some() {
            format!("arraySlice({sorted}, -{MAX_PATHS_PER_FLOW})")
        } else {
            sorted
        };
        format!(
            "SELECT flow, parts, first, last, {path_starts} AS path_starts FROM (\
             SELECT flow, groupArrayIf([range_start, range_end, report_count], source = {COUNTED}) AS parts, \
             argMaxIf(range_start, range_end, source = {STATE}) AS first, \
             maxIf(range_end, source = {STATE}) AS last, argMaxIf(path, range_end, source = {STATE}) AS state_path, \
             CAST(groupUniqArrayIf((range_start, path), source IN ({IN_SPAN}, {AT_START})), '{pair}') AS event_paths FROM ({rows}) GROUP BY flow)"
        )
    }

    /// Returns a term for flows with an event about their path within a time. Others kept their paths.
    pub(super) fn path_is_changed(&mut self, from: u64, to: u64, tables: &PathTables) -> String {
        let terms = std::mem::replace(&mut self.terms, PATH_EVENTS.map(str::to_owned).to_vec());
        let within = self.where_within(from, to);
        self.terms = terms;
        format!("flow IN (SELECT flow FROM {}{within})", tables.events)
    }

    /// Selects the flows of a time span, each with one interval, or several if its path changed: minutes in which it had the
    /// same paths at both ends are one. At most `MAX_FLOWS` + 1.
    fn lifetimes(self, span: Span, tables: &PathTables) -> Self {
        let mut statement = self.minutes(span, &FLOW_ROLLUPS);
        let from = span.from();
        let is_selected = statement.flow_is_selected();
        let summed = statement.parts("ts, flow", &[]);
        let is_changed = statement.path_is_changed(from, span.to(), tables);
        let counted = format!(
            "SELECT flow, min(time) AS begin, max(time) + {MINUTE} AS stop, sum(values) AS value_count FROM (\
             SELECT flow, values, toUnixTimestamp64Nano(ts) AS time FROM ({summed})) GROUP BY flow, if({is_changed}, time, 0)"
        );
        let lifetimes = statement.flow_lifetimes(from, span.to(), &[is_selected], None, tables);
        let intervals = format!(
            "SELECT flow, [toUInt64(intDiv(min(begin) - {from}, {MINUTE})), toUInt64(intDiv(max(stop) - {from}, {MINUTE})), \
             toUInt64(sum(value_count))] AS part, any(path_starts) AS starts FROM (SELECT flow, begin, stop, value_count, path_starts, \
             arrayCount(start -> start.1 <= begin, path_starts) AS begun, arrayCount(start -> start.1 < stop, path_starts) AS ended \
             FROM ({counted}) AS counted LEFT JOIN (SELECT flow, path_starts FROM ({lifetimes})) AS lifetimes USING flow) \
             GROUP BY flow, begun, ended"
        );
        let limit = MAX_FLOWS + 1;
        statement.text = format!(
            "{LIFETIME_COLUMNS} FROM (SELECT flow, groupArray(part) AS parts, 0 AS first, 0 AS last, \
             arraySlice(any(starts), -{MAX_PATHS_PER_FLOW}) AS path_starts FROM ({intervals}) GROUP BY flow) \
             ORDER BY arraySum(part -> part[3], parts) DESC, flow LIMIT {limit}"
        );
        statement.in_rows()
    }

    /// Selects flows after the flow `after` in text order, with their reports per interval of the span.
    fn lifetimes_in_parts(
        self,
        span: Span,
        selector: &FlowSelector,
        pieces: &[Piece],
        after: &str,
        limit: usize,
        tables: &PathTables,
    ) -> Self {
        let mut statement = self.minutes(span, &FLOW_ROLLUPS);
        let from = span.from();
        let to = span.to();
        let mut selection = statement.selector_terms(selector);
        if !after.is_empty() {
            let after = statement.value("String", after.to_owned());
            selection.push(format!("flow > {after}"));
        }
        statement.terms.extend(selection.iter().cloned());
        let summed = statement.parts("ts, flow", &[]);
        let IntervalSql { begin, length } = interval_sql(pieces);
        let counted = format!(
            "SELECT flow, intDiv(begin - {from}, {MINUTE}) AS range_start, range_start + intDiv(length, {MINUTE}) AS range_end, \
             sum(values) AS report_count FROM (\
             SELECT flow, values, toUnixTimestamp64Nano(ts) AS time, {length} AS length, {begin} AS begin FROM ({summed})) GROUP BY flow, begin, length"
        );
        let lifetimes = statement.flow_lifetimes(from, to, &selection, Some(&counted), tables);
        statement.text = format!(
            "{LIFETIME_COLUMNS} FROM ({lifetimes}) WHERE notEmpty(parts) OR (last > {from} AND first < {to}) ORDER BY flow LIMIT {limit}"
        );
        statement.in_rows()
    }

    /// Counts the flows of a time span that have reports or a state.
    fn number_of_flows(self, span: Span, selector: &FlowSelector, states: &str) -> Self {
        let mut statement = self.minutes(span, &FLOW_ROLLUPS);
        let selection = statement.selector_terms(selector);
        statement.terms.extend(selection.iter().cloned());
        let table = statement.table.clone();
        let rollup_terms = statement.where_clause();
        statement.terms = selection;
        let within_span = [
            statement.time("last_seen >", span.from()),
            statement.time("first_seen <", span.to()),
        ];
        statement.terms.extend(within_span);
        let state_terms = statement.where_clause();
        statement.text = format!(
            "SELECT uniqExact(flow) AS flows FROM (SELECT flow FROM {table}{rollup_terms} UNION ALL SELECT flow FROM {states}{state_terms})"
        );
        statement.in_rows()
    }

    /// Selects path events of a time span, latest first, continuing before `last`, the last one of the previous page.
    fn paths_within(mut self, span: Span, selector: &FlowSelector, last: Option<(u64, u64)>) -> Self {
        self.terms = self.selector_terms(selector);
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let to = last.map_or(span.to(), |(time, _)| time.saturating_add(1));
        let events = self.table.clone();
        let deduplicated = self.deduplicated(&events, "id, flow, path, kind", span.from(), to);
        let earlier = last.map_or(String::new(), |(time, id)| {
            format!(
                " WHERE time < {} OR id < {}",
                signed(time),
                self.value("UInt64", id.to_string())
            )
        });
        self.text = format!(
            "SELECT flow, time, id, path, kind = 'path_change' AS changed FROM ({deduplicated}){earlier} ORDER BY time DESC, id DESC LIMIT {PATH_PAGE}"
        );
        self.in_rows()
    }

    /// Selects the path before time `from` of each flow with a path event between `from` and `to`.
    fn paths_before(mut self, from: u64, to: u64, selector: &FlowSelector) -> Self {
        self.terms = self.selector_terms(selector);
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let table = self.table.clone();
        let inside = self.where_within(from, to);
        let not_duplicate = self.duplicate_events(&table, from);
        self.range(None, Some(from));
        self.terms.push(not_duplicate);
        self.terms
            .push(format!("flow IN (SELECT flow FROM {table}{inside})"));
        let before = self.where_clause();
        let limit = MAX_EARLIER_PATHS + 1;
        self.text = format!(
            "SELECT flow, time, nodes AS path FROM (SELECT flow, toUnixTimestamp64Nano(max(ts)) AS time, argMax(path, ts) AS nodes FROM {table}{before} \
             GROUP BY flow LIMIT {limit})"
        );
        self.in_rows()
    }
}

/// SQL for the start and the length (ns) of an interval.
pub(super) struct IntervalSql {
    pub(super) begin: &'static str,
    pub(super) length: String,
}

/// Returns SQL for the interval that contains `time`. Intervals are aligned to multiples of their length.
pub(super) fn interval_sql(pieces: &[Piece]) -> IntervalSql {
    let mut sorted: Vec<&Piece> = pieces.iter().collect();
    sorted.sort_unstable_by_key(|piece| piece.to);
    let cases: String = sorted
        .iter()
        .map(|piece| format!("time < {}, {}, ", signed(piece.to), piece.length()))
        .collect();
    let length = match cases.is_empty() {
        true => MINUTE.to_string(),
        false => format!("multiIf({cases}{MINUTE})"),
    };
    IntervalSql {
        begin: "intDiv(time, length) * length",
        length,
    }
}

/// Returns SQL for one source of lifetimes, with the columns common to all sources.
fn lifetime_row(source: u8, numbers: [&str; 3], path: &str, from: &str) -> String {
    let [start, end, reports] = numbers;
    format!(
        "SELECT flow, {source} AS source, toUInt64({start}) AS range_start, toUInt64({end}) AS range_end, \
         toUInt64({reports}) AS report_count, {path} AS path FROM {from}"
    )
}

fn nanoseconds(column: &str) -> String {
    format!("toUInt64(toUnixTimestamp64Nano({column}))")
}

fn after_minutes(span: Span, minutes: u64) -> u64 {
    span.from().saturating_add(minutes.saturating_mul(MINUTE))
}

/// Returns true if a selected address is invalid, so that no flow matches.
fn matches_no_flow(selector: &FlowSelector) -> bool {
    [&selector.src, &selector.dst]
        .into_iter()
        .flatten()
        .any(|text| text.parse::<IpAddr>().is_err())
}

/// Converts a time to the tables' signed type, saturating.
pub(super) fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

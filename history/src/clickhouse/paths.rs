//! Paths that flows took: from events about paths, and of a flow without them, whose events were never
//! exported or are gone, from its latest state. What is found is added up by the same code as that of the
//! store.

use std::net::IpAddr;

use export::record::Stream;
use serde::Deserialize;
use store::{
    ChangeTally, FlowSelector, MAX_PATHS_PER_FLOW, PathChanges, PathPart, PathSpan, PathUses, Paths, Piece,
    Span, SpanSum, UseTally, rank_paths, use_pieces,
};
use tokio::time::Instant;
use wire::FlowKey;

use super::{
    DUPLICATE_SPAN, Remote,
    rows::flow,
    statement::{Statement, mapped},
};
use crate::query::PathQuery;
use crate::sql::Failure;

/// A flow with what it sent and the paths that it took.
#[derive(Deserialize, Debug)]
struct LifetimeLine {
    flow: String,
    /// Beginning and end, minutes after the beginning of the span; reports.
    parts: Vec<[u64; 3]>,
    /// First report and latest, or 0 if they are not known.
    life: [u64; 2],
    times: Vec<u64>,
    paths: Vec<Vec<u32>>,
}

/// A path that a flow took.
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
struct Number {
    n: u64,
}

impl LifetimeLine {
    /// Returns the paths with the times at which the flow took them, each path once in a row.
    fn paths(&mut self) -> Vec<(u64, Vec<u32>)> {
        let mut taken: Vec<(u64, Vec<u32>)> = std::mem::take(&mut self.times)
            .into_iter()
            .zip(std::mem::take(&mut self.paths))
            .collect();
        taken.dedup_by(|later, earlier| later.1 == earlier.1);
        taken
    }
}

impl Remote {
    /// Returns the tables with events and with states of flows.
    pub(super) fn of_paths(&self) -> (String, String) {
        (
            self.tables.table(Stream::Events),
            self.tables.table(Stream::Flows),
        )
    }

    /// Reads the paths of a span, and whether it has more flows than are considered.
    pub(super) async fn path_spans(&self, span: Span) -> Result<(Vec<PathSpan>, bool), Failure> {
        let until = Instant::now() + self.limit;
        let about = self.about(Stream::Rollups);
        let statement = about.lifetimes(span, &self.of_paths());
        let mut lines: Vec<LifetimeLine> = self.rows(statement, until).await?;
        let truncated = lines.len() > MAX_FLOWS;
        lines.truncate(MAX_FLOWS);
        let mut paths = Paths::default();
        let mut flows: Vec<(SpanSum, Vec<(u64, usize)>)> = Vec::with_capacity(lines.len());
        for mut line in lines {
            let Some([_, end, count]) = line.parts.first().copied() else {
                continue;
            };
            let sum = SpanSum {
                count,
                min: u64::MAX,
                max: 0,
                sum: 0,
                first: span.from(),
                last: after_minutes(span, end),
            };
            flows.push((
                sum,
                line.paths()
                    .into_iter()
                    .map(|(ts, path)| (ts, paths.insert(path)))
                    .collect(),
            ));
        }
        let ranked = rank_paths(
            span,
            paths.into_nodes(),
            flows.iter().map(|(sum, taken)| (*sum, &**taken)),
        );
        Ok((ranked, truncated))
    }

    pub(super) async fn used_paths(&self, query: PathQuery) -> Result<PathUses, Failure> {
        let PathQuery { span, of, limit } = query;
        let until = Instant::now() + self.limit;
        let mut tally = UseTally::new(span);
        if is_nobody(&of) {
            tally.spread(MINUTE);
            return Ok(tally.finish(limit));
        }
        let statement = self.about(Stream::Rollups);
        let statement = statement.number_of_flows(span, &of, &self.of_paths().1);
        let counted: Vec<Number> = self.rows(statement, until).await?;
        let pieces = use_pieces(span, counted.first().map_or(0, |count| count.n));
        let parts = pieces
            .iter()
            .map(|piece| (piece.to - piece.from) / piece.length().max(1))
            .sum::<u64>();
        let page = usize::try_from(ANSWER / (PATHS + PART * parts))
            .unwrap_or(1)
            .clamp(1, MAX_USED);
        pieces.iter().for_each(|piece| tally.spread(piece.length()));
        let mut after = String::new();
        let mut count = 0;
        loop {
            let statement = self.about(Stream::Rollups).lifetimes_in_parts(
                span,
                &of,
                &pieces,
                &after,
                page,
                &self.of_paths(),
            );
            let lines: Vec<LifetimeLine> = self.rows(statement, until).await?;
            let is_last = lines.len() < page;
            count += lines.len();
            for mut line in lines {
                let taken = line.paths();
                let parts = line
                    .parts
                    .iter()
                    .map(|[from, to, reports]| PathPart {
                        from: after_minutes(span, *from),
                        to: after_minutes(span, *to),
                        reports: *reports,
                    })
                    .collect();
                let life = Some(line.life)
                    .filter(|life| life[1] > 0)
                    .map(|[first, last]| (first, last));
                if let Some(key) = flow(&line.flow).filter(|key| of.matches(key)) {
                    tally.add(key, parts, life, taken.into_iter());
                }
                after = line.flow;
            }
            if is_last {
                return Ok(tally.finish(limit));
            }
            if count >= MAX_USED {
                tally.set_truncated();
                return Ok(tally.finish(limit));
            }
        }
    }

    pub(super) async fn changed_paths(&self, query: PathQuery) -> Result<PathChanges, Failure> {
        let PathQuery { span, of, limit } = query;
        let until = Instant::now() + self.limit;
        let mut tally = ChangeTally::new(span);
        if is_nobody(&of) {
            return Ok(tally.finish(limit));
        }
        let mut path_lines: Vec<PathLine> = Vec::new();
        let mut floor = span.from();
        loop {
            let last = path_lines.last().map(|line| (line.time, line.id));
            let statement = self.about(Stream::Events).paths_within(span, &of, last);
            let lines: Vec<PathLine> = self.rows(statement, until).await?;
            let is_last = lines.len() < PATH_PAGE;
            path_lines.extend(lines);
            if is_last {
                break;
            }
            if path_lines.len() >= MAX_PATHS {
                tally.set_truncated();
                // What is of the earliest time may not be all.
                floor = path_lines
                    .last()
                    .map_or(floor, |line| line.time.saturating_add(1));
                path_lines.retain(|line| line.time >= floor);
                break;
            }
        }
        let statement = self.about(Stream::Events).paths_before(floor, span.to(), &of);
        let mut before: Vec<PathLine> = self.rows(statement, until).await?;
        if before.len() > MAX_BEFORE {
            tally.set_truncated();
        }
        before.append(&mut path_lines);
        let parsed = before
            .into_iter()
            .filter_map(|line| Some((flow(&line.flow)?, line)));
        let mut parsed: Vec<(FlowKey, PathLine)> = parsed.filter(|(key, _)| of.matches(key)).collect();
        parsed.sort_by_key(|(key, line)| (*key, line.time, line.id));
        for (key, line) in parsed {
            let is_change = line.changed != 0 && line.time >= floor;
            tally.add(line.time, key, line.path, is_change);
        }
        Ok(tally.finish(limit))
    }
}

impl Statement {
    /// Returns SQL for the events of a time, each once, as `time` and `columns` of the events. Of copies that
    /// are at most [`DUPLICATE_SPAN`] apart, the latest counts.
    pub(super) fn once(&mut self, events: &str, columns: &str, from: u64, to: u64) -> String {
        let joined = self.joined_within(from, to.saturating_add(DUPLICATE_SPAN));
        let time = "toUnixTimestamp64Nano(ts)";
        format!(
            "SELECT * EXCEPT next FROM (SELECT {columns}, {time} AS time, leadInFrame({time}) OVER (PARTITION BY id ORDER BY ts \
             ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next FROM {events}{joined}) \
             WHERE (next = 0 OR next > time + {DUPLICATE_SPAN}) AND time < {}",
            signed(to)
        )
    }

    /// Returns a term that leaves out the copies of events whose latest copy is of this time or later.
    pub(super) fn duplicate_events(&mut self, events: &str, from: u64) -> String {
        let later = self.joined_within(from, from.saturating_add(DUPLICATE_SPAN));
        format!("id NOT IN (SELECT id FROM {events}{later})")
    }

    /// Returns the terms that select flows.
    fn terms_of(&mut self, of: &FlowSelector) -> Vec<String> {
        let kept = std::mem::take(&mut self.terms);
        self.flow(of.flow.as_ref());
        for (column, text) in [("src", &of.src), ("dst", &of.dst)] {
            let address = text.as_ref().and_then(|text| text.parse().ok());
            self.equal(column, "IPv6", address.map(mapped));
        }
        std::mem::replace(&mut self.terms, kept)
    }

    /// Returns SQL for the flows that have something: their `parts`, which `counted` gives as `flow`, `a`,
    /// `b` and `c`; their `first` and `last` report; and, as times and nodes, the paths that they `took` in a
    /// time and the path that each had when that began.
    pub(super) fn flow_lifetimes(
        &mut self,
        from: u64,
        to: u64,
        of: &[String],
        counted: Option<&str>,
        tables: &(String, String),
    ) -> String {
        let (events, states) = tables;
        let pair = "Array(Tuple(UInt64, Array(UInt32)))";
        let first = nanoseconds("first_seen");
        let last = nanoseconds("last_seen");
        self.terms = of.to_vec();
        let seen = format!("{states}{}", self.joined());
        let mut rows = vec![life_row(STATE, [&first, &last, "0"], "path", &seen)];
        rows.extend(counted.map(|counted| {
            let no_path = "CAST([], 'Array(UInt32)')";
            life_row(COUNTED, ["a", "b", "c"], no_path, &format!("({counted})"))
        }));
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let inside = self.once(events, "flow, path", from.saturating_add(1), to);
        rows.push(life_row(
            INSIDE,
            ["time", "0", "0"],
            "path",
            &format!("({inside})"),
        ));
        // Of copies of an event the path is the same, so that it does not matter which one is found.
        let twins = self.duplicate_events(events, from.saturating_add(1));
        self.range(None, Some(from.saturating_add(1)));
        self.terms.push(twins);
        let before = format!(
            "(SELECT flow, max(ts) AS at, argMax(path, ts) AS nodes FROM {events}{} GROUP BY flow)",
            self.joined()
        );
        rows.push(life_row(BEFORE, [&nanoseconds("at"), "0", "0"], "nodes", &before));
        let rows = rows.join(" UNION ALL ");
        let sorted = format!(
            "arraySort(if(notEmpty(known), known, if(notEmpty(kept) AND first < {to}, CAST([(first, kept)], '{pair}'), CAST([], '{pair}'))))"
        );
        // Where the paths themselves are read, the latest are.
        let took = if counted.is_some() {
            format!("arraySlice({sorted}, -{MAX_PATHS_PER_FLOW})")
        } else {
            sorted
        };
        format!(
            "SELECT flow, parts, first, last, {took} AS took FROM (\
             SELECT flow, groupArrayIf([a, b, c], source = {COUNTED}) AS parts, argMaxIf(a, b, source = {STATE}) AS first, \
             maxIf(b, source = {STATE}) AS last, argMaxIf(path, b, source = {STATE}) AS kept, \
             CAST(groupUniqArrayIf((a, path), source IN ({INSIDE}, {BEFORE})), '{pair}') AS known FROM ({rows}) GROUP BY flow)"
        )
    }

    /// Selects the flows of a span, each with one part; at most `MAX_FLOWS` + 1.
    fn lifetimes(self, span: Span, tables: &(String, String)) -> Self {
        let mut statement = self.minutes(span, &OF_FLOWS);
        let from = span.from();
        let there = statement.flows_there();
        let summed = statement.parts("ts, flow", &[]);
        let counted = format!(
            "SELECT flow, 0 AS a, intDiv(toUnixTimestamp64Nano(max(ts)) - {from}, {MINUTE}) + 1 AS b, sum(values) AS c FROM ({summed}) GROUP BY flow"
        );
        let lives = statement.flow_lifetimes(from, span.to(), &[there], Some(&counted), tables);
        let most = MAX_FLOWS + 1;
        statement.text = format!(
            "{LIFE} FROM ({lives}) WHERE notEmpty(parts) ORDER BY parts[1][3] DESC, flow LIMIT {most}"
        );
        statement.in_rows()
    }

    /// Selects the flows after one, by their texts, with their reports in parts of a span.
    fn lifetimes_in_parts(
        self,
        span: Span,
        of: &FlowSelector,
        pieces: &[Piece],
        after: &str,
        most: usize,
        tables: &(String, String),
    ) -> Self {
        let mut statement = self.minutes(span, &OF_FLOWS);
        let from = span.from();
        let to = span.to();
        let mut chosen = statement.terms_of(of);
        if !after.is_empty() {
            let after = statement.value("String", after.to_owned());
            chosen.push(format!("flow > {after}"));
        }
        statement.terms.extend(chosen.iter().cloned());
        let summed = statement.parts("ts, flow", &[]);
        let (begin, length) = begin_of(pieces);
        let counted = format!(
            "SELECT flow, intDiv(begin - {from}, {MINUTE}) AS a, a + intDiv(length, {MINUTE}) AS b, sum(values) AS c FROM (\
             SELECT flow, values, toUnixTimestamp64Nano(ts) AS time, {length} AS length, {begin} AS begin FROM ({summed})) GROUP BY flow, begin, length"
        );
        let lives = statement.flow_lifetimes(from, to, &chosen, Some(&counted), tables);
        statement.text = format!(
            "{LIFE} FROM ({lives}) WHERE notEmpty(parts) OR (last > {from} AND first < {to}) ORDER BY flow LIMIT {most}"
        );
        statement.in_rows()
    }

    /// Counts the flows of a span: those with reports, and those known by their states.
    fn number_of_flows(self, span: Span, of: &FlowSelector, states: &str) -> Self {
        let mut statement = self.minutes(span, &OF_FLOWS);
        let chosen = statement.terms_of(of);
        statement.terms.extend(chosen.iter().cloned());
        let table = statement.table.clone();
        let counted = statement.joined();
        statement.terms = chosen;
        let lived = [
            statement.time("last_seen >", span.from()),
            statement.time("first_seen <", span.to()),
        ];
        statement.terms.extend(lived);
        let lived = statement.joined();
        statement.text = format!(
            "SELECT uniqExact(flow) AS n FROM (SELECT flow FROM {table}{counted} UNION ALL SELECT flow FROM {states}{lived})"
        );
        statement.in_rows()
    }

    /// Selects the paths that flows took in a span, the latest first, before the last one of the page before.
    fn paths_within(mut self, span: Span, of: &FlowSelector, last: Option<(u64, u64)>) -> Self {
        self.terms = self.terms_of(of);
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let to = last.map_or(span.to(), |(time, _)| time.saturating_add(1));
        let events = self.table.clone();
        let once = self.once(&events, "id, flow, path, kind", span.from(), to);
        let earlier = last.map_or(String::new(), |(time, id)| {
            format!(
                " WHERE time < {} OR id < {}",
                signed(time),
                self.value("UInt64", id.to_string())
            )
        });
        self.text = format!(
            "SELECT flow, time, id, path, kind = 'path_change' AS changed FROM ({once}){earlier} ORDER BY time DESC, id DESC LIMIT {PATH_PAGE}"
        );
        self.in_rows()
    }

    /// Selects the path before a time of each flow that took one after it.
    fn paths_before(mut self, from: u64, to: u64, of: &FlowSelector) -> Self {
        self.terms = self.terms_of(of);
        self.terms.extend(PATH_EVENTS.map(str::to_owned));
        let table = self.table.clone();
        let inside = self.joined_within(from, to);
        let twins = self.duplicate_events(&table, from);
        self.range(None, Some(from));
        self.terms.push(twins);
        self.terms
            .push(format!("flow IN (SELECT flow FROM {table}{inside})"));
        let before = self.joined();
        let most = MAX_BEFORE + 1;
        self.text = format!(
            "SELECT flow, time, nodes AS path FROM (SELECT flow, toUnixTimestamp64Nano(max(ts)) AS time, argMax(path, ts) AS nodes FROM {table}{before} \
             GROUP BY flow LIMIT {most})"
        );
        self.in_rows()
    }
}

/// Returns SQL for the beginning and the length (ns) of the part that contains `time`. Parts begin at whole
/// multiples of their lengths.
pub(super) fn begin_of(pieces: &[Piece]) -> (String, String) {
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
    ("intDiv(time, length) * length".to_owned(), length)
}

/// Returns SQL for one source of the life of flows, with the columns of all of them.
fn life_row(source: u8, numbers: [&str; 3], path: &str, from: &str) -> String {
    let [a, b, c] = numbers;
    format!(
        "SELECT flow, {source} AS source, toUInt64({a}) AS a, toUInt64({b}) AS b, toUInt64({c}) AS c, {path} AS path FROM {from}"
    )
}

fn nanoseconds(column: &str) -> String {
    format!("toUInt64(toUnixTimestamp64Nano({column}))")
}

fn after_minutes(span: Span, minutes: u64) -> u64 {
    span.from().saturating_add(minutes.saturating_mul(MINUTE))
}

/// Returns true if a selected address is not a valid address, which no flow has.
fn is_nobody(of: &FlowSelector) -> bool {
    [&of.src, &of.dst]
        .into_iter()
        .flatten()
        .any(|text| text.parse::<IpAddr>().is_err())
}

/// Converts a time for the table, whose times are signed.
pub(super) fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

const LIFE: &str = "SELECT flow, parts, [first, last] AS life, arrayMap(one -> one.1, took) AS times, arrayMap(one -> one.2, took) AS paths";
/// The source of a row from which the life of a flow is made.
const COUNTED: u8 = 1;
const INSIDE: u8 = 2;
const BEFORE: u8 = 3;
const STATE: u8 = 4;
/// Terms that select the rollups of flows.
pub(super) const OF_FLOWS: [&str; 2] = ["metric = 'flow_latency'", "flow != ''"];
/// Events that say which path a flow takes from then on.
const PATH_EVENTS: [&str; 4] = [
    "kind IN ('new', 'path_change', 'path_loop')",
    "metric = 'flow_path'",
    "notEmpty(path)",
    "flow != ''",
];
/// Flows of a span whose paths are considered: those with most reports. Some 150 bytes of an answer each.
const MAX_FLOWS: usize = 50_000;
/// Flows whose paths are added up.
const MAX_USED: usize = 20_000;
/// Bytes of an answer, at most half of what is read; and of them what the paths of a flow take mostly, and each part of time.
const ANSWER: u64 = 8 << 20;
const PATHS: u64 = 1_000;
const PART: u64 = 20;
/// Paths that flows took, of one answer, and of all answers: the latest.
const PATH_PAGE: usize = 20_000;
const MAX_PATHS: usize = 100_000;
/// Flows whose path before a time is looked for.
const MAX_BEFORE: usize = 50_000;
const MINUTE: u64 = 60_000_000_000;

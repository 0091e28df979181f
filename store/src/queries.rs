//! Typed queries of the API and the commands: events, rollups, drops, losses, flows and the history of a flow. Each becomes one
//! SQL query over the documented views, built from the given filters so that SQLite selects the matching index.
//!
//! Newest-first queries search a few recent files first, and short time windows where rows are not found in time order.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use collector::event::{Basis, Drop, Kind, Loss, Nanos, Rollup};
use detect::Metric;
use rusqlite::Row;
use wire::FlowKey;

use crate::earlier::EarlierState;
use crate::guard::Deadline;
use crate::identity::FileIdentity;
use crate::intern::{parse_flow, parse_path};
use crate::query::{QueryError, QueryErrorKind, QueryOptions, Value, nanos};
use crate::reader::{FileGroup, Reader};
use crate::rows::{
    EventFilter, EventNames, EventRank, EventRow, FirstRow, FlowHistory, FlowPoint, FlowState, RecordFilter,
    RollupFilter, Totals, basis_named, drop_at, event_at, flow_at, kind_named, loss, optional, rollup_at,
    text as text_at,
};

/// Events per query of a search: small enough when matches are frequent, large enough when they are rare.
const PAGE_ROWS: usize = 4_096;
/// Maximum number of events that one search examines: about a quarter of a second.
const MAX_EXAMINED: usize = 125_000;
/// Number of leading columns that hold the flow.
const FLOW_COLUMN_COUNT: usize = 5;
const EVENT_COLUMNS: &str = "src, dst, sport, dport, proto, ts, kind, metric, node, interface, queue, value, previous, \
                             threshold, reason, basis, rule, id, path, flow_latency, latency_basis, hop_latencies";
const ROLLUP_COLUMNS: &str = "src, dst, sport, dport, proto, ts, interval, metric, node, interface, queue, \
                              count, min, max, sum, p50, p99";
const DROP_COLUMNS: &str =
    "src, dst, sport, dport, proto, ts, id, node, ingress_if, egress_if, queue, reason, tunnel";
const LOSS_COLUMNS: &str = "ts, node, source, hw_id, lost, reordered, duplicated";
const FLOW_COLUMNS: &str =
    "src, dst, sport, dport, proto, flow_latency, basis, first_seen, last_seen, reports, path";
/// The most frequent kinds of events.
const COMMON_KINDS: [Kind; 4] = [Kind::Change, Kind::Latest, Kind::New, Kind::Expired];
/// Windows before the newest record that are searched first, ns: 5 minutes, 1 hour, 12 hours.
const SEARCH_WINDOWS: [Nanos; 3] = [300_000_000_000, 3_600_000_000_000, 43_200_000_000_000];
/// Number of newest files that are queried first.
const FIRST_GROUP_FILES: usize = 4;
const EVENTS_PER_POINT: usize = 8;
/// Time limit for the search of a flow's state before a time.
const SEARCH: Duration = Duration::from_secs(3);

impl Reader {
    /// Returns events, newest first.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn events(&self, filter: &EventFilter) -> Result<Vec<EventRow>, QueryError> {
        self.events_until(filter, &self.deadline())
    }

    fn events_until(&self, filter: &EventFilter, deadline: &Deadline) -> Result<Vec<EventRow>, QueryError> {
        let clause = Self::event_clause(filter);
        self.latest_until(
            &clause,
            filter.limit,
            deadline,
            RowReader::new(event_row, |row| (row.event.ts, row.event.id)),
        )
    }

    fn event_clause(filter: &EventFilter) -> Clause {
        let mut clause = Clause {
            order: Some("ts DESC, id DESC"),
            ..Clause::new("events", EVENT_COLUMNS)
        };
        // Includes the events at the time of the last row, which are told apart by ID.
        let until = filter.after.map(|last| last.ts.saturating_add(1));
        clause.time(filter.from, filter.before.into_iter().chain(until).min());
        if let Some(last) = filter.after {
            clause.params.push(nanos(last.ts));
            clause.params.push(text(format_args!("{:016x}", last.id)));
            let number = clause.params.len();
            clause
                .terms
                .push(format!("(ts < ?{} OR id < ?{number})", number - 1));
        }
        // With both conditions, the planner would always use the node's index, but a rare kind selects fewer rows. `+` hides
        // the column from the planner.
        let by_kind = filter.kind.is_some_and(|kind| !COMMON_KINDS.contains(&kind));
        for (column, value) in filter.conditions() {
            let column = if by_kind && column == "node" {
                "+node"
            } else {
                column
            };
            clause.equal(column, Some(value));
        }
        clause.equal("flow", filter.flow.map(text));
        clause.scattered = filter.flow.is_some();
        clause
    }

    /// Returns the events that `is_wanted` accepts, newest first. If the search ended early, also returns the rank of the last
    /// examined event, from which to continue.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn events_where(
        &self,
        filter: &EventFilter,
        mut is_wanted: impl FnMut(&EventRow) -> bool,
    ) -> Result<(Vec<EventRow>, Option<EventRank>), QueryError> {
        let mut matching = Vec::new();
        let mut examined = 0;
        let mut before = filter.before;
        let deadline = self.deadline();
        while examined < MAX_EXAMINED {
            let mut rows = self.events_until(
                &EventFilter {
                    before,
                    limit: PAGE_ROWS,
                    ..*filter
                },
                &deadline,
            )?;
            let is_last = rows.len() < PAGE_ROWS;
            let last = rows.last().map_or(0, |row| row.event.ts);
            let missing = filter.limit - matching.len();
            if !is_last && rows.first().is_some_and(|row| row.event.ts == last) {
                // The whole page has one time, and more events may have it: examine all of them.
                let simultaneous = EventFilter {
                    limit: missing,
                    ..*filter
                };
                examined += self.events_at(&simultaneous, last, &deadline, &mut matching, &mut is_wanted)?;
                before = Some(last);
            } else {
                // More events may have the last time; the next page gets all of them.
                before = Some(last.saturating_add(1));
                rows.retain(|row| is_last || row.event.ts != last);
                examined += rows.len();
                matching.extend(rows.into_iter().filter(&mut is_wanted).take(missing));
            }
            if is_last || matching.len() >= filter.limit {
                return Ok((matching, None));
            }
        }
        Ok((matching, before.map(|ts| EventRank { ts, id: 0 })))
    }

    /// Adds the wanted events at time `ts` to `found`, at most the limit, largest IDs first. Returns the number of events
    /// examined.
    fn events_at(
        &self,
        filter: &EventFilter,
        ts: Nanos,
        deadline: &Deadline,
        found: &mut Vec<EventRow>,
        mut is_wanted: impl FnMut(&EventRow) -> bool,
    ) -> Result<usize, QueryError> {
        let filter = EventFilter {
            from: Some(ts),
            before: Some(ts.saturating_add(1)),
            ..*filter
        };
        // Unordered, because sorting in SQLite would hold all of them in memory.
        let clause = Clause {
            order: None,
            ..Self::event_clause(&filter)
        };
        let mut selected: Vec<EventRow> = Vec::new();
        let examined = self.with_retry(|| {
            selected.clear();
            let mut examined = 0;
            for group in self.groups(&clause)? {
                self.select(group.files, &clause, usize::MAX, deadline, |row| {
                    examined += 1;
                    selected.extend(Some(event_row(row)?).filter(&mut is_wanted));
                    if selected.len() / 2 >= filter.limit {
                        keep_first(&mut selected, filter.limit);
                    }
                    Ok(())
                })?;
            }
            Ok(examined)
        })?;
        keep_first(&mut selected, filter.limit);
        found.append(&mut selected);
        Ok(examined)
    }

    /// Returns the latest `limit` rollups, in ascending order of time.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn rollups(&self, filter: &RollupFilter) -> Result<Vec<Rollup>, QueryError> {
        let mut clause = Clause::new("rollups", ROLLUP_COLUMNS);
        clause.time(filter.from, filter.to.map(|to| to.saturating_add(1)));
        for (column, value) in filter.conditions() {
            clause.equal(column, Some(value));
        }
        clause.equal("flow", filter.flow.map(text));
        clause.scattered = filter.flow.is_some() || filter.node.is_some();
        let mut rows = self.latest(&clause, filter.limit, RowReader::new(rollup, |row| (row.ts, 0)))?;
        rows.reverse();
        Ok(rows)
    }

    /// Returns dropped-packet reports, newest first.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn drops(&self, filter: &RecordFilter) -> Result<Vec<Drop>, QueryError> {
        let mut clause = Clause::new("drops", DROP_COLUMNS);
        clause.time(filter.from, filter.before);
        clause.equal("node", filter.node.map(number));
        clause.equal("flow", filter.flow.map(text));
        clause.scattered = filter.flow.is_some();
        self.latest(&clause, filter.limit, RowReader::new(drop_row, |row| (row.ts, 0)))
    }

    /// Returns losses of reports, newest first.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn losses(&self, filter: &RecordFilter) -> Result<Vec<Loss>, QueryError> {
        let mut clause = Clause::new("losses", LOSS_COLUMNS);
        clause.time(filter.from, filter.before);
        clause.equal("node", filter.node.map(number));
        self.latest(&clause, filter.limit, RowReader::new(loss, |row| (row.ts, 0)))
    }

    /// Returns the latest state of one flow, or of the flows seen most recently, newest first.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn flows(&self, flow: Option<&FlowKey>, limit: usize) -> Result<Vec<FlowState>, QueryError> {
        let mut clause = Clause {
            order: Some("last_seen DESC"),
            ..Clause::new("flows", FLOW_COLUMNS)
        };
        clause.equal("flow", flow.map(text));
        let mut reader = RowReader::new(flow_state, |state| (state.row.last_seen, 0));
        reader.key = |state| Some(state.row.flow);
        self.latest(&clause, limit, reader)
    }

    /// Returns the latencies and paths of a flow over time from its events, at most the latest `limit` points.
    ///
    /// # Errors
    /// The files cannot be read, or it takes longer than 10 s.
    pub fn history(
        &self,
        flow: &FlowKey,
        from: Option<Nanos>,
        to: Option<Nanos>,
        limit: usize,
    ) -> Result<FlowHistory, QueryError> {
        let mut clause = Clause::new("events", EVENT_COLUMNS);
        clause.time(from, to.map(|to| to.saturating_add(1)));
        clause.equal("flow", Some(text(flow)));
        clause.scattered = true;
        clause.terms.push(FlowHistory::EVENTS.to_owned());
        let max_events = FlowHistory::events_for(limit);
        let mut events = self.latest(
            &clause,
            max_events,
            RowReader::new(event_row, |row| (row.event.ts, row.event.id)),
        )?;
        let is_cut = events.len() == max_events;
        events.reverse();
        let before = FlowHistory::known_from(&events, is_cut, from);
        let earlier = self.earlier(flow, before)?;
        Ok(FlowHistory::from_events(earlier, events, is_cut, limit))
    }

    /// Returns the state of a flow before a time; the default without one.
    fn earlier(&self, flow: &FlowKey, before: Option<Nanos>) -> Result<EarlierState, QueryError> {
        let mut earlier = EarlierState::default();
        let Some(before) = before else {
            return Ok(earlier);
        };
        let oldest = self.totals()?.from.unwrap_or(before);
        let deadline = self.deadline_in(SEARCH);
        for (start, end) in EarlierState::windows(before, oldest) {
            let mut clause = Clause::new("events", EVENT_COLUMNS);
            clause.time(Some(start), Some(end));
            clause.equal("flow", Some(text(flow)));
            clause.terms.push(EarlierState::events_of(before, end).to_owned());
            let ranked = RowReader::new(event_row, |row| (row.event.ts, row.event.id));
            let budget = earlier.budget();
            let rows = match self.latest_until(&clause, budget, &deadline, ranked) {
                Err(error) if error.kind == QueryErrorKind::Timeout => {
                    self.remember_notes(&[FlowHistory::INCOMPLETE.to_owned()]);
                    return Ok(earlier);
                }
                rows => rows?,
            };
            let is_cut = rows.len() == budget;
            if earlier.add_window(rows) {
                break;
            }
            if is_cut {
                self.remember_notes(&[FlowHistory::INCOMPLETE.to_owned()]);
                break;
            }
        }
        Ok(earlier)
    }

    /// Returns totals over all files. This is cheap, because each file stores its counts in `meta`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn totals(&self) -> Result<Totals, QueryError> {
        let mut totals = Totals::default();
        for (bytes, known) in self.all_file_facts()? {
            totals.files += 1;
            totals.bytes += bytes;
            totals.from = totals.from.into_iter().chain(known.time("from")).min();
            totals.to = totals.to.max(known.time("to"));
            totals.events += known.count("events");
            totals.rollups += known.count("rollups");
            totals.flows += known.count("flows");
            totals.drops += known.count("drops");
            totals.losses += known.count("losses");
        }
        Ok(totals)
    }

    /// Returns the newest `limit` rows, newest first.
    fn latest<T>(&self, clause: &Clause, limit: usize, reader: RowReader<T>) -> Result<Vec<T>, QueryError> {
        self.latest_until(clause, limit, &self.deadline(), reader)
    }

    /// Returns the newest `limit` rows, within a deadline.
    fn latest_until<T>(
        &self,
        clause: &Clause,
        limit: usize,
        deadline: &Deadline,
        reader: RowReader<T>,
    ) -> Result<Vec<T>, QueryError> {
        self.with_retry(|| {
            let mut rows = Vec::new();
            for from in self.start_times(clause)? {
                rows = self.newest(&clause.since(from), limit, deadline, &reader)?;
                if rows.len() >= limit {
                    break;
                }
            }
            Ok(rows)
        })
    }

    /// Returns the newest `limit` rows, reading one group of files after another until older groups cannot have newer rows.
    fn newest<T>(
        &self,
        clause: &Clause,
        limit: usize,
        deadline: &Deadline,
        reader: &RowReader<T>,
    ) -> Result<Vec<T>, QueryError> {
        let mut rows = Vec::new();
        for group in self.groups(clause)? {
            let oldest = rows.last().map(|row| (reader.rank)(row).0);
            if rows.len() >= limit && group.to.zip(oldest).is_some_and(|(to, oldest)| to < oldest) {
                break;
            }
            self.select(group.files, clause, limit, deadline, |row| {
                rows.push((reader.read)(row)?);
                Ok(())
            })?;
            rows.sort_by_cached_key(|row| Reverse((reader.rank)(row)));
            let mut keys = HashSet::new();
            rows.retain(|row| (reader.key)(row).is_none_or(|key| keys.insert(key)));
            rows.truncate(limit);
        }
        Ok(rows)
    }

    /// Returns the files of a clause in groups that one query can join, newest first. The first group is small because it often
    /// suffices; later ones are as large as possible.
    fn groups(&self, clause: &Clause) -> Result<Vec<FileGroup>, QueryError> {
        self.file_groups(clause.from, clause.before, FIRST_GROUP_FILES)
    }

    /// Passes at most `limit` rows of some files to `visit`.
    fn select(
        &self,
        files: Vec<FileIdentity>,
        clause: &Clause,
        limit: usize,
        deadline: &Deadline,
        visit: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), QueryError> {
        let options = QueryOptions {
            max_rows: usize::MAX,
            max_bytes: usize::MAX,
            params: clause.params.clone(),
            ..QueryOptions::default()
        };
        self.rows_of(files, &clause.sql(limit), &options, deadline, visit)
    }

    /// Returns the start times to try, cheapest search first; the first that gives enough rows ends the search. Rows that an
    /// index returns in time order are found at once. Rows that it returns by chunk must all be read and sorted, which is slow
    /// for a flow with many events, so recent windows are tried first.
    fn start_times(&self, clause: &Clause) -> Result<Vec<Option<Nanos>>, QueryError> {
        let mut start_times = Vec::new();
        if clause.scattered && clause.from.is_none() {
            let known = self.all_file_facts()?;
            let newest = known.iter().filter_map(|(_, known)| known.time("to")).max();
            if let Some(newest) = clause.before.or(newest) {
                start_times.extend(SEARCH_WINDOWS.map(|window| Some(newest.saturating_sub(window))));
            }
        }
        start_times.push(clause.from);
        Ok(start_times)
    }
}

/// Decoder, sort rank and deduplication key of a query's rows.
struct RowReader<T> {
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
    /// Time and ID; the largest come first.
    rank: fn(&T) -> (Nanos, u64),
    /// Rows with the same flow as an earlier row are dropped; `None` keeps all.
    key: fn(&T) -> Option<FlowKey>,
}

impl<T> RowReader<T> {
    fn new(read: fn(&Row<'_>) -> rusqlite::Result<T>, rank: fn(&T) -> (Nanos, u64)) -> Self {
        Self {
            read,
            rank,
            key: |_| None,
        }
    }
}

/// Sorts events by descending rank and keeps the first `limit`.
fn keep_first(rows: &mut Vec<EventRow>, limit: usize) {
    rows.sort_by_key(|row| Reverse(event_rank(row)));
    rows.truncate(limit);
}

fn event_rank(row: &EventRow) -> EventRank {
    EventRank::of_event(&row.event)
}

impl EventFilter {
    /// Returns the conditions except those on time and flow, as columns with their values.
    pub fn conditions(&self) -> Vec<(&'static str, Value)> {
        let mut conditions = Vec::new();
        conditions.extend(self.kind.map(|kind| ("kind", text(kind.name()))));
        conditions.extend(self.node.map(|node| ("node", number(node))));
        conditions.extend(self.metric.map(|metric| ("metric", text(metric.name()))));
        conditions
    }
}

impl RollupFilter {
    /// Returns the conditions except those on time and flow, as columns with their values.
    pub fn conditions(&self) -> Vec<(&'static str, Value)> {
        let mut conditions = Vec::new();
        conditions.extend(self.metric.map(|metric| ("metric", text(metric.name()))));
        conditions.extend(self.node.map(|node| ("node", number(node))));
        conditions.extend(self.queue.map(|queue| ("queue", number(queue))));
        conditions.extend(self.interface.map(|interface| ("interface", number(interface))));
        conditions.extend(self.interval.map(|interval| ("interval", number(interval))));
        conditions
    }
}

impl FlowHistory {
    /// SQL condition for the events of a flow's history.
    pub const EVENTS: &str = "metric IN ('flow_path', 'flow_latency', 'hop_latency') AND \
                              kind IN ('new', 'change', 'path_change', 'path_loop', 'latest')";

    /// Returns the number of events to read for `limit` points: each point has a flow latency and several hop latencies.
    pub fn events_for(limit: usize) -> usize {
        limit.saturating_mul(EVENTS_PER_POINT)
    }

    /// Note of an answer without some values that were stored long before its time.
    pub const INCOMPLETE: &str = "hop latencies may be missing: those that did not change for a long time were not found among the many earlier events \
                                  of the flow";

    /// Returns the time before which a flow's state is to be found with [`EarlierState`]: the start `from`, or the first of the
    /// events (in ascending time order) if older ones are missing. `None` if the events are all that there are.
    pub fn known_from(events: &[EventRow], is_cut: bool, from: Option<Nanos>) -> Option<Nanos> {
        match events.first() {
            // Some events of the same time may be missing, too.
            Some(first) if is_cut => Some(first.event.ts.saturating_add(1)),
            _ => from,
        }
    }

    /// Builds a flow's history from its events in ascending time order, keeping the latest `limit` points. `earlier` is the
    /// state before them, and `is_cut` means that older events exist.
    pub fn from_events(mut earlier: EarlierState, events: Vec<EventRow>, is_cut: bool, limit: usize) -> Self {
        earlier.settle();
        let mut history = Self {
            before: earlier.point,
            paths: earlier.path.into_iter().collect(),
            threshold: earlier.threshold,
            truncated: is_cut,
            ..Self::default()
        };
        for row in events {
            history.add(row);
        }
        let cut = history.series.len().saturating_sub(limit);
        if cut > 0 {
            history.truncated = true;
            history.before = history.series.drain(..cut).next_back();
        }
        history.arrange();
        history
    }

    /// Adds an event; events must be in time order.
    fn add(&mut self, row: EventRow) {
        let event = row.event;
        if let Some(first) = &row.first {
            let point = self.point(event.ts);
            if first.flow_latency.is_some() {
                point.flow_latency = first.flow_latency;
                point.basis = first.basis;
            }
            // Unavailable latencies have no event either.
            for (node, latency) in row.path.iter().zip(&first.hop_latencies) {
                if *latency != u32::MAX {
                    point.set_hop(*node, (*latency).into());
                }
            }
        }
        // The latest value of a flow also shows its path.
        if !row.path.is_empty() && self.paths.last().is_none_or(|(_, path)| *path != row.path) {
            self.paths.push((event.ts, row.path));
        }
        if event.metric == Some(Metric::FlowPath) {
            return;
        }
        let Some(value) = event.value else { return };
        if event.metric == Some(Metric::HopLatency) {
            self.threshold = self.threshold.max(event.threshold.unwrap_or(0));
        }
        let point = self.point(event.ts);
        if event.metric == Some(Metric::FlowLatency) {
            point.flow_latency = Some(value);
            point.basis = event.basis;
        } else if let Some(node) = event.node {
            point.set_hop(node, value);
        }
    }

    /// Returns the point at `ts`: the latest one, or a new one that starts with the values of the latest.
    fn point(&mut self, ts: Nanos) -> &mut FlowPoint {
        if self.series.last().is_none_or(|point| point.ts != ts) {
            let before = self.series.last().or(self.before.as_ref());
            let before = before.cloned().unwrap_or_default();
            self.series.push(FlowPoint { ts, ..before });
        }
        let last = self.series.len() - 1;
        &mut self.series[last]
    }

    /// Sorts each point's hops in path order at that time and removes nodes that left the path. If no complete path was
    /// reported, unknown nodes are kept, ordered by ID.
    fn arrange(&mut self) {
        for point in self.before.iter_mut().chain(&mut self.series) {
            let later = self.paths.partition_point(|(ts, _)| *ts <= point.ts);
            let path = later.checked_sub(1).map_or(&[][..], |i| &self.paths[i].1);
            if !path.is_empty() && !path.contains(&u32::MAX) {
                point.hops.retain(|(node, _)| path.contains(node));
            }
            point.hops.sort_by_key(|(node, _)| {
                (
                    path.iter().position(|hop| hop == node).unwrap_or(usize::MAX),
                    *node,
                )
            });
        }
    }
}

impl FlowPoint {
    fn set_hop(&mut self, node: u32, latency: u64) {
        match self.hops.iter_mut().find(|hop| hop.0 == node) {
            Some(hop) => hop.1 = latency,
            None => self.hops.push((node, latency)),
        }
    }
}

/// The view and the columns of a query, its `WHERE` and its parameters.
#[derive(Clone)]
struct Clause {
    view: &'static str,
    columns: &'static str,
    terms: Vec<String>,
    params: Vec<Value>,
    from: Option<Nanos>,
    before: Option<Nanos>,
    /// `ORDER BY` columns; `None` leaves rows unordered.
    order: Option<&'static str>,
    /// True if the index returns rows by chunk, not in time order.
    scattered: bool,
}

impl Clause {
    fn new(view: &'static str, columns: &'static str) -> Self {
        Self {
            view,
            columns,
            terms: Vec::new(),
            params: Vec::new(),
            from: None,
            before: None,
            order: Some("ts DESC"),
            scattered: false,
        }
    }

    fn time(&mut self, from: Option<Nanos>, before: Option<Nanos>) {
        self.from = from;
        self.before = before;
        self.compare("ts >=", from.map(nanos));
        self.compare("ts <", before.map(nanos));
    }

    /// Returns the clause with a later lower bound `from`.
    fn since(&self, from: Option<Nanos>) -> Self {
        let mut clause = self.clone();
        if from != self.from {
            clause.from = from;
            clause.compare("ts >=", from.map(nanos));
        }
        clause
    }

    fn equal(&mut self, column: &str, value: Option<Value>) {
        self.compare(&format!("{column} ="), value);
    }

    fn compare(&mut self, comparison: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.params.push(value);
            self.terms.push(format!("{comparison} ?{}", self.params.len()));
        }
    }

    fn sql(&self, limit: usize) -> String {
        let mut sql = format!("SELECT {} FROM {}", self.columns, self.view);
        if !self.terms.is_empty() {
            sql += &format!(" WHERE {}", self.terms.join(" AND "));
        }
        if let Some(order) = self.order {
            sql += &format!(" ORDER BY {order}");
        }
        sql + &format!(" LIMIT {}", limit.min(i64::MAX as usize))
    }
}

fn number(value: impl Into<i64>) -> Value {
    Value::Int(value.into())
}

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn event_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    let names = EventNames {
        id: hex(row, 17)?,
        kind: text_at(row, 6)?.map_or(Kind::Latest, |name| kind_named(&name)),
        metric: metric(row, 7)?,
        flow: parse_flow(row)?,
        basis: basis(row, 15)?,
    };
    let event = event_at(row, FLOW_COLUMN_COUNT, names)?;
    Ok(EventRow {
        event,
        rule: text_at(row, 16)?,
        path: path(row, 18)?,
        first: first(row)?,
    })
}

fn rollup(row: &Row<'_>) -> rusqlite::Result<Rollup> {
    rollup_at(row, FLOW_COLUMN_COUNT, parse_flow(row)?, metric(row, 7)?)
}

fn drop_row(row: &Row<'_>) -> rusqlite::Result<Drop> {
    let tunnel = text_at(row, 12)?.and_then(|text| text.parse().ok());
    drop_at(row, FLOW_COLUMN_COUNT, [parse_flow(row)?, tunnel], hex(row, 6)?)
}

fn flow_state(row: &Row<'_>) -> rusqlite::Result<FlowState> {
    let state = flow_at(row, FLOW_COLUMN_COUNT, parse_flow(row)?, basis(row, 6)?)?;
    Ok(FlowState {
        row: state,
        path: path(row, 10)?,
    })
}

/// Reads a 64-bit ID stored as hexadecimal text.
fn hex(row: &Row<'_>, i: usize) -> rusqlite::Result<u64> {
    Ok(text_at(row, i)?
        .and_then(|id| u64::from_str_radix(&id, 16).ok())
        .unwrap_or(0))
}

fn first(row: &Row<'_>) -> rusqlite::Result<Option<FirstRow>> {
    let Some(basis) = text_at(row, 20)? else {
        return Ok(None);
    };
    Ok(Some(FirstRow {
        flow_latency: optional(row, 19)?,
        basis: basis_named(&basis),
        hop_latencies: path(row, 21)?,
    }))
}

fn metric(row: &Row<'_>, i: usize) -> rusqlite::Result<Option<Metric>> {
    Ok(text_at(row, i)?.as_deref().and_then(Metric::from_name))
}

fn basis(row: &Row<'_>, i: usize) -> rusqlite::Result<Basis> {
    Ok(text_at(row, i)?.map_or_else(Basis::default, |name| basis_named(&name)))
}

fn path(row: &Row<'_>, i: usize) -> rusqlite::Result<Vec<u32>> {
    Ok(text_at(row, i)?.map_or_else(Vec::new, |text| parse_path(&text)))
}

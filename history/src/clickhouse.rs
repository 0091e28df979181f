//! History back end over ClickHouse: answers queries from the tables to which a fleet of collectors exports.
//!
//! Several collectors may store the same report, and an export may be repeated, so rows are deduplicated at query time. Events
//! of several collectors with equal IDs within [`DUPLICATE_SPAN`] count once, with the latest row. Those of one collector count
//! once only if their times are equal, too: a device without a clock that repeats its numbers repeats IDs. Rollups of equal key and time are parts of one,
//! except from two collectors that receive the same reports: then the one with more values counts.

mod alerts;
mod errors;
mod losses;
mod paths;
mod queues;
mod rows;
mod spans;
mod statement;
mod traffic;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use collector::event::Rollup;
use export::{
    record::Stream,
    sink::{Response, clickhouse::ClickHouse},
};
use serde::de::DeserializeOwned;
use store::{
    EarlierState, EventFilter, EventRank, EventRow, FlowHistory, FlowSpans, Heat, HeatFilter, Losses,
    NodeSpans, PathChanges, PathSpans, PathUses, RateSpan, RollupFilter, Span, Traffic, TrafficQuery,
};
use tokio::time::{self, Instant};

use wire::FlowKey;

use self::{
    errors::Author,
    rows::{EventLine, Newest, RollupLine},
    statement::Statement,
};
use crate::alerts::RuleEvent;
use crate::notes;
use crate::query::{
    EventQuery, FlowQuery, FlowsQuery, FoundEvents, History, LinkEnds, LossQuery, PathQuery, Permit,
    QueueQuery, QueueRecords, RateQuery, ResponseFuture,
};
use crate::sql::{Failure, QueryFailure, Request};
use net::{destination::Destination, http::Client};
use runtime::lock::lock;

/// Maximum events per response: about 350 bytes each, and at most 16 MiB are read.
const MAX_LINES: usize = 8_192;
/// Maximum time between two copies of an event, ns: both come from one report. Beyond it, equal IDs belong to different events,
/// since 64-bit hashes repeat eventually.
const DUPLICATE_SPAN: u64 = 10_000_000_000;
/// Windows before the newest row that are searched first, ns: 5 minutes, 1 hour, 12 hours.
const SEARCH_WINDOWS: [u64; 3] = [300_000_000_000, 3_600_000_000_000, 43_200_000_000_000];
/// Additional wait beyond the limit, for the server's own error message.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of idle connections.
const MAX_IDLE: usize = 4;

/// Client of the ClickHouse tables.
#[derive(Debug)]
pub struct Remote {
    destination: Destination,
    tables: ClickHouse,
    /// Collectors in pairs, each with the name that represents its pair.
    pairs: Arc<[(String, String)]>,
    /// Time limit of a query.
    limit: Duration,
    idle: Mutex<Vec<Client>>,
}

impl Remote {
    /// Creates a back end for the server at `destination`; it connects with the first query. `pairs` maps each collector of a
    /// pair to the pair's representative. `limit` is the time limit of a query.
    pub fn new(
        destination: Destination,
        tables: ClickHouse,
        pairs: Vec<(String, String)>,
        limit: Duration,
    ) -> Self {
        Self {
            destination,
            tables,
            pairs: pairs.into(),
            limit,
            idle: Mutex::default(),
        }
    }

    /// Creates a statement about a table.
    fn about(&self, stream: Stream) -> Statement {
        Statement::about(self.tables.table(stream), Arc::clone(&self.pairs))
    }

    /// Executes a statement and returns the body of the response.
    async fn execute(
        &self,
        statement: Statement,
        until: Instant,
        author: Author,
    ) -> Result<Vec<u8>, Failure> {
        let time_left = until.saturating_duration_since(Instant::now());
        // The last of several statements gets the remaining time.
        let limit = if author == Author::Program {
            self.limit
        } else {
            time_left
        };
        let request = statement.request(time_left);
        let mut client = lock(&self.idle)
            .pop()
            .unwrap_or_else(|| Client::new(self.destination.clone()));
        // ClickHouse enforces the limit itself; this timeout is for a server that hangs.
        let answer = match time::timeout(time_left + RESPONSE_GRACE, client.send(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(message)) => return Err(Failure::Unavailable(message)),
            Err(_) => return Err(errors::timed_out(limit, author)),
        };
        let response = Response {
            status: answer.status,
            retry_after: answer.retry_after,
            body: &answer.body,
            is_cut: answer.is_cut,
        };
        errors::check_response(&response, author, limit)?;
        if answer.is_cut {
            return Err(errors::too_large(author));
        }
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(client);
        }
        Ok(answer.body)
    }

    /// Executes an internal statement and returns the decoded rows.
    async fn rows<T: DeserializeOwned>(
        &self,
        statement: Statement,
        until: Instant,
    ) -> Result<Vec<T>, Failure> {
        let body = self.execute(statement, until, Author::Program).await?;
        rows::read(&body)
    }

    /// Returns the start times to try in turn when searching for the latest rows. Without one, ClickHouse would read the whole
    /// table.
    async fn start_times(
        &self,
        stream: Stream,
        from: Option<u64>,
        before: Option<u64>,
        until: Instant,
    ) -> Result<Vec<Option<u64>>, Failure> {
        if from.is_some() {
            return Ok(vec![from]);
        }
        let newest = match before {
            Some(before) => before,
            None => {
                let newest: Vec<Newest> = self.rows(self.about(stream).newest(), until).await?;
                newest.first().map_or(0, |row| row.time)
            }
        };
        let windows = SEARCH_WINDOWS
            .iter()
            .map(|window| Some(newest.saturating_sub(*window)));
        Ok(windows.chain([None]).collect())
    }

    /// Reads the latest events without duplicates, newest first.
    async fn latest(&self, query: &EventSelection, until: Instant) -> Result<Vec<EventRow>, Failure> {
        let events = self.latest_with_collectors(query, until).await?;
        Ok(events.into_iter().map(|event| event.line.row()).collect())
    }

    /// Reads the state of a flow before a time; the default without one.
    async fn earlier(
        &self,
        flow: FlowKey,
        before: Option<u64>,
        until: Instant,
    ) -> Result<EarlierState, Failure> {
        let mut earlier = EarlierState::default();
        let Some(before) = before else {
            return Ok(earlier);
        };
        for (start, end) in EarlierState::windows(before, 0) {
            let budget = earlier.budget();
            let filter = EventFilter {
                flow: Some(flow),
                from: Some(start),
                before: Some(end),
                limit: budget,
                ..EventFilter::default()
            };
            let selection = EventSelection {
                term: Some(EarlierState::events_of(before, end)),
                ..filter.into()
            };
            let rows = self.latest(&selection, until).await?;
            let is_cut = rows.len() == budget;
            if earlier.add_window(rows) {
                break;
            }
            if is_cut {
                notes::add(vec![FlowHistory::INCOMPLETE.to_owned()]);
                break;
            }
        }
        Ok(earlier)
    }

    /// Reads the latest events without duplicates, newest first, each with the collectors that stored it.
    async fn latest_with_collectors(
        &self,
        query: &EventSelection,
        until: Instant,
    ) -> Result<Vec<StoredEvent>, Failure> {
        let EventFilter {
            from,
            before,
            after,
            limit,
            ..
        } = query.filter;
        let mut events: Vec<StoredEvent> = Vec::new();
        let mut copies = Copies::default();
        let mut last = after;
        let after = after.map(|last| last.ts.saturating_add(1));
        let before = before.into_iter().chain(after).min();
        let start_times = self.start_times(Stream::Events, from, before, until);
        for from in start_times.await? {
            loop {
                // Usually at most two collectors store an event; more copies take another round.
                let page = (2 * limit.saturating_sub(events.len()) + 16).min(MAX_LINES);
                let statement = self.about(Stream::Events).events(query, from, last, page);
                let lines: Vec<EventLine> = self.rows(statement, until).await?;
                let is_full = lines.len() == page;
                last = lines.last().map(EventLine::rank).or(last);
                for line in lines {
                    if copies.is_repeated(&line) {
                        continue;
                    }
                    if let Some(index) = copies.find(&line, &events) {
                        events[index].other_collectors.push(line.collector);
                        continue;
                    }
                    copies.add(&line, events.len());
                    events.push(StoredEvent {
                        line,
                        other_collectors: Vec::new(),
                    });
                    if events.len() == limit {
                        return Ok(events);
                    }
                }
                if !is_full {
                    break;
                }
            }
        }
        Ok(events)
    }

    async fn rollup_rows(&self, filter: RollupFilter) -> Result<Vec<Rollup>, Failure> {
        let until = Instant::now() + self.limit;
        let before = filter.to.map(|to| to.saturating_add(1));
        let mut lines: Vec<RollupLine> = Vec::new();
        for from in self
            .start_times(Stream::Rollups, filter.from, before, until)
            .await?
        {
            let statement = self.about(Stream::Rollups).rollups(&filter, from);
            lines = self.rows(statement, until).await?;
            if lines.len() >= filter.limit {
                break;
            }
        }
        Ok(lines.into_iter().rev().map(RollupLine::rollup).collect())
    }

    async fn user_rows(&self, request: Request) -> Result<Vec<u8>, Failure> {
        let until = Instant::now() + request.timeout;
        let statement = Statement::from_user(&request, self.tables.database());
        let body = self.execute(statement, until, Author::User).await?;
        rows::table(&body, &request).map_err(|message| Failure::Query(QueryFailure::from(message)))
    }
}

impl History for Remote {
    fn events(&self, query: EventQuery, permit: Permit) -> ResponseFuture<'_, FoundEvents> {
        Box::pin(async move {
            let _permit = permit;
            let until = Instant::now() + self.limit;
            let rows = self.latest(&query.into(), until).await?;
            Ok(FoundEvents { rows, stopped: None })
        })
    }

    fn rollups(&self, filter: RollupFilter, permit: Permit) -> ResponseFuture<'_, Vec<Rollup>> {
        hold_permit(permit, self.rollup_rows(filter))
    }

    fn flow(&self, query: FlowQuery, permit: Permit) -> ResponseFuture<'_, FlowHistory> {
        Box::pin(async move {
            let _permit = permit;
            let max_events = FlowHistory::events_for(query.limit);
            let filter = EventFilter {
                flow: Some(query.flow),
                from: query.from,
                before: query.to.map(|to| to.saturating_add(1)),
                limit: max_events,
                ..EventFilter::default()
            };
            let selection = EventSelection {
                term: Some(FlowHistory::EVENTS),
                ..filter.into()
            };
            let until = Instant::now() + self.limit;
            let mut events = self.latest(&selection, until).await?;
            events.reverse();
            let is_cut = events.len() == max_events;
            let before = FlowHistory::known_from(&events, is_cut, query.from);
            let earlier = self.earlier(query.flow, before, until).await?;
            Ok(FlowHistory::from_events(earlier, events, is_cut, query.limit))
        })
    }

    fn rule_events(&self, query: EventQuery, permit: Permit) -> ResponseFuture<'_, Vec<RuleEvent>> {
        hold_permit(permit, self.rule_events_with_sources(query))
    }

    fn heat(&self, filter: HeatFilter, permit: Permit) -> ResponseFuture<'_, Heat> {
        hold_permit(permit, self.heat_map(filter))
    }

    fn queue(&self, query: QueueQuery, permit: Permit) -> ResponseFuture<'_, QueueRecords> {
        hold_permit(permit, self.queue_records(query))
    }

    /// Counts drops and lost reports. Packets per link cannot be counted, because reports are not exported.
    fn losses(&self, query: LossQuery, permit: Permit) -> ResponseFuture<'_, Losses> {
        hold_permit(permit, self.losses_within(query.span))
    }

    fn ends(&self, span: Span, permit: Permit) -> ResponseFuture<'_, (Vec<LinkEnds>, bool)> {
        hold_permit(permit, self.ends_within(span))
    }

    fn flows(&self, query: FlowsQuery, permit: Permit) -> ResponseFuture<'_, FlowSpans> {
        hold_permit(permit, self.flow_spans(query))
    }

    fn nodes(&self, span: Span, permit: Permit) -> ResponseFuture<'_, NodeSpans> {
        hold_permit(permit, self.node_spans(span))
    }

    fn paths(&self, span: Span, permit: Permit) -> ResponseFuture<'_, PathSpans> {
        hold_permit(permit, self.path_spans(span))
    }

    fn path_changes(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathChanges> {
        hold_permit(permit, self.changed_paths(query))
    }

    fn path_uses(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathUses> {
        hold_permit(permit, self.used_paths(query))
    }

    fn traffic(&self, query: Arc<TrafficQuery>, permit: Permit) -> ResponseFuture<'_, Traffic> {
        hold_permit(permit, self.traffic_sums(query))
    }

    fn rates(&self, query: RateQuery, permit: Permit) -> ResponseFuture<'_, RateSpan> {
        hold_permit(permit, self.rate_span(query))
    }

    fn query(&self, request: Request) -> ResponseFuture<'_, Vec<u8>> {
        Box::pin(self.user_rows(request))
    }

    /// Closes all idle connections to ClickHouse.
    fn tidy(&self) {
        lock(&self.idle).clear();
    }
}

/// Holds a permit until the query is answered.
fn hold_permit<'a, T>(
    permit: Permit,
    answer: impl Future<Output = Result<T, Failure>> + Send + 'a,
) -> ResponseFuture<'a, T> {
    Box::pin(async move {
        let _permit = permit;
        answer.await
    })
}

/// An event, and the other collectors that stored it.
#[derive(Debug)]
struct StoredEvent {
    line: EventLine,
    other_collectors: Vec<String>,
}

impl StoredEvent {
    fn is_of(&self, collector: &String) -> bool {
        self.line.collector == *collector || self.other_collectors.contains(collector)
    }
}

/// Finds copies of events that are read newest first.
#[derive(Default, Debug)]
struct Copies {
    /// The events of each ID that are at most [`DUPLICATE_SPAN`] after the last one, the newest first.
    recent: HashMap<u64, VecDeque<usize>>,
    /// The last event, and the collectors whose row was read.
    last: Option<EventRank>,
    collectors: Vec<String>,
}

impl Copies {
    /// Returns true if a row was read before: its export was repeated.
    fn is_repeated(&mut self, line: &EventLine) -> bool {
        if self.last != Some(line.rank()) {
            self.last = Some(line.rank());
            self.collectors.clear();
        }
        if self.collectors.contains(&line.collector) {
            return true;
        }
        self.collectors.push(line.collector.clone());
        false
    }

    /// Returns the index of the event of which a row is another collector's copy.
    fn find(&mut self, line: &EventLine, events: &[StoredEvent]) -> Option<usize> {
        let recent = self.recent.get_mut(&line.id)?;
        while let Some(index) = recent.front()
            && events[*index].line.time.saturating_sub(line.time) > DUPLICATE_SPAN
        {
            recent.pop_front();
        }
        recent
            .iter()
            .copied()
            .find(|index| !events[*index].is_of(&line.collector))
    }

    fn add(&mut self, line: &EventLine, index: usize) {
        self.recent.entry(line.id).or_default().push_back(index);
    }
}

/// A selection of events.
#[derive(Debug)]
struct EventSelection {
    filter: EventFilter,
    condition: Option<Arc<filter::Filter>>,
    /// An additional condition in SQL.
    term: Option<&'static str>,
}

impl From<EventFilter> for EventSelection {
    fn from(filter: EventFilter) -> Self {
        Self {
            filter,
            condition: None,
            term: None,
        }
    }
}

impl From<EventQuery> for EventSelection {
    fn from(query: EventQuery) -> Self {
        Self {
            condition: query.condition,
            ..query.filter.into()
        }
    }
}

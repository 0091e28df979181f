//! The tables that collectors export to ClickHouse: the history of a fleet.
//!
//! Rows are there once for each collector that heard them, and once more for each repeat of an export. Of events with one id that are at
//! most [`TWIN`] apart, only the latest counts. Rollups of one key and time are parts of one, except those of two collectors that hear the
//! same reports: of these, the one with more values counts.

mod alerts;
mod losses;
mod paths;
mod queues;
mod rows;
mod spans;
mod statement;
mod traffic;
mod words;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use collector::event::Rollup;
use export::{
    record::Stream,
    sink::{self, clickhouse::ClickHouse},
};
use serde::de::DeserializeOwned;
use store::{
    EventFilter, EventRow, FlowHistory, FlowSpans, Heat, HeatFilter, Losses, NodeSpans, PathChanges,
    PathSpan, PathUses, RateSpan, RollupFilter, Span, Traffic, TrafficQuestion,
};
use tokio::time::{self, Instant};

use self::{
    rows::{EventLine, Newest, RollupLine},
    statement::Statement,
};
use crate::alerts::RuleEvent;
use crate::question::{
    Answer, EventQuestion, FlowQuestion, FlowsQuestion, FoundEvents, History, LinkEnds, PathQuestion, Place,
    QueueQuestion, QueueRecords,
};
use crate::sql::{Failure, QueryFailure, Request};
use net::{destination::Destination, http::Client};
use runtime::lock::lock;

/// Asks ClickHouse.
#[derive(Debug)]
pub struct Remote {
    destination: Destination,
    tables: ClickHouse,
    /// For each collector of a pair, what stands for the pair.
    pairs: Vec<(String, String)>,
    /// How long an answer takes at most.
    limit: Duration,
    idle: Mutex<Vec<Client>>,
}

impl Remote {
    /// Asks the server at `destination`, once there is a question. `pairs`: for each collector of a pair, what stands for the pair.
    /// `limit`: how long an answer takes at most.
    pub fn new(
        destination: Destination,
        tables: ClickHouse,
        pairs: Vec<(String, String)>,
        limit: Duration,
    ) -> Self {
        Self {
            destination,
            tables,
            pairs,
            limit,
            idle: Mutex::default(),
        }
    }

    /// A statement about a table.
    fn about(&self, stream: Stream) -> Statement {
        Statement::about(self.tables.table(stream))
    }

    /// The body of the answer to a statement.
    async fn ask(
        &self,
        statement: Statement,
        until: Instant,
        whose: words::Whose,
    ) -> Result<Vec<u8>, Failure> {
        let left = until.saturating_duration_since(Instant::now());
        // The last of several statements has what the others left of it.
        let limit = if whose == words::Whose::Ours {
            self.limit
        } else {
            left
        };
        let request = Arc::new(statement.request(left));
        let mut client = lock(&self.idle)
            .pop()
            .unwrap_or_else(|| Client::new(self.destination.clone()));
        // ClickHouse stops by itself; this is for a server that does not answer.
        let answer = match time::timeout(left + GRACE, client.send(&request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(words)) => return Err(Failure::Unavailable(words)),
            Err(_) => return Err(words::late(limit, whose)),
        };
        let response = answer.response();
        words::verdict(&response, whose, limit)?;
        let sink::Response { body, is_cut, .. } = response;
        if is_cut {
            return Err(words::large(whose));
        }
        let body = body.to_vec();
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(client);
        }
        Ok(body)
    }

    /// The rows of an answer to one of our statements.
    async fn rows<T: DeserializeOwned>(
        &self,
        statement: Statement,
        until: Instant,
    ) -> Result<Vec<T>, Failure> {
        let body = self.ask(statement, until, words::Whose::Ours).await?;
        rows::read(&body)
    }

    /// Beginnings of the time ranges that are searched one after the other for the latest rows. Without a limit, ClickHouse would read
    /// the whole table.
    async fn floors(
        &self,
        stream: Stream,
        (from, before): (Option<u64>, Option<u64>),
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
        let windows = WINDOWS.iter().map(|window| Some(newest.saturating_sub(*window)));
        Ok(windows.chain([None]).collect())
    }

    /// The latest events, newest first, each once.
    async fn latest(&self, question: &Wanted, until: Instant) -> Result<Vec<EventRow>, Failure> {
        let found = self.latest_heard(question, until).await?;
        Ok(found.into_iter().map(|heard| heard.line.row()).collect())
    }

    /// The same, with the collectors that heard each.
    async fn latest_heard(&self, question: &Wanted, until: Instant) -> Result<Vec<Heard>, Failure> {
        let (mut found, mut seen): (Vec<Heard>, HashMap<u64, (u64, usize)>) = Default::default();
        let mut last = None;
        for from in self
            .floors(Stream::Events, (question.from, question.before), until)
            .await?
        {
            loop {
                // Two collectors hear the same; more copies are rare, and take another round.
                let most = (2 * question.limit.saturating_sub(found.len()) + 16).min(MOST_LINES);
                let statement = self.about(Stream::Events).events(question, (from, last, most));
                let lines: Vec<EventLine> = self.rows(statement, until).await?;
                let is_full = lines.len() == most;
                last = lines.last().map(|line| (line.time, line.id)).or(last);
                for line in lines {
                    let twin = seen.get(&line.id).filter(|(later, _)| later - line.time <= TWIN);
                    let place = twin.map_or(found.len(), |(_, place)| *place);
                    seen.insert(line.id, (line.time, place));
                    if let Some(twin) = found.get_mut(place) {
                        twin.hear(line);
                        continue;
                    }
                    found.push(Heard {
                        line,
                        also: Vec::new(),
                    });
                    if found.len() == question.limit {
                        return Ok(found);
                    }
                }
                if !is_full {
                    break;
                }
            }
        }
        Ok(found)
    }

    async fn rollup_rows(&self, filter: RollupFilter) -> Result<Vec<Rollup>, Failure> {
        let until = Instant::now() + self.limit;
        let before = filter.to.map(|to| to.saturating_add(1));
        let mut lines: Vec<RollupLine> = Vec::new();
        for from in self.floors(Stream::Rollups, (filter.from, before), until).await? {
            let statement = self.about(Stream::Rollups).rollups(&filter, from, &self.pairs);
            lines = self.rows(statement, until).await?;
            if lines.len() >= filter.limit {
                break;
            }
        }
        Ok(lines.into_iter().rev().map(RollupLine::rollup).collect())
    }

    async fn user_rows(&self, request: Request) -> Result<Vec<u8>, Failure> {
        let until = Instant::now() + request.timeout;
        let statement = Statement::of_user(&request, self.tables.database());
        let body = self.ask(statement, until, words::Whose::Users).await?;
        rows::table(&body, &request).map_err(|message| Failure::Query(QueryFailure::from(message)))
    }
}

impl History for Remote {
    fn events(&self, question: EventQuestion, place: Place) -> Answer<'_, FoundEvents> {
        Box::pin(async move {
            let _place = place;
            let wanted = Wanted {
                condition: question.condition,
                ..Wanted::of(question.filter)
            };
            let rows = self.latest(&wanted, Instant::now() + self.limit).await?;
            Ok(FoundEvents { rows, stopped: None })
        })
    }

    fn rollups(&self, filter: RollupFilter, place: Place) -> Answer<'_, Vec<Rollup>> {
        Box::pin(async move {
            let _place = place;
            self.rollup_rows(filter).await
        })
    }

    fn flow(&self, question: FlowQuestion, place: Place) -> Answer<'_, FlowHistory> {
        Box::pin(async move {
            let _place = place;
            let FlowQuestion {
                flow,
                from,
                to,
                limit,
            } = question;
            let before = to.map(|to| to.saturating_add(1));
            let most = FlowHistory::events_for(limit);
            let filter = EventFilter {
                flow: Some(flow),
                from,
                before,
                limit: most,
                ..EventFilter::default()
            };
            let question = Wanted {
                only: Some(FlowHistory::EVENTS),
                ..Wanted::of(filter)
            };
            let mut events = self.latest(&question, Instant::now() + self.limit).await?;
            events.reverse();
            let is_cut = events.len() == most;
            Ok(FlowHistory::from_events(events, is_cut, limit))
        })
    }

    fn rule_events(&self, question: EventQuestion, place: Place) -> Answer<'_, Vec<RuleEvent>> {
        Box::pin(async move {
            let _place = place;
            self.heard_of_rules(question).await
        })
    }

    fn heat(&self, filter: HeatFilter, place: Place) -> Answer<'_, Heat> {
        Box::pin(async move {
            let _place = place;
            self.heat_map(filter).await
        })
    }

    fn queue(&self, question: QueueQuestion, place: Place) -> Answer<'_, QueueRecords> {
        Box::pin(async move {
            let _place = place;
            self.queue_records(question).await
        })
    }

    /// Reports are not exported: there is nothing to count.
    fn losses(&self, (span, _): (Span, Option<u64>), place: Place) -> Answer<'_, Losses> {
        Box::pin(async move {
            let _place = place;
            self.losses_within(span).await
        })
    }

    fn ends(&self, span: Span, place: Place) -> Answer<'_, (Vec<LinkEnds>, bool)> {
        Box::pin(async move {
            let _place = place;
            self.ends_within(span).await
        })
    }

    fn flows(&self, question: FlowsQuestion, place: Place) -> Answer<'_, FlowSpans> {
        Box::pin(async move {
            let _place = place;
            self.flow_spans(question).await
        })
    }

    fn nodes(&self, span: Span, place: Place) -> Answer<'_, NodeSpans> {
        Box::pin(async move {
            let _place = place;
            self.node_spans(span).await
        })
    }

    fn paths(&self, span: Span, place: Place) -> Answer<'_, (Vec<PathSpan>, bool)> {
        Box::pin(async move {
            let _place = place;
            self.path_spans(span).await
        })
    }

    fn path_changes(&self, question: PathQuestion, place: Place) -> Answer<'_, PathChanges> {
        Box::pin(async move {
            let _place = place;
            self.changed_paths(question).await
        })
    }

    fn path_uses(&self, question: PathQuestion, place: Place) -> Answer<'_, PathUses> {
        Box::pin(async move {
            let _place = place;
            self.used_paths(question).await
        })
    }

    fn traffic(&self, question: Arc<TrafficQuestion>, place: Place) -> Answer<'_, Traffic> {
        Box::pin(async move {
            let _place = place;
            self.traffic_sums(question).await
        })
    }

    fn rates(&self, parts: (Span, u64, u64), place: Place) -> Answer<'_, RateSpan> {
        Box::pin(async move {
            let _place = place;
            self.rate_span(parts).await
        })
    }

    fn query(&self, request: Request) -> Answer<'_, Vec<u8>> {
        Box::pin(self.user_rows(request))
    }

    /// Connections that were not used lately are closed.
    fn tidy(&self) {
        lock(&self.idle).clear();
    }
}

/// An event, and who has it besides the collector of this row.
#[derive(Debug)]
struct Heard {
    line: EventLine,
    also: Vec<String>,
}

impl Heard {
    /// Another row of this event.
    fn hear(&mut self, twin: EventLine) {
        if twin.collector != self.line.collector && !self.also.contains(&twin.collector) {
            self.also.push(twin.collector);
        }
    }
}

/// Which events.
#[derive(Debug)]
struct Wanted {
    filter: EventFilter,
    condition: Option<Arc<filter::Filter>>,
    from: Option<u64>,
    before: Option<u64>,
    limit: usize,
    /// A further condition.
    only: Option<&'static str>,
}

impl Wanted {
    fn of(filter: EventFilter) -> Self {
        let EventFilter {
            from, before, limit, ..
        } = filter;
        Self {
            filter,
            condition: None,
            from,
            before,
            limit,
            only: None,
        }
    }
}

/// Events of one answer of ClickHouse: some 350 bytes each, and 16 MiB are the most that is read.
const MOST_LINES: usize = 8_192;
/// Two collectors observe the same event at most this long apart, ns: it comes from one report, which both hear. Beyond it, one id is of two
/// events: 64 bits are not unique for ever.
const TWIN: u64 = 10_000_000_000;
/// Time ranges that are searched first for the latest rows: 5 minutes, an hour, 12 hours before the newest.
const WINDOWS: [u64; 3] = [300_000_000_000, 3_600_000_000_000, 43_200_000_000_000];
/// How much longer to wait for the server's own words.
const GRACE: Duration = Duration::from_secs(2);
/// Connections that wait for the next question.
const MAX_IDLE: usize = 4;

//! One partition on its way into a table: executes what a [`Delivery`] wants.

use std::{path::Path, sync::Arc, time::Duration};

use export::{
    Action, Cursor, Delivery, Notice, Outcome, Position, RequestId, Settings,
    outlet::{self, Item, Wanted},
    sink::{Request, clickhouse::ClickHouse},
};
use tokio::{
    sync::watch,
    task::{self, JoinSet},
    time::{self, Instant},
};

use super::{
    super::{Budget, GRACE, Gauge, files::Files, http::Answer, http::Client},
    source::{Found, Source, Topic},
};
use crate::{
    config::{build, export::Destination},
    lock::lock,
};

/// What is known of it before it is read.
pub(super) struct Start {
    pub(super) topic: Topic,
    pub(super) partition: i32,
    pub(super) gauge: Arc<Gauge>,
    pub(super) tables: Arc<ClickHouse>,
    pub(super) destination: Destination,
    pub(super) settings: Settings,
    /// It begins after its last message.
    pub(super) latest: bool,
    pub(super) timeout: Duration,
}

/// See the module.
struct Partition {
    delivery: Delivery<Arc<Item>>,
    /// The way to ClickHouse; `None` while it carries a request.
    client: Option<Client>,
    /// `None` while it is read.
    source: Option<Source>,
    /// Asks for the end of the partition while nothing is read.
    scout: Option<Source>,
    topic: Topic,
    partition: i32,
    files: Files,
    gauge: Arc<Gauge>,
    tables: Arc<ClickHouse>,
    destination: Destination,
    timeout: Duration,
    /// After its last message, and when that was known.
    end: Option<(u64, u64)>,
    /// Where this process began.
    origin: Position,
}

/// What a reader brings back.
enum Read {
    Page(Source, Result<Found, String>),
    End(Source, Option<u64>),
}

/// The way to ClickHouse, and what it said.
type Sent = (RequestId, Client, Result<Answer, String>);

/// A file of cursors belongs to a partition.
pub(super) fn files(directory: &Path, stream: &str, partition: i32, limit: u64) -> Files {
    Files::named(directory, &format!("outlet.{stream}.{partition}"), limit)
}

/// Goes on at the saved cursor until it is stopped.
pub(super) async fn run(start: Start, files: Files, mut stopped: watch::Receiver<bool>) {
    let mut source = Source::new(start.topic.clone(), start.partition);
    let cursor = tokio::select! {
        cursor = begin(&start, &files, &mut source) => cursor,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    let Start { topic, partition, gauge, tables, destination, settings, timeout, .. } = start;
    let delivery = Delivery::new(settings, cursor, build::seed());
    let client = Some(Client::new(destination.clone()));
    let scout = Some(Source::new(topic.clone(), partition));
    let (end, origin) = (None, cursor.settled);
    let all = Partition {
        delivery,
        client,
        source: Some(source),
        scout,
        topic,
        partition,
        files,
        gauge,
        tables,
        destination,
        timeout,
        end,
        origin,
    };
    all.run(stopped).await;
}

/// Where to begin. What a partition had deleted before its first start, nobody misses.
async fn begin(start: &Start, files: &Files, source: &mut Source) -> Cursor {
    loop {
        let found = match files.cursor() {
            Ok(Some(cursor)) => return cursor,
            Ok(None) => source.edge(start.latest).await,
            Err(words) => Err(words),
        };
        let saved = found.and_then(|row| {
            let cursor = outlet::begin(row, random()?);
            files.save(&cursor).map(|()| cursor)
        });
        match saved {
            Ok(cursor) => return cursor,
            Err(words) => start.gauge.fails(Some(words)),
        }
        time::sleep(AGAIN).await;
    }
}

/// Each log has a number of its own.
fn random() -> Result<u64, String> {
    getrandom::u64().map_err(|error| format!("no random numbers: {error}"))
}

impl Partition {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let (mut sending, mut reading) = (JoinSet::new(), JoinSet::new());
        let mut stopping = false;
        loop {
            let now = nic::time::now();
            while let Some(action) = self.delivery.poll(now) {
                self.execute(action, &mut sending, &mut reading);
            }
            self.look_at_end(now, &mut reading);
            self.report();
            if self.delivery.is_stopped() {
                return;
            }
            let rest = self.delivery.wake_at().map_or(LONGEST_REST, |at| {
                Duration::from_nanos(at.saturating_sub(nic::time::now())).min(LONGEST_REST)
            });
            tokio::select! {
                Some(sent) = sending.join_next() => self.sent(sent.ok()),
                Some(read) = reading.join_next() => self.read(read.ok()),
                changed = stopped.changed(), if !stopping => {
                    // The sender is gone only when the program ends.
                    stopping = changed.is_err() || *stopped.borrow();
                    if stopping {
                        let grace = u64::try_from(GRACE.as_nanos()).unwrap_or(u64::MAX);
                        self.delivery.stop(nic::time::now(), grace);
                    }
                }
                () = time::sleep(rest) => {}
            }
        }
    }

    fn execute(&mut self, action: Action, sending: &mut JoinSet<Sent>, reading: &mut JoinSet<Read>) {
        let now = nic::time::now();
        match action {
            Action::Read { from, until, records, bytes } => match (self.source.take(), random()) {
                (Some(source), Ok(random)) => {
                    let wanted = Wanted { from, until, records, bytes, random };
                    reading.spawn(read(source, wanted));
                }
                (source, Err(words)) => {
                    self.source = source;
                    self.delivery.not_read(&words, now);
                }
                (None, Ok(_)) => self.delivery.not_read("the last page has not been read", now),
            },
            Action::Send { request, records } => self.send(request, &records, sending),
            Action::Reject { record, words } => {
                let kept = match self.delivery.batch().get(record) {
                    Some(item) => self.files.keep(&item.rejected(&self.topic.name, self.partition, &words)),
                    None => Err("the message is not in memory".to_owned()),
                };
                self.delivery.kept(kept, now);
            }
            Action::Save(cursor) => {
                let saved = self.files.save(&cursor);
                self.delivery.saved(saved, now);
            }
        }
    }

    /// While nothing is read, the end of the partition moves on.
    fn look_at_end(&mut self, now: u64, reading: &mut JoinSet<Read>) {
        let is_old = self.end.is_none_or(|(_, at)| now.saturating_sub(at) >= END_AGE);
        if is_old && let Some(mut scout) = self.scout.take() {
            // Asked once in a while, also if it fails.
            self.end = Some((self.end.map_or(self.origin.row, |(end, _)| end), now));
            reading.spawn(async move {
                let end = scout.edge(true).await;
                Read::End(scout, end.ok())
            });
        }
    }

    /// `None`: the reader panicked.
    fn read(&mut self, read: Option<Read>) {
        let now = nic::time::now();
        match read {
            None => {
                let new = || Source::new(self.topic.clone(), self.partition);
                self.scout.get_or_insert_with(new);
                self.source.get_or_insert_with(new);
                self.delivery.not_read("reading failed", now);
            }
            Some(Read::Page(source, found)) => {
                self.source = Some(source);
                match found {
                    Ok(found) => self.page(found, now),
                    Err(words) => self.delivery.not_read(&words, now),
                }
            }
            // If it is not known, the next page says why.
            Some(Read::End(scout, end)) => {
                self.scout = Some(scout);
                self.end = end.map(|end| (end, now)).or(self.end);
            }
        }
    }

    fn page(&mut self, found: Found, now: u64) {
        let Found { page, restarted, end } = found;
        if restarted {
            lock(&self.gauge.state).restarted += 1;
            let (topic, partition) = (&*self.topic.name, self.partition);
            tracing::warn!(
                topic,
                partition,
                "the partition begins anew; what it had and was not read is not known"
            );
        }
        self.end = end.map(|end| (end, now)).or(self.end);
        self.delivery.page(page, now);
    }

    fn send(&mut self, id: RequestId, records: &[usize], sending: &mut JoinSet<Sent>) {
        let now = nic::time::now();
        let Some(mut client) = self.client.take() else {
            let words = "the last request has not ended".to_owned();
            return self.delivery.answer(id, Outcome::Failed { words, retry_after: None }, now);
        };
        let batch = self.delivery.batch();
        let items = records.iter().filter_map(|index| batch.get(*index).cloned());
        let items: Vec<Arc<Item>> = items.collect();
        let good = batch.iter().filter(|item| item.content.is_ok()).count();
        let ends = items.first().zip(items.last()).map(|(first, last)| (first.offset, last.offset));
        let part = ends.filter(|_| items.len() < good);
        let token = outlet::token(&self.topic.name, self.partition, &self.delivery.cursor(), part);
        let (tables, stream) = (Arc::clone(&self.tables), self.topic.stream);
        let deadline = Instant::now() + self.timeout;
        sending.spawn(async move {
            let request = move || -> Request {
                let rows: Vec<_> = items.iter().filter_map(|item| item.content.as_ref().ok()).collect();
                tables.insert(stream, rows.into_iter(), &token)
            };
            let answer = match task::spawn_blocking(request).await {
                Err(_) => Err("the request cannot be made".to_owned()),
                Ok(request) => match time::timeout_at(deadline, client.send(&Arc::new(request))).await {
                    Ok(answer) => answer,
                    Err(_) => Err("the server does not answer in time".to_owned()),
                },
            };
            (id, client, answer)
        });
    }

    fn sent(&mut self, sent: Option<Sent>) {
        let now = nic::time::now();
        let Some((id, client, answer)) = sent else {
            // It panicked: the time limit sends again.
            self.client = Some(Client::new(self.destination.clone()));
            return;
        };
        self.client = Some(client);
        let outcome = match answer {
            Ok(answer) => ClickHouse::answered(&answer.response()),
            Err(words) => Outcome::Failed { words, retry_after: None },
        };
        self.delivery.answer(id, outcome, now);
    }

    /// Shows what became of the messages, and logs what people should read.
    fn report(&mut self) {
        let (stream, partition) = (self.topic.stream.name(), self.partition);
        for notice in self.delivery.notices() {
            match notice {
                Notice::Recovered { .. } => tracing::info!(export = "outlet", stream, partition, "{notice}"),
                _ => tracing::warn!(export = "outlet", stream, partition, "{notice}"),
            }
        }
        let ledger = self.delivery.ledger();
        let mut state = lock(&self.gauge.state);
        if let Some((end, at)) = self.end {
            let settled = self.delivery.cursor().settled;
            state.waiting = end.saturating_sub(settled.row);
            state.counted = at;
            state.oldest = self.delivery.batch().first().map(|item| item.ts);
            let unread = state.waiting.saturating_sub(self.delivery.ahead());
            let passed = ledger.read + ledger.left_out + ledger.expired + unread;
            state.budget = Budget {
                // From the offsets, where these can be compared; else by what is counted here.
                into: if settled.file == self.origin.file {
                    end.saturating_sub(self.origin.row).max(passed)
                } else {
                    passed
                },
                out: ledger.delivered + ledger.left_out,
                rejected: ledger.rejected.saturating_sub(ledger.unwritten),
                unwritten: ledger.unwritten,
                expired: ledger.expired,
                shed: 0,
                queued: ledger.held + unread,
            };
        }
        state.ledger = ledger;
        state.last_success = self.delivery.last_success();
        if state.last_error.as_deref() != self.delivery.last_error() {
            state.last_error = self.delivery.last_error().map(str::to_owned);
        }
    }
}

async fn read(mut source: Source, wanted: Wanted) -> Read {
    let found = source.read(wanted).await;
    Read::Page(source, found)
}

const LONGEST_REST: Duration = Duration::from_secs(1);
/// The end of a partition is asked for if it is older than this.
const END_AGE: u64 = 3_000_000_000;
/// Pause before the beginning of a partition is looked for again.
const AGAIN: Duration = Duration::from_secs(2);

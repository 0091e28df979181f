//! The task of one partition of an outlet: reads messages from Kafka and inserts them into ClickHouse, by a [`Delivery`].

use std::{path::Path, sync::Arc, time::Duration};

use export::{
    Cursor, Delivery, Outcome, Position, RequestId, Settings,
    outlet::{self, COPIES_PER_PAGE, Item, MAX_OVERSHOOT},
    sink::clickhouse::ClickHouse,
};
use tokio::{
    sync::watch,
    task,
    time::{self, Instant},
};

use super::{
    super::{
        ExportStatus, budget, clock_time,
        drive::{ReadRequest, Route, Tasks, drive},
        files::Files,
        http::{message, response},
    },
    source::{ReadPage, Source, Topic},
    space::{Reservation, Space},
};
use net::{
    destination::Destination,
    http::{Answer, Client},
};
use runtime::lock::lock;

/// Age after which the end of a partition is refreshed, ns.
const END_AGE: u64 = 3_000_000_000;
/// Pause before the start of a partition is determined again.
const AGAIN: Duration = Duration::from_secs(2);

/// Everything that a partition needs before its cursor is known.
pub(super) struct Start {
    pub(super) topic: Topic,
    pub(super) partition: i32,
    pub(super) status: Arc<ExportStatus>,
    pub(super) tables: Arc<ClickHouse>,
    pub(super) destination: Destination,
    pub(super) settings: Settings,
    /// Without a cursor, start after the last message.
    pub(super) latest: bool,
    pub(super) timeout: Duration,
    /// Memory for batches and requests of all partitions.
    pub(super) space: Space,
}

/// A partition, with its messages in memory.
struct Partition {
    delivery: Delivery<Arc<Item>>,
    /// The client for ClickHouse, or `None` while a request is in flight.
    client: Option<Client>,
    /// The reader, or `None` while it is reading.
    source: Option<Source>,
    /// A second reader, which asks for the end of the partition while nothing is read.
    scout: Option<Source>,
    topic: Topic,
    partition: i32,
    files: Arc<Files>,
    status: Arc<ExportStatus>,
    tables: Arc<ClickHouse>,
    destination: Destination,
    timeout: Duration,
    /// The offset after the last message, and the time at which it was known, ns.
    end: Option<(u64, u64)>,
    /// The position at which this process started.
    origin: Position,
    space: Space,
    /// The memory reserved for batches and their requests.
    reservation: Option<Reservation>,
}

/// The result of a read: a page, or the end of the partition.
pub(super) enum Read {
    Page(Source, Result<(ReadPage, Reservation), String>),
    End(Source, Option<u64>),
}

/// The result of an insert: the client, and its answer.
type Sent = (RequestId, Client, Result<Answer, String>);

/// Returns the files of a partition's cursor and rejected messages.
pub(super) fn files(directory: &Path, stream: &str, partition: i32, limit: u64) -> Files {
    Files::named(directory, &format!("outlet.{stream}.{partition}"), limit)
}

/// Continues at the saved cursor until it is stopped.
pub(super) async fn run(start: Start, files: Files, mut stopped: watch::Receiver<bool>) {
    let mut source = Source::new(start.topic.clone(), start.partition);
    let cursor = tokio::select! {
        cursor = begin(&start, &files, &mut source) => cursor,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    let delivery = Delivery::new(start.settings, cursor, runtime::host::seed());
    let client = Some(Client::new(start.destination.clone()));
    let scout = Some(Source::new(start.topic.clone(), start.partition));
    let mut route = Partition {
        delivery,
        client,
        source: Some(source),
        scout,
        topic: start.topic,
        partition: start.partition,
        files: Arc::new(files),
        status: start.status,
        tables: start.tables,
        destination: start.destination,
        timeout: start.timeout,
        end: None,
        origin: cursor.settled,
        space: start.space,
        reservation: None,
    };
    drive(&mut route, stopped).await;
}

/// Returns the start cursor, retrying until it is known. Messages deleted before the first start do not count as lost.
async fn begin(start: &Start, files: &Files, source: &mut Source) -> Cursor {
    loop {
        let edge = match files.cursor() {
            Ok(Some(cursor)) => return cursor,
            Ok(None) => source.edge(start.latest).await,
            Err(words) => Err(words),
        };
        let saved = edge.and_then(|offset| {
            let cursor = outlet::begin(offset, random()?);
            files.save(&cursor).map(|()| cursor)
        });
        match saved {
            Ok(cursor) => return cursor,
            Err(words) => start.status.fails(Some(words)),
        }
        time::sleep(AGAIN).await;
    }
}

/// Returns a random number, which identifies an incarnation of a partition's log.
fn random() -> Result<u64, String> {
    getrandom::u64().map_err(|error| format!("no random numbers: {error}"))
}

impl Partition {
    /// Refreshes the end of the partition at intervals, even while nothing is read.
    fn look_at_end(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        let is_old = self.end.is_none_or(|(_, at)| now.saturating_sub(at) >= END_AGE);
        if is_old && let Some(mut scout) = self.scout.take() {
            // Set the time first, so that a failure is not retried at once.
            self.end = Some((self.end.map_or(self.origin.row, |(end, _)| end), now));
            tasks.reading.spawn(async move {
                let end = scout.edge(true).await;
                Read::End(scout, end.ok())
            });
        }
    }

    /// Passes a page that was read to the delivery, with the memory reserved for it.
    fn page(&mut self, read_page: ReadPage, space: Reservation, now: u64) {
        let ReadPage { page, restarted, end } = read_page;
        match &mut self.reservation {
            Some(reservation) => reservation.add(space),
            empty => *empty = Some(space),
        }
        if restarted {
            lock(&self.status.state).restarted += 1;
            tracing::warn!(
                topic = &*self.topic.name,
                partition = self.partition,
                "the partition was recreated; the number of its unread messages is unknown"
            );
        }
        self.end = end.map(|end| (end, now)).or(self.end);
        self.delivery.page(page, now);
    }

    /// Publishes the counters, and logs notices.
    fn show(&mut self) {
        let ledger = self.status.publish(&mut self.delivery);
        self.reservation
            .iter_mut()
            .for_each(|reservation| reservation.shrink(COPIES_PER_PAGE * self.delivery.bytes()));
        let mut state = lock(&self.status.state);
        state.memory = self.reservation.as_ref().map_or(0, Reservation::bytes);
        let Some((end, at)) = self.end else { return };
        let settled = self.delivery.cursor().settled;
        state.waiting = end.saturating_sub(settled.row);
        state.counted = clock_time(at);
        state.oldest = self.delivery.batch().first().map(|item| item.ts);
        let unread = state.waiting.saturating_sub(self.delivery.ahead());
        let passed = ledger.read + ledger.left_out + ledger.expired + unread;
        // Use the offsets as long as the log is the same, and otherwise the counts of this process.
        let is_comparable = settled.file == self.origin.file;
        let into = if is_comparable {
            end.saturating_sub(self.origin.row).max(passed)
        } else {
            passed
        };
        state.budget = budget(into, &ledger, 0, unread);
    }
}

impl Route for Partition {
    type Record = Arc<Item>;
    type Sent = Sent;
    type Read = Read;

    fn delivery(&mut self) -> &mut Delivery<Arc<Item>> {
        &mut self.delivery
    }

    fn begin_read(&mut self, wanted: ReadRequest, tasks: &mut Tasks<Self>) {
        let ReadRequest {
            from,
            until,
            records,
            bytes,
        } = wanted;
        let now = nic::time::monotonic();
        let random = match random() {
            Ok(random) => random,
            Err(words) => return self.delivery.read_failed(&words, now),
        };
        match self.source.take() {
            Some(source) => {
                let request = outlet::PageRequest {
                    from,
                    until,
                    records,
                    bytes,
                    random,
                };
                tasks.reading.spawn(read(source, request, self.space.clone()));
            }
            None => self.delivery.read_failed("the last page has not been read", now),
        }
    }

    fn read(&mut self, read: Option<Read>) {
        let now = nic::time::monotonic();
        match read {
            None => {
                for source in [&mut self.scout, &mut self.source] {
                    source.get_or_insert_with(|| Source::new(self.topic.clone(), self.partition));
                }
                self.delivery.read_failed("reading failed", now);
            }
            Some(Read::Page(source, result)) => {
                self.source = Some(source);
                match result {
                    Ok((page, space)) => self.page(page, space, now),
                    Err(words) => self.delivery.read_failed(&words, now),
                }
            }
            // If the end is unknown, the next page reports why.
            Some(Read::End(scout, end)) => {
                self.scout = Some(scout);
                self.end = end.map(|end| (end, now)).or(self.end);
            }
        }
    }

    fn begin_send(&mut self, id: RequestId, records: Vec<usize>, tasks: &mut Tasks<Self>) {
        let now = nic::time::monotonic();
        let Some(mut client) = self.client.take() else {
            let outcome = Outcome::failed("the last request has not ended");
            return self.delivery.answer(id, outcome, now);
        };
        let batch = self.delivery.batch();
        let items = records.iter().filter_map(|index| batch.get(*index).cloned());
        let items: Vec<Arc<Item>> = items.collect();
        let readable = batch.iter().filter(|item| item.content.is_ok()).count();
        let ends = items
            .first()
            .zip(items.last())
            .map(|(first, last)| (first.offset, last.offset));
        let part = ends.filter(|_| items.len() < readable);
        let token = outlet::token(&self.topic.name, self.partition, &self.delivery.cursor(), part);
        let tables = Arc::clone(&self.tables);
        let stream = self.topic.stream;
        let deadline = Instant::now() + self.timeout;
        tasks.sending.spawn(async move {
            let request = task::spawn_blocking(move || {
                let rows: Vec<_> = items
                    .iter()
                    .filter_map(|item| item.content.as_ref().ok())
                    .collect();
                tables.insert(stream, rows.into_iter(), &token)
            });
            let answer = match request.await {
                Err(_) => Err("the request cannot be made".to_owned()),
                Ok(request) => {
                    match time::timeout_at(deadline, client.send(message(&Arc::new(request)))).await {
                        Ok(answer) => answer,
                        Err(_) => Err("the server does not answer in time".to_owned()),
                    }
                }
            };
            (id, client, answer)
        });
    }

    fn sent(&mut self, sent: Option<Sent>, _tasks: &mut Tasks<Self>) {
        let now = nic::time::monotonic();
        let Some((id, client, answer)) = sent else {
            // The task panicked: the delivery lets the request time out, and sends again.
            self.client = Some(Client::new(self.destination.clone()));
            return;
        };
        self.client = Some(client);
        let outcome = match answer {
            Ok(answer) => ClickHouse::answered(&response(&answer)).explained(&answer.host, answer.status),
            Err(words) => Outcome::failed(words),
        };
        self.delivery.answer(id, outcome, now);
    }

    fn cursor_files(&self) -> Option<Arc<Files>> {
        Some(Arc::clone(&self.files))
    }

    fn rejected(&self, record: usize, words: &str) -> Option<(Arc<Files>, Vec<u8>)> {
        let item = self.delivery.batch().get(record)?;
        Some((
            Arc::clone(&self.files),
            item.rejected(&self.topic.name, self.partition, words),
        ))
    }

    fn report(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        self.look_at_end(now, tasks);
        self.show();
    }
}

/// Reads a page once there is memory for it and its request. A batch sent before a restart may exceed the current limit.
async fn read(mut source: Source, request: outlet::PageRequest, space: Space) -> Read {
    let reservation = space.get(COPIES_PER_PAGE * (request.bytes + MAX_OVERSHOOT)).await;
    let result = match reservation {
        Ok(reservation) => source.read(request).await.map(|page| (page, reservation)),
        Err(words) => Err(words),
    };
    Read::Page(source, result)
}

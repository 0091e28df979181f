//! The task that exports one stream to one system: executes a [`Delivery`]'s actions by a [`Reader`] and an [`ExportLink`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use export::{
    Cursor, Delivery, Ledger, Outcome, Repeats, RequestId, Settings as DeliverySettings,
    record::{Record, Stream},
    sink::Batch,
};
use store::{Follower, StreamPosition};
use tokio::{
    sync::watch,
    task::{self, JoinHandle, JoinSet},
    time::{self, Instant},
};

use super::Silences;
use super::{
    Budget, ExportStatus, Reading,
    answered::{Answered, Failure},
    budget,
    drive::{ReadRequest, Route, Tasks, drive},
    files::{self, Files},
    link::ExportLink,
    reader::{PreparedRequest, ReadPage, Reader},
    records,
    spool::{HopSpool, SpoolFiles},
};
use crate::settings::{ExportSettings, ExportStart};
use runtime::lock::lock;

/// Interval between counts of waiting records, ns.
const COUNT_INTERVAL: u64 = 1_000_000_000;

/// The exporter of one stream of one export.
#[derive(Debug)]
pub(super) struct Exporter {
    delivery: Delivery<Record>,
    /// The link to the system, or `None` while a request is in flight.
    link: Option<ExportLink>,
    /// The reader of records, or `None` while it is reading.
    reader: Option<Reader>,
    /// Size of the last request, bytes.
    request_bytes: usize,
    /// The request for the next batch, encoded while the last one is in flight.
    prepared: Option<PreparedRequest>,
    files: Arc<Files>,
    /// The spool of hops, for the stream that is not stored.
    spool: Option<Arc<HopSpool>>,
    /// Alerts that must be sent again while they fire.
    repeats: Option<Repeats>,
    /// The request in flight repeats alerts.
    is_repeating: bool,
    /// A request that waits until the repeat has finished.
    waiting: Option<(RequestId, Vec<usize>)>,
    /// Silences whose alerts are omitted.
    silences: Option<Arc<dyn Silences>>,
    status: Arc<ExportStatus>,
    directory: PathBuf,
    collector: Arc<str>,
    timeout: Duration,
    /// Monotonic time of the last count of waiting records, ns.
    last_count_ns: u64,
    /// A second follower, which reads only the end of the store while `reader` is busy.
    end_reader: Follower,
    arrivals: Option<Arrivals>,
    /// The end of a re-exported time range, for which no cursor is saved.
    until: Option<StreamPosition>,
}

/// A request that is in flight.
#[derive(Debug)]
struct InFlight {
    /// The delivery's request, or `None` for a repeat of alerts.
    id: Option<RequestId>,
    /// Indices of the records in the batch.
    records: Vec<usize>,
    /// Time at which the request fails without an answer.
    deadline: Instant,
}

/// The reader, and the page that it read.
type ReadResult = (Reader, Result<ReadPage, String>);

/// The result of sending.
pub(super) struct SendResult {
    request: InFlight,
    link: ExportLink,
    sent: Result<(), Failure>,
}

/// The number of records that arrived up to an end of the store.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    end: StreamPosition,
    records: u64,
}

impl Arrivals {
    /// Returns the records that arrived up to `end`: the last number plus the growth of the store's row count. If that count
    /// was reset or fell because files were deleted, returns the number of records accounted for.
    fn up_to(last: Option<Self>, end: StreamPosition, accounted: u64) -> Self {
        let records = match last {
            Some(last) if last.end.base == end.base && last.end.row <= end.row => {
                last.records + (end.row - last.end.row)
            }
            _ => accounted,
        };
        Self { end, records }
    }
}

/// The source of records.
pub(super) struct Origin<'a> {
    /// Directory of the store.
    pub(super) directory: &'a Path,
    /// The name of the collector.
    pub(super) collector: String,
    /// Silences, if this export notifies people of alerts.
    pub(super) silences: Option<Arc<dyn Silences>>,
}

impl Exporter {
    /// Creates an exporter that continues at the saved cursor.
    ///
    /// # Errors
    /// The cursor or the store is unreadable.
    pub(super) fn new(
        link: ExportLink,
        settings: &ExportSettings,
        origin: Origin<'_>,
        status: ExportStatus,
        reading: &Reading,
    ) -> Result<Self, String> {
        let directory = origin.directory;
        let files = Files::new(directory, &status.export, status.stream, settings.rejected.0);
        let collector: Arc<str> = origin.collector.into();
        let spool = open_spool(directory, &status, reading)?;
        let mut reader = Reader::new(directory, status.stream, Arc::clone(&collector), link.sink());
        reader.read_hops(spool.clone());
        reader.set_silences(origin.silences.clone());
        let (cursor, until) = match reading {
            Reading::Range { from, to } => {
                let end = end_of_range(&mut reader, *to)?;
                (cursor_at(&mut reader, *from)?, Some(end))
            }
            Reading::New(_) if spool.is_some() => (files.cursor()?.unwrap_or_default(), None),
            Reading::New(_) => (saved_cursor(&mut reader, &files, settings.start)?, None),
        };
        if let Some(end) = until {
            reader.end_at(end);
        }
        let mut delivery = DeliverySettings {
            bytes: status.share.batch,
            ..settings.delivery()
        };
        if until.is_some() {
            // Nothing more will arrive, so do not wait for a batch to fill.
            delivery.linger = 0;
        }
        // Alerts of a past range must not be repeated.
        let sink = if until.is_none() { link.sink() } else { None };
        let repeats = sink.and_then(|sink| sink.repeat_interval()).map(Repeats::new);
        Ok(Self {
            delivery: Delivery::new(delivery, cursor, runtime::host::seed()),
            link: Some(link),
            reader: Some(reader),
            request_bytes: 0,
            prepared: None,
            files: Arc::new(files),
            spool,
            repeats,
            is_repeating: false,
            waiting: None,
            silences: origin.silences,
            status: Arc::new(status),
            directory: directory.to_owned(),
            collector,
            timeout: settings.timeout,
            last_count_ns: 0,
            end_reader: Follower::new(directory),
            arrivals: None,
            until,
        })
    }

    pub(super) fn status(&self) -> Arc<ExportStatus> {
        Arc::clone(&self.status)
    }

    fn stream(&self) -> Stream {
        self.status.stream
    }

    /// Returns the records of the batch at these indices, without those that are no longer in it.
    fn records(&self, indices: &[usize]) -> Vec<&Record> {
        let batch = self.delivery.batch();
        indices.iter().filter_map(|index| batch.get(*index)).collect()
    }

    async fn run(mut self, stopped: watch::Receiver<bool>) {
        let spool_task = self.spawn_spool();
        drive(&mut self, stopped).await;
        if let (Some(spool), Some(task)) = (&self.spool, spool_task) {
            spool.queue.close();
            // The task ends once the queue is closed.
            let _ = task.await;
        }
        self.publish_status(nic::time::monotonic());
    }

    fn new_reader(&self) -> Reader {
        let sink = self.link.as_ref().and_then(ExportLink::sink);
        let mut reader = Reader::new(&self.directory, self.stream(), Arc::clone(&self.collector), sink);
        reader.read_hops(self.spool.clone());
        reader.set_silences(self.silences.clone());
        if let Some(end) = self.until {
            reader.end_at(end);
        }
        reader
    }

    /// Starts to move hops between memory and files, on a blocking thread.
    fn spawn_spool(&self) -> Option<JoinHandle<()>> {
        let spool = self.spool.clone()?;
        let status = Arc::clone(&self.status);
        Some(task::spawn_blocking(move || spool.keep(&status.export)))
    }

    /// Repeats firing alerts while no other request is in flight. Failures do not matter, because the next repeat is soon.
    fn repeat(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        let (Some(repeats), Some(_)) = (&mut self.repeats, &self.link) else {
            return;
        };
        let due = repeats.due(now, nic::time::now());
        if due.is_empty() || self.delivery.is_stopped() {
            return;
        }
        let Some(mut link) = self.link.take() else { return };
        let batch = Batch {
            stream: self.stream(),
            records: &due.iter().collect::<Vec<_>>(),
            collector: &self.collector,
        };
        if !link.begin(&batch, None) {
            self.link = Some(link);
            return;
        }
        let request = InFlight {
            id: None,
            records: Vec::new(),
            deadline: Instant::now() + self.timeout,
        };
        self.is_repeating = true;
        spawn_send(link, request, &mut tasks.sending);
    }

    /// Continues with the request that waited for the end of a repeat.
    fn repeated(&mut self, link: ExportLink, sent: Result<(), Failure>, tasks: &mut Tasks<Self>) {
        self.link = Some(link);
        self.is_repeating = false;
        if let Err(failure) = sent {
            let outcome: Outcome = failure.into();
            tracing::debug!(
                ?outcome,
                "alerts that fire were not repeated; that is tried again"
            );
        }
        if let Some((id, indices)) = self.waiting.take() {
            self.begin_send(id, indices, tasks);
        }
    }

    /// Tracks alerts that are about to be sent.
    fn note_alerts(&mut self, records: &[usize]) {
        let Some(repeats) = &mut self.repeats else { return };
        let chosen = records.iter().filter_map(|i| self.delivery.batch().get(*i));
        let left_out = chosen.filter(|record| !repeats.note(record)).count();
        if left_out > 0 {
            let export = &*self.status.export;
            tracing::warn!(
                export,
                left_out,
                "too many alerts fire: the system resolves those that are left out although they still fire"
            );
        }
    }

    /// Publishes the counters, and logs notices.
    fn publish_status(&mut self, now: u64) {
        let ledger = self.status.publish(&mut self.delivery);
        let memory = self.memory();
        let count = now.saturating_sub(self.last_count_ns) >= COUNT_INTERVAL || self.delivery.is_stopped();
        let counted = if count { self.count(&ledger) } else { None };
        let mut state = lock(&self.status.state);
        if let Some((waiting, budget)) = counted {
            self.last_count_ns = now;
            state.waiting = waiting;
            state.counted = nic::time::now();
            state.budget = budget.unwrap_or(state.budget);
            state.shed = state.budget.shed;
            state.oldest = self.delivery.batch().first().map(Record::ts);
        }
        state.memory = memory;
    }

    /// Returns the bytes of batches, requests and hops in memory.
    fn memory(&self) -> usize {
        let spool = self.spool.as_ref().map_or(0, |spool| spool.queue.bytes());
        let prepared = self.prepared.as_ref().map_or(0, PreparedRequest::bytes);
        self.delivery.bytes() + self.request_bytes + prepared + spool
    }

    /// Returns the number of records after the cursor, and the stage of the loss budget, unless the store resets its count.
    fn count(&mut self, ledger: &Ledger) -> Option<(u64, Option<Budget>)> {
        let settled = self.delivery.cursor().settled;
        if let Some(spool) = &self.spool {
            let (waiting, into, shed) = spool.queue.with(|spool| {
                (
                    spool.after(settled),
                    spool.restored() + spool.offered(),
                    spool.refused(),
                )
            });
            let unread = waiting.saturating_sub(self.delivery.ahead());
            return Some((waiting, Some(budget(into, ledger, shed, unread))));
        }
        let settled = records::stream_position(settled);
        let stored = self.stream().stored()?;
        let end = match self.until {
            Some(end) => end,
            // If the end cannot be read, the previous count remains.
            None => self.end_reader.end(stored).ok()?,
        };
        if end.base != settled.base {
            return Some((end.row, None));
        }
        let waiting = end.row.saturating_sub(settled.row);
        let unread = waiting.saturating_sub(self.delivery.ahead());
        let accounted = ledger.read + ledger.left_out + ledger.expired + unread;
        let arrivals = Arrivals::up_to(self.arrivals, end, accounted);
        self.arrivals = Some(arrivals);
        Some((waiting, Some(budget(arrivals.records, ledger, 0, unread))))
    }
}

/// Returns the spool of hops, or `None` for a stream that is stored.
fn open_spool(
    directory: &Path,
    status: &ExportStatus,
    reading: &Reading,
) -> Result<Option<Arc<HopSpool>>, String> {
    if status.stream.stored().is_some() {
        return Ok(None);
    }
    let Reading::New(Some(queue)) = reading else {
        return Err("hops are not stored".to_owned());
    };
    Ok(Some(Arc::new(HopSpool {
        queue: Arc::clone(queue),
        files: SpoolFiles::new(directory, &status.export),
    })))
}

/// Returns the position after the last record of a time range.
fn end_of_range(reader: &mut Reader, to: Option<u64>) -> Result<StreamPosition, String> {
    let end = match to {
        Some(to) => reader.since(to.saturating_add(1)),
        None => reader.end(),
    };
    end.map_err(|error| error.to_string())
}

/// Returns the saved cursor, or the one of an export that begins now.
fn saved_cursor(reader: &mut Reader, files: &Files, start: ExportStart) -> Result<Cursor, String> {
    if let Some(cursor) = files.cursor()? {
        return Ok(cursor);
    }
    match start {
        // By position, so that records deleted before they are sent are counted as expired.
        ExportStart::Oldest => cursor_at(reader, 0),
        ExportStart::Newest => {
            let end = reader.end().map_err(|error| error.to_string())?;
            let cursor = cursor_from(end);
            files.save(&cursor)?;
            Ok(cursor)
        }
    }
}

/// Returns the cursor at the first record of this time or later.
fn cursor_at(reader: &mut Reader, ts: u64) -> Result<Cursor, String> {
    let first = reader.since(ts).map_err(|error| error.to_string())?;
    Ok(cursor_from(first))
}

fn cursor_from(position: StreamPosition) -> Cursor {
    Cursor {
        settled: records::position(position),
        batch_end: None,
    }
}

impl Route for Exporter {
    type Record = Record;
    type Sent = SendResult;
    type Read = ReadResult;

    fn delivery(&mut self) -> &mut Delivery<Record> {
        &mut self.delivery
    }

    fn begin_read(&mut self, wanted: ReadRequest, tasks: &mut Tasks<Self>) {
        let Some(mut reader) = self.reader.take() else {
            return self
                .delivery
                .read_failed("the last page has not been read", nic::time::monotonic());
        };
        tasks.reading.spawn_blocking(move || {
            let found = reader.read(wanted);
            (reader, found)
        });
    }

    fn read(&mut self, read: Option<ReadResult>) {
        let now = nic::time::monotonic();
        let Some((reader, found)) = read else {
            self.reader = Some(self.new_reader());
            return self.delivery.read_failed("reading failed", now);
        };
        self.reader = Some(reader);
        match found {
            Err(error) => self.delivery.read_failed(&error, now),
            Ok(ReadPage {
                page,
                restarted,
                silenced,
                prepared,
            }) => {
                let mut state = lock(&self.status.state);
                state.restarted += u64::from(restarted);
                state.silenced += silenced;
                drop(state);
                if restarted {
                    let export = &*self.status.export;
                    let stream = self.stream().name();
                    tracing::warn!(
                        export,
                        stream,
                        "the store begins its count of records anew; the number of records that were lost unsent is unknown"
                    );
                }
                self.prepared = prepared;
                // The range is finished if nothing was read and nothing is in flight.
                let is_empty = page.records.is_empty() && page.left_out == 0;
                let is_over = self.until.is_some() && is_empty && self.delivery.batch().is_empty();
                self.delivery.page(page, now);
                if is_over {
                    self.delivery.stop(now, 0);
                }
            }
        }
    }

    fn begin_send(&mut self, id: RequestId, indices: Vec<usize>, tasks: &mut Tasks<Self>) {
        let now = nic::time::monotonic();
        if self.is_repeating {
            self.waiting = Some((id, indices));
            return;
        }
        self.note_alerts(&indices);
        let Some(mut link) = self.link.take() else {
            let outcome = Outcome::failed("the last request has not ended");
            return self.delivery.answer(id, outcome, now);
        };
        let is_whole = indices.len() == self.delivery.batch().len();
        let cursor = self.delivery.cursor();
        let prepared = self
            .prepared
            .take_if(|prepared| is_whole && prepared.is_of(cursor, indices.len()));
        let records = self.records(&indices);
        let batch = Batch {
            stream: self.stream(),
            records: &records,
            collector: &self.collector,
        };
        let has_request = link.begin(&batch, prepared.map(PreparedRequest::into_request));
        self.request_bytes = link.bytes();
        if has_request {
            let request = InFlight {
                id: Some(id),
                records: indices,
                deadline: Instant::now() + self.timeout,
            };
            return spawn_send(link, request, &mut tasks.sending);
        }
        self.link = Some(link);
        lock(&self.status.state).left_out += indices.len() as u64;
        self.delivery.answer(id, Outcome::DONE, now);
    }

    /// Processes the result of sending. If the task panicked, there is no result, and the delivery lets the request time out.
    fn sent(&mut self, sent: Option<SendResult>, tasks: &mut Tasks<Self>) {
        let Some(result) = sent else {
            self.is_repeating = false;
            return;
        };
        let request = result.request;
        let mut link = result.link;
        let Some(id) = request.id else {
            return self.repeated(link, result.sent, tasks);
        };
        let records = self.records(&request.records);
        let answered = match result.sent {
            Err(failure) => Answered::done(failure.into()),
            // The answer is late, and its batch has been replaced. The delivery counts it as late.
            Ok(()) if records.len() < request.records.len() => {
                Answered::done(Failure::Passing("too late".to_owned()).into())
            }
            Ok(()) => {
                let batch = Batch {
                    stream: self.stream(),
                    records: &records,
                    collector: &self.collector,
                };
                link.answered(&batch)
            }
        };
        let (outcome, left_out) = match answered {
            Answered::More => return spawn_send(link, request, &mut tasks.sending),
            Answered::Done { outcome, left_out } => (outcome, left_out as u64),
        };
        self.link = Some(link);
        let late = self.delivery.ledger().late;
        self.delivery.answer(id, outcome, nic::time::monotonic());
        if self.delivery.ledger().late == late {
            lock(&self.status.state).left_out += left_out;
        }
    }

    fn cursor_files(&self) -> Option<Arc<Files>> {
        self.until.is_none().then(|| Arc::clone(&self.files))
    }

    fn rejected(&self, record: usize, words: &str) -> Option<(Arc<Files>, Vec<u8>)> {
        let record = self.delivery.batch().get(record)?;
        Some((
            Arc::clone(&self.files),
            files::line(record, &self.collector, words),
        ))
    }

    fn saved(&mut self, cursor: Cursor, now: u64) {
        if let Some(spool) = &self.spool {
            spool.queue.with(|spool| spool.settle(cursor.settled));
        }
        let settled = records::stream_position(cursor.settled);
        if self.until.is_some_and(|end| end <= settled) {
            self.delivery.stop(now, 0);
        }
    }

    fn report(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        self.repeat(now, tasks);
        self.publish_status(now);
    }

    fn is_busy(&self) -> bool {
        self.reader.is_none()
    }
}

fn spawn_send(mut link: ExportLink, request: InFlight, requests: &mut JoinSet<SendResult>) {
    requests.spawn(async move {
        let sent = time::timeout_at(request.deadline, link.send())
            .await
            .unwrap_or_else(|_| Err("the server does not answer in time".to_owned().into()));
        SendResult { request, link, sent }
    });
}

/// Runs all exporters until each has stopped.
pub(super) async fn run_all(exporters: Vec<Exporter>, stopped: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    for exporter in exporters {
        tasks.spawn(exporter.run(stopped.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_counted_by_the_store_and_not_by_the_records_accounted_for() {
        let mut last = None;
        let mut arrivals = |base, row, accounted| {
            let found = Arrivals::up_to(last, StreamPosition { base, row }, accounted);
            last = Some(found);
            found.records
        };
        assert_eq!(arrivals(1, 10, 10), 10);
        // An export that counts a record twice does not make one more arrive.
        assert_eq!(arrivals(1, 14, 15), 14);
        assert_eq!(arrivals(1, 14, 16), 14);
        // Files are gone: the end falls, also to one above the first, or the count begins anew.
        assert_eq!(arrivals(1, 12, 16), 16);
        assert_eq!(arrivals(1, 13, 17), 17);
        assert_eq!(arrivals(9, 13, 20), 20);
        assert_eq!(arrivals(9, 15, 21), 22);
    }
}

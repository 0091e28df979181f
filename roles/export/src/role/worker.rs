//! One stream to one system: executes what a [`Delivery`] wants.

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
    Budget, Gauge, Reading,
    answered::{Answered, Failure},
    budget,
    drive::{ReadRequest, Route, Tasks, drive},
    files::{self, Files},
    link::ExportLink,
    reader::{Ahead, ReadPage, Reader},
    records,
    spool::{Hops, SpoolFiles},
};
use crate::settings::{ExportSettings, ExportStart};
use runtime::lock::lock;

/// One stream of one export.
#[derive(Debug)]
pub(super) struct Exporter {
    delivery: Delivery<Record>,
    /// The way to the system; `None` while it carries a request.
    link: Option<ExportLink>,
    /// `None` while it reads.
    reader: Option<Reader>,
    /// Bytes of the request that was sent last.
    request: usize,
    /// The request of the next batch.
    ahead: Option<Ahead>,
    files: Arc<Files>,
    /// Where records wait that are in no store.
    hops: Option<Arc<Hops>>,
    /// Alerts that are sent again while they fire.
    repeats: Option<Repeats>,
    /// The link carries such a repeat.
    is_repeating: bool,
    /// A request that waits for its end.
    waiting: Option<(RequestId, Vec<usize>)>,
    /// Silences that leave alerts out.
    silences: Option<Arc<dyn Silences>>,
    gauge: Arc<Gauge>,
    directory: PathBuf,
    collector: Arc<str>,
    timeout: Duration,
    counted_at: u64,
    /// Knows where the store ends, also while it is read.
    ends: Follower,
    /// The last end of the store's records, and the records that had come until then.
    counted_end: Option<(StreamPosition, u64)>,
    /// Ends here, and saves no cursor.
    only: Option<StreamPosition>,
}

/// A request that is sent.
#[derive(Debug)]
struct Sending {
    /// `None`: a repeat of alerts, which the delivery does not know.
    id: Option<RequestId>,
    /// Indices in the batch.
    records: Vec<usize>,
    /// There is an outcome until then.
    deadline: Instant,
}

/// A reader that has read.
type Read = (Reader, Result<ReadPage, String>);

/// The result of sending.
pub(super) struct Done {
    sending: Sending,
    link: ExportLink,
    sent: Result<(), Failure>,
}

/// Where records come from.
pub(super) struct Origin<'a> {
    /// Directory of the store.
    pub(super) directory: &'a Path,
    /// The name of the collector.
    pub(super) collector: String,
    /// Silences, if this export notifies people of alerts.
    pub(super) silences: Option<Arc<dyn Silences>>,
}

impl Exporter {
    /// Goes on at the saved cursor.
    ///
    /// # Errors
    /// The cursor or the store cannot be read.
    pub(super) fn new(
        link: ExportLink,
        settings: &ExportSettings,
        origin: Origin<'_>,
        gauge: Gauge,
        reading: &Reading,
    ) -> Result<Self, String> {
        let Origin {
            directory,
            collector,
            silences,
        } = origin;
        let files = Files::new(directory, &gauge.export, gauge.stream, settings.rejected.0);
        let collector: Arc<str> = collector.into();
        let hops = match (gauge.stream.stored(), reading) {
            (Some(_), _) => None,
            (None, Reading::New(Some(queue))) => {
                let files = SpoolFiles::new(directory, &gauge.export);
                Some(Arc::new(Hops {
                    queue: Arc::clone(queue),
                    files,
                }))
            }
            (None, _) => return Err("hops are not stored".to_owned()),
        };
        let mut reader = Reader::new(directory, gauge.stream, Arc::clone(&collector), link.sink());
        reader.read_hops(hops.clone());
        reader.set_silences(silences.clone());
        let mut only = None;
        let cursor = if let Reading::Again(from, to) = *reading {
            let end = match to {
                Some(to) => reader.since(to.saturating_add(1)),
                None => reader.end(),
            };
            only = Some(end.map_err(|error| error.to_string())?);
            Cursor {
                settled: since(&mut reader, from)?,
                batch_end: None,
            }
        } else {
            match (files.cursor()?, settings.start) {
                (Some(cursor), _) => cursor,
                (None, _) if hops.is_some() => Cursor::default(),
                // By its place, so that what is deleted before it is sent can be counted.
                (None, ExportStart::Oldest) => Cursor {
                    settled: since(&mut reader, 0)?,
                    batch_end: None,
                },
                (None, ExportStart::Newest) => {
                    let end = reader.end().map_err(|error| error.to_string())?;
                    let cursor = Cursor {
                        settled: records::position(end),
                        batch_end: None,
                    };
                    files.save(&cursor)?;
                    cursor
                }
            }
        };
        only.iter().for_each(|end| reader.end_at(*end));
        let mut delivery = DeliverySettings {
            bytes: gauge.share.batch,
            ..settings.delivery()
        };
        if only.is_some() {
            // Nothing more comes.
            delivery.linger = 0;
        }
        // A range of the past says nothing about now.
        let sink = if only.is_none() { link.sink() } else { None };
        let repeats = sink.and_then(|sink| sink.repeat_interval()).map(Repeats::new);
        Ok(Self {
            delivery: Delivery::new(delivery, cursor, runtime::host::seed()),
            request: 0,
            link: Some(link),
            reader: Some(reader),
            ahead: None,
            files: Arc::new(files),
            hops,
            repeats,
            is_repeating: false,
            waiting: None,
            silences,
            gauge: Arc::new(gauge),
            directory: directory.to_owned(),
            collector,
            timeout: settings.timeout,
            counted_at: 0,
            ends: Follower::new(directory),
            counted_end: None,
            only,
        })
    }

    pub(super) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    fn stream(&self) -> Stream {
        self.gauge.stream
    }

    async fn run(mut self, stopped: watch::Receiver<bool>) {
        let keeper = self.keep_hops();
        drive(&mut self, stopped).await;
        if let (Some(hops), Some(keeper)) = (&self.hops, keeper) {
            hops.queue.close();
            _ = keeper.await;
        }
        self.show(nic::time::now());
    }

    fn new_reader(&self) -> Reader {
        let sink = self.link.as_ref().and_then(ExportLink::sink);
        let mut reader = Reader::new(&self.directory, self.stream(), Arc::clone(&self.collector), sink);
        self.only.iter().for_each(|end| reader.end_at(*end));
        reader.read_hops(self.hops.clone());
        reader.set_silences(self.silences.clone());
        reader
    }

    /// Begins to keep hops in memory and in files, on a thread that may wait for the disk.
    fn keep_hops(&self) -> Option<JoinHandle<()>> {
        let hops = self.hops.clone()?;
        let gauge = Arc::clone(&self.gauge);
        Some(task::spawn_blocking(move || hops.keep(&gauge.export)))
    }

    /// Sends alerts again that fire, while nothing else is sent. The outcome does not matter: the next repeat comes soon.
    fn repeat(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        let (Some(repeats), Some(_)) = (&mut self.repeats, &self.link) else {
            return;
        };
        let due = repeats.due(now);
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
        let sending = Sending {
            id: None,
            records: Vec::new(),
            deadline: Instant::now() + self.timeout,
        };
        self.is_repeating = true;
        start(link, sending, &mut tasks.sending);
    }

    /// Notes alerts that are about to be sent.
    fn note_alerts(&mut self, records: &[usize]) {
        let Some(repeats) = &mut self.repeats else { return };
        let chosen = records.iter().filter_map(|i| self.delivery.batch().get(*i));
        let left_out = chosen.filter(|record| !repeats.note(record)).count();
        if left_out > 0 {
            let export = &*self.gauge.export;
            tracing::warn!(
                export,
                left_out,
                "too many alerts fire: the system resolves those that are left out although they still fire"
            );
        }
    }

    /// Shows what became of the records, and logs what people should read.
    fn show(&mut self, now: u64) {
        let ledger = self.gauge.show(&mut self.delivery);
        let memory = self.memory();
        let count = now.saturating_sub(self.counted_at) >= COUNT_INTERVAL || self.delivery.is_stopped();
        let counted = if count { self.count(&ledger) } else { None };
        let mut state = lock(&self.gauge.state);
        if let Some((waiting, budget)) = counted {
            self.counted_at = now;
            state.waiting = waiting;
            state.counted = now;
            state.budget = budget.unwrap_or(state.budget);
            state.shed = state.budget.shed;
            state.oldest = self.delivery.batch().first().map(Record::ts);
        }
        state.memory = memory;
    }

    /// Returns the bytes of batches, requests and hops in memory.
    fn memory(&self) -> usize {
        let hops = self.hops.as_ref().map_or(0, |hops| hops.queue.bytes());
        self.delivery.bytes() + self.request + self.ahead.as_ref().map_or(0, Ahead::bytes) + hops
    }

    /// Committed records after the cursor, and the stage of the loss budget (`None`: the store begins its count anew just now).
    fn count(&mut self, ledger: &Ledger) -> Option<(u64, Option<Budget>)> {
        let settled = self.delivery.cursor().settled;
        if let Some(hops) = &self.hops {
            let (waiting, into, shed) = hops.queue.with(|spool| {
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
        let end = match self.only {
            Some(end) => end,
            // What was counted before stands.
            None => self.ends.end(stored).ok()?,
        };
        if end.base != settled.base {
            return Some((end.row, None));
        }
        let waiting = end.row.saturating_sub(settled.row);
        let unread = waiting.saturating_sub(self.delivery.ahead());
        let accounted = ledger.read + ledger.left_out + ledger.expired + unread;
        let came = came(&mut self.counted_end, end, accounted);
        Some((waiting, Some(budget(came, ledger, 0, unread))))
    }
}

/// Returns the position of the first record at this time or later.
fn since(reader: &mut Reader, ts: u64) -> Result<export::Position, String> {
    let position = reader.since(ts).map_err(|error| error.to_string())?;
    Ok(records::position(position))
}

/// Records that have come until `end`. The store's own count says how many came since the last end; where that count begins anew or falls,
/// because files are gone, it is what is accounted for.
fn came(counted: &mut Option<(StreamPosition, u64)>, end: StreamPosition, accounted: u64) -> u64 {
    let came = match counted {
        Some((last, came)) if last.base == end.base && last.row <= end.row => *came + (end.row - last.row),
        _ => accounted,
    };
    *counted = Some((end, came));
    came
}

impl Route for Exporter {
    type Record = Record;
    type Sent = Done;
    type Read = Read;

    fn delivery(&mut self) -> &mut Delivery<Record> {
        &mut self.delivery
    }

    fn begin_read(&mut self, wanted: ReadRequest, tasks: &mut Tasks<Self>) {
        let Some(mut reader) = self.reader.take() else {
            return self
                .delivery
                .not_read("the last page has not been read", nic::time::now());
        };
        tasks.reading.spawn_blocking(move || {
            let found = reader.read(wanted);
            (reader, found)
        });
    }

    fn read(&mut self, read: Option<Read>) {
        let now = nic::time::now();
        let Some((reader, found)) = read else {
            self.reader = Some(self.new_reader());
            return self.delivery.not_read("reading failed", now);
        };
        self.reader = Some(reader);
        match found {
            Err(error) => self.delivery.not_read(&error, now),
            Ok(ReadPage {
                page,
                restarted,
                silenced,
                ahead,
            }) => {
                {
                    let mut state = lock(&self.gauge.state);
                    state.restarted += u64::from(restarted);
                    state.silenced += silenced;
                }
                if restarted {
                    let export = &*self.gauge.export;
                    let stream = self.stream().name();
                    tracing::warn!(
                        export,
                        stream,
                        "the store begins its count of records anew; the number of records that were lost unsent is unknown"
                    );
                }
                self.ahead = ahead;
                // Of a range nothing is left, and nothing is in flight.
                let is_empty = page.records.is_empty() && page.left_out == 0;
                let is_over = self.only.is_some() && is_empty && self.delivery.batch().is_empty();
                self.delivery.page(page, now);
                if is_over {
                    self.delivery.stop(now, 0);
                }
            }
        }
    }

    fn begin_send(&mut self, id: RequestId, records: Vec<usize>, tasks: &mut Tasks<Self>) {
        let now = nic::time::now();
        if self.is_repeating {
            self.waiting = Some((id, records));
            return;
        }
        self.note_alerts(&records);
        let Some(mut link) = self.link.take() else {
            let outcome = Outcome::failed("the last request has not ended");
            return self.delivery.answer(id, outcome, now);
        };
        let chosen: Vec<&Record> = records
            .iter()
            .filter_map(|i| self.delivery.batch().get(*i))
            .collect();
        let batch = Batch {
            stream: self.stream(),
            records: &chosen,
            collector: &self.collector,
        };
        let is_whole = records.len() == self.delivery.batch().len();
        let cursor = self.delivery.cursor();
        let ahead = self
            .ahead
            .take_if(|ahead| is_whole && ahead.is_of(cursor, records.len()));
        let is_something = link.begin(&batch, ahead.map(Ahead::into_request));
        self.request = link.bytes();
        if is_something {
            let deadline = Instant::now() + self.timeout;
            return start(
                link,
                Sending {
                    id: Some(id),
                    records,
                    deadline,
                },
                &mut tasks.sending,
            );
        }
        self.link = Some(link);
        lock(&self.gauge.state).left_out += records.len() as u64;
        self.delivery.answer(id, Outcome::DONE, now);
    }

    /// A task that panicked is one whose time is over.
    fn sent(&mut self, sent: Option<Done>, tasks: &mut Tasks<Self>) {
        let Some(Done {
            sending,
            mut link,
            sent,
        }) = sent
        else {
            self.is_repeating = false;
            return;
        };
        let Sending { id, records, .. } = &sending;
        let Some(id) = id else {
            self.link = Some(link);
            self.is_repeating = false;
            if let Err(failure) = sent {
                let outcome: Outcome = failure.into();
                tracing::debug!(
                    ?outcome,
                    "alerts that fire were not repeated; that is tried again"
                );
            }
            if let Some((id, records)) = self.waiting.take() {
                self.begin_send(id, records, tasks);
            }
            return;
        };
        let chosen: Vec<&Record> = records
            .iter()
            .filter_map(|i| self.delivery.batch().get(*i))
            .collect();
        let answered = match sent {
            Err(failure) => Answered::done(failure.into()),
            // It came too late: other records are in memory, and the delivery counts it.
            Ok(()) if chosen.len() < records.len() => {
                Answered::done(Failure::Passing("too late".to_owned()).into())
            }
            Ok(()) => {
                let batch = Batch {
                    stream: self.stream(),
                    records: &chosen,
                    collector: &self.collector,
                };
                link.answered(&batch)
            }
        };
        let (outcome, left_out) = match answered {
            Answered::More => return start(link, sending, &mut tasks.sending),
            Answered::Done { outcome, left_out } => (outcome, left_out as u64),
        };
        self.link = Some(link);
        let late = self.delivery.ledger().late;
        self.delivery.answer(*id, outcome, nic::time::now());
        if self.delivery.ledger().late == late {
            lock(&self.gauge.state).left_out += left_out;
        }
    }

    fn cursor_files(&self) -> Option<Arc<Files>> {
        self.only.is_none().then(|| Arc::clone(&self.files))
    }

    fn rejected(&self, record: usize, words: &str) -> Option<(Arc<Files>, Vec<u8>)> {
        let record = self.delivery.batch().get(record)?;
        Some((
            Arc::clone(&self.files),
            files::line(record, &self.collector, words),
        ))
    }

    fn saved(&mut self, cursor: Cursor, now: u64) {
        if let Some(hops) = &self.hops {
            hops.queue.with(|spool| spool.settle(cursor.settled));
        }
        if self
            .only
            .is_some_and(|end| end <= records::stream_position(cursor.settled))
        {
            self.delivery.stop(now, 0);
        }
    }

    fn report(&mut self, now: u64, tasks: &mut Tasks<Self>) {
        self.repeat(now, tasks);
        self.show(now);
    }

    fn is_busy(&self) -> bool {
        self.reader.is_none()
    }
}

fn start(mut link: ExportLink, sending: Sending, requests: &mut JoinSet<Done>) {
    requests.spawn(async move {
        let sent = time::timeout_at(sending.deadline, link.send())
            .await
            .unwrap_or_else(|_| Err("the server does not answer in time".to_owned().into()));
        Done { sending, link, sent }
    });
}

/// Runs until each has stopped.
pub(super) async fn run_all(exporters: Vec<Exporter>, stopped: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    for exporter in exporters {
        tasks.spawn(exporter.run(stopped.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

/// Time between two counts of what waits.
const COUNT_INTERVAL: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_counted_by_the_store_and_not_by_what_is_accounted_for() {
        let end = |base, row| StreamPosition { base, row };
        let mut counted = None;
        assert_eq!(came(&mut counted, end(1, 10), 10), 10);
        // An export that counts a record twice does not make one more come.
        assert_eq!(came(&mut counted, end(1, 14), 15), 14);
        assert_eq!(came(&mut counted, end(1, 14), 16), 14);
        // Files are gone: the end falls, also to one above the first, or the count begins anew.
        assert_eq!(came(&mut counted, end(1, 12), 16), 16);
        assert_eq!(came(&mut counted, end(1, 13), 17), 17);
        assert_eq!(came(&mut counted, end(9, 13), 20), 20);
        assert_eq!(came(&mut counted, end(9, 15), 21), 22);
    }
}

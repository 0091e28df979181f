//! One stream to one system: executes what a [`Delivery`] wants.

use std::{path::Path, sync::Arc, time::Duration};

use export::{
    Action, Cursor, Delivery, Ledger, Notice, Outcome, Page, RequestId,
    record::{Record, Stream},
    sink::Batch,
};
use store::{Chunk, Follower, Place};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{self, Instant},
};

use super::{
    Budget, GRACE, Gauge,
    answered::{Answered, Failure},
    files::Files,
    link::Link,
    records,
};
use crate::{
    config::{
        build,
        export::{ExportSettings, ExportStart},
    },
    host,
    lock::lock,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Exporter {
    delivery: Delivery<Record>,
    /// The way to the system; `None` while it carries a request.
    link: Option<Link>,
    follower: Follower,
    files: Files,
    gauge: Arc<Gauge>,
    collector: String,
    timeout: Duration,
    counted_at: u64,
    /// The count of the store's records, and what was in it before this process.
    origin: Option<(u64, u64)>,
    /// Ends here, and saves no cursor.
    only: Option<Place>,
}

/// A request that is sent.
#[derive(Debug)]
struct Sending {
    id: RequestId,
    /// Indices in the batch.
    records: Vec<usize>,
    /// There is an outcome until then.
    deadline: Instant,
}

/// What it brought back.
struct Done {
    sending: Sending,
    link: Link,
    sent: Result<(), Failure>,
}

impl Exporter {
    /// Goes on at the saved cursor.
    ///
    /// # Errors
    /// The cursor or the store cannot be read.
    pub(super) fn new(
        link: Link,
        settings: &ExportSettings,
        directory: &Path,
        (gauge, range): (Gauge, Option<(u64, Option<u64>)>),
    ) -> Result<Self, String> {
        let files = Files::new(directory, &gauge.export, gauge.stream, settings.rejected.0);
        let mut follower = Follower::new(directory);
        let stream = gauge.stream.stored();
        let at = |place: Result<Place, store::Error>| place.map_err(|error| error.to_string());
        let mut only = None;
        let cursor = if let Some((from, to)) = range {
            only = Some(match to {
                Some(to) => at(follower.since(stream, to.saturating_add(1)))?,
                None => at(follower.end(stream))?,
            });
            Cursor { settled: records::position(at(follower.since(stream, from))?), batch_end: None }
        } else {
            match (files.cursor()?, settings.start) {
                (Some(cursor), _) => cursor,
                (None, ExportStart::Oldest) => Cursor::default(),
                (None, ExportStart::Newest) => {
                    let end = at(follower.end(stream))?;
                    let cursor = Cursor { settled: records::position(end), batch_end: None };
                    files.save(&cursor)?;
                    cursor
                }
            }
        };
        Ok(Self {
            delivery: Delivery::new(settings.delivery(), cursor, build::seed()),
            link: Some(link),
            follower,
            files,
            gauge: Arc::new(gauge),
            collector: Some(host::name())
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| "hopwise".to_owned()),
            timeout: settings.timeout,
            counted_at: 0,
            origin: None,
            only,
        })
    }

    pub(super) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    fn stream(&self) -> Stream {
        self.gauge.stream
    }

    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut sending = JoinSet::new();
        let mut stopping = false;
        loop {
            let now = nic::time::now();
            while let Some(action) = self.delivery.poll(now) {
                self.execute(action, &mut sending);
            }
            self.report(nic::time::now());
            if self.delivery.is_stopped() {
                return;
            }
            let rest = self.delivery.wake_at().map_or(LONGEST_REST, |at| {
                Duration::from_nanos(at.saturating_sub(nic::time::now())).min(LONGEST_REST)
            });
            tokio::select! {
                Some(done) = sending.join_next() => {
                    if let Ok(done) = done {
                        self.done(done, &mut sending);
                    }
                }
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

    fn execute(&mut self, action: Action, sending: &mut JoinSet<Done>) {
        let now = nic::time::now();
        match action {
            Action::Read { from, until, records, bytes } => {
                let (from, until) = (records::place(from), until.map(records::place));
                match self.read(from, until, records, bytes) {
                    Err(error) => self.delivery.not_read(&error.to_string(), now),
                    Ok(chunk) => {
                        lock(&self.gauge.state).restarted += u64::from(chunk.restarted);
                        let page = self.page(chunk);
                        let is_over = self.only.is_some() && page.records.is_empty() && page.left_out == 0;
                        self.delivery.page(page, now);
                        if is_over {
                            self.delivery.stop(now, 0);
                        }
                    }
                }
            }
            Action::Send { request, records } => self.send(request, records, sending),
            Action::Reject { record, words } => {
                let kept = match self.delivery.batch().get(record) {
                    Some(record) => self.files.reject(record, &self.collector, &words),
                    None => Err("the record is not in memory".to_owned()),
                };
                self.delivery.kept(kept, now);
            }
            Action::Save(cursor) => {
                let saved = if self.only.is_some() { Ok(()) } else { self.files.save(&cursor) };
                self.delivery.saved(saved, now);
                if self.only.is_some_and(|end| end <= records::place(cursor.settled)) {
                    self.delivery.stop(now, 0);
                }
            }
        }
    }

    /// What of it is in the stream.
    fn page(&self, chunk: Chunk) -> Page<Record> {
        let read = chunk.records.len();
        let of = |stored| records::record(self.stream(), stored);
        let records: Vec<Record> = chunk.records.into_iter().filter_map(of).collect();
        Page {
            left_out: (read - records.len()) as u64,
            records,
            end: records::position(chunk.end),
            expired: chunk.expired,
            is_last: chunk.is_last,
        }
    }

    /// As the store reads, but not beyond the end of a range.
    fn read(
        &mut self,
        from: Place,
        until: Option<Place>,
        records: usize,
        bytes: usize,
    ) -> Result<Chunk, store::Error> {
        let stream = self.stream().stored();
        let chunk = self.follower.read(stream, from, until, records, bytes)?;
        match self.only {
            Some(end) if chunk.end > end => {
                let chunk = self.follower.read(stream, from, Some(end), records, bytes)?;
                Ok(Chunk { is_last: true, ..chunk })
            }
            _ => Ok(chunk),
        }
    }

    fn send(&mut self, id: RequestId, records: Vec<usize>, sending: &mut JoinSet<Done>) {
        let now = nic::time::now();
        let Some(mut link) = self.link.take() else {
            let words = "the last request has not ended".to_owned();
            return self.delivery.answer(id, Outcome::Failed { words, retry_after: None }, now);
        };
        let chosen: Vec<&Record> = records.iter().filter_map(|i| self.delivery.batch().get(*i)).collect();
        let batch = Batch { stream: self.stream(), records: &chosen, collector: &self.collector };
        if link.begin(&batch) {
            let deadline = Instant::now() + self.timeout;
            return start(link, Sending { id, records, deadline }, sending);
        }
        self.link = Some(link);
        lock(&self.gauge.state).left_out += records.len() as u64;
        self.delivery.answer(id, Outcome::DONE, now);
    }

    fn done(&mut self, done: Done, requests: &mut JoinSet<Done>) {
        let Done { sending, mut link, sent } = done;
        let Sending { id, records, .. } = &sending;
        let chosen: Vec<&Record> = records.iter().filter_map(|i| self.delivery.batch().get(*i)).collect();
        let answered = match sent {
            Err(failure) => Answered::done(failure.into()),
            // It came too late: other records are in memory, and the delivery counts it.
            Ok(()) if chosen.len() < records.len() => {
                Answered::done(Failure::Passing("too late".to_owned()).into())
            }
            Ok(()) => {
                let batch = Batch { stream: self.stream(), records: &chosen, collector: &self.collector };
                link.answered(&batch)
            }
        };
        let (outcome, left_out) = match answered {
            Answered::More => return start(link, sending, requests),
            Answered::Done { outcome, left_out } => (outcome, left_out as u64),
        };
        self.link = Some(link);
        let late = self.delivery.ledger().late;
        self.delivery.answer(*id, outcome, nic::time::now());
        if self.delivery.ledger().late == late {
            lock(&self.gauge.state).left_out += left_out;
        }
    }

    /// Shows what became of the records, and logs what people should read.
    fn report(&mut self, now: u64) {
        let (export, stream) = (self.gauge.export.as_str(), self.stream().name());
        for notice in self.delivery.notices() {
            match notice {
                Notice::Recovered { .. } => tracing::info!(export, stream, "{notice}"),
                _ => tracing::warn!(export, stream, "{notice}"),
            }
        }
        let ledger = self.delivery.ledger();
        let count = now.saturating_sub(self.counted_at) >= COUNT_INTERVAL || self.delivery.is_stopped();
        let counted = count.then(|| self.count(&ledger));
        let mut state = lock(&self.gauge.state);
        if let Some((waiting, budget)) = counted {
            self.counted_at = now;
            state.waiting = waiting;
            state.counted = now;
            state.budget = budget.unwrap_or(state.budget);
            state.oldest = self.delivery.batch().first().map(Record::ts);
        }
        state.ledger = ledger;
        state.last_success = self.delivery.last_success();
        if state.last_error.as_deref() != self.delivery.last_error() {
            state.last_error = self.delivery.last_error().map(str::to_owned);
        }
    }

    /// Committed records after the cursor, and the stage of the loss budget; `None`: the store begins its count anew just now.
    fn count(&mut self, ledger: &Ledger) -> (u64, Option<Budget>) {
        let settled = records::place(self.delivery.cursor().settled);
        let end = match self.only {
            Some(end) => end,
            None => match self.follower.end(self.stream().stored()) {
                Ok(end) => end,
                Err(_) => return (0, None),
            },
        };
        if end.base != settled.base {
            return (end.row, None);
        }
        let waiting = end.row.saturating_sub(settled.row);
        let unread = waiting.saturating_sub(self.delivery.ahead());
        // What the store had before is found out once. From then on its count says what came.
        if self.origin.is_none_or(|(base, _)| base != end.base) {
            let came = ledger.read + ledger.left_out + ledger.expired + unread;
            self.origin = Some((end.base, end.row.wrapping_sub(came)));
        }
        let before = self.origin.map_or(0, |(_, before)| before);
        let budget = Budget {
            into: end.row.wrapping_sub(before),
            out: ledger.delivered + ledger.left_out,
            rejected: ledger.rejected.saturating_sub(ledger.unwritten),
            unwritten: ledger.unwritten,
            expired: ledger.expired,
            queued: ledger.held + unread,
        };
        (waiting, Some(budget))
    }
}

fn start(mut link: Link, sending: Sending, requests: &mut JoinSet<Done>) {
    requests.spawn(async move {
        let sent = time::timeout_at(sending.deadline, link.send()).await;
        let late = |_| Err(Failure::Passing("the server does not answer in time".to_owned()));
        Done { sending, link, sent: sent.unwrap_or_else(late) }
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

const LONGEST_REST: Duration = Duration::from_secs(1);
/// Time between two counts of what waits.
const COUNT_INTERVAL: u64 = 1_000_000_000;

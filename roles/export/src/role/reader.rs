//! Reads the store for one stream and encodes the next request, on a blocking thread while the previous request is in flight.

use std::{collections::HashSet, path::Path, sync::Arc};

use export::{
    Cursor, DayLimit, Page, Position,
    hop::Hop,
    record::{Record, Stream},
    sink::{self, Batch, HttpSink},
    spool,
};
use store::{Chunk, Follower, StoredRecord, StreamPosition};

use super::Silences;
use super::{drive::ReadRequest, parts::Parts, records, since::Beginnings, spool::HopSpool};

/// Upper bound on the ratio of a hop's size as a record to its size in the spool.
const UNPACKED: usize = 5;

/// The reader of one stream of the store.
#[derive(Debug)]
pub(super) struct Reader {
    follower: Follower,
    /// The spool of hops, which replaces the store for the stream `hops`.
    hops: Option<Arc<HopSpool>>,
    stream: Stream,
    collector: Arc<str>,
    /// The position at which reading ends, or `None` for the end of the stream.
    only: Option<StreamPosition>,
    beginnings: Beginnings,
    parts: Parts,
    /// Silences whose alerts are omitted.
    silences: Option<Arc<dyn Silences>>,
    /// IDs of the silenced records of the last page, so that reading the page again does not count them twice.
    silenced: HashSet<u64>,
    /// The encoder of requests, or `None` if requests depend on more than the records.
    sink: Option<Arc<dyn HttpSink>>,
}

/// A page, and the request to send it.
#[derive(Debug)]
pub(super) struct ReadPage {
    pub(super) page: Page<Record>,
    /// The store's count of records was reset.
    pub(super) restarted: bool,
    /// Number of newly silenced alerts.
    pub(super) silenced: u64,
    /// The encoded request for the page, if it is final.
    pub(super) prepared: Option<PreparedRequest>,
}

/// A request for all records between two positions.
#[derive(Debug)]
pub(super) struct PreparedRequest {
    from: Position,
    end: Position,
    records: usize,
    request: sink::Request,
}

impl PreparedRequest {
    /// Returns whether it sends the batch that begins at this cursor and has this many records.
    pub(super) fn is_of(&self, cursor: Cursor, records: usize) -> bool {
        (self.from, Some(self.end), self.records) == (cursor.settled, cursor.batch_end, records)
    }

    /// Returns the memory of the request, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.request.body.capacity()
    }

    pub(super) fn into_request(self) -> sink::Request {
        self.request
    }
}

impl Reader {
    /// Creates a reader of the store in `directory`.
    pub(super) fn new(
        directory: &Path,
        stream: Stream,
        collector: Arc<str>,
        sink: Option<Arc<dyn HttpSink>>,
    ) -> Self {
        Self {
            follower: Follower::new(directory),
            hops: None,
            stream,
            collector,
            only: None,
            beginnings: Beginnings::new(directory.to_owned()),
            parts: Parts::default(),
            silences: None,
            silenced: HashSet::new(),
            sink,
        }
    }

    /// Reads hops from the spool instead of the store.
    pub(super) fn read_hops(&mut self, hops: Option<Arc<HopSpool>>) {
        self.hops = hops;
    }

    /// Omits alerts that silences cover.
    pub(super) fn set_silences(&mut self, silences: Option<Arc<dyn Silences>>) {
        self.silences = silences;
    }

    /// Ends reading at a position.
    pub(super) fn end_at(&mut self, end: StreamPosition) {
        self.only = Some(end);
    }

    /// Returns the end of the committed records.
    pub(super) fn end(&mut self) -> Result<StreamPosition, store::Error> {
        self.stream
            .stored()
            .map_or(Ok(StreamPosition::default()), |stream| self.follower.end(stream))
    }

    /// Returns the position of the first record at a time or later.
    pub(super) fn since(&mut self, ts: u64) -> Result<StreamPosition, store::Error> {
        self.stream
            .stored()
            .map_or(Ok(StreamPosition::default()), |stream| {
                self.follower.since(stream, ts)
            })
    }

    /// Reads the next page and encodes its request.
    pub(super) fn read(&mut self, mut wanted: ReadRequest) -> Result<ReadPage, String> {
        let days = self.sink.as_ref().and_then(|sink| sink.days());
        let Some(stream) = self.stream.stored() else {
            let page = self
                .hops
                .as_ref()
                .ok_or("hops are not stored")?
                .read(wanted, days)?;
            let prepared = if page.is_last {
                None
            } else {
                self.request(wanted.from, &page)
            };
            return Ok(ReadPage {
                page,
                restarted: false,
                silenced: 0,
                prepared,
            });
        };
        let mut silenced = HashSet::new();
        let (chunk, read, bytes, records) = loop {
            silenced.clear();
            self.begin_parts(wanted.from)?;
            let mut failed = None;
            let mut chunk = self.chunk(stream, wanted).map_err(|error| error.to_string())?;
            let stored = std::mem::take(&mut chunk.records);
            let bytes = stored.iter().map(StoredRecord::bytes).sum();
            let read = stored.len();
            let chosen = stored.into_iter().map(|stored| {
                if failed.is_some() {
                    return None;
                }
                self.chosen(stored, &mut silenced).unwrap_or_else(|error| {
                    failed = Some(error);
                    None
                })
            });
            let taken = whole(chosen, days);
            // Fail the whole page, to read it again: no alert may lose its beginning or be sent despite a silence.
            if let Some(error) = failed {
                return Err(error);
            }
            match taken {
                Ok(records) => break (chunk, read, bytes, records),
                // Read only the records before the first one that exceeds the limit on days.
                Err(fewer) => {
                    wanted = ReadRequest {
                        until: None,
                        records: fewer,
                        bytes: usize::MAX,
                        ..wanted
                    }
                }
            }
        };
        self.parts.end(chunk.end);
        let page = Page {
            left_out: (read - records.len()) as u64,
            records,
            end: records::position(chunk.end),
            expired: chunk.expired,
            bytes,
            is_last: chunk.is_last,
        };
        // A page that is not full may grow when it is read again, so do not encode it yet.
        let prepared = if page.is_last {
            None
        } else {
            self.request(wanted.from, &page)
        };
        let new = silenced.difference(&self.silenced).count() as u64;
        self.silenced = silenced;
        Ok(ReadPage {
            page,
            restarted: chunk.restarted,
            silenced: new,
            prepared,
        })
    }

    /// Prepares the numbering of rollup parts from a position on, if the sink needs it.
    fn begin_parts(&mut self, from: Position) -> Result<(), String> {
        let sink = self
            .sink
            .clone()
            .filter(|sink| self.stream == Stream::Rollups && sink.counts_parts(false));
        let Some(sink) = sink else { return Ok(()) };
        self.parts
            .begin(records::stream_position(from), &mut self.follower, |part| {
                sink.counts_parts(part.flow.is_some())
            })
            .map_err(|error| error.to_string())
    }

    /// Converts a stored record. Returns `None` if it is not in the stream, or silenced.
    fn chosen(
        &mut self,
        stored: StoredRecord,
        silenced: &mut HashSet<u64>,
    ) -> Result<Option<Record>, String> {
        let Some(mut record) = records::record(self.stream, stored) else {
            return Ok(None);
        };
        match &mut record {
            Record::Rollup(part)
                if self
                    .sink
                    .as_ref()
                    .is_some_and(|sink| sink.counts_parts(part.flow.is_some())) =>
            {
                self.parts.number(part);
            }
            Record::Alert(alert) => {
                let began = self.beginnings.complete(alert)?;
                if self
                    .silences
                    .as_ref()
                    .zip(began)
                    .is_some_and(|(silences, began)| silences.is_silenced(&began))
                {
                    silenced.insert(alert.id);
                    return Ok(None);
                }
            }
            _ => {}
        }
        Ok(Some(record))
    }

    /// Reads a chunk from the store, but not beyond the end of the range.
    fn chunk(
        &mut self,
        stream: collector::event::Stream,
        wanted: ReadRequest,
    ) -> Result<Chunk, store::Error> {
        let ReadRequest {
            from,
            until,
            records,
            bytes,
        } = wanted;
        let from = records::stream_position(from);
        let until = until.map(records::stream_position);
        let chunk = self.follower.read(stream, from, until, records, bytes)?;
        match self.only {
            Some(end) if chunk.end > end => {
                let chunk = self.follower.read(stream, from, Some(end), records, bytes)?;
                Ok(Chunk {
                    is_last: true,
                    ..chunk
                })
            }
            _ => Ok(chunk),
        }
    }

    fn request(&self, from: Position, page: &Page<Record>) -> Option<PreparedRequest> {
        let records: Vec<&Record> = page.records.iter().collect();
        let batch = Batch {
            stream: self.stream,
            records: &records,
            collector: &self.collector,
        };
        let request = self.sink.as_ref()?.request(&batch)?;
        Some(PreparedRequest {
            from,
            end: page.end,
            records: records.len(),
            request,
        })
    }
}

/// Collects all records, or returns the number of those before the first record that exceeds the limit on days. `days` is the
/// maximum number of days per request.
fn whole(records: impl Iterator<Item = Option<Record>>, days: Option<usize>) -> Result<Vec<Record>, usize> {
    let mut days = days.map(DayLimit::new);
    let mut whole = Vec::with_capacity(records.size_hint().0);
    for (at, record) in records.enumerate() {
        if let (Some(days), Some(record)) = (&mut days, &record)
            && !days.admit(record.ts())
        {
            return Err(at);
        }
        whole.extend(record);
    }
    Ok(whole)
}

impl HopSpool {
    /// Reads a page of hops, from memory or a spool file that is loaded first. `days` limits the days in the page.
    fn read(&self, wanted: ReadRequest, days: Option<usize>) -> Result<Page<Record>, String> {
        let ReadRequest {
            from,
            mut until,
            mut records,
            mut bytes,
        } = wanted;
        loop {
            let mut read = Vec::new();
            let mut unreadable = 0;
            let mut size = 0;
            let page = self.queue.with(|spool| {
                spool.read(from, until, records, bytes / UNPACKED, |bytes| {
                    match Hop::read(bytes) {
                        Some(hop) => {
                            size += bytes.len() * UNPACKED;
                            read.push(Some(Record::Hop(Box::new(hop))));
                        }
                        // The hop was written by another version.
                        None => {
                            unreadable += 1;
                            read.push(None);
                        }
                    }
                })
            });
            match page {
                spool::ReadResult::Load(number) => {
                    let file = self
                        .files
                        .load(number)
                        .map_err(|error| format!("a spool file: {error}"))?;
                    self.queue.with(|spool| spool.loaded(number, file));
                }
                spool::ReadResult::Page {
                    end,
                    expired,
                    is_last,
                } => {
                    let expired = expired + unreadable;
                    match whole(read.into_iter(), days) {
                        Ok(records) => {
                            return Ok(Page {
                                records,
                                end,
                                expired,
                                left_out: 0,
                                bytes: size,
                                is_last,
                            });
                        }
                        Err(fewer) => {
                            until = None;
                            records = fewer;
                            bytes = usize::MAX;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collector::{Event, Kind, Output as _};
    use export::record::Alert;
    use export::sink::clickhouse::{ClickHouse, DAYS};
    use testkit::records::{Dir, SECOND, START, loss};

    #[test]
    fn records_of_more_days_than_an_insert_takes_are_several_pages() {
        let dir = Dir::new("export-days");
        let store = store::Store::open(store::Config::new(dir.path())).unwrap();
        let mut batch = collector::Batch::with_capacity(500);
        (0..250).for_each(|n| batch.loss(&loss(START + n * 24 * 3600 * SECOND, Some(1))));
        store.submit(batch);
        store.flush();
        let pages = |sink: Option<Arc<dyn HttpSink>>, until: Option<Position>| {
            let mut reader = Reader::new(dir.path(), Stream::Losses, "c1".into(), sink);
            let (mut from, mut counts, mut ends) = (Position::default(), Vec::new(), Vec::new());
            loop {
                let page = reader
                    .read(ReadRequest {
                        from,
                        until,
                        records: 200,
                        bytes: 1 << 20,
                    })
                    .unwrap()
                    .page;
                assert_eq!((page.expired, page.left_out), (0, 0));
                counts.push(page.records.len());
                ends.push(page.end);
                if page.is_last || until == Some(page.end) {
                    return (counts, ends);
                }
                from = page.end;
            }
        };
        let sink: Arc<dyn HttpSink> = Arc::new(ClickHouse::new("net", "", 0).unwrap());
        let (counts, ends) = pages(Some(Arc::clone(&sink)), None);
        assert_eq!(counts, [DAYS, DAYS, 250 - 2 * DAYS]);
        assert_eq!(pages(None, None).0, [200, 50], "other systems have no such limit");
        // One of before there was this limit is not sent as it was: no server took it.
        assert_eq!(pages(Some(sink), Some(ends[2])).0, counts);
    }

    /// Returns the ids of four losses, read in pages of so many records.
    fn ids_of_losses(dir: &Path, records: usize) -> Vec<u64> {
        let mut reader = Reader::new(dir, Stream::Losses, "c1".into(), None);
        let mut from = Position::default();
        let mut ids = Vec::new();
        while ids.len() < 4 {
            let request = ReadRequest {
                from,
                until: None,
                records,
                bytes: 1 << 20,
            };
            let page = reader.read(request).unwrap().page;
            ids.extend(page.records.iter().map(export::record::Record::id));
            from = page.end;
        }
        ids
    }

    #[test]
    fn losses_of_one_sender_and_time_have_ids_of_their_own_on_any_page() {
        let dir = Dir::new("export-loss-ids");
        let store = store::Store::open(store::Config::new(dir.path())).unwrap();
        let mut batch = collector::Batch::with_capacity(8);
        // Streams of two listeners, and what an interval and the end of the input counted at one time.
        (0..4).for_each(|_| batch.loss(&loss(START, Some(1))));
        store.submit(batch);
        store.flush();
        let found = ids_of_losses(dir.path(), 4);
        assert_eq!(
            ids_of_losses(dir.path(), 1),
            found,
            "a record has one id whenever it is sent"
        );
        let distinct: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "{found:x?}");
    }

    /// Silences what begins at node 7.
    #[derive(Debug)]
    struct Node7;

    impl Silences for Node7 {
        fn is_silenced(&self, began: &Alert) -> bool {
            began.node == Some(7)
        }
    }

    #[test]
    fn a_silence_of_a_node_is_about_where_the_alert_began() {
        let dir = Dir::new("export-silence");
        let store = store::Store::open(store::Config::new(dir.path())).unwrap();
        store.set_rules(vec!["deep".to_owned()]);
        let event = |ts, kind, port: u16, node| Event {
            kind,
            flow: format!("10.0.0.1:{port}>10.0.0.2:80/6").parse().ok(),
            node: Some(node),
            rule: Some(0),
            ..testkit::records::bare(START + ts)
        };
        let mut batch = collector::Batch::with_capacity(8);
        // One begins where it is silenced and ends elsewhere, another the other way round.
        for one in [
            event(1, Kind::RuleOn, 1, 7),
            event(2, Kind::RuleOn, 2, 8),
            event(3, Kind::RuleOff, 1, 8),
            event(4, Kind::RuleOff, 2, 7),
        ] {
            batch.event(&one, &[]);
        }
        store.submit(batch);
        store.flush();
        let mut reader = Reader::new(dir.path(), Stream::Alerts, "c1".into(), None);
        reader.set_silences(Some(Arc::new(Node7)));
        let wanted = ReadRequest {
            from: Position::default(),
            until: None,
            records: 100,
            bytes: 1 << 20,
        };
        let found = reader.read(wanted).unwrap();
        let sent: Vec<u64> = found.page.records.iter().map(|one| one.ts() - START).collect();
        assert_eq!((sent, found.silenced), (vec![2, 4], 2));
    }
}

//! History back end over the local store. Queries block on disk I/O, so they run outside the async runtime.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use collector::event::Rollup;
use store::{
    FlowHistory, FlowSpans, Heat, HeatFilter, Losses, MovedFiles, NodeSpans, PathChanges, PathSpans,
    PathUses, QueryError, QueryErrorKind, QueueFilter, RateSpan, Reader, RecordFilter, RecordingRow,
    RollupFilter, Span, Traffic, TrafficQuery, facts,
};
use tokio::task;

use crate::notes;
use crate::query::{
    EventQuery, FlowQuery, FlowsQuery, FoundEvents, History, LossQuery, PathQuery, Permit, QueueQuery,
    QueueRecords, RateQuery, RecordingQuery, ResponseFuture,
};
use crate::sql::{Failure, Pool, QueryFailure, Request};

/// Reader of the store's files, and the pool of SQL helpers.
#[derive(Debug)]
pub struct Local {
    reader: Reader,
    sql: Pool,
    moved: Option<MovedFiles>,
}

impl Local {
    /// Creates a back end over the files of `reader`. `moved` lists files that the store of this process lost, for warnings.
    pub fn new(reader: Reader, moved: Option<MovedFiles>) -> Self {
        let sql = Pool::new(reader.dir().to_owned(), "[api] query_timeout");
        let reader = match &moved {
            Some(moved) => reader.with_moved_files(moved.clone()),
            None => reader,
        };
        Self { reader, sql, moved }
    }

    /// Runs a query on a blocking thread. Dropping the future stops the query.
    fn run<T: Send + 'static>(
        &self,
        permit: Permit,
        query: impl FnOnce(&Reader) -> Result<T, QueryError> + Send + 'static,
    ) -> ResponseFuture<'_, T> {
        Box::pin(async move {
            let stop = StopOnDrop::default();
            let reader = self.reader.until(Arc::clone(&stop.0));
            let task = task::spawn_blocking(move || {
                let _permit = permit;
                query(&reader).map(|answer| (answer, reader.notes()))
            });
            match task.await {
                Ok(Ok((answer, notes))) => {
                    notes::add(notes);
                    Ok(answer)
                }
                Ok(Err(error)) if error.kind == QueryErrorKind::Storage => {
                    Err(Failure::Unavailable(error.message))
                }
                Ok(Err(error)) => Err(Failure::Query(QueryFailure::from(error.message))),
                Err(_) => Err(Failure::Unavailable(
                    "the query was not answered; this is a fault in hopwise, please report it".to_owned(),
                )),
            }
        })
    }
}

impl History for Local {
    fn events(&self, query: EventQuery, permit: Permit) -> ResponseFuture<'_, FoundEvents> {
        let EventQuery { filter, condition } = query;
        self.run(permit, move |reader| {
            let (rows, stopped) = match condition {
                None => (reader.events(&filter)?, None),
                Some(condition) => {
                    reader.events_where(&filter, |row| condition.matches(&facts::from_row(row)))?
                }
            };
            Ok(FoundEvents { rows, stopped })
        })
    }

    fn rollups(&self, filter: RollupFilter, permit: Permit) -> ResponseFuture<'_, Vec<Rollup>> {
        self.run(permit, move |reader| reader.rollups(&filter))
    }

    fn flow(&self, query: FlowQuery, permit: Permit) -> ResponseFuture<'_, FlowHistory> {
        let FlowQuery {
            flow,
            from,
            to,
            limit,
        } = query;
        self.run(permit, move |reader| reader.history(&flow, from, to, limit))
    }

    fn heat(&self, filter: HeatFilter, permit: Permit) -> ResponseFuture<'_, Heat> {
        self.run(permit, move |reader| reader.heat(&filter))
    }

    fn recordings(&self, query: RecordingQuery, permit: Permit) -> ResponseFuture<'_, Vec<RecordingRow>> {
        let (from, to) = query.span;
        self.run(permit, move |reader| {
            reader.recordings(from, to, query.location, query.limit)
        })
    }

    fn queue(&self, query: QueueQuery, permit: Permit) -> ResponseFuture<'_, QueueRecords> {
        self.run(permit, move |reader| queue(reader, &query))
    }

    fn flows(&self, query: FlowsQuery, permit: Permit) -> ResponseFuture<'_, FlowSpans> {
        let FlowsQuery { filter, condition } = query;
        self.run(permit, move |reader| match condition {
            None => reader.flow_spans(&filter),
            Some(condition) => reader.flow_spans_where(&filter, condition.asks_nodes(), &|span| {
                condition.matches(&facts::from_span(span))
            }),
        })
    }

    fn nodes(&self, span: Span, permit: Permit) -> ResponseFuture<'_, NodeSpans> {
        self.run(permit, move |reader| reader.node_spans(span))
    }

    fn paths(&self, span: Span, permit: Permit) -> ResponseFuture<'_, PathSpans> {
        self.run(permit, move |reader| reader.path_spans(span))
    }

    fn path_changes(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathChanges> {
        self.run(permit, move |reader| {
            reader.path_changes(query.span, &query.flows, query.limit)
        })
    }

    fn path_uses(&self, query: PathQuery, permit: Permit) -> ResponseFuture<'_, PathUses> {
        self.run(permit, move |reader| {
            reader.path_uses(query.span, &query.flows, query.limit)
        })
    }

    fn losses(&self, query: LossQuery, permit: Permit) -> ResponseFuture<'_, Losses> {
        self.run(permit, move |reader| {
            reader.losses_in(query.span, query.count_until)
        })
    }

    fn rates(&self, query: RateQuery, permit: Permit) -> ResponseFuture<'_, RateSpan> {
        self.run(permit, move |reader| {
            reader.rate_span_until(query.span, query.column, query.known_to)
        })
    }

    fn traffic(&self, query: Arc<TrafficQuery>, permit: Permit) -> ResponseFuture<'_, Traffic> {
        self.run(permit, move |reader| reader.traffic(&query))
    }

    fn query(&self, mut request: Request) -> ResponseFuture<'_, Vec<u8>> {
        // The helper process does not know which files this process lost.
        let moved = self.moved.as_ref();
        request
            .notes
            .extend(moved.and_then(|moved| moved.note(request.from, request.to)));
        Box::pin(async move { self.sql.query(&request).await })
    }

    /// Closes connections to deleted files, which keep their disk space allocated.
    fn tidy(&self) {
        self.reader.tidy();
        self.sql.tidy();
    }
}

/// Reads the records of one queue.
fn queue(reader: &Reader, query: &QueueQuery) -> Result<QueueRecords, QueryError> {
    let QueueFilter { node, from, to, .. } = query.queue;
    let limit = query.events;
    let recordings = reader.recordings(from, to, query.queue.location(), query.recordings)?;
    let windows = reader.recording_windows(from, to)?;
    let (passages, truncated) = reader.passages(&query.queue)?;
    let drops = reader.drops(&RecordFilter {
        from: Some(from),
        before: Some(to),
        node: Some(node),
        flow: None,
        limit,
    })?;
    let changes = if passages.is_empty() {
        reader.events(&query.latency_changes())?
    } else {
        Vec::new()
    };
    Ok(QueueRecords {
        recordings,
        windows,
        passages,
        truncated,
        drops,
        changes,
        exported: None,
    })
}

/// Sets the stop flag when the request's future is dropped, which happens when the client disconnects.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Relaxed: the flag orders no other memory.
        self.0.store(true, Ordering::Relaxed);
    }
}

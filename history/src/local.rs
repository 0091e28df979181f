//! The store of this process. Its questions wait for the disk, so they run outside the async runtime.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use collector::event::Rollup;
use store::{
    FlowHistory, FlowSpans, Heat, HeatFilter, Losses, MovedFiles, NodeSpans, PathChanges, PathSpan, PathUses,
    QueryError, QueryErrorKind, QueueFilter, RateSpan, Reader, RecordFilter, RecordingRow, RollupFilter,
    Span, Traffic, TrafficQuestion, facts,
};
use tokio::task;

use crate::notes;
use crate::question::{
    Answer, EventQuestion, FlowQuestion, FlowsQuestion, FoundEvents, History, LossQuestion, PathQuestion,
    Permit, QueueQuestion, QueueRecords, RateQuestion, RecordingQuestion,
};
use crate::sql::{Failure, Pool, QueryFailure, Request};

/// The files of the store, and SQL over them.
#[derive(Debug)]
pub struct Local {
    reader: Reader,
    sql: Pool,
    moved: Option<MovedFiles>,
}

impl Local {
    /// Answers from the files of `reader`, with notes about those of `moved`, of the store that this process writes.
    pub fn new(reader: Reader, moved: Option<MovedFiles>) -> Self {
        let sql = Pool::new(reader.dir().to_owned(), "[api] query_timeout");
        let reader = match &moved {
            Some(moved) => reader.with_moved_files(moved.clone()),
            None => reader,
        };
        Self { reader, sql, moved }
    }

    /// Queries the store on a thread that may block.
    fn ask<T: Send + 'static>(
        &self,
        permit: Permit,
        question: impl FnOnce(&Reader) -> Result<T, QueryError> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let stop = StopOnDrop::default();
            let reader = self.reader.until(Arc::clone(&stop.0));
            let asked = task::spawn_blocking(move || {
                let _permit = permit;
                question(&reader).map(|answer| (answer, reader.notes()))
            });
            match asked.await {
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
    fn events(&self, question: EventQuestion, permit: Permit) -> Answer<'_, FoundEvents> {
        let EventQuestion { filter, condition } = question;
        self.ask(permit, move |reader| {
            let (rows, stopped) = match condition {
                None => (reader.events(&filter)?, None),
                Some(condition) => {
                    reader.events_where(&filter, |row| condition.matches(&facts::from_row(row)))?
                }
            };
            Ok(FoundEvents { rows, stopped })
        })
    }

    fn rollups(&self, filter: RollupFilter, permit: Permit) -> Answer<'_, Vec<Rollup>> {
        self.ask(permit, move |reader| reader.rollups(&filter))
    }

    fn flow(&self, question: FlowQuestion, permit: Permit) -> Answer<'_, FlowHistory> {
        let FlowQuestion {
            flow,
            from,
            to,
            limit,
        } = question;
        self.ask(permit, move |reader| reader.history(&flow, from, to, limit))
    }

    fn heat(&self, filter: HeatFilter, permit: Permit) -> Answer<'_, Heat> {
        self.ask(permit, move |reader| reader.heat(&filter))
    }

    fn recordings(&self, question: RecordingQuestion, permit: Permit) -> Answer<'_, Vec<RecordingRow>> {
        let RecordingQuestion { span, node, limit } = question;
        self.ask(permit, move |reader| {
            reader.recordings(span.0, span.1, node.map(|node| (node, None)), limit)
        })
    }

    fn queue(&self, question: QueueQuestion, permit: Permit) -> Answer<'_, QueueRecords> {
        self.ask(permit, move |reader| queue(reader, &question))
    }

    fn flows(&self, question: FlowsQuestion, permit: Permit) -> Answer<'_, FlowSpans> {
        let FlowsQuestion { filter, condition } = question;
        self.ask(permit, move |reader| match condition {
            None => reader.flow_spans(&filter),
            Some(condition) => reader.flow_spans_where(&filter, condition.asks_nodes(), &|span| {
                condition.matches(&facts::from_span(span))
            }),
        })
    }

    fn nodes(&self, span: Span, permit: Permit) -> Answer<'_, NodeSpans> {
        self.ask(permit, move |reader| reader.node_spans(span))
    }

    fn paths(&self, span: Span, permit: Permit) -> Answer<'_, (Vec<PathSpan>, bool)> {
        self.ask(permit, move |reader| reader.path_spans(span))
    }

    fn path_changes(&self, question: PathQuestion, permit: Permit) -> Answer<'_, PathChanges> {
        self.ask(permit, move |reader| {
            reader.path_changes(question.span, &question.of, question.limit)
        })
    }

    fn path_uses(&self, question: PathQuestion, permit: Permit) -> Answer<'_, PathUses> {
        self.ask(permit, move |reader| {
            reader.path_uses(question.span, &question.of, question.limit)
        })
    }

    fn losses(&self, question: LossQuestion, permit: Permit) -> Answer<'_, Losses> {
        self.ask(permit, move |reader| {
            reader.losses_in(question.span, question.count_until)
        })
    }

    fn rates(&self, question: RateQuestion, permit: Permit) -> Answer<'_, RateSpan> {
        self.ask(permit, move |reader| {
            reader.rate_span_until(question.span, question.column, question.known_to)
        })
    }

    fn traffic(&self, question: Arc<TrafficQuestion>, permit: Permit) -> Answer<'_, Traffic> {
        self.ask(permit, move |reader| reader.traffic(&question))
    }

    fn query(&self, mut request: Request) -> Answer<'_, Vec<u8>> {
        // The process that executes it does not know which files this one missed.
        let moved = self.moved.as_ref();
        request
            .notes
            .extend(moved.and_then(|moved| moved.note(request.from, request.to)));
        Box::pin(async move { self.sql.query(&request).await })
    }

    /// Closes files that were deleted: they take space until the last connection to them is closed.
    fn tidy(&self) {
        self.reader.tidy();
        self.sql.tidy();
    }
}

/// Reads the records of one queue.
fn queue(reader: &Reader, question: &QueueQuestion) -> Result<QueueRecords, QueryError> {
    let QueueFilter {
        node,
        queue,
        from,
        to,
        ..
    } = question.queue;
    let limit = question.events;
    let recordings = reader.recordings(from, to, Some((node, queue)), question.recordings)?;
    let windows = reader.recording_windows(from, to)?;
    let (passages, truncated) = reader.passages(&question.queue)?;
    let drops = reader.drops(&RecordFilter {
        from: Some(from),
        before: Some(to),
        node: Some(node),
        flow: None,
        limit,
    })?;
    let changes = if passages.is_empty() {
        reader.events(&question.latency_changes())?
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

/// Sets the flag when the client disconnects, because that drops the future of its request.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Relaxed: the flag orders no other memory.
        self.0.store(true, Ordering::Relaxed);
    }
}

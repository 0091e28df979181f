//! The store of this process. Its questions wait for the disk, so they run outside the async runtime.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use collector::event::Rollup;
use store::{EventFilter, EventRow, FlowHistory, QueryError, QueryErrorKind, Reader, RollupFilter};
use tokio::task;

use super::{Answer, FlowQuestion, History, Place};
use crate::sql::{Failure, Pool, QueryFailure, Request};

/// The files of the store, and SQL over them.
#[derive(Debug)]
pub(crate) struct Local {
    reader: Reader,
    sql: Pool,
}

impl Local {
    /// Answers from the files of `reader`.
    pub(crate) fn new(reader: Reader) -> Self {
        let sql = Pool::new(reader.dir().to_owned(), "[api] query_timeout");
        Self { reader, sql }
    }

    /// Asks on a thread that may block.
    fn ask<T: Send + 'static>(
        &self,
        place: Place,
        question: impl FnOnce(&Reader) -> Result<T, QueryError> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let stop = StopOnDrop::default();
            let reader = self.reader.until(Arc::clone(&stop.0));
            let asked = task::spawn_blocking(move || {
                let _place = place;
                question(&reader)
            });
            match asked.await {
                Ok(Ok(answer)) => Ok(answer),
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
    fn events(&self, filter: EventFilter, place: Place) -> Answer<'_, Vec<EventRow>> {
        self.ask(place, move |reader| reader.events(&filter))
    }

    fn rollups(&self, filter: RollupFilter, place: Place) -> Answer<'_, Vec<Rollup>> {
        self.ask(place, move |reader| reader.rollups(&filter))
    }

    fn flow(&self, question: FlowQuestion, place: Place) -> Answer<'_, FlowHistory> {
        let FlowQuestion { flow, from, to, limit } = question;
        self.ask(place, move |reader| reader.history(&flow, from, to, limit))
    }

    fn query(&self, request: Request) -> Answer<'_, Vec<u8>> {
        Box::pin(async move { self.sql.query(&request).await })
    }

    /// A deleted file takes space until the last connection to it is closed.
    fn tidy(&self) {
        self.reader.tidy();
        self.sql.tidy();
    }
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

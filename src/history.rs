//! What the API answers about the past: from the store of this process, or in a console from ClickHouse. A back end gives rows; the API
//! makes its responses of them.

mod clickhouse;
mod local;

use std::{fmt, pin::Pin, sync::Arc};

use collector::event::Rollup;
use store::{EventFilter, EventRow, FlowHistory, RollupFilter};
use tokio::sync::OwnedSemaphorePermit;
use wire::FlowKey;

pub(crate) use self::{clickhouse::Remote, local::Local};
use crate::sql::{Failure, Request};

/// A place among the questions that are answered at the same time: held until the question is answered, even if nobody waits for it.
pub(crate) type Place = Arc<OwnedSemaphorePermit>;

/// An answer that is being made. When it is no longer awaited, the question ends.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Answers questions about the past. Each answer is bounded in rows, bytes and time.
pub(crate) trait History: fmt::Debug + Send + Sync {
    /// Events, newest first.
    fn events(&self, filter: EventFilter, place: Place) -> Answer<'_, Vec<EventRow>>;

    /// Rollups in ascending order of time: the latest that match.
    fn rollups(&self, filter: RollupFilter, place: Place) -> Answer<'_, Vec<Rollup>>;

    /// A flow's latencies and paths over time.
    fn flow(&self, question: FlowQuestion, place: Place) -> Answer<'_, FlowHistory>;

    /// SQL of a user, which can only read. The answer is [`crate::sql::Rows`] as JSON.
    fn query(&self, request: Request) -> Answer<'_, Vec<u8>>;

    /// Frees what is not in use. Called about once a minute.
    fn tidy(&self);
}

/// A question about one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowQuestion {
    /// The flow.
    pub(crate) flow: FlowKey,
    /// At or after.
    pub(crate) from: Option<u64>,
    /// At or before.
    pub(crate) to: Option<u64>,
    /// At most so many points: the latest.
    pub(crate) limit: usize,
}

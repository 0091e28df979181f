//! Access to past data, in this process's store or ClickHouse: permits for concurrent queries, and responses from results.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
    time::timeout,
};

use super::{context::Context, page::Prepared, refusal::Refusal};
use history::{History, Permit, sql::Failure};

/// Maximum wait for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the source of past data.
///
/// # Errors
/// There is none, because the store is off.
pub(super) fn history_of(context: &Context) -> Result<&dyn History, Refusal> {
    context.history.as_deref().ok_or_else(no_store)
}

/// Waits at most [`PERMIT_TIMEOUT`] for a permit to query past data.
///
/// # Errors
/// There is no source of past data, or no permit became free in time.
pub(super) async fn history_permit(context: &Context) -> Result<Permit, Refusal> {
    // Without a history there is nothing to wait for.
    history_of(context)?;
    read_permit(context).await.map(Arc::new)
}

/// Waits at most [`PERMIT_TIMEOUT`] for a permit to read the store or collector memory.
///
/// # Errors
/// No permit became free in time.
pub(super) async fn read_permit(context: &Context) -> Result<OwnedSemaphorePermit, Refusal> {
    let busy = "too many queries are in progress; try again in a moment";
    permit(&context.read_permits, busy).await
}

/// Waits at most [`PERMIT_TIMEOUT`] for a permit to run a user's SQL.
///
/// # Errors
/// No permit became free in time.
pub(super) async fn sql_permit(context: &Context) -> Result<OwnedSemaphorePermit, Refusal> {
    let busy = "too many queries are running; wait for one to end, or raise [api] max_queries";
    permit(&context.query_permits, busy).await
}

async fn permit(permits: &Arc<Semaphore>, busy: &str) -> Result<OwnedSemaphorePermit, Refusal> {
    let permit = timeout(PERMIT_TIMEOUT, Arc::clone(permits).acquire_owned()).await;
    permit
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| Refusal::unavailable(busy))
}

/// Builds and serializes a response on a blocking thread, then releases the permit.
///
/// # Errors
/// `make` panicked, or its value cannot be serialized.
pub(super) async fn respond<T: Serialize>(
    permit: Permit,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Prepared, Refusal> {
    let response = task::spawn_blocking(move || {
        let _permit = permit;
        serde_json::to_vec(&make())
    });
    match response.await {
        Ok(Ok(json)) => Ok(Prepared(json)),
        Ok(Err(_)) | Err(_) => Err(internal_error()),
    }
}

/// Returns the error for a query that ended without a response.
pub(super) fn internal_error() -> Refusal {
    Refusal::unavailable("the query was not answered; this is a fault in hopwise, please report it")
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Query(failure) => Self::bad_request(failure.message),
            Failure::Unavailable(message) => Self::unavailable(message),
        }
    }
}

fn no_store() -> Refusal {
    Refusal::not_found("the store is off; set [store] enabled = true, or use /api/v1/events/stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_waited_for_no_longer_than_the_timeout() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let permits = Arc::new(Semaphore::new(1));
        runtime.block_on(async {
            let held = permit(&permits, "busy").await.unwrap();
            let refused = permit(&permits, "busy").await;
            assert_eq!(refused.err(), Some(Refusal::unavailable("busy")));
            drop(held);
            assert!(permit(&permits, "busy").await.is_ok());
        });
    }
}

//! Limits how many questions about the past run at once.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
};

use super::{context::Context, page::Prepared, refusal::Refusal};
use history::{History, Permit, sql::Failure};

/// Returns the source of answers about the past; it refuses the request if there is none.
pub(super) fn history_of(context: &Context) -> Result<&dyn History, Refusal> {
    context.history.as_deref().ok_or_else(no_store)
}

/// Waits for a permit to query the history.
pub(super) async fn query_permit(context: &Context) -> Result<Permit, Refusal> {
    // Without a history there is nothing to wait for.
    history_of(context)?;
    permit(&context.reads).await.map(Arc::new)
}

/// Makes a response on a thread that may block, and holds the permit until then.
pub(super) async fn respond<T: Serialize>(
    permit: Permit,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Prepared, Refusal> {
    let made = task::spawn_blocking(move || {
        let _permit = permit;
        serde_json::to_vec(&make())
    });
    match made.await {
        Ok(Ok(answer)) => Ok(Prepared(answer)),
        Ok(Err(_)) | Err(_) => Err(Refusal::unavailable(
            "the query was not answered; this is a fault in hopwise, please report it",
        )),
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Query(failure) => Self::bad(failure.message),
            Failure::Unavailable(message) => Self::unavailable(message),
        }
    }
}

fn no_store() -> Refusal {
    Refusal::not_found("the store is off; set [store] enabled = true, or use /api/v1/events/stream")
}

/// Waits for a permit, until one is free or [`PERMIT_TIMEOUT`] has passed.
pub(super) async fn permit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    let permit = tokio::time::timeout(PERMIT_TIMEOUT, Arc::clone(permits).acquire_owned()).await;
    let message = "too many queries are running; wait for one to end, or raise [api] max_queries";
    permit
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| Refusal::unavailable(message))
}

/// Maximum time for which a query waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

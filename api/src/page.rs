//! Responses that are bounded in rows and bytes, and built on blocking threads. Permits limit how many are built at the same
//! time, so that `/healthz` and `/metrics` never wait; a request waits for a permit for a bounded time.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tokio::{task, time};

use super::{context::Context, refusal::Refusal};

/// Maximum size of a page, bytes.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of responses built at the same time.
pub const MAX_PAGES: usize = 2;
/// Maximum wait for a permit.
const PERMIT_TIMEOUT: time::Duration = time::Duration::from_secs(2);

/// Response whose JSON is already serialized.
#[derive(Debug)]
pub(crate) struct Prepared(pub(super) Vec<u8>);

impl IntoResponse for Prepared {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// Builds and serializes a response on a blocking thread.
///
/// # Errors
/// No permit became free in time.
pub(super) async fn make<T: Serialize>(
    context: &Context,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Prepared, Refusal> {
    match compute(context, move || serde_json::to_vec(&work())).await? {
        Ok(bytes) => Ok(Prepared(bytes)),
        Err(_) => Err(fault()),
    }
}

/// Computes a large part of a response on a blocking thread.
///
/// # Errors
/// No permit became free in time.
pub(super) async fn compute<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let permit = time::timeout(PERMIT_TIMEOUT, context.page_permits.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(Refusal::unavailable(
            "too many large responses are in progress; try again in a moment",
        ));
    };
    let response = task::spawn_blocking(move || {
        // Held until the work is done, even if the client disconnects.
        let _permit = permit;
        work()
    });
    response.await.map_err(|_| fault())
}

fn fault() -> Refusal {
    Refusal::unavailable("there is no response; this is a fault in hopwise, please report it")
}

/// Collects rows for a page: at most `limit`, and at most [`MAX_BYTES`] of JSON. The second element is true if rows are left.
pub(super) fn fill<T: Serialize>(rows: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, bool) {
    view::fill(rows, limit, MAX_BYTES)
}

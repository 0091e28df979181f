//! Pages: responses bounded in rows and bytes. They are made on threads of their own, a few at a time, so that `/healthz` and `/metrics`
//! never wait for one. A request waits a bounded time for its turn.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tokio::{task, time};

use super::{context::Context, refusal::Refusal};

/// A response whose JSON is already written.
#[derive(Debug)]
pub(crate) struct Prepared(pub(super) Vec<u8>);

impl IntoResponse for Prepared {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

/// Makes a response on a thread that may block.
///
/// # Errors
/// Too many are being made.
pub(super) async fn make<T: Serialize>(
    context: &Context,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Prepared, Refusal> {
    match compute(context, move || serde_json::to_vec(&work())).await? {
        Ok(bytes) => Ok(Prepared(bytes)),
        Err(_) => Err(fault()),
    }
}

/// Runs a large part of a response on a thread that may block.
///
/// # Errors
/// Too many responses are being made.
pub(super) async fn compute<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let permit = time::timeout(PERMIT_TIMEOUT, context.pages.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(Refusal::unavailable(
            "too many large responses are in progress; try again in a moment",
        ));
    };
    let made = task::spawn_blocking(move || {
        // Held until the end, even if the client disconnects.
        let _permit = permit;
        work()
    });
    made.await.map_err(|_| fault())
}

fn fault() -> Refusal {
    Refusal::unavailable("there is no response; this is a fault in hopwise, please report it")
}

/// Takes rows for a page: at most `limit`, and a bounded number of bytes. Returns whether there are more.
pub(super) fn fill<T: Serialize>(rows: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, bool) {
    view::fill(rows, limit, MAX_BYTES)
}

/// Bytes of a page.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of responses made at the same time.
pub const PAGES: usize = 2;
/// Maximum time for which a request waits for a permit.
const PERMIT_TIMEOUT: time::Duration = time::Duration::from_secs(2);
